// `sluice bench` and `--device` say what ran where: a row named after a device is that device's alone, and what
// measured nothing is no success. host only
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
                           "launch/staged/full,launch/zerocopy/full,persistent/staged/full,launch/staged/master");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json json = said.json();
  ASSERT_EQ(json["results"].size(), 24u);
  std::set<std::string> names;
  for (const Json& row : json["results"]) {
    EXPECT_TRUE(names.insert(row["case"]).second) << row["case"];
    EXPECT_EQ(row["answered_by_device"], row["n"].get<uint64_t>() * row["packets_each"].get<uint64_t>()) << row;
  }
  // What really crosses: a resident kernel has one transport, and what no header record takes is an address.
  for (const char* name :
       {"mirror/64B/persistent/tagged/full/address/x1/256", "lookup/64B/launch/staged/full/header/x1/256",
        "lookup/1024B/launch/staged/full/address/x1/256", "mirror/64B/launch/commlist/full/address/x1/256"}) {
    EXPECT_TRUE(names.contains(name)) << name << " is not in " << json["results"];
  }
}

TEST_F(CliBenchTest, ChainsAreTheDevicesAlone) {
  const Said said =
      sluice(kFew + "--sizes 256 --function crc,chain,separate --ways launch/staged/full,persistent/commlist/full");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json rows = said.json()["results"];
  for (const Json& row : rows) {
    const uint64_t segments = row["case"].get<std::string>().starts_with("separate") ? 6 : 1;
    EXPECT_EQ(row["answered_by_device"], segments * row["n"].get<uint64_t>() * row["packets_each"].get<uint64_t>())
        << row;
  }
}

TEST_F(CliBenchTest, ARowThatTheHostDidHasAReasonAndNoFigures) {
  const struct {
    const char *options, *reason;
  } cases[] = {
      {"--function mirror --records key", "no lookup by key"},
      {"--function crc --records header", "a stage reads whole frames"},
      {"--function lookup --sizes 1024 --records header", "frames of up to 128 bytes (132 with FCS) on the device"},
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

TEST_F(CliBenchTest, WhatMeasuresNothingIsNoSuccess) {
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
  ASSERT_EQ(sluice("gen traffic --packets 300 --flows 30 --size 133 --out long.pcap").code, 0);
  ASSERT_EQ(sluice("gen traffic --packets 300 --flows 30 --size 132 --out short.pcap").code, 0);
  write("l.click", "FromDump($IN) -> CheckIPHeader(14) -> IPLookup(0.0.0.0/0 0) -> ToDump(out.pcap);\n");
  write("m.click", "FromDump($IN) -> EtherMirror -> ToDump(out.pcap);\n");
  const std::string threshold = "frames of up to 128 bytes (132 with FCS) on the device, longer ones on the host";
  EXPECT_NE(sluice("show plan l.click IN=long.pcap --device emu").out.find(threshold), std::string::npos);
  EXPECT_EQ(sluice("show plan l.click IN=long.pcap --device emu --records address").out.find(threshold),
            std::string::npos);
  const Said plan = sluice("show plan m.click IN=long.pcap --device emu");
  EXPECT_NE(
      plan.out.find("on the host: no lookup: the transfer would cost more than the work (--records address: on the "
                    "device)"),
      std::string::npos)
      << plan.out;
  const auto offloaded = [](const Said& said) { return said.json()["offload"]["offloaded"].get<uint64_t>(); };
  const Said none = sluice("run l.click IN=long.pcap --device emu -o json");
  EXPECT_EQ(offloaded(none), 0u);
  const size_t at =
      none.err.find("no packet of CheckIPHeader@2 -> IPLookup@3 was sent to it, 300 stayed on the host: " + threshold);
  EXPECT_NE(at, std::string::npos) << none.err;
  EXPECT_EQ(none.err.find("was sent to it", at + 60), std::string::npos) << "said twice: " << none.err;
  // Just as long as goes, and by addresses: nothing is to be said.
  for (const char* all : {"run l.click IN=short.pcap --device emu -o json",
                          "run l.click IN=long.pcap --device emu --records address -o json",
                          "run m.click IN=long.pcap --device emu --records address -o json"}) {
    const Said said = sluice(all);
    EXPECT_EQ(offloaded(said), 300u) << all;
    EXPECT_EQ(said.err.find("was sent to it"), std::string::npos) << said.err;
  }
  EXPECT_NE(sluice("run m.click IN=long.pcap --device emu").err.find("no packet of EtherMirror@2 was sent to it"),
            std::string::npos);
  EXPECT_TRUE(sluice("run m.click IN=long.pcap --device emu -q").err.empty());
  EXPECT_EQ(sluice("run m.click IN=long.pcap").err.find("was sent to it"), std::string::npos);
}

}  // namespace
}  // namespace sluice
