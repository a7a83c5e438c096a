// Departure times against a token bucket in exact fractions, packet by packet.
#include "qos/departure.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "qos/departure_run.h"
#include "qos/fraction.h"

namespace sluice {
namespace {

using testing::Fraction;

// A bucket of bytes that may be in debt, in seconds and bytes: nothing of words and units.
class BucketOracle {
 public:
  BucketOracle(uint64_t rate_bps, uint32_t burst, uint64_t epoch_ns)
      : rate_(static_cast<__int128>(rate_bps), 8), burst_(burst), level_(burst), last_(seconds(epoch_ns)) {}

  // In nanoseconds, rounded up.
  uint64_t stamp(uint64_t now_ns, uint32_t bytes) {
    const Fraction now = seconds(now_ns);
    level_ = Fraction::least(burst_, level_ + (now - last_) * rate_);
    last_ = now;
    const Fraction debt = Fraction::most(0, Fraction(0) - level_);
    level_ = level_ - Fraction(bytes);
    return ((now + debt / rate_) * Fraction(1'000'000'000)).rounded_up();
  }

 private:
  static Fraction seconds(uint64_t ns) { return {static_cast<__int128>(ns), 1'000'000'000}; }
  Fraction rate_, burst_, level_, last_;
};

rc::Gen<uint64_t> any_shaped_rate() {
  return rc::gen::mapcat(rc::gen::inRange(3, 12), [](int decade) {
    uint64_t low = 1;
    for (int i = 0; i < decade; ++i) low *= 10;
    return rc::gen::oneOf(rc::gen::just(low),
                          rc::gen::inRange<uint64_t>(low, std::min<uint64_t>(low * 10, DepartureRate::kMostBps + 1)));
  });
}

RC_GTEST_PROP(Departure, IsTheExactOneOrLessThanOneNanosecondLater, ()) {
  const uint64_t bps = *any_shaped_rate();
  const auto burst = *rc::gen::oneOf(rc::gen::just<uint32_t>(0), rc::gen::inRange<uint32_t>(0, 100'000));
  const uint64_t epoch = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40);
  const auto rate = DepartureRate::of(bps, burst, epoch);
  BucketOracle oracle(bps, burst, epoch);
  uint64_t word = 0;
  uint64_t now = epoch;
  uint64_t last = 0;
  const uint64_t packet_ns = 1000 * 8'000'000'000ull / bps;
  const auto arrivals = *rc::gen::container<std::vector<std::pair<uint64_t, uint32_t>>>(
      rc::gen::pair(rc::gen::weightedOneOf<uint64_t>({{8, rc::gen::inRange<uint64_t>(0, 2 * packet_ns + 2)},
                                                      {1, rc::gen::inRange<uint64_t>(0, uint64_t{1} << 45)}}),
                    rc::gen::inRange<uint32_t>(20, 3001)));
  for (const auto& [pause, bytes] : arrivals) {
    now += pause;
    if (now > uint64_t{1} << 48) break;  // as far as the oracle's fractions go
    const uint64_t departure = stamp(rate, word, now, bytes);
    const uint64_t exact = oracle.stamp(now, bytes);
    RC_ASSERT(departure >= exact);
    RC_ASSERT(departure <= exact + 1);
    RC_ASSERT(departure >= last);
    last = departure;
  }
}

// Any schedule, and packets where they begin to wait: true where stamp() lets each go when it comes, with the same word
// behind them; and else nothing has changed. Where each finds the word below what was sent by then and a burst, it has
// to be true.
RC_GTEST_PROP(DepartureRun, KnowsWhetherNobodyWaits, ()) {
  const uint64_t bps = *any_shaped_rate();
  const auto burst = *rc::gen::oneOf(rc::gen::just<uint32_t>(0), rc::gen::inRange<uint32_t>(0, 100'000));
  const uint64_t epoch = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40);
  const auto rate = DepartureRate::of(bps, burst, epoch);
  const uint64_t packet_ns = 1000 * 8'000'000'000ull / bps;
  uint64_t now = epoch, word = 0;
  int went = 0, waited = 0;
  for (int blocks = 0; blocks < 30; ++blocks) {
    const auto count = *rc::gen::inRange<uint32_t>(1, 65);
    // As many as the rate has room for, or some more.
    const uint64_t pause_ns = *rc::gen::element<uint64_t>(1, 2, 4) * packet_ns;
    std::vector<uint64_t> times(count);
    std::vector<uint32_t> bytes(count);
    uint64_t one_by_one = word;
    bool below = true, at_once = true;
    for (uint32_t i = 0; i < count; ++i) {
      now += *rc::gen::weightedOneOf<uint64_t>({{8, rc::gen::inRange<uint64_t>(0, pause_ns + 2)},
                                                {4, rc::gen::just(pause_ns)},
                                                {1, rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40)}});
      times[i] = now;
      bytes[i] = *rc::gen::inRange<uint32_t>(20, 1501);
      below &= one_by_one < rate.units_at(now) + rate.burst_units;
      at_once &= stamp(rate, one_by_one, now, bytes[i]) == now;
    }
    const uint64_t before = word;
    const bool got = nobody_waits(rate, word, DepartureBlock::of(rate, times.data(), bytes.data(), count));
    const bool right = got ? at_once : !below;
    RC_ASSERT(right);
    RC_ASSERT(word == (got ? one_by_one : before));
    word = one_by_one;
    ++(got ? went : waited);
  }
  RC_CLASSIFY(went != 0 && waited != 0, "both");
}

TEST(DepartureRun, FramesThatAreNoneAndWhatTheWordHasNoRoomFor) {
  const auto rate = DepartureRate::of(DepartureRate::kMostBps, 1500);
  const uint64_t now[] = {0, uint64_t{1} << 57};
  const uint32_t bytes[] = {64, 64}, longer = 1u << 20;
  EXPECT_FALSE(DepartureBlock::of(rate, now, bytes, 2).known);
  EXPECT_FALSE(DepartureBlock::of(rate, now, &longer, 1).known);
  uint64_t word = 0;
  EXPECT_FALSE(nobody_waits(rate, word, {}));
  EXPECT_TRUE(nobody_waits(rate, word, DepartureBlock::of(rate, now, bytes, 1)));
  EXPECT_EQ(word, uint64_t{64} << rate.unit_bits);
}

TEST(Departure, TenSecondsOfBacklogAtEveryDecadeEndWhereExactArithmeticDoes) {
  // A packet leaves when all before it have been sent. At most a hundred thousand packets a rate, small ones at low
  // rates.
  for (uint64_t decade = 10'000; decade <= 100'000'000'000; decade *= 10) {
    for (const uint64_t bps : {decade, decade + 7, decade * 4}) {
      const auto rate = DepartureRate::of(bps, 0);
      uint64_t word = 0;
      uint64_t sent = 0;
      uint64_t departure = 0;
      for (uint32_t i = 0; departure < 10'000'000'000; ++i) {
        const uint64_t bytes = std::max<uint64_t>(40, bps / 8 * 10 / 100'000) + i % 61;
        departure = stamp(rate, word, 0, static_cast<uint32_t>(bytes));
        const uint64_t exact =
            (Fraction(sent) * Fraction(8'000'000'000) / Fraction(static_cast<__int128>(bps))).rounded_up();
        ASSERT_GE(departure, exact) << bps;
        ASSERT_LE(departure, exact + 1) << bps;
        sent += bytes;
      }
    }
  }
}

TEST(Departure, TenSecondsOfArrivalsWithPausesKeepTheRate) {
  // Arrivals in groups, each a little before the last one is through or a little behind: the word is brought up to now
  // over and over, which is the only step that rounds. Below rate and above, packet by packet as the oracle.
  for (uint64_t bps = 10'000; bps <= 100'000'000'000; bps *= 10) {
    const auto rate = DepartureRate::of(bps + 3, 100);
    BucketOracle oracle(bps + 3, 100, 0);
    uint64_t word = 0;
    const uint64_t steps = 2'000;
    const auto group = static_cast<uint32_t>(std::min<uint64_t>(std::max<uint64_t>(bps / 8 * 10 / steps, 3), 1u << 30));
    uint64_t now = 0;
    for (uint64_t i = 0; now < 10'000'000'000; ++i) {
      const uint64_t departure = stamp(rate, word, now, group);
      const uint64_t exact = oracle.stamp(now, group);
      ASSERT_GE(departure, exact) << bps << ' ' << i;
      ASSERT_LE(departure, exact + 1) << bps << ' ' << i;
      const uint64_t takes = static_cast<uint64_t>(static_cast<unsigned __int128>(group) * 8'000'000'000 / bps);
      now += takes + i * 7 % 13 - 6;
    }
  }
}

TEST(Departure, BurstsLeaveAtOnceAndTheHorizonRefusesWithoutACharge) {
  // 8 Mbit/s: a byte a microsecond.
  auto rate = DepartureRate::of(8'000'000, 1000, 0, 500'000);
  uint64_t word = 0;
  EXPECT_EQ(stamp(rate, word, 0, 600), 0u);
  EXPECT_EQ(stamp(rate, word, 0, 600), 0u);  // not in debt before it
  EXPECT_EQ(stamp(rate, word, 0, 300), 200'000u);
  EXPECT_EQ(stamp(rate, word, 0, 100), 500'000u);
  EXPECT_EQ(stamp(rate, word, 0, 100), DepartureRate::kNever);
  EXPECT_EQ(stamp(rate, word, 99'999, 100), DepartureRate::kNever);
  EXPECT_EQ(stamp(rate, word, 100'000, 1), 600'000u);
  // A long pause gives one burst and no more.
  EXPECT_EQ(stamp(rate, word, 3'600'000'000'000, 1000), 3'600'000'000'000u);
  EXPECT_EQ(stamp(rate, word, 3'600'000'000'000, 1), 3'600'000'000'000u);
  EXPECT_EQ(stamp(rate, word, 3'600'000'000'000, 1), 3'600'000'001'000u);
  // Unlimited: at once, whatever came before.
  rate = DepartureRate::of(0, 0);
  EXPECT_EQ(stamp(rate, word, 5, 1u << 31), 5u);
  EXPECT_EQ(stamp(rate, word, 5, 1u << 31), 5u);
  // Before the epoch is the epoch's beginning of work.
  rate = DepartureRate::of(8'000'000, 0, 1'000'000);
  word = 0;
  EXPECT_EQ(stamp(rate, word, 0, 10), 0u);
  EXPECT_EQ(stamp(rate, word, 0, 10), 1'010'000u);
}

TEST(Departure, LastsElevenYearsAtTheHighestRate) {
  const auto rate = DepartureRate::of(DepartureRate::kMostBps, DepartureRate::kMaxBurstBytes);
  const uint64_t late = uint64_t{11} * 365 * 86400 * 1'000'000'000;
  uint64_t word = 0;
  EXPECT_EQ(stamp(rate, word, late, 1u << 30), late);
  EXPECT_EQ(stamp(rate, word, late, 50), late);
  EXPECT_EQ(stamp(rate, word, late, 50), late + 1);
  EXPECT_EQ(stamp(rate, word, late, 50), late + 2);
}

RC_GTEST_PROP(Departure, AChangedRateLetsNothingOvertakeAndGivesNoCredit, ()) {
  const auto burst_of = rc::gen::inRange<uint32_t>(0, 10'000);
  auto rate = DepartureRate::of(*any_shaped_rate(), *burst_of);
  uint64_t word = 0;
  uint64_t now = 0;
  uint64_t last = 0;
  for (int change = 0; change < 5; ++change) {
    for (int i = 0; i < 5; ++i) {
      now += *rc::gen::inRange<uint64_t>(0, 1'000'000);
      const uint64_t departure = stamp(rate, word, now, *rc::gen::inRange<uint32_t>(20, 1501));
      RC_ASSERT(departure >= last);
      last = departure;
    }
    const auto next = DepartureRate::of(*any_shaped_rate(), *burst_of);
    const uint64_t carried = next.carried(rate, word, now);
    // Never more credit in bytes than there was: what may leave at once.
    const auto credit = [&](const DepartureRate& r, uint64_t w) -> uint64_t {
      const uint64_t spoken = std::max(w, r.units_at(now)) - r.units_at(now);
      return spoken >= r.burst_units ? 0 : (r.burst_units - spoken) >> r.unit_bits;
    };
    RC_ASSERT(credit(next, carried) <= credit(rate, word));
    // And not less than the burst allows, where there was some.
    RC_ASSERT(credit(next, carried) == std::min<uint64_t>(credit(rate, word), next.burst_units >> next.unit_bits));
    rate = next;
    word = carried;
  }
}

TEST(Departure, AClassInsideAPortLeavesAtTheLaterOfBoth) {
  const auto port = DepartureRate::of(8'000'000, 0);
  const auto slow = DepartureRate::of(800'000, 0);
  const auto free = DepartureRate::of(0, 0);
  uint64_t port_word = 0, slow_word = 0, free_word = 0;
  EXPECT_EQ(stamp_both(slow, slow_word, port, port_word, 0, 100), 0u);
  EXPECT_EQ(stamp_both(slow, slow_word, port, port_word, 0, 100), 1'000'000u);  // the class: 10 us a byte
  EXPECT_EQ(stamp_both(free, free_word, port, port_word, 0, 100), 200'000u);    // the port: 1 us a byte
  EXPECT_EQ(free_word, 0u);
  // Refused by one: neither is charged.
  const auto near = DepartureRate::of(800'000, 0, 0, 1'000);
  const uint64_t before = port_word;
  EXPECT_EQ(stamp_both(near, slow_word, port, port_word, 0, 100), DepartureRate::kNever);
  EXPECT_EQ(port_word, before);
}

// Time stamps that are years apart, or begin at zero: never early, and late by less than a byte for each new epoch.
TEST(Departure, LastsForEver) {
  std::mt19937_64 random(1);
  constexpr uint64_t kDay = 24ull * 3600 * 1'000'000'000;
  for (const uint64_t ns_per_byte : {1ull, 80ull, 8'000'000ull}) {
    for (const uint64_t start : {uint64_t{0}, uint64_t{1'700'000'000'000'000'000}}) {
      auto rate = DepartureRate::of(8'000'000'000 / ns_per_byte, 5000, start);
      uint64_t word = 0, now = start, paid_until = start, epochs = 0;
      while (now < ~uint64_t{0} / 2) {
        const uint64_t kind = random() % 8;
        now += kind < 5 ? random() % (2000 * ns_per_byte) : kind < 7 ? random() % (400 * kDay) : 30 * 365 * kDay;
        const auto bytes = static_cast<uint32_t>(60 + random() % 1500);
        const uint64_t epoch = rate.epoch_ns;
        keep_epoch(rate, word, now);
        epochs += epoch != rate.epoch_ns ? 1 : 0;
        ASSERT_TRUE(rate.lasts(now));
        const uint64_t burst = 5000 * ns_per_byte;
        const uint64_t want = paid_until <= burst ? now : std::max(now, paid_until - burst);
        const uint64_t got = stamp(rate, word, now, bytes);
        ASSERT_GE(got, want);
        ASSERT_LE(got, want + (epochs + 1) * ns_per_byte);
        paid_until = std::max(paid_until, now) + bytes * ns_per_byte;
      }
      EXPECT_GT(epochs, 5u);
    }
  }
}

TEST(Departure, ThreadsShareOneWordAsOneOwnerWould) {
  constexpr int kThreads = 4;
  constexpr int kEach = 2'000;
  const auto rate = DepartureRate::of(123'456'789, 5'000);
  uint64_t word = 0;
  std::vector<uint64_t> departures[kThreads];
  {
    std::vector<std::jthread> threads;
    for (auto& mine : departures) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) mine.push_back(stamp_shared(rate, &word, 1'000, 100));
      });
    }
  }
  std::vector<uint64_t> all;
  for (const auto& mine : departures) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  uint64_t alone = 0;
  for (const uint64_t departure : all) ASSERT_EQ(departure, stamp(rate, alone, 1'000, 100));
  EXPECT_EQ(word, alone);
}

}  // namespace
}  // namespace sluice
