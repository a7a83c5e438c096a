// host only
#include "exec/device/drive.h"

#include <algorithm>
#include <atomic>
#include <barrier>

#include "base/clock.h"
#include "base/thread.h"

namespace sluice {

Result<std::unique_ptr<KeyLink>> KeyLink::open(Device& device, const Resident& resident, size_t node,
                                               const ChannelOptions& options) {
  std::unique_ptr<KeyLink> link(new KeyLink());
  link->resident_ = &resident;
  link->node_ = node;
  link->shares_cores_ = device.info().kind == "emu";
  for (const RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6}) {
    RecordShape shape;
    shape.kind = kind;
    auto channel = Channel::create(device, shape, options);
    if (!channel) return std::move(channel).error();
    if (auto ok = (*channel)->install(resident.programs[node], resident.parity); !ok) return std::move(ok).error();
    (kind == RecordKind::kKey4 ? link->ipv4_ : link->others_) = std::move(*channel);
  }
  return link;
}

Result<void> KeyLink::run(std::span<const FlowKey> keys, std::span<KeyResult> results) {
  const bool alone = !shares_cores_;
  const uint32_t frame = ipv4_->options().records;
  struct Air {
    Flight flight;
    std::vector<size_t> at;
  };
  struct Chunk {
    Air air[2];
    bool used[2] = {false, false};
  };
  std::vector<Chunk> chunks(ipv4_->options().flights);
  size_t next = 0, made = 0, done = 0;
  while (next < keys.size() || done < made) {
    if (next < keys.size() && made - done < chunks.size()) {
      Chunk& chunk = chunks[made % chunks.size()];
      chunk.used[0] = chunk.used[1] = false;
      const size_t end = std::min(keys.size(), next + frame);
      for (; next < end; ++next) {
        const int other = fits_key4(keys[next]) ? 0 : 1;
        Channel& channel = other != 0 ? *others_ : *ipv4_;
        Air& air = chunk.air[other];
        if (!chunk.used[other]) {
          if (!channel.open(air.flight, frame, parity())) return Error("the device failed: " + channel.why());
          air.at.clear();
          chunk.used[other] = true;
        }
        air.flight.put_key(keys[next]);
        air.at.push_back(next);
      }
      for (int other : {0, 1}) {
        if (chunk.used[other]) (other != 0 ? *others_ : *ipv4_).submit(chunk.air[other].flight, program());
      }
      ++made;
      if (made - done < chunks.size() && next < keys.size()) continue;
    }
    Chunk& chunk = chunks[done % chunks.size()];
    bool all = true;
    for (int other : {0, 1}) {
      if (!chunk.used[other]) continue;
      Channel& channel = other != 0 ? *others_ : *ipv4_;
      Air& air = chunk.air[other];
      channel.poll(air.flight);
      if (air.flight.failed) return Error("the device failed: " + channel.why());
      if (air.flight.ready < air.flight.count) {
        all = false;
        continue;
      }
      for (uint32_t i = 0; i < air.flight.count; ++i) {
        results[air.at[i]] = unpack_result(air.flight.key_result(i));
      }
      channel.close(air.flight);
      chunk.used[other] = false;
    }
    if (all) {
      ++done;
    } else {
      spin_once(alone);
    }
  }
  return {};
}

namespace {

// Fills a flight with records from `next` on, in a circle. Returns where the next flight's begin.
size_t put_records(Flight& flight, std::span<const Word> records, size_t next, uint32_t count) {
  for (uint32_t left = count; left != 0;) {
    const auto n = static_cast<uint32_t>(std::min<size_t>(left, records.size() - next));
    flight.put_words(records.data() + next, n);
    left -= n;
    if ((next += n) == records.size()) next = 0;
  }
  return next;
}

// How many results of a flight are not what is expected from `at` on, in a circle of `records`.
uint64_t count_wrong(const Flight& flight, std::span<const uint32_t> expected, size_t at, size_t records, bool routes) {
  const auto* out = reinterpret_cast<const uint64_t*>(flight.out);
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < flight.count; ++i) {
    const uint64_t word = HostWords::load64(out + flight.place(i));
    const KeyResult r = unpack_result(word);
    wrong += (routes ? routes_digest(word) : result_digest(r.rule, r.next_hop)) != expected[at] ? 1 : 0;
    if (++at == records) at = 0;
  }
  return wrong;
}

// work(t) by each worker, which waits at `start` for the others; all have ended at the return.
template <typename Work>
Result<void> work_together(uint32_t workers, Work& work, std::barrier<>& start, std::atomic<bool>& stopping) {
  if (workers == 1) {
    work(0);
    return {};
  }
  std::vector<std::jthread> threads;
  threads.reserve(workers);
  for (uint32_t t = 0; t < workers; ++t) {
    auto thread = start_thread([&work, t] { work(t); });
    if (!thread) {
      // The others start together, without those that are missing.
      stopping.store(true);
      for (; t < workers; ++t) start.arrive_and_drop();
      return std::move(thread).error();
    }
    threads.push_back(std::move(*thread));
  }
  return {};
}

}  // namespace

Result<DriveResult> drive(std::span<const DriveTarget> targets, size_t node, std::span<const Word> records,
                          std::span<const uint32_t> expected, const DriveOptions& options) {
  struct Mine {
    std::unique_ptr<Channel> channel;
    DriveResult result;
    Result<void> ok;
  };
  std::vector<Mine> all(options.threads);
  for (uint32_t t = 0; t < options.threads; ++t) {
    Mine& mine = all[t];
    const auto& [device, resident] = targets[t % targets.size()];
    RecordShape shape;
    shape.kind = options.kind;
    auto channel = Channel::create(*device, shape, options.channel);
    if (!channel) return std::move(channel).error();
    mine.channel = std::move(*channel);
    if (auto ok = mine.channel->install(resident->programs[node], resident->parity); !ok) return std::move(ok).error();
  }
  const bool routes = options.kind == RecordKind::kRoute4;
  const bool alone = std::thread::hardware_concurrency() > options.threads && targets[0].device->info().kind != "emu";
  std::barrier start(static_cast<ptrdiff_t>(options.threads));
  std::atomic<bool> stopping{false};
  auto work = [&](uint32_t t) {
    Mine& mine = all[t];
    const Resident& resident = *targets[t % targets.size()].resident;
    const DeviceProgram& program = resident.programs[node];
    Channel& channel = *mine.channel;
    const uint32_t frame = options.channel.records;
    std::vector<Flight> flights(options.channel.flights);
    std::vector<size_t> starts(flights.size());
    std::vector<uint64_t> opened_ns(flights.size());
    size_t key = records.size() / options.threads * t;
    uint64_t made = 0, done = 0, begun = 0;
    const uint64_t total = options.warm_up + options.frames;
    start.arrive_and_wait();
    if (stopping.load()) return;
    while (done < total) {
      while (made < total && made - done < flights.size()) {
        Flight& flight = flights[made % flights.size()];
        if (made == options.warm_up) begun = now_ns();
        if (!channel.open(flight, frame, resident.parity)) break;
        starts[made % flights.size()] = key;
        opened_ns[made % flights.size()] = now_ns();
        key = put_records(flight, records, key, frame);
        channel.submit(flight, program);
        ++made;
      }
      if (channel.failed() && done == made) break;
      Flight& flight = flights[done % flights.size()];
      channel.poll(flight);
      if (flight.failed || channel.failed()) break;
      if (flight.ready < flight.count) {
        spin_once(alone);
        continue;
      }
      const uint64_t end = now_ns();
      if (done >= options.warm_up) mine.result.round_trip.record(end - opened_ns[done % flights.size()]);
      mine.result.wrong += count_wrong(flight, expected, starts[done % flights.size()], records.size(), routes);
      channel.close(flight);
      ++done;
    }
    if (channel.failed()) {
      mine.ok = Error("the device failed: " + channel.why());
      return;
    }
    const double seconds = static_cast<double>(now_ns() - begun) * 1e-9;
    mine.result.seconds = seconds;
    mine.result.packets = options.frames * frame * lookups_of(options.kind);
    mine.result.rate = static_cast<double>(mine.result.packets) / seconds;
  };
  if (auto ok = work_together(options.threads, work, start, stopping); !ok) return std::move(ok).error();
  DriveResult sum;
  for (Mine& mine : all) {
    if (!mine.ok.ok()) return std::move(mine.ok).error();
    sum.packets += mine.result.packets;
    sum.wrong += mine.result.wrong;
    sum.seconds = std::max(sum.seconds, mine.result.seconds);
    sum.rate += mine.result.rate;
    sum.round_trip.merge(mine.result.round_trip);
    sum.channels.add(mine.channel->final_stats());
  }
  return sum;
}

}  // namespace sluice
