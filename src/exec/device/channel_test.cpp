// What a flight writes, and what the window of a ring has of it.
#include "exec/device/channel.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <vector>

#include "memory/buffer.h"

namespace sluice {
namespace {

struct Lines {
  static inline size_t copied = 0;
  static void copy(std::byte* to, const std::byte* from, size_t lines) {
    copied += lines;
    copy_lines_as_words(to, from, lines);
  }
};

// Whatever is written, in whatever pieces: after the last push the window has every record, and before it no word that
// the host has not written.
TEST(Flight, TheWindowHasEveryRecord) {
  const bool holds = rc::check([] {
    ChannelShape shape;
    shape.record.kind = *rc::gen::element(RecordKind::kKey4, RecordKind::kKey6);
    shape.capacity = *rc::gen::element(32u, 64u, 256u);
    const size_t bytes = size_t{shape.capacity} * shape.words_in() * sizeof(Word);
    auto in = Buffer::allocate(bytes), window = Buffer::allocate(bytes);
    RC_ASSERT(in.ok() && window.ok());
    uint64_t head = *rc::gen::inRange<uint64_t>(0, 1000);
    for (int flights = *rc::gen::inRange(1, 6); flights-- > 0;) {
      Flight flight(shape, shape.capacity, 1, 0);
      flight.ring = true;
      flight.in = reinterpret_cast<Word*>(in->data());
      flight.window = {window->data(), &Lines::copy};
      flight.first = head;
      flight.lap0 = 1;
      flight.mask = shape.capacity - 1;
      flight.shift = static_cast<uint8_t>(std::countr_zero(shape.capacity));
      Lines::copied = 0;
      const auto pieces = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0u, 40u));
      for (const uint32_t piece : pieces) {
        const uint32_t n = std::min(piece, flight.limit - flight.count);
        const auto how = *rc::gen::inRange(0, 3);
        if (shape.words_in() == 1 && how == 0) {
          std::vector<Word> words(n, Word{{*rc::gen::arbitrary<uint32_t>(), 2, 3, 4}});
          flight.put_words(words.data(), n);
        } else if (shape.words_in() == 1 && how == 1) {
          std::vector<uint32_t> columns[4];
          for (auto& column : columns) column.assign(n, *rc::gen::inRange(0u, 1u << 25));
          flight.put_keys(columns[0].data(), columns[1].data(), columns[2].data(), columns[3].data(), n);
        } else {
          for (uint32_t i = 0; i < n; ++i) {
            FlowKey key;
            key.family = 4;
            key.src_lo = *rc::gen::arbitrary<uint32_t>();
            flight.put_key(key);
          }
        }
        // What went was whole lines, in order: the first records are there.
        for (uint32_t i = 0; i < flight.pushed; ++i) {
          RC_ASSERT(std::memcmp(window->data() + size_t{flight.place(i)} * shape.words_in() * sizeof(Word),
                                flight.record(i), shape.words_in() * sizeof(Word)) == 0);
        }
      }
      flight.push(true);
      RC_ASSERT(flight.pushed == flight.count);
      RC_ASSERT(std::memcmp(window->data(), in->data(), bytes) == 0);
      // A line goes once for its records and once more for each piece that shares it at most.
      const size_t lines = size_t{flight.count} * shape.words_in() / kLineWords;
      RC_ASSERT(Lines::copied <= lines + 2 * pieces.size() + 3);
      head += flight.count;
    }
  });
  EXPECT_TRUE(holds);
}

TEST(Flight, MemoryWithoutAWindowIsLeftAlone) {
  ChannelShape shape;
  shape.capacity = 32;
  std::vector<Word> in(32);
  Flight flight(shape, 32, 0, 0);
  flight.on_slab(0, in.data(), in.data(), 1);
  const std::vector<Word> words(7);
  flight.put_words(words.data(), 7);
  flight.push(true);
  EXPECT_EQ(flight.count, 7u);
  EXPECT_EQ(flight.pushed, 0u);
}

TEST(Lines, WholeLinesAreCopied) {
  auto from = Buffer::allocate(64 * 33), to = Buffer::allocate(64 * 34);
  ASSERT_TRUE(from.ok() && to.ok());
  for (size_t i = 0; i < 64 * 33; ++i) from->data()[i] = static_cast<std::byte>(i * 7 + i / 64);
  std::vector<CopyLines> ways = {&copy_lines_as_words};
  if (whole_line_copy() != nullptr) ways.push_back(whole_line_copy());
  for (const CopyLines copy : ways) {
    for (const size_t lines : {0, 1, 2, 33}) {
      std::memset(to->data(), 0, 64 * 34);
      copy(to->data(), from->data(), lines);
      flush_lines();
      EXPECT_EQ(std::memcmp(to->data(), from->data(), lines * 64), 0);
      EXPECT_EQ(to->data()[lines * 64], std::byte{0});
    }
  }
}

}  // namespace
}  // namespace sluice
