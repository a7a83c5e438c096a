// host only
#include "control/table_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "formats/adjacency_text.h"
#include "formats/native_rules.h"
#include "formats/qos_text.h"
#include "net/text.h"

namespace sluice {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    lines.push_back(line);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return lines;
}
void add_line(std::string& out, std::string_view line) {
  out += line;
  out += '\n';
}

// The first word of a line of routes or adjacencies; none: it is blank or a comment.
std::string_view first_word(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r,";
  const size_t begin = std::min(line.find_first_not_of(kBlanks), line.size());
  if (begin == line.size() || line[begin] == '#') return {};
  return line.substr(begin, std::min(line.find_first_of(" \t\r,", begin), line.size()) - begin);
}

Error not_the_same(const std::string& file, const char* what) {
  return Error(fmt::format("{}: its {} cannot be edited line by line", file, what));
}

// --- rules ---

std::vector<std::string> native(const RuleList& rules) {
  std::vector<std::string> all;
  all.reserve(rules.size());
  for (size_t i = 1; i <= rules.size(); ++i) all.push_back(to_native(rules.at(i)));
  return all;
}

// By rule of `now`: the one of `before` that it is, or ~0. Both in order, and as many as there can be: the longest
// increasing subsequence of the places where equal rules are, the first with the first and so on.
std::vector<size_t> kept(const std::vector<std::string>& before, const std::vector<std::string>& now) {
  constexpr size_t kNone = ~size_t{0};
  std::unordered_map<std::string_view, std::vector<size_t>> places;  // the last first
  for (size_t i = before.size(); i-- > 0;) places[before[i]].push_back(i);
  std::vector<size_t> at(now.size(), kNone), link(now.size(), kNone), ends;  // ends[n]: the least end of n + 1 rules
  for (size_t i = 0; i < now.size(); ++i) {
    const auto found = places.find(now[i]);
    if (found == places.end() || found->second.empty()) continue;
    at[i] = found->second.back();
    found->second.pop_back();
    const auto longer = std::ranges::lower_bound(ends, at[i], {}, [&](size_t end) { return at[end]; });
    if (longer != ends.begin()) link[i] = *std::prev(longer);
    if (longer == ends.end()) {
      ends.push_back(i);
    } else {
      *longer = i;
    }
  }
  std::vector<size_t> all(now.size(), kNone);
  for (size_t i = ends.empty() ? kNone : ends.back(); i != kNone; i = link[i]) all[i] = at[i];
  return all;
}

// --- routes ---

struct SaidRoute {
  std::string source, next_hop;
  uint32_t metric = 0;
  uint8_t preference = 0;
  friend bool operator==(const SaidRoute&, const SaidRoute&) = default;
};
// Best first.
std::vector<SaidRoute> said_of(const SourcedRib& rib, const IpPrefix& prefix) {
  std::vector<SaidRoute> all;
  for (const RouteCandidate& c : rib.candidates(prefix))
    all.push_back({rib.source_name(c.source), std::string(rib.next_hops().name(c.next_hop)), c.metric, c.preference});
  return all;
}

std::vector<IpPrefix> prefixes_of(const SourcedRib& rib) {
  const auto key = [](const IpPrefix& p) { return std::tuple(p.address.family, p.address.hi, p.address.lo, p.length); };
  std::vector<IpPrefix> all;
  for (unsigned s = 1; s <= rib.source_count(); ++s) {
    for (const SourcedRib::Owned& owned : rib.owned(static_cast<uint8_t>(s))) all.push_back(owned.prefix);
  }
  std::ranges::sort(all, {}, key);
  all.erase(std::unique(all.begin(), all.end(), [&](const IpPrefix& a, const IpPrefix& b) { return key(a) == key(b); }),
            all.end());
  return all;
}

// The routes of these prefixes, below a line for each source. `begun`: lines of the text before it are of this source
// and preference; empty: of another.
void add_routes(std::string& out, const SourcedRib& rib, const std::vector<IpPrefix>& prefixes,
                const std::string& begun) {
  std::map<std::pair<uint8_t, uint8_t>, std::string> sections;  // by source, in the order in which they were named
  for (const IpPrefix& prefix : prefixes) {
    for (const RouteCandidate& c : rib.candidates(prefix)) {
      std::string& section = sections[{c.source, c.preference}];
      section += fmt::format("{} via {}", to_string(prefix), rib.next_hops().name(c.next_hop));
      if (c.metric != 0) section += fmt::format(" metric {}", c.metric);
      section += '\n';
    }
  }
  for (const auto& [of, lines] : sections) {
    const std::string& source = rib.source_name(of.first);
    const bool usual = of.second == default_preference(source);
    if (!(usual && source == begun && of == sections.begin()->first))
      out += fmt::format("source {}{}\n", source, usual ? "" : fmt::format(" preference {}", of.second));
    out += lines;
  }
}

// --- adjacencies ---

std::string definition_lines(const std::string& name, const NextHopDefinition& d) {
  std::string out;
  for (const char* word : {"blackhole", "drop", "unreachable", "throw", "prohibit", "local", "punt"}) {
    if (d.flags == 0 || next_hop_flags(word) != d.flags) continue;
    return fmt::format("{} {}\n", name, word);
  }
  if (!d.members.empty()) {
    out = name + " group";
    for (const NextHopMember& m : d.members) {
      out += " " + m.name;
      if (m.weight != 1) out += fmt::format("*{}", m.weight);
    }
    if (d.buckets != 0) out += fmt::format(" resilient {}", d.buckets);
    return out + "\n";
  }
  for (const AdjacencyModel::Neighbour& n : d.neighbours) {
    out += fmt::format("{} {} {} {}", name, to_string(n.destination), to_string(n.source), n.port);
    if (n.vlan != 0) out += fmt::format(" vlan {}", n.vlan);
    if (n.mtu != AdjacencyModel::kDefaultMtu) out += fmt::format(" mtu {}", n.mtu);
    if (n.weight != 1) out += fmt::format(" weight {}", n.weight);
    out += '\n';
  }
  return out;
}

}  // namespace

std::string rules_text(const RuleList& rules) {
  std::string out;
  for (size_t i = 1; i <= rules.size(); ++i) add_line(out, to_native(rules.at(i)));
  return out.empty() ? "# no rules\n" : out;
}

Result<std::string> edit_rules(std::string_view text, const std::string& file, const RuleList& rules) {
  auto parsed = parse_native_rules(text, file);
  if (!parsed) return std::move(parsed).error();
  if (parsed->files.size() > 1) {
    return Error(fmt::format("{}: it includes {}", file, parsed->files[1]),
                 "rules of several files are not written back");
  }
  const std::vector<std::string_view> lines = lines_of(text);
  std::vector<std::string> before;
  std::vector<std::pair<size_t, size_t>> rules_of(lines.size() + 1);  // by line, from 1: its first rule, and how many
  for (const AclRule& rule : parsed->rules) {
    auto& [first, count] = rules_of[rule.line];
    if (count++ == 0) first = before.size();
    before.push_back(to_native(rule));
  }
  const std::vector<std::string> now = native(rules);
  const std::vector<size_t> same = kept(before, now);
  std::string out;
  size_t next = 1;  // line
  const auto without_rules = [&](size_t end) {
    for (; next < end; ++next) {
      if (rules_of[next].second == 0) add_line(out, lines[next - 1]);
    }
  };
  for (size_t i = 0; i < now.size();) {
    const size_t line = same[i] == ~size_t{0} ? 0 : parsed->rules[same[i]].line;
    const auto [first, count] = rules_of[line];
    // A line stays where all its rules do, one after another.
    size_t in_a_row = 0;
    while (line != 0 && in_a_row < count && i + in_a_row < now.size() && same[i + in_a_row] == first + in_a_row)
      ++in_a_row;
    if (line == 0 || in_a_row != count) {
      add_line(out, now[i++]);
      continue;
    }
    without_rules(line);
    add_line(out, lines[line - 1]);
    next = line + 1;
    i += count;
  }
  without_rules(lines.size() + 1);
  if (out.empty()) out = "# no rules\n";
  const auto again = parse_native_rules(out, file);
  if (!again || again->rules.size() != now.size()) return not_the_same(file, "rules");
  for (size_t i = 0; i < now.size(); ++i) {
    if (to_native(again->rules[i]) != now[i]) return not_the_same(file, "rules");
  }
  return out;
}

std::string routes_text(const SourcedRib& routes) {
  std::string out;
  add_routes(out, routes, prefixes_of(routes), "static");
  return out.empty() ? "# no routes\n" : out;
}

namespace {

Result<SourcedRib> read_routes(std::string text, const RouteFile& file) {
  std::string name = file.path;
  if (!file.source.empty()) name += ",source=" + file.source;
  if (file.preference) name += fmt::format(",preference={}", *file.preference);
  InputSet inputs;
  inputs.put(file.path, InputFile::over(std::move(text), file.path));
  return read_route_sources({name}, nullptr, {}, {}, &inputs);
}

}  // namespace

Result<std::string> edit_routes(std::string_view text, const RouteFile& file, const SourcedRib& routes) {
  auto before = read_routes(std::string(text), file);
  if (!before) return std::move(before).error();
  const std::vector<IpPrefix> now = prefixes_of(routes);
  std::set<std::string> changed;
  std::vector<IpPrefix> added;
  for (const IpPrefix& prefix : now) {
    if (said_of(routes, prefix) == said_of(*before, prefix)) continue;
    changed.insert(to_string(prefix));
    added.push_back(prefix);
  }
  for (const IpPrefix& prefix : prefixes_of(*before)) {
    if (routes.candidates(prefix).empty()) changed.insert(to_string(prefix));
  }
  const auto lines = lines_of_routes(text, file);
  if (!lines) return lines.error();
  std::string out;
  size_t at = 0;
  for (const RouteLine& line : *lines) {
    if (!changed.contains(to_string(line.prefix))) continue;
    out += text.substr(at, line.begin - at);
    at = line.end;
  }
  out += text.substr(std::min(at, text.size()));
  if (!out.empty() && out.back() != '\n') out += '\n';
  add_routes(out, routes, added, {});
  if (out.empty()) out = "# no routes\n";
  auto again = read_routes(out, file);
  if (!again || prefixes_of(*again).size() != now.size()) return not_the_same(file.path, "routes");
  for (const IpPrefix& prefix : now) {
    if (said_of(*again, prefix) != said_of(routes, prefix)) return not_the_same(file.path, "routes");
  }
  return out;
}

std::string adjacencies_text(const NextHopDefinitions& definitions) {
  std::string out;
  if (definitions.via_default) out += "resolve-via default\n";
  for (const auto& [name, definition] : definitions.names) out += definition_lines(name, definition);
  return out.empty() ? "# no next hops\n" : out;
}

Result<std::string> edit_adjacencies(std::string_view text, const std::string& file,
                                     const NextHopDefinitions& definitions) {
  auto before = parse_next_hops(text, file);
  if (!before) return std::move(before).error();
  const auto& now = definitions.names;
  std::set<std::string, std::less<>> changed;
  std::string added;
  for (const auto& [name, definition] : now) {
    const auto at = before->names.find(name);
    if (at != before->names.end() && at->second == definition) continue;
    changed.insert(name);
    added += definition_lines(name, definition);
  }
  for (const auto& [name, definition] : before->names) {
    if (!now.contains(name)) changed.insert(name);
  }
  std::string out;
  for (const std::string_view line : lines_of(text)) {
    if (!changed.contains(first_word(line))) add_line(out, line);
  }
  out += added;
  if (out.empty()) out = "# no next hops\n";
  const auto again = parse_next_hops(out, file);
  if (!again || again->names != now || again->via_default != definitions.via_default)
    return not_the_same(file, "next hops");
  return out;
}

Result<std::string> edit_list(const TableKind& kind, std::string_view text, const std::vector<std::string>& entries) {
  std::set<std::string, std::less<>> missing(entries.begin(), entries.end());
  std::string out;
  for (const std::string_view line : lines_of(text)) {
    const std::string_view words = list_line(line);
    const auto entry = words.empty() ? Result<std::string>(std::string()) : kind.parse(words);
    if (!entry) return entry.error();
    if (words.empty() || missing.erase(*entry) != 0) add_line(out, line);
  }
  for (const std::string& entry : entries) {
    if (missing.contains(entry)) add_line(out, entry);
  }
  const auto again = parse_list(kind, out, kind.words);
  if (again.ok() && *again == entries) return out;
  out.clear();
  for (const std::string& entry : entries) add_line(out, entry);
  return out;
}

namespace {

std::string rate_text(uint64_t bps) {
  constexpr std::pair<uint64_t, const char*> kUnits[] = {{1'000'000'000, "Gbps"}, {1'000'000, "Mbps"}, {1'000, "kbps"}};
  for (const auto& [unit, name] : kUnits) {
    if (bps % unit == 0) return fmt::format("{}{}", bps / unit, name);
  }
  return fmt::format("{}bps", bps);
}

// A line of `class` or `port` with another rate; 0: without one. What it names stands before the words from `first` on.
std::string with_rate(std::string_view line, size_t first, uint64_t bps) {
  const std::string_view said = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (size_t at = 0; (at = said.find_first_not_of(" \t\r", at)) < said.size();) {
    const size_t end = std::min(said.find_first_of(" \t\r", at), said.size());
    words.push_back(said.substr(at, end - at));
    at = end;
  }
  const auto begin_of = [&](size_t word) { return static_cast<size_t>(words[word].data() - line.data()); };
  const auto end_of = [&](size_t word) { return begin_of(word) + words[word].size(); };
  std::string out(line);
  const auto value_of = [&](std::string_view key) {
    size_t at = first;
    while (at < words.size() && words[at] != key) ++at;
    return at + 1;
  };
  const size_t rate = value_of("rate"), burst = value_of("burst");
  if (rate >= words.size()) {
    if (bps != 0) out.insert(end_of(words.size() - 1), " rate " + rate_text(bps));
    return out;
  }
  if (bps != 0) return out.replace(begin_of(rate), words[rate].size(), rate_text(bps));
  // The one that stands behind first, so that the other's place holds.
  std::vector<size_t> gone{rate};
  if (burst < words.size()) gone.push_back(burst);
  std::ranges::sort(gone, std::greater());
  for (const size_t value : gone) out.erase(end_of(value - 2), end_of(value) - end_of(value - 2));
  return out;
}

}  // namespace

Result<std::string> edit_qos(std::string_view text, const std::string& file, const QosModel& model) {
  const auto before = parse_qos(text, file);
  if (!before) return before.error();
  std::string out;
  size_t next = 0;  // class
  bool port = false;
  for (const std::string_view line : lines_of(text)) {
    std::string_view word = first_word(line);
    if (word.starts_with("\xEF\xBB\xBF")) word.remove_prefix(3);
    if (word == "class" && next < model.classes.size()) {
      const uint64_t bps = model.classes[next].rate_bps;
      add_line(out, bps == before->classes[next].rate_bps ? std::string(line) : with_rate(line, 2, bps));
      ++next;
    } else if (word == "port") {
      port = true;
      // A port without a rate is no line at all.
      if (model.port_rate_bps == before->port_rate_bps) {
        add_line(out, line);
      } else if (model.port_rate_bps != 0) {
        add_line(out, with_rate(line, 1, model.port_rate_bps));
      }
    } else {
      add_line(out, line);
    }
  }
  if (!port && model.port_rate_bps != 0) add_line(out, "port rate " + rate_text(model.port_rate_bps));
  const auto again = parse_qos(out, file);
  if (!again || format_qos(*again) != format_qos(model)) return not_the_same(file, "classes");
  return out;
}

}  // namespace sluice
