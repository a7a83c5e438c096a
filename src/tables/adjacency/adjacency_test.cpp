#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "net/flow_key.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/adjacency/next_hops.h"
#include "tables/reseal.h"

namespace sluice {
namespace {

AdjacencyModel::Neighbour neighbour(uint8_t n, uint16_t weight = 1) {
  AdjacencyModel::Neighbour out;
  out.destination = {{2, 0, 0, 0, 0, n}};
  out.source = {{2, 0, 0, 0, 1, n}};
  out.port = n;
  out.weight = weight;
  return out;
}

Image build(const AdjacencyModel& model) {
  auto image = build_adjacencies(model);
  EXPECT_TRUE(image.ok()) << (image.ok() ? "" : to_string(image.error()));
  return std::move(*image);
}

AdjacencyView open(const Image& image) {
  auto view = open_adjacencies(image);
  EXPECT_TRUE(view.ok()) << (view.ok() ? "" : to_string(view.error()));
  return *view;
}

TEST(Adjacency, OneNeighbourIsChosenForEveryHash) {
  AdjacencyModel model(2);
  model.add(1, neighbour(7));
  const Image image = build(model);
  const AdjacencyView view = open(image);
  for (uint32_t hash : {0u, 1u, 0x80000000u, 0xffffffffu}) {
    const Adjacency* a = view.select(1, hash);
    ASSERT_NE(a, nullptr);
    const uint8_t expected[12] = {2, 0, 0, 0, 0, 7, 2, 0, 0, 0, 1, 7};
    EXPECT_EQ(std::memcmp(a->rewrite, expected, 12), 0);
    EXPECT_EQ(a->port, 7);
    EXPECT_EQ(a->mtu, 1500);
    EXPECT_EQ(a->vlan, 0);
  }
  EXPECT_EQ(view.select(0, 5), nullptr);
  EXPECT_EQ(view.select(2, 5), nullptr);  // unresolved
  EXPECT_EQ(view.select(3, 5), nullptr);  // unknown
  EXPECT_EQ(view.select(0xffffffffu, 5), nullptr);
  EXPECT_EQ(view.flags(0xffffffffu), 0u);
  EXPECT_EQ(model.unresolved(), 1u);
}

// Held to select() and the adjacency itself, for next hops of every kind and for any other number.
TEST(Adjacency, PlainLanesAreThoseWithOneUntaggedNeighbourThatTakesThem) {
  AdjacencyModel model(60);
  for (uint32_t id = 1; id <= 60; ++id) {
    if (id % 7 == 0) {
      model.group(id).flags = AdjacencyGroup::kDrop;
      continue;
    }
    for (uint8_t k = 0; k < (id % 5 == 0 ? id % 3 : 1); ++k) {
      AdjacencyModel::Neighbour n = neighbour(static_cast<uint8_t>(id + k));
      n.vlan = id % 11 == 0 ? 5 : 0;
      n.mtu = static_cast<uint16_t>(id % 4 == 0 ? 0 : id % 4 == 1 ? 65535 : 500 + id);
      n.port = static_cast<uint16_t>(id * 1021);
      model.add(id, n);
    }
  }
  const Image image = build(model);
  const AdjacencyView view = open(image);
  uint64_t state = 1;
  uint32_t seen = 0;
  for (int round = 0; round < 2000; ++round) {
    uint32_t next_hops[32], bytes[32];
    for (uint32_t i = 0; i < 32; ++i) {
      const uint64_t r = mix64(state += 0x9e3779b97f4a7c15ull);
      next_hops[i] = (r & 15) == 0 ? static_cast<uint32_t>(r >> 32) : static_cast<uint32_t>(r >> 32) % 63;
      bytes[i] = (r & 16) != 0 ? static_cast<uint32_t>(r >> 8) & 0xffff : 490 + (static_cast<uint32_t>(r >> 8) & 127);
    }
    const uint8_t* rewrites[2][32] = {};
    uint16_t ports[2][32] = {};
    const uint32_t plain[2] = {view.select_plain(next_hops, bytes, rewrites[0], ports[0]),
                               view.select_plain_scalar(next_hops, bytes, rewrites[1], ports[1])};
    for (uint32_t i = 0; i < 32; ++i) {
      const Adjacency* first = view.select(next_hops[i], 0);
      const bool want = first != nullptr && first == view.select(next_hops[i], 0xffffffff) && first->vlan == 0 &&
                        (first->mtu == 0 || bytes[i] <= first->mtu);
      for (int way = 0; way < 2; ++way) {
        ASSERT_EQ(plain[way] >> i & 1, want ? 1u : 0u) << way << " next hop " << next_hops[i] << ", " << bytes[i];
        if (!want) continue;
        ASSERT_EQ(rewrites[way][i], first->rewrite);
        ASSERT_EQ(ports[way][i], first->port);
      }
      seen += want ? 1 : 0;
    }
  }
  EXPECT_GT(seen, 10000u);
}

// What stands for nobody has no place in the image, however many buckets stand before it.
TEST(Adjacency, FlagsAndUnresolvedNextHopsMayStandBehindGroups) {
  AdjacencyModel model(3);
  for (uint8_t n = 0; n < 2; ++n) model.add(1, neighbour(n, 100));
  model.group(1).members[1].weight = 99;
  model.group(2).flags = AdjacencyGroup::kPunt;
  const Image image = build(model);
  const AdjacencyView view = open(image);
  EXPECT_NE(view.select(1, 0), view.select(1, 0xffffffff));
  EXPECT_EQ(view.flags(2), AdjacencyGroup::kPunt);
  EXPECT_EQ(view.select(3, 0), nullptr);
}

TEST(Adjacency, FlagsStandInPlaceOfNeighbours) {
  AdjacencyModel model(3);
  model.group(1).flags = AdjacencyGroup::kDrop;
  model.group(2).flags = AdjacencyGroup::kLocal;
  model.group(3).flags = AdjacencyGroup::kPunt;
  const Image image = build(model);
  const AdjacencyView view = open(image);
  EXPECT_EQ(view.flags(1), AdjacencyGroup::kDrop);
  EXPECT_EQ(view.flags(2), AdjacencyGroup::kLocal);
  EXPECT_EQ(view.flags(3), AdjacencyGroup::kPunt);
  for (uint32_t id = 1; id <= 3; ++id) EXPECT_EQ(view.select(id, 0), nullptr);
}

// RFC 2992: the regions are equal, so each of n next hops gets 1/n of the hash space, exactly but for rounding.
TEST(Adjacency, HashThresholdSharesByWeight) {
  for (const std::vector<uint16_t>& weights :
       std::vector<std::vector<uint16_t>>{{1, 1}, {1, 1, 1}, {4, 2, 2}, {3, 5}, {255, 1}}) {
    AdjacencyModel model(1);
    uint32_t sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      model.add(1, neighbour(static_cast<uint8_t>(i), weights[i]));
      sum += weights[i];
    }
    const Image image = build(model);
    const AdjacencyView view = open(image);
    constexpr uint32_t kSteps = 1 << 16;
    std::vector<uint32_t> counts(weights.size());
    uint16_t last = 0;
    for (uint32_t i = 0; i < kSteps; ++i) {
      const Adjacency* a = view.select(1, i << 16);
      ASSERT_NE(a, nullptr);
      ASSERT_GE(a->port, last);  // regions are contiguous
      last = a->port;
      ++counts[a->port];
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(counts[i], double(kSteps) * weights[i] / sum, 1.0 + weights[i]) << i;
    }
  }
}

// The disruption of RFC 2992: removing one of n neighbours moves at most half of the flows (plus what it had).
TEST(Adjacency, RemovingANeighbourMovesAtMostHalfOfTheFlows) {
  for (uint8_t n = 2; n <= 16; ++n) {
    for (uint8_t gone = 0; gone < n; ++gone) {
      AdjacencyModel before(1), after(1);
      for (uint8_t i = 0; i < n; ++i) {
        before.add(1, neighbour(i));
        if (i != gone) after.add(1, neighbour(i));
      }
      const Image a = build(before), b = build(after);
      const AdjacencyView va = open(a), vb = open(b);
      uint32_t moved = 0;
      constexpr uint32_t kFlows = 4096;
      for (uint32_t i = 0; i < kFlows; ++i) {
        const auto hash = static_cast<uint32_t>(mix64(i) >> 32);
        moved += va.select(1, hash)->port != vb.select(1, hash)->port ? 1 : 0;
      }
      EXPECT_LE(moved, kFlows / 2 + kFlows / n) << int(n) << " " << int(gone);
    }
  }
}

TEST(Adjacency, WeightsPastTheBucketLimitAreRefused) {
  AdjacencyModel model(1);
  model.add(1, neighbour(1, 256));
  model.add(1, neighbour(2, 256));  // divided by their common divisor: 2 buckets
  EXPECT_EQ(adjacency_buckets(model.group(1)), 2u);
  EXPECT_TRUE(build_adjacencies(model).ok());
  model.group(1).members[1].weight = 1;
  EXPECT_FALSE(build_adjacencies(model).ok());
}

TEST(Adjacency, DefaultsFollowTheDocumentedPattern) {
  Rib rib;
  for (int i = 1; i <= 300; ++i) rib.intern("n" + std::to_string(i));
  rib.intern("blackhole");
  const AdjacencyModel model = default_adjacencies(rib);
  EXPECT_EQ(model.neighbours().at(model.group(258).members.at(0).neighbour).destination,
            (MacAddress{{0x02, 0x53, 0x4c, 0, 1, 2}}));
  EXPECT_EQ(model.neighbours().at(model.group(258).members.at(0).neighbour).source,
            (MacAddress{{0x02, 0x53, 0x4c, 0xff, 0xff, 0xfe}}));
  EXPECT_EQ(model.group(301).flags, AdjacencyGroup::kDrop | AdjacencyGroup::kBlackhole);
  EXPECT_EQ(model.unresolved(), 0u);
}

// Every 32-bit word of the image turned into something else, checksum made good again: refused, or in bounds.
TEST(Adjacency, DamagedImagesAreRefusedOrHarmless) {
  AdjacencyModel model(40);
  for (uint32_t id = 1; id <= 40; ++id) {
    for (uint8_t k = 0; k < id % 4; ++k) model.add(id, neighbour(k));
  }
  const Image image = build(model);
  const std::vector<std::byte> good(image.bytes().begin(), image.bytes().end());
  size_t refused = 0;
  for (size_t at = sizeof(ImageHeader); at + 4 <= good.size(); at += 4) {
    for (uint32_t value : {0u, 1u, 0xffffffffu, 0x7fffffffu}) {
      std::vector<std::byte> bytes = good;
      std::memcpy(bytes.data() + at, &value, 4);
      reseal(bytes);
      auto again = Image::from_bytes(bytes, ImageKind::kAdjacency);
      if (!again) {
        ++refused;
        continue;
      }
      auto view = open_adjacencies(*again);
      if (!view) {
        ++refused;
        continue;
      }
      const auto* end = again->bytes().data() + again->bytes().size();
      for (uint32_t id = 0; id < view->group_count() + 2; ++id) {
        for (uint32_t hash : {0u, 0xffffffffu}) {
          const Adjacency* a = view->select(id, hash);
          ASSERT_TRUE(a == nullptr || reinterpret_cast<const std::byte*>(a + 1) <= end);
        }
      }
    }
  }
  EXPECT_GT(refused, 50u);
}

}  // namespace
}  // namespace sluice
