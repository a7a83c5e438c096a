// Files in place of devices' ports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "graph/click/port_map.h"
#include "graph/click/print.h"
#include "graph/click/syntax.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

PortMap port_map(const char* text) {
  auto map = parse_port_map(text);
  EXPECT_TRUE(map.ok()) << to_string(map.error());
  return map.ok() ? *map : PortMap();
}

ParseOptions with(std::vector<PortMap> ports) {
  ParseOptions options;
  options.known_classes = {"FromDump", "FromMemory", "ToDump", "ToMemory", "EtherMirror"};
  options.ports = std::move(ports);
  return options;
}

TEST(PortMap, IsReadFromText) {
  const PortMap both = port_map("dpdk:0=pcap:a.pcap,b.pcap");
  EXPECT_EQ(both.port, "dpdk:0");
  EXPECT_EQ(both.in, "a.pcap");
  EXPECT_EQ(both.out, "b.pcap");
  EXPECT_FALSE(both.memory);
  const PortMap address = port_map("dpdk:0000:5e:00.1=memory:/x/y=z");
  EXPECT_EQ(address.port, "dpdk:0000:5e:00.1");
  EXPECT_EQ(address.in, "/x/y=z");
  EXPECT_EQ(address.out, "");
  EXPECT_TRUE(address.memory);
  const PortMap written = port_map("dpdk:1=pcap:,b.pcap");
  EXPECT_EQ(written.in, "");
  EXPECT_EQ(written.out, "b.pcap");
}

TEST(PortMap, SaysWhatIsWrong) {
  for (const auto& [text, says] : {std::pair{"dpdk:0", "it names nothing to use for the port"},
                                   {"dpkd:0=pcap:a", "'dpkd:0' is not a port: there are dpdk:N and device:NAME"},
                                   {"dpdk:=pcap:a", "'dpdk:' is not a port"},
                                   {"dpdk=pcap:a", "'dpdk' is not a port"},
                                   {"dpdk:0=a.pcap", "neither pcap: nor memory: is given for the port"},
                                   {"dpdk:0=pcap:", "a file is missing"},
                                   {"dpdk:0=pcap:,", "a file is missing"},
                                   {"dpdk:0=pcap:a,", "a file is missing"}}) {
    SCOPED_TRACE(text);
    const auto map = parse_port_map(text);
    ASSERT_FALSE(map.ok());
    EXPECT_THAT(map.error().message, HasSubstr(says));
    EXPECT_THAT(map.error().hint, HasSubstr("dpdk:0=pcap:in.pcap,out.pcap"));
  }
}

TEST(PortMap, FilesStandWherePortsStood) {
  const auto graph = parse_click(
      "FromDPDKDevice(0, N_QUEUES 4, BURST 32) -> EtherMirror -> ToDPDKDevice(PORT 0, BLOCKING true);\n"
      "in :: FromDevice(eth0) -> ToDevice(\"eth0\");\n",
      "t.click", with({port_map("dpdk:0=pcap:a b.pcap,out.pcap"), port_map("device:eth0=memory:c.pcap")}));
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  ASSERT_EQ(graph->elements.size(), 5u);
  const char* const want[][2] = {{"FromDump", "\"a b.pcap\""},
                                 {"EtherMirror", ""},
                                 {"ToDump", "out.pcap"},
                                 {"FromMemory", "c.pcap"},
                                 {"ToMemory", ""}};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(graph->elements[i].class_name, want[i][0]);
    EXPECT_EQ(graph->elements[i].configuration, want[i][1]);
  }
}

TEST(PortMap, APortThatIsOnlyWrittenNeedsNoInput) {
  const std::vector<PortMap> ports = {port_map("dpdk:1=pcap:,out.pcap"), port_map("dpdk:0=pcap:in.pcap")};
  const auto graph = parse_click("FromDPDKDevice(0) -> ToDPDKDevice(1);\n", "t.click", with(ports));
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  EXPECT_EQ(graph->elements[1].configuration, "out.pcap");
  const auto read = parse_click("FromDPDKDevice(1) -> ToDPDKDevice(0);\n", "t.click", with(ports));
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(to_string(read.error()), HasSubstr("t.click:1:1: error: --map gives port 'dpdk:1' nothing to read"));
}

TEST(PortMap, ReportsAnUnmappedPortAtItsPlace) {
  const auto graph =
      parse_click("FromDPDKDevice(1) -> ToDPDKDevice(0);\n", "t.click", with({port_map("dpdk:0=pcap:in.pcap")}));
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(to_string(graph.error()),
            "t.click:1:1: error: there is no port 'dpdk:1' here\n"
            "  FromDPDKDevice(1) -> ToDPDKDevice(0);\n"
            "  ^~~~~~~~~~~~~~\n"
            "  help: --map 'dpdk:1=pcap:IN,OUT' puts captures in its place\n"
            "error: 1 error in t.click\n");
  // Where nobody knows which classes exist, there may be such ports.
  EXPECT_TRUE(parse_click("FromDPDKDevice(1) -> ToDPDKDevice(0);\n", "t.click").ok());
}

}  // namespace
}  // namespace sluice
