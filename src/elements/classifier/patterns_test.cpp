#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

// The output of `Classifier(patterns)` for these bytes; -1: dropped.
int output(const std::vector<uint8_t>& bytes, const std::string& patterns) {
  std::string text = "c :: Classifier(" + patterns + ")";
  // Every output leads somewhere; the passage ends at Discard whichever it was.
  const size_t n = static_cast<size_t>(std::count(patterns.begin(), patterns.end(), ',')) + 1;
  std::string before = text + ";";
  for (size_t i = 1; i < n; ++i) before += fmt::format("c[{}] -> Discard;", i);
  const auto p = expect(bytes).through("c", before);
  EXPECT_EQ(p.error, "");
  return p.output == kDropOutput ? -1 : p.output;
}

TEST(Classifier, FirstMatchWins) {
  const auto v4 = udp4("10.0.0.1", "192.0.2.7").build();
  const auto v6 = udp6("2001:db8::1", "2001:db8::2").build();
  const auto arp = PacketBuilder::ether(0x0806).payload(28).build();
  const char* patterns = "12/0806 20/0001, 12/0806 20/0002, 12/0800, -";
  EXPECT_EQ(output(v4, patterns), 2);
  EXPECT_EQ(output(v6, patterns), 3);
  EXPECT_EQ(output(arp, patterns), 3);
  EXPECT_EQ(output(arp, "12/0800, 12/0806"), 1);
  EXPECT_EQ(output(v6, "12/0800, 12/0806"), -1);
  expect(v6).through("c", "c :: Classifier(12/0800);").drops(DropReason::kClassifierNoMatch);
}

TEST(Classifier, NibblesMasksAndNegation) {
  const std::vector<uint8_t> bytes{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0};
  EXPECT_EQ(output(bytes, "0/1?3?, -"), 0);
  EXPECT_EQ(output(bytes, "0/?2?5, -"), 1);
  EXPECT_EQ(output(bytes, "0/1F34%F0FF, -"), 0);
  EXPECT_EQ(output(bytes, "!0/12, -"), 1);
  EXPECT_EQ(output(bytes, "!0/13, -"), 0);
  // A negated clause of more than four bytes is one clause: one byte that differs is enough.
  EXPECT_EQ(output(bytes, "!0/123456789abc, -"), 1);
  EXPECT_EQ(output(bytes, "!0/123456789abd, -"), 0);
  EXPECT_EQ(output(bytes, "!0/003456789abc, -"), 0);
  EXPECT_EQ(output(bytes, "3/789abcde, -"), 0);
}

TEST(Classifier, BytesPastTheEndDoNotMatch) {
  const std::vector<uint8_t> bytes{0x12, 0x34};
  EXPECT_EQ(output(bytes, "1/3400, -"), 1);
  EXPECT_EQ(output(bytes, "!1/3400, -"), 0);
  EXPECT_EQ(output(bytes, "1/34??, -"), 0) << "what nobody looks at need not exist";
  EXPECT_EQ(output(bytes, "65535/00, -"), 1);
  EXPECT_EQ(output({}, "0/00, -"), 1);
  EXPECT_EQ(output({}, "-"), 0);
}

// The oracle reads the digits one by one.
bool clause_holds(const std::vector<uint8_t>& bytes, size_t offset, const std::string& value, const std::string& mask) {
  for (size_t i = 0; i < value.size(); ++i) {
    const unsigned m = static_cast<unsigned>(std::stoul(mask.substr(i, 1), nullptr, 16)) & (value[i] == '?' ? 0u : 15u);
    if (m == 0) continue;
    const size_t at = offset + i / 2;
    if (at >= bytes.size()) return false;
    const unsigned nibble = i % 2 == 0 ? bytes[at] >> 4 : bytes[at] & 15;
    if ((nibble & m) != (static_cast<unsigned>(std::stoul(value.substr(i, 1), nullptr, 16)) & m)) return false;
  }
  return true;
}

TEST(Classifier, AgreesWithAnOracleThatReadsDigits) {
  EXPECT_TRUE(rc::check([] {
    // Few byte values, so that matches are common.
    const auto bytes = *rc::gen::container<std::vector<uint8_t>>(rc::gen::element<uint8_t>(0x00, 0x11, 0x12));
    const auto patterns = *rc::gen::inRange(1, 4);
    std::string text;
    int want = -1;
    for (int p = 0; p < patterns; ++p) {
      if (p != 0) text += ", ";
      bool holds = true;
      const auto clauses = *rc::gen::inRange(1, 3);
      for (int c = 0; c < clauses; ++c) {
        const auto offset = static_cast<size_t>(*rc::gen::inRange(0, 8));
        const auto n = *rc::gen::inRange(1, 7);
        std::string value;
        std::string mask;
        for (int i = 0; i < 2 * n; ++i) {
          value += *rc::gen::element('0', '1', '1', '2', '?', '?');
          mask += *rc::gen::element('f', 'f', '0', '1');
        }
        const bool negated = *rc::gen::inRange(0, 4) == 0;
        text += fmt::format("{}{}/{}%{} ", negated ? "!" : "", offset, value, mask);
        holds = holds && clause_holds(bytes, offset, value, mask) != negated;
      }
      if (holds && want < 0) want = p;
    }
    RC_ASSERT(output(bytes, text) == want);
  }));
}

}  // namespace
}  // namespace sluice
