#include "flows/flow_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "net/parse.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr uint64_t kSecond = FlowTimeouts::kSecond;
constexpr uint8_t kSyn = kTcpSyn, kAck = kTcpAck, kFin = kTcpFin, kRst = kTcpRst;

TrackedPacket read(const Bytes& frame) {
  Headers h;
  EXPECT_EQ(parse_ethernet(frame.data(), static_cast<uint32_t>(frame.size()), static_cast<uint32_t>(frame.size()), h),
            ParseStatus::kOk);
  return tracked_packet(h.key, frame.data(), h.l3_offset, h.l4_offset, static_cast<uint32_t>(frame.size()));
}

// One side of a table: what each packet is told.
class Tracker {
 public:
  explicit Tracker(const FlowTable::Options& options = {}) : table(options) {}
  FlowTable::Answer ask(const Bytes& frame, double seconds, bool accepted = true) {
    const TrackedPacket p = read(frame);
    return table.take(p, table.hash(p.ends), static_cast<uint32_t>(frame.size()), static_cast<uint64_t>(seconds * 1e9),
                      [&] { return accepted; });
  }
  FlowState state(const Bytes& frame, double seconds = 0) { return ask(frame, seconds).state; }
  FlowTable table;
};

Bytes tcp(bool reply, uint8_t flags) {
  return reply ? tcp4("192.0.2.7", "10.0.0.1").ports(80, 4000).tcp_flags(flags).build()
               : tcp4("10.0.0.1", "192.0.2.7").ports(4000, 80).tcp_flags(flags).build();
}
Bytes udp(bool reply) {
  return reply ? udp6("2001:db8::2", "2001:db8::1").ports(53, 999).build()
               : udp6("2001:db8::1", "2001:db8::2").ports(999, 53).build();
}
// What follows the link header of `frame`, as an error quotes it: `bytes` of it.
Bytes quote(const Bytes& frame, size_t bytes) {
  return Bytes(frame.begin() + 14, frame.begin() + 14 + static_cast<long>(std::min(bytes, frame.size() - 14)));
}

TEST(FlowTable, AConnectionIsNewUntilPacketsWentBothWays) {
  Tracker t;
  EXPECT_EQ(t.state(tcp(false, kSyn)), FlowState::kNew);
  EXPECT_EQ(t.state(tcp(false, kSyn)), FlowState::kNew);
  EXPECT_EQ(t.state(tcp(true, kSyn | kAck)), FlowState::kEstablished);
  EXPECT_EQ(t.state(tcp(false, kAck)), FlowState::kEstablished);
  EXPECT_EQ(t.state(udp(false)), FlowState::kNew);
  EXPECT_EQ(t.state(udp(false)), FlowState::kNew);
  EXPECT_EQ(t.state(udp(true)), FlowState::kEstablished);
  EXPECT_EQ(t.state(udp(false)), FlowState::kEstablished);
  EXPECT_EQ(t.table.size(), 2u);
}

TEST(FlowTable, TheFirstPacketOfADeniedConnectionLeavesNothing) {
  Tracker t;
  EXPECT_EQ(t.ask(udp(false), 0, false).refused, FlowTable::Refused::kDenied);
  EXPECT_EQ(t.table.size(), 0u);
  // So that an answer is the first packet of another one.
  EXPECT_EQ(t.state(udp(true)), FlowState::kNew);
}

TEST(FlowTable, SegmentsThatNoConnectionHasAreInvalid) {
  Tracker t;
  EXPECT_EQ(t.state(tcp(false, kSyn | kAck)), FlowState::kInvalid);
  EXPECT_EQ(t.state(tcp(false, kFin | kAck)), FlowState::kInvalid);
  EXPECT_EQ(t.state(tcp(false, kRst)), FlowState::kInvalid);
  EXPECT_EQ(t.state(tcp(false, kSyn)), FlowState::kNew);
  for (const uint8_t flags : {uint8_t{0}, uint8_t(kSyn | kFin), uint8_t(kSyn | kRst), kFin, uint8_t{63}})
    EXPECT_EQ(t.state(tcp(true, flags)), FlowState::kInvalid) << int{flags};
  EXPECT_EQ(t.table.size(), 1u);
}

TEST(FlowTable, AConnectionInTheMiddleIsPickedUpWhereThatIsAllowed) {
  Tracker picks, strict({.pick_up = false});
  EXPECT_EQ(picks.state(tcp(false, kAck)), FlowState::kNew);
  EXPECT_EQ(picks.state(tcp(true, kAck)), FlowState::kEstablished);
  EXPECT_EQ(strict.state(tcp(false, kAck)), FlowState::kInvalid);
  EXPECT_EQ(strict.state(tcp(true, kAck)), FlowState::kInvalid);
}

TEST(FlowTable, AnEndedConnectionBeginsAnewWithASyn) {
  Tracker t;
  const auto open = [&] {
    EXPECT_EQ(t.state(tcp(false, kSyn)), FlowState::kNew);
    EXPECT_EQ(t.state(tcp(true, kSyn | kAck)), FlowState::kEstablished);
    EXPECT_EQ(t.state(tcp(false, kAck)), FlowState::kEstablished);
  };
  open();
  EXPECT_EQ(t.state(tcp(false, kRst)), FlowState::kEstablished);
  open();
  EXPECT_EQ(t.state(tcp(false, kFin | kAck)), FlowState::kEstablished);
  EXPECT_EQ(t.state(tcp(true, kAck)), FlowState::kEstablished);
  EXPECT_EQ(t.state(tcp(true, kFin | kAck)), FlowState::kEstablished);
  EXPECT_EQ(t.state(tcp(false, kAck)), FlowState::kEstablished);
  open();
  EXPECT_EQ(t.table.size(), 1u);
}

TEST(FlowTable, ASynBehindTheOtherEndsRstMayBeAnOldOne) {
  Tracker t;
  t.state(tcp(false, kSyn));
  t.state(tcp(true, kSyn | kAck));
  t.state(tcp(true, kRst));
  EXPECT_EQ(t.state(tcp(false, kSyn)), FlowState::kEstablished);
  EXPECT_EQ(t.table.counts().opened, 1u);
}

TEST(FlowTable, ARefusedConnectionIsForgotten) {
  Tracker t;
  t.state(tcp(false, kSyn));
  EXPECT_EQ(t.state(tcp(true, kRst | kAck)), FlowState::kEstablished);
  EXPECT_EQ(t.table.size(), 0u);
}

TEST(FlowTable, EntriesEndBehindTheirTimeouts) {
  Tracker t;
  EXPECT_EQ(t.state(udp(false), 0), FlowState::kNew);
  EXPECT_EQ(t.state(udp(false), 29.9), FlowState::kNew);
  EXPECT_EQ(t.state(udp(true), 59.8), FlowState::kEstablished);
  EXPECT_EQ(t.state(udp(true), 179.7), FlowState::kEstablished);
  EXPECT_EQ(t.state(udp(true), 299.7), FlowState::kNew);  // exactly the timeout: it has ended
  EXPECT_EQ(t.table.counts().expired, 1u);
}

TEST(FlowTable, ErrorsAboutAConnectionAreRelated) {
  Tracker t;
  const Bytes sent = tcp(false, kSyn);
  const auto error = [](const Bytes& quoted, const char* to, uint8_t type) {
    return icmp4("198.51.100.1", to).icmp(type, 1).payload(quoted).build();
  };
  EXPECT_EQ(t.state(error(quote(sent, 28), "10.0.0.1", 3)), FlowState::kInvalid);
  t.state(sent);
  for (const size_t bytes : {size_t{28}, size_t{40}})
    EXPECT_EQ(t.state(error(quote(sent, bytes), "10.0.0.1", 11)), FlowState::kRelated) << bytes;
  EXPECT_EQ(t.state(error(quote(sent, 28), "10.0.0.9", 3)), FlowState::kInvalid);  // to another than who sent it
  for (size_t bytes = 0; bytes < 24; ++bytes)
    EXPECT_EQ(t.state(error(quote(sent, bytes), "10.0.0.1", 3)), FlowState::kInvalid) << bytes;
  EXPECT_EQ(t.state(error(quote(tcp(true, kSyn), 28), "192.0.2.7", 3)), FlowState::kRelated);
  EXPECT_EQ(t.state(udp(false)), FlowState::kNew);
  EXPECT_EQ(t.state(icmp6("2001:db8::9", "2001:db8::1").icmp(3, 0).payload(quote(udp(false), 48)).build()),
            FlowState::kRelated);
}

TEST(FlowTable, QueriesAreAnsweredByTheirIdentifier) {
  Tracker t;
  const auto echo = [](bool reply, uint16_t id) {
    return (reply ? icmp4("192.0.2.7", "10.0.0.1") : icmp4("10.0.0.1", "192.0.2.7"))
        .icmp(reply ? 0 : 8, 0, uint32_t{id} << 16 | 1)
        .build();
  };
  EXPECT_EQ(t.state(echo(true, 7)), FlowState::kInvalid);
  EXPECT_EQ(t.state(echo(false, 7)), FlowState::kNew);
  EXPECT_EQ(t.state(echo(true, 8)), FlowState::kInvalid);
  EXPECT_EQ(t.state(echo(true, 7)), FlowState::kEstablished);
  EXPECT_EQ(t.state(echo(false, 7)), FlowState::kEstablished);
  // The other end may ask by the same identifier.
  EXPECT_EQ(t.state(icmp4("192.0.2.7", "10.0.0.1").icmp(8, 0, 7u << 16).build()), FlowState::kNew);
  EXPECT_EQ(t.state(icmp4("10.0.0.1", "192.0.2.7").icmp(0, 0, 7u << 16).build()), FlowState::kEstablished);
  EXPECT_EQ(t.state(icmp4("10.0.0.1", "192.0.2.7").icmp(9, 0).build()), FlowState::kInvalid);
}

TEST(FlowTable, LaterFragmentsAreRelatedToTheirFirst) {
  Tracker t;
  const auto part = [](uint32_t offset, bool more, uint16_t id) {
    return udp4("10.0.0.1", "192.0.2.7").ports(5, 6).fragment(offset, more, id).payload(64).build();
  };
  EXPECT_EQ(t.state(part(64, false, 1), 0), FlowState::kInvalid);
  EXPECT_EQ(t.state(part(0, true, 1), 0), FlowState::kNew);
  EXPECT_EQ(t.state(part(64, false, 1), 1), FlowState::kRelated);
  EXPECT_EQ(t.state(part(64, false, 2), 1), FlowState::kInvalid);
  EXPECT_EQ(t.state(part(128, false, 1), 31), FlowState::kInvalid);
}

TEST(FlowTable, AFullTableKeepsWhatIsThere) {
  Tracker t({.capacity = 3});
  const auto from = [](unsigned port) {
    return udp4("10.0.0.1", "192.0.2.7").ports(static_cast<uint16_t>(port), 9).build();
  };
  for (unsigned port = 1; port <= 3; ++port) EXPECT_EQ(t.ask(from(port), 0).refused, FlowTable::Refused::kNo);
  EXPECT_EQ(t.ask(from(4), 1).refused, FlowTable::Refused::kFull);
  EXPECT_EQ(t.ask(from(1), 20).refused, FlowTable::Refused::kNo);
  EXPECT_EQ(t.ask(from(4), 30).refused, FlowTable::Refused::kNo);  // 2 and 3 have ended
  EXPECT_EQ(t.table.size(), 2u);
  EXPECT_EQ(t.table.counts().full, 1u);
}

TEST(FlowTable, ForReportsEveryPacketOfAConnectionCounts) {
  Tracker t({.counts_all = true});
  t.state(tcp(true, kFin | kAck));
  t.state(tcp(false, kRst));
  t.state(tcp(false, 0));
  ASSERT_EQ(t.table.size(), 1u);
  t.table.each_of(0, t.table.slots(), [](const FlowEntry& e, const FlowEntry*) {
    EXPECT_EQ(e.packets[0], 1u);
    EXPECT_EQ(e.packets[1], 2u);
    EXPECT_EQ(e.tcp, TcpState::kClosed);
  });
}

TEST(FlowTable, AnyFrameOfAnyLengthIsReadWithinItsBytes) {
  std::mt19937_64 random(11);
  const auto below = [&](uint64_t n) { return random() % n; };
  const Bytes four = tcp(false, kSyn), six = udp(false);
  const std::vector<Bytes> seeds = {
      four,
      six,
      icmp4("10.0.0.1", "192.0.2.7").build(),
      icmp4("198.51.100.1", "10.0.0.1").icmp(3, 1).payload(quote(four, 40)).build(),
      icmp4("198.51.100.1", "10.0.0.1").icmp(11, 0).payload(quote(icmp4("10.0.0.1", "192.0.2.7").build(), 28)).build(),
      icmp6("2001:db8::9", "2001:db8::1").icmp(1, 0).payload(quote(six, 60)).build(),
      udp6("2001:db8::1", "2001:db8::2").hop_by_hop().fragment(0, true).payload(16).build(),
      udp6("2001:db8::1", "2001:db8::2").destination_options().authentication().fragment(8, false).payload(16).build(),
      udp4("10.0.0.1", "192.0.2.7").fragment(64, false).payload(16).build()};
  Tracker t({.counts_all = true});
  size_t parsed = 0;
  for (int i = 0; i < 30'000; ++i) {
    Bytes frame = seeds[below(seeds.size())];
    for (uint64_t n = below(4); n > 0; --n) frame[14 + below(frame.size() - 14)] = static_cast<uint8_t>(random());
    const auto wire = static_cast<uint32_t>(frame.size());
    const auto captured = static_cast<uint32_t>(below(3) == 0 ? 14 + below(frame.size() - 13) : frame.size());
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[captured]);  // so that a step outside is seen
    std::copy_n(frame.begin(), captured, exact.get());
    Headers h;
    if (parse_ethernet(exact.get(), captured, wire, h, false) != ParseStatus::kOk) continue;
    ++parsed;
    const TrackedPacket p = tracked_packet(h.key, exact.get(), h.l3_offset, h.l4_offset, captured);
    t.table.take(p, t.table.hash(p.ends), wire, 1, [] { return true; });
  }
  EXPECT_GT(parsed, 10'000u);
}

// The same by a list that is searched from its beginning, where each entry is asked for its end before each packet.
class PlainTable {
 public:
  explicit PlainTable(size_t capacity) : capacity_(capacity) {}
  FlowTable::Answer take(const TrackedPacket& p, uint64_t now, bool accepted) {
    std::erase_if(entries_, [&](const Entry& e) { return e.last + timeout(e) <= now; });
    FlowTable::Answer answer;
    if (p.kind == TrackedPacket::Kind::kInvalid) return answer;
    auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.ends == p.ends; });
    if (p.kind == TrackedPacket::Kind::kError) {
      if (at != entries_.end()) answer.state = FlowState::kRelated;
      return answer;
    }
    if (at != entries_.end()) {
      const bool reply = at->high != p.from_high;
      bool moves = true;
      if (p.kind == TrackedPacket::Kind::kTcp) {
        const TcpStep step = tcp_step(at->tcp, p.segment, reply);
        if (step.kind == TcpStep::Kind::kInvalid) return answer;
        const bool rst = p.segment == TcpSegment::kRst;
        const int side = reply ? 2 : 1;
        if (step.kind == TcpStep::Kind::kReopens && (at->closing || at->last_rst == side)) {
          entries_.erase(at);
          return open(p, now, accepted);
        }
        if (rst && !at->replied) {
          entries_.erase(at);
          answer.state = reply ? FlowState::kEstablished : FlowState::kNew;
          return answer;
        }
        moves = step.kind == TcpStep::Kind::kMoves;
        if (moves) at->tcp = step.next;
        if (moves && step.next == TcpState::kFinWait) at->closing = true;
        at->last_rst = rst ? side : 0;
      }
      at->replied = at->replied || reply;
      if (moves) at->last = now;
      // A timeout is that of the state which the last packet that counts has left.
      if (moves) at->timed_as_replied = at->replied;
      answer.state = at->replied ? FlowState::kEstablished : FlowState::kNew;
      return answer;
    }
    return open(p, now, accepted);
  }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    FlowEnds ends;
    bool high = false, replied = false, timed_as_replied = false, closing = false;
    int last_rst = 0;
    TcpState tcp = TcpState::kSynSent;
    uint64_t last = 0;
  };
  FlowTable::Answer open(const TrackedPacket& p, uint64_t now, bool accepted) {
    FlowTable::Answer answer;
    if (p.kind == TrackedPacket::Kind::kReply) return answer;
    const bool begins = p.segment == TcpSegment::kSyn || p.segment == TcpSegment::kAck;
    if (p.kind == TrackedPacket::Kind::kTcp && !begins) return answer;
    answer.state = FlowState::kNew;
    answer.refused = !accepted                      ? FlowTable::Refused::kDenied
                     : entries_.size() == capacity_ ? FlowTable::Refused::kFull
                                                    : FlowTable::Refused::kNo;
    if (answer.refused != FlowTable::Refused::kNo) return answer;
    Entry e{.ends = p.ends, .high = p.from_high, .last = now};
    if (p.segment == TcpSegment::kAck) e.tcp = TcpState::kEstablished;
    entries_.push_back(e);
    return answer;
  }
  static uint64_t timeout(const Entry& e) {
    const FlowTimeouts t;
    if (e.ends.query != 0) return t.icmp;
    if (e.ends.protocol == 17) return e.timed_as_replied ? t.udp : t.udp_single;
    if (e.ends.protocol != 6) return t.other;
    switch (e.tcp) {
      case TcpState::kSynReceived:
      case TcpState::kCloseWait:
        return t.tcp_received;
      case TcpState::kEstablished:
        return t.tcp_established;
      case TcpState::kFinWait:
      case TcpState::kTimeWait:
        return t.tcp_closing;
      case TcpState::kLastAck:
        return t.tcp_last_ack;
      case TcpState::kClosed:
        return t.tcp_closed;
      default:
        return t.tcp_opening;
    }
  }
  size_t capacity_;
  std::vector<Entry> entries_;
};

TEST(FlowTable, RandomPacketsAreToldWhatAPlainListTells) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    const auto capacity = static_cast<uint32_t>(1 + below(12));
    Tracker t({.capacity = capacity});
    PlainTable plain(capacity);
    uint64_t now = 0;
    for (unsigned i = 0; i < 3000; ++i) {
      now += below(4) == 0 ? below(70 * kSecond) : below(2 * kSecond);
      const std::string a = "10.0.0." + std::to_string(1 + below(2)), b = "192.0.2." + std::to_string(1 + below(2));
      const bool reply = below(2) != 0;
      const auto port = static_cast<uint16_t>(1 + below(3));
      Bytes frame;
      const auto draw = [&](bool back) {
        const std::string &from = back ? b : a, &to = back ? a : b;
        const uint16_t source = back ? 80 : port, destination = back ? port : 80;
        constexpr uint8_t kFlags[] = {kSyn, kSyn | kAck, kAck, kAck, kFin | kAck, kRst, kSyn | kFin};
        switch (below(3)) {
          case 0:
            return tcp4(from, to).ports(source, destination).tcp_flags(kFlags[below(std::size(kFlags))]).build();
          case 1:
            return udp4(from, to).ports(source, destination).build();
          default:
            return icmp4(from, to).icmp(below(2) != 0 ? 8 : 0, 0, uint32_t{port} << 16).build();
        }
      };
      frame = draw(reply);
      if (below(8) == 0) frame = icmp4("198.51.100.1", reply ? b : a).icmp(3, 3).payload(quote(frame, 28)).build();
      const bool accepted = below(5) != 0;
      const TrackedPacket p = read(frame);
      const auto got = t.table.take(p, t.table.hash(p.ends), 100, now, [&] { return accepted; });
      const auto want = plain.take(p, now, accepted);
      ASSERT_EQ(got.state, want.state) << seed << ' ' << i;
      ASSERT_EQ(got.refused, want.refused) << seed << ' ' << i;
      ASSERT_EQ(t.table.size(), plain.size()) << seed << ' ' << i;
    }
    size_t seen = 0;
    t.table.each_of(0, t.table.slots(), [&](const FlowEntry&, const FlowEntry*) { ++seen; });
    EXPECT_EQ(seen, plain.size());
    t.table.clear();
    EXPECT_EQ(t.table.size(), 0u);
  }
}

}  // namespace
}  // namespace sluice
