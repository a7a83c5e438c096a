// A thread of a run that finds no memory ends the run for all of them, with an error, whatever the others are doing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <string>

#include "elements/register_all.h"
#include "exec/engine/engine.h"
#include "graph/click/parser.h"

namespace sluice::run_without_memory_test {
namespace {

// Frames of zeros; from the nth read on there is no memory, in whichever thread reads then.
class Scarce final : public BatchSource {
 public:
  explicit Scarce(std::shared_ptr<std::atomic<int>> reads) : reads_(std::move(reads)) {}

  Result<void> read(Batch& batch) override {
    batch.clear();
    if (reads_->fetch_sub(1) <= 0) throw std::bad_alloc();
    while (batch.size() < 32) {
      uint8_t* const to = batch.reserve(64);
      std::fill_n(to, 64, uint8_t{0});
      batch.push(to, 64, 64, 1, batch.size());
    }
    return {};
  }

 private:
  std::shared_ptr<std::atomic<int>> reads_;
};

class RunWithoutMemory : public ::testing::TestWithParam<unsigned> {};

TEST_P(RunWithoutMemory, EndsForAllThreads) {
  const std::string text = "FromDump(in.pcap) -> Discard; FromDump(other.pcap) -> Discard;";
  Registry registry;
  register_elements(registry);
  for (const int reads : {0, 1, 2, 7, 100}) {
    auto parsed = parse_click(text, "graph", {});
    ASSERT_TRUE(parsed.ok());
    auto router = build_router(*parsed, registry, text);
    ASSERT_TRUE(router.ok());
    auto plan = make_plan(*router);
    ASSERT_TRUE(plan.ok());
    const auto left = std::make_shared<std::atomic<int>>(reads);
    RunOptions options;
    options.workers = GetParam();
    options.source = [&](const Element&) -> Result<std::unique_ptr<BatchSource>> {
      return std::unique_ptr<BatchSource>(std::make_unique<Scarce>(left));
    };
    auto engine = Engine::create(*router, *plan, {}, options);
    ASSERT_TRUE(engine.ok()) << to_string(engine.error());
    auto first = bind_plan(*plan, *router, {});
    ASSERT_TRUE(first.ok());
    (*engine)->publisher().publish(std::move(*first));
    RunReport report;
    const auto ran = (*engine)->run(report);
    ASSERT_FALSE(ran.ok());
    EXPECT_TRUE(ran.error().system);
    EXPECT_EQ(ran.error().message, "out of memory");
    EXPECT_FALSE((*engine)->ask([] {}).ok()) << "the run is over";
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, RunWithoutMemory, ::testing::Values(1, 2, 3),
                         [](const auto& each) { return std::to_string(each.param); });

}  // namespace
}  // namespace sluice::run_without_memory_test
