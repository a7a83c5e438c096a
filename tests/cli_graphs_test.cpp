// `sluice gen graphs`, and the script that runs such graphs on a device. host only
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::Said;

class CliGraphsTest : public testing::CliTest {};

TEST_F(CliGraphsTest, TheSameSeedGivesTheSameGraph) {
  const Said first = sluice("gen graphs --seed 5 --count 3 --out a -q");
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(sluice("gen graphs --seed 6 --out b -q").code, 0);
  const Said same = shell("sed s:b/6/:a/6/:g b/6/graph.click | cmp - a/6/graph.click && cmp a/6/in.pcap b/6/in.pcap");
  EXPECT_EQ(same.code, 0) << same.out;
  EXPECT_EQ(shell("ls a").out, "5\n6\n7\n");
  // What is no folder.
  write("file", "");
  EXPECT_EQ(sluice("gen graphs --out file").code, 3);
}

// What compares devices with the CPU finds them equal, and has compared something.
TEST_F(CliGraphsTest, TheScriptRunsThemOnADevice) {
  const Said said = shell(std::string("python3 \"") + SLUICE_SOURCE_DIR + "/scripts/device_graphs.py\" --binary \"" +
                          SLUICE_BINARY + "\" --device emu --runs 40 --graphs 4 --ways 2 --jobs 2");
  EXPECT_EQ(said.code, 0) << said.out << said.err;
  EXPECT_NE(said.out.find(" 0 wrong"), std::string::npos) << said.out;
}

// It says so where they are not: here by a program whose device always fails.
TEST_F(CliGraphsTest, TheScriptNamesWhatDiffers) {
  write("failing",
        std::string("#!/bin/sh\ncase \"$*\" in *--workers*) echo 'error: it fell over' >&2; exit 4;; esac\n") +
            "exec \"" + SLUICE_BINARY + "\" \"$@\"\n");
  const Said said =
      shell(std::string("chmod +x failing; python3 \"") + SLUICE_SOURCE_DIR +
            "/scripts/device_graphs.py\" --binary ./failing --device emu --runs 1 --graphs 4 --ways 1 --jobs 1");
  EXPECT_EQ(said.code, 5) << said.out << said.err;
  EXPECT_NE(said.out.find("WRONG seed "), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("it fell over"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("gen graphs --seed "), std::string::npos) << said.out;
}

}  // namespace
}  // namespace sluice
