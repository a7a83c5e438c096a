// What became of each packet of a run: --verdicts and --dropped.
// host only
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app.h"
#include "base/atomic_file.h"
#include "exec/engine/engine.h"
#include "graph/router.h"
#include "ports/pcap/pcapng_writer.h"
#include "tables/acl/sections.h"
#include "tables/lpm/next_hop_names.h"

namespace sluice::app {

struct VerdictFlags {
  std::string verdicts, dropped;

  bool any() const { return !verdicts.empty() || !dropped.empty(); }
};
void add_verdict_options(Command sub, VerdictFlags& flags);

class Verdicts {
 public:
  // Opens the files. Ends with kIo.
  Verdicts(const VerdictFlags& flags, const Router& router);
  // What the run has to do for it. This outlives the run.
  void prepare(RunOptions& options);
  // Adds the files, which are to appear.
  void end(std::vector<AtomicFile>& files);

 private:
  void take(const PacketEnd& packet);
  void look_at(const Snapshot& snapshot);
  void write_line(const PacketEnd& packet);
  void write_dropped(const PacketEnd& packet);

  const Router& router_;
  std::optional<AtomicFile> lines_;
  std::optional<PcapngWriter> dropped_;
  std::string text_;
  // Of the generation that was looked at last. Of several lists or route tables nobody knows which one is meant.
  uint64_t generation_ = 0;
  bool routes_ = false;
  std::vector<std::string> lists_;  // by element, the access list that it asks; empty: there are not several
  std::optional<AclSourceView> rules_;
  std::optional<NextHopNames> next_hops_;
};

}  // namespace sluice::app
