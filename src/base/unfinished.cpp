// host only
#include "base/unfinished.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace sluice {
namespace {

// Never destroyed, and of constant size: the end of a program may find it in any state.
std::array<std::atomic<char*>, 4096> places;

// By calls that a signal handler may make.
void remove_folder(int in, const char* name, unsigned depth) {
  struct Entry {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[1];
  };
  const int folder = ::openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  alignas(Entry) char entries[4096];
  for (bool again = folder >= 0 && depth < 16; again;) {
    again = false;
    (void)::lseek(folder, 0, SEEK_SET);
    for (long size; (size = ::syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
      for (long at = 0; at < size;) {
        const char* const entry = entries + at;
        uint16_t length = 0;
        std::memcpy(&length, entry + offsetof(Entry, length), sizeof length);
        const char* const inner = entry + offsetof(Entry, name);
        at += length;
        if (std::strcmp(inner, ".") == 0 || std::strcmp(inner, "..") == 0) continue;
        if (::unlinkat(folder, inner, 0) == 0) {
          again = true;
        } else {
          remove_folder(folder, inner, depth + 1);
        }
      }
    }
  }
  if (folder >= 0) ::close(folder);
  (void)::unlinkat(in, name, AT_REMOVEDIR);
}

}  // namespace

Unfinished::Unfinished(const std::string& path) {
  // Before the file: where there is no memory for its name, there is no file.
  char* name = ::strdup(path.c_str());
  if (name == nullptr) throw std::bad_alloc();
  for (auto& place : places) {
    char* none = nullptr;
    if (!place.compare_exchange_strong(none, name)) continue;
    place_ = &place;
    return;
  }
  std::free(name);
}

Unfinished::~Unfinished() {
  if (place_ != nullptr) std::free(place_->exchange(nullptr));
}

void remove_unfinished() {
  for (auto& place : places) {
    // Not freed here: the program ends, maybe within the allocator. The owner, if it lives on, frees an empty name.
    char* const name = place.exchange(nullptr);
    if (name == nullptr) continue;
    const size_t length = std::strlen(name);
    if (length != 0 && name[length - 1] == '/') {
      remove_folder(AT_FDCWD, name, 0);
    } else {
      ::unlink(name);
    }
    name[0] = '\0';
    char* none = nullptr;
    (void)place.compare_exchange_strong(none, name);
  }
}

}  // namespace sluice
