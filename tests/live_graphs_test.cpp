// Graphs of live ports: queues, shapers and scripts between two networks; graphs that follow and bring other ports with
// them; interfaces that come back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/router_test.h"

namespace sluice {
namespace {

using testing::kPatience;
using testing::NetNamespace;
using testing::Said;
using testing::Wire;
using Bytes = Wire::Bytes;
using Json = nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class LiveGraphsRouterTest : public testing::RouterTest {
 protected:
  // UDP of 16 flows: number `i` is in the payload.
  static Bytes frame(uint32_t i, const char* to = "8.1.2.3", uint32_t payload = 30) {
    std::vector<uint8_t> bytes(payload, static_cast<uint8_t>(i));
    for (size_t b = 0; b < 4; ++b) bytes[b] = static_cast<uint8_t>(i >> (8 * b));
    Bytes made = udp4("10.1.0.1", to).ports(static_cast<uint16_t>(1024 + i % 16), 80).payload(bytes).build();
    const uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
    std::copy(std::begin(head), std::end(head), made.begin());
    return made;
  }
  static void send(Wire& by, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n; ++i) ASSERT_TRUE(by.send(frame(i)));
  }
  // What comes next is numbers [first, first + n), whole and in order.
  static void expect_in_order(Wire& by, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n; ++i) {
      auto came = by.receive();
      ASSERT_TRUE(came) << i;
      ASSERT_EQ(*came, frame(i)) << i;
    }
  }
  static void expect_nothing(Wire& by) { EXPECT_FALSE(by.receive(milliseconds(300))); }
  // The run's report: all is accounted for.
  Json done() {
    Json report = stop();
    EXPECT_TRUE(report.is_object()) << read("log") << read("report.json");
    if (!report.is_object()) return report;
    EXPECT_TRUE(report["conserved"].get<bool>()) << report.dump();
    EXPECT_FALSE(report["partial"].get<bool>());
    return report;
  }
  static Json interface(const Json& report, const std::string& name) {
    for (const Json& one : report.at("ports")) {
      if (one["name"] == name) return one;
    }
    return {};
  }
  template <typename Condition>
  static bool soon(Condition&& condition) {
    const auto end = steady_clock::now() + kPatience;
    while (!condition()) {
      if (steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return true;
  }
  bool said(const std::string& words) const {
    return soon([&] { return read("log").find(words) != std::string::npos; });
  }
  static void run_on(const NetNamespace& where, const std::string& command) {
    const auto done = where.run(command);
    ASSERT_TRUE(done.ok()) << to_string(done.error());
  }
  // Milliseconds of processor time that the run has taken.
  uint64_t processor_ms() const {
    std::ifstream stat("/proc/" + read("pid").substr(0, read("pid").find('\n')) + "/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string word;
    uint64_t ticks = 0;
    for (int field = 3; field <= 15 && fields >> word; ++field) {
      if (field >= 14) ticks += std::stoull(word);
    }
    return ticks * 1000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  }
};

// -- queues, timers, scripts ------------------------------------------------------------------------------------------

TEST_F(LiveGraphsRouterTest, AQueueIsBetweenTwoNetworks) {
  for (const char* method : {"af_packet", "af_xdp", "pcap"}) {
    SCOPED_TRACE(method);
    const std::string by = std::string(", METHOD ") + method;
    write("q.click", "FromDevice(d0" + by + ") -> q :: Queue(10000) -> Unqueue -> ToDevice(d1" + by + ");\n");
    start("q.click");
    auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
    ASSERT_TRUE(near.ok() && far.ok());
    for (uint32_t burst = 0; burst < 4; ++burst) {
      send(*near, burst * 500, 500);
      expect_in_order(*far, burst * 500, 500);
    }
    const Json report = done();
    EXPECT_EQ(report["packets_in"], 2000);
    EXPECT_EQ(report["packets_out"], 2000);
    EXPECT_EQ(interface(report, "d0")["rx"][0]["packets"], 2000) << report["ports"].dump();
    EXPECT_EQ(interface(report, "d1")["tx"][0]["packets"], 2000) << report["ports"].dump();
  }
}

// The graph of the offline run, with live ports in place of captures: the same packets, counts and drops.
TEST_F(LiveGraphsRouterTest, AQueueBehindTablesGivesWhatItGivesOffline) {
  write("edge.acl", "deny udp from any to any port 53\npermit ip from any to any\n");
  write("rib", "8.0.0.0/8 10.2.0.1\n9.0.0.0/8 10.2.0.1\n");
  write("adj", "10.2.0.1 02:00:00:00:00:04 02:00:00:00:00:03 0\n");
  const auto graph = [&](const std::string& from, const std::string& to) {
    return "AclTable(edge, FILE edge.acl);\nRouteTable(main, FILE rib);\nAdjacencyTable(adj, FILE adj, ROUTES "
           "main);\n" +
           from + " -> IPInput -> ACL(TABLE edge) -> IPRoute(TABLE main) -> DecIPTTL -> AdjacencyRewrite(TABLE adj)\n" +
           "  -> Queue(10000) -> c :: Counter -> Unqueue -> " + to + ";\n";
  };
  std::vector<Bytes> sent;
  auto writer = CaptureWriter::create(path("in.pcap"));
  ASSERT_TRUE(writer.ok());
  for (uint32_t i = 0; i < 1500; ++i) {
    sent.push_back(frame(i, i % 13 == 5 ? "7.1.1.1" : i % 3 == 0 ? "9.1.1.1" : "8.1.2.3", 20 + i * 37 % 1300));
    const auto bytes = static_cast<uint32_t>(sent.back().size());
    ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, 1}, sent.back().data()));
  }
  ASSERT_TRUE(writer->commit().ok());
  write("offline.click", graph("FromDump(in.pcap, STOP true)", "ToDump(out.pcap)"));
  const Said offline = sluice("run offline.click -o json");
  ASSERT_EQ(offline.code, 0) << offline.err;
  const Json expected = offline.json();
  std::vector<Bytes> wanted;
  auto reader = CaptureReader::open(path("out.pcap"));
  ASSERT_TRUE(reader.ok());
  for (CapturedFrame f;;) {
    const auto more = reader->next(f);
    if (!more.ok() || !*more) break;
    wanted.emplace_back(f.data, f.data + f.captured);
  }
  ASSERT_GT(wanted.size(), 1000u);

  write("live.click", graph("FromDevice(d0, METHOD af_packet)", "ToDevice(d1, METHOD af_packet)"));
  start("live.click --workers 2");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  size_t came = 0;
  const auto take = [&](milliseconds patience) {
    const auto got = far->receive(patience);
    if (!got) return false;
    EXPECT_LT(came, wanted.size());
    if (came < wanted.size()) {
      EXPECT_EQ(*got, wanted[came]);
    }
    ++came;
    return true;
  };
  for (size_t i = 0; i < sent.size(); ++i) {
    ASSERT_TRUE(near->send(sent[i]));
    while (i % 64 == 63 && take(milliseconds(0))) {
    }
  }
  while (came < wanted.size() && take(kPatience)) {
  }
  EXPECT_EQ(came, wanted.size());
  const Json report = done();
  for (const char* key : {"packets_in", "packets_out", "dropped", "drops"})
    EXPECT_EQ(report[key], expected[key]) << key << " " << report.dump();
  // One worker has it, and the run says so.
  EXPECT_EQ(report["workers"], 1);
  EXPECT_NE(read("log").find("--workers 2: one worker runs this graph"), std::string::npos) << read("log");
}

TEST_F(LiveGraphsRouterTest, ARatedQueueLetsPacketsOutByTheClockAndSleepsBetween) {
  write("rate.click",
        "FromDevice(d0, METHOD af_packet) -> q :: Queue(1000) -> RatedUnqueue(RATE 1000) -> ToDevice(d1);\n");
  start("rate.click");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  const auto begun = steady_clock::now();
  send(*near, 0, 300);
  expect_in_order(*far, 0, 300);
  // A token a millisecond, and what a bucket holds before.
  EXPECT_GE(steady_clock::now() - begun, milliseconds(200));
  // Nothing comes: it does not spin.
  const uint64_t before = processor_ms();
  std::this_thread::sleep_for(milliseconds(1000));
  EXPECT_LT(processor_ms() - before, 200u);
  send(*near, 300, 5);
  expect_in_order(*far, 300, 5);
  EXPECT_EQ(done()["packets_out"], 305);
}

TEST_F(LiveGraphsRouterTest, TwoInterfacesReceiveAndFlowsKeepTheirOrder) {
  write("both.click",
        "in0 :: FromDevice(d0, METHOD af_packet, QUEUES 2); in1 :: FromDevice(d1, METHOD af_packet, PROMISC true);\n"
        "in0 -> q0 :: Queue(10000) -> Unqueue -> ToDevice(d1);\n"
        "in1 -> q1 :: Queue(10000) -> Unqueue -> ToDevice(d0);\n");
  start("both.click");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  for (uint32_t round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < 200; ++i) {
      ASSERT_TRUE(near->send(frame(round * 200 + i)));
      ASSERT_TRUE(far->send(frame(round * 200 + i)));
    }
    // Two queues of d0: order is that of a flow.
    std::map<uint32_t, uint32_t> last;
    for (uint32_t i = 0; i < 200; ++i) {
      const auto got = far->receive();
      ASSERT_TRUE(got) << i;
      const uint32_t number = (*got)[42] | static_cast<uint32_t>((*got)[43]) << 8;
      const auto [at, first] = last.emplace(number % 16, number);
      if (!first) {
        EXPECT_EQ(number, at->second + 16);
        at->second = number;
      }
    }
    expect_in_order(*near, round * 200, 200);
  }
  const Json report = done();
  EXPECT_EQ(report["packets_in"], 2000);
  EXPECT_EQ(report["packets_out"], 2000);
  EXPECT_EQ(interface(report, "d0")["rx"].size(), 2u);
}

TEST_F(LiveGraphsRouterTest, ScriptsAndHandlersSeePacketsOfLivePorts) {
  write("script.click",
        "FromDevice(d0, METHOD af_packet) -> c :: Counter -> q :: Queue(1000) -> u :: Unqueue(ACTIVE false)\n"
        "  -> ToDevice(d1);\n"
        "Script(TYPE ACTIVE, label look, wait 20ms, goto look $(lt $(c.count) 100), write u.active true);\n");
  start("script.click --control s");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  send(*near, 0, 100);
  expect_in_order(*far, 0, 100);
  EXPECT_EQ(sluice("graph read c.count --socket s").out, "100\n");
  // Nothing is pulled: what comes waits, and goes on when it is.
  ASSERT_EQ(sluice("graph write u.active false --socket s").code, 0);
  send(*near, 100, 50);
  EXPECT_TRUE(soon([&] { return sluice("graph read q.length --socket s").out == "50\n"; }));
  ASSERT_EQ(sluice("graph write u.active true --socket s").code, 0);
  expect_in_order(*far, 100, 50);
  EXPECT_EQ(sluice("show runtime --socket s -o json").json()["packets_out"], 150);
  EXPECT_EQ(done()["packets_out"], 150);
}

TEST_F(LiveGraphsRouterTest, TheEndSendsWhatItCanAndReportsWhatStillWaits) {
  write("slow.click", "FromDevice(d0, METHOD af_packet) -> q :: Queue(100) -> RatedUnqueue(RATE 1) -> ToDevice(d1);\n");
  start("slow.click --control s");
  auto near = Wire::open(*gen_, "g0");
  ASSERT_TRUE(near.ok());
  send(*near, 0, 300);
  EXPECT_TRUE(soon([&] {
    const Json shown = sluice("show runtime --socket s -o json").json();
    return shown.is_object() && shown["dropped"].get<uint64_t>() + shown["packets_out"].get<uint64_t>() >= 150;
  }));
  const Json report = done();
  EXPECT_EQ(report["packets_in"], 300) << report.dump();
  EXPECT_GE(report["queued"].get<uint64_t>(), 50u) << report.dump();
}

TEST_F(LiveGraphsRouterTest, NeighboursAndTheMtuAreAsInBatches) {
  ASSERT_NO_FATAL_FAILURE(run_on(*router_, "ip addr add 10.2.0.1/24 dev d1; ip link set d1 mtu 600"));
  ASSERT_NO_FATAL_FAILURE(run_on(*sink_, "ip addr add 10.2.0.2/24 dev s0"));
  write("rib", "8.0.0.0/8 10.2.0.2\n9.0.0.0/8 10.2.0.77\n");
  write(
      "route.click",
      "RouteTable(main, FILE rib);\nAdjacencyTable(adj, ROUTES main, NEIGHBOURS true);\n"
      "FromDevice(d0, METHOD af_packet) -> IPInput -> IPRoute(TABLE main) -> DecIPTTL -> AdjacencyRewrite(TABLE adj)\n"
      "  -> Queue(1000) -> Unqueue -> ToDevice(d1, METHOD af_packet);\n");
  start("route.click");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  const auto next_ip = [&]() -> std::optional<Bytes> {
    for (auto got = far->receive(); got; got = far->receive()) {
      if (got->size() > 13 && (*got)[12] == 8 && (*got)[13] == 0) return got;
    }
    return std::nullopt;
  };
  ASSERT_TRUE(near->send(frame(1)));
  const auto first = next_ip();
  ASSERT_TRUE(first);
  EXPECT_EQ(Bytes(first->begin(), first->begin() + 6), (Bytes{2, 0, 0, 0, 0, 4}));
  // Nobody answers: three wait, for three seconds at most, and are dropped with the others.
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(near->send(frame(i, "9.1.1.1")));
  ASSERT_TRUE(near->send(frame(2, "8.1.2.3", 1000)));
  ASSERT_TRUE(near->send(frame(3)));
  ASSERT_TRUE(next_ip());
  const Json report = done();
  EXPECT_EQ(report["packets_in"], 13);
  EXPECT_EQ(report["packets_out"], 2);
  EXPECT_EQ(report["dropped"], 11);
  EXPECT_EQ(report["drops"].value("unresolved-neighbour", 0), 10) << report["drops"].dump();
  EXPECT_EQ(report["drops"].value("needs-fragmentation", 0), 1) << report["drops"].dump();
}

// What waits for its neighbour leaves when that is known, though nothing comes by an interface and no packet follows.
TEST_F(LiveGraphsRouterTest, APacketOfACaptureThatWaitsLeavesWithoutAnother) {
  run_on(*router_, "ip addr add 10.2.0.1/24 dev d1");
  run_on(*sink_, "ip addr add 10.2.0.2/24 dev s0");
  write("rib", "8.0.0.0/8 10.2.0.2\n");
  ASSERT_EQ(::mkfifo(path("in").c_str(), 0600), 0);
  {
    auto writer = CaptureWriter::create(path("one.pcap"));
    ASSERT_TRUE(writer.ok());
    const Bytes one = frame(1);
    const auto bytes = static_cast<uint32_t>(one.size());
    ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, 1}, one.data()));
    ASSERT_TRUE(writer->commit().ok());
  }
  auto far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(far.ok());
  std::atomic<bool> over{false};
  std::thread feeds([&] {
    const int pipe = ::open(path("in").c_str(), O_WRONLY | O_CLOEXEC);
    const std::string bytes = read("one.pcap");
    EXPECT_EQ(::write(pipe, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    while (!over) std::this_thread::sleep_for(milliseconds(10));
    ::close(pipe);
  });
  start("--routes rib --in in --out d1 --method af_packet");
  bool came = false;
  for (auto got = far->receive(); got && !came; got = far->receive())
    came = got->size() > 13 && (*got)[12] == 8 && (*got)[13] == 0;
  EXPECT_TRUE(came) << read("log");
  over = true;
  feeds.join();
  EXPECT_EQ(done()["packets_out"], 1);
}

TEST_F(LiveGraphsRouterTest, FramesLongerThanTheMtuAreTooBigAndTheOthersLeave) {
  ASSERT_NO_FATAL_FAILURE(run_on(*router_, "ip link set d1 mtu 600"));
  write("q.click", "FromDevice(d0, METHOD af_packet) -> Queue(1000) -> Unqueue -> ToDevice(d1, METHOD af_packet);\n");
  start("q.click");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  for (uint32_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(near->send(frame(i)));
    ASSERT_TRUE(near->send(frame(i, "8.1.2.3", 900)));
  }
  expect_in_order(*far, 0, 20);
  const Json report = done();
  EXPECT_EQ(report["packets_out"], 20) << report.dump() << read("log");
  EXPECT_EQ(report["drops"].value("too-big", 0), 20) << report["drops"].dump();
}

// The row of the reference: composition_test has all pairs of the other options.
TEST_F(LiveGraphsRouterTest, EveryOptionThatTheReferenceNamesGoesWithLivePorts) {
  write("edge.acl",
        "deny udp from any port 1027 to any\nmark(1) udp from any port 1028 to any\npermit ip from any to any\n");
  write("counts.qos", "class voice dscp ef weight 3\nclass rest dscp others\n");
  write("marks.qos", "class bulk mark 1\nclass rest dscp others\n");
  write(
      "queue.click",
      "AclTable(edge, FILE edge.acl);\nFromDevice(d0, METHOD af_packet) -> IPInput(CHECKSUM false) -> ACL(TABLE edge)\n"
      "  -> Queue(10000) -> Unqueue -> ToDevice(d1, METHOD af_packet);\n");
  const std::map<std::string, std::string> options = {
      {"--workers", "--workers 2"},
      {"--device", "--device emu"},
      {"--priorities", "--priorities --chunk 16"},
      {"--qos", "--qos counts.qos"},
      {"--qos by marks", "--qos marks.qos"},
      {"--control", "--control s"},
      {"--hits and --top-rules", "--hits hits --top-rules 3"},
      {"--verdicts and --dropped", "--verdicts verdicts.csv --dropped dropped.pcapng"},
      {"--latency-target", "--latency-target 1ms"},
      {"--wait", "--wait"},
      {"--max-memory", "--max-memory 1GiB --control s"},
      {"--limit", "--limit 320"},
      {"--packet-scheduler", "--packet-scheduler"},
      {"a graph with queues, timers or scripts", "queue.click"},
  };
  std::vector<std::string> row;
  std::vector<std::string> names;
  for (const std::string& line : sluice("reference composition").lines()) {
    std::vector<std::string> cells;
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, '|');) {
      const size_t first = cell.find_first_not_of(' ');
      cells.push_back(first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    }
    if (cells.size() < 3) continue;
    if (names.empty()) names = cells;
    if (cells[1] == "live ports") row = cells;
  }
  ASSERT_FALSE(row.empty());
  size_t ran = 0;
  for (size_t column = 2; column < row.size(); ++column) {
    if (row[column] != "yes") continue;
    SCOPED_TRACE(names[column]);
    ASSERT_TRUE(options.contains(names[column]));
    ++ran;
    const std::string& given = options.at(names[column]);
    const bool queues = given.ends_with(".click");
    start(queues ? given : "--acl edge.acl --in d0 --out d1 --method af_packet " + given);
    auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
    ASSERT_TRUE(near.ok() && far.ok());
    send(*near, 0, 320);
    std::map<uint32_t, uint32_t> next;  // of each flow
    for (uint32_t i = 0; i < 300; ++i) {
      const auto got = far->receive();
      ASSERT_TRUE(got) << i;
      const uint32_t number = (*got)[42] | static_cast<uint32_t>((*got)[43]) << 8, flow = number % 16;
      ASSERT_EQ(*got, frame(number));
      EXPECT_NE(flow, 3u);
      EXPECT_EQ(number, flow + 16 * next[flow]++);
    }
    const Json report = done();
    EXPECT_EQ(report["packets_in"], 320);
    EXPECT_EQ(report["packets_out"], 300);
    EXPECT_EQ(report["dropped"], 20);
  }
  EXPECT_EQ(ran, options.size());
}

TEST_F(LiveGraphsRouterTest, LivePortsHaveNoSimulatedTime) {
  const auto inside = router_->enter();
  write("q.click", "FromDevice(d0) -> Queue -> Unqueue -> ToDevice(d1);\n");
  const Said said = sluice("run q.click --simtime");
  EXPECT_EQ(said.code, 2) << said.err;
  EXPECT_NE(said.err.find("the time of day"), std::string::npos) << said.err;
}

// -- graphs that follow -----------------------------------------------------------------------------------------------

class LiveSwapRouterTest : public LiveGraphsRouterTest {
 protected:
  void SetUp() override {
    LiveGraphsRouterTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(NetNamespace::veth(*router_, "d2", *sink_, "s2").ok());
  }
  Said swap(const std::string& file) const { return sluice("graph swap " + file + " --socket s"); }
  void swaps(const std::string& file) const {
    const Said said = swap(file);
    EXPECT_EQ(said.code, 0) << said.err << read("log");
  }
  // A graph from d0 by `way` to another interface.
  void to(const std::string& file, const std::string& out, const std::string& method, const std::string& way = "") {
    write(file, "in :: FromDevice(d0, METHOD " + method + ") -> c :: Counter -> " + way + "ToDevice(" + out +
                    ", METHOD " + method + ");\n");
  }
};

TEST_F(LiveSwapRouterTest, PortsOpenAndCloseWithTheGraph) {
  for (const char* method : {"af_packet", "af_xdp"}) {
    for (const char* way : {"", "Queue(10000) -> Unqueue -> "}) {
      SCOPED_TRACE(std::string(method) + " " + way);
      to("a.click", "d1", method, way);
      to("b.click", "d2", method, way);
      write("bad.click", std::string("in :: FromDevice(d0, METHOD ") + method + ") -> t :: Tee -> " + way +
                             "ToDevice(d2); t[1] -> ToDevice(d9);\n");
      start("a.click --control s");
      auto near = Wire::open(*gen_, "g0"), one = Wire::open(*sink_, "s0"), two = Wire::open(*sink_, "s2");
      ASSERT_TRUE(near.ok() && one.ok() && two.ok());
      send(*near, 0, 100);
      expect_in_order(*one, 0, 100);
      // What cannot be opened leaves all as it was.
      const Said bad = swap("bad.click");
      EXPECT_EQ(bad.code, 1) << bad.err;
      EXPECT_NE(bad.err.find("d9"), std::string::npos) << bad.err;
      send(*near, 100, 100);
      expect_in_order(*one, 100, 100);
      swaps("b.click");
      send(*near, 200, 100);
      expect_in_order(*two, 200, 100);
      swaps("a.click");
      send(*near, 300, 100);
      expect_in_order(*one, 300, 100);
      swaps("b.click");
      expect_nothing(*one);
      const Json report = done();
      EXPECT_EQ(report["packets_in"], 400);
      EXPECT_EQ(report["packets_out"], 400);
      EXPECT_EQ(interface(report, "d1")["tx"][0]["packets"], 300) << report["ports"].dump();
      EXPECT_TRUE(interface(report, "d1")["closed"].get<bool>());
      EXPECT_EQ(interface(report, "d2")["tx"][0]["packets"], 100);
      EXPECT_FALSE(interface(report, "d2")["closed"].get<bool>());
      EXPECT_EQ(interface(report, "d0")["rx"][0]["packets"], 400);
    }
  }
}

TEST_F(LiveSwapRouterTest, NothingIsLostUnderTrafficAndFlowsKeepTheirOrder) {
  to("a.click", "d1", "af_packet");
  to("b.click", "d2", "af_packet");
  start("a.click --control s");
  auto near = Wire::open(*gen_, "g0"), one = Wire::open(*sink_, "s0"), two = Wire::open(*sink_, "s2");
  ASSERT_TRUE(near.ok() && one.ok() && two.ok());
  std::atomic<bool> over{false};
  std::thread swapping([&] {
    for (int i = 0; i < 6; ++i) swaps(i % 2 == 0 ? "b.click" : "a.click");
    over = true;
  });
  uint32_t sent = 0;
  std::map<uint32_t, uint32_t> last1, last2;  // number by flow
  uint32_t came = 0;
  const auto take = [&](Wire& by, std::map<uint32_t, uint32_t>& last, milliseconds patience) {
    const auto got = by.receive(patience);
    if (!got) return false;
    ++came;
    const uint32_t number =
        (*got)[42] | static_cast<uint32_t>((*got)[43]) << 8 | static_cast<uint32_t>((*got)[44]) << 16;
    const auto [at, first] = last.emplace(number % 16, number);
    if (!first) {
      EXPECT_LT(at->second, number);
    }
    at->second = number;
    return true;
  };
  while (!over || sent % 64 != 0) {
    ASSERT_TRUE(near->send(frame(sent++)));
    if (sent % 64 != 0) continue;
    while (take(*one, last1, milliseconds(0)) || take(*two, last2, milliseconds(0))) {
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  swapping.join();
  while (came < sent && (take(*one, last1, milliseconds(200)) || take(*two, last2, milliseconds(2000)))) {
  }
  EXPECT_EQ(came, sent);
  const Json report = done();
  EXPECT_EQ(report["packets_in"], sent) << report["ports"].dump();
  EXPECT_EQ(report["packets_out"], sent);
}

// A worker whose queues are gone waits for those that the next graph brings.
TEST_F(LiveSwapRouterTest, WorkersWithoutAQueueStay) {
  write("two.click", "in :: FromDevice(d0, METHOD af_packet, QUEUES 2) -> ToDevice(d1, METHOD af_packet);\n");
  write("one.click", "FromDevice(d2, METHOD af_packet, QUEUES 1, PROMISC true) -> ToDevice(d1, METHOD af_packet);\n");
  start("two.click --workers 2 --control s");
  auto near = Wire::open(*gen_, "g0"), one = Wire::open(*sink_, "s0"), two = Wire::open(*sink_, "s2");
  ASSERT_TRUE(near.ok() && one.ok() && two.ok());
  const auto all_come = [&](Wire& by) {
    for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(by.send(frame(i)));
    for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(one->receive()) << i;
  };
  all_come(*near);
  swaps("one.click");
  all_come(*two);
  swaps("two.click");
  all_come(*near);
  const Json report = done();
  EXPECT_EQ(report["workers"], 2);
  EXPECT_EQ(report["packets_out"], 300);
}

TEST_F(LiveSwapRouterTest, AnInterfaceThatOnlySentReceivesToo) {
  to("a.click", "d1", "af_packet");
  write("b.click",
        "in :: FromDevice(d0, METHOD af_packet) -> c :: Counter -> ToDevice(d1, METHOD af_packet);\n"
        "FromDevice(d1, METHOD af_packet, PROMISC true) -> ToDevice(d0, METHOD af_packet);\n");
  start("a.click --control s");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  send(*near, 0, 10);
  expect_in_order(*far, 0, 10);
  swaps("b.click");
  send(*near, 10, 10);
  expect_in_order(*far, 10, 10);
  send(*far, 0, 10);
  expect_in_order(*near, 0, 10);
  swaps("a.click");
  send(*far, 0, 10);
  expect_nothing(*near);
  EXPECT_EQ(done()["packets_out"], 30);
}

TEST_F(LiveSwapRouterTest, GivesInterfacesBackToTheKernel) {
  // Packets that the router's kernel has had.
  const auto kernel_had = [&] {
    const auto said = router_->run("awk '/^Ip: [0-9]/ { print $4 }' /proc/self/net/snmp");
    return said.ok() ? std::stoi(*said) : -1;
  };
  for (const std::string method : {"af_packet", "af_xdp"}) {
    for (const std::string way : {"", "Queue(10000) -> Unqueue -> "}) {
      SCOPED_TRACE(method + " " + way);
      const std::string by = ", METHOD " + method + ")";
      const std::string back = "back :: FromDevice(d1" + by + " -> " + way + "ToDevice(d0" + by + ";\n";
      write("both.click",
            back + "in :: FromDevice(d0" + by + " -> c :: Counter -> " + way + "ToDevice(d1" + by + ";\n");
      write("back.click", back);
      start("both.click --control s");
      auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
      ASSERT_TRUE(near.ok() && far.ok());
      uint32_t number = 0;
      for (int i = 0; i < 3; ++i) {
        const int before = kernel_had();
        send(*near, number, 50);
        expect_in_order(*far, number, 50);
        EXPECT_EQ(kernel_had(), before);
        number += 50;
        swaps("back.click");
        send(*near, number, 50);
        EXPECT_TRUE(soon([&] { return kernel_had() == before + 50; })) << kernel_had() - before;
        number += 50;
        swaps("both.click");
      }
      expect_nothing(*far);
      const Json report = done();
      EXPECT_EQ(report["packets_in"], 150);
      EXPECT_EQ(report["packets_out"], 150);
      EXPECT_EQ(interface(report, "d0")["rx"][0]["packets"], 150) << report["ports"].dump();
      EXPECT_EQ(interface(report, "d0")["rx"][0]["missed"], 0) << report["ports"].dump();
    }
  }
}

// Two sockets of AF_XDP do not share a queue.
TEST_F(LiveSwapRouterTest, ASenderByAfXdpThatIsToReceiveIsRefusedAndTheRunGoesOn) {
  to("a.click", "d1", "af_xdp");
  write("b.click",
        "in :: FromDevice(d0, METHOD af_xdp) -> c :: Counter -> ToDevice(d1, METHOD af_xdp);\n"
        "FromDevice(d1, METHOD af_xdp) -> Discard;\n");
  start("a.click --control s");
  auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
  ASSERT_TRUE(near.ok() && far.ok());
  const Said said = swap("b.click");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("d1"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("in use"), std::string::npos) << said.err;
  send(*near, 0, 10);
  expect_in_order(*far, 0, 10);
  EXPECT_EQ(done()["packets_out"], 10);
}

TEST_F(LiveSwapRouterTest, ARunWithoutLivePortsOpensNone) {
  const auto inside = router_->enter();
  write("rated.click", "RatedSource(RATE 100) -> Queue -> Unqueue -> Discard;\n");
  to("b.click", "d2", "af_packet", "Queue -> Unqueue -> ");
  const Said said = shell(
      "\"$SLUICE\" run rated.click --wait --control s > out 2>&1 & run=$!\n"
      "for i in $(seq 500); do \"$SLUICE\" show runtime --socket s > /dev/null 2>&1 && break; sleep 0.02; done\n"
      "\"$SLUICE\" graph swap b.click --socket s; kill -INT $run; wait $run");
  EXPECT_NE(said.err.find("the run began without any"), std::string::npos) << said.err;
}

// -- interfaces that come back ----------------------------------------------------------------------------------------

class LinkAgainRouterTest : public LiveGraphsRouterTest {
 protected:
  void again(const NetNamespace& other, const std::string& there, const std::string& here, int last) {
    ASSERT_TRUE(NetNamespace::veth(other, there, *router_, here).ok());
    run_on(*router_, "ip link set " + here + " address 02:00:00:00:00:0" + std::to_string(last));
    carries(*router_, here);
    carries(other, there);
  }
  // Until the kernel has seen that the other end is up, up to a second later, it drops what is sent there.
  void carries(const NetNamespace& where, const std::string& interface) {
    EXPECT_TRUE(soon([&] {
      const auto link = where.run("ip -o link show " + interface);
      return link.ok() && link->find(" state UP ") != std::string::npos;
    })) << interface;
  }
};

TEST_F(LinkAgainRouterTest, ARemovedInterfaceThatIsMadeAgainIsThePort) {
  for (const char* method : {"af_packet", "af_xdp"}) {
    for (const char* way : {"", "Queue(10000) -> Unqueue -> "}) {
      SCOPED_TRACE(std::string(method) + " " + way);
      write("g.click",
            std::string("FromDevice(d0, METHOD ") + method + ") -> " + way + "ToDevice(d1, METHOD " + method + ");\n");
      start("g.click --control s");
      const auto ten = [&] {
        carries(*gen_, "g0");
        carries(*router_, "d1");
        auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
        ASSERT_TRUE(near.ok() && far.ok());
        send(*near, 0, 10);
        expect_in_order(*far, 0, 10);
      };
      ten();
      run_on(*router_, "ip link del d1");
      ASSERT_TRUE(said("port d1: gone\n")) << read("log");
      again(*sink_, "s0", "d1", 3);
      ASSERT_TRUE(said("port d1: back\n")) << read("log");
      ASSERT_TRUE(sink_->run("ip link set s0 address 02:00:00:00:00:04").ok());
      ten();
      // One that takes its name is it, too.
      run_on(*router_, "ip link del d0");
      ASSERT_TRUE(said("port d0: gone\n")) << read("log");
      again(*gen_, "g0", "e0", 2);
      run_on(*router_, "ip link set e0 down; ip link set e0 name d0; ip link set d0 up");
      ASSERT_TRUE(said("port d0: back\n")) << read("log");
      ten();
      // The kernel tells of a carrier up to a second after it is there.
      EXPECT_TRUE(soon([&] {
        const Json ports = sluice("show ports -o json --control s").json();
        for (const Json& one : ports.value("interfaces", Json::array())) {
          if (one["name"] == "d0") return one["link"] == "up";
        }
        return false;
      })) << read("log");
      const Json report = done();
      EXPECT_EQ(report["packets_out"], 30) << read("log");
      EXPECT_EQ(interface(report, "d0")["link"], "up") << report["ports"].dump();
      EXPECT_GE(interface(report, "d0")["link_changes"], 2);
      EXPECT_EQ(interface(report, "d0")["rx"][0]["packets"], 30);
      EXPECT_EQ(interface(report, "d1")["tx"][0]["packets"], 30);
    }
  }
}

TEST_F(LinkAgainRouterTest, ItsNeighboursAreFoundAtTheNewOne) {
  const auto addresses = [&] {
    ASSERT_NO_FATAL_FAILURE(run_on(*router_, "ip addr add 10.2.0.1/24 dev d1"));
    ASSERT_NO_FATAL_FAILURE(run_on(*sink_, "ip link set s0 address 02:00:00:00:00:04; ip addr add 10.2.0.2/24 dev s0"));
  };
  write("rib", "8.0.0.0/8 10.2.0.2\n");
  write("q.click",
        "RouteTable(main, FILE rib);\nAdjacencyTable(adj, ROUTES main, NEIGHBOURS true);\n"
        "FromDevice(d0, METHOD af_packet) -> IPInput -> IPRoute(TABLE main) -> DecIPTTL\n"
        "  -> AdjacencyRewrite(TABLE adj) -> Queue(1000) -> Unqueue -> ToDevice(d1, METHOD af_packet);\n");
  for (const char* graph : {"--routes rib --in d0 --out d1 --method af_packet", "q.click"}) {
    SCOPED_TRACE(graph);
    addresses();
    start(graph);
    auto near = Wire::open(*gen_, "g0");
    ASSERT_TRUE(near.ok());
    const auto comes = [&](uint8_t last) {
      auto far = Wire::open(*sink_, "s0");
      ASSERT_TRUE(far.ok());
      EXPECT_TRUE(soon([&] {
        EXPECT_TRUE(near->send(frame(1)));
        const auto got = far->receive(milliseconds(100));
        return got && (*got)[12] == 8 && (*got)[13] == 0 && (*got)[5] == last;
      })) << read("log");
    };
    comes(4);
    // The neighbour has another MAC.
    run_on(*router_, "ip neigh replace 10.2.0.2 lladdr 02:00:00:00:00:09 dev d1 nud permanent");
    comes(9);
    run_on(*router_, "ip link del d1");
    ASSERT_TRUE(said("port d1: gone\n")) << read("log");
    again(*sink_, "s0", "d1", 3);
    addresses();
    ASSERT_TRUE(said("port d1: back\n")) << read("log");
    comes(4);
    done();
    ASSERT_NO_FATAL_FAILURE(run_on(*router_, "ip addr flush dev d1"));
    ASSERT_NO_FATAL_FAILURE(run_on(*sink_, "ip addr flush dev s0"));
  }
}

// -- confinement ------------------------------------------------------------------------------------------------------

TEST_F(LinkAgainRouterTest, AnotherUserHasTheCapabilitiesOfLivePortsAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  write("edge.acl", "permit ip from any to any\n");
  for (const char* method : {"af_packet", "af_xdp"}) {
    SCOPED_TRACE(method);
    start(std::string("--user nobody --acl edge.acl --in d0 --out d1 --method ") + method);
    std::ifstream status("/proc/" + read("pid").substr(0, read("pid").find('\n')) + "/status");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    const size_t at = text.find("CapPrm:\t");
    ASSERT_NE(at, std::string::npos);
    // CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_IPC_LOCK 14, CAP_BPF 39: what root has of them here.
    const uint64_t has = std::stoull(text.substr(at + 8, 16), nullptr, 16);
    EXPECT_EQ(has & ~(uint64_t{7} << 12 | uint64_t{1} << 39), 0u) << text;
    EXPECT_NE(has, 0u) << text;
    auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
    ASSERT_TRUE(near.ok() && far.ok());
    send(*near, 0, 10);
    expect_in_order(*far, 0, 10);
    EXPECT_EQ(done()["packets_out"], 10);
  }
}

TEST_F(LinkAgainRouterTest, LivePortsRunConfinedAndComeBackAllTheSame) {
  const Said doctor = sluice("doctor -o json");
  if (doctor.out.find("seccomp") == std::string::npos) GTEST_SKIP() << "no seccomp here, or a build with sanitizers";
  for (const char* method : {"af_packet", "af_xdp", "pcap"}) {
    SCOPED_TRACE(method);
    write("edge.acl", "permit ip from any to any\n");
    start(std::string("--acl edge.acl --in d0 --out d1 --method ") + method);
    const std::string pid = read("pid").substr(0, read("pid").find('\n'));
    std::ifstream status("/proc/" + pid + "/status");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    EXPECT_NE(text.find("Seccomp:\t2"), std::string::npos) << text;
    EXPECT_NE(text.find("NoNewPrivs:\t1"), std::string::npos) << text;
    const auto ten = [&] {
      auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
      ASSERT_TRUE(near.ok() && far.ok());
      send(*near, 0, 10);
      expect_in_order(*far, 0, 10);
    };
    ten();
    run_on(*router_, "ip link del d1");
    ASSERT_TRUE(said("port d1: gone\n")) << read("log");
    again(*sink_, "s0", "d1", 3);
    ASSERT_TRUE(said("port d1: back\n")) << read("log");
    ten();
    EXPECT_EQ(done()["packets_out"], 20);
  }
}

}  // namespace
}  // namespace sluice
