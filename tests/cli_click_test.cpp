// The program under the name of click, and graphs with queues under `sluice run`.
#include "testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

class CliClickTest : public CliTest {
 protected:
  Said click(const std::string& arguments) const { return shell("ln -sf \"$SLUICE\" click; ./click " + arguments); }
};

TEST_F(CliClickTest, RunsWhatItIsGivenAndReadsHandlers) {
  write("g.click", "define($n 3) RatedSource(RATE 10, LIMIT $n, STOP true) -> c :: Counter -> Discard;\n");
  const Said one = click("--simtime g.click -h c.count");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, "3\n");
  EXPECT_EQ(click("--simtime g.click n=8 -h c.count").out, "8\n");
  EXPECT_EQ(click("-qh c.count < g.click").out, "0\n");
  EXPECT_EQ(click("-q g.click -h c.count -h c.class").out, "c.count:\n0\n\nc.class:\nCounter\n\n");
  EXPECT_EQ(click("-qo- -e 'a :: Idle -> b :: Idle'").out, click("-q -o - -e 'a :: Idle -> b :: Idle'").out);
}

TEST_F(CliClickTest, PrintsOfScriptsGoWhereTheySay) {
  const Said said = click(
      "--simtime -j 4 -e 'c :: Counter; Idle -> c -> Idle; Script(print hello c.count, print \"x\", print "
      ">F 1, print >>F 2, read c.count, stop)'");
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.out, "x\n");
  EXPECT_NE(said.err.find("c.count:\n0\n"), std::string::npos) << said.err;
  EXPECT_EQ(read("F"), "1\n2\n");
}

TEST_F(CliClickTest, WrongLinesAreUsageErrors) {
  for (const char* line : {"--nonsense", "-e", "-j x -e 'Idle'", "a b", "-q=1"}) {
    const Said said = click(line);
    EXPECT_EQ(said.code, 2) << line << said.err;
    EXPECT_NE(said.err.find("click --help"), std::string::npos) << said.err;
  }
  EXPECT_EQ(click("-e 'Idle -> Nobody'").code, 1);
  EXPECT_EQ(click("-q -h x.y -e 'Idle'").code, 1);
  EXPECT_EQ(click("none.click").code, 3);
  EXPECT_EQ(click("--help").code, 0);
}

TEST_F(CliClickTest, SluiceRunsGraphsWithQueues) {
  write("q.click", "InfiniteSource(LIMIT 10) -> q :: Queue(20) -> RatedUnqueue(2) -> Discard;\n");
  const auto json = sluice("run q.click --simtime -o json").json();
  EXPECT_EQ(json["packets_in"], 10);
  EXPECT_EQ(json["dropped"], 10);
  EXPECT_EQ(json["conserved"], true);
  EXPECT_EQ(sluice("run q.click --device emu").code, 2);
  EXPECT_EQ(sluice("check q.click").code, 0);
  EXPECT_EQ(sluice("run q.click --print-plan").out.find("packet scheduler: "), 0u);
}

}  // namespace
}  // namespace sluice
