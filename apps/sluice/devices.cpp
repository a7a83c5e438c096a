// host only
#include "devices.h"

#include <algorithm>

#include "base/thread.h"
#include "control/command_text.h"
#include "control/json.h"
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

void add_device_options(Command sub, DeviceFlags& f, bool all, const char* frames_option) {
  sub.add_option("--device", "DEVICE", f.device,
                 "Where lookups run: cpu, cuda, cuda:N, cuda:all, emu (host threads emulate a GPU), or auto (a GPU if "
                 "there is one)")
      ->capture_default_str();
  // What measures says how.
  const bool chooses = f.mode == "auto";
  const std::string modes =
      "Device mode: launch (one kernel per batch), persistent (resident kernels), adaptive (by load)";
  sub.add_option("--mode", f.mode,
                 chooses ? modes + ", or auto (persistent if whole frames are copied, else launch)" : modes)
      ->check(chooses ? kDeviceModesOrAuto : kDeviceModes)
      ->type_name("MODE")
      ->capture_default_str();
  sub.add_option(
         "--transport", f.transport,
         "Transport of launch mode: staged (copies), zerocopy (mapped memory), commlist (the device reads frames in "
         "place, by a list of addresses), commpool (the host gathers frames into one block, which is copied to the "
         "device and back)")
      ->check(kTransports)
      ->type_name("TRANSPORT")
      ->capture_default_str();
  sub.add_option(
         "--flights", "N", f.flights,
         "Batches in flight to a device per worker, 1 to 16 (default: 4; if whole frames are copied and workers are "
         "fewer than four, 16 in all)")
      ->check(Range(1u, 16u));
  sub.add_word("--ring-memory", "WHERE", f.ring_memory,
               "Persistent mode: where the device reads keys: device (its own memory, written over the bus), host "
               "(pinned memory, read over the bus), or auto (device if possible)",
               {"auto", "host", "device"});
  sub.add_word("--table-memory", "WHERE", f.table_memory,
               "Launch mode: where kernels read tables: global (device memory), constant (constant memory, 64 KiB), "
               "shared (each block's shared memory, 227 KiB on an H100), or auto (global)",
               {"auto", "global", "constant", "shared"});
  if (!all) return;
  sub.add_flag("--kernel-times", f.kernel_times,
               "Also time kernels: statistics show kernel and transfer times separately");
  sub.add_option(
         "--records", f.records,
         "What is sent per packet: auto (frame with batches of 1,024 and more, else key where a key is enough), "
         "key or frame")
      ->check([](const std::string& kind) {
        return kind == "header" || kind == "address"
                   ? fmt::format("there are no {} records any more, frames take their place: use --records frame", kind)
                   : std::string();
      })
      .check(kRecordKinds)
      ->type_name("KIND")
      ->capture_default_str();
  sub.add_word(
      frames_option, "WHERE", f.frames,
      "Where frames lie that are replayed from memory: host (they are copied on each replay) or device (they are "
      "copied there once, and back only if they are read; with --records frame)",
      {"host", "device"});
  sub.add_option("--threading", f.threading,
                 "Which threads submit to a device: full (every worker) or master (one thread for all workers)")
      ->check(kThreadings)
      ->type_name("WHO")
      ->capture_default_str();
  sub.add_number("--enter-after", "N", f.enter_after, "Adaptive mode: busy batches before persistent",
                 Range(1u, 1'000'000u));
  sub.add_number("--leave-after", "N", f.leave_after, "Adaptive mode: idle batches before launch",
                 Range(1u, 1'000'000u));
  sub.add_option("--watchdog", f.watchdog_ms,
                 "A device without progress for this long has failed; default 2000, of an emulated device 60000")
      ->check(Range(10u, 600'000u))
      ->as_duration(1e-3)
      .type_name("MS");
}

void add_latency_target_option(Command sub, std::string& text) {
  sub.add_option("--latency-target", "TIME", text,
                 "Shrink batches below --batch while they take longer than this, such as 50us (ns, us, ms, s)");
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
      f.mode == "auto" ? "launch" : f.mode,
      {{"launch", DeviceMode::kLaunch}, {"persistent", DeviceMode::kPersistent}, {"adaptive", DeviceMode::kAdaptive}});
  open.options.any_mode = f.mode == "auto" && (f.table_memory == "auto" || f.table_memory == "global");
  open.options.transport = choice<Transport>(f.transport, {{"staged", Transport::kStaged},
                                                           {"zerocopy", Transport::kZeroCopy},
                                                           {"commlist", Transport::kCommList},
                                                           {"commpool", Transport::kCommPool}});
  open.options.records = choice<RecordChoice>(
      f.records, {{"auto", RecordChoice::kAuto}, {"key", RecordChoice::kKey}, {"frame", RecordChoice::kFrame}});
  open.options.threading =
      choice<DeviceThreading>(f.threading, {{"full", DeviceThreading::kFull}, {"master", DeviceThreading::kMaster}});
  const RingMemory ring_memory = choice<RingMemory>(
      f.ring_memory, {{"auto", RingMemory::kAuto}, {"host", RingMemory::kHost}, {"device", RingMemory::kDevice}});
  const TableMemory table_memory = choice<TableMemory>(f.table_memory, {{"auto", TableMemory::kGlobal},
                                                                        {"global", TableMemory::kGlobal},
                                                                        {"constant", TableMemory::kConstant},
                                                                        {"shared", TableMemory::kShared}});
  open.table_memory = f.table_memory;
  if (table_memory != TableMemory::kGlobal) {
    if (open.options.mode != DeviceMode::kLaunch)
      fail(Exit::kUsage, fmt::format("--table-memory {}: only in --mode launch", f.table_memory),
           "resident kernels read tables in global memory");
  }
  open.options.any_flights = f.flights == 0;
  if (f.flights != 0) open.options.flights = f.flights;
  open.options.enter_after = f.enter_after;
  open.options.leave_after = f.leave_after;
  if (f.watchdog_ms != 0) open.options.watchdog_ns = uint64_t{f.watchdog_ms} * 1'000'000;
  if (f.frames == "device") {
    if (open.options.records != RecordChoice::kAuto && open.options.records != RecordChoice::kFrame)
      fail(Exit::kUsage, fmt::format("--frame-memory device: not with --records {}", f.records), "use --records frame");
    open.options.records = RecordChoice::kFrame;
    open.options.frames_there = true;
  }
  if (open.options.records == RecordChoice::kFrame) {
    const char* const which = open.options.frames_there ? "--frame-memory device" : "--records frame";
    if (open.options.threading != DeviceThreading::kFull)
      fail(Exit::kUsage, fmt::format("{}: only with --threading full", which), "each worker sends its own frames");
  }
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
    (*device)->time_kernels(f.kernel_times);
    if (auto ok = (*device)->use_ring_memory(ring_memory); !ok) fail(Exit::kUnavailable, ok.error());
    (*device)->use_table_memory(table_memory);
    open.options.devices.push_back(std::move(*device));
  }
  return open;
}

bool sends_frames(const OpenDevices& devices) {
  const RecordChoice choice = devices.options.record_choice(kFrameBatch);
  // Who asks for resident kernels without saying how many packets a batch has is after their round trip.
  const bool chosen = choice == RecordChoice::kAutoFrames && devices.options.mode == DeviceMode::kLaunch;
  return !gpu_name(devices).empty() && (chosen || choice == RecordChoice::kFrame);
}

std::string acl_algorithm_on(const OpenDevices& devices, const std::string& name) {
  std::string checked = check_acl_algorithm(name);
  return checked == kAclAuto && table_target(devices) == TableTarget::kGpu ? kAclAutoGpu : checked;
}

LpmNames route_algorithms_on(const OpenDevices& devices, const std::string& names, std::string_view option) {
  LpmNames checked = check_lpm_algorithms(names, option);
  if (table_target(devices) == TableTarget::kGpu) {
    for (std::string* name : {&checked.algorithm4, &checked.algorithm6}) {
      if (*name == kLpmAuto) *name = kLpmAutoGpu;
    }
  }
  return checked;
}

std::string gpu_name(const OpenDevices& devices) {
  for (const auto& device : devices.options.devices) {
    if (device->info().kind == "cuda") return device->info().name;
  }
  return "";
}

bool report_failures(const RunReport& report) {
  bool any = false;
  for (const DeviceReport& d : report.devices) {
    if (d.failure.empty()) continue;
    any = true;
    note(fmt::format("device {}:{} failed: {}; the CPU took over ({} rescued{}){}", d.info.kind, d.info.ordinal,
                     d.failure, counted(report.offload.rescued, "packet"),
                     report.set_aside_bytes != 0 ? fmt::format(", {:.1f} MiB of frames set aside",
                                                               static_cast<double>(report.set_aside_bytes) / (1 << 20))
                                                 : "",
                     d.still_running ? "; it is still running" : ""));
  }
  return any;
}

namespace {

// A flight's time on the bus. Resident kernels are measured by groups, not by flights: there it is what their median
// leaves of the device's time.
uint64_t transfer_ns(const ChannelStats& stats, double percent) {
  if (!stats.transfer.empty()) return stats.transfer.percentile(percent);
  const uint64_t all = stats.device.percentile(percent), kernel = stats.kernel.percentile(50);
  return all - std::min(all, kernel);
}

}  // namespace

std::string device_lines(const RunReport& report) {
  std::string text;
  for (const DeviceReport& d : report.devices) {
    const auto times = [](const char* name, uint64_t p50, uint64_t p99) {
      return fmt::format(", {} {:.1f}/{:.1f}", name, static_cast<double>(p50) * 1e-3, static_cast<double>(p99) * 1e-3);
    };
    const auto of = [&](const char* name, const Histogram& h) {
      return times(name, h.percentile(50), h.percentile(99));
    };
    text += fmt::format("{}:{}  {}; p50/p99 in us: wait {:.1f}/{:.1f}", d.info.kind, d.info.ordinal,
                        counted(d.channels.records, "packet"),
                        static_cast<double>(report.totals.wait.percentile(50)) * 1e-3,
                        static_cast<double>(report.totals.wait.percentile(99)) * 1e-3);
    text += of("gather", d.channels.fill) + of("device", d.channels.device);
    if (!d.channels.kernel.empty()) {
      text +=
          of("kernel", d.channels.kernel) + times("transfer", transfer_ns(d.channels, 50), transfer_ns(d.channels, 99));
    }
    text += of("egress", report.totals.egress) + "\n";
  }
  return text;
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
            {"pushed_flights", d.channels.pushed},
            {"bytes_in", d.channels.bytes_in},
            {"bytes_out", d.channels.bytes_out},
            {"gather_ns", times(d.channels.fill)},
            {"device_ns", times(d.channels.device)},
            {"resident_bytes", d.resident_bytes},
            {"uploaded_bytes", d.uploaded_bytes},
            {"refused_generations", d.refused_generations},
            {"failure", d.failure},
            {"still_running", d.still_running}};
  if (!d.channels.kernel.empty()) {
    json["kernel_ns"] = times(d.channels.kernel);
    json["transfer_ns"] = {{"p50", transfer_ns(d.channels, 50)},
                           {"p99", transfer_ns(d.channels, 99)},
                           {"p999", transfer_ns(d.channels, 99.9)},
                           {"max", transfer_ns(d.channels, 100)}};
  }
  if (d.power.watts >= 0) json["watts"] = d.power.watts;
  if (d.power.utilisation >= 0) json["utilisation"] = d.power.utilisation;
  return json;
}

DeviceLookup::DeviceLookup(const OpenDevices& devices, const std::string& element, TableSet tables)
    : devices_(devices.options.devices) {
  pipeline_ = parse_pipeline("InfiniteSource -> IPInput -> lookup :: " + element + " -> Discard; lookup[1] -> Discard;",
                             "lookup", {});
  snapshot_ = need(bind_plan(pipeline_->plan, pipeline_->router, std::move(tables)));
  const std::vector<Offload> offloads = plan_offloads(pipeline_->plan, pipeline_->router, RecordChoice::kKey);
  while (node_ < offloads.size() && !offloads[node_].on_device) ++node_;
  if (node_ == offloads.size()) fail(Exit::kCheckFailed, fmt::format("'{}' is not a lookup by key", element));
  auto fall_back = [&](const Error& error) {
    if (!devices.automatic) fail(Exit::kUnavailable, error);
    note(fmt::format("device auto: {}; running on the CPU", error.message));
    failed_ = true;
  };
  for (const auto& device : devices_) {
    auto resident = make_resident(*device, *snapshot_, pipeline_->plan, offloads);
    if (!resident) {
      fall_back(resident.error());
      return;
    }
    (*resident)->parity = 1;
    snapshot_->residents.push_back(std::move(*resident));
    auto link = KeyLink::open(*device, *snapshot_->residents.back(), node_, devices.options.channel(4096));
    if (!link) {
      fall_back(link.error());
      return;
    }
    shares_.emplace_back().link = std::move(*link);
  }
}

std::vector<DriveTarget> DeviceLookup::targets() const {
  std::vector<DriveTarget> all;
  for (size_t d = 0; d < devices_.size(); ++d) all.push_back({devices_[d].get(), snapshot_->residents[d].get()});
  return all;
}

bool DeviceLookup::run(std::span<const FlowKey> keys, std::vector<KeyResult>& results) {
  if (failed_) return false;
  results.resize(keys.size());
  if (shares_.size() == 1) {
    shares_[0].ok = shares_[0].link->run(keys, results);
  } else {
    for (Share& share : shares_) {
      share.keys.clear();
      share.at.clear();
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      // As the runtime spreads packets over workers, and these over devices.
      Share& share = shares_[uint64_t{flow_hash(keys[i], 0x51u)} * shares_.size() >> 32];
      share.keys.push_back(keys[i]);
      share.at.push_back(i);
    }
    std::vector<std::jthread> threads;
    threads.reserve(shares_.size());
    for (Share& share : shares_) {
      share.results.resize(share.keys.size());
      threads.push_back(
          need(start_thread([&share] { share.ok = share.link->run(share.keys, share.results); }), Exit::kIo));
    }
    threads.clear();
    for (const Share& share : shares_) {
      for (size_t i = 0; i < share.at.size(); ++i) results[share.at[i]] = share.results[i];
    }
  }
  for (size_t d = 0; d < shares_.size(); ++d) {
    if (shares_[d].ok.ok()) continue;
    const DeviceInfo& info = devices_[d]->info();
    note(fmt::format("device {}:{}: {}; the CPU takes over", info.kind, info.ordinal, shares_[d].ok.error().message));
    failed_ = true;
  }
  return !failed_;
}

std::vector<Offload> offloads_of(const Pipeline& pipeline, const OpenDevices& devices, uint32_t batch, bool counts) {
  return plan_offloads(pipeline.plan, pipeline.router, devices.options.record_choice(batch), counts,
                       devices.options.pooled());
}

namespace {

std::string names_of(const Pipeline& pipeline, const PlanNode& node, size_t begin, size_t end) {
  std::string all;
  for (size_t s = begin; s < end; ++s)
    all += (all.empty() ? "" : " -> ") + pipeline.router.elements[node.elements[s]]->name;
  return all.empty() ? std::string("nothing") : all;
}

// Why a segment is not on a device, and what would put it there.
std::string why_on_host(const Pipeline& pipeline, const OpenDevices& devices, size_t n, const Offload& offload) {
  const auto other =
      plan_offloads(pipeline.plan, pipeline.router, RecordChoice::kFrame, false, devices.options.pooled());
  return offload.why + (other[n].on_device ? " (--records frame: on the device)" : "");
}

// Packets of a segment that the host did although a device might have.
struct OnHost {
  size_t node = 0;
  uint64_t packets = 0, answered = 0;
  std::string why;
};

std::vector<OnHost> on_host(const Pipeline& pipeline, const OpenDevices& devices, const std::vector<Offload>& offloads,
                            const RunReport& report) {
  std::vector<OnHost> all;
  for (size_t n = 0; n < report.segments.size(); ++n) {
    const PlanNode& node = pipeline.plan.nodes[n];
    if (node.type != PlanNode::Type::kSegment) continue;
    const Offload& o = offloads[n];
    const DeviceCounters& c = report.segments[n];
    OnHost one{n, c.on_host + c.redone + c.rescued, c.offloaded, o.stays.empty() ? "no room for them" : o.stays};
    if (!o.on_device) {
      for (const unsigned e : node.elements) one.packets = std::max(one.packets, report.totals.elements[e].packets);
      one.why = why_on_host(pipeline, devices, n, o);
    }
    if (one.packets != 0) all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

void note_host_segments(const Pipeline& pipeline, const OpenDevices& devices, uint32_t batch, const RunReport& report,
                        bool counts) {
  const bool failed = std::any_of(report.devices.begin(), report.devices.end(),
                                  [](const DeviceReport& d) { return !d.failure.empty(); });
  if (devices.automatic || failed) return;  // report_failures says it
  for (const OnHost& one : on_host(pipeline, devices, offloads_of(pipeline, devices, batch, counts), report)) {
    if (one.answered != 0) continue;
    const PlanNode& node = pipeline.plan.nodes[one.node];
    note(fmt::format("device {}: no packet of {} was sent to it, {} stayed on the host: {}", devices.label,
                     names_of(pipeline, node, 0, node.elements.size()), with_commas(one.packets), one.why));
  }
}

std::string why_not_devices_alone(const Pipeline& pipeline, const OpenDevices& devices, uint32_t batch,
                                  std::span<const RunReport> reports) {
  const std::vector<Offload> offloads = offloads_of(pipeline, devices, batch);
  uint64_t answered = 0;
  for (const RunReport& report : reports) {
    for (const DeviceReport& d : report.devices) {
      if (!d.failure.empty()) return fmt::format("device {}:{} failed: {}", d.info.kind, d.info.ordinal, d.failure);
    }
    for (const OnHost& one : on_host(pipeline, devices, offloads, report)) {
      const PlanNode& node = pipeline.plan.nodes[one.node];
      return fmt::format("{} of {} of {}: {}", with_commas(one.packets), counted(one.packets + one.answered, "packet"),
                         names_of(pipeline, node, 0, node.elements.size()), one.why);
    }
    answered += report.offload.offloaded;
  }
  return answered != 0 ? "" : "no packet reached a segment that a device can run";
}

namespace {

// Those of a segment's stages on a device, and why.
std::string where_tables_lie(const OpenDevices& devices, const Offload& o) {
  const Device& device = *devices.options.devices[0];
  const TableMemory memory = device.table_memory();
  const size_t room = table_room(memory, o.keys ? RecordKind::kKey4 : o.shape.kind, device.info().shared_bytes);
  if (memory == TableMemory::kGlobal) {
    return devices.table_memory == "auto" ? "global memory (auto: tables of every size fit)"
                                          : "global memory (--table-memory global)";
  }
  return fmt::format("{} memory, {}, {} bytes at most (--table-memory {})", to_string(memory),
                     memory == TableMemory::kShared ? "a copy for each block" : "of all segments together", room,
                     to_string(memory));
}

}  // namespace

std::string describe_offloads(const Pipeline& pipeline, const OpenDevices& devices, unsigned workers, uint32_t batch,
                              bool counts) {
  if (devices.options.devices.empty()) return "device cpu: every segment runs on the workers\n";
  const DeviceOptions& d = devices.options;
  const std::vector<Offload> offloads = offloads_of(pipeline, devices, batch, counts);
  const uint32_t most = d.flights_of(offloads, 1);
  const DeviceMode mode = d.mode_of(offloads, workers);
  const bool tagged = mode == DeviceMode::kPersistent && !DeviceOptions::crosses_as_frames(offloads);
  std::string text = fmt::format(
      "device {}: {}, mode {}, transport {}, threading {}, {} batches in flight per worker\n", devices.label,
      counted(d.devices.size(), "device"), to_string(mode), tagged ? "tagged" : to_string(d.transport),
      to_string(d.threading), most == d.flights ? std::to_string(most) : fmt::format("{} to {}", d.flights, most));
  for (size_t n = 0; n < offloads.size(); ++n) {
    const PlanNode& node = pipeline.plan.nodes[n];
    if (node.type != PlanNode::Type::kSegment) continue;
    const Offload& o = offloads[n];
    if (!o.on_device) {
      text += fmt::format("node {}: on the host: {}\n", n, why_on_host(pipeline, devices, n, o));
      continue;
    }
    const CrossingBytes bytes = crossing_bytes(o);
    const bool whole = o.crosses_as_frames();
    const std::string frames =
        !whole ? ""
        : o.shape.sums != 0
            ? fmt::format(", and all of the frame; {} bytes come back", o.writes_frame ? kFrameEdited : 0)
        : d.pooled() ? fmt::format(", and the frame each way, of longer ones the first {} bytes", kRecordRegion)
        : d.transport == Transport::kCommList
            ? fmt::format(", and what the device reads of the frame where it lies, at most {} bytes; {} come back",
                          kFrameRegion, kFrameEdited)
            : fmt::format(
                  ", and the frame each way, of longer ones the first {} bytes; of those that lie in memory {} bytes "
                  "come back",
                  kRecordRegion, kFrameEdited);
    text += fmt::format("node {}: {}; {} bytes per packet in, {} out{}{}\n", n,
                        whole && d.pooled() ? "frames are gathered" : o.why, bytes.in, bytes.out,
                        o.keys ? fmt::format(" (IPv6: {} in)", kKey6Words * 16) : "", frames);
    if (!o.stays.empty()) text += fmt::format("    which        {}\n", o.stays);
    if (whole && d.frames_there)
      text +=
          "    frames       of memory sources lie in device memory, copied once; what becomes of them comes back where "
          "it is read\n";
    text += fmt::format("    host before  {}\n    device       {}\n    tables       {}\n    host after   {}\n",
                        names_of(pipeline, node, 0, o.begin), names_of(pipeline, node, o.begin, o.end),
                        where_tables_lie(devices, o), names_of(pipeline, node, o.end, node.elements.size()));
  }
  return text;
}

}  // namespace sluice::app
