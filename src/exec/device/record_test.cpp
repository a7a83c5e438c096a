// Records: what goes in comes out, whatever the tag, and a tag never says more than it should.
#include "exec/device/record.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <vector>

#include "exec/device/body.h"

namespace sluice {
namespace {

FlowKey random_key(bool v4) {
  FlowKey k;
  const auto protocol = *rc::gen::element<uint8_t>(1, 6, 17, 58, 132, 47);
  k.protocol = protocol;
  k.family = v4 ? 4 : *rc::gen::element<uint8_t>(0, 6);
  k.src_lo = v4 ? *rc::gen::arbitrary<uint32_t>() : *rc::gen::arbitrary<uint64_t>();
  k.dst_lo = v4 ? *rc::gen::arbitrary<uint32_t>() : *rc::gen::arbitrary<uint64_t>();
  if (!v4) {
    k.src_hi = *rc::gen::arbitrary<uint64_t>();
    k.dst_hi = *rc::gen::arbitrary<uint64_t>();
  }
  k.dscp = *rc::gen::inRange<uint8_t>(0, 64);
  k.bits = *rc::gen::element<uint8_t>(0, 1, 2, 3, 6);
  if ((k.bits & FlowKey::kHasPorts) != 0) {
    k.src_port = *rc::gen::arbitrary<uint16_t>();
    k.dst_port = *rc::gen::arbitrary<uint16_t>();
    if (protocol == 6) k.flags = static_cast<uint16_t>(*rc::gen::arbitrary<uint8_t>() << 8);
  } else if (protocol == 1 || protocol == 58) {
    k.icmp = *rc::gen::arbitrary<uint16_t>();
  }
  return k;
}

TEST(Record, Ipv4KeysFitOneWord) {
  const bool holds = rc::check([] {
    const FlowKey key = random_key(true);
    const auto tag = *rc::gen::inRange<uint32_t>(0, 128);
    const Word word = pack_key4(key, tag);
    RC_ASSERT(word_tag(word) == tag);
    RC_ASSERT(unpack_key4(word) == key);
  });
  EXPECT_TRUE(holds);
}

TEST(Record, ThreeDestinationsFitOneWordAndTheirNextHopsOneResult) {
  const bool holds = rc::check([] {
    const auto destinations = *rc::gen::container<std::vector<uint32_t>>(3, rc::gen::arbitrary<uint32_t>());
    const auto next_hops = *rc::gen::container<std::vector<uint32_t>>(3, rc::gen::inRange<uint32_t>(0, 65536));
    const auto tag = *rc::gen::inRange<uint32_t>(0, 128);
    const Word word = pack_route4(destinations.data(), tag);
    RC_ASSERT(word_tag(word) == tag);
    uint64_t result = uint64_t{tag} << 57;
    for (uint32_t i = 0; i < 3; ++i) {
      RC_ASSERT(word.w[i] == destinations[i]);
      result |= route_part(next_hops[i], i);
    }
    RC_ASSERT(result_tag(result) == tag);
    for (uint32_t i = 0; i < 3; ++i) RC_ASSERT(routed(result, i) == next_hops[i]);
  });
  EXPECT_TRUE(holds);
}

TEST(Record, AllKeysFitThreeWords) {
  const bool holds = rc::check([] {
    const FlowKey key = random_key(*rc::gen::arbitrary<bool>());
    const auto tag = *rc::gen::inRange<uint32_t>(0, 128);
    Word words[kKey6Words];
    store_payload(words, &key, kKeyBytes, tag);
    for (const Word& w : words) RC_ASSERT(word_tag(w) == tag);
    FlowKey back;
    PayloadReader(words).get(&back, kKeyBytes);
    RC_ASSERT(back == key);
  });
  EXPECT_TRUE(holds);
}

TEST(Record, PayloadsOfAnyLengthsComeBackInAnyPieces) {
  const bool holds = rc::check([] {
    const auto length = *rc::gen::inRange<uint32_t>(1, 200);
    // Whatever lies behind a payload stays out of it.
    const auto bytes = *rc::gen::container<std::vector<uint8_t>>(payload_room(length), rc::gen::arbitrary<uint8_t>());
    const auto tag = *rc::gen::inRange<uint32_t>(0, 128);
    std::vector<Word> want(words_for(length)), got(words_for(length));
    for (uint32_t w = 0, at = 0; w < want.size(); ++w, at += kWordPayload) {
      std::memcpy(&want[w], bytes.data() + at, std::min(kWordPayload, length - at));
      set_word_tag(want[w], tag);
    }
    store_payload(got.data(), bytes.data(), length, tag);
    RC_ASSERT(std::memcmp(got.data(), want.data(), want.size() * sizeof(Word)) == 0);
    for (const Word& w : got) RC_ASSERT(word_tag(w) == tag);
    std::vector<uint8_t> back(length);
    PayloadReader reader(got.data());
    const auto cut = *rc::gen::inRange<uint32_t>(0, length + 1);
    reader.get(back.data(), cut);
    reader.get(back.data() + cut, length - cut);
    RC_ASSERT(std::memcmp(back.data(), bytes.data(), length) == 0);
  });
  EXPECT_TRUE(holds);
}

// A trace's key may have more flags than a packet: packed, it would be another key.
TEST(Record, KeysThatFitOneWordComeBackWhole) {
  FlowKey key;
  key.family = 4;
  key.src_lo = 1;
  key.dst_lo = 2;
  key.bits = FlowKey::kHasPorts;
  for (uint32_t flags = 0; flags < 0x10000; flags += 0x55) {
    key.flags = static_cast<uint16_t>(flags);
    ASSERT_EQ(fits_key4(key), unpack_key4(pack_key4(key, 3)) == key) << flags;
  }
}

TEST(Record, ResultsComeBackWholeOrAreRedone) {
  const bool holds = rc::check([] {
    const auto value = [](uint32_t most) {
      return *rc::gen::oneOf(rc::gen::inRange<uint32_t>(0, most + 1), rc::gen::arbitrary<uint32_t>());
    };
    const uint32_t rule = value(kMaxKeyRule), next_hop = value(kMaxKeyNextHop);
    const auto mark = *rc::gen::element<uint32_t>(0, 0, 0, 1, 0xffffffffu);
    const auto visited = *rc::gen::inRange<uint32_t>(0, 16);
    const auto output = *rc::gen::element<uint32_t>(0, 1, 15, 16, 200, kDropOutput);
    // Every value that the type has room for, so that the list of reasons can grow up to there.
    const auto reason = static_cast<DropReason>(*rc::gen::inRange<uint32_t>(0, 256));
    const auto tag = *rc::gen::inRange<uint32_t>(0, 128);
    const uint64_t word = pack_result(rule, mark, next_hop, visited, output, reason, tag);
    RC_ASSERT(result_tag(word) == tag);
    const KeyResult back = unpack_result(word);
    const bool fits = rule <= kMaxKeyRule && next_hop <= kMaxKeyNextHop && output != 16 && output != 200;
    RC_ASSERT(back.steps.redo == !fits);
    if (!fits) return;
    RC_ASSERT(back.rule == rule && back.next_hop == next_hop && back.marked == (mark != 0));
    RC_ASSERT(back.steps.visited == visited && back.steps.output == (output & 15));
    RC_ASSERT(back.steps.reason == reason);
  });
  EXPECT_TRUE(holds);
}

TEST(Record, FrameResultsComeBackWholeOrAreRedone) {
  const bool holds = rc::check([] {
    const auto visited = *rc::gen::inRange<uint32_t>(0, 0x10000);
    const auto output = *rc::gen::element<uint32_t>(0, 1, 14, 15, 16, 200, kDropOutput);
    const auto reason = static_cast<DropReason>(*rc::gen::inRange<uint32_t>(0, 256));
    const auto moved = *rc::gen::element<int32_t>(0, -4, 4, -18, 127, -127, 128, -128, 1 << 20);
    const auto cut = *rc::gen::element<uint32_t>(0, 1, 46, kFrameMostCut, kFrameMostCut + 1, ~0u);
    const auto port = *rc::gen::inRange<uint32_t>(0, 0x10000);
    const uint64_t word = pack_frame_result(visited, output, reason, moved, cut, port, false);
    const FrameResult back = unpack_frame_result(word);
    const bool fits = (output < 15 || output == kDropOutput) && moved >= -kFrameMostMoved && moved <= kFrameMostMoved &&
                      cut <= kFrameMostCut;
    RC_ASSERT(back.steps.redo == !fits);
    RC_ASSERT(unpack_frame_result(pack_frame_result(visited, output, reason, moved, cut, port, true)).steps.redo);
    if (!fits) return;
    RC_ASSERT(back.steps.visited == visited && back.steps.output == (output & 15) && back.steps.reason == reason);
    RC_ASSERT(back.moved == moved && back.cut == cut && back.port == port);
  });
  EXPECT_TRUE(holds);
}

// Whether a packet left the last stage is said by where it was, whatever reason it brought along.
TEST(Record, AReasonSaysNothingOfWhereAPacketIs) {
  for (uint32_t reason = 0; reason < 256; ++reason) {
    const auto steps = [&](uint32_t visited, uint32_t output) {
      return unpack_frame_result(pack_frame_result(visited, output, static_cast<DropReason>(reason), 0, 0, 0, false))
          .steps;
    };
    EXPECT_TRUE(steps(0b1001, 0).left_by_first(3));
    EXPECT_FALSE(steps(0b0001, 0).left_by_first(3)) << "it never came there";
    EXPECT_FALSE(steps(0b1001, 1).left_by_first(3));
    EXPECT_FALSE(steps(0b1001, kDropOutput).left_by_first(3));
    EXPECT_FALSE(steps(0b1001, 0).left_by_first(0)) << "it went on";
  }
}

// A place of a ring holds the record of this lap or of the one before it, or nothing yet: their tags must differ.
TEST(Record, TagsOfNeighbouringLapsDiffer) {
  EXPECT_NE(tag_lap(make_tag(1, 0)), 0u) << "memory that was never written must not look like lap 1";
  for (uint64_t lap = 1; lap < 1000; ++lap) {
    EXPECT_NE(tag_lap(make_tag(lap, 0)), tag_lap(make_tag(lap + 1, 0)));
    EXPECT_EQ(tag_lap(make_tag(lap, 0)), tag_lap(make_tag(lap, 1)));
    EXPECT_EQ(tag_parity(make_tag(lap, 1)), 1u);
  }
}

// However the run lies to cache lines, and wherever its first stranger stands.
TEST(Record, LeadingResultsStopAtTheFirstOtherTag) {
  const bool holds = rc::check([] {
    const auto tag = *rc::gen::inRange<uint32_t>(0, 128);
    const auto n = *rc::gen::inRange<uint32_t>(0, 70);
    const auto start = *rc::gen::inRange<uint32_t>(0, 9);
    const auto stranger = *rc::gen::inRange<uint32_t>(0, 90);  // past n: none
    const auto other = (tag + *rc::gen::inRange<uint32_t>(1, 128)) & 127u;
    alignas(64) uint64_t results[80];
    for (uint32_t i = 0; i < 80; ++i) results[i] = uint64_t{tag} << 57 | *rc::gen::inRange<uint64_t>(0, 1ull << 57);
    if (stranger < n) results[start + stranger] ^= uint64_t{tag ^ other} << 57;
    RC_ASSERT(leading_results(results + start, n, tag) == std::min(n, stranger));
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace sluice
