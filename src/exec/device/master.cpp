// host only
#include "exec/device/master.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"

namespace sluice {
namespace {

// A queue of at most as many values as were reserved.
template <typename T>
class Fifo {
 public:
  void reserve(size_t capacity) { values_.resize(capacity); }
  bool empty() const { return head_ == tail_; }
  bool full() const { return head_ - tail_ == values_.size(); }
  size_t size() const { return head_ - tail_; }
  T& push() {
    SLUICE_CHECK(!full());
    return values_[head_++ % values_.size()];
  }
  T& operator[](size_t i) { return values_[(tail_ + i) % values_.size()]; }
  void pop() { ++tail_; }

 private:
  std::vector<T> values_;
  size_t head_ = 0, tail_ = 0;
};

}  // namespace

// A worker's side. Slot: one flight's memory, and what the master says about it.
class MasteredChannel final : public RecordChannel {
 public:
  MasteredChannel(MasterThread& master, Channel& real, unsigned worker, uint32_t line, bool first,
                  const ChannelShape& shape, const ChannelOptions& options)
      : master_(master),
        real_(real),
        worker_(worker),
        line_(line),
        first_(first),
        shape_(shape),
        options_(options),
        slots_(options.flights) {
    for (Slot& slot : slots_) {
      slot.in.resize(size_t{options.records} * shape.words_in());
      slot.out.resize(options.records);
    }
  }

  // The real channel is shared: one of its users installs.
  Result<void> install(const DeviceProgram& program, uint32_t parity) override {
    return first_ ? real_.install(program, parity) : Result<void>();
  }

  bool open(Flight& flight, uint32_t records, uint32_t parity) override {
    if (failed()) return false;
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.busy) continue;
      slot.busy = true;
      slot.ready.store(0, std::memory_order_relaxed);
      slot.failed.store(false, std::memory_order_relaxed);
      flight = Flight(shape_, std::min(records, options_.records), parity, now_ns());
      flight.on_slab(i, slot.in.data(), slot.out.data(), 1);
      return true;
    }
    return false;
  }

  void submit(Flight& flight, const DeviceProgram& program, const SlabDriver::Range&) override {
    flight.submitted_ns = now_ns();
    stats_.fill.record(flight.submitted_ns - flight.opened_ns);
    ++stats_.flights;
    stats_.records += flight.count;
    if (flight.count == 0) return;
    Slot& slot = slots_[flight.slab];
    slot.flight = flight;
    slot.program = &program;
    master_.hand_over(worker_, {this, flight.slab});
  }

  void poll(Flight& flight) override {
    if (flight.failed || flight.ready == flight.count) return;
    Slot& slot = slots_[flight.slab];
    // In this order: the master says last that no more will come.
    const bool gone = slot.failed.load(std::memory_order_acquire);
    flight.ready = slot.ready.load(std::memory_order_acquire);
    if (flight.ready == flight.count) {
      stats_.device.record(now_ns() - flight.submitted_ns);
    } else {
      flight.failed = gone;
    }
  }

  void close(Flight& flight) override {
    slots_[flight.slab].busy = false;
    flight.in = nullptr;
  }

  // The device has never seen its memory.
  Result<void> stop(uint64_t) override { return {}; }

  bool failed() const override { return real_.failed(); }
  std::string why() const override { return real_.why(); }
  const ChannelStats& stats() const override { return stats_; }
  const ChannelShape& shape() const override { return shape_; }
  const ChannelOptions& options() const override { return options_; }

  struct Slot {
    bool busy = false;  // the worker's
    std::vector<Word> in;
    std::vector<uint64_t> out;
    // From `submit` until the last result is ready, or it failed, these are the master's to read.
    Flight flight;
    const DeviceProgram* program = nullptr;
    // The master writes.
    alignas(64) std::atomic<uint32_t> ready{0};
    std::atomic<bool> failed{false};
  };
  Slot& slot(uint32_t i) { return slots_[i]; }
  uint32_t line() const { return line_; }

 private:
  MasterThread& master_;
  Channel& real_;
  unsigned worker_;
  uint32_t line_;
  bool first_;
  ChannelShape shape_;
  ChannelOptions options_;
  std::vector<Slot> slots_;
  ChannelStats stats_;
};

// A real channel and the flights that go by it.
struct MasterThread::Line {
  // A flight of a worker in one of the real channel: its records follow those of the part before.
  struct Part {
    MasteredChannel::Slot* slot = nullptr;
    uint32_t count = 0;
  };
  struct Air {
    Flight flight;
    uint32_t copied = 0;      // results that went back
    uint32_t part = 0;        // the part that they have come to
    uint32_t part_begin = 0;  // its first record
    std::vector<Part> parts;
  };
  uint32_t number = 0;
  std::unique_ptr<Channel> channel;
  RecordShape shape;
  ChannelOptions options;  // of the real channel
  uint32_t users = 0;
  Fifo<MasteredChannel::Slot*> waiting;
  Fifo<Air> air;
};

MasterThread::MasterThread(Device& device, unsigned workers)
    : device_(device), spin_(device.info().kind != "emu" && std::thread::hardware_concurrency() > workers + 1) {
  slots_.resize(workers);
  queues_.resize(workers);
}

MasterThread::~MasterThread() {
  stop_thread();
}

Result<std::unique_ptr<RecordChannel>> MasterThread::channel(unsigned worker, uint32_t number,
                                                             const RecordShape& record, const ChannelOptions& options) {
  SLUICE_CHECK(worker < queues_.size() && !thread_.joinable());
  const auto workers = static_cast<uint32_t>(queues_.size());
  auto found = std::find_if(lines_.begin(), lines_.end(), [&](const auto& line) { return line->number == number; });
  if (found == lines_.end()) {
    auto line = std::make_unique<Line>();
    line->number = number;
    line->options = options;
    line->options.records = std::max(options.records, std::min(options.records * workers, kMostRecords));
    auto made = Channel::create(device_, record, line->options);
    if (!made) return std::move(made).error();
    line->channel = std::move(*made);
    line->waiting.reserve(size_t{workers} * options.flights);
    line->air.reserve(size_t{workers} * options.flights);
    for (size_t i = 0; i < size_t{workers} * options.flights; ++i)
      line->air.push().parts.reserve(size_t{workers} * options.flights);
    while (!line->air.empty()) line->air.pop();
    lines_.push_back(std::move(line));
    found = lines_.end() - 1;
  }
  Line& line = **found;
  slots_[worker] += options.flights;
  ChannelShape shape = line.channel->shape();
  shape.capacity = std::bit_ceil(std::max(options.records, RingDriver::kLanes));
  return std::unique_ptr<RecordChannel>(std::make_unique<MasteredChannel>(
      *this, *line.channel, worker, static_cast<uint32_t>(found - lines_.begin()), line.users++ == 0, shape, options));
}

Result<void> MasterThread::start() {
  for (size_t w = 0; w < queues_.size(); ++w) {
    if (slots_[w] != 0) queues_[w] = std::make_unique<SpscQueue<Request>>(slots_[w]);
  }
  auto thread = start_thread([this] { run(); });
  if (!thread) return std::move(thread).error();
  thread_ = std::move(*thread);
  return {};
}

void MasterThread::stop_thread() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  ring();
  thread_.join();
}

Result<void> MasterThread::stop(uint64_t limit_ns) {
  stop_thread();
  Result<void> result;
  for (const auto& line : lines_) {
    // One that does not stop says enough of the device.
    if (auto ok = line->channel->stop(result.ok() ? limit_ns : 0); !ok && result.ok()) result = std::move(ok);
  }
  return result;
}

ChannelStats MasterThread::stats() const {
  ChannelStats sum;
  for (const auto& line : lines_) sum.add(line->channel->final_stats());
  return sum;
}

void MasterThread::hand_over(unsigned worker, Request request) {
  SLUICE_CHECK(queues_[worker]->push(request));  // there is room for every slot of every channel
  ring();
}

void MasterThread::ring() {
  bell_.fetch_add(1, std::memory_order_release);
  bell_.notify_one();
}

void MasterThread::run() {
  uint32_t idle = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    // Before the queues are looked at: what comes later rings again.
    const uint32_t heard = bell_.load(std::memory_order_acquire);
    bool any = false;
    for (auto& queue : queues_) {
      Request request;
      while (queue != nullptr && queue->pop(request)) {
        take(request);
        any = true;
      }
    }
    bool flying = false;
    for (auto& line : lines_) {
      any |= poll(*line);
      any |= gather(*line);
      flying |= !line->air.empty() || !line->waiting.empty();
    }
    if (any) {
      idle = 0;
    } else if (flying || (spin_ && ++idle < 4000)) {
      spin_once(spin_);
    } else {
      bell_.wait(heard, std::memory_order_acquire);
    }
  }
}

void MasterThread::take(Request request) {
  lines_[request.channel->line()]->waiting.push() = &request.channel->slot(request.slot);
}

// Sends what waits: the oldest flight, and those behind it for the same program that fit beside it.
bool MasterThread::gather(Line& line) {
  bool any = false;
  Channel& channel = *line.channel;
  while (!line.waiting.empty()) {
    if (channel.failed()) {
      line.waiting[0]->failed.store(true, std::memory_order_release);
      line.waiting.pop();
      any = true;
      continue;
    }
    if (line.air.full()) break;
    const MasteredChannel::Slot& first = *line.waiting[0];
    uint32_t limit = first.flight.limit;
    size_t parts = 1;
    for (; parts < line.waiting.size(); ++parts) {
      const MasteredChannel::Slot& next = *line.waiting[parts];
      if (next.program != first.program || next.flight.parity != first.flight.parity) break;
      if (limit + next.flight.limit > line.options.records) break;
      limit += next.flight.limit;
    }
    Flight flight;
    if (!channel.open(flight, limit, first.flight.parity)) {
      if (channel.failed()) continue;
      break;  // no room until an older flight is closed
    }
    Line::Air& air = line.air.push();
    air.parts.clear();
    air.copied = air.part = air.part_begin = 0;
    const DeviceProgram& program = *first.program;
    for (size_t p = 0; p < parts; ++p) {
      MasteredChannel::Slot& slot = *line.waiting[0];
      line.waiting.pop();
      air.parts.push_back({&slot, slot.flight.count});
      const Word* from = slot.in.data();
      for (uint32_t i = 0; i < slot.flight.count; ++i) {
        Word* to = flight.record(flight.count);
        const uint32_t tag = flight.tag(flight.count);
        for (uint32_t w = 0; w < flight.words_in; ++w) {
          Word word = HostWords::load(from++);
          set_word_tag(word, tag);
          HostWords::store(to + w, word);
        }
        ++flight.count;
      }
    }
    channel.submit(flight, program);
    air.flight = flight;
    any = true;
  }
  return any;
}

// Takes results back to the workers' flights.
bool MasterThread::poll(Line& line) {
  bool any = false;
  for (size_t i = 0; i < line.air.size(); ++i) {
    Line::Air& air = line.air[i];
    Flight& flight = air.flight;
    line.channel->poll(flight);
    while (air.copied < flight.ready) {
      const Line::Part& part = air.parts[air.part];
      const uint32_t end = std::min(flight.ready, air.part_begin + part.count);
      uint64_t* to = part.slot->out.data() + (air.copied - air.part_begin);
      for (; air.copied < end; ++air.copied) *to++ = flight.key_result(air.copied);
      any = true;
      part.slot->ready.store(air.copied - air.part_begin, std::memory_order_release);
      if (air.copied == air.part_begin + part.count) {
        air.part_begin = air.copied;
        ++air.part;
      }
    }
    if (!flight.failed) continue;
    // Nothing of these slots is touched after this: the worker may go on with them.
    for (; air.part < air.parts.size(); ++air.part) {
      air.parts[air.part].slot->failed.store(true, std::memory_order_release);
      any = true;
    }
    air.copied = flight.count;
  }
  while (!line.air.empty() && line.air[0].copied == line.air[0].flight.count) {
    line.channel->close(line.air[0].flight);
    line.air.pop();
    any = true;
  }
  return any;
}

}  // namespace sluice
