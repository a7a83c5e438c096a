// A Result holds a value or an error, one at a time, whatever is moved or assigned.
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace sluice {
namespace {

// Counts the values that live.
struct Counted {
  static inline int alive = 0;
  int number;
  explicit Counted(int n) : number(n) { ++alive; }
  Counted(const Counted& other) : number(other.number) { ++alive; }
  Counted(Counted&& other) noexcept : number(std::exchange(other.number, -1)) { ++alive; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --alive; }
};

Error long_error() {
  Error error("a message that is longer than any string keeps in itself", "and so is the step that comes next to it");
  error.diagnostics.push_back({.file = "a", .line = 3, .message = "wrong"});
  return error;
}

TEST(Result, AssignmentsBetweenValuesAndErrorsLeaveOneOfThem) {
  for (const bool from_error : {false, true}) {
    for (const bool to_error : {false, true}) {
      const auto make = [](bool error, int n) {
        return error ? Result<Counted>(long_error()) : Result<Counted>(Counted(n));
      };
      const auto check = [](const Result<Counted>& r, bool error, int n) {
        ASSERT_EQ(r.ok(), !error);
        if (error) {
          EXPECT_EQ(r.error().message, long_error().message);
          EXPECT_EQ(r.error().hint, long_error().hint);
          ASSERT_EQ(r.error().diagnostics.size(), 1u);
        } else {
          EXPECT_EQ(r->number, n);
        }
      };
      {
        Result<Counted> from = make(from_error, 1);
        Result<Counted> copy = from;
        check(copy, from_error, 1);
        Result<Counted> to = make(to_error, 2);
        to = from;
        check(to, from_error, 1);
        check(from, from_error, 1);
        Result<Counted>& same = to;
        to = same;
        check(to, from_error, 1);
        to = std::move(same);
        check(to, from_error, 1);
        Result<Counted> moved = std::move(copy);
        check(moved, from_error, 1);
        to = make(to_error, 3);
        check(to, to_error, 3);
        to = std::move(moved);
        check(to, from_error, 1);
        EXPECT_EQ(Counted::alive, (from_error ? 0 : 4));
      }
      EXPECT_EQ(Counted::alive, 0);
    }
  }
}

TEST(Result, OfWhatIsOnlyMoved) {
  using Owned = Result<std::unique_ptr<int>>;
  static_assert(!std::is_copy_constructible_v<Owned> && !std::is_copy_assignable_v<Owned>);
  static_assert(std::is_nothrow_move_constructible_v<Owned> && std::is_nothrow_move_assignable_v<Owned>);
  std::vector<Owned> all;
  for (int i = 0; i < 9; ++i) {
    if (i % 3 == 0) {
      all.push_back(long_error());
    } else {
      all.push_back(std::make_unique<int>(i));
    }
  }
  for (int i = 0; i < 9; ++i) {
    ASSERT_EQ(all[static_cast<size_t>(i)].ok(), i % 3 != 0);
    if (i % 3 != 0) {
      EXPECT_EQ(**all[static_cast<size_t>(i)], i);
    }
  }
  std::unique_ptr<int> taken = *std::move(all[1]);
  EXPECT_EQ(*taken, 1);
  const Error error = std::move(all[0]).error();
  EXPECT_EQ(error.message, long_error().message);
}

// Its moves throw when they are told to.
struct Throws {
  static inline bool now = false;
  Throws() = default;
  Throws(const Throws&) = default;
  Throws(Throws&&) {
    if (now) throw 7;
  }
};

TEST(Result, IsAnErrorWhereAMoveThrew) {
  Result<Throws> to = Throws(), from = Throws();
  Throws::now = true;
  EXPECT_THROW(to = std::move(from), int);
  Throws::now = false;
  EXPECT_FALSE(to.ok());
  EXPECT_EQ(to.error().message, "");
  to = Result<Throws>(Throws());
  EXPECT_TRUE(to.ok());
}

}  // namespace
}  // namespace sluice
