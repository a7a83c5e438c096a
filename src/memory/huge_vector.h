// host only
// A std::vector whose memory the kernel is asked to give in huge pages where it is large: for arrays that are read at
// random, where each access would else miss the translation of its page too.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace sluice {

template <typename T>
struct HugeAllocator {
  using value_type = T;
  static constexpr size_t kPage = size_t{2} << 20;  // bytes

  HugeAllocator() = default;
  template <typename U>
  explicit(false) HugeAllocator(const HugeAllocator<U>&) {}

  // Throws std::bad_alloc.
  T* allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    void* const p = ::operator new(bytes, align(bytes));
    // Advice: a refusal costs speed only. What lies behind the last whole page may be another's.
    if (bytes >= kPage) madvise(p, bytes / kPage * kPage, MADV_HUGEPAGE);
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t n) { ::operator delete(p, align(n * sizeof(T))); }
  template <typename U>
  friend bool operator==(const HugeAllocator&, const HugeAllocator<U>&) {
    return true;
  }

 private:
  static std::align_val_t align(size_t bytes) { return std::align_val_t{bytes >= kPage ? kPage : size_t{64}}; }
};

template <typename T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace sluice
