#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <string_view>

#include "base/group.h"
#include "base/group_threads.h"
#include "elements/crc32/stage.h"
#include "elements/testing.h"

namespace sluice {
namespace {

using testing::expect;

const uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

std::vector<uint8_t> counting(size_t n) {
  std::vector<uint8_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
  return out;
}

TEST(Crc32, KnownVectors) {
  const std::string_view check = "123456789";
  for (auto crc : {crc32_bitwise, crc32_update}) {
    EXPECT_EQ(crc32_finish(Crc32Mode::kClick, crc(Crc32Mode::kClick, kCrc32Start, bytes_of(check), 9)), 0x0376e6e7u);
    EXPECT_EQ(crc32_finish(Crc32Mode::kFcs, crc(Crc32Mode::kFcs, kCrc32Start, bytes_of(check), 9)), 0xcbf43926u);
    EXPECT_EQ(crc32_finish(Crc32Mode::kFcs, crc(Crc32Mode::kFcs, kCrc32Start, bytes_of(check), 0)), 0u);
  }
}

TEST(Crc32, TableAgreesWithTheBitwiseOracle) {
  EXPECT_TRUE(rc::check([](const std::vector<uint8_t>& data, uint32_t start) {
    for (Crc32Mode mode : {Crc32Mode::kClick, Crc32Mode::kFcs}) {
      const auto n = static_cast<uint32_t>(data.size());
      RC_ASSERT(crc32_update(mode, start, data.data(), n) == crc32_bitwise(mode, start, data.data(), n));
    }
  }));
}

TEST(Crc32, ShiftIsThatManyZeroBytes) {
  const std::vector<uint8_t> zeros(70000);
  for (Crc32Mode mode : {Crc32Mode::kClick, Crc32Mode::kFcs}) {
    for (uint32_t n : {0u, 1u, 2u, 3u, 7u, 64u, 255u, 1500u, 65536u, 69999u}) {
      for (uint32_t crc : {0u, 1u, 0x80000000u, 0xdeadbeefu}) {
        EXPECT_EQ(crc32_shift(mode, crc, n), crc32_bitwise(mode, crc, zeros.data(), n)) << n;
      }
    }
  }
}

TEST(Crc32, EveryNumberOfLanesGivesTheOracle) {
  for (uint32_t lanes : {1u, 2u, 3u, 8u}) {
    for (Crc32Mode mode : {Crc32Mode::kClick, Crc32Mode::kFcs}) {
      for (uint32_t n : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 60u, 64u, 1499u, 1500u, 9001u}) {
        const std::vector<uint8_t> data = counting(n);
        const uint32_t want = crc32_bitwise(mode, kCrc32Start, data.data(), n);
        EXPECT_EQ(crc32_group(OneLane{}, mode, data.data(), n), want);
        std::vector<uint32_t> got(lanes);
        ThreadGroup group(lanes);
        group.run([&](const ThreadLane& lane) { got[lane.lane()] = crc32_group(lane, mode, data.data(), n); });
        for (uint32_t value : got) EXPECT_EQ(value, want) << lanes << " lanes, " << n << " bytes";
      }
    }
  }
}

// A tile of packets of several lengths, with some lanes off.
struct Tile {
  std::vector<std::vector<uint8_t>> storage;
  Packet packets[32];
  uint8_t outputs[32];

  explicit Tile(uint32_t step) {
    for (uint32_t i = 0; i < 32; ++i) {
      storage.push_back(counting(kHeadroom + i * step + kTailroom));
      packets[i].frame = storage[i].data() + kHeadroom;
      packets[i].end = packets[i].wire_end = i * step;
      outputs[i] = 99;
    }
  }
};

TEST(Crc32, SetAndCheckAgreeOverAnyGroup) {
  constexpr uint32_t kMask = 0xf0f0a5ffu;
  for (uint32_t lanes : {1u, 2u, 3u, 8u}) {
    for (Crc32Mode mode : {Crc32Mode::kClick, Crc32Mode::kFcs}) {
      Tile tile(47);
      ThreadGroup group(lanes);
      const SetCrc32Stage set{mode};
      const CheckCrc32Stage check{mode};
      group.run([&](const ThreadLane& lane) { set.team(lane, tile.packets, kMask, tile.outputs); });
      for (uint32_t i = 0; i < 32; ++i) {
        if ((kMask >> i & 1) == 0) {
          EXPECT_EQ(tile.outputs[i], 99);
          EXPECT_EQ(tile.packets[i].end, i * 47);
          continue;
        }
        EXPECT_EQ(tile.outputs[i], 0);
        EXPECT_EQ(tile.packets[i].end, i * 47 + 4);
        const uint32_t want = crc32_finish(mode, crc32_bitwise(mode, kCrc32Start, tile.packets[i].frame, i * 47));
        uint32_t stored;
        std::memcpy(&stored, tile.packets[i].frame + i * 47, 4);
        EXPECT_EQ(stored, want);
      }
      tile.packets[3].frame[5] ^= 0x10;  // damage one
      group.run([&](const ThreadLane& lane) { check.team(lane, tile.packets, kMask, tile.outputs); });
      for (uint32_t i = 0; i < 32; ++i) {
        if ((kMask >> i & 1) == 0) continue;
        EXPECT_EQ(tile.outputs[i], i == 3 ? 1 : 0) << i;
        EXPECT_EQ(tile.packets[i].end, i * 47 + (i == 3 ? 4 : 0));
      }
      EXPECT_EQ(tile.packets[3].reason, DropReason::kBadCrc);
    }
  }
}

TEST(Crc32Elements, AppendAndTakeOffTheSameBytes) {
  const auto frame = udp4("10.0.0.1", "192.0.2.7").build();
  for (const char* mode : {"", "MODE click", "MODE fcs"}) {
    const std::string m = mode;
    EXPECT_EQ(expect(frame).through("SetCRC32(" + m + ") -> CheckCRC32(" + m + ")").passes().bytes(), frame);
  }
  expect(frame).through("SetCRC32(MODE click) -> CheckCRC32(MODE fcs)").drops(DropReason::kBadCrc).leaves_by(1);
}

TEST(Crc32Elements, TooShortOrCutOff) {
  expect(std::vector<uint8_t>(3)).through("CheckCRC32").drops(DropReason::kBadCrc);
  expect(std::vector<uint8_t>(60)).captured_of(100).through("CheckCRC32").drops(DropReason::kCapturedTooShort);
  expect(std::vector<uint8_t>(60)).captured_of(100).through("SetCRC32").drops(DropReason::kCapturedTooShort);
}

TEST(Crc32Elements, TheTailRoomEnds) {
  std::string chain = "SetCRC32";
  for (int i = 1; i < 16; ++i) chain += " -> SetCRC32";
  EXPECT_EQ(expect(std::vector<uint8_t>(60)).through(chain).passes().packet.length(), 124u);
  expect(std::vector<uint8_t>(60)).through(chain + " -> SetCRC32").drops(DropReason::kNoTailroom);
}

}  // namespace
}  // namespace sluice
