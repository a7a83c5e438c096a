// Any text as a pattern, and what follows a NUL as the bytes of packets: no crash; the program and the rules agree.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "elements/ip_filter/pattern.h"
#include "elements/ip_input/stage.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto* nul = static_cast<const uint8_t*>(std::memchr(data, 0, size));
  const size_t text_bytes = nul != nullptr ? static_cast<size_t>(nul - data) : size;
  PatternList list;
  if (const auto fault = list.add({reinterpret_cast<const char*>(data), text_bytes}, 0)) {
    if (fault->message.empty() || fault->offset > text_bytes || fault->offset + fault->length > text_bytes)
      std::abort();
    return 0;
  }
  uint32_t first = 0;
  const auto steps = list.program(&first);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const uint16_t to : {steps[i].yes, steps[i].no}) {
      if ((to & PatternStep::kDone) == 0 && (to <= i || to >= steps.size())) std::abort();
    }
  }
  const PatternStage stage{steps.data(), static_cast<uint32_t>(steps.size()), first};
  const auto rules = list.rules(500);
  std::vector<uint8_t> memory(kHeadroom + 2048 + kTailroom);
  const size_t bytes = std::min<size_t>(size - text_bytes, 2048);
  std::copy(data + text_bytes, data + text_bytes + bytes, memory.begin() + kHeadroom);
  Packet packet;
  packet.frame = memory.data() + kHeadroom;
  packet.end = packet.wire_end = static_cast<uint32_t>(bytes);
  if (IpInputStage{.check_martians = 0}(packet) != 0) return 0;
  const uint8_t output = stage(packet);
  if (output != 0 && output != kDropOutput) std::abort();
  if (!rules) return 0;
  const bool matched = std::any_of(rules->rules.begin(), rules->rules.end(),
                                   [&](const AclRule& rule) { return matches(flatten(rule, 1), packet.key); });
  if (matched != (output == 0)) std::abort();
  return 0;
}
