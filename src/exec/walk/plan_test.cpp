// Which graphs leave alone what lies between frames that are as close as a capture has them.
#include "exec/walk/plan.h"

#include <gtest/gtest.h>

#include "elements/register_all.h"
#include "graph/router.h"

namespace sluice {
namespace {

bool stays_close(const std::string& chain) {
  Registry registry;
  register_elements(registry);
  const std::string text = "FromDump(a.pcap) -> " + chain + " -> Discard;";
  auto graph = parse_click(text, "g");
  auto router = build_router(*graph, registry, text);
  EXPECT_TRUE(router.ok()) << chain << (router.ok() ? "" : to_string(router.error()));
  if (!router.ok()) return false;
  auto plan = make_plan(*router);
  EXPECT_TRUE(plan.ok()) << chain;
  return plan.ok() && plan->stays_close;
}

TEST(Plan, GraphsThatStayWithinFramesMayHaveThemClose) {
  for (const char* chain :
       {"Counter", "IPInput -> DecIPTTL -> SetIPDSCP(10)", "EtherMirror", "Classifier(12/0800)",
        "IPInput -> IPGWOptions(10.0.0.1)", "Print(a) -> Tee(1)", "Truncate(20)", "IPInput -> DecIPTTL -> Counter"}) {
    EXPECT_TRUE(stays_close(chain)) << chain;
  }
}

// What is pushed, appended or uncovered, and what is parsed where a frame may have no link header.
TEST(Plan, OthersNeedRoomAroundFrames) {
  for (const char* chain : {"EtherEncap(0x0800, 2:0:0:0:0:1, 2:0:0:0:0:2)", "SetCRC32", "Strip(14) -> Unstrip(14)",
                            "Strip(14) -> CheckIPHeader", "Strip(14)"}) {
    EXPECT_FALSE(stays_close(chain)) << chain;
  }
}

}  // namespace
}  // namespace sluice
