// sluice bench soak: the standard graph for minutes while its tables change. Nothing may be lost, nothing may stop, and
// no packet may meet the tables of two generations.
// host only
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/histogram.h"
#include "base/scope_exit.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "bench.h"
#include "control/machine.h"
#include "control/standard_graph.h"
#include "devices.h"
#include "elements/ip_input/stage.h"
#include "generate/routes.h"
#include "generate/rules.h"
#include "generate/traffic.h"
#include "net/text.h"
#include "pipeline.h"
#include "ports/pcap/capture_writer.h"

namespace sluice::app {
namespace {

// Addresses are of one of four classes, by their /8 (IPv6: /10) modulo 4, and generation g is of variant g mod 4: its
// access list permits destinations of its own class alone, its routes know them alone, and its adjacencies forward the
// next hops of its own class alone. Every batch holds as many packets of each class. So a quarter of all packets leave
// and three quarters match no rule, exactly; any other end of a packet says that two generations met. Four, so that a
// generation differs from the three before it: there are two program slots on a device.
constexpr uint32_t kVariants = 4;
constexpr unsigned kClassBits4 = 8, kClassBits6 = 10;
constexpr uint32_t kHops = 64;  // of each class
constexpr uint32_t kPackets = 65'536;

struct SoakOptions {
  DeviceFlags device;
  double minutes = 10;
  uint64_t swaps = 1000, seed = 1;
  uint32_t rules = 2'000, routes = 50'000, batch = 256, size = 64;
  unsigned workers = 1;
  bool shared = false;
  std::string algorithm, route_algorithm, name;
  std::string spoil;  // hidden: "rules" or "adjacencies" of another generation, or a packet "lost" in the count
};

void set_class(IpAddress& a, uint32_t variant) {
  if (a.family == 4) {
    a.lo = (a.lo & ~(uint64_t{3} << (32 - kClassBits4))) | uint64_t{variant} << (32 - kClassBits4);
  } else {
    a.hi = (a.hi & ~(uint64_t{3} << (64 - kClassBits6))) | uint64_t{variant} << (64 - kClassBits6);
  }
}

uint32_t class_of(const IpAddress& a) {
  return static_cast<uint32_t>(a.family == 4 ? a.lo >> (32 - kClassBits4) : a.hi >> (64 - kClassBits6)) & 3;
}

// The blocks that a class is made of.
std::vector<IpPrefix> blocks(uint32_t variant) {
  std::vector<IpPrefix> all;
  for (uint64_t octet = variant; octet < 224; octet += kVariants) {
    if (octet == 0 || octet == 10 || octet == 127) continue;
    all.push_back({{0, octet << (32 - kClassBits4), 4}, kClassBits4});
  }
  for (uint64_t top = 128 + variant; top < 256; top += kVariants)
    all.push_back({{top << (64 - kClassBits6), 0, 6}, kClassBits6});
  return all;
}

// The tables of one variant as text, and where packets of its class go.
struct Variant {
  std::string rules, routes, adjacencies;
  std::vector<FlowRegion> regions;
  std::vector<IpPrefix> destinations;
};

Variant make_variant(const SoakOptions& o, uint32_t v, const std::vector<GeneratedRoute>& routes) {
  Variant made;
  RulesOptions r;
  r.count = o.rules;
  r.seed = o.seed + v;
  r.ipv6_fraction = 0.2;
  made.regions = need(generate_rule_regions(r), Exit::kUsage);
  for (FlowRegion& region : made.regions) {
    IpPrefix& dst = region.dst;
    if (dst.address.family == 0) {
      dst.address.family = region.src.address.family == 6 ? 6 : 4;
      if (dst.address.family == 6) dst.address.hi = uint64_t{1} << 61;
    }
    const unsigned least = dst.address.family == 4 ? kClassBits4 : kClassBits6;
    if (dst.address.family == 4 && dst.length < least) dst.address.lo |= uint64_t{64} << (32 - kClassBits4);
    dst.length = static_cast<uint8_t>(std::max<unsigned>(dst.length, least));
    set_class(dst.address, v);
    // A region of one family on one side is of that family on both.
    if (region.src.address.family == 0) region.src.address.family = dst.address.family;
  }
  const std::string text = need(to_native(made.regions, o.seed));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1);
    const std::string line = text.substr(at, end + 1 - at);
    made.rules += line.rfind("deny ", 0) == 0 ? "permit " + line.substr(5) : line;
    at = end + 1;
  }
  for (const IpPrefix& block : blocks(v)) made.rules += fmt::format("permit ip from any to {}\n", to_string(block));

  // All next hops are named first and in the same order, so that an id means the same in every variant.
  for (uint32_t c = 0; c < kVariants; ++c) {
    for (uint32_t h = 0; h < kHops; ++h) {
      made.routes += fmt::format("10.0.{}.{}/32 c{}h{}\n", c, h, c, h);
      made.adjacencies += c == v ? fmt::format("c{0}h{1} 02:00:00:{0:02x}:{1:02x}:01 02:00:00:00:00:01 {0}\n", c, h)
                                 : fmt::format("c{}h{} drop\n", c, h);
    }
  }
  for (const IpPrefix& block : blocks(v)) made.routes += fmt::format("{} c{}h0\n", to_string(block), v);
  std::vector<const GeneratedRoute*> mine;
  for (const GeneratedRoute& route : routes) {
    const bool long_enough = route.prefix.length > (route.prefix.address.family == 4 ? kClassBits4 : kClassBits6);
    if (long_enough && class_of(route.prefix.address) == v) mine.push_back(&route);
  }
  // Classes have unequal shares of a table: as many of each, evenly drawn.
  const size_t wanted = std::min<size_t>(mine.size(), o.routes);
  for (size_t i = 0; i < wanted; ++i) {
    const GeneratedRoute& route = *mine[i * mine.size() / wanted];
    made.routes += fmt::format("{} c{}h{}\n", to_string(route.prefix), v, route.next_hop % kHops);
    made.destinations.push_back(route.prefix);
  }
  return made;
}

// Packets of the four classes in turn, half of each by its rules and half by its routes.
void write_capture(const SoakOptions& o, const std::vector<Variant>& variants, const std::string& path) {
  std::vector<TrafficGenerator> by_rule, by_route;
  for (const Variant& v : variants) {
    TrafficOptions t;
    t.packets = kPackets;
    t.flows = kPackets;
    t.zipf = 0;
    t.size_mix = SizeMix::kFixed;
    t.fixed_bytes = o.size;
    t.seed = o.seed;
    t.regions = v.regions;
    by_rule.push_back(need(TrafficGenerator::create(t)));
    t.regions.clear();
    t.destinations = v.destinations;
    by_route.push_back(need(TrafficGenerator::create(t)));
  }
  auto writer = need(CaptureWriter::create(path), Exit::kIo);
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  for (uint32_t i = 0; i < kPackets; ++i) {
    auto& generator = (i / kVariants % 2 == 0 ? by_rule : by_route)[i % kVariants];
    FrameHeader header;
    uint32_t tries = 0;
    // Only packets that pass the header checks, and lie in a block of their class.
    for (bool good = false; !good; ++tries) {
      if (tries == 10'000) fail(Exit::kCheckFailed, "no packet can be made for these rules and routes");
      header = generator.next(frame.data());
      Packet p;
      p.frame = frame.data();
      p.end = header.captured;
      p.wire_end = header.wire_bytes;
      if (IpInputStage{}(p) != 0) continue;
      if (p.key.family == 4) {
        const uint64_t octet = p.key.dst_lo >> (32 - kClassBits4);
        good = octet != 10 && octet < 224;
      } else {
        good = p.key.dst_hi >> 61 == 1;
      }
    }
    if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
  }
  need(writer.commit(), Exit::kIo);
}

// What is wrong with the ends that packets came to.
struct Tally {
  uint64_t in = 0, out = 0, denied = 0, elsewhere = 0, lost = 0;
  void add(const RunReport& r) {
    in += r.packets_in;
    out += r.packets_out;
    for (size_t i = 0; i < kDropReasons; ++i) {
      (i == static_cast<size_t>(DropReason::kAclNoMatch) ? denied : elsewhere) += r.drops[i];
    }
    const uint64_t ended = r.packets_out + r.dropped;
    const uint64_t began = r.packets_in + r.generated;
    lost += began > ended ? began - ended : ended - began;
  }
  // Packets that came to an end that no single generation gives them; at least so many.
  uint64_t mixed() const {
    const uint64_t want = in / kVariants * (kVariants - 1);
    return std::max(elsewhere, denied > want ? denied - want : want - denied);
  }
};

Exit bench_soak(const SoakOptions& o) {
  if (o.batch % kVariants != 0)
    fail(Exit::kUsage, fmt::format("--batch: {} is not a multiple of {}", o.batch, kVariants),
         "every batch holds the same number of packets of each generation");
  const OpenDevices devices = open_devices(o.device);
  const std::string algorithm = acl_algorithm_on(devices, o.algorithm);
  const LpmNames names = check_lpm_algorithms(o.route_algorithm);
  TemporaryFolder folder;
  Progress progress("");
  progress.step("generating tables and traffic");
  RoutesOptions ro;
  ro.ipv4_count = std::min(2'000'000u, 6 * (o.routes - o.routes / 8));
  ro.ipv6_count = std::min(2'000'000u, 6 * (o.routes / 8));
  ro.seed = o.seed;
  Sha256 hash;
  std::vector<Variant> variants;
  {
    const std::vector<GeneratedRoute> routes = need(generate_route_list(ro), Exit::kUsage);
    for (uint32_t v = 0; v < kVariants; ++v) {
      variants.push_back(make_variant(o, v, routes));
      for (const std::string* text : {&variants[v].rules, &variants[v].routes, &variants[v].adjacencies})
        hash.update(*text);
    }
  }
  StandardGraph g;
  g.acl = folder / "rules";
  g.acl_algorithm = algorithm;
  g.routes = {folder / "routes"};
  g.adjacencies = {folder / "adjacencies"};
  g.route_algorithm = names.algorithm4;
  g.route_algorithm6 = names.algorithm6;
  g.in = folder / "in.pcap";
  g.in_memory = true;
  g.limit = 1'000'000'000'000'000;
  write_capture(o, variants, g.in);
  hash.update(need(sha256_of_file(g.in), Exit::kIo));
  stop_if_interrupted();
  auto pipeline = parse_pipeline(need(standard_graph_text(g)), "standard graph", {});
  std::array<TableSet, kVariants> tables;
  size_t table_bytes = 0;
  for (uint32_t v = 0; v < kVariants; ++v) {
    write_text(folder / "rules", variants[v].rules);
    write_text(folder / "routes", variants[v].routes);
    write_text(folder / "adjacencies", variants[v].adjacencies);
    load_pipeline_tables(*pipeline, {});
    tables[v] = pipeline->tables;
  }
  for (const auto* kind : {&tables[0].acls, &tables[0].routes, &tables[0].adjacencies}) {
    for (const auto& [name, image] : *kind) table_bytes += image->bytes().size();
  }
  const size_t route_count = variants[0].destinations.size();
  variants.clear();
  pipeline->tables = {};

  // The check of the check: each variant by itself, on the CPU, brings every packet to its proper end.
  for (uint32_t v = 0; v < kVariants; ++v) {
    progress.step(fmt::format("checking variant {}", v));
    pipeline->tables = tables[v];
    RunOptions options;
    options.max_packets = kPackets;
    const PipelineRun once = run_pipeline(*pipeline, options);
    if (once.interrupted) fail(Exit::kInterrupted, "interrupted");
    Tally tally;
    tally.add(once.report);
    if (tally.mixed() != 0 || tally.out * kVariants != tally.in || tally.in < kPackets)
      fail(Exit::kCheckFailed, fmt::format("variant {} alone: {} packets in, {} out, {} denied; {}", v, tally.in,
                                           tally.out, tally.denied, drops_text(once.report.drops)));
  }
  pipeline->tables = {};
  auto bind = [&](uint64_t generation) {
    const auto v = static_cast<uint32_t>(generation % kVariants);
    TableSet set = tables[v];
    if (!o.spoil.empty() && generation == 1) {
      const TableSet& other = tables[(v + 1) % kVariants];
      if (o.spoil == "rules") set.acls = other.acls;
      if (o.spoil == "adjacencies") set.adjacencies = other.adjacencies;
    }
    return need(bind_plan(pipeline->plan, pipeline->router, std::move(set)));
  };

  // Workers are independent, as with one receive queue each, or share one reader.
  const unsigned lines = o.shared ? 1 : o.workers;
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<Engine>> runtimes;
  // A cache line each.
  struct alignas(64) Count {
    std::atomic<uint64_t> packets{0};
  };
  std::vector<Count> counts(lines);
  for (unsigned l = 0; l < lines; ++l) {
    RunOptions options;
    options.workers = o.shared ? o.workers : 1;
    options.batch = o.batch;
    options.stop = &stop;
    options.progress = [&counts, l](uint64_t packets) { counts[l].packets.store(packets, std::memory_order_relaxed); };
    options.device = devices.options;
    if (!devices.options.devices.empty() && !o.shared) {
      options.device.devices = {devices.options.devices[l % devices.options.devices.size()]};
    }
    runtimes.push_back(need(Engine::create(pipeline->router, pipeline->plan, options)));
    runtimes.back()->publisher().publish(bind(0));
  }
  std::vector<RunReport> reports(lines);
  std::vector<std::exception_ptr> failures(lines);
  std::atomic<unsigned> running{lines};
  Histogram publish, all_lines;
  uint64_t done = 0, out_of_turn = 0, unseen = 0;
  const double seconds = o.minutes * 60;
  const Stopwatch watch;
  {
    std::vector<std::jthread> threads;
    threads.reserve(lines);
    // However this ends, the threads are told.
    const ScopeExit stop_at_end([&stop] { stop = true; });
    for (unsigned l = 0; l < lines; ++l) {
      threads.push_back(need(start_thread([&, l] {
                               try {
                                 need(runtimes[l]->run(reports[l]));
                               } catch (...) {
                                 failures[l] = std::current_exception();
                               }
                               --running;
                             }),
                             Exit::kIo));
    }
    const auto ns = [](auto d) {
      return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count());
    };
    std::vector<uint64_t> before(lines);
    double told = 0;
    auto more = [&] { return !interrupted().load() && running.load() == lines; };
    auto wait_until = [&](double at) {
      while (more() && watch.seconds() < at) {
        std::this_thread::sleep_for(std::chrono::duration<double>(std::clamp(at - watch.seconds(), 0.0, 0.1)));
        if (watch.seconds() - told < 1) continue;
        told = watch.seconds();
        uint64_t packets = 0;
        for (const Count& c : counts) packets += c.packets.load(std::memory_order_relaxed);
        progress.step(
            fmt::format("{:.0f} of {:.0f} s, {} swaps, {} packets", told, seconds, done, with_commas(packets)));
      }
    };
    // A machine that cannot keep up gets as long again.
    while (done < o.swaps && more() && watch.seconds() < 2 * seconds + 10) {
      wait_until(seconds * static_cast<double>(done + 1) / static_cast<double>(o.swaps + 1));
      if (!more()) break;
      // A generation that no packet met would say nothing.
      for (unsigned l = 0; l < lines; ++l) {
        const uint64_t now = counts[l].packets.load(std::memory_order_relaxed);
        unseen += now == before[l] ? 1 : 0;
        before[l] = now;
      }
      const uint64_t generation = done + 1;
      const auto begin_all = std::chrono::steady_clock::now();
      uint64_t bound_ns = 0;
      for (auto& runtime : runtimes) {
        const auto begin_bind = std::chrono::steady_clock::now();
        auto snapshot = bind(generation);
        const auto begin = std::chrono::steady_clock::now();
        bound_ns += ns(begin - begin_bind);
        out_of_turn += runtime->publisher().publish(std::move(snapshot)) != generation + 1 ? 1 : 0;
        publish.record(ns(std::chrono::steady_clock::now() - begin));
      }
      all_lines.record(ns(std::chrono::steady_clock::now() - begin_all) - bound_ns);
      ++done;
    }
    wait_until(seconds);
  }
  const double took = watch.seconds();
  progress.clear();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }

  Tally tally;
  DeviceCounters offload;
  uint64_t refused = 0, switches = 0;
  std::vector<std::string> device_failures;
  Json device_reports = Json::array();
  std::array<uint64_t, kDropReasons> drops{};
  std::vector<uint64_t> left(kVariants);
  Histogram latency;
  for (const RunReport& r : reports) {
    tally.add(r);
    offload.add(r.offload);
    latency.merge(r.totals.latency);
    for (size_t i = 0; i < kDropReasons; ++i) drops[i] += r.drops[i];
    for (const auto& [port, counters] : r.ports) {
      if (port < kVariants) left[port] += counters.packets;
    }
    for (const DeviceReport& d : r.devices) {
      refused += d.refused_generations;
      switches += d.channels.switches;
      if (!d.failure.empty())
        device_failures.push_back(fmt::format("{}:{}: {}", d.info.kind, d.info.ordinal, d.failure));
      device_reports.push_back(to_json(d));
    }
  }
  if (o.spoil == "lost") ++tally.lost;
  std::vector<std::string> wrong;
  auto check = [&](bool good, std::string what) {
    if (!good) wrong.push_back(std::move(what));
  };
  check(tally.mixed() == 0, fmt::format("{} packets met tables of two generations", with_commas(tally.mixed())));
  check(tally.lost == 0, fmt::format("{} packets were lost", with_commas(tally.lost)));
  check(tally.in != 0, "no packet was received");
  check(done == o.swaps || interrupted().load(), fmt::format("{} of {} swaps were done", done, o.swaps));
  check(out_of_turn == 0, fmt::format("{} generations did not become current in order", out_of_turn));
  check(unseen == 0, fmt::format("in {} cases no packet was processed between two swaps", unseen));
  check(refused == 0, fmt::format("a device refused {} generations", refused));
  check(offload.rescued == 0, fmt::format("{} packets had to be rescued from a device", with_commas(offload.rescued)));
  for (const std::string& failure : device_failures) check(false, "device " + failure);
  if (!devices.options.devices.empty()) {
    check(offload.offloaded != 0 && offload.on_host == 0,
          fmt::format("a device answered {} packets and the host {} of its segments", with_commas(offload.offloaded),
                      with_commas(offload.on_host)));
  }
  for (uint32_t v = 0; v < std::min<uint64_t>(kVariants, done + 1); ++v)
    check(left[v] != 0, fmt::format("no packet left under variant {}", v));

  const double rate = static_cast<double>(tally.in) / took;
  const auto times = [](const Histogram& h, double unit) {
    return Json{{"p50", static_cast<double>(h.percentile(50)) / unit},
                {"p99", static_cast<double>(h.percentile(99)) / unit},
                {"max", static_cast<double>(h.max()) / unit}};
  };
  if (json_output()) {
    Json json{{"schema", 1},
              {"name", o.name.empty() ? "bench_soak" : o.name},
              {"when", now_utc()},
              {"command", command_line()},
              {"machine", to_json(describe_machine())},
              {"git", sluice_revision()},
              {"seed", o.seed},
              {"input_hash", "sha256:" + hash.finish()},
              {"defaults", defaults_left({.lists = o.algorithm.empty(), .routes = o.route_algorithm.empty()},
                                         !devices.options.devices.empty())},
              {"checked", fmt::format("{} of {} packets were processed with the tables of one generation",
                                      with_commas(tally.in - std::min(tally.in, tally.mixed() + tally.lost)),
                                      with_commas(tally.in))},
              {"device", devices.label},
              {"mode", devices.options.devices.empty() ? "cpu" : to_string(devices.options.mode)},
              {"transport",
               devices.options.mode == DeviceMode::kPersistent ? "tagged" : to_string(devices.options.transport)},
              {"workers", o.workers},
              {"shared_reader", o.shared},
              {"batch", o.batch},
              {"rules", o.rules},
              {"routes", route_count},
              {"table_bytes", table_bytes},
              {"seconds", took},
              {"packets", tally.in},
              {"packets_per_second", rate},
              {"packets_out", tally.out},
              {"packets_denied", tally.denied},
              {"packets_mixed", tally.mixed()},
              {"packets_lost", tally.lost},
              {"swaps_asked", o.swaps},
              {"swaps", done},
              {"publish_ms", times(publish, 1e6)},
              {"swap_ms", times(all_lines, 1e6)},
              {"batch_us", times(latency, 1e3)},
              {"offloaded", offload.offloaded},
              {"on_host", offload.on_host},
              {"redone", offload.redone},
              {"rescued", offload.rescued},
              {"refused_generations", refused},
              {"mode_switches", switches},
              {"devices", device_reports},
              {"wrong", wrong}};
    const double mpps = rate * 1e-6;
    json["results"] = Json::array(
        {{{"case", fmt::format("standard graph, {}, x{}", json["mode"].get<std::string>(), o.workers)},
          {"unit", "Mpackets/s"},
          {"median", mpps},
          {"min", mpps},
          {"max", mpps},
          {"n", 1},
          {"note", fmt::format("{} table changes in {:.0f} s; of {} packets {} lost, {} mixed; a change took effect in "
                               "{:.1f} ms (p99 {:.1f}) in all {} runtimes, {:.1f} ms in one",
                               done, took, with_commas(tally.in), with_commas(tally.lost), with_commas(tally.mixed()),
                               static_cast<double>(all_lines.percentile(50)) * 1e-6,
                               static_cast<double>(all_lines.percentile(99)) * 1e-6, lines,
                               static_cast<double>(publish.percentile(50)) * 1e-6)}}});
    const std::string gpu = gpu_name(devices);
    json["machine"]["gpu"] = gpu.empty() ? Json(nullptr) : Json(gpu);
    print_json(json);
  } else {
    const Machine m = describe_machine();
    const auto line = [&](const Histogram& h, double unit, const char* name) {
      return fmt::format("p50 {:.3f} {}, p99 {:.3f} {}, max {:.3f} {}", static_cast<double>(h.percentile(50)) / unit,
                         name, static_cast<double>(h.percentile(99)) / unit, name, static_cast<double>(h.max()) / unit,
                         name);
    };
    std::string text = fmt::format(
        "time      {} on {} x{}{}{}\n"
        "packets   {} in, {}; {} out, {} denied\n"
        "mixed     {}\n"
        "lost      {}\n"
        "swaps     {} of {}; {} rules, {} routes, {} each\n",
        human_seconds(took), devices.label, o.workers, o.shared ? " behind one reader" : "",
        devices.options.devices.empty() ? "" : fmt::format(", mode {}", to_string(devices.options.mode)),
        with_commas(tally.in), human_rate(rate, "packets"), with_commas(tally.out), with_commas(tally.denied),
        with_commas(tally.mixed()), with_commas(tally.lost), with_commas(done), with_commas(o.swaps),
        with_commas(o.rules), with_commas(route_count), human_bytes(static_cast<double>(table_bytes)));
    if (done != 0) {
      text += "publish   " + line(publish, 1e6, "ms") + "\n";
      if (lines > 1) text += "swap      " + line(all_lines, 1e6, "ms") + fmt::format(" ({} publications)\n", lines);
    }
    text += "batch     " + line(latency, 1e3, "us") + "\n";
    if (!devices.options.devices.empty()) {
      text += fmt::format("device    {} packets there, {} on the host, {} redone, {} rescued; {} mode switches; {}\n",
                          with_commas(offload.offloaded), with_commas(offload.on_host), with_commas(offload.redone),
                          with_commas(offload.rescued), with_commas(switches),
                          device_failures.empty() ? "no failure" : fmt::format("{} failures", device_failures.size()));
    }
    for (const std::string& what : wrong) text += "WRONG     " + what + "\n";
    if (tally.elsewhere != 0) text += "drops     " + drops_text(drops) + "\n";
    text += fmt::format("{}, {} cores, {}, {}; seed {}\n", m.cpu, m.cores, m.compiler, m.build_type, o.seed);
    print_out(text);
  }
  if (!wrong.empty()) return Exit::kCheckFailed;
  return interrupted().load() ? Exit::kInterrupted : Exit::kOk;
}

}  // namespace

void add_bench_soak(Command bench) {
  auto o = std::make_shared<SoakOptions>();
  o->device.device = "auto";
  o->device.mode = "persistent";
  Command sub = add_subcommand(
      bench, "soak", "Subcommands",
      "Runs the standard graph for minutes while its tables change at even intervals. Each generation's rules, routes "
      "and\nadjacencies pass different packets, so that packets that meet tables of two generations, and lost packets, "
      "are\ncounted. Any of them, or a device failure, ends it with exit code 5.",
      "sluice bench soak --device cuda --mode persistent --minutes 10 --swaps 1000\nsluice bench soak --device emu "
      "--minutes 0.2 --swaps 50",
      [o] { return bench_soak(*o); });
  add_device_options(*sub, o->device, true);
  sub->add_option("--minutes", o->minutes, "How long to run")
      ->check(Range(0.001, 100'000.0))
      ->type_name("MINUTES")
      ->capture_default_str();
  sub->add_option("--swaps", o->swaps, "Table changes, at even intervals")
      ->check(Range(uint64_t{0}, uint64_t{100'000'000}))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--rules", o->rules, "Rules of each generation's access list")
      ->check(Range(10u, 1'000'000u))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--routes", o->routes,
                  "Routes of each generation, or fewer if that many cannot be generated; about an eighth is IPv6")
      ->check(Range(1000u, 500'000u))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--algorithm", o->algorithm, "ACL algorithm")->type_name("NAME");
  sub->add_option("--route-algorithm", o->route_algorithm, "Route algorithms")->type_name("A4[,A6]");
  sub->add_option("--size", o->size, "Frame size with FCS")
      ->check(Range(64u, 1518u))
      ->type_name("BYTES")
      ->capture_default_str();
  sub->add_option("--batch", o->batch, "Packets per batch, a multiple of 4")
      ->check(Range(4, 4096))
      ->type_name("N")
      ->capture_default_str();
  add_workers_option(*sub, o->workers);
  sub->add_flag("--shared-reader", o->shared,
                "One reader feeds all workers, as in run; otherwise each has its own input");
  sub->add_option("--seed", o->seed, "Seed of all generated data")->type_name("N")->capture_default_str();
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_soak)")->type_name("NAME");
  sub->add_option("--spoil", o->spoil, "")->check(OneOf{{"rules", "adjacencies", "lost"}})->group("");
}

}  // namespace sluice::app
