// host only
// What messages of rtnetlink are made of: attributes, IP addresses.
#pragma once

#include <libmnl/libmnl.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "net/bytes.h"
#include "net/types.h"

namespace sluice {

// Calls use(type, attribute) for each attribute behind a body of `body` bytes.
template <typename Use>
void netlink_attributes(const nlmsghdr* message, size_t body, Use use) {
  const auto* end = static_cast<const char*>(mnl_nlmsg_get_payload_tail(message));
  for (auto* a = static_cast<const nlattr*>(mnl_nlmsg_get_payload_offset(message, body));
       mnl_attr_ok(a, static_cast<int>(end - reinterpret_cast<const char*>(a))); a = mnl_attr_next(a)) {
    use(mnl_attr_get_type(a), a);
  }
}

// Family 0: neither IPv4 nor IPv6, or of another length.
inline IpAddress netlink_address(uint8_t family, const void* bytes, size_t count) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  if (family == AF_INET && count == 4) return {0, load_be32(at), 4};
  if (family == AF_INET6 && count == 16) return {load_be64(at), load_be64(at + 8), 6};
  return {};
}

// Writes 4 or 16 bytes and returns how many.
inline size_t netlink_bytes(const IpAddress& address, uint8_t* to) {
  if (address.family == 4) {
    store_be32(to, static_cast<uint32_t>(address.lo));
    return 4;
  }
  store_be64(to, address.hi);
  store_be64(to + 8, address.lo);
  return 16;
}

}  // namespace sluice
