// What becomes of each packet: --verdicts, --dropped, the filter without routes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::CliTest;
using testing::Said;

class CliVerdictsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("edge.acl", "# a firewall\ndeny udp from any to any port 53\npermit ip from any to any\n");
    write("rib", "8.0.0.0/8 a\n9.0.0.0/8 b\n");
    write("adj", "a 02:00:00:00:00:0a 02:00:00:00:00:01 1\nb 02:00:00:00:00:0b 02:00:00:00:00:01 2 mtu 600\n");
  }

  using Frames = std::vector<std::vector<uint8_t>>;
  void capture(const char* name, const Frames& frames) {
    auto writer = CaptureWriter::create(path(name));
    ASSERT_TRUE(writer.ok());
    uint64_t stamp = 1'700'000'000'000'000'000;
    for (const auto& f : frames) {
      const auto bytes = static_cast<uint32_t>(f.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, ++stamp}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  Frames frames_of(const std::string& name) {
    Frames frames;
    auto reader = CaptureReader::open(path(name));
    EXPECT_TRUE(reader.ok()) << name;
    for (CapturedFrame frame; reader.ok() && *reader->next(frame);)
      frames.emplace_back(frame.data, frame.data + frame.captured);
    return frames;
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  // Packets that a router would not forward, and frames that are not IP.
  static Frames odd_frames() {
    const uint8_t source_route[] = {131, 7, 4, 10, 0, 0, 9};
    const PacketBuilder good = udp4("10.0.0.1", "192.0.2.7").ports(1000, 80);
    return {
        PacketBuilder(good).payload(0).size(60).build(),  // padded
        PacketBuilder(good).bad_ip_checksum().build(),
        PacketBuilder(good).ttl(0).build(),
        PacketBuilder(good).ipv4_options(source_route).build(),
        PacketBuilder(good).macs(MacAddress{{255, 255, 255, 255, 255, 255}}, MacAddress{{2, 0, 0, 0, 0, 1}}).build(),
        udp4("127.0.0.1", "192.0.2.7").build(),
        udp4("10.0.0.1", "224.0.0.5").build(),
        udp4("10.0.0.1", "255.255.255.255").build(),
        udp6("fe80::1", "ff02::1").build(),
    };
  }
};

TEST_F(CliVerdictsTest, AListWithoutRoutesIsAFirewallInFrontOfAWire) {
  const Frames odd = odd_frames();
  capture("in.pcap", odd);
  for (const char* options : {"", " --workers 3 --batch 2", " --device emu --watchdog 20000"}) {
    SCOPED_TRACE(options);
    const Said said = sluice(std::string("run --acl edge.acl --in in.pcap --out out.pcap --verdicts v") + options);
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(frames_of("out.pcap"), odd);
    std::string expected;
    for (size_t i = 1; i <= odd.size(); ++i) expected += fmt::format("{}\tpermit\t-\t2\t-\n", i);
    EXPECT_EQ(read("v"), expected);
  }
}

// Nothing of what a rule can say fits them: the default decides, and a frame that passes is the one that came.
TEST_F(CliVerdictsTest, GivesPacketsThatAreNotIpTheDefaultOfAFilter) {
  const PacketBuilder good = udp4("10.0.0.1", "192.0.2.7").ports(1000, 80);
  const Frames frames = {
      PacketBuilder::ether(0x0806).payload(46).build(),  // ARP
      PacketBuilder(good).truncate(13).build(),          // no whole link header
      PacketBuilder(good).truncate(30).build(),          // no whole network header
      PacketBuilder(good).total_length(1400).build(),    // more than there is
      PacketBuilder(good).ip_version(5).build(),        udp6("2001:db8::1", "2001:db8::2").routing(0, 1).build(),
  };
  capture("in.pcap", frames);
  std::string denied, permitted;
  for (size_t i = 1; i <= frames.size(); ++i) {
    denied += fmt::format("{}\tdeny\tacl-no-match\t0\t-\n", i);
    permitted += fmt::format("{}\tpermit\t-\t0\t-\n", i);
  }
  // Also where a rule names nothing that a packet must be.
  write("all.acl", "permit ip from any to any\npermit from any to any\n");
  ASSERT_EQ(sluice("run --acl all.acl --in in.pcap --out out.pcap --verdicts v").code, 0);
  EXPECT_EQ(read("v"), denied);
  EXPECT_TRUE(frames_of("out.pcap").empty());
  ASSERT_EQ(sluice("run --acl all.acl --default permit --in in.pcap --out out.pcap --verdicts v").code, 0);
  EXPECT_EQ(read("v"), permitted);
  EXPECT_EQ(frames_of("out.pcap"), frames);
}

// The verdicts of a filter are those of classify, whatever the packets.
TEST_F(CliVerdictsTest, AFilterFindsTheRulesThatClassifyFinds) {
  ASSERT_EQ(sluice("gen rules --shape acl --count 200 --seed 3 --out r.acl").code, 0);
  ASSERT_EQ(sluice("gen traffic --rules r.acl --packets 3000 --seed 4 --out in.pcap").code, 0);
  ASSERT_EQ(sluice("classify --rules r.acl --in in.pcap --out rules").code, 0);
  const auto rules = lines_of(read("rules"));
  ASSERT_EQ(sluice("run --acl r.acl --in in.pcap --out out.pcap --verdicts v --workers 2").code, 0);
  const auto verdicts = lines_of(read("v"));
  ASSERT_EQ(rules.size(), 3000u);
  ASSERT_EQ(verdicts.size(), rules.size());
  size_t permitted = 0;
  std::set<std::string> different;
  for (size_t i = 0; i < rules.size(); ++i) {
    std::istringstream in(verdicts[i]);
    std::string number, verdict, reason, rule, hop;
    in >> number >> verdict >> reason >> rule >> hop;
    EXPECT_EQ(number, std::to_string(i + 1));
    EXPECT_EQ(rule, rules[i]) << verdicts[i];
    EXPECT_EQ(hop, "-");
    permitted += verdict == "permit";
    different.insert(rule);
  }
  EXPECT_EQ(frames_of("out.pcap").size(), permitted);
  EXPECT_GT(different.size(), 20u);
}

TEST_F(CliVerdictsTest, EveryPacketOfARouterHasItsLine) {
  const auto tcp = [](const char* to) { return tcp4("10.0.0.1", to).ports(7, 80); };
  const Frames frames = {
      tcp("8.1.1.1").build(),
      tcp("9.1.1.1").payload(1000).build(),                  // cut into fragments
      udp4("10.0.0.1", "8.1.1.1").ports(7, 53).build(),      // denied
      tcp("7.1.1.1").build(),                                // no route
      tcp("8.1.1.1").ttl(1).build(),                         // expires
      tcp("8.1.1.1").bad_ip_checksum().build(),              // damaged
      tcp("9.1.1.1").payload(1000).dont_fragment().build(),  // too big
      PacketBuilder::ether(0x0806).payload(28).build(),      // not IP
      tcp("9.1.1.1").build(),
  };
  Frames many;
  for (int i = 0; i < 40; ++i) many.insert(many.end(), frames.begin(), frames.end());
  capture("in.pcap", many);
  const std::vector<std::string> ends = {
      "forward\t-\t2\ta",     "forward\t-\t2\tb",        "deny\tacl-deny\t1\t-",
      "drop\tno-route\t2\t-", "drop\tttl-expired\t2\ta", "drop\tipv4-bad-checksum\t0\t-",
      "drop\ttoo-big\t2\tb",  "drop\tnot-ip\t0\t-",      "forward\t-\t2\tb",
  };
  std::string expected;
  for (size_t i = 0; i < many.size(); ++i) expected += fmt::format("{}\t{}\n", i + 1, ends[i % ends.size()]);
  const std::string standard = "run --acl edge.acl --routes rib --adjacencies adj --in in.pcap --verdicts v ";
  for (const char* options :
       {"--out out.pcap", "--out 1=a.pcap --out 2=b.pcap --out rest.pcap", "", "--workers 4 --batch 16 --out out.pcap",
        "--icmp-errors 192.0.2.1 --icmp-denied --out out.pcap --workers 2", "--out out.pcap --batch 1",
        "--device emu --watchdog 20000 --mode persistent --out out.pcap",
        "--device emu --watchdog 20000 --mode launch --transport commlist --workers 2 --out out.pcap"}) {
    SCOPED_TRACE(options);
    const Said said = sluice(standard + options);
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(read("v"), expected);
  }
}

TEST_F(CliVerdictsTest, FollowingARunChangesNothingOfIt) {
  ASSERT_EQ(sluice("gen routes --ipv4 250 --ipv6 50 --seed 5 --out rib").code, 0);
  ASSERT_EQ(sluice("gen traffic --routes rib --packets 4000 --seed 6 --out in.pcap").code, 0);
  const std::string command = "run --acl edge.acl --routes rib --in in.pcap -o json --out ";
  Json plain = sluice(command + "plain.pcap").json();
  Json followed = sluice(command + "followed.pcap --verdicts v --dropped d.pcapng").json();
  EXPECT_TRUE(read("plain.pcap") == read("followed.pcap"));
  EXPECT_EQ(plain["drops"], followed["drops"]);
  EXPECT_EQ(plain["elements"], followed["elements"]);
  // Every drop has its line and its frame.
  std::map<std::string, uint64_t> by_reason;
  size_t forwarded = 0;
  for (const std::string& line : lines_of(read("v"))) {
    std::istringstream in(line);
    std::string number, verdict, reason;
    in >> number >> verdict >> reason;
    if (verdict == "forward") {
      ++forwarded;
    } else {
      ++by_reason[reason];
    }
  }
  EXPECT_EQ(Json(by_reason), plain["drops"]);
  EXPECT_EQ(forwarded, plain["packets_out"].get<uint64_t>());
  EXPECT_EQ(frames_of("d.pcapng").size(), plain["dropped"].get<uint64_t>());
}

TEST_F(CliVerdictsTest, DroppedPacketsAreAsTheyCameWithTheReasonAsTheirComment) {
  const Frames frames = {
      tcp4("10.0.0.1", "8.1.1.1").ports(7, 80).build(),
      udp4("10.0.0.1", "8.1.1.1").ports(7, 53).build(),
      tcp4("10.0.0.1", "9.1.1.1").ports(7, 80).payload(1001).dont_fragment().build(),
  };
  capture("in.pcap", frames);
  const std::string command = "run --acl edge.acl --routes rib --adjacencies adj --in in.pcap --dropped ";
  ASSERT_EQ(sluice(command + "d.pcapng").code, 0);
  // The last one was refused after its TTL had been decremented.
  EXPECT_EQ(frames_of("d.pcapng"), (Frames{frames[1], frames[2]}));
  const std::string bytes = read("d.pcapng");
  EXPECT_NE(bytes.find("acl-deny at acl_check, edge.acl:2 (rule 1)"), std::string::npos);
  EXPECT_NE(bytes.find("too-big at fragment, edge.acl:3 (rule 2)"), std::string::npos);
  if (shell("command -v tshark").code == 0) {
    const Said said =
        shell("tshark -r d.pcapng -T fields -e frame.time_epoch -e frame.len -e frame.comment 2>/dev/null");
    EXPECT_EQ(said.out, fmt::format("1700000000.000000002\t{}\tacl-deny at acl_check, edge.acl:2 (rule 1)\n"
                                    "1700000000.000000003\t{}\ttoo-big at fragment, edge.acl:3 (rule 2)\n",
                                    frames[1].size(), frames[2].size()));
  }
}

TEST_F(CliVerdictsTest, VerdictsGoToStandardOutputUnlessItIsTaken) {
  capture("in.pcap", {tcp4("10.0.0.1", "8.1.1.1").ports(7, 80).build()});
  const Said said = sluice("run --acl edge.acl --in in.pcap --verdicts -");
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.out, "1\tpermit\t-\t2\t-\n");
  EXPECT_NE(said.err.find("in     1 packet,"), std::string::npos);
  EXPECT_EQ(sluice("run --acl edge.acl --in in.pcap --verdicts - --out -").code, 2);
  EXPECT_EQ(sluice("run --acl edge.acl --in in.pcap --verdicts in.pcap").code, 2);
  EXPECT_EQ(sluice("run --acl edge.acl --in in.pcap --verdicts v --dropped v").code, 2);
  EXPECT_EQ(sluice("run --acl edge.acl --in in.pcap --verdicts v --priorities").code, 2);
  EXPECT_EQ(sluice("run --acl edge.acl --in in.pcap --verdicts no/folder/v").code, 3);
  EXPECT_EQ(sluice("run --acl edge.acl --in in.pcap --verdicts /dev/full").code, 3);
  EXPECT_EQ(sluice("run --acl edge.acl --in in.pcap --dropped /dev/full").code, 3);
  write("q.click", "FromDump(in.pcap) -> Queue -> Unqueue -> Discard;\n");
  EXPECT_EQ(sluice("run q.click --verdicts v").code, 2);
}

TEST_F(CliVerdictsTest, AConfigurationHasVerdictsToo) {
  capture("in.pcap",
          {tcp4("10.0.0.1", "8.1.1.1").ports(7, 80).build(), udp4("10.0.0.1", "8.1.1.1").ports(7, 53).build(),
           udp4("10.0.0.1", "8.1.1.1").ports(7, 54).build()});
  write("g.click",
        "FromDump(in.pcap) -> IPInput -> c :: IPClassifier(tcp, dst port 53, -);\n"
        "c[0] -> t :: Tee(2); t[0] -> ToDump(a.pcap); t[1] -> ToDump(b.pcap);\n"
        "c[1] -> Discard;\nc[2] -> e :: ICMPError(192.0.2.1, unreachable, port) -> ToDump(icmp.pcap);\n");
  const Said said = sluice("run g.click --verdicts v");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(read("v"), "1\tpermit\t-\t0\t-\n2\tdrop\tdiscard\t0\t-\n3\tdrop\tdiscard\t0\t-\n");
  EXPECT_EQ(frames_of("b.pcap").size(), 1u);
  EXPECT_EQ(frames_of("icmp.pcap").size(), 1u);
}

TEST_F(CliVerdictsTest, OfSeveralListsTheLastThatAPacketMetIsNamed) {
  capture("in.pcap",
          {tcp4("10.0.0.1", "8.1.1.1").ports(7, 80).build(), udp4("10.0.0.1", "8.1.1.1").ports(7, 53).build(),
           tcp4("10.0.0.9", "8.1.1.1").ports(7, 80).build(), icmp4("10.0.0.1", "8.1.1.1").icmp(8, 0).build()});
  write("hosts.acl", "deny ip from any to 9.0.0.0/8\ndeny ip from 10.0.0.9 to any\npermit ip from any to any\n");
  write("two.click",
        "AclTable(hosts, FILE hosts.acl); AclTable(edge, FILE edge.acl);\n"
        "FromDump(in.pcap) -> IPInput -> c :: IPClassifier(tcp or udp, -);\n"
        "c[0] -> ACL(hosts) -> ACL(edge) -> ToDump(out.pcap);\nc[1] -> Discard;\n");
  for (const char* options : {"--workers 1", "--workers 2 --batch 1", "--device emu"}) {
    const Said said = sluice(fmt::format("run two.click --verdicts v {}", options));
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(read("v"),
              "1\tpermit\t-\t2\t-\tedge\n2\tdeny\tacl-deny\t1\t-\tedge\n3\tdeny\tacl-deny\t2\t-\thosts\n"
              "4\tdrop\tdiscard\t0\t-\t-\n")
        << options;
  }
}

TEST_F(CliVerdictsTest, ClassifyExplainsEveryPacket) {
  capture("in.pcap",
          {tcp4("10.0.0.1", "8.1.1.1").ports(7, 80).build(), udp4("10.0.0.1", "8.1.1.1").ports(7, 53).build(),
           PacketBuilder::ether(0x0806).payload(28).build(), tcp6("2001:db8::1", "2001:db8::2").ports(9, 443).build()});
  const Said said = sluice("classify --rules edge.acl --in in.pcap --explain-all");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out,
            "1\ttcp 10.0.0.1:7 > 8.1.1.1:80\tpermit\tedge.acl:3 (rule 2)\n"
            "2\tudp 10.0.0.1:7 > 8.1.1.1:53\tdeny\tedge.acl:2 (rule 1)\n"
            "3\t-\t-\tno rule\n"
            "4\ttcp [2001:db8::1]:9 > [2001:db8::2]:443\tpermit\tedge.acl:3 (rule 2)\n");
  const Json json = sluice("classify --rules edge.acl --in in.pcap --explain-all -o json").json();
  EXPECT_EQ(json["results"][1], (Json{{"number", 2},
                                      {"packet", "udp 10.0.0.1:7 > 8.1.1.1:53"},
                                      {"action", "deny"},
                                      {"rule", 1},
                                      {"file", "edge.acl"},
                                      {"line", 2}}));
}

// What explain says of a packet's end is what becomes of it in a run.
TEST_F(CliVerdictsTest, ExplainFollowsAPacketThroughAnyGraph) {
  const auto tcp = [](const char* to) { return tcp4("10.0.0.1", to).ports(7, 80); };
  capture("in.pcap", {tcp("8.1.1.1").build(), tcp("9.1.1.1").payload(1000).build(),
                      udp4("10.0.0.1", "8.1.1.1").ports(7, 53).build(), tcp("7.1.1.1").build(),
                      tcp("8.1.1.1").ttl(1).build(), PacketBuilder::ether(0x0806).payload(28).build()});
  ASSERT_EQ(shell("\"$SLUICE\" run --acl edge.acl --routes rib --adjacencies adj --in in.pcap --icmp-errors 192.0.2.1 "
                  "--out out.pcap --print-graph > g.click")
                .code,
            0);
  const char* verdicts[] = {"leaves by out",
                            "leaves by out",
                            "dropped: acl-deny at acl_check",
                            "dropped: no-route at icmp",
                            "dropped: ttl-expired at icmp",
                            "dropped: not-ip at input"};
  for (int i = 0; i < 6; ++i) {
    const Said said = sluice(fmt::format("explain g.click --in in.pcap --number {} -o json", i + 1));
    ASSERT_EQ(said.code, 0) << said.err;
    const Json packets = said.json()["packets"];
    EXPECT_EQ(packets[0]["verdict"], verdicts[i]) << i;
    // Fragments and ICMP errors go their own ways.
    EXPECT_EQ(packets.size(), i == 1 || i == 3 || i == 4 ? 2u : 1u) << said.out;
    for (const Json& p : packets) EXPECT_FALSE(p["way"].empty());
    // Nothing leads back to who sent them.
    if (packets.size() == 2) {
      EXPECT_EQ(packets[1]["verdict"], i == 1 ? "leaves by out" : "dropped: no-route at icmp_route");
    }
  }
  const Said said = sluice("explain g.click --in in.pcap");
  EXPECT_NE(said.out.find("acl_check :: ACL"), std::string::npos);
  EXPECT_NE(said.out.find("edge.acl:3 '"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("(rule 2)"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("next hop a"), std::string::npos);
  EXPECT_NE(said.out.find("TTL 64 -> 63"), std::string::npos);
  EXPECT_FALSE(exists("out.pcap"));
  write("q.click", "FromDump(in.pcap) -> c :: Counter -> q :: Queue -> Unqueue -> Discard;\n");
  EXPECT_NE(sluice("explain q.click --in in.pcap").out.find("held by q"), std::string::npos);
  EXPECT_EQ(sluice("explain g.click --in in.pcap --acl edge.acl").code, 2);
  EXPECT_EQ(sluice("explain none.click --in in.pcap").code, 3);
}

TEST_F(CliVerdictsTest, ExplainOfAFilterJudgesByTheListAlone) {
  capture("in.pcap", {udp4("127.0.0.1", "224.0.0.5").ports(7, 80).ttl(0).bad_ip_checksum().build(),
                      PacketBuilder::ether(0x0806).payload(28).build()});
  const Json ip = sluice("explain --acl edge.acl --in in.pcap -o json").json();
  EXPECT_EQ(ip["acl"]["match"]["rule"], 2);
  EXPECT_EQ(ip["verdict"]["forwarded"], true);
  const Json arp = sluice("explain --acl edge.acl --in in.pcap --number 2 -o json").json();
  EXPECT_EQ(arp["acl"]["match"], nullptr);
  EXPECT_EQ(arp["verdict"]["reason"], "acl-no-match");
}

}  // namespace
}  // namespace sluice
