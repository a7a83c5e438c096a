#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "elements/register_all.h"
#include "elements/stage_element.h"
#include "elements/testing.h"
#include "net/link.h"

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

// Whether a parser that starts at the first byte may go anywhere: IPv6 extension headers follow.
bool goes_anywhere(const std::vector<uint8_t>& frame) {
  Link link;
  const auto size = static_cast<uint32_t>(frame.size());
  if (read_link(frame.data(), size, link) != LinkStatus::kOk || link.ether_type != kEtherTypeIpv6) return false;
  const uint32_t next = link.l3 + 6;
  return next < size && frame[next] != 6 && frame[next] != 17 && frame[next] != 58;
}
std::string registers(const testing::Passage& passage) {
  const Packet& p = passage.packet;
  return fmt::format("{} by {}: {} {} {}, {} {} {}, {} {:x}:{:x} {:x}:{:x} {} {} {}", passage.passed, passage.output,
                     p.data, p.end, p.wire_end, p.l3, p.l4, p.appended, p.key.family, p.key.src_hi, p.key.src_lo,
                     p.key.dst_hi, p.key.dst_lo, p.key.src_port, p.key.dst_port, to_string(p.reason));
}

// Devices have the first 128 bytes of a long frame alone, and give its first 48 back (exec/device/record.h): to stages
// of headers no other byte matters, and they change none.
TEST(FrameUse, StagesOfHeadersTouchNothingBehindThem) {
  constexpr uint32_t kRegion = 128, kEdited = 48;
  std::mt19937 random(7);
  uint32_t passed = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto kind = random() % 4;
    PacketBuilder b = kind == 0   ? udp4("10.0.0.1", "192.0.2.9").ports(1, 2)
                      : kind == 1 ? tcp4("10.0.0.1", "192.0.2.9").ports(1, 2)
                      : kind == 2 ? udp6("2001:db8::1", "2001:db8::2").ports(1, 2)
                                  : icmp4("10.0.0.1", "192.0.2.9");
    for (auto tags = random() % 3; tags > 0; --tags) b.vlan(static_cast<uint16_t>(random() % 4096));
    std::vector<uint8_t> frame = b.size(kRegion + 1 + random() % 200).build();
    // Of other versions, lengths and protocols, too.
    for (auto flips = random() % 4; flips > 0; --flips) frame[random() % 70] = static_cast<uint8_t>(random());
    if (goes_anywhere(frame)) continue;
    std::vector<uint8_t> other = frame;
    for (size_t at = kRegion; at < other.size(); ++at) other[at] = static_cast<uint8_t>(random());
    for (const char* chain : {"IPInput -> DecIPTTL -> SetIPDSCP(3)", "EtherMirror -> IPInput -> DecIPTTL",
                              "IPInput -> SetIPDSCP(5) -> EtherRewrite(02:00:00:00:00:01, 02:00:00:00:00:02)"}) {
      const testing::Passage one = testing::expect(frame).through(chain), two = testing::expect(other).through(chain);
      ASSERT_EQ(one.error, "");
      passed += one.passed ? 1 : 0;
      ASSERT_EQ(registers(one), registers(two)) << chain << ' ' << i;
      for (size_t at = 0; at < frame.size(); ++at) {
        const uint8_t a = one.storage[kHeadroom + at], c = two.storage[kHeadroom + at];
        ASSERT_EQ(at < kEdited ? c : frame[at], a) << chain << ' ' << i << ", byte " << at;
        if (at >= kEdited) {
          ASSERT_EQ(other[at], c) << chain << ' ' << i << ", byte " << at;
        }
      }
    }
  }
  EXPECT_GT(passed, 3000u);
}

}  // namespace
}  // namespace sluice
