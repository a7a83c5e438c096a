// Long arrays of entries: filled, and searched for their highest. By whole lines: a compiler that does not optimise for
// vectors, and a sanitizer that looks at every access, take an entry at a time otherwise, and a table has 2^24. host
// only
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice {

template <typename Entry>
struct LineOf {
  typedef Entry Type __attribute__((vector_size(64)));
  static constexpr size_t kEntries = 64 / sizeof(Entry);
};

// 0 of none.
template <typename Entry>
uint32_t highest_entry(const Entry* entries, size_t n) {
  using Line = typename LineOf<Entry>::Type;
  Line highest = {};
  const size_t lines = n / LineOf<Entry>::kEntries, rest = n % LineOf<Entry>::kEntries;
  for (size_t k = 0; k < lines; ++k, entries += LineOf<Entry>::kEntries) {
    Line line;
    std::memcpy(&line, entries, sizeof line);
    highest = line > highest ? line : highest;
  }
  Entry most = 0;
  for (size_t k = 0; k < LineOf<Entry>::kEntries; ++k) most = std::max<Entry>(most, highest[k]);
  for (size_t k = 0; k < rest; ++k) most = std::max(most, entries[k]);
  return most;
}

template <typename Entry>
void fill_entries(Entry* first, size_t n, Entry value) {
  using Line = typename LineOf<Entry>::Type;
  const Line line = value - Line{};  // in every place
  const size_t lines = n / LineOf<Entry>::kEntries, rest = n % LineOf<Entry>::kEntries;
  for (size_t k = 0; k < lines; ++k, first += LineOf<Entry>::kEntries) std::memcpy(first, &line, sizeof line);
  for (size_t k = 0; k < rest; ++k) first[k] = value;
}

}  // namespace sluice
