// Flight: keys given as columns are the records that one key after another makes, wherever the memory of a ring ends.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "exec/device/channel.h"
#include "net/flow_key.h"

namespace sluice {
namespace {

constexpr uint32_t kCapacity = 64;

Flight flight_at(uint64_t first, Word* in, const void* out) {
  ChannelShape shape;
  Flight f(shape, kCapacity, 1, 0);
  f.ring = true;
  f.in = in;
  f.out = static_cast<const std::byte*>(out);
  f.first = first;
  f.lap0 = 1;
  f.mask = kCapacity - 1;
  f.shift = 6;
  return f;
}

void expect_columns_are_records(const RecordWindow& window) {
  uint64_t state = 1;
  for (uint64_t first = 0; first < 140; ++first) {
    alignas(64) Word columns[kCapacity] = {}, singles[kCapacity] = {};
    uint64_t results[kCapacity];
    for (uint32_t i = 0; i < kCapacity; ++i) results[i] = mix64(++state);
    Flight a = flight_at(first, columns, results);
    Flight b = flight_at(first, singles, results);
    a.window = window;
    uint32_t source[32], destination[32], ports[32], rest[32];
    for (const uint32_t n : {1u + static_cast<uint32_t>(first % 32), 31u}) {
      for (uint32_t i = 0; i < n; ++i) {
        FlowKey key;
        key.family = 4;
        key.src_lo = static_cast<uint32_t>(mix64(++state));
        key.dst_lo = static_cast<uint32_t>(mix64(++state));
        key.protocol = 6;
        key.bits = FlowKey::kHasPorts;
        key.src_port = static_cast<uint16_t>(mix64(++state));
        const Key4 packed = pack_key4(key);
        source[i] = packed.source;
        destination[i] = packed.destination;
        ports[i] = packed.ports;
        rest[i] = packed.rest;
        b.put_key(key);
      }
      a.put_keys(source, destination, ports, rest, n);
      ASSERT_EQ(a.count, b.count);
    }
    ASSERT_EQ(std::memcmp(columns, singles, sizeof columns), 0) << "from record " << first;
    // Read back, in runs that end at, before and behind the memory's end.
    for (uint32_t i = 0; i < a.count; ++i) {
      const uint32_t n = std::min(a.count - i, 32u);
      std::byte copy[32 * sizeof(Word)];
      const std::byte* records = a.key_records(i, n, copy);
      uint64_t words[32];
      a.key_results(i, n, words);
      for (uint32_t k = 0; k < n; ++k) {
        ASSERT_EQ(std::memcmp(records + k * sizeof(Word), a.record(i + k), sizeof(Word)), 0) << first << ' ' << i;
        ASSERT_EQ(words[k], a.key_result(i + k)) << first << ' ' << i;
      }
    }
  }
}

TEST(Flight, ColumnsOfKeysAreRecordsOfOneAfterAnother) {
  expect_columns_are_records({});
}

TEST(Flight, SoTheyAreWhereNobodyElseReadsThem) {
  alignas(64) std::byte lines[kCapacity * sizeof(Word)];
  expect_columns_are_records({lines, &copy_lines_as_words, false, column_put()});
}

}  // namespace
}  // namespace sluice
