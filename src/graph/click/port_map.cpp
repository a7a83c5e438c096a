#include "graph/click/port_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "graph/click/config_text.h"
#include "graph/click/findings.h"
#include "graph/click/syntax.h"

namespace sluice {
namespace {

struct DeviceClass {
  const char* name;
  const char* kind;
  const char* keyword;  // of the port, its first argument
  bool reads;
};
constexpr DeviceClass kDeviceClasses[] = {
    {"FromDPDKDevice", "dpdk", "PORT", true},
    {"ToDPDKDevice", "dpdk", "PORT", false},
    {"FromDevice", "device", "DEVNAME", true},
    {"ToDevice", "device", "DEVNAME", false},
};

const DeviceClass* device_class(std::string_view name) {
  const auto found = std::ranges::find(kDeviceClasses, name, &DeviceClass::name);
  return found == std::end(kDeviceClasses) ? nullptr : found;
}

// The port that an element names: its first argument, with or without the keyword.
std::string port_of(const DeviceClass& device, std::string_view configuration) {
  const auto arguments = split_arguments(configuration);
  if (arguments.empty()) return {};
  const std::string_view first = configuration.substr(arguments[0].offset, arguments[0].length);
  const auto words = split_words(first);
  if (words.empty()) return {};
  const auto word = [&](size_t i) { return unquote(first.substr(words[i].offset, words[i].length)).value_or(""); };
  return words.size() == 2 && word(0) == device.keyword ? word(1) : word(0);
}

}  // namespace

Result<PortMap> parse_port_map(std::string_view text) {
  const auto wrong = [&](std::string why) {
    return Error(fmt::format("'{}': {}", text, why), "write PORT=pcap:IN[,OUT], such as dpdk:0=pcap:in.pcap,out.pcap");
  };
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return wrong("it names nothing to use for the port");
  PortMap map;
  map.port = text.substr(0, equals);
  const std::string_view kind = std::string_view(map.port).substr(0, map.port.find(':'));
  if (kind.size() + 1 >= map.port.size() ||
      std::ranges::find(kDeviceClasses, kind, &DeviceClass::kind) == std::end(kDeviceClasses)) {
    return wrong(fmt::format("'{}' is not a port: there are dpdk:N and device:NAME", map.port));
  }
  std::string_view files = text.substr(equals + 1);
  map.memory = files.starts_with("memory:");
  if (!map.memory && !files.starts_with("pcap:")) return wrong("neither pcap: nor memory: is given for the port");
  files.remove_prefix(files.find(':') + 1);
  const size_t comma = files.find(',');
  map.in = files.substr(0, comma);
  if (comma != std::string_view::npos) map.out = files.substr(comma + 1);
  const bool has_out = comma != std::string_view::npos;
  if ((map.in.empty() && !has_out) || (has_out && map.out.empty())) return wrong("a file is missing");
  return map;
}

bool is_device_class(std::string_view class_name) {
  return device_class(class_name) != nullptr;
}

namespace click {

void map_ports(ClickGraph& graph, const ParseOptions& options, Findings& findings) {
  const auto& known = options.known_classes;
  for (ClickElement& e : graph.elements) {
    const DeviceClass* const device = device_class(e.class_name);
    if (device == nullptr) continue;
    const std::string port = fmt::format("{}:{}", device->kind, port_of(*device, e.configuration));
    const auto map = std::ranges::find(options.ports, port, &PortMap::port);
    if (map == options.ports.end()) {
      if (known.empty() || std::ranges::find(known, e.class_name) != known.end()) continue;
      Diagnostic& d =
          findings.error(e.class_position.offset, e.class_name.size(), fmt::format("there is no port '{}' here", port));
      d.suggestion = fmt::format("--map '{}=pcap:IN,OUT' puts captures in its place", port);
      continue;
    }
    std::string file = device->reads ? map->in : map->out;
    if (device->reads && file.empty()) {
      Diagnostic& d = findings.error(e.class_position.offset, e.class_name.size(),
                                     fmt::format("--map gives port '{}' nothing to read", port));
      d.suggestion = fmt::format("--map '{}=pcap:IN,OUT' has a file for both", port);
      continue;
    }
    e.class_name = device->reads ? (map->memory ? "FromMemory" : "FromDump") : file.empty() ? "ToMemory" : "ToDump";
    e.configuration = quote(file);
    if (file.empty()) e.configuration.clear();
    e.configuration_origin = ConfigurationOrigin::of_text("--map", e.configuration);
  }
}

}  // namespace click
}  // namespace sluice
