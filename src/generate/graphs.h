// host only
// Random graphs with their tables and packets, for whoever compares ways to run one: branches that part and meet again,
// error outputs that go on, several sources, lists and routes. What a graph gives does not depend on how it is run.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

struct GeneratedFrame {
  uint64_t timestamp_ns = 0;
  uint32_t wire_bytes = 0;
  std::vector<uint8_t> bytes;  // fewer than on the wire where the capture was cut
  friend auto operator<=>(const GeneratedFrame&, const GeneratedFrame&) = default;
};

struct GeneratedGraph {
  // Where an output leads, other than to a node.
  static constexpr int kNowhere = -1, kDiscard = -2, kOut = -3, kOut2 = -4, kOut3 = -5;
  static constexpr int kOutputs = 3;
  struct Node {
    std::string element;
    std::vector<int> to;  // by output
  };

  uint64_t seed = 0;
  std::vector<Node> nodes;             // the first is where packets come in
  int second = 0;                      // where those of a second source do
  std::vector<GeneratedFrame> frames;  // of the first source
  std::vector<GeneratedFrame> others;  // of a second one; empty: there is none
  std::string qos;                     // classes of service at the outputs; empty: none
  bool turns_back = false;             // an output leads to an earlier node
  // What each node does does not depend on the order of packets, and nothing is printed.
  bool orderless = false;
};

// The same on every machine for the same seed. A graph may be one that cannot run: something reads what nothing wrote.
GeneratedGraph generate_graph(uint64_t seed);

// Without the nodes that nothing leads to.
GeneratedGraph reachable(GeneratedGraph graph);

// As Click text, with inputs (in.pcap, in2.pcap) and tables in the folder `in`, outputs (out1.pcap to out3.pcap) in
// `out`, and names that begin with `prefix`.
std::string click_text(const GeneratedGraph& graph, const std::string& in, const std::string& out,
                       const std::string& prefix = {});

// Writes the packets (in.pcap, in2.pcap) and the tables into a folder that exists. Errors: those of files.
Result<void> write_graph_inputs(const GeneratedGraph& graph, const std::string& folder);

}  // namespace sluice
