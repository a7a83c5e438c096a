#include "tables/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/intrinsics.h"
#include "base/prefetch.h"

namespace sluice {

std::vector<Patch> join_patches(std::span<const Patch> patches, uint64_t gap) {
  std::vector<Patch> out;
  for (const Patch& p : patches) {
    if (!out.empty() && p.offset <= out.back().offset + out.back().bytes + gap) {
      out.back().bytes = std::max(out.back().bytes, p.offset + p.bytes - out.back().offset);
    } else {
      out.push_back(p);
    }
  }
  return out;
}

void LineSet::merge(const LineSet& other) {
  SLUICE_CHECK(lines_ == other.lines_);
  for (size_t s = 0; s < summary_.size(); ++s) {
    for (uint64_t rest = other.summary_[s]; rest != 0; rest &= rest - 1) {
      const size_t word = s * 64 + static_cast<size_t>(std::countr_zero(rest));
      words_[word] |= other.words_[word];
    }
    summary_[s] |= other.summary_[s];
  }
}

void LineSet::clear() {
  for (size_t s = 0; s < summary_.size(); ++s) {
    for (uint64_t rest = summary_[s]; rest != 0; rest &= rest - 1) {
      words_[s * 64 + static_cast<size_t>(std::countr_zero(rest))] = 0;
    }
    summary_[s] = 0;
  }
}

bool LineSet::empty() const {
  return std::all_of(summary_.begin(), summary_.end(), [](uint64_t word) { return word == 0; });
}

void PatchLog::append(uint64_t version, std::vector<Patch> patches) {
  const std::lock_guard lock(mutex_);
  SLUICE_CHECK(entries_.empty() || version == entries_.back().version + 1);
  kept_ += patches.size();
  entries_.push_back({version, std::move(patches)});
  while (entries_.size() > kVersions || (kept_ > kPatches && entries_.size() > 1)) {
    kept_ -= entries_.front().patches.size();
    entries_.pop_front();
  }
}

std::optional<std::vector<Patch>> PatchLog::between(uint64_t from, uint64_t to) const {
  if (from == to) return std::vector<Patch>();
  std::vector<Patch> all;
  {
    const std::lock_guard lock(mutex_);
    if (from > to || entries_.empty() || entries_.front().version > from + 1 || entries_.back().version < to) {
      return std::nullopt;
    }
    for (const Entry& e : entries_) {
      if (e.version > from && e.version <= to) all.insert(all.end(), e.patches.begin(), e.patches.end());
    }
  }
  std::sort(all.begin(), all.end(), [](const Patch& a, const Patch& b) { return a.offset < b.offset; });
  return join_patches(all, 0);
}

namespace {

bool same_line(const std::byte* a, const std::byte* b) {
  uint64_t differs = 0;
  for (size_t i = 0; i < LineSet::kLine; i += sizeof differs) {
    uint64_t x, y;
    std::memcpy(&x, a + i, sizeof x);
    std::memcpy(&y, b + i, sizeof y);
    differs |= x ^ y;
  }
  return differs == 0;
}

#if defined(__x86_64__)
// Copies a line without bringing `to` into a cache.
void stream_line(std::byte* to, const std::byte* from) {
  for (size_t i = 0; i < LineSet::kLine; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
}
// Such stores are ordered with no others.
void stream_fence() {
  _mm_sfence();
}
#else
void stream_line(std::byte* to, const std::byte* from) {
  std::memcpy(to, from, LineSet::kLine);
}
void stream_fence() {}
#endif

}  // namespace

ImageReplicas::ImageReplicas(Image master)
    : master_(std::make_unique<Image>(std::move(master))),
      data_(master_->buffer_.data()),
      fresh_(master_->bytes().size()),
      log_(std::make_shared<PatchLog>()) {}

bool ImageReplicas::take(const Image& next) {
  const auto from = next.bytes(), to = master_->bytes();
  if (from.size() != to.size() || next.sections().size() != master_->sections().size() ||
      std::memcmp(next.sections().data(), master_->sections().data(), next.sections().size_bytes()) != 0) {
    return false;
  }
  // The header differs in the checksum, which replicas do not keep.
  write(data_ + sizeof(ImageHeader), from.data() + sizeof(ImageHeader), to.size() - sizeof(ImageHeader));
  return true;
}

void ImageReplicas::write(void* to, const void* from, size_t n) {
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  size_t m = 0;
  for (size_t at = 0; at < n; at += m) {
    m = std::min<size_t>(LineSet::kLine - static_cast<size_t>(out + at - data_) % LineSet::kLine, n - at);
    if (std::memcmp(out + at, in + at, m) == 0) continue;
    std::memcpy(out + at, in + at, m);
    mark(out + at, m);
  }
}

Result<Image> ImageReplicas::copy_of(const Image& image) {
  auto buffer = Buffer::allocate(image.bytes().size());
  if (!buffer) return std::move(buffer).error();
  std::memcpy(buffer->data(), image.bytes().data(), image.bytes().size());
  Image copy;
  copy.buffer_ = std::move(*buffer);
  return copy;
}

Result<Image> ImageReplicas::seal() const {
  auto copy = copy_of(*master_);
  if (!copy) return copy;
  auto* header = reinterpret_cast<ImageHeader*>(copy->buffer_.data());
  header->checksum = image_checksum(*header, copy->bytes().subspan(sizeof(ImageHeader)));
  return copy;
}

Result<std::shared_ptr<ImageReplicas::Replica>> ImageReplicas::free_replica() {
  // The one that misses least; its holder's last reads happened before it was let go.
  std::shared_ptr<Replica> best;
  for (const auto& replica : replicas_) {
    if (replica->held.load(std::memory_order_acquire)) continue;
    if (best == nullptr || replica->image.version_ > best->image.version_) best = replica;
  }
  if (best != nullptr) return best;
  if (replicas_.size() == kMost) {
    return Error(fmt::format("all {} replicas of the table are held", kMost),
                 "let the snapshots of earlier generations go before the next one is published");
  }
  auto copy = copy_of(*master_);
  if (!copy) return std::move(copy).error();
  auto made = std::make_shared<Replica>();
  made->image = std::move(*copy);
  made->image.log_ = log_;
  made->pending = LineSet(size());
  replicas_.push_back(made);
  return made;
}

void ImageReplicas::copy_lines(Replica& replica) {
  // The lines are in no cache near this core, and where the next ones lie cannot be guessed: they are asked for some
  // time before their turn.
  constexpr size_t kLinesAhead = 24;
  lines_.clear();
  past_caches_.clear();
  replica.pending.each_run([&](uint64_t offset, uint64_t bytes) {
    bool seldom = false;
    for (const Patch& p : seldom_read_) seldom |= offset >= p.offset && offset + bytes <= p.offset + p.bytes;
    auto& lines = seldom ? past_caches_ : lines_;
    for (uint64_t at = offset; at < offset + bytes; at += LineSet::kLine) lines.push_back(at);
  });
  std::byte* const to = replica.image.buffer_.data();
  uint64_t behind = ~uint64_t{0};  // the last line that was copied
  const auto count = [&](uint64_t at, size_t bytes) {
    copied_bytes_ += bytes;
    copied_runs_ += at != behind + LineSet::kLine;
    behind = at;
  };
  for (size_t n = past_caches_.size(), i = 0; i < n; ++i) {
    if (i + kLinesAhead < n) prefetch_read(data_ + past_caches_[i + kLinesAhead]);
    const uint64_t at = past_caches_[i];
    stream_line(to + at, data_ + at);
    count(at, LineSet::kLine);
  }
  for (size_t n = lines_.size(), i = 0; i < n; ++i) {
    if (i + kLinesAhead < n) {
      prefetch_read(data_ + lines_[i + kLinesAhead]);
      prefetch_read(to + lines_[i + kLinesAhead]);
    }
    const uint64_t at = lines_[i];
    const size_t bytes = std::min<size_t>(LineSet::kLine, size() - at);
    // A line that came to be what it was is not written: readers keep it in their caches.
    if (bytes == LineSet::kLine ? same_line(to + at, data_ + at) : std::memcmp(to + at, data_ + at, bytes) == 0)
      continue;
    std::memcpy(to + at, data_ + at, bytes);
    count(at, bytes);
  }
  stream_fence();
}

Result<std::shared_ptr<const Image>> ImageReplicas::publish() {
  const bool changed = !fresh_.empty();
  if (!changed) {
    if (auto current = current_.lock()) return current;
  }
  auto found = free_replica();
  if (!found) return std::move(found).error();
  const std::shared_ptr<Replica>& replica = *found;
  if (changed) {
    ++version_;
    std::vector<Patch> patches;
    fresh_.each_run([&](uint64_t offset, uint64_t bytes) { patches.push_back({offset, bytes}); });
    log_->append(version_, std::move(patches));
    for (const auto& each : replicas_) each->pending.merge(fresh_);
    fresh_.clear();
  }
  copied_bytes_ = copied_runs_ = 0;
  copy_lines(*replica);
  replica->pending.clear();
  replica->image.version_ = version_;
  replica->held.store(true, std::memory_order_relaxed);
  std::shared_ptr<const Image> lease(
      &replica->image, [replica](const Image*) { replica->held.store(false, std::memory_order_release); });
  current_ = lease;
  return lease;
}

}  // namespace sluice
