// host only
// What a folder of studies/ gives to `sluice-bench`: its commands, the cases that repeat its tables, and the figures
// that it published. A study is a folder, a line in studies.inc and a function `const Study& NAME_study()`.
#pragma once

#include <string_view>
#include <vector>

#include "apps/bench/bench.h"
#include "apps/bench/case_list.h"
#include "apps/bench/suite.h"

namespace sluice::app {

struct Study {
  const char* name;  // of the folder
  Suite suite;
  void (*add_cases)(CaseList& list);  // all of `suite`
  std::vector<void (*)(Command bench)> commands;
};

const std::vector<const Study*>& studies();  // in the order of studies.inc

// studies/NAME/published.json as it was when the program was built; README.md says what stands there.
std::string_view published_text(std::string_view study);

}  // namespace sluice::app
