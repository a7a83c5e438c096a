// sluice bench functions: EtherMirror, IPLookup, SetCRC32 and a chain of six, one after the other, by size, way to the
// device, batch and workers.
// host only
#include <algorithm>
#include <limits>

#include "apps/sluice/inputs.h"
#include "apps/sluice/pipeline.h"
#include "base/sha256.h"
#include "bench.h"
#include "generate/traffic.h"
#include "net/crc32.h"
#include "ports/pcap/capture_writer.h"
#if defined(SLUICE_WITH_CUDA)
#include "exec/cuda/resident.h"
#endif

namespace sluice::app {
namespace {

struct FunctionOptions : BenchOptions {
  std::vector<std::string> functions = {"mirror", "lookup", "crc", "chain", "separate"};
  std::vector<std::string> ways;  // MODE/TRANSPORT/THREADING; empty: what the device options say
  std::vector<unsigned> worker_counts = {1};
  bool resident = false;  // also with frames in the device's memory, and fed to its kernel alone
};

// The elements between the source and the sink. `separate`: the chain with an element of the host between any two, so
// that each is a segment of its own.
std::string elements_of(const std::string& function, const std::string& rules) {
  if (function == "mirror") return "EtherMirror";
  if (function == "crc") return "SetCRC32";
  const std::string routes = "IPLookup(0.0.0.0/0 0, 10.0.0.0/8 192.0.2.1 0, 172.16.0.0/12 192.0.2.2 0)";
  if (function == "lookup") return "CheckIPHeader(14) -> " + routes;
  const std::string between = function == "separate" ? " -> Tee(1) -> " : " -> ";
  return fmt::format(
      "CheckIPHeader(14){0}ACL(FILE {1}, DEFAULT permit){0}DecIPTTL{0}{2}{0}"
      "EtherRewrite(02:00:00:00:00:0a, 02:00:00:00:00:0b){0}SetCRC32",
      between, rules, routes);
}

std::string capture_of(const std::string& file, uint32_t size, uint64_t seed) {
  TrafficOptions t;
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

// What a graph makes of the first `packets` of a capture.
std::string outcome_of(const std::string& text, const OpenDevices* devices, uint64_t packets, uint32_t batch,
                       const std::string& file) {
  auto pipeline = parse_pipeline(text, "functions", {});
  load_pipeline_tables(*pipeline, {});
  RunOptions options;
  options.batch = batch;
  options.max_packets = packets;
  options.fast_path = devices != nullptr;
  if (devices != nullptr) options.device = devices->options;
  const PipelineRun done = run_pipeline(*pipeline, options);
  if (done.interrupted) fail(Exit::kInterrupted, "interrupted");
  return need(sha256_of_file(file), Exit::kIo) + drops_text(done.report.drops);
}

DeviceFlags flags_of(DeviceFlags flags, const std::string& way) {
  const size_t first = way.find('/'), second = way.find('/', first + 1);
  if (first == std::string::npos || second == std::string::npos)
    fail(Exit::kUsage, fmt::format("--ways: '{}' is not MODE/TRANSPORT/THREADING", way),
         "such as launch/commlist/full");
  flags.mode = way.substr(0, first);
  flags.transport = way.substr(first + 1, second - first - 1);
  flags.threading = way.substr(second + 1);
  return flags;
}

// Puts every segment of a graph on the devices: where the records that were asked for leave one, or some frames, on the
// host, addresses cross instead. Returns what crosses.
std::string place_on_device(OpenDevices& devices, const Pipeline& pipeline, uint32_t size) {
  // Rows of one name have one kind of record, whatever their batches.
  devices.options.frame_batch = std::numeric_limits<uint32_t>::max();
  std::vector<Offload> offloads = offloads_of(pipeline, devices, 0);
  const auto stays = [&](size_t n) {
    const Offload& o = offloads[n];
    if (pipeline.plan.nodes[n].type != PlanNode::Type::kSegment) return false;
    return !o.on_device || (!o.keys && o.shape.kind == RecordKind::kHeader && o.whole_frames && size > o.shape.region);
  };
  for (size_t n = 0; n < offloads.size(); ++n) {
    if (devices.options.records != RecordChoice::kAuto || !stays(n)) continue;
    devices.options.records = RecordChoice::kAddress;
    offloads = offloads_of(pipeline, devices, 0);
    break;
  }
  std::string kinds;
  for (const Offload& o : offloads) {
    if (!o.on_device) continue;
    const std::string kind = o.keys ? "key" : o.shape.kind == RecordKind::kHeader ? "header" : "address";
    if (kinds.find(kind) == std::string::npos) kinds += (kinds.empty() ? "" : "+") + kind;
  }
  return kinds;
}

void add_resident([[maybe_unused]] const FunctionOptions& o, [[maybe_unused]] const OpenDevices& devices,
                  [[maybe_unused]] uint32_t size, [[maybe_unused]] std::vector<Case>& cases) {
  if (const std::string lack = no_cuda_device(devices); !lack.empty()) {
    cases.push_back(unmeasured(fmt::format("crc/{}B/resident", size), lack));
    return;
  }
#if defined(SLUICE_WITH_CUDA)
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
#endif
}

Exit bench_functions(FunctionOptions o) {
  if (o.ways.empty()) o.ways = {fmt::format("{}/{}/{}", o.device.mode, o.device.transport, o.device.threading)};
  TemporaryFolder folder;
  Progress progress("");
  Sha256 hash;
  const std::string rules = folder / "rules";
  // No rule but the last is hit often; each is looked at or passed over as in any list.
  std::string text;
  for (unsigned i = 0; i < 256; ++i) text += fmt::format("deny tcp from 198.51.{}.0/24 to any port {}\n", i, 1000 + i);
  write_text(rules, text + "permit ip from any to any\n");
  hash.update(text);
  std::vector<Case> cases;
  Verified verified{0, 0, "the host's plain path"};
  std::string label, gpu;
  for (const uint32_t size : o.sizes) {
    const std::string capture = capture_of(folder / fmt::format("{}.pcap", size), size, o.seed);
    hash.update(need(sha256_of_file(capture), Exit::kIo));
    for (const std::string& way : o.ways) {
      const OpenDevices opened = open_devices(flags_of(o.device, way));
      label = opened.label;
      gpu = gpu_name(opened);
      for (const std::string& function : o.functions) {
        const std::string elements = elements_of(function, rules);
        const std::string out = folder / "check.pcap";
        const std::string checked = fmt::format("FromDump({}) -> {} -> ToDump({});", capture, elements, out);
        OpenDevices devices = opened;
        std::string base = fmt::format("{}/{}B", function, size);
        if (!devices.options.devices.empty()) {
          // Named by what really crosses: persistent mode has one transport, which is tagged.
          const std::string records = place_on_device(devices, *parse_pipeline(checked, "functions", {}), size);
          const DeviceOptions& d = devices.options;
          base += fmt::format("/{}/{}/{}/{}", to_string(d.mode),
                              d.mode == DeviceMode::kPersistent ? "tagged" : to_string(d.transport),
                              to_string(d.threading), records);
        }
        progress.step("checking " + base);
        const uint64_t sample = std::min<uint64_t>(o.sample, 16'384);
        const std::string want = outcome_of(checked, nullptr, sample, 256, out);
        verified.sample += sample;
        for (const uint32_t batch : o.batches) {
          if (outcome_of(checked, &devices, sample, batch, out) != want || o.spoil)
            fail(Exit::kCheckFailed, fmt::format("{}: the output differs from the host's", base));
        }
        const uint64_t packets = o.packets != 0 ? o.packets : 2'000'000;
        auto pipeline = parse_pipeline(
            fmt::format("FromMemory({}, LIMIT {}) -> {} -> ToMemory;", capture, packets, elements), "functions", {});
        load_pipeline_tables(*pipeline, {});
        const auto frames = std::make_shared<FrameCache>();
        for (const unsigned workers : o.worker_counts) {
          for (const uint32_t batch : o.batches) {
            BenchOptions one = o;
            one.workers = workers;
            cases.push_back(measure_pipeline(one, devices, *pipeline, batch,
                                             fmt::format("{}/x{}/{}", base, workers, batch), frames, progress));
            Case& c = cases.back();
            if (!c.reason.empty()) continue;
            c.more["frame_bytes"] = size;
            for (const char* at : {"p50", "p99"})
              c.more[std::string(at) + "_us"] = c.more["latency_ns"][at].get<double>() / 1000;
            std::vector<double> sorted = c.values;
            std::sort(sorted.begin(), sorted.end());
            c.more["gigabytes_per_second"] = sorted[sorted.size() / 2] * size * 1e-3;
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
      "EtherMirror, IPLookup, SetCRC32, and a chain of six elements as one segment and as six, on packets in memory",
      "sluice bench functions\nsluice bench functions --function crc --sizes 64,1024,9000 --device cuda --resident\n"
      "sluice bench functions --device cuda --ways launch/commlist/full,launch/commpool/full,persistent/staged/full\n"
      "sluice bench functions --device emu --function chain,separate --sizes 256 --packets 20000",
      [o] {
        o->standing.lists = std::any_of(o->functions.begin(), o->functions.end(),
                                        [](const std::string& f) { return f == "chain" || f == "separate"; });
        return bench_functions(*o);
      });
  sub->add_option("--function", o->functions, "mirror, lookup, crc, chain (one segment), separate (the chain in six)")
      ->delimiter(',')
      ->check(OneOf{{"mirror", "lookup", "crc", "chain", "separate"}})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option("--sizes", o->sizes, "Frame sizes without FCS")
      ->delimiter(',')
      ->check(Range(60u, 9614u))
      ->type_name("BYTES,...")
      ->capture_default_str();
  sub->add_option("--ways", o->ways, "Combinations to measure (default: --mode/--transport/--threading)")
      ->delimiter(',')
      ->type_name("MODE/TRANSPORT/THREADING,...");
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
  sub->add_flag("--resident", o->resident,
                "Also CRC-32 with frames in a CUDA device's memory, and with frames fed to it from the host");
  sub->add_option("--packets", o->packets, "Packets per worker and round (default 2,000,000)")->type_name("N");
  sub->add_option("--repetitions", o->repetitions, "Repetitions of each case, at least 5")
      ->check(Range(5u, 1000u))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--sample", o->sample, "Packets first compared with the host's plain path")
      ->check(Range(uint64_t{1}, uint64_t{100'000'000}))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--seed", o->seed, "Seed of the packets")->type_name("N")->capture_default_str();
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_functions)")
      ->type_name("NAME");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
  add_device_options(*sub, o->device, true);
}

}  // namespace sluice::app
