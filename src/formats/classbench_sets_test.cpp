// Every algorithm gives the oracle's verdict on the published ClassBench sets.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/test_data.h"
#include "formats/classbench.h"
#include "formats/trace.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/conformance.h"

namespace sluice {
namespace {

std::string unpack(const std::string& path) {
  std::string out;
  FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[65536];
  while (size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

size_t scale() {
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  return text == nullptr ? 1 : static_cast<size_t>(std::max(1, std::atoi(text)));
}

class ClassBenchSets : public testing::TestWithParam<const char*> {};

TEST_P(ClassBenchSets, EveryAlgorithmAgreesWithTheOracle) {
  const std::string name = GetParam();
  const auto path = test_data(("acl/" + name + ".xz").c_str());
  if (!path) GTEST_SKIP() << "no data set acl/" << name << ".xz; point SLUICE_DATA at the data";
  auto set = parse_classbench(unpack(*path), name);
  ASSERT_TRUE(set.ok()) << to_string(set.error());
  ASSERT_GT(set->rules.size(), 500u) << "xz is needed to unpack the data";
  acl_test::Random random(7);
  const bool large = set->rules.size() > 50'000;
  auto keys = acl_test::keys_for(*set, (large ? 600 : 2000) * scale(), random);
  if (const auto trace_path = test_data(("acl/" + name + "_trace.xz").c_str())) {
    auto trace = parse_trace(unpack(*trace_path), name + "_trace");
    ASSERT_TRUE(trace.ok()) << to_string(trace.error());
    ASSERT_GT(trace->size(), 10'000u);
    // A stride over the whole trace; all of it at a scale of 100 and more.
    const size_t step = std::max<size_t>(1, trace->size() / (1000 * scale()));
    for (size_t i = 0; i < trace->size(); i += step) keys.push_back((*trace)[i]);
  }
  acl_test::check_all_algorithms(*set, keys);
}

INSTANTIATE_TEST_SUITE_P(All, ClassBenchSets,
                         testing::Values("acl1_1k", "acl2_1k", "acl3_1k", "acl4_1k", "acl5_1k", "fw1_1k", "fw2_1k",
                                         "fw3_1k", "fw4_1k", "fw5_1k", "ipc1_1k", "ipc2_1k", "acl1_10k", "acl2_10k",
                                         "acl3_10k", "acl4_10k", "acl5_10k", "fw1_10k", "fw2_10k", "fw3_10k", "fw4_10k",
                                         "fw5_10k", "ipc1_10k", "ipc2_10k", "acl1_100k", "fw1_100k", "ipc1_100k"),
                         [](const auto& set) { return std::string(set.param); });

}  // namespace
}  // namespace sluice
