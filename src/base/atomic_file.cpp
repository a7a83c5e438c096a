// host only
#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <optional>

#include "base/log.h"

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
  if (code == EFBIG) return "raise the limit of a file's size: ulimit -f, LimitFSIZE= of systemd";
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

// Replaces all bytes of a file by those of another one. Takes no memory. 0, or errno.
int overwrite(int to, int from) {
  char bytes[8192];
  if (::lseek(from, 0, SEEK_SET) < 0 || ::lseek(to, 0, SEEK_SET) < 0) return errno;
  off_t all = 0;
  for (;;) {
    const ssize_t got = ::read(from, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    for (ssize_t done = 0; done < got;) {
      const ssize_t n = ::write(to, bytes + done, static_cast<size_t>(got - done));
      if (n < 0 && errno != EINTR) return errno;
      done += std::max<ssize_t>(n, 0);
    }
    all += got;
  }
  // What was longer is cut when all else is written: until then its blocks are there to be written again.
  while (::ftruncate(to, all) != 0) {
    if (errno != EINTR) return errno;
  }
  return sync_data(to) != 0 ? errno : 0;
}

// Whether a name in a folder is where something is mounted: rename() does not replace that.
bool is_mounted(int folder, const std::string& name) {
  struct statx status {};
  return ::statx(folder, name.c_str(), AT_SYMLINK_NOFOLLOW, 0, &status) == 0 &&
         (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

// That a folder takes no new file, whatever its name.
bool takes_no_file(int code) {
  return code == EACCES || code == EPERM || code == EROFS;
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
    file.new_.descriptor = OwnedDescriptor(::fcntl(to.descriptor, F_DUPFD_CLOEXEC, 3));
  } else if (to.kind == OutputPlace::Kind::kOther) {
    file.new_.descriptor = OwnedDescriptor(::open(to.path().c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW));
  } else {
    file.folder_ = OwnedDescriptor(::open(to.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const int folder = file.folder_.get();
    if (folder < 0) return cannot_write(path, errno);
    struct stat status {};
    const bool exists = ::fstatat(folder, to.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    // What replaces a file that others may not read is not theirs to read meanwhile.
    int code = make_beside(folder, to, exists ? 0600 : 0666, file.new_);
    if (code != 0 && exists && takes_no_file(code)) {
      file.no_partial_ = code;
      code = make_in_memory(file.new_);
    }
    if (code != 0) return cannot_write(path, code);
    if (file.no_partial_ != 0 || (exists && is_mounted(folder, to.name))) {
      file.target_ = OwnedDescriptor(::openat(folder, to.name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (!file.target_.valid()) return cannot_write(path, file.no_partial_ != 0 ? file.no_partial_ : errno);
      if (::fstat(file.target_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return cannot_write(path, EEXIST);
    }
    if (exists && file.no_partial_ == 0) {
      // The owner first: to change it takes set-user-id bits away. Who may not, may give one of its own groups.
      const int made = file.new_.descriptor.get();
      if (::fchown(made, status.st_uid, status.st_gid) != 0)
        (void)!::fchown(made, static_cast<uid_t>(-1), status.st_gid);
      (void)::fchmod(made, status.st_mode & 07777);
    }
  }
  if (!file.new_.descriptor.valid()) return cannot_write(file.path_, errno);
  return file;
}

int AtomicFile::make_beside(int folder, const OutputPlace& to, mode_t mode, Beside& made) {
  int code = EEXIST;
  for (int i = 0; i < kTries && code == EEXIST; ++i) {
    const std::string word = random_word();
    if (word.empty()) return errno;
    made.name = fmt::format("{}.tmp.{}", to.name.substr(0, kNameBytes), word);
    made.unfinished = Unfinished(fmt::format("{}/{}", to.folder, made.name));
    made.descriptor =
        OwnedDescriptor(::openat(folder, made.name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (made.descriptor.valid()) return 0;
    code = errno;
  }
  made = {};
  return code;
}

int AtomicFile::make_in_memory(Beside& made) {
  made.descriptor = OwnedDescriptor(::memfd_create("sluice output", MFD_CLOEXEC));
  return made.descriptor.valid() ? 0 : errno;
}

void AtomicFile::remove(int folder, Beside& beside) {
  (void)beside.descriptor.close();
  if (!beside.name.empty()) (void)::unlinkat(folder, beside.name.c_str(), 0);
  beside = {};
}

void AtomicFile::swap(AtomicFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(place_, other.place_);
  std::swap(new_, other.new_);
  std::swap(no_partial_, other.no_partial_);
  std::swap(target_, other.target_);
  std::swap(old_, other.old_);
  std::swap(old_is_, other.old_is_);
  std::swap(name_, other.name_);
  std::swap(appeared_, other.appeared_);
  std::swap(lost_, other.lost_);
  std::swap(buffer_, other.buffer_);
  std::swap(room_, other.room_);
  std::swap(error_, other.error_);
  std::swap(folder_, other.folder_);
  std::swap(settled_, other.settled_);
}

void AtomicFile::note(const char* doing) {
  const int code = errno;
  if (error_.message.empty()) error_ = refused(path_, doing, code);
}

void AtomicFile::write_out(std::string_view bytes) {
  while (!bytes.empty() && ok()) {
    const ssize_t n = ::write(new_.descriptor.get(), bytes.data(), bytes.size());
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
  if (bytes.empty() || !new_.descriptor.valid()) return;
  drain();
  if (bytes.size() >= room_) flush();
  if (bytes.size() >= kBufferBytes) return write_out(bytes);
  std::memcpy(buffer_.get() + (kBufferBytes - room_), bytes.data(), bytes.size());
  room_ -= bytes.size();
}

Result<void> AtomicFile::settle() {
  if (!settled_ && new_.descriptor.valid()) {
    flush();
    if (ok() && !direct() && sync_data(new_.descriptor.get()) != 0) note("write");
    // A pipe's reader sees the end now.
    if (!in_place() && new_.descriptor.close() != 0 && ok()) note("close");
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
  return commit({this, 1}, ending);
}

Result<void> AtomicFile::commit(std::span<AtomicFile> files, Ending ending) {
  const auto discard_all = [&files] {
    for (AtomicFile& file : files) file.discard();
  };
  if (ending == Ending::kDiscard) {
    discard_all();
    return {};
  }
  Error error;
  bool failed = false;
  const auto fail = [&](Error why) {
    if (!failed) error = std::move(why);
    failed = true;
  };
  size_t to_appear = 0;
  for (AtomicFile& file : files) {
    if (!file.settled_ && !file.new_.descriptor.valid()) return Error(fmt::format("{}: committed twice", file.path_));
    if (auto done = file.settle(); !done) fail(std::move(done).error());
    to_appear += file.direct() ? 0 : 1;
  }
  for (AtomicFile& file : files) {
    if (failed) break;
    if (const int code = file.keep_old(ending, to_appear > 1); code != 0)
      fail(cannot_write(file.path_of(ending), code));
  }
  if (!failed) {
    size_t n = 0;
    int code = 0;
    for (; n < files.size() && code == 0; ++n) code = files[n].appear();
    if (code != 0) {
      // Back before anything is said: words take memory, which may be what is missing.
      for (size_t i = n; i-- > 0;) files[i].lost_ = files[i].put_back();
      fail(cannot_write(files[n - 1].path_of(ending), code));
      for (const AtomicFile& file : files.first(n)) {
        if (file.lost_ == 0) continue;
        error.hint += fmt::format("{}{} could not be put back: {}", error.hint.empty() ? "" : "; ",
                                  file.path_of(ending), std::strerror(file.lost_));
        if (!file.old_.name.empty())
          error.hint += fmt::format("; what it had is in {}/{}", file.place_.folder, file.old_.name);
      }
    }
  }
  if (failed) {
    discard_all();
    return error;
  }
  for (AtomicFile& file : files) {
    if (file.old_is_ != Old::kCopied) continue;
    SLUICE_LOG(kWarning, "{} was written in place: {}", file.path_,
               file.no_partial_ != 0 ? "its directory takes no new file" : "it is a mount of its own");
  }
  for (AtomicFile& file : files) {
    if (!file.direct()) sync_folder(file.folder_.get());
    file.discard();
  }
  return {};
}

// What the name has now, so that it can be put back.
int AtomicFile::keep_old(Ending ending, bool several) {
  if (direct()) return 0;
  const int folder = folder_.get();
  name_ = ending == Ending::kPartial ? place_.name + std::string(kPartialSuffix) : place_.name;
  if (in_place() && ending == Ending::kWhole) {
    // It is lost where a write fails, so that it is kept also where it is the only one.
    int code = make_beside(folder, place_, 0600, old_);
    if (takes_no_file(code)) code = make_in_memory(old_);
    if (code != 0) return code;
    old_is_ = Old::kCopied;
    return overwrite(old_.descriptor.get(), target_.get());
  }
  if (new_.name.empty()) return no_partial_;
  if (in_place()) (void)new_.descriptor.close();
  struct stat status {};
  if (::fstatat(folder, name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
  // Only files and links are replaced.
  if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) return S_ISDIR(status.st_mode) ? EISDIR : EEXIST;
  if (!several) return 0;
  const std::string word = random_word();
  if (word.empty()) return errno;
  old_.name = fmt::format("{}.tmp.{}", place_.name.substr(0, kNameBytes), word);
  old_.unfinished = Unfinished(fmt::format("{}/{}", place_.folder, old_.name));
  if (::linkat(folder, name_.c_str(), folder, old_.name.c_str(), 0) == 0) {
    old_is_ = Old::kLinked;
    return 0;
  }
  // File systems without links, and files of others (protected_hardlinks of proc_sys_fs(5)).
  if (errno != EPERM && errno != EOPNOTSUPP && errno != EMLINK && errno != ENOSYS) return errno;
  old_is_ = Old::kToMove;
  return 0;
}

int AtomicFile::appear() {
  if (direct()) return 0;
  const int folder = folder_.get();
  // From here on these may be all that is left of the old file: a program that ends before its time leaves them.
  if (old_is_ != Old::kLinked) old_.unfinished = {};
  if (old_is_ == Old::kCopied) {
    appeared_ = true;
    return overwrite(target_.get(), new_.descriptor.get());
  }
  if (old_is_ == Old::kToMove) {
    if (::renameat(folder, name_.c_str(), folder, old_.name.c_str()) != 0) return errno;
    old_is_ = Old::kMoved;
    appeared_ = true;
  }
  if (::renameat(folder, new_.name.c_str(), folder, name_.c_str()) != 0) return errno;
  appeared_ = true;
  new_.name.clear();
  return 0;
}

int AtomicFile::put_back() {
  if (!appeared_) return 0;
  if (old_is_ == Old::kCopied) return overwrite(target_.get(), old_.descriptor.get());
  const int folder = folder_.get();
  const int code = old_is_ == Old::kNone ? ::unlinkat(folder, name_.c_str(), 0)
                                         : ::renameat(folder, old_.name.c_str(), folder, name_.c_str());
  return code != 0 ? errno : 0;
}

void AtomicFile::discard() {
  remove(folder_.get(), new_);
  // What could not be put back stays where it is.
  if (lost_ != 0) old_ = {};
  remove(folder_.get(), old_);
  old_is_ = Old::kNone;
  appeared_ = false;
  lost_ = 0;
  (void)target_.close();
  (void)folder_.close();
  buffer_.reset();
  room_ = 0;
  settled_ = false;
}

}  // namespace sluice
