// host only
// ConnTrack's translation of addresses: what becomes of a connection's first packet, and how packets are changed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "batch/batch.h"
#include "flows/flow_table.h"
#include "flows/nat.h"
#include "graph/table_set.h"
#include "tables/adjacency/adjacency.h"

namespace sluice {

class Translator {
 public:
  struct Options {
    std::string table;                // of NAT rules; empty: nothing is translated
    std::string routes, adjacencies;  // by which packets leave; empty: rules with `via` are for no packet
    std::vector<NatOutput> outputs;
  };
  explicit Translator(Options options) : options_(std::move(options)) {}

  bool translates() const { return !options_.table.empty(); }
  // The tables from here on. Errors: one is missing, or a rule names an output that is not there; nothing has changed
  // then.
  Result<void> use(const TableSet& tables);

  // Of a new connection's first packet: writes its destination, where a rule is for it. Returns the packet as it is
  // now.
  NatTuple translate_destination(Batch& batch, uint32_t row, const TrackedPacket& packet) const;
  // Of the same, once its list has permitted it: the connection that it opens. `with_destination` is from above.
  FlowTable::Opening open(const Batch& batch, uint32_t row, const TrackedPacket& packet,
                          const NatTuple& with_destination, const FlowTable& table);
  // Of a packet of a translated connection, or one that is related to it: writes its destination, and notes its source
  // for NatSource.
  void translate(Batch& batch, uint32_t row, const TrackedPacket& packet, const FlowTable::Translated& to) const;
  // Whether a packet of no connection would have been translated: it must not leave as it is.
  bool must_not_leave(const Batch& batch, uint32_t row) const;
  void ended(const FlowEntry& entry) { nat_.release(entry.mapping); }
  // What `open` gave was not kept.
  void abandon(const FlowTable::Opening& opening) { nat_.release(opening.mapping); }

 private:
  int32_t port_of(const FlowKey& key) const;

  Options options_;
  Nat nat_;
  std::function<uint32_t(uint32_t)> next_hop_;  // of an address; empty: no routes
  AdjacencyView adjacencies_;
};

}  // namespace sluice
