// sluice demo: the main job end to end on generated input of real size.
// host only
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "app.h"
#include "base/sha256.h"
#include "control/json.h"
#include "control/machine.h"
#include "control/standard_graph.h"
#include "devices.h"
#include "generate/random.h"
#include "generate/routes.h"
#include "generate/rules.h"
#include "generate/traffic.h"
#include "inputs.h"
#include "net/packet_builder.h"
#include "pipeline.h"
#include "ports/pcap/capture_writer.h"

namespace sluice::app {

std::vector<FlowRegion> regions_of(const RuleSet& set);  // gen.cpp

namespace {

namespace fs = std::filesystem;

struct DemoFlags {
  std::string dir;
  bool keep = false;
  uint64_t packets = 500'000, seed = 1;
  uint32_t rules = 10'000, ipv4 = 900'000, ipv6 = 160'000;
};

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file = need(AtomicFile::create(path), Exit::kIo);
  file.write(text);
  need(file.commit(), Exit::kIo);
}

// Removes what the demo made, and the folder where it was the demo's own.
class Folder {
 public:
  explicit Folder(const DemoFlags& o) : keep_(o.keep || !o.dir.empty()) {
    if (!o.dir.empty()) {
      std::error_code error;
      fs::create_directories(o.dir, error);
      if (error) fail(Exit::kIo, fmt::format("{}: cannot create this directory: {}", o.dir, error.message()));
      path_ = o.dir;
      return;
    }
    own_.emplace("sluice-demo", "give one with --dir");
    path_ = own_->path();
    if (keep_) own_->keep();
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  bool kept() const { return keep_; }

 private:
  std::optional<TemporaryFolder> own_;
  std::string path_;
  bool keep_;
};

// Native rules: what the generator made, with the rules of an edge in front; the last line denies the rest.
std::string edge_rules(const std::vector<FlowRegion>& regions, uint64_t seed) {
  std::string text = "# An edge's access list, made by `sluice demo`.\n";
  text += need(to_native(regions, seed));
  return text;
}

Exit demo(const DemoFlags& o) {
  const Stopwatch whole;
  Folder folder(o);
  Progress progress("");
  progress.step("making rules");
  RulesOptions r;
  r.count = o.rules;
  r.seed = o.seed;
  const std::vector<FlowRegion> regions = need(generate_rule_regions(r), Exit::kUsage);
  const std::string rules = folder / "edge.acl", routes = folder / "rib.txt", capture = folder / "imix.pcap";
  write_file(rules, edge_rules(regions, o.seed));
  progress.step("making routes");
  RoutesOptions n;
  n.ipv4_count = o.ipv4;
  n.ipv6_count = o.ipv6;
  n.seed = o.seed;
  std::vector<IpPrefix> destinations;
  {
    const std::string text = need(generate_routes(n), Exit::kUsage);
    write_file(routes, text);
    for (const GeneratedRoute& route : need(generate_route_list(n))) destinations.push_back(route.prefix);
  }
  stop_if_interrupted();

  // Three kinds of packets, in turn: flows of the access list's own regions; flows to routed destinations, IPv4 and
  // IPv6, that mostly no rule names; and every 200th with a TTL of 1.
  progress.step("making traffic");
  TrafficOptions listed;
  listed.packets = o.packets;
  listed.flows = 20'000;
  listed.zipf = 0.9;
  listed.malformed_fraction = 0.01;
  listed.regions = regions;
  listed.seed = o.seed;
  TrafficOptions routed = listed;
  routed.regions.clear();
  routed.destinations = destinations;
  routed.ipv6_fraction = 0.4;
  routed.vlan_fraction = 0.1;
  routed.seed = o.seed + 1;
  {
    TrafficGenerator one = need(TrafficGenerator::create(listed)), two = need(TrafficGenerator::create(routed));
    CaptureWriter writer = need(CaptureWriter::create(capture), Exit::kIo);
    std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
    uint64_t stamp = listed.start_ns;
    Random random(o.seed, 77);
    for (uint64_t i = 0; i < o.packets; ++i) {
      FrameHeader header;
      if (random.below(200) == 0) {
        const IpPrefix& to = destinations[random.below(destinations.size())];
        const IpAddress from =
            to.address.family == 4 ? IpAddress{0, 0xc6336401, 4} : IpAddress{0x20010db800000000, 1, 6};
        const auto bytes = PacketBuilder::ip(from, to.address, 17)
                               .ttl(1)
                               .ports(33434, static_cast<uint16_t>(33434 + i % 30))
                               .size(60)
                               .build();
        std::copy(bytes.begin(), bytes.end(), frame.begin());
        header.captured = header.wire_bytes = static_cast<uint32_t>(bytes.size());
      } else {
        header = (random.below(3) != 0 ? two : one).next(frame.data());
      }
      header.timestamp_ns = stamp += 1000;
      if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
      progress.update(i);
      if (i % 65'536 == 0) stop_if_interrupted();
    }
    need(writer.commit(), Exit::kIo);
  }
  progress.clear();

  StandardGraph g;
  g.acl = rules;
  g.routes = {routes};
  g.in = capture;
  g.permit_by_default = true;
  std::string t =
      fmt::format("  reading imix.pcap ({} packets) -> acl({}) -> lpm4/6({}+{}) -> ttl,checksum,mac -> out.pcap\n",
                  with_commas(o.packets), with_commas(o.rules), with_commas(o.ipv4), with_commas(o.ipv6));
  t += fmt::format("  {:<8} {:>8} {:>8} {:>8} {:>8}   {}\n", "backend", "Mpps", "Gb/s", "p50 us", "p99 us", "output");
  Json json{{"packets", o.packets}, {"runs", Json::array()}, {"machine", to_json(describe_machine())}};
  std::shared_ptr<const Image> acl;
  std::vector<std::string> sums;
  std::vector<HitCount> hits;  // by rule
  RunReport last;
  TableReport loads;
  // A device is asked for by name where there is one; where there is none, it is said once.
  const DeviceCount gpus = count_cuda_devices();
  struct Backend {
    std::string name, device;
    unsigned workers;
  };
  std::vector<Backend> backends = {{"cpu x1", "cpu", 1}, {"cpu x2", "cpu", 2}};
  if (gpus.count != 0) backends.push_back({"cuda:0", "cuda:0", 2});
  for (size_t i = 0; i < backends.size(); ++i) {
    const Backend& backend = backends[i];
    g.out = folder / (i == 0 ? "out.pcap" : i == 1 ? "out-x2.pcap" : "out-cuda.pcap");
    auto pipeline = parse_pipeline(need(standard_graph_text(g)), "standard graph", {});
    if (acl == nullptr) {
      load_pipeline_tables(*pipeline, {});
      acl = pipeline->tables.acls.begin()->second;
      loads = pipeline->table_report;
      json["tables"] = Json::array();
      for (const TableLoad& load : loads.loads) json["tables"].push_back(to_json(load));
    } else {
      pipeline->tables = TableSet{};
    }
    static TableSet tables;  // of the first run: all run on the same images
    if (i == 0) {
      tables = pipeline->tables;
    } else {
      pipeline->tables = tables;
    }
    RunOptions options;
    options.workers = backend.workers;
    options.count_hits = i + 1 == backends.size();
    DeviceFlags device;
    device.device = backend.device;
    options.device = open_devices(device).options;
    RunHooks hooks;
    if (options.count_hits) hooks.ended = [&](Engine& runtime) { hits = runtime.hits().read("acl").rules; };
    const PipelineRun run = run_pipeline(*pipeline, options, hooks);
    if (run.interrupted) fail(Exit::kInterrupted, "interrupted");
    last = run.report;
    const std::string sum = need(sha256_of_file(g.out), Exit::kIo);
    sums.push_back(sum);
    const double rate = static_cast<double>(last.packets_in) / last.seconds;
    t += fmt::format("  {:<8} {:>8.2f} {:>8.2f} {:>8.1f} {:>8.1f}   sha256 {}..{}\n", backend.name, rate * 1e-6,
                     static_cast<double>(last.bytes_in) * 8e-9 / last.seconds,
                     static_cast<double>(last.totals.latency.percentile(50)) * 1e-3,
                     static_cast<double>(last.totals.latency.percentile(99)) * 1e-3, sum.substr(0, 8),
                     i == 0           ? ""
                     : sum == sums[0] ? "  identical"
                                      : "  DIFFERENT");
    Json one = to_json(last, pipeline->router, TableReport{}, backend.device);
    one["sha256"] = sum;
    json["runs"].push_back(one);
  }
  if (gpus.count == 0) t += fmt::format("  no GPU here: {}\n", gpus.why_none);

  const AclActionsView actions = need(AclActionsView::open(*acl));
  uint32_t top_deny = 0, top = 0;
  for (uint32_t rule = 1; rule < hits.size(); ++rule) {
    if (hits[rule].packets > hits[top].packets || top == 0) top = rule;
    if (actions.action(rule).verb == AclVerb::kDeny && (top_deny == 0 || hits[rule].packets > hits[top_deny].packets))
      top_deny = rule;
  }
  auto place = [&](uint32_t rule) {
    const std::string at = rule_place(*acl, rule);
    return fs::path(at).filename().string();
  };
  std::vector<std::pair<uint64_t, DropReason>> drops;
  for (size_t d = 0; d < last.drops.size(); ++d) {
    if (last.drops[d] != 0) drops.emplace_back(last.drops[d], static_cast<DropReason>(d));
  }
  std::sort(drops.begin(), drops.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::string line = fmt::format("  drops {}:", with_commas(last.dropped));
  for (const auto& [count, reason] : drops) {
    std::string one = fmt::format(" {} {}", to_string(reason), with_commas(count));
    if (reason == DropReason::kAclDeny && top_deny != 0)
      one += fmt::format(" (top rule {}, {})", place(top_deny), with_commas(hits[top_deny].packets));
    if (line.size() + one.size() > 118) {
      t += line + "\n";
      line = "       ";
    }
    line += one + " ";
  }
  while (line.back() == ' ') line.pop_back();
  t += line;
  t += fmt::format("\n  in {} = out {} + drops {}", with_commas(last.packets_in), with_commas(last.packets_out),
                   with_commas(last.dropped));
  if (top != 0)
    t += fmt::format("; the rule that matched most: {}, {}", place(top), counted(hits[top].packets, "packet"));
  t += "\n  tables:";
  for (const TableLoad& load : loads.loads) {
    t += fmt::format(" {} {} as {}, read {} + built {}, {};", load.kind, with_commas(load.entries),
                     load.algorithm.empty() ? "adjacencies" : load.algorithm, human_seconds(load.parse_seconds),
                     human_seconds(load.build_seconds), human_bytes(static_cast<double>(load.bytes)));
  }
  t.back() = '\n';
  if (folder.kept()) {
    t += fmt::format(
        "  files are in {}; the same by hand:\n    sluice run --acl {} --routes {} --in {} --out {} --default permit\n",
        folder.path(), rules, routes, capture, folder / "out.pcap");
  }
  t += fmt::format("  {} in all\n", human_seconds(whole.seconds()));
  const bool identical = std::all_of(sums.begin(), sums.end(), [&](const std::string& sum) { return sum == sums[0]; });
  json["identical"] = identical;
  json["sha256"] = sums[0];
  json["seconds"] = whole.seconds();
  json["top_rule"] = top == 0 ? Json(nullptr) : Json{{"at", place(top)}, {"packets", hits[top].packets}};
  json["top_deny"] = top_deny == 0 ? Json(nullptr) : Json{{"at", place(top_deny)}, {"packets", hits[top_deny].packets}};
  if (folder.kept()) json["folder"] = folder.path();
  if (json_output()) {
    print_json(json);
  } else {
    print_out(t);
  }
  if (!identical)
    fail(Exit::kCheckFailed, "one worker and two workers wrote different outputs",
         "this is a defect of sluice; please report it");
  return Exit::kOk;
}

}  // namespace

void add_demo(Command root) {
  auto o = std::make_shared<DemoFlags>();
  Command sub = add_subcommand(
      root, "demo", "Tools",
      "Runs the standard graph on generated input of real size: 10,000 rules, a full IPv4 and IPv6 table and mixed "
      "traffic,\nwith one worker, with two and on a GPU if there is one. The outputs must be identical.",
      "sluice demo\nsluice demo --dir demo-out\nsluice demo --packets 50000 --ipv4 10000 --ipv6 2000 --rules 1000 -o "
      "json",
      [o] { return demo(*o); });
  sub->add_option("--dir", o->dir, "Write the files here and keep them")->type_name("DIR");
  sub->add_flag("--keep", o->keep, "Keep the temporary directory and print its name");
  sub->add_option("--packets", o->packets, "Packets of traffic")
      ->check(Range(uint64_t{1000}, uint64_t{100'000'000}))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--rules", o->rules, "Rules")->check(Range(10u, 1'000'000u))->type_name("N")->capture_default_str();
  sub->add_option("--ipv4", o->ipv4, "IPv4 routes")
      ->check(Range(1u, 2'000'000u))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--ipv6", o->ipv6, "IPv6 routes")
      ->check(Range(0u, 2'000'000u))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--seed", o->seed, "Seed of all generated data")->type_name("N")->capture_default_str();
}

}  // namespace sluice::app
