// host only
#include "exec/engine/egress_qos.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "net/link.h"

namespace sluice {
namespace {

// Where the IP header of an Ethernet frame is that leaves, with as much of it as classes look at and write; family 0:
// there is none.
struct IpPlace {
  unsigned family = 0;
  uint32_t l3 = 0;
};
IpPlace find_ip(const uint8_t* frame, uint32_t captured) {
  Link link;
  if (read_link(frame, captured, link) != LinkStatus::kOk || link.l3 + kRemarkBytes > captured) return {};
  const unsigned version = frame[link.l3] >> 4;
  if (link.ether_type == kEtherTypeIpv4 && version == 4) return {4, link.l3};
  if (link.ether_type == kEtherTypeIpv6 && version == 6) return {6, link.l3};
  return {};
}
[[gnu::noinline]] unsigned codepoint_of_others(const uint8_t* frame, uint32_t captured) {
  const IpPlace link = find_ip(frame, captured);
  return link.family == 0 ? 0 : dscp_of(frame + link.l3, link.family);
}
inline unsigned codepoint(const uint8_t* frame, uint32_t captured) {
  // Most packets: no tag, IPv4.
  constexpr uint32_t kTypeAndVersion = uint32_t{kEtherTypeIpv4} << 16 | 0x4000;
  if (captured >= 14 + kRemarkBytes) {
    const uint32_t head = load_be32(frame + 12);
    if ((head & 0xfffff000) == kTypeAndVersion) return head >> 2 & 63;
  }
  return codepoint_of_others(frame, captured);
}
// Packets in the upper 16 bits of a sum and their bytes in the others: 64 packets of 32-bit lengths do not overflow it.
constexpr unsigned kPackets = 48;

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 and its own _mm512_undefined_epi32 (bug 105593)
// Adds to sums[class], for the rows of a word from `first` on that are untagged IPv4, eight at a time
// (Batch::rows_for). Returns the other rows.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) uint64_t count_wide(const BatchView& view, uint32_t first,
                                                                                  uint64_t rows, const ClassMap& map,
                                                                                  unsigned classes, uint64_t* sums) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(map.words));
  // Fields of eight extents of four words each.
  const __m512i data_at = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 28, 24, 20, 16, 12, 8, 4, 0);
  const __m512i end_at = _mm512_add_epi32(data_at, _mm512_set1_epi32(1));
  const __m512i wire_at = _mm512_add_epi32(data_at, _mm512_set1_epi32(2));
  __m512i of_class[kMaxQosClasses];
  for (unsigned c = 0; c < classes; ++c) of_class[c] = _mm512_setzero_si512();
  uint64_t others = 0;
  for (unsigned g = 0; g < 64; g += 8) {
    const auto here = static_cast<__mmask8>(rows >> g);
    if (here == 0) continue;
    const Extent* extent = view.extent + first + g;
    const __m512i low = _mm512_loadu_si512(extent), high = _mm512_loadu_si512(extent + 4);
    const __m256i data = _mm512_castsi512_si256(_mm512_permutex2var_epi32(low, data_at, high));
    const __m256i end = _mm512_castsi512_si256(_mm512_permutex2var_epi32(low, end_at, high));
    const __m256i wire_end = _mm512_castsi512_si256(_mm512_permutex2var_epi32(low, wire_at, high));
    const __mmask8 whole = _mm256_mask_cmpge_epu32_mask(here, _mm256_sub_epi32(end, data),
                                                        _mm256_set1_epi32(static_cast<int>(14 + kRemarkBytes)));
    // The type, the version and the codepoint: bytes 12 to 15.
    const __m512i at = _mm512_add_epi64(_mm512_loadu_si512(view.frame + first + g),
                                        _mm512_cvtepi32_epi64(_mm256_add_epi32(data, _mm256_set1_epi32(12))));
    const __m256i head = _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), whole, at, nullptr, 1);
    const __mmask8 ipv4 = _mm256_mask_cmpeq_epi32_mask(whole, _mm256_and_si256(head, _mm256_set1_epi32(0x00f0ffff)),
                                                       _mm256_set1_epi32(0x00400008));
    others |= static_cast<uint64_t>(static_cast<uint8_t>(here & ~ipv4)) << g;
    // ClassMap::class_of.
    const __m256i dscp = _mm256_srli_epi32(head, 26);
    const __m256i shift = _mm256_slli_epi32(_mm256_and_si256(dscp, _mm256_set1_epi32(7)), 2);
    const __m256i nibble = _mm256_srlv_epi32(_mm256_permutevar8x32_epi32(words, _mm256_srli_epi32(dscp, 3)), shift);
    const __m256i qos_class = _mm256_and_si256(nibble, _mm256_set1_epi32(15));
    const __m512i sum = _mm512_or_si512(_mm512_cvtepu32_epi64(_mm256_sub_epi32(wire_end, data)),
                                        _mm512_set1_epi64(int64_t{1} << kPackets));
    for (unsigned c = 0; c < classes; ++c) {
      const __mmask8 mine = _mm256_mask_cmpeq_epi32_mask(ipv4, qos_class, _mm256_set1_epi32(static_cast<int>(c)));
      of_class[c] = _mm512_mask_add_epi64(of_class[c], mine, of_class[c], sum);
    }
  }
  for (unsigned c = 0; c < classes; ++c) sums[c] += static_cast<uint64_t>(_mm512_reduce_add_epi64(of_class[c]));
  return others;
}

// EgressQos::count_noted, sixteen packets at a time; by class.
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) EgressQos::Counted sum_noted(
    const BatchView& view, Selection& rows, const ClassMap& map, unsigned classes, uint64_t* class_pkts,
    uint64_t* class_bytes) {
  const __m512i words = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(map.words)));
  const __m512i none = _mm512_set1_epi32(static_cast<int>(Batch::kNotNoted));
  __m512i bytes[kMaxQosClasses];
  uint64_t pkts[kMaxQosClasses] = {};
  for (unsigned c = 0; c < classes; ++c) bytes[c] = _mm512_setzero_si512();
  EgressQos::Counted all;
  for (uint32_t w = 0; w * 64 < view.count; ++w) {
    const uint64_t bits = rows.word(w);
    // Whole columns are read (Batch::rows_for).
    if (bits == 0) continue;
    const uint32_t* const notes = view.egress_note + w * 64;
    const uint16_t* const ports = view.port + w * 64;
    if (all.packets == 0) {
      all.first = w * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      all.port = view.port[all.first];
    }
    const __m512i port = _mm512_set1_epi16(static_cast<int16_t>(all.port));
    __m512i note[4];
    uint64_t others = 0;
    for (unsigned g = 0; g < 4; ++g) {
      note[g] = _mm512_loadu_si512(notes + g * 16);
      others |= static_cast<uint64_t>(_mm512_cmpeq_epi32_mask(note[g], none)) << g * 16;
    }
    for (unsigned g = 0; g < 2; ++g) {
      others |= static_cast<uint64_t>(_mm512_cmpneq_epi16_mask(_mm512_loadu_si512(ports + g * 32), port)) << g * 32;
    }
    if ((others & bits) != 0) continue;
    rows.set_word(w, 0);
    all.packets += static_cast<uint64_t>(std::popcount(bits));
    for (unsigned g = 0; g < 4; ++g) {
      // ClassMap::class_of.
      const __m512i shift =
          _mm512_and_si512(_mm512_srli_epi32(note[g], Batch::kNoteBytesBits - 2), _mm512_set1_epi32(28));
      const __m512i word = _mm512_permutexvar_epi32(_mm512_srli_epi32(note[g], Batch::kNoteBytesBits + 3), words);
      const __m512i qos_class = _mm512_and_si512(_mm512_srlv_epi32(word, shift), _mm512_set1_epi32(15));
      const __m512i length = _mm512_and_si512(note[g], _mm512_set1_epi32((1 << Batch::kNoteBytesBits) - 1));
      for (unsigned c = 0; c < classes; ++c) {
        const __mmask16 mine = _mm512_mask_cmpeq_epi32_mask(static_cast<__mmask16>(bits >> g * 16), qos_class,
                                                            _mm512_set1_epi32(static_cast<int>(c)));
        pkts[c] += static_cast<uint64_t>(std::popcount(static_cast<uint32_t>(mine)));
        bytes[c] = _mm512_mask_add_epi32(bytes[c], mine, bytes[c], length);
      }
    }
  }
  // A batch of IP packets does not overflow 32 bits.
  static_assert(uint64_t{Batch::kMaxPackets} << Batch::kNoteBytesBits < uint64_t{1} << 32);
  for (unsigned c = 0; c < classes; ++c) {
    class_pkts[c] = pkts[c];
    class_bytes[c] = static_cast<uint32_t>(_mm512_reduce_add_epi32(bytes[c])) + pkts[c] * kFastL3;
    all.bytes += class_bytes[c];
  }
  return all;
}
#pragma GCC diagnostic pop
const bool kHasWide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
uint64_t count_wide(const BatchView&, uint32_t, uint64_t rows, const ClassMap&, unsigned, uint64_t*) {
  return rows;
}
EgressQos::Counted sum_noted(const BatchView&, Selection&, const ClassMap&, unsigned, uint64_t*, uint64_t*) {
  return {};
}
constexpr bool kHasWide = false;
#endif

// The frames of records are the engine's own.
QosPacket view_of(const TxRecord& record) {
  const IpPlace link = find_ip(record.data, record.captured);
  QosPacket p;
  p.family = link.family;
  if (link.family != 0) p.ip = const_cast<uint8_t*>(record.data) + link.l3;
  p.mark = record.mark;
  p.bytes = record.wire;
  p.ip_bytes = policed_bytes(link.family != 0, 0, link.l3, record.wire);
  return p;
}

}  // namespace

Result<void> EgressQos::check(const QosModel& model, FieldMask at_sinks) {
  if (model.marks.empty() || (at_sinks & kFieldMark) != 0) return {};
  return Error(fmt::format("class {} is selected by marks, which this run does not keep until packets leave",
                           model.classes[model.marks[0].qos_class].name),
               "start a run with such a file: --qos FILE");
}

EgressQos::EgressQos(QosModel model, const std::vector<SinkSpec>& sinks) {
  for (const SinkSpec& spec : sinks) add_sink(spec);
  use(model);
}

void EgressQos::add_sink(const SinkSpec& spec) {
  Sink sink;
  sink.spec = spec;
  sink.by_number.resize(size_t{1} << 16);
  sinks_.push_back(std::move(sink));
}

void EgressQos::use(const QosModel& model) {
  model_ = model;
  counts_only_ = only_counts(model_) && rates_.empty() && port_rates_.empty();
  for (unsigned dscp = 0; dscp < 64; ++dscp) class_of_[dscp] = static_cast<uint8_t>(model_.map.class_of(dscp));
}

QosModel EgressQos::model_of(uint16_t number) const {
  QosModel model = model_;
  if (const auto own = rates_.find(number); own != rates_.end()) {
    for (QosClass& c : model.classes) {
      if (const auto rate = own->second.find(c.name); rate != own->second.end()) c.rate_bps = rate->second;
    }
  }
  if (const auto own = port_rates_.find(number); own != port_rates_.end()) model.port_rate_bps = own->second;
  return model;
}

EgressQos::Port& EgressQos::add_port(Sink& sink, uint16_t number, uint64_t now_ns) {
  auto made = std::make_unique<Port>();
  made->number = number;
  made->qos = std::make_unique<PortQos<Held>>(model_of(number), now_ns);
  sink.by_number[number] = made.get();
  const auto at = std::upper_bound(sink.ports.begin(), sink.ports.end(), number,
                                   [](uint16_t n, const auto& port) { return n < port->number; });
  return **sink.ports.insert(at, std::move(made));
}

void EgressQos::Port::fold() {
  for (unsigned c = 0; c < qos->classes(); ++c) {
    qos->count(c, pkts[c], bytes[c]);
    pkts[c] = bytes[c] = 0;
  }
}

EgressQos::Counted EgressQos::count_noted(size_t s, Batch& batch, Selection& rows) {
  const BatchView view = batch.view();
  if (!kHasWide || view.egress_note == nullptr) return {};
  uint64_t pkts[kMaxQosClasses] = {}, bytes[kMaxQosClasses] = {};
  const auto classes = static_cast<unsigned>(model_.classes.size());
  const Counted all = sum_noted(view, rows, model_.map, classes, pkts, bytes);
  if (all.packets == 0) return all;
  Port& port = port_of(sinks_[s], all.port, batch.timestamp_ns(all.first));
  for (unsigned c = 0; c < classes; ++c) {
    port.pkts[c] += pkts[c];
    port.bytes[c] += bytes[c];
  }
  return all;
}

void EgressQos::count(size_t s, Batch& batch, uint32_t w, uint64_t rows) {
  Sink& sink = sinks_[s];
  const BatchView view = batch.view();
  const auto classes = static_cast<unsigned>(model_.classes.size());
  const uint32_t from = w * 64;
  const auto add = [&](uint32_t i, uint64_t* sums) {
    uint32_t dscp, bytes;
    const uint32_t note = view.egress_note == nullptr ? Batch::kNotNoted : view.egress_note[i];
    if (note != Batch::kNotNoted) {
      dscp = note >> Batch::kNoteBytesBits;
      bytes = (note & ((1u << Batch::kNoteBytesBits) - 1)) + kFastL3;
    } else {
      const Extent& e = view.extent[i];
      const auto data = static_cast<uint32_t>(e.data);
      dscp = codepoint(view.frame[i] + e.data, e.end - data);
      bytes = e.wire_end - data;
    }
    sums[class_of_[dscp] % kMaxQosClasses] += uint64_t{1} << kPackets | bytes;
  };
  // The packets of one port after another; most often there is one.
  for (uint64_t rest = rows; rest != 0;) {
    const uint32_t first = from + static_cast<uint32_t>(std::countr_zero(rest));
    const uint16_t number = view.port[first];
    uint64_t sums[kMaxQosClasses] = {};
    // Also where packets are not there: most often all rows have port 0.
    uint16_t differ = 0;
    const uint16_t* const ports = view.port + from;
    if (from + 64 <= view.count) {
      for (uint32_t i = 0; i < 64; ++i) differ |= static_cast<uint16_t>(ports[i] ^ number);
    } else {
      for (uint32_t i = 0; i < view.count - from; ++i) differ |= static_cast<uint16_t>(ports[i] ^ number);
    }
    if (differ == 0) {
      if (kHasWide) rest = count_wide(view, from, rest, model_.map, classes, sums);
      if (rest == ~uint64_t{0}) {
        for (uint32_t i = from; i < from + 64; ++i) add(i, sums);
      } else {
        for (; rest != 0; rest &= rest - 1) add(from + static_cast<uint32_t>(std::countr_zero(rest)), sums);
      }
      rest = 0;
    } else {
      uint64_t others = 0;
      for (uint64_t b = rest; b != 0; b &= b - 1) {
        const auto bit = static_cast<uint32_t>(std::countr_zero(b));
        if (view.port[from + bit] == number) {
          add(from + bit, sums);
        } else {
          others |= uint64_t{1} << bit;
        }
      }
      rest = others;
    }
    Port& port = port_of(sink, number, batch.timestamp_ns(first));
    for (unsigned c = 0; c < classes; ++c) {
      port.pkts[c] += sums[c] >> kPackets;
      port.bytes[c] += sums[c] & ((uint64_t{1} << kPackets) - 1);
    }
  }
}
void EgressQos::count(size_t s, const TxRecord& record) {
  Port& port = port_of(sinks_[s], record.port, record.timestamp_ns);
  const unsigned c = class_of_[codepoint(record.data, record.captured)];
  ++port.pkts[c];
  port.bytes[c] += record.wire;
}

EgressQos::Held EgressQos::copy_of(const Sink& sink, const TxRecord& record) {
  Held held;
  if (free_.empty()) {
    held = std::make_unique<Frame>();
  } else {
    held = std::move(free_.back());
    free_.pop_back();
  }
  held->record = record;
  held->record.data = nullptr;
  held->record.pool = nullptr;
  if (sink.spec.reads_frames) {
    held->bytes.assign(record.data, record.data + record.captured);
    held->record.data = held->bytes.data();
  }
  ++held_;
  return held;
}

void EgressQos::pass(size_t s, const TxRecord& record, std::vector<TxRecord>& out) {
  Sink& sink = sinks_[s];
  sink.time_ns = std::max(sink.time_ns, record.timestamp_ns);
  if (sink.due_ns <= sink.time_ns) release(sink, sink.time_ns, out);
  Port& port = port_of(sink, record.port, sink.time_ns);
  bool goes = false;
  QosPacket packet = view_of(record);
  if (overtake_) packet.came_ns = record.timestamp_ns;
  const DropReason why = port.qos->pass(sink.time_ns, packet, goes, [&] { return copy_of(sink, record); });
  if (why != DropReason::kNone) drop(sink, record, why);
  if (goes) {
    out.push_back(record);
    out.back().timestamp_ns = sink.time_ns;
  }
  sink.due_ns = std::min(sink.due_ns, port.qos->next_ns());
}

void EgressQos::release(Sink& sink, uint64_t until_ns, std::vector<TxRecord>& out) {
  const auto drop = [&](Held&& frame, DropReason why) {
    this->drop(sink, frame->record, why);
    --held_;
    free_.push_back(std::move(frame));
  };
  departures_.clear();
  sink.due_ns = ~uint64_t{0};
  for (auto& port : sink.ports) {
    Departure d;
    while (port->qos->depart(until_ns, d.frame, d.at_ns, drop)) departures_.push_back(std::move(d));
    sink.due_ns = std::min(sink.due_ns, port->qos->next_ns());
  }
  // Of what leaves in the same moment, the lowest port first.
  std::stable_sort(departures_.begin(), departures_.end(),
                   [](const Departure& a, const Departure& b) { return a.at_ns < b.at_ns; });
  for (Departure& d : departures_) {
    out.push_back(d.frame->record);
    out.back().timestamp_ns = d.at_ns;
    given_.push_back(std::move(d.frame));
    --held_;
  }
}

void EgressQos::advance(size_t s, uint64_t now_ns, std::vector<TxRecord>& out) {
  Sink& sink = sinks_[s];
  sink.time_ns = std::max(sink.time_ns, now_ns);
  if (sink.due_ns <= sink.time_ns) release(sink, sink.time_ns, out);
}
void EgressQos::drain(size_t s, std::vector<TxRecord>& out) {
  release(sinks_[s], ~uint64_t{0}, out);
}
void EgressQos::forget() {
  for (auto& frame : given_) free_.push_back(std::move(frame));
  given_.clear();
}

std::vector<QosPortReport> EgressQos::report() {
  std::vector<QosPortReport> all;
  for (size_t s = 0; s < sinks_.size(); ++s) {
    for (auto& port : sinks_[s].ports) {
      port->fold();
      QosPortReport r;
      r.element = sinks_[s].spec.name;
      r.port = port->number;
      r.rate_bps = port->qos->model().port_rate_bps;
      for (unsigned c = 0; c < port->qos->classes(); ++c) {
        const Histogram& latency = port->qos->latency_ns(c);
        r.classes.push_back({port->qos->model().classes[c].name, port->qos->model().classes[c].rate_bps,
                             port->qos->counters(c), latency.percentile(50), latency.percentile(99)});
      }
      all.push_back(std::move(r));
    }
  }
  return all;
}

Result<void> EgressQos::set_rate(std::string_view qos_class, uint64_t rate_bps, int64_t only) {
  size_t c = 0;
  while (c < model_.classes.size() && model_.classes[c].name != qos_class) ++c;
  if (c == model_.classes.size()) {
    std::vector<std::string> names;
    for (const QosClass& known : model_.classes) names.push_back(known.name);
    return Error(fmt::format("there is no class '{}'", qos_class), fmt::format("one of {}", fmt::join(names, ", ")));
  }
  if (only >= 0) {
    rates_[static_cast<uint16_t>(only)][std::string(qos_class)] = rate_bps;
    use(model_);
  } else {
    for (auto& [port, rates] : rates_) rates.erase(std::string(qos_class));
    std::erase_if(rates_, [](const auto& port) { return port.second.empty(); });
    QosModel model = model_;
    model.classes[c].rate_bps = rate_bps;
    use(model);
  }
  for (Sink& sink : sinks_) {
    for (auto& port : sink.ports) {
      if (only >= 0 && port->number != only) continue;
      const uint32_t burst = port->qos->model().classes[c].burst_bytes;
      port->qos->set_class_rate(static_cast<unsigned>(c), rate_bps, burst, sink.time_ns);
    }
  }
  return {};
}

void EgressQos::set_port_rate(uint64_t rate_bps, int64_t only) {
  if (only >= 0) {
    port_rates_[static_cast<uint16_t>(only)] = rate_bps;
    use(model_);
  } else {
    port_rates_.clear();
    QosModel model = model_;
    model.port_rate_bps = rate_bps;
    use(model);
  }
  for (Sink& sink : sinks_) {
    for (auto& port : sink.ports) {
      if (only >= 0 && port->number != only) continue;
      port->qos->set_port_rate(rate_bps, port->qos->model().port_burst_bytes, sink.time_ns);
      sink.due_ns = std::min(sink.due_ns, port->qos->next_ns());
    }
  }
}

void EgressQos::load(const QosModel& model) {
  rates_.clear();
  port_rates_.clear();
  use(model);
  for (Sink& sink : sinks_) {
    const auto drop = [&](Held&& frame, DropReason why) {
      this->drop(sink, frame->record, why);
      --held_;
      free_.push_back(std::move(frame));
    };
    sink.due_ns = ~uint64_t{0};
    for (auto& port : sink.ports) {
      port->fold();
      auto next = std::make_unique<PortQos<Held>>(model_, port->qos->time_ns());
      next->take_over(*port->qos, sink.time_ns, drop);
      port->qos = std::move(next);
      sink.due_ns = std::min(sink.due_ns, port->qos->next_ns());
    }
  }
}

}  // namespace sluice
