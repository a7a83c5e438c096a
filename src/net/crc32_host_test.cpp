#include "net/crc32_host.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <vector>

#if defined(SLUICE_HAVE_ISAL)
#include <isa-l/crc.h>
#endif

namespace sluice {
namespace {

constexpr Crc32Mode kModes[] = {Crc32Mode::kClick, Crc32Mode::kFcs};

std::vector<uint8_t> noise(size_t bytes) {
  std::vector<uint8_t> out(bytes);
  uint64_t state = 0x9e3779b97f4a7c15;
  for (uint8_t& byte : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return out;
}

TEST(Crc32Host, PowersOfXAreAGroup) {
  for (const bool reflected : {false, true}) {
    EXPECT_EQ(crc32_power(reflected, 0), reflected ? 0x80000000u : 1u);
    EXPECT_EQ(crc32_power(reflected, 32), reflected ? kCrc32PolyReflected : kCrc32Poly);
    for (const int64_t e : {int64_t{1}, int64_t{31}, int64_t{512}, int64_t{123456}}) {
      EXPECT_EQ(crc32_detail::multiply(reflected, crc32_power(reflected, e), crc32_power(reflected, -e)),
                crc32_power(reflected, 0));
    }
  }
}

TEST(Crc32Host, EveryLengthOfEveryKernelGivesTheBitwiseOracle) {
  constexpr uint32_t kLongest = 9216;
  const std::vector<uint8_t> data = noise(kLongest + 64);
  for (const uint32_t offset : {0u, 1u, 13u, 63u}) {
    for (const Crc32Mode mode : kModes) {
      uint32_t start = offset == 13 ? 0x12345678u : kCrc32Start;
      uint32_t want = start;
      for (uint32_t n = 0; n <= kLongest; ++n) {
        for (const Crc32KernelName& k : crc32_kernels()) {
          ASSERT_EQ(k.kernel(mode, start, data.data() + offset, n), want) << k.name << ", " << n << " bytes";
        }
        want = crc32_bitwise(mode, want, data.data() + offset + n, 1);
      }
    }
  }
}

// Pages that cannot be read stand before and behind the bytes.
TEST(Crc32Host, NothingOutsideIsRead) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const all = mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(all, MAP_FAILED);
  uint8_t* const data = static_cast<uint8_t*>(all) + page;
  ASSERT_EQ(mprotect(data, page, PROT_READ | PROT_WRITE), 0);
  const std::vector<uint8_t> bytes = noise(page);
  std::memcpy(data, bytes.data(), page);
  for (uint32_t n = 0; n <= page; n += n < 400 ? 1 : 97) {
    for (const Crc32Mode mode : kModes) {
      for (const uint8_t* from : {data, data + page - n}) {
        const uint32_t want = crc32_update(mode, kCrc32Start, from, n);
        for (const Crc32KernelName& k : crc32_kernels()) {
          ASSERT_EQ(k.kernel(mode, kCrc32Start, from, n), want) << k.name << ", " << n << " bytes";
        }
      }
    }
  }
  munmap(all, 3 * page);
}

TEST(Crc32Host, EqualsZlib) {
  const std::vector<uint8_t> data = noise(9217);
  for (uint32_t n = 0; n <= 9216; ++n) {
    ASSERT_EQ(~crc32_host(Crc32Mode::kFcs, kCrc32Start, data.data() + 1, n), ::crc32(0, data.data() + 1, n)) << n;
  }
}

TEST(Crc32Host, EqualsIsaL) {
#if defined(SLUICE_HAVE_ISAL)
  std::vector<uint8_t> data = noise(9217);
  for (uint32_t n = 0; n <= 9216; ++n) {
    uint8_t* const from = data.data() + 1;
    ASSERT_EQ(~crc32_host(Crc32Mode::kFcs, kCrc32Start, from, n), crc32_gzip_refl(0, from, n)) << n;
    ASSERT_EQ(~crc32_host(Crc32Mode::kClick, kCrc32Start, from, n), crc32_ieee(0, from, n)) << n;
  }
#else
  GTEST_SKIP() << "built without ISA-L (libisal-dev)";
#endif
}

}  // namespace
}  // namespace sluice
