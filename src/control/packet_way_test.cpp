// One object that explains many packets says of each what one of its own would.
#include "control/packet_way.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "control/json.h"
#include "elements/register_all.h"
#include "elements/tables.h"
#include "graph/click/parser.h"
#include "net/packet_builder.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

// Elements of every kind: stages, one that makes packets, one that copies them, one with state of its own.
struct WayGraph {
  Registry registry;
  Router router;
  TableSet tables;
  unsigned source = 0;

  WayGraph() {
    std::string folder = (std::filesystem::temp_directory_path() / "sluice-way-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    std::ofstream(folder + "/acl") << "deny tcp from any to any port 51\nmark(7) udp from any to any port 52\n"
                                      "permit ip from any to any\n";
    std::ofstream(folder + "/rib") << "10.0.0.0/8 a\n10.1.0.0/16 b\n192.0.2.0/24 b\n2001:db8::/32 a\n";
    const std::string text = fmt::format(
        "AclTable(edge, FILE {0}/acl); RouteTable(fib, FILE {0}/rib, ALGORITHM poptrie);\n"
        "InfiniteSource(LIMIT 0) -> IPInput -> acl :: ACL(edge) -> tee :: Tee(2) -> route :: IPRoute(fib)\n"
        "  -> ttl :: DecIPTTL -> out :: ToMemory; tee[1] -> Print(\"seen \\\"once\\\"\") -> Discard;\n"
        "icmp :: ICMPError(192.0.2.1 2001:db8::1) -> back :: IPRoute(fib) -> DecIPTTL -> out;\n"
        "ttl[1] -> icmp; route[1] -> icmp;\n",
        folder);
    register_elements(registry);
    auto graph = parse_click(text, "way.click");
    if (!graph.ok()) ADD_FAILURE() << to_string(graph.error());
    auto built = build_router(*graph, registry, text);
    if (!built.ok()) ADD_FAILURE() << to_string(built.error());
    router = std::move(*built);
    auto loaded = load_tables(router, {}, nullptr, {}, nullptr);
    if (!loaded.ok()) ADD_FAILURE() << to_string(loaded.error());
    tables = std::move(*loaded);
    while (router.elements[source]->kind() != ElementKind::kSource) ++source;
    std::filesystem::remove_all(folder);
  }
};

std::vector<uint8_t> any_frame() {
  const auto pick = [](uint32_t n) { return *rc::gen::inRange<uint32_t>(0, n); };
  const std::string to = fmt::format("{}.{}.0.7", pick(4) == 0 ? 11 : 10, pick(3));
  PacketBuilder b = pick(4) == 0   ? udp6("2001:db8::1", pick(2) == 0 ? "2001:db8::2" : "2001:db9::2")
                    : pick(2) == 0 ? udp4("192.0.2.9", to)
                                   : tcp4("192.0.2.9", to);
  b.ports(1000, static_cast<uint16_t>(50 + pick(4)));
  if (pick(3) == 0) b.ttl(1);
  std::vector<uint8_t> frame = b.payload(pick(3) == 0 ? pick(3000) : pick(40)).build();
  if (pick(6) == 0) frame.resize(14 + pick(12));
  return frame;
}

TEST(PacketWays, SayOfEachOfManyWhatIsSaidOfItAlone) {
  const WayGraph graph;
  size_t made = 0, dropped = 0;
  EXPECT_TRUE(rc::check([&] {
    PacketWays ways(graph.router, graph.tables);
    const auto packets = *rc::gen::inRange(1, 20);
    for (int i = 0; i < packets; ++i) {
      const std::vector<uint8_t> frame = any_frame();
      const auto bytes = static_cast<uint32_t>(frame.size());
      std::string text;
      const WayEnd end = ways.explain(graph.source, frame, bytes, 7, text);
      const Json alone = packet_way(graph.router, graph.tables, graph.source, frame, bytes, 7);
      RC_ASSERT(text == alone.dump());
      RC_ASSERT(end.packets == alone["packets"].size());
      const Json& first = alone["packets"][0];
      RC_ASSERT(end.elements.size() == first["way"].size());
      for (size_t e = 0; e < end.elements.size(); ++e)
        RC_ASSERT(graph.router.elements[end.elements[e]]->name == first["way"][e]["element"].get<std::string>());
      const Json& ended = first["end"];
      RC_ASSERT(ended.is_null() == (end.element == nullptr));
      if (end.element != nullptr) {
        RC_ASSERT(ended["element"].get<std::string>() == end.element->name);
        RC_ASSERT(ended["reason"].is_null() == (end.reason == DropReason::kNone));
        if (end.reason != DropReason::kNone) RC_ASSERT(ended["reason"].get<std::string>() == to_string(end.reason));
      }
      made += end.packets - 1;
      dropped += end.reason == DropReason::kNone ? 0 : 1;
    }
  }));
  EXPECT_GT(made, 0u);
  EXPECT_GT(dropped, 0u);
}

TEST(PacketWays, TextIsWrittenAsValuesAreDumped) {
  EXPECT_TRUE(rc::check([](const std::string& text) {
    std::string written = "x";
    append_json(written, text);
    RC_ASSERT(written == "x" + Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
  }));
  for (const char* text : {"", "plain", "\"", "\\", "\n", "\x7f", "\xe2\x82\xac", "\xff", "a\x1f"}) {
    std::string written;
    append_json(written, text);
    EXPECT_EQ(written, Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

}  // namespace
}  // namespace sluice
