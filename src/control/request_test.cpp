#include "control/request.h"

#include <gtest/gtest.h>

#include <string>

#include "control/command.h"
#include "control/report.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string fault(std::string_view line) {
  auto read = read_json(line, "the request", kRequestLimits);
  return read.ok() ? std::string() : read.error().message;
}

TEST(Request, ValuesAreRead) {
  auto read =
      read_json(R"({"v":1,"text":"a\nb\u20ac\ud83d\ude00\ud83d","list":["x",-2,1.5,true,null],"o":{"k\u0041":{}}})",
                "the request", kRequestLimits);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ((*read)["text"], "a\nb\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd");
  EXPECT_EQ(*read, Json::parse(
                       R"({"v":1,"text":"a\nb\u20ac\ud83d\ude00\ufffd","list":["x",-2,1.5,true,null],"o":{"kA":{}}})"));
}

TEST(Request, AStringEndsWhereverItStands) {
  for (size_t before = 0; before < 20; ++before) {
    for (size_t behind = 0; behind < 10; ++behind) {
      const std::string a(before, 'a'), b(behind, '\xe4');
      const auto string = [&](const std::string& middle) { return "[\"" + a + middle + b + "\"]"; };
      for (const auto& [written, meant] : {std::pair{"", ""},
                                           {"\\n", "\n"},
                                           {"\\\"", "\""},
                                           {"\\\\", "\\"},
                                           {"\\u0041", "A"},
                                           {"!#[]^ \x7f", "!#[]^ \x7f"}}) {
        auto read = read_json(string(written), "the request", kRequestLimits);
        ASSERT_TRUE(read.ok()) << string(written) << ": " << read.error().message;
        EXPECT_EQ((*read)[0].get<std::string>(), a + meant + b);
      }
      for (const char control : {'\0', '\x01', '\n', '\x1f'}) {
        EXPECT_EQ(
            fault(string(std::string(1, control))),
            fmt::format("the request is not JSON: 0x{:02x} is not valid here in JSON", static_cast<unsigned>(control)));
      }
      EXPECT_NE(fault(string("\"")), "");
      EXPECT_NE(fault(string("\\x")), "");
      EXPECT_NE(fault("[\"" + a), "");
    }
  }
}

TEST(Request, RefusesTooManyValues) {
  std::string fields = R"({"v":1)";
  for (int i = 0; i < 80'000; ++i) fields += fmt::format(",\"k{}\":1", i);
  EXPECT_EQ(fault(fields + "}"), "the request is not JSON: more than 65536 values");
  fields.resize(fields.find(",\"k100\""));
  EXPECT_EQ(fault(fields + "}"), "an object of the request has more than 64 fields");
  EXPECT_EQ(fault(R"({"v":1,"a":1,"\u0061":2})"), "the field 'a' is given twice in the request");
  EXPECT_EQ(fault(std::string(1 << 20, '[')), "the request is not JSON: values are nested deeper than 64");
  EXPECT_NE(fault("{\"v\":1e999}"), "");
  EXPECT_NE(fault("{\"v\":1"), "");
  EXPECT_NE(fault(""), "");
}

TEST(Request, ATextIsTakenOutOfTheRequest) {
  const std::string text(1 << 20, 'x');
  const std::string answer =
      answer_request(Json{{"v", 1}, {"changes", text}}.dump(), [&](Json& request) -> Result<std::string> {
        const char* at = request["changes"].get_ref<const std::string&>().data();
        const CommandRow row{.name = "test", .fields = {fields::text("changes")}};
        const bool good = read_fields(row, request).ok();
        Asked asked(request);
        EXPECT_EQ(asked.text("changes").data(), at) << "it was copied";
        EXPECT_EQ(asked.text("changes"), text);
        return result_text(Json{{"ok", good}});
      });
  EXPECT_EQ(answer, R"({"v":1,"ok":true,"result":{"ok":true}})");
}

TEST(Request, AnswersAreBelievedOnlyAsFarAsTheyAreAnswers) {
  bool theirs = false;
  auto good = read_answer(R"({"v":1,"ok":true,"result":{"a":1}})", &theirs);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ((*good)["a"], 1);
  auto error = read_answer(refusal(Error("no such table", "tables: acl")), &theirs);
  ASSERT_FALSE(error.ok());
  EXPECT_TRUE(theirs);
  EXPECT_EQ(error.error().hint, "tables: acl");
  for (const char* line :
       {"hello", "[]", "{}", "null", R"({"v":1,"ok":true})", R"({"v":1,"ok":true,"result":[]})",
        R"({"v":1,"ok":false})", R"({"v":1,"ok":false,"error":{}})", R"({"v":1,"ok":false,"error":{"message":5}})",
        R"({"v":1,"ok":"yes","result":5})", R"({"v":1,"ok":false,"error":"x"})"}) {
    auto wrong = read_answer(line, &theirs);
    ASSERT_FALSE(wrong.ok()) << line;
    EXPECT_FALSE(theirs) << line;
    EXPECT_EQ(wrong.error().message.find("the answer"), 0u) << wrong.error().message;
  }
  EXPECT_FALSE(read_answer(std::string(5'000'000, '['), &theirs).ok());
  EXPECT_FALSE(read_answer(R"({"v":1,"ok":false,"error":{"message":"x","diagnostics":[{"file":3},7]}})", &theirs).ok());
  EXPECT_TRUE(theirs);
}

}  // namespace
}  // namespace sluice
