// host only
// KernelShare: what of an interface's packets the kernel still gets where a port forwards them.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "net/types.h"
#include "ports/interface.h"
#include "ports/netlink/link_watch.h"

namespace sluice {

// Packet sockets see a packet and leave it to the kernel, which would forward it a second time. A BPF program at the
// interface's ingress, behind those sockets, drops it for the kernel unless it is the kernel's: no IP (ARP, LLDP),
// broadcast and multicast (ND, routing protocols), or to an address of this machine.
class KernelShare {
 public:
  enum class Hook : uint8_t {
    kLink,    // a link of the program's descriptor (Linux 6.6): it goes with the process, however that ends
    kFilter,  // a filter of clsact, which a process that was killed leaves there until the next one replaces it
  };
  // `own`: false: the kernel gets nothing. Errors: what is missing; nothing is changed then.
  static Result<std::unique_ptr<KernelShare>> take(const Interface& interface, bool own);
  static Result<std::unique_ptr<KernelShare>> take(const Interface& interface, bool own, Hook hook);
  ~KernelShare();
  KernelShare(const KernelShare&) = delete;
  KernelShare& operator=(const KernelShare&) = delete;

  // Takes up addresses that came or went. From time to time; it asks the kernel once, and does no more where nothing
  // has changed.
  void follow_addresses();
  Hook hook() const { return hook_; }

 private:
  KernelShare() = default;
  Result<void> set_addresses();
  Result<void> load(bool own);
  Result<void> attach_link(int ifindex);
  Result<void> attach_filter(int ifindex);

  Hook hook_ = Hook::kLink;
  FileDescriptor map_, program_, link_;
  std::unique_ptr<LinkWatch> watch_;
  std::unique_ptr<NetlinkSocket> requests_;  // of kFilter
  int ifindex_ = 0;                          // where a filter is to be removed
  std::vector<IpAddress> addresses_;         // in the map, in order
};

}  // namespace sluice
