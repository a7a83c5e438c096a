#include "control/process_use.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <ctime>
#include <vector>

namespace sluice {
namespace {

TEST(ProcessUse, FollowsWhatTheProcessTakes) {
  const ProcessUse use;
  EXPECT_FALSE(use.host().empty());
  const auto unix_now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(use.start_unix_seconds(), unix_now + 1);
  EXPECT_GT(use.start_unix_seconds(), unix_now - 86400);
  const ProcessUse::Now before = use.now();
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  EXPECT_GE(before.open_files_limit, before.open_files);
  const Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC)), two(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  constexpr size_t kTaken = size_t{32} << 20;
  std::vector<char> taken(kTaken, 1);
  const ProcessUse::Now after = use.now();
  EXPECT_EQ(after.open_files, before.open_files + 2);
  EXPECT_GE(after.resident_bytes, before.resident_bytes + kTaken / 2);
  EXPECT_GT(after.cpu_seconds, before.cpu_seconds);
  EXPECT_EQ(taken.back(), 1);
}

}  // namespace
}  // namespace sluice
