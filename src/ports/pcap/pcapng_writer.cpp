#include "ports/pcap/pcapng_writer.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr uint32_t kSectionHeader = 0x0a0d0d0a, kInterfaceDescription = 1, kEnhancedPacket = 6;
constexpr uint32_t kByteOrderMagic = 0x1a2b3c4d;
constexpr uint16_t kEndOfOptions = 0, kComment = 1, kInterfaceName = 2, kStampResolution = 9;
constexpr uint16_t kEthernet = 1;  // LINKTYPE_ETHERNET

template <typename T>
void put_value(std::string& block, T value) {
  block.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_padded(std::string& block, std::string_view bytes) {
  block.append(bytes);
  block.append((4 - bytes.size() % 4) % 4, '\0');
}
void put_option(std::string& block, uint16_t code, std::string_view value) {
  put_value(block, code);
  put_value(block, static_cast<uint16_t>(value.size()));
  put_padded(block, value);
}
// A block's length stands before and behind its body.
void start_block(std::string& block, uint32_t type) {
  block.clear();
  put_value(block, type);
  put_value(block, uint32_t{0});
}
void finish_block(std::string& block, AtomicFile& file) {
  const auto length = static_cast<uint32_t>(block.size() + sizeof(uint32_t));
  std::memcpy(block.data() + sizeof(uint32_t), &length, sizeof length);
  put_value(block, length);
  file.write(block);
}

}  // namespace

Result<PcapngWriter> PcapngWriter::create(const std::string& path) {
  auto file = AtomicFile::create(path);
  if (!file.ok()) return std::move(file).error();
  PcapngWriter writer;
  writer.file_ = std::move(*file);
  std::string& block = writer.block_;
  start_block(block, kSectionHeader);
  put_value(block, kByteOrderMagic);
  put_value(block, uint16_t{1});  // version 1.0
  put_value(block, uint16_t{0});
  put_value(block, ~uint64_t{0});  // the section's length: not given
  finish_block(block, writer.file_);
  return writer;
}

uint32_t PcapngWriter::add_interface(std::string_view name, uint32_t snap_bytes) {
  start_block(block_, kInterfaceDescription);
  put_value(block_, kEthernet);
  put_value(block_, uint16_t{0});
  put_value(block_, snap_bytes);
  if (!name.empty()) put_option(block_, kInterfaceName, name.substr(0, UINT16_MAX));
  put_option(block_, kStampResolution, "\x09");  // 10^-9 s
  put_option(block_, kEndOfOptions, "");
  finish_block(block_, file_);
  return interfaces_++;
}

void PcapngWriter::append(const FrameHeader& header, const uint8_t* data, std::string_view comment,
                          uint32_t interface) {
  start_block(block_, kEnhancedPacket);
  put_value(block_, interface);
  put_value(block_, static_cast<uint32_t>(header.timestamp_ns >> 32));
  put_value(block_, static_cast<uint32_t>(header.timestamp_ns));
  put_value(block_, header.captured);
  put_value(block_, std::max(header.wire_bytes, header.captured));
  put_padded(block_, {reinterpret_cast<const char*>(data), header.captured});
  if (!comment.empty()) {
    put_option(block_, kComment, comment.substr(0, UINT16_MAX));
    put_option(block_, kEndOfOptions, "");
  }
  finish_block(block_, file_);
}

}  // namespace sluice
