// How fast the machine itself is at this moment: short fixed loops, the same in each build, that `sluice bench suite`
// takes before and after each case, so that `compare` can tell what the machine did from what the program did. host
// only
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sluice::app {

struct ProbeKind {
  std::string name, unit;  // "ns" of one operation, less is better; "GB/s", more is better
  // Whether other programs have a core decides it, for seconds: near cases say nothing of this one.
  bool of_scheduler = false;
};

// What a case is sensitive to; each has the probes of those before it.
enum class ProbeSet : uint8_t {
  kOneCore,  // arithmetic, cache, memory, bandwidth, system-call
  kCores,    // all-cores
  kLive,     // wake-up, packet
};

// Every probe there is, in the order of a report.
const std::vector<ProbeKind>& probe_kinds();

// Holds 128 MiB, so that its memory is no cache's.
class MachineProbes {
 public:
  explicit MachineProbes(unsigned cores);
  ~MachineProbes();
  MachineProbes(const MachineProbes&) = delete;
  MachineProbes& operator=(const MachineProbes&) = delete;

  // name -> value: the median of slices, 10 to 40 ms for each probe. One that the machine does not allow (a network
  // namespace whose loopback is down) is absent.
  std::map<std::string, double> take(ProbeSet set);

 private:
  struct Lines;
  std::unique_ptr<Lines> cache_, memory_;
  unsigned cores_;
};

}  // namespace sluice::app
