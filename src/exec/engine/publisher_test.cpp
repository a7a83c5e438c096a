#include "exec/engine/publisher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

namespace sluice {
namespace {

// A snapshot whose every program carries the same stamp: a reader that sees two stamps saw two generations.
std::unique_ptr<Snapshot> stamped(uint32_t stamp) {
  auto snapshot = std::make_unique<Snapshot>();
  snapshot->programs.resize(3);
  for (Program& program : snapshot->programs) program.front = stamp;
  return snapshot;
}

TEST(Publisher, GenerationsCountFromOne) {
  Publisher publisher;
  EXPECT_EQ(publisher.current(), nullptr);
  EXPECT_EQ(publisher.publish(stamped(1)), 1u);
  EXPECT_EQ(publisher.publish(stamped(2)), 2u);
  EXPECT_EQ(publisher.current()->generation, 2u);
}

TEST(Publisher, AGenerationInFlightOutlivesItsSuccessors) {
  Publisher publisher;
  publisher.publish(stamped(1));
  const Snapshot* held = publisher.acquire();
  publisher.publish(stamped(2));
  publisher.publish(stamped(3));
  EXPECT_EQ(publisher.retired(), 1u) << "generation 1 is in flight, generation 2 never was";
  EXPECT_EQ(held->programs[2].front, 1u);
  Publisher::release(held);
  publisher.publish(stamped(4));
  EXPECT_EQ(publisher.retired(), 0u);
}

// What fails, fails before the flip: the generation before stays, and the next one has its number.
TEST(Publisher, AGenerationThatCannotBePreparedIsNone) {
  Publisher publisher;
  bool fails = false;
  publisher.set_prepare([&](Snapshot&) {
    if (fails) throw std::bad_alloc();
  });
  publisher.publish(stamped(1));
  const Snapshot* const first = publisher.current();
  fails = true;
  EXPECT_THROW(publisher.publish(stamped(2)), std::bad_alloc);
  EXPECT_EQ(publisher.current(), first);
  EXPECT_EQ(publisher.generation(), 1u);
  EXPECT_EQ(publisher.retired(), 0u);
  fails = false;
  EXPECT_EQ(publisher.publish(stamped(2)), 2u);
}

TEST(Publisher, ReadersSeeWholeGenerationsWhileTheyChange) {
  Publisher publisher;
  publisher.publish(stamped(1));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> mixed{0};
  std::atomic<uint64_t> backwards{0};
  std::atomic<uint64_t> reads{0};
  std::vector<std::jthread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      QsbrReader reader;
      uint32_t last = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        const bool pinned = r == 2;  // one reader holds generations across quiescent states
        const Snapshot* s = pinned ? publisher.acquire() : publisher.current();
        if (pinned) reader.quiescent();
        const uint32_t stamp = s->programs[0].front;
        for (const Program& program : s->programs) mixed += program.front != stamp;
        mixed += s->generation != stamp;
        backwards += stamp < last;
        last = stamp;
        if (pinned) Publisher::release(s);
        reads.fetch_add(1, std::memory_order_relaxed);
        reader.quiescent();
      }
    });
  }
  while (reads.load() == 0) std::this_thread::yield();
  for (uint32_t g = 2; g <= 100; ++g) EXPECT_EQ(publisher.publish(stamped(g)), g);
  stop = true;
  readers.clear();
  EXPECT_EQ(mixed.load(), 0u);
  EXPECT_EQ(backwards.load(), 0u);
  EXPECT_GT(reads.load(), 0u);
}

TEST(Publisher, AnOfflineReaderDelaysNobody) {
  Publisher publisher;
  publisher.publish(stamped(1));
  std::atomic<int> phase{0};
  std::jthread reader_thread([&] {
    QsbrReader reader;
    reader.offline();
    phase = 1;
    while (phase != 2) std::this_thread::yield();
    reader.online();
  });
  while (phase != 1) std::this_thread::yield();
  EXPECT_EQ(publisher.publish(stamped(2)), 2u);  // would wait for ever for a reader that is online and silent
  phase = 2;
}

}  // namespace
}  // namespace sluice
