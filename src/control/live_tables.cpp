// host only
#include "control/live_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "control/acl_change.h"
#include "control/change_text.h"
#include "elements/table_use.h"
#include "formats/route_files.h"
#include "formats/route_text.h"
#include "formats/rule_files.h"
#include "net/text.h"
#include "tables/acl/algorithms.h"
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

// Images that are built anew for every version.
class RebuiltRoutes final : public RouteImageMaker {
 public:
  RebuiltRoutes(std::string algorithm4, std::string algorithm6)
      : algorithm4_(std::move(algorithm4)), algorithm6_(std::move(algorithm6)) {}
  Result<std::shared_ptr<const Image>> make(const Rib& next, const std::vector<RouteStep>&) override {
    return share(build_routes(next, algorithm4_, algorithm6_));
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

  Result<std::shared_ptr<const Image>> make(const Rib& next, const std::vector<RouteStep>& steps) override {
    if (patched_ == nullptr || steps.empty()) {
      auto made = PatchedRoutes::create(next, options_);
      if (!made) return std::move(made).error();
      patched_ = std::move(*made);
    } else {
      for (; names_ < next.next_hop_count(); ++names_) patched_->intern(next.next_hop_name(names_ + 1));
      for (const RouteStep& step : steps) patched_->set(step.prefix, step.next_hop);
    }
    names_ = next.next_hop_count();
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

constexpr size_t kSettleAfter = 4096;  // a search looks at every change that is not settled

Result<std::vector<RouteStep>> change_rib(Rib& rib, std::string_view text, const std::string& name) {
  Diagnostics findings(name, text);
  std::vector<RouteStep> steps;
  size_t pending = 0;
  each_line(text, [&](uint32_t line, size_t begin, size_t end) {
    Words words(text, begin, end);
    if (words.done()) return;
    const std::string_view verb = words.peek();
    if (verb != "add" && verb != "delete") {
      wrong_verb(findings, words, verb, {"add", "delete"});
      return;
    }
    words.take();
    if (words.done()) {
      findings.error_at(words.at(), 1, "the prefix is missing").expected = verb == "add" ? "PREFIX NEXTHOP" : "PREFIX";
      return;
    }
    if (++pending % kSettleAfter == 0) rib.settle();
    if (verb == "add") {
      Words route = words;
      auto added = parse_routes(text.substr(words.at(), end - words.at()), name, rib);
      if (added) {
        // `default` is of the family of its next hop.
        auto prefix = parse_prefix(route.take());
        if (!prefix) prefix = IpPrefix{IpAddress{0, 0, added->routes6 != 0 ? uint8_t{6} : uint8_t{4}}, 0};
        steps.push_back({*prefix, rib.find(*prefix)});
        return;
      }
      if (added.error().diagnostics.empty()) findings.error_at(words.at(), end - words.at(), added.error().message);
      for (Diagnostic d : added.error().diagnostics) {
        d.line = line;
        d.column += static_cast<uint32_t>(words.at() - begin);
        d.source_line = line_of(text, begin, end);
        findings.add(std::move(d));
      }
      return;
    }
    const size_t at = words.at();
    const std::string_view word = words.take();
    bool host_bits = false;
    const auto prefix = parse_prefix(word, &host_bits);
    if (!prefix || host_bits) {
      Diagnostic& d = findings.error_at(at, word.size(),
                                        prefix ? fmt::format("'{}' has bits set behind its length", word)
                                               : fmt::format("'{}' is not a prefix", word));
      d.expected = "such as 10.0.0.0/8 or 2001:db8::/32";
      if (prefix) d.suggestion = fmt::format("did you mean '{}'?", to_string(*prefix));
    } else if (!words.done()) {
      findings.error_at(words.at(), words.peek().size(), "more than a prefix").expected = "delete PREFIX";
    } else if (!rib.remove(*prefix)) {
      findings.error_at(at, word.size(), fmt::format("there is no route for {}", to_string(*prefix)));
    } else {
      steps.push_back({*prefix, 0});
    }
  });
  if (!findings.ok()) return findings.to_error();
  rib.settle();
  return steps;
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
  add(tables_.adjacencies, [](const std::string&) { return size_t{0}; });
  return sum;
}

template <typename Model, typename Step>
Result<std::shared_ptr<const Image>> LiveTables::make(
    std::map<std::string, std::unique_ptr<ImageMaker<Model, Step>>>& makers, const TableChange& change,
    const Model& next, const std::vector<Step>& steps, bool dry_run) {
  if (dry_run) return maker_of(change, true, publisher_, steps)->make(next, steps);
  auto& maker = makers[change.table];
  if (maker == nullptr) maker = maker_of(change, false, publisher_, steps);
  auto image = maker->make(next, steps);
  if (!image) makers.erase(change.table);
  return image;
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

Result<const Rib*> LiveTables::routes(const std::string& table) const {
  if (auto ok = known(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  const auto it = models_.routes.find(table);
  return it == models_.routes.end() ? nullptr : &it->second;
}

// Whether an image of `bytes` bytes may stand beside what is there.
Result<void> LiveTables::fits(const TableChange& change, size_t bytes) const {
  if (max_bytes_ == 0 || this->bytes() + bytes <= max_bytes_) return {};
  return Error(
      fmt::format("{} '{}' with {} entries needs about {}, and {} with the tables that are there, more than the "
                  "limit of {}",
                  change.kind == "acl" ? "the access list" : "the route table", change.table, change.entries_after,
                  human(bytes), human(this->bytes() + bytes), human(max_bytes_)),
      "the table stays as it is; give run a larger --max-memory");
}

Result<void> LiveTables::publish(TableSet next, TableChange& change, bool dry_run) {
  auto snapshot = bind_plan(plan_, router_, next);
  if (!snapshot) return std::move(snapshot).error();
  if (dry_run) return {};
  const Stopwatch clock;
  try {
    change.generation = publisher_.publish(std::move(*snapshot));
  } catch (const std::bad_alloc&) {
    return Error("no memory for another generation", "the table stays as it is");
  }
  change.publish_seconds = clock.seconds();
  for (const auto& resident : publisher_.current()->residents) change.refusing_devices += resident == nullptr ? 1 : 0;
  tables_ = std::move(next);
  changed_[{change.kind, change.table}] = change.generation;
  TableLoad& load = load_of(change.kind.c_str(), change.table);
  load.algorithm = change.algorithm;
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
  if (!chosen) {
    if (dry_run) {
      fresh = make_rebuilt_acl_images(choice->algorithm);
    } else if (whole || state.images == nullptr || state.algorithm != choice->algorithm) {
      fresh = make_acl_images(choice->algorithm, publisher_);
    }
    auto made = (fresh != nullptr ? fresh : state.images)->make(list);
    if (!made) {
      if (fresh == nullptr) state.images.reset();
      return std::move(made).error();
    }
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
  if (!done) {
    if (!chosen && fresh == nullptr) state.images.reset();
    return done;
  }
  if (dry_run) return {};
  if (chosen || fresh != nullptr) state.images = std::move(fresh);
  state.algorithm = std::move(choice->algorithm);
  state.chosen_at = choice->chosen_at;
  return {};
}

Result<TableChange> LiveTables::change_acl(const std::string& table, std::string_view text, const std::string& name,
                                           bool dry_run) {
  const Stopwatch clock;
  auto found = acl_state(table);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  auto steps = parse_acl_change(text, name);
  if (!steps) return std::move(steps).error();
  TableChange change{.table = table};
  change.entries_before = state.list.size();
  state.list.begin();
  if (auto ok = take_acl_steps(state.list, *steps, text, name); !ok) return std::move(ok).error();
  change.parse_seconds = clock.seconds();
  auto done = commit_acl(state, state.list, false, change, dry_run);
  if (!done || dry_run) state.list.undo();
  if (!done) return std::move(done).error();
  return change;
}

Result<TableChange> LiveTables::replace_acl(const std::string& table, const std::string& file,
                                            const std::string& format, bool dry_run) {
  const Stopwatch clock;
  auto found = acl_state(table);
  if (!found) return std::move(found).error();
  AclState& state = **found;
  auto choice = parse_rule_format(format);
  if (!choice) return std::move(choice).error();
  Result<RuleSet> rules = RuleSet{};
  if (Image::is_image_file(file)) {
    auto image = Image::open(file, ImageKind::kAcl);
    if (!image) return std::move(image).error();
    rules = rules_of(*image);
  } else {
    rules = read_rules_file(file, *choice);
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

Result<TableChange> LiveTables::commit_routes(const std::string& table, Rib next, const std::vector<RouteStep>& steps,
                                              double parse_seconds, bool dry_run) {
  const Image& before = *tables_.routes.find(table)->second;
  TableChange change{.table = table, .kind = "routes"};
  const TableLoad& load = load_of("routes", table);
  change.entries_before = load.entries;
  change.entries_after = next.size();
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
  auto image = make(route_makers_, change, next, steps, dry_run);
  if (!image) return std::move(image).error();
  // What is not published in the end leaves no trace.
  struct Trace {
    ~Trace() {
      if (makers != nullptr) makers->erase(table);
    }
    decltype(route_makers_)* makers;
    const std::string& table;
  } trace{dry_run ? nullptr : &route_makers_, table};
  TableSet set = tables_;
  set.routes[table] = *image;
  change.bytes_after = (*image)->bytes().size();
  size_t more = !dry_run && route_makers_[table]->bytes() != 0 ? 0 : change.bytes_after;
  // Adjacencies go by the numbers of next hops.
  auto names = NextHopNames::open(before.section(SectionTag::kNextHopNames));
  if (!names) return std::move(names).error();
  bool same = names->count() == next.next_hop_count();
  for (uint32_t id = 1; same && id <= names->count(); ++id) same = names->name(id) == next.next_hop_name(id);
  for (const auto& element : router_.elements) {
    for (const TableDeclaration& d : element->tables()) {
      if (same || d.type != TableDeclaration::Type::kAdjacency || d.routes != table) continue;
      const auto model = models_.adjacencies.find(d.name);
      if (model == models_.adjacencies.end()) {
        return Error(
            fmt::format("the adjacency table '{}' is a compiled image: it does not know other next hops than it "
                        "was compiled with",
                        d.name),
            "run with the adjacency file");
      }
      auto adjacencies = load_table(model->second, image->get(), nullptr, nullptr);
      if (!adjacencies) return std::move(adjacencies).error();
      more += (*adjacencies)->bytes().size();
      set.adjacencies[d.name] = std::move(*adjacencies);
    }
  }
  change.build_seconds = clock.seconds();
  change.bytes_peak = bytes() + more;
  if (auto ok = fits(change, more); !ok) return std::move(ok).error();
  // The replica before is free once nobody has it.
  image = std::shared_ptr<const Image>();
  if (auto ok = publish(std::move(set), change, dry_run); !ok) return std::move(ok).error();
  trace.makers = nullptr;
  if (!dry_run) models_.routes[table] = std::move(next);
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
  Rib next = **before;
  auto steps = change_rib(next, text, name);
  if (!steps) return std::move(steps).error();
  return commit_routes(table, std::move(next), *steps, clock.seconds(), dry_run);
}

Result<TableChange> LiveTables::replace_routes(const std::string& table, const std::vector<std::string>& files,
                                               bool dry_run) {
  const Stopwatch clock;
  if (auto ok = known(tables_.routes, "route table", table); !ok) return std::move(ok).error();
  for (const std::string& file : files) {
    if (Image::is_image_file(file))
      return Error(fmt::format("{} is a compiled image: its routes are not known", file), "give the route files");
  }
  auto read = read_routes_files(files);
  if (!read) return std::move(read).error();
  // Next hops keep their numbers, so that what goes by them stays as it is.
  Rib next;
  const auto before = models_.routes.find(table);
  bool kept = before != models_.routes.end();
  if (kept) {
    for (const std::string& name : before->second.next_hop_names()) next.intern(name);
    std::vector<uint32_t> id(read->next_hop_count() + size_t{1});
    for (uint32_t i = 1; i <= read->next_hop_count(); ++i) kept &= (id[i] = next.intern(read->next_hop_name(i))) != 0;
    if (kept) {
      for (const Route4& r : read->routes4()) next.add4(r.address, r.length, id[r.next_hop]);
      for (const Route6& r : read->routes6()) next.add6(r.hi, r.lo, r.length, id[r.next_hop]);
      next.settle();
    }
  }
  return commit_routes(table, kept ? std::move(next) : std::move(*read), {}, clock.seconds(), dry_run);
}

}  // namespace sluice
