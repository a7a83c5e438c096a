// host only
#include "exec/engine/egress.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "exec/device/trace.h"
#include "exec/engine/generation.h"

namespace sluice {
namespace {

constexpr size_t kPorts = size_t{1} << 16;
constexpr size_t kMostLimiters = 255;  // a packet says in a byte which is its own

}  // namespace

Egress::Ports::Ports() : of(static_cast<PortCounters*>(std::calloc(kPorts, sizeof(PortCounters)))) {
  if (of == nullptr) throw std::bad_alloc();
}

void add_port_error(const Router& router, unsigned e, const Error& error, Error& errors) {
  errors.system = error.system && (errors.system || errors.diagnostics.empty());
  Diagnostic d = router.elements[e]->diagnostic(error.message);
  d.suggestion = error.hint;
  errors.diagnostics.push_back(std::move(d));
}

Result<void> ports_opened(Error errors) {
  const size_t n = errors.diagnostics.size();
  if (n == 0) return {};
  errors.message = fmt::format("{} port{} cannot be opened", n, n == 1 ? "" : "s");
  return errors;
}

Egress::Egress(const Router& router, const Plan& plan, const RunOptions& options, LivePorts* live_ports,
               std::span<const LinkType> links, uint64_t delayed, Error& errors)
    : router_(&router),
      plan_(&plan),
      options_(options),
      live_ports_(live_ports),
      // Several sources take turns by batches: their size is no free choice then.
      sizer_(plan.sources.size() == 1 && !options.priorities ? options.latency_target_ns : 0, options.batch,
             std::max(options.least_batch, BatchSizer::kSmallest)) {
  for (unsigned w = 0; options.workers > 1 && w < options.workers; ++w) counted_.push_back(std::make_unique<Counted>());
  stats_.elements.resize(router.elements.size());
  say_limit();
  classes_.resize(options.priorities ? kMaxQosClasses : 1);
  if (options.neighbours != nullptr) {
    waits_ = std::make_unique<NeighbourWait>();
    known_ = options.neighbours->changes();
  }
  if (options.qos != nullptr) {
    qos_ = std::make_unique<EgressQos>(*options.qos, std::vector<EgressQos::SinkSpec>());
    if (options.priorities && live_ports != nullptr) qos_->let_overtake();
    qos_->tell_lost([this](const EgressQos::SinkSpec& sink, const TxRecord& record, DropReason why) {
      ended(record.followed, sink.name, record.port, why);
    });
  }
  auto first = open(router, plan, links, delayed, errors);
  if (errors.diagnostics.empty()) follow(std::move(first));
}

std::unique_ptr<Egress::Next> Egress::open(const Router& router, const Plan& plan, std::span<const LinkType> links,
                                           uint64_t delayed, Error& errors) const {
  auto next = std::make_unique<Next>();
  next->router = &router;
  next->plan = &plan;
  next->delayed = delayed;
  for (const unsigned e : plan.sinks) {
    const Element& element = *router.elements[e];
    const PortSpec spec = element.port();
    Next::Place& place = next->sinks.emplace_back();
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Output& output = *outputs_[o];
      if (output.element == kNobody || output.port == nullptr) continue;
      Element& writer = *router_->elements[output.element];
      if (writer.name == element.name && goes_on(writer, element)) place.goes_on = o;
    }
    for (size_t o = 0; place.goes_on == ~size_t{0} && !spec.path.empty() && o < outputs_.size(); ++o) {
      const Output& output = *outputs_[o];
      if (output.element == kNobody || output.port == nullptr || output.spec.path != spec.path) continue;
      place.goes_on = o;
      if (same_output(output.spec, spec)) continue;
      errors.diagnostics.push_back(element.diagnostic(
          fmt::format("'{}' is being written by '{}' in another way", spec.path, output.sent.element)));
    }
    if (place.goes_on != ~size_t{0}) continue;
    auto sink = options_.sink ? options_.sink(element) : Result(std::unique_ptr<PacketSink>());
    if (sink.ok() && *sink == nullptr) {
      sink = spec.type == PortSpec::Type::kDevice && live_ports_ != nullptr
                 ? live_ports_->open_sink(spec)
                 : open_sink(spec, sink_link(router, e, links));
    }
    if (!sink) {
      add_port_error(router, e, sink.error(), errors);
      continue;
    }
    place.opened = std::make_unique<Output>();
    place.opened->spec = spec;
    place.opened->port = std::move(*sink);
  }
  return next;
}

void Egress::add_output(std::unique_ptr<Output> output, unsigned element, uint64_t delayed) {
  const uint64_t room = std::min<uint64_t>(delayed, EgressWheel::kMostPackets);
  if (output->port != nullptr && room > output->room) {
    output->wheel = std::make_unique<EgressWheel>(static_cast<uint32_t>(room));
    output->room = room;
  }
  output->element = element;
  output->sent.element = router_->elements[element]->name;
  output->sent.path = output->spec.path;
  at_.push_back(outputs_.size());
  if (qos_ != nullptr)
    qos_->add_sink({output->sent.element, output->port != nullptr && output->port->reads_frames(), &output->drops});
  outputs_.push_back(std::move(output));
  for (const auto& counted : counted_) counted->sent.emplace_back();
}

void Egress::follow(std::unique_ptr<Next> next) {
  const Router& before = *router_;
  const bool first = next->router == router_;
  leave_in_order(true);
  merge_.restart();
  // What goes on, and what does not.
  std::vector<unsigned> heir(outputs_.size(), kNobody);
  for (size_t s = 0; s < next->sinks.size(); ++s) {
    if (next->sinks[s].goes_on != ~size_t{0}) heir[next->sinks[s].goes_on] = next->plan->sinks[s];
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    Output& output = *outputs_[o];
    if (output.element == kNobody) continue;
    if (output.port != nullptr && (heir[o] == kNobody || next->delayed > output.room)) drain(o);
    for (size_t r = 0; r < output.drops.size(); ++r) stats_.elements[output.element].drops[r] += output.drops[r];
    output.drops = {};
    output.element = heir[o];
    if (output.element != kNobody || output.port == nullptr || output.spec.type != PortSpec::Type::kDevice) continue;
    // A live port has nothing to appear at the end.
    output.port->kick();
    output.port.reset();
  }
  router_ = next->router;
  plan_ = next->plan;
  const Router& router = *router_;
  // Counters and rates.
  std::vector<Limiter> limiters;
  if (!first) {
    const std::vector<unsigned> heirs = heirs_of(before, router);
    carry_counters(stats_.elements, heirs, router.elements.size(), gone_);
    for (Limiter& limiter : limiters_) limiter.element = limiter.element == kNobody ? kNobody : heirs[limiter.element];
    // Packets that queues keep have the numbers that they were given; in batches none is on its way.
    if (plan_->by_packets) limiters = limiters_;
  }
  for (const unsigned e : limited_elements(router)) {
    const auto is = [e](const Limiter& limiter) { return limiter.element == e; };
    if (std::any_of(limiters.begin(), limiters.end(), is) || limiters.size() >= kMostLimiters) continue;
    const auto old = std::find_if(limiters_.begin(), limiters_.end(), is);
    Limiter limiter{EgressLimiter::of(router.elements[e]->egress_rate()), e};
    if (old != limiters_.end() && old->interval_ns == limiter.interval_ns) {
      limiter.theoretical_ns = old->theoretical_ns;
      limiter.latest_ns = old->latest_ns;
    }
    limiters.push_back(limiter);
  }
  limiters_ = std::move(limiters);
  // Outputs.
  at_.clear();
  for (size_t s = 0; s < next->sinks.size(); ++s) {
    const unsigned element = plan_->sinks[s];
    Next::Place& place = next->sinks[s];
    if (place.opened != nullptr) {
      add_output(std::move(place.opened), element, next->delayed);
      continue;
    }
    Output& output = *outputs_[place.goes_on];
    output.sent.element = router.elements[element]->name;
    at_.push_back(place.goes_on);
    if (const uint64_t room = std::min<uint64_t>(next->delayed, EgressWheel::kMostPackets); room > output.room) {
      output.wheel = std::make_unique<EgressWheel>(static_cast<uint32_t>(room));
      output.room = room;
    }
  }
}

void Egress::fail(Result<void> why) {
  if (why.ok() || !result_.ok()) return;
  result_ = std::move(why);
  failed_.store(true, std::memory_order_relaxed);
}

void Egress::flush() {
  for (const auto& output : outputs_) {
    if (output->port != nullptr && output->element != kNobody && !failed()) fail(output->port->flush());
  }
}

namespace {

// Whether those of 64 packets that `bits` names have this port. The columns have 64 places, whatever the batch's size
// is.
bool all_at(const uint16_t* port, uint64_t bits, uint16_t its) {
  using Eight = uint16_t __attribute__((vector_size(16)));
  constexpr Eight kBits = {1, 2, 4, 8, 16, 32, 64, 128};
  Eight differs{};
  for (uint32_t i = 0; i < 64; i += 8) {
    Eight ports;
    std::memcpy(&ports, port + i, sizeof ports);
    ports ^= its;
    if (bits != ~uint64_t{0}) {
      const auto named = ((Eight{} + static_cast<uint16_t>(bits >> i & 255)) & kBits) != 0;
      ports &= reinterpret_cast<Eight>(named);
    }
    differs |= ports;
  }
  uint64_t half[2];
  std::memcpy(half, &differs, sizeof half);
  return (half[0] | half[1]) == 0;
}

// Counts packets of a batch by their port, and returns all of them together. `end`: as Ports::end. `word(w, bits)` is
// called for each 64 rows that have some. `sums`: as JobShare's.
template <typename Word>
PortCounters count_by_port(Batch& batch, const Selection& rows, std::span<const JobShare::Passed> sums,
                           PortCounters* ports, size_t& end, Word&& word) {
  PortCounters sum;
  const uint16_t* const port_of = batch.ports();
  size_t last = 0;
  for (uint32_t w = 0; w * 64 < batch.size(); ++w) {
    const uint64_t bits = rows.word(w);
    if (bits == 0) continue;
    const auto packets = static_cast<uint64_t>(std::popcount(bits));
    sum.packets += packets;
    word(w, bits);
    const bool known = w < sums.size() && sums[w].rows == bits && batch.unfilled() != nullptr;
    const uint64_t bytes = known ? sums[w].bytes : batch.bytes(rows, w);
    sum.bytes += bytes;
    // All have one port, or the first and the last most often show that they have not. Where they have, a counter that
    // each reads, adds to and writes would make each wait for the one before.
    const uint16_t* port = port_of + w * 64;
    const uint16_t first = port[std::countr_zero(bits)];
    if (first == port[63 - std::countl_zero(bits)] && all_at(port, bits, first)) {
      last = std::max<size_t>(last, first);
      ports[first].packets += packets;
      ports[first].bytes += bytes;
      continue;
    }
    for (uint64_t b = bits; b != 0; b &= b - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(b));
      last = std::max<size_t>(last, port_of[i]);
      ports[port_of[i]].count(batch.bytes(i));
    }
  }
  end = std::max(end, last + 1);
  return sum;
}

}  // namespace

// Counts packets of a batch that left by an output; `rows` is used up.
void Egress::count_sent(size_t o, Batch& batch, Selection& rows, std::span<const JobShare::Passed> sums) {
  RunReport::Sink& counters = outputs_[o]->sent;
  if (qos_ != nullptr) {
    const EgressQos::Counted most = qos_->count_noted(o, batch, rows);
    counters.packets += most.packets;
    counters.bytes += most.bytes;
    ports_.end = std::max<size_t>(ports_.end, most.port + size_t{1});
    ports_.of[most.port].packets += most.packets;
    ports_.of[most.port].bytes += most.bytes;
  }
  const PortCounters sum =
      count_by_port(batch, rows, sums, ports_.of.get(), ports_.end, [&](uint32_t w, uint64_t bits) {
        if (qos_ != nullptr) qos_->count(o, batch, w, bits);
      });
  counters.packets += sum.packets;
  counters.bytes += sum.bytes;
}

bool Egress::count(unsigned worker, Batch& batch, JobShare& share) {
  if (counted_.empty() || failed() || !only_counts(share)) return false;
  Counted& own = *counted_[worker];
  for (size_t s = 0; s < at_.size(); ++s) {
    Selection& rows = share.sent[s].rows;
    if (outputs_[at_[s]]->port == nullptr || rows.empty()) continue;
    const PortCounters sum =
        count_by_port(batch, rows, share.sums, own.ports.of.get(), own.ports.end, [](uint32_t, uint64_t) {});
    Counted::Sent& sent = own.sent[at_[s]];
    sent.packets.add(sum.packets);
    sent.bytes.add(sum.bytes);
    rows.clear();
  }
  return true;
}

// Writes to an output what may leave by it; what cannot be written is counted as such.
void Egress::write(size_t o, std::vector<TxRecord>& records) {
  if (records.empty()) return;
  if (waits_ != nullptr && outputs_[o]->spec.type == PortSpec::Type::kDevice) {
    // What waits leaves before what comes.
    release_known();
    std::erase_if(records, [&](const TxRecord& record) {
      return Neighbours::marked(record.data, record.captured) && !address(o, record);
    });
  }
  put(o, records);
}

// Gives a frame with a mark its MACs. False: they are not known, and it waits or is dropped.
bool Egress::address(size_t o, const TxRecord& record) {
  Neighbours& neighbours = *options_.neighbours;
  const auto key = neighbours.whom(record.data, record.captured);
  // Where it has become known just now, those that wait are the first. Sinks of one packet's copies would all write the
  // same there.
  if (key && !waits_->waits(o, *key) && neighbours.address(const_cast<uint8_t*>(record.data), *key)) return true;
  NeighbourWait::Came came;
  if (key) came = waits_->come(o, *key, record, now_ns());
  if (!came.waits) {
    ++drops_of(outputs_[o]->element, DropReason::kUnresolvedNeighbour);
    ended(record.followed, outputs_[o]->sent.element, record.port, DropReason::kUnresolvedNeighbour);
  }
  if (came.asks) neighbours.ask(*key);
  return false;
}

// What waited for neighbours that have become known leaves.
void Egress::release_known() {
  const uint64_t changes = options_.neighbours->changes();
  if (changes == known_) return;
  known_ = changes;
  if (waits_->empty()) return;
  Neighbours& neighbours = *options_.neighbours;
  for (size_t o = 0; o < outputs_.size(); ++o) {
    addressed_.clear();
    waits_->release(
        o, [&](const NeighbourKey& key) { return neighbours.knows(key); }, addressed_);
    std::erase_if(addressed_, [&](const TxRecord& record) { return !address(o, record); });
    put(o, addressed_);
    waits_->forget();
  }
}

// What has waited too long for a neighbour does not leave any more.
void Egress::drop_late() {
  waits_->expire(now_ns(), [&](size_t o, const TxRecord& record) {
    ++drops_of(outputs_[o]->element, DropReason::kUnresolvedNeighbour);
    ended(record.followed, outputs_[o]->sent.element, record.port, DropReason::kUnresolvedNeighbour);
  });
}

// What write leaves.
void Egress::put(size_t o, std::vector<TxRecord>& records) {
  if (records.empty()) return;
  Output& output = *outputs_[o];
  if (const uint32_t most = output.port->most_bytes(); most != ~uint32_t{0}) {
    drops_of(output.element, DropReason::kTooBig) += std::erase_if(records, [&](const TxRecord& record) {
      if (record.captured <= most) return false;
      ended(record.followed, output.sent.element, record.port, DropReason::kTooBig);
      return true;
    });
  }
  size_t written = 0;
  if (!failed()) fail(output.port->write(records, written));
  if (const FramePool* pool = output.port->takes(); pool != nullptr) {
    for (size_t i = 0; i < written; ++i) {
      if (records[i].pool == pool) taken_.add(records[i].order);
    }
  }
  RunReport::Sink& counters = output.sent;
  for (size_t i = 0; i < written; ++i) {
    counters.bytes += records[i].captured;
    ports_.end = std::max(ports_.end, size_t{records[i].port} + 1);
    PortCounters& port = ports_.of[records[i].port];
    ++port.packets;
    port.bytes += records[i].captured;
  }
  counters.packets += written;
  const DropReason why = failed() ? DropReason::kOutputFailed : output.port->refusal();
  drops_of(output.element, why) += records.size() - written;
  if (followed_.empty()) return;
  for (size_t i = 0; i < records.size(); ++i)
    ended(records[i].followed, output.sent.element, records[i].port, i < written ? DropReason::kNone : why);
}

// Whether neighbours have to be found for some of the packets; what waited for others leaves before them.
bool Egress::marked(size_t o, const Batch& batch, const Selection& rows) {
  if (waits_ == nullptr || outputs_[o]->spec.type != PortSpec::Type::kDevice) return false;
  release_known();
  return !rows.each_while(
      [&](uint32_t i) { return !Neighbours::marked(batch.frame(i) + batch.extent(i).data, batch.data_length(i)); });
}

// The same for packets as they lie in their batch; leaves those that have to go as records.
void Egress::put_rows(size_t o, Batch& batch, Selection& left, FramePool* lender) {
  Output& output = *outputs_[o];
  const PacketSink::Rows wrote = output.port->write_rows(batch, left, lender);
  if (wrote.taken != 0) {
    Selection rows = left.take_first(wrote.taken);
    if (lender != nullptr && output.port->takes() == lender) taken_.merge(rows);
    count_sent(o, batch, rows);
  }
  if (wrote.refused != 0) {
    const Selection rows = left.take_first(wrote.refused);
    for (uint32_t w = 0; qos_ != nullptr && w * 64 < batch.size(); ++w) {
      if (rows.word(w) != 0) qos_->count(o, batch, w, rows.word(w));
    }
    drops_of(output.element, output.port->refusal()) += wrote.refused;
  }
}

// Packets that come to an output, in their order: with classes of service they may wait there.
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

void Egress::look_at_neighbours() {
  if (waits_ == nullptr || waits_->empty()) return;
  release_known();
  drop_late();
}

void Egress::advance(uint64_t now_ns) {
  look_at_neighbours();
  for (size_t o = 0; o < outputs_.size(); ++o) {
    Output& output = *outputs_[o];
    if (output.port == nullptr || output.element == kNobody) continue;
    if (output.wheel != nullptr && output.wheel->next_ns() <= now_ns) {
      leaving_.clear();
      output.wheel->advance(now_ns, leaving_);
      send(o, leaving_);
      output.wheel->forget();
    }
    if (qos_ == nullptr || qos_->next_ns(o) > now_ns) continue;
    departing_.clear();
    qos_->advance(o, now_ns, departing_);
    write(o, departing_);
    qos_->forget();
  }
}

uint64_t Egress::next_ns() const {
  uint64_t next = ~uint64_t{0};
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const Output& output = *outputs_[o];
    if (output.port == nullptr || output.element == kNobody) continue;
    if (output.wheel != nullptr) next = std::min(next, output.wheel->next_ns());
    if (qos_ != nullptr) next = std::min(next, qos_->next_ns(o));
  }
  return next;
}

// What waits there leaves.
void Egress::drain(size_t o) {
  Output& output = *outputs_[o];
  if (output.wheel != nullptr) {
    leaving_.clear();
    output.wheel->drain(leaving_);
    send(o, leaving_);
    output.wheel->forget();
  }
  if (qos_ != nullptr) {
    departing_.clear();
    qos_->drain(o, departing_);
    write(o, departing_);
    qos_->forget();
  }
  if (waits_ == nullptr) return;
  release_known();
  drops_of(output.element, DropReason::kUnresolvedNeighbour) += waits_->drop(o, [&](const TxRecord& record) {
    ended(record.followed, output.sent.element, record.port, DropReason::kUnresolvedNeighbour);
  });
}

void Egress::drain() {
  leave_in_order(true);
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o]->port != nullptr && outputs_[o]->element != kNobody) drain(o);
  }
}

bool Egress::admit(const TxRecord& record) {
  Limiter& limiter = limiters_[record.limiter - 1u];
  if (limiter.admit(record.timestamp_ns)) return true;
  ++drops_of(limiter.element, DropReason::kIcmpRateLimited);
  return false;
}

uint8_t Egress::limiter_of(unsigned element) const {
  for (size_t l = 0; l < limiters_.size(); ++l) {
    if (limiters_[l].element == element) return static_cast<uint8_t>(l + 1);
  }
  return 0;
}

const Selection& Egress::take(Batch& batch, JobShare& share, FramePool* lender) {
  put_out(batch, share, 0, lender);
  return taken_;
}

void Egress::take(size_t s, std::vector<TxRecord>& records) {
  if (!limiters_.empty()) {
    std::erase_if(records, [this](const TxRecord& record) {
      return record.limiter != 0 && record.limiter <= limiters_.size() && !admit(record);
    });
  }
  send(at_[s], records);
}

bool Egress::only_counts(const JobShare& share) const {
  return share.followed.empty() && counts_only();
}

bool Egress::counts_only() const {
  if (!limiters_.empty() || qos_ != nullptr) return false;
  return std::all_of(at_.begin(), at_.end(),
                     [this](size_t o) { return outputs_[o]->port == nullptr || !outputs_[o]->port->reads_frames(); });
}

void Egress::put_out(Batch& batch, JobShare& share, unsigned lane, FramePool* lender) {
  taken_.clear();
  if (!only_counts(share)) batch.fill();
  const bool followed = !share.followed.empty();
  if (followed) place_followed(share, false);
  if (!limiters_.empty()) {
    hold_to_rates({&share, 1}, limited_, [this](const TxRecord& record) { return admit(record); });
    if (followed) place_followed(share, true);
  }
  const bool timed = qos_ != nullptr && qos_->timed();
  for (size_t s = 0; s < at_.size(); ++s) {
    const size_t o = at_[s];
    Output& output = *outputs_[o];
    if (output.port == nullptr) continue;
    const bool reads = timed || output.port->reads_frames();
    JobShare::Sent& sent = share.sent[s];
    output.port->use_queue(lane);
    merged_ = sent.made;
    if (reads && !timed && output.wheel == nullptr && sent.made.empty() && !followed && !failed() &&
        !marked(o, batch, sent.rows)) {
      put_rows(o, batch, sent.rows, lender);
    }
    // Packets that no element made are in order already, and a sink that does not read them need not see them.
    if (followed && !reads) {
      for (const FollowedRow& f : share.followed) {
        if (sent.rows.has(f.row))
          ended(f.id, output.sent.element, batch.port(f.row), failed() ? DropReason::kOutputFailed : DropReason::kNone);
      }
    }
    if (reads) {
      auto follow = share.followed.begin();
      sent.rows.for_each([&](uint32_t i) {
        merged_.push_back(tx_record(batch, i, 0));
        merged_.back().pool = lender;
        while (follow != share.followed.end() && follow->row < i) ++follow;
        if (follow != share.followed.end() && follow->row == i) merged_.back().followed = follow->id;
      });
    } else if (!failed()) {
      count_sent(o, batch, sent.rows, share.sums);
    } else {
      drops_of(output.element, DropReason::kOutputFailed) += sent.rows.count();
    }
    if (merged_.empty()) continue;
    if (!sent.made.empty()) {
      std::sort(merged_.begin(), merged_.end(), [](const TxRecord& x, const TxRecord& y) {
        return x.order != y.order ? x.order < y.order : x.sequence < y.sequence;
      });
    }
    if (output.wheel != nullptr && reads) {
      leaving_.clear();
      for (const TxRecord& record : merged_) {
        output.wheel->pass(record, record.sequence == 0 ? batch.departure_ns(record.order) : 0, leaving_);
      }
      send(o, leaving_);
      output.wheel->forget();
    } else {
      send(o, merged_);
    }
  }
  print(share);
}

void Egress::print(const JobShare& share) {
  if (share.print_count == 0 || !options_.print) return;
  prints_.clear();
  for (size_t i = 0; i < share.print_count; ++i) prints_.push_back(&share.prints[i]);
  std::sort(prints_.begin(), prints_.end(), [](const PrintRecord* a, const PrintRecord* b) { return *a < *b; });
  for (const PrintRecord* p : prints_) options_.print(p->text);
}

bool Egress::in_order(const Router& router, const RunOptions& options, const LivePorts* live_ports) {
  if (!options.priorities || live_ports != nullptr) return false;
  // Rates may come while it runs.
  const bool timed = options.qos != nullptr && (options.live || !EgressQos::only_counts(*options.qos));
  return timed || !limited_elements(router).empty();
}

// As put_out, for packets that wait for those that came before them.
void Egress::put_in_order(Job& job) {
  JobShare& share = job.share;
  if (limiters_.empty() && !qos_->timed() && merge_.held() == 0) {
    put_out(job.batch, share, job.lane, job.lender);
  } else {
    taken_.clear();
    job.batch.fill();
    if (!share.followed.empty()) place_followed(share, false);
    for (size_t s = 0; s < at_.size(); ++s) {
      if (outputs_[at_[s]]->port == nullptr) continue;
      JobShare::Sent& sent = share.sent[s];
      for (const TxRecord& record : sent.made) merge_.put(job.numbers[record.order], s, record);
      auto follow = share.followed.begin();
      sent.rows.for_each([&](uint32_t i) {
        TxRecord record = tx_record(job.batch, i, 0);
        while (follow != share.followed.end() && follow->row < i) ++follow;
        if (follow != share.followed.end() && follow->row == i) record.followed = follow->id;
        merge_.put(job.numbers[record.order], s, record);
      });
    }
    print(share);
  }
  for (const uint64_t number : job.numbers) merge_.done(number);
  leave_in_order(false);
}

void Egress::skip(const std::vector<uint64_t>& numbers) {
  const auto held = lock();
  for (const uint64_t number : numbers) merge_.done(number);
  leave_in_order(false);
}

// What waited for packets that have come now goes on. `all`: for those that never will.
void Egress::leave_in_order(bool all) {
  ordered_.resize(at_.size());
  merge_.release(all, [&](size_t s, const TxRecord& record) {
    if (record.limiter == 0 || record.limiter > limiters_.size() || admit(record)) ordered_[s].push_back(record);
  });
  for (size_t s = 0; s < at_.size(); ++s) {
    if (ordered_[s].empty()) continue;
    send(at_[s], ordered_[s]);
    ordered_[s].clear();
  }
  merge_.forget();
  waiting_in_order_.store(merge_.held(), std::memory_order_relaxed);
}

void Egress::commit(Job& job, uint32_t qos_class) {
  const TraceRange trace("commit");
  if (!job.share.followed.empty()) begin_followed(job);
  if (job.numbers.empty()) {
    put_out(job.batch, job.share, job.lane, job.lender);
  } else {
    put_in_order(job);
  }
  if (!job.share.followed.empty()) end_followed(job.share);
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
  Selection left;
  left.fill(job.batch.size());
  left.subtract(taken_);
  if (left.empty()) return;
  returned_.clear();
  left.for_each([&](uint32_t i) { returned_.push_back(job.batch.frame(i)); });
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

void Egress::begin_followed(Job& job) {
  for (FollowedRow& f : job.share.followed) {
    FollowedPacket& packet = *f.packet;
    packet.fate = job.fates[f.row];
    if (packet.fate.reason != DropReason::kNone) {
      packet.element = router_->elements[packet.fate.element]->name;
    } else {
      packet.fate.rule = job.batch.annotation(f.row).rule;
      packet.fate.next_hop = job.batch.annotation(f.row).next_hop;
    }
  }
}

// How many sinks they came to, before and after what is held to rates has gone.
void Egress::place_followed(JobShare& share, bool after_rates) {
  for (FollowedRow& f : share.followed) {
    uint32_t places = 0;
    for (size_t s = 0; s < at_.size(); ++s) {
      if (outputs_[at_[s]]->port != nullptr && share.sent[s].rows.has(f.row)) ++places;
    }
    if (!after_rates) {
      f.places = places;
      f.packet->open = places;
      if (places != 0) followed_.emplace(f.id, f.packet);
    }
    for (; places < f.places; --f.places) ended(f.id, "egress", 0, DropReason::kIcmpRateLimited);
  }
}

// One of its sinks says what became of it; 0: nobody follows it.
void Egress::ended(uint32_t followed, const std::string& element, uint16_t port, DropReason reason) {
  if (followed == 0) return;
  const auto at = followed_.find(followed);
  if (at == followed_.end()) return;
  FollowedPacket& packet = *at->second;
  packet.ends.push_back({element, port, reason});
  if (--packet.open != 0) return;
  PacketTaps::finish(std::move(at->second));
  followed_.erase(at);
}

// Those that came to no sink are through.
void Egress::end_followed(JobShare& share) {
  for (FollowedRow& f : share.followed) {
    if (f.places == 0 && f.packet->ends.empty()) PacketTaps::finish(std::move(f.packet));
  }
  share.followed.clear();
}

void Egress::settle() {
  for (const auto& output : outputs_) {
    if (output->port != nullptr && !failed()) fail(output->port->settle());
  }
}

void Egress::end(Ending ending, std::vector<AtomicFile>& files) {
  settle();
  for (const auto& output : outputs_) placed_.push_back(place_of(output->port.get(), output->sent.path, ending));
  for (const auto& output : outputs_) {
    AtomicFile* const file = output->port != nullptr ? output->port->file() : nullptr;
    if (file != nullptr && !failed()) files.push_back(std::move(*file));
  }
}

void Egress::close() {
  for (const auto& output : outputs_) output->port.reset();
}

void Egress::report(RunReport& report) {
  report.totals.add(stats_);
  report.generation = generation_;
  report.has_classes = qos_ != nullptr;
  if (qos_ != nullptr) report.qos = qos_->report();
  report.gone.add(gone_);
  if (waits_ != nullptr) report.queued += waits_->packets();
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const Output& output = *outputs_[o];
    if (output.spec.type == PortSpec::Type::kNull) continue;
    for (size_t r = 0; r < kDropReasons; ++r) {
      (output.element == kNobody ? report.gone : report.totals.elements[output.element]).drops[r] += output.drops[r];
    }
    RunReport::Sink& sink = report.sinks.emplace_back(output.sent);
    for (const auto& counted : counted_) {
      sink.packets += counted->sent[o].packets.get();
      sink.bytes += counted->sent[o].bytes.get();
    }
    if (o < placed_.size()) sink.path = placed_[o];
    report.packets_out += sink.packets;
    report.bytes_out += sink.bytes;
  }
}

void Egress::report_at_end(RunReport& report) const {
  const auto add = [&report](const Ports& ports) {
    for (size_t p = 0; p < ports.end; ++p) {
      if (ports.of[p].packets == 0) continue;
      PortCounters& all = report.ports[static_cast<uint16_t>(p)];
      all.packets += ports.of[p].packets;
      all.bytes += ports.of[p].bytes;
    }
  };
  add(ports_);
  for (const auto& counted : counted_) add(counted->ports);
  report.batch.target_ns = plan_->sources.size() == 1 && !options_.priorities ? options_.latency_target_ns : 0;
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
