// A device that fails, or that is so late that it was given up: the host does its packets, and outputs, counters and
// lines are those of the CPU. The emulated device alone: no other fails when it is told to.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exec/emu/emu_device.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::DeviceOutcome;
using testing::expect_equal;
using testing::GraphRun;
using testing::kWatched;
using testing::run_way;
using testing::TempDir;
using testing::Way;

using enum DeviceMode;
using enum Transport;
using enum RecordChoice;
using enum DeviceThreading;

std::string standard(const TempDir& dir, const std::string& capture) {
  return testing::standard_graph_text(dir, "FromDump(" + capture + ")", "ToDump($OUT)", "tuple_space", "poptrie",
                                      "poptrie");
}

// Edits that are wrong when they are done twice: addresses are swapped, and a sum is appended.
std::string edits(const std::string& capture) {
  return "in :: FromDump(" + capture +
         ") -> EtherMirror -> SetCRC32 -> out :: ToDump($OUT); Idle -> second :: ToDump($OUT2);\n";
}

struct Fault {
  const char* name;
  void (*set)(EmuFaults&);
  bool fails;
};

TEST(DeviceFaults, TheHostTakesOverAndNothingIsLostOrReordered) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", kWatched ? 2500 : 4000, 9);
  const Fault faults[] = {
      {"late", [](EmuFaults& f) { f.late_ns = 20'000; }, false},
      {"stuck", [](EmuFaults& f) { f.stuck_after = 700; }, true},
      {"killed", [](EmuFaults& f) { f.killed_after = 900; }, true},
      {"killed at once", [](EmuFaults& f) { f.killed_after = 0; }, true},
      {"no memory", [](EmuFaults& f) { f.memory_limit = 1000; }, true},
      {"no start", [](EmuFaults& f) { f.refuse_start = true; }, true},
  };
  const auto hold = [&](const std::string& text, const Fault& fault, const Way& way, const DeviceOutcome& want) {
    SCOPED_TRACE(fault.name);
    SCOPED_TRACE(::testing::PrintToString(way));
    const auto device = std::make_shared<EmuDevice>();
    fault.set(device->faults());
    const DeviceOutcome got = run_way(dir, text, &way, {device}, [&](GraphRun& graph) {
      // A busy machine must not make a late device a failed one.
      graph.device.watchdog_ns = fault.fails ? 100'000'000 : 20'000'000'000;
    });
    expect_equal(want, got);
    ASSERT_EQ(got.outcome.report.devices.size(), 1u);
    EXPECT_EQ(!got.outcome.report.devices[0].failure.empty(), fault.fails) << got.outcome.report.devices[0].failure;
  };
  const std::string text = standard(dir, capture);
  const DeviceOutcome want = run_way(dir, text, nullptr, {});
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  size_t turn = 0;
  for (const Fault& fault : faults) {
    for (const Way& way : {Way{kPersistent, kStaged, kKey, 1, 256}, Way{kPersistent, kStaged, kKey, 2, 64},
                           Way{kLaunch, kStaged, kKey, 2, 256}, Way{kLaunch, kZeroCopy, kFrame, 1, 256},
                           Way{kLaunch, kStaged, kFrame, 1, 256}, Way{kLaunch, kStaged, kFrame, 2, 100, 2},
                           Way{kLaunch, kCommList, kFrame, 2, 256}, Way{kLaunch, kCommPool, kFrame, 1, 100},
                           Way{kPersistent, kStaged, kFrame, 2, 100}, Way{kAdaptive, kCommList, kFrame, 1, 256},
                           Way{kAdaptive, kStaged, kKey, 1, 256}, Way{kLaunch, kStaged, kKey, 3, 64, 1, 4, 0, kMaster},
                           Way{kPersistent, kStaged, kKey, 2, 64, 1, 4, 0, kMaster}}) {
      // An odd number of ways, an even number of faults: each way meets half of them, where every access is watched.
      if (kWatched && turn++ % 2 != 0) continue;
      // Memory for frames is taken before the first packet: without it nothing runs.
      if (way.records == kFrame && fault.name == std::string("no memory")) continue;
      hold(text, fault, way, want);
    }
  }
  // Of frames that were edited, but not reported, every byte must be as before.
  const std::string twice = edits(capture);
  const DeviceOutcome once = run_way(dir, twice, nullptr, {});
  ASSERT_TRUE(once.outcome.ok) << once.outcome.error;
  ASSERT_GT(once.outcome.report.packets_out, 700u);
  for (const Way& way : {Way{kLaunch, kCommList, kFrame, 1, 256}, Way{kLaunch, kStaged, kFrame, 2, 256},
                         Way{kPersistent, kStaged, kFrame, 1, 256}}) {
    hold(twice, faults[1], way, once);
  }
}

// The same of packets of classes that stay in a device's memory: the host has a copy of each, as it came.
TEST(DeviceFaults, ClassesInADevicesMemoryAreTakenOver) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 2000, 9);
  const std::string text = testing::standard_graph_text(dir, "FromMemory(" + capture + ", LIMIT 5000)", "ToMemory()",
                                                        "tuple_merge", testing::kDirect4, "poptrie");
  const auto classes = [](GraphRun& graph) {
    graph.priorities.emplace();
    graph.priorities->chunk = 50;
    graph.device.watchdog_ns = 100'000'000;
  };
  const DeviceOutcome want = run_way(dir, text, nullptr, {}, classes);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  for (const DeviceMode mode : {kLaunch, kPersistent}) {
    for (const bool killed : {true, false}) {
      const auto device = std::make_shared<EmuDevice>();
      (killed ? device->faults().killed_after : device->faults().stuck_after) = 1500;
      Way way{mode, kStaged, kFrame, 2, 50};
      way.frames_there = true;
      const DeviceOutcome got = run_way(dir, text, &way, {device}, classes);
      ASSERT_TRUE(got.outcome.ok) << got.outcome.error;
      EXPECT_TRUE(got.outcome.report.conserved());
      EXPECT_EQ(got.outcome.counters, want.outcome.counters);
      EXPECT_NE(got.outcome.report.devices.at(0).failure, "");
      EXPECT_GT(got.outcome.report.offload.rescued, 0u);
      EXPECT_GT(got.outcome.report.offload.offloaded + got.outcome.report.offload.redone, 500u);
    }
  }
}

// Where a device has no room for resident kernels, adaptive mode launches as before, and persistent mode says so.
TEST(DeviceFaults, WithoutRoomForResidentKernelsKernelsAreLaunched) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 2000, 9);
  const std::string text = standard(dir, capture);
  const DeviceOutcome want = run_way(dir, text, nullptr, {});
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  for (const RecordChoice records : {kFrame, kKey}) {
    for (const DeviceMode mode : {kAdaptive, kPersistent}) {
      const auto device = std::make_shared<EmuDevice>();
      device->faults().no_servers = true;
      const Way way{mode, kStaged, records, 2, 100};
      const DeviceOutcome got = run_way(dir, text, &way, {device});
      expect_equal(want, got);
      const DeviceReport& report = got.outcome.report.devices.at(0);
      if (mode == kAdaptive) {
        EXPECT_EQ(report.failure, "");
        EXPECT_EQ(report.channels.launches, report.channels.flights);
        EXPECT_GT(got.outcome.report.offload.offloaded, 1000u);
      } else {
        EXPECT_NE(report.failure.find("no room"), std::string::npos) << report.failure;
      }
    }
  }
}

// Devices whose threads stand still with a record in their hands.
class HeldDevices {
 public:
  // The first `held` of `count` are.
  HeldDevices(unsigned count, unsigned held) : held_(held) {
    for (unsigned i = 0; i < count; ++i) {
      devices_.push_back(std::make_shared<EmuDevice>(i));
      if (i < held) devices_.back()->faults().held_after = 0;
    }
    released_.resize(held);
  }
  ~HeldDevices() { release(); }

  testing::Devices all() const { return {devices_.begin(), devices_.end()}; }
  // Lets each held one do some more of its records. Once there are none it says so by taking its time.
  void let(uint64_t records) {
    for (size_t i = 0; i < held_; ++i) {
      if (released_[i] == kAll) continue;
      devices_[i]->faults().held_after = released_[i] += records;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
      while (devices_[i]->records() < released_[i]) {
        if (std::chrono::steady_clock::now() > limit) {
          released_[i] = kAll;
          break;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
  }
  void release() {
    for (const auto& device : devices_) device->faults().held_after = kAll;
  }
  // That the held ones answered.
  uint64_t records() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < held_; ++i) sum += devices_[i]->records();
    return sum;
  }

 private:
  static constexpr uint64_t kAll = ~uint64_t{0};
  std::vector<std::shared_ptr<EmuDevice>> devices_;
  size_t held_;
  std::vector<uint64_t> released_;  // by held device: what its EmuFaults::held_after is
};

// Devices are given up with records in their hands, and then do these a few at a time, between commits, while the host
// goes on with later packets in the memory that it would use again.
TEST(DeviceFaults, KeepTheWritesOfALateDeviceFromEveryPacket) {
  const TempDir dir;
  constexpr uint32_t kPackets = 2500;
  constexpr uint32_t kBatch = 64;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", kPackets, 12);
  std::vector<Way> ways = {{kLaunch, kStaged, kFrame, 1, kBatch},      {kLaunch, kStaged, kFrame, 3, kBatch, 2},
                           {kLaunch, kCommList, kFrame, 1, kBatch},    {kLaunch, kCommPool, kFrame, 2, kBatch},
                           {kPersistent, kStaged, kFrame, 1, kBatch},  {kLaunch, kCommList, kFrame, 3, kBatch, 3},
                           {kPersistent, kCommList, kFrame, 2, kBatch}};
  if (!kWatched) {
    for (const Way& way : std::vector<Way>{{kLaunch, kCommList, kFrame, 2, kBatch, 2},
                                           {kLaunch, kZeroCopy, kFrame, 1, kBatch},
                                           {kLaunch, kZeroCopy, kFrame, 2, kBatch, 2},
                                           {kPersistent, kStaged, kFrame, 2, kBatch, 2},
                                           {kAdaptive, kZeroCopy, kFrame, 2, kBatch},
                                           {kLaunch, kCommPool, kFrame, 3, kBatch, 2}}) {
      ways.push_back(way);
    }
  }
  // Frames as a capture has them, and as their source lends them; and frames that are summed where they lie.
  const std::string lent = testing::standard_graph_text(dir, "FromMemory(" + capture + ")", "ToDump($OUT)",
                                                        "tuple_space", "poptrie", "poptrie");
  for (const std::string& text : {standard(dir, capture), lent, edits(capture)}) {
    const DeviceOutcome want = run_way(dir, text, nullptr, {});
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    for (const Way& way : ways) {
      // A pool of launched kernels has the first bytes of frames alone, which cannot be summed.
      if (way.transport == kCommPool && text.find("SetCRC32") != std::string::npos) continue;
      // All of them late; where there are several, also the first alone.
      for (unsigned held = way.devices; held != 0; held = held == way.devices && held > 1 ? 1 : 0) {
        SCOPED_TRACE(::testing::PrintToString(way) + ", " + std::to_string(held) + " late");
        HeldDevices devices(way.devices, held);
        uint64_t late = 0;
        const DeviceOutcome got = run_way(dir, text, &way, devices.all(), [&](GraphRun& graph) {
          graph.device.watchdog_ns = 30'000'000;
          graph.progress = [&](uint64_t committed) {
            devices.let(8);
            late = devices.records();
            if (committed == kPackets) devices.release();
          };
        });
        expect_equal(want, got);
        const RunReport& report = got.outcome.report;
        // Equality says nothing where no record was given up and answered afterwards.
        EXPECT_GT(report.offload.rescued, 0u);
        EXPECT_GT(late, 0u);
        // All batches' memory once more, at most, and of frames that are listed the flights' own; pools are in the
        // hands of the flight that they belong to.
        const size_t jobs = std::bit_ceil(way.workers == 1 ? way.flights : (way.flights + 1) * way.workers);
        EXPECT_GT(report.set_aside_bytes, 0u);
        EXPECT_LE(report.set_aside_bytes, jobs * ((size_t{1} << 21) + (size_t{1} << 17)));
        for (unsigned d = 0; d < held; ++d) EXPECT_NE(report.devices[d].failure, "");
      }
    }
  }
}

// One that is not done when the run is over keeps what it may still read and write, until it is.
TEST(DeviceFaults, ADeviceThatDoesNotStopKeepsItsMemory) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 600, 13);
  ASSERT_EQ(kept_runs(), 0u);
  for (const Way& way : {Way{kLaunch, kStaged, kFrame, 2, 64}, Way{kLaunch, kCommList, kFrame, 2, 64},
                         Way{kPersistent, kCommList, kFrame, 2, 64}, Way{kPersistent, kStaged, kKey, 1, 64},
                         Way{kLaunch, kZeroCopy, kKey, 1, 64, 1, 2, 0, kMaster}}) {
    SCOPED_TRACE(::testing::PrintToString(way));
    const std::string text =
        way.transport == kStaged && way.records == kFrame ? edits(capture) : standard(dir, capture);
    const DeviceOutcome want = run_way(dir, text, nullptr, {});
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    HeldDevices devices(1, 1);
    const DeviceOutcome got =
        run_way(dir, text, &way, devices.all(), [](GraphRun& graph) { graph.device.watchdog_ns = 30'000'000; });
    expect_equal(want, got);
    EXPECT_TRUE(got.outcome.report.devices[0].still_running);
    EXPECT_NE(got.outcome.report.devices[0].failure, "");
    EXPECT_EQ(devices.records(), 0u);
    EXPECT_EQ(kept_runs(), 1u);
    // All that it still does lies in memory that is there; then nothing is kept.
    devices.release();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (kept_runs() != 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(kept_runs(), 0u);
    EXPECT_GT(devices.records(), 0u);
  }
}

}  // namespace
}  // namespace sluice
