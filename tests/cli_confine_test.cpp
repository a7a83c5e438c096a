// What the program gives up: --user, and the calls and files that it has no business with.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "tests/testing/fault_points.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using namespace testing;

class CliConfineTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    // Another user reads and writes here.
    std::filesystem::permissions(folder_, std::filesystem::perms::all);
    write("edge.acl", "permit ip from any to any\n");
    write("rib", "0.0.0.0/0 a\n::/0 b\n");
    ASSERT_EQ(sluice("gen traffic -q --packets 50 --out in.pcap").code, 0);
  }
  // Whether `word` is among what doctor says the kernel has.
  bool has(const std::string& word) const {
    const auto said = sluice("doctor -o json").json();
    for (const auto& finding : said["findings"]) {
      if (finding["what"] == "confinement") return finding["value"].get<std::string>().find(word) != std::string::npos;
    }
    ADD_FAILURE() << "doctor says nothing of it";
    return false;
  }
};

TEST_F(CliConfineTest, AProcessOfAnotherUserHasNoRightsOfRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Said said = shell(
      "\"$SLUICE\" run -q --user nobody --acl edge.acl --routes rib --in in.pcap --out out.pcap --control sock --wait "
      "& "
      "while ! [ -e out.pcap ]; do sleep 0.01; done; cat /proc/$!/status; kill $!; wait $!");
  EXPECT_EQ(said.code, 0) << said.err;
  const std::string nobody = sluice("--version").code == 0 ? shell("id -u nobody").lines()[0] : "";
  const std::string group = shell("id -g nobody").lines()[0];
  for (const std::string& line :
       {"Uid:\t" + nobody + "\t" + nobody + "\t" + nobody + "\t" + nobody,
        "Gid:\t" + group + "\t" + group + "\t" + group + "\t" + group, std::string("Groups:\t \n"),
        std::string("CapPrm:\t0000000000000000"), std::string("CapEff:\t0000000000000000"),
        std::string("CapAmb:\t0000000000000000"), std::string("NoNewPrivs:\t1")}) {
    EXPECT_NE(said.out.find(line), std::string::npos) << line << "\n" << said.out;
  }
  // The output is the user's, and the socket has gone.
  EXPECT_EQ(shell("stat -c %U out.pcap").out, "nobody\n");
  EXPECT_FALSE(exists("sock"));
}

TEST_F(CliConfineTest, SaysThatTheUserCannotBeChanged) {
  const Said unknown = sluice("run --user no-such-user --routes rib --in in.pcap");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("there is no user 'no-such-user'"), std::string::npos) << unknown.err;
  const Said root = sluice("run --user root --routes rib --in in.pcap");
  EXPECT_EQ(root.code, 2);
  EXPECT_NE(root.err.find("is root"), std::string::npos) << root.err;
  const Said other = ::geteuid() != 0 ? sluice("route --user nobody --routes rib --addresses /dev/null")
                                      : shell(
                                            "setpriv --reuid=12345 --regid=12345 --clear-groups \"$SLUICE\" route "
                                            "--user nobody --routes rib --addresses /dev/null");
  EXPECT_EQ(other.code, 4);
  EXPECT_NE(other.err.find("only root"), std::string::npos) << other.err;
}

TEST_F(CliConfineTest, OutputsGoWhereTheUserMayMakeFiles) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(shell("mkdir -m 755 closed").code, 0);
  // Before anything is read: the input does not exist.
  const Said said = sluice("run --user nobody --routes rib --in no-such.pcap --out closed/out.pcap");
  EXPECT_EQ(said.code, 3);
  EXPECT_NE(said.err.find("user 'nobody' cannot write to"), std::string::npos) << said.err;
  // What root alone may read is not read.
  ASSERT_EQ(shell("chmod 600 rib").code, 0);
  const Said unread = sluice("run --user nobody --routes rib --in in.pcap");
  EXPECT_EQ(unread.code, 3);
  EXPECT_NE(unread.err.find("Permission denied"), std::string::npos) << unread.err;
}

TEST_F(CliConfineTest, FilesAndCallsThatAreNotNeededAreRefused) {
#if defined(SLUICE_SANITIZED)
  GTEST_SKIP() << "builds with sanitizers are not confined";
#endif
  const std::string name = path("state");
  FaultState empty{};
  empty.reads = empty.writes = empty.connects = empty.starts = -1;
  for (const char* command :
       {"run -q --acl edge.acl --routes rib --in in.pcap --out out",
        "run -q --acl edge.acl --routes rib --in in.pcap --out out --workers 2",
        "classify -q --rules edge.acl --in in.pcap --out out", "route -q --routes rib --in in.pcap --out out"}) {
    SCOPED_TRACE(command);
    std::ofstream(name, std::ios::binary).write(reinterpret_cast<const char*>(&empty), sizeof empty);
    const Said said = shell(
        std::string("SLUICE_FAULTS=state SLUICE_PROBE=/etc/passwd LD_PRELOAD=" SLUICE_INJECT_FAULTS " \"$SLUICE\" ") +
        command);
    EXPECT_EQ(said.code, 0) << said.err;
    FaultState found{};
    std::ifstream(name, std::ios::binary).read(reinterpret_cast<char*>(&found), sizeof found);
    if (has("Landlock")) {
      EXPECT_EQ(found.reads, EACCES);
      EXPECT_EQ(found.writes, EACCES);
    }
    if (has("seccomp")) {
      EXPECT_EQ(found.connects, EPERM);
      EXPECT_EQ(found.starts, EPERM);
    }
  }
  if (!has("Landlock") || !has("seccomp")) GTEST_SKIP() << "the kernel has not both Landlock and seccomp";
}

}  // namespace
}  // namespace sluice
