// sluice compile: tables to image files.  sluice tables: what is in them.
// host only
#include <cstdio>

#include "app.h"
#include "control/json.h"
#include "elements/tables.h"
#include "formats/adjacency_text.h"
#include "formats/rule_files.h"
#include "inputs.h"
#include "tables/adjacency/adjacency_model.h"

namespace sluice::app {
namespace {

// --- compile ---

struct CompileOptions {
  std::string acl, routes, adjacencies, out, algorithm, format = "auto";
  ListFiles lists;
};

// The one list that is to be compiled, and its file; nullptr: none.
std::pair<const TableKind*, std::string> list_of(const CompileOptions& o) {
  std::pair<const TableKind*, std::string> found{};
  for (const auto& [kind, file] : o.lists) {
    if (file.empty()) continue;
    if (found.first != nullptr || !o.acl.empty() || !o.routes.empty())
      fail(Exit::kUsage, fmt::format("--{} cannot be given with another table", kind->option),
           "one image holds one table: run the command twice");
    if (!o.algorithm.empty()) fail(Exit::kUsage, fmt::format("--algorithm does not apply to --{}", kind->option));
    found = {kind, file};
  }
  return found;
}

void check_compile_options(const CompileOptions& o, bool list) {
  if (o.acl.empty() && o.routes.empty() && !list) fail(Exit::kUsage, "--acl or --routes is missing");
  if (!o.acl.empty() && !o.routes.empty())
    fail(Exit::kUsage, "--acl and --routes cannot be given together",
         "one image holds one table: run the command twice");
  if (!o.adjacencies.empty() && o.routes.empty())
    fail(Exit::kUsage, "--adjacencies needs --routes", "next hops are numbered by the route table");
  if (!o.algorithm.empty() && !o.adjacencies.empty()) fail(Exit::kUsage, "--algorithm does not apply to --adjacencies");
  if (o.out == "-") fail(Exit::kUsage, "--out: an image is written to a file, not to stdout");
}

struct CompiledTable {
  std::string what, algorithm, entry;
  uint64_t entries;
  double parse_seconds, build_seconds;
  std::shared_ptr<const Image> image;
};

CompiledTable compile_list(const TableKind& list, const std::string& path, InputSet& inputs) {
  const Stopwatch parse;
  InputFile file = need(inputs.take(path), Exit::kIo);
  const std::vector<std::string> lines = need(read_list(list, file));
  const double parse_seconds = parse.seconds();
  const Stopwatch build;
  auto image = std::make_shared<const Image>(need(build_list(list, lines)));
  return {list.name, "", list.entry, lines.size(), parse_seconds, build.seconds(), std::move(image)};
}

// `files` learns what the rules include.
CompiledTable compile_acl(const CompileOptions& o, InputSet& inputs, RunFiles& files) {
  check_acl_algorithm(o.algorithm);
  const LoadedAcl acl = load_acl(inputs, o.acl, o.format, o.algorithm);
  for (const std::string& included : acl.set.files) files.input("--acl", included);
  return {"acl", acl.algorithm, "rule", acl.count, acl.parse_seconds, acl.build_seconds, acl.image};
}

CompiledTable compile_routes(const CompileOptions& o, InputSet& inputs, const std::vector<std::string>& files) {
  check_lpm_algorithms(o.algorithm);
  const LoadedRoutes routes = load_routes(inputs, files, o.algorithm);
  return {"routes",
          routes.algorithm4 + "," + routes.algorithm6,
          "route",
          routes.rib.size(),
          routes.parse_seconds,
          routes.build_seconds,
          routes.image};
}

CompiledTable compile_adjacencies(const CompileOptions& o, InputSet& inputs, const std::vector<std::string>& routes) {
  const Stopwatch parse;
  InputFile file = need(inputs.take(o.adjacencies), Exit::kIo);
  const std::string text = need(file.table());
  const Rib rib = read_routes(inputs, routes, nullptr);
  const AdjacencyModel model = need(parse_adjacencies(text, file.name(), rib));
  print_warnings(model.warnings);
  const double parse_seconds = parse.seconds();
  const Stopwatch build;
  auto image = std::make_shared<const Image>(need(build_adjacencies(model)));
  return {"adjacencies", "", "next hop", model.next_hop_count(), parse_seconds, build.seconds(), std::move(image)};
}

Exit compile(const CompileOptions& o) {
  const auto [list, list_file] = list_of(o);
  check_compile_options(o, list != nullptr);
  RunFiles files = command_files();
  files.input("--acl", o.acl);
  for (const std::string& file : split_route_files(o.routes)) files.input("--routes", path_of_route_file(file));
  files.input("--adjacencies", o.adjacencies);
  if (list != nullptr) files.input("--" + list->option, list_file);
  files.output("--out", o.out);
  check_files(files);
  const std::vector<std::string> route_files = split_route_files(o.routes);
  NamedInputs named = {{"--acl", o.acl}, {"--adjacencies", o.adjacencies}};
  if (list != nullptr) named.emplace_back("--" + list->option, list_file);
  add_route_inputs(named, "--routes", route_files);
  InputSet inputs = open_inputs(named);
  for (const auto& [option, path] : named) {
    InputFile* const file = path.empty() ? nullptr : inputs.find(path);
    if (file != nullptr && need(Image::is_next(*file)))
      fail(Exit::kBadInput, fmt::format("{}: this is a compiled image already", file->name()),
           "give the file it was compiled from");
  }
  const CompiledTable table = list != nullptr         ? compile_list(*list, list_file, inputs)
                              : !o.acl.empty()        ? compile_acl(o, inputs, files)
                              : o.adjacencies.empty() ? compile_routes(o, inputs, route_files)
                                                      : compile_adjacencies(o, inputs, route_files);
  stop_if_interrupted();
  check_files(files);
  need(table.image->write(o.out), Exit::kIo);
  const size_t bytes = table.image->bytes().size();
  if (json_output()) {
    print_json({{"kind", table.what},
                {"file", o.out},
                {"algorithm", table.algorithm.empty() ? Json(nullptr) : Json(table.algorithm)},
                {"entries", table.entries},
                {"bytes", bytes},
                {"parse_seconds", table.parse_seconds},
                {"build_seconds", table.build_seconds}});
  } else {
    note(fmt::format("{}: {}{}, {}, read in {}, built in {}", o.out, counted(table.entries, table.entry),
                     table.algorithm.empty() ? "" : " as " + table.algorithm, human_bytes(static_cast<double>(bytes)),
                     human_seconds(table.parse_seconds), human_seconds(table.build_seconds)));
  }
  return Exit::kOk;
}

// --- tables ---

struct TablesOptions {
  std::vector<std::string> files;
  bool algorithms = false;
  std::string algorithm, kind = "auto";
};

template <typename... A>
std::vector<std::pair<std::string, std::string>> acl_summaries(AclAlgorithmList<A...>) {
  return {{A::kName, A::kSummary}...};
}

Exit list_algorithms() {
  Json json{{"acl", Json::array()}, {"routes", Json::array()}};
  TextTable table({"table", "algorithm", "family", "default", "description"});
  for (const auto& [name, summary] : acl_summaries(AclAlgorithms{})) {
    json["acl"].push_back({{"name", name}, {"default", false}, {"summary", summary}});
    table.add({"acl", name, "IPv4, IPv6", "", summary});
  }
  const char* const chosen = "one of the above, chosen by table and device; `sluice tables FILE` shows which and why";
  json["acl"].push_back({{"name", kAclAuto}, {"default", true}, {"summary", chosen}});
  table.add({"acl", kAclAuto, "IPv4, IPv6", "yes", chosen});
  const char* const for_gpu = "the choice of `auto` for a GPU, wherever the table is built";
  json["acl"].push_back({{"name", kAclAutoGpu}, {"default", false}, {"summary", for_gpu}});
  table.add({"acl", kAclAutoGpu, "IPv4, IPv6", "", for_gpu});
  const auto add_routes = [&](const std::string& name, bool ipv4, bool ipv6, bool is_default,
                              const std::string& summary) {
    json["routes"].push_back(
        {{"name", name}, {"ipv4", ipv4}, {"ipv6", ipv6}, {"default", is_default}, {"summary", summary}});
    const char* const families = ipv4 && ipv6 ? "IPv4, IPv6" : ipv4 ? "IPv4" : "IPv6";
    table.add({"routes", name, families, is_default ? "yes" : "", summary});
  };
  for (const LpmSummary& s : lpm_summaries()) add_routes(s.name, s.ipv4, s.ipv6, false, s.summary);
  add_routes(kLpmAuto, true, true, true, chosen);
  add_routes(kLpmAutoGpu, true, true, false, for_gpu);
  print_result(json, table.str());
  return Exit::kOk;
}

Json describe_acl(const LoadedAcl& acl) {
  const size_t bytes = acl.image->bytes().size();
  Json json{{"file", acl.file},
            {"kind", "acl"},
            {"format", acl.format},
            {"valid", true},
            {"rules", acl.count},
            {"algorithm", acl.algorithm},
            {"bytes", bytes},
            {"bytes_per_rule", acl.count != 0 ? static_cast<double>(bytes) / static_cast<double>(acl.count) : 0.0},
            {"parse_seconds", acl.parse_seconds},
            {"build_seconds", acl.build_seconds}};
  uint64_t permit = 0, deny = 0, mark = 0, v4 = 0, v6 = 0, any = 0;
  for (uint32_t r = 1; r <= acl.count; ++r) {
    const AclVerb verb = acl.actions.action(r).verb;
    permit += verb == AclVerb::kPermit ? 1 : 0;
    deny += verb == AclVerb::kDeny ? 1 : 0;
    mark += verb == AclVerb::kMark ? 1 : 0;
    const uint8_t family = acl.rules.rule(r).family;
    (family == 4 ? v4 : family == 6 ? v6 : any) += 1;
  }
  json["actions"] = {{"permit", permit}, {"deny", deny}, {"mark", mark}};
  json["families"] = {{"ipv4", v4}, {"ipv6", v6}, {"either", any}};
  if (acl.algorithm == TupleSpaceAcl::kName) {
    const auto view = need(TupleSpaceView::open(*acl.image));
    const auto shape = view.shape();
    json["tuple_tables"] = {
        {"ipv4", shape.narrow_tables}, {"ipv6", shape.wide_tables}, {"longest_bucket", shape.longest_bucket}};
  }
  if (acl.algorithm == TupleMergeAcl::kName) {
    const auto shape = need(TupleMergeView::open(*acl.image)).shape();
    json["tuple_tables"] = {
        {"ipv4", shape.narrow_tables}, {"ipv6", shape.wide_tables}, {"longest_bucket", shape.longest_bucket}};
    json["loose_rules"] = {{"ipv4", shape.narrow_loose}, {"ipv6", shape.wide_loose}};
  }
  if (!acl.set.rules.empty()) {
    const auto said = [&](TableTarget target) {
      const auto choice = need(choose_acl(acl.set, target));
      return Json{{"algorithm", choice.algorithm}, {"why", choice.why}};
    };
    json["auto"] = {{"cpu", said(TableTarget::kCpu)}, {"gpu", said(TableTarget::kGpu)}};
  }
  return json;
}

Json describe_routes(const LoadedRoutes& routes, const std::string& file) {
  const size_t bytes = routes.image->bytes().size();
  Json json{{"file", file}, {"kind", "routes"}, {"format", routes.from_image ? "image" : "routes"}, {"valid", true}};
  if (!routes.from_image) {
    json["routes4"] = routes.rib.routes4().size();
    json["routes6"] = routes.rib.routes6().size();
    json["duplicates"] = routes.rib.duplicates();
    json["skipped"] = routes.report.skipped;
  }
  json["next_hops"] = routes.names.count();
  if (!routes.from_image) {
    const LpmChoice cpu = choose_lpm(routes.rib, TableTarget::kCpu), gpu = choose_lpm(routes.rib, TableTarget::kGpu);
    auto said = [](const LpmChoice& c) {
      return Json{{"algorithm4", c.algorithm4}, {"why4", c.why4}, {"algorithm6", c.algorithm6}, {"why6", c.why6}};
    };
    json["auto"] = {{"cpu", said(cpu)}, {"gpu", said(gpu)}};
  }
  json["algorithm4"] = routes.algorithm4;
  json["algorithm6"] = routes.algorithm6;
  json["bytes"] = bytes;
  json["bytes4"] = routes.image->section(SectionTag::kFib4).size();
  json["bytes6"] = routes.image->section(SectionTag::kFib6).size();
  if (!routes.from_image && routes.rib.size() != 0)
    json["bytes_per_route"] = static_cast<double>(bytes) / static_cast<double>(routes.rib.size());
  json["parse_seconds"] = routes.parse_seconds;
  json["build_seconds"] = routes.build_seconds;
  return json;
}

// By its content: an image says what it is, rules begin as detect_rule_format says or with a verb, the rest are routes.
std::string guess_kind(InputFile& file) {
  if (need(Image::is_next(file))) {
    const uint32_t is = need(Image::next_kind(file));
    for (const auto& [kind, name] : {std::pair{ImageKind::kAcl, "rules"},
                                     {ImageKind::kRoutes, "routes"},
                                     {ImageKind::kAdjacency, "adjacencies"}}) {
      if (is == static_cast<uint32_t>(kind)) return name;
    }
    for (const TableKind* kind : table_kinds()) {
      if (kind->is_list() && is == static_cast<uint32_t>(list_image_kind(*kind))) return kind->name;
    }
    return "rules";  // damaged: its reader says how
  }
  const auto bytes = need(file.peek());
  const std::string start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (size_t at = 0; at < start.size();) {
    const size_t end = std::min(start.find('\n', at), start.size());
    const size_t first = start.find_first_not_of(" \t\r", at);
    if (first < end && start[first] != '#') {
      const std::string word =
          start.substr(first, std::min(start.find_first_of(" \t\r\n(", first), start.size()) - first);
      for (const char* verb : {"permit", "deny", "mark", "define", "include", "src", "dst", "proto", "sport", "dport",
                               "tcp-flags", "action"}) {
        if (word == verb) return "rules";
      }
      return detect_rule_format(start) != RuleFormat::kNative ? "rules" : "routes";
    }
    at = end + 1;
  }
  return "rules";
}

std::string number_text(const Json& json, const char* key) {
  return json.contains(key) ? with_commas(json[key].get<uint64_t>()) : "-";
}

Json describe_file(const std::string& file, const TablesOptions& o) {
  InputSet inputs = open_inputs({{"FILE", file}});
  const std::string kind = o.kind == "auto" ? guess_kind(*inputs.find(file)) : o.kind;
  if (kind == "rules") return describe_acl(load_acl(inputs, file, "auto", o.algorithm));
  if (kind == "routes") return describe_routes(load_routes(inputs, {file}, o.algorithm), file);
  Json json{{"file", file}, {"kind", kind}, {"format", "image"}, {"valid", true}};
  InputFile input = need(inputs.take(file), Exit::kIo);
  if (const TableKind* const list = find_table_kind(kind); list != nullptr && list->is_list()) {
    const Image image = need(Image::read(input, list_image_kind(*list)));
    json["entries"] = need(open_list(*list, image)).size();
    json["bytes"] = image.bytes().size();
  } else {
    const Image image = need(Image::read(input, ImageKind::kAdjacency));
    const AdjacencyView view = need(open_adjacencies(image));
    json["kind"] = "adjacencies";
    json["next_hops"] = view.group_count() == 0 ? 0 : view.group_count() - 1;
    json["adjacencies"] = view.adjacencies().size();
    json["bytes"] = image.bytes().size();
  }
  return json;
}

std::string acl_notes(const Json& t) {
  std::string notes = fmt::format("{} permit, {} deny, {} mark", number_text(t["actions"], "permit"),
                                  number_text(t["actions"], "deny"), number_text(t["actions"], "mark"));
  if (t.contains("tuple_tables")) {
    notes += fmt::format("; {} + {} tuple tables, longest bucket {}", number_text(t["tuple_tables"], "ipv4"),
                         number_text(t["tuple_tables"], "ipv6"), number_text(t["tuple_tables"], "longest_bucket"));
  }
  if (!t.contains("auto")) return notes;
  for (const auto& [target, name] : {std::pair{"cpu", "CPU"}, {"gpu", "GPU"}}) {
    const Json& c = t["auto"][target];
    notes +=
        fmt::format("; auto is {} on a {} ({})", c["algorithm"].get<std::string>(), name, c["why"].get<std::string>());
  }
  return notes;
}

std::string route_notes(const Json& t) {
  std::string notes = fmt::format("{} next hops", number_text(t, "next_hops"));
  if (t.contains("routes4"))
    notes += fmt::format("; IPv4 {}, IPv6 {}", number_text(t, "routes4"), number_text(t, "routes6"));
  if (t.contains("auto")) {
    const Json& c = t["auto"]["cpu"];
    notes +=
        fmt::format("; auto is {} ({}) and {} ({})", c["algorithm4"].get<std::string>(), c["why4"].get<std::string>(),
                    c["algorithm6"].get<std::string>(), c["why6"].get<std::string>());
  }
  return notes;
}

// A file of the report as a line of the table.
std::vector<std::string> table_row(const Json& t) {
  if (!t["valid"].get<bool>()) return {t["file"], "invalid", "-", "-", "-", "-", "-", t["error"]["message"]};
  const std::string bytes = human_bytes(t["bytes"].get<double>());
  const std::string built = t.contains("build_seconds") ? human_seconds(t["build_seconds"].get<double>()) : "-";
  const auto each = [&](const char* key) {
    return t.contains(key) ? fmt::format("{:.0f}", t[key].get<double>()) : "-";
  };
  if (t["kind"] == "acl")
    return {t["file"],
            "acl " + t["format"].get<std::string>(),
            number_text(t, "rules"),
            t["algorithm"],
            bytes,
            each("bytes_per_rule"),
            built,
            acl_notes(t)};
  if (t["kind"] == "routes")
    return {t["file"],
            "routes",
            t.contains("routes4") ? with_commas(t["routes4"].get<uint64_t>() + t["routes6"].get<uint64_t>()) : "-",
            t["algorithm4"].get<std::string>() + "," + t["algorithm6"].get<std::string>(),
            bytes,
            each("bytes_per_route"),
            built,
            route_notes(t)};
  if (t.contains("entries")) return {t["file"], t["kind"], number_text(t, "entries"), "-", bytes, "-", "-", "-"};
  return {t["file"],
          "adjacencies",
          number_text(t, "next_hops"),
          "-",
          bytes,
          "-",
          "-",
          fmt::format("{} adjacencies", number_text(t, "adjacencies"))};
}

Exit tables(const TablesOptions& o) {
  if (o.algorithms) return list_algorithms();
  if (o.files.empty())
    fail(Exit::kUsage, "no file is given", "see 'sluice tables --help'; --algorithms lists the algorithms");
  NamedInputs named;
  for (const std::string& file : o.files) named.emplace_back("FILE", file);
  check_read_once(named);
  Json all = Json::array();
  bool bad = false;
  Exit worst = Exit::kOk;
  for (const std::string& file : o.files) {
    try {
      all.push_back(describe_file(file, o));
    } catch (const Failure& failure) {
      stop_if_interrupted();
      if (failure.code == Exit::kUsage || failure.code == Exit::kInterrupted) throw;
      bad = true;
      worst = failure.code;
      Json json = to_json(failure.error, failure.code);
      all.push_back({{"file", file}, {"valid", false}, {"error", json["error"]}});
      if (!json_output()) std::fputs(to_string(failure.error).c_str(), stderr);
    }
  }
  if (json_output()) {
    print_json({{"tables", all}});
    return bad ? worst : Exit::kOk;
  }
  TextTable table({"file", "kind", "entries", "algorithm", "bytes", "bytes/entry", "built", "notes"});
  for (const Json& t : all) table.add(table_row(t));
  print_out(table.str());
  return bad ? worst : Exit::kOk;
}

}  // namespace

void add_compile(Command root) {
  auto o = std::make_shared<CompileOptions>();
  Command sub =
      add_subcommand(root, "compile", "Tables and packets",
                     "Compiles an access list, routes or adjacencies into an image: a file that other commands load\n"
                     "instead of parsing and building.",
                     "sluice compile --acl edge.acl --out edge.img\n"
                     "sluice compile --routes rib4.txt,rib6.txt --algorithm dir24,poptrie --out rib.img\n"
                     "sluice compile --adjacencies neighbours.txt --routes rib4.txt,rib6.txt --out adj.img",
                     [o] { return compile(*o); });
  sub->add_option("--acl", "FILE", o->acl, "Rule file of any format, plain or compressed");
  sub->add_option("--routes", "FILE[,FILE]", o->routes,
                  "Route files (text, MRT, or as ip, FRR, BIRD or route print them), comma-separated");
  sub->add_option("--adjacencies", "FILE", o->adjacencies, "Adjacency file; its next hops are those of --routes");
  add_list_options(*sub, o->lists);
  sub->add_option("--out", "FILE", o->out, "Image file, created when complete")->required();
  sub->add_option("--algorithm", "NAME", o->algorithm,
                  "ACL algorithm, or A4[,A6] for routes (`sluice tables --algorithms` lists them)");
  add_format_option(*sub, o->format);
}

void add_tables(Command root) {
  auto o = std::make_shared<TablesOptions>();
  Command sub =
      add_subcommand(root, "tables", "Tables and packets",
                     "Describes rule files, route files and images: entries, algorithm, memory, build time, validity.",
                     "sluice tables edge.acl rib4.txt edge.img\nsluice tables --algorithms\nsluice tables rib.txt "
                     "--algorithm poptrie -o json",
                     [o] { return tables(*o); });
  sub->add_option("files", "FILE...", o->files, "Rule files, route files or images");
  sub->add_option("--algorithm", "NAME", o->algorithm, "Build text tables with this algorithm");
  sub->add_word("--kind", "KIND", o->kind, "What the files are: auto, rules or routes", {"auto", "rules", "routes"});
  sub->add_flag("--algorithms", o->algorithms, "List the algorithms instead");
}

}  // namespace sluice::app
