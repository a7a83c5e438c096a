// host only
#include "flows/flow_table.h"

#include <algorithm>
#include <bit>
#include <new>
#include <random>
#include <utility>

namespace sluice {
namespace {

enum Timeout : unsigned {
  kTcpOpening,
  kTcpReceived,
  kTcpEstablished,
  kTcpClosing,
  kTcpLastAck,
  kTcpClosed,
  kUdpSingle,
  kUdp,
  kIcmp,
  kOther
};

// `ends` without ports, which later fragments do not have.
FlowEnds without_ports(FlowEnds ends) {
  const auto low = std::pair(ends.low_hi, ends.low_lo), high = std::pair(ends.high_hi, ends.high_lo);
  ends.low_port = ends.high_port = 0;
  ends.query = ends.high_asks = 0;
  if (high < low) {
    std::swap(ends.low_hi, ends.high_hi);
    std::swap(ends.low_lo, ends.high_lo);
  }
  return ends;
}

uint64_t hash_of(const FlowEnds& e, uint64_t secret) {
  uint64_t h = mix64(e.low_lo ^ secret);
  h = mix64(h ^ e.high_lo);
  if (e.family == 6) h = mix64(mix64(h ^ e.low_hi) ^ e.high_hi);
  return mix64(h ^ (uint64_t{e.low_port} << 48 | uint64_t{e.high_port} << 32 | uint64_t{e.protocol} << 16 |
                    uint64_t{e.query} << 8 | e.family));
}

}  // namespace

size_t FlowTable::FragmentHash::operator()(const FragmentId& id) const {
  return static_cast<size_t>(hash_of(id.ends, id.id));
}

FlowTable::FlowTable(const Options& options) : options_(options) {
  // Whoever sends packets does not choose their buckets. Where entries lie changes no answer.
  std::random_device random;
  secret_ = uint64_t{random()} << 32 | random();
  const FlowTimeouts& t = options.timeouts;
  timeout_ns_ = {t.tcp_opening,  t.tcp_received, t.tcp_established, t.tcp_closing,
                 t.tcp_last_ack, t.tcp_closed,   t.udp_single,      t.udp,
                 t.icmp,         t.other};
  oldest_.fill(kNone);
  newest_.fill(kNone);
}
uint64_t FlowTable::hash(const FlowEnds& ends) const {
  return hash_of(ends, secret_);
}

// Of a translated connection an entry is for packets of one direction.
uint32_t FlowTable::find(const FlowEnds& ends, uint64_t hash, bool from_high) const {
  using Way = FlowEntry::Way;
  uint32_t i = buckets_[hash & mask_];
  while (i != kNone) {
    const FlowEntry& e = at(i);
    if (e.ends == ends && (e.way == Way::kBoth || e.from_high == from_high)) return i;
    i = e.next;
  }
  return i;
}

FlowTable::Translated FlowTable::translated(const FlowEntry& e, bool reply) const {
  if (e.way == FlowEntry::Way::kBoth) return {};
  // What answers go to is where packets come from.
  const FlowEntry& answered = reply ? e : at(e.other);
  return {true, !answered.from_high, answered.ends};
}

unsigned FlowTable::timeout_of(const FlowEntry& entry) const {
  if (entry.ends.query != 0) return kIcmp;
  if (entry.ends.protocol == 17) return entry.replied ? kUdp : kUdpSingle;
  if (entry.ends.protocol != 6) return kOther;
  switch (entry.tcp) {
    case TcpState::kSynSent:
    case TcpState::kBothSynSent:
      return kTcpOpening;
    case TcpState::kSynReceived:
      return kTcpReceived;
    case TcpState::kEstablished:
      return kTcpEstablished;
    case TcpState::kCloseWait:
      return kTcpReceived;
    case TcpState::kFinWait:
    case TcpState::kTimeWait:
      return kTcpClosing;
    case TcpState::kLastAck:
      return kTcpLastAck;
    case TcpState::kClosed:
      return kTcpClosed;
  }
  return kOther;
}

void FlowTable::unlink(uint32_t i) {
  FlowEntry& e = at(i);
  (e.older == kNone ? oldest_[e.timeout] : at(e.older).newer) = e.newer;
  (e.newer == kNone ? newest_[e.timeout] : at(e.newer).older) = e.older;
}

// The newest of its timeout, as time does not go back.
void FlowTable::link(uint32_t i, unsigned timeout, uint64_t now_ns) {
  FlowEntry& e = at(i);
  e.timeout = static_cast<uint8_t>(timeout);
  e.last_ns = now_ns;
  e.older = newest_[timeout];
  e.newer = kNone;
  (e.older == kNone ? oldest_[timeout] : at(e.older).newer) = i;
  newest_[timeout] = i;
  due_ns_ = std::min(due_ns_, now_ns + timeout_ns_[timeout]);
}

void FlowTable::put(uint32_t i, uint64_t hash) {
  uint32_t& bucket = buckets_[hash & mask_];
  at(i).next = bucket;
  bucket = i;
}

void FlowTable::take_out(uint32_t i) {
  uint32_t* at_bucket = &buckets_[hash(at(i).ends) & mask_];
  while (*at_bucket != i) at_bucket = &at(*at_bucket).next;
  *at_bucket = at(i).next;
  at(i).timeout = kFree;
  free_.push_back(i);
}

void FlowTable::remove(uint32_t i) {
  if (ended_) ended_(at(i));
  unlink(i);
  if (at(i).way == FlowEntry::Way::kForward) take_out(at(i).other);
  take_out(i);
  --size_;
}

// Before each packet, so that nothing depends on when an entry is found to have ended.
void FlowTable::expire(uint64_t now_ns) {
  due_ns_ = ~uint64_t{0};
  for (unsigned t = 0; t < kTimeouts; ++t) {
    while (oldest_[t] != kNone && at(oldest_[t]).last_ns + timeout_ns_[t] <= now_ns) {
      ++counts_.expired;
      remove(oldest_[t]);
    }
    if (oldest_[t] != kNone) due_ns_ = std::min(due_ns_, at(oldest_[t]).last_ns + timeout_ns_[t]);
  }
  while (!fragment_ends_.empty() && fragment_ends_.front().second <= now_ns) {
    // It may have been noted again since.
    const auto its = fragments_.find(fragment_ends_.front().first);
    if (its != fragments_.end() && its->second.until_ns <= now_ns) fragments_.erase(its);
    fragment_ends_.pop_front();
  }
  if (!fragment_ends_.empty()) due_ns_ = std::min(due_ns_, fragment_ends_.front().second);
}

void FlowTable::note_fragment(const TrackedPacket& packet, const Translated& translated, uint64_t now_ns) {
  if (!packet.first_fragment || fragment_ends_.size() >= kMostFragments) return;
  const uint64_t until = now_ns + options_.timeouts.fragment;
  const FragmentId id{without_ports(packet.ends), packet.fragment, packet.from_high};
  try {
    fragment_ends_.emplace_back(id, until);
    fragments_[id] = {until, translated};
  } catch (const std::bad_alloc&) {
    return;  // later fragments are invalid then
  }
  due_ns_ = std::min(due_ns_, until);
}

bool FlowTable::looks_up(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns, Answer& answer) {
  using Kind = TrackedPacket::Kind;
  if (packet.kind == Kind::kInvalid) return false;
  if (packet.kind == Kind::kLaterFragment) {
    const auto first = fragments_.find({packet.ends, packet.fragment, packet.from_high});
    if (first == fragments_.end()) return false;
    answer.state = FlowState::kRelated;
    answer.translated = first->second.translated;
    return false;
  }
  uint32_t i = find(packet.ends, hash, packet.from_high);
  bool reply = false;
  if (i != kNone) {
    reply = at(i).way == FlowEntry::Way::kReply || packet.from_high != at(i).from_high;
    if (at(i).way == FlowEntry::Way::kReply) i = at(i).other;
  }
  if (packet.kind == Kind::kError) {
    if (i == kNone) return false;
    answer.state = FlowState::kRelated;
    answer.translated = translated(at(i), reply);
    return false;
  }
  if (i != kNone) {
    FlowEntry& e = at(i);
    TcpStep step{TcpStep::Kind::kMoves, e.tcp};
    if (packet.kind == Kind::kTcp) step = tcp_step(e.tcp, packet.segment, reply);
    if (step.kind == TcpStep::Kind::kInvalid) {
      if (!options_.counts_all) return false;
      step.kind = TcpStep::Kind::kMoves;
    }
    const auto its_rst = reply ? FlowEntry::LastRst::kReply : FlowEntry::LastRst::kForward;
    // A SYN behind RST opens a connection anew where that end gave up the one before, or both were closing it; else
    // it may be an old one.
    if (step.kind == TcpStep::Kind::kReopens && !e.closing && e.last_rst != its_rst) step.kind = TcpStep::Kind::kKeeps;
    if (step.kind == TcpStep::Kind::kReopens) {
      remove(i);
      i = kNone;
    } else if (packet.kind == Kind::kTcp && packet.segment == TcpSegment::kRst && !e.replied && !options_.counts_all) {
      // Refused, or given up, before anything came back.
      answer.state = reply ? FlowState::kEstablished : FlowState::kNew;
      answer.translated = translated(e, reply);
      remove(i);
      return false;
    } else {
      e.closing |= step.kind == TcpStep::Kind::kMoves && step.next == TcpState::kFinWait;
      e.last_rst = packet.segment == TcpSegment::kRst ? its_rst : FlowEntry::LastRst::kNone;
      e.replied |= reply;
      ++e.packets[reply];
      e.bytes[reply] += bytes;
      answer.state = e.replied ? FlowState::kEstablished : FlowState::kNew;
      if (step.kind == TcpStep::Kind::kMoves) {
        e.tcp = step.next;
        unlink(i);
        link(i, timeout_of(e), now_ns);
      }
      answer.translated = translated(e, reply);
      note_fragment(packet, answer.translated, now_ns);
      return false;
    }
  }
  if (packet.kind == Kind::kReply && !options_.counts_all) return false;
  if (packet.kind == Kind::kTcp && !options_.counts_all && packet.segment != TcpSegment::kSyn &&
      !(options_.pick_up && packet.segment == TcpSegment::kAck)) {
    return false;
  }
  answer.state = FlowState::kNew;
  return true;
}

uint32_t FlowTable::take_place() {
  try {
    if (blocks_.empty()) {
      buckets_.assign(std::bit_ceil(std::max(options_.capacity, 16u)), kNone);
      mask_ = buckets_.size() - 1;
    }
    if (free_.empty() && used_ % kBlock == 0) {
      blocks_.push_back(std::make_unique<FlowEntry[]>(kBlock));
      free_.reserve(blocks_.size() * kBlock);
    }
  } catch (const std::bad_alloc&) {
    return kNone;
  }
  if (free_.empty()) return used_++;
  const uint32_t i = free_.back();
  free_.pop_back();
  return i;
}

void FlowTable::insert(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns,
                       const Opening& opening, Answer& answer) {
  const uint32_t i = size_ == options_.capacity ? kNone : take_place();
  const uint32_t of_replies = i == kNone || !opening.translated ? kNone : take_place();
  if (i == kNone || (opening.translated && of_replies == kNone)) {
    if (i != kNone) {
      at(i).timeout = kFree;
      free_.push_back(i);
    }
    ++counts_.full;
    answer.refused = Refused::kFull;
    return;
  }
  FlowEntry& e = at(i);
  e = FlowEntry{};
  e.ends = packet.ends;
  e.from_high = packet.from_high;
  e.mapping = opening.mapping;
  e.start_ns = now_ns;
  e.packets[0] = 1;
  e.bytes[0] = bytes;
  // In the middle.
  if (packet.kind == TrackedPacket::Kind::kTcp && packet.segment != TcpSegment::kSyn) e.tcp = TcpState::kEstablished;
  put(i, hash);
  if (opening.translated) {
    FlowEntry& replies = at(of_replies);
    replies = FlowEntry{};
    replies.ends = opening.replies;
    replies.from_high = opening.from_high;
    replies.way = FlowEntry::Way::kReply;
    e.way = FlowEntry::Way::kForward;
    replies.other = i;
    e.other = of_replies;
    put(of_replies, this->hash(opening.replies));
  }
  link(i, timeout_of(e), now_ns);
  ++size_;
  e.number = ++counts_.opened;
  answer.translated = translated(e, false);
  note_fragment(packet, answer.translated, now_ns);
}

void FlowTable::clear() {
  for (uint32_t& oldest : oldest_) {
    while (oldest != kNone) remove(oldest);
  }
  fragments_.clear();
  fragment_ends_.clear();
}

}  // namespace sluice
