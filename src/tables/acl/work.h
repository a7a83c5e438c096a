// What a lookup does, counted: for choosing between structures, and for fitting what each step costs. Host only.
#pragma once

#include "base/result.h"
#include "tables/image.h"

namespace sluice {

// Steps a packet on average, over 2,048 packets drawn from the rules, always the same ones for the same rules.
struct AclWork {
  double tables = 0;    // hash tables that are probed
  double reads = 0;     // rules (tuple_space), blocks of eight (tuple_merge), rows of 512 bits (bitvec)
  bool pruned = false;  // tuple_space: the fields say first which tables matter
  bool wide = false;    // tuple_merge: a bitmap of four parts
  bool bitmap = false;  // tuple_merge: loose rules go through a bitmap
};
// Errors: not an ACL image, or of an algorithm that does not count its steps (linear).
Result<AclWork> acl_work(const Image& image);

}  // namespace sluice
