// What the kernels of the studies offer, in a build without CUDA: there is no device to call it with, and whoever does
// gets an error. So the benchmarks themselves are compiled alike with and without CUDA.
#include "studies/cuda/resident.h"
#include "studies/spark/cuda/flag_ring.h"
#include "studies/stockholm/cuda/priority_port.h"

namespace sluice {
namespace {

Error no_cuda() {
  return Error("this program was built without CUDA", "build it with ./dev build cuda");
}

}  // namespace

Result<std::unique_ptr<FlagRing>> FlagRing::start(Device&, const DeviceProgram&, uint32_t) {
  return no_cuda();
}

Result<PriorityPortReport> run_priority_port(Device&, const DeviceProgram&, const DeviceProgram&,
                                             const std::vector<PriorityPortFrames>&, const PriorityPortOptions&) {
  return no_cuda();
}

Result<std::vector<double>> resident_rate(Device&, const DeviceProgram&, std::span<const Word>, ResidentField,
                                          uint32_t*, unsigned) {
  return no_cuda();
}

Result<std::vector<double>> resident_lookups4(Device&, const Image&, std::span<const uint32_t>, uint32_t*, unsigned,
                                              const LookupTable&) {
  return no_cuda();
}

Result<std::vector<double>> resident_lookups6(Device&, const Image&, std::span<const uint64_t>, uint32_t*, unsigned,
                                              const LookupTable&) {
  return no_cuda();
}

Result<FedLookups> fed_lookups4(Device&, const Image&, std::span<const uint32_t>, uint32_t*, unsigned, bool) {
  return no_cuda();
}

Result<FedLookups> fed_lookups6(Device&, const Image&, std::span<const uint64_t>, uint32_t*, unsigned, bool) {
  return no_cuda();
}

Result<std::vector<double>> lookups_in_a_row4(Device&, const Image&, std::span<const uint32_t>, uint32_t*, unsigned,
                                              bool, bool) {
  return no_cuda();
}

Result<std::vector<double>> resident_frames(Device&, const DeviceProgram&, ResidentFrames&, uint32_t*, unsigned) {
  return no_cuda();
}

Result<std::vector<double>> resident_port(Device&, const DeviceProgram&, ResidentFrames&, ResidentPort&, bool,
                                          uint32_t*, unsigned) {
  return no_cuda();
}

Result<std::vector<double>> resident_crc32(Device&, Crc32Mode, const ResidentFrames&, bool, uint32_t*, unsigned) {
  return no_cuda();
}

}  // namespace sluice
