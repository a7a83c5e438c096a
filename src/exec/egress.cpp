// host only
#include "exec/egress.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/clock.h"
#include "exec/device/trace.h"

namespace sluice {

void add_port_error(const Router& router, unsigned e, const Error& error, Error& errors) {
  Diagnostic d = router.elements[e]->diagnostic(error.message);
  d.suggestion = error.hint;
  errors.diagnostics.push_back(std::move(d));
}

Egress::Egress(const Router& router, const Plan& plan, const RunOptions& options, std::span<const LinkType> links,
               uint64_t delayed, LivePorts* live_ports, Error& errors)
    : router_(router),
      plan_(plan),
      options_(options),
      ports_(size_t{1} << 16),
      // Several sources take turns by batches: their size is no free choice then.
      sizer_(plan.sources.size() == 1 && !options.priorities ? options.latency_target_ns : 0, options.batch,
             std::max(options.least_batch, BatchSizer::kSmallest)) {
  stats_.elements.resize(router.elements.size());
  say_limit();
  for (const unsigned e : limited_elements(router))
    limiters_.push_back({EgressLimiter::of(router.elements[e]->egress_rate()), e});
  for (const unsigned e : plan.sinks) {
    const PortSpec spec = router.elements[e]->port();
    if (spec.type == PortSpec::Type::kDevice && live_ports == nullptr) continue;  // told already
    auto sink = spec.type == PortSpec::Type::kDevice ? live_ports->open_sink(spec)
                                                     : open_sink(spec, sink_link(router, e, links));
    if (!sink) {
      add_port_error(router, e, sink.error(), errors);
      continue;
    }
    sinks_.push_back(std::move(*sink));
    counters_.push_back({router.elements[e]->name, spec.path});
  }
  if (!errors.diagnostics.empty()) return;
  if (delayed != 0) {
    const auto room = static_cast<uint32_t>(std::min<uint64_t>(delayed, EgressWheel::kMostPackets));
    for (const auto& sink : sinks_) wheels_.push_back(sink != nullptr ? std::make_unique<EgressWheel>(room) : nullptr);
  }
  if (options.qos != nullptr) {
    std::vector<EgressQos::SinkSpec> specs;
    for (size_t s = 0; s < sinks_.size(); ++s) {
      specs.push_back({counters_[s].element, sinks_[s] != nullptr && sinks_[s]->reads_frames(),
                       &stats_.elements[plan_.sinks[s]].drops});
    }
    qos_ = std::make_unique<EgressQos>(*options.qos, specs);
  }
  classes_.resize(kMaxQosClasses);
}

void Egress::fail(Result<void> why) {
  if (why.ok() || !result_.ok()) return;
  result_ = std::move(why);
  failed_.store(true, std::memory_order_relaxed);
}

void Egress::flush() {
  for (const auto& sink : sinks_) {
    if (sink != nullptr && !failed()) fail(sink->flush());
  }
}

// Counts packets of a batch that left by a sink; `rows` is used up.
void Egress::count_sent(size_t s, Batch& batch, Selection& rows) {
  RunReport::Sink& counters = counters_[s];
  const BatchView view = batch.view();
  PortCounters* ports = ports_.data();
  if (qos_ != nullptr) {
    const EgressQos::Counted most = qos_->count_noted(s, batch, rows);
    counters.packets += most.packets;
    counters.bytes += most.bytes;
    ports[most.port].packets += most.packets;
    ports[most.port].bytes += most.bytes;
  }
  for (uint32_t w = 0; w * 64 < view.count; ++w) {
    const uint64_t bits = rows.word(w);
    if (bits == 0) continue;
    const auto packets = static_cast<uint64_t>(std::popcount(bits));
    counters.packets += packets;
    if (qos_ != nullptr) qos_->count(s, batch, w, bits);
    const uint64_t bytes = batch.bytes(rows, w);
    counters.bytes += bytes;
    // All have one port, or the first and the last most often show that they have not. Where they have, a counter that
    // each reads, adds to and writes would make each wait for the one before.
    const uint16_t* port = view.port + w * 64;
    if (bits == ~uint64_t{0} && port[0] == port[63]) {
      uint16_t differ = 0;
      for (uint32_t i = 0; i < 64; ++i) differ |= static_cast<uint16_t>(port[i] ^ port[0]);
      if (differ == 0) {
        ports[port[0]].packets += packets;
        ports[port[0]].bytes += bytes;
        continue;
      }
    }
    for (uint64_t b = bits; b != 0; b &= b - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(b));
      ++ports[view.port[i]].packets;
      ports[view.port[i]].bytes += batch.data_length(i);
    }
  }
}

// Writes to a sink what may leave it; what cannot be written is counted as such.
void Egress::write(size_t s, std::vector<TxRecord>& records) {
  if (const uint32_t most = sinks_[s]->most_bytes(); most != ~uint32_t{0}) {
    drops_of(plan_.sinks[s], DropReason::kTooBig) +=
        std::erase_if(records, [&](const TxRecord& record) { return record.captured > most; });
  }
  if (records.empty()) return;
  size_t written = 0;
  if (!failed()) fail(sinks_[s]->write(records, written));
  if (const FramePool* pool = sinks_[s]->takes(); pool != nullptr) {
    for (size_t i = 0; i < written; ++i) {
      if (records[i].pool == pool) taken_.add(records[i].order);
    }
  }
  RunReport::Sink& counters = counters_[s];
  for (size_t i = 0; i < written; ++i) {
    counters.bytes += records[i].captured;
    PortCounters& port = ports_[records[i].port];
    ++port.packets;
    port.bytes += records[i].captured;
  }
  counters.packets += written;
  const DropReason why = failed() ? DropReason::kOutputFailed : sinks_[s]->refusal();
  drops_of(plan_.sinks[s], why) += records.size() - written;
}

// Packets that come to a sink, in their order: with classes of service they may wait there.
void Egress::send(size_t s, std::vector<TxRecord>& records) {
  if (qos_ == nullptr) return write(s, records);
  if (!qos_->timed()) {
    for (const TxRecord& record : records) qos_->count(s, record);
    return write(s, records);
  }
  departing_.clear();
  for (const TxRecord& record : records) qos_->pass(s, record, departing_);
  write(s, departing_);
  qos_->forget();
}

void Egress::advance(uint64_t now_ns) {
  for (size_t s = 0; s < wheels_.size(); ++s) {
    if (wheels_[s] == nullptr || wheels_[s]->next_ns() > now_ns) continue;
    leaving_.clear();
    wheels_[s]->advance(now_ns, leaving_);
    send(s, leaving_);
    wheels_[s]->forget();
  }
  for (size_t s = 0; qos_ != nullptr && s < sinks_.size(); ++s) {
    if (sinks_[s] == nullptr || qos_->next_ns(s) > now_ns) continue;
    departing_.clear();
    qos_->advance(s, now_ns, departing_);
    write(s, departing_);
    qos_->forget();
  }
}

uint64_t Egress::next_ns() const {
  uint64_t next = ~uint64_t{0};
  for (const auto& wheel : wheels_) {
    if (wheel != nullptr) next = std::min(next, wheel->next_ns());
  }
  for (size_t s = 0; qos_ != nullptr && s < sinks_.size(); ++s) {
    if (sinks_[s] != nullptr) next = std::min(next, qos_->next_ns(s));
  }
  return next;
}

void Egress::drain() {
  for (size_t s = 0; s < wheels_.size(); ++s) {
    if (wheels_[s] == nullptr) continue;
    leaving_.clear();
    wheels_[s]->drain(leaving_);
    send(s, leaving_);
    wheels_[s]->forget();
  }
  for (size_t s = 0; qos_ != nullptr && s < sinks_.size(); ++s) {
    if (sinks_[s] == nullptr) continue;
    departing_.clear();
    qos_->drain(s, departing_);
    write(s, departing_);
    qos_->forget();
  }
}

void Egress::commit(Job& job, uint32_t qos_class) {
  const TraceRange trace("commit");
  JobShare& share = job.share;
  taken_.clear();
  if (!limiters_.empty()) {
    hold_to_rates({&share, 1}, limited_, [&](const TxRecord& record) {
      Limiter& limiter = limiters_[record.limiter - 1u];
      if (limiter.admit(record.timestamp_ns)) return true;
      ++drops_of(limiter.element, DropReason::kIcmpRateLimited);
      return false;
    });
  }
  const bool timed = qos_ != nullptr && qos_->timed();
  for (size_t s = 0; s < sinks_.size(); ++s) {
    if (sinks_[s] == nullptr) continue;
    JobShare::Sent& sent = share.sent[s];
    sinks_[s]->use_queue(job.lane);
    merged_ = sent.made;
    // Packets that no element made are in order already, and a sink that does not read them need not see them.
    if (timed || sinks_[s]->reads_frames()) {
      sent.rows.for_each([&](uint32_t i) {
        merged_.push_back(tx_record(job.batch, i, 0));
        merged_.back().pool = job.lender;
      });
    } else if (!failed()) {
      count_sent(s, job.batch, sent.rows);
    } else {
      drops_of(plan_.sinks[s], DropReason::kOutputFailed) += sent.rows.count();
    }
    if (merged_.empty()) continue;
    if (!sent.made.empty()) {
      std::sort(merged_.begin(), merged_.end(), [](const TxRecord& x, const TxRecord& y) {
        return x.order != y.order ? x.order < y.order : x.sequence < y.sequence;
      });
    }
    if (!wheels_.empty() && (timed || sinks_[s]->reads_frames())) {
      leaving_.clear();
      for (const TxRecord& record : merged_) {
        wheels_[s]->pass(record, record.sequence == 0 ? job.batch.departure_ns(record.order) : 0, leaving_);
      }
      send(s, leaving_);
      wheels_[s]->forget();
    } else {
      send(s, merged_);
    }
  }
  if (share.print_count != 0 && options_.print) {
    prints_.clear();
    for (size_t i = 0; i < share.print_count; ++i) prints_.push_back(&share.prints[i]);
    std::sort(prints_.begin(), prints_.end(), [](const PrintRecord* a, const PrintRecord* b) { return *a < *b; });
    for (const PrintRecord* p : prints_) options_.print(p->text);
  }
  if (options_.ended) tell_ended(job);
  if (job.lender != nullptr) give_back(job);
  // Classes overtake each other.
  generation_ = std::max(generation_, job.generation);
  const uint64_t now = now_ns();
  stats_.egress.record(now - job.done_ns);
  Class& k = classes_[qos_class];
  for (const Job::Read& read : job.reads) {
    const uint64_t took = now - std::min(now, read.at_ns);
    if (options_.priorities) {
      k.latency.record(took, read.packets);
    } else {
      stats_.through.record(took, read.packets);
      sizer_.took(job.done_ns - read.at_ns, read.packets, job.round);
      say_limit();
    }
  }
  ++k.committed;
  k.stolen += job.stolen ? 1 : 0;
  k.early += job.full ? 0 : 1;
  committed_ += job.batch.size();
  if (options_.progress) options_.progress(committed_);
}

// Frames that no sink took go back to whom they belong. A device that was given up with them may still write there.
void Egress::give_back(Job& job) {
  if (job.share.given_up) {
    lost_chunks_ += job.batch.size() - taken_.count();
    return;
  }
  returned_.clear();
  for (uint32_t i = 0; i < job.batch.size(); ++i) {
    if (!taken_.has(i)) returned_.push_back(job.batch.frame(i));
  }
  job.lender->give(returned_);
}

// What left by a sink has its rule and its next hop where it left them.
void Egress::tell_ended(const Job& job) {
  PacketEnd packet;
  packet.snapshot = job.snapshot;
  for (uint32_t i = 0; i < job.batch.size(); ++i) {
    packet.number = committed_ + i + 1;
    packet.fate = job.fates[i];
    if (packet.fate.reason == DropReason::kNone) {
      packet.fate.rule = job.batch.annotation(i).rule;
      packet.fate.next_hop = job.batch.annotation(i).next_hop;
    }
    packet.timestamp_ns = job.batch.timestamp_ns(i);
    if (options_.keeps_frames) {
      packet.frame = {job.frames.data() + job.came[i].at, job.came[i].bytes};
      packet.wire_bytes = job.came[i].wire_bytes;
    }
    options_.ended(packet);
  }
}

void Egress::end(Ending ending) {
  std::vector<PacketSink*> sinks;
  for (const auto& sink : sinks_) sinks.push_back(sink.get());
  for (size_t s = 0; s < sinks.size(); ++s) placed_.push_back(place_of(sinks[s], counters_[s].path, ending));
  fail(end_outputs(sinks, ending));
}

void Egress::report(RunReport& report) {
  report.totals.add(stats_);
  report.generation = generation_;
  report.has_classes = qos_ != nullptr;
  if (qos_ != nullptr) report.qos = qos_->report();
  for (size_t s = 0; s < counters_.size(); ++s) {
    if (router_.elements[plan_.sinks[s]]->port().type == PortSpec::Type::kNull) continue;
    report.sinks.push_back(counters_[s]);
    if (s < placed_.size()) report.sinks.back().path = placed_[s];
    report.packets_out += counters_[s].packets;
    report.bytes_out += counters_[s].bytes;
  }
}

void Egress::report_at_end(RunReport& report) const {
  for (size_t p = 0; p < ports_.size(); ++p) {
    if (ports_[p].packets != 0) report.ports[static_cast<uint16_t>(p)] = ports_[p];
  }
  report.batch.target_ns = plan_.sources.size() == 1 && !options_.priorities ? options_.latency_target_ns : 0;
  report.batch.limit = sizer_.limit();
  report.batch.raised = sizer_.raised();
  report.batch.lowered = sizer_.lowered();
}

void Egress::report_class(PriorityReport& report, uint32_t qos_class) const {
  const Class& k = classes_[qos_class];
  report.chunks = k.committed;
  report.stolen = k.stolen;
  report.early = k.early;
  report.latency = k.latency;
}

}  // namespace sluice
