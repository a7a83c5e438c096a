// Policers against the RFCs' texts in exact fractions, packet by packet.
#include "qos/policer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "qos/fraction.h"
#include "qos/policer_run.h"

namespace sluice {
namespace {

using testing::Fraction;

// Tokens are bytes, time is seconds: nothing of the units of the real one.
class PolicerOracle {
 public:
  PolicerOracle(const PolicerConfig& config, uint64_t now_ns)
      : config_(config),
        committed_(config.committed_burst_bytes),
        excess_(config.excess_burst_bytes),
        last_(seconds(now_ns)) {}

  Color police(uint64_t now_ns, uint32_t bytes, Color before) {
    const Fraction now = seconds(now_ns);
    if (last_ < now) {
      const Fraction elapsed = now - last_;
      last_ = now;
      const Fraction cbs = config_.committed_burst_bytes;
      const Fraction ebs = config_.excess_burst_bytes;
      const Fraction filled = committed_ + elapsed * byte_rate(config_.committed_bps);
      committed_ = Fraction::least(filled, cbs);
      const Fraction more = config_.two_rates != 0 ? elapsed * byte_rate(config_.peak_bps) : filled - committed_;
      excess_ = Fraction::least(excess_ + more, ebs);
    }
    if (config_.color_aware == 0) before = Color::kGreen;
    const Fraction size = bytes;
    if (config_.two_rates != 0) {
      // RFC 2698 section 3: "if the packet has been precolored as red or if Tp(t)-B < 0, the packet is red, else ..."
      if (before == Color::kRed || excess_ - size < 0) return Color::kRed;
      excess_ = excess_ - size;
      if (before == Color::kYellow || committed_ - size < 0) return Color::kYellow;
      committed_ = committed_ - size;
      return Color::kGreen;
    }
    // RFC 2697 section 3.
    if (before == Color::kGreen && 0 <= committed_ - size) return committed_ = committed_ - size, Color::kGreen;
    if (before != Color::kRed && 0 <= excess_ - size) return excess_ = excess_ - size, Color::kYellow;
    return Color::kRed;
  }

 private:
  static Fraction seconds(uint64_t ns) { return {static_cast<__int128>(ns), 1'000'000'000}; }
  static Fraction byte_rate(uint64_t bps) { return {static_cast<__int128>(bps), 8}; }

  PolicerConfig config_;
  Fraction committed_, excess_, last_;
};

// 10 kbit/s to 400 Gbit/s, every decade as likely, odd numbers among them.
rc::Gen<uint64_t> any_rate() {
  return rc::gen::mapcat(rc::gen::inRange(4, 12), [](int decade) {
    uint64_t low = 1;
    for (int i = 0; i < decade; ++i) low *= 10;
    return rc::gen::inRange<uint64_t>(low, std::min<uint64_t>(low * 10, 400'000'000'001));
  });
}
// From nothing to two weeks, every power of two as likely.
rc::Gen<uint64_t> any_pause() {
  return rc::gen::mapcat(rc::gen::inRange(0, 51),
                         [](int bits) { return rc::gen::inRange<uint64_t>(0, uint64_t{1} << bits); });
}

struct Arrival {
  uint64_t pause_ns;
  uint32_t bytes;
  Color before;
};

RC_GTEST_PROP(Policer, GivesTheColorsOfTheRfcs, ()) {
  PolicerConfig config;
  config.two_rates = *rc::gen::inRange<uint8_t>(0, 2);
  config.color_aware = *rc::gen::inRange<uint8_t>(0, 2);
  config.committed_bps = *any_rate();
  config.peak_bps = config.committed_bps + *any_rate();
  const auto burst =
      rc::gen::oneOf(rc::gen::inRange<uint32_t>(0, 20'000), rc::gen::just(PolicerConfig::kMaxBurstBytes));
  config.committed_burst_bytes = *burst;
  config.excess_burst_bytes = *burst;
  const uint64_t start = *any_pause();
  PolicerState state = PolicerState::full(config, start);
  PolicerOracle oracle(config, start);
  uint64_t now = start;
  // Pauses about as long as a packet takes are where colors change.
  const uint64_t packet_ns = 1000 * 8'000'000'000ull / config.committed_bps;
  const auto arrivals = *rc::gen::container<std::vector<Arrival>>(rc::gen::construct<Arrival>(
      rc::gen::weightedOneOf<uint64_t>({{8, rc::gen::inRange<uint64_t>(0, 2 * packet_ns + 2)}, {1, any_pause()}}),
      rc::gen::weightedOneOf<uint32_t>(
          {{8, rc::gen::inRange<uint32_t>(20, 1501)}, {1, rc::gen::arbitrary<uint32_t>()}}),
      rc::gen::map(rc::gen::inRange(0, 3), [](int c) { return static_cast<Color>(c); })));
  for (const Arrival& a : arrivals) {
    now += a.pause_ns;
    if (now > uint64_t{1} << 53) break;  // as far as the oracle's fractions go
    RC_ASSERT(police(config, state, now, a.bytes, a.before) == oracle.police(now, a.bytes, a.before));
  }
}

// Any policer, and times and lengths where its colors change: true where police() says green of all, none of which is
// longer than a frame can be nor the block than its sums have room for, with the same buckets behind them, and else
// nothing has changed.
RC_GTEST_PROP(PolicerRun, KnowsWhetherAllAreGreen, ()) {
  PolicerConfig config;
  config.two_rates = *rc::gen::inRange<uint8_t>(0, 2);
  config.committed_bps = *rc::gen::weightedOneOf<uint64_t>({{8, any_rate()}, {1, rc::gen::just<uint64_t>(0)}});
  config.peak_bps = std::min<uint64_t>(config.committed_bps + *any_rate(), 400'000'000'000);
  const auto burst = rc::gen::oneOf(rc::gen::inRange<uint32_t>(0, 50'000), rc::gen::just<uint32_t>(0),
                                    rc::gen::just(PolicerConfig::kMaxBurstBytes));
  config.committed_burst_bytes = *burst;
  config.excess_burst_bytes = *burst;
  const PolicerRun run(config);
  uint64_t now = *any_pause();
  PolicerState state = PolicerState::full(config, now);
  const uint64_t packet_ns = 1000 * 8'000'000'000ull / std::max<uint64_t>(config.committed_bps, 1'000'000);
  int green = 0, other = 0;
  for (int runs = 0; runs < 30; ++runs) {
    const auto count = *rc::gen::inRange<uint32_t>(1, 65);
    std::vector<uint64_t> times(count);
    std::vector<uint32_t> bytes(count);
    const auto longest = *rc::gen::inRange<uint32_t>(64, 1500);
    PolicerState one_by_one = state;
    bool want = true;
    for (uint32_t i = 0; i < count; ++i) {
      now += *rc::gen::weightedOneOf<uint64_t>(
          {{8, rc::gen::inRange<uint64_t>(0, 2 * packet_ns + 2)}, {4, rc::gen::just<uint64_t>(0)}, {1, any_pause()}});
      times[i] = now;
      bytes[i] = *rc::gen::weightedOneOf<uint32_t>({{80, rc::gen::inRange<uint32_t>(20, longest)},
                                                    {1, rc::gen::inRange<uint32_t>(0, 1u << 20)},
                                                    {1, rc::gen::arbitrary<uint32_t>()}});
      want &= police(config, one_by_one, now, bytes[i]) == Color::kGreen && bytes[i] < 1u << 20;
    }
    const PolicerState before = state;
    const uint64_t fastest = std::max(config.committed_bps, config.two_rates != 0 ? config.peak_bps : 0);
    const bool fits = static_cast<unsigned __int128>(times.back() - times.front()) * fastest < uint64_t{1} << 61;
    const PolicerRun::Block block = run.block(times.data(), bytes.data(), count);
    const bool got = run.all_green(state, block);
    const bool right = got ? want : !want || !fits;
    RC_ASSERT(right);
    const PolicerState& after = got ? one_by_one : before;
    RC_ASSERT(state.committed == after.committed);
    RC_ASSERT(state.excess == after.excess);
    RC_ASSERT(state.last_ns == after.last_ns);
    ++(got ? green : other);
    state = one_by_one;
  }
  RC_CLASSIFY(green != 0 && other != 0, "both");
}

TEST(PolicerRun, TheLargestBucketsAndAllOfTime) {
  constexpr uint64_t kEnd = ~uint64_t{0};
  for (const uint8_t two : {0, 1}) {
    for (const uint64_t rate : {uint64_t{1}, uint64_t{400'000'000'000}}) {
      SCOPED_TRACE(rate);
      const PolicerConfig config{rate, rate, PolicerConfig::kMaxBurstBytes, PolicerConfig::kMaxBurstBytes, two, 0};
      const PolicerRun run(config);
      PolicerState state{0, 0, 0}, one_by_one = state;
      // Empty buckets, and a pause that fills them.
      const uint64_t times[] = {kEnd - 1000, kEnd - 1000, kEnd};
      const uint32_t bytes[] = {1, (1u << 20) - 1, 1};
      EXPECT_TRUE(run.all_green(state, run.block(times, bytes, 3)));
      for (int i = 0; i < 3; ++i) EXPECT_EQ(police(config, one_by_one, times[i], bytes[i]), Color::kGreen);
      EXPECT_EQ(state.committed, one_by_one.committed);
      EXPECT_EQ(state.excess, one_by_one.excess);
      // All 64 at once, of a bucket that has one unit too few and one that has just enough.
      const std::vector<uint64_t> now(64, kEnd);
      const std::vector<uint32_t> large(64, (1u << 20) - 1);
      const uint64_t enough = uint64_t{64} * ((1u << 20) - 1) * PolicerConfig::kUnitsPerByte;
      const uint64_t full = PolicerState::full(config, 0).excess;
      const PolicerRun::Block all = run.block(now.data(), large.data(), 64);
      state = {enough - 1, full, kEnd};
      EXPECT_FALSE(run.all_green(state, all));
      EXPECT_EQ(state.committed, enough - 1);
      state = {enough, full, kEnd};
      EXPECT_TRUE(run.all_green(state, all));
      EXPECT_EQ(state.committed, 0u);
      EXPECT_EQ(state.excess, two != 0 ? full - enough : full);
      // Longer than any frame, and longer than sums have room for.
      const uint32_t longer = 1u << 20;
      EXPECT_FALSE(run.block(&kEnd, &longer, 1).known);
      const uint64_t far[] = {0, kEnd};
      EXPECT_FALSE(run.block(far, bytes, 2).known);
    }
  }
}

TEST(Policer, GreenBytesAreTheRateToTheByteOverALongTime) {
  // Ten seconds of packets that come twice as fast as the rate, at every decade: rate * T + burst, less than a packet
  // off.
  for (uint64_t rate = 10'000; rate <= 100'000'000'000; rate *= 10) {
    for (const uint8_t two : {0, 1}) {
      PolicerConfig config{rate, rate, 3000, 3000, two, 0};
      PolicerState state = PolicerState::full(config, 0);
      const uint64_t packets = 20'000;
      const uint64_t last_ns = 10'000'000'000;
      // As long as a burst where the rate is low; jumbo lengths where 20,000 packets would not fill the time.
      const uint64_t twice = 2 * rate / 8 * 10 / packets;
      const uint32_t bytes = static_cast<uint32_t>(std::clamp<uint64_t>(twice, 40, PolicerConfig::kMaxBurstBytes));
      config.committed_burst_bytes = config.excess_burst_bytes = 2 * bytes;
      state = PolicerState::full(config, 0);
      unsigned __int128 green = 0;
      for (uint64_t i = 1; i <= packets; ++i) {
        if (police(config, state, i * (last_ns / packets), bytes) == Color::kGreen) green += bytes;
      }
      const uint64_t allowed = rate / 8 * 10 + 2 * bytes;
      EXPECT_LE(static_cast<uint64_t>(green), allowed) << rate;
      EXPECT_GT(static_cast<uint64_t>(green) + 2 * bytes, std::min<uint64_t>(allowed, packets * bytes) - bytes) << rate;
    }
  }
}

TEST(Policer, BoundariesOfTheBuckets) {
  // One rate, 8 Mbit/s: a byte a microsecond. CBS 1000, EBS 500.
  const PolicerConfig one{8'000'000, 0, 1000, 500, 0, 0};
  PolicerState state = PolicerState::full(one, 0);
  EXPECT_EQ(police(one, state, 0, 1000), Color::kGreen);
  EXPECT_EQ(police(one, state, 0, 501), Color::kRed);
  EXPECT_EQ(police(one, state, 0, 500), Color::kYellow);
  EXPECT_EQ(police(one, state, 0, 1), Color::kRed);
  EXPECT_EQ(police(one, state, 999, 1), Color::kRed);
  EXPECT_EQ(police(one, state, 1000, 1), Color::kGreen);
  // The clock does not go back.
  EXPECT_EQ(police(one, state, 0, 1), Color::kRed);
  EXPECT_EQ(police(one, state, 1999, 1), Color::kRed);
  EXPECT_EQ(police(one, state, 2000, 1), Color::kGreen);
  // What the first bucket has no room for goes to the second; all of time does not overflow.
  EXPECT_EQ(police(one, state, ~uint64_t{0}, 1001), Color::kRed);
  EXPECT_EQ(police(one, state, ~uint64_t{0}, 1000), Color::kGreen);
  EXPECT_EQ(police(one, state, ~uint64_t{0}, 500), Color::kYellow);
  // A bucket of the largest size, and packets larger than any bucket.
  const PolicerConfig large{
      400'000'000'000, 400'000'000'000, PolicerConfig::kMaxBurstBytes, PolicerConfig::kMaxBurstBytes, 1, 0};
  state = PolicerState::full(large, 0);
  EXPECT_EQ(police(large, state, 0, PolicerConfig::kMaxBurstBytes), Color::kGreen);
  EXPECT_EQ(police(large, state, 0, 1), Color::kRed);
  EXPECT_EQ(police(large, state, ~uint64_t{0}, ~0u), Color::kRed);
  EXPECT_EQ(police(large, state, ~uint64_t{0}, PolicerConfig::kMaxBurstBytes + 1), Color::kRed);
  EXPECT_EQ(police(large, state, ~uint64_t{0}, PolicerConfig::kMaxBurstBytes), Color::kGreen);
}

TEST(Policer, AColorIsNeverMadeBetter) {
  for (const uint8_t two : {0, 1}) {
    const PolicerConfig aware{8'000'000, 16'000'000, 10'000, 10'000, two, 1};
    PolicerState state = PolicerState::full(aware, 0);
    EXPECT_EQ(police(aware, state, 0, 100, Color::kRed), Color::kRed);
    EXPECT_EQ(police(aware, state, 0, 100, Color::kYellow), Color::kYellow);
    EXPECT_EQ(police(aware, state, 0, 100, Color::kGreen), Color::kGreen);
    PolicerConfig blind = aware;
    blind.color_aware = 0;
    EXPECT_EQ(police(blind, state, 0, 100, Color::kRed), Color::kGreen);
  }
}

}  // namespace
}  // namespace sluice
