// Any text as a configuration of the product's elements (parsing, arguments, patterns, routes, ports and fields), and
// any frames through the stages of what was accepted. No file is opened; elements that use tables or the host are not
// run. Input: the text; after its first NUL frames of {bytes on the wire beyond the captured ones u8, length u16 little
// endian modulo 2048, bytes}. A text without a NUL is the only frame, too.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/group.h"
#include "elements/register_all.h"
#include "elements/stages.h"
#include "graph/router.h"
#include "graph/stage_slot.h"
#include "graph/table_set.h"

namespace {

using namespace sluice;

void require(bool condition) {
  if (!condition) std::abort();
}

uint8_t run_slot(const StageSlot& slot, Packet& packet) {
  uint8_t output = kDropOutput;
  PlainStages::for_each([&](auto tag) {
    using Stage = typename decltype(tag)::type;
    if (slot.kind != kStageKind<Stage>) return;
    const Stage& stage = slot.get<Stage>();
    if constexpr (requires { stage.team(OneLane{}, &packet, 1u, &output); }) {
      stage.team(OneLane{}, &packet, 1u, &output);
    } else {
      output = stage(packet);
    }
  });
  return output;
}

struct Stages {
  const Router& router;
  std::vector<StageSlot> slots;
  std::vector<bool> runs;

  explicit Stages(const Router& r) : router(r), slots(r.elements.size()), runs(r.elements.size()) {
    for (size_t i = 0; i < slots.size(); ++i) {
      const Element& e = *router.elements[i];
      // An element that wants a table does not bind to none.
      runs[i] = e.kind() == ElementKind::kStage && e.tables().empty() && e.bind({}, slots[i]).ok();
    }
  }

  void walk(unsigned source, const uint8_t* bytes, size_t size, uint32_t beyond) const {
    // Exactly the promised room, so that a step outside is seen.
    auto memory = std::make_unique<uint8_t[]>(static_cast<size_t>(kHeadroom) + size + kTailroom);
    if (size != 0) std::memcpy(memory.get() + kHeadroom, bytes, size);
    Packet p;
    p.frame = memory.get() + kHeadroom;
    p.end = static_cast<uint32_t>(size);
    p.wire_end = p.end + beyond;
    // What nobody has written must not matter.
    p.l3 = 999;
    p.key.family = 77;
    Router::Target at = router.target(source, 0);
    for (int step = 0; step < 64 && at.element != ~0u && runs[at.element]; ++step) {
      const uint8_t output = run_slot(slots[at.element], p);
      require(p.data >= -kHeadroom && p.data <= static_cast<int64_t>(p.end));
      require(p.end <= size + kTailroom && p.wire_end >= p.end && p.appended <= kTailroom);
      if (output == kDropOutput) {
        require(p.reason != DropReason::kNone);
        return;
      }
      at = router.target(at.element, output);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Registry& registry = []() -> Registry& {
    auto* made = new Registry;
    register_elements(*made);
    return *made;
  }();
  const uint8_t* nul = size == 0 ? nullptr : static_cast<const uint8_t*>(std::memchr(data, 0, size));
  const std::string_view text(reinterpret_cast<const char*>(data),
                              nul == nullptr ? size : static_cast<size_t>(nul - data));
  ParseOptions limits;
  limits.max_elements = 1000;
  limits.max_connections = 4000;
  limits.max_text_bytes = 1 << 20;
  auto graph = parse_click(text, "fuzz", limits);
  if (!graph) {
    require(!to_string(graph.error()).empty());
    return 0;
  }
  auto router = build_router(*graph, registry, text);
  if (!router) {
    require(!to_string(router.error()).empty());
    return 0;
  }
  const Stages stages(*router);
  for (unsigned source = 0; source < router->elements.size(); ++source) {
    if (router->elements[source]->kind() != ElementKind::kSource) continue;
    if (nul == nullptr) {
      stages.walk(source, data, std::min<size_t>(size, 2047), 0);
      continue;
    }
    const uint8_t* at = nul + 1;
    for (int frames = 0; frames < 64 && data + size - at >= 3; ++frames) {
      const auto left = static_cast<size_t>(data + size - at - 3);
      const size_t length = std::min<size_t>((at[1] | at[2] << 8) & 2047, left);
      stages.walk(source, at + 3, length, at[0]);
      at += 3 + length;
    }
  }
  return 0;
}
