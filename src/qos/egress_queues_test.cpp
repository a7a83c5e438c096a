// Strict priority and DRR against the paper's pseudo-code over plain lists, and what it promises.
#include "qos/egress_queues.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <list>
#include <optional>

namespace sluice {
namespace {

struct Sent {
  uint32_t id;
  uint32_t bytes;
};

// Shreedhar and Varghese, figure 3, one packet at a time; strict classes are asked first.
class EgressOracle {
 public:
  explicit EgressOracle(const std::vector<EgressClass>& classes)
      : classes_(classes), queues_(classes.size()), deficit_(classes.size()) {}
  bool put(unsigned c, Sent packet) {
    uint64_t bytes = 0;
    for (const Sent& s : queues_[c]) bytes += s.bytes;
    if (queues_[c].size() >= classes_[c].limit_pkts || bytes + packet.bytes > classes_[c].limit_bytes) return false;
    queues_[c].push_back(packet);
    if (!classes_[c].strict && queues_[c].size() == 1 && turn_ != c) active_.push_back(c);
    return true;
  }
  std::optional<std::pair<unsigned, Sent>> take() {
    for (unsigned c = 0; c < classes_.size(); ++c) {
      if (classes_[c].strict && !queues_[c].empty()) return pop(c);
    }
    while (turn_ || !active_.empty()) {
      if (!turn_) {
        turn_ = active_.front();
        active_.pop_front();
        deficit_[*turn_] += classes_[*turn_].quantum_bytes;
      }
      const unsigned c = *turn_;
      if (queues_[c].front().bytes <= deficit_[c]) {
        deficit_[c] -= queues_[c].front().bytes;
        auto sent = pop(c);
        if (queues_[c].empty()) {
          deficit_[c] = 0;
          turn_.reset();
        }
        return sent;
      }
      active_.push_back(c);
      turn_.reset();
    }
    return std::nullopt;
  }

 private:
  std::pair<unsigned, Sent> pop(unsigned c) {
    const Sent s = queues_[c].front();
    queues_[c].pop_front();
    return {c, s};
  }
  std::vector<EgressClass> classes_;
  std::vector<std::deque<Sent>> queues_;
  std::vector<uint64_t> deficit_;
  std::list<unsigned> active_;
  std::optional<unsigned> turn_;
};

struct QueueStep {
  bool put;
  unsigned qos_class;
  uint32_t bytes;
};

RC_GTEST_PROP(EgressQueues, SendWhatThePaperSendsAndCountItAll, ()) {
  const auto classes = *rc::gen::suchThat(
      rc::gen::container<std::vector<EgressClass>>(rc::gen::build<EgressClass>(
          rc::gen::set(&EgressClass::strict, rc::gen::weightedElement<bool>({{1, true}, {2, false}})),
          rc::gen::set(&EgressClass::quantum_bytes, rc::gen::inRange<uint32_t>(1, 3000)),
          rc::gen::set(&EgressClass::limit_pkts, rc::gen::inRange<uint32_t>(0, 12)),
          rc::gen::set(&EgressClass::limit_bytes, rc::gen::inRange<uint64_t>(0, 9000)))),
      [](const auto& c) { return !c.empty() && c.size() <= kMaxQosClasses; });
  EgressQueues<uint32_t> queues(classes);
  EgressOracle oracle(classes);
  const auto steps = *rc::gen::container<std::vector<QueueStep>>(
      rc::gen::construct<QueueStep>(rc::gen::weightedElement<bool>({{3, true}, {2, false}}),
                                    rc::gen::inRange(0u, kMaxQosClasses), rc::gen::inRange<uint32_t>(1, 1515)));
  uint32_t id = 0;
  uint64_t now = 0;
  for (const QueueStep& step : steps) {
    now += 10;
    if (step.put) {
      const unsigned c = std::min<unsigned>(step.qos_class, static_cast<unsigned>(classes.size()) - 1);
      uint32_t item = ++id;
      const DropReason why = queues.put(step.qos_class, now, step.bytes, std::move(item));
      RC_ASSERT((why == DropReason::kNone) == oracle.put(c, {id, step.bytes}));
    } else {
      uint32_t item = 0;
      unsigned from = 0;
      const bool some = queues.take(now, item, &from);
      const auto wanted = oracle.take();
      RC_ASSERT(some == wanted.has_value());
      RC_ASSERT(!some || (item == wanted->second.id && from == wanted->first));
    }
    uint64_t all = 0;
    for (unsigned c = 0; c < queues.classes(); ++c) {
      const EgressCounters& n = queues.counters(c);
      RC_ASSERT(n.in_pkts == n.out_pkts + n.tail_drops + n.early_drops + queues.length(c));
      all += queues.length(c);
    }
    RC_ASSERT(all == queues.size());
  }
  for (unsigned c = 0; c < queues.classes(); ++c)
    RC_ASSERT(queues.latency_ns(c).count() == queues.counters(c).out_pkts);
}

RC_GTEST_PROP(EgressQueues, ClassesWithABacklogGetTheirWeightsToAPacketAndARound, ()) {
  // Theorem of the paper, section 4: while both have packets, bytes sent in k rounds are within a packet of k quanta.
  std::vector<EgressClass> classes(*rc::gen::inRange(2, 6));
  for (EgressClass& c : classes) {
    c.quantum_bytes = *rc::gen::inRange<uint32_t>(100, 5000);
    c.limit_pkts = 200;
  }
  EgressQueues<uint32_t> queues(classes);
  constexpr uint32_t kLongest = 1514;
  std::vector<uint64_t> sent(classes.size());
  for (unsigned c = 0; c < classes.size(); ++c) {
    for (uint32_t i = 0; i < 200; ++i) {
      uint32_t bytes = *rc::gen::inRange<uint32_t>(40, kLongest + 1);
      RC_ASSERT(queues.put(c, 0, bytes, std::move(bytes)) == DropReason::kNone);
    }
  }
  for (;;) {
    uint32_t bytes = 0;
    unsigned from = 0;
    RC_ASSERT(queues.take(0, bytes, &from));
    sent[from] += bytes;
    if (queues.length(from) == 0) break;
    for (unsigned a = 0; a < classes.size(); ++a) {
      for (unsigned b = 0; b < classes.size(); ++b) {
        // In quanta, scaled by both: one round, and a packet of each.
        const auto one = static_cast<int64_t>(sent[a]) * classes[b].quantum_bytes;
        const auto two = static_cast<int64_t>(sent[b]) * classes[a].quantum_bytes;
        RC_ASSERT(one - two <= int64_t{classes[a].quantum_bytes} * classes[b].quantum_bytes +
                                   int64_t{kLongest} * (classes[a].quantum_bytes + classes[b].quantum_bytes));
      }
    }
  }
}

TEST(EgressQueues, RedDropsBeforeTheTailAndIsCountedApart) {
  EgressClass c;
  c.limit_pkts = 20;
  c.red = {2, 10, 0, 1'000'000, 1'000};
  EgressQueues<int> queues({c});
  uint64_t early = 0;
  for (int i = 0; i < 100; ++i) early += queues.put(0, 1, 100, int{i}) == DropReason::kEarlyDrop ? 1 : 0;
  EXPECT_EQ(queues.counters(0).early_drops, early);
  EXPECT_EQ(queues.counters(0).tail_drops, 0u);
  EXPECT_GT(early, 0u);
  EXPECT_LE(queues.length(0), 10u);
  EXPECT_EQ(queues.counters(0).highest_pkts, queues.length(0));
}

TEST(EgressQueues, LatencyIsFromPutToTake) {
  EgressQueues<int> queues({EgressClass{}});
  EXPECT_EQ(queues.put(0, 100, 1, 1), DropReason::kNone);
  EXPECT_EQ(queues.put(5, 110, 1, 2), DropReason::kNone);  // no such class: the last
  int item = 0;
  EXPECT_TRUE(queues.take(130, item));
  EXPECT_TRUE(queues.take(150, item));
  EXPECT_FALSE(queues.take(150, item));
  EXPECT_EQ(queues.latency_ns(0).min(), 30u);
  EXPECT_EQ(queues.latency_ns(0).max(), 40u);
}

}  // namespace
}  // namespace sluice
