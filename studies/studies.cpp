// host only
#include "studies/study.h"

namespace sluice::app {

#define SLUICE_STUDY(name) const Study& name##_study();
#include "studies/studies.inc"
#undef SLUICE_STUDY

const std::vector<const Study*>& studies() {
  static const std::vector<const Study*> all = {
#define SLUICE_STUDY(name) &name##_study(),
#include "studies/studies.inc"
#undef SLUICE_STUDY
  };
  return all;
}

}  // namespace sluice::app
