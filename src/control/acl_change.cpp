// host only
#include "control/acl_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/cancel.h"
#include "control/change_text.h"
#include "formats/conn_state.h"
#include "formats/native_rules.h"

namespace sluice {
namespace {

constexpr const char* kCommandLine = "command line";

struct ChangeLine {
  AclStep::Verb verb;
  uint32_t at;
  bool rule;  // one stands there
};

// What stands in front of a rule. False: it is wrong.
bool read_step(Words& words, Diagnostics& findings, ChangeLine& made) {
  const std::string_view verb = words.peek();
  if (verb != "add" && verb != "delete" && verb != "replace") {
    wrong_verb(findings, words, verb, {"add", "delete", "replace"});
    return false;
  }
  words.take();
  const bool position = verb == "replace" || (verb == "add" && words.peek() == "at");
  if (verb == "add" && position) words.take();
  if (verb == "delete") {
    made.verb = AclStep::Verb::kDelete;
    Words rest = words;
    const auto n = number(rest.take());
    if (n && rest.done()) {
      made.at = *n;
      made.rule = false;
    }
  } else if (position) {
    if (verb == "replace") made.verb = AclStep::Verb::kReplace;
    const size_t at = words.at();
    const std::string_view word = words.take();
    if (const auto n = number(word)) {
      made.at = *n;
    } else {
      findings.error_at(at, std::max<size_t>(1, word.size()), fmt::format("'{}' is not a position", word)).expected =
          "the number of a rule, from 1";
      return false;
    }
  }
  return true;
}

// A rule of a list by which no connection begins. Without the word it is read on, for what else is wrong.
void refuse_keeping(Words words, Diagnostics& findings, std::string& rules) {
  while (!words.done()) {
    const size_t at = words.at();
    const std::string_view word = words.take();
    if (!names::same_word(word, "keep-state")) continue;
    findings.error_at(at, word.size(), fmt::format("{}; no ConnTrack has this list for new connections", kKeepsState))
        .expected = "a rule without keep-state, or the list that a ConnTrack names";
    std::fill_n(rules.begin() + static_cast<ptrdiff_t>(at), word.size(), ' ');
  }
}

std::vector<AclStep> steps_of(const std::vector<std::pair<uint32_t, ChangeLine>>& lines,
                              const std::vector<AclRule>& rules) {
  std::vector<AclStep> steps;
  steps.reserve(std::max(lines.size(), rules.size()));
  size_t next = 0;
  for (const auto& [line, l] : lines) {
    AclStep step;
    step.verb = l.verb;
    step.at = l.at;
    step.line = line;
    if (!l.rule) {
      steps.push_back(step);
      continue;
    }
    // A line whose groups have members is several rules in a row.
    for (bool first = true; next < rules.size() && rules[next].line == line; ++next, first = false) {
      step.rule = rules[next];
      if (!first && step.at != 0) {
        ++step.at;
        step.verb = AclStep::Verb::kAdd;
      }
      steps.push_back(step);
    }
  }
  return steps;
}

}  // namespace

Result<std::vector<AclStep>> parse_acl_change(std::string_view text, const std::string& name, size_t max_rules,
                                              bool keeps) {
  // The rules are read where they stand, by the reader of rule files: what is in front of them is blank for it.
  std::string rules(text);
  std::vector<std::pair<uint32_t, ChangeLine>> lines;
  Diagnostics findings(name, text);
  each_line(text, [&](uint32_t line, size_t begin, size_t end) {
    if (findings.error_count() > Diagnostics::kLimit) return;
    Words words(text, begin, end);
    if (words.done() || words.peek() == "define") return;
    ChangeLine made{AclStep::Verb::kAdd, 0, true};
    if (!read_step(words, findings, made)) {
      std::fill(rules.begin() + static_cast<ptrdiff_t>(begin), rules.begin() + static_cast<ptrdiff_t>(end), ' ');
      return;
    }
    if (made.rule && words.done()) {
      findings.error_at(words.at(), 1, "the rule is missing").expected =
          made.verb == AclStep::Verb::kDelete ? "the number of a rule, or a rule" : "a rule";
      return;
    }
    std::fill(rules.begin() + static_cast<ptrdiff_t>(begin),
              rules.begin() + static_cast<ptrdiff_t>(made.rule ? words.at() : end), ' ');
    if (!keeps && made.verb != AclStep::Verb::kDelete) refuse_keeping(words, findings, rules);
    lines.emplace_back(line, made);
  });
  const IncludeReader none = [](const std::string&) -> Result<std::string> {
    return Error("a change does not include other files", "replace the list with the file");
  };
  // The list may be one of a state's; which one is not known here, so that `state` is an error.
  auto parsed = parse_native_rules(rules, name, none, max_rules, {.keeps = true});
  if (!parsed) {
    if (parsed.error().diagnostics.empty()) return std::move(parsed).error();
    // Their lines as they were written.
    std::multimap<uint32_t, Diagnostic> found;
    for (const Diagnostic& d : parsed.error().diagnostics) found.emplace(d.line, d);
    each_line(text, [&](uint32_t line, size_t begin, size_t end) {
      for (auto [at, to] = found.equal_range(line); at != to; ++at) at->second.source_line = line_of(text, begin, end);
    });
    for (auto& [line, d] : found) findings.add(std::move(d));
  }
  if (!findings.ok()) {
    Error error = findings.to_error();
    std::stable_sort(error.diagnostics.begin(), error.diagnostics.end(),
                     [](const Diagnostic& a, const Diagnostic& b) { return a.line < b.line; });
    return error;
  }
  return steps_of(lines, parsed->rules);
}

Result<void> take_acl_steps(RuleList& list, const std::vector<AclStep>& steps, std::string_view text,
                            const std::string& name) {
  Diagnostics findings(name, text);
  const auto fault = [&](const AclStep& step, std::string message) {
    size_t from = 0, to = 0;
    each_line(text, [&](uint32_t line, size_t begin, size_t end) {
      if (line == step.line) from = begin, to = end;
    });
    findings.error_at(from, std::max<size_t>(1, to - from), std::move(message));
  };
  size_t taken = 0;
  for (const AclStep& step : steps) {
    if (findings.error_count() > Diagnostics::kLimit) break;
    if (++taken % 4096 == 0 && cancelled()) {
      list.undo();
      return cancelled_error();
    }
    uint32_t at = step.at;
    if (step.verb == AclStep::Verb::kDelete && at == 0) {
      at = list.find(step.rule);
      if (at == 0) {
        fault(step, fmt::format("the list has no such rule: {}", to_native(step.rule)));
        continue;
      }
    }
    const size_t last = list.size() + (step.verb == AclStep::Verb::kAdd ? 1 : 0);
    if (at > last) {
      fault(step, fmt::format("position {} is past the end: the list has {} rules", at, list.size()));
      continue;
    }
    if (step.verb == AclStep::Verb::kDelete) {
      list.erase(at);
      continue;
    }
    AclRule rule = step.rule;
    rule.file = list.file(name);
    if (name == kCommandLine) rule.line = 0;
    if (step.verb == AclStep::Verb::kReplace) {
      list.replace(at, rule);
    } else {
      list.insert(at == 0 ? last : at, rule);
    }
  }
  if (findings.ok()) return {};
  list.undo();
  return findings.to_error();
}

}  // namespace sluice
