// Ports of real devices played by files, on request: `dpdk:0=pcap:in.pcap,out.pcap`. Host only.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

struct ClickGraph;
struct ParseOptions;

// What stands for a port: elements that read it read `in`, those that write it write `out`; without one packets are
// counted there and forgotten.
struct PortMap {
  std::string port;     // "dpdk:0" (FromDPDKDevice, ToDPDKDevice), "device:eth0" (FromDevice, ToDevice)
  bool memory = false;  // read once and played from memory
  std::string in, out;  // `in` empty: the port is written only
};

// Reads PORT=pcap:IN[,OUT], PORT=pcap:,OUT or the same with memory. Errors: it is none of these, no file, an unknown
// kind of port.
Result<PortMap> parse_port_map(std::string_view text);

// Whether the class is one of a device's port.
bool is_device_class(std::string_view class_name);

namespace click {
class Findings;
// Puts FromDump, FromMemory, ToDump or ToMemory in place of each device's port that `options` maps. Those that are left
// are findings where the classes that exist are known and theirs is none.
void map_ports(ClickGraph& graph, const ParseOptions& options, Findings& findings);
}  // namespace click

}  // namespace sluice
