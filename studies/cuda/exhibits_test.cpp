// The kernels that only benchmarks run, against the host: the same results, bit for bit.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/bits.h"
#include "exec/cuda/cuda_test_support.h"
#include "exec/cuda/open_cuda.h"
#include "studies/cuda/resident.h"
#include "studies/spark/cuda/flag_ring.h"
#include "tables/lpm/algorithms.h"

namespace sluice {
namespace {

using namespace cuda_test;

class CudaExhibits : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceCount found = count_cuda_devices();
    if (found.count == 0) GTEST_SKIP() << "no CUDA device: " << found.why_none;
    CudaOptions options;
    options.reserve_bytes = size_t{16} << 20;
    device_ = must(open_cuda_device(0, options));
  }

  std::unique_ptr<Device> device_;
  Tables tables_{11};
  std::unique_ptr<Loaded> loaded_;
};

TEST_F(CudaExhibits, TheFlagRingAgrees) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 256, RecordKind::kKey4);
  for (const Named& named : key_programs(tables_, RecordKind::kKey4)) {
    SCOPED_TRACE(named.name);
    auto ring = must(FlagRing::start(*device_, (*loaded_)(named.program), 256));
    for (uint32_t round = 1; round <= 3; ++round) {
      const uint32_t count = round == 2 ? 45 : 256;
      for (uint32_t i = 0; i < count; ++i) write_record(named.program, items[i], round, ring->in() + i);
      ring->ring(count);
      const auto limit = std::chrono::steady_clock::now() + kPatience;
      while (!ring->done()) ASSERT_LT(std::chrono::steady_clock::now(), limit);
      for (uint32_t i = 0; i < count; ++i) {
        Word in;
        write_record(named.program, items[i], round, &in);
        const uint64_t want = expected_of(named.program, &in, round);
        ASSERT_EQ(memcmp(ring->out() + i, &want, sizeof want), 0) << i;
      }
    }
    EXPECT_TRUE(ring->stop().ok());
  }
}

TEST_F(CudaExhibits, ResidentRunsAgree) {
  loaded_ = std::make_unique<Loaded>(*device_, tables_);
  const auto items = some_items(tables_, 1000, RecordKind::kKey4);
  std::vector<Word> records(items.size());
  std::vector<uint32_t> addresses;
  for (const Named& named : key_programs(tables_, RecordKind::kKey4)) {
    SCOPED_TRACE(named.name);
    addresses.clear();
    for (size_t i = 0; i < items.size(); ++i) {
      write_record(named.program, items[i], 1, &records[i]);
      addresses.push_back(static_cast<uint32_t>(items[i].key.dst_lo));
    }
    for (const ResidentField field : {ResidentField::kRule, ResidentField::kNextHop, ResidentField::kSteps}) {
      std::vector<uint32_t> got(items.size(), ~0u);
      const auto rates = must(resident_rate(*device_, (*loaded_)(named.program), records, field, got.data(), 2));
      EXPECT_EQ(rates.size(), 2u);
      size_t wrong = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        const KeyResult want = unpack_result(expected_of(named.program, &records[i], 0));
        const uint32_t steps =
            want.steps.visited | uint32_t{want.steps.output} << 8 | static_cast<uint32_t>(want.steps.reason) << 16;
        // What does not fit a result (a mark) fits a field.
        if (want.steps.redo) continue;
        wrong += got[i] != (field == ResidentField::kRule      ? want.rule
                            : field == ResidentField::kNextHop ? want.next_hop
                                                               : steps)
                     ? 1
                     : 0;
      }
      EXPECT_EQ(wrong, 0u);
    }
  }
}

// Every algorithm's lookups alone, whatever the number of addresses, with and without a cache window.
TEST_F(CudaExhibits, ResidentLookupsAgree) {
  Rib rib = lpm_test::random_rib(9, 3000, 40);
  rib.add4(0, 1, 3);
  rib.add6(uint64_t{0x2000} << 48, 0, 3, 4);
  rib.settle();
  uint64_t state = 9;
  std::vector<uint32_t> v4(5003);
  for (uint32_t& address : v4) address = static_cast<uint32_t>(mix64(++state));
  std::vector<uint64_t> v6;
  for (size_t i = 0; i < 3001; ++i) {
    v6.push_back(0x2000000000000000u | mix64(++state) >> 3);
    v6.push_back(mix64(++state));
  }
  for (const LpmSummary& algorithm : lpm_summaries()) {
    SCOPED_TRACE(algorithm.name);
    const Image image = must(build_routes(rib, algorithm.ipv4 ? algorithm.name : Trie::kName,
                                          algorithm.ipv6 ? algorithm.name : Trie::kName));
    for (const bool window : {false, true}) {
      std::vector<uint32_t> hops(v4.size(), ~0u);
      EXPECT_EQ(must(resident_lookups4(*device_, image, v4, hops.data(), 1, {.window = window})).size(), 1u);
      std::vector<uint32_t> fed(v4.size(), ~0u);
      EXPECT_EQ(must(fed_lookups4(*device_, image, v4, fed.data(), 2, window)).rates.size(), 2u);
      EXPECT_EQ(fed, hops);
      for (const bool fresh : {false, true}) {
        fed.assign(v4.size(), ~0u);
        EXPECT_EQ(must(lookups_in_a_row4(*device_, image, v4, fed.data(), 3, window, fresh)).size(), 3u);
        EXPECT_EQ(fed, hops);
      }
      size_t wrong = 0;
      EXPECT_TRUE(with_fib4(image, [&](const auto& view) {
                    for (size_t i = 0; i < v4.size(); ++i) wrong += hops[i] != view.lookup(v4[i]) ? 1 : 0;
                  }).ok());
      EXPECT_EQ(wrong, 0u);
      hops.assign(v6.size() / 2, ~0u);
      EXPECT_EQ(must(resident_lookups6(*device_, image, v6, hops.data(), 1, {.window = window})).size(), 1u);
      fed.assign(v6.size() / 2, ~0u);
      EXPECT_EQ(must(fed_lookups6(*device_, image, v6, fed.data(), 2, window)).rates.size(), 2u);
      EXPECT_EQ(fed, hops);
      EXPECT_TRUE(with_fib6(image, [&](const auto& view) {
                    for (size_t i = 0; i < hops.size(); ++i) {
                      wrong += hops[i] != view.lookup(v6[2 * i], v6[2 * i + 1]) ? 1 : 0;
                    }
                  }).ok());
      EXPECT_EQ(wrong, 0u);
    }
  }
}

// The same lookups by tables in constant and in shared memory; what does not fit is refused with both sizes.
TEST_F(CudaExhibits, ResidentLookupsAgreeInEveryMemory) {
  uint64_t state = 19;
  std::vector<uint32_t> v4(50'003);
  for (uint32_t& address : v4) address = static_cast<uint32_t>(mix64(++state));
  std::vector<uint64_t> v6;
  for (size_t i = 0; i < 30'001; ++i) {
    v6.push_back(0x2000000000000000u | mix64(++state) >> 3);
    v6.push_back(mix64(++state));
  }
  size_t found = 0, refused = 0;
  for (const uint32_t routes : {20u, 700u, 3000u}) {
    Rib rib = lpm_test::random_rib(9, routes, 40);
    rib.add4(0, 1, 3);
    rib.add6(uint64_t{0x2000} << 48, 0, 3, 4);
    rib.settle();
    for (const LpmSummary& algorithm : lpm_summaries()) {
      SCOPED_TRACE(algorithm.name + std::string(", ") + std::to_string(routes));
      const Image image = must(build_routes(rib, algorithm.ipv4 ? algorithm.name : Trie::kName,
                                            algorithm.ipv6 ? algorithm.name : Trie::kName));
      for (const TableMemory memory : {TableMemory::kConstant, TableMemory::kShared}) {
        SCOPED_TRACE(to_string(memory));
        const size_t room = table_room(memory, RecordKind::kKey4, device_->info().shared_bytes);
        // `wrong`: how many next hops are not the host's.
        const auto check = [&](const auto& rates, size_t bytes, const auto& wrong) {
          if (bytes > room) {
            ASSERT_FALSE(rates.ok());
            for (const size_t size : {bytes, room})
              EXPECT_NE(rates.error().message.find(std::to_string(size)), std::string::npos) << rates.error().message;
            ++refused;
            return;
          }
          ASSERT_TRUE(rates.ok()) << to_string(rates.error());
          EXPECT_EQ(wrong(), 0u);
          ++found;
        };
        std::vector<uint32_t> hops(v4.size(), ~0u);
        const auto rates4 = resident_lookups4(*device_, image, v4, hops.data(), 1, {memory});
        check(rates4, image.section(SectionTag::kFib4).size(), [&] {
          size_t wrong = 0;
          EXPECT_TRUE(with_fib4(image, [&](const auto& view) {
                        for (size_t i = 0; i < v4.size(); ++i) wrong += hops[i] != view.lookup(v4[i]) ? 1 : 0;
                      }).ok());
          return wrong;
        });
        hops.assign(v6.size() / 2, ~0u);
        const auto rates6 = resident_lookups6(*device_, image, v6, hops.data(), 1, {memory});
        check(rates6, image.section(SectionTag::kFib6).size(), [&] {
          size_t wrong = 0;
          EXPECT_TRUE(with_fib6(image, [&](const auto& view) {
                        for (size_t i = 0; i < hops.size(); ++i)
                          wrong += hops[i] != view.lookup(v6[2 * i], v6[2 * i + 1]) ? 1 : 0;
                      }).ok());
          return wrong;
        });
      }
    }
  }
  EXPECT_GT(found, 20u);
  EXPECT_GT(refused, 2u);
}

}  // namespace
}  // namespace sluice
