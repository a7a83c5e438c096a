// Departures by scan and look-back are those of one owner who stamps packet after packet.
#include "qos/departure_scan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/group.h"
#include "base/group_threads.h"
#include "qos/priority_buffers.h"

namespace sluice {
namespace {

struct LinkAtomics {
  static uint32_t acquire(const uint32_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
  static void release(uint32_t* at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
  static void pause() { std::this_thread::yield(); }
};

struct ScanPacket {
  unsigned qos_class;
  uint32_t bytes;
};
struct ScanChunk {
  uint64_t now_ns;
  std::vector<ScanPacket> packets;
};

// One owner, one word a schedule.
std::vector<uint64_t> walk_in_order(const PortSchedules& port, const std::vector<ScanChunk>& chunks,
                                    std::vector<uint64_t>& words) {
  std::vector<uint64_t> departures;
  for (const ScanChunk& chunk : chunks) {
    for (const ScanPacket& p : chunk.packets) {
      const uint64_t of_class = stamp(port.rates[p.qos_class], words[p.qos_class], chunk.now_ns, p.bytes);
      const uint64_t of_port = stamp(port.rates[port.port()], words[port.port()], chunk.now_ns, p.bytes);
      departures.push_back(std::max(of_class, of_port));
    }
  }
  return departures;
}

// What an owner of chunks does, all lanes of a group together; lane 0 notes the departures.
template <typename Group>
void own_chunks(const Group& group, const PortSchedules& port, const std::vector<ScanChunk>& chunks,
                std::vector<ChunkLink>& links, std::atomic<uint32_t>& ticket, const std::vector<uint64_t>& initial,
                std::vector<uint64_t>& next, std::vector<std::vector<uint64_t>>& departures) {
  while (true) {
    const uint32_t k = group.broadcast(group.lane() == 0 ? ticket.fetch_add(1, std::memory_order_relaxed) : 0u);
    if (k >= chunks.size()) return;
    const ScanChunk& chunk = chunks[k];
    uint64_t bytes[PortSchedules::kMost] = {};
    for (const ScanPacket& p : chunk.packets) bytes[p.qos_class] += p.bytes;
    uint64_t words[PortSchedules::kMost];
    pass_chunk<LinkAtomics>(group, port, {links.data(), 0}, k, chunk.now_ns, bytes, initial.data(),
                            k + 1 == chunks.size() ? next.data() : nullptr, words);
    if (group.lane() != 0) continue;
    uint64_t before[PortSchedules::kMost] = {};
    for (const ScanPacket& p : chunk.packets) {
      const auto at = [&](unsigned s) {
        return departure_in_chunk(port.rates[s], words[s], chunk.now_ns, port.rates[s].units_at(chunk.now_ns),
                                  before[s]);
      };
      departures[k].push_back(std::max(at(p.qos_class), at(port.port())));
      before[p.qos_class] += p.bytes;
      before[port.port()] += p.bytes;
    }
  }
}

struct ScanCase {
  PortSchedules port;
  std::vector<std::vector<ScanChunk>> runs;  // one launch after another
};

ScanCase random_case(uint64_t seed, unsigned most_chunks) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  ScanCase c;
  c.port.classes = static_cast<uint32_t>(1 + below(kMaxQosClasses));
  uint64_t slowest = DepartureRate::kMostBps;
  const uint64_t epoch = below(uint64_t{1} << 60);
  for (unsigned s = 0; s < c.port.schedules(); ++s) {
    uint64_t bps = DepartureRate::kLeastBps;
    for (uint64_t decade = below(9); decade-- > 0;) bps *= 10;
    bps = std::min(bps + below(bps * 9), DepartureRate::kMostBps);
    if (below(4) == 0) bps = 0;
    if (bps != 0) slowest = std::min(slowest, bps);
    c.port.rates[s] = DepartureRate::of(bps, below(3) == 0 ? 0 : static_cast<uint32_t>(below(20'000)), epoch);
  }
  const uint64_t chunk_ns = 8'000'000'000 / slowest * 2'000 + 2;
  uint64_t now = epoch;
  for (unsigned run = 0; run < 2; ++run) {
    std::vector<ScanChunk> chunks(1 + below(most_chunks));
    for (ScanChunk& chunk : chunks) {
      const uint64_t kind = below(10);
      now = kind == 0 ? now - std::min(now, below(chunk_ns)) : kind < 3 ? now : now + below(2 * chunk_ns);
      chunk.now_ns = now;
      chunk.packets.resize(below(12));
      for (ScanPacket& p : chunk.packets)
        p = {static_cast<unsigned>(below(c.port.classes)), static_cast<uint32_t>(1 + below(1514))};
    }
    c.runs.push_back(std::move(chunks));
  }
  return c;
}

template <typename Own>
void check_case(const ScanCase& c, Own&& own) {
  std::vector<uint64_t> walked(PortSchedules::kMost), initial(PortSchedules::kMost), next(PortSchedules::kMost);
  for (const auto& chunks : c.runs) {
    const std::vector<uint64_t> want = walk_in_order(c.port, chunks, walked);
    std::vector<ChunkLink> links(chunks.size());
    std::atomic<uint32_t> ticket{0};
    std::vector<std::vector<uint64_t>> departures(chunks.size());
    own(chunks, links, ticket, initial, next, departures);
    std::vector<uint64_t> got;
    for (const auto& chunk : departures) got.insert(got.end(), chunk.begin(), chunk.end());
    ASSERT_EQ(got, want);
    for (unsigned s = 0; s < c.port.schedules(); ++s) ASSERT_EQ(next[s], walked[s]) << s;
    initial.swap(next);
  }
}

RC_GTEST_PROP(DepartureScan, QuotientsByReciprocalsAreExact, ()) {
  const auto rate =
      DepartureRate::of(*rc::gen::inRange<uint64_t>(DepartureRate::kLeastBps, DepartureRate::kMostBps + 1), 0, 0);
  const auto shift = *rc::gen::inRange(5, 64);
  const uint64_t x = *rc::gen::arbitrary<uint64_t>() >> shift;
  using Wide = unsigned __int128;
  RC_ASSERT(rate.units_at(x) == static_cast<uint64_t>((Wide{x} * rate.scaled_bps + 7'999'999'999u) / 8'000'000'000u));
  RC_ASSERT(rate.ns_at(x) == static_cast<uint64_t>((Wide{x} * 8'000'000'000u + rate.scaled_bps - 1) / rate.scaled_bps));
  const uint64_t all = *rc::gen::arbitrary<uint64_t>();
  RC_ASSERT(rate.ns_at(all) ==
            static_cast<uint64_t>((Wide{all} * 8'000'000'000u + rate.scaled_bps - 1) / rate.scaled_bps));
}

RC_GTEST_PROP(DepartureScan, FunctionsOfAWordComposeAndAssociate, ()) {
  const auto map = [] { return WordMap{*rc::gen::inRange<uint64_t>(0, 1000), *rc::gen::inRange<uint64_t>(0, 3000)}; };
  const WordMap a = map(), b = map(), c = map();
  const auto w = *rc::gen::inRange<uint64_t>(0, 3000);
  RC_ASSERT(then(a, b)(w) == b(a(w)));
  RC_ASSERT(then(then(a, b), c)(w) == then(a, then(b, c))(w));
  RC_ASSERT(then(WordMap{}, a)(w) == a(w));
  RC_ASSERT(then(WordMap::constant(w), a)(0) == a(w));
}

RC_GTEST_PROP(DepartureScan, OneOwnerStampsAsTheWalk, (uint64_t seed)) {
  const ScanCase c = random_case(seed, 20);
  check_case(c, [&](const auto& chunks, auto& links, auto& ticket, const auto& initial, auto& next, auto& departures) {
    own_chunks(OneLane{}, c.port, chunks, links, ticket, initial, next, departures);
  });
}

// Chunks with several owners, in every order that threads make.
TEST(DepartureScan, ManyOwnersStampAsTheWalk) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const ScanCase c = random_case(seed, 60);
    check_case(c, [&](const auto& chunks, auto& links, auto& ticket, const auto& initial, auto& next,
                      auto& departures) {
      std::vector<std::jthread> owners;
      for (int t = 0; t < 4; ++t) {
        owners.emplace_back([&] { own_chunks(OneLane{}, c.port, chunks, links, ticket, initial, next, departures); });
      }
    });
  }
}

// Groups of several lanes look at several chunks at a time, as a warp does.
TEST(DepartureScan, GroupsOfLanesStampAsTheWalk) {
  for (uint64_t seed = 100; seed < 110; ++seed) {
    SCOPED_TRACE(seed);
    const ScanCase c = random_case(seed, 12);
    for (const uint32_t lanes : {2u, 5u}) {
      check_case(c,
                 [&](const auto& chunks, auto& links, auto& ticket, const auto& initial, auto& next, auto& departures) {
                   std::vector<std::jthread> owners;
                   for (int t = 0; t < 2; ++t) {
                     owners.emplace_back([&] {
                       ThreadGroup group(lanes);
                       group.run([&](const ThreadLane& lane) {
                         own_chunks(lane, c.port, chunks, links, ticket, initial, next, departures);
                       });
                     });
                   }
                 });
    }
  }
}

// A ring of links, as workers who never stop have it: chunk after chunk, for many laps; nobody begins a chunk before
// the one half a ring older is done.
TEST(DepartureScan, LinksOfARingAreUsedLapAfterLap) {
  constexpr uint32_t kPlaces = 16;
  constexpr uint64_t kChunks = 400;
  const auto rate = DepartureRate::of(3'000'000'000, 700);
  std::vector<ChunkLink> links(kPlaces);
  std::vector<uint64_t> words(kChunks);
  std::atomic<uint64_t> ticket{0}, done{0};
  const auto bytes_of = [](uint64_t chunk) { return chunk % 7 == 0 ? 0 : 60 + chunk * 37 % 3000; };
  const auto time_of = [](uint64_t chunk) { return chunk / 3 * 1500; };
  const uint64_t initial = 0;
  {
    std::vector<std::jthread> owners;
    for (int t = 0; t < 3; ++t) {
      owners.emplace_back([&] {
        for (uint64_t k; (k = ticket.fetch_add(1)) < kChunks;) {
          while (k >= done.load() + kPlaces / 2) std::this_thread::yield();
          const WordMap map = WordMap::of(rate, time_of(k), bytes_of(k));
          pass_chunk<LinkAtomics>(OneLane{}, ChunkLinks{links.data(), kPlaces}, k, 1, &map, &initial, nullptr,
                                  &words[k]);
          // In order, as commits are.
          while (done.load() != k) std::this_thread::yield();
          done.store(k + 1);
        }
      });
    }
  }
  uint64_t word = 0;
  for (uint64_t k = 0; k < kChunks; ++k) {
    ASSERT_EQ(words[k], word) << k;
    if (bytes_of(k) != 0) word = rate.charged(word, time_of(k), static_cast<uint32_t>(bytes_of(k)));
  }
}

// Chunks that share a word are charged as one owner would have charged them in some order.
TEST(DepartureScan, ChunksShareOneWordAsOneOwnerWould) {
  const auto rate = DepartureRate::of(123'456'789, 5'000);
  uint64_t word = 0;
  std::vector<uint64_t> seen[4];
  {
    std::vector<std::jthread> threads;
    for (auto& mine : seen) {
      threads.emplace_back([&] {
        for (int i = 0; i < 1'000; ++i) mine.push_back(charge_shared<HostAtomics>(rate, &word, 1'000, 4'000));
      });
    }
  }
  std::vector<uint64_t> all;
  for (const auto& mine : seen) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  uint64_t alone = 0;
  for (const uint64_t at : all) {
    ASSERT_EQ(at, alone);
    alone = rate.charged(alone, 1'000, 4'000);
  }
  EXPECT_EQ(word, alone);
}

}  // namespace
}  // namespace sluice
