#include "ports/pcap/pcapng_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice {
namespace {

constexpr uint32_t kSection = 0x0a0d0d0a, kInterface = 1, kObsoletePacket = 2, kSimplePacket = 3, kEnhancedPacket = 6;
constexpr uint32_t kOrder = 0x1a2b3c4d;
constexpr uint16_t kEndOfOptions = 0, kStampResolution = 9, kStampOffset = 14;
constexpr uint32_t kNanosecondPower = 9;

uint32_t word(const std::byte* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

constexpr auto kPowersOfTen = [] {
  std::array<uint64_t, 20> powers{1};
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
  return powers;
}();

constexpr uint32_t padded(uint32_t bytes) {
  return (bytes + 3) / 4 * 4;
}

}  // namespace

uint16_t PcapngBlocks::load16(const std::byte* at) const {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return swapped_ ? __builtin_bswap16(value) : value;
}
uint32_t PcapngBlocks::load32(const std::byte* at) const {
  return swapped_ ? __builtin_bswap32(word(at)) : word(at);
}

bool PcapngBlocks::begins(std::span<const std::byte> start) {
  return start.size() >= kHead && word(start.data()) == kSection;
}

// A section's length is in its own byte order, which stands behind it.
PcapngBlocks::Head PcapngBlocks::head(std::span<const std::byte> bytes) const {
  Head head{.swapped = swapped_};
  if (word(bytes.data()) == kSection) {
    head.kind = Kind::kSection;
    head.swapped = word(bytes.data() + 8) != kOrder;
  } else {
    const uint32_t type = load32(bytes.data());
    if (type == kInterface) head.kind = Kind::kInterface;
    if (type == kEnhancedPacket || type == kSimplePacket || type == kObsoletePacket) head.kind = Kind::kPacket;
  }
  const uint32_t length = word(bytes.data() + 4), turned = head.swapped ? __builtin_bswap32(length) : length;
  if (turned >= kHead && turned % 4 == 0) head.bytes = turned;
  return head;
}

bool PcapngBlocks::Head::ends(const std::byte* last) const {
  return (swapped ? __builtin_bswap32(word(last)) : word(last)) == bytes;
}

bool PcapngBlocks::has_packet(std::span<const std::byte> bytes) const {
  PcapngBlocks at;
  at.swapped_ = swapped_;
  while (bytes.size() >= kHead) {
    const Head next = at.head(bytes);
    at.swapped_ = next.swapped;
    if (next.bytes == 0 || (next.kind != Kind::kOther && next.bytes > kMostBytes)) return true;
    if (next.bytes > bytes.size()) return false;
    if (next.kind == Kind::kPacket) return true;
    bytes = bytes.subspan(next.bytes);
  }
  return false;
}

std::string PcapngBlocks::read(const Head& head, std::span<const std::byte> block, Packet& packet) {
  switch (head.kind) {
    case Kind::kSection:
      return read_section(block);
    case Kind::kInterface:
      return read_interface(block);
    case Kind::kPacket:
      return read_packet(block, packet);
    case Kind::kOther:
      break;
  }
  return {};
}

std::string PcapngBlocks::read_section(std::span<const std::byte> block) {
  constexpr size_t kLeast = 28;
  if (block.size() < kLeast) return fmt::format("a section header of {} bytes", block.size());
  const uint32_t order = word(block.data() + 8);
  if (order != kOrder && __builtin_bswap32(order) != kOrder) return "a section header without a byte order";
  swapped_ = order != kOrder;
  interfaces_.clear();
  const unsigned major = load16(block.data() + 12), minor = load16(block.data() + 14);
  if (major != 1 || (minor != 0 && minor != 2))
    return fmt::format("version {}.{} of pcapng is not known", major, minor);
  return {};
}

std::string PcapngBlocks::read_interface(std::span<const std::byte> block) {
  constexpr size_t kLeast = 20;
  if (block.size() < kLeast) return fmt::format("an interface description of {} bytes", block.size());
  if (interfaces_.size() == kMostInterfaces) return fmt::format("more than {} interfaces", kMostInterfaces);
  Interface made;
  made.link = load16(block.data() + 8);
  made.snaplen = load32(block.data() + 12);
  // Of an option that is there twice the first counts.
  bool has_resolution = false, has_offset = false;
  std::span<const std::byte> options = block.subspan(16, block.size() - kLeast);
  while (options.size() >= 4) {
    const uint16_t code = load16(options.data());
    const uint32_t bytes = load16(options.data() + 2);
    if (code == kEndOfOptions) break;
    if (padded(bytes) > options.size() - 4) return "an interface description with an option past its end";
    const std::byte* value = options.data() + 4;
    if (code == kStampResolution && !has_resolution) {
      if (bytes != 1) return fmt::format("a resolution of stamps (if_tsresol) of {} bytes", bytes);
      made.resolution = std::to_integer<uint8_t>(*value);
      has_resolution = true;
    } else if (code == kStampOffset && !has_offset) {
      if (bytes != 8) return fmt::format("an offset of stamps (if_tsoffset) of {} bytes", bytes);
      uint64_t seconds;
      std::memcpy(&seconds, value, sizeof seconds);
      made.offset = static_cast<int64_t>(swapped_ ? __builtin_bswap64(seconds) : seconds);
      has_offset = true;
    }
    options = options.subspan(4 + padded(bytes));
  }
  interfaces_.push_back(made);
  return {};
}

std::string PcapngBlocks::read_packet(std::span<const std::byte> block, Packet& packet) const {
  const uint32_t type = load32(block.data());
  const bool simple = type == kSimplePacket;
  const size_t before = simple ? 12 : 28;  // the packet's bytes
  if (block.size() < before + 4) return fmt::format("a packet block of {} bytes", block.size());
  const auto room = static_cast<uint32_t>(block.size() - before - 4);
  const uint32_t number = simple ? 0 : type == kEnhancedPacket ? load32(block.data() + 8) : load16(block.data() + 8);
  if (number >= interfaces_.size()) return fmt::format("interface {} is not described", number);
  const Interface& interface = interfaces_[number];
  packet = {.data = before, .link = interface.link};
  if (simple) {
    packet.wire = load32(block.data() + 8);
    packet.captured = std::min(packet.wire, room);
    // What is behind a packet that was cut at the snaplen is padding.
    if (interface.snaplen < packet.captured && padded(interface.snaplen) == room) packet.captured = interface.snaplen;
    return {};
  }
  packet.captured = load32(block.data() + 20);
  packet.wire = load32(block.data() + 24);
  if (packet.captured > room) {
    return fmt::format("captured length {} in a block that has room for {} bytes", packet.captured, room);
  }
  stamp(uint64_t{load32(block.data() + 12)} << 32 | load32(block.data() + 16), interface, packet);
  return {};
}

// Units of 10^-n seconds, or of 2^-n where the highest bit is set. What is finer than a nanosecond is cut off.
void PcapngBlocks::stamp(uint64_t units, const Interface& interface, Packet& packet) {
  const uint32_t power = interface.resolution & 0x7f;
  uint64_t seconds = 0;
  if ((interface.resolution & 0x80) != 0) {
    uint64_t fraction = units;
    if (power < 64) {
      seconds = units >> power;
      fraction = units & ((uint64_t{1} << power) - 1);
    }
    packet.nanoseconds = static_cast<uint32_t>(static_cast<unsigned __int128>(fraction) * 1'000'000'000 >> power);
  } else {
    uint64_t fraction = units;
    if (power < kPowersOfTen.size()) {
      seconds = units / kPowersOfTen[power];
      fraction = units % kPowersOfTen[power];
    }
    if (power <= kNanosecondPower) {
      fraction *= kPowersOfTen[kNanosecondPower - power];
    } else {
      const uint32_t finer = power - kNanosecondPower;
      fraction = finer < kPowersOfTen.size() ? fraction / kPowersOfTen[finer] : 0;
    }
    packet.nanoseconds = static_cast<uint32_t>(fraction);
  }
  packet.seconds = static_cast<__int128>(seconds) + interface.offset;
}

}  // namespace sluice
