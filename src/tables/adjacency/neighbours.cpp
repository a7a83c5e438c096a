#include "tables/adjacency/neighbours.h"

#include <algorithm>
#include <utility>

#include "net/bytes.h"
#include "net/text.h"

namespace sluice {
namespace {

bool covers(const Neighbours::OwnAddress& own, const IpAddress& address) {
  if (own.address.family != address.family) return false;
  const unsigned n = own.length;
  if (address.family == 4) return ((own.address.lo ^ address.lo) & high_mask32(n)) == 0;
  return ((own.address.hi ^ address.hi) & high_mask64(std::min(n, 64u))) == 0 &&
         ((own.address.lo ^ address.lo) & high_mask64(n > 64 ? n - 64 : 0)) == 0;
}

// The network itself or all of it (RFC 2644: no directed broadcasts).
bool is_broadcast(const Neighbours::OwnAddress& own, const IpAddress& address) {
  if (address.family != 4 || own.length > 30 || !covers(own, address)) return false;
  const uint32_t host = static_cast<uint32_t>(address.lo) & ~high_mask32(own.length);
  return host == 0 || host == ~high_mask32(own.length);
}

bool is_link_local(const IpAddress& a) {
  return a.family == 6 ? a.hi >> 54 == 0xfe80 >> 6 : a.lo >> 16 == 0xa9fe;
}

}  // namespace

bool Neighbours::set_link(int ifindex, Link link) {
  const std::lock_guard lock(mutex_);
  names_.try_emplace(link.name, ifindex);
  // Another interface may have the name of one that is gone.
  if (const int first = names_.find(link.name)->second; !links_.contains(first)) names_[link.name] = ifindex;
  const auto [at, fresh] = links_.try_emplace(ifindex);
  if (!fresh && at->second == link) return false;
  at->second = std::move(link);
  changed();
  return true;
}

bool Neighbours::remove_link(int ifindex) {
  const std::lock_guard lock(mutex_);
  if (links_.erase(ifindex) == 0) return false;
  std::erase_if(macs_, [&](const auto& known) { return known.first.ifindex == ifindex; });
  changed();
  return true;
}

bool Neighbours::set(const NeighbourKey& key, const MacAddress& mac) {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = macs_.try_emplace(key, mac);
  if (!fresh && at->second == mac) return false;
  at->second = mac;
  changed();
  return numbers_.contains(key);
}

bool Neighbours::forget(const NeighbourKey& key) {
  const std::lock_guard lock(mutex_);
  if (macs_.erase(key) == 0) return false;
  changed();
  return numbers_.contains(key);
}

const Neighbours::Link* Neighbours::link_of(int ifindex) const {
  const auto at = links_.find(ifindex);
  return at == links_.end() ? nullptr : &at->second;
}

std::optional<uint32_t> Neighbours::number_of(const NeighbourKey& key) {
  if (const auto at = numbers_.find(key); at != numbers_.end()) return at->second;
  if (next_hops_.size() >= kMostNextHops) return std::nullopt;
  const auto number = static_cast<uint32_t>(next_hops_.size());
  next_hops_.push_back(key);
  numbers_.emplace(key, number);
  return number;
}

std::optional<Neighbours::Found> Neighbours::find(std::string_view next_hop,
                                                  const std::vector<NeighbourOutput>& outputs) {
  const size_t percent = next_hop.find('%');
  const auto address = parse_ip(next_hop.substr(0, percent));
  if (!address && (percent != std::string_view::npos || next_hop.empty())) return std::nullopt;
  if (percent == next_hop.size() - 1) return std::nullopt;
  const std::string_view name = !address                            ? next_hop
                                : percent != std::string_view::npos ? next_hop.substr(percent + 1)
                                                                    : std::string_view();
  // A link-local address says nothing without its link.
  if (address && name.empty() && is_link_local(*address)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const NeighbourOutput* output = nullptr;
  int ifindex = 0, longest = -1;
  for (const NeighbourOutput& o : outputs) {
    if (!name.empty() && o.interface != name) continue;
    const auto named = names_.find(o.interface);
    const Link* link = named == names_.end() ? nullptr : link_of(named->second);
    if (link == nullptr) continue;
    if (!name.empty()) {
      output = &o;
      ifindex = named->second;
      break;
    }
    for (const OwnAddress& own : link->addresses) {
      if (own.length <= longest || !covers(own, *address)) continue;
      longest = own.length;
      output = &o;
      ifindex = named->second;
    }
  }
  if (output == nullptr) return std::nullopt;
  const Link& link = *link_of(ifindex);
  if (address) {
    for (const OwnAddress& own : link.addresses) {
      if (own.address == *address || is_broadcast(own, *address)) return std::nullopt;
    }
  }
  Found found;
  found.key = {ifindex, address.value_or(IpAddress{})};
  found.interface = link.name;
  found.neighbour.port = output->port;
  found.neighbour.mtu = link.mtu;
  const auto number = number_of(found.key);
  if (!number) return std::nullopt;
  if (const auto mac = macs_.find(found.key); address && mac != macs_.end()) {
    found.known = true;
    found.neighbour.destination = mac->second;
    found.neighbour.source = link.mac;
  } else {
    store_be32(found.neighbour.destination.bytes + 2, *number);
    std::memcpy(found.neighbour.source.bytes, kMark, 6);
  }
  return found;
}

void Neighbours::each_next_hop(const std::function<void(const NeighbourKey&, bool)>& use) const {
  std::vector<std::pair<NeighbourKey, bool>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const NeighbourKey& key : next_hops_) {
      if (key.address.family != 0) all.emplace_back(key, macs_.contains(key));
    }
  }
  for (const auto& [key, known] : all) use(key, known);
}

std::optional<NeighbourKey> Neighbours::whom(const uint8_t* frame, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const uint32_t number = load_be32(frame + 2);
  if (number >= next_hops_.size()) return std::nullopt;
  NeighbourKey key = next_hops_[number];
  if (key.address.family != 0) return key;
  const uint8_t* ip = frame + 14;
  const uint16_t type = load_be16(frame + 12);
  if (type == 0x0800 && bytes >= 14 + 20) {
    key.address = {0, load_be32(ip + 16), 4};
  } else if (type == 0x86dd && bytes >= 14 + 40) {
    key.address = {load_be64(ip + 24), load_be64(ip + 32), 6};
  } else {
    return std::nullopt;
  }
  const Link* link = link_of(key.ifindex);
  if (link == nullptr) return std::nullopt;
  for (const OwnAddress& own : link->addresses) {
    if (own.address == key.address || is_broadcast(own, key.address)) return std::nullopt;
  }
  return key;
}

bool Neighbours::knows(const NeighbourKey& key) const {
  const std::lock_guard lock(mutex_);
  return macs_.contains(key) && links_.contains(key.ifindex);
}

bool Neighbours::address(uint8_t* frame, const NeighbourKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto mac = macs_.find(key);
  const Link* link = link_of(key.ifindex);
  if (mac == macs_.end() || link == nullptr) return false;
  std::memcpy(frame, mac->second.bytes, 6);
  std::memcpy(frame + 6, link->mac.bytes, 6);
  return true;
}

void Neighbours::ask(const NeighbourKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (asked_.size() >= kMostAsked) return;
    asked_.push_back(key);
    if (asked_.size() != 1) return;
  }
  if (told_) told_();
}

std::vector<NeighbourKey> Neighbours::take_asked() {
  const std::lock_guard lock(mutex_);
  return std::exchange(asked_, {});
}

}  // namespace sluice
