// One graph, one result: random graphs over random packets, run every way there is. Stages follow one another in any
// order, repeat and read what another wrote; the reference is the ordinary form of every stage, a packet a batch.
//
// A failure prints the graph as Click text, made as small as it still fails, with its seed: SLUICE_GRAPH_SEED=N runs
// that one alone. SLUICE_TEST_SCALE=10: ten times as many graphs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tables/acl/algorithms.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"

namespace sluice::random_graphs {
namespace {

using testing::GraphOutcome;
using testing::GraphRun;
using testing::TempDir;
using testing::Way;

using Random = std::mt19937_64;
uint32_t below(Random& random, uint32_t bound) {
  return static_cast<uint32_t>(random() % bound);
}
template <typename List>
auto one_of(Random& random, const List& list) {
  return *(std::begin(list) + below(random, static_cast<uint32_t>(std::size(list))));
}

struct Frame {
  uint64_t timestamp_ns;
  uint32_t wire;
  std::vector<uint8_t> bytes;
  friend bool operator==(const Frame&, const Frame&) = default;
};

std::vector<Frame> frames_of(const std::string& path) {
  std::vector<Frame> frames;
  auto reader = CaptureReader::open(path);
  if (!reader) return frames;
  for (CapturedFrame frame; true;) {
    auto more = reader->next(frame);
    if (!more.ok() || !*more) return frames;
    frames.push_back({frame.timestamp_ns, frame.wire_bytes, {frame.data, frame.data + frame.captured}});
  }
}

void write_frames(const std::string& path, const std::vector<Frame>& frames) {
  auto writer = CaptureWriter::create(path);
  ASSERT_TRUE(writer.ok());
  for (const Frame& frame : frames) {
    const auto captured = static_cast<uint32_t>(frame.bytes.size());
    ASSERT_TRUE(writer->append(FrameHeader{captured, frame.wire, frame.timestamp_ns}, frame.bytes.data()));
  }
  ASSERT_TRUE(writer->commit().ok());
}

// Runs of common packets, as the fast path wants them, between packets of every kind.
std::vector<Frame> random_frames(Random& random, uint32_t count) {
  const TempDir dir;
  const std::vector<Frame> mixed = frames_of(testing::write_mixed_capture(dir / "mixed", count, random()));
  std::vector<Frame> frames;
  while (frames.size() < count) {
    const bool common = below(random, 3) != 0;
    for (uint32_t run = 1 + below(random, 70); run != 0 && frames.size() < count; --run) {
      Frame frame;
      if (common) {
        const std::string from = fmt::format("10.{}.{}.{}", below(random, 4), below(random, 256), 1 + below(random, 9));
        const std::string to = fmt::format("192.0.{}.{}", below(random, 6), 1 + below(random, 254));
        PacketBuilder b = below(random, 2) != 0 ? udp4(from, to) : tcp4(from, to);
        b.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}});
        b.ports(static_cast<uint16_t>(1024 + below(random, 16)), static_cast<uint16_t>(below(random, 3) * 80));
        constexpr uint8_t kHops[] = {1, 2, 3, 64, 64, 64};
        b.ttl(one_of(random, kHops)).payload(below(random, 10) == 0 ? 1400 : below(random, 100));
        if (below(random, 4) == 0) b.dscp(static_cast<uint8_t>(below(random, 64)));
        if (below(random, 4) == 0) b.dont_fragment();
        frame.bytes = b.build();
        frame.wire = static_cast<uint32_t>(frame.bytes.size());
      } else {
        frame = mixed[frames.size()];
      }
      if (below(random, 12) == 0) frame.bytes.resize(frame.bytes.size() + below(random, 20));
      frame.wire = std::max(frame.wire, static_cast<uint32_t>(frame.bytes.size()));
      if (below(random, 20) == 0) frame.bytes.resize(1 + below(random, static_cast<uint32_t>(frame.bytes.size())));
      // Many at one time, and then a pause.
      frame.timestamp_ns = (frames.empty() ? 1'700'000'000'000'000'000u : frames.back().timestamp_ns) +
                           (below(random, 8) == 0 ? below(random, 3'000'000) : 0);
      frames.push_back(std::move(frame));
    }
  }
  return frames;
}

// -- graphs

constexpr int kNowhere = -1, kDiscard = -2, kOut = -3, kOut2 = -4, kOut3 = -5;

struct Node {
  std::string element;
  std::vector<int> to;  // by output: a node, or one of the above
};

struct Case {
  std::string tables;
  std::vector<Node> nodes;  // the first is where packets come in
  std::vector<Frame> frames;
  std::vector<Frame> others;  // of a second source, if any
  bool turns_back = false;    // an output leads to an earlier node
};

// Where `e` is what stands behind "->", e.g. "n3" or "[0] n3".
std::string click_text(const Case& c, const std::string& folder) {
  std::string text = c.tables;
  text += "out :: ToDump($OUT); out2 :: ToDump($OUT2); out3 :: ToDump($OUT3); end :: Discard;\n";
  for (size_t n = 0; n < c.nodes.size(); ++n) text += fmt::format("n{} :: {};\n", n, c.nodes[n].element);
  text += fmt::format("FromDump({}/in.pcap) -> n0;\n", folder);
  if (!c.others.empty()) text += fmt::format("FromDump({}/in2.pcap) -> n0;\n", folder);
  bool used[3] = {};
  for (size_t n = 0; n < c.nodes.size(); ++n) {
    for (size_t out = 0; out < c.nodes[n].to.size(); ++out) {
      const int to = c.nodes[n].to[out];
      if (to == kNowhere) continue;
      if (to <= kOut) used[kOut - to] = true;
      const std::string target = to >= 0          ? fmt::format("n{}", to)
                                 : to == kDiscard ? "end"
                                 : to == kOut     ? "out"
                                 : to == kOut2    ? "out2"
                                                  : "out3";
      text += fmt::format("n{}[{}] -> {};\n", n, out, target);
    }
  }
  // What nothing leads to gets nothing.
  if (!used[0]) text += "Idle -> out;\n";
  if (!used[1]) text += "Idle -> out2;\n";
  if (!used[2]) text += "Idle -> out3;\n";
  text += "Idle -> end;\n";
  return text;
}

std::string random_element(Random& random, unsigned& outputs) {
  const auto number = [&](uint32_t bound) { return below(random, bound); };
  outputs = 1;
  const uint32_t kind = number(44);
  switch (kind) {
    case 0:
      return "Counter";
    case 1:
      return "Null";
    case 2:
      return fmt::format("Paint({})", number(4));
    case 3:
      outputs = 1 + number(4);
      return "PaintSwitch";
    case 4:
      return fmt::format("Strip({})", number(2) != 0 ? 14 : number(40));
    case 5:
      return fmt::format("Unstrip({})", number(2) != 0 ? 14 : number(80));
    case 6:
      return fmt::format("Truncate({}{})", number(200), number(2) != 0 ? ", EXTRA_LENGTH false" : "");
    case 7:
      return "EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)";
    case 8:
      return "EtherRewrite(02:00:00:00:00:03, 02:00:00:00:00:04)";
    case 9:
      return "EtherMirror";
    case 10:
      outputs = 3;
      return "Classifier(12/0800, 12/86dd, -)";
    case 11:
      outputs = 2;
      return "Classifier(14/45 23/06, -)";
    case 12:
      return "SetCRC32";
    case 13:
      outputs = 2;
      return "CheckCRC32";
    case 14:
      outputs = 2;
      return "ClassifyMark(7, others)";
    case 15:
      outputs = 2;
      return fmt::format("CheckIPHeader({})", number(2) * 14);
    case 16:
      return fmt::format("MarkIPHeader({})", number(2) * 14);
    case 17:
      return fmt::format("Print(p, {})", number(30));
    case 18:
      outputs = 2 + number(2);
      return fmt::format("Tee({})", outputs);
    case 19:
      outputs = 3;
      return "PortSwitch(0, 3)";
    case 20:
      outputs = 2;
      return "IPInput(MARTIANS false)";
    case 21:
      outputs = 2;
      return "ACL(TABLE edge)";
    case 22:
      outputs = 2;
      return "ACL(TABLE marks, DEFAULT permit)";
    case 23:
      outputs = 2;
      return "IPFilter(deny dst port 80, 1 udp, allow all)";
    case 24:
      outputs = 2;
      return "IPFilter(deny src net 10.1.0.0/16, 1 ip dscp 46, allow all)";
    case 25:
      outputs = 3;
      return "IPClassifier(tcp, ip ttl < 3, -)";
    case 26:
      outputs = 2;
      return "IPClassifier(dst net 192.0.2.0/23, -)";
    case 27:
    case 28:
    case 29:
      outputs = 2;
      return number(6) != 0 ? "DecIPTTL" : "DecIPTTL(MULTICAST false)";
    case 30:
    case 31:
      outputs = 2;
      return "IPRoute(TABLE main)";
    case 32:
      outputs = 2;
      return "IPRoute(TABLE other)";
    case 33:
      return fmt::format("SetIPDSCP({})", number(3) != 0 ? 46 : number(64));
    case 34:
      outputs = 3;
      return "ClassifyDSCP(ef, 0, others)";
    case 35:
      return "IPLookup(192.0.0.0/22 0, 0.0.0.0/0 192.0.5.9 0, ALGORITHM trie)";
    case 36:
      outputs = 2;
      return "IPLookup(192.0.2.0/23 1, 0.0.0.0/0 0, ALGORITHM poptrie)";
    case 37:
      outputs = 2;
      return fmt::format("IPFragmenter({}{})", 68 + number(600), number(2) != 0 ? ", HONOR_DF false" : "");
    case 38:
      return fmt::format("ICMPError(192.0.0.1 2001:db8::1, RATE {}, BURST {})", number(3) * 500, 1 + number(20));
    case 39:
      outputs = 2;
      return "IPGWOptions(192.0.0.1)";
    case 40:
    case 41:
      outputs = 3;
      return "AdjacencyRewrite(TABLE adj)";
    case 42:
      outputs = 3;
      return fmt::format("Police({}Mbps, {}{})", 1 + number(50), 500 + number(9000),
                         number(2) != 0 ? ", EXCESS 3000" : "");
    default:
      return fmt::format("Shape({}Mbps, BURST {}, CAPACITY {})", 1 + number(20), number(3000), 1 + number(40));
  }
}

// IPInput with some of its judgements left out.
std::string random_ip_input(Random& random) {
  std::string arguments;
  for (const char* word : {"MARTIANS false", "SOURCE_ROUTES true", "CHECKSUM false", "MULTICAST true",
                           "LINK_BROADCAST true", "PADDING true"}) {
    if (below(random, 2) != 0) arguments += fmt::format("{}{}", arguments.empty() ? "" : ", ", word);
  }
  return arguments.empty() ? "IPInput" : "IPInput(" + arguments + ")";
}

bool is_one_of(const std::string& element, std::initializer_list<const char*> classes) {
  return std::any_of(classes.begin(), classes.end(), [&](const char* name) { return element.starts_with(name); });
}
bool makes_packets(const Node& node) {
  return is_one_of(node.element, {"Tee", "IPFragmenter", "ICMPError"});
}
// Whether outputs behind the first may lead nowhere.
bool has_error_outputs(const std::string& element) {
  return is_one_of(element, {"IPInput", "CheckIPHeader", "CheckCRC32", "ACL", "DecIPTTL", "IPRoute", "IPFragmenter",
                             "IPGWOptions", "AdjacencyRewrite", "Police"});
}

Case random_case(uint64_t seed) {
  Random random(seed);
  Case c;
  const uint32_t count = 1 + below(random, 12);
  for (uint32_t n = 0; n < count; ++n) {
    Node node;
    unsigned outputs = 1;
    if (n == 0 && below(random, 5) != 0) {
      node.element = below(random, 3) != 0 ? "IPInput" : random_ip_input(random);
      outputs = 2;
    } else {
      node.element = random_element(random, outputs);
    }
    for (unsigned out = 0; out < outputs; ++out) {
      const uint32_t choice = below(random, 20);
      const int next = static_cast<int>(n + 1);
      int to = next < static_cast<int>(count) ? next : one_of(random, std::initializer_list<int>{kOut, kOut2, kOut3});
      if (out != 0 || choice >= 16) {
        if (choice < 5)
          to = kNowhere;
        else if (choice < 9)
          to = one_of(random, std::initializer_list<int>{kOut, kOut2, kOut3, kDiscard});
        else if (choice < 16 && next < static_cast<int>(count))
          to = static_cast<int>(n + 1 + below(random, count - n - 1));
      }
      if (to == kNowhere && (out == 0 || !has_error_outputs(node.element))) to = out == 0 ? kOut : kDiscard;
      if (below(random, 60) == 0 && n != 0) {
        to = static_cast<int>(below(random, n + 1));
        c.turns_back = true;
      }
      node.to.push_back(to);
    }
    c.nodes.push_back(std::move(node));
  }
  if (c.turns_back && std::any_of(c.nodes.begin(), c.nodes.end(), makes_packets)) {
    // In a circle packets that make packets would be without number.
    c.turns_back = false;
    for (size_t n = 0; n < c.nodes.size(); ++n) {
      for (int& to : c.nodes[n].to) to = to >= 0 && to <= static_cast<int>(n) ? kOut2 : to;
    }
  }
  c.frames = random_frames(random, 1 + below(random, 400));
  if (below(random, 6) == 0) c.others = random_frames(random, 1 + below(random, 700));
  return c;
}

// Without the nodes that nothing leads to.
Case reachable(Case c) {
  std::vector<bool> seen(c.nodes.size());
  std::vector<size_t> open{0};
  while (!open.empty()) {
    const size_t n = open.back();
    open.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    for (const int to : c.nodes[n].to) {
      if (to >= 0) open.push_back(static_cast<size_t>(to));
    }
  }
  std::vector<int> names;
  std::vector<Node> nodes;
  for (size_t n = 0; n < c.nodes.size(); ++n) {
    names.push_back(static_cast<int>(nodes.size()));
    if (seen[n]) nodes.push_back(c.nodes[n]);
  }
  for (Node& node : nodes) {
    for (int& to : node.to) {
      if (to >= 0) to = names[static_cast<size_t>(to)];
    }
  }
  c.nodes = std::move(nodes);
  return c;
}

// -- ways to run one

struct Outcome {
  GraphOutcome graph;
  std::vector<Frame> out[3];
};

// How a case is run; it reads in.pcap, and in2.pcap where there is a second source.
struct Variant {
  std::string name;
  std::function<void(GraphRun&)> adjust;  // empty: the packet scheduler
};

Outcome run(const TempDir& dir, const Case& c, const Variant& variant) {
  GraphRun graph;
  graph.text = testing::with_outputs(dir, click_text(c, dir.path()));
  Outcome outcome;
  if (variant.adjust) {
    variant.adjust(graph);
    outcome.graph = testing::run_graph(graph);
  } else {
    graph.by_packets = true;
    outcome.graph = testing::run_graph(graph);
  }
  if (!outcome.graph.ok) return outcome;
  const char* names[] = {"OUT", "OUT2", "OUT3"};
  for (size_t s = 0; s < 3; ++s) outcome.out[s] = frames_of(dir / names[s]);
  return outcome;
}

std::string hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// The first difference; empty: none. `all`: ports and rules are counted too.
std::string difference(const Outcome& want, const Outcome& got, bool all) {
  if (got.graph.ok != want.graph.ok) return got.graph.ok ? "it runs" : got.graph.error;
  if (!got.graph.report.conserved()) return "packets are not accounted for\n" + got.graph.counters;
  for (size_t s = 0; s < 3; ++s) {
    const std::vector<Frame>&a = want.out[s], &b = got.out[s];
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      if (i < a.size() && i < b.size() && a[i] == b[i]) continue;
      const auto shown = [&](const std::vector<Frame>& of) {
        if (i >= of.size()) return fmt::format("none (there are {})", of.size());
        return fmt::format("{} ns, {} bytes of {}: {}", of[i].timestamp_ns, of[i].bytes.size(), of[i].wire,
                           hex(of[i].bytes));
      };
      return fmt::format("packet {} of output {}\n  want {}\n  got  {}", i, s + 1, shown(a), shown(b));
    }
  }
  std::string want_counters = want.graph.counters, got_counters = got.graph.counters;
  if (!all) {
    for (std::string* text : {&want_counters, &got_counters}) {
      for (const char* more : {"\nport ", "\nrule "}) {
        if (const size_t at = text->find(more); at != std::string::npos) text->resize(at + 1);
      }
    }
  }
  if (want_counters != got_counters) return "counters\n  want\n" + want_counters + "  got\n" + got_counters;
  if (want.graph.printed != got.graph.printed)
    return "lines\n  want\n" + want.graph.printed + "  got\n" + got.graph.printed;
  return {};
}

Variant on_cpu(unsigned workers, uint32_t batch, bool fast, uint64_t target_ns = 0) {
  return {fmt::format("{} workers, batches of {}{}{}", workers, batch, fast ? "" : ", no fast path",
                      target_ns != 0 ? ", a latency target" : ""),
          [=](GraphRun& graph) {
            graph.workers = workers;
            graph.batch = batch;
            graph.fast_path = fast;
            graph.latency_target_ns = target_ns;
          }};
}

Variant on_device(const Way& way, bool hits) {
  return {fmt::format("emu {}{}", ::testing::PrintToString(way), hits ? "" : ", rules are not counted"),
          [way, hits](GraphRun& graph) {
            graph.workers = way.workers;
            graph.batch = way.batch;
            graph.fast_path = way.fast_path;
            graph.count_hits = hits;
            graph.device.devices = testing::devices_of("emu", way.devices);
            graph.device.mode = way.mode;
            graph.device.transport = way.transport;
            graph.device.records = way.records;
            graph.device.flights = way.flights;
            graph.device.threading = way.threading;
          }};
}

Variant random_device(Random& random) {
  using enum DeviceMode;
  static constexpr std::pair<DeviceMode, Transport> kTransports[] = {
      {kLaunch, Transport::kStaged},    {kLaunch, Transport::kZeroCopy},   {kLaunch, Transport::kCommList},
      {kLaunch, Transport::kCommPool},  {kPersistent, Transport::kTagged}, {kAdaptive, Transport::kStaged},
      {kAdaptive, Transport::kZeroCopy}};
  constexpr RecordChoice kRecords[] = {RecordChoice::kAuto,   RecordChoice::kKey,     RecordChoice::kKey,
                                       RecordChoice::kHeader, RecordChoice::kAddress, RecordChoice::kFrame};
  constexpr uint32_t kBatches[] = {1, 31, 32, 33, 100, 256, 4096};
  const auto [mode, transport] = one_of(random, kTransports);
  Way way{mode, transport, one_of(random, kRecords), 1 + below(random, 3), one_of(random, kBatches)};
  way.flights = 1 + below(random, 4);
  way.devices = 1 + below(random, 2);
  way.threading = below(random, 3) == 0 ? DeviceThreading::kMaster : DeviceThreading::kFull;
  way.fast_path = below(random, 4) != 0;
  if (mode != kLaunch || way.threading != DeviceThreading::kFull) {
    if (way.records == RecordChoice::kFrame) way.records = RecordChoice::kAuto;
  }
  return on_device(way, below(random, 2) != 0);
}

const Variant& reference() {
  static const Variant variant = on_cpu(1, 1, false);
  return variant;
}

std::vector<Variant> variants(uint64_t seed, const Case& c) {
  Random random(seed ^ 0x5a5a5a5a);
  constexpr uint32_t kBatches[] = {1, 2, 31, 32, 33, 255, 256, 4096, 8192};
  std::vector<Variant> all{on_cpu(1, 256, true), on_cpu(1, 4096, false)};
  for (int n = 0; n < 3; ++n)
    all.push_back(on_cpu(1 + below(random, 5), one_of(random, kBatches), below(random, 4) != 0));
  all.push_back(on_cpu(1 + below(random, 2), 300, true, 1 + below(random, 20'000)));
  for (int n = 0; n < 4; ++n) all.push_back(random_device(random));
  // It counts a packet's rounds in another way.
  if (!c.turns_back) all.push_back({"packet scheduler", {}});
  return all;
}

// What is wrong with the case by this variant; empty: nothing, or the graph cannot be run.
std::string wrong(const TempDir& dir, const Case& c, const Variant& variant) {
  write_frames(dir / "in.pcap", c.frames);
  if (!c.others.empty()) write_frames(dir / "in2.pcap", c.others);
  const Outcome want = run(dir, c, reference());
  if (!want.graph.ok) return {};
  return difference(want, run(dir, c, variant), false);
}

// Takes away elements, connections and packets as long as the case still fails.
Case smallest(const TempDir& dir, Case c, const Variant& variant) {
  unsigned left = 400;
  const auto still = [&](const Case& smaller) {
    return left != 0 && left-- != 0 && !wrong(dir, smaller, variant).empty();
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto frames : {&Case::frames, &Case::others}) {
      for (size_t piece = (c.*frames).size(); piece != 0; piece /= 2) {
        for (size_t at = 0; at + piece <= (c.*frames).size();) {
          Case smaller = c;
          auto& list = smaller.*frames;
          list.erase(list.begin() + static_cast<ptrdiff_t>(at), list.begin() + static_cast<ptrdiff_t>(at + piece));
          if (!still(smaller)) {
            at += piece;
            continue;
          }
          c = std::move(smaller);
          changed = true;
        }
      }
    }
    for (size_t n = 0; n < c.nodes.size(); ++n) {
      // The node is left out.
      const int past = c.nodes[n].to[0];
      Case smaller = c;
      for (Node& node : smaller.nodes) {
        for (int& to : node.to) to = to == static_cast<int>(n) ? past : to;
      }
      if (n == 0 && past > 0) std::swap(smaller.nodes[0], smaller.nodes[static_cast<size_t>(past)]);
      if (n != 0 && still(smaller = reachable(smaller))) {
        c = std::move(smaller);
        changed = true;
        break;
      }
      for (size_t out = 1; out < c.nodes[n].to.size(); ++out) {
        if (c.nodes[n].to[out] == kNowhere) continue;
        smaller = c;
        smaller.nodes[n].to[out] = kNowhere;
        if (!still(smaller = reachable(smaller))) continue;
        c = std::move(smaller);
        changed = true;
        break;
      }
    }
  }
  return c;
}

uint64_t wanted(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Tables for all elements, and the packets, as files.
void write_inputs(const TempDir& dir, uint64_t seed, Case& c) {
  Random random(seed ^ 0x3c3c3c3c);
  constexpr const char* kRoutes[] = {"trie", "poptrie", "sail"};
  (void)testing::standard_graph_text(dir, "", "", "linear", "trie", "trie");
  testing::write_file(
      dir / "marks.acl",
      "mark(7) udp from any to any\nmark(0) ip from 10.2.0.0/16 to any\ndeny tcp from any to 192.0.1.0/24\n");
  testing::write_file(dir / "other.txt", "192.0.0.0/21 x\n192.0.3.0/24 y\n2001:db8::/32 x\n");
  c.tables = fmt::format(
      "AclTable(edge, FILE {0}/edge.acl, ALGORITHM {1});\nAclTable(marks, FILE {0}/marks.acl, ALGORITHM {2});\n"
      "RouteTable(main, FILE {0}/rib.txt, ALGORITHM {3}, ALGORITHM6 poptrie);\n"
      "RouteTable(other, FILE {0}/other.txt, ALGORITHM {4}, ALGORITHM6 trie);\n"
      "AdjacencyTable(adj, FILE {0}/adj.txt, ROUTES main);\n",
      dir.path(), one_of(random, acl_algorithm_names()), one_of(random, acl_algorithm_names()), one_of(random, kRoutes),
      one_of(random, kRoutes));
  write_frames(dir / "in.pcap", c.frames);
  if (!c.others.empty()) write_frames(dir / "in2.pcap", c.others);
}

TEST(RandomGraphs, GiveOneResultEveryWay) {
  const uint64_t only = wanted("SLUICE_GRAPH_SEED", 0);
  const uint64_t graphs = (testing::kWatched ? 8 : 60) * wanted("SLUICE_TEST_SCALE", 1);
  const uint64_t first = wanted("SLUICE_GRAPH_FIRST", 1);
  uint64_t ran = 0, scheduled = 0, offloaded = 0, fast = 0, made = 0;
  for (uint64_t seed = only != 0 ? only : first, tried = 0; ran < graphs; ++seed, ++tried) {
    if (only != 0 && tried != 0) break;
    ASSERT_LT(tried, 1000 * graphs) << "graphs that cannot run, and no others";
    const TempDir dir;
    Case c = reachable(random_case(seed));
    write_inputs(dir, seed, c);
    const Outcome want = run(dir, c, reference());
    if (!want.graph.ok) {
      // One that only the packet scheduler runs, or none: something reads what nothing wrote.
      if (only != 0) std::printf("%s\n%s\n", click_text(c, dir.path()).c_str(), want.graph.error.c_str());
      continue;
    }
    ++ran;
    made += want.graph.report.generated != 0;
    ASSERT_TRUE(want.graph.report.conserved()) << "seed " << seed << "\n" << click_text(c, dir.path());
    for (const Variant& variant : variants(seed, c)) {
      const Outcome got = run(dir, c, variant);
      offloaded += got.graph.report.offload.offloaded != 0;
      fast += got.graph.report.totals.fast != 0;
      scheduled += !variant.adjust;
      if (difference(want, got, false).empty()) continue;
      const Case small = smallest(dir, c, variant);
      ADD_FAILURE() << "seed " << seed << ", " << variant.name << ": " << wrong(dir, small, variant) << "\n"
                    << click_text(small, dir.path()) << "seen with " << small.frames.size() << " and "
                    << small.others.size()
                    << " packets, the first: " << (small.frames.empty() ? "" : hex(small.frames[0].bytes))
                    << "\nwhole graph: " << difference(want, got, false);
      if (::testing::Test::HasFailure()) break;
    }
    if (::testing::Test::HasFailure() && wanted("SLUICE_GRAPH_ALL", 0) == 0) return;
  }
  if (only != 0) return;
  // Equality says nothing where nobody went another way.
  EXPECT_GT(offloaded, graphs / 10);
  EXPECT_GT(fast, graphs / 10);
  EXPECT_GT(scheduled, graphs / 2);
  // Of eight graphs, none may make packets.
  if (!testing::kWatched) {
    EXPECT_GT(made, graphs / 10);
  }
}

}  // namespace
}  // namespace sluice::random_graphs
