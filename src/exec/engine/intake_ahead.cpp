// host only
// Several captures, read side by side by several threads, in the order of turns.
#include "exec/engine/intake_ahead.h"

#include <algorithm>

#include "base/clock.h"
#include "exec/engine/egress.h"
#include "exec/engine/job.h"

namespace sluice {

// Reads the next packets of the source into `batch`; the caller holds `reading`. kPackets: some; kNothing: not now.
Intake::Got Intake::read_next(Source& source, Batch& batch, uint32_t most) {
  Ahead& ahead = *source.ahead;
  if (ahead.end) return ahead.result.ok() ? Got::kEnd : Got::kError;
  if (!source.port->ready()) return Got::kNothing;
  batch.set_limit(std::min(most, ahead.turn_left));
  ahead.result = source.port->read(batch);
  ahead.end = !ahead.result.ok() || batch.size() == 0;
  if (ahead.end) return ahead.result.ok() ? Got::kEnd : Got::kError;
  ahead.turn_left -= batch.size();
  if (ahead.turn_left == 0)
    ahead.turn_left = source_turn(router_.elements[plan_.sources[source.entry].element]->port());
  return Got::kPackets;
}

bool Intake::read_ahead() {
  if (options_.stopped() || egress_->failed()) return false;
  const uint32_t turn = turn_.load(std::memory_order_relaxed);
  for (size_t i = 1; i <= sources_.size(); ++i) {
    Source& source = sources_[(turn + i) % sources_.size()];
    if (source.ahead == nullptr) continue;
    Ahead& ahead = *source.ahead;
    if (ahead.full() || ahead.reading.test_and_set(std::memory_order_acquire)) continue;
    Got got = Got::kNothing;
    if (!ahead.end && !ahead.full()) {
      const uint32_t at = ahead.filled.load(std::memory_order_relaxed);
      Ahead::Read& read = ahead.reads[at % Ahead::kBatches];
      const Egress::BatchLimit limit = egress_->batch_limit();
      read.at_ns = now_ns();
      read.round = limit.round;
      if (read.batch.capacity() == 0) {
        auto made = Batch::create(options_.batch, std::max(size_t{1} << 21, size_t{options_.batch} * 2048));
        if (made) {
          read.batch = std::move(*made);
          if (options_.qos != nullptr) read.batch.keep_egress_notes();
        }
      }
      // Without memory to read ahead everything is read when its turn comes.
      if (read.batch.capacity() != 0) got = read_next(source, read.batch, limit.packets);
      if (got == Got::kPackets) ahead.filled.store(at + 1, std::memory_order_release);
    }
    ahead.reading.clear(std::memory_order_release);
    if (got == Got::kPackets) return true;
  }
  return false;
}

// The next packets of the source whose turn it is: those that were read ahead, or what it has now.
Intake::Got Intake::take_ahead(Source& source, Job& job) {
  Ahead& ahead = *source.ahead;
  const auto take = [&] {
    const uint32_t at = ahead.taken.load(std::memory_order_relaxed);
    Ahead::Read& read = ahead.reads[at % Ahead::kBatches];
    std::swap(job.batch, read.batch);
    job.round = read.round;
    job.reads.assign(1, {read.at_ns, job.batch.size()});
    ahead.taken.store(at + 1, std::memory_order_release);
    return Got::kPackets;
  };
  if (!ahead.empty()) return take();
  if (ahead.reading.test_and_set(std::memory_order_acquire)) return Got::kBusy;
  Got got = Got::kPackets;
  if (!ahead.empty()) {
    take();
  } else {
    const Egress::BatchLimit limit = egress_->batch_limit();
    const uint64_t now = now_ns();
    got = read_next(source, job.batch, limit.packets);
    job.round = limit.round;
    job.reads.assign(1, {now, job.batch.size()});
  }
  ahead.reading.clear(std::memory_order_release);
  return got;
}

}  // namespace sluice
