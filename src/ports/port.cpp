// host only
#include "ports/port.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "ports/af_xdp/af_xdp.h"
#include "ports/interface.h"
#include "ports/methods.h"

namespace sluice {
namespace {

struct Method {
  PortMethod method;
  const char* name;
  OpenPort* open;
  bool automatic;  // tried where none is named, in this order
};

// A method joins by a line.
constexpr Method kMethods[] = {
    {PortMethod::kAfXdp, "af_xdp", open_af_xdp, true},  {PortMethod::kAfPacket, "af_packet", open_af_packet_port, true},
    {PortMethod::kDpdk, "dpdk", open_dpdk_port, false}, {PortMethod::kTap, "tap", open_tap_port, false},
    {PortMethod::kPcap, "pcap", open_pcap_port, true},
};

std::string method_names() {
  std::string names;
  for (const Method& m : kMethods) names += fmt::format("{}{}", names.empty() ? "" : ", ", m.name);
  return names;
}

}  // namespace

const char* to_string(PortMethod method) {
  switch (method) {
    case PortMethod::kAuto:
      return "auto";
    case PortMethod::kAfXdp:
      return "af_xdp";
    case PortMethod::kAfPacket:
      return "af_packet";
    case PortMethod::kTap:
      return "tap";
    case PortMethod::kDpdk:
      return "dpdk";
    case PortMethod::kPcap:
      return "pcap";
  }
  return "unknown";
}

bool has_port_method(PortMethod method) {
  for (const Method& m : kMethods) {
    if (m.method == method) return true;
  }
  return false;
}

Result<PortMethod> parse_port_method(std::string_view text) {
  std::vector<std::string> names;
  for (const PortMethod method : {PortMethod::kAuto, PortMethod::kAfXdp, PortMethod::kAfPacket, PortMethod::kTap,
                                  PortMethod::kDpdk, PortMethod::kPcap}) {
    if (text == to_string(method)) return method;
    names.emplace_back(to_string(method));
  }
  const std::string meant = closest_match(std::string(text), names);
  return Error(fmt::format("'{}' is no method of ports; they are {}", text, fmt::join(names, ", ")),
               meant.empty() ? std::string() : fmt::format("did you mean '{}'?", meant));
}

Result<std::unique_ptr<Port>> open_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool) {
  if (options.queues == 0 || options.queues > kMaxPortQueues) {
    return Error(fmt::format("{}: {} queues; a port has 1 to {}", options.name, options.queues, kMaxPortQueues));
  }
  if (!options.receives && !options.sends) {
    return Error(fmt::format("{}: a port that neither receives nor sends", options.name));
  }
  if (options.method != PortMethod::kAuto) {
    for (const Method& m : kMethods) {
      if (m.method == options.method) return m.open(options, pool);
    }
    return Error(fmt::format("{}: this build has no method {}", options.name, to_string(options.method)),
                 fmt::format("it has: {}", method_names()));
  }
  // Without an interface of that name no method works, and what each of them says about it says no more.
  if (auto interface = Interface::find(options.name); !interface) return std::move(interface).error();
  Error none(fmt::format("{}: no method opens it", options.name));
  for (const Method& m : kMethods) {
    if (!m.automatic) continue;
    auto port = m.open(options, pool);
    if (port) return port;
    none.message += fmt::format("; {}: {}", m.name, port.error().message);
    if (none.hint.empty()) none.hint = port.error().hint;
    none.system |= port.error().system;
  }
  return none;
}

}  // namespace sluice
