// The blocks of a pcapng file, as far as its packets depend on them. Reads no file.
// host only
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// The sections and interfaces of one file, block by block (draft-ietf-opsawg-pcapng). Each section has a byte order and
// interfaces of its own; each interface has its link type, its snaplen and the resolution of its stamps.
class PcapngBlocks {
 public:
  static constexpr size_t kHead = 12;                         // bytes that head() needs
  static constexpr uint32_t kMostBytes = 16u << 20;           // of a block that is read
  static constexpr size_t kMostInterfaces = size_t{1} << 16;  // of a section

  enum class Kind : uint8_t { kSection, kInterface, kPacket, kOther };
  struct Head {
    Kind kind = Kind::kOther;
    bool swapped = false;  // the byte order is not that of this machine
    uint32_t bytes = 0;    // of the whole block; 0: its length cannot be right
    // Whether the length that stands in its last four bytes is the same.
    bool ends(const std::byte* last) const;
  };
  struct Packet {
    size_t data = 0;  // where its bytes begin in the block
    uint32_t captured = 0, wire = 0;
    uint32_t link = 0;     // a number of LINKTYPE_...
    __int128 seconds = 0;  // since 1970
    uint32_t nanoseconds = 0;
  };

  // Whether a file that begins so is pcapng.
  static bool begins(std::span<const std::byte> start);

  // Of the block that `bytes`, at least kHead, begin with.
  Head head(std::span<const std::byte> bytes) const;
  // The next block, whole. The text says what is wrong with it; empty: nothing. `packet` is written where the block is
  // one.
  std::string read(const Head& head, std::span<const std::byte> block, Packet& packet);
  // Whether `bytes`, which begin with the next block, hold a whole packet, or a block that is damaged.
  bool has_packet(std::span<const std::byte> bytes) const;
  // Of the section's interfaces, in the order of their numbers.
  size_t interfaces() const { return interfaces_.size(); }
  uint32_t link(size_t interface) const { return interfaces_[interface].link; }

 private:
  struct Interface {
    uint16_t link = 0;
    uint8_t resolution = 6;  // if_tsresol
    uint32_t snaplen = 0;
    int64_t offset = 0;  // seconds; if_tsoffset
  };

  uint16_t load16(const std::byte* at) const;
  uint32_t load32(const std::byte* at) const;
  std::string read_section(std::span<const std::byte> block);
  std::string read_interface(std::span<const std::byte> block);
  std::string read_packet(std::span<const std::byte> block, Packet& packet) const;
  static void stamp(uint64_t units, const Interface& interface, Packet& packet);

  bool swapped_ = false;
  std::vector<Interface> interfaces_;
};

}  // namespace sluice
