// host only
#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace sluice {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string hint_for(int code, const std::string& path) {
  if (code == ENOENT) return fmt::format("is there a folder '{}'?", folder_of(path));
  if (code == ENOSPC) return "free some space, or write to another disk";
  return {};
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  if (path == "-") {
    file.path_ = "standard output";
    file.descriptor_ = STDOUT_FILENO;
    return file;
  }
  file.owned_ = true;
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return Error(fmt::format("{}: cannot write: it is a folder", path));
  if (exists && !S_ISREG(status.st_mode)) {
    file.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor_ < 0) return Error(fmt::format("{}: cannot write: {}", path, std::strerror(errno)));
    return file;
  }
  std::error_code ignored;
  file.target_ = exists ? std::filesystem::canonical(path, ignored).string() : path;
  if (file.target_.empty()) file.target_ = path;
  static std::atomic<unsigned> number{0};
  file.temporary_ = fmt::format("{}.tmp.{}.{}", file.target_, ::getpid(), number.fetch_add(1));
  file.descriptor_ = ::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.descriptor_ < 0) {
    const int code = errno;
    file.temporary_.clear();
    return Error(fmt::format("{}: cannot write: {}", path, std::strerror(code)), hint_for(code, path));
  }
  if (exists) (void)::fchmod(file.descriptor_, status.st_mode & 07777);
  return file;
}

void AtomicFile::note(const char* doing) {
  const int code = errno;
  if (code == EPIPE) broken_pipe_ = true;
  if (error_.message.empty()) {
    error_ = Error(fmt::format("{}: cannot {}: {}", path_, doing, std::strerror(code)), hint_for(code, path_));
  }
}

void AtomicFile::flush() {
  const char* from = buffer_.data();
  size_t left = buffer_.size();
  while (left != 0 && ok()) {
    const ssize_t n = ::write(descriptor_, from, left);
    if (n < 0) {
      if (errno != EINTR) note("write");
      continue;
    }
    from += n;
    left -= static_cast<size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::write(std::string_view bytes) {
  if (!ok() || descriptor_ < 0) return;
  buffer_.append(bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

Result<void> AtomicFile::commit() {
  if (descriptor_ < 0) return Error(fmt::format("{}: committed twice", path_));
  flush();
  if (owned_) {
    if (::close(descriptor_) != 0) note("close");
    descriptor_ = -1;
    if (!temporary_.empty() && ok()) {
      if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
        note("rename to it");
      } else {
        temporary_.clear();
      }
    }
  }
  if (ok()) {
    descriptor_ = -1;
    return {};
  }
  const Error error = error_;
  discard();
  return error;
}

void AtomicFile::discard() {
  if (descriptor_ >= 0 && owned_) ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

}  // namespace sluice
