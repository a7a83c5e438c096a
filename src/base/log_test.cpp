#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace sluice {
namespace {

class Log : public testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, std::string_view line) { lines_.emplace_back(level, line); });
  }
  void TearDown() override {
    set_log_sink({});
    set_log_level(LogLevel::kInfo);
  }
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

TEST_F(Log, WritesFromItsLevelUpAndFormats) {
  set_log_level(LogLevel::kWarning);
  SLUICE_LOG(kInfo, "not this");
  SLUICE_LOG(kWarning, "port {} is down", 3);
  SLUICE_LOG(kError, "plain");
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0], std::pair(LogLevel::kWarning, std::string("port 3 is down")));
  EXPECT_EQ(lines_[1].second, "plain");
}

TEST_F(Log, ArgumentsOfASilentLineAreNotEvaluated) {
  set_log_level(LogLevel::kOff);
  int calls = 0;
  auto costly = [&] { return ++calls; };
  SLUICE_LOG(kError, "{}", costly());
  EXPECT_EQ(calls, 0);
  set_log_level(LogLevel::kTrace);
  SLUICE_LOG(kTrace, "{}", costly());
  EXPECT_EQ(calls, 1);
}

TEST_F(Log, LinesOfManyThreadsAllArrive) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) SLUICE_LOG(kInfo, "thread {} line {}", t, i);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), 400u);
}

TEST_F(Log, GoesToStderrAndNeverToStdout) {
  set_log_sink({});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  // Braces in data are data.
  SLUICE_LOG(kWarning, "{}", "a {} brace");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("a {} brace"), std::string::npos);
}

TEST(LogLevels, AreParsedByName) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("off"), LogLevel::kOff);
  EXPECT_EQ(parse_log_level("Info"), std::nullopt);
  EXPECT_EQ(parse_log_level(""), std::nullopt);
}

}  // namespace
}  // namespace sluice
