// host only
#include "control/process_use.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include <dirent.h>

namespace sluice {
namespace {

double seconds_of(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// From its beginning, however often it was read.
template <size_t N>
std::string_view read_whole(int fd, std::array<char, N>& room) {
  const ssize_t n = fd < 0 ? -1 : ::pread(fd, room.data(), room.size(), 0);
  return {room.data(), n < 0 ? 0 : static_cast<size_t>(n)};
}

// The number at a place of a line of words; 0: there is none.
uint64_t word_at(std::string_view line, size_t place) {
  for (; place != 0; --place) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return 0;
    line.remove_prefix(space + 1);
  }
  uint64_t number = 0;
  std::from_chars(line.data(), line.data() + line.size(), number);
  return number;
}

}  // namespace

ProcessUse::ProcessUse()
    : memory_(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC)),
      files_(::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) host_ = name.data();
  start_unix_seconds_ = seconds_of(CLOCK_REALTIME);
  const Descriptor stat(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> room{};
  const std::string_view line = read_whole(stat.get(), room);
  // The program's name stands in parentheses and may have any characters; the start, in ticks, is the 20th word behind.
  const size_t behind = line.rfind(") ");
  if (behind == std::string_view::npos) return;
  const uint64_t ticks = word_at(line.substr(behind + 2), 19);
  const double ago =
      seconds_of(CLOCK_BOOTTIME) - static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  if (ticks != 0 && ago > 0) start_unix_seconds_ -= ago;
}

ProcessUse::Now ProcessUse::now() const {
  Now now;
  now.cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  std::array<char, 256> room{};
  const std::string_view pages = read_whole(memory_.get(), room);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  now.virtual_bytes = word_at(pages, 0) * page;
  now.resident_bytes = word_at(pages, 1) * page;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) now.open_files_limit = limit.rlim_cur;
  const int again = files_.get() < 0 ? -1 : ::fcntl(files_.get(), F_DUPFD_CLOEXEC, 0);
  if (again < 0) return now;
  DIR* const folder = ::fdopendir(again);
  if (folder == nullptr) {
    ::close(again);
    return now;
  }
  ::rewinddir(folder);
  while (const dirent* const entry = ::readdir(folder)) now.open_files += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(folder);
  // Without the one that it was read by.
  if (now.open_files != 0) --now.open_files;
  return now;
}

}  // namespace sluice
