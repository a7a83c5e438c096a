// Generated packets are read again by a parser of this file's own, and must be right in every length and checksum.
#include "generate/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "generate/random.h"
#include "generate/rules.h"
#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  int family = 0;
  uint16_t vlan = 0;
  uint64_t src_hi = 0, src_lo = 0, dst_hi = 0, dst_lo = 0;
  uint8_t protocol = 0, ttl = 0;
  uint16_t src_port = 0, dst_port = 0, flags = 0;
  size_t ip_bytes = 0, frame_bytes = 0;
  uint64_t number = UINT64_MAX;
  std::string fault;  // the first thing that is wrong
};

uint32_t fold(const std::vector<uint8_t>& bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] << 8 : bytes[i];
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

uint64_t big(const uint8_t* p, size_t bytes) {
  uint64_t v = 0;
  for (size_t i = 0; i < bytes; ++i) v = v << 8 | p[i];
  return v;
}

Parsed parse(const uint8_t* f, size_t n) {
  Parsed r;
  r.frame_bytes = n;
  auto wrong = [&](const char* what) {
    r.fault = what;
    return r;
  };
  if (n < 14) return wrong("no Ethernet header");
  size_t at = 12;
  if (big(f + 12, 2) == 0x8100) {
    r.vlan = static_cast<uint16_t>(big(f + 14, 2) & 0xfff);
    at = 16;
  }
  const auto type = big(f + at, 2);
  const size_t ip = at + 2;
  if (type != 0x0800 && type != 0x86dd) return wrong("EtherType");
  const size_t header = type == 0x0800 ? 20 : 40;
  if (n < ip + header) return wrong("truncated");
  const uint8_t* p = f + ip;
  std::vector<uint8_t> pseudo;
  size_t l4_bytes = 0;
  if (type == 0x0800) {
    r.family = 4;
    if (p[0] >> 4 != 4) return wrong("version");
    if (p[0] != 0x45) return wrong("IHL");
    r.ip_bytes = big(p + 2, 2);
    if (r.ip_bytes > n - ip || r.ip_bytes < 20) return wrong("total length");
    if (fold({p, p + 20}) != 0xffff) return wrong("IP checksum");
    r.ttl = p[8];
    r.protocol = p[9];
    r.src_lo = big(p + 12, 4);
    r.dst_lo = big(p + 16, 4);
    l4_bytes = r.ip_bytes - 20;
    pseudo.assign(p + 12, p + 20);
  } else {
    r.family = 6;
    if (p[0] >> 4 != 6) return wrong("version");
    l4_bytes = big(p + 4, 2);
    r.ip_bytes = l4_bytes + 40;
    if (r.ip_bytes > n - ip) return wrong("total length");
    r.protocol = p[6];
    r.ttl = p[7];
    r.src_hi = big(p + 8, 8);
    r.src_lo = big(p + 16, 8);
    r.dst_hi = big(p + 24, 8);
    r.dst_lo = big(p + 32, 8);
    pseudo.assign(p + 8, p + 40);
  }
  for (size_t i = ip + r.ip_bytes; i < n; ++i) {
    if (f[i] != 0) return wrong("padding");
  }
  if (r.ttl == 0) return wrong("TTL");
  if ((r.family == 4 && r.src_lo >> 24 == 127) || (r.family == 6 && r.src_hi == 0 && r.src_lo == 1))
    return wrong("martian");
  const uint8_t* q = p + header;
  pseudo.insert(pseudo.end(), {0, r.protocol, static_cast<uint8_t>(l4_bytes >> 8), static_cast<uint8_t>(l4_bytes)});
  pseudo.insert(pseudo.end(), q, q + l4_bytes);
  size_t l4_header = 8;
  if (r.protocol == 6) {
    l4_header = 20;
    if (l4_bytes < 20) return wrong("short transport");
    if (q[12] >> 4 != 5) return wrong("TCP data offset");
    if (fold(pseudo) != 0xffff) return wrong("L4 checksum");
    r.flags = static_cast<uint16_t>(q[13] << 8);
  } else if (r.protocol == 17) {
    if (l4_bytes < 8) return wrong("short transport");
    if (big(q + 4, 2) != l4_bytes) return wrong("UDP length");
    if (big(q + 6, 2) == 0 || fold(pseudo) != 0xffff) return wrong("L4 checksum");
  } else if (r.protocol == (r.family == 4 ? 1 : 58)) {
    if (l4_bytes < 8) return wrong("short transport");
    if (fold(r.family == 4 ? std::vector<uint8_t>(q, q + l4_bytes) : pseudo) != 0xffff) return wrong("L4 checksum");
  } else if (l4_bytes < 8) {
    return wrong("short transport");
  }
  if (r.protocol == 6 || r.protocol == 17 || r.protocol == 33 || r.protocol == 132 || r.protocol == 136) {
    r.src_port = static_cast<uint16_t>(big(q, 2));
    r.dst_port = static_cast<uint16_t>(big(q + 2, 2));
    if (r.protocol == 33 || r.protocol == 132) l4_header = 12;
  }
  if (l4_bytes >= l4_header + 8) r.number = big(q + l4_header, 8);
  return r;
}

bool in_prefix(const IpPrefix& p, int family, uint64_t hi, uint64_t lo) {
  if (p.address.family == 0) return p.length == 0;
  if (p.address.family != family) return false;
  if (family == 4) return ((p.address.lo ^ lo) & high_mask32(p.length)) == 0;
  return ((p.address.hi ^ hi) & high_mask64(std::min<unsigned>(p.length, 64))) == 0 &&
         ((p.address.lo ^ lo) & high_mask64(p.length > 64 ? p.length - 64u : 0)) == 0;
}

bool in_region(const FlowRegion& r, const Parsed& p) {
  return in_prefix(r.src, p.family, p.src_hi, p.src_lo) && in_prefix(r.dst, p.family, p.dst_hi, p.dst_lo) &&
         p.src_port >= r.src_port.low && p.src_port <= r.src_port.high && p.dst_port >= r.dst_port.low &&
         p.dst_port <= r.dst_port.high && ((p.protocol ^ r.protocol) & r.protocol_mask) == 0 &&
         ((p.flags ^ r.flags) & r.flags_mask) == 0;
}

auto flow_of(const Parsed& p) {
  return std::tuple(p.family, p.vlan, p.src_hi, p.src_lo, p.dst_hi, p.dst_lo, p.protocol, p.src_port, p.dst_port);
}

struct Made {
  FrameStore store;
  TrafficStats stats;
  Parsed at(uint64_t i) const { return parse(store.frame(i), store.captured()[i]); }
};

Made make(const TrafficOptions& options) {
  Made run;
  auto stats = generate_traffic(options, run.store);
  EXPECT_TRUE(stats.ok()) << to_string(stats.error());
  if (stats.ok()) run.stats = *stats;
  return run;
}

TEST(TrafficTest, EveryPacketIsValidAndCounted) {
  for (const SizeMix mix : {SizeMix::kImix, SizeMix::kImixStockholm}) {
    const Made run = make(
        {.packets = 20'000, .flows = 500, .size_mix = mix, .ipv6_fraction = 0.4, .vlan_fraction = 0.3, .seed = 11});
    ASSERT_EQ(run.store.size(), 20'000u);
    TrafficStats seen;
    std::set<uint64_t> numbers;
    for (uint64_t i = 0; i < run.store.size(); ++i) {
      const Parsed p = run.at(i);
      ASSERT_EQ(p.fault, "") << i;
      ASSERT_EQ(p.ttl, 64);
      if (p.number != UINT64_MAX) {
        EXPECT_EQ(p.number, i);
      }
      EXPECT_EQ(run.store.timestamps_ns()[i], 1'700'000'000'000'000'000u + i * 1000);
      EXPECT_EQ(run.store.wire_bytes()[i], p.frame_bytes);
      ++seen.packets;
      seen.bytes += p.frame_bytes;
      ++(p.family == 4 ? seen.ipv4 : seen.ipv6);
      seen.vlan += p.vlan != 0;
      ++(p.protocol == 6 ? seen.tcp : p.protocol == 17 ? seen.udp : seen.icmp);
    }
    EXPECT_EQ(std::memcmp(&seen, &run.stats, sizeof(seen)), 0);
    EXPECT_GT(seen.ipv6, 3000u);
    EXPECT_GT(seen.vlan, 2000u);
    EXPECT_GT(seen.icmp, 100u);
  }
}

TEST(TrafficTest, AGenomeIsSentLetterByLetter) {
  const auto sizes = sizes_of_genome("aabgfcde");
  ASSERT_TRUE(sizes.ok());
  TrafficOptions options{.packets = 1'000, .flows = 100};
  options.size_sequence = sizes.value();
  const Made run = make(options);
  const uint32_t expected[] = {64, 64, 128, 1518, 1280, 256, 512, 1024};
  for (uint64_t i = 0; i < run.store.size(); ++i) ASSERT_EQ(run.store.captured()[i], expected[i % 8] - 4) << i;
  EXPECT_EQ(sizes_of_genome("hi").value(), (std::vector<uint32_t>{2112, 9000}));
  for (const char* wrong : {"", "j", "z", "abA", "a b", "7"}) EXPECT_FALSE(sizes_of_genome(wrong).ok()) << wrong;
  options.size_sequence = {64, 63};
  FrameStore store;
  EXPECT_FALSE(generate_traffic(options, store).ok());
}

TEST(TrafficTest, SizesFollowTheMix) {
  auto sizes = [](const TrafficOptions& options) {
    const Made run = make(options);
    std::map<size_t, double> shares;
    for (const uint32_t bytes : run.store.captured()) shares[bytes] += 12.0 / static_cast<double>(options.packets);
    return shares;
  };
  const TrafficOptions base{.packets = 60'000, .flows = 100};
  auto imix = sizes(base);
  EXPECT_EQ(imix.size(), 3u);
  EXPECT_NEAR(imix[60], 7, 0.15);
  EXPECT_NEAR(imix[566], 4, 0.15);
  EXPECT_NEAR(imix[1514], 1, 0.1);
  TrafficOptions stockholm = base;
  stockholm.size_mix = SizeMix::kImixStockholm;
  const Made run = make(stockholm);
  std::map<size_t, double> ip;
  for (uint64_t i = 0; i < run.store.size(); ++i) ip[run.at(i).ip_bytes] += 12.0 / 60'000;
  EXPECT_EQ(ip.size(), 3u);
  EXPECT_NEAR(ip[40], 7, 0.15);
  EXPECT_NEAR(ip[576], 4, 0.15);
  EXPECT_NEAR(ip[1500], 1, 0.1);
  for (const uint32_t fixed : {64u, 65u, 512u, 1518u, 9618u}) {
    TrafficOptions options = base;
    options.packets = 200;
    options.size_mix = SizeMix::kFixed;
    options.fixed_bytes = fixed;
    EXPECT_EQ(sizes(options).count(fixed - 4), 1u);
    options.ipv6_fraction = 1;
    options.vlan_fraction = 1;
    const Made six = make(options);
    for (uint64_t i = 0; i < six.store.size(); ++i) {
      const Parsed p = six.at(i);
      ASSERT_EQ(p.fault, "");
      EXPECT_EQ(p.frame_bytes, std::max<size_t>(fixed - 4, p.protocol == 6 ? 74 : 62) + 4);
    }
  }
}

// Ranks by count against k^-s: the top flow's share and the ratio between far ranks.
TEST(TrafficTest, FlowsArePopularByZipf) {
  for (const double s : {0.0, 0.8, 1.2}) {
    const Made run = make({.packets = 200'000, .flows = 1000, .zipf = s, .size_mix = SizeMix::kFixed});
    std::map<decltype(flow_of(Parsed{})), double> counts;
    for (uint64_t i = 0; i < run.store.size(); ++i) ++counts[flow_of(run.at(i))];
    EXPECT_GT(counts.size(), 950u);
    std::vector<double> ranked;
    for (const auto& [flow, n] : counts) ranked.push_back(n);
    std::sort(ranked.rbegin(), ranked.rend());
    double harmonic = 0;
    for (int k = 1; k <= 1000; ++k) harmonic += std::pow(k, -s);
    // ICMP flows of one pair of addresses are one flow here, so the counts may only be a little off.
    for (const int k : {1, 2, 5, 20, 100}) {
      const double expected = 200'000 * std::pow(k, -s) / harmonic;
      EXPECT_NEAR(ranked[static_cast<size_t>(k) - 1] / expected, 1.0, s == 0 ? 0.35 : 0.12) << s << " rank " << k;
    }
  }
}

TEST(TrafficTest, FlowsStayInsideTheirRegions) {
  for (const RuleShape shape : {RuleShape::kAcl, RuleShape::kFw, RuleShape::kIpc}) {
    TrafficOptions options{.packets = 6000, .flows = 3000, .zipf = 0, .size_mix = SizeMix::kFixed, .seed = 3};
    options.regions = *generate_rule_regions({.shape = shape, .count = 150, .seed = 8, .ipv6_fraction = 0.4});
    auto generator = TrafficGenerator::create(options);
    ASSERT_TRUE(generator.ok());
    EXPECT_EQ(generator->hittable_regions(), options.regions.size());
    const Made run = make(options);
    std::set<size_t> hit;
    for (uint64_t i = 0; i < run.store.size(); ++i) {
      const Parsed p = run.at(i);
      ASSERT_EQ(p.fault, "");
      bool some = false;
      for (size_t k = 0; k < options.regions.size(); ++k) {
        if (in_region(options.regions[k], p)) {
          some = true;
          hit.insert(k);
        }
      }
      ASSERT_TRUE(some) << i;
    }
    EXPECT_EQ(hit.size(), options.regions.size());
  }
}

TEST(TrafficTest, RegionsThatNothingHitsArePassedOver) {
  const IpPrefix any4{{0, 0, 4}, 0};
  const FlowRegion icmp_with_port{any4, any4, {}, {80, 80}, 1, 255, 0, 0};
  const FlowRegion udp_with_flags{any4, any4, {}, {}, 17, 255, 0x0200, 0x0200};
  const FlowRegion low_flags{any4, any4, {}, {}, 6, 255, 0x0001, 0x0001};
  const FlowRegion no_syn{any4, any4, {}, {}, 17, 255, 0x0000, 0x0200};
  const FlowRegion ports_only{any4, any4, {7, 9}, {80, 80}, 0, 0, 0, 0};
  const FlowRegion masked{any4, any4, {}, {}, 0x10, 0xf0, 0, 0};  // 16..31: UDP is one of them
  const FlowRegion sctp{any4, any4, {5, 5}, {6, 6}, 132, 255, 0, 0};
  const FlowRegion anything{};
  TrafficOptions options{.packets = 3000, .flows = 500};
  options.regions = {icmp_with_port, udp_with_flags, low_flags};
  auto none = TrafficGenerator::create(options);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(to_string(none.error()), HasSubstr("any of the 3 rules"));
  const std::vector<FlowRegion> good{no_syn, ports_only, masked, sctp, anything};
  for (const FlowRegion& region : good) {
    options.regions = {icmp_with_port, region};
    const Made run = make(options);
    for (uint64_t i = 0; i < run.store.size(); ++i) {
      const Parsed p = run.at(i);
      ASSERT_EQ(p.fault, "");
      ASSERT_TRUE(in_region(region, p));
    }
  }
}

TEST(TrafficTest, DestinationsComeFromTheTable) {
  TrafficOptions options{.packets = 5000, .flows = 2000, .zipf = 0, .size_mix = SizeMix::kFixed};
  options.destinations = {{{0, 0x0a010200, 4}, 24}, {{0, 0xc0a80000, 4}, 16}, {{0x20010db800000000, 0, 6}, 32}};
  const Made run = make(options);
  size_t hits[3] = {};
  for (uint64_t i = 0; i < run.store.size(); ++i) {
    const Parsed p = run.at(i);
    ASSERT_EQ(p.fault, "");
    size_t matched = 0;
    for (size_t k = 0; k < 3; ++k) {
      if (in_prefix(options.destinations[k], p.family, p.dst_hi, p.dst_lo)) {
        ++hits[k];
        ++matched;
      }
    }
    ASSERT_EQ(matched, 1u);
  }
  for (const size_t n : hits) EXPECT_GT(n, 1000u);
  // A region that says where to go is kept, and the table fills in what it leaves open.
  const FlowRegion wide{{{0, 0, 4}, 0}, {{0, 0xc0000000, 4}, 8}, {}, {}, 6, 255, 0, 0};
  options.regions = {wide};
  const Made both = make(options);
  size_t from_table = 0;
  for (uint64_t i = 0; i < both.store.size(); ++i) {
    const Parsed p = both.at(i);
    ASSERT_TRUE(in_region(wide, p));
    from_table += in_prefix(options.destinations[1], 4, p.dst_hi, p.dst_lo);
  }
  EXPECT_GT(from_table, 4000u);
}

TEST(TrafficTest, FlowsHaveTheirPartsOfDscps) {
  TrafficOptions o;
  o.flows = 20'000;
  o.zipf = 0;
  o.ipv6_fraction = 0.5;
  o.vlan_fraction = 0.2;
  const auto count = [](const TrafficOptions& options) {
    TrafficGenerator generator = *TrafficGenerator::create(options);
    std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
    std::map<std::pair<int, unsigned>, double> parts;
    for (int i = 0; i < 40'000; ++i) {
      const FrameHeader header = generator.next(frame.data());
      const Parsed p = parse(frame.data(), header.captured);
      EXPECT_EQ(p.fault, "");
      const uint8_t* ip = frame.data() + (p.vlan != 0 ? 18 : 14);
      EXPECT_EQ(p.family == 4 ? ip[1] & 3 : ip[1] >> 4 & 3, 0) << "ECN";
      ++parts[{p.family, p.family == 4 ? ip[1] >> 2 : (ip[0] & 15) << 2 | ip[1] >> 6}];
    }
    return parts;
  };
  EXPECT_EQ(count(o).size(), 2u) << "all are default";
  o.dscps = {{46, 1}, {34, 3}, {0, 6}, {63, 0}};
  const auto parts = count(o);
  EXPECT_EQ(parts.size(), 6u);
  for (const int family : {4, 6}) {
    for (const auto& [dscp, part] : {std::pair{46u, 0.1}, {34u, 0.3}, {0u, 0.6}})
      EXPECT_NEAR(parts.at({family, dscp}) / 20'000, part, 0.03) << family << " " << dscp;
  }
  o.dscps = {{64, 1}};
  EXPECT_FALSE(TrafficGenerator::create(o));
  o.dscps = {{46, 0}};
  EXPECT_FALSE(TrafficGenerator::create(o));
  o.dscps = {{46, -1}};
  EXPECT_FALSE(TrafficGenerator::create(o));
}

TEST(TrafficTest, AFlowKeepsItsDscp) {
  TrafficOptions o;
  o.flows = 300;
  o.ipv6_fraction = 0.5;
  o.dscps = {{46, 1}, {34, 1}, {0, 1}};
  TrafficGenerator generator = *TrafficGenerator::create(o);
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  std::map<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, uint16_t, uint16_t, uint8_t>, unsigned> flows;
  std::map<std::pair<int, unsigned>, unsigned> seen;
  for (int i = 0; i < 20'000; ++i) {
    const FrameHeader header = generator.next(frame.data());
    const Parsed p = parse(frame.data(), header.captured);
    const uint8_t* ip = frame.data() + 14;
    const unsigned dscp = p.family == 4 ? ip[1] >> 2 : (ip[0] & 15) << 2 | ip[1] >> 6;
    const auto [at, fresh] =
        flows.try_emplace({p.src_hi, p.src_lo, p.dst_hi, p.dst_lo, p.src_port, p.dst_port, p.protocol}, dscp);
    EXPECT_EQ(at->second, dscp);
    seen[{p.family, dscp}] += fresh ? 1 : 0;
  }
  EXPECT_GT(flows.size(), 200u);
  EXPECT_EQ(seen.size(), 6u) << "three classes of each family";
}

TEST(TrafficTest, BrokenPacketsAreBrokenInTheWayThatWasAsked) {
  const std::map<Malformed, std::set<std::string>> faults{
      {Malformed::kIpChecksum, {"IP checksum", "version"}},
      {Malformed::kVersion, {"version"}},
      {Malformed::kHeaderLength, {"IHL", "total length"}},
      {Malformed::kTotalLength, {"total length"}},
      {Malformed::kTruncated, {"truncated"}},
      {Malformed::kShortTransport, {"short transport", "padding"}},
      {Malformed::kTtlZero, {"TTL"}},
      {Malformed::kMartianSource, {"martian"}},
      {Malformed::kL4Checksum, {"L4 checksum"}},
      {Malformed::kEtherType, {"EtherType"}},
  };
  ASSERT_EQ(faults.size(), kMalformedKinds);
  for (const auto& [kind, expected] : faults) {
    const Made run = make({.packets = 4000,
                           .flows = 300,
                           .ipv6_fraction = 0.3,
                           .vlan_fraction = 0.2,
                           .malformed_fraction = 0.25,
                           .malformed_kinds = 1u << static_cast<int>(kind)});
    size_t broken = 0;
    for (uint64_t i = 0; i < run.store.size(); ++i) {
      const Parsed p = run.at(i);
      if (p.fault.empty()) continue;
      ++broken;
      EXPECT_TRUE(expected.count(p.fault) == 1) << to_string(kind) << ": " << p.fault;
    }
    EXPECT_EQ(broken, run.stats.malformed[static_cast<size_t>(kind)]) << to_string(kind);
    EXPECT_NEAR(static_cast<double>(broken), 1000, 130) << to_string(kind);
  }
  const Made all = make({.packets = 5000, .malformed_fraction = 1});
  for (const uint64_t n : all.stats.malformed) EXPECT_GT(n, 350u);
}

// A martian's checksums are right, so that only the address condemns it.
TEST(TrafficTest, MartiansAreOtherwiseRight) {
  const Made run = make({.packets = 3000,
                         .ipv6_fraction = 0.5,
                         .malformed_fraction = 1,
                         .malformed_kinds = 1u << static_cast<int>(Malformed::kMartianSource)});
  for (uint64_t i = 0; i < run.store.size(); ++i) {
    std::vector<uint8_t> f(run.store.frame(i), run.store.frame(i) + run.store.captured()[i]);
    const bool ipv6 = f[12] == 0x86;
    // Parse it as if the address were unremarkable: swapping source and destination keeps every sum.
    const size_t source = ipv6 ? 22 : 26;
    const size_t bytes = ipv6 ? 16 : 4;
    std::swap_ranges(f.begin() + static_cast<ptrdiff_t>(source), f.begin() + static_cast<ptrdiff_t>(source + bytes),
                     f.begin() + static_cast<ptrdiff_t>(source + bytes));
    ASSERT_EQ(parse(f.data(), f.size()).fault, "") << i;
  }
}

TEST(TrafficTest, ACaptureHoldsTheSamePackets) {
  const auto path =
      std::filesystem::temp_directory_path() / ("sluice_traffic_" + std::to_string(getpid()) + ".pcap.gz");
  const TrafficOptions options{.packets = 1000, .ipv6_fraction = 0.5, .seed = 77};
  auto writer = CaptureWriter::create(path.string());
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(generate_traffic(options, *writer).ok());
  ASSERT_TRUE(writer->commit().ok());
  auto store = FrameStore::load(path.string());
  std::filesystem::remove(path);
  ASSERT_TRUE(store.ok());
  const Made run = make(options);
  ASSERT_EQ(store->size(), run.store.size());
  for (uint64_t i = 0; i < store->size(); ++i) {
    ASSERT_EQ(store->captured()[i], run.store.captured()[i]);
    ASSERT_EQ(std::memcmp(store->frame(i), run.store.frame(i), store->captured()[i]), 0);
    ASSERT_EQ(store->timestamps_ns()[i], run.store.timestamps_ns()[i]);
  }
  FrameStore tiny({.max_bytes = 10'000});
  EXPECT_FALSE(generate_traffic(options, tiny).ok());
}

TEST(TrafficTest, SameSeedSameBytesEverywhere) {
  TrafficOptions options{.packets = 3000,
                         .flows = 400,
                         .zipf = 1.1,
                         .ipv6_fraction = 0.3,
                         .vlan_fraction = 0.1,
                         .malformed_fraction = 0.05};
  options.regions = *generate_rule_regions({.count = 300, .ipv6_fraction = 0.3});
  auto hash = [](const TrafficOptions& o) {
    const Made run = make(o);
    uint64_t h = 0;
    for (uint64_t i = 0; i < run.store.size(); ++i) {
      for (uint32_t k = 0; k < run.store.captured()[i]; ++k) h = mix64(h ^ run.store.frame(i)[k]);
    }
    return h;
  };
  const uint64_t got = hash(options);
  EXPECT_EQ(got, 0x800c8b3f6ace526bull) << std::hex << got;
  options.seed = 2;
  EXPECT_NE(hash(options), got);
}

TEST(TrafficTest, OptionsOutOfRangeAreRefused) {
  const TrafficOptions bad[] = {{.flows = 0},
                                {.flows = (1u << 24) + 1},
                                {.zipf = -1},
                                {.zipf = std::nan("")},
                                {.size_mix = SizeMix::kFixed, .fixed_bytes = 63},
                                {.size_mix = SizeMix::kFixed, .fixed_bytes = 9619},
                                {.ipv6_fraction = 1.5},
                                {.vlan_fraction = -1},
                                {.tcp = 0, .udp = 0, .icmp = 0},
                                {.tcp = -1},
                                {.malformed_fraction = 0.1, .malformed_kinds = 0}};
  for (const TrafficOptions& options : bad) EXPECT_FALSE(TrafficGenerator::create(options).ok()) << &options - bad;
  TrafficOptions destination;
  destination.destinations = {IpPrefix{}};
  EXPECT_FALSE(TrafficGenerator::create(destination).ok());
}

}  // namespace
}  // namespace sluice
