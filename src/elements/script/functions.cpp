// host only
// Source: the Click manual page of Script, section "Handlers".
#include "elements/script/functions.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/arguments.h"
#include "graph/click/config_text.h"

namespace sluice {
namespace {

constexpr std::string_view kFunctionNames[] = {
    "add", "sub",   "mul",   "div",      "idiv",   "mod",    "rem",    "neg",  "abs", "min",
    "max", "avg",   "count", "popcount", "gt_vec", "floor",  "round",  "ceil", "eq",  "ne",
    "lt",  "gt",    "le",    "ge",       "not",    "and",    "or",     "nand", "nor", "if",
    "in",  "htonl", "htons", "ntohl",    "ntohs",  "length", "unquote"};

// Integers as long as everything is one; an overflow goes on as a real number.
struct Number {
  bool whole = true;
  int64_t integer = 0;
  double real = 0;

  static Number of(int64_t value) { return {true, value, static_cast<double>(value)}; }
  static Number of(double value) { return {false, 0, value}; }
  std::string text() const {
    if (whole) return std::to_string(integer);
    if (std::isfinite(real) && real == std::trunc(real) && std::fabs(real) < 9e15)
      return std::to_string(static_cast<int64_t>(real));
    return fmt::format("{:.15g}", real);
  }
};

std::optional<Number> number_of(std::string_view text) {
  ArgumentValue value;
  std::string problem;
  if (parse_value({.name = "N", .kind = ArgumentKind::kInt}, text, &value, &problem))
    return Number::of(value.signed_number);
  if (parse_value({.name = "N", .kind = ArgumentKind::kDouble}, text, &value, &problem)) return Number::of(value.real);
  return std::nullopt;
}

std::vector<std::string_view> function_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (const ConfigSlice& s : split_words(text)) words.push_back(text.substr(s.offset, s.length));
  return words;
}

std::string bare(std::string_view word) {
  auto text = unquote(word);
  return text ? *text : std::string(word);
}

Number combine(std::string_view name, const Number& a, const Number& b) {
  if (a.whole && b.whole) {
    int64_t r = 0;
    if (name == "add" && !__builtin_add_overflow(a.integer, b.integer, &r)) return Number::of(r);
    if (name == "sub" && !__builtin_sub_overflow(a.integer, b.integer, &r)) return Number::of(r);
    if (name == "mul" && !__builtin_mul_overflow(a.integer, b.integer, &r)) return Number::of(r);
  }
  if (name == "add") return Number::of(a.real + b.real);
  if (name == "sub") return Number::of(a.real - b.real);
  if (name == "mul") return Number::of(a.real * b.real);
  return Number::of(a.real / b.real);
}

// -1, 0, 1: as numbers where both are, else as bytes.
int compare(std::string_view a, std::string_view b) {
  const auto x = number_of(a);
  const auto y = number_of(b);
  if (x && y) {
    if (x->whole && y->whole) return x->integer < y->integer ? -1 : x->integer > y->integer ? 1 : 0;
    return x->real < y->real ? -1 : x->real > y->real ? 1 : 0;
  }
  const int order = bare(a).compare(bare(b));
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

const char* truth_text(bool value) {
  return value ? "true" : "false";
}

Error needs(std::string_view name, const char* what) {
  return Error(fmt::format("'{}' takes {}", name, what));
}

Result<std::string> arithmetic(std::string_view name, const std::vector<Number>& n) {
  if (name == "count") return std::to_string(n.size());
  if (name == "popcount")
    return std::to_string(std::count_if(n.begin(), n.end(), [](const Number& x) { return x.real != 0; }));
  if (n.empty()) return needs(name, "at least one number");
  if (name == "gt_vec")
    return std::to_string(std::count_if(n.begin() + 1, n.end(), [&](const Number& x) { return x.real > n[0].real; }));
  if (name == "mod" || name == "rem") {
    if (n.size() != 2) return needs(name, "two numbers");
    if (n[1].real == 0) return Error(fmt::format("'{}' by zero", name));
    if (name == "rem") return Number::of(std::fmod(n[0].real, n[1].real)).text();
    if (!n[0].whole || !n[1].whole) return needs(name, "two integers");
    return std::to_string(n[1].integer == -1 ? 0 : n[0].integer % n[1].integer);
  }
  if (n.size() == 1 && (name == "neg" || name == "abs" || name == "floor" || name == "ceil" || name == "round")) {
    const Number& x = n[0];
    if (name == "neg") return combine("sub", Number::of(int64_t{0}), x).text();
    if (name == "abs") return x.real < 0 ? combine("sub", Number::of(int64_t{0}), x).text() : x.text();
    if (x.whole) return x.text();
    return Number::of(name == "floor"  ? std::floor(x.real)
                      : name == "ceil" ? std::ceil(x.real)
                                       : std::round(x.real))
        .text();
  }
  if (name == "neg" || name == "abs" || name == "floor" || name == "ceil" || name == "round")
    return needs(name, "one number");
  Number r = n[0];
  for (size_t i = 1; i < n.size(); ++i) {
    if (name == "min") {
      if (n[i].real < r.real) r = n[i];
    } else if (name == "max") {
      if (n[i].real > r.real) r = n[i];
    } else if (name == "avg") {
      r = combine("add", r, n[i]);
    } else {
      if ((name == "div" || name == "idiv") && n[i].real == 0) return Error(fmt::format("'{}' by zero", name));
      r = combine(name == "idiv" ? "div" : name, r, n[i]);
    }
  }
  if (name == "avg") r = combine("div", r, Number::of(static_cast<int64_t>(n.size())));
  if (name == "idiv" && !r.whole) r = Number::of(std::trunc(r.real));
  return r.text();
}

Result<std::string> logic(std::string_view name, const std::vector<std::string_view>& words) {
  if (name == "not" && words.size() != 1) return needs(name, "one truth value");
  const bool both = name == "and" || name == "nand";
  bool r = both;
  for (std::string_view word : words) {
    auto value = script_truth(bare(word));
    if (!value.ok()) return std::move(value).error();
    r = both ? r && *value : r || *value;
  }
  return std::string(truth_text(name == "not" || name == "nand" || name == "nor" ? !r : r));
}

Result<std::string> byte_order(std::string_view name, const std::vector<Number>& n) {
  if (n.size() != 1 || !n[0].whole || n[0].integer < 0 || n[0].integer > 0xffffffffLL)
    return needs(name, "one number of 32 bits");
  const auto value = static_cast<uint32_t>(n[0].integer);
  if (name == "htons" || name == "ntohs") {
    if (value > 0xffff) return needs(name, "one number of 16 bits");
    return std::to_string(htons(static_cast<uint16_t>(value)));
  }
  return std::to_string(htonl(value));
}

}  // namespace

std::span<const std::string_view> script_functions() {
  return kFunctionNames;
}

Result<bool> script_truth(std::string_view text) {
  const ConfigSlice trimmed = trim_config(text, 0, text.size());
  text = text.substr(trimmed.offset, trimmed.length);
  if (text.empty()) return false;
  if (const auto number = number_of(text)) return number->real != 0;
  ArgumentValue value;
  std::string problem;
  if (!parse_value({.name = "B", .kind = ArgumentKind::kBool}, text, &value, &problem)) return Error(problem);
  return value.boolean;
}

Result<std::string> call_script_function(std::string_view name, std::string_view arguments) {
  if (std::find(std::begin(kFunctionNames), std::end(kFunctionNames), name) == std::end(kFunctionNames))
    return Error(fmt::format("there is no function '{}'", name));
  if (name == "length") return std::to_string(arguments.size());
  if (name == "unquote") return bare(arguments);
  const std::vector<std::string_view> words = function_words(arguments);
  if (name == "eq" || name == "ne" || name == "lt" || name == "gt" || name == "le" || name == "ge") {
    if (words.size() != 2) return needs(name, "two values");
    const int order = compare(words[0], words[1]);
    const bool r = name == "eq"   ? order == 0
                   : name == "ne" ? order != 0
                   : name == "lt" ? order < 0
                   : name == "gt" ? order > 0
                   : name == "le" ? order <= 0
                                  : order >= 0;
    return std::string(truth_text(r));
  }
  if (name == "not" || name == "and" || name == "or" || name == "nand" || name == "nor") return logic(name, words);
  if (name == "if") {
    if (words.size() != 3) return needs(name, "a truth value and two values");
    auto value = script_truth(bare(words[0]));
    if (!value.ok()) return std::move(value).error();
    return std::string(*value ? words[1] : words[2]);
  }
  if (name == "in") {
    if (words.empty()) return needs(name, "a value and those it may be");
    return std::string(truth_text(
        std::any_of(words.begin() + 1, words.end(), [&](std::string_view w) { return bare(w) == bare(words[0]); })));
  }
  std::vector<Number> numbers;
  for (std::string_view word : words) {
    const auto number = number_of(word);
    if (!number) return Error(fmt::format("'{}' is not a number", word));
    numbers.push_back(*number);
  }
  if (name.starts_with("hton") || name.starts_with("ntoh")) return byte_order(name, numbers);
  return arithmetic(name, numbers);
}

}  // namespace sluice
