#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "generate/random.h"
#include "generate/routes.h"
#include "net/flow_key.h"
#include "net/text.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxCount = 4'000'000;
constexpr uint64_t kOtherHop = chance_threshold(1.0 / 7);

// Each family in its own shape: how far splits go at first, and the bits of an address.
struct Family4 {
  using Route = Route4;
  static constexpr unsigned kBits = 32, kUsual = 24;
  static IpPrefix prefix(const Route4& r) { return {{0, r.address, 4}, r.length}; }
  static Route4 part(const Route4& r, unsigned length, uint64_t which) {
    const unsigned by = length - r.length;
    const auto bits = static_cast<uint32_t>(by >= 32 ? which : which & ((uint64_t{1} << by) - 1));
    return {r.address | bits << (32 - length), r.next_hop, static_cast<uint8_t>(length), 0};
  }
  static uint64_t hash(const Route4& r) { return mix64(r.key()); }
};
struct Family6 {
  using Route = Route6;
  static constexpr unsigned kBits = 128, kUsual = 48;
  static IpPrefix prefix(const Route6& r) { return {{r.hi, r.lo, 6}, r.length}; }
  // Of the bits between the two lengths up to 32 are drawn.
  static Route6 part(const Route6& r, unsigned length, uint64_t which) {
    const unsigned by = std::min(length - r.length, 32u);
    const unsigned __int128 bits = static_cast<unsigned __int128>(which & ((uint64_t{1} << by) - 1)) << (128 - length);
    return {r.hi | static_cast<uint64_t>(bits >> 64), r.lo | static_cast<uint64_t>(bits), r.next_hop,
            static_cast<uint8_t>(length)};
  }
  static uint64_t hash(const Route6& r) { return mix64(mix64(r.hi) ^ r.lo) + r.length; }
};

template <typename Family>
bool resize(std::span<const typename Family::Route> given, uint32_t count, Random& random,
            std::vector<typename Family::Route>& out) {
  using Route = typename Family::Route;
  if (count <= given.size()) {
    // A sample without repetition in the table's order (Knuth, TAOCP 2, 3.4.2, algorithm S).
    uint64_t left = count;
    for (size_t i = 0; i < given.size() && left > 0; ++i) {
      if (random.below(given.size() - i) >= left) continue;
      out.push_back(given[i]);
      --left;
    }
    return true;
  }
  if (given.empty()) return false;
  struct Hash {
    size_t operator()(const Route& r) const { return Family::hash(r); }
  };
  struct Same {
    bool operator()(const Route& a, const Route& b) const { return Family::prefix(a) == Family::prefix(b); }
  };
  std::unordered_set<Route, Hash, Same> there(given.begin(), given.end(), size_t{count} * 2);
  out.assign(given.begin(), given.end());
  out.reserve(count);
  uint64_t failures = 0;
  while (out.size() < count) {
    const Route& parent = given[random.below(given.size())];
    // Parts get longer where the table has no room left for short ones.
    const unsigned room = failures < 64 ? Family::kUsual : Family::kBits;
    if (parent.length >= room) {
      if (++failures > 1'000'000) return false;
      continue;
    }
    const unsigned length = parent.length + 1 + static_cast<unsigned>(random.below(std::min(room - parent.length, 6u)));
    Route part = Family::part(parent, length, random.next() >> 32);
    // Neighbours are announced together more often than not.
    for (uint64_t run = random.below(4) == 0 ? random.between(2, 8) : 1; run > 0 && out.size() < count; --run) {
      if (random.chance(kOtherHop)) part.next_hop = given[random.below(given.size())].next_hop;
      if (there.insert(part).second) {
        out.push_back(part);
        failures = 0;
      } else if (++failures > 1'000'000) {
        return false;
      }
      part = Family::part(parent, length, random.next() >> 32);
    }
  }
  std::sort(out.begin(), out.end(), [](const Route& a, const Route& b) { return route_before(a, b); });
  return true;
}

}  // namespace

Result<Rib> generate_table_like(const Rib& rib, const LikeOptions& options) {
  if (options.count > kMaxCount) return Error(fmt::format("{} routes: the limit is {}", options.count, kMaxCount));
  if (rib.size() == 0 && options.count > 0) return Error("the --like table has no routes");
  Random random(options.seed, 12);
  const uint64_t share = rib.size() == 0 ? 0 : uint64_t{options.count} * rib.routes4().size() / rib.size();
  std::vector<Route4> four;
  std::vector<Route6> six;
  if (!resize<Family4>(rib.routes4(), static_cast<uint32_t>(share), random, four) ||
      !resize<Family6>(rib.routes6(), options.count - static_cast<uint32_t>(share), random, six)) {
    return Error("the --like table has no room for so many prefixes");
  }
  Rib made(rib.next_hops());
  for (const Route4& r : four) made.add4(r.address, r.length, r.next_hop);
  for (const Route6& r : six) made.add6(r.hi, r.lo, r.length, r.next_hop);
  made.settle();
  return made;
}

Result<std::string> generate_routes_like(const Rib& rib, const LikeOptions& options) {
  auto made = generate_table_like(rib, options);
  if (!made) return std::move(made).error();
  fmt::memory_buffer text;
  for (const Route4& r : made->routes4()) {
    fmt::format_to(std::back_inserter(text), "{} {}\n", to_string(Family4::prefix(r)), rib.next_hop_name(r.next_hop));
  }
  for (const Route6& r : made->routes6()) {
    fmt::format_to(std::back_inserter(text), "{} {}\n", to_string(Family6::prefix(r)), rib.next_hop_name(r.next_hop));
  }
  return fmt::to_string(text);
}

}  // namespace sluice
