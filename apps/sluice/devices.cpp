// host only
#include "devices.h"

#include <algorithm>

#include "control/command_text.h"
#include "exec/device/offload.h"

namespace sluice::app {
namespace {

// Choices by name, in the order of the enumerations.
template <typename T>
T choice(const std::string& text, std::initializer_list<std::pair<const char*, T>> all) {
  for (const auto& [name, value] : all) {
    if (text == name) return value;
  }
  return all.begin()->second;
}

}  // namespace

void add_device_options(CLI::App& sub, DeviceFlags& f, bool all) {
  sub.add_option("--device", f.device,
                 "Where lookups run: cpu, cuda, cuda:N, cuda:all, emu (host threads in a GPU's place), or auto")
      ->type_name("DEVICE")
      ->capture_default_str();
  sub.add_option("--mode", f.mode, "Of a device: launch (a kernel a batch), persistent (resident), adaptive (by load)")
      ->check(CLI::IsMember({"launch", "persistent", "adaptive"}))
      ->type_name("MODE")
      ->capture_default_str();
  sub.add_option("--transport", f.transport,
                 "Of launch mode: staged (copies), zerocopy (mapped memory), commlist (frame addresses), commpool (the "
                 "same over a device copy)")
      ->check(CLI::IsMember({"staged", "zerocopy", "commlist", "commpool"}))
      ->type_name("TRANSPORT")
      ->capture_default_str();
  sub.add_option("--flights", f.flights, "Batches of one worker on their way to a device, 1 to 16")
      ->check(CLI::Range(1u, 16u))
      ->type_name("N")
      ->capture_default_str();
  if (!all) return;
  sub.add_option("--records", f.records, "What crosses: auto (fewest bytes), key, header or address")
      ->check(CLI::IsMember({"auto", "key", "header", "address"}))
      ->type_name("KIND")
      ->capture_default_str();
  sub.add_option("--threading", f.threading,
                 "Who speaks to a device: full (every worker) or master (one thread for all workers)")
      ->check(CLI::IsMember({"full", "master"}))
      ->type_name("WHO")
      ->capture_default_str();
  sub.add_option("--enter-after", f.enter_after, "Adaptive: busy batches before persistent mode")
      ->check(CLI::Range(1u, 1'000'000u))
      ->type_name("N")
      ->capture_default_str();
  sub.add_option("--leave-after", f.leave_after, "Adaptive: idle batches before launch mode")
      ->check(CLI::Range(1u, 1'000'000u))
      ->type_name("N")
      ->capture_default_str();
  sub.add_option("--watchdog", f.watchdog_ms, "A device without progress for so long has failed")
      ->check(CLI::Range(10u, 600'000u))
      ->type_name("MS")
      ->capture_default_str();
}

void add_latency_target_option(CLI::App& sub, std::string& text) {
  sub.add_option("--latency-target", text,
                 "Make batches smaller than --batch while they take longer than this, such as 50us (ns, us, ms, s)")
      ->type_name("TIME");
}

uint64_t latency_target_ns(const std::string& text) {
  if (text.empty()) return 0;
  auto parsed = parse_duration(text);
  if (!parsed.ok())
    fail(Exit::kUsage, fmt::format("--latency-target: {}", parsed.error().message), parsed.error().hint);
  return *parsed;
}

OpenDevices open_devices(const DeviceFlags& f) {
  OpenDevices open;
  open.options.mode = choice<DeviceMode>(
      f.mode,
      {{"launch", DeviceMode::kLaunch}, {"persistent", DeviceMode::kPersistent}, {"adaptive", DeviceMode::kAdaptive}});
  open.options.transport = choice<Transport>(f.transport, {{"staged", Transport::kStaged},
                                                           {"zerocopy", Transport::kZeroCopy},
                                                           {"commlist", Transport::kCommList},
                                                           {"commpool", Transport::kCommPool}});
  open.options.records = choice<RecordChoice>(f.records, {{"auto", RecordChoice::kAuto},
                                                          {"key", RecordChoice::kKey},
                                                          {"header", RecordChoice::kHeader},
                                                          {"address", RecordChoice::kAddress}});
  open.options.threading =
      choice<DeviceThreading>(f.threading, {{"full", DeviceThreading::kFull}, {"master", DeviceThreading::kMaster}});
  open.options.flights = f.flights;
  open.options.enter_after = f.enter_after;
  open.options.leave_after = f.leave_after;
  open.options.watchdog_ns = uint64_t{f.watchdog_ms} * 1'000'000;
  open.label = f.device;
  if (f.device == "cpu") return open;
  const std::string kind = f.device.substr(0, f.device.find(':'));
  if (kind != "auto" && kind != "cuda" && kind != "emu") {
    const std::string near = closest_match(kind, {"cpu", "auto", "cuda", "emu"});
    fail(Exit::kUsage, fmt::format("--device: there is no device '{}'", f.device),
         near.empty() ? "devices: cpu, auto, cuda, emu" : fmt::format("did you mean '{}'?", near));
  }
  std::vector<std::string> names = {f.device};
  if (f.device == "auto" || f.device == "cuda:all") {
    const DeviceCount count = count_cuda_devices();
    if (count.count == 0) {
      if (f.device == "cuda:all")
        fail(Exit::kUnavailable, fmt::format("no CUDA device: {}", count.why_none), "use --device cpu, or auto");
      note(fmt::format("device auto: {}; running on the CPU", count.why_none));
      open.label = "cpu";
      return open;
    }
    names.clear();
    const unsigned used = f.device == "auto" ? 1 : count.count;
    for (unsigned i = 0; i < used; ++i) names.push_back(fmt::format("cuda:{}", i));
    open.automatic = f.device == "auto";
    if (open.automatic) open.label = names[0];
  }
  for (const std::string& name : names) {
    auto device = open_device(name);
    if (!device) {
      if (!open.automatic) fail(Exit::kUnavailable, device.error());
      note(fmt::format("device auto: {}; running on the CPU", device.error().message));
      open.label = "cpu";
      open.options.devices.clear();
      return open;
    }
    open.options.devices.push_back(std::move(*device));
  }
  return open;
}

bool report_failures(const RunReport& report) {
  bool any = false;
  for (const DeviceReport& d : report.devices) {
    if (d.failure.empty()) continue;
    any = true;
    note(fmt::format("device {}:{} failed: {}; the CPU took over ({} packets rescued)", d.info.kind, d.info.ordinal,
                     d.failure, with_commas(report.offload.rescued)));
  }
  return any;
}

Json to_json(const DeviceReport& d) {
  const auto times = [](const Histogram& h) {
    return Json{{"p50", h.percentile(50)}, {"p99", h.percentile(99)}, {"p999", h.percentile(99.9)}, {"max", h.max()}};
  };
  Json json{{"device", fmt::format("{}:{}", d.info.kind, d.info.ordinal)},
            {"name", d.info.name},
            {"flights", d.channels.flights},
            {"records", d.channels.records},
            {"master_flights", d.master_flights},
            {"launches", d.channels.launches},
            {"mode_switches", d.channels.switches},
            {"bytes_in", d.channels.bytes_in},
            {"bytes_out", d.channels.bytes_out},
            {"gather_ns", times(d.channels.fill)},
            {"device_ns", times(d.channels.transfer)},
            {"resident_bytes", d.resident_bytes},
            {"uploaded_bytes", d.uploaded_bytes},
            {"refused_generations", d.refused_generations},
            {"failure", d.failure}};
  if (d.power.watts >= 0) json["watts"] = d.power.watts;
  if (d.power.utilisation >= 0) json["utilisation"] = d.power.utilisation;
  return json;
}

DeviceLookup::DeviceLookup(const OpenDevices& devices, const std::string& element, TableSet tables)
    : device_(devices.options.devices.at(0)) {
  pipeline_ = parse_pipeline("InfiniteSource -> IPInput -> lookup :: " + element + " -> Discard; lookup[1] -> Discard;",
                             "lookup", {});
  snapshot_ = need(bind_plan(pipeline_->plan, pipeline_->router, std::move(tables)));
  const std::vector<Offload> offloads = plan_offloads(pipeline_->plan, pipeline_->router, RecordChoice::kKey);
  while (node_ < offloads.size() && !offloads[node_].on_device) ++node_;
  if (node_ == offloads.size()) fail(Exit::kCheckFailed, fmt::format("'{}' is no lookup by key", element));
  auto fall_back = [&](const Error& error) {
    if (!devices.automatic) fail(Exit::kUnavailable, error);
    note(fmt::format("device auto: {}; running on the CPU", error.message));
    failed_ = true;
  };
  auto resident = make_resident(*device_, *snapshot_, pipeline_->plan, offloads);
  if (!resident) {
    fall_back(resident.error());
    return;
  }
  (*resident)->parity = 1;
  snapshot_->residents.push_back(std::move(*resident));
  auto link = KeyLink::open(*device_, *snapshot_->residents[0], node_, devices.options.channel(4096));
  if (!link) {
    fall_back(link.error());
    return;
  }
  link_ = std::move(*link);
}

bool DeviceLookup::run(std::span<const FlowKey> keys, std::vector<KeyResult>& results) {
  if (failed_) return false;
  results.resize(keys.size());
  if (auto ok = link_->run(keys, results); !ok) {
    note(fmt::format("device {}:{}: {}; the CPU takes over", device_->info().kind, device_->info().ordinal,
                     ok.error().message));
    failed_ = true;
    return false;
  }
  return true;
}

std::string describe_offloads(const Pipeline& pipeline, const OpenDevices& devices) {
  if (devices.options.devices.empty()) return "device cpu: every segment runs on the workers\n";
  const DeviceOptions& d = devices.options;
  const RecordChoice records =
      d.transport == Transport::kCommList || d.transport == Transport::kCommPool ? RecordChoice::kAddress : d.records;
  const std::vector<Offload> offloads = plan_offloads(pipeline.plan, pipeline.router, records);
  std::string text = fmt::format("device {}: {} device{}, mode {}, transport {}, threading {}, {} flights a worker\n",
                                 devices.label, d.devices.size(), d.devices.size() == 1 ? "" : "s", to_string(d.mode),
                                 d.mode == DeviceMode::kPersistent ? "tagged" : to_string(d.transport),
                                 to_string(d.threading), d.flights);
  for (size_t n = 0; n < offloads.size(); ++n) {
    const PlanNode& node = pipeline.plan.nodes[n];
    if (node.type != PlanNode::Type::kSegment) continue;
    const Offload& o = offloads[n];
    if (!o.on_device) {
      text += fmt::format("node {}: on the host: {}\n", n, o.why);
      continue;
    }
    const CrossingBytes bytes = crossing_bytes(o);
    auto names = [&](size_t begin, size_t end) {
      std::string all;
      for (size_t s = begin; s < end; ++s)
        all += (all.empty() ? "" : " -> ") + pipeline.router.elements[node.elements[s]]->name;
      return all.empty() ? std::string("nothing") : all;
    };
    text += fmt::format("node {}: {}; {} bytes a packet in, {} out{}\n", n, o.why, bytes.in, bytes.out,
                        o.keys ? fmt::format(" (IPv6: {} in)", kKey6Words * 16) : "");
    text += fmt::format("    host before  {}\n    device       {}\n    host after   {}\n", names(0, o.begin),
                        names(o.begin, o.end), names(o.end, node.elements.size()));
  }
  return text;
}

}  // namespace sluice::app
