// Any bytes as a capture: no crash, no hang, no frame past its bounds; damage is an error that repeats.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "ports/pcap/capture_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto reader =
      sluice::CaptureReader::open(sluice::InputFile::over({reinterpret_cast<const std::byte*>(data), size}, "fuzz"));
  if (!reader.ok()) return 0;

  static std::vector<uint8_t> room(2 * 4096);
  sluice::FrameSlot slots[2] = {{room.data(), 4096, {}}, {room.data() + 4096, 4096, {}}};
  sluice::CapturedFrame frame;
  uint64_t packets = 0;
  volatile uint8_t sink = 0;
  while (packets < 100'000) {
    auto got = reader->next(frame);
    if (!got.ok()) {
      auto again = reader->next(frame);
      if (again.ok() || again.error().message != got.error().message) std::abort();
      break;
    }
    if (!*got) break;
    if (frame.captured > sluice::kMaxCapturedBytes || frame.wire_bytes < frame.captured) std::abort();
    for (uint32_t i = 0; i < frame.captured; ++i) sink = static_cast<uint8_t>(sink ^ frame.data[i]);
    ++packets;
    auto burst = reader->read_burst(slots);
    if (!burst.ok()) continue;  // damage, or a frame too large for a slot: next() tells which
    packets += *burst;
    if (reader->packets() != packets) std::abort();
  }
  return 0;
}
