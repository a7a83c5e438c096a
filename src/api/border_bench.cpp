// What the border to C costs: the same keys through the C functions and through the views behind them, in turns, in
// bursts of some size. `ratio` is the median of the turns' processor time across the border to that without; 1.01 is
// the goal's limit for bursts of 32 and more. Answers are compared before anything is timed.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sluice/sluice.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "formats/native_rules.h"
#include "formats/route_text.h"
#include "tables/acl/algorithms.h"
#include "tables/lpm/algorithms.h"

namespace sluice {
namespace {

constexpr size_t kKeys = size_t{1} << 15;
constexpr int kPasses = 4;  // over all keys, a turn

template <typename T>
T must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "{}\n", to_string(result.error()));
    std::abort();
  }
  return std::move(*result);
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Runs both in turns, first one, then the other, and fills the counters.
template <typename Direct, typename Border>
void compare(benchmark::State& state, Direct&& direct, Border&& border) {
  std::vector<double> ratios, without;
  const auto timed = [](auto&& what) {
    const double begin = processor_seconds();
    for (int pass = 0; pass < kPasses; ++pass) what();
    return processor_seconds() - begin;
  };
  for (auto _ : state) {
    const bool first = ratios.size() % 2 == 0;
    const double a = first ? timed(direct) : timed(border), b = first ? timed(border) : timed(direct);
    ratios.push_back(first ? b / a : a / b);
    without.push_back(first ? a : b);
  }
  const auto at = [](std::vector<double>& values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  state.counters["ratio"] = at(ratios, 0.5);
  state.counters["ratio_p25"] = at(ratios, 0.25);
  state.counters["ratio_p75"] = at(ratios, 0.75);
  state.counters["ns_per_key"] = at(without, 0.5) * 1e9 / (kKeys * kPasses);
}

std::string list_text(unsigned rules) {
  std::string text;
  for (unsigned i = 0; i < rules; ++i)
    text += fmt::format("permit udp from 10.{}.{}.0/24 to any port {}\n", i / 250, i % 250, i % 500);
  return text + "deny from any to any\n";
}

void classify(benchmark::State& state) {
  const auto burst = static_cast<size_t>(state.range(0));
  const unsigned rules = 10'000;
  const std::string text = list_text(rules);
  const Image image = must(build_acl(must(parse_native_rules(text, "list"))));
  const AclView view = must(AclView::open(image));
  const AclActionsView actions = must(AclActionsView::open(image));
  sluice_errors* errors = nullptr;
  sluice_acl* const acl = sluice_acl_read(text.data(), text.size(), "list", nullptr, &errors);
  if (acl == nullptr) std::abort();
  std::mt19937_64 random(1);
  std::vector<FlowKey> keys(kKeys);
  for (FlowKey& key : keys) {
    const auto i = static_cast<unsigned>(random() % rules);
    key.family = 4;
    key.src_lo = 0x0a000007 + (i / 250 << 16) + (i % 250 << 8);
    key.dst_lo = random() & 0xffffffff;
    key.protocol = 17;
    key.bits = FlowKey::kHasPorts;
    key.dst_port = static_cast<uint16_t>(i % 500);
  }
  std::vector<sluice_match> want(kKeys), got(kKeys);
  const auto* const given = reinterpret_cast<const sluice_key*>(keys.data());
  const auto direct = [&] {
    for (size_t call = 0; call < kKeys; call += burst) {
      for (size_t at = call; at < call + burst; at += kAclBurst) {
        const size_t n = std::min(call + burst - at, kAclBurst);
        std::array<const FlowKey*, kAclBurst> some;
        std::array<uint32_t, kAclBurst> numbers;
        for (size_t i = 0; i < n; ++i) some[i] = &keys[at + i];
        view.lookup_burst(some.data(), numbers.data(), n);
        for (size_t i = 0; i < n; ++i) {
          const AclAction action = actions.action(numbers[i]);
          want[at + i] = {numbers[i], static_cast<uint32_t>(action.verb), action.mark};
        }
      }
      benchmark::ClobberMemory();
    }
  };
  const auto border = [&] {
    for (size_t call = 0; call < kKeys; call += burst) sluice_acl_classify(acl, given + call, burst, got.data() + call);
  };
  direct();
  border();
  if (std::memcmp(want.data(), got.data(), kKeys * sizeof(sluice_match)) != 0) std::abort();
  compare(state, direct, border);
  sluice_acl_free(acl);
}

void lookup4(benchmark::State& state) {
  const auto burst = static_cast<size_t>(state.range(0));
  std::mt19937_64 random(2);
  std::string text;
  for (unsigned i = 0; i < 100'000; ++i)
    text += fmt::format("{}.{}.{}.0/24 {}\n", 1 + i % 200, i / 200 % 250, i / 50'000, 1 + random() % 100);
  Rib rib;
  if (!parse_routes(text, "routes", rib)) std::abort();
  rib.settle();
  const Image image = must(build_routes(rib, Poptrie::kName, Poptrie::kName));
  std::vector<uint32_t> addresses(kKeys), want(kKeys), got(kKeys);
  for (uint32_t& a : addresses)
    a = static_cast<uint32_t>((1 + random() % 200) << 24 | random() % 250 << 16 | (random() & 0x1ff));
  // Two tables take turns in the caches: one that is small, so that it is the border that is seen.
  sluice_fib_options options = SLUICE_FIB_OPTIONS_INIT;
  options.algorithm4 = Poptrie::kName;
  sluice_fib* const fib = sluice_fib_read(text.data(), text.size(), "routes", &options, nullptr);
  if (fib == nullptr) std::abort();
  const auto opened = with_fib4(image, [&](const auto& view) {
    const auto direct = [&] {
      for (size_t call = 0; call < kKeys; call += burst) {
        view.lookup_bulk(addresses.data() + call, want.data() + call, burst);
        benchmark::ClobberMemory();
      }
    };
    const auto border = [&] {
      for (size_t call = 0; call < kKeys; call += burst)
        sluice_fib_lookup4(fib, addresses.data() + call, burst, got.data() + call);
    };
    direct();
    border();
    if (want != got) std::abort();
    compare(state, direct, border);
  });
  if (!opened.ok()) std::abort();
  sluice_fib_free(fib);
}

BENCHMARK(classify)->Arg(1)->Arg(8)->Arg(32)->Arg(64)->Arg(256)->Arg(4096)->Iterations(101)->Unit(
    benchmark::kMillisecond);
BENCHMARK(lookup4)->Arg(1)->Arg(32)->Arg(256)->Arg(4096)->Iterations(101)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice
