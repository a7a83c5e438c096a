// sluice run: packets through a graph.  sluice check: the same without packets.
// host only
#include <algorithm>
#include <functional>
#include <set>

#include "app.h"
#include "composition.h"
#include "confine.h"
#include "control/command_text.h"
#include "control/standard_graph.h"
#include "devices.h"
#include "elements/gpu_classes.h"
#include "exec/scheduler/scheduler.h"
#include "formats/qos_text.h"
#include "graph/click/print.h"
#include "inputs.h"
#include "live.h"
#include "net/text.h"
#include "pipeline.h"
#include "port_flags.h"
#include "priorities.h"
#include "scheduled.h"
#include "shadowed.h"
#include "tables/adjacency/adjacency_model.h"
#include "verdicts.h"

namespace sluice::app {
namespace {

struct RunFlags {
  std::vector<std::string> words;  // FILE.click and NAME=VAL
  std::vector<std::string> maps;
  std::string acl, format = "auto", routes, adjacencies, qos, icmp, policy = "deny", algorithm, route_algorithm,
                   latency_target;
  std::vector<std::string> in, out;
  DeviceFlags device;
  bool icmp_denied = false, print_graph = false, print_plan = false, simulated = false, one_by_one = false;
  unsigned workers = 1;
  uint32_t batch = 256;
  uint64_t limit = 0;
  LiveFlags live;
  VerdictFlags followed;
  PriorityFlags priorities;
  PortFlags ports;
  std::function<bool(const char*)> given = [](const char*) { return false; };  // it stands on the command line
};

constexpr const char* kStandardGraph = "standard graph";  // what its text is called

StandardGraph standard_graph_of(const RunFlags& o) {
  StandardGraph g;
  g.acl = o.acl;
  g.acl_format = o.format;
  g.routes = split_route_files(o.routes);
  g.adjacencies = split_commas(o.adjacencies);
  for (const std::string& in : o.in) {
    if (const auto device = device_arguments(in, o.ports)) {
      g.in_devices.push_back(device->receive);
    } else if (g.in.empty()) {
      g.in = in;
    } else {
      g.more_in.push_back(in);
    }
  }
  // More than any run can play.
  constexpr uint64_t kForEver = 1'000'000'000'000'000'000;
  g.in_memory = o.live.repeat;
  if (o.live.repeat) g.limit = o.limit != 0 ? o.limit : kForEver;
  g.permit_by_default = o.policy == "permit";
  for (const std::string& out : o.out) {
    auto parsed = parse_port_file(out);
    if (!parsed.ok()) fail(Exit::kUsage, fmt::format("--out: {}", parsed.error().message));
    if (const auto device = device_arguments(parsed->file, o.ports)) g.out_devices.emplace(parsed->file, device->send);
    if (parsed->port) {
      g.port_out.emplace_back(*parsed->port, parsed->file);
      continue;
    }
    if (!g.out.empty())
      fail(Exit::kUsage, fmt::format("--out: both '{}' and '{}' are for all ports", g.out, out),
           "write PORT=FILE for one port");
    g.out = out;
  }
  if (!o.icmp.empty()) {
    g.icmp_errors = true;
    g.icmp_for_denied = o.icmp_denied;
    for (const std::string& word : split_commas(o.icmp)) {
      if (!parse_ip(word))
        fail(Exit::kUsage, fmt::format("--icmp-errors: '{}' is not an address", word),
             "give the router's own IPv4 address, IPv6 address, or both with a comma");
      g.icmp_sources.push_back(word);
    }
  }
  return g;
}

// What the command line names besides what a graph reads and writes.
RunFiles files_besides_graph(const RunFlags& o, const std::string& configuration) {
  RunFiles files = o.print_graph || o.print_plan ? RunFiles() : command_files();
  files.input("the configuration", configuration);
  files.input("--qos", o.qos);
  files.output("--hits", o.live.hits);
  files.output("--verdicts", o.followed.verdicts);
  files.output("--dropped", o.followed.dropped);
  if (o.live.control != "auto") files.made("--control", o.live.control);
  return files;
}

// The same with what the standard graph reads and writes.
void check_standard_files(const RunFlags& o, const StandardGraph& g) {
  RunFiles files = files_besides_graph(o, "");
  files.input("--acl", g.acl);
  for (const std::string& file : g.routes) files.input("--routes", path_of_route_file(file));
  for (const std::string& file : g.adjacencies) files.input("--adjacencies", file);
  files.input("--in", g.in);
  for (const std::string& file : g.more_in) files.input("--in", file);
  const auto output = [&](const std::string& file) {
    if (!g.out_devices.contains(file)) files.output("--out", file);
  };
  output(g.out);
  for (const auto& [port, file] : g.port_out) output(file);
  check_files(files);
}

// Outputs by port want packets that leave by it. Before anything is read.
void check_made_up_ports(const RunFlags& o, const StandardGraph& g) {
  if (!g.adjacencies.empty() || g.routes.empty() || !o.live.control.empty()) return;
  for (const auto& [port, file] : g.port_out) {
    if (port == 0) continue;
    fail(Exit::kUsage, fmt::format("--out {}={}: without --adjacencies every packet leaves by port 0", port, file),
         "give --adjacencies, which have the port of each next hop, or one --out FILE");
  }
}
// Made-up addresses reach nobody in a network.
void check_made_up_neighbours(const RunFlags& o, const StandardGraph& g) {
  if (g.out_devices.empty() || g.routes.empty() || !o.adjacencies.empty()) return;
  fail(Exit::kUsage,
       fmt::format("--out {}: without --adjacencies next hops have no link-layer addresses",
                   g.out_devices.begin()->first),
       "give --adjacencies FILE: NEXTHOP DSTMAC SRCMAC PORT");
}
// The same for the adjacencies that were read.
void warn_of_idle_ports(const StandardGraph& g, const TableSet& tables) {
  if (g.port_out.empty()) return;
  std::set<uint16_t> ports;
  for (const auto& [name, image] : tables.adjacencies) {
    const AdjacencyView view = need(open_adjacencies(*image));
    for (const Adjacency& a : view.adjacencies()) ports.insert(a.port);
  }
  for (const auto& [port, file] : g.port_out) {
    if (!ports.contains(port))
      warn(fmt::format("--out {}={}: no next hop of the routes leaves by port {}", port, file, port));
  }
}

void add_map_option(Command sub, std::vector<std::string>& maps) {
  sub.add_option("--map", maps,
                 "Captures to use for a device port (FromDPDKDevice, ToDPDKDevice, FromDevice, ToDevice), such as "
                 "dpdk:0=pcap:in.pcap,out.pcap; memory: replays them from memory; without OUT packets are only counted")
      ->type_name("PORT=KIND:IN[,OUT]")
      ->take_all();
}

// What the first element asks for whose class names a GPU, where the command line says nothing of it.
void follow_gpu_classes(const std::string& text, const std::string& file, const Defines& defines, const RunFlags& o,
                        DeviceFlags& flags, uint32_t& batch) {
  const auto graph = parse_click(text, file, parse_options(defines));
  if (!graph) return;  // is told when it is loaded
  for (const ClickElement& e : graph->elements) {
    const ElementClass* found = registry().find(e.class_name);
    if (found == nullptr) continue;
    std::vector<Diagnostic> wrong;
    const Arguments arguments = Arguments::parse(found->arguments, e.configuration, e.configuration_origin, &wrong);
    if (!wrong.empty()) continue;
    const GpuPlacement asked = gpu_placement(e.class_name, arguments);
    if (*asked.mode == '\0') continue;
    std::string options;
    if (!o.given("--device") && !o.one_by_one) {
      flags.device = "auto";
      flags.mode = asked.mode;
      flags.transport = asked.transport;
      options = fmt::format(" for a GPU: --device auto --mode {} --transport {}", asked.mode, asked.transport);
    } else {
      options = " for";
    }
    const size_t placed = options.size();
    if (asked.batch != 0 && !o.given("--batch")) {
      batch = asked.batch;
      options += fmt::format(" --batch {}", batch);
    }
    if (asked.flights != 0 && !o.given("--flights")) {
      flags.flights = asked.flights;
      options += fmt::format(" --flights {}", asked.flights);
    }
    if (!o.given("--device") || options.size() != placed) note(fmt::format("{} asks{}", e.class_name, options));
    return;
  }
}

// The inputs of the standard graph, by the options that name them.
NamedInputs inputs_of(const RunFlags& o) {
  NamedInputs named = {{"--acl", o.acl}, {"--qos", o.qos}};
  for (const std::string& in : o.in) {
    if (!device_arguments(in, o.ports)) named.emplace_back("--in", in);
  }
  add_route_inputs(named, "--routes", split_route_files(o.routes));
  for (const std::string& file : split_commas(o.adjacencies)) named.emplace_back("--adjacencies", file);
  return named;
}

// The classes of --qos.
std::shared_ptr<const QosModel> read_qos(std::optional<InputFile>& file) {
  if (!file) return nullptr;
  return std::make_shared<QosModel>(need(parse_qos(need(file->table()), file->name())));
}

// What the command line alone says.
Features features_of(const RunFlags& o) {
  Features f;
  f.add(Feature::kWorkers, o.workers > 1);
  f.add(Feature::kPriorities, o.priorities.on);
  f.add(Feature::kQos, !o.qos.empty());
  f.add(Feature::kControl, !o.live.control.empty());
  f.add(Feature::kHits, !o.live.hits.empty() || o.live.top != 0);
  f.add(Feature::kFollow, o.followed.any());
  f.add(Feature::kLatencyTarget, latency_target_ns(o.latency_target) != 0);
  f.add(Feature::kWait, o.live.wait);
  f.add(Feature::kMaxMemory, o.live.max_memory != 0);
  f.add(Feature::kLimit, o.limit != 0);
  f.add(Feature::kSimulated, o.simulated);
  f.add(Feature::kOneByOne, o.one_by_one);
  return f;
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

// What is wrong with a file that an option names stands there, not in the text that was made of the options.
void name_options(Error& error, const RunFlags& o) {
  for (Diagnostic& d : error.diagnostics) {
    if (d.file != kStandardGraph) continue;
    const std::string& line = d.source_line;
    std::string option, value;
    const auto one_of = [&](const char* name, const std::vector<std::string>& files) {
      option = name;
      for (const std::string& path : files) {
        if (files.size() == 1 || d.message.starts_with(path + ": ") || line.find("(" + path + ")") != std::string::npos)
          value = path;
      }
      if (value.empty()) value = fmt::format("{}", fmt::join(files, ","));
    };
    if (line.starts_with("in") && line.find(" :: From") != std::string::npos) {
      one_of("--in", o.in);
    } else if (line.starts_with("AclTable(")) {
      one_of("--acl", {o.acl});
    } else if (line.starts_with("RouteTable(")) {
      std::vector<std::string> paths;
      for (const std::string& file : split_route_files(o.routes)) paths.push_back(path_of_route_file(file));
      one_of("--routes", paths);
    } else if (line.starts_with("AdjacencyTable(")) {
      one_of("--adjacencies", split_commas(o.adjacencies));
    } else if (line.find("ToDump(") != std::string::npos) {
      option = "--out";
      for (const std::string& out : o.out) {
        const auto parsed = parse_port_file(out);
        const std::string element = parsed.ok() && parsed->port ? fmt::format("out{} :: ", *parsed->port) : "out :: ";
        if (line.find(element) != std::string::npos) value = out;
      }
    }
    if (value.empty()) continue;
    if (const std::string path = value.substr(value.rfind('=') + 1); d.message.starts_with(path + ": "))
      d.message.erase(0, path.size() + 2);
    d.file = option + " " + value;
    d.line = d.column = 0;
    d.source_line.clear();
  }
}

Exit run_graph(const RunFlags& o) {
  auto words = read_words(o.words, o.maps);
  const std::string& file = words.first;
  Defines& defines = words.second;
  defines.files = files_besides_graph(o, file);
  const bool standard = file.empty();
  const bool parts = !o.acl.empty() || !o.routes.empty() || !o.adjacencies.empty() || !o.in.empty() || !o.out.empty() ||
                     !o.icmp.empty();
  if (!standard && parts)
    fail(Exit::kUsage,
         fmt::format("'{}' is a whole configuration; --acl, --routes, --in and the like are for the standard graph",
                     file),
         "write them in the file, or leave the file out");
  if (standard && o.in.empty())
    fail(Exit::kUsage, parts ? "--in is missing" : "neither a configuration nor --in is given",
         "see 'sluice run --help'");
  if (!o.adjacencies.empty() && o.routes.empty()) fail(Exit::kUsage, "--adjacencies needs --routes");
  if (!standard && o.live.repeat)
    fail(Exit::kUsage, "--repeat is for the standard graph",
         fmt::format("write FromMemory(FILE, LIMIT N) in '{}'", file));
  if (!o.icmp.empty() && o.routes.empty())
    fail(Exit::kUsage, "--icmp-errors needs --routes", "the errors are routed like any packet");
  const uint64_t latency_target = latency_target_ns(o.latency_target);
  if (o.priorities.on) {
    // Ends here where they are wrong; how many shares the classes of a file want is known when it has been read.
    (void)priority_options(o.priorities, o.qos.empty() ? kDefaultQosClasses : o.priorities.shares.size());
  }
  Features features = features_of(o);
  features.check();
  std::optional<StandardGraph> standard_graph;
  if (standard) {
    standard_graph = standard_graph_of(o);
    check_standard_files(o, *standard_graph);
    if (!o.print_graph && !o.print_plan) {
      check_made_up_ports(o, *standard_graph);
      check_made_up_neighbours(o, *standard_graph);
      if (o.live.repeat && !standard_graph->in_devices.empty())
        fail(Exit::kUsage, "--repeat replays captures: --in has a live port", "leave --repeat out");
    }
  } else {
    check_files(defines.files);
  }
  DeviceFlags flags = o.device;
  NamedInputs named = inputs_of(o);
  if (!standard) named.emplace_back("the configuration", file);
  check_read_once(named);
  std::optional<InputFile> qos_file;
  if (!o.qos.empty()) {
    if (const auto id = read_once_id(o.qos)) defines.read_once.emplace(*id, "--qos");
    qos_file = need(InputFile::open(o.qos), Exit::kIo);
  }
  std::string given;
  if (!standard) given = read_configuration(file, defines);
  uint32_t batch = o.batch;
  if (!standard) follow_gpu_classes(given, file, defines, o, flags, batch);
  const OpenDevices devices = open_devices(flags);
  const std::string& device = devices.label;
  if (!o.algorithm.empty()) check_acl_algorithm(o.algorithm);
  TableOverrides overrides;
  overrides.acl_algorithm = o.algorithm;
  overrides.on_device = acl_target(devices) == AclTarget::kGpu;
  if (!o.route_algorithm.empty()) {
    const LpmNames names = check_lpm_algorithms(o.route_algorithm);
    overrides.route_algorithm = names.algorithm4;
    overrides.route_algorithm6 = names.algorithm6;
  }
  std::string text;
  if (standard) {
    auto made = standard_graph_text(*standard_graph);
    if (!made.ok()) fail(Exit::kUsage, made.error());
    text = std::move(*made);
  } else {
    text = std::move(given);
  }
  // --print-graph of the standard graph is its text: that is what a user wants to start from.
  auto show = [](const char* name, const std::string& what) {
    if (json_output()) {
      print_json(Json{{name, what}});
    } else {
      print_out(what);
    }
  };
  if (o.print_graph && standard) {
    show("graph", text);
    return Exit::kOk;
  }
  const std::string title = standard ? kStandardGraph : file == "-" ? "standard input" : file;
  const Scheduled scheduled = o.one_by_one ? Scheduled::kAlways : Scheduled::kAllowed;
  // From here on a graph that is asked to be is one that has to be.
  const auto schedule = [&o](Pipeline& p) {
    if (o.one_by_one && p.router.scheduled.empty()) p.router.scheduled = "--packet-scheduler is given";
  };
  if (o.print_graph || o.print_plan) {
    const auto parsed = parse_pipeline(std::move(text), title, defines, scheduled);
    schedule(*parsed);
    if (o.print_graph) {
      show("graph", print_click(parsed->graph));
    } else if (!parsed->router.scheduled.empty()) {
      show("plan", describe_schedule(parsed->router));
    } else {
      show("plan", describe(parsed->plan, parsed->router) + describe_offloads(*parsed, devices, o.live.counts()));
    }
    return Exit::kOk;
  }
  // Whoever has a GPU has its driver, which opens what it likes; a graph's own files are known to its elements, and to
  // those that a change brings.
  std::vector<std::string> outputs = {o.live.hits, o.followed.verdicts, o.followed.dropped};
  std::vector<std::string> captures;
  for (const std::string& in : o.in) {
    if (!device_arguments(in, o.ports)) captures.push_back(in);
  }
  for (const std::string& out : o.out) {
    const auto port = parse_port_file(out);
    const std::string file = port.ok() && port->port ? port->file : out;
    if (!device_arguments(file, o.ports)) outputs.push_back(file);
  }
  check_outputs(outputs);
  // Live ports need calls that are refused there.
  const bool live_ports = has_live_ports(text, title, defines);
  const bool confined = !live_ports && (device == "cpu" || device.starts_with("emu"));
  if (confined) refuse_calls();
  const std::shared_ptr<const QosModel> qos = read_qos(qos_file);
  LiveRun live(o.live);
  auto pipeline = load_pipeline(std::move(text), title, defines, overrides, true, o.live.counts(), scheduled);
  schedule(*pipeline);
  if (standard) warn_of_idle_ports(*standard_graph, pipeline->tables);
  features.add(Feature::kDevice, device != "cpu");
  features.add(Feature::kMarks, qos != nullptr && !qos->marks.empty());
  features.add(pipeline->router.scheduled.empty() ? Feature::kNoQueues : Feature::kQueues);
  features.check(pipeline->router.scheduled);
  // Marks have to stay with the packets until they leave.
  LoadOptions loading;
  loading.by_packets = pipeline->plan.by_packets;
  loading.keep_models = o.live.counts();
  loading.overrides = overrides;
  if (qos != nullptr && !qos->marks.empty()) {
    loading.at_sinks = kFieldMark;
    pipeline->plan = loading.by_packets ? plan_by_packets(pipeline->router, kFieldMark)
                                        : need(make_plan(pipeline->router, kFieldMark));
  }
  const auto load = [&](const std::string& text, const std::string& name, const std::string& folder) {
    LoadOptions next = loading;
    next.parse = parse_options(defines, folder);
    return load_generation(text, name, registry(), next);
  };
  RunOptions options;
  options.files = defines.files;
  options.simulated = o.simulated;
  options.load = [&](std::string_view text) { return load(std::string(text), "hotconfig", {}); };
  options.workers = o.workers;
  options.inputs = &pipeline->inputs;
  options.batch = batch;
  options.latency_target_ns = latency_target;
  options.device = devices.options;
  options.qos = qos;
  if (o.limit != 0) options.max_packets = o.limit;
  options.stop_is_end = o.live.wait || o.live.repeat || live_ports;
  print_lines(options);
  // Tables are built: all that is left to read are packets.
  if (standard && confined && o.live.control.empty()) refuse_files(captures, outputs);
  if (o.priorities.on) options.priorities = priorities_of(o, qos.get());
  live.prepare(options);
  prepare_ports(o.ports, options);
  Verdicts verdicts(o.followed, pipeline->router);
  verdicts.prepare(options);
  std::optional<Error> damage;
  const PipelineRun done = run_pipeline(*pipeline, options, live.hooks(*pipeline, device, load), &damage);
  check_printed();
  const Ending ending = done.report.partial ? Ending::kPartial : Ending::kWhole;
  std::vector<std::string> places = {live.write_hits(ending)};
  verdicts.end(ending, places);
  const bool device_failed = report_failures(done.report) && !devices.automatic;
  note_host_segments(*pipeline, devices, done.report, o.live.counts());

  std::string top_text;
  for (const Json& rule : live.top()) {
    top_text +=
        fmt::format("{:>10}  rule {} ({}) at {}\n", with_commas(rule["packets"].get<uint64_t>()),
                    rule["rule"].get<uint32_t>(), rule["action"].get<std::string>(), rule["at"].get<std::string>());
  }
  std::vector<std::string> left = outputs_of(done.report, &done.router());
  left.insert(left.end(), places.begin(), places.end());
  if (json_output()) {
    Json json = to_json(done.report, done.router(), pipeline->table_report, device);
    if (o.live.top != 0) json["top_rules"] = live.top();
    if (o.priorities.on) json["classes"] = classes_json(done.report);
    json["interrupted"] = done.interrupted;
    for (const LivePortReport& port : done.report.live_ports) json["interfaces"].push_back(to_json(port));
    if (!done.report.devices.empty()) {
      json["offload"] = {{"offloaded", done.report.offload.offloaded},
                         {"on_host", done.report.offload.on_host},
                         {"redone", done.report.offload.redone},
                         {"rescued", done.report.offload.rescued},
                         {"set_aside_bytes", done.report.set_aside_bytes}};
      json["devices"] = Json::array();
      for (const DeviceReport& d : done.report.devices) json["devices"].push_back(to_json(d));
    }
    print_json(json);
  } else {
    std::string shown =
        summary(done.report, device) + port_lines(done.report) + class_lines(done.report) + device_lines(done.report);
    if (!done.report.qos.empty()) shown += qos_text(to_json(done.report.qos));
    if (!top_text.empty()) shown += "rules\n" + top_text;
    outputs.insert(outputs.end(), left.begin(), left.end());
    print_report(shown, outputs);
  }
  if (device_failed) {
    const auto failed = std::ranges::find_if(done.report.devices, [](const auto& d) { return !d.failure.empty(); });
    fail(Exit::kUnavailable, fmt::format("device {}:{}: {}", failed->info.kind, failed->info.ordinal, failed->failure),
         "all packets were processed: the CPU took over");
  }
  return done.report.partial ? end_partial(left, damage) : Exit::kOk;
}

Exit run(const RunFlags& o) {
  try {
    return run_graph(o);
  } catch (Failure& failure) {
    name_options(failure.error, o);
    throw;
  }
}

// --- check ---

struct CheckOptions {
  std::vector<std::string> words, maps;
  std::string rules, format = "auto", routes, policy;
  bool shadowed = false;
};

Exit check(const CheckOptions& o) {
  const int given = (o.words.empty() ? 0 : 1) + (o.rules.empty() ? 0 : 1) + (o.routes.empty() ? 0 : 1);
  if (given == 0) fail(Exit::kUsage, "nothing to check", "give a .click file, --rules FILE or --routes FILE");
  if (o.shadowed && o.rules.empty()) fail(Exit::kUsage, "--shadowed needs --rules");
  if (!o.policy.empty() && !o.shadowed) fail(Exit::kUsage, "--default needs --shadowed");
  auto [file, defines] = read_words(o.words, o.maps);
  const std::vector<std::string> route_files = split_route_files(o.routes);
  NamedInputs named = {{"--rules", o.rules}};
  add_route_inputs(named, "--routes", route_files);
  InputSet inputs = open_inputs(named);
  named.emplace_back("the configuration", file);
  check_read_once(named);
  for (const auto& [option, path] : named) {
    if (const auto id = read_once_id(path)) defines.read_once.emplace(*id, option);
  }
  Json json{{"ok", true}};
  std::string text;
  if (!o.rules.empty()) {
    const LoadedAcl acl = load_acl(inputs, o.rules, o.format, "");
    json["rules"] = acl.count;
    text += fmt::format("{}: {} ({}), no errors\n", o.rules, counted(acl.count, "rule"), acl.format);
    if (o.shadowed) text += report_shadowed(acl, o.policy, json);
  }
  if (!o.routes.empty()) {
    const LoadedRoutes routes = load_routes(inputs, route_files, "");
    json["routes4"] = routes.rib.routes4().size();
    json["routes6"] = routes.rib.routes6().size();
    json["warnings"] = routes.report.warnings.size();
    text += fmt::format("{}: {} and {}, no errors\n", o.routes, counted(routes.rib.routes4().size(), "IPv4 route"),
                        counted(routes.rib.routes6().size(), "IPv6 route"));
  }
  if (!o.words.empty()) {
    if (file.empty()) fail(Exit::kUsage, "no configuration is given");
    std::string configuration = read_configuration(file, defines);
    const auto pipeline = load_pipeline(std::move(configuration), file == "-" ? "standard input" : file, defines, {},
                                        false, false, Scheduled::kAllowed);
    json["elements"] = pipeline->router.elements.size();
    json["warnings"] = pipeline->router.warnings.size();
    json["tables"] = Json::array();
    for (const TableLoad& load : pipeline->table_report.loads) json["tables"].push_back(to_json(load));
    text += fmt::format("{}: {}, {}, no errors\n", file, counted(pipeline->router.elements.size(), "element"),
                        counted(pipeline->table_report.loads.size(), "table"));
  }
  if (json_output()) {
    print_json(json);
  } else {
    print_out(text);
  }
  return Exit::kOk;
}

}  // namespace

namespace {

// What `run` and `show plan` take.
void add_run_options(Command sub, RunFlags& o) {
  sub.add_option("configuration", o.words, "A Click file ('-': stdin) and NAME=VALUE for its variables")
      ->type_name("FILE [NAME=VALUE...]");
  add_map_option(sub, o.maps);
  sub.add_option("--acl", o.acl, "Access list: rules of any format, or an image")->type_name("FILE");
  add_format_option(sub, o.format, "--acl");
  sub.add_option("--routes", o.routes, "Route files (text or MRT), comma-separated, or an image")
      ->type_name("FILE[,FILE]");
  sub.add_option("--adjacencies", o.adjacencies, "Next hop -> MAC addresses, VLAN, port (default: made-up ones)")
      ->type_name("FILE");
  sub.add_option("--qos", o.qos,
                 "Egress QoS, driven by packet timestamps; for the grammar see docs/reference/formats.md")
      ->check([](const std::string& file) { return std::string(file.empty() ? "an empty name" : ""); })
      ->type_name("FILE");
  sub.add_option("--in", o.in,
                 "Capture to read ('-': stdin), interface, name of --port, or METHOD:DEVICE to receive from; may be "
                 "repeated")
      ->type_name("PCAP|IF")
      ->take_all();
  sub.add_option(
         "--out", o.out,
         "Capture to write, or live port to send by, as for --in; PORT=... for one output port, may be repeated "
         "(default: packets are only counted)")
      ->type_name("[PORT=]PCAP|IF")
      ->take_all();
  sub.add_option("--icmp-errors", o.icmp,
                 "Answer expired, unroutable and too big packets with ICMP errors from these router addresses")
      ->type_name("SRC4[,SRC6]");
  sub.add_flag("--icmp-denied", o.icmp_denied, "With --icmp-errors: also answer packets that the access list denies");
  sub.add_option("--default", o.policy, "Action for packets that no rule matches: deny or permit")
      ->check(OneOf{{"deny", "permit"}})
      ->type_name("ACTION")
      ->capture_default_str();
  sub.add_option("--algorithm", o.algorithm, "ACL algorithm for all access lists")->type_name("NAME");
  sub.add_option("--route-algorithm", o.route_algorithm, "Route algorithms for all route tables")->type_name("A4[,A6]");
  add_workers_option(sub, o.workers);
  sub.add_option("--batch", o.batch, "Packets per batch, 1 to 8192")
      ->check(Range(1u, Batch::kMaxPackets))
      ->type_name("N")
      ->capture_default_str();
  add_latency_target_option(sub, o.latency_target);
  sub.add_option("--limit", o.limit, "Stop after about this many packets")->type_name("N");
  add_device_options(sub, o.device, true);
  o.given = [sub](const char* option) { return sub.count(option) != 0; };
}

// The sections of the help, in their order. An option that stands in none is found by a test.
void group_run_options(Command sub) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> groups = {
      {"Input and output", {"--in", "--out", "--map", "--verdicts", "--dropped", "--limit", "--repeat"}},
      {"Tables",
       {"--acl", "--format", "--default", "--routes", "--adjacencies", "--algorithm", "--route-algorithm",
        "--icmp-errors", "--icmp-denied"}},
      {"Workers and batches", {"--workers", "--batch", "--latency-target", "--packet-scheduler", "--simtime"}},
      {"Devices",
       {"--device", "--mode", "--transport", "--flights", "--ring-memory", "--kernel-times", "--records", "--threading",
        "--enter-after", "--leave-after", "--watchdog"}},
      {"Live ports", {"--method", "--port", "--queues", "--promiscuous", "--poll", "--cores", "--ready-file"}},
      {"Classes of service", {"--qos", "--priorities", "--shares", "--chunk", "--chunk-timeout", "--drop-when-full"}},
      {"Running process", {"--control", "--wait", "--max-memory"}},
      {"Report", {"--output", "--quiet", "--hits", "--top-rules", "--print-graph", "--print-plan"}},
      {"Other", {"--help", "--user"}}};
  for (const auto& [group, names] : groups) {
    for (const char* name : names) {
      if (Option option = sub.find(name)) option.group(group);
    }
  }
}

}  // namespace

void add_run(Command root) {
  auto o = std::make_shared<RunFlags>();
  Command sub = add_subcommand(
      root, "run", "Packets",
      "Runs packets through a graph: a Click file, or the standard graph\nin -> header checks -> access list -> routes "
      "-> TTL -> rewrite -> out,\nwhose parts are present if their tables are given. With --acl and without --routes "
      "only the access list\napplies, and frames leave unchanged; a frame that is not IP, or malformed, matches no "
      "rule and gets --default.\nOutputs are written only if the run succeeds.",
      "sluice run --acl edge.acl --routes rib.txt --in a.pcap --out b.pcap\n"
      "sluice run --routes rib.txt --adjacencies adj.txt --in a.pcap --out 1=lan.pcap --out 2=wan.pcap "
      "--out rest.pcap\n"
      "sluice run --acl edge.acl --routes rib.txt --in a.pcap --print-graph > edge.click\n"
      "sluice run --acl edge.acl --in a.pcap --out b.pcap --verdicts v.txt --dropped d.pcapng\n"
      "sluice run edge.click IN=b.pcap --workers 2 -o json\n"
      "sluice run --acl edge.acl --in a.pcap --repeat --control /tmp/sluice.sock",
      [o] { return run(*o); });
  add_run_options(*sub, *o);
  add_live_options(*sub, o->live);
  add_verdict_options(*sub, o->followed);
  add_priority_options(*sub, o->priorities);
  add_port_options(*sub, o->ports);
  sub->add_flag("--print-graph", o->print_graph, "Print the graph as Click text and stop");
  sub->add_flag("--simtime", o->simulated,
                "For a graph with queues, timers or scripts: simulated time, which jumps to the next event");
  sub->add_flag("--packet-scheduler", o->one_by_one,
                "Run any graph in the packet scheduler: one packet at a time on the CPU, so that 'sluice graph' can "
                "call its handlers, and replace it by one with queues");
  sub->add_flag("--print-plan", o->print_plan, "Print how the graph is split into programs and stop");
  group_run_options(*sub);
}

void add_show(Command root) {
  Command show = add_subcommand(root, "show", "Packets",
                                "Shows how a graph would run, without running it (plan), and the state of a process "
                                "started with\n'sluice run --control' (all others).",
                                "sluice show plan --acl edge.acl --routes rib.txt --in a.pcap --device emu\n"
                                "sluice show rules --hits --socket /tmp/sluice.sock",
                                nullptr);
  show->require_subcommand(1);
  auto o = std::make_shared<RunFlags>();
  o->print_plan = true;
  Command plan = add_subcommand(
      *show, "plan", "Subcommands",
      "How the graph is split into programs, what runs on a device and what is sent to it: the same as run "
      "--print-plan, with\nthe options of run.",
      "sluice show plan edge.click --device cuda --mode persistent\nsluice show plan --routes rib.txt --in a.pcap -o "
      "json",
      [o] { return run(*o); });
  add_run_options(*plan, *o);
  group_run_options(*plan);
  add_live_shows(*show);
}

void add_check(Command root) {
  auto o = std::make_shared<CheckOptions>();
  Command sub = add_subcommand(
      root, "check", "Packets",
      "Reads a configuration, rules or routes and reports every error with its location, without running anything.",
      "sluice check edge.click\nsluice check --rules edge.acl --shadowed\nsluice check --routes rib4.txt,rib6.txt -o "
      "json",
      [o] { return check(*o); });
  sub->add_option("configuration", o->words, "A Click file ('-': stdin) and NAME=VALUE for its variables")
      ->type_name("FILE [NAME=VALUE...]");
  add_map_option(*sub, o->maps);
  sub->add_option("--rules", o->rules, "Rule file or image")->type_name("FILE");
  add_format_option(*sub, o->format);
  sub->add_flag("--shadowed", o->shadowed,
                "Also report unneeded rules of --rules: those that no packet reaches, and those whose removal changes "
                "no verdict");
  sub->add_option("--default", o->policy,
                  "With --shadowed: action for packets that no rule matches: deny or permit (default: unknown)")
      ->check(OneOf{{"deny", "permit"}})
      ->type_name("ACTION");
  sub->add_option("--routes", o->routes, "Route files or an image")->type_name("FILE[,FILE]");
}

}  // namespace sluice::app
