#include "tables/lpm/rib_sources.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "tables/lpm/lpm_test_tables.h"

namespace sluice::rib_sources_test {
namespace {

using namespace lpm_test;

// What the sources said, in a form that has nothing of the other's: a list of everything, asked by going through it.
class Naive {
 public:
  void add(const IpPrefix& p, RouteCandidate c) { said_[key(p)][{c.source, c.metric}] = c; }
  bool remove(const IpPrefix& p, uint8_t source, uint32_t metric) {
    const auto it = said_.find(key(p));
    if (it == said_.end() || it->second.erase({source, metric}) == 0) return false;
    if (it->second.empty()) said_.erase(it);
    return true;
  }
  uint32_t best(const IpPrefix& p) const {
    const auto it = said_.find(key(p));
    if (it == said_.end()) return 0;
    const RouteCandidate* best = nullptr;
    for (const auto& [from, c] : it->second) {
      // Preference, metric, the source that came last.
      if (best == nullptr || std::tuple(c.preference, c.metric, -int{c.source}) <
                                 std::tuple(best->preference, best->metric, -int{best->source}))
        best = &c;
    }
    return best->next_hop;
  }
  uint32_t match(const IpAddress& a) const {
    int longest = -1;
    uint32_t hop = 0;
    for (const auto& [k, candidates] : said_) {
      const auto& [family, hi, lo, length] = k;
      if (family != a.family || length <= longest) continue;
      const unsigned n = length;
      const bool covers = family == 4 ? ((a.lo ^ lo) & high_mask32(n)) == 0
                                      : ((a.hi ^ hi) & high_mask64(std::min(n, 64u))) == 0 &&
                                            ((a.lo ^ lo) & high_mask64(n > 64 ? n - 64 : 0)) == 0;
      if (!covers) continue;
      longest = length;
      hop = best({{hi, lo, family}, length});
    }
    return hop;
  }
  size_t prefixes() const { return said_.size(); }
  size_t candidates() const {
    size_t n = 0;
    for (const auto& [k, c] : said_) n += c.size();
    return n;
  }

 private:
  using Key = std::tuple<uint8_t, uint64_t, uint64_t, uint8_t>;
  static Key key(const IpPrefix& p) { return {p.address.family, p.address.hi, p.address.lo, p.length}; }
  std::map<Key, std::map<std::pair<uint8_t, uint32_t>, RouteCandidate>> said_;
};

TEST(SourcedRib, TheNextBestTakesOverWhenTheBestGoes) {
  SourcedRib rib;
  const auto hop = [&](const char* name) { return static_cast<uint16_t>(rib.next_hops().intern(name)); };
  const uint8_t bgp = rib.source("bgp"), ospf = rib.source("ospf"), fixed = rib.source("static");
  const IpPrefix p = prefix4(0x0a000000, 8);
  EXPECT_TRUE(rib.add(p, {0, hop("b"), bgp, 20}));
  EXPECT_FALSE(rib.add(p, {10, hop("o"), ospf, 110}));
  EXPECT_TRUE(rib.add(p, {0, hop("s"), fixed, 1}));
  EXPECT_EQ(rib.best(p), hop("s"));
  ASSERT_EQ(rib.candidates(p).size(), 3u);
  EXPECT_EQ(rib.candidates(p)[1].source, bgp);
  bool found = false;
  EXPECT_TRUE(rib.remove(p, fixed, 0, &found));
  EXPECT_TRUE(found);
  EXPECT_EQ(rib.best(p), hop("b"));
  EXPECT_FALSE(rib.remove(p, ospf, 11, &found));
  EXPECT_FALSE(found);
  // A lower metric of a worse preference does not win; the same source with another preference does.
  EXPECT_FALSE(rib.add(p, {0, hop("o2"), ospf, 110}));
  EXPECT_TRUE(rib.add(p, {10, hop("o"), ospf, 5}));
  EXPECT_EQ(rib.best(p), hop("o"));
  for (const SourcedRib::Owned& o : rib.owned(ospf)) rib.remove(o.prefix, ospf, o.metric);
  EXPECT_TRUE(rib.remove(p, bgp, 0));
  EXPECT_EQ(rib.best(p), 0u);
  EXPECT_EQ(rib.prefixes(), 0u);
  EXPECT_EQ(rib.candidate_count(), 0u);
}

TEST(SourcedRib, OfEqualPreferenceAndMetricTheSourceThatWasNamedLastWins) {
  SourcedRib rib;
  const auto a = static_cast<uint16_t>(rib.next_hops().intern("a")),
             b = static_cast<uint16_t>(rib.next_hops().intern("b"));
  const uint8_t first = rib.source("first"), second = rib.source("second");
  const IpPrefix p = prefix6(0x20010db800000000, 0, 32);
  rib.add(p, {0, b, second, 1});
  EXPECT_FALSE(rib.add(p, {0, a, first, 1}));
  EXPECT_EQ(rib.best(p), b);
}

TEST(SourcedRib, SourcesAndNextHopsRunOutAtTheirLimits) {
  SourcedRib rib;
  for (unsigned i = 1; i <= SourcedRib::kMaxSources; ++i) ASSERT_EQ(rib.source("s" + std::to_string(i)), i);
  EXPECT_EQ(rib.source("one more"), 0u);
  EXPECT_EQ(rib.source("s7"), 7u);
  Rib many;
  intern_ids(many, NextHopIds::kMost);
  rib.next_hops().intern("its own");
  EXPECT_FALSE(rib.add_all(many, 1, 1));
  EXPECT_EQ(rib.next_hops().count(), 1u);
}

// A million mixed steps would do; here are as many as a test may take. Two prefix pools, so that slots collide, go
// and come back; steps within transactions are undone half of the time.
TEST(SourcedRib, MixedChangesAndRollbacksMatchAListOfEverything) {
  std::mt19937_64 random(11);
  SourcedRib rib;
  Naive naive;
  for (int i = 1; i <= 40; ++i) rib.next_hops().intern("n" + std::to_string(i));
  for (int i = 1; i <= 5; ++i) rib.source("s" + std::to_string(i));
  const auto some_prefix = [&] {
    const auto r = static_cast<uint32_t>(random());
    return random() % 2 == 0 ? prefix4((r & 7) << 29 | (r >> 8 & 3) << 14, r % 33)
                             : prefix6(uint64_t{0x2001} << 48 | (r & 15) << 20, uint64_t{r >> 24} << 40, r % 129);
  };
  size_t undone = 0;
  for (int round = 0; round < 120; ++round) {
    const bool transaction = random() % 3 == 0, undo = random() % 2 == 0;
    const Naive before = naive;
    if (transaction) rib.begin();
    for (int step = 0; step < 25; ++step) {
      const IpPrefix p = some_prefix();
      const uint32_t was = naive.best(p);
      const RouteCandidate c{static_cast<uint32_t>(random() % 3), static_cast<uint16_t>(1 + random() % 40),
                             static_cast<uint8_t>(1 + random() % 5), static_cast<uint8_t>(random() % 3)};
      if (random() % 3 != 0) {
        const bool changed = rib.add(p, c);
        naive.add(p, c);
        ASSERT_EQ(changed, naive.best(p) != was);
      } else {
        bool found = false;
        const bool changed = rib.remove(p, c.source, c.metric, &found);
        ASSERT_EQ(found, naive.remove(p, c.source, c.metric));
        ASSERT_EQ(changed, naive.best(p) != was);
      }
      ASSERT_EQ(rib.best(p), naive.best(p));
    }
    if (transaction && undo) {
      rib.next_hops().intern("of a change that is undone");
      rib.rollback();
      naive = before;
      ++undone;
      ASSERT_EQ(rib.next_hops().count(), 40u);
    } else if (transaction) {
      rib.commit();
    }
    ASSERT_EQ(rib.prefixes(), naive.prefixes());
    ASSERT_EQ(rib.candidate_count(), naive.candidates());
    const Rib best = rib.best_routes();
    ASSERT_EQ(best.size(), naive.prefixes());
    for (int k = 0; k < 30; ++k) {
      const IpPrefix p = some_prefix();
      IpAddress a = p.address;
      a.lo ^= random() & 0xffff;
      ASSERT_EQ(rib.match(a).next_hop, naive.match(a));
      ASSERT_EQ(best.match(a).next_hop, naive.match(a));
      ASSERT_EQ(best.match(a).length, rib.match(a).length);
      ASSERT_EQ(best.find(p), naive.best(p));
    }
  }
  EXPECT_GT(undone, 8u);
}

// What was read again is the same whatever numbers its names have there; any candidate that differs is found.
TEST(SourcedRib, TheSameRoutesAreFoundUnderOtherNumbers) {
  const auto fill = [](SourcedRib& rib, const std::vector<std::string>& hops, uint64_t seed) {
    std::mt19937_64 draws(seed);
    for (const char* name : {"static", "bgp"}) rib.source(name);
    for (int i = 0; i < 300; ++i) {
      const auto r = static_cast<uint32_t>(draws());
      const IpPrefix p =
          draws() % 2 == 0 ? prefix4(r << 8, 24) : prefix6(uint64_t{0x2001} << 48 | (r & 255) << 16, 0, 48);
      const std::string hop = hops[draws() % 3];
      const auto source = rib.find_source(draws() % 2 == 0 ? "static" : "bgp");
      const auto metric = static_cast<uint32_t>(draws() % 2);
      rib.add(p, {metric, static_cast<uint16_t>(rib.next_hops().intern(hop)), source, 1});
    }
  };
  const std::vector<std::string> hops{"a", "b", "c"};
  SourcedRib one, other;
  fill(one, hops, 1);
  for (const char* name : {"c", "nobody", "b", "a"}) other.next_hops().intern(name);
  fill(other, hops, 1);
  EXPECT_TRUE(one.same_routes(other));
  EXPECT_TRUE(other.same_routes(one));
  // A source that is gone again is no difference; the order of those that are there is one.
  other.source("control");
  EXPECT_TRUE(one.same_routes(other));
  SourcedRib turned;
  turned.source("bgp");
  fill(turned, hops, 1);
  EXPECT_FALSE(one.same_routes(turned));
  const IpPrefix p = prefix4(0x0a000000, 8);
  const auto hop = static_cast<uint16_t>(other.next_hops().find("a"));
  for (const RouteCandidate& c : {RouteCandidate{7, hop, 1, 1}, RouteCandidate{7, hop, 2, 1}}) {
    other.begin();
    EXPECT_FALSE(other.changed());
    other.add(p, c);
    EXPECT_TRUE(other.changed());
    EXPECT_FALSE(one.same_routes(other));
    EXPECT_FALSE(other.same_routes(one));
    other.rollback();
    EXPECT_TRUE(one.same_routes(other));
  }
  // The same prefix with another next hop, metric, preference or note.
  one.add(p, {7, static_cast<uint16_t>(one.next_hops().find("a")), 1, 1});
  other.add(p, {7, hop, 1, 1});
  ASSERT_TRUE(one.same_routes(other));
  const uint32_t note = other.add_note({"AS 65000", ""});
  const auto b = static_cast<uint16_t>(other.next_hops().find("b"));
  for (const RouteCandidate& c :
       {RouteCandidate{7, b, 1, 1}, RouteCandidate{7, hop, 1, 2}, RouteCandidate{7, hop, 1, 1, note}}) {
    other.begin();
    other.add(p, c);
    EXPECT_FALSE(one.same_routes(other));
    EXPECT_FALSE(other.same_routes(one));
    other.rollback();
  }
  // What is there already is no change.
  other.begin();
  EXPECT_FALSE(other.add(p, {7, hop, 1, 1}));
  EXPECT_FALSE(other.changed());
  other.commit();
}

// Long enough for an index, then short again, over and over; transactions that are undone come in between.
TEST(SourcedRib, ManyCandidatesOfOnePrefixMatchAListOfEverything) {
  std::mt19937_64 random(12);
  SourcedRib rib;
  Naive naive;
  for (int i = 1; i <= 40; ++i) rib.next_hops().intern("n" + std::to_string(i));
  for (int i = 1; i <= 3; ++i) rib.source("s" + std::to_string(i));
  const IpPrefix prefixes[] = {prefix4(0x0a000000, 8), prefix4(0x0a000000, 9), prefix6(uint64_t{0x2001} << 48, 0, 32)};
  size_t longest = 0;
  for (int round = 0; round < 60; ++round) {
    const bool growing = round / 6 % 2 == 0, transaction = random() % 3 == 0, undo = random() % 2 == 0;
    const Naive before = naive;
    if (transaction) rib.begin();
    for (int step = 0; step < 200; ++step) {
      const IpPrefix p = prefixes[random() % std::size(prefixes)];
      const RouteCandidate c{static_cast<uint32_t>(random() % 200), static_cast<uint16_t>(1 + random() % 40),
                             static_cast<uint8_t>(1 + random() % 3), static_cast<uint8_t>(random() % 3)};
      const uint32_t was = naive.best(p);
      if (random() % 8 < (growing ? 7 : 1)) {
        naive.add(p, c);
        ASSERT_EQ(rib.add(p, c), naive.best(p) != was);
      } else {
        bool found = false;
        const bool expected = naive.remove(p, c.source, c.metric);
        ASSERT_EQ(rib.remove(p, c.source, c.metric, &found), naive.best(p) != was);
        ASSERT_EQ(found, expected);
      }
      ASSERT_EQ(rib.best(p), naive.best(p));
    }
    if (transaction && undo) {
      rib.rollback();
      naive = before;
    } else if (transaction) {
      rib.commit();
    }
    ASSERT_EQ(rib.candidate_count(), naive.candidates());
    for (const IpPrefix& p : prefixes) {
      const std::vector<RouteCandidate> all = rib.candidates(p);
      for (size_t i = 1; i < all.size(); ++i) ASSERT_TRUE(all[i - 1].beats(all[i]));
      longest = std::max(longest, all.size());
    }
  }
  EXPECT_GT(longest, 128u);
  for (uint8_t source = 1; source <= 3; ++source) {
    for (const SourcedRib::Owned& o : rib.owned(source)) rib.remove(o.prefix, source, o.metric);
  }
  EXPECT_EQ(rib.candidate_count(), 0u);
  EXPECT_EQ(rib.prefixes(), 0u);
}

}  // namespace
}  // namespace sluice::rib_sources_test
