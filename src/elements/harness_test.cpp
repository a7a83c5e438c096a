// host only
// The harness of testing.h, and its own tests.
#include <fmt/format.h>

#include "base/group.h"
#include "batch/key_burst.h"
#include "elements/register_all.h"
#include "elements/stages.h"
#include "elements/tables.h"
#include "elements/testing.h"

namespace sluice {
// The skeletons are in no product.
void register_example(Registry&);
void register_example_flow(Registry&);
void register_example_table(Registry&);
void register_example_tunnel(Registry&);
}  // namespace sluice

namespace sluice::testing {

const Registry& all_elements() {
  static const Registry* const registry = [] {
    auto* made = new Registry;
    register_elements(*made);
    register_example(*made);
    register_example_flow(*made);
    register_example_table(*made);
    register_example_tunnel(*made);
    return made;
  }();
  return *registry;
}

namespace {

// Runs the stage in a slot on one packet, whatever its type.
uint8_t run_slot(const StageSlot& slot, Packet& packet) {
  uint8_t output = kDropOutput;
  uint16_t kind = 0;
  AllStages::for_each([&](auto tag) {
    using Stage = typename decltype(tag)::type;
    if (kind++ != slot.kind) return;
    const Stage& stage = slot.get<Stage>();
    if constexpr (requires { stage.team(OneLane{}, &packet, 1u, &output); }) {
      stage.team(OneLane{}, &packet, 1u, &output);
    } else if constexpr (TakesKeyBursts<Stage>) {
      // The burst and the packet at a time are one function.
      Packet alone = packet;
      run_key_burst(stage, &packet, 1u, &output);
      EXPECT_EQ(stage(alone), output);
      EXPECT_EQ(alone.rule, packet.rule);
      EXPECT_EQ(alone.mark, packet.mark);
      EXPECT_EQ(alone.next_hop, packet.next_hop);
      EXPECT_EQ(alone.reason, packet.reason);
    } else {
      output = stage(packet);
    }
  });
  return output;
}

Result<Router> build(const std::string& text) {
  auto graph = parse_click(text, "test.click");
  if (!graph) return std::move(graph).error();
  return build_router(*graph, all_elements(), text);
}

std::string short_form(const std::vector<Diagnostic>& all) {
  std::string out;
  for (const Diagnostic& d : all) {
    out += fmt::format("{}{}:{}: {}", out.empty() ? "" : "\n", d.line, d.column, d.message);
    if (!d.suggestion.empty()) out += fmt::format(" [{}]", d.suggestion);
  }
  return out;
}

}  // namespace

Passage Expectation::through(const std::string& chain, const std::string& before) const {
  Passage passage;
  const std::string text = before + "\nsource :: InfiniteSource(LIMIT 0) -> " + chain + " -> sink :: Discard;\n";
  auto router = build(text);
  if (!router) {
    passage.error = to_string(router.error());
    return passage;
  }
  auto tables = load_tables(*router);
  if (!tables) {
    passage.error = to_string(tables.error());
    return passage;
  }
  passage.storage.assign(static_cast<size_t>(kHeadroom) + bytes_.size() + kTailroom, 0xa5);
  std::copy(bytes_.begin(), bytes_.end(), passage.storage.begin() + kHeadroom);
  Packet& p = passage.packet;
  p.frame = passage.storage.data() + kHeadroom;
  p.end = static_cast<uint32_t>(bytes_.size());
  p.wire_end = wire_ == 0 ? p.end : wire_;
  p.paint = paint_;
  // What a register holds that nobody has written must not matter.
  p.key.family = 77;
  p.l3 = 999;
  p.next_hop = 12345;
  auto index_of = [&](const Element* e) {
    for (unsigned i = 0; i < router->elements.size(); ++i) {
      if (router->elements[i].get() == e) return i;
    }
    return ~0u;
  };
  Router::Target at = router->target(index_of(router->find("source")), 0);
  for (;; ++passage.element) {
    const Element& element = *router->elements[at.element];
    if (element.kind() == ElementKind::kSink) {
      passage.passed = true;
      return passage;
    }
    StageSlot slot{};
    if (auto ok = element.bind(*tables, slot); !ok) {
      passage.error = to_string(ok.error());
      return passage;
    }
    passage.output = run_slot(slot, p);
    at = passage.output == kDropOutput ? Router::Target{} : router->target(at.element, passage.output);
    if (at.element == ~0u) return passage;
  }
}

const Passage& Passage::passes() const {
  EXPECT_EQ(error, "");
  EXPECT_TRUE(passed) << "left element " << element << " by output " << int{output} << ": " << to_string(packet.reason);
  return *this;
}

const Passage& Passage::drops(DropReason reason) const {
  EXPECT_EQ(error, "");
  EXPECT_FALSE(passed);
  EXPECT_STREQ(to_string(packet.reason), to_string(reason));
  return *this;
}

const Passage& Passage::leaves_by(uint8_t wanted) const {
  EXPECT_EQ(error, "");
  EXPECT_EQ(int{output}, int{wanted}) << to_string(packet.reason);
  return *this;
}

std::string findings(const std::string& text) {
  auto router = build(text);
  return short_form(router ? router->warnings : router.error().diagnostics);
}

std::string findings_of(const std::string& element) {
  return findings("InfiniteSource ->\n" + element + "\n-> Discard;\n");
}

TEST(Harness, FollowsAPacketAndSaysWhereItEnded) {
  expect(udp4("10.0.0.1", "192.0.2.7").ttl(9)).through("Null -> IPInput -> DecIPTTL").passes();
  const Passage ended = expect(udp4("10.0.0.1", "192.0.2.7").ttl(1)).through("Null -> IPInput -> DecIPTTL -> Null");
  ended.drops(DropReason::kTtlExpired).leaves_by(1);
  EXPECT_EQ(ended.element, 2u);
}

}  // namespace sluice::testing
