// sluice route: the next hop of each address.
// host only
#include <tuple>

#include "app.h"
#include "control/json.h"
#include "control/route_report.h"
#include "devices.h"
#include "formats/address_list.h"
#include "formats/adjacency_text.h"
#include "inputs.h"
#include "lookup_results.h"
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
  print_result(json, route_explanation_text(json));
  return Exit::kOk;
}

// Looks up blocks of addresses: of each family at once on the host.
class HopFinder {
 public:
  HopFinder(const LoadedRoutes& routes, unsigned workers) : routes_(routes), workers_(workers) {}

  // Splits `addresses` by family, outside of what is timed.
  void take(const std::vector<IpAddress>& addresses) {
    for (auto* v : {&at4_, &at6_, &address4_}) v->clear();
    hi_.clear();
    lo_.clear();
    for (uint32_t i = 0; i < addresses.size(); ++i) {
      const IpAddress& a = addresses[i];
      if (a.family == 4) {
        at4_.push_back(i);
        address4_.push_back(static_cast<uint32_t>(a.lo));
      } else if (a.family == 6) {
        at6_.push_back(i);
        hi_.push_back(a.hi);
        lo_.push_back(a.lo);
      }
    }
    hop4_.resize(at4_.size());
    hop6_.resize(at6_.size());
  }
  void on_host(std::vector<uint32_t>& found) {
    in_parallel(workers_, at4_.size(),
                [&](size_t b, size_t e) { routes_.lookup4(address4_.data() + b, hop4_.data() + b, e - b); });
    in_parallel(workers_, at6_.size(),
                [&](size_t b, size_t e) { routes_.lookup6(hi_.data() + b, lo_.data() + b, hop6_.data() + b, e - b); });
    for (size_t i = 0; i < at4_.size(); ++i) found[at4_[i]] = hop4_[i];
    for (size_t i = 0; i < at6_.size(); ++i) found[at6_[i]] = hop6_[i];
  }
  // False: the device answers no more.
  bool on_device(DeviceLookup& device, const std::vector<IpAddress>& addresses, std::vector<uint32_t>& found) {
    keys_.assign(addresses.size(), FlowKey{});
    for (size_t i = 0; i < addresses.size(); ++i) {
      keys_[i].family = static_cast<uint8_t>(addresses[i].family);
      keys_[i].dst_hi = addresses[i].hi;
      keys_[i].dst_lo = addresses[i].lo;
    }
    if (!device.run(keys_, results_)) return false;
    for (size_t i = 0; i < keys_.size(); ++i) found[i] = results_[i].next_hop;
    return true;
  }

 private:
  const LoadedRoutes& routes_;
  unsigned workers_;
  std::vector<uint32_t> at4_, at6_, address4_, hop4_, hop6_;
  std::vector<uint64_t> hi_, lo_;
  std::vector<FlowKey> keys_;
  std::vector<KeyResult> results_;
};

Exit route(const RouteFlags& o) {
  if (!o.explain.empty()) return explain(o);
  if (!o.adjacencies.empty()) fail(Exit::kUsage, "--adjacencies needs --explain");
  exactly_one(!o.addresses.empty(), !o.capture.empty(), "--addresses or --in");
  LookupResults results(o.out);
  RunFiles files = command_files();
  const std::vector<std::string> route_files = split_route_files(o.routes);
  for (const std::string& routes : route_files) files.input("--routes", path_of_route_file(routes));
  files.input("--addresses", o.addresses);
  files.input("--in", o.capture);
  results.declare(files);
  check_files(files);
  check_lpm_algorithms(o.algorithm);
  const OpenDevices devices = open_devices(o.device);
  NamedInputs named = {{"--addresses", o.addresses}, {"--in", o.capture}};
  add_route_inputs(named, "--routes", route_files);
  InputSet inputs = open_inputs(named);
  AddressSource source(o, inputs);
  const LoadedRoutes routes = load_routes(inputs, route_files, route_algorithms_on(devices, o.algorithm).text());

  std::unique_ptr<DeviceLookup> on_device;
  if (!devices.options.devices.empty()) {
    TableSet tables;
    tables.routes["routes"] = routes.image;
    on_device = std::make_unique<DeviceLookup>(devices, "IPRoute(TABLE routes)", std::move(tables));
  }

  results.begin(devices.label);
  HopFinder finder(routes, o.workers);
  uint64_t looked_up = 0, matched = 0;
  double seconds = 0;
  std::vector<IpAddress> addresses;
  std::vector<uint32_t> found;
  Progress progress("routing");
  while (true) {
    source.next(addresses);
    if (addresses.empty()) break;
    finder.take(addresses);
    found.assign(addresses.size(), 0);
    const Stopwatch lookup;
    if (on_device == nullptr || !finder.on_device(*on_device, addresses, found)) finder.on_host(found);
    seconds += lookup.seconds();
    looked_up += addresses.size();
    for (uint32_t hop : found) {
      matched += hop != 0 ? 1 : 0;
      if (results.inside) {
        results.list.push_back(hop == 0 ? Json(nullptr) : Json(std::string(routes.names.name(hop))));
      } else {
        results.lines += routes.names.name(hop);
        results.lines += '\n';
      }
    }
    if (!results.write()) break;
    progress.update(looked_up);
    if (interrupted().load(std::memory_order_relaxed)) break;
  }
  progress.clear();
  const bool partial = source.damage() || (interrupted().load() && !source.ended());
  const double rate = seconds > 0 ? static_cast<double>(looked_up) / seconds : 0;
  Json json{{"addresses", looked_up},
            {"matched", matched},
            {"seconds", seconds},
            {"lookups_per_second", rate},
            {"algorithm4", routes.algorithm4},
            {"algorithm6", routes.algorithm6},
            {"device", devices.label},
            {"workers", o.workers},
            {"next_hops", routes.names.count()},
            {"parse_seconds", routes.parse_seconds},
            {"build_seconds", routes.build_seconds},
            {"partial", partial}};
  if (!routes.from_image) {
    json["routes4"] = routes.rib.routes4().size();
    json["routes6"] = routes.rib.routes6().size();
  }
  return results.end(partial, source.damage(), std::move(json),
                     fmt::format("{}, {} with a route, {} ({}), {} for IPv4 and {} for IPv6 on {}",
                                 counted(looked_up, "address"), with_commas(matched), human_seconds(seconds),
                                 human_rate(rate, "lookups"), routes.algorithm4, routes.algorithm6, devices.label));
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
  sub->add_option("--routes", "FILE[,FILE]", o->routes,
                  "Route files (text, MRT, or as ip, FRR, BIRD or route print them; plain or compressed), "
                  "comma-separated, or one "
                  "image; after a file name\n,source=NAME and ,preference=N set the source of its routes and their "
                  "preference (0: before "
                  "all);\n,peer=ADDRESS|ASn|N takes one peer's paths of an MRT dump (default: the best of all)")
      ->required();
  sub->add_option("--addresses", "FILE", o->addresses, "One address per line; '#' begins a comment; - is stdin");
  sub->add_option("--in", "PCAP", o->capture, "Capture: pcap or pcapng, plain or compressed");
  sub->add_option(
      "--explain", "ADDRESS|PREFIX", o->explain,
      "Instead: every route that covers this, with its source, which one is used and why, and where it leads");
  sub->add_option("--adjacencies", "FILE", o->adjacencies, "With --explain: adjacency file for the next hops");
  for (const auto& [name, value, help] : {std::tuple{"--from", &o->from, "With --explain: first route to show, from 1"},
                                          std::tuple{"--count", &o->count, "With --explain: routes to show"}}) {
    sub->add_number(name, "N", *value, help, Range(1, 1000));
  }
  sub->add_option("--algorithm", "A4[,A6]", o->algorithm,
                  fmt::format("IPv4 one of: {}; IPv6 one of: {} (auto is the default; auto-gpu chooses for a GPU)",
                              fmt::join(lpm_algorithm_choices4(), ", "), fmt::join(lpm_algorithm_choices6(), ", ")));
  sub->add_option("--out", "FILE", o->out, "Output file (default: stdout), created when complete");
  add_device_options(*sub, o->device, false);
  add_workers_option(*sub, o->workers);
}

}  // namespace sluice::app
