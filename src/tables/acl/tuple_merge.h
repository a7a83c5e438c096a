// Few coarse hash tables whose buckets are blocks of eight rules, compared at once.
//
// After TupleMerge (Daly et al., ToN 2019), built offline and shaped by what a packet costs on a vector machine: a
// probe of a table for 16 packets is one hash and one gather, a block of eight whole rules is verified in a dozen
// vector instructions, a branch that goes wrong costs more than either. So tables are few and coarse, a bucket holds 24
// rules (up to 128 where no tuple gains enough, the last table's any number), and each is verified without a branch. A
// tuple may leave any bit out: blocks are compared whole, so it never decides a result, and small buckets share blocks.
//
//   table       masks; slots [slot_base, + 2^(32 - slot_shift)), picked by the hash's high bits
//   slot (u32)  tag:8 | 1 + first block:24; 0: empty; tag 0: several keys, any passes
//   block       8 rules as columns, best first; kMore in the last rule word: the bucket goes on in the next block
//   loose       the few rules that no table is worth: compared with every packet, or
//   bitmap       for every byte of an IPv4 key, a bit for each loose rule that the byte's value leaves possible
//
// IPv4 keys search the narrow tables (blocks of 256 bytes), all others the wide ones (448 bytes); rules without a
// family stand in both.
#pragma once

#include "base/result.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/tuple_merge_lookup.h"
#include "tables/acl/tuple_merge_team.h"
#include "tables/acl/tuple_merge_view.h"
#include "tables/image.h"
#include "tables/target.h"

namespace sluice {

struct TupleMergeAcl {
  static constexpr const char* kName = "tuple_merge";
  static constexpr const char* kSectionName = "tuplemrg";
  static constexpr const char* kSummary = "few coarse hash tables, rules verified eight at a time";
  using View = TupleMergeView;
  // About 40 bytes a rule (IPv4) besides the rules, actions and sources. Errors: a rule set that check_rule_set
  // refuses, memory.
  // For a core, short lists have loose rules by the hundred and hardly a table; a device's team reads one part of a
  // bitmap.
  static Result<Image> build(const RuleSet& set, TableTarget target = TableTarget::kCpu);
};

}  // namespace sluice
