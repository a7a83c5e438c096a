// host only
#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <optional>

namespace sluice {
namespace {

constexpr int kMostLinks = 40;  // as the kernel's limit
constexpr int kTries = 16;
constexpr size_t kNameBytes = 200;  // of a name that are repeated in the temporary one

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string hint_for(int code, const std::string& path) {
  if (code == ENOENT) return fmt::format("does the directory '{}' exist?", folder_of(path));
  if (code == ENOSPC) return "free some space, or write to another disk";
  return {};
}

Error refused(const std::string& path, const char* doing, int code) {
  Error error = system_error(fmt::format("{}: cannot {}", path, doing), code);
  if (std::string hint = hint_for(code, path); !hint.empty()) error.hint = std::move(hint);
  return error;
}
Error cannot_write(const std::string& path, int code) {
  return refused(path, "write", code);
}

// The descriptor that /proc/self/fd/N and the like stand for: to open that name anew would lose the place in a file and
// fail for a socket.
std::optional<int> descriptor_of(const OutputPlace& place) {
  int descriptor = -1;
  const char* const end = place.name.data() + place.name.size();
  const auto [at, code] = std::from_chars(place.name.data(), end, descriptor);
  if (code != std::errc() || at != end || descriptor < 0) return std::nullopt;
  struct statfs status {};
  if (::statfs(place.folder.c_str(), &status) != 0 || status.f_type != PROC_SUPER_MAGIC) return std::nullopt;
  char folder[PATH_MAX];
  if (::realpath(place.folder.c_str(), folder) == nullptr) return std::nullopt;
  const std::string_view where = folder;
  if (!where.starts_with(fmt::format("/proc/{}/", ::getpid())) || !where.ends_with("/fd")) return std::nullopt;
  return descriptor;
}

// Whether a link is one that another user may have planted, by the rule of protected_symlinks (proc_sys_fs(5)).
bool planted(const OutputPlace& place, const struct stat& link) {
  struct stat folder {};
  if (::stat(place.folder.c_str(), &folder) != 0) return true;
  constexpr mode_t kAnybody = S_ISVTX | S_IWOTH;
  return (folder.st_mode & kAnybody) == kAnybody && link.st_uid != ::geteuid() && link.st_uid != folder.st_uid;
}

// 80 bits, so that nobody can make the name beforehand.
std::string random_word() {
  static constexpr char kLetters[] = "0123456789abcdefghijklmnopqrstuv";
  unsigned char bytes[16] = {};
  if (::getentropy(bytes, sizeof bytes) != 0) return {};
  std::string word;
  for (const unsigned char b : bytes) word += kLetters[b % 32];
  return word;
}

int sync_data(int descriptor) {
  int code = 0;
  while ((code = ::fdatasync(descriptor)) != 0 && errno == EINTR) {
  }
  // What cannot be synced (some network and user file systems) is as safe as it gets.
  return code != 0 && (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) ? 0 : code;
}

// The names in a folder, as far as they can be synced.
void sync_folder(int folder) {
  const OwnedDescriptor readable(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (readable.valid()) (void)::fsync(readable.get());
}

}  // namespace

int OwnedDescriptor::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  return descriptor < 0 ? 0 : ::close(descriptor);
}

Result<OutputPlace> find_output(const std::string& path) {
  OutputPlace place;
  if (path == "-") {
    place.kind = OutputPlace::Kind::kDescriptor;
    place.exists = true;
    place.descriptor = STDOUT_FILENO;
    return place;
  }
  std::string at = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    const size_t slash = at.rfind('/');
    place.folder = folder_of(at);
    place.name = slash == std::string::npos ? at : at.substr(slash + 1);
    if (const auto descriptor = descriptor_of(place)) {
      place.kind = OutputPlace::Kind::kDescriptor;
      place.exists = true;
      place.descriptor = *descriptor;
      return place;
    }
    struct stat status {};
    if (::lstat(at.c_str(), &status) != 0) {
      if (errno != ENOENT || place.name.empty()) return cannot_write(path, errno);
      return place;
    }
    if (S_ISLNK(status.st_mode)) {
      if (planted(place, status)) {
        return Error(fmt::format("{}: cannot write: it is another user's link in a world-writable directory", path),
                     "write to a directory of your own");
      }
      char target[PATH_MAX];
      const ssize_t bytes = ::readlink(at.c_str(), target, sizeof target);
      if (bytes < 0 || bytes == sizeof target) return cannot_write(path, bytes < 0 ? errno : ENAMETOOLONG);
      const std::string to(target, static_cast<size_t>(bytes));
      place.name = to;
      at = to.starts_with('/') ? to : place.path();
      continue;
    }
    if (S_ISDIR(status.st_mode)) return Error(fmt::format("{}: cannot write: it is a directory", path));
    place.exists = true;
    place.kind = S_ISREG(status.st_mode) ? OutputPlace::Kind::kFile : OutputPlace::Kind::kOther;
    return place;
  }
  return cannot_write(path, ELOOP);
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  auto place = find_output(path);
  if (!place.ok()) return std::move(place).error();
  AtomicFile file;
  file.path_ = path == "-" ? "standard output" : path;
  file.place_ = std::move(*place);
  file.buffer_ = std::make_unique<char[]>(kBufferBytes);
  file.room_ = kBufferBytes;
  const OutputPlace& to = file.place_;
  if (to.kind == OutputPlace::Kind::kDescriptor) {
    const int flags = ::fcntl(to.descriptor, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) return cannot_write(file.path_, EBADF);
    file.descriptor_ = OwnedDescriptor(::fcntl(to.descriptor, F_DUPFD_CLOEXEC, 3));
  } else if (to.kind == OutputPlace::Kind::kOther) {
    file.descriptor_ = OwnedDescriptor(::open(to.path().c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW));
  } else {
    file.folder_ = OwnedDescriptor(::open(to.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!file.folder_.valid()) return cannot_write(path, errno);
    struct stat status {};
    const bool exists = ::fstatat(file.folder_.get(), to.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    for (int i = 0; i < kTries && !file.descriptor_.valid(); ++i) {
      const std::string word = random_word();
      if (word.empty()) return cannot_write(path, errno);
      file.temporary_ = fmt::format("{}.tmp.{}", to.name.substr(0, kNameBytes), word);
      file.unfinished_ = Unfinished(fmt::format("{}/{}", to.folder, file.temporary_));
      // What replaces a file that others may not read is not theirs to read meanwhile.
      file.descriptor_ =
          OwnedDescriptor(::openat(file.folder_.get(), file.temporary_.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, exists ? 0600 : 0666));
      if (!file.descriptor_.valid() && errno != EEXIST) break;
    }
    if (!file.descriptor_.valid()) {
      const int code = errno;
      file.temporary_.clear();
      file.unfinished_ = {};
      return cannot_write(path, code);
    }
    if (exists) {
      // The owner first: to change it takes set-user-id bits away. Who may not, may give one of its own groups.
      if (::fchown(file.descriptor_.get(), status.st_uid, status.st_gid) != 0)
        (void)!::fchown(file.descriptor_.get(), static_cast<uid_t>(-1), status.st_gid);
      (void)::fchmod(file.descriptor_.get(), status.st_mode & 07777);
    }
  }
  if (!file.descriptor_.valid()) return cannot_write(file.path_, errno);
  return file;
}

void AtomicFile::swap(AtomicFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(place_, other.place_);
  std::swap(temporary_, other.temporary_);
  std::swap(unfinished_, other.unfinished_);
  std::swap(buffer_, other.buffer_);
  std::swap(room_, other.room_);
  std::swap(error_, other.error_);
  std::swap(folder_, other.folder_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(settled_, other.settled_);
}

void AtomicFile::note(const char* doing) {
  const int code = errno;
  if (error_.message.empty()) error_ = refused(path_, doing, code);
}

void AtomicFile::write_out(std::string_view bytes) {
  while (!bytes.empty() && ok()) {
    const ssize_t n = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (n < 0) {
      if (errno != EINTR) note("write");
      continue;
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void AtomicFile::flush() {
  if (buffer_ == nullptr) return;
  write_out({buffer_.get(), kBufferBytes - room_});
  room_ = kBufferBytes;
}

// Makes room. Part of a page stays, so that the next write does not begin in the middle of one.
void AtomicFile::drain() {
  constexpr size_t kPage = 4096;
  if (buffer_ == nullptr || direct()) return flush();
  const size_t used = kBufferBytes - room_, kept = used % kPage;
  if (used == kept) return flush();
  write_out({buffer_.get(), used - kept});
  std::memmove(buffer_.get(), buffer_.get() + used - kept, kept);
  room_ = kBufferBytes - kept;
}

void AtomicFile::write_more(std::string_view bytes) {
  if (bytes.empty() || !descriptor_.valid()) return;
  drain();
  if (bytes.size() >= room_) flush();
  if (bytes.size() >= kBufferBytes) return write_out(bytes);
  std::memcpy(buffer_.get() + (kBufferBytes - room_), bytes.data(), bytes.size());
  room_ -= bytes.size();
}

Result<void> AtomicFile::settle() {
  if (!settled_ && descriptor_.valid()) {
    flush();
    if (ok() && !temporary_.empty() && sync_data(descriptor_.get()) != 0) note("write");
    // A pipe's reader sees the end now.
    if (descriptor_.close() != 0 && ok()) note("close");
    buffer_.reset();
    room_ = 0;
    settled_ = true;
  }
  if (!ok()) return error_;
  return {};
}

std::string AtomicFile::path_of(Ending ending) const {
  if (ending != Ending::kPartial || place_.kind != OutputPlace::Kind::kFile) return path_;
  const std::string path = place_.path();
  return (path == "./" + path_ ? path_ : path) + std::string(kPartialSuffix);
}

Result<void> AtomicFile::commit(Ending ending) {
  if (ending == Ending::kDiscard) {
    discard();
    return {};
  }
  if (!settled_ && !descriptor_.valid()) return Error(fmt::format("{}: committed twice", path_));
  (void)settle();
  if (ok() && !temporary_.empty()) {
    const std::string name = ending == Ending::kPartial ? place_.name + std::string(kPartialSuffix) : place_.name;
    // Only files and links are replaced. (A folder is what rename refuses itself.)
    struct stat status {};
    const bool other = ::fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                       !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode) && !S_ISDIR(status.st_mode);
    if (other) errno = EEXIST;
    if (other || ::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name.c_str()) != 0) {
      error_ = cannot_write(path_of(ending), errno);
    } else {
      temporary_.clear();
      unfinished_ = {};
      sync_folder(folder_.get());
    }
  }
  settled_ = false;
  if (ok()) return {};
  const Error error = error_;
  discard();
  return error;
}

void AtomicFile::discard() {
  (void)descriptor_.close();
  if (!temporary_.empty()) (void)::unlinkat(folder_.get(), temporary_.c_str(), 0);
  temporary_.clear();
  unfinished_ = {};
  (void)folder_.close();
  buffer_.reset();
  room_ = 0;
  settled_ = false;
}

}  // namespace sluice
