// A port with classes against a slow model of it, packet by packet.
#include "qos/port_qos.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "net/packet_builder.h"
#include "qos/fraction.h"

namespace sluice {
namespace {

struct Coming {
  uint64_t at_ns = 0;
  unsigned qos_class = 0;
  uint32_t bytes = 0;
  uint32_t id = 0;
};
struct Departed {
  uint32_t id;
  uint64_t at_ns;
  bool operator==(const Departed&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Departed& d) {
  return out << d.id << "@" << d.at_ns;
}

// A byte takes so many nanoseconds, so that times are whole.
uint64_t bps_of(uint64_t ns_per_byte) {
  return ns_per_byte == 0 ? 0 : 8'000'000'000 / ns_per_byte;
}
struct SlowRate {
  uint64_t ns_per_byte = 0;  // 0: unlimited
  uint64_t burst_bytes = 0;
  uint64_t paid_until = 0;
  uint64_t departure(uint64_t now) const {
    const uint64_t burst = burst_bytes * ns_per_byte;
    return ns_per_byte == 0 || paid_until <= burst ? now : std::max(now, paid_until - burst);
  }
  void charge(uint64_t now, uint32_t bytes) { paid_until = std::max(paid_until, now) + bytes * ns_per_byte; }
};

// What the port is to do, written with lists. Packets of class c have codepoint c.
class SlowPort {
 public:
  SlowPort(const QosModel& model, uint64_t now) : model_(model), now_(now) {
    const auto rate = [&](uint64_t bps, uint32_t burst) {
      return SlowRate{bps == 0 ? 0 : 8'000'000'000 / bps, burst, now};
    };
    port_ = rate(model.port_rate_bps, model.port_burst_bytes);
    // Bursts are there from the start: what was paid for lies behind them.
    port_.paid_until = now;
    uint64_t seed = 1;
    for (const EgressClass& e : model.egress()) red_.emplace_back(e.red, seed++);
    for (const QosClass& c : model.classes) {
      rates_.push_back(rate(c.rate_bps, c.burst_bytes));
      policers_.push_back(PolicerState::full(c.police, now));
    }
    queues_.resize(model.classes.size());
    deficit_.resize(model.classes.size());
    waiting_of_.resize(model.classes.size());
  }

  void until(uint64_t t) {
    for (;;) {
      size_t queued = 0;
      for (const auto& q : queues_) queued += q.size();
      const uint64_t ready = queued == 0 ? ~uint64_t{0} : port_.departure(now_);
      const uint64_t released = waiting_.empty() ? ~uint64_t{0} : waiting_.begin()->first;
      if (std::min(ready, released) > t || (queued == 0 && waiting_.empty())) return;
      now_ = std::max(now_, std::min(ready, released));
      if (released <= ready) {
        const Coming p = waiting_.begin()->second;
        waiting_.erase(waiting_.begin());
        --waiting_of_[p.qos_class];
        enqueue(p);
      } else {
        send();
      }
    }
  }
  void come(const Coming& p) {
    until(p.at_ns);
    now_ = std::max(now_, p.at_ns);
    const QosClass& c = model_.classes[p.qos_class];
    if (c.policed && police(c.police, policers_[p.qos_class], now_, p.bytes - 14) == Color::kRed && c.drops_red()) {
      drops[p.id] = DropReason::kPoliced;
      return;
    }
    if (waiting_of_[p.qos_class] >= c.limit_pkts) {
      drops[p.id] = DropReason::kShaperFull;
      return;
    }
    SlowRate& rate = rates_[p.qos_class];
    const uint64_t at = rate.departure(now_);
    rate.charge(now_, p.bytes);
    if (at > now_) {
      waiting_.emplace(at, p);
      ++waiting_of_[p.qos_class];
    } else {
      enqueue(p);
    }
  }
  std::vector<Departed> departed;
  std::map<uint32_t, DropReason> drops;

 private:
  void enqueue(const Coming& p) {
    auto& q = queues_[p.qos_class];
    const bool early = red_[p.qos_class].drops(now_, static_cast<uint32_t>(q.size()));
    if (q.size() >= model_.classes[p.qos_class].limit_pkts) {
      drops[p.id] = DropReason::kQueueFull;
    } else if (early) {
      drops[p.id] = DropReason::kEarlyDrop;
    } else {
      q.push_back(p);
      if (q.size() == 1 && !model_.classes[p.qos_class].strict) active_.push_back(p.qos_class);
    }
  }
  void send() {
    unsigned c = 0;
    while (c < queues_.size() && (!model_.classes[c].strict || queues_[c].empty())) ++c;
    if (c == queues_.size()) {
      // The first of the list is served while its deficit lasts; the others get theirs when their turn comes.
      for (;;) {
        c = active_.front();
        if (!served_) deficit_[c] += model_.classes[c].weight * QosModel::kQuantumBytes;
        served_ = true;
        if (queues_[c].front().bytes <= deficit_[c]) break;
        active_.pop_front();
        active_.push_back(c);
        served_ = false;
      }
      deficit_[c] -= queues_[c].front().bytes;
    }
    const Coming p = queues_[c].front();
    queues_[c].pop_front();
    if (queues_[c].empty()) {
      red_[c].emptied(now_);
      if (!model_.classes[c].strict) {
        deficit_[c] = 0;
        active_.pop_front();
        served_ = false;
      }
    }
    departed.push_back({p.id, now_});
    port_.charge(now_, p.bytes);
  }

  QosModel model_;
  uint64_t now_;
  SlowRate port_;
  std::vector<SlowRate> rates_;
  std::vector<PolicerState> policers_;
  std::vector<Red> red_;
  std::multimap<uint64_t, Coming> waiting_;
  std::vector<uint32_t> waiting_of_;
  std::vector<std::deque<Coming>> queues_;
  std::vector<uint64_t> deficit_;
  std::deque<unsigned> active_;
  bool served_ = false;
};

// Rates of 8 Gbit/s and 2^-k of it, so that a byte takes 2^k ns.
rc::Gen<uint64_t> any_ns_per_byte() {
  return rc::gen::element<uint64_t>(0, 0, 1, 2, 8, 64, 1024);
}
QosModel any_model() {
  QosModel model;
  const unsigned n = *rc::gen::inRange(1u, 6u);
  for (unsigned i = 0; i < n; ++i) {
    QosClass c;
    c.name = std::string(1, static_cast<char>('a' + i));
    c.strict = *rc::gen::weightedElement<bool>({{1, true}, {3, false}});
    c.weight = *rc::gen::inRange(1u, 4u);
    c.rate_bps = bps_of(*any_ns_per_byte());
    c.burst_bytes = *rc::gen::element(0u, 100u, 3000u);
    c.limit_pkts = *rc::gen::inRange(1u, 12u);
    if (*rc::gen::inRange(0, 4) == 0) c.red = {1, 6, 1, 500'000, 10'000};
    if (*rc::gen::inRange(0, 4) == 0) {
      c.policed = true;
      c.police.committed_bps = 80'000'000;
      c.police.committed_burst_bytes = 3000;
    }
    model.classes.push_back(c);
    model.map.set(i, i);
  }
  model.port_rate_bps = bps_of(*any_ns_per_byte());
  model.port_burst_bytes = *rc::gen::element(0u, 2000u);
  return model;
}

struct Frame {
  explicit Frame(unsigned dscp) : bytes(udp4("10.0.0.1", "192.0.2.7").dscp(static_cast<uint8_t>(dscp)).build()) {}
  std::vector<uint8_t> bytes;
  QosPacket view(uint32_t length) {
    QosPacket p;
    p.ip = bytes.data() + 14;
    p.family = 4;
    p.bytes = length;
    p.ip_bytes = length - 14;
    return p;
  }
};

RC_GTEST_PROP(PortQos, SendsAndDropsWhatTheSlowModelDoes, ()) {
  const uint64_t start = *rc::gen::element<uint64_t>(0, 1'700'000'000'000'000'000);
  const QosModel model = any_model();
  PortQos<uint32_t> port(model, start);
  SlowPort oracle(model, start);
  std::vector<Frame> frames;
  for (unsigned c = 0; c < model.classes.size(); ++c) frames.emplace_back(c);
  std::vector<Departed> departed;
  std::map<uint32_t, DropReason> drops;
  const auto drop = [&](uint32_t&& id, DropReason why) { drops[id] = why; };
  const auto until = [&](uint64_t t) {
    uint32_t id = 0;
    uint64_t at = 0;
    while (port.depart(t, id, at, drop)) departed.push_back({id, at});
  };
  const auto steps = *rc::gen::scale(
      5.0, rc::gen::container<std::vector<std::tuple<uint64_t, unsigned, uint32_t, bool>>>(
               rc::gen::tuple(rc::gen::element<uint64_t>(0, 0, 1, 60, 1000, 50'000), rc::gen::inRange(0u, 5u),
                              rc::gen::inRange<uint32_t>(60, 1515), rc::gen::arbitrary<bool>())));
  uint64_t now = start;
  uint32_t next_id = 0;
  for (const auto& [wait, wanted, bytes, passes] : steps) {
    now += wait;
    const unsigned c = wanted % static_cast<unsigned>(model.classes.size());
    uint32_t id = ++next_id;
    oracle.come({now, c, bytes, id});
    until(now);
    DropReason why = DropReason::kNone;
    if (passes) {
      bool goes = false;
      why = port.pass(now, frames[c].view(bytes), goes, [&] { return uint32_t{id}; });
      if (goes) departed.push_back({id, now});
    } else {
      why = port.arrive(now, frames[c].view(bytes), std::move(id), drop);
    }
    if (why != DropReason::kNone) drops[id] = why;
  }
  until(~uint64_t{0});
  oracle.until(~uint64_t{0});
  RC_ASSERT(departed == oracle.departed);
  RC_ASSERT(drops == oracle.drops);
  RC_ASSERT(departed.size() + drops.size() == steps.size());
  RC_ASSERT(port.held() == 0u);
  RC_ASSERT(port.next_ns() == PortQos<uint32_t>::kNever);
  uint64_t in = 0;
  for (unsigned c = 0; c < port.classes(); ++c) {
    const QosCounters n = port.counters(c);
    RC_ASSERT(n.in_pkts == n.out_pkts + n.drops());
    RC_ASSERT(port.latency_ns(c).count() == n.out_pkts);
    in += n.in_pkts;
  }
  RC_ASSERT(in == steps.size());
}

// Where classes overtake each other each has its own clock: one that comes late loses nothing to its rate for that, and
// its policer counts the time that passed between its packets.
TEST(PortQos, AClassThatComesLateHasItsOwnTime) {
  QosModel model = QosModel::three_priorities();
  for (QosClass& c : model.classes) {
    c.rate_bps = 8'000'000;  // 1 us a byte
    c.limit_pkts = 3;
  }
  model.classes[2].policed = true;
  model.classes[2].police.committed_bps = 80'000'000;
  model.classes[2].police.committed_burst_bytes = 1000;
  PortQos<int> port(model, 0);
  Frame first(46), last(0);
  const auto pass = [&](Frame& frame, uint64_t came_ns) {
    // The port has seen what came later.
    int item = 0;
    uint64_t at = 0;
    while (port.depart(100'000'000, item, at, [](int&&, DropReason) { FAIL(); })) {
    }
    QosPacket p = frame.view(1000);
    p.came_ns = came_ns;
    bool goes = false;
    EXPECT_EQ(port.pass(100'000'000, p, goes, [] { return 1; }), DropReason::kNone) << came_ns;
    return goes;
  };
  EXPECT_TRUE(pass(first, 100'000'000));
  for (uint64_t i = 0; i < 50; ++i) EXPECT_TRUE(pass(last, i * 2'000'000)) << i;
  // Faster than its rate, in its own time: at once, as that is over.
  EXPECT_TRUE(pass(last, 98'100'000));
  EXPECT_EQ(port.counters(2).drops(), 0u);
}

// Models that only count have no queue: everything goes when it comes.
TEST(PortQos, WithoutRatesEverythingGoesAtOnce) {
  QosModel model = QosModel::three_priorities();
  model.classes[0].limit_pkts = 1;
  model.classes[1].red = {0, 1, 0, 1'000'000, 1};
  EXPECT_TRUE(model.counts_only());
  PortQos<int> port(model, 5);
  Frame frame(46), assured(10);
  for (uint64_t i = 0; i < 100; ++i) {
    bool goes = false;
    EXPECT_EQ(port.pass(5, (i % 2 != 0 ? frame : assured).view(1000), goes, [] { return 1; }), DropReason::kNone);
    EXPECT_TRUE(goes);
  }
  EXPECT_EQ(port.counters(0).out_pkts, 50u);
  EXPECT_EQ(port.counters(1).out_bytes, 50'000u);
  model.port_rate_bps = 1000;
  EXPECT_FALSE(model.counts_only());
}

TEST(PortQos, RedsIdleTimeFollowsTheLowerRate) {
  QosModel model = QosModel::three_priorities();
  model.classes[0].red = {5, 15, 9, 20'000, 10'000};
  EXPECT_EQ(model.egress()[0].red.idle_packet_ns, 10'000u);
  model.port_rate_bps = 1'000'000'000;
  EXPECT_EQ(model.egress()[0].red.idle_packet_ns, 8'000u);
  model.classes[0].rate_bps = 8'000'000;
  EXPECT_EQ(model.egress()[0].red.idle_packet_ns, 1'000'000u);
}

TEST(PortQos, MarksMakeClassesAndRemarksKeepTheChecksumRight) {
  QosModel model = QosModel::three_priorities();
  QosMarks marks;
  marks.low = 7;
  marks.high = 9;
  marks.qos_class = 1;
  model.marks.push_back(marks);
  model.classes[1].remark[0] = 18;
  PortQos<int> port(model, 0);
  Frame frame(0);
  QosPacket p = frame.view(100);
  p.mark = 8;
  bool goes = false;
  EXPECT_EQ(port.pass(0, p, goes, [] { return 1; }), DropReason::kNone);
  EXPECT_EQ(port.counters(1).out_pkts, 1u);
  EXPECT_EQ(frame.bytes, Frame(18).bytes);
}

// -- against exact fractions -----------------------------------------------------------------------------------------

// A rate in fractions of nanoseconds since the start: until when it is spoken for.
struct ExactRate {
  testing::Fraction ns_per_byte = 0;  // 0: unlimited
  uint64_t burst_bytes = 0;
  testing::Fraction busy = 0;

  bool unlimited() const { return ns_per_byte == testing::Fraction(0); }
  testing::Fraction departure(const testing::Fraction& now) const {
    return unlimited() ? now : testing::Fraction::most(now, busy - testing::Fraction(burst_bytes) * ns_per_byte);
  }
  void charge(const testing::Fraction& now, uint32_t bytes) {
    busy = testing::Fraction::most(busy, now) + testing::Fraction(bytes) * ns_per_byte;
  }
  // What is spoken for in time stays so; what is left of the burst is kept in whole bytes.
  void change(uint64_t bps, uint64_t burst, uint64_t now_ns) {
    const testing::Fraction now(now_ns), to = bps == 0 ? testing::Fraction(0) : testing::Fraction(8'000'000'000, bps);
    const testing::Fraction next = departure(now);
    if (!unlimited() && now < next) {
      busy = next + testing::Fraction(burst) * to;
    } else {
      uint64_t used = 0;  // of the new burst
      if (!unlimited()) {
        const uint64_t spent = (testing::Fraction::most(busy - now, 0) / ns_per_byte).rounded_up();
        const uint64_t credit = spent < burst_bytes ? burst_bytes - spent : 0;
        used = credit < burst ? burst - credit : 0;
      }
      busy = now + testing::Fraction(used) * to;
    }
    ns_per_byte = to;
    burst_bytes = burst;
  }
};

// A port of any rate, which sends what waits without a pause: exact fractions say when, and it is never early and at
// most a nanosecond late, however many packets it has sent.
RC_GTEST_PROP(PortQos, ThePortKeepsItsRate, ()) {
  using Wide = unsigned __int128;
  const auto decade = *rc::gen::inRange(4, 12);
  uint64_t bps = 1;
  for (int i = 0; i < decade; ++i) bps *= 10;
  bps = std::min(bps + *rc::gen::inRange<uint64_t>(0, 9 * bps), DepartureRate::kMostBps);
  QosModel model;
  model.classes.resize(1);
  model.classes[0].name = "all";
  model.classes[0].limit_pkts = 100'000;
  model.port_rate_bps = bps;
  model.port_burst_bytes = *rc::gen::element(0u, 0u, 1u, 100u, 3000u);
  const Wide burst = Wide{model.port_burst_bytes} * 8'000'000'000u;
  PortQos<uint32_t> port(model, 0);
  Frame frame(0);
  const uint64_t mean_ns = 800 * uint64_t{8'000'000'000} / bps + 1;
  std::vector<uint64_t> got, want;
  const auto until = [&](uint64_t t) {
    uint32_t id = 0;
    uint64_t at = 0;
    while (port.depart(t, id, at, [](uint32_t&&, DropReason) { RC_FAIL("a drop"); })) got.push_back(at);
  };
  Wide paid = 0;  // in parts of a nanosecond, of which there are `bps`
  uint64_t now = 0, state = *rc::gen::arbitrary<uint64_t>();
  for (uint32_t i = 0; i < 500; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t drawn = state >> 33;
    now += drawn % 4 == 0 ? drawn / 4 % (2 * mean_ns) : 0;
    if (drawn % 97 == 0) now += 40 * mean_ns;
    const auto bytes = static_cast<uint32_t>(60 + drawn / 7 % 1455);
    const Wide free = paid > burst ? paid - burst : 0;
    const Wide begin = std::max(Wide{now} * bps, free);
    want.push_back(static_cast<uint64_t>((begin + bps - 1) / bps));
    paid = std::max(paid, begin) + Wide{bytes} * 8'000'000'000u;
    until(now);
    bool goes = false;
    if (drawn % 2 == 0) {
      RC_ASSERT(port.pass(now, frame.view(bytes), goes, [&] { return uint32_t{i}; }) == DropReason::kNone);
      if (goes) got.push_back(now);
    } else {
      RC_ASSERT(port.arrive(now, frame.view(bytes), uint32_t{i}, [](uint32_t&&, DropReason) {}) == DropReason::kNone);
    }
  }
  until(~uint64_t{0});
  RC_ASSERT(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    RC_ASSERT(got[i] >= want[i]);
    RC_ASSERT(got[i] <= want[i] + 1);
  }
}

// A class inside a port, whose rates change while packets wait: never early, and late by what is rounded alone: a
// nanosecond at each, and at a change a nanosecond and a byte of credit.
RC_GTEST_PROP(PortQos, AClassInsideAPortKeepsBothRatesThroughChanges, ()) {
  // With small denominators, as the fractions' are multiplied.
  const auto any_rate = [] {
    return *rc::gen::element<uint64_t>(0, 10'000, 3'000'000, 7'000'000, 100'000'000, 9'000'000'000, 400'000'000'000);
  };
  QosModel model;
  model.classes.resize(1);
  model.classes[0].name = "a";
  model.classes[0].limit_pkts = 1000;
  PortQos<uint32_t> port(model, 0);
  ExactRate inner, outer;
  testing::Fraction queued = 0, left = 0;
  std::vector<testing::Fraction> want;
  std::vector<uint64_t> late, got;
  uint64_t now = 0, slack = 2;
  const auto until = [&](uint64_t t) {
    uint32_t id = 0;
    uint64_t at = 0;
    while (port.depart(t, id, at, [](uint32_t&&, DropReason) { RC_FAIL("a drop"); })) got.push_back(at);
  };
  const auto changed = [&](uint64_t bps) { slack += 3 + (bps == 0 ? 0 : 8'000'000'000 / bps); };
  Frame frame(0);
  const auto steps = *rc::gen::inRange(1u, 100u);
  for (uint32_t i = 0; i < steps; ++i) {
    now += *rc::gen::element<uint64_t>(0, 1, 700, 12'345, 1'000'003);
    until(now);
    const auto what = *rc::gen::inRange(0u, 10u);
    const auto burst = *rc::gen::element(0u, 1514u, 20'000u);
    if (what == 0) {
      const uint64_t bps = any_rate();
      port.set_class_rate(0, bps, burst, now);
      inner.change(bps, burst, now);
      changed(bps);
    } else if (what == 1 && port.held() == 0) {
      // The oracle has sent all then, too.
      const uint64_t bps = any_rate();
      port.set_port_rate(bps, burst, now);
      outer.change(bps, burst, now);
      changed(bps);
    } else {
      const auto bytes = *rc::gen::inRange<uint32_t>(60, 1515);
      RC_ASSERT(port.arrive(now, frame.view(bytes), uint32_t{i}, [](uint32_t&&, DropReason) {}) == DropReason::kNone);
      // First in, first out, also where a rate is taken away.
      queued = testing::Fraction::most(inner.departure(now), queued);
      inner.charge(now, bytes);
      left = outer.departure(testing::Fraction::most(queued, left));
      outer.charge(left, bytes);
      want.push_back(left);
      late.push_back(slack);
    }
  }
  until(~uint64_t{0});
  RC_ASSERT(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    RC_ASSERT(want[i] <= testing::Fraction(got[i]));
    RC_ASSERT(testing::Fraction(got[i]) <= want[i] + testing::Fraction(late[i]));
  }
}

// -- changes while packets wait --------------------------------------------------------------------------------------

// All packets that leave until `t`, by item.
std::vector<Departed> leave(PortQos<uint32_t>& port, uint64_t t) {
  std::vector<Departed> all;
  uint32_t id = 0;
  uint64_t at = 0;
  while (port.depart(t, id, at, [](uint32_t&&, DropReason) { ADD_FAILURE() << "a drop"; })) all.push_back({id, at});
  return all;
}
void come(PortQos<uint32_t>& port, uint64_t now, unsigned dscp, uint32_t bytes, uint32_t id) {
  Frame frame(dscp);
  EXPECT_EQ(port.arrive(now, frame.view(bytes), uint32_t{id}, [](uint32_t&&, DropReason) { ADD_FAILURE(); }),
            DropReason::kNone);
}

TEST(PortQos, ARateThatChangesKeepsTheTimesThatWereGiven) {
  QosModel model = QosModel::three_priorities();
  model.classes[0].rate_bps = 8'000'000;  // 1000 ns a byte
  PortQos<uint32_t> port(model, 0);
  for (uint32_t i = 0; i < 3; ++i) come(port, 0, 46, 100, i);
  // Three are given 0, 100 and 200 us; from 50 us on a byte takes 100 ns.
  EXPECT_EQ(leave(port, 50'000), (std::vector<Departed>{{0, 0}}));
  port.set_class_rate(0, 80'000'000, 0, 50'000);
  come(port, 50'000, 46, 100, 3);
  come(port, 50'000, 46, 100, 4);
  EXPECT_EQ(leave(port, ~uint64_t{0}), (std::vector<Departed>{{1, 100'000}, {2, 200'000}, {3, 300'000}, {4, 310'000}}));
}

TEST(PortQos, ARateThatIsTakenAwayLetsNothingOvertake) {
  QosModel model = QosModel::three_priorities();
  model.classes[0].rate_bps = 8'000'000;
  PortQos<uint32_t> port(model, 0);
  for (uint32_t i = 0; i < 2; ++i) come(port, 0, 46, 100, i);
  EXPECT_EQ(leave(port, 10'000).size(), 1u);
  port.set_class_rate(0, 0, 0, 10'000);
  come(port, 10'000, 46, 100, 2);
  EXPECT_EQ(leave(port, ~uint64_t{0}), (std::vector<Departed>{{1, 100'000}, {2, 100'000}}));
  // Now nothing waits.
  come(port, 200'000, 46, 100, 3);
  EXPECT_EQ(leave(port, 200'000), (std::vector<Departed>{{3, 200'000}}));
}

TEST(PortQos, ThePortsRateChanges) {
  QosModel model = QosModel::three_priorities();
  model.port_rate_bps = 8'000'000;
  PortQos<uint32_t> port(model, 0);
  for (uint32_t i = 0; i < 4; ++i) come(port, 0, 0, 100, i);
  EXPECT_EQ(leave(port, 150'000), (std::vector<Departed>{{0, 0}, {1, 100'000}}));
  port.set_port_rate(80'000'000, 0, 150'000);
  EXPECT_EQ(leave(port, ~uint64_t{0}), (std::vector<Departed>{{2, 200'000}, {3, 210'000}}));
  EXPECT_EQ(port.model().port_rate_bps, 80'000'000u);
}

TEST(PortQos, AnotherModelKeepsWhatWaitsInClassesOfTheSameName) {
  QosModel model;
  for (const char* name : {"a", "b", "c"}) {
    QosClass c;
    c.name = name;
    model.classes.push_back(c);
  }
  for (unsigned c = 0; c < 3; ++c) model.map.set(c, c);
  model.port_rate_bps = 8'000'000;
  model.classes[1].rate_bps = 800'000;
  PortQos<uint32_t> port(model, 0);
  uint32_t id = 0;
  // Class a: 1 to 5 in the queue; b: 6 goes to its queue, 7 and 8 wait for 1 and 2 ms; c: 9 and 10 in the queue.
  for (int i = 0; i < 5; ++i) come(port, 0, 0, 100, ++id);
  for (int i = 0; i < 3; ++i) come(port, 0, 1, 100, ++id);
  for (int i = 0; i < 2; ++i) come(port, 0, 2, 100, ++id);
  EXPECT_EQ(leave(port, 0), (std::vector<Departed>{{1, 0}}));
  EXPECT_EQ(port.held(), 9u);
  // The next has b first and a with less room, and no c.
  QosModel next = model;
  next.classes = {model.classes[1], model.classes[0]};
  next.classes[1].limit_pkts = 3;
  next.port_rate_bps = 80'000'000;
  next.map.fill(0);
  PortQos<uint32_t> follower(next, 50'000);
  std::map<uint32_t, DropReason> drops;
  follower.take_over(port, 50'000, [&](uint32_t&& item, DropReason why) { drops[item] = why; });
  EXPECT_EQ(port.held(), 0u);
  EXPECT_EQ(drops, (std::map<uint32_t, DropReason>{
                       {5, DropReason::kQueueFull}, {9, DropReason::kGraphChanged}, {10, DropReason::kGraphChanged}}));
  EXPECT_EQ(follower.held(), 6u);
  const auto left = leave(follower, ~uint64_t{0});
  ASSERT_EQ(left.size(), 6u);
  // The port was spoken for until 100 us; then at the new rate, and b's times are those that it was given.
  EXPECT_EQ(left[0].at_ns, 100'000u);
  EXPECT_EQ(left[3].at_ns, 130'000u);
  EXPECT_EQ(left[4], (Departed{7, 1'000'000}));
  EXPECT_EQ(left[5], (Departed{8, 2'000'000}));
  for (unsigned c = 0; c < 2; ++c) {
    const QosCounters n = follower.counters(c);
    EXPECT_EQ(n.in_pkts, n.out_pkts + n.drops());
  }
  EXPECT_EQ(follower.counters(1).in_pkts, 5u);
}

// A wheel that starts small grows to what the limits let wait, in order.
TEST(PortQos, AsManyWaitAsTheLimitSays) {
  QosModel model = QosModel::three_priorities();
  model.classes[0].rate_bps = 8'000'000;
  model.classes[0].limit_pkts = 1000;
  PortQos<uint32_t> port(model, 0);
  for (uint32_t i = 0; i <= 1000; ++i) come(port, 0, 46, 100, i);
  Frame frame(46);
  EXPECT_EQ(port.arrive(0, frame.view(100), 1001u, [](uint32_t&&, DropReason) { ADD_FAILURE(); }),
            DropReason::kShaperFull);
  const auto left = leave(port, ~uint64_t{0});
  ASSERT_EQ(left.size(), 1001u);
  for (uint32_t i = 0; i <= 1000; ++i) EXPECT_EQ(left[i], (Departed{i, uint64_t{i} * 100'000}));
}

}  // namespace
}  // namespace sluice
