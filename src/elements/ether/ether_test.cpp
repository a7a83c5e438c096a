#include <gtest/gtest.h>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

std::vector<uint8_t> macs(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.begin() + 12};
}

const std::vector<uint8_t> kRewritten{2, 0, 0, 0, 0, 0x22, 2, 0, 0, 0, 0, 0x11};

TEST(EtherEncap, PutsAHeaderBeforeThePacket) {
  const auto ip = udp4("10.0.0.1", "192.0.2.7").no_link().build();
  const auto bytes = expect(ip).through("EtherEncap(0x0800, 02:00:00:00:00:11, 02:00:00:00:00:22)").passes().bytes();
  ASSERT_EQ(bytes.size(), ip.size() + 14);
  EXPECT_EQ(macs(bytes), kRewritten);
  EXPECT_EQ(bytes[12], 8);
  EXPECT_EQ(bytes[13], 0);
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin() + 14, bytes.end()), ip);
}

TEST(EtherEncap, TheHeadroomEnds) {
  std::string chain = "Null";
  for (int i = 0; i < 9; ++i) chain += " -> EtherEncap(1, 02:00:00:00:00:11, 02:00:00:00:00:22)";
  EXPECT_EQ(expect({1, 2, 3}).through(chain).passes().packet.data, -126);
  expect({1, 2, 3})
      .through(chain + " -> EtherEncap(1, 02:00:00:00:00:11, 02:00:00:00:00:22)")
      .drops(DropReason::kNoHeadroom);
}

TEST(EtherRewrite, WritesBothAddressesAndNothingElse) {
  auto frame = udp4("10.0.0.1", "192.0.2.7").build();
  const auto bytes = expect(frame).through("EtherRewrite(02:00:00:00:00:11, 02:00:00:00:00:22)").passes().bytes();
  EXPECT_EQ(macs(bytes), kRewritten);
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin() + 12, bytes.end()),
            std::vector<uint8_t>(frame.begin() + 12, frame.end()));
  expect(std::vector<uint8_t>(13))
      .through("EtherRewrite(02:00:00:00:00:11, 02:00:00:00:00:22)")
      .drops(DropReason::kTruncatedL2);
}

TEST(EtherMirror, TwiceIsNothing) {
  const auto frame = udp4("10.0.0.1", "192.0.2.7").build();
  const auto once = expect(frame).through("EtherMirror").passes().bytes();
  EXPECT_EQ(std::vector<uint8_t>(once.begin(), once.begin() + 6),
            std::vector<uint8_t>(frame.begin() + 6, frame.begin() + 12));
  EXPECT_EQ(expect(frame).through("EtherMirror -> EtherMirror").passes().bytes(), frame);
  expect(std::vector<uint8_t>(13)).through("EtherMirror").drops(DropReason::kTruncatedL2);
}

}  // namespace
}  // namespace sluice
