// Channels: each key is answered once, in order, as the table itself answers it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "api/api_test_support.h"
#include "formats/native_rules.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"

namespace sluice::api_test {
namespace {

using acl_test::Random;

struct Way {
  const char* device;
  uint32_t mode;
};

class ApiChannel : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    Errors errors;
    device_.reset(sluice_device_open(GetParam().device, &errors));
    ASSERT_NE(device_, nullptr) << errors.text();
    options_.mode = GetParam().mode;
    options_.burst = 100;
  }
  Handle<sluice_channel> open(const sluice_acl* acl) {
    Errors errors;
    Handle<sluice_channel> made(sluice_channel_open_acl(device_.get(), acl, &options_, &errors));
    EXPECT_NE(made, nullptr) << errors.text();
    return made;
  }

  Handle<sluice_device> device_;
  sluice_channel_options options_ = SLUICE_CHANNEL_OPTIONS_INIT;
};

// All keys, in bursts of a size that is drawn.
std::vector<sluice_match> through(sluice_channel* channel, const std::vector<sluice_key>& keys, Random& random) {
  std::vector<sluice_match> out(keys.size());
  size_t sent = 0, got = 0;
  while (got < keys.size()) {
    const size_t n = std::min<size_t>(keys.size() - sent, 1 + acl_test::below(random, 100));
    const size_t taken = n == 0 ? 0 : sluice_channel_submit(channel, keys.data() + sent, n);
    EXPECT_TRUE(taken == n || taken == 0);
    sent += taken;
    EXPECT_EQ(sluice_channel_pending(channel), sent - got);
    got += sluice_channel_poll(channel, out.data() + got, nullptr, 1 + acl_test::below(random, 150));
    EXPECT_LE(got, sent);
    if (taken == 0) std::this_thread::yield();
  }
  EXPECT_EQ(sluice_channel_pending(channel), 0u);
  EXPECT_STREQ(sluice_channel_failure(channel), "");
  return out;
}

void expect_same(const std::vector<sluice_match>& got, const std::vector<sluice_match>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].rule, want[i].rule) << i;
    ASSERT_EQ(got[i].action, want[i].action) << i;
    ASSERT_EQ(got[i].mark, want[i].mark) << i;
  }
}

TEST_P(ApiChannel, AnswersAsTheListDoes) {
  Random random(5);
  const RuleSet set = acl_test::random_set(random, 200);
  auto image = build_acl(set, "tuple_merge");
  ASSERT_TRUE(image.ok());
  const Handle<sluice_acl> acl(
      sluice_acl_read(image->bytes().data(), image->bytes().size(), "image", nullptr, nullptr));
  ASSERT_NE(acl, nullptr);
  const auto channel = open(acl.get());
  ASSERT_NE(channel, nullptr);
  const auto keys = keys_of(acl_test::keys_for(set, 2000, random));
  expect_same(through(channel.get(), keys, random), classify(acl.get(), keys));
}

// The list is patched: what a device returns are numbers with gaps.
TEST_P(ApiChannel, StaysWithItsGenerationUntilItIsUpdated) {
  std::string text;
  for (unsigned i = 0; i < 600; ++i)
    text += "deny tcp from 172.16." + std::to_string(i / 250) + "." + std::to_string(i % 250) + " to any\n";
  text += "permit tcp from any to any\n";
  const auto acl = acl_of(text);
  const auto channel = open(acl.get());
  Random random(6);
  const std::vector<sluice_key> keys(300, tcp4(0xac100005, 2, 80));
  const auto before = classify(acl.get(), keys);
  EXPECT_EQ(before[0].rule, 6u);
  for (int round = 0; round < 4; ++round) {
    ASSERT_EQ(sluice_acl_change(acl.get(), "add at 1 deny udp from any to any\n", "c", nullptr), 0);
    const auto old = through(channel.get(), keys, random);
    EXPECT_EQ(old[0].rule, 6u + static_cast<uint32_t>(round));
    EXPECT_EQ(sluice_channel_generation(channel.get()), static_cast<uint64_t>(round) + 1);
    // Not while answers are pending.
    ASSERT_EQ(sluice_channel_submit(channel.get(), keys.data(), 10), 10u);
    Errors errors;
    EXPECT_EQ(sluice_channel_update(channel.get(), &errors), -1);
    EXPECT_NE(errors.text().find("pending"), std::string::npos);
    std::vector<sluice_match> rest(10);
    for (size_t got = 0; got < 10;) got += sluice_channel_poll(channel.get(), rest.data(), nullptr, 10 - got);
    ASSERT_EQ(sluice_channel_update(channel.get(), &errors), 0) << errors.text();
    EXPECT_EQ(sluice_channel_generation(channel.get()), static_cast<uint64_t>(round) + 2);
    expect_same(through(channel.get(), keys, random), classify(acl.get(), keys));
  }
}

TEST_P(ApiChannel, RoutesAreLookedUpByDestination) {
  const auto fib = fib_of("10.0.0.0/8 a\n10.1.0.0/16 b\n2001:db8::/32 c\n");
  Errors errors;
  const Handle<sluice_channel> channel(sluice_channel_open_fib(device_.get(), fib.get(), &options_, &errors));
  ASSERT_NE(channel, nullptr) << errors.text();
  std::vector<sluice_key> keys(90);
  for (size_t i = 0; i < keys.size(); i += 3) {
    keys[i] = tcp4(1, 0x0a010000 + static_cast<uint32_t>(i), 80);
    keys[i + 1].family = 6;
    keys[i + 1].dst_hi = 0x20010db800000000;
    keys[i + 2].dst_lo = 0x0a000001;  // not IP
  }
  ASSERT_EQ(sluice_channel_submit(channel.get(), keys.data(), keys.size()), keys.size());
  std::vector<uint32_t> hops(keys.size(), 99);
  EXPECT_EQ(sluice_channel_poll(channel.get(), nullptr, nullptr, 1), 0u) << "there is nowhere to write";
  for (size_t got = 0; got < keys.size();)
    got += sluice_channel_poll(channel.get(), nullptr, hops.data() + got, keys.size() - got);
  for (size_t i = 0; i < keys.size(); i += 3) {
    EXPECT_EQ(hops[i], 2u);
    EXPECT_EQ(hops[i + 1], 3u);
    EXPECT_EQ(hops[i + 2], 0u);
  }
}

TEST_P(ApiChannel, OutlivesTheHandlesThatItWasOpenedWith) {
  auto acl = acl_of("permit tcp from any to any port 80\n");
  const auto channel = open(acl.get());
  device_.reset();
  acl.reset();
  Random random(1);
  EXPECT_EQ(through(channel.get(), std::vector<sluice_key>(50, tcp4(1, 2, 80)), random)[49].rule, 1u);
}

TEST_P(ApiChannel, TakesNoMoreThanItHasRoomFor) {
  const auto acl = acl_of("permit tcp from any to any port 80\n");
  options_.flights = 2;
  const auto channel = open(acl.get());
  const std::vector<sluice_key> keys(101, tcp4(1, 2, 80));
  EXPECT_EQ(sluice_channel_submit(channel.get(), keys.data(), 101), 0u);
  EXPECT_EQ(sluice_channel_submit(channel.get(), keys.data(), 0), 0u);
  EXPECT_EQ(sluice_channel_submit(channel.get(), keys.data(), 100), 100u);
  EXPECT_EQ(sluice_channel_submit(channel.get(), keys.data(), 1), 1u);
  EXPECT_EQ(sluice_channel_submit(channel.get(), keys.data(), 1), 0u);
  EXPECT_EQ(sluice_channel_pending(channel.get()), 101u);
  // It is freed with keys under way.
}

// Whoever settles has all answers at once, in order, each counted once, whatever the device does later.
TEST_P(ApiChannel, AnswersWithoutTheDeviceOnRequest) {
  const auto acl = acl_of("deny tcp from any to any port 80\npermit tcp from any to any port 81\n", nullptr, true);
  options_.flights = 3;
  const auto channel = open(acl.get());
  uint64_t counted[3] = {};
  for (int round = 0; round < 50; ++round) {
    std::vector<sluice_key> keys;
    size_t sent = 0;
    for (int burst = 0; burst < 3; ++burst) {
      for (int i = 0; i < 40; ++i) keys.push_back(tcp4(1, 2, static_cast<uint16_t>(80 + (round + burst + i) % 3)));
      // Where the device is still at what was settled, there may be no room for all.
      if (sluice_channel_submit(channel.get(), keys.data() + sent, 40) == 40)
        sent += 40;
      else
        keys.resize(sent);
    }
    std::vector<sluice_match> got(keys.size() + 1);
    if (round % 3 != 2) {
      sluice_channel_settle(channel.get());
      ASSERT_EQ(sluice_channel_poll(channel.get(), got.data(), nullptr, got.size()), sent);
    } else {
      for (size_t n = 0; n < sent;) n += sluice_channel_poll(channel.get(), got.data() + n, nullptr, got.size() - n);
    }
    EXPECT_EQ(sluice_channel_pending(channel.get()), 0u);
    for (size_t i = 0; i < sent; ++i) {
      const uint32_t rule = keys[i].dst_port == 80 ? 1 : keys[i].dst_port == 81 ? 2 : 0;
      ASSERT_EQ(got[i].rule, rule);
      ++counted[rule];
    }
    if (round % 10 == 9) {
      Errors errors;
      while (sluice_channel_update(channel.get(), &errors) != 0) {
        ASSERT_NE(errors.text().find("not done"), std::string::npos) << errors.text();
        std::this_thread::yield();
      }
    }
  }
  EXPECT_GT(counted[0], 0u);
  sluice_counter counters[3];
  ASSERT_EQ(sluice_acl_counters(acl.get(), counters, 3, nullptr, nullptr), 3u);
  for (int rule = 0; rule < 3; ++rule) {
    EXPECT_EQ(counters[rule].packets, counted[rule]);
    EXPECT_EQ(counters[rule].bytes, 100 * counted[rule]);
  }
}

TEST(ApiDevice, AdaptiveChannelsSwitchByTheirLoad) {
  const Handle<sluice_device> emu(sluice_device_open("emu", nullptr));
  ASSERT_NE(emu, nullptr);
  const auto acl = acl_of("deny tcp from any to any port 80\n");
  sluice_channel_options options = SLUICE_CHANNEL_OPTIONS_INIT;
  options.mode = SLUICE_ADAPTIVE;
  const Handle<sluice_channel> channel(sluice_channel_open_acl(emu.get(), acl.get(), &options, nullptr));
  ASSERT_NE(channel, nullptr);
  EXPECT_EQ(sluice_channel_switches(channel.get()), 0u);
  const std::vector<sluice_key> keys(256, tcp4(1, 2, 80));
  std::vector<sluice_match> out(keys.size());
  auto send = [&](size_t n) {
    ASSERT_EQ(sluice_channel_submit(channel.get(), keys.data(), n), n);
    for (size_t got = 0; got < n;) got += sluice_channel_poll(channel.get(), out.data() + got, nullptr, n - got);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(out[i].rule, 1u);
  };
  for (int i = 0; i < 20; ++i) send(256);
  EXPECT_EQ(sluice_channel_switches(channel.get()), 1u);
  for (int i = 0; i < 20; ++i) send(1);
  EXPECT_EQ(sluice_channel_switches(channel.get()), 2u);
  EXPECT_EQ(sluice_channel_switches(nullptr), 0u);
  sluice_channel_settle(nullptr);
}

// A channel each, over one list that changes.
TEST_P(ApiChannel, EachThreadHasItsOwn) {
  const auto acl = acl_of("deny tcp from any to any port 80\n");
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Handle<sluice_channel> channel(sluice_channel_open_acl(device_.get(), acl.get(), &options_, nullptr));
      if (channel == nullptr) {
        ++failed;
        return;
      }
      const std::vector<sluice_key> keys(40, tcp4(1, 2, 80));
      std::vector<sluice_match> out(keys.size());
      for (int i = 0; i < 20; ++i) {
        failed += sluice_channel_submit(channel.get(), keys.data(), keys.size()) != keys.size();
        for (size_t got = 0; got < out.size();)
          got += sluice_channel_poll(channel.get(), out.data() + got, nullptr, out.size() - got);
        const uint32_t want = sluice_channel_generation(channel.get()) % 2 == 1 ? SLUICE_DENY : SLUICE_PERMIT;
        for (const sluice_match& m : out) failed += m.rule != 1 || m.action != want;
        failed += sluice_channel_update(channel.get(), nullptr) != 0;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    // Where three channels are at old generations there is no room for another: it is made when one has gone on.
    const char* const step =
        i % 2 == 0 ? "replace 1 permit tcp from any to any port 80\n" : "replace 1 deny tcp from any to any port 80\n";
    int tries = 0;
    constexpr int kMost = 20'000;
    while (sluice_acl_change(acl.get(), step, "turn", nullptr) != 0 && ++tries < kMost)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    failed += tries == kMost;
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, ApiChannel,
                         testing::Values(Way{"cpu", SLUICE_LAUNCH}, Way{"emu", SLUICE_LAUNCH},
                                         Way{"emu", SLUICE_PERSISTENT}),
                         [](const auto& way) {
                           return std::string(way.param.device) +
                                  (way.param.mode == SLUICE_PERSISTENT ? "Persistent" : "Launch");
                         });

// By its name, as another program asks for it. What it had and all that follows is answered like the rest.
TEST(ApiDevice, ThatDiesInTheMiddleLeavesNoKeyWithoutItsAnswer) {
  for (const uint32_t mode : {SLUICE_LAUNCH, SLUICE_PERSISTENT, SLUICE_ADAPTIVE}) {
    for (const char* name :
         {"emu:fail-after=1", "emu:fail-after=150", "emu:fail-after=1000000", "emu:stop-after=150"}) {
      SCOPED_TRACE(std::string(name) + " mode " + std::to_string(mode));
      const Handle<sluice_device> device(sluice_device_open(name, nullptr));
      ASSERT_NE(device, nullptr);
      const auto acl = acl_of("deny tcp from any to any port 1-500\npermit ip from any to any\n");
      sluice_channel_options options = SLUICE_CHANNEL_OPTIONS_INIT;
      options.mode = mode;
      options.burst = 50;
      const Handle<sluice_channel> channel(sluice_channel_open_acl(device.get(), acl.get(), &options, nullptr));
      ASSERT_NE(channel, nullptr);
      std::vector<sluice_key> keys;
      for (uint16_t i = 1; i <= 1000; ++i) keys.push_back(tcp4(1, 2, i));
      std::vector<sluice_match> got(keys.size());
      size_t sent = 0, answered = 0;
      const bool stops = std::string(name).starts_with("emu:stop");
      // One that stops says nothing: who asks waits as long as it wants.
      while (answered < keys.size()) {
        const size_t taken =
            sluice_channel_submit(channel.get(), keys.data() + sent, std::min<size_t>(50, keys.size() - sent));
        sent += taken;
        if (stops && taken == 0) sluice_channel_settle(channel.get());
        answered += sluice_channel_poll(channel.get(), got.data() + answered, nullptr, keys.size() - answered);
        if (stops && taken == 0 && answered == sent) break;
      }
      expect_same({got.begin(), got.begin() + static_cast<ptrdiff_t>(answered)},
                  classify(acl.get(), {keys.begin(), keys.begin() + static_cast<ptrdiff_t>(answered)}));
      EXPECT_GE(answered, 200u);
      const std::string why = sluice_channel_failure(channel.get());
      if (!stops) {
        EXPECT_EQ(why, std::string(name) == "emu:fail-after=1000000" ? "" : "the emulated device was killed");
      }
    }
  }
  const Handle<sluice_device> dead(sluice_device_open("emu:fail-after=0", nullptr));
  Errors why;
  EXPECT_EQ(sluice_channel_open_acl(dead.get(), acl_of("permit ip from any to any\n").get(), nullptr, &why), nullptr);
  EXPECT_NE(why.text().find("the emulated device was killed"), std::string::npos) << why.text();
  for (const char* name : {"emu:", "emu:fail-after", "emu:fail-after=", "emu:fail-after=x", "emu:fail-after=1:2",
                           "emu:fail-after=-1", "emu:late=3", "cuda:fail-after=1"}) {
    Errors errors;
    EXPECT_EQ(sluice_device_open(name, &errors), nullptr) << name;
    EXPECT_NE(errors.text().find(name), std::string::npos) << errors.text();
  }
}

TEST(ApiDevice, SaysWhatIsWrong) {
  Errors errors;
  EXPECT_EQ(sluice_device_open("tpu", &errors), nullptr);
  EXPECT_NE(errors.text().find("tpu"), std::string::npos);
  EXPECT_EQ(sluice_device_open(nullptr, &errors), nullptr);
  EXPECT_EQ(sluice_device_open("cuda:4000", &errors), nullptr);
  EXPECT_STREQ(sluice_device_name(nullptr), "");
  const Handle<sluice_device> cpu(sluice_device_open("cpu", nullptr));
  EXPECT_STREQ(sluice_device_name(cpu.get()), "cpu");
  const auto acl = acl_of("deny from any to any\n");
  EXPECT_EQ(sluice_channel_open_acl(nullptr, acl.get(), nullptr, &errors), nullptr);
  EXPECT_EQ(sluice_channel_open_acl(cpu.get(), nullptr, nullptr, &errors), nullptr);
  sluice_channel_options options = SLUICE_CHANNEL_OPTIONS_INIT;
  options.mode = 3;
  EXPECT_EQ(sluice_channel_open_acl(cpu.get(), acl.get(), &options, &errors), nullptr);
  options.mode = SLUICE_LAUNCH;
  options.flights = 17;
  EXPECT_EQ(sluice_channel_open_acl(cpu.get(), acl.get(), &options, &errors), nullptr);
  sluice_key key{};
  EXPECT_EQ(sluice_channel_submit(nullptr, &key, 1), 0u);
  EXPECT_EQ(sluice_channel_poll(nullptr, nullptr, nullptr, 1), 0u);
  EXPECT_EQ(sluice_channel_pending(nullptr), 0u);
  EXPECT_EQ(sluice_channel_generation(nullptr), 0u);
  EXPECT_EQ(sluice_channel_update(nullptr, nullptr), -1);
  EXPECT_STREQ(sluice_channel_failure(nullptr), "");
  sluice_channel_free(nullptr);
  sluice_device_free(nullptr);
}

}  // namespace
}  // namespace sluice::api_test
