#include "tests/testing/failing_allocations.h"

#include <cstdlib>
#include <new>

namespace sluice::testing {
namespace {

enum class State : uint8_t { kOff, kCounting, kFailed };
thread_local State state = State::kOff;
thread_local uint64_t left = 0;

}  // namespace

FailAllocation::FailAllocation(uint64_t n) {
  left = n;
  state = State::kCounting;
}
FailAllocation::~FailAllocation() {
  state = State::kOff;
}
bool FailAllocation::failed() {
  return state == State::kFailed;
}

namespace {

void* allocate(size_t bytes) {
  if (state == State::kCounting && left-- == 0) {
    state = State::kFailed;
    throw std::bad_alloc();
  }
  void* const p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace
}  // namespace sluice::testing

void* operator new(size_t bytes) {
  return sluice::testing::allocate(bytes);
}
void* operator new[](size_t bytes) {
  return sluice::testing::allocate(bytes);
}
// The library takes these too (std::stable_sort), and gives back by the ones below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return sluice::testing::allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes, std::nothrow);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
