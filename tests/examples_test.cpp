// The graphs of examples/ load as they are, and give the plain elements' bytes on the CPU and on a device.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::Said;

struct ExampleGraph {
  const char* file;
  const char* plain;  // the same without ports, GPUs and batches
  const char* defines;
};
constexpr ExampleGraph kExampleGraphs[] = {
    {"gpu_bounce_lists.click", "EtherMirror", ""},
    {"gpu_bounce_regions.click", "EtherMirror", ""},
    {"gpu_bounce_shared.click", "EtherMirror", ""},
    {"gpu_crc_lists.click", "SetCRC32 -> CheckCRC32", ""},
    {"gpu_crc_regions.click", "SetCRC32 -> CheckCRC32", " max_pkt_size=1518"},
    {"gpu_lookup.click", "Classifier(30/00%80, -)", ""},
};

class ExamplesTest : public testing::CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ASSERT_EQ(sluice("gen traffic --packets 700 --flows 60 --ipv6 0 --out t.pcap").code, 0);
  }
  static std::string example(const std::string& file) { return std::string(SLUICE_SOURCE_DIR "/examples/") + file; }
};

TEST_F(ExamplesTest, EveryGraphIsHere) {
  std::set<std::string> known, found;
  for (const ExampleGraph& g : kExampleGraphs) known.insert(g.file);
  for (const auto& entry : std::filesystem::directory_iterator(example(""))) {
    if (entry.path().extension() == ".click") found.insert(entry.path().filename());
  }
  EXPECT_EQ(found, known);
}

TEST_F(ExamplesTest, GraphsGiveThePlainElementsBytes) {
  for (const ExampleGraph& g : kExampleGraphs) {
    SCOPED_TRACE(g.file);
    const bool two = std::string_view(g.plain).starts_with("Classifier");
    write("plain.click", two ? std::string("FromDump(t.pcap) -> c :: ") + g.plain +
                                   "; c[0] -> ToDump(0.want); c[1] -> ToDump(1.want);\n"
                             : std::string("FromDump(t.pcap) -> ") + g.plain + " -> ToDump(0.want);\n");
    ASSERT_EQ(sluice("run plain.click").code, 0);
    EXPECT_GT(read("0.want").size() + (two ? read("1.want").size() : 0), 700u * 60);
    for (const char* options :
         {" --device cpu", " --device cpu --workers 2", " --device emu", " --device emu --mode persistent",
          " --device emu --mode launch --transport staged", " --packet-scheduler"}) {
      // The packet scheduler drops where a Pipeliner that does not block is full, so it takes one graph without.
      if (std::string_view(options) == " --packet-scheduler" && std::string_view(g.file) != "gpu_bounce_lists.click")
        continue;
      SCOPED_TRACE(options);
      const Said said = sluice("run " + example(g.file) + g.defines + options + " --map dpdk:0=pcap:t.pcap,0.out" +
                               (two ? " --map dpdk:1=pcap:,1.out" : ""));
      ASSERT_EQ(said.code, 0) << said.err;
      EXPECT_NE(said.err.find("there are no DPDK ports: DPDKInfo has no effect"), std::string::npos) << said.err;
      EXPECT_TRUE(read("0.out") == read("0.want"));
      if (two) {
        EXPECT_TRUE(read("1.out") == read("1.want"));
      }
    }
  }
}

TEST_F(ExamplesTest, PacketsLongerThanARegionAreDroppedAndCounted) {
  const Said said =
      sluice("run " + example("gpu_crc_regions.click") + " --device emu -o json --map dpdk:0=pcap:t.pcap,o");
  ASSERT_EQ(said.code, 0) << said.err;
  const uint64_t out = said.json()["packets_out"];
  EXPECT_GT(out, 0u);
  EXPECT_LT(out, 700u);
  EXPECT_EQ(said.json()["drops"]["too-big"], 700 - out) << said.out;
}

TEST_F(ExamplesTest, NamesMissingParts) {
  const auto check = [&](const std::string& text) {
    write("t.click", text);
    return sluice("check t.click --map dpdk:0=pcap:t.pcap");
  };
  const Said table =
      check("FromDPDKDevice(0) -> CheckIPHeader(14) -> GPUIPLookup(0/0 0, LOOKUP_TABLE 3) -> ToDPDKDevice(0);\n");
  EXPECT_EQ(table.code, 1);
  EXPECT_NE(table.err.find("tables are not called by number"), std::string::npos) << table.err;
  const Said word = check("DPDKInfo(NB_MBUF many); FromDPDKDevice(0) -> ToDPDKDevice(0);\n");
  EXPECT_EQ(word.code, 1);
  EXPECT_NE(word.err.find("NB_MBUF"), std::string::npos) << word.err;
  EXPECT_EQ(check("DPDKInfo(NB_MBUFS 1); FromDPDKDevice(0) -> ToDPDKDevice(0);\n").code, 1);
}

}  // namespace
}  // namespace sluice
