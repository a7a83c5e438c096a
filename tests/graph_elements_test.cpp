// Elements that only an executor can drive: sources, sinks, Tee, Print, IPPrint, ICMPError, Idle. Each graph runs with
// one worker and with three, and must give the same bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>

#include "net/checksum.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::GraphOutcome;
using testing::TempDir;

struct Frame {
  std::vector<uint8_t> bytes;
  uint32_t wire = 0;
  uint64_t timestamp_ns = 0;
  bool operator==(const Frame&) const = default;
};

std::vector<Frame> read_capture(const std::string& path) {
  std::vector<Frame> frames;
  auto reader = CaptureReader::open(path);
  if (!reader) {
    ADD_FAILURE() << to_string(reader.error());
    return frames;
  }
  CapturedFrame frame{};
  while (true) {
    auto more = reader->next(frame);
    if (!more || !*more) return frames;
    frames.push_back({{frame.data, frame.data + frame.captured}, frame.wire_bytes, frame.timestamp_ns});
  }
}

class Graph : public ::testing::Test {
 protected:
  // Frames a millisecond apart.
  std::string capture(const std::vector<std::vector<uint8_t>>& frames, uint64_t gap_ns = 1'000'000) {
    const std::string path = dir_ / "in.pcap";
    auto writer = CaptureWriter::create(path);
    EXPECT_TRUE(writer.ok());
    uint64_t at = 1'700'000'000'000'000'000ull;
    for (const auto& f : frames) {
      const auto n = static_cast<uint32_t>(f.size());
      EXPECT_TRUE(writer->append(FrameHeader{n, n, at}, f.data()));
      at += gap_ns;
    }
    EXPECT_TRUE(writer->commit().ok());
    return path;
  }

  // Runs the text with one worker and with three; $OUT, $OUT2 and $OUT3 are captures in the test's folder.
  GraphOutcome run(std::string text) {
    text = testing::with_outputs(dir_, std::move(text));
    GraphOutcome one = testing::run_graph({.text = text, .workers = 1});
    EXPECT_TRUE(one.ok) << one.error;
    EXPECT_TRUE(one.report.conserved());
    std::vector<std::string> files;
    for (const char* name : {"OUT", "OUT2", "OUT3"}) files.push_back(testing::read_file(dir_ / name));
    const GraphOutcome three = testing::run_graph({.text = text, .workers = 3, .batch = 7});
    EXPECT_TRUE(three.ok) << three.error;
    EXPECT_TRUE(three.report.conserved());
    EXPECT_EQ(three.printed, one.printed);
    EXPECT_EQ(three.counters, one.counters);
    size_t i = 0;
    for (const char* name : {"OUT", "OUT2", "OUT3"}) EXPECT_TRUE(testing::read_file(dir_ / name) == files[i++]) << name;
    return one;
  }
  std::vector<Frame> out(const char* name = "OUT") { return read_capture(dir_ / name); }
  static uint64_t drops(const GraphOutcome& o, DropReason r) { return o.report.drops[static_cast<size_t>(r)]; }

  TempDir dir_;
};

std::vector<std::vector<uint8_t>> flows(uint32_t n) {
  std::vector<std::vector<uint8_t>> frames;
  for (uint32_t i = 0; i < n; ++i) {
    frames.push_back(udp4(fmt::format("10.0.0.{}", i % 250 + 1), "192.0.2.7")
                         .ports(static_cast<uint16_t>(i + 1), 53)
                         .payload(i % 50)
                         .build());
  }
  return frames;
}

TEST_F(Graph, FromDumpToToDumpChangesNothing) {
  const auto frames = flows(100);
  const auto o = run("FromDump(" + capture(frames) + ") -> Counter -> Null -> ToDump($OUT);");
  EXPECT_EQ(o.report.packets_in, 100u);
  const auto got = out();
  ASSERT_EQ(got.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(got[i].bytes, frames[i]);
    EXPECT_EQ(got[i].timestamp_ns, 1'700'000'000'000'000'000ull + i * 1'000'000);
  }
}

TEST_F(Graph, FromDumpSkipsAndEnds) {
  const auto frames = flows(20);
  run("FromDump(" + capture(frames) + ", SKIP 3, LIMIT 5) -> ToDump($OUT, SNAPLEN 30);");
  const auto got = out();
  ASSERT_EQ(got.size(), 5u);
  EXPECT_EQ(got[0].bytes, std::vector<uint8_t>(frames[3].begin(), frames[3].begin() + 30));
  EXPECT_EQ(got[0].wire, frames[3].size());
}

TEST_F(Graph, FromMemoryPlaysAgainAndAgain) {
  const auto frames = flows(4);
  const auto o =
      run("FromMemory(" + capture(frames) + ", LIMIT 10) -> t :: Tee; t[0] -> ToMemory; t[1] -> ToDump($OUT);");
  EXPECT_EQ(o.report.packets_in, 10u);
  EXPECT_EQ(o.report.packets_out, 20u);
  EXPECT_EQ(out()[9].bytes, frames[1]);
  EXPECT_EQ(run("FromMemory(" + capture(frames) + ") -> ToMemory;").report.packets_in, 4u);
}

TEST_F(Graph, InfiniteSourceMakesWhatItIsTold) {
  run("InfiniteSource(\\<01 02 03>, LIMIT 3, BURST 2) -> ToDump($OUT); InfiniteSource(DATA \"abcdef\", LIMIT 2, LENGTH "
      "4) -> ToDump($OUT2);"
      "InfiniteSource(ACTIVE false) -> ToDump($OUT3);");
  const auto a = out();
  ASSERT_EQ(a.size(), 3u);
  EXPECT_EQ(a[2].bytes, (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(a[2].timestamp_ns, 2000u);
  EXPECT_EQ(out("OUT2")[1].bytes, (std::vector<uint8_t>{'a', 'b', 'c', 'd'}));
  EXPECT_TRUE(out("OUT3").empty());
}

TEST_F(Graph, TeeSendsTheSameToEveryOutput) {
  // Larger than a batch of copies holds, so that more than one is made.
  std::vector<std::vector<uint8_t>> frames;
  for (int i = 0; i < 300; ++i) {
    frames.push_back(udp4(fmt::format("10.0.{}.1", i % 200), "192.0.2.7").payload(i % 3 == 0 ? 9000 : 100).build());
  }
  const auto o = run("FromDump(" + capture(frames) +
                     ") -> t :: Tee(3); t[0] -> EtherMirror -> ToDump($OUT); t[1] -> Strip(14) -> ToDump($OUT2); t[2] "
                     "-> ToDump($OUT3);");
  EXPECT_EQ(o.report.generated, 600u);
  EXPECT_EQ(o.report.packets_out, 900u);
  EXPECT_EQ(o.report.dropped, 0u);
  const auto mirrored = out("OUT");
  const auto stripped = out("OUT2");
  const auto same = out("OUT3");
  ASSERT_EQ(mirrored.size(), 300u);
  ASSERT_EQ(stripped.size(), 300u);
  ASSERT_EQ(same.size(), 300u);
  for (size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(same[i].bytes, frames[i]);
    EXPECT_EQ(stripped[i].bytes, std::vector<uint8_t>(frames[i].begin() + 14, frames[i].end()));
    EXPECT_EQ(std::vector<uint8_t>(mirrored[i].bytes.begin(), mirrored[i].bytes.begin() + 6),
              std::vector<uint8_t>(frames[i].begin() + 6, frames[i].begin() + 12));
  }
}

TEST_F(Graph, CrcsSurviveThePorts) {
  const auto frames = flows(50);
  run("FromDump(" + capture(frames) +
      ") -> SetCRC32(MODE fcs) -> t :: Tee; t[0] -> ToDump($OUT); t[1] -> CheckCRC32(MODE fcs) -> ToDump($OUT2);");
  EXPECT_EQ(out("OUT")[7].bytes.size(), frames[7].size() + 4);
  EXPECT_EQ(out("OUT2")[7].bytes, frames[7]);
}

TEST_F(Graph, PrintWritesOneLineAPacketInOrder) {
  EXPECT_EQ(run("InfiniteSource(\"aaaa\", LIMIT 1) -> Print(ok) -> Print -> Print(CONTENTS none) -> Print(t, TIMESTAMP "
                "true, CONTENTS ascii) -> "
                "Print(off, ACTIVE false) -> Discard;")
                .printed,
            "ok:    4 | 61616161\n   4 | 61616161\n   4\nt: 0.000000:    4 | aaaa\n");
  EXPECT_EQ(run("InfiniteSource(\\<00 01 02 03 04 05 06 07 08>, LIMIT 1) -> Print(all, -1) -> Print(six, 6) -> "
                "Print(NBYTES 2) -> Discard;")
                .printed,
            "all:    9 | 00010203 04050607 08\nsix:    9 | 00010203 0405\n   9 | 0001\n");
  const auto o = run("FromDump(" + capture(flows(40)) + ") -> Print(p, 0) -> Discard;");
  EXPECT_EQ(std::count(o.printed.begin(), o.printed.end(), '\n'), 40);
  EXPECT_EQ(o.printed.substr(0, 16), "p:   42\np:   43\n");
}

TEST_F(Graph, IPPrintDescribesPackets) {
  const auto path = capture({
      udp4("10.0.0.1", "192.0.2.7").ports(1000, 53).payload(18).ttl(7).id(77).build(),
      tcp4("10.0.0.1", "192.0.2.7").ports(1, 2).tcp_flags(0x12).sequence(100, 200).payload(0).build(),
      icmp4("10.0.0.1", "192.0.2.7").icmp(8, 0, 0x00050009).build(),
      icmp4("10.0.0.1", "192.0.2.7").icmp(3, 1).build(),
      udp4("10.0.0.1", "192.0.2.7").fragment(1480, true, 0).payload(16).build(),
      ip4("10.0.0.1", "192.0.2.7", 50).build(),
      udp6("2001:db8::1", "2001:db8::2").ports(1000, 53).payload(2).build(),
  });
  const auto o =
      run("FromDump(" + path +
          ") -> MarkIPHeader(14) -> c :: Classifier(12/0800, -); c[0] -> IPPrint(x, TIMESTAMP false) -> Discard; "
          "c[1] -> MarkIP6Header(14) -> IPPrint(TIMESTAMP false) -> Discard;");
  EXPECT_EQ(o.printed,
            "x: 10.0.0.1.1000 > 192.0.2.7.53: udp 26\n"
            "x: 10.0.0.1.1 > 192.0.2.7.2: S 100:101(1,54,40) ack 200 win 65535\n"
            "x: 10.0.0.1 > 192.0.2.7: icmp: echo request (5, 9)\n"
            "x: 10.0.0.1 > 192.0.2.7: icmp: type 3\n"
            "x: 10.0.0.1 > 192.0.2.7: udp (frag 0:16@1480+)\n"
            "x: 10.0.0.1 > 192.0.2.7: ip-proto-50\n"
            "2001:db8::1.1000 > 2001:db8::2.53: udp 10\n");
  EXPECT_EQ(run("FromDump(" + path +
                ", LIMIT 1) -> Paint(3) -> IPInput -> IPPrint(TIMESTAMP false, ID true, TTL true, PAINT true, LENGTH "
                "true, TOS true, CONTENTS "
                "hex, MAXLENGTH 26) -> Discard;")
                .printed,
            "id 77 paint 3 ttl 7 tos 0 length 46 10.0.0.1.1000 > 192.0.2.7.53: udp 26\n"
            "  02000000 00020200 00000001 08004500 002e004d 00000711\n  e76a\n");
  const std::string stamped = run("FromDump(" + path + ", LIMIT 1) -> IPInput -> IPPrint -> Discard;").printed;
  EXPECT_TRUE(std::regex_match(stamped, std::regex("[0-9]+\\.[0-9]{6}: 10\\.0\\.0\\.1\\.1000 > .*: udp 26\n")))
      << stamped;
}

TEST_F(Graph, IPPrintReadsNoByteThatIsNotThere) {
  std::vector<std::vector<uint8_t>> frames;
  const auto whole = tcp4("10.0.0.1", "192.0.2.7").ports(1, 2).payload(10).build();
  for (size_t n = 0; n <= whole.size(); ++n)
    frames.emplace_back(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
  frames.erase(frames.begin());
  const auto o = run("FromDump(" + capture(frames) + ") -> MarkIPHeader(14) -> IPPrint -> Discard;");
  EXPECT_EQ(static_cast<size_t>(std::count(o.printed.begin(), o.printed.end(), '\n')), frames.size());
}

// The text of a graph that answers everything that goes wrong.
std::string answering(const std::string& source, const std::string& options = "") {
  return source +
         " -> parse :: IPInput -> ttl :: DecIPTTL -> ToDump($OUT2);\nparse[1] -> e :: ICMPError(192.0.2.1 "
         "2001:db8::ffff" +
         options + ");\nttl[1] -> e; e -> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02) -> ToDump($OUT);\n";
}

TEST_F(Graph, ICMPErrorAnswersAnExpiredPacket) {
  const auto frame = udp4("10.0.0.1", "192.0.2.7").ports(1000, 53).ttl(1).payload(40).build();
  const auto o = run(answering("FromDump(" + capture({frame}) + ")"));
  EXPECT_EQ(o.report.generated, 1u);
  EXPECT_EQ(drops(o, DropReason::kTtlExpired), 1u);
  const auto got = out();
  ASSERT_EQ(got.size(), 1u);
  const auto& b = got[0].bytes;
  ASSERT_EQ(b.size(), 14 + 20 + 8 + frame.size() - 14);
  EXPECT_TRUE(ipv4_checksum_ok(b.data() + 14, 20));
  EXPECT_EQ(std::vector<uint8_t>(b.begin() + 26, b.begin() + 34), (std::vector<uint8_t>{192, 0, 2, 1, 10, 0, 0, 1}));
  EXPECT_EQ(b[34], 11);
  EXPECT_EQ(b[35], 0);
  EXPECT_EQ(l4_checksum(0, b.data() + 34, static_cast<uint32_t>(b.size() - 34)), 0);
  EXPECT_EQ(std::vector<uint8_t>(b.begin() + 42, b.end()), std::vector<uint8_t>(frame.begin() + 14, frame.end()));
  EXPECT_EQ(got[0].timestamp_ns, 1'700'000'000'000'000'000ull);
}

TEST_F(Graph, ICMPErrorAnswersIPv6) {
  const auto frame = udp6("2001:db8::1", "2001:db8::2").ttl(1).payload(40).build();
  run(answering("FromDump(" + capture({frame}) + ")"));
  const auto got = out();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].bytes[14] >> 4, 6);
  EXPECT_EQ(got[0].bytes[14 + 40], 3);
}

TEST_F(Graph, ICMPErrorStaysSilentWhereTheRFCsSay) {
  const auto o = run(answering("FromDump(" +
                               capture({
                                   icmp4("10.0.0.1", "192.0.2.7").icmp(3, 1).ttl(1).build(),
                                   udp4("10.0.0.1", "192.0.2.7").fragment(1480, false).ttl(1).build(),
                                   udp4("10.0.0.1", "192.0.2.7").bad_ip_checksum().build(),
                                   udp4("10.0.0.1", "224.0.0.5").ttl(1).build(),
                                   PacketBuilder::ether(0x0806).payload(28).build(),
                               }) +
                               ")"));
  EXPECT_EQ(o.report.generated, 0u);
  EXPECT_EQ(o.report.packets_in, 5u);
  EXPECT_EQ(o.report.dropped, 5u);
  EXPECT_EQ(drops(o, DropReason::kIpv4BadChecksum), 1u);
  EXPECT_EQ(drops(o, DropReason::kNotIp), 1u);
}

TEST_F(Graph, ICMPErrorsAreHeldToTheirRate) {
  std::vector<std::vector<uint8_t>> frames;
  for (int i = 0; i < 100; ++i) frames.push_back(udp4(fmt::format("10.0.0.{}", i + 1), "192.0.2.7").ttl(1).build());
  // 100 packets, 1 ms apart: 100 a second lets one in ten through, after a burst of 5.
  const auto o = run(answering("FromDump(" + capture(frames) + ")", ", RATE 100, BURST 5"));
  EXPECT_EQ(o.report.generated, 100u);
  EXPECT_EQ(o.report.packets_out, 14u);
  EXPECT_EQ(drops(o, DropReason::kIcmpRateLimited), 86u);
  EXPECT_EQ(run(answering("FromDump(" + capture(frames) + ")", ", RATE 0")).report.packets_out, 100u);
}

TEST_F(Graph, ICMPErrorCanSayWhatItIsTold) {
  const auto path = capture({udp4("10.0.0.1", "192.0.2.7").build()});
  for (const auto& [options, type, code] :
       {std::tuple{"unreachable, host", 3, 1}, {"3, 13", 3, 13}, {"timeexceeded", 11, 0}, {"TYPE 12", 12, 0}}) {
    run("FromDump(" + path + ") -> IPInput -> ICMPError(192.0.2.1, " + std::string(options) + ") -> ToDump($OUT);");
    const auto got = out();
    ASSERT_EQ(got.size(), 1u) << options;
    EXPECT_EQ(got[0].bytes[20], type) << options;
    EXPECT_EQ(got[0].bytes[21], code) << options;
  }
}

TEST_F(Graph, AnICMPErrorIsRoutedLikeAnyPacket) {
  const auto path =
      capture({udp4("10.0.0.1", "192.0.2.7").ttl(1).build(), udp4("10.0.0.9", "203.0.113.7").ttl(9).build()});
  const auto o =
      run("FromDump(" + path +
          ") -> IPInput -> rt :: RadixIPLookup(192.0.2.0/24 0, 10.0.0.0/8 1) -> ttl :: DecIPTTL -> Discard;\n"
          "rt[1] -> ToDump($OUT); ttl[1] -> ICMPError(192.0.2.1) -> rt;");
  EXPECT_EQ(o.report.packets_out, 1u);
  EXPECT_EQ(drops(o, DropReason::kNoRoute), 1u);
}

TEST_F(Graph, IdleAndDiscardEndTheRoad) {
  const auto o = run("FromDump(" + capture(flows(10)) +
                     ") -> t :: Tee; t[0] -> Idle; t[1] -> Discard; Idle -> Counter -> Discard;");
  EXPECT_EQ(drops(o, DropReason::kDiscard), 20u);
}

TEST_F(Graph, DiscardKeepsTheReasonOfAnErrorOutput) {
  const auto o = run("FromDump(" + capture({udp4("10.0.0.1", "192.0.2.7").bad_ip_checksum().build()}) +
                     ") -> i :: IPInput -> Discard; i[1] -> bad :: Discard;");
  EXPECT_EQ(drops(o, DropReason::kIpv4BadChecksum), 1u);
}

TEST_F(Graph, NoElementLosesAPacketOfAnyKind) {
  const std::string mixed = testing::write_mixed_capture(dir_ / "mixed.pcap", 500, 7);
  for (const char* element : {
           "Counter",
           "Null",
           "Paint(3)",
           "Paint(1) -> PaintSwitch",
           "Strip(14)",
           "Strip(40) -> Unstrip(20)",
           "Truncate(40)",
           "Truncate(20) -> IPInput",
           "CheckIPHeader(14) -> Truncate(20) -> SetIPDSCP(46)",
           "IPInput -> SetIPDSCP(46)",
           "EtherMirror",
           "EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:02)",
           "EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)",
           "SetCRC32",
           "SetCRC32 -> CheckCRC32",
           "CheckCRC32(MODE fcs)",
           "IPInput",
           "IPInput(MARTIANS false, SOURCE_ROUTES true)",
           "CheckIPHeader(14)",
           "CheckIPHeader2(14)",
           "CheckIP6Header(14)",
           "MarkIPHeader(14)",
           "MarkIP6Header(14)",
           "Strip(14) -> CheckIPHeader",
           "CheckIPHeader(18)",
           "MarkIPHeader(100) -> DecIPTTL",
           "IPInput -> DecIPTTL(MULTICAST false)",
           "Classifier(12/0800)",
           "Classifier(12/0800 23/11, 100/00, !12/86dd)",
           "IPInput -> IPLookup(192.0.0.0/16 0)",
           "MarkIPHeader(14) -> RadixIPLookup(192.0.1.0/24 0, 192.0.0.0/16 10.0.0.1 0)",
           "Print(x)",
           "MarkIPHeader(14) -> IPPrint(CONTENTS hex)",
           "MarkIP6Header(14) -> IPPrint(x, TTL true, ID true, CONTENTS ascii)",
           "Tee(1)",
           "MarkIPHeader(14) -> ICMPError(10.0.0.1 2001:db8::1, unreachable)",
           "IPInput -> ICMPError(10.0.0.1 2001:db8::1, 3, 4)",
       }) {
    SCOPED_TRACE(element);
    std::string text = "FromDump(" + mixed + ") -> " + element + " -> ToDump($OUT);";
    if (std::string_view(element).starts_with("Paint(1)"))
      text = "FromDump(" + mixed + ") -> Paint(1) -> p :: PaintSwitch -> Discard; p[1] -> ToDump($OUT);";
    if (std::string_view(element).starts_with("Classifier(12/0800 ")) {
      text = "FromDump(" + mixed + ") -> c :: " + element + " -> ToDump($OUT); c[1] -> Discard; c[2] -> ToDump($OUT2);";
    }
    const auto o = run(text);
    EXPECT_EQ(o.report.packets_in, 500u);
  }
}

TEST_F(Graph, AWideClassifierIsOneNodeOfItsOwn) {
  std::string text = "FromDump(" + capture(flows(200)) + ") -> c :: Classifier(";
  for (int i = 0; i < 40; ++i) text += fmt::format("29/{:02x},", i + 1);
  text += " -);\n";
  text += "d :: Print(\"\", 0) -> Discard;";
  for (int i = 0; i < 41; ++i) text += fmt::format("c[{}] -> Paint({}) -> d;", i, i);
  const auto o = run(text);
  EXPECT_EQ(drops(o, DropReason::kDiscard), 200u);
  EXPECT_NE(o.counters.find("\nd 200 "), std::string::npos) << o.counters;
}

}  // namespace
}  // namespace sluice
