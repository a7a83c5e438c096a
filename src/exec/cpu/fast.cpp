// host only
#include "exec/cpu/fast.h"

#include <array>
#include <bit>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/assert.h"
#include "elements/stages.h"
#include "exec/cpu/tile.h"
#include "exec/device/record.h"
#include "net/edit.h"
#include "net/fast_parse.h"

namespace sluice {
namespace {

template <typename Stage>
concept Fast = requires(const Stage& stage, FastBurst& burst) {
  stage.fast(burst, 1u);
};

// Loops over a burst's columns are compiled twice from one source: SLUICE_WIDE is 64-byte vectors, where the processor
// has them, chosen once at start.
#if defined(__x86_64__)
#if defined(__clang__)
#define SLUICE_WIDE __attribute__((flatten, target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2")))
#else
#define SLUICE_WIDE \
  __attribute__((flatten, target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,prefer-vector-width=512")))
#endif
bool has_wide() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  return has;
}
#else
#define SLUICE_WIDE __attribute__((flatten))
bool has_wide() {
  return false;
}
#endif

template <typename Stage>
__attribute__((flatten)) uint32_t fast_kernel(const StageSlot& slot, FastBurst& burst, uint32_t mask) {
  return slot.get<Stage>().fast(burst, mask);
}
template <typename Stage>
SLUICE_WIDE uint32_t fast_kernel_wide(const StageSlot& slot, FastBurst& burst, uint32_t mask) {
  return slot.get<Stage>().fast(burst, mask);
}
template <typename Stage>
void fast_prefetch(const StageSlot& slot, FastBurst& burst) {
  slot.get<Stage>().fast_prefetch(burst);
}

const auto kKernels = AllStages::table<FastKernel>([]<typename Stage>(TypeTag<Stage>) -> FastKernel {
  if constexpr (Fast<Stage>) {
    return has_wide() ? &fast_kernel_wide<Stage> : &fast_kernel<Stage>;
  } else {
    return nullptr;
  }
});
constexpr auto kPrefetches = AllStages::table<FastPrefetch>([]<typename Stage>(TypeTag<Stage>) -> FastPrefetch {
  if constexpr (requires(const Stage& stage, FastBurst& burst) { stage.fast_prefetch(burst); }) {
    return &fast_prefetch<Stage>;
  } else {
    return nullptr;
  }
});

}  // namespace

FastKernel cpu_fast_kernel(uint16_t kind) {
  SLUICE_CHECK(kind < kKernels.size());
  return kKernels[kind];
}

FastPrefetch cpu_fast_prefetch(uint16_t kind) {
  SLUICE_CHECK(kind < kPrefetches.size());
  return kPrefetches[kind];
}

uint32_t fast_stages(const Program& program) {
  // A common packet is no martian and has no options, so that IPInput passes it whatever its settings are.
  if (program.stage_count == 0 || program.stages[0].kind != kStageKind<IpInputStage>) return 0;
  uint32_t covered = 1;
  while (covered < program.stage_count && program.stages[covered - 1].next[0] == covered &&
         cpu_fast_kernel(program.stages[covered].kind) != nullptr) {
    ++covered;
  }
  return covered;
}

namespace {

uint32_t gather_scalar(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst, uint32_t* rest) {
  uint32_t lane = burst.count;
  uint32_t left = 0;
  for (uint32_t r = 0; r < n; ++r) {
    const uint32_t row = rows[r];
    const Extent& extent = view.extent[row];
    uint8_t* frame = view.frame[row];
    const bool common = (extent.data == 0) & (extent.end == extent.wire_end);
    Key4 key;
    if (!common || !parse_fast(frame, extent.end, key, burst.ip_bytes[lane], burst.hop[lane])) {
      rest[left++] = row;
      continue;
    }
    burst.source[lane] = key.source;
    burst.destination[lane] = key.destination;
    burst.ports[lane] = key.ports;
    burst.rest[lane] = key.rest;
    burst.frame[lane] = frame;
    burst.row[lane] = row;
    burst.length[lane] = extent.end;
    burst.rule[lane] = 0;
    burst.next_hop[lane] = 0;
    ++lane;
  }
  burst.count = lane;
  return left;
}

#if defined(__x86_64__)
// GCC 12 takes the registers that its own headers leave undefined on purpose for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#define SLUICE_FAST_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

using Lanes = uint32_t __attribute__((vector_size(64)));

// Dwords 0..3 of 16 blocks of 16 bytes, a vector each.
struct Columns {
  Lanes d0, d1, d2, d3;
};
SLUICE_FAST_AVX512 inline __m512i four(const void* a, const void* b, const void* c, const void* d) {
  const auto at = [](const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); };
  __m512i v = _mm512_castsi128_si512(at(a));
  v = _mm512_inserti32x4(v, at(b), 1);
  v = _mm512_inserti32x4(v, at(c), 2);
  return _mm512_inserti32x4(v, at(d), 3);
}
// v[j]: blocks j, j + 4, j + 8, j + 12.
SLUICE_FAST_AVX512 inline Columns transpose(const __m512i (&v)[4]) {
  const __m512i ab_low = _mm512_unpacklo_epi32(v[0], v[1]);
  const __m512i ab_high = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i cd_low = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i cd_high = _mm512_unpackhi_epi32(v[2], v[3]);
  return {reinterpret_cast<Lanes>(_mm512_unpacklo_epi64(ab_low, cd_low)),
          reinterpret_cast<Lanes>(_mm512_unpackhi_epi64(ab_low, cd_low)),
          reinterpret_cast<Lanes>(_mm512_unpacklo_epi64(ab_high, cd_high)),
          reinterpret_cast<Lanes>(_mm512_unpackhi_epi64(ab_high, cd_high))};
}
// Dword `k` of the 16 extents that four vectors hold.
SLUICE_FAST_AVX512 inline Lanes column_of(const __m512i (&v)[4], int k) {
  const __m512i order = _mm512_add_epi32(_mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28),
                                         _mm512_set1_epi32(k));
  const __m512i low = _mm512_permutex2var_epi32(v[0], order, v[1]);
  const __m512i high = _mm512_permutex2var_epi32(v[2], order, v[3]);
  return reinterpret_cast<Lanes>(_mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1));
}
// The extents of 16 rows that follow one another are whole vectors. The last column, where headers lie, is left out.
SLUICE_FAST_AVX512 inline Columns transpose_run(const Extent* extents) {
  const __m512i v[4] = {_mm512_loadu_si512(extents), _mm512_loadu_si512(extents + 4), _mm512_loadu_si512(extents + 8),
                        _mm512_loadu_si512(extents + 12)};
  return {column_of(v, 0), column_of(v, 1), column_of(v, 2), Lanes{}};
}

SLUICE_FAST_AVX512 inline Lanes big_endian(Lanes v) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
  return reinterpret_cast<Lanes>(_mm512_shuffle_epi8(reinterpret_cast<__m512i>(v), order));
}
// All ones where the address is plainly no martian.
SLUICE_FAST_AVX512 inline auto plain(Lanes address) {
  const Lanes first = address >> 24;
  return ((first - 1) < 223) & (first != 127) & (first != 169);
}
// A whole vector is written: columns have the room.
SLUICE_FAST_AVX512 inline void put(uint32_t* column, __mmask16 keep, Lanes v) {
  _mm512_storeu_si512(column, _mm512_maskz_compress_epi32(keep, reinterpret_cast<__m512i>(v)));
}

// parse_fast for 16 packets at a time, by the same rules in the same terms. Reads the first 48 bytes of each frame,
// which are there whatever its length is: kTailroom follows it.
SLUICE_FAST_AVX512 uint32_t gather_avx512(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst,
                                          uint32_t* rest) {
  static_assert(kTailroom >= 48);
  uint32_t left = 0;
  const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (uint32_t at = 0; at < n; at += 16) {
    const uint32_t some = n - at < 16 ? n - at : 16;
    const auto here = static_cast<__mmask16>((1u << some) - 1);
    // Lanes past the last row stand for the first.
    const __m512i first = _mm512_set1_epi32(static_cast<int>(rows[at]));
    const __m512i row = _mm512_mask_loadu_epi32(first, here, rows + at);
    Columns extent;
    uint8_t* some_frames[16];
    uint8_t* const* frame = some_frames;
    if (_mm512_cmpneq_epi32_mask(row, _mm512_add_epi32(first, iota)) == 0) {
      frame = view.frame + rows[at];
      extent = transpose_run(view.extent + rows[at]);
    } else {
      uint32_t index[16];
      _mm512_storeu_si512(index, row);
      for (uint32_t i = 0; i < 16; ++i) some_frames[i] = view.frame[index[i]];
      __m512i e[4];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < 4; ++j) {
        const auto of = [&](uint32_t i) { return &view.extent[index[i]]; };
        e[j] = four(of(j), of(j + 4), of(j + 8), of(j + 12));
      }
      extent = transpose(e);
    }
    __m512i block[3][4];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
      const uint8_t *p = frame[j], *q = frame[j + 4], *r = frame[j + 8], *s = frame[j + 12];
      block[0][j] = four(p, q, r, s);
      block[1][j] = four(p + 16, q + 16, r + 16, s + 16);
      block[2][j] = four(p + 32, q + 32, r + 32, s + 32);
    }
    const Columns a = transpose(block[0]);
    const Columns b = transpose(block[1]);
    const Columns c = transpose(block[2]);
    const Lanes bytes = extent.d1;
    const Lanes protocol = b.d1 >> 24;
    const auto tcp = protocol == kProtocolTcp;
    const auto icmp = protocol == kProtocolIcmp;
    const Lanes total = (b.d0 & 0xff) << 8 | (b.d0 >> 8 & 0xff);
    const Lanes minimum = (reinterpret_cast<Lanes>(tcp) & 12u) + 28u;
    Lanes sum = (a.d3 >> 16) + (b.d0 & 0xffff) + (b.d0 >> 16) + (b.d1 & 0xffff) + (b.d1 >> 16) + (b.d2 & 0xffff) +
                (b.d2 >> 16) + (b.d3 & 0xffff) + (b.d3 >> 16) + (c.d0 & 0xffff);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    const Lanes source = big_endian(b.d2 >> 16 | b.d3 << 16);
    const Lanes destination = big_endian(b.d3 >> 16 | c.d0 << 16);
    const auto good = (extent.d0 == 0) & (bytes == extent.d2) & (bytes >= kFastBytes) & ((a.d0 & 1) == 0) &
                      ((a.d3 & 0xffffff) == 0x450008) & ((b.d1 & 0xffbf) == 0) &
                      (tcp | icmp | (protocol == kProtocolUdp)) & (total >= minimum) & (total + kFastL3 <= bytes) &
                      (sum == 0xffff) & plain(source) & plain(destination);
    const __mmask16 keep = _mm512_movepi32_mask(reinterpret_cast<__m512i>(good)) & here;
    const Lanes ports = big_endian(c.d0 >> 16 | c.d1 << 16) >> (reinterpret_cast<Lanes>(icmp) & 16u);
    const Lanes flags = c.d3 >> 24 << 8 & reinterpret_cast<Lanes>(tcp);
    const Lanes has_ports = ~reinterpret_cast<Lanes>(icmp) & (uint32_t{FlowKey::kHasPorts} << 22);
    const Lanes key_rest = protocol | flags | (a.d3 >> 26 & 0x3f) << 16 | has_ports;
    const uint32_t lane = burst.count;
    put(burst.source + lane, keep, source);
    put(burst.destination + lane, keep, destination);
    put(burst.ports + lane, keep, ports);
    put(burst.rest + lane, keep, key_rest);
    put(burst.length + lane, keep, bytes);
    put(burst.ip_bytes + lane, keep, total);
    put(burst.hop + lane, keep, b.d1 >> 16 | b.d2 << 16);
    put(burst.row + lane, keep, reinterpret_cast<Lanes>(row));
    put(burst.rule + lane, keep, Lanes{});
    put(burst.next_hop + lane, keep, Lanes{});
    const __m512i low = _mm512_loadu_si512(frame);
    const __m512i high = _mm512_loadu_si512(frame + 8);
    const auto keep_low = static_cast<__mmask8>(keep);
    const auto keep_high = static_cast<__mmask8>(keep >> 8);
    _mm512_storeu_si512(burst.frame + lane, _mm512_maskz_compress_epi64(keep_low, low));
    _mm512_storeu_si512(burst.frame + lane + std::popcount(static_cast<uint32_t>(keep_low)),
                        _mm512_maskz_compress_epi64(keep_high, high));
    burst.count = lane + static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(keep)));
    for (uint32_t m = here & ~static_cast<uint32_t>(keep); m != 0; m &= m - 1) {
      rest[left++] = rows[at + static_cast<uint32_t>(std::countr_zero(m))];
    }
  }
  return left;
}
#pragma GCC diagnostic pop
#endif

#if defined(__x86_64__)
SLUICE_WIDE uint32_t gather_wide(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst,
                                 uint32_t* rest) {
  const uint32_t left = gather_avx512(view, rows, n, burst, rest);
  burst.find_run();
  return left;
}
#endif

}  // namespace

uint32_t gather_fast(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst, uint32_t* rest) {
#if defined(__x86_64__)
  static const bool wide = has_wide();
  if (wide) return gather_wide(view, rows, n, burst, rest);
#endif
  return gather_fast_scalar(view, rows, n, burst, rest);
}
uint32_t gather_fast_scalar(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst, uint32_t* rest) {
  const uint32_t left = gather_scalar(view, rows, n, burst, rest);
  burst.find_run();
  return left;
}

namespace {

// What commit_fast stores, by lane, besides the columns themselves: the packet's end.
struct Edits {
  uint32_t end[FastBurst::kLanes];
};

void edit_some(const BatchView& view, const FastBurst& burst, const Edits& edits, uint32_t mask) {
  for_lanes(mask, [&](uint32_t lane) {
    const uint32_t row = burst.row[lane];
    uint8_t* frame = burst.frame[lane];
    if ((burst.hopped >> lane & 1) != 0) store_le32(frame + kFastL3 + kHopWord, burst.hop[lane]);
    view.extent[row] = Extent{0, edits.end[lane], edits.end[lane], kFastL3, kFastL4};
    if ((burst.rewritten >> lane & 1) == 0) return;
    std::memcpy(frame, burst.rewrite[lane], 12);
    view.port[row] = burst.port[lane];
  });
}

// The extent of a common packet whose end is `end`, in all lanes; padding is gone.
using Four = uint32_t __attribute__((vector_size(16)));
inline Four extent_to(Four end) {
  static_assert(sizeof(Extent) == sizeof(Four) && offsetof(Extent, end) == 4 && offsetof(Extent, wire_end) == 8 &&
                offsetof(Extent, l3) == 12 && offsetof(Extent, l4) == 14);
  return (end & Four{0, ~0u, ~0u, 0}) | Four{0, 0, 0, kFastL3 | kFastL4 << 16};
}

// All lanes have all edits, and their rows follow one another.
inline void edit_run(const BatchView& view, const FastBurst& burst, const Edits& edits, bool extents_change) {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
    uint8_t* frame = burst.frame[i];
    store_le32(frame + kFastL3 + kHopWord, burst.hop[i]);
    std::memcpy(frame, burst.rewrite[i], 12);
  }
  std::memcpy(view.port + burst.row[0], burst.port, FastBurst::kLanes * sizeof burst.port[0]);
  if (!extents_change) return;
  Extent* extents = view.extent + burst.row[0];
  for (uint32_t i = 0; i < FastBurst::kLanes; i += 4) {
    Four end;
    std::memcpy(&end, edits.end + i, sizeof end);
    const Four made[4] = {extent_to(__builtin_shufflevector(end, end, 0, 0, 0, 0)),
                          extent_to(__builtin_shufflevector(end, end, 1, 1, 1, 1)),
                          extent_to(__builtin_shufflevector(end, end, 2, 2, 2, 2)),
                          extent_to(__builtin_shufflevector(end, end, 3, 3, 3, 3))};
    std::memcpy(extents + i, made, sizeof made);
  }
}

// What is arithmetic is done for all lanes at once, in loops of a constant length; then each frame is stored to.
inline void commit(const BatchView& view, const FastBurst& burst, uint32_t mask, bool headers) {
  Edits edits;
  uint32_t padding = 0;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) edits.end[i] = burst.ip_bytes[i] + kFastL3;
  if (burst.one_run && (mask & burst.hopped & burst.rewritten) == ~uint32_t{0}) {
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) padding |= burst.length[i] ^ edits.end[i];
    edit_run(view, burst, edits, headers || padding != 0);
  } else {
    edit_some(view, burst, edits, mask);
  }
}
SLUICE_WIDE void commit_wide(const BatchView& view, const FastBurst& burst, uint32_t mask, bool headers) {
  commit(view, burst, mask, headers);
}
void commit_narrow(const BatchView& view, const FastBurst& burst, uint32_t mask, bool headers) {
  commit(view, burst, mask, headers);
}

// The codepoint is bits 16 to 21 of the key's last word (net/key4.h).
inline void note_egress(const BatchView& view, const FastBurst& burst, uint32_t mask) {
  uint32_t rest[FastBurst::kLanes] = {};
  if (burst.late_keys == nullptr) {
    std::memcpy(rest, burst.rest, sizeof rest);
  } else {
    for (uint32_t i = 0; i < burst.count; ++i) {
      std::memcpy(&rest[i], burst.late_keys + i * sizeof(Key4) + offsetof(Key4, rest), sizeof rest[i]);
    }
  }
  static_assert(Batch::kNoteBytesBits == 16);
  uint32_t notes[FastBurst::kLanes];
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) notes[i] = (rest[i] & 63u << 16) | burst.ip_bytes[i];
  if (burst.one_run && mask == ~uint32_t{0}) {
    std::memcpy(view.egress_note + burst.row[0], notes, sizeof notes);
  } else {
    for_lanes(mask, [&](uint32_t lane) { view.egress_note[burst.row[lane]] = notes[lane]; });
  }
}
SLUICE_WIDE void note_egress_wide(const BatchView& view, const FastBurst& burst, uint32_t mask) {
  note_egress(view, burst, mask);
}
void note_egress_narrow(const BatchView& view, const FastBurst& burst, uint32_t mask) {
  note_egress(view, burst, mask);
}

// The columns of the first 32 places, whatever lies there.
inline void keep(const FastBurst& burst, const FastKept& to) {
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) to.row[i] = static_cast<uint16_t>(burst.row[i]);
  std::memcpy(to.length, burst.length, sizeof(uint32_t) * FastBurst::kLanes);
  std::memcpy(to.ip_bytes, burst.ip_bytes, sizeof(uint32_t) * FastBurst::kLanes);
  std::memcpy(to.hop, burst.hop, sizeof(uint32_t) * FastBurst::kLanes);
}
SLUICE_WIDE void keep_wide(const FastBurst& burst, const FastKept& to) {
  keep(burst, to);
}
void keep_narrow(const FastBurst& burst, const FastKept& to) {
  keep(burst, to);
}

inline void restore(const FastKept& from, uint32_t n, const BatchView& view, FastBurst& burst) {
  burst.clear();
  burst.count = n;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.row[i] = from.row[i];
  std::memcpy(burst.length, from.length, sizeof(uint32_t) * FastBurst::kLanes);
  std::memcpy(burst.ip_bytes, from.ip_bytes, sizeof(uint32_t) * FastBurst::kLanes);
  std::memcpy(burst.hop, from.hop, sizeof(uint32_t) * FastBurst::kLanes);
  burst.find_run();
  if (burst.one_run) {
    std::memcpy(burst.frame, view.frame + burst.row[0], FastBurst::kLanes * sizeof burst.frame[0]);
  } else {
    for (uint32_t i = 0; i < n; ++i) burst.frame[i] = view.frame[burst.row[i]];
  }
}
SLUICE_WIDE void restore_wide(const FastKept& from, uint32_t n, const BatchView& view, FastBurst& burst) {
  restore(from, n, view, burst);
}
void restore_narrow(const FastKept& from, uint32_t n, const BatchView& view, FastBurst& burst) {
  restore(from, n, view, burst);
}

inline uint32_t take(const uint64_t* words, uint32_t usual, FastBurst& burst) {
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.rule[i] = static_cast<uint32_t>(words[i]) & kMaxKeyValue;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
    burst.next_hop[i] = static_cast<uint32_t>(words[i] >> 21) & kMaxKeyValue;
  }
  return FastBurst::lanes_where([&](uint32_t i) { return passed_all(words[i], usual); });
}
SLUICE_WIDE uint32_t take_wide(const uint64_t* words, uint32_t usual, FastBurst& burst) {
  return take(words, usual, burst);
}
uint32_t take_narrow(const uint64_t* words, uint32_t usual, FastBurst& burst) {
  return take(words, usual, burst);
}

}  // namespace

const FastCode& plain_fast_code() {
  static constexpr FastCode kCode{&commit_narrow, &note_egress_narrow, &keep_narrow, &restore_narrow, &take_narrow};
  return kCode;
}
const FastCode& fast_code() {
  static constexpr FastCode kWide{&commit_wide, &note_egress_wide, &keep_wide, &restore_wide, &take_wide};
  return has_wide() ? kWide : plain_fast_code();
}

void add_rows(const FastBurst& burst, uint32_t mask, Selection& to) {
  if (!burst.one_run) {
    for_lanes(mask, [&](uint32_t lane) { to.add(burst.row[lane]); });
    return;
  }
  const uint32_t word = burst.row[0] / 64;
  const uint32_t shift = burst.row[0] % 64;
  to.or_word(word, uint64_t{mask} << shift);
  const uint64_t over = shift == 0 ? 0 : uint64_t{mask} >> (64 - shift);
  if (over != 0) to.or_word(word + 1, over);
}

void registers_of(const BatchView& view, const FastBurst& burst, uint32_t lane, Packet& p) {
  view.load(burst.row[lane], 0, p);
  p.key = unpack_key4(burst.key(lane));
  p.rule = burst.rule[lane];
  p.next_hop = burst.next_hop[lane];
  p.ether_type = kEtherTypeIpv4;
  p.vlan_count = 0;
  p.vlan_tci = 0;
  p.ip_flags = (p.frame[kFastL3 + 6] & 0x40) != 0 ? Headers::kDontFragment : 0;
  p.ttl = p.frame[kFastL3 + 8];
}

}  // namespace sluice
