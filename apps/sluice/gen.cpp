// sluice gen: rules, routes, traces and traffic from a seed.
// host only
#include "app.h"
#include "control/json.h"
#include "formats/native_rules.h"
#include "generate/graphs.h"
#include "generate/routes.h"
#include "generate/rules.h"
#include "generate/rules_like.h"
#include "generate/traffic.h"
#include "inputs.h"
#include "ports/pcap/capture_writer.h"

#include <filesystem>

namespace sluice::app {

// The headers that each rule matches, for drawing traffic from a rule file: host-side twin of AclMatchRule.
std::vector<FlowRegion> regions_of(const RuleSet& set) {
  std::vector<FlowRegion> regions;
  regions.reserve(set.rules.size());
  for (const AclRule& rule : set.rules) {
    FlowRegion r;
    r.src = rule.src;
    r.dst = rule.dst;
    if (rule.family != 0) r.src.address.family = r.dst.address.family = rule.family;
    r.src_port = {rule.src_port_low, rule.src_port_high};
    r.dst_port = {rule.dst_port_low, rule.dst_port_high};
    r.protocol = rule.protocol;
    r.protocol_mask = rule.protocol_mask;
    r.flags = rule.flags;
    r.flags_mask = rule.flags_mask;
    regions.push_back(r);
  }
  return regions;
}

// "acl", "fw" or "ipc".
RuleShape shape_of(const std::string& name) {
  return name == "fw" ? RuleShape::kFw : name == "ipc" ? RuleShape::kIpc : RuleShape::kAcl;
}

namespace {

struct GenFlags {
  std::string out = "-";
  uint64_t seed = 1;
  // rules, trace
  std::string shape = "acl", language = "auto";
  uint32_t count = 10'000;
  double ipv6 = 0;
  bool default_rule = false;
  std::string rules, format = "auto";
  uint64_t packets = 100'000;
  // routes
  uint32_t ipv4_count = 900'000, ipv6_count = 160'000, next_hops = 256, like_count = 1'000'000;
  std::string like;
  // traffic
  uint32_t flows = 10'000, size = 0;  // size 0: not given
  double zipf = 1.0, vlan = 0, malformed = 0;
  std::string mix, routes;  // mix: empty: fixed where a size is given, else imix
  std::optional<std::string> dscp;
};

void write_text(const std::string& path, const std::string& text, std::string_view what) {
  stop_if_interrupted();
  write_file(path, text);
  if (path == "-") return;
  if (json_output()) {
    print_json({{"file", path}, {"bytes", text.size()}, {"what", what}});
  } else {
    note(fmt::format("{}: {}, {}", path, what, human_bytes(static_cast<double>(text.size()))));
  }
}

// Before anything is read: what is read is not written. `rules` is --rules, or --like of rules.
void check_gen_files(const GenFlags& o, const char* rules_option, const std::string& rules, const char* routes_option,
                     const std::string& routes) {
  RunFiles files = command_files();
  files.input(rules_option, rules);
  for (const std::string& file : split_route_files(routes)) files.input(routes_option, path_of_route_file(file));
  output_file(files, o.out);
  check_files(files);
}

// The same with what the rules include.
void check_included(const GenFlags& o, const RuleSet& set) {
  RunFiles files = command_files();
  for (const std::string& included : set.files) files.input("the rules", included);
  output_file(files, o.out);
  check_files(files);
}

Exit gen_rules(const GenFlags& o) {
  check_gen_files(o, "--like", o.like, "", "");
  if (!o.like.empty()) {
    std::string format;
    InputSet inputs = open_inputs({{"--like", o.like}});
    const RuleSet set = read_rules(inputs, o.like, o.format, &format);
    check_included(o, set);
    const RuleSet made = need(generate_rules_like(set, {o.count, o.seed}));
    const bool classbench = o.language == "classbench" || (o.language == "auto" && format == "classbench");
    write_text(o.out, classbench ? need(to_classbench(regions_of(made)), Exit::kUsage) : to_native(made),
               fmt::format("{} like {}, seed {}", counted(o.count, "rule"), o.like, o.seed));
    return Exit::kOk;
  }
  RulesOptions r;
  r.shape = shape_of(o.shape);
  r.count = o.count;
  r.seed = o.seed;
  r.ipv6_fraction = o.ipv6;
  r.default_rule = o.default_rule;
  std::string text;
  if (o.language == "auto") {
    text = need(generate_rules(r), Exit::kUsage);
  } else {
    const auto regions = need(generate_rule_regions(r), Exit::kUsage);
    text = need(o.language == "classbench" ? to_classbench(regions) : to_native(regions, o.seed), Exit::kUsage);
  }
  write_text(o.out, text, fmt::format("{} of the {} kind, seed {}", counted(o.count, "rule"), o.shape, o.seed));
  return Exit::kOk;
}

Exit gen_routes(const GenFlags& o) {
  check_gen_files(o, "", "", "--like", o.like);
  if (!o.like.empty()) {
    const std::vector<std::string> files = split_route_files(o.like);
    NamedInputs named;
    add_route_inputs(named, "--like", files);
    InputSet inputs = open_inputs(named);
    const Rib rib = read_routes(inputs, files, nullptr);
    write_text(o.out, need(generate_routes_like(rib, {o.like_count, o.seed}), Exit::kUsage),
               fmt::format("{} like {}, seed {}", counted(o.like_count, "route"), o.like, o.seed));
    return Exit::kOk;
  }
  const RoutesOptions r{
      .ipv4_count = o.ipv4_count, .ipv6_count = o.ipv6_count, .next_hops = o.next_hops, .seed = o.seed};
  write_text(o.out, need(generate_routes(r), Exit::kUsage),
             fmt::format("{} and {}, seed {}", counted(o.ipv4_count, "IPv4 route"), counted(o.ipv6_count, "IPv6 route"),
                         o.seed));
  return Exit::kOk;
}

Exit gen_trace(const GenFlags& o) {
  check_gen_files(o, "--rules", o.rules, "", "");
  InputSet inputs = open_inputs({{"--rules", o.rules}});
  const RuleSet set = read_rules(inputs, o.rules, o.format, nullptr);
  check_included(o, set);
  write_text(o.out, need(generate_trace(regions_of(set), {o.packets, o.seed})),
             fmt::format("{}, seed {}", counted(o.packets, "packet"), o.seed));
  return Exit::kOk;
}

Exit gen_traffic(const GenFlags& o) {
  check_gen_files(o, "--rules", o.rules, "--routes", o.routes);
  TrafficOptions t;
  t.packets = o.packets;
  t.flows = o.flows;
  t.zipf = o.zipf;
  if (o.size != 0 && !o.mix.empty() && o.mix != "fixed")
    fail(Exit::kUsage, fmt::format("--size: the mix '{}' has its own sizes", o.mix), "leave --size or --mix out");
  t.size_mix = o.mix.empty() && o.size == 0 ? SizeMix::kImix
               : o.mix == "imix"            ? SizeMix::kImix
               : o.mix == "imix-stockholm"  ? SizeMix::kImixStockholm
                                            : SizeMix::kFixed;
  t.fixed_bytes = o.size == 0 ? 64 : o.size;
  t.ipv6_fraction = o.ipv6;
  t.vlan_fraction = o.vlan;
  if (o.dscp) t.dscps = dscp_parts("--dscp", *o.dscp);
  t.malformed_fraction = o.malformed;
  t.seed = o.seed;
  const std::vector<std::string> route_files = split_route_files(o.routes);
  NamedInputs named = {{"--rules", o.rules}};
  add_route_inputs(named, "--routes", route_files);
  InputSet inputs = open_inputs(named);
  if (!o.rules.empty()) {
    const RuleSet set = read_rules(inputs, o.rules, o.format, nullptr);
    check_included(o, set);
    t.regions = regions_of(set);
  }
  if (!o.routes.empty()) {
    const Rib rib = read_routes(inputs, route_files, nullptr);
    for (const Route4& r : rib.routes4()) t.destinations.push_back({{0, r.address, 4}, r.length});
    for (const Route6& r : rib.routes6()) t.destinations.push_back({{r.hi, r.lo, 6}, r.length});
  }
  need(TrafficGenerator::create(t), Exit::kUsage);  // says what is out of range before a file is begun
  const EndsInOrder in_order;
  auto writer = need(CaptureWriter::create(o.out), Exit::kIo);
  t.stop = &interrupted();
  const TrafficStats stats = need(generate_traffic(t, writer), Exit::kIo);
  const bool partial = stats.packets < o.packets;
  const Ending ending = partial ? Ending::kPartial : Ending::kWhole;
  const std::string place = writer.path_of(ending);
  need(writer.commit(ending), Exit::kIo);
  const auto end = [&] { return partial ? end_partial({place}, std::nullopt) : Exit::kOk; };
  if (o.out == "-") return end();
  uint64_t malformed = 0;
  for (uint64_t n : stats.malformed) malformed += n;
  if (json_output()) {
    print_json({{"file", place},
                {"packets", stats.packets},
                {"bytes", stats.bytes},
                {"ipv4", stats.ipv4},
                {"ipv6", stats.ipv6},
                {"vlan", stats.vlan},
                {"tcp", stats.tcp},
                {"udp", stats.udp},
                {"icmp", stats.icmp},
                {"other", stats.other},
                {"malformed", malformed},
                {"seed", o.seed}});
  } else {
    note(fmt::format("{}: {}, {}, {} IPv4, {} IPv6, {} malformed, seed {}", place, counted(stats.packets, "packet"),
                     human_bytes(static_cast<double>(stats.bytes)), with_commas(stats.ipv4), with_commas(stats.ipv6),
                     with_commas(malformed), o.seed));
  }
  return end();
}

// Each graph in a folder of its own, named by its seed.
Exit gen_graphs(const GenFlags& o) {
  for (uint64_t n = 0; n < o.count; ++n) {
    stop_if_interrupted();
    const GeneratedGraph graph = generate_graph(o.seed + n);
    const std::string folder = fmt::format("{}/{}", o.out, graph.seed);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail(Exit::kIo, fmt::format("{}: cannot create this directory: {}", folder, error.message()));
    need(write_graph_inputs(graph, folder), Exit::kIo);
    if (!graph.qos.empty()) write_file(folder + "/classes.qos", graph.qos);
    write_file(folder + "/graph.click", click_text(graph, folder, folder, fmt::format("g{}_", graph.seed)));
  }
  const std::string what = fmt::format("{}, seeds {} to {}", counted(o.count, "graph"), o.seed, o.seed + o.count - 1);
  if (json_output()) {
    print_json({{"folder", o.out}, {"graphs", o.count}, {"seed", o.seed}});
  } else {
    note(fmt::format("{}: {}", o.out, what));
  }
  return Exit::kOk;
}

void add_common(Command sub, GenFlags& o) {
  sub.add_option("--out", "FILE", o.out, "Output file ('-': stdout), created when complete")->capture_default_str();
  sub.add_option("--seed", "N", o.seed, "The same seed gives the same bytes, on every machine")->capture_default_str();
}

void add_gen_rules(Command gen) {
  auto o = std::make_shared<GenFlags>();
  Command rules = add_subcommand(
      gen, "rules", "Subcommands", "A rule set with the shape of access lists, firewalls or IP chains",
      "sluice gen rules --shape acl --count 10000 > acl.rules\nsluice gen rules --count 1000 --ipv6 0.3 "
      "--language native --out mixed.acl\nsluice gen rules --like edge.acl --count 500000 --out large.acl",
      [o] { return gen_rules(*o); });
  auto shape = rules->add_word("--shape", "SHAPE", o->shape, "acl, fw or ipc", {"acl", "fw", "ipc"});
  rules->add_number("--count", "N", o->count, "Rules, 10 to 1000000", Range(10u, 1'000'000u));
  auto ipv6 = rules->add_option("--ipv6", "FRACTION", o->ipv6, "Fraction of the rules that are IPv6, 0 to 1")
                  ->check(Range(0.0, 1.0));
  auto last = rules->add_flag("--default-rule", o->default_rule, "Add a last rule that matches everything");
  auto rules_like =
      rules
          ->add_option("--like", o->like,
                       "Match the statistics of this rule file: a sample of it, or copies at other addresses")
          ->excludes(shape, ipv6, last)
          ->type_name("FILE");
  add_format_option(*rules, o->format, "the --like file")->needs(rules_like);
  rules
      ->add_option("--language", "LANGUAGE", o->language,
                   "auto (ClassBench; native with IPv6, or if --like is not a ClassBench file), classbench or native")
      ->check(OneOf{{"auto", "classbench", "native"}});
  add_common(*rules, *o);
}

void add_gen_routes(Command gen) {
  auto o = std::make_shared<GenFlags>();
  Command routes =
      add_subcommand(gen, "routes", "Subcommands", "A routing table with the shape of a full Internet table",
                     "sluice gen routes --out rib.txt\nsluice gen routes --ipv4 10000 --ipv6 0 --next-hops 16\n"
                     "sluice gen routes --count 4000000 --like rib.mrt.bz2 --out large.txt",
                     [o] { return gen_routes(*o); });
  routes->add_number("--ipv4", "N", o->ipv4_count, "IPv4 routes", Range(0u, 2'000'000u));
  routes->add_number("--ipv6", "N", o->ipv6_count, "IPv6 routes", Range(0u, 2'000'000u));
  routes->add_number("--next-hops", "N", o->next_hops, "Next hops, written 1..N", Range(1u, 65'535u));
  auto like = routes->add_option("--like", "FILE[,FILE]", o->like,
                                 "Use the prefixes of these route files, sampled or split to --count");
  routes->add_option("--count", o->like_count, "With --like: routes of both families together")
      ->check(Range(0u, 4'000'000u))
      ->needs(like)
      ->type_name("N")
      ->capture_default_str();
  add_common(*routes, *o);
}

void add_gen_trace(Command gen) {
  auto o = std::make_shared<GenFlags>();
  Command trace = add_subcommand(
      gen, "trace", "Subcommands", "A ClassBench trace whose packets are drawn from a rule file",
      "sluice gen trace --rules acl.rules --packets 100000 --out acl.trace", [o] { return gen_trace(*o); });
  trace->add_option("--rules", "FILE", o->rules, "Rule file, IPv4")->required();
  add_format_option(*trace, o->format);
  trace->add_option("--packets", "N", o->packets, "Number of packets")->capture_default_str();
  add_common(*trace, *o);
}

void add_gen_traffic(Command gen) {
  auto o = std::make_shared<GenFlags>();
  Command traffic =
      add_subcommand(gen, "traffic", "Subcommands", "A capture of five-tuple flows with Zipf popularity",
                     "sluice gen traffic --packets 1000000 --flows 50000 --out t.pcap\nsluice gen traffic --rules "
                     "fw.acl --routes rib.txt --malformed 0.01 --out t.pcap.gz\nsluice gen traffic --dscp "
                     "ef=5,af41=15,default=80 --out classes.pcap",
                     [o] { return gen_traffic(*o); });
  traffic->add_option("--packets", "N", o->packets, "Number of packets")->capture_default_str();
  traffic->add_number("--flows", "N", o->flows, "Five-tuples", Range(1u, 16'777'216u));
  traffic->add_number("--zipf", "Z", o->zipf, "Popularity of the k-th flow is k^-Z; 0 is uniform", Range(0.0, 8.0));
  traffic
      ->add_option("--mix", "MIX", o->mix,
                   "imix (7:4:1 of 64, 570, 1518; the default), imix-stockholm (IP 40, 576, 1500) or fixed")
      ->check(OneOf{{"imix", "imix-stockholm", "fixed"}});
  traffic->add_option("--size", "BYTES", o->size, "Frame size with FCS of every packet (default of --mix fixed: 64)")
      ->check(Range(64u, 9618u));
  traffic->add_option("--ipv6", "FRACTION", o->ipv6, "Fraction of the flows that are IPv6")->check(Range(0.0, 1.0));
  traffic->add_option("--vlan", "FRACTION", o->vlan, "Fraction of the flows with an 802.1Q tag")
      ->check(Range(0.0, 1.0));
  traffic->add_option(
      "--dscp", "CLASS=PART,...", o->dscp,
      "Classes of the flows and their parts, in any scale: each flow keeps one DSCP (default: all flows 0)");
  traffic
      ->add_option("--malformed", "FRACTION", o->malformed,
                   "Fraction of the packets that are malformed, in one of ten ways")
      ->check(Range(0.0, 1.0));
  traffic->add_option("--rules", "FILE", o->rules, "Draw flows from these rules");
  add_format_option(*traffic, o->format);
  traffic->add_option("--routes", "FILE[,FILE]", o->routes, "Draw destinations from these routes");
  add_common(*traffic, *o);
}

void add_gen_graphs(Command gen) {
  auto o = std::make_shared<GenFlags>();
  o->count = 1;
  o->out = "graphs";
  Command graphs = add_subcommand(
      gen, "graphs", "Subcommands", "Random graphs with branches that meet again, each with its tables and packets",
      "sluice gen graphs --seed 7 --out g\nsluice run g/7/graph.click --device emu --records frame",
      [o] { return gen_graphs(*o); });
  graphs->add_number("--count", "N", o->count,
                     "Graphs, with consecutive seeds; some cannot run, as `sluice check` says", Range(1u, 10'000u));
  graphs
      ->add_option("--out", "FOLDER", o->out,
                   "Folder: a folder named by the seed for each graph, with graph.click, its captures and tables, and "
                   "classes.qos where it has classes")
      ->capture_default_str();
  graphs->add_option("--seed", "N", o->seed, "Of the first; the same seed gives the same graph, on every machine")
      ->capture_default_str();
}

}  // namespace

void add_gen(Command root) {
  Command gen = add_subcommand(
      root, "gen", "Tools",
      "Generates rules, routes, traces and traffic. They are the same on every machine for the same seed.",
      "sluice gen rules --shape fw --count 10000 --seed 7 --out fw.acl\nsluice gen traffic --rules fw.acl --packets "
      "1000000 --out t.pcap",
      nullptr);
  gen->require_subcommand(1);
  add_gen_rules(*gen);
  add_gen_routes(*gen);
  add_gen_trace(*gen);
  add_gen_traffic(*gen);
  add_gen_graphs(*gen);
}

}  // namespace sluice::app
