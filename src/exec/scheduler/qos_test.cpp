// ClassifyDSCP, Police, Shape and QoS in simulated time: what comes out is known to the packet.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/engine/engine.h"
#include "exec/engine/generation.h"
#include "exec/walk/plan.h"
#include "net/packet_builder.h"
#include "qos/class_map.h"

namespace sluice {
namespace {

struct ShapedRun {
  std::unique_ptr<ClickGraph> graph;
  std::unique_ptr<Router> router;
  Plan plan;
  std::unique_ptr<Engine> engine;
  RunReport report;
  std::string error;

  uint64_t drops(DropReason reason) const { return report.drops[static_cast<size_t>(reason)]; }
  int64_t count(const char* handler) {
    auto value = engine->read(handler);
    return value.ok() ? std::stoll(*value) : -1;
  }
};

// `next`: the graph that the handler `hotconfig` puts in place.
std::unique_ptr<ShapedRun> run_shaped(const std::string& text, const std::string& next = {}) {
  static const Registry registry = [] {
    Registry r;
    register_elements(r);
    return r;
  }();
  auto made = std::make_unique<ShapedRun>();
  ShapedRun& p = *made;
  const auto failed = [&](const Error& e) {
    p.error = to_string(e);
    return std::move(made);
  };
  auto graph = parse_click(text, "g");
  if (!graph.ok()) return failed(graph.error());
  p.graph = std::make_unique<ClickGraph>(std::move(*graph));
  auto router = build_router(*p.graph, registry, text);
  if (!router.ok()) return failed(router.error());
  p.router = std::make_unique<Router>(std::move(*router));
  auto tables = load_tables(*p.router);
  if (!tables.ok()) return failed(tables.error());
  RunOptions options;
  options.simulated = true;
  LoadOptions by_packets;
  by_packets.by_packets = true;
  options.load = [next, by_packets](std::string_view) { return load_generation(next, "next", registry, by_packets); };
  p.plan = plan_by_packets(*p.router);
  auto engine = Engine::create(*p.router, p.plan, *tables, options);
  if (!engine.ok()) return failed(engine.error());
  p.engine = std::move(*engine);
  if (auto done = p.engine->run(p.report); !done.ok()) p.error = to_string(done.error());
  EXPECT_TRUE(p.report.conserved()) << text;
  return made;
}

// A source of frames of 114 bytes, IP packets of 100.
std::string dscp_packets(unsigned dscp, unsigned per_second) {
  std::string hex;
  for (const uint8_t byte : udp4("10.0.0.1", "192.0.2.7").dscp(static_cast<uint8_t>(dscp)).size(114).build()) {
    hex += fmt::format("{:02x}", byte);
  }
  return fmt::format("RatedSource(DATA \\<{}>, RATE {}) -> CheckIPHeader(14)", hex, per_second);
}

std::string class_file(const char* name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(QosElements, AShaperKeepsItsRateToThePacket) {
  // 100 bytes at 10,000 bytes a second: one every 10 ms, the first at once; not the one in the last instant.
  auto p = run_shaped(
      "RatedSource(LENGTH 100, RATE 1000) -> s :: Shape(10000Bps, CAPACITY 50) -> c :: Counter -> Discard;\n"
      "DriverManager(wait 10s);");
  ASSERT_EQ(p->error, "");
  EXPECT_NEAR(static_cast<double>(p->count("c.count")), 1000, 1);
  EXPECT_EQ(p->report.queued, 50u);
  EXPECT_EQ(p->drops(DropReason::kShaperFull), p->report.packets_in - 50 - static_cast<uint64_t>(p->count("c.count")));
  // A burst of 1000 bytes goes at once, and one packet more.
  auto burst = run_shaped(
      "RatedSource(LENGTH 100, RATE 1000000) -> s :: Shape(10000Bps, BURST 1000) -> c :: Counter -> Discard;\n"
      "DriverManager(wait 5ms);");
  ASSERT_EQ(burst->error, "");
  EXPECT_EQ(burst->count("c.count"), 11);
}

// Which graphs the engine can run, and why not the others.
TEST(QosElements, AreRunByTheEngineWhereNothingQueues) {
  const auto scheduled = [](const std::string& text) {
    auto graph = parse_click(text, "g");
    if (!graph.ok()) return to_string(graph.error());
    Registry registry;
    register_elements(registry);
    auto router = build_router(*graph, registry, text);
    return router.ok() ? router->scheduled : to_string(router.error());
  };
  EXPECT_EQ(scheduled("InfiniteSource -> CheckIPHeader -> Police(1Mbps, 3000) -> Shape(1Mbps) -> Discard;"), "");
  EXPECT_EQ(scheduled("InfiniteSource -> s :: Shape(1Mbps) -> t :: Shape(2Mbps) -> Discard;"),
            "'s' (Shape) delays packets in front of 't' (Shape)");
  EXPECT_EQ(scheduled("InfiniteSource -> CheckIPHeader -> s :: Shape(1Mbps) -> p :: Police(2Mbps, 3000) -> Discard;"),
            "'s' (Shape) delays packets in front of 'p' (Police)");
  EXPECT_EQ(scheduled("InfiniteSource -> t :: Tee; t[0] -> s :: Shape(1Mbps) -> Discard; t[1] -> Discard;"),
            "'t' (Tee) makes packets in front of 's' (Shape)");
  EXPECT_EQ(scheduled("InfiniteSource -> s :: Shape(1Mbps) -> t :: Tee; t[0] -> Discard; t[1] -> Discard;"),
            "'t' (Tee) makes packets behind 's' (Shape), which delays them");
  EXPECT_EQ(scheduled("InfiniteSource -> c :: Paint(1) -> s :: Shape(1Mbps) -> w :: PaintSwitch; w[0] -> Discard; "
                      "w[1] -> c;"),
            "'c' (Paint) leads packets in a loop in front of 's' (Shape)");
  // What is beside or behind a policer may make packets.
  EXPECT_EQ(scheduled("InfiniteSource -> CheckIPHeader -> Police(1Mbps, 3000) -> t :: Tee; t[0] -> Discard; "
                      "t[1] -> Discard;"),
            "");
}

TEST(QosElements, AShapersRateChangesWhileItRuns) {
  auto p = run_shaped(
      "RatedSource(LENGTH 100, RATE 1000) -> s :: Shape(10000Bps, CAPACITY 2) -> c :: Counter -> Discard;\n"
      "DriverManager(wait 5s, write s.rate 20000Bps, wait 5s);");
  ASSERT_EQ(p->error, "");
  EXPECT_EQ(p->count("s.rate"), 20000);
  EXPECT_NEAR(static_cast<double>(p->count("c.count")), 500 + 1000, 3);
}

TEST(QosElements, TheHorizonOfAShaperDropsWhatWouldWaitTooLong) {
  auto p = run_shaped(
      "RatedSource(LENGTH 100, RATE 1000) -> s :: Shape(10000Bps, HORIZON 35ms) -> c :: Counter -> Discard;\n"
      "DriverManager(wait 1s);");
  ASSERT_EQ(p->error, "");
  EXPECT_NEAR(static_cast<double>(p->count("c.count")), 100, 1);
  EXPECT_LE(p->report.queued, 4u);
  EXPECT_GT(p->drops(DropReason::kShaperFull), 800u);
}

TEST(QosElements, APolicerGivesItsRateAndItsBurst) {
  // IP packets of 100 bytes, 1000 a second; 50,000 bytes a second are 500 of them, and 10 the burst.
  auto p = run_shaped(dscp_packets(0, 1000) + " -> p :: Police(50000Bps, 1000) -> Discard; DriverManager(wait 10s);");
  ASSERT_EQ(p->error, "");
  EXPECT_NEAR(static_cast<double>(p->count("p.green")), 5010, 1);
  EXPECT_EQ(p->count("p.yellow"), 0);
  EXPECT_EQ(p->drops(DropReason::kPoliced), static_cast<uint64_t>(p->count("p.red")));
  // Two rates: 200 a second are green, as many again yellow.
  auto two = run_shaped(dscp_packets(0, 1000) +
                        " -> p :: Police(20000Bps, 1000, PEAK 40000Bps, EXCESS 1000);\n"
                        "p[0] -> Discard; p[1] -> y :: Counter -> Discard; p[2] -> r :: Counter -> Discard;\n"
                        "DriverManager(wait 10s);");
  ASSERT_EQ(two->error, "");
  EXPECT_NEAR(static_cast<double>(two->count("p.green")), 2010, 1);
  EXPECT_NEAR(static_cast<double>(two->count("y.count")), 2000, 1);
  EXPECT_EQ(two->count("r.count"), two->count("p.red"));
  // A second policer that looks at colors makes no yellow packet green.
  auto aware =
      run_shaped(dscp_packets(0, 1000) +
                 " -> Police(20000Bps, 100, EXCESS 100) -> p :: Police(1Gbps, 1000000, EXCESS 10000, AWARE true) -> "
                 "Discard; DriverManager(wait 1s);");
  ASSERT_EQ(aware->error, "");
  EXPECT_EQ(aware->count("p.yellow"), 1);
  EXPECT_EQ(aware->count("p.red"), 0);
}

TEST(QosElements, ClassifyDscpSendsEachCodepointToItsOutput) {
  for (unsigned dscp = 0; dscp < 64; ++dscp) {
    auto p = run_shaped(dscp_packets(dscp, 10) +
                        " -> t :: Tee; t[0] -> a :: ClassifyDSCP; t[1] -> b :: ClassifyDSCP(\"1-3, 2  ef\", af41);\n"
                        "a[0] -> a0 :: Counter -> Discard; a[1] -> a1 :: Counter -> Discard; a[2] -> a2 :: Counter -> "
                        "Discard;\nb[0] -> b0 :: Counter -> Discard; b[1] -> b1 :: Counter -> Discard;\n"
                        "DriverManager(wait 50ms);");
    ASSERT_EQ(p->error, "");
    const unsigned c = ClassMap::three_priorities().class_of(dscp);
    EXPECT_EQ(p->count(fmt::format("a{}.count", c).c_str()), 1) << dscp;
    EXPECT_EQ(p->count(dscp == 46 || (dscp >= 1 && dscp <= 3) ? "b0.count" : "b1.count"), 1) << dscp;
  }
  const auto wrong =
      run_shaped("Idle -> CheckIPHeader(14) -> c :: ClassifyDSCP(ef, 64); c[0] -> Discard; c[1] -> Discard;");
  EXPECT_NE(wrong->error.find("'64' is not a codepoint"), std::string::npos) << wrong->error;
  const auto twice =
      run_shaped("Idle -> CheckIPHeader(14) -> c :: ClassifyDSCP(ef, 46); c[0] -> Discard; c[1] -> Discard;");
  EXPECT_NE(twice->error.find("codepoint 46 is of class output-0 already"), std::string::npos) << twice->error;
}

TEST(QosElements, PoliceWithoutBurstsIsRefused) {
  const auto none = run_shaped("Idle -> CheckIPHeader(14) -> Police(1Mbps, 0) -> Discard;");
  EXPECT_NE(none->error.find("both bursts are 0"), std::string::npos) << none->error;
  EXPECT_EQ(run_shaped("Idle -> CheckIPHeader(14) -> Police(1Mbps, 0, EXCESS 1) -> Discard;")->error, "");
  const auto still = run_shaped("Idle -> CheckIPHeader(14) -> Police(0, 15000) -> Discard;");
  EXPECT_NE(still->error.find("the rate is 0"), std::string::npos) << still->error;
  EXPECT_EQ(run_shaped("Idle -> CheckIPHeader(14) -> Police(0, 15000, EXCESS 3000) -> Discard;")->error, "");
}

TEST(QosElements, StrictClassesGoFirstAndTheOthersShareByWeight) {
  // Frames of 114 bytes; the port takes 1000 a second and is offered 2100.
  const std::string file = class_file("qos_shares",
                                      "class voice dscp ef strict\nclass web dscp af11 weight 3 limit 200\n"
                                      "class rest dscp others weight 1 limit 200\nport rate 912kbps\n");
  const auto offered = [](unsigned voice) {
    return dscp_packets(46, voice) + " -> q; " + dscp_packets(10, 1000) + " -> q; " + dscp_packets(0, 1000) +
           " -> q;\n";
  };
  const std::string behind =
      " -> Unqueue -> s :: PaintSwitch; s[0] -> v :: Counter -> Discard; s[1] -> w :: Counter -> Discard;\n"
      "s[2] -> r :: Counter -> Discard; DriverManager(wait 10s);";
  auto p = run_shaped("q :: QoS(" + file + ");\n" + offered(100) + "q" + behind);
  ASSERT_EQ(p->error, "");
  EXPECT_NEAR(static_cast<double>(p->count("v.count")), 1000, 1);
  // A round is 3 x 1514 and 1514 bytes: 40 and 13 packets.
  EXPECT_NEAR(static_cast<double>(p->count("w.count")), 9000 * 3 / 4, 45);
  EXPECT_NEAR(static_cast<double>(p->count("r.count")), 9000 / 4, 45);
  EXPECT_NEAR(static_cast<double>(p->count("v.count") + p->count("w.count") + p->count("r.count")), 10000, 1);
  EXPECT_GT(p->drops(DropReason::kQueueFull), 0u);
  // A strict packet waits for one on the wire at most, about a millisecond; the others have queues of 200.
  const std::string table = *p->engine->read("q.classes");
  unsigned long in = 0, out = 0, tail = 0, early = 0, policed = 0, waiting = 0, queued = 0, p50 = 0, p99 = 0;
  ASSERT_EQ(std::sscanf(table.c_str() + table.find("voice"), "voice %lu %lu %lu %lu %lu %lu %lu %lu %lu", &in, &out,
                        &tail, &early, &policed, &waiting, &queued, &p50, &p99),
            9)
      << table;
  EXPECT_LE(p99, 1'016'000u);
  ASSERT_EQ(std::sscanf(table.c_str() + table.find("rest"), "rest %lu %lu %lu %lu %lu %lu %lu %lu %lu", &in, &out,
                        &tail, &early, &policed, &waiting, &queued, &p50, &p99),
            9);
  EXPECT_EQ(in, out + tail + early + queued);
  EXPECT_GT(p50, 500'000'000u);
}

TEST(QosElements, ClassesAreShapedPolicedAndRemarked) {
  const std::string file =
      class_file("qos_remark",
                 "class slow dscp ef rate 91200bps limit 20\n"  // 100 frames a second
                 "class policed dscp af11 police srtcm 160kbps 100 100 remark yellow af12 remark red af13\n"
                 "class hard dscp others police srtcm 80kbps 100 0\n");
  auto p = run_shaped("q :: QoS(" + file + ");\n" + dscp_packets(46, 1000) + " -> q; " + dscp_packets(10, 1000) +
                      " -> q; " + dscp_packets(0, 1000) +
                      " -> q;\nq -> Unqueue -> CheckIPHeader(14) -> c :: ClassifyDSCP(ef, af11, af12, "
                      "af13, others);\nc[0] -> e :: Counter -> Discard; c[1] -> g :: Counter -> Discard; c[2] -> y :: "
                      "Counter -> Discard; c[3] -> r :: Counter -> Discard; c[4] -> h :: Counter -> Discard;\n"
                      "DriverManager(wait 10s);");
  ASSERT_EQ(p->error, "");
  EXPECT_NEAR(static_cast<double>(p->count("e.count")), 1000, 1);
  EXPECT_NEAR(static_cast<double>(p->count("g.count")), 2000, 1);
  EXPECT_EQ(p->count("y.count"), 1);
  EXPECT_NEAR(static_cast<double>(p->count("g.count") + p->count("y.count") + p->count("r.count")), 10000, 1);
  EXPECT_NEAR(static_cast<double>(p->count("h.count")), 1000, 1);
  EXPECT_NEAR(static_cast<double>(p->drops(DropReason::kPoliced)), 9000, 2);
  EXPECT_NEAR(static_cast<double>(p->drops(DropReason::kShaperFull)), 10000 - 1000 - 20, 2);
}

TEST(QosElements, AnotherGraphKeepsWhatWaitsInClassesOfTheSameName) {
  // 100 frames a second of 1000 leave each class, and 50 wait.
  const std::string before = class_file("qos_before",
                                        "class gone dscp af11 rate 91200bps limit 50\n"
                                        "class slow dscp others rate 91200bps limit 50\n");
  const std::string after = class_file("qos_after", "class slow dscp others rate 91200bps limit 60\n");
  auto p = run_shaped("q :: QoS(" + before + ");\n" + dscp_packets(10, 1000) + " -> q; " + dscp_packets(0, 1000) +
                          " -> q;\nq -> Unqueue -> c :: Counter -> Discard;\n"
                          "DriverManager(wait 1s, write hotconfig next, wait 5s);",
                      "Idle -> CheckIPHeader(14) -> q :: QoS(" + after +
                          ") -> Unqueue -> c :: Counter -> Discard; DriverManager(wait 1s, stop);");
  ASSERT_EQ(p->error, "");
  EXPECT_EQ(p->engine->swaps(), 1u);
  EXPECT_EQ(p->drops(DropReason::kGraphChanged), 50u);
  EXPECT_NEAR(static_cast<double>(p->count("c.count")), 2 * 100 + 50, 2);
  EXPECT_EQ(p->report.queued, 0u);
  EXPECT_EQ(p->report.packets_in, static_cast<uint64_t>(p->count("c.count")) + 50 + p->drops(DropReason::kShaperFull));
}

TEST(QosElements, AWrongTableIsShownAtItsPlace) {
  const auto p =
      run_shaped("Idle -> CheckIPHeader(14) -> QoS(" + class_file("qos_wrong", "class a dscp ef\nclass b wieght 2\n") +
                 ") -> Unqueue -> Discard;");
  EXPECT_NE(p->error.find("qos_wrong:2:9: error: unknown word 'wieght'"), std::string::npos) << p->error;
  EXPECT_NE(p->error.find("did you mean weight?"), std::string::npos);
  const auto none = run_shaped("Idle -> CheckIPHeader(14) -> QoS(/nowhere/at/all) -> Unqueue -> Discard;");
  EXPECT_NE(none->error.find("/nowhere/at/all"), std::string::npos) << none->error;
}

}  // namespace
}  // namespace sluice
