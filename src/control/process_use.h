// host only
// What this process takes of the machine, as its operating system counts it.
#pragma once

#include <cstdint>
#include <string>

#include "control/descriptor.h"

namespace sluice {

class ProcessUse {
 public:
  // Opens what `now` reads: a process that confines itself afterwards cannot. Throws std::bad_alloc.
  ProcessUse();

  struct Now {
    double cpu_seconds = 0;       // user and system, of all threads
    uint64_t resident_bytes = 0;  // 0: the operating system does not say, here and below
    uint64_t virtual_bytes = 0;
    uint64_t open_files = 0;
    uint64_t open_files_limit = 0;
  };
  // One thread at a time.
  Now now() const;
  const std::string& host() const { return host_; }
  double start_unix_seconds() const { return start_unix_seconds_; }

 private:
  std::string host_;
  double start_unix_seconds_ = 0;
  Descriptor memory_, files_;
};

}  // namespace sluice
