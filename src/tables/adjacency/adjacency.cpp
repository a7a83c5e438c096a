#include "tables/adjacency/adjacency.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <numeric>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tables/adjacency/adjacency_model.h"

namespace sluice {

Result<AdjacencyView> AdjacencyView::open(std::span<const std::byte> groups, std::span<const std::byte> buckets,
                                          std::span<const std::byte> adjacencies, bool trusted) {
  AdjacencyView view;
  const size_t group_count = groups.size() / sizeof(AdjacencyGroup);
  const size_t bucket_count = buckets.size() / sizeof(uint32_t);
  const size_t adjacency_count = adjacencies.size() / sizeof(Adjacency);
  view.groups_ = section_array<AdjacencyGroup>(groups, 0, group_count);
  view.buckets_ = section_array<uint32_t>(buckets, 0, bucket_count);
  view.adjacencies_ = section_array<Adjacency>(adjacencies, 0, adjacency_count);
  if (groups.size() % sizeof(AdjacencyGroup) != 0 || buckets.size() % sizeof(uint32_t) != 0 ||
      adjacencies.size() % sizeof(Adjacency) != 0 || group_count == 0 || group_count > Rib::kMaxNextHops + 1 ||
      bucket_count > UINT32_MAX || adjacency_count > UINT32_MAX || view.groups_ == nullptr ||
      (bucket_count > 0 && view.buckets_ == nullptr) || (adjacency_count > 0 && view.adjacencies_ == nullptr)) {
    return Error(fmt::format("adjacencies: {} bytes of groups, {} of buckets, {} of adjacencies", groups.size(),
                             buckets.size(), adjacencies.size()));
  }
  view.group_count_ = static_cast<uint32_t>(group_count);
  view.adjacency_count_ = static_cast<uint32_t>(adjacency_count);
  if (trusted) return view;
  for (uint32_t i = 0; i < view.group_count_; ++i) {
    const AdjacencyGroup& g = view.groups_[i];
    const size_t limit = g.count <= 1 ? adjacency_count : bucket_count;
    if (g.first > limit || g.count > limit - g.first || (g.flags != 0 && g.count != 0))
      return Error(fmt::format("adjacencies: the group of next hop {} lies outside", i));
  }
  for (size_t b = 0; b < bucket_count; ++b) {
    if (view.buckets_[b] >= adjacency_count) return Error(fmt::format("adjacencies: bucket {} leads outside", b));
  }
  return view;
}

uint32_t AdjacencyView::select_plain_scalar(const uint32_t* next_hops, const uint32_t* ip_bytes,
                                            const uint8_t** rewrites, uint16_t* ports) const {
  uint32_t plain = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if (next_hops[i] >= group_count_) continue;
    const AdjacencyGroup group = groups_[next_hops[i]];
    if (group.count != 1) continue;
    const Adjacency& a = adjacencies_[group.first];
    if (a.vlan != 0 || (a.mtu != 0 && ip_bytes[i] > a.mtu)) continue;
    rewrites[i] = a.rewrite;
    ports[i] = a.port;
    plain |= uint32_t{1} << i;
  }
  return plain;
}

#if defined(__x86_64__)
const bool kHasAvx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
// GCC 12 takes the registers that its own headers leave undefined on purpose for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
// A group, and eight bytes of an adjacency, are a gather of eight lanes each.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) uint32_t AdjacencyView::select_plain_avx512(
    const uint32_t* next_hops, const uint32_t* ip_bytes, const uint8_t** rewrites, uint16_t* ports) const {
  static_assert(offsetof(AdjacencyGroup, first) == 0 && offsetof(AdjacencyGroup, count) == 4);
  static_assert(offsetof(Adjacency, rewrite) == 0 && offsetof(Adjacency, port) == 12 &&
                offsetof(Adjacency, vlan) == 14 && offsetof(Adjacency, mtu) == 16);
  const __m512i zero = _mm512_setzero_si512();
  const __m512i low16 = _mm512_set1_epi64(0xffff);
  const __m512i base = _mm512_set1_epi64(static_cast<long long>(reinterpret_cast<uintptr_t>(adjacencies_)));
  uint32_t plain = 0;
  for (uint32_t at = 0; at < 32; at += 8) {
    const __m512i next_hop =
        _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(next_hops + at)));
    const __m512i bytes = _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(ip_bytes + at)));
    __mmask8 lanes = _mm512_cmplt_epu64_mask(next_hop, _mm512_set1_epi64(group_count_));
    const __m512i group = _mm512_mask_i64gather_epi64(zero, lanes, next_hop, groups_, sizeof(AdjacencyGroup));
    lanes = _mm512_mask_cmpeq_epi64_mask(lanes, _mm512_and_si512(_mm512_srli_epi64(group, 32), low16),
                                         _mm512_set1_epi64(1));
    const __m512i first = _mm512_and_si512(group, _mm512_set1_epi64(0xffffffff));
    const __m512i place = _mm512_add_epi64(base, _mm512_slli_epi64(first, 5));
    static_assert(sizeof(Adjacency) == 1 << 5);
    // Port, VLAN and MTU, 16 bits each.
    const __m512i way =
        _mm512_mask_i64gather_epi64(zero, lanes, place, reinterpret_cast<const void*>(offsetof(Adjacency, port)), 1);
    const __m512i mtu = _mm512_and_si512(_mm512_srli_epi64(way, 32), low16);
    lanes &= _mm512_testn_epi64_mask(way, _mm512_set1_epi64(0xffff0000)) &
             (_mm512_testn_epi64_mask(mtu, mtu) | _mm512_cmpge_epu64_mask(mtu, bytes));
    _mm512_storeu_si512(rewrites + at, place);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(ports + at), _mm512_cvtepi64_epi16(way));
    plain |= static_cast<uint32_t>(lanes) << at;
  }
  return plain;
}
#pragma GCC diagnostic pop
#endif

uint32_t AdjacencyView::select_plain(const uint32_t* next_hops, const uint32_t* ip_bytes, const uint8_t** rewrites,
                                     uint16_t* ports) const {
#if defined(__x86_64__)
  if (kHasAvx512) return select_plain_avx512(next_hops, ip_bytes, rewrites, ports);
#endif
  return select_plain_scalar(next_hops, ip_bytes, rewrites, ports);
}

}  // namespace sluice
