// What a user is told about a wrong command line or input: exact texts and exit codes, and nothing left behind.
#include <unistd.h>

#include "exec/device/device.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

class CliErrorsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("rules", "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\n");
    write("trace", "167772161\t1\t1\t80\t6\n");
    write("routes", "10.0.0.0/8 a\n");
  }
  void expect(const std::string& arguments, int code, const std::string& err) const {
    const auto before = files();
    const Said said = sluice(arguments);
    EXPECT_EQ(said.code, code) << arguments;
    EXPECT_EQ(said.err, err) << arguments;
    EXPECT_EQ(said.out, "") << arguments;
    EXPECT_EQ(files(), before) << arguments;
  }
};

TEST_F(CliErrorsTest, WrongCommandLines) {
  expect("", 2, "error: 'sluice' needs a command\n  help: see 'sluice --help'\n");
  expect("clasify --rules rules", 2,
         "error: 'clasify' is not a command of 'sluice'\n  help: did you mean 'classify'? see 'sluice --help'\n");
  expect("classify --rulez rules --trace trace", 2,
         "error: '--rulez' is not an option of 'sluice classify'\n  help: did you mean '--rules'? see 'sluice classify "
         "--help'\n");
  expect("classify --trace trace", 2, "error: --rules is missing\n  help: see 'sluice classify --help'\n");
  expect("classify --rules rules", 2, "error: --trace or --in is missing\n");
  expect("classify --rules rules --trace trace --in x", 2, "error: --trace or --in cannot be given together\n");
  expect("classify --rules rules --trace trace --algorithm lineer", 2,
         "error: --algorithm: there is no ACL algorithm 'lineer'\n  help: did you mean 'linear'?\n");
  expect("classify --rules rules --trace trace extra", 2,
         "error: 'sluice classify' takes no argument 'extra'\n  help: see 'sluice classify --help'\n");
  expect("route --routes routes --addresses x --algorithm dir25", 2,
         "error: --algorithm: there is no IPv4 route algorithm 'dir25'\n  help: did you mean 'dir24'?\n");
  expect("route --routes routes --addresses x --algorithm dir24,dir24", 2,
         "error: --algorithm: there is no IPv6 route algorithm 'dir24'\n  help: algorithms: poptrie, range24, planb, "
         "trie, linear, bloom, auto, auto-gpu\n");
  expect("compile --out x.img", 2, "error: --acl or --routes is missing\n");
  expect(
      "compile --acl rules --routes routes --out x.img", 2,
      "error: --acl and --routes cannot be given together\n  help: one image holds one table: run the command twice\n");
  expect("run", 2, "error: neither a configuration nor --in is given\n  help: see 'sluice run --help'\n");
  expect("run --acl rules", 2, "error: --in is missing\n  help: see 'sluice run --help'\n");
  expect("run --in a.pcap --adjacencies x", 2, "error: --adjacencies needs --routes\n");
  expect("run --in a.pcap --routes routes --route-algorithm dir25", 2,
         "error: --route-algorithm: there is no IPv4 route algorithm 'dir25'\n  help: did you mean 'dir24'?\n");
  expect("run --in a.pcap --routes routes --icmp-errors 1.2.3", 2,
         "error: --icmp-errors: '1.2.3' is not an address\n  help: give the router's own IPv4 address, IPv6 address, "
         "or both with a comma\n");
  expect("run --in a.pcap --out 1=b.pcap", 2,
         "error: outputs by port need routes\n  help: give --routes, or one --out FILE\n");
  expect("run --in a.pcap --out a.pcap", 2,
         "error: --out: 'a.pcap' is the same file as 'a.pcap' of --in\n  help: write to another file: this one is read "
         "by the run\n");
  expect("elements IPRout", 2, "error: there is no element class 'IPRout'\n  help: did you mean 'IPRoute'?\n");
  expect("gen", 2, "error: 'sluice gen' needs a command\n  help: see 'sluice gen --help'\n");
  expect("explain --acl rules", 2, "error: --packet, --hex or --in is missing\n");
  expect("classify --rules rules --trace trace --device cud", 2,
         "error: --device: there is no device 'cud'\n  help: did you mean 'cuda'?\n");
}

TEST_F(CliErrorsTest, SayWhatIsWrongWithAnOptionInASentence) {
  const auto says = [&](const std::string& arguments, const std::string& sentence, const std::string& command) {
    expect(arguments, 2, "error: " + sentence + "\n  help: see 'sluice " + command + " --help'\n");
  };
  says("acl add edge", "RULE is missing", "acl add");
  says("run --in a --acl b --acl c", "--acl is given 2 times, and can be given once", "run");
  says("run --in", "--in needs a value: PCAP|IF", "run");
  says("run --in a --workers 0", "--workers: '0' is not a number from 1 to 256", "run");
  says("run --in a --workers two", "--workers: 'two' is not a number from 1 to 256", "run");
  says("gen rules --ipv6 1.5", "--ipv6: '1.5' is not a number from 0 to 1", "gen rules");
  says("gen rules --shape x", "--shape: 'x' is not one of acl, fw, ipc", "gen rules");
  says("gen rules --format native", "--format needs --like", "gen rules");
  says("gen rules --like rules --shape fw", "--shape and --like cannot be given together", "gen rules");
  says("run --in a --limit few", "--limit: 'few' is not a number from 0 to 18446744073709551615", "run");
  says("run --in a --max-memory 3foo", "--max-memory: 'foo' is not a unit of size; write KiB, MiB or GiB", "run");
  says("run --in a -o xml", "--output: 'xml' is not one of table, json", "run");
}

// An error of a file stands at the option that names it.
TEST_F(CliErrorsTest, FilesOfTheStandardGraphAreNamedByTheirOptions) {
  const std::string missing = "cannot open: No such file or directory\n";
  expect("run --in none", 3, "--in none: error: " + missing + "error: 1 file cannot be read\n");
  const Said all = sluice("run --in none1 --acl none2 --routes routes,none3 --adjacencies none4 --out nowhere/out");
  EXPECT_EQ(all.code, 3) << all.err;
  for (const char* line : {"--in none1: error: ", "--acl none2: error: ", "--routes none3: error: ",
                           "--adjacencies none4: error: ", "--out nowhere/out: error: "})
    EXPECT_NE(("\n" + all.err).find("\n" + std::string(line)), std::string::npos) << line << "\n" << all.err;
  EXPECT_EQ(all.err.find("standard graph"), std::string::npos) << all.err;
  const Said port = sluice("run --in none --routes routes --out 0=nowhere/out");
  EXPECT_NE(port.err.find("\n--out 0=nowhere/out: error: "), std::string::npos) << port.err;
}

TEST_F(CliErrorsTest, DevicesThatAreNotHere) {
  const DeviceCount cuda = count_cuda_devices();
  if (cuda.count != 0) GTEST_SKIP() << "there are CUDA devices here";
  const std::string refusal =
      cuda.why_none == "this program was built without CUDA"
          ? "error: this program was built without CUDA\n  help: build it with ./dev build cuda, or use --device cpu\n"
          : "error: no CUDA device: " + cuda.why_none + "\n  help: check `nvidia-smi`, or use --device cpu\n";
  for (const char* name : {"cuda", "cuda:0", "cuda:7"}) {
    expect(std::string("classify --rules rules --trace trace --device ") + name, 4, refusal);
    expect(std::string("run --in a.pcap --device ") + name, 4, refusal);
  }
  expect("run --in a.pcap --device cuda:all", 4,
         "error: no CUDA device: " + cuda.why_none + "\n  help: use --device cpu, or auto\n");
  const Said said = sluice("classify --rules rules --trace trace --device auto");
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(said.err.find("device auto: " + cuda.why_none + "; running on the CPU\n"), 0u) << said.err;
}

TEST_F(CliErrorsTest, DeviceOptions) {
  expect("run --in a.pcap --device gpu", 2, "error: --device: there is no device 'gpu'\n  help: did you mean 'cpu'?\n");
  expect("run --in a.pcap --device fpga", 2,
         "error: --device: there is no device 'fpga'\n  help: devices: cpu, auto, cuda, emu\n");
  expect("run --in a.pcap --device emu:x", 4,
         "error: 'emu:x' is not a device\n  help: write emu, emu:N, emu:fail-after=RECORDS or "
         "emu:stop-after=RECORDS\n");
  expect("run --in a.pcap --latency-target 50ys", 2,
         "error: --latency-target: '50ys' is not a time\n  help: write seconds, or a number and its unit: 800ns, 50us, "
         "1.5ms or 2s\n");
  expect("run --in a.pcap --latency-target 50min", 2,
         "error: --latency-target: '50min' is not a time\n  help: write seconds, or a number and its unit: 800ns, "
         "50us, 1.5ms or 2s\n");
  expect("run --in a.pcap --latency-target 0us", 2,
         "error: --latency-target: '0us' is out of range\n  help: use 1ns to 3600s\n");
  expect("bench pipeline --latency-target fast", 2,
         "error: --latency-target: 'fast' is not a time\n  help: write seconds, or a number and its unit: 800ns, "
         "50us, 1.5ms or 2s\n");
  for (const char* wrong : {"--mode fast", "--transport pcie", "--records bytes", "--threading both", "--flights 17"}) {
    const Said said = sluice(std::string("run --in a.pcap --device emu ") + wrong);
    EXPECT_EQ(said.code, 2) << wrong;
    const std::string option = std::string(wrong).substr(0, std::string(wrong).find(' '));
    EXPECT_EQ(said.err.find("error: " + option + ": "), 0u) << said.err;
  }
}

TEST_F(CliErrorsTest, FilesThatAreNotThere) {
  expect("classify --rules none --trace trace", 3, "error: none: cannot open: No such file or directory\n");
  expect("classify --rules rules --trace none --out o", 3, "error: none: cannot open: No such file or directory\n");
  write("addresses", "10.0.0.1\n");
  expect("route --routes routes,none --addresses addresses", 3,
         "error: none: cannot open: No such file or directory\n");
  expect("classify --rules . --trace trace", 3, "error: .: cannot read: it is a directory\n");
}

TEST_F(CliErrorsTest, BadInputShowsEveryLineWithACaret) {
  write("bad",
        "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t90 : 80\t0x06/0xFF\n@10.0.0.0/40\t0.0.0.0/0\t0 : 65535\t80 : "
        "80\t0x06/0xFF\n");
  const Said said = sluice("classify --rules bad --trace trace --out o");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("bad:1:"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("bad:2:"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("error: 2 errors in bad\n"), std::string::npos) << said.err;
  EXPECT_FALSE(exists("o"));
  EXPECT_EQ(sluice("check --rules bad").code, 1);
  EXPECT_EQ(sluice("compile --acl bad --out bad.img").code, 1);
  EXPECT_FALSE(exists("bad.img"));

  write("addresses", "10.0.0.1\nfoo\n\n1.2.3.400 # bar\n");
  expect("route --routes routes --addresses addresses --out o", 1,
         "addresses:2:1: error: 'foo' is not an address\n  foo\n  ^~~\n  expected: one IPv4 or IPv6 address per line, "
         "such as 192.0.2.1 or 2001:db8::1\n"
         "addresses:4:1: error: '1.2.3.400' is not an address\n  1.2.3.400 # bar\n  ^~~~~~~~~\n  expected: one IPv4 or "
         "IPv6 address per line, such as 192.0.2.1 or 2001:db8::1\n"
         "error: 2 errors in addresses\n");
  write("notpcap", "hello, this is no capture at all\n");
  EXPECT_EQ(sluice("classify --rules rules --in notpcap --out o").code, 1);
  EXPECT_EQ(sluice("run --in notpcap --out o").code, 1);
  EXPECT_FALSE(exists("o"));
}

// A file that was given for another one says what it is, in place of an error for each of its lines.
TEST_F(CliErrorsTest, AFileOfTheWrongKindSaysWhatItLooksLike) {
  write("edge.acl", "# a list\npermit tcp from any to any\n");
  write("rib.txt", "8.0.0.0/8 10.0.0.1\n9.0.0.0/8 10.0.0.2\n");
  write("nft.conf", "table inet filter {\n  chain forward {\n    tcp dport 22 accept\n  }\n}\n");
  write("edge.toml", "[tables]\nacl = \"edge.acl\"\n");
  ASSERT_EQ(sluice("gen traffic -q --packets 10 --out a.pcap").code, 0);
  const auto says = [&](const std::string& arguments, const std::string& text) {
    const Said said = sluice(arguments);
    EXPECT_EQ(said.code, 1) << arguments << "\n" << said.err;
    EXPECT_NE(said.err.find(text), std::string::npos) << arguments << "\n" << said.err;
    EXPECT_LE(std::count(said.err.begin(), said.err.end(), '\n'), 6) << said.err;
  };
  says("run edge.acl", "edge.acl: this is not a Click configuration: it looks like an access list");
  says("run rib.txt", "it looks like a route file");
  says("run edge.toml", "it looks like a TOML configuration");
  says("check --rules rib.txt", "rib.txt: this is not an access list: it looks like a route file");
  says("check --routes edge.acl", "edge.acl: this is not a route file: it looks like an access list");
  says("run --in a.pcap --acl rib.txt", "it looks like a route file");
  for (const char* command : {"check --rules nft.conf", "run --in a.pcap --acl nft.conf",
                              "explain --acl nft.conf --packet 'udp 1.1.1.1 > 2.2.2.2:53'"})
    says(command, "unshare -rn sh -c 'nft -f nft.conf && nft -j list ruleset' > nft.conf.json");
}

// The first five show what is wrong; a hundred more hide what else is.
TEST_F(CliErrorsTest, FiveErrorsOfAKindAreShown) {
  std::string rules = "permit ip from any to any\ndeny udp from 300.1.1.1 to any\n";
  for (int i = 0; i < 20; ++i) rules += "permit tcp from any to any port x" + std::to_string(i) + "\n";
  write("many", rules);
  const Said said = sluice("check --rules many");
  EXPECT_EQ(said.code, 1);
  size_t shown = 0;
  for (size_t at = said.err.find(": error: "); at != std::string::npos; at = said.err.find(": error: ", at + 1))
    ++shown;
  EXPECT_EQ(shown, 6u) << said.err;
  EXPECT_NE(said.err.find("300.1.1.1"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("error: 21 errors in many; 15 more like these (-o json shows them)"), std::string::npos)
      << said.err;
  EXPECT_EQ(testing::parse_json(sluice("check --rules many -o json").err)["error"]["diagnostics"].size(), 21u);
}

// One command gives what all methods need: a second setcap would take away what the first gave.
TEST_F(CliErrorsTest, DoctorNamesTheCommandThatOpensLivePorts) {
  const Said said = sluice(std::string("doctor -o json") + (::geteuid() == 0 ? " --user nobody" : ""));
  ASSERT_EQ(said.code, 0) << said.err;
  std::string mend;
  const auto report = said.json();
  for (const auto& finding : report["findings"]) {
    if (finding["what"] == "live ports") mend = finding["mend"];
  }
  EXPECT_EQ(mend.rfind("sudo setcap cap_net_raw", 0), 0u) << mend;
  EXPECT_NE(mend.find("cap_net_admin"), std::string::npos) << mend;
  EXPECT_NE(mend.find(std::string("+ep /")), std::string::npos) << mend;
}

// What a configuration does not have is a mistake in its name.
TEST_F(CliErrorsTest, AVariableThatTheConfigurationDoesNotHaveIsAnError) {
  write("edge.click", "define($CAPTURE in.pcap);\nFromDump($CAPTURE) -> Discard;\n");
  write("none.click", "FromDump(in.pcap) -> Discard;\n");
  expect("check edge.click CAPTUR=x", 2,
         "error: CAPTUR=x: edge.click has no variable $CAPTUR\n  help: did you mean CAPTURE=x?\n");
  expect("check none.click IN=x", 2,
         "error: IN=x: none.click has no variable $IN\n  help: it has none: leave it out\n");
  EXPECT_EQ(sluice("check edge.click CAPTURE=x").code, 0);
  EXPECT_NE(sluice("run --help").out.find("sluice run edge.click IN="), std::string::npos);
}

TEST_F(CliErrorsTest, ConfigurationsPointAtTheMistakes) {
  write("bad.click", "FromDump(a.pcap) -> IPRout(fib) -> Discard;\n");
  const Said said = sluice("check bad.click");
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(said.err.find("bad.click:1:21: error:"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("IPRoute"), std::string::npos) << said.err;
  EXPECT_EQ(sluice("run bad.click").code, 1);
  write("missing.click", "FromDump(none.pcap) -> Discard;\n");
  const Said missing = sluice("run missing.click");
  EXPECT_EQ(missing.code, 3);
  EXPECT_NE(missing.err.find("missing.click:1:"), std::string::npos) << missing.err;
  EXPECT_NE(missing.err.find("none.pcap: cannot open: No such file or directory"), std::string::npos) << missing.err;
  EXPECT_EQ(sluice("check missing.click").code, 0);
  write("var.click", "FromDump($IN) -> Discard;\n");
  EXPECT_EQ(sluice("check var.click").code, 1);
  EXPECT_EQ(sluice("check var.click IN=x").code, 0);
}

// No phase hides what another one would find: arguments, files, rules, routes and ports are reported together, and what
// only follows from a finding (the adjacencies of a route table that is wrong) is not.
TEST_F(CliErrorsTest, PhasesDoNotHideEachOther) {
  write("bad.acl", "permitt from any to any\n");
  write("bad.rib", "10.0.0.0/33 2\n");
  write("notpcap", "hello, this is no capture at all\n");
  write("all.click",
        "AclTable(edge, FILE bad.acl, SPEED 3);\n"
        "AclTable(other, FILE bad.acl);\n"
        "AclTable(gone, FILE none.acl);\n"
        "RouteTable(fib, FILE bad.rib);\n"
        "RouteTable(wrong, FIL rib);\n"
        "AdjacencyTable(adj, ROUTES wrong);\n"
        "FromDump(notpcap) -> IPInput -> ACL(TABLE other) -> ToDump(no/folder/out.pcap);\n"
        "FromDump(none.pcap) -> Discard;\n");
  const std::string arguments =
      "all.click:1:30: error: unknown keyword 'SPEED'\n"
      "  AclTable(edge, FILE bad.acl, SPEED 3);\n"
      "                               ^~~~~\n"
      "  expected: one of FILE, FORMAT, ALGORITHM\n"
      "all.click:5:19: error: unknown keyword 'FIL'\n"
      "  RouteTable(wrong, FIL rib);\n"
      "                    ^~~\n"
      "  help: did you mean 'FILE'?\n";
  const std::string table_files =
      "all.click:3:1: error: none.acl: cannot open: No such file or directory\n"
      "  AclTable(gone, FILE none.acl);\n"
      "  ^~~~~~~~\n";
  const std::string tables =
      "bad.acl:1:1: error: 'permitt' is not an action\n"
      "  permitt from any to any\n"
      "  ^~~~~~~\n"
      "  expected: permit, deny or mark(N); or define, include, src, dst, action\n"
      "  help: did you mean 'permit'?\n"
      "bad.rib:1:1: error: '33' is not a prefix length of IPv4\n"
      "  10.0.0.0/33 2\n"
      "  ^~~~~~~~~~~\n"
      "  expected: 0 to 32\n";
  const auto before = files();
  expect("run all.click", 1,
         arguments + table_files +
             "all.click:8:1: error: none.pcap: cannot open: No such file or directory\n"
             "  FromDump(none.pcap) -> Discard;\n"
             "  ^~~~~~~~\n" +
             tables +
             "all.click:7:1: error: notpcap is not a capture that can be read: unknown file format\n"
             "  FromDump(notpcap) -> IPInput -> ACL(TABLE other) -> ToDump(no/folder/out.pcap);\n"
             "  ^~~~~~~~\n"
             "  help: pcap and pcapng are accepted, plain or compressed with gzip, bzip2, xz or zstd\n"
             "all.click:7:53: error: no/folder/out.pcap: cannot write: No such file or directory\n"
             "  FromDump(notpcap) -> IPInput -> ACL(TABLE other) -> ToDump(no/folder/out.pcap);\n"
             "                                                      ^~~~~~\n"
             "  help: does the directory 'no/folder' exist?\n"
             "error: 2 errors in all.click; 2 files cannot be read; 2 tables or files have errors; "
             "2 ports cannot be opened\n");
  expect("check all.click", 1,
         arguments + table_files + tables +
             "error: 2 errors in all.click; 1 file cannot be read; 2 tables or files have errors\n");
  // The standard graph, of which the user sees no text: a bad rule and an output that cannot be opened.
  const Said standard = sluice("run --acl bad.acl --in notpcap --out no/folder/out.pcap");
  EXPECT_EQ(standard.code, 1);
  EXPECT_NE(standard.err.find("bad.acl:1:1: error:"), std::string::npos) << standard.err;
  EXPECT_NE(standard.err.find("notpcap is not a capture"), std::string::npos) << standard.err;
  EXPECT_NE(standard.err.find("--out no/folder/out.pcap: error: cannot write"), std::string::npos) << standard.err;
  EXPECT_NE(standard.err.find("error: 1 error in bad.acl; 2 ports cannot be opened\n"), std::string::npos)
      << standard.err;
  // Only files that cannot be opened: that is exit code 3. A good output is looked at and leaves nothing behind.
  write("files.click",
        "RouteTable(fib, FILE none.rib);\nFromDump(none.pcap) -> IPInput -> IPRoute(TABLE fib) -> ToDump(o.pcap);\n");
  expect("run files.click", 3,
         "files.click:1:1: error: none.rib: cannot open: No such file or directory\n"
         "  RouteTable(fib, FILE none.rib);\n"
         "  ^~~~~~~~~~\n"
         "files.click:2:1: error: none.pcap: cannot open: No such file or directory\n"
         "  FromDump(none.pcap) -> IPInput -> IPRoute(TABLE fib) -> ToDump(o.pcap);\n"
         "  ^~~~~~~~\n"
         "error: 2 files cannot be read\n");
  auto after = files();
  std::erase(after, "files.click");
  EXPECT_EQ(after, before);
}

TEST_F(CliErrorsTest, PacketTextsPointAtTheWord) {
  expect("explain --packet 'ip 10.0.0.1 > 8.8.8.8 tcpp 1 > 2'", 1,
         "--packet:1:23: error: 'tcpp' is not understood here\n  ip 10.0.0.1 > 8.8.8.8 tcpp 1 > 2\n                    "
         "    ^~~~\n"
         "  expected: tcp SPORT > DPORT, udp, icmp TYPE CODE, proto N, flags S, ttl N, dscp N, len N, df, frag N, vlan "
         "N\n  help: did you mean 'tcp'?\n"
         "error: 1 error in --packet\n  help: a whole one: 'tcp 10.0.0.1:1234 > 8.8.8.8:80 flags S'\n");
  EXPECT_EQ(sluice("explain --packet 'ip 10.0.0.1 > 2001::1'").code, 1);
  EXPECT_EQ(sluice("explain --packet 'ip 10.0.0.1 >'").code, 1);
  EXPECT_EQ(sluice("explain --packet ' '").code, 1);
  EXPECT_EQ(sluice("explain --hex '0g'").code, 1);
}

TEST_F(CliErrorsTest, JsonErrorsAreObjectsOnStderr) {
  const Said usage = sluice("classify -o json --rulez rules");
  EXPECT_EQ(usage.code, 2);
  EXPECT_EQ(testing::parse_json(usage.err)["error"]["message"], "'--rulez' is not an option of 'sluice classify'");
  write("addresses", "foo\n");
  const Said bad = sluice("route --routes routes --addresses addresses -o json");
  EXPECT_EQ(bad.code, 1);
  EXPECT_EQ(bad.out, "");
  const auto json = testing::parse_json(bad.err)["error"];
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["diagnostics"][0]["line"], 1);
  EXPECT_EQ(json["diagnostics"][0]["source"], "foo");
}

TEST_F(CliErrorsTest, HelpNamesExitCodesAndExamples) {
  for (const char* command : {"",
                              "run",
                              "check",
                              "explain",
                              "demo",
                              "classify",
                              "route",
                              "compile",
                              "tables",
                              "gen",
                              "gen rules",
                              "gen routes",
                              "gen trace",
                              "gen traffic",
                              "bench",
                              "send",
                              "bench classify",
                              "bench route",
                              "bench pipeline",
                              "bench wire",
                              "doctor",
                              "elements"}) {
    const Said said = sluice(std::string(command) + " --help");
    EXPECT_EQ(said.code, 0) << command;
    EXPECT_NE(said.out.find("Exit codes: 0 success"), std::string::npos) << command;
    if (*command != '\0') {
      EXPECT_NE(said.out.find("Examples:"), std::string::npos) << command;
    }
  }
  const Said version = sluice("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.find("sluice 0.1.0 ("), 0u) << version.out;
}

TEST_F(CliErrorsTest, TheReferencePageIsWhatTheProgramSays) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/docs/reference/cli.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == sluice("reference").out) << "run: sluice reference > docs/reference/cli.md";
}

TEST_F(CliErrorsTest, AClosedPipeIsQuiet) {
  std::string trace;
  for (int i = 0; i < 200000; ++i) trace += "167772161\t1\t1\t80\t6\n";
  write("long", trace);
  const Said said = shell("\"$SLUICE\" classify --quiet --rules rules --trace long | head -1");
  EXPECT_EQ(said.out, "1\n");
  EXPECT_EQ(said.err, "");
  write("print.click", "InfiniteSource(LIMIT 100000) -> ToIPSummaryDump(-);\n");
  ASSERT_EQ(sluice("gen traffic --packets 20000 --out in.pcap -q").code, 0);
  ASSERT_EQ(shell("mkfifo pipe").code, 0);
  // The reader has gone before the first byte: nobody is told, and the exit code says it.
  for (const char* words : {"--help",
                            "--version",
                            "run --help",
                            "elements",
                            "reference",
                            "doctor -q",
                            "gen rules -q",
                            "gen routes --ipv4 1000 -q",
                            "gen traffic --packets 20000 -q",
                            "run --in in.pcap -q",
                            "run --in in.pcap -o json -q",
                            "run --in in.pcap --out - -q",
                            "run --in in.pcap --out /dev/stdout -q",
                            "run --acl rules --in in.pcap --hits - -q",
                            "run print.click -q",
                            "classify --rules rules --in in.pcap -q",
                            "classify --rules rules --in in.pcap -o json -q",
                            "route --routes routes --in in.pcap -q",
                            "check --rules rules -q",
                            "tables rules -q",
                            "explain --packet 'ip 10.0.0.1 > 8.8.8.8' --acl rules -q"}) {
    const Said gone = shell("exec 3<>pipe 4>pipe 3>&-; \"$SLUICE\" " + std::string(words) + " >&4");
    EXPECT_EQ(gone.code, 3) << words;
    EXPECT_EQ(gone.err, "") << words;
  }
}

}  // namespace
}  // namespace sluice
