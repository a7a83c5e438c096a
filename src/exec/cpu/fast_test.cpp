#include "exec/cpu/fast.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "elements/stages.h"
#include "exec/device/record.h"
#include "net/edit.h"
#include "net/packet_builder.h"
#include "net/parse.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

uint64_t next(uint64_t& state) {
  return mix64(state += 0x9e3779b97f4a7c15ull);
}

// A batch of common packets with every third damaged somewhere in its headers or its extent.
Batch mixed(uint32_t packets, uint64_t seed) {
  Batch batch = *Batch::create(packets, size_t{packets} * 512);
  for (uint32_t i = 0; i < packets; ++i) {
    const uint64_t r = next(seed);
    auto b = (r & 1) != 0        ? tcp4("10.1.2.3", "192.0.2.9").tcp_flags(static_cast<uint8_t>(r >> 8))
             : (r >> 1 & 3) != 0 ? udp4("10.1.2.3", "192.0.2.9")
                                 : icmp4("10.1.2.3", "192.0.2.9").icmp(static_cast<uint8_t>(r >> 8), 3).payload(8);
    b.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}});
    if ((r & 7) != 0) b.ports(static_cast<uint16_t>(r >> 16), static_cast<uint16_t>(r >> 32));
    b.ttl(static_cast<uint8_t>(r >> 3)).dscp(static_cast<uint8_t>(r >> 40 & 63));
    if ((r >> 50 & 1) != 0) b.size(64 + static_cast<uint32_t>(r >> 51 & 63));
    std::vector<uint8_t> bytes = b.build();
    uint32_t wire = static_cast<uint32_t>(bytes.size());
    if (r % 3 == 0) bytes[(r >> 20) % 42] ^= static_cast<uint8_t>(1u << (r >> 28 & 7));
    if (r % 3 == 0 && r % 2 == 0) store_be16(bytes.data() + 24, ipv4_header_checksum(bytes.data() + 14, 20));
    if (r % 17 == 0) wire += 5;
    uint8_t* to = batch.reserve(bytes.size());
    std::memcpy(to, bytes.data(), bytes.size());
    batch.push(to, static_cast<uint32_t>(bytes.size()), wire, i, i);
    if (r % 19 == 0) batch.extent(i).data = 4;
  }
  return batch;
}

// A batch of frames of every kind: both families, up to three tags, options, extension headers, fragments, martians,
// expired, padded, cut, damaged somewhere in the first 80 bytes, or shorter than any header.
Batch motley(uint32_t packets, uint64_t seed) {
  Batch batch = *Batch::create(packets, size_t{packets} * 768);
  const char* const sources4[] = {"10.1.2.3", "198.51.100.7", "127.0.0.1", "224.1.2.3", "169.254.3.4"};
  const char* const sources6[] = {"2001:db8::1", "fd00::5", "fe80::1", "::1", "ff02::5"};
  const uint8_t options[] = {7, 4, 5, 0}, route[] = {131, 3, 4, 0}, record[] = {7, 7, 4, 0, 0, 0, 0, 0};
  const uint8_t cut[] = {1, 7, 9, 4}, full[40] = {148, 4, 0, 0, 68, 36, 5, 0};
  const std::span<const uint8_t> lists[] = {options, record, full, route, cut};
  const uint16_t tags[] = {0x8100, 0x88a8, 0x9100};
  for (uint32_t i = 0; i < packets; ++i) {
    const auto random = [&](uint32_t below) { return static_cast<uint32_t>(next(seed) % below); };
    const bool six = random(2) == 0;
    const uint32_t source = random(4) == 0 ? random(5) : random(2);
    const uint8_t protocols[] = {kProtocolTcp, kProtocolUdp, six ? kProtocolIcmpv6 : kProtocolIcmp, kProtocolGre,
                                 kProtocolSctp};
    const uint8_t protocol = protocols[random(4) == 0 ? random(5) : random(3)];
    auto b = six ? ip6(sources6[source], random(9) == 0 ? "ff0e::9" : "2001:db8:7::9", protocol)
                 : ip4(sources4[source], random(9) == 0 ? "239.1.2.3" : "192.0.2.9", protocol);
    b.macs(random(12) == 0 ? MacAddress{{255, 255, 255, 255, 255, 255}} : MacAddress{{2, 0, 0, 0, 0, 9}},
           MacAddress{{2, 0, 0, 0, 0, 8}});
    for (uint32_t t = random(3) == 0 ? random(4) : 0; t > 0; --t) {
      b.vlan(static_cast<uint16_t>(random(4096)), static_cast<uint8_t>(random(8)), tags[random(3)]);
    }
    b.ports(static_cast<uint16_t>(random(65536)), static_cast<uint16_t>(random(65536)));
    b.tcp_flags(static_cast<uint8_t>(random(256))).icmp(static_cast<uint8_t>(random(256)), 3);
    const uint8_t ttls[] = {0, 1, 2, 64, 255};
    b.ttl(ttls[random(5)]).dscp(static_cast<uint8_t>(random(64))).dont_fragment(random(2) == 0);
    if (random(2) == 0) b.payload(8 + random(40));
    if (random(6) == 0) {
      if (six) {
        random(2) == 0 ? b.hop_by_hop().destination_options(2) : b.routing(static_cast<uint8_t>(random(2)), 1);
      } else {
        b.ipv4_options(lists[random(3) == 0 ? random(5) : random(3)]);
      }
    }
    if (random(6) == 0) b.fragment(8 * random(4), random(2) == 0);
    if (random(3) == 0) b.size(64 + random(64));
    std::vector<uint8_t> bytes = b.build();
    const auto wire = static_cast<uint32_t>(bytes.size() + (random(20) == 0 ? 5 : 0));
    if (random(5) == 0) bytes[random(80) % bytes.size()] ^= static_cast<uint8_t>(1u << random(8));
    if (random(8) == 0) bytes.resize(random(static_cast<uint32_t>(bytes.size())));
    uint8_t* to = batch.reserve(bytes.size());
    std::memcpy(to, bytes.data(), bytes.size());
    batch.push(to, static_cast<uint32_t>(bytes.size()), random(8) == 0 ? wire : static_cast<uint32_t>(bytes.size()), i,
               i);
    if (random(19) == 0) batch.extent(i).data = 4;
  }
  return batch;
}

void expect_same_lanes(const FastBurst& a, const FastBurst& b, uint64_t seed) {
  ASSERT_EQ(a.count, b.count) << seed;
  ASSERT_EQ(a.family, b.family) << seed;
  for (uint32_t i = 0; i < a.count; ++i) {
    EXPECT_TRUE(a.key(i) == b.key(i)) << seed;
    EXPECT_EQ(a.rest[i], b.rest[i]) << seed;
    EXPECT_EQ(a.ip[i], b.ip[i]) << seed;
    EXPECT_EQ(a.row[i], b.row[i]) << seed;
    EXPECT_EQ(a.length[i], b.length[i]) << seed;
    EXPECT_EQ(a.ip_bytes[i], b.ip_bytes[i]) << seed;
    EXPECT_EQ(a.places[i], b.places[i]) << seed;
    EXPECT_EQ(a.link[i], b.link[i]) << seed;
    if (a.l3(i) != 14) {
      EXPECT_EQ(a.tci[i], b.tci[i]) << seed;
    }
    EXPECT_EQ(a.hop[i], b.hop[i]) << seed;
    EXPECT_EQ(a.odd >> i & 1, b.odd >> i & 1) << seed;
    if ((a.odd >> i & 1) != 0) {
      EXPECT_EQ(a.flags[i], b.flags[i]) << seed;
    }
    EXPECT_EQ(a.rule[i], 0u);
    EXPECT_EQ(a.next_hop[i], 0u);
    EXPECT_EQ(b.rule[i], 0u);
    EXPECT_EQ(b.next_hop[i], 0u);
  }
}

TEST(Fast, VectorsGatherWhatScalarsDo) {
  size_t gathered[kFastForms] = {};
  for (uint64_t seed = 1; seed <= 1600; ++seed) {
    const auto form = static_cast<FastForm>(seed / 4 % kFastForms);
    const uint32_t n = 1 + static_cast<uint32_t>(seed * 7 % 32);
    Batch batch = form == FastForm::kIpv4 && seed % 4 < 2 ? mixed(64, seed) : motley(64, seed);
    uint32_t rows[32];
    uint64_t state = seed;
    // Every other time rows that follow one another.
    const uint32_t from_row = static_cast<uint32_t>(next(state) % 33);
    for (uint32_t i = 0; i < n; ++i) rows[i] = seed % 2 == 0 ? from_row + i : static_cast<uint32_t>(next(state) % 64);
    FastBurst a, b;
    std::memset(static_cast<void*>(&a), 0xa5, sizeof a);
    std::memset(static_cast<void*>(&b), 0x5a, sizeof b);
    // In two parts: the second is appended.
    a.clear();
    b.clear();
    a.family = b.family = static_cast<uint8_t>(family_of(form));
    uint32_t rest_a[32], rest_b[32];
    const uint32_t first = n / 3;
    const BatchView view = batch.view();
    for (const auto& [from, some] : {std::pair{0u, first}, std::pair{first, n - first}}) {
      const uint32_t left = gather_alike(form, view, rows + from, some, a, rest_a);
      ASSERT_EQ(left, gather_alike_scalar(form, view, rows + from, some, b, rest_b)) << seed;
      for (uint32_t i = 0; i < left; ++i) EXPECT_EQ(rest_a[i], rest_b[i]) << seed;
    }
    gathered[static_cast<uint32_t>(form)] += a.count;
    expect_same_lanes(a, b, seed);
  }
  for (const size_t of_form : gathered) EXPECT_GT(of_form, 50u);
}

TEST(Fast, VectorsSortAndGatherWhatScalarsDo) {
  size_t fours = 0, sixes = 0, tagged = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const uint32_t n = 1 + static_cast<uint32_t>(seed * 7 % 64);
    Batch batch = motley(64, seed);
    const BatchView view = batch.view();
    uint32_t rows[64];
    uint64_t state = seed;
    for (uint32_t i = 0; i < n; ++i) rows[i] = seed % 2 == 0 ? i : static_cast<uint32_t>(next(state) % 64);
    LinkedRows linked[2][2];
    uint32_t rest[2][64];
    const uint32_t left = sort_rows(view, rows, n, linked[0][0], linked[0][1], rest[0]);
    ASSERT_EQ(left, sort_rows_scalar(view, rows, n, linked[1][0], linked[1][1], rest[1])) << seed;
    for (uint32_t i = 0; i < left; ++i) ASSERT_EQ(rest[0][i], rest[1][i]) << seed;
    for (const unsigned of : {0u, 1u}) {
      const LinkedRows& from = linked[0][of];
      ASSERT_EQ(from.count, linked[1][of].count) << seed;
      uint32_t untagged = 0;
      for (uint32_t i = 0; i < from.count; ++i) untagged += (from.link[i] & 0xffff) == 14 ? 1 : 0;
      ASSERT_EQ(from.untagged, untagged) << seed;
      ASSERT_EQ(linked[1][of].untagged, untagged) << seed;
      for (uint32_t i = 0; i < from.count; ++i) {
        ASSERT_EQ(from.row[i], linked[1][of].row[i]) << seed;
        ASSERT_EQ(from.link[i], linked[1][of].link[i]) << seed;
      }
      FastBurst a, b;
      std::memset(static_cast<void*>(&a), 0xa5, sizeof a);
      std::memset(static_cast<void*>(&b), 0x5a, sizeof b);
      a.clear();
      b.clear();
      a.family = b.family = of == 0 ? 4 : 6;
      const uint32_t all = std::min(from.count, FastBurst::kLanes), first = all / 3;
      for (const auto& [at, some] : {std::pair{0u, first}, std::pair{first, all - first}}) {
        const uint32_t others = gather_linked(view, from, at, some, a, rest[0]);
        ASSERT_EQ(others, gather_linked_scalar(view, from, at, some, b, rest[1])) << seed;
        for (uint32_t i = 0; i < others; ++i) ASSERT_EQ(rest[0][i], rest[1][i]) << seed;
      }
      (of == 0 ? fours : sixes) += a.count;
      for (uint32_t i = 0; i < a.count; ++i) tagged += a.l3(i) != 14;
      expect_same_lanes(a, b, seed);
    }
  }
  EXPECT_GT(fours, 1000u);
  EXPECT_GT(sixes, 1000u);
  EXPECT_GT(tagged, 300u);
}

// Bursts that are filled by whole steps, each beginning with what came past the last lane of the one before, hold
// together what one packet at a time gives, in its order. Into two bursts in turns, and into one.
TEST(Fast, LanesPastTheLastBeginTheNextBurst) {
  size_t handed_on = 0, odd_handed_on = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    constexpr uint32_t kRows = LinkedRows::kMost;
    Batch batch = seed % 4 < 2 ? mixed(kRows, seed) : motley(kRows, seed);
    const BatchView view = batch.view();
    uint32_t rows[kRows], rest[kRows];
    for (uint32_t i = 0; i < kRows; ++i) rows[i] = i;
    LinkedRows linked[2];
    sort_rows(view, rows, kRows, linked[0], linked[1], rest);
    // Plain packets of all rows, and those of each family.
    for (const unsigned of : {0u, 1u, 2u}) {
      const uint32_t n = of == 0 ? kRows : linked[of - 1].count;
      const auto gather = [&](uint32_t at, uint32_t some, FastBurst& burst) {
        return of == 0 ? gather_alike(FastForm::kIpv4, view, rows + at, some, burst, rest)
                       : gather_linked(view, linked[of - 1], at, some, burst, rest);
      };
      const uint8_t family = of == 2 ? 6 : 4;
      FastBurst bursts[2], alone;
      std::memset(static_cast<void*>(bursts), 0xa5, sizeof bursts);
      for (FastBurst& burst : bursts) burst.clear(), burst.family = family;
      FastBurst* burst = &bursts[0];
      uint32_t looked = 0;  // at rows, by the packets that come alone
      const auto compare = [&] {
        for (uint32_t i = 0; i < burst->count; ++i) {
          FastBurst one;
          std::memset(static_cast<void*>(&one), 0x5a, sizeof one);
          one.clear();
          one.family = family;
          while (one.count == 0 && looked < n) {
            of == 0 ? gather_alike_scalar(FastForm::kIpv4, view, rows + looked, 1, one, rest)
                    : gather_linked_scalar(view, linked[of - 1], looked, 1, one, rest);
            ++looked;
          }
          ASSERT_EQ(one.count, 1u) << seed;
          std::memset(static_cast<void*>(&alone), 0xa5, sizeof alone);
          alone.clear();
          alone.family = family;
          // Lane i as the only one of a burst.
          alone.set_key(0, burst->key(i));
          alone.rest[0] = burst->rest[i];
          alone.ip[0] = burst->ip[i];
          alone.row[0] = burst->row[i];
          alone.length[0] = burst->length[i];
          alone.ip_bytes[0] = burst->ip_bytes[i];
          alone.places[0] = burst->places[i];
          alone.link[0] = burst->link[i];
          alone.tci[0] = burst->tci[i];
          alone.hop[0] = burst->hop[i];
          alone.flags[0] = burst->flags[i];
          alone.odd = burst->odd >> i & 1;
          alone.rule[0] = burst->rule[i];
          alone.next_hop[0] = burst->next_hop[i];
          alone.count = 1;
          expect_same_lanes(alone, one, seed);
        }
      };
      for (uint32_t at = 0; at < n;) {
        const uint32_t some = std::min(n - at, gather_most(*burst));
        gather(at, some, *burst);
        at += some;
        if (burst->count < FastBurst::kLanes) continue;
        const uint32_t extra = burst->count - FastBurst::kLanes;
        ASSERT_LE(extra, 16u);
        burst->count = FastBurst::kLanes;
        compare();
        FastBurst* const following = seed % 2 == 0 ? burst : &bursts[burst == &bursts[0] ? 1 : 0];
        odd_handed_on += (burst->odd >> FastBurst::kLanes) != 0;
        extra != 0 ? following->take_extra(*burst, extra) : following->clear();
        burst = following;
        handed_on += extra;
      }
      compare();
    }
  }
  EXPECT_GT(handed_on, 1000u);
  EXPECT_GT(odd_handed_on, 0u);
}

bool same_registers(const Packet& a, const Packet& b) {
  return a.frame == b.frame && a.data == b.data && a.end == b.end && a.wire_end == b.wire_end && a.l3 == b.l3 &&
         a.l4 == b.l4 && a.ether_type == b.ether_type && a.vlan_tci == b.vlan_tci && a.vlan_count == b.vlan_count &&
         a.ip_flags == b.ip_flags && a.ttl == b.ttl && a.key == b.key;
}

// Every packet that IPInput passes has in a burst, however it came there, the registers that IPInput gives it; and what
// it does not pass comes to no burst. With padding cut off and kept.
TEST(Fast, LanesHaveTheRegistersThatIpInputGives) {
  size_t common = 0, odd = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    IpInputStage stage;
    stage.trim_padding = seed % 3 != 0;
    stage.drop_multicast = seed % 5 != 0;
    stage.drop_link_broadcast = seed % 5 != 0;
    stage.check_martians = seed % 7 != 0;
    Batch batch = motley(64, seed);
    const BatchView view = batch.view();
    uint32_t rows[64], rest[64];
    for (uint32_t i = 0; i < 64; ++i) rows[i] = i;
    LinkedRows linked[2];
    FastBurst bursts[2][4];
    for (const unsigned of : {0u, 1u}) {
      for (FastBurst& burst : bursts[of]) {
        burst.clear();
        burst.family = of == 0 ? 4 : 6;
      }
    }
    uint32_t left = sort_rows(view, rows, 64, linked[0], linked[1], rest);
    for (const unsigned of : {0u, 1u}) {
      for (uint32_t at = 0, k = 0; at < linked[of].count; at += 32, ++k) {
        const uint32_t some = std::min(32u, linked[of].count - at);
        left += gather_linked(view, linked[of], at, some, bursts[of][k], rest + left);
      }
    }
    std::vector<bool> seen(64);
    for (uint32_t i = 0; i < left; ++i) {
      Packet p;
      view.load(rest[i], 0, p);
      if (p.data != 0 || p.end != p.wire_end || stage(p) != 0 || is_rare_key(p.key)) {
        seen[rest[i]] = true;
        continue;
      }
      const unsigned of = p.key.family == 6 ? 1 : 0;
      FastBurst& burst = bursts[of][2].count < 32 ? bursts[of][2] : bursts[of][3];
      append_parsed(p, rest[i], view.extent[rest[i]].end, burst);
      ++odd;
    }
    for (auto& of : bursts) {
      for (FastBurst& burst : of) {
        fast_code().close(burst, stage.trim_padding != 0);
        burst.hopped = burst.rewritten = burst.marked = burst.detailed = 0;
        std::vector<Packet> want(32);
        for (uint32_t i = 0; i < burst.count; ++i) {
          view.load(burst.row[i], 0, want[i]);
          ASSERT_EQ(stage(want[i]), 0) << seed << " row " << burst.row[i];
        }
        fast_code().commit(view, burst, burst.lanes(), true);
        for (uint32_t i = 0; i < burst.count; ++i) {
          Packet got;
          registers_of(view, burst, i, got);
          ASSERT_TRUE(same_registers(got, want[i])) << seed << " row " << burst.row[i];
          EXPECT_EQ(burst.bytes(i), want[i].length());
          ASSERT_FALSE(seen[burst.row[i]]);
          seen[burst.row[i]] = true;
          common += (burst.odd >> i & 1) == 0;
        }
      }
    }
    for (uint32_t i = 0; i < 64; ++i) ASSERT_TRUE(seen[i]) << seed << " row " << i;
  }
  EXPECT_GT(common, 3000u);
  EXPECT_GT(odd, 1000u);
}

// Common packets of one family, tagged or not, in rows that follow one another or not, with edits noted for some: the
// frames and columns must be what editing one packet after another makes of them.
TEST(Fast, CommitsWhatEditsOfOneAfterAnotherMake) {
  uint8_t rewrites[FastBurst::kLanes][12];
  size_t plain = 0, pushed = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    uint64_t state = seed;
    const uint32_t n = seed % 3 == 0 ? 32 : 1 + static_cast<uint32_t>(next(state) % 32);
    const bool six = seed % 5 < 2;
    const uint64_t tags = seed % 7 < 3 ? 0 : seed % 7 - 3;  // at most; of all or of some
    Batch batch = Batch::create(128, size_t{128} * 512).value();
    Batch twin = Batch::create(128, size_t{128} * 512).value();
    for (uint32_t i = 0; i < 128; ++i) {
      const uint64_t r = next(state);
      auto b = six ? udp6("2001:db8::1", "2001:db8::9") : udp4("10.1.2.3", "192.0.2.9");
      b.ttl(static_cast<uint8_t>(2 + r % 254)).id(static_cast<uint16_t>(r >> 8));
      b.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}});
      for (uint64_t t = tags < 3 ? tags : (r >> 40) % 3; t > 0; --t) b.vlan(static_cast<uint16_t>(r % 4000));
      if ((r >> 50 & 1) != 0) b.size(64 + static_cast<uint32_t>(r >> 51 & 63));
      const std::vector<uint8_t> bytes = b.build();
      for (Batch* one : {&batch, &twin}) {
        uint8_t* to = one->reserve(bytes.size());
        std::memcpy(to, bytes.data(), bytes.size());
        one->push(to, static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(bytes.size()), i, i);
      }
    }
    uint32_t rows[32];
    const uint32_t from = static_cast<uint32_t>(next(state) % 97);
    for (uint32_t i = 0; i < n; ++i) rows[i] = seed % 2 == 0 ? from + i : from % 4 + 3 * i;
    FastBurst burst;
    burst.clear();
    burst.family = six ? 6 : 4;
    uint32_t rest[32];
    LinkedRows linked[2];
    ASSERT_EQ(sort_rows(batch.view(), rows, n, linked[0], linked[1], rest), 0u);
    ASSERT_EQ(gather_linked(batch.view(), linked[six], 0, n, burst, rest), 0u);
    const FastCode& code = seed % 7 < 3 ? plain_fast_code() : fast_code();
    code.close(burst, true);
    EXPECT_EQ(burst.one_run, seed % 2 == 0 && n == 32);
    const auto lanes = [&] { return static_cast<uint32_t>(next(state)) | (seed % 11 < 5 ? ~0u : 0u); };
    const uint32_t mask = lanes() & burst.lanes();
    burst.hopped = lanes();
    for (uint32_t& hop : burst.hop) hop = six ? hop - 1 : next_hop_word(hop);
    burst.rewritten = lanes();
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
      for (uint8_t& byte : rewrites[i]) byte = static_cast<uint8_t>(next(state));
      burst.rewrite[i] = rewrites[i];
      burst.port[i] = static_cast<uint16_t>(next(state));
      burst.tag[i] = static_cast<uint16_t>(next(state) % 4096);
      if ((burst.rewritten >> i & 1) != 0) burst.link[i] = seed % 13 < 4 && next(state) % 3 == 0 ? 18 : 14;
    }
    // Where nobody reads where headers lie, an extent that keeps its bytes may stay as it was.
    const bool headers = seed % 4 != 0;
    code.commit(batch.view(), burst, mask, headers);
    const BatchView view = twin.view();
    for (uint32_t i = 0; i < n; ++i) {
      if ((mask >> i & 1) == 0) continue;
      uint8_t* frame = view.frame[rows[i]];
      Headers h;
      const uint32_t bytes = view.extent[rows[i]].end;
      ASSERT_EQ(parse_ethernet(frame, bytes, bytes, h), ParseStatus::kOk);
      uint8_t* ip = frame + h.l3_offset;
      if ((burst.hopped >> i & 1) != 0) six ? decrement_hop_limit_ipv6(ip) : decrement_ttl_ipv4(ip);
      const uint32_t end = h.l3_offset + h.ip_bytes;
      view.extent[rows[i]] = Extent{0, end, end, h.l3_offset, h.l4_offset};
      plain += h.l3_offset == 14;
      if ((burst.rewritten >> i & 1) == 0) continue;
      uint8_t* to = ip - burst.link[i];
      view.extent[rows[i]].data = static_cast<int32_t>(h.l3_offset) - static_cast<int32_t>(burst.link[i]);
      std::memcpy(to, rewrites[i], 12);
      if (burst.link[i] == 18) {
        store_be16(to + 12, 0x8100);
        store_be16(to + 14, burst.tag[i]);
        ++pushed;
      }
      store_be16(ip - 2, six ? 0x86dd : 0x0800);
      view.port[rows[i]] = burst.port[i];
    }
    for (uint32_t i = 0; i < 128; ++i) {
      ASSERT_EQ(std::memcmp(batch.frame(i) - kHeadroom, twin.frame(i) - kHeadroom, 256), 0) << seed << " row " << i;
      ASSERT_EQ(std::memcmp(&batch.extent(i), &twin.extent(i), headers ? sizeof(Extent) : offsetof(Extent, l3)), 0)
          << seed << " row " << i;
      ASSERT_EQ(batch.port(i), twin.port(i)) << seed << " row " << i;
    }
    Selection added, want;
    add_rows(burst, mask, added);
    for (uint32_t i = 0; i < n; ++i) {
      if ((mask >> i & 1) != 0) want.add(rows[i]);
    }
    for (uint32_t w = 0; w < Selection::kWords; ++w) ASSERT_EQ(added.word(w), want.word(w)) << seed;
  }
  EXPECT_GT(plain, 1000u);
  EXPECT_GT(pushed, 100u);
}

TEST(Fast, CompressedLanesAreThoseThatGoOnInTheirOrder) {
  uint64_t state = 5;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    // Columns of any bytes; their places are compared and not followed.
    FastBurst before;
    std::vector<uint8_t> bytes(sizeof before);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(next(state));
    std::memcpy(static_cast<void*>(&before), bytes.data(), sizeof before);
    before.count = seed % 3 == 0 ? 1 + static_cast<uint32_t>(next(state) % 32) : 32;
    before.family = seed % 2 == 0 ? 4 : 6;
    before.late_keys = nullptr;
    before.one_run = seed % 5 == 0;
    for (uint32_t* mask : {&before.hopped, &before.rewritten, &before.marked, &before.detailed}) {
      if (seed % 4 != 0) *mask = seed % 4 == 1 ? 0 : ~0u;
    }
    uint32_t lanes = static_cast<uint32_t>(next(state));
    if (seed % 7 == 1) lanes &= static_cast<uint32_t>(next(state) & next(state));
    if (seed % 7 == 2) lanes = ~(1u << next(state) % 32);
    lanes &= before.lanes();
    for (const AclIsa isa : {AclIsa::kScalar, AclIsa::kAvx2, AclIsa::kAvx512}) {
      if (!acl_isa_available(isa)) continue;
      FastBurst after = before;
      compress_on(isa, after, lanes);
      uint32_t to = 0;
      for (uint32_t from = 0; from < FastBurst::kRoom; ++from) {
        if (from < FastBurst::kLanes && (lanes >> from & 1) == 0) continue;
        if (from == FastBurst::kLanes) {
          ASSERT_EQ(after.count, to);
          to = from;
        }
        const auto same = [&](const auto& column_before, const auto& column_after) {
          ASSERT_EQ(column_before[from], column_after[to])
              << seed << " lane " << from << " to " << to << " isa " << static_cast<int>(isa);
        };
        if (before.family == 4) {
          same(before.source, after.source);
          same(before.destination, after.destination);
        } else {
          same(before.source_high, after.source_high);
          same(before.source_low, after.source_low);
          same(before.destination_high, after.destination_high);
          same(before.destination_low, after.destination_low);
        }
        same(before.ports, after.ports);
        same(before.rest, after.rest);
        same(before.ip, after.ip);
        same(before.row, after.row);
        same(before.length, after.length);
        same(before.ip_bytes, after.ip_bytes);
        same(before.places, after.places);
        same(before.link, after.link);
        same(before.tci, after.tci);
        same(before.hop, after.hop);
        same(before.rule, after.rule);
        same(before.next_hop, after.next_hop);
        if (before.asked_by != nullptr) same(before.place, after.place);
        ASSERT_EQ(before.odd >> from & 1, after.odd >> to & 1);
        if ((before.odd >> from & 1) != 0) same(before.flags, after.flags);
        if (from < FastBurst::kLanes) {
          ASSERT_EQ(before.hopped >> from & 1, after.hopped >> to & 1);
          ASSERT_EQ(before.rewritten >> from & 1, after.rewritten >> to & 1);
          ASSERT_EQ(before.marked >> from & 1, after.marked >> to & 1);
          ASSERT_EQ(before.detailed >> from & 1, after.detailed >> to & 1);
          if ((before.rewritten >> from & 1) != 0) {
            same(before.rewrite, after.rewrite);
            same(before.port, after.port);
            same(before.tag, after.tag);
          }
          if ((before.marked >> from & 1) != 0) same(before.mark, after.mark);
          if ((before.detailed >> from & 1) != 0) same(before.detail, after.detail);
        }
        ++to;
      }
      ASSERT_FALSE(after.one_run);
    }
  }
}

TEST(Fast, GivesKeptRegistersBackWithTheResults) {
  uint64_t state = 3;
  Batch batch = mixed(128, 6);
  for (const bool run : {true, false}) {
    uint32_t rows[32], rest[32];
    for (uint32_t i = 0; i < 32; ++i) rows[i] = run ? 40 + i : 3 * i;
    FastBurst burst;
    burst.clear();
    burst.family = 4;
    gather_alike(FastForm::kIpv4, batch.view(), rows, 32, burst, rest);
    burst.find_run();
    const uint32_t n = burst.count;
    ASSERT_GT(n, 10u);
    uint16_t row[FastBurst::kLanes];
    uint32_t length[FastBurst::kLanes], ip_bytes[FastBurst::kLanes], hop[FastBurst::kLanes];
    uint64_t words[FastBurst::kLanes];
    for (uint64_t& word : words) {
      word = mix64(++state);
      // Most have passed three stages by their first output.
      if (state % 4 != 0) word = (word & ((uint64_t{1} << 42) - 1)) | uint64_t{7} << 42;
    }
    for (const FastCode* code : {&fast_code(), &plain_fast_code()}) {
      const FastKept kept{row, length, ip_bytes, hop};
      code->keep(burst, kept);
      FastBurst back;
      std::memset(static_cast<void*>(&back), 0x5a, sizeof back);
      code->restore(kept, n, batch.view(), back);
      ASSERT_EQ(back.count, n);
      EXPECT_EQ(back.one_run, burst.one_run);
      EXPECT_EQ(back.late_keys, nullptr);
      const uint32_t passed = code->take(words, 7, back);
      for (uint32_t i = 0; i < n; ++i) {
        EXPECT_EQ(back.row[i], burst.row[i]);
        EXPECT_EQ(back.ip[i], burst.ip[i]);
        EXPECT_EQ(back.length[i], burst.length[i]);
        EXPECT_EQ(back.ip_bytes[i], burst.ip_bytes[i]);
        EXPECT_EQ(back.hop[i], burst.hop[i]);
        const KeyResult result = unpack_result(words[i]);
        EXPECT_EQ(back.rule[i], result.rule);
        EXPECT_EQ(back.next_hop[i], result.next_hop);
        EXPECT_EQ((passed >> i & 1) != 0, passed_all(words[i], 7)) << i;
      }
    }
  }
}

TEST(Fast, NotesWhatEgressCountsOfItsLanesAlone) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    uint64_t state = seed;
    Batch batch = Batch::create(128, size_t{128} * 512).value();
    EXPECT_EQ(batch.view().egress_note, nullptr);
    batch.keep_egress_notes();
    std::vector<uint32_t> want(128, Batch::kNotNoted);
    std::vector<uint32_t> note;
    for (uint32_t i = 0; i < 128; ++i) {
      const auto dscp = static_cast<uint8_t>(next(state) % 64);
      const auto size = 60 + static_cast<uint32_t>(next(state) % 300);
      const std::vector<uint8_t> bytes = udp4("10.1.2.3", "192.0.2.9").dscp(dscp).size(size).build();
      note.push_back(uint32_t{dscp} << Batch::kNoteBytesBits | load_be16(bytes.data() + 16));
      uint8_t* to = batch.reserve(bytes.size());
      std::memcpy(to, bytes.data(), bytes.size());
      batch.push(to, static_cast<uint32_t>(bytes.size()), static_cast<uint32_t>(bytes.size()), i, i);
    }
    uint32_t rows[32], rest[32];
    const uint32_t n = seed % 3 == 0 ? 32 : 1 + static_cast<uint32_t>(next(state) % 32);
    const uint32_t from = static_cast<uint32_t>(next(state) % 33);
    for (uint32_t i = 0; i < n; ++i) rows[i] = seed % 2 == 0 ? from + i : from + 3 * i;
    FastBurst burst;
    burst.clear();
    burst.family = 4;
    ASSERT_EQ(gather_alike(FastForm::kIpv4, batch.view(), rows, n, burst, rest), 0u);
    burst.find_run();
    alignas(16) uint32_t records[32][4];
    for (uint32_t i = 0; i < n; ++i) {
      const Key4 key = burst.key4(i);
      std::memcpy(records[i], &key, sizeof key);
      records[i][3] |= 0x55u << 25;
    }
    if (seed % 4 < 2) {
      std::memset(burst.rest, 0xa5, sizeof burst.rest);
      burst.late_keys = reinterpret_cast<const std::byte*>(records);
    }
    const uint32_t mask = (static_cast<uint32_t>(next(state)) | (seed % 5 == 0 ? ~0u : 0u)) & burst.lanes();
    (seed % 7 < 3 ? plain_fast_code() : fast_code()).note_egress(batch.view(), burst, mask);
    for (uint32_t i = 0; i < n; ++i) {
      if ((mask >> i & 1) != 0) want[rows[i]] = note[rows[i]];
    }
    ASSERT_EQ(std::vector<uint32_t>(batch.view().egress_note, batch.view().egress_note + 128), want) << seed;
    // The next packets know nothing yet.
    batch.clear();
    batch.append(128);
    EXPECT_EQ(batch.view().egress_note[rows[0]], Batch::kNotNoted);
  }
}

TEST(Fast, LateKeysAreTheColumnsOnceTheyAreAskedFor) {
  Batch batch = mixed(64, 4);
  uint32_t rows[32], rest[32];
  for (uint32_t i = 0; i < 32; ++i) rows[i] = i;
  FastBurst burst;
  burst.clear();
  burst.family = 4;
  gather_alike(FastForm::kIpv4, batch.view(), rows, 32, burst, rest);
  ASSERT_GT(burst.count, 10u);
  alignas(16) uint32_t records[32][4];
  Key4 keys[32];
  for (uint32_t i = 0; i < burst.count; ++i) {
    keys[i] = burst.key4(i);
    std::memcpy(records[i], &keys[i], sizeof keys[i]);
    records[i][3] |= 0x55u << 25;
  }
  const uint32_t count = burst.count;
  std::memset(burst.source, 0xa5, sizeof burst.source);
  std::memset(burst.destination, 0xa5, sizeof burst.destination);
  std::memset(burst.ports, 0xa5, sizeof burst.ports);
  std::memset(burst.rest, 0xa5, sizeof burst.rest);
  burst.late_keys = reinterpret_cast<const std::byte*>(records);
  burst.fill_keys();
  EXPECT_EQ(burst.late_keys, nullptr);
  for (uint32_t i = 0; i < count; ++i) {
    const Key4 key = burst.key4(i);
    EXPECT_EQ(std::memcmp(&key, &keys[i], sizeof key), 0) << i;
  }
}

// Two routing stages over tables that take notes, one over a table that does not: whichever asked, and whoever's notes
// the burst holds, each answers by its own table, for every number of packets.
TEST(Fast, RoutesAnswerByTheirOwnTablesWhoeverAsked) {
  using Noting = RouteStage<SailView, AnyView6>;
  using Plain = RouteStage<Trie4View, AnyView6>;
  static_assert(Noting::kAsks && !Plain::kAsks);
  std::vector<Image> images;
  StageSlot slots[3];
  const auto image_of = [&](uint64_t seed, const char* algorithm) -> const Image& {
    Rib rib = lpm_test::random_rib(seed, 3000, 40);
    images.push_back(*build_routes(rib, algorithm, "range24"));
    return images.back();
  };
  images.reserve(3);
  for (const uint64_t seed : {1u, 2u}) {
    Noting stage;
    stage.view4 = *SailView::open(image_of(seed, "sail").section(SectionTag::kFib4), 40);
    place(slots[seed - 1], stage);
  }
  Plain plain;
  plain.view4 = *Trie4View::open(image_of(3, "trie").section(SectionTag::kFib4), 40);
  place(slots[2], plain);
  const auto lookup = [&](size_t s, uint32_t address) {
    return s < 2 ? slots[s].get<Noting>().view4.lookup(address) : slots[s].get<Plain>().view4.lookup(address);
  };
  const auto addresses = lpm_test::uniform4(4096, 9);
  const uint16_t kinds[] = {kStageKind<Noting>, kStageKind<Noting>, kStageKind<Plain>};
  FastBurst burst;
  std::memset(static_cast<void*>(&burst), 0xa5, sizeof burst);
  size_t routed = 0;
  for (uint32_t round = 0; round < 8 * 32; ++round) {
    burst.clear();
    burst.family = 4;
    burst.count = 1 + round % 32;
    for (uint32_t i = 0; i < burst.count; ++i) burst.destination[i] = addresses[(round * 32 + i) % addresses.size()];
    for (size_t s = 0; s < 3; ++s) {
      const FastPrefetch prefetch = cpu_fast_prefetch(kinds[s]);
      if (prefetch != nullptr && (round >> 5 >> s & 1) != 0) prefetch(slots[s], burst);
    }
    for (size_t s = 0; s < 3; ++s) {
      const uint32_t passed = cpu_fast_kernel(kinds[s])(slots[s], burst, burst.lanes());
      for (uint32_t i = 0; i < burst.count; ++i) {
        const uint32_t hop = lookup(s, burst.destination[i]);
        ASSERT_EQ(burst.next_hop[i], hop) << "stage " << s << ", lane " << i << " of " << burst.count;
        ASSERT_EQ(passed >> i & 1, hop != 0 ? 1u : 0u);
        routed += hop != 0;
      }
    }
  }
  EXPECT_GT(routed, 1000u);
}

TEST(Fast, CoversTheStagesThatSpeakOfIt) {
  Program program;
  program.stage_count = 3;
  for (StageSlot& slot : program.stages) std::memset(slot.next, kPathDropped, sizeof slot.next);
  place(program.stages[0], IpInputStage{});
  place(program.stages[1], DecTtlStage{});
  place(program.stages[2], PaintStage{});
  program.stages[0].next[0] = 1;
  program.stages[1].next[0] = 2;
  program.stages[2].next[0] = kPathExit;
  EXPECT_EQ(fast_stages(program), 2u);
  // A stage that the first does not lead to by output 0.
  program.stages[0].next[0] = 2;
  EXPECT_EQ(fast_stages(program), 1u);
  // The first stage must be the one that parses frames.
  place(program.stages[0], DecTtlStage{});
  EXPECT_EQ(fast_stages(program), 0u);
}

}  // namespace
}  // namespace sluice
