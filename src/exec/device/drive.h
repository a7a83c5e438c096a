// host only
// Keys through a device without ports or graphs: what `classify` and `route` use, and what measures a device's round
// trip and its rate from host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/histogram.h"
#include "exec/device/channel.h"

namespace sluice {

// One thread's two channels for the keys of one program: IPv4 packets, and all others.
class KeyLink {
 public:
  // `resident` outlives the link. Errors: those of Channel::create and install.
  static Result<std::unique_ptr<KeyLink>> open(Device& device, const Resident& resident, size_t node,
                                               const ChannelOptions& options);

  // results[i] is that of keys[i]. Errors: the device failed; the results are incomplete then.
  Result<void> run(std::span<const FlowKey> keys, std::span<KeyResult> results);

  Channel& ipv4() { return *ipv4_; }
  Channel& others() { return *others_; }
  const DeviceProgram& program() const { return resident_->programs[node_]; }
  uint32_t parity() const { return resident_->parity; }

 private:
  KeyLink() = default;
  const Resident* resident_ = nullptr;
  size_t node_ = 0;
  bool shares_cores_ = false;  // the device runs on the host's own processors
  std::unique_ptr<Channel> ipv4_, others_;
};

// A stream of one-word records as fast as it goes: each thread fills frames of `frame` records and keeps up to
// `flights` of them on their way. Every result is compared with what is expected.
struct DriveOptions {
  RecordKind kind = RecordKind::kKey4;  // or kRoute4
  ChannelOptions channel;               // records is the frame
  uint32_t threads = 1;
  uint64_t frames = 1000;  // a thread, after `warm_up` of them
  uint64_t warm_up = 100;
};
struct DriveResult {
  uint64_t packets = 0;  // lookups: three a kRoute4 record
  uint64_t wrong = 0;    // results that were not as expected
  double seconds = 0;    // of the slowest thread
  double rate = 0;       // packets a second: the threads' rates added
  Histogram round_trip;  // first record written to last result read, ns, once a frame
  ChannelStats channels;
};
// A device and its copy of the tables.
struct DriveTarget {
  Device* device = nullptr;
  const Resident* resident = nullptr;
};
// Thread t uses target t modulo their number. `records`: with tag 0; `expected`: result_digest or routes_digest of
// each. Errors: the device failed.
Result<DriveResult> drive(std::span<const DriveTarget> targets, size_t node, std::span<const Word> records,
                          std::span<const uint32_t> expected, const DriveOptions& options);

// Of a key's result.
inline uint32_t result_digest(uint32_t rule, uint32_t next_hop) {
  return rule ^ next_hop * 2654435761u;
}
// Of a kRoute4 record's result, whatever its tag.
inline uint32_t routes_digest(uint64_t result) {
  return static_cast<uint32_t>(result) ^ (static_cast<uint32_t>(result >> 32) & 0x01ffffffu) * 2654435761u;
}

}  // namespace sluice
