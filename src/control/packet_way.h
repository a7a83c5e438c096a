// host only
// One packet's way through a graph, element by element: what each changes, which rule and route decide, how it ends.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "graph/router.h"
#include "graph/table_set.h"

namespace sluice {

// {"packets": [{"from", "way": [{"element", "class", "notes": [...]}], "verdict", "end": {"element", "reason", "port"},
// and where they were met "rule": {"table", "rule", "action", "text", "file", "line"} (null: none matched), "route":
// {"table", "destination", "next_hop"}, "adjacency": {"destination", "source", "port"} (MACs null: a neighbour that
// is not known yet)}]}: the packet, then those that elements make of it. "reason" is null where it leaves by the
// element. The elements run as they do for packets of a run, with state of their own where they carry state from batch
// to batch: there the way may differ from that of a packet that passed. `source`: the element by which the packet comes
// in. Thread-safe beside a run: elements are const while they run. Errors: none; what cannot be explained is said in
// the verdict.
nlohmann::ordered_json packet_way(const Router& router, const TableSet& tables, unsigned source,
                                  std::span<const uint8_t> frame, uint32_t wire_bytes, uint64_t timestamp_ns = 0);
// What packet_way said, for people: the packet's own lines begin with two blanks.
std::string packet_way_text(const nlohmann::ordered_json& way);

// {"table", "rule" (its position), "action", "text", and where known "file", "line"} of a rule of an image.
nlohmann::ordered_json image_rule_json(const std::string& table, const Image& image, uint32_t rule);

}  // namespace sluice
