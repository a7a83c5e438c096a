#include "tables/lpm/algorithms.h"

#include <fmt/format.h>

#include <memory>

namespace sluice {
namespace {

template <typename List>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for_each_lpm<List>([&]<typename A>(A) { names.emplace_back(A::kName); });
  return names;
}

Error unknown_algorithm(const char* family, std::string_view name, const std::vector<std::string>& known) {
  const std::string near = closest_match(name, known);
  std::string hint = near.empty() ? std::string() : fmt::format("did you mean {}? ", near);
  hint += fmt::format("{} algorithms: {}", family, fmt::join(known, ", "));
  return Error(fmt::format("no {} lookup algorithm is called '{}'", family, name.substr(0, 64)), std::move(hint));
}

}  // namespace

std::vector<std::string> lpm_algorithm_names4() {
  return names_of<LpmAlgorithms4>();
}
std::vector<std::string> lpm_algorithm_names6() {
  return names_of<LpmAlgorithms6>();
}

std::vector<LpmSummary> lpm_summaries() {
  std::vector<LpmSummary> all;
  for_each_lpm<LpmAlgorithms4>([&]<typename A>(A) { all.push_back({A::kName, A::kSummary, true, false}); });
  for_each_lpm<LpmAlgorithms6>([&]<typename A>(A) {
    for (LpmSummary& s : all) {
      if (s.name != A::kName) continue;
      s.ipv6 = true;
      return;
    }
    all.push_back({A::kName, A::kSummary, false, true});
  });
  return all;
}

std::vector<std::string> lpm_algorithm_choices4() {
  auto names = lpm_algorithm_names4();
  names.emplace_back(kLpmAuto);
  names.emplace_back(kLpmAutoGpu);
  return names;
}
std::vector<std::string> lpm_algorithm_choices6() {
  auto names = lpm_algorithm_names6();
  names.emplace_back(kLpmAuto);
  names.emplace_back(kLpmAutoGpu);
  return names;
}

namespace {

// Routes past /24 that share their /24 with more than are likely to fit into a tree of range24: 4,096 ranges, of which
// two routes with one next hop are often one. Where they do not fit they are a list to search.
size_t routes_in_crowded_24s(std::span<const Route6> routes) {
  constexpr size_t kCrowded = 8192;
  size_t crowded = 0, here = 0;
  uint64_t last = 0;
  const auto end_of_24 = [&] { crowded += here > kCrowded ? here : 0; };
  for (const Route6& r : routes) {
    if (r.length <= 24) continue;
    if (r.hi >> 40 != last) {
      end_of_24();
      last = r.hi >> 40;
      here = 0;
    }
    ++here;
  }
  end_of_24();
  return crowded;
}

}  // namespace

namespace {

struct Chosen {
  std::string algorithm, why;
};

Chosen choose4(const Rib& rib, TableTarget target) {
  // /24s with longer prefixes in them: each costs dir24 and sail 512 bytes.
  size_t divided = 0;
  int64_t last = -1;
  for (const Route4& r : rib.routes4()) {
    if (r.length <= 24 || r.address >> 8 == last) continue;
    last = r.address >> 8;
    ++divided;
  }
  constexpr size_t kManyDivided = 100'000;  // 50 MB of blocks
  if (divided > kManyDivided) {
    return {Poptrie::kName,
            fmt::format("{} /24s have longer prefixes, which cost direct tables half a KiB each", divided)};
  }
  if (target == TableTarget::kGpu)
    return {Dir24::kName, "one load for nearly every address, and 32 MB fit into the device's L2 cache"};
  return {Sail::kName, "two loads without a branch, from a third of dir24's memory"};
}

Chosen choose6(const Rib& rib, TableTarget target) {
  if (target == TableTarget::kGpu)
    return {Poptrie::kName, "reads one 32-byte sector per level, the unit in which a GPU reads"};
  if (const size_t crowded = routes_in_crowded_24s(rib.routes6()); crowded > rib.routes6().size() / 8)
    return {PlanB::kName, fmt::format("{} routes lie in /24s of more ranges than a tree of range24 holds", crowded)};
  return {Range24::kName, "two small arrays and three cache lines for every address, without a branch"};
}

std::optional<TableTarget> target_of(std::string_view asked) {
  if (asked == kLpmAuto) return TableTarget::kCpu;
  if (asked == kLpmAutoGpu) return TableTarget::kGpu;
  return std::nullopt;
}

}  // namespace

LpmChoice choose_lpm(const Rib& rib, TableTarget target) {
  Chosen four = choose4(rib, target), six = choose6(rib, target);
  return {std::move(four.algorithm), std::move(six.algorithm), std::move(four.why), std::move(six.why)};
}

std::string chosen_lpm4(const Rib& rib, std::string_view asked) {
  const auto target = target_of(asked);
  return target ? choose4(rib, *target).algorithm : std::string(asked);
}
std::string chosen_lpm6(const Rib& rib, std::string_view asked) {
  const auto target = target_of(asked);
  return target ? choose6(rib, *target).algorithm : std::string(asked);
}

Result<Image> build_routes(const Rib& rib, std::string_view asked4, std::string_view asked6) {
  if (!rib.settled()) {
    Rib copy = rib;
    copy.settle();
    return build_routes(copy, asked4, asked6);
  }
  const std::string algorithm4 = chosen_lpm4(rib, asked4), algorithm6 = chosen_lpm6(rib, asked6);
  Result<FibPlan> plan4 = Error(), plan6 = Error();
  const char* name4 = "";
  const char* name6 = "";
  auto plan_family4 = [&]<typename A>(A) {
    name4 = A::kName;
    plan4 = A::plan4(rib);
  };
  auto plan_family6 = [&]<typename A>(A) {
    name6 = A::kName;
    plan6 = A::plan6(rib);
  };
  if (!with_lpm<LpmAlgorithms4>(algorithm4, plan_family4)) {
    return unknown_algorithm("IPv4", algorithm4, lpm_algorithm_names4());
  }
  if (!plan4) return std::move(plan4).error();
  if (!with_lpm<LpmAlgorithms6>(algorithm6, plan_family6)) {
    return unknown_algorithm("IPv6", algorithm6, lpm_algorithm_names6());
  }
  return assemble_routes(rib, name4, plan4, name6, plan6);
}

Result<Image> assemble_routes(const Rib& rib, std::string_view name4, const Result<FibPlan>& plan4,
                              std::string_view name6, const Result<FibPlan>& plan6) {
  if (!plan4) return plan4.error();
  if (!plan6) return plan6.error();
  const FibPlan names = plan_next_hop_names(rib);

  ImageBuilder builder(ImageKind::kRoutes);
  const size_t fib4 = builder.add(SectionTag::kFib4, name4, plan4->layout_version, plan4->bytes);
  const size_t fib6 = builder.add(SectionTag::kFib6, name6, plan6->layout_version, plan6->bytes);
  const size_t text = builder.add(SectionTag::kNextHopNames, "", names.layout_version, names.bytes);
  if (auto ok = builder.allocate(); !ok) return std::move(ok).error();
  plan4->write(builder.data(fib4));
  plan6->write(builder.data(fib6));
  names.write(builder.data(text));
  return builder.finish();
}

Result<NextHopNames> NextHopNames::open(std::span<const std::byte> section) {
  const auto* head = section_array<uint32_t>(section, 0, 2);
  if (head == nullptr) return Error(fmt::format("next-hop names: {} bytes are too few", section.size()));
  NextHopNames names;
  names.count_ = head[0];
  names.offsets_ = section_array<uint32_t>(section, 8, uint64_t{names.count_} + 1);
  if (names.count_ > Rib::kMaxNextHops || names.offsets_ == nullptr) {
    return Error(fmt::format("next-hop names: {} names do not fit", names.count_));
  }
  const uint64_t text_at = 8 + (uint64_t{names.count_} + 1) * 4;
  names.text_ = reinterpret_cast<const char*>(section.data() + text_at);
  uint32_t last = 0;
  for (uint32_t i = 0; i <= names.count_; ++i) {
    if (names.offsets_[i] < last || names.offsets_[i] > section.size() - text_at) {
      return Error(fmt::format("next-hop names: name {} lies outside", i));
    }
    last = names.offsets_[i];
  }
  return names;
}

FibPlan plan_next_hop_names(const Rib& rib) {
  FibPlan plan;
  plan.bytes = 8 + (size_t{rib.next_hop_count()} + 1) * 4;
  for (const std::string& name : rib.next_hop_names()) plan.bytes += name.size();
  plan.write = [names = rib.next_hop_names()](std::span<std::byte> out) {
    auto* words = reinterpret_cast<uint32_t*>(out.data());
    words[0] = static_cast<uint32_t>(names.size());
    char* text = reinterpret_cast<char*>(words + 3 + names.size());
    uint32_t at = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      words[2 + i] = at;
      names[i].copy(text + at, names[i].size());
      at += static_cast<uint32_t>(names[i].size());
    }
    words[2 + names.size()] = at;
  };
  return plan;
}

namespace detail {

Result<FibSection> find_fib(const Image& image, SectionTag tag) {
  const ImageSection* section = image.find(tag);
  const char* family = tag == SectionTag::kFib4 ? "IPv4" : "IPv6";
  if (section == nullptr) return Error(fmt::format("the image holds no {} table", family));
  uint32_t layout = 1;
  if (tag == SectionTag::kFib4) {
    with_lpm<LpmAlgorithms4>(section_algorithm(*section), [&]<typename A>(A) { layout = lpm_layout<A>(); });
  } else {
    with_lpm<LpmAlgorithms6>(section_algorithm(*section), [&]<typename A>(A) { layout = lpm_layout<A>(); });
  }
  if (section->layout_version != layout) {
    return Error(fmt::format("{} table of layout {}, this program reads {}", family, section->layout_version, layout),
                 "make it again with `sluice compile`");
  }
  auto names = NextHopNames::open(image.section(SectionTag::kNextHopNames));
  if (!names) return std::move(names).error();
  return FibSection{image.section(tag), section_algorithm(*section), names->count(), &image, tag};
}

Error unknown_fib(const FibSection& fib, const std::vector<std::string>& known) {
  return unknown_algorithm("", fib.algorithm, known);
}

}  // namespace detail
}  // namespace sluice
