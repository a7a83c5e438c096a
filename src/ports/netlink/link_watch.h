// host only
// LinkWatch: the kernel's interfaces and their addresses, as they change.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/types.h"
#include "ports/netlink/netlink_socket.h"

namespace sluice {

struct LinkAddress {
  IpAddress address;
  uint8_t length = 0;  // of its network's prefix, bits
  friend bool operator==(const LinkAddress&, const LinkAddress&) = default;
};

struct KernelLink {
  int index = 0;
  std::string name;
  bool up = false;       // somebody set it up
  bool carrier = false;  // and the other end is there
  uint32_t mtu = 0;
  std::array<uint8_t, 6> mac{};
  std::vector<LinkAddress> addresses;  // at most kMostAddresses
  friend bool operator==(const KernelLink&, const KernelLink&) = default;
};

// The interfaces of the network namespace in which it was made. One thread at a time; it has no thread of its own.
class LinkWatch {
 public:
  static constexpr size_t kMostLinks = 65'536;
  static constexpr size_t kMostAddresses = 4096;  // of a link

  // Knows all links when it returns. Errors: the system's.
  static Result<std::unique_ptr<LinkWatch>> create(int receive_bytes = NetlinkSocket::kReceiveBytes);

  // Readable when something has changed.
  int fd() const { return follows_.events.fd(); }
  // `before` and `after` differ; nullptr: there was none, it is gone.
  using Changed = std::function<void(const KernelLink* before, const KernelLink* after)>;
  // Takes up what has changed, at most some hundred messages: fd() stays readable where there is more. Where the kernel
  // had no room for all it said, all links are read again. Never waits but for that. Errors: the system's; it goes on
  // with the next call.
  Result<void> read(const Changed& changed = {});

  const std::map<int, KernelLink>& links() const { return links_; }
  // nullptr: there is none of that number or name.
  const KernelLink* find(int index) const;
  const KernelLink* find(const std::string& name) const;
  // How often messages were lost, and all was read again.
  uint64_t losses() const { return follows_.losses; }

 private:
  explicit LinkWatch(NetlinkWatch follows) : follows_(std::move(follows)) {}
  Result<void> read_all(const Changed& changed);
  void apply(const nlmsghdr* message, const Changed& changed);

  NetlinkWatch follows_;
  std::map<int, KernelLink> links_;
};

}  // namespace sluice
