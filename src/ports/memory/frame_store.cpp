#include "ports/memory/frame_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ports/pcap/capture_reader.h"

namespace sluice {
namespace {

constexpr uint64_t kTail = FrameStore::kHeadroom;  // readable bytes after the last frame
constexpr uint64_t kColumnBytes = 24;              // of all columns, a frame
constexpr uint64_t kFirstBytes = uint64_t{4} << 20;

constexpr uint64_t slot_bytes(uint64_t captured) {
  return FrameStore::kHeadroom +
         (captured + FrameStore::kAlignment - 1) / FrameStore::kAlignment * FrameStore::kAlignment;
}

}  // namespace

bool FrameStore::grow(uint64_t needed) {
  // Twice as much each time, but no further than the cap: the cap is what the user said may be used.
  const uint64_t columns = (size() + 1) * kColumnBytes;
  const uint64_t room = options_.max_bytes > columns ? options_.max_bytes - columns : 0;
  const uint64_t bytes = std::max(needed, std::min(std::max<uint64_t>(buffer_.size() * 2, kFirstBytes), room));
  Result<Buffer> larger = Buffer::allocate(bytes);
  if (!larger.ok()) {
    error_ = larger.error();
    return false;
  }
  if (used_ != 0) std::memcpy(larger->data(), buffer_.data(), used_);
  buffer_ = std::move(*larger);
  return true;
}

Result<void> FrameStore::reserve(uint64_t packets, uint64_t frame_bytes) {
  const uint64_t limit = options_.max_bytes;
  const uint64_t per_packet = kHeadroom + kAlignment - 1 + kColumnBytes;
  if (packets > limit / per_packet || frame_bytes > limit - packets * per_packet) {
    return Error(
        fmt::format("{} frames of {} bytes need more than the limit of {} MiB", packets, frame_bytes, limit >> 20),
        "raise the memory limit, or keep fewer packets");
  }
  const uint64_t needed = used_ + packets * (kHeadroom + kAlignment - 1) + frame_bytes + kTail;
  if (needed > buffer_.size() && !grow(needed)) return Error(error_);
  const size_t count = size() + packets;
  offsets_.reserve(count);
  captured_.reserve(count);
  wire_bytes_.reserve(count);
  timestamps_ns_.reserve(count);
  return {};
}

uint8_t* FrameStore::add(const FrameHeader& header) {
  if (header.captured > kMaxCapturedBytes) {
    error_ =
        Error(fmt::format("frame {}: {} bytes exceed the limit of {}", size() + 1, header.captured, kMaxCapturedBytes));
    return nullptr;
  }
  const uint64_t end = used_ + slot_bytes(header.captured);
  const uint64_t needed = end + kTail;
  if (needed + (size() + 1) * kColumnBytes > options_.max_bytes) {
    error_ = Error(fmt::format("frame {} does not fit: {} frames already fill the limit of {} MiB", size() + 1, size(),
                               options_.max_bytes >> 20),
                   "raise the memory limit, or keep fewer packets");
    return nullptr;
  }
  if (needed > buffer_.size() && !grow(needed)) return nullptr;
  const uint64_t offset = used_ + kHeadroom;
  used_ = end;
  offsets_.push_back(offset);
  captured_.push_back(header.captured);
  wire_bytes_.push_back(wire_length(header.wire_bytes, header.captured));
  timestamps_ns_.push_back(header.timestamp_ns);
  total_wire_bytes_ += wire_bytes_.back();
  return base() + offset;
}

bool FrameStore::add(const FrameHeader& header, const uint8_t* data) {
  uint8_t* place = add(header);
  if (place == nullptr) return false;
  std::memcpy(place, data, header.captured);
  return true;
}

Result<FrameStore> FrameStore::load(const std::string& path, const FrameStoreOptions& options) {
  auto file = InputFile::open(path);
  if (!file.ok()) return std::move(file).error();
  return load(std::move(*file), options);
}

Result<FrameStore> FrameStore::load(InputFile file, const FrameStoreOptions& options) {
  const std::string name = file.name();
  Result<CaptureReader> reader = CaptureReader::open(std::move(file));
  if (!reader.ok()) return std::move(reader).error();
  reader->fill_lengths(options.fills_lengths);
  FrameStore store(options);
  CapturedFrame frame;
  while (store.size() < options.max_packets) {
    Result<bool> got = reader->next(frame);
    if (!got.ok()) return std::move(got).error();
    if (!*got) break;
    if (!store.add(frame, frame.data)) {
      Error error = store.error();
      error.message = fmt::format("{}: {}", name, error.message);
      return error;
    }
  }
  return store;
}

}  // namespace sluice
