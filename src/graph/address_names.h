// Names for addresses, as AddressInfo declares them. Source: its Click manual page. Host only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "net/types.h"

namespace sluice {

class AddressNames {
 public:
  // What one name stands for.
  struct Entry {
    std::optional<IpAddress> ipv4, ipv6;
    std::optional<IpPrefix> net4, net6;  // where the address was given with a length
    std::optional<MacAddress> mac;
  };
  enum class Wanted : uint8_t { kIpv4, kIpv6, kIp, kPrefix, kMac };

  // Adds a name within `scope`: the compound around the declaration, as "outer/inner/", or nothing. False: it is there.
  bool add(std::string_view scope, std::string_view name, const Entry& entry);

  // The address as text, for `word` written within `scope`: NAME, or NAME with one of :ip :ipnet :bcast :ip6 :ip6net
  // :eth behind it. The innermost compound that has the name decides. Nothing: no such name, or it has no such address.
  std::optional<std::string> find(std::string_view scope, std::string_view word, Wanted wanted) const;

 private:
  std::map<std::string, Entry, std::less<>> entries_;  // by scope and name
};

// The names as seen from one element.
struct AddressScope {
  const AddressNames* names = nullptr;
  std::string_view scope;

  std::optional<std::string> find(std::string_view word, AddressNames::Wanted wanted) const {
    return names == nullptr ? std::nullopt : names->find(scope, word, wanted);
  }
};

// The compound that an element is in, as scope: "outer/inner/" of "outer/inner/element".
inline std::string_view scope_of(std::string_view element) {
  const size_t slash = element.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : element.substr(0, slash + 1);
}

}  // namespace sluice
