// sluice show log: packets that rules with `log` decided, in a process that runs. host only
#include "control/rule_log_control.h"

#include "base/clock.h"
#include "base/printable.h"
#include "live.h"
#include "live_client.h"
#include "watch.h"

namespace sluice::app {
namespace {

struct LogFlags : ClientFlags {
  uint64_t count = 100;
  bool follow = false;
};

std::string events_text(const Json& r) {
  std::string text;
  for (const Json& event : r.at("events")) text += printable(rule_event_text(event)) + "\n";
  return text;
}

Exit follow_log(const LogFlags& flags) {
  constexpr double kPeriod = 0.2;
  ClientFlags to = flags;
  to.socket = socket_of(flags);
  Json body{{"command", "show log"}, {"count", flags.count}};
  uint64_t not_logged = 0, told_ns = 0;
  for (;;) {
    const Json r = request(to, body);
    std::string text;
    if (json_output()) {
      for (const Json& event : r.at("events"))
        text += event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    } else {
      text = events_text(r);
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

Exit show_log(const LogFlags& flags) {
  if (flags.follow) return follow_log(flags);
  const Json r = request(flags, {{"command", "show log"}, {"count", flags.count}});
  return print(
      r, events_text(r) + fmt::format("{} logged, {} not logged (each rule logs {} a second)\n",
                                      counted(count_of(r, "logged"), "packet"), with_commas(count_of(r, "not_logged")),
                                      with_commas(count_of(r, "rate"))));
}

}  // namespace

void add_show_log(Command show) {
  auto flags = std::make_shared<LogFlags>();
  Command sub =
      add_subcommand(show, "log", "Subcommands",
                     "The packets that rules with 'log' decided, the newest last: time, verdict, five-tuple, length, "
                     "rule, input.\nThey "
                     "are also written to the process log. Packets beyond 'sluice run --log-rate' are counted alone.",
                     "sluice show log\nsluice show log --follow -o json --control /run/sluice/control",
                     [flags] { return answered([&] { return show_log(*flags); }); });
  add_socket_option(*sub, *flags);
  sub->add_option("--count", flags->count, "At most so many of the newest")
      ->check(Range(uint64_t{1}, RuleLogControl::kMostAsked))
      ->type_name("N")
      ->capture_default_str();
  sub->add_flag("--follow", flags->follow, "Go on with those that follow, until Ctrl-C or the end of the run");
}

}  // namespace sluice::app
