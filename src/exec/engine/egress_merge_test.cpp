// What comes in any order leaves in that of the input.
#include "exec/engine/egress_merge.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace sluice {
namespace {

using Released = std::tuple<uint64_t, size_t, uint32_t, std::string>;  // number, sink, sequence, bytes

TEST(EgressMerge, GivesTheOrderOfTheInput) {
  std::mt19937 random(1);
  for (unsigned round = 0; round < 50; ++round) {
    EgressMerge merge;
    std::vector<Released> want, left;
    const uint64_t n = 1 + random() % 3000;
    std::vector<std::vector<Released>> of(n);
    for (uint64_t number = 0; number < n; ++number) {
      for (uint32_t k = random() % 4; k != 0; --k)
        of[number].emplace_back(number, k % 2, 3 - k, std::to_string(number) + std::string(random() % 9, 'x'));
      want.insert(want.end(), of[number].begin(), of[number].end());
      std::shuffle(of[number].begin(), of[number].end(), random);
    }
    // Three streams, each in order; some numbers come with nothing.
    std::vector<std::vector<uint64_t>> streams(3);
    for (uint64_t number = 0; number < n; ++number) streams[random() % 3].push_back(number);
    std::vector<size_t> at(3);
    const auto take = [&](size_t s, const TxRecord& r) {
      left.emplace_back(r.timestamp_ns, s, r.sequence, std::string(reinterpret_cast<const char*>(r.data), r.captured));
    };
    for (uint64_t came = 0; came < n;) {
      const size_t s = random() % 3;
      for (unsigned chunk = random() % 40; chunk != 0 && at[s] < streams[s].size(); --chunk, ++came) {
        const uint64_t number = streams[s][at[s]++];
        for (const auto& [same, sink, sequence, bytes] : of[number]) {
          const std::string copy = bytes;
          TxRecord r{};
          r.data = reinterpret_cast<const uint8_t*>(copy.data());
          r.captured = static_cast<uint32_t>(copy.size());
          r.timestamp_ns = number;
          r.sequence = sequence;
          merge.put(number, sink, r);
        }
        if (random() % 500 != 0) merge.done(number);  // or it never is
      }
      merge.release(false, take);
      merge.forget();
    }
    merge.release(true, take);
    merge.forget();
    EXPECT_EQ(merge.held(), 0u);
    EXPECT_TRUE(left == want);
    merge.restart();
  }
}

}  // namespace
}  // namespace sluice
