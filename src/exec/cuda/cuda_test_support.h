// host only
// What tests of CUDA's kernels share: tables, programs of every kind, records, and the results that the host's body
// gives.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "elements/stages.h"
#include "exec/cuda/chains.h"
#include "exec/device/body.h"
#include "exec/device/channel.h"
#include "exec/device/device.h"
#include "exec/device/resident.h"
#include "net/packet_builder.h"
#include "tables/acl/acl_test_support.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice::cuda_test {

using acl_test::Random;

inline constexpr auto kPatience = std::chrono::seconds(20);

template <typename T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << to_string(result.error());
    std::abort();
  }
  return std::move(result).value();
}

// -- tables and programs ----------------------------------------------------------------------------------------------

struct Tables {
  explicit Tables(uint64_t seed) : random(seed) {
    rules = acl_test::random_set(random, 200);
    acl = must(build_acl(rules, "tuple_space"));
    merge = must(build_acl(rules, "tuple_merge"));
    linear = must(build_acl(rules, "linear"));
    Rib rib = lpm_test::random_rib(seed, 3000, 40);
    rib.add4(0, 1, 3);  // half of all addresses have a route at least
    rib.add6(uint64_t{0x2000} << 48, 0, 3, 4);
    rib.settle();
    dir24 = must(build_routes(rib, "dir24", "poptrie"));
    poptrie = must(build_routes(rib, "poptrie", "poptrie"));
    trie = must(build_routes(rib, "trie", "trie"));
    adjacencies = must(build_adjacencies(default_adjacencies(rib)));
    tests = {{12, 0xffff, 0x0008, 2, 0, 1, 0},
             {23, 0xff, 17, 1, 0, 1, 1},
             {12, 0xffff, 0xdd86, 2, 0, 1, 1},
             {0, 0, 0, 0, 0, 1, 1}};
  }
  std::vector<const Image*> images() const { return {&acl, &merge, &linear, &dir24, &poptrie, &trie, &adjacencies}; }

  Random random;
  RuleSet rules;
  Image acl, merge, linear, dir24, poptrie, trie, adjacencies;
  std::vector<ClassifierTest> tests;
};

template <typename Stage>
void add(DeviceProgram& p, const Stage& stage, std::initializer_list<uint8_t> next = {}) {
  StageSlot& slot = p.program.stages[p.program.stage_count];
  memset(slot.next, kPathDropped, sizeof slot.next);
  place(slot, stage);
  slot.outputs = 2;
  slot.next[0] = static_cast<uint8_t>(p.program.stage_count + 1);
  size_t i = 0;
  for (uint8_t to : next) slot.next[i++] = to;
  ++p.program.stage_count;
}
// The last stage's packets leave.
inline DeviceProgram finished(DeviceProgram p, RecordShape shape = {}) {
  p.begin = 0;
  p.end = static_cast<uint8_t>(p.program.stage_count);
  StageSlot& last = p.program.stages[p.end - 1];
  for (uint8_t& next : last.next) next = next == p.end ? kPathExit : next;
  p.shape = shape;
  p.chain = chain_of(p);
  return p;
}

template <typename View>
AclStage<View> acl_stage(const Image& image) {
  AclStage<View> stage;
  stage.view = must(View::open(image));
  stage.actions = must(AclActionsView::open(image));
  stage.permit_by_default = 1;
  return stage;
}
template <typename View4, typename View6>
RouteStage<View4, View6> route_stage(const Image& image) {
  RouteStage<View4, View6> stage;
  const auto take4 = with_fib4(image, [&]<typename V>(const V& view) {
    if constexpr (std::is_same_v<V, View4>) stage.view4 = view;
  });
  const auto take6 = with_fib6(image, [&]<typename V>(const V& view) {
    if constexpr (std::is_constructible_v<View6, const V&>) stage.view6 = View6(view);
  });
  EXPECT_TRUE(take4.ok() && take6.ok());
  return stage;
}

inline auto tuple_merge(const Tables& t) {
  return acl_stage<TupleMergeView>(t.merge);
}
inline auto tuple_space(const Tables& t) {
  return acl_stage<TupleSpaceView>(t.acl);
}
inline auto route_dir24(const Tables& t) {
  return route_stage<Dir24View, Poptrie6View>(t.dir24);
}
inline auto route_poptrie(const Tables& t) {
  return route_stage<Poptrie4View, Poptrie6View>(t.poptrie);
}
inline auto route_trie(const Tables& t) {
  return route_stage<Trie4View, AnyView6>(t.trie);
}

struct Named {
  const char* name;
  DeviceProgram program;
};

inline std::vector<Named> key_programs(const Tables& t, RecordKind kind) {
  RecordShape shape;
  shape.kind = kind;
  std::vector<Named> out;
  auto put = [&](const char* name, auto... stages) {
    DeviceProgram p;
    (add(p, stages), ...);
    out.push_back({name, finished(p, shape)});
  };
  put("acl", tuple_space(t));
  put("dir24", route_dir24(t));
  put("poptrie", route_poptrie(t));
  put("acl-dir24", tuple_space(t), route_dir24(t));
  put("acl-poptrie", tuple_space(t), route_poptrie(t));
  put("merge", tuple_merge(t));
  put("merge-dir24", tuple_merge(t), route_dir24(t));
  put("linear-trie", acl_stage<LinearAcl::View>(t.linear), route_trie(t));
  put("acl-acl-trie", tuple_space(t), acl_stage<LinearAcl::View>(t.linear), route_trie(t));
  // The same chain by the generic switch.
  out.push_back(out[3]);
  out.back().name = "acl-dir24, generic";
  out.back().program.chain = 0;
  // A branch: denied packets go around the route.
  DeviceProgram branch;
  add(branch, tuple_space(t), {1, 2});
  add(branch, route_dir24(t), {2, 2});
  add(branch, PassStage{});
  out.push_back({"branch", finished(branch, shape)});
  // Stages [1, 3) of three.
  DeviceProgram inner;
  add(inner, PassStage{});
  add(inner, tuple_space(t), {2, 2});
  add(inner, route_dir24(t));
  inner = finished(inner, shape);
  inner.begin = 1;
  inner.chain = chain_of(inner);
  out.push_back({"inner", inner});
  return out;
}

// Programs of one route lookup, as kRoute4 records take them.
inline std::vector<Named> route_programs(const Tables& t) {
  RecordShape shape;
  shape.kind = RecordKind::kRoute4;
  std::vector<Named> out;
  auto put = [&](const char* name, auto stage) {
    DeviceProgram p;
    add(p, stage);
    out.push_back({name, finished(p, shape)});
  };
  put("dir24", route_dir24(t));
  put("poptrie", route_poptrie(t));
  put("trie", route_trie(t));
  // By the generic switch; and behind a stage that the device leaves to others.
  out.push_back(out[0]);
  out.back().name = "dir24, generic";
  out.back().program.chain = 0;
  DeviceProgram inner;
  add(inner, PassStage{});
  add(inner, route_dir24(t));
  inner = finished(inner, shape);
  inner.begin = 1;
  inner.chain = chain_of(inner);
  out.push_back({"inner", inner});
  return out;
}

// Programs of whole segments, as frame records take them.
inline std::vector<Named> frame_programs(const Tables& t) {
  RecordShape shape;
  shape.kind = RecordKind::kFrame;
  AdjacencyStage adjacency;
  adjacency.view = must(open_adjacencies(t.adjacencies));
  ClassifierStage classifier;
  classifier.tests = t.tests.data();
  classifier.count = static_cast<uint32_t>(t.tests.size());

  std::vector<Named> out;
  DeviceProgram standard;
  add(standard, IpInputStage{});
  add(standard, tuple_space(t));
  add(standard, route_dir24(t));
  add(standard, DecTtlStage{});
  add(standard, adjacency);
  out.push_back({"standard", finished(standard, shape)});
  shape.key_out = 1;
  out.push_back({"standard, with rules", finished(standard, shape)});
  // A kernel of its own has this chain; the generic switch gives the same.
  out.push_back(out.back());
  out.back().name = "standard, generic";
  out.back().program.chain = 0;
  shape.key_out = 0;
  DeviceProgram mirror;
  add(mirror, EtherMirrorStage{});
  out.push_back({"mirror", finished(mirror, shape)});
  // What patterns look for lies among the headers here; planners send none, kernels have the code.
  DeviceProgram patterns;
  add(patterns, classifier, {1, 2, 2});
  add(patterns, PaintStage{7}, {2});
  add(patterns, EtherMirrorStage{});
  shape.paint_out = shape.net_out = shape.mark_out = 1;
  out.push_back({"classifier", finished(patterns, shape)});
  shape.paint_out = shape.net_out = shape.mark_out = 0;
  shape.sums = 1;
  DeviceProgram check;
  add(check, CheckCrc32Stage{});
  out.push_back({"check", finished(check, shape)});
  shape.tails = 1;
  for (const Crc32Mode mode : {Crc32Mode::kClick, Crc32Mode::kFcs}) {
    DeviceProgram sum;
    add(sum, IpInputStage{});
    add(sum, SetCrc32Stage{mode});
    out.push_back({"sum", finished(sum, shape)});
  }
  return out;
}

// The tables and a program's pointers in the device's memory.
struct Loaded : PointerVisitor {
  Loaded(Device& d, const Tables& t) : device(d) {
    for (const Image* image : t.images()) put(image->bytes().data(), image->bytes().size());
    put(t.tests.data(), t.tests.size() * sizeof(t.tests[0]));
  }
  void put(const void* from, size_t bytes) {
    auto blob = must(device.allocate(MemorySpace::kDevice, bytes));
    const auto copied = device.upload(*blob, 0, from, bytes);
    EXPECT_TRUE(copied.ok()) << to_string(copied.error());
    regions.push_back({static_cast<const std::byte*>(from), bytes, static_cast<std::byte*>(blob->device())});
    blobs.push_back(std::move(blob));
  }
  const void* moved(const void* pointer, size_t) override {
    const auto* at = static_cast<const std::byte*>(pointer);
    for (const Region& r : regions) {
      if (at >= r.from && at <= r.from + r.bytes) return r.to + (at - r.from);
    }
    EXPECT_EQ(pointer, nullptr);
    return nullptr;
  }
  DeviceProgram operator()(DeviceProgram p) {
    for (uint32_t s = 0; s < p.program.stage_count; ++s) visit_pointers(p.program.stages[s], *this);
    return p;
  }
  struct Region {
    const std::byte* from;
    size_t bytes;
    std::byte* to;
  };
  Device& device;
  std::vector<Region> regions;
  std::vector<std::shared_ptr<DeviceBlob>> blobs;
};

// -- records ----------------------------------------------------------------------------------------------------------

inline std::vector<FlowKey> some_keys(Tables& t, size_t n, RecordKind kind) {
  std::vector<FlowKey> keys;
  while (keys.size() < n) {
    for (FlowKey& key : acl_test::keys_for(t.rules, n, t.random, 20)) {
      if (keys.size() == n) break;
      if (kind == RecordKind::kKey4 && !fits_key4(key)) continue;
      keys.push_back(key);
    }
  }
  return keys;
}

// One packet to be: a key, or a frame in storage with head and tail room.
struct Item {
  FlowKey key;
  uint32_t destinations[kRoutesPerRecord] = {};  // of a kRoute4 record
  std::vector<uint8_t> storage;
  uint32_t bytes = 0;
};

inline std::vector<Item> some_items(Tables& t, size_t n, RecordKind kind) {
  std::vector<Item> items(n);
  if (kind == RecordKind::kRoute4) {
    const auto keys = some_keys(t, n, RecordKind::kKey4);
    // Of the rules' addresses and of any.
    for (size_t i = 0; i < n; ++i) {
      for (uint32_t& destination : items[i].destinations) {
        destination = static_cast<uint32_t>(t.random() % 2 == 0 ? t.random() : keys[t.random() % n].dst_lo);
      }
    }
    return items;
  }
  if (is_key(kind)) {
    const auto keys = some_keys(t, n, kind);
    for (size_t i = 0; i < n; ++i) items[i].key = keys[i];
    return items;
  }
  for (size_t i = 0; i < n; ++i) {
    auto address4 = [&] {
      const auto a = static_cast<uint32_t>(t.random());
      return std::to_string(1 + (a >> 24) % 220) + "." + std::to_string(a >> 16 & 255) + "." +
             std::to_string(a >> 8 & 255) + "." + std::to_string(a & 255);
    };
    const auto size = static_cast<size_t>(60 + t.random() % 1400);
    std::vector<uint8_t> frame;
    const auto ttl = static_cast<uint8_t>(t.random() % 4 == 0 ? 1 : 64);
    switch (t.random() % 4) {
      case 0:
        frame = udp6("2001:db8::1", "2001:db8:" + std::to_string(t.random() % 9) + "::2").ttl(ttl).size(size).build();
        break;
      case 1:
        frame = tcp4(address4(), address4()).ttl(ttl).vlan(5).size(size).build();
        break;
      case 2:
        frame = PacketBuilder::ether(0x0806).payload(size - 14).build();
        break;
      default:
        frame = udp4(address4(), address4()).ports(1000, static_cast<uint16_t>(t.random())).ttl(ttl).size(size).build();
        break;
    }
    items[i].bytes = static_cast<uint32_t>(frame.size());
    items[i].storage.assign(kHeadroom + frame.size() + kTailroom, 0);
    memcpy(items[i].storage.data() + kHeadroom, frame.data(), frame.size());
  }
  return items;
}

// Writes the record of a key or of destinations.
inline void write_record(const DeviceProgram& program, const Item& item, uint32_t tag, Word* to) {
  const RecordShape& shape = program.shape;
  if (shape.kind == RecordKind::kKey4) {
    HostWords::store(to, pack_key4(item.key, tag));
    return;
  }
  if (shape.kind == RecordKind::kRoute4) {
    HostWords::store(to, pack_route4(item.destinations, tag));
    return;
  }
  if (shape.kind == RecordKind::kKey6) {
    store_payload(to, &item.key, kKeyBytes, tag);
  }
}

// What the body makes of such a record on the host.
inline uint64_t expected_of(const DeviceProgram& program, const Word* in, uint32_t tag) {
  if (program.shape.kind == RecordKind::kRoute4) {
    // As a packet a destination, not by the body's own words.
    uint64_t word = uint64_t{tag} << 57;
    for (uint32_t i = 0; i < 3; ++i) {
      DeviceProgram one = program;
      one.shape.kind = RecordKind::kKey4;
      FlowKey key;
      key.family = 4;
      key.dst_lo = in[0].w[i];
      const Word record = pack_key4(key, tag);
      word |= uint64_t{unpack_result(expected_of(one, &record, tag)).next_hop} << 19 * i;
    }
    return word;
  }
  Walker w;
  read_record(program.shape.kind, program, in, w);
  walk_alone(program, w);
  return key_result(w, tag);
}

inline ChannelShape channel_shape(const DeviceProgram& program, uint32_t capacity) {
  return {program.shape, capacity};
}

}  // namespace sluice::cuda_test
