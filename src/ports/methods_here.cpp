// host only
#include "ports/methods_here.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ports/dpdk/dpdk_port.h"
#include "ports/interface.h"
#include "ports/methods.h"

#ifndef AF_XDP
#define AF_XDP 44
#endif

namespace sluice {
namespace {

constexpr uint64_t kLockedBytes = 64 << 20;  // a pool's frames and a device's rings

bool has_capability(unsigned number) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[number / 32].effective >> (number % 32) & 1) != 0;
}

// Whether a socket of this family and type can be had; 0, or errno.
int try_socket(int family, int type) {
  const FileDescriptor fd(socket(family, type | SOCK_CLOEXEC, 0));
  return fd ? 0 : errno;
}

int try_map() {
  bpf_attr map{};
  map.map_type = BPF_MAP_TYPE_ARRAY;
  map.key_size = map.value_size = 4;
  map.max_entries = 1;
  const FileDescriptor fd(static_cast<int>(syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map)));
  return fd ? 0 : errno;
}

struct Wants {
  unsigned capability;
  const char* name;
  const char* why;
};

// The first of `wants` that this process does not have.
void need(MethodHere& method, std::initializer_list<Wants> wants) {
  std::string all, names;
  bool missing = false;
  for (const Wants& w : wants) {
    all += fmt::format("{}{}", all.empty() ? "" : ",", w.name);
    if (has_capability(w.capability)) continue;
    missing = true;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", w.name, w.why);
  }
  if (!missing || !method.lacks.empty()) return;
  for (char& c : all) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  method.lacks = names;
  method.mend = fmt::format("sudo setcap {}+ep $(command -v sluice)", all);
}

void lack(MethodHere& method, std::string what, std::string mend) {
  if (!method.lacks.empty()) return;
  method.lacks = std::move(what);
  method.mend = std::move(mend);
}

constexpr Wants kRaw{CAP_NET_RAW, "CAP_NET_RAW", "packet sockets"};
constexpr Wants kAdmin{CAP_NET_ADMIN, "CAP_NET_ADMIN", "interfaces"};
#ifdef CAP_BPF
constexpr Wants kBpf{CAP_BPF, "CAP_BPF", "BPF programs"};
#endif

void examine(MethodHere& m) {
  switch (m.method) {
    case PortMethod::kAfXdp: {
      need(m, {kRaw, kAdmin, kBpf});
      const int code = try_socket(AF_XDP, SOCK_RAW);
      if (code == EAFNOSUPPORT)
        lack(m, "AF_XDP sockets in this kernel", "a kernel with CONFIG_XDP_SOCKETS (Linux 5.4 or newer)");
      if (const int map = try_map(); map != 0) {
        lack(m, fmt::format("BPF: {}", std::strerror(map)), "run it as root, or allow BPF in the container");
      }
      rlimit locked{};
      if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < kLockedBytes && !has_capability(CAP_IPC_LOCK)) {
        lack(m, fmt::format("{} KiB of locked memory are allowed", locked.rlim_cur >> 10), "ulimit -l unlimited");
      }
      break;
    }
    case PortMethod::kAfPacket:
      need(m, {kRaw});
      if (const int code = try_socket(AF_PACKET, SOCK_RAW); code != 0) {
        lack(m, fmt::format("packet sockets: {}", std::strerror(code)),
             code == EAFNOSUPPORT ? "sudo modprobe af_packet" : "run it as root");
      }
      // It works without, but then the kernel forwards the same packets.
      if (m.lacks.empty()) {
        MethodHere more = m;
        need(more, {kRaw, kAdmin, kBpf});
        m.mend = more.mend;
      }
      break;
    case PortMethod::kTap:
      if (access("/dev/net/tun", F_OK) != 0)
        lack(m, "/dev/net/tun", "sudo modprobe tun; in a container: --device /dev/net/tun");
      if (access("/dev/net/tun", R_OK | W_OK) != 0) {
        lack(m, fmt::format("/dev/net/tun: {}", std::strerror(errno)), "sudo chmod 0666 /dev/net/tun");
      }
      need(m, {kAdmin});
      break;
    case PortMethod::kPcap:
      need(m, {kRaw});
      break;
    case PortMethod::kDpdk:
      if (!has_dpdk_module())
        lack(m, "the module libsluice_dpdk.so", "sudo apt-get install libdpdk-dev; cmake -DSLUICE_DPDK=on");
      break;
    case PortMethod::kAuto:
      break;
  }
  m.works = m.lacks.empty();
}

}  // namespace

std::vector<MethodHere> port_methods_here() {
  std::vector<MethodHere> methods;
  for (const PortMethod method :
       {PortMethod::kAfXdp, PortMethod::kAfPacket, PortMethod::kTap, PortMethod::kDpdk, PortMethod::kPcap}) {
    MethodHere m{.method = method, .built = has_port_method(method)};
    if (m.built) examine(m);
    methods.push_back(std::move(m));
  }
  return methods;
}

}  // namespace sluice
