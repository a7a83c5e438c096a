// host only
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <chrono>

#include "base/input_file.h"
#include "elements/table_use.h"
#include "elements/tables.h"
#include "formats/adjacency_text.h"
#include "formats/native_rules.h"
#include "formats/route_files.h"
#include "formats/rule_files.h"
#include "tables/adjacency/adjacency_model.h"

namespace sluice {
namespace {

using ImagePointer = std::shared_ptr<const Image>;

class Clock {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Keeps the findings of several files together.
class Errors {
 public:
  void add(const Error& error) {
    ++count_;
    all_.system = error.system && (count_ == 1 || all_.system);
    if (error.diagnostics.empty()) {
      Diagnostic d;
      d.message = error.message;
      d.suggestion = error.hint;
      all_.diagnostics.push_back(std::move(d));
    } else {
      all_.diagnostics.insert(all_.diagnostics.end(), error.diagnostics.begin(), error.diagnostics.end());
    }
    all_.message = count_ == 1 ? error.message : fmt::format("{} tables or files have errors", count_);
    if (count_ == 1) all_.hint = error.hint;
    if (count_ == 1 && error.diagnostics.empty()) only_message_ = true;
  }
  bool ok() const { return count_ == 0; }
  Error take() {
    if (count_ == 1 && only_message_) all_.diagnostics.clear();
    if (count_ > 1) all_.hint.clear();
    return std::move(all_);
  }

 private:
  Error all_;
  size_t count_ = 0;
  bool only_message_ = false;
};

// Rule files that several lists of one load name, as those for each state of a connection do: each is read once, so
// that all of these lists are of the same bytes. Regular files alone: others are read by whoever has opened them.
class SharedRuleFiles {
 public:
  SharedRuleFiles() = default;
  explicit SharedRuleFiles(const Router& router) {
    for (const auto& element : router.elements) {
      for (const TableDeclaration& table : element->tables()) {
        if (table.type != TableDeclaration::Type::kAcl) continue;
        for (const std::string& file : table.files) ++files_[file].left;
      }
    }
  }

  // The file as it was opened for the list that has read it; nothing: none has. What `inputs` holds for this one is
  // let go.
  std::optional<InputFile> opened(const std::string& path, InputSet* inputs) {
    const auto at = files_.find(path);
    if (at == files_.end() || !at->second.text) return std::nullopt;
    if (inputs != nullptr && inputs->find(path) != nullptr) (void)inputs->take(path);
    return at->second.file->again();
  }
  // The rules of the file that stands open. Errors: those of the file, which every list gets.
  Result<RuleSet> read(const std::string& path, InputFile& file, const RuleFormatChoice& format) {
    const auto at = files_.find(path);
    if (at == files_.end() || !file.regular()) return read_rules_file(file, format);
    Shared& shared = at->second;
    const bool last = --shared.left == 0;
    if (!shared.text) {
      if (last) return read_rules_file(file, format);
      InputFile unread = file.again();
      auto text = file.table();
      if (!text) return std::move(text).error();
      shared.file.emplace(std::move(unread));
      shared.text = std::move(*text);
    }
    auto rules = parse_rules(*shared.text, file.name(), format);
    if (last) files_.erase(at);
    return rules;
  }

 private:
  struct Shared {
    size_t left = 0;  // readings to come
    std::optional<InputFile> file;
    std::optional<std::string> text;
  };
  std::map<std::string, Shared, std::less<>> files_;
};

// The files of a declaration, open.
struct TableInputs {
  std::vector<InputFile> files;
  ImagePointer compiled;  // the one file, where it is an image
};

// Errors: those of all files together; an image of another kind, or among several files.
Result<TableInputs> open_inputs(const TableDeclaration& d, ImageKind kind, InputSet* inputs, TableLoad& load,
                                SharedRuleFiles* shared = nullptr) {
  TableInputs opened;
  Errors errors;
  for (const std::string& file : d.files) {
    if (auto known = shared != nullptr ? shared->opened(file, inputs) : std::nullopt) {
      load.read.push_back(known->stamp());
      opened.files.push_back(std::move(*known));
      continue;
    }
    auto input = take_input(inputs, path_of(d, file));
    auto image = input.ok() ? Image::is_next(*input) : Result<bool>(input.error());
    if (!image) {
      errors.add(image.error());
      continue;
    }
    if (*image && d.files.size() > 1) {
      errors.add(Error(fmt::format("{} is a compiled image and cannot be joined with other files", input->name())));
    } else if (*image) {
      auto compiled = Image::read(*input, kind);
      if (!compiled) return std::move(compiled).error();
      opened.compiled = std::make_shared<const Image>(std::move(*compiled));
    }
    load.read.push_back(input->stamp());
    opened.files.push_back(std::move(*input));
  }
  if (!errors.ok()) return errors.take();
  return opened;
}

Result<RuleSet> read_rules(const TableDeclaration& d, TableInputs& inputs, TableLoad& load, SharedRuleFiles& shared) {
  RuleSet all;
  Errors errors;
  auto format = parse_rule_format(d.format);
  if (!format) return std::move(format).error();
  format->included = &load.read;
  for (size_t i = 0; i < inputs.files.size(); ++i) {
    auto rules = shared.read(d.files[i], inputs.files[i], *format);
    if (!rules) {
      errors.add(rules.error());
      continue;
    }
    const auto base = static_cast<uint32_t>(all.files.size());
    all.files.insert(all.files.end(), rules->files.begin(), rules->files.end());
    for (AclRule& rule : rules->rules) {
      rule.file += base;
      all.rules.push_back(rule);
    }
  }
  if (!errors.ok()) return errors.take();
  return all;
}

// The next hops of a table, by its image.
Result<NextHopIds> next_hops_of(const Image& routes) {
  auto names = NextHopNames::open(routes.section(SectionTag::kNextHopNames));
  if (!names) return std::move(names).error();
  NextHopIds ids;
  for (uint32_t id = 1; id <= names->count(); ++id) {
    if (ids.intern(names->name(id)) != id)
      return Error(fmt::format("the routes image names its next hop '{}' twice", names->name(id)));
  }
  return ids;
}

Result<ImagePointer> share(Result<Image> image) {
  if (!image) return std::move(image).error();
  return ImagePointer(std::make_shared<const Image>(std::move(*image)));
}

Result<ImagePointer> load_acl(const TableDeclaration& d, TableLoad& load, TableModels* models, InputSet* inputs,
                              TablesInUse* in_use, SharedRuleFiles& shared) {
  Clock clock;
  auto opened = open_inputs(d, ImageKind::kAcl, inputs, load, &shared);
  if (!opened) return std::move(opened).error();
  Result<ImagePointer> image = opened->compiled;
  load.compiled = *image != nullptr;
  if (!load.compiled) {
    auto rules = d.files.empty() ? parse_native_rules(d.text, d.name) : read_rules(d, *opened, load, shared);
    if (!rules) return std::move(rules).error();
    load.files = rules->files;
    load.parse_seconds = clock.lap();
    load.asked = d.algorithm.empty() ? kDefaultAclAlgorithm : d.algorithm;
    if (in_use != nullptr) image = in_use->changed(d, *rules);
    const bool built = image.ok() && *image == nullptr;
    if (built) image = share(build_acl(*rules, load.asked));
    if (!image) return image;
    load.build_seconds = clock.lap();
    load.entries = rules->rules.size();
    if (built && models != nullptr) models->acls[d.name] = std::move(*rules);
  } else {
    load.parse_seconds = clock.lap();
    auto rules = AclRulesView::open(**image);
    if (!rules) return std::move(rules).error();
    load.entries = rules->size();
  }
  load.algorithm = acl_image_algorithm(**image);
  return image;
}

// `in_use`: where it has the same routes, its image is the result, and `models` and `best` receive nothing.
Result<ImagePointer> load_routes(const TableDeclaration& d, TableLoad& load, std::vector<Diagnostic>* warnings,
                                 TableModels* models, Rib* best, InputSet* inputs, TablesInUse* in_use) {
  Clock clock;
  auto opened = open_inputs(d, ImageKind::kRoutes, inputs, load);
  if (!opened) return std::move(opened).error();
  Result<ImagePointer> image = opened->compiled;
  load.compiled = *image != nullptr;
  if (!load.compiled) {
    Rib rib;
    RouteReport report;
    if (d.files.empty()) {
      auto parsed = parse_routes(d.text, d.name, rib);
      if (!parsed) return std::move(parsed).error();
      rib.settle();
      if (models != nullptr) {
        SourcedRib& all = models->routes[d.name];
        all.add_all(rib, all.source("static"), default_preference("static"));
      }
    } else {
      InputSet set;
      for (size_t i = 0; i < d.files.size(); ++i) set.put(path_of(d, d.files[i]), std::move(opened->files[i]));
      if (models != nullptr) {
        auto all = read_route_sources(d.files, &report, {}, {}, &set);
        if (!all) return std::move(all).error();
        rib = all->best_routes();
        models->routes[d.name] = std::move(*all);
      } else {
        auto read = read_routes_files(d.files, &report, &set);
        if (!read) return std::move(read).error();
        rib = std::move(*read);
      }
      if (warnings != nullptr) warnings->insert(warnings->end(), report.warnings.begin(), report.warnings.end());
    }
    load.entries = rib.size();
    load.parse_seconds = clock.lap();
    if (in_use != nullptr && models != nullptr) image = in_use->same_routes(d, models->routes[d.name]);
    if (*image != nullptr) {
      models->routes.erase(d.name);
    } else {
      image = share(build_routes(rib, d.algorithm.empty() ? kLpmAuto : d.algorithm,
                                 d.algorithm6.empty() ? kLpmAuto : d.algorithm6));
      if (!image) return image;
      if (best != nullptr) *best = std::move(rib);
    }
    load.build_seconds = clock.lap();
  } else {
    load.parse_seconds = clock.lap();
  }
  const ImageSection* four = (*image)->find(SectionTag::kFib4);
  const ImageSection* six = (*image)->find(SectionTag::kFib6);
  if (four != nullptr && six != nullptr)
    load.algorithm = fmt::format("{}+{}", section_algorithm(*four), section_algorithm(*six));
  return image;
}

Result<ImagePointer> load_adjacencies(const TableDeclaration& d, const Image& routes, TableLoad& load,
                                      std::vector<Diagnostic>* warnings, TableModels* models, const Rib* rib,
                                      InputSet* inputs, const NeighbourReach& reach, TablesInUse* in_use) {
  Clock clock;
  auto opened = open_inputs(d, ImageKind::kAdjacency, inputs, load);
  if (!opened) return std::move(opened).error();
  Result<ImagePointer> image = opened->compiled;
  load.compiled = *image != nullptr;
  if (!load.compiled) {
    std::string text = d.text;
    std::vector<std::string> names;
    for (InputFile& file : opened->files) {
      names.push_back(file.name());
      auto more = file.table();
      if (!more) return std::move(more).error();
      text += *more;
      if (!text.empty() && text.back() != '\n') text += '\n';
    }
    if (auto same = in_use != nullptr ? in_use->same_adjacencies(d, text) : std::nullopt) {
      load.entries = same->load.entries;
      load.parse_seconds = clock.lap();
      return same->image;
    }
    auto ids = next_hops_of(routes);
    if (!ids) return std::move(ids).error();
    AdjacencyModel model;
    if (d.files.empty() && d.text.empty() && !d.neighbours) {
      model = default_adjacencies(Rib(std::move(*ids)));
    } else {
      RouteMatch match;
      if (rib != nullptr) match = [rib](const IpAddress& address) { return rib->match(address); };
      auto parsed = parse_adjacencies(text, d.files.empty() ? d.name : fmt::format("{}", fmt::join(names, "+")), *ids,
                                      match, d.neighbours ? reach : NeighbourReach{});
      if (!parsed) return std::move(parsed).error();
      model = std::move(*parsed);
      if (warnings != nullptr) warnings->insert(warnings->end(), model.warnings.begin(), model.warnings.end());
      if (models != nullptr) models->adjacencies[d.name].text = std::move(text);
    }
    if (models != nullptr) {
      TableDeclaration& kept = models->adjacencies[d.name];
      kept.type = d.type;
      kept.name = d.name;
      kept.routes = d.routes;
      kept.neighbours = d.neighbours;
    }
    load.entries = model.next_hop_count() - model.unresolved();
    load.parse_seconds = clock.lap();
    image = share(build_adjacencies(model));
    if (!image) return image;
    load.build_seconds = clock.lap();
  } else {
    auto view = open_adjacencies(**image);
    if (!view) return std::move(view).error();
    load.entries = view->adjacencies().size();
    load.parse_seconds = clock.lap();
  }
  return image;
}

// The text of a file, in the kind's own lines.
Result<std::string> lines_of(const TableKind& kind, InputFile& file) {
  auto text = file.table();
  if (!text || kind.translate == nullptr) return text;
  return kind.translate(*text, file.name());
}

Result<ImagePointer> load_list(const TableDeclaration& d, TableLoad& load, TableModels* models, InputSet* inputs,
                               TablesInUse* in_use) {
  Clock clock;
  const TableKind& kind = table_kind(d.type);
  auto opened = open_inputs(d, list_image_kind(kind), inputs, load);
  if (!opened) return std::move(opened).error();
  Result<ImagePointer> image = opened->compiled;
  load.compiled = *image != nullptr;
  std::string text = d.text, name = d.name;
  for (InputFile& file : opened->files) {
    if (load.compiled) break;
    auto more = lines_of(kind, file);
    if (!more) return std::move(more).error();
    name = opened->files.size() == 1 ? file.name() : fmt::format("the files of {}", d.name);
    text += *more;
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  auto entries = load.compiled ? open_list(kind, **image) : parse_list(kind, text, name);
  if (!entries) return std::move(entries).error();
  load.entries = entries->size();
  load.parse_seconds = clock.lap();
  if (in_use != nullptr) {
    if (auto same = in_use->same_list(d, *entries); same != nullptr) return same;
  }
  if (!load.compiled) {
    image = share(build_list(kind, *entries));
    load.build_seconds = clock.lap();
  }
  if (image.ok() && models != nullptr) models->lists[{d.type, d.name}] = std::move(*entries);
  return image;
}

}  // namespace

Result<std::vector<std::string>> read_list(const TableKind& kind, InputFile& file) {
  auto compiled = Image::is_next(file);
  if (!compiled) return std::move(compiled).error();
  if (*compiled) {
    auto image = Image::read(file, list_image_kind(kind));
    if (!image) return std::move(image).error();
    return open_list(kind, *image);
  }
  auto lines = lines_of(kind, file);
  if (!lines) return std::move(lines).error();
  return parse_list(kind, *lines, file.name());
}

Result<NextHopDefinitions> next_hop_definitions(const TableDeclaration& d, const NeighbourReach& reach) {
  NextHopDefinitions definitions;
  if (!d.text.empty()) {
    auto parsed = parse_next_hops(d.text, d.name);
    if (!parsed) return std::move(parsed).error();
    definitions = std::move(*parsed);
  }
  definitions.made_up = d.text.empty() && !d.neighbours;
  if (d.neighbours) definitions.reach = reach;
  return definitions;
}

namespace {

// The interfaces that packets of an output come to.
void sinks_behind(const Router& router, unsigned element, unsigned output, std::vector<bool>& seen,
                  std::vector<std::string>& interfaces) {
  std::vector<Router::Target> open = {router.target(element, output)};
  while (!open.empty()) {
    const unsigned at = open.back().element;
    open.pop_back();
    if (at == ~0u || seen[at]) continue;
    seen[at] = true;
    const PortSpec port = router.elements[at]->port();
    const bool of_kernel = port.device.method != "tap" && port.device.method != "dpdk";
    if (router.elements[at]->kind() == ElementKind::kSink && port.type == PortSpec::Type::kDevice && of_kernel)
      interfaces.push_back(port.device.name);
    for (const RouterConnection& c : router.connections) {
      if (c.from == at) open.push_back({c.to, c.to_port});
    }
  }
}

}  // namespace

std::vector<NeighbourOutput> neighbour_outputs(const Router& router) {
  std::vector<NeighbourOutput> outputs;
  std::set<uint16_t> named;
  const auto add = [&](uint16_t port, unsigned element, unsigned output) {
    std::vector<bool> seen(router.elements.size());
    std::vector<std::string> interfaces;
    sinks_behind(router, element, output, seen, interfaces);
    for (std::string& interface : interfaces) {
      const NeighbourOutput one{port, std::move(interface)};
      const bool known = std::any_of(outputs.begin(), outputs.end(),
                                     [&](const NeighbourOutput& o) { return o.interface == one.interface; });
      if (!known) outputs.push_back(one);
    }
  };
  const auto each_switch = [&](auto&& use) {
    for (const RouterConnection& c : router.connections) {
      if (router.elements[c.from]->adjacency_port(0)) use(c, router.elements[c.from]->adjacency_port(c.from_port));
    }
  };
  each_switch([&](const RouterConnection& c, std::optional<uint16_t> port) {
    if (!port) return;
    named.insert(*port);
    add(*port, c.from, c.from_port);
  });
  uint16_t other = 0;
  while (named.contains(other)) ++other;
  each_switch([&](const RouterConnection& c, std::optional<uint16_t> port) {
    if (!port) add(other, c.from, c.from_port);
  });
  if (!named.empty()) return outputs;
  for (const RouterConnection& c : router.connections) add(0, c.from, c.from_port);
  return outputs;
}

std::string path_of(const TableDeclaration& declaration, const std::string& file) {
  return declaration.type == TableDeclaration::Type::kRoutes ? path_of_route_file(file) : file;
}

namespace {

Result<ImagePointer> load_one(const TableDeclaration& d, const Image* routes, TableLoad* load,
                              std::vector<Diagnostic>* warnings, TableModels* models, Rib* rib, InputSet* inputs,
                              const NeighbourReach& reach, TablesInUse* in_use, SharedRuleFiles& shared) {
  TableLoad local;
  TableLoad& report = load != nullptr ? *load : local;
  report = {};
  report.name = d.name;
  report.kind = table_kind(d.type).name;
  Result<ImagePointer> image = ImagePointer();
  switch (d.type) {
    case TableDeclaration::Type::kAcl:
      image = load_acl(d, report, models, inputs, in_use, shared);
      break;
    case TableDeclaration::Type::kRoutes:
      image = load_routes(d, report, warnings, models, rib, inputs, in_use);
      break;
    case TableDeclaration::Type::kAdjacency:
      if (routes == nullptr)
        return Error(fmt::format("the adjacency table '{}' needs the route table '{}'", d.name, d.routes));
      image = load_adjacencies(d, *routes, report, warnings, models, rib, inputs, reach, in_use);
      break;
    default:
      image = load_list(d, report, models, inputs, in_use);
      break;
  }
  if (image.ok()) report.bytes = (*image)->bytes().size();
  return image;
}

}  // namespace

Result<ImagePointer> load_table(const TableDeclaration& d, const Image* routes, TableLoad* load,
                                std::vector<Diagnostic>* warnings, TableModels* models, Rib* rib, InputSet* inputs,
                                const NeighbourReach& reach) {
  SharedRuleFiles alone;
  return load_one(d, routes, load, warnings, models, rib, inputs, reach, nullptr, alone);
}

Result<TableSet> load_tables(const Router& router, const TableOverrides& overrides, TableReport* report,
                             const TableGaps& gaps, TableModels* models, InputSet* inputs, TablesInUse* in_use) {
  TableSet set;
  Errors errors;
  TableReport local;
  TableReport& out = report != nullptr ? *report : local;
  auto located = [](const Element& element, Error error) {
    if (!error.diagnostics.empty()) return error;
    Diagnostic d = element.diagnostic(error.message);
    d.suggestion = error.hint;
    error.diagnostics.push_back(std::move(d));
    error.hint.clear();
    return error;
  };
  NeighbourReach reach;
  if (overrides.neighbours != nullptr) reach = {overrides.neighbours, neighbour_outputs(router)};
  if (models != nullptr) models->reach = reach;
  SharedRuleFiles shared(router);
  // Adjacencies last: they need the routes' next hops, and the routes that lead to these.
  std::map<std::string, Rib, std::less<>> ribs;
  std::set<std::string, std::less<>> unchanged_routes;  // whose Rib nobody has asked for
  for (const bool adjacencies : {false, true}) {
    for (const auto& element : router.elements) {
      for (TableDeclaration d : element->tables()) {
        if ((d.type == TableDeclaration::Type::kAdjacency) != adjacencies) continue;
        auto& tables = set.of(d.type);
        if (tables.contains(d.name)) {
          errors.add(
              located(*element, Error(fmt::format("there are two {}s called '{}'", table_kind(d.type).words, d.name),
                                      "give one of them another name")));
          continue;
        }
        tables[d.name] = nullptr;  // taken, whether it loads or not
        if (gaps.unreadable.contains(element.get())) continue;
        if (auto known = in_use != nullptr ? in_use->unchanged(d) : std::nullopt) {
          tables[d.name] = std::move(known->image);
          if (d.type == TableDeclaration::Type::kRoutes) unchanged_routes.insert(d.name);
          out.loads.push_back(std::move(known->load));
          continue;
        }
        if (d.type == TableDeclaration::Type::kAcl && !overrides.acl_algorithm.empty())
          d.algorithm = overrides.acl_algorithm;
        if (d.type == TableDeclaration::Type::kAcl && d.algorithm.empty()) d.algorithm = kDefaultAclAlgorithm;
        if (d.type == TableDeclaration::Type::kAcl && d.algorithm == kAclAuto && overrides.on_device)
          d.algorithm = kAclAutoGpu;
        if (d.type == TableDeclaration::Type::kRoutes && !overrides.route_algorithm.empty())
          d.algorithm = overrides.route_algorithm;
        if (d.type == TableDeclaration::Type::kRoutes && !overrides.route_algorithm6.empty())
          d.algorithm6 = overrides.route_algorithm6;
        if (d.type == TableDeclaration::Type::kRoutes && overrides.on_device) {
          for (std::string* name : {&d.algorithm, &d.algorithm6}) {
            if (name->empty() || *name == kLpmAuto) *name = kLpmAutoGpu;
          }
        }
        const Image* routes = nullptr;
        if (adjacencies) {
          auto found = find_table(set.routes, "route table", d.routes);
          if (!found) {
            if (!gaps.incomplete) errors.add(located(*element, found.error()));
            continue;
          }
          routes = found->get();
          if (routes == nullptr) continue;  // it did not load, which was reported
        }
        TableLoad load;
        Rib best;
        Rib* rib = d.type == TableDeclaration::Type::kRoutes ? &best : nullptr;
        if (adjacencies && unchanged_routes.erase(d.routes) != 0) {
          if (Rib routes_in_use = in_use->best_routes(d.routes); routes_in_use.size() != 0)
            ribs[d.routes] = std::move(routes_in_use);
        }
        if (const auto it = ribs.find(d.routes); adjacencies && it != ribs.end()) rib = &it->second;
        auto image = load_one(d, routes, &load, &out.warnings, models, rib, inputs, reach, in_use, shared);
        if (image.ok() && rib == &best && best.size() != 0) ribs[d.name] = std::move(best);
        // Read again, and the same: the ids of its next hops are those of the table in use.
        const bool same = models != nullptr && !load.compiled && !models->routes.contains(d.name);
        if (image.ok() && rib == &best && in_use != nullptr && same) unchanged_routes.insert(d.name);
        if (!image) {
          errors.add(located(*element, image.error()));
          continue;
        }
        tables[d.name] = std::move(*image);
        out.loads.push_back(std::move(load));
      }
    }
  }
  if (!errors.ok()) return errors.take();
  return set;
}

}  // namespace sluice
