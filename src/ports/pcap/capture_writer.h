// Writes Ethernet frames to a classic pcap file that appears under its name only when it is whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/atomic_file.h"
#include "base/result.h"
#include "ports/frame.h"
#include "ports/pcap/link_type.h"

namespace sluice {

struct CaptureWriterOptions {
  bool nanosecond = true;               // false: microsecond stamps, for old readers
  uint32_t snaplen = 0;                 // keep at most this many bytes of a frame; 0 keeps all
  LinkType link = LinkType::kEthernet;  // of the frames that are appended
};

// Not thread-safe. Move-only.
//
// An AtomicFile: it appears with commit(), and a pipe or a device is written directly. A name that ends in .gz is
// written as gzip.
class CaptureWriter {
 public:
  // Errors: those of AtomicFile::create, snaplen above kMaxCapturedBytes.
  static Result<CaptureWriter> create(const std::string& path, const CaptureWriterOptions& options = {});

  CaptureWriter(CaptureWriter&&) noexcept;
  CaptureWriter& operator=(CaptureWriter&&) noexcept;
  ~CaptureWriter();

  // Appends one frame: header.captured bytes at `data`. False once anything has failed (disk full, a frame larger than
  // kMaxCapturedBytes, a stamp past 2106); error() says what, and the file will not be committed. Writes of one frame
  // are buffered, so a full disk may show at a later call or at commit().
  bool append(const FrameHeader& header, const uint8_t* data);
  // Appends many. Returns how many were: fewer only where append() of the next would be false.
  size_t append(std::span<const CapturedFrame> frames);
  // A frame in two parts: `head_bytes` bytes at `head` (an edited copy), then captured - head_bytes bytes at `rest`.
  bool append(const FrameHeader& header, const uint8_t* head, uint32_t head_bytes, const uint8_t* rest);

  // Hands on what is buffered, where the capture is written directly (a pipe, standard output).
  Result<void> flush();

  bool ok() const;
  const Error& error() const;  // empty while ok()
  uint64_t packets() const;    // appended so far
  const std::string& path() const;

  // As those of AtomicFile; later calls to append fail. Errors: the first one that happened, or of these steps.
  Result<void> settle();
  Result<void> commit(Ending ending = Ending::kWhole);
  std::string path_of(Ending ending) const;
  // Once it is settled: to appear together with others.
  AtomicFile& file();

 private:
  struct State;
  explicit CaptureWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice
