// Tables change while a graph runs on a device: every batch meets one generation, whole, on the device and on the host
// alike; nothing is lost and nothing stops.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/emu/emu_device.h"
#include "exec/engine/engine.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tables/acl/patch.h"
#include "tables/lpm/patch.h"
#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::TempDir;

// Generation g is of variant g mod 5: its access list permits that variant's prefixes alone, its routes know them
// alone, and its adjacencies forward that variant's next hop alone. Five, so that a program slot that was not rewritten
// (two generations back) differs as much as its neighbour. Whatever mixes two generations, at whichever element and on
// whichever side of the bus, drops a packet for another reason than the access list's. The adjacency also writes the
// generation's number into the destination address: the output says which generation each batch met.
constexpr uint32_t kVariants = 5;

struct Setting {
  std::string kind;
  DeviceMode mode;
  RecordChoice records;
  unsigned workers;
  unsigned devices;
  uint32_t batch = 50;  // a multiple of 10, so that each batch holds as many packets of each variant
  bool both_families = true;
  Transport transport = Transport::kStaged;
  uint64_t swaps = 16;
  bool patched = false;  // the access list and the routes are patched, not built anew
};

std::string name_of(const Setting& s) {
  return fmt::format("{} {}, records {}, {} workers, {} devices, batches of {}", s.kind, to_string(s.mode),
                     static_cast<int>(s.records), s.workers, s.devices, s.batch);
}

// Table changes of a case: `base`, times SLUICE_TEST_SCALE; fewer where every access is watched.
uint64_t swaps(uint64_t base) {
#if defined(SLUICE_SANITIZED)
  base = base / 8 + 3;
#endif
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  const uint64_t scale = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  return base * (scale == 0 ? 1 : scale);
}

struct Outcome {
  bool ran = false;
  RunReport report;
  std::vector<uint64_t> batches;  // by output batch: the generation (from 0) that all its packets met
  uint64_t mixed = 0;             // output batches of more than one generation
  uint64_t strayed = 0;           // output records past the last whole batch
  uint64_t leaving = 0;           // of the packets that came in, those that some generation lets through
  uint64_t published = 0;
  uint64_t out_of_turn = 0;  // generations that did not become current when they were published
  uint64_t unmet = 0;        // generations that were given the time and that no batch met
};

class Swapper {
 public:
  explicit Swapper(const Setting& setting) : s_(setting), devices_(testing::devices_of(setting.kind, setting.devices)) {
    const std::string capture = dir_ / "in.pcap";
    auto writer = CaptureWriter::create(capture);
    if (!writer) std::abort();
    const bool adaptive = s_.mode == DeviceMode::kAdaptive;
    for (uint32_t i = 0; i < (adaptive ? 2 * kBusyBatches : 16) * s_.batch; ++i) {
      const uint32_t variant = i % kVariants;
      const auto port = static_cast<uint16_t>(1000 + i % 50'000);
      PacketBuilder b = s_.both_families && i / kVariants % 2 == 1
                            ? udp6("2001:db8:ffff::1", fmt::format("2001:db8:{:x}::7", variant)).ports(port, 53)
                            : udp4("10.0.0.1", fmt::format("10.9.{}.7", variant)).ports(port, 53);
      // Adaptive: of the others, which never leave, all are in records of the first kind for many batches, and then
      // none for as many: their headers are too long for a frame's first bytes, or they have keys of another kind.
      if (i % s_.batch >= leaving()) {
        b = i / s_.batch / kBusyBatches % 2 == 0 ? udp4("10.0.0.1", "10.8.0.1")
                                                 : udp6("2001:db8:ffff::1", "2001:db8:8::7").hop_by_hop(40);
        b.ports(port, 53);
      }
      const std::vector<uint8_t> frame = b.payload(10).build();
      const auto bytes = static_cast<uint32_t>(frame.size());
      if (!writer->append(FrameHeader{bytes, bytes, i}, frame.data())) std::abort();
    }
    if (!writer->commit().ok()) std::abort();
    write_tables(0);
    text_ = fmt::format(
        "AclTable(edge, FILE {0});\nRouteTable(main, FILE {1}, ALGORITHM poptrie, ALGORITHM6 poptrie);\n"
        "AdjacencyTable(adj, FILE {2}, ROUTES main);\n"
        "FromMemory({3}, LIMIT 1000000000000) -> input :: IPInput -> ACL(TABLE edge) -> IPRoute(TABLE main) -> "
        "DecIPTTL\n"
        "  -> AdjacencyRewrite(TABLE adj) -> ToDump({4});\n",
        dir_ / "edge.acl", dir_ / "rib.txt", dir_ / "adj.txt", capture, dir_ / "out.pcap");
    // Lent frames all cross, and the device finds whose headers are too long. Where something may look in front of
    // frames, although no packet comes there, they are gathered by the host, which keeps such.
    if (adaptive && s_.records == RecordChoice::kFrame) text_ += "input[1] -> Print(bad) -> Unstrip(14) -> Discard;\n";
  }

  Device& device(size_t i) { return *devices_[i]; }
  // Of the two images that are patched.
  size_t patched_bytes() const { return patched_bytes_; }

  // Publishes `generations` while packets flow. `before(g)` is called before generation g is made resident.
  Outcome run(uint64_t generations, const std::function<void(uint64_t g)>& before = {}) {
    Outcome outcome;
    go(generations, before, outcome);
    return outcome;
  }

 private:
  static constexpr uint32_t kBusyBatches = 80;
  // Packets of a batch that some generation lets through.
  uint32_t leaving() const { return s_.mode == DeviceMode::kAdaptive ? s_.batch * 2 / 5 : s_.batch; }

  void write_tables(uint64_t g) {
    const uint64_t v = g % kVariants;
    testing::write_file(dir_ / "edge.acl", fmt::format("permit udp from any to 10.9.{0}.0/24\n"
                                                       "permit udp from any to 2001:db8:{0:x}::/48\n",
                                                       v));
    // The other next hops are named too, in the same order, so that ids mean the same in every generation.
    std::string routes;
    for (uint32_t i = 0; i < kVariants; ++i) routes += fmt::format("203.0.113.{}/32 hop{}\n", i, i);
    routes += fmt::format("10.9.{0}.0/24 hop{0}\n2001:db8:{0:x}::/48 hop{0}\n", v);
    testing::write_file(dir_ / "rib.txt", routes);
    std::string hops;
    for (uint32_t i = 0; i < kVariants; ++i) {
      hops += i == v ? fmt::format("hop{} 02:00:{:02x}:{:02x}:{:02x}:{:02x} 02:00:00:00:00:01 {}\n", i, g >> 24 & 255,
                                   g >> 16 & 255, g >> 8 & 255, g & 255, i)
                     : fmt::format("hop{} drop\n", i);
    }
    testing::write_file(dir_ / "adj.txt", hops);
  }

  static IpPrefix prefix_of(uint64_t g, bool wide) {
    const uint64_t v = g % kVariants;
    return wide ? IpPrefix{{0x20010db800000000 | v << 16, 0, 6}, 48} : IpPrefix{{0, 0x0a090000 | v << 8, 4}, 24};
  }
  // The same tables as write_tables has, by a change from those of the generation before.
  void patch_tables(uint64_t g, TableSet& tables) {
    AclChange change;
    for (const bool wide : {false, true}) {
      AclRule rule;
      rule.family = wide ? 6 : 4;
      rule.dst = prefix_of(g, wide);
      rule.protocol = 17;
      rule.protocol_mask = 0xff;
      const uint64_t priority = wide ? 20 : 10;
      acl_ == nullptr ? change.add(priority, rule) : change.replace(priority, rule);
    }
    if (acl_ == nullptr) {
      auto acl = PatchedAcl::create({});
      ASSERT_TRUE(acl.ok());
      acl_ = std::move(*acl);
      Rib rib;
      for (uint32_t i = 0; i < kVariants; ++i) {
        rib.add({{0, 0xcb007100 | i, 4}, 32}, rib.intern(fmt::format("hop{}", i)));
      }
      auto routes = PatchedRoutes::create(rib, {.algorithm4 = "sail", .algorithm6 = "range24"});
      ASSERT_TRUE(routes.ok());
      routes_ = std::move(*routes);
    }
    ASSERT_TRUE(acl_->apply(change).ok());
    for (const bool wide : {false, true}) {
      if (g > 0) {
        routes_->set(prefix_of(g - 1, wide), 0);
      }
      routes_->set(prefix_of(g, wide), static_cast<uint32_t>(1 + g % kVariants));
    }
    auto acl = acl_->publish();
    auto routes = routes_->publish();
    ASSERT_TRUE(acl.ok() && routes.ok());
    tables.acls["edge"] = *acl;
    tables.routes["main"] = *routes;
    patched_bytes_ = (*acl)->bytes().size() + (*routes)->bytes().size();
  }

  void go(uint64_t generations, const std::function<void(uint64_t g)>& before, Outcome& outcome) {
    ASSERT_EQ(devices_.size(), s_.devices);
    Registry registry;
    register_elements(registry);
    auto graph = parse_click(text_, "test.click");
    ASSERT_TRUE(graph.ok()) << to_string(graph.error());
    auto router = build_router(*graph, registry, text_);
    ASSERT_TRUE(router.ok()) << to_string(router.error());
    auto plan = make_plan(*router);
    ASSERT_TRUE(plan.ok());
    std::atomic<bool> stop{false};
    std::atomic<bool> ended{false};
    std::atomic<uint64_t> committed{0};
    RunOptions options;
    options.workers = s_.workers;
    options.batch = s_.batch;
    options.stop = &stop;
    options.stop_is_end = true;
    options.progress = [&](uint64_t packets) { committed.store(packets, std::memory_order_relaxed); };
    options.device.devices = devices_;
    options.device.mode = s_.mode;
    options.device.transport = s_.transport;
    options.device.records = s_.records;
    options.device.enter_after = options.device.leave_after = 1;
    // A busy machine is not a lost device.
    options.device.watchdog_ns = 60'000'000'000;
    auto runtime = Engine::create(*router, *plan, options);
    ASSERT_TRUE(runtime.ok()) << to_string(runtime.error());
    auto publish = [&](uint64_t g) {
      write_tables(g);
      auto tables = load_tables(*router);
      ASSERT_TRUE(tables.ok()) << to_string(tables.error());
      if (s_.patched) {
        // Replicas are free when no batch on its way holds a generation with them.
        (*runtime)->publisher().drain_retired();
        patch_tables(g, *tables);
      }
      auto snapshot = bind_plan(*plan, *router, *tables);
      ASSERT_TRUE(snapshot.ok()) << to_string(snapshot.error());
      if (before) before(g);
      const uint64_t number = (*runtime)->publisher().publish(std::move(*snapshot));
      if (number != g + 1 || (*runtime)->publisher().generation() != g + 1) ++outcome.out_of_turn;
      ++outcome.published;
    };
    publish(0);
    // More batches than can be on their way: the last of so many was read after the generation became current.
    const uint64_t on_way = std::bit_ceil((options.device.flights + 1) * s_.workers) + 2;
    std::vector<uint8_t> paced(generations);
    paced[0] = 1;
    std::jthread control([&] {
      for (uint64_t g = 1; g < generations && !::testing::Test::HasFatalFailure(); ++g) {
        publish(g);
        // Every third follows at once on the one before.
        paced[g] = g % 3 != 1 || g + 1 == generations;
        const uint64_t until = committed.load(std::memory_order_relaxed) + on_way * s_.batch;
        while (paced[g] && !ended.load() && committed.load(std::memory_order_relaxed) < until) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      }
      stop = true;
    });
    const auto result = (*runtime)->run(outcome.report);
    ended = true;
    control.join();
    ASSERT_TRUE(result.ok()) << to_string(result.error());
    outcome.leaving = outcome.report.packets_in / s_.batch * leaving();
    read_output(outcome);
    std::vector<uint8_t> met(generations);
    for (const uint64_t g : outcome.batches) {
      ASSERT_LT(g, generations);
      met[g] = 1;
    }
    // Generation 0 may have been followed before the first batch was read.
    for (uint64_t g = 1; g < generations; ++g) outcome.unmet += paced[g] && !met[g] ? 1 : 0;
    outcome.ran = true;
  }

  // Outputs are written in the order of the input, so each batch left so many records in a row.
  void read_output(Outcome& outcome) {
    auto reader = CaptureReader::open(dir_ / "out.pcap");
    ASSERT_TRUE(reader.ok()) << to_string(reader.error());
    const uint32_t each = leaving() / kVariants;
    CapturedFrame frame;
    uint64_t first = 0;
    bool mixed = false;
    for (uint32_t n = 0;;) {
      auto more = reader->next(frame);
      ASSERT_TRUE(more.ok()) << to_string(more.error());
      if (!*more) {
        outcome.strayed = n;
        return;
      }
      const uint64_t g = uint64_t{frame.data[2]} << 24 | frame.data[3] << 16 | frame.data[4] << 8 | frame.data[5];
      if (n == 0) {
        first = g;
        mixed = false;
      }
      mixed |= g != first;
      if (++n < each) continue;
      outcome.mixed += mixed ? 1 : 0;
      outcome.batches.push_back(first);
      n = 0;
    }
  }

  Setting s_;
  TempDir dir_;
  std::vector<std::shared_ptr<Device>> devices_;
  std::string text_;
  std::unique_ptr<PatchedAcl> acl_;
  std::unique_ptr<PatchedRoutes> routes_;
  size_t patched_bytes_ = 0;
};

void expect_whole(const Outcome& o, uint64_t generations) {
  ASSERT_TRUE(o.ran);
  EXPECT_EQ(o.published, generations);
  EXPECT_EQ(o.out_of_turn, 0u);
  EXPECT_EQ(o.unmet, 0u) << "a generation was published, and no packet met it";
  EXPECT_TRUE(o.report.conserved());
  EXPECT_EQ(o.mixed, 0u) << "a batch met more than one generation";
  EXPECT_EQ(o.strayed, 0u);
  EXPECT_TRUE(std::is_sorted(o.batches.begin(), o.batches.end())) << "an older generation came back";
  EXPECT_EQ(o.batches.back(), generations - 1);
  const uint64_t others = o.report.packets_in - o.leaving;
  EXPECT_EQ(o.report.packets_out, o.leaving / kVariants);
  for (size_t r = 0; r < kDropReasons; ++r) {
    const auto reason = static_cast<DropReason>(r);
    const uint64_t want = reason == DropReason::kAclNoMatch ? o.leaving / kVariants * (kVariants - 1) + others : 0;
    EXPECT_EQ(o.report.drops[r], want) << to_string(reason);
  }
  EXPECT_EQ(o.report.offload.rescued, 0u);
  EXPECT_EQ(o.report.offload.redone, 0u);
}

std::vector<Setting> settings(const std::string& kind) {
  using enum RecordChoice;
#if defined(SLUICE_SANITIZED)
  // Each mode, and two devices, once.
  return {{kind, DeviceMode::kPersistent, kAuto, 2, 2},
          {kind, DeviceMode::kLaunch, kFrame, 2, 1},
          {kind, DeviceMode::kPersistent, kFrame, 2, 1},
          {kind, DeviceMode::kAdaptive, kAuto, 2, 1, 250, false}};
#else
  std::vector<Setting> all = {
      {kind, DeviceMode::kPersistent, kAuto, 3, 1, 50, true, Transport::kStaged, 40},
      {kind, DeviceMode::kPersistent, kAuto, 2, 2},
      {kind, DeviceMode::kPersistent, kFrame, 3, 1, 50, true, Transport::kStaged, 40},
      {kind, DeviceMode::kLaunch, kAuto, 3, 1, 50, true, Transport::kStaged, 40},
      {kind, DeviceMode::kLaunch, kFrame, 2, 2},
      {kind, DeviceMode::kLaunch, kAuto, 2, 1, 50, true, Transport::kCommList},
      {kind, DeviceMode::kLaunch, kFrame, 2, 1, 50, true, Transport::kCommPool},
      {kind, DeviceMode::kAdaptive, kAuto, 2, 1, 250, false, Transport::kStaged, 40},
      {kind, DeviceMode::kAdaptive, kFrame, 2, 2, 250, true},
  };
  return all;
#endif
}

TEST(DeviceGenerations, AreNeverMixedWhilePacketsFlow) {
  for (const std::string& kind : testing::device_kinds()) {
    for (const Setting& setting : settings(kind)) {
      SCOPED_TRACE(name_of(setting));
      const uint64_t generations = swaps(setting.swaps) + 1;
      const Outcome o = Swapper(setting).run(generations);
      expect_whole(o, generations);
      if (HasFatalFailure()) return;
      // Equality says nothing if the packets never left the host.
      EXPECT_GT(o.report.offload.offloaded, o.report.packets_in / 2);
      ASSERT_EQ(o.report.devices.size(), setting.devices);
      for (const DeviceReport& device : o.report.devices) {
        EXPECT_EQ(device.failure, "");
        EXPECT_EQ(device.refused_generations, 0u);
        EXPECT_GT(device.channels.records, 0u);
        if (setting.mode == DeviceMode::kAdaptive) {
          EXPECT_GT(device.channels.switches, 2u);
        } else {
          EXPECT_EQ(device.channels.launches, setting.mode == DeviceMode::kLaunch ? device.channels.flights : 0);
        }
      }
    }
  }
}

// The same with tables that are patched: a device gets two copies of each, and then what has changed.
TEST(DeviceGenerations, PatchedTablesAreNeverMixed) {
  using enum RecordChoice;
  for (const std::string& kind : testing::device_kinds()) {
    for (Setting setting : {Setting{kind, DeviceMode::kPersistent, kAuto, 3, 1, 50, true, Transport::kStaged, 24},
                            Setting{kind, DeviceMode::kLaunch, kFrame, 2, 2, 50, true, Transport::kStaged, 24}}) {
      SCOPED_TRACE(name_of(setting));
      setting.patched = true;
      const uint64_t generations = swaps(setting.swaps) + 1;
      Swapper swapper(setting);
      const Outcome o = swapper.run(generations);
      expect_whole(o, generations);
      if (HasFatalFailure()) return;
      EXPECT_GT(o.report.offload.offloaded, o.report.packets_in / 2);
      // Two that are one GPU share its copies: what one has uploaded the other finds there.
      uint64_t uploaded = 0;
      for (const DeviceReport& device : o.report.devices) {
        EXPECT_EQ(device.refused_generations, 0u);
        EXPECT_LT(device.uploaded_bytes, swapper.patched_bytes() * (generations > 6 ? 4 : 8));
        uploaded += device.uploaded_bytes;
      }
      EXPECT_GT(uploaded, swapper.patched_bytes());
    }
  }
}

// A generation that does not fit the device runs on the host; the next that fits is the device's again.
TEST(DeviceGenerations, WithoutRoomRunOnTheHost) {
  for (const Setting& setting : {Setting{"emu", DeviceMode::kPersistent, RecordChoice::kAuto, 2, 1},
                                 Setting{"emu", DeviceMode::kPersistent, RecordChoice::kAuto, 3, 2},
                                 Setting{"emu", DeviceMode::kLaunch, RecordChoice::kFrame, 2, 1},
                                 Setting{"emu", DeviceMode::kAdaptive, RecordChoice::kAuto, 2, 1, 250, false}}) {
    SCOPED_TRACE(name_of(setting));
    // Where every access is watched, persistent mode with two devices does for both.
    if (testing::kWatched && setting.mode == DeviceMode::kPersistent && setting.devices == 1) continue;
    Swapper swapper(setting);
    auto& faults = static_cast<EmuDevice&>(swapper.device(0)).faults();
    uint64_t refused = 0;
    // The second has no room, then the third; the fourth has; and so on.
    auto before = [&](uint64_t g) {
      const bool full = g % 4 == 1 || g % 4 == 2;
      refused += full ? 1 : 0;
      faults.memory_limit = full ? 1000 : ~uint64_t{0};
    };
    const uint64_t generations = swaps(12) + 1;
    const Outcome o = swapper.run(generations, before);
    expect_whole(o, generations);
    if (HasFatalFailure()) return;
    ASSERT_EQ(o.report.devices.size(), setting.devices);
    EXPECT_GT(refused, 0u);
    EXPECT_EQ(o.report.devices[0].refused_generations, refused);
    EXPECT_NE(o.report.devices[0].failure, "") << "nobody was told";
    EXPECT_GT(o.report.offload.offloaded, 0u);
    // Every packet is of a shape that the device takes: what it did not do, it did not hold the tables for.
    EXPECT_LT(o.report.offload.offloaded, o.report.packets_in);
    if (setting.devices == 2) {
      EXPECT_EQ(o.report.devices[1].refused_generations, 0u);
      EXPECT_EQ(o.report.devices[1].failure, "");
    }
  }
}

// The very first generation is refused: the run begins on the host and reaches the device with the second.
TEST(DeviceGenerations, TheFirstWithoutRoom) {
  const Setting setting{"emu", DeviceMode::kPersistent, RecordChoice::kAuto, 2, 1};
  Swapper swapper(setting);
  auto& faults = static_cast<EmuDevice&>(swapper.device(0)).faults();
  const Outcome o = swapper.run(4, [&](uint64_t g) { faults.memory_limit = g == 0 ? 1000 : ~uint64_t{0}; });
  expect_whole(o, 4);
  if (HasFatalFailure()) return;
  EXPECT_EQ(o.report.devices[0].refused_generations, 1u);
  EXPECT_GT(o.report.offload.offloaded, 0u);
}

// -- the command that does it for minutes -----------------------------------------------------------------------------

class DeviceSoak : public testing::CliTest {
 protected:
  // Small tables: the command's own default is meant for minutes.
  testing::Said soak(const std::string& more) const {
    return sluice(
        "bench soak -q -o json --minutes 0.01 --rules 100 --routes 1000 --route-algorithm poptrie,poptrie "
        "--watchdog 60000 " +
        more);
  }
};

TEST_F(DeviceSoak, NothingIsWrong) {
  for (const char* device : {"--device cpu", "--device emu --mode persistent", "--device emu --mode launch --workers 2",
                             "--device emu --mode adaptive --workers 2 --shared-reader"}) {
    SCOPED_TRACE(device);
    const testing::Said said = soak(std::string(device) + " --swaps 5");
    EXPECT_EQ(said.code, 0) << said.out << said.err;
    const auto json = said.json();
    ASSERT_TRUE(json.is_object());
    EXPECT_EQ(json["swaps"], 5);
    EXPECT_EQ(json["packets_mixed"], 0);
    EXPECT_EQ(json["packets_lost"], 0);
    EXPECT_GT(json["packets"], 0);
    EXPECT_EQ(json["packets_out"].get<uint64_t>() * 4, json["packets"].get<uint64_t>());
    EXPECT_TRUE(json["wrong"].empty());
    EXPECT_GT(json["publish_ms"]["max"], 0.0);
    EXPECT_EQ(json["offloaded"], std::string(device) == "--device cpu" ? 0 : json["packets"].get<uint64_t>());
  }
}

// A soak that cannot fail says nothing: one generation with another's rules or adjacencies, and a packet too few.
TEST_F(DeviceSoak, FindsWhatIsWrong) {
  for (const char* spoil : {"rules", "adjacencies", "lost"}) {
    SCOPED_TRACE(spoil);
    const testing::Said said = soak(std::string("--device emu --swaps 2 --spoil ") + spoil);
    EXPECT_EQ(said.code, 5) << said.out << said.err;
    const auto json = said.json();
    ASSERT_TRUE(json.is_object());
    EXPECT_FALSE(json["wrong"].empty());
    EXPECT_GT(json[std::string(spoil) == "lost" ? "packets_lost" : "packets_mixed"], 0);
  }
}

}  // namespace
}  // namespace sluice
