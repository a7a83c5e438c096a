// Colors found many at a time are those of one owner who polices packet after packet.
#include "qos/policer_scan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/group.h"
#include "base/group_threads.h"

namespace sluice {
namespace {

struct TurnWords {
  static PolicerTurn::Word load(const PolicerTurn::Word* from) {
    PolicerTurn::Word word{};
    word.chunk = __atomic_load_n(&from->chunk, __ATOMIC_ACQUIRE);
    word.value = __atomic_load_n(&from->value, __ATOMIC_RELAXED);
    return word;
  }
  static void store(PolicerTurn::Word* to, const PolicerTurn::Word& word) {
    __atomic_store_n(&to->value, word.value, __ATOMIC_RELAXED);
    __atomic_store_n(&to->chunk, word.chunk, __ATOMIC_RELEASE);
  }
  static void pause(uint32_t away) {
    EXPECT_NE(away, 0u);
    std::this_thread::yield();
  }
};

struct PolicedPacket {
  bool here;  // else of another policer
  uint32_t bytes;
  Color before;
};
struct PolicedChunk {
  uint64_t now_ns;
  std::vector<PolicedPacket> packets;
};
struct PoliceCase {
  PolicerConfig config;
  PolicerState state;
  std::vector<PolicedChunk> chunks;
};

PoliceCase random_case(uint64_t seed, unsigned most_chunks, unsigned most_packets) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  PoliceCase c;
  // Small buckets for packets of the same order, so that each is paid for now and then.
  c.config.two_rates = static_cast<uint8_t>(below(2));
  c.config.color_aware = static_cast<uint8_t>(below(2));
  c.config.committed_bps = 1'000 + below(20'000'000'000);
  c.config.peak_bps = c.config.committed_bps + below(20'000'000'000);
  const uint64_t burst = below(8) == 0 ? PolicerConfig::kMaxBurstBytes : 2 + below(60'000);
  c.config.committed_burst_bytes = static_cast<uint32_t>(1 + below(burst));
  c.config.excess_burst_bytes = static_cast<uint32_t>(below(burst));
  uint64_t now = below(uint64_t{1} << 60);
  c.state = PolicerState::full(c.config, now);
  const uint64_t chunk_ns = 1 + below(20'000);
  c.chunks.resize(1 + below(most_chunks));
  for (PolicedChunk& chunk : c.chunks) {
    const uint64_t kind = below(10);
    now = kind == 0 ? now - std::min(now, below(chunk_ns)) : kind < 3 ? now : now + below(2 * chunk_ns);
    chunk.now_ns = now;
    chunk.packets.resize(below(most_packets));
    const uint64_t sizes = below(4);
    for (PolicedPacket& p : chunk.packets) {
      const uint32_t any = static_cast<uint32_t>(below(50) == 0 ? random() : below(1500));
      p.bytes = sizes == 0 ? 64 : sizes == 1 ? static_cast<uint32_t>(below(2) == 0 ? 64 : 1500) : any;
      p.here = below(5) != 0;
      p.before = static_cast<Color>(below(8) == 0 ? below(3) : 0);
    }
  }
  return c;
}

// One owner; a color for each packet that is here.
std::vector<std::vector<Color>> police_in_order(const PoliceCase& c, PolicerState& state) {
  std::vector<std::vector<Color>> colors;
  state = c.state;
  for (const PolicedChunk& chunk : c.chunks) {
    colors.emplace_back();
    for (const PolicedPacket& p : chunk.packets) {
      colors.back().push_back(p.here ? police(c.config, state, chunk.now_ns, p.bytes, p.before) : Color{99});
    }
  }
  return colors;
}

struct Taken {
  const PolicedChunk* chunk;
  std::vector<Color>* colors;
  std::atomic<uint64_t>* given;
  bool here(uint32_t i) const { return chunk->packets[i].here; }
  uint32_t bytes(uint32_t i) const { return chunk->packets[i].bytes; }
  Color before(uint32_t i) const { return chunk->packets[i].before; }
  void color(uint32_t i, Color color) const {
    (*colors)[i] = color;
    given->fetch_add(1, std::memory_order_relaxed);
  }
};

// `owners` of groups of `lanes` take chunks in turn.
template <uint32_t kRows = 8>
void check_case(const PoliceCase& c, unsigned owners, uint32_t lanes) {
  PolicerState last;
  const auto want = police_in_order(c, last);
  std::vector<std::vector<Color>> got(c.chunks.size());
  uint64_t packets = 0;
  for (size_t k = 0; k < c.chunks.size(); ++k) {
    got[k].assign(c.chunks[k].packets.size(), Color{99});
    for (const PolicedPacket& p : c.chunks[k].packets) packets += p.here ? 1 : 0;
  }
  // The turn's number goes around.
  const uint64_t first = ~uint64_t{0} - 5;
  PolicerTurn turn = PolicerTurn::of(c.state, first);
  std::atomic<uint64_t> ticket{0}, given{0};
  const auto own = [&](const auto& group) {
    while (true) {
      const auto k = static_cast<size_t>(
          group.broadcast(group.lane() == 0 ? ticket.fetch_add(1, std::memory_order_relaxed) : uint64_t{0}));
      if (k >= c.chunks.size()) return;
      police_chunk<TurnWords, kRows>(group, c.config, turn, first + k, c.chunks[k].now_ns,
                                     static_cast<uint32_t>(c.chunks[k].packets.size()),
                                     Taken{&c.chunks[k], &got[k], &given});
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < owners; ++t) {
      threads.emplace_back([&] {
        if (lanes == 1) {
          own(OneLane{});
        } else {
          ThreadGroup group(lanes);
          group.run(own);
        }
      });
    }
  }
  EXPECT_EQ(given.load(), packets);
  for (size_t k = 0; k < want.size(); ++k) ASSERT_EQ(got[k], want[k]) << "chunk " << k;
  EXPECT_EQ(turn.state().committed, last.committed);
  EXPECT_EQ(turn.state().excess, last.excess);
  EXPECT_EQ(turn.state().last_ns, last.last_ns);
  EXPECT_EQ(turn.chunk(), static_cast<uint32_t>(first + c.chunks.size()));
}

RC_GTEST_PROP(PolicerScan, OneOwnerColorsAsTheWalk, (uint64_t seed)) {
  // Rows of one packet each: chunks of up to 32 packets have the short way, and others have not.
  check_case<32>(random_case(seed, 20, 40), 1, 1);
  check_case<1>(random_case(seed, 20, 40), 1, 1);
}

TEST(PolicerScan, GroupsOfLanesColorAsTheWalk) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    check_case(random_case(seed, 6, 40), 1, seed % 3 == 0 ? 8 : 3);
    if (seed % 4 == 0) check_case<2>(random_case(seed + 1000, 4, 70), 1, 32);
  }
}

TEST(PolicerScan, ManyOwnersColorAsTheWalk) {
  for (uint64_t seed = 100; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    check_case(random_case(seed, 40, 30), 4, 1);
    check_case(random_case(seed, 6, 30), 2, 3);
  }
}

// Random cases do come to every color, both ways of a chunk, and turns behind the first.
TEST(PolicerScan, RandomCasesMeetEveryCorner) {
  uint64_t colors[3] = {}, green = 0, mixed = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    PolicerState last;
    for (const auto& chunk : police_in_order(random_case(seed, 20, 40), last)) {
      bool seen[3] = {};
      for (const Color color : chunk) {
        if (color > Color::kRed) continue;
        ++colors[static_cast<size_t>(color)];
        seen[static_cast<size_t>(color)] = true;
      }
      green += seen[0] && !seen[1] && !seen[2] ? 1 : 0;
      mixed += seen[0] && seen[1] && seen[2] ? 1 : 0;
    }
  }
  for (const uint64_t n : colors) EXPECT_GT(n, 1'000u);
  EXPECT_GT(green, 100u);
  EXPECT_GT(mixed, 100u);
}

// A packet that is too large is passed over, and smaller ones behind it are paid for.
TEST(PolicerScan, SmallPacketsPassBehindLargeOnes) {
  PoliceCase c;
  c.config.committed_bps = 1'000'000;
  c.config.committed_burst_bytes = 1'000;
  c.config.excess_burst_bytes = 0;
  c.state = PolicerState::full(c.config, 7);
  c.chunks = {{7,
               {{true, 900, Color::kGreen},
                {true, 200, Color::kGreen},
                {true, 60, Color::kGreen},
                {true, 50, Color::kGreen},
                {true, 40, Color::kGreen},
                {true, 0, Color::kGreen}}}};
  PolicerState last;
  using enum Color;
  EXPECT_EQ(police_in_order(c, last)[0], (std::vector<Color>{kGreen, kRed, kGreen, kRed, kGreen, kGreen}));
  for (const uint32_t lanes : {1u, 2u, 6u, 8u}) check_case(c, 1, lanes);
}

}  // namespace
}  // namespace sluice
