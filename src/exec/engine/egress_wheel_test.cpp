// Packets that wait at a sink: all leave, whatever their time stamps say.
#include "exec/engine/egress_wheel.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace sluice {
namespace {

struct Passed {
  uint64_t stamp_ns;
  uint64_t departure_ns;  // 0: nothing delays it
};

// The places of the packets in the order in which they leave, with the time stamps that they have then.
std::vector<std::pair<uint32_t, uint64_t>> pass_all(uint32_t capacity, const std::vector<Passed>& in) {
  EgressWheel wheel(capacity);
  std::vector<std::pair<uint32_t, uint64_t>> left;
  std::vector<TxRecord> out;
  const auto take = [&] {
    for (const TxRecord& record : out) left.emplace_back(record.order, record.timestamp_ns);
    out.clear();
    wheel.forget();
  };
  const uint8_t byte = 0;
  for (uint32_t i = 0; i < in.size(); ++i) {
    TxRecord record{};
    record.data = &byte;
    record.captured = record.wire = 1;
    record.timestamp_ns = in[i].stamp_ns;
    record.order = i;
    wheel.pass(record, in[i].departure_ns, out);
    take();
  }
  wheel.drain(out);
  take();
  EXPECT_EQ(wheel.size(), 0u);
  return left;
}
using Left = std::vector<std::pair<uint32_t, uint64_t>>;

TEST(EgressWheel, AStampThatGoesBackIsTheLatest) {
  // All are due when the first has come: none waits, whatever room there is.
  EXPECT_EQ(pass_all(1, {{10'000, 10'000}, {9'500, 10'000}, {9'500, 10'000}}),
            (Left{{0, 10'000}, {1, 10'000}, {2, 10'000}}));
  // What nothing delays keeps its stamp.
  EXPECT_EQ(pass_all(1, {{10'000, 0}, {9'500, 0}}), (Left{{0, 10'000}, {1, 9'500}}));
  EXPECT_EQ(pass_all(4, {{100, 300}, {90, 200}, {250, 0}, {80, 0}}), (Left{{1, 200}, {2, 250}, {3, 80}, {0, 300}}));
}

// More than there is room for: those that are due first leave early, with their departures, and none is lost.
TEST(EgressWheel, LosesNothingWhereThereIsNoRoom) {
  std::mt19937_64 random(7);
  for (const uint32_t capacity : {1u, 2u, 7u}) {
    std::vector<Passed> in;
    uint64_t departure = 1'000'000;
    for (uint32_t i = 0; i < 3'000; ++i) {
      departure += random() % 3 == 0 ? random() % 1'000'000 : 0;
      in.push_back({900'000 + random() % 200'000, departure});
    }
    const Left left = pass_all(capacity, in);
    ASSERT_EQ(left.size(), in.size());
    std::set<uint32_t> seen;
    for (const auto& [order, stamp] : left) {
      EXPECT_TRUE(seen.insert(order).second);
      EXPECT_EQ(stamp, std::max(in[order].stamp_ns, in[order].departure_ns));
    }
  }
}

}  // namespace
}  // namespace sluice
