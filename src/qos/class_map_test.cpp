#include "qos/class_map.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "net/checksum.h"

namespace sluice {
namespace {

TEST(ClassMap, ThreePrioritiesFollowRfc4594AndTheRestIsDefault) {
  constexpr ClassMap map = ClassMap::three_priorities();
  // Written out from RFC 4594, RFC 5865 and RFC 2597.
  const std::map<unsigned, unsigned> known = {
      {46, 0}, {44, 0}, {40, 0}, {48, 0}, {56, 0},                             // EF, VA, CS5, CS6, CS7
      {10, 1}, {12, 1}, {14, 1}, {18, 1}, {20, 1}, {22, 1}, {26, 1}, {28, 1},  // AF1x, AF2x, AF31, AF32
      {30, 1}, {34, 1}, {36, 1}, {38, 1}, {16, 1}, {24, 1}, {32, 1}};          // AF33, AF4x, CS2, CS3, CS4
  for (unsigned dscp = 0; dscp < 64; ++dscp) {
    const auto at = known.find(dscp);
    EXPECT_EQ(map.class_of(dscp), at == known.end() ? 2u : at->second) << dscp;
  }
}

RC_GTEST_PROP(ClassMap, HoldsAnyMap, ()) {
  ClassMap map;
  map.fill(*rc::gen::inRange(0u, kMaxQosClasses));
  std::map<unsigned, unsigned> oracle;
  for (unsigned dscp = 0; dscp < 64; ++dscp) oracle[dscp] = map.class_of(0);
  const auto changes = *rc::gen::container<std::vector<std::pair<unsigned, unsigned>>>(
      rc::gen::pair(rc::gen::inRange(0u, 64u), rc::gen::inRange(0u, kMaxQosClasses)));
  for (const auto& [dscp, value] : changes) {
    map.set(dscp, value);
    oracle[dscp] = value;
  }
  for (unsigned dscp = 0; dscp < 64; ++dscp) RC_ASSERT(map.class_of(dscp) == oracle[dscp]);
}

TEST(RemarkMap, SetsSixBitsKeepsEcnAndMendsTheChecksum) {
  RemarkMap map;
  for (unsigned dscp = 0; dscp < 64; ++dscp) {
    map.dscp[3][1] = static_cast<uint8_t>(dscp);
    for (unsigned traffic_class = 0; traffic_class < 256; ++traffic_class) {
      uint8_t ip[20] = {
          0x45, static_cast<uint8_t>(traffic_class), 0, 20, 1, 2, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
      store_be16(ip + 10, ipv4_header_checksum(ip, 20));
      EXPECT_EQ(dscp_of(ip, 4), traffic_class >> 2);
      remark(map, 3, Color::kYellow, ip, 4);
      EXPECT_EQ(ip[1], dscp << 2 | (traffic_class & 3));
      EXPECT_TRUE(ipv4_checksum_ok(ip, 20));
      const uint8_t before[2] = {ip[0], ip[1]};
      remark(map, 3, Color::kGreen, ip, 4);  // kept
      EXPECT_EQ(ip[1], before[1]);

      uint8_t six[4] = {static_cast<uint8_t>(0x60 | traffic_class >> 4),
                        static_cast<uint8_t>(traffic_class << 4 | 0x0a), 0xbc, 0xde};
      EXPECT_EQ(dscp_of(six, 6), traffic_class >> 2);
      remark(map, 3, Color::kYellow, six, 6);
      EXPECT_EQ(dscp_of(six, 6), dscp);
      EXPECT_EQ(six[0] >> 4, 6);
      EXPECT_EQ(six[1] >> 4 & 3, traffic_class & 3);
      EXPECT_EQ(six[1] & 15, 0x0a);  // the flow label
    }
  }
}

}  // namespace
}  // namespace sluice
