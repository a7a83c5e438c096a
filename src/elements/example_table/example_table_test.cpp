#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <random>
#include <set>

#include "elements/example_table/stage.h"
#include "elements/testing.h"
#include "graph/table_kind.h"
#include "net/text.h"

namespace sluice {
namespace {

using testing::expect;

TEST(ExampleTable, SeparatesPacketsWhoseSourceIsInTheTable) {
  const std::string file = ::testing::TempDir() + "example_table_hosts.txt";
  std::ofstream(file) << "10.0.0.1  # a comment\n\n2001:db8::1\n";
  const std::string table = "ExampleTable(hosts, FILE " + file + ");";
  const std::string chain = "IPInput -> ExampleTableFilter(hosts)";
  expect(udp4("10.0.0.1", "192.0.2.7")).through(chain, table).drops(DropReason::kAclDeny).leaves_by(1);
  expect(udp6("2001:db8::1", "2001:db8::2")).through(chain, table).drops(DropReason::kAclDeny).leaves_by(1);
  expect(udp4("10.0.0.2", "192.0.2.7")).through(chain, table).passes();
  // The same number, of the other family.
  expect(udp6("::a00:1", "2001:db8::2")).through(chain, table).passes();
}

TEST(ExampleTable, FindsWhatASetFinds) {
  const TableKind& kind = *find_table_kind("example_table");
  std::mt19937_64 random(3);
  const auto any = [&] { return fmt::format("10.0.{}.{}", random() % 4, random() % 250 + 1); };
  for (const size_t size : {0u, 1u, 2u, 3u, 100u}) {
    std::set<std::string> all;
    while (all.size() < size) all.insert(any());
    const std::vector<std::string> entries(all.begin(), all.end());
    const auto lookup = kind.build(entries);
    ASSERT_TRUE(lookup.ok());
    const ExampleTableStage stage{reinterpret_cast<const ExampleTableEntry*>(lookup->data()), size};
    for (int i = 0; i < 500; ++i) {
      const std::string one = any();
      const uint64_t address = parse_ip(one)->lo;
      EXPECT_EQ(stage.contains({4, 0, address}), all.contains(one)) << one;
      EXPECT_FALSE(stage.contains({6, 0, address}));
    }
  }
}

TEST(ExampleTable, NamesEveryLineThatIsNoEntry) {
  const auto read =
      parse_list(*find_table_kind("example_table"), "10.0.0.1\nhost\n10.0.0.1\n10.0.0.256\n", "hosts.txt");
  ASSERT_FALSE(read.ok());
  ASSERT_EQ(read.error().diagnostics.size(), 3u);
  EXPECT_EQ(read.error().diagnostics[0].line, 2u);
  EXPECT_EQ(read.error().diagnostics[1].message, "10.0.0.1 is there already, at line 1");
  EXPECT_EQ(read.error().diagnostics[2].line, 4u);
}

}  // namespace
}  // namespace sluice
