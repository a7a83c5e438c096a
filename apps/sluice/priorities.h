// host only
// The options of `run` for priorities, and what they report.
#pragma once

#include <string>
#include <vector>

#include "app.h"
#include "pipeline.h"

namespace sluice::app {

struct PriorityFlags {
  bool on = false;
  std::vector<uint32_t> shares;
  uint32_t chunk = 256;
  std::string timeout = "100us";
  bool drop_when_full = false;
};
void add_priority_options(Command sub, PriorityFlags& flags);

// Shares of as many `classes`, which are those of RFC 4594. Ends with kUsage.
PriorityOptions priority_options(const PriorityFlags& flags, size_t classes);

// One line a class, for people.
std::string class_lines(const RunReport& report);
// [{"class", "packets", "bytes", "refused", "chunks", "stolen_chunks", "early_chunks", "turns", "latency_ns"}]
Json classes_json(const RunReport& report);

}  // namespace sluice::app
