// What a command writes: never what it reads, never half, never in place of a device or a pipe.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::CliTest;
using testing::Said;

struct Command {
  std::string words;                // after `sluice`; @OUT@ is the output
  std::vector<std::string> inputs;  // what it reads
  int code = 2;                     // where an output is an input: 2 on the command line, 1 in a configuration
  std::string graph = {};           // of g.click
};

// Every command with an output.
const std::vector<Command>& commands() {
  static const std::string kTables = "--acl my.acl --routes rib --adjacencies adj --qos edge.qos --in in.pcap ";
  static const std::vector<Command> all = {
      {"classify --rules my.acl --in in.pcap --out @OUT@", {"my.acl", "in.pcap", "inner.acl"}},
      {"classify --rules v4.acl --trace trace --out @OUT@", {"trace", "v4.acl"}},
      {"flows --in in.pcap --out @OUT@", {"in.pcap"}},
      {"route --routes rib --addresses addresses --out @OUT@", {"rib", "addresses"}},
      {"route --routes rib --in in.pcap --out @OUT@", {"rib", "in.pcap"}},
      {"compile --acl my.acl --out @OUT@", {"my.acl", "inner.acl"}},
      {"compile --routes rib --algorithm trie --out @OUT@", {"rib"}},
      {"compile --routes rib --adjacencies adj --out @OUT@", {"rib", "adj"}},
      {"gen rules --like my.acl --count 10 --out @OUT@", {"my.acl", "inner.acl"}},
      {"gen routes --like rib --count 4 --out @OUT@", {"rib"}},
      {"gen trace --rules v4.acl --packets 10 --out @OUT@", {"v4.acl"}},
      {"gen traffic --rules my.acl --routes rib --packets 10 --out @OUT@", {"my.acl", "rib", "inner.acl"}},
      {"run " + kTables + "--out @OUT@", {"my.acl", "rib", "adj", "edge.qos", "in.pcap"}},
      {"run --acl my.acl --in in.pcap --out @OUT@", {"inner.acl"}, 1},
      {"run --routes rib --adjacencies adj --in in.pcap --out 1=@OUT@ --out rest.pcap", {"rib", "adj", "in.pcap"}},
      {"run --acl my.acl --in in.pcap --hits @OUT@", {"my.acl", "in.pcap"}},
      {"run g.click --hits @OUT@", {"g.click"}, 2, "FromDump(in.pcap) -> IPInput -> ACL(FILE my.acl) -> Discard;"},
      {"run g.click --hits @OUT@",
       {"in.pcap", "my.acl", "inner.acl"},
       1,
       "FromDump(in.pcap) -> IPInput -> ACL(FILE my.acl) -> Discard;"},
      {"run g.click",
       {"in.pcap", "filter"},
       1,
       "FromDump(in.pcap) -> IPInput -> IPFilter(file filter) -> ToDump(@OUT@);"},
      {"run g.click", {"g.click"}, 1, "FromDump(in.pcap) -> ToDump(@OUT@);"},
      {"run g.click",
       {"in.pcap", "rib", "adj"},
       1,
       "RouteTable(fib, FILE rib); AdjacencyTable(adj, FILE adj, ROUTES fib); FromMemory(in.pcap) -> IPInput -> "
       "IPRoute(TABLE fib) -> ToDump(@OUT@);"},
      {"run g.click",
       {"in.pcap", "edge.qos"},
       1,
       "FromDump(in.pcap) -> IPInput -> QoS(edge.qos) -> Unqueue -> ToDump(@OUT@);"},
      {"run g.click", {"lines"}, 1, "FromIPSummaryDump(lines, STOP true) -> ToIPSummaryDump(@OUT@);"},
      {"run g.click --packet-scheduler",
       {"in.pcap", "my.acl", "inner.acl"},
       1,
       "FromDump(in.pcap) -> IPInput -> ACL(FILE my.acl) -> ToIPSummaryDump(@OUT@);"},
      {"run g.click --map dpdk:0=pcap:in.pcap,@OUT@",
       {"in.pcap"},
       1,
       "FromDPDKDevice(0) -> EtherMirror -> ToDPDKDevice(0);"},
  };
  return all;
}

constexpr std::string_view kOutput = "@OUT@";

std::string with(std::string text, const std::string& output) {
  for (size_t at = text.find(kOutput); at != std::string::npos; at = text.find(kOutput, at + output.size()))
    text.replace(at, kOutput.size(), output);
  return text;
}

class CliOutputsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("inner.acl", "deny udp from any to any port 53\n");
    std::string rules;
    for (int i = 0; i < 40; ++i) rules += "permit tcp from 10.0." + std::to_string(i) + ".0/24 to any port 80\n";
    rules += "permit ip from 10.0.0.0/8 to any\n";
    write("my.acl", "include \"inner.acl\"\n" + rules);
    write("v4.acl", "deny udp from 10.0.0.0/8 to any port 53\n" + rules);
    write("rib", "8.0.0.0/8 a\n9.0.0.0/8 b\n10.0.0.0/8 a\n");
    write("adj", "a 02:00:00:00:00:0a 02:00:00:00:00:01 1\nb 02:00:00:00:00:0b 02:00:00:00:00:01 2\n");
    write("edge.qos", "class voice dscp ef strict\nclass rest dscp others\n");
    write("filter", "allow tcp\nallow udp\n");
    write("lines", "!data ip_src ip_dst\n10.0.0.1 8.1.1.1\n10.0.0.2 9.1.1.1\n");
    write("trace", "134744072 151587081 1024 53 17\n134744072 151587081 1024 80 6\n");
    write("addresses", "8.1.1.1\n9.1.1.1\n");
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    for (uint16_t i = 0; i < 200; ++i) {
      const auto f =
          (i % 2 != 0 ? tcp4("10.0.0.1", "8.1.1.1").ports(i, 80) : udp4("10.0.0.1", "9.1.1.1").ports(i, 54)).build();
      const auto bytes = static_cast<uint32_t>(f.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, 1'700'000'000'000'000'000u + i}, f.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  // Every file with its bytes.
  std::map<std::string, std::string> all() const {
    std::map<std::string, std::string> bytes;
    for (const std::string& name : files()) bytes[name] = fs::is_regular_file(folder_ / name) ? read(name) : "";
    return bytes;
  }
  void write_graph(const Command& command, const std::string& output) const {
    if (!command.graph.empty()) write("g.click", with(command.graph, output) + "\n");
  }
  uint64_t frames(const std::string& name) const {
    auto reader = CaptureReader::open(path(name));
    EXPECT_TRUE(reader.ok()) << (reader.ok() ? "" : reader.error().message);
    CapturedFrame frame;
    uint64_t n = 0;
    while (reader.ok() && *reader->next(frame)) ++n;
    return n;
  }
};

// A command that got an output and is not here would not be swept.
TEST_F(CliOutputsTest, EveryCommandWithAnOutputIsSwept) {
  std::set<std::string> swept, documented;
  for (const Command& c : commands()) {
    std::string words = c.words;
    for (const char* option : {" --out", " --hits"}) {
      if (words.find(option) == std::string::npos) continue;
      const size_t first = words.find(" --"), file = words.find(" g.click");
      swept.insert(words.substr(0, std::min(first, file)) + option);
    }
  }
  std::string command;
  for (const std::string& line : sluice("reference").lines()) {
    if (line.starts_with("## sluice ")) command = line.substr(10);
    for (const char* option : {"--out ", "--hits "}) {
      const size_t at = line.find(option);
      if (at != std::string::npos && line.find_first_not_of(' ') == at)
        documented.insert(command + " " + std::string(option, 0, std::strlen(option) - 1));
    }
  }
  documented.erase("show plan --out");      // writes nothing
  documented.erase("show rules --hits");    // a flag
  documented.erase("send --out");           // an interface
  documented.erase("gen graphs --out");     // a directory: cli_graphs_test.cpp
  documented.erase("capture start --out");  // of a process that runs: daemon_test.py
  EXPECT_FALSE(documented.empty());
  EXPECT_EQ(documented, swept);
}

TEST_F(CliOutputsTest, NoOutputIsAnInputUnderAnyName) {
  ASSERT_EQ(::mkdir(path("below").c_str(), 0700), 0);
  for (size_t c = 0; c < commands().size(); ++c) {
    const Command& command = commands()[c];
    for (const std::string& input : command.inputs) {
      write_graph(command, "other");
      fs::create_symlink(input, path("symbolic"));
      fs::create_hard_link(path(input), path("hard"));
      std::vector<std::string> names = {"hard", "below/../symbolic"};
      if (input == command.inputs.front()) {
        for (const std::string& name : {input, "./" + input, "below/../" + input, path(input), std::string("symbolic")})
          names.push_back(name);
      }
      for (size_t n = 0; n < names.size(); ++n) {
        if (!looked_at(c, n)) continue;
        const std::string& name = names[n];
        write_graph(command, name);
        const auto before = all();
        const Said said = sluice(with(command.words, name));
        EXPECT_EQ(said.code, command.code) << with(command.words, name) << "\n"
                                           << with(command.graph, name) << "\n"
                                           << said.err;
        EXPECT_NE(said.err.find("' is the same file as '"), std::string::npos) << said.err;
        EXPECT_EQ(said.out, "");
        EXPECT_EQ(all(), before) << with(command.words, name);
      }
      fs::remove(path("symbolic"));
      fs::remove(path("hard"));
    }
  }
}

TEST_F(CliOutputsTest, EveryKindOfOutputIsWrittenAsWhatItIs) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkdir(path("below").c_str(), 0700), 0);
  fs::create_symlink("below/real", path("link"));
  for (size_t c = 0; c < commands().size(); ++c) {
    const Command& command = commands()[c];
    const bool image = command.words.starts_with("compile");
    const auto run = [&](const std::string& output, const std::string& beside = "") {
      write_graph(command, output);
      return shell(beside + "\"$SLUICE\" " + with(command.words, output) + " -q; code=$?; wait; exit $code");
    };
    const Said plain = run("plain");
    ASSERT_EQ(plain.code, 0) << command.words << "\n" << plain.err;
    const std::string want = read("plain");
    EXPECT_FALSE(want.empty()) << command.words;
    EXPECT_EQ(run("pipe", "cat pipe > got & ").code, 0) << command.words;
    EXPECT_EQ(read("got"), want) << command.words;
    EXPECT_TRUE(fs::is_fifo(path("pipe"))) << command.words;
    EXPECT_EQ(run("link").code, 0) << command.words;
    EXPECT_TRUE(fs::is_symlink(path("link"))) << command.words;
    EXPECT_EQ(read("below/real"), want) << command.words;
    EXPECT_EQ(run("/dev/fd/7", "exec 7>>appended; printf x >&7; ").code, 0) << command.words;
    EXPECT_EQ(read("appended"), "x" + want) << command.words;
    for (const char* name : {"plain", "got", "below/real", "appended"}) fs::remove(path(name));
    const auto before = all();
    const char* const wrong[] = {"/dev/full", "none/file", ".", "below", "/proc/self/file", "plain/"};
    for (size_t n = 0; n < std::size(wrong); ++n) {
      if (!looked_at(c, n)) continue;
      const char* const name = wrong[n];
      const Said said = run(name);
      EXPECT_EQ(said.code, 3) << command.words << "\n" << command.graph << "\n" << name << "\n" << said.err;
      EXPECT_NE(said.err.find(name), std::string::npos) << said.err;
      EXPECT_NE(said.err.find("cannot write"), std::string::npos) << said.err;
    }
    struct stat full {};
    ASSERT_EQ(::stat("/dev/full", &full), 0);
    EXPECT_TRUE(S_ISCHR(full.st_mode)) << command.words;
    auto after = all();
    if (!command.graph.empty()) after["g.click"] = before.at("g.click");
    EXPECT_EQ(after, before) << command.words;
    EXPECT_EQ(run("/dev/null").code, 0) << command.words;
    if (image) continue;
    ASSERT_EQ(::stat("/dev/null", &full), 0);
    EXPECT_TRUE(S_ISCHR(full.st_mode)) << command.words;
  }
}

TEST_F(CliOutputsTest, TwoOutputsAreTwoFiles) {
  write("tee.click", "FromDump(in.pcap) -> t::Tee(2); t[0] -> ToDump($A); t[1] -> ToDump($B);\n");
  write("sums.click", "FromDump(in.pcap) -> IPInput -> t::Tee(2); t[0] -> ToIPSummaryDump($A); t[1] -> ToDump($B);\n");
  const auto before = all();
  for (const auto& [a, b] : {std::pair{"o.pcap", "o.pcap"}, {"o.pcap", "./o.pcap"}, {"-", "/dev/stdout"}}) {
    const std::string outputs = std::string(" A=") + a + " B=" + b;
    EXPECT_EQ(sluice("run tee.click" + outputs).code, 1) << outputs;
    EXPECT_EQ(sluice("run sums.click" + outputs).code, 1) << outputs;
    EXPECT_EQ(sluice("run --routes rib --in in.pcap --out 1=" + std::string(a) + " --out " + b).code, 2) << outputs;
    EXPECT_EQ(sluice("run --acl v4.acl --in in.pcap --hits " + std::string(a) + " --out " + b).code, 2) << outputs;
  }
  EXPECT_EQ(sluice("run --acl v4.acl --in in.pcap --out s --control ./s").code, 2);
  EXPECT_EQ(sluice("run --acl v4.acl --in in.pcap --out in.pcap.partial --hits in.pcap.partial.partial").code, 2);
  EXPECT_EQ(all(), before);
  EXPECT_EQ(sluice("run tee.click A=/dev/null B=/dev/null").code, 0);
  EXPECT_EQ(sluice("run tee.click A=a B=b").code, 0);
  EXPECT_EQ(frames("a"), 200u);
  EXPECT_EQ(frames("b"), 200u);
}

// A graph that comes during the run reads and writes with the run that goes on.
// Two things that want standard output are an error before anything is read: the inputs are not there.
TEST_F(CliOutputsTest, StandardOutputTakesOneThing) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"run --in none --out - --hits -", "--hits and --out"},
      {"run --in none --out /dev/stdout --hits -", "--hits and --out"},
      {"run --routes none --adjacencies none --in none --out 1=- --out /dev/fd/1", "--out and --out"},
      {"run --in none --out - -o json", "-o json and --out"},
      {"run --in none --acl none --hits - -o json", "-o json and --hits"},
      {"run --in none --out - --priorities -o json", "-o json and --out"},
      {"classify --rules none --in none --out - -o json", "-o json and --out"},
      {"route --routes none --in none --out - -o json", "-o json and --out"},
      {"gen rules --like none -o json", "-o json and --out"},
      {"gen traffic --rules none --out /dev/stdout -o json", "-o json and --out"}};
  for (const auto& [words, pair] : cases) {
    const Said said = sluice(words);
    EXPECT_EQ(said.code, 2) << words;
    EXPECT_EQ(said.out, "") << words;
    EXPECT_NE(said.err.find(pair + " both write to standard output"), std::string::npos) << words << "\n" << said.err;
  }
  write("g.click", "FromDump(in.pcap) -> ToDump(-);\n");
  const Said graph = sluice("run g.click -o json");
  EXPECT_EQ(graph.code, 1);
  EXPECT_NE(graph.err.find("-o json and ToDump both write to standard output"), std::string::npos) << graph.err;
  // The report for people gives way.
  for (const std::string& words : {std::string("run --acl my.acl --in in.pcap --hits -"), std::string("run g.click")}) {
    const Said said = sluice(words);
    EXPECT_EQ(said.code, 0) << words << said.err;
    EXPECT_EQ(said.out.find("drops  "), std::string::npos) << words;
    EXPECT_NE(said.err.find("drops  "), std::string::npos) << words;
  }
}

TEST_F(CliOutputsTest, AnOutputByPortThatNoPacketReachesIsNoted) {
  const Said made_up = sluice("run --routes rib --in none --out 1=a --out 2=b");
  EXPECT_EQ(made_up.code, 2);
  EXPECT_EQ(made_up.err,
            "error: --out 1=a: without --adjacencies every packet leaves by port 0\n  help: give --adjacencies, which "
            "have the port of each next hop, or one --out FILE\n");
  EXPECT_EQ(sluice("run --routes rib --in in.pcap --out 0=a").code, 0);
  EXPECT_EQ(frames("a"), 200u);
  const Said other = sluice("run --routes rib --adjacencies adj --in in.pcap --out 1=a --out 7=b");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.err, "warning: --out 7=b: no next hop of the routes leaves by port 7\n");
}

TEST_F(CliOutputsTest, AGraphThatFollowsDestroysNothing) {
  write("g.click", "FromDump(in.pcap) -> q::Queue(1000) -> u::Unqueue -> out::ToDump(o.pcap);\n");
  write("same.click", "FromDump(in.pcap) -> q::Queue(1000) -> u::Unqueue -> Counter -> out::ToDump(o.pcap);\n");
  write("input.click", "RandomSource(LENGTH 60, LIMIT 1) -> ToDump(./in.pcap);\n");
  write("output.click", "RandomSource(LENGTH 60, LIMIT 1) -> ToDump(./o.pcap);\n");
  write("hits.click", "FromDump(./o.pcap) -> ToDump(p.pcap);\n");
  const std::string before = read("in.pcap");
  const Said said = shell(
      "\"$SLUICE\" run g.click --control s --wait -q > report & p=$!; until [ -S s ]; do sleep 0.01; done; "
      "for g in input output hits same; do \"$SLUICE\" graph swap $g.click --socket s -q > said.$g 2>&1; echo $g $?; "
      "done; kill -TERM $p; wait $p; echo $?");
  EXPECT_EQ(said.out, "input 1\noutput 1\nhits 1\nsame 0\n0\n")
      << read("said.input") << read("said.output") << read("said.hits") << read("said.same") << said.err;
  EXPECT_EQ(read("in.pcap"), before);
  EXPECT_EQ(frames("o.pcap"), 200u);
}

// -- interrupted and damaged --

// `words` with what came through standard input by then, ended by `signal`.
std::string interrupted(const std::string& words, const std::string& signal) {
  return "mkfifo p; exec 3<>p; head -c 6000000 long.pcap > p 3>&- & \"$SLUICE\" " + words + " < p 3>&- & " +
         "for i in $(seq 3000); do ls *.tmp.* > /dev/null 2>&1 && break; sleep 0.01; done; kill -" + signal +
         " $!; wait $!; code=$?; rm p; exit $code";  // the writer ends with the last reader
}

TEST_F(CliOutputsTest, ASignalLeavesTheOldOutputsAndPartialOnes) {
  ASSERT_EQ(sluice("gen traffic -q --packets 20000 --out long.pcap").code, 0);
  write("g.click", "FromDump(-) -> IPInput -> t::Tee(2); t[0] -> ToDump(o); t[1] -> ToIPSummaryDump(lines.out);\n");
  const std::map<std::string, std::vector<std::string>> cases = {
      {"classify --rules v4.acl --in - --out o", {"o"}},
      {"route --routes rib --in - --out o", {"o"}},
      {"run --acl v4.acl --routes rib --adjacencies adj --in - --out 1=o --out rest --hits hits",
       {"o", "rest", "hits"}},
      {"run --acl v4.acl --in - --out o --workers 2", {"o"}},
      {"run --acl v4.acl --in - --out o --priorities", {"o"}},
      {"run g.click", {"o", "lines.out"}},
      {"gen traffic --packets 1000000000 --out o", {"o"}},
  };
  for (const auto& [words, outputs] : cases) {
    for (const char* signal : {"INT", "TERM", "HUP"}) {
      for (const std::string& output : outputs) write(output, "old");
      const auto before = all();
      const Said said = shell(interrupted(words, signal));
      EXPECT_EQ(said.code, 130) << words << " " << signal << "\n" << said.err;
      for (const std::string& output : outputs) {
        EXPECT_EQ(read(output), "old") << words;
        EXPECT_TRUE(exists(output + ".partial")) << words << " " << signal << " " << output << "\n" << said.err;
        EXPECT_NE(said.err.find("interrupted"), std::string::npos) << said.err;
        if (output == "o" && !words.starts_with("classify") && !words.starts_with("route"))
          (void)frames(output + ".partial");
        fs::remove(path(output + ".partial"));
      }
      EXPECT_EQ(all(), before) << words << " " << signal;
    }
  }
}

TEST_F(CliOutputsTest, ARunWithoutAnEndEndsWellByASignal) {
  for (const char* signal : {"INT", "TERM", "HUP"}) {
    write("o", "old");
    const Said said = shell(
        std::string("\"$SLUICE\" run --acl v4.acl --in in.pcap --repeat --out o --hits hits --control s -q > report & "
                    "until ls o.tmp.* > /dev/null 2>&1; do sleep 0.01; done; kill -") +
        signal + " $!; wait $!");
    EXPECT_EQ(said.code, 0) << signal << "\n" << said.err;
    (void)frames("o");
    EXPECT_TRUE(exists("hits"));
    EXPECT_FALSE(exists("s") || exists("o.partial") || exists("hits.partial")) << signal;
    fs::remove(path("hits"));
  }
  // nohup: the end of the terminal is not the end of the run.
  const Said said = shell(
      "(trap '' HUP; exec \"$SLUICE\" run --acl v4.acl --in in.pcap --repeat --out o --control s -q > report) & "
      "until [ -S s ]; do sleep 0.01; done; kill -HUP $!; \"$SLUICE\" show drops --socket s > drops; echo $?; "
      "kill -TERM $!; wait $!");
  EXPECT_EQ(said.out, "0\n") << said.err;
  EXPECT_EQ(said.code, 0) << said.err;
}

// A capture whose writer was killed: what there is, beside what was there.
TEST_F(CliOutputsTest, DamagedInputLeavesTheOldOutputsAndPartialOnes) {
  const std::string capture = read("in.pcap");
  write("cut.pcap", capture.substr(0, capture.size() / 2 + 5));
  constexpr int kWhole = 99;  // packets in it
  write("g.click",
        "FromDump(cut.pcap) -> IPInput -> t::Tee(2); t[0] -> ToDump(o); t[1] -> ToIPSummaryDump(lines.out);\n");
  const std::map<std::string, std::vector<std::string>> cases = {
      {"classify --rules v4.acl --in cut.pcap --out o", {"o"}},
      {"route --routes rib --in cut.pcap --out o", {"o"}},
      {"run --acl v4.acl --in cut.pcap --out o --hits hits", {"o", "hits"}},
      {"run --acl v4.acl --in cut.pcap --out o --workers 3", {"o"}},
      {"run --acl v4.acl --in cut.pcap --out o --priorities", {"o"}},
      {"run g.click", {"o", "lines.out"}},
  };
  for (const auto& [words, outputs] : cases) {
    for (const std::string& output : outputs) write(output, "old");
    const auto before = all();
    const Said said = sluice(words);
    EXPECT_EQ(said.code, 1) << words << "\n" << said.err;
    EXPECT_NE(said.err.find("cut.pcap"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("the output up to that point is in o.partial"), std::string::npos) << said.err;
    if (words.starts_with("run")) {
      EXPECT_NE(said.out.find("in     " + std::to_string(kWhole) + " packets"), std::string::npos) << words << "\n"
                                                                                                   << said.out;
      EXPECT_EQ(frames("o.partial"), uint64_t{kWhole}) << words;
    } else {
      const std::string lines = read("o.partial");
      EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), kWhole) << words;
    }
    for (const std::string& output : outputs) {
      EXPECT_EQ(read(output), "old") << words;
      fs::remove(path(output + ".partial"));
    }
    EXPECT_EQ(all(), before) << words;
  }
  // An output that fails leaves nothing, whatever the input is.
  EXPECT_EQ(sluice("run --routes rib --adjacencies adj --in cut.pcap --out 1=/dev/full --out o").code, 3);
  EXPECT_FALSE(exists("o.partial"));
}

TEST_F(CliOutputsTest, FilesWithoutAByteAreNoTables) {
  write("none", "");
  write("comment", "# nothing is meant\n");
  write("including.acl", "include \"none\"\npermit ip from any to any\n");
  const std::string in = " --in in.pcap --default permit --out o";
  for (const std::string& words :
       {"run --acl none" + in, "run --acl including.acl" + in, "run --routes none" + in,
        "run --routes rib --adjacencies none" + in, std::string("classify --rules none --in in.pcap"),
        std::string("compile --acl none --out o"), std::string("compile --routes none --out o"),
        std::string("route --routes none --addresses addresses"), std::string("check --rules none"),
        std::string("tables none")}) {
    const Said said = sluice(words);
    EXPECT_EQ(said.code, 1) << words << "\n" << said.err;
    EXPECT_NE(said.err.find("none: it is empty"), std::string::npos) << words << "\n" << said.err;
    EXPECT_FALSE(exists("o")) << words;
  }
  // Also of a command that failed.
  EXPECT_EQ(shell("false | \"$SLUICE\" run --acl - --in in.pcap --default permit --out o").code, 1);
  EXPECT_EQ(sluice("run --acl comment" + in).code, 0);
  EXPECT_EQ(frames("o"), 200u);
}

// The first file that is opened does not become the standard output that was closed.
TEST_F(CliOutputsTest, WithoutStandardOutputAFileStaysItself) {
  const Said said = shell("\"$SLUICE\" run --acl v4.acl --in in.pcap --out o >&-");
  EXPECT_EQ(said.code, 3) << said.err;
  EXPECT_EQ(frames("o"), 200u);
  EXPECT_EQ(shell("\"$SLUICE\" run --acl v4.acl --in in.pcap --out o -q >&- 2>&- <&-").code, 3);
  EXPECT_EQ(frames("o"), 200u);
}

// A limit of a file's size is like a full disk, wherever it is met: a word of the system and code 3, and nothing
// changes.
TEST_F(CliOutputsTest, AFileSizeLimitIsLikeAFullDisk) {
  for (size_t c = 0; c < commands().size(); ++c) {
    if (!looked_at(c, 0)) continue;
    const Command& command = commands()[c];
    const auto run = [&](const std::string& blocks) {
      write("o", "old\n");
      write_graph(command, "o");
      // What is printed goes where nothing limits it.
      return shell("{ (ulimit -f " + blocks + "; exec \"$SLUICE\" " + with(command.words, "o") +
                   " -q); echo $? > ../$(basename $PWD).code; } 2>&1 | cat >&2; read c < ../$(basename $PWD).code; rm "
                   "../$(basename $PWD).code; exit $c");
    };
    const Said plain = run("unlimited");
    ASSERT_EQ(plain.code, 0) << command.words << "\n" << plain.err;
    const std::string whole = read("o");
    const auto good = files();
    for (const char* blocks : {"0", "1", "4"}) {
      const Said said = run(blocks);
      EXPECT_TRUE(said.code == 3 || (said.code == 0 && std::string(blocks) != "0")) << said.code << command.words;
      EXPECT_EQ(read("o"), said.code == 0 ? whole : "old\n") << command.words;
      if (said.code != 0) {
        EXPECT_NE(said.err.find("o: cannot write: File too large"), std::string::npos) << said.err;
      }
      EXPECT_EQ(files(), good) << command.words;
    }
  }
}

// Stacks are the program's own business, not those of the shell that starts it.
TEST_F(CliOutputsTest, ASmallStackIsEnough) {
  for (size_t c = 0; c < commands().size(); ++c) {
    if (!looked_at(c, 0)) continue;
    const Command& command = commands()[c];
    write_graph(command, "o");
    for (const char* more : {"", " --workers 2"}) {
      if (*more != '\0' && !command.words.starts_with("run")) continue;
      const std::string words = with(command.words, "o") + " -q" + more;
      const Said plain = sluice(words);
      for (const char* kib : {"128", "256", "1024", "-S 64", "unlimited"}) {
        const Said said = shell("ulimit -s " + std::string(kib) + " || exit 99; exec \"$SLUICE\" " + words);
        if (said.code == 99) continue;
        EXPECT_EQ(said.code, plain.code) << kib << " " << words << "\n" << said.err;
      }
    }
  }
}

// README: "If an output fails, no output is created." A file that is mounted into a container is written in place;
// where that is not possible it is an error before anything is read, or all is put back.
TEST_F(CliOutputsTest, OutputsThatAreMountsAreWrittenInPlace) {
  if (::geteuid() != 0 || shell("unshare -m true").code != 0) GTEST_SKIP() << "no mount namespaces here";
  write("g.click",
        "s :: Tee(3); FromDump(in.pcap) -> s; s[0] -> ToDump(o.pcap); s[1] -> ToDump(mnt); s[2] -> IPInput -> "
        "ToIPSummaryDump(sum);\n");
  const std::vector<std::string> names = {"o.pcap", "mnt", "hits", "sum", "verdicts"};
  for (const std::string& words :
       {std::string("run -q --acl v4.acl --in in.pcap --out o.pcap --hits hits --dropped sum --verdicts mnt"),
        std::string("run -q --acl v4.acl --in in.pcap --out mnt --hits hits --verdicts verdicts"),
        std::string("run -q g.click")}) {
    for (const char* mount : {"mount --bind from mnt", "mount --bind from mnt && mount -o remount,bind,ro mnt",
                              "mount --bind from hits && mount -o remount,bind,ro hits; mount --bind from2 mnt"}) {
      for (const char* name : {"from", "from2"}) write(name, "old\n");
      for (const std::string& name : names) write(name, "old\n");
      const Said said = shell("unshare -m sh -c 'mount --make-rprivate / && " + std::string(mount) +
                              " && \"$SLUICE\" " + words + "; echo $? > code; cat mnt > seen'");
      const bool read_only =
          std::string(mount).find("ro mnt") != std::string::npos ||
          (std::string(mount).find("ro hits") != std::string::npos && words.find("hits") != std::string::npos);
      EXPECT_EQ(read("code"), read_only ? "3\n" : "0\n") << words << "\n" << mount << "\n" << said.err;
      EXPECT_EQ(read("seen") == "old\n", read_only) << words << "\n" << mount;
      EXPECT_EQ(said.err.find("mnt was written in place: it is a mount of its own") == std::string::npos, read_only)
          << said.err;
      for (const std::string& name : names) {
        if (read_only) {
          EXPECT_EQ(read(name), "old\n") << name;
        }
      }
      for (const std::string& name : files()) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace sluice
