// What can run together: the one list of what cannot, and why.
// host only
#pragma once

#include <cstdint>
#include <string>

namespace sluice::app {

// What a run may be asked for besides a graph, its inputs and its outputs.
enum class Feature : uint8_t {
  kWorkers,        // more than one
  kDevice,         // --device other than the CPU
  kPriorities,     // --priorities
  kQos,            // --qos
  kMarks,          // --qos, with classes by the marks of access lists
  kControl,        // --control
  kHits,           // --hits, --top-rules
  kFollow,         // --verdicts, --dropped
  kLatencyTarget,  // --latency-target
  kWait,           // --wait
  kMaxMemory,      // --max-memory
  kLimit,          // --limit
  kLivePorts,      // interfaces among inputs and outputs
  kSimulated,      // --simtime
  kOneByOne,       // --packet-scheduler
  kQueues,         // a graph that the packet scheduler has to run
  kNoQueues,       // any other graph
  kCount
};
// As errors and the reference name it.
const char* to_string(Feature feature);

// Two that are not run together.
struct Refusal {
  Feature one, other;
  const char* why;
  const char* instead;  // what to do, or ""
};
// Why they are refused, or nullptr. What one of them implies counts: --simtime is for graphs with queues.
const Refusal* refusal(Feature one, Feature other);

class Features {
 public:
  void add(Feature feature, bool is = true) {
    if (is) bits_ |= 1u << static_cast<unsigned>(feature);
  }
  bool has(Feature feature) const { return (bits_ >> static_cast<unsigned>(feature) & 1) != 0; }
  // Ends with kUsage where two of them are refused. `why_queues`: why the packet scheduler has to run the graph.
  void check(const std::string& why_queues = {}) const;

 private:
  uint32_t bits_ = 0;
};

// The table of the reference (docs/reference/composition.md): every pair, and why where it is refused.
std::string composition_page();

}  // namespace sluice::app
