// host only
#include "control/rule_log_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "base/clock.h"
#include "base/counted.h"
#include "base/thread.h"
#include "control/acl_images.h"
#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/json.h"
#include "control/key_text.h"
#include "formats/native_rules.h"
#include "net/text.h"
#include "tables/acl/sections.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::chrono::milliseconds kTurn{50};
constexpr uint64_t kTellNs = 1'000'000'000;  // how often it is said what was not logged

const char* verdict_of(AclVerb verb) {
  return verb == AclVerb::kDeny ? "deny" : verb == AclVerb::kMark ? "mark" : "permit";
}

std::string place_text(const std::string& table, const LoggedRule::Place& place) {
  return place.file == nullptr ? fmt::format("{} rule {}", table, place.position)
                               : fmt::format("{} {}:{} (rule {})", table, *place.file, place.line, place.position);
}

Json event_json(const RuleLog::Event& event, uint64_t number) {
  const LoggedPacket& p = event.packet;
  const LoggedRules::Rule& rule = event.rule();
  const FlowKey& k = p.key;
  const bool ports = (k.bits & FlowKey::kHasPorts) != 0;
  const std::string input = event.rules->input(p.source);
  return {{"number", number},
          {"timestamp_ns", p.timestamp_ns},
          {"table", rule.rule->table},
          {"rule", rule.place.position},
          {"file", rule.place.file == nullptr ? Json(nullptr) : Json(*rule.place.file)},
          {"line", rule.place.file == nullptr ? Json(nullptr) : Json(rule.place.line)},
          {"text", to_native(configured_rule(rule.rule->match, rule.rule->action))},
          {"verdict", verdict_of(rule.rule->action.verb)},
          {"flow", five_tuple(k)},
          {"family", k.family},
          {"src_ip", to_string(IpAddress{k.src_hi, k.src_lo, k.family})},
          {"dest_ip", to_string(IpAddress{k.dst_hi, k.dst_lo, k.family})},
          {"src_port", ports ? Json(k.src_port) : Json(nullptr)},
          {"dest_port", ports ? Json(k.dst_port) : Json(nullptr)},
          {"proto", k.protocol},
          {"bytes", p.bytes},
          {"ip_bytes", p.ip_bytes},
          {"input", input.empty() ? Json(nullptr) : Json(input)},
          {"element", event.rules->element()},
          {"worker", p.worker}};
}

}  // namespace

bool has_logging_rules(const TableSet& tables) {
  for (const auto& [name, image] : tables.acls) {
    const auto actions = AclActionsView::open(*image);
    if (!actions) continue;
    for (uint32_t rule = 1; rule <= actions->size(); ++rule) {
      if (actions->action(rule).log != 0) return true;
    }
  }
  return false;
}

std::string rule_event_text(const Json& e) {
  const auto word = [](const Json& json) { return json.get<std::string>(); };
  return fmt::format("{} {} {}, {} bytes, {} {}{}", time_text(e.at("timestamp_ns").get<uint64_t>()),
                     word(e.at("verdict")), word(e.at("flow")), e.at("bytes").get<uint64_t>(), word(e.at("table")),
                     e.at("file").is_null() ? fmt::format("rule {}", e.at("rule").get<uint64_t>())
                                            : fmt::format("{}:{} (rule {})", word(e.at("file")),
                                                          e.at("line").get<uint64_t>(), e.at("rule").get<uint64_t>()),
                     e.at("input").is_null() ? std::string() : ", from " + word(e.at("input")));
}

std::string rule_events_text(const Json& r) {
  std::string text;
  for (const Json& event : r.at("events")) text += printable(rule_event_text(event)) + "\n";
  return text;
}

RuleLogControl::RuleLogControl(std::shared_ptr<RuleLog> log, std::function<void(const std::string& line)> write)
    : log_(std::move(log)), write_(std::move(write)) {}

Result<std::unique_ptr<RuleLogControl>> RuleLogControl::create(std::shared_ptr<RuleLog> log,
                                                               std::function<void(const std::string& line)> write) {
  std::unique_ptr<RuleLogControl> made(new RuleLogControl(std::move(log), std::move(write)));
  auto thread = start_thread([control = made.get()](const std::stop_token& stop) { control->work(stop); });
  if (!thread) return std::move(thread).error();
  made->thread_ = std::move(*thread);
  return made;
}

RuleLogControl::~RuleLogControl() {
  thread_.request_stop();
}

void RuleLogControl::finish() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  turn(true);
}

void RuleLogControl::work(const std::stop_token& stop) {
  uint64_t told_ns = now_ns();
  while (!stop.stop_requested()) {
    log_->wait(stop, kTurn);
    const bool tell = now_ns() - told_ns >= kTellNs;
    if (tell) told_ns = now_ns();
    turn(tell);
  }
}

void RuleLogControl::turn(bool tell_missed) {
  try {
    for (const RuleLog::Event& event : log_->take(now_ns())) {
      Json json = event_json(event, last_ + 1);
      write_("log: " + rule_event_text(json));
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(json));
      ++last_;
      if (kept_.size() > kKept) kept_.pop_front();
    }
    if (!tell_missed) return;
    for (const RuleLog::Missed& missed : log_->take_missed()) {
      write_(fmt::format("log: {} more packet{} not logged, {}", with_commas(missed.packets),
                         missed.packets == 1 ? "" : "s", place_text(missed.rule->table, missed.place)));
    }
  } catch (const std::bad_alloc&) {
    // Those that are lost here were counted as logged; the next turn may find memory.
  }
}

Json RuleLogControl::show(uint64_t after, bool newest, uint64_t count) {
  Json events = Json::array();
  uint64_t first = 0, missed = 0;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t oldest = last_ - kept_.size();  // all after it are kept
    if (newest) {
      first = last_ - std::min<uint64_t>(count, kept_.size());
    } else {
      first = std::clamp(after, oldest, last_);
      if (after < oldest) missed = oldest - after;
    }
    for (; first < last_ && events.size() < count; ++first) events.push_back(kept_[first - oldest]);
  }
  const RuleLog::Sums sums = log_->sums();
  return Json{{"logged", sums.logged}, {"not_logged", sums.missed},
              {"rate", log_->rate()},  {"events", std::move(events)},
              {"next", first},         {"missed", missed}};
}

std::vector<CommandRow> log_commands() {
  using namespace fields;
  return {
      {.name = "show log",
       .help = "The packets that rules with 'log' decided, the newest last: time, verdict, five-tuple, length, rule, "
               "input. They are also written to the process log. Packets beyond 'sluice run --log-rate' are counted "
               "alone.",
       .examples = "sluice show log\nsluice show log --follow -o json --control /run/sluice/control",
       .fields = {number("after", 0, ~uint64_t{0}).means("the number of an event; absent: the newest events"),
                  count(RuleLogControl::kMostAsked, 100, 100, "At most so many of the newest")},
       .run = [](Control& c, Asked& asked) -> Result<Json> {
         const bool newest = !asked.has("after");
         return c.log->show(newest ? 0 : asked.number("after"), newest, asked.number("count"));
       },
       .text =
           [](const Json& r, Rates*) {
             return rule_events_text(r) + fmt::format("{} logged, {} not logged (each rule logs {} a second)\n",
                                                      counted(count_of(r, "logged"), "packet"),
                                                      with_commas(count_of(r, "not_logged")),
                                                      with_commas(count_of(r, "rate")));
           },
       .path = "log",
       .there = [](const Control& c) { return c.log != nullptr; }},
  };
}

}  // namespace sluice
