// host only
#include "pipeline.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/scope_exit.h"
#include "elements/register_all.h"
#include "exec/engine/batch_rules.h"
#include "exec/engine/live_ports.h"
#include "exec/engine/ports.h"
#include "formats/file_kind.h"
#include "graph/click/library_file.h"
#include "graph/graph_files.h"
#include "ports/pcap/capture_reader.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/sections.h"

namespace sluice::app {

const Registry& registry() {
  static const Registry all = [] {
    Registry r;
    register_elements(r);
    return r;
  }();
  return all;
}

namespace {

bool is_regular(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::unique_ptr<Pipeline> pipeline_of(ClickText text) {
  auto p = std::make_unique<Pipeline>();
  p->graph = need(std::move(text.graph));
  p->text = std::move(text.text);
  p->name = std::move(text.name);
  return p;
}

// The findings of several phases, in their order.
class Phases {
 public:
  void add(Error error, Exit code) {
    if (error.system && code == Exit::kBadInput) code = Exit::kIo;
    all_.diagnostics.insert(all_.diagnostics.end(), error.diagnostics.begin(), error.diagnostics.end());
    if (!error.message.empty()) all_.message += (all_.message.empty() ? "" : "; ") + error.message;
    if (all_.hint.empty()) all_.hint = std::move(error.hint);
    code_ = ok_ || code < code_ ? code : code_;
    ok_ = false;
  }
  bool ok() const { return ok_; }
  [[noreturn]] void end() { fail(code_, std::move(all_)); }

 private:
  Error all_;
  Exit code_ = Exit::kOk;
  bool ok_ = true;
};

// Opens what elements name, before anything is read.
class GraphInputs {
 public:
  GraphInputs(InputSet& inputs, std::map<FileId, std::string> read_once)
      : inputs_(inputs), read_once_(std::move(read_once)) {}

  // The elements with table files that cannot be read. What can make one wait is not read either then: who named
  // another file that is not there is told at once.
  std::set<const Element*> open_tables(const Router& router) {
    std::set<const Element*> wrong, waiting;
    for (const auto& element : router.elements) {
      for (const TableDeclaration& table : element->tables()) {
        for (const std::string& file : table.files) {
          const std::string path = path_of(table, file);
          if (!open(*element, path))
            wrong.insert(element.get());
          else if (!inputs_.find(path)->regular())
            waiting.insert(element.get());
        }
      }
    }
    waiting_ = std::move(waiting);
    return wrong;
  }
  // The captures of sources; `bad`: those that can be looked at and are none.
  void open_sources(const Router& router, Error& bad) {
    for (const auto& element : router.elements) {
      const PortSpec port = element->port();
      if (element->kind() != ElementKind::kSource ||
          (port.type != PortSpec::Type::kCapture && port.type != PortSpec::Type::kMemory) || !open(*element, port.path))
        continue;
      if (const InputFile& file = *inputs_.find(port.path); file.regular()) {
        if (auto reader = CaptureReader::open(file.again()); !reader.ok())
          add(reader.error().system ? unreadable : bad, *element, reader.error().message, reader.error().hint);
      }
    }
  }
  // Ends their part of the report.
  Error unreadable, twice;
  const std::set<const Element*>& waiting() const { return waiting_; }

 private:
  static void add(Error& to, const Element& element, const std::string& message, const std::string& hint) {
    Diagnostic d = element.diagnostic(message);
    d.suggestion = hint;
    to.diagnostics.push_back(std::move(d));
  }
  bool open(const Element& element, const std::string& path) {
    if (const auto id = read_once_id(path)) {
      const std::string name = path == "-" ? "standard input" : path;
      const auto [other, first] = read_once_.emplace(*id, fmt::format("'{}'", element.name));
      if (!first) {
        add(twice, element, fmt::format("{} is read by {} already and can be read only once", name, other->second),
            "write its contents to a file first");
        return false;
      }
    }
    auto opened = inputs_.open(path);
    if (!opened.ok()) add(unreadable, element, opened.error().message, opened.error().hint);
    return opened.ok();
  }

  InputSet& inputs_;
  std::map<FileId, std::string> read_once_;
  std::set<const Element*> waiting_;
};

// The captures that sinks write. Nothing appears: what is not committed goes away.
void check_sinks(const Router& router, Error& errors) {
  for (const auto& element : router.elements) {
    const PortSpec port = element->port();
    struct stat status {};
    if (element->kind() != ElementKind::kSink || port.type != PortSpec::Type::kCapture || port.path == "-" ||
        (::stat(port.path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)))
      continue;
    auto sink = open_sink(port);
    if (sink.ok()) continue;
    Diagnostic d = element->diagnostic(sink.error().message);
    d.suggestion = sink.error().hint;
    errors.diagnostics.push_back(std::move(d));
  }
}

void add_counted(Phases& phases, Error errors, Exit code, const char* noun, const char* what) {
  const size_t n = errors.diagnostics.size();
  if (n == 0) return;
  errors.message = fmt::format("{} cannot be {}", counted(n, noun), what);
  phases.add(std::move(errors), code);
}

bool is_define(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// The names behind '$' and "${" of a configuration.
std::vector<std::string> variables_of(std::string_view text) {
  std::vector<std::string> names;
  for (size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at)) {
    if (++at < text.size() && text[at] == '{') ++at;
    size_t end = at;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    std::string name(text.substr(at, end - at));
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    at = end;
  }
  return names;
}

void check_variables(const std::string& text, const std::string& name, const Defines& defines) {
  if (defines.values.empty()) return;
  const std::vector<std::string> names = variables_of(text);
  for (const auto& [variable, value] : defines.values) {
    if (std::find(names.begin(), names.end(), variable) != names.end()) continue;
    const std::string near = closest_match(variable, names);
    fail(Exit::kUsage, fmt::format("{}={}: {} has no variable ${}", variable, value, name, variable),
         !near.empty()   ? fmt::format("did you mean {}={}?", near, value)
         : names.empty() ? std::string("it has none: leave it out")
                         : fmt::format("it has ${}", fmt::join(names, ", $")));
  }
}

bool is_planned(const Router& router, Scheduled scheduled) {
  return scheduled != Scheduled::kAlways && (router.scheduled.empty() || scheduled == Scheduled::kRefused);
}

}  // namespace

std::pair<std::string, Defines> read_words(const std::vector<std::string>& words,
                                           const std::vector<std::string>& maps) {
  std::pair<std::string, Defines> out;
  auto& [file, defines] = out;
  for (const std::string& word : words) {
    if (is_define(word)) {
      const size_t equals = word.find('=');
      defines.values.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    } else if (file.empty()) {
      file = word;
    } else {
      fail(Exit::kUsage, fmt::format("'{}' and '{}': one configuration at a time", file, word));
    }
  }
  for (const std::string& map : maps) {
    auto parsed = parse_port_map(map);
    if (!parsed.ok()) fail(Exit::kUsage, "--map: " + parsed.error().message, parsed.error().hint);
    defines.ports.push_back(std::move(*parsed));
  }
  return out;
}

std::string read_configuration(const std::string& file, Defines& defines) {
  if (const auto id = read_once_id(file)) defines.read_once.emplace(*id, "the configuration");
  return need(read_text_file(file, ParseOptions().max_source_bytes), Exit::kIo);
}

ParseOptions parse_options(const Defines& defines, const std::string& folder) {
  ParseOptions options;
  options.defines = defines.values;
  options.ports = defines.ports;
  options.known_classes = registry().names();
  options.library = [folder](const std::string& name, const std::string& from) {
    return read_library(folder, name, from);
  };
  return options;
}

ClickText parse_text(std::string text, std::string name, const Defines& defines) {
  ParseOptions options = parse_options(defines);
  std::string whole = text;  // with its libraries
  options.library = [&whole, read = options.library](const std::string& library, const std::string& from) {
    auto found = read(library, from);
    if (found.ok()) whole += "\n" + found->text;
    return found;
  };
  auto graph = parse_click(text, name, options);
  if (!graph.ok() && !graph.error().system) {
    if (auto other = other_kind(text, name, KindWanted::kConfiguration)) graph = std::move(*other);
  }
  if (graph.ok() && !defines.any_name) check_variables(whole, name, defines);
  return {std::move(text), std::move(name), std::move(graph)};
}

std::unique_ptr<Pipeline> parse_pipeline(ClickText text, Scheduled scheduled) {
  auto p = pipeline_of(std::move(text));
  p->router = need(build_router(p->graph, registry(), p->text));
  print_warnings(p->router.warnings);
  p->plan = is_planned(p->router, scheduled) ? need(make_plan(p->router)) : plan_by_packets(p->router);
  return p;
}

std::unique_ptr<Pipeline> load_pipeline(ClickText text, const Defines& defines, const TableOverrides& overrides,
                                        bool ports, bool keep_models, Scheduled scheduled) {
  auto p = pipeline_of(std::move(text));
  Phases phases;
  TableGaps gaps;
  Router sound;
  auto router = build_router(p->graph, registry(), p->text, &sound);
  if (router.ok()) {
    p->router = std::move(*router);
    print_warnings(p->router.warnings);
    if (!is_planned(p->router, scheduled)) {
      p->plan = plan_by_packets(p->router);
    } else {
      auto plan = make_plan(p->router);
      if (plan.ok()) {
        p->plan = std::move(*plan);
      } else {
        phases.add(std::move(plan).error(), Exit::kBadInput);
      }
    }
  } else {
    phases.add(std::move(router).error(), Exit::kBadInput);
    p->router = std::move(sound);
    gaps.incomplete = p->router.elements.size() != p->graph.elements.size();
  }
  // Before anything is read: what it names may not be what anybody wants to read.
  need(check_files(p->router, defines.files));
  const bool planned = phases.ok();
  Error bad;
  GraphInputs inputs(p->inputs, defines.read_once);
  gaps.unreadable = inputs.open_tables(p->router);
  if (ports) inputs.open_sources(p->router, bad);
  add_counted(phases, std::move(inputs.unreadable), Exit::kIo, "file", "read");
  add_counted(phases, std::move(inputs.twice), Exit::kBadInput, "file", "read twice");
  if (!phases.ok()) gaps.unreadable.insert(inputs.waiting().begin(), inputs.waiting().end());
  Progress progress("");
  progress.step("reading and building tables");
  auto tables =
      load_tables(p->router, overrides, &p->table_report, gaps, keep_models ? &p->models : nullptr, &p->inputs);
  progress.clear();
  print_warnings(p->table_report.warnings);
  stop_if_interrupted();
  // And what those include.
  RunFiles files = defines.files;
  for (const TableLoad& load : p->table_report.loads) {
    for (const std::string& file : load.files) files.input(fmt::format("table '{}'", load.name), file);
  }
  need(check_files(p->router, std::move(files)));
  if (!tables.ok()) {
    phases.add(std::move(tables).error(), Exit::kBadInput);
  } else {
    p->tables = std::move(*tables);
    // Whether every element finds its table shows only where all were loaded.
    if (planned && gaps.unreadable.empty()) {
      if (auto bound = bind_plan(p->plan, p->router, p->tables); !bound.ok())
        phases.add(std::move(bound).error(), Exit::kBadInput);
    }
  }
  // A run opens its outputs itself; here they are looked at for what else there is to say.
  const Exit code = bad.diagnostics.empty() ? Exit::kIo : Exit::kBadInput;
  if (ports && (!phases.ok() || code == Exit::kBadInput)) check_sinks(p->router, bad);
  add_counted(phases, std::move(bad), code, "port", "opened");
  if (!phases.ok()) phases.end();
  return p;
}

void load_pipeline_tables(Pipeline& pipeline, const TableOverrides& overrides) {
  Progress progress("");
  progress.step("reading and building tables");
  pipeline.tables = need(load_tables(pipeline.router, overrides, &pipeline.table_report));
  progress.clear();
  print_warnings(pipeline.table_report.warnings);
  stop_if_interrupted();
}

namespace {

// Why no engine could be made: a source that is no capture is the user's input, as is an element that cannot start; all
// else is files.
Exit why(const Pipeline& pipeline) {
  for (const PlanSource& s : pipeline.plan.sources) {
    const PortSpec port = pipeline.router.elements[s.element]->port();
    if (port.type == PortSpec::Type::kPattern || !is_regular(port.path)) continue;
    if (!CaptureReader::open(port.path).ok()) return Exit::kBadInput;
  }
  if (!pipeline.plan.by_packets) return Exit::kIo;
  RunFiles files;
  add_files(pipeline.router, files);
  for (const RunFiles::File& file : files.files()) {
    if (file.path.empty() || file.use == RunFiles::File::Use::kInput) continue;
    const auto place = find_output(file.path);
    if (!place.ok() || (place->kind == OutputPlace::Kind::kFile && !AtomicFile::create(file.path).ok()))
      return Exit::kIo;
  }
  return Exit::kBadInput;
}

}  // namespace

void fail_run(const RunReport& report, const Error& error, std::optional<Error>* damage) {
  if (report.partial && damage != nullptr) {
    *damage = error;
    return;
  }
  fail(report.output_failed ? Exit::kIo : Exit::kBadInput, error);
}

std::vector<std::string> outputs_of(const RunReport& report, const Router* router) {
  std::vector<std::string> paths;
  for (const RunReport::Sink& sink : report.sinks) paths.push_back(sink.path);
  for (size_t e = 0; router != nullptr && e < router->elements.size(); ++e) {
    for (const FileUse& file : router->elements[e]->files()) {
      const auto place = find_output(file.path);
      const bool partial = report.partial && place.ok() && place->kind == OutputPlace::Kind::kFile;
      if (file.output) paths.push_back(partial ? place->path() + std::string(kPartialSuffix) : file.path);
    }
  }
  return paths;
}

std::unique_ptr<Engine> make_engine(Pipeline& pipeline, RunOptions options) {
  if (!pipeline.plan.by_packets) {
    // What is wrong with the graph comes before its ports.
    const auto snapshot = need(bind_plan(pipeline.plan, pipeline.router, pipeline.tables));
    need(apply_batch_rules(pipeline.router, options));
    need(Engine::check_tables(pipeline.router, pipeline.plan, options, *snapshot), Exit::kUnavailable);
  }
  if (auto ok = Engine::check(pipeline.router, pipeline.plan, options); !ok.ok()) fail(Exit::kBadInput, ok.error());
  options.stop = &interrupted();
  auto engine = Engine::create(pipeline.router, pipeline.plan, pipeline.tables, options);
  if (!engine.ok()) fail(why(pipeline), std::move(engine).error());
  return std::move(*engine);
}

PipelineRun run_pipeline(Pipeline& pipeline, RunOptions options, const RunHooks& hooks, std::optional<Error>* damage,
                         std::vector<AtomicFile>* files) {
  Progress progress("packets");
  options.progress = [&](uint64_t packets) { progress.update(packets); };
  PipelineRun run;
  run.engine = make_engine(pipeline, std::move(options));
  Engine& engine = *run.engine;
  const ScopeExit closing([&hooks] {
    if (hooks.closed) hooks.closed();
  });
  if (hooks.started) hooks.started(engine);
  const auto done = engine.run(run.report, files);
  progress.clear();
  if (hooks.ended) hooks.ended(engine);
  if (LivePorts* const ports = engine.live_ports(); ports != nullptr) {
    // Who follows links has ended after the run.
    const std::vector<LivePortReport> now = ports->report();
    for (size_t p = 0; p < std::min(now.size(), run.report.live_ports.size()); ++p) {
      run.report.live_ports[p].link = now[p].link;
      run.report.live_ports[p].link_changes = now[p].link_changes;
    }
  }
  if (!done.ok()) fail_run(run.report, done.error(), damage);
  run.interrupted = interrupted().load();
  check_conserved(run.report);
  return run;
}

void check_conserved(const RunReport& r) {
  if (r.conserved()) return;
  fail(Exit::kCheckFailed,
       fmt::format("packet counts do not add up: {} in + {} generated is not {} out + {} dropped{}", r.packets_in,
                   r.generated, r.packets_out, r.dropped, r.queued == 0 ? "" : fmt::format(" + {} queued", r.queued)),
       "this is a defect of sluice; please report it with the configuration");
}

std::string drops_text(const std::array<uint64_t, kDropReasons>& drops) {
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (size_t r = 0; r < drops.size(); ++r) {
    if (drops[r] != 0) sorted.emplace_back(drops[r], to_string(static_cast<DropReason>(r)));
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::string text;
  for (const auto& [count, reason] : sorted)
    text += fmt::format("{}{} {}", text.empty() ? "" : "  ", reason, with_commas(count));
  return text;
}

std::string summary(const RunReport& r, const std::string& device) {
  std::string text =
      fmt::format("in     {}, {}\n", counted(r.packets_in, "packet"), human_bytes(static_cast<double>(r.bytes_in)));
  if (r.generated != 0) text += fmt::format("generated {}\n", counted(r.generated, "packet"));
  text += fmt::format("out    {}, {}", counted(r.packets_out, "packet"), human_bytes(static_cast<double>(r.bytes_out)));
  if (r.ports.size() > 1) {
    size_t shown = 0;
    for (const auto& [port, counters] : r.ports) {
      if (++shown > 8) {
        text += fmt::format(", and {}", counted(r.ports.size() - 8, "more port"));
        break;
      }
      text += fmt::format("{} port {}: {}", shown == 1 ? ";" : ",", port, with_commas(counters.packets));
    }
  }
  text += fmt::format("\ndrops  {}{}{}\n", with_commas(r.dropped), r.dropped != 0 ? ": " : "", drops_text(r.drops));
  if (r.queued != 0) text += fmt::format("queued {}\n", counted(r.queued, "packet"));
  const nlohmann::ordered_json of_each = dscp_json(r.totals);
  for (const auto& [dscp, bytes] : of_each.items())
    text += fmt::format("dscp   {}: {}\n", dscp, human_bytes(bytes.get<double>()));
  text +=
      fmt::format("time   {} on {} x{}, {}, p50 {:.1f} us, p99 {:.1f} us\n", human_seconds(r.seconds), device,
                  r.workers, human_rate(r.seconds > 0 ? static_cast<double>(r.packets_in) / r.seconds : 0, "packets"),
                  static_cast<double>(r.totals.latency.percentile(50)) * 1e-3,
                  static_cast<double>(r.totals.latency.percentile(99)) * 1e-3);
  return text;
}

std::string rule_place(const Image& acl, uint32_t rule) {
  const auto source = need(AclSourceView::open(acl));
  if (source.line(rule) == 0) return fmt::format("rule {}", rule);
  return fmt::format("{}:{}", source.file(rule), source.line(rule));
}

}  // namespace sluice::app
