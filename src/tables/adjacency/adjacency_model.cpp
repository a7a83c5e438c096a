#include "tables/adjacency/adjacency_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/assert.h"

namespace sluice {
namespace {

uint32_t common_weight(const AdjacencyModel::Group& group) {
  uint32_t divisor = 0;
  for (const auto& m : group.members) divisor = std::gcd(divisor, uint32_t{m.weight});
  return divisor == 0 ? 1 : divisor;
}

// The neighbour of each bucket.
std::vector<uint32_t> buckets_of(const AdjacencyModel::Group& group) {
  if (group.flags != 0 || !group.buckets.empty()) return group.flags != 0 ? std::vector<uint32_t>() : group.buckets;
  std::vector<uint32_t> buckets;
  const uint32_t divisor = common_weight(group);
  for (const auto& m : group.members) buckets.insert(buckets.end(), m.weight / divisor, m.neighbour);
  return buckets;
}

Adjacency record_of(const AdjacencyModel::Neighbour& n) {
  Adjacency a{};
  std::memcpy(a.rewrite, n.destination.bytes, 6);
  std::memcpy(a.rewrite + 6, n.source.bytes, 6);
  a.port = n.port;
  a.vlan = n.vlan;
  a.mtu = n.mtu;
  return a;
}

Result<void> check_buckets(const AdjacencyModel& model) {
  for (uint32_t id = 1; id <= model.next_hop_count(); ++id) {
    const auto& group = model.group(id);
    if (adjacency_buckets(group) == 0 && !group.members.empty()) {
      return Error(fmt::format("next hop {}: the weights need more than {} buckets", id, AdjacencyModel::kMaxBuckets),
                   "use smaller weights");
    }
  }
  return {};
}

struct Sections {
  ImageBuilder builder{ImageKind::kAdjacency};
  AdjacencyGroup* groups = nullptr;
  uint32_t* buckets = nullptr;
  Adjacency* adjacencies = nullptr;
};
Result<Sections> sections_of(size_t groups, size_t buckets, size_t adjacencies) {
  Sections s;
  constexpr uint32_t kLayout = 2;
  // The groups, which are never empty, come last: an empty section's pointer is inside the image then.
  const size_t b = s.builder.add(SectionTag::kAdjacencyBuckets, "", kLayout, buckets * sizeof(uint32_t));
  const size_t c = s.builder.add(SectionTag::kAdjacencies, "", kLayout, adjacencies * sizeof(Adjacency));
  const size_t a = s.builder.add(SectionTag::kAdjacencyGroups, "", kLayout, groups * sizeof(AdjacencyGroup));
  if (auto ok = s.builder.allocate(); !ok) return std::move(ok).error();
  s.groups = reinterpret_cast<AdjacencyGroup*>(s.builder.data(a).data());
  s.buckets = reinterpret_cast<uint32_t*>(s.builder.data(b).data());
  s.adjacencies = reinterpret_cast<Adjacency*>(s.builder.data(c).data());
  return s;
}

AdjacencyGroup record_of(const AdjacencyModel::Group& group, std::span<const uint32_t> buckets, uint32_t first) {
  return {buckets.empty()       ? 0
          : buckets.size() == 1 ? buckets[0]
                                : first,
          static_cast<uint16_t>(buckets.size()), group.flags};
}

}  // namespace

uint32_t AdjacencyModel::unresolved() const {
  uint32_t n = 0;
  for (uint32_t i = 1; i <= next_hop_count(); ++i) n += groups_[i].flags == 0 && groups_[i].members.empty() ? 1 : 0;
  return n;
}

unsigned adjacency_buckets(const AdjacencyModel::Group& group) {
  if (!group.buckets.empty())
    return group.buckets.size() <= AdjacencyModel::kMaxResilient ? static_cast<unsigned>(group.buckets.size()) : 0;
  uint64_t sum = 0;
  for (const auto& m : group.members) sum += m.weight;
  sum /= common_weight(group);
  return sum <= AdjacencyModel::kMaxBuckets ? static_cast<unsigned>(sum) : 0;
}

AdjacencyModel::Neighbour made_up_neighbour(uint32_t id) {
  AdjacencyModel::Neighbour n;
  n.destination = {
      {0x02, 0x53, 0x4c, static_cast<uint8_t>(id >> 16), static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id)}};
  n.source = {{0x02, 0x53, 0x4c, 0xff, 0xff, 0xfe}};
  return n;
}

Result<Image> build_adjacencies(const AdjacencyModel& model) {
  if (auto ok = check_buckets(model); !ok) return std::move(ok).error();
  const uint32_t count = model.next_hop_count();
  size_t total = 0;
  for (uint32_t id = 1; id <= count; ++id) {
    const size_t n = buckets_of(model.group(id)).size();
    total += n > 1 ? n : 0;
  }
  auto s = sections_of(count + size_t{1}, total, model.neighbours().size());
  if (!s) return std::move(s).error();
  uint32_t used = 0;
  for (uint32_t id = 1; id <= count; ++id) {
    const std::vector<uint32_t> buckets = buckets_of(model.group(id));
    s->groups[id] = record_of(model.group(id), buckets, used);
    if (buckets.size() > 1) {
      std::copy(buckets.begin(), buckets.end(), s->buckets + used);
      used += static_cast<uint32_t>(buckets.size());
    }
  }
  for (size_t i = 0; i < model.neighbours().size(); ++i) s->adjacencies[i] = record_of(model.neighbours()[i]);
  return s->builder.finish();
}

Result<AdjacencyView> open_adjacencies(const Image& image) {
  for (SectionTag tag : {SectionTag::kAdjacencyGroups, SectionTag::kAdjacencyBuckets, SectionTag::kAdjacencies}) {
    const ImageSection* section = image.find(tag);
    if (section == nullptr || section->layout_version != 2) {
      return Error("the image holds no adjacencies of layout 2", "make it again with `sluice compile`");
    }
  }
  auto view =
      AdjacencyView::open(image.section(SectionTag::kAdjacencyGroups), image.section(SectionTag::kAdjacencyBuckets),
                          image.section(SectionTag::kAdjacencies), image.checked(SectionTag::kAdjacencies));
  if (view) image.note_checked(SectionTag::kAdjacencies);
  return view;
}

// --- patched ---

Result<std::unique_ptr<PatchedAdjacencies>> PatchedAdjacencies::create(const AdjacencyModel& model) {
  if (auto ok = check_buckets(model); !ok) return std::move(ok).error();
  auto made = std::unique_ptr<PatchedAdjacencies>(new PatchedAdjacencies());
  made->model_ = model;
  if (auto ok = made->rebuild(); !ok) return std::move(ok).error();
  made->rebuilds_ = 0;
  return made;
}

Result<void> PatchedAdjacencies::rebuild() {
  const auto roomy = [](size_t n) { return n + n / 4 + 64; };
  const size_t groups = std::min<size_t>(roomy(model_.next_hop_count() + size_t{1}), Rib::kMaxNextHops + size_t{1});
  size_t buckets = 0;
  for (uint32_t id = 1; id <= model_.next_hop_count(); ++id)
    buckets += std::bit_ceil(buckets_of(model_.group(id)).size());
  buckets = roomy(buckets);
  const size_t adjacencies = roomy(model_.neighbours().size());
  auto s = sections_of(groups, buckets, adjacencies);
  if (!s) return std::move(s).error();
  replicas_ = ImageReplicas(s->builder.finish());
  const auto place = [&](SectionTag tag) { return replicas_.bytes() + replicas_.master().find(tag)->offset; };
  groups_ = reinterpret_cast<AdjacencyGroup*>(place(SectionTag::kAdjacencyGroups));
  buckets_ = reinterpret_cast<uint32_t*>(place(SectionTag::kAdjacencyBuckets));
  adjacencies_ = reinterpret_cast<Adjacency*>(place(SectionTag::kAdjacencies));
  group_room_ = groups;
  bucket_room_ = buckets;
  adjacency_room_ = adjacencies;
  places_.assign(groups, {});
  buckets_used_ = 0;
  ++rebuilds_;
  for (uint32_t i = 0; i < model_.neighbours().size(); ++i) write_neighbour(i);
  for (uint32_t id = 1; id <= model_.next_hop_count(); ++id) {
    SLUICE_CHECK(write_group(id));
  }
  full_ = false;
  return {};
}

void PatchedAdjacencies::write_neighbour(uint32_t index) {
  const Adjacency record = record_of(model_.neighbours()[index]);
  replicas_.write(adjacencies_ + index, &record, sizeof record);
}

bool PatchedAdjacencies::write_group(uint32_t next_hop) {
  const std::vector<uint32_t> buckets = buckets_of(model_.group(next_hop));
  for (uint32_t neighbour : buckets) SLUICE_CHECK(neighbour < model_.neighbours().size());
  Place& place = places_[next_hop];
  if (buckets.size() > 1) {
    if (buckets.size() > place.room) {
      const auto room = static_cast<uint32_t>(std::bit_ceil(buckets.size()));
      if (room > bucket_room_ - buckets_used_) return false;
      place = {buckets_used_, room};
      buckets_used_ += room;
    }
    replicas_.write(buckets_ + place.first, buckets.data(), buckets.size() * sizeof(uint32_t));
  }
  const AdjacencyGroup record = record_of(model_.group(next_hop), buckets, place.first);
  replicas_.write(groups_ + next_hop, &record, sizeof record);
  return true;
}

void PatchedAdjacencies::set_neighbour(uint32_t index, const AdjacencyModel::Neighbour& neighbour) {
  auto& all = model_.neighbours();
  const auto first = std::min(index, static_cast<uint32_t>(all.size()));
  if (index >= all.size()) all.resize(index + size_t{1});
  all[index] = neighbour;
  full_ |= index >= adjacency_room_;
  for (uint32_t i = first; !full_ && i <= index; ++i) write_neighbour(i);
}

bool PatchedAdjacencies::set_group(uint32_t next_hop, const AdjacencyModel::Group& group) {
  if (adjacency_buckets(group) == 0 && !group.members.empty()) return false;
  SLUICE_CHECK(next_hop >= 1 && next_hop <= Rib::kMaxNextHops);
  if (next_hop > model_.next_hop_count()) model_.extend(next_hop);
  // Where an exception comes between the model and the image, the image is built anew.
  const bool patch = !full_ && next_hop < group_room_;
  full_ = true;
  model_.group(next_hop) = group;
  if (patch) full_ = !write_group(next_hop);
  return true;
}

Result<std::shared_ptr<const Image>> PatchedAdjacencies::publish() {
  if (full_) {
    if (auto ok = rebuild(); !ok) return std::move(ok).error();
  }
  return replicas_.publish();
}

}  // namespace sluice
