#include "formats/route_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "net/text.h"

namespace sluice {
namespace {

class RouteFileSources : public ::testing::Test {
 protected:
  RouteFileSources() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-routes-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    folder_ = pattern;
  }
  ~RouteFileSources() override { std::filesystem::remove_all(folder_); }
  std::string write(const char* name, const char* text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  static std::string hop(const Rib& rib, const char* prefix) {
    const uint32_t id = rib.find(*parse_prefix(prefix));
    return id == 0 ? "-" : rib.next_hop_name(id);
  }
  std::string folder_;
};

TEST_F(RouteFileSources, AreSplitAndNamedWithTheirSources) {
  EXPECT_EQ(split_route_files("a,b,source=x,preference=7,c,preference=1"),
            (std::vector<std::string>{"a", "b,source=x,preference=7", "c,preference=1"}));
  EXPECT_EQ(path_of_route_file("dir/b,source=x"), "dir/b");
  const auto file = parse_route_file("b,preference=7,source=x");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->path, "b");
  EXPECT_EQ(file->source, "x");
  EXPECT_EQ(file->preference, 7);
  EXPECT_EQ(split_route_files("a.mrt,peer=192.0.2.1,source=x,b,peer=AS7"),
            (std::vector<std::string>{"a.mrt,peer=192.0.2.1,source=x", "b,peer=AS7"}));
  const auto of_peer = parse_route_file("b,source=x,peer=AS7");
  ASSERT_TRUE(of_peer.ok());
  EXPECT_EQ(to_string(*of_peer->peer), "AS7");
  for (const char* wrong :
       {"b,source=", "b,preference=256", "b,preference=x", "b,source=x,other=y", "b,peer=x", "b,peer="})
    EXPECT_FALSE(parse_route_file(wrong).ok()) << wrong;
}

TEST_F(RouteFileSources, TheBetterPreferenceWinsWhateverTheOrder) {
  const std::string a = write("a", "10.0.0.0/8 a\n11.0.0.0/8 a\n12.0.0.0/8 a metric 5\n12.0.0.0/8 a2 metric 4\n");
  const std::string b = write("b", "10.0.0.0/8 b\n13.0.0.0/8 b\n");
  const auto both = [&](const std::string& first, const std::string& second) {
    auto rib = read_routes_files({first, second});
    EXPECT_TRUE(rib.ok()) << (rib.ok() ? "" : to_string(rib.error()));
    return std::move(*rib);
  };
  for (const bool turned : {false, true}) {
    const std::string better = a + ",source=ospf", worse = b + ",source=rip";
    const Rib rib = turned ? both(worse, better) : both(better, worse);
    EXPECT_EQ(rib.size(), 4u);
    EXPECT_EQ(hop(rib, "10.0.0.0/8"), "a");
    EXPECT_EQ(hop(rib, "12.0.0.0/8"), "a2");
    EXPECT_EQ(hop(rib, "13.0.0.0/8"), "b");
  }
  EXPECT_EQ(hop(both(a, b), "10.0.0.0/8"), "b") << "of one source the last word counts";
  EXPECT_EQ(hop(both(a + ",preference=1", b + ",source=x"), "10.0.0.0/8"), "b") << "the source that was named last";
  // All candidates are kept, and next hops keep the numbers that they had.
  NextHopIds ids;
  for (const char* name : {"b", "gone"}) ids.intern(name);
  const auto all = read_route_sources({a + ",source=ospf", b + ",preference=200"}, nullptr, {}, ids);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->next_hops().find("b"), 1u);
  EXPECT_EQ(all->next_hops().find("a"), 3u);
  const auto candidates = all->candidates(*parse_prefix("10.0.0.0/8"));
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[0].preference, 110);
  EXPECT_EQ(candidates[1].preference, 200);
  EXPECT_EQ(all->source_name(candidates[1].source), "static");
}

TEST_F(RouteFileSources, ALineSaysWhoseThoseBelowItAre) {
  const std::string text = write("a",
                                 "10.0.0.0/8 a\nsource control  # by hand\n10.0.0.0/8 b\n10.1.0.0/16 c metric 5\n"
                                 "  source,ospf preference 7\n10.0.0.0/8 d\nsource static\n10.2.0.0/16 e\n");
  const auto all = read_route_sources({text});
  ASSERT_TRUE(all.ok()) << to_string(all.error());
  const auto candidates = all->candidates(*parse_prefix("10.0.0.0/8"));
  ASSERT_EQ(candidates.size(), 3u);
  const auto is = [&](size_t at, const char* source, unsigned preference, const char* hop) {
    EXPECT_EQ(all->source_name(candidates[at].source), source);
    EXPECT_EQ(candidates[at].preference, preference);
    EXPECT_EQ(all->next_hops().name(candidates[at].next_hop), hop);
  };
  is(0, "control", 0, "b");
  is(1, "static", 1, "a");
  is(2, "ospf", 7, "d");
  EXPECT_EQ(all->candidates(*parse_prefix("10.1.0.0/16"))[0].metric, 5u);
  EXPECT_EQ(all->source_name(all->candidates(*parse_prefix("10.2.0.0/16"))[0].source), "static");
  const auto best = read_routes_files({text});
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(hop(*best, "10.0.0.0/8"), "b");
  // The name's source and preference are those of the lines before all others.
  const auto named = read_route_sources({text + ",source=bgp,preference=99"});
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->candidates(*parse_prefix("10.0.0.0/8"))[2].preference, 99);
}

TEST_F(RouteFileSources, WrongLinesAreNamedWhereTheyStand) {
  for (const auto& [text, place] : {std::pair{"10.0.0.0/8 a\nsource\n", ":2:1:"},
                                    {"source ospf preference\n", ":1:13:"},
                                    {"source ospf preference 256\n", ":1:24:"},
                                    {"source ospf 7\n", ":1:13:"},
                                    {"source ospf preference 7 8\n", ":1:26:"},
                                    {"source ospf\n\n10.0.0.0/8 a\n10.0.0.0/88 b\n", ":4:"},
                                    {"source ospf\n10.0.0.0/8 a\nsource rip\n10.0.0.0/88 b\n", ":4:"}}) {
    const auto wrong = read_route_sources({write("a", text)});
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_NE(to_string(wrong.error()).find(place), std::string::npos) << text << to_string(wrong.error());
  }
  // A next hop may have the name.
  EXPECT_TRUE(read_route_sources({write("a", "10.0.0.0/8 source\n")}).ok());
}

TEST_F(RouteFileSources, ErrorsNameTheirFiles) {
  const auto wrong = read_routes_files({write("a", "10.0.0.0/8 a\n") + ",preference=999", folder_ + "/none"});
  ASSERT_FALSE(wrong.ok());
  const std::string said = to_string(wrong.error());
  EXPECT_NE(said.find("'999' is not a preference"), std::string::npos) << said;
  EXPECT_NE(said.find("none"), std::string::npos) << said;
  const auto text = read_routes_files({write("b", "10.0.0.0/8 a\n") + ",peer=0"});
  ASSERT_FALSE(text.ok());
  EXPECT_NE(to_string(text.error()).find("have no peers"), std::string::npos);
}

}  // namespace
}  // namespace sluice
