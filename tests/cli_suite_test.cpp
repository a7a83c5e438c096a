// What `sluice bench suite` is made of: its measurements check what they give, a check that fails leaves no figure, and
// what a machine lacks is a row that says so. host only
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "ports/testing/net_namespace.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::NetNamespace;
using testing::Said;

class CliSuiteTest : public testing::CliTest {
 protected:
  // A folder with sluice-bench, and programs in the place of those that google-benchmark makes.
  void copy_bench() { ASSERT_EQ(shell("mkdir b && cp \"$(dirname \"$SLUICE\")/sluice-bench\" b").code, 0); }
  void write_program(const std::string& name, const std::string& text) {
    write("b/" + name, "#!/bin/sh\n" + text);
    ASSERT_EQ(shell("chmod +x b/" + name).code, 0);
  }
  std::map<std::string, Json> rows(const std::string& folder) const {
    std::map<std::string, Json> all;
    const Json report = Json::parse(read(folder + "/report.json"));
    for (const Json& row : report["rows"]) {
      if (row["suite"] == "machine") continue;
      EXPECT_TRUE(all.emplace(row["suite"].get<std::string>() + "/" + row["case"].get<std::string>(), row).second)
          << row["case"];
    }
    return all;
  }
};

std::set<std::string> names_of(const Json& report) {
  std::set<std::string> names;
  for (const Json& row : report["results"]) EXPECT_TRUE(names.insert(row["case"]).second) << row["case"];
  return names;
}

TEST_F(CliSuiteTest, ForwardingABatchIsCheckedInEveryLayoutAndByEveryNumberOfWorkers) {
  const Said said =
      sluice("bench forward --packets 1,500 --algorithm linear,dir24 --workers 1,3 --layout headers,fields -q -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json report = said.json();
  const auto names = names_of(report);
  EXPECT_EQ(names.size(), 16u);
  for (const char* name : {"101_routes/linear/headers/x1/1", "101_routes/dir24/fields/x3/500"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(report["verified"]["sample"], 8 * 501);
  for (const Json& row : report["results"]) EXPECT_GT(row["min"], 0) << row;
  for (const char* layout : {"headers", "fields"}) {
    const Said spoiled = sluice(std::string("bench forward --packets 500 --spoil-check -o json --layout ") + layout);
    EXPECT_EQ(spoiled.code, 5);
    EXPECT_TRUE(spoiled.out.empty()) << spoiled.out;
  }
  write("six", "2001:db8::/32 a\n");
  const Said none = sluice("bench forward --routes six");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("there are no IPv4 routes"), std::string::npos) << none.err;
  EXPECT_EQ(sluice("bench forward --routes absent").code, 3);
  EXPECT_EQ(sluice("bench forward --algorithm none").code, 2);
}

TEST_F(CliSuiteTest, ForwardingABatchIsCheckedWithPayloadsTtlsAndMemoryOfItsOwn) {
  const std::string few = "bench forward --algorithm dir24 --packets 600 --workers 1,3 -q -o json ";
  const Said said = sluice(few +
                           "--layout headers,fields --payload 0,64,1480 --ttl uniform,fixed,expiring "
                           "--memory reused,fresh --in-a-row 3");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json report = said.json();
  const auto names = names_of(report);
  // Fields have no payload.
  EXPECT_EQ(names.size(), 3u * 2 * 2 * (3 + 1));
  for (const char* name :
       {"101_routes/dir24/headers/x1/600/3_reused", "101_routes/dir24/headers+1480B/ttl_expiring/x3/600/3_fresh",
        "101_routes/dir24/fields/ttl_fixed/x3/600/3_reused"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(report["verified"]["sample"], names.size() * 600);
  for (const char* more : {"--payload 64", "--ttl expiring", "--memory fresh", "--memory reused --layout fields"}) {
    const Said spoiled = sluice(few + "--spoil-check " + more);
    EXPECT_EQ(spoiled.code, 5) << more;
    EXPECT_TRUE(spoiled.out.empty()) << spoiled.out;
  }
  for (const char* wrong : {"--payload 9001", "--ttl low", "--memory old", "--in-a-row 0"})
    EXPECT_EQ(sluice(few + wrong).code, 2) << wrong;
  const Said large = sluice("bench forward --packets 100000000 --payload 9000");
  EXPECT_EQ(large.code, 2);
  EXPECT_NE(large.err.find("a batch has"), std::string::npos) << large.err;
}

TEST_F(CliSuiteTest, SeveralDevicesAreNotMeasuredWhereThereAreFewer) {
  const Said said = sluice("bench suite --quick --only ipv4-forwarding/cuda-devices-all -q -o r");
  ASSERT_EQ(said.code, 0) << said.err;
  for (const auto& [name, row] : rows("r")) {
    if (!row["value"].is_null()) GTEST_SKIP() << "two CUDA devices are here";
    EXPECT_EQ(row["reason"].get<std::string>().find("not measured here: it needs 2 CUDA devices, and there are "), 0u)
        << row;
  }
  EXPECT_EQ(rows("r").size(), 1u);
}

TEST_F(CliSuiteTest, EveryKindOfPacketHasARateBesideThatOfPlainIpv4) {
  const std::string few = "bench kinds --count 50 --ipv4 500 --ipv6 100 --packets 2000 --sample 2000 -q -o json ";
  const Said said = sluice(few);
  ASSERT_EQ(said.code, 0) << said.err;
  const Json report = said.json();
  std::map<std::string, Json> rows;
  for (const Json& row : report["results"]) rows[row["case"]] = row;
  EXPECT_EQ(rows.size(), 32u);
  EXPECT_EQ(report["verified"]["sample"], 17 * 2000);
  for (const char* kind : {"ipv6", "vlan", "qinq", "fragments", "options", "imix", "mixed"}) {
    ASSERT_TRUE(rows.contains(kind)) << kind;
    EXPECT_GE(rows[kind]["forwarded_part"], 0.9) << kind;
    const Json& ratio = rows[kind + std::string("/of_ipv4")];
    EXPECT_EQ(ratio["unit"], "1");
    for (size_t round = 0; round < 5; ++round) {
      EXPECT_DOUBLE_EQ(ratio["values"][round].get<double>(),
                       rows[kind]["values"][round].get<double>() / rows["ipv4"]["values"][round].get<double>());
    }
  }
  for (const auto& [share, passed] : {std::pair("drop/0", 1.0), std::pair("drop/10", 0.9),
                                      std::pair("drop/50/runs", 0.5), std::pair("drop/100", 0.0)}) {
    ASSERT_TRUE(rows.contains(share)) << share;
    EXPECT_NEAR(rows[share]["forwarded_part"].get<double>(), passed, 0.1) << share;
  }
  ASSERT_TRUE(rows.contains("drop/50/of_drop/0"));
  // The lowest ratio is the first row.
  double least = 0;
  for (const Json& row : report["results"]) {
    if (row["unit"] != "1") break;
    EXPECT_GE(row["median"].get<double>(), least);
    least = row["median"];
  }
  EXPECT_GT(least, 0);
  const Said spoiled = sluice(few + "--spoil-check");
  EXPECT_EQ(spoiled.code, 5);
  EXPECT_TRUE(spoiled.out.empty()) << spoiled.out;
}

TEST_F(CliSuiteTest, FunctionsHaveARateByRoutesAndAHighestRateWithoutLossOnEachWay) {
  const std::string few =
      "bench functions --device emu --sizes 64 --packets 1000 --sample 300 --seconds 0.01 -q -o json ";
  const Said tables = sluice(few +
                             "--function lookup --ipv4 10,300 --route-algorithm linear,dir24 "
                             "--ways cpu,launch/staged/full/2");
  ASSERT_EQ(tables.code, 0) << tables.err;
  std::map<std::string, Json> rows;
  const Json report = tables.json();
  for (const Json& row : report["results"]) rows[row["case"]] = row;
  EXPECT_EQ(rows.size(), 2u * 2 * 2 * 2);
  EXPECT_EQ(report["verified"]["sample"], 8 * 300);
  for (const char* name : {"lookup/64B/cpu/routes_10/linear/x1/256",
                           "lookup/64B/launch/staged/full/key/flights_2/routes_300/dir24/x1/256"}) {
    ASSERT_TRUE(rows.contains(name)) << name << tables.out;
    EXPECT_EQ(rows[name]["forwarded_part"], 1) << "every packet is to a prefix of the table";
    EXPECT_GT(rows[name]["mean_us"], 0);
    // With preamble and gap, 20 bytes.
    const Json& wire = rows[name + std::string("/wire")];
    EXPECT_EQ(wire["unit"], "Gbit/s");
    EXPECT_DOUBLE_EQ(wire["values"][0].get<double>(), rows[name]["values"][0].get<double>() * 88 * 8e-3);
  }

  const Said buffered = sluice(few +
                               "--function mirror --part no-loss,overload --buffers 16,64 --batch 32 "
                               "--ways cpu,launch/staged/full");
  ASSERT_EQ(buffered.code, 0) << buffered.err;
  rows.clear();
  const Json run = buffered.json();
  for (const Json& row : run["results"]) rows[row["case"]] = row;
  EXPECT_EQ(rows.size(), 2u * 2 * 4);
  for (const auto& [name, row] : rows) {
    EXPECT_GT(row["min"], 0) << name;
    EXPECT_LE(row["p50_us"], row["p99_us"]) << name;
    EXPECT_LE(row["p99_us"], row["p999_us"]) << name;
    if (name.ends_with("/blocking")) {
      EXPECT_EQ(row["dropped_part"], 0) << name;
    }
    if (name.ends_with("/latency")) {
      EXPECT_EQ(row["unit"], "us") << name;
    }
  }
  for (const char* name : {"mirror/64B/cpu/x1/32/buffers_64/no-loss", "mirror/64B/cpu/x1/32/buffers_16/dropping",
                           "mirror/64B/launch/staged/full/frame/x1/32/buffers_16/no-loss/latency"})
    EXPECT_TRUE(rows.contains(name)) << name << buffered.out;

  EXPECT_EQ(sluice(few + "--function mirror --part no-loss --ways cpu --spoil-check").code, 5);
  for (const char* way : {"launch/staged", "lunch/staged/full", "launch/pages/full", "launch/staged/half",
                          "launch/staged/full/17", "launch/staged/full/1/1", "cpu/staged/full", "''"})
    EXPECT_EQ(sluice(few + "--ways " + way).code, 2) << way;
  for (const char* wrong : {"--ipv4 9", "--route-algorithm none", "--part all", "--buffers 0", "--seconds 0"})
    EXPECT_EQ(sluice(few + wrong).code, 2) << wrong;
}

TEST_F(CliSuiteTest, TheTimeOfABatchOnTheCpuHasItsPercentiles) {
  const std::string few = "bench latency --device cpu --rules 1,16 --masks 3 --frame-repetitions 50 -q -o json ";
  const Said said = sluice(few);
  ASSERT_EQ(said.code, 0) << said.err;
  const Json report = said.json();
  const auto names = names_of(report);
  // Of one rule, the last one is the first.
  EXPECT_EQ(names.size(), 3u * (2 + 3 + 1));
  for (const char* name : {"1 rules, 1 mask, no match, linear", "16 rules, 1 mask, first, tuple_merge",
                           "16 rules, 1 mask, last, tuple_space", "1024 rules, 3 masks, all, tuple_merge"})
    EXPECT_TRUE(names.contains(name)) << name;
  for (const Json& row : report["results"]) {
    EXPECT_EQ(row["unit"], "us");
    EXPECT_LE(row["p50_us"], row["p99_us"]) << row;
    EXPECT_LE(row["p99_us"], row["p999_us"]) << row;
  }
  EXPECT_EQ(sluice(few + "--spoil-check").code, 5);
  const Said device = sluice(
      "bench latency --device emu --rules 1 --masks 1 --frame-repetitions 20 --repetitions 1 --spoil-check -o json");
  EXPECT_EQ(device.code, 5) << device.err;
  EXPECT_NE(device.err.find("differ from the reference"), std::string::npos) << device.err;
  EXPECT_EQ(sluice(few + "--workers 2").code, 2);
}

TEST_F(CliSuiteTest, TheTimeOfABatchIsMeasuredBySize) {
  for (const char* device : {"cpu", "emu"}) {
    const Said said = sluice(
        "bench latency --rules 1 --masks 1 --frame-repetitions 20 --repetitions 2 --algorithm tuple_space "
        "--frames 32,2048 -q -o json --device " +
        std::string(device));
    ASSERT_EQ(said.code, 0) << said.err;
    const Json report = said.json();
    EXPECT_EQ(report["frame"], Json({32, 2048}));
    std::map<std::string, Json> rows;
    for (const Json& row : report["results"]) rows[row["case"]] = row;
    EXPECT_EQ(rows.size(), 2u * 3) << "three kinds of matches";
    const Json &few = rows["1024 rules, 1 mask, all, tuple_space, 32 packets"],
               &many = rows["1024 rules, 1 mask, all, tuple_space, 2048 packets"];
    EXPECT_EQ(few["frame"], 32);
    EXPECT_EQ(many["frame"], 2048);
    EXPECT_EQ(few["values"].size(), 2u);
    if (std::string(device) == "cpu") {
      EXPECT_EQ(report["verified"]["sample"], 3 * 2 * 20 * (32 + 2048));
    }
  }
}

TEST_F(CliSuiteTest, RulesAreFoundByAsManyCoresAsTheRowSays) {
  const std::string few = "bench classify --count 50 --packets 2000 --algorithm tuple_merge -q -o json ";
  const Said said = sluice(few + "--workers 3");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json report = said.json();
  ASSERT_EQ(report["results"].size(), 1u);
  EXPECT_EQ(report["results"][0]["case"], "acl_50/tuple_merge/x3");
  EXPECT_EQ(report["clock"], "wall");
  EXPECT_GT(report["results"][0]["min"], 0);
  EXPECT_EQ(sluice(few + "--workers 3 --spoil-check").code, 5);
  // Routes are looked up on one core alone.
  EXPECT_EQ(sluice("bench route --ipv4 100 --ipv6 0 --packets 1000 --workers 3").code, 2);
}

// A device is not needed to see what becomes of its rows: what a case gave is kept as a file.
TEST_F(CliSuiteTest, RowsOfADeviceHaveTheirRatioToTheCpus) {
  const std::string suite = "bench suite --quick --passes 1 -q -o r --only frame-latency/cpu";
  ASSERT_EQ(sluice(suite).code, 0);
  using Ordered = nlohmann::ordered_json;  // the order of its members is part of what is kept
  Ordered kept = Ordered::parse(read("r/cases/frame-latency-cpu.1.json"));
  const Said list = sluice("bench suite --quick --list --only frame-latency/cuda-launch");
  const std::string line = list.lines().at(1);
  kept["command"] = line.substr(line.find("latency --device"));
  for (Ordered& row : kept["result"]["results"])
    for (Ordered& value : row["values"]) value = value.get<double>() / 4;
  write("r/cases/frame-latency-cuda-launch.1.json", kept.dump());
  const Said both = sluice(suite + ",frame-latency/cuda-launch");
  ASSERT_EQ(both.code, 0) << both.err;
  ASSERT_NE(both.out.find("(2 kept from before"), std::string::npos) << both.out << kept["command"];
  size_t ratios = 0;
  for (const auto& [name, row] : rows("r")) {
    if (name.starts_with("frame-latency/cpu/")) {
      EXPECT_FALSE(row.contains("of_cpu")) << name;
      EXPECT_NEAR(row["mpackets_per_second"].get<double>() * row["value"].get<double>(), 256, 1) << name;
      continue;
    }
    ASSERT_TRUE(row.contains("of_cpu")) << name << row;
    EXPECT_NEAR(row["of_cpu"].get<double>(), 4, 1e-6) << name;
    ++ratios;
  }
  EXPECT_GT(ratios, 10u);
}

// In place of the program that the plug-in's build folder has: what it prints is written down.
class CliSuiteVppTest : public CliSuiteTest {
 protected:
  void SetUp() override {
    CliSuiteTest::SetUp();
    ::unsetenv("SLUICE_VPP_PLUGIN");
    const std::string said = sluice("--version").out;
    revision_ = said.substr(said.find('(') + 1, said.find(')') - said.find('(') - 1);
    ASSERT_EQ(shell("mkdir -p vpp/vpp_plugins").code, 0);
    write("vpp/vpp_plugins/sluice_plugin.so", "");
  }
  void write_program(const std::string& text) {
    write("vpp/vpp_bench", "#!/bin/sh\n" + text);
    ASSERT_EQ(shell("chmod +x vpp/vpp_bench").code, 0);
  }
  Json printed(const std::string& revision) const {
    return {
        {"git", revision},
        {"seed", 1},
        {"input_hash", "sha256:0"},
        {"verified", {{"sample", 1000}, {"oracle", "linear"}, {"mismatches", 0}}},
        {"results",
         {{{"case", "1024 rules, 1 mask, last, acl-plugin"},
           {"unit", "us"},
           {"values", {50, 60, 70}},
           {"note", "VPP 25.10"},
           {"clocks_per_packet", 500}},
          {{"case", "1024 rules, 1 mask, last, sluice"},
           {"unit", "us"},
           {"values", {5, 6, 7}},
           {"mpackets_per_second", 256 / 6.0},
           {"clocks_per_packet", 50},
           {"acl_plugin_ratio", 10}},
          {{"case", "1024 rules, 21 masks, all, acl-plugin"}, {"reason", "the acl-plugin has not taken the list"}}}}};
  }
  Json reason(const std::string& folder) const { return rows(folder).at("frame-latency/vpp-rules")["reason"]; }

  std::string revision_;
  const std::string suite_ = "bench suite --quick --passes 1 -q --only frame-latency/vpp-rules ";
};

TEST_F(CliSuiteVppTest, RowsInVppHaveTheirRatioToTheAclPlugin) {
  write("printed", printed(revision_).dump());
  write_program("echo \"$*\" >> called; cat printed\n");
  const Said said = sluice(suite_ + "--vpp vpp -o r");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(read("called").ends_with("-q -o json\n")) << read("called");
  EXPECT_NE(read("called").find("--columns acl-plugin,cpu"), std::string::npos) << read("called");
  const auto all = rows("r");
  ASSERT_EQ(all.size(), 3u);
  const Json own = all.at("frame-latency/vpp/1024 rules, 1 mask, last, sluice");
  EXPECT_EQ(own["value"], 6);
  EXPECT_EQ(own["unit"], "us");
  EXPECT_EQ(own["n"], 3);
  EXPECT_EQ(own["min"], 5);
  EXPECT_EQ(own["max"], 7);
  EXPECT_EQ(own["checked"], true);
  EXPECT_EQ(own["acl_plugin_ratio"], 10);
  EXPECT_EQ(own["clocks_per_packet"], 50);
  EXPECT_TRUE(own["published"].is_null()) << "the study's 5.4 us are of a GPU, not of a node of VPP: " << own;
  EXPECT_TRUE(own["command"].get<std::string>().starts_with("vpp/vpp_bench --columns")) << own;
  EXPECT_EQ(own["machine"], Json::parse(read("r/report.json"))["machine"]);
  const Json peer = all.at("frame-latency/vpp/1024 rules, 1 mask, last, acl-plugin");
  EXPECT_EQ(peer["value"], 60);
  EXPECT_FALSE(peer.contains("acl_plugin_ratio"));
  const Json lacking = all.at("frame-latency/vpp/1024 rules, 21 masks, all, acl-plugin");
  EXPECT_TRUE(lacking["value"].is_null());
  EXPECT_EQ(lacking["reason"], "not measured here: the acl-plugin has not taken the list");
  const std::string html = read("r/report.html");
  for (const char* part : {"acl-plugin : this", "clocks/packet", "1024 rules, 1 mask, last, sluice"})
    EXPECT_NE(html.find(part), std::string::npos) << part;

  // Nothing is measured twice, unless the plug-in is another one. The environment names the same folder.
  const auto calls = [&] {
    const std::string called = read("called");
    return std::count(called.begin(), called.end(), '\n');
  };
  EXPECT_EQ(shell("SLUICE_VPP_PLUGIN=vpp \"$SLUICE\" " + suite_ + "-o r").code, 0);
  EXPECT_EQ(calls(), 1);
  write("vpp/vpp_plugins/sluice_plugin.so", "another");
  EXPECT_EQ(sluice(suite_ + "--vpp vpp -o r").code, 0);
  EXPECT_EQ(calls(), 2);
}

TEST_F(CliSuiteVppTest, WithoutVppARowSaysSo) {
  ASSERT_EQ(sluice(suite_ + "-o r").code, 0);
  EXPECT_EQ(reason("r"), "not measured here: --vpp or SLUICE_VPP_PLUGIN names no build folder of the VPP plug-in");
  ASSERT_EQ(shell("SLUICE_VPP_PLUGIN=vpp \"$SLUICE\" " + suite_ + "-o r").code, 0);
  EXPECT_EQ(reason("r"), "not measured here: vpp is no build folder of the VPP plug-in: it has no vpp_bench");
  const Said wrong = sluice(suite_ + "--vpp vpp -o r");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("--vpp: vpp is no build folder"), std::string::npos) << wrong.err;
  // It names what it lacks.
  write_program("echo '{\"error\": {\"message\": \"this VPP does not load the plug-in\"}}' >&2; exit 4\n");
  ASSERT_EQ(sluice(suite_ + "--vpp vpp -o r").code, 0);
  EXPECT_EQ(reason("r"), "not measured here: this VPP does not load the plug-in");
}

TEST_F(CliSuiteVppTest, GivesNoFigureForRefusedAndMissingRows) {
  write_program("echo '{\"error\": {\"message\": \"rules have counted other packets\"}}' >&2; exit 5\n");
  EXPECT_EQ(sluice(suite_ + "--vpp vpp -o r").code, 5);
  EXPECT_EQ(reason("r"), "refused: rules have counted other packets");
  EXPECT_FALSE(exists("r/cases/frame-latency-vpp-rules.1.json"));
  write("printed", printed("0000000").dump());
  write_program("cat printed\n");
  EXPECT_EQ(sluice(suite_ + "--vpp vpp -o r").code, 5);
  EXPECT_EQ(reason("r"), "refused: it measured revision 0000000, and this is " + revision_ + ": build both");
  EXPECT_FALSE(exists("r/cases/frame-latency-vpp-rules.1.json"));
  write_program("echo nothing\n");
  EXPECT_EQ(sluice(suite_ + "--vpp vpp -o r").code, 5);
  EXPECT_TRUE(reason("r").get<std::string>().starts_with("refused: ")) << reason("r");
  // Told to fail its check, it is told so as this program's own cases are.
  write_program("for word; do test \"$word\" = --spoil-check && exit 5; done; cat printed\n");
  write("printed", printed(revision_).dump());
  EXPECT_EQ(sluice(suite_ + "--vpp vpp --spoil-check -o r").code, 5);
}

TEST_F(CliSuiteVppTest, AnInterruptionReachesIt) {
  write_program("trap 'echo asked > asked; exit 130' TERM; echo > started; while :; do sleep 0.05; done\n");
  const Said said = shell("\"$SLUICE\" " + suite_ +
                          "--vpp vpp -o r & p=$!; for i in $(seq 1000); do test -e started && break; sleep 0.02; done; "
                          "kill -TERM $p; wait $p");
  EXPECT_EQ(said.code, 130) << said.err;
  EXPECT_TRUE(exists("asked"));
  EXPECT_FALSE(exists("r/report.json"));
}

TEST_F(CliSuiteTest, TablesOfManySizesAreThoseOfTheCount) {
  const Said said =
      sluice("bench route --ipv4 3000 --ipv6 0 --count 10,1000 --algorithm trie,dir24 --packets 2000 -q -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  std::map<std::string, Json> rows;
  const Json report = said.json();
  for (const Json& row : report["results"]) rows[row["case"]] = row;
  EXPECT_EQ(rows.size(), 4u);
  for (const char* algorithm : {"trie", "dir24"}) {
    EXPECT_EQ(rows[std::string("ipv4_10/") + algorithm]["routes"], 10);
    EXPECT_EQ(rows[std::string("ipv4_1000/") + algorithm]["routes"], 1000);
  }
  EXPECT_EQ(sluice("bench route --ipv4 300 --ipv6 0 --count 10 --packets 1000 --spoil-check").code, 5);
}

TEST_F(CliSuiteTest, ATableIsMeasuredInEachMemory) {
  ASSERT_EQ(sluice("bench suite --quick --passes 1 --only data-plane/cuda-table-memory-global,"
                   "data-plane/cuda-table-memory-constant,data-plane/cuda-table-memory-shared -q -o r")
                .code,
            0);
  const auto all = rows("r");
  ASSERT_GE(all.size(), 3u);
  for (const char* memory : {"global", "constant", "shared"}) {
    size_t found = 0;
    for (const auto& [name, row] : all) {
      if (row["command"].get<std::string>().find(std::string("--table-memory ") + memory) == std::string::npos)
        continue;
      ++found;
      // Without a GPU it says so.
      if (row["value"].is_null()) {
        EXPECT_TRUE(row["reason"].get<std::string>().starts_with("not measured here: ")) << row;
      } else {
        EXPECT_TRUE(name.starts_with(std::string("data-plane/cuda/table/") + memory + "/ipv4_")) << row;
      }
    }
    EXPECT_GE(found, 1u) << memory;
  }
}

TEST_F(CliSuiteTest, LivePortsHaveAThroughputAndALatency) {
  if (!NetNamespace::why_none().empty()) GTEST_SKIP() << "no network namespaces here: " << NetNamespace::why_none();
  // Every rate passes: what is lost on a machine with other work is not what this is about.
  const std::string few = "bench live --duration 0.05 --resolution 50 --loss 100 --repetitions 1 -q -o json ";
  const Said said = sluice(few + "--latency --sizes 64,imix");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json report = said.json();
  const auto names = names_of(report);
  EXPECT_EQ(names.size(), 16u);
  for (const char* name : {"cable/64B", "kernel/imix", "af_packet/64B/latency", "af_xdp/imix/latency"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_GT(report["verified"]["sample"], 0);
  for (const Json& row : report["results"]) {
    EXPECT_GT(row["median"], 0) << row;
    // With all losses allowed, the first rate passes: that of the tester.
    if (row["unit"] != "us") {
      EXPECT_EQ(row["note"], "in 1 of 1 rounds as much as was offered") << row;
    }
    if (row["unit"] == "us") {
      EXPECT_LE(row["p50_us"], row["p999_us"]) << row;
    }
  }
  // With an access list that all packets pass; and what is lost at tenths of the first rate.
  const Said more = sluice(few + "--ways af_packet --rules 300 --loss-rate");
  ASSERT_EQ(more.code, 0) << more.err;
  const Json loss = more.json();
  EXPECT_EQ(loss["rules"], 300);
  const auto steps = names_of(loss);
  EXPECT_EQ(steps.size(), 11u);
  for (const char* name : {"af_packet/64B/loss_at_100%", "af_packet/64B/loss_at_10%"})
    EXPECT_TRUE(steps.contains(name)) << name;
  for (const Json& row : loss["results"]) {
    if (row["unit"] != "%") continue;
    EXPECT_GE(row["median"], 0) << row;
    EXPECT_LE(row["median"], 100) << row;
  }
  EXPECT_EQ(sluice(few + "--ways af_packet,kernel --rules 300").code, 2) << "the kernel has no access list";
  // The kernel's XDP, where it has it.
  const Said xdp = sluice(few + "--ways xdp");
  if (xdp.code == 0) {
    ASSERT_EQ(xdp.json()["results"].size(), 1u);
    EXPECT_EQ(xdp.json()["results"][0]["case"], "xdp/64B");
    EXPECT_GT(xdp.json()["results"][0]["median"], 0);
  } else {
    EXPECT_EQ(xdp.code, 4) << xdp.err;
    EXPECT_NE(xdp.err.find("XDP program"), std::string::npos) << xdp.err;
  }
  const Said spoiled = sluice(few + "--ways cable --spoil-check");
  EXPECT_EQ(spoiled.code, 5) << spoiled.err;
  EXPECT_TRUE(spoiled.out.empty()) << spoiled.out;
  for (const char* size : {"63", "1519", "64B", "x"})
    EXPECT_EQ(sluice(std::string("bench live --sizes 64,") + size).code, 2) << size;
  EXPECT_EQ(shell("PATH=/nonexistent \"$SLUICE\" bench live").code, 4);
}

TEST_F(CliSuiteTest, LivePortsNeedRoot) {
  const Said said = shell("setpriv --reuid 65534 --clear-groups \"$SLUICE\" bench live -o json");
  if (said.err.starts_with("setpriv")) GTEST_SKIP() << "only root can be somebody else: " << said.err;
  EXPECT_EQ(said.code, 4) << said.err;
  EXPECT_NE(said.err.find("take root"), std::string::npos) << said.err;
}

TEST_F(CliSuiteTest, EverySuiteRefusesWhatItsCheckRefuses) {
  const Said said = sluice(
      "bench suite --quick --only ipv4-forwarding/layouts,traffic-kinds,frame-latency/cpu,frame-latency/emu,"
      "classbench/fw,full-tables/trie-trie,data-plane/pipeline,acl-application/module-10 --spoil-check -q -o r");
  EXPECT_EQ(said.code, 5) << said.err;
  const auto all = rows("r");
  EXPECT_EQ(all.size(), 8u);
  for (const auto& [name, row] : all) {
    EXPECT_TRUE(row["value"].is_null()) << name;
    EXPECT_EQ(row["checked"], false) << name;
    EXPECT_TRUE(row["reason"].get<std::string>().starts_with("refused: ")) << name << row;
  }
  EXPECT_NE(said.err.find("8 of 8 rows were refused"), std::string::npos) << said.err;
}

TEST_F(CliSuiteTest, PeersAreRowsWithTheirReasonsWhereTheyAreMissing) {
  copy_bench();
  const Said none = shell("PATH=/usr/bin:/bin b/sluice-bench suite --quick --only peers/lpm4,peers/crc -q -o r");
  ASSERT_EQ(none.code, 0) << none.err;
  auto all = rows("r");
  EXPECT_EQ(all.size(), 4u);
  for (const char* name : {"peers/lpm4/rte_fib_", "peers/lpm4/rte_lpm", "peers/crc/zlib", "peers/crc/isal"}) {
    ASSERT_TRUE(all.contains(name)) << name;
    EXPECT_NE(all[name]["reason"].get<std::string>().find("is neither beside this program nor in PATH"),
              std::string::npos)
        << all[name];
  }

  const auto run = [](const char* name, double rate) {
    return Json{{"run_name", name + std::string("/iterations:1/manual_time")},
                {"run_type", "iteration"},
                {"label", "full table"},
                {"items_per_second", rate}};
  };
  const auto failed = [&](const char* name, const char* message) {
    Json one = run(name, 1);
    one["error_occurred"] = true;
    one["error_message"] = message;
    return one;
  };
  Json total{{"run_name", "lookup4/dir24"}, {"run_type", "aggregate"}, {"items_per_second", 9e9}};
  Json printed{{"benchmarks",
                {run("lookup4/dir24", 1e8), run("lookup4/dir24", 3e8), run("lookup4/dir24", 2e8), total,
                 run("lookup4/rte_fib_4B_scalar", 1.5e8), failed("lookup4/rte_fib_2B_avx512", "not available here")}}};
  write("printed", printed.dump());
  write_program("tables_benches", "cat printed\n");
  ASSERT_EQ(shell("b/sluice-bench suite --quick --passes 1 --only peers/lpm4 -q -o r").code, 0);
  all = rows("r");
  EXPECT_EQ(all.size(), 4u);
  const Json& own = all["peers/lookup4/dir24, full table"];
  EXPECT_EQ(own["values"], Json({100.0, 300.0, 200.0}));
  EXPECT_EQ(own["value"], 200);
  EXPECT_EQ(own["unit"], "Mlookups/s");
  EXPECT_EQ(own["checked"], true);
  EXPECT_EQ(all["peers/lookup4/rte_fib_4B_scalar, full table"]["value"], 150);
  EXPECT_EQ(all["peers/lookup4/rte_fib_2B_avx512, full table"]["reason"], "not measured here: not available here");
  EXPECT_NE(all["peers/lpm4/rte_lpm"]["reason"].get<std::string>().find("without DPDK's libraries"), std::string::npos);

  // What is kept is of the same tables.
  const std::string again = "b/sluice-bench suite --quick --passes 1 --only peers/lpm4 -q -o r";
  EXPECT_NE(shell(again).out.find("(1 kept from before"), std::string::npos);
  EXPECT_NE(shell("SLUICE_DATA=elsewhere " + again).out.find("(0 kept from before"), std::string::npos);

  // An answer that is not the oracle's: this row is refused, nothing is kept, the others stand.
  printed["benchmarks"].push_back(failed("lookup4/rte_lpm_bulk", "an answer differs from the trie's"));
  write("printed", printed.dump());
  const Said wrong = shell("b/sluice-bench suite --quick --passes 1 --fresh --only peers/lpm4 -q -o r");
  EXPECT_EQ(wrong.code, 5);
  all = rows("r");
  EXPECT_EQ(all["peers/lookup4/rte_lpm_bulk, full table"]["reason"], "refused: an answer differs from the trie's");
  EXPECT_TRUE(all["peers/lookup4/rte_lpm_bulk, full table"]["value"].is_null());
  EXPECT_EQ(all["peers/lookup4/dir24, full table"]["value"], 200);
  EXPECT_FALSE(exists("r/cases/peers-lpm4.1.json"));

  for (const char* text :
       {"exit 3\n", "echo '{}'\n", "echo '{\"benchmarks\": [{\"run_name\": 7}]}'\n", "kill -9 $$\n"}) {
    write_program("tables_benches", text);
    EXPECT_EQ(shell("b/sluice-bench suite --quick --passes 1 --only peers/lpm4 -q -o r").code, 5) << text;
    EXPECT_TRUE(rows("r").begin()->second["reason"].get<std::string>().starts_with("refused: ")) << text;
  }

  // A time where there is no rate, and what changed meanwhile as a row of its own; a program that is not there.
  Json build{{"run_name", "build4/own/manual_time"}, {"real_time", 7.5}, {"time_unit", "ms"}},
      changed = run("patched4/own/lookup", 3e8), set = run("patched4/own/set_and_publish", 4e6);
  changed["changes"] = 2e6;
  // As google-benchmark prints an aggregate of counters that are all 0.
  const std::string aggregate = R"(, {"name": "x_cv", "run_type": "aggregate", "rebuilds": NaN}]})";
  write_program(
      "tables_benches",
      "case $1 in *build*) echo '" + Json{{"benchmarks", {build}}}.dump() + "';; *set_and*) echo '" +
          (Json{{"benchmarks", {set}}}.dump().substr(0, Json{{"benchmarks", {set}}}.dump().size() - 2) + aggregate) +
          "';; *) echo '" + Json{{"benchmarks", {changed}}}.dump() + "';; esac\n");
  ASSERT_EQ(shell("b/sluice-bench suite --quick --passes 1 -q -o u --only full-tables/build,full-tables/updates,"
                  "full-tables/beside-updates,classbench/updates")
                .code,
            0);
  all = rows("u");
  EXPECT_EQ(all.size(), 5u);
  const struct {
    const char *name, *unit;
    double value;
  } wanted[] = {{"full-tables/build4/own", "ms", 7.5},
                {"full-tables/patched4/own/lookup, full table", "Mlookups/s", 300},
                {"full-tables/patched4/own/lookup, full table/changes", "Mchanges/s", 2},
                {"full-tables/patched4/own/set_and_publish, full table", "Mchanges/s", 4}};
  for (const auto& [key, unit, value] : wanted) {
    ASSERT_TRUE(all.contains(key)) << key;
    EXPECT_EQ(all[key]["unit"], unit) << key;
    EXPECT_EQ(all[key]["value"], value) << key;
    EXPECT_EQ(all[key]["checked"], false) << key << ": that program compares nothing";
  }
  EXPECT_NE(all["classbench/updates"]["reason"].get<std::string>().find("is neither beside"), std::string::npos);
}

TEST_F(CliSuiteTest, CasesAreGoneThroughInPassesAndEachIsKept) {
  copy_bench();
  for (const char* version : {"4", "6"}) {
    const auto run = [&](double rate) {
      return Json{
          {"run_name", fmt::format("lookup{}/own", version)}, {"run_type", "iteration"}, {"items_per_second", rate}};
    };
    write(std::string("good") + version, Json{{"benchmarks", {run(1e8), run(3e8), run(2e8)}}}.dump());
    Json error = run(1);
    error["error_occurred"] = true;
    error["error_message"] = "an answer differs from the trie's";
    write(std::string("wrong") + version, Json{{"benchmarks", Json::array({error})}}.dump());
  }
  // Which case asks, in a file.
  const std::string says = "case $1 in *lookup4*) v=4;; *) v=6;; esac; echo $v >> log\n";
  write_program("tables_benches", says + "cat good$v\n");
  const std::string suite = "b/sluice-bench suite --quick --only peers/lpm4,peers/lpm6 -q -o r";
  const Said first = shell(suite + " --passes 2");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(read("log"), "4\n6\n4\n6\n");
  EXPECT_EQ(Json::parse(read("r/report.json"))["passes"], 2);
  // One more pass, and one that is gone.
  ASSERT_EQ(shell("rm log r/cases/peers-lpm6.2.json").code, 0);
  const Said more = shell(suite);
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_NE(more.out.find("(3 kept from before"), std::string::npos) << more.out;
  EXPECT_EQ(read("log"), "6\n4\n6\n");
  const Json report = Json::parse(read("r/report.json"));
  size_t own = 0, machine = 0;
  for (const Json& row : report["rows"]) {
    if (row["suite"] == "peers" && !row["value"].is_null()) {
      ++own;
      EXPECT_EQ(row["values"], Json({100.0, 300.0, 200.0, 100.0, 300.0, 200.0, 100.0, 300.0, 200.0}));
      EXPECT_EQ(row["passes"], Json({1, 1, 1, 2, 2, 2, 3, 3, 3}));
      EXPECT_EQ(row["value"], 200);
      EXPECT_EQ(row["n"], 9);
    }
    if (row["suite"] == "machine") {
      ++machine;
      EXPECT_EQ(row["n"], 12) << row;
    }
  }
  EXPECT_EQ(own, 2u);
  EXPECT_EQ(machine, 5u);
  EXPECT_EQ(shell("b/sluice-bench compare r r").code, 0);
  // A check that fails in one pass alone leaves no figure of the row.
  ASSERT_EQ(shell("rm log r/cases/peers-lpm4.3.json").code, 0);
  write_program("tables_benches", says + "cat wrong$v\n");
  // Whose program is another now: its passes are measured again.
  const Said spoiled = shell(suite + " --passes 1");
  EXPECT_EQ(spoiled.code, 5);
  write_program("tables_benches", says + "test $(wc -l < log) -lt 3 && cat good$v || cat wrong$v\n");
  ASSERT_EQ(shell("rm log").code, 0);
  EXPECT_EQ(shell(suite).code, 5);
  size_t refused = 0;
  const Json last = Json::parse(read("r/report.json"));
  for (const Json& row : last["rows"]) {
    if (!row["case"].get<std::string>().ends_with("/own")) continue;
    ++refused;
    EXPECT_TRUE(row["value"].is_null()) << row;
    EXPECT_EQ(row["reason"], "refused: an answer differs from the trie's");
    EXPECT_EQ(row["checked"], false);
  }
  EXPECT_EQ(refused, 2u);
  for (const char* options : {"--passes 0", "--passes 100", "--passes x"})
    EXPECT_EQ(sluice(std::string("bench suite --list ") + options).code, 2) << options;
}

// Reports of a machine and a program that are made up: what happened to either is known.
class MadeUpReport {
 public:
  explicit MadeUpReport(uint64_t seed) : random_(seed) {}

  static constexpr size_t kCases = 40, kRowsOfCase = 6;
  // How many times as fast a row of the program, or a probe of the machine, is.
  std::function<double(size_t of, size_t row, unsigned pass)> program = [](size_t, size_t, unsigned) { return 1; };
  std::function<double(size_t of, unsigned pass)> memory = [](size_t, unsigned) { return 1; };
  double noise = 0.02;  // standard deviation of a pass
  bool probes = true;

  std::string text(unsigned passes = 3) {
    Json rows = Json::array();
    for (size_t of = 0; of < kCases; ++of) {
      for (size_t i = 0; i < kRowsOfCase; ++i) {
        const bool time = i % 2 != 0;
        std::vector<double> values;
        std::vector<unsigned> numbers;
        for (unsigned pass = 1; pass <= passes; ++pass) {
          // Every second row is as fast as the machine's memory.
          const double speed = program(of, i, pass) * (i % 4 < 2 ? memory(of, pass) : 1) * about_one(noise);
          for (int k = 0; k < 5; ++k) {
            const double one = 10 * speed * about_one(0.003);
            values.push_back(time ? 1 / one : one);
            numbers.push_back(pass);
          }
        }
        rows.push_back({{"suite", "s"},
                        {"case", fmt::format("{}/{}", of, i)},
                        {"unit", time ? "us" : "Mpackets/s"},
                        {"value", values[0]},
                        {"values", values},
                        {"passes", numbers},
                        {"of_case", fmt::format("s/{}", of)}});
      }
    }
    for (const char* name : {"arithmetic", "memory"}) {
      std::vector<double> values;
      std::vector<unsigned> numbers;
      std::vector<std::string> beside;
      for (unsigned pass = 1; pass <= passes; ++pass) {
        for (size_t of = 0; of < kCases; ++of) {
          for (int k = 0; k < 2; ++k) {
            values.push_back(100 / (*name == 'm' ? memory(of, pass) : 1) * about_one(noise));
            numbers.push_back(pass);
            beside.push_back(fmt::format("s/{}", of));
          }
        }
      }
      if (probes)
        rows.push_back({{"suite", "machine"},
                        {"case", name},
                        {"unit", "ns"},
                        {"value", values[0]},
                        {"values", values},
                        {"passes", numbers},
                        {"beside", beside}});
    }
    return Json{{"schema", 1}, {"machine", {{"cpu", "x"}}}, {"rows", rows}}.dump();
  }

 private:
  // Nearly normal, and the same by every library.
  double about_one(double deviation) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random_() >> 11) * 0x1p-53;
    return std::exp(deviation * sum);
  }
  std::mt19937_64 random_;
};

class CliCompareTest : public CliSuiteTest {
 protected:
  // verdict -> rows of it.
  std::map<std::string, std::set<std::string>> compare(MadeUpReport& a, MadeUpReport& b, int code) {
    write("a", a.text());
    write("b", b.text());
    const Said said = sluice("bench compare a b -o json");
    EXPECT_EQ(said.code, code) << said.err;
    std::map<std::string, std::set<std::string>> all;
    const Json report = said.json();
    EXPECT_EQ(report["judged"], MadeUpReport::kCases * MadeUpReport::kRowsOfCase);
    for (const Json& row : report["rows"]) all[row["verdict"]].insert(row["row"]);
    EXPECT_EQ(report["regressions"], all["regression"].size());
    return all;
  }
};

TEST_F(CliCompareTest, EqualBuildsShowNoRegressionHoweverOftenTheyAreCompared) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    MadeUpReport a(2 * seed), b(2 * seed + 1);
    a.noise = b.noise = seed % 2 != 0 ? 0.02 : 0.06;
    const auto all = compare(a, b, 0);
    EXPECT_FALSE(all.contains("faster") && all.at("faster").size() > 1) << seed;
  }
}

TEST_F(CliCompareTest, TellsTheMachineFromTheProgram) {
  // Memory of the second run is a quarter slower, or gets slower meanwhile.
  for (const bool drifts : {false, true}) {
    MadeUpReport a(1), b(2);
    b.memory = [drifts](size_t, unsigned pass) { return drifts ? 1 - 0.07 * pass : 0.73; };
    const auto all = compare(a, b, 0);
    if (!drifts) {
      EXPECT_GT(all.at("slower, as the machine is").size(), 100u);
      const auto back = compare(b, a, 0);
      EXPECT_FALSE(back.contains("faster"));
      EXPECT_GT(back.at("faster, as the machine is").size(), 100u);
    }
    // Without its measurements the same is taken for the program's, and compare says so.
    if (drifts) continue;
    a.probes = b.probes = false;
    EXPECT_GT(compare(a, b, 5).at("regression").size(), 100u);
    EXPECT_NE(sluice("bench compare a b").err.find("no measurements of the machine itself"), std::string::npos);
  }
}

TEST_F(CliCompareTest, BurstsOfOtherWorkInSinglePassesAreNoRegression) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    MadeUpReport a(2 * seed), b(2 * seed + 1);
    // A tenth of the rows lose half of their speed in one pass, which no probe sees.
    b.program = [](size_t of, size_t row, unsigned pass) {
      return (of * 7 + row * 3) % 10 == 0 && pass == 1 + of % 3 ? 0.5 : 1.0;
    };
    (void)compare(a, b, 0);
  }
}

TEST_F(CliCompareTest, ARowThatIsSlowerInEveryPassIsFoundAndNoOther) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    MadeUpReport a(2 * seed), b(2 * seed + 1);
    b.program = [](size_t of, size_t, unsigned) { return of == 17 ? 1 / 1.3 : 1; };
    // The machine does something of its own meanwhile.
    b.memory = [](size_t of, unsigned) { return of < 10 ? 0.8 : 1; };
    std::set<std::string> slowed;
    for (size_t i = 0; i < MadeUpReport::kRowsOfCase; ++i) slowed.insert(fmt::format("s/17/{}", i));
    EXPECT_EQ(compare(a, b, 5).at("regression"), slowed) << seed;
    EXPECT_EQ(compare(b, a, 0).at("faster"), slowed) << seed;
  }
  // Also where the whole program is, and where memory hides a part of it.
  MadeUpReport a(100), b(101);
  b.program = [](size_t, size_t, unsigned) { return 1 / 1.5; };
  b.memory = [](size_t, unsigned) { return 0.95; };
  EXPECT_GT(compare(a, b, 5).at("regression").size(), 200u);
}

TEST_F(CliCompareTest, ReportsOfOnePassAreNotJudgedAndDamagedOnesRefused) {
  MadeUpReport a(1);
  write("a", a.text(1));
  const Said said = sluice("bench compare a a -o json");
  EXPECT_EQ(said.code, 1) << said.err;
  EXPECT_NE(said.err.find("fewer than 2 passes"), std::string::npos) << said.err;
  const Json good = Json::parse(a.text(3));
  // Its end is missing.
  write("short", good.dump().substr(0, 500));
  const Said cut = sluice("bench compare short short");
  EXPECT_EQ(cut.code, 1);
  EXPECT_NE(cut.err.find("short: no report: this is no JSON, or the end of it is missing"), std::string::npos)
      << cut.err;
  for (const char* key : {"passes", "beside", "values"}) {
    for (const Json& value : {Json(7), Json({1}), Json::array(), Json({{"a", 1}})}) {
      Json bad = good;
      bad["rows"].back()[key] = value;
      write("bad", bad.dump());
      EXPECT_EQ(sluice("bench compare bad bad").code, 1) << key << value;
    }
  }
}

TEST_F(CliSuiteTest, TablesHaveTheirSizeAndTheTimeToBuildThem) {
  ASSERT_EQ(sluice("bench suite --quick --passes 1 --only classbench/fw -q -o r").code, 0);
  for (const auto& [name, row] : rows("r")) {
    EXPECT_GT(row["build_seconds"], 0) << name;
    EXPECT_GT(row["bytes"], 0) << name;
    // One thread and the program's start.
    EXPECT_GT(row["cpu_cores"], 0) << name;
    EXPECT_LT(row["cpu_cores"], 3) << name;
  }
  EXPECT_NE(read("r/report.html").find("cores busy"), std::string::npos);
  EXPECT_NE(read("r/report.html").find("build, s"), std::string::npos);
}

TEST_F(CliSuiteTest, WattsAreOfTheProcessorsCountersWhereThereAreSome) {
  copy_bench();
  write("good", R"({"benchmarks": [{"run_name": "lookup4/own", "items_per_second": 1e8}]})");
  // Two packages, of which one comes to the end of its counter, and a part of one, which is not counted twice.
  const auto package = [&](const std::string& name, const char* energy) {
    ASSERT_EQ(shell("mkdir -p rapl/" + name).code, 0);
    write("rapl/" + name + "/energy_uj", energy);
    write("rapl/" + name + "/max_energy_range_uj", "262143328850");
  };
  package("intel-rapl:0", "1000000");
  package("intel-rapl:1", "262143000000");
  package("intel-rapl:0:0", "0");
  write_program("tables_benches",
                "echo 31000000 > rapl/intel-rapl:0/energy_uj; echo 1 > rapl/intel-rapl:1/energy_uj\n"
                "echo 999999999 > rapl/intel-rapl:0:0/energy_uj; cat good\n");
  const std::string suite = "b/sluice-bench suite --quick --passes 1 --only peers/lpm4 -q -o ";
  ASSERT_EQ(shell(suite + "r --rapl rapl").code, 0);
  const Json row = rows("r")["peers/lookup4/own"];
  const double seconds = Json::parse(read("r/cases/peers-lpm4.1.json"))["seconds"];
  // Before the first case nothing takes power by these counters.
  bool idle = false;
  const Json whole = Json::parse(read("r/report.json"));
  for (const Json& one : whole["rows"]) {
    if (one["suite"] != "machine" || one["case"] != "idle") continue;
    idle = true;
    EXPECT_EQ(one["unit"], "W");
    EXPECT_EQ(one["value"], 0);
  }
  EXPECT_TRUE(idle);
  // Of 30.3 joules: no more time than the case took with the probes.
  EXPECT_GE(row["cpu_watts"].get<double>() * seconds, 30.32) << row;
  EXPECT_NE(read("r/report.html").find("CPU, W"), std::string::npos);
  for (const char* none : {"none", "good"}) {
    ASSERT_EQ(shell(suite + "s --fresh --rapl " + none).code, 0);
    EXPECT_FALSE(rows("s")["peers/lookup4/own"].contains("cpu_watts"));
    EXPECT_NE(read("s/report.html").find("no RAPL here"), std::string::npos);
  }
}

TEST_F(CliSuiteTest, AQuickSuiteEndsInTimeAndGoesOnLater) {
  const Said over = sluice("bench suite --quick --only network-functions/mirror --limit 0 -q -o r");
  EXPECT_EQ(over.code, 0) << over.err;
  EXPECT_NE(read("r/report.json").find("goes on from here"), std::string::npos);
  const Said late = sluice("bench suite --quick --only data-plane/priorities --case-limit 0.05 -q -o r");
  EXPECT_EQ(late.code, 0) << late.err;
  const auto all = rows("r");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all.begin()->second["value"].is_null());
  EXPECT_NE(all.begin()->second["reason"].get<std::string>().find("did not end within"), std::string::npos);
  EXPECT_FALSE(exists("r/cases/data-plane-priorities.1.json"));
}

// Time is planned from what a pass took: here a day.
TEST_F(CliSuiteTest, AQuickSuiteMakesFewerPassesWhereTheyTakeTooLong) {
  const std::string suite = "bench suite --quick --only classbench/fw -o r --passes ";
  ASSERT_EQ(sluice(suite + "1 -q").code, 0);
  const std::string file = "r/cases/classbench-fw.1.json";
  // The order of its members is part of what is kept.
  auto kept = nlohmann::ordered_json::parse(read(file));
  kept["seconds"] = 86400;
  write(file, kept.dump());
  const Said said = sluice(suite + "3");
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.err.find("fewer passes, 1 of 3: another one takes about 86400 s"), std::string::npos) << said.err;
  EXPECT_FALSE(exists("r/cases/classbench-fw.2.json"));
  EXPECT_EQ(Json::parse(read("r/report.json"))["passes"], 1);
}

TEST_F(CliSuiteTest, WhereNoReportCanBeWrittenNothingIsMeasured) {
  const std::string suite = "bench suite --quick --passes 1 --only classbench/fw -q -o ";
  ASSERT_EQ(shell("mkdir -p r/report.html; touch file").code, 0);
  const struct {
    const char *folder, *says;
    int code;
  } wrong[] = {{"r", "r/report.html: cannot write the report: it is a directory", 3},
               {"file", "file: cannot create the folder cases in it: Not a directory", 3},
               {"/dev/full", "/dev/full: cannot create the folder cases in it", 3},
               {"-", "the report is a folder", 2}};
  for (const auto& [folder, says, code] : wrong) {
    const Said said = sluice(suite + folder);
    EXPECT_EQ(said.code, code) << folder;
    EXPECT_NE(said.err.find(says), std::string::npos) << said.err;
  }
  EXPECT_FALSE(exists("r/cases/classbench-fw.1.json"));
  // Of another user.
  ASSERT_EQ(shell("mkdir -p theirs/cases && chmod 755 . theirs theirs/cases").code, 0);
  const Said said = shell("setpriv --reuid 65534 --clear-groups \"$SLUICE\" " + suite + "theirs");
  if (said.err.starts_with("setpriv")) GTEST_SKIP() << "only root can be somebody else: " << said.err;
  EXPECT_EQ(said.code, 3);
  EXPECT_NE(said.err.find("theirs: cannot write to this folder: Permission denied"), std::string::npos) << said.err;
}

TEST_F(CliSuiteTest, ATemporaryFolderThatCannotBeIsAnError) {
  for (const char* command : {"bench priorities --part mix", "bench pipeline --count 100", "demo"}) {
    const Said said = shell(std::string("TMPDIR=\"$PWD/nothing\" \"$SLUICE\" ") + command + " -q");
    EXPECT_EQ(said.code, 3) << command << said.err;
    EXPECT_NE(said.err.find("cannot create a temporary directory in"), std::string::npos) << said.err;
  }
}

TEST_F(CliSuiteTest, ARefusedRowSaysWhatIsWrongInAFile) {
  ASSERT_EQ(shell("mkdir -p data/acl && echo garbage > data/acl/acl1_10k.xz").code, 0);
  const Said said = shell(
      "SLUICE_DATA=\"$PWD/data\" \"$SLUICE\" bench suite --quick --passes 1 -q -o r --only "
      "classbench/set-acl1_10k");
  EXPECT_EQ(said.code, 5) << said.err;
  EXPECT_NE(said.err.find("acl1_10k.xz: line 1: 'garbage' is not an action"), std::string::npos) << said.err;
}

TEST_F(CliSuiteTest, AStudyHasItsRowsBesideThePublishedFiguresOfTheSameParameters) {
  const Said said = sluice("bench study stockholm --quick --table shaper -q -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json report = said.json();
  EXPECT_EQ(report["study"], "stockholm");
  std::map<std::string, Json> all;
  for (const Json& row : report["rows"]) all[row["case"]] = row;
  for (const char* rate : {"10kbps", "1Mbps", "1Gbps"}) {
    const Json& row = all["shaper/simulated/" + std::string(rate)];
    EXPECT_EQ(row["published"]["value"], 0.001) << rate;
    EXPECT_EQ(row["published"]["unit"], "%") << rate;
    EXPECT_TRUE(row["published"]["source"].get<std::string>().starts_with("Stockholm study: ")) << row;
    EXPECT_EQ(row["checked"], true) << rate;
  }
  // It published no rate above 1 Gbit/s.
  EXPECT_TRUE(all.at("shaper/simulated/100Gbps")["published"].is_null());
  EXPECT_TRUE(files().empty()) << "nothing is left behind";
}

TEST_F(CliSuiteTest, AStudyWithoutItsDeviceSaysSoAndEndsWell) {
  ::unsetenv("SLUICE_VPP_PLUGIN");
  const Said said = sluice("bench study spark --quick --table cuda-persistent,vpp-masks -q");
  ASSERT_EQ(said.code, 0) << said.err;
  for (const char* part : {"cuda", "vpp-masks", "not measured here: --vpp or SLUICE_VPP_PLUGIN names no build folder"})
    EXPECT_NE(said.out.find(part), std::string::npos) << part << said.out;
}

TEST_F(CliSuiteTest, AStudysTablesAreItsCasesOfTheSuite) {
  const std::string all = sluice("bench suite --quick --list").out;
  for (const char* name : {"spark", "codilime", "ferraris", "louvain", "stockholm"}) {
    const Said list = sluice(std::string("bench study ") + name + " --quick --list");
    ASSERT_EQ(list.code, 0) << list.err;
    for (const std::string& line : list.lines())
      EXPECT_NE(all.find(line.substr(0, line.find(' '))), std::string::npos) << line;
    EXPECT_GT(list.lines().size(), 5u) << name;
  }
  EXPECT_EQ(sluice("bench study spark --table no-such-table").code, 2);
  EXPECT_EQ(sluice("bench study nobody").code, 2);
  const Said refused = sluice("bench study louvain --quick --table mirror --spoil-check -q");
  EXPECT_EQ(refused.code, 5) << refused.err;
  EXPECT_NE(refused.out.find("refused: "), std::string::npos) << refused.out;
}

TEST_F(CliSuiteTest, EveryCaseOfBothSizesTakesItsOptions) {
  // A command that the program refuses would be seen only when the suite comes to it.
  std::map<std::string, std::string> said_of;  // benchmark -> what it says of that option alone
  for (const char* size : {"", "--quick"}) {
    const Said list = sluice(std::string("bench suite --list -o json ") + size);
    ASSERT_EQ(list.code, 0) << list.err;
    size_t own = 0;
    for (const std::string& line : list.lines()) {
      const size_t at = line.find("sluice-bench ");
      if (at == std::string::npos) continue;
      ++own;
      const std::string command = line.substr(at + 13), name = command.substr(0, command.find(' '));
      // What is wrong then is the last one alone.
      const Said wrong = sluice("bench " + command + " --no-such-option");
      EXPECT_EQ(wrong.code, 2) << line;
      std::string& expected = said_of[name];
      if (expected.empty()) expected = sluice("bench " + name + " --no-such-option").err;
      EXPECT_EQ(wrong.err, expected) << line;
    }
    EXPECT_GT(own, 30u);
  }
}

}  // namespace
}  // namespace sluice
