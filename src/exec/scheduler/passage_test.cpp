// Packets that run through empty queues in batches: what comes of them, and of everything that looks on, is what comes
// of packets that go one by one.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "exec/engine/engine.h"
#include "exec/walk/plan.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

using Random = std::mt19937_64;
uint32_t below(Random& random, uint32_t bound) {
  return static_cast<uint32_t>(random() % bound);
}

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_capture(const std::string& path, uint32_t packets, Random& random) {
  auto writer = CaptureWriter::create(path);
  ASSERT_TRUE(writer.ok());
  for (uint32_t i = 0; i < packets; ++i) {
    const uint32_t kind = below(random, 12);
    PacketBuilder b = kind < 5    ? udp4("10.0.0.1", "192.0.2.7").ports(static_cast<uint16_t>(i), 53)
                      : kind < 9  ? tcp4("10.0.0.2", "192.0.2.9").ports(static_cast<uint16_t>(i), 80)
                      : kind < 10 ? udp6("2001:db8::1", "2001:db8::2").ports(static_cast<uint16_t>(i), 53)
                                  : icmp4("10.0.0.3", "192.0.2.1").icmp(8, 0);
    if (below(random, 8) == 0) b.ttl(static_cast<uint8_t>(below(random, 3)));
    if (below(random, 20) == 0 && kind < 9) b.bad_ip_checksum();
    if (below(random, 10) == 0) b.vlan(7);
    b.payload(below(random, 4) == 0 ? below(random, 1400) : below(random, 40));
    const std::vector<uint8_t> frame = b.build();
    const auto bytes = static_cast<uint32_t>(frame.size());
    ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, 1'700'000'000'000'000'000u + i * 1000u}, frame.data()));
  }
  ASSERT_TRUE(writer->commit().ok());
}

struct Ran {
  std::string counted;  // everything that can be counted or read
  std::string said;     // by scripts and Print
  std::string out, out2;
  uint64_t clock_ns = 0;
  friend bool operator==(const Ran&, const Ran&) = default;
};

Ran run(const Folder& folder, const std::string& text, const std::function<void(RunOptions&, Engine*&)>& adjust) {
  Ran ran;
  Registry registry;
  register_elements(registry);
  auto graph = parse_click(text, "g");
  EXPECT_TRUE(graph.ok()) << text;
  if (!graph.ok()) return ran;
  auto router = build_router(*graph, registry, text);
  EXPECT_TRUE(router.ok()) << text << to_string(router.ok() ? Error() : router.error());
  if (!router.ok()) return ran;
  auto tables = load_tables(*router);
  EXPECT_TRUE(tables.ok());
  RunOptions options;
  Engine* running = nullptr;
  options.simulated = true;
  options.count_hits = true;
  options.print_out = options.print_error = [&](std::string_view t) { ran.said += t; };
  options.print = [&](std::string_view t) { (ran.said += t) += '\n'; };
  adjust(options, running);
  const Plan plan = plan_by_packets(*router);
  auto engine = Engine::create(*router, plan, *tables, options);
  EXPECT_TRUE(engine.ok()) << text << to_string(engine.ok() ? Error() : engine.error());
  if (!engine.ok()) return ran;
  running = engine->get();
  RunReport report;
  auto done = (*engine)->run(report);
  EXPECT_TRUE(done.ok()) << text << to_string(done.ok() ? Error() : done.error());
  EXPECT_TRUE(report.conserved()) << text;
  ran.clock_ns = options.simulated ? (*engine)->clock_ns() : 0;
  ran.counted = fmt::format("in {} {} made {} out {} {} dropped {} queued {}\n", report.packets_in, report.bytes_in,
                            report.generated, report.packets_out, report.bytes_out, report.dropped, report.queued);
  for (size_t e = 0; e < router->elements.size(); ++e) {
    const ElementCounters& c = report.totals.elements[e];
    const std::string& name = router->elements[e]->name;
    ran.counted += fmt::format("{} {} {}", name, c.packets, c.bytes);
    for (const uint64_t drops : c.drops) ran.counted += fmt::format(" {}", drops);
    for (const char* handler : {"count", "byte_count", "length", "highwater_length", "drops"}) {
      if (!(*engine)->has_handler(name + "." + handler, false)) continue;
      auto value = (*engine)->read(name + "." + handler);
      ran.counted += fmt::format(" {}={}", handler, value.ok() ? *value : value.error().message);
    }
    ran.counted += '\n';
  }
  for (const RunReport::Sink& sink : report.sinks)
    ran.counted += fmt::format("sink {} {} {}\n", sink.element, sink.packets, sink.bytes);
  const auto bytes_of = [&](const char* name) {
    std::ostringstream bytes;
    bytes << std::ifstream(folder / name, std::ios::binary).rdbuf();
    return std::move(bytes).str();
  };
  ran.out = bytes_of("out");
  ran.out2 = bytes_of("out2");
  for (const char* name : {"out", "out2"}) std::filesystem::remove(folder / name);
  return ran;
}

Ran run_as(bool one_by_one, const Folder& folder, const std::string& text, uint64_t most = ~uint64_t{0}) {
  return run(folder, text, [&](RunOptions& options, Engine*&) {
    options.one_by_one = one_by_one;
    options.max_packets = most;
  });
}

// Stages in a row, each followed by an arrow.
std::string stages(Random& random, unsigned& names, bool hosts) {
  std::string text;
  for (uint32_t n = below(random, 4); n != 0; --n) {
    switch (below(random, hosts ? 10 : 7)) {
      case 0:
        text += fmt::format("c{} :: Counter -> ", names++);
        break;
      case 1:
        text += "DecIPTTL -> ";
        break;
      case 2:
        text += fmt::format("SetIPDSCP({}) -> ", below(random, 64));
        break;
      case 3:
        text += fmt::format("Paint({}) -> ", below(random, 4));
        break;
      case 4:
        text += fmt::format("Truncate({}) -> ", 30 + below(random, 200));
        break;
      case 5:
        text += "IPFilter(deny tcp && src port < 100, allow all) -> ";
        break;
      case 6:
        // What a packet carries from one element to another.
        text += "{ input -> p :: PaintSwitch -> output; p[1] -> Discard; p[2] -> output; p[3] -> Discard } -> ";
        break;
      case 7:
        text += fmt::format("Print(p{}, 4) -> ", names++);
        break;
      default:
        text += "Null -> ";
        break;
    }
  }
  return text;
}

std::string random_graph(const Folder& folder, Random& random) {
  unsigned names = 0;
  std::string text = fmt::format("out :: ToDump({}); out2 :: ToDump({}); Idle -> out; Idle -> out2;\n", folder / "out",
                                 folder / "out2");
  const uint32_t queues = 1 + below(random, 2);
  for (uint32_t q = 0; q < queues; ++q) {
    constexpr int kBursts[] = {1, 1, 1, 2, 8, -1};
    const uint32_t to = below(random, 8);
    text += fmt::format(
        "q{} :: {}({}) -> {}u{} :: Unqueue(BURST {}{}) -> {}{};\n", q, below(random, 4) == 0 ? "SimpleQueue" : "Queue",
        1 + below(random, 5), below(random, 8) == 0 ? "Null -> " : "", q, kBursts[below(random, 6)],
        below(random, 6) == 0 ? fmt::format(", LIMIT {}", 1 + below(random, 900)) : "", stages(random, names, true),
        to == 0   ? "Discard"
        : to == 1 ? "out2"
                  : "out");
  }
  text += fmt::format("FromDump({}, STOP true) -> IPInput -> {}k :: IPClassifier(udp, tcp, -);\n", folder / "in",
                      stages(random, names, false));
  for (unsigned output = 0; output < 3; ++output) {
    const uint32_t to = below(random, 8);
    text += fmt::format("k[{}] -> {}{};\n", output, stages(random, names, to >= 6),
                        to < 6    ? fmt::format("q{}", to % queues)
                        : to == 6 ? "out2"
                                  : "Discard");
  }
  // All are reached.
  for (uint32_t q = 0; q < queues; ++q) text += fmt::format("Idle -> q{};\n", q);
  if (below(random, 3) == 0)
    text += fmt::format("RatedSource(RATE {}, LIMIT {}) -> rq :: Queue(4) -> Unqueue -> Discard;\n",
                        1 + below(random, 2'000'000), 1 + below(random, 50));
  // An end to it: a source that is held back for ever must not be waited for.
  if (below(random, 2) == 0) {
    text += "Script(";
    for (uint32_t n = 1 + below(random, 4); n != 0; --n)
      text += fmt::format("wait {}us, print $(q0.length) $(u0.count) $(k.count), ", 1 + below(random, 3000));
    text += "print over);\n";
  }
  return text;
}

RC_GTEST_PROP(Passage, IsAsIfPacketsWentOneByOne, ()) {
  Random random(*rc::gen::arbitrary<uint64_t>());
  const Folder folder;
  write_capture(folder / "in", 1 + below(random, 900), random);
  const std::string text = random_graph(folder, random);
  const uint64_t most = below(random, 4) == 0 ? 1 + below(random, 900) : ~uint64_t{0};
  RC_LOG() << text;
  const Ran want = run_as(true, folder, text, most), got = run_as(false, folder, text, most);
  RC_ASSERT(got.counted == want.counted);
  RC_ASSERT(got.said == want.said);
  RC_ASSERT(got.clock_ns == want.clock_ns);
  RC_ASSERT((got.out == want.out && got.out2 == want.out2));
}

// A packet begins with what it carries itself, and not with what the one before it in the same place of a batch did.
TEST(Passage, KeepsTheRegistersOfPacketsApart) {
  Random random(3);
  const Folder folder;
  write_capture(folder / "in", 5000, random);
  const std::string text = fmt::format(
      "FromDump({}, STOP true) -> IPInput -> c :: IPClassifier(udp, -);\n"
      "c[0] -> Paint(1) -> q :: Queue; c[1] -> q -> Unqueue -> s :: PaintSwitch;\n"
      "s[0] -> ToDump({}); s[1] -> ToDump({});\n",
      folder / "in", folder / "out", folder / "out2");
  const Ran want = run_as(true, folder, text), got = run_as(false, folder, text);
  EXPECT_EQ(got.counted, want.counted);
  EXPECT_TRUE(got.out == want.out && got.out2 == want.out2);
  EXPECT_FALSE(want.out.empty() || want.out2.empty());
}

// Time goes on by turns where somebody is always busy: a passage takes as many as the turns that it stands for.
TEST(Passage, TakesTheTurnsOfItsPackets) {
  Random random(1);
  const Folder folder;
  write_capture(folder / "in", 120'000, random);
  const std::string text = fmt::format(
      "FromDump({}, STOP true) -> IPInput -> k :: IPClassifier(udp, tcp, -);\n"
      "k[0] -> q :: Queue -> Unqueue -> c :: Counter -> Discard;\n"
      "k[1] -> p :: Queue -> Unqueue -> d :: Counter -> Discard;\n"
      "k[2] -> Discard;\n"
      "Script(label again, wait 7001us, print $(c.count) $(d.count) $(k.count), goto again);\n",
      folder / "in");
  const Ran want = run_as(true, folder, text), got = run_as(false, folder, text);
  EXPECT_EQ(got.said, want.said);
  EXPECT_EQ(got.clock_ns, want.clock_ns);
  EXPECT_EQ(got.counted, want.counted);
  EXPECT_NE(want.said, "");
}

// Each packet takes a microsecond. A timer that is due runs before the next packet, whatever a batch would hold.
TEST(Passage, ATimerThatIsDueWaitsForNoBatch) {
  Random random(1);
  const Folder folder;
  write_capture(folder / "in", 2000, random);
  const std::string text = fmt::format(
      "FromDump({}, STOP true) -> c :: Counter -> Queue -> Unqueue -> Discard;\n"
      "Script(wait 100us, print $(c.count), wait 1ms, print $(c.count));\n",
      folder / "in");
  const Ran got = run(folder, text, [](RunOptions& options, Engine*& engine) {
    options.simulated = false;
    options.clock_ns = [&engine]() -> uint64_t {
      if (engine == nullptr) return 0;
      auto count = engine->read("c.count");
      return count.ok() ? std::stoull(*count) * 1000 : 0;
    };
  });
  // The first packet came before the script began to wait.
  EXPECT_EQ(got.said, "101\n1101\n");
}

}  // namespace
}  // namespace sluice
