// host only
#include "exec/cpu/fast.h"

#include <array>
#include <bit>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/assert.h"
#include "batch/key_burst.h"
#include "elements/stages.h"
#include "exec/cpu/tile.h"
#include "exec/device/record.h"
#include "net/edit.h"
#include "net/fast_parse.h"

namespace sluice {
namespace {

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
  return slot.get<Stage>().burst(burst, mask);
}
template <typename Stage>
SLUICE_WIDE uint32_t fast_kernel_wide(const StageSlot& slot, FastBurst& burst, uint32_t mask) {
  return slot.get<Stage>().burst(burst, mask);
}
template <typename Stage>
void fast_prefetch(const StageSlot& slot, FastBurst& burst) {
  slot.get<Stage>().prefetch(burst);
}

const auto kKernels = AllStages::table<FastKernel>([]<typename Stage>(TypeTag<Stage>) -> FastKernel {
  if constexpr (TakesBursts<Stage>) {
    return has_wide() ? &fast_kernel_wide<Stage> : &fast_kernel<Stage>;
  } else {
    return nullptr;
  }
});
constexpr auto kPrefetches = AllStages::table<FastPrefetch>([]<typename Stage>(TypeTag<Stage>) -> FastPrefetch {
  if constexpr (requires(const Stage& stage, FastBurst& burst) { stage.prefetch(burst); }) {
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

uint32_t burst_end(const Program& program, uint32_t from) {
  uint32_t end = from + 1;
  while (end < program.stage_count && program.stages[end - 1].next[0] == end &&
         cpu_fast_kernel(program.stages[end].kind) != nullptr) {
    ++end;
  }
  return end;
}

uint32_t fast_stages(const Program& program) {
  // A common packet is no martian and has no source route, so that IPInput passes it whatever its settings are; of any
  // other form it is asked.
  if (program.stage_count == 0 || program.stages[0].kind != kStageKind<IpInputStage>) return 0;
  return burst_end(program, 0);
}

namespace {

// What every lane starts with.
inline void start_lane(FastBurst& burst, uint32_t lane, const BatchView& view, uint32_t row, uint32_t link,
                       uint32_t l4) {
  const uint32_t l3 = link & 0xffff;
  burst.ip[lane] = view.frame[row] + l3;
  burst.row[lane] = row;
  burst.length[lane] = view.extent[row].end;
  burst.places[lane] = l3 | l4 << 16;
  burst.link[lane] = l3;
  burst.tci[lane] = link >> 16;
  burst.rule[lane] = 0;
  burst.next_hop[lane] = 0;
}

// Whether the frame begins at its first byte, and all of it is there.
inline bool whole(const Extent& extent) {
  return (extent.data == 0) & (extent.end == extent.wire_end);
}

// What registers say of a packet with plain options (net/fast_parse.h), whose fragment word is at `ip` + 6.
inline uint16_t flags_with_options(const uint8_t* ip) {
  return static_cast<uint16_t>(Headers::kIpv4Options | ((ip[6] & 0x40) != 0 ? Headers::kDontFragment : 0));
}

// `link`: of all, or by packet. kAny: as of parse_common4.
template <bool kAny, typename Link>
uint32_t gather_scalar(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst, uint32_t* rest,
                       Link&& link_of) {
  uint32_t lane = burst.count;
  uint32_t left = 0;
  const bool six = burst.family == 6;
  for (uint32_t r = 0; r < n; ++r) {
    const uint32_t row = rows[r];
    const uint32_t link = link_of(r);
    const uint32_t l3 = link & 0xffff;
    const Extent& extent = view.extent[row];
    const uint8_t* ip = view.frame[row] + l3;
    uint32_t& bytes = burst.ip_bytes[lane];
    uint32_t& hop = burst.hop[lane];
    bool common = whole(extent) && link != 0 && extent.end > l3;
    uint32_t header = kIpv6HeaderBytes;
    FastKey6 key6;
    Key4 key4;
    if (six) {
      common = common && parse_fast6(ip, extent.end - l3, key6, bytes, hop);
    } else {
      common = common && parse_common4<kAny>(ip, extent.end - l3, key4, bytes, hop, header);
    }
    if (!common) {
      rest[left++] = row;
      continue;
    }
    if (six) {
      burst.source_high[lane] = key6.source_high;
      burst.source_low[lane] = key6.source_low;
      burst.destination_high[lane] = key6.destination_high;
      burst.destination_low[lane] = key6.destination_low;
      burst.ports[lane] = key6.ports;
      burst.rest[lane] = key6.rest;
    } else {
      burst.source[lane] = key4.source;
      burst.destination[lane] = key4.destination;
      burst.ports[lane] = key4.ports;
      burst.rest[lane] = key4.rest;
      if (header != kIpv4HeaderBytes) {
        burst.flags[lane] = flags_with_options(ip);
        burst.odd |= uint64_t{1} << lane;
      }
    }
    start_lane(burst, lane, view, row, link, six || has_l4(key4) ? l3 + header : uint32_t{Headers::kNoOffset});
    ++lane;
  }
  burst.count = lane;
  return left;
}

#if defined(__x86_64__)
// GCC 12 takes the registers that its own headers leave undefined on purpose for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
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

// Where the frames of 16 rows are listed, and their extents as columns. Rows that do not follow one another have their
// list in `some`.
SLUICE_FAST_AVX512 inline uint8_t* const* frames_at(const BatchView& view, __m512i rows, uint8_t* (&some)[16],
                                                    Columns& extent) {
  const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto first = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(rows)));
  if (_mm512_cmpneq_epi32_mask(rows, _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)), iota)) == 0) {
    extent = transpose_run(view.extent + first);
    return view.frame + first;
  }
  uint32_t index[16];
  _mm512_storeu_si512(index, rows);
  for (uint32_t i = 0; i < 16; ++i) some[i] = view.frame[index[i]];
  __m512i e[4];
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 4; ++j) {
    const auto of = [&](uint32_t i) { return &view.extent[index[i]]; };
    e[j] = four(of(j), of(j + 4), of(j + 8), of(j + 12));
  }
  extent = transpose(e);
  return some;
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

// The same of pointers, the first eight and the others.
SLUICE_FAST_AVX512 inline void put(uint8_t** column, __mmask16 keep, __m512i low, __m512i high) {
  const auto keep_low = static_cast<__mmask8>(keep), keep_high = static_cast<__mmask8>(keep >> 8);
  _mm512_storeu_si512(column, _mm512_maskz_compress_epi64(keep_low, low));
  _mm512_storeu_si512(column + std::popcount(static_cast<uint32_t>(keep_low)),
                      _mm512_maskz_compress_epi64(keep_high, high));
}

SLUICE_FAST_AVX512 inline __m512i all64(uint64_t v) {
  return _mm512_set1_epi64(static_cast<int64_t>(v));
}

// Lanes of the 16 frames whose first byte is even: no broadcast, no multicast.
SLUICE_FAST_AVX512 inline __mmask16 unicast(uint8_t* const* frames) {
  uint32_t any = 0;
#pragma GCC unroll 16
  for (uint32_t i = 0; i < 16; ++i) any |= frames[i][0];
  if ((any & 1) == 0) [[likely]]
    return 0xffff;
  uint32_t lanes = 0;
  for (uint32_t i = 0; i < 16; ++i) lanes |= (~uint32_t{frames[i][0]} & 1) << i;
  return static_cast<__mmask16>(lanes);
}

// Of 16 packets: which have plain options, and what that changes.
struct WithOptions {
  __mmask16 lanes = 0;
  alignas(64) uint32_t header[16];       // bytes of the network header, of all 16
  alignas(64) uint32_t destination[16];  // the address as it lies in the header, of `lanes`
};
// Looks at the packets of `lanes`, whose headers begin with another byte than most. `frame` is 14 bytes before each
// header; where options lie between, it comes to be as far before what the packet carries as it is without any.
inline void find_options(uint32_t lanes, const uint32_t* bytes, const uint32_t* links, uint8_t** frame,
                         WithOptions& found) {
  std::fill_n(found.header, 16, kIpv4HeaderBytes);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(lanes));
    const uint8_t* ip = frame[i] + kFastL3;
    const uint32_t header = (ip[0] & 15u) * 4, l3 = links[i] & 0xffff;
    if (bytes[i] < l3 + kFastBytes4 || (ip[0] & 0xf0) != 0x40 || header <= kIpv4HeaderBytes ||
        bytes[i] < l3 + header + 8 || !has_plain_options(ip, header)) {
      continue;
    }
    found.lanes = static_cast<__mmask16>(found.lanes | 1u << i);
    found.header[i] = header;
    found.destination[i] = load_le32(ip + 16);
    frame[i] += header - kIpv4HeaderBytes;
  }
}

// parse_common4 for 16 packets at a time, by the same rules in the same terms. kForm: what stands before the network
// header of each, which is looked at too. kLinked: `linked` says it, from `linked_at` on, and any common packet is
// taken. Reads 48 bytes of each frame from 14 before its network header on, which are there whatever its length is:
// kTailroom follows it.
constexpr int kLinked = -1;
template <int kForm>
SLUICE_FAST_AVX512 inline uint32_t gather4_avx512(const BatchView& view, const uint32_t* rows,
                                                  [[maybe_unused]] const LinkedRows* linked, uint32_t linked_at,
                                                  uint32_t n, FastBurst& burst, uint32_t* rest) {
  constexpr bool kAlike = kForm != kLinked;
  constexpr uint32_t kTags = kAlike ? static_cast<uint32_t>(kForm) : 0, kL3 = kFastL3 + kTags * kVlanTagBytes;
  static_assert(kTailroom >= 48 + kFastMostTags * kVlanTagBytes);
  uint32_t left = 0;
  for (uint32_t at = 0; at < n; at += 16) {
    const uint32_t some = n - at < 16 ? n - at : 16;
    const auto here = static_cast<__mmask16>((1u << some) - 1);
    // Lanes past the last row stand for the first.
    const __m512i first = _mm512_set1_epi32(static_cast<int>(rows[at]));
    const __m512i row = _mm512_mask_loadu_epi32(first, here, rows + at);
    [[maybe_unused]] Columns extent;
    [[maybe_unused]] Lanes link{}, l3{};
    [[maybe_unused]] uint8_t *some_frames[16], *moved[16];
    [[maybe_unused]] __mmask16 asked = 0xffff;
    uint8_t* const* frame = some_frames;
    Lanes bytes;
    __m512i low, high;
    if constexpr (kAlike) {
      frame = frames_at(view, row, some_frames, extent);
      bytes = extent.d1;
      low = _mm512_loadu_si512(frame);
      high = _mm512_loadu_si512(frame + 8);
      if constexpr (kTags != 0) {
        asked = unicast(frame);
        low = _mm512_add_epi64(low, all64(kTags * kVlanTagBytes));
        high = _mm512_add_epi64(high, all64(kTags * kVlanTagBytes));
      }
    } else {
      // Lanes past the last row stand for the first here as well.
      const uint32_t from = linked_at + at;
      const auto column = [&](const uint32_t* of) SLUICE_FAST_AVX512 {
        return reinterpret_cast<Lanes>(
            _mm512_mask_loadu_epi32(_mm512_set1_epi32(static_cast<int>(of[from])), here, of + from));
      };
      link = column(linked->link);
      bytes = column(linked->bytes);
      l3 = link & 0xffff;
      const __m512i by = reinterpret_cast<__m512i>(l3 - kFastL3);
      const __m512i one = all64(reinterpret_cast<uintptr_t>(linked->frame[from]));
      low = _mm512_mask_loadu_epi64(one, static_cast<__mmask8>(here), linked->frame + from);
      high = _mm512_mask_loadu_epi64(one, static_cast<__mmask8>(here >> 8), linked->frame + from + 8);
      low = _mm512_add_epi64(low, _mm512_cvtepu32_epi64(_mm512_castsi512_si256(by)));
      high = _mm512_add_epi64(high, _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(by, 1)));
    }
    if constexpr (!kAlike || kTags != 0) {
      _mm512_storeu_si512(moved, low);
      _mm512_storeu_si512(moved + 8, high);
      frame = moved;
    }
    const auto columns_at = [&](uint32_t by) SLUICE_FAST_AVX512 {
      __m512i block[4];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < 4; ++j) {
        block[j] = four(frame[j] + by, frame[j + 4] + by, frame[j + 8] + by, frame[j + 12] + by);
      }
      return transpose(block);
    };
    const auto mask = [](const auto& lanes)
                          SLUICE_FAST_AVX512 { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(lanes)); };
    const Columns a = columns_at(0);
    const Columns b = columns_at(16);
    [[maybe_unused]] WithOptions options;
    [[maybe_unused]] Lanes header = Lanes{} + kIpv4HeaderBytes;
    if constexpr (!kAlike) {
      const uint32_t others = mask((a.d3 & 0xff0000) != 0x450000) & here;
      if (others != 0) [[unlikely]] {
        find_options(others, linked->bytes + linked_at + at, linked->link + linked_at + at, moved, options);
        header = reinterpret_cast<Lanes>(_mm512_load_si512(options.header));
      }
    }
    const Columns c = columns_at(32);
    const Lanes protocol = b.d1 >> 24;
    const auto tcp = protocol == kProtocolTcp;
    const auto icmp = protocol == kProtocolIcmp;
    const Lanes total = (b.d0 & 0xff) << 8 | (b.d0 >> 8 & 0xff);
    Lanes later{}, fragment{};  // all ones, or 0
    if constexpr (!kAlike) {
      later = reinterpret_cast<Lanes>((b.d1 & 0xff1f) != 0);
      fragment = reinterpret_cast<Lanes>((b.d1 & 0xff3f) != 0);
    }
    const Lanes minimum = header + (reinterpret_cast<Lanes>(tcp) & ~later & 12u) + 8u;
    Lanes sum = (a.d3 >> 16) + (b.d0 & 0xffff) + (b.d0 >> 16) + (b.d1 & 0xffff) + (b.d1 >> 16) + (b.d2 & 0xffff) +
                (b.d2 >> 16) + (b.d3 & 0xffff) + (b.d3 >> 16) + (c.d0 & 0xffff);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    const Lanes source = big_endian(b.d2 >> 16 | b.d3 << 16);
    Lanes destination = b.d3 >> 16 | c.d0 << 16;
    // EtherType, where it is not known, then version and IHL.
    auto right = ((a.d3 & (kAlike ? 0xffffffu : 0xff0000u)) == (kAlike ? 0x450008u : 0x450000u)) & (sum == 0xffff);
    if constexpr (!kAlike) {
      if (options.lanes != 0) {
        const __m512i address =
            _mm512_mask_loadu_epi32(reinterpret_cast<__m512i>(destination), options.lanes, options.destination);
        destination = reinterpret_cast<Lanes>(address);
        right |= reinterpret_cast<decltype(right)>(_mm512_movm_epi32(options.lanes));
      }
    }
    destination = big_endian(destination);
    auto good =
        right & (tcp | icmp | (protocol == kProtocolUdp)) & (total >= minimum) & plain(source) & plain(destination);
    if constexpr (kAlike) {
      good &= (b.d1 & 0xffbf) == 0;
      good &= (extent.d0 == 0) & (bytes == extent.d2) & (bytes >= kL3 + kFastBytes4) & (total + kL3 <= bytes);
      // Type and tag of the outer tag and of the inner one, before the type that 0x450008 looks at.
      if constexpr (kTags == 0) good &= (a.d0 & 1) == 0;
      if constexpr (kTags >= 1) {
        good &= reinterpret_cast<decltype(good)>(is_tag_type(a.d2 & 0xffff));
        link = (kTags == 1 ? a.d2 : a.d1) >> 16;
      }
      if constexpr (kTags == 2) good &= reinterpret_cast<decltype(good)>(is_tag_type(a.d1 & 0xffff));
    } else {
      // A fragment of TCP with the offset 8 is a tiny one.
      good &= (bytes >= l3 + kFastBytes4) & (total + l3 <= bytes) & ~(tcp & ((b.d1 & 0xff1f) == 0x0100));
    }
    const __mmask16 keep = mask(good) & here & asked;
    const Lanes ports = big_endian(c.d0 >> 16 | c.d1 << 16) >> (reinterpret_cast<Lanes>(icmp) & 16u) & ~later;
    const Lanes flags = c.d3 >> 24 << 8 & reinterpret_cast<Lanes>(tcp) & ~later;
    const Lanes bits = (~(reinterpret_cast<Lanes>(icmp) | later) & uint32_t{FlowKey::kHasPorts}) |
                       (fragment & uint32_t{FlowKey::kFragment}) | (later & uint32_t{FlowKey::kLaterFragment});
    const Lanes key_rest = protocol | flags | (a.d3 >> 26 & 0x3f) << 16 | bits << 22;
    const uint32_t lane = burst.count;
    put(burst.source + lane, keep, source);
    put(burst.destination + lane, keep, destination);
    put(burst.ports + lane, keep, ports);
    put(burst.rest + lane, keep, key_rest);
    put(burst.length + lane, keep, bytes);
    put(burst.ip_bytes + lane, keep, total);
    put(burst.hop + lane, keep, b.d1 >> 16 | b.d2 << 16);
    put(burst.row + lane, keep, reinterpret_cast<Lanes>(row));
    if constexpr (kAlike) {
      put(burst.places + lane, 0xffff, Lanes{} + (kL3 | (kL3 + kIpv4HeaderBytes) << 16));
      put(burst.link + lane, 0xffff, Lanes{} + kL3);
      if constexpr (kTags != 0) put(burst.tci + lane, keep, (link >> 8 | link << 8) & 0xffff);
    } else {
      put(burst.places + lane, keep, l3 | (((l3 + header) & ~later) | (later & Headers::kNoOffset)) << 16);
      put(burst.link + lane, keep, l3);
      put(burst.tci + lane, keep, link >> 16);
      for (uint32_t m = options.lanes & static_cast<uint32_t>(keep); m != 0; m &= m - 1) {
        const auto i = static_cast<uint32_t>(std::countr_zero(m));
        const uint32_t to = lane + static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(keep) & ((1u << i) - 1)));
        burst.flags[to] =
            flags_with_options(linked->frame[linked_at + at + i] + (linked->link[linked_at + at + i] & 0xffff));
        burst.odd |= uint64_t{1} << to;
      }
    }
    put(burst.rule + lane, 0xffff, Lanes{});
    put(burst.next_hop + lane, 0xffff, Lanes{});
    put(burst.ip + lane, keep, _mm512_add_epi64(low, all64(kFastL3)), _mm512_add_epi64(high, all64(kFastL3)));
    burst.count = lane + static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(keep)));
    for (uint32_t m = here & ~static_cast<uint32_t>(keep); m != 0; m &= m - 1) {
      rest[left++] = rows[at + static_cast<uint32_t>(std::countr_zero(m))];
    }
  }
  return left;
}

// A vector as a column's next eight, or its low halves. Mostly all are kept.
SLUICE_FAST_AVX512 inline void put8(void* column, __mmask8 keep, __m512i v) {
  if (keep != 0xff) v = _mm512_maskz_compress_epi64(keep, v);
  _mm512_storeu_si512(column, v);
}
SLUICE_FAST_AVX512 inline void put8(uint32_t* column, __mmask8 keep, __m512i v) {
  if (keep != 0xff) v = _mm512_maskz_compress_epi64(keep, v);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(column), _mm512_cvtepi64_epi32(v));
}
// The 16 bytes at eight places, as two columns of 8.
struct Halves {
  __m512i first, second;
};
SLUICE_FAST_AVX512 inline Halves halves_at(uint8_t* const* places, uint32_t by) {
  const __m512i even = four(places[0] + by, places[2] + by, places[4] + by, places[6] + by);
  const __m512i odd = four(places[1] + by, places[3] + by, places[5] + by, places[7] + by);
  return {_mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd)};
}

// parse_fast6 for 8 packets at a time, by the same rules in the same terms. kAlike: none has a tag, which is looked at
// too; else `linked` says where network headers lie, from `linked_at` on. Reads 64 bytes of each packet of kFastBytes6
// or more, which are there: kTailroom follows it.
template <bool kAlike>
SLUICE_FAST_AVX512 inline uint32_t gather6_avx512(const BatchView& view, const uint32_t* rows,
                                                  [[maybe_unused]] const LinkedRows* linked, uint32_t linked_at,
                                                  uint32_t n, FastBurst& burst, uint32_t* rest) {
  static_assert(kFastBytes6 + kTailroom >= 64);
  alignas(64) static constexpr uint8_t kNothing[64] = {};
  const __m512i reverse = _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
  const __m512i low32 = all64(0xffffffff);
  uint32_t left = 0;
  for (uint32_t at = 0; at < n; at += 8) {
    const uint32_t some = n - at < 8 ? n - at : 8;
    const auto here = static_cast<__mmask8>((1u << some) - 1);
    uint8_t* ip[8];
    const __m512i row = _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(here, rows + at));
    __m512i link = all64(kFastL3), l3 = link, bytes;
    __mmask8 good;
    if constexpr (kAlike) {
      uint8_t* extents[8];
      uint32_t asked = here;
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t r = i < some ? at + i : at;
        extents[i] = reinterpret_cast<uint8_t*>(&view.extent[rows[r]]);
        uint8_t* const frame = view.frame[rows[r]];
        ip[i] = frame + kFastL3;
        const bool is = (load_le16(frame + 12) == swap16(kEtherTypeIpv6)) & ((frame[0] & 1) == 0);
        asked &= ~(uint32_t{!is} << i);
      }
      const Halves extent = halves_at(extents, 0);  // data and end, end on the wire and where headers are
      bytes = _mm512_srli_epi64(extent.first, 32);
      good = _mm512_mask_testn_epi64_mask(static_cast<__mmask8>(asked), extent.first, low32) &
             _mm512_cmpeq_epi64_mask(bytes, _mm512_and_si512(extent.second, low32));
    } else {
      const uint32_t from = linked_at + at;
      link = _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(here, linked->link + from));
      bytes = _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(here, linked->bytes + from));
      l3 = _mm512_and_si512(link, all64(0xffff));
      _mm512_storeu_si512(ip, _mm512_add_epi64(_mm512_maskz_loadu_epi64(here, linked->frame + from), l3));
      good = here;
    }
    good &= _mm512_cmpge_epu64_mask(bytes, _mm512_add_epi64(l3, all64(kFastBytes6)));
    for (uint32_t m = 0xffu & ~static_cast<uint32_t>(good); m != 0; m &= m - 1) {
      ip[std::countr_zero(m)] = const_cast<uint8_t*>(kNothing);
    }
    const Halves a = halves_at(ip, 0), b = halves_at(ip, 16), c = halves_at(ip, 32);
    const auto big_endian64 = [&](__m512i v) SLUICE_FAST_AVX512 { return _mm512_shuffle_epi8(v, reverse); };
    const __m512i w0 = big_endian64(a.first);
    const __m512i source_high = big_endian64(a.second), source_low = big_endian64(b.first);
    const __m512i destination_high = big_endian64(b.second), destination_low = big_endian64(c.first);
    const __m512i low8 = all64(0xff);
    const __m512i protocol = _mm512_and_si512(_mm512_srli_epi64(w0, 8), low8);
    const __mmask8 tcp = _mm512_cmpeq_epi64_mask(protocol, all64(kProtocolTcp));
    const __mmask8 icmp = _mm512_cmpeq_epi64_mask(protocol, all64(kProtocolIcmpv6));
    const __mmask8 udp = _mm512_cmpeq_epi64_mask(protocol, all64(kProtocolUdp));
    const __m512i total =
        _mm512_add_epi64(_mm512_and_si512(_mm512_srli_epi64(w0, 16), all64(0xffff)), all64(kIpv6HeaderBytes));
    const __m512i minimum = _mm512_mask_mov_epi64(all64(48), tcp, all64(60));
    // martian_detail::plain_ipv6.
    const auto plain6 = [&](__m512i high) SLUICE_FAST_AVX512 {
      return _mm512_cmplt_epu64_mask(_mm512_sub_epi64(_mm512_srli_epi64(high, 56), all64(1)), all64(0xfd));
    };
    good &= _mm512_cmpeq_epi64_mask(_mm512_srli_epi64(w0, 60), all64(6)) & (tcp | icmp | udp) &
            _mm512_cmpge_epu64_mask(total, minimum) & _mm512_cmple_epu64_mask(_mm512_add_epi64(total, l3), bytes) &
            plain6(source_high) & plain6(destination_high);
    __m512i flags = _mm512_setzero_si512();
    if ((good & tcp) != 0) {
      for (uint32_t m = here & ~static_cast<uint32_t>(good); m != 0; m &= m - 1) {
        ip[std::countr_zero(m)] = const_cast<uint8_t*>(kNothing);
      }
      // Byte 53 is where the key has it.
      flags = _mm512_maskz_and_epi64(tcp, _mm512_srli_epi64(halves_at(ip, 48).first, 32), all64(0xff00));
    }
    const __m512i ports = _mm512_srlv_epi64(big_endian64(c.second), _mm512_mask_mov_epi64(all64(32), icmp, all64(48)));
    const __m512i dscp = _mm512_and_si512(_mm512_srli_epi64(w0, 54 - 16), all64(0x3f << 16));
    const __m512i has_ports = _mm512_mask_mov_epi64(all64(FlowKey::kHasPorts << 22), icmp, _mm512_setzero_si512());
    const __m512i key_rest = _mm512_or_si512(_mm512_or_si512(protocol, flags), _mm512_or_si512(dscp, has_ports));
    const uint32_t lane = burst.count;
    put8(burst.source_high + lane, good, source_high);
    put8(burst.source_low + lane, good, source_low);
    put8(burst.destination_high + lane, good, destination_high);
    put8(burst.destination_low + lane, good, destination_low);
    put8(burst.ip + lane, good, _mm512_loadu_si512(ip));
    put8(burst.ports + lane, good, ports);
    put8(burst.rest + lane, good, key_rest);
    put8(burst.row + lane, good, row);
    put8(burst.length + lane, good, bytes);
    put8(burst.ip_bytes + lane, good, total);
    put8(burst.hop + lane, good, _mm512_and_si512(w0, low8));
    const __m512i l4 = _mm512_add_epi64(l3, all64(kIpv6HeaderBytes));
    put8(burst.places + lane, good, _mm512_or_si512(l3, _mm512_slli_epi64(l4, 16)));
    put8(burst.link + lane, good, l3);
    put8(burst.tci + lane, good, _mm512_srli_epi64(link, 16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(burst.rule + lane), _mm256_setzero_si256());
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(burst.next_hop + lane), _mm256_setzero_si256());
    burst.count = lane + static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(good)));
    for (uint32_t m = here & ~static_cast<uint32_t>(good); m != 0; m &= m - 1) {
      rest[left++] = rows[at + static_cast<uint32_t>(std::countr_zero(m))];
    }
  }
  return left;
}

// fast_link for 16 rows at a time, and the lists.
SLUICE_FAST_AVX512 inline uint32_t sort_avx512(const BatchView& view, const uint32_t* rows, uint32_t n,
                                               LinkedRows& to_four, LinkedRows& to_six, uint32_t* rest) {
  uint32_t fours = 0, sixes = 0, left = 0, untagged_fours = 0, untagged_sixes = 0;
  for (uint32_t at = 0; at < n; at += 16) {
    const uint32_t some = n - at < 16 ? n - at : 16;
    const auto here = static_cast<__mmask16>((1u << some) - 1);
    const __m512i first = _mm512_set1_epi32(static_cast<int>(rows[at]));
    const __m512i row = _mm512_mask_loadu_epi32(first, here, rows + at);
    Columns extent;
    uint8_t* some_frames[16];
    uint8_t* const* const frame = frames_at(view, row, some_frames, extent);
    const auto columns_at = [&](uint32_t by) SLUICE_FAST_AVX512 {
      __m512i block[4];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < 4; ++j) {
        block[j] = four(frame[j] + by, frame[j + 4] + by, frame[j + 8] + by, frame[j + 12] + by);
      }
      return transpose(block);
    };
    const Columns a = columns_at(0);
    const auto mask = [](const Lanes& lanes)
                          SLUICE_FAST_AVX512 { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(lanes)); };
    FastLinkColumns found;
    fast_link_columns(
        a.d0, a.d3, [&](const Lanes& tagged) SLUICE_FAST_AVX512 { return mask(tagged) != 0; },
        [&](Lanes& middle, Lanes& last) SLUICE_FAST_AVX512 {
          const Columns b = columns_at(16);
          middle = b.d0;
          last = b.d1;
        },
        found);
    const auto whole_frames = mask(reinterpret_cast<Lanes>((extent.d0 == 0) & (extent.d1 == extent.d2)));
    const auto is_four = static_cast<__mmask16>(mask(found.is_ipv4) & here & whole_frames);
    const auto is_six = static_cast<__mmask16>(mask(found.is_ipv6) & here & whole_frames);
    const auto put_rows = [&](LinkedRows& to, uint32_t behind, __mmask16 keep, Lanes links) SLUICE_FAST_AVX512 {
      put(to.row + behind, keep, reinterpret_cast<Lanes>(row));
      put(to.link + behind, keep, links);
      put(to.bytes + behind, keep, extent.d1);
      put(to.frame + behind, keep, _mm512_loadu_si512(frame), _mm512_loadu_si512(frame + 8));
    };
    const auto untagged = mask(reinterpret_cast<Lanes>(found.l3 == kFastL3));
    untagged_fours += static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(is_four & untagged)));
    untagged_sixes += static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(is_six & untagged)));
    const Lanes link = found.l3 | found.tci << 16;
    if (is_four != 0) {
      put_rows(to_four, fours, is_four, link);
      fours += static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(is_four)));
    }
    if (is_six != 0) {
      put_rows(to_six, sixes, is_six, link);
      sixes += static_cast<uint32_t>(std::popcount(static_cast<uint32_t>(is_six)));
    }
    for (uint32_t m = here & ~static_cast<uint32_t>(is_four | is_six); m != 0; m &= m - 1) {
      rest[left++] = rows[at + static_cast<uint32_t>(std::countr_zero(m))];
    }
  }
  to_four.count = fours;
  to_four.untagged = untagged_fours;
  to_six.count = sixes;
  to_six.untagged = untagged_sixes;
  return left;
}
#pragma GCC diagnostic pop
#endif

inline uint32_t sort(const BatchView& view, const uint32_t* rows, uint32_t n, LinkedRows& four, LinkedRows& six,
                     uint32_t* rest) {
  four.count = six.count = four.untagged = six.untagged = 0;
  uint32_t left = 0;
  for (uint32_t r = 0; r < n; ++r) {
    const uint32_t row = rows[r];
    const FastLink found = fast_link(view.frame[row]);  // kTailroom follows the shortest frame
    const uint32_t family = whole(view.extent[row]) ? found.family : 0;
    LinkedRows& to = family == 6 ? six : four;
    to.row[to.count] = row;
    to.link[to.count] = found.l3 | found.tci << 16;
    to.bytes[to.count] = view.extent[row].end;
    to.frame[to.count] = view.frame[row];
    to.count += family != 0;
    to.untagged += (family != 0) & (found.l3 == kFastL3);
    rest[left] = row;
    left += family == 0;
  }
  return left;
}

#if defined(__x86_64__)
template <FastForm kForm>
SLUICE_WIDE uint32_t gather_alike_wide(const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst,
                                       uint32_t* rest) {
  if constexpr (kForm == FastForm::kIpv6) {
    return gather6_avx512<true>(view, rows, nullptr, 0, n, burst, rest);
  } else {
    return gather4_avx512<static_cast<int>(kForm)>(view, rows, nullptr, 0, n, burst, rest);
  }
}
SLUICE_WIDE uint32_t gather_linked_wide(const BatchView& view, const LinkedRows& from, uint32_t first, uint32_t n,
                                        FastBurst& burst, uint32_t* rest) {
  if (burst.family == 4) {
    return gather4_avx512<kLinked>(view, from.row + first, &from, first, n, burst, rest);
  }
  return gather6_avx512<false>(view, from.row + first, &from, first, n, burst, rest);
}
SLUICE_WIDE uint32_t sort_wide(const BatchView& view, const uint32_t* rows, uint32_t n, LinkedRows& four,
                               LinkedRows& six, uint32_t* rest) {
  return sort_avx512(view, rows, n, four, six, rest);
}
#endif

}  // namespace

uint32_t sort_rows(const BatchView& view, const uint32_t* rows, uint32_t n, LinkedRows& four, LinkedRows& six,
                   uint32_t* rest) {
  static_assert(kTailroom >= 32);
#if defined(__x86_64__)
  static const bool wide = has_wide();
  if (wide) return sort_wide(view, rows, n, four, six, rest);
#endif
  return sort_rows_scalar(view, rows, n, four, six, rest);
}
uint32_t sort_rows_scalar(const BatchView& view, const uint32_t* rows, uint32_t n, LinkedRows& four, LinkedRows& six,
                          uint32_t* rest) {
  return sort(view, rows, n, four, six, rest);
}
uint32_t gather_alike(FastForm form, const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst,
                      uint32_t* rest) {
#if defined(__x86_64__)
  static const bool wide = has_wide();
  if (wide) {
    switch (form) {
      case FastForm::kIpv4:
        return gather_alike_wide<FastForm::kIpv4>(view, rows, n, burst, rest);
      case FastForm::kIpv4OneTag:
        return gather_alike_wide<FastForm::kIpv4OneTag>(view, rows, n, burst, rest);
      case FastForm::kIpv4TwoTags:
        return gather_alike_wide<FastForm::kIpv4TwoTags>(view, rows, n, burst, rest);
      case FastForm::kIpv6:
        return gather_alike_wide<FastForm::kIpv6>(view, rows, n, burst, rest);
    }
  }
#endif
  return gather_alike_scalar(form, view, rows, n, burst, rest);
}
uint32_t gather_linked(const BatchView& view, const LinkedRows& from, uint32_t first, uint32_t n, FastBurst& burst,
                       uint32_t* rest) {
#if defined(__x86_64__)
  static const bool wide = has_wide();
  if (wide) return gather_linked_wide(view, from, first, n, burst, rest);
#endif
  return gather_linked_scalar(view, from, first, n, burst, rest);
}
uint32_t gather_alike_scalar(FastForm form, const BatchView& view, const uint32_t* rows, uint32_t n, FastBurst& burst,
                             uint32_t* rest) {
  return gather_scalar<false>(view, rows, n, burst, rest, [&](uint32_t r) {
    const FastLink link = fast_link(view.frame[rows[r]]);
    return link.family == family_of(form) && link.l3 == l3_of(form) ? link.l3 | link.tci << 16 : 0;
  });
}
uint32_t gather_linked_scalar(const BatchView& view, const LinkedRows& from, uint32_t first, uint32_t n,
                              FastBurst& burst, uint32_t* rest) {
  return gather_scalar<true>(view, from.row + first, n, burst, rest, [&](uint32_t r) { return from.link[first + r]; });
}

void append_parsed(const Packet& p, uint32_t row, uint32_t length, FastBurst& burst) {
  const uint32_t lane = burst.count++;
  burst.set_key(lane, p.key);
  burst.ip[lane] = p.frame + p.l3;
  burst.row[lane] = row;
  burst.length[lane] = length;
  burst.ip_bytes[lane] = p.end - p.l3;
  burst.places[lane] = p.l3 | uint32_t{p.l4} << 16;
  burst.link[lane] = p.l3;
  burst.tci[lane] = p.vlan_tci;
  burst.hop[lane] = burst.family == 6 ? p.ttl : load_le32(burst.ip[lane] + kHopWord);
  burst.rule[lane] = 0;
  burst.next_hop[lane] = 0;
  burst.flags[lane] = p.ip_flags;
  burst.odd |= uint64_t{1} << lane;
}

namespace {

inline void close(FastBurst& burst, bool trim) {
  burst.find_run();
  if (trim) return;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.ip_bytes[i] = burst.length[i] - burst.l3(i);
}
SLUICE_WIDE void close_wide(FastBurst& burst, bool trim) {
  close(burst, trim);
}
void close_narrow(FastBurst& burst, bool trim) {
  close(burst, trim);
}

// The packet's extent after the edits.
inline Extent extent_of(const FastBurst& burst, uint32_t lane) {
  const uint32_t l3 = burst.l3(lane), end = l3 + burst.ip_bytes[lane];
  return Extent{static_cast<int32_t>(l3 - burst.link[lane]), end, end, static_cast<uint16_t>(l3),
                static_cast<uint16_t>(burst.places[lane] >> 16)};
}

inline void store_hop(const FastBurst& burst, uint32_t lane) {
  if (burst.family == 6) {
    burst.ip[lane][7] = static_cast<uint8_t>(burst.hop[lane]);
  } else {
    store_le32(burst.ip[lane] + kHopWord, burst.hop[lane]);
  }
}

void edit_some(const BatchView& view, const FastBurst& burst, uint32_t mask) {
  for_lanes(mask, [&](uint32_t lane) {
    const uint32_t row = burst.row[lane];
    uint8_t* ip = burst.ip[lane];
    if ((burst.hopped >> lane & 1) != 0) store_hop(burst, lane);
    view.extent[row] = extent_of(burst, lane);
    if ((burst.rewritten >> lane & 1) == 0) return;
    // The EtherType before the network header is the family's already.
    std::memcpy(ip - burst.link[lane], burst.rewrite[lane], 12);
    if (burst.link[lane] != kEtherHeaderBytes) {
      store_be16(ip - 6, kEtherTypeVlan);
      store_be16(ip - 4, burst.tag[lane]);
    }
    view.port[row] = burst.port[lane];
  });
}

// Of the first `lanes`, which have all edits and an untagged link header.
inline void edit_frames(const FastBurst& burst, uint32_t lanes) {
  if (burst.family == 6) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < lanes; ++i) {
      uint8_t* ip = burst.ip[i];
      ip[7] = static_cast<uint8_t>(burst.hop[i]);
      std::memcpy(ip - kEtherHeaderBytes, burst.rewrite[i], 12);
    }
  } else {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < lanes; ++i) {
      uint8_t* ip = burst.ip[i];
      store_le32(ip + kHopWord, burst.hop[i]);
      std::memcpy(ip - kEtherHeaderBytes, burst.rewrite[i], 12);
    }
  }
}

// Of all lanes in use.
inline void edit_alike(const BatchView& view, const FastBurst& burst, bool extents_change) {
  edit_frames(burst, burst.count);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < burst.count; ++i) view.port[burst.row[i]] = burst.port[i];
  if (!extents_change) return;
  for (uint32_t i = 0; i < burst.count; ++i) view.extent[burst.row[i]] = extent_of(burst, i);
}

// The same of 32 lanes whose rows follow one another.
inline void edit_run(const BatchView& view, const FastBurst& burst, bool extents_change) {
  edit_frames(burst, FastBurst::kLanes);
  std::memcpy(view.port + burst.row[0], burst.port, FastBurst::kLanes * sizeof burst.port[0]);
  if (!extents_change) return;
  // Four columns of four lanes become four extents.
  using Four = uint32_t __attribute__((vector_size(16)));
  static_assert(sizeof(Extent) == sizeof(Four) && offsetof(Extent, end) == 4 && offsetof(Extent, wire_end) == 8 &&
                offsetof(Extent, l3) == 12 && offsetof(Extent, l4) == 14);
  Extent* extents = view.extent + burst.row[0];
  for (uint32_t i = 0; i < FastBurst::kLanes; i += 4) {
    Four places, bytes, link;
    std::memcpy(&places, burst.places + i, sizeof places);
    std::memcpy(&bytes, burst.ip_bytes + i, sizeof bytes);
    std::memcpy(&link, burst.link + i, sizeof link);
    const Four l3 = places & 0xffff, data = l3 - link, end = l3 + bytes;
    const Four a = __builtin_shufflevector(data, end, 0, 4, 1, 5), b = __builtin_shufflevector(end, places, 0, 4, 1, 5);
    const Four c = __builtin_shufflevector(data, end, 2, 6, 3, 7), d = __builtin_shufflevector(end, places, 2, 6, 3, 7);
    const Four made[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                          __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
    std::memcpy(extents + i, made, sizeof made);
  }
}

// What is arithmetic is done for all lanes at once, in loops of a constant length; then each frame is stored to.
inline void commit(const BatchView& view, const FastBurst& burst, uint32_t mask, bool headers) {
  if ((mask & burst.hopped & burst.rewritten) == burst.lanes()) {
    // Of lanes that are not in use too, which may make it slower, and no more.
    uint32_t moved = 0, tagged = 0;
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
      moved |= (burst.length[i] ^ (burst.ip_bytes[i] + burst.link[i])) | (burst.l3(i) ^ burst.link[i]);
      tagged |= burst.link[i] ^ kEtherHeaderBytes;
    }
    if (tagged == 0) return (burst.one_run ? edit_run : edit_alike)(view, burst, headers || moved != 0);
  }
  edit_some(view, burst, mask);
}
SLUICE_WIDE void commit_wide(const BatchView& view, const FastBurst& burst, uint32_t mask, bool headers) {
  commit(view, burst, mask, headers);
}
void commit_narrow(const BatchView& view, const FastBurst& burst, uint32_t mask, bool headers) {
  commit(view, burst, mask, headers);
}

// The codepoint is bits 16 to 21 of the key's last word (net/key4.h).
inline void note_egress(const BatchView& view, const FastBurst& burst, uint32_t mask) {
  const uint32_t* rest = burst.rest;
  uint32_t late[FastBurst::kLanes] = {};
  if (burst.late_keys != nullptr) {
    for (uint32_t i = 0; i < burst.count; ++i) {
      std::memcpy(&late[i], burst.late_keys + i * sizeof(Key4) + offsetof(Key4, rest), sizeof late[i]);
    }
    rest = late;
  }
  static_assert(Batch::kNoteBytesBits == 16);
  // Tagged, or longer than a note can hold, as IPv6 can be. Of lanes that are not in use too: then they are looked at.
  uint32_t odd = 0;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
    odd |= (burst.link[i] ^ kEtherHeaderBytes) | burst.ip_bytes[i] >> Batch::kNoteBytesBits;
  }
  if (burst.one_run && odd == 0 && mask == ~uint32_t{0}) {
    uint32_t notes[FastBurst::kLanes];
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) notes[i] = (rest[i] & 63u << 16) | burst.ip_bytes[i];
    std::memcpy(view.egress_note + burst.row[0], notes, sizeof notes);
    return;
  }
  for_lanes(mask, [&](uint32_t lane) {
    if (burst.link[lane] != kEtherHeaderBytes || burst.ip_bytes[lane] >> Batch::kNoteBytesBits != 0) return;
    view.egress_note[burst.row[lane]] = (rest[lane] & 63u << 16) | burst.ip_bytes[lane];
  });
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
  burst.family = 4;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.row[i] = from.row[i];
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.places[i] = FastBurst::kPlain;
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.link[i] = kFastL3;
  std::memcpy(burst.length, from.length, sizeof(uint32_t) * FastBurst::kLanes);
  std::memcpy(burst.ip_bytes, from.ip_bytes, sizeof(uint32_t) * FastBurst::kLanes);
  std::memcpy(burst.hop, from.hop, sizeof(uint32_t) * FastBurst::kLanes);
  burst.find_run();
  if (burst.one_run) {
    uint8_t* const* frames = view.frame + burst.row[0];
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.ip[i] = frames[i] + kFastL3;
  } else {
    for (uint32_t i = 0; i < n; ++i) burst.ip[i] = view.frame[burst.row[i]] + kFastL3;
  }
}
SLUICE_WIDE void restore_wide(const FastKept& from, uint32_t n, const BatchView& view, FastBurst& burst) {
  restore(from, n, view, burst);
}
void restore_narrow(const FastKept& from, uint32_t n, const BatchView& view, FastBurst& burst) {
  restore(from, n, view, burst);
}

inline uint32_t take(const uint64_t* words, uint32_t usual, FastBurst& burst) {
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.rule[i] = result_rule(words[i]);
  for (uint32_t i = 0; i < FastBurst::kLanes; ++i) burst.next_hop[i] = result_next_hop(words[i]);
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
  static constexpr FastCode kCode{&close_narrow, &commit_narrow,  &note_egress_narrow,
                                  &keep_narrow,  &restore_narrow, &take_narrow};
  return kCode;
}
const FastCode& fast_code() {
  static constexpr FastCode kWide{&close_wide, &commit_wide, &note_egress_wide, &keep_wide, &restore_wide, &take_wide};
  return has_wide() ? kWide : plain_fast_code();
}

void add_rows(const FastBurst& burst, uint32_t mask, Selection& to) {
  if (!burst.one_run) {
    // Most rows lie in their neighbour's word.
    uint32_t word = 0;
    uint64_t bits = 0;
    for_lanes(mask, [&](uint32_t lane) {
      const uint32_t row = burst.row[lane];
      if (row / 64 != word) {
        to.or_word(word, bits);
        word = row / 64;
        bits = 0;
      }
      bits |= uint64_t{1} << row % 64;
    });
    to.or_word(word, bits);
    return;
  }
  const uint32_t word = burst.row[0] / 64;
  const uint32_t shift = burst.row[0] % 64;
  to.or_word(word, uint64_t{mask} << shift);
  const uint64_t over = shift == 0 ? 0 : uint64_t{mask} >> (64 - shift);
  if (over != 0) to.or_word(word + 1, over);
}

namespace {

// What the burst knows of the network and link headers, as registers or a batch's annotation have it.
template <typename Registers>
inline void set_headers(const FastBurst& burst, uint32_t lane, Registers& to) {
  const uint8_t* ip = burst.ip[lane];
  const bool six = burst.family == 6;
  to.rule = burst.rule[lane];
  to.next_hop = burst.next_hop[lane];
  if ((burst.marked >> lane & 1) != 0) to.mark = burst.mark[lane];
  if ((burst.detailed >> lane & 1) != 0) to.icmp_detail = burst.detail[lane];
  to.ether_type = six ? kEtherTypeIpv6 : kEtherTypeIpv4;
  to.vlan_count = static_cast<uint8_t>((burst.l3(lane) - kEtherHeaderBytes) / kVlanTagBytes);
  to.vlan_tci = to.vlan_count == 0 ? uint16_t{0} : static_cast<uint16_t>(burst.tci[lane]);
  if ((burst.odd >> lane & 1) != 0) {
    to.ip_flags = burst.flags[lane];
  } else {
    to.ip_flags = !six && (ip[6] & 0x40) != 0 ? Headers::kDontFragment : 0;
  }
  to.ttl = six ? ip[7] : ip[8];
}

}  // namespace

void registers_of(const BatchView& view, const FastBurst& burst, uint32_t lane, Packet& p) {
  view.load(burst.row[lane], 0, p);
  p.key = burst.key(lane);
  set_headers(burst, lane, p);
}

void store_registers(const BatchView& view, const FastBurst& burst, uint32_t mask, FieldMask live) {
  const bool keys = (live & (kFieldKey | kFieldDestination)) != 0;
  for_lanes(mask, [&](uint32_t lane) {
    set_headers(burst, lane, view.annotation[burst.row[lane]]);
    if (keys) view.key[burst.row[lane]] = burst.key(lane);
  });
}

}  // namespace sluice
