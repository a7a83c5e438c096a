// host only
#include "control/rule_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "formats/native_rules.h"

namespace sluice {
namespace {

constexpr size_t kMostKept = size_t{64} << 20;

bool is_native(std::string_view text, const RuleFormatChoice& choice) {
  return (choice.format == RuleFormat::kAuto ? detect_rule_format(text) : choice.format) == RuleFormat::kNative;
}

// Whether it has a word of the language by which a line means something to others: whether it stands in a comment or
// not, and however it is written.
bool has_context(std::string_view text) {
  const auto has = [&](std::string_view word) {
    return std::search(text.begin(), text.end(), word.begin(), word.end(),
                       [](char a, char b) { return (a | 0x20) == b; }) != text.end();
  };
  return has("define") || has("include");
}

// Bytes that both begin with.
size_t common_front(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t n = 0;
  constexpr size_t kStride = 1024;
  while (most - n >= kStride && std::memcmp(a.data() + n, b.data() + n, kStride) == 0) n += kStride;
  while (n < most && a[n] == b[n]) ++n;
  return n;
}

// Bytes that both end with.
size_t common_back(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t n = 0;
  constexpr size_t kStride = 1024;
  const auto end = [&](std::string_view text, size_t back) { return text.data() + text.size() - back; };
  while (most - n >= kStride && std::memcmp(end(a, n + kStride), end(b, n + kStride), kStride) == 0) n += kStride;
  while (n < most && *end(a, n + 1) == *end(b, n + 1)) ++n;
  return n;
}

size_t newlines_in(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

Result<RuleSet> RuleText::read(std::string_view text, const std::string& name, const RuleFormatChoice& choice) const {
  const auto whole = [&] { return parse_rules(text, name, choice); };
  // Whether the rules look at a state is known where all are read.
  if (text_.empty() || !is_native(text, choice) || choice.state != state_ || choice.stateful != nullptr) return whole();
  const std::string_view before = text_;
  // Whole lines: from the last end of a line that both have on, and up to the first.
  size_t front = common_front(before, text);
  while (front > 0 && before[front - 1] != '\n') --front;
  size_t back = common_back(before.substr(front), text.substr(front));
  const auto begins_line = [&](std::string_view all, size_t at) { return at == front || all[at - 1] == '\n'; };
  while (back > 0 && !(begins_line(before, before.size() - back) && begins_line(text, text.size() - back))) --back;
  const std::string_view gone = before.substr(front, before.size() - front - back),
                         come = text.substr(front, text.size() - front - back);
  if (has_context(come)) return whole();
  const IncludeReader none = [](const std::string&) -> Result<std::string> { return Error("no file is included"); };
  auto middle = parse_native_rules(come, name, none, kMaxNativeRules, {.state = choice.state});
  // What is wrong is said of the whole.
  if (!middle || rules_.rules.size() + middle->rules.size() > kMaxNativeRules) return whole();
  const size_t lines_before = newlines_in(before.substr(0, front)), lines_gone = newlines_in(gone),
               lines_come = newlines_in(come);
  if (newlines_in(text) >= std::numeric_limits<uint32_t>::max()) return whole();

  RuleSet next = rules_;
  next.files = std::move(middle->files);
  const auto behind = [&](size_t lines) {
    return std::partition_point(next.rules.begin(), next.rules.end(),
                                [lines](const AclRule& rule) { return rule.line <= lines; });
  };
  // The last line of what is gone has no end where the text had none.
  const auto first = behind(lines_before);
  const auto last = back == 0 ? next.rules.end() : behind(lines_before + lines_gone);
  for (auto rule = next.rules.begin(); rule != first; ++rule) rule->file = 0;
  for (auto rule = last; rule != next.rules.end(); ++rule) {
    rule->file = 0;
    rule->line = static_cast<uint32_t>(rule->line + lines_come - lines_gone);
  }
  for (AclRule& rule : middle->rules) rule.line += static_cast<uint32_t>(lines_before);
  const auto at = first - next.rules.begin();
  const auto shared = std::min(last - first, static_cast<ptrdiff_t>(middle->rules.size()));
  std::copy_n(middle->rules.begin(), shared, first);
  if (shared < last - first) {
    next.rules.erase(next.rules.begin() + at + shared, last);
  } else {
    next.rules.insert(next.rules.begin() + at + shared, middle->rules.begin() + shared, middle->rules.end());
  }
  return next;
}

void RuleText::keep(std::string text, RuleSet rules, const RuleFormatChoice& choice) {
  const bool suits = [&] {
    if (text.size() > kMostKept || rules.rules.size() > kMostRules || !is_native(text, choice)) return false;
    // What is as long as the one before, mostly, is not looked through: lines that both have were looked at then.
    const size_t front = common_front(text_, text);
    const size_t back = common_back(std::string_view(text_).substr(front), std::string_view(text).substr(front));
    // A word may begin in the one and end in the other.
    constexpr size_t kWord = 8;
    const size_t from = front > kWord ? front - kWord : 0, to = std::min(text.size() - back + kWord, text.size());
    return !has_context(std::string_view(text).substr(from, to - from));
  }();
  text_ = suits ? std::move(text) : std::string();
  rules_ = suits ? std::move(rules) : RuleSet();
  state_ = choice.state;
}

}  // namespace sluice
