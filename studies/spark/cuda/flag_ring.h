// host only
// The usual persistent kernel, to compare the tagged ring with: the host writes descriptors and rings a doorbell flag,
// the kernel reads the descriptors, writes results and sets a done flag. One batch at a time; for `bench latency` only.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "exec/device/device.h"

namespace sluice {

class FlagRing {
 public:
  static constexpr uint32_t kMaxRecords = 512;

  // Starts one resident block of a lane a record, for key4 records. Errors: not a CUDA device, a program that does not
  // run on keys, more than kMaxRecords, the device failed.
  static Result<std::unique_ptr<FlagRing>> start(Device& device, const DeviceProgram& program, uint32_t records);
  virtual ~FlagRing() = default;

  virtual Word* in() = 0;
  virtual const uint64_t* out() = 0;
  // Hands `count` written records over.
  virtual void ring(uint32_t count) = 0;
  // Whether the results of the batch last handed over are there.
  virtual bool done() const = 0;
  // Errors: the kernel does not stop.
  virtual Result<void> stop() = 0;
};

}  // namespace sluice
