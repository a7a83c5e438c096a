#include "tables/lpm/patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "base/assert.h"
#include "base/prefetch.h"
#include "tables/lpm/routes16.h"

namespace sluice {
namespace {

using lpm_patch::RoutesBy16;

constexpr uint32_t kSlots = RoutesBy16::kSlots;
constexpr size_t kTail = 64;  // what gathers may read past the last entry

constexpr size_t round_up(size_t v) {
  return (v + 63) / 64 * 64;
}

// How the patched IPv4 table lies in its section: dir24's 256 entries of each /16, or sail's root and chunks.
struct Layout4 {
  bool sail = false, wide = false;
  uint32_t next_hops = 0;
  uint32_t chunks = 0, blocks = 0;  // room
  size_t entry_bytes() const { return wide ? 4 : 2; }
  size_t entries_at() const { return sail ? sizeof(SailHeader) + kSlots * 4 : sizeof(Dir24Header); }
  size_t blocks_at() const { return entries_at() + size_t{sail ? chunks : kSlots} * 256 * entry_bytes(); }
  size_t bytes() const { return blocks_at() + size_t{blocks} * 512 + kTail; }
};

// The IPv4 part of a master image.
class Master4 {
 public:
  // What the table needs, and a fourth more. Errors: more blocks than the algorithm takes.
  static Result<Layout4> plan(const RoutesBy16& routes, bool sail, uint32_t next_hops) {
    uint32_t own = 0, blocks = 0;
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      own += !routes.longer(slot).empty();
      uint32_t last = ~0u;
      for (const auto& r : routes.longer(slot)) {
        if ((r.key & 255) <= 24 || r.key >> 16 == last) continue;
        last = r.key >> 16;
        ++blocks;
      }
    }
    constexpr uint32_t kMostBlocks = 1u << 22, kNarrow = 65535;
    if (blocks > kMostBlocks) {
      return Error(fmt::format("{} /24s hold longer prefixes, the limit is {}", blocks, kMostBlocks),
                   "use the algorithm poptrie for this table");
    }
    Layout4 out;
    out.sail = sail;
    out.next_hops = next_hops;
    out.blocks = std::min(blocks + blocks / 4 + 1024, kMostBlocks);
    out.chunks = std::min(own + own / 4 + 1024 + next_hops + 1, 2 * kSlots);
    // Entries of two bytes as long as there is some room for blocks.
    out.wide = next_hops + blocks + 256 > kNarrow;
    if (!out.wide) out.blocks = std::min(out.blocks, kNarrow - next_hops);
    return out;
  }

  Master4() = default;
  // `section` is zeroed. Every /16 is painted by the first paint().
  Master4(ImageReplicas& image, std::byte* section, const Layout4& layout)
      : image_(&image),
        layout_(layout),
        root_(reinterpret_cast<uint32_t*>(section + sizeof(SailHeader))),
        entries_(section + layout.entries_at()),
        blocks_(reinterpret_cast<uint16_t*>(section + layout.blocks_at())) {
    if (layout.sail) {
      const SailHeader header{
          static_cast<uint32_t>(layout.entry_bytes()), layout.next_hops, layout.chunks, layout.blocks, {}};
      std::memcpy(section, &header, sizeof header);
      shared_.assign(size_t{layout.next_hops} + 1, kNone);
      for (uint32_t c = layout.chunks; c-- > 0;) free_chunks_.push_back(c);
      own_.assign(kSlots, false);
    } else {
      const Dir24Header header{static_cast<uint32_t>(layout.entry_bytes()), layout.next_hops, layout.blocks, {}};
      std::memcpy(section, &header, sizeof header);
    }
    for (uint32_t b = layout.blocks; b-- > 0;) free_blocks_.push_back(b);
  }

  // Makes the entries of a part of a /16 those of its routes. False: no room; the master is not to be published then,
  // and the same part is to be painted again before it is.
  bool paint(const RoutesBy16& routes, uint32_t slot, RoutesBy16::Range range = {0, 255}) {
    return layout_.wide ? paint_as<uint32_t>(routes, slot, range) : paint_as<uint16_t>(routes, slot, range);
  }
  // The same for all that were touched.
  bool paint_touched(RoutesBy16& routes) {
    const auto& touched = routes.touched();
    for (size_t i = 0; i < touched.size(); ++i) {
      if (i + 16 < touched.size()) routes.prefetch_vector(touched[i + 16]);
      if (i + 8 < touched.size()) {
        const uint32_t ahead = touched[i + 8];
        routes.prefetch_routes(ahead);
        const size_t chunk = layout_.sail ? root_[ahead] : size_t{ahead} * 256;
        prefetch_read(entries_ + (chunk + routes.range(ahead).first) * layout_.entry_bytes());
      }
      if (!paint(routes, touched[i], routes.range(touched[i]))) return false;
    }
    return true;
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  template <typename Entry>
  Entry* chunk(uint32_t c) {
    return reinterpret_cast<Entry*>(entries_) + size_t{c} * 256;
  }
  // The blocks of entries [first, last] that have other entries now.
  template <typename Entry>
  void drop_blocks(const Entry* entries, const Entry* instead, size_t first, size_t last) {
    for (size_t i = first; i <= last; ++i) {
      if (entries[i] <= layout_.next_hops || (instead != nullptr && instead[i] == entries[i])) continue;
      free_blocks_.push_back(entries[i] - layout_.next_hops - 1);
    }
  }
  void set_root(uint32_t slot, uint32_t chunk) {
    const uint32_t at = chunk * 256;
    image_->write(&root_[slot], &at, sizeof at);
  }

  template <typename Entry>
  bool paint_as(const RoutesBy16& routes, uint32_t slot, RoutesBy16::Range range) {
    const auto& longer = routes.longer(slot);
    if (layout_.sail && longer.empty()) return share<Entry>(slot, routes.cover(slot));
    Entry* now = nullptr;
    uint32_t fresh_chunk = kNone;
    taken_.clear();
    if (!layout_.sail) {
      now = chunk<Entry>(slot);
    } else if (own_[slot]) {
      now = chunk<Entry>(root_[slot] / 256);
    } else {
      if (free_chunks_.empty()) return false;
      fresh_chunk = free_chunks_.back();
      now = chunk<Entry>(fresh_chunk);
      std::fill_n(now, 256, Entry{0});
      image_->mark(now, 256 * sizeof(Entry));
      range = {0, 255};
    }
    // A route stands before those inside it, so each paints over what covers it.
    std::array<Entry, 256> fresh;
    const uint32_t first = range.first, last = range.last;
    std::fill(fresh.begin() + first, fresh.begin() + last + 1, static_cast<Entry>(routes.cover(slot)));
    std::array<uint16_t, 256> block;
    uint32_t divided = kNone;
    auto end_block = [&] {
      if (divided == kNone) return true;
      uint32_t index = 0;
      if (now[divided] > layout_.next_hops) {
        index = now[divided] - layout_.next_hops - 1;
      } else {
        if (free_blocks_.empty()) return false;
        index = free_blocks_.back();
        free_blocks_.pop_back();
        taken_.push_back(index);
      }
      image_->write(blocks_ + size_t{index} * 256, block.data(), sizeof block);
      fresh[divided] = static_cast<Entry>(layout_.next_hops + 1 + index);
      return true;
    };
    for (const auto& r : longer) {
      const uint32_t low = r.key >> 8, length = r.key & 255, at = low >> 8;
      if (at > last) break;
      if (length <= 24) {
        const uint32_t end = at + (1u << (24 - length));
        if (end > first) {
          std::fill(fresh.begin() + std::max(at, first), fresh.begin() + std::min(end, last + 1),
                    static_cast<Entry>(r.next_hop));
        }
        continue;
      }
      if (at < first) continue;
      if (low >> 8 != divided) {
        if (!end_block()) return give_back();
        divided = low >> 8;
        block.fill(static_cast<uint16_t>(fresh[divided]));
      }
      std::fill_n(block.begin() + (low & 255), size_t{1} << (32 - length), r.next_hop);
    }
    if (!end_block()) return give_back();
    drop_blocks(now, fresh.data(), first, last);
    image_->write(now + first, fresh.data() + first, (last - first + 1) * sizeof(Entry));
    // Only a chunk that is whole is the /16's own: of one that is, no more than a part is painted.
    if (fresh_chunk != kNone) {
      free_chunks_.pop_back();
      set_root(slot, fresh_chunk);
      own_[slot] = true;
    }
    return true;
  }
  // Blocks that were taken for a /16 whose entries do not name them yet.
  bool give_back() {
    free_blocks_.insert(free_blocks_.end(), taken_.begin(), taken_.end());
    return false;
  }

  // A /16 without longer routes has the chunk of its next hop.
  template <typename Entry>
  bool share(uint32_t slot, uint16_t next_hop) {
    uint32_t& c = shared_[next_hop];
    if (c == kNone) {
      if (free_chunks_.empty()) return false;
      c = free_chunks_.back();
      free_chunks_.pop_back();
      std::array<Entry, 256> all;
      all.fill(static_cast<Entry>(next_hop));
      image_->write(chunk<Entry>(c), all.data(), sizeof all);
    }
    if (own_[slot]) {
      const uint32_t old = root_[slot] / 256;
      drop_blocks<Entry>(chunk<Entry>(old), nullptr, 0, 255);
      free_chunks_.push_back(old);
      own_[slot] = false;
    }
    set_root(slot, c);
    return true;
  }

  ImageReplicas* image_ = nullptr;
  Layout4 layout_;
  uint32_t* root_ = nullptr;  // sail
  std::byte* entries_ = nullptr;
  uint16_t* blocks_ = nullptr;
  std::vector<uint32_t> free_chunks_, free_blocks_, taken_;
  std::vector<uint32_t> shared_;  // sail: by next hop, its chunk or kNone
  std::vector<bool> own_;         // sail: by /16, whether its chunk is its own
};

struct Key6 {
  uint64_t hi, lo;
  uint8_t length;
  friend bool operator==(const Key6&, const Key6&) = default;
};
struct HashKey6 {
  size_t operator()(const Key6& k) const {
    return (k.hi * 0x9fb21c651e98df25ull ^ k.lo) * 0xbf58476d1ce4e5b9ull ^ k.length;
  }
};

}  // namespace

struct PatchedRoutes::State {
  PatchedRoutesOptions options;
  RoutesBy16 four;
  Rib rest;  // the IPv6 routes, and all next hops
  std::unordered_map<Key6, uint16_t, HashKey6> pending6;
  size_t size6 = 0;

  // Of the image; replaced as a whole.
  struct Built {
    ImageReplicas image;
    Master4 master4;
    bool paints = false;  // IPv4 is dir24 or sail
  };
  std::unique_ptr<Built> built;
  Buffer scratch;
  bool changed4 = true, changed6 = true, new_names = true;

  uint16_t find6(const Key6& key) const {
    const auto it = pending6.find(key);
    if (it != pending6.end()) return it->second;
    const auto routes = rest.routes6();
    const Route6 wanted{key.hi, key.lo, 0, key.length};
    const auto at = std::lower_bound(routes.begin(), routes.end(), wanted,
                                     [](const Route6& a, const Route6& b) { return route_before(a, b); });
    return at != routes.end() && !route_before(wanted, *at) ? at->next_hop : uint16_t{0};
  }
  void fold6() {
    for (const auto& [key, next_hop] : pending6) rest.add6(key.hi, key.lo, key.length, next_hop);
    pending6.clear();
    rest.settle();
  }
  Rib all() const {
    Rib out = rest;
    four.each([&](uint32_t address, uint8_t length, uint16_t next_hop) { out.add4(address, length, next_hop); });
    for (const auto& [key, next_hop] : pending6) out.add6(key.hi, key.lo, key.length, next_hop);
    out.settle();
    return out;
  }
  // The plan may refer to the Rib.
  Result<FibPlan> plan4(Rib&& rib) const = delete;
  Result<FibPlan> plan4(const Rib& rib) const {
    Result<FibPlan> plan = Error();
    with_lpm<LpmAlgorithms4>(options.algorithm4, [&]<typename A>(A) { plan = A::plan4(rib); });
    return plan;
  }
  Result<FibPlan> plan6() const {
    Result<FibPlan> plan = Error();
    with_lpm<LpmAlgorithms6>(options.algorithm6, [&]<typename A>(A) { plan = A::plan6(rest); });
    return plan;
  }

  // A table that is built anew into its room. False: it does not fit.
  Result<bool> write(SectionTag tag, const FibPlan& plan) {
    const ImageSection& section = *built->image.master().find(tag);
    if (plan.bytes > section.bytes || plan.layout_version != section.layout_version) return false;
    if (scratch.size() < section.bytes) {
      auto memory = Buffer::allocate(section.bytes);
      if (!memory) return std::move(memory).error();
      scratch = std::move(*memory);
    } else {
      std::memset(scratch.data(), 0, section.bytes);
    }
    plan.write({scratch.data(), plan.bytes});
    built->image.write(built->image.bytes() + section.offset, scratch.data(), section.bytes);
    return true;
  }

  Result<void> build() {
    fold6();
    auto next = std::make_unique<Built>();
    next->paints = options.algorithm4 == Dir24::kName || options.algorithm4 == Sail::kName;
    auto six = plan6();
    if (!six) return std::move(six).error();
    const FibPlan names = plan_next_hop_names(rest);
    Layout4 layout;
    Rib everything;
    FibPlan plan;
    if (next->paints) {
      auto found = Master4::plan(four, options.algorithm4 == Sail::kName, rest.next_hop_count());
      if (!found) return std::move(found).error();
      layout = *found;
      plan.bytes = layout.bytes();
    } else {
      everything = all();
      auto found = plan4(everything);
      if (!found) return std::move(found).error();
      plan = std::move(*found);
    }
    // Two ways to be built anew: into room of a fourth more, and exact.
    const auto with_room = [](size_t bytes) { return round_up(bytes + bytes / 4 + 65536); };
    ImageBuilder builder(ImageKind::kRoutes);
    const size_t fib4 = builder.add(SectionTag::kFib4, options.algorithm4, plan.layout_version,
                                    next->paints ? plan.bytes : with_room(plan.bytes));
    const size_t fib6 = builder.add(SectionTag::kFib6, options.algorithm6, six->layout_version, with_room(six->bytes));
    const size_t text = builder.add(SectionTag::kNextHopNames, "", names.layout_version, names.bytes);
    if (auto ok = builder.allocate(); !ok) return ok;
    six->write(builder.data(fib6).first(six->bytes));
    names.write(builder.data(text));
    if (!next->paints) plan.write(builder.data(fib4).first(plan.bytes));
    Image image = builder.finish();
    if (image.bytes().size() > options.max_bytes) {
      return Error(
          fmt::format("the routes would take {} bytes, and {} are allowed", image.bytes().size(), options.max_bytes),
          "raise the limit, or choose an algorithm that takes less");
    }
    next->image = ImageReplicas(std::move(image));
    if (next->paints) {
      std::byte* const section = next->image.bytes() + next->image.master().find(SectionTag::kFib4)->offset;
      next->master4 = Master4(next->image, section, layout);
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        if (!next->master4.paint(four, slot)) return Error("no room for the routes in a new image");
      }
    }
    built = std::move(next);
    four.forget();
    changed4 = changed6 = new_names = false;
    return {};
  }

  // Brings the master up to date. False: it needs a new image.
  Result<bool> patch() {
    if (built == nullptr || new_names) return false;
    if (changed4 && built->paints) {
      if (!built->master4.paint_touched(four)) return false;
      four.forget();
    } else if (changed4) {
      const Rib rib = all();
      auto plan = plan4(rib);
      if (!plan) return std::move(plan).error();
      auto fits = write(SectionTag::kFib4, *plan);
      if (!fits || !*fits) return fits;
      four.forget();
    }
    changed4 = false;
    if (changed6) {
      fold6();
      auto plan = plan6();
      if (!plan) return std::move(plan).error();
      auto fits = write(SectionTag::kFib6, *plan);
      if (!fits || !*fits) return fits;
    }
    changed6 = false;
    return true;
  }
};

PatchedRoutes::PatchedRoutes(std::unique_ptr<State> state) : state_(std::move(state)) {}
PatchedRoutes::~PatchedRoutes() = default;

Result<std::unique_ptr<PatchedRoutes>> PatchedRoutes::create(const Rib& rib, const PatchedRoutesOptions& options) {
  if (!rib.settled()) {
    Rib copy = rib;
    copy.settle();
    return create(copy, options);
  }
  auto state = std::make_unique<State>();
  State& s = *state;
  s.options = options;
  s.options.algorithm4 = chosen_lpm4(rib, options.algorithm4);
  s.options.algorithm6 = chosen_lpm6(rib, options.algorithm6);
  for (const std::string& name : rib.next_hop_names()) s.rest.intern(name);
  for (const Route4& r : rib.routes4()) s.four.set(r.address, r.length, r.next_hop);
  for (const Route6& r : rib.routes6()) s.rest.add6(r.hi, r.lo, r.length, r.next_hop);
  s.size6 = rib.routes6().size();
  // Names of algorithms that do not exist are build_routes' to explain.
  if (!with_lpm<LpmAlgorithms4>(s.options.algorithm4, [](auto) {}) ||
      !with_lpm<LpmAlgorithms6>(s.options.algorithm6, [](auto) {})) {
    return build_routes(Rib(), s.options.algorithm4, s.options.algorithm6).error();
  }
  if (auto ok = s.build(); !ok) return std::move(ok).error();
  return std::unique_ptr<PatchedRoutes>(new PatchedRoutes(std::move(state)));
}

uint32_t PatchedRoutes::intern(std::string_view name) {
  const uint32_t before = state_->rest.next_hop_count(), id = state_->rest.intern(name);
  state_->new_names |= state_->rest.next_hop_count() != before;
  return id;
}

bool PatchedRoutes::set(const IpPrefix& prefix, uint32_t next_hop) {
  State& s = *state_;
  SLUICE_CHECK(next_hop <= s.rest.next_hop_count());
  const auto hop = static_cast<uint16_t>(next_hop);
  if (prefix.address.family == 4) {
    const bool changed = s.four.set(static_cast<uint32_t>(prefix.address.lo), prefix.length, hop);
    s.changed4 |= changed;
    return changed;
  }
  const Key6 key{prefix.address.hi, prefix.address.lo, prefix.length};
  const uint16_t before = s.find6(key);
  if (before == hop) return false;
  s.pending6[key] = hop;
  s.changed6 = true;
  s.size6 += before == 0 ? 1 : 0;
  s.size6 -= hop == 0 ? 1 : 0;
  return true;
}

uint32_t PatchedRoutes::find(const IpPrefix& prefix) const {
  if (prefix.address.family == 4) {
    return state_->four.find(static_cast<uint32_t>(prefix.address.lo), prefix.length);
  }
  return state_->find6({prefix.address.hi, prefix.address.lo, prefix.length});
}

size_t PatchedRoutes::size() const {
  return state_->four.size() + state_->size6;
}

Rib PatchedRoutes::rib() const {
  return state_->all();
}

Result<std::shared_ptr<const Image>> PatchedRoutes::publish() {
  auto patched = state_->patch();
  if (!patched) return std::move(patched).error();
  if (!*patched) {
    if (auto ok = state_->build(); !ok) return std::move(ok).error();
    ++rebuilds_;
  }
  return state_->built->image.publish();
}

const ImageReplicas& PatchedRoutes::replicas() const {
  return state_->built->image;
}

}  // namespace sluice
