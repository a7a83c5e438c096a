// Live ports on the command line of `run`: --in and --out with interfaces, and how they are received.
// host only
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app.h"
#include "exec/engine/run.h"
#include "pipeline.h"
#include "ports/sender.h"

namespace sluice::app {

struct PortFlags {
  std::vector<std::string> ports;  // NAME=METHOD:DEVICE
  std::string method, poll = "adaptive", cores, ready_file;
  unsigned queues = 0;
  bool promiscuous = false;
};
void add_port_options(Command sub, PortFlags& flags);
// `what`: the beginning of its help.
void add_method_option(Command sub, std::string& method, const std::string& what);

// The arguments of FromDevice or ToDevice for what --in or --out names: a name of --port, METHOD:DEVICE, or an
// interface of this machine where no file has its name. Nothing: it is a file. Ends with kUsage where --port or a
// method is wrong.
struct DeviceArguments {
  std::string receive, send;
};
std::optional<DeviceArguments> device_arguments(const std::string& value, const PortFlags& flags);
// The same for a port of --bridge, which receives every frame: by AF_PACKET unless a method is given, as that alone
// keeps VLAN tags and cuts merged frames whatever the interface does.
std::optional<DeviceArguments> bridge_arguments(const std::string& value, PortFlags flags);

// The interface that was probably meant by what is neither a file nor an interface; empty: none is alike.
std::string interface_like(const std::string& value);

// "af_xdp:eth0": the method and the device. Nothing: no method stands there.
std::optional<std::pair<std::string, std::string>> split_method(const std::string& value);

// What `sluice send` and `sluice bench wire` open: an interface, or METHOD:DEVICE, else by `method` where one is given.
// Ends with kUsage.
PortOptions port_options(const std::string& device, std::string method);

// --rate: `what` is the beginning of its help.
Option add_rate_option(Command sub, std::string& rate, const std::string& what);
// "10kpps" or "10Mbps". Ends with kUsage.
void read_rate(const std::string& text, SendOptions& options);

bool has_live_ports(const ClickGraph& graph);
// Whether some of them are DPDK's.
bool names_dpdk(const ClickGraph& graph);

// Ends with kIo where some port is an interface of the kernel and this process may not open it. Before anything is
// read.
void check_port_capabilities(const ClickGraph& graph);

// What the run has to do for them.
void prepare_ports(const PortFlags& flags, RunOptions& options);

// The interfaces of a report, a line each; empty: there are none.
std::string port_lines(const RunReport& report);

}  // namespace sluice::app
