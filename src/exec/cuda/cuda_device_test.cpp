// A device against the body of its kernels run on the host: the same words out, bit for bit, whatever the transport,
// the kind of record and the program. The emulated device runs through it too, so that the test itself is known to work
// where there is no GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "exec/cuda/chains.h"
#include "exec/cuda/flag_ring.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/open_cuda.h"
#include "exec/cuda/resident.h"
#include "exec/device/channel.h"
#include "exec/device/device.h"
#include "exec/device/resident.h"
#include "net/packet_builder.h"
#include "tables/acl/acl_test_support.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/adjacency/next_hops.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

using acl_test::Random;

constexpr auto kPatience = std::chrono::seconds(20);

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
  slot.moves_extent = (Stage::kWrites & kFieldExtent) != 0 ? 1 : 0;
  slot.next[0] = static_cast<uint8_t>(p.program.stage_count + 1);
  size_t i = 0;
  for (uint8_t to : next) slot.next[i++] = to;
  ++p.program.stage_count;
}
// The last stage's packets leave.
DeviceProgram finished(DeviceProgram p, RecordShape shape = {}) {
  p.begin = 0;
  p.end = static_cast<uint8_t>(p.program.stage_count);
  StageSlot& last = p.program.stages[p.end - 1];
  for (uint8_t& next : last.next) next = next == p.end ? kPathExit : next;
  p.shape = shape;
  for (uint32_t s = p.begin; s < p.end; ++s) p.shape.moves += p.program.stages[s].moves_extent;
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

auto tuple_merge(const Tables& t) {
  return acl_stage<TupleMergeView>(t.merge);
}
auto tuple_space(const Tables& t) {
  return acl_stage<TupleSpaceView>(t.acl);
}
auto route_dir24(const Tables& t) {
  return route_stage<Dir24View, Poptrie6View>(t.dir24);
}
auto route_poptrie(const Tables& t) {
  return route_stage<Poptrie4View, Poptrie6View>(t.poptrie);
}
auto route_trie(const Tables& t) {
  return route_stage<Trie4View, AnyView6>(t.trie);
}

struct Named {
  const char* name;
  DeviceProgram program;
};

std::vector<Named> key_programs(const Tables& t, RecordKind kind) {
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
std::vector<Named> route_programs(const Tables& t) {
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

std::vector<Named> frame_programs(const Tables& t, RecordKind kind) {
  RecordShape shape;
  shape.kind = kind;
  shape.key_out = 1;
  AdjacencyStage adjacency;
  adjacency.view = must(open_adjacencies(t.adjacencies));
  ClassifierStage classifier;
  classifier.tests = t.tests.data();
  classifier.count = static_cast<uint32_t>(t.tests.size());
  EtherEncapStage encap{{2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0}};

  std::vector<Named> out;
  DeviceProgram standard;
  add(standard, IpInputStage{});
  add(standard, tuple_space(t));
  add(standard, route_dir24(t));
  add(standard, DecTtlStage{});
  add(standard, adjacency);
  out.push_back({"standard", finished(standard, shape)});
  shape.key_out = 0;
  DeviceProgram crc;
  add(crc, SetCrc32Stage{});
  add(crc, CheckCrc32Stage{});
  add(crc, SetCrc32Stage{Crc32Mode::kFcs});
  out.push_back({"crc", finished(crc, shape)});
  DeviceProgram patterns;
  add(patterns, classifier, {1, 2, 3});
  add(patterns, PaintStage{7}, {3});
  add(patterns, encap, {3});
  add(patterns, SetCrc32Stage{});
  out.push_back({"classifier", finished(patterns, shape)});
  DeviceProgram deep;  // pushed in front of what a header record may hold: the host must redo it
  for (int i = 0; i < 3; ++i) add(deep, encap);
  out.push_back({"deep", finished(deep, shape)});
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

std::vector<FlowKey> some_keys(Tables& t, size_t n, RecordKind kind) {
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

Word* put_payload(Word* to, uint32_t tag, const std::vector<std::pair<const void*, uint32_t>>& parts) {
  auto store = [to](uint32_t i, const Word& word) { HostWords::store(to + i, word); };
  PayloadWriter writer(tag, store);
  for (const auto& [bytes, n] : parts) writer.put(bytes, n);
  writer.finish();
  return to;
}

// One packet to be: a key, or a frame in storage with head and tail room.
struct Item {
  FlowKey key;
  uint32_t destinations[kRoutesPerRecord] = {};  // of a kRoute4 record
  std::vector<uint8_t> storage;
  uint32_t bytes = 0;
};

std::vector<Item> some_items(Tables& t, size_t n, RecordKind kind) {
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
    const auto size = static_cast<size_t>(64 + t.random() % (kind == RecordKind::kHeader ? 61 : 1400));
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

// Writes the record of `item`; `frame`: the device's address of its frame.
void write_record(const DeviceProgram& program, const Item& item, uint64_t frame, uint32_t tag, Word* to) {
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
    put_payload(to, tag, {{&item.key, kKeyBytes}});
    return;
  }
  RegisterRecord r{};
  r.extent = Extent{0, item.bytes, item.bytes, 0, 0xffff};
  r.path = program.begin;
  std::vector<uint8_t> region(kRecordRegion, 0);
  if (item.bytes != 0) memcpy(region.data(), item.storage.data() + kHeadroom, std::min(item.bytes, kRecordRegion));
  if (shape.kind == RecordKind::kHeader) {
    put_payload(to, tag, {{&r, sizeof r}, {region.data(), shape.region}});
  } else {
    put_payload(to, tag, {{&r, sizeof r}, {&frame, sizeof frame}});
  }
}

// What the body makes of a record on the host.
std::vector<Word> expected_of(const DeviceProgram& program, const Word* in, uint32_t tag) {
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
      uint64_t result;
      memcpy(&result, expected_of(one, &record, tag).data(), sizeof result);
      word |= uint64_t{unpack_result(result).next_hop} << 19 * i;
    }
    std::vector<Word> out(1);
    memcpy(out.data(), &word, sizeof word);
    return out;
  }
  alignas(16) uint8_t scratch[kRecordScratch] = {};
  Walker w;
  read_record(program.shape.kind, program, in, scratch, w);
  walk_alone(program, w);
  std::vector<Word> out(std::max(1u, words_out(program.shape)));
  if (words_out(program.shape) == 0) {
    const uint64_t word = key_result(w, tag);
    memcpy(out.data(), &word, sizeof word);
    return out;
  }
  write_result(program.shape.kind, program, w, tag, [&](uint32_t i, const Word& word) { out[i] = word; });
  return out;
}

ChannelShape channel_shape(const DeviceProgram& program, uint32_t capacity) {
  return {program.shape, capacity, words_in(program.shape), words_out(program.shape)};
}

bool same(const Word* a, const Word* b, size_t n) {
  return memcmp(a, b, n * sizeof(Word)) == 0;
}

// Frames side by side, as a worker's arena has them: pinned for commlist, copied into a pool for commpool.
struct Frames {
  explicit Frames(const std::vector<Item>& items) {
    size_t need = 0;
    for (const Item& item : items) {
      at.push_back(need);
      need += (item.storage.size() + 63) / 64 * 64;
    }
    memory = must(Buffer::allocate(std::max<size_t>(need, 4096)));
    for (size_t i = 0; i < items.size(); ++i) {
      memcpy(memory.data() + at[i], items[i].storage.data(), items[i].storage.size());
    }
  }
  uint64_t address(size_t i, const void* base) const {
    return reinterpret_cast<uint64_t>(static_cast<const std::byte*>(base) + at[i] + kHeadroom);
  }
  Buffer memory;
  std::vector<size_t> at;
};

// -- the tests --------------------------------------------------------------------------------------------------------

class CudaDeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (is_cuda()) {
      const DeviceCount found = count_cuda_devices();
      if (found.count == 0) GTEST_SKIP() << "no CUDA device: " << found.why_none;
    }
    device_ = must(open());
  }
  bool is_cuda() const { return std::string(GetParam()) != "emu"; }
  // A small reserve, so that allocations of their own are met too.
  Result<std::unique_ptr<Device>> open(CudaOptions options = {}) {
    if (!is_cuda()) return open_device("emu");
    options.reserve_bytes = size_t{16} << 20;
    options.graphs = options.graphs || std::string(GetParam()) == "cuda_graphs";
    return open_cuda_device(0, options);
  }

  void key_rings_equal_the_host(RingMemory memory);
  void run_slab(const Named& named, Transport transport, std::vector<Item> items) {
    SCOPED_TRACE(std::string(named.name) + ", " + to_string(transport) + ", " + to_string(named.program.shape.kind));
    const bool addresses = named.program.shape.kind == RecordKind::kAddress;
    const DeviceProgram there = (*loaded_)(named.program);
    const ChannelShape shape = channel_shape(named.program, 256);
    auto slabs = must(device_->make_slabs(shape, 2, transport));
    for (uint32_t round = 0; round < 4; ++round) {
      const uint32_t slab = round & 1;
      // A whole slab, one lane, a part of a warp, two warps and a bit.
      const uint32_t count =
          std::min<uint32_t>(static_cast<uint32_t>(items.size()), (uint32_t[]){256, 1, 19, 77}[round]);
      Frames frames(items), ours(items);
      void* base = frames.memory.data();
      SlabDriver::Range pool;
      std::shared_ptr<DeviceBlob> copy;
      if (addresses && transport == Transport::kCommPool && is_cuda()) {
        copy = must(device_->allocate(MemorySpace::kDevice, frames.memory.size()));
        base = copy->device();
        // Pageable memory would do, pinned is what a worker has.
        must(device_->pin(frames.memory.data(), frames.memory.size()));
        pool = {frames.memory.data(), frames.memory.size(), base};
      } else if (addresses) {
        base = must(device_->pin(frames.memory.data(), frames.memory.size()));
      }
      const uint32_t tag = make_tag(round + 1, round & 1);
      std::vector<std::vector<Word>> want;
      for (uint32_t i = 0; i < count; ++i) {
        write_record(named.program, items[i], frames.address(i, base), tag,
                     slabs->in(slab) + size_t{i} * shape.words_in);
        std::vector<Word> in(shape.words_in);
        write_record(named.program, items[i], ours.address(i, ours.memory.data()), tag, in.data());
        want.push_back(expected_of(named.program, in.data(), tag));
      }
      const auto started = slabs->start(slab, count, there, pool);
      ASSERT_TRUE(started.ok()) << to_string(started.error());
      wait(*slabs, slab);
      size_t wrong = 0;
      for (uint32_t i = 0; i < count; ++i) {
        const auto* out = static_cast<const std::byte*>(slabs->out(slab)) + i * shape.result_bytes();
        if (memcmp(out, want[i].data(), shape.result_bytes()) != 0) ++wrong;
      }
      EXPECT_EQ(wrong, 0u) << "of " << count << " results differ";
      if (addresses) {
        EXPECT_EQ(memcmp(frames.memory.data(), ours.memory.data(), frames.memory.size()), 0) << "frames differ";
        device_->unpin(frames.memory.data());
      }
    }
  }
  void wait(SlabDriver& slabs, uint32_t slab) {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      const bool done = must(slabs.done(slab));
      if (done) return;
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << "a slab takes for ever";
      std::this_thread::yield();
    }
  }

  std::unique_ptr<Device> device_;
  Tables tables_{11};
  std::unique_ptr<Loaded> loaded_;
};

TEST_P(CudaDeviceTest, MemoryIsZeroedAndGivenBack) {
  for (const MemorySpace space : {MemorySpace::kDevice, MemorySpace::kMapped, MemorySpace::kStaging}) {
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5} << 20, size_t{40} << 20}) {
      auto blob = must(device_->allocate(space, bytes));
      EXPECT_NE(blob->device(), nullptr);
      EXPECT_GE(blob->size(), bytes);
      EXPECT_EQ(blob->host() == nullptr, space == MemorySpace::kDevice);
      if (blob->host() != nullptr) {
        EXPECT_EQ(static_cast<const uint8_t*>(blob->host())[bytes - 1], 0);
      }
    }
  }
  if (is_cuda()) {
    auto small = must(device_->allocate(MemorySpace::kDevice, 100));
    EXPECT_FALSE(device_->upload(*small, 90, "0123456789abcdef", 16).ok());
  }
  const auto huge = device_->allocate(MemorySpace::kDevice, size_t{1} << 60);
  ASSERT_FALSE(huge.ok());
  if (is_cuda()) {
    EXPECT_NE(huge.error().message.find("free"), std::string::npos) << huge.error().message;
  }
}

TEST_P(CudaDeviceTest, UploadsArriveAtTheirOffsets) {
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA allocator";
  CudaMemory* memory = cuda_memory(*device_);
  ASSERT_NE(memory, nullptr);
  std::vector<uint8_t> bytes((size_t{13} << 20) + 7);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(tables_.random());
  auto blob = must(device_->allocate(MemorySpace::kDevice, bytes.size() + 64));
  const auto copied = device_->upload(*blob, 33, bytes.data(), bytes.size());
  ASSERT_TRUE(copied.ok()) << to_string(copied.error());
  std::vector<uint8_t> back(bytes.size() + 64, 1);
  ASSERT_TRUE(cuda_download(*device_, back.data(), blob->device(), back.size()).ok());
  EXPECT_EQ(memcmp(back.data() + 33, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(back[32], 0);
  EXPECT_EQ(back[33 + bytes.size()], 0);
}

TEST_P(CudaDeviceTest, KeySlabsEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  for (const RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6}) {
    const auto items = some_items(tables_, 256, kind);
    for (const Named& named : key_programs(tables_, kind)) {
      for (const Transport transport : {Transport::kStaged, Transport::kZeroCopy}) run_slab(named, transport, items);
    }
  }
}

TEST_P(CudaDeviceTest, RouteSlabsEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kRoute4);
  for (const Named& named : route_programs(tables_)) {
    for (const Transport transport : {Transport::kStaged, Transport::kZeroCopy}) run_slab(named, transport, items);
  }
}

TEST_P(CudaDeviceTest, HeaderSlabsEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kHeader);
  for (const Named& named : frame_programs(tables_, RecordKind::kHeader)) {
    for (const Transport transport : {Transport::kStaged, Transport::kZeroCopy}) run_slab(named, transport, items);
  }
}

TEST_P(CudaDeviceTest, AddressSlabsEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kAddress);
  for (const Named& named : frame_programs(tables_, RecordKind::kAddress)) {
    for (const Transport transport : {Transport::kCommList, Transport::kCommPool}) run_slab(named, transport, items);
  }
}

TEST_P(CudaDeviceTest, RefusesWhatCannotRun) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA drivers";
  EXPECT_FALSE(device_->make_slabs(ChannelShape{{}, 33, 1, 0}, 1, Transport::kStaged).ok());
  EXPECT_FALSE(device_->make_slabs(ChannelShape{{}, 32, 2, 0}, 1, Transport::kStaged).ok());
  EXPECT_FALSE(device_->make_slabs(ChannelShape{{}, 32, 1, 0}, 1, Transport::kTagged).ok());
  auto slabs = must(device_->make_slabs(ChannelShape{{}, 32, 1, 0}, 1, Transport::kStaged));
  // A frame's program on keys.
  EXPECT_FALSE(slabs->start(0, 1, frame_programs(tables_, RecordKind::kHeader)[0].program, {}).ok());
  EXPECT_FALSE(slabs->start(0, 33, key_programs(tables_, RecordKind::kKey4)[0].program, {}).ok());
  EXPECT_FALSE(open_cuda_device(4000).ok());
}

// The host's side of a ring: writes records in order, checks results in order.
struct RingUser {
  RingUser(Device& device, const DeviceProgram& first, uint32_t capacity)
      : shape(channel_shape(first, capacity)), ring(must(device.make_ring(shape))) {}
  ~RingUser() { stop(); }

  void install(const DeviceProgram& on_host, const DeviceProgram& on_device, uint32_t which) {
    const auto written = ring->write_program(which, on_device);
    ASSERT_TRUE(written.ok()) << to_string(written.error());
    program[which] = on_host;
    RingControl& control = *ring->control();
    const uint32_t epoch = control.epoch() + ((control.epoch() & 1) == which ? 2 : 1);
    control.order_epoch(epoch);
    ring->send_orders();
    if (running) {
      const auto limit = std::chrono::steady_clock::now() + kPatience;
      for (uint32_t s = 0; s < ring->servers(); ++s) {
        while (HostWords::load32(&control.servers[s].ack) != epoch) {
          ASSERT_LT(std::chrono::steady_clock::now(), limit) << "server " << s << " does not take the program";
          std::this_thread::yield();
        }
      }
    }
    parity = which;
  }
  void start() {
    order_stop(0);
    const auto started = ring->start(head, 1);
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    running = true;
  }
  void stop() {
    if (!running) return;
    running = false;
    order_stop(1);
    const auto joined = ring->join(kStopLimitNs);
    EXPECT_TRUE(joined.ok()) << to_string(joined.error());
  }
  void order_stop(uint32_t stop) {
    ring->control()->order_stop(stop);
    ring->send_orders();
  }
  uint32_t slot(uint64_t serial) const { return static_cast<uint32_t>(serial) & (shape.capacity - 1); }
  void put(const Item& item, uint64_t frame, uint64_t host_frame) {
    const uint32_t tag = make_tag(1 + head / shape.capacity, parity);
    std::vector<Word> in(shape.words_in);
    write_record(program[parity], item, host_frame, tag, in.data());
    want.push_back(expected_of(program[parity], in.data(), tag));
    write_record(program[parity], item, frame, tag, ring->in() + size_t{slot(head)} * shape.words_in);
    if (const RecordWindow window = ring->window(); window.to != nullptr) {
      const size_t first = size_t{slot(head)} * shape.words_in / kLineWords;
      const size_t last = (size_t{slot(head) + 1} * shape.words_in + kLineWords - 1) / kLineWords;
      window.copy(window.to + first * 64, reinterpret_cast<const std::byte*>(ring->in()) + first * 64, last - first);
      flush_lines();
    }
    ++head;
  }
  // All records up to the head.
  void take() {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    for (; tail < head; ++tail) {
      const auto* bytes = static_cast<const std::byte*>(ring->out()) + slot(tail) * shape.result_bytes();
      const auto* out = reinterpret_cast<const Word*>(bytes);
      const std::vector<Word>& w = want[tail - base];
      if (shape.words_out == 0) {
        uint64_t expected = 0;
        memcpy(&expected, w.data(), sizeof expected);
        uint64_t word = 0;
        while (result_tag(word = HostWords::load64(reinterpret_cast<const uint64_t*>(bytes))) != result_tag(expected)) {
          const auto checked = ring->check();
          ASSERT_TRUE(checked.ok()) << to_string(checked.error());
          ASSERT_LT(std::chrono::steady_clock::now(), limit) << "no result for record " << tail;
          std::this_thread::yield();
        }
        if (word != expected) ++wrong;
        continue;
      }
      for (uint32_t i = 0; i < shape.words_out; ++i) {
        Word word = HostWords::load(out + i);
        while (word_tag(word) != word_tag(w[i])) {
          const auto checked = ring->check();
          ASSERT_TRUE(checked.ok()) << to_string(checked.error());
          ASSERT_LT(std::chrono::steady_clock::now(), limit) << "no result for record " << tail;
          std::this_thread::yield();
          word = HostWords::load(out + i);
        }
        if (!same(&word, &w[i], 1)) ++wrong;
      }
    }
    want.clear();
    base = head;
  }

  ChannelShape shape;
  std::unique_ptr<RingDriver> ring;
  DeviceProgram program[2];
  uint32_t parity = 0;
  uint64_t head = 0, tail = 0, base = 0;
  std::vector<std::vector<Word>> want;
  size_t wrong = 0;
  bool running = false;
};

void CudaDeviceTest::key_rings_equal_the_host(RingMemory memory) {
  const auto chosen = device_->use_ring_memory(memory);
  if (!chosen.ok()) GTEST_SKIP() << to_string(chosen.error());
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  for (const RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4}) {
    const auto items = some_items(tables_, 512, kind);
    const auto programs = kind == RecordKind::kRoute4 ? route_programs(tables_) : key_programs(tables_, kind);
    RingUser user(*device_, programs[0].program, 256);
    ASSERT_EQ(user.ring->window().to != nullptr, memory == RingMemory::kDevice);
    user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
    user.start();
    // More than 64 laps: the tag wraps. Batches of all sizes, so that groups come in parts.
    const uint64_t goal = 256 * 70;
    uint32_t swaps = 0;
    while (user.head < goal && user.wrong == 0) {
      const auto n = static_cast<uint32_t>(1 + tables_.random() % 256);
      for (uint32_t i = 0; i < n; ++i) user.put(items[tables_.random() % items.size()], 0, 0);
      user.take();
      if (HasFatalFailure()) return;
      if (tables_.random() % 4 == 0) {
        const Named& next = programs[++swaps % programs.size()];
        user.install(next.program, (*loaded_)(next.program), user.parity ^ 1);
        if (HasFatalFailure()) return;
      }
      if (tables_.random() % 32 == 0) {  // a stop in the middle of a group
        user.stop();
        user.start();
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(user.wrong, 0u) << to_string(kind);
    EXPECT_GT(swaps, 10u);
  }
}

TEST_P(CudaDeviceTest, KeyRingsEqualTheHostOverManyLaps) {
  key_rings_equal_the_host(RingMemory::kHost);
}

TEST_P(CudaDeviceTest, KeyRingsInDeviceMemoryEqualTheHostOverManyLaps) {
  key_rings_equal_the_host(RingMemory::kDevice);
}

TEST_P(CudaDeviceTest, ARingHoldsTwoGenerationsAtOnce) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  RingUser user(*device_, programs[0].program, 512);
  user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
  user.install(programs[3].program, (*loaded_)(programs[3].program), 1);
  user.start();
  for (int round = 0; round < 50 && user.wrong == 0; ++round) {
    for (const Item& item : items) {
      user.parity = static_cast<uint32_t>(tables_.random() & 1);
      user.put(item, 0, 0);
    }
    user.take();
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(user.wrong, 0u);
}

TEST_P(CudaDeviceTest, FrameRingsEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  for (const RecordKind kind : {RecordKind::kHeader, RecordKind::kAddress}) {
    for (const Named& named : frame_programs(tables_, kind)) {
      SCOPED_TRACE(std::string(named.name) + ", " + to_string(kind));
      RingUser user(*device_, named.program, 256);
      user.install(named.program, (*loaded_)(named.program), 0);
      if (HasFatalFailure()) return;
      for (int round = 0; round < 6; ++round) {
        const auto items = some_items(tables_, 1 + tables_.random() % 256, kind);
        Frames frames(items), ours(items);
        void* base = frames.memory.data();
        // As workers do: memory is pinned and unpinned while nothing is resident.
        if (kind == RecordKind::kAddress) base = must(device_->pin(frames.memory.data(), frames.memory.size()));
        user.start();
        if (HasFatalFailure()) return;
        for (size_t i = 0; i < items.size(); ++i) {
          user.put(items[i], frames.address(i, base), ours.address(i, ours.memory.data()));
        }
        user.take();
        user.stop();
        if (HasFatalFailure()) return;
        if (kind == RecordKind::kAddress) {
          EXPECT_EQ(memcmp(frames.memory.data(), ours.memory.data(), frames.memory.size()), 0) << "frames differ";
          device_->unpin(frames.memory.data());
        }
      }
      EXPECT_EQ(user.wrong, 0u);
    }
  }
}

TEST_P(CudaDeviceTest, UploadsAndLaunchesGoOnBesideARing) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  RingUser user(*device_, programs[0].program, 256);
  user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
  user.start();
  // A call that waits for the servers would wait for ever: then they are told to stop, and the test fails.
  std::atomic<bool> through{false}, late{false};
  std::thread watchdog([&] {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (!through.load()) {
      if (std::chrono::steady_clock::now() > limit && !late.exchange(true)) {
        user.ring->control()->order_stop(1);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  {
    // Memory that comes and goes while the servers run, some of it larger than the reserve.
    const Loaded again(*device_, tables_);
    auto large = must(device_->allocate(MemorySpace::kDevice, size_t{48} << 20));
    run_slab(programs[3], Transport::kStaged, items);
  }
  through.store(true);
  watchdog.join();
  ASSERT_FALSE(late.load()) << "an allocation, an upload or a launch waits for resident kernels";
  for (const Item& item : items) user.put(item, 0, 0);
  user.take();
  EXPECT_EQ(user.wrong, 0u);
  const uint32_t beat = HostWords::load32(&user.ring->control()->servers[0].beat);
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (HostWords::load32(&user.ring->control()->servers[0].beat) == beat) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "no heartbeat";
    std::this_thread::yield();
  }
}

// As many rings as a device takes, all of them resident: launches, copies and allocations still get through, and one
// ring more is refused.
TEST_P(CudaDeviceTest, TheLastRingIsRefusedAndLeavesRoom) {
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA rings";
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  std::vector<std::unique_ptr<RingUser>> users;
  std::atomic<bool> through{false}, late{false};
  const size_t most = std::string(GetParam()) == "cuda_graphs" ? 22 : 30;
  for (size_t n = 0; n <= most; ++n) {
    users.push_back(std::make_unique<RingUser>(*device_, programs[0].program, 32));
    users.back()->install(programs[0].program, (*loaded_)(programs[0].program), 0);
  }
  std::thread watchdog([&] {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (!through.load()) {
      if (std::chrono::steady_clock::now() > limit && !late.exchange(true)) {
        for (auto& user : users) user->ring->control()->order_stop(1);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (size_t n = 0; n < most; ++n) users[n]->start();
  const auto refused = users[most]->ring->start(0, 1);
  {
    const Loaded again(*device_, tables_);
    run_slab(programs[3], Transport::kStaged, items);
  }
  through.store(true);
  watchdog.join();
  ASSERT_FALSE(late.load()) << "a launch, an upload or a ring waits for resident kernels";
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("takes no more"), std::string::npos) << refused.error().message;
  for (size_t n = 0; n < most; ++n) {
    for (size_t i = 0; i < 32; ++i) users[n]->put(items[i], 0, 0);
    users[n]->take();
    EXPECT_EQ(users[n]->wrong, 0u) << n;
  }
}

TEST_P(CudaDeviceTest, TwoDevicesReachOnePinnedRange) {
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA allocator";
  // The same GPU twice where there is one: what is pinned is pinned for the driver.
  auto second = must(open_cuda_device(count_cuda_devices().count > 1 ? 1 : 0));
  auto buffer = must(Buffer::allocate(size_t{1} << 20));
  void* const here = must(device_->pin(buffer.data(), buffer.size()));
  void* const there = must(second->pin(buffer.data(), buffer.size()));
  EXPECT_NE(here, nullptr);
  EXPECT_NE(there, nullptr);
  second->unpin(buffer.data());
  device_->unpin(buffer.data());
  EXPECT_NE(must(second->pin(buffer.data(), buffer.size())), nullptr) << "it was not unpinned";
  second->unpin(buffer.data());
}

TEST_P(CudaDeviceTest, KernelsAreTimedWhereAsked) {
  if (GetParam() == std::string("cuda_graphs")) GTEST_SKIP() << "a graph's kernel is inside it";
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  for (const bool on : {false, true}) {
    device_->time_kernels(on);
    RingUser user(*device_, programs[0].program, 256);
    user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
    user.start();
    for (const Item& item : items) user.put(item, 0, 0);
    user.take();
    user.stop();
    EXPECT_EQ(user.wrong, 0u);
    Histogram groups;
    const auto added = user.ring->add_kernel_times(groups);
    ASSERT_TRUE(added.ok()) << to_string(added.error());
    // A group that came in pieces counts as often.
    EXPECT_GE(groups.count(), on ? 8u : 0u);
    EXPECT_LE(groups.count(), on ? 256u : 0u);

    auto slabs = must(device_->make_slabs(user.shape, 1, Transport::kZeroCopy));
    for (uint32_t i = 0; i < items.size(); ++i) write_record(programs[0].program, items[i], 0, 1, slabs->in(0) + i);
    const auto started = slabs->start(0, 256, (*loaded_)(programs[0].program), {});
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (!must(slabs->done(0))) ASSERT_LT(std::chrono::steady_clock::now(), limit);
    EXPECT_EQ(slabs->kernel_ns(0) != 0, on);
  }
}

TEST_P(CudaDeviceTest, TheFlagRingAgrees) {
  if (!is_cuda()) GTEST_SKIP() << "of CUDA alone";
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  for (const Named& named : key_programs(tables_, RecordKind::kKey4)) {
    SCOPED_TRACE(named.name);
    auto ring = must(FlagRing::start(*device_, (*loaded_)(named.program), 256));
    for (uint32_t round = 1; round <= 3; ++round) {
      const uint32_t count = round == 2 ? 45 : 256;
      for (uint32_t i = 0; i < count; ++i) write_record(named.program, items[i], 0, round, ring->in() + i);
      ring->ring(count);
      const auto limit = std::chrono::steady_clock::now() + kPatience;
      while (!ring->done()) ASSERT_LT(std::chrono::steady_clock::now(), limit);
      for (uint32_t i = 0; i < count; ++i) {
        Word in;
        write_record(named.program, items[i], 0, round, &in);
        ASSERT_EQ(memcmp(ring->out() + i, expected_of(named.program, &in, round).data(), 8), 0) << i;
      }
    }
    EXPECT_TRUE(ring->stop().ok());
  }
}

TEST_P(CudaDeviceTest, ResidentRunsAgree) {
  if (!is_cuda()) GTEST_SKIP() << "of CUDA alone";
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 1000, RecordKind::kKey4);
  std::vector<Word> records(items.size());
  std::vector<uint32_t> addresses;
  for (const Named& named : key_programs(tables_, RecordKind::kKey4)) {
    SCOPED_TRACE(named.name);
    addresses.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      write_record(named.program, items[i], 0, 1, &records[i]);
      addresses.push_back(static_cast<uint32_t>(items[i].key.dst_lo));
    }
    for (const ResidentField field : {ResidentField::kRule, ResidentField::kNextHop, ResidentField::kSteps}) {
      std::vector<uint32_t> got(items.size(), ~0u);
      const auto rates = must(resident_rate(*device_, (*loaded_)(named.program), records, field, got.data(), 2));
      EXPECT_EQ(rates.size(), 2u);
      size_t wrong = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        uint64_t word = 0;
        memcpy(&word, expected_of(named.program, &records[i], 0).data(), sizeof word);
        const KeyResult want = unpack_result(word);
        const uint32_t steps =
            want.steps.visited | uint32_t{want.steps.output} << 8 | static_cast<uint32_t>(want.steps.reason) << 16;
        // What does not fit a result (a mark) fits a field.
        if (want.steps.redo) continue;
        wrong += got[i] != (field == ResidentField::kRule      ? want.rule
                            : field == ResidentField::kNextHop ? want.next_hop
                                                               : steps)
                     ? 1
                     : 0;
      }
      EXPECT_EQ(wrong, 0u);
    }
  }
}

// Every algorithm's lookups alone, whatever the number of addresses, with and without a cache window.
TEST_P(CudaDeviceTest, ResidentLookupsAgree) {
  if (!is_cuda()) GTEST_SKIP() << "of CUDA alone";
  Rib rib = lpm_test::random_rib(9, 3000, 40);
  rib.add4(0, 1, 3);
  rib.add6(uint64_t{0x2000} << 48, 0, 3, 4);
  rib.settle();
  uint64_t state = 9;
  std::vector<uint32_t> v4(5003);
  for (uint32_t& address : v4) address = static_cast<uint32_t>(mix64(++state));
  std::vector<uint64_t> v6;
  for (size_t i = 0; i < 3001; ++i) {
    v6.push_back(0x2000000000000000u | mix64(++state) >> 3);
    v6.push_back(mix64(++state));
  }
  for (const LpmSummary& algorithm : lpm_summaries()) {
    SCOPED_TRACE(algorithm.name);
    const Image image = must(build_routes(rib, algorithm.ipv4 ? algorithm.name : Trie::kName,
                                          algorithm.ipv6 ? algorithm.name : Trie::kName));
    for (const bool window : {false, true}) {
      std::vector<uint32_t> hops(v4.size(), ~0u);
      EXPECT_EQ(must(resident_lookups4(*device_, image, v4, hops.data(), 1, {.window = window})).size(), 1u);
      std::vector<uint32_t> fed(v4.size(), ~0u);
      EXPECT_EQ(must(fed_lookups4(*device_, image, v4, fed.data(), 2, window)).rates.size(), 2u);
      EXPECT_EQ(fed, hops);
      for (const bool fresh : {false, true}) {
        fed.assign(v4.size(), ~0u);
        EXPECT_EQ(must(lookups_in_a_row4(*device_, image, v4, fed.data(), 3, window, fresh)).size(), 3u);
        EXPECT_EQ(fed, hops);
      }
      size_t wrong = 0;
      EXPECT_TRUE(with_fib4(image, [&](const auto& view) {
                    for (size_t i = 0; i < v4.size(); ++i) wrong += hops[i] != view.lookup(v4[i]) ? 1 : 0;
                  }).ok());
      EXPECT_EQ(wrong, 0u);
      hops.assign(v6.size() / 2, ~0u);
      EXPECT_EQ(must(resident_lookups6(*device_, image, v6, hops.data(), 1, {.window = window})).size(), 1u);
      fed.assign(v6.size() / 2, ~0u);
      EXPECT_EQ(must(fed_lookups6(*device_, image, v6, fed.data(), 2, window)).rates.size(), 2u);
      EXPECT_EQ(fed, hops);
      EXPECT_TRUE(with_fib6(image, [&](const auto& view) {
                    for (size_t i = 0; i < hops.size(); ++i) {
                      wrong += hops[i] != view.lookup(v6[2 * i], v6[2 * i + 1]) ? 1 : 0;
                    }
                  }).ok());
      EXPECT_EQ(wrong, 0u);
    }
  }
}

// The same lookups by tables in constant and in shared memory; what does not fit is refused with both sizes.
TEST_P(CudaDeviceTest, ResidentLookupsAgreeInEveryMemory) {
  if (!is_cuda()) GTEST_SKIP() << "of CUDA alone";
  uint64_t state = 19;
  std::vector<uint32_t> v4(50'003);
  for (uint32_t& address : v4) address = static_cast<uint32_t>(mix64(++state));
  std::vector<uint64_t> v6;
  for (size_t i = 0; i < 30'001; ++i) {
    v6.push_back(0x2000000000000000u | mix64(++state) >> 3);
    v6.push_back(mix64(++state));
  }
  size_t found = 0, refused = 0;
  for (const uint32_t routes : {20u, 700u, 3000u}) {
    Rib rib = lpm_test::random_rib(9, routes, 40);
    rib.add4(0, 1, 3);
    rib.add6(uint64_t{0x2000} << 48, 0, 3, 4);
    rib.settle();
    for (const LpmSummary& algorithm : lpm_summaries()) {
      SCOPED_TRACE(algorithm.name + std::string(", ") + std::to_string(routes));
      const Image image = must(build_routes(rib, algorithm.ipv4 ? algorithm.name : Trie::kName,
                                            algorithm.ipv6 ? algorithm.name : Trie::kName));
      for (const TableMemory memory : {TableMemory::kConstant, TableMemory::kShared}) {
        SCOPED_TRACE(to_string(memory));
        const size_t room = table_room(memory, RecordKind::kKey4, device_->info().shared_bytes);
        // `wrong`: how many next hops are not the host's.
        const auto check = [&](const auto& rates, size_t bytes, const auto& wrong) {
          if (bytes > room) {
            ASSERT_FALSE(rates.ok());
            for (const size_t size : {bytes, room})
              EXPECT_NE(rates.error().message.find(std::to_string(size)), std::string::npos) << rates.error().message;
            ++refused;
            return;
          }
          ASSERT_TRUE(rates.ok()) << to_string(rates.error());
          EXPECT_EQ(wrong(), 0u);
          ++found;
        };
        std::vector<uint32_t> hops(v4.size(), ~0u);
        const auto rates4 = resident_lookups4(*device_, image, v4, hops.data(), 1, {memory});
        check(rates4, image.section(SectionTag::kFib4).size(), [&] {
          size_t wrong = 0;
          EXPECT_TRUE(with_fib4(image, [&](const auto& view) {
                        for (size_t i = 0; i < v4.size(); ++i) wrong += hops[i] != view.lookup(v4[i]) ? 1 : 0;
                      }).ok());
          return wrong;
        });
        hops.assign(v6.size() / 2, ~0u);
        const auto rates6 = resident_lookups6(*device_, image, v6, hops.data(), 1, {memory});
        check(rates6, image.section(SectionTag::kFib6).size(), [&] {
          size_t wrong = 0;
          EXPECT_TRUE(with_fib6(image, [&](const auto& view) {
                        for (size_t i = 0; i < hops.size(); ++i)
                          wrong += hops[i] != view.lookup(v6[2 * i], v6[2 * i + 1]) ? 1 : 0;
                      }).ok());
          return wrong;
        });
      }
    }
  }
  EXPECT_GT(found, 20u);
  EXPECT_GT(refused, 2u);
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaDeviceTest, ::testing::Values("emu", "cuda", "cuda_graphs"),
                         [](const auto& test) { return std::string(test.param); });

TEST(CudaChains, AreFoundByTheirStages) {
  Tables tables(5);
  const auto programs = key_programs(tables, RecordKind::kKey4);
  const std::vector<uint8_t> want = {1, 2, 3, 4, 0, 5, 6, 0, 0, 0, 0, 4};
  ASSERT_EQ(programs.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(programs[i].program.chain, want[i]) << programs[i].name;
    EXPECT_TRUE(runs_on(RecordKind::kKey4, programs[i].program));
  }
  for (const Named& named : frame_programs(tables, RecordKind::kHeader)) {
    EXPECT_FALSE(runs_on(RecordKind::kKey4, named.program)) << named.name;
    EXPECT_TRUE(runs_on(RecordKind::kHeader, named.program)) << named.name;
    EXPECT_FALSE(runs_on(RecordKind::kRoute4, named.program)) << named.name;
  }
  // Three destinations a record are for one route lookup and nothing else.
  for (size_t i = 0; i < programs.size(); ++i) {
    EXPECT_EQ(runs_on(RecordKind::kRoute4, programs[i].program), i == 1 || i == 2) << programs[i].name;
  }
  for (const Named& named : route_programs(tables)) EXPECT_TRUE(runs_on(RecordKind::kRoute4, named.program));
}

}  // namespace
}  // namespace sluice
