// What MinBatch and ConstantBatch make of the options of a run.
#include "exec/engine/batch_rules.h"

#include <gtest/gtest.h>

#include "elements/register_all.h"
#include "exec/engine/batch_sizer.h"

namespace sluice {
namespace {

// "BATCH LEAST" for a run that was asked for batches of 256, or what is wrong.
std::string batches_of(const std::string& chain) {
  Registry registry;
  register_elements(registry);
  const std::string text = "InfiniteSource(LIMIT 1) -> " + chain + "Discard;";
  auto graph = parse_click(text, "g");
  if (!graph.ok()) return to_string(graph.error());
  auto router = build_router(*graph, registry, text);
  if (!router.ok()) return to_string(router.error());
  EXPECT_EQ(router->scheduled, "");
  RunOptions options;
  options.batch = 256;
  if (auto ok = apply_batch_rules(*router, options); !ok.ok()) return ok.error().diagnostics.at(0).message;
  return std::to_string(options.batch) + " " + std::to_string(options.least_batch);
}

TEST(BatchRules, TheGraphSaysWhatBatchesAreLike) {
  EXPECT_EQ(batches_of(""), "256 0");
  EXPECT_EQ(batches_of("MinBatch(100) -> "), "256 100");
  EXPECT_EQ(batches_of("MinBatch(1000) -> Pipeliner -> MinBatch(300) -> "), "1000 1000");
  EXPECT_EQ(batches_of("MinBatch -> ConstantBatch(64) -> ConstantBatch(64) -> "), "64 64");
  EXPECT_EQ(batches_of("ConstantBatch(1000) -> "), "1000 1000");
  EXPECT_EQ(batches_of("ConstantBatch(64) -> b :: ConstantBatch(65) -> "),
            "'b' asks for batches of 65 packets and 'ConstantBatch@2' for 64");
  EXPECT_EQ(batches_of("a :: MinBatch(65) -> b :: ConstantBatch(64) -> "),
            "'a' asks for batches of 65 packets and 'b' for 64");
}

TEST(BatchRules, ALatencyTargetKeepsTheLeast) {
  BatchSizer sizer(1000, 512, 200);
  for (int i = 0; i < 100; ++i) sizer.took(1'000'000, sizer.limit(), sizer.round());
  EXPECT_EQ(sizer.limit(), 200u);
}

}  // namespace
}  // namespace sluice
