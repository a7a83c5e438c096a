// host only
#include "base/unfinished.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace sluice {
namespace {

// Never destroyed, and of constant size: the end of a program may find it in any state.
std::array<std::atomic<char*>, 4096> places;

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
    ::unlink(name);
    name[0] = '\0';
    char* none = nullptr;
    (void)place.compare_exchange_strong(none, name);
  }
}

}  // namespace sluice
