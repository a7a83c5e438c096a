// Tables change while packets flow: every batch meets one generation, whole, and nothing is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/engine/engine.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::TempDir;

// In generation A the ACL permits 192.0.2.0/24 and only that has a route; in generation B it is 198.51.100.0/24. A
// batch that met the ACL of one and the routes of the other would permit packets that have no route.
struct Turns {
  unsigned workers;
  bool by_class;  // packets wait in chunks of their class while the thread is busy with others
};
class Generations : public ::testing::TestWithParam<Turns> {};

TEST_P(Generations, AreNeverMixedWhilePacketsFlow) {
  const TempDir dir;
  {
    auto writer = CaptureWriter::create(dir / "in.pcap");
    ASSERT_TRUE(writer.ok());
    for (uint16_t i = 0; i < 512; ++i) {
      const auto frame = udp4("10.0.0.1", i % 2 == 0 ? "192.0.2.7" : "198.51.100.7").ports(i, 53).payload(10).build();
      const auto bytes = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, i}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  constexpr uint64_t kPackets = 400'000;
  const std::string text =
      "AclTable(edge, FILE " + (dir / "edge.acl") + ");\nRouteTable(main, FILE " + (dir / "rib.txt") +
      ", ALGORITHM poptrie);\nFromMemory(" + (dir / "in.pcap") +
      ", LIMIT 100000000) -> IPInput -> acl :: ACL(TABLE edge) -> fib :: IPRoute(TABLE main) -> ToMemory;\n";
  Registry registry;
  register_elements(registry);
  auto graph = parse_click(text, "test.click");
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  auto router = build_router(*graph, registry, text);
  ASSERT_TRUE(router.ok()) << to_string(router.error());
  auto plan = make_plan(*router);
  ASSERT_TRUE(plan.ok());
  TableSet tables[2];
  const char* prefixes[2] = {"192.0.2.0/24", "198.51.100.0/24"};
  for (int g = 0; g < 2; ++g) {
    testing::write_file(dir / "edge.acl", std::string("permit udp from any to ") + prefixes[g] + "\n");
    testing::write_file(dir / "rib.txt", std::string(prefixes[g]) + " a\n");
    auto loaded = load_tables(*router);
    ASSERT_TRUE(loaded.ok()) << to_string(loaded.error());
    tables[g] = std::move(*loaded);
  }
  std::atomic<bool> over{false};
  std::atomic<uint64_t> done{0};
  RunOptions options;
  options.workers = GetParam().workers;
  options.stop = &over;
  options.stop_is_end = true;
  options.progress = [&](uint64_t n) { done = n; };
  if (GetParam().by_class) options.priorities = PriorityOptions{};
  auto runtime = Engine::create(*router, *plan, options);
  ASSERT_TRUE(runtime.ok());
  auto publish = [&](uint64_t n) {
    auto snapshot = bind_plan(*plan, *router, tables[n % 2]);
    ASSERT_TRUE(snapshot.ok());
    EXPECT_EQ((*runtime)->publisher().publish(std::move(*snapshot)), n + 1);
  };
  publish(0);
  // After each, more packets pass than can be on their way: some have met it.
  constexpr uint64_t kChanges = 8, kBetween = kPackets / kChanges;
  std::jthread control([&] {
    for (uint64_t n = 1; !over && n <= kChanges; ++n) {
      const uint64_t before = done;
      publish(n);
      while (!over && done < before + kBetween) std::this_thread::yield();
    }
    over = true;
  });
  RunReport report;
  const auto result = (*runtime)->run(report);
  over = true;
  control.join();
  ASSERT_TRUE(result.ok());
  EXPECT_GE(report.packets_in, kPackets);
  EXPECT_TRUE(report.conserved());
  EXPECT_EQ(report.drops[static_cast<size_t>(DropReason::kNoRoute)], 0u)
      << "an ACL of one generation met the routes of another";
  EXPECT_EQ(report.drops[static_cast<size_t>(DropReason::kAclNoMatch)], report.packets_in / 2);
  EXPECT_EQ(report.packets_out, report.packets_in / 2);
  EXPECT_GT(report.generation, 6u);
}

INSTANTIATE_TEST_SUITE_P(Workers, Generations,
                         ::testing::Values(Turns{1, false}, Turns{3, false}, Turns{1, true}, Turns{3, true}));

}  // namespace
}  // namespace sluice
