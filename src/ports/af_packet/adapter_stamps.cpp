// host only
#include "ports/af_packet/adapter_stamps.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice {
namespace {

ifreq request_to(const std::string& interface, void* data) {
  ifreq request{};
  std::memcpy(request.ifr_name, interface.c_str(), std::min(interface.size() + 1, sizeof request.ifr_name - 1));
  request.ifr_data = static_cast<char*>(data);
  return request;
}

}  // namespace

Result<std::unique_ptr<AdapterStamps>> AdapterStamps::take(const std::string& interface) {
  std::unique_ptr<AdapterStamps> stamps(new AdapterStamps);
  stamps->interface_ = interface;
  stamps->control_ = FileDescriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!stamps->control_) return system_error(interface + ": its timestamps", errno);
  ethtool_ts_info info{};
  info.cmd = ETHTOOL_GET_TS_INFO;
  ifreq request = request_to(interface, &info);
  constexpr uint32_t kNeeded = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
  if (ioctl(stamps->control_.get(), SIOCETHTOOL, &request) != 0 || (info.so_timestamping & kNeeded) != kNeeded ||
      (info.rx_filters & 1u << HWTSTAMP_FILTER_ALL) == 0) {
    return Error(
        fmt::format("{}: its hardware does not stamp every packet", interface),
        fmt::format("'ethtool -T {}' says what it has; without TIMESTAMP_TYPE the host stamps them", interface));
  }
  // Where a driver does not say what it does, nothing is to be put back.
  const bool known = stamps->ask(SIOCGHWTSTAMP, stamps->before_);
  if (known && stamps->before_.rx_filter == HWTSTAMP_FILTER_ALL) return stamps;
  hwtstamp_config config = stamps->before_;
  config.rx_filter = HWTSTAMP_FILTER_ALL;
  if (!stamps->ask(SIOCSHWTSTAMP, config))
    return capability_error(interface + ": hardware timestamps", errno, "CAP_NET_ADMIN");
  stamps->changed_ = known;
  return stamps;
}

AdapterStamps::~AdapterStamps() {
  if (changed_) ask(SIOCSHWTSTAMP, before_);
}

bool AdapterStamps::ask(unsigned long command, hwtstamp_config& config) const {
  ifreq request = request_to(interface_, &config);
  return ioctl(control_.get(), command, &request) == 0;
}

uint64_t stamp_of(uint32_t status, uint32_t seconds, uint32_t nanoseconds, uint64_t otherwise_ns) {
  if ((status & TP_STATUS_TS_RAW_HARDWARE) == 0) return otherwise_ns;
  return uint64_t{seconds} * 1'000'000'000 + nanoseconds;
}

}  // namespace sluice
