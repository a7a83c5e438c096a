// The device's part of bench classify, route and pipeline: keys from host memory through a device, and what lies in its
// memory, every result checked.
// host only
#include <algorithm>
#include <cstring>

#include "apps/sluice/devices.h"
#include "bench.h"
#include "exec/device/trace.h"
#include "ports/memory/frame_store.h"
#include "studies/cuda/resident.h"

namespace sluice::app {

Case drive_case(const std::string& name, DeviceWork& p, const DriveOptions& options, unsigned repetitions,
                bool rate_is_the_value) {
  Case c{name, rate_is_the_value ? "Mpackets/s" : "us", {}};
  Histogram all;
  ChannelStats channels;
  double rate = 0;
  std::vector<double> rates;
  for (unsigned r = 0; r < repetitions; ++r) {
    auto done = drive(p.lookup->targets(), p.lookup->node(), p.records, p.expected, options);
    if (!done) fail(Exit::kUnavailable, done.error());
    if (done->wrong != 0)
      fail(Exit::kCheckFailed, fmt::format("{}: {} of {} results differ from the reference; nothing is reported", name,
                                           done->wrong, done->packets));
    if (done->channels.records * lookups_of(options.kind) < done->packets)
      fail(Exit::kCheckFailed, fmt::format("{}: the device answered {} of {} lookups", name,
                                           done->channels.records * lookups_of(options.kind), done->packets));
    rate = done->rate * 1e-6;
    rates.push_back(rate);
    c.values.push_back(rate_is_the_value ? rate : static_cast<double>(done->round_trip.percentile(50)) * 1e-3);
    all.merge(done->round_trip);
    channels.add(done->channels);
    stop_if_interrupted();
  }
  std::sort(rates.begin(), rates.end());
  c.more = {{"p50_us", static_cast<double>(all.percentile(50)) * 1e-3},
            {"p99_us", static_cast<double>(all.percentile(99)) * 1e-3},
            {"p999_us", static_cast<double>(all.percentile(99.9)) * 1e-3},
            {"frame", options.channel.records},
            {"flights", options.channel.flights},
            {"threads", options.threads},
            {"lookups_per_record", lookups_of(options.kind)},
            {"mpackets_per_second", rates[rates.size() / 2]},
            {"gather_p50_us", static_cast<double>(channels.fill.percentile(50)) * 1e-3},
            {"device_p50_us", static_cast<double>(channels.device.percentile(50)) * 1e-3},
            {"device_p99_us", static_cast<double>(channels.device.percentile(99)) * 1e-3}};
  if (!channels.kernel.empty()) {
    c.more["kernel_p50_us"] = static_cast<double>(channels.kernel.percentile(50)) * 1e-3;
    c.more["kernel_p99_us"] = static_cast<double>(channels.kernel.percentile(99)) * 1e-3;
  }
  if (!channels.transfer.empty())
    c.more["transfer_p50_us"] = static_cast<double>(channels.transfer.percentile(50)) * 1e-3;
  return c;
}

void add_device_cases(const BenchOptions& o, const OpenDevices& devices, const std::string& name,
                      const std::string& element, const TableSet& tables, const std::vector<FlowKey>& keys,
                      const std::vector<uint32_t>& expected, std::span<const uint32_t> next_hops,
                      std::vector<Case>& cases) {
  DeviceWork p;
  p.lookup = std::make_unique<DeviceLookup>(devices, element, tables);
  if (!p.lookup->ready()) fail(Exit::kUnavailable, "the device could not take the tables");
  p.add(keys, [&](size_t i) { return expected[i]; });
  if (p.records.empty()) {
    cases.push_back(unmeasured(name + "/" + devices.label, "no packet is an IPv4 packet, whose record is one word"));
    return;
  }
  Progress progress("");
  // Routes alone: three destinations a record, what is left over at the end aside.
  DeviceWork routes;
  routes.lookup = p.lookup;
  for (size_t i = 0; i + kRoutesPerRecord <= next_hops.size(); i += kRoutesPerRecord) {
    uint32_t destinations[kRoutesPerRecord];
    uint64_t result = 0;
    for (uint32_t k = 0; k < kRoutesPerRecord; ++k) {
      destinations[k] = static_cast<uint32_t>(keys[i + k].dst_lo);
      result |= route_part(next_hops[i + k], k);
    }
    routes.records.push_back(pack_route4(destinations, 0));
    routes.expected.push_back(routes_digest(result));
  }
  const std::vector<uint32_t> frames = o.frames.empty() ? std::vector<uint32_t>{256} : o.frames;
  for (const uint32_t frame : frames) {
    DriveOptions d;
    d.channel = devices.options.channel(frame);
    d.threads = o.workers;
    // About two million packets a thread unless told otherwise.
    d.frames = o.frame_repetitions != 0 ? o.frame_repetitions : std::max<uint64_t>(200, 2'000'000 / frame);
    d.warm_up = d.frames / 10 + 1;
    const std::string way =
        fmt::format("{}/{}", o.device.mode, o.device.mode == "persistent" ? "tagged" : o.device.transport);
    progress.step(fmt::format("{} {} frames of {}", name, way, frame));
    cases.push_back(drive_case(fmt::format("{}/{}/x{}/{}", name, way, o.workers, frame), p, d, o.repetitions, true));
    if (routes.records.empty()) continue;
    d.kind = RecordKind::kRoute4;
    cases.push_back(
        drive_case(fmt::format("{}/{}/x{}/{}/routes", name, way, o.workers, frame), routes, d, o.repetitions, true));
  }
  // Which reads tables in global memory alone.
  if (p.lookup->device().info().kind == "cuda" && p.lookup->device().table_memory() == TableMemory::kGlobal) {
    progress.step(name + " device-resident");
    // Large enough to fill the device for a while.
    std::vector<Word> records = p.records;
    std::vector<uint32_t> want = p.expected;
    while (records.size() < (size_t{1} << 24)) {
      const size_t n = records.size();
      records.insert(records.end(), records.begin(), records.begin() + static_cast<ptrdiff_t>(n));
      want.insert(want.end(), want.begin(), want.begin() + static_cast<ptrdiff_t>(n));
    }
    std::vector<uint32_t> got(records.size());
    const bool rules = element.rfind("ACL", 0) == 0;
    const std::vector<double> rates = need(
        resident_rate(p.lookup->device(), p.lookup->resident().programs[p.lookup->node()], records,
                      rules ? ResidentField::kRule : ResidentField::kNextHop, got.data(), std::max(5u, o.repetitions)));
    uint64_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i)
      wrong += result_digest(rules ? got[i] : 0, rules ? 0 : got[i]) != want[i] ? 1 : 0;
    if (wrong != 0)
      fail(Exit::kCheckFailed, fmt::format("{}: {} device-resident results differ from the reference", name, wrong));
    Case c{name + "/resident", "Mpackets/s", {}};
    for (const double rate : rates) c.values.push_back(rate * 1e-6);
    c.more = {{"records", records.size()}};
    cases.push_back(std::move(c));
  }
  progress.clear();
}

void add_resident_lookups(const BenchOptions& o, const OpenDevices& devices, const std::string& name,
                          const Image& image, const std::vector<uint32_t>& v4, const std::vector<uint64_t>& v6,
                          const std::vector<uint32_t>& expected, bool plain, std::vector<Case>& cases) {
  if (const std::string lack = no_cuda_device(devices); !lack.empty()) {
    // Other rows of the device follow, unless these alone were asked for.
    if (plain || o.lookups_only) cases.push_back(unmeasured(name + "/resident/addresses", lack));
    return;
  }
  Device& device = *devices.options.devices[0];
  const TableMemory memory = device.table_memory();
  for (const bool window : {false, true}) {
    // Other memory has no window, and tables there are not fed from the host.
    if (window && (plain || memory != TableMemory::kGlobal)) return;
    std::vector<uint32_t> got(expected.size());
    const unsigned repeats = std::max(5u, o.repetitions);
    const TraceRange range("resident lookups");
    const LookupTable where{memory, window};
    const std::vector<double> rates =
        need(v6.empty() ? resident_lookups4(device, image, v4, got.data(), repeats, where)
                        : resident_lookups6(device, image, v6, got.data(), repeats, where),
             Exit::kUnavailable);
    if (got != expected) fail(Exit::kCheckFailed, fmt::format("{}: device-resident lookups differ", name));
    Case c{name + (window ? "/resident/addresses/window" : "/resident/addresses"), "Mlookups/s", {}};
    for (const double rate : rates) c.values.push_back(rate * 1e-6);
    c.more = {{"addresses", expected.size()}, {"table_memory", to_string(memory)}};
    cases.push_back(std::move(c));
  }
  for (const bool pinned : {true, false}) {
    std::vector<uint32_t> got(expected.size());
    const unsigned repeats = std::max(5u, o.repetitions);
    const TraceRange range(pinned ? "fed lookups, pinned" : "fed lookups, pageable");
    const FedLookups fed = need(v6.empty() ? fed_lookups4(device, image, v4, got.data(), repeats, pinned)
                                           : fed_lookups6(device, image, v6, got.data(), repeats, pinned));
    if (got != expected) fail(Exit::kCheckFailed, fmt::format("{}: lookups fed from the host differ", name));
    Case c{name + (pinned ? "/staged/addresses" : "/staged/addresses/pageable"), "Mlookups/s", {}};
    for (const double rate : fed.rates) c.values.push_back(rate * 1e-6);
    c.more = {{"addresses", expected.size()},    {"allocate_ms", fed.allocate * 1e3},
              {"convert_ms", fed.convert * 1e3}, {"to_device_ms", fed.to_device * 1e3},
              {"kernel_ms", fed.kernel * 1e3},   {"to_host_ms", fed.to_host * 1e3}};
    cases.push_back(std::move(c));
  }
  if (o.in_a_row == 0 || !v6.empty()) return;
  for (const bool pinned : {true, false}) {
    for (const bool fresh : {false, true}) {
      std::vector<uint32_t> got(expected.size());
      const std::vector<double> rates =
          need(lookups_in_a_row4(device, image, v4, got.data(), o.in_a_row, pinned, fresh));
      if (got != expected) fail(Exit::kCheckFailed, fmt::format("{}: lookups batch by batch differ", name));
      Case c{fmt::format("{}/staged/{}_{}{}", name, o.in_a_row, fresh ? "fresh" : "reused", pinned ? "" : "/pageable"),
             "Mlookups/s",
             {}};
      for (const double rate : rates) c.values.push_back(rate * 1e-6);
      c.more = {{"addresses", expected.size()}};
      cases.push_back(std::move(c));
    }
  }
}

void add_resident_frames(const BenchOptions& o, const OpenDevices& devices, const Pipeline& pipeline,
                         const std::string& capture, const std::string& name, std::vector<Case>& cases) {
  if (!no_cuda_device(devices).empty()) return;
  Device& device = *devices.options.devices[0];
  if (device.table_memory() != TableMemory::kGlobal) {
    cases.push_back(unmeasured(name + "/resident", "frames in device memory: tables in global memory alone"));
    return;
  }
  auto snapshot = need(bind_plan(pipeline.plan, pipeline.router, pipeline.tables));
  const std::vector<Offload> offloads = plan_offloads(pipeline.plan, pipeline.router, RecordChoice::kFrame);
  const PlanNode& node = pipeline.plan.nodes.at(0);
  // IPInput, ACL, IPRoute, DecIPTTL, AdjacencyRewrite.
  if (!offloads[0].crosses_as_frames() || node.elements.size() != 5) {
    cases.push_back(unmeasured(name + "/resident", "the graph is not the one that has a kernel of its own"));
    return;
  }
  auto resident = make_resident(device, *snapshot, pipeline.plan, offloads);
  if (!resident) fail(Exit::kUnavailable, resident.error());

  const FrameStore store = need(FrameStore::load(capture));
  uint32_t longest = 0;
  for (const uint32_t bytes : store.captured()) longest = std::max(longest, bytes);
  ResidentFrames frames;
  frames.stride = (longest + 4 + 63) / 64 * 64;
  // Past what the device caches, and long enough to time.
  const uint64_t copies = std::max<uint64_t>(1, (size_t{1} << 28) / frames.stride / store.size());
  const uint64_t count = copies * store.size();
  frames.bytes.resize(ResidentFrames::kLead + count * frames.stride);
  frames.lengths.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t from = i % store.size();
    frames.lengths[i] = store.captured()[from];
    std::memcpy(frames.bytes.data() + ResidentFrames::kLead + i * frames.stride, store.frame(from), frames.lengths[i]);
  }
  // What the host makes of the same frames.
  const DeviceProgram program = device_program(node, snapshot->programs[node.program], offloads[0]);
  std::vector<uint8_t> want(
      frames.bytes.begin(),
      frames.bytes.begin() + static_cast<ptrdiff_t>(ResidentFrames::kLead + store.size() * frames.stride));
  std::vector<uint32_t> outcomes(store.size());
  for (uint64_t i = 0; i < store.size(); ++i) {
    Walker w;
    w.packet.frame = want.data() + ResidentFrames::kLead + i * frames.stride;
    w.packet.end = w.packet.wire_end = frames.lengths[i];
    w.path = program.begin;
    walk_alone(program, w);
    outcomes[i] = frame_outcome(w);
  }
  std::vector<uint32_t> got(count);
  const std::vector<double> rates =
      need(resident_frames(device, (*resident)->programs[0], frames, got.data(), std::max(5u, o.repetitions)));
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t from = i % store.size();
    wrong += got[i] != outcomes[from] ||
             std::memcmp(frames.bytes.data() + ResidentFrames::kLead + i * frames.stride,
                         want.data() + ResidentFrames::kLead + from * frames.stride, frames.lengths[i]) != 0;
  }
  if (wrong != 0)
    fail(Exit::kCheckFailed,
         fmt::format("{}: {} of {} device-resident frames differ from the host's", name, wrong, count));
  Case c{name + "/resident", "Mpackets/s", {}};
  for (const double rate : rates) c.values.push_back(rate * 1e-6);
  c.more = {{"frames", count}, {"stride", frames.stride}};
  cases.push_back(std::move(c));
}

}  // namespace sluice::app
