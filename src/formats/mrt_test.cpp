// MRT: built records with each feature, damage at every byte, and real dumps against an independent decoder below.
#include "formats/mrt.h"

#include <bzlib.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "base/test_data.h"
#include "formats/compressed_file.h"
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
  auto report = parse_mrt(bytes_of(sample()), "dump", rib, {.peer = 2});
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_EQ(report->routes4, 3u);
  EXPECT_EQ(report->routes6, 0u);
  EXPECT_EQ(hop_of(rib, "10.0.0.0/8"), "192.0.2.3");
  Rib none;
  report = parse_mrt(bytes_of(sample()), "dump", none, {.peer = 3});
  ASSERT_FALSE(report.ok());
  EXPECT_NE(to_string(report.error()).find("expected: 0 to 2"), std::string::npos);
}

TEST(Mrt, ReadsTheOlderTableDump) {
  auto dump = [](const char* prefix, unsigned length, const char* hop) {
    return record(12, 1,
                  be(0, 4) + ip4(prefix) + be(length, 1) + be(1, 1) + be(0, 4) + ip4("192.0.2.1") + be(65000, 2) +
                      be(next_hop(hop).size(), 2) + next_hop(hop));
  };
  Rib rib;
  auto report = parse_mrt(
      bytes_of(dump("10.0.0.0", 8, "192.0.2.1") + dump("10.0.0.0", 8, "192.0.2.2") + dump("10.0.0.0", 9, "192.0.2.2")),
      "dump", rib);
  ASSERT_TRUE(report.ok()) << to_string(report.error());
  EXPECT_EQ(report->routes4, 2u);
  EXPECT_EQ(hop_of(rib, "10.0.0.0/8"), "192.0.2.1");  // the first entry
  EXPECT_EQ(hop_of(rib, "10.0.0.0/9"), "192.0.2.2");
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

// libbz2 reads past its block when it is called again after a wrong checksum.
TEST(CompressedFile, AnErrorStays) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "10.0.0.0/8 gateway " + std::to_string(i) + "\n";
  std::string wrong_block = bzip(text), wrong_end = gzip(text);
  wrong_block[10] ^= 1;  // the block's checksum
  wrong_end[wrong_end.size() - 8] ^= 1;
  for (const std::string& damaged : {wrong_block, wrong_end}) {
    auto stream =
        ByteStream::over({reinterpret_cast<const std::byte*>(damaged.data()), damaged.size()}, "file", 1 << 20);
    ASSERT_TRUE(stream.ok());
    std::vector<std::byte> out(1 << 16);
    const auto first = stream->read(out);
    ASSERT_FALSE(first.ok());
    for (int again = 0; again < 3; ++again) {
      const auto n = stream->read(out);
      ASSERT_FALSE(n.ok());
      EXPECT_EQ(n.error().message, first.error().message);
    }
  }
}

TEST(CompressedFile, OutputIsBounded) {
  const std::string bomb = gzip(std::string(10 << 20, 'x'));
  auto stream = ByteStream::over(bytes_of(bomb), "bomb", 1 << 20);
  ASSERT_TRUE(stream.ok());
  auto all = read_all(*stream, 1 << 30);
  ASSERT_FALSE(all.ok());
  EXPECT_NE(all.error().message.find("more than 1048576 bytes"), std::string::npos);
  auto wide = ByteStream::over(bytes_of(bomb), "bomb");
  EXPECT_FALSE(read_all(*wide, 1 << 20).ok());
}

TEST(CompressedFile, ATextIsHeldUpToItsLimit) {
  const std::string text(200000, 'x');
  const std::string packed = gzip(text);
  for (const size_t limit : {text.size() + 1, text.size()}) {
    auto stream = ByteStream::over(bytes_of(packed), "text");
    auto all = read_all(*stream, limit);
    ASSERT_TRUE(all.ok()) << limit;
    EXPECT_EQ(*all, text);
    EXPECT_LE(all->capacity(), 2 * limit);
  }
  auto stream = ByteStream::over(bytes_of(packed), "text");
  EXPECT_FALSE(read_all(*stream, text.size() - 1).ok());
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
    EXPECT_NE(read_text_file(bomb, 1 << 20).error().message.find("more than 1048576 bytes of text"), std::string::npos);
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

TEST_F(RouteFiles, ErrorsOfEveryFileComeTogether) {
  auto table = read_routes_files({write("a", "10.0.0.0/8\n"), "/nonexistent/file",
                                  write("b", std::string("\xfd"
                                                         "7zXZ\0 and so on",
                                                         16)),
                                  write("e", "oops\n")});
  ASSERT_FALSE(table.ok());
  const std::string text = to_string(table.error());
  for (const char* wanted : {"has no next hop", "cannot open /nonexistent/file", "xz compression is not supported",
                             "'oops' is not a prefix"}) {
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << "\n" << text;
  }
}

// A second decoder that shares nothing with the first: it walks the bytes by plain indexing and trusts them.
struct Decoded {
  std::map<std::string, std::string> first_hop;
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
  Decoded out;
  for (size_t at = 0; at < d.size();) {
    const auto type = u(at + 4, 2), subtype = u(at + 6, 2), length = u(at + 8, 4);
    size_t p = at + 12;
    at = p + length;
    int family = 0;
    size_t entries = 1, extra = 0;
    std::string prefix;
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
      p += 4 + n + 1 + 1 + 4 + n + 2 - 6;  // so that the entry's attribute length stands where it does below
    } else {
      continue;
    }
    ++out.prefixes;
    for (size_t e = 0; e < entries; ++e) {
      const size_t size = u(p + 6 + extra, 2);
      size_t a = p + 8 + extra;
      const size_t end = a + size;
      p = end;
      std::string v4, v6;
      while (a < end) {
        const bool wide = (u(a, 1) & 0x10) != 0;
        const auto code = u(a + 1, 1);
        const size_t n = wide ? u(a + 2, 2) : u(a + 2, 1);
        const size_t value = a + (wide ? 4 : 3);
        if (code == 3) v4 = to_string(address(value, 4));
        if (code == 14) v6 = to_string(address(value + (u(value, 1) == 0 ? 4 : 1), 6));
        a = value + n;
      }
      const std::string hop = family == 4 ? (v4.empty() ? v6 : v4) : (v6.empty() ? v4 : v6);
      if (!hop.empty()) out.first_hop.emplace(prefix, hop);  // the first stays
    }
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
    EXPECT_EQ(table.size(), expected.first_hop.size()) << name;
    for (const auto& [prefix, hop] : expected.first_hop)
      EXPECT_EQ(hop_of(table, prefix.c_str()), hop) << name << " " << prefix;
    std::printf("  %s: %zu prefixes, %zu IPv4 and %zu IPv6 routes, %zu skipped\n", name, expected.prefixes,
                report->routes4, report->routes6, report->skipped);
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "no real dumps: set SLUICE_DATA to a folder with rib/mrt";
}

}  // namespace
}  // namespace sluice
