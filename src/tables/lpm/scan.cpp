#include "tables/lpm/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "tables/image.h"

namespace sluice {
namespace {

constexpr unsigned kMaxLog2 = 31;  // bits of a filter, slots of a table

ScanRoute4 as_scan(const Route4& r) {
  return {r.address, r.next_hop, r.length, 0};
}
ScanRoute6 as_scan(const Route6& r) {
  return {r.hi, r.lo, r.next_hop, r.length, {}};
}
ScanFamily4::Key key_of(const ScanRoute4& r) {
  return {r.prefix};
}
ScanFamily6::Key key_of(const ScanRoute6& r) {
  return {r.hi, r.lo};
}

template <typename Family, typename Given>
Result<FibPlan> plan_linear(std::span<const Given> routes) {
  if (routes.size() > UINT32_MAX) return Error("linear: the table has more than 2^32 routes");
  auto sorted = std::make_shared<std::vector<typename Family::Route>>();
  sorted->reserve(routes.size());
  for (const Given& r : routes) sorted->push_back(as_scan(r));
  std::stable_sort(sorted->begin(), sorted->end(), [](const auto& a, const auto& b) { return a.length > b.length; });
  FibPlan plan;
  plan.bytes = sizeof(ScanHeader) + sorted->size() * sizeof(typename Family::Route);
  plan.write = [sorted](std::span<std::byte> out) {
    ScanHeader header{};
    header.kind = static_cast<uint32_t>(ScanKind::kLinear);
    header.count = static_cast<uint32_t>(sorted->size());
    std::memcpy(out.data(), &header, sizeof header);
    if (sorted->empty()) return;
    std::memcpy(out.data() + sizeof header, sorted->data(), sorted->size() * sizeof((*sorted)[0]));
  };
  return plan;
}

template <typename Family, typename Given>
Result<FibPlan> plan_bloom(std::span<const Given> routes, unsigned filter_log2) {
  using Route = typename Family::Route;
  size_t counts[Family::kBits + 1] = {};
  for (const Given& r : routes) ++counts[r.length];
  auto lengths = std::make_shared<std::vector<ScanLength>>();
  size_t in_use = 0;
  for (size_t count : counts) in_use += count != 0 ? 1 : 0;
  auto units = [](size_t bytes) { return (bytes + 63) / 64; };
  size_t at = units(sizeof(ScanHeader) + in_use * sizeof(ScanLength));
  for (unsigned length = Family::kBits + 1; length-- > 0;) {
    if (counts[length] == 0) continue;
    ScanLength l{};
    l.length = static_cast<uint8_t>(length);
    l.filter_log2 = static_cast<uint8_t>(
        std::max<unsigned>(filter_log2, static_cast<unsigned>(std::bit_width(counts[length] * 8 - 1))));
    l.slots_log2 = static_cast<uint8_t>(std::bit_width(counts[length] * 2 - 1));
    l.filter_at = static_cast<uint32_t>(at);
    at += units((size_t{1} << l.filter_log2) / 8);
    l.slots_at = static_cast<uint32_t>(at);
    at += units((size_t{1} << l.slots_log2) * sizeof(Route));
    if (at > UINT32_MAX || l.filter_log2 > kMaxLog2) return Error("bloom: the table has too many routes");
    lengths->push_back(l);
  }
  FibPlan plan;
  plan.bytes = at * 64;
  plan.write = [lengths, routes](std::span<std::byte> out) {
    ScanHeader header{};
    header.kind = static_cast<uint32_t>(ScanKind::kBloom);
    header.count = static_cast<uint32_t>(lengths->size());
    std::memcpy(out.data(), &header, sizeof header);
    const ScanLength* of[Family::kBits + 1] = {};
    for (const ScanLength& l : *lengths) of[l.length] = &l;
    if (!lengths->empty()) {
      std::memcpy(out.data() + sizeof header, lengths->data(), lengths->size() * sizeof(ScanLength));
    }
    for (const Given& given : routes) {
      const Route route = as_scan(given);
      const ScanLength& l = *of[route.length];
      const uint64_t hash = Family::hash(key_of(route), route.length);
      auto* filter = reinterpret_cast<uint32_t*>(out.data() + size_t{l.filter_at} * 64);
      for (const uint64_t half : {hash, hash >> 32}) {
        const auto bit = static_cast<uint32_t>(half) & ((1u << l.filter_log2) - 1);
        filter[bit / 32] |= 1u << bit % 32;
      }
      auto* slots = reinterpret_cast<Route*>(out.data() + size_t{l.slots_at} * 64);
      uint32_t slot = scan_slot(hash, l.slots_log2);
      while (slots[slot].next_hop != 0) slot = (slot + 1) & ((1u << l.slots_log2) - 1);
      slots[slot] = route;
    }
  };
  return plan;
}

}  // namespace

template <typename Family>
Result<ScanView<Family>> ScanView<Family>::open(std::span<const std::byte> section, uint32_t next_hop_count,
                                                bool trusted) {
  const auto* header = section_array<ScanHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("{} bytes are too few", section.size()));
  ScanView view;
  view.base_ = section.data();
  view.kind_ = static_cast<ScanKind>(header->kind);
  view.count_ = header->count;
  if (view.kind_ == ScanKind::kLinear) {
    const auto* routes = section_array<Route>(section, sizeof(ScanHeader), header->count);
    if (routes == nullptr) return Error(fmt::format("linear: {} routes do not fit", header->count));
    for (uint32_t i = 0; i < header->count && !trusted; ++i) {
      if (routes[i].length > Family::kBits || routes[i].next_hop > next_hop_count) {
        return Error(
            fmt::format("linear: route {} has length {} and next hop {}", i, routes[i].length, routes[i].next_hop));
      }
    }
    return view;
  }
  if (view.kind_ != ScanKind::kBloom) return Error(fmt::format("a table of kind {}", header->kind));
  const auto* lengths = section_array<ScanLength>(section, sizeof(ScanHeader), header->count);
  if (lengths == nullptr || header->count > Family::kBits + 1) {
    return Error(fmt::format("bloom: {} lengths do not fit", header->count));
  }
  unsigned before = Family::kBits + 1;
  for (uint32_t i = 0; i < header->count; ++i) {
    const ScanLength& l = lengths[i];
    if (l.length >= before || l.filter_log2 < 9 || l.filter_log2 > kMaxLog2 || l.slots_log2 < 1 ||
        l.slots_log2 > kMaxLog2) {
      return Error(fmt::format("bloom: record {} has length {}, {} and {}", i, l.length, l.filter_log2, l.slots_log2));
    }
    before = l.length;
    const uint64_t count = uint64_t{1} << l.slots_log2;
    const auto* filter =
        section_array<uint32_t>(section, uint64_t{l.filter_at} * 64, (uint64_t{1} << l.filter_log2) / 32);
    const auto* slots = section_array<Route>(section, uint64_t{l.slots_at} * 64, count);
    if (filter == nullptr || slots == nullptr) return Error(fmt::format("bloom: length {} lies outside", l.length));
    if (trusted) continue;
    bool free = false;
    for (uint64_t s = 0; s < count; ++s) {
      free |= slots[s].next_hop == 0;
      if (slots[s].next_hop > next_hop_count) {
        return Error(fmt::format("bloom: a route of length {} has next hop {}", l.length, slots[s].next_hop));
      }
    }
    if (!free) return Error(fmt::format("bloom: length {} has no free slot", l.length));
  }
  return view;
}

template class ScanView<ScanFamily4>;
template class ScanView<ScanFamily6>;

Result<FibPlan> plan_linear4(const Rib& rib) {
  return plan_linear<ScanFamily4>(rib.routes4());
}
Result<FibPlan> plan_linear6(const Rib& rib) {
  return plan_linear<ScanFamily6>(rib.routes6());
}
Result<FibPlan> plan_bloom4(const Rib& rib, unsigned filter_log2) {
  return plan_bloom<ScanFamily4>(rib.routes4(), filter_log2);
}
Result<FibPlan> plan_bloom6(const Rib& rib, unsigned filter_log2) {
  return plan_bloom<ScanFamily6>(rib.routes6(), filter_log2);
}

}  // namespace sluice
