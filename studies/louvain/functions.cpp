// sluice bench functions: EtherMirror, IPLookup, SetCRC32 and a chain of six, one after the other, by size, routes, way
// to the device, batch and workers: the rate, the highest one without loss and its latency, and what full buffers do.
// host only
#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "apps/bench/bench.h"
#include "apps/sluice/inputs.h"
#include "apps/sluice/pipeline.h"
#include "base/sha256.h"
#include "generate/routes.h"
#include "generate/traffic.h"
#include "net/crc32.h"
#include "ports/pcap/capture_writer.h"
#include "ports/wire/throughput_search.h"
#include "studies/cuda/resident.h"
#include "tables/lpm/algorithms.h"

namespace sluice::app {
namespace {

struct FunctionOptions : BenchOptions {
  std::vector<std::string> functions = {"mirror", "lookup", "crc", "chain", "separate"};
  std::vector<std::string> ways;  // cpu, MODE/TRANSPORT/THREADING[/FLIGHTS]; empty: what the device options say
  std::vector<std::string> parts = {"rate"};
  std::vector<unsigned> worker_counts = {1};
  std::vector<uint32_t> buffers = {64};             // chunks that a worker has room for; of parts but `rate`
  std::vector<uint32_t> route_counts;               // of lookup, through IPRoute; empty: IPLookup's three
  std::vector<std::string> algorithms = {"dir24"};  // of these tables
  double seconds = 0.5;                             // of a run at a given rate
  bool resident = false;  // also with frames in the device's memory, and fed to its kernel alone

  bool wants(const char* part) const { return std::find(parts.begin(), parts.end(), part) != parts.end(); }
};

// What is measured: a function, and of lookup a table where it is not the three routes of its own.
struct Subject {
  std::string function;
  std::string routes;        // a file; empty: none
  std::string algorithm;     // its lookup
  uint32_t route_count = 0;  // in it
};

// The elements between the source and the sink. `separate`: the chain with an element of the host between any two, so
// that each is a segment of its own.
std::string elements_of(const Subject& subject, const std::string& rules) {
  const std::string& function = subject.function;
  if (function == "mirror") return "EtherMirror";
  if (function == "crc") return "SetCRC32";
  if (!subject.routes.empty()) return "CheckIPHeader(14) -> IPRoute(fib)";
  const std::string routes = "IPLookup(0.0.0.0/0 0, 10.0.0.0/8 192.0.2.1 0, 172.16.0.0/12 192.0.2.2 0)";
  if (function == "lookup") return "CheckIPHeader(14) -> " + routes;
  const std::string between = function == "separate" ? " -> Tee(1) -> " : " -> ";
  return fmt::format(
      "IPInput{0}ACL(FILE {1}, DEFAULT permit){0}DecIPTTL{0}{2}{0}"
      "EtherRewrite(02:00:00:00:00:0a, 02:00:00:00:00:0b){0}SetCRC32",
      between, rules, routes);
}

// From `source` to `sink`.
std::string graph_of(const Subject& subject, const std::string& algorithm, const std::string& rules,
                     const std::string& source, const std::string& sink) {
  std::string text;
  if (!subject.routes.empty())
    text = fmt::format("RouteTable(fib, FILE {}, ALGORITHM {});\n", subject.routes, algorithm);
  return fmt::format("{}{} -> {} -> {};", text, source, elements_of(subject, rules), sink);
}

// Packets to addresses of `destinations`, or to any.
std::string capture_of(const std::string& file, uint32_t size, uint64_t seed, std::vector<IpPrefix> destinations = {}) {
  TrafficOptions t;
  t.destinations = std::move(destinations);
  t.flows = 65'536;
  t.zipf = 0;
  t.size_mix = SizeMix::kFixed;
  t.fixed_bytes = size + 4;  // counts a frame check sequence, which is not captured
  t.seed = seed;
  auto writer = need(CaptureWriter::create(file), Exit::kIo);
  TrafficGenerator generator = need(TrafficGenerator::create(t));
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  for (uint32_t i = 0; i < 16'384; ++i) {
    const FrameHeader header = generator.next(frame.data());
    if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
  }
  need(writer.commit(), Exit::kIo);
  return file;
}

// All packets are of one class: they stay in their order.
PriorityOptions one_class(uint32_t chunk) {
  PriorityOptions options;
  options.classes = ClassMap{};
  options.chunk = chunk;
  return options;
}

// What a graph makes of the first `packets` of a capture; `buffered`: by chunks, as at a given rate.
std::string outcome_of(const std::string& text, const OpenDevices* devices, uint64_t packets, uint32_t batch,
                       const std::string& file, bool buffered = false) {
  auto pipeline = parse_pipeline(text, "functions", {});
  load_pipeline_tables(*pipeline, {});
  RunOptions options;
  options.batch = batch;
  options.max_packets = packets;
  options.fast_path = devices != nullptr;
  if (buffered) options.priorities = one_class(batch);
  if (devices != nullptr) options.device = devices->options;
  const PipelineRun done = run_pipeline(*pipeline, options);
  if (done.interrupted) fail(Exit::kInterrupted, "interrupted");
  return need(sha256_of_file(file), Exit::kIo) + drops_text(done.report.drops);
}

DeviceFlags flags_of(DeviceFlags flags, const std::string& way) {
  if (way == "cpu") {
    flags.device = way;
    return flags;
  }
  std::vector<std::string> words;
  for (size_t at = 0; at <= way.size();) {
    const size_t end = std::min(way.find('/', at), way.size());
    words.push_back(way.substr(at, end - at));
    at = end + 1;
  }
  const auto refuse = [&way](const std::string& why) {
    fail(Exit::kUsage, fmt::format("--ways: '{}' is not cpu or MODE/TRANSPORT/THREADING[/FLIGHTS]{}", way, why),
         "such as launch/commlist/full");
  };
  if (words.size() < 3 || words.size() > 4) refuse("");
  const auto check = [&](const std::string& word, const OneOf& all) {
    if (std::find(all.words.begin(), all.words.end(), word) == all.words.end())
      refuse(fmt::format(": '{}' is none of {}", word, fmt::join(all.words, ", ")));
  };
  check(words[0], kDeviceModes);
  check(words[1], kTransports);
  check(words[2], kThreadings);
  flags.mode = words[0];
  flags.transport = words[1];
  flags.threading = words[2];
  if (words.size() == 4) {
    flags.flights = 0;
    for (uint32_t n = 1; n <= 16; ++n)
      if (words[3] == std::to_string(n)) flags.flights = n;
    if (flags.flights == 0) refuse(fmt::format(": '{}' is not 1 to 16 flights", words[3]));
  }
  return flags;
}

// Puts every segment of a graph on the devices: where the records that were asked for leave one on the host, frames
// cross instead, which each worker sends itself. Returns what crosses.
std::string place_on_device(OpenDevices& devices, const Pipeline& pipeline) {
  // Rows of one name have one kind of record, whatever their batches.
  devices.options.frame_batch = std::numeric_limits<uint32_t>::max();
  std::vector<Offload> offloads = offloads_of(pipeline, devices, 0);
  const auto stays = [&](size_t n) {
    return pipeline.plan.nodes[n].type == PlanNode::Type::kSegment && !offloads[n].on_device;
  };
  for (size_t n = 0; n < offloads.size(); ++n) {
    if (devices.options.records != RecordChoice::kAuto || !stays(n)) continue;
    if (devices.options.threading != DeviceThreading::kFull) break;
    devices.options.records = RecordChoice::kFrame;
    offloads = offloads_of(pipeline, devices, 0);
    break;
  }
  std::string kinds;
  for (const Offload& o : offloads) {
    if (!o.on_device) continue;
    const std::string kind = o.keys ? "key" : to_string(o.shape.kind);
    if (kinds.find(kind) == std::string::npos) kinds += (kinds.empty() ? "" : "+") + kind;
  }
  return kinds.empty() ? "none" : kinds;
}

void add_resident(const FunctionOptions& o, const OpenDevices& devices, uint32_t size, std::vector<Case>& cases) {
  if (const std::string lack = no_cuda_device(devices); !lack.empty()) {
    cases.push_back(unmeasured(fmt::format("crc/{}B/resident", size), lack));
    return;
  }
  ResidentFrames frames;
  frames.stride = (size + 63) / 64 * 64;  // nothing is appended
  const uint64_t count = (size_t{1} << 30) / frames.stride;
  frames.bytes.resize(ResidentFrames::kLead + count * frames.stride);
  frames.lengths.assign(count, size);
  uint64_t state = o.seed;
  for (uint8_t& byte : frames.bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<uint8_t>(state >> 56);
  }
  for (const Crc32Mode mode : {Crc32Mode::kClick, Crc32Mode::kFcs}) {
    for (const bool fed : {false, true}) {
      std::vector<uint32_t> got(count);
      const std::vector<double> rates =
          need(resident_crc32(*devices.options.devices[0], mode, frames, fed, got.data(), std::max(5u, o.repetitions)));
      for (uint64_t i = 0; i < count; ++i) {
        const uint8_t* frame = frames.bytes.data() + ResidentFrames::kLead + i * frames.stride;
        if (got[i] != crc32_host(mode, kCrc32Start, frame, size))
          fail(Exit::kCheckFailed, fmt::format("the device's CRC of frame {} of {} bytes is wrong", i, size));
      }
      Case c{fmt::format("crc/{}B/{}/{}", size, mode == Crc32Mode::kFcs ? "fcs" : "click", fed ? "fed" : "resident"),
             "GB/s",
             {}};
      for (const double rate : rates) c.values.push_back(rate * size * 1e-9);
      c.more = {{"frames", count}, {"stride", frames.stride}};
      cases.push_back(std::move(c));
    }
  }
}

// A run with buffers between whoever reads and those who work, and what came of it.
struct BufferedRun {
  double offered = 0, served = 0;  // packets a second
  uint64_t packets = 0, refused = 0;
  Histogram latency;  // of packets that were not refused, from their arrival to their end, ns
};

// The highest rate without loss, and what full buffers do, of one graph.
class Buffered {
 public:
  Buffered(const FunctionOptions& o, const OpenDevices& devices, Pipeline& pipeline, std::shared_ptr<FrameCache> frames,
           unsigned workers, uint32_t batch, uint32_t buffers)
      : o_(o),
        devices_(devices),
        pipeline_(pipeline),
        frames_(std::move(frames)),
        workers_(workers),
        batch_(batch),
        places_(std::bit_ceil(buffers * workers)) {}

  void add(const std::string& name, std::vector<Case>& cases, Progress& progress) {
    progress.step(name);
    // As fast as the workers are where nothing is lost: the input waits.
    double most = play(0, false, 20'000).served;
    for (unsigned turn = 0; turn < 3; ++turn) most = std::max(most, play(0, false, packets_of(most)).served);
    if (o_.wants("no-loss") && why_.empty()) add_no_loss(name + "/no-loss", most, cases, progress);
    if (o_.wants("overload") && why_.empty()) add_overload(name, 2 * most, cases, progress);
    if (!why_.empty()) cases.push_back(unmeasured(name, "on the host: " + why_));
  }

 private:
  uint64_t packets_of(double pps) const { return std::max<uint64_t>(1000, static_cast<uint64_t>(pps * o_.seconds)); }

  // `offered_pps`: 0 is as fast as they are read.
  BufferedRun play(uint64_t offered_pps, bool drops, uint64_t packets) {
    RunOptions options;
    options.workers = workers_;
    options.frames = frames_;
    options.device = devices_.options;
    options.max_packets = packets;
    options.stop = &interrupted();
    options.priorities = one_class(batch_);
    options.priorities->places = places_;
    options.priorities->offered_pps = offered_pps;
    options.priorities->drop_when_full = drops;
    const PipelineRun done = run_pipeline(pipeline_, options);
    stop_if_interrupted();
    const PriorityReport& all = done.report.priorities.at(0);
    BufferedRun run;
    run.offered = static_cast<double>(all.packets) / done.report.seconds;
    run.served = static_cast<double>(all.packets - all.refused) / done.report.seconds;
    run.packets = all.packets;
    run.refused = all.refused;
    run.latency.merge(all.latency);
    if (!devices_.options.devices.empty() && why_.empty())
      why_ = why_not_devices_alone(pipeline_, devices_, batch_, std::span(&done.report, 1));
    return run;
  }

  static void put_latency(Json& more, const Histogram& latency) {
    more["mean_us"] = latency.mean() * 1e-3;
    for (const auto& [key, percent] : {std::pair{"p50_us", 50.0}, {"p99_us", 99.0}, {"p999_us", 99.9}})
      more[key] = static_cast<double>(latency.percentile(percent)) * 1e-3;
  }
  Json more_of() const { return {{"workers", workers_}, {"batch", batch_}, {"buffers", places_ / workers_}}; }

  void add_no_loss(const std::string& name, double most, std::vector<Case>& cases, Progress& progress) {
    Case rate{name, "Mpackets/s", {}, more_of()}, mean{name + "/latency", "us", {}, more_of()};
    Histogram all;
    for (unsigned r = 0; r < o_.repetitions; ++r) {
      progress.step(fmt::format("{} repetition {}", name, r + 1));
      ThroughputSearch search(static_cast<uint64_t>(most), kResolutionPercent);
      Histogram best;
      // Below the resolution of the search it goes on by halves: a rate without a figure is none.
      uint64_t lowest = 0;
      for (unsigned trials = 0; trials < kMostTrials && why_.empty(); ++trials) {
        const auto next = search.next();
        if (!next && search.throughput_pps() != 0) break;
        const uint64_t asked = next ? *next : lowest / 2;
        if (asked == 0) break;
        lowest = lowest == 0 ? asked : std::min(lowest, asked);
        const BufferedRun run = play(asked, true, packets_of(static_cast<double>(asked)));
        // Who reads late reads all the same: nothing is lost while that is no more than the buffers hold.
        const double late = static_cast<double>(asked) / run.offered - 1;
        const double held = static_cast<double>(places_) * batch_ / static_cast<double>(run.packets);
        const bool passed = run.refused == 0 && late <= std::max(0.01, held);
        if (passed && asked >= search.throughput_pps()) best = run.latency;
        search.add(asked, passed);
      }
      if (!why_.empty()) return;
      if (search.throughput_pps() == 0) continue;
      rate.values.push_back(static_cast<double>(search.throughput_pps()) * 1e-6);
      mean.values.push_back(best.mean() * 1e-3);
      all.merge(best);
    }
    if (rate.values.empty()) {
      cases.push_back(unmeasured(name, "no rate passed without loss"));
      return;
    }
    for (Case* c : {&rate, &mean}) {
      put_latency(c->more, all);
      cases.push_back(std::move(*c));
    }
  }

  // Packets come at `pps`, more than the workers do: what has no room is dropped, or the input waits.
  void add_overload(const std::string& name, double pps, std::vector<Case>& cases, Progress& progress) {
    // A machine that was busy before may do all of it now.
    for (unsigned turn = 0; turn < 4 && why_.empty(); ++turn) {
      if (play(static_cast<uint64_t>(pps), false, packets_of(pps)).served < 0.8 * pps) break;
      pps *= 2;
    }
    for (const bool drops : {true, false}) {
      Case c{name + (drops ? "/dropping" : "/blocking"), "Mpackets/s", {}, more_of()};
      Histogram all;
      uint64_t refused = 0, packets = 0;
      for (unsigned r = 0; r < o_.repetitions; ++r) {
        progress.step(fmt::format("{} repetition {}", c.name, r + 1));
        const BufferedRun run = play(static_cast<uint64_t>(pps), drops, packets_of(pps));
        if (!why_.empty()) return;
        c.values.push_back(run.served * 1e-6);
        all.merge(run.latency);
        refused += run.refused;
        packets += run.packets;
      }
      put_latency(c.more, all);
      c.more["offered_mpps"] = pps * 1e-6;
      c.more["dropped_part"] = static_cast<double>(refused) / static_cast<double>(packets);
      cases.push_back(std::move(c));
    }
  }

  static constexpr double kResolutionPercent = 5;
  static constexpr unsigned kMostTrials = 16;  // on a busy machine low rates alone pass
  const FunctionOptions& o_;
  const OpenDevices& devices_;
  Pipeline& pipeline_;
  const std::shared_ptr<FrameCache> frames_;
  const unsigned workers_;
  const uint32_t batch_, places_;
  std::string why_;  // what keeps the runs from being the devices' alone
};

// The functions that were asked for; lookup with every table.
std::vector<Subject> subjects_of(const FunctionOptions& o, const TemporaryFolder& folder, Sha256& hash,
                                 std::map<uint32_t, std::vector<IpPrefix>>& destinations) {
  std::vector<Subject> all;
  for (const std::string& function : o.functions) {
    if (function != "lookup" || o.route_counts.empty()) {
      all.push_back({function, "", "", 0});
      continue;
    }
    for (const uint32_t count : o.route_counts) {
      RoutesOptions r;
      r.ipv4_count = count;
      r.ipv6_count = 0;
      r.seed = o.seed;
      const std::string text = need(generate_routes(r), Exit::kUsage), file = folder / fmt::format("routes{}", count);
      hash.update(text);
      write_file(file, text);
      if (!destinations.contains(count)) {
        Rib rib;
        need(parse_routes(text, "generated routes", rib));
        rib.settle();
        for (const Route4& route : rib.routes4()) destinations[count].push_back({{0, route.address, 4}, route.length});
      }
      for (const std::string& algorithm : o.algorithms) {
        if (algorithm == Linear::kName && count > kMostLinear) {
          note(fmt::format("{} is skipped: it takes {} routes at most", algorithm, with_commas(kMostLinear)));
          continue;
        }
        all.push_back({function, file, algorithm, count});
      }
    }
  }
  return all;
}

uint64_t packets_for(const FunctionOptions& o, const Subject& subject) {
  const uint64_t packets = o.packets != 0 ? o.packets : 2'000'000;
  // A scan of all routes takes as long as other lookups of many packets.
  if (subject.algorithm != Linear::kName) return packets;
  return std::min(packets, std::max<uint64_t>(20'000, 500'000'000 / subject.route_count));
}

// Bits that a row's frames take of a wire, as the study counts them: 24 bytes beside a frame, for preamble, FCS and
// gap.
Case on_wire(const Case& c, uint32_t size) {
  Case bits{c.name + "/wire", "Gbit/s", {}, {{"workers", c.more["workers"]}}};
  for (const double value : c.values) bits.values.push_back(value * (size + 24) * 8e-3);
  return bits;
}

Exit bench_functions(FunctionOptions o) {
  if (o.ways.empty()) o.ways = {fmt::format("{}/{}/{}", o.device.mode, o.device.transport, o.device.threading)};
  BenchFolder folder;
  Progress progress("");
  Sha256 hash;
  const std::string rules = folder / "rules";
  // No rule but the last is hit often; each is looked at or passed over as in any list.
  std::string text;
  for (unsigned i = 0; i < 256; ++i) text += fmt::format("deny tcp from 198.51.{}.0/24 to any port {}\n", i, 1000 + i);
  write_file(rules, text + "permit ip from any to any\n");
  hash.update(text);
  std::vector<Case> cases;
  Verified verified{0, 0, "the host's plain path, with the trie"};
  // What is not there is said before anything is measured.
  std::vector<std::pair<std::string, OpenDevices>> ways;
  std::string label = "cpu", gpu;
  for (const std::string& way : o.ways) {
    ways.emplace_back(way, open_devices(flags_of(o.device, way)));
    const OpenDevices& opened = ways.back().second;
    if (opened.options.devices.empty()) continue;
    label = opened.label;
    gpu = gpu_name(opened);
  }
  std::map<uint32_t, std::vector<IpPrefix>> destinations;
  progress.step("generating routes and packets");
  const std::vector<Subject> subjects = subjects_of(o, folder, hash, destinations);
  for (const uint32_t size : o.sizes) {
    std::map<uint32_t, std::string> captures;  // by routes; 0: to any address
    for (const Subject& subject : subjects) {
      std::string& capture = captures[subject.route_count];
      if (!capture.empty()) continue;
      capture = capture_of(folder / fmt::format("{}-{}.pcap", size, subject.route_count), size, o.seed,
                           destinations[subject.route_count]);
      hash.update(need(sha256_of_file(capture), Exit::kIo));
    }
    for (const auto& [way, opened] : ways) {
      for (const Subject& subject : subjects) {
        // Between elements of the host most segments have no lookup, and stay there.
        if (subject.function == "separate" && !opened.options.devices.empty()) continue;
        const std::string& capture = captures[subject.route_count];
        const std::string out = folder / "check.pcap";
        const auto graph = [&](const std::string& algorithm, const std::string& source, const std::string& sink) {
          return graph_of(subject, algorithm, rules, source, sink);
        };
        const auto check_text = [&](const std::string& algorithm) {
          return graph(algorithm, fmt::format("FromDump({})", capture), fmt::format("ToDump({})", out));
        };
        const std::string checked = check_text(subject.algorithm);
        OpenDevices devices = opened;
        std::string base = fmt::format("{}/{}B", subject.function, size);
        if (!devices.options.devices.empty()) {
          // Named by what really crosses: records of resident kernels have one transport, which is tagged.
          const std::string records = place_on_device(devices, *parse_pipeline(checked, "functions", {}));
          const DeviceOptions& d = devices.options;
          base +=
              fmt::format("/{}/{}/{}/{}", to_string(d.mode),
                          d.mode == DeviceMode::kPersistent && records != "frame" ? "tagged" : to_string(d.transport),
                          to_string(d.threading), records);
          if (std::count(way.begin(), way.end(), '/') == 3) base += fmt::format("/flights_{}", d.flights);
        } else if (way == "cpu") {
          base += "/cpu";
        }
        if (!subject.routes.empty()) base += fmt::format("/routes_{}/{}", subject.route_count, subject.algorithm);
        progress.step("checking " + base);
        const uint64_t sample = std::min<uint64_t>(o.sample, 16'384);
        const bool buffered = o.wants("no-loss") || o.wants("overload");
        const std::string want = outcome_of(check_text(Trie::kName), nullptr, sample, 256, out);
        verified.sample += sample;
        for (const uint32_t batch : o.batches) {
          bool same = outcome_of(checked, &devices, sample, batch, out) == want;
          if (buffered) same = same && outcome_of(checked, &devices, sample, batch, out, true) == want;
          if (!same || o.spoil) fail(Exit::kCheckFailed, fmt::format("{}: the output differs from the host's", base));
        }
        const auto frames = std::make_shared<FrameCache>();
        const auto memory = [&](uint64_t limit) {
          auto pipeline = parse_pipeline(
              graph(subject.algorithm, fmt::format("FromMemory({}, LIMIT {})", capture, limit), "ToMemory"),
              "functions", {});
          load_pipeline_tables(*pipeline, {});
          return pipeline;
        };
        if (o.wants("rate")) {
          const auto pipeline = memory(packets_for(o, subject));
          for (const unsigned workers : o.worker_counts) {
            for (const uint32_t batch : o.batches) {
              BenchOptions one = o;
              one.workers = workers;
              cases.push_back(measure_pipeline(one, devices, *pipeline, batch,
                                               fmt::format("{}/x{}/{}", base, workers, batch), frames, progress));
              Case& c = cases.back();
              if (!c.reason.empty()) continue;
              c.more["frame_bytes"] = size;
              for (const char* at : {"mean", "p50", "p99"})
                c.more[std::string(at) + "_us"] = c.more["latency_ns"][at].get<double>() / 1000;
              c.more["gigabytes_per_second"] = median(c.values) * size * 1e-3;
              if (!subject.routes.empty()) cases.push_back(on_wire(c, size));
            }
          }
        }
        if (!buffered) continue;
        // As many as the runs ask for.
        const auto pipeline = memory(1'000'000'000'000'000'000);
        for (const unsigned workers : o.worker_counts) {
          for (const uint32_t batch : o.batches) {
            for (const uint32_t buffers : o.buffers) {
              std::string name = fmt::format("{}/x{}/{}", base, workers, batch);
              if (o.buffers.size() > 1) name += fmt::format("/buffers_{}", buffers);
              Buffered(o, devices, *pipeline, frames, workers, batch, buffers).add(name, cases, progress);
            }
          }
        }
      }
    }
    if (o.resident) {
      progress.step(fmt::format("{} bytes, device-resident", size));
      add_resident(o, open_devices(o.device), size, cases);
    }
  }
  progress.clear();
  return bench_report(o, "functions", hash.finish(), verified, std::move(cases), {{"device", label}, {"gpu", gpu}});
}

}  // namespace

void add_bench_functions(Command bench) {
  auto o = std::make_shared<FunctionOptions>();
  o->sizes = {64, 128, 256, 512, 1024};
  Command sub = add_subcommand(
      bench, "functions", "Subcommands",
      "Measures four functions on packets in memory: EtherMirror, IPLookup, SetCRC32, and a chain of six elements as "
      "one segment and as six; rate, highest rate without loss with its latency, and the effect of full buffers",
      "sluice bench functions\nsluice bench functions --function crc --sizes 64,1024,9000 --device cuda --resident\n"
      "sluice bench functions --device cuda --ways "
      "cpu,launch/commlist/full,launch/commpool/full,persistent/staged/full\n"
      "sluice bench functions --function lookup --ipv4 10,1000,1000000 --route-algorithm linear,dir24\n"
      "sluice bench functions --function crc --part no-loss,overload --buffers 16,256\n"
      "sluice bench functions --device emu --function chain --sizes 256 --packets 20000",
      [o] {
        o->standing.lists = std::any_of(o->functions.begin(), o->functions.end(),
                                        [](const std::string& f) { return f == "chain" || f == "separate"; });
        return bench_functions(*o);
      });
  sub->add_option("--function", o->functions,
                  "mirror, lookup, crc, chain (one segment), separate (the chain in six; on the host alone)")
      ->delimiter(',')
      ->check(OneOf{{"mirror", "lookup", "crc", "chain", "separate"}})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option("--sizes", o->sizes, "Frame sizes without FCS")
      ->delimiter(',')
      ->check(Range(60u, 9614u))
      ->type_name("BYTES,...")
      ->capture_default_str();
  sub->add_option("--part", o->parts,
                  "rate: as fast as they are read; no-loss: the highest rate without loss; overload: twice what the "
                  "workers process, dropping and blocking")
      ->delimiter(',')
      ->check(OneOf{{"rate", "no-loss", "overload"}})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option("--ipv4", o->route_counts,
                  "lookup: generated IPv4 tables of so many routes, through IPRoute (default: IPLookup with 3)")
      ->delimiter(',')
      ->check(Range(10u, 2'000'000u))
      ->type_name("N,...");
  sub->add_option("--route-algorithm", o->algorithms, "IPv4 lookup algorithms with --ipv4")
      ->delimiter(',')
      ->check(OneOf{lpm_algorithm_choices4()})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option(
         "--ways", o->ways,
         "Combinations to measure, with cpu for the host beside them (default: --mode/--transport/--threading)")
      ->delimiter(',')
      ->type_name("MODE/TRANSPORT/THREADING[/FLIGHTS],...");
  sub->add_option("--batch", o->batches, "Packets per batch")
      ->delimiter(',')
      ->check(Range(1u, Batch::kMaxPackets))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_option("--workers", o->worker_counts, "Workers, each with its own source and channels")
      ->delimiter(',')
      ->check(Range(1u, 256u))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_option("--buffers", o->buffers,
                  "Parts no-loss and overload: batches that each worker has room for, rounded up to a power of two")
      ->delimiter(',')
      ->check(Range(1u, 4096u))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_number("--seconds", "S", o->seconds, "Parts no-loss and overload: length of a run at one rate",
                  Range(0.01, 600.0));
  sub->add_flag("--resident", o->resident,
                "Also CRC-32 with frames in a CUDA device's memory, and with frames fed to it from the host");
  sub->add_option("--packets", o->packets, "Packets per worker and round (default 2,000,000)")->type_name("N");
  sub->add_number("--repetitions", "N", o->repetitions, "Repetitions of each case, at least 5", Range(5u, 1000u));
  sub->add_number("--sample", "N", o->sample, "Packets first compared with the host's plain path",
                  Range(uint64_t{1}, uint64_t{100'000'000}));
  sub->add_option("--seed", o->seed, "Seed of the packets")->type_name("N")->capture_default_str();
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_functions)")
      ->type_name("NAME");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
  add_device_options(*sub, o->device, true);
}

}  // namespace sluice::app
