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

// One section with one interface, stamps in nanoseconds, in the byte order of the machine that writes (draft-ietf-
// opsawg-pcapng). Not thread-safe. Move-only.
//
// An AtomicFile: it appears with commit(), and a pipe or a device is written directly.
class PcapngWriter {
 public:
  // Errors: those of AtomicFile::create.
  static Result<PcapngWriter> create(const std::string& path);

  // Appends header.captured bytes at `data` with a comment (UTF-8, cut at 65,535 bytes; empty: none). Errors are those
  // of the file, which keeps them.
  void append(const FrameHeader& header, const uint8_t* data, std::string_view comment);
  AtomicFile& file() { return file_; }
  const AtomicFile& file() const { return file_; }

 private:
  AtomicFile file_;
  std::string block_;  // that is being written
};

}  // namespace sluice
