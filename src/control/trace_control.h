// host only
// What a run answers about packets that are followed: `trace add`, `show trace`, `trace clear`. The protocol is that of
// Control.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "control/live_tables.h"
#include "control/packet_way.h"
#include "exec/account/packet_taps.h"
#include "exec/engine/engine.h"

namespace sluice {

// One thread at a time: that of Control. Packets that are through are explained with the tables that they met, before
// anything is changed, so that no old table is kept longer than until the next request.
class TraceControl {
 public:
  static constexpr uint64_t kMostPackets = 1000;
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of frames that wait to be explained

  // `taps` are those of the engine's options.
  TraceControl(Engine& engine, std::shared_ptr<PacketTaps> taps);

  // Another graph runs since the generation that is current now: packets of those before are shown as they were
  // recorded.
  void graph_changed() { first_generation_ = engine_.publisher().generation(); }
  // Explains the packets that are through.
  void digest(LiveTables& tables);

  // The result of `trace add`; `show trace` of the packets that are through the last `count`, as text; `trace clear`.
  Result<nlohmann::ordered_json> add(uint64_t packets, const std::string& filter);
  std::string show(size_t count);
  nlohmann::ordered_json clear();

 private:
  struct Shown {
    uint64_t number;
    std::string json;
  };
  Engine& engine_;
  std::shared_ptr<PacketTaps> taps_;
  std::shared_ptr<TapOrder> order_;  // nullptr: nothing was asked for
  uint64_t asked_ = 0;
  std::string filter_;
  uint64_t first_generation_ = 0;
  std::vector<Shown> shown_;  // kMostPackets at most
};

// The flat rules of a filter: a native rule, with or without its verb. Errors: those of the rule; more than one line;
// more than 1024 rules.
Result<std::vector<AclMatchRule>> parse_packet_filter(const std::string& text);

// Followed packets as text. It holds the tables that they met: it lives for as long as some packets are explained.
class FollowedTexts {
 public:
  // Packets of generations before `first_generation` met another graph than `router`.
  // `neighbours` as of PacketWays.
  FollowedTexts(const Router& router, LiveTables& tables, uint64_t first_generation = 0,
                const Neighbours* neighbours = nullptr)
      : router_(router), tables_(tables), first_generation_(first_generation), neighbours_(neighbours) {}

  // {"number", "timestamp_ns", "input", "bytes", "captured", "flow", "generation", "worker", "on_device", "fate":
  // {"forwarded", "reason", "element", "ends": [...]}, "explanation": as of PacketWays, or null, "agrees", and where it
  // is not explained "why_not"}.
  std::string text(const FollowedPacket& packet);

 private:
  PacketWays& ways_of(const FollowedPacket& packet);

  const Router& router_;
  LiveTables& tables_;
  const uint64_t first_generation_;
  const Neighbours* const neighbours_;
  // PacketTaps keeps two generations at most.
  std::vector<std::pair<std::shared_ptr<const TableSet>, std::unique_ptr<PacketWays>>> ways_;
};

// "show trace" for people.
std::string trace_text(const nlohmann::ordered_json& trace);

}  // namespace sluice
