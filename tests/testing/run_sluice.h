// Runs the built program as a user does, and keeps what it said.
// host only
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/testing/json.h"

namespace sluice::testing {

struct Said {
  int code = -1;  // exit code; 128 + signal; 124 after five minutes without an end
  std::string out, err;
  nlohmann::json json() const { return parse_json(out); }
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::istringstream text(out);
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
};

// A folder of its own, and commands that run in it: `sluice ARGUMENTS` by a shell, so that pipes and quotes work.
class CliTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Said sluice(const std::string& arguments) const { return shell("\"$SLUICE\" " + arguments); }
  // $SLUICE is the program.
  Said shell(const std::string& command) const;
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  // Which of many cases of many uses a build looks at: all; with sanitizers, where each start takes ten times as long,
  // every fourth, another for each use.
  static constexpr bool looked_at([[maybe_unused]] size_t use, [[maybe_unused]] size_t one) {
#if defined(SLUICE_SANITIZED)
    return (use + one) % 4 == 0;
#else
    return true;
#endif
  }
  // The names in the folder, sorted: nothing half-written may be among them.
  std::vector<std::string> files() const;

  std::filesystem::path folder_;
};

}  // namespace sluice::testing
