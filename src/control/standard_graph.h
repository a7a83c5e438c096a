// The graph that most users mean, as Click text: from captures or live ports through access list, routes and rewrite
// to captures or live ports.
// With two bridge ports, what comes by one and is permitted leaves by the other, both ways.
// With routes, what is larger than an output's MTU is fragmented where DF allows; with the router's own addresses, IPv4
// options are processed and ICMP errors sent.
// host only
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice {

// Empty strings and lists leave their part out.
struct StandardGraph {
  std::string acl;
  std::string acl_format = "auto";
  std::string acl_algorithm;
  bool stateful = false;  // its rules look at the state of connections: ConnTrack sorts packets in front of it
  std::string nat;        // a NAT table: ConnTrack translates by it
  std::vector<std::string> routes;
  std::string route_algorithm, route_algorithm6;
  std::vector<std::string> adjacencies;  // none: made-up ones, when there are routes and no live ports to send by
  std::string in;
  std::vector<std::string> more_in;     // captures that take turns with it
  std::vector<std::string> in_devices;  // live ports: what FromDevice stands with
  bool in_memory = false;               // the capture is loaded before the run
  bool tso = false;                     // lengths that IP headers of captures do not say are filled in
  uint64_t limit = 0;                   // packets from memory; 0: once through the capture
  std::string out;                      // packets of all ports, or of those that port_out does not name
  std::vector<std::pair<uint16_t, std::string>> port_out;
  std::map<std::string, std::string> out_devices;  // of these names, those of live ports: what ToDevice stands with
  // Two, or none: a bridge, without `in`, `out` and routes. What FromDevice and ToDevice stand with.
  struct BridgePort {
    std::string receive, send;
  };
  std::vector<BridgePort> bridge;
  std::string bridge_pass;  // kinds of frames: PASS of Bridge
  bool permit_by_default = false;
  bool tiny_fragments = false;  // IPInput lets them pass
  bool icmp_errors = false;
  std::vector<std::string> icmp_sources;  // the router's own addresses
  bool icmp_for_denied = false;           // administratively prohibited for what the access list denies
};

// An access list without routes: a firewall in front of a wire. The list alone judges, and frames leave as they came.
bool filters_only(const StandardGraph& graph);
// Errors: ports without routes (nothing chooses a port), more than 14 ports, ICMP errors without routes.
Result<std::string> standard_graph_text(const StandardGraph& graph);

}  // namespace sluice
