// host only
// What a sender on this machine leaves to a NIC that its packets never meet: checksums.
#pragma once

#include <cstdint>

namespace sluice {

// virtio_net_hdr as a packet socket writes it before a frame (<linux/virtio_net.h> is no C++). Offsets count from the
// frame's first byte; host order.
struct VnetHeader {
  static constexpr uint8_t kNeedsChecksum = 1;
  static constexpr uint8_t kNotSegmented = 0;
  uint8_t flags;
  uint8_t segmentation;
  uint16_t header_bytes;
  uint16_t segment_bytes;
  uint16_t checksum_start;
  uint16_t checksum_offset;
};
static_assert(sizeof(VnetHeader) == 10);

// Writes the checksum of bytes [start, bytes) to start + offset, which holds the sum of the pseudo-header (Linux:
// CHECKSUM_PARTIAL). False: the offsets lie outside of the frame, and nothing was done.
bool complete_checksum(uint8_t* frame, uint32_t bytes, uint32_t start, uint32_t offset);

// The same where nobody says that the checksum is incomplete: that of a TCP or UDP packet whose field holds just the
// sum of its pseudo-header. A complete one may hold it too; then it is written as it was.
void complete_checksum_if_partial(uint8_t* frame, uint32_t bytes);

}  // namespace sluice
