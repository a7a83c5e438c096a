// Every option of `run` with every other: the packets and the counts of the run without them, or the refusal that the
// reference names. The pairs are those of `sluice reference composition`.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "qos/class_map.h"
#include "qos/frame_class.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

struct SentFrame {
  uint64_t timestamp_ns;
  std::string bytes;
  friend bool operator==(const SentFrame&, const SentFrame&) = default;
};

// How time stamps come. kTwoInputs: two captures, the second an hour before the first.
enum class Timestamps { kEven, kEqual, kBack, kZero, kFarApart, kTwoInputs };

class CompositionTest : public CliTest, public ::testing::WithParamInterface<Timestamps> {
 protected:
  static constexpr uint32_t kPackets = 700;
  static constexpr uint64_t kNow = 1'700'000'000'000'000'000;

  static uint64_t stamp(uint32_t i) {
    switch (GetParam()) {
      case Timestamps::kEqual:
        return kNow;
      case Timestamps::kBack:
        return kNow + i * 100'000u - i * 7919u % 5 * 700'000u;
      case Timestamps::kZero:
        return i % 50 < 5 ? 0 : kNow + i * 100'000u;
      case Timestamps::kFarApart:
        return i * 6'000'000'000'000'000u;
      default:
        return kNow + i * 100'000u;
    }
  }

  void SetUp() override {
    CliTest::SetUp();
    write("rib", "8.0.0.0/8 a\n9.0.0.0/8 b\n2001:db8::/32 a\n");
    write("edge.acl",
          "deny tcp from any to 8.1.0.0/16 port 80\nmark(1) tcp from any to any\npermit ip from any to any\n");
    // Slow enough for packets to wait and to be dropped.
    write("rates.qos",
          "class voice dscp ef rate 2Mbps burst 3000 limit 20\nclass rest dscp others rate 4Mbps limit 20\n");
    write("marks.qos", "class bulk mark 1\nclass rest dscp others\n");
    write("queue.click",
          "AclTable(edge, FILE edge.acl);\nRouteTable(main, FILE rib);\n"
          "FromDump(in.pcap, STOP true) -> IPInput -> ACL(TABLE edge) -> IPRoute(TABLE main) -> DecIPTTL\n"
          "  -> Queue(10000) -> Unqueue -> ToDump(out.pcap);\n");
    const std::string rest =
        "both :: IPInput -> ACL(TABLE edge) -> IPRoute(TABLE main) -> DecIPTTL -> ToDump(out.pcap);\n"
        "FromDump(in.pcap) -> both; FromDump(second.pcap) -> both;\n";
    if (GetParam() == Timestamps::kTwoInputs) {
      write("two.click", "AclTable(edge, FILE edge.acl);\nRouteTable(main, FILE rib);\n" + rest);
      write("queue.click",
            "AclTable(edge, FILE edge.acl);\nRouteTable(main, FILE rib);\n"
            "both :: IPInput -> ACL(TABLE edge) -> IPRoute(TABLE main) -> DecIPTTL\n"
            "  -> Queue(10000) -> Unqueue -> ToDump(out.pcap);\n"
            "FromDump(in.pcap) -> both; FromDump(second.pcap) -> both;\n");
    }
    // Refusals come before ports.
    write("live.click", "FromDevice(lo) -> Queue -> Unqueue -> ToDevice(lo);\n");
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    for (uint32_t i = 0; i < kPackets; ++i) {
      const uint8_t dscp = i % 3 == 0 ? 46 : i % 5 == 0 ? 10 : 0;
      const auto port = static_cast<uint16_t>(i % 4 == 0 ? 80 : 53);
      auto builder = i % 7 == 3 ? udp6("2001:db8::1", "2001:db8::2").ports(static_cast<uint16_t>(i), port)
                     : i % 2 == 0
                         ? tcp4("10.0.0.1", i % 6 == 0 ? "8.1.1.1" : "9.1.1.1").ports(static_cast<uint16_t>(i), port)
                         : udp4("10.0.0.1", i % 11 == 0 ? "7.1.1.1" : "8.2.1.1").ports(static_cast<uint16_t>(i), port);
      const auto f = builder.payload(i % 90).dscp(dscp).build();
      const auto bytes = static_cast<uint32_t>(f.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, stamp(i)}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
    if (GetParam() != Timestamps::kTwoInputs) return;
    auto second = CaptureWriter::create(path("second.pcap"));
    ASSERT_TRUE(second.ok());
    for (uint32_t i = 0; i < kPackets; ++i) {
      const auto f = udp4("10.0.0.2", "9.2.1.1").ports(9, 53).payload(i % 50).dscp(i % 4 == 0 ? 46 : 0).build();
      const auto bytes = static_cast<uint32_t>(f.size());
      ASSERT_TRUE(second->append(FrameHeader{bytes, bytes, stamp(i) - 3'600'000'000'000u}, f.data()));
    }
    ASSERT_TRUE(second->commit().ok());
  }

  struct Outcome {
    Said said;
    nlohmann::json counts;
    std::vector<SentFrame> frames;
    std::string hits;  // what the run wrote of them
  };

  // `until`: a command that succeeds once the run, which waits for a signal then, is through with its packets.
  Outcome run(const std::string& options, bool queues, const std::string& until = {}) {
    std::filesystem::remove(path("out.pcap"));
    const std::string what = queues ? "queue.click "
                             : GetParam() == Timestamps::kTwoInputs
                                 ? "two.click "
                                 : "--acl edge.acl --routes rib --in in.pcap --out out.pcap ";
    const std::string command = "\"$SLUICE\" run " + what + options + " -o json";
    Outcome o;
    o.said = shell(
        until.empty() ? command
                      : command + " > said & p=$!; n=0; while [ $n -lt 1000 ] && kill -0 $p 2>/dev/null && ! " + until +
                            "; do sleep 0.02; n=$((n+1)); done; kill -TERM $p; wait $p; e=$?; cat said; exit $e");
    if (o.said.code != 0) return o;
    const auto json = o.said.json();
    for (const char* key : {"packets_in", "bytes_in", "packets_out", "bytes_out", "generated", "dropped", "elements",
                            "conserved", "partial"}) {
      o.counts[key] = json[key];
    }
    for (const char* file : {"hits", "want.hits"}) {
      if (options.find(std::string("--hits ") + file) != std::string::npos) o.hits = read(file);
    }
    auto reader = CaptureReader::open(path("out.pcap"));
    EXPECT_TRUE(reader.ok());
    for (CapturedFrame frame; reader.ok();) {
      const auto more = reader->next(frame);
      EXPECT_TRUE(more.ok());
      if (!more.ok() || !*more) break;
      o.frames.push_back({frame.timestamp_ns, {reinterpret_cast<const char*>(frame.data), frame.captured}});
    }
    return o;
  }

  // Classes overtake each other: each has its own order.
  static void sort_by_class(std::vector<SentFrame>& frames) {
    std::stable_sort(frames.begin(), frames.end(), [](const SentFrame& a, const SentFrame& b) {
      const auto dscp = [](const SentFrame& f) {
        return dscp_of_frame(reinterpret_cast<const uint8_t*>(f.bytes.data()), static_cast<uint32_t>(f.bytes.size()));
      };
      const ClassMap map = ClassMap::three_priorities();
      return map.class_of(dscp(a)) < map.class_of(dscp(b));
    });
  }
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (size_t at = line.find('|'); at != std::string::npos;) {
    const size_t end = line.find('|', at + 1);
    if (end == std::string::npos) break;
    std::string cell = line.substr(at + 1, end - at - 1);
    while (cell.starts_with(' ')) cell.erase(0, 1);
    while (cell.ends_with(' ')) cell.pop_back();
    cells.push_back(cell);
    at = end;
  }
  return cells;
}

TEST_P(CompositionTest, EveryPairIsThePlainRunOrIsRefused) {
  const Said page = sluice("reference composition");
  ASSERT_EQ(page.code, 0) << page.err;
  std::vector<std::vector<std::string>> table;
  std::vector<std::string> reasons = {""};
  for (const std::string& line : page.lines()) {
    if (line.starts_with("|") && !line.starts_with("|---")) table.push_back(cells_of(line));
    if (!line.empty() && line[0] >= '1' && line[0] <= '9') {
      const size_t at = line.find(": ") + 2;
      reasons.push_back(line.substr(at, line.find_first_of(";.", at) - at));
    }
  }
  const std::map<std::string, std::string> options = {
      {"--workers", "--workers 3 --batch 32"},
      {"--device", "--device emu"},
      {"--priorities", "--priorities --chunk 16"},
      {"--qos", "--qos rates.qos"},
      {"--qos by marks", "--qos marks.qos"},
      {"--control", "--control s"},
      {"--hits and --top-rules", "--hits hits --top-rules 3"},
      {"--verdicts and --dropped", "--verdicts verdicts.csv --dropped dropped.pcapng"},
      {"--latency-target", "--latency-target 1ms"},
      {"--wait", "--wait"},
      {"--max-memory", "--max-memory 1GiB"},
      {"--limit", "--limit 300"},
      {"live ports", ""},  // those of live.click
      {"--simtime", "--simtime"},
      {"--packet-scheduler", "--packet-scheduler"},
      {"a graph with queues, timers or scripts", ""},
  };
  ASSERT_EQ(table.size(), options.size() + 1) << "an option without a test, or a test without an option";
  std::map<std::string, Outcome> plain;
  unsigned ran = 0, refused = 0;
  for (size_t row = 1; row < table.size(); ++row) {
    for (size_t column = row + 1; column < table[0].size(); ++column) {
      const std::string &a = table[0][row], &b = table[0][column];
      ASSERT_TRUE(options.contains(a) && options.contains(b)) << a << ", " << b;
      const auto either = [&](const std::string& name) { return a == name || b == name; };
      if (either("--qos") && either("--qos by marks")) continue;  // one option
      if (!looked_at(row, column)) continue;
      // Of odd times those pairs that could go by them.
      const bool timed = either("--qos") || either("--priorities") || either("--packet-scheduler");
      if (GetParam() != Timestamps::kEven && !timed) continue;
      SCOPED_TRACE(a + " and " + b);
      const bool live = either("live ports");
      if (live && table[row][column] == "yes") continue;  // live_graphs_test: it needs networks
      const bool queues = either("--simtime") || either("a graph with queues, timers or scripts");
      std::string both = options.at(a) + " " + options.at(b);
      // Both say which socket.
      if (either("--max-memory") && !either("--control")) both += " --control s";
      const bool by_class = either("--priorities");
      EXPECT_EQ(table[row][column], table[column][row]);
      if (table[row][column] != "yes") {
        ++refused;
        const Outcome got = live ? Outcome{sluice("run live.click " + both), {}, {}, {}} : run(both, queues);
        EXPECT_EQ(got.said.code, 2);
        EXPECT_NE(got.said.err.find(reasons.at(std::stoul(table[row][column]))), std::string::npos) << got.said.err;
        EXPECT_TRUE(live || !exists("out.pcap"));
        continue;
      }
      ++ran;
      // The run without them, but for what changes packets.
      std::string alone;
      if (either("--qos")) alone += "--qos rates.qos ";
      if (either("--qos by marks")) alone += "--qos marks.qos ";
      if (either("--limit")) alone += "--limit 300 ";
      const auto [want, made] = plain.try_emplace(alone + (queues ? "queues" : ""));
      if (made) want->second = run(alone + "--hits want.hits", queues);
      ASSERT_EQ(want->second.said.code, 0) << want->second.said.err;
      EXPECT_GT(want->second.frames.size(), 50u);
      // The outputs of the packet scheduler appear at its end: its graph may change before.
      std::string until;
      if (either("--wait")) {
        const bool scheduled = queues || either("--packet-scheduler");
        if (scheduled && both.find("--control") == std::string::npos) both += " --control s";
        until = !scheduled ? "[ -e out.pcap ]"
                           : "\"$SLUICE\" show runtime --socket s -o json 2>/dev/null | grep -q '\"packets_out\": " +
                                 want->second.counts["packets_out"].dump() + ",'";
      }
      const Outcome got = run(both, queues, until);
      ASSERT_EQ(got.said.code, 0) << got.said.err;
      EXPECT_EQ(got.counts, want->second.counts);
      if (either("--hits and --top-rules")) {
        EXPECT_EQ(got.hits, want->second.hits);
      }
      std::vector<SentFrame> frames = got.frames, same = want->second.frames;
      // With rates the order of the input holds for all.
      if (by_class && !either("--qos")) {
        sort_by_class(frames);
        sort_by_class(same);
      }
      EXPECT_TRUE(frames == same);
    }
  }
  const bool all = GetParam() == Timestamps::kEven;
  EXPECT_GT(ran, looked_at(0, 1) ? (all ? 50u : 20u) : 4u);
  EXPECT_GT(refused, looked_at(0, 1) ? (all ? 10u : 5u) : 1u);
}

INSTANTIATE_TEST_SUITE_P(Timestamps, CompositionTest,
                         ::testing::Values(Timestamps::kEven, Timestamps::kEqual, Timestamps::kBack, Timestamps::kZero,
                                           Timestamps::kFarApart, Timestamps::kTwoInputs));

}  // namespace
}  // namespace sluice
