// The ACL algorithms by name. To add one: `./dev new acl NAME` copies a skeleton (example/) and puts its name into
// AllAcl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/hd.h"
#include "base/result.h"
#include "tables/acl/bitvec.h"
#include "tables/acl/example/example.h"
#include "tables/acl/linear.h"
#include "tables/acl/rule_set.h"
#include "tables/acl/sections.h"
#include "tables/acl/tuple_merge.h"
#include "tables/acl/tuple_space.h"
#include "tables/image.h"
#include "tables/target.h"

namespace sluice {

// Each algorithm is a traits struct: kName, kSectionName (8 bytes at most), kSummary, View, build(const RuleSet&). A
// View is trivially copyable and has open(const Image&) (checks every offset and index), lookup (host and device),
// lookup_burst (host, n <= 32) and each_pointer. lookup_burst may return whether all keys are of IPv4.
template <typename... Algorithms>
struct AclAlgorithmList {};

// What tests go through: also what is in no product (kOffered = false).
using AllAcl = AclAlgorithmList<LinearAcl, TupleSpaceAcl, TupleMergeAcl, BitvecAcl, ExampleAcl>;

namespace detail {
template <typename A>
concept AclOffered = !requires {
  A::kOffered;
}
|| A::kOffered;
template <typename Kept, typename... Rest>
struct AclOfferedOf {
  using type = Kept;
};
template <typename... Kept, typename First, typename... Rest>
struct AclOfferedOf<AclAlgorithmList<Kept...>, First, Rest...>
    : AclOfferedOf<std::conditional_t<AclOffered<First>, AclAlgorithmList<Kept..., First>, AclAlgorithmList<Kept...>>,
                   Rest...> {};
template <typename... A>
typename AclOfferedOf<AclAlgorithmList<>, A...>::type acl_offered(AclAlgorithmList<A...>);
}  // namespace detail

// What users choose from.
using AclAlgorithms = decltype(detail::acl_offered(AllAcl{}));

inline constexpr size_t kAclBurst = 32;

// The names that let choose_acl choose: for whoever builds, and for a device whoever does.
inline constexpr const char* kAclAuto = "auto";
inline constexpr const char* kAclAutoGpu = "auto-gpu";
// Where nothing was asked for.
inline constexpr const char* kDefaultAclAlgorithm = kAclAuto;
// Up to so many rules any algorithm builds a list in a few milliseconds, and a change may build it anew.
inline constexpr size_t kAclRebuilt = 512;
struct AclChosen {
  Image image;
  std::string algorithm;
  std::string why;  // one clause, for people
};
// What `auto` stands for: builds what may be best, lets packets drawn from the rules walk it, and weighs their steps by
// what each was measured to cost on the target. The same for the same rules on every machine. Errors: a rule set that
// check_rule_set refuses, out of memory.
Result<AclChosen> choose_acl(const RuleSet& set, TableTarget target);

// Why the algorithm's table takes minutes to build, for those who do not have to have it; "" where it does not.
std::string slow_acl_build(const RuleSet& set, std::string_view algorithm);

// Errors: unknown algorithm (with the nearest name), a rule set that check_rule_set refuses, out of memory.
Result<Image> build_acl(const RuleSet& set, std::string_view algorithm = kDefaultAclAlgorithm,
                        TableTarget target = TableTarget::kCpu);
std::vector<std::string> acl_algorithm_names();
// The names, kAclAuto and kAclAutoGpu: what an option accepts.
std::vector<std::string> acl_algorithm_choices();
// The name of the algorithm that built `image`, or empty when this program does not know it.
std::string_view acl_image_algorithm(const Image& image);

namespace detail {
template <typename... Algorithms>
union AclViewUnion;
template <typename Last>
union AclViewUnion<Last> {
  AclViewUnion() : head() {}
  typename Last::View head;
};
template <typename First, typename... Rest>
requires(sizeof...(Rest) > 0) union AclViewUnion<First, Rest...> {
  AclViewUnion() : head() {}
  typename First::View head;
  AclViewUnion<Rest...> tail;
};

template <typename List>
class AclAnyView;

template <typename... Algorithms>
class AclAnyView<AclAlgorithmList<Algorithms...>> {
 public:
  AclAnyView() = default;
  // Picks the View of the algorithm that built `image`. Errors: those of that View's open; an unknown algorithm.
  static Result<AclAnyView> open(const Image& image) { return open_from<0, Algorithms...>(image); }

  // 1-based position of the first matching rule, or 0. The switch is uniform over a batch.
  SLUICE_HD uint32_t lookup(const FlowKey& key) const { return lookup_in<0>(views_, key); }
  // Host only: `n` (at most kAclBurst) keys at once. True: all of them are of IPv4, as the algorithm has seen; false:
  // it may be so.
  bool lookup_burst(const FlowKey* const* keys, uint32_t* rules, size_t n) const {
    return burst_in<0>(views_, keys, rules, n);
  }
  // Host only: whether the algorithm searches keys that stand in columns; others want keys.
  bool takes_columns() const { return kTakesColumns[index_]; }
  // Host only: the keys [0, n), n at most kAclBurst. Precondition: takes_columns().
  void lookup_columns(const KeyColumns& keys, uint32_t* rules, size_t n) const {
    columns_in<0>(views_, keys, rules, n);
  }
  SLUICE_HD uint32_t algorithm_index() const { return index_; }

 private:
  template <size_t I, typename First, typename... Rest>
  static Result<AclAnyView> open_from(const Image& image) {
    if (acl_image_algorithm(image) == First::kName) {
      auto view = First::View::open(image);
      if (!view) return std::move(view).error();
      AclAnyView any;
      any.index_ = I;
      set<I>(any.views_, *view);
      return any;
    }
    if constexpr (sizeof...(Rest) > 0) {
      return open_from<I + 1, Rest...>(image);
    } else {
      return Error("ACL image: its algorithm is unknown to this program", "make it again with `sluice compile`");
    }
  }
  template <size_t I, typename U, typename V>
  static void set(U& u, const V& view) {
    if constexpr (I == 0) {
      u.head = view;
    } else {
      set<I - 1>(u.tail, view);
    }
  }
  template <size_t I, typename U>
  SLUICE_HD uint32_t lookup_in(const U& u, const FlowKey& key) const {
    if constexpr (I + 1 == sizeof...(Algorithms)) {
      return u.head.lookup(key);
    } else {
      return index_ == I ? u.head.lookup(key) : lookup_in<I + 1>(u.tail, key);
    }
  }
  template <size_t I, typename U>
  bool burst_in(const U& u, const FlowKey* const* keys, uint32_t* rules, size_t n) const {
    if constexpr (I + 1 != sizeof...(Algorithms)) {
      if (index_ != I) return burst_in<I + 1>(u.tail, keys, rules, n);
    }
    if constexpr (std::is_void_v<decltype(u.head.lookup_burst(keys, rules, n))>) {
      u.head.lookup_burst(keys, rules, n);
      return false;
    } else {
      return u.head.lookup_burst(keys, rules, n);
    }
  }
  template <typename View>
  static constexpr bool kColumns = requires(const View& view, const KeyColumns& keys, uint32_t* rules) {
    view.lookup_columns(keys, rules, size_t{});
  };
  static constexpr bool kTakesColumns[] = {kColumns<typename Algorithms::View>...};
  template <size_t I, typename U>
  void columns_in(const U& u, const KeyColumns& keys, uint32_t* rules, size_t n) const {
    if (index_ == I) {
      if constexpr (kColumns<decltype(u.head)>) u.head.lookup_columns(keys, rules, n);
    } else if constexpr (I + 1 < sizeof...(Algorithms)) {
      columns_in<I + 1>(u.tail, keys, rules, n);
    }
  }
  AclViewUnion<Algorithms...> views_;
  uint32_t index_ = 0;
};
}  // namespace detail

// The view of an ACL image whatever its algorithm: trivially copyable, host and device.
using AclView = detail::AclAnyView<AclAlgorithms>;
static_assert(std::is_trivially_copyable_v<AclView>);

}  // namespace sluice
