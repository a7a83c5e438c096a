// Next hop -> where the packet really goes: a group of adjacencies, chosen by flow hash. For host and device.
//
//   kAdjacencyGroups section:  AdjacencyGroup[n > next hops], indexed by next-hop id (0 is never used)
//   kAdjacencyBuckets section: uint32_t[n], indices of adjacencies
//   kAdjacencies section:      Adjacency[n], one for each neighbour, whatever number of groups it is in
//
//   count 1:  the adjacency is `first`: two loads
//   count k:  bucket = floor(hash * k / 2^32), the adjacency is buckets[first + bucket]: three loads
//
// With as many buckets as the weights need that is the hash-threshold of RFC 2992; with a fixed number of buckets that
// keep their neighbours it is resilient hashing (resilient.h). A neighbour whose address changes is one store of 32
// bytes, however many next hops lead to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/hd.h"
#include "base/prefetch.h"
#include "base/result.h"
#include "net/types.h"

namespace sluice {

// One neighbour, as the Ethernet rewrite wants it. 32 bytes: one sector on a device, two to a cache line.
struct alignas(32) Adjacency {
  uint8_t rewrite[12];  // destination MAC, source MAC: the first 12 bytes of the frame, one copy
  uint16_t port;        // output port
  uint16_t vlan;        // VLAN id 1..4094 to tag with, or 0: none
  uint16_t mtu;         // bytes of the IP packet
  uint16_t reserved[7];
};
static_assert(sizeof(Adjacency) == 32 && std::is_trivially_copyable_v<Adjacency>);

struct AdjacencyGroup {
  enum Flags : uint16_t {
    kDrop = 1,              // configured to be discarded: drop or blackhole
    kLocal = 2,             // for this host
    kPunt = 4,              // for the slow path
    kBlackhole = 8,         // written as blackhole; kDrop is set too
    kHostUnreachable = 16,  // the sender is told so: ICMP 3/1, ICMPv6 1/3
    kNetUnreachable = 32,   // ICMP 3/0, ICMPv6 1/0
    kProhibited = 64,       // ICMP 3/13, ICMPv6 1/1
  };
  uint32_t first;  // of its buckets, or with one bucket the adjacency itself
  uint16_t count;  // buckets; 0 with no flags: unresolved
  uint16_t flags;
};
static_assert(sizeof(AdjacencyGroup) == 8);

// Non-owning, trivially copyable.
class AdjacencyView {
 public:
  // Errors: sizes that are no multiple of a record; a group whose buckets, or a bucket whose adjacency, lies outside.
  static Result<AdjacencyView> open(std::span<const std::byte> groups, std::span<const std::byte> buckets,
                                    std::span<const std::byte> adjacencies, bool trusted = false);

  // Where a packet with this next hop and flow hash goes. nullptr: nowhere (unknown next hop, unresolved, or a group
  // with flags): the caller reads flags() for the reason.
  SLUICE_HD const Adjacency* select(uint32_t next_hop, uint32_t hash) const {
    return select_by(next_hop, [hash] { return hash; });
  }
  // The same with the hash as a function, which only a group of several buckets calls.
  template <typename Hash>
  SLUICE_HD const Adjacency* select_by(uint32_t next_hop, Hash&& hash) const {
    if (next_hop >= group_count_) return nullptr;
    const AdjacencyGroup group = groups_[next_hop];
    if (group.count <= 1) return group.count == 0 ? nullptr : adjacencies_ + group.first;
    const uint32_t bucket = static_cast<uint32_t>((uint64_t{hash()} * group.count) >> 32);
    return adjacencies_ + buckets_[group.first + bucket];
  }
  // Host only. For 32 lanes at once: those whose next hop has one adjacency, without a VLAN, that takes `ip_bytes`.
  // rewrites and ports are set for these, and hold nothing of use for others. Next hops may be anything.
  uint32_t select_plain(const uint32_t* next_hops, const uint32_t* ip_bytes, const uint8_t** rewrites,
                        uint16_t* ports) const;
  // The same without vector instructions, which is what the other is held to.
  uint32_t select_plain_scalar(const uint32_t* next_hops, const uint32_t* ip_bytes, const uint8_t** rewrites,
                               uint16_t* ports) const;
  // AdjacencyGroup::Flags; 0 for a next hop that forwards, or that nothing is known of.
  SLUICE_HD uint32_t flags(uint32_t next_hop) const { return next_hop < group_count_ ? groups_[next_hop].flags : 0; }
  SLUICE_HD void prefetch([[maybe_unused]] uint32_t next_hop) const {
#if !defined(__CUDA_ARCH__)
    if (next_hop < group_count_) prefetch_read(groups_ + next_hop);
#endif
  }

  uint32_t group_count() const {
    return group_count_;
  }  // next-hop ids are below it
  std::span<const Adjacency> adjacencies() const {
    return {adjacencies_, adjacency_count_};
  }
  AdjacencyGroup group(uint32_t next_hop) const {
    return next_hop < group_count_ ? groups_[next_hop] : AdjacencyGroup{};
  }

  // Calls f(pointer) for each pointer into the image, as a reference: how a copy in another memory space is made.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    f(groups_);
    f(buckets_);
    f(adjacencies_);
  }

 private:
  uint32_t select_plain_avx512(const uint32_t* next_hops, const uint32_t* ip_bytes, const uint8_t** rewrites,
                               uint16_t* ports) const;
  const AdjacencyGroup* groups_ = nullptr;
  const uint32_t* buckets_ = nullptr;
  const Adjacency* adjacencies_ = nullptr;
  uint32_t group_count_ = 0;
  uint32_t adjacency_count_ = 0;
};
static_assert(std::is_trivially_copyable_v<AdjacencyView>);

}  // namespace sluice
