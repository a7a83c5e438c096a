// Routes through the C functions: answers are those of the longest prefix, by any algorithm, also while routes change.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <fmt/format.h>
#include <atomic>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/api_test_support.h"
#include "net/text.h"
#include "tables/acl/acl_test_support.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/rib.h"

namespace sluice::api_test {
namespace {

using acl_test::Random;

struct Routes {
  Rib rib;
  std::string text;
};

Routes random_routes(Random& random, size_t n) {
  Routes made;
  for (size_t i = 0; i < n; ++i) {
    const IpPrefix prefix = acl_test::random_prefix(random, random() % 2 == 0 ? 4 : 6);
    const std::string hop = fmt::format("10.0.0.{}", 1 + acl_test::below(random, 20));
    made.rib.add(prefix, made.rib.intern(hop));
    made.text += fmt::format("{} {}\n", to_string(prefix), hop);
  }
  made.rib.settle();
  return made;
}

std::string name_of(const sluice_fib* fib, uint32_t hop) {
  char text[64] = "?";
  const size_t n = sluice_fib_next_hop(fib, hop, text, sizeof text);
  EXPECT_EQ(n, hop == 0 ? 0 : std::string(text).size());
  return text;
}

void expect_oracle(const sluice_fib* fib, const Rib& rib, size_t n, Random& random) {
  std::vector<uint32_t> four(n), hops(n);
  std::vector<uint64_t> hi(n), lo(n);
  for (size_t i = 0; i < n; ++i) {
    four[i] = static_cast<uint32_t>(acl_test::random_prefix(random, 4).address.lo | (random() & 0xff));
    const IpPrefix six = acl_test::random_prefix(random, 6);
    hi[i] = six.address.hi | (random() & 0xf);
    lo[i] = six.address.lo | (random() & 0xf);
  }
  const auto same = [&](const IpAddress& address, uint32_t hop) {
    const uint32_t want = rib.match(address).next_hop;
    ASSERT_EQ(name_of(fib, hop), want == 0 ? "" : rib.next_hop_name(want)) << to_string(address);
  };
  ASSERT_NE(sluice_fib_lookup4(fib, four.data(), n, hops.data()), 0u);
  for (size_t i = 0; i < n; ++i) same({0, four[i], 4}, hops[i]);
  ASSERT_NE(sluice_fib_lookup6(fib, hi.data(), lo.data(), n, hops.data()), 0u);
  for (size_t i = 0; i < n; ++i) same({hi[i], lo[i], 6}, hops[i]);
}

TEST(ApiFib, LooksUpTheLongestPrefix) {
  for (const std::string& four : lpm_algorithm_names4()) {
    for (const std::string& six : {lpm_algorithm_names6().front(), lpm_algorithm_names6().back()}) {
      if (six != lpm_algorithm_names6().front() && four != lpm_algorithm_names4().back()) continue;
      Random random(11);
      const Routes routes = random_routes(random, 300);
      const auto fib = fib_of(routes.text, four.c_str(), six.c_str());
      EXPECT_EQ(sluice_fib_algorithm(fib.get(), 4), four);
      EXPECT_EQ(sluice_fib_algorithm(fib.get(), 6), six);
      expect_oracle(fib.get(), routes.rib, 500, random);
    }
  }
}

TEST(ApiFib, AnyRoutesGiveTheOraclesAnswers) {
  EXPECT_TRUE(rc::check([](uint32_t seed) {
    Random random(seed);
    const Routes routes = random_routes(random, 1 + acl_test::below(random, 60));
    const auto fib = fib_of(routes.text, "poptrie", "poptrie");
    RC_ASSERT(static_cast<bool>(fib));
    RC_ASSERT(sluice_fib_next_hops(fib.get()) == routes.rib.next_hop_count());
    expect_oracle(fib.get(), routes.rib, 40, random);
    RC_ASSERT(!testing::Test::HasFailure());
  }));
}

TEST(ApiFib, ChangesKeepTheNumbersOfNextHops) {
  const auto fib = fib_of("10.0.0.0/8 a\n2001:db8::/32 b\n");
  const uint32_t address = 0x0a000001;
  uint32_t hop = 0;
  Errors errors;
  EXPECT_EQ(sluice_fib_lookup4(fib.get(), &address, 1, &hop), 1u);
  EXPECT_EQ(name_of(fib.get(), hop), "a");
  const uint32_t a = hop;
  ASSERT_EQ(sluice_fib_change(fib.get(), "add 10.0.0.0/24 via c\n", "step", &errors), 0) << errors.text();
  EXPECT_EQ(sluice_fib_lookup4(fib.get(), &address, 1, &hop), 2u);
  EXPECT_EQ(name_of(fib.get(), hop), "c");
  ASSERT_EQ(sluice_fib_change(fib.get(), "delete 10.0.0.0/24\n", "step", &errors), 0) << errors.text();
  EXPECT_EQ(sluice_fib_lookup4(fib.get(), &address, 1, &hop), 3u);
  EXPECT_EQ(hop, a);
  const std::string other = "0.0.0.0/0 b\n10.0.0.0/8 a\n";
  ASSERT_EQ(sluice_fib_replace(fib.get(), other.data(), other.size(), "other", &errors), 0) << errors.text();
  EXPECT_EQ(sluice_fib_lookup4(fib.get(), &address, 1, &hop), 4u);
  EXPECT_EQ(hop, a);
  // What was changed is what is saved; an image has no routes to change.
  const auto path =
      (std::filesystem::temp_directory_path() / ("sluice_api_fib_" + std::to_string(::getpid()))).string();
  ASSERT_EQ(sluice_fib_save(fib.get(), path.c_str(), &errors), 0) << errors.text();
  const Handle<sluice_fib> again(sluice_fib_open(path.c_str(), nullptr, &errors));
  std::filesystem::remove(path);
  ASSERT_NE(again, nullptr) << errors.text();
  const uint32_t outside = 0x0b000001;
  EXPECT_EQ(sluice_fib_lookup4(again.get(), &outside, 1, &hop), 1u);
  EXPECT_EQ(name_of(again.get(), hop), "b");
  EXPECT_EQ(sluice_fib_change(again.get(), "add 10.0.0.0/24 via c\n", "step", &errors), -1);
  EXPECT_NE(errors.text().find("image"), std::string::npos) << errors.text();
}

TEST(ApiFib, AnswersAreOfOneGenerationWhileRoutesChange) {
  const auto fib = fib_of("10.0.0.0/8 even\n10.1.0.0/16 odd\n", "poptrie", "poptrie");
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, calls{0};
  std::vector<std::thread> readers;
  for (const size_t n : {size_t{1}, size_t{64}, size_t{20'000}}) {
    readers.emplace_back([&, n] {
      const std::vector<uint32_t> addresses(n, 0x0a010001);
      std::vector<uint32_t> hops(n);
      while (!stop.load()) {
        // Odd generations have the longer prefix.
        const uint64_t generation = sluice_fib_lookup4(fib.get(), addresses.data(), n, hops.data());
        const uint32_t want = generation % 2 == 1 ? 2 : 1;
        for (const uint32_t hop : hops) wrong += hop != want;
        ++calls;
      }
    });
  }
  while (calls.load() < 3) std::this_thread::yield();
  for (int i = 0; i < 40; ++i) {
    Errors errors;
    ASSERT_EQ(
        sluice_fib_change(fib.get(), i % 2 == 0 ? "delete 10.1.0.0/16\n" : "add 10.1.0.0/16 odd\n", "turn", &errors), 0)
        << errors.text();
  }
  stop = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0u);
}

TEST(ApiFib, BadInputGivesFileLineAndColumn) {
  const char text[] = "10.0.0.0/8 a\n10.0.0.0/33 b\n";
  Errors errors;
  EXPECT_EQ(sluice_fib_read(text, sizeof text - 1, "rib.txt", nullptr, &errors), nullptr);
  ASSERT_EQ(errors.count(), 1u) << errors.text();
  EXPECT_STREQ(errors.at(0).file, "rib.txt");
  EXPECT_EQ(errors.at(0).line, 2u);
  EXPECT_EQ(errors.at(0).column, 1u);
  EXPECT_EQ(sluice_fib_read(text, sizeof text - 1, "a,b", nullptr, &errors), nullptr);
  EXPECT_NE(errors.text().find("comma"), std::string::npos);
  const auto fib = fib_of("10.0.0.0/8 a\n");
  EXPECT_EQ(sluice_fib_change(fib.get(), "add 10.0.0.0/24 via b\ndelete 11.0.0.0/8\n", "step", &errors), -1);
  ASSERT_EQ(errors.count(), 1u);
  EXPECT_EQ(errors.at(0).line, 2u);
  EXPECT_EQ(sluice_fib_generation(fib.get()), 1u);
  EXPECT_EQ(sluice_fib_next_hops(fib.get()), 1u);
}

TEST(ApiFib, NothingInIsNothingOut) {
  const auto fib = fib_of("10.0.0.0/8 abc\n");
  const uint32_t address = 0x0a000001;
  const uint64_t half = 0;
  uint32_t hop = 9;
  EXPECT_EQ(sluice_fib_lookup4(nullptr, &address, 1, &hop), 0u);
  EXPECT_EQ(sluice_fib_lookup4(fib.get(), nullptr, 1, &hop), 0u);
  EXPECT_EQ(sluice_fib_lookup6(fib.get(), &half, nullptr, 1, &hop), 0u);
  EXPECT_EQ(hop, 9u);
  EXPECT_EQ(sluice_fib_lookup4(fib.get(), nullptr, 0, nullptr), 1u);
  EXPECT_EQ(sluice_fib_lookup6(fib.get(), nullptr, nullptr, 0, nullptr), 1u);
  char text[3] = "?";
  EXPECT_EQ(sluice_fib_next_hop(fib.get(), 1, text, sizeof text), 3u);
  EXPECT_STREQ(text, "ab");
  EXPECT_EQ(sluice_fib_next_hop(fib.get(), 1, nullptr, 0), 3u);
  EXPECT_EQ(sluice_fib_next_hop(fib.get(), 2, text, sizeof text), 0u);
  EXPECT_STREQ(text, "");
  EXPECT_EQ(sluice_fib_next_hop(nullptr, 1, text, sizeof text), 0u);
  EXPECT_STREQ(sluice_fib_algorithm(fib.get(), 5), "");
  EXPECT_EQ(sluice_fib_next_hops(nullptr), 0u);
  sluice_fib_free(nullptr);
}

}  // namespace
}  // namespace sluice::api_test
