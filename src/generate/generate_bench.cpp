// How fast inputs are made.
#include <benchmark/benchmark.h>

#include <vector>

#include "generate/routes.h"
#include "generate/rules.h"
#include "generate/traffic.h"

namespace {

void bm_rules(benchmark::State& state) {
  for (auto _ : state) {
    auto text =
        sluice::generate_rules({.shape = sluice::RuleShape::kAcl, .count = static_cast<uint32_t>(state.range(0))});
    benchmark::DoNotOptimize(text);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(bm_rules)->Arg(10'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void bm_routes_full_table(benchmark::State& state) {
  for (auto _ : state) {
    auto text = sluice::generate_routes({});
    benchmark::DoNotOptimize(text);
  }
  state.SetItemsProcessed(state.iterations() * 1'060'000);
}
BENCHMARK(bm_routes_full_table)->Unit(benchmark::kMillisecond);

void bm_traffic(benchmark::State& state) {
  sluice::TrafficOptions options{.flows = 10'000, .ipv6_fraction = 0.2, .vlan_fraction = 0.1};
  options.size_mix = state.range(0) == 0 ? sluice::SizeMix::kImix : sluice::SizeMix::kFixed;
  auto generator = sluice::TrafficGenerator::create(options);
  if (!generator.ok()) return state.SkipWithError("options");
  std::vector<uint8_t> frame(sluice::TrafficGenerator::kMaxFrame);
  for (auto _ : state) benchmark::DoNotOptimize(generator->next(frame.data()));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(bm_traffic)->ArgName("fixed64")->Arg(0)->Arg(1);

}  // namespace
