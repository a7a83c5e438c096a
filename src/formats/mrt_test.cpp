// MRT: built records with each feature, damage at every byte, and real dumps against an independent decoder below.
#include "formats/mrt.h"

#include <bzlib.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <tuple>

#include "base/test_data.h"
#include "formats/route_files.h"
#include "formats/rule_files.h"
#include "net/text.h"

namespace sluice {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

std::string be(uint64_t value, int n) {
  std::string out;
  for (int i = n - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}
std::string record(unsigned type, unsigned subtype, const std::string& body) {
  return be(0x5f000000, 4) + be(type, 2) + be(subtype, 2) + be(body.size(), 4) + body;
}
std::string ip4(const char* text) {
  return be(*parse_ipv4(text), 4);
}
std::string ip6(const char* text) {
  const auto a = parse_ip(text);
  return be(a->hi, 8) + be(a->lo, 8);
}
std::string attribute(uint8_t type, const std::string& value, bool extended = false) {
  std::string out = be(extended ? 0x50 : 0x40, 1) + be(type, 1);
  return out + be(value.size(), extended ? 2 : 1) + value;
}
std::string next_hop(const char* text) {
  return attribute(1, be(0, 1)) + attribute(3, ip4(text));
}
std::string entry(unsigned peer, const std::string& attributes, bool add_path = false) {
  return be(peer, 2) + be(0, 4) + (add_path ? be(7, 4) : "") + be(attributes.size(), 2) + attributes;
}
std::string rib(unsigned subtype, const std::string& prefix, unsigned length, const std::vector<std::string>& entries) {
  std::string body = be(0, 4) + be(length, 1) + prefix.substr(0, (length + 7) / 8) + be(entries.size(), 2);
  for (const auto& e : entries) body += e;
  return record(13, subtype, body);
}
// Three peers: IPv4 with 2-byte AS, IPv6 with 4-byte AS, IPv4 with 4-byte AS.
std::string peers() {
  return record(13, 1,
                ip4("192.0.2.9") + be(4, 2) + "view" + be(3, 2) + be(0, 1) + be(1, 4) + ip4("192.0.2.1") +
                    be(65000, 2) + be(3, 1) + be(2, 4) + ip6("2001:db8::2") + be(65001, 4) + be(2, 1) + be(3, 4) +
                    ip4("192.0.2.3") + be(65002, 4));
}

std::string sample() {
  return peers() + rib(2, ip4("10.0.0.0"), 8, {entry(0, next_hop("192.0.2.1")), entry(2, next_hop("192.0.2.3"))}) +
         rib(2, ip4("10.1.128.0"), 17, {entry(2, next_hop("192.0.2.3"))}) +
         rib(8, ip4("10.2.0.0"), 16, {entry(0, next_hop("192.0.2.4"), true), entry(0, next_hop("192.0.2.5"), true)}) +
         // The abbreviated MP_REACH_NLRI, one and two addresses.
         rib(4, ip6("2001:db8::"), 32, {entry(1, attribute(14, be(16, 1) + ip6("2001:db8::1")))}) +
         rib(4, ip6("2001:db8:1::"), 48,
             {entry(1, attribute(14, be(32, 1) + ip6("2001:db8::2") + ip6("fe80::2"), true))}) +
         // The full one, with its NLRI.
         rib(4, ip6("2001:db8:2::"), 48,
             {entry(1, attribute(14, be(2, 2) + be(1, 1) + be(16, 1) + ip6("2001:db8::3") + be(0, 1) + be(48, 1) +
                                         ip6("2001:db8:2::").substr(0, 6)))}) +
         rib(10, ip6("2001:db8:3::"), 48, {entry(1, attribute(14, be(16, 1) + ip6("2001:db8::4")), true)}) +
         // An IPv4 prefix with an IPv6 next hop (RFC 8950), a route of the collector itself, a multicast record.
         rib(2, ip4("10.3.0.0"), 16, {entry(1, attribute(14, be(16, 1) + ip6("2001:db8::5")))}) +
         rib(2, ip4("10.4.0.0"), 16, {entry(0, "")}) + rib(3, ip4("224.0.0.0"), 4, {entry(0, next_hop("192.0.2.1"))}) +
         rib(2, ip4("0.0.0.0"), 0, {entry(0, ""), entry(2, next_hop("192.0.2.3"))});
}

std::string hop_of(const Rib& rib, const char* prefix) {
  const uint32_t id = rib.find(*parse_prefix(prefix));
  return id == 0 ? "-" : rib.next_hop_name(id);
}

TEST(Mrt, ReadsEveryKindOfRecord) {
  Rib rib;
  auto report = parse_mrt(bytes_of(sample()), "dump", rib);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_EQ(report->routes4, 5u);
  EXPECT_EQ(report->routes6, 4u);
  EXPECT_EQ(report->skipped, 2u);
  EXPECT_EQ(report->warnings.size(), 2u);
  EXPECT_EQ(hop_of(rib, "10.0.0.0/8"), "192.0.2.1");
  EXPECT_EQ(hop_of(rib, "10.1.128.0/17"), "192.0.2.3");
  EXPECT_EQ(hop_of(rib, "10.2.0.0/16"), "192.0.2.4");
  EXPECT_EQ(hop_of(rib, "10.3.0.0/16"), "2001:db8::5");
  EXPECT_EQ(hop_of(rib, "10.4.0.0/16"), "-");
  EXPECT_EQ(hop_of(rib, "0.0.0.0/0"), "192.0.2.3");
  EXPECT_EQ(hop_of(rib, "224.0.0.0/4"), "-");
  EXPECT_EQ(hop_of(rib, "2001:db8::/32"), "2001:db8::1");
  EXPECT_EQ(hop_of(rib, "2001:db8:1::/48"), "2001:db8::2");
  EXPECT_EQ(hop_of(rib, "2001:db8:2::/48"), "2001:db8::3");
  EXPECT_EQ(hop_of(rib, "2001:db8:3::/48"), "2001:db8::4");
}

TEST(Mrt, TakesThePeerThatIsAskedFor) {
  Rib rib;
  const auto of = [](const char* peer) { return MrtOptions{.peer = *parse_mrt_peer(peer)}; };
  auto report = parse_mrt(bytes_of(sample()), "dump", rib, of("2"));
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_EQ(report->routes4, 3u);
  EXPECT_EQ(report->routes6, 0u);
  EXPECT_EQ(hop_of(rib, "10.0.0.0/8"), "192.0.2.3");
  // By its address and by its AS it is the same peer.
  for (const char* same : {"192.0.2.3", "AS65002", "as65002"}) {
    Rib again;
    report = parse_mrt(bytes_of(sample()), "dump", again, of(same));
    ASSERT_TRUE(report.ok()) << to_string(report.error());
    EXPECT_EQ(report->routes4, 3u) << same;
    EXPECT_EQ(hop_of(again, "10.0.0.0/8"), "192.0.2.3") << same;
  }
  for (const auto& [wrong, expected] :
       {std::pair{"3", "expected: 0 to 2"}, std::pair{"AS7", "expected: AS65000, AS65001, AS65002"},
        std::pair{"192.0.2.7", "expected: 192.0.2.1, 2001:db8::2, 192.0.2.3"}}) {
    Rib none;
    report = parse_mrt(bytes_of(sample()), "dump", none, of(wrong));
    ASSERT_FALSE(report.ok()) << wrong;
    EXPECT_NE(to_string(report.error()).find(expected), std::string::npos) << to_string(report.error());
  }
  for (const char* text : {"", "AS", "ASx", "65536", "-1", "192.0.2", "AS4294967296", "2 "})
    EXPECT_FALSE(parse_mrt_peer(text).ok()) << text;
}

struct TestPath {
  unsigned peer;
  std::vector<uint32_t> as_path;
  std::string more;  // further attributes
  const char* hop;
};
std::string as_path(uint8_t type, const std::vector<uint32_t>& ases) {
  std::string segment = be(type, 1) + be(ases.size(), 1);
  for (const uint32_t as : ases) segment += be(as, 4);
  return segment;
}
std::string local_pref(uint32_t n) {
  return attribute(5, be(n, 4));
}
std::string med(uint32_t n) {
  return attribute(4, be(n, 4));
}
std::string dump_of(const std::vector<TestPath>& paths) {
  std::vector<std::string> entries;
  for (const TestPath& p : paths) {
    entries.push_back(entry(
        p.peer, attribute(3, ip4(p.hop)) + (p.as_path.empty() ? "" : attribute(2, as_path(2, p.as_path))) + p.more));
  }
  return peers() + rib(2, ip4("10.0.0.0"), 8, entries);
}
// The next hops of the paths, best first.
std::string ranking(const std::string& dump, MrtPaths* out = nullptr) {
  Rib none;
  MrtPaths own;
  MrtPaths& paths = out != nullptr ? *out : own;
  const auto report = parse_mrt(bytes_of(dump), "dump", none, {}, &paths);
  EXPECT_TRUE(report.ok()) << to_string(report.error());
  std::string said;
  for (size_t i = 0; i < paths.routes.size(); ++i) {
    EXPECT_EQ(paths.routes[i].metric, i);
    said += (i == 0 ? "" : " ") + none.next_hop_name(paths.routes[i].next_hop);
  }
  return said;
}

// RFC 4271, 9.1.2.2, step by step: each pair differs in the step alone that it is named after.
TEST(MrtBestPath, GoesByTheStepsOfRfc4271) {
  const std::string igp = attribute(1, be(0, 1)), egp = attribute(1, be(1, 1));
  EXPECT_EQ(ranking(dump_of({{0, {1}, local_pref(99), "1.1.1.1"}, {2, {1, 2, 3}, "", "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  EXPECT_EQ(ranking(dump_of({{0, {1, 2}, "", "1.1.1.1"}, {2, {1}, "", "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  EXPECT_EQ(ranking(dump_of({{0, {1}, egp, "1.1.1.1"}, {2, {2}, igp, "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  EXPECT_EQ(ranking(dump_of({{0, {1}, "", "1.1.1.1"}, {2, {1}, egp, "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  EXPECT_EQ(ranking(dump_of({{0, {1}, med(2), "1.1.1.1"}, {2, {1}, med(1), "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  EXPECT_EQ(ranking(dump_of({{0, {1}, med(1), "1.1.1.1"}, {2, {1}, "", "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  EXPECT_EQ(ranking(dump_of({{0, {1}, med(2), "1.1.1.1"}, {2, {2}, med(1), "2.2.2.2"}})), "1.1.1.1 2.2.2.2");
  EXPECT_EQ(ranking(dump_of({{2, {1}, "", "2.2.2.2"}, {0, {1}, "", "1.1.1.1"}})), "1.1.1.1 2.2.2.2");
  // A set counts as one AS, a confederation as none (RFC 5065, 5.3); the first AS is that of the first real sequence.
  const std::string set = attribute(2, as_path(2, {1}) + as_path(1, {7, 8, 9}));
  EXPECT_EQ(ranking(dump_of({{0, {1, 2, 3}, "", "1.1.1.1"}, {2, {}, set, "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  const std::string inside = attribute(2, as_path(3, {64512, 64513}) + as_path(2, {1}));
  EXPECT_EQ(ranking(dump_of({{0, {1, 2}, "", "1.1.1.1"}, {2, {}, inside, "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
  EXPECT_EQ(ranking(dump_of({{0, {1}, med(5), "1.1.1.1"}, {2, {}, inside + med(4), "2.2.2.2"}})), "2.2.2.2 1.1.1.1");
}

// 1 goes before 3 by its identifier and behind 2 by its MED, so it does not count against 3: a comparison of pairs has
// no answer here, the steps have.
TEST(MrtBestPath, AMedTakesAPathOutOfTheStepsBehind) {
  const auto of_as = [](unsigned peer, uint32_t as, uint32_t m, const char* hop) {
    return TestPath{peer, {as}, med(m), hop};
  };
  MrtPaths paths;
  EXPECT_EQ(
      ranking(dump_of({of_as(0, 7, 9, "1.1.1.1"), of_as(2, 7, 1, "2.2.2.2"), of_as(1, 8, 50, "3.3.3.3")}), &paths),
      "3.3.3.3 2.2.2.2 1.1.1.1");
  ASSERT_EQ(paths.notes.size(), 3u);
  EXPECT_EQ(paths.notes[0].path, "AS65001 at 2001:db8::2, local preference 100, 1 AS, incomplete, MED 50");
  EXPECT_EQ(paths.notes[0].behind, "");
  EXPECT_EQ(paths.notes[1].behind, "higher BGP identifier of the peer");
  EXPECT_EQ(paths.notes[2].behind, "higher MED through the same AS");
}

TEST(MrtBestPath, DamagedAttributesAreErrors) {
  for (const std::string& damaged :
       {attribute(1, be(3, 1)), attribute(1, ""), attribute(4, "abc"), attribute(5, "abcde"),
        attribute(2, be(5, 1) + be(1, 1) + be(1, 4)), attribute(2, be(2, 1) + be(2, 1) + be(1, 4)),
        attribute(2, be(2, 1)), attribute(2, as_path(2, {1})) + attribute(2, as_path(2, {1}))}) {
    Rib rib;
    MrtPaths paths;
    const auto report =
        parse_mrt(bytes_of(dump_of({{0, {}, "", "1.1.1.1"}, {2, {}, damaged, "2.2.2.2"}})), "dump", rib, {}, &paths);
    ASSERT_FALSE(report.ok());
    EXPECT_NE(to_string(report.error()).find("entry 2 has damaged path attributes"), std::string::npos);
    EXPECT_TRUE(paths.routes.empty() && paths.notes.empty());
  }
}

// The steps as RFC 4271 has them: from all paths take away those that are worse than another one, step by step. What is
// left first, then the same of the rest.
std::vector<size_t> ranked_by_elimination(const std::vector<std::array<uint32_t, 6>>& paths, size_t most) {
  std::vector<size_t> rest(paths.size()), order;
  for (size_t i = 0; i < rest.size(); ++i) rest[i] = i;
  while (!rest.empty() && order.size() < most) {
    std::vector<size_t> left = rest;
    const auto keep = [&](auto&& beats) {
      std::vector<size_t> kept;
      for (const size_t m : left) {
        bool beaten = false;
        for (const size_t n : left) beaten |= beats(paths[n], paths[m]);
        if (!beaten) kept.push_back(m);
      }
      left = std::move(kept);
    };
    // {local preference, length, origin, neighbouring AS, MED, peer}
    keep([](const auto& n, const auto& m) { return n[0] > m[0]; });
    keep([](const auto& n, const auto& m) { return n[1] < m[1]; });
    keep([](const auto& n, const auto& m) { return n[2] < m[2]; });
    keep([](const auto& n, const auto& m) { return n[3] == m[3] && n[4] < m[4]; });
    keep([](const auto& n, const auto& m) { return n[5] < m[5]; });
    order.push_back(left[0]);
    std::erase(rest, left[0]);
  }
  return order;
}

TEST(MrtBestPath, RanksAsEliminationDoes) {
  std::mt19937_64 random(4271);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 1 + random() % 12;
    std::vector<std::array<uint32_t, 6>> values;
    std::vector<TestPath> paths;
    std::vector<std::string> hops;
    for (size_t i = 0; i < count; ++i) hops.push_back("10.0.0." + std::to_string(i));
    for (size_t i = 0; i < count; ++i) {
      const auto some = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
      std::array<uint32_t, 6> v = {100 + some(2), 1 + some(2), some(2), 1 + some(3), some(3), 2 * some(2)};
      values.push_back(v);
      std::vector<uint32_t> ases(v[1], 50);
      ases[0] = v[3];
      paths.push_back({v[5], ases, attribute(1, be(v[2], 1)) + local_pref(v[0]) + med(v[4]), hops[i].c_str()});
    }
    std::string expected;
    const auto order = ranked_by_elimination(values, MrtOptions().paths);
    for (size_t i = 0; i < order.size(); ++i) expected += (i == 0 ? "" : " ") + hops[order[i]];
    ASSERT_EQ(ranking(dump_of(paths)), expected) << round;
    Rib best;
    ASSERT_TRUE(parse_mrt(bytes_of(dump_of(paths)), "dump", best).ok());
    ASSERT_EQ(hop_of(best, "10.0.0.0/8"), hops[order[0]]);
  }
}

// Paths are kept of what is asked about, the best one of all else.
TEST(MrtBestPath, OnlyWhatCoversTheQuestionKeepsItsPaths) {
  Rib rib;
  MrtPaths paths;
  const MrtOptions options{.peer = {}, .paths = 1, .about = parse_prefix("10.0.1.0/24")};
  ASSERT_TRUE(parse_mrt(bytes_of(sample()), "dump", rib, options, &paths).ok());
  ASSERT_EQ(paths.routes.size(), 2u);  // 10.0.0.0/8 and 0.0.0.0/0
  EXPECT_EQ(to_string(paths.routes[0].prefix), "10.0.0.0/8");
  rib.settle();
  EXPECT_EQ(rib.size(), 7u);
  EXPECT_EQ(hop_of(rib, "10.0.0.0/8"), "-");
}

TEST(Mrt, ReadsTheOlderTableDump) {
  auto dump = [](const char* prefix, unsigned length, const char* hop, const char* peer = "192.0.2.1",
                 unsigned ases = 1) {
    std::string path = be(2, 1) + be(ases, 1);
    for (unsigned i = 0; i < ases; ++i) path += be(65000 + i, 2);
    const std::string attributes = next_hop(hop) + attribute(2, path);
    return record(12, 1,
                  be(0, 4) + ip4(prefix) + be(length, 1) + be(1, 1) + be(0, 4) + ip4(peer) + be(65000, 2) +
                      be(attributes.size(), 2) + attributes);
  };
  Rib rib;
  auto report = parse_mrt(
      bytes_of(dump("10.0.0.0", 8, "192.0.2.1") + dump("10.0.0.0", 8, "192.0.2.2") + dump("10.0.0.0", 9, "192.0.2.2")),
      "dump", rib);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_EQ(report->routes4, 2u);
  EXPECT_EQ(hop_of(rib, "10.0.0.0/8"), "192.0.2.1");  // the first entry
  EXPECT_EQ(hop_of(rib, "10.0.0.0/9"), "192.0.2.2");
  // Neighbouring records of one prefix are its paths: a longer one, and one of a lower peer.
  const std::string three = dump("10.0.0.0", 8, "1.1.1.1", "192.0.2.1", 3) +
                            dump("10.0.0.0", 8, "2.2.2.2", "192.0.2.9") + dump("10.0.0.0", 8, "3.3.3.3", "192.0.2.4") +
                            dump("11.0.0.0", 8, "1.1.1.1", "192.0.2.1");
  Rib best;
  ASSERT_TRUE(parse_mrt(bytes_of(three), "dump", best).ok());
  EXPECT_EQ(hop_of(best, "10.0.0.0/8"), "3.3.3.3");
  EXPECT_EQ(hop_of(best, "11.0.0.0/8"), "1.1.1.1");
  Rib of_one;
  report = parse_mrt(bytes_of(three), "dump", of_one, {.peer = *parse_mrt_peer("192.0.2.1")});
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_EQ(hop_of(of_one, "10.0.0.0/8"), "1.1.1.1");
  for (const char* nobody : {"192.0.2.2", "AS1", "0"}) {
    Rib none;
    EXPECT_FALSE(parse_mrt(bytes_of(three), "dump", none, {.peer = *parse_mrt_peer(nobody)}).ok()) << nobody;
  }
}

TEST(Mrt, NamesRecordAndByteOfEachError) {
  Rib table;
  table.intern("keep");
  const std::string head = peers();
  const std::string first = rib(2, ip4("10.0.0.0"), 33, {entry(0, next_hop("192.0.2.1"))});
  const std::string second = rib(2, ip4("10.0.0.0"), 8, {entry(3, next_hop("192.0.2.1"))});
  const std::string third = rib(2, ip4("10.0.0.0"), 8, {entry(0, attribute(3, "abc"))});
  const std::string cut = rib(2, ip4("10.0.0.0"), 8, {entry(0, next_hop("192.0.2.1"))});
  auto report = parse_mrt(bytes_of(head + first + second + third + cut.substr(0, cut.size() - 1)), "dump", table);
  ASSERT_FALSE(report.ok());
  const auto& all = report.error().diagnostics;
  ASSERT_EQ(all.size(), 4u) << to_string(report.error());
  EXPECT_NE(all[0].message.find("record 2 at byte " + std::to_string(head.size()) + ": prefix length 33"),
            std::string::npos);
  EXPECT_NE(all[1].message.find("from peer 3 of 3"), std::string::npos);
  EXPECT_NE(all[2].message.find("damaged path attributes"), std::string::npos);
  EXPECT_NE(all[3].message.find("record 5 at byte"), std::string::npos);
  EXPECT_NE(all[3].message.find("truncated"), std::string::npos);
  EXPECT_EQ(table.next_hop_count(), 1u);
  EXPECT_TRUE(table.settled());
}

TEST(Mrt, RefusesWhatIsNoTable) {
  Rib table;
  EXPECT_FALSE(parse_mrt(bytes_of(""), "dump", table).ok());
  EXPECT_FALSE(parse_mrt(bytes_of("hello world, this is text"), "dump", table).ok());
  EXPECT_FALSE(parse_mrt(bytes_of(record(16, 4, "updates")), "dump", table).ok());
  EXPECT_FALSE(parse_mrt(bytes_of(rib(2, ip4("10.0.0.0"), 8, {})), "dump", table).ok());  // no peers before it
  EXPECT_FALSE(parse_mrt(bytes_of(be(0, 4) + be(13, 2) + be(1, 2) + be(0xffffffff, 4)), "dump", table).ok());
}

// Cut anywhere: an error, or (between records) the routes so far. Never a crash, and on an error nothing is left.
TEST(Mrt, TruncationAtEveryByte) {
  const std::string whole = sample();
  for (size_t n = 0; n < whole.size(); ++n) {
    Rib table;
    const auto report = parse_mrt(bytes_of(whole.substr(0, n)), "dump", table);
    ASSERT_TRUE(report.ok() || (table.settled() && table.next_hop_count() == 0));
  }
}

std::string gzip(const std::string& in) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, in.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}
std::string bzip(const std::string& in) {
  std::string out(in.size() * 2 + 1024, '\0');
  auto n = static_cast<unsigned>(out.size());
  EXPECT_EQ(
      BZ2_bzBuffToBuffCompress(out.data(), &n, const_cast<char*>(in.data()), static_cast<unsigned>(in.size()), 9, 0, 0),
      BZ_OK);
  out.resize(n);
  return out;
}

TEST(CompressedFile, MrtAndTextReadTheSameThroughGzipAndBzip2) {
  const std::string plain = sample();
  for (const std::string& packed : {gzip(plain), bzip(plain), gzip(plain.substr(0, 100)) + gzip(plain.substr(100)),
                                    bzip(plain.substr(0, 100)) + bzip(plain.substr(100))}) {
    Rib table;
    auto report = parse_mrt(bytes_of(packed), "dump", table);
    ASSERT_TRUE(report.ok()) << to_string(report.error());
    EXPECT_EQ(report->routes4, 5u);
    EXPECT_EQ(report->routes6, 4u);
    for (size_t n : {packed.size() - 1, packed.size() / 2, packed.size() - 8, size_t{12}}) {
      Rib cut;
      report = parse_mrt(bytes_of(packed.substr(0, n)), "dump", cut);
      ASSERT_FALSE(report.ok()) << n;
      EXPECT_NE(to_string(report.error()).find("truncated"), std::string::npos) << to_string(report.error());
    }
    std::string damaged = packed;
    damaged[packed.size() / 3] ^= 0x55;
    Rib none;
    EXPECT_FALSE(parse_mrt(bytes_of(damaged), "dump", none).ok());
  }
}

class RouteFiles : public ::testing::Test {
 protected:
  std::string write(const char* name, const std::string& bytes) {
    const auto dir = std::filesystem::temp_directory_path() / ("sluice_route_files_" + std::to_string(getpid()));
    std::filesystem::create_directories(dir);
    dir_ = dir;
    std::ofstream(dir / name, std::ios::binary) << bytes;
    return (dir / name).string();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

// Rule files go through the same reader, and so do the files that they include.
TEST_F(RouteFiles, RulesAreReadThroughGzipAndBzip2) {
  const std::string native = "define web = 80, 443\npermit tcp from any to any port web\ndeny from any to any\n";
  const std::string classbench = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n";
  const std::string included = write("inner.txt", gzip(native));
  for (const auto& pack : {gzip, bzip}) {
    RuleFormat found = RuleFormat::kAuto;
    auto rules = read_rules_file(write("a.acl", pack(native)), {}, &found);
    ASSERT_TRUE(rules.ok()) << to_string(rules.error());
    EXPECT_EQ(rules->rules.size(), 3u);
    EXPECT_EQ(found, RuleFormat::kNative);
    rules = read_rules_file(write("b.acl", pack(classbench)), {}, &found);
    ASSERT_TRUE(rules.ok()) << to_string(rules.error());
    EXPECT_EQ(rules->rules.size(), 1u);
    EXPECT_EQ(found, RuleFormat::kClassBench);
    rules = read_rules_file(write("c.acl", pack("include \"inner.txt\"\npermit from any to any\n")));
    ASSERT_TRUE(rules.ok()) << to_string(rules.error());
    EXPECT_EQ(rules->rules.size(), 4u);
    EXPECT_EQ(rules->files.at(rules->rules[0].file), included);
    const std::string bad = write("d.acl", pack("permit from any to any\npermitt from any to any\n"));
    EXPECT_EQ(read_rules_file(bad).error().diagnostics.at(0).line, 2u);
    const std::string packed = pack(native);
    const std::string cut = write("e.acl", packed.substr(0, packed.size() / 2));
    EXPECT_NE(to_string(read_rules_file(cut).error()).find("truncated"), std::string::npos);
    const std::string bomb = write("f.acl", pack(std::string(10 << 20, '#')));
    EXPECT_NE(read_text_file(bomb, 1 << 20).error().message.find("more than 1048576 bytes"), std::string::npos);
  }
  // An include is a file, never what could block or never end.
  const auto device = read_rules_file(write("g.acl", "include \"/dev/zero\"\n"));
  EXPECT_NE(to_string(device.error()).find("/dev/zero is not a regular file"), std::string::npos);
}

TEST_F(RouteFiles, FormatsAreToldApartByContent) {
  RouteReport report;
  // Names that say something else than the content.
  auto table = read_routes_files(
      {write("a.mrt", "10.9.0.0/16 text\n"), write("b.txt", sample()), write("c", gzip("10.0.0.0/8 last\n")),
       write("d.gz", bzip(sample().substr(0, peers().size()) +
                          rib(2, ip4("10.8.0.0"), 16, {entry(0, next_hop("192.0.2.8"))})))},
      &report);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  EXPECT_EQ(hop_of(*table, "10.9.0.0/16"), "text");
  EXPECT_EQ(hop_of(*table, "10.0.0.0/8"), "last");
  EXPECT_EQ(hop_of(*table, "10.8.0.0/16"), "192.0.2.8");
  EXPECT_EQ(report.routes4, 8u);
  EXPECT_TRUE(table->settled());
}

// All paths of a dump are candidates of one source, by rank; the next one takes over, and a later file's count alone.
TEST_F(RouteFiles, PathsOfADumpAreCandidates) {
  const std::string first =
      write("a", dump_of({{0, {1, 2}, "", "1.1.1.1"}, {1, {3}, "", "3.3.3.3"}, {2, {1}, med(4), "2.2.2.2"}}));
  auto rib = read_route_sources({first});
  ASSERT_TRUE(rib.ok()) << to_string(rib.error());
  const IpPrefix ten = *parse_prefix("10.0.0.0/8");
  const auto hops = [&] {
    std::string said;
    for (const RouteCandidate& c : rib->candidates(ten))
      said +=
          rib->source_name(c.source) + " " + rib->next_hops().name(c.next_hop) + " " + std::to_string(c.metric) + "; ";
    return said;
  };
  EXPECT_EQ(hops(), "bgp 3.3.3.3 0; bgp 2.2.2.2 1; bgp 1.1.1.1 2; ");
  EXPECT_EQ(rib->note(rib->candidates(ten)[2].note).behind, "longer AS path");
  EXPECT_TRUE(rib->remove(ten, rib->find_source("bgp"), 0));
  EXPECT_EQ(rib->next_hops().name(rib->best(ten)), "2.2.2.2");
  const std::string second = write("b", dump_of({{2, {1}, "", "4.4.4.4"}}));
  rib = read_route_sources({first, second});
  ASSERT_TRUE(rib.ok());
  EXPECT_EQ(hops(), "bgp 4.4.4.4 0; ");
  rib = read_route_sources({first + ",peer=192.0.2.1", second + ",source=other,preference=30"});
  ASSERT_TRUE(rib.ok());
  EXPECT_EQ(hops(), "bgp 1.1.1.1 0; other 4.4.4.4 0; ");
  // The best routes alone are the same by the shorter way.
  const auto best = read_routes_files({first});
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(hop_of(*best, "10.0.0.0/8"), "3.3.3.3");
}

TEST_F(RouteFiles, ErrorsOfEveryFileComeTogether) {
  auto table = read_routes_files({write("a", "10.0.0.0/8\n"), "/nonexistent/file",
                                  write("b", std::string("\xfd"
                                                         "7zXZ\0 and so on",
                                                         16)),
                                  write("e", "oops\n")});
  ASSERT_FALSE(table.ok());
  const std::string text = to_string(table.error());
  for (const char* wanted :
       {"has no next hop", "/nonexistent/file: cannot open", "xz data is damaged", "'oops' is not a prefix"}) {
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << "\n" << text;
  }
}

// A second decoder that shares nothing with the first: it walks the bytes by plain indexing and trusts them.
struct Decoded {
  std::map<std::string, std::string> best_hop;
  size_t prefixes = 0;
};
Decoded decode_trusting(const std::string& d) {
  auto u = [&](size_t at, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; ++i) v = v * 256 + static_cast<unsigned char>(d.at(at + i));
    return v;
  };
  auto address = [&](size_t at, int family) {
    return family == 4 ? IpAddress{0, u(at, 4), 4} : IpAddress{u(at, 8), u(at + 8, 8), 6};
  };
  struct Said {
    std::string hop, peer;
    std::array<uint32_t, 6> values;
  };
  struct Known {
    std::string key;  // in the order of identifiers, then of addresses
    uint32_t as = 0;
  };
  std::map<std::string, std::vector<Said>> all;
  std::vector<Known> known;
  std::string last;
  Decoded out;
  for (size_t at = 0; at < d.size();) {
    const auto type = u(at + 4, 2), subtype = u(at + 6, 2), length = u(at + 8, 4);
    size_t p = at + 12;
    at = p + length;
    int family = 0;
    size_t entries = 1, extra = 0, as_bytes = 4;
    std::string prefix;
    Known old;
    if (type == 13 && subtype == 1) {
      known.clear();
      p += 6 + u(p + 4, 2);
      const auto count = u(p, 2);
      p += 2;
      for (size_t i = 0; i < count; ++i) {
        const auto kind = u(p, 1);
        const size_t wide = kind & 1 ? 16 : 4, as = kind & 2 ? 4 : 2;
        known.push_back(
            {d.substr(p + 1, 4) + be(wide, 1) + d.substr(p + 5, wide), static_cast<uint32_t>(u(p + 5 + wide, as))});
        p += 5 + wide + as;
      }
      continue;
    }
    if (type == 13 && (subtype == 2 || subtype == 4 || subtype == 8 || subtype == 10)) {
      family = subtype == 2 || subtype == 8 ? 4 : 6;
      extra = subtype >= 8 ? 4 : 0;
      const auto bits = u(p + 4, 1);
      const size_t n = (bits + 7) / 8;
      uint64_t words[2] = {0, 0};
      for (size_t i = 0; i < n; ++i) words[i / 8] |= u(p + 5 + i, 1) << (56 - 8 * (i % 8));
      const IpAddress a = family == 4 ? IpAddress{0, words[0] >> 32, 4} : IpAddress{words[0], words[1], 6};
      prefix = to_string(a) + "/" + std::to_string(bits);
      entries = u(p + 5 + n, 2);
      p += 7 + n;
    } else if (type == 12) {
      family = subtype == 1 ? 4 : 6;
      const size_t n = family == 4 ? 4 : 16;
      prefix = to_string(address(p + 4, family)) + "/" + std::to_string(u(p + 4 + n, 1));
      old = {d.substr(p + 4 + n + 6, n), static_cast<uint32_t>(u(p + 4 + n + 6 + n, 2))};
      as_bytes = 2;
      p += 4 + n + 1 + 1 + 4 + n + 2 - 6;  // so that the entry's attribute length stands where it does below
    } else {
      continue;
    }
    ++out.prefixes;
    auto& paths = all[prefix];
    if (type == 13 || last != prefix) paths.clear();
    last = prefix;
    for (size_t e = 0; e < entries; ++e) {
      const Known& peer = type == 13 ? known.at(u(p, 2)) : old;
      const size_t size = u(p + 6 + extra, 2);
      size_t a = p + 8 + extra;
      const size_t end = a + size;
      p = end;
      std::string v4, v6;
      std::array<uint32_t, 6> values = {100, 0, 2, peer.as, 0, 0};
      while (a < end) {
        const bool wide = (u(a, 1) & 0x10) != 0;
        const auto code = u(a + 1, 1);
        const size_t n = wide ? u(a + 2, 2) : u(a + 2, 1);
        const size_t value = a + (wide ? 4 : 3);
        if (code == 1) values[2] = static_cast<uint32_t>(u(value, 1));
        if (code == 4) values[4] = static_cast<uint32_t>(u(value, 4));
        if (code == 5) values[0] = static_cast<uint32_t>(u(value, 4));
        bool none_yet = true;
        for (size_t s = value; code == 2 && s < value + n;) {
          const auto kind = u(s, 1), count = u(s + 1, 1);
          if (kind == 2 && none_yet && count > 0) values[3] = static_cast<uint32_t>(u(s + 2, as_bytes));
          if (kind <= 2 && count > 0) none_yet = false;
          values[1] += static_cast<uint32_t>(kind == 1 && count > 0 ? 1 : kind == 2 ? count : 0);
          s += 2 + count * as_bytes;
        }
        if (code == 3) v4 = to_string(address(value, 4));
        if (code == 14) v6 = to_string(address(value + (u(value, 1) == 0 ? 4 : 1), 6));
        a = value + n;
      }
      const std::string hop = family == 4 ? (v4.empty() ? v6 : v4) : (v6.empty() ? v4 : v6);
      if (!hop.empty()) paths.push_back({hop, peer.key, values});
    }
  }
  for (auto& [prefix, paths] : all) {
    if (paths.empty()) continue;
    std::stable_sort(paths.begin(), paths.end(), [](const Said& a, const Said& b) { return a.peer < b.peer; });
    std::vector<std::array<uint32_t, 6>> values;
    for (Said& s : paths) {
      s.values[5] = static_cast<uint32_t>(values.size());
      values.push_back(s.values);
    }
    out.best_hop[prefix] = paths[ranked_by_elimination(values, 1)[0]].hop;
  }
  return out;
}

TEST(Mrt, RealDumpsMatchAnIndependentDecoder) {
  size_t checked = 0;
  for (const char* name :
       {"ipv4-routeviews-20140523.0600-first1500.mrt.xz", "ipv6-routeviews-20151101.0600-first1000.mrt.xz",
        "mrtparse-bird-mrtdump_rib", "mrtparse-bird6-mrtdump_rib", "mrtparse-openbgpd_rib_table",
        "mrtparse-openbgpd_rib_table-v2", "mrtparse-quagga_rib"}) {
    const auto path = test_data((std::string("rib/mrt/") + name).c_str());
    if (!path) continue;
    std::string bytes;
    FILE* pipe = popen(((path->ends_with(".xz") ? "xz -dc '" : "cat '") + *path + "'").c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe)) > 0;) bytes.append(chunk, n);
    ASSERT_EQ(pclose(pipe), 0) << name;
    const Decoded expected = decode_trusting(bytes);
    ASSERT_GT(expected.prefixes, 0u) << name;  // one of them was written without any next hop
    Rib table;
    auto report = parse_mrt(bytes_of(bytes), name, table);
    ASSERT_TRUE(report.ok()) << to_string(report.error());
    table.settle();
    EXPECT_EQ(table.size(), expected.best_hop.size()) << name;
    for (const auto& [prefix, hop] : expected.best_hop)
      EXPECT_EQ(hop_of(table, prefix.c_str()), hop) << name << " " << prefix;
    std::printf("  %s: %zu prefixes, %zu IPv4 and %zu IPv6 routes, %zu skipped\n", name, expected.prefixes,
                report->routes4, report->routes6, report->skipped);
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "no real dumps: set SLUICE_DATA to a folder with rib/mrt";
}

}  // namespace
}  // namespace sluice
