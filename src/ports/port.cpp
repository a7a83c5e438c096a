// host only
#include "ports/port.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "ports/interface.h"
#include "ports/methods.h"

namespace sluice {

std::span<const PortMethodEntry> port_method_entries() {
  static constexpr PortMethodEntry kEntries[] = {
#define SLUICE_PORT_METHOD(method, name, open, examine, automatic) {PortMethod::method, name, open, examine, automatic},
#include "ports/methods.inc"
#undef SLUICE_PORT_METHOD
  };
  return kEntries;
}

const char* to_string(PortMethod method) {
  for (const PortMethodEntry& m : port_method_entries()) {
    if (m.method == method) return m.name;
  }
  return method == PortMethod::kAuto ? "auto" : "unknown";
}

std::vector<std::string> port_method_names() {
  std::vector<std::string> names;
  for (const PortMethodEntry& m : port_method_entries()) names.emplace_back(m.name);
  return names;
}

Result<PortMethod> parse_port_method(std::string_view text) {
  if (text == to_string(PortMethod::kAuto)) return PortMethod::kAuto;
  for (const PortMethodEntry& m : port_method_entries()) {
    if (text == m.name) return m.method;
  }
  std::vector<std::string> names = port_method_names();
  names.insert(names.begin(), to_string(PortMethod::kAuto));
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
  if (options.hardware_timestamps && options.method != PortMethod::kAfPacket) {
    // The only method that has them.
    if (options.method != PortMethod::kAuto)
      return Error(fmt::format("{}: no timestamps of the adapter by {}", options.name, to_string(options.method)),
                   "the method af_packet has them");
    PortOptions stamped = options;
    stamped.method = PortMethod::kAfPacket;
    return open_port(stamped, pool);
  }
  if (options.method != PortMethod::kAuto) {
    for (const PortMethodEntry& m : port_method_entries()) {
      if (m.method == options.method) return m.open(options, pool);
    }
    return Error(fmt::format("{}: there is no such method", options.name));
  }
  // Without an interface of that name no method works, and what each of them says about it says no more.
  if (auto interface = Interface::find(options.name); !interface) return std::move(interface).error();
  // Nor does any where frames are too long for all of them.
  const uint32_t mtu = mtu_of_interface(options.name);
  if (auto fits = check_frames_fit(options.name, mtu, pool->shape()); !fits && mtu > kMostMtu)
    return std::move(fits).error();
  Error none(fmt::format("{}: no method opens it", options.name));
  for (const PortMethodEntry& m : port_method_entries()) {
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
