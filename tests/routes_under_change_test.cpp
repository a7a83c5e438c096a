// Routes change while packets flow, on the CPU and on devices: what became of each packet is what the routes of its
// batch's generation say of its destination, by the definition of the longest match, and a batch meets one generation.
//
// 10,000 changes (adds, moves and withdrawals of both families), times SLUICE_TEST_SCALE (100: a million, in 400
// generations).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>
#include <tuple>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/engine/engine.h"
#include "net/packet_builder.h"
#include "net/text.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/lpm/patch.h"
#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"

namespace sluice::routes_under_change_test {
namespace {

using ::sluice::testing::TempDir;

struct Where {
  const char* name;
  const char* device;  // "": the host alone
  DeviceMode mode;
  RecordChoice records;
  const char* algorithm4;
};

uint64_t change_scale() {
  const char* set = std::getenv("SLUICE_TEST_SCALE");
  return set != nullptr ? std::max<uint64_t>(1, std::strtoull(set, nullptr, 10)) : 1;
}

constexpr uint32_t kBatch = 100, kBatches = 8;  // of the capture, which is read again and again
constexpr uint32_t kPackets = kBatch * kBatches;
constexpr uint32_t kPrefixes = 4000, kNextHops = 16;  // ids 1..16
constexpr uint32_t kWorkers = 2;
// Where the prefixes and the destinations are.
constexpr IpPrefix kAll4{{0, 0x0a000000, 4}, 8}, kAll6{{0x20010db800000000, 0, 6}, 32};

class RoutesUnderChange : public ::testing::TestWithParam<Where> {
 protected:
  // Watched, a fifth of the changes: a generation takes as long as ten.
  static uint64_t generations() {
    return ::sluice::testing::kWatched ? 4 : std::min<uint64_t>(20 * change_scale(), 400);
  }
  static uint64_t changes_each() { return ::sluice::testing::kWatched ? 500 : 10'000 * change_scale() / generations(); }

  void SetUp() override {
    if (std::string(GetParam().device) == "cuda") {
      const DeviceCount found = count_cuda_devices();
      if (found.count == 0) GTEST_SKIP() << "no CUDA device: " << found.why_none;
    }
    draw_prefixes();
    draw_packets();
  }

  // Nested prefixes of all lengths with few bases, so that most destinations have many that cover them. What may
  // change; the marker's route stands apart and stays.
  void draw_prefixes() {
    prefixes_ = {{{0, 0, 4}, 0}, {{0, 0, 6}, 0}};
    while (prefixes_.size() < kPrefixes) {
      const bool wide = prefixes_.size() % 4 == 3;
      IpPrefix p;
      if (wide) {
        p = prefix_around(
            {0x20010db800000000 ^ random_() >> (16 + random_() % 48), random_() % 2 == 0 ? 0 : random_(), 6},
            static_cast<unsigned>(40 + random_() % 89));
      } else {
        const auto low = static_cast<uint32_t>(random_());
        p = prefix_around({0, 0x0a100000u ^ (low >> (8 + random_() % 24)), 4},
                          static_cast<unsigned>(14 + random_() % 19));
      }
      if (std::find(prefixes_.begin(), prefixes_.end(), p) == prefixes_.end()) prefixes_.push_back(p);
    }
    now_.assign(kPrefixes, 0);
  }

  // The first packet of a batch goes to the marker, which always has a route. The others go into the prefixes, to their
  // ends and to the neighbours of those, one in eight anywhere.
  void draw_packets() {
    auto writer = CaptureWriter::create(dir_ / "in.pcap");
    ASSERT_TRUE(writer.ok());
    for (uint32_t i = 0; i < kPackets; ++i) {
      IpAddress to{0, 0xcb007101, 4};
      while (i % kBatch != 0) {
        const IpPrefix& p = i % 8 == 1 ? (i % 16 == 1 ? kAll4 : kAll6) : prefixes_[random_() % kPrefixes];
        uint64_t mask_hi = ~0ull, mask_lo = ~0ull;
        const bool wide = p.address.family == 6;
        mask_address(mask_hi, mask_lo, wide ? p.length : 96u + p.length);
        const uint64_t choice = p == kAll4 || p == kAll6 ? 3 : random_() % 4;
        const uint64_t fill_hi = choice == 0 ? 0 : choice == 1 ? ~0ull : random_();
        const uint64_t fill_lo = choice == 0 ? 0 : choice == 1 ? ~0ull : random_();
        to = {wide ? p.address.hi | (fill_hi & ~mask_hi) : 0, p.address.lo | (fill_lo & ~mask_lo), p.address.family};
        if (choice == 2) to.lo = wide ? to.lo + 1 : (to.lo + 1) & 0xffffffff;
        // No martians, which never come to the routes.
        if (prefix_around(to, wide ? kAll6.length : kAll4.length) == (wide ? kAll6 : kAll4)) break;
      }
      covers_.emplace_back();
      for (uint32_t k = 0; k < kPrefixes; ++k) {
        const IpPrefix& p = prefixes_[k];
        if (p.address.family == to.family && prefix_around(to, p.length) == p) covers_.back().push_back(k);
      }
      std::sort(covers_.back().begin(), covers_.back().end(),
                [&](uint32_t a, uint32_t b) { return prefixes_[a].length > prefixes_[b].length; });
      const PacketBuilder b =
          to.family == 6 ? udp6("2001:db8:ffff::1", to_string(to)) : udp4("10.0.0.1", to_string(to));
      const std::vector<uint8_t> frame = PacketBuilder(b).ports(static_cast<uint16_t>(i), 53).payload(8).build();
      const auto bytes = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, i}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }

  // The definition, over what covers the destination, longest first.
  void note_answers() {
    for (uint32_t i = 0; i < kPackets; ++i) {
      uint8_t hop = i % kBatch == 0 ? kNextHops : uint8_t{0};
      for (size_t k = 0; k < covers_[i].size() && hop == 0; ++k) hop = now_[covers_[i][k]];
      answers_.push_back(hop);
    }
  }
  uint8_t answer(uint64_t generation, uint64_t packet) const { return answers_[generation * kPackets + packet]; }

  // The next generation of both tables. The neighbour of each next hop says its number and the generation's.
  void change(uint64_t generation, TableSet& tables) {
    const auto neighbour = [&](uint32_t hop) {
      AdjacencyModel::Neighbour n;
      n.destination = {{2, static_cast<uint8_t>(hop), static_cast<uint8_t>(generation >> 24),
                        static_cast<uint8_t>(generation >> 16), static_cast<uint8_t>(generation >> 8),
                        static_cast<uint8_t>(generation)}};
      n.source = {{2, 0, 0, 0, 0, 1}};
      return n;
    };
    const bool first = routes_ == nullptr;
    if (first) {
      Rib rib;
      AdjacencyModel model(kNextHops);
      for (uint32_t hop = 1; hop <= kNextHops; ++hop) {
        rib.intern(fmt::format("n{}", hop));
        model.add(hop, neighbour(hop));
      }
      rib.add({{0, 0xcb007101, 4}, 32}, kNextHops);
      rib.settle();
      auto routes = PatchedRoutes::create(rib, {.algorithm4 = GetParam().algorithm4});
      ASSERT_TRUE(routes.ok()) << to_string(routes.error());
      routes_ = std::move(*routes);
      auto adjacencies = PatchedAdjacencies::create(model);
      ASSERT_TRUE(adjacencies.ok());
      adjacencies_ = std::move(*adjacencies);
    }
    const auto set = [&](uint32_t k, uint8_t hop) {
      ASSERT_EQ(routes_->set(prefixes_[k], hop), hop != now_[k]);
      now_[k] = hop;
      ++changes_;
    };
    for (const uint32_t k : {0u, 1u}) set(k, generation % 3 == k ? kNextHops : uint8_t{0});
    for (uint64_t i = 0; i < (first ? kPrefixes : changes_each()); ++i) {
      set(2 + static_cast<uint32_t>(random_() % (kPrefixes - 2)),
          random_() % 3 == 0 ? 0 : static_cast<uint8_t>(1 + random_() % kNextHops));
    }
    for (uint32_t hop = 1; hop <= kNextHops; ++hop) adjacencies_->set_neighbour(hop - 1, neighbour(hop));
    auto routes = routes_->publish();
    ASSERT_TRUE(routes.ok()) << to_string(routes.error());
    auto adjacencies = adjacencies_->publish();
    ASSERT_TRUE(adjacencies.ok()) << to_string(adjacencies.error());
    tables.routes["main"] = *routes;
    tables.adjacencies["adj"] = *adjacencies;
    note_answers();
  }

  // Outputs are written in the order of the input. What is not there was dropped.
  void check_output(const RunReport& report) {
    auto reader = CaptureReader::open(dir_ / "out.pcap");
    ASSERT_TRUE(reader.ok()) << to_string(reader.error());
    uint64_t position = 0, dropped = 0, generation = 0, mixed = 0, wrong = 0, backwards = 0, telling = 0;
    std::string first_wrong;
    const auto expect_answer = [&](uint64_t packet, uint8_t got) {
      if (answer(generation, packet) == got) return;
      if (wrong++ == 0) first_wrong = fmt::format("packet {}, generation {}: next hop {}", packet, generation, got);
    };
    std::vector<uint8_t> met(answers_.size() / kPackets);
    CapturedFrame frame;
    for (;;) {
      auto more = reader->next(frame);
      ASSERT_TRUE(more.ok()) << to_string(more.error());
      if (!*more) break;
      const uint8_t* udp = frame.data + 14 + (frame.data[12] == 0x86 ? 40 : 20);
      const auto packet = static_cast<uint32_t>(udp[0] << 8 | udp[1]);
      ASSERT_LT(packet, kPackets);
      for (; position % kPackets != packet; ++position, ++dropped) {
        ASSERT_NE(position % kBatch, 0u) << "a marker is lost";
        expect_answer(position % kPackets, 0);
      }
      const uint64_t g = uint64_t{frame.data[2]} << 24 | frame.data[3] << 16 | frame.data[4] << 8 | frame.data[5];
      ASSERT_LT(g, met.size());
      if (packet % kBatch == 0) {
        backwards += g < generation ? 1 : 0;
        generation = g;
        met[g] = 1;
        // A batch says something where the generation before would have answered otherwise.
        const auto of = [&](uint64_t n) { return answers_.begin() + static_cast<ptrdiff_t>(n * kPackets + packet); };
        telling += g > 0 && !std::equal(of(g), of(g) + kBatch, of(g - 1)) ? 1 : 0;
      }
      mixed += g != generation ? 1 : 0;
      expect_answer(packet, frame.data[1]);
      ++position;
    }
    for (; position < report.packets_in; ++position, ++dropped) {
      ASSERT_NE(position % kBatch, 0u) << "a marker is lost";
      expect_answer(position % kPackets, 0);
    }
    EXPECT_EQ(wrong, 0u) << "of " << position << "; first " << first_wrong;
    EXPECT_EQ(mixed, 0u);
    EXPECT_EQ(backwards, 0u);
    EXPECT_EQ(position, report.packets_in);
    EXPECT_EQ(dropped, report.drops[static_cast<size_t>(DropReason::kNoRoute)]);
    EXPECT_EQ(position - dropped, report.packets_out);
    // It must be able to fail: packets with and without routes, and generations that differ, most of which were met.
    EXPECT_GT(dropped, position / 100);
    EXPECT_GT(position - dropped, position / 2);
    EXPECT_GT(telling, met.size());
    EXPECT_GT(std::count(met.begin(), met.end(), 1), static_cast<ptrdiff_t>(met.size() / 2));
  }

  TempDir dir_;
  std::mt19937_64 random_{5};
  std::vector<IpPrefix> prefixes_;
  std::vector<uint8_t> now_;                   // by prefix, its next hop or 0
  std::vector<std::vector<uint32_t>> covers_;  // by packet, the prefixes that cover its destination
  std::vector<uint8_t> answers_;               // by generation and packet
  std::unique_ptr<PatchedRoutes> routes_;
  std::unique_ptr<PatchedAdjacencies> adjacencies_;
  uint64_t changes_ = 0;
};

TEST_P(RoutesUnderChange, EveryAnswerIsOfItsBatchsGeneration) {
  const Where& where = GetParam();
  ::sluice::testing::write_file(dir_ / "rib.txt", "203.0.113.1/32 n1\n");
  ::sluice::testing::write_file(dir_ / "adj.txt", "n1 02:00:00:00:00:02 02:00:00:00:00:01 0\n");
  const std::string text = fmt::format(
      "RouteTable(main, FILE {});\nAdjacencyTable(adj, FILE {}, ROUTES main);\n"
      "FromMemory({}, LIMIT 1000000000000) -> IPInput -> IPRoute(TABLE main) -> DecIPTTL\n"
      "  -> AdjacencyRewrite(TABLE adj) -> ToDump({});\n",
      dir_ / "rib.txt", dir_ / "adj.txt", dir_ / "in.pcap", dir_ / "out.pcap");
  Registry registry;
  register_elements(registry);
  auto graph = parse_click(text, "test.click");
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  auto router = build_router(*graph, registry, text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  auto plan = make_plan(*router);
  ASSERT_TRUE(plan.ok());
  std::atomic<bool> stop{false}, ended{false};
  std::atomic<uint64_t> committed{0};
  RunOptions options;
  options.workers = kWorkers;
  options.batch = kBatch;
  options.stop = &stop;
  options.stop_is_end = true;
  options.progress = [&](uint64_t packets) { committed.store(packets, std::memory_order_relaxed); };
  if (*where.device != 0) {
    options.device.devices = ::sluice::testing::devices_of(where.device, 1);
    ASSERT_EQ(options.device.devices.size(), 1u);
    options.device.mode = where.mode;
    options.device.records = where.records;
    options.device.watchdog_ns = 60'000'000'000;  // a busy machine is not a lost device
  }
  auto runtime = Engine::create(*router, *plan, options);
  ASSERT_TRUE(runtime.ok()) << to_string(runtime.error());
  TableSet tables = *load_tables(*router);
  const auto publish = [&](uint64_t g) {
    // Replicas are free when no batch on its way holds a generation with them.
    tables.routes.clear();
    tables.adjacencies.clear();
    (*runtime)->publisher().drain_retired();
    change(g, tables);
    auto snapshot = bind_plan(*plan, *router, tables);
    ASSERT_TRUE(snapshot.ok()) << to_string(snapshot.error());
    EXPECT_EQ((*runtime)->publisher().publish(std::move(*snapshot)), g + 1);
  };
  const uint64_t last = generations();
  publish(0);
  const uint64_t on_way = 2 * kWorkers + 4 + options.device.flights + 2;  // batches, at most
  std::jthread control([&] {
    for (uint64_t g = 1; g <= last && !HasFatalFailure(); ++g) {
      publish(g);
      // Every third is followed at once; the others are given the time to be met.
      const uint64_t until = committed.load(std::memory_order_relaxed) + on_way * kBatch;
      while (g % 3 != 1 && !ended.load() && committed.load(std::memory_order_relaxed) < until) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    stop = true;
  });
  RunReport report;
  const auto result = (*runtime)->run(report);
  ended = true;
  control.join();
  ASSERT_TRUE(result.ok()) << to_string(result.error());
  if (HasFatalFailure()) return;
  EXPECT_TRUE(report.conserved());
  EXPECT_GE(changes_, last * changes_each());
  if (*where.device != 0) {
    // Equality says nothing if the packets never left the host.
    EXPECT_GT(report.offload.offloaded, report.packets_in / 2);
    EXPECT_EQ(report.offload.rescued, 0u);
  }
  check_output(report);
}

// dir24 is patched in place, as sail is; sail stands for it where 32 MiB would be watched.
constexpr const char* kPatched4 = testing::kWatched ? "sail" : "dir24";
INSTANTIATE_TEST_SUITE_P(
    Everywhere, RoutesUnderChange,
    ::testing::Values(Where{"cpu_sail", "", DeviceMode::kLaunch, RecordChoice::kAuto, "sail"},
                      Where{"cpu_dir24", "", DeviceMode::kLaunch, RecordChoice::kAuto, kPatched4},
                      Where{"emu_persistent", "emu", DeviceMode::kPersistent, RecordChoice::kAuto, kPatched4},
                      Where{"emu_launch", "emu", DeviceMode::kLaunch, RecordChoice::kFrame, "sail"},
                      Where{"cuda_persistent", "cuda", DeviceMode::kPersistent, RecordChoice::kAuto, "dir24"},
                      Where{"cuda_launch", "cuda", DeviceMode::kLaunch, RecordChoice::kFrame, "sail"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice::routes_under_change_test
