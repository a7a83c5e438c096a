// `example`: the skeleton of a route lookup; copy it with `./dev new lpm NAME`. Host and device.
//
// The longest match changes at the ends of prefixes only (intervals.h): the places where it does, in order, and a
// binary search among them.
//
//   section: ExampleLpmHeader (64 bytes) | count begins | count next hops (u16)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/hd.h"
#include "base/result.h"
#include "tables/lpm/plan.h"
#include "tables/lpm/rib.h"

namespace sluice {

struct ExampleLpmHeader {
  uint32_t count;
  uint8_t reserved[60];
};
static_assert(sizeof(ExampleLpmHeader) == 64);

// An IPv6 address as a place on the line of addresses.
struct ExampleLpmKey6 {
  uint64_t hi, lo;
  SLUICE_HD friend bool operator<(const ExampleLpmKey6& a, const ExampleLpmKey6& b) {
    return a.hi != b.hi ? a.hi < b.hi : a.lo < b.lo;
  }
};

// Non-owning, trivially copyable. Key: uint32_t or ExampleLpmKey6.
template <typename Key>
class ExampleLpmSearch {
 public:
  // An image from disk is untrusted: everything that a lookup relies on is checked here, once. Errors: sizes that do
  // not fit, no interval, begins out of order, a next hop past next_hop_count.
  static Result<ExampleLpmSearch> open(std::span<const std::byte> section, uint32_t next_hop_count);

  // The next hop of the last interval that begins at `address` or before it; the first begins at 0.
  SLUICE_HD uint32_t find(Key address) const {
    uint32_t low = 0, high = count_;
    while (high - low > 1) {
      const uint32_t middle = low + (high - low) / 2;
      if (address < begins_[middle]) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return next_hops_[low];
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(begins_);
    f(next_hops_);
  }

 private:
  const Key* begins_ = nullptr;
  const uint16_t* next_hops_ = nullptr;
  uint32_t count_ = 0;
};

class Example4View : public ExampleLpmSearch<uint32_t> {
 public:
  static Result<Example4View> open(std::span<const std::byte> section, uint32_t next_hop_count);

  // The next-hop id for `address` (host order), or 0.
  SLUICE_HD uint32_t lookup(uint32_t address) const { return find(address); }
  // Asks for the memory that lookup(address) reads first, where that is known.
  SLUICE_HD void prefetch(uint32_t) const {}
  // Any number of addresses; the first form chooses the instruction set itself.
  void lookup_bulk(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    for (size_t i = 0; i < n; ++i) next_hops[i] = lookup(addresses[i]);
  }
  void lookup_bulk(LpmIsa, const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }
  // The same for the packets of one batch.
  void lookup_burst(const uint32_t* addresses, uint32_t* next_hops, size_t n) const {
    lookup_bulk(addresses, next_hops, n);
  }
};
static_assert(std::is_trivially_copyable_v<Example4View>);

class Example6View : public ExampleLpmSearch<ExampleLpmKey6> {
 public:
  static Result<Example6View> open(std::span<const std::byte> section, uint32_t next_hop_count);

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
static_assert(std::is_trivially_copyable_v<Example6View>);

Result<FibPlan> plan_example4(const Rib& rib);
Result<FibPlan> plan_example6(const Rib& rib);

struct ExampleLpm {
  static constexpr const char* kName = "example";  // images carry it: 8 bytes at most
  static constexpr const char* kSummary = "binary search among the places where the longest match changes";
  // Tested with all others, but in no product. Without this line it is.
  static constexpr bool kOffered = false;
  // An algorithm for one family leaves the other's View and plan out.
  using View4 = Example4View;
  using View6 = Example6View;
  static Result<FibPlan> plan4(const Rib& rib) { return plan_example4(rib); }
  static Result<FibPlan> plan6(const Rib& rib) { return plan_example6(rib); }
};

}  // namespace sluice
