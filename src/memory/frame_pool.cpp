// host only
#include "memory/frame_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"

namespace sluice {

Result<std::shared_ptr<MappedFramePool>> MappedFramePool::create(const FrameShape& shape) {
  if (shape.chunks == 0 || shape.stride < shape.headroom + shape.tailroom + 64) {
    return Error(fmt::format("{} chunks of {} bytes with {} bytes of head room and {} of tail room hold no frames",
                             shape.chunks, shape.stride, shape.headroom, shape.tailroom));
  }
  auto memory = Buffer::allocate((uint64_t{shape.chunks} * shape.stride + 4095) / 4096 * 4096);
  if (!memory) return std::move(memory).error();
  return std::shared_ptr<MappedFramePool>(new MappedFramePool(shape, std::move(*memory)));
}

MappedFramePool::MappedFramePool(const FrameShape& shape, Buffer memory) : shape_(shape), memory_(std::move(memory)) {
  free_.reserve(shape.chunks);
  for (uint32_t i = shape.chunks; i-- > 0;) free_.push_back(base() + uint64_t{i} * shape.stride);
}

uint32_t MappedFramePool::take(std::span<uint8_t*> chunks) {
  const std::lock_guard lock(mutex_);
  const auto n = static_cast<uint32_t>(std::min(chunks.size(), free_.size()));
  std::copy(free_.end() - n, free_.end(), chunks.begin());
  free_.resize(free_.size() - n);
  out_.fetch_add(n, std::memory_order_relaxed);
  return n;
}

void MappedFramePool::give(std::span<uint8_t* const> frames) {
  if (frames.empty()) return;
  const std::lock_guard lock(mutex_);
  // More than there are: a frame was given back twice, and two owners would write to one chunk.
  SLUICE_CHECK(free_.size() + frames.size() <= shape_.chunks);
  for (uint8_t* frame : frames) free_.push_back(chunk_of(frame));
  out_.fetch_sub(frames.size(), std::memory_order_relaxed);
}

}  // namespace sluice
