// The hot path allocates nothing after warm-up: every malloc of the process is counted while batches run.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "tests/testing/run_graph.h"

#if !defined(SLUICE_SANITIZED)
extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_calloc(size_t, size_t);
extern "C" void* __libc_realloc(void*, size_t);
extern "C" void* __libc_memalign(size_t, size_t);

namespace {
std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};
void note() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

extern "C" void* malloc(size_t bytes) {
  note();
  return __libc_malloc(bytes);
}
extern "C" void* calloc(size_t n, size_t bytes) {
  note();
  return __libc_calloc(n, bytes);
}
extern "C" void* realloc(void* p, size_t bytes) {
  note();
  return __libc_realloc(p, bytes);
}
extern "C" void* aligned_alloc(size_t align, size_t bytes) {
  note();
  return __libc_memalign(align, bytes);
}
#endif

namespace sluice {
namespace {

class NoAllocation : public ::testing::TestWithParam<unsigned> {};

TEST_P(NoAllocation, AfterWarmUp) {
#if defined(SLUICE_SANITIZED)
  GTEST_SKIP() << "the sanitizer owns malloc; the plain build counts";
#else
  const testing::TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 4096);
  testing::GraphRun run;
  run.workers = GetParam();
  run.text = testing::standard_graph_text(dir, "FromMemory(" + capture + ", LIMIT 8000000)", "ToMemory", "tuple_space",
                                          "dir24", "poptrie");
  uint64_t seen = 0;
  run.progress = [&](uint64_t packets) {
    seen = packets;
    // Warm-up: every frame of the capture has been seen many times, so every buffer has its final size; and each worker
    // has had packets, for which it has a batch of its own. On a busy machine a thread starts some 100 ms after the
    // others.
    if (packets > 6000000 && packets < 7900000) {
      counting = true;
    } else {
      counting = false;
    }
  };
  const auto outcome = testing::run_graph(run);
  counting = false;
  ASSERT_TRUE(outcome.ok) << outcome.error;
  EXPECT_EQ(outcome.report.packets_in, 8000000u);
  EXPECT_GT(outcome.report.packets_out, 2000000u);
  EXPECT_EQ(allocations.exchange(0), 0u);
  // The counter does count.
  counting = true;
  void* volatile p = std::malloc(10);
  counting = false;
  std::free(p);
  EXPECT_EQ(allocations.exchange(0), 1u);
#endif
}

INSTANTIATE_TEST_SUITE_P(Workers, NoAllocation, ::testing::Values(1u, 3u));

}  // namespace
}  // namespace sluice
