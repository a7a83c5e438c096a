// Building and checking the sets of tables by field.
#include "tables/acl/tuple_prune.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

namespace sluice::tuple_prune_detail {
namespace {

// A block is worth its 512 bytes when the rules in it spare this many probes, each rule's own region counted once.
constexpr size_t kMinGain = 4;
constexpr size_t kRulesPerBlock = 4;

// Sets of tables by number; class 0 holds every table.
class Classes {
 public:
  explicit Classes(uint64_t all, size_t limit) : limit_(limit) { of(all); }
  uint32_t of(uint64_t mask) {
    const auto it = index_.find(mask);
    if (it != index_.end()) return it->second;
    if (masks_.size() == limit_) return 0;
    masks_.push_back(mask);
    return index_[mask] = static_cast<uint32_t>(masks_.size() - 1);
  }
  const std::vector<uint64_t>& masks() const { return masks_; }

 private:
  size_t limit_;
  std::unordered_map<uint64_t, uint32_t> index_;
  std::vector<uint64_t> masks_;
};

// A prefix, the tables of the rules that have it, and how many those are.
struct Prefix {
  uint32_t value;
  uint8_t length;
  uint64_t tables;
  size_t rules;
};

// The prefixes of more than 16 bits below one value of the upper half, and what the lower levels would spare.
struct Upper {
  std::span<const Prefix> prefixes;
  size_t gain = 0;
  std::vector<std::span<const Prefix>> lower;  // runs of prefixes of more than 24 bits that are worth a block
  double value() const { return static_cast<double>(gain) / static_cast<double>(1 + lower.size()); }
};

// Puts `tables` into the entries of a level of 2^bits entries that a prefix covers; `skip` address bits lie above it.
void cover(uint64_t* entries, unsigned skip, unsigned bits, const Prefix& p) {
  const unsigned inside = std::min<unsigned>(p.length, skip + bits) - skip;
  const uint32_t first = p.value << skip >> (32 - bits), count = 1u << (bits - inside);
  for (uint32_t i = 0; i < count; ++i) entries[first + i] |= p.tables;
}

class AddressLevels {
 public:
  AddressLevels(std::span<const Placed> placed, bool dst) {
    std::map<std::pair<uint32_t, uint8_t>, Prefix> distinct;
    for (const Placed& p : placed) {
      const auto value = static_cast<uint32_t>(dst ? p.rule->dst_lo : p.rule->src_lo);
      const uint8_t long_form = dst ? p.rule->dst_length : p.rule->src_length;
      const auto length = static_cast<uint8_t>(long_form == 0 ? 0 : long_form - 96);
      Prefix& prefix = distinct.try_emplace({value, length}, Prefix{value, length, 0, 0}).first->second;
      prefix.tables |= uint64_t{1} << p.table;
      ++prefix.rules;
    }
    for (const auto& [at, prefix] : distinct) prefixes_.push_back(prefix);
    root_.resize(65536, 0);
    for (const Prefix& p : prefixes_) {
      if (p.length <= 16) cover(root_.data(), 0, 16, p);
    }
    // Sorted by value, so the prefixes below one /16 follow each other, short ones of the same value first.
    for (size_t i = 0, end = 0; i < prefixes_.size(); i = end) {
      end = i + 1;
      while (end < prefixes_.size() && prefixes_[end].value >> 16 == prefixes_[i].value >> 16) ++end;
      size_t begin = i;
      while (begin < end && prefixes_[begin].length <= 16) ++begin;
      if (begin < end) uppers_.push_back(weigh({prefixes_.data() + begin, end - begin}));
    }
    std::stable_sort(uppers_.begin(), uppers_.end(),
                     [](const Upper& a, const Upper& b) { return a.value() > b.value(); });
  }

  // Writes the root and as many blocks as are worth it, at most `budget` of them; the blocks of the third level go to
  // `lower`, with entries of `upper` that lead there numbered from 0 and listed in `links`.
  void write(uint16_t* root, Classes& classes, size_t budget, std::vector<std::array<uint16_t, 256>>& upper,
             std::vector<std::array<uint16_t, 256>>& lower, std::vector<uint16_t*>& root_links,
             std::vector<std::pair<size_t, uint32_t>>& links) {
    const std::vector<uint64_t> base = root_;
    std::vector<const Upper*> taken;
    for (const Upper& u : uppers_) {
      const uint32_t at = u.prefixes[0].value >> 16;
      if (u.gain < kMinGain || 1 + u.lower.size() > budget) {
        for (const Prefix& p : u.prefixes) root_[at] |= p.tables;
        continue;
      }
      budget -= 1 + u.lower.size();
      taken.push_back(&u);
    }
    for (uint32_t i = 0; i < 65536; ++i) root[i] = static_cast<uint16_t>(classes.of(root_[i]));
    for (const Upper* u : taken) {
      const uint32_t at = u->prefixes[0].value >> 16;
      root[at] = static_cast<uint16_t>(upper.size());
      root_links.push_back(root + at);
      std::array<uint64_t, 256> exact, level;
      middle(u->prefixes, base[at], exact, level);
      std::array<uint16_t, 256>& block = upper.emplace_back();
      for (size_t i = 0; i < 256; ++i) block[i] = static_cast<uint16_t>(classes.of(level[i]));
      for (const auto& run : u->lower) {
        const uint32_t byte = run[0].value >> 8 & 255;
        std::array<uint64_t, 256> last;
        last.fill(exact[byte]);
        for (const Prefix& p : run) {
          if (p.length > 24) cover(last.data(), 24, 8, p);
        }
        links.emplace_back((upper.size() - 1) * 256 + byte, static_cast<uint32_t>(lower.size()));
        std::array<uint16_t, 256>& block3 = lower.emplace_back();
        for (size_t i = 0; i < 256; ++i) block3[i] = static_cast<uint16_t>(classes.of(last[i]));
      }
    }
  }

 private:
  // The sets by third byte: `exact` from prefixes of up to 24 bits, `level` with all longer ones rounded up.
  static void middle(std::span<const Prefix> prefixes, uint64_t base, std::array<uint64_t, 256>& exact,
                     std::array<uint64_t, 256>& level) {
    exact.fill(base);
    for (const Prefix& p : prefixes) {
      if (p.length <= 24) cover(exact.data(), 16, 8, p);
    }
    level = exact;
    for (const Prefix& p : prefixes) {
      if (p.length > 24) level[p.value >> 8 & 255] |= p.tables;
    }
  }

  Upper weigh(std::span<const Prefix> prefixes) const {
    Upper out{prefixes, 0, {}};
    const uint64_t base = root_[prefixes[0].value >> 16];
    uint64_t rounded = base;
    for (const Prefix& p : prefixes) rounded |= p.tables;
    std::array<uint64_t, 256> exact, level;
    middle(prefixes, base, exact, level);
    for (const Prefix& p : prefixes) {
      out.gain += p.rules * static_cast<size_t>(std::popcount(rounded) - std::popcount(level[p.value >> 8 & 255]));
    }
    for (size_t i = 0, end = 0; i < prefixes.size(); i = end) {
      const uint32_t third = prefixes[i].value >> 8;
      end = i + 1;
      while (end < prefixes.size() && prefixes[end].value >> 8 == third) ++end;
      const auto run = prefixes.subspan(i, end - i);
      std::array<uint64_t, 256> last;
      last.fill(exact[third & 255]);
      bool any = false;
      for (const Prefix& p : run) {
        if (p.length <= 24) continue;
        cover(last.data(), 24, 8, p);
        any = true;
      }
      if (!any) continue;
      size_t gain = 0;
      for (const Prefix& p : run) {
        if (p.length > 24)
          gain += p.rules * static_cast<size_t>(std::popcount(level[third & 255]) - std::popcount(last[p.value & 255]));
      }
      if (gain < kMinGain) continue;
      out.gain += gain;
      out.lower.push_back(run);
    }
    return out;
  }

  std::vector<Prefix> prefixes_;
  std::vector<uint64_t> root_;  // by upper half
  std::vector<Upper> uppers_;   // most worth a block first
};

void write_ports(TuplePrune& prune, unsigned which, std::span<const Placed> placed, uint64_t all) {
  std::array<std::vector<std::pair<uint32_t, uint32_t>>, TuplePrune::kMaxTables> ranges;
  for (const Placed& p : placed) {
    const AclMatchRule& r = *p.rule;
    ranges[p.table].emplace_back(which == 0 ? r.src_port_low : r.dst_port_low,
                                 which == 0 ? r.src_port_high : r.dst_port_high);
  }
  // Where a table enters or leaves: its ranges are united first, so that each edge is one change.
  std::vector<uint64_t> change(65537, 0);
  for (uint32_t t = 0; t < ranges.size(); ++t) {
    std::sort(ranges[t].begin(), ranges[t].end());
    for (size_t i = 0; i < ranges[t].size();) {
      uint32_t high = ranges[t][i].second;
      const uint32_t low = ranges[t][i].first;
      for (++i; i < ranges[t].size() && ranges[t][i].first <= high + 1; ++i) high = std::max(high, ranges[t][i].second);
      change[low] ^= uint64_t{1} << t;
      change[high + 1] ^= uint64_t{1} << t;
    }
  }
  Classes classes(all, 256);
  uint64_t open = 0;
  for (uint32_t port = 0; port < 65536; ++port) {
    open ^= change[port];
    prune.port_class[which][port] = static_cast<uint8_t>(classes.of(open));
  }
  std::copy(classes.masks().begin(), classes.masks().end(), prune.port[which]);
}

}  // namespace

std::vector<std::byte> make_prune(std::span<const Placed> placed) {
  uint64_t all = 0;
  for (const Placed& p : placed) all |= uint64_t{1} << p.table;
  const auto prune = std::make_unique<TuplePrune>();
  for (unsigned which : {0u, 1u}) write_ports(*prune, which, placed, all);
  std::map<uint32_t, uint64_t> protocols;  // protocol << 8 | mask
  for (const Placed& p : placed)
    protocols[uint32_t{p.rule->protocol} << 8 | p.rule->protocol_mask] |= uint64_t{1} << p.table;
  for (const auto& [value, tables] : protocols) {
    for (uint32_t v = 0; v < 256; ++v) {
      if (((v ^ value >> 8) & value & 255) == 0) prune->protocol[v] |= tables;
    }
  }
  Classes classes(all, TuplePrune::kBlock);
  std::vector<std::array<uint16_t, 256>> upper, lower;
  std::vector<uint16_t*> root_links;
  std::vector<std::pair<size_t, uint32_t>> links;
  size_t budget = std::min<size_t>(placed.size() / kRulesPerBlock, TuplePrune::kBlock - 1);
  for (unsigned which : {0u, 1u}) {
    AddressLevels levels(placed, which == 1);
    // The first field leaves the second at least half.
    levels.write(prune->root[which], classes, which == 0 ? budget / 2 : budget, upper, lower, root_links, links);
    budget -= std::min(budget, upper.size() + lower.size());
  }
  for (uint16_t* link : root_links) *link = static_cast<uint16_t>(*link | TuplePrune::kBlock);
  for (const auto& [at, to] : links)
    upper[at / 256][at % 256] = static_cast<uint16_t>(TuplePrune::kBlock | (upper.size() + to));
  prune->class_count = static_cast<uint32_t>(classes.masks().size());
  prune->block_count = static_cast<uint32_t>(upper.size() + lower.size());
  prune->upper_count = static_cast<uint32_t>(upper.size());
  std::vector<std::byte> out(TuplePrune::bytes_for(prune->class_count, prune->block_count));
  std::byte* to = out.data();
  auto put = [&](const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    to += bytes;
  };
  put(prune.get(), sizeof *prune);
  put(classes.masks().data(), classes.masks().size() * 8);
  put(upper.data(), upper.size() * 512);
  put(lower.data(), lower.size() * 512);
  return out;
}

bool prune_ok(const TuplePrune& prune, uint64_t bytes, uint32_t table_count) {
  if (table_count > TuplePrune::kMaxTables || prune.class_count > TuplePrune::kBlock ||
      prune.block_count >= TuplePrune::kBlock || prune.upper_count > prune.block_count ||
      bytes != TuplePrune::bytes_for(prune.class_count, prune.block_count)) {
    return false;
  }
  uint64_t seen = 0;
  for (uint64_t mask : prune.protocol) seen |= mask;
  for (const auto& masks : prune.port) {
    for (uint64_t mask : masks) seen |= mask;
  }
  for (uint32_t i = 0; i < prune.class_count; ++i) seen |= prune.masks()[i];
  if (table_count < 64 && seen >> table_count != 0) return false;
  // An entry is a class, or leads to a block between `first` and `end`.
  const auto entries_ok = [&](const uint16_t* entries, size_t n, uint32_t first, uint32_t end) {
    for (size_t i = 0; i < n; ++i) {
      const uint32_t v = entries[i] & (TuplePrune::kBlock - 1);
      if ((entries[i] & TuplePrune::kBlock) != 0 ? v < first || v >= end : v >= prune.class_count) return false;
    }
    return true;
  };
  const uint32_t upper = prune.upper_count, all = prune.block_count;
  return entries_ok(prune.root[0], 65536, 0, upper) && entries_ok(prune.root[1], 65536, 0, upper) &&
         entries_ok(prune.blocks(), size_t{upper} * 256, upper, all) &&
         entries_ok(prune.blocks() + size_t{upper} * 256, size_t{all - upper} * 256, 0, 0);
}

}  // namespace sluice::tuple_prune_detail
