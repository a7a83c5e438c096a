#include <gtest/gtest.h>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

TEST(Truncate, LeavesAtMostItsLength) {
  const std::vector<uint8_t> bytes{1, 2, 3, 4, 5};
  for (uint32_t length : {0u, 1u, 4u, 5u, 6u, 262144u}) {
    const auto kept = std::min<size_t>(length, bytes.size());
    const auto p = expect(bytes).through("Truncate(" + std::to_string(length) + ")").passes();
    EXPECT_EQ(p.bytes(), std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(kept))) << length;
    EXPECT_EQ(p.packet.wire_length(), 5u) << length;
    EXPECT_EQ(expect(bytes)
                  .through("Truncate(" + std::to_string(length) + ", EXTRA_LENGTH false)")
                  .passes()
                  .packet.wire_length(),
              kept);
  }
  EXPECT_EQ(expect(bytes).through("Strip(2) -> Truncate(2)").passes().bytes(), (std::vector<uint8_t>{3, 4}));
}

TEST(Truncate, KeepsTheLengthOnTheWireOfWhatIsShortEnough) {
  for (const char* extra : {"true", "false"}) {
    const auto p =
        expect({1, 2, 3}).captured_of(90).through("Truncate(3, EXTRA_LENGTH " + std::string(extra) + ")").passes();
    EXPECT_EQ(p.packet.length(), 3u);
    EXPECT_EQ(p.packet.wire_length(), 90u);
  }
  EXPECT_EQ(expect({1, 2, 3}).captured_of(90).through("Truncate(2)").passes().packet.wire_length(), 90u);
}

// A summing stage behind it says whether bytes are missing on the wire.
TEST(Truncate, MakesShorterPacketsOnlyWithoutExtraLength) {
  const std::vector<uint8_t> bytes(60, 7);
  expect(bytes).through("Truncate(40) -> SetCRC32").drops(DropReason::kCapturedTooShort);
  EXPECT_EQ(expect(bytes).through("Truncate(40, EXTRA_LENGTH false) -> SetCRC32").passes().bytes(),
            expect(std::vector<uint8_t>(40, 7)).through("SetCRC32").passes().bytes());
}

// An end in the head room is no offset of the frame.
TEST(Truncate, RefusesAnEndBeforeTheFrame) {
  const std::string encap = "EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)";
  expect({1, 2, 3}).through(encap + " -> Truncate(13)").drops(DropReason::kNoHeadroom);
  EXPECT_EQ(expect({1, 2, 3}).through(encap + " -> Truncate(14)").passes().packet.length(), 14u);
  EXPECT_EQ(expect({1, 2, 3}).through(encap + " -> Truncate(17) -> SetCRC32").passes().packet.length(), 21u);
  EXPECT_EQ(expect(std::vector<uint8_t>(20)).through("Strip(14) -> " + encap + " -> Truncate(13)").passes().bytes(),
            (std::vector<uint8_t>{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8}));
}

}  // namespace
}  // namespace sluice
