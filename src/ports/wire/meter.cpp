// host only
#include "ports/wire/meter.h"

#include <utility>

#include "net/parse.h"

namespace sluice {

uint32_t wire_stamp_at(const uint8_t* frame, uint32_t bytes, bool* bad_checksum) {
  constexpr uint8_t kUdp = 17;
  constexpr uint32_t kUdpHeader = 8;
  Headers headers;
  ParseStatus status = parse_ethernet(frame, bytes, bytes, headers);
  const bool bad = status == ParseStatus::kIpv4BadChecksum;
  if (bad) status = parse_ethernet(frame, bytes, bytes, headers, false);
  if (bad_checksum != nullptr) *bad_checksum = bad;
  if (status != ParseStatus::kOk || headers.key.protocol != kUdp || (headers.key.bits & FlowKey::kLaterFragment) != 0 ||
      headers.l4_offset == Headers::kNoOffset) {
    return 0;
  }
  const uint32_t at = headers.l4_offset + kUdpHeader;
  return at + WireStamp::kBytes <= bytes ? at : 0;
}

WireMeter::WireMeter(RxQueue& queue, std::function<uint64_t()> clock_ns, bool latency)
    : queue_(queue), clock_ns_(std::move(clock_ns)), keeps_latency_(latency) {}

void WireMeter::begin(uint64_t key) {
  key_before_ = key_;
  has_before_ = std::exchange(has_key_, true);
  key_ = key;
  sequences_ = SequenceAccount();
  counts_ = {};
  latency_.clear();
}

uint32_t WireMeter::poll() {
  const uint64_t before = clock_ns_();
  const uint32_t n = queue_.poll({frames_.data(), extents_.data(), timestamps_.data()}, kBurst, before);
  if (n == 0) return 0;
  const uint64_t now = keeps_latency_ ? clock_ns_() : before;
  for (uint32_t i = 0; i < n; ++i) count(frames_[i] + extents_[i].data, extents_[i].end, now);
  queue_.pool().give({frames_.data(), n});
  return n;
}

void WireMeter::count(const uint8_t* frame, uint32_t bytes, uint64_t now_ns) {
  bool bad_checksum = false;
  const uint32_t at = wire_stamp_at(frame, bytes, &bad_checksum);
  WireStamp stamp;
  if (at == 0 || !stamp.read(frame + at, key_)) {
    const bool earlier = at != 0 && has_before_ && stamp.read(frame + at, key_before_);
    ++(earlier ? counts_.earlier : counts_.foreign);
    return;
  }
  ++counts_.received;
  counts_.bytes += bytes;
  counts_.bad_checksum += bad_checksum ? 1 : 0;
  const uint64_t unique = sequences_.unique();
  sequences_.add(stamp.sequence);
  if (keeps_latency_ && sequences_.unique() != unique) latency_.record(stamp.age_ns(now_ns));
}

WireCounts WireMeter::counts() const {
  WireCounts counts = counts_;
  counts.unique = sequences_.unique();
  counts.duplicated = sequences_.duplicated();
  counts.reordered = sequences_.reordered();
  counts.too_old = sequences_.too_old();
  return counts;
}

}  // namespace sluice
