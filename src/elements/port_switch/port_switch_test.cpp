#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

// A packet that leaves the router by `port`, through PortSwitch(4, 65535, 0).
testing::Passage switched(unsigned port, const std::string& rest) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("sluice_port_switch_{}_{}", ::getpid(), port);
  fs::create_directories(folder);
  std::ofstream(folder / "rib") << "0.0.0.0/0 a\n";
  std::ofstream(folder / "adj") << fmt::format("a 02:00:00:00:00:0a 02:00:00:00:00:01 {}\n", port);
  const std::string before = fmt::format(
      "RouteTable(fib, FILE \"{0}/rib\"); AdjacencyTable(adj, FILE \"{0}/adj\", ROUTES fib);\n"
      "ps :: PortSwitch(4, 65535, 0); ps[1] -> Discard; ps[2] -> Discard; {1}",
      folder.string(), rest);
  auto passage =
      expect(udp4("10.0.0.1", "192.0.2.7")).through("IPInput -> IPRoute(fib) -> AdjacencyRewrite(adj) -> ps", before);
  fs::remove_all(folder);
  return passage;
}

TEST(PortSwitch, EachPortHasItsOutput) {
  switched(4, "").passes();  // output 0 goes on
  switched(65535, "").leaves_by(1);
  switched(0, "").leaves_by(2);
}

TEST(PortSwitch, OthersAreDroppedWhereNothingTakesThem) {
  switched(5, "").drops(DropReason::kUnconnectedOutput);
}

TEST(PortSwitch, OthersThatGoOnGetNoReason) {
  const testing::Passage passage = switched(5, "ps[3] -> Discard;");
  passage.leaves_by(3);
  EXPECT_EQ(passage.packet.reason, DropReason::kNone);
}

TEST(PortSwitch, PortsAreCheckedWhereTheyStand) {
  EXPECT_NE(testing::findings_of("PortSwitch(1, 1)").find("this port is there twice"), std::string::npos);
  EXPECT_NE(testing::findings_of("PortSwitch(65536)"), "");
  EXPECT_NE(testing::findings_of("PortSwitch()"), "");
  EXPECT_NE(testing::findings_of("PortSwitch(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15)").find("more than 14 ports"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice
