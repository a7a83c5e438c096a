// host only
#include "graph_run.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "app.h"
#include "composition.h"
#include "confine.h"
#include "control/standard_graph.h"
#include "devices.h"
#include "elements/gpu_classes.h"
#include "exec/scheduler/scheduler.h"
#include "formats/qos_text.h"
#include "graph/click/print.h"
#include "inputs.h"
#include "live.h"
#include "pipeline.h"
#include "port_flags.h"
#include "priorities.h"
#include "run_options.h"
#include "run_report.h"
#include "run_standard.h"
#include "scheduled.h"
#include "verdicts.h"

namespace sluice::app {
namespace {

// The classes of --qos.
std::shared_ptr<const QosModel> read_qos(std::optional<InputFile>& file, Control::ClassesFile& read) {
  if (!file) return nullptr;
  read = {file->name(), file->stamp(), need(file->table())};
  return std::make_shared<QosModel>(need(parse_qos(read.text, read.path)));
}

// Packets by priorities: those of --qos where there are classes, else those of RFC 4594.
PriorityOptions priorities_of(const RunFlags& o, const QosModel* qos) {
  PriorityOptions options = priority_options(o.priorities, qos != nullptr ? qos->classes.size() : kDefaultQosClasses);
  if (qos == nullptr) return options;
  options.classes = qos->map;
  if (options.shares.empty()) {
    for (const QosClass& c : qos->classes) options.shares.push_back(c.weight);
  }
  return options;
}

void print_named(const char* name, const std::string& what) {
  print_result(Json{{name, what}}, what);
}

// Packets per batch of a run without live ports, devices or classes of its own: what a batch costs by itself is shared
// by more of them, and a core's near memory has room for it.
constexpr uint32_t kFileBatch = 1024;

// A run from its options to its report, step by step.
class GraphRun {
 public:
  explicit GraphRun(const RunFlags& o) : o_(o), flags_(o.device), batch_(o.batch), batch_asked_(o.given("--batch")) {}

  Exit run() {
    try {
      return run_graph();
    } catch (Failure& failure) {
      name_options(failure.error, o_, ends_);
      throw;
    }
  }

 private:
  Exit run_graph();
  // What --in, --out and --qos name, and the text of a configuration. Ends with kUsage or kIo.
  void open_inputs();
  void follow_gpu_classes();
  TableOverrides overrides_of() const;
  Exit print_graph_or_plan();
  // Gives up what a run does not need. Whether it did.
  bool confine();
  void load();
  void check_features();
  // A graph that follows this one (GraphControl::Hooks::load).
  Result<std::unique_ptr<GraphGeneration>> load_next(const std::string& text, const std::string& name,
                                                     const std::string& folder, TablesInUse* in_use = nullptr) const;
  // What --config says now (LiveRun::Reload). Errors: everything that is wrong in it and in its tables; what cannot
  // change while the run goes on.
  Result<LiveRun::Reload> reload(TablesInUse& in_use) const;
  Result<LiveRun::Reload> read_again(RunFlags next, TablesInUse& in_use) const;
  RunOptions run_options() const;
  Exit run_loaded(LiveRun& live, bool confined);
  Exit report(const PipelineRun& done, const LiveRun& live, const std::vector<std::string>& places,
              const std::optional<Error>& damage) const;

  bool only_prints() const { return o_.print_graph || o_.print_plan; }
  // A graph that --packet-scheduler asks for is one that has to be.
  void schedule(Pipeline& p) const {
    if (o_.one_by_one && p.router.scheduled.empty()) p.router.scheduled = "--packet-scheduler is given";
  }
  // What workers take at a time.
  uint32_t device_batch() const { return o_.priorities.on ? priorities_of(o_, qos_.get()).chunk : batch_; }
  Scheduled scheduled() const { return o_.one_by_one ? Scheduled::kAlways : Scheduled::kAllowed; }

  const RunFlags& o_;
  DeviceFlags flags_;  // with what the graph's classes ask for
  uint32_t batch_;
  bool batch_asked_;  // by the command line, the configuration, or a class of the graph
  std::string file_;  // the configuration; "": the standard graph
  Defines defines_;
  Features features_;
  RunEnds ends_;
  std::optional<StandardGraph> standard_;
  std::optional<InputFile> qos_file_;
  std::shared_ptr<const QosModel> qos_;
  ClickText text_;
  OpenDevices devices_;
  TableOverrides overrides_;
  LoadOptions loading_;  // of graphs that follow this one
  std::vector<std::string> outputs_;
  bool live_ports_ = false;
  std::unique_ptr<NeighbourFollower> follower_;  // none: no live ports
  std::unique_ptr<Pipeline> pipeline_;
};

void GraphRun::open_inputs() {
  if (file_.empty()) {
    ends_ = run_ends(o_);
    standard_ = standard_graph_of(o_, ends_);
    check_standard_files(defines_.files, *standard_);
    if (!only_prints()) check_standard_run(o_, *standard_);
  } else {
    check_files(defines_.files);
  }
  NamedInputs named = inputs_of(o_, ends_);
  if (!standard_) named.emplace_back("the configuration", file_);
  check_read_once(named);
  if (!o_.qos.empty()) {
    if (const auto id = read_once_id(o_.qos)) defines_.read_once.emplace(*id, "--qos");
    qos_file_ = need(InputFile::open(o_.qos), Exit::kIo);
  }
  if (standard_) {
    auto made = standard_graph_text(*standard_);
    if (!made.ok()) fail(Exit::kUsage, made.error());
    text_ = parse_text(std::move(*made), kStandardGraph, defines_);
    return;
  }
  std::string text = read_configuration(file_, defines_);
  text_ = parse_text(std::move(text), title_of(file_), defines_);
}

// What the first element asks for whose class names a GPU, where the command line says nothing of it.
void GraphRun::follow_gpu_classes() {
  if (!text_.graph) return;  // reported when it is loaded
  for (const ClickElement& e : text_.graph->elements) {
    const ElementClass* found = registry().find(e.class_name);
    if (found == nullptr) continue;
    std::vector<Diagnostic> wrong;
    const Arguments arguments = Arguments::parse(found->arguments, e.configuration, e.configuration_origin, &wrong);
    if (!wrong.empty()) continue;
    const GpuPlacement asked = gpu_placement(e.class_name, arguments);
    if (*asked.mode == '\0') continue;
    std::string options;
    if (!o_.given("--device") && !o_.one_by_one) {
      // Who names a GPU gets one, or an error.
      flags_.device = "cuda";
      flags_.mode = asked.mode;
      flags_.transport = asked.transport;
      options = fmt::format(" for a GPU: --device cuda --mode {} --transport {}", asked.mode, asked.transport);
    } else {
      options = " for";
    }
    const size_t placed = options.size();
    // The element itself runs there too, also where that costs more than it gives.
    if (flags_.device != "cpu" && flags_.threading == "full" && !o_.given("--records") && !o_.one_by_one) {
      flags_.records = "frame";
      options += " --records frame";
    }
    if (asked.batch != 0 && !o_.given("--batch")) {
      batch_ = asked.batch;
      batch_asked_ = true;
      options += fmt::format(" --batch {}", batch_);
    }
    if (asked.flights != 0 && !o_.given("--flights")) {
      flags_.flights = asked.flights;
      options += fmt::format(" --flights {}", asked.flights);
    }
    if (!o_.given("--device") || options.size() != placed) note(fmt::format("{} asks{}", e.class_name, options));
    return;
  }
}

TableOverrides GraphRun::overrides_of() const {
  if (!o_.algorithm.empty()) check_acl_algorithm(o_.algorithm);
  TableOverrides overrides;
  overrides.acl_algorithm = o_.algorithm;
  overrides.on_device = table_target(devices_) == TableTarget::kGpu;
  if (!o_.route_algorithm.empty()) {
    const LpmNames names = check_lpm_algorithms(o_.route_algorithm, "--route-algorithm");
    overrides.route_algorithm = names.algorithm4;
    overrides.route_algorithm6 = names.algorithm6;
  }
  return overrides;
}

Exit GraphRun::print_graph_or_plan() {
  // --print-graph of the standard graph is its text: that is what a user wants to start from.
  if (o_.print_graph && standard_) {
    print_named("graph", text_.text);
    return Exit::kOk;
  }
  const auto parsed = parse_pipeline(std::move(text_), scheduled());
  schedule(*parsed);
  if (o_.print_graph) {
    print_named("graph", print_click(parsed->graph));
  } else if (!parsed->router.scheduled.empty()) {
    print_named("plan", describe_schedule(parsed->router));
  } else {
    print_named("plan", describe(parsed->plan, parsed->router) +
                            describe_offloads(*parsed, devices_, o_.workers, device_batch(), o_.live.counts()));
  }
  return Exit::kOk;
}

bool GraphRun::confine() {
  // Whoever has a GPU has its driver, which opens what it likes; a graph's own files are known to its elements, and to
  // those that a change brings.
  outputs_ = {o_.live.hits, o_.followed.verdicts, o_.followed.dropped, o_.ports.ready_file};
  for (const RunEnds::Out& out : ends_.out) {
    if (!out.device) outputs_.push_back(out.file);
  }
  for (const PortMap& map : defines_.ports) {
    if (!map.out.empty()) outputs_.push_back(map.out);
  }
  check_outputs(outputs_);
  // As DPDK is its own driver of what it likes.
  const bool confined =
      (devices_.label == "cpu" || devices_.label.starts_with("emu")) && !(live_ports_ && names_dpdk(*text_.graph));
  if (confined) refuse_calls(live_ports_);
  return confined;
}

void GraphRun::check_features() {
  features_.add(Feature::kDevice, devices_.label != "cpu");
  features_.add(Feature::kMarks, qos_ != nullptr && !qos_->marks.empty());
  features_.add(Feature::kLivePorts, live_ports_);
  const std::string& scheduled = pipeline_->router.scheduled;
  features_.add(scheduled.empty() ? Feature::kNoQueues : Feature::kQueues);
  features_.check(scheduled);
  if (!scheduled.empty() && o_.workers > 1)
    note(fmt::format("--workers {}: one worker runs this graph, packet by packet: {}", o_.workers, scheduled));
}

void GraphRun::load() {
  // Who follows the kernel knows its neighbours before the tables are built.
  if (live_ports_) {
    follower_ = need(NeighbourFollower::create(), Exit::kUnavailable);
    overrides_.neighbours = follower_->neighbours();
  }
  const bool keep_models = o_.live.counts() || live_ports_;
  pipeline_ = load_pipeline(std::move(text_), defines_, overrides_, true, keep_models, scheduled());
  schedule(*pipeline_);
  if (standard_) warn_of_idle_ports(*standard_, pipeline_->tables);
  check_features();
  loading_.by_packets = pipeline_->plan.by_packets;
  loading_.keep_models = keep_models;
  loading_.overrides = overrides_;
  // Marks have to stay with the packets until they leave.
  if (qos_ == nullptr || qos_->marks.empty()) return;
  loading_.at_sinks = kFieldMark;
  pipeline_->plan = loading_.by_packets ? plan_by_packets(pipeline_->router, kFieldMark)
                                        : need(make_plan(pipeline_->router, kFieldMark));
}

Result<std::unique_ptr<GraphGeneration>> GraphRun::load_next(const std::string& text, const std::string& name,
                                                             const std::string& folder, TablesInUse* in_use) const {
  LoadOptions next = loading_;
  next.in_use = in_use;
  next.parse = parse_options(defines_, folder);
  return load_generation(text, name, registry(), next);
}

Result<LiveRun::Reload> GraphRun::reload(TablesInUse& in_use) const {
  try {
    return read_again(read_run_config(o_.config), in_use);
  } catch (Failure& failure) {
    return std::move(failure.error);
  }
}

Result<LiveRun::Reload> GraphRun::read_again(RunFlags next, TablesInUse& in_use) const {
  constexpr std::array kLive = {"acl", "format", "routes", "adjacencies", "qos"};
  Error error;
  const auto told = [](const ConfiguredOptions& options, const std::string& name) {
    const auto at = options.find(name);
    return at == options.end() ? std::vector<std::string>() : at->second;
  };
  std::set<std::string> names;
  for (const auto& [name, value] : o_.configured) names.insert(name);
  for (const auto& [name, value] : next.configured) names.insert(name);
  for (const std::string& name : names) {
    const auto before = told(o_.configured, name), after = told(next.configured, name);
    // What stands on the command line wins now as it did then.
    if (before == after || (before.empty() && (o_.given(("--" + name).c_str()) || name == "graph"))) continue;
    const bool live = std::ranges::find(kLive, name) != kLive.end();
    if (live && before.empty() == after.empty()) continue;
    Diagnostic d;
    d.file = o_.config;
    d.message = live ? fmt::format("'{}' was {}: restart needed", name, before.empty() ? "added" : "taken out")
                     : fmt::format("'{}' cannot change while packets pass: restart needed", name);
    d.expected = fmt::format("{} = {}", name, before.empty() ? "(absent)" : fmt::format("{}", fmt::join(before, " ")));
    error.diagnostics.push_back(std::move(d));
  }
  // All that is wrong is said at once: the tables are read all the same.
  RunFlags changed = o_;
  const auto take = [&](const char* name, std::string RunFlags::*field) {
    if (o_.configured.contains(name) && next.configured.contains(name)) changed.*field = next.*field;
  };
  take("acl", &RunFlags::acl);
  take("format", &RunFlags::format);
  take("routes", &RunFlags::routes);
  take("adjacencies", &RunFlags::adjacencies);
  take("qos", &RunFlags::qos);
  const auto add = [&](Error more) {
    if (more.diagnostics.empty()) {
      Diagnostic d;
      d.file = o_.config;
      d.message = more.message;
      d.suggestion = more.hint;
      more.diagnostics.push_back(std::move(d));
    }
    error.diagnostics.insert(error.diagnostics.end(), more.diagnostics.begin(), more.diagnostics.end());
  };
  LiveRun::Reload out;
  try {
    if (!changed.qos.empty()) {
      std::optional<InputFile> file = need(InputFile::open(changed.qos), Exit::kIo);
      out.qos = read_qos(file, out.qos_file);
    }
  } catch (Failure& failure) {
    add(std::move(failure.error));
  }
  std::string text;
  if (standard_) {
    text = need(standard_graph_text(standard_graph_of(changed, run_ends(changed))));
  } else {
    text = need(read_text_file(file_, ParseOptions().max_source_bytes), Exit::kIo);
    if (text != pipeline_->text) {
      Diagnostic d;
      d.file = file_;
      d.message = "the graph has changed: restart needed";
      d.suggestion = "or put it in place with 'sluice graph swap'";
      error.diagnostics.push_back(std::move(d));
    }
  }
  auto graph = load_next(text, standard_ ? kStandardGraph : title_of(file_), {}, &in_use);
  if (graph.ok()) {
    out.graph = std::move(*graph);
  } else {
    Error wrong = std::move(graph).error();
    if (standard_) name_options(wrong, changed, ends_);
    add(std::move(wrong));
  }
  if (error.diagnostics.empty()) return out;
  error.message = fmt::format("{}: nothing was changed", counted(error.diagnostics.size(), "error"));
  return error;
}

RunOptions GraphRun::run_options() const {
  RunOptions options;
  options.files = defines_.files;
  options.simulated = o_.simulated;
  options.load = [this](std::string_view text) { return load_next(std::string(text), "hotconfig", {}); };
  options.workers = o_.workers;
  options.inputs = &pipeline_->inputs;
  options.neighbours = overrides_.neighbours;
  options.batch = batch_;
  options.latency_target_ns = latency_target_ns(o_.latency_target);
  options.device = devices_.options;
  options.qos = qos_;
  if (o_.limit != 0) options.max_packets = o_.limit;
  options.stop_is_end = o_.live.wait || o_.live.repeat || live_ports_;
  print_lines(options);
  return options;
}

Exit GraphRun::run_loaded(LiveRun& live, bool confined) {
  RunOptions options = run_options();
  // Tables are built: all that is left to read are packets.
  // Who asks by --control may have it read files, and so has SIGHUP where there is a socket and --config.
  if (standard_ && confined && !o_.live.has_socket() && (live.socket_path().empty() || o_.config.empty())) {
    std::vector<std::string> captures, written = outputs_;
    written.push_back(live.socket_path());
    for (const RunEnds::In& in : ends_.in) {
      if (!in.device) captures.push_back(in.file);
    }
    for (const PortMap& map : defines_.ports) captures.push_back(map.in);
    refuse_files(captures, written, live_ports_);
  }
  if (o_.priorities.on) options.priorities = priorities_of(o_, qos_.get());
  if (!o_.config.empty()) live.use([this](TablesInUse& in_use) { return reload(in_use); });
  if (follower_ != nullptr) live.use(*follower_);
  prepare_ports(o_.ports, options);
  live.prepare(options, pipeline_->tables, pipeline_->plan.by_packets);
  Verdicts verdicts(o_.followed, pipeline_->router);
  verdicts.prepare(options);
  std::optional<Error> damage;
  const auto load = [this](const std::string& text, const std::string& name, const std::string& folder) {
    return load_next(text, name, folder);
  };
  // All that the run writes appears together, or nothing does.
  std::vector<AtomicFile> files;
  const PipelineRun done =
      run_pipeline(*pipeline_, options, live.hooks(*pipeline_, devices_.label, load), &damage, &files);
  check_printed();
  const Ending ending = done.report.partial ? Ending::kPartial : Ending::kWhole;
  const size_t of_graph = files.size();
  live.write_hits(files);
  verdicts.end(files);
  std::vector<std::string> places;
  for (size_t f = of_graph; f < files.size(); ++f) places.push_back(files[f].path_of(ending));
  need(AtomicFile::commit(files, ending), Exit::kIo);
  return report(done, live, places, damage);
}

Exit GraphRun::report(const PipelineRun& done, const LiveRun& live, const std::vector<std::string>& places,
                      const std::optional<Error>& damage) const {
  const bool device_failed = report_failures(done.report) && !devices_.automatic;
  note_host_segments(*pipeline_, devices_, device_batch(), done.report, live.needs_rules());
  std::vector<std::string> left = outputs_of(done.report, &done.router());
  left.insert(left.end(), places.begin(), places.end());
  print_run(o_, *pipeline_, done, live, devices_.label, outputs_, left);
  if (device_failed) {
    const auto failed = std::ranges::find_if(done.report.devices, [](const auto& d) { return !d.failure.empty(); });
    fail(Exit::kUnavailable, fmt::format("device {}:{}: {}", failed->info.kind, failed->info.ordinal, failed->failure),
         "all packets were processed: the CPU took over");
  }
  return done.report.partial ? end_partial(left, damage) : Exit::kOk;
}

Exit GraphRun::run_graph() {
  std::tie(file_, defines_) = read_words(o_.words, o_.maps);
  defines_.files = files_besides_graph(o_, file_);
  check_run_options(o_, file_);
  features_ = features_of(o_);
  features_.check();
  open_inputs();
  live_ports_ = text_.graph && has_live_ports(*text_.graph);
  if (!live_ports_) keep_no_capability();
  if (live_ports_ && !only_prints()) check_port_capabilities(*text_.graph);
  if (!standard_) follow_gpu_classes();
  devices_ = open_devices(flags_);
  if (!batch_asked_ && sends_frames(devices_)) {
    batch_ = kFrameBatch;
  } else if (!batch_asked_ && devices_.options.devices.empty() && !live_ports_ && !o_.priorities.on) {
    batch_ = kFileBatch;
  }
  overrides_ = overrides_of();
  if (only_prints()) return print_graph_or_plan();
  // Its sockets are opened before sockets are refused.
  LiveRun live(o_.live, live_ports_);
  const bool confined = confine();
  Control::ClassesFile classes;
  qos_ = read_qos(qos_file_, classes);
  live.use(std::move(classes));
  load();
  return run_loaded(live, confined);
}

}  // namespace

Exit run_graph(const RunFlags& o) {
  return GraphRun(o).run();
}

}  // namespace sluice::app
