#include "shadowed.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/input_file.h"
#include "control/json.h"
#include "control/why.h"
#include "formats/rule_files.h"
#include "rule_text.h"
#include "tables/acl/region.h"
#include "tables/acl/shadow.h"

namespace sluice::app {
namespace {

// The text shows the first ones; -o json has them all.
constexpr size_t kShown = 100;

const char* name_of(RuleFinding::Kind kind) {
  switch (kind) {
    case RuleFinding::Kind::kImpossible:
      return "impossible";
    case RuleFinding::Kind::kShadowed:
      return "shadowed";
    case RuleFinding::Kind::kRedundant:
      return "redundant";
    case RuleFinding::Kind::kUndecided:
      return "not decided";
  }
  return "";
}

std::string reason(const RuleFinding& f) {
  switch (f.kind) {
    case RuleFinding::Kind::kImpossible:
      return "no packet can match it";
    case RuleFinding::Kind::kShadowed:
      return fmt::format("{} before it match{} all of its packets{}",
                         f.by_count == 1 ? "the rule" : fmt::format("the {} rules", f.by_count),
                         f.by_count == 1 ? "es" : "",
                         !f.conflict       ? ""
                         : f.by_count == 1 ? ", with another action"
                                           : ", at least one with another action");
    case RuleFinding::Kind::kRedundant:
      return f.by_count == 0 ? std::string("without it, the default does the same with its packets")
                             : fmt::format("without it, {} below {} the same with its packets",
                                           f.by_count == 1 ? "the rule" : fmt::format("the {} rules", f.by_count),
                                           f.by_count == 1 ? "does" : "do");
    case RuleFinding::Kind::kUndecided:
      return "too many other rules overlap it";
  }
  return {};
}

// Whether the rules are of a filter with chains. Of an image the file that it was compiled from says so, if it is
// there.
bool has_chains(const LoadedAcl& acl) {
  RuleFormat format = RuleFormat::kAuto;
  if (acl.format != "image") {
    for (const RuleFormat one : {RuleFormat::kIptables, RuleFormat::kNft})
      if (acl.format == to_string(one)) format = one;
  } else if (acl.count != 0) {
    const std::string file(acl.source.file(1));
    std::error_code none;
    if (std::filesystem::is_regular_file(file, none)) {
      if (const Result<std::string> text = read_text_file(file); text.ok()) format = detect_rule_format(*text);
    }
  }
  return format == RuleFormat::kIptables || format == RuleFormat::kNft;
}

// A rule of a filter with chains is several of the list. It can go where all of these can: then it has one finding,
// about the last of them. A rule that is redundant only without a rule that now stays is not found either.
std::vector<RuleFinding> by_written_rule(const LoadedAcl& acl, const std::vector<RuleFinding>& findings) {
  using Kind = RuleFinding::Kind;
  using Place = std::pair<std::string_view, uint32_t>;
  const auto place = [&](uint32_t rule) { return Place(acl.source.file(rule), acl.source.line(rule)); };
  std::map<Place, std::vector<const RuleFinding*>> lines;
  std::map<Place, size_t> rules;
  for (uint32_t r = 1; r <= acl.count; ++r) ++rules[place(r)];
  for (const RuleFinding& f : findings) lines[place(f.rule)].push_back(&f);
  std::vector<const RuleFinding*> stay;
  for (auto line = lines.begin(); line != lines.end();) {
    if (line->second.size() == rules[line->first]) {
      ++line;
      continue;
    }
    stay.insert(stay.end(), line->second.begin(), line->second.end());
    line = lines.erase(line);
  }
  const auto needs = [&](const RuleFinding& f, const RuleFinding& other) {
    if (other.rule < f.rule || acl.actions.action(other.rule) == acl.actions.action(f.rule)) return false;
    const auto a = region_of(acl.rules.rule(f.rule)), b = region_of(acl.rules.rule(other.rule));
    return a && b && overlap(*a, *b);
  };
  for (size_t i = 0; i < stay.size(); ++i) {
    for (auto line = lines.begin(); line != lines.end();) {
      const bool kept = std::any_of(line->second.begin(), line->second.end(), [&](const RuleFinding* f) {
        return f->kind == Kind::kRedundant && needs(*f, *stay[i]);
      });
      if (!kept) {
        ++line;
        continue;
      }
      stay.insert(stay.end(), line->second.begin(), line->second.end());
      line = lines.erase(line);
    }
  }
  std::vector<RuleFinding> out;
  for (const auto& [at, all] : lines) {
    const RuleFinding* worst = all.front();
    for (const RuleFinding* f : all) {
      if (f->kind >= worst->kind) worst = f;
    }
    out.push_back(*worst);
  }
  std::sort(out.begin(), out.end(), [](const RuleFinding& a, const RuleFinding& b) { return a.rule < b.rule; });
  return out;
}

}  // namespace

std::string report_shadowed(const LoadedAcl& acl, const std::string& unmatched, Json& json) {
  ShadowOptions options;
  if (!unmatched.empty()) options.unmatched = unmatched == "deny" ? AclVerb::kDeny : AclVerb::kPermit;
  Progress progress("comparing rules", acl.count);
  const Stopwatch watch;
  auto findings = find_shadowed(acl.rules, acl.actions, options, [&](size_t done) {
    progress.update(done);
    return !interrupted().load(std::memory_order_relaxed);
  });
  progress.clear();
  stop_if_interrupted();
  if (has_chains(acl)) findings = by_written_rule(acl, findings);
  Json report{{"seconds", watch.seconds()}, {"findings", Json::array()}};
  uint64_t counts[4] = {};
  std::string text;
  for (const RuleFinding& f : findings) {
    ++counts[static_cast<size_t>(f.kind)];
    Json one = rule_json(acl, f.rule);
    one["finding"] = name_of(f.kind);
    one["by"] = Json::array();
    for (uint32_t rule : f.by) one["by"].push_back(rule_json(acl, rule));
    one["by_count"] = f.by_count;
    one["conflict"] = f.conflict;
    if (report["findings"].size() < kShown) {
      text += fmt::format("{:<12}{}\n            {}\n", name_of(f.kind), rule_line(one), reason(f));
      for (const Json& by : one["by"]) text += fmt::format("              {}\n", rule_line(by));
      if (f.by_count > f.by.size()) text += fmt::format("              and {} more\n", f.by_count - f.by.size());
    }
    report["findings"].push_back(std::move(one));
  }
  if (findings.size() > kShown)
    text += fmt::format("... and {} more: -o json has them all\n", with_commas(findings.size() - kShown));
  for (const auto kind : {RuleFinding::Kind::kImpossible, RuleFinding::Kind::kShadowed, RuleFinding::Kind::kRedundant,
                          RuleFinding::Kind::kUndecided}) {
    const std::string name = name_of(kind);
    report[name == "not decided" ? "not_decided" : name] = counts[static_cast<size_t>(kind)];
  }
  text +=
      fmt::format("{}: {} shadowed, {} redundant, {} impossible, {} not decided{}\n", acl.file, with_commas(counts[1]),
                  with_commas(counts[2]), with_commas(counts[0]), with_commas(counts[3]),
                  counts[0] + counts[1] + counts[2] == 0 ? "" : "; all but those not decided can be removed together");
  json["shadowed"] = std::move(report);
  return text;
}

}  // namespace sluice::app
