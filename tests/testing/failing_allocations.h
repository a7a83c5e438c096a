// Memory that runs out: operator new of the test program throws std::bad_alloc when it is told to.
#pragma once

#include <cstdint>

namespace sluice::testing {

// While it lives, the `n`-th allocation of the calling thread by operator new fails, from 0, and no other.
class FailAllocation {
 public:
  explicit FailAllocation(uint64_t n);
  ~FailAllocation();
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;
  // Whether it came to that.
  static bool failed();
};

}  // namespace sluice::testing
