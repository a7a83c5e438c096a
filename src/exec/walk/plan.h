// host only
// The planner: cuts a router into segments (one Program each) and host nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/engine/snapshot.h"
#include "exec/walk/program.h"
#include "graph/router.h"

namespace sluice {

struct PlanTarget {
  uint32_t node = ~0u;  // ~0: not connected, dropped
  uint32_t input = 0;
};

// One step of a batch's way. Nodes are in execution order: but for cycles of the graph, a target has a larger index.
struct PlanNode {
  // kOrdered: an element that takes batches one after another (Element::Ordered). kPassed: a queue, and what pulls from
  // it, that packets pass.
  enum class Type : uint8_t { kSegment, kHost, kSink, kOrdered, kPassed } type = Type::kHost;
  std::vector<unsigned> elements;  // kSegment: its stages in program order; kPassed: queue and puller; else one
  unsigned ordered = 0;            // kOrdered: index into Plan::ordered
  unsigned passed = 0;             // kPassed: index into Plan::passed
  unsigned program = 0;            // kSegment: index into Plan::programs and Snapshot::programs
  std::vector<uint8_t> entries;    // kSegment: input -> the path on which its packets start
  unsigned inputs = 1;
  bool wide = false;                // kSegment: one stage with more outputs than can be fused; output n is exit n
  std::vector<PlanTarget> exits;    // kSegment: by exit; kHost, kOrdered: by output
  FieldMask live_in = 0;            // columns that hold something when packets arrive
  std::vector<FieldMask> live_out;  // by exit: columns that the node there, or a later one, reads
  FieldMask reads = 0;              // union over the stages
  FieldMask writes = 0;
  bool writes_frames = false;  // kOrdered: the element writes bytes of frames
  bool by_lengths = false;     // kOrdered: Element::by_lengths, of this and of all from here to the sinks
  bool leaves_as_is = false;   // kSink, kOrdered: nothing from here to the sinks changes frames, extents or ports

  // Whether packets that leave by exit (kHost: output) `n` go anywhere.
  bool connects(size_t n) const { return n < exits.size() && exits[n].node != ~0u; }
  // Where `wide` stages' packets go on: their outputs are exits, one to one.
  uint8_t wide_path(uint8_t output) const { return connects(output) ? kPathExit : kPathDropped; }
};

struct PlanSource {
  unsigned element;
  PlanTarget target;
};

// A queue and the element that pulls from it. Packets that come while it is empty, each pulled before the next one
// comes, pass both as if nothing were there.
struct PassedQueue {
  unsigned queue, puller;
  friend bool operator==(const PassedQueue&, const PassedQueue&) = default;
};

struct Plan {
  std::vector<PlanNode> nodes;
  std::vector<Program> programs;  // without tables: slots have element, outputs and next, storage is empty
  std::vector<PlanSource> sources;
  std::vector<unsigned> sinks;    // element indices, in graph order
  std::vector<unsigned> ordered;  // element indices, in the order of their nodes
  std::vector<PassedQueue> passed;
  bool shows_headroom = false;  // a stage may uncover bytes in front of a frame: they are to be zeros
  bool stays_close = false;     // nothing writes behind a frame, or more than kCloseHeadroom bytes in front of it
  bool by_packets = false;      // no nodes: the packet scheduler takes packets from sources to sinks
  FieldMask at_sinks = 0;       // registers that sinks find in the batch, besides the frame and its extent
};

// Stages are joined into maximal segments of at most kMaxStages; what comes after a host element starts a new one.
// Errors: no source, more exits than a program can number, a graph for the packet scheduler.
// `at_sinks`: what is asked of packets where they leave (kFieldMark), besides the frame.
Result<Plan> make_plan(const Router& router, FieldMask at_sinks = 0);

// The plan of what packets meet that come from some sources of a graph of the packet scheduler, which lead by stages
// to queues of `passed`, to sinks or nowhere, and from those queues' pullers to sinks. All sinks are in it. Errors: as
// above.
Result<Plan> plan_passages(const Router& router, std::span<const unsigned> sources, std::vector<PassedQueue> passed,
                           FieldMask at_sinks = 0);

// The plan of any graph for the packet scheduler.
Plan plan_by_packets(const Router& router, FieldMask at_sinks = 0);

// Binds every program over the tables of one generation. Errors: each table that is missing or of the wrong kind.
Result<std::unique_ptr<Snapshot>> bind_plan(const Plan& plan, const Router& router, TableSet tables);

// Segments, fields in and out, host nodes, as text.
std::string describe(const Plan& plan, const Router& router);

}  // namespace sluice
