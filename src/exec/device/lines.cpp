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

// Volatile for one store a line. Nothing else is ordered by it: a line's words carry their own tags, and their records
// name no memory beside themselves (docs/design/ring.md, "Records in device memory").
__attribute__((target("avx512f"))) void copy_avx512(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i) {
    *reinterpret_cast<volatile __m512i*>(to + i * 64) = _mm512_load_si512(from + i * 64);
  }
}

#if !defined(__clang__)
// GCC 12 takes the registers that its own headers leave undefined on purpose for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
// Four vectors of 16 parts become four of four records: a transposition within 16 bytes, then one of 16-byte pieces.
__attribute__((target("avx512f"))) void put_avx512(Word* to, const uint32_t* w0, const uint32_t* w1, const uint32_t* w2,
                                                   const uint32_t* w3, uint32_t bits, uint32_t n) {
  const __m512i tag = _mm512_set1_epi32(static_cast<int>(bits));
  for (uint32_t i = 0; i < n; ++i, w0 += 16, w1 += 16, w2 += 16, w3 += 16, to += 16) {
    const __m512i a = _mm512_loadu_si512(w0), b = _mm512_loadu_si512(w1), c = _mm512_loadu_si512(w2);
    const __m512i d = _mm512_or_si512(_mm512_loadu_si512(w3), tag);
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    // Records 0, 4, 8, 12; 1, 5, ...
    const __m512i r0 = _mm512_unpacklo_epi64(ab_low, cd_low), r1 = _mm512_unpackhi_epi64(ab_low, cd_low);
    const __m512i r2 = _mm512_unpacklo_epi64(ab_high, cd_high), r3 = _mm512_unpackhi_epi64(ab_high, cd_high);
    const __m512i low01 = _mm512_shuffle_i32x4(r0, r1, 0x44), low23 = _mm512_shuffle_i32x4(r2, r3, 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(r0, r1, 0xee), high23 = _mm512_shuffle_i32x4(r2, r3, 0xee);
    _mm512_storeu_si512(to, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(to + 4, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_storeu_si512(to + 8, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(to + 12, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

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

bool lines_combine() {
  return whole_line_copy() == &copy_avx512;
}
void flush_lines() {
  _mm_sfence();
}

PutColumns column_put() {
  static const PutColumns chosen = __builtin_cpu_supports("avx512f") ? &put_avx512 : nullptr;
  return chosen;
}
#else
CopyLines whole_line_copy() {
  return nullptr;
}
bool lines_combine() {
  return false;
}
void flush_lines() {}
PutColumns column_put() {
  return nullptr;
}
#endif

void copy_lines_as_words(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines * 4; ++i) {
    HostWords::store(reinterpret_cast<Word*>(to) + i, reinterpret_cast<const Word*>(from)[i]);
  }
}

}  // namespace sluice
