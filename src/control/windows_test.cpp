// What is asked for while nobody can answer is answered as it was last.
#include "control/windows.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace sluice {
namespace {

TEST(Windows, GiveTheLastAnswerWhereThereIsNoneNow) {
  int asked = 0;
  bool there = true;
  Windows windows([&](std::string_view line) -> std::optional<std::string> {
    ++asked;
    if (!there) return std::nullopt;
    const bool drops = line.find("show drops") != std::string_view::npos;
    return drops ? R"({"v":1,"ok":true,"result":{"dropped":7}})" : R"({"v":1,"ok":false,"error":{"message":"no"}})";
  });
  HttpRequest request;
  request.path = "/api/v1/drops";
  const HttpAnswer first = windows.answer(request);
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.age_seconds, 0u);
  there = false;
  // It is no more of this moment: somebody has to be asked, and there is nobody.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const HttpAnswer again = windows.answer(request);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.body, first.body);
  EXPECT_GE(again.age_seconds, 1u);
  EXPECT_NE(write_http(again, true, true).find("\r\nAge: "), std::string::npos);
  EXPECT_EQ(write_http(first, true, true).find("\r\nAge: "), std::string::npos);
  // Of what was never asked for there is nothing to be said.
  request.path = "/api/v1/ports";
  EXPECT_EQ(windows.answer(request).status, 503);
  // Many that are asked for once do not cost what is asked for again and again.
  there = true;
  request.path = "/api/v1/rules";
  for (int i = 1; i < 100; ++i) {
    request.query["count"] = std::to_string(i);
    EXPECT_EQ(windows.answer(request).status, 400);
    if (i % 10 != 0) continue;
    HttpRequest drops;
    drops.path = "/api/v1/drops";
    EXPECT_EQ(windows.answer(drops).status, 200);
  }
  there = false;
  request.path = "/api/v1/drops";
  request.query.clear();
  EXPECT_EQ(windows.answer(request).status, 200);
}

}  // namespace
}  // namespace sluice
