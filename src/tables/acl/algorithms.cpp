#include "tables/acl/algorithms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

namespace sluice {
namespace {

// Calls visit with each algorithm of the list until one returns true.
template <typename... Algorithms, typename Visit>
bool any_of(AclAlgorithmList<Algorithms...>, Visit&& visit) {
  return (visit.template operator()<Algorithms>() || ...);
}

}  // namespace

std::vector<std::string> acl_algorithm_names() {
  std::vector<std::string> names;
  any_of(AclAlgorithms{}, [&]<typename A>() {
    names.emplace_back(A::kName);
    return false;
  });
  return names;
}

std::vector<std::string> acl_algorithm_choices() {
  std::vector<std::string> names = acl_algorithm_names();
  names.emplace_back(kAclAuto);
  names.emplace_back(kAclAutoGpu);
  return names;
}

Result<Image> build_acl(const RuleSet& set, std::string_view algorithm, TableTarget target) {
  if (algorithm == kAclAuto || algorithm == kAclAutoGpu) {
    auto chosen = choose_acl(set, algorithm == kAclAutoGpu ? TableTarget::kGpu : target);
    if (!chosen) return std::move(chosen).error();
    return std::move(chosen->image);
  }
  Result<Image> result = Error();
  const bool known = any_of(AclAlgorithms{}, [&]<typename A>() {
    if (algorithm != A::kName) return false;
    if constexpr (requires { A::build(set, target); }) {
      result = A::build(set, target);
    } else {
      result = A::build(set);
    }
    return true;
  });
  if (known) return result;
  const auto names = acl_algorithm_choices();
  const std::string near = closest_match(algorithm, names);
  return Error(fmt::format("unknown ACL algorithm '{}'; there are: {}", algorithm, fmt::join(names, ", ")),
               near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
}

std::string slow_acl_build(const RuleSet& set, std::string_view algorithm) {
  std::string why;
  any_of(AclAlgorithms{}, [&]<typename A>() {
    if (algorithm != A::kName) return false;
    if constexpr (requires { A::slow_build(set); }) why = A::slow_build(set);
    return true;
  });
  return why;
}

std::string_view acl_image_algorithm(const Image& image) {
  const ImageSection* section = image.empty() ? nullptr : image.find(SectionTag::kAclLookup);
  std::string_view name;
  if (section == nullptr) return name;
  any_of(AclAlgorithms{}, [&]<typename A>() {
    char padded[sizeof section->algorithm] = {};
    static_assert(std::char_traits<char>::length(A::kSectionName) <= sizeof padded);
    std::memcpy(padded, A::kSectionName, std::char_traits<char>::length(A::kSectionName));
    if (std::memcmp(padded, section->algorithm, sizeof padded) != 0) return false;
    name = A::kName;
    return true;
  });
  return name;
}

}  // namespace sluice
