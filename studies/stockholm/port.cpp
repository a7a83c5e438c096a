// `sluice bench port`: the whole way of packets to a port: three classes by codepoint, a table of 4,000 random routes,
// TTL, checksum, link addresses, a shaper a class and one for the port. host only
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "apps/bench/bench.h"
#include "apps/sluice/pipeline.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "exec/device/offload.h"
#include "exec/device/resident.h"
#include "generate/routes.h"
#include "generate/traffic.h"
#include "net/edit.h"
#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_writer.h"
#include "qos/departure_scan.h"
#include "studies/cuda/resident.h"
#include "studies/stockholm/cuda/priority_port.h"

namespace sluice::app {
namespace {

struct PortBenchOptions : BenchOptions {
  std::vector<unsigned> mix = {34, 33, 33};  // parts of the classes
  bool persistent = false;                   // also with groups of lanes that take chunks by class
  bool soak = false;                         // of these, two long rows alone: unshaped and shaped
  double seconds = 0.5;                      // a row of these
  uint32_t frames_kept = 0;                  // frames in the device's memory; 0: past what it caches
};

constexpr uint8_t kPortCodepoints[] = {46, 34, 0};  // of the classes 0, 1 and 2

std::string write_capture(const PortBenchOptions& o, const std::string& file, uint32_t size,
                          const std::vector<IpPrefix>& destinations) {
  TrafficOptions t;
  t.flows = 65'536;
  t.zipf = 0;
  t.size_mix = SizeMix::kFixed;
  t.fixed_bytes = size;
  t.seed = o.seed;
  t.destinations = destinations;
  unsigned parts = 0;
  for (const unsigned part : o.mix) parts += part;
  auto writer = need(CaptureWriter::create(file), Exit::kIo);
  TrafficGenerator generator = need(TrafficGenerator::create(t));
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  uint64_t state = o.seed;
  for (uint32_t i = 0; i < 65'536; ++i) {
    const FrameHeader header = generator.next(frame.data());
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto draw = static_cast<unsigned>((state >> 33) % parts);
    size_t c = 0;
    while (draw >= o.mix[c]) draw -= o.mix[c++];
    set_dscp(frame.data() + 14, 4, kPortCodepoints[c]);
    if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
  }
  need(writer.commit(), Exit::kIo);
  return file;
}

// `tail`: what comes between the edits and the sink.
std::string graph_text(const std::string& routes, const std::string& source, const std::string& tail,
                       const std::string& sink, bool classify) {
  std::string text = fmt::format("RouteTable(fib, FILE {}, ALGORITHM dir24, ALGORITHM6 poptrie);\n", routes) +
                     "AdjacencyTable(adj, ROUTES fib);\n" + "in :: " + source + " -> input :: IPInput -> ";
  text += classify ? "c :: ClassifyDSCP; c[0] -> route :: IPRoute(TABLE fib); c[1] -> route; c[2] -> route;\nroute"
                   : "route :: IPRoute(TABLE fib)";
  return text + " -> ttl :: DecIPTTL -> rewrite :: AdjacencyRewrite(TABLE adj)" + tail + " -> out :: " + sink + ";\n";
}

// What a graph makes of the first `packets` of its input, which it writes to `file`; without devices by the plain path.
std::string outcome_of(const std::string& text, const OpenDevices* devices, uint64_t packets, const std::string& file) {
  auto pipeline = parse_pipeline(text, "port", {});
  load_pipeline_tables(*pipeline, {});
  RunOptions options;
  options.max_packets = packets;
  options.fast_path = devices != nullptr;
  if (devices != nullptr) options.device = devices->options;
  const PipelineRun done = run_pipeline(*pipeline, options);
  if (done.interrupted) fail(Exit::kInterrupted, "interrupted");
  return need(sha256_of_file(file), Exit::kIo) + drops_text(done.report.drops);
}

// How the port is shaped and policed: names of the rows.
struct PortCase {
  const char* name;
  uint64_t class_bps, port_bps;
  uint64_t offered_bps;
  // A policer a class: of one rate, of two, and of one again.
  uint64_t police_bps = 0, peak_bps = 0;  // 0: not policed
};
constexpr PortCase kPortCases[] = {
    {"unshaped", 0, 0, 0},
    // Every schedule is kept, and nobody has to wait.
    {"open", 200'000'000'000, 400'000'000'000, 200'000'000'000},
    // Twice as much comes as may leave.
    {"limited", 40'000'000'000, 100'000'000'000, 200'000'000'000},
    // Nobody is red, and then many are.
    {"policed/green", 0, 0, 200'000'000'000, 300'000'000'000, 300'000'000'000},
    {"policed/red", 0, 0, 200'000'000'000, 20'000'000'000, 40'000'000'000},
    {"policed/limited", 40'000'000'000, 100'000'000'000, 200'000'000'000, 20'000'000'000, 40'000'000'000},
};

void add_device_rows(const PortBenchOptions& o, const OpenDevices& devices, const Pipeline& pipeline,
                     const std::string& capture, uint32_t size, std::vector<Case>& cases, Verified& verified,
                     Progress& progress) {
  if (const std::string lack = no_cuda_device(devices); !lack.empty()) {
    if (o.device_only) cases.push_back(unmeasured(fmt::format("port/{}B/resident", size), lack));
    return;
  }
  Device& device = *devices.options.devices[0];
  auto snapshot = need(bind_plan(pipeline.plan, pipeline.router, pipeline.tables));
  const std::vector<Offload> offloads = plan_offloads(pipeline.plan, pipeline.router, RecordChoice::kFrame);
  const PlanNode& node = pipeline.plan.nodes.at(0);
  auto resident = make_resident(device, *snapshot, pipeline.plan, offloads);
  if (!resident) fail(Exit::kUnavailable, resident.error());
  const FrameStore store = need(FrameStore::load(capture));
  ResidentFrames frames;
  frames.stride = (size + 63) / 64 * 64;  // nothing is appended
  const uint64_t kept = o.frames_kept != 0 ? o.frames_kept : (size_t{1} << 28) / frames.stride;
  const uint64_t count = std::max<uint64_t>(1, kept / store.size()) * store.size();
  frames.bytes.resize(ResidentFrames::kLead + count * frames.stride);
  frames.lengths.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t from = i % store.size();
    frames.lengths[i] = store.captured()[from];
    std::memcpy(frames.bytes.data() + ResidentFrames::kLead + i * frames.stride, store.frame(from), frames.lengths[i]);
  }
  const std::vector<uint8_t> pristine = frames.bytes;
  // What the host makes of the same frames.
  const DeviceProgram program = device_program(node, snapshot->programs[node.program], offloads[0]);
  std::vector<uint8_t> want(pristine.begin(), pristine.begin() + static_cast<ptrdiff_t>(ResidentFrames::kLead +
                                                                                        store.size() * frames.stride));
  struct Seen {
    uint32_t outcome, bytes, ip_bytes;
    uint8_t paint;
  };
  std::vector<Seen> seen(store.size());
  for (uint64_t i = 0; i < store.size(); ++i) {
    Walker w;
    w.packet.frame = want.data() + ResidentFrames::kLead + i * frames.stride;
    w.packet.end = w.packet.wire_end = frames.lengths[i];
    w.path = program.begin;
    walk_alone(program, w);
    seen[i] = {frame_outcome(w), w.packet.wire_length(),
               policed_bytes(true, w.packet.data, w.packet.l3, w.packet.wire_end), w.packet.paint};
  }
  for (const PortCase& how : kPortCases) {
    ResidentPort port;
    port.port.classes = 3;
    const uint64_t epoch = 1'000'000;
    for (unsigned s = 0; s < port.port.schedules(); ++s)
      port.port.rates[s] = DepartureRate::of(s == port.port.port() ? how.port_bps : how.class_bps, 3000, epoch);
    port.policed = how.police_bps != 0;
    for (unsigned c = 0; port.policed && c < ResidentPort::kClasses; ++c) {
      PolicerConfig& police = port.police[c];
      police.two_rates = c == 1 ? 1 : 0;
      police.committed_bps = how.police_bps;
      police.peak_bps = c == 1 ? how.peak_bps : 0;
      police.committed_burst_bytes = 100 * size;
      police.excess_burst_bytes = 300 * size;
    }
    const bool stamped = port.policed || !port.port.unlimited();
    if (stamped) {
      const double chunk_ns =
          static_cast<double>(size) * 8 * ResidentPort::kChunk * 1e9 / static_cast<double>(how.offered_bps);
      for (uint64_t c = 0; c * ResidentPort::kChunk < count; ++c)
        port.arrivals_ns.push_back(epoch + static_cast<uint64_t>(static_cast<double>(c) * chunk_ns));
    }
    for (const bool fed : {false, true}) {
      const std::string name = fmt::format("port/{}B/{}/{}", size, fed ? "fed" : "resident", how.name);
      progress.step(name);
      frames.bytes = pristine;
      std::vector<uint32_t> got(count);
      const std::vector<double> rates = need(
          resident_port(device, (*resident)->programs[0], frames, port, fed, got.data(), std::max(5u, o.repetitions)));
      // One owner, one packet after another.
      uint64_t words[PortSchedules::kMost] = {};
      PolicerState buckets[ResidentPort::kClasses];
      for (unsigned c = 0; port.policed && c < ResidentPort::kClasses; ++c)
        buckets[c] = PolicerState::full(port.police[c], port.arrivals_ns[0]);
      uint64_t wrong = 0, waited = 0, colors[kColors] = {};
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t from = i % store.size();
        const Seen& s = seen[from];
        uint32_t outcome = s.outcome;
        const bool comes = resident_left(s.outcome, 5);
        const uint64_t now = stamped ? port.arrivals_ns[i / ResidentPort::kChunk] : 0;
        Color color = Color::kGreen;
        if (port.policed && comes) {
          color = police(port.police[s.paint], buckets[s.paint], now, s.ip_bytes);
          outcome |= static_cast<uint32_t>(color) << ResidentPort::kColorBit;
          ++colors[static_cast<size_t>(color)];
        }
        bool same = got[i] == outcome &&
                    std::memcmp(frames.bytes.data() + ResidentFrames::kLead + i * frames.stride,
                                want.data() + ResidentFrames::kLead + from * frames.stride, frames.lengths[i]) == 0;
        if (stamped) {
          uint64_t at = color == Color::kRed ? ResidentPort::kPoliced : ResidentPort::kLost;
          if (comes && color != Color::kRed) {
            const unsigned p = port.port.port();
            at = std::max(stamp(port.port.rates[s.paint], words[s.paint], now, s.bytes),
                          stamp(port.port.rates[p], words[p], now, s.bytes));
            waited += at > now ? 1 : 0;
          }
          same &= port.departures_ns[i] == at;
        }
        wrong += same ? 0 : 1;
      }
      if (o.spoil) ++wrong;
      verified.sample += count;
      verified.mismatches += wrong;
      if (wrong != 0)
        fail(Exit::kCheckFailed, fmt::format("{}: {} of {} frames differ from the host's", name, wrong, count));
      Case c{name, "Mpackets/s", {}};
      for (const double rate : rates) c.values.push_back(rate * 1e-6);
      c.more = {{"frames", count}, {"stride", frames.stride}, {"waited", waited}};
      if (port.policed) c.more["colors"] = colors;
      cases.push_back(std::move(c));
    }
  }
}

// Groups of lanes that never stop, fed by one thread out of host memory.
void add_persistent_rows(const PortBenchOptions& o, const OpenDevices& devices, const Pipeline& pipeline,
                         const std::string& capture, uint32_t size, std::vector<Case>& cases, Verified& verified,
                         Progress& progress) {
  std::string lack = no_cuda_device(devices);
  if (size < 64) lack = "frames are too short: 64 bytes at least";
  if (!lack.empty()) {
    cases.push_back(unmeasured(fmt::format("port/{}B/persistent", size), lack));
    return;
  }
  Device& device = *devices.options.devices[0];
  auto snapshot = need(bind_plan(pipeline.plan, pipeline.router, pipeline.tables));
  const std::vector<Offload> offloads = plan_offloads(pipeline.plan, pipeline.router, RecordChoice::kFrame);
  const PlanNode& node = pipeline.plan.nodes.at(0);
  auto resident = make_resident(device, *snapshot, pipeline.plan, offloads);
  if (!resident) fail(Exit::kUnavailable, resident.error());
  const DeviceProgram program = device_program(node, snapshot->programs[node.program], offloads[0]);
  const FrameStore store = need(FrameStore::load(capture));
  std::vector<PriorityPortFrames> frames(3);
  for (uint64_t i = 0; i < store.size(); ++i) {
    const uint8_t dscp = store.frame(i)[15] >> 2;
    PriorityPortFrames& to = frames[dscp == kPortCodepoints[0] ? 0 : dscp == kPortCodepoints[1] ? 1 : 2];
    to.bytes.insert(to.bytes.end(), store.frame(i), store.frame(i) + PriorityPortOptions::kFrameBytes);
    to.lengths.push_back(store.captured()[i]);
  }
  const auto add = [&](const std::string& name, const PriorityPortOptions& p, const std::vector<double>& rates,
                       const PriorityPortReport& last, const DevicePower& power) {
    Case c{name, "Mpackets/s", rates};
    Histogram all;
    Json by_class = Json::array();
    for (unsigned k = 0; k < 3; ++k) {
      all.merge(last.latency_ns[k]);
      if (last.chunks[k] == 0) continue;
      by_class.push_back({{"class", k},
                          {"chunks", last.chunks[k]},
                          {"p50", last.latency_ns[k].percentile(50)},
                          {"p99", last.latency_ns[k].percentile(99)}});
    }
    const uint64_t chunks = last.chunks[0] + last.chunks[1] + last.chunks[2];
    c.more = {{"groups", last.groups},
              {"chunk", p.chunk},
              {"in_flight", p.in_flight},
              {"packets", last.packets},
              {"checked", last.checked},
              {"stolen_part", chunks != 0 ? static_cast<double>(last.stolen) / static_cast<double>(chunks) : 0.0},
              {"latency_ns", {{"min", all.percentile(0)}, {"p50", all.percentile(50)}, {"p99", all.percentile(99)}}},
              {"p50_us", static_cast<double>(all.percentile(50)) * 1e-3},
              {"p99_us", static_cast<double>(all.percentile(99)) * 1e-3},
              {"classes", by_class}};
    if (power.watts >= 0) {
      c.more["watts"] = power.watts;
      if (power.utilisation >= 0) c.more["utilisation"] = power.utilisation;
      c.more["packets_per_joule"] = static_cast<double>(last.packets) / last.seconds / power.watts;
    }
    cases.push_back(std::move(c));
  };
  const auto once = [&](PriorityPortOptions p, bool shaped) {
    p.port.classes = 3;
    for (unsigned s = 0; s < p.port.schedules(); ++s)
      p.port.rates[s] = DepartureRate::of(shaped && s != p.port.port() ? 200'000'000'000 : 0, 3000, now_ns());
    p.duration_ns = static_cast<uint64_t>(o.seconds * 1e9);
    return run_priority_port(device, (*resident)->programs[0], program, frames, p);
  };
  const auto take = [&](const std::string& name, Result<PriorityPortReport> made) {
    PriorityPortReport report = need(std::move(made));
    verified.sample += report.checked;
    verified.mismatches += report.wrong;
    if (report.wrong != 0 || o.spoil) {
      fail(Exit::kCheckFailed,
           fmt::format("{}: {} of {} frames differ from the host's", name, report.wrong, report.checked));
    }
    return report;
  };
  const auto row = [&](const std::string& name, const PriorityPortOptions& p, bool shaped) {
    progress.step(name);
    std::vector<double> rates;
    PriorityPortReport last;
    DevicePower power;
    for (unsigned r = 0; r < o.repetitions; ++r) {
      // What it draws in the middle of the run.
      const std::jthread meter = need(start_thread([&] {
                                        std::this_thread::sleep_for(std::chrono::duration<double>(o.seconds * 0.7));
                                        power = device.power();
                                      }),
                                      Exit::kIo);
      last = take(name, once(p, shaped));
      rates.push_back(static_cast<double>(last.packets) / last.seconds * 1e-6);
    }
    add(name, p, rates, last, power);
  };
  const std::string base = fmt::format("port/{}B/persistent", size);
  PriorityPortOptions p;
  p.mix = {o.mix[0], o.mix[1], o.mix[2]};
  if (o.soak) {
    // Both at once, each on half of the device, each with a thread of the host.
    progress.step(base + "/soak");
    p.groups = 66;
    std::optional<Result<PriorityPortReport>> done[2];
    {
      const std::jthread other = need(start_thread([&] { done[0] = once(p, false); }), Exit::kIo);
      done[1] = once(p, true);
    }
    for (const bool shaped : {false, true}) {
      const std::string name = base + (shaped ? "/soak/shaped" : "/soak/unshaped");
      const PriorityPortReport report = take(name, std::move(*done[shaped ? 1 : 0]));
      add(name, p, {static_cast<double>(report.packets) / report.seconds * 1e-6}, report, {});
      cases.back().more["seconds"] = report.seconds;
    }
    return;
  }
  for (const bool shaped : {false, true}) {
    row(base + (shaped ? "/shaped" : "/unshaped"), p, shaped);
    PriorityPortOptions q = p;
    q.groups = 264;
    q.in_flight = 512;
    row(base + (shaped ? "/shaped/512" : "/unshaped/512"), q, shaped);
  }
  for (const uint32_t groups : {3u, 6u, 12u, 24u, 48u, 66u, 96u, 132u, 264u}) {
    PriorityPortOptions q = p;
    q.groups = groups;
    row(fmt::format("{}/groups/{}", base, groups), q, true);
  }
  for (const auto& mix : {std::vector<uint32_t>{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}, {90, 5, 5}, {5, 5, 90}}) {
    PriorityPortOptions q = p;
    q.mix = mix;
    row(fmt::format("{}/mix/{}", base, fmt::join(mix, "-")), q, true);
  }
  for (const uint32_t chunk : {32u, 64u, 128u, 256u}) {
    PriorityPortOptions alone = p;
    alone.chunk = chunk;
    alone.in_flight = 1;
    alone.groups = 3;
    row(fmt::format("{}/buffer/{}/1/unshaped", base, chunk), alone, false);
    for (const uint32_t in_flight : {1u, 8u, 64u, 192u}) {
      PriorityPortOptions q = p;
      q.chunk = chunk;
      q.in_flight = in_flight;
      // Few groups look when little is to be found.
      if (in_flight <= 8) q.groups = 3 * std::max(1u, in_flight);
      row(fmt::format("{}/buffer/{}/{}", base, chunk, in_flight), q, true);
    }
  }
}

Exit bench_port(PortBenchOptions o) {
  if (o.mix.size() != 3 || o.mix[0] + o.mix[1] + o.mix[2] == 0)
    fail(Exit::kUsage, "--mix: three shares, not all 0", "such as 34,33,33");
  BenchFolder folder;
  Progress progress("");
  Sha256 hash;
  const OpenDevices devices = open_devices(o.device);
  RoutesOptions r;
  r.ipv4_count = o.ipv4;
  r.ipv6_count = 0;
  r.seed = o.seed;
  std::vector<IpPrefix> destinations;
  for (const GeneratedRoute& route : need(generate_route_list(r), Exit::kUsage)) destinations.push_back(route.prefix);
  const std::string routes = folder / "routes";
  const std::string text = need(generate_routes(r), Exit::kUsage);
  write_file(routes, text);
  hash.update(text);
  std::vector<Case> cases;
  Verified verified{0, 0, "the plain path; one owner, one packet after another"};
  for (const uint32_t size : o.sizes) {
    const std::string capture = write_capture(o, folder / fmt::format("{}.pcap", size), size + 4, destinations);
    hash.update(need(sha256_of_file(capture), Exit::kIo));
    const std::string source = fmt::format("FromMemory({}, LIMIT {})", capture, o.packets != 0 ? o.packets : 4'000'000);
    if (!o.device_only) {
      // The cost of a shaper that nobody waits for, in the engine.
      const auto frames = std::make_shared<FrameCache>();
      const uint64_t sample = std::min<uint64_t>(o.sample, 65'536);
      const std::string once = fmt::format("FromDump({})", capture);
      const std::string plain =
          outcome_of(graph_text(routes, once, "", fmt::format("ToDump({})", folder / "check"), false), nullptr, sample,
                     folder / "check");
      // Unshaped; with a shaper that nobody waits for; the whole way, with departures and counters of three classes.
      for (const char* kind : {"unshaped", "shaped", "whole"}) {
        const bool whole = std::string_view(kind) == "whole";
        const std::string tail = whole                                ? " -> shape :: Shape(100Gbps)"
                                 : std::string_view(kind) == "shaped" ? " -> shape :: Shape(0)"
                                                                      : "";
        BenchOptions how = o;
        if (whole) how.qos = std::make_shared<QosModel>(QosModel::three_priorities());
        progress.step(fmt::format("checking {} bytes, {}", size, kind));
        const std::string got =
            outcome_of(graph_text(routes, once, tail, fmt::format("ToDump({})", folder / "check"), false), &devices,
                       sample, folder / "check");
        verified.sample += sample;
        verified.mismatches += got != plain || o.spoil ? 1 : 0;
        if (verified.mismatches != 0)
          fail(Exit::kCheckFailed, fmt::format("{} bytes: the output differs from the plain path's", size));
        auto pipeline = parse_pipeline(graph_text(routes, source, tail, "ToMemory", false), "port", {});
        load_pipeline_tables(*pipeline, {});
        for (const uint32_t batch : o.batches) {
          Case c = measure_pipeline(how, devices, *pipeline, batch,
                                    fmt::format("port/{}B/x{}/{}/{}", size, o.workers, batch, kind), frames, progress);
          for (const char* part : {"p50", "p99"}) {
            if (c.reason.empty()) c.more[fmt::format("{}_us", part)] = c.more["through_ns"][part].get<double>() * 1e-3;
          }
          cases.push_back(std::move(c));
        }
      }
    }
    auto pipeline = parse_pipeline(graph_text(routes, source, "", "ToMemory", true), "port", {});
    load_pipeline_tables(*pipeline, {});
    if (!o.soak) add_device_rows(o, devices, *pipeline, capture, size, cases, verified, progress);
    if (o.persistent || o.soak) add_persistent_rows(o, devices, *pipeline, capture, size, cases, verified, progress);
  }
  progress.clear();
  return bench_report(o, "port", hash.finish(), verified, std::move(cases),
                      {{"routes4", o.ipv4},
                       {"mix", o.mix},
                       {"device", devices.label},
                       {"gpu", gpu_name(devices)},
                       {"workers", o.workers}});
}

}  // namespace

void add_bench_port(Command bench) {
  auto o = std::make_shared<PortBenchOptions>();
  o->ipv4 = 4000;
  Command sub = add_subcommand(
      bench, "port", "Subcommands",
      "Measures the whole path to an output port: three classes by DSCP, routes, TTL, checksum, MAC addresses, "
      "policers, shapers. On a CUDA device with frames in its memory (resident) and fed from the host, "
      "with every departure checked. Also the cost of a shaper that delays no packet.",
      "sluice bench port\nsluice bench port --device cuda --sizes 64,512 --mix 90,5,5 --repetitions 9",
      [o] { return bench_port(*o); });
  add_device_options(*sub, o->device, true);
  sub->add_option("--sizes", o->sizes, "Frame sizes without FCS")
      ->delimiter(',')
      ->check(Range(60u, 8191u))
      ->type_name("BYTES,...")
      ->capture_default_str();
  sub->add_option("--mix", o->mix, "Shares of the three classes")
      ->delimiter(',')
      ->type_name("N,N,N")
      ->capture_default_str();
  sub->add_number("--ipv4", "N", o->ipv4, "Random routes", Range(1u, 2'000'000u));
  sub->add_option("--batch", o->batches, "Packets per batch")
      ->delimiter(',')
      ->check(Range(1u, Batch::kMaxPackets))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_number("--workers", "N", o->workers, "Workers, each with its own source and channels", Range(1u, 256u));
  sub->add_flag("--device-only", o->device_only, "Do not measure the engine");
  sub->add_flag("--persistent", o->persistent,
                "Also with persistent groups of lanes that take chunks by class: by groups, mix and buffer size");
  sub->add_flag("--soak", o->soak, "Only the persistent groups, unshaped and shaped at once, for --seconds");
  sub->add_number("--seconds", "S", o->seconds, "Duration of each row of the persistent groups", Range(0.01, 36000.0));
  sub->add_option("--frames-kept", o->frames_kept, "Frames in the device's memory (default: 256 MiB of them)")
      ->type_name("N");
  sub->add_option("--packets", o->packets, "Packets per worker and repetition (default 4,000,000)")->type_name("N");
  sub->add_number("--repetitions", "N", o->repetitions, "Repetitions of each case", Range(1u, 1000u));
  sub->add_option("--seed", o->seed, "Seed of routes and packets")->type_name("N")->capture_default_str();
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_port)")->type_name("NAME");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
