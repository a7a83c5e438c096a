// Help, the man page and completion for shells: made from the declarations that the parser uses, and complete.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "control/command.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::Said;

class CliHelpTest : public testing::CliTest {
 protected:
  // Every command that the reference page has: "run", "bench route".
  std::vector<std::string> commands() const {
    std::vector<std::string> all;
    for (const std::string& line : sluice("reference").lines()) {
      if (line.starts_with("## sluice ")) all.push_back(line.substr(10));
    }
    return all;
  }
  // What a shell would offer behind `typed`, whose last word is being written.
  std::set<std::string> completed(const std::string& typed) const {
    const Said said = shell("bash -c 'source <(\"$SLUICE\" reference bash); COMP_WORDS=(" + typed +
                            "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _sluice; printf \"%s\\n\" \"${COMPREPLY[@]}\"'");
    EXPECT_EQ(said.err, "");
    const auto lines = said.lines();
    return {lines.begin(), lines.end()};
  }
};

TEST_F(CliHelpTest, HelpOfACommandIsThatOfItsOption) {
  ASSERT_GT(commands().size(), 40u);
  EXPECT_EQ(sluice("help").out, sluice("--help").out);
  for (const char* command : {"run", "bench route", "acl add", "help"}) {
    const Said said = sluice(std::string("help ") + command);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.out, sluice(std::string(command) + " --help").out) << command;
  }
  const Said wrong = sluice("help rum");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.out, "");
  EXPECT_NE(wrong.err.find("'rum' is not a command of 'sluice'"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("did you mean 'run'?"), std::string::npos) << wrong.err;
  EXPECT_EQ(sluice("help bench rout").code, 2);
}

TEST_F(CliHelpTest, HasARowForEveryCommandOfARunningProcess) {
  std::set<std::string> shown, rows, groups;
  for (const CommandRow& row : command_rows()) {
    if (!row.on_command_line) continue;
    rows.insert(row.name);
    groups.insert(row.name.substr(0, row.name.find(' ')));
  }
  for (const std::string& command : commands()) {
    if (groups.contains(command.substr(0, command.find(' ')))) shown.insert(command);
  }
  // The group `show` has what reads a configuration, too.
  EXPECT_EQ(shown.erase("show") + shown.erase("show plan"), 2u);
  EXPECT_EQ(shown, rows);
}

// CLI11 takes -1 for 2^64 - 1, 010 for 8 and 0x10 for 16: a limit that was mistyped would be none. Every option and
// every argument that is a number, of every command, takes decimal numbers that fit alone.
TEST_F(CliHelpTest, NumbersAreDecimalAndFit) {
  const std::vector<std::string> others = {
      "99999999999999999999999999", "+5", " 5", "5 ", "5,-1", "x", "1.5.2", "nan", "inf", ""};
  std::map<std::string, std::vector<std::string>> wrong;  // of each command, what is behind its name
  std::string command;
  std::set<std::string> options;
  for (const std::string& line : sluice("reference").lines()) {
    if (line.starts_with("## sluice ")) command = line.substr(10);
    // "  --limit N   Stop ...", "  --sizes BYTES,...", "  packets N".
    if (!line.starts_with("  ") || line.size() < 4 || line[2] == ' ') continue;
    std::istringstream words(line);
    std::string name, type;
    words >> name >> type;
    static const std::set<std::string> kFractions = {"S", "Z", "FRACTION", "PERCENT", "PART", "MINUTES"};
    static const std::set<std::string> kWhole = {"N", "N,...", "BYTES", "BYTES,...", "MS"};
    const bool fraction = kFractions.contains(type), whole = kWhole.contains(type);
    if ((!whole && !fraction) || !options.insert(command + " " + name).second) continue;
    name = name.substr(0, name.find(','));
    // An argument that begins with '-' is an option that is not there.
    const std::string given = name.starts_with('-') ? name + "=" : "";
    for (const std::string& value : {std::string("-1"), std::string("18446744073709551616"),
                                     std::string(fraction ? "0x1p" : "0x10"), others[options.size() % others.size()]})
      wrong[command].push_back("'" + given + value + "'");
    if (whole) wrong[command].push_back("'" + given + "1e3'");
    if (!given.empty()) wrong[command].push_back(name + " -1");
  }
  EXPECT_GT(options.size(), 150u);
  for (const auto& [name, all] : wrong) {
    std::string script;
    for (const std::string& one : all)
      script += "\"$SLUICE\" " + name + " " + one + " > said 2>&1 < /dev/null; echo \"$? " + one + "\"\n";
    write("all.sh", script);
    const auto lines = shell("sh all.sh").lines();
    EXPECT_EQ(lines.size(), all.size()) << name;
    for (const std::string& line : lines) EXPECT_EQ(line.substr(0, 2), "2 ") << name << ": " << line;
  }

  EXPECT_EQ(sluice("gen rules -q --count 010 --out - | grep -c .").out, "10\n");
  EXPECT_EQ(sluice("gen traffic -q --packets 020 --out in.pcap").code, 0);
  EXPECT_EQ(sluice("run --in in.pcap --batch 1 --limit 010 -o json").json()["packets_in"], 10);
  EXPECT_NE(sluice("run --in in.pcap --limit -1").err.find("--limit: '-1' is not a number from 0 to"),
            std::string::npos);
  EXPECT_NE(sluice("trace add 0x10").err.find("N: '0x10' is not a number from 1 to 1000"), std::string::npos);
  write("sluice.toml", "in = \"in.pcap\"\nlimit = -1\n");
  const Said file = sluice("run --config sluice.toml");
  EXPECT_EQ(file.code, 1);
  EXPECT_NE(file.err.find("'limit': '-1' is not a number"), std::string::npos) << file.err;
  // Sizes with a unit.
  for (const char* size : {"-1", "+5", "1e3", "0x10", "5 foo", "1.5GiB", "16777216TiB", "18446744073709551616", "''"})
    EXPECT_EQ(sluice(std::string("run --in in.pcap --max-memory=") + size).code, 2) << size;
  EXPECT_EQ(sluice("run -q --in in.pcap --control s --max-memory '08 GB'").code, 0);
}

// A screen for what most runs need; all of it by another option.
TEST_F(CliHelpTest, HelpIsShortAndAllHelpIsWhole) {
  const auto within = [](const Said& said, size_t lines, const std::string& what) {
    EXPECT_EQ(said.code, 0) << what << said.err;
    EXPECT_LE(said.lines().size(), lines) << what;
    for (const std::string& line : said.lines()) EXPECT_LE(line.size(), 110u) << what << ": " << line;
  };
  const Said run = sluice("run --help"), all = sluice("run --help-all"), root = sluice("--help");
  within(run, 60, "run --help");
  within(root, 60, "--help");
  size_t at = 0;
  for (const char* section : {"Input:", "Live:", "Tables:", "Report:"}) {
    const size_t next = run.out.find(std::string("\n") + section + "\n");
    ASSERT_NE(next, std::string::npos) << section << "\n" << run.out;
    EXPECT_GE(next, at) << section;
    at = next;
  }
  EXPECT_NE(run.out.find("--help-all"), std::string::npos);
  EXPECT_EQ(run.out.find("--watchdog"), std::string::npos);
  EXPECT_NE(all.out.find("--watchdog"), std::string::npos);
  for (const std::string& text : {run.out, all.out, sluice("reference").out, sluice("reference man").out}) {
    for (const char* library : {"INT in [", "FLOAT in [", ":{", "SIZE [b", "Needs:", "Excludes:"})
      EXPECT_EQ(text.find(library), std::string::npos) << library;
  }
  // A line for each command, the five that people need before all others.
  std::vector<std::string> names;
  bool first = false;
  for (const std::string& line : root.lines()) {
    if (!line.starts_with("  ")) first = line == "Start here:";
    if (first && line.starts_with("  ")) names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"run", "check", "why", "show", "top"}));
}

// Sixty options in one list are read by nobody.
TEST_F(CliHelpTest, TheOptionsOfARunStandInSections) {
  for (const char* command : {"run --help-all", "show plan --help-all"}) {
    std::vector<std::string> sections;
    for (const std::string& line : sluice(command).lines()) {
      if (!line.empty() && line[0] != ' ' && line.ends_with(":")) sections.push_back(line);
    }
    for (const char* section :
         {"Input and output:", "Tables:", "Workers and batches:", "Devices:", "Classes of service:", "Report:"})
      EXPECT_EQ(std::count(sections.begin(), sections.end(), section), 1) << command << " " << section;
    EXPECT_EQ(std::count(sections.begin(), sections.end(), "Options:"), 0)
        << "an option of " << command << " has no section";
  }
}

TEST_F(CliHelpTest, TheVersionHasAShortOption) {
  const Said version = sluice("-V");
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out, sluice("--version").out);
  EXPECT_EQ(version.out.rfind("sluice ", 0), 0u);
}

TEST_F(CliHelpTest, TheManPageHasEveryCommandAndNoMistakes) {
  const Said page = sluice("reference man");
  ASSERT_EQ(page.code, 0) << page.err;
  write("sluice.1", page.out);
  const Said shown = shell("LC_ALL=C groff -man -ww -Tascii -rLL=200n sluice.1 | sed 's/.\\x08//g; s/\\x1b[^m]*m//g'");
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.err, "") << "groff has no complaint";
  for (const std::string& command : commands())
    EXPECT_NE(shown.out.find("sluice " + command + "\n"), std::string::npos) << command;
  for (const char* word : {"NAME", "SYNOPSIS", "EXIT STATUS", "--latency-target", "--map", "-V, --version"})
    EXPECT_NE(shown.out.find(word), std::string::npos) << word;
}

TEST_F(CliHelpTest, BashCompletesCommandsOptionsAndTheirWords) {
  EXPECT_EQ(completed("sluice ru"), (std::set<std::string>{"run"}));
  const auto all = completed("sluice \"\"");
  for (const std::string& command : commands()) {
    if (command.find(' ') == std::string::npos) {
      EXPECT_TRUE(all.contains(command)) << command;
    }
  }
  EXPECT_EQ(completed("sluice bench rou"), (std::set<std::string>{"route"}));
  EXPECT_EQ(completed("sluice-bench rou"), (std::set<std::string>{"route"}));
  EXPECT_EQ(completed("/usr/bin/sluice-bench suite --qu"), (std::set<std::string>{"--quick", "--quiet"}));
  EXPECT_EQ(completed("sluice run --wor"), (std::set<std::string>{"--workers"}));
  EXPECT_EQ(completed("sluice route --wor"), completed("sluice classify --wor"));
  EXPECT_EQ(completed("sluice run --mode \"\""), (std::set<std::string>{"auto", "launch", "persistent", "adaptive"}));
  EXPECT_EQ(completed("sluice run --acl x --mode per"), (std::set<std::string>{"persistent"}));
  write("edge.acl", "permit ip from any to any\n");
  EXPECT_EQ(completed("sluice run --acl ed"), (std::set<std::string>{"edge.acl"}));
  EXPECT_EQ(completed("sluice check ed"), (std::set<std::string>{"edge.acl"}));
  EXPECT_EQ(completed("sluice elements AdjacencyRew"), (std::set<std::string>{"AdjacencyRewrite"}));
  EXPECT_EQ(completed("sluice clear counters dr"), (std::set<std::string>{"drops"}));
  EXPECT_TRUE(completed("sluice run --in l").contains("lo")) << "interfaces";
  EXPECT_TRUE(completed("sluice run --in e").contains("edge.acl")) << "and files";
}

TEST_F(CliHelpTest, OtherShellsTakeTheirFiles) {
  for (const char* name : {"zsh", "fish"}) {
    const Said said = shell(std::string("\"$SLUICE\" reference ") + name + " > c && " + name + " -n c");
    EXPECT_EQ(said.code, 0) << name << ": " << said.err;
    for (const std::string& command : commands())
      EXPECT_NE(read("c").find("sluice " + command), std::string::npos) << name << ": " << command;
  }
  const Said fish = shell("fish -c 'source c; complete -C \"sluice bench rou\"; complete -C \"sluice run --mode \"'");
  EXPECT_EQ(fish.code, 0) << fish.err;
  EXPECT_NE(fish.out.find("route\t"), std::string::npos) << fish.out;
  EXPECT_NE(fish.out.find("persistent"), std::string::npos) << fish.out;
  EXPECT_EQ(sluice("reference ksh").code, 2);
  EXPECT_EQ(shell("\"$SLUICE\" reference man > /dev/full").code, 3);
}

}  // namespace
}  // namespace sluice
