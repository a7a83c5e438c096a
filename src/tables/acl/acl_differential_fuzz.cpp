// Rules and keys from the input's bytes: every algorithm, single and in bursts on every instruction
// set, against the definition of a match.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "memory/buffer.h"
#include "tables/acl/acl_fuzz_input.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/tuple_prune.h"

namespace {

using namespace sluice;

template <typename Algorithm>
void check(const RuleSet& set, const std::vector<FlowKey>& keys, const std::vector<uint32_t>& want) {
  using View = typename Algorithm::View;
  auto image = Algorithm::build(set);
  if (!image) std::abort();
  const auto view = View::open(*image);
  if (!view) std::abort();
  std::vector<const FlowKey*> pointers;
  for (const FlowKey& key : keys) pointers.push_back(&key);
  std::vector<uint32_t> got(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (view->lookup(keys[i]) != want[i]) std::abort();
  }
  const auto expect = [&](auto&& burst) {
    for (size_t at = 0; at < keys.size(); at += kAclBurst)
      burst(pointers.data() + at, got.data() + at, std::min(kAclBurst, keys.size() - at));
    if (want != got) std::abort();
  };
  expect([&](auto... a) { view->lookup_burst(a...); });
  if constexpr (requires { View::isa_available(AclIsa::kScalar); }) {
    for (AclIsa isa : {AclIsa::kScalar, AclIsa::kAvx2, AclIsa::kAvx512}) {
      if (!View::isa_available(isa)) continue;
      expect([&](auto... a) { view->lookup_burst_on(isa, a...); });
    }
  }
}

template <typename... Algorithms>
void check_all(AclAlgorithmList<Algorithms...>, const RuleSet& set, const std::vector<FlowKey>& keys,
               const std::vector<uint32_t>& want) {
  (check<Algorithms>(set, keys, want), ...);
}

// Lists this short are not pruned when built: the sets of tables by field, with the rules dealt to ten tables.
void check_prune(const RuleSet& set, const std::vector<FlowKey>& keys) {
  std::vector<AclMatchRule> flat;
  for (const AclRule& r : set.rules) flat.push_back(flatten(r, static_cast<uint32_t>(flat.size() + 1)));
  std::vector<tuple_prune_detail::Placed> placed;
  for (const AclMatchRule& r : flat) {
    if (r.family != 6) placed.push_back({&r, r.rule % 10});
  }
  const auto bytes = tuple_prune_detail::make_prune(placed);
  auto buffer = Buffer::allocate(bytes.size());
  if (!buffer) std::abort();
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  const auto& prune = *reinterpret_cast<const TuplePrune*>(buffer->data());
  if (!tuple_prune_detail::prune_ok(prune, bytes.size(), 10)) std::abort();
  for (const FlowKey& key : keys) {
    if (key.family != 4) continue;
    const uint64_t tables = prune.tables_for(static_cast<uint32_t>(key.src_lo), static_cast<uint32_t>(key.dst_lo),
                                             key.src_port, key.dst_port, key.protocol);
    for (const auto& p : placed) {
      if (matches(*p.rule, key) && (tables >> p.table & 1) == 0) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  acl_test::Bytes in(data, size);
  acl_test::Random random(in.half());
  RuleSet set;
  while (in.more() && set.rules.size() < 400) set.rules.push_back(acl_test::rule_from(in));
  const auto keys = acl_test::keys_for(set, 64, random);
  std::vector<AclMatchRule> flat;
  for (const AclRule& r : set.rules) flat.push_back(flatten(r, static_cast<uint32_t>(flat.size() + 1)));
  std::vector<uint32_t> want;
  for (const FlowKey& key : keys) {
    const auto first = std::find_if(flat.begin(), flat.end(), [&](const AclMatchRule& r) { return matches(r, key); });
    want.push_back(first == flat.end() ? 0 : first->rule);
  }
  check_all(AllAcl{}, set, keys, want);
  if (size % 8 == 0) check_prune(set, keys);  // takes longer than all the rest
  return 0;
}
