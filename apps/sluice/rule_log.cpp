// sluice show log: packets that rules with `log` decided, in a process that runs. host only
#include "control/rule_log_control.h"

#include "base/clock.h"
#include "live_commands.h"

namespace sluice::app {
namespace {

Exit follow_log(const AskedFor& asked) {
  constexpr double kPeriod = 0.2;
  ClientFlags to = asked;
  to.socket = socket_of(asked);
  Json body = request_of(asked);
  uint64_t not_logged = 0, told_ns = 0;
  for (;;) {
    const Json r = request(to, body);
    std::string text;
    if (json_output()) {
      for (const Json& event : r.at("events"))
        text += event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    } else {
      text = rule_events_text(r);
    }
    const uint64_t total = count_of(r, "not_logged"), now = now_ns();
    if (!body.contains("after")) not_logged = total;
    if (total != not_logged && now - told_ns >= 1'000'000'000) {
      text += json_output() ? Json{{"not_logged", total}}.dump() + "\n"
                            : fmt::format("{} more packets not logged\n", with_commas(total - not_logged));
      not_logged = total;
      told_ns = now;
    }
    if (const uint64_t missed = count_of(r, "missed"); missed != 0)
      warn(fmt::format("{} were no longer kept when they were asked for", counted(missed, "event")));
    if (!text.empty()) print_out(text);
    body["after"] = count_of(r, "next");
    body["count"] = RuleLogControl::kMostAsked;
    if (r.at("events").size() == RuleLogControl::kMostAsked) continue;
    if (!wait_for(kPeriod) && interrupted().load(std::memory_order_relaxed)) return Exit::kInterrupted;
  }
}

}  // namespace

std::function<Exit()> add_follow_option(Command sub, const AskedFor& asked) {
  auto follow = std::make_shared<bool>(false);
  sub.add_flag("--follow", *follow, "Go on with those that follow, until Ctrl-C or the end of the run");
  return [follow, &asked] { return *follow ? follow_log(asked) : show_answer(asked); };
}

}  // namespace sluice::app
