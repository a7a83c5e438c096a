#include "net/crc32_host.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace sluice {
namespace {

// The tables take 32-bit lengths.
uint32_t by_table(Crc32Mode mode, uint32_t crc, const uint8_t* data, size_t bytes) {
  constexpr size_t kPiece = size_t{1} << 30;
  for (; bytes > kPiece; data += kPiece, bytes -= kPiece) crc = crc32_update(mode, crc, data, kPiece);
  return crc32_update(mode, crc, data, static_cast<uint32_t>(bytes));
}

#if defined(__x86_64__)
#pragma GCC diagnostic push
// GCC 12 takes the registers that its own headers leave undefined on purpose for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// What the two halves of a 16-byte block are multiplied by, as 64-bit halves of a register. Forward: bit i is x^i, the
// high half has the higher powers. Reflected: bit i of 128 is x^(127 - i), the low half has the higher powers, and a
// product of two halves comes out one power too high, since it has 127 bits.
struct alignas(16) Multiplier {
  uint64_t low, high;
};

// block * x^shift.
constexpr Multiplier multiplier(bool reflected, int64_t shift) {
  if (reflected) {
    return {uint64_t{crc32_power(true, shift + 63)} << 32, uint64_t{crc32_power(true, shift - 1)} << 32};
  }
  return {crc32_power(false, shift), crc32_power(false, shift + 64)};
}

// Blocks of 16 bytes that are multiplied apart; longer inputs are folded until so many are left.
constexpr size_t kApart = 96;

struct Constants {
  // [kApart - 1 - d]: a block with d blocks behind it, times x^32, as a register is the message times that. The order
  // is the blocks' own, so that a wide load takes the multipliers of a wide block.
  alignas(64) Multiplier apart[kApart];
  Multiplier fold4, fold16;  // past 64 and past 256 bytes
  Multiplier fill[64];       // divides by x^(8 i)
  uint64_t high;             // 96 bits to 64
  uint64_t barrett, poly;    // floor(x^64 / P), P; reflected: 33 bits each
};

constexpr Constants make_constants(bool reflected) {
  Constants c{};
  // One multiplication from each to the next: compilers limit the steps of a constant expression.
  const auto next = [reflected](Multiplier m, uint32_t step) {
    const auto times = [&](uint64_t half) {
      return reflected ? uint64_t{crc32_detail::multiply(true, static_cast<uint32_t>(half >> 32), step)} << 32
                       : uint64_t{crc32_detail::multiply(false, static_cast<uint32_t>(half), step)};
    };
    return Multiplier{times(m.low), times(m.high)};
  };
  const uint32_t block = crc32_power(reflected, 128), unbyte = crc32_power(reflected, -8);
  c.apart[kApart - 1] = multiplier(reflected, 32);
  for (size_t d = 1; d < kApart; ++d) c.apart[kApart - 1 - d] = next(c.apart[kApart - d], block);
  c.fold4 = multiplier(reflected, 512);
  c.fold16 = multiplier(reflected, 2048);
  c.fill[0] = multiplier(reflected, 0);
  for (size_t i = 1; i < 64; ++i) c.fill[i] = next(c.fill[i - 1], unbyte);
  c.high = reflected ? uint64_t{crc32_power(true, 63)} << 32 : uint64_t{crc32_power(false, 64)};
  // Long division of x^64 by P, 33 bits of quotient.
  const uint64_t poly = uint64_t{1} << 32 | kCrc32Poly;
  uint64_t quotient = uint64_t{1} << 32;
  uint64_t rest = uint64_t{kCrc32Poly} << 32;
  for (int bit = 31; bit >= 0; --bit) {
    if ((rest >> (bit + 32) & 1) == 0) continue;
    quotient |= uint64_t{1} << bit;
    rest ^= poly << bit;
  }
  const auto as_is = [&](uint64_t value) {
    uint64_t turned = 0;
    for (int bit = 0; bit < 33; ++bit) turned |= (value >> bit & 1) << (32 - bit);
    return reflected ? turned : value;
  };
  c.barrett = as_is(quotient);
  c.poly = as_is(poly);
  return c;
}

constexpr Constants kForward = make_constants(false);
constexpr Constants kReflected = make_constants(true);
template <bool kR>
constexpr const Constants& kConstants = kR ? kReflected : kForward;

#define SLUICE_CLMUL __attribute__((target("pclmul,sse4.1"), always_inline)) inline
#define SLUICE_VCLMUL \
  __attribute__((target("pclmul,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512dq,bmi,bmi2"), always_inline)) inline

SLUICE_CLMUL __m128i load16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
SLUICE_CLMUL __m128i low64(uint64_t value) {
  return _mm_cvtsi64_si128(static_cast<long long>(value));
}
SLUICE_CLMUL __m128i times(__m128i block, __m128i by) {
  return _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_clmulepi64_si128(block, by, 0x11));
}

// What the first four bytes are changed by so that the register starts as `crc`.
template <bool kR>
uint32_t start_word(uint32_t crc) {
  return kR ? crc : __builtin_bswap32(crc);
}

// Forward: the first byte of a block has the highest powers.
template <bool kR>
SLUICE_CLMUL __m128i in_order(__m128i block) {
  if constexpr (kR) return block;
  return _mm_shuffle_epi8(block, _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
}

// The register of a sum that had `fill` zero bytes behind it.
template <bool kR>
SLUICE_CLMUL uint32_t reduce(__m128i sum, size_t fill) {
  const Constants& c = kConstants<kR>;
  sum = times(sum, _mm_load_si128(reinterpret_cast<const __m128i*>(&c.fill[fill])));  // 96 bits
  const __m128i high = low64(c.high);
  const __m128i by = _mm_set_epi64x(static_cast<long long>(c.poly), static_cast<long long>(c.barrett));
  if constexpr (kR) {
    const __m128i rest = _mm_srli_si128(_mm_xor_si128(sum, _mm_clmulepi64_si128(sum, high, 0x00)), 8);  // 64
    const __m128i mask = low64(0xffffffffu);
    const __m128i quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(rest, mask), by, 0x00), mask);
    const __m128i back = _mm_clmulepi64_si128(quotient, by, 0x10);
    return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(rest, back), 1));
  } else {
    const __m128i rest = _mm_xor_si128(sum, _mm_clmulepi64_si128(sum, high, 0x01));  // its low half
    const __m128i top = _mm_srli_epi64(rest, 32);
    const __m128i quotient = _mm_srli_epi64(_mm_clmulepi64_si128(top, by, 0x00), 32);
    const __m128i back = _mm_clmulepi64_si128(quotient, by, 0x10);
    return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_xor_si128(rest, back)));
  }
}

// The `bytes` bytes at the end of those at `data`, 1 to 15 of `all` >= 4, then zeros.
SLUICE_CLMUL __m128i last_bytes(const uint8_t* data, size_t all, size_t bytes) {
  alignas(16) static constexpr uint8_t kMove[32] = {0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,
                                                    11,  12,  13,  14,  15,  128, 128, 128, 128, 128, 128,
                                                    128, 128, 128, 128, 128, 128, 128, 128, 128, 128};
  if (all >= 16) return _mm_shuffle_epi8(load16(data + all - 16), load16(kMove + 16 - bytes));
  // Shorter than a block: it is the whole input.
  uint64_t first = 0, second = 0;
  if (bytes >= 8) {
    std::memcpy(&first, data, 8);
    std::memcpy(&second, data + bytes - 8, 8);
    second = bytes == 8 ? 0 : second >> (8 * (16 - bytes));
  } else {
    uint32_t a, b;
    std::memcpy(&a, data, 4);
    std::memcpy(&b, data + bytes - 4, 4);
    first = a | (bytes == 4 ? 0 : uint64_t{b} >> (8 * (8 - bytes)) << 32);
  }
  return _mm_set_epi64x(static_cast<long long>(second), static_cast<long long>(first));
}

template <bool kR>
__attribute__((target("pclmul,sse4.1"))) uint32_t fold_narrow(uint32_t crc, const uint8_t* data, size_t bytes) {
  const Constants& c = kConstants<kR>;
  const size_t full = bytes / 16, rest = bytes % 16;
  const size_t blocks = full + (rest != 0 ? 1 : 0);
  const Multiplier* by = c.apart + kApart - blocks;  // of block 0, where there are so many
  __m128i start = _mm_cvtsi32_si128(static_cast<int>(start_word<kR>(crc)));
  __m128i sum = _mm_setzero_si128();
  const auto multiplied = [](__m128i block, const Multiplier* at) __attribute__((target("pclmul,sse4.1"))) {
    return times(block, _mm_load_si128(reinterpret_cast<const __m128i*>(at)));
  };
  size_t i = 0;
  if (blocks > kApart) {
    const auto block = [&](size_t k) __attribute__((target("pclmul,sse4.1"))) {
      return in_order<kR>(load16(data + 16 * k));
    };
    __m128i a = in_order<kR>(_mm_xor_si128(load16(data), start)), b = block(1), d = block(2), e = block(3);
    const __m128i past = _mm_load_si128(reinterpret_cast<const __m128i*>(&c.fold4));
    for (i = 4; i + 4 <= full; i += 4) {
      a = _mm_xor_si128(times(a, past), block(i));
      b = _mm_xor_si128(times(b, past), block(i + 1));
      d = _mm_xor_si128(times(d, past), block(i + 2));
      e = _mm_xor_si128(times(e, past), block(i + 3));
    }
    by = c.apart + kApart - (blocks - i) - 4;
    sum = _mm_xor_si128(_mm_xor_si128(multiplied(a, by), multiplied(b, by + 1)),
                        _mm_xor_si128(multiplied(d, by + 2), multiplied(e, by + 3)));
    by += 4;
    start = _mm_setzero_si128();
  }
  for (; i < full; ++i) {
    sum = _mm_xor_si128(sum, multiplied(in_order<kR>(_mm_xor_si128(load16(data + 16 * i), start)), by++));
    start = _mm_setzero_si128();
  }
  if (rest != 0) {
    sum = _mm_xor_si128(sum, multiplied(in_order<kR>(_mm_xor_si128(last_bytes(data, bytes, rest), start)), by));
  }
  return reduce<kR>(sum, rest != 0 ? 16 - rest : 0);
}

template <bool kR>
SLUICE_VCLMUL __m512i in_order4(__m512i block) {
  if constexpr (kR) return block;
  return _mm512_shuffle_epi8(
      block, _mm512_broadcast_i32x4(_mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)));
}
// sum + blocks * by
SLUICE_VCLMUL __m512i add_times(__m512i sum, __m512i blocks, __m512i by) {
  return _mm512_ternarylogic_epi64(sum, _mm512_clmulepi64_epi128(blocks, by, 0x00),
                                   _mm512_clmulepi64_epi128(blocks, by, 0x11), 0x96);
}

template <bool kR>
__attribute__((target("pclmul,vpclmulqdq,avx512f,avx512bw,avx512vl,avx512dq,bmi,bmi2"))) uint32_t fold_wide(
    uint32_t crc, const uint8_t* data, size_t bytes) {
  const Constants& c = kConstants<kR>;
  const size_t blocks = (bytes + 63) / 64;
  const size_t fill = 64 * blocks - bytes;
  const Multiplier* by = c.apart + kApart - 4 * blocks;
  __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(start_word<kR>(crc))));
  __m512i sum = _mm512_setzero_si512();
  size_t i = 0;
  if (4 * blocks > kApart) {
    __m512i a = in_order4<kR>(_mm512_xor_si512(_mm512_loadu_si512(data), start));
    __m512i b = in_order4<kR>(_mm512_loadu_si512(data + 64));
    __m512i d = in_order4<kR>(_mm512_loadu_si512(data + 128));
    __m512i e = in_order4<kR>(_mm512_loadu_si512(data + 192));
    const __m512i past = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(&c.fold16)));
    for (i = 4; 64 * (i + 4) <= bytes; i += 4) {
      a = add_times(in_order4<kR>(_mm512_loadu_si512(data + 64 * i)), a, past);
      b = add_times(in_order4<kR>(_mm512_loadu_si512(data + 64 * i + 64)), b, past);
      d = add_times(in_order4<kR>(_mm512_loadu_si512(data + 64 * i + 128)), d, past);
      e = add_times(in_order4<kR>(_mm512_loadu_si512(data + 64 * i + 192)), e, past);
    }
    by = c.apart + kApart - 4 * (blocks - i) - 16;
    sum = add_times(sum, a, _mm512_load_si512(by));
    sum = add_times(sum, b, _mm512_load_si512(by + 4));
    sum = add_times(sum, d, _mm512_load_si512(by + 8));
    sum = add_times(sum, e, _mm512_load_si512(by + 12));
    by += 16;
    if (i == blocks) goto all;
    start = _mm512_setzero_si512();
  }
  for (; i + 1 < blocks; ++i, by += 4) {
    sum = add_times(sum, in_order4<kR>(_mm512_xor_si512(_mm512_loadu_si512(data + 64 * i), start)),
                    _mm512_load_si512(by));
    start = _mm512_setzero_si512();
  }
  sum = add_times(sum,
                  in_order4<kR>(_mm512_xor_si512(_mm512_maskz_loadu_epi8(~uint64_t{0} >> fill, data + 64 * i), start)),
                  _mm512_load_si512(by));
all:
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
  return reduce<kR>(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)), fill);
}

// Shorter than a start value: three table look-ups.
uint32_t by_pclmul(Crc32Mode mode, uint32_t crc, const uint8_t* data, size_t bytes) {
  if (bytes < 4) return by_table(mode, crc, data, bytes);
  return mode == Crc32Mode::kFcs ? fold_narrow<true>(crc, data, bytes) : fold_narrow<false>(crc, data, bytes);
}
uint32_t by_vpclmul(Crc32Mode mode, uint32_t crc, const uint8_t* data, size_t bytes) {
  if (bytes < 4) return by_table(mode, crc, data, bytes);
  return mode == Crc32Mode::kFcs ? fold_wide<true>(crc, data, bytes) : fold_wide<false>(crc, data, bytes);
}

#pragma GCC diagnostic pop
#endif

#if defined(__aarch64__)

// Arm's instructions for this polynomial take the register and the bytes with the least significant bit first: for the
// other form all bits are turned round. What they do: Arm Architecture Reference Manual for A-profile, CRC32X.
template <bool kR>
[[gnu::target("+crc")]] uint32_t by_words(uint32_t crc, const uint8_t* data, size_t bytes) {
  if (!kR) crc = __rbit(crc);
  for (; bytes >= 8; data += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    crc = __crc32d(crc, kR ? word : __rbitll(__revll(word)));
  }
  for (; bytes > 0; ++data, --bytes) crc = __crc32b(crc, kR ? *data : static_cast<uint8_t>(__rbit(*data) >> 24));
  return kR ? crc : __rbit(crc);
}
uint32_t by_crc32(Crc32Mode mode, uint32_t crc, const uint8_t* data, size_t bytes) {
  return mode == Crc32Mode::kFcs ? by_words<true>(crc, data, bytes) : by_words<false>(crc, data, bytes);
}

#endif

constexpr Crc32KernelName kKernels[] = {
    {"table", &by_table},
#if defined(__x86_64__)
    {"pclmul", &by_pclmul},
    {"vpclmul", &by_vpclmul},
#elif defined(__aarch64__)
    {"crc32", &by_crc32},
#endif
};

size_t runnable() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) return 1;
  const bool wide = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("bmi2");
  return wide ? 3 : 2;
#elif defined(__aarch64__)
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? 2 : 1;
#else
  return 1;
#endif
}

}  // namespace

std::span<const Crc32KernelName> crc32_kernels() {
  static const size_t count = runnable();
  return {kKernels, count};
}

uint32_t crc32_host(Crc32Mode mode, uint32_t crc, const uint8_t* data, size_t bytes) {
  static const Crc32Kernel best = crc32_kernels().back().kernel;
  return best(mode, crc, data, bytes);
}

}  // namespace sluice
