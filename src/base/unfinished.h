// The names that have to go where the program ends before its time.
// host only
#pragma once

#include <atomic>
#include <string>

namespace sluice {

// A file or socket that is not to be left behind, or with a '/' at its end a folder and all in it: listed from here
// until it is destroyed. The list has a place for everything that the program may have open at once; what finds no
// place is removed by its owner alone.
class Unfinished {
 public:
  Unfinished() = default;
  explicit Unfinished(const std::string& path);
  Unfinished(Unfinished&& other) noexcept { swap(other); }
  Unfinished& operator=(Unfinished&& other) noexcept {
    Unfinished(std::move(other)).swap(*this);
    return *this;
  }
  ~Unfinished();

 private:
  void swap(Unfinished& other) noexcept { std::swap(place_, other.place_); }
  std::atomic<char*>* place_ = nullptr;
};

// Removes what is listed. For a program that cannot unwind: a signal handler may call it. Afterwards the
// list is empty.
void remove_unfinished();

}  // namespace sluice
