// Priority buffers against a sequential model, under every order of their atomic steps that a seed makes, and with
// threads.
#include "qos/priority_buffers.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <semaphore>
#include <set>
#include <thread>

namespace sluice {
namespace {

// -- shares

TEST(PriorityShares, TheHighestGetsHalfAndTheNextTwoThirdsOfTheRest) {
  EXPECT_EQ(default_shares(1), (std::vector<uint32_t>{1}));
  EXPECT_EQ(default_shares(2), (std::vector<uint32_t>{1, 1}));
  EXPECT_EQ(default_shares(3), (std::vector<uint32_t>{3, 2, 1}));
  EXPECT_EQ(default_shares(4), (std::vector<uint32_t>{9, 6, 2, 1}));
  for (uint32_t classes = 2; classes <= kMaxQosClasses; ++classes) {
    const std::vector<uint32_t> shares = default_shares(classes);
    uint64_t rest = std::accumulate(shares.begin(), shares.end(), uint64_t{0});
    EXPECT_EQ(2 * shares[0], rest);
    rest -= shares[0];
    for (uint32_t c = 1; c + 1 < classes; ++c) {
      EXPECT_EQ(3 * shares[c], 2 * rest) << c << " of " << classes;
      rest -= shares[c];
    }
    EXPECT_EQ(shares.back(), rest);
  }
}

TEST(PriorityShares, GroupsAreTheKnownOnes) {
  const std::vector<uint32_t> three = default_shares(3);
  EXPECT_EQ(assign_groups(6, three), (std::vector<uint32_t>{3, 2, 1}));
  EXPECT_EQ(assign_groups(12, three), (std::vector<uint32_t>{6, 4, 2}));
  EXPECT_EQ(assign_groups(3, three), (std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(assign_groups(16, three), (std::vector<uint32_t>{8, 5, 3}));
  EXPECT_EQ(assign_groups(1, three), (std::vector<uint32_t>{1, 0, 0}));
  EXPECT_EQ(assign_groups(0, three), (std::vector<uint32_t>{0, 0, 0}));
  const std::vector<uint32_t> nothing = {0, 0};
  EXPECT_EQ(assign_groups(3, nothing), (std::vector<uint32_t>{2, 1}));
  const std::vector<uint32_t> one_sided = {~0u, 0, 0, 1};
  EXPECT_EQ(assign_groups(9, one_sided), (std::vector<uint32_t>{6, 1, 1, 1}));
}

// All ways to divide `groups`, each class at least `least`; the ones whose sum of squared errors is the least.
// Hamilton's method minimises it (Birkhoff 1976).
void divide(uint32_t groups, size_t classes, uint32_t least, std::vector<uint32_t>& so_far,
            const std::function<void(const std::vector<uint32_t>&)>& each) {
  if (so_far.size() + 1 == classes) {
    if (groups < least) return;
    so_far.push_back(groups);
    each(so_far);
    so_far.pop_back();
    return;
  }
  for (uint32_t n = least; n <= groups; ++n) {
    so_far.push_back(n);
    divide(groups - n, classes, least, so_far, each);
    so_far.pop_back();
  }
}

RC_GTEST_PROP(PriorityShares, NoOtherDivisionIsNearer, ()) {
  const auto shares =
      *rc::gen::suchThat(rc::gen::resize(4, rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0u, 12u))),
                         [](const auto& s) { return !s.empty() && s.size() <= 4; });
  const auto groups = *rc::gen::inRange(0u, 14u);
  const std::vector<uint32_t> got = assign_groups(groups, shares);
  RC_ASSERT(std::accumulate(got.begin(), got.end(), 0u) == groups);
  std::vector<int64_t> want(shares.begin(), shares.end());
  int64_t total = std::accumulate(want.begin(), want.end(), int64_t{0});
  if (total == 0) {
    want.assign(want.size(), 1);
    total = static_cast<int64_t>(want.size());
  }
  const auto error = [&](const std::vector<uint32_t>& counts) {
    int64_t sum = 0;
    for (size_t c = 0; c < counts.size(); ++c) {
      const int64_t off = int64_t{counts[c]} * total - int64_t{groups} * want[c];
      sum += off * off;
    }
    return sum;
  };
  const uint32_t least = groups >= shares.size() ? 1 : 0;
  for (const uint32_t n : got) RC_ASSERT(n >= least);
  std::vector<uint32_t> so_far;
  divide(groups, shares.size(), least, so_far,
         [&](const std::vector<uint32_t>& other) { RC_ASSERT(error(got) <= error(other)); });
}

RC_GTEST_PROP(PriorityShares, EveryClassIsAtHomeSomewhere, ()) {
  const auto classes = *rc::gen::inRange(1u, kMaxQosClasses + 1);
  const auto groups = *rc::gen::inRange(1u, 40u);
  std::vector<uint32_t> shares = default_shares(classes);
  if (*rc::gen::arbitrary<bool>()) {
    for (uint32_t& s : shares) s = *rc::gen::inRange(0u, 1000u);
  }
  const HomePlan plan(groups, shares);
  RC_ASSERT((groups < classes) == (plan.turns() > 1));
  std::vector<uint32_t> turns(classes);
  for (uint32_t g = 0; g < groups; ++g) {
    for (uint32_t look = 0; look < plan.turns(); ++look) {
      const uint32_t home = plan.home(g, look);
      RC_ASSERT(home < classes);
      RC_ASSERT(plan.home(g, look + uint64_t{plan.turns()} * 7) == home);
      ++turns[home];
    }
  }
  RC_ASSERT(std::equal(turns.begin(), turns.end(), plan.counts().begin(), plan.counts().end()));
  for (const uint32_t n : turns) RC_ASSERT(n >= 1u);
}

TEST(PriorityShares, OneGroupDividesItsLooks) {
  const HomePlan plan(1, default_shares(3));
  ASSERT_EQ(plan.turns(), 6u);
  std::vector<uint32_t> homes;
  for (uint32_t look = 0; look < 6; ++look) homes.push_back(plan.home(0, look));
  EXPECT_EQ(homes, (std::vector<uint32_t>{0, 1, 0, 2, 1, 0}));
}

// -- a sequential model

struct Model {
  struct Class {
    uint64_t filled = 0, claimed = 0, committed = 0;
    std::set<uint64_t> done;
    bool left = false;  // what is done at the head is for anybody to commit

    std::vector<uint64_t> commit(uint32_t most) {
      std::vector<uint64_t> out;
      while (out.size() < most && done.erase(committed) != 0) out.push_back(committed++);
      left = done.count(committed) != 0;
      return out;
    }
  };
  uint32_t capacity = 1;
  std::array<Class, kMaxQosClasses> classes{};
};

RC_GTEST_PROP(PriorityBuffers, AreThoseOfTheModel, ()) {
  const auto classes = *rc::gen::inRange(1u, 5u);
  const uint32_t capacity = 1u << *rc::gen::inRange(0, 4);
  const auto most = *rc::gen::inRange(1u, 6u);
  PriorityBuffers buffers(classes, capacity);
  const PriorityView& view = buffers.view();
  Model model;
  std::vector<ChunkClaim> held;
  const auto steps = *rc::gen::inRange(0, 400);
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  for (int i = 0; i < steps; ++i) {
    const auto c = static_cast<uint32_t>(random() % classes);
    Model::Class& want = model.classes[c];
    switch (random() % 4) {
      case 0: {
        uint64_t sequence = ~uint64_t{0};
        const bool may = view.rings[c].may_fill<HostAtomics>(sequence);
        RC_ASSERT(sequence == want.filled);
        RC_ASSERT(may == (want.filled - want.committed < capacity));
        if (!may) break;
        view.rings[c].fill<HostAtomics>();
        ++want.filled;
        break;
      }
      case 1: {
        uint32_t from = c;  // at home, or the highest that has one
        const auto ready = [&](uint32_t k) { return model.classes[k].claimed < model.classes[k].filled; };
        if (!ready(c)) {
          for (from = 0; from < classes && !ready(from); ++from) {
          }
        }
        ChunkClaim claim;
        const bool some = view.look<HostAtomics>(c, claim);
        RC_ASSERT(some == (from < classes));
        if (!some) break;
        RC_ASSERT(claim.qos_class == from);
        RC_ASSERT(claim.stolen == (from != c));
        RC_ASSERT(claim.sequence == model.classes[from].claimed++);
        held.push_back(claim);
        break;
      }
      case 2: {
        if (held.empty()) break;
        const size_t at = random() % held.size();
        const ChunkClaim claim = held[at];
        held.erase(held.begin() + static_cast<ptrdiff_t>(at));
        Model::Class& of = model.classes[claim.qos_class];
        std::vector<uint64_t> expected, got;
        const bool head = claim.sequence == of.committed;
        of.done.insert(claim.sequence);
        if (head) expected = of.commit(most);
        const uint32_t count = view.rings[claim.qos_class].finish<HostAtomics>(
            claim.sequence, most, [&](uint64_t sequence) { got.push_back(sequence); });
        RC_ASSERT(got == expected);
        RC_ASSERT(count == got.size());
        break;
      }
      case 3: {
        std::vector<uint64_t> expected, got;
        if (want.left) expected = want.commit(most);
        const uint32_t count =
            view.rings[c].resume<HostAtomics>(most, [&](uint64_t sequence) { got.push_back(sequence); });
        RC_ASSERT(got == expected);
        RC_ASSERT(count == got.size());
      }
    }
  }
}

// -- every order of atomic steps that a seed makes

// Lets one of several threads run at a time; at each atomic step the seed says who is next.
class Baton {
 public:
  Baton(uint64_t seed, size_t threads) : random_(seed), gone_(threads) {
    for (size_t i = 0; i < threads; ++i) gates_.push_back(std::make_unique<std::binary_semaphore>(0));
  }
  void start() { gates_[random_() % gates_.size()]->release(); }
  void enter(size_t me) {
    at_ = this;
    me_ = me;
    gates_[me]->acquire();
  }
  void leave() {
    gone_[me_] = true;
    at_ = nullptr;
    pass();
  }
  static void step() {
    if (at_ == nullptr) return;
    Baton& baton = *at_;
    const size_t me = me_;
    baton.pass();
    baton.gates_[me]->acquire();
  }

 private:
  void pass() {
    std::vector<size_t> left;
    for (size_t i = 0; i < gone_.size(); ++i) {
      if (!gone_[i]) left.push_back(i);
    }
    if (!left.empty()) gates_[left[random_() % left.size()]]->release();
  }
  static thread_local Baton* at_;
  static thread_local size_t me_;
  std::mt19937_64 random_;
  std::vector<char> gone_;
  std::vector<std::unique_ptr<std::binary_semaphore>> gates_;
};
thread_local Baton* Baton::at_ = nullptr;
thread_local size_t Baton::me_ = 0;

struct SteppedAtomics {
  static uint64_t load(const uint64_t* from) {
    Baton::step();
    return HostAtomics::load(from);
  }
  static void store(uint64_t* to, uint64_t value) {
    Baton::step();
    HostAtomics::store(to, value);
  }
  static void clear(uint32_t* to) {
    Baton::step();
    HostAtomics::clear(to);
  }
  static bool compare_exchange(uint64_t* at, uint64_t& expected, uint64_t value) {
    Baton::step();
    return HostAtomics::compare_exchange(at, expected, value);
  }
  static uint64_t exchange(uint64_t* at, uint64_t value) {
    Baton::step();
    return HostAtomics::exchange(at, value);
  }
  static uint32_t fetch_or(uint32_t* at, uint32_t bits) {
    Baton::step();
    return HostAtomics::fetch_or(at, bits);
  }
};

struct Course {
  uint32_t classes = 3, capacity = 4, groups = 3, most = 4;
  std::vector<uint32_t> fills;  // classes of chunks, in the order of filling
};

struct Trace {
  std::vector<std::vector<uint64_t>> committed;                // by class
  std::vector<std::vector<std::pair<uint32_t, bool>>> claims;  // by group: home, stolen
  std::atomic<bool> wrong{false};                              // what only the threads see
};

// One producer and `groups` workers. Chunks carry plain words, so that a missing order between threads is a race for
// the sanitizer, and a place that is given back too early a wrong number. `between` runs between claim and finish.
template <typename Atomics>
void play(const Course& course, Trace& trace, Baton* baton, const std::function<void(size_t)>& between = {}) {
  PriorityBuffers buffers(course.classes, course.capacity);
  const PriorityView view = buffers.view();
  const HomePlan homes(course.groups, default_shares(course.classes));
  std::vector<std::vector<uint64_t>> words(course.classes, std::vector<uint64_t>(course.capacity));
  trace.committed.resize(course.classes);
  trace.claims.resize(course.groups);
  std::atomic<bool> closed{false};
  const auto commit = [&](uint32_t c, uint64_t sequence) {
    if (words[c][view.rings[c].place(sequence)] != sequence * 2 + 1) trace.wrong = true;
    trace.committed[c].push_back(sequence);
  };
  const auto idle = [&] {
    if (baton != nullptr) {
      Baton::step();
    } else {
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (size_t g = 0; g < course.groups; ++g) {
    threads.emplace_back([&, g] {
      if (baton != nullptr) baton->enter(g);
      for (uint64_t look = 0;; ++look) {
        const bool last = closed.load();
        uint32_t resumed = 0;
        for (uint32_t c = 0; c < course.classes; ++c) {
          resumed +=
              view.rings[c].template resume<Atomics>(course.most, [&](uint64_t sequence) { commit(c, sequence); });
        }
        ChunkClaim claim;
        const uint32_t home = homes.home(static_cast<uint32_t>(g), look);
        if (!view.look<Atomics>(home, claim)) {
          if (resumed != 0) continue;  // there may be more
          if (last) break;
          idle();
          continue;
        }
        trace.claims[g].push_back({home, claim.stolen});
        const ChunkRing& ring = view.rings[claim.qos_class];
        uint64_t& word = words[claim.qos_class][ring.place(claim.sequence)];
        if (word != claim.sequence * 2) trace.wrong = true;
        word = claim.sequence * 2 + 1;
        if (between) between(g);
        ring.finish<Atomics>(claim.sequence, course.most,
                             [&](uint64_t sequence) { commit(claim.qos_class, sequence); });
      }
      if (baton != nullptr) baton->leave();
    });
  }
  threads.emplace_back([&] {
    if (baton != nullptr) baton->enter(course.groups);
    for (const uint32_t c : course.fills) {
      uint64_t sequence = 0;
      while (!view.rings[c].may_fill<Atomics>(sequence)) idle();
      words[c][view.rings[c].place(sequence)] = sequence * 2;
      view.rings[c].fill<Atomics>();
    }
    closed = true;
    if (baton != nullptr) baton->leave();
  });
  if (baton != nullptr) baton->start();
  for (std::thread& t : threads) t.join();
}

void none_lost_and_all_in_order(const Course& course, const Trace& trace) {
  std::vector<std::vector<uint64_t>> want(course.classes);
  for (const uint32_t c : course.fills) want[c].push_back(want[c].size());
  ASSERT_EQ(trace.committed, want);
  EXPECT_FALSE(trace.wrong);
  size_t claims = 0;
  for (const auto& of : trace.claims) claims += of.size();
  EXPECT_EQ(claims, course.fills.size());
}

TEST(PriorityBuffers, NoOrderOfStepsLosesOrReordersAChunk) {
  const uint64_t runs = 40;
  for (uint64_t seed = 1; seed <= runs; ++seed) {
    std::mt19937_64 random(seed);
    Course course;
    course.classes = 1 + static_cast<uint32_t>(random() % 3);
    course.capacity = 1u << random() % 3;
    course.groups = 1 + static_cast<uint32_t>(random() % 4);
    course.most = 1 + static_cast<uint32_t>(random() % 3);
    for (uint64_t n = random() % 30; n != 0; --n)
      course.fills.push_back(static_cast<uint32_t>(random() % course.classes));
    Baton baton(seed, course.groups + 1);
    Trace trace;
    play<SteppedAtomics>(course, trace, &baton);
    SCOPED_TRACE(seed);
    none_lost_and_all_in_order(course, trace);
  }
}

TEST(PriorityBuffers, ThreadsLoseAndReorderNothing) {
#if defined(SLUICE_SANITIZED_THREADS)
  const size_t chunks = 2'000;
#else
  const size_t chunks = 10'000;
#endif
  for (const uint32_t groups : {2u, 4u}) {
    for (const uint32_t capacity : {1u, 8u}) {
      Course course;
      course.groups = groups;
      course.capacity = capacity;
      course.most = groups == 2 ? 1 : 3;
      std::mt19937_64 random(groups);
      for (size_t i = 0; i < chunks / (capacity == 1 ? 8 : 1); ++i)
        course.fills.push_back(static_cast<uint32_t>(random() % 3));
      Trace trace;
      play<HostAtomics>(course, trace, nullptr);
      none_lost_and_all_in_order(course, trace);
    }
  }
}

// The worker with the oldest chunk is slow: the others go on past it as far as there are places, and it commits all.
TEST(PriorityBuffers, CommitFinishedJobsBehindTheHead) {
  PriorityBuffers buffers(1, 4);
  const ChunkRing& ring = buffers.view().rings[0];
  uint64_t sequence = 0;
  for (int i = 0; i < 4; ++i) ring.fill<HostAtomics>();
  EXPECT_FALSE(ring.may_fill<HostAtomics>(sequence));
  for (uint64_t s = 0; s < 4; ++s) {
    ASSERT_TRUE(ring.claim<HostAtomics>(sequence));
    EXPECT_EQ(sequence, s);
  }
  std::vector<uint64_t> got;
  const auto commit = [&](uint64_t s) { got.push_back(s); };
  EXPECT_EQ(ring.finish<HostAtomics>(2, 4, commit), 0u);
  EXPECT_EQ(ring.finish<HostAtomics>(1, 4, commit), 0u);
  EXPECT_FALSE(ring.may_fill<HostAtomics>(sequence));
  EXPECT_EQ(ring.finish<HostAtomics>(0, 4, commit), 3u);
  EXPECT_EQ(got, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_TRUE(ring.may_fill<HostAtomics>(sequence));
  EXPECT_EQ(sequence, 4u);
  EXPECT_EQ(ring.finish<HostAtomics>(3, 4, commit), 1u);
}

// A thread is not kept committing for others: it hands over, and nobody else commits before somebody takes that.
TEST(PriorityBuffers, CommitsAreHandedOver) {
  PriorityBuffers buffers(1, 8);
  const ChunkRing& ring = buffers.view().rings[0];
  uint64_t sequence = 0;
  for (int i = 0; i < 6; ++i) ring.fill<HostAtomics>();
  while (ring.claim<HostAtomics>(sequence)) {
  }
  std::vector<uint64_t> got;
  const auto commit = [&](uint64_t s) { got.push_back(s); };
  for (const uint64_t s : {5, 4, 2, 1}) EXPECT_EQ(ring.finish<HostAtomics>(s, 2, commit), 0u);
  EXPECT_EQ(ring.resume<HostAtomics>(2, commit), 0u);
  EXPECT_EQ(ring.finish<HostAtomics>(0, 2, commit), 2u);
  EXPECT_EQ(ring.finish<HostAtomics>(3, 2, commit), 0u);
  EXPECT_EQ(ring.resume<HostAtomics>(2, commit), 2u);
  EXPECT_EQ(ring.resume<HostAtomics>(2, commit), 2u);
  EXPECT_EQ(ring.resume<HostAtomics>(2, commit), 0u);
  EXPECT_EQ(got, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5}));
}

// -- the policy, in simulated time: a look is one chunk, groups take turns, every class is always full

RC_GTEST_PROP(PriorityBuffers, UnderOverloadEveryClassGetsItsShare, ()) {
  const auto classes = *rc::gen::inRange(1u, kMaxQosClasses + 1);
  const auto groups = *rc::gen::inRange(1u, 12u);
  const HomePlan homes(groups, default_shares(classes));
  PriorityBuffers buffers(classes, 64);
  const PriorityView& view = buffers.view();
  std::vector<uint64_t> served(classes);
  const uint32_t rounds = 3 * homes.turns();
  for (uint32_t round = 0; round < rounds; ++round) {
    for (uint32_t g = 0; g < groups; ++g) {
      uint64_t sequence = 0;
      for (uint32_t c = 0; c < classes; ++c) {
        if (view.rings[c].may_fill<HostAtomics>(sequence)) view.rings[c].fill<HostAtomics>();
      }
      ChunkClaim claim;
      RC_ASSERT(view.look<HostAtomics>(homes.home(g, round), claim));
      RC_ASSERT(!claim.stolen);
      ++served[claim.qos_class];
      view.rings[claim.qos_class].finish<HostAtomics>(claim.sequence, 64, [](uint64_t) {});
    }
  }
  // Not more and not less than the turns at home: the bound of the argument.
  for (uint32_t c = 0; c < classes; ++c) RC_ASSERT(served[c] == uint64_t{3} * homes.counts()[c]);
}

// Whatever the others hold: a chunk that is the oldest of its class is claimed within `turns` looks of each group.
RC_GTEST_PROP(PriorityBuffers, NoClassStarves, ()) {
  const auto classes = *rc::gen::inRange(2u, kMaxQosClasses + 1);
  const auto groups = *rc::gen::inRange(1u, 10u);
  std::vector<uint32_t> shares(classes);
  for (uint32_t& s : shares) s = *rc::gen::inRange(0u, 50u);
  const HomePlan homes(groups, shares);
  PriorityBuffers buffers(classes, 64);
  const PriorityView& view = buffers.view();
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  std::vector<uint64_t> looks(groups);
  for (uint64_t& look : looks) look = random() % 1000;
  std::vector<uint32_t> waited(classes);  // rounds in which the class had a chunk and got no look
  for (int round = 0; round < 300; ++round) {
    for (uint32_t c = 0; c < classes; ++c) {
      uint64_t sequence = 0;
      // Higher classes are flooded, the others get a chunk now and then.
      for (uint64_t n = c == 0 ? 64 : random() % 2; n != 0 && view.rings[c].may_fill<HostAtomics>(sequence); --n)
        view.rings[c].fill<HostAtomics>();
    }
    std::vector<bool> served(classes), had(classes);
    for (uint32_t c = 0; c < classes; ++c) had[c] = *view.rings[c].claimed < *view.rings[c].filled;
    for (uint32_t g = 0; g < groups; ++g) {
      const uint32_t home = homes.home(g, looks[g]++);
      const bool ready = *view.rings[home].claimed < *view.rings[home].filled;
      ChunkClaim claim;
      if (!view.look<HostAtomics>(home, claim)) continue;
      // One chunk a look, and none is stolen while there is one at home.
      RC_ASSERT(claim.stolen == !ready);
      served[claim.qos_class] = true;
      view.rings[claim.qos_class].finish<HostAtomics>(claim.sequence, 64, [](uint64_t) {});
    }
    for (uint32_t c = 0; c < classes; ++c) {
      waited[c] = had[c] && !served[c] ? waited[c] + 1 : 0;
      RC_ASSERT(waited[c] < homes.turns());
    }
  }
}

TEST(PriorityBuffers, AllTrafficInOneClassIsWorkForEveryGroup) {
  const HomePlan homes(6, default_shares(3));
  PriorityBuffers buffers(3, 8);
  const PriorityView& view = buffers.view();
  for (int i = 0; i < 6; ++i) view.rings[2].fill<HostAtomics>();
  unsigned stolen = 0;
  for (uint32_t g = 0; g < 6; ++g) {
    ChunkClaim claim;
    ASSERT_TRUE(view.look<HostAtomics>(homes.home(g, 0), claim));
    EXPECT_EQ(claim.qos_class, 2u);
    EXPECT_EQ(claim.sequence, g);
    stolen += claim.stolen ? 1 : 0;
  }
  EXPECT_EQ(stolen, 5u);
}

// -- open chunks

RC_GTEST_PROP(OpenChunks, AreReadyWhenFullOrLate, ()) {
  const auto packets = *rc::gen::inRange(1u, 6u);
  const auto timeout = *rc::gen::inRange<uint64_t>(0, 50);
  OpenChunks open(packets, timeout);
  std::array<std::deque<uint64_t>, 3> model;  // when each packet came
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  uint64_t now = random() % 100;
  for (int i = 0; i < 200; ++i) {
    now += random() % 20;
    const auto c = static_cast<uint32_t>(random() % 3);
    const auto hand_on = [&] {
      RC_ASSERT(open.taken(c) == model[c].size());
      model[c].clear();
    };
    const bool due = !model[c].empty() && now - model[c].front() >= timeout;
    RC_ASSERT(open.due(c, now) == due);
    RC_ASSERT(open.count(c) == model[c].size());
    if (due && random() % 2 == 0) {
      hand_on();
      continue;
    }
    model[c].push_back(now);
    const bool full = open.add(c, now);
    RC_ASSERT(full == (model[c].size() == packets));
    if (full) hand_on();
  }
}

}  // namespace
}  // namespace sluice
