// ClassBench rules and traces: fields, what may be absent, what is refused.
#include "formats/classbench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/trace.h"
#include "net/text.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(ClassBench, ReadsEveryField) {
  const auto set = parse_classbench(
      "# a comment\n\n"
      "@186.11.101.36/24\t20.69.109.43/32\t0 : 65535\t1521 : 1600\t0x06/0xFF\t0x1000/0x3000\t\r\n"
      "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n"
      "@2001:db8::1/32 ::/0 1 : 1 2 : 3 0x11/0xff 0x0000/0x0200",
      "f");
  ASSERT_TRUE(set.ok()) << to_string(set.error());
  ASSERT_EQ(set->rules.size(), 3u);
  const AclRule& r = set->rules[0];
  EXPECT_EQ(to_string(r.src), "186.11.101.0/24");
  EXPECT_EQ(to_string(r.dst), "20.69.109.43/32");
  EXPECT_EQ(r.dst_port_low, 1521);
  EXPECT_EQ(r.dst_port_high, 1600);
  EXPECT_EQ(r.protocol, 6);
  EXPECT_EQ(r.flags, 0x1000);
  EXPECT_EQ(r.flags_mask, 0x3000);
  EXPECT_EQ(r.line, 3u);
  EXPECT_FALSE(r.needs_ports);
  EXPECT_EQ(set->rules[1].family, 4);
  EXPECT_EQ(set->rules[1].protocol_mask, 0);
  EXPECT_EQ(set->rules[2].family, 6);
  EXPECT_EQ(to_string(set->rules[2].src), "2001:db8::/32");
}

TEST(ClassBench, AWildcardRuleMatchesItsFamilyAlone) {
  const auto set = parse_classbench("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n", "f");
  ASSERT_TRUE(set.ok());
  const auto flat = flatten(set->rules[0], 1);
  FlowKey key;
  key.family = 6;
  EXPECT_FALSE(matches(flat, key));
  key.family = 4;
  EXPECT_TRUE(matches(flat, key));
}

TEST(ClassBench, ReportsEveryBadLine) {
  const auto set = parse_classbench(
      "@1.2.3.4/33 1.2.3.4/32 0 : 1 0 : 1 0x06/0xFF\n"
      "1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 0x06/0xFF\n"
      "@1.2.3.4/32 1.2.3.4/32 9 : 1 0 : 1 0x06/0xFF\n"
      "@1.2.3.4/32 1.2.3.4/32 0 : 65536 0 : 1 0x06/0xFF\n"
      "@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 6\n"
      "@1.2.3.4/32 ::/0 0 : 1 0 : 1 0x06/0xFF\n"
      "@1.2.3.4/32 1.2.3.4/32 0 : 1 0 : 1 0x06/0xFF 0x0/0x0 more\n"
      "@1.2.3.4/32\n",
      "f");
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error().diagnostics.size(), 8u);
  const std::string text = to_string(set.error());
  EXPECT_THAT(text, HasSubstr("f:1:2: error: '1.2.3.4/33' is not a source prefix"));
  EXPECT_THAT(text, HasSubstr("help: write it 1 : 9"));
  EXPECT_THAT(text, HasSubstr("different address families"));
  EXPECT_THAT(text, HasSubstr("f:8:12: error: the line ends where a destination prefix should be"));
}

TEST(ClassBench, ManyErrorsStayBounded) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "x\n";
  const auto set = parse_classbench(text, "f");
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error().diagnostics.size(), Diagnostics::kLimit);
}

TEST(ClassBenchTrace, ReadsFiveSixAndSevenColumns) {
  const auto keys = parse_trace("# c\n1 2 3 4 6\n4294967295\t2\t65535\t4\t17\t9\n1 2 3 4 6 33559040 7\n\n", "t");
  ASSERT_TRUE(keys.ok()) << to_string(keys.error());
  ASSERT_EQ(keys->size(), 3u);
  EXPECT_EQ((*keys)[0].src_lo, 1u);
  EXPECT_EQ((*keys)[0].bits, FlowKey::kHasPorts);
  EXPECT_EQ((*keys)[1].src_lo, 0xffffffffu);
  EXPECT_EQ((*keys)[1].src_port, 65535);
  EXPECT_EQ((*keys)[1].flags, 0);
  EXPECT_EQ((*keys)[2].flags, 0x0200);  // SYN
  const auto text = to_trace(*keys);
  ASSERT_TRUE(text.ok());
  const auto again = parse_trace(*text, "t");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *keys);
}

TEST(ClassBenchTrace, ReportsEveryBadLine) {
  const auto keys = parse_trace("1 2 3 4\n1 2 3 x 6\n1 2 3 4 256\n1 2 3 4 6 7 8 9\n", "t");
  ASSERT_FALSE(keys.ok());
  EXPECT_EQ(keys.error().diagnostics.size(), 4u);
  EXPECT_THAT(to_string(keys.error()), HasSubstr("t:2:7: error: 'x' is not a destination port"));
}

}  // namespace
}  // namespace sluice
