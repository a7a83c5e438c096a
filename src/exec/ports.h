// host only
// Where batches come from and where packets go: ports as the executor sees them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "batch/batch.h"
#include "graph/element.h"

namespace sluice {

// One packet on its way out; `data` stays valid until the batch that it came with is committed.
struct TxRecord {
  const uint8_t* data;
  uint64_t timestamp_ns;
  uint32_t captured;
  uint32_t wire;
  uint32_t order;     // index of the packet that came in, from which this one descends
  uint32_t sequence;  // arrival at the sink, for packets of one order
  uint16_t port;      // output port of the adjacency
  uint8_t limiter;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Clears the batch and appends packets, at most its capacity, with order 0, 1, 2, ... Leaves it empty at the end of
  // the input. Errors: damaged input; what came before it has been delivered.
  virtual Result<void> read(Batch& batch) = 0;
};

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  // Takes the records in order. On an error `written` says how many were taken before it.
  virtual Result<void> write(std::span<const TxRecord> records, size_t& written) = 0;
  // Makes the output appear under its name. Without it nothing is left behind.
  virtual Result<void> commit() = 0;
};

Result<std::unique_ptr<BatchSource>> open_source(const PortSpec& spec);
// nullptr for kNull: such a sink drops.
Result<std::unique_ptr<PacketSink>> open_sink(const PortSpec& spec);

}  // namespace sluice
