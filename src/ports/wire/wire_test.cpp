// A meter counts what a device does to a stream, whatever it is; a search finds the rate that it can carry.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "net/bytes.h"
#include "net/packet_builder.h"
#include "ports/queue_parts.h"
#include "ports/wire/burst_search.h"
#include "ports/wire/sequence_account.h"
#include "ports/wire/stamp.h"
#include "ports/wire/throughput_search.h"
#include "ports/wire/trial.h"

namespace sluice {
namespace {

// --- stamps ---

TEST(WireStamp, ComesBackAsItWasWritten) {
  const WireStamp sent{0x0123456789abcdef, (uint64_t{7} << 48) + 0x123456789abc};
  uint8_t bytes[WireStamp::kBytes];
  sent.write(bytes, 42);
  WireStamp got;
  ASSERT_TRUE(got.read(bytes, 42));
  EXPECT_EQ(got.sequence, sent.sequence);
  EXPECT_EQ(got.sent_ns, 0x123456789abcu);
  EXPECT_EQ(got.age_ns((uint64_t{9} << 48) + 0x123456789abc + 1500), 1500u);
  // Clocks of two processors may differ by a little.
  EXPECT_EQ(got.age_ns((uint64_t{9} << 48) + 0x123456789abc - 3), 0u);
}

TEST(WireStamp, IsNotTakenForAnothersAndNotWhenABitHasChanged) {
  uint8_t bytes[WireStamp::kBytes];
  WireStamp{77, 1'000'000}.write(bytes, 42);
  WireStamp got;
  for (uint64_t key = 0; key < 10'000; ++key) EXPECT_EQ(got.read(bytes, key), key == 42) << key;
  for (unsigned bit = 0; bit < 8 * WireStamp::kBytes; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_FALSE(got.read(bytes, 42)) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  EXPECT_TRUE(got.read(bytes, 42));
}

// --- accounting ---

// The same by sets.
struct Oracle {
  std::set<uint64_t> seen;
  uint64_t duplicated = 0, reordered = 0, too_old = 0;
  void add(uint64_t sequence, uint64_t window) {
    const uint64_t largest = seen.empty() ? 0 : *seen.rbegin();
    if (!seen.empty() && sequence / 64 + window / 64 < largest / 64 + 1) {
      ++too_old;
    } else if (!seen.insert(sequence).second) {
      ++duplicated;
    } else if (sequence < largest) {
      ++reordered;
    }
  }
};

// What a device makes of `n` numbers: some lost, some more than once, some later than others.
std::vector<uint64_t> disturbed(uint64_t n, double loss, double repeat, double delay, unsigned most,
                                std::mt19937_64& random) {
  std::uniform_real_distribution<> draw;
  std::multimap<uint64_t, uint64_t> at;  // place -> number
  for (uint64_t i = 0; i < n; ++i) {
    if (draw(random) < loss) continue;
    do at.emplace(i + (draw(random) < delay ? random() % most : 0), i);
    while (draw(random) < repeat);
  }
  std::vector<uint64_t> all;
  for (const auto& [place, number] : at) all.push_back(number);
  return all;
}

TEST(SequenceAccount, IsTheOraclesForAnyLossRepetitionAndOrder) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<> draw;
  for (int round = 0; round < 300; ++round) {
    const uint64_t window = uint64_t{64} << random() % 6;
    SequenceAccount account(window);
    Oracle oracle;
    const auto numbers = disturbed(1 + random() % 3000, draw(random) * draw(random), draw(random) / 2, draw(random),
                                   1 + static_cast<unsigned>(random() % 1000), random);
    for (const uint64_t number : numbers) {
      account.add(number);
      oracle.add(number, window);
    }
    ASSERT_EQ(account.unique(), oracle.seen.size()) << round;
    ASSERT_EQ(account.duplicated(), oracle.duplicated) << round;
    ASSERT_EQ(account.reordered(), oracle.reordered) << round;
    ASSERT_EQ(account.too_old(), oracle.too_old) << round;
    ASSERT_EQ(account.unique() + account.duplicated() + account.too_old(), numbers.size());
  }
}

TEST(SequenceAccount, AJumpOfManyWindowsForgetsAll) {
  SequenceAccount account(128);
  for (const uint64_t number : {0, 1, 64, 100'000, 100'001 - 64, 1, 100'000}) account.add(number);
  EXPECT_EQ(account.unique(), 5u);
  EXPECT_EQ(account.reordered(), 1u);
  EXPECT_EQ(account.too_old(), 1u);
  EXPECT_EQ(account.duplicated(), 1u);
}

// --- the search ---

struct Found {
  uint64_t pps;
  unsigned trials;
  bool ceiling;
};
// A device that carries `capacity`, and a generator that goes no faster than `generator`.
Found search(uint64_t highest, double resolution, uint64_t capacity, uint64_t generator) {
  ThroughputSearch search(highest, resolution);
  unsigned trials = 0;
  while (const auto pps = search.next()) {
    const uint64_t offered = *pps == 0 ? generator : std::min(*pps, generator);
    search.add(offered, offered <= capacity);
    if (++trials > 100) break;
  }
  return {search.throughput_pps(), trials, search.limited_by_generator()};
}

TEST(ThroughputSearch, FindsWhatTheDeviceCarriesWithinTheResolution) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t highest = random() % 2 == 0 ? 0 : 1 + random() % 200'000'000;
    const uint64_t generator = 1 + random() % 150'000'000, capacity = random() % 200'000'000;
    const double resolution = 0.01 + static_cast<double>(random() % 1000) / 100;
    const Found found = search(highest, resolution, capacity, generator);
    const uint64_t top = highest == 0 ? generator : std::min(highest, generator);
    ASSERT_LE(found.pps, std::min(top, capacity));
    ASSERT_LE(found.trials, 30u);
    const double missing = static_cast<double>(std::min(top, capacity) - found.pps);
    ASSERT_LE(missing, std::max(1.0, resolution / 100 * static_cast<double>(top)))
        << highest << " " << generator << " " << capacity << " " << resolution;
    ASSERT_EQ(found.ceiling, top <= capacity);
  }
}

TEST(BurstSearch, FindsTheLongestThatADeviceHasRoomForWithinTheResolution) {
  for (const uint64_t room : {0, 1, 2, 3, 17, 256, 5'000, 33'388}) {
    for (const double percent : {0.001, 2.0, 10.0}) {
      BurstSearch search(33'389, false, percent);
      unsigned trials = 0;
      while (const auto frames = search.next()) {
        ASSERT_GT(*frames, 0u);
        ASSERT_LT(++trials, 40u);
        search.add(*frames <= room);
      }
      EXPECT_LE(search.longest(), room);
      EXPECT_LE(room - search.longest(), search.step()) << room;
      EXPECT_LE(search.step(), std::max(1.0, percent / 100 * static_cast<double>(search.longest()))) << room;
      EXPECT_FALSE(search.limited_by_generator());
    }
  }
  const BurstSearch whole(100, true, 1);
  EXPECT_EQ(whole.next(), std::nullopt);
  EXPECT_EQ(whole.longest(), 100u);
  EXPECT_TRUE(whole.limited_by_generator());
}

TEST(ThroughputSearch, OneTrialIsEnoughWhereTheHighestRatePasses) {
  const Found found = search(1'000'000, 1, 2'000'000, 5'000'000);
  EXPECT_EQ(found.pps, 1'000'000u);
  EXPECT_EQ(found.trials, 1u);
  EXPECT_TRUE(found.ceiling);
}

TEST(ThroughputSearch, NothingPassesWhereEveryTrialLoses) {
  const Found found = search(1'000'000, 1, 0, 5'000'000);
  EXPECT_EQ(found.pps, 0u);
  EXPECT_LE(found.trials, 9u);
}

TEST(ThroughputSearch, NoRateIsReportedThatWasNotOffered) {
  // A generator that gives 5 % less than it is asked for: what it gave passes, and is the answer.
  ThroughputSearch search(0, 1);
  search.add(1'000'000, false);
  std::vector<uint64_t> offered;
  while (const auto pps = search.next()) {
    offered.push_back(*pps * 95 / 100);
    search.add(offered.back(), true);
  }
  EXPECT_EQ(search.throughput_pps(), *std::ranges::max_element(offered));
  EXPECT_TRUE(search.limited_by_generator());
}

// --- a trial ---

// A device: what is sent by `tx` comes by `rx`, unless the test's function does something else to it.
class Device {
 public:
  using Frame = std::vector<uint8_t>;

  class Tx final : public CopyingTx {
   public:
    explicit Tx(Device& device) : device_(device) {}
    uint32_t send(std::span<const TxFrame> frames) override {
      const std::lock_guard lock(device_.mutex);
      for (const TxFrame& f : frames) {
        device_.pass({f.data, f.data + f.bytes}, device_.line);
        counts_.sent(1, f.bytes);
      }
      device_.tell();
      return static_cast<uint32_t>(frames.size());
    }

   private:
    Device& device_;
  };
  class Rx final : public RxQueue {
   public:
    explicit Rx(Device& device) : device_(device) {}
    uint32_t poll(const Batch::Rows& rows, uint32_t most, uint64_t now) override {
      const std::lock_guard lock(device_.mutex);
      uint32_t n = 0;
      for (; n < most && !device_.line.empty(); ++n) {
        uint8_t* chunk = nullptr;
        if (device_.pool->take({&chunk, 1}) == 0) break;
        const Frame frame = std::move(device_.line.front());
        device_.line.pop_front();
        std::copy(frame.begin(), frame.end(), chunk + device_.pool->shape().headroom);
        set_row(rows, n, chunk + device_.pool->shape().headroom, static_cast<uint32_t>(frame.size()), now);
      }
      device_.taken += n;
      if (n == 0 && device_.line.empty()) {
        uint64_t told = 0;
        (void)!::read(device_.there, &told, sizeof told);
        device_.counted = true;
        device_.all_counted.notify_all();
      }
      return n;
    }
    RxState state() override { return RxState::kIdle; }
    FramePool& pool() override { return *device_.pool; }
    int wait_fd() const override { return device_.there; }
    bool arm() override { return true; }
    RxCounters counters() const override { return {}; }

   private:
    Device& device_;
  };

  ~Device() { ::close(there); }

  // Something has come to stand in the line, perhaps. Within mutex.
  void tell() {
    if (line.empty()) return;
    counted = false;
    const uint64_t one = 1;
    EXPECT_EQ(::write(there, &one, sizeof one), ssize_t{sizeof one});
  }

  // Sleeps, as the receiver does: who spins beside other processes keeps them from the processor.
  void wait_until_counted() {
    std::unique_lock lock(mutex);
    all_counted.wait(lock, [this] { return counted; });
  }

  std::mutex mutex;
  std::condition_variable all_counted;
  bool counted = true;  // the line is empty, and whoever took the last frame of it has asked for more
  const int there = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::deque<Frame> line;
  uint64_t taken = 0;
  std::shared_ptr<MappedFramePool> pool = *MappedFramePool::create({.chunks = 1024});
  std::function<void(Frame, std::deque<Frame>&)> pass = [](Frame frame, auto& out) { out.push_back(std::move(frame)); };
};

class WireTrialTest : public ::testing::Test {
 protected:
  WireTrialTest() {
    for (unsigned i = 0; i < 100; ++i) {
      const auto frame =
          udp4("198.18.0.1", "198.19.0.1").ports(static_cast<uint16_t>(1024 + i), 9).size(60 + i % 3 * 100).build();
      EXPECT_TRUE(
          frames_.add({static_cast<uint32_t>(frame.size()), static_cast<uint32_t>(frame.size()), 0}, frame.data()));
    }
    EXPECT_TRUE(prepare_wire_frames(frames_).ok());
    options_.key = 5;
    options_.send.packets_per_second = 1'000'000;
    options_.send.duration_ns = 2'000'000;
    options_.send.clock_ns = [this] { return clock_.load(); };
    // Time passes when all that was sent is received: what is counted does not depend on when threads run.
    options_.send.wait_ns = [this](uint64_t ns) {
      device_.wait_until_counted();
      clock_ += ns;
    };
  }
  WireTrial trial() {
    auto done = run_wire_trial(frames_, tx_, meter_, options_);
    EXPECT_TRUE(done.ok());
    EXPECT_EQ(device_.pool->out(), 0u);
    return std::move(*done);
  }

  std::atomic<uint64_t> clock_{1'000'000'000};
  Device device_;
  Device::Tx tx_{device_};
  Device::Rx rx_{device_};
  WireMeter meter_{rx_, [this] { return clock_.load(); }, true};
  FrameStore frames_;
  WireTrialOptions options_;
};

TEST_F(WireTrialTest, CountsEveryFrameOfADeviceThatLosesNone) {
  const WireTrial t = trial();
  EXPECT_EQ(t.sent(), 2'000u);
  EXPECT_EQ(t.counts.received, 2'000u);
  EXPECT_EQ(t.counts.unique, 2'000u);
  EXPECT_EQ(t.lost(), 0u);
  EXPECT_EQ(t.counts.duplicated + t.counts.reordered + t.counts.foreign + t.counts.earlier + t.counts.too_old, 0u);
  EXPECT_EQ(t.counts.bytes, t.send.bytes);
  EXPECT_EQ(t.offered_pps(), 1'000'000u);
  EXPECT_EQ(meter_.latency().count(), 2'000u);
}

TEST_F(WireTrialTest, CountsWhatAnyDeviceDoes) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    const uint64_t loss = random() % 3 == 0 ? 0 : random() % 500, repeat = random() % 300, hold = random() % 400;
    uint64_t lost = 0, repeated = 0, number = 0, arrived = 0, reordered = 0, largest = 0;
    Device::Frame held;
    uint64_t held_number = 0;
    std::set<uint64_t> seen;
    const auto arrive = [&](uint64_t which) {
      ++arrived;
      if (!seen.insert(which).second) {
        ++repeated;
      } else if (which < largest) {
        ++reordered;
      }
      largest = std::max(largest, which);
    };
    device_.pass = [&](Device::Frame frame, auto& out) {
      const uint64_t which = number++;
      if (random() % 1000 < loss) {
        ++lost;
        return;
      }
      if (held.empty() && random() % 1000 < hold) {
        held = std::move(frame);
        held_number = which;
        return;
      }
      for (bool again = true; again; again = random() % 1000 < repeat) {
        out.push_back(frame);
        arrive(which);
      }
      if (!held.empty() && random() % 4 == 0) {
        out.push_back(std::move(held));
        held.clear();
        arrive(held_number);
      }
    };
    ++options_.key;
    const WireTrial t = trial();
    ASSERT_EQ(t.sent(), number);
    ASSERT_EQ(t.counts.received, arrived);
    ASSERT_EQ(t.counts.unique, seen.size());
    ASSERT_EQ(t.lost(), lost + (held.empty() ? 0 : 1));
    ASSERT_EQ(t.counts.duplicated, repeated);
    ASSERT_EQ(t.counts.reordered, reordered);
    ASSERT_EQ(t.counts.foreign, 0u);
    ASSERT_EQ(meter_.latency().count(), seen.size());
  }
}

TEST_F(WireTrialTest, TellsForeignAndDamagedAndEarlierFramesFromItsOwn) {
  Device::Frame late;
  uint64_t n = 0;
  device_.pass = [&](Device::Frame frame, auto& out) {
    if (++n == 7) {
      late = std::move(frame);
      return;
    }
    out.push_back(std::move(frame));
  };
  EXPECT_EQ(trial().lost(), 1u);
  ++options_.key;
  n = 0;
  device_.pass = [&](Device::Frame frame, auto& out) {
    ++n;
    if (n == 1) out.push_back(late);
    if (n == 2) out.push_back(udp4("198.18.0.1", "198.19.0.1").ports(1024, 9).size(60).build());
    if (n == 3) out.push_back(tcp4("198.18.0.1", "198.19.0.1").payload(100).build());
    if (n == 4) out.push_back({1, 2, 3});
    if (n == 5) frame.back() ^= 1;  // of a frame of 60 bytes: its check
    if (n == 6) frame.resize(50);
    out.push_back(std::move(frame));
  };
  // Frames 5 and 6 of the store are of 160 and 260 bytes else.
  const auto frame = udp4("198.18.0.1", "198.19.0.1").ports(1024, 9).size(60).build();
  frames_ = FrameStore();
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(frames_.add({60, 60, 0}, frame.data()));
  ASSERT_TRUE(prepare_wire_frames(frames_).ok());
  const WireTrial t = trial();
  EXPECT_EQ(t.counts.earlier, 1u);
  EXPECT_EQ(t.counts.foreign, 5u);
  EXPECT_EQ(t.lost(), 2u);
  EXPECT_EQ(t.counts.received, t.sent() - 2);
}

TEST_F(WireTrialTest, FindsItsFramesBehindTagsAndChangedHeaders) {
  device_.pass = [](Device::Frame frame, auto& out) {
    frame[0] ^= 4;
    frame[22] -= 1;  // TTL, and the checksum with it
    store_be16(&frame[24], static_cast<uint16_t>(load_be16(&frame[24]) + 0x100 + (load_be16(&frame[24]) >= 0xff00)));
    const uint8_t tag[] = {0x81, 0, 0, 42};
    frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    out.push_back(std::move(frame));
  };
  const WireTrial t = trial();
  EXPECT_EQ(t.lost(), 0u);
  EXPECT_EQ(t.counts.foreign, 0u);
  EXPECT_EQ(t.counts.bad_checksum, 0u);
}

TEST_F(WireTrialTest, AChecksumThatTheDeviceDidNotKeepIsCountedAndTheFrameIsNotLost) {
  uint64_t n = 0;
  device_.pass = [&](Device::Frame frame, auto& out) {
    if (++n % 3 == 0) frame[22] -= 1;  // TTL
    out.push_back(std::move(frame));
  };
  const WireTrial t = trial();
  EXPECT_EQ(t.lost(), 0u);
  EXPECT_EQ(t.counts.foreign, 0u);
  EXPECT_EQ(t.counts.bad_checksum, n / 3);
}

TEST_F(WireTrialTest, LatencyIsFromTheStampToTheArrival) {
  // Frames stay in the device for a time of the test's clock.
  std::deque<Device::Frame> inside;
  device_.pass = [&](Device::Frame frame, auto&) { inside.push_back(std::move(frame)); };
  options_.send.packets_per_second = 1000;
  options_.send.duration_ns = 3'000'000;
  options_.send.wait_ns = [&](uint64_t ns) {
    clock_ += ns;
    {
      const std::lock_guard lock(device_.mutex);
      device_.line.insert(device_.line.end(), inside.begin(), inside.end());
      inside.clear();
      device_.tell();
    }
    device_.wait_until_counted();
  };
  const WireTrial t = trial();
  EXPECT_EQ(t.sent(), 3u);
  EXPECT_EQ(t.lost(), 0u);
  EXPECT_EQ(meter_.latency().min(), 1'000'000u);
  EXPECT_EQ(meter_.latency().max(), 1'000'000u);
}

TEST_F(WireTrialTest, WaitsForStragglersAndNoLongerThanItMay) {
  uint64_t n = 0;
  device_.pass = [&](Device::Frame frame, auto& out) {
    if (++n != 7) out.push_back(std::move(frame));
  };
  const uint64_t begin = clock_;
  EXPECT_EQ(trial().lost(), 1u);
  EXPECT_GE(clock_ - begin, options_.send.duration_ns + options_.straggler_ns);
  EXPECT_LE(clock_ - begin, options_.send.duration_ns + options_.straggler_ns + 10'000'000);
  // All back: quiet is enough.
  ++options_.key;
  const uint64_t again = clock_;
  EXPECT_EQ(trial().lost(), 0u);
  EXPECT_LE(clock_ - again, options_.send.duration_ns + options_.quiet_ns + 10'000'000);
}

TEST_F(WireTrialTest, AStopEndsItWithWhatWasMeasured) {
  std::atomic<bool> stop{false};
  options_.send.stop = &stop;
  uint64_t n = 0;
  device_.pass = [&](Device::Frame frame, auto& out) {
    out.push_back(std::move(frame));
    if (++n == 500) stop = true;
  };
  const WireTrial t = trial();
  EXPECT_TRUE(t.send.stopped);
  EXPECT_GE(t.sent(), 500u);
  EXPECT_LT(t.sent(), 600u);
  EXPECT_EQ(t.lost(), 0u);
}

TEST(WireFrames, ThatHaveNoRoomForAStampAreRefused) {
  for (const auto& frame :
       {udp4("198.18.0.1", "198.19.0.1").payload(17).build(), tcp4("198.18.0.1", "198.19.0.1").payload(100).build(),
        udp6("2001:db8::1", "2001:db8::2").payload(100).build()}) {
    FrameStore frames;
    const auto bytes = static_cast<uint32_t>(frame.size());
    ASSERT_TRUE(frames.add({bytes, bytes, 0}, frame.data()));
    EXPECT_FALSE(prepare_wire_frames(frames).ok());
  }
}

}  // namespace
}  // namespace sluice
