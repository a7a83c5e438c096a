// host only
// One packet's way through a graph, element by element: what each changes, which rule and route decide, how it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batch/drop_reason.h"
#include "graph/router.h"
#include "graph/table_set.h"

namespace sluice {

class Neighbours;

// What became of a packet by its explanation.
struct WayEnd {
  uint32_t packets = 0;              // that are explained: it, and those that elements made of it; 0: it met no element
  std::vector<unsigned> elements;    // that it came to, of the router
  const Element* element = nullptr;  // where it ended; nullptr: that is not known
  DropReason reason = DropReason::kNone;  // kNone: it left there
};

// Explains packets of one graph and one generation of tables; both outlive it, and nothing of them is kept beyond it.
// What all packets have in common is found out once, so many are explained at little more than the cost of their text.
// One thread at a time. Beside a run it is thread-safe: elements are const while they run.
class PacketWays {
 public:
  // The longest prefix by which a route table leads to an address; none: it is not known.
  using PrefixOf = std::function<std::optional<IpPrefix>(std::string_view table, const IpAddress& destination)>;

  // `neighbours`: who fills in MACs at the outputs of live ports, as known now; nullptr: that is not known here.
  PacketWays(const Router& router, const TableSet& tables, PrefixOf prefix_of = {},
             const Neighbours* neighbours = nullptr);
  ~PacketWays();
  PacketWays(const PacketWays&) = delete;
  PacketWays& operator=(const PacketWays&) = delete;

  // Appends {"packets": [{"from", "way": [{"element", "class", "notes": [...]}], "verdict", "end": {"element",
  // "reason", "port"}, and where they were met "rule": {"table", "rule" (its position), "action", "text", "file",
  // "line"} (null: none matched), "route": {"table", "destination", "next_hop", "prefix"}, "adjacency":
  // {"destination", "source", "port", "neighbour" where the output asks the kernel for it} (MACs null: it is not
  // known)}], "more" (how many were made
  // besides)} to `json`: the packet, then those that elements make of it. "reason" is null where it leaves by the
  // element. The elements run as they do for packets of a run, with state of their own where they carry state from
  // batch to batch: there the way may differ from that of a packet that passed. `source`: the element by which the
  // packet comes in. Errors: none; what cannot be explained is said in the verdict.
  WayEnd explain(unsigned source, std::span<const uint8_t> frame, uint32_t wire_bytes, uint64_t timestamp_ns,
                 std::string& json);

 private:
  class Walk;
  std::unique_ptr<Walk> walk_;
};

// One packet alone, as JSON.
nlohmann::ordered_json packet_way(const Router& router, const TableSet& tables, unsigned source,
                                  std::span<const uint8_t> frame, uint32_t wire_bytes, uint64_t timestamp_ns = 0);
// What packet_way said, for people: the packet's own lines begin with two blanks.
std::string packet_way_text(const nlohmann::ordered_json& way);

}  // namespace sluice
