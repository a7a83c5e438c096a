// host only
// What rules with `log` say: the thread that takes their records, writes them and keeps the newest for `show log`. The
// protocol is that of Control.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "control/json.h"
#include "exec/account/rule_log.h"

namespace sluice {

class RuleLogControl {
 public:
  static constexpr size_t kKept = 1024;  // events
  static constexpr uint64_t kMostAsked = 1000;

  // `write` is given each line, by one thread at a time; what it waits for holds up neither packets nor requests:
  // records that find no room meanwhile are counted. The thread begins with it. Errors: the system starts no thread.
  static Result<std::unique_ptr<RuleLogControl>> create(std::shared_ptr<RuleLog> log,
                                                        std::function<void(const std::string& line)> write);
  ~RuleLogControl();
  RuleLogControl(const RuleLogControl&) = delete;
  RuleLogControl& operator=(const RuleLogControl&) = delete;

  // No packets come any more: writes what is left, and ends the thread. Not from `write`.
  void finish();

  // {"logged", "not_logged", "rate", "events": [...], "next", "missed"}: events after the one of number `after`, oldest
  // first, at most `count`, where `newest` those at the end; `next`: `after` of the request that goes on; `missed`: how
  // many of those asked for are no longer kept. An event: {"number", "timestamp_ns", "table", "rule", "file", "line",
  // "text", "verdict", "flow", "family", "src_ip", "dest_ip", "src_port", "dest_port", "proto", "bytes", "ip_bytes",
  // "input", "element", "worker"}; file, line, ports and input are null where there is none. Any thread.
  nlohmann::ordered_json show(uint64_t after, bool newest, uint64_t count);

 private:
  RuleLogControl(std::shared_ptr<RuleLog> log, std::function<void(const std::string& line)> write);
  void work(const std::stop_token& stop);
  void turn(bool tell_missed);

  const std::shared_ptr<RuleLog> log_;
  const std::function<void(const std::string&)> write_;
  std::mutex mutex_;                         // of what follows
  std::deque<nlohmann::ordered_json> kept_;  // events; none keeps a version of a list
  uint64_t last_ = 0;                        // the number of the newest event; from 1
  std::jthread thread_;
};

// Whether a packet may be recorded: a list has a rule with `log`.
bool has_logging_rules(const TableSet& tables);

// One event as a line for people: that of the log, and of `show log`.
std::string rule_event_text(const nlohmann::ordered_json& event);
// Those of an answer to `show log`, for a terminal.
std::string rule_events_text(const nlohmann::ordered_json& answer);

}  // namespace sluice
