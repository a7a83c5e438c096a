// RED against the paper's figure 17 in long double, with the same random numbers.
#include "qos/red.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace sluice {
namespace {

// Figure 17. `random` is in [0, 1).
class RedOracle {
 public:
  explicit RedOracle(const RedConfig& c) : c_(c), w_(std::ldexp(1.0L, -static_cast<int>(c.weight_bits))) {}
  enum class Says { kKeep, kDrop, kDepends };
  Says arrives(uint64_t now, uint32_t q) {
    if (q != 0 || !idle) {
      avg = (1 - w_) * avg + w_ * q;
    } else {
      const uint64_t m = (now - since) / c_.idle_packet_ns;
      avg = std::pow(1 - w_, static_cast<long double>(m)) * avg;
      avg = (1 - w_) * avg;  // this arrival
    }
    idle = false;
    if (avg < c_.min_pkts) return count = -1, Says::kKeep;
    if (avg >= c_.max_pkts) return count = 0, Says::kDrop;
    ++count;
    pb = c_.max_probability_ppm / 1e6L * (avg - c_.min_pkts) / (c_.max_pkts - c_.min_pkts);
    return Says::kDepends;
  }
  long double probability() const { return count * pb >= 1 ? 1 : pb / (1 - static_cast<long double>(count) * pb); }
  void dropped() { count = 0; }

  long double avg = 0, pb = 0;
  int64_t count = -1;
  uint64_t since = 0;
  bool idle = true;

 private:
  RedConfig c_;
  long double w_;
};

TEST(Red, FollowsThePaperArrivalByArrival) {
  for (const auto& [ppm, bits] : {std::pair{20'000u, 9u}, {100'000u, 4u}, {1'000'000u, 2u}}) {
    const RedConfig config{5, 15, bits, ppm, 1'000};
    Red red(config, 42);
    RedOracle oracle(config);
    uint64_t now = 0, decided = 0, dropped = 0;
    uint32_t queue = 0;
    // A load that goes up and down, with pauses.
    for (uint32_t i = 0; i < 40'000; ++i) {
      now += 500;
      const auto said = oracle.arrives(now, queue);
      const bool drops = red.drops(now, queue);
      ASSERT_NEAR(static_cast<double>(red.average()) / 4294967296.0, static_cast<double>(oracle.avg), 1e-6) << i;
      if (said == RedOracle::Says::kDepends) {
        const long double random = red.last_random() / 4294967296.0L;
        // Nearer than the fixed point can tell: either way is right.
        if (std::abs(random - oracle.probability()) > 1e-5L) {
          ASSERT_EQ(drops, random < oracle.probability()) << i;
        }
        ++decided;
      } else {
        ASSERT_EQ(drops, said == RedOracle::Says::kDrop) << i;
      }
      if (drops) {
        oracle.dropped();
        ++dropped;
      } else {
        ++queue;
      }
      const uint32_t leaves = i / 1000 % 3 == 0 ? 2 : i % 2;
      for (uint32_t n = 0; n < leaves && queue != 0; ++n) {
        if (--queue == 0) {
          red.emptied(now);
          oracle.idle = true;
          oracle.since = now;
        }
      }
      if (i % 7000 == 6999) now += 1'000'000 * (i / 7000);
    }
    EXPECT_GT(decided, 1000u);
    EXPECT_GT(dropped, 100u);
  }
}

TEST(Red, DropsAreSpreadAtTheProbability) {
  // At a constant length halfway: figure 17 counts the arrival before it draws, so the gaps between drops are even on
  // 1 .. 1/pb - 1, and one in 1/pb / 2 is dropped.
  const RedConfig config{10, 30, 1, 100'000, 1'000};
  Red red(config, 7);
  uint64_t drops = 0;
  constexpr uint32_t kArrivals = 200'000;
  for (uint32_t i = 0; i < kArrivals; ++i) drops += red.drops(i, 20) ? 1 : 0;
  const double every = static_cast<double>(kArrivals) / static_cast<double>(drops);
  EXPECT_NEAR(every, 1 / 0.05 / 2, 0.2);
}

TEST(Red, OffAndBelowTheThresholdNothingIsDropped) {
  Red off;
  const RedConfig config{10, 30, 1, 1'000'000, 1'000};
  Red on(config);
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_FALSE(off.drops(i, 1'000'000));
    EXPECT_FALSE(on.drops(i, 9));
  }
  for (uint32_t i = 0; i < 100; ++i) on.drops(2000, 31);
  EXPECT_TRUE(on.drops(2000, 31));
  // The same seed, the same drops.
  Red one(config, 3), two(config, 3), three(config, 4);
  bool differs = false;
  for (uint32_t i = 0; i < 1000; ++i) {
    const bool drop = one.drops(i, 11 + i % 10);
    EXPECT_EQ(drop, two.drops(i, 11 + i % 10));
    differs |= drop != three.drops(i, 11 + i % 10);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace sluice
