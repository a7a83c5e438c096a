// An output file, which appears under its name only when it is whole, and where an output's name leads.
// host only
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/unfinished.h"

namespace sluice {

// A descriptor that is closed with its owner.
class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int descriptor) : descriptor_(descriptor) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnedDescriptor() { (void)close(); }
  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  // What close(2) says; nothing is open afterwards.
  int close();

 private:
  int descriptor_ = -1;
};

// Where an output goes, symbolic links followed.
struct OutputPlace {
  enum class Kind : uint8_t {
    kFile,        // a regular file, or nothing yet: name in folder
    kDescriptor,  // "-", /dev/stdout, /dev/fd/N: one that this process has open
    kOther,       // a device, a pipe, a socket: folder/name
  };
  Kind kind = Kind::kFile;
  bool exists = false;
  std::string folder, name;
  int descriptor = -1;

  std::string path() const { return folder.empty() ? name : folder == "/" ? "/" + name : folder + "/" + name; }
};
// "-" is standard output. Errors (with the path): a folder, too many links, a part that cannot be looked at, a link of
// another user in a folder where anybody may make one.
Result<OutputPlace> find_output(const std::string& path);

// What becomes of an output at the end of a run.
enum class Ending : uint8_t {
  kWhole,    // it appears under its name
  kPartial,  // it appears as NAME.partial: readable, but the run was interrupted, or its input is damaged
  kDiscard,  // nothing appears
};
inline constexpr std::string_view kPartialSuffix = ".partial";

// Bytes of a regular file go to a new one in the same folder; commit() puts them on the disk and renames it, so that a
// reader sees the old file or the whole new one, also after a power cut. An old file's mode is kept, and its owner
// where we may; a symbolic link is followed. A file whose place no other can take is written in place by commit(): one
// that is a mount of its own (a file that was mounted into a container), or whose folder takes no new file. Until then
// its bytes are in a file beside it, or in memory. Without commit() the destructor removes what is new. "-" is standard
// output; what else is not a regular file (a pipe, /dev/null, /dev/stdout) is written directly. Move-only, one thread.
class AtomicFile {
 public:
  AtomicFile() = default;
  // Errors: those of find_output; cannot create (path and reason).
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept { swap(other); }
  AtomicFile& operator=(AtomicFile&& other) noexcept {
    AtomicFile(std::move(other)).swap(*this);
    return *this;
  }
  ~AtomicFile() { discard(); }

  // Hands on what is buffered, for whoever reads what is written directly. Errors are kept.
  void flush();
  // Written directly: there is no file that appears later.
  bool direct() const { return !folder_.valid(); }
  // commit() writes the old file itself: who reads it meanwhile sees a part, and so does everybody after a power cut.
  bool in_place() const { return target_.valid(); }
  // Buffers and writes. Errors are kept: later calls do nothing, and commit() returns the first.
  void write(std::string_view bytes) {
    if (bytes.empty() || bytes.size() >= room_) return write_more(bytes);
    std::memcpy(buffer_.get() + (kBufferBytes - room_), bytes.data(), bytes.size());
    room_ -= bytes.size();
  }
  // The same without a copy: room for at least `bytes` (kMostRoom at most) behind what is buffered; what is put there
  // counts once `put` says how much. Empty after an error, or once it is settled.
  static constexpr size_t kMostRoom = size_t{1} << 14;
  std::span<char> room(size_t bytes) {
    if (bytes > room_) drain();
    return !ok() || bytes > room_ ? std::span<char>() : std::span(buffer_.get() + (kBufferBytes - room_), room_);
  }
  void put(size_t bytes) { room_ -= bytes; }
  bool ok() const { return error_.message.empty(); }
  const Error& error() const { return error_; }

  // All bytes are on the disk (or handed on); what is left of commit() is to rename. Errors: the first that happened.
  Result<void> settle();
  // Errors: the first that happened; then nothing has appeared.
  Result<void> commit(Ending ending = Ending::kWhole);
  // The files of one command: all are on the disk before the first appears, and where one cannot appear, those before
  // it are as they were. Errors: the first; what could not be put back is named, with the file that has its old bytes.
  static Result<void> commit(std::span<AtomicFile> files, Ending ending = Ending::kWhole);
  // As given; "standard output" for "-".
  const std::string& path() const { return path_; }
  // Where an ending leaves the bytes: the path, or NAME.partial; a pipe or a device has its own name in both cases.
  std::string path_of(Ending ending) const;

 private:
  // The page cache takes large writes at nearly twice the rate of small ones: in folios of many pages.
  static constexpr size_t kBufferBytes = size_t{1} << 18;
  void swap(AtomicFile& other) noexcept;
  void drain();
  void write_more(std::string_view bytes);
  void write_out(std::string_view bytes);
  void discard();
  void note(const char* doing);
  // The steps of commit(). They give 0 or errno; the last two take no memory.
  int keep_old(Ending ending, bool several);
  int appear();
  int put_back();

  // A file in the folder under a name that nobody can guess; without a name: memory.
  struct Beside {
    OwnedDescriptor descriptor;
    std::string name;
    Unfinished unfinished;  // of that name
  };
  static int make_beside(int folder, const OutputPlace& to, mode_t mode, Beside& made);
  static int make_in_memory(Beside& made);
  static void remove(int folder, Beside& beside);

  // What the name has until commit() is over.
  enum class Old : uint8_t {
    kNone,    // nothing, or nothing that has to be kept
    kLinked,  // `old_` is another name of it
    kToMove,  // `old_` is the name that it gets
    kMoved,
    kCopied,  // `old_` has its bytes
  };

  std::string path_;
  OutputPlace place_;
  Beside new_;              // its descriptor: what is written, directly or not
  int no_partial_ = 0;      // errno: why the folder takes no new file
  OwnedDescriptor target_;  // what is written in place
  Beside old_;
  Old old_is_ = Old::kNone;
  std::string name_;       // that it gets, in the folder
  bool appeared_ = false;  // wholly or in part
  int lost_ = 0;           // errno: why it could not be put back
  std::unique_ptr<char[]> buffer_;
  size_t room_ = 0;  // in the buffer
  Error error_;
  OwnedDescriptor folder_;  // none: written directly
  bool settled_ = false;
};

}  // namespace sluice
