#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "elements/register_all.h"
#include "elements/stage_element.h"
#include "elements/testing.h"

namespace sluice {
namespace {

struct Silent {
  static constexpr FieldMask kReads = kFieldFrame;
  static constexpr FieldMask kWrites = kFieldReason;
};
struct SilentMover {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldExtent;
};
struct LengthReader {
  static constexpr FieldMask kReads = kFieldExtent;
  static constexpr FieldMask kWrites = kFieldReason;
};
struct Told {
  static constexpr FieldMask kReads = kFieldFrame;
  static constexpr FieldMask kWrites = kFieldFrame;
  static constexpr FrameUse kFrameUse = FrameUse::kHeaders;
};

// What is not said is taken for the most.
TEST(FrameUse, AStageThatTouchesTheFrameAndSaysNothingMayReadAnywhere) {
  EXPECT_EQ(StageTraits{}.frame, FrameUse::kAnywhere);
  EXPECT_EQ(traits_of<Silent>().frame, FrameUse::kAnywhere);
  EXPECT_EQ(traits_of<SilentMover>().frame, FrameUse::kAnywhere);
  EXPECT_EQ(traits_of<LengthReader>().frame, FrameUse::kNone);
  EXPECT_EQ(traits_of<Told>().frame, FrameUse::kHeaders);
}

TEST(FrameUse, OfEveryClass) {
  using enum FrameUse;
  Registry registry;
  register_elements(registry);
  for (const auto& [name, use] : {std::pair{"ACL", kNone},
                                  {"IPRoute", kNone},
                                  {"IPLookup", kNone},
                                  {"Paint", kNone},
                                  {"PaintSwitch", kNone},
                                  {"PortSwitch", kNone},
                                  {"Counter", kNone},
                                  {"Null", kNone},
                                  {"Truncate", kNone},
                                  {"IPInput", kHeaders},
                                  {"Bridge", kHeaders},
                                  {"DecIPTTL", kHeaders},
                                  {"AdjacencyRewrite", kHeaders},
                                  {"EtherEncap", kHeaders},
                                  {"EtherRewrite", kHeaders},
                                  {"EtherMirror", kHeaders},
                                  {"SetIPDSCP", kHeaders},
                                  {"SetCRC32", kPayload},
                                  {"CheckCRC32", kPayload},
                                  {"Classifier", kAnywhere},
                                  {"Strip", kAnywhere},
                                  {"CheckIPHeader", kAnywhere},
                                  {"CheckIPHeader2", kAnywhere},
                                  {"CheckIP6Header", kAnywhere},
                                  {"MarkIPHeader", kAnywhere},
                                  {"MarkIP6Header", kAnywhere},
                                  {"GetIPAddress", kAnywhere},
                                  {"Unstrip", kInFront}}) {
    const ElementClass* found = registry.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->make(name)->stage_traits().frame, use) << name;
  }
}

// Who pushes bytes says how far, or is taken to need all the room that there is: where frames lie close, others are
// there.
TEST(FrameUse, StagesThatPushAFewBytesSayHowMany) {
  Registry registry;
  register_elements(registry);
  for (const auto& each : registry.classes()) {
    const StageTraits t = each->make(each->name)->stage_traits();
    const int32_t few = each->name == "AdjacencyRewrite" ? 4 : each->name == "IPGWOptions" ? 0 : kHeadroom;
    EXPECT_EQ(t.writes_before, few) << each->name;
  }
}

// Who changes a frame's extent and writes no byte of it: these take from the end, but for two, which say by how much
// the first byte moves. Devices go by that (exec/device/offload.cpp): a class that joins them has to say so too.
TEST(FrameUse, StagesThatMoveTheFirstByteSayByHowMuch) {
  Registry registry;
  register_elements(registry);
  std::set<std::string> extents;
  for (const auto& each : registry.classes()) {
    const ElementClass& c = *each;
    const auto element = c.make(c.name);
    const StageTraits t = element->stage_traits();
    if (element->kind() == ElementKind::kStage && (t.writes & kFieldExtent) != 0 && (t.writes & kFieldFrame) == 0) {
      extents.insert(c.name);
    }
    EXPECT_EQ(t.moves_by, 0) << c.name;  // nothing is configured
  }
  EXPECT_EQ(extents,
            (std::set<std::string>{"CheckCRC32", "CheckIP6Header", "CheckIPHeader", "CheckIPHeader2", "IPInput",
                                   "MarkIP6Header", "MarkIPHeader", "Strip", "Truncate", "Unstrip"}));
}

// An element, by the outputs that it has, and which bytes of a frame it says that it reads or writes.
struct Declares {
  std::string element;
  std::optional<ByteRanges> bytes;
  unsigned outputs = 1;

  std::string text() const {
    std::string all = "x :: " + element + ";";
    for (unsigned i = 1; i < outputs; ++i) all += fmt::format(" x[{}] -> Discard;", i);
    return all;
  }
};
const std::vector<Declares>& elements_that_declare() {
  static const std::vector<Declares> all = {
      {"EtherMirror", ByteRanges{{0, 12}}},
      {"GPUEtherMirrorCoalescent(FROM 0, TO 14)", ByteRanges{{0, 12}}},
      {"EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:02)", ByteRanges{{0, 12}}},
      {"EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)", ByteRanges{{-14, 0}}},
      {"Strip(14)", ByteRanges{}},
      {"Unstrip(14)", ByteRanges{}},
      {"GetIPAddress(30)", ByteRanges{{30, 34}}},
      {"Classifier(12/0800, -)", ByteRanges{{12, 14}}, 2},
      {"Classifier(0/7?, !0/40%c0 50/8?%f0, 100/0000 20/08??00, -)", ByteRanges{{0, 1}, {20, 23}, {50, 51}, {100, 102}},
       4},
      {"Classifier(1/4?, 60/8?, 90/7?, 120/0?, 150/40, -)", ByteRanges{{1, 2}, {60, 91}, {120, 121}, {150, 151}}, 6},
      {"Classifier(-)", ByteRanges{}},
  };
  return all;
}

TEST(FrameUse, StagesWhoseBytesThePacketDoesNotDecideSayWhichTheyAre) {
  const auto declared = [](const std::string& before) -> std::optional<ByteRanges> {
    const std::string text = before + " InfiniteSource -> IPInput -> x -> Discard;";
    auto graph = parse_click(text, "t");
    EXPECT_TRUE(graph.ok()) << text;
    if (!graph.ok()) return std::nullopt;
    auto router = build_router(*graph, testing::all_elements(), text);
    EXPECT_TRUE(router.ok()) << text << (router.ok() ? "" : to_string(router.error()));
    return router.ok() ? router->find("x")->stage_traits().bytes : std::nullopt;
  };
  for (const Declares& d : elements_that_declare()) EXPECT_EQ(declared(d.text()), d.bytes) << d.element;
  for (const char* element : {"IPInput", "CheckIPHeader(14)", "MarkIPHeader(14)", "GetIPAddress(IP src)", "DecIPTTL",
                              "SetIPDSCP(3)", "SetCRC32", "CheckCRC32", "IPFilter(allow ip[8] > 3)"}) {
    EXPECT_EQ(declared(std::string("x :: ") + element + ";"), std::nullopt) << element;
  }
}

bool in(const ByteRanges& ranges, int64_t at) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const ByteRange& r) { return r.from <= at && at < r.to; });
}
std::string registers(const testing::Passage& passage) {
  const Packet& p = passage.packet;
  return fmt::format("{} by {}: {} {} {}, {} {} {}, {} {:x} {}", passage.passed, passage.output, p.data, p.end,
                     p.wire_end, p.l3, p.l4, p.appended, p.key.family, p.key.dst_lo, to_string(p.reason));
}

// Other bytes than it declares neither matter to a stage nor change, whatever the frame and its length are; and the
// first and the last of each range do one or the other.
TEST(FrameUse, StagesTouchTheBytesThatTheyDeclare) {
  std::mt19937 random(7);
  for (const Declares& d : elements_that_declare()) {
    SCOPED_TRACE(d.element);
    const ByteRanges& bytes = d.bytes.value();
    std::set<int32_t> ends, touched;
    for (const ByteRange& r : bytes) ends.insert({r.from, r.to - 1});
    for (uint32_t i = 0; i < 400; ++i) {
      std::vector<uint8_t> frame(i < 21 ? i : random() % 180);
      // What patterns look for is often there.
      constexpr uint8_t kUsual[] = {0, 0, 0, 8, 0x40, 0x78, 0x82};
      for (uint8_t& byte : frame) {
        const auto value = static_cast<uint32_t>(random() % 8);
        byte = value < std::size(kUsual) ? kUsual[value] : static_cast<uint8_t>(random());
      }
      const auto size = static_cast<int64_t>(frame.size());
      const testing::Passage one = testing::expect(frame).through("x", d.text());
      ASSERT_EQ(one.error, "");
      std::vector<uint8_t> other = frame;
      for (int64_t at = 0; at < size; ++at) {
        if (!in(bytes, at)) other[static_cast<size_t>(at)] = static_cast<uint8_t>(random());
      }
      const testing::Passage two = testing::expect(other).through("x", d.text());
      ASSERT_EQ(registers(one), registers(two)) << i;
      for (int64_t at = -kHeadroom; at < size + int64_t{kTailroom}; ++at) {
        const uint8_t made = one.storage[static_cast<size_t>(at + kHeadroom)];
        const bool there = at >= 0 && at < size;
        const uint8_t was = there ? frame[static_cast<size_t>(at)] : 0xa5;
        if (made != was) touched.insert(static_cast<int32_t>(at));
        if (in(bytes, at)) {
          ASSERT_EQ(made, two.storage[static_cast<size_t>(at + kHeadroom)]) << i << ", byte " << at;
        } else {
          ASSERT_EQ(made, was) << i << ", byte " << at;
        }
      }
      for (const int32_t at : ends) {
        if (at < 0 || at >= size || touched.count(at) != 0) continue;
        std::vector<uint8_t> changed = frame;
        changed[static_cast<size_t>(at)] ^= 0xff;
        const testing::Passage three = testing::expect(changed).through("x", d.text());
        if (registers(one) != registers(three)) touched.insert(at);
      }
    }
    for (const int32_t at : ends) EXPECT_EQ(touched.count(at), 1u) << "byte " << at << " does not matter";
  }
}

}  // namespace
}  // namespace sluice
