// host only
#include "ports/netlink/link_drops.h"

#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "ports/netlink/netlink_parts.h"

namespace sluice {

Result<LinkDrops> LinkDrops::open(int ifindex) {
  auto socket = NetlinkSocket::open(0);
  if (!socket) return std::move(socket).error();
  uint64_t now = 0;
  if (!read(*socket, ifindex, now)) return system_error("the counters of an interface", ENODEV);
  return LinkDrops(std::unique_ptr<State>(new State{{}, std::move(*socket), ifindex, now, now}));
}

uint64_t LinkDrops::tx_dropped() {
  const std::lock_guard lock(state_->mutex);
  uint64_t now = 0;
  if (read(state_->socket, state_->ifindex, now)) state_->last = now;
  return state_->last - state_->before;
}

bool LinkDrops::read(NetlinkSocket& socket, int ifindex, uint64_t& dropped) {
  std::array<char, 64> space{};
  nlmsghdr* ask = mnl_nlmsg_put_header(space.data());
  ask->nlmsg_type = RTM_GETLINK;
  auto* body = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(ask, sizeof(ifinfomsg)));
  body->ifi_index = ifindex;
  bool found = false;
  auto answer = socket.request(ask, [&](const nlmsghdr* m) {
    netlink_attributes(m, sizeof(ifinfomsg), [&](unsigned type, const nlattr* a) {
      rtnl_link_stats64 stats;
      const size_t bytes = mnl_attr_get_payload_len(a);
      if (type != IFLA_STATS64 || bytes < offsetof(rtnl_link_stats64, multicast)) return;
      std::memcpy(&stats, mnl_attr_get_payload(a), std::min(bytes, sizeof stats));
      dropped = stats.tx_dropped;
      found = true;
    });
  });
  return answer.ok() && *answer == 0 && found;
}

}  // namespace sluice
