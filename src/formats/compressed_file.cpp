#include "formats/compressed_file.h"

#include <bzlib.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

constexpr size_t kChunk = size_t{64} << 10;
constexpr size_t kPeek = 512;

enum class Compression { kNone, kGzip, kBzip2 };

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

struct ByteStream::State {
  std::string name;
  uint64_t limit = 0;
  uint64_t produced = 0;
  Compression compression = Compression::kNone;

  int fd = -1;
  std::span<const std::byte> memory;  // what is left of the bytes in memory, when fd is -1

  std::vector<std::byte> chunk;    // raw input from fd
  std::span<const std::byte> raw;  // unread input
  bool raw_end = false;
  bool ended = false;
  std::optional<Error> failed;

  z_stream zip{};
  bz_stream bzip{};
  bool zip_open = false, bzip_open = false;

  std::vector<std::byte> peeked;  // decompressed, not read yet
  size_t peeked_at = 0;
  bool has_peeked = false;

  ~State() {
    if (zip_open) inflateEnd(&zip);
    if (bzip_open) BZ2_bzDecompressEnd(&bzip);
    if (fd >= 0) close(fd);
  }

  Error fail(std::string_view what, std::string hint = {}) const {
    return Error(fmt::format("{}: {}", name, what), std::move(hint));
  }

  // Makes `raw` non-empty unless the input is over.
  Result<void> refill() {
    if (!raw.empty() || raw_end) return {};
    if (fd < 0) {
      raw = memory;
      memory = {};
      raw_end = raw.empty();
      return {};
    }
    if (chunk.empty()) chunk.resize(kChunk);
    for (;;) {
      const ssize_t n = ::read(fd, chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail(fmt::format("cannot read: {}", std::strerror(errno)));
      raw = {chunk.data(), static_cast<size_t>(n)};
      raw_end = n == 0;
      return {};
    }
  }

  Result<void> start() {
    // A pipe may give its first bytes one by one; four tell the kinds apart.
    std::vector<std::byte> head;
    while (head.size() < 6) {
      if (auto ok = refill(); !ok) return ok;
      if (raw.empty()) break;
      if (head.empty() && raw.size() >= 6) break;
      const size_t n = std::min(raw.size(), 6 - head.size());
      head.insert(head.end(), raw.begin(), raw.begin() + static_cast<ptrdiff_t>(n));
      raw = raw.subspan(n);
    }
    if (!head.empty()) {
      // Put the short pieces back in front of what is left.
      std::vector<std::byte> joined = head;
      joined.insert(joined.end(), raw.begin(), raw.end());
      joined.reserve(std::max(joined.size(), kChunk));
      if (joined.size() < kChunk && fd >= 0) {
        const size_t have = joined.size();
        joined.resize(kChunk);
        chunk = std::move(joined);
        raw = {chunk.data(), have};
      } else {
        chunk = std::move(joined);
        raw = chunk;
      }
      raw_end = false;
    }
    if (starts_with(raw, "\x1f\x8b")) {
      compression = Compression::kGzip;
    } else if (starts_with(raw, "BZh")) {
      compression = Compression::kBzip2;
    } else if (starts_with(raw, {"\xfd"
                                 "7zXZ\0",
                                 6})) {
      return fail("xz compression is not supported", "decompress it first: xz -dk FILE");
    } else if (starts_with(raw, "\x28\xb5\x2f\xfd")) {
      return fail("zstd compression is not supported", "decompress it first: zstd -d FILE");
    } else if (starts_with(raw, "PK\x03\x04")) {
      return fail("zip archives are not supported", "unpack it first: unzip FILE");
    }
    return {};
  }

  Result<size_t> plain(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size()) {
      if (auto ok = refill(); !ok) return std::move(ok).error();
      if (raw.empty()) break;
      const size_t n = std::min(raw.size(), out.size() - done);
      std::memcpy(out.data() + done, raw.data(), n);
      raw = raw.subspan(n);
      done += n;
    }
    return done;
  }

  Result<size_t> gunzip(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size() && !ended) {
      if (auto ok = refill(); !ok) return std::move(ok).error();
      if (!zip_open) {
        if (raw.empty()) {
          ended = true;
          break;
        }
        zip = {};
        if (inflateInit2(&zip, 15 + 16) != Z_OK) return fail("out of memory for gzip");
        zip_open = true;
      }
      if (raw.empty()) return fail("gzip data is truncated", "fetch the file again");
      zip.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(raw.data()));
      zip.avail_in = static_cast<uInt>(std::min<size_t>(raw.size(), kChunk));
      zip.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      const auto room = static_cast<uInt>(std::min<size_t>(out.size() - done, size_t{1} << 30));
      zip.avail_out = room;
      const auto given = zip.avail_in;
      const int code = inflate(&zip, Z_NO_FLUSH);
      raw = raw.subspan(given - zip.avail_in);
      done += room - zip.avail_out;
      if (code == Z_STREAM_END) {
        inflateEnd(&zip);
        zip_open = false;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return fail(fmt::format("gzip data is damaged ({})", zip.msg != nullptr ? zip.msg : "unknown"),
                    "fetch the file again");
      }
    }
    return done;
  }

  Result<size_t> bunzip(std::span<std::byte> out) {
    size_t done = 0;
    while (done < out.size() && !ended) {
      if (auto ok = refill(); !ok) return std::move(ok).error();
      if (!bzip_open) {
        if (raw.empty()) {
          ended = true;
          break;
        }
        bzip = {};
        if (BZ2_bzDecompressInit(&bzip, 0, 0) != BZ_OK) return fail("out of memory for bzip2");
        bzip_open = true;
      }
      // bzip2 may hold output back that needs no more input, so an empty input is an error only without progress.
      bzip.next_in = const_cast<char*>(reinterpret_cast<const char*>(raw.data()));
      bzip.avail_in = static_cast<unsigned>(std::min<size_t>(raw.size(), kChunk));
      bzip.next_out = reinterpret_cast<char*>(out.data() + done);
      const auto room = static_cast<unsigned>(std::min<size_t>(out.size() - done, size_t{1} << 30));
      bzip.avail_out = room;
      const auto given = bzip.avail_in;
      const int code = BZ2_bzDecompress(&bzip);
      raw = raw.subspan(given - bzip.avail_in);
      done += room - bzip.avail_out;
      if (code == BZ_STREAM_END) {
        BZ2_bzDecompressEnd(&bzip);
        bzip_open = false;
      } else if (code != BZ_OK) {
        return fail("bzip2 data is damaged", "fetch the file again");
      } else if (given == 0 && bzip.avail_out == room) {
        return fail("bzip2 data is truncated", "fetch the file again");
      }
    }
    return done;
  }

  Result<size_t> decompress(std::span<std::byte> out) {
    // Whoever reads on after an error gets it again: the decompressors are not to be called any more.
    if (failed) return *failed;
    Result<size_t> n = next(out);
    if (!n) failed = n.error();
    return n;
  }

  Result<size_t> next(std::span<std::byte> out) {
    Result<size_t> n = compression == Compression::kGzip    ? gunzip(out)
                       : compression == Compression::kBzip2 ? bunzip(out)
                                                            : plain(out);
    if (!n) return n;
    produced += *n;
    if (produced > limit) return fail(fmt::format("more than {} bytes", limit), "split the file");
    return n;
  }
};

ByteStream::ByteStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteStream::~ByteStream() = default;
ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;

Result<ByteStream> ByteStream::open(const std::string& path, uint64_t limit) {
  auto state = std::make_unique<State>();
  state->name = path == "-" ? "standard input" : path;
  state->limit = limit;
  state->fd = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state->fd < 0) return Error(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  struct stat info {};
  if (fstat(state->fd, &info) != 0 || S_ISDIR(info.st_mode)) return Error(fmt::format("{} is a directory", path));
  if (auto ok = state->start(); !ok) return std::move(ok).error();
  return ByteStream(std::move(state));
}

Result<ByteStream> ByteStream::over(std::span<const std::byte> bytes, const std::string& name, uint64_t limit) {
  auto state = std::make_unique<State>();
  state->name = name;
  state->limit = limit;
  state->memory = bytes;
  if (auto ok = state->start(); !ok) return std::move(ok).error();
  return ByteStream(std::move(state));
}

Result<size_t> ByteStream::read(std::span<std::byte> out) {
  size_t done = 0;
  if (state_->peeked_at < state_->peeked.size()) {
    done = std::min(out.size(), state_->peeked.size() - state_->peeked_at);
    std::memcpy(out.data(), state_->peeked.data() + state_->peeked_at, done);
    state_->peeked_at += done;
  }
  if (done == out.size()) return done;
  auto n = state_->decompress(out.subspan(done));
  if (!n) return n;
  return done + *n;
}

Result<std::span<const std::byte>> ByteStream::peek() {
  if (!state_->has_peeked) {
    state_->has_peeked = true;
    std::vector<std::byte> bytes(kPeek);
    auto n = state_->decompress(bytes);
    if (!n) return std::move(n).error();
    bytes.resize(*n);
    state_->peeked = std::move(bytes);
  }
  return std::span<const std::byte>(state_->peeked);
}

const std::string& ByteStream::name() const {
  return state_->name;
}
const char* ByteStream::compression() const {
  switch (state_->compression) {
    case Compression::kNone:
      return "plain";
    case Compression::kGzip:
      return "gzip";
    case Compression::kBzip2:
      return "bzip2";
  }
  return "?";
}

Result<std::string> read_all(ByteStream& stream, uint64_t limit) {
  std::string text;
  size_t size = 0;
  for (;;) {
    // Grows by doubling, so that a full table costs few copies; a byte past the limit is enough to see that it is past.
    if (size == text.size()) text.resize(std::min<uint64_t>(std::max<size_t>(size_t{1} << 16, size * 2), limit) + 1);
    auto n = stream.read({reinterpret_cast<std::byte*>(text.data()) + size, text.size() - size});
    if (!n) return std::move(n).error();
    size += *n;
    if (size > limit) {
      return Error(fmt::format("{}: more than {} bytes of text", stream.name(), limit), "split the file");
    }
    if (size < text.size()) break;
  }
  text.resize(size);
  return text;
}

Result<std::string> read_text_file(const std::string& path, uint64_t limit) {
  auto stream = ByteStream::open(path);
  if (!stream) return std::move(stream).error();
  return read_all(*stream, limit);
}

}  // namespace sluice
