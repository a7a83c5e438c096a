// Images that change while they are read: a builder's master, replicas that readers hold, and what lies between them.
// Host only.
//
// A builder changes the bytes of its master and marks the lines that it wrote. publish() takes a replica that nobody
// reads, copies to it the lines in which it differs from the master, and hands it out as an image. That image does not
// change while anybody holds it, so a lookup needs neither check nor log, and a batch sees one version whole. The
// replica before it is free when its last holder (a Snapshot, as a rule) lets it go; two replicas take turns, a third
// is made only when both are held. A copy elsewhere (a device's) asks the image's PatchLog for what has changed since
// its own version.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.h"
#include "base/result.h"
#include "tables/image.h"

namespace sluice {

// Bytes of an image, a multiple of 64 from a multiple of 64 on.
struct Patch {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const Patch&, const Patch&) = default;
};

// Joins patches in order of their offsets whose gaps are at most `gap` bytes: fewer copies, each a little longer.
std::vector<Patch> join_patches(std::span<const Patch> patches, uint64_t gap);

// A set of 64-byte lines of an image. Marking is a store or two; sets are merged and walked by what is in them.
class LineSet {
 public:
  static constexpr uint64_t kLine = 64;

  explicit LineSet(size_t bytes = 0)
      : lines_((bytes + kLine - 1) / kLine), words_((lines_ + 63) / 64), summary_((words_.size() + 63) / 64) {}

  // Precondition: [offset, offset + bytes) lies inside; bytes > 0.
  void mark(size_t offset, size_t bytes) {
    const size_t first = offset / kLine, last = (offset + bytes - 1) / kLine;
    SLUICE_CHECK(last < lines_);
    if (first == last) {
      words_[first / 64] |= uint64_t{1} << (first % 64);
      summary_[first / 4096] |= uint64_t{1} << (first / 64 % 64);
      return;
    }
    for (size_t word = first / 64; word <= last / 64; ++word) {
      const uint64_t from = word == first / 64 ? ~uint64_t{0} << (first % 64) : ~uint64_t{0};
      const uint64_t to = word == last / 64 ? ~uint64_t{0} >> (63 - last % 64) : ~uint64_t{0};
      words_[word] |= from & to;
      summary_[word / 64] |= uint64_t{1} << (word % 64);
    }
  }
  // Precondition: both are of one size.
  void merge(const LineSet& other);
  void clear();
  bool empty() const;

  // Calls f(offset, bytes) for each run of lines, in order; the last may reach past the bytes that the set was made
  // for.
  template <typename F>
  void each_run(F&& f) const {
    size_t begin = 0, end = 0;  // lines, of the run so far
    for (size_t s = 0; s < summary_.size(); ++s) {
      for (uint64_t rest = summary_[s]; rest != 0; rest &= rest - 1) {
        const size_t word = s * 64 + static_cast<size_t>(std::countr_zero(rest));
        for (uint64_t bits = words_[word]; bits != 0;) {
          const auto first = static_cast<size_t>(std::countr_zero(bits));
          const auto length = static_cast<size_t>(std::countr_one(bits >> first));
          const size_t at = word * 64 + first;
          if (at != end) {
            if (end != begin) f(begin * kLine, (end - begin) * kLine);
            begin = at;
          }
          end = at + length;
          bits = first + length < 64 ? bits & ~uint64_t{0} << (first + length) : 0;
        }
      }
    }
    if (end != begin) f(begin * kLine, (end - begin) * kLine);
  }

 private:
  size_t lines_;
  std::vector<uint64_t> words_, summary_;
};

// What the last few versions of an image changed: for copies in other memory. Thread-safe.
class PatchLog {
 public:
  static constexpr size_t kVersions = 16;
  static constexpr size_t kPatches = size_t{1} << 17;  // of all versions that are kept

  // Versions go up by one.
  void append(uint64_t version, std::vector<Patch> patches);
  // What takes a copy of version `from` to version `to` >= from, in order of offsets and without overlaps; nullopt: it
  // is too old, copy the whole image.
  std::optional<std::vector<Patch>> between(uint64_t from, uint64_t to) const;

 private:
  struct Entry {
    uint64_t version;
    std::vector<Patch> patches;
  };
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
  size_t kept_ = 0;
};

// The master and the replicas. One control thread; what publish() returns may be let go on any thread.
class ImageReplicas {
 public:
  static constexpr size_t kMost = 4;  // replicas

  ImageReplicas() = default;
  // Takes a complete image as version 1 of the master. Its contents are the builder's to answer for: views of replicas
  // open without checking them again.
  explicit ImageReplicas(Image master);

  // The builder's bytes: write, and mark what was written.
  std::byte* bytes() { return data_; }
  size_t size() const { return master_->bytes().size(); }
  const Image& master() const { return *master_; }
  void mark(const void* at, size_t n) {
    fresh_.mark(static_cast<size_t>(static_cast<const std::byte*>(at) - data_), n);
  }

  // Bytes [offset, offset + bytes) are such as lookups seldom read: publish() writes their marked lines past the
  // caches, which are for others, and does not ask whether they differ.
  void set_seldom_read(uint64_t offset, uint64_t bytes) { seldom_read_.push_back({offset, bytes}); }

  // Makes the `n` bytes of the master at `to` those of `from`, and marks what differed.
  void write(void* to, const void* from, size_t n);

  // Makes the master what `next` is by marking the lines that differ: for tables that are built anew and patched all
  // the same. False: it is of another size or has other sections, and nothing was done.
  bool take(const Image& next);

  // An image that is as the master is now, immutable while it is held. Without changes since the last call, the same
  // one if it is still held. Errors: no memory for another replica; kMost are held (let old ones go first). The master
  // and its marks stay then, for another try.
  Result<std::shared_ptr<const Image>> publish();

  // A copy of the master with its checksum: an image like any other, to be written to a file.
  Result<Image> seal() const;

  uint64_t version() const { return version_; }
  size_t replicas() const { return replicas_.size(); }
  // Of the last publish(): bytes copied to the replica, and into how many runs they fell.
  size_t copied_bytes() const { return copied_bytes_; }
  size_t copied_runs() const { return copied_runs_; }

 private:
  struct Replica {
    Image image;
    LineSet pending;
    std::atomic<bool> held{false};
  };
  Result<std::shared_ptr<Replica>> free_replica();
  // Makes the replica what the master is.
  void copy_lines(Replica& replica);
  static Result<Image> copy_of(const Image& image);

  std::unique_ptr<Image> master_;
  std::byte* data_ = nullptr;
  LineSet fresh_;
  std::vector<Patch> seldom_read_;
  std::vector<uint64_t> lines_, past_caches_;  // of copy_lines
  std::vector<std::shared_ptr<Replica>> replicas_;
  std::shared_ptr<PatchLog> log_;
  std::weak_ptr<const Image> current_;
  uint64_t version_ = 1;
  size_t copied_bytes_ = 0, copied_runs_ = 0;
};

}  // namespace sluice
