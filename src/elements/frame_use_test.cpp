#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sluice
