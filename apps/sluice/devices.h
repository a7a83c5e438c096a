// host only
// What all commands that take --device share: its options, opening devices, and lookups on one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app.h"
#include "exec/device/drive.h"
#include "exec/engine/engine.h"
#include "inputs.h"
#include "pipeline.h"

namespace sluice::app {

// What --mode, --transport and --threading take.
inline const OneOf kDeviceModes{{"launch", "persistent", "adaptive"}};
inline const OneOf kDeviceModesOrAuto{{"auto", "launch", "persistent", "adaptive"}};
inline const OneOf kTransports{{"staged", "zerocopy", "commlist", "commpool"}};
inline const OneOf kThreadings{{"full", "master"}};
inline const OneOf kRecordKinds{{"auto", "key", "frame"}};

struct DeviceFlags {
  std::string device = "cpu";
  std::string mode = "launch", transport = "staged", records = "auto", threading = "full";
  uint32_t flights = 0;  // 0: as many as pay
  uint32_t enter_after = 4, leave_after = 16;
  uint32_t watchdog_ms = 0;  // 0: DeviceOptions knows
  std::string ring_memory = "auto", table_memory = "auto", frames = "host";
  bool kernel_times = false;
};

// --device, --mode and --transport, and the rest where `all`. `frames_option`: the names of --frame-memory.
void add_device_options(Command sub, DeviceFlags& flags, bool all, const char* frames_option = "--frame-memory");

// --latency-target, and what it says in nanoseconds: 0 for none. Ends with kUsage where it is no time.
void add_latency_target_option(Command sub, std::string& text);
uint64_t latency_target_ns(const std::string& text);

// The devices that the flags name, with how to use them. `label`: "cpu", "cuda:0", ... for reports. With `auto` and
// nothing there: a note, and the CPU. Ends with kUnavailable where a device that was asked for is not there, kUsage for
// flags that contradict one another.
struct OpenDevices {
  DeviceOptions options;
  std::string label;
  std::string table_memory = "auto";  // as it was asked for
  bool automatic = false;             // --device auto: failures are notes
};
OpenDevices open_devices(const DeviceFlags& flags);
// Whether frames cross where batches are large, to a GPU: and batches of kFrameBatch packets where nobody asks for
// others.
bool sends_frames(const OpenDevices& devices);
inline constexpr uint32_t kFrameBatch = 4096;
// Where lookups will run: what `auto` chooses algorithms for.
inline TableTarget table_target(const OpenDevices& devices) {
  return devices.options.devices.empty() ? TableTarget::kCpu : TableTarget::kGpu;
}

// A checked algorithm's name, by default `auto`, as a configuration for these devices says it.
std::string acl_algorithm_on(const OpenDevices& devices, const std::string& name);

// The same of routes.
LpmNames route_algorithms_on(const OpenDevices& devices, const std::string& names,
                             std::string_view option = "--algorithm");

// The first CUDA device's name, or "".
std::string gpu_name(const OpenDevices& devices);

// Says which segments met packets without a device that was asked for answering one, and why.
// `counts`: packets are counted by rules (plan_offloads).
void note_host_segments(const Pipeline& pipeline, const OpenDevices& devices, uint32_t batch, const RunReport& report,
                        bool counts);

// What keeps a run from being the devices' alone: a failure, a segment that stayed on the host, packets that did.
// Empty: they answered every packet of every segment.
std::string why_not_devices_alone(const Pipeline& pipeline, const OpenDevices& devices, uint32_t batch,
                                  std::span<const RunReport> reports);

// Says what failed, once a device; returns whether any did.
bool report_failures(const RunReport& report);
Json to_json(const DeviceReport& report);
// One line a device: where its packets' time went. Empty without devices.
std::string device_lines(const RunReport& report);

// A program of one lookup element over tables, on all of the devices: flows are spread over them by hash.
class DeviceLookup {
 public:
  // `element`: Click text such as "ACL(TABLE t)".
  DeviceLookup(const OpenDevices& devices, const std::string& element, TableSet tables);
  // The results of keys, in order. When the device fails: a note, and nothing (the caller's CPU path takes over).
  bool run(std::span<const FlowKey> keys, std::vector<KeyResult>& results);

  // Whether the device took the tables.
  bool ready() const { return !failed_; }
  Device& device() { return *devices_[0]; }
  const Resident& resident() const { return *snapshot_->residents[0]; }
  std::vector<DriveTarget> targets() const;
  size_t node() const { return node_; }

 private:
  // By device: the keys that are its, and where they stand.
  struct Share {
    std::unique_ptr<KeyLink> link;
    std::vector<FlowKey> keys;
    std::vector<size_t> at;
    std::vector<KeyResult> results;
    Result<void> ok;
  };
  std::vector<std::shared_ptr<Device>> devices_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Snapshot> snapshot_;
  size_t node_ = 0;
  std::vector<Share> shares_;
  bool failed_ = false;
};

// What the devices' transport and records make of a plan with batches of up to `batch` packets.
std::vector<Offload> offloads_of(const Pipeline& pipeline, const OpenDevices& devices, uint32_t batch,
                                 bool counts = false);

// Segments, what crosses, how, and what stays on the host and why.
std::string describe_offloads(const Pipeline& pipeline, const OpenDevices& devices, unsigned workers, uint32_t batch,
                              bool counts = false);

}  // namespace sluice::app
