// host only
#include "generate/graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/atomic_file.h"
#include "generate/random.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "tables/acl/algorithms.h"

namespace sluice {
namespace {

using Graph = GeneratedGraph;
using Node = GeneratedGraph::Node;

// Streams of one seed: what is drawn for one part does not shift another.
enum Stream : uint64_t { kShape, kFirst, kSecond, kTables };

uint32_t below(Random& random, uint32_t bound) {
  return static_cast<uint32_t>(random.below(bound));
}
bool one_in(Random& random, uint32_t n) {
  return below(random, n) == 0;
}
template <typename T>
T one_of(Random& random, std::initializer_list<T> list) {
  return *(list.begin() + below(random, static_cast<uint32_t>(list.size())));
}

// -- packets

constexpr MacAddress kTo{{2, 0, 0, 0, 0, 9}}, kFrom{{2, 0, 0, 0, 0, 8}};

// TCP and UDP without options, as most packets are.
std::vector<uint8_t> common_frame(Random& random) {
  const bool six = one_in(random, 4);
  const uint32_t site = below(random, 4), host = 1 + below(random, 9);
  const std::string from =
      six ? fmt::format("2001:db8:{:x}::{:x}", site, host) : fmt::format("10.{}.{}.{}", site, below(random, 256), host);
  const std::string to = six ? fmt::format("2001:db8:f{:x}::{:x}", below(random, 6), 1 + below(random, 254))
                             : fmt::format("192.0.{}.{}", below(random, 6), 1 + below(random, 254));
  PacketBuilder b =
      below(random, 2) != 0 ? (six ? udp6(from, to) : udp4(from, to)) : (six ? tcp6(from, to) : tcp4(from, to));
  b.macs(kTo, kFrom);
  b.ports(static_cast<uint16_t>(1024 + below(random, 16)), static_cast<uint16_t>(below(random, 3) * 80));
  b.ttl(one_of<uint8_t>(random, {1, 2, 3, 64, 64, 64}));
  b.payload(one_in(random, 10) ? 1400 : below(random, 100));
  if (one_in(random, 4)) b.dscp(static_cast<uint8_t>(below(random, 64)));
  if (!six && one_in(random, 4)) b.dont_fragment();
  return b.build();
}

// Packets of every kind that elements treat differently.
std::vector<uint8_t> any_frame(Random& random) {
  const bool six = below(random, 2) != 0;
  const std::string s4 = fmt::format("10.{}.{}.{}", below(random, 4), below(random, 256), 1 + below(random, 254));
  const std::string d4 = fmt::format("192.0.{}.{}", below(random, 6), 1 + below(random, 254));
  const std::string s6 = fmt::format("2001:db8:{:x}::{:x}", below(random, 16), 1 + below(random, 9999));
  const std::string d6 = fmt::format("2001:db8:f{:x}::{:x}", below(random, 6), 1 + below(random, 9999));
  const auto sport = static_cast<uint16_t>(1024 + below(random, 64));
  const auto dport = static_cast<uint16_t>(one_in(random, 3) ? 80 : below(random, 1024));
  PacketBuilder b = six ? ip6(s6, d6, one_of<uint8_t>(random, {6, 17, 17, 58, 132}))
                        : ip4(s4, d4, one_of<uint8_t>(random, {6, 17, 17, 1, 33, 47}));
  b.payload(one_in(random, 6) ? 1200 + below(random, 1700) : below(random, 600));
  switch (below(random, 22)) {
    case 0:
      b.fragment(8 * below(random, 90), true);
      break;
    case 1:
      b.fragment(0, true).payload(below(random, 24));
      break;
    case 2:
      b.fragment(8 + 8 * below(random, 90), false);
      break;
    case 3:
      if (six) {
        b.hop_by_hop(1 + below(random, 3)).destination_options(1 + below(random, 4));
      } else {
        const uint8_t options[] = {7, 4, 5, 0};
        b.ipv4_options(options);
      }
      break;
    case 4:
      if (six) b.routing(0, static_cast<uint8_t>(below(random, 2))).authentication();
      if (!six) b.bad_ip_checksum();
      break;
    case 5:
      b.ip_version(5);
      break;
    case 6:
      if (!six) b.total_length(static_cast<uint16_t>(below(random, 80)));
      if (six) b.payload_length(static_cast<uint16_t>(below(random, 80)));
      break;
    case 7:
      b = six ? icmp6(s6, d6).icmp(one_of<uint8_t>(random, {1, 3, 128}), 0)
              : icmp4(s4, d4).icmp(one_of<uint8_t>(random, {3, 11, 8}), 0);
      break;
    case 8:
      b = six ? udp6("fe80::1", d6) : udp4("127.0.0.1", d4);
      break;
    case 9:
      b = six ? udp6(s6, "2001:db9::1") : udp4(s4, "203.0.113.9");  // without a route
      break;
    case 10:
      b = six ? udp6(s6, "ff02::5") : udp4(s4, "224.0.0.5");
      break;
    case 11:
      return PacketBuilder::ether(0x0806).payload(28 + below(random, 30)).build();
    case 12:
      b.truncate(14 + below(random, 44));
      break;
    case 13:
      b.ihl(static_cast<uint8_t>(below(random, 16)));
      break;
    default:
      break;
  }
  b.macs(one_in(random, 16) ? MacAddress{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} : kTo, kFrom);
  b.ports(sport, dport).tcp_flags(static_cast<uint8_t>(below(random, 64)));
  if (one_in(random, 6)) b.vlan(static_cast<uint16_t>(1 + below(random, 100)));
  if (one_in(random, 20)) b.vlan(7);
  if (one_in(random, 10)) b.ttl(static_cast<uint8_t>(below(random, 3)));
  if (one_in(random, 8)) b.dscp(static_cast<uint8_t>(below(random, 64)));
  if (one_in(random, 12)) b.size(60 + below(random, 200)).payload(below(random, 10));
  if (!six && one_in(random, 8)) b.dont_fragment();
  return b.build();
}

// Runs of common packets, as the fast path wants them, between packets of every kind.
std::vector<GeneratedFrame> random_frames(Random& random, uint32_t count) {
  std::vector<GeneratedFrame> frames;
  while (frames.size() < count) {
    const bool common = !one_in(random, 3);
    for (uint32_t run = 1 + below(random, 70); run != 0 && frames.size() < count; --run) {
      GeneratedFrame frame;
      frame.bytes = common ? common_frame(random) : any_frame(random);
      // Padding, and what the snap length of a capture cut off.
      if (one_in(random, 12)) frame.bytes.resize(frame.bytes.size() + below(random, 20));
      frame.wire_bytes = static_cast<uint32_t>(frame.bytes.size());
      if (one_in(random, 20)) frame.bytes.resize(1 + below(random, static_cast<uint32_t>(frame.bytes.size())));
      // Many at one time, and then a pause.
      frame.timestamp_ns = (frames.empty() ? 1'700'000'000'000'000'000u : frames.back().timestamp_ns) +
                           (one_in(random, 8) ? below(random, 3'000'000) : 0);
      frames.push_back(std::move(frame));
    }
  }
  return frames;
}

// -- graphs

struct Drawn {
  std::string element;
  unsigned outputs = 1;
};

// What stands between IPInput and the outputs of a router; `p` begins the names of tables.
Drawn router_element(Random& random) {
  const auto number = [&](uint32_t bound) { return below(random, bound); };
  switch (number(26)) {
    case 0:
    case 1:
    case 2:
      return {"ACL(TABLE @edge)", 2};
    case 3:
      return {"ACL(TABLE @marks, DEFAULT permit)", 2};
    case 4:
      return {"IPFilter(deny dst port 80, 1 udp, allow all)", 2};
    case 5:
      return {"IPFilter(deny src net 10.1.0.0/16, 1 ip dscp 46, allow all)", 2};
    case 6:
      return {"IPClassifier(tcp, ip ttl < 3, -)", 3};
    case 7:
      return {"IPClassifier(dst net 192.0.2.0/23, -)", 2};
    case 8:
    case 9:
    case 10:
      return {"IPRoute(TABLE @main)", 2};
    case 11:
      return {"IPRoute(TABLE @other)", 2};
    case 12:
    case 13:
    case 14:
      return {number(6) != 0 ? "DecIPTTL" : "DecIPTTL(MULTICAST false)", 2};
    case 15:
    case 16:
      return {"AdjacencyRewrite(TABLE @adj)", 3};
    case 17:
      return {fmt::format("SetIPDSCP({})", number(3) != 0 ? 46 : number(64))};
    case 18:
      return {"ClassifyDSCP(ef, 0, others)", 3};
    case 19:
      return {fmt::format("Paint({})", number(4))};
    case 20:
      return {"PaintSwitch", 1 + number(4)};
    case 21:
      return {"Counter"};
    case 22:
      return {"EtherRewrite(02:00:00:00:00:03, 02:00:00:00:00:04)"};
    case 23:
      return {"ClassifyMark(7, others)", 2};
    case 24:
      return {"IPLookup(192.0.0.0/22 0, 0.0.0.0/0 192.0.5.9 0, ALGORITHM trie)"};
    default:
      return {"PortSwitch(0, 3)", 3};
  }
}

// Any element at all.
Drawn any_element(Random& random) {
  const auto number = [&](uint32_t bound) { return below(random, bound); };
  switch (number(32)) {
    case 0:
      return {"Null"};
    case 1:
      return {fmt::format("Strip({})", number(2) != 0 ? 14 : number(40))};
    case 2:
      return {fmt::format("Unstrip({})", number(2) != 0 ? 14 : number(80))};
    case 3:
      return {fmt::format("Truncate({}{})", number(200), number(2) != 0 ? ", EXTRA_LENGTH false" : "")};
    case 4:
      return {"EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)"};
    case 5:
      return {"EtherMirror"};
    case 6:
      return {"Classifier(12/0800, 12/86dd, -)", 3};
    case 7:
      return {"Classifier(14/45 23/06, -)", 2};
    case 8:
    case 9:
      return {"SetCRC32"};
    case 10:
      return {"CheckCRC32", 2};
    case 11:
      return {fmt::format("CheckIPHeader({})", number(2) * 14), 2};
    case 12:
      return {fmt::format("MarkIPHeader({})", number(2) * 14)};
    case 13:
      return {fmt::format("Print(p, {})", number(30))};
    case 14: {
      const unsigned outputs = 2 + number(2);
      return {fmt::format("Tee({})", outputs), outputs};
    }
    case 15:
      return {"IPInput(MARTIANS false)", 2};
    case 16:
      return {"IPLookup(192.0.2.0/23 1, 0.0.0.0/0 0, ALGORITHM poptrie)", 2};
    case 17:
    case 18:
      return {fmt::format("IPFragmenter({}{})", 68 + number(600), number(2) != 0 ? ", HONOR_DF false" : ""), 2};
    case 19:
      return {fmt::format("ICMPError(192.0.0.1 2001:db8::1, RATE {}, BURST {})", number(3) * 500, 1 + number(20))};
    case 20:
      return {"IPGWOptions(192.0.0.1)", 2};
    case 21:
      return {fmt::format("Police({}Mbps, {}{})", 1 + number(50), 500 + number(9000),
                          number(2) != 0 ? ", EXCESS 3000" : ""),
              3};
    case 22:
      return {fmt::format("Shape({}Mbps, BURST {}, CAPACITY {})", 1 + number(20), number(3000), 1 + number(40))};
    default:
      return router_element(random);
  }
}

// IPInput with some of its judgements left out.
std::string random_ip_input(Random& random) {
  if (!one_in(random, 3)) return "IPInput";
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

int a_sink(Random& random) {
  return one_of(random, {Graph::kOut, Graph::kOut, Graph::kOut2, Graph::kOut3});
}

// Elements of every class in any order.
void any_nodes(Random& random, Graph& graph) {
  const uint32_t count = 1 + below(random, 12);
  for (uint32_t n = 0; n < count; ++n) {
    const Drawn drawn = n == 0 && !one_in(random, 5) ? Drawn{random_ip_input(random), 2} : any_element(random);
    Node node{drawn.element, {}};
    for (unsigned out = 0; out < drawn.outputs; ++out) {
      const uint32_t choice = below(random, 20);
      const int next = static_cast<int>(n + 1);
      int to = next < static_cast<int>(count) ? next : a_sink(random);
      if (out != 0 || choice >= 16) {
        if (choice < 5) {
          to = Graph::kNowhere;
        } else if (choice < 9) {
          to = one_in(random, 4) ? Graph::kDiscard : a_sink(random);
        } else if (choice < 16 && next < static_cast<int>(count)) {
          to = static_cast<int>(n + 1 + below(random, count - n - 1));
        }
      }
      if (to == Graph::kNowhere && (out == 0 || !has_error_outputs(node.element)))
        to = out == 0 ? Graph::kOut : Graph::kDiscard;
      if (one_in(random, 60) && n != 0) {
        to = static_cast<int>(below(random, n + 1));
        graph.turns_back = true;
      }
      node.to.push_back(to);
    }
    graph.nodes.push_back(std::move(node));
  }
  if (!graph.turns_back || std::none_of(graph.nodes.begin(), graph.nodes.end(), makes_packets)) return;
  // In a circle packets that make packets would be without number.
  graph.turns_back = false;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (int& to : graph.nodes[n].to) to = to >= 0 && to <= static_cast<int>(n) ? Graph::kOut2 : to;
  }
}

// A router: a chain whose side outputs end, join it again farther on, or do so by a node of their own. What a device
// takes whole looks so.
void router_nodes(Random& random, Graph& graph) {
  std::vector<Drawn> chain{{random_ip_input(random), 2}};
  const uint32_t length = below(random, 6);
  for (uint32_t i = 0; i < length; ++i) chain.push_back(router_element(random));
  switch (below(random, 10)) {
    case 0:
    case 1:
    case 2:
      chain.push_back({"SetCRC32"});
      break;
    case 3:
      chain.push_back({fmt::format("Truncate({})", below(random, 200))});
      break;
    case 4:
      chain.push_back({fmt::format("Police({}Mbps, {})", 1 + below(random, 50), 500 + below(random, 9000)), 3});
      break;
    case 5:
      chain.push_back({fmt::format("IPFragmenter({})", 68 + below(random, 600)), 2});
      break;
    case 6:
      chain.push_back(any_element(random));
      break;
    default:
      break;
  }
  const auto nodes = static_cast<int>(chain.size());
  for (const Drawn& drawn : chain) graph.nodes.push_back({drawn.element, {}});
  for (int n = 0; n < nodes; ++n) {
    const bool error_outputs = has_error_outputs(chain[static_cast<size_t>(n)].element);
    const auto farther = [&] {
      return n + 1 < nodes ? n + 1 + static_cast<int>(below(random, static_cast<uint32_t>(nodes - n - 1)))
                           : a_sink(random);
    };
    for (unsigned out = 0; out < chain[static_cast<size_t>(n)].outputs; ++out) {
      int to = n + 1 < nodes ? n + 1 : a_sink(random);
      const uint32_t choice = out == 0 && !one_in(random, 12) ? 0 : 1 + below(random, 8);
      if (choice == 1 || choice == 2) {
        to = error_outputs && out != 0 ? Graph::kNowhere : Graph::kDiscard;
      } else if (choice == 3 || choice == 4) {
        to = a_sink(random);
      } else if (choice == 5 || choice == 6) {
        to = farther();
      } else if (choice > 6) {
        // Behind the chain, so that it is made after it; it leads to where the chain goes on, or out.
        Drawn side = one_in(random, 3) ? any_element(random) : router_element(random);
        if (one_in(random, 4)) side = {"ICMPError(192.0.0.1 2001:db8::1)"};
        if (one_in(random, 4)) side = {"SetCRC32"};
        Node node{side.element, {}};
        for (unsigned o = 0; o < side.outputs; ++o)
          node.to.push_back(below(random, 2) != 0 ? farther() : a_sink(random));
        to = static_cast<int>(graph.nodes.size());
        graph.nodes.push_back(std::move(node));
      }
      graph.nodes[static_cast<size_t>(n)].to.push_back(to);
    }
  }
}

std::string random_qos(Random& random) {
  return fmt::format(
      "class voice dscp ef,cs6 strict rate {}Mbps burst {} limit {}\nclass rest dscp others weight 1 limit {}\n"
      "port rate {}Mbps burst 3000\n",
      1 + below(random, 8), 1600 + below(random, 3000), 1 + below(random, 40), 1 + below(random, 60),
      1 + below(random, 40));
}

constexpr std::string_view kEdge =
    "deny tcp from 10.0.0.0/16 to any port 80\n"
    "mark(7) udp from any to 192.0.3.0/24\n"
    "deny udp from 10.1.0.0/16 port 1024-1031 to 192.0.0.0/16\n"
    "deny ip from 2001:db8:3::/48 to any\n"
    "permit tcp from any to any port 0-1023\n"
    "permit ip from any to any dscp 46\n"
    "deny udp from any to 192.0.4.128/25 port 0-511\n"
    "permit ip from any to any\n";
constexpr std::string_view kMarks =
    "mark(7) udp from any to any\nmark(0) ip from 10.2.0.0/16 to any\ndeny tcp from any to 192.0.1.0/24\n";
constexpr std::string_view kMain =
    "192.0.0.0/24 a\n192.0.1.0/24 b\n192.0.2.0/23 c\n192.0.3.0/25 d\n192.0.4.0/24 e\n192.0.5.0/24 drop-here\n"
    "2001:db8:f0::/48 a\n2001:db8:f1::/48 b\n2001:db8:f2::/47 c\n2001:db8:f4::/48 e\n224.0.0.0/4 a\n";
constexpr std::string_view kOther = "192.0.0.0/21 x\n192.0.3.0/24 y\n2001:db8::/32 x\n";
constexpr std::string_view kAdjacencies =
    "a 02:00:00:00:01:01 02:00:00:00:00:01 0\n"
    "a 02:00:00:00:01:02 02:00:00:00:00:01 1\n"
    "b 02:00:00:00:02:01 02:00:00:00:00:02 2 vlan 33\n"
    "c 02:00:00:00:03:01 02:00:00:00:00:03 3 mtu 300\n"
    "d 02:00:00:00:04:01 02:00:00:00:00:04 4\n"
    "e 02:00:00:00:05:01 02:00:00:00:00:05 5 weight 3\n"
    "e 02:00:00:00:05:02 02:00:00:00:00:05 6\n"
    "drop-here drop\n";

std::string declared_tables(const Graph& graph, const std::string& in, const std::string& prefix) {
  Random random(graph.seed, kTables);
  const auto lists = acl_algorithm_names();
  const auto list = [&] { return *(std::begin(lists) + below(random, static_cast<uint32_t>(std::size(lists)))); };
  const auto routes = [&] { return one_of<const char*>(random, {"trie", "poptrie", "sail"}); };
  std::string text;
  text += fmt::format("AclTable({}edge, FILE {}/edge.acl, ALGORITHM {});\n", prefix, in, list());
  text += fmt::format("AclTable({}marks, FILE {}/marks.acl, ALGORITHM {});\n", prefix, in, list());
  text +=
      fmt::format("RouteTable({}main, FILE {}/main.txt, ALGORITHM {}, ALGORITHM6 poptrie);\n", prefix, in, routes());
  text += fmt::format("RouteTable({}other, FILE {}/other.txt, ALGORITHM {}, ALGORITHM6 trie);\n", prefix, in, routes());
  text += fmt::format("AdjacencyTable({0}adj, FILE {1}/adj.txt, ROUTES {0}main);\n", prefix, in);
  return text;
}

Result<void> write_frames(const std::string& path, const std::vector<GeneratedFrame>& frames) {
  auto writer = CaptureWriter::create(path);
  if (!writer) return std::move(writer).error();
  for (const GeneratedFrame& frame : frames) {
    const auto captured = static_cast<uint32_t>(frame.bytes.size());
    if (!writer->append(FrameHeader{captured, frame.wire_bytes, frame.timestamp_ns}, frame.bytes.data())) break;
  }
  return writer->commit();
}

Result<void> write_table(const std::string& path, std::string_view text) {
  auto file = AtomicFile::create(path);
  if (!file) return std::move(file).error();
  file->write(text);
  return file->commit();
}

}  // namespace

GeneratedGraph generate_graph(uint64_t seed) {
  Random random(seed, kShape);
  GeneratedGraph graph;
  graph.seed = seed;
  if (one_in(random, 3)) {
    any_nodes(random, graph);
  } else {
    router_nodes(random, graph);
  }
  if (one_in(random, 8)) graph.qos = random_qos(random);
  Random first(seed, kFirst);
  graph.frames = random_frames(first, 1 + below(first, 400));
  if (one_in(random, 5)) {
    Random second(seed, kSecond);
    graph.others = random_frames(second, 1 + below(second, 500));
    // By the same way, or parsed apart into the middle of the first one's.
    if (below(random, 2) != 0) {
      const auto to = static_cast<int>(below(random, static_cast<uint32_t>(graph.nodes.size())));
      graph.second = static_cast<int>(graph.nodes.size());
      graph.nodes.push_back({random_ip_input(random), {to, one_in(random, 2) ? Graph::kNowhere : Graph::kOut3}});
    }
  }
  graph.orderless = std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return is_one_of(node.element, {"Police", "Shape", "ICMPError", "Print"});
  });
  return reachable(std::move(graph));
}

GeneratedGraph reachable(GeneratedGraph graph) {
  std::vector<bool> seen(graph.nodes.size());
  std::vector<size_t> open{0};
  if (!graph.others.empty()) open.push_back(static_cast<size_t>(graph.second));
  while (!open.empty()) {
    const size_t n = open.back();
    open.pop_back();
    if (seen[n]) continue;
    seen[n] = true;
    for (const int to : graph.nodes[n].to) {
      if (to >= 0) open.push_back(static_cast<size_t>(to));
    }
  }
  std::vector<int> names;
  std::vector<Node> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    names.push_back(static_cast<int>(nodes.size()));
    if (seen[n]) nodes.push_back(graph.nodes[n]);
  }
  for (Node& node : nodes) {
    for (int& to : node.to) {
      if (to >= 0) to = names[static_cast<size_t>(to)];
    }
  }
  graph.second = graph.others.empty() ? 0 : names[static_cast<size_t>(graph.second)];
  graph.nodes = std::move(nodes);
  return graph;
}

std::string click_text(const GeneratedGraph& graph, const std::string& in, const std::string& out,
                       const std::string& prefix) {
  std::string text = declared_tables(graph, in, prefix);
  for (int o = 1; o <= Graph::kOutputs; ++o)
    text += fmt::format("{}out{} :: ToDump({}/{}out{}.pcap);\n", prefix, o, out, prefix, o);
  text += fmt::format("{}end :: Discard;\n", prefix);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    std::string element = graph.nodes[n].element;
    if (const size_t at = element.find('@'); at != std::string::npos) element.replace(at, 1, prefix);
    text += fmt::format("{}n{} :: {};\n", prefix, n, element);
  }
  text += fmt::format("FromDump({}/in.pcap) -> {}n0;\n", in, prefix);
  if (!graph.others.empty()) text += fmt::format("FromDump({}/in2.pcap) -> {}n{};\n", in, prefix, graph.second);
  bool used[Graph::kOutputs + 1] = {};
  const auto name = [&](int to) {
    if (to >= 0) return fmt::format("{}n{}", prefix, to);
    if (to == Graph::kDiscard) return prefix + "end";
    used[Graph::kOut - to] = true;
    return fmt::format("{}out{}", prefix, Graph::kOut - to + 1);
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (size_t o = 0; o < graph.nodes[n].to.size(); ++o) {
      const int to = graph.nodes[n].to[o];
      if (to != Graph::kNowhere) text += fmt::format("{}n{}[{}] -> {};\n", prefix, n, o, name(to));
    }
  }
  // What nothing leads to gets nothing.
  for (int o = 0; o < Graph::kOutputs; ++o) {
    if (!used[o]) text += fmt::format("Idle -> {}out{};\n", prefix, o + 1);
  }
  return text + fmt::format("Idle -> {}end;\n", prefix);
}

Result<void> write_graph_inputs(const GeneratedGraph& graph, const std::string& folder) {
  if (auto ok = write_frames(folder + "/in.pcap", graph.frames); !ok) return ok;
  if (!graph.others.empty()) {
    if (auto ok = write_frames(folder + "/in2.pcap", graph.others); !ok) return ok;
  }
  for (const auto& [name, text] :
       {std::pair{"/edge.acl", kEdge}, std::pair{"/marks.acl", kMarks}, std::pair{"/main.txt", kMain},
        std::pair{"/other.txt", kOther}, std::pair{"/adj.txt", kAdjacencies}}) {
    if (auto ok = write_table(folder + name, text); !ok) return ok;
  }
  return {};
}

}  // namespace sluice
