// host only
// For tests: one packet through a chain of stage elements, written as Click text. No executor is involved.
//
//   expect(udp4("10.0.0.1", "192.0.2.7").ttl(1)).through("IPInput -> DecIPTTL").drops(DropReason::kTtlExpired);
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "batch/packet.h"
#include "graph/router.h"
#include "net/packet_builder.h"

namespace sluice::testing {

// Where a packet ended: past the last element, or out of element `element` (0: the first) by an output that leads
// nowhere.
struct Passage {
  bool passed = false;
  unsigned element = 0;
  uint8_t output = 0;
  Packet packet;                 // the registers; packet.frame dangles in a copy, bytes() does not
  std::vector<uint8_t> storage;  // headroom, frame, tail room
  std::string error;             // the chain itself is wrong

  std::vector<uint8_t> bytes() const {
    if (storage.empty()) return {};
    const uint8_t* at = storage.data() + kHeadroom + packet.data;
    return {at, at + packet.length()};
  }

  // Each returns *this, so that a sentence can go on.
  const Passage& passes() const;
  const Passage& drops(DropReason reason) const;
  const Passage& leaves_by(uint8_t wanted) const;  // an output of the last element
};

class Expectation {
 public:
  explicit Expectation(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  // The packet was longer on the wire than what is here.
  Expectation& captured_of(uint32_t wire_bytes) {
    wire_ = wire_bytes;
    return *this;
  }
  Expectation& painted(uint8_t paint) {
    paint_ = paint;
    return *this;
  }
  // `chain` is elements with one input and outputs that all lead to the next one ("all outputs": only output 0 does
  // unless the class has no error output). `before` is Click text that stands before it, such as table declarations.
  Passage through(const std::string& chain, const std::string& before = {}) const;

 private:
  std::vector<uint8_t> bytes_;
  uint32_t wire_ = 0;
  uint8_t paint_ = 0;
};

inline Expectation expect(const PacketBuilder& packet) {
  return Expectation(packet.build());
}
inline Expectation expect(std::vector<uint8_t> bytes) {
  return Expectation(std::move(bytes));
}

// "line:column: message" of everything that is wrong (or warned about) in a configuration, one a line.
std::string findings(const std::string& text);
// The same for one element between a source and Discard: it starts at 2:1.
std::string findings_of(const std::string& element);

const Registry& all_elements();

}  // namespace sluice::testing
