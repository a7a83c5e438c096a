// run --control, --wait, --repeat, --hits; show, acl and routes against a process that runs.
#include <unistd.h>

#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::CliTest;
using testing::Said;

class CliLiveTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("edge.acl", "deny udp from any to any port 53\npermit tcp from any to any\npermit ip from any to any\n");
    write("rib", "8.0.0.0/8 a\n9.0.0.0/8 b\n");
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    for (uint16_t i = 0; i < 100; ++i) {
      for (const PacketBuilder& packet :
           {tcp4("10.0.0.1", "8.1.1.1").ports(i, 80).payload(20), udp4("10.0.0.1", "8.1.1.1").ports(i, 53).payload(30),
            udp4("10.0.0.1", "7.1.1.1").ports(i, 54).payload(40)}) {
        const auto f = packet.build();
        const auto bytes = static_cast<uint32_t>(f.size());
        ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, ++stamp_}, f.data()));
      }
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  // Runs `run OPTIONS --control s` beside the script, which is ended by SIGTERM when the script is through. The run's
  // output goes to run.out, run.err and run.code.
  Said beside(const std::string& options, const std::string& script) const {
    return shell(
        "export SLUICE_SOCKET=$PWD/s\n\"$SLUICE\" run " + options +
        " --control s > run.out 2> run.err & run=$!\n"
        "for i in $(seq 600); do test -S s && \"$SLUICE\" show runtime > /dev/null 2>&1 && break; sleep 0.05; done\n" +
        script + "\nkill -TERM $run; wait $run; echo $? > run.code");
  }
  Json json_of(const std::string& name) const { return Json::parse(read(name), nullptr, false); }

  uint64_t stamp_ = 1'700'000'000'000'000'000;
  const std::string standard_ = "--acl edge.acl --routes rib --in in.pcap";
};

TEST_F(CliLiveTest, HitsAreWrittenAtTheEnd) {
  const Said said = sluice("run " + standard_ + " --hits hits.txt");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(read("hits.txt"),
            "# packets bytes table:rule place rule\n"
            "100 7200 acl:1 edge.acl:1 deny udp from any to any port 53\n"
            "100 7400 acl:2 edge.acl:2 permit tcp from any to any\n"
            "100 8200 acl:3 edge.acl:3 permit from any to any\n"
            "0 0 acl:0 - (no rule matched)\n"
            "0 0 acl:- - (rules that are gone)\n");
  for (const char* way : {"--device cpu", "--device emu --watchdog 20000", "--workers 2"}) {
    const Said json = sluice("run " + standard_ + " --hits hits.json -o json " + way);
    EXPECT_EQ(json.code, 0) << json.err;
    const Json rules = json_of("hits.json")["hits"][0]["rules"];
    ASSERT_EQ(rules.size(), 3u) << way;
    for (const Json& rule : rules) EXPECT_EQ(rule["packets"], 100) << way;
    EXPECT_EQ(rules[2]["bytes"], 8200) << way;
  }
  EXPECT_EQ(files(), (std::vector<std::string>{"edge.acl", "hits.json", "hits.txt", "in.pcap", "rib"}));
}

// The bytes of each DSCP are those that the frames were built with, whichever way packets go.
TEST_F(CliLiveTest, BytesAreCountedByDscp) {
  auto writer = CaptureWriter::create(path("dscp.pcap"));
  ASSERT_TRUE(writer.ok());
  Json expected = Json::object();
  const auto add = [&](std::vector<uint8_t> frame, const std::string& dscp) {
    const auto bytes = static_cast<uint32_t>(frame.size());
    ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, ++stamp_}, frame.data()));
    expected[dscp] = expected.value(dscp, uint64_t{0}) + bytes;
  };
  for (uint16_t i = 0; i < 700; ++i) {
    const auto dscp = static_cast<uint8_t>(i * 5 % 64);
    PacketBuilder packet = i % 2 == 0 ? udp4("10.0.0.1", "8.1.1.1") : udp6("2001:db8::1", "2001:db8::2");
    packet.ports(i, 80).payload(i % 90u).dscp(dscp);
    for (uint16_t tag = 0; tag < i % 3; ++tag) packet.vlan(tag + 1u);
    std::vector<uint8_t> frame = packet.build();
    const bool cut = i % 50 == 0;  // behind the first byte of the network header
    if (cut) frame.resize(15u + 4u * (i % 3));
    add(std::move(frame), cut ? "none" : std::to_string(dscp));
  }
  std::vector<uint8_t> arp(60);
  arp[12] = 8, arp[13] = 6;
  add(std::move(arp), "none");
  ASSERT_TRUE(writer->commit().ok());
  for (const char* way : {"", "--workers 3", "--batch 7", "--device emu --watchdog 20000",
                          "--device emu --watchdog 20000 --records frame", "--packet-scheduler", "--priorities",
                          "--repeat --limit 701", "--repeat --limit 701 --device emu --watchdog 20000"}) {
    const Said said = sluice("run --routes rib --in dscp.pcap --dscp -o json " + std::string(way));
    ASSERT_EQ(said.code, 0) << way << said.err;
    const Json counted = Json::parse(said.out, nullptr, false)["dscp_bytes"];
    EXPECT_EQ(counted, expected) << way;
  }
  EXPECT_EQ(sluice("run --routes rib --in dscp.pcap -o json").out.find("dscp_bytes"), std::string::npos);
}

TEST_F(CliLiveTest, AnAnswerSaysTheBytesOfEachDscp) {
  const Said said =
      beside(standard_ + " --wait --dscp",
             R"(for i in $(seq 600); do "$SLUICE" show runtime | grep -q 'in 300 ' && break; sleep 0.05; done
"$SLUICE" show runtime --dscp)");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("22,800"), std::string::npos) << said.out;
  const Said without = beside(standard_ + " --wait", "\"$SLUICE\" show runtime --dscp");
  EXPECT_NE(without.err.find("start the run with --dscp"), std::string::npos) << without.err;
}

TEST_F(CliLiveTest, ARunningProcessIsAskedAndChanged) {
  write("today.txt", "# more\nadd at 1 deny tcp from 10.0.0.1 to any\ndelete 2\n");
  write("other.acl", "permit udp from any to any port 53\n");
  write("routes.txt", "add 7.0.0.0/8 c\ndelete 9.0.0.0/8\n");
  const Said said = beside(standard_ + " --wait -o json",
                           R"(s="$SLUICE"
for i in $(seq 600); do "$s" show runtime -o json > runtime.json; grep -q '"packets_in": 300' runtime.json && break; sleep 0.05; done
"$s" show runtime > runtime.txt
"$s" show rules --hits -o json > rules.json
"$s" show rules --by-hits --count 1 > by.txt
"$s" show drops -o json > drops.json
"$s" show tables -o json > tables.json
"$s" show routes 8.8.8.8 -o json > route.json
"$s" acl add acl permit icmp from any to any --at 1 > add.txt; echo $? >> codes
"$s" acl delete acl permit icmp from any to any -o json > delete.json; echo $? >> codes
"$s" acl apply acl --changes today.txt --dry-run > dry.txt; echo $? >> codes
"$s" acl apply acl --changes today.txt > apply.txt; echo $? >> codes
"$s" acl delete acl 99 2> wrong.txt; echo $? >> codes
"$s" acl add acll permit ip from any to any 2> table.txt; echo $? >> codes
"$s" show rules --hits -o json > after.json
"$s" acl replace acl other.acl > replace.txt; echo $? >> codes
"$s" routes add fib 8.8.0.0/16 via d > radd.txt; echo $? >> codes
"$s" routes apply fib --changes - < routes.txt > rapply.txt; echo $? >> codes
"$s" routes delete fib 1.2.3.4 2> rwrong.txt; echo $? >> codes
"$s" show routes 8.8.8.8 > chain.txt
"$s" run --in in.pcap --control s 2> taken.txt; echo $? >> codes)");
  EXPECT_EQ(read("codes"), "0\n0\n0\n0\n1\n1\n0\n0\n0\n1\n3\n") << said.err;
  EXPECT_EQ(read("run.code"), "0\n") << read("run.err");
  EXPECT_FALSE(exists("s"));
  EXPECT_EQ(json_of("run.out")["packets_in"], 300);
  const Json runtime = json_of("runtime.json");
  EXPECT_EQ(runtime["packets_in"], 300);
  EXPECT_EQ(runtime["packets_out"], 100);
  EXPECT_EQ(runtime["dropped"], 200);
  EXPECT_NE(read("runtime.txt").find("IPInput"), std::string::npos);
  const Json rules = json_of("rules.json");
  ASSERT_EQ(rules["rules"].size(), 3u);
  EXPECT_EQ(rules["rules"][0]["packets"], 100);
  EXPECT_EQ(rules["rules"][0]["bytes"], 7200);
  EXPECT_EQ(rules["rules"][0]["file"], "edge.acl");
  EXPECT_NE(read("by.txt").find("1 to 1 of 3; continue with --from 2"), std::string::npos) << read("by.txt");
  EXPECT_EQ(json_of("drops.json")["drops"].size(), 2u);
  EXPECT_EQ(json_of("tables.json")["tables"].size(), 3u);
  EXPECT_EQ(json_of("route.json")["routes"][0]["next_hop"], "a");
  EXPECT_EQ(read("add.txt").rfind("generation 2 live on cpu after ", 0), 0u) << read("add.txt");
  EXPECT_EQ(json_of("delete.json")["generation"], 3);
  EXPECT_EQ(read("dry.txt").rfind("nothing was changed", 0), 0u) << read("dry.txt");
  EXPECT_EQ(read("apply.txt").rfind("generation 4 ", 0), 0u) << read("apply.txt");
  EXPECT_NE(read("wrong.txt").find("position 99 is past the end: the list has 3 rules"), std::string::npos);
  EXPECT_NE(read("table.txt").find("did you mean 'acl'?"), std::string::npos) << read("table.txt");
  // The counters stay with their rules; those of the rule that is gone are kept apart.
  const Json after = json_of("after.json");
  EXPECT_EQ(after["rules"][0]["packets"], 0);
  EXPECT_EQ(after["rules"][1]["text"], "permit tcp from any to any");
  EXPECT_EQ(after["rules"][1]["packets"], 100);
  EXPECT_EQ(after["removed"]["packets"], 100);
  EXPECT_NE(read("replace.txt").find("3 -> 1 rules"), std::string::npos) << read("replace.txt");
  EXPECT_NE(read("rapply.txt").find("3 -> 3 routes"), std::string::npos) << read("rapply.txt");
  EXPECT_NE(read("rwrong.txt").find("there is no route for 1.2.3.4/32"), std::string::npos) << read("rwrong.txt");
  const std::string chain = read("chain.txt");
  EXPECT_LT(chain.find("8.8.0.0/16"), chain.find("8.0.0.0/8")) << chain;
  EXPECT_NE(read("taken.txt").find("another process is listening there"), std::string::npos) << read("taken.txt");
}

// The client reads what its user named, where its user is, in any form; the running process gets what it holds.
TEST_F(CliLiveTest, TheClientReadsAndSends) {
  write("one.acl", "permit udp from any to any port 53\n");
  write("edit", "add at 1 deny icmp from any to any\n");
  write("bad.acl", "permit ip from any to any\npermitt ip from any to any\n");
  const std::string latin = "permit ip from any to any # \xe9t\xe9\n";
  write("latin.acl", latin);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "11." + std::to_string(i / 200) + "." + std::to_string(i % 200) + ".0/24 b\n";
  write("many", many);
  const Said said = beside(standard_ + " --wait",
                           R"sh(s="$SLUICE"
mkdir elsewhere && cd elsewhere && export SLUICE_SOCKET=$PWD/../s
mkdir sub && echo 'include "part.acl"' > sub/all.acl && echo 'permit tcp from any to any' > sub/part.acl
"$s" compile -q --acl ../one.acl --out one.img
gzip -k one.img; cp ../one.acl here.acl; xz -k here.acl; mkfifo fifo
try() { timeout 60 "$@" > said 2>> ../errors; echo "$? $(grep -o '[0-9,]* -> [0-9,]* [a-z ]*' said)" >> ../codes; }
try "$s" acl replace acl here.acl
try "$s" acl replace acl <(cat ../one.acl ../one.acl)
try "$s" acl replace acl - < ../one.acl
cat ../one.acl ../one.acl | try "$s" acl replace acl /dev/stdin
try "$s" acl replace acl here.acl.xz
try "$s" acl replace acl one.img
try "$s" acl replace acl <(cat one.img.gz)
try "$s" acl replace acl sub/all.acl
try "$s" acl replace acl ../latin.acl
(cat ../edge.acl > fifo) & try "$s" acl replace acl fifo; wait $!
cat ../edit | try "$s" acl apply acl -
try "$s" acl apply acl --changes <(gzip -c ../edit)
try "$s" routes replace fib ../many
try "$s" routes replace fib - < ../rib
gzip -c ../many | try "$s" routes replace fib ../rib,source=x,preference=3,-
try "$s" routes apply fib - <<< 'delete 8.0.0.0/8'
try "$s" acl replace acl ../bad.acl
try "$s" acl replace acl none.acl
try "$s" acl replace acl sub
try "$s" routes replace fib -,- < ../rib
cd ..)sh");
  EXPECT_EQ(read("codes"),
            "0 3 -> 1 rules\n0 1 -> 2 rules\n0 2 -> 1 rules\n0 1 -> 2 rules\n0 2 -> 1 rules\n0 1 -> 1 rules\n"
            "0 1 -> 1 rules\n0 1 -> 1 rules\n0 1 -> 1 rules\n0 1 -> 3 rules\n0 3 -> 4 rules\n0 4 -> 5 rules\n"
            "0 2 -> 5,000 routes\n0 5,000 -> 2 routes\n0 2 -> 5,002 routes\n0 5,002 -> 5,001 routes\n"
            "1 \n3 \n3 \n2 \n")
      << read("errors") << said.err;
  EXPECT_EQ(read("run.code"), "0\n") << read("run.err");
  const std::string errors = read("errors");
  EXPECT_NE(errors.find("../bad.acl:2:1: error: "), std::string::npos) << errors;
  EXPECT_NE(errors.find("none.acl: cannot open: No such file or directory"), std::string::npos) << errors;
  EXPECT_NE(errors.find("sub: cannot read: it is a directory"), std::string::npos) << errors;
  EXPECT_EQ(errors.find(path("")), std::string::npos) << "names are the user's own: " << errors;
}

TEST_F(CliLiveTest, ARepeatedCaptureGoesOnUntilASignal) {
  const Said said =
      beside(standard_ + " --repeat -o json --workers 2",
             "for i in $(seq 600); do \"$SLUICE\" show runtime -o json > r; grep -q '\"packets_in\": 300,' r || "
             "grep -q '\"packets_in\": 0,' r || break; sleep 0.05; done\n\"$SLUICE\" acl delete acl 1 > d");
  const Json run = json_of("run.out");
  EXPECT_EQ(read("run.code"), "0\n") << read("run.err") << said.err;
  EXPECT_GT(run["packets_in"], 300);
  EXPECT_EQ(run["conserved"], true);
  EXPECT_NE(read("d").find("generation 2"), std::string::npos) << read("d");
  const Said some = sluice("run " + standard_ + " --repeat --limit 1000 -o json");
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_EQ(some.json()["packets_in"], 1000);
}

TEST_F(CliLiveTest, ALimitOfMemoryRefusesChanges) {
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "permit tcp from 10.0.0.0/8 to any port " + std::to_string(i) + "\n";
  write("many.acl", many);
  const Said said = beside("--acl edge.acl --in in.pcap --wait --max-memory 256KiB",
                           "\"$SLUICE\" acl replace acl many.acl 2> many.txt; echo $? > code\n"
                           "\"$SLUICE\" show rules -o json > rules.json");
  EXPECT_EQ(read("code"), "1\n") << said.err;
  EXPECT_NE(read("many.txt").find("more than the limit of 256.0 KiB"), std::string::npos) << read("many.txt");
  EXPECT_EQ(json_of("rules.json")["total"], 3);
}

TEST_F(CliLiveTest, WrongUse) {
  const auto says = [&](const std::string& arguments, int code, const std::string& text) {
    const Said said = shell("unset SLUICE_SOCKET XDG_RUNTIME_DIR; \"$SLUICE\" " + arguments);
    EXPECT_EQ(said.code, code) << arguments << said.err;
    EXPECT_NE(said.err.find(text), std::string::npos) << arguments << "\n" << said.err;
  };
  says("show runtime --socket none", 3, "no process is listening there");
  says("show rules --count 0", 2, "--count");
  says("acl", 2, "needs a command");
  says("acl add", 2, "TABLE is missing");
  says("acl replace acl none --socket s", 3, "none");
  says("run --in in.pcap --max-memory 1MiB", 2, "--max-memory needs --control");
  says("run --in in.pcap --control in.pcap", 3, "not a socket");
  says("run --in in.pcap --control no/such/folder/s", 3, "cannot be created");
  write("g.click", "InfiniteSource(LIMIT 1) -> Discard;");
  says("run g.click --repeat", 2, "--repeat is for the standard graph");
}

// Without an option: every command finds the process, by both spellings of the option, too.
TEST_F(CliLiveTest, APacketIsExplainedByTheProcessThatRuns) {
  write("adj", "a 02:00:00:00:00:01 02:00:00:00:00:02 3\nb 02:00:00:00:00:03 02:00:00:00:00:04 4\n");
  const Said said = shell(R"(unset SLUICE_SOCKET; export XDG_RUNTIME_DIR=$PWD; s="$SLUICE"
"$s" run --acl edge.acl --routes rib --adjacencies adj --in in.pcap --out 3=three.pcap --out rest.pcap --wait --control auto > run.out 2> run.err & run=$!
for i in $(seq 600); do "$s" show runtime > /dev/null 2>&1 && break; sleep 0.05; done
ls sluice > sockets
"$s" why 'udp 10.0.0.1 > 8.1.1.1:53' > denied; echo $? >> codes
"$s" why 'udp 10.0.0.1:7 > 8.1.1.1:54' --control sluice/control > passed; echo $? >> codes
"$s" why udp 10.0.0.1:7 '>' 8.1.1.1:54 --socket sluice/control --in in.pcap -o json > passed.json; echo $? >> codes
"$s" why 'udp 10.0.0.1:7 > 7.1.1.1:54' > unrouted; echo $? >> codes
"$s" why 'udp 10.0.0.1:7 > 7.1.1.1:54' --in eth7 2> input; echo $? >> codes
"$s" why 'udp 10.0.0.1:7' 2> wrong; echo $? >> codes
"$s" show routes > routes; "$s" show routes --prefix 8.0.0.0/7 --count 1 > within; "$s" show routes --next-hop b -o json > by.json
"$s" show routes 8.1.1.1 > one; "$s" show neighbours 2> neighbours; echo $? >> codes
"$s" show drops -o json > drops.json
kill -TERM $run; wait $run; echo $? > run.code)");
  EXPECT_EQ(read("codes"), "0\n0\n0\n0\n1\n1\n1\n") << said.err << read("input") << read("wrong");
  EXPECT_EQ(read("run.code"), "0\n") << read("run.err");
  EXPECT_EQ(read("sockets"), "control\n");
  EXPECT_FALSE(exists("sluice/control"));
  const std::string denied = read("denied");
  EXPECT_NE(denied.find("\nverdict    dropped: acl-deny at "), std::string::npos) << denied;
  EXPECT_NE(denied.find("\nrule       edge.acl:1: deny udp from any to any port 53 (rule 1)\n"), std::string::npos)
      << denied;
  EXPECT_EQ(denied.find("route"), std::string::npos) << denied;
  const std::string passed = read("passed");
  EXPECT_NE(passed.find("\nrule       edge.acl:3: permit from any to any (rule 3)\n"), std::string::npos) << passed;
  EXPECT_NE(
      passed.find("\nnear miss  edge.acl:2: permit tcp from any to any (rule 2)\n           because udp is not tcp\n"),
      std::string::npos)
      << passed;
  EXPECT_NE(passed.find("because destination port 54 is not 53\n"), std::string::npos) << passed;
  EXPECT_NE(passed.find("\nroute      8.0.0.0/8 -> a, source static, preference 1, metric 0 (the only one)\n"),
            std::string::npos)
      << passed;
  EXPECT_NE(passed.find("\nneighbour  02:00:00:00:00:01, from 02:00:00:00:00:02\n"), std::string::npos) << passed;
  EXPECT_NE(passed.find("\noutput     three.pcap, port 3\n"), std::string::npos) << passed;
  const Json json = json_of("passed.json");
  EXPECT_EQ(json["verdict"]["forwarded"], true);
  EXPECT_EQ(json["verdict"]["output"], "three.pcap");
  EXPECT_EQ(json["rule"]["file"], "edge.acl");
  EXPECT_EQ(json["route"]["candidates"][0]["source"], "static");
  EXPECT_NE(read("unrouted").find("dropped: no-route"), std::string::npos) << read("unrouted");
  EXPECT_NE(read("input").find("'eth7' is not an input of this process\n  help: inputs: in.pcap"), std::string::npos)
      << read("input");
  EXPECT_NE(read("wrong").find("a whole one: 'tcp 10.0.0.1:1234 > 8.8.8.8:80 flags S'"), std::string::npos)
      << read("wrong");
  EXPECT_EQ(read("routes"), "prefix     next hop  source\n8.0.0.0/8  a         static\n9.0.0.0/8  b         static\n");
  EXPECT_NE(read("within").find("8.0.0.0/8"), std::string::npos) << read("within");
  EXPECT_NE(read("within").find("1 to 1 of 2; continue with --from 2"), std::string::npos) << read("within");
  EXPECT_EQ(json_of("by.json")["routes"].size(), 1u);
  EXPECT_EQ(json_of("by.json")["routes"][0]["prefix"], "9.0.0.0/8");
  EXPECT_EQ(read("one").rfind("8.0.0.0/8 -> a\n", 0), 0u) << read("one");
  EXPECT_NE(read("neighbours").find("sluice show adjacencies"), std::string::npos) << read("neighbours");
  // Nothing that was asked is counted.
  EXPECT_EQ(json_of("drops.json")["packets_in"], 300);
}

TEST_F(CliLiveTest, AGraphWithQueuesIsAskedAndReplaced) {
  write("a.click", "RatedSource(RATE 1000) -> c :: Counter -> q :: Queue(100000) -> Idle;\n");
  write("b.click",
        "RatedSource(RATE 1000) -> c :: Counter -> q :: Queue(100000) -> u :: Unqueue -> d :: Counter -> Discard;\n");
  write("bad.click", "RatedSource(RATE 1000) -> Nobody;\n");
  const Said said = beside("a.click --wait -o json",
                           R"sh(s="$SLUICE"
for i in $(seq 600); do test "$("$s" graph read q.length)" -gt 0 && break; sleep 0.05; done
"$s" graph swap bad.click 2> bad.txt; echo $? >> codes
"$s" graph swap b.click --dry-run > dry.txt; echo $? >> codes
"$s" graph read u.count 2> none.txt; echo $? >> codes
"$s" graph swap b.click -o json > swap.json; echo $? >> codes
for i in $(seq 600); do test "$("$s" graph read q.length)" = 0 && break; sleep 0.05; done
"$s" graph write q.capacity 7; echo $? >> codes
"$s" graph read q.capacity > capacity.txt
"$s" graph show > graph.txt
"$s" show runtime > runtime.txt; echo $? >> codes
"$s" show tables > tables.txt; echo $? >> codes
"$s" acl add acl "permit ip from any to any" 2> change.txt; echo $? >> codes
mkdir sub; echo 'elementclass Held { input -> Queue(9) -> output }' > sub/held.click; cd sub
echo 'require(library held); RatedSource(RATE 10) -> Held -> Discard;' > own.click
for file in own.click - <(xz -c own.click); do
  "$s" graph swap $file --socket ../s < own.click > ../swap.txt 2>&1; echo $? >> ../codes
done; cd ..)sh");
  EXPECT_EQ(read("codes"), "1\n0\n1\n0\n0\n0\n0\n1\n0\n0\n1\n") << said.err << read("swap.txt");
  EXPECT_EQ(read("run.code"), "0\n") << read("run.err");
  EXPECT_NE(read("bad.txt").find("bad.click:1:27: error: element 'Nobody' is not declared\n"), std::string::npos)
      << read("bad.txt");
  EXPECT_NE(read("dry.txt").find("b.click: 6 elements, no errors"), std::string::npos) << read("dry.txt");
  EXPECT_NE(read("none.txt").find("there is no element 'u'"), std::string::npos) << read("none.txt");
  EXPECT_EQ(json_of("swap.json")["elements"], 6);
  EXPECT_EQ(read("capacity.txt"), "7\n");
  EXPECT_NE(read("graph.txt").find("    -> u\n"), std::string::npos) << read("graph.txt");
  EXPECT_NE(read("runtime.txt").find("b.click by the packet scheduler, graph 2 of this run"), std::string::npos)
      << read("runtime.txt");
  EXPECT_NE(read("change.txt").find("change with the graph"), std::string::npos) << read("change.txt");
  const Json report = json_of("run.out");
  EXPECT_GT(report["packets_in"], 0);
  EXPECT_EQ(report["elements"].size(), 3u);
  // A library stands beside the file that asks for it: beside /dev/fd/63 there is none.
  EXPECT_NE(read("swap.txt").find("/dev/fd/held"), std::string::npos) << read("swap.txt");
}

// A graph without queues is replaced where it runs, one packet at a time as in batches.
TEST_F(CliLiveTest, AnyGraphIsReplacedWhereThePacketSchedulerRunsIt) {
  write("a.click", "FromDump(in.pcap) -> IPInput -> c :: Counter -> Discard;\n");
  write("b.click", "Idle -> CheckIPHeader -> c :: Counter -> DecIPTTL -> Discard;\n");
  const std::string script = R"sh(s="$SLUICE"
for i in $(seq 600); do test "$("$s" graph read c.count)" = 300 && break; sleep 0.05; done
"$s" graph swap b.click > swap.txt 2>&1; echo $? > codes
"$s" graph read c.count > count.txt)sh";
  beside("a.click --packet-scheduler --wait -o json", script);
  EXPECT_EQ(read("codes"), "0\n") << read("swap.txt");
  EXPECT_EQ(read("count.txt"), "300\n");
  EXPECT_EQ(read("run.code"), "0\n") << read("run.err");
  const Json report = json_of("run.out");
  EXPECT_EQ(report["packets_in"], 300);
  EXPECT_EQ(report["elements"].size(), 5u);
  EXPECT_NE(sluice("run a.click --packet-scheduler --print-plan").out.find("--packet-scheduler is given"),
            std::string::npos);
  const Said device = sluice("run a.click --packet-scheduler --device emu");
  EXPECT_EQ(device.code, 2);
  EXPECT_NE(device.err.find("queues, timers and scripts run on the CPU"), std::string::npos) << device.err;

  // In batches, with traffic that does not end.
  write("a.click", "in :: FromMemory(in.pcap, LIMIT 1000000000000) -> c :: IPInput -> Discard;\n");
  write("b.click",
        "AclTable(edge, FILE edge.acl);\n"
        "in :: FromMemory(in.pcap, LIMIT 1000000000000) -> c :: IPInput -> a :: ACL(TABLE edge) -> Discard;\n");
  write("q.click", "in :: FromMemory(in.pcap, LIMIT 1000000000000) -> Queue -> Unqueue -> Discard;\n");
  beside("a.click --workers 2 -o json", R"sh(s="$SLUICE"
"$s" graph swap q.click > q.txt 2>&1; echo $? > codes
"$s" graph swap b.click > swap.txt 2>&1; echo $? >> codes
for i in $(seq 600); do "$s" show rules --hits -o json | grep -q '"packets": [1-9]' && break; sleep 0.05; done
"$s" show rules --hits -o json > rules.json; echo $? >> codes
"$s" show runtime > runtime.txt; echo $? >> codes)sh");
  EXPECT_EQ(read("codes"), "1\n0\n0\n0\n") << read("swap.txt");
  EXPECT_NE(read("q.txt").find("with --packet-scheduler"), std::string::npos) << read("q.txt");
  EXPECT_GT(json_of("rules.json")["rules"][0]["packets"], 0);
  EXPECT_NE(read("runtime.txt").find("b.click on "), std::string::npos) << read("runtime.txt");
  EXPECT_EQ(json_of("run.out")["elements"].size(), 4u);  // tables are none
  EXPECT_EQ(json_of("run.out")["conserved"], true);
}

// What answers at a socket may be anything: a client says so and ends, with none of it on the terminal as it came.
TEST_F(CliLiveTest, AnAnswerThatIsNoneEndsTheClient) {
  write("server.py", R"(
import json, os, socket, sys
answers = [b'hello', b'[]', b'{}', b'null', b'{"v":1,"ok":true}', b'{"v":1,"ok":true,"result":[]}',
           b'{"v":1,"ok":true,"result":{}}', b'{"v":1,"ok":true,"result":{"rules":5,"total":"x"}}',
           b'{"v":1,"ok":true,"result":{"rules":[7],"total":1,"elements":[3],"entries":4,"routes":{"a":1},"ports":[[]]}}',
           b'{"v":1,"ok":false}', b'{"v":1,"ok":false,"error":{}}', b'{"v":1,"ok":false,"error":{"message":5}}',
           b'{"v":1,"ok":"yes","result":5}', b'[' * 2000000,
           b'{"v":1,"ok":false,"error":{"message":"\\u001b[31mX","hint":"\\u009b","diagnostics":[{"file":"\\u001b]0;"}]}}']
listener = socket.socket(socket.AF_UNIX)
listener.bind('fake')
listener.listen(5)
for answer in answers:
  for command in range(int(sys.argv[1])):
    client, _ = listener.accept()
    client.recv(65536)
    try: client.sendall(answer + b'\n')
    except OSError: pass
    client.close()
)");
  const Said said = shell(R"sh(
set -- "show runtime" "show drops" "show tables" "show qos" "show rules --hits" "show routes 1.1.1.1" "acl delete acl 1" \
  "qos set voice rate 5Mbps" "graph show" "graph read a.b"
python3 server.py $# 2> server.err & server=$!
for i in $(seq 200); do test -S fake && break; sleep 0.05; done
for i in $(seq 15); do
  for command; do
    "$SLUICE" $command --socket fake > out 2> err
    code=$?
    test $code = 1 -o $code = 3 || echo "answer $i, $command: $code"
    grep -q . err || echo "answer $i, $command: no error"
    LC_ALL=C grep -q "$(printf '[\033\233]')" out err && echo "answer $i, $command: an escape"
  done
done
wait $server
)sh");
  EXPECT_EQ(said.out, "") << said.err << read("server.err");
}

// A change that takes long gives way: SIGTERM ends the run at once, with what it has counted.
// A pipe whose writer does not come keeps other changes waiting for a while, and not for ever; whoever waits for the
// reload may give it up before.
TEST_F(CliLiveTest, AReloadFromAPipeWithoutAWriterLetsOthersGoOn) {
  write("c.toml",
        "[tables]\nacl = \"pipe\"\nroutes = [\"rib\"]\n[ports]\nin = [\"in.pcap\"]\n[process]\nwait = true\n");
  const Said said =
      shell(R"(export SLUICE_SOCKET=$PWD/s; s="$SLUICE"; mkfifo pipe; timeout 100 bash -c 'cat edge.acl > pipe' &
"$s" run --config c.toml --control s > run.out 2> run.err & run=$!
for i in $(seq 600); do test -S s && "$s" show runtime > /dev/null 2>&1 && break; sleep 0.05; done
timeout -s KILL 1 "$s" reload
"$s" routes add fib 7.0.0.0/8 via c > given.txt 2>&1; echo $? >> codes
"$s" reload > reload.txt 2>&1 & reload=$!
sleep 0.5; "$s" routes add fib 6.0.0.0/8 via c > waited.txt 2>&1; echo $? >> codes
wait $reload; echo $? >> codes
kill -HUP $run; sleep 0.3; "$s" routes add fib 5.0.0.0/8 via c > hup.txt 2>&1; echo $? >> codes
"$s" show routes 5.1.1.1 > routes.txt; "$s" show rules -o json > rules.json
timeout 100 bash -c "sleep 1; echo 'permit ip from any to any' > pipe" & "$s" reload > again.txt 2>&1; echo $? >> codes
kill -TERM $run; wait $run; echo $? >> codes)");
  EXPECT_EQ(read("codes"), "0\n0\n1\n0\n0\n0\n")
      << said.err << read("run.err") << read("reload.txt") << read("again.txt");
  EXPECT_NE(read("reload.txt").find("nothing more came within 10 s, and others wait meanwhile"), std::string::npos)
      << read("reload.txt");
  EXPECT_NE(read("run.err").find("SIGHUP: nothing was changed"), std::string::npos) << read("run.err");
  EXPECT_EQ(json_of("rules.json")["rules"].size(), 3u);
}

TEST_F(CliLiveTest, ARunEndsInTheMiddleOfALongChange) {
#if defined(SLUICE_SANITIZED)
  const char* const ports = "ports = 3\n";  // takes as long as so many do without
#else
  const char* const ports = "ports = 15\n";
#endif
  write("change.py", ports + std::string(R"(
import json, socket
groups = ''.join('define %s = %s\n' % (n, ','.join('%d.0.%d.%d' % (b, i >> 8, i & 255) for i in range(256))) for n, b in (('a', 10), ('b', 11)))
text = groups + ''.join('add permit tcp from a to b port %d\n' % p for p in range(ports))
s = socket.socket(socket.AF_UNIX)
s.connect('s')
s.sendall(json.dumps({'v': 1, 'command': 'acl change', 'table': 'acl', 'name': 'x', 'changes': text}).encode() + b'\n')
open('sent', 'w').close()
open('answer', 'wb').write(s.recv(65536))
)"));
  const Said said = beside(standard_ + " --wait --hits hits.txt",
                           "python3 change.py & change=$!\n"
                           "for i in $(seq 600); do test -e sent && break; sleep 0.05; done\n"
                           "sleep 0.3; kill -TERM $run; wait $run; wait $change");
  EXPECT_EQ(said.code, 0) << said.err;
  // It was made or it was not, and is answered either way.
  const Json answer = json_of("answer");
  ASSERT_TRUE(answer.is_object()) << read("answer");
  if (!answer["ok"].get<bool>()) {
    EXPECT_EQ(answer["error"]["message"], "interrupted");
  }
  EXPECT_NE(read("hits.txt").find("100 7200 acl:1 edge.acl:1 deny udp"), std::string::npos) << read("run.err");
}

// Half a save is none: whichever of the files is mounted into the process's container, and how.
TEST_F(CliLiveTest, SaveWritesAllFilesOrNoneAlsoWhereTheyAreMounts) {
  if (::geteuid() != 0 || shell("unshare -m true").code != 0) GTEST_SKIP() << "no mount namespaces here";
  const std::vector<std::pair<std::string, std::string>> tables = {
      {"own.acl", "permit ip from any to any\n"},
      {"own.rib", "0.0.0.0/0 a\n"},
      {"own.qos", "class v dscp ef rate 20Mbps burst 3000\nclass r dscp others\n"}};
  for (unsigned mounted = 0; mounted < 8; ++mounted) {
    for (const bool read_only : {false, true}) {
      if (read_only && mounted != 2 && mounted != 4) continue;
      std::string mounts = "mount --make-rprivate /";
      for (size_t i = 0; i < 3; ++i) {
        write(tables[i].first, tables[i].second);
        write("from" + std::to_string(i), tables[i].second);
        if ((mounted >> i & 1) == 0) continue;
        mounts += " && mount --bind from" + std::to_string(i) + " " + tables[i].first;
        if (read_only) mounts += " && mount -o remount,bind,ro " + tables[i].first;
      }
      write("script", mounts + R"(
export SLUICE_SOCKET=$PWD/s; s="$SLUICE"
"$s" run -q --acl own.acl --routes own.rib --qos own.qos --in in.pcap --wait --control s > /dev/null 2> run.err & run=$!
for i in $(seq 600); do test -S s && "$s" show runtime > /dev/null 2>&1 && break; sleep 0.05; done
"$s" acl add acl deny udp from any to any --at 1 > /dev/null; "$s" routes add fib 7.0.0.0/8 via b > /dev/null; "$s" qos set v rate 30Mbps > /dev/null
"$s" save > save.txt 2>&1; echo $? > code
for f in own.*; do cp $f seen.$f; done
kill -TERM $run; wait $run; rm -f s)");
      (void)shell("unshare -m bash script");
      EXPECT_EQ(read("code"), read_only ? "3\n" : "0\n") << mounted << read("save.txt");
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(read("seen." + tables[i].first) == tables[i].second, read_only) << mounted << read("save.txt");
        const bool in_place = read("save.txt").find(tables[i].first + ": ") != std::string::npos &&
                              read("run.err").find(tables[i].first + " was written in place") != std::string::npos;
        EXPECT_EQ(in_place, !read_only && (mounted >> i & 1) != 0) << read("run.err");
      }
      for (const std::string& name : files()) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
    }
  }
}

TEST_F(CliLiveTest, AFileSizeLimitFailsTheSaveAndNotTheRun) {
  std::string rules;
  for (int i = 0; i < 2000; ++i) rules += "permit tcp from 10.1." + std::to_string(i % 250) + ".0/24 to any port 80\n";
  write("own.acl", rules);
  const Said said = shell(R"(export SLUICE_SOCKET=$PWD/s; s="$SLUICE"
{ (echo $BASHPID > pid; ulimit -f 8; exec "$s" run -q --acl own.acl --routes rib --in in.pcap --wait --control s --hits hits) 2>&1; echo $? > code; } | cat > run.err & run=$!
for i in $(seq 600); do test -S s && "$s" show runtime > /dev/null 2>&1 && break; sleep 0.05; done
"$s" acl add acl deny udp from any to any --at 1 > /dev/null; "$s" save > save.txt 2>&1; echo $? > saved
"$s" acl add acl deny udp from any to any --at 1 > /dev/null; echo $? >> saved
kill -TERM $(cat pid); wait $run)");
  EXPECT_EQ(read("saved"), "3\n0\n") << read("save.txt");
  EXPECT_NE(read("save.txt").find("own.acl"), std::string::npos) << read("save.txt");
  EXPECT_NE(read("save.txt").find("File too large"), std::string::npos) << read("save.txt");
  EXPECT_EQ(read("own.acl"), rules);
  EXPECT_EQ(read("code"), "3\n") << read("run.err");
  EXPECT_NE(read("run.err").find("hits: cannot write: File too large"), std::string::npos) << read("run.err");
  for (const std::string& name : files()) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
}

}  // namespace
}  // namespace sluice
