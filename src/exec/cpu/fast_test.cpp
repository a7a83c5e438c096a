#include "exec/cpu/fast.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "elements/stages.h"
#include "net/packet_builder.h"

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
    auto b = (r & 1) != 0 ? tcp4("10.1.2.3", "192.0.2.9").tcp_flags(static_cast<uint8_t>(r >> 8))
                          : udp4("10.1.2.3", "192.0.2.9");
    b.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}});
    b.ports(static_cast<uint16_t>(r >> 16), static_cast<uint16_t>(r >> 32))
        .ttl(static_cast<uint8_t>(r >> 3))
        .dscp(static_cast<uint8_t>(r >> 40 & 63));
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
    for (uint32_t i = 0; i < n; ++i) rows[i] = static_cast<uint32_t>(next(state) % 64);
    FastBurst a, b;
    std::memset(static_cast<void*>(&a), 0xa5, sizeof a);
    std::memset(static_cast<void*>(&b), 0x5a, sizeof b);
    // In two parts: the second is appended.
    a.count = b.count = 0;
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
      EXPECT_EQ(a.ttl[i], b.ttl[i]) << seed;
      EXPECT_EQ(a.rule[i], 0u);
      EXPECT_EQ(a.next_hop[i], 0u);
    }
  }
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
