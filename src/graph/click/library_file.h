// Libraries of configurations as files.
// host only
#pragma once

#include <string>

#include "base/result.h"
#include "graph/click/syntax.h"

namespace sluice {

// Reads a library as ParseOptions::library asks: a file beside the one that requires it, with or without ".click".
// `folder`: what relative names begin in; empty: this process's own.
Result<ClickLibrary> read_library(const std::string& folder, const std::string& name, const std::string& from);

}  // namespace sluice
