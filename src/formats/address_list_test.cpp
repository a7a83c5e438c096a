#include "formats/address_list.h"

#include <gtest/gtest.h>

#include "net/text.h"

namespace sluice {
namespace {

TEST(AddressList, SkipsBlanksAndComments) {
  const auto read =
      parse_addresses("192.0.2.1\n\n  2001:db8::1\t# a host\r\n# nothing\n \t\r\n198.51.100.7\r\n203.0.113.9", "hosts");
  ASSERT_TRUE(read.ok()) << to_string(read.error());
  std::vector<std::string> shown;
  for (const IpAddress& a : *read) shown.push_back(to_string(a));
  EXPECT_EQ(shown, (std::vector<std::string>{"192.0.2.1", "2001:db8::1", "198.51.100.7", "203.0.113.9"}));
  EXPECT_TRUE(parse_addresses("", "hosts")->empty());
}

TEST(AddressList, ReportsEveryBadLine) {
  const auto read = parse_addresses("192.0.2.1\n  host.example # no\n192.0.2.1 192.0.2.2\n", "hosts");
  ASSERT_FALSE(read.ok());
  const auto& found = read.error().diagnostics;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].line, 2u);
  EXPECT_EQ(found[0].column, 3u);
  EXPECT_EQ(found[0].message, "'host.example' is not an address");
  EXPECT_EQ(found[1].line, 3u);
}

}  // namespace
}  // namespace sluice
