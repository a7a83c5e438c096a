// host only
// One measurement of a device under test: this thread sends, another receives.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ports/memory/frame_store.h"
#include "ports/sender.h"
#include "ports/wire/meter.h"

namespace sluice {

struct WireTrialOptions {
  SendOptions send;  // rate, end, clock; the trial loops over the frames and marks them
  uint64_t key = 0;  // another one for each trial
  // How long frames are waited for after the last was sent: RFC 2544 section 23 says 2 s. It ends early when all are
  // back and nothing more has come for `quiet_ns`.
  uint64_t straggler_ns = 2'000'000'000, quiet_ns = 100'000'000;
};

struct WireTrial {
  SendReport send;
  uint64_t failed = 0;   // taken by the TX queue and refused by the kernel or the NIC
  uint64_t missed = 0;   // what the RX queue had no room for: lost by this meter and not by the device
  uint64_t span_ns = 0;  // in which `sent` were sent
  WireCounts counts;

  // Frames that left.
  uint64_t sent() const { return send.packets - failed - send.in_flight; }
  uint64_t lost() const { return sent() > counts.unique ? sent() - counts.unique : 0; }
  double loss_percent() const {
    return sent() == 0 ? 0 : 100 * static_cast<double>(lost()) / static_cast<double>(sent());
  }
  uint64_t offered_pps() const;
};

// Makes frames ready to be marked: no UDP checksum, which would be of what they had. Errors: one has no room for a
// stamp.
Result<void> prepare_wire_frames(FrameStore& frames);

// Sends `frames` again and again as `options.send` says. The meter begins anew; its queue may be of the same port.
// Precondition: `frames` are prepared. Errors: no thread.
Result<WireTrial> run_wire_trial(FrameStore& frames, TxQueue& tx, WireMeter& meter, const WireTrialOptions& options);

}  // namespace sluice
