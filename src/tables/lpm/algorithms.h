// The LPM algorithms, by name: the one list that builders, tests, benchmarks, the command line and kernels go by.
//
// To add one: `./dev new lpm NAME` copies a skeleton (example/) and puts its name into AllLpm. View4 has
// open(section, next_hop_count), lookup(address), prefetch(address), lookup_bulk(...) and each_pointer(f), by which a
// copy of the section in another memory space is made; View6 the same with (hi, lo). An algorithm has View4 and plan4,
// View6 and plan6, or both. A section's layout version is 1, or what the traits struct says as kLayout.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tables/image.h"
#include "tables/lpm/any_view6.h"
#include "tables/lpm/dir24.h"
#include "tables/lpm/example/example.h"
#include "tables/lpm/next_hop_names.h"
#include "tables/lpm/planb.h"
#include "tables/lpm/poptrie.h"
#include "tables/lpm/range24.h"
#include "tables/lpm/rib.h"
#include "tables/lpm/sail.h"
#include "tables/lpm/scan.h"
#include "tables/lpm/trie.h"
#include "tables/target.h"

namespace sluice {

struct Dir24 {
  static constexpr const char* kName = "dir24";
  static constexpr const char* kSummary = "2^24 entries and second-level blocks; one or two loads per lookup";
  using View4 = Dir24View;
  static Result<FibPlan> plan4(const Rib& rib) { return plan_dir24(rib); }
};

struct Sail {
  static constexpr const char* kName = "sail";
  static constexpr const char* kSummary =
      "direct arrays at 16, 24 and 32 bits, equal parts shared; two or three loads per lookup, 9 MB for a full table";
  using View4 = SailView;
  static Result<FibPlan> plan4(const Rib& rib) { return plan_sail(rib); }
};

struct Range24 {
  static constexpr const char* kName = "range24";
  static constexpr const char* kSummary =
      "direct to 24 bits, then flat 16-ary trees over address ranges; three cache lines, 2 MB for a full table";
  using View6 = Range24View;
  static Result<FibPlan> plan6(const Rib& rib) { return plan_range24(rib); }
};

struct PlanB {
  static constexpr const char* kName = "planb";
  static constexpr const char* kSummary =
      "flat 9-ary search tree over address ranges; one cache line per level, about 1 MB for a full table";
  using View6 = PlanBView;
  static Result<FibPlan> plan6(const Rib& rib) { return plan_planb(rib); }
};

struct Poptrie {
  static constexpr const char* kName = "poptrie";
  static constexpr const char* kSummary = "multibit trie compressed by popcount; a few megabytes for a full table";
  static constexpr uint32_t kLayout = kPoptrieLayoutVersion;
  using View4 = Poptrie4View;
  using View6 = Poptrie6View;
  static Result<FibPlan> plan4(const Rib& rib) { return plan_poptrie4(rib); }
  static Result<FibPlan> plan6(const Rib& rib) { return plan_poptrie6(rib); }
};

// The oracle.
struct Trie {
  static constexpr const char* kName = "trie";
  static constexpr const char* kSummary = "path-compressed binary trie of 64-bit nodes; the reference";
  static constexpr uint32_t kLayout = kTrieLayoutVersion;
  using View4 = Trie4View;
  using View6 = Trie6View;
  static Result<FibPlan> plan4(const Rib& rib) { return plan_trie4(rib); }
  static Result<FibPlan> plan6(const Rib& rib) { return plan_trie6(rib); }
};

struct Linear {
  static constexpr const char* kName = "linear";
  static constexpr const char* kSummary = "all routes, longest first; for a handful of them";
  using View4 = Scan4View;
  using View6 = Scan6View;
  static Result<FibPlan> plan4(const Rib& rib) { return plan_linear4(rib); }
  static Result<FibPlan> plan6(const Rib& rib) { return plan_linear6(rib); }
};

struct Bloom {
  static constexpr const char* kName = "bloom";
  static constexpr const char* kSummary = "a Bloom filter and a hash table for each prefix length, longest first";
  using View4 = Scan4View;
  using View6 = Scan6View;
  static Result<FibPlan> plan4(const Rib& rib) { return plan_bloom4(rib); }
  static Result<FibPlan> plan6(const Rib& rib) { return plan_bloom6(rib); }
};

using AllLpm = std::tuple<Dir24, Sail, Poptrie, Range24, PlanB, Trie, Linear, Bloom, ExampleLpm>;

namespace detail {
template <typename A>
concept LpmOffered = !requires {
  A::kOffered;
}
|| A::kOffered;
template <unsigned kFamily, typename A>
struct LpmViewOf {};
template <typename A>
requires requires {
  typename A::View4;
}
struct LpmViewOf<4, A> {
  using type = typename A::View4;
};
template <typename A>
requires requires {
  typename A::View6;
}
struct LpmViewOf<6, A> {
  using type = typename A::View6;
};
template <typename A, unsigned kFamily>
concept LpmServes = requires {
  typename LpmViewOf<kFamily, A>::type;
};
// Whether no algorithm before A has A's View.
template <unsigned kFamily, typename A, typename First, typename... Rest>
constexpr bool lpm_first_of_view() {
  if constexpr (std::is_same_v<typename LpmViewOf<kFamily, A>::type, typename LpmViewOf<kFamily, First>::type>) {
    return std::is_same_v<A, First>;
  } else {
    return lpm_first_of_view<kFamily, A, Rest...>();
  }
}

template <bool kKeep, typename A>
using LpmKept = std::conditional_t<kKeep, std::tuple<A>, std::tuple<>>;
template <typename List>
struct LpmLists;
template <typename... A>
struct LpmLists<std::tuple<A...>> {
  using Offered = decltype(std::tuple_cat(LpmKept<LpmOffered<A>, A>{}...));
  template <unsigned kFamily>
  using For = decltype(std::tuple_cat(LpmKept<LpmServes<A, kFamily>, A>{}...));
  template <unsigned kFamily>
  using Distinct = decltype(std::tuple_cat(LpmKept<lpm_first_of_view<kFamily, A, A...>(), A>{}...));
  template <unsigned kFamily, template <typename...> typename Template>
  using Views = Template<typename LpmViewOf<kFamily, A>::type...>;
};
}  // namespace detail

// What tests go through: also what is in no product.
using AllLpm4 = detail::LpmLists<AllLpm>::For<4>;
using AllLpm6 = detail::LpmLists<AllLpm>::For<6>;
// What users choose from. The first of each list is the default.
using LpmAlgorithms4 = detail::LpmLists<detail::LpmLists<AllLpm>::Offered>::For<4>;
using LpmAlgorithms6 = detail::LpmLists<detail::LpmLists<AllLpm>::Offered>::For<6>;
// The same without those whose Views another has: what the list of stages is made of.
using LpmStageAlgorithms4 = detail::LpmLists<LpmAlgorithms4>::Distinct<4>;
// A View6 that holds that of any algorithm.
using AnyView6 = detail::LpmLists<detail::LpmLists<LpmAlgorithms6>::Distinct<6>>::Views<6, AnyView6Of>;
static_assert(std::is_same_v<std::tuple_element_t<0, LpmAlgorithms4>, Dir24> &&
              std::is_same_v<std::tuple_element_t<0, LpmAlgorithms6>, Poptrie>);

// Calls f(Algorithm{}) for each algorithm of a list, in order.
template <typename List, typename F>
void for_each_lpm(F&& f) {
  [&]<typename... A>(std::type_identity<std::tuple<A...>>) { (f(A{}), ...); }(std::type_identity<List>{});
}
// Calls f(Algorithm{}) for the algorithm of that name. False: there is none.
template <typename List, typename F>
bool with_lpm(std::string_view name, F&& f) {
  bool found = false;
  for_each_lpm<List>([&]<typename A>(A algorithm) {
    if (found || name != A::kName) return;
    found = true;
    f(algorithm);
  });
  return found;
}

std::vector<std::string> lpm_algorithm_names4();
std::vector<std::string> lpm_algorithm_names6();

struct LpmSummary {
  std::string name, summary;
  bool ipv4, ipv6;
};
// Every algorithm once, in the order of the lists.
std::vector<LpmSummary> lpm_summaries();

// The names that let choose_lpm choose, for a CPU and for a GPU. kLpmAuto is the default.
inline constexpr const char* kLpmAuto = "auto";
inline constexpr const char* kLpmAutoGpu = "auto-gpu";
// The names, kLpmAuto and kLpmAutoGpu: what an option accepts.
std::vector<std::string> lpm_algorithm_choices4();
std::vector<std::string> lpm_algorithm_choices6();

struct LpmChoice {
  std::string algorithm4, algorithm6;
  std::string why4, why6;  // one clause each, for people
};
// What `auto` stands for, by the shape of the table and by where it will be used. The Rib must be settled.
LpmChoice choose_lpm(const Rib& rib, TableTarget target);
// A family's algorithm: what was chosen where `asked` is kLpmAuto or kLpmAutoGpu, else `asked`.
std::string chosen_lpm4(const Rib& rib, std::string_view asked);
std::string chosen_lpm6(const Rib& rib, std::string_view asked);

// One image (ImageKind::kRoutes) with sections kFib4, kFib6 and kNextHopNames. An unsettled Rib is copied and settled
// first. Errors: unknown algorithm names (with the nearest name), out of memory, limits of an algorithm.
Result<Image> build_routes(const Rib& rib, std::string_view algorithm4, std::string_view algorithm6);

// The image of two plans for `rib`, under the names of the algorithms that made them: what build_routes ends with.
// Errors: those of the plans, out of memory.
Result<Image> assemble_routes(const Rib& rib, std::string_view name4, const Result<FibPlan>& plan4,
                              std::string_view name6, const Result<FibPlan>& plan6);

// The layout version that an algorithm's sections have.
template <typename A>
constexpr uint32_t lpm_layout() {
  if constexpr (requires { A::kLayout; }) return A::kLayout;
  return 1;
}

// The name of the algorithm that built a section.
inline std::string_view section_algorithm(const ImageSection& section) {
  return {section.algorithm, strnlen(section.algorithm, sizeof section.algorithm)};
}

// Opens the IPv4 table of a routes image and calls f(view), where view is the View4 of its algorithm. The image must
// outlive the view. Errors: the section is missing, of an unknown algorithm or layout, or damaged.
template <typename F>
Result<void> with_fib4(const Image& image, F&& f);
// The same for the IPv6 table.
template <typename F>
Result<void> with_fib6(const Image& image, F&& f);

namespace detail {
// The section, its algorithm and the next-hop count, or why not.
struct FibSection {
  std::span<const std::byte> bytes;
  std::string_view algorithm;
  uint32_t next_hop_count;
  const Image* image;
  SectionTag tag;
};
Result<FibSection> find_fib(const Image& image, SectionTag tag);
Error unknown_fib(const FibSection& fib, const std::vector<std::string>& known);

template <typename View, typename F>
Result<void> open_fib(const FibSection& fib, F&& f) {
  auto view = [&] {
    if constexpr (requires { View::open(fib.bytes, fib.next_hop_count, true); }) {
      return View::open(fib.bytes, fib.next_hop_count, fib.image->checked(fib.tag));
    } else {
      return View::open(fib.bytes, fib.next_hop_count);
    }
  }();
  if (!view) return std::move(view).error();
  fib.image->note_checked(fib.tag);
  f(*view);
  return {};
}
}  // namespace detail

template <typename F>
Result<void> with_fib4(const Image& image, F&& f) {
  auto fib = detail::find_fib(image, SectionTag::kFib4);
  if (!fib) return std::move(fib).error();
  Result<void> result;
  if (!with_lpm<LpmAlgorithms4>(
          fib->algorithm, [&]<typename A>(A) { (void)(result = detail::open_fib<typename A::View4>(*fib, f)); })) {
    return detail::unknown_fib(*fib, lpm_algorithm_names4());
  }
  return result;
}

template <typename F>
Result<void> with_fib6(const Image& image, F&& f) {
  auto fib = detail::find_fib(image, SectionTag::kFib6);
  if (!fib) return std::move(fib).error();
  Result<void> result;
  if (!with_lpm<LpmAlgorithms6>(
          fib->algorithm, [&]<typename A>(A) { (void)(result = detail::open_fib<typename A::View6>(*fib, f)); })) {
    return detail::unknown_fib(*fib, lpm_algorithm_names6());
  }
  return result;
}

}  // namespace sluice
