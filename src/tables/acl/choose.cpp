// What `auto` stands for: the work of packets drawn from the rules, weighed with what each step was measured to cost.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "tables/acl/algorithms.h"
#include "tables/acl/work.h"

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

template <typename View>
Result<AclWork> work_of(const Image& image) {
  auto view = View::open(image);
  if (!view) return std::move(view).error();
  auto rules = AclRulesView::open(image);
  if (!rules) return std::move(rules).error();
  AclWork work;
  if constexpr (requires { view->pruned(); }) work.pruned = view->pruned();
  if constexpr (requires { view->bitmap_parts(); }) {
    work.wide = view->bitmap_parts() > 1;
    work.bitmap = view->bitmap_parts() != 0;
  }
  std::mt19937_64 random(1);
  AclTally tally;
  // A list that changes has numbers without a rule (patch.h); no packet is of theirs.
  std::vector<uint32_t> real;
  for (uint32_t r = 1; r <= rules->size(); ++r) {
    if (rules->rule(r).src_port_low <= rules->rule(r).src_port_high) real.push_back(r);
  }
  if (real.empty()) return work;
  for (size_t i = 0; i < kSample; ++i)
    (void)view->lookup(drawn_from(rules->rule(real[random() % real.size()]), random), &tally);
  work.tables = static_cast<double>(tally.tables) / kSample;
  work.reads = static_cast<double>(tally.reads) / kSample;
  return work;
}

// What a lookup costs, in picoseconds: a constant, a table probed, a rule, block or row read. Fitted by
// scripts/fit_prices.py to the rates that `sluice bench classify` measures (docs/design/acl.md).
struct Price {
  double fixed, table, read;
  double of(const AclWork& w) const { return fixed + table * w.tables + read * w.reads; }
};
// One busy Zen 4 core, AVX-512.
constexpr Price kMergeOnCore = {16400, 6400, 600}, kMergeWideOnCore = {20000, 6400, 600}, kBitvecOnCore = {0, 0, 1400};
// Fewer rules than make a bitmap: each is compared with all keys of a burst.
constexpr Price kMergeFewOnCore = {5000, 6400, 600};
// Up to so many rules tuple_merge compares each, or has a bitmap of one part, whose rows of 128 bits cost less than
// those of 512. In a run it takes the key columns of a burst as they are, too, where bitvec is given keys: 1.05 to 1.4
// times as many packets per second.
constexpr size_t kBitmapRules = 64;
constexpr Price kSpaceOnGpu = {0, 5, 7}, kPrunedOnGpu = {28, 0, 10}, kMergeOnGpu = {5, 6, 34};  // one H100

// One chunk. A second one costs more than its rows, because the packets that need it part from the others.
constexpr size_t kBitvecRules = BitvecRow::kRules;

// More chunks are taken only where tuple_merge scans: rules that nothing it hashes tells apart, each with a packet of
// its own, are n / 16 blocks a packet, and rows of bits are n / 200. They have some three kilobytes a rule, hence the
// limit.
constexpr double kScan = 200'000;
constexpr size_t kBitvecScanRules = 65'536;

// In all sets of 100,000 rules tuple_merge was quicker on a device too, and tuple_space takes ten times as long to
// build.
constexpr size_t kSpaceRules = 50'000;

// A list of tuple_merge is patched where one of tuple_space is built anew, and a ring's teams share its lookup: another
// structure has to be this many times as quick.
constexpr double kPatchedIsWorth = 1.3;

struct Candidate {
  Image image;
  const char* name;
  const char* reads;
  AclWork work;
  double cost;
};

template <typename Algorithm, typename PriceOf>
Result<void> consider(const RuleSet& set, TableTarget target, const char* reads, PriceOf&& price_of,
                      std::vector<Candidate>& out) {
  auto image = build_acl(set, Algorithm::kName, target);
  if (!image) return std::move(image).error();
  auto work = acl_work(*image);
  if (!work) return std::move(work).error();
  out.push_back({std::move(*image), Algorithm::kName, reads, *work, price_of(*work).of(*work)});
  return {};
}

}  // namespace

Result<AclWork> acl_work(const Image& image) {
  const std::string_view name = acl_image_algorithm(image);
  if (name == TupleMergeAcl::kName) return work_of<TupleMergeView>(image);
  if (name == TupleSpaceAcl::kName) return work_of<TupleSpaceView>(image);
  if (name == BitvecAcl::kName) return work_of<BitvecView>(image);
  return Error("the image's steps are not counted");
}

Result<AclChosen> choose_acl(const RuleSet& set, TableTarget target) {
  const bool core = target == TableTarget::kCpu;
  std::vector<Candidate> all;
  auto ok = consider<TupleMergeAcl>(
      set, target, "blocks of eight rules",
      [&](const AclWork& w) {
        return !core                      ? kMergeOnGpu
               : w.wide                   ? kMergeWideOnCore
               : w.bitmap || w.tables > 0 ? kMergeOnCore
                                          : kMergeFewOnCore;
      },
      all);
  // On a core no set was found where tuple_space is the quicker one, on a device none where bit vectors are.
  if (ok && core &&
      ((set.rules.size() > kBitmapRules && set.rules.size() <= kBitvecRules) ||
       (all[0].cost > kScan && set.rules.size() <= kBitvecScanRules))) {
    ok = consider<BitvecAcl>(
        set, target, "rows of 512 bits", [](const AclWork&) { return kBitvecOnCore; }, all);
  }
  if (ok && !core && set.rules.size() <= kSpaceRules)
    ok = consider<TupleSpaceAcl>(
        set, target, "rules", [](const AclWork& w) { return w.pruned ? kPrunedOnGpu : kSpaceOnGpu; }, all);
  if (!ok) return std::move(ok).error();
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  const auto merge = std::ranges::find(all, std::string_view(TupleMergeAcl::kName), &Candidate::name);
  const bool kept = !core && merge != all.begin() && merge->cost < kPatchedIsWorth * all[0].cost;
  if (kept) std::iter_swap(all.begin(), merge);
  const auto time = [&](double ps) {
    return core ? fmt::format("{:.0f} ns of a core", ps / 1000) : fmt::format("{:.0f} ps of an H100", ps);
  };
  std::string why = fmt::format("{:.1f} tables and {:.1f} {} per packet, about {}", all[0].work.tables,
                                all[0].work.reads, all[0].reads, time(all[0].cost));
  for (size_t i = 1; i < all.size(); ++i) why += fmt::format("; {} about {}", all[i].name, time(all[i].cost));
  if (kept) why += ", not enough of a gain for a structure that cannot be patched";
  return AclChosen{std::move(all[0].image), all[0].name, std::move(why)};
}

}  // namespace sluice
