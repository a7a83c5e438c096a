// Any bytes as a capture: no crash, no hang, no frame past its bounds; damage is an error that repeats; frames that are
// read many at a time are those that are read one by one.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ports/pcap/capture_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto open = [&] {
    return sluice::CaptureReader::open(
        sluice::InputFile::over({reinterpret_cast<const std::byte*>(data), size}, "fuzz"));
  };
  auto reader = open(), other = open();
  if (reader.ok() != other.ok()) std::abort();
  if (!reader.ok()) return 0;

  sluice::CapturedFrame frame, many[3];
  uint64_t packets = 0;
  while (packets < 100'000) {
    const auto some = other->next(std::span(many));
    const size_t n = some.ok() ? *some : 0;
    if (n > 3) std::abort();
    for (size_t i = 0; i < n; ++i) {
      auto got = reader->next(frame);
      if (!got.ok() || !*got) std::abort();
      if (frame.captured > sluice::kMaxCapturedBytes || frame.wire_bytes < frame.captured) std::abort();
      if (many[i].captured != frame.captured || many[i].wire_bytes != frame.wire_bytes ||
          many[i].timestamp_ns != frame.timestamp_ns ||
          (frame.captured != 0 && std::memcmp(many[i].data, frame.data, frame.captured) != 0)) {
        std::abort();
      }
      ++packets;
    }
    if (other->packets() != packets || reader->packets() != packets) std::abort();
    if (n != 0) continue;
    auto got = reader->next(frame), again = reader->next(frame);
    if (got.ok() != some.ok() || again.ok() != some.ok()) std::abort();
    if (some.ok() ? *got || *again
                  : got.error().message != some.error().message || again.error().message != some.error().message) {
      std::abort();
    }
    break;
  }
  return 0;
}
