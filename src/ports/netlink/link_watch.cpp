// host only
#include "ports/netlink/link_watch.h"

#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>

#include "ports/netlink/netlink_parts.h"

namespace sluice {
namespace {

// Of a link, without its addresses.
void read_link(const nlmsghdr* message, KernelLink& link) {
  const auto* body = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message));
  link.index = body->ifi_index;
  link.up = (body->ifi_flags & IFF_UP) != 0;
  link.carrier = link.up && (body->ifi_flags & IFF_RUNNING) != 0;
  netlink_attributes(message, sizeof *body, [&](unsigned type, const nlattr* a) {
    const size_t bytes = mnl_attr_get_payload_len(a);
    if (type == IFLA_IFNAME && bytes > 0) {
      const char* text = mnl_attr_get_str(a);
      link.name.assign(text, strnlen(text, bytes));
    } else if (type == IFLA_MTU && bytes >= sizeof(uint32_t)) {
      link.mtu = mnl_attr_get_u32(a);
    } else if (type == IFLA_ADDRESS && bytes == link.mac.size()) {
      std::memcpy(link.mac.data(), mnl_attr_get_payload(a), bytes);
    }
  });
}

// False: an address of another family.
bool read_address(const nlmsghdr* message, int& index, LinkAddress& address) {
  const auto* body = static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(message));
  index = static_cast<int>(body->ifa_index);
  address.length = body->ifa_prefixlen;
  // IFA_ADDRESS is the other end's where a link has two ends, and IFA_LOCAL then its own.
  bool local = false;
  netlink_attributes(message, sizeof *body, [&](unsigned type, const nlattr* a) {
    if (type != IFA_LOCAL && (type != IFA_ADDRESS || local)) return;
    local |= type == IFA_LOCAL;
    address.address = netlink_address(body->ifa_family, mnl_attr_get_payload(a), mnl_attr_get_payload_len(a));
  });
  return address.address.family != 0;
}

void add_address(KernelLink& link, const LinkAddress& address) {
  if (link.addresses.size() < LinkWatch::kMostAddresses &&
      std::find(link.addresses.begin(), link.addresses.end(), address) == link.addresses.end()) {
    link.addresses.push_back(address);
  }
}

}  // namespace

Result<std::unique_ptr<LinkWatch>> LinkWatch::create(int receive_bytes) {
  auto follows = NetlinkWatch::open(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR, receive_bytes);
  if (!follows) return std::move(follows).error();
  std::unique_ptr<LinkWatch> watch(new LinkWatch(std::move(*follows)));
  if (auto all = watch->read_all({}); !all) return std::move(all).error();
  return watch;
}

const KernelLink* LinkWatch::find(int index) const {
  const auto at = links_.find(index);
  return at == links_.end() ? nullptr : &at->second;
}

const KernelLink* LinkWatch::find(const std::string& name) const {
  for (const auto& [index, link] : links_) {
    if (link.name == name) return &link;
  }
  return nullptr;
}

// What comes from before it on is taken up afterwards: each event tells the whole state, the last one that of now.
Result<void> LinkWatch::read_all(const Changed& changed) {
  std::map<int, KernelLink> now;
  auto links = follows_.requests.dump(RTM_GETLINK, AF_UNSPEC, [&](const nlmsghdr* m) {
    if (m->nlmsg_type != RTM_NEWLINK) return;
    KernelLink link;
    read_link(m, link);
    if (now.size() < kMostLinks || now.count(link.index) != 0) now[link.index] = std::move(link);
  });
  if (!links) return links;
  auto addresses = follows_.requests.dump(RTM_GETADDR, AF_UNSPEC, [&](const nlmsghdr* m) {
    int index;
    LinkAddress address;
    if (m->nlmsg_type != RTM_NEWADDR || !read_address(m, index, address)) return;
    if (const auto at = now.find(index); at != now.end()) add_address(at->second, address);
  });
  if (!addresses) return addresses;
  follows_.complete = true;
  std::swap(links_, now);
  if (!changed) return {};
  for (const auto& [index, before] : now) {
    if (links_.count(index) == 0) changed(&before, nullptr);
  }
  for (const auto& [index, after] : links_) {
    const auto before = now.find(index);
    if (before == now.end()) {
      changed(nullptr, &after);
    } else if (before->second != after) {
      changed(&before->second, &after);
    }
  }
  return {};
}

void LinkWatch::apply(const nlmsghdr* message, const Changed& changed) {
  switch (message->nlmsg_type) {
    case RTM_NEWLINK: {
      // Bridges say by AF_BRIDGE what they do with their ports.
      if (static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message))->ifi_family != AF_UNSPEC) return;
      const int index = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message))->ifi_index;
      const auto at = links_.find(index);
      if (at == links_.end()) {
        if (links_.size() >= kMostLinks) return;
        KernelLink& link = links_[index];
        read_link(message, link);
        if (changed) changed(nullptr, &link);
        return;
      }
      const KernelLink before = at->second;
      read_link(message, at->second);
      if (changed && before != at->second) changed(&before, &at->second);
      return;
    }
    case RTM_DELLINK: {
      const auto* body = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message));
      if (body->ifi_family != AF_UNSPEC) return;
      const auto at = links_.find(body->ifi_index);
      if (at == links_.end()) return;
      const KernelLink before = std::move(at->second);
      links_.erase(at);
      if (changed) changed(&before, nullptr);
      return;
    }
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      int index;
      LinkAddress address;
      if (!read_address(message, index, address)) return;
      const auto at = links_.find(index);
      if (at == links_.end()) return;
      const KernelLink before = at->second;
      auto& all = at->second.addresses;
      if (message->nlmsg_type == RTM_NEWADDR) {
        add_address(at->second, address);
      } else {
        all.erase(std::remove(all.begin(), all.end(), address), all.end());
      }
      if (changed && before != at->second) changed(&before, &at->second);
      return;
    }
    default:
      return;
  }
}

Result<void> LinkWatch::read(const Changed& changed) {
  return follows_.read([&] { return read_all(changed); }, [&](const nlmsghdr* m) { apply(m, changed); });
}

}  // namespace sluice
