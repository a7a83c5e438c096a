// host only
// Exact fractions for the oracles of the tests: reduced after every step, a trap where 128 bits do not do.
#pragma once

#include <cstdint>

namespace sluice::testing {

class Fraction {
 public:
  using Int = __int128;
  Fraction(Int top = 0, Int bottom = 1) : top_(top), bottom_(bottom) { reduce(); }

  friend Fraction operator+(const Fraction& a, const Fraction& b) {
    // Over the least common multiple, so that the products stay small.
    const Int g = gcd(a.bottom_, b.bottom_);
    return {checked(checked(a.top_, b.bottom_ / g) + checked(b.top_, a.bottom_ / g)),
            checked(a.bottom_ / g, b.bottom_)};
  }
  friend Fraction operator-(const Fraction& a, const Fraction& b) { return a + Fraction(-b.top_, b.bottom_); }
  friend Fraction operator*(const Fraction& a, const Fraction& b) {
    const Int g = gcd(a.top_, b.bottom_);
    const Int h = gcd(b.top_, a.bottom_);
    return {checked(a.top_ / g, b.top_ / h), checked(a.bottom_ / h, b.bottom_ / g)};
  }
  friend Fraction operator/(const Fraction& a, const Fraction& b) { return a * Fraction(b.bottom_, b.top_); }
  friend bool operator<(const Fraction& a, const Fraction& b) { return (a - b).top_ < 0; }
  friend bool operator<=(const Fraction& a, const Fraction& b) { return (a - b).top_ <= 0; }
  friend bool operator==(const Fraction& a, const Fraction& b) { return a.top_ == b.top_ && a.bottom_ == b.bottom_; }
  static Fraction least(const Fraction& a, const Fraction& b) { return a < b ? a : b; }
  static Fraction most(const Fraction& a, const Fraction& b) { return a < b ? b : a; }
  // Of what is not negative.
  uint64_t rounded_up() const { return static_cast<uint64_t>((top_ + bottom_ - 1) / bottom_); }

 private:
  static Int gcd(Int a, Int b) {
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b != 0) {
      const Int rest = a % b;
      a = b;
      b = rest;
    }
    return a == 0 ? 1 : a;
  }
  static Int checked(Int a, Int b = 1) {
    Int product = 0;
    if (__builtin_mul_overflow(a, b, &product)) __builtin_trap();
    return product;
  }
  void reduce() {
    if (bottom_ < 0) {
      top_ = -top_;
      bottom_ = -bottom_;
    }
    const Int g = gcd(top_, bottom_);
    top_ /= g;
    bottom_ /= g;
  }

  Int top_;
  Int bottom_;
};

}  // namespace sluice::testing
