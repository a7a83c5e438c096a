#include <gtest/gtest.h>

#include <set>
#include <string>

#include "elements/register_all.h"
#include "elements/stage_element.h"

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

}  // namespace
}  // namespace sluice
