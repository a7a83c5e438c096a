// host only
// Whole 64-byte lines, for memory that is written over a bus.
#pragma once

#include <cstddef>

namespace sluice {

// Copies `lines` lines; both addresses are multiples of 64.
using CopyLines = void (*)(std::byte* to, const std::byte* from, size_t lines);

// One store a line, which nothing splits: MOVDIR64B (Intel SDM volume 2: 64-byte write atomicity), else a 64-byte
// AVX-512 store, which fills a write-combining buffer at once. nullptr: this processor has neither.
CopyLines whole_line_copy();

// A word at a time, as HostWords stores it: for memory that host threads poll.
void copy_lines_as_words(std::byte* to, const std::byte* from, size_t lines);

// What was copied before is on its way when this returns.
void flush_lines();

}  // namespace sluice
