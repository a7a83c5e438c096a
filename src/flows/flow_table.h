// host only
// The connections that packets belong to, with a bound and with time. One thread at a time; what comes of a packet
// depends on the packets before it and their times alone, never on where entries lie.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <type_traits>
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
  uint8_t timeout = 0;  // which of FlowTable's
  // Of a translated connection each direction has ends, and an entry, of its own, found by packets of that direction
  // alone. That of replies counts nothing, and is in no queue.
  enum class Way : uint8_t { kBoth, kForward, kReply } way = Way::kBoth;
  uint32_t other = 0;             // the entry of the other direction
  uint32_t mapping = ~0u;         // of its translated port (nat.h)
  uint32_t next = 0;              // in its bucket
  uint32_t older = 0, newer = 0;  // of the entries with its timeout
};

class FlowTable {
 public:
  static constexpr uint32_t kNone = ~0u;
  struct Translated {
    bool any = false;  // else the rest says nothing
    bool from_high = false;
    FlowEnds ends;
  };
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
  enum class Refused : uint8_t { kNo, kDenied, kFull, kNoPort };
  struct Answer {
    FlowState state = FlowState::kInvalid;
    Refused refused = Refused::kNo;  // of a new connection: it gets no entry
    // Of a packet of a translated connection, or one that is related to it: what its addresses and ports become, from
    // the end that is said. Ports of later fragments are those of the first.
    Translated translated;
  };
  // What is to become of a connection that begins.
  struct Opening {
    Refused refused = Refused::kNo;
    bool translated = false;
    FlowEnds replies;        // translated: those of its replies
    bool from_high = false;  // and whether replies are from the higher one
    uint32_t mapping = ~0u;
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
  // The packet's state, and what it changes. `now_ns` never goes back. `open` is asked where the packet would get an
  // entry, and gives an Opening, or false for one that is denied; without an entry nothing is kept of it.
  template <typename Open>
  Answer take(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns, Open&& open) {
    if (now_ns >= due_ns_) expire(now_ns);
    Answer answer;
    if (!looks_up(packet, hash, bytes, now_ns, answer)) return answer;
    Opening opening;
    if constexpr (std::is_same_v<decltype(open()), bool>) {
      if (!open()) opening.refused = Refused::kDenied;
    } else {
      opening = open();
    }
    answer.refused = opening.refused;
    if (opening.refused == Refused::kNo) insert(packet, hash, bytes, now_ns, opening, answer);
    return answer;
  }
  // Whether packets from that end belong to a connection.
  bool has(const FlowEnds& ends, bool from_high) const { return find(ends, hash(ends), from_high) != kNone; }

  uint32_t size() const { return size_; }
  struct Counts {
    uint64_t opened = 0, expired = 0, full = 0;
  };
  const Counts& counts() const { return counts_; }
  // Called with each entry that ends, before it is gone.
  void on_end(std::function<void(const FlowEntry&)> f) { ended_ = std::move(f); }
  // Ends all of them.
  void clear();
  // Places of entries; those from `from` on, `count` at most, that hold one: f(entry, that of its replies or nullptr).
  uint32_t slots() const { return used_; }
  template <typename F>
  void each_of(uint32_t from, uint32_t count, F&& f) const {
    for (uint32_t i = from; i < used_ && i - from < count; ++i) {
      if (at(i).timeout != kFree && at(i).way != FlowEntry::Way::kReply)
        f(at(i), at(i).way == FlowEntry::Way::kBoth ? nullptr : &at(at(i).other));
    }
  }
  uint32_t capacity() const { return options_.capacity; }

 private:
  static constexpr unsigned kTimeouts = 10;
  static constexpr uint8_t kFree = 0xff;  // FlowEntry::timeout of a place without an entry
  static constexpr uint32_t kBlock = 4096;

  FlowEntry& at(uint32_t i) { return blocks_[i / kBlock][i % kBlock]; }
  const FlowEntry& at(uint32_t i) const { return blocks_[i / kBlock][i % kBlock]; }
  uint32_t find(const FlowEnds& ends, uint64_t hash, bool from_high) const;
  // True: a new connection that may get an entry.
  bool looks_up(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns, Answer& answer);
  void insert(const TrackedPacket& packet, uint64_t hash, uint32_t bytes, uint64_t now_ns, const Opening& opening,
              Answer& answer);
  // A place for an entry; kNone: no memory is left.
  uint32_t take_place();
  void put(uint32_t i, uint64_t hash);
  void take_out(uint32_t i);
  void expire(uint64_t now_ns);
  void remove(uint32_t i);
  void link(uint32_t i, unsigned timeout, uint64_t now_ns);
  void unlink(uint32_t i);
  unsigned timeout_of(const FlowEntry& entry) const;
  void note_fragment(const TrackedPacket& packet, const Translated& translated, uint64_t now_ns);
  Translated translated(const FlowEntry& entry, bool reply) const;

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
    bool from_high = false;
    friend bool operator==(const FragmentId&, const FragmentId&) = default;
  };
  struct FragmentHash {
    size_t operator()(const FragmentId& id) const;
  };
  static constexpr size_t kMostFragments = 4096;
  struct Fragment {
    uint64_t until_ns = 0;
    Translated translated;
  };
  std::unordered_map<FragmentId, Fragment, FragmentHash> fragments_;
  std::deque<std::pair<FragmentId, uint64_t>> fragment_ends_;
};

}  // namespace sluice
