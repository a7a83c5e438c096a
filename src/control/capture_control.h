// host only
// What a run answers about a capture of its packets: `capture start`, `capture read`, `capture stop`, `show capture`.
// The client that started it reads the packets and writes the file. The protocol is that of Control.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "exec/account/packet_taps.h"
#include "exec/engine/engine.h"

namespace sluice {

// One thread at a time: that of Control. One capture at a time.
class CaptureControl {
 public:
  static constexpr size_t kRoomBytes = size_t{16} << 20;   // of packets that wait to be read, with kEachBytes for each
  static constexpr size_t kEachBytes = 1024;               // bounds the memory of short packets
  static constexpr size_t kAnswerBytes = size_t{1} << 20;  // of frames in one answer, at least one frame
  static constexpr uint64_t kLeaseNs = 60'000'000'000;     // a capture that nobody reads for so long ends
  static constexpr uint64_t kPatienceNs = 3'000'000'000;   // after the run's end, between two questions
  static constexpr uint64_t kMostPatienceNs = 15'000'000'000;  // after the run's end
  static constexpr uint64_t kMostPackets = uint64_t{1} << 48;

  // `taps` are those of the engine's options.
  CaptureControl(Engine& engine, std::shared_ptr<PacketTaps> taps);
  ~CaptureControl();

  // Another graph runs since the generation that is current now: of packets of those before, the way is not known.
  void graph_changed() { first_generation_ = engine_.publisher().generation(); }
  // Notes what became of the packets that are through, and lets go of the tables that they met.
  void digest();
  // No packet comes any more. What waits can still be read.
  void run_ended();
  // Of a run that has ended: somebody has still to read what waits, or that it ended, and has asked within kPatienceNs
  // before `now_ns`; whoever asks and asks keeps it for kMostPatienceNs at most.
  bool waits_for_reader(uint64_t now_ns) const;

  // Which of the packets that match are captured; both once their fate is known.
  struct Wanted {
    std::string filter;
    bool dropped = false;    // those that were dropped
    std::string dropped_at;  // those that this element dropped; empty: any
    std::string at;          // those that came to this element; empty: any
  };
  // The results of `capture start`, `capture read`, `capture stop` and `show capture`. `id` of `stop`: asked by its
  // reader, who reads on; 0: by anybody, and the second time what nobody reads is forgotten.
  Result<nlohmann::ordered_json> start(Wanted wanted, uint64_t packets, uint32_t snap_bytes);
  Result<nlohmann::ordered_json> read(uint64_t id);
  Result<nlohmann::ordered_json> stop(uint64_t id);
  nlohmann::ordered_json show();

 private:
  struct Captured {
    uint64_t timestamp_ns = 0;
    std::string input, frame, comment;
    uint32_t wire_bytes = 0;
    size_t room_bytes = 0;  // of the frame as it was followed
  };
  Result<void> check_element(const std::string& name) const;
  enum class Came : uint8_t { kNo, kYes, kUnknown };
  struct Explained;
  Came came_to(const FollowedPacket& packet, const std::string& element, Explained& explained) const;
  uint64_t missed() const { return (order_ == nullptr ? 0 : order_->missed()) + unknown_; }
  void forget();
  void end(const char* why);

  Engine& engine_;
  std::shared_ptr<PacketTaps> taps_;
  std::shared_ptr<TapOrder> order_;  // nullptr: there was none yet
  uint64_t id_ = 0;
  Wanted wanted_;
  uint64_t first_generation_ = 0;  // of the graph that runs
  uint64_t packets_ = 0, captured_ = 0;
  uint64_t unknown_ = 0;  // packets of which it is not known whether they came to `wanted_.at`
  uint32_t snap_bytes_ = 0;
  std::string ended_;       // why; empty: it goes on
  bool over_ = false;       // the run
  uint64_t over_ns_ = 0;    // since when
  uint64_t asked_ns_ = 0;   // when the reader asked last
  bool all_taken_ = false;  // when it was digested last, no packet was on its way
  bool said_ = false;       // that it ended, in an answer
  bool told_ = true;        // the reader has that answer: it asked again, or is gone
  std::deque<Captured> waiting_;
};

// What became of a packet, for people: "left by out (port 0)", "dropped: acl-deny at acl, rule edge.acl:3".
std::string fate_text(const FollowedPacket& packet);
// What `show capture` says, for people.
std::string capture_text(const nlohmann::ordered_json& capture);

}  // namespace sluice
