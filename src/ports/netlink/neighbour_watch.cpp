// host only
#include "ports/netlink/neighbour_watch.h"

#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "net/text.h"
#include "ports/interface.h"
#include "ports/netlink/netlink_parts.h"

namespace sluice {
namespace {}  // namespace

bool Neighbour::usable() const {
  return (state & (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY)) != 0;
}

Result<std::unique_ptr<NeighbourWatch>> NeighbourWatch::create(std::vector<int> ifindexes, int receive_bytes) {
  auto follows = NetlinkWatch::open(RTMGRP_NEIGH, receive_bytes);
  if (!follows) return std::move(follows).error();
  std::unique_ptr<NeighbourWatch> watch(new NeighbourWatch(std::move(*follows), std::move(ifindexes)));
  if (auto all = watch->read_all({}); !all) return std::move(all).error();
  return watch;
}

void NeighbourWatch::for_each(const std::function<void(const Neighbour&)>& use) const {
  for (const auto& [key, neighbour] : table_) use(neighbour);
}

const Neighbour* NeighbourWatch::find(int ifindex, const IpAddress& address) const {
  const auto at = table_.find(Key{ifindex, address});
  return at == table_.end() ? nullptr : &at->second;
}

bool NeighbourWatch::parse(const nlmsghdr* message, Neighbour& neighbour) const {
  const auto* body = static_cast<const ndmsg*>(mnl_nlmsg_get_payload(message));
  neighbour.ifindex = body->ndm_ifindex;
  neighbour.state = body->ndm_state;
  if (!ifindexes_.empty() && std::find(ifindexes_.begin(), ifindexes_.end(), body->ndm_ifindex) == ifindexes_.end()) {
    return false;
  }
  netlink_attributes(message, sizeof *body, [&](unsigned type, const nlattr* a) {
    const size_t bytes = mnl_attr_get_payload_len(a);
    if (type == NDA_DST) {
      neighbour.address = netlink_address(body->ndm_family, mnl_attr_get_payload(a), bytes);
    } else if (type == NDA_LLADDR && bytes == sizeof neighbour.mac) {
      std::memcpy(&neighbour.mac, mnl_attr_get_payload(a), bytes);
    }
  });
  return neighbour.address.family != 0;
}

// What comes from before it on is taken up afterwards: each event tells the whole state, the last one that of now.
Result<void> NeighbourWatch::read_all(const Changed& changed) {
  Table now;
  auto all = follows_.requests.dump(RTM_GETNEIGH, AF_UNSPEC, [&](const nlmsghdr* m) {
    Neighbour neighbour;
    if (m->nlmsg_type != RTM_NEWNEIGH || !parse(m, neighbour)) return;
    const Key key{neighbour.ifindex, neighbour.address};
    if (now.size() < kMost || now.count(key) != 0) now[key] = neighbour;
  });
  if (!all) return all;
  follows_.complete = true;
  std::swap(table_, now);
  if (!changed) return {};
  for (const auto& [key, before] : now) {
    if (table_.count(key) == 0) changed(before, true);
  }
  for (const auto& [key, after] : table_) {
    const auto before = now.find(key);
    if (before == now.end() || before->second != after) changed(after, false);
  }
  return {};
}

void NeighbourWatch::apply(const nlmsghdr* message, const Changed& changed) {
  if (message->nlmsg_type != RTM_NEWNEIGH && message->nlmsg_type != RTM_DELNEIGH) return;
  Neighbour neighbour;
  if (!parse(message, neighbour)) return;
  const Key key{neighbour.ifindex, neighbour.address};
  const auto at = table_.find(key);
  if (message->nlmsg_type == RTM_DELNEIGH) {
    if (at == table_.end()) return;
    const Neighbour before = at->second;
    table_.erase(at);
    if (changed) changed(before, true);
    return;
  }
  if (at == table_.end() && table_.size() >= kMost) return;
  if (at != table_.end() && at->second == neighbour) return;
  table_[key] = neighbour;
  if (changed) changed(neighbour, false);
}

Result<void> NeighbourWatch::read(const Changed& changed) {
  return follows_.read([&] { return read_all(changed); }, [&](const nlmsghdr* m) { apply(m, changed); });
}

Result<void> NeighbourWatch::resolve(int ifindex, const IpAddress& address) {
  std::array<char, 256> space{};
  nlmsghdr* ask = mnl_nlmsg_put_header(space.data());
  ask->nlmsg_type = RTM_NEWNEIGH;
  ask->nlmsg_flags = NLM_F_CREATE;
  auto* body = static_cast<ndmsg*>(mnl_nlmsg_put_extra_header(ask, sizeof(ndmsg)));
  body->ndm_family = address.family == 4 ? AF_INET : AF_INET6;
  body->ndm_ifindex = ifindex;
  body->ndm_state = NUD_NONE;
  body->ndm_flags = NTF_USE;  // as if a packet to it were there
  std::array<uint8_t, 16> bytes{};
  mnl_attr_put(ask, NDA_DST, netlink_bytes(address, bytes.data()), bytes.data());
  auto answer = follows_.requests.request(ask);
  if (!answer) return std::move(answer).error();
  if (*answer == 0) return {};
  return capability_error(fmt::format("resolving {} at interface {}", to_string(address), ifindex), *answer,
                          "CAP_NET_ADMIN");
}

}  // namespace sluice
