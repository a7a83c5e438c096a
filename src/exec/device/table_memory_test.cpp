// Tables in constant and shared memory: the same results as on the host, and an error where they do not fit. The
// emulated device is always there; CUDA devices join where they exist. Whole graphs: tests/device_equality_test.cpp.
#include "exec/device/table_memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "elements/register_all.h"
#include "exec/device/constant_bank.h"
#include "exec/device/drive.h"
#include "exec/device/offload.h"
#include "exec/emu/emu_device.h"
#include "exec/walk/plan.h"
#include "graph/click/parser.h"
#include "graph/router.h"
#include "net/key4.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/conformance.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

#if defined(SLUICE_SANITIZED)
constexpr bool kWatched = true;
#else
constexpr bool kWatched = false;
#endif

// "emu", and "cuda" where there are CUDA devices. A test opens its own and closes them: of a device that stays open the
// streams take places beside those of resident kernels, which other tests use up.
class Devices {
 public:
  Devices() {
    for (const char* name : {"emu", "cuda:0"}) {
      if (name != std::string("emu") && count_cuda_devices().count == 0) continue;
      auto device = open_device(name);
      EXPECT_TRUE(device.ok()) << name;
      if (device.ok()) all_.emplace_back(name, std::move(*device));
    }
  }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::vector<std::pair<std::string, std::unique_ptr<Device>>> all_;
};

// For a part of a test.
class UsesMemory {
 public:
  UsesMemory(Device& device, TableMemory memory) : device_(device) { device_.use_table_memory(memory); }
  ~UsesMemory() { device_.use_table_memory(TableMemory::kGlobal); }
  UsesMemory(const UsesMemory&) = delete;
  UsesMemory& operator=(const UsesMemory&) = delete;

 private:
  Device& device_;
};

// How many tables fitted, and how many were refused.
struct Tried {
  size_t fitted = 0, refused = 0;
  void operator+=(const Tried& more) {
    fitted += more.fitted;
    refused += more.refused;
  }
};

// A lookup element on a device.
class Lookup {
 public:
  explicit Lookup(const std::string& element) {
    register_elements(registry_);
    const std::string text = "InfiniteSource -> IPInput -> lookup :: " + element + " -> Discard; lookup[1] -> Discard;";
    auto graph = parse_click(text, "lookup");
    EXPECT_TRUE(graph.ok());
    auto router = build_router(*graph, registry_, text);
    EXPECT_TRUE(router.ok());
    router_ = std::move(*router);
    auto plan = make_plan(router_);
    EXPECT_TRUE(plan.ok());
    plan_ = std::move(*plan);
    offloads_ = plan_offloads(plan_, router_, RecordChoice::kKey);
    while (node_ < offloads_.size() && !offloads_[node_].on_device) ++node_;
    EXPECT_LT(node_, offloads_.size());
  }

  std::unique_ptr<Snapshot> bind(const TableSet& tables) const {
    auto snapshot = bind_plan(plan_, router_, tables);
    EXPECT_TRUE(snapshot.ok()) << to_string(snapshot.error());
    return snapshot.ok() ? std::move(*snapshot) : nullptr;
  }
  // Its answer and that of check_tables are one: whether the tables fit.
  Result<std::shared_ptr<Resident>> bring(Device& device, const Snapshot& snapshot) const {
    const auto fits = check_tables(device, snapshot, plan_, offloads_);
    auto resident = make_resident(device, snapshot, plan_, offloads_);
    EXPECT_EQ(fits.ok(), resident.ok()) << (fits.ok() ? to_string(resident.error()) : to_string(fits.error()));
    if (resident.ok()) (*resident)->parity = 1;
    return resident;
  }
  std::vector<KeyResult> run(Device& device, const Resident& resident, const std::vector<FlowKey>& keys,
                             Transport transport) const {
    ChannelOptions options;
    options.transport = transport;
    options.records = 1024;
    options.watchdog_ns = 20'000'000'000;
    std::vector<KeyResult> results(keys.size());
    auto link = KeyLink::open(device, resident, node_, options);
    EXPECT_TRUE(link.ok()) << to_string(link.error());
    if (!link.ok()) return results;
    const auto done = (*link)->run(keys, results);
    EXPECT_TRUE(done.ok()) << to_string(done.error());
    return results;
  }
  // Calls f(device, memory, resident) with the tables in constant and in shared memory of every device, where they fit.
  template <typename F>
  Tried in_other_memories(const Devices& devices, const Snapshot& snapshot, const std::string& what, F&& f) const {
    Tried tried;
    for (const auto& [kind, device] : devices) {
      for (const TableMemory memory : {TableMemory::kConstant, TableMemory::kShared}) {
        SCOPED_TRACE(fmt::format("{} {} {}", kind, what, to_string(memory)));
        const UsesMemory uses(*device, memory);
        const auto resident = bring(*device, snapshot);
        ++(resident.ok() ? tried.fitted : tried.refused);
        if (resident.ok()) f(*device, memory, **resident);
      }
    }
    return tried;
  }
  const Plan& plan() const { return plan_; }
  const std::vector<Offload>& offloads() const { return offloads_; }
  size_t node() const { return node_; }
  // Three destinations per record; the number of wrong answers.
  uint64_t drive_routes(Device& device, const Resident& resident, const std::vector<uint32_t>& destinations,
                        const std::vector<uint32_t>& next_hops) const {
    std::vector<Word> records;
    std::vector<uint32_t> expected;
    for (size_t i = 0; i + kRoutesPerRecord <= destinations.size(); i += kRoutesPerRecord) {
      records.push_back(pack_route4(destinations.data() + i, 0));
      uint64_t result = 0;
      for (uint32_t k = 0; k < kRoutesPerRecord; ++k) result |= route_part(next_hops[i + k], k);
      expected.push_back(routes_digest(result));
    }
    DriveOptions options;
    options.kind = RecordKind::kRoute4;
    options.channel.records = 256;
    options.frames = 20;
    options.warm_up = 2;
    const DriveTarget target{&device, &resident};
    const auto driven = drive(std::span(&target, 1), node_, records, expected, options);
    EXPECT_TRUE(driven.ok()) << to_string(driven.error());
    return driven.ok() ? driven->wrong : ~uint64_t{0};
  }

 private:
  Registry registry_;
  Router router_;
  Plan plan_;
  std::vector<Offload> offloads_;
  size_t node_ = 0;
};

// Every algorithm's tables of several sizes, those that fit: lookups give what the host finds. Others are refused.
TEST(TableMemory, RoutesEqualTheHosts) {
  const Devices devices;
  const Lookup lookup("IPRoute(TABLE t)");
  Tried tried;
  for (const uint32_t routes : {1u, 30u, 600u, 3000u}) {
    acl_test::Random random(routes);
    Rib rib = lpm_test::random_rib(routes, routes, 40);
    rib.settle();
    std::vector<FlowKey> keys(kWatched ? 600 : 3000);
    std::vector<uint32_t> destinations;
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i].family = i % 3 == 2 ? 6 : 4;
      const auto routes4 = rib.routes4();
      const auto routes6 = rib.routes6();
      if (keys[i].family == 4) {
        keys[i].dst_lo = i % 2 == 0 || routes4.empty()
                             ? static_cast<uint32_t>(random())
                             : routes4[random() % routes4.size()].address ^ static_cast<uint32_t>(random() & 0xff);
        destinations.push_back(static_cast<uint32_t>(keys[i].dst_lo));
      } else {
        keys[i].dst_hi = i % 2 == 0 || routes6.empty() ? random() : routes6[random() % routes6.size()].hi;
        keys[i].dst_lo = random();
      }
    }
    for (const LpmSummary& algorithm : lpm_summaries()) {
      auto image = build_routes(rib, algorithm.ipv4 ? algorithm.name : Trie::kName,
                                algorithm.ipv6 ? algorithm.name : Trie::kName);
      ASSERT_TRUE(image.ok()) << to_string(image.error());
      const auto shared = std::make_shared<const Image>(std::move(*image));
      std::vector<uint32_t> want(keys.size()), hops;
      ASSERT_TRUE(with_fib4(*shared, [&](const auto& view) {
                    for (size_t i = 0; i < keys.size(); ++i) {
                      if (keys[i].family == 4) want[i] = view.lookup(static_cast<uint32_t>(keys[i].dst_lo));
                    }
                    for (const uint32_t destination : destinations) hops.push_back(view.lookup(destination));
                  }).ok());
      ASSERT_TRUE(with_fib6(*shared, [&](const auto& view) {
                    for (size_t i = 0; i < keys.size(); ++i) {
                      if (keys[i].family == 6) want[i] = view.lookup(keys[i].dst_hi, keys[i].dst_lo);
                    }
                  }).ok());
      TableSet tables;
      tables.routes["t"] = shared;
      const auto snapshot = lookup.bind(tables);
      ASSERT_NE(snapshot, nullptr);
      const auto check = [&](Device& device, TableMemory memory, const Resident& resident) {
        EXPECT_LE(resident.bytes, table_room(memory, RecordKind::kKey4, device.info().shared_bytes));
        for (const Transport transport : {Transport::kStaged, Transport::kZeroCopy}) {
          const auto got = lookup.run(device, resident, keys, transport);
          size_t wrong = 0;
          for (size_t i = 0; i < keys.size(); ++i) wrong += got[i].next_hop != want[i] ? 1 : 0;
          EXPECT_EQ(wrong, 0u);
        }
        EXPECT_EQ(lookup.drive_routes(device, resident, destinations, hops), 0u);
      };
      tried += lookup.in_other_memories(devices, *snapshot, fmt::format("{} {}", algorithm.name, routes), check);
    }
  }
  EXPECT_GT(tried.fitted, 20u);
  EXPECT_GT(tried.refused, 5u);
}

TEST(TableMemory, AccessListsEqualTheHosts) {
  const Devices devices;
  const Lookup lookup("ACL(TABLE t, DEFAULT permit)");
  Tried tried;
  for (const size_t rules : {1u, 20u, 200u, 3000u}) {
    acl_test::Random random(rules);
    const RuleSet set = acl_test::random_set(random, rules);
    auto keys = acl_test::keys_for(set, kWatched ? 300 : 1000, random);
    for (FlowKey& key : keys) {
      // As packets have them: ports or ICMP, not both.
      if (fits_key4(key)) key = unpack_key4(pack_key4(key));
      if (key.family == 0) key.family = 6;  // an element asks about IP packets alone
    }
    const auto want = acl_test::oracle(set, keys);
    for (const std::string& algorithm : acl_algorithm_names()) {
      auto image = build_acl(set, algorithm);
      ASSERT_TRUE(image.ok()) << to_string(image.error());
      TableSet tables;
      tables.acls["t"] = std::make_shared<const Image>(std::move(*image));
      const auto snapshot = lookup.bind(tables);
      ASSERT_NE(snapshot, nullptr);
      const auto check = [&](Device& device, TableMemory, const Resident& resident) {
        const auto got = lookup.run(device, resident, keys, Transport::kStaged);
        size_t wrong = 0;
        for (size_t i = 0; i < keys.size(); ++i) wrong += got[i].rule != want[i] ? 1 : 0;
        EXPECT_EQ(wrong, 0u);
      };
      tried += lookup.in_other_memories(devices, *snapshot, fmt::format("{} {}", algorithm, rules), check);
    }
  }
  EXPECT_GT(tried.fitted, 10u);
  EXPECT_GT(tried.refused, 2u);
}

TableSet tables_of(uint32_t routes) {
  Rib rib = lpm_test::random_rib(3, routes, 40);
  rib.settle();
  auto image = build_routes(rib, Trie::kName, Trie::kName);
  EXPECT_TRUE(image.ok());
  TableSet tables;
  tables.routes["fib"] = std::make_shared<const Image>(std::move(*image));
  return tables;
}

TEST(TableMemory, AByteMoreThanThereIsIsRefusedWithBothSizes) {
  const Lookup lookup("IPRoute(TABLE fib)");
  const auto snapshot = lookup.bind(tables_of(200));
  EmuDevice large;
  large.use_table_memory(TableMemory::kShared);
  const auto there = lookup.bring(large, *snapshot);
  ASSERT_TRUE(there.ok()) << to_string(there.error());
  const size_t bytes = (*there)->bytes;
  EmuDevice fits(0, 1, bytes), small(0, 1, bytes - 1);
  for (EmuDevice* device : {&fits, &small}) device->use_table_memory(TableMemory::kShared);
  EXPECT_TRUE(lookup.bring(fits, *snapshot).ok());
  const auto refused = lookup.bring(small, *snapshot);
  ASSERT_FALSE(refused.ok());
  for (const std::string& part : {fmt::format("are {} bytes packed", bytes),
                                  fmt::format("there is room for {} bytes", bytes - 1), std::string("fib (")})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  // Global memory takes it.
  small.use_table_memory(TableMemory::kGlobal);
  EXPECT_TRUE(lookup.bring(small, *snapshot).ok());
}

// Each generation has its part of constant memory until it is gone.
TEST(TableMemory, ConstantMemoryHoldsWhatGenerationsLeave) {
  const Devices devices;
  const Lookup lookup("IPRoute(TABLE fib)");
  const auto snapshot = lookup.bind(tables_of(700));
  for (const auto& [kind, device] : devices) {
    SCOPED_TRACE(kind);
    const UsesMemory uses(*device, TableMemory::kConstant);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::shared_ptr<Resident>> generations;
      while (true) {
        auto one = make_resident(*device, *snapshot, lookup.plan(), lookup.offloads());
        if (!one.ok()) {
          EXPECT_NE(one.error().message.find("of 65536 bytes are in use"), std::string::npos) << one.error().message;
          break;
        }
        generations.push_back(std::move(*one));
        ASSERT_LE(generations.size() * generations[0]->bytes, kConstantBytes);
      }
      ASSERT_GE(generations.size(), 1u);
      EXPECT_GT((generations.size() + 1) *
                    ((generations[0]->bytes + ConstantBank::kAlign) / ConstantBank::kAlign * ConstantBank::kAlign),
                kConstantBytes);
    }
  }
}

TEST(TableMemory, ResidentKernelsReadGlobalMemoryAlone) {
  const Devices devices;
  const Lookup lookup("IPRoute(TABLE fib)");
  const auto snapshot = lookup.bind(tables_of(20));
  for (const auto& [kind, device] : devices) {
    SCOPED_TRACE(kind);
    const UsesMemory uses(*device, TableMemory::kShared);
    const auto resident = lookup.bring(*device, *snapshot);
    ASSERT_TRUE(resident.ok()) << to_string(resident.error());
    ChannelOptions options;
    options.mode = DeviceMode::kPersistent;
    options.transport = Transport::kTagged;
    const auto link = KeyLink::open(*device, **resident, lookup.node(), options);
    ASSERT_FALSE(link.ok());
    EXPECT_NE(link.error().message.find("launch mode only"), std::string::npos) << link.error().message;
  }
}

}  // namespace
}  // namespace sluice
