// host only
#include "exec/emu/emu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "exec/device/body.h"
#include "exec/device/columns.h"
#include "exec/device/kernels_there.h"
#include "exec/device/work_queue.h"
#include "memory/buffer.h"

namespace sluice {
namespace {

using Shared = EmuDevice::Shared;

void be_late(const Shared& shared) {
  if (const uint64_t ns = shared.faults.late_ns.load(std::memory_order_relaxed); ns != 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
  }
}

// Before each record.
void be_held(Shared& shared) {
  const uint64_t number = shared.begun.fetch_add(1, std::memory_order_relaxed);
  while (number >= shared.faults.held_after.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

class EmuBlob final : public DeviceBlob {
 public:
  EmuBlob(Buffer buffer, MemorySpace space, std::shared_ptr<Shared> shared)
      : buffer_(std::move(buffer)), space_(space), shared_(std::move(shared)) {}
  ~EmuBlob() override {
    if (space_ == MemorySpace::kDevice) shared_->used.fetch_sub(buffer_.size(), std::memory_order_relaxed);
  }
  void* device() const override { return const_cast<std::byte*>(buffer_.data()); }
  void* host() const override { return space_ == MemorySpace::kDevice ? nullptr : device(); }
  size_t size() const override { return buffer_.size(); }

 private:
  Buffer buffer_;
  MemorySpace space_;
  std::shared_ptr<Shared> shared_;
};

// Part of constant memory.
class EmuConstant final : public DeviceBlob {
 public:
  EmuConstant(uint32_t at, size_t bytes, std::shared_ptr<Shared> shared)
      : at_(at), bytes_(bytes), shared_(std::move(shared)) {}
  ~EmuConstant() override { shared_->bank.leave(at_); }
  EmuConstant(const EmuConstant&) = delete;
  EmuConstant& operator=(const EmuConstant&) = delete;
  void* device() const override { return shared_->constant.get() + at_; }
  void* host() const override { return nullptr; }
  size_t size() const override { return bytes_; }

 private:
  uint32_t at_;
  size_t bytes_;
  std::shared_ptr<Shared> shared_;
};

// A program as one block of threads runs it: with tables in shared memory these are the block's own copy, of just their
// size.
class BlockProgram {
 public:
  const DeviceProgram& begin(const DeviceProgram& program) {
    if (program.memory != TableMemory::kShared || program.table_bytes == 0) return program;
    tables_.reset();
    tables_.reset(static_cast<std::byte*>(::operator new(program.table_bytes, kAlign)));
    std::memcpy(tables_.get(), program.tables, program.table_bytes);
    moved_ = program;
    for (uint32_t s = program.begin; s < program.end; ++s) {
      StageSlot& slot = moved_.program.stages[s];
      AllStages::for_each([&]<typename Stage>(TypeTag<Stage>) {
        if (slot.kind != kStageKind<Stage>) return;
        Stage stage = moved_to(slot.template get<Stage>(), program.tables, tables_.get());
        check_inside(stage, program.table_bytes);
        slot.set(slot.kind, stage);
      });
    }
    return moved_;
  }

 private:
  // A kernel's pointer to anything else would be read as one into shared memory.
  template <typename Stage>
  void check_inside(Stage& stage, size_t bytes) const {
    if constexpr (kHasPointers<Stage>) {
      stage.each_pointer([&]<typename T>(const T*& p, uint32_t = 0) {
        const auto* at = reinterpret_cast<const std::byte*>(p);
        SLUICE_CHECK(p == nullptr || (at >= tables_.get() && at <= tables_.get() + bytes));
      });
    }
  }
  static constexpr std::align_val_t kAlign{kTableAlign};
  struct Free {
    void operator()(std::byte* at) const { ::operator delete(at, kAlign); }
  };
  std::unique_ptr<std::byte, Free> tables_;
  DeviceProgram moved_;
};

// One record of keys through the body, from the words in to its result at `out`.
void run_record(const DeviceProgram& program, RecordKind kind, const Word* in, uint32_t tag, uint64_t* out) {
  if (kind == RecordKind::kRoute4) {
    HostWords::store64(out, route_result(program, in[0], tag));
    return;
  }
  Walker walker;
  read_record(kind, program, in, walker);
  walk_alone(program, walker);
  HostWords::store64(out, key_result(walker, tag));
}

// Adds a dropped packet to those of its kind in its half of the block, where there is room for the kind.
void sum_drop(FrameBlock& block, uint32_t i, uint64_t word, uint32_t bytes) {
  const uint32_t half = i / 32 % 2, bit = uint32_t{1} << i % 32;
  FrameDrops* const kinds = block.drops[half];
  if (block.dropped[half] == 0) std::fill_n(kinds, FrameBlock::kDropKinds, FrameDrops{});
  word &= FrameDrops::kMeant;
  for (FrameDrops* kind = kinds; kind != kinds + FrameBlock::kDropKinds; ++kind) {
    if (kind->packets != 0 && kind->word != word) continue;
    *kind = {word, kind->packets | bit, kind->bytes + bytes};
    block.dropped[half] |= bit;
    return;
  }
}

// The same for a frame: as a lane of a kernel does it that reaches the host's memory, over a copy of what crosses. The
// frames of `pool` lie at `from`.
void run_frame(const DeviceProgram& program, uint32_t i, const FrameRecord& record, const std::byte* from,
               const SlabDriver::Range& pool, const RecordShape& shape, const FrameResults& results, uint32_t count) {
  // A kernel that sums reads what it has no copy of where it lies; here it is all in the copy.
  std::vector<uint8_t> whole(shape.sums != 0 ? kFrameFront + record.bytes + kFrameMostRoom + kTailroom : 0);
  alignas(16) uint8_t part[kFrameFront + kFrameMostRoom];
  uint8_t* const copy = shape.sums != 0 ? whole.data() : part;
  uint8_t* frame = copy + kFrameFront;
  const uint32_t room = pool.slots.room(record.bytes);
  std::memcpy(frame, from + (record.at - pool.first), shape.sums != 0 ? std::max<uint32_t>(room, record.bytes) : room);
  Walker walker;
  read_frame(program, record, pool.slots, frame, walker);
  walk_alone(program, walker);
  const uint64_t result = frame_result(record, pool.slots, walker);
  FrameBlock& block = results.blocks[i / FrameBlock::kRecords];
  const uint32_t half = i / 32 % 2, bit = i % 32;
  if (bit == 0) block.usual[half] = block.bytes[half] = 0;
  if (bit == 0) block.trim[half] = {};
  if (bit == 0) block.dropped[half] = 0;
  block.bytes[half] += record.bytes;
  block.ports[i % FrameBlock::kRecords] = walker.packet.port;
  if (is_usual_frame(result, usual_stages(program.end))) {
    const FrameTrim trim = trim_of(result);
    if (block.usual[half] == 0) block.trim[half] = trim;
    if (block.trim[half].word != trim.word) block.bytes[half] |= FrameBlock::kTrimmed;
    block.usual[half] |= uint32_t{1} << bit;
  }
  if (is_summed_drop(result, walker)) sum_drop(block, i, result, record.bytes);
  results.words[i] = result;
  // A kernel stores those alone that somebody reads.
  for (uint32_t k = i / 32 * 32; k <= i && (bit == 31 || i + 1 == count); ++k)
    if (!block.has_word(k)) results.words[k] = ~uint64_t{0};
  if (shape.key_out != 0) results.details[i] = frame_detail(walker);
  if (shape.mark_out != 0) marks_of(shape, results, count)[i] = walker.packet.mark;
  if (shape.net_out != 0) nets_of(shape, results, count)[i] = frame_net(walker);
  if (shape.paint_out != 0) paints_of(shape, results, count)[i] = walker.packet.paint;
  if (shape.tails != 0 && walker.packet.appended != 0)
    std::memcpy(tails_of(shape, results, count) + i, frame + walker.packet.end - kTailBytes, kTailBytes);
  if ((result & kFrameRedo) != 0 || walker.path == kPathDropped) return;
  if (is_frame_head(pool.slots, walker.packet)) {
    const uint32_t head = pool.slots.head;
    // What does not come back is as it was, up to what was appended, which comes back as a tail.
    const Packet& p = walker.packet;
    const uint32_t kept = p.appended != 0 ? std::min<uint32_t>(room, p.end - p.appended) : room;
    if (kept > head) SLUICE_CHECK(std::memcmp(frame + head, from + (record.at - pool.first) + head, kept - head) == 0);
    std::memcpy(static_cast<std::byte*>(pool.heads_there) + size_t{i} * head, frame, head);
    return;
  }
  std::memcpy(static_cast<std::byte*>(pool.to_there) + pool.slots.back_at(i, record.at - pool.first),
              frame + walker.packet.data, frame_bytes_back(record, pool.slots, walker.packet));
}

// -- slabs ------------------------------------------------------------------------------------------------------------

// One thread runs slabs that are launched, in their order; servers take units of those that are served.
class EmuSlabs final : public SlabDriver {
 public:
  EmuSlabs(const ChannelShape& shape, uint32_t slabs, Transport transport, DeviceMode mode, uint32_t servers,
           std::shared_ptr<Shared> shared)
      : shape_(shape),
        slabs_(slabs),
        staged_(transport == Transport::kStaged),
        launches_(mode != DeviceMode::kPersistent),
        servers_(servers),
        shared_(std::move(shared)),
        board_(std::make_unique<WorkBoard<Work>>()) {
    for (Slab& slab : slabs_) {
      slab.in.resize(size_t{shape.capacity} * shape.words_in());
      slab.out.resize((shape.results_bytes(shape.capacity) + sizeof(Word) - 1) / sizeof(Word));
    }
  }
  Result<void> begin() {
    auto thread = start_thread([this] { work(); });
    if (!thread) return std::move(thread).error();
    thread_ = std::move(*thread);
    return {};
  }
  ~EmuSlabs() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    HostWords::store32(&board_->stop, generation_);
    wake_.notify_one();
  }

  Word* in(uint32_t slab) override { return slabs_[slab].in.data(); }
  const void* out(uint32_t slab) override { return slabs_[slab].out.data(); }
  void serve(bool on) override { serve_ = on; }
  bool is_served(uint32_t slab) const override { return slabs_[slab].served; }

  Result<void> start(uint32_t slab, uint32_t count, const DeviceProgram& program, const Range& pool) override {
    if (shared_->faults.refuse_start.load(std::memory_order_relaxed))
      return Error("the emulated device refuses to start");
    if (shared_->killed()) return Error("the emulated device was killed");
    if (auto ok = check_program(shape_.record.kind, program); !ok) return ok;
    const bool served = serve_ && !shared_->faults.no_servers.load(std::memory_order_relaxed);
    if (serve_ && !served && !launches_) return Error("the emulated device has no room for servers");
    if (served) {
      if (auto ok = check_ring_program(program); !ok) return ok;
      if (auto ok = start_servers(); !ok) return ok;
    }
    slabs_[slab].served = served;
    uint32_t place = CopiedRuns::kNone;
    if (staged_ && !served && pool.run.bytes != 0) {
      auto taken = shared_->runs.take(pool.run, [&](uint32_t free) -> Result<void> {
        shared_->run_bytes[free].assign(pool.run.host, pool.run.host + pool.run.bytes);
        return {};
      });
      if (!taken) return std::move(taken).error();
      place = *taken;
    }
    {
      const std::lock_guard lock(mutex_);
      slabs_[slab].count = count;
      slabs_[slab].program = program;
      slabs_[slab].pool = pool;
      slabs_[slab].place = place;
      slabs_[slab].done = false;
      slabs_[slab].ended.store(0, std::memory_order_relaxed);
      if (served) {
        ++served_;
      } else {
        queue_.push_back(slab);
      }
    }
    if (served) {
      board_->post(next_++, Work{&slabs_[slab], (count + kUnitRecords - 1) / kUnitRecords});
    } else {
      wake_.notify_one();
    }
    return {};
  }
  Result<void> join(uint64_t limit_ns) override {
    {
      std::unique_lock lock(mutex_);
      const auto idle = [&] {
        const bool served = served_ != 0 && !shared_->stuck() && !shared_->killed();
        return queue_.empty() && !working_ && !served && in_units_ == 0;
      };
      if (!idle_.wait_for(lock, std::chrono::nanoseconds(limit_ns), idle))
        return Error("a kernel of the emulated device does not end");
    }
    return dismiss(limit_ns);
  }
  Result<void> dismiss(uint64_t limit_ns) override {
    HostWords::store32(&board_->stop, generation_);
    const uint64_t start = now_ns();
    while (const uint32_t left = serving_.load(std::memory_order_relaxed)) {
      if (now_ns() - start > limit_ns) return Error(fmt::format("{} of {} servers do not stop", left, servers_));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    threads_.clear();
    return {};
  }
  Result<bool> done(uint32_t slab) override {
    const std::lock_guard lock(mutex_);
    if (!slabs_[slab].done && shared_->killed()) return Error("the emulated device was killed");
    return slabs_[slab].done;
  }
  uint64_t kernel_ns(uint32_t slab) override {
    const std::lock_guard lock(mutex_);
    return slabs_[slab].kernel_ns;
  }

 private:
  static constexpr uint32_t kBlockRecords = 128;  // that a block of threads takes
  static constexpr uint32_t kUnitRecords = FrameBlock::kRecords;
  struct Slab {
    std::vector<Word> in, out;
    uint32_t count = 0;
    bool done = false;
    bool served = false;
    uint64_t kernel_ns = 0;
    uint64_t begun_ns = 0;
    DeviceProgram program;
    Range pool;
    uint32_t place = CopiedRuns::kNone;
    std::atomic<uint32_t> ended{0};  // units
  };
  struct Work {
    Slab* slab;
    uint32_t units;
  };

  // Records [begin, end) of a slab. False: the device has failed meanwhile.
  bool run_records(Slab& slab, const std::byte* from, uint32_t begin, uint32_t end) {
    const bool frames = shape_.record.kind == RecordKind::kFrame;
    BlockProgram block;
    const DeviceProgram* program = &slab.program;
    for (uint32_t i = begin; i < end; ++i) {
      if (i == begin || i % kBlockRecords == 0) program = &block.begin(slab.program);
      be_held(*shared_);
      if (frames) {
        const auto* records =
            slab.pool.records != nullptr ? slab.pool.records : reinterpret_cast<const FrameRecord*>(slab.in.data());
        run_frame(*program, i, records[i], from, slab.pool, shape_.record,
                  FrameResults::at(slab.out.data(), slab.count), slab.count);
      } else {
        const Word* in = slab.in.data() + size_t{i} * shape_.words_in();
        run_record(*program, shape_.record.kind, in, word_tag(in[0]), reinterpret_cast<uint64_t*>(slab.out.data()) + i);
      }
      shared_->records.fetch_add(1, std::memory_order_relaxed);
      if (shared_->stuck() || shared_->killed()) return false;
    }
    return true;
  }

  void work() {
    while (true) {
      uint32_t number = 0;
      {
        std::unique_lock lock(mutex_);
        working_ = false;
        if (queue_.empty()) idle_.notify_all();
        wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
        if (closing_) return;
        working_ = true;
        number = queue_.front();
        queue_.pop_front();
      }
      if (shared_->stuck() || shared_->killed()) continue;
      be_late(*shared_);
      Slab& slab = slabs_[number];
      const auto* from = static_cast<const std::byte*>(slab.pool.host_there);
      if (slab.place != CopiedRuns::kNone)
        from = shared_->run_bytes[slab.place].data() + (slab.pool.host - slab.pool.run.host);
      const bool pooled = slab.pool.device != nullptr && slab.pool.bytes != 0;
      if (pooled) {
        std::memcpy(slab.pool.device, slab.pool.host, slab.pool.bytes);
        from = static_cast<const std::byte*>(slab.pool.device);
      }
      const uint64_t start = shared_->timed ? now_ns() : 0;
      if (!run_records(slab, from, 0, slab.count)) continue;
      const uint64_t took = shared_->timed ? std::max<uint64_t>(1, now_ns() - start) : 0;
      if (slab.place != CopiedRuns::kNone) shared_->runs.leave(slab.place);
      const std::lock_guard lock(mutex_);
      slab.kernel_ns = took;
      slab.done = true;
    }
  }

  Result<void> start_servers() {
    if (!threads_.empty()) return {};
    ++generation_;
    for (uint32_t s = 0; s < servers_; ++s) {
      serving_.fetch_add(1, std::memory_order_relaxed);
      auto thread = start_thread([this, s, next = next_, generation = generation_] {
        serve_units(s == 0, next, generation);
        serving_.fetch_sub(1, std::memory_order_relaxed);
      });
      if (!thread) {
        serving_.fetch_sub(1, std::memory_order_relaxed);
        (void)dismiss(kStopLimitNs);
        return std::move(thread).error();
      }
      threads_.push_back(std::move(*thread));
    }
    return {};
  }

  // A server: takes units of what was published, from entry `next` on. The first forwards, too.
  void serve_units(bool forwards, uint32_t next, uint32_t generation) {
    uint32_t coming = next, idle = 0;
    const auto units = [this](const Work& work) {
      if (shared_->timed) work.slab->begun_ns = now_ns();
      return work.units;
    };
    while (!shared_->killed()) {
      if (shared_->stuck()) {
        if (HostWords::load32(&board_->stop) == generation) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      while (forwards && places_.forward(*board_, coming, units)) ++coming;
      in_units_.fetch_add(1);
      const auto unit = places_.take(next);
      if (unit.entry != nullptr) run_unit(*unit.entry, unit.number);
      in_units_.fetch_sub(1);
      if (shared_->stuck() || shared_->killed()) tell_idle();
      if (unit.entry != nullptr) {
        idle = 0;
        continue;
      }
      if (HostWords::load32(&board_->stop) == generation) return;
      if (++idle < 64) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(idle < 1000 ? 20 : 200));
      }
    }
    tell_idle();
  }
  void tell_idle() {
    { const std::lock_guard lock(mutex_); }
    idle_.notify_all();
  }

  void run_unit(const Work& work, uint32_t unit) {
    Slab& slab = *work.slab;
    if (unit == 0) be_late(*shared_);
    const uint32_t begin = unit * kUnitRecords, end = std::min(slab.count, begin + kUnitRecords);
    if (!run_records(slab, static_cast<const std::byte*>(slab.pool.host_there), begin, end)) return;
    if (slab.ended.fetch_add(1, std::memory_order_acq_rel) + 1 != work.units) return;
    const std::lock_guard lock(mutex_);
    if (shared_->timed) slab.kernel_ns = std::max<uint64_t>(1, now_ns() - slab.begun_ns);
    slab.done = true;
    --served_;
    idle_.notify_all();
  }

  ChannelShape shape_;
  std::vector<Slab> slabs_;
  bool staged_;
  bool launches_;
  uint32_t servers_;
  std::shared_ptr<Shared> shared_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<uint32_t> queue_;
  bool working_ = false;
  bool closing_ = false;
  bool serve_ = false;
  uint32_t served_ = 0;  // slabs that servers have
  std::unique_ptr<WorkBoard<Work>> board_;
  uint32_t next_ = kFirstWork;  // entry that is posted next
  uint32_t generation_ = 0;     // of servers
  WorkPlaces<Work> places_;
  std::atomic<uint32_t> in_units_{0};  // servers that may hold one
  std::atomic<uint32_t> serving_{0};   // servers that are not at their end
  std::jthread thread_;                // last: they use all of the above
  std::vector<std::jthread> threads_;
};

// -- persistent mode --------------------------------------------------------------------------------------------------

class EmuRing final : public RingDriver {
 public:
  EmuRing(const ChannelShape& shape, uint32_t servers, RingMemory memory, std::shared_ptr<Shared> shared)
      : shape_(shape), servers_(servers), shared_(std::move(shared)), control_(std::make_unique<RingControl>()) {
    in_.resize(size_t{shape.capacity} * shape.words_in() / 4);
    if (memory != RingMemory::kHost) window_.resize(in_.size());
    out_.resize(size_t{shape.capacity} * kResultBytes / sizeof(Word));
  }
  ~EmuRing() override {
    control_->order_stop(1);
    threads_.clear();
  }

  Word* in() override { return reinterpret_cast<Word*>(in_.data()); }
  const void* out() override { return out_.data(); }
  RecordWindow window() override {
    if (window_.empty()) return {};
    return {reinterpret_cast<std::byte*>(window_.data()), &copy_lines_as_words, false, column_put()};
  }
  RingControl* control() override { return control_.get(); }
  uint32_t servers() const override { return servers_; }

  Result<void> write_program(uint32_t parity, const DeviceProgram& program) override {
    if (shared_->killed()) return Error("the emulated device was killed");
    if (auto ok = check_program(shape_.record.kind, program); !ok) return ok;
    if (auto ok = check_ring_program(program); !ok) return ok;
    programs_[parity] = program;
    return {};
  }
  Result<void> start(uint64_t next, uint64_t lap0) override {
    if (shared_->faults.refuse_start.load(std::memory_order_relaxed))
      return Error("the emulated device refuses to start");
    if (auto ok = check(); !ok) return ok;
    if (shared_->faults.no_servers.load(std::memory_order_relaxed))
      return Error("the emulated device has no room for servers");
    threads_.clear();
    threads_.reserve(servers_);
    for (uint32_t s = 0; s < servers_; ++s) {
      HostWords::store32(&control_->servers[s].left, 0);
      serving_.fetch_add(1, std::memory_order_relaxed);
      auto thread = start_thread([this, s, next, lap0, epoch = control_->epoch(), programs = programs_]() mutable {
        serve(s, next, lap0, epoch, programs);
        serving_.fetch_sub(1, std::memory_order_relaxed);
      });
      if (!thread) {
        serving_.fetch_sub(1, std::memory_order_relaxed);
        control_->order_stop(1);
        threads_.clear();
        return std::move(thread).error();
      }
      threads_.push_back(std::move(*thread));
    }
    return {};
  }
  Result<void> join(uint64_t limit_ns) override {
    const uint64_t start = now_ns();
    while (const uint32_t left = serving_.load(std::memory_order_relaxed)) {
      if (now_ns() - start > limit_ns) return Error(fmt::format("{} of {} servers do not stop", left, servers_));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    threads_.clear();
    return {};
  }
  Result<void> check() override {
    if (shared_->killed()) return Error("the emulated device was killed");
    return {};
  }
  Result<void> add_kernel_times(Histogram& to) override {
    const std::lock_guard lock(times_mutex_);
    to.merge(times_);
    return {};
  }

 private:
  // As a warp does it: 32 lanes, each polls its own record of the group; the group is left when all are done.
  void serve(uint32_t server, uint64_t next, uint64_t lap0, uint32_t epoch, std::array<DeviceProgram, 2>& programs) {
    RingControl::Server& self = control_->servers[server];
    HostWords::store32(&self.ack, epoch);
    const auto shift = static_cast<uint32_t>(std::countr_zero(shape_.capacity));
    uint64_t group = next / kLanes;
    while (group % servers_ != server) ++group;
    // Lanes before `next` belong to flights that are over.
    uint32_t done = group == next / kLanes ? (uint32_t{1} << (next % kLanes)) - 1 : 0;
    std::vector<Word> record(shape_.words_in());
    uint32_t beat = HostWords::load32(&self.beat);
    uint32_t idle = 0;
    while (HostWords::load32(&control_->orders[server].stop) == 0) {
      if (shared_->killed()) return;
      if (shared_->stuck()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      HostWords::store32(&self.beat, ++beat);
      if (const uint32_t now = HostWords::load32(&control_->orders[server].epoch); now != epoch) {
        programs[now & 1] = programs_[now & 1];
        epoch = now;
        HostWords::store32(&self.ack, epoch);
      }
      bool any = false;
      const uint64_t start = shared_->timed ? now_ns() : 0;
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        if ((done >> lane & 1) != 0) continue;
        const uint64_t serial = group * kLanes + lane;
        const uint64_t place = serial & (shape_.capacity - 1);
        const uint32_t lap = tag_lap(make_tag(lap0 + (serial >> shift), 0));
        const Word* in =
            reinterpret_cast<const Word*>((window_.empty() ? in_ : window_).data()) + place * shape_.words_in();
        uint32_t tag = 0;
        bool whole = true;
        for (uint32_t w = 0; whole && w < shape_.words_in(); ++w) {
          record[w] = HostWords::load(in + w);
          tag = word_tag(record[w]);
          whole = tag_lap(tag) == lap;
        }
        if (!whole) break;  // records are written in order: the ones behind are not there either
        be_late(*shared_);
        be_held(*shared_);
        run_record(programs[tag_parity(tag)], shape_.record.kind, record.data(), tag,
                   reinterpret_cast<uint64_t*>(out_.data()) + place);
        done |= uint32_t{1} << lane;
        any = true;
        shared_->records.fetch_add(1, std::memory_order_relaxed);
        if (shared_->stuck() || shared_->killed()) break;
      }
      if (done == ~uint32_t{0}) {
        group += servers_;
        done = 0;
      }
      if (any) {
        if (start != 0) {
          const std::lock_guard lock(times_mutex_);
          times_.record(now_ns() - start);
        }
        idle = 0;
      } else if (++idle < 64) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(idle < 1000 ? 20 : 200));
      }
    }
    HostWords::store32(&self.left, 1);
  }

  ChannelShape shape_;
  uint32_t servers_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<RingControl> control_;
  struct alignas(64) Line {
    Word words[4];
  };
  std::vector<Line> in_, window_;
  std::vector<Word> out_;
  std::array<DeviceProgram, 2> programs_;
  std::mutex times_mutex_;
  Histogram times_;
  std::atomic<uint32_t> serving_{0};   // threads that are not at their end
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace

EmuDevice::EmuDevice(unsigned ordinal, uint32_t servers, size_t shared_bytes)
    : servers_(servers), shared_(std::make_shared<Shared>()) {
  SLUICE_CHECK(servers >= 1 && servers <= RingControl::kMaxServers);
  info_.name = "emulated device";
  info_.kind = "emu";
  info_.ordinal = ordinal;
  info_.multiprocessors = servers;
  info_.shared_bytes = shared_bytes;
  info_.coherent = true;
}
EmuDevice::~EmuDevice() = default;

Result<std::shared_ptr<DeviceBlob>> EmuDevice::allocate(MemorySpace space, size_t bytes) {
  if (space == MemorySpace::kDevice) {
    const uint64_t limit = shared_->faults.memory_limit.load(std::memory_order_relaxed);
    const uint64_t used = shared_->used.load(std::memory_order_relaxed);
    if (bytes > limit || used > limit - bytes) {
      return Error(fmt::format("the device has no {} bytes: {} of {} are in use", bytes, used, limit));
    }
  }
  if (space == MemorySpace::kConstant) {
    auto at = shared_->bank.take(bytes);
    if (!at) return std::move(at).error();
    return std::shared_ptr<DeviceBlob>(std::make_shared<EmuConstant>(*at, bytes, shared_));
  }
  auto buffer = Buffer::allocate(bytes);
  if (!buffer) return std::move(buffer).error();
  if (space == MemorySpace::kDevice) shared_->used.fetch_add(bytes, std::memory_order_relaxed);
  return std::shared_ptr<DeviceBlob>(std::make_shared<EmuBlob>(std::move(*buffer), space, shared_));
}

Result<void> EmuDevice::upload(DeviceBlob& to, size_t offset, const void* from, size_t bytes) {
  if (shared_->killed()) return Error("the emulated device was killed");
  SLUICE_CHECK(offset <= to.size() && bytes <= to.size() - offset);
  std::memcpy(static_cast<std::byte*>(to.device()) + offset, from, bytes);
  return {};
}

Result<void> EmuDevice::download(void* to, const DeviceBlob& from, size_t offset, size_t bytes) {
  if (shared_->killed()) return Error("the emulated device was killed");
  SLUICE_CHECK(offset <= from.size() && bytes <= from.size() - offset);
  std::memcpy(to, static_cast<const std::byte*>(from.device()) + offset, bytes);
  return {};
}

Result<void*> EmuDevice::pin(void* host, size_t) {
  return host;
}
void EmuDevice::unpin(void*) {}

Result<std::unique_ptr<SlabDriver>> EmuDevice::make_slabs(const ChannelShape& shape, uint32_t slabs,
                                                          Transport transport, DeviceMode mode) {
  if (auto fits = check_slabs(shape, transport, mode); !fits) return std::move(fits).error();
  auto made = std::make_unique<EmuSlabs>(shape, slabs, transport, mode, servers_, shared_);
  if (auto ok = made->begin(); !ok) return std::move(ok).error();
  return std::unique_ptr<SlabDriver>(std::move(made));
}

Result<std::unique_ptr<RingDriver>> EmuDevice::make_ring(const ChannelShape& shape) {
  if (auto fits = check_ring(shape); !fits) return std::move(fits).error();
  return std::unique_ptr<RingDriver>(std::make_unique<EmuRing>(shape, servers_, ring_memory_, shared_));
}

Result<void> EmuDevice::look_up(const StageSlot& slot, const ColumnLookup& work, void*) {
  if (shared_->killed()) return Error("the emulated device was killed");
  const bool found = with_lookup(slot, [&](const auto& stage) {
    for (uint64_t i = 0; i < work.n; ++i) answer_key(stage, work, i);
  });
  if (!found) return Error("the program is not a lookup by key");
  shared_->records.fetch_add(work.n, std::memory_order_relaxed);
  return {};
}

}  // namespace sluice
