// Frames in memory: what the in-memory generator port plays and the benchmarks run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "memory/buffer.h"
#include "ports/frame.h"

namespace sluice {

struct FrameStoreOptions {
  size_t max_bytes = size_t{8} << 30;  // of frames, headroom, padding and columns together
  uint64_t max_packets = UINT64_MAX;   // load: stop after this many, without error
  bool fills_lengths = false;          // load: see CaptureReader::fill_lengths
};

// All frames in one buffer, on huge pages where they are granted:
//
//   | 128 bytes headroom | frame 0 | pad to 64 | 128 bytes headroom | frame 1 | ...
//
// Every frame starts on a multiple of 64. The headroom is the frame's own, for encapsulation in place; at least 128
// readable bytes follow every frame. Growing moves the frames, so pointers from add() and frame() last until the next
// add(). Move-only. Concurrent readers are fine; add() is not.
class FrameStore {
 public:
  static constexpr size_t kHeadroom = 128;
  static constexpr size_t kAlignment = 64;

  explicit FrameStore(const FrameStoreOptions& options = {}) : options_(options) {}

  // Reads a whole capture (CaptureReader::open names the forms). Errors: the reader's, or past max_bytes, with the
  // count that fits.
  static Result<FrameStore> load(const std::string& path, const FrameStoreOptions& options = {});
  static Result<FrameStore> load(InputFile file, const FrameStoreOptions& options = {});

  // Makes room for `packets` frames of `frame_bytes` bytes together, so that add() need not grow. Errors: past
  // max_bytes, no memory.
  Result<void> reserve(uint64_t packets, uint64_t frame_bytes);
  // Appends a frame of header.captured zero bytes and returns where to write it; nullptr past max_bytes, past
  // kMaxCapturedBytes or out of memory: error() says which.
  uint8_t* add(const FrameHeader& header);
  // The same with the bytes copied from `data`.
  bool add(const FrameHeader& header, const uint8_t* data);
  const Error& error() const { return error_; }

  uint64_t size() const { return offsets_.size(); }
  bool empty() const { return offsets_.empty(); }
  const uint8_t* frame(uint64_t i) const { return base() + offsets_[i]; }
  uint8_t* frame(uint64_t i) { return base() + offsets_[i]; }
  FrameHeader header(uint64_t i) const { return {captured_[i], wire_bytes_[i], timestamps_ns_[i]}; }

  // Columns, one entry a frame. An offset counts from buffer().data().
  std::span<const uint64_t> offsets() const { return offsets_; }
  std::span<const uint32_t> captured() const { return captured_; }
  std::span<const uint32_t> wire_bytes() const { return wire_bytes_; }
  std::span<const uint64_t> timestamps_ns() const { return timestamps_ns_; }
  const Buffer& buffer() const { return buffer_; }
  uint64_t total_wire_bytes() const { return total_wire_bytes_; }

 private:
  uint8_t* base() { return reinterpret_cast<uint8_t*>(buffer_.data()); }
  const uint8_t* base() const { return reinterpret_cast<const uint8_t*>(buffer_.data()); }
  bool grow(uint64_t needed);

  FrameStoreOptions options_;
  Buffer buffer_;
  uint64_t used_ = 0;  // bytes of buffer_, a multiple of kAlignment
  uint64_t total_wire_bytes_ = 0;
  std::vector<uint64_t> offsets_;
  std::vector<uint32_t> captured_;
  std::vector<uint32_t> wire_bytes_;
  std::vector<uint64_t> timestamps_ns_;
  Error error_;
};

}  // namespace sluice
