#include "memory/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace sluice {

Result<Buffer> Buffer::allocate(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  constexpr size_t kPage = 4096;
  Buffer buffer;
  if (bytes == 0) return buffer;
  const size_t align = bytes > kHuge / 2 ? kHuge : kPage;
  if (bytes > SIZE_MAX - 2 * kHuge) return Error(fmt::format("cannot allocate {} bytes", bytes));
  const size_t rounded = (bytes + align - 1) / align * align;
  const size_t mapped = align == kHuge ? rounded + kHuge : rounded;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return system_error(fmt::format("cannot allocate {} bytes", bytes), errno);
  }
  const auto start = (reinterpret_cast<uintptr_t>(mapping) + align - 1) / align * align;
  if (align == kHuge)
    madvise(reinterpret_cast<void*>(start), rounded, MADV_HUGEPAGE);  // advice: a refusal costs speed only
  buffer.data_ = reinterpret_cast<std::byte*>(start);
  buffer.size_ = bytes;
  buffer.mapping_ = mapping;
  buffer.mapping_bytes_ = mapped;
  return buffer;
}

void Buffer::reset() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  data_ = nullptr;
  mapping_ = nullptr;
  size_ = mapping_bytes_ = 0;
}

}  // namespace sluice
