// Packets that come slowly leave as they come, and captures of other link types than Ethernet.
#include <cstring>
#include <string>

#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

std::string le32(uint32_t v) {
  return {static_cast<char>(v), static_cast<char>(v >> 8), static_cast<char>(v >> 16), static_cast<char>(v >> 24)};
}

std::string pcap_header(uint32_t link) {
  return le32(0xa1b23c4d) + le32(0x00040002) + le32(0) + le32(0) + le32(262144) + le32(link);
}
std::string record(const std::string& frame, uint32_t second) {
  const auto bytes = static_cast<uint32_t>(frame.size());
  return le32(second) + le32(0) + le32(bytes) + le32(bytes) + frame;
}

// UDP from 192.0.2.`i` to 198.51.100.1 port 53, an IPv4 packet of 28 bytes with a right checksum.
std::string ipv4(uint8_t i, uint8_t ttl = 64) {
  std::string p("\x45\0\0\x1c\0\0\0\0\0\x11\0\0\xc0\0\x02\0\xc6\x33\x64\x01\x04\xd2\0\x35\0\x08\0\0", 28);
  p[8] = static_cast<char>(ttl);
  p[15] = static_cast<char>(i);
  uint32_t sum = 0;
  for (size_t at = 0; at < 20; at += 2)
    sum += static_cast<uint32_t>(static_cast<uint8_t>(p[at]) << 8 | static_cast<uint8_t>(p[at + 1]));
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  p[10] = static_cast<char>(~sum >> 8);
  p[11] = static_cast<char>(~sum);
  return p;
}
std::string ipv6(uint8_t i) {
  std::string p("\x60\0\0\0\0\x08\x11\x40", 8);
  p += std::string("\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0", 15) + static_cast<char>(i);
  p += std::string("\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x99", 16);
  return p + std::string("\x04\xd2\0\x35\0\x08\x12\x34", 8);
}
std::string ethernet(const std::string& packet) {
  return std::string("\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0", 14) + packet;
}

// Every read has a limit of time that only a failure meets.
constexpr const char* kTake = "take() { timeout 60 head -c \"$1\" <&4; }\n";

class CliStreamTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("all.acl", "permit ip from any to any\n");
    write("filter.click", "FromDump(-) -> IPInput -> Counter -> ToDump(-);");
    write("head", pcap_header(1));
    for (uint8_t i = 1; i <= 3; ++i) write("p" + std::to_string(i), record(ethernet(ipv4(i)), i));
  }
  // What comes out after each of the three packets that go in, one after the other.
  Said drip(const std::string& command) {
    return shell(std::string("set -e; mkfifo in out; ") + kTake + "( exec <in >out; " + command +
                 " ) & run=$!; exec 3>in 4<out\n"
                 "cat head >&3; take 24 >got\n"
                 "for i in 1 2 3; do cat p$i >&3; take 58 >>got; done\n"
                 "exec 3>&-; take 1 >>got; wait $run; cat head p1 p2 p3 | cmp - got && echo same");
  }
};

// Every packet is out before the next one comes: whoever reads waits for nothing else.
TEST_F(CliStreamTest, PacketsLeaveAsTheyCome) {
  for (const char* command : {"$SLUICE run -q filter.click", "$SLUICE run -q filter.click --workers 2",
                              "$SLUICE run -q filter.click --packet-scheduler",
                              "$SLUICE run -q filter.click --device emu --mode persistent"}) {
    const Said said = drip(command);
    EXPECT_EQ(said.code, 0) << command << said.err;
    EXPECT_NE(said.out.find("same"), std::string::npos) << command << said.out << said.err;
    (void)shell("rm -f in out got");
  }
}

// What people put before and behind it: each packet's line is there before the next packet comes.
TEST_F(CliStreamTest, TcpdumpThroughToTshark) {
  if (shell("command -v tcpdump && command -v tshark").code != 0) GTEST_SKIP() << "tcpdump and tshark are not here";
  const Said said = shell(
      "set -e; mkfifo in lines\n"
      "( exec <in >lines; tcpdump -U -r - -w - 2>/dev/null | $SLUICE run -q --acl all.acl --in - --out - | "
      "tshark -l -n -r - -T fields -e ip.src 2>/dev/null ) & run=$!\n"
      "exec 3>in 4<lines; cat head >&3\n"
      "for i in 1 2 3; do cat p$i >&3; read -t 60 -u 4 line; echo \"$line\"; done\n"
      "exec 3>&-; wait $run");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "192.0.2.1\n192.0.2.2\n192.0.2.3\n") << said.err;
}

// A writer that flushes in the middle of a record, as block-buffered programs do, holds back that packet alone.
TEST_F(CliStreamTest, HalfAPacketHoldsNoOtherBack) {
  const Said said = shell(std::string("set -e; mkfifo in out; ") + kTake +
                          "( exec <in >out; $SLUICE run -q filter.click ) & run=$!; exec 3>in 4<out\n"
                          "cat head p1 >all; head -c 20 p2 >>all; cat all >&3; take 82 >got\n"
                          "tail -c +21 p2 >&3; take 58 >>got\n"
                          "exec 3>&-; wait $run; cat head p1 p2 | cmp - got && echo same");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("same"), std::string::npos) << said.out << said.err;
}

// Frames of a file stay where they are read, as close as they lie there; those of a pipe are copied apart. Both leave
// as the same bytes: tags are pushed, padding is cut off, TTLs are counted down, errors are made of what is refused.
TEST_F(CliStreamTest, AFileAndAPipeGiveTheSame) {
  const auto tagged = [](const std::string& frame) {
    return frame.substr(0, 12) + std::string("\x81\0\0\x07", 4) + frame.substr(12);
  };
  std::string many = pcap_header(1);
  for (uint32_t i = 0; i < 3000; ++i) {
    const auto b = static_cast<uint8_t>(i);
    std::string frame = ethernet(ipv4(b, i % 7 == 0 ? 1 : 64));
    if (i % 3 == 1) frame = ethernet(ipv6(b)).replace(12, 2, "\x86\xdd", 2);
    if (i % 4 == 2) frame = tagged(frame);
    if (i % 8 == 6) frame = tagged(frame);
    if (i % 5 == 0) frame += std::string(i % 23, '\x55');  // padding
    if (i % 11 == 0) frame.resize(i % frame.size());       // cut off
    if (i % 97 == 0) frame += std::string(3000, 'x');
    many += record(frame, i);
  }
  write("many.pcap", many);
  write("routes.txt", "198.51.100.0/24 via 10.0.0.1\n2001:db8::/32 via 10.0.0.2\n");
  write("adj.txt",
        "10.0.0.1 02:00:00:00:00:11 02:00:00:00:00:10 1 vlan 77\n"
        "10.0.0.2 02:00:00:00:00:22 02:00:00:00:00:10 2\n");
  for (const char* options : {"--routes routes.txt --adjacencies adj.txt", "--acl all.acl", "",
                              "--routes routes.txt --adjacencies adj.txt --workers 2 --batch 32",
                              "--routes routes.txt --adjacencies adj.txt --device emu", "graph"}) {
    const bool graph = options == std::string("graph");
    if (graph) {
      write("g.click",
            "FromDump(IN) -> Strip(14) -> CheckIPHeader -> EtherEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2) "
            "-> EtherEncap(0x88b5, 2:0:0:0:0:3, 2:0:0:0:0:4) -> ToDump(OUT);");
    }
    const auto run = [&](const std::string& in, const std::string& out) {
      if (!graph) return "$SLUICE run -q " + std::string(options) + " --in " + in + " --out " + out + " -o json";
      return "sed 's,IN,\"" + in + "\",; s,OUT,\"" + out + "\",' g.click >now.click; $SLUICE run -q now.click -o json";
    };
    const Said said = shell("set -e; { " + run("many.pcap", "file.pcap") + "; } >file.json; cat many.pcap | { " +
                            run("-", "pipe.pcap") + "; } >pipe.json; cmp file.pcap pipe.pcap && echo same");
    EXPECT_EQ(said.code, 0) << options << said.out << said.err;
    EXPECT_NE(said.out.find("same"), std::string::npos) << options;
    (void)shell("rm -f file.pcap pipe.pcap");
  }
}

TEST_F(CliStreamTest, ALimitIsExact) {
  std::string many = pcap_header(1);
  for (uint32_t i = 0; i < 1000; ++i) many += record(ethernet(ipv4(static_cast<uint8_t>(i))), i);
  write("many.pcap", many);
  for (const uint64_t limit : {1, 10, 256, 300}) {
    const Said said = sluice("run --acl all.acl --in many.pcap --limit " + std::to_string(limit) + " -o json");
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.json()["packets_in"].get<uint64_t>(), limit);
  }
}

struct LinkKind {
  uint32_t type;
  std::string own4, own6;  // headers of IPv4 and IPv6 packets
};

std::vector<LinkKind> links() {
  const std::string address("\x02\0\0\0\0\x07", 6);
  return {
      {0, std::string("\x02\0\0\0", 4), std::string("\x1e\0\0\0", 4)},
      {0, std::string("\0\0\0\x02", 4), std::string("\0\0\0\x1c", 4)},
      {108, std::string("\0\0\0\x02", 4), std::string("\0\0\0\x18", 4)},
      {101, "", ""},
      {9, std::string("\xff\x03\0\x21", 4), std::string("\xff\x03\0\x57", 4)},
      {9, std::string("\0\x21", 2), "\x57"},
      {50, std::string("\xff\x03\0\x21", 4), std::string("\xff\x03\0\x57", 4)},
      {113, std::string("\0\0\0\x01\0\x06", 6) + address + std::string("\0\0\x08\0", 4),
       std::string("\0\x01\0\x01\0\x06", 6) + address + std::string("\0\0\x86\xdd", 4)},
      {113, std::string("\0\x04\x03\x04\0\0\0\0\0\0\0\0\0\0\x08\0", 16),
       std::string("\0\x02\x01\x19\0\x08\1\2\3\4\5\6\7\x08\x86\xdd", 16)},
      {276, std::string("\x08\0\0\0\0\0\0\x05\0\x01\x04\x06", 12) + address + std::string("\0\0", 2),
       std::string("\x86\xdd\0\0\0\x01\x02\x03\x03\x04\x01\0\0\0\0\0\0\0\0\0", 20)},
  };
}

std::string capture_of(const LinkKind& link) {
  std::string text = pcap_header(link.type);
  for (uint8_t i = 1; i <= 40; ++i) text += record(i % 2 != 0 ? link.own4 + ipv4(i) : link.own6 + ipv6(i), i);
  return text;
}

// Where no element writes link-layer headers, a capture comes out as it went in.
TEST_F(CliStreamTest, OtherLinkTypesKeepTheirHeaders) {
  write("pass.click", "FromDump(in.pcap) -> IPInput(LINK_BROADCAST true) -> ToDump(out.pcap);");
  for (const LinkKind& link : links()) {
    write("in.pcap", capture_of(link));
    for (const char* way : {"", " --workers 2", " --packet-scheduler", " --priorities", " --device emu"}) {
      const Said said = sluice(std::string("run pass.click -o json") + way);
      ASSERT_EQ(said.code, 0) << link.type << way << said.err;
      EXPECT_EQ(said.json()["packets_out"].get<uint64_t>(), 40u) << link.type << way << said.out;
      EXPECT_EQ(read("out.pcap") == read("in.pcap"), true) << link.type << way;
    }
  }
}

std::string pcapng_block(uint32_t type, const std::string& body) {
  const std::string padded = body + std::string((4 - body.size() % 4) % 4, '\0');
  const auto length = le32(static_cast<uint32_t>(padded.size() + 12));
  return le32(type) + length + padded + length;
}
std::string pcapng_section() {
  return pcapng_block(0x0a0d0d0a, le32(0x1a2b3c4d) + le32(1) + le32(~0u) + le32(~0u));
}
std::string pcapng_interface(uint32_t link, uint32_t snaplen) {
  return pcapng_block(1, le32(link) + le32(snaplen));
}
std::string pcapng_packet(uint32_t interface, const std::string& frame, uint32_t second) {
  const uint64_t us = uint64_t{second} * 1'000'000;
  const auto bytes = le32(static_cast<uint32_t>(frame.size()));
  return pcapng_block(6, le32(interface) + le32(static_cast<uint32_t>(us >> 32)) + le32(static_cast<uint32_t>(us)) +
                             bytes + bytes + frame);
}

// A merged capture is read as its parts are: with one link type it keeps the headers, with several Ethernet leaves.
TEST_F(CliStreamTest, InterfacesOfACaptureMayDiffer) {
  write("pass.click", "FromDump(in.pcapng) -> IPInput(LINK_BROADCAST true) -> ToDump(out.pcap);");
  for (const LinkKind& link : links()) {
    std::string same = pcapng_section() + pcapng_interface(link.type, 20), mixed = same;
    for (uint8_t i = 1; i <= 40; ++i) {
      const std::string frame = i % 2 != 0 ? link.own4 + ipv4(i) : link.own6 + ipv6(i);
      same += pcapng_packet(0, frame, i);
      mixed += pcapng_packet(0, frame, i);
      if (i == 20) {
        same += pcapng_section() + pcapng_interface(link.type, 0);
        mixed += pcapng_interface(1, 96);
      }
      if (i > 20) mixed += pcapng_packet(1, ethernet(ipv4(i)), i);
    }
    write("in.pcapng", same);
    ASSERT_EQ(sluice("run -q pass.click").code, 0) << link.type;
    EXPECT_EQ(read("out.pcap") == capture_of(link), true) << link.type;

    write("in.pcapng", mixed);
    std::string wanted;
    for (const char* way : {"", " --workers 2", " --packet-scheduler", " --priorities", " --device emu"}) {
      const Said said = sluice(std::string("run pass.click -o json") + way);
      ASSERT_EQ(said.code, 0) << link.type << way << said.err;
      EXPECT_EQ(said.json()["packets_out"].get<uint64_t>(), 60u) << link.type << way << said.out;
      const std::string out = read("out.pcap");
      ASSERT_GE(out.size(), 24u);
      EXPECT_EQ(out[20], 1) << link.type << way;
      if (wanted.empty()) wanted = out;
      EXPECT_EQ(out == wanted, true) << link.type << way;
    }
    const Said sent = sluice("send in.pcapng --out lo");
    EXPECT_EQ(sent.code, link.type == 1 ? sent.code : 1) << sent.err;
    EXPECT_NE(sent.err.find(link.type == 1 ? "" : "have no Ethernet headers"), std::string::npos) << sent.err;
  }
}

// Where an element writes them, what leaves is Ethernet.
TEST_F(CliStreamTest, WritesRewrittenPacketsAsEthernet) {
  write("rib", "0.0.0.0/0 a\n::/0 a\n");
  write("adj", "a 02:00:00:00:00:0a 02:00:00:00:00:01 1\n");
  std::string wanted;
  for (const LinkKind& link : links()) {
    write("in.pcap", capture_of(link));
    const Said said = sluice("run --routes rib --adjacencies adj --in in.pcap --out out.pcap -o json");
    ASSERT_EQ(said.code, 0) << link.type << said.err;
    EXPECT_EQ(said.json()["packets_out"].get<uint64_t>(), link.type == 113 || link.type == 276 ? 20u : 40u)
        << link.type << said.out;
    const std::string out = read("out.pcap");
    ASSERT_GE(out.size(), 24u);
    EXPECT_EQ(out[20], 1) << link.type;
    if (link.type == 101) wanted = out;
    if (link.type < 101 && !wanted.empty()) {
      EXPECT_EQ(out == wanted, true) << link.type;
    }
  }
}

// Every command that reads packets sees the same packets.
TEST_F(CliStreamTest, CommandsReadOtherLinkTypes) {
  write("some.acl", "deny udp from 192.0.2.1 to any\npermit ip from any to any\n");
  std::string wanted;
  for (const LinkKind& link : links()) {
    write("in.pcap", capture_of(link));
    const Said said = sluice("classify --rules some.acl --in in.pcap");
    ASSERT_EQ(said.code, 0) << link.type << said.err;
    if (wanted.empty()) wanted = said.out;
    EXPECT_EQ(said.out, wanted) << link.type;
  }
}

// scapy's view of what came out is that of what went in.
TEST_F(CliStreamTest, ScapyReadsTheSame) {
  write("pass.click", "FromDump(in.pcap) -> IPInput(LINK_BROADCAST true) -> ToDump(out.pcap);");
  write("same.py",
        "import sys\n"
        "try:\n  from scapy.all import rdpcap, IP, IPv6\n"
        "except ImportError:\n  sys.exit(77)\n"
        "a, b = rdpcap('in.pcap'), rdpcap('out.pcap')\n"
        "assert len(a) == len(b) == 40, (len(a), len(b))\n"
        "for x, y in zip(a, b):\n"
        "  assert type(x) is type(y) and bytes(x) == bytes(y), (x.summary(), y.summary())\n"
        "  assert IP in x or IPv6 in x or x.name == 'Loopback', x.summary()\n");
  for (const LinkKind& link : links()) {
    write("in.pcap", capture_of(link));
    ASSERT_EQ(sluice("run -q pass.click").code, 0) << link.type;
    const Said said = shell("/usr/bin/python3 same.py");
    if (said.code == 77) GTEST_SKIP() << "scapy is not here";
    // scapy has no dissection of compressed PPP protocol numbers.
    if (link.type == 9 && link.own6.size() == 1) continue;
    EXPECT_EQ(said.code, 0) << link.type << said.err;
  }
}

// A capture on the sending host shows packets before the NIC cut them: their IP length is 0.
TEST_F(CliStreamTest, LengthsThatWereLeftToTheNicAreTheFrames) {
  const auto left = [](std::string frame) {
    frame[16] = frame[17] = 0;  // the total length; the checksum is wrong then
    return frame;
  };
  std::string whole = pcap_header(1), offloaded = whole;
  for (uint8_t i = 1; i <= 100; ++i) {
    const std::string frame = ethernet(ipv4(i));
    whole += record(frame, i);
    offloaded += record(i % 3 == 0 ? frame : left(frame), i);
  }
  write("in.pcap", offloaded);
  write("strict.click", "FromDump(in.pcap) -> IPInput(CHECKSUM false) -> ToDump(out.pcap);");
  for (const char* graph : {"strict.click", "--acl all.acl --in in.pcap --out out.pcap"}) {
    const Said without = sluice(std::string("run -o json ") + graph);
    ASSERT_EQ(without.code, 0) << without.err;
    EXPECT_EQ(without.json()["packets_out"], 33);
    const auto drops = without.json()["drops"];
    EXPECT_EQ(drops[graph[0] == 's' ? "ipv4-bad-total-length" : "acl-no-match"], 67) << without.out;
  }
  for (const char* way : {"", " --workers 2", " --batch 7", " --priorities", " --device emu"}) {
    const Said said = sluice(std::string("run --acl all.acl --in in.pcap --tso --out out.pcap -o json") + way);
    ASSERT_EQ(said.code, 0) << way << said.err;
    EXPECT_EQ(read("out.pcap") == whole, true) << way << said.out;
  }
  EXPECT_EQ(sluice("run --acl all.acl --in in.pcap --tso --repeat --limit 1000 -o json").json()["packets_out"], 1000);
  for (const char* source : {"FromDump(in.pcap, TSO true)", "FromMemory(in.pcap, TSO true)"}) {
    write("tso.click", std::string(source) + " -> IPInput -> Queue(200) -> Unqueue -> ToDump(out.pcap);");
    ASSERT_EQ(sluice("run -q tso.click").code, 0) << source;
    EXPECT_EQ(read("out.pcap") == whole, true) << source;
  }
  EXPECT_EQ(sluice("run tso.click --tso").code, 2);
  // The reason of the drop names the option.
  EXPECT_NE(sluice("elements -o json").out.find("0 by TSO: run --tso"), std::string::npos);
}

TEST_F(CliStreamTest, OthersAreNamedByTheirNumber) {
  write("in.pcap", pcap_header(105) + record(ethernet(ipv4(1)), 1));
  const Said said = sluice("classify --rules all.acl --in in.pcap");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("link type 105"), std::string::npos) << said.err;
}

}  // namespace
}  // namespace sluice
