// host only
// Channel: one worker's way to a device for the records of one shape, in launch or persistent mode or changing between
// them. The host's side of both modes; what a device adds are drivers (device.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/histogram.h"
#include "exec/device/device.h"
#include "exec/device/resident.h"

namespace sluice {

struct ChannelOptions {
  DeviceMode mode = DeviceMode::kLaunch;
  Transport transport = Transport::kStaged;  // of launch mode; persistent mode is tagged
  uint32_t records = 256;                    // most records of one flight
  uint32_t flights = 4;                      // flights at a time, 1..16
  uint32_t busy_records = 0;                 // adaptive: a flight of so many is a busy one; 0: half of records
  uint32_t enter_after = 4;                  // adaptive: busy flights in a row before persistent mode is entered
  uint32_t leave_after = 16;                 // adaptive: idle ones before it is left
  uint64_t watchdog_ns = 2'000'000'000;      // no progress for so long: the device has failed
};

// Words in a 64-byte line, and how many records are written before their lines are pushed.
inline constexpr size_t kLineWords = 4;
inline constexpr uint32_t kPushRun = 64;

// Records in one piece on their way. Record i lies at place(i) of `in`, its result at the same place of `out`.
struct Flight {
  Flight() = default;
  // For up to `most` records of `shape` and the generation of parity `of`. Where they lie is still to be said.
  Flight(const ChannelShape& shape, uint32_t most, uint32_t of, uint64_t now)
      : words_in(shape.words_in()), limit(most), parity(static_cast<uint8_t>(of)), opened_ns(now) {}

  Word* in = nullptr;
  const std::byte* out = nullptr;
  uint32_t words_in = 0;
  uint32_t count = 0;  // records written
  uint32_t limit = 0;  // at most so many
  uint64_t first = 0;  // serial of record 0
  uint64_t lap0 = 0;
  uint32_t mask = 0;  // capacity - 1
  uint8_t shift = 0;  // log2(capacity)
  uint8_t parity = 0;
  bool ring = false;
  bool served = false;  // a slab that goes to servers
  bool failed = false;  // the device is gone: what has no result never gets one
  uint32_t slab = 0;
  uint64_t opened_ns = 0;  // 0: this one is not timed
  uint64_t submitted_ns = 0;
  uint64_t idle_polls = 0;   // since a result was last seen
  uint64_t progress_ns = 0;  // the clock at one of the first of them
  uint32_t ready = 0;        // leading records whose results are there
  RecordWindow window;       // of a ring
  uint32_t pushed = 0;       // leading records that are in the window

  uint32_t place(uint32_t i) const { return static_cast<uint32_t>(first + i) & mask; }
  uint32_t tag(uint32_t i) const { return make_tag(lap0 + ((first + i) >> shift), parity); }
  Word* record(uint32_t i) const { return in + size_t{place(i)} * words_in; }
  // Memory of the flight's own: record i lies at place i, all in lap `lap`.
  void on_slab(uint32_t number, Word* records, const void* results, uint64_t lap) {
    slab = number;
    in = records;
    out = static_cast<const std::byte*>(results);
    lap0 = lap;
    mask = ~uint32_t{0};
    shift = 63;
  }
  // Appends the records of n keys given as columns: kKey4 records alone. Precondition: n <= limit - count.
  void put_keys(const uint32_t* source, const uint32_t* destination, const uint32_t* ports, const uint32_t* rest,
                uint32_t n) {
    for (uint32_t i = 0; i < n;) {
      // Up to the end of the memory places follow one another, in one lap.
      const uint32_t at = place(count);
      const uint32_t some = n - i < mask - at ? n - i : mask - at + 1 < n - i ? mask - at + 1 : n - i;
      Word* to = in + at;
      const uint32_t bits = tag(count) << 25;
      uint32_t k = 0;
      if (window.put != nullptr) {
        window.put(to, source + i, destination + i, ports + i, rest + i, bits, some / 16);
        i += some / 16 * 16;
        k = some / 16 * 16;
      }
      for (; k + 4 <= some; k += 4, i += 4) {
        HostWords::store_four(to + k, source + i, destination + i, ports + i, rest + i, bits);
      }
      for (; k < some; ++k, ++i) {
        HostWords::store(to + k, Word{{source[i], destination[i], ports[i], rest[i] | bits}});
      }
      count += some;
    }
    push(false);
  }
  // Appends the record of one key. Flights of kKey4 records, whose one word says what they are, take what fits_key4.
  void put_key(const FlowKey& key) {
    Word* to = record(count);
    const uint32_t bits = tag(count);
    if (words_in == 1) {
      HostWords::store(to, pack_key4(key, bits));
    } else {
      static_assert(payload_room(kKeyBytes) <= sizeof key);
      store_payload(to, &key, kKeyBytes, bits);
    }
    ++count;
  }
  // Appends `n` one-word records whose tags are 0.
  void put_words(const Word* from, uint32_t n) {
    while (n != 0) {
      const uint32_t at = place(count);
      uint32_t run = mask == ~uint32_t{0} ? n : std::min(n, mask - at + 1);
      if (window.to != nullptr) run = std::min(run, kPushRun);
      const uint32_t bits = tag(count);
      Word* to = in + at;
      for (uint32_t k = 0; k < run; ++k) HostWords::store_tagged(to + k, from + k, bits);
      from += run;
      count += run;
      n -= run;
      push(false);
    }
  }
  // The records [i, i + n), of one word each, one after another: where they lie, or in `copy` where that is not one
  // piece.
  const std::byte* key_records(uint32_t i, uint32_t n, std::byte* copy) const {
    const uint32_t at = place(i);
    const uint32_t run = mask - at < n - 1 ? mask - at + 1 : n;
    if (run == n) return reinterpret_cast<const std::byte*>(in + at);
    memcpy(copy, in + at, run * sizeof(Word));
    memcpy(copy + run * sizeof(Word), in, (n - run) * sizeof(Word));
    return copy;
  }
  // The results of records [i, i + n), all of which are ready.
  void key_results(uint32_t i, uint32_t n, uint64_t* to) const {
    const auto* results = reinterpret_cast<const uint64_t*>(out);
    const uint32_t at = place(i);
    const uint32_t run = mask - at < n - 1 ? mask - at + 1 : n;
    if (run == 32) {
      memcpy(to, results + at, 32 * sizeof(uint64_t));
      return;
    }
    memcpy(to, results + at, run * sizeof(uint64_t));
    memcpy(to + run, results, (n - run) * sizeof(uint64_t));
  }
  // Copies the lines of records that the window does not have yet: full ones, and with `all` the last one, too. A line
  // may go twice, since records before and behind these have in it what they had.
  void push(bool all) {
    if (window.to == nullptr) return;
    while (pushed != count) {
      const uint32_t at = place(pushed);
      const uint32_t run = std::min(count - pushed, mask - at + 1);
      const size_t begin = size_t{at} * words_in, end = begin + size_t{run} * words_in;
      const size_t line = begin / kLineWords, end_line = all ? (end + kLineWords - 1) / kLineWords : end / kLineWords;
      if (end_line > line)
        window.copy(window.to + line * 64, reinterpret_cast<std::byte*>(in) + line * 64, end_line - line);
      if (end_line * kLineWords >= end) {
        pushed += run;
      } else {
        if (end_line > line) pushed += static_cast<uint32_t>((end_line * kLineWords - begin) / words_in);
        return;
      }
    }
    if (all && window.combines) flush_lines();
  }
  uint64_t key_result(uint32_t i) const { return HostWords::load64(reinterpret_cast<const uint64_t*>(out) + place(i)); }
};

// Written by the worker that owns the channel, read when it has stopped.
struct ChannelStats {
  uint64_t flights = 0;
  uint64_t records = 0;
  uint64_t launches = 0;  // flights that took a kernel launch
  uint64_t switches = 0;  // adaptive: mode changes
  uint64_t pushed = 0;    // flights whose records the host wrote into device memory
  uint64_t bytes_in = 0, bytes_out = 0;
  // Of every flight by launched slabs, and of one in eight by the ring or by servers.
  Histogram fill;    // open to submit, ns: the batch's wait while records are gathered
  Histogram device;  // submit to all results: transfers and kernel
  Histogram kernel;  // where it is measured: a flight's kernel; of a ring, a group of 32 records in its server's hands
  Histogram transfer;  // `device` less the flight's kernel; launch mode, where the kernel is measured

  void add(const ChannelStats& o) {
    flights += o.flights;
    records += o.records;
    launches += o.launches;
    switches += o.switches;
    pushed += o.pushed;
    bytes_in += o.bytes_in;
    bytes_out += o.bytes_out;
    fill.merge(o.fill);
    device.merge(o.device);
    kernel.merge(o.kernel);
    transfer.merge(o.transfer);
  }
};

// What a worker sees of a channel: one of its own (Channel), or a share in one that a master serves (master.h).
// open, submit, poll and close belong to one thread (the worker); install to the publishing thread.
class RecordChannel {
 public:
  virtual ~RecordChannel() = default;

  // Makes the program of a new generation known. The generation before last must not be in flight any more. Errors: the
  // device failed.
  virtual Result<void> install(const DeviceProgram& program, uint32_t parity) = 0;

  // Room for up to `records` records; false when there is none until an older flight is closed.
  virtual bool open(Flight& flight, uint32_t records, uint32_t parity) = 0;
  // All records are written. `pool` as in SlabDriver::start.
  virtual void submit(Flight& flight, const DeviceProgram& program, const SlabDriver::Range& pool = {}) = 0;
  // Updates flight.ready; flight.failed when the device is gone.
  virtual void poll(Flight& flight) = 0;
  // Frees the flight's room. Flights are closed in the order in which they were opened.
  virtual void close(Flight& flight) = 0;
  // No flight is opened any more. Waits until the device is done with all that it was given, at most `limit_ns`.
  // Errors: it is not, and may read and write the channel's memory and what records named, however late.
  virtual Result<void> stop(uint64_t limit_ns) = 0;

  virtual bool failed() const = 0;
  // Why it failed. After failed().
  virtual std::string why() const = 0;
  virtual const ChannelStats& stats() const = 0;
  // The same with what is read off the device: not for every batch. The worker has stopped.
  virtual ChannelStats final_stats() { return stats(); }
  virtual const ChannelShape& shape() const = 0;
  virtual const ChannelOptions& options() const = 0;
};

class Channel final : public RecordChannel {
 public:
  static Result<std::unique_ptr<Channel>> create(Device& device, const RecordShape& shape,
                                                 const ChannelOptions& options);
  ~Channel() override;

  Result<void> install(const DeviceProgram& program, uint32_t parity) override;
  bool open(Flight& flight, uint32_t records, uint32_t parity) override;
  void submit(Flight& flight, const DeviceProgram& program, const SlabDriver::Range& pool = {}) override;
  void poll(Flight& flight) override;
  void close(Flight& flight) override;
  Result<void> stop(uint64_t limit_ns) override;
  bool failed() const override { return failed_.load(std::memory_order_relaxed); }
  std::string why() const override;
  const ChannelStats& stats() const override { return stats_; }
  ChannelStats final_stats() override;
  const ChannelShape& shape() const override { return shape_; }
  const ChannelOptions& options() const override { return options_; }

 private:
  Channel(Device& device, const ChannelShape& shape, const ChannelOptions& options)
      : device_(device), shape_(shape), options_(options) {}
  void fail(Error error);
  void order_stop(uint32_t stop);
  bool enter_ring();
  Result<void> leave_ring(uint64_t limit_ns);
  Result<void> leave(uint64_t limit_ns);
  void adapt(const Flight& flight);
  bool beating(uint64_t now);
  static uint32_t ready_keys(const Flight& flight);

  Device& device_;
  ChannelShape shape_;
  ChannelOptions options_;
  std::unique_ptr<SlabDriver> slabs_;
  std::unique_ptr<RingDriver> ring_;
  std::vector<uint64_t> slab_laps_;
  std::vector<bool> slab_busy_;
  uint64_t head_ = 0;  // serial of the next record of the ring
  uint64_t tail_ = 0;  // records before it are closed
  uint32_t resident_flights_ = 0;
  bool resident_ = false;  // flights go by the ring, or by servers
  bool no_room_ = false;   // for servers or a ring: all flights are launched
  std::mutex control_;     // ring start, stop, and program changes
  bool ring_running_ = false;
  std::vector<uint32_t> beats_;
  uint64_t beat_ns_ = 0;
  uint32_t busy_ = 0, idle_ = 0;
  std::atomic<bool> failed_{false};
  mutable std::mutex why_mutex_;
  std::string why_;
  ChannelStats stats_;
};

}  // namespace sluice
