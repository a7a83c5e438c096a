// Reads frames from a pcap or pcapng capture, plain or compressed, a file or a pipe, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/input_file.h"
#include "base/result.h"
#include "ports/frame.h"
#include "ports/pcap/link_type.h"

namespace sluice {

// One pass over a capture, in file order. Not thread-safe. Move-only.
//
// The format is told by content, not by name. Stamps keep their nanoseconds. A frame has as many bytes as its record
// says that were captured, whatever the snaplen is that stands in the file; one that was cut when it was captured has
// captured < wire_bytes. The sections of a pcapng file may differ in byte order, and its interfaces in link type,
// snaplen and resolution of stamps.
class CaptureReader {
 public:
  // "-" is standard input. Errors: cannot open, empty, not a capture, a link type that is not known (named). Waits for
  // the header; of a pcapng pipe whose first interface is not Ethernet, for the first packet.
  static Result<CaptureReader> open(const std::string& path);
  // The same from an input that is open; it is read from here on.
  static Result<CaptureReader> open(InputFile file);

  CaptureReader(CaptureReader&&) noexcept;
  CaptureReader& operator=(CaptureReader&&) noexcept;
  ~CaptureReader();

  // Before the first frame: lengths that IP headers do not say are filled in (fill_length in ports/offload.h).
  void fill_lengths(bool fill);

  // True and a frame; false at the end; an error where the file is truncated or corrupt, with the number of the packet.
  // Every frame before the damage has been delivered by then; each later call repeats the error. `frame.data` is valid
  // until the next call. Allocates nothing on success once the largest frame has been seen.
  Result<bool> next(CapturedFrame& frame);

  // The same for many: lends those that are there, at most frames.size(), and waits for the first of them alone. 0 at
  // the end. Damage after k > 0 frames returns k, and the error comes with the next call.
  Result<size_t> next(std::span<CapturedFrame> frames);

  // The same of a plain file in the classic form, with Ethernet frames, whose records are read straight to `room`:
  // there the frames stay, each behind the 16 bytes of its record and directly behind the one before. Reads as much as
  // so many frames took the last time, and gives those of them that are whole. 0: another file, the end, damage, or a
  // record that is longer than all that; next() goes on from there.
  size_t bring(std::span<std::byte> room, std::span<CapturedFrame> frames);

  // Whether next() returns without waiting for whoever writes a pipe: a whole packet, the end or damage is there.
  bool ready();
  // Waits until that may have changed, `limit_ns` at most; a signal may end it.
  void wait(uint64_t limit_ns) const;
  // What all packets of the capture have; kEthernet where they differ. Frames of other types come as Ethernet
  // (link_type.h).
  LinkType link() const;
  // What the frame that next() gave last had.
  LinkType frame_link() const;

  uint64_t packets() const;         // delivered so far
  const std::string& name() const;  // as given; "standard input" for "-"

 private:
  struct State;
  Result<bool> next_classic(CapturedFrame& frame);
  Result<bool> next_pcapng(CapturedFrame& frame);
  explicit CaptureReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice
