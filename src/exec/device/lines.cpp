#include "exec/device/lines.h"

#include <cstdint>

#include "exec/device/word.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace sluice {

#if defined(__x86_64__)
namespace {

__attribute__((target("movdir64b"))) void copy_movdir64b(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i) _movdir64b(to + i * 64, from + i * 64);
}

__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i) {
    *reinterpret_cast<volatile __m512i*>(to + i * 64) = _mm512_load_si512(from + i * 64);
  }
}

bool has_movdir64b() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 28 & 1) != 0;
}

}  // namespace

CopyLines whole_line_copy() {
  static const CopyLines chosen = has_movdir64b()                     ? &copy_movdir64b
                                  : __builtin_cpu_supports("avx512f") ? &copy_avx512
                                                                      : nullptr;
  return chosen;
}

void flush_lines() {
  _mm_sfence();
}
#else
CopyLines whole_line_copy() {
  return nullptr;
}
void flush_lines() {}
#endif

void copy_lines_as_words(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines * 4; ++i) {
    HostWords::store(reinterpret_cast<Word*>(to) + i, reinterpret_cast<const Word*>(from)[i]);
  }
}

}  // namespace sluice
