// host only
#include <fmt/format.h>

#include <charconv>

#include "elements/classifier/stage.h"
#include "elements/stage_element.h"
#include "graph/click/config_text.h"
#include "graph/router.h"

namespace sluice {
namespace {

constexpr size_t kMaxTests = 1u << 16;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Classifier final : public StageElement<ClassifierStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    for (const ArgumentValue& pattern : arguments.rest()) {
      const size_t before = tests_.size();
      add_pattern(arguments, pattern, diagnostics);
      if (tests_.size() > before) tests_.back().ends_pattern = 1;
      if (tests_.size() > kMaxTests) {
        diagnostics.add(
            arguments.error_in(pattern, fmt::format("the patterns need more than {} comparisons", kMaxTests)));
        return;
      }
      ++patterns_;
    }
    if (patterns_ > kMaxOutputs) {
      diagnostics.add(arguments.error_at(
          "PATTERN", fmt::format("{} patterns; there are {} outputs at most", patterns_, kMaxOutputs)));
    }
    stage_.tests = tests_.data();
    stage_.count = static_cast<uint32_t>(tests_.size());
  }
  std::optional<unsigned> output_count() const override { return patterns_; }
  bool output_optional(unsigned) const override { return false; }

 private:
  void add_pattern(const Arguments& arguments, const ArgumentValue& pattern, Diagnostics& diagnostics) {
    const std::string_view text = pattern.text;
    const std::vector<ConfigSlice> words = split_words(text);
    if (words.empty()) {
      diagnostics.add(arguments.error_in(pattern, "the pattern is empty"));
      return;
    }
    if (words.size() == 1 && text.substr(words[0].offset, words[0].length) == "-") {
      tests_.push_back({.ends_clause = 1});
      return;
    }
    for (const ConfigSlice& word : words) {
      std::string problem = add_clause(text.substr(word.offset, word.length));
      if (problem.empty()) continue;
      Diagnostic d = arguments.error_in(pattern, std::move(problem), word.offset, word.length);
      d.expected = "OFFSET/VALUE[%MASK] with hexadecimal digits, such as 12/0800";
      diagnostics.add(std::move(d));
    }
  }

  // Appends the tests of one clause; says what is wrong with it.
  std::string add_clause(std::string_view clause) {
    const std::string_view whole = clause;
    const bool negated = clause.starts_with('!');
    if (negated) clause.remove_prefix(1);
    uint32_t offset = 0;
    const auto [end, code] = std::from_chars(clause.data(), clause.data() + clause.size(), offset);
    if (code != std::errc() || end == clause.data() + clause.size() || *end != '/') {
      return fmt::format("'{}' does not start with an offset and '/'", whole);
    }
    if (offset > 65535) return fmt::format("offset {} is past 65535", offset);
    clause.remove_prefix(static_cast<size_t>(end - clause.data()) + 1);
    const size_t percent = clause.find('%');
    const std::string_view value = clause.substr(0, percent);
    const std::string_view mask = percent == std::string_view::npos ? std::string_view() : clause.substr(percent + 1);
    if (value.empty()) return fmt::format("'{}' has no value", whole);
    if (value.size() % 2 != 0) return fmt::format("'{}' has an odd number of digits", value);
    if (percent != std::string_view::npos && mask.size() != value.size()) {
      return fmt::format("the mask '{}' has {} digits and the value '{}' has {}", mask, mask.size(), value,
                         value.size());
    }
    std::vector<ClassifierTest> tests;
    for (size_t i = 0; i < value.size(); i += 2) {
      uint32_t byte = 0;
      uint32_t care = 0;
      for (size_t k = i; k < i + 2; ++k) {
        const int digit = hex_digit(value[k]);
        if (digit < 0 && value[k] != '?') return fmt::format("'{}' is not a hexadecimal digit or '?'", value[k]);
        uint32_t nibble_care = digit < 0 ? 0u : 15u;
        if (!mask.empty()) {
          const int masked = hex_digit(mask[k]);
          if (masked < 0 && mask[k] != '?') return fmt::format("'{}' is not a hexadecimal digit", mask[k]);
          nibble_care &= masked < 0 ? 0u : static_cast<uint32_t>(masked);
        }
        byte = byte << 4 | (digit < 0 ? 0u : static_cast<uint32_t>(digit) & nibble_care);
        care = care << 4 | nibble_care;
      }
      const auto n = static_cast<uint32_t>(i / 2);
      if (n % 4 == 0) tests.push_back({.offset = offset + n, .mask = 0, .value = 0, .bytes = 0});
      ClassifierTest& test = tests.back();
      test.mask |= care << (8 * (n % 4));
      test.value |= byte << (8 * (n % 4));
      if (care != 0) test.bytes = static_cast<uint8_t>(n % 4 + 1);
    }
    // Bytes that nobody looks at need not exist.
    for (ClassifierTest& test : tests) {
      if (test.bytes == 0) test.offset = 0;
    }
    tests.back().ends_clause = 1;
    tests.back().negated = negated ? 1 : 0;
    tests_.insert(tests_.end(), tests.begin(), tests.end());
    return {};
  }

  std::vector<ClassifierTest> tests_;
  unsigned patterns_ = 0;
};

}  // namespace

void register_classifier(Registry& registry) {
  ElementClass c{.name = "Classifier",
                 .group = "Classification",
                 .summary = "sends a packet to the output of the first pattern that its bytes match"};
  c.description =
      "A pattern is a list of clauses `OFFSET/VALUE[%MASK]` that must all hold: the bytes at OFFSET (decimal) are "
      "VALUE (hexadecimal, `?` is any digit) under MASK. `!` before a clause negates it. `-` matches everything. A "
      "clause about bytes past the packet's end does not hold.";
  c.arguments = {{.name = "PATTERN",
                  .kind = ArgumentKind::kRaw,
                  .positional = true,
                  .mandatory = true,
                  .repeated = true,
                  .help = "one pattern per output"}};
  c.outputs = {1, kMaxOutputs};
  c.output_docs = {"packets that match the first pattern", "packets that match the second and not the first", "..."};
  c.drops = {DropReason::kClassifierNoMatch};
  c.example = "c :: Classifier(12/0800, 12/86dd, -); in -> c; c[0] -> v4; c[1] -> v6; c[2] -> Discard;";
  c.make = make_element<Classifier>();
  registry.add(std::move(c));
}

}  // namespace sluice
