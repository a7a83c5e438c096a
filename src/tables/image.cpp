#include "tables/image.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/atomic_file.h"
#include "base/input_file.h"
#include "net/flow_key.h"

namespace sluice {

namespace {

uint64_t sum_of(std::span<const std::byte> bytes) {
  uint64_t lane[4] = {0x9e3779b97f4a7c15ull, 0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull, 0x2545f4914f6cdd1dull};
  typedef uint64_t Words __attribute__((vector_size(32)));  // one access: sanitizers look at each
  size_t i = 0;
  for (; i + 32 <= bytes.size(); i += 32) {
    Words words;
    std::memcpy(&words, bytes.data() + i, 32);
    for (size_t k = 0; k < 4; ++k) {
      lane[k] = (lane[k] ^ words[k]) * 0x9fb21c651e98df25ull;
      lane[k] ^= lane[k] >> 29;
    }
  }
  for (; i < bytes.size(); ++i) lane[0] = (lane[0] ^ static_cast<uint64_t>(bytes[i])) * 0x100000001b3ull;
  return mix64(lane[0] ^ mix64(lane[1] ^ mix64(lane[2] ^ mix64(lane[3] ^ bytes.size()))));
}

}  // namespace

uint64_t image_checksum(const ImageHeader& header, std::span<const std::byte> rest) {
  ImageHeader summed = header;
  summed.checksum = 0;
  return mix64(sum_of(rest) ^ mix64(sum_of(std::as_bytes(std::span(&summed, 1)))));
}

const ImageSection* Image::find(SectionTag tag) const {
  for (const ImageSection& s : sections()) {
    if (s.tag == static_cast<uint32_t>(tag)) return &s;
  }
  return nullptr;
}

std::span<const std::byte> Image::section(SectionTag tag) const {
  const ImageSection* s = find(tag);
  if (s == nullptr) return {};
  return bytes().subspan(s->offset, s->bytes);
}

namespace {

std::string kind_name(uint32_t kind) {
  switch (static_cast<ImageKind>(kind)) {
    case ImageKind::kAcl:
      return "an access list";
    case ImageKind::kRoutes:
      return "routes";
    case ImageKind::kAdjacency:
      return "adjacencies";
  }
  return fmt::format("kind {}", kind);
}

Error wrong_image(std::string_view name, std::string_view what) {
  return Error(fmt::format("{}: {}", name, what), "make it again with `sluice compile`");
}

}  // namespace

Result<void> Image::check_header(const ImageHeader& header, ImageKind kind, std::string_view name) {
  if (std::memcmp(header.magic, kMagic, 8) != 0) return wrong_image(name, "not a Sluice image");
  if (header.format_version != kFormatVersion) {
    return wrong_image(name, fmt::format("image format {} is not format {}, which this program reads",
                                         header.format_version, kFormatVersion));
  }
  if (header.kind != static_cast<uint32_t>(kind)) {
    return Error(fmt::format("{}: an image of {}, expected one of {}", name, kind_name(header.kind),
                             kind_name(static_cast<uint32_t>(kind))));
  }
  return {};
}

Result<void> Image::check(std::span<const std::byte> bytes, ImageKind kind, std::string_view name) {
  const auto fail = [&](std::string_view what) { return wrong_image(name, what); };
  ImageHeader header;
  if (bytes.size() < sizeof header) return fail(fmt::format("{} bytes are too few for an image", bytes.size()));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (auto ok = check_header(header, kind, name); !ok) return ok;
  if (header.total_bytes != bytes.size()) {
    return fail(fmt::format("truncated or extended: {} bytes, the header says {}", bytes.size(), header.total_bytes));
  }
  if (header.section_count > 64 || sizeof header + header.section_count * sizeof(ImageSection) > bytes.size()) {
    return fail(fmt::format("{} sections do not fit", header.section_count));
  }
  for (uint32_t i = 0; i < header.section_count; ++i) {
    ImageSection s;
    std::memcpy(&s, bytes.data() + sizeof header + i * sizeof s, sizeof s);
    if (s.offset % 64 != 0 || s.offset > bytes.size() || s.bytes > bytes.size() - s.offset) {
      return fail(fmt::format("section {} lies outside the image", i));
    }
  }
  if (image_checksum(header, bytes.subspan(sizeof header)) != header.checksum) return fail("checksum mismatch");
  return {};
}

Result<bool> Image::is_next(InputFile& file) {
  auto start = file.peek(sizeof(ImageHeader));
  if (!start) return std::move(start).error();
  return start->size() >= 8 && std::memcmp(start->data(), kMagic, 8) == 0;
}

Result<uint32_t> Image::next_kind(InputFile& file) {
  auto start = file.peek(sizeof(ImageHeader));
  if (!start) return std::move(start).error();
  ImageHeader header{};
  std::memcpy(&header, start->data(), start->size());
  return header.kind;
}

Result<Image> Image::read(InputFile& file, ImageKind kind) {
  const std::string& name = file.name();
  auto start = file.peek(sizeof(ImageHeader));
  if (!start) return std::move(start).error();
  ImageHeader header;
  if (start->size() < sizeof header)
    return wrong_image(name, fmt::format("{} bytes are too few for an image", start->size()));
  std::memcpy(&header, start->data(), sizeof header);
  if (auto ok = check_header(header, kind, name); !ok) return std::move(ok).error();
  // The buffer is for what the header says, which costs no memory until it comes: an image that claims too much ends
  // here or as truncated.
  if (header.total_bytes > kMaxBytes || header.total_bytes < sizeof header)
    return wrong_image(name, fmt::format("the header says {} bytes", header.total_bytes));
  auto buffer = Buffer::allocate(header.total_bytes);
  if (!buffer) {
    Error error = std::move(buffer).error();
    error.message.insert(0, name + ": ");
    return error;
  }
  auto n = file.read({buffer->data(), header.total_bytes});
  if (!n) return std::move(n).error();
  std::byte more[1];
  auto behind = file.read(more);
  if (!behind) return std::move(behind).error();
  if (*behind != 0)
    return wrong_image(
        name, fmt::format("truncated or extended: more than the {} bytes that the header says", header.total_bytes));
  if (auto ok = check({buffer->data(), *n}, kind, name); !ok) return std::move(ok).error();
  Image image;
  image.buffer_ = std::move(*buffer);
  return image;
}

Result<Image> Image::open(const std::string& path, ImageKind kind) {
  auto file = InputFile::open(path);
  if (!file) return std::move(file).error();
  return read(*file, kind);
}

Result<Image> Image::from_bytes(std::span<const std::byte> bytes, ImageKind kind) {
  if (auto ok = check(bytes, kind, "image"); !ok) return std::move(ok).error();
  auto buffer = Buffer::allocate(bytes.size());
  if (!buffer) return std::move(buffer).error();
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  Image image;
  image.buffer_ = std::move(*buffer);
  return image;
}

Result<void> Image::write(const std::string& path) const {
  auto file = AtomicFile::create(path);
  if (!file.ok()) return std::move(file).error();
  file->write({reinterpret_cast<const char*>(buffer_.data()), buffer_.size()});
  return file->commit();
}

size_t ImageBuilder::add(SectionTag tag, std::string_view algorithm, uint32_t layout_version, size_t bytes) {
  ImageSection s{};
  s.tag = static_cast<uint32_t>(tag);
  s.layout_version = layout_version;
  std::memcpy(s.algorithm, algorithm.data(), std::min(algorithm.size(), sizeof s.algorithm));
  s.bytes = bytes;
  sections_.push_back(s);
  return sections_.size() - 1;
}

Result<void> ImageBuilder::allocate() {
  auto round = [](uint64_t v) { return (v + 63) / 64 * 64; };
  uint64_t offset = round(sizeof(ImageHeader) + sections_.size() * sizeof(ImageSection));
  for (ImageSection& s : sections_) {
    s.offset = offset;
    offset = round(offset + s.bytes);
  }
  auto buffer = Buffer::allocate(offset);
  if (!buffer) return std::move(buffer).error();
  image_.buffer_ = std::move(*buffer);
  ImageHeader header{};
  std::memcpy(header.magic, Image::kMagic, 8);
  header.format_version = Image::kFormatVersion;
  header.kind = static_cast<uint32_t>(kind_);
  header.total_bytes = offset;
  header.section_count = static_cast<uint32_t>(sections_.size());
  std::memcpy(image_.buffer_.data(), &header, sizeof header);
  std::memcpy(image_.buffer_.data() + sizeof header, sections_.data(), sections_.size() * sizeof(ImageSection));
  return {};
}

std::span<std::byte> ImageBuilder::data(size_t index) {
  return {image_.buffer_.data() + sections_[index].offset, sections_[index].bytes};
}

Image ImageBuilder::finish() {
  auto* header = reinterpret_cast<ImageHeader*>(image_.buffer_.data());
  header->checksum = image_checksum(*header, image_.bytes().subspan(sizeof(ImageHeader)));
  return std::move(image_);
}

}  // namespace sluice
