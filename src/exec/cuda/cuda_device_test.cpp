// A device against the body of its kernels run on the host: the same words out, bit for bit, whatever the transport,
// the kind of record and the program. The emulated device runs through it too, so that the test itself is known to work
// where there is no GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "exec/cuda/chains.h"
#include "exec/cuda/cuda_test_support.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/open_cuda.h"
#include "exec/device/channel.h"
#include "exec/device/device.h"
#include "exec/device/resident.h"

namespace sluice {
namespace {

using namespace cuda_test;

// Frames as their source lends them: packed, each at the next unit of 16 bytes, and room for what becomes of them.
struct Frames {
  static constexpr FrameSlots kSlots{kFrameRegion, 16, 0, frame_stride(kFrameMostRoom), kFrameEdited};
  explicit Frames(const std::vector<Item>& items) {
    size_t at = 0;
    for (const Item& item : items) {
      records.push_back({static_cast<uint32_t>(at), static_cast<uint16_t>(item.bytes), 0});
      at += (item.bytes + 15) / 16 * 16;
    }
    // A load of whole lines reads behind the last.
    const size_t bytes = at + kFrameMostRoom;
    heads_at = (bytes + 63) / 64 * 64;
    to_at = heads_at + heads_bytes(static_cast<uint32_t>(items.size()), kSlots.head);
    memory = must(Buffer::allocate(to_at + bytes));
    for (size_t i = 0; i < items.size(); ++i)
      memcpy(memory.data() + records[i].at, items[i].storage.data() + kHeadroom, items[i].bytes);
    range.bytes = bytes;
    range.slots = kSlots;
    reached_at(memory.data());
  }
  // Where a device sees the memory.
  void reached_at(void* base) {
    auto* const there = static_cast<std::byte*>(base);
    range.host = memory.data();
    range.heads = memory.data() + heads_at;
    range.to = memory.data() + to_at;
    range.host_there = there;
    range.heads_there = there + heads_at;
    range.to_there = there + to_at;
  }
  const uint8_t* frame(size_t i) const { return reinterpret_cast<const uint8_t*>(memory.data()) + records[i].at; }

  std::vector<FrameRecord> records;
  size_t heads_at, to_at;
  Buffer memory;
  SlabDriver::Range range;
};

// What a lane makes of a frame: its result, and its copy.
struct FrameWant {
  explicit FrameWant(const DeviceProgram& program, const Frames& frames, size_t i)
      : record(frames.records[i]), copy(size_t{kFrameFront} + record.bytes + kFrameMostRoom + kTailroom) {
    memcpy(frame(), frames.frame(i), record.bytes);
    read_frame(program, record, Frames::kSlots, frame(), walker);
    walk_alone(program, walker);
    word = frame_result(record, Frames::kSlots, walker);
    usual = is_usual_frame(word, usual_stages(program.end));
    leaves = (word & kFrameRedo) == 0 && walker.path != kPathDropped;
  }
  uint8_t* frame() { return copy.data() + kFrameFront; }

  FrameRecord record;
  std::vector<uint8_t> copy;
  Walker walker;
  uint64_t word;
  bool usual, leaves;
};

// -- the tests --------------------------------------------------------------------------------------------------------

class CudaDeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (is_cuda()) {
      const DeviceCount found = count_cuda_devices();
      if (found.count == 0) GTEST_SKIP() << "no CUDA device: " << found.why_none;
    }
    device_ = must(open());
  }
  bool is_cuda() const { return std::string(GetParam()) != "emu"; }
  // A small reserve, so that allocations of their own are met too.
  Result<std::unique_ptr<Device>> open(CudaOptions options = {}) {
    if (!is_cuda()) return open_device("emu");
    options.reserve_bytes = size_t{16} << 20;
    options.graphs = options.graphs || std::string(GetParam()) == "cuda_graphs";
    return open_cuda_device(0, options);
  }

  void key_rings_equal_the_host(RingMemory memory);
  void run_slab(const Named& named, Transport transport, std::vector<Item> items) {
    SCOPED_TRACE(std::string(named.name) + ", " + to_string(transport) + ", " + to_string(named.program.shape.kind));
    const DeviceProgram there = (*loaded_)(named.program);
    const ChannelShape shape = channel_shape(named.program, 256);
    auto slabs = must(device_->make_slabs(shape, 2, transport));
    for (uint32_t round = 0; round < 4; ++round) {
      const uint32_t slab = round & 1;
      // A whole slab, one lane, a part of a warp, two warps and a bit.
      const uint32_t count =
          std::min<uint32_t>(static_cast<uint32_t>(items.size()), (uint32_t[]){256, 1, 19, 77}[round]);
      const uint32_t tag = make_tag(round + 1, round & 1);
      std::vector<uint64_t> want;
      for (uint32_t i = 0; i < count; ++i) {
        Word* const in = slabs->in(slab) + size_t{i} * shape.words_in();
        write_record(named.program, items[i], tag, in);
        want.push_back(expected_of(named.program, in, tag));
      }
      const auto started = slabs->start(slab, count, there, {});
      ASSERT_TRUE(started.ok()) << to_string(started.error());
      wait(*slabs, slab);
      const auto* const out = static_cast<const uint64_t*>(slabs->out(slab));
      size_t wrong = 0;
      for (uint32_t i = 0; i < count; ++i) wrong += out[i] != want[i] ? 1 : 0;
      EXPECT_EQ(wrong, 0u) << "of " << count << " results differ";
    }
  }
  // By launched kernels, and by servers.
  void run_frames(const Named& named, const std::vector<Item>& all, DeviceMode mode) {
    SCOPED_TRACE(std::string(named.name) + ", " + to_string(mode));
    const RecordShape& asked = named.program.shape;
    const DeviceProgram there = (*loaded_)(named.program);
    auto slabs = must(device_->make_slabs(channel_shape(named.program, 256), 2, Transport::kZeroCopy, mode));
    slabs->serve(mode == DeviceMode::kPersistent);
    for (uint32_t round = 0; round < 4; ++round) {
      const uint32_t slab = round & 1;
      const uint32_t count = (uint32_t[]){256, 1, 19, 77}[round];
      const std::vector<Item> items(all.begin(), all.begin() + count);
      Frames frames(items);
      const std::vector<std::byte> before(frames.memory.data(), frames.memory.data() + frames.heads_at);
      frames.reached_at(must(device_->pin(frames.memory.data(), frames.memory.size())));
      memcpy(slabs->in(slab), frames.records.data(), count * sizeof(FrameRecord));
      const auto started = slabs->start(slab, count, there, frames.range);
      ASSERT_TRUE(started.ok()) << to_string(started.error());
      wait(*slabs, slab);
      EXPECT_EQ(memcmp(before.data(), frames.memory.data(), before.size()), 0) << "a frame as it came was changed";
      const FrameResults results = FrameResults::at(const_cast<void*>(slabs->out(slab)), count);
      uint32_t bytes[2] = {};
      for (uint32_t i = 0; i < count; ++i) {
        FrameWant want(named.program, frames, i);
        const FrameBlock& block = results.blocks[i / FrameBlock::kRecords];
        ASSERT_EQ(block.is_usual(i), want.usual) << i;
        if (block.has_word(i)) {
          ASSERT_EQ(results.words[i], want.word) << i;
        } else if (!want.usual) {
          ASSERT_TRUE(block.is_summed(i) && is_summed_drop(want.word, want.walker)) << i;
          ASSERT_EQ(block.summed_word(i), want.word & FrameDrops::kMeant) << i;
          ++summed_;
        } else {
          ASSERT_EQ(block.trim[i / 32 % 2].word, trim_of(want.word).word) << i;
        }
        ASSERT_EQ(block.ports[i % FrameBlock::kRecords], want.walker.packet.port) << i;
        bytes[i / 32 % 2] = (i % 32 == 0 ? 0 : bytes[i / 32 % 2]) + want.record.bytes;
        if (i % 32 == 31 || i + 1 == count) {
          ASSERT_EQ(block.bytes[i / 32 % 2] & ~FrameBlock::kTrimmed, bytes[i / 32 % 2]) << i;
          block.each_kind(i / 32 % 2, [&](const FrameDrops& kind) {
            uint32_t its = 0;
            for (uint32_t k = i / 32 * 32; k <= i; ++k)
              its += (kind.packets >> k % 32 & 1) != 0 ? frames.records[k].bytes : 0;
            EXPECT_EQ(kind.bytes, its) << i;
          });
        }
        const Packet& p = want.walker.packet;
        if (asked.key_out != 0) {
          ASSERT_EQ(results.details[i].rule, p.rule) << i;
          ASSERT_EQ(results.details[i].next_hop, p.next_hop) << i;
        }
        if (asked.mark_out != 0) {
          ASSERT_EQ(marks_of(asked, results, count)[i], p.mark) << i;
        }
        if (asked.net_out != 0) {
          ASSERT_EQ(nets_of(asked, results, count)[i], frame_net(want.walker)) << i;
        }
        if (asked.paint_out != 0) {
          ASSERT_EQ(paints_of(asked, results, count)[i], p.paint) << i;
        }
        if (asked.tails != 0 && p.appended != 0) {
          ASSERT_EQ(memcmp(tails_of(asked, results, count) + i, want.frame() + p.end - kTailBytes, kTailBytes), 0) << i;
        }
        if (!want.leaves) continue;
        if (is_frame_head(Frames::kSlots, p)) {
          // What is appended comes back as a tail.
          const uint32_t head = std::min<uint32_t>(Frames::kSlots.head, p.end - p.appended);
          ASSERT_EQ(memcmp(frames.range.heads + size_t{i} * Frames::kSlots.head, want.frame(), head), 0) << i;
        } else {
          ASSERT_EQ(memcmp(frames.range.to + want.record.at, want.frame() + p.data,
                           frame_bytes_back(want.record, Frames::kSlots, p)),
                    0)
              << i;
        }
      }
      device_->unpin(frames.memory.data());
    }
    ASSERT_TRUE(slabs->join(kStopLimitNs).ok());
  }
  void wait(SlabDriver& slabs, uint32_t slab) {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      const bool done = must(slabs.done(slab));
      if (done) return;
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << "a slab takes for ever";
      std::this_thread::yield();
    }
  }

  std::unique_ptr<Device> device_;
  uint32_t summed_ = 0;  // dropped packets that were seen in sums
  Tables tables_{11};
  std::unique_ptr<Loaded> loaded_;
};

TEST_P(CudaDeviceTest, MemoryIsZeroedAndGivenBack) {
  for (const MemorySpace space : {MemorySpace::kDevice, MemorySpace::kMapped, MemorySpace::kStaging}) {
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{5} << 20, size_t{40} << 20}) {
      auto blob = must(device_->allocate(space, bytes));
      EXPECT_NE(blob->device(), nullptr);
      EXPECT_GE(blob->size(), bytes);
      EXPECT_EQ(blob->host() == nullptr, space == MemorySpace::kDevice);
      if (blob->host() != nullptr) {
        EXPECT_EQ(static_cast<const uint8_t*>(blob->host())[bytes - 1], 0);
      }
    }
  }
  if (is_cuda()) {
    auto small = must(device_->allocate(MemorySpace::kDevice, 100));
    EXPECT_FALSE(device_->upload(*small, 90, "0123456789abcdef", 16).ok());
  }
  const auto huge = device_->allocate(MemorySpace::kDevice, size_t{1} << 60);
  ASSERT_FALSE(huge.ok());
  if (is_cuda()) {
    EXPECT_NE(huge.error().message.find("free"), std::string::npos) << huge.error().message;
  }
}

TEST_P(CudaDeviceTest, UploadsArriveAtTheirOffsets) {
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA allocator";
  CudaMemory* memory = cuda_memory(*device_);
  ASSERT_NE(memory, nullptr);
  std::vector<uint8_t> bytes((size_t{13} << 20) + 7);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(tables_.random());
  auto blob = must(device_->allocate(MemorySpace::kDevice, bytes.size() + 64));
  const auto copied = device_->upload(*blob, 33, bytes.data(), bytes.size());
  ASSERT_TRUE(copied.ok()) << to_string(copied.error());
  std::vector<uint8_t> back(bytes.size() + 64, 1);
  ASSERT_TRUE(cuda_download(*device_, back.data(), blob->device(), back.size()).ok());
  EXPECT_EQ(memcmp(back.data() + 33, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(back[32], 0);
  EXPECT_EQ(back[33 + bytes.size()], 0);
}

TEST_P(CudaDeviceTest, KeySlabsEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  for (const RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6}) {
    const auto items = some_items(tables_, 256, kind);
    for (const Named& named : key_programs(tables_, kind)) {
      for (const Transport transport : {Transport::kStaged, Transport::kZeroCopy}) run_slab(named, transport, items);
    }
  }
}

TEST_P(CudaDeviceTest, RouteSlabsEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kRoute4);
  for (const Named& named : route_programs(tables_)) {
    for (const Transport transport : {Transport::kStaged, Transport::kZeroCopy}) run_slab(named, transport, items);
  }
}

TEST_P(CudaDeviceTest, FramesEqualTheHost) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kFrame);
  for (const Named& named : frame_programs(tables_)) {
    for (const DeviceMode mode : {DeviceMode::kLaunch, DeviceMode::kPersistent}) run_frames(named, items, mode);
  }
  EXPECT_GT(summed_, 100u);
}

TEST_P(CudaDeviceTest, RefusesWhatCannotRun) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA drivers";
  EXPECT_FALSE(device_->make_slabs(ChannelShape{{}, 33}, 1, Transport::kStaged).ok());
  EXPECT_FALSE(device_->make_slabs(ChannelShape{{}, 32}, 1, Transport::kTagged).ok());
  auto slabs = must(device_->make_slabs(ChannelShape{{}, 32}, 1, Transport::kStaged));
  // A frame's program on keys.
  EXPECT_FALSE(slabs->start(0, 1, frame_programs(tables_)[0].program, {}).ok());
  EXPECT_FALSE(slabs->start(0, 33, key_programs(tables_, RecordKind::kKey4)[0].program, {}).ok());
  EXPECT_FALSE(open_cuda_device(4000).ok());
}

// The host's side of a ring: writes records in order, checks results in order.
struct RingUser {
  RingUser(Device& device, const DeviceProgram& first, uint32_t capacity)
      : shape(channel_shape(first, capacity)), ring(must(device.make_ring(shape))) {}
  ~RingUser() { stop(); }

  void install(const DeviceProgram& on_host, const DeviceProgram& on_device, uint32_t which) {
    const auto written = ring->write_program(which, on_device);
    ASSERT_TRUE(written.ok()) << to_string(written.error());
    program[which] = on_host;
    RingControl& control = *ring->control();
    const uint32_t epoch = control.epoch() + ((control.epoch() & 1) == which ? 2 : 1);
    control.order_epoch(epoch);
    ring->send_orders();
    if (running) {
      const auto limit = std::chrono::steady_clock::now() + kPatience;
      for (uint32_t s = 0; s < ring->servers(); ++s) {
        while (HostWords::load32(&control.servers[s].ack) != epoch) {
          ASSERT_LT(std::chrono::steady_clock::now(), limit) << "server " << s << " does not take the program";
          std::this_thread::yield();
        }
      }
    }
    parity = which;
  }
  void start() {
    order_stop(0);
    const auto started = ring->start(head, 1);
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    running = true;
  }
  void stop() {
    if (!running) return;
    running = false;
    order_stop(1);
    const auto joined = ring->join(kStopLimitNs);
    EXPECT_TRUE(joined.ok()) << to_string(joined.error());
  }
  void order_stop(uint32_t stop) {
    ring->control()->order_stop(stop);
    ring->send_orders();
  }
  uint32_t slot(uint64_t serial) const { return static_cast<uint32_t>(serial) & (shape.capacity - 1); }
  void put(const Item& item) {
    const uint32_t tag = make_tag(1 + head / shape.capacity, parity);
    Word* const in = ring->in() + size_t{slot(head)} * shape.words_in();
    write_record(program[parity], item, tag, in);
    want.push_back(expected_of(program[parity], in, tag));
    if (const RecordWindow window = ring->window(); window.to != nullptr) {
      const size_t first = size_t{slot(head)} * shape.words_in() / kLineWords;
      const size_t last = (size_t{slot(head) + 1} * shape.words_in() + kLineWords - 1) / kLineWords;
      window.copy(window.to + first * 64, reinterpret_cast<const std::byte*>(ring->in()) + first * 64, last - first);
      flush_lines();
    }
    ++head;
  }
  // All records up to the head.
  void take() {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    for (; tail < head; ++tail) {
      const uint64_t* const out = static_cast<const uint64_t*>(ring->out()) + slot(tail);
      const uint64_t expected = want[tail - base];
      uint64_t word = 0;
      while (result_tag(word = HostWords::load64(out)) != result_tag(expected)) {
        const auto checked = ring->check();
        ASSERT_TRUE(checked.ok()) << to_string(checked.error());
        ASSERT_LT(std::chrono::steady_clock::now(), limit) << "no result for record " << tail;
        std::this_thread::yield();
      }
      if (word != expected) ++wrong;
    }
    want.clear();
    base = head;
  }

  ChannelShape shape;
  std::unique_ptr<RingDriver> ring;
  DeviceProgram program[2];
  uint32_t parity = 0;
  uint64_t head = 0, tail = 0, base = 0;
  std::vector<uint64_t> want;
  size_t wrong = 0;
  bool running = false;
};

void CudaDeviceTest::key_rings_equal_the_host(RingMemory memory) {
  const auto chosen = device_->use_ring_memory(memory);
  if (!chosen.ok()) GTEST_SKIP() << to_string(chosen.error());
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  for (const RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4}) {
    const auto items = some_items(tables_, 512, kind);
    const auto programs = kind == RecordKind::kRoute4 ? route_programs(tables_) : key_programs(tables_, kind);
    RingUser user(*device_, programs[0].program, 256);
    ASSERT_EQ(user.ring->window().to != nullptr, memory == RingMemory::kDevice);
    user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
    user.start();
    // More than 64 laps: the tag wraps. Batches of all sizes, so that groups come in parts.
    const uint64_t goal = 256 * 70;
    uint32_t swaps = 0;
    while (user.head < goal && user.wrong == 0) {
      const auto n = static_cast<uint32_t>(1 + tables_.random() % 256);
      for (uint32_t i = 0; i < n; ++i) user.put(items[tables_.random() % items.size()]);
      user.take();
      if (HasFatalFailure()) return;
      if (tables_.random() % 4 == 0) {
        const Named& next = programs[++swaps % programs.size()];
        user.install(next.program, (*loaded_)(next.program), user.parity ^ 1);
        if (HasFatalFailure()) return;
      }
      if (tables_.random() % 32 == 0) {  // a stop in the middle of a group
        user.stop();
        user.start();
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(user.wrong, 0u) << to_string(kind);
    EXPECT_GT(swaps, 10u);
  }
}

TEST_P(CudaDeviceTest, KeyRingsEqualTheHostOverManyLaps) {
  key_rings_equal_the_host(RingMemory::kHost);
}

TEST_P(CudaDeviceTest, KeyRingsInDeviceMemoryEqualTheHostOverManyLaps) {
  key_rings_equal_the_host(RingMemory::kDevice);
}

TEST_P(CudaDeviceTest, ARingHoldsTwoGenerationsAtOnce) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  RingUser user(*device_, programs[0].program, 512);
  user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
  user.install(programs[3].program, (*loaded_)(programs[3].program), 1);
  user.start();
  for (int round = 0; round < 50 && user.wrong == 0; ++round) {
    for (const Item& item : items) {
      user.parity = static_cast<uint32_t>(tables_.random() & 1);
      user.put(item);
    }
    user.take();
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(user.wrong, 0u);
}

TEST_P(CudaDeviceTest, UploadsAndLaunchesGoOnBesideARing) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  RingUser user(*device_, programs[0].program, 256);
  user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
  user.start();
  // A call that waits for the servers would wait for ever: then they are told to stop, and the test fails.
  std::atomic<bool> through{false}, late{false};
  std::thread watchdog([&] {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (!through.load()) {
      if (std::chrono::steady_clock::now() > limit && !late.exchange(true)) {
        user.ring->control()->order_stop(1);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  {
    // Memory that comes and goes while the servers run, some of it larger than the reserve.
    const Loaded again(*device_, tables_);
    auto large = must(device_->allocate(MemorySpace::kDevice, size_t{48} << 20));
    run_slab(programs[3], Transport::kStaged, items);
  }
  through.store(true);
  watchdog.join();
  ASSERT_FALSE(late.load()) << "an allocation, an upload or a launch waits for resident kernels";
  for (const Item& item : items) user.put(item);
  user.take();
  EXPECT_EQ(user.wrong, 0u);
  const uint32_t beat = HostWords::load32(&user.ring->control()->servers[0].beat);
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (HostWords::load32(&user.ring->control()->servers[0].beat) == beat) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "no heartbeat";
    std::this_thread::yield();
  }
}

// As many rings as a device takes, all of them resident: launches, copies and allocations still get through, and one
// ring more is refused.
TEST_P(CudaDeviceTest, TheLastRingIsRefusedAndLeavesRoom) {
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA rings";
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  std::vector<std::unique_ptr<RingUser>> users;
  std::atomic<bool> through{false}, late{false};
  const size_t most = std::string(GetParam()) == "cuda_graphs" ? 22 : 30;
  for (size_t n = 0; n <= most; ++n) {
    users.push_back(std::make_unique<RingUser>(*device_, programs[0].program, 32));
    users.back()->install(programs[0].program, (*loaded_)(programs[0].program), 0);
  }
  std::thread watchdog([&] {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (!through.load()) {
      if (std::chrono::steady_clock::now() > limit && !late.exchange(true)) {
        for (auto& user : users) user->ring->control()->order_stop(1);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (size_t n = 0; n < most; ++n) users[n]->start();
  const auto refused = users[most]->ring->start(0, 1);
  {
    const Loaded again(*device_, tables_);
    run_slab(programs[3], Transport::kStaged, items);
  }
  through.store(true);
  watchdog.join();
  ASSERT_FALSE(late.load()) << "a launch, an upload or a ring waits for resident kernels";
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("takes no more"), std::string::npos) << refused.error().message;
  for (size_t n = 0; n < most; ++n) {
    for (size_t i = 0; i < 32; ++i) users[n]->put(items[i]);
    users[n]->take();
    EXPECT_EQ(users[n]->wrong, 0u) << n;
  }
}

TEST_P(CudaDeviceTest, CoherentMemoryIsUsedWhereItLies) {
  if (!device_->info().coherent) GTEST_SKIP() << "this device reaches pinned memory alone";
  // Memory of no allocator of ours, and ranges that overlap: pinned, the second would be refused.
  std::vector<std::byte> plain(size_t{1} << 16);
  EXPECT_EQ(must(device_->pin(plain.data(), plain.size())), plain.data());
  EXPECT_EQ(must(device_->pin(plain.data() + 100, plain.size() - 100)), plain.data() + 100);
  device_->unpin(plain.data() + 100);
  device_->unpin(plain.data());
}

TEST_P(CudaDeviceTest, TwoDevicesReachOnePinnedRange) {
  if (!is_cuda()) GTEST_SKIP() << "of the CUDA allocator";
  // The same GPU twice where there is one: what is pinned is pinned for the driver.
  auto second = must(open_cuda_device(count_cuda_devices().count > 1 ? 1 : 0));
  auto buffer = must(Buffer::allocate(size_t{1} << 20));
  void* const here = must(device_->pin(buffer.data(), buffer.size()));
  void* const there = must(second->pin(buffer.data(), buffer.size()));
  EXPECT_NE(here, nullptr);
  EXPECT_NE(there, nullptr);
  second->unpin(buffer.data());
  device_->unpin(buffer.data());
  EXPECT_NE(must(second->pin(buffer.data(), buffer.size())), nullptr) << "it was not unpinned";
  second->unpin(buffer.data());
}

TEST_P(CudaDeviceTest, KernelsAreTimedWhereAsked) {
  if (GetParam() == std::string("cuda_graphs")) GTEST_SKIP() << "a graph's kernel is inside it";
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  const auto programs = key_programs(tables_, RecordKind::kKey4);
  for (const bool on : {false, true}) {
    device_->time_kernels(on);
    RingUser user(*device_, programs[0].program, 256);
    user.install(programs[0].program, (*loaded_)(programs[0].program), 0);
    user.start();
    for (const Item& item : items) user.put(item);
    user.take();
    user.stop();
    EXPECT_EQ(user.wrong, 0u);
    Histogram groups;
    const auto added = user.ring->add_kernel_times(groups);
    ASSERT_TRUE(added.ok()) << to_string(added.error());
    // A group that came in pieces counts as often.
    EXPECT_GE(groups.count(), on ? 8u : 0u);
    EXPECT_LE(groups.count(), on ? 256u : 0u);

    auto slabs = must(device_->make_slabs(user.shape, 1, Transport::kZeroCopy));
    for (uint32_t i = 0; i < items.size(); ++i) write_record(programs[0].program, items[i], 1, slabs->in(0) + i);
    const auto started = slabs->start(0, 256, (*loaded_)(programs[0].program), {});
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (!must(slabs->done(0))) ASSERT_LT(std::chrono::steady_clock::now(), limit);
    EXPECT_EQ(slabs->kernel_ns(0) != 0, on);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaDeviceTest, ::testing::Values("emu", "cuda", "cuda_graphs"),
                         [](const auto& test) { return std::string(test.param); });

TEST(CudaChains, AreFoundByTheirStages) {
  Tables tables(5);
  const auto programs = key_programs(tables, RecordKind::kKey4);
  const std::vector<uint8_t> want = {1, 2, 3, 4, 0, 5, 6, 0, 0, 0, 0, 4};
  ASSERT_EQ(programs.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(programs[i].program.chain, want[i]) << programs[i].name;
    EXPECT_TRUE(runs_on(RecordKind::kKey4, programs[i].program));
  }
  for (const Named& named : frame_programs(tables)) {
    EXPECT_FALSE(runs_on(RecordKind::kKey4, named.program)) << named.name;
    EXPECT_TRUE(runs_on(RecordKind::kFrame, named.program)) << named.name;
    EXPECT_FALSE(runs_on(RecordKind::kRoute4, named.program)) << named.name;
  }
  // Three destinations a record are for one route lookup and nothing else.
  for (size_t i = 0; i < programs.size(); ++i) {
    EXPECT_EQ(runs_on(RecordKind::kRoute4, programs[i].program), i == 1 || i == 2) << programs[i].name;
  }
  for (const Named& named : route_programs(tables)) EXPECT_TRUE(runs_on(RecordKind::kRoute4, named.program));
}

// The table that all devices answer by has no kernel more and none less than were compiled.
TEST(CudaKernels, AreThereWhereTheTableSaysSo) {
  for (const RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6, RecordKind::kRoute4, RecordKind::kFrame}) {
    EXPECT_EQ(ring_kernel(kind) != nullptr, kind != RecordKind::kFrame) << to_string(kind);
    for (uint16_t stage = 0; stage < AllStages::kSize; ++stage) {
      DeviceProgram program;
      program.program.stage_count = program.end = 1;
      program.program.stages[0].kind = stage;
      program.shape.kind = kind;
      for (const uint8_t sums : {uint8_t{0}, uint8_t{1}}) {
        program.shape.sums = sums;
        program.chain = chain_of(program);
        for (const TableMemory memory : {TableMemory::kGlobal, TableMemory::kConstant, TableMemory::kShared}) {
          program.memory = memory;
          if (!runs_on(kind, program)) continue;
          // Sums have none beside global memory, but the kernels of other frames would be found there.
          if (kind == RecordKind::kFrame && sums != 0 && memory != TableMemory::kGlobal) {
            EXPECT_FALSE(check_program(kind, program).ok());
            continue;
          }
          EXPECT_EQ(launch_kernel(kind, program.chain, memory) != nullptr, check_program(kind, program).ok())
              << to_string(kind) << ' ' << stage << ' ' << to_string(memory);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice
