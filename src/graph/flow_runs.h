// host only
// What flow elements may offer besides (flow.h), so that many packets are taken at a time, with the result that they
// would have one after the other.
#pragma once

#include <cstdint>

namespace sluice {

// A queue.
class PassingQueue {
 public:
  virtual ~PassingQueue() = default;
  // Whether a packet that is pushed now can be pulled next, and all that is left of it is a count.
  virtual bool passes() const = 0;
  // So did these, one after the other.
  virtual void passed(uint64_t packets) = 0;
};

// An element with a task that pulls and pushes on.
class PassingPuller {
 public:
  virtual ~PassingPuller() = default;
  // In how many turns it would move the one packet that is there, and do nothing else but count it.
  virtual uint64_t moves() const = 0;
  // It has.
  virtual void moved(uint64_t packets) = 0;
};

}  // namespace sluice
