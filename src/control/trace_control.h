// host only
// What a run answers about packets that are followed: `trace add`, `show trace`, `trace clear`. The protocol is that of
// Control.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/live_tables.h"
#include "exec/engine.h"
#include "exec/packet_taps.h"

namespace sluice {

// One thread at a time: that of Control. Packets that are through are explained with the tables that they met, before
// anything is changed, so that no old table is kept longer than until the next request.
class TraceControl {
 public:
  static constexpr uint64_t kMostPackets = 1000;
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of frames that wait to be explained

  // `taps` are those of the engine's options.
  TraceControl(Engine& engine, std::shared_ptr<PacketTaps> taps);
  ~TraceControl();

  // Another graph runs since the generation that is current now: packets of those before are shown as they were
  // recorded.
  void graph_changed() { first_generation_ = engine_.publisher().generation(); }
  // Explains the packets that are through.
  void digest(LiveTables& tables);

  bool answers(std::string_view command) const;
  Result<nlohmann::ordered_json> run(nlohmann::ordered_json& request);

 private:
  Result<nlohmann::ordered_json> add(uint64_t packets, const std::string& filter);
  // Of the packets that are through the last `count`.
  nlohmann::ordered_json show(size_t count) const;

  struct Shown;
  Engine& engine_;
  std::shared_ptr<PacketTaps> taps_;
  std::shared_ptr<TapOrder> order_;  // nullptr: nothing was asked for
  uint64_t asked_ = 0;
  std::string filter_;
  uint64_t first_generation_ = 0;
  std::unique_ptr<Shown> shown_;
};

// The flat rules of a filter: a native rule, with or without its verb. Errors: those of the rule; more than one line;
// more than 1024 rules.
Result<std::vector<AclMatchRule>> parse_packet_filter(const std::string& text);

// One followed packet: {"number", "timestamp_ns", "input", "bytes", "captured", "flow", "generation", "worker",
// "on_device", "fate": {"forwarded", "reason", "element", "ends": [...]}, "explanation": as of packet_way, or null,
// "agrees"}. `router` and `tables` are those that it met; nullptr: they are gone.
nlohmann::ordered_json followed_json(const FollowedPacket& packet, const Router* router, LiveTables* tables);
// "show trace" for people.
std::string trace_text(const nlohmann::ordered_json& trace);

}  // namespace sluice
