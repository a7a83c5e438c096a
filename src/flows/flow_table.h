// host only
// The connections that packets belong to, with a bound and with time. One thread at a time; what comes of a packet
// depends on the packets before it and their times alone, never on where entries lie.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "flows/tracked_packet.h"

namespace sluice {

// As rules ask for it. The numbers are those of ConnTrack's outputs.
enum class FlowState : uint8_t {
  kNew,          // no packet has come back yet; there may be no entry
  kEstablished,  // packets went both ways
  kRelated,      // an ICMP error about a connection, or a fragment behind its first one
  kInvalid,
};

// How long an entry stays behind its last packet, in nanoseconds. RFC 5382 asks for at least 2 hours 4 minutes of an
// established TCP connection, RFC 4787 for 2 minutes of UDP.
struct FlowTimeouts {
  static constexpr uint64_t kSecond = 1'000'000'000;
  uint64_t tcp_opening = 120 * kSecond;
  uint64_t tcp_received = 60 * kSecond;
  uint64_t tcp_established = 7440 * kSecond;
  uint64_t tcp_closing = 120 * kSecond;  // after the first FIN, and behind the second
  uint64_t tcp_last_ack = 30 * kSecond;
  uint64_t tcp_closed = 10 * kSecond;  // after RST
  uint64_t udp_single = 30 * kSecond;  // no packet came back
  uint64_t udp = 120 * kSecond;
  uint64_t icmp = 30 * kSecond;
  uint64_t other = 600 * kSecond;
  uint64_t fragment = 30 * kSecond;
};

struct FlowEntry {
  FlowEnds ends;
  uint64_t number = 0;  // of those that this table has had, from 1
  uint64_t start_ns = 0, last_ns = 0;
  uint64_t packets[2] = {}, bytes[2] = {};  // of whoever began it, and of replies
  TcpState tcp = TcpState::kSynSent;
  bool from_high = false;  // the higher end began it
  bool replied = false;
  bool closing = false;  // TCP: a FIN of an established connection was there
  // TCP: the last segment was RST, from whoever began it or the other end.
  enum class LastRst : uint8_t { kNone, kForward, kReply } last_rst = LastRst::kNone;
  uint8_t timeout = 0;            // which of FlowTable's
  uint32_t next = 0;              // in its bucket
  uint32_t older = 0, newer = 0;  // of the entries with its timeout
};

class FlowTable {
 public:
  struct Options {
    uint32_t capacity = 1u << 20;  // entries at most, 1 .. 2^28
    FlowTimeouts timeouts = {};
    // A connection whose first packets were not seen may begin with any ACK.
    bool pick_up = true;
    // For reports: what would be invalid for its flags, or for want of a first packet, is counted as well.
    bool counts_all = false;
  };
  explicit FlowTable(const Options& options);

  // kFull also where no memory is left.
  enum class Refused : uint8_t { kNo, kDenied, kFull };
  struct Answer {
    FlowState state = FlowState::kInvalid;
    Refused refused = Refused::kNo;  // of a new connection: it gets no entry
  };
  // Where the ends of a packet are looked for; the same for both directions.
  uint64_t hash(const FlowEnds& ends) const;
  // What a packet with that hash will read first, and, once that is there, what it reads next.
  void prefetch(uint64_t hash) const { __builtin_prefetch(&buckets_[hash & mask_]); }
  void prefetch_entry(uint64_t hash) const {
    const uint32_t i = buckets_[hash & mask_];
    if (i == kNone) return;
    const auto* entry = reinterpret_cast<const char*>(&at(i));
    __builtin_prefetch(entry);
    __builtin_prefetch(entry + 64);
  }
  // The packet's state, and what it changes. `now_ns` never goes back. `accepts` is asked where the packet would get an
  // entry; without one nothing is kept of it.
  template <typename Accepts>
  Answer take(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns, Accepts&& accepts) {
    if (now_ns >= due_ns_) expire(now_ns);
    Answer answer;
    if (!looks_up(packet, hash, bytes, now_ns, answer)) return answer;
    if (!accepts()) {
      answer.refused = Refused::kDenied;
    } else if (!insert(packet, hash, bytes, now_ns)) {
      answer.refused = Refused::kFull;
    }
    return answer;
  }

  uint32_t size() const { return size_; }
  struct Counts {
    uint64_t opened = 0, expired = 0, full = 0;
  };
  const Counts& counts() const { return counts_; }
  // Every entry, those that have been quiet longest first among the ones with one timeout.
  void each(const std::function<void(const FlowEntry&)>& f) const;
  // Called with each entry that ends, before it is gone.
  void on_end(std::function<void(const FlowEntry&)> f) { ended_ = std::move(f); }
  // Ends all of them.
  void clear();
  // Places of entries; those from `from` on, `count` at most, that hold one.
  uint32_t slots() const { return used_; }
  template <typename F>
  void each_of(uint32_t from, uint32_t count, F&& f) const {
    for (uint32_t i = from; i < used_ && i - from < count; ++i) {
      if (at(i).timeout != kFree) f(at(i));
    }
  }
  uint32_t capacity() const { return options_.capacity; }

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr unsigned kTimeouts = 10;
  static constexpr uint8_t kFree = 0xff;  // FlowEntry::timeout of a place without an entry
  static constexpr uint32_t kBlock = 4096;

  FlowEntry& at(uint32_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const FlowEntry& at(uint32_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  uint32_t find(const FlowEnds& ends, uint64_t hash) const;
  // True: a new connection that may get an entry.
  bool looks_up(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns, Answer& answer);
  bool insert(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns);
  void expire(uint64_t now_ns);
  void remove(uint32_t i);
  void link(uint32_t i, unsigned timeout, uint64_t now_ns);
  void unlink(uint32_t i);
  unsigned timeout_of(const FlowEntry& entry) const;
  void note_fragment(const TrackedPacket& packet, uint64_t now_ns);

  Options options_;
  uint64_t secret_ = 0;
  uint32_t size_ = 0;
  uint64_t due_ns_ = ~uint64_t{0};  // no entry ends before
  // One, until there are entries.
  uint64_t mask_ = 0;
  std::vector<uint32_t> buckets_ = {kNone};
  std::vector<std::unique_ptr<FlowEntry[]>> blocks_;
  std::vector<uint32_t> free_;
  uint32_t used_ = 0;  // entries that were used once
  std::array<uint64_t, kTimeouts> timeout_ns_{};
  std::array<uint32_t, kTimeouts> oldest_{}, newest_{};
  Counts counts_;
  std::function<void(const FlowEntry&)> ended_;

  // Packets of which the first fragment passed, and later ones may come.
  struct FragmentId {
    FlowEnds ends;
    uint32_t id = 0;
    friend bool operator==(const FragmentId&, const FragmentId&) = default;
  };
  struct FragmentHash {
    size_t operator()(const FragmentId& id) const;
  };
  static constexpr size_t kMostFragments = 4096;
  std::unordered_map<FragmentId, uint64_t, FragmentHash> fragments_;  // until when
  std::deque<std::pair<FragmentId, uint64_t>> fragment_ends_;
};

}  // namespace sluice
