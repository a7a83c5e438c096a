// host only
// `show rules`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/clock.h"
#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "formats/native_rules.h"
#include "tables/acl/sections.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

Json to_json(const HitCount& count) {
  return {{"packets", count.packets}, {"bytes", count.bytes}};
}

// An image that is patched has places between its rules where none is: there the range of ports is empty.
HitLedger::Counts hits_by_position(HitLedger::Counts counts) {
  if (counts.image == nullptr) return counts;
  const auto rules = AclRulesView::open(*counts.image);
  if (!rules) return {};
  uint32_t position = 0;
  for (uint32_t r = 1; r <= rules->size(); ++r) {
    if (rules->rule(r).src_port_low <= rules->rule(r).src_port_high) counts.rules[++position] = counts.rules[r];
  }
  counts.rules.resize(position + size_t{1});
  return counts;
}

const char* action_of(const AclRule& rule) {
  return rule.verb == AclVerb::kDeny ? "deny" : rule.verb == AclVerb::kMark ? "mark" : "permit";
}

Result<Json> show_rules(Control& c, Asked& asked) {
  const std::string& order = asked.text("order");
  if (order != "list" && order != "hits") return Error(fmt::format("'{}' is not an order", order), "list or hits");
  return list_rules(c, asked.text("table"), asked.flag("hits"), asked.number("from"), asked.number("count"),
                    order == "hits", true);
}

std::string rules_text(const Json& r, Rates* rates) {
  const bool hits = r.contains("no_match"), rate = hits && rates != nullptr;
  std::vector<std::string> heads = {"rule"};
  if (hits) heads.insert(heads.end(), {"packets", "bytes"});
  if (rate) heads.push_back("pps");
  heads.insert(heads.end(), {"place", "text"});
  TextTable table(heads);
  std::map<std::string, size_t> same;
  for (const Json& rule : r.at("rules")) {
    const std::string place = place_of(rule), text = word_of(rule, "text");
    std::vector<std::string> row = {with_commas(count_of(rule, "rule"))};
    if (hits) row.insert(row.end(), {with_commas(count_of(rule, "packets")), with_commas(count_of(rule, "bytes"))});
    if (rate) {
      // A rule's number is another's where the list changes: its words stay. Of rules with the same the order does.
      const std::string words = place + " " + text;
      row.push_back(rates->cell(fmt::format("{} {}", words, ++same[words]), count_of(rule, "packets")));
    }
    row.insert(row.end(), {place, text});
    table.add(row);
  }
  std::string t = table.str();
  if (hits) {
    t += fmt::format("no rule matched {}", counted(count_of(r.at("no_match"), "packets"), "packet"));
    if (const uint64_t gone = count_of(r.at("removed"), "packets"); gone != 0)
      t += fmt::format("; removed rules had {}", with_commas(gone));
    t += cleared_text(r) + "\n";
  }
  return t + more_text(r, r.at("rules").size());
}

}  // namespace

Result<Json> list_rules(Control& c, const std::string& asked, bool with_hits, size_t from, size_t count, bool by_hits,
                        bool since_clear) {
  auto table = only_table(c.tables->tables().acls, "access list", asked);
  if (!table) return std::move(table).error();
  auto set = c.tables->rules(*table);
  if (!set) return std::move(set).error();
  const RuleList& all = **set;
  HitLedger::Counts counts;
  if (with_hits || by_hits) {
    HitLedger& ledger = c.engine.hits();
    counts = hits_by_position(since_clear ? ledger.read_since_clear(*table) : ledger.read(*table));
  }
  // A list that no element uses was never counted.
  counts.rules.resize(all.size() + 1);
  std::vector<uint32_t> shown;
  if (by_hits) {
    for (uint32_t r = 1; r <= all.size(); ++r) {
      if (counts.rules[r].packets != 0) shown.push_back(r);
    }
    std::stable_sort(shown.begin(), shown.end(),
                     [&](uint32_t a, uint32_t b) { return counts.rules[a].packets > counts.rules[b].packets; });
  } else {
    shown.resize(all.size());
    std::iota(shown.begin(), shown.end(), 1u);
  }
  Json json{{"table", *table}, {"total", shown.size()}, {"from", from}, {"rules", Json::array()}};
  for (size_t i = from - 1; i < shown.size() && i - (from - 1) < count; ++i) {
    const AclRule& rule = all.at(shown[i]);
    Json one{{"rule", shown[i]}, {"action", action_of(rule)}, {"text", to_native(rule)}};
    if (rule.line != 0 && rule.file < all.files().size()) {
      one["file"] = all.files()[rule.file];
      one["line"] = rule.line;
    }
    if (with_hits) one.update(to_json(counts.rules[shown[i]]));
    json["rules"].push_back(std::move(one));
  }
  if (with_hits) {
    json["no_match"] = to_json(counts.rules[0]);
    json["removed"] = to_json(counts.removed);
    if (since_clear && c.rules_cleared_ns != 0)
      json["cleared_seconds_ago"] = static_cast<double>(now_ns() - c.rules_cleared_ns) * 1e-9;
  }
  return json;
}

std::vector<CommandRow> rule_commands() {
  using namespace fields;
  constexpr uint64_t kMostLines = 100'000;
  return {
      {.name = "show rules",
       .help = "The rules of an access list of a running process; --hits adds counters.",
       .examples = "sluice show rules --hits\nsluice show rules --by-hits --count 10\n"
                   "sluice show rules --native > edge.acl\n"
                   "sluice show rules --table edge --from 1001 --count 1000 -o json",
       .fields = {text("table", "").as("--table", "NAME", "Which access list (default: the only one)"),
                  flag("hits").as("--hits", "With packets and bytes per rule"),
                  preset("--by-hits", {{"hits", true}, {"order", "hits"}},
                         "The same, most packets first, without rules that matched none"),
                  from(RuleSet::kMaxRules, "line"), count(kMostLines, 100, 50, "Lines to show, 1 to 100000"),
                  text("order", "list").means("list, or hits: most packets first"),
                  preset("--native", {{"command", "show text"}, {"kind", "acl"}},
                         "All rules as a file of native rules, which --acl and 'acl replace' read")
                      .never_with({"--hits", "--by-hits", "--from", "--count", "--interval"})},
       .run = show_rules,
       .text = rules_text,
       .watched = true,
       .path = "rules"},
  };
}

}  // namespace sluice
