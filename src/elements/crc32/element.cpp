// host only
#include "elements/crc32/stage.h"
#include "elements/gpu_classes.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

template <typename Stage>
class CrcElement final : public StageElement<Stage> {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    this->stage_.mode = arguments.get_string("MODE") == "fcs" ? Crc32Mode::kFcs : Crc32Mode::kClick;
    if constexpr (requires { this->stage_.max_bytes; }) {
      if (arguments.has("MAX_PKT_SIZE"))
        this->stage_.max_bytes = static_cast<uint32_t>(arguments.get_uint("MAX_PKT_SIZE"));
    }
  }
};

}  // namespace

void register_crc32(Registry& registry) {
  const ArgumentSpec mode{
      .name = "MODE",
      .kind = ArgumentKind::kChoice,
      .default_text = "click",
      .help = "click: Click's CRC-32, most significant bit first, not inverted; fcs: the Ethernet frame check sequence",
      .choices = {"click", "fcs"}};
  ElementClass set{.name = "SetCRC32", .group = "Checksums", .summary = "appends a CRC-32 of the packet"};
  set.description =
      "Adds 4 bytes after the data. In mode `click` they are what Click's SetCRC32 appends (`123456789` gives "
      "0x0376E6E7, stored in host "
      "order); in mode `fcs` they are the frame check sequence of IEEE 802.3 (0xCBF43926). A packet of which a "
      "capture's snap length cut "
      "bytes off is dropped. There is room for 16 trailers.";
  set.arguments = {mode};
  set.drops = {DropReason::kCapturedTooShort, DropReason::kNoTailroom};
  set.example = "in -> SetCRC32(MODE fcs) -> out;";
  set.make = make_element<CrcElement<SetCrc32Stage>>();
  ElementClass regions = gpu_class(set, "GPUSetCRC32Coalescent", false);
  regions.arguments.push_back({.name = "MAX_PKT_SIZE",
                               .kind = ArgumentKind::kUint,
                               .positional = true,
                               .unit = "bytes",
                               .help = "longer packets are dropped, as by FastClick-GPU; default: none are",
                               .min = 1,
                               .max = 262144});
  regions.drops.push_back(DropReason::kTooBig);
  registry.add(std::move(regions));
  registry.add(gpu_class(set, "GPUSetCRC32CommList", true));
  registry.add(std::move(set));

  ElementClass check{
      .name = "CheckCRC32", .group = "Checksums", .summary = "checks and removes the CRC-32 at the packet's end"};
  check.description = "The counterpart of SetCRC32: the last 4 bytes are compared and taken off.";
  check.arguments = {mode};
  check.outputs = {1, 2};
  check.output_docs = {"the CRC is right; the packet is 4 bytes shorter", "it is wrong; the packet is as it was"};
  check.drops = {DropReason::kBadCrc, DropReason::kCapturedTooShort};
  check.example = "in -> CheckCRC32(MODE fcs) -> out;";
  check.make = make_element<CrcElement<CheckCrc32Stage>>();
  registry.add(std::move(check));
}

}  // namespace sluice
