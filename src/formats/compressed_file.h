// Files as a stream of bytes, plain, gzip or bzip2: told apart by their first bytes, never by their names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace sluice {

// Reads forward only, in bounded memory: 64 KiB of input and the decompressor's state. Several gzip members or bzip2
// streams in one file are read as one, as gzip and bzip2 themselves do. Move-only; one thread.
class ByteStream {
 public:
  // What the decompressed bytes may come to, against small files that never end: 64 GiB.
  static constexpr uint64_t kDefaultLimit = uint64_t{1} << 36;

  ~ByteStream();
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;

  // A file or a pipe; "-" is standard input. Errors: cannot open or read, a directory, a compression that is not
  // supported (xz, zstd, zip).
  static Result<ByteStream> open(const std::string& path, uint64_t limit = kDefaultLimit);
  // Bytes in memory, which must outlive the stream; `name` stands in errors.
  static Result<ByteStream> over(std::span<const std::byte> bytes, const std::string& name,
                                 uint64_t limit = kDefaultLimit);

  // Fills `out` as far as there are bytes; fewer than out.size() means the end. Errors: read errors, truncated or
  // damaged compressed data, more than `limit` bytes.
  Result<size_t> read(std::span<std::byte> out);
  // Up to 512 bytes from the start, without consuming them; only before the first read.
  Result<std::span<const std::byte>> peek();

  const std::string& name() const;
  // "plain", "gzip" or "bzip2".
  const char* compression() const;

 private:
  struct State;
  explicit ByteStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The whole rest of a stream. Never holds more than 1.5 times the limit. Errors: those of read, and more than `limit`
// bytes.
Result<std::string> read_all(ByteStream& stream, uint64_t limit);

// What a text that a user names may come to, decompressed.
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
// A whole file or pipe as text, decompressed; "-" is standard input. Errors: those of ByteStream, and more than `limit`
// bytes of text.
Result<std::string> read_text_file(const std::string& path, uint64_t limit = kMaxTextBytes);

}  // namespace sluice
