// host only
#include "control/live_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "base/cancel.h"
#include "base/clock.h"
#include "control/acl_change.h"
#include "control/change_text.h"
#include "elements/table_use.h"
#include "formats/adjacency_text.h"
#include "formats/route_files.h"
#include "formats/route_text.h"
#include "formats/rule_files.h"
#include "net/text.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/patch.h"

namespace sluice {
namespace {

class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(now_ns() - start_) * 1e-9; }

 private:
  uint64_t start_ = now_ns();
};

// Takes something back, after errors and exceptions alike, unless it is kept.
template <typename F>
class Unless {
 public:
  explicit Unless(F back) : back_(std::move(back)) {}
  ~Unless() {
    if (!kept_) back_();
  }
  Unless(const Unless&) = delete;
  Unless& operator=(const Unless&) = delete;
  void keep() { kept_ = true; }

 private:
  F back_;
  bool kept_ = false;
};

// Images that are built anew for every version.
class RebuiltRoutes final : public RouteImageMaker {
 public:
  RebuiltRoutes(std::string algorithm4, std::string algorithm6)
      : algorithm4_(std::move(algorithm4)), algorithm6_(std::move(algorithm6)) {}
  Result<std::shared_ptr<const Image>> make(const SourcedRib& next, const std::vector<RouteStep>&) override {
    return share(build_routes(next.best_routes(), algorithm4_, algorithm6_));
  }

 private:
  std::string algorithm4_, algorithm6_;
};

class PatchedRouteImages final : public RouteImageMaker {
 public:
  PatchedRouteImages(std::string algorithm4, std::string algorithm6, Publisher& publisher) : publisher_(publisher) {
    options_.algorithm4 = std::move(algorithm4);
    options_.algorithm6 = std::move(algorithm6);
  }

  Result<std::shared_ptr<const Image>> make(const SourcedRib& next, const std::vector<RouteStep>& steps) override {
    const NextHopIds& ids = next.next_hops();
    if (patched_ == nullptr || steps.empty()) {
      auto made = PatchedRoutes::create(next.best_routes(), options_);
      if (!made) return std::move(made).error();
      patched_ = std::move(*made);
    } else {
      for (; names_ < ids.count(); ++names_) patched_->intern(ids.name(names_ + 1));
      for (const RouteStep& step : steps) patched_->set(step.prefix, step.next_hop);
    }
    names_ = ids.count();
    return publish_patched(*patched_, publisher_);
  }
  size_t bytes() const override {
    return patched_ == nullptr ? 0 : (1 + patched_->replicas().replicas()) * patched_->replicas().size();
  }

 private:
  Publisher& publisher_;
  PatchedRoutesOptions options_;
  std::unique_ptr<PatchedRoutes> patched_;
  uint32_t names_ = 0;
};

// -- makers by the table's algorithm ----------------------------------------------------------------------------------

std::unique_ptr<RouteImageMaker> maker_of(const TableChange& change, bool rebuilt, Publisher& publisher,
                                          const std::vector<RouteStep>&) {
  const size_t plus = change.algorithm.find('+');
  std::string four = change.algorithm.substr(0, plus), six = change.algorithm.substr(plus + 1);
  if (rebuilt) return std::make_unique<RebuiltRoutes>(std::move(four), std::move(six));
  return std::make_unique<PatchedRouteImages>(std::move(four), std::move(six), publisher);
}

// The rules of a compiled image as they were configured.
Result<RuleSet> rules_of(const Image& image) {
  auto rules = AclRulesView::open(image);
  auto actions = AclActionsView::open(image);
  auto source = AclSourceView::open(image);
  if (!rules) return std::move(rules).error();
  if (!actions) return std::move(actions).error();
  if (!source) return std::move(source).error();
  RuleSet set;
  std::map<std::string, uint32_t, std::less<>> files;
  for (uint32_t r = 1; r <= rules->size(); ++r) {
    const AclMatchRule& flat = rules->rule(r);
    AclRule rule;
    rule.family = flat.family;
    const auto prefix = [&](uint64_t hi, uint64_t lo, uint8_t length) {
      const auto own = static_cast<uint8_t>(length != 0 && flat.family == 4 ? length - 96 : length);
      return IpPrefix{IpAddress{hi, lo, own == 0 ? uint8_t{0} : flat.family}, own};
    };
    rule.src = prefix(flat.src_hi, flat.src_lo, flat.src_length);
    rule.dst = prefix(flat.dst_hi, flat.dst_lo, flat.dst_length);
    rule.src_port_low = flat.src_port_low;
    rule.src_port_high = flat.src_port_high;
    rule.dst_port_low = flat.dst_port_low;
    rule.dst_port_high = flat.dst_port_high;
    rule.protocol = flat.protocol;
    rule.protocol_mask = flat.protocol_mask;
    rule.flags = flat.flags;
    rule.flags_mask = flat.flags_mask;
    if (flat.dscp_mask != 0) rule.dscp = flat.dscp;
    rule.needs_ports = (flat.bits & flat.bits_mask & FlowKey::kHasPorts) != 0;
    const auto without = static_cast<uint8_t>(rule.needs_ports ? ~unsigned{FlowKey::kHasPorts} : ~0u);
    rule.bits = flat.bits & without;
    rule.bits_mask = flat.bits_mask & without;
    rule.icmp = flat.icmp;
    rule.icmp_mask = flat.icmp_mask;
    const AclAction action = actions->action(r);
    rule.verb = action.verb;
    rule.mark = action.mark;
    rule.log = action.log != 0;
    rule.line = source->line(r);
    const auto [it, fresh] = files.try_emplace(std::string(source->file(r)), static_cast<uint32_t>(files.size()));
    if (fresh) set.files.push_back(it->first);
    rule.file = it->second;
    set.rules.push_back(rule);
  }
  return set;
}

// -- routes -----------------------------------------------------------------------------------------------------------

// The words of a change that say more than a route file does, and what is left of its line once they are blank.
struct RouteWords {
  std::string route;
  std::string source;
  std::optional<uint8_t> preference;
  std::optional<uint32_t> metric;
};

class RouteChange {
 public:
  RouteChange(SourcedRib& rib, std::string_view text, const std::string& name)
      : rib_(rib), text_(text), name_(name), findings_(name, text) {}

  Result<std::vector<RouteStep>> make() {
    each_line(text_, [&](uint32_t line, size_t begin, size_t end) {
      if (findings_.error_count() > Diagnostics::kLimit || cancelled()) return;
      line_ = line;
      begin_ = begin;
      end_ = end;
      Words words(text_, begin, end);
      if (words.done()) return;
      const std::string_view verb = words.peek();
      if (verb != "add" && verb != "append" && verb != "delete") {
        wrong_verb(findings_, words, verb, {"add", "append", "delete"});
        return;
      }
      words.take();
      if (words.done()) {
        findings_.error_at(words.at(), 1, "the prefix is missing").expected =
            verb == "delete" ? "PREFIX" : "PREFIX NEXTHOP";
      } else if (verb == "delete") {
        erase(words);
      } else {
        add(words.at(), verb == "append");
      }
    });
    if (!findings_.ok()) return findings_.to_error();
    if (cancelled()) return cancelled_error();
    return std::move(steps_);
  }

 private:
  void step(const IpPrefix& prefix) { steps_.push_back({prefix, rib_.best(prefix)}); }

  // Reads `source`, `preference` and `metric` from `words` on. False: an error was reported.
  bool options(Words words, RouteWords& out) {
    while (!words.done()) {
      const size_t key_at = words.at();
      const std::string_view key = words.take();
      if (key == "via" || key == "dev") {
        words.take();
        continue;
      }
      if (key != "source" && key != "preference" && key != "metric") continue;
      const size_t at = words.done() ? key_at : words.at();
      const std::string_view value = words.take();
      if (key == "source") {
        if (value.empty() || value.size() > 64)
          return findings_.error_at(at, std::max<size_t>(1, value.size()), "a source has a name of 1 to 64 bytes"),
                 false;
        out.source = value;
      } else {
        uint32_t n = 0;
        const auto [stop, code] = std::from_chars(value.data(), value.data() + value.size(), n);
        const bool preference = key == "preference";
        if (code != std::errc() || stop != value.data() + value.size() || (preference && n > 255)) {
          findings_.error_at(at, std::max<size_t>(1, value.size()), fmt::format("'{}' is not a valid {}", value, key))
              .expected = preference ? "0 (best) to 255" : "0 to 4294967295";
          return false;
        }
        if (preference)
          out.preference = static_cast<uint8_t>(n);
        else
          out.metric = n;
      }
      // A metric is the route reader's to understand.
      if (key != "metric") {
        const size_t base = begin_;
        std::fill(out.route.begin() + static_cast<ptrdiff_t>(key_at - base),
                  out.route.begin() + static_cast<ptrdiff_t>(at + value.size() - base), ' ');
      }
    }
    return true;
  }

  uint8_t source_of(const RouteWords& said) {
    const std::string& name = said.source.empty() ? kControlSource : said.source;
    const uint8_t source = rib_.source(name);
    if (source == 0)
      findings_.error_at(begin_, end_ - begin_, fmt::format("more than {} sources", SourcedRib::kMaxSources));
    return source;
  }

  void add(size_t at, bool append) {
    RouteWords said;
    said.route.assign(text_.substr(begin_, end_ - begin_));
    std::fill(said.route.begin(), said.route.begin() + static_cast<ptrdiff_t>(at - begin_), ' ');
    if (!options(Words(text_, at, end_), said)) return;
    Rib one;
    std::vector<RankedRoute> ranked;
    auto parsed = parse_routes(said.route, name_, one, &ranked);
    if (!parsed) {
      if (parsed.error().diagnostics.empty()) findings_.error_at(at, end_ - at, parsed.error().message);
      for (Diagnostic d : parsed.error().diagnostics) {
        d.line = line_;
        d.source_line = line_of(text_, begin_, end_);
        findings_.add(std::move(d));
      }
      return;
    }
    one.settle();
    if (one.routes4().size() == 1)
      ranked.push_back({{{0, one.routes4()[0].address, 4}, one.routes4()[0].length}, one.routes4()[0].next_hop, 0});
    if (one.routes6().size() == 1) {
      const Route6& r = one.routes6()[0];
      ranked.push_back({{{r.hi, r.lo, 6}, r.length}, r.next_hop, 0});
    }
    if (ranked.size() != 1) {
      findings_.error_at(at, end_ - at, "this route cannot be used").expected = "PREFIX NEXTHOP";
      return;
    }
    const uint8_t source = source_of(said);
    if (source == 0) return;
    const RankedRoute& route = ranked[0];
    std::string hop = one.next_hop_name(route.next_hop);
    RouteCandidate candidate{route.metric, 0, source,
                             said.preference.value_or(default_preference(rib_.source_name(source)))};
    if (append) {
      for (const RouteCandidate& c : rib_.candidates(route.prefix)) {
        if (c.source != source || c.metric != route.metric) continue;
        hop = fmt::format("{}+{}", rib_.next_hops().name(c.next_hop), hop);
        if (!said.preference) candidate.preference = c.preference;
      }
      if (hop.size() > 255) {
        findings_.error_at(at, end_ - at, "a group of next hops with a name of more than 255 bytes").suggestion =
            "name a group in the adjacency file";
        return;
      }
    }
    // A prefix's routes are a list that is walked: one of any length would make the time of a change its square.
    const std::vector<RouteCandidate> there = rib_.candidates(route.prefix);
    if (there.size() >= kMostRoutesOfAPrefix && std::ranges::none_of(there, [&](const RouteCandidate& c) {
          return c.source == source && c.metric == route.metric;
        })) {
      findings_.error_at(at, end_ - at,
                         fmt::format("more than {} routes for {}", kMostRoutesOfAPrefix, to_string(route.prefix)));
      return;
    }
    candidate.next_hop = static_cast<uint16_t>(rib_.next_hops().intern(hop));
    if (candidate.next_hop == 0) {
      findings_.error_at(at, end_ - at, fmt::format("more than {} different next hops", NextHopIds::kMost));
      return;
    }
    rib_.add(route.prefix, candidate);
    step(route.prefix);
  }

  void erase(Words words) {
    const size_t at = words.at();
    const std::string_view word = words.take();
    RouteWords said;
    said.route.assign(text_.substr(begin_, end_ - begin_));
    if (!options(words, said)) return;
    const size_t rest = words.at();
    Words left(said.route, rest - begin_, said.route.size());
    if (said.metric && left.peek() == "metric") left.take(), left.take();
    const uint8_t source = said.source.empty() ? uint8_t{0} : rib_.find_source(said.source);
    if (!said.source.empty() && source == 0) {
      findings_.error_at(at, end_ - at, fmt::format("there is no source '{}' of routes", said.source)).expected =
          fmt::format("{}", fmt::join(source_names(), ", "));
      return;
    }
    if (word == "all" && source != 0 && !said.metric && left.done()) {
      for (const SourcedRib::Owned& owned : rib_.owned(source)) {
        rib_.remove(owned.prefix, source, owned.metric);
        step(owned.prefix);
      }
      return;
    }
    bool host_bits = false;
    const auto prefix = parse_prefix(word, &host_bits);
    if (!prefix || host_bits) {
      Diagnostic& d = findings_.error_at(
          at, word.size(),
          prefix ? fmt::format("'{}' has bits set past its length", word) : fmt::format("'{}' is not a prefix", word));
      d.expected = "such as 10.0.0.0/8 or 2001:db8::/32";
      if (prefix) d.suggestion = fmt::format("did you mean '{}'?", to_string(*prefix));
      return;
    }
    if (!left.done() || said.preference) {
      findings_.error_at(rest, std::max<size_t>(1, end_ - rest), "more than a prefix").expected =
          "delete PREFIX [metric N] [source NAME]";
      return;
    }
    for (const RouteCandidate& c : rib_.candidates(*prefix)) {
      if ((source != 0 && c.source != source) || (said.metric && c.metric != *said.metric)) continue;
      rib_.remove(*prefix, c.source, c.metric);
      step(*prefix);
      return;
    }
    findings_.error_at(at, word.size(),
                       fmt::format("there is no route for {}{}", to_string(*prefix),
                                   source == 0 && !said.metric ? "" : " of that source and metric"));
  }

  std::vector<std::string> source_names() const {
    std::vector<std::string> names;
    for (unsigned i = 1; i <= rib_.source_count(); ++i) names.push_back(rib_.source_name(static_cast<uint8_t>(i)));
    return names;
  }

  static inline const std::string kControlSource = "control";
  static constexpr size_t kMostRoutesOfAPrefix = 1024;
  SourcedRib& rib_;
  std::string_view text_;
  const std::string& name_;
  Diagnostics findings_;
  std::vector<RouteStep> steps_;
  uint32_t line_ = 0;
  size_t begin_ = 0, end_ = 0;
};

// --- adjacencies ---

// The definitions that a change gives, an empty one for a next hop that is to have none.
Result<std::map<std::string, NextHopDefinition>> parse_adjacency_change(std::string_view text,
                                                                        const std::string& name) {
  // As with rules: the reader of files finds the lines where they stand.
  std::string lines(text);
  std::map<std::string, NextHopDefinition> made;
  Diagnostics findings(name, text);
  each_line(text, [&](uint32_t, size_t begin, size_t end) {
    Words words(text, begin, end);
    if (words.done()) return;
    const std::string_view verb = words.peek();
    const bool set = verb == "set";
    if (!set && verb != "delete") {
      wrong_verb(findings, words, verb, {"set", "delete"});
    } else {
      words.take();
      if (words.done()) findings.error_at(words.at(), 1, "the next hop is missing").expected = "NEXTHOP";
      if (!set && !words.done()) {
        made[std::string(words.take())];
        if (!words.done())
          findings.error_at(words.at(), words.peek().size(), "more than a next hop").expected = "delete NEXTHOP";
      }
    }
    std::fill(lines.begin() + static_cast<ptrdiff_t>(begin),
              lines.begin() + static_cast<ptrdiff_t>(set ? words.at() : end), ' ');
  });
  auto parsed = parse_next_hops(lines, name);
  if (!parsed) {
    if (parsed.error().diagnostics.empty()) return std::move(parsed).error();
    for (const Diagnostic& d : parsed.error().diagnostics) findings.add(d);
  }
  if (!findings.ok()) return findings.to_error();
  for (auto& [hop, definition] : parsed->names) made[hop] = std::move(definition);
  return made;
}

// Errors: no table of that name, with the nearest one.
Result<void> known(const std::map<std::string, std::shared_ptr<const Image>, std::less<>>& tables, const char* kind,
                   const std::string& name) {
  auto found = find_table(tables, kind, name);
  if (found) return {};
  Error error = found.error();
  if (error.hint.empty() && !tables.empty()) {
    std::vector<std::string> names;
    for (const auto& [table, image] : tables) names.push_back(table);
    error.hint = fmt::format("tables: {}", fmt::join(names, ", "));
  }
  return error;
}

std::string human(size_t bytes) {
  return bytes < (size_t{10} << 20) ? fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024)
                                    : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

LiveTables::LiveTables(const Router& router, const Plan& plan, Publisher& publisher, TableSet tables,
                       TableModels models, std::vector<TableLoad> loads, size_t max_bytes)
    : router_(router),
      plan_(plan),
      publisher_(publisher),
      tables_(std::move(tables)),
      models_(std::move(models)),
      loads_(std::move(loads)),
      max_bytes_(max_bytes) {}

size_t LiveTables::bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto& tables, auto&& kept_by) {
    for (const auto& [name, image] : tables) {
      const size_t kept = kept_by(name);
      sum += kept != 0 ? kept : image->bytes().size();
    }
  };
  add(tables_.acls, [&](const std::string& name) {
    const auto it = acls_.find(name);
    return it == acls_.end() || it->second.images == nullptr ? 0 : it->second.images->bytes();
  });
  add(tables_.routes, [&](const std::string& name) {
    const auto it = route_makers_.find(name);
    return it == route_makers_.end() ? 0 : it->second->bytes();
  });
  add(tables_.adjacencies, [&](const std::string& name) {
    const auto it = next_hops_.find(name);
    const PatchedAdjacencies* patched = it == next_hops_.end() ? nullptr : it->second.images.get();
    return patched == nullptr ? 0 : (1 + patched->replicas().replicas()) * patched->replicas().size();
  });
  return sum;
}

template <typename Model, typename Step>
Result<std::shared_ptr<const Image>> LiveTables::make(
    std::map<std::string, std::unique_ptr<ImageMaker<Model, Step>>>& makers, const TableChange& change,
    const Model& next, const std::vector<Step>& steps, bool dry_run) {
  if (dry_run) return maker_of(change, true, publisher_, steps)->make(next, steps);
  auto& maker = makers[change.table];
  if (maker == nullptr) maker = maker_of(change, false, publisher_, steps);
  return maker->make(next, steps);
}

TableLoad& LiveTables::load_of(const char* kind, const std::string& table) {
  for (TableLoad& load : loads_) {
    if (load.kind == kind && load.name == table) return load;
  }
  loads_.push_back({.name = table, .kind = kind});
  return loads_.back();
}

uint64_t LiveTables::changed(const std::string& kind, const std::string& table) const {
  const auto it = changed_.find({kind, table});
  return it == changed_.end() ? 0 : it->second;
}

Result<LiveTables::AclState*> LiveTables::acl_state(const std::string& table) {
  if (auto ok = known(tables_.acls, "ACL table", table); !ok) return std::move(ok).error();
  auto it = acls_.find(table);
  if (it == acls_.end()) {
    const auto model = models_.acls.find(table);
    auto rules = model != models_.acls.end() ? Result<RuleSet>(std::move(model->second))
                                             : rules_of(*tables_.acls.find(table)->second);
    if (!rules) return std::move(rules).error();
    if (model != models_.acls.end()) models_.acls.erase(model);
    it = acls_.try_emplace(table).first;
    it->second.list = RuleList(std::move(*rules));
  }
  return &it->second;
}

Result<const RuleList*> LiveTables::rules(const std::string& table) {
  auto state = acl_state(table);
  if (!state) return std::move(state).error();
  return &(*state)->list;
}

Result<const SourcedRib*> LiveTables::routes(const std::string& table) const {
  if (auto ok = known(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  const auto it = models_.routes.find(table);
  return it == models_.routes.end() ? nullptr : &it->second;
}

// Whether an image of `bytes` bytes may stand beside what is there.
Result<void> LiveTables::fits(const TableChange& change, size_t bytes) const {
  if (max_bytes_ == 0 || this->bytes() + bytes <= max_bytes_) return {};
  return Error(
      fmt::format("{} '{}' with {} entries needs about {}, and {} with the current tables, more than the limit of {}",
                  change.kind == "acl"      ? "the access list"
                  : change.kind == "routes" ? "the route table"
                                            : "the adjacency table",
                  change.table, change.entries_after, human(bytes), human(this->bytes() + bytes), human(max_bytes_)),
      "the table stays as it is; give run a larger --max-memory");
}

Result<void> LiveTables::publish(TableSet next, TableChange& change, bool dry_run) {
  auto snapshot = bind_plan(plan_, router_, next);
  if (!snapshot) return std::move(snapshot).error();
  if (dry_run) return {};
  const Stopwatch clock;
  // What takes memory comes first: behind the flip the change is made, and nothing may fail.
  TableLoad& load = load_of(change.kind.c_str(), change.table);
  uint64_t& changed = changed_[{change.kind, change.table}];
  std::string algorithm = change.algorithm;
  try {
    change.generation = publisher_.publish(std::move(*snapshot));
  } catch (const std::bad_alloc&) {
    return Error("no memory for another generation", "the table stays as it is");
  }
  change.publish_seconds = clock.seconds();
  for (const auto& resident : publisher_.current()->residents) change.refusing_devices += resident == nullptr ? 1 : 0;
  static_assert(std::is_nothrow_swappable_v<TableSet>);
  std::swap(tables_, next);
  changed = change.generation;
  load.algorithm.swap(algorithm);
  load.entries = change.entries_after;
  load.bytes = change.bytes_after;
  load.parse_seconds = change.parse_seconds;
  load.build_seconds = change.build_seconds;
  load.compiled = false;
  return {};
}

Result<LiveTables::AclChoice> LiveTables::choose_acl_images(const AclState& state, const RuleList& list, bool whole,
                                                            const TableChange& change) {
  const std::string_view now = acl_image_algorithm(*tables_.acls.find(change.table)->second);
  const std::string& asked = load_of("acl", change.table).asked;
  if (asked != kAclAuto && asked != kAclAutoGpu) return AclChoice{std::string(now), nullptr, state.chosen_at};
  const size_t n = list.size();
  if (!whole) {
    const bool far = n > 2 * state.chosen_at + 64 || 2 * n + 64 < state.chosen_at;
    if (state.chosen_at != 0 && !far) return AclChoice{std::string(now), nullptr, state.chosen_at};
    if (n > kAclRebuilt) return AclChoice{TupleMergeAcl::kName, nullptr, n};
  }
  auto chosen = choose_acl(list.set(), asked == kAclAutoGpu ? AclTarget::kGpu : AclTarget::kCpu);
  if (!chosen) return std::move(chosen).error();
  return AclChoice{std::move(chosen->algorithm), std::make_shared<const Image>(std::move(chosen->image)),
                   whole ? 0 : std::max<size_t>(n, 1)};
}

Result<void> LiveTables::commit_acl(AclState& state, const RuleList& list, bool whole, TableChange& change,
                                    bool dry_run) {
  change.kind = "acl";
  change.entries_after = list.size();
  change.bytes_before = tables_.acls.find(change.table)->second->bytes().size();
  const size_t estimate = change.bytes_before / (change.entries_before + 1) * (change.entries_after + 1);
  if (auto ok = fits(change, estimate); !ok) return ok;
  const Stopwatch clock;
  auto choice = choose_acl_images(state, list, whole, change);
  if (!choice) return std::move(choice).error();
  change.algorithm = choice->algorithm;
  std::shared_ptr<const Image> image = std::move(choice->image);
  // A list that is whole another one, by an algorithm that was chosen, is not one that changes yet.
  const bool chosen = image != nullptr && (whole || dry_run);
  std::unique_ptr<AclImages> fresh;
  // Those that made an image that is not published know too much.
  Unless images([&] {
    if (!dry_run && !chosen && fresh == nullptr) state.images.reset();
  });
  if (!chosen) {
    if (dry_run) {
      fresh = make_rebuilt_acl_images(choice->algorithm);
    } else if (whole || state.images == nullptr || state.algorithm != choice->algorithm) {
      fresh = make_acl_images(choice->algorithm, publisher_);
    }
    auto made = (fresh != nullptr ? fresh : state.images)->make(list);
    if (!made) return std::move(made).error();
    image = std::move(*made);
  }
  change.build_seconds = clock.seconds();
  change.bytes_after = image->bytes().size();
  // Images that are kept from before are among those that are there.
  const bool counted = !chosen && fresh == nullptr && state.images->bytes() != 0;
  const size_t more = counted ? 0 : std::max(fresh != nullptr ? fresh->bytes() : 0, change.bytes_after);
  change.bytes_peak = bytes() + more;
  Result<void> done = fits(change, more);
  if (done.ok()) {
    TableSet set = tables_;
    set.acls[change.table] = std::move(image);
    done = publish(std::move(set), change, dry_run);
  }
  if (!done || dry_run) return done;
  images.keep();
  if (chosen || fresh != nullptr) state.images = std::move(fresh);
  state.algorithm = std::move(choice->algorithm);
  state.chosen_at = choice->chosen_at;
  return {};
}

size_t LiveTables::rules_that_fit(const std::string& table) const {
  if (max_bytes_ == 0) return kMaxChangeRules;
  const size_t used = bytes(), room = max_bytes_ > used ? max_bytes_ - used : 0;
  // Every image has the rules themselves; one that is patched is two at least, the master and what packets meet.
  const auto needs = [&](size_t rules) {
    const auto load =
        std::ranges::find_if(loads_, [&](const TableLoad& l) { return l.kind == "acl" && l.name == table; });
    const bool patched = rules > kAclRebuilt && load != loads_.end() &&
                         (load->asked == kAclAuto || load->asked == kAclAutoGpu || load->asked == TupleMergeAcl::kName);
    return patched ? 2 * PatchedAcl::estimate_bytes(rules) : rules * sizeof(AclMatchRule);
  };
  size_t low = 0, high = kMaxChangeRules;
  while (low < high) {
    const size_t middle = low + (high - low + 1) / 2;
    needs(middle) <= room ? void(low = middle) : void(high = middle - 1);
  }
  return low;
}

Result<TableChange> LiveTables::change_acl(const std::string& table, std::string_view text, const std::string& name,
                                           bool dry_run) {
  const Stopwatch clock;
  auto found = acl_state(table);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  const size_t room = rules_that_fit(table), most = std::min(room, kMaxChangeRules);
  auto steps = parse_acl_change(text, name, most);
  if (!steps) {
    Error error = std::move(steps).error();
    // Where the limit was in the way, which of the two.
    const bool limit = std::ranges::any_of(error.diagnostics,
                                           [](const Diagnostic& d) { return d.message.starts_with("too many rules"); });
    if (limit) {
      error.hint = room < kMaxChangeRules ? fmt::format(
                                                "no more than about {} rules fit with the current tables into "
                                                "--max-memory, {}; the list stays as it is",
                                                room, human(max_bytes_))
                                          : std::string("split the change, or replace the list by a file");
    }
    return error;
  }
  TableChange change{.table = table};
  change.entries_before = state.list.size();
  state.list.begin();
  Unless list([&] { state.list.undo(); });
  if (cancelled()) return cancelled_error();
  if (auto ok = take_acl_steps(state.list, *steps, text, name); !ok) return std::move(ok).error();
  change.parse_seconds = clock.seconds();
  if (auto done = commit_acl(state, state.list, false, change, dry_run); !done) return std::move(done).error();
  if (!dry_run) list.keep();
  return change;
}

Result<TableChange> LiveTables::replace_acl(const std::string& table, InputFile& file, const RuleFormatChoice& format,
                                            bool dry_run) {
  const Stopwatch clock;
  auto found = acl_state(table);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  auto compiled = Image::is_next(file);
  if (!compiled) return std::move(compiled).error();
  Result<RuleSet> rules = RuleSet{};
  if (*compiled) {
    auto image = Image::read(file, ImageKind::kAcl);
    if (!image) return std::move(image).error();
    rules = rules_of(*image);
  } else {
    rules = read_rules_file(file, format);
  }
  if (!rules) return std::move(rules).error();
  RuleList next(std::move(*rules));
  TableChange change{.table = table};
  change.entries_before = state.list.size();
  change.parse_seconds = clock.seconds();
  if (auto ok = commit_acl(state, next, true, change, dry_run); !ok) return std::move(ok).error();
  if (!dry_run) state.list = std::move(next);
  return change;
}

Result<LiveTables::LiveNextHops*> LiveTables::live_next_hops(const std::string& adjacencies) {
  if (const auto it = next_hops_.find(adjacencies); it != next_hops_.end()) return &it->second;
  const TableDeclaration& d = models_.adjacencies.find(adjacencies)->second;
  NextHopDefinitions definitions;
  if (d.text.empty()) {
    definitions.made_up = true;
  } else {
    auto parsed = parse_next_hops(d.text, d.name);
    if (!parsed) return std::move(parsed).error();
    definitions = std::move(*parsed);
  }
  NextHops hops(std::move(definitions));
  if (const auto rib = models_.routes.find(d.routes); rib != models_.routes.end()) {
    hops.extend(rib->second.next_hops());
    hops.settle([&](const IpAddress& a) { return rib->second.match(a); });
  }
  return &next_hops_.emplace(adjacencies, LiveNextHops{std::move(hops), nullptr}).first->second;
}

std::vector<std::pair<std::string, const NextHops*>> LiveTables::next_hops_of(const std::string& routes) {
  std::vector<std::pair<std::string, const NextHops*>> all;
  for (const auto& [name, d] : models_.adjacencies) {
    if (d.routes != routes) continue;
    if (auto live = live_next_hops(name)) all.emplace_back(name, &(*live)->hops);
  }
  return all;
}

Result<std::shared_ptr<const Image>> LiveTables::adjacency_image(LiveNextHops& live, const NextHops& next,
                                                                 const NextHops::Changes& changes, bool dry_run) {
  if (changes.ids.empty() && changes.neighbours.empty()) return std::shared_ptr<const Image>();
  if (dry_run) return share(build_adjacencies(next.model()));
  if (live.images == nullptr) {
    auto made = PatchedAdjacencies::create(next.model());
    if (!made) return std::move(made).error();
    live.images = std::move(*made);
  } else {
    for (const uint32_t n : changes.neighbours) live.images->set_neighbour(n, next.neighbours()[n]);
    for (const uint32_t id : changes.ids) {
      // What is wrong with it is for the builder to say.
      if (!live.images->set_group(id, next.group(id))) return share(build_adjacencies(next.model()));
    }
  }
  return publish_patched(*live.images, publisher_);
}

Result<TableChange> LiveTables::commit_routes(const std::string& table, const SourcedRib& next,
                                              const std::vector<RouteStep>& steps, double parse_seconds, bool dry_run) {
  const Image& before = *tables_.routes.find(table)->second;
  TableChange change{.table = table, .kind = "routes"};
  const TableLoad& load = load_of("routes", table);
  change.entries_before = load.entries;
  change.entries_after = next.prefixes();
  change.bytes_before = before.bytes().size();
  change.parse_seconds = parse_seconds;
  const ImageSection* four = before.find(SectionTag::kFib4);
  const ImageSection* six = before.find(SectionTag::kFib6);
  if (four == nullptr || six == nullptr) return Error("the route table's image lacks a family");
  change.algorithm = fmt::format("{}+{}", section_algorithm(*four), section_algorithm(*six));
  // How a table grows depends on its algorithm: what is there is the least that will do.
  if (auto ok = fits(change, change.entries_after < change.entries_before ? 0 : change.bytes_before); !ok)
    return std::move(ok).error();
  const Stopwatch clock;
  // What is not published in the end leaves no trace: what knows too much is made anew for the next change.
  struct Trace {
    ~Trace() {
      if (makers == nullptr) return;
      makers->erase(table);
      for (auto& [live, hops] : next_hops) live->images.reset();
    }
    decltype(route_makers_)* makers;
    const std::string& table;
    std::vector<std::pair<LiveNextHops*, NextHops>> next_hops;
  } trace{dry_run ? nullptr : &route_makers_, table, {}};
  auto image = make(route_makers_, change, next, steps, dry_run);
  if (!image) return std::move(image).error();
  TableSet set = tables_;
  set.routes[table] = *image;
  change.bytes_after = (*image)->bytes().size();
  const size_t before_bytes = bytes();
  size_t more = !dry_run && route_makers_[table]->bytes() != 0 ? 0 : change.bytes_after;
  // Adjacencies go by the numbers of next hops, and through the routes.
  auto names = NextHopNames::open(before.section(SectionTag::kNextHopNames));
  if (!names) return std::move(names).error();
  const NextHopIds& ids = next.next_hops();
  bool kept = names->count() <= ids.count();
  for (uint32_t id = 1; kept && id <= names->count(); ++id) kept = names->name(id) == ids.name(id);
  const bool same = kept && names->count() == ids.count();
  for (const auto& element : router_.elements) {
    for (const TableDeclaration& d : element->tables()) {
      if (d.type != TableDeclaration::Type::kAdjacency || d.routes != table) continue;
      if (!models_.adjacencies.contains(d.name)) {
        if (same) continue;
        return Error(
            fmt::format("the adjacency table '{}' is a compiled image: it does not know other next hops than it "
                        "was compiled with",
                        d.name),
            "run with the adjacency file");
      }
      auto live = live_next_hops(d.name);
      if (!live) return std::move(live).error();
      NextHops hops = (*live)->hops;
      if (!kept) {
        hops = NextHops((*live)->hops.definitions());
        if (!dry_run) (*live)->images.reset();
      }
      hops.extend(ids);
      if (steps.empty()) hops.all_routes_changed();
      for (const RouteStep& step : steps) hops.route_changed(step.prefix);
      const NextHops::Changes changes = hops.settle([&](const IpAddress& a) { return next.match(a); });
      trace.next_hops.emplace_back(*live, std::move(hops));
      auto adjacencies = adjacency_image(**live, trace.next_hops.back().second, changes, dry_run);
      if (!adjacencies) return std::move(adjacencies).error();
      if (*adjacencies == nullptr) continue;
      if (dry_run) more += (*adjacencies)->bytes().size();
      set.adjacencies[d.name] = std::move(*adjacencies);
    }
  }
  change.build_seconds = clock.seconds();
  change.bytes_peak = std::max(bytes(), before_bytes) + more;
  if (auto ok = fits(change, more); !ok) return std::move(ok).error();
  // The replica before is free once nobody has it.
  image = std::shared_ptr<const Image>();
  if (auto ok = publish(std::move(set), change, dry_run); !ok) return std::move(ok).error();
  trace.makers = nullptr;
  if (!dry_run) {
    static_assert(std::is_nothrow_move_assignable_v<NextHops>);
    for (auto& [live, hops] : trace.next_hops) live->hops = std::move(hops);
  }
  return change;
}

Result<TableChange> LiveTables::change_routes(const std::string& table, std::string_view text, const std::string& name,
                                              bool dry_run) {
  const Stopwatch clock;
  auto before = routes(table);
  if (!before) return std::move(before).error();
  if (*before == nullptr) {
    return Error(fmt::format("the route table '{}' is a compiled image: its routes are not known", table),
                 "replace it with route files, or run with them");
  }
  // What next hops lead to before the change is where their history begins.
  next_hops_of(table);
  SourcedRib& rib = models_.routes.find(table)->second;
  rib.begin();
  Unless routes([&] { rib.rollback(); });
  auto steps = RouteChange(rib, text, name).make();
  if (!steps) return std::move(steps).error();
  auto change = commit_routes(table, rib, *steps, clock.seconds(), dry_run);
  if (change.ok() && !dry_run) {
    routes.keep();
    rib.commit();
  }
  return change;
}

Result<TableChange> LiveTables::replace_routes(const std::string& table, const std::vector<std::string>& files,
                                               InputSet& inputs, bool dry_run) {
  const Stopwatch clock;
  if (auto ok = known(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  next_hops_of(table);
  // Next hops keep their numbers, so that what goes by them stays as it is.
  const auto before = models_.routes.find(table);
  auto read = read_route_sources(files, nullptr, {},
                                 before == models_.routes.end() ? NextHopIds() : before->second.next_hops(), &inputs);
  if (!read) return std::move(read).error();
  // Its place is made before the flip.
  decltype(models_.routes) model;
  model.emplace(table, std::move(*read));
  auto change = commit_routes(table, model.begin()->second, {}, clock.seconds(), dry_run);
  if (change.ok() && !dry_run) {
    models_.routes.erase(table);
    models_.routes.merge(model);
  }
  return change;
}

Result<TableChange> LiveTables::change_adjacencies(const std::string& table, std::string_view text,
                                                   const std::string& name, bool dry_run) {
  const Stopwatch clock;
  if (auto ok = known(tables_.adjacencies, "adjacency table", table); !ok) return std::move(ok).error();
  const auto model = models_.adjacencies.find(table);
  if (model == models_.adjacencies.end()) {
    return Error(fmt::format("the adjacency table '{}' is a compiled image: its next hops are not known", table),
                 "run with the adjacency file");
  }
  const auto rib = models_.routes.find(model->second.routes);
  if (rib == models_.routes.end()) {
    return Error(
        fmt::format("the route table '{}' is a compiled image: its next hops are not known", model->second.routes),
        "run with the route files");
  }
  auto definitions = parse_adjacency_change(text, name);
  if (!definitions) return std::move(definitions).error();
  auto live = live_next_hops(table);
  if (!live) return std::move(live).error();
  NextHops next = (*live)->hops;
  for (auto& [hop, definition] : *definitions) next.define(hop, std::move(definition));
  const NextHops::Changes changes = next.settle([&](const IpAddress& a) { return rib->second.match(a); });
  const Image& before = *tables_.adjacencies.find(table)->second;
  TableChange change{.table = table, .kind = "adjacency"};
  change.entries_before = load_of("adjacency", table).entries;
  change.entries_after = next.count() - next.model().unresolved();
  change.bytes_before = change.bytes_after = before.bytes().size();
  change.parse_seconds = clock.seconds();
  const Stopwatch build;
  Unless images([&] {
    if (!dry_run) (*live)->images.reset();
  });
  auto image = adjacency_image(**live, next, changes, dry_run);
  Result<void> done;
  if (!image) {
    done = std::move(image).error();
  } else {
    change.build_seconds = build.seconds();
    TableSet set = tables_;
    if (*image != nullptr) {
      change.bytes_after = (*image)->bytes().size();
      set.adjacencies[table] = std::move(*image);
    }
    change.bytes_peak = bytes() + (dry_run ? change.bytes_after : 0);
    done = fits(change, dry_run ? change.bytes_after : 0);
    if (done.ok()) done = publish(std::move(set), change, dry_run);
  }
  if (!done.ok()) return std::move(done).error();
  images.keep();
  if (!dry_run) (*live)->hops = std::move(next);
  return change;
}

}  // namespace sluice
