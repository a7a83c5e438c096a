#include "exec/cpu/fast.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "elements/stages.h"
#include "exec/device/record.h"
#include "net/edit.h"
#include "net/packet_builder.h"
#include "tables/lpm/lpm_test_tables.h"

namespace sluice {
namespace {

uint64_t next(uint64_t& state) {
  return mix64(state += 0x9e3779b97f4a7c15ull);
}

// A batch of common packets with every third damaged somewhere in its headers or its extent.
Batch mixed(uint32_t packets, uint64_t seed) {
  Batch batch = std::move(*Batch::create(packets, size_t{packets} * 512));
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

TEST(Fast, VectorsGatherWhatScalarsDo) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const uint32_t n = 1 + static_cast<uint32_t>(seed * 7 % 32);
    Batch batch = mixed(64, seed);
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
    uint32_t rest_a[32], rest_b[32];
    const uint32_t first = n / 3;
    const BatchView view = batch.view();
    for (const auto& [from, some] : {std::pair{0u, first}, std::pair{first, n - first}}) {
      const uint32_t left = gather_fast(view, rows + from, some, a, rest_a);
      ASSERT_EQ(left, gather_fast_scalar(view, rows + from, some, b, rest_b)) << seed;
      for (uint32_t i = 0; i < left; ++i) EXPECT_EQ(rest_a[i], rest_b[i]) << seed;
    }
    ASSERT_EQ(a.count, b.count) << seed;
    for (uint32_t i = 0; i < a.count; ++i) {
      EXPECT_EQ(std::memcmp(&a.source[i], &b.source[i], 4), 0);
      EXPECT_EQ(a.destination[i], b.destination[i]) << seed;
      EXPECT_EQ(a.ports[i], b.ports[i]) << seed;
      EXPECT_EQ(a.rest[i], b.rest[i]) << seed;
      EXPECT_EQ(a.frame[i], b.frame[i]) << seed;
      EXPECT_EQ(a.row[i], b.row[i]) << seed;
      EXPECT_EQ(a.length[i], b.length[i]) << seed;
      EXPECT_EQ(a.ip_bytes[i], b.ip_bytes[i]) << seed;
      EXPECT_EQ(a.hop[i], b.hop[i]) << seed;
      EXPECT_EQ(a.rule[i], 0u);
      EXPECT_EQ(a.next_hop[i], 0u);
    }
  }
}

// Common packets alone, in rows that follow one another or not, with edits noted for some: the frames and columns must
// be what editing one packet after another makes of them.
TEST(Fast, CommitsWhatEditsOfOneAfterAnotherMake) {
  uint8_t rewrites[FastBurst::kLanes][12];
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    uint64_t state = seed;
    const uint32_t n = seed % 3 == 0 ? 32 : 1 + static_cast<uint32_t>(next(state) % 32);
    Batch batch = Batch::create(128, size_t{128} * 512).value();
    Batch twin = Batch::create(128, size_t{128} * 512).value();
    for (uint32_t i = 0; i < 128; ++i) {
      const uint64_t r = next(state);
      auto b = udp4("10.1.2.3", "192.0.2.9").ttl(static_cast<uint8_t>(2 + r % 254)).id(static_cast<uint16_t>(r >> 8));
      b.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}});
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
    uint32_t rest[32];
    ASSERT_EQ(gather_fast(batch.view(), rows, n, burst, rest), 0u);
    EXPECT_EQ(burst.one_run, seed % 2 == 0 && n == 32);
    const auto lanes = [&] { return static_cast<uint32_t>(next(state)) | (seed % 5 == 0 ? ~0u : 0u); };
    const uint32_t mask = lanes() & burst.lanes();
    burst.hopped = lanes();
    for (uint32_t& hop : burst.hop) hop = next_hop_word(hop);
    burst.rewritten = lanes();
    for (uint32_t i = 0; i < FastBurst::kLanes; ++i) {
      for (uint8_t& byte : rewrites[i]) byte = static_cast<uint8_t>(next(state));
      burst.rewrite[i] = rewrites[i];
      burst.port[i] = static_cast<uint16_t>(next(state));
    }
    // Where nobody reads where headers lie, an extent that keeps its end may stay as it was.
    const bool headers = seed % 4 != 0;
    const FastCode& code = seed % 7 < 3 ? plain_fast_code() : fast_code();
    code.commit(batch.view(), burst, mask, headers);
    const BatchView view = twin.view();
    for (uint32_t i = 0; i < n; ++i) {
      if ((mask >> i & 1) == 0) continue;
      uint8_t* frame = view.frame[rows[i]];
      if ((burst.hopped >> i & 1) != 0) decrement_ttl_ipv4(frame + 14);
      const uint32_t end = 14u + load_be16(frame + 16);
      view.extent[rows[i]] = Extent{0, end, end, 14, 34};
      if ((burst.rewritten >> i & 1) == 0) continue;
      std::memcpy(frame, rewrites[i], 12);
      view.port[rows[i]] = burst.port[i];
    }
    for (uint32_t i = 0; i < 128; ++i) {
      ASSERT_EQ(std::memcmp(batch.frame(i), twin.frame(i), 128), 0) << seed << " row " << i;
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
}

TEST(Fast, WhatWasKeptComesBackWithTheResults) {
  uint64_t state = 3;
  Batch batch = mixed(128, 6);
  for (const bool run : {true, false}) {
    uint32_t rows[32], rest[32];
    for (uint32_t i = 0; i < 32; ++i) rows[i] = run ? 40 + i : 3 * i;
    FastBurst burst;
    burst.clear();
    gather_fast(batch.view(), rows, 32, burst, rest);
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
        EXPECT_EQ(back.frame[i], burst.frame[i]);
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
    ASSERT_EQ(gather_fast(batch.view(), rows, n, burst, rest), 0u);
    alignas(16) uint32_t records[32][4];
    for (uint32_t i = 0; i < n; ++i) {
      const Key4 key = burst.key(i);
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
  gather_fast(batch.view(), rows, 32, burst, rest);
  ASSERT_GT(burst.count, 10u);
  alignas(16) uint32_t records[32][4];
  Key4 keys[32];
  for (uint32_t i = 0; i < burst.count; ++i) {
    keys[i] = burst.key(i);
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
    const Key4 key = burst.key(i);
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
    images.push_back(std::move(*build_routes(rib, algorithm, "range24")));
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
