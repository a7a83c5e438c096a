// host only
#include "exec/device/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"

namespace sluice {

namespace {

constexpr uint64_t kPollsPerClock = 16;
// Of resident flights, which take a few microseconds.
constexpr uint64_t kFlightsPerClock = 8;

}  // namespace

Result<std::unique_ptr<Channel>> Channel::create(Device& device, const RecordShape& record,
                                                 const ChannelOptions& options) {
  ChannelShape shape;
  shape.record = record;
  shape.capacity = std::bit_ceil(std::max(options.records, RingDriver::kLanes));
  std::unique_ptr<Channel> channel(new Channel(device, shape, options));
  // Frames lie beside their records: resident kernels take whole flights of them.
  const bool frames = record.kind == RecordKind::kFrame;
  channel->resident_ = options.mode == DeviceMode::kPersistent;
  if (frames || options.mode != DeviceMode::kPersistent) {
    const DeviceMode mode = frames ? options.mode : DeviceMode::kLaunch;
    auto slabs = device.make_slabs(shape, options.flights, options.transport, mode);
    if (!slabs) return std::move(slabs).error();
    channel->slabs_ = std::move(*slabs);
    channel->slab_laps_.assign(options.flights, 0);
    channel->slab_busy_.assign(options.flights, false);
  }
  if (!frames && options.mode != DeviceMode::kLaunch) {
    ChannelShape ring = shape;
    ring.capacity = std::bit_ceil(shape.capacity * options.flights);
    auto made = device.make_ring(ring);
    if (!made) return std::move(made).error();
    channel->ring_ = std::move(*made);
    channel->shape_.capacity = ring.capacity;
    channel->beats_.assign(RingControl::kMaxServers, 0);
  }
  return channel;
}

// Slabs wait for their kernels themselves.
Channel::~Channel() {
  (void)leave_ring(kStopLimitNs);
}

Result<void> Channel::stop(uint64_t limit_ns) {
  Result<void> result = leave_ring(limit_ns);
  if (slabs_ != nullptr) {
    if (auto ok = slabs_->join(limit_ns); !ok && result.ok()) result = std::move(ok);
  }
  return result;
}

void Channel::fail(Error error) {
  {
    const std::lock_guard lock(why_mutex_);
    if (why_.empty()) why_ = error.message;
  }
  failed_.store(true, std::memory_order_relaxed);
}

std::string Channel::why() const {
  const std::lock_guard lock(why_mutex_);
  return why_;
}

Result<void> Channel::install(const DeviceProgram& program, uint32_t parity) {
  if (ring_ == nullptr || failed()) return {};
  const std::lock_guard lock(control_);
  if (auto ok = ring_->write_program(parity, program); !ok) {
    fail(ok.error());
    return ok;
  }
  RingControl& control = *ring_->control();
  const uint32_t epoch = control.epoch() + ((control.epoch() & 1) == parity ? 2 : 1);
  control.order_epoch(epoch);
  ring_->send_orders();
  if (!ring_running_) return {};
  // Every server takes the new program before a record may name it.
  const uint64_t start = now_ns();
  for (uint32_t s = 0; s < ring_->servers(); ++s) {
    while (HostWords::load32(&control.servers[s].ack) != epoch) {
      if (now_ns() - start > options_.watchdog_ns) {
        Error error(fmt::format("server {} of a ring did not take a new program within {} ms", s,
                                options_.watchdog_ns / 1'000'000));
        fail(error);
        return error;
      }
      std::this_thread::yield();
    }
  }
  return {};
}

void Channel::order_stop(uint32_t stop) {
  ring_->control()->order_stop(stop);
  ring_->send_orders();
}

bool Channel::enter_ring() {
  const std::lock_guard lock(control_);
  if (ring_running_) return true;
  order_stop(0);
  if (auto ok = ring_->start(head_, 1); !ok) {
    // Beside launched kernels it goes on by these: other rings may have taken the device's room. A device that has
    // failed says so at the next launch.
    if (slabs_ == nullptr) {
      fail(ok.error());
    } else {
      resident_ = false;
      no_room_ = true;
    }
    return false;
  }
  ring_running_ = true;
  beat_ns_ = now_ns();
  return true;
}

Result<void> Channel::leave_ring(uint64_t limit_ns) {
  const std::lock_guard lock(control_);
  if (!ring_running_) return {};
  order_stop(1);
  if (auto ok = ring_->join(limit_ns); !ok) {
    fail(ok.error());
    return ok;
  }
  ring_running_ = false;
  return {};
}

// Whatever kernels are resident.
Result<void> Channel::leave(uint64_t limit_ns) {
  if (ring_ != nullptr) return leave_ring(limit_ns);
  auto ok = slabs_->dismiss(limit_ns);
  if (!ok) fail(ok.error());
  return ok;
}

bool Channel::open(Flight& flight, uint32_t records, uint32_t parity) {
  if (failed()) return false;
  const bool timed = !resident_ || stats_.flights % kFlightsPerClock == 0;
  flight = Flight(shape_, records, parity, timed ? now_ns() : 0);
  if (resident_ && ring_ != nullptr && !ring_running_ && !enter_ring() && failed()) return false;
  if (resident_ && ring_ != nullptr) {
    if (head_ + records - tail_ > shape_.capacity) return false;
    flight.ring = true;
    flight.in = ring_->in();
    flight.out = static_cast<const std::byte*>(ring_->out());
    flight.window = ring_->window();
    flight.first = head_;
    flight.lap0 = 1;
    flight.mask = shape_.capacity - 1;
    flight.shift = static_cast<uint8_t>(std::countr_zero(shape_.capacity));
    ++resident_flights_;
    return true;
  }
  for (uint32_t i = 0; i < slab_busy_.size(); ++i) {
    if (slab_busy_[i]) continue;
    slab_busy_[i] = true;
    flight.on_slab(i, slabs_->in(i), slabs_->out(i), ++slab_laps_[i]);
    flight.served = resident_;
    if (resident_) ++resident_flights_;
    return true;
  }
  return false;
}

void Channel::submit(Flight& flight, const DeviceProgram& program, const SlabDriver::Range& pool) {
  flight.push(true);
  if (flight.opened_ns != 0) {
    flight.submitted_ns = now_ns();
    stats_.fill.record(flight.submitted_ns - flight.opened_ns);
  }
  ++stats_.flights;
  stats_.pushed += flight.window.to != nullptr ? 1 : 0;
  stats_.records += flight.count;
  if (pool.records == nullptr) stats_.bytes_in += uint64_t{flight.count} * shape_.record_bytes();
  stats_.bytes_out += shape_.results_bytes(flight.count);
  if (!flight.ring) {
    if (!pool.frames_there) stats_.bytes_in += pool.bytes;
    if (!pool.stays) stats_.bytes_out += pool.slots.head != 0 ? uint64_t{flight.count} * pool.slots.head : pool.bytes;
  }
  if (options_.mode == DeviceMode::kAdaptive) adapt(flight);
  if (flight.ring) {
    head_ = flight.first + flight.count;
    return;
  }
  slabs_->serve(flight.served);
  if (flight.count == 0) {
    if (!flight.served) ++stats_.launches;
    return;
  }
  if (auto ok = slabs_->start(flight.slab, flight.count, program, pool); !ok) {
    fail(ok.error());
    flight.failed = true;
  } else if (flight.served && !slabs_->is_served(flight.slab)) {
    flight.served = resident_ = false;
    no_room_ = true;
    --resident_flights_;
  }
  if (!slabs_->is_served(flight.slab)) ++stats_.launches;
}

// A flight that is well filled says that packets come faster than they are taken.
void Channel::adapt(const Flight& flight) {
  const bool busy = flight.count >= (options_.busy_records != 0 ? options_.busy_records : options_.records / 2);
  busy_ = busy ? busy_ + 1 : 0;
  idle_ = busy ? 0 : idle_ + 1;
  if (!resident_ && !no_room_ && busy_ >= options_.enter_after) {
    resident_ = true;
    ++stats_.switches;
  } else if (resident_ && idle_ >= options_.leave_after) {
    resident_ = false;  // resident flights come home first: see close
    ++stats_.switches;
  }
}

// Whether some server of the ring has shown life since `watchdog_ns` ago.
bool Channel::beating(uint64_t now) {
  const RingControl& control = *ring_->control();
  for (uint32_t s = 0; s < beats_.size(); ++s) {
    const uint32_t beat = HostWords::load32(&control.servers[s].beat);
    if (beat != beats_[s]) {
      beats_[s] = beat;
      beat_ns_ = now;
    }
  }
  return now - beat_ns_ < options_.watchdog_ns;
}

// How many leading results of a flight by the ring are there. The flight's places are one run, or two where it wraps.
uint32_t Channel::ready_keys(const Flight& flight) {
  const auto* out = reinterpret_cast<const uint64_t*>(flight.out);
  uint32_t i = flight.ready;
  while (i < flight.count) {
    const uint32_t place = flight.place(i);
    const uint32_t run = std::min(flight.count - i, flight.mask - place + 1);
    const uint32_t there = leading_results(out + place, run, flight.tag(i));
    i += there;
    if (there != run) break;
  }
  return i;
}

void Channel::poll(Flight& flight) {
  if (flight.failed || flight.ready == flight.count) return;
  const uint32_t before = flight.ready;
  if (flight.ring) {
    flight.ready = ready_keys(flight);
  } else {
    auto done = slabs_->done(flight.slab);
    if (!done) {
      fail(done.error());
      flight.failed = true;
      return;
    }
    if (*done) flight.ready = flight.count;
  }
  if (flight.ready == flight.count) {
    if (flight.opened_ns == 0) return;
    const uint64_t took = now_ns() - flight.submitted_ns;
    stats_.device.record(took);
    if (const uint64_t kernel = flight.ring ? 0 : slabs_->kernel_ns(flight.slab); kernel != 0) {
      stats_.kernel.record(kernel);
      stats_.transfer.record(took - std::min(kernel, took));
    }
    return;
  }
  if (flight.ready != before) {
    flight.idle_polls = 0;
    return;
  }
  if (failed()) {
    flight.failed = true;
    return;
  }
  // A clock costs more than a poll.
  if (++flight.idle_polls % kPollsPerClock != 0) return;
  const uint64_t now = now_ns();
  if (flight.idle_polls == kPollsPerClock) flight.progress_ns = now;
  if (now - flight.progress_ns < options_.watchdog_ns) return;
  if (flight.ring) {
    if (auto ok = ring_->check(); !ok) {
      fail(ok.error());
      flight.failed = true;
      return;
    }
    // Servers that beat but do not answer are as lost as ones that do not beat; they get twice the time.
    const bool alive = beating(now);
    if (alive && now - flight.progress_ns < 2 * options_.watchdog_ns) return;
    fail(Error(fmt::format("no {} from the device for {} ms", alive ? "answer" : "heartbeat",
                           (now - flight.progress_ns) / 1'000'000)));
  } else {
    fail(Error(flight.served ? fmt::format("no answer from the device for {} ms", options_.watchdog_ns / 1'000'000)
                             : fmt::format("a kernel has not ended within {} ms", options_.watchdog_ns / 1'000'000)));
  }
  flight.failed = true;
}

ChannelStats Channel::final_stats() {
  ChannelStats all = stats_;
  // A device that failed says nothing more.
  if (ring_ != nullptr && !failed()) (void)ring_->add_kernel_times(all.kernel);
  return all;
}

void Channel::close(Flight& flight) {
  if (flight.ring) {
    tail_ = flight.first + flight.count;
  } else if (!flight.failed) {
    // The slab of a failed flight may still be written to.
    slab_busy_[flight.slab] = false;
  }
  if ((flight.ring || flight.served) && --resident_flights_ == 0 && !resident_ && !failed())
    (void)leave(options_.watchdog_ns);
  flight.in = nullptr;
}

}  // namespace sluice
