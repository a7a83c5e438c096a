// Runs a Click text over captures in a test's own folder and collects everything that can be compared.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "exec/engine/engine.h"

namespace sluice::testing {

// Where every access is watched, fewer packets go fewer ways; every mode, transport and kind of record stays.
#if defined(SLUICE_SANITIZED)
inline constexpr bool kWatched = true;
#else
inline constexpr bool kWatched = false;
#endif
// Routes where any direct table will do: dir24 fills 32 MiB a run, which takes longer than the packets.
inline constexpr const char* kDirect4 = "sail";

// A folder that lives as long as the object.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct GraphRun {
  std::string text;
  unsigned workers = 1;
  uint32_t batch = 256;
  uint64_t latency_target_ns = 0;
  std::function<void(uint64_t)> progress;
  bool fast_path = true;
  bool count_hits = true;
  std::shared_ptr<RuleLog> rule_log;  // as of RunOptions
  std::optional<PriorityOptions> priorities;
  std::shared_ptr<const QosModel> qos;
  DeviceOptions device;
  bool by_packets = false;  // in the packet scheduler
  bool one_by_one = false;  // as of RunOptions
  bool follow = false;      // every packet, into GraphOutcome::fates
  // So often at most, while it runs, all tables are loaded anew and published. Not by_packets.
  unsigned swaps = 0;
};

struct GraphOutcome {
  bool ok = false;
  std::string error;  // rendered
  RunReport report;
  std::string printed;  // of Print elements
  std::string fates;    // of all packets, in the order of the input, as text to compare
  // Every element's packets, bytes and drops, every sink's and port's, and every list's rules', as text to compare.
  std::string counters;
  std::map<std::string, HitLedger::Counts> hits;  // by list, with count_hits
};

GraphOutcome run_graph(const GraphRun& run);
// GraphOutcome::counters without those of classes and rules.
std::string counters_of(const Router& router, const RunReport& report);

// The generation of the last batch that has begun; 0 before there is one. How far a run came with changes that a test
// makes: a run of a number of packets may end before a thread beside it has made one. Precondition: RunOptions::live.
uint64_t generation_met(Engine& engine);

// The text with the captures OUT, OUT2 and OUT3 of the folder in place of $OUT, $OUT2 and $OUT3.
std::string with_outputs(const TempDir& dir, std::string text);

std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);

// `packets` frames of every kind that the standard graph treats differently: IPv4 and IPv6, TCP, UDP, ICMP, VLAN and
// QinQ, options, fragments, extension headers, padding, permitted and denied flows, routed and not, TTL 1, and
// malformed in several ways. Returns the path.
std::string write_mixed_capture(const std::string& path, uint32_t packets, uint64_t seed = 1);

// The standard graph over small tables (written into `dir`) that fit write_mixed_capture: `source` and `sink` are Click
// elements.
std::string standard_graph_text(const TempDir& dir, const std::string& source, const std::string& sink,
                                const std::string& acl_algorithm, const std::string& algorithm4,
                                const std::string& algorithm6);

// The same for captures of real traffic: default routes to two next hops, and what no rule names is permitted.
std::string real_graph_text(const TempDir& dir, const std::string& source, const std::string& sink,
                            const std::string& acl_algorithm, const std::string& algorithm4,
                            const std::string& algorithm6);

// Over the same tables, instead of the standard graph's elements: SetIPDSCP and Truncate before, between and behind
// lookups and edits, with the results in $OUT and $OUT2.
std::string codepoint_graph_text(const std::string& source);

}  // namespace sluice::testing
