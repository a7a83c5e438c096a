// sluice bench priorities: classes of packets on the same workers. What stealing is worth, what a mix of classes, the
// number of workers and the size of chunks do, and how long the highest class waits under overload.
// host only
#include <algorithm>
#include <map>

#include "apps/sluice/inputs.h"
#include "apps/sluice/pipeline.h"
#include "apps/sluice/priorities.h"
#include "base/sha256.h"
#include "bench.h"
#include "generate/traffic.h"
#include "net/edit.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "qos/frame_class.h"

namespace sluice::app {
namespace {

struct PriorityBenchOptions : BenchOptions {
  std::vector<unsigned> worker_counts = {2};
  std::vector<uint32_t> chunks = {16, 64, 256, 1024};
  std::vector<std::string> parts = {"mix", "workers", "chunks", "timeouts", "overload"};
  std::vector<std::string> timeouts = {"10us", "100us", "1ms"};  // of part timeouts
  uint32_t chunk = 256;
  std::string timeout = "100us";
  std::vector<std::string> dscps;  // mixes of part mix as `gen traffic --dscp` takes them; none: kMixes
  uint32_t rule_count = 256;
  double seconds = 1;  // of each paced run

  bool wants(const char* part) const { return std::find(parts.begin(), parts.end(), part) != parts.end(); }
};

constexpr uint32_t kFrames = 16'384;
constexpr uint8_t kCodepoints[] = {46, 10, 0};  // EF, AF11, default: one a class

// Parts of the packets by class, in percent; or of the flows by DSCP, where there are some.
struct Mix {
  std::string name;  // and of its capture
  uint32_t percent[3] = {};
  std::vector<std::pair<uint8_t, double>> dscps = {};
};
const std::vector<Mix> kMixes = {{"even", {34, 33, 33}},  {"highest", {100, 0, 0}}, {"middle", {0, 100, 0}},
                                 {"lowest", {0, 0, 100}}, {"voice", {5, 15, 80}},   {"half", {50, 0, 50}}};

// Packets that every program takes to its end, in classes by the mix: evenly spread over time, or as its flows come.
std::string capture_of_mix(const std::string& file, const Mix& mix, const PriorityBenchOptions& o) {
  TrafficOptions t;
  t.flows = 65'536;
  t.zipf = 0;
  t.size_mix = SizeMix::kFixed;
  t.fixed_bytes = o.sizes.front();
  t.dscps = mix.dscps;
  t.seed = o.seed;
  auto writer = need(CaptureWriter::create(file), Exit::kIo);
  TrafficGenerator generator = need(TrafficGenerator::create(t));
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  int credit[3] = {};  // smooth weighted round robin
  for (uint32_t i = 0; i < kFrames; ++i) {
    const FrameHeader header = generator.next(frame.data());
    if (mix.dscps.empty()) {
      unsigned turn = 0;
      for (unsigned c = 0; c < 3; ++c) {
        credit[c] += static_cast<int>(mix.percent[c]);
        if (credit[c] > credit[turn]) turn = c;
      }
      credit[turn] -= 100;
      set_dscp(frame.data() + kEtherHeaderBytes, 4, kCodepoints[turn]);
    }
    if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
  }
  need(writer.commit(), Exit::kIo);
  return file;
}

class PriorityBench {
 public:
  explicit PriorityBench(const PriorityBenchOptions& o) : o_(o), progress_("") {
    timeout_ns_ = timeout_of(o.timeout);
    for (const std::string& text : o.timeouts) (void)timeout_of(text);  // what is wrong is said before anything runs
    rules_ = folder_ / "rules";
    std::string text;
    for (unsigned i = 0; i < o.rule_count; ++i)
      text += fmt::format("deny tcp from 198.51.{}.0/24 to any port {}\n", i % 256, 1000 + i);
    write_file(rules_, text + "permit ip from any to any\n");
    hash_.update(text);
    for (const std::string& mix : o.dscps) {
      if (std::any_of(mixes_.begin(), mixes_.end(), [&](const Mix& m) { return m.name == mix; }))
        fail(Exit::kUsage, fmt::format("--dscp: '{}' is given twice", mix), "give each mix once");
      mixes_.push_back({mix, {}, dscp_parts("--dscp", mix)});
    }
    std::vector<Mix> captured = kMixes;
    captured.insert(captured.end(), mixes_.begin(), mixes_.end());
    if (mixes_.empty()) mixes_ = kMixes;
    for (const Mix& mix : captured) {
      const std::string capture = capture_of_mix(folder_ / fmt::format("{}.pcap", captures_.size()), mix, o);
      hash_.update(need(sha256_of_file(capture), Exit::kIo));
      captures_[mix.name] = capture;
    }
  }

  Exit measure() {
    verify();
    if (o_.wants("mix")) {
      for (const Mix& mix : mixes_) add_rate(fmt::format("mix/{}/x{}", mix.name, workers()), mix, workers(), o_.chunk);
      const double even = median(fmt::format("mix/even/x{}", workers()));
      for (Case& c : cases_)
        if (even > 0) c.more["of_even"] = median_of(c) / even;
    }
    if (o_.wants("workers")) {
      for (const unsigned w : o_.worker_counts) add_rate(fmt::format("workers/{}", w), kMixes[0], w, o_.chunk);
    }
    if (o_.wants("chunks")) add_chunks();
    if (o_.wants("timeouts")) add_timeouts();
    if (o_.wants("overload")) add_overload();
    progress_.clear();
    return bench_report(o_, "priorities", hash_.finish(), verified_, std::move(cases_), {{"device", "cpu"}});
  }

 private:
  unsigned workers() const { return o_.worker_counts.front(); }
  static uint64_t timeout_of(const std::string& text) {
    return priority_options({.timeout = text}, kDefaultQosClasses).timeout_ns;
  }
  std::string text_of(const Mix& mix, const char* source, const char* limit, const std::string& sink) {
    return fmt::format(
        "{}({}{}) -> CheckIPHeader(14) -> ACL(FILE {}, DEFAULT permit, ALGORITHM {}) -> DecIPTTL\n"
        "-> IPLookup(0.0.0.0/0 0, 10.0.0.0/8 192.0.2.1 0, 172.16.0.0/12 192.0.2.2 0)\n"
        "-> EtherRewrite(02:00:00:00:00:0a, 02:00:00:00:00:0b) -> {};",
        source, captures_.at(mix.name), limit, rules_, o_.algorithm.empty() ? "auto" : o_.algorithm, sink);
  }
  RunOptions options(unsigned workers, uint32_t chunk) {
    RunOptions options;
    options.workers = workers;
    options.frames = frames_;
    options.priorities.emplace();
    options.priorities->chunk = chunk;
    options.priorities->timeout_ns = timeout_ns_;
    return options;
  }
  std::unique_ptr<Pipeline> pipeline_of(const std::string& text) {
    auto pipeline = parse_pipeline(text, "priorities", {});
    load_pipeline_tables(*pipeline, {});
    return pipeline;
  }
  // Plays a mix again and again.
  RunReport play(const Mix& mix, const RunOptions& options) {
    auto& pipeline = pipelines_[mix.name];
    if (pipeline == nullptr)
      pipeline = pipeline_of(text_of(mix, "FromMemory", ", LIMIT 1000000000000000000", "ToMemory"));
    const PipelineRun done = run_pipeline(*pipeline, options);
    stop_if_interrupted();
    return done.report;
  }

  // Every class's packets are those of a run without classes, in their order.
  void verify() {
    verify(kMixes[0]);
    for (const Mix& mix : mixes_)
      if (!mix.dscps.empty()) verify(mix);
  }
  void verify(const Mix& mix) {
    progress_.step("checking");
    const std::string want = folder_ / "want.pcap", got = folder_ / "got.pcap";
    RunOptions plain;
    plain.fast_path = false;
    (void)run_pipeline(*pipeline_of(text_of(mix, "FromDump", "", "ToDump(" + want + ")")), plain);
    (void)run_pipeline(*pipeline_of(text_of(mix, "FromDump", "", "ToDump(" + got + ")")), options(workers(), o_.chunk));
    const auto one = by_class(want), two = by_class(got);
    for (unsigned c = 0; c < 3; ++c) {
      verified_.sample += one[c].size();
      if (one[c] != two[c] || o_.spoil)
        fail(Exit::kCheckFailed, fmt::format("class {} differs from the reference's", c));
    }
  }
  std::vector<std::vector<std::string>> by_class(const std::string& file) {
    const ClassMap map = ClassMap::three_priorities();
    std::vector<std::vector<std::string>> out(3);
    auto reader = need(CaptureReader::open(file), Exit::kIo);
    for (CapturedFrame frame; need(reader.next(frame), Exit::kIo);) {
      out[map.class_of(dscp_of_frame(frame.data, frame.captured))].emplace_back(
          reinterpret_cast<const char*>(frame.data), frame.captured);
    }
    return out;
  }

  static double median_of(const Case& c) {
    std::vector<double> sorted = c.values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double median(const std::string& name) const {
    for (const Case& c : cases_) {
      if (c.name == name) return median_of(c);
    }
    return 0;
  }
  static double rate_of(const RunReport& report) {
    return static_cast<double>(report.packets_in) / report.seconds * 1e-6;
  }
  Case& add_rate(const std::string& name, const Mix& mix, unsigned workers, uint32_t chunk) {
    Case c{name, "Mpackets/s", {}};
    for (unsigned r = 0; r < o_.repetitions; ++r) {
      progress_.step(fmt::format("{} repetition {}", name, r + 1));
      RunOptions p = options(workers, chunk);
      p.max_packets = o_.packets != 0 ? o_.packets : 2'000'000;
      const RunReport report = play(mix, p);
      check_classes(name, mix, report);
      c.values.push_back(rate_of(report));
      c.more = more_of(report, workers, chunk);
    }
    cases_.push_back(std::move(c));
    return cases_.back();
  }
  // A class has packets where the mix gives it some, and none elsewhere.
  static void check_classes(const std::string& name, const Mix& mix, const RunReport& report) {
    bool wanted[3] = {mix.percent[0] != 0, mix.percent[1] != 0, mix.percent[2] != 0};
    for (const auto& [dscp, part] : mix.dscps)
      if (part > 0) wanted[ClassMap::three_priorities().class_of(dscp)] = true;
    for (unsigned c = 0; c < 3; ++c) {
      if ((report.priorities[c].packets != 0) == wanted[c]) continue;
      fail(Exit::kCheckFailed, fmt::format("{}: {} packets were read in class {}, which has {} of the mix", name,
                                           report.priorities[c].packets, c, wanted[c] ? "a part" : "no part"));
    }
  }
  static Json more_of(const RunReport& report, unsigned workers, uint32_t chunk) {
    return {{"workers", workers}, {"chunk", chunk}, {"classes", classes_json(report)}};
  }

  // Packets that arrive evenly, for `seconds`.
  RunReport paced(const Mix& mix, double mpps, uint32_t chunk) {
    RunOptions p = options(workers(), chunk);
    p.priorities->offered_pps = std::max<uint64_t>(1, static_cast<uint64_t>(mpps * 1e6));
    p.max_packets = std::max<uint64_t>(1000, static_cast<uint64_t>(mpps * 1e6 * o_.seconds));
    p.priorities->drop_when_full = true;
    return play(mix, p);
  }
  static double p99_us(const RunReport& report, unsigned c) {
    return static_cast<double>(report.priorities[c].latency.percentile(99)) * 1e-3;
  }

  // Latency by the size of chunks, at half of what the workers do.
  void add_chunks() {
    for (const uint32_t chunk : o_.chunks) {
      const double most = median_of(add_rate(fmt::format("chunks/{}/rate", chunk), kMixes[0], workers(), chunk));
      add_latency(fmt::format("chunks/{}", chunk), most / 2, chunk);
    }
  }
  // Latency by the longest time to fill a chunk, at a twentieth of what the workers do: few chunks are full by then.
  void add_timeouts() {
    const double most = median_of(add_rate("timeouts/rate", kMixes[0], workers(), o_.chunk));
    const uint64_t given = timeout_ns_;
    for (const std::string& text : o_.timeouts) {
      timeout_ns_ = timeout_of(text);
      add_latency("timeouts/" + text, most / 20, o_.chunk);
    }
    timeout_ns_ = given;
  }
  void add_latency(const std::string& name, double mpps, uint32_t chunk) {
    Case p50{name + "/p50", "us", {}}, p99{name + "/p99", "us", {}};
    for (unsigned r = 0; r < o_.repetitions; ++r) {
      progress_.step(fmt::format("{}/latency repetition {}", name, r + 1));
      const RunReport report = paced(kMixes[0], mpps, chunk);
      Histogram all;
      for (const auto& k : report.priorities) all.merge(k.latency);
      p50.values.push_back(static_cast<double>(all.percentile(50)) * 1e-3);
      p99.values.push_back(static_cast<double>(all.percentile(99)) * 1e-3);
      for (Case* c : {&p50, &p99}) {
        c->more = more_of(report, workers(), chunk);
        c->more["offered_mpps"] = mpps;
        c->more["late_us"] = static_cast<double>(report.late_ns) * 1e-3;
      }
    }
    cases_.push_back(std::move(p50));
    cases_.push_back(std::move(p99));
  }

  // The highest class alone at a tenth of what the workers do, then the same packets of it within twice what they do.
  void add_overload() {
    const Mix quiet = {"highest", {100, 0, 0}}, loaded = {"voice", {5, 15, 80}};
    double most = median_of(add_rate("overload/most", loaded, workers(), o_.chunk));
    // Workers that read as fast as they can spend some of their time on that, and may do more where packets come at
    // their times: then that counts.
    double served = most;
    for (unsigned turn = 0; turn < 8; ++turn) {
      progress_.step(fmt::format("overload, served of {:.3g} M/s", 2 * most));
      served = served_of(paced(loaded, 2 * most, o_.chunk));
      if (served <= 1.02 * most) break;
      most = served;
    }
    cases_.push_back({"overload/served", "Mpackets/s", {std::max(most, served)}});
    Case before{"overload/unloaded_p99", "us", {}}, during{"overload/loaded_p99", "us", {}},
        ratio{"overload/ratio", "1", {}}, low{"overload/lowest_rate", "Mpackets/s", {}};
    for (unsigned r = 0; r < o_.repetitions; ++r) {
      progress_.step(fmt::format("overload repetition {}", r + 1));
      const RunReport unloaded = paced(quiet, 2 * most * loaded.percent[0] / 100, o_.chunk);
      const RunReport overloaded = paced(loaded, 2 * most, o_.chunk);
      before.values.push_back(p99_us(unloaded, 0));
      during.values.push_back(p99_us(overloaded, 0));
      ratio.values.push_back(p99_us(overloaded, 0) / p99_us(unloaded, 0));
      const auto& lowest = overloaded.priorities[2];
      low.values.push_back(static_cast<double>(lowest.packets - lowest.refused) / overloaded.seconds * 1e-6);
      before.more = more_of(unloaded, workers(), o_.chunk);
      during.more = more_of(overloaded, workers(), o_.chunk);
      during.more["offered_mpps"] = 2 * most;
      during.more["reached_mpps"] = rate_of(overloaded);
      during.more["late_us"] = static_cast<double>(overloaded.late_ns) * 1e-3;
      low.more = {{"share", static_cast<double>(lowest.turns) / turns(overloaded)},
                  {"of_most", low.values.back() / most}};
    }
    for (Case* c : {&before, &during, &ratio, &low}) cases_.push_back(std::move(*c));
  }
  // Packets of all classes that were not refused, in millions a second.
  static double served_of(const RunReport& report) {
    uint64_t packets = 0;
    for (const auto& k : report.priorities) packets += k.packets - k.refused;
    return static_cast<double>(packets) / report.seconds * 1e-6;
  }
  static uint32_t turns(const RunReport& report) {
    uint32_t all = 0;
    for (const auto& k : report.priorities) all += k.turns;
    return all;
  }

  const PriorityBenchOptions& o_;
  BenchFolder folder_;
  Progress progress_;
  Sha256 hash_;
  std::string rules_;
  uint64_t timeout_ns_ = 0;
  std::shared_ptr<FrameCache> frames_ = std::make_shared<FrameCache>();
  std::vector<Mix> mixes_;                       // of part mix
  std::map<std::string, std::string> captures_;  // mix -> file
  std::map<std::string, std::unique_ptr<Pipeline>> pipelines_;
  Verified verified_{0, 0, "the plain path without classes"};
  std::vector<Case> cases_;
};

}  // namespace

void add_bench_priorities(Command bench) {
  auto o = std::make_shared<PriorityBenchOptions>();
  o->repetitions = 3;
  Command sub = add_subcommand(
      bench, "priorities", "Subcommands",
      "Measures three classes of packets on the same workers: rate by class mix, workers and chunk size; latency "
      "by chunk size and by the time to fill one; the highest class's latency at twice the load that "
      "the workers can process",
      "sluice bench priorities\nsluice bench priorities --workers 8,1,2,4,12 --part mix,workers\n"
      "sluice bench priorities --part mix --dscp ef=100 --dscp ef=5,af41=15,default=80\n"
      "sluice bench priorities --part overload --workers 4 --seconds 5 -o json",
      [o] {
        o->standing.lists = o->algorithm.empty();
        return PriorityBench(*o).measure();
      });
  sub->add_words("--part", "NAME,...", o->parts, "mix, workers, chunks, timeouts, overload",
                 {"mix", "workers", "chunks", "timeouts", "overload"});
  sub->add_option("--dscp", "CLASS=PART,...", o->dscps,
                  "Mix of part mix by DSCP classes of flows, as `gen traffic --dscp` takes it, in place of those by "
                  "class; given again, one more mix")
      ->expected(1)
      ->take_all();
  sub->add_numbers("--workers", "N,...", o->worker_counts,
                   "Workers; one more thread reads. Other parts use the first value", Range(1u, 256u));
  sub->add_number("--chunk", "N", o->chunk, "Packets per chunk, except in part chunks", Range(1u, Batch::kMaxPackets));
  sub->add_numbers("--chunks", "N,...", o->chunks, "Packets per chunk in part chunks", Range(1u, Batch::kMaxPackets));
  sub->add_option("--chunk-timeout", "TIME", o->timeout,
                  "Longest time to fill a chunk (ns, us, ms, s), except in part timeouts")
      ->capture_default_str();
  sub->add_option("--timeouts", o->timeouts, "Longest times to fill a chunk in part timeouts")
      ->delimiter(',')
      ->type_name("TIME,...")
      ->capture_default_str();
  sub->add_numbers("--sizes", "BYTES", o->sizes, "Frame size with FCS; only the first is used", Range(64u, 9618u));
  sub->add_option("--algorithm", "NAME", o->algorithm,
                  "ACL algorithm; linear makes each packet very expensive (default auto)")
      ->check(OneOf{acl_algorithm_choices()});
  sub->add_number("--rules", "N", o->rule_count, "Rules of the access list; more rules cost more time per packet",
                  Range(1u, 100'000u));
  sub->add_option("--packets", "N", o->packets, "Packets per round of unpaced parts (default 2,000,000)");
  sub->add_number("--seconds", "S", o->seconds, "Duration of each paced run", Range(0.001, 3600.0));
  sub->add_number("--repetitions", "N", o->repetitions, "Repetitions of each case", Range(1u, 1000u));
  sub->add_option("--seed", "N", o->seed, "Seed of the packets")->capture_default_str();
  sub->add_option("--name", "NAME", o->name, "Name of the measurement in the JSON (default bench_priorities)");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
