// host only
// Which methods of live ports work on this machine, for `sluice doctor`.
#pragma once

#include <string>
#include <vector>

#include "ports/port.h"

namespace sluice {

struct MethodHere {
  PortMethod method = PortMethod::kAuto;
  bool works = false;
  std::string lacks;  // what it needs and does not have, one clause; empty where it works
  std::string mend;   // the command that gives it; empty: there is none
};

// Tries what each method asks of the system first: a socket, a BPF map, a device. No interface is touched.
std::vector<MethodHere> port_methods_here();

}  // namespace sluice
