// What users name as input: a file, a pipe, standard input or bytes in memory, plain or compressed, as one stream.
// host only
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// Which file it is, whatever its name.
struct FileId {
  uint64_t device = 0, inode = 0;
  auto operator<=>(const FileId&) const = default;
};

// A file as it was at a moment, by which it is told later whether anybody has written it since.
struct FileStamp {
  std::string path;
  bool regular = false;  // a file that a path names; others are never the same again
  FileId id;
  uint64_t bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // mtime and ctime
  int64_t looked_ns = 0;                    // the time of day of that moment

  static FileStamp of(const std::string& path);
  // The same file of the same length, whose content was written last at the same time.
  bool same_content(const FileStamp& o) const {
    return regular && o.regular && id == o.id && bytes == o.bytes && modified_ns == o.modified_ns;
  }
  // Whether the path still names that file as it was. False where nobody can tell: what was written within kGrain
  // before it was looked at may have been written again within one tick of the file system's clock.
  bool unchanged() const;
  static constexpr int64_t kGrain = 2'000'000'000;  // ns; the coarsest clock in use is that of FAT
};

// What a text that a user names may come to, decompressed.
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

// Is opened once and read forward. gzip, bzip2, xz and zstd are told apart by their first bytes, never by names;
// several members or frames in one file are one, as their own programs read them. Memory is bounded, whatever the
// input: a block of input, and what the decompressor needs (xz: 256 MiB at most; zstd: a window of 128 MiB). Move-only;
// one thread.
class InputFile {
 public:
  static constexpr size_t kMostPeek = 4096;
  static constexpr uint64_t kNoLimit = ~uint64_t{0};

  ~InputFile();
  InputFile(InputFile&&) noexcept;
  InputFile& operator=(InputFile&&) noexcept;

  // "-" is standard input. Nothing is read yet, and a FIFO does not wait for its writer: the first read does. Errors:
  // cannot open; a folder.
  static Result<InputFile> open(const std::string& path);
  // Bytes in memory; `name` stands in errors.
  static InputFile over(std::string bytes, std::string name);
  // The same without a copy: the bytes outlive it.
  static InputFile over(std::span<const std::byte> bytes, std::string name);

  // The next min(bytes, kMostPeek) bytes, without consuming them; fewer at the end. Errors: those of read.
  Result<std::span<const std::byte>> peek(size_t bytes = kMostPeek);
  // Waits for at least one byte and takes what is there; 0 at the end. Errors: read errors; truncated or damaged
  // compressed data; a compression that is not supported; more than the limit; interrupted (stop_when). An error stays.
  Result<size_t> read_some(std::span<std::byte> out);
  // Whether read_some returns without waiting for whoever writes: bytes, the end or an error are there.
  bool ready() const;
  // Waits until that may have changed, `limit_ns` at most; a signal may end it.
  void wait(uint64_t limit_ns) const;
  // Fills `out`; fewer bytes mean the end.
  Result<size_t> read(std::span<std::byte> out);
  // All that is left. Never holds more than 1.5 times the limit. Errors: also more than `limit` bytes.
  Result<std::string> whole(uint64_t limit);
  // The same of what has to be text. Errors: also a NUL in the first kMostPeek bytes, so that a device or another
  // program's data ends before it fills the memory.
  Result<std::string> text(uint64_t limit);
  // The same of a table. Errors: also no byte at all, which is no table that anybody wrote, but one that was cut off:
  // with the rest permitted it would let all through.
  Result<std::string> table(uint64_t limit = kMaxTextBytes);
  // Whoever reads on is given what a thread of its own decompresses, some blocks ahead; of a small input, where nothing
  // is compressed, or where the system starts no thread, all stays as it is.
  void decompress_ahead();
  // Bytes that may still be read, decompressed: against small files that never end.
  void set_limit(uint64_t bytes);

  // The same file from the place where it was opened: for regular files alone, which this must be.
  InputFile again() const;

  // As given; "standard input" for "-".
  const std::string& name() const;
  // Before it is read.
  void set_name(std::string name);
  // More than the limit of set_limit, whole or text has come; the reason for the last error.
  bool too_much() const;
  // A regular file: it can be read again. Bytes in memory are none.
  bool regular() const;
  // 0, 0 for bytes in memory.
  FileId id() const;
  // As it was when it was opened, before anything was read.
  const FileStamp& stamp() const;
  // "plain", "gzip", "bzip2", "xz" or "zstd"; known once something was read.
  const char* compression() const;

  // Ends the waits of all readers of pipes, sockets and terminals, with the error "interrupted", once the flag is set.
  // For the program's start; the flag outlives all readers.
  static void stop_when(const std::atomic<bool>* flag);
  // Whether an error is that.
  static bool was_stopped();

 private:
  struct State;
  explicit InputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// That error.
Error empty_table(const std::string& name);

// A whole file or pipe as text, decompressed; "-" is standard input. Errors: those of open and text.
Result<std::string> read_text_file(const std::string& path, uint64_t limit = kMaxTextBytes);

// While it lives, its thread waits for the writers of pipes, sockets and terminals so long in all; then reading is an
// error. For a thread that others wait for. They may nest: the inner one counts.
class InputPatience {
 public:
  explicit InputPatience(uint64_t ns);
  ~InputPatience();
  InputPatience(const InputPatience&) = delete;
  InputPatience& operator=(const InputPatience&) = delete;

 private:
  friend struct Waited;
  const uint64_t whole_ns_;
  uint64_t left_ns_;
  InputPatience* const around_;
};

// What can be read but once (a pipe, a socket, a terminal, standard input by "-"): its identity, without opening it.
// Two paths with the same are one stream. Nothing: it can be read again, or is not there.
std::optional<FileId> read_once_id(const std::string& path);

// The inputs of one run: all are opened before work begins, and taken by whoever reads them. One thread.
class InputSet {
 public:
  // Opens and keeps it. A path that is named N times is opened N times.
  Result<void> open(const std::string& path);
  // Keeps what is open already for who asks for `path`.
  void put(const std::string& path, InputFile file);
  // What was opened for the path, once each; what was not is opened now.
  Result<InputFile> take(const std::string& path);
  // The next that take() would give, or nullptr.
  InputFile* find(const std::string& path);
  // Of all that were opened so far.
  const std::vector<FileId>& ids() const { return ids_; }

 private:
  std::multimap<std::string, InputFile, std::less<>> held_;
  std::vector<FileId> ids_;
};

// From the set, where there is one.
Result<InputFile> take_input(InputSet* inputs, const std::string& path);

}  // namespace sluice
