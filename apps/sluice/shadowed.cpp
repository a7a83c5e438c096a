#include "shadowed.h"

#include "control/json.h"
#include "rule_text.h"
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

}  // namespace

std::string report_shadowed(const LoadedAcl& acl, const std::string& unmatched, Json& json) {
  ShadowOptions options;
  if (!unmatched.empty()) options.unmatched = unmatched == "deny" ? AclVerb::kDeny : AclVerb::kPermit;
  Progress progress("comparing rules", acl.count);
  const Stopwatch watch;
  const auto findings = find_shadowed(acl.rules, acl.actions, options, [&](size_t done) {
    progress.update(done);
    return !interrupted().load(std::memory_order_relaxed);
  });
  progress.clear();
  stop_if_interrupted();
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
