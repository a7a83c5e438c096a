// From text to usable images: the full routing tables and 10,000 rules, each step apart and all together.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "base/test_data.h"
#include "formats/classbench.h"
#include "formats/route_text.h"
#include "tables/acl/algorithms.h"
#include "tables/lpm/algorithms.h"

namespace sluice {
namespace {

// The unpacked file, or empty when the test data is not at hand.
std::string unpack(const char* name) {
  std::string out;
  const auto path = test_data(name);
  if (!path) return out;
  FILE* pipe = popen(("xz -dc '" + *path + "'").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[65536];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

void routes_text_to_images(benchmark::State& state) {
  const std::string text4 = unpack("rib/ipv4-tier1-2024-01.nh256.txt.xz");
  const std::string text6 = unpack("rib/ipv6-tier1-2024-01.nh256.txt.xz");
  if (text4.empty() || text6.empty()) {
    state.SkipWithError("no full tables at hand: point SLUICE_DATA at the data");
    return;
  }
  size_t routes = 0;
  size_t bytes = 0;
  for (auto _ : state) {
    Rib rib;
    if (!parse_routes(text4, "ipv4", rib).ok() || !parse_routes(text6, "ipv6", rib).ok()) {
      state.SkipWithError("the text does not parse");
      return;
    }
    rib.settle();
    auto image = build_routes(rib, "dir24", "poptrie");
    if (!image.ok()) {
      state.SkipWithError("the image does not build");
      return;
    }
    routes = rib.size();
    bytes = image->bytes().size();
    benchmark::DoNotOptimize(bytes);
  }
  state.counters["routes"] = static_cast<double>(routes);
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(routes_text_to_images)->Name("routes/text_to_images/full")->Unit(benchmark::kMillisecond);

void rules_text_to_image(benchmark::State& state, const char* set) {
  const std::string text = unpack((std::string("acl/") + set + ".xz").c_str());
  if (text.empty()) {
    state.SkipWithError("no rule set at hand: point SLUICE_DATA at the data");
    return;
  }
  size_t rules = 0;
  for (auto _ : state) {
    auto parsed = parse_classbench(text, set);
    if (!parsed.ok()) {
      state.SkipWithError("the rules do not parse");
      return;
    }
    auto image = build_acl(*parsed, "tuple_space");
    if (!image.ok()) {
      state.SkipWithError("the image does not build");
      return;
    }
    rules = parsed->rules.size();
    benchmark::DoNotOptimize(image->bytes().data());
  }
  state.counters["rules"] = static_cast<double>(rules);
}
BENCHMARK_CAPTURE(rules_text_to_image, acl1_10k, "acl1_10k")
    ->Name("rules/text_to_image/acl1_10k")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rules_text_to_image, fw1_10k, "fw1_10k")
    ->Name("rules/text_to_image/fw1_10k")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(rules_text_to_image, ipc1_10k, "ipc1_10k")
    ->Name("rules/text_to_image/ipc1_10k")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice
