// Rules and keys from the input's bytes: every algorithm, single and in bursts on every instruction
// set, against linear.
#include <cstdlib>
#include <cstring>

#include "memory/buffer.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/tuple_prune.h"

namespace {

using namespace sluice;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool more() const { return at_ < size_; }
  uint8_t byte() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  uint16_t half() {
    const unsigned high = byte();
    return static_cast<uint16_t>(high << 8 | byte());
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

// Addresses differ in few places, so that rules meet.
uint64_t spread(uint8_t b) {
  return (b & 15) * 0x1000000010000001ull ^ uint64_t { b } << 24 ^ uint64_t(b >> 4) << 56;
}

IpPrefix prefix(Bytes& in, uint8_t family) {
  IpPrefix p;
  p.address.family = family;
  p.length = static_cast<uint8_t>(in.byte() % (family == 4 ? 33 : 129));
  p.address.hi = family == 4 ? 0 : spread(in.byte()) & high_mask64(std::min<unsigned>(p.length, 64));
  p.address.lo = spread(in.byte());
  p.address.lo &= family == 4 ? high_mask32(p.length) : high_mask64(p.length > 64 ? p.length - 64u : 0);
  return p;
}

AclRule rule(Bytes& in) {
  AclRule r;
  const uint8_t shape = in.byte();
  r.family = std::array<uint8_t, 4>{4, 4, 6, 0}[shape & 3];
  if (r.family != 0) {
    r.src = prefix(in, r.family);
    r.dst = prefix(in, r.family);
  }
  auto ports = [&](uint16_t& low, uint16_t& high) {
    low = in.byte();
    high = (shape & 4) != 0 ? low : static_cast<uint16_t>(low + in.half() % (65536u - low));
  };
  if ((shape & 8) != 0) ports(r.src_port_low, r.src_port_high);
  if ((shape & 16) != 0) ports(r.dst_port_low, r.dst_port_high);
  if ((shape & 32) != 0) {
    r.protocol_mask = (shape & 4) != 0 ? 0xff : in.byte();
    r.protocol = in.byte() & 7 & r.protocol_mask;
  }
  if ((shape & 64) != 0) {
    r.flags_mask = static_cast<uint16_t>(in.byte() << 8);
    r.flags = static_cast<uint16_t>(in.byte() << 8) & r.flags_mask;
    r.bits_mask = in.byte() & 7;
    r.bits = in.byte() & r.bits_mask;
  }
  if ((shape & 128) != 0) {
    r.needs_ports = (in.byte() & 1) != 0;
    r.dscp = (in.byte() & 1) != 0 ? in.byte() & 63 : AclRule::kAnyDscp;
    r.icmp_mask = in.half() & 0x0101;
    r.icmp = in.half() & r.icmp_mask;
  }
  return r;
}

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
  for (AclIsa isa : {AclIsa::kScalar, AclIsa::kAvx2, AclIsa::kAvx512}) {
    if (!View::isa_available(isa)) continue;
    view->lookup_burst_on(isa, pointers.data(), got.data(), got.size());
    if (want != got) std::abort();
  }
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
  Bytes in(data, size);
  acl_test::Random random(in.half());
  RuleSet set;
  while (in.more() && set.rules.size() < 400) set.rules.push_back(rule(in));
  auto linear = LinearAcl::build(set);
  if (!linear) std::abort();
  const auto oracle = LinearView::open(*linear);
  if (!oracle) std::abort();
  const auto keys = acl_test::keys_for(set, 64, random);
  std::vector<uint32_t> want;
  for (const FlowKey& key : keys) want.push_back(oracle->lookup(key));
  check<TupleSpaceAcl>(set, keys, want);
  if (size % 8 == 0) check_prune(set, keys);  // takes longer than all the rest
  check<TupleMergeAcl>(set, keys, want);
  return 0;
}
