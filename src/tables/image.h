// A table's Image: one flat relocatable blob. Offsets only, never pointers; the same bytes serve host, device and disk.
//
//   0        ImageHeader (64 bytes): magic, versions, kind, size, section count, checksum
//   64       ImageSection[section_count] (32 bytes each): tag, algorithm, layout version, offset, size
//   ...      sections, each 64-byte aligned (2 MiB-aligned blob in memory), zero padding between
//
// An image from disk is untrusted: Image::open checks the header, the checksum and that every section lies inside the
// blob; each View's own `check` then checks every offset and index inside its section.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "memory/buffer.h"

namespace sluice {

enum class ImageKind : uint32_t { kAcl = 1, kRoutes = 2, kAdjacency = 3 };

struct ImageHeader {
  char magic[8];  // "SLUICEIM"
  uint32_t format_version;
  uint32_t kind;  // ImageKind
  uint64_t total_bytes;
  uint32_t section_count;
  uint32_t reserved0;
  uint64_t checksum;  // of every byte but its own
  uint8_t reserved[24];
};
static_assert(sizeof(ImageHeader) == 64 && std::is_trivially_copyable_v<ImageHeader>);

// What a section holds. Stable numbers: images on disk carry them.
enum class SectionTag : uint32_t {
  kAclLookup = 1,   // the search structure; `algorithm` names it
  kAclRules = 2,    // the rules as matched (for linear, verification and explain)
  kAclActions = 3,  // per rule: action and mark
  kAclSource = 4,   // per rule: source line numbers and file names
  kFib4 = 16,       // IPv4 lookup structure; `algorithm` names it
  kFib6 = 17,       // IPv6 lookup structure
  kNextHopNames = 18,
  kAdjacencies = 32,
  kAdjacencyGroups = 33,
  kAdjacencyBuckets = 34,
  kListText = 48,    // of a table that is a list of lines: its entries
  kListLookup = 49,  // what is built of them, in the layout of its kind
};

struct ImageSection {
  uint32_t tag;  // SectionTag
  uint32_t layout_version;
  char algorithm[8];  // NUL-padded short name, e.g. "dir24"; empty where there is no choice
  uint64_t offset;    // from the start of the blob, multiple of 64
  uint64_t bytes;
};
static_assert(sizeof(ImageSection) == 32 && std::is_trivially_copyable_v<ImageSection>);

class InputFile;
class PatchLog;

// Owns the bytes of one table. Immutable once built; shared by generations through std::shared_ptr<const Image>.
class Image {
 public:
  static constexpr char kMagic[9] = "SLUICEIM";
  static constexpr uint32_t kFormatVersion = 2;             // 1: the checksum left the header out
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 36;  // of an image that is read

  Image() = default;

  // True when the input starts with the image magic, which stays unread. Errors: those of the input.
  static Result<bool> is_next(InputFile& file);
  // What kind the image says it is, which stays unread; its reader checks the rest.
  static Result<uint32_t> next_kind(InputFile& file);
  // Reads an image, to the end of the input, which is never looked at again: whoever writes over a file changes nothing
  // here. Errors: those of the input; not an image, wrong version or kind, truncated, checksum mismatch, sections out
  // of range; out of memory.
  static Result<Image> read(InputFile& file, ImageKind kind);
  static Result<Image> open(const std::string& path, ImageKind kind);
  // The same checks over bytes in memory (for tests and fuzzing); copies them.
  static Result<Image> from_bytes(std::span<const std::byte> bytes, ImageKind kind);

  // Through an AtomicFile: no reader ever sees half an image.
  Result<void> write(const std::string& path) const;

  ImageKind kind() const { return static_cast<ImageKind>(header().kind); }
  std::span<const std::byte> bytes() const { return {buffer_.data(), buffer_.size()}; }
  const ImageHeader& header() const { return *reinterpret_cast<const ImageHeader*>(buffer_.data()); }
  std::span<const ImageSection> sections() const {
    return {reinterpret_cast<const ImageSection*>(buffer_.data() + sizeof(ImageHeader)), header().section_count};
  }
  const ImageSection* find(SectionTag tag) const;
  // The bytes of a section; empty when it is absent.
  std::span<const std::byte> section(SectionTag tag) const;
  bool empty() const { return buffer_.empty(); }

  // A replica of a table that changes (replica.h): which version it is, and what the versions differ in. nullptr: any
  // other image.
  const std::shared_ptr<const PatchLog>& patches() const { return log_; }
  uint64_t version() const { return version_; }
  // Whether views may take a section's contents for right: it is of a table that this process patches, or a view has
  // checked it before. Each generation binds all tables again, those too that have not changed.
  bool checked(SectionTag tag) const {
    return log_ != nullptr || (std::atomic_ref(checked_).load(std::memory_order_relaxed) & bit(tag)) != 0;
  }
  // Any thread, once a check of all that views rely on in the section has found nothing: bytes do not change.
  void note_checked(SectionTag tag) const { std::atomic_ref(checked_).fetch_or(bit(tag), std::memory_order_relaxed); }

 private:
  friend class ImageBuilder;
  friend class ImageReplicas;
  // What the header says on its own.
  static Result<void> check_header(const ImageHeader& header, ImageKind kind, std::string_view name);
  static Result<void> check(std::span<const std::byte> bytes, ImageKind kind, std::string_view name);
  static uint64_t bit(SectionTag tag) { return uint64_t{1} << static_cast<uint32_t>(tag); }
  Buffer buffer_;
  std::shared_ptr<const PatchLog> log_;
  uint64_t version_ = 0;
  alignas(8) mutable uint64_t checked_ = 0;  // bits of tags
};

// Assembles an Image. Sections are declared first, then the blob is allocated once and filled in place.
class ImageBuilder {
 public:
  explicit ImageBuilder(ImageKind kind) : kind_(kind) {}

  // Declares a section of `bytes` zeroed bytes and returns its index for `data`.
  size_t add(SectionTag tag, std::string_view algorithm, uint32_t layout_version, size_t bytes);
  Result<void> allocate();
  // Valid after allocate(): where to write section `index`.
  std::span<std::byte> data(size_t index);
  // Computes the checksum and hands the image over.
  Image finish();

 private:
  ImageKind kind_;
  std::vector<ImageSection> sections_;
  Image image_;
};

// The checksum of an image, of its header and of what follows it: 64-bit, four independent lanes so that 64 MiB cost a
// few milliseconds.
uint64_t image_checksum(const ImageHeader& header, std::span<const std::byte> rest);

// A typed pointer into a section, or nullptr when [offset, offset + count * sizeof(T)) does not fit or is misaligned.
template <typename T>
const T* section_array(std::span<const std::byte> section, uint64_t offset, uint64_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (offset > section.size() || offset % alignof(T) != 0) return nullptr;
  if (count > (section.size() - offset) / sizeof(T)) return nullptr;
  return reinterpret_cast<const T*>(section.data() + offset);
}

// The same view over a copy, at `to`, of the bytes at `from` that it was opened over: an image's, or a section's.
template <typename View>
View relocated(View view, const std::byte* from, const std::byte* to) {
  view.each_pointer([&]<typename T>(const T*& p) {
    if (p != nullptr) p = reinterpret_cast<const T*>(to + (reinterpret_cast<const std::byte*>(p) - from));
  });
  return view;
}

}  // namespace sluice
