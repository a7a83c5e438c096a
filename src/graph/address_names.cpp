#include "graph/address_names.h"

#include "net/text.h"

namespace sluice {
namespace {

// What follows the first ':' of a word: which of a name's addresses.
std::optional<std::string> text_of(const AddressNames::Entry& e, std::string_view which, AddressNames::Wanted wanted) {
  using Wanted = AddressNames::Wanted;
  const bool ip = wanted == Wanted::kIp || wanted == Wanted::kPrefix;
  if (which.empty()) {
    if (wanted == Wanted::kMac) return e.mac ? std::optional(to_string(*e.mac)) : std::nullopt;
    if (e.ipv4 && (ip || wanted == Wanted::kIpv4)) return to_string(*e.ipv4);
    if (e.ipv6 && (ip || wanted == Wanted::kIpv6)) return to_string(*e.ipv6);
    return std::nullopt;
  }
  if (which == "eth" || which == "ether") {
    return e.mac && wanted == Wanted::kMac ? std::optional(to_string(*e.mac)) : std::nullopt;
  }
  if ((which == "ip" || which == "ip4") && e.ipv4 && (ip || wanted == Wanted::kIpv4)) return to_string(*e.ipv4);
  if (which == "ip6" && e.ipv6 && (ip || wanted == Wanted::kIpv6)) return to_string(*e.ipv6);
  if (which == "ipnet" && e.net4 && wanted == Wanted::kPrefix) return to_string(*e.net4);
  if (which == "ip6net" && e.net6 && wanted == Wanted::kPrefix) return to_string(*e.net6);
  if (which == "bcast" && e.net4 && (ip || wanted == Wanted::kIpv4)) {
    IpAddress last = e.net4->address;
    last.lo |= e.net4->length == 0 ? 0xffffffffu : 0xffffffffu >> e.net4->length;
    if (e.net4->length == 32) last.lo = e.net4->address.lo;
    return to_string(last);
  }
  return std::nullopt;
}

}  // namespace

bool AddressNames::add(std::string_view scope, std::string_view name, const Entry& entry) {
  return entries_.emplace(std::string(scope) + std::string(name), entry).second;
}

std::optional<std::string> AddressNames::find(std::string_view scope, std::string_view word, Wanted wanted) const {
  if (entries_.empty()) return std::nullopt;
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  const std::string_view which = colon == std::string_view::npos ? std::string_view() : word.substr(colon + 1);
  if (name.empty() || (colon != std::string_view::npos && which.empty())) return std::nullopt;
  while (true) {
    if (const auto at = entries_.find(std::string(scope) + std::string(name)); at != entries_.end())
      return text_of(at->second, which, wanted);
    if (scope.empty()) return std::nullopt;
    scope = scope_of(scope.substr(0, scope.size() - 1));
  }
}

}  // namespace sluice
