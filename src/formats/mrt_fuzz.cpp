// Any bytes as an MRT file, plain or compressed: no crash, bounded memory, an error leaves the Rib alone.
#include <cstdlib>

#include "formats/mrt.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  MrtOptions options;
  if (size > 0 && data[0] % 8 == 7) options.peer = data[0] / 8;
  Rib rib;
  auto stream = ByteStream::over({reinterpret_cast<const std::byte*>(data), size}, "fuzz", uint64_t{4} << 20);
  if (!stream) return 0;
  const auto start = stream->peek();
  if (start) (void)looks_like_mrt(*start);
  const auto report = parse_mrt(*stream, rib, options);
  if (!report) {
    if (!rib.settled() || rib.next_hop_count() != 0) std::abort();
    (void)to_string(report.error());
    return 0;
  }
  rib.settle();
  if (rib.size() + rib.duplicates() != report->routes4 + report->routes6) std::abort();
  return 0;
}
