// run, --print-graph, bench, demo, doctor, elements: sums hold, outputs equal, nothing left behind.
#include <csignal>
#include <set>

#include "exec/device/device.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::CliTest;
using testing::Said;

class CliRunTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("edge.acl", "deny udp from any to any port 53\npermit ip from any to any\n");
    write("rib", "8.0.0.0/8 a\n9.0.0.0/8 b\n2001:db8::/32 a\n10.0.0.0/8 a\n");
    write("adj", "a 02:00:00:00:00:0a 02:00:00:00:00:01 1\nb 02:00:00:00:00:0b 02:00:00:00:00:01 2 vlan 9\n");
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    auto add = [&](const PacketBuilder& packet) {
      const auto f = packet.build();
      ASSERT_TRUE(writer->append(
          FrameHeader{static_cast<uint32_t>(f.size()), static_cast<uint32_t>(f.size()), ++stamp_}, f.data()));
    };
    for (uint16_t i = 0; i < 100; ++i) {
      add(tcp4("10.0.0.1", "8.1.1.1").ports(i, 80).payload(i));            // port 1
      add(tcp4("10.0.0.1", "9.1.1.1").ports(i, 80).payload(10));           // port 2
      add(udp4("10.0.0.1", "8.1.1.1").ports(i, 53));                       // denied
      add(tcp4("10.0.0.1", "7.1.1.1").ports(i, 80));                       // no route
      add(tcp4("10.0.0.1", "8.1.1.1").ports(i, 80).ttl(1));                // expires
      add(tcp4("10.0.0.1", "8.1.1.1").ports(i, 80).bad_ip_checksum());     // bad
      add(tcp6("2001:db8::1", "2001:db8::2").ports(i, 443).payload(600));  // port 1
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  uint64_t stamp_ = 1'700'000'000'000'000'000;
  const std::string standard_ = "--acl edge.acl --routes rib --adjacencies adj --in in.pcap";
};

uint64_t sum(const Json& object) {
  uint64_t total = 0;
  for (const auto& [key, value] : object.items())
    total += value.is_object() ? value["packets"].get<uint64_t>() : value.get<uint64_t>();
  return total;
}

void expect_conserved(const Json& j) {
  EXPECT_EQ(j["packets_in"].get<uint64_t>() + j["generated"].get<uint64_t>(),
            j["packets_out"].get<uint64_t>() + sum(j["drops"]));
  EXPECT_EQ(sum(j["out"]), j["packets_out"].get<uint64_t>());
  uint64_t sinks = 0, drops = 0;
  for (const Json& s : j["sinks"]) sinks += s["packets"].get<uint64_t>();
  for (const Json& e : j["elements"]) drops += sum(e["drops"]);
  EXPECT_EQ(sinks, j["packets_out"].get<uint64_t>());
  EXPECT_EQ(drops, j["dropped"].get<uint64_t>());
}

TEST_F(CliRunTest, ADevicesReportSaysWhereTheTimeWent) {
  for (const char* way : {"--mode launch", "--mode launch --transport commpool", "--mode persistent",
                          "--mode launch --threading master --workers 2"}) {
    SCOPED_TRACE(way);
    const std::string command = "run " + standard_ + " --device emu --watchdog 20000 " + way;
    const Json plain = sluice(command + " -o json").json();
    ASSERT_EQ(plain["devices"].size(), 1u);
    const Json& d = plain["devices"][0];
    EXPECT_FALSE(d.contains("kernel_ns"));
    for (const char* field : {"gather_ns", "device_ns"}) EXPECT_GT(d[field]["p50"], 0) << field;
    for (const char* field : {"wait_ns", "egress_ns", "through_ns"}) EXPECT_GT(plain[field]["max"], 0) << field;
    const Json timed = sluice(command + " --kernel-times -o json").json()["devices"][0];
    EXPECT_GT(timed["kernel_ns"]["p50"], 0);
    EXPECT_GE(timed["device_ns"]["max"], timed["transfer_ns"]["p50"]);
    const Said text = sluice(command + " --kernel-times");
    for (const char* word : {"emu:0", "wait", "gather", "kernel", "transfer", "egress"}) {
      EXPECT_NE(text.out.find(word), std::string::npos) << word;
    }
  }
}

// What crosses to a device, and how, follows from the batch where nobody says it; the packets are the same.
TEST_F(CliRunTest, FramesCrossWholeWhereBatchesAreLarge) {
  const auto plan = [&](const std::string& way) {
    return sluice("run --print-plan " + standard_ + " --device emu " + way).out;
  };
  const auto says = [&](const std::string& way, const std::string& transport, const std::string& records) {
    const std::string text = plan(way);
    // Resident kernels take frames under load, and where nobody asks for a mode.
    const bool frames = records.starts_with("frames"), asked = way.find("--mode") != std::string::npos;
    if (!asked) {
      EXPECT_NE(text.find(frames ? "mode persistent" : "mode launch"), std::string::npos) << way << text;
    }
    EXPECT_NE(text.find("transport " + transport), std::string::npos) << way << "\n" << text;
    EXPECT_NE(text.find("node 0: " + records), std::string::npos) << way << "\n" << text;
  };
  says("--batch 1024", "staged", "frames are sent");
  says("--batch 1024 --transport zerocopy", "zerocopy", "frames are sent");
  says("--batch 1023", "staged", "keys are sent");
  says("--batch 1023 --mode persistent", "tagged", "keys are sent");
  says("--batch 1024 --mode persistent", "staged", "frames are sent");
  says("--batch 1024 --threading master", "staged", "keys are sent");
  says("--batch 1024 --records key", "staged", "keys are sent");
  says("--batch 1024 --priorities", "staged", "keys are sent");
  says("--batch 8 --records frame", "staged", "frames are sent");
  ASSERT_EQ(sluice("run -q " + standard_ + " --out want.pcap").code, 0);
  for (const char* way :
       {"--batch 1024", "--batch 8192 --workers 2 --transport zerocopy", "--batch 1024 --hits hits"}) {
    SCOPED_TRACE(way);
    const Said run = sluice("run " + standard_ + " --device emu -o json --out got.pcap " + way);
    ASSERT_EQ(run.code, 0) << run.err;
    const Json j = run.json();
    expect_conserved(j);
    EXPECT_GT(j["offload"]["offloaded"].get<uint64_t>(), 0u);
    EXPECT_TRUE(read("got.pcap") == read("want.pcap"));
  }
}

// Frames of every segment that can have them, keys of those that cannot, and of the others the reason.
TEST_F(CliRunTest, ThePlanNamesWhatCrosses) {
  write("mirror.click", "FromDump(in.pcap) -> EtherMirror -> ToDump(out.pcap);\n");
  write("far.click", "FromDump(in.pcap) -> Classifier(12/0800 100/00) -> EtherMirror -> ToDump(out.pcap);\n");
  write("lookup.click", "FromDump(in.pcap) -> GetIPAddress(30) -> IPLookup(0.0.0.0/0 0) -> ToDump(out.pcap);\n");
  const auto says = [&](const std::string& options, const std::string& line) {
    const std::string text = sluice("show plan " + options + " --device emu").out;
    EXPECT_NE(text.find("node 0: " + line), std::string::npos) << options << "\n" << text;
  };
  says("mirror.click",
       "on the host: no lookup: the transfer would cost more than the work (--records frame: on the device)\n");
  says("mirror.click --records frame",
       "frames are sent and come back edited; 8 bytes per packet in, 3 out, and the frame each way");
  says("mirror.click --transport commlist",
       "frames are sent and come back edited; 8 bytes per packet in, 3 out, and what the device reads of the frame "
       "where it lies, at most 192 bytes; 48 come back\n");
  says("mirror.click --transport commpool",
       "frames are gathered; 8 bytes per packet in, 3 out, and the frame each way, of longer ones the first 128 "
       "bytes\n");
  says("far.click --records frame",
       "on the host: no lookup by key; Classifier@2 does not parse frames from their first byte\n");
  for (const char* records : {"", " --records key", " --records frame", " --transport commpool"})
    says(std::string("lookup.click") + records, "keys are sent");
}

// Kinds of records that there were, and what takes their place.
TEST_F(CliRunTest, RecordsThatAreGoneAreRefused) {
  for (const std::string kind : {"header", "address"}) {
    const Said said = sluice("run " + standard_ + " --device emu --records " + kind);
    EXPECT_EQ(said.code, 2) << said.err;
    EXPECT_NE(said.err.find("there are no " + kind + " records any more"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("use --records frame"), std::string::npos) << said.err;
  }
}

TEST_F(CliRunTest, TablesLieWhereTheyAreAskedTo) {
  ASSERT_EQ(sluice("gen routes --ipv4 400 --ipv6 100 --out few").code, 0);
  const std::string few = "--acl edge.acl --routes few --route-algorithm trie --in in.pcap ";
  ASSERT_EQ(sluice("run " + few + "--out want.pcap").code, 0);
  const std::string want = read("want.pcap");
  for (const char* memory : {"auto", "global", "constant", "shared"}) {
    for (const char* more : {"--records key", "--records frame", "--batch 4096", "--threading master",
                             "--transport commlist", "--transport commpool"}) {
      const std::string options = std::string("--device emu --table-memory ") + memory + " " + more;
      const Said said = sluice("run " + few + options + " --out got.pcap -o json");
      ASSERT_EQ(said.code, 0) << options << said.err;
      EXPECT_GT(said.json()["offload"]["offloaded"], 0) << options;
      EXPECT_TRUE(read("got.pcap") == want) << options;
    }
  }
  const auto plan = [&](const std::string& options) {
    return sluice("show plan " + few + "--device emu " + options).out;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(plan(""), "    tables       global memory (auto: tables of every size fit)\n");
  has(plan("--table-memory global"), "    tables       global memory (--table-memory global)\n");
  has(plan("--table-memory constant"),
      "    tables       constant memory, of all segments together, 65536 bytes at most (--table-memory constant)\n");
  has(plan("--table-memory shared --records key"),
      "    tables       shared memory, a copy for each block, 232448 bytes at most (--table-memory shared)\n");
  // A table of 2^24 entries: an error before a packet is read or an output begun.
  const Said large = sluice(
      "run --routes few --route-algorithm dir24 --in in.pcap --out none.pcap --device emu "
      "--table-memory shared");
  EXPECT_EQ(large.code, 4);
  has(large.err, "error: tables do not fit shared memory: fib (");
  has(large.err, "and there is room for 232448 bytes");
  has(large.err, "help: use --table-memory global");
  EXPECT_FALSE(exists("none.pcap"));
  for (const auto& [options, message] : std::vector<std::pair<std::string, std::string>>{
           {"--mode persistent", "--table-memory shared: only in --mode launch"},
           {"--mode adaptive", "--table-memory shared: only in --mode launch"}}) {
    const Said said = sluice("run " + few + "--device emu --table-memory shared " + options);
    EXPECT_EQ(said.code, 2) << options;
    has(said.err, message);
  }
}

TEST_F(CliRunTest, TheReportHoldsWhatTheGraphDid) {
  const Said said = sluice("run " + standard_ + " --out out.pcap -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json j = said.json();
  for (const char* field : {"packets_in", "bytes_in", "packets_out", "bytes_out", "out", "sinks", "drops", "generated",
                            "elements", "seconds", "generation", "workers", "device", "latency_ns", "tables"}) {
    EXPECT_TRUE(j.contains(field)) << field;
  }
  EXPECT_EQ(j["packets_in"], 700);
  EXPECT_EQ(j["packets_out"], 300);
  EXPECT_EQ(j["out"]["1"]["packets"], 200);
  EXPECT_EQ(j["out"]["2"]["packets"], 100);
  EXPECT_EQ(j["drops"], (Json{{"acl-deny", 100}, {"no-route", 100}, {"ttl-expired", 100}, {"ipv4-bad-checksum", 100}}));
  EXPECT_EQ(j["generation"], 1);
  EXPECT_EQ(j["workers"], 1);
  EXPECT_EQ(j["device"], "cpu");
  for (const char* p : {"p50", "p99", "p999", "max"}) EXPECT_GT(j["latency_ns"][p], 0) << p;
  ASSERT_EQ(j["tables"].size(), 3u);
  EXPECT_EQ(j["tables"][0]["entries"], 2);
  expect_conserved(j);
  EXPECT_EQ(j["partial"], false);
  EXPECT_TRUE(said.err.empty()) << said.err;
  auto reader = CaptureReader::open(path("out.pcap"));
  ASSERT_TRUE(reader.ok());
  CapturedFrame frame;
  uint64_t frames = 0;
  while (*reader->next(frame)) ++frames;
  EXPECT_EQ(frames, 300u);
  EXPECT_EQ(files(), (std::vector<std::string>{"adj", "edge.acl", "in.pcap", "out.pcap", "rib"}));
}

TEST_F(CliRunTest, ThePrintedGraphRunsToTheSameBytes) {
  for (const std::string extra : {"", " --default permit", " --icmp-errors 192.0.2.1,2001:db8::ff --icmp-denied"}) {
    ASSERT_EQ(sluice("run " + standard_ + extra + " --out out.pcap").code, 0);
    ASSERT_EQ(shell("\"$SLUICE\" run " + standard_ + extra + " --out again.pcap --print-graph > graph.click").code, 0);
    const Said said = sluice("run graph.click -o json");
    ASSERT_EQ(said.code, 0) << said.err << read("graph.click");
    expect_conserved(said.json());
    EXPECT_TRUE(read("out.pcap") == read("again.pcap")) << extra;
    // The canonical text of the graph is a graph, too.
    ASSERT_EQ(
        shell("\"$SLUICE\" run graph.click --print-graph > canonical.click && \"$SLUICE\" check canonical.click").code,
        0);
  }
}

TEST_F(CliRunTest, WorkersAndBatchesDoNotChangeABit) {
  ASSERT_EQ(sluice("run " + standard_ + " --out out.pcap").code, 0);
  for (const char* options : {"--workers 2", "--workers 5 --batch 7", "--batch 1", "--batch 8192",
                              "--algorithm linear --route-algorithm trie"}) {
    ASSERT_EQ(sluice("run " + standard_ + " --out other.pcap " + options).code, 0) << options;
    EXPECT_TRUE(read("out.pcap") == read("other.pcap")) << options;
  }
}

TEST_F(CliRunTest, OutputsByPortHoldEachItsOwn) {
  const Said said = sluice("run " + standard_ + " --out 1=one.pcap --out 2=two.pcap --out rest.pcap -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json j = said.json();
  std::map<std::string, uint64_t> packets;
  for (const Json& s : j["sinks"]) packets[s["path"]] = s["packets"];
  EXPECT_EQ(packets, (std::map<std::string, uint64_t>{{"one.pcap", 200}, {"two.pcap", 100}, {"rest.pcap", 0}}));
  expect_conserved(j);
}

TEST_F(CliRunTest, IcmpErrorsAnswerWhatCannotBeForwarded) {
  const Said said = sluice("run " + standard_ + " --icmp-errors 192.0.2.1,2001:db8::ff --out out.pcap -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json j = said.json();
  // 100 expired and 100 without a route are answered; the answers go back to 10.0.0.1, as many as one burst of the rate
  // limit lets through within these 700 ns.
  EXPECT_EQ(j["generated"], 200);
  EXPECT_EQ(j["packets_out"], 350);
  EXPECT_EQ(j["drops"]["icmp-rate-limited"], 150);
  expect_conserved(j);
}

TEST_F(CliRunTest, WithoutOutputPacketsAreCountedAndForgotten) {
  const Json j = sluice("run --routes rib --in in.pcap -o json").json();
  EXPECT_EQ(j["packets_in"], 700);
  EXPECT_EQ(j["packets_out"], 400);
  expect_conserved(j);
  EXPECT_EQ(files(), (std::vector<std::string>{"adj", "edge.acl", "in.pcap", "rib"}));
}

TEST_F(CliRunTest, AConfigurationTakesVariables) {
  write("g.click", "FromDump($IN) -> Counter -> ToDump($OUT);");
  const Said said = sluice("run g.click IN=in.pcap OUT=out.pcap -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.json()["packets_out"], 700);
  EXPECT_TRUE(exists("out.pcap"));
}

TEST_F(CliRunTest, PrintedPacketsAreLinesOnStderr) {
  write("g.click", "FromDump(in.pcap) -> Print(seen, 4) -> Discard;");
  const Said said = sluice("run g.click --workers 2");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.err.rfind("seen:   5", 0), 0u) << said.err.substr(0, 80);
  size_t lines = 0;
  for (size_t at = 0; (at = said.err.find("seen: ", at)) != std::string::npos; ++at) {
    EXPECT_TRUE(at == 0 || said.err[at - 1] == '\n') << at;
    ++lines;
  }
  EXPECT_EQ(lines, 700u);
  EXPECT_EQ(said.err.find("seen: "), 0u);
}

TEST_F(CliRunTest, GraphAndPlanAreJsonWhenAsked) {
  write("g.click", "FromDump(in.pcap) -> Counter -> Discard;");
  const std::string graph = sluice("run g.click --print-graph").out;
  EXPECT_EQ(sluice("run g.click --print-graph -o json").json()["graph"], graph);
  EXPECT_EQ(sluice("run g.click --print-plan -o json").json()["plan"], sluice("run g.click --print-plan").out);
  EXPECT_EQ(sluice("show plan g.click").out, sluice("run g.click --print-plan").out);
  EXPECT_EQ(sluice("show plan g.click --device emu --mode persistent").out,
            sluice("run g.click --print-plan --device emu --mode persistent").out);
  EXPECT_EQ(sluice("show").code, 2);
  EXPECT_EQ(sluice("run " + standard_ + " --print-graph -o json").json()["graph"],
            sluice("run " + standard_ + " --print-graph").out);
}

TEST_F(CliRunTest, CapturesGoThroughPipes) {
  const Said said = shell(
      "\"$SLUICE\" run --routes rib --in - --out - < in.pcap | \"$SLUICE\" classify --rules edge.acl --in - | sort | "
      "uniq -c");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "    100 1\n    300 2\n");
}

TEST_F(CliRunTest, TopRulesCountWhatReachesTheList) {
  const Json j = sluice("run " + standard_ + " --top-rules 3 -o json").json();
  ASSERT_EQ(j["top_rules"].size(), 2u);
  EXPECT_EQ(j["top_rules"][0]["packets"], 500);
  EXPECT_EQ(j["top_rules"][0]["at"], "edge.acl:2");
  EXPECT_EQ(j["top_rules"][1]["packets"], 100);
  EXPECT_EQ(j["top_rules"][1]["action"], "deny");
}

TEST_F(CliRunTest, AnInterruptLeavesWhatWasReadAsPartial) {
  write("out.pcap", "old");
  write("g.click", "InfiniteSource(DATA \\<00 01 02 03>) -> ToDump(out.pcap);");
  const Said said = shell("\"$SLUICE\" run g.click -o json & sleep 0.5; kill -INT $!; wait $!");
  EXPECT_EQ(said.code, 130) << said.err;
  const Json j = said.json();
  EXPECT_EQ(j["interrupted"], true);
  EXPECT_GT(j["packets_out"], 0);
  expect_conserved(j);
  EXPECT_EQ(j["partial"], true);
  EXPECT_EQ(j["sinks"][0]["path"], "out.pcap.partial");
  EXPECT_EQ(said.err, "warning: interrupted: the output up to that point is in out.pcap.partial\n");
  EXPECT_EQ(read("out.pcap"), "old");
  auto reader = CaptureReader::open(path("out.pcap.partial"));
  ASSERT_TRUE(reader.ok());
  CapturedFrame frame;
  uint64_t frames = 0;
  while (*reader->next(frame)) ++frames;
  EXPECT_EQ(j["packets_out"], frames);
}

TEST_F(CliRunTest, AFailureLeavesNothingHalfWritten) {
  // The capture is damaged after its first packets; the old output stays as it is.
  const std::string capture = read("in.pcap");
  write("cut.pcap", capture.substr(0, capture.size() / 2 + 5));
  write("out.pcap", "old");
  const Said said = sluice("run --routes rib --in cut.pcap --out out.pcap");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("cut.pcap"), std::string::npos) << said.err;
  EXPECT_EQ(read("out.pcap"), "old");
  EXPECT_EQ(files(), (std::vector<std::string>{"adj", "cut.pcap", "edge.acl", "in.pcap", "out.pcap", "out.pcap.partial",
                                               "rib"}));
  EXPECT_EQ(sluice("run --routes rib --in in.pcap --out /dev/full").code, 3);
  EXPECT_EQ(sluice("run --routes rib --in in.pcap --out none/out.pcap").code, 3);
  EXPECT_EQ(sluice("classify --rules edge.acl --in in.pcap --out /dev/full").code, 3);
  EXPECT_EQ(sluice("classify --rules edge.acl --in cut.pcap --out verdicts").code, 1);
  EXPECT_FALSE(exists("verdicts"));
  EXPECT_TRUE(exists("verdicts.partial"));
}

TEST_F(CliRunTest, BenchVerifiesOrRefuses) {
  const Said said = sluice("bench classify --count 100 --packets 2000 --sample 2000 -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json j = said.json();
  for (const char* field :
       {"schema", "name", "when", "command", "machine", "git", "seed", "input_hash", "checked", "verified", "results"})
    EXPECT_TRUE(j.contains(field)) << field;
  EXPECT_EQ(j["verified"]["mismatches"], 0);
  EXPECT_EQ(j["verified"]["oracle"], "linear");
  const Json& r = j["results"][0];
  EXPECT_GE(r["n"], 5);
  EXPECT_LE(r["min"], r["median"]);
  EXPECT_LE(r["median"], r["max"]);
  const Said spoilt = sluice("bench classify --count 100 --packets 2000 --spoil-check -o json");
  EXPECT_EQ(spoilt.code, 5);
  EXPECT_TRUE(spoilt.out.empty());
  EXPECT_EQ(Json::parse(spoilt.err)["error"]["exit_code"], 5);
  const Json route = sluice("bench route --ipv4 500 --ipv6 200 --packets 4096 -o json").json();
  EXPECT_EQ(route["results"].size(), 10u);  // three patterns a family, and neighbours behind one of them
  const Json sizes = sluice("bench route --like rib --count 10 --algorithm dir24 --packets 1024 -o json").json();
  ASSERT_EQ(sizes["results"].size(), 1u);
  EXPECT_EQ(sizes["results"][0]["case"], "ipv4_10/dir24");
  EXPECT_EQ(sizes["results"][0]["routes"], 10);
  EXPECT_EQ(sluice("bench route --like rib --count 10 --algorithm dir24 --packets 1024 --spoil-check").code, 5);
  EXPECT_EQ(sluice("bench route --ipv4 500 --ipv6 200 --packets 4096 --spoil-check").code, 5);
  const Json pipeline =
      sluice("bench pipeline --count 100 --ipv4 500 --ipv6 10 --packets 20000 --sample 5000 -o json").json();
  EXPECT_EQ(pipeline["results"].size(), 2u);
  EXPECT_GT(pipeline["results"][1]["forwarded_part"], 0.99);
  for (const Json& row : pipeline["results"]) {
    EXPECT_GT(row["p50_us"], 0) << row;
    EXPECT_LE(row["p50_us"], row["p99_us"]) << row;
  }
  EXPECT_EQ(sluice("bench pipeline --count 100 --ipv4 500 --ipv6 10 --packets 20000 --sample 5000 --spoil-check").code,
            5);
}

TEST_F(CliRunTest, BenchOfFunctionsVerifiesOrRefuses) {
  const std::string few = "bench functions --device emu --sizes 64 --packets 2000 --sample 500 ";
  const Said said = sluice(few + "--function crc,chain,lookup --ways launch/commlist/full,launch/staged/full -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.json()["results"].size(), 6u);
  EXPECT_EQ(said.json()["verified"]["sample"], 3000);
  EXPECT_EQ(sluice(few + "--function mirror --spoil-check").code, 5);
  EXPECT_EQ(sluice(few + "--ways launch").code, 2);
}

TEST_F(CliRunTest, ClassesThatNameAGpuGiveThePlainOnesBytes) {
  ASSERT_EQ(sluice("gen traffic --packets 500 --flows 50 --out t.pcap").code, 0);
  const auto captured = [&](const std::string& elements, const std::string& options) {
    write("t.click", "FromDump(t.pcap) -> " + elements + " -> ToDump(t.out);\n");
    const Said said = sluice("run t.click -o json " + options);
    EXPECT_EQ(said.code, 0) << elements << said.err;
    if (options.find("emu") != std::string::npos && elements.find("GPU") != std::string::npos) {
      EXPECT_NE(said.err.find(" asks for --records frame"), std::string::npos) << elements << said.err;
      EXPECT_EQ(said.json()["offload"]["offloaded"], 500) << elements;
    }
    return read("t.out");
  };
  const struct {
    const char *plain, *named;
  } pairs[] = {
      {"EtherMirror",
       "GPUEtherMirrorCoalescent(FROM 0, TO 12, VERBOSE false, CAPACITY 4096, MAX_BATCH 64, "
       "ZEROCOPY true, BLOCKING false, QUEUES_PER_CORE 16)"},
      {"EtherMirror", "GPUEtherMirrorCommList(CAPACITY 128, MAX_BATCH 128, PERSISTENT_KERNEL false)"},
      {"SetCRC32", "GPUSetCRC32Coalescent(FROM 0, TO 1518, MAX_BATCH 512)"},
      {"SetCRC32", "GPUSetCRC32CommList(CAPACITY 256, LISTS_PER_CORE 1)"},
      {"CheckIPHeader(14) -> IPLookup(0.0.0.0/0 0)", "CheckIPHeader(14) -> GPUIPLookup(0.0.0.0/0 0, MAX_BATCH 32)"},
      {"CheckIPHeader(14) -> IPLookup(0.0.0.0/0 0)",
       "CheckIPHeader(14) -> GPUIPLookupWithCopy(0.0.0.0/0 0, ZEROCOPY false)"},
  };
  for (const auto& [plain, named] : pairs) {
    const std::string want = captured(plain, "");
    EXPECT_GT(want.size(), 500u * 60);
    EXPECT_TRUE(captured(named, "--device cpu") == want) << named;
    EXPECT_TRUE(captured(named, "--device emu --transport commlist") == want) << named;
    // A GPU, or an error before any packet.
    write("t.click", std::string("FromDump(t.pcap) -> ") + named + " -> ToDump(none.out);\n");
    const Said said = sluice("run t.click");
    EXPECT_NE(said.err.find(" asks for a GPU: --device cuda --mode"), std::string::npos) << said.err;
    if (said.code == 0) {
      EXPECT_TRUE(read("none.out") == want) << named;
    } else {
      EXPECT_EQ(said.code, 4) << said.err;
      EXPECT_NE(said.err.find("use --device cpu"), std::string::npos) << said.err;
      EXPECT_NE(shell("test -e none.out").code, 0);
    }
  }
  write("wrong.click", "FromDump(t.pcap) -> GPUEtherMirrorCommList(ZEROCOPY true) -> Discard;\n");
  EXPECT_EQ(sluice("run wrong.click").code, 1);
}

TEST_F(CliRunTest, SizesOfClassesThatNameAGpuHoldWhereTheCommandLineHasNone) {
  ASSERT_EQ(sluice("gen traffic --packets 500 --flows 50 --out t.pcap").code, 0);
  const std::string emu = "--device emu --mode launch --transport staged -o json";
  const auto ran = [&](const std::string& element, const std::string& options) {
    write("t.click", "FromDump(t.pcap) -> " + element + " -> ToDump(t.out);\n");
    const Said said = sluice("run t.click " + options);
    EXPECT_EQ(said.code, 0) << element << said.err;
    return said;
  };
  // A flight a batch: how many there were says how large they are.
  const auto flights = [&](const std::string& element, const std::string& options) {
    return ran(element, options).json()["devices"][0]["flights"];
  };
  EXPECT_EQ(flights("GPUSetCRC32CommList(MAX_BATCH 64)", emu), 8);
  EXPECT_EQ(flights("GPUSetCRC32Coalescent(MAX_BATCH 100)", emu), 5);
  EXPECT_EQ(flights("GPUSetCRC32Coalescent(MAX_BATCH 100)", emu + " --batch 250"), 2);
  EXPECT_EQ(flights("GPUSetCRC32CommList", emu), 2) << "the usual 256";
  EXPECT_EQ(flights("GPUSetCRC32CommList(MAX_BATCH 0)", emu), 2);
  EXPECT_EQ(flights("GPUSetCRC32CommList(MAX_BATCH 1000000)", emu), 1) << "all that a batch can hold";
  const auto plan = [&](const std::string& element, const std::string& options) {
    write("t.click", "FromDump(t.pcap) -> " + element + " -> ToDump(t.out);\n");
    return sluice("show plan t.click --device emu " + options).out;
  };
  EXPECT_NE(plan("GPUSetCRC32CommList(LISTS_PER_CORE 2)", "").find(" 2 batches in flight per worker"),
            std::string::npos);
  EXPECT_NE(plan("GPUSetCRC32Coalescent(QUEUES_PER_CORE 90)", "").find(" 16 batches in flight per worker"),
            std::string::npos);
  EXPECT_NE(plan("GPUSetCRC32CommList(LISTS_PER_CORE 2)", "--flights 3").find(" 3 batches in flight per worker"),
            std::string::npos);
  write("t.click", "FromDump(t.pcap) -> GPUSetCRC32Coalescent(MAX_BATCH 64, QUEUES_PER_CORE 2) -> ToDump(t.out);\n");
  const Said placed = sluice("run t.click");
  EXPECT_NE(placed.err.find("GPUSetCRC32Coalescent asks for a GPU: --device cuda --mode launch --transport zerocopy "
                            "--records frame --batch 64 --flights 2"),
            std::string::npos)
      << placed.err;
  EXPECT_NE(
      ran("GPUSetCRC32CommList(MAX_BATCH 64)", "--device cpu").err.find("GPUSetCRC32CommList asks for --batch 64"),
      std::string::npos);
  EXPECT_EQ(ran("SetCRC32", "").err.find("asks for"), std::string::npos);
}

TEST_F(CliRunTest, CapturesStandForPortsThatAreNotHere) {
  ASSERT_EQ(sluice("gen traffic --packets 300 --flows 20 --out t.pcap").code, 0);
  write("plain.click", "FromDump(t.pcap) -> EtherMirror -> ToDump(plain.out);\n");
  ASSERT_EQ(sluice("run plain.click").code, 0);
  write("bounce.click",
        "define($port 0, $batch 128)\n"
        "FromDPDKDevice($port, N_QUEUES 1, MAXTHREADS 1, BURST 32, NDESC 1024)\n"
        "  -> GPUEtherMirrorCommList(CAPACITY 256, MAX_BATCH $batch)\n"
        "  -> ToDPDKDevice($port, BLOCKING true);\n");
  const Said mapped = sluice("run bounce.click --device cpu --map dpdk:0=pcap:t.pcap,bounce.out");
  ASSERT_EQ(mapped.code, 0) << mapped.err;
  EXPECT_GT(read("plain.out").size(), 300u * 60);
  EXPECT_TRUE(read("bounce.out") == read("plain.out"));
  const Said counted = sluice("run bounce.click --map dpdk:0=memory:t.pcap --device cpu -o json");
  ASSERT_EQ(counted.code, 0) << counted.err;
  EXPECT_EQ(counted.json()["packets_out"], 300);
  EXPECT_EQ(sluice("check bounce.click --map dpdk:0=pcap:t.pcap").code, 0);
  // A port that is not there is none: the error stands at its element.
  write("nowhere.click", "FromDevice(nowhere0, METHOD AF_PACKET) -> EtherMirror -> Discard;\n");
  const Said missing = sluice("run nowhere.click");
  EXPECT_EQ(missing.code, 3);
  EXPECT_NE(missing.err.find("nowhere.click:1:1: error: no interface 'nowhere0'"), std::string::npos) << missing.err;
  EXPECT_EQ(sluice("run bounce.click --map dpdk:0").code, 2);
}

TEST_F(CliRunTest, ASizeMeansThatEveryFrameHasIt) {
  auto bytes = [&](const std::string& options) {
    const Said said = sluice("gen traffic --packets 100 --flows 9 --out t.pcap -o json " + options);
    EXPECT_EQ(said.code, 0) << said.err;
    return said.code == 0 ? said.json()["bytes"].get<uint64_t>() : 0;
  };
  EXPECT_EQ(bytes("--size 200"), bytes("--size 200 --mix fixed"));
  EXPECT_EQ(bytes("--size 300") - bytes("--size 200"), 100u * 100);
  EXPECT_EQ(bytes("--mix fixed"), bytes("--size 64"));
  EXPECT_EQ(bytes(""), bytes("--mix imix"));
  const Said both = sluice("gen traffic --size 200 --mix imix --out t.pcap");
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--size: the mix 'imix' has its own sizes"), std::string::npos) << both.err;
}

TEST_F(CliRunTest, DemoIsIdenticalAndConserved) {
  const Said said = sluice("demo --dir d --packets 5000 --rules 500 --ipv4 3000 --ipv6 500 -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json j = said.json();
  EXPECT_EQ(j["identical"], true);
  // One worker, two, and a GPU where there is one.
  ASSERT_EQ(j["runs"].size(), count_cuda_devices().count == 0 ? 2u : 3u);
  for (const Json& run : j["runs"]) {
    EXPECT_EQ(run["packets_in"], 5000);
    EXPECT_GT(run["packets_out"], 0);
    expect_conserved(run);
    for (const char* reason : {"acl-deny", "no-route", "ttl-expired", "ipv4-bad-checksum"}) {
      EXPECT_TRUE(run["drops"].contains(reason)) << reason;
    }
    // Rates are of packets in memory, which are at least as many as the capture has.
    EXPECT_GE(run["steady"]["packets"], 5000);
    EXPECT_GT(run["steady"]["packets_per_second"], 0);
  }
  EXPECT_TRUE(exists("d/out.pcap") && exists("d/edge.acl") && exists("d/rib.txt") && exists("d/imix.pcap"));
}

// What the demo suggests can be typed as it stands, but for what runs until it is stopped.
TEST_F(CliRunTest, DemoSuggestsCommandsThatWork) {
  const Said said = sluice("demo --dir d --packets 2000 --rules 100 --ipv4 500 --ipv6 50");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("\n  cpu x1 "), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("\n  cpu x2 "), std::string::npos) << said.out;
  const std::string next = said.out.substr(said.out.find("  try next"));
  size_t commands = 0;
  for (size_t at = next.find("\n    "); at != std::string::npos; at = next.find("\n    ", at + 1)) {
    const std::string line = next.substr(at + 5, next.find('\n', at + 1) - at - 5);
    ++commands;
    if (line.find("--repeat") != std::string::npos) continue;
    const Said done = shell(line);
    EXPECT_EQ(done.code, 0) << line << '\n' << done.err;
  }
  EXPECT_EQ(commands, 3u);
  EXPECT_TRUE(exists("d/verdicts.txt"));
}

// Devices and latency targets change the report and not the output.
TEST_F(CliRunTest, DevicesAndLatencyTargets) {
  ASSERT_EQ(sluice("run " + standard_ + " --out cpu.pcap").code, 0);
  for (const char* how : {"--latency-target 1ns --batch 64", "--device emu --threading full",
                          "--device emu --threading master --workers 2 --mode persistent",
                          "--device emu --threading master --workers 2 --latency-target 1ms"}) {
    const Said said = sluice("run " + standard_ + " --out out.pcap -o json " + how);
    ASSERT_EQ(said.code, 0) << how << said.err;
    EXPECT_TRUE(read("out.pcap") == read("cpu.pcap")) << how;
    const Json j = said.json();
    expect_conserved(j);
    for (const char* field : {"limit", "latency_target_ns", "raised", "lowered"})
      EXPECT_TRUE(j["batch"].contains(field)) << field;
    if (std::string(how).find("1ns") != std::string::npos) {
      EXPECT_EQ(j["batch"]["limit"], 32);
      EXPECT_EQ(j["batch"]["latency_target_ns"], 1);
      EXPECT_EQ(j["batch"]["lowered"], 3);
    }
    if (std::string(how).find("emu") != std::string::npos) {
      ASSERT_EQ(j["devices"].size(), 1u) << how;
      EXPECT_GT(j["offload"]["offloaded"], 0) << how;
      EXPECT_EQ(j["devices"][0]["master_flights"] > 0, std::string(how).find("master") != std::string::npos) << how;
    }
  }
}

TEST_F(CliRunTest, DoctorAndElementsSpeakJson) {
  const Json doctor = sluice("doctor -o json").json();
  EXPECT_TRUE(doctor["machine"]["cores"].is_number());
  EXPECT_GE(doctor["findings"].size(), 8u);
  EXPECT_TRUE(std::any_of(doctor["findings"].begin(), doctor["findings"].end(),
                          [](const Json& f) { return f["what"] == "cuda"; }));
  for (const Json& f : doctor["findings"]) {
    if (f["state"] == "gap") {
      EXPECT_FALSE(f["mend"].get<std::string>().empty()) << f.dump();
    }
  }
  const Json elements = sluice("elements -o json").json();
  std::set<std::string> names;
  for (const Json& e : elements["elements"]) names.insert(e["name"].get<std::string>());
  for (const char* name :
       {"FromDump", "ToDump", "InfiniteSource", "CheckIPHeader", "Classifier", "ACL", "IPRoute", "DecIPTTL",
        "EtherEncap", "Counter", "Discard", "Tee", "Paint", "Print", "ICMPError", "PortSwitch"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(sluice("elements IPRoute -o json").json()["name"], "IPRoute");
}

}  // namespace
}  // namespace sluice
