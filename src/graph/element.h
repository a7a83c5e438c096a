// host only
// Element: the host object of one node of the configuration graph. It configures itself, says what it needs, and binds
// to a stage; what cannot be a stage works on batches on the host. No element has a processing loop of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "batch/batch.h"
#include "batch/drop_reason.h"
#include "batch/fast_burst.h"
#include "batch/lengths.h"
#include "batch/packet.h"
#include "graph/arguments.h"
#include "graph/click/source.h"
#include "graph/flow.h"
#include "graph/stage_slot.h"
#include "graph/table_set.h"

namespace sluice {

class Element;
class FlowTable;

// How often a port may appear: exactly `min` when max == min; `max` = kAnyPorts for any number.
inline constexpr unsigned kAnyPorts = ~0u;
struct PortRange {
  unsigned min = 1;
  unsigned max = 1;
};

// Everything about an element class that the parser, the checks, the reference page and completion use.
struct ElementClass {
  std::string name;
  std::vector<std::string> aliases;  // other names that configure the same class
  std::string group;                 // heading of the reference page: "Ports", "Headers", "Tables", ...
  std::string summary;               // one line
  std::string description;           // paragraphs of Markdown
  std::vector<ArgumentSpec> arguments;
  PortRange inputs{1, 1};
  PortRange outputs{1, 1};
  std::string processing;                // push and pull (processing.h): "h/l"; empty: what its kind and ports say
  std::vector<std::string> output_docs;  // one line an output, where they differ
  std::vector<DropReason> drops;         // the reasons it may give
  std::string example;                   // one Click line
  bool names_addresses = false;          // its elements are configured first: see Element::add_names
  // `class_name` is the name or alias that the configuration used.
  std::function<std::unique_ptr<Element>(std::string_view class_name)> make;
};

enum class ElementKind : uint8_t {
  kStage,    // binds to a stage and runs inside a program, on any device
  kHost,     // works on batches on the host
  kSource,   // a port's receiving end, or a generator
  kSink,     // a port's sending end, or the end of the road
  kInfo,     // no ports: declares tables or settings
  kFlow,     // keeps packets, pulls them, or acts by time: one packet at a time in the packet scheduler (flow.h)
  kOrdered,  // carries state from batch to batch: takes whole batches, one after another in the order of the input
};

// What a stage (or a host element) needs of a packet and gives to it: the graph is checked by it.
struct StageTraits {
  FieldMask reads = 0;
  FieldMask writes = 0;
  FrameUse frame = FrameUse::kAnywhere;
  // Bytes in front of a frame's first byte as it came, not as it is, that are written at most, where it has a link
  // header.
  int32_t writes_before = kHeadroom;
  // Devices have code for its stage type on keys alone (elements/record_needs.h), whatever this element reads.
  bool on_keys = false;
};

// A table that an element declares, to be loaded before the graph starts.
struct TableDeclaration {
  using Type = TableType;
  Type type;
  std::string name;
  std::vector<std::string> files;  // empty: inline text
  std::string text;                // inline content, where the table is written in the configuration itself
  std::string format = "auto";
  std::string algorithm;    // empty: the default
  std::string algorithm6;   // routes: the IPv6 algorithm
  std::string routes;       // adjacency: the route table whose next hops it resolves
  bool neighbours = false;  // adjacency: what the files say nothing of is found in the kernel's neighbour tables
};

struct PortSpec {
  // kCapture: a capture file. kMemory: a capture loaded before the run and replayed from memory; as a sink it counts
  // and forgets. kPattern: one packet again and again. kNull: the end of the road, where packets are dropped with a
  // reason. kDevice: a live port (ports/port.h).
  enum class Type : uint8_t { kCapture, kMemory, kPattern, kNull, kDevice } type = Type::kNull;
  std::string path;               // capture, memory
  bool nanosecond = true;         // capture, sending
  uint32_t snaplen = 0;           // capture, sending; 0: whole packets
  std::vector<uint8_t> pattern;   // generator: the packet's bytes
  uint64_t limit = ~uint64_t{0};  // generator or capture: packets to give; ~0: no limit
  uint64_t start = 0;             // capture: packets to skip first
  uint32_t burst = 0;             // generator: packets a batch; 0: the executor's batch size
  bool stop_when_done = false;    // packet scheduler: the end of this source asks the run to stop
  bool fills_lengths = false;     // capture, memory: lengths that IP headers do not say are filled in
  struct Device {
    std::string name;     // of the interface
    std::string method;   // af_xdp, ...; empty: the fastest that works
    unsigned queues = 0;  // 0: one for each worker, as far as the device has them
    bool promiscuous = false;
    bool kernel = true;    // receiving: the kernel gets what is its own
    std::string xdp_mode;  // native, generic; empty: the fastest that works
    bool adapter_timestamps = false;
  } device;
};

// A file that an element reads or writes, besides those of its tables and its port.
struct FileUse {
  std::string path;  // "-": standard input or output
  bool output = false;
};

class HostContext;

class Element {
 public:
  virtual ~Element() = default;

  // Reads the arguments; reports every problem to `diagnostics`, at the argument. Called once, before the ports are
  // known.
  virtual void configure(const Arguments& arguments, Diagnostics& diagnostics) {
    (void)arguments;
    (void)diagnostics;
  }
  // Adds what it calls addresses, for the elements that are configured after it.
  virtual void add_names(AddressNames& names) const { (void)names; }
  // Where the number of ports depends on the arguments (Classifier) or on use (Tee): the exact count, or nothing when
  // the class's range decides.
  virtual std::optional<unsigned> input_count() const { return std::nullopt; }
  virtual std::optional<unsigned> output_count() const { return std::nullopt; }
  // An output that may stay unconnected: what leaves there is dropped with its reason.
  virtual bool output_optional(unsigned output) const { return output > 0; }
  // The port of an adjacency whose packets leave by `output` and by no other, where packets are separated by that.
  virtual std::optional<uint16_t> adjacency_port(unsigned output) const {
    (void)output;
    return std::nullopt;
  }

  virtual ElementKind kind() const = 0;

  // Tables that this element declares (kInfo, or an element with a file of its own).
  virtual std::vector<TableDeclaration> tables() const { return {}; }

  // What else it reads and writes.
  virtual std::vector<FileUse> files() const { return {}; }

  // Fields that must have been written before, and fields that this element writes for whatever leaves it.
  virtual StageTraits stage_traits() const { return {}; }

  // kStage ------------------------------------------------------------------------------------------------------------
  // Writes the stage over the tables of one generation into the slot. Errors: a table is missing or of the wrong kind.
  virtual Result<void> bind(const TableSet& tables, StageSlot& slot) const {
    (void)tables;
    (void)slot;
    return Error("not a stage");
  }

  // kHost -------------------------------------------------------------------------------------------------------------
  // Handles the selected packets of a batch: forwards, drops or consumes each exactly once. Const while it runs.
  virtual void process(HostContext& context, Batch& batch, const Selection& packets, unsigned input) const {
    (void)context;
    (void)batch;
    (void)packets;
    (void)input;
  }

  // As `process` for packets of which registers and frames are in columns, of an element that takes bursts: one that
  // judges each packet alone. Gives the lanes of `mask` that leave by output 0, and sets output and reason of the
  // others (batch/fast_burst.h). Their rows are of `batch`. Frames may be edited behind the burst's `hop`, which is
  // kept as it is to lie in the frame.
  virtual uint32_t burst(const Batch& batch, FastBurst& burst, uint32_t mask) const {
    (void)batch;
    (void)burst;
    return mask;
  }
  virtual bool takes_bursts() const { return false; }

  // Whether it makes packets (HostContext::spawn).
  virtual bool makes_packets() const { return false; }

  // kOrdered ----------------------------------------------------------------------------------------------------------
  // State that batches meet one after another, in the order in which they were read, whoever works on them: so packets
  // get the same answers on any number of workers and beside any device. One thread at a time.
  struct Ordered {
    virtual ~Ordered() = default;
    // What can be known of a batch before its turn. Belongs to one batch after the other.
    struct Prepared {
      virtual ~Prepared() = default;
    };
    // Those that it tracks, for reports; nullptr: none.
    virtual FlowTable* connections() { return nullptr; }
    // nullptr: nothing can.
    virtual std::unique_ptr<Prepared> make_prepared() const { return nullptr; }
    // Before `process`, with the same packets, by the worker that has them: beside other batches' `prepare` and
    // `process`. What is done here is not done in turn.
    virtual void prepare(Batch& batch, Lengths* lengths, const Selection& packets, Prepared& prepared) const {
      (void)batch;
      (void)lengths;
      (void)packets;
      (void)prepared;
    }
    // Before `process`, in turn: the tables of its batch. `generation` differs where they do.
    virtual void use(const TableSet& tables, uint64_t generation) {
      (void)tables;
      (void)generation;
    }
    // Takes `packets` of a batch in the order of rows. Each is added to the selection of the output by which it leaves,
    // of `out` (one an output, all empty); one that is in none is dropped with the reason in its annotation. `lengths`:
    // nobody has filled the batch's columns, and it reads these; of the batch it writes annotations of packets that it
    // drops, and departures. nullptr: the columns are there, as always where not Element::by_lengths. `prepared`: as
    // `prepare` left it; nullptr where make_prepared says so.
    virtual void process(Batch& batch, Lengths* lengths, const Selection& packets, Prepared* prepared,
                         std::span<Selection> out) = 0;
  };
  virtual std::unique_ptr<Ordered> make_ordered() const { return nullptr; }
  // Errors: a table that Ordered::use would look for is missing or of the wrong kind.
  virtual Result<void> check_tables(const TableSet& tables) const {
    (void)tables;
    return {};
  }
  // Whether of a packet it reads its time stamp, its lengths and registers that Lengths has, of which stage_traits says
  // which (kFieldL3: the network header's length), and writes but its paint and its reason: so that it needs no column
  // of the batch (Ordered::process).
  virtual bool by_lengths() const { return false; }
  // Whether packets may leave later than they come (Batch::departure_ns); how many wait at a time at most, else 0.
  virtual uint32_t delays() const { return 0; }

  // The rate that packets marked with HostContext::limiter are held to at egress; none when per_second is 0.
  struct EgressRate {
    uint32_t per_second = 0;
    uint32_t burst = 0;
  };
  virtual EgressRate egress_rate() const { return {}; }

  // What this element asks of the batches that sources make: room for at least `least` packets (0: it does not care),
  // or for exactly as many. It holds for the whole graph (exec/engine/batch_rules.h).
  struct BatchRule {
    uint32_t least = 0;
    bool exact = false;
  };
  virtual BatchRule batch_rule() const { return {}; }

  // Whether what leaves it may have another link-layer header than what came, or none: captures of other link types
  // than Ethernet keep theirs only where no element on the way says so.
  virtual bool writes_link_header() const { return false; }

  // --- kSource, kSink ---
  virtual PortSpec port() const { return {}; }

  // kFlow; others may have one that the packet scheduler uses in place of what is above. The element's own object.
  virtual Flow* flow() { return nullptr; }
  // What others may read and set by name while the packet scheduler runs, besides what every element has.
  virtual std::vector<Handler> handlers() { return {}; }

  // A finding at the element's declaration, with its line and a caret.
  Diagnostic diagnostic(std::string message) const;

  // Filled in by the graph before the plan is made.
  std::string name;
  const ElementClass* element_class = nullptr;
  std::string class_name;     // as written
  std::string configuration;  // as written
  SourcePos position;         // of the declaration
  unsigned inputs = 0;        // connected ports
  unsigned outputs = 0;
};

// What a host element may do while it handles a batch. Implemented by the executor; valid during `process` only.
class HostContext {
 public:
  virtual ~HostContext() = default;
  // Passes packets on. A packet is forwarded once; use spawn for copies.
  virtual void forward(unsigned output, const Selection& packets) = 0;
  // Ends one packet, counted at this element.
  virtual void drop(Batch& batch, uint32_t i, DropReason reason) = 0;
  // A batch with room for at least one packet of `bytes`, whose packets will leave by `output` after `process` returns:
  // push_made or clone into it, one packet a call. They count as generated. Where packets meet again, what a packet
  // caused comes behind it, in the order in which it was made. nullptr when no memory is left, when nothing is
  // connected to the output, or when made packets have made packets too many times over.
  virtual Batch* spawn(unsigned output, size_t bytes) = 0;
  // Counts packets that should have been made and were not, as generated and dropped.
  virtual void lose(uint32_t count, DropReason reason) = 0;
  // One line for stderr about packet `i`, written in packet order.
  virtual void print(const Batch& batch, uint32_t i, std::string_view text) = 0;
  // Makes a packet subject to this element's egress rate: packets over it are dropped at egress, in packet order.
  virtual uint8_t limiter() const = 0;
  virtual unsigned worker() const = 0;
};

}  // namespace sluice
