// host only
// What a sender on this machine leaves to a NIC that its packets never meet: checksums, and the cutting of what is
// larger than a packet may be.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

// virtio_net_hdr as a packet socket writes it before a frame (<linux/virtio_net.h> is no C++). Offsets count from the
// frame's first byte; host order.
struct VnetHeader {
  static constexpr uint8_t kNeedsChecksum = 1;
  static constexpr uint8_t kNotSegmented = 0, kTcp4 = 1, kTcp6 = 4, kUdp = 5;
  static constexpr uint8_t kCongestion = 0x80;  // set beside one of them where the first segment has CWR
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

// The length that an IP header does not say: a sender that leaves the cutting of a large packet to a NIC (TSO) may
// leave it 0, and a capture shows the frame as it was handed over. IPv4 gets a total length and a checksum, IPv6 a
// payload length, from the frame's length on the wire. What has a length, is no IP packet or is longer than its field
// can say stays as it is.
void fill_length(uint8_t* frame, uint32_t captured, uint32_t wire);

// A frame that stands for many (TSO and USO of a sender on this machine, GRO of a receiving interface), cut into the
// frames that it stands for, as a NIC would cut it: lengths, IPv4 identifications, sequence numbers and flags count on,
// checksums are complete.
class Segments {
 public:
  // `frame` is lent until the last segment is taken. False: it is none that can be cut so (a tunnel's, a fragment, IPv4
  // of an earlier kind of offload, headers of more than 256 bytes), or its segments would be larger than `room`.
  bool begin(const uint8_t* frame, uint32_t bytes, const VnetHeader& left, uint32_t room);
  bool empty() const { return left_bytes_ == 0; }
  // Writes the next segment, of at most `room` bytes, and returns its length. Only where there is one.
  uint32_t next(uint8_t* to);

 private:
  static constexpr uint32_t kMostHeaderBytes = 256;
  std::array<uint8_t, kMostHeaderBytes> headers_;
  uint32_t header_bytes_ = 0, l3_ = 0, l4_ = 0;
  const uint8_t* payload_ = nullptr;
  uint32_t left_bytes_ = 0;     // of the payload
  uint32_t segment_bytes_ = 0;  // of it in each
  uint32_t pseudo_ = 0;         // sum of the pseudo-header but for the length
  uint32_t number_ = 0;
  bool v4_ = false, tcp_ = false;
};

}  // namespace sluice
