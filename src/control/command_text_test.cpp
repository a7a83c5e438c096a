#include "control/command_text.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Duration, NumbersWithUnits) {
  for (const auto& [text, ns] : std::initializer_list<std::pair<const char*, uint64_t>>{{"1ns", 1},
                                                                                        {"800ns", 800},
                                                                                        {"50us", 50'000},
                                                                                        {"007us", 7'000},
                                                                                        {"1.5ms", 1'500'000},
                                                                                        {"1.50000001s", 1'500'000'010},
                                                                                        {"0.25us", 250},
                                                                                        {"0.0009us", 0},
                                                                                        {"1.9ns", 1},
                                                                                        {"2s", 2'000'000'000},
                                                                                        {"3600s", 3'600'000'000'000}}) {
    const auto parsed = parse_duration(text);
    if (ns == 0) {
      EXPECT_FALSE(parsed.ok()) << text;
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, ns) << text;
  }
}

TEST(Duration, AnythingElseIsRefused) {
  for (const char* text :
       {"", "50", "us", ".5us", "5.us", "1.2.3us", "-5us", "+5us", "5 us", "5US", "5m", "5usx", "0x5us", "1e3us"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, std::string("'") + text + "' is not a time");
    EXPECT_EQ(parsed.error().hint, "write a number and its unit: 800ns, 50us, 1.5ms or 2s");
  }
  for (const char* text :
       {"0us", "0.0s", "3601s", "99999999999999999999999999999999ns", "99999999999999999999999999999.9s"}) {
    const auto parsed = parse_duration(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().message, std::string("'") + text + "' is out of range");
  }
}

}  // namespace
}  // namespace sluice
