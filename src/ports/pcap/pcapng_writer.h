// Writes Ethernet frames with comments to a pcapng file that appears under its name only when it is whole.
// host only
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "base/result.h"
#include "ports/frame.h"

namespace sluice {

// One section, stamps in nanoseconds, in the byte order of the machine that writes (draft-ietf-
// opsawg-pcapng). Not thread-safe. Move-only.
//
// An AtomicFile: it appears with commit(), and a pipe or a device is written directly.
class PcapngWriter {
 public:
  // Errors: those of AtomicFile::create.
  static Result<PcapngWriter> create(const std::string& path);

  // An Ethernet interface; before the first packet of it. Returns its number, from 0. `name`: UTF-8, empty: none.
  // `snap_bytes`: the most that is kept of its packets.
  uint32_t add_interface(std::string_view name, uint32_t snap_bytes = kMaxCapturedBytes);
  // Appends header.captured bytes at `data` with a comment (UTF-8, cut at 65,535 bytes; empty: none). Errors are those
  // of the file, which keeps them.
  void append(const FrameHeader& header, const uint8_t* data, std::string_view comment, uint32_t interface = 0);
  AtomicFile& file() { return file_; }
  const AtomicFile& file() const { return file_; }

 private:
  AtomicFile file_;
  uint32_t interfaces_ = 0;
  std::string block_;  // that is being written
};

}  // namespace sluice
