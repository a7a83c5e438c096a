// ACL: the verdict of an access list on one packet. Host and device.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hd.h"
#include "batch/fast_burst.h"
#include "batch/packet.h"
#include "tables/acl/algorithms.h"

namespace sluice {

// `View` is the lookup structure of one ACL algorithm (tables/acl/algorithms.h). Output 0: permitted; output 1: denied.
template <typename View>
struct AclStage {
  static constexpr FieldMask kReads = kFieldKey;
  static constexpr FieldMask kWrites = kFieldRule | kFieldMark | kFieldReason;

  View view;
  AclActionsView actions;
  uint32_t permit_by_default = 0;
  // IPFilter: the mark is the output that a packet leaves by; what is denied or matches nothing is dropped. Neither
  // mark nor rule are written.
  uint32_t output_is_mark = 0;

  // Every pointer that the stage holds: f(pointer) into an image, f(pointer, count) to an array of the element's own.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    view.each_pointer(f);
    actions.each_pointer(f);
  }

  SLUICE_HD uint8_t apply(Packet& p, uint32_t rule) const {
    if (output_is_mark != 0) return classify(p, rule);
    p.rule = rule;
    if (rule == 0) return permit_by_default != 0 ? uint8_t{0} : fail(p, DropReason::kAclNoMatch, 1);
    const AclAction action = actions.action(rule);
    if (action.verb == AclVerb::kDeny) return fail(p, DropReason::kAclDeny, 1);
    if (action.verb == AclVerb::kMark) p.mark = action.mark;
    return 0;
  }

  SLUICE_HD uint8_t classify(Packet& p, uint32_t rule) const {
    const AclAction action = actions.action(rule);
    if (action.verb == AclVerb::kMark) return static_cast<uint8_t>(action.mark);
    return fail(p, action.verb == AclVerb::kDeny ? DropReason::kAclDeny : DropReason::kClassifierNoMatch);
  }

  SLUICE_HD uint8_t operator()(Packet& p) const { return apply(p, rule_of(p.key)); }

  // The same by a group of lanes that all hold this packet; called with `here` false where the group has none, because
  // other groups run in step.
  template <typename Group>
  requires requires(const View& v, const FlowKey& key, const Group& group) { v.lookup_team(key, group); }
  SLUICE_HD uint8_t team(const Group& group, Packet& p, bool here = true) const {
    // A copy in registers: the stage lies in shared memory, and a load of each of its pointers would be waited for.
    const AclStage stage = *this;
    const bool asks = here && p.key.family != 0;
    const uint32_t rule = stage.view.lookup_team(p.key, group, asks);
    return here ? stage.apply(p, rule) : uint8_t{0};
  }

  // Rules are about IP packets: none matches what is not one, or is too damaged to have a key.
  SLUICE_HD uint32_t rule_of(const FlowKey& key) const { return key.family == 0 ? 0 : view.lookup(key); }

  // See FastBurst.
  uint32_t burst(FastBurst& burst, uint32_t mask) const {
    burst.fill_keys();
    uint32_t rules[FastBurst::kLanes];
    uint32_t passed = 0;
    if constexpr (requires { view.lookup_columns(burst.keys(), rules, size_t{}); }) {
      // Whole columns, unless most lanes are gone.
      if (2 * static_cast<uint32_t>(std::popcount(mask)) > burst.count) {
        view.lookup_columns(burst.keys(), rules, burst.count);
        if (output_is_mark == 0) return judge(burst, mask, rules);
        for (uint32_t m = mask; m != 0; m &= m - 1) {
          const auto lane = static_cast<uint32_t>(std::countr_zero(m));
          passed |= judge_lane(burst, lane, rules[lane]);
        }
        return passed;
      }
    }
    FlowKey flow[FastBurst::kLanes];
    const FlowKey* keys[FastBurst::kLanes] = {};
    uint8_t lanes[FastBurst::kLanes];
    size_t n = 0;
    for (uint32_t m = mask; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint8_t>(std::countr_zero(m));
      lanes[n] = lane;
      flow[n] = burst.key(lane);
      keys[n] = &flow[n];
      ++n;
    }
    view.lookup_burst(keys, rules, n);
    for (size_t i = 0; i < n; ++i) passed |= judge_lane(burst, lanes[i], rules[i]);
    return passed;
  }
  // apply() of all lanes of `mask` as loops over whole columns, without a branch that goes by a verdict: where one
  // packet is denied and the next is not, each would be guessed wrong. `rules` has kLanes places.
  uint32_t judge(FastBurst& burst, uint32_t mask, uint32_t* rules) const {
    constexpr uint32_t kLanes = FastBurst::kLanes;
    constexpr auto kDeny = static_cast<uint32_t>(AclVerb::kDeny), kMark = static_cast<uint32_t>(AclVerb::kMark);
    uint32_t verb[kLanes], denied[kLanes], here[kLanes];
    for (uint32_t i = burst.count; i < kLanes; ++i) rules[i] = 0;
    for (uint32_t i = 0; i < kLanes; ++i) verb[i] = static_cast<uint32_t>(actions.action(rules[i]).verb);
    const uint32_t unmatched = permit_by_default != 0 ? 0u : 1u;
    for (uint32_t i = 0; i < kLanes; ++i) denied[i] = rules[i] == 0 ? unmatched : uint32_t{verb[i] == kDeny};
    for (uint32_t i = 0; i < kLanes; ++i) here[i] = (mask & FastBurst::kLane[i]) != 0 ? ~0u : 0u;
    for (uint32_t i = 0; i < kLanes; ++i) burst.rule[i] = (rules[i] & here[i]) | (burst.rule[i] & ~here[i]);
    uint8_t output[kLanes], reason[kLanes], old[kLanes];
    constexpr auto kDenied = static_cast<uint32_t>(DropReason::kAclDeny);
    constexpr auto kNoMatch = static_cast<uint32_t>(DropReason::kAclNoMatch);
    for (uint32_t i = 0; i < kLanes; ++i) output[i] = static_cast<uint8_t>(denied[i] & here[i]);
    for (uint32_t i = 0; i < kLanes; ++i)
      reason[i] = static_cast<uint8_t>((rules[i] == 0 ? kNoMatch : kDenied) & (0u - denied[i]) & here[i]);
    for (uint32_t i = 0; i < kLanes; ++i) old[i] = static_cast<uint8_t>(~here[i]);
    for (uint32_t i = 0; i < kLanes; ++i)
      burst.output[i] = static_cast<uint8_t>(output[i] | (burst.output[i] & old[i]));
    for (uint32_t i = 0; i < kLanes; ++i)
      burst.reason[i] = static_cast<DropReason>(reason[i] | (static_cast<uint8_t>(burst.reason[i]) & old[i]));
    const uint32_t marked = mask & FastBurst::lanes_where([&](uint32_t i) { return verb[i] == kMark; });
    burst.marked |= marked;
    for (uint32_t m = marked; m != 0; m &= m - 1) {
      const auto i = static_cast<uint32_t>(std::countr_zero(m));
      burst.mark[i] = actions.action(rules[i]).mark;
    }
    return mask & FastBurst::lanes_where([&](uint32_t i) { return denied[i] == 0; });
  }
  uint32_t judge_lane(FastBurst& burst, uint32_t lane, uint32_t rule) const {
    const uint32_t bit = uint32_t{1} << lane;
    Packet p;
    burst.output[lane] = apply(p, rule);
    burst.reason[lane] = p.reason;
    if (output_is_mark == 0) {
      burst.rule[lane] = rule;
      const AclAction action = actions.action(rule);
      if ((rule != 0) & (action.verb == AclVerb::kMark)) [[unlikely]] {
        burst.mark[lane] = action.mark;
        burst.marked |= bit;
      }
    }
    return burst.output[lane] == 0 ? bit : 0;
  }
};

}  // namespace sluice
