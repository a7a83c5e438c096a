// host only
// What AF_XDP asks of a machine.
#include <fmt/format.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ports/interface.h"
#include "ports/methods.h"

namespace sluice {
namespace {

constexpr uint64_t kLockedBytes = 64 << 20;  // a pool's frames and a device's rings

int try_map() {
  bpf_attr map{};
  map.map_type = BPF_MAP_TYPE_ARRAY;
  map.key_size = map.value_size = 4;
  map.max_entries = 1;
  const FileDescriptor fd(static_cast<int>(syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map)));
  return fd ? 0 : errno;
}

}  // namespace

void examine_af_xdp(MethodHere& here) {
  need_capabilities(here, {capability::kRaw, capability::kAdmin, capability::kBpf});
  const int code = try_socket(AF_XDP, SOCK_RAW);
  if (code == EAFNOSUPPORT)
    lack(here, "AF_XDP sockets in this kernel", "a kernel with CONFIG_XDP_SOCKETS (Linux 5.4 or newer)");
  if (const int map = try_map(); map != 0) {
    lack(here, fmt::format("BPF: {}", std::strerror(map)), "run it as root, or allow BPF in the container");
  }
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < kLockedBytes && !has_capability(CAP_IPC_LOCK)) {
    lack(here, fmt::format("{} KiB of locked memory are allowed", locked.rlim_cur >> 10), "ulimit -l unlimited");
  }
}

}  // namespace sluice
