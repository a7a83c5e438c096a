#include "base/printable.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/result.h"

namespace sluice {
namespace {

TEST(Printable, WritesTerminalControlCharactersOut) {
  EXPECT_EQ(printable("10.0.0.0/8 via a\n\tb"), "10.0.0.0/8 via a\n\tb");
  EXPECT_EQ(printable("\x1b[31mX\x07\r"), "\\x1b[31mX\\x07\\x0d");
  EXPECT_EQ(printable(std::string_view("\0a", 2)), "\\x00a");
  EXPECT_EQ(printable("Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x8c\x8a"), "Z\xc3\xbcrich \xe2\x82\xac \xf0\x9f\x8c\x8a");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "CSI in one character";
  EXPECT_EQ(printable("a\xe2\x80\xaez"), "a\\xe2\\x80\\xaez") << "right to left";
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\x9b\xed\xa0\x80"), "\\xc0\\x9b\\xed\\xa0\\x80") << "overlong, a surrogate";
}

TEST(Printable, ErrorsAreShownWithIt) {
  Error error("\x1b]0;title\x07", "\x1b[2J");
  Diagnostics found("f\x1b", "line \x1b[1m\n");
  found.error_at(5, 1, "'\x1b' is wrong").expected = "\x9b";
  error.diagnostics = found.all();
  const std::string text = to_string(error);
  EXPECT_EQ(text.find_first_of("\x1b\x07\x9b"), std::string::npos) << text;
}

RC_GTEST_PROP(Printable, NothingIsLeftThatATerminalActsOn, (const std::string& text)) {
  const std::string out = printable(text);
  for (const char c : out) RC_ASSERT(c == '\n' || c == '\t' || (static_cast<uint8_t>(c) >= 0x20 && c != 0x7f));
  RC_ASSERT(printable(out) == out);
}

}  // namespace
}  // namespace sluice
