// host only
// Hardware timestamps of what an interface receives (Linux: Documentation/networking/timestamping.rst).
#pragma once

#include <linux/net_tstamp.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "ports/interface.h"

namespace sluice {

// As long as one lives the interface stamps every packet that it receives; afterwards it does what it did before.
class AdapterStamps {
 public:
  // Errors: the interface has no such timestamps; what is missing to ask for them.
  static Result<std::unique_ptr<AdapterStamps>> take(const std::string& interface);
  ~AdapterStamps();
  AdapterStamps(const AdapterStamps&) = delete;
  AdapterStamps& operator=(const AdapterStamps&) = delete;

 private:
  AdapterStamps() = default;
  bool ask(unsigned long command, hwtstamp_config& config) const;

  std::string interface_;
  FileDescriptor control_;
  hwtstamp_config before_{};
  bool changed_ = false;
};

// The stamp in a header of TPACKET_V3, where it is the hardware's; else `otherwise_ns`.
uint64_t stamp_of(uint32_t status, uint32_t seconds, uint32_t nanoseconds, uint64_t otherwise_ns);

}  // namespace sluice
