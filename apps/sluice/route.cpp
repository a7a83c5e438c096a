// sluice route: the next hop of each address.
// host only
#include <tuple>

#include "app.h"
#include "confine.h"
#include "control/json.h"
#include "control/route_report.h"
#include "devices.h"
#include "formats/address_list.h"
#include "formats/adjacency_text.h"
#include "inputs.h"
#include "net/text.h"

namespace sluice::app {
namespace {

struct RouteFlags {
  std::string routes, addresses, capture, explain, adjacencies, algorithm, out;
  uint64_t from = 1, count = 1000;
  DeviceFlags device;
  unsigned workers = 1;
};

class AddressSource {
 public:
  AddressSource(const RouteFlags& o, InputSet& inputs) {
    if (o.addresses.empty()) {
      keys_ = open_capture_keys(inputs, o.capture);
    } else {
      InputFile file = need(inputs.take(o.addresses), Exit::kIo);
      all_ = need(parse_addresses(need(file.text(kMaxTraceBytes)), file.name()));
    }
  }
  bool ended() const { return keys_ == nullptr ? at_ == all_.size() : keys_->ended; }
  std::optional<Error> damage() const { return keys_ == nullptr ? std::nullopt : keys_->damage; }
  void next(std::vector<IpAddress>& out) {
    out.clear();
    if (keys_ == nullptr) {
      const size_t n = std::min(kKeyBlock, all_.size() - at_);
      out.assign(all_.begin() + static_cast<ptrdiff_t>(at_), all_.begin() + static_cast<ptrdiff_t>(at_ + n));
      at_ += n;
      return;
    }
    keys_->next(block_, kKeyBlock);
    for (const FlowKey& key : block_) out.push_back({key.dst_hi, key.dst_lo, key.family});
  }

 private:
  std::unique_ptr<KeySource> keys_;
  std::vector<FlowKey> block_;
  std::vector<IpAddress> all_;
  size_t at_ = 0;
};

// What `show routes` says of a running process, of files.
Exit explain(const RouteFlags& o) {
  if (!o.addresses.empty() || !o.capture.empty() || !o.out.empty())
    fail(Exit::kUsage, "--explain cannot be combined with --addresses, --in or --out");
  const std::vector<std::string> files = split_route_files(o.routes);
  NamedInputs named = {{"--adjacencies", o.adjacencies}};
  add_route_inputs(named, "--routes", files);
  InputSet inputs = open_inputs(named);
  for (size_t i = 1; i < named.size(); ++i) {
    InputFile& file = *inputs.find(named[i].second);
    if (need(Image::is_next(file)))
      fail(Exit::kBadInput, fmt::format("{}: the routes of a compiled image are not known", file.name()),
           "give the route files");
  }
  RouteReport report;
  // Of a dump every path of what is asked about.
  MrtOptions mrt;
  mrt.about = parse_prefix(o.explain);
  mrt.paths = MrtOptions::kMostPaths;
  const SourcedRib rib = need(read_route_sources(files, &report, mrt, {}, &inputs));
  print_warnings(report.warnings);
  NextHopDefinitions definitions;
  definitions.made_up = o.adjacencies.empty();
  if (!o.adjacencies.empty()) {
    InputFile file = need(inputs.take(o.adjacencies), Exit::kIo);
    definitions = need(parse_next_hops(need(file.table()), file.name()));
  }
  NextHops hops(std::move(definitions));
  hops.extend(rib.next_hops());
  hops.settle([&](const IpAddress& a) { return rib.match(a); });
  const Json json = need(explain_routes(rib, {{"adj", &hops}}, o.explain, o.from, o.count), Exit::kUsage);
  if (json_output()) {
    print_json(json);
  } else {
    print_out(route_explanation_text(json));
  }
  return Exit::kOk;
}

Exit route(const RouteFlags& o) {
  if (!o.explain.empty()) return explain(o);
  if (!o.adjacencies.empty()) fail(Exit::kUsage, "--adjacencies needs --explain");
  exactly_one(!o.addresses.empty(), !o.capture.empty(), "--addresses or --in");
  const bool inside = json_output() && o.out.empty();
  RunFiles files = command_files();
  for (const std::string& routes : split_route_files(o.routes)) files.input("--routes", path_of_route_file(routes));
  files.input("--addresses", o.addresses);
  files.input("--in", o.capture);
  if (!inside) output_file(files, o.out);
  check_files(files);
  check_lpm_algorithms(o.algorithm);
  const OpenDevices devices = open_devices(o.device);
  const std::string& device = devices.label;
  const std::vector<std::string> route_files = split_route_files(o.routes);
  NamedInputs named = {{"--addresses", o.addresses}, {"--in", o.capture}};
  add_route_inputs(named, "--routes", route_files);
  InputSet inputs = open_inputs(named);
  AddressSource source(o, inputs);
  const LoadedRoutes routes = load_routes(inputs, route_files, route_algorithms_on(devices, o.algorithm).text());

  std::unique_ptr<DeviceLookup> on_device;
  std::vector<KeyResult> results_of;
  std::vector<FlowKey> keys;
  if (!devices.options.devices.empty()) {
    TableSet tables;
    tables.routes["routes"] = routes.image;
    on_device = std::make_unique<DeviceLookup>(devices, "IPRoute(TABLE routes)", std::move(tables));
  }

  const EndsInOrder in_order;
  AtomicFile file;
  if (!inside) file = need(AtomicFile::create(o.out.empty() ? "-" : o.out), Exit::kIo);
  // What is left to read is open.
  if (devices.label == "cpu" || devices.label.starts_with("emu")) {
    refuse_calls();
    refuse_files({}, {o.out});
  }
  Json results = Json::array();
  uint64_t looked_up = 0, matched = 0;
  double seconds = 0;
  std::vector<IpAddress> addresses;
  std::vector<uint32_t> found, at4, at6, address4, hop4, hop6;
  std::vector<uint64_t> hi, lo;
  std::string lines;
  Progress progress("routing");
  while (true) {
    source.next(addresses);
    if (addresses.empty()) break;
    for (auto* v : {&at4, &at6, &address4}) v->clear();
    hi.clear();
    lo.clear();
    for (uint32_t i = 0; i < addresses.size(); ++i) {
      const IpAddress& a = addresses[i];
      if (a.family == 4) {
        at4.push_back(i);
        address4.push_back(static_cast<uint32_t>(a.lo));
      } else if (a.family == 6) {
        at6.push_back(i);
        hi.push_back(a.hi);
        lo.push_back(a.lo);
      }
    }
    found.assign(addresses.size(), 0);
    hop4.resize(at4.size());
    hop6.resize(at6.size());
    const Stopwatch lookup;
    bool answered = false;
    if (on_device != nullptr) {
      keys.assign(addresses.size(), FlowKey{});
      for (size_t i = 0; i < addresses.size(); ++i) {
        keys[i].family = static_cast<uint8_t>(addresses[i].family);
        keys[i].dst_hi = addresses[i].hi;
        keys[i].dst_lo = addresses[i].lo;
      }
      answered = on_device->run(keys, results_of);
      for (size_t i = 0; answered && i < keys.size(); ++i) found[i] = results_of[i].next_hop;
    }
    if (!answered) {
      in_parallel(o.workers, at4.size(),
                  [&](size_t b, size_t e) { routes.lookup4(address4.data() + b, hop4.data() + b, e - b); });
      in_parallel(o.workers, at6.size(),
                  [&](size_t b, size_t e) { routes.lookup6(hi.data() + b, lo.data() + b, hop6.data() + b, e - b); });
      for (size_t i = 0; i < at4.size(); ++i) found[at4[i]] = hop4[i];
      for (size_t i = 0; i < at6.size(); ++i) found[at6[i]] = hop6[i];
    }
    seconds += lookup.seconds();
    looked_up += addresses.size();
    lines.clear();
    for (uint32_t hop : found) {
      matched += hop != 0 ? 1 : 0;
      if (inside) {
        results.push_back(hop == 0 ? Json(nullptr) : Json(std::string(routes.names.name(hop))));
      } else {
        lines += routes.names.name(hop);
        lines += '\n';
      }
    }
    if (!inside) {
      file.write(lines);
      if (!file.ok()) break;
    }
    progress.update(looked_up);
    if (interrupted().load(std::memory_order_relaxed)) break;
  }
  progress.clear();
  const bool partial = source.damage() || (interrupted().load() && !source.ended());
  const Ending ending = partial ? Ending::kPartial : Ending::kWhole;
  const std::string place = inside ? std::string() : file.path_of(ending);
  if (!inside) need(file.commit(ending), Exit::kIo);
  const double rate = seconds > 0 ? static_cast<double>(looked_up) / seconds : 0;
  if (json_output()) {
    Json json{{"addresses", looked_up},
              {"matched", matched},
              {"seconds", seconds},
              {"lookups_per_second", rate},
              {"algorithm4", routes.algorithm4},
              {"algorithm6", routes.algorithm6},
              {"device", device},
              {"workers", o.workers},
              {"next_hops", routes.names.count()},
              {"parse_seconds", routes.parse_seconds},
              {"build_seconds", routes.build_seconds},
              {"partial", partial}};
    if (!routes.from_image) {
      json["routes4"] = routes.rib.routes4().size();
      json["routes6"] = routes.rib.routes6().size();
    }
    if (inside) json["results"] = std::move(results);
    print_json(json);
  } else {
    note(fmt::format("{}, {} with a route, {} ({}), {} for IPv4 and {} for IPv6 on {}", counted(looked_up, "address"),
                     with_commas(matched), human_seconds(seconds), human_rate(rate, "lookups"), routes.algorithm4,
                     routes.algorithm6, device));
  }
  return partial ? end_partial({place}, source.damage()) : Exit::kOk;
}

}  // namespace

void add_route(Command root) {
  auto o = std::make_shared<RouteFlags>();
  Command sub = add_subcommand(
      root, "route", "Tables and packets",
      "Looks up the next hop of each address: one line per address, in order, with the next hop as written in the "
      "route\nfile, or '-'. With --in: of the destination of each frame ('-' if it is not IP).",
      "sluice route --routes rib4.txt,rib6.txt --addresses hosts.txt\n"
      "sluice route --routes bview.mrt.gz --in traffic.pcap --out hops.txt\n"
      "echo 8.8.8.8 | sluice route --routes rib.img --addresses -\n"
      "sluice route --routes bview.mrt.gz,static.txt,source=static,preference=1 --explain 8.8.8.8",
      [o] { return route(*o); });
  sub->add_option("--routes", o->routes,
                  "Route files (text, MRT, or as ip, FRR, BIRD or route print them; plain or compressed), "
                  "comma-separated, or one "
                  "image; after a file name\n,source=NAME and ,preference=N set the source of its routes and their "
                  "preference (0: before "
                  "all);\n,peer=ADDRESS|ASn|N takes one peer's paths of an MRT dump (default: the best of all)")
      ->required()
      ->type_name("FILE[,FILE]");
  sub->add_option("--addresses", o->addresses, "One address per line; '#' begins a comment; - is stdin")
      ->type_name("FILE");
  sub->add_option("--in", o->capture, "Capture: pcap or pcapng, plain or compressed")->type_name("PCAP");
  sub->add_option(
         "--explain", o->explain,
         "Instead: every route that covers this, with its source, which one is used and why, and where it leads")
      ->type_name("ADDRESS|PREFIX");
  sub->add_option("--adjacencies", o->adjacencies, "With --explain: adjacency file for the next hops")
      ->type_name("FILE");
  for (const auto& [name, value, help] : {std::tuple{"--from", &o->from, "With --explain: first route to show, from 1"},
                                          std::tuple{"--count", &o->count, "With --explain: routes to show"}}) {
    sub->add_option(name, *value, help)->check(Range(1, 1000))->type_name("N")->capture_default_str();
  }
  sub->add_option("--algorithm", o->algorithm,
                  fmt::format("IPv4 one of: {}; IPv6 one of: {} (auto is the default; auto-gpu chooses for a GPU)",
                              fmt::join(lpm_algorithm_choices4(), ", "), fmt::join(lpm_algorithm_choices6(), ", ")))
      ->type_name("A4[,A6]");
  sub->add_option("--out", o->out, "Output file (default: stdout), created when complete")->type_name("FILE");
  add_device_options(*sub, o->device, false);
  add_workers_option(*sub, o->workers);
}

}  // namespace sluice::app
