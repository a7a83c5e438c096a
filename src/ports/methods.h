// host only
// Two functions for each method (methods.inc): `open_port` without the choice, and what `sluice doctor` says of it. See
// Port and open_port for what the first takes and returns, methods_here.h for the second.
#pragma once

#include <memory>

#include "base/result.h"
#include "ports/methods_here.h"
#include "ports/port.h"

namespace sluice {

using OpenPort = Result<std::unique_ptr<Port>>(const PortOptions& options, const std::shared_ptr<FramePool>& pool);
// Says what this machine lacks for it. No interface is touched.
using ExaminePort = void(MethodHere& here);

#define SLUICE_PORT_METHOD(method, name, open, examine, automatic) \
  OpenPort open;                                                   \
  ExaminePort examine;
#include "ports/methods.inc"
#undef SLUICE_PORT_METHOD

struct PortMethodEntry {
  PortMethod method;
  const char* name;
  OpenPort* open;
  ExaminePort* examine;
  bool automatic;  // tried where none is named, in this order
};
std::span<const PortMethodEntry> port_method_entries();

// What examiners say -------------------------------------------------------------------------------------------------
struct Capability {
  unsigned number;
  const char* name;
  const char* why;
};
namespace capability {
extern const Capability kRaw, kAdmin, kBpf;
}
bool has_capability(unsigned number);
// Those of `wanted` that this process does not have.
void need_capabilities(MethodHere& here, std::initializer_list<Capability> wanted);
// The first that is said counts.
void lack(MethodHere& here, std::string what, std::string mend);
// Whether a socket of this family and type can be had; 0, or errno.
int try_socket(int family, int type);

}  // namespace sluice
