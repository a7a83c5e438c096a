// host only
// The files that a graph reads and writes.
#pragma once

#include "base/run_files.h"
#include "graph/router.h"

namespace sluice {

// Adds what an element reads and writes.
void add_files(const Element& element, RunFiles& files);
// Adds what the router's elements read and write. `elements` grows by the index of each file's element; nullptr: nobody
// asks.
void add_files(const Router& router, RunFiles& files, std::vector<unsigned>* elements = nullptr);

// The files of the router together with those of the run. Errors: each output that is another file of the run, too, at
// its element.
Result<void> check_files(const Router& router, RunFiles files = {});

}  // namespace sluice
