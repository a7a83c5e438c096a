// A file that appears under its name only when it is whole.
// host only
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// Bytes go to `path`.tmp.PID in the same folder; commit() renames it over `path`, so that a reader sees the old file or
// the whole new one. Without commit() the destructor removes it. "-" is standard output, and what exists and is not a
// regular file (a pipe, /dev/null) is written directly. A symbolic link is followed. Move-only, one thread.
class AtomicFile {
 public:
  AtomicFile() = default;
  // Errors: cannot create (path and reason).
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept { swap(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept {
    AtomicFile(std::move(other)).swap(*this);
    return *this;
  }
  ~AtomicFile() { discard(); }

  // Buffers and writes. Errors are kept: later calls do nothing, and commit() returns the first.
  void write(std::string_view bytes);
  bool ok() const { return error_.message.empty(); }
  const Error& error() const { return error_; }
  // The reader of the pipe went away: nobody is left to be told.
  bool broken_pipe() const { return broken_pipe_; }

  // Flushes and renames. Errors: the first that happened.
  Result<void> commit();
  const std::string& path() const { return path_; }

 private:
  void swap(AtomicFile& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(target_, other.target_);
    std::swap(temporary_, other.temporary_);
    std::swap(buffer_, other.buffer_);
    std::swap(error_, other.error_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(owned_, other.owned_);
    std::swap(broken_pipe_, other.broken_pipe_);
  }
  void flush();
  void discard();
  void note(const char* doing);

  std::string path_;       // as given, for messages
  std::string target_;     // what is renamed to, links resolved
  std::string temporary_;  // empty: written directly
  std::string buffer_;
  Error error_;
  int descriptor_ = -1;
  bool owned_ = false;
  bool broken_pipe_ = false;
};

}  // namespace sluice
