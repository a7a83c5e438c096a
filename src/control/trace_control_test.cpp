// What is said of followed packets is what the run reports, on any number of workers and beside a device.
#include "control/trace_control.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "control/capture_control.h"
#include "control/json.h"
#include "control/live_fuzz_input.h"
#include "control/request.h"
#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/emu/emu_device.h"
#include "graph/click/parser.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

class TraceFolder {
 public:
  TraceFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-trace-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TraceFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A run of random packets through an access list and routes, all followed.
struct TracedRun {
  std::map<std::string, uint64_t> reported, traced, captured;  // packets by drop reason; "": left
  uint64_t packets_in = 0, packets_out = 0, differing = 0, unexplained = 0, on_device = 0;
  uint64_t came = 0;  // to the element `at`, as its counter says
};

// `first_alone`: the first packet comes by an input of its own, and is the only one that is followed. `at`: of what
// the capture asks.
TracedRun run_traced(const std::string& rules, uint32_t packets, uint32_t seed, const RunOptions& wanted,
                     bool first_alone = false, const std::string& at = {}) {
  const TraceFolder folder;
  std::ofstream(folder / "acl") << rules;
  std::ofstream(folder / "rib") << "10.0.0.0/8 a\n10.1.0.0/16 b\n2001:db8::/32 a\n";
  auto writer = CaptureWriter::create(folder / "in.pcap"), first = CaptureWriter::create(folder / "first.pcap");
  EXPECT_TRUE(writer.ok() && first.ok());
  std::minstd_rand random(seed);
  for (uint32_t i = 0; i < packets; ++i) {
    const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    const std::string to = fmt::format("{}.{}.0.7", pick(4) == 0 ? 11 : 10, pick(3));
    PacketBuilder b = pick(5) == 0   ? udp6("2001:db8::1", pick(2) == 0 ? "2001:db8::2" : "2001:db9::2")
                      : pick(2) == 0 ? udp4(fmt::format("192.0.2.{}", 1 + pick(3)), to)
                                     : tcp4("192.0.2.9", to);
    b.ports(static_cast<uint16_t>(1000 + pick(4)), static_cast<uint16_t>(50 + pick(5)));
    if (pick(6) == 0) b.ttl(1);
    std::vector<uint8_t> frame = b.payload(pick(40)).build();
    if (pick(8) == 0) frame.resize(14 + pick(12));
    const auto bytes = static_cast<uint32_t>(frame.size());
    CaptureWriter& to_file = first_alone && i == 0 ? *first : *writer;
    EXPECT_TRUE(to_file.append(FrameHeader{bytes, bytes, i * uint64_t{1000}}, frame.data()));
  }
  EXPECT_TRUE(writer->commit().ok() && first->commit().ok());
  const std::string text = fmt::format(
      "AclTable(edge, FILE {}); RouteTable(fib, FILE {}, ALGORITHM poptrie);\nin :: IPInput;\n{}FromDump({}, STOP "
      "true) -> "
      "in -> acl :: ACL(edge) -> route :: IPRoute(fib) -> ttl :: DecIPTTL -> out :: ToMemory;\n",
      folder / "acl", folder / "rib", first_alone ? fmt::format("FromDump({}) -> in;\n", folder / "first.pcap") : "",
      folder / "in.pcap");
  Registry registry;
  register_elements(registry);
  auto graph = parse_click(text, "trace.click");
  EXPECT_TRUE(graph.ok());
  auto router = build_router(*graph, registry, text);
  if (!router.ok()) {
    ADD_FAILURE() << to_string(router.error());
    return {};
  }
  auto plan = make_plan(*router);
  TableReport report;
  TableModels models;
  auto tables = load_tables(*router, {}, &report, {}, &models);
  EXPECT_TRUE(plan.ok() && tables.ok());
  RunOptions options = wanted;
  options.batch = 32;
  options.live = options.count_hits = true;
  options.taps = std::make_shared<PacketTaps>();
  auto engine = Engine::create(*router, *plan, options);
  EXPECT_TRUE(engine.ok());
  (*engine)->publisher().publish(*bind_plan(*plan, *router, *tables));
  LiveTables live(*router, *plan, (*engine)->publisher(), *tables, std::move(models), report.loads, 0);
  const auto order = options.taps->start(Tap::kTrace, {}, first_alone ? 1 : packets, size_t{1} << 24);
  CaptureControl capture(**engine, options.taps);
  if (!first_alone) {
    EXPECT_TRUE(capture.start({.at = at}, CaptureControl::kMostPackets, 60).ok());
  }
  RunReport done;
  EXPECT_TRUE((*engine)->run(done).ok());
  capture.run_ended();
  TracedRun out;
  out.packets_in = done.packets_in;
  out.packets_out = done.packets_out;
  for (size_t r = 0; r < kDropReasons; ++r) {
    if (done.drops[r] != 0) out.reported[to_string(static_cast<DropReason>(r))] = done.drops[r];
  }
  if (done.packets_out != 0) out.reported[""] = done.packets_out;
  for (size_t e = 0; e < router->elements.size(); ++e) {
    if (router->elements[e]->name == at) out.came = done.totals.elements[e].packets;
  }
  EXPECT_FALSE(options.taps->armed());
  while (!first_alone) {
    const auto answer = capture.read(1);
    EXPECT_TRUE(answer.ok());
    for (const Json& packet : (*answer)["packets"]) {
      const auto comment = packet["comment"].get<std::string>();
      EXPECT_LE(packet["frame"].get<std::string>().size(), 80u);  // 60 bytes in base64
      const std::string_view dropped = "dropped: ";
      const size_t begin = comment.find(dropped);
      EXPECT_TRUE(begin == 0 || comment.starts_with("left by out (port ")) << comment;
      const size_t end = comment.find(" at ");
      ++out.captured[begin == 0 ? comment.substr(dropped.size(), end - dropped.size()) : ""];
    }
    if (!(*answer)["ended"].is_null()) break;
  }
  FollowedTexts texts(*router, live);
  for (const auto& packet : order->take()) {
    const std::string fate = texts.text(*packet);
    EXPECT_EQ(fate, FollowedTexts(*router, live).text(*packet)) << "others were explained before";
    const Json json = Json::parse(fate);
    ++out.traced[json["fate"]["reason"].is_null() ? "" : json["fate"]["reason"].get<std::string>()];
    if (!json["agrees"].is_boolean()) {
      ++out.unexplained;
    } else if (!json["agrees"].get<bool>()) {
      ++out.differing;
      ADD_FAILURE() << json.dump(1);
    }
    out.on_device += packet->on_device ? 1 : 0;
  }
  return out;
}

TEST(Trace, TellsTheFateOfEveryPacketAsTheRunReportsIt) {
  // A run with threads takes long under the thread sanitizer.
#if defined(SLUICE_SANITIZED)
  constexpr uint32_t kMost = 40;
#else
  constexpr uint32_t kMost = 300;
#endif
  EXPECT_TRUE(rc::check([] {
    const auto seed = *rc::gen::inRange<uint32_t>(1, 1u << 30);
    const auto packets = *rc::gen::inRange<uint32_t>(1, kMost);
    std::string rules;
    const auto count = *rc::gen::inRange(0, 6);
    for (int r = 0; r < count; ++r) {
      rules += fmt::format("{} {} from any to any port {}\n", *rc::gen::element("permit", "deny", "mark(7)"),
                           *rc::gen::element("tcp", "udp"), *rc::gen::inRange(50, 55));
    }
    rules += *rc::gen::element("permit ip from any to any\n", "permit udp from any to any\n");
    for (const char* way : {"one", "three", "emu"}) {
      RunOptions options;
      options.workers = std::string_view(way) == "three" ? 3 : 1;
      if (std::string_view(way) == "emu") options.device.devices = {std::make_shared<EmuDevice>()};
      const TracedRun run = run_traced(rules, packets, seed, options);
      RC_ASSERT(run.packets_in == packets);
      RC_ASSERT(run.traced == run.reported);
      RC_ASSERT(run.captured == run.reported);
      RC_ASSERT(run.differing == 0u);
      RC_ASSERT(run.unexplained == 0u);
      if (std::string_view(way) != "emu") RC_ASSERT(run.on_device == 0u);
    }
  }));
}

// As many packets are captured at an element as it counts.
TEST(Trace, ACaptureAtAnElementHasThePacketsThatCameToIt) {
  for (const char* way : {"one", "three", "emu"}) {
    RunOptions options;
    options.workers = std::string_view(way) == "three" ? 3 : 1;
    if (std::string_view(way) == "emu") options.device.devices = {std::make_shared<EmuDevice>()};
    uint64_t before = 200;
    for (const char* at : {"in", "acl", "route", "ttl", "out"}) {
      SCOPED_TRACE(std::string(way) + " " + at);
      const TracedRun run =
          run_traced("deny tcp from any to any port 51\npermit ip from any to any\n", 200, 5, options, false, at);
      uint64_t captured = 0;
      for (const auto& [reason, n] : run.captured) captured += n;
      EXPECT_EQ(captured, run.came);
      EXPECT_LE(captured, before);
      EXPECT_GT(captured, 0u);
      before = captured;
    }
    EXPECT_LT(before, 150u) << "some were dropped on the way";
  }
}

// A batch that is followed may be smaller than the next one in its place, whose packets are all dropped.
TEST(Trace, NothingIsNotedOnceNobodyFollows) {
  const TracedRun run = run_traced("deny ip from any to any\n", 200, 3, RunOptions(), true);
  EXPECT_EQ(run.packets_in, 200u);
  uint64_t traced = 0, dropped = 0;
  for (const auto& [reason, n] : run.traced) traced += n;
  for (const auto& [reason, n] : run.reported) dropped += n;
  EXPECT_EQ(traced, 1u);
  EXPECT_EQ(dropped, 200u);
}

TEST(Trace, SaysWhereItRan) {
  RunOptions options;
  options.device.devices = {std::make_shared<EmuDevice>()};
  EXPECT_GT(run_traced("permit ip from any to any\n", 200, 1, options).on_device, 0u);
}

TEST(Trace, FilterIsARuleWithOrWithoutItsVerb) {
  for (const char* text : {"udp from any to any port 53", "deny udp from any to any port 53"}) {
    const auto rules = parse_packet_filter(text);
    ASSERT_TRUE(rules.ok()) << text;
    ASSERT_EQ(rules->size(), 1u);
    FlowKey key{};
    key.family = 4;
    key.protocol = 17;
    key.dst_port = 53;
    key.bits = FlowKey::kHasPorts;
    EXPECT_TRUE(matches((*rules)[0], key));
    key.dst_port = 54;
    EXPECT_FALSE(matches((*rules)[0], key));
  }
  EXPECT_TRUE(parse_packet_filter("")->empty());
  for (const char* text : {"udp frm any", "include \"/etc/passwd\"", "define a = 1.2.3.4", "udp from any\nto any"})
    EXPECT_FALSE(parse_packet_filter(text).ok()) << text;
}

Json ask(FuzzedRuntime& runtime, Json request) {
  request["v"] = kControlVersion;
  const Json said = Json::parse(runtime.control->answer(request.dump()));
  EXPECT_TRUE(said["ok"].get<bool>()) << said.dump();
  return said["result"];
}
// A packet to UDP port `port` that meets the tables of now.
std::shared_ptr<FollowedPacket> follow_one(FuzzedRuntime& runtime, uint16_t port) {
  auto batch = Batch::create(1, size_t{1} << 12);
  EXPECT_TRUE(batch.ok());
  const std::vector<uint8_t> frame = udp4("10.0.0.1", "8.8.0.2").ports(1, port).size(100).build();
  uint8_t* to = batch->reserve_clean(frame.size());
  std::copy(frame.begin(), frame.end(), to);
  batch->push(to, static_cast<uint32_t>(frame.size()), static_cast<uint32_t>(frame.size()), 0, 0);
  std::vector<FollowedRow> rows;
  runtime.taps->receive(*batch, *runtime.runtime->publisher().current(),
                        runtime.router.elements[runtime.plan.sources[0].element]->name, rows);
  EXPECT_EQ(rows.size(), 1u);
  rows.at(0).packet->fate.reason = DropReason::kAclDeny;
  for (const auto& element : runtime.router.elements) {
    if (element->class_name == "ACL") rows[0].packet->element = element->name;
  }
  return rows[0].packet;
}

// The tables that decided a packet explain it, whether it is through before they are replaced or after.
TEST(Trace, APacketIsExplainedByTheTablesThatItMet) {
  FuzzedRuntime runtime;
  ask(runtime, {{"command", "trace add"}, {"packets", 10}});
  auto before = follow_one(runtime, 53), late = follow_one(runtime, 53);
  PacketTaps::finish(std::move(before));
  const auto change = [&](const char* text) {
    ask(runtime, {{"command", "acl change"}, {"table", "edge"}, {"changes", text}, {"name", "test"}});
  };
  change("add at 1 permit udp from any to any port 53\nadd at 2 deny udp from any to any port 54");
  PacketTaps::finish(std::move(late));
  PacketTaps::finish(follow_one(runtime, 54));
  change("delete 2\ndelete 1");
  const Json packets = ask(runtime, {{"command", "show trace"}})["packets"];
  ASSERT_EQ(packets.size(), 3u);
  for (size_t i = 0; i < packets.size(); ++i) {
    EXPECT_EQ(packets[i]["number"], i + 1);
    EXPECT_EQ(packets[i]["generation"], i < 2 ? 1 : 2);
    EXPECT_TRUE(packets[i]["agrees"].get<bool>()) << packets[i].dump(1);
    const Json& rule = packets[i]["explanation"]["packets"][0]["rule"];
    EXPECT_EQ(rule["rule"], i < 2 ? 1 : 2);
    EXPECT_EQ(rule["text"], fmt::format("deny udp from any to any port {}", i < 2 ? 53 : 54));
  }
}

// Numbers of rules are not their positions once a list was patched.
TEST(Trace, ARuleOfALongListIsNamedByItsPosition) {
  FuzzedRuntime runtime;
  std::string list;
  for (int port = 1000; port < 2000; ++port) list += fmt::format("deny udp from any to any port {}\n", port);
  ask(runtime, {{"command", "acl replace"},
                {"table", "edge"},
                {"file", {{"name", "long.acl"}, {"folder", "/"}, {"text", list}}}});
  ask(runtime, {{"command", "acl change"},
                {"table", "edge"},
                {"changes",
                 "delete 1\ndelete 300\nadd at 5 permit tcp from any to any port 1\nadd at 6 permit tcp "
                 "from any to any port 2\nadd at 7 permit tcp from any to any port 3"},
                {"name", "test"}});
  ask(runtime, {{"command", "trace add"}, {"packets", 10}});
  for (const uint16_t port : {1001, 1200, 1255, 1256, 1257, 1700, 1999}) PacketTaps::finish(follow_one(runtime, port));
  const Json packets = ask(runtime, {{"command", "show trace"}})["packets"];
  ASSERT_EQ(packets.size(), 7u);
  const Json all = ask(runtime, {{"command", "show rules"}, {"table", "edge"}, {"count", 2000}})["rules"];
  for (const Json& packet : packets) {
    const Json& rule = packet["explanation"]["packets"][0]["rule"];
    const Json& listed = all.at(rule["rule"].get<size_t>() - 1);
    EXPECT_EQ(rule["rule"], listed["rule"]);
    EXPECT_EQ(rule["text"], listed["text"]);
    const auto text = rule["text"].get<std::string>();
    EXPECT_TRUE(packet["flow"].get<std::string>().ends_with(":" + text.substr(text.rfind(' ') + 1))) << text;
  }
}

TEST(Trace, RoomIsBoundedAndWhatFindsNoneIsCounted) {
  PacketTaps taps;
  const auto order = taps.start(Tap::kTrace, {}, 10, 100);
  auto batch = Batch::create(8, size_t{1} << 16);
  ASSERT_TRUE(batch.ok());
  const std::vector<uint8_t> frame = udp4("10.0.0.1", "10.0.0.2").ports(1, 2).size(60).build();
  for (int i = 0; i < 3; ++i) {
    uint8_t* to = batch->reserve_clean(frame.size());
    std::copy(frame.begin(), frame.end(), to);
    batch->push(to, static_cast<uint32_t>(frame.size()), static_cast<uint32_t>(frame.size()), 0,
                static_cast<uint32_t>(i));
  }
  std::vector<FollowedRow> rows;
  taps.receive(*batch, Snapshot(), "in", rows);
  ASSERT_EQ(rows.size(), 1u);  // a second one would need 120 bytes
  EXPECT_EQ(order->missed(), 2u);
  PacketTaps::finish(std::move(rows[0].packet));
  EXPECT_EQ(order->take().size(), 1u);
  rows.clear();
  taps.receive(*batch, Snapshot(), "in", rows);
  EXPECT_EQ(rows.size(), 1u);  // there is room again
  EXPECT_TRUE(taps.armed());
  taps.stop(Tap::kTrace);
  EXPECT_FALSE(taps.armed());
}

}  // namespace
}  // namespace sluice
