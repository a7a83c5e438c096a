// host only
#include "ports/interface.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

namespace sluice {
namespace {

// Fills `request` with the interface's name of now.
bool name_of(int control, int index, ifreq& request) {
  request = {};
  request.ifr_ifindex = index;
  return ioctl(control, SIOCGIFNAME, &request) == 0;
}

}  // namespace

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  struct if_nameindex* const all = if_nameindex();
  for (const struct if_nameindex* i = all; i != nullptr && i->if_index != 0; ++i) names.emplace_back(i->if_name);
  if (all != nullptr) if_freenameindex(all);
  return names;
}

void FileDescriptor::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Result<Interface> Interface::find(const std::string& name) {
  FileDescriptor control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control) return system_error(fmt::format("interface '{}'", name), errno);
  ifreq request{};
  if (name.empty() || name.size() >= sizeof request.ifr_name) {
    return Error(fmt::format("'{}' is no name of an interface: those have 1 to 15 characters", name));
  }
  std::memcpy(request.ifr_name, name.data(), name.size());
  if (ioctl(control.get(), SIOCGIFINDEX, &request) != 0) {
    if (errno != ENODEV) return system_error(fmt::format("interface '{}'", name), errno);
    std::vector<std::string> names = interface_names();
    const std::string meant = closest_match(name, names);
    if (!meant.empty()) return Error(fmt::format("no interface '{}'", name), fmt::format("did you mean '{}'?", meant));
    names.resize(std::min<size_t>(names.size(), 16));
    return Error(fmt::format("no interface '{}'", name), fmt::format("there are: {}", fmt::join(names, " ")));
  }
  const int index = request.ifr_ifindex;
  if (ioctl(control.get(), SIOCGIFHWADDR, &request) != 0)
    return system_error(fmt::format("interface '{}'", name), errno);
  if (const int kind = request.ifr_hwaddr.sa_family; kind != ARPHRD_ETHER && kind != ARPHRD_LOOPBACK) {
    return Error(fmt::format("interface '{}' carries no Ethernet frames (its type is {})", name, kind));
  }
  return Interface(std::move(control), index);
}

RxState Interface::link() const {
  ifreq request;
  if (!name_of(control_.get(), index_, request)) return RxState::kGone;
  // A name that was given away between the two calls is looked at by the next call.
  if (ioctl(control_.get(), SIOCGIFFLAGS, &request) != 0) return RxState::kDown;
  const auto flags = static_cast<unsigned>(request.ifr_flags);
  return (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0 ? RxState::kIdle : RxState::kDown;
}

void Interface::describe(PortFacts& facts) const {
  facts.ifindex = index_;
  facts.up = link() == RxState::kIdle;
  ifreq request;
  if (!name_of(control_.get(), index_, request)) return;
  facts.name = request.ifr_name;
  if (ioctl(control_.get(), SIOCGIFMTU, &request) == 0) facts.mtu = static_cast<uint32_t>(request.ifr_mtu);
  if (ioctl(control_.get(), SIOCGIFHWADDR, &request) == 0) {
    std::memcpy(facts.mac.data(), request.ifr_hwaddr.sa_data, facts.mac.size());
  }
}

Result<void> Interface::set_up() const {
  ifreq request;
  if (name_of(control_.get(), index_, request) && ioctl(control_.get(), SIOCGIFFLAGS, &request) == 0) {
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
    if (ioctl(control_.get(), SIOCSIFFLAGS, &request) == 0) return {};
  }
  return system_error("setting the interface up", errno);
}

unsigned queues_of_interface(const std::string& name) {
  const FileDescriptor control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  ifreq request{};
  if (!control || name.size() >= sizeof request.ifr_name) return 1;
  std::copy(name.begin(), name.end(), request.ifr_name);
  request.ifr_data = reinterpret_cast<char*>(&channels);
  if (ioctl(control.get(), SIOCETHTOOL, &request) != 0) return 1;
  return std::max(1u, channels.combined_count + channels.rx_count);
}

uint32_t mtu_of_interface(const std::string& name) {
  const FileDescriptor control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  if (!control || name.size() >= sizeof request.ifr_name) return 0;
  std::copy(name.begin(), name.end(), request.ifr_name);
  return ioctl(control.get(), SIOCGIFMTU, &request) == 0 ? static_cast<uint32_t>(request.ifr_mtu) : 0;
}

FrameShape shape_for_mtu(uint32_t mtu) {
  FrameShape shape;
  if (mtu > kMostMtu || frame_bytes(mtu) <= shape.room()) return shape;
  constexpr uint32_t kLine = 64;
  const uint32_t lines = (shape.headroom + frame_bytes(mtu) + shape.tailroom + kLine - 1) / kLine;
  shape.stride = (lines | 1) * kLine;  // odd, as the default is
  return shape;
}

Result<void> check_frames_fit(const std::string& name, uint32_t mtu, const FrameShape& shape) {
  if (frame_bytes(mtu) <= shape.room()) return {};
  if (mtu > kMostMtu)
    return Error(fmt::format("{}: its MTU is {}, and a port takes {} at most", name, mtu, kMostMtu),
                 name == "lo" ? "packets of the loopback interface stay with this machine's kernel: use a veth pair"
                              : fmt::format("ip link set {} mtu {}", name, kMostMtu));
  return Error(fmt::format("{}: its MTU is {}, so that frames have up to {} bytes; chunks of {} bytes take {}", name,
                           mtu, frame_bytes(mtu), shape.stride, shape.room()),
               fmt::format("ip link set {} mtu {}", name, shape.room() - (frame_bytes(0))));
}

Error capability_error(const std::string& what, int code, const std::string& capability) {
  Error error = system_error(what, code);
  if (code != EPERM && code != EACCES) return error;
  std::string lower = capability;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  error.message += fmt::format(" (it needs {})", capability);
  error.hint = fmt::format("run it as root, or once: sudo setcap {}+ep $(command -v sluice)", lower);
  return error;
}

}  // namespace sluice
