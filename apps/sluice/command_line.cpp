// host only
#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "help.h"

namespace sluice::app {
namespace {

// The check that each option with a number has; a range takes its place.
constexpr const char* kNumber = "number";

// Decimal numbers alone, and never another one than is written: CLI11 takes 010 for 8 and -1 for 2^64 - 1.
template <typename T>
CLI::Validator number(T low, T high, std::string description = {}) {
  const auto read = [low, high](std::string& text) -> std::string {
    T value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    bool good = error == std::errc() && stop == end && value >= low && value <= high;
    if constexpr (std::is_floating_point_v<T>) {
      good = good && std::isfinite(value);
      if (!good && low == std::numeric_limits<T>::lowest()) return fmt::format("'{}' is not a number", text);
    } else if (good) {
      text = std::to_string(value);
    }
    return good ? std::string() : fmt::format("'{}' is not a number from {} to {}", text, low, high);
  };
  return {read, std::move(description), kNumber};
}

template <typename T>
struct NumberOf {
  using Type = T;
};
template <typename T>
struct NumberOf<std::vector<T>> {
  using Type = T;
};

// "64KiB" as "65536". What is no number and a unit is left to number().
std::string read_size(std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits == text.size()) return {};
  const std::string unit = text.substr(std::min(text.find_first_not_of(' ', digits), text.size()));
  std::string word = unit;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t power = word == "b" ? 0 : std::string_view("kmgtpe").find(word.empty() ? ' ' : word[0]) + 1;
  const std::string_view rest = power == 0 ? std::string_view() : std::string_view(word).substr(1);
  if (power > 6 || (word != "b" && power == 0) || (!rest.empty() && rest != "b" && rest != "ib"))
    return fmt::format("'{}' is not a unit of size; write KiB, MiB or GiB", unit);
  uint64_t bytes = 0;
  if (std::from_chars(text.data(), text.data() + digits, bytes).ec != std::errc() ||
      bytes > std::numeric_limits<uint64_t>::max() >> (10 * power))
    return fmt::format("'{}' is not a number of bytes below 2^64", text);
  text = std::to_string(bytes << (10 * power));
  return {};
}

// "500ms" as "0.5" where the unit is a second. What is no number and a unit is left to number().
std::string read_duration(std::string& text, double unit) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3},
                                                            {"min", 60},  {"s", 1},     {"h", 3600}};
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || stop == end) return {};
  for (const auto& [name, seconds] : kUnits) {
    if (std::string_view(stop, static_cast<size_t>(end - stop)) != name) continue;
    text = fmt::format("{}", value * seconds / unit);
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return {};
  }
  return {};
}

}  // namespace

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}
Option& Option::check(const Range& range) {
  std::visit(
      [&](auto low) {
        using T = decltype(low);
        const T high = std::get<T>(range.high);
        *option_->get_validator(kNumber) = number<T>(low, high, CLI::Range(low, high).get_description());
      },
      range.low);
  return *this;
}
Option& Option::check(const OneOf& words) {
  option_->check(CLI::IsMember(words.words));
  return *this;
}
Option& Option::check(std::function<std::string(const std::string&)> wrong) {
  option_->check(std::move(wrong));
  return *this;
}
Option& Option::as_size() {
  option_->transform(CLI::Validator(read_size, "SIZE [b, kb(=1024b), ...]"));
  return *this;
}
Option& Option::as_duration(double unit) {
  option_->transform(CLI::Validator([unit](std::string& text) { return read_duration(text, unit); }, ""));
  return *this;
}
Option& Option::capture_default_str() {
  option_->capture_default_str();
  return *this;
}
Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::delimiter(char separator) {
  option_->delimiter(separator);
  return *this;
}
Option& Option::expected(int values) {
  option_->expected(values);
  return *this;
}
Option& Option::take_all() {
  option_->take_all();
  return *this;
}
Option& Option::group(const std::string& name) {
  option_->group(name);
  return *this;
}
void Option::needs_one(const Option& other) {
  option_->needs(other.option_);
}
void Option::excludes_one(const Option& other) {
  option_->excludes(other.option_);
}
void Option::excludes_one(const char* name) {
  option_->excludes(name);
}

template <typename T>
Option Command::add_option(const std::string& name, T& value, const std::string& help) {
  CLI::Option* const option = app_->add_option(name, value, help);
  using Number = typename NumberOf<T>::Type;
  if constexpr (std::is_arithmetic_v<Number>)
    option->transform(number<Number>(std::numeric_limits<Number>::lowest(), std::numeric_limits<Number>::max()));
  return Option(option);
}
Option Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}
Command Command::add_subcommand(const std::string& name, const std::string& summary) {
  return Command(*app_->add_subcommand(name, summary));
}
Command& Command::require_subcommand(int count) {
  app_->require_subcommand(count);
  return *this;
}
Command& Command::group(const std::string& name) {
  app_->group(name);
  return *this;
}
Command& Command::footer(const std::string& text) {
  app_->footer(text);
  return *this;
}
Command& Command::callback(std::function<void()> run) {
  app_->callback(std::move(run));
  return *this;
}
Command& Command::first_help(std::vector<std::pair<std::string, std::vector<std::string>>> sections,
                             const std::string& rest) {
  app_->formatter(help_formatter(std::move(sections), rest));
  app_->set_help_all_flag("--help-all", "Print all options and exit");
  return *this;
}
size_t Command::count(const std::string& option) const {
  return app_->count(option);
}
Option Command::find(const std::string& option) const {
  return Option(app_->get_option_no_throw(option));
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, unsigned&, const std::string&);
template Option Command::add_option(const std::string&, uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, int64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<unsigned>&, const std::string&);

}  // namespace sluice::app
