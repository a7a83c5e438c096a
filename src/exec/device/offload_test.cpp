// Which bytes of frames the planner sends with records, and which it has back.
#include "exec/device/offload.h"

#include <gtest/gtest.h>

#include <string>

#include "elements/register_all.h"
#include "graph/router.h"

namespace sluice {
namespace {

// The first segment of a graph in which `chain` stands between a source and c :: Counter; `tables`: declared before it.
Offload offload_of(const std::string& chain, RecordChoice choice, const std::string& tables = {}) {
  Registry registry;
  register_elements(registry);
  const std::string text = tables + "out :: Counter -> Discard; FromDump(a.pcap) -> " + chain + " -> out;";
  auto graph = parse_click(text, "g");
  EXPECT_TRUE(graph.ok()) << text;
  if (!graph.ok()) return {};
  auto router = build_router(*graph, registry, text);
  EXPECT_TRUE(router.ok()) << chain << (router.ok() ? "" : to_string(router.error()));
  if (!router.ok()) return {};
  auto plan = make_plan(*router);
  EXPECT_TRUE(plan.ok()) << chain;
  if (!plan.ok()) return {};
  const std::vector<Offload> all = plan_offloads(*plan, *router, choice);
  for (size_t n = 0; n < all.size(); ++n) {
    if (plan->nodes[n].type == PlanNode::Type::kSegment) return all[n];
  }
  ADD_FAILURE() << "no segment: " << text;
  return {};
}

struct Crossing {
  ByteRanges in, out;
  bool in_by_packet, out_by_packet;
  uint32_t front;
  bool operator==(const Crossing&) const = default;
};
std::ostream& operator<<(std::ostream& to, const ByteRanges& ranges) {
  for (const ByteRange& r : ranges) to << '[' << r.from << ',' << r.to << ')';
  return to;
}
std::ostream& operator<<(std::ostream& to, const Crossing& c) {
  return to << "in " << c.in << (c.in_by_packet ? " by packet" : "") << ", out " << c.out
            << (c.out_by_packet ? " by packet" : "") << ", " << c.front << " in front";
}
Crossing crossing(const std::string& chain, RecordChoice choice) {
  const Offload o = offload_of(chain, choice);
  EXPECT_TRUE(o.on_device) << chain << ": " << o.why;
  const RecordShape& s = o.shape;
  // What goes in holds what comes back, and never all of the frame.
  if (s.in_by_packet != 0) {
    EXPECT_FALSE(o.whole_frames) << chain;
    EXPECT_TRUE(!o.writes_frame || s.out_by_packet != 0) << chain;
  }
  return {s.in, s.out, s.in_by_packet != 0, s.out_by_packet != 0, s.front};
}
Crossing header(const std::string& chain) {
  return crossing(chain, RecordChoice::kHeader);
}
Crossing address(const std::string& chain) {
  return crossing(chain, RecordChoice::kAddress);
}
constexpr uint32_t kFront = kRecordHeadroom;
constexpr const char* kEncap = "EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)";
constexpr const char* kRewrite = "EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:02)";
constexpr const char* kLookup = "rt :: LinearIPLookup(10.0.0.0/8 0, 0.0.0.0/0 0)";

TEST(Offload, HeaderRecordsCarryTheBytesThatTheStagesTouch) {
  EXPECT_EQ(header("EtherMirror"), (Crossing{{{0, 12}}, {{0, 12}}, true, true, 0}));
  EXPECT_EQ(header("Paint(1)"), (Crossing{{}, {}, true, false, 0}));
  EXPECT_EQ(header(kRewrite), (Crossing{{{0, 12}}, {{0, 12}}, true, true, 0}));
  EXPECT_EQ(header("GetIPAddress(30) -> " + std::string(kLookup)), (Crossing{{{30, 34}}, {}, true, false, 0}));
  // Ranges that touch or lie near are one, others stay apart; of what is only read nothing comes back.
  EXPECT_EQ(header("c :: Classifier(12/0800) -> EtherMirror"), (Crossing{{{0, 14}}, {{0, 12}}, true, true, 0}));
  EXPECT_EQ(header("c :: Classifier(100/0800 60/11) -> EtherMirror"),
            (Crossing{{{0, 12}, {60, 61}, {100, 102}}, {{0, 12}}, true, true, 0}));
  EXPECT_EQ(header("Classifier(27/11) -> EtherMirror").in, (ByteRanges{{0, 28}}));
  EXPECT_EQ(header("Classifier(28/11) -> EtherMirror").in, (ByteRanges{{0, 12}, {28, 29}}));
  EXPECT_EQ(header("Classifier(126/1122) -> EtherMirror").in, (ByteRanges{{0, 12}, {126, 128}}));
}

TEST(Offload, CountsBytesBehindStripFromTheFirstByteOfTheSegment) {
  EXPECT_EQ(header("Strip(14) -> GetIPAddress(16) -> " + std::string(kLookup) + " -> Unstrip(14) -> EtherMirror"),
            (Crossing{{{0, 12}, {30, 34}}, {{0, 12}}, true, true, 0}));
  EXPECT_EQ(header("Strip(4) -> Strip(10) -> EtherMirror"), (Crossing{{{14, 26}}, {{14, 26}}, true, true, 0}));
  // By whichever way packets come, if it is one number.
  EXPECT_EQ(header("c :: Classifier(0/02, -); c[0] -> Strip(14) -> m :: EtherMirror; c[1] -> Strip(14) -> m"),
            (Crossing{{{0, 1}, {14, 26}}, {{14, 26}}, true, true, 0}));
  EXPECT_EQ(header("c :: Classifier(0/02, -); c[0] -> Strip(14) -> m :: EtherMirror; c[1] -> Strip(10) -> m"),
            (Crossing{kRegionRange, kRegionRange, false, false, 0}));
  // Who touches nothing may stand anywhere.
  EXPECT_EQ(header("c :: Classifier(0/02, -); c[0] -> Strip(14) -> m :: Paint(2); c[1] -> Strip(10) -> m"),
            (Crossing{{{0, 1}}, {}, true, false, 0}));
}

TEST(Offload, BringsPushedHeadersBackInFront) {
  EXPECT_EQ(header(kEncap), (Crossing{{}, {}, true, true, kFront}));
  EXPECT_EQ(header(std::string("EtherMirror -> ") + kEncap), (Crossing{{{0, 12}}, {{0, 12}}, true, true, kFront}));
  EXPECT_EQ(header(std::string("Strip(14) -> ") + kEncap), (Crossing{{{0, 14}}, {{0, 14}}, true, true, 0}));
  // Behind it nobody knows where the frame begins.
  EXPECT_EQ(header(std::string(kEncap) + " -> EtherMirror"),
            (Crossing{kRegionRange, kRegionRange, false, false, kFront}));
  EXPECT_EQ(header(std::string(kEncap) + " -> Paint(1)"), (Crossing{{}, {}, true, true, kFront}));
}

TEST(Offload, BytesThatThePacketDecidesAreAllOfTheHeaders) {
  EXPECT_EQ(header("IPInput -> DecIPTTL"), (Crossing{kRegionRange, kRegionRange, false, false, 0}));
  EXPECT_EQ(header("IPInput"), (Crossing{kRegionRange, {}, false, false, 0}));
  // What is read decides what goes in, and what is written what comes back.
  EXPECT_EQ(header(std::string("IPInput -> ") + kRewrite), (Crossing{kRegionRange, {{0, 12}}, false, true, 0}));
  EXPECT_EQ(header("EtherMirror -> IPInput -> SetIPDSCP(3)"), (Crossing{kRegionRange, kRegionRange, false, false, 0}));
  // Past what a header record can hold frames that fit whole go alone.
  EXPECT_EQ(header("Classifier(127/1122) -> EtherMirror"), (Crossing{kRegionRange, {{0, 12}}, false, true, 0}));
  EXPECT_TRUE(offload_of("Classifier(127/1122) -> EtherMirror", RecordChoice::kHeader).whole_frames);
}

TEST(Offload, GatheredFramesAreOnePieceInWholeUnits) {
  EXPECT_EQ(address("EtherMirror"), (Crossing{{{0, 16}}, {{0, 12}}, true, true, 0}));
  EXPECT_EQ(address("Classifier(100/0800 60/11) -> EtherMirror"), (Crossing{{{0, 112}}, {{0, 12}}, true, true, 0}));
  EXPECT_EQ(address("GetIPAddress(30) -> " + std::string(kLookup)), (Crossing{{{16, 48}}, {}, true, false, 0}));
  EXPECT_EQ(address("Classifier(1000/11)"), (Crossing{{{1000 / 16 * 16, 1008}}, {}, true, false, 0}));
  EXPECT_EQ(address(kEncap), (Crossing{{{-16, 0}}, {{-14, 0}}, true, true, kFront}));
  EXPECT_EQ(address("Paint(1)"), (Crossing{{}, {}, true, false, 0}));
  EXPECT_FALSE(address("EtherMirror -> SetCRC32").in_by_packet);
  EXPECT_FALSE(address("IPInput -> DecIPTTL").in_by_packet);
}

// Patterns have no code on keys, although these read no more: they stay on the host, and the lookup behind them goes.
TEST(Offload, KeepsStagesWithoutCodeOnKeysOnTheHost) {
  const std::string tables = "RouteTable(fib, FILE rib); ";
  for (const RecordChoice choice : {RecordChoice::kKey, RecordChoice::kAuto}) {
    const Offload o =
        offload_of("IPInput -> IPFilter(deny dst port 80, allow all) -> r :: IPRoute(TABLE fib)", choice, tables);
    EXPECT_TRUE(o.on_device && o.keys) << o.why;
    EXPECT_EQ(o.begin, 2);
    EXPECT_EQ(o.end, 4) << "and what follows it";
  }
  // So many of them are an access list, which has.
  std::string many = "IPInput -> IPFilter(";
  for (int port = 1; port < 40; ++port) many += "deny src port " + std::to_string(1000 * port) + ", ";
  const Offload o = offload_of(many + "allow all) -> r :: IPRoute(TABLE fib)", RecordChoice::kKey, tables);
  EXPECT_TRUE(o.on_device && o.keys) << o.why;
  EXPECT_EQ(o.begin, 1);
  EXPECT_EQ(o.end, 4);
}

TEST(Offload, FewerBytesCrossPerPacket) {
  const auto bytes = [](const std::string& chain, RecordChoice choice) {
    const CrossingBytes b = crossing_bytes(offload_of(chain, choice));
    return std::pair(b.in, b.out);
  };
  EXPECT_EQ(bytes("EtherMirror", RecordChoice::kHeader), std::pair(64u, 64u));
  EXPECT_EQ(bytes("EtherMirror", RecordChoice::kAddress), std::pair(64u, 64u));
  EXPECT_EQ(bytes("IPInput -> DecIPTTL", RecordChoice::kHeader), std::pair(192u, 240u));
}

}  // namespace
}  // namespace sluice
