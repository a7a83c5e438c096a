// Every program, kind of record and mode: what the table of kernels says, emulated devices do.
#include "exec/device/kernels_there.h"

#include <gtest/gtest.h>

#include <bit>
#include <thread>
#include <vector>

#include "elements/stages.h"
#include "exec/emu/emu_device.h"

namespace sluice {
namespace {

constexpr RecordKind kKinds[] = {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4, RecordKind::kFrame};
constexpr DeviceMode kModes[] = {DeviceMode::kLaunch, DeviceMode::kPersistent, DeviceMode::kAdaptive};
constexpr TableMemory kMemories[] = {TableMemory::kGlobal, TableMemory::kConstant, TableMemory::kShared};

// What the definition of a stage type says of it.
struct StageFacts {
  bool by_key = false, by_destination = false, sums = false;
};
std::vector<StageFacts> facts() {
  std::vector<StageFacts> all;
  AllStages::for_each([&]<typename Stage>(TypeTag<Stage>) {
    StageFacts f;
    FieldMask beyond = Stage::kReads;
    for (const FieldMask brought : {kFieldKey, kFieldDestination, kFieldRule, kFieldMark, kFieldNextHop, kFieldReason})
      beyond &= ~brought;
    f.by_key = beyond == 0 && (Stage::kWrites & kFieldFrame) == 0 && (Stage::kWrites & kFieldL3) == 0 &&
               (Stage::kWrites & kFieldExtent) == 0;
    f.by_destination = f.by_key && Stage::kReads == kFieldDestination;
    if constexpr (requires { Stage::kFrameUse; }) f.sums = Stage::kFrameUse == FrameUse::kPayload;
    all.push_back(f);
  });
  return all;
}

ChannelShape shape_of(RecordKind kind) {
  ChannelShape shape;
  shape.record.kind = kind;
  shape.capacity = 32;
  return shape;
}

// Calls f(program, stages that it has).
template <typename F>
void each_program(F f) {
  const auto stages = static_cast<uint16_t>(AllStages::kSize);
  for (uint16_t a = 0; a < stages; ++a) {
    for (uint16_t b = 0; b <= stages; ++b) {
      DeviceProgram program;
      std::vector<uint16_t> kinds{a};
      if (b != stages) kinds.push_back(b);
      for (const uint16_t kind : kinds) program.program.stages[program.program.stage_count++].kind = kind;
      program.end = static_cast<uint8_t>(program.program.stage_count);
      for (const uint8_t sums : {uint8_t{0}, uint8_t{1}}) {
        program.shape.sums = sums;
        f(program, kinds);
      }
    }
  }
}

TEST(KernelsThere, RunWhatStagesNeed) {
  const std::vector<StageFacts> all = facts();
  each_program([&](const DeviceProgram& program, const std::vector<uint16_t>& kinds) {
    for (const RecordKind kind : kKinds) {
      bool runs = kind != RecordKind::kRoute4 || kinds.size() == 1;
      for (size_t s = 0; s < kinds.size(); ++s) {
        const StageFacts& f = all[kinds[s]];
        const bool last = s + 1 == kinds.size();
        runs &= kind == RecordKind::kRoute4 ? f.by_destination
                : is_key(kind)              ? f.by_key
                                            : !f.sums || (last && program.shape.sums != 0);
      }
      EXPECT_EQ(runs_on(kind, program), runs) << to_string(kind) << ' ' << kinds[0] << ' ' << kinds.back();
    }
  });
}

// Drivers are asked for nothing but their answer: no record is sent.
TEST(KernelsThere, AnEmulatedDeviceHasNoOthers) {
  EmuDevice device;
  for (const RecordKind kind : kKinds) {
    const ChannelShape shape = shape_of(kind);
    for (const DeviceMode mode : kModes) {
      auto slabs = device.make_slabs(shape, 1, Transport::kStaged, mode);
      EXPECT_EQ(slabs.ok(), mode == DeviceMode::kLaunch || kind == RecordKind::kFrame) << to_string(kind);
      EXPECT_FALSE(device.make_slabs(shape, 1, Transport::kTagged, mode).ok());
      auto ring = device.make_ring(shape);
      EXPECT_EQ(ring.ok(), kind != RecordKind::kFrame);
      each_program([&](DeviceProgram program, const std::vector<uint16_t>&) {
        for (const TableMemory memory : kMemories) {
          program.memory = memory;
          const bool there = check_program(kind, program).ok();
          if (slabs.ok() && mode == DeviceMode::kLaunch) {
            ASSERT_EQ((*slabs)->start(0, 0, program, {}).ok(), there);
            // The slab is the device's until then.
            while (there) {
              const auto done = (*slabs)->done(0);
              ASSERT_TRUE(done.ok());
              if (*done) break;
              std::this_thread::yield();
            }
          }
          if (ring.ok()) {
            ASSERT_EQ((*ring)->write_program(0, program).ok(), there && memory == TableMemory::kGlobal);
          }
        }
      });
    }
  }
}

TEST(KernelsThere, ChannelsHaveAPowerOfTwoOfRecords) {
  ChannelShape shape = shape_of(RecordKind::kKey4);
  EXPECT_TRUE(check_shape(shape).ok());
  for (const uint32_t capacity : {0u, 16u, 33u}) {
    shape.capacity = capacity;
    EXPECT_FALSE(check_shape(shape).ok()) << capacity;
  }
}

}  // namespace
}  // namespace sluice
