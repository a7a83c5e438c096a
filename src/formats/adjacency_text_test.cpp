#include "formats/adjacency_text.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

Rib rib_of(std::initializer_list<const char*> names) {
  Rib rib;
  for (const char* name : names) rib.intern(name);
  return rib;
}

std::string errors_of(const char* text) {
  auto model = parse_adjacencies(text, "adj", rib_of({"1", "2", "3"}));
  return model.ok() ? "" : to_string(model.error());
}

const AdjacencyModel::Neighbour& neighbour(const AdjacencyModel& model, uint32_t id, size_t which) {
  return model.neighbours()[model.group(id).members[which].neighbour];
}

TEST(AdjacencyText, ReadsNeighboursGroupsAndFlags) {
  const Rib rib = rib_of({"22", "2001:db8::1", "x", "y", "z"});
  auto model = parse_adjacencies(
      "# comment\n\n"
      "22 02:00:00:00:00:01 02-00-00-00-00-02 3\r\n"
      "2001:db8::1, 02:00:00:00:00:03, 02:00:00:00:00:04, 65535 vlan 4094 mtu 9000 weight 3 # why\n"
      "2001:db8::1 02:00:00:00:00:05 02:00:00:00:00:06 0\n"
      "x blackhole\ny\tlocal\n"
      "nobody drop\n",
      "adj", rib);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  ASSERT_EQ(model->group(1).members.size(), 1u);
  EXPECT_EQ(neighbour(*model, 1, 0).destination, (MacAddress{{2, 0, 0, 0, 0, 1}}));
  EXPECT_EQ(neighbour(*model, 1, 0).source, (MacAddress{{2, 0, 0, 0, 0, 2}}));
  EXPECT_EQ(neighbour(*model, 1, 0).port, 3);
  EXPECT_EQ(neighbour(*model, 1, 0).mtu, 1500);
  ASSERT_EQ(model->group(2).members.size(), 2u);
  EXPECT_EQ(neighbour(*model, 2, 0).vlan, 4094);
  EXPECT_EQ(neighbour(*model, 2, 0).mtu, 9000);
  EXPECT_EQ(neighbour(*model, 2, 0).weight, 3);
  EXPECT_EQ(neighbour(*model, 2, 0).port, 65535);
  EXPECT_EQ(model->group(3).flags, AdjacencyGroup::kDrop | AdjacencyGroup::kBlackhole);
  EXPECT_EQ(model->group(4).flags, AdjacencyGroup::kLocal);
  EXPECT_EQ(model->unresolved(), 1u);  // z
  ASSERT_EQ(model->warnings.size(), 1u);
  EXPECT_EQ(model->warnings[0].line, 8u);
  EXPECT_NE(model->warnings[0].message.find("nobody"), std::string::npos);
}

TEST(AdjacencyText, ReadsGroupsWordsAndResolvesThroughRoutes) {
  Rib rib = rib_of({"core", "10.0.0.9", "unreachable", "x", "n1+n2*3"});
  rib.add({{0, 0x0a000000, 4}, 8}, rib.find_next_hop("core"));
  rib.settle();
  auto model = parse_adjacencies(
      "n1 02:00:00:00:00:01 02:00:00:00:00:02 1\nn2 02:00:00:00:00:03 02:00:00:00:00:02 2\n"
      "core group n1 n2*2 resilient 32 # shared\ncore group n1 n2*2 resilient 32\nx prohibit\n",
      "adj", rib);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_TRUE(model->warnings.empty());
  EXPECT_EQ(model->group(1).buckets.size(), 32u);
  EXPECT_EQ(model->group(2), model->group(1)) << "by the route for 10.0.0.0/8";
  EXPECT_EQ(model->group(3).flags, AdjacencyGroup::kHostUnreachable);
  EXPECT_EQ(model->group(4).flags, AdjacencyGroup::kProhibited);
  EXPECT_EQ(model->group(5).members.size(), 2u);
  EXPECT_EQ(model->group(5).members[1].weight, 3);
  for (const char* wrong : {"g group\n", "g group a resilient 1\n", "g group a resilient 5000\n",
                            "g group a resilient 16 b\n", "g group resilient 16\n", "g group a\ng drop\n"}) {
    EXPECT_NE(errors_of(wrong), "") << wrong;
  }
}

TEST(AdjacencyText, FindsAllErrorsAtOnce) {
  auto model = parse_adjacencies(
      "1 02:00:00:00:00:01\n"
      "1 02:00:00:00:00 02:00:00:00:00:02 0\n"
      "1 02:00:00:00:00:01 03:00:00:00:00:02 0\n"
      "1 02:00:00:00:00:01 02:00:00:00:00:02 65536\n"
      "1 02:00:00:00:00:01 02:00:00:00:00:02 1 vlam 5\n"
      "1 02:00:00:00:00:01 02:00:00:00:00:02 1 vlan 4095\n"
      "1 02:00:00:00:00:01 02:00:00:00:00:02 1 mtu\n"
      "1 02:00:00:00:00:01 02:00:00:00:00:02 1 mtu 9000 mtu 9000\n"
      "2 drop now\n",
      "adj", rib_of({"1", "2"}));
  ASSERT_FALSE(model.ok());
  ASSERT_EQ(model.error().diagnostics.size(), 9u) << to_string(model.error());
  for (uint32_t i = 0; i < 9; ++i) EXPECT_EQ(model.error().diagnostics[i].line, i + 1);
  EXPECT_EQ(model.error().diagnostics[4].suggestion, "did you mean vlan?");
  EXPECT_EQ(model.error().diagnostics[5].expected, "1 to 4094");
  EXPECT_EQ(model.error().diagnostics[5].column, 46u);
}

TEST(AdjacencyText, RefusesContradictionsAndTooManyBuckets) {
  const std::string neighbour = "1 02:00:00:00:00:01 02:00:00:00:00:02 1";
  EXPECT_NE(errors_of(("1 drop\n" + neighbour + "\n").c_str()).find("adj:2:1: error: the next hop 1 has conflicting"),
            std::string::npos);
  EXPECT_NE(errors_of((neighbour + "\n1 punt\n").c_str()).find("adj:2:1"), std::string::npos);
  EXPECT_EQ(errors_of("1 drop\n1 drop\n"), "");
  EXPECT_NE(errors_of((neighbour + " weight 256\n" + neighbour + "\n").c_str()).find("256 buckets"), std::string::npos);
  std::string many;
  for (int i = 0; i < 256; ++i) many += neighbour + "\n";
  EXPECT_EQ(errors_of(many.c_str()), "");
  EXPECT_NE(errors_of((many + neighbour + "\n").c_str()).find("adj:257:1"), std::string::npos);
  EXPECT_NE(errors_of("1 blackhol\n").find("did you mean blackhole?"), std::string::npos);
}

TEST(AdjacencyText, ManyUnknownNextHopsAreSummed) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "u" + std::to_string(i) + " drop\n";
  auto model = parse_adjacencies(text, "adj", rib_of({"1"}));
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(model->warnings.size(), 21u);
  EXPECT_EQ(model->warnings.back().message, "980 more next hops are used by no route");
}

}  // namespace
}  // namespace sluice
