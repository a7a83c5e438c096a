// host only
#include "soak.h"

#include <algorithm>

#include "bench.h"
#include "control/machine.h"
#include "control/report.h"

namespace sluice::app {
namespace {

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

// What all runtimes' reports come to together.
struct SoakEnd {
  Tally tally;
  DeviceCounters offload;
  uint64_t refused = 0, switches = 0;
  std::vector<std::string> device_failures;
  Json device_reports = Json::array();
  std::array<uint64_t, kDropReasons> drops{};
  std::array<uint64_t, kVariants> left{};  // packets by the variant that sent them
  Histogram latency;
  std::vector<std::string> wrong;
};

SoakEnd end_of(const SoakRun& run) {
  SoakEnd end;
  for (const RunReport& r : run.reports) {
    end.tally.add(r);
    end.offload.add(r.offload);
    end.latency.merge(r.totals.latency);
    for (size_t i = 0; i < kDropReasons; ++i) end.drops[i] += r.drops[i];
    for (const auto& [port, counters] : r.ports) {
      if (port < kVariants) end.left[port] += counters.packets;
    }
    for (const DeviceReport& d : r.devices) {
      end.refused += d.refused_generations;
      end.switches += d.channels.switches;
      if (!d.failure.empty())
        end.device_failures.push_back(fmt::format("{}:{}: {}", d.info.kind, d.info.ordinal, d.failure));
      end.device_reports.push_back(to_json(d));
    }
  }
  return end;
}

void judge(const SoakOptions& o, const OpenDevices& devices, const SoakRun& run, SoakEnd& end) {
  if (o.spoil == "lost") ++end.tally.lost;
  auto check = [&](bool good, std::string what) {
    if (!good) end.wrong.push_back(std::move(what));
  };
  check(end.tally.mixed() == 0,
        fmt::format("{} packets met tables of two generations", with_commas(end.tally.mixed())));
  check(end.tally.lost == 0, fmt::format("{} packets were lost", with_commas(end.tally.lost)));
  check(end.tally.in != 0, "no packet was received");
  check(run.done == o.swaps || interrupted().load(), fmt::format("{} of {} swaps were done", run.done, o.swaps));
  check(run.out_of_turn == 0, fmt::format("{} generations did not become current in order", run.out_of_turn));
  check(run.unseen == 0, fmt::format("in {} cases no packet was processed between two swaps", run.unseen));
  check(end.refused == 0, fmt::format("a device refused {} generations", end.refused));
  check(end.offload.rescued == 0,
        fmt::format("{} packets had to be rescued from a device", with_commas(end.offload.rescued)));
  for (const std::string& failure : end.device_failures) check(false, "device " + failure);
  if (!devices.options.devices.empty()) {
    check(end.offload.offloaded != 0 && end.offload.on_host == 0,
          fmt::format("a device answered {} packets and the host {} of its segments",
                      with_commas(end.offload.offloaded), with_commas(end.offload.on_host)));
  }
  for (uint32_t v = 0; v < std::min<uint64_t>(kVariants, run.done + 1); ++v)
    check(end.left[v] != 0, fmt::format("no packet left under variant {}", v));
}

// The row of the results.
Json result_of(const SoakOptions& o, const SoakRun& run, const SoakEnd& end, const std::string& mode) {
  const double mpps = static_cast<double>(end.tally.in) / run.seconds * 1e-6;
  return {{"case", fmt::format("standard graph, {}, x{}", mode, o.workers)},
          {"unit", "Mpackets/s"},
          {"median", mpps},
          {"min", mpps},
          {"max", mpps},
          {"n", 1},
          {"note", fmt::format("{} table changes in {:.0f} s; of {} packets {} lost, {} mixed; a change took effect in "
                               "{:.1f} ms (p99 {:.1f}) in all {} runtimes, {:.1f} ms in one",
                               run.done, run.seconds, with_commas(end.tally.in), with_commas(end.tally.lost),
                               with_commas(end.tally.mixed()), static_cast<double>(run.all_lines.percentile(50)) * 1e-6,
                               static_cast<double>(run.all_lines.percentile(99)) * 1e-6, run.reports.size(),
                               static_cast<double>(run.publish.percentile(50)) * 1e-6)}};
}

Json json_of(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, const SoakRun& run,
             const SoakEnd& end) {
  const double rate = static_cast<double>(end.tally.in) / run.seconds;
  const auto times = [](const Histogram& h, double unit) {
    return Json{{"p50", static_cast<double>(h.percentile(50)) / unit},
                {"p99", static_cast<double>(h.percentile(99)) / unit},
                {"max", static_cast<double>(h.max()) / unit}};
  };
  Json json{
      {"schema", 1},
      {"name", o.name.empty() ? "bench_soak" : o.name},
      {"when", now_utc()},
      {"command", command_line()},
      {"machine", to_json(describe_machine())},
      {"git", sluice_revision()},
      {"seed", o.seed},
      {"input_hash", inputs.hash},
      {"defaults", defaults_left({.lists = o.algorithm.empty(), .routes = o.route_algorithm.empty()},
                                 !devices.options.devices.empty())},
      {"checked", fmt::format("{} of {} packets were processed with the tables of one generation",
                              with_commas(end.tally.in - std::min(end.tally.in, end.tally.mixed() + end.tally.lost)),
                              with_commas(end.tally.in))},
      {"device", devices.label},
      {"mode", devices.options.devices.empty() ? "cpu" : to_string(devices.options.mode)},
      {"transport", devices.options.mode == DeviceMode::kPersistent ? "tagged" : to_string(devices.options.transport)},
      {"workers", o.workers},
      {"shared_reader", o.shared},
      {"batch", o.batch},
      {"rules", o.rules},
      {"routes", inputs.routes},
      {"table_bytes", inputs.table_bytes},
      {"seconds", run.seconds},
      {"packets", end.tally.in},
      {"packets_per_second", rate},
      {"packets_out", end.tally.out},
      {"packets_denied", end.tally.denied},
      {"packets_mixed", end.tally.mixed()},
      {"packets_lost", end.tally.lost},
      {"swaps_asked", o.swaps},
      {"swaps", run.done},
      {"publish_ms", times(run.publish, 1e6)},
      {"swap_ms", times(run.all_lines, 1e6)},
      {"batch_us", times(end.latency, 1e3)},
      {"offloaded", end.offload.offloaded},
      {"on_host", end.offload.on_host},
      {"redone", end.offload.redone},
      {"rescued", end.offload.rescued},
      {"refused_generations", end.refused},
      {"mode_switches", end.switches},
      {"devices", end.device_reports},
      {"wrong", end.wrong}};
  json["results"] = Json::array({result_of(o, run, end, json["mode"].get<std::string>())});
  const std::string gpu = gpu_name(devices);
  json["machine"]["gpu"] = gpu.empty() ? Json(nullptr) : Json(gpu);
  return json;
}

std::string text_of(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, const SoakRun& run,
                    const SoakEnd& end) {
  const double rate = static_cast<double>(end.tally.in) / run.seconds;
  const size_t lines = run.reports.size();
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
      human_seconds(run.seconds), devices.label, o.workers, o.shared ? " behind one reader" : "",
      devices.options.devices.empty() ? "" : fmt::format(", mode {}", to_string(devices.options.mode)),
      with_commas(end.tally.in), human_rate(rate, "packets"), with_commas(end.tally.out), with_commas(end.tally.denied),
      with_commas(end.tally.mixed()), with_commas(end.tally.lost), with_commas(run.done), with_commas(o.swaps),
      with_commas(o.rules), with_commas(inputs.routes), human_bytes(static_cast<double>(inputs.table_bytes)));
  if (run.done != 0) {
    text += "publish   " + line(run.publish, 1e6, "ms") + "\n";
    if (lines > 1) text += "swap      " + line(run.all_lines, 1e6, "ms") + fmt::format(" ({} publications)\n", lines);
  }
  text += "batch     " + line(end.latency, 1e3, "us") + "\n";
  if (!devices.options.devices.empty()) {
    text += fmt::format(
        "device    {} packets there, {} on the host, {} redone, {} rescued; {} mode switches; {}\n",
        with_commas(end.offload.offloaded), with_commas(end.offload.on_host), with_commas(end.offload.redone),
        with_commas(end.offload.rescued), with_commas(end.switches),
        end.device_failures.empty() ? "no failure" : fmt::format("{} failures", end.device_failures.size()));
  }
  for (const std::string& what : end.wrong) text += "WRONG     " + what + "\n";
  if (end.tally.elsewhere != 0) text += "drops     " + drops_text(end.drops) + "\n";
  text += fmt::format("{}, {} cores, {}, {}; seed {}\n", m.cpu, m.cores, m.compiler, m.build_type, o.seed);
  return text;
}

}  // namespace

void check_soak_variants(const SoakInputs& inputs, Progress& progress) {
  for (uint32_t v = 0; v < kVariants; ++v) {
    progress.step(fmt::format("checking variant {}", v));
    inputs.pipeline->tables = inputs.tables[v];
    RunOptions options;
    options.max_packets = kSoakPackets;
    const PipelineRun once = run_pipeline(*inputs.pipeline, options);
    if (once.interrupted) fail(Exit::kInterrupted, "interrupted");
    Tally tally;
    tally.add(once.report);
    if (tally.mixed() != 0 || tally.out * kVariants != tally.in || tally.in < kSoakPackets)
      fail(Exit::kCheckFailed, fmt::format("variant {} alone: {} packets in, {} out, {} denied; {}", v, tally.in,
                                           tally.out, tally.denied, drops_text(once.report.drops)));
  }
  inputs.pipeline->tables = {};
}

Exit report_soak(const SoakOptions& o, const OpenDevices& devices, const SoakInputs& inputs, const SoakRun& run) {
  SoakEnd end = end_of(run);
  judge(o, devices, run, end);
  print_result(json_of(o, devices, inputs, run, end), text_of(o, devices, inputs, run, end));
  if (!end.wrong.empty()) return Exit::kCheckFailed;
  return interrupted().load() ? Exit::kInterrupted : Exit::kOk;
}

}  // namespace sluice::app
