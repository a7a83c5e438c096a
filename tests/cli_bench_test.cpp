// `sluice bench` and `--device` say what ran where: a row named after a device is that device's alone, and what
// measured nothing is no success. host only
#include <algorithm>
#include <map>
#include <set>

#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using Json = nlohmann::json;
using testing::Said;

class CliBenchTest : public testing::CliTest {};

const std::string kFew = "bench functions --device emu --packets 1000 --sample 300 -q -o json ";

TEST_F(CliBenchTest, EveryWayPutsEveryPacketOnTheDevice) {
  const Said said = sluice(kFew +
                           "--sizes 64,1024 --function mirror,lookup --ways launch/commlist/full,launch/commpool/full,"
                           "launch/staged/full,launch/zerocopy/full,persistent/staged/full");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json json = said.json();
  ASSERT_EQ(json["results"].size(), 20u);
  std::set<std::string> names;
  for (const Json& row : json["results"]) {
    EXPECT_TRUE(names.insert(row["case"]).second) << row["case"];
    EXPECT_EQ(row["answered_by_device"], row["n"].get<uint64_t>() * row["packets_each"].get<uint64_t>()) << row;
  }
  // What really crosses: of a mirror its frames, also by resident kernels, and of a lookup its key.
  for (const char* name :
       {"mirror/64B/persistent/staged/full/frame/x1/256", "lookup/64B/launch/staged/full/key/x1/256",
        "lookup/1024B/persistent/tagged/full/key/x1/256", "mirror/64B/launch/commlist/full/frame/x1/256"}) {
    EXPECT_TRUE(names.contains(name)) << name << " is not in " << json["results"];
  }
  // A master sends keys, and no frames.
  const Json master = sluice(kFew + "--sizes 64 --function mirror,lookup --ways launch/staged/master").json();
  ASSERT_EQ(master["results"].size(), 2u);
  EXPECT_NE(master["results"][0].value("reason", "").find("on the host: "), std::string::npos) << master;
  EXPECT_EQ(master["results"][1]["case"], "lookup/64B/launch/staged/master/key/x1/256");
}

TEST_F(CliBenchTest, ChainsAreTheDevicesAlone) {
  const Said said =
      sluice(kFew + "--sizes 256 --function crc,chain,separate --ways launch/staged/full,persistent/commlist/full");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json rows = said.json()["results"];
  // The chain in pieces is the host's alone.
  ASSERT_EQ(rows.size(), 4u) << said.err;
  for (const Json& row : rows) {
    EXPECT_EQ(row["answered_by_device"], row["n"].get<uint64_t>() * row["packets_each"].get<uint64_t>()) << row;
    EXPECT_NE(row["case"].get<std::string>().find("/frame/"), std::string::npos) << row;
  }
}

TEST_F(CliBenchTest, ARowThatTheHostDidHasAReasonAndNoFigures) {
  const struct {
    const char *options, *reason;
  } cases[] = {
      {"--function mirror --records key", "no lookup by key"},
      {"--function crc --records key", "no lookup by key"},
      {"--function crc --ways launch/commpool/full", "sums whole frames, and a pool has their first bytes alone"},
  };
  for (const auto& [options, reason] : cases) {
    const Said said = sluice(kFew + options);
    EXPECT_EQ(said.code, 5) << options;
    const Json rows = said.json()["results"];
    ASSERT_FALSE(rows.empty()) << said.out;
    for (const Json& row : rows) {
      EXPECT_TRUE(row["reason"].get<std::string>().starts_with("on the host: ")) << row;
      EXPECT_NE(row["reason"].get<std::string>().find(reason), std::string::npos) << row;
      for (const char* figure : {"median", "min", "max", "n", "unit", "rate"})
        EXPECT_FALSE(row.contains(figure)) << row;
    }
    EXPECT_NE(said.err.find("measured nothing"), std::string::npos) << said.err;
  }
  const Said text =
      sluice("bench functions --device emu --packets 1000 --sample 300 --sizes 64 --function mirror --records key");
  EXPECT_EQ(text.code, 5);
  EXPECT_NE(text.out.find("on the host: "), std::string::npos) << text.out;
}

TEST_F(CliBenchTest, FailsWhereNothingIsMeasured) {
  write("rib", "192.0.2.0/24 a\n10.0.0.0/8 b\n");
  const struct {
    const char *command, *what;
  } cases[] = {
      {"route --ipv4 100 --ipv6 0 --packets 1024 --device emu --device-only --lookups-only", "CUDA device"},
      {"route --ipv4 100 --ipv6 0 --packets 1024 --device emu --lookups-only", "CUDA device"},
      {"route --ipv4 100 --ipv6 0 --packets 1024 --device-only", "these options leave no case"},
      {"route --like rib --count 10 --algorithm dir24 --packets 1024 --device emu", "CUDA device"},
      {"classify --count 100 --packets 1000 --device-only", "these options leave no case"},
      {"port --sizes 64 --ipv4 10 --packets 1000 --repetitions 1 --persistent", "CUDA device"},
      {"port --sizes 64 --ipv4 10 --packets 1000 --repetitions 1 --device emu --device-only", "CUDA device"},
      {"port --sizes 64 --ipv4 10 --packets 1000 --repetitions 1 --soak --seconds 0.01", "CUDA device"},
      {"functions --sizes 64 --packets 500 --sample 100 --function mirror --device emu --resident", "CUDA device"},
  };
  for (const auto& [command, what] : cases) {
    const Said said = sluice(std::string("bench ") + command);
    EXPECT_EQ(said.code, 5) << command << said.err;
    EXPECT_NE(said.err.find(what), std::string::npos) << command << said.err;
  }
}

TEST_F(CliBenchTest, AResultSaysWhichDefaultsItLeftStanding) {
  const Json today = sluice("reference --defaults").json();
  const std::string few = "bench pipeline --count 100 --ipv4 500 --ipv6 10 --packets 2000 --sample 100 -q -o json";
  const Json left = sluice(few).json()["defaults"];
  EXPECT_EQ(left["options"]["--batch"], today["bench"]["pipeline"]["--batch"]);
  EXPECT_FALSE(left["options"].contains("--count"));  // it was given
  EXPECT_EQ(left["access lists"], today["access lists"]);
  EXPECT_EQ(left["routes"], today["routes"]);
  const Json named = sluice(few + " --algorithm linear --route-algorithm trie,trie --batch 64").json()["defaults"];
  EXPECT_FALSE(named["options"].contains("--batch"));
  EXPECT_FALSE(named.contains("access lists"));
  EXPECT_FALSE(named.contains("routes"));
  const Json device = sluice(few + " --device emu").json();
  EXPECT_EQ(device["defaults"]["access lists on a device"], today["access lists on a device"]);
  EXPECT_GT(device["results"][0]["answered_by_device"], 0);
  EXPECT_TRUE(device["machine"]["gpu"].is_null());  // none took part
}

TEST_F(CliBenchTest, ADeviceThatGetsNoPacketIsNamedWithTheReason) {
  ASSERT_EQ(sluice("gen traffic --packets 300 --flows 30 --size 1000 --out long.pcap").code, 0);
  write("l.click", "FromDump(long.pcap) -> CheckIPHeader(14) -> IPLookup(0.0.0.0/0 0) -> ToDump(out.pcap);\n");
  write("m.click", "FromDump(long.pcap) -> EtherMirror -> ToDump(out.pcap);\n");
  write("c.click", "FromDump(long.pcap) -> Classifier(12/0800) -> EtherMirror -> ToDump(out.pcap);\n");
  const std::string reason = "no lookup: the transfer would cost more than the work (--records frame: on the device)";
  const Said plan = sluice("show plan m.click --device emu");
  EXPECT_NE(plan.out.find("on the host: " + reason), std::string::npos) << plan.out;
  const auto offloaded = [](const Said& said) { return said.json()["offload"]["offloaded"].get<uint64_t>(); };
  for (const auto& [options, what] :
       {std::pair<std::string, std::string>{"m.click --device emu",
                                            "EtherMirror@2 was sent to it, 300 stayed on the host: " + reason},
        {"c.click --device emu --records frame",
         "Classifier@2 -> EtherMirror@3 was sent to it, 300 stayed on the host: no lookup by key; Classifier@2 does "
         "not "
         "parse frames from their first byte"}}) {
    const Said none = sluice("run " + options + " -o json");
    EXPECT_EQ(offloaded(none), 0u);
    const size_t at = none.err.find("no packet of " + what);
    EXPECT_NE(at, std::string::npos) << none.err;
    EXPECT_EQ(none.err.find("was sent to it", at + what.size()), std::string::npos) << "said twice: " << none.err;
  }
  // By its key or its frame: nothing is to be said.
  for (const char* all : {"run l.click --device emu -o json", "run l.click --device emu --records frame -o json",
                          "run m.click --device emu --records frame -o json"}) {
    const Said said = sluice(all);
    EXPECT_EQ(offloaded(said), 300u) << all;
    EXPECT_EQ(said.err.find("was sent to it"), std::string::npos) << said.err;
  }
  EXPECT_TRUE(sluice("run m.click --device emu -q").err.empty());
  EXPECT_EQ(sluice("run m.click").err.find("was sent to it"), std::string::npos);
}

// One case of some tenths of a second.
const std::string kSuite = "bench suite --quick --only network-functions/mirror,frame-latency/vpp-rules ";

TEST_F(CliBenchTest, ASuiteLeavesOneReportAndGoesOnWhereItWas) {
  ::unsetenv("SLUICE_VPP_PLUGIN");  // what is not measured has to be
  const Said first = sluice(kSuite + "-o r");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("network-functions/mirror"), std::string::npos) << first.err;
  const Json report = Json::parse(read("r/report.json"));
  EXPECT_EQ(report["schema"], 1);
  EXPECT_TRUE(report["machine"]["cpu"].is_string());
  for (const char* key : {"git", "when"}) EXPECT_TRUE(report[key].is_string()) << key;
  EXPECT_GE(report["load_average"], 0);
  EXPECT_EQ(report["passes"], 3);
  ASSERT_EQ(report["rows"].size(), 9u);  // three sizes, what is not measured, and five of the machine itself
  for (const Json& row : report["rows"]) {
    for (const char* key : {"suite", "case", "value", "unit", "n", "min", "max", "values", "passes", "checked",
                            "published", "command", "reason", "of_case", "machine"})
      EXPECT_TRUE(row.contains(key)) << key << row;
    if (row["suite"] == "frame-latency") {
      EXPECT_TRUE(row["value"].is_null());
      EXPECT_EQ(row["checked"], false);
      EXPECT_TRUE(row["reason"].get<std::string>().starts_with("not measured here: ")) << row;
      continue;
    }
    EXPECT_EQ(row["values"].size(), row["n"]);
    EXPECT_EQ(row["passes"].size(), row["n"]);
    EXPECT_EQ(row["passes"].front(), 1);
    EXPECT_EQ(row["passes"].back(), 3);
    EXPECT_GT(row["min"], 0);
    if (row["suite"] == "machine") {
      // Before and after each of the three.
      EXPECT_EQ(row["beside"], Json(std::vector<std::string>(6, "network-functions/mirror")));
      EXPECT_EQ(row["passes"], Json({1, 1, 2, 2, 3, 3}));
      continue;
    }
    EXPECT_EQ(row["checked"], true) << row;
    EXPECT_EQ(row["of_case"], "network-functions/mirror");
    EXPECT_EQ(row["unit"], "Mpackets/s");
    EXPECT_LE(row["min"], row["value"]);
    EXPECT_LE(row["value"], row["max"]);
    EXPECT_GT(row["min"], 0);
  }
  const std::string html = read("r/report.html");
  for (const char* part : {"<!doctype html>", "prefers-color-scheme", "<svg ", "million packets per second",
                           "not measured here", "</html>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* elsewhere : {"http:", "https:", "<script", "src="})
    EXPECT_EQ(html.find(elsewhere), std::string::npos) << elsewhere;
  const std::string csv = read("r/report.csv");
  EXPECT_TRUE(csv.starts_with("suite,case,value,unit,n,min,max,checked,")) << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 10);

  // The same again measures nothing; what is damaged, and --fresh, is measured anew.
  const std::string kept = read("r/cases/network-functions-mirror.1.json");
  const Said again = sluice(kSuite + "-o r");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err.find("network-functions/mirror"), std::string::npos) << again.err;
  EXPECT_EQ(Json::parse(read("r/report.json"))["rows"], report["rows"]);
  EXPECT_EQ(read("r/cases/network-functions-mirror.1.json"), kept);
  write("r/cases/network-functions-mirror.1.json", kept.substr(0, kept.size() / 2));
  EXPECT_EQ(sluice(kSuite + "-q -o r").code, 0);
  EXPECT_NE(read("r/cases/network-functions-mirror.1.json"), kept);
  EXPECT_TRUE(Json::accept(read("r/cases/network-functions-mirror.1.json")));
  const Said fresh = sluice(kSuite + "--fresh -o r");
  EXPECT_NE(fresh.err.find("network-functions/mirror"), std::string::npos) << fresh.err;
  for (const std::string& name : files()) EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
}

TEST_F(CliBenchTest, ASuiteRefusesARowWhoseCheckFails) {
  const Said said = sluice("bench suite --quick --only network-functions/mirror --spoil-check -o r");
  EXPECT_EQ(said.code, 5) << said.err;
  const Json rows = Json::parse(read("r/report.json"))["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(rows[0]["value"].is_null());
  EXPECT_EQ(rows[0]["checked"], false);
  EXPECT_TRUE(rows[0]["reason"].get<std::string>().starts_with("refused: ")) << rows;
  EXPECT_NE(read("r/report.html").find("refused: "), std::string::npos);
  EXPECT_FALSE(exists("r/cases/network-functions-mirror.1.json"));
}

TEST_F(CliBenchTest, ASuiteThatIsInterruptedKeepsWhatIsFinished) {
  // The signal comes once the first case is kept, while the second, of seconds, is measured.
  const Said said = shell(
      "\"$SLUICE\" bench suite --only network-functions/mirror,frame-latency --quick -o r & "
      "p=$!; for i in $(seq 3000); do test -e r/cases/network-functions-mirror.1.json && break; sleep 0.05; done; "
      "kill -TERM $p; wait $p");
  EXPECT_EQ(said.code, 130) << said.err;
  EXPECT_TRUE(exists("r/cases/network-functions-mirror.1.json"));
  EXPECT_FALSE(exists("r/cases/frame-latency-emu.1.json"));
  EXPECT_FALSE(exists("r/report.json"));
  const Said rest = sluice("bench suite --only network-functions/mirror --quick -o r");
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(rest.out.find("1 kept from before"), std::string::npos) << rest.out;
}

TEST_F(CliBenchTest, SuitesAndCasesAreListedAndNamed) {
  const Said list = sluice("bench suite --quick --list");
  EXPECT_EQ(list.code, 0) << list.err;
  for (const char* name :
       {"classbench/acl", "full-tables/dir24-poptrie", "acl-application/application-1", "data-plane/shaper",
        "network-functions/crc", "frame-latency/cuda-persistent", "rfc2544/ndr-af_xdp", "ipv4-forwarding/101-routes",
        "traffic-kinds/memory", "peers/lpm4", "peers/live"})
    EXPECT_NE(list.out.find(name), std::string::npos) << name;
  EXPECT_TRUE(files().empty());
  write("file", "");
  const struct {
    const char* options;
    int code;
    const char* what;
  } cases[] = {
      {"suite --only nothing -o r", 2, "there is no suite or case 'nothing'"},
      {"suite --quick", 2, "-o is required"},
      {"suite --only rfc2544 -o file", 3, "file: cannot create"},
      {"suite --only rfc2544 -o /proc/none", 3, "/proc/none: cannot create"},
      {"suite --only rfc2544 -o /dev/full", 3, "/dev/full: cannot create"},
      {"compare none none", 3, "none"},
      {"compare file file", 1, "file: no report"},
      {"compare file", 2, "B"},
  };
  for (const auto& [options, code, what] : cases) {
    const Said said = sluice(std::string("bench ") + options);
    EXPECT_EQ(said.code, code) << options << said.err;
    EXPECT_NE(said.err.find(what), std::string::npos) << options << said.err;
  }
}

TEST_F(CliBenchTest, CompareFindsWhatIsSlowerAndNothingElse) {
  const auto row = [](const char* name, const char* unit, std::vector<double> values) {
    return Json{
        {"suite", "s"}, {"case", name}, {"unit", unit}, {"value", values[values.size() / 2]}, {"values", values}};
  };
  const Json none{{"suite", "s"}, {"case", "none"}, {"unit", nullptr}, {"value", nullptr}, {"values", Json::array()}};
  const auto report = [&](const std::string& name, const Json& rows) {
    write(name, Json{{"schema", 1}, {"machine", {{"cpu", "x"}}}, {"rows", rows}}.dump());
  };
  report("a", {row("rate", "Mpackets/s", {10, 10.1, 9.9, 10, 10.2}), row("time", "us", {4, 4.1, 4, 3.9, 4}), none,
               row("error", "%", {0, 0, 0}), row("gone", "us", {1, 1, 1})});
  report("slow", {row("rate", "Mpackets/s", {8, 8.1, 7.9, 8, 8.2}), row("time", "us", {5, 5.1, 5, 4.9, 5}), none,
                  row("error", "%", {0, 0, 0}), row("new", "us", {1, 1, 1})});
  const auto verdicts = [&](const std::string& files, int code) {
    const Said said = sluice("bench compare -o json " + files);
    EXPECT_EQ(said.code, code) << files << said.err;
    std::map<std::string, std::string> all;
    const Json rows = said.json()["rows"];
    for (const Json& one : rows) all[one["row"]] = one["verdict"];
    return all;
  };
  const auto same = verdicts("a a", 0);
  EXPECT_EQ(same.at("s/rate"), "same");
  EXPECT_EQ(same.at("s/time"), "same");
  EXPECT_EQ(same.at("s/none"), "measured in neither");
  EXPECT_EQ(same.at("s/error"), "a percentage is not judged");
  const auto slower = verdicts("a slow", 5);
  EXPECT_EQ(slower.at("s/rate"), "regression");
  EXPECT_EQ(slower.at("s/time"), "regression");
  EXPECT_EQ(slower.at("s/gone"), "only in A");
  EXPECT_EQ(slower.at("s/new"), "only in B");
  const auto faster = verdicts("slow a", 0);
  EXPECT_EQ(faster.at("s/rate"), "faster");
  EXPECT_EQ(faster.at("s/time"), "faster");
  EXPECT_EQ(verdicts("a slow --threshold 0.3", 0).at("s/rate"), "same");
}

}  // namespace
}  // namespace sluice
