// What RFCs ask of a router, section by section: packets in, packets out of the whole standard graph, on the CPU by the
// fast and the ordinary path, and on the emulated device. docs/reference/rfc.md lists these tests, and is held to them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "control/standard_graph.h"
#include "net/checksum.h"
#include "net/ipv4.h"
#include "net/ipv6.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/device_ways.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;
using enum DropReason;

constexpr uint64_t kMidnight = 1'699'920'000'000'000'000ull;  // 2023-11-14T00:00:00Z
constexpr uint64_t kNoon = kMidnight + 43'200'000'000'000ull;

const MacAddress kNeighbour{{2, 0, 0, 0, 0, 0x0a}};
const MacAddress kOwn{{2, 0, 0, 0, 0, 1}};

// From hosts behind this router to where the tables of the tests lead: `wide` has any MTU, `narrow` 600 (IPv6: 1300),
// `nobody` has a next hop without a neighbour, `hole` is a blackhole.
constexpr const char *kHost = "10.0.0.1", *kWide = "198.51.100.7", *kNarrow = "203.0.113.7", *kNobody = "198.18.0.7",
                     *kHole = "198.19.0.7", *kUnrouted = "192.88.99.1", *kRouter = "192.0.2.1";
constexpr const char *kHost6 = "2001:db8::1", *kWide6 = "2001:db8:1::7", *kNarrow6 = "2001:db8:2::7",
                     *kNobody6 = "2001:db8:3::7", *kUnrouted6 = "2001:db9::7", *kRouter6 = "2001:db8::ff";

PacketBuilder to(const char* destination) {
  return udp4(kHost, destination).payload(30);
}
PacketBuilder to6(const char* destination) {
  return udp6(kHost6, destination).payload(30);
}
// The packet as it leaves.
Bytes sent(PacketBuilder packet) {
  return packet.macs(kNeighbour, kOwn).build();
}

Bytes network(const Bytes& frame) {
  return Bytes(frame.begin() + 14, frame.end());
}

struct RfcOutcome {
  std::vector<Bytes> out;
  RunReport report;
  uint64_t dropped(DropReason why) const { return report.drops[static_cast<size_t>(why)]; }
};

class RfcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::write_file(dir_ / "rules", "deny udp from any to any port 666\npermit ip from any to any\n");
    testing::write_file(
        dir_ / "rib",
        "10.0.0.0/8 back\n198.51.100.0/24 wide\n198.51.100.255/32 hole\n203.0.113.0/24 narrow\n"
        "198.18.0.0/16 nobody\n198.19.0.0/16 hole\n255.0.0.0/8 wide\n224.0.0.0/4 wide\n127.0.0.0/8 wide\n"
        "0.0.0.0/8 wide\n169.254.0.0/16 wide\n240.0.0.0/5 wide\n"
        "2001:db8::/48 back\n2001:db8:1::/48 wide\n2001:db8:2::/48 narrow6\n2001:db8:3::/48 nobody\n"
        "ff00::/8 wide\nfe80::/10 wide\n::/127 wide\n");
    std::string neighbours = "hole blackhole\n";
    for (const char* hop : {"back", "wide", "narrow", "narrow6"}) {
      neighbours += fmt::format("{} 02:00:00:00:00:0a 02:00:00:00:00:01 0{}\n", hop,
                                std::string_view(hop) == "narrow"    ? " mtu 600"
                                : std::string_view(hop) == "narrow6" ? " mtu 1300"
                                                                     : "");
    }
    testing::write_file(dir_ / "adj", neighbours);
  }

  // The frames `gap_ns` apart through the standard graph, every way; `edit` may change its text.
  RfcOutcome forward(const std::vector<Bytes>& frames, uint64_t gap_ns = 1'000'000'000,
                     const std::function<void(std::string&)>& edit = {}) {
    auto writer = CaptureWriter::create(dir_ / "in.pcap");
    uint64_t at = kNoon;
    for (const Bytes& f : frames) {
      const auto n = static_cast<uint32_t>(f.size());
      EXPECT_TRUE(writer->append(FrameHeader{n, n, at}, f.data()));
      at += gap_ns;
    }
    EXPECT_TRUE(writer->commit().ok());
    StandardGraph g;
    g.acl = dir_ / "rules";
    g.acl_algorithm = "linear";
    g.routes = {dir_ / "rib"};
    g.route_algorithm = g.route_algorithm6 = "trie";
    g.adjacencies = {dir_ / "adj"};
    g.in = dir_ / "in.pcap";
    g.out = dir_ / "OUT";
    g.icmp_errors = g.icmp_for_denied = true;
    g.icmp_sources = {kRouter, kRouter6};
    std::string text = *standard_graph_text(g);
    if (edit) edit(text);
    using testing::Way;
    const testing::DeviceOutcome plain = testing::run_way(dir_, text, nullptr, {});
    EXPECT_TRUE(plain.outcome.ok) << plain.outcome.error;
    EXPECT_TRUE(plain.outcome.report.conserved());
    testing::expect_equal(plain, testing::run_way(dir_, text, nullptr, {}, [](testing::GraphRun& run) {
                            run.fast_path = true;
                            run.workers = 3;
                            run.batch = 7;
                          }));
    const Way by_keys{DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kAuto, 1, 256};
    const Way by_frames{DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kFrame, 1, 256};
    for (const Way* way : {&by_keys, &by_frames}) {
      testing::expect_equal(plain, testing::run_way(dir_, text, way, testing::devices_of("emu", 1)));
    }
    RfcOutcome o;
    o.report = plain.outcome.report;
    testing::write_file(dir_ / "plain.pcap", plain.bytes);
    auto reader = CaptureReader::open(dir_ / "plain.pcap");
    CapturedFrame frame{};
    while (reader.ok()) {
      auto more = reader->next(frame);
      if (!more || !*more) break;
      o.out.emplace_back(frame.data, frame.data + frame.captured);
    }
    return o;
  }
  RfcOutcome forward(const PacketBuilder& packet) { return forward({packet.build()}); }

  // One packet that leaves as `as`.
  void passes(const PacketBuilder& packet, const Bytes& as) {
    const RfcOutcome o = forward(packet);
    ASSERT_EQ(o.out.size(), 1u);
    EXPECT_EQ(o.out[0], as);
    EXPECT_EQ(o.report.dropped, 0u);
  }
  // Packets that are dropped, each for the reason, and about which nothing is said.
  void vanishes(const std::vector<PacketBuilder>& packets, DropReason why) {
    std::vector<Bytes> frames;
    for (const PacketBuilder& p : packets) frames.push_back(p.build());
    const RfcOutcome o = forward(frames);
    EXPECT_TRUE(o.out.empty());
    EXPECT_EQ(o.dropped(why), frames.size()) << to_string(why);
    EXPECT_EQ(o.report.generated, 0u);
  }
  // One packet that is dropped for the reason; the answer, from the network header on.
  Bytes answer(const PacketBuilder& packet, DropReason why) { return answer(packet.build(), why); }
  Bytes answer(const Bytes& frame, DropReason why) {
    const RfcOutcome o = forward({frame});
    EXPECT_EQ(o.dropped(why), 1u) << to_string(why);
    EXPECT_EQ(o.out.size(), 1u);
    if (o.out.size() != 1) return Bytes(200);
    EXPECT_EQ(Bytes(o.out[0].begin(), o.out[0].begin() + 6), Bytes(kNeighbour.bytes, kNeighbour.bytes + 6));
    return network(o.out[0]);
  }
  // That the answer is this error about the packet, which had come with `frame`.
  void is_error(const Bytes& error, const Bytes& frame, uint8_t type, uint8_t code, uint32_t rest = 0) {
    const bool v4 = frame[12] == 8;
    const size_t quote = std::min<size_t>(frame.size() - 14, v4 ? 548 : 1232);
    const Bytes quoted(frame.begin() + 14, frame.begin() + 14 + static_cast<ptrdiff_t>(quote));
    // The builder shares no code with what makes errors, but the sums.
    const PacketBuilder want = v4 ? icmp4(kRouter, kHost).dscp(48).dont_fragment() : icmp6(kRouter6, kHost6);
    EXPECT_EQ(error, PacketBuilder(want).icmp(type, code, rest).payload(quoted).no_link().build());
  }
  void expect_icmp_error(const PacketBuilder& packet, DropReason why, uint8_t type, uint8_t code, uint32_t rest = 0) {
    // RFC 1812 section 4.3.2.3: what forwarding changed before it found the error stays changed.
    const bool after_ttl = why == kTooBig || why == kBadOptions || why == kNoAdjacency;
    const Bytes quoted = after_ttl ? PacketBuilder(packet).ttl(63).build() : packet.build();
    is_error(answer(packet, why), quoted, type, code, rest);
  }

  testing::TempDir dir_;
};

class Rfc791 : public RfcTest {};
class Rfc792 : public RfcTest {};
class Rfc894 : public RfcTest {};
class Rfc1191 : public RfcTest {};
class Rfc1624 : public RfcTest {};
class Rfc1812 : public RfcTest {};
class Rfc1858 : public RfcTest {};
class Rfc2474 : public RfcTest {};
class Rfc2644 : public RfcTest {};
class Rfc3128 : public RfcTest {};
class Rfc3168 : public RfcTest {};
class Rfc3927 : public RfcTest {};
class Rfc4291 : public RfcTest {};
class Rfc4443 : public RfcTest {};
class Rfc5095 : public RfcTest {};
class Rfc6864 : public RfcTest {};
class Rfc6946 : public RfcTest {};
class Rfc7112 : public RfcTest {};
class Rfc7126 : public RfcTest {};
class Rfc8200 : public RfcTest {};

// RFC 791 ------------------------------------------------------------------------------------------------------------

// What a receiver makes of fragments that came in order.
Bytes together(const std::vector<Bytes>& frames) {
  Bytes payload;
  for (const Bytes& f : frames) {
    const uint32_t header = (f[14] & 15u) * 4;
    EXPECT_EQ((load_be16(&f[20]) & kIpv4OffsetMask) * 8u, payload.size());
    EXPECT_EQ((load_be16(&f[20]) & kIpv4MoreFragments) != 0, &f != &frames.back());
    EXPECT_EQ(load_be16(&f[16]), f.size() - 14);
    EXPECT_TRUE(ipv4_checksum_ok(&f[14], header));
    EXPECT_LE(f.size(), 614u);
    payload.insert(payload.end(), f.begin() + 14 + header, f.end());
  }
  return payload;
}

TEST_F(Rfc791, S3_2_FragmentsMakeTheDatagramAgain) {
  const Bytes frame = udp4(kHost, kNarrow).id(4711).payload(1472).build();
  const RfcOutcome o = forward({frame});
  ASSERT_EQ(o.out.size(), 3u);
  EXPECT_EQ(o.report.generated, 2u);
  EXPECT_EQ(o.report.dropped, 0u);
  EXPECT_EQ(together(o.out), Bytes(frame.begin() + 34, frame.end()));
}

TEST_F(Rfc791, S3_2_AFragmentIsCutAgain) {
  const Bytes frame = udp4(kHost, kNarrow).fragment(1480, true).payload(800).build();
  const RfcOutcome o = forward({frame});
  ASSERT_EQ(o.out.size(), 2u);
  EXPECT_EQ(load_be16(&o.out[0][20]), 1480 / 8 | kIpv4MoreFragments);
  EXPECT_EQ(load_be16(&o.out[1][20]), (1480 + 576) / 8 | kIpv4MoreFragments);
  EXPECT_EQ(o.out[0].size() + o.out[1].size(), frame.size() + 34);
}

TEST_F(Rfc791, S3_1_OptionsAreCopiedWhereTheySaySo) {
  const uint8_t options[] = {148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0};
  const RfcOutcome o = forward(udp4(kHost, kNarrow).ipv4_options(options).payload(1000));
  ASSERT_EQ(o.out.size(), 2u);
  // Record route is recorded once, before the packet is cut.
  EXPECT_EQ(Bytes(o.out[0].begin() + 34, o.out[0].begin() + 46), (Bytes{148, 4, 0, 0, 7, 7, 8, 192, 0, 2, 1, 0}));
  EXPECT_EQ(o.out[1][14], 0x46);
  EXPECT_EQ(Bytes(o.out[1].begin() + 34, o.out[1].begin() + 38), (Bytes{148, 4, 0, 0}));
}

TEST_F(Rfc791, S3_1_ASecondRecordRouteIsAnError) {
  const uint8_t options[] = {7, 7, 4, 0, 0, 0, 0, 7, 7, 4, 0, 0, 0, 0};
  expect_icmp_error(to(kWide).ipv4_options(options), kBadOptions, 12, 0, 27u << 24);
}

// RFC 792 ------------------------------------------------------------------------------------------------------------

TEST_F(Rfc792, P8_AParameterProblemPointsAtTheByte) {
  const uint8_t short_pointer[] = {1, 7, 7, 3, 0, 0, 0, 0};
  expect_icmp_error(to(kWide).ipv4_options(short_pointer), kBadOptions, 12, 0, 23u << 24);
  const uint8_t too_long[] = {68, 9, 5, 0};
  expect_icmp_error(to(kWide).ipv4_options(too_long), kBadOptions, 12, 0, 21u << 24);
}

// RFC 894 -------------------------------------------------------------------------------------------------------------

TEST_F(Rfc894, EthernetPaddingIsTrimmed) {
  const PacketBuilder small = udp4(kHost, kWide).payload(1);
  passes(PacketBuilder(small).size(60), sent(PacketBuilder(small).ttl(63)));
}

// RFC 1191 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc1191, S4_TheMtuOfTheNextHopIsTold) {
  expect_icmp_error(udp4(kHost, kNarrow).dont_fragment().payload(573), kTooBig, 3, 4, 600);
  passes(udp4(kHost, kNarrow).dont_fragment().payload(572),
         sent(udp4(kHost, kNarrow).dont_fragment().payload(572).ttl(63)));
}

// RFC 1624 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc1624, S4_TheVectorAndEveryTtl) {
  EXPECT_EQ(checksum_update(0xdd2f, 0x5555, 0x3285), 0x0000);
  std::vector<Bytes> frames;
  for (int ttl = 2; ttl < 256; ++ttl) {
    frames.push_back(to(kWide).ttl(static_cast<uint8_t>(ttl)).id(static_cast<uint16_t>(ttl * 263)).build());
  }
  const RfcOutcome o = forward(frames);
  ASSERT_EQ(o.out.size(), frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto ttl = static_cast<int>(i) + 2;
    EXPECT_EQ(o.out[i], sent(to(kWide).ttl(static_cast<uint8_t>(ttl - 1)).id(static_cast<uint16_t>(ttl * 263)))) << ttl;
  }
}

// RFC 1812 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc1812, S4_3_2_3_QuotesAsMuchAsFits576) {
  const Bytes frame = udp4(kHost, kWide).ttl(1).payload(1400).build();
  const Bytes error = answer(frame, kTtlExpired);
  EXPECT_EQ(error.size(), 576u);
  is_error(error, frame, 11, 0);
}

TEST_F(Rfc1812, S4_3_2_4_TheSourceIsTheRouters) {
  const Bytes error = answer(to(kUnrouted), kNoRoute);
  EXPECT_EQ(Bytes(error.begin() + 12, error.begin() + 16), (Bytes{192, 0, 2, 1}));
}

TEST_F(Rfc1812, S4_3_2_5_PrecedenceIsInternetworkControl) {
  EXPECT_EQ(answer(to(kWide).ttl(1).dscp(10), kTtlExpired)[1] >> 5, 6);
}

TEST_F(Rfc1812, S4_3_2_7_NeverAboutIcmpErrors) {
  for (const uint8_t type : {3, 4, 5, 11, 12})
    vanishes({icmp4(kHost, kWide).icmp(type, 0).ttl(1).payload(28)}, kTtlExpired);
  expect_icmp_error(icmp4(kHost, kWide).icmp(8, 0).ttl(1), kTtlExpired, 11, 0);  // an echo request is none
}

TEST_F(Rfc1812, S4_3_2_7_NeverAboutLaterFragments) {
  vanishes({udp4(kHost, kWide).fragment(8, true).payload(8).ttl(1)}, kTtlExpired);
  expect_icmp_error(udp4(kHost, kWide).fragment(0, true).payload(8).ttl(1), kTtlExpired, 11, 0);
}

TEST_F(Rfc1812, S4_3_2_7_NeverAboutGroupsOrBroadcasts) {
  vanishes({udp4(kHost, "224.0.0.5").ttl(1), udp4(kHost, "255.255.255.255").ttl(1)}, kMulticastDestination);
  vanishes({to(kWide).ttl(1).macs(MacAddress{{255, 255, 255, 255, 255, 255}}, kOwn)}, kLinkBroadcast);
}

TEST_F(Rfc1812, S4_3_2_7_NeverAboutInvalidHeaders) {
  vanishes({to(kWide).ttl(1).bad_ip_checksum()}, kIpv4BadChecksum);
}

TEST_F(Rfc1812, S4_3_2_7_NeverToASourceThatIsNoHost) {
  vanishes({udp4("127.0.0.1", kWide).ttl(1), udp4("224.0.0.1", kWide).ttl(1), udp4("0.0.0.0", kWide).ttl(1)},
           kMartianSource);
}

// A bucket of `burst` tokens that fills at `rate` a second; times in nanoseconds, tokens counted in nanoseconds, too.
uint64_t bucket_lets_through(uint64_t rate, uint64_t burst, const std::vector<uint64_t>& times) {
  const uint64_t cost = 1'000'000'000 / rate;
  uint64_t level = burst * cost, last = times[0], through = 0;
  for (const uint64_t t : times) {
    level = std::min(burst * cost, level + (t - last));
    last = t;
    if (level < cost) continue;
    level -= cost;
    ++through;
  }
  return through;
}

TEST_F(Rfc1812, S4_3_2_8_ErrorsAreHeldToARate) {
  for (const uint64_t gap_ns : {1u, 300'000u, 999'999u, 1'000'000u}) {
    std::vector<Bytes> frames;
    std::vector<uint64_t> times;
    for (uint64_t i = 0; i < 400; ++i) {
      frames.push_back(udp4(fmt::format("10.0.{}.{}", i / 200, i % 200 + 1), kWide).ttl(1).build());
      times.push_back(i * gap_ns);
    }
    const RfcOutcome o = forward(frames, gap_ns);
    const uint64_t want = bucket_lets_through(1000, 50, times);
    EXPECT_EQ(o.out.size(), want) << gap_ns;
    EXPECT_EQ(o.dropped(kIcmpRateLimited), 400 - want) << gap_ns;
    EXPECT_EQ(o.report.generated, 400u);
  }
}

TEST_F(Rfc1812, S5_2_1_2_TtlThenOptionsThenFragmentation) {
  const uint8_t bad[] = {7, 1};
  expect_icmp_error(udp4(kHost, kNarrow).ipv4_options(bad).ttl(1).payload(1000), kTtlExpired, 11, 0);
  expect_icmp_error(udp4(kHost, kNarrow).ipv4_options(bad).dont_fragment().payload(1000), kBadOptions, 12, 0,
                    21u << 24);
  expect_icmp_error(udp4(kHost, kNarrow).ipv4_options(bad).payload(1000), kBadOptions, 12, 0, 21u << 24);
  // Filters come before.
  expect_icmp_error(udp4(kHost, kNarrow).ports(1, 666).ttl(1), kAclDeny, 3, 13);
}

TEST_F(Rfc1812, S5_2_2_ValidityIsCheckedInOrder) {
  vanishes({to(kWide).truncate(33)}, kIpv4TooShort);
  vanishes({to(kWide).bad_ip_checksum(), to(kWide).ip_version(5).bad_ip_checksum()}, kIpv4BadChecksum);
  vanishes({to(kWide).ip_version(5), to(kWide).ip_version(5).total_length(2)}, kIpv4BadVersion);
  vanishes({to(kWide).ihl(4), to(kWide).ihl(4).total_length(2)}, kIpv4BadHeaderLength);
  vanishes({to(kWide).total_length(19)}, kIpv4BadTotalLength);
  vanishes({to(kWide).total_length(59)}, kIpv4TruncatedFrame);
}

TEST_F(Rfc1812, S5_2_6_FragmentsOnlyWithoutDf) {
  const RfcOutcome o = forward(udp4(kHost, kNarrow).payload(1000));
  EXPECT_EQ(o.out.size(), 2u);
  expect_icmp_error(udp4(kHost, kNarrow).dont_fragment().payload(1000), kTooBig, 3, 4, 600);
}

TEST_F(Rfc1812, S5_2_6_AsFewFragmentsAsPossibleInOrder) {
  const RfcOutcome o = forward(udp4(kHost, kNarrow).payload(576 * 3 - 8));
  ASSERT_EQ(o.out.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(o.out[i].size(), 14 + 20 + 576u);
    EXPECT_EQ((load_be16(&o.out[i][20]) & kIpv4OffsetMask) * 8u, 576 * i);
    EXPECT_EQ(o.out[i][22], 63);
  }
}

TEST_F(Rfc1812, S5_2_7_1_NoRouteIsNetworkUnreachable) {
  expect_icmp_error(to(kUnrouted), kNoRoute, 3, 0);
}

TEST_F(Rfc1812, S5_2_7_1_NoNeighbourIsHostUnreachable) {
  expect_icmp_error(to(kNobody), kNoAdjacency, 3, 1);
}

TEST_F(Rfc1812, S5_2_7_1_DeniedIsAdministrativelyProhibited) {
  expect_icmp_error(to(kWide).ports(1, 666), kAclDeny, 3, 13);
}

TEST_F(Rfc1812, S5_2_7_1_ABlackholeIsSilent) {
  vanishes({to(kHole)}, kRouteDrop);
}

TEST_F(Rfc1812, S5_3_1_TtlIsDecrementedByOne) {
  passes(to(kWide).ttl(64), sent(to(kWide).ttl(63)));
  passes(to(kWide).ttl(2), sent(to(kWide).ttl(1)));
}

TEST_F(Rfc1812, S5_3_1_TtlExpiredIsDroppedAndTold) {
  expect_icmp_error(to(kWide).ttl(1), kTtlExpired, 11, 0);
  expect_icmp_error(to(kWide).ttl(0), kTtlExpired, 11, 0);
}

TEST_F(Rfc1812, S5_3_1_TheRoutersOwnPacketsAreNotDecremented) {
  EXPECT_EQ(answer(to(kWide).ttl(1), kTtlExpired)[8], 64);
}

TEST_F(Rfc1812, S5_3_4_LinkBroadcastsAreNotForwarded) {
  const MacAddress all{{255, 255, 255, 255, 255, 255}};
  const MacAddress group{{1, 0, 0x5e, 0, 0, 5}};
  vanishes({to(kWide).macs(all, kOwn), to(kWide).macs(group, kOwn)}, kLinkBroadcast);
}

TEST_F(Rfc1812, S5_3_5_1_LimitedBroadcastsAreNotForwarded) {
  vanishes({to("255.255.255.255")}, kMulticastDestination);
}

TEST_F(Rfc1812, S5_3_7_MartiansAreDropped) {
  vanishes({udp4("0.1.2.3", kWide), udp4("127.0.0.1", kWide), udp4("224.1.2.3", kWide), udp4("240.0.0.1", kWide),
            udp4("255.255.255.255", kWide)},
           kMartianSource);
  vanishes({to("0.0.0.1"), to("127.0.0.1"), to("240.0.0.1"), to("255.255.255.254")}, kMartianDestination);
}

TEST_F(Rfc1812, S5_3_13_5_RecordRouteIsUpdated) {
  const uint8_t before[] = {7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0};
  const uint8_t after[] = {7, 11, 12, 9, 9, 9, 9, 192, 0, 2, 1};
  passes(to(kWide).ipv4_options(before), sent(to(kWide).ipv4_options(after).ttl(63)));
}

TEST_F(Rfc1812, S5_3_13_6_TimestampIsUpdated) {
  // Noon is 43,200,000 ms after midnight: 0x02932e00.
  const uint8_t before[] = {68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  const uint8_t after[] = {68, 12, 13, 1, 192, 0, 2, 1, 0x02, 0x93, 0x2e, 0x00};
  passes(to(kWide).ipv4_options(before), sent(to(kWide).ipv4_options(after).ttl(63)));
}

TEST_F(Rfc1812, S5_3_13_1_OtherOptionsPassUnchanged) {
  for (const Bytes& options :
       std::vector<Bytes>{{148, 4, 0, 0}, {130, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 1, 1}, {222, 4, 7, 7}}) {
    passes(to(kWide).ipv4_options(options), sent(to(kWide).ipv4_options(options).ttl(63)));
  }
}

TEST_F(Rfc1812, S5_3_13_4_SourceRoutesAreRefusedAsRfc7126Says) {
  const uint8_t loose[] = {131, 7, 4, 203, 0, 113, 7};
  const uint8_t strict[] = {137, 7, 4, 203, 0, 113, 7};
  vanishes({to(kWide).ipv4_options(loose), to(kWide).ipv4_options(strict)}, kSourceRoute);
}

// RFC 2474, RFC 3168 -------------------------------------------------------------------------------------------------

TEST_F(Rfc2474, S3_EveryCodepointPassesUnchanged) {
  std::vector<Bytes> frames;
  for (int i = 0; i < 128; ++i) {
    frames.push_back((i < 64 ? to(kWide) : to6(kWide6)).dscp(static_cast<uint8_t>(i % 64)).build());
  }
  const RfcOutcome o = forward(frames);
  ASSERT_EQ(o.out.size(), 128u);
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(o.out[static_cast<size_t>(i)],
              sent((i < 64 ? to(kWide) : to6(kWide6)).ttl(63).dscp(static_cast<uint8_t>(i % 64))));
  }
}

TEST_F(Rfc3168, S5_TheEcnBitsPassUnchangedAlsoIntoFragments) {
  for (const uint8_t ecn : {0, 1, 2, 3}) {
    passes(to(kWide).ecn(ecn), sent(to(kWide).ecn(ecn).ttl(63)));
    const RfcOutcome o = forward(udp4(kHost, kNarrow).ecn(ecn).dscp(10).payload(1000));
    ASSERT_EQ(o.out.size(), 2u);
    for (const Bytes& f : o.out) EXPECT_EQ(f[15], 10 << 2 | ecn);
  }
}

// RFC 2644, RFC 3927 -------------------------------------------------------------------------------------------------

// A data plane that knows no subnets has them as routes: the broadcast address of each is a blackhole.
TEST_F(Rfc2644, S3_DirectedBroadcastsAreDroppedByTheirRoute) {
  vanishes({to("198.51.100.255")}, kRouteDrop);
}

TEST_F(Rfc3927, S7_LinkLocalIsNotForwarded) {
  vanishes({udp4("169.254.1.1", kWide)}, kMartianSource);
  vanishes({to("169.254.1.1")}, kMartianDestination);
}

// RFC 4291 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc4291, S2_5_2_TheUnspecifiedAddressIsNotForwarded) {
  vanishes({udp6("::", kWide6)}, kMartianSource);
  vanishes({to6("::")}, kMartianDestination);
}

TEST_F(Rfc4291, S2_5_3_TheLoopbackAddressIsNotForwarded) {
  vanishes({udp6("::1", kWide6)}, kMartianSource);
  vanishes({to6("::1")}, kMartianDestination);
}

TEST_F(Rfc4291, S2_5_6_LinkLocalIsNotForwarded) {
  vanishes({udp6("fe80::1", kWide6)}, kMartianSource);
  vanishes({to6("fe80::1")}, kMartianDestination);
}

TEST_F(Rfc4291, S2_7_MulticastIsNoSource) {
  vanishes({udp6("ff02::1", kWide6)}, kMartianSource);
}

// RFC 4443 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc4443, S2_2_TheSourceIsTheRouters) {
  const Bytes error = answer(to6(kUnrouted6), kNoRoute);
  EXPECT_EQ(Bytes(error.begin() + 8, error.begin() + 24),
            (Bytes{0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff}));
}

TEST_F(Rfc4443, S2_4_c_QuotesAsMuchAsFits1280) {
  const Bytes frame = udp6(kHost6, kWide6).ttl(1).payload(1400).build();
  const Bytes error = answer(frame, kHopLimitExpired);
  EXPECT_EQ(error.size(), 1280u);
  is_error(error, frame, 3, 0);
}

TEST_F(Rfc4443, S2_4_e_NeverAboutIcmpErrors) {
  for (const uint8_t type : {1, 2, 3, 4, 100, 127, 137}) {
    vanishes({icmp6(kHost6, kWide6).icmp(type, 0).ttl(1).payload(48)}, kHopLimitExpired);
  }
  expect_icmp_error(icmp6(kHost6, kWide6).icmp(128, 0).ttl(1), kHopLimitExpired, 3, 0);
}

TEST_F(Rfc4443, S2_4_e_NeverAboutGroupsOrToWhatIsNotOneNode) {
  vanishes({udp6(kHost6, "ff0e::5").ttl(1)}, kMulticastDestination);
  vanishes({to6(kWide6).ttl(1).macs(MacAddress{{0x33, 0x33, 0, 0, 0, 1}}, kOwn)}, kLinkBroadcast);
  vanishes({udp6("::", kWide6).ttl(1), udp6("ff02::1", kWide6).ttl(1)}, kMartianSource);
}

TEST_F(Rfc4443, S2_4_f_ErrorsAreHeldToATokenBucket) {
  std::vector<Bytes> frames;
  std::vector<uint64_t> times;
  for (uint64_t i = 0; i < 300; ++i) {
    frames.push_back(udp6(fmt::format("2001:db8::{:x}", i + 1), kWide6).ttl(1).build());
    times.push_back(i * 333'333);
  }
  const RfcOutcome o = forward(frames, 333'333);
  const uint64_t want = bucket_lets_through(1000, 50, times);
  EXPECT_EQ(o.out.size(), want);
  EXPECT_GT(want, 140u);  // 50 at once, and 100 ms at one a millisecond
  EXPECT_LT(want, 160u);
  EXPECT_EQ(o.dropped(kIcmpRateLimited), 300 - want);
}

TEST_F(Rfc4443, S3_1_UnreachableHasItsCodes) {
  expect_icmp_error(to6(kUnrouted6), kNoRoute, 1, 0);
  expect_icmp_error(to6(kWide6).ports(1, 666), kAclDeny, 1, 1);
  expect_icmp_error(to6(kNobody6), kNoAdjacency, 1, 3);
}

TEST_F(Rfc4443, S3_2_PacketTooBigTellsTheMtu) {
  expect_icmp_error(udp6(kHost6, kNarrow6).payload(1253), kTooBig, 2, 0, 1300);
}

TEST_F(Rfc4443, S3_3_HopLimitExceeded) {
  expect_icmp_error(to6(kWide6).ttl(1), kHopLimitExpired, 3, 0);
}

// RFC 5095 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc5095, S3_Type0RoutingHeadersAreNotProcessed) {
  vanishes({to6(kWide6).routing(0, 1, 3)}, kIpv6RoutingType0);
  // Without segments left there is nothing to process, and other types are others' business.
  passes(to6(kWide6).routing(0, 0, 3), sent(to6(kWide6).routing(0, 0, 3).ttl(63)));
  passes(to6(kWide6).routing(4, 1, 3), sent(to6(kWide6).routing(4, 1, 3).ttl(63)));
}

// RFC 6864, RFC 6946 -------------------------------------------------------------------------------------------------

TEST_F(Rfc6864, S4_DfIsNeverClearedAndIdsAreKept) {
  passes(to(kWide).dont_fragment().id(0), sent(to(kWide).dont_fragment().id(0).ttl(63)));
  const RfcOutcome o = forward(udp4(kHost, kNarrow).id(0xabcd).payload(1000));
  for (const Bytes& f : o.out) EXPECT_EQ(load_be16(&f[18]), 0xabcd);
  // Where a graph ignores DF on purpose, fragments still have it.
  const RfcOutcome cut =
      forward({udp4(kHost, kNarrow).dont_fragment().payload(1000).build()}, 1,
              [](std::string& text) { text.replace(text.find("IPFragmenter"), 12, "IPFragmenter(HONOR_DF false)"); });
  ASSERT_EQ(cut.out.size(), 2u);
  for (const Bytes& f : cut.out) EXPECT_NE(load_be16(&f[20]) & kIpv4DontFragment, 0);
}

TEST_F(Rfc6946, S4_AtomicFragmentsAreForwarded) {
  passes(to6(kWide6).fragment(0, false), sent(to6(kWide6).fragment(0, false).ttl(63)));
}

// RFC 1858, RFC 3128, RFC 7112 ---------------------------------------------------------------------------------------

TEST_F(Rfc1858, S3_TinyFirstFragmentsAreDropped) {
  const auto first = [](uint16_t bytes) {
    return tcp4(kHost, kWide).payload(32).fragment(0, true).total_length(static_cast<uint16_t>(20 + bytes));
  };
  vanishes({first(8), first(16)}, kTinyFragment);
  EXPECT_EQ(forward({first(24).build()}).out.size(), 1u);
}

TEST_F(Rfc3128, S3_FragmentsThatReplaceTcpFlagsAreDropped) {
  vanishes({tcp4(kHost, kWide).payload(32).fragment(8, false), tcp6(kHost6, kWide6).payload(32).fragment(8, true)},
           kTinyFragment);
  EXPECT_EQ(forward({tcp4(kHost, kWide).payload(32).fragment(16, false).build()}).out.size(), 1u);
}

TEST_F(Rfc7112, S5_FirstFragmentsWithoutAllHeadersAreDropped) {
  vanishes({to6(kWide6).fragment(0, true).destination_options(3).payload_length(16)}, kTinyFragment);
}

// RFC 7126 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc7126, S4_EachKindOfOptionCanBeDroppedOrIgnored) {
  const std::map<std::string, Bytes> kinds = {{"RECORD_ROUTE", {7, 7, 4, 0, 0, 0, 0}},
                                              {"TIMESTAMP", {68, 8, 5, 0, 0, 0, 0, 0}},
                                              {"ROUTER_ALERT", {148, 4, 0, 0}},
                                              {"OTHER", {130, 3, 9}}};
  for (const auto& [name, options] : kinds) {
    const auto rule = [&named = name](const char* word) {
      return [&named, word](std::string& text) {
        const std::string plain = fmt::format("IPGWOptions({}", kRouter);
        text.insert(text.find(plain) + plain.size(), fmt::format(", {} {}", named, word));
      };
    };
    const RfcOutcome dropped = forward({to(kWide).ipv4_options(options).build()}, 1, rule("drop"));
    EXPECT_TRUE(dropped.out.empty()) << name;
    EXPECT_EQ(dropped.dropped(kOptionRefused), 1u) << name;
    const RfcOutcome ignored = forward({to(kWide).ipv4_options(options).build()}, 1, rule("ignore"));
    ASSERT_EQ(ignored.out.size(), 1u) << name;
    EXPECT_EQ(ignored.out[0], sent(to(kWide).ipv4_options(options).ttl(63))) << name;
  }
}

TEST_F(Rfc7126, S4_3_SourceRoutesAreDroppedUnlessToldOtherwise) {
  const uint8_t loose[] = {131, 7, 4, 203, 0, 113, 7};
  const Bytes frame = to(kWide).ipv4_options(loose).build();
  // IPInput lets them pass, IPGWOptions does not; then source route failed is told.
  const auto pass = [](std::string& text) { text.replace(text.find("IPInput"), 7, "IPInput(SOURCE_ROUTES true)"); };
  const RfcOutcome refused = forward({frame}, 1, pass);
  ASSERT_EQ(refused.out.size(), 1u);
  EXPECT_EQ(refused.dropped(kSourceRoute), 1u);
  is_error(network(refused.out[0]), to(kWide).ipv4_options(loose).ttl(63).build(), 3, 5);
  // Both let them pass: transit, unchanged, since this router is not their destination.
  const RfcOutcome passed = forward({frame}, 1, [&](std::string& text) {
    pass(text);
    text.insert(text.find("IPGWOptions(") + 12 + std::string_view(kRouter).size(), ", SOURCE_ROUTE ignore");
  });
  ASSERT_EQ(passed.out.size(), 1u);
  EXPECT_EQ(passed.out[0], sent(to(kWide).ipv4_options(loose).ttl(63)));
}

// RFC 8200 -----------------------------------------------------------------------------------------------------------

TEST_F(Rfc8200, S3_TheHopLimitIsDecrementedByOne) {
  passes(to6(kWide6).ttl(2), sent(to6(kWide6).ttl(1)));
}

TEST_F(Rfc8200, S3_HopLimitExpiredIsDroppedAndTold) {
  expect_icmp_error(to6(kWide6).ttl(1), kHopLimitExpired, 3, 0);
  expect_icmp_error(to6(kWide6).ttl(0), kHopLimitExpired, 3, 0);
}

TEST_F(Rfc8200, S3_LengthsAreChecked) {
  vanishes({to6(kWide6).truncate(53)}, kIpv6TooShort);
  vanishes({to6(kWide6).payload_length(39)}, kIpv6BadPayloadLength);
  vanishes({to6(kWide6).ip_version(5)}, kIpv6BadVersion);
}

TEST_F(Rfc8200, S4_ExtensionHeadersAreNotTouched) {
  const auto all = [](PacketBuilder p) {
    return p.hop_by_hop(2).destination_options(3).routing(43, 2, 2).authentication(6).destination_options(1);
  };
  passes(all(to6(kWide6)), sent(all(to6(kWide6)).ttl(63)));
}

TEST_F(Rfc8200, S4_3_HopByHopOptionsAreForwardedUnread) {
  passes(to6(kWide6).hop_by_hop(1), sent(to6(kWide6).hop_by_hop(1).ttl(63)));
  // Anywhere but first it is wrong.
  vanishes({to6(kWide6).destination_options(1).hop_by_hop(1)}, kIpv6BadExtensionHeader);
}

TEST_F(Rfc8200, S4_5_FragmentsAreForwardedAsTheyAre) {
  passes(to6(kWide6).fragment(1448, true), sent(to6(kWide6).fragment(1448, true).ttl(63)));
}

TEST_F(Rfc8200, S5_RoutersNeverFragment) {
  const RfcOutcome o = forward(udp6(kHost6, kNarrow6).payload(1400));
  EXPECT_EQ(o.dropped(kTooBig), 1u);
  EXPECT_EQ(o.report.generated, 1u);  // the error
  passes(udp6(kHost6, kNarrow6).payload(1252), sent(udp6(kHost6, kNarrow6).payload(1252).ttl(63)));
}

// The table of the documents and these tests say the same.
TEST(RfcTable, ListsEveryTestOnce) {
  std::set<std::string> tests;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    if (!std::regex_match(suite.name(), std::regex("Rfc[0-9]+"))) continue;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      tests.insert(fmt::format("{}.{}", suite.name(), suite.GetTestInfo(t)->name()));
    }
  }
  const std::string page = testing::read_file(std::string(SLUICE_SOURCE_DIR) + "/docs/reference/rfc.md");
  ASSERT_FALSE(page.empty());
  std::set<std::string> listed;
  const std::regex name("`(Rfc[0-9]+\\.[A-Za-z0-9_]+)`");
  for (std::sregex_iterator i(page.begin(), page.end(), name), end; i != end; ++i) {
    EXPECT_TRUE(listed.insert((*i)[1]).second) << (*i)[1] << " is there twice";
  }
  EXPECT_EQ(listed, tests);
  EXPECT_GT(tests.size(), 50u);
}

}  // namespace
}  // namespace sluice
