// host only
// The file or files that a capture's client writes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ports/pcap/pcapng_writer.h"

namespace sluice {

struct CaptureRing {
  uint64_t bytes = 0;    // a file ends once it has as many; 0: no limit
  uint64_t time_ns = 0;  // and after this time; 0: no limit
  uint64_t files = 0;    // the newest that are kept; 0: all

  bool several() const { return bytes != 0 || time_ns != 0; }
};

// Not thread-safe. Files of a ring are NAME_00001.pcapng and so on, for a name NAME.pcapng; a file of a ring is made
// with its first packet. Each is an AtomicFile: it appears once it is whole, and a pipe or a device is written
// directly.
class CaptureFiles {
 public:
  // Errors: those of PcapngWriter::create; a ring that is not in a regular file.
  static Result<CaptureFiles> create(const std::string& path, const CaptureRing& ring);
  // The interfaces of each file, by the names of the inputs, and the most bytes that are kept of a packet. Before the
  // first packet.
  void describe(const std::vector<std::string>& inputs, uint32_t snap_bytes);

  // A packet of an answer to `capture read`; `now` of now_ns(). Errors: it is none; those of the files.
  Result<void> add(const nlohmann::ordered_json& packet, uint64_t now);
  // What is buffered is written; a file whose time is over ends.
  Result<void> flush(uint64_t now);
  Result<void> finish();
  uint64_t packets() const { return packets_; }
  // The files that are there; with a ring those that were not removed.
  const std::deque<std::string>& places() const { return places_; }

 private:
  Result<void> open(uint64_t now);
  Result<void> close();
  uint32_t interface(const std::string& input);

  std::string path_;
  CaptureRing ring_;
  std::vector<std::string> inputs_;
  uint32_t snap_bytes_ = kMaxCapturedBytes;
  std::optional<PcapngWriter> writer_;
  std::map<std::string, uint32_t, std::less<>> interfaces_;  // of the writer
  uint64_t opened_ns_ = 0, bytes_ = 0;                       // of the writer
  uint64_t number_ = 0, packets_ = 0;
  std::deque<std::string> places_;
};

}  // namespace sluice
