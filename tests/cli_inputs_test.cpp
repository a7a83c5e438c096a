// The same bytes in any form, to any option that takes a file: a file, a FIFO, /dev/stdin, -, <(...), compressed, and
// compressed in a pipe. And what is no input at all.
#include <algorithm>
#include <array>
#include <map>
#include <regex>

#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

// How a command is given the file F. @ is the name it gets.
struct Form {
  const char* name;
  const char* at;
  const char* script;  // COMMAND is the command, F the file
};
constexpr Form kForms[] = {
    {"file", "F", "COMMAND"},
    {"link", "link", "ln -sf F link; COMMAND"},
    {"FIFO", "fifo", "cat F > fifo & COMMAND; wait"},
    {"compressed FIFO", "fifo", "xz -c F > fifo & COMMAND; wait"},
    {"process substitution", "<(cat F)", "COMMAND"},
    {"compressed process substitution", "<(gzip -c F)", "COMMAND"},
    {"/dev/stdin, a pipe", "/dev/stdin", "cat F | { COMMAND; }"},
    {"/dev/stdin, a file", "/dev/stdin", "{ COMMAND; } < F"},
    {"/dev/stdin, compressed", "/dev/stdin", "bzip2 -c F | { COMMAND; }"},
    {"-, a pipe", "-", "cat F | { COMMAND; }"},
    {"-, a file", "-", "{ COMMAND; } < F"},
    {"-, compressed", "-", "zstd -qc F | { COMMAND; }"},
    {"slow pipe", "-", "{ head -c 5 F; sleep 0.01; tail -c +6 F; } | { COMMAND; }"},
    {"gzip", "F.gz", "COMMAND"},
    {"bzip2", "F.bz2", "COMMAND"},
    {"xz", "F.xz", "COMMAND"},
    {"zstd", "F.zst", "COMMAND"},
    {"gzip under another name", "other", "cp F.gz other; COMMAND"},
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// One command that takes a file.
struct Use {
  const char* file;
  const char* command;      // @: the file
  const char* leaves = "";  // a file that it makes, which belongs to what it says
  bool tolerant = false;    // a file without a byte, or of one odd word, is one that it takes
};

class CliInputsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("edge.acl",
          "deny udp from any to any port 53\npermit tcp from 10.0.0.0/8 to any port 80\n# said twice\n"
          "deny tcp from 10.0.0.0/8 to any port 80\nmark(7) ip from any to 8.0.0.0/8\n");
    std::string routes = "2001:db8::/32 wrong\n2001:db8:1::/48 right\n0.0.0.0/0 gate\n8.0.0.0/8 a\n9.0.0.0/8 b\n";
    for (int i = 0; i < 3000; ++i)
      routes += "11." + std::to_string(i / 200) + "." + std::to_string(i % 200) + ".0/24 b\n";
    write("rib", routes);
    write("classbench", "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n");
    write("addresses", "8.1.1.1\n2001:db8::5\n::1\n11.3.4.5\n");
    write("adj",
          "a 02:00:00:00:00:01 02:00:00:00:00:02 1\nb 02:00:00:00:00:01 02:00:00:00:00:03 2\n"
          "gate 02:00:00:00:00:01 02:00:00:00:00:04 3\n");
    write("qos", "class voice dscp 46 weight 4\nclass rest weight 1\n");
    write("trace", "167772161 134283265 5 80 6\n167772161 134283265 5 53 17\n167772161 3 5 81 6\n");
    write("graph.click", "in :: FromDump(in.pcap) -> Strip(14) -> CheckIPHeader -> c :: Counter -> Discard;\n");
    write("dump", "!data ip_src ip_dst sport dport\n10.0.0.1 8.1.1.1 5 80\n10.0.0.2 9.1.1.1 6 81\n");
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    uint64_t stamp = 1'700'000'000'000'000'000;
    for (uint16_t i = 0; i < 300; ++i) {
      for (const PacketBuilder& packet :
           {tcp4("10.0.0.1", "8.1.1.1").ports(i, 80).payload(20), udp4("10.0.0.1", "9.1.1.1").ports(i, 53).payload(30),
            udp4("10.0.0.1", "11.1.1.1").ports(i, 54).payload(400)}) {
        const auto f = packet.build();
        const auto bytes = static_cast<uint32_t>(f.size());
        ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, ++stamp}, f.data()));
      }
    }
    ASSERT_TRUE(writer->commit().ok());
    const Said made = shell(
        "mkfifo fifo; \"$SLUICE\" compile -q --acl edge.acl --out acl.img && \"$SLUICE\" compile -q --routes rib "
        "--algorithm "
        "poptrie --out rib.img && \"$SLUICE\" compile -q --routes rib --adjacencies adj --out adj.img");
    ASSERT_EQ(made.code, 0) << made.err;
  }

  // What a command says, where it comes from taken out.
  static std::string plain(std::string text, const std::string& file) {
    static const std::regex descriptors("/dev/fd/[0-9]+"), seconds("[0-9.]+ (us|ms|s|[kM]?pps)");
    text = std::regex_replace(text, descriptors, "INPUT");
    text = std::regex_replace(text, seconds, "TIME");
    for (const std::string& name : {file + ".gz", file + ".bz2", file + ".xz", file + ".zst", std::string("/dev/stdin"),
                                    std::string("standard input")})
      text = replaced(std::move(text), name, "INPUT");
    static const std::regex words("(^|[\\s'\"])(fifo|link|other|-|FILE)(?=[\\s:'\",])");
    text = replaced(std::move(text), file, "FILE");
    return std::regex_replace(text, words, "$1INPUT");
  }

  // All forms of each use say the same, do the same and end alike.
  void expect_alike(const std::vector<Use>& uses) const {
    for (size_t u = 0; u < uses.size(); ++u) {
      const Use& use = uses[u];
      const std::string file = use.file;
      std::string script = "set -o pipefail; for k in gzip:gz bzip2:bz2 xz:xz zstd:zst; do ${k%:*} -qkf " + file +
                           "; done 2> /dev/null\nrm -f left.*\n"
                           "test -e " +
                           file + ".zst || exit 99\n";
      for (size_t i = 0; i < std::size(kForms); ++i) {
        if (i != 0 && !looked_at(u, i)) continue;
        const std::string at = replaced(kForms[i].at, "F", file), n = std::to_string(i);
        const std::string whole = replaced(use.command, "@", at);
        std::string one = replaced(replaced(kForms[i].script, "F", file), "COMMAND",
                                   "\"$SLUICE\" " + whole + " > out." + n + " 2> err." + n + "; echo $? > code." + n);
        script += one + "\n";
        if (*use.leaves != '\0') script += "mv " + std::string(use.leaves) + " left." + n + " 2> /dev/null\n";
      }
      const Said said = shell(script);
      ASSERT_NE(said.code, 99) << "gzip, bzip2, xz and zstd are needed";
      const std::string want = plain(read("out.0"), file), code = read("code.0"), left = read("left.0");
      EXPECT_EQ(code, "0\n") << use.command << "\n" << read("err.0");
      for (size_t i = 1; i < std::size(kForms); ++i) {
        if (!looked_at(u, i)) continue;
        const std::string n = std::to_string(i);
        const std::string what = std::string(use.command) + " of a " + kForms[i].name;
        EXPECT_EQ(read("code." + n), code) << what << "\n" << read("err." + n);
        EXPECT_EQ(plain(read("out." + n), file), want) << what;
        EXPECT_TRUE(read("left." + n) == left) << what;
        EXPECT_EQ(plain(read("err." + n), file), plain(read("err.0"), file)) << what;
      }
    }
  }
};

TEST_F(CliInputsTest, AccessLists) {
  expect_alike(
      {{"edge.acl", "classify -q --rules @ --trace trace"},
       {"edge.acl", "check --rules @ --shadowed"},
       {"edge.acl", "explain --acl @ --packet 'ip 10.0.0.1 > 8.8.8.8 tcp 1234 > 80 flags S'"},
       {"edge.acl", "tables @ -o json | grep -v -e seconds"},
       {"edge.acl", "compile -q --acl @ --out made.img && \"$SLUICE\" classify -q --rules made.img --trace trace"},
       {"edge.acl", "run -q --acl @ --in in.pcap --default permit --out out.pcap", "out.pcap"},
       {"classbench", "gen trace --rules @ --packets 50"},
       {"edge.acl", "gen rules --like @ --count 20"},
       {"edge.acl", "gen traffic -q --rules @ --packets 50 --out made.pcap", "made.pcap"},
       {"acl.img", "classify -q --rules @ --trace trace"},
       {"acl.img", "tables @ -o json | grep -v -e seconds"},
       {"acl.img", "run -q --acl @ --in in.pcap --out out.pcap", "out.pcap"}});
}

TEST_F(CliInputsTest, Routes) {
  expect_alike({{"rib", "route -q --routes @ --addresses addresses"},
                {"rib", "route -q --routes @,source=x,preference=3 --explain 2001:db8:1::5"},
                {"rib", "check --routes @"},
                {"rib", "tables @ --kind routes -o json | grep -v -e seconds"},
                {"rib", "compile -q --routes @ --algorithm poptrie --out made.img", "made.img"},
                {"rib", "run -q --routes @ --in in.pcap --out out.pcap", "out.pcap"},
                {"rib", "gen routes --like @ --count 20"},
                {"rib", "gen traffic -q --routes @ --packets 50 --out made.pcap", "made.pcap"},
                {"rib.img", "route -q --routes @ --addresses addresses"},
                {"rib.img", "run -q --routes @ --in in.pcap --out out.pcap", "out.pcap"},
                {"addresses", "route -q --routes rib --addresses @"}});
}

TEST_F(CliInputsTest, AdjacenciesAndClasses) {
  expect_alike({{"adj", "run -q --routes rib --adjacencies @ --in in.pcap --out out.pcap", "out.pcap"},
                {"adj", "compile -q --routes rib --adjacencies @ --out made.img", "made.img"},
                {"adj", "explain --routes rib --adjacencies @ --packet 'ip 10.0.0.1 > 8.8.8.8 tcp 1 > 80'"},
                {"adj", "route -q --routes rib --explain 8.8.8.8 --adjacencies @"},
                {"rib", "compile -q --routes @ --adjacencies adj --out made.img", "made.img"},
                {"adj.img", "run -q --routes rib --adjacencies @ --in in.pcap --out out.pcap", "out.pcap"},
                {"adj.img", "tables @ -o json | grep -v seconds"},
                {"qos", "run -q --routes rib --qos @ --in in.pcap --out out.pcap", "out.pcap"}});
}

TEST_F(CliInputsTest, Packets) {
  expect_alike({{"in.pcap", "run -q --acl edge.acl --routes rib --in @ --out out.pcap", "out.pcap"},
                {"in.pcap", "run -q --routes rib --in @ --out out.pcap --workers 2", "out.pcap"},
                {"in.pcap", "run -q --routes rib --in @ --repeat --limit 100 --out out.pcap", "out.pcap"},
                {"in.pcap", "classify -q --rules edge.acl --in @"},
                {"in.pcap", "route -q --routes rib --in @"},
                {"in.pcap", "explain --in @ --number 17 --acl edge.acl"},
                {"trace", "classify -q --rules edge.acl --trace @"}});
}

TEST_F(CliInputsTest, ConfigurationsAndWhatTheyName) {
  write("of.sh", "printf '%s' \"$1\" > made.click; shift; \"$SLUICE\" run -q made.click \"$@\" > /dev/null\n");
  expect_alike({{"graph.click", "check @"}, {"graph.click", "run @ -o json | grep -e packets_in -e conserved"}});
  // In a file a name is taken as it is: the shell's forms go through a variable.
  const std::string variable = "run -q -o json name.click NAME=@ | grep -e packets_in -e packets_out -e conserved";
  write("name.click", "FromDump($NAME) -> c :: Counter -> Discard;\n");
  expect_alike({{"in.pcap", variable.c_str()}});
  write("name.click", "FromIPSummaryDump($NAME, STOP true) -> c :: Counter -> Discard;\n");
  expect_alike({{"dump", variable.c_str()}});
  write("name.click",
        "AclTable(acl, FILE $NAME);\nFromDump(in.pcap) -> Strip(14) -> CheckIPHeader -> ACL(TABLE acl) -> Discard;\n");
  expect_alike({{"edge.acl", variable.c_str()}, {"acl.img", variable.c_str()}});
  write("name.click", "FromDump(in.pcap) -> IPInput -> QoS($NAME) -> Unqueue -> Discard;\n");
  expect_alike({{"qos", variable.c_str()}});
}

// What was silently wrong: the first eight bytes of a pipe were lost, and 2001:db8::/32 became ::/32.
TEST_F(CliInputsTest, NoByteOfAPipeIsLost) {
  const Said route = shell("\"$SLUICE\" route -q --routes <(cat rib) --addresses addresses");
  EXPECT_EQ(route.out, "a\nwrong\n-\nb\n") << route.err;
  const Said image = shell("\"$SLUICE\" route -q --routes <(gzip -c rib.img) --addresses addresses");
  EXPECT_EQ(image.out, "a\nwrong\n-\nb\n") << image.err;
}

// A program that waits at the FIFO for its reader is heard, whoever comes first.
TEST_F(CliInputsTest, AWriterThatIsThereFirstIsHeard) {
  const Said said = shell(
      "(cat in.pcap > fifo; echo $? > writer) & sleep 0.1; timeout 60 \"$SLUICE\" run -q --routes rib --in fifo -o "
      "json; "
      "wait");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.json()["packets_in"], 900);
  EXPECT_EQ(read("writer"), "0\n");
  // Two of them, written to one after the other.
  const Said two = shell(
      "mkfifo second; (cat rib > second; cat in.pcap > fifo) & timeout 60 \"$SLUICE\" run -q --in fifo --routes second "
      "-o "
      "json; wait");
  EXPECT_EQ(two.json()["packets_in"], 900) << two.err;
}

TEST_F(CliInputsTest, NamesAPipeOnce) {
  const char* const wrong[] = {"run --routes - --acl - --in in.pcap < rib",
                               "run --routes /dev/stdin --acl - --in in.pcap",
                               "run --routes rib --adjacencies - --in - < adj",
                               "run --routes rib --qos - --in - < qos",
                               "run - --qos - < qos",
                               "route --routes - --addresses - < rib",
                               "route --routes -,- --addresses addresses < rib",
                               "classify --rules fifo --trace fifo",
                               "classify --rules fifo --trace ./fifo",
                               "explain --in - --acl - < in.pcap",
                               "compile --routes - --adjacencies - --out o < rib",
                               "check --rules - --routes - < rib",
                               "check --rules - - < rib",
                               "tables - - < rib"};
  for (const char* arguments : wrong) {
    const Said said = shell("cat rib | timeout 60 \"$SLUICE\" " + std::string(arguments));
    EXPECT_EQ(said.code, 2) << arguments << "\n" << said.out << said.err;
    EXPECT_NE(said.err.find("read only once"), std::string::npos) << arguments << "\n" << said.err;
  }
  for (const char* one : {"acl = \"fifo\"", "routes = \"fifo\"", "adjacencies = \"fifo\""}) {
    write("twice.toml", std::string("in = \"in.pcap\"\nqos = \"fifo\"\n") + one + "\n");
    const Said said = shell("timeout 60 \"$SLUICE\" check twice.toml");
    EXPECT_EQ(said.code, 2) << one << "\n" << said.out << said.err;
    EXPECT_NE(said.err.find("--qos both name fifo, which can be read only once"), std::string::npos) << said.err;
  }
  write("twice.click", "AclTable(a, FILE -);\nAclTable(b, FILE -);\nFromDump(in.pcap) -> Discard;\n");
  const Said graph = shell("timeout 60 \"$SLUICE\" run twice.click < edge.acl");
  EXPECT_EQ(graph.code, 1);
  EXPECT_NE(graph.err.find("twice.click:2:1: error: standard input is read by "), std::string::npos) << graph.err;
  const Said config = shell("echo 'FromDump(-) -> Discard;' | timeout 60 \"$SLUICE\" run -");
  EXPECT_EQ(config.code, 1);
  EXPECT_NE(config.err.find("standard input is read by the configuration already"), std::string::npos) << config.err;
  // A regular file twice is two readings of it.
  EXPECT_EQ(sluice("route -q --routes rib,rib --addresses addresses").out, "a\nwrong\n-\nb\n");
  EXPECT_EQ(shell("\"$SLUICE\" route -q --routes /dev/stdin,/dev/stdin --addresses addresses < rib").out,
            "a\nwrong\n-\nb\n");
}

// All are opened before any is read: a FIFO that nobody writes to hides nothing.
TEST_F(CliInputsTest, ReportsMissingFilesBeforeAnyWait) {
  for (const char* arguments :
       {"run --routes fifo --acl none --in in.pcap", "run --routes fifo --in none",
        "classify --rules fifo --trace none", "classify --rules none --in fifo",
        "route --routes fifo,none --addresses addresses", "route --routes none --addresses fifo",
        "compile --routes fifo --adjacencies none --out o", "explain --in fifo --acl none",
        "gen traffic --rules fifo --routes none --out o"}) {
    const Said said = shell("timeout 60 \"$SLUICE\" " + std::string(arguments));
    EXPECT_EQ(said.code, 3) << arguments << "\n" << said.err;
    // Of the standard graph the option is named.
    EXPECT_NE(replaced(said.err, "none: error: ", "none: ").find("none: cannot open: No such file or directory"),
              std::string::npos)
        << said.err;
  }
}

// A wait for a writer, or for what it has yet to write, ends by a signal, with nothing left behind.
TEST_F(CliInputsTest, AWaitIsInterrupted) {
  for (const char* arguments :
       {"run --routes fifo --in in.pcap --out out.pcap", "run --routes rib --in fifo --out out.pcap",
        "run --routes rib --in fifo --workers 2 --out out.pcap", "run fifo", "classify --rules fifo --trace trace",
        "route --routes rib --addresses fifo", "route --routes rib --in fifo --out out.txt", "tables fifo",
        "run --routes rib --in fifo --repeat", "check fifo"}) {
    for (const char* writer :
         {"", "sleep 60 > fifo & writer=$!; ", "(head -c 3000 in.pcap; exec sleep 60) > fifo & writer=$!; "}) {
      const Said said = shell(std::string(writer) + "timeout --preserve-status -s INT -k 20 0.3 \"$SLUICE\" " +
                              arguments + "; echo $? > code; kill ${writer:-} 2> /dev/null; wait");
      const std::string code = read("code");
      // Of what is no configuration or no rules the first bytes may be enough.
      if (*writer == '(' && code == "1\n") continue;
      EXPECT_EQ(code, "130\n") << writer << arguments << "\n" << said.err;
    }
  }
  EXPECT_FALSE(exists("out.txt"));
}

// Devices that never end, folders, nothing at all: a clear error that names it, soon and in little memory.
TEST_F(CliInputsTest, EndsInAnErrorForFilesThatAreNoInput) {
#if defined(SLUICE_SANITIZED)
  const std::string bound;
#else
  const std::string bound = "ulimit -v 1500000; ";
#endif
  const Use uses[] = {{"", "classify --rules @ --trace trace"},
                      {"", "classify --rules edge.acl --trace @", "", true},
                      {"", "classify --rules edge.acl --in @"},
                      {"", "check --rules @"},
                      {"", "check --routes @"},
                      {"", "check @", "", true},
                      {"", "run @", "", true},
                      {"", "route --routes @ --addresses addresses"},
                      {"", "route --routes rib --addresses @", "", true},
                      {"", "route --routes rib --in @"},
                      {"", "compile --acl @ --out o"},
                      {"", "compile --routes @ --out o"},
                      {"", "compile --routes rib --adjacencies @ --out o"},
                      {"", "explain --in @ --acl edge.acl"},
                      {"", "run --acl @ --in in.pcap"},
                      {"", "run --routes @ --in in.pcap"},
                      {"", "run --routes rib --adjacencies @ --in in.pcap"},
                      {"", "run --routes rib --qos @ --in in.pcap"},
                      {"", "run --routes rib --in @"},
                      {"", "run --routes rib --in @ --repeat"},
                      {"", "run dump.click NAME=@", "", true},
                      {"", "tables @"}};
  write("dump.click", "FromIPSummaryDump($NAME, STOP true) -> Discard;\n");
  ASSERT_EQ(
      shell("mkdir folder; : > empty; gzip -c rib | head -c 4000 > cut; head -c 300 rib.img > short.img; printf "
            "'SLUICEIM' > "
            "magic.img; { head -c 16 rib.img; printf '\\377\\377\\377\\377\\377\\377\\377\\017'; tail -c +25 rib.img; "
            "} > large.img; head -c 200000000 /dev/zero | zstd -qc > bomb")
          .code,
      0);
  const std::string inputs[] = {"/dev/zero", "/dev/full", "/dev/urandom", "folder",    "cut",
                                "empty",     "short.img", "magic.img",    "large.img", "bomb"};
  for (size_t u = 0; u < std::size(uses); ++u) {
    const Use& use = uses[u];
    for (size_t i = 0; i < std::size(inputs); ++i) {
      const std::string& input = inputs[i];
      if (!looked_at(u, i)) continue;
      if (use.tolerant && (input == "empty" || input == "magic.img")) continue;
      const std::string command = replaced(use.command, "@", input);
      const Said said = shell(bound + "timeout 60 \"$SLUICE\" " + command);
      EXPECT_TRUE(said.code == 1 || said.code == 3) << said.code << " " << command << "\n" << said.err.substr(0, 2000);
      EXPECT_NE((said.err + said.out).find(input), std::string::npos) << command << "\n" << said.err.substr(0, 2000);
      EXPECT_EQ(said.err.find("out of memory"), std::string::npos) << command;
    }
  }
  EXPECT_FALSE(exists("o"));
}

// Benches read their inputs several times.
TEST_F(CliInputsTest, ABenchAsksForFiles) {
  for (const char* arguments : {"bench pipeline --routes fifo", "bench pipeline --adjacencies -",
                                "bench route --routes <(cat rib)", "bench route --like fifo"}) {
    const Said said = shell("timeout 60 \"$SLUICE\" " + std::string(arguments));
    EXPECT_EQ(said.code, 2) << arguments << "\n" << said.err;
    EXPECT_NE(said.err.find("is not a file, and it is read several times"), std::string::npos) << said.err;
  }
}

}  // namespace
}  // namespace sluice
