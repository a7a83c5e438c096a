// Word: the unit of everything that crosses to a device: 16 bytes that are written and read in one piece, with a tag.
//
//   bytes 0..14   payload
//   byte 15       bits 1..7: the tag; bit 0: one more payload bit
//
// The tag says which use of its place the word belongs to (docs/design/device.md has the argument why a reader that
// finds the tag it expects has the whole word, and why a tag never aliases).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/hd.h"

namespace sluice {

struct alignas(16) Word {
  uint32_t w[4];
};
static_assert(std::is_trivially_copyable_v<Word> && sizeof(Word) == 16);

inline constexpr uint32_t kWordPayload = 15;

// The tag of lap `lap` for generation parity `parity`: 6 bits of lap, 1 of parity. Laps count from 1, so memory that
// was never written (tag 0) is not the first lap's.
SLUICE_HD constexpr uint32_t make_tag(uint64_t lap, uint32_t parity) {
  return (static_cast<uint32_t>(lap) & 63u) << 1 | (parity & 1u);
}
SLUICE_HD constexpr uint32_t tag_lap(uint32_t tag) {
  return tag >> 1;
}
SLUICE_HD constexpr uint32_t tag_parity(uint32_t tag) {
  return tag & 1u;
}

SLUICE_HD uint32_t word_tag(const Word& word) {
  return word.w[3] >> 25;
}
SLUICE_HD void set_word_tag(Word& word, uint32_t tag) {
  word.w[3] = (word.w[3] & 0x01ffffffu) | tag << 25;
}

// How a side of the bus reads and writes words that the other side writes and reads at the same time.
//
// Host: one aligned 16-byte vector move, which x86-64 processors with AVX do in one piece (Intel SDM volume 3, section
// 9.1.1; AMD APM volume 2, section 7.3.2). Such a move is volatile: it happens once, whole, in the order of other
// volatile accesses. Plain accesses are not ordered by that, and a word may stand for plain memory: the work of servers
// for its frames. So a store is a release and a load an acquire, as they are where halves are atomics: x86-64 keeps
// loads in order and stores in order, and a signal fence, which is no instruction, holds the compiler to it. The thread
// sanitizer does not see vector moves as atomic, and a processor without AVX need not do them in one piece: there the
// two halves are atomics, and the half with the tag is written last (release) and read first (acquire).
struct HostWords {
#if defined(__SSE2__) && !defined(SLUICE_SANITIZED_THREADS) && !defined(SLUICE_PORTABLE_WORDS)
  // Put together in registers: a vector load behind four narrower stores to the stack would wait for all of them.
  static void store(Word* to, const Word& word) {
    before_store();
    *reinterpret_cast<volatile __m128i*>(to) = _mm_set_epi32(static_cast<int>(word.w[3]), static_cast<int>(word.w[2]),
                                                             static_cast<int>(word.w[1]), static_cast<int>(word.w[0]));
  }
  static Word load(const Word* from) {
    const __m128i value = *reinterpret_cast<const volatile __m128i*>(from);
    after_load();
    Word word;
    memcpy(&word, &value, 16);
    return word;
  }
  // Stores four words that are given as columns, `bits` added to the last of each.
  static void store_four(Word* to, const uint32_t* w0, const uint32_t* w1, const uint32_t* w2, const uint32_t* w3,
                         uint32_t bits) {
    const auto load = [](const uint32_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); };
    const __m128i a = load(w0), b = load(w1), c = load(w2);
    const __m128i d = _mm_or_si128(load(w3), _mm_set1_epi32(static_cast<int>(bits)));
    const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
    const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
    before_store();
    auto* at = reinterpret_cast<volatile __m128i*>(to);
    at[0] = _mm_unpacklo_epi64(ab_low, cd_low);
    at[1] = _mm_unpackhi_epi64(ab_low, cd_low);
    at[2] = _mm_unpacklo_epi64(ab_high, cd_high);
    at[3] = _mm_unpackhi_epi64(ab_high, cd_high);
  }
  // Stores *from with `tag` in place of its own, which is 0.
  static void store_tagged(Word* to, const Word* from, uint32_t tag) {
    const __m128i bits = _mm_set_epi32(static_cast<int>(tag << 25), 0, 0, 0);
    before_store();
    *reinterpret_cast<volatile __m128i*>(to) =
        _mm_or_si128(_mm_load_si128(reinterpret_cast<const __m128i*>(from)), bits);
  }
  // Stores `bytes` of payload, at most kWordPayload, and zeros behind them. Reads 16 bytes from `from` on.
  static void store_payload(Word* to, const uint8_t* from, uint32_t bytes, uint32_t tag) {
    const __m128i bits = _mm_set_epi32(static_cast<int>(tag << 25), 0, 0, 0);
    const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i here = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kPayloadBytes + kWordPayload - bytes));
    before_store();
    *reinterpret_cast<volatile __m128i*>(to) = _mm_or_si128(_mm_and_si128(value, here), bits);
  }
#else
  static void store(Word* to, const Word& word) {
    uint64_t halves[2];
    memcpy(halves, &word, 16);
    auto* at = reinterpret_cast<uint64_t*>(to);
    __atomic_store_n(at, halves[0], __ATOMIC_RELAXED);
    __atomic_store_n(at + 1, halves[1], __ATOMIC_RELEASE);
  }
  static Word load(const Word* from) {
    uint64_t halves[2];
    const auto* at = reinterpret_cast<const uint64_t*>(from);
    halves[1] = __atomic_load_n(at + 1, __ATOMIC_ACQUIRE);
    halves[0] = __atomic_load_n(at, __ATOMIC_RELAXED);
    Word word;
    memcpy(&word, halves, 16);
    return word;
  }
  static void store_four(Word* to, const uint32_t* w0, const uint32_t* w1, const uint32_t* w2, const uint32_t* w3,
                         uint32_t bits) {
    for (uint32_t i = 0; i < 4; ++i) store(to + i, Word{{w0[i], w1[i], w2[i], w3[i] | bits}});
  }
  static void store_tagged(Word* to, const Word* from, uint32_t tag) {
    Word word = *from;
    word.w[3] |= tag << 25;
    store(to, word);
  }
  static void store_payload(Word* to, const uint8_t* from, uint32_t bytes, uint32_t tag) {
    Word word{};
    memcpy(&word, from, bytes);
    set_word_tag(word, tag);
    store(to, word);
  }
#endif
  // For the compiler alone: what comes before a store of words stays before it, what comes behind a load behind it.
  static void before_store() {
    __atomic_signal_fence(__ATOMIC_RELEASE);
  }
  static void after_load() {
    __atomic_signal_fence(__ATOMIC_ACQUIRE);
  }
  // From byte kWordPayload - n on: a word's bytes of which the first n are payload.
  static constexpr uint8_t kPayloadBytes[2 * kWordPayload + 1] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                                                  0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  // An 8-byte word: a narrow result.
  static void store64(uint64_t* to, uint64_t value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
  }
  static uint64_t load64(const uint64_t* from) {
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
  }
  // A 4-byte word: an order or a sign of life.
  static void store32(uint32_t* to, uint32_t value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
  }
  static uint32_t load32(const uint32_t* from) {
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
  }
};

// Device: relaxed 16-byte accesses at system scope (PTX ISA 8.3: ld/st of .b128 are single-copy atomic on sm_70 and
// later).
struct DeviceWords {
#if defined(__CUDACC__)
  static __device__ __forceinline__ void store(Word* to, const Word& word) {
    asm volatile(
        "{ .reg .b128 v; .reg .b64 lo, hi; mov.b64 lo, {%1, %2}; mov.b64 hi, {%3, %4}; mov.b128 v, {lo, hi};"
        " st.relaxed.sys.global.b128 [%0], v; }" ::"l"(to),
        "r"(word.w[0]), "r"(word.w[1]), "r"(word.w[2]), "r"(word.w[3])
        : "memory");
  }
  static __device__ __forceinline__ Word load(const Word* from) {
    Word word;
    asm volatile(
        "{ .reg .b128 v; .reg .b64 lo, hi; ld.relaxed.sys.global.b128 v, [%4]; mov.b128 {lo, hi}, v;"
        " mov.b64 {%0, %1}, lo; mov.b64 {%2, %3}, hi; }"
        : "=r"(word.w[0]), "=r"(word.w[1]), "=r"(word.w[2]), "=r"(word.w[3])
        : "l"(from)
        : "memory");
    return word;
  }
  static __device__ __forceinline__ void store64(uint64_t* to, uint64_t value) {
    asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }
#endif
};

}  // namespace sluice
