// `linear` and `bloom`: the two lookups of Ferraris' GPU routers, IPv4 and IPv6, for host and device. Slow next to the
// others; kept because users compare with them, and as two more opinions in every test. One View serves both.
//
//   section: ScanHeader (64 bytes) | records
//   linear   records are routes, longest first; the first that covers the address answers
//   bloom    records are the prefix lengths in use, longest first, each with a Bloom filter (Bloom, CACM 1970) of 2^20
//            bits or more and two hashes, and a hash table of its routes: a filter that says "maybe" is verified there
//
// A filter has 2^20 bits, or for a length with many routes the power of two that leaves eight bits or more a route.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/hd.h"
#include "base/result.h"
#include "net/flow_key.h"
#include "net/types.h"
#include "tables/lpm/plan.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct ScanHeader {
  uint32_t kind;  // ScanKind
  uint32_t count;
  uint8_t reserved[56];
};
static_assert(sizeof(ScanHeader) == 64);
enum class ScanKind : uint32_t { kLinear = 0, kBloom = 1 };

// A route; next_hop 0 is a free slot of a hash table.
struct ScanRoute4 {
  uint32_t prefix;
  uint16_t next_hop;
  uint8_t length;
  uint8_t reserved;
};
static_assert(sizeof(ScanRoute4) == 8);
struct ScanRoute6 {
  uint64_t hi, lo;
  uint16_t next_hop;
  uint8_t length;
  uint8_t reserved[5];
};
static_assert(sizeof(ScanRoute6) == 24);

struct ScanLength {
  uint8_t length;
  uint8_t filter_log2;  // bits
  uint8_t slots_log2;
  uint8_t reserved;
  uint32_t filter_at;  // from the start of the section, in 64 bytes
  uint32_t slots_at;   // the same
};
static_assert(sizeof(ScanLength) == 12);

// What differs between the families.
struct ScanFamily4 {
  using Route = ScanRoute4;
  static constexpr unsigned kBits = 32;
  struct Key {
    uint32_t address;
  };
  SLUICE_HD static Key cut(Key key, unsigned length) { return {key.address & high_mask32(length)}; }
  SLUICE_HD static bool same(Key a, const Route& b) { return a.address == b.prefix; }
  SLUICE_HD static uint64_t hash(Key key, unsigned length) { return mix64(uint64_t{length + 1} << 32 | key.address); }
};
struct ScanFamily6 {
  using Route = ScanRoute6;
  static constexpr unsigned kBits = 128;
  struct Key {
    uint64_t hi, lo;
  };
  SLUICE_HD static Key cut(Key key, unsigned length) {
    mask_address(key.hi, key.lo, length);
    return key;
  }
  SLUICE_HD static bool same(Key a, const Route& b) { return a.hi == b.hi && a.lo == b.lo; }
  SLUICE_HD static uint64_t hash(Key key, unsigned length) { return mix64(mix64(key.hi + length) ^ key.lo); }
};

// The filter's two bits come from the low and the high half of the hash, the slot from its product with an odd
// constant.
SLUICE_HD uint32_t scan_slot(uint64_t hash, unsigned slots_log2) {
  return static_cast<uint32_t>(hash * 0x9e3779b97f4a7c15ull >> (64 - slots_log2));
}

// Non-owning, trivially copyable.
template <typename Family>
class ScanView {
 public:
  using Key = typename Family::Key;
  using Route = typename Family::Route;

  // Errors: sizes or lengths that do not fit, lengths out of order, a hash table without a free slot (a search could
  // not end), a next hop past next_hop_count.
  // `trusted`: only the sizes are checked, because the builder is this process or a check has found nothing before.
  static Result<ScanView> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false);

  SLUICE_HD uint32_t find(Key key) const {
    const std::byte* records = base_ + sizeof(ScanHeader);
    if (kind_ == ScanKind::kLinear) {
      const auto* routes = reinterpret_cast<const Route*>(records);
      for (uint32_t i = 0; i < count_; ++i) {
        const Route route = routes[i];
        if (Family::same(Family::cut(key, route.length), route)) return route.next_hop;
      }
      return 0;
    }
    const auto* lengths = reinterpret_cast<const ScanLength*>(records);
    for (uint32_t i = 0; i < count_; ++i) {
      const ScanLength at = lengths[i];
      const Key prefix = Family::cut(key, at.length);
      const uint64_t hash = Family::hash(prefix, at.length);
      const auto* filter = reinterpret_cast<const uint32_t*>(base_ + size_t{at.filter_at} * 64);
      const uint32_t bits = (1u << at.filter_log2) - 1;
      const uint32_t one = static_cast<uint32_t>(hash) & bits, two = static_cast<uint32_t>(hash >> 32) & bits;
      if ((filter[one / 32] >> one % 32 & filter[two / 32] >> two % 32 & 1) == 0) continue;
      const auto* slots = reinterpret_cast<const Route*>(base_ + size_t{at.slots_at} * 64);
      const uint32_t mask = (1u << at.slots_log2) - 1;
      for (uint32_t slot = scan_slot(hash, at.slots_log2);; slot = (slot + 1) & mask) {
        const Route route = slots[slot];
        if (route.next_hop == 0) break;  // the filter was wrong
        if (Family::same(prefix, route)) return route.next_hop;
      }
    }
    return 0;
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(base_);
  }

 private:
  const std::byte* base_ = nullptr;  // the section
  ScanKind kind_ = ScanKind::kLinear;
  uint32_t count_ = 0;
};

class Scan4View : public ScanView<ScanFamily4> {
 public:
  static Result<Scan4View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false) {
    auto view = ScanView::open(section, next_hop_count, trusted);
    if (!view) return std::move(view).error();
    return Scan4View(*view);
  }
  Scan4View() = default;
  explicit Scan4View(const ScanView& view) : ScanView(view) {}

  // The next-hop id for `address` (host order), or 0.
  SLUICE_HD uint32_t lookup(uint32_t address) const { return find({address}); }
  SLUICE_HD void prefetch(uint32_t) const {}
  void lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(addresses[i]);
  }
  void lookup_bulk(LpmIsa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }
  void lookup_burst(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }
};
static_assert(std::is_trivially_copyable_v<Scan4View>);

class Scan6View : public ScanView<ScanFamily6> {
 public:
  static Result<Scan6View> open(std::span<const std::byte> section, uint32_t next_hop_count, bool trusted = false) {
    auto view = ScanView::open(section, next_hop_count, trusted);
    if (!view) return std::move(view).error();
    return Scan6View(*view);
  }
  Scan6View() = default;
  explicit Scan6View(const ScanView& view) : ScanView(view) {}

  SLUICE_HD uint32_t lookup(uint64_t hi, uint64_t lo) const { return find({hi, lo}); }
  SLUICE_HD void prefetch(uint64_t, uint64_t) const {}
  void lookup_bulk(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(hi[i], lo[i]);
  }
  void lookup_bulk(LpmIsa, const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    lookup_bulk(hi, lo, next_hops, n);
  }
  void lookup_burst(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    lookup_bulk(hi, lo, next_hops, n);
  }
};
static_assert(std::is_trivially_copyable_v<Scan6View>);

Result<FibPlan> plan_linear4(const Rib& rib);
Result<FibPlan> plan_linear6(const Rib& rib);
// A length with up to 2^17 routes gets a filter of 2^filter_log2 bits.
Result<FibPlan> plan_bloom4(const Rib& rib, unsigned filter_log2 = 20);
Result<FibPlan> plan_bloom6(const Rib& rib, unsigned filter_log2 = 20);

}  // namespace sluice
