// What `auto` stands for: the work of packets drawn from the rules, weighed with what each step was measured to cost.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tables/acl/algorithms.h"

namespace sluice {
namespace {

constexpr size_t kSample = 2048;  // packets

// A packet of the rule's region.
FlowKey drawn_from(const AclMatchRule& r, std::mt19937_64& random) {
  FlowKey key;
  key.family = r.family != 0 ? r.family : 4;
  const auto draw = [&](uint64_t hi, uint64_t lo, unsigned length, uint64_t& out_hi, uint64_t& out_lo) {
    out_hi = key.family == 4 ? 0 : hi | (random() & ~high_mask64(std::min(length, 64u)));
    const uint64_t free = ~high_mask64(length > 64 ? length - 64 : 0);
    out_lo = lo | (random() & free & (key.family == 4 ? 0xffffffffu : ~uint64_t{0}));
  };
  draw(r.src_hi, r.src_lo, r.src_length, key.src_hi, key.src_lo);
  draw(r.dst_hi, r.dst_lo, r.dst_length, key.dst_hi, key.dst_lo);
  key.src_port = static_cast<uint16_t>(r.src_port_low + random() % (r.src_port_high - r.src_port_low + 1u));
  key.dst_port = static_cast<uint16_t>(r.dst_port_low + random() % (r.dst_port_high - r.dst_port_low + 1u));
  key.protocol = r.protocol_mask == 0 ? uint8_t{6} : r.protocol;
  key.flags = r.flags;
  key.dscp = r.dscp;
  key.icmp = r.icmp;
  key.bits = static_cast<uint8_t>(r.bits | (FlowKey::kHasPorts & ~r.bits_mask));
  return key;
}

// Steps a packet, on average.
struct Work {
  double tables, reads;
};

template <typename View>
Work work_of(const View& view, const AclRulesView& rules) {
  std::mt19937_64 random(1);
  AclTally tally;
  for (size_t i = 0; i < kSample; ++i)
    (void)view.lookup(drawn_from(rules.rule(static_cast<uint32_t>(1 + random() % rules.size())), random), &tally);
  return {static_cast<double>(tally.tables) / kSample, static_cast<double>(tally.reads) / kSample};
}

// What a lookup costs, in picoseconds: a constant, a table probed, a rule or block of rules compared. Fitted to the
// measured rates of the published sets with 1,000 and 10,000 rules (docs/design/acl.md).
struct Price {
  double fixed, table, read;
};
constexpr Price kMergeOnCore = {5000, 3000, 10000};  // one Zen 4 core, AVX-512
constexpr Price kSpaceOnGpu = {0, 5, 7}, kPrunedOnGpu = {28, 0, 10}, kMergeOnGpu = {5, 6, 34};  // one H100

struct Candidate {
  Image image;
  const char* name;
  Work work;
  double cost;
};

template <typename Algorithm, typename PriceOf>
Result<Candidate> candidate(const RuleSet& set, PriceOf&& price_of) {
  auto image = Algorithm::build(set);
  if (!image) return std::move(image).error();
  auto view = Algorithm::View::open(*image);
  if (!view) return std::move(view).error();
  auto rules = AclRulesView::open(*image);
  if (!rules) return std::move(rules).error();
  const Work work = rules->size() == 0 ? Work{0, 0} : work_of(*view, *rules);
  const Price price = price_of(*view);
  return Candidate{std::move(*image), Algorithm::kName, work,
                   price.fixed + price.table * work.tables + price.read * work.reads};
}

}  // namespace

Result<AclChosen> choose_acl(const RuleSet& set, AclTarget target) {
  auto merge = candidate<TupleMergeAcl>(
      set, [&](const auto&) { return target == AclTarget::kCpu ? kMergeOnCore : kMergeOnGpu; });
  if (!merge) return std::move(merge).error();
  if (target == AclTarget::kCpu) {
    return AclChosen{std::move(merge->image), merge->name,
                     fmt::format("{:.1f} tables and {:.1f} blocks of eight rules a packet, about {:.0f} ns of a core; "
                                 "no other was quicker on a core with any set",
                                 merge->work.tables, merge->work.reads, merge->cost / 1000)};
  }
  auto space = candidate<TupleSpaceAcl>(
      set, [](const TupleSpaceView& view) { return view.pruned() ? kPrunedOnGpu : kSpaceOnGpu; });
  if (!space) return std::move(space).error();
  const bool blocks = merge->cost < space->cost;
  Candidate& best = blocks ? *merge : *space;
  const Candidate& other = blocks ? *space : *merge;
  return AclChosen{std::move(best.image), best.name,
                   fmt::format("{:.1f} tables and {:.1f} {} a packet, about {:.0f} ps of an H100; {} about {:.0f} ps",
                               best.work.tables, best.work.reads, blocks ? "blocks of eight rules" : "rules", best.cost,
                               other.name, other.cost)};
}

}  // namespace sluice
