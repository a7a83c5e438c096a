// sluice bench latency: the time of a batch of packets by rules and masks, on one core or to a device and back, every
// result checked. host only
#include <algorithm>
#include <optional>

#include "apps/bench/bench.h"
#include "apps/sluice/devices.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "formats/classbench.h"
#include "studies/spark/cuda/flag_ring.h"

namespace sluice::app {
namespace {

// The last byte of a prefix length list that spreads `masks` source lengths over 32 .. 12 and destination lengths.
struct MaskPair {
  unsigned src, dst;
};
std::vector<MaskPair> mask_pairs(unsigned masks) {
  std::vector<MaskPair> all;
  for (unsigned i = 0; i < masks; ++i) all.push_back({32 - i % 21, 32 - (i / 21) % 21});
  return all;
}

std::string address(uint32_t a) {
  return fmt::format("{}.{}.{}.{}", a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
}

// `count` rules over `masks` pairs of prefix lengths, all for UDP and one destination port each way.
RuleSet mask_rules(unsigned count, unsigned masks, std::vector<FlowKey>& hits) {
  const std::vector<MaskPair> pairs = mask_pairs(masks);
  std::string text;
  for (unsigned i = 0; i < count; ++i) {
    const MaskPair m = pairs[i % masks];
    // The rule's number stands in the highest bits, so that it survives the shortest mask.
    const uint32_t src = (10u << 24 | (i & 0xfffu) << 12 | (i >> 12)) & high_mask32(m.src);
    const uint32_t dst = (20u << 24 | (i * 7 & 0xfffu) << 12) & high_mask32(m.dst);
    text += fmt::format("@{}/{}\t{}/{}\t0 : 65535\t{} : {}\t0x11/0xFF\t0x0000/0x0000\n", address(src), m.src,
                        address(dst), m.dst, 1000 + i, 1000 + i);
    FlowKey key;
    key.family = 4;
    key.src_lo = src;
    key.dst_lo = dst;
    key.src_port = 7;
    key.dst_port = static_cast<uint16_t>(1000 + i);
    key.protocol = 17;
    key.bits = FlowKey::kHasPorts;
    hits.push_back(key);
  }
  return need(parse_classbench(text, "generated rules"));
}

struct LatencyOptions : BenchOptions {
  std::vector<uint32_t> rule_counts = {1, 16, 128, 1024};
  std::vector<uint32_t> mask_counts = {1, 8, 16, 21};
  std::vector<std::string> algorithms = {TupleSpaceAcl::kName, TupleMergeAcl::kName, LinearAcl::kName};
};

DeviceWork prepare_rules(const OpenDevices& devices, RuleSet set, const std::string& algorithm,
                         const std::vector<FlowKey>& keys) {
  DeviceWork p;
  const LoadedAcl acl = build_loaded_acl(set, "rules", "classbench", algorithm);
  const LoadedAcl oracle = build_loaded_acl(std::move(set), "rules", "classbench", LinearAcl::kName);
  TableSet tables;
  tables.acls["t"] = acl.image;
  p.lookup = std::make_unique<DeviceLookup>(devices, "ACL(TABLE t, DEFAULT permit)", std::move(tables));
  if (!p.lookup->ready()) fail(Exit::kUnavailable, "the device could not take the tables");
  p.add(keys, [&](size_t i) { return result_digest(oracle.view.lookup(keys[i]), 0); });
  return p;
}

// The usual protocol (doorbell, done flag) over the same kernel body.
Case flag_ring_case(const std::string& name, DeviceWork& p, const DriveOptions& options, unsigned repetitions) {
  Case c{name, "us", {}};
  Histogram all;
  const uint32_t frame = options.channel.records;
  const DeviceProgram& program = p.lookup->resident().programs[p.lookup->node()];
  for (unsigned r = 0; r < repetitions; ++r) {
    auto ring = need(FlagRing::start(p.lookup->device(), program, frame));
    Histogram one;
    size_t at = 0;
    uint64_t wrong = 0;
    for (uint64_t n = 0; n < options.frames + options.warm_up; ++n) {
      const uint64_t begin = now_ns();
      const size_t first = at;
      for (uint32_t i = 0; i < frame; ++i) {
        HostWords::store(ring->in() + i, p.records[at]);
        if (++at == p.records.size()) at = 0;
      }
      ring->ring(frame);
      while (!ring->done()) {
      }
      const uint64_t took = now_ns() - begin;
      if (n >= options.warm_up) one.record(took);
      size_t k = first;
      for (uint32_t i = 0; i < frame; ++i) {
        const KeyResult result = unpack_result(HostWords::load64(ring->out() + i));
        wrong += result_digest(result.rule, result.next_hop) != p.expected[k] ? 1 : 0;
        if (++k == p.records.size()) k = 0;
      }
    }
    need(ring->stop());
    if (wrong != 0) fail(Exit::kCheckFailed, fmt::format("{}: {} results differ from the reference", name, wrong));
    c.values.push_back(static_cast<double>(one.percentile(50)) * 1e-3);
    all.merge(one);
    stop_if_interrupted();
  }
  c.more = {{"p50_us", static_cast<double>(all.percentile(50)) * 1e-3},
            {"p99_us", static_cast<double>(all.percentile(99)) * 1e-3},
            {"p999_us", static_cast<double>(all.percentile(99.9)) * 1e-3},
            {"frame", frame}};
  return c;
}

// What is looked up: which of `rules` rules over `masks` pairs of prefix lengths the packets match.
struct LatencySetting {
  std::string name;
  unsigned rules, masks;
  enum class Match : uint8_t { kNone, kFirst, kLast, kAll } match;
};

std::vector<LatencySetting> latency_settings(const LatencyOptions& o) {
  using Match = LatencySetting::Match;
  std::vector<LatencySetting> all;
  for (const unsigned rules : o.rule_counts) {
    for (const auto& [match, text] :
         {std::pair{Match::kNone, "no match"}, {Match::kFirst, "first"}, {Match::kLast, "last"}}) {
      if (rules == 1 && match == Match::kLast) continue;
      all.push_back({fmt::format("{} rules, 1 mask, {}", rules, text), rules, 1, match});
    }
  }
  for (const unsigned masks : o.mask_counts)
    all.push_back({fmt::format("1024 rules, {} mask{}, all", masks, masks == 1 ? "" : "s"), 1024, masks, Match::kAll});
  return all;
}

RuleSet latency_rules(const LatencySetting& s, std::vector<FlowKey>& keys) {
  using Match = LatencySetting::Match;
  std::vector<FlowKey> hits;
  RuleSet set = mask_rules(s.rules, s.masks, hits);
  for (size_t i = 0; i < 8192; ++i) {
    FlowKey key = s.match == Match::kFirst  ? hits.front()
                  : s.match == Match::kLast ? hits.back()
                                            : hits[i * 37 % hits.size()];
    if (s.match == Match::kNone) key.dst_port = 1;
    if (s.masks == 1 || s.match != Match::kAll) key.src_port = static_cast<uint16_t>(i);
    keys.push_back(key);
  }
  return set;
}

// The time that this core takes for a batch; every rule that it finds is compared.
Case host_case(const std::string& name, const AclView& table, const std::vector<FlowKey>& keys,
               const std::vector<uint32_t>& expected, const LatencyOptions& o, uint32_t frame, uint64_t frames) {
  Case c{name, "us", {}};
  Histogram all;
  std::vector<uint32_t> found(frame);
  std::vector<const FlowKey*> batch(frame);
  for (unsigned r = 0; r < o.repetitions; ++r) {
    Histogram one;
    size_t at = 0;
    uint64_t wrong = 0;
    const uint64_t warm_up = std::min<uint64_t>(1000, frames / 10 + 1);
    for (uint64_t n = 0; n < frames + warm_up; ++n) {
      const size_t first = at;
      for (const FlowKey*& key : batch) {
        key = &keys[at];
        if (++at == keys.size()) at = 0;
      }
      const uint64_t begin = now_ns();
      for (size_t i = 0; i < frame; i += kAclBurst)
        table.lookup_burst(batch.data() + i, found.data() + i, std::min<size_t>(kAclBurst, frame - i));
      const uint64_t took = now_ns() - begin;
      if (n >= warm_up) one.record(took);
      size_t k = first;
      for (const uint32_t rule : found) {
        wrong += rule != expected[k] ? 1 : 0;
        if (++k == expected.size()) k = 0;
      }
      if (n % 1024 == 0) stop_if_interrupted();
    }
    if (wrong != 0)
      fail(Exit::kCheckFailed,
           fmt::format("{}: {} results differ from the reference; nothing is reported", name, wrong));
    c.values.push_back(static_cast<double>(one.percentile(50)) * 1e-3);
    all.merge(one);
  }
  c.more = {{"p50_us", static_cast<double>(all.percentile(50)) * 1e-3},
            {"p99_us", static_cast<double>(all.percentile(99)) * 1e-3},
            {"p999_us", static_cast<double>(all.percentile(99.9)) * 1e-3},
            {"mpackets_per_second", frame / median(c.values)},
            {"frame", frame}};
  return c;
}

// Of one size of batches the size stands beside the rows; of several it is in their names.
std::string latency_name(const LatencySetting& s, const std::string& algorithm, const std::vector<uint32_t>& sizes,
                         uint32_t size) {
  return fmt::format("{}, {}{}", s.name, algorithm, sizes.size() > 1 ? fmt::format(", {} packets", size) : "");
}

std::vector<Case> host_latency(const LatencyOptions& o, const std::vector<uint32_t>& sizes, uint64_t frames) {
  std::vector<Case> cases;
  Progress progress("");
  for (const LatencySetting& s : latency_settings(o)) {
    std::vector<FlowKey> keys;
    const RuleSet set = latency_rules(s, keys);
    std::vector<uint32_t> expected;
    {
      const LoadedAcl oracle = build_loaded_acl(set, "rules", "classbench", LinearAcl::kName);
      for (const FlowKey& key : keys) expected.push_back(oracle.view.lookup(key));
    }
    if (o.spoil) expected[0] += 1;
    for (const std::string& algorithm : o.algorithms) {
      const LoadedAcl acl = build_loaded_acl(set, "rules", "classbench", algorithm);
      for (const uint32_t size : sizes) {
        const std::string name = latency_name(s, algorithm, sizes, size);
        progress.step(name);
        cases.push_back(host_case(name, acl.view, keys, expected, o, size, frames));
      }
    }
  }
  progress.clear();
  return cases;
}

Exit bench_latency(const LatencyOptions& o) {
  const OpenDevices devices = open_devices(o.device);
  const uint64_t frame_repetitions = o.frame_repetitions != 0 ? o.frame_repetitions : 50'000;
  const std::vector<uint32_t> sizes = o.frames.empty() ? std::vector<uint32_t>{256} : o.frames;
  const Json size_json = sizes.size() > 1 ? Json(sizes) : Json(sizes.front());
  if (devices.options.devices.empty()) {
    if (o.workers > 1)
      fail(Exit::kUsage, "the time of a batch on the CPU is that of one core",
           "leave --workers away, or give --device");
    std::vector<Case> cases = host_latency(o, sizes, frame_repetitions);
    uint64_t compared = 0;
    for (const Case& c : cases) compared += o.repetitions * frame_repetitions * c.more["frame"].get<uint64_t>();
    return bench_report(o, "latency", sha256("generated"), {compared, 0, "linear"}, std::move(cases),
                        {{"device", "cpu"}, {"gpu", ""}, {"frame", size_json}});
  }
  std::vector<Case> cases;
  Progress progress("");
  struct Setting : LatencySetting {
    std::string algorithm;
  };
  std::vector<Setting> settings;
  for (const LatencySetting& s : latency_settings(o))
    for (const std::string& algorithm : o.algorithms) settings.push_back({s, algorithm});
  std::optional<double> idle_watts;
  for (const Setting& s : settings) {
    std::vector<FlowKey> keys;
    RuleSet set = latency_rules(s, keys);
    DeviceWork p = prepare_rules(devices, std::move(set), s.algorithm, keys);
    // Before the first batch; no kernel runs yet.
    if (!idle_watts) idle_watts = p.lookup->device().power().watts;
    if (o.spoil) p.expected[0] ^= 1;
    // With more threads the other sizes are those of the load.
    const std::vector<uint32_t> alone = o.workers > 1 ? std::vector<uint32_t>{sizes.front()} : sizes;
    DriveOptions d;
    d.frames = frame_repetitions;
    d.warm_up = std::min<uint64_t>(1000, frame_repetitions / 10 + 1);
    for (const uint32_t size : alone) {
      d.channel = devices.options.channel(size);
      d.channel.flights = 1;
      const std::string name = latency_name(s, s.algorithm, alone, size);
      progress.step(name);
      cases.push_back(drive_case(name, p, d, o.repetitions, false));
      const DevicePower power = p.lookup->device().power();
      if (power.watts >= 0) cases.back().more["watts"] = power.watts;
      if (power.utilisation >= 0) cases.back().more["utilisation"] = power.utilisation;
      if (*idle_watts >= 0) cases.back().more["idle_watts"] = *idle_watts;
    }
    if (o.workers > 1 && s.match == LatencySetting::Match::kAll && s.algorithm == TupleSpaceAcl::kName) {
      // The same rules under load: every thread with --flights frames on their way.
      for (const uint32_t loaded : sizes) {
        DriveOptions all = d;
        all.channel = devices.options.channel(loaded);
        all.threads = o.workers;
        cases.push_back(drive_case(
            fmt::format("{}, {}, {} threads, {} x {}", s.name, s.algorithm, o.workers, all.channel.flights, loaded), p,
            all, o.repetitions, true));
      }
    }
    d.channel = devices.options.channel(sizes.front());
    if (p.lookup->device().info().kind == "cuda" && s.algorithm == TupleSpaceAcl::kName &&
        sizes.front() <= FlagRing::kMaxRecords) {
      cases.push_back(flag_ring_case(fmt::format("{}, {}, flags", s.name, s.algorithm), p, d, o.repetitions));
    }
  }
  progress.clear();
  return bench_report(o, "latency", sha256("generated"), {frame_repetitions, 0, "linear"}, std::move(cases),
                      {{"device", devices.label},
                       {"gpu", gpu_name(devices)},
                       {"mode", o.device.mode},
                       {"transport", o.device.mode == "persistent" ? "tagged" : o.device.transport},
                       {"frame", size_json}});
}

}  // namespace

void add_bench_latency(Command bench) {
  auto o = std::make_shared<LatencyOptions>();
  o->device.device = "auto";
  o->device.mode = "persistent";
  Command sub = add_subcommand(
      bench, "latency", "Subcommands",
      "Measures the time of a batch of packets by rules and masks: on one core, or to a device and back, from the "
      "first record written to the last result read.",
      "sluice bench latency --device cpu\nsluice bench latency --device cuda --rules 1,2,4 --masks 1,21\n"
      "sluice bench latency --device cuda --mode launch --frames 32,256,4096 --algorithm tuple_space",
      [o] { return bench_latency(*o); });
  add_device_options(*sub, o->device, true);
  sub->add_option("--frames", o->frames,
                  "Packets per batch (default 256), each measured; with --workers those of the load")
      ->delimiter(',')
      ->check(Range(32u, 65'536u))
      ->type_name("N");
  sub->add_option("--rules", o->rule_counts, "Rules of one mask; packets match none, the first, the last")
      ->delimiter(',')
      ->check(Range(1u, 4096u))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_option("--masks", o->mask_counts, "Pairs of prefix lengths of 1,024 rules; packets match all rules")
      ->delimiter(',')
      ->check(Range(1u, 441u))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_option("--algorithm", o->algorithms, "Algorithms of the access list")
      ->delimiter(',')
      ->check(OneOf{{TupleSpaceAcl::kName, TupleMergeAcl::kName, LinearAcl::kName}})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_number("--workers", "N", o->workers,
                  "With a device, more than 1: also the rate of this many host threads, with 1,024 rules",
                  Range(1u, 256u));
  sub->add_option("--frame-repetitions", o->frame_repetitions, "Batches per case (default 50,000)")->type_name("N");
  sub->add_number("--repetitions", "N", o->repetitions, "Repetitions of each case", Range(1u, 1000u));
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_latency)")->type_name("NAME");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
