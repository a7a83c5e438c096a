// host only
// Whole 64-byte lines, for memory that is written over a bus.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/device/word.h"

namespace sluice {

// Copies `lines` lines; both addresses are multiples of 64.
using CopyLines = void (*)(std::byte* to, const std::byte* from, size_t lines);

// One store a line, which nothing splits: MOVDIR64B (Intel SDM volume 2: 64-byte write atomicity), else a 64-byte
// AVX-512 store, which fills a write-combining buffer at once. nullptr: this processor has neither.
CopyLines whole_line_copy();

// A word at a time, as HostWords stores it: for memory that host threads poll.
void copy_lines_as_words(std::byte* to, const std::byte* from, size_t lines);

// Whether lines that whole_line_copy() wrote may wait in a buffer for more to come, until flush_lines().
bool lines_combine();
// What was copied before is on its way when this returns, and nothing after it overtakes it.
void flush_lines();

// Writes 16 n one-word records that are given as columns, `bits` added to the last part of each. For memory that nobody
// else reads: a word may come in pieces. nullptr: this processor has no 64-byte vectors.
using PutColumns = void (*)(Word* to, const uint32_t* w0, const uint32_t* w1, const uint32_t* w2, const uint32_t* w3,
                            uint32_t bits, uint32_t n);
PutColumns column_put();

}  // namespace sluice
