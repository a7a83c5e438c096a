// Every reader of text and every builder takes work in proportion to its input: twice as much input, at most 2.5 times
// the work. Work is instructions, counted by valgrind (callgrind), so that the answer is the same on a loaded machine
// and on any other, and no loop is left out, be it in a library.
//
// Run by itself: the program starts itself again under valgrind.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "control/acl_change.h"
#include "control/command.h"
#include "control/command_text.h"
#include "control/request.h"
#include "control/rule_list.h"
#include "elements/ip_filter/pattern.h"
#include "elements/register_all.h"
#include "formats/address_list.h"
#include "formats/adjacency_text.h"
#include "formats/classbench.h"
#include "formats/iptables_rules.h"
#include "formats/mrt.h"
#include "formats/native_rules.h"
#include "formats/nft_rules.h"
#include "formats/qos_text.h"
#include "formats/route_text.h"
#include "formats/trace.h"
#include "formats/vpp_rules.h"
#include "graph/click/syntax.h"
#include "graph/element.h"
#include "graph/router.h"
#include "net/text.h"
#include "ports/pcap/capture_reader.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"
#include "tables/acl/shadow.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/patch.h"
#include "tables/lpm/rib_sources.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::string profile_path() {
  return (std::filesystem::temp_directory_path() / ("sluice-growth." + std::to_string(::getpid()))).string();
}

// Instructions that `work` takes.
uint64_t instructions(const std::function<void()>& work) {
  static unsigned dumps = 0;
  CALLGRIND_ZERO_STATS;
  CALLGRIND_TOGGLE_COLLECT;
  work();
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS;
  const std::string name = profile_path() + "." + std::to_string(++dumps);
  uint64_t total = 0;
  std::ifstream file(name);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("totals: ")) total = std::strtoull(line.c_str() + 8, nullptr, 10);
  }
  std::filesystem::remove(name);
  return total;
}

// What is read or built for a size; it is made before the counting starts.
using Prepared = std::function<void()>;
struct Case {
  std::string name;
  size_t size;
  std::function<Prepared(size_t n)> prepare;
};

// How the work grows from the first doubling to the second: 2 where it is linear, 4 where it is quadratic. What does
// not depend on the size is in neither.
double growth(const Case& c) {
  uint64_t counts[3];
  c.prepare(c.size)();  // what is made once a program
  for (unsigned i = 0; i < 3; ++i) {
    const Prepared work = c.prepare(c.size << i);
    counts[i] = instructions(work);
  }
  EXPECT_GT(counts[0], 0u);
  // A size that makes hardly a difference: an input that is refused at once, say. A scan for its end by the C library
  // takes less than an instruction per unit, and how many depends on where the text lies; what grows with the square
  // takes more than 8 per added unit at every size here.
  if (counts[2] <= counts[0] + std::max(counts[0] / 5, uint64_t{8} * 3 * c.size)) return 1;
  const double ratio = static_cast<double>(counts[2] - counts[1]) / static_cast<double>(counts[1] - counts[0]);
  std::printf("%s: %zu: %llu, %llu, %llu instructions, growth %.2f\n", c.name.c_str(), c.size,
              static_cast<unsigned long long>(counts[0]), static_cast<unsigned long long>(counts[1]),
              static_cast<unsigned long long>(counts[2]), ratio);
  return ratio;
}

template <typename T>
void expect_good(const Result<T>& result) {
  if (!result.ok()) ADD_FAILURE() << to_string(result.error()).substr(0, 500);
}

// `line` for 0 to n - 1, one behind the other.
std::string lines(size_t n, const std::function<std::string(size_t)>& line) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += line(i);
  return text;
}
std::string address(size_t i) {
  return fmt::format("10.{}.{}.{}", i >> 16 & 255, i >> 8 & 255, i & 255);
}
std::string joined(size_t n, const char* separator, const std::function<std::string(size_t)>& item) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += (i == 0 ? "" : separator) + item(i);
  return text;
}

// A case of a reader of text, which accepts it (or, where `good` is false, may not).
template <typename Read>
Case reader(std::string name, size_t size, std::function<std::string(size_t)> text, Read read, bool good = true) {
  return {std::move(name), size, [text, read, good](size_t n) -> Prepared {
            auto made = std::make_shared<std::string>(text(n));
            return [made, read, good] {
              const auto result = read(*made);
              if (good) expect_good(result);
            };
          }};
}

std::string nft(const std::string& expression, const std::string& more = {}) {
  return R"({"nftables":[{"chain":{"family":"inet","table":"t","name":"f","type":"filter","hook":"forward","prio":0,"policy":"drop"}},)"
         R"({"chain":{"family":"inet","table":"t","name":"c"}},)" +
         more + R"({"rule":{"family":"inet","table":"t","chain":"f","expr":[)" + expression + "]}}]}";
}
std::string nft_match(const std::string& op, const std::string& set) {
  return R"({"match":{"op":")" + op + R"(","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":)" + set + "}}";
}
std::string nft_set(size_t n) {
  return R"({"set":[)" + joined(n, ",", [](size_t i) { return "\"" + address(2 * i) + "\""; }) + "]}";
}

std::string be(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = bytes; i-- > 0;) out += static_cast<char>(value >> (8 * i) & 255);
  return out;
}
std::string le(uint64_t value, size_t bytes) {
  std::string out = be(value, bytes);
  std::reverse(out.begin(), out.end());
  return out;
}

// TABLE_DUMP_V2: a peer table, then a record for each prefix.
std::string mrt(size_t n) {
  const auto record = [](uint16_t subtype, const std::string& body) {
    return be(0, 4) + be(13, 2) + be(subtype, 2) + be(body.size(), 4) + body;
  };
  std::string text = record(1, be(1, 4) + be(0, 2) + be(1, 2) + be(2, 1) + be(1, 4) + be(0x0a000001, 4) + be(65001, 4));
  for (size_t i = 0; i < n; ++i) {
    const std::string attributes = be(0x40, 1) + be(1, 1) + be(1, 1) + be(0, 1) +                            // ORIGIN
                                   be(0x40, 1) + be(2, 1) + be(6, 1) + be(2, 1) + be(1, 1) + be(65001, 4) +  // AS_PATH
                                   be(0x40, 1) + be(3, 1) + be(4, 1) + be(0x0a000001 + i % 50, 4);           // NEXT_HOP
    text += record(2, be(i, 4) + be(24, 1) + be(0x0a0000 + i, 3) + be(1, 2) + be(0, 2) + be(0, 4) +
                          be(attributes.size(), 2) + attributes);
  }
  return text;
}

std::string pcap(size_t n) {
  std::string text = le(0xa1b2c3d4, 4) + le(2, 2) + le(4, 2) + le(0, 8) + le(65535, 4) + le(1, 4);
  for (size_t i = 0; i < n; ++i) text += le(i, 4) + le(0, 4) + le(60, 4) + le(60, 4) + std::string(60, 'x');
  return text;
}
// Every packet behind another interface, with blocks between that nobody reads.
std::string pcapng(size_t n) {
  const auto block = [](uint32_t type, const std::string& body) {
    return le(type, 4) + le(body.size() + 12, 4) + body + le(body.size() + 12, 4);
  };
  std::string text = block(0x0a0d0d0a, le(0x1a2b3c4d, 4) + le(1, 2) + le(0, 2) + le(~uint64_t{0}, 8));
  for (size_t i = 0; i < n; ++i) {
    text += block(1, le(1, 2) + le(0, 2) + le(0, 4)) + block(4, le(0, 4));
    text += block(6, le(i, 4) + le(0, 4) + le(i, 4) + le(60, 4) + le(60, 4) + std::string(60, 'x'));
  }
  return text;
}
Result<bool> read_capture(const std::string& bytes) {
  auto open = CaptureReader::open(InputFile::over(std::as_bytes(std::span(bytes)), "growth"));
  if (!open) return std::move(open).error();
  CapturedFrame frame;
  while (true) {
    auto more = open->next(frame);
    if (!more || !*more) return more;
  }
}

Result<bool> read_click(const std::string& text) {
  static Registry* registry = [] {
    auto* made = new Registry;
    register_elements(*made);
    return made;
  }();
  auto graph = parse_click(text, "growth.click");
  if (!graph) return std::move(graph).error();
  auto router = build_router(*graph, *registry, text);
  if (!router) return std::move(router).error();
  return true;
}

Result<bool> read_pattern(const std::string& text) {
  PatternList list;
  if (const auto fault = list.add(text, 0)) return Error(fault->message);
  uint32_t first = 0;
  (void)list.program(&first);
  (void)list.rules(65536);
  return true;
}

std::vector<Case> readers() {
  std::vector<Case> all;
  // Requests and answers.
  const auto request = [](const std::string& line) -> Result<bool> {
    (void)answer_request(line, [](Json& r) -> Result<std::string> {
      static const CommandRow row{.name = "x", .fields = {fields::text("changes", "")}};
      return read_fields(row, r).ok() ? Result<std::string>("{}") : Result<std::string>(Error("no"));
    });
    return true;
  };
  all.push_back(reader(
      "request/fields", 2000,
      [](size_t n) {
        return R"({"v":1,"command":"x")" + lines(n, [](size_t i) { return fmt::format(",\"k{}\":1", i); }) + "}";
      },
      request));
  all.push_back(reader(
      "request/text", 20000,
      [](size_t n) {
        return R"({"v":1,"command":"x","changes":")" + lines(n, [](size_t) { return "add a\\n\\u20ac"; }) + "\"}";
      },
      request));
  all.push_back(reader(
      "request/list", 2000,
      [](size_t n) {
        return R"({"v":1,"command":"x","list":[)" + joined(n, ",", [](size_t) { return "\"a\""; }) + "]}";
      },
      request));
  all.push_back(reader(
      "request/open_brackets", 20000, [](size_t n) { return std::string(n, '['); }, request));
  all.push_back(reader(
      "answer/rules", 1000,
      [](size_t n) {
        return R"({"v":1,"ok":true,"result":{"rules":[)" +
               joined(n, ",",
                      [](size_t i) { return fmt::format(R"({{"rule":{},"text":"permit ip from any to any"}})", i); }) +
               "]}}";
      },
      [](const std::string& line) {
        bool theirs;
        return read_answer(line, &theirs);
      }));
  all.push_back(reader(
      "command/packet", 1000,
      [](size_t n) { return "ip 10.0.0.1 > 10.0.0.2 tcp 1 > 2" + lines(n, [](size_t) { return " ttl 7"; }); },
      [](const std::string& text) { return parse_packet_text(text, "--packet"); }));
  all.push_back(reader(
      "command/hex", 2000, [](size_t n) { return lines(n, [](size_t) { return "ab:"; }); },
      [](const std::string& text) { return parse_hex_bytes(text, "--hex"); }, false));

  // Rules.
  const auto native = [](const std::string& text) { return parse_native_rules(text, "growth.acl"); };
  all.push_back(reader(
      "native/rules", 400,
      [](size_t n) {
        return lines(
            n, [](size_t i) { return fmt::format("permit tcp from {} to any port {} # a\n", address(i), i % 65536); });
      },
      native));
  all.push_back(reader(
      "native/group", 1000,
      [](size_t n) { return "define g = " + joined(n, ", ", address) + "\npermit ip from g to any\n"; }, native));
  all.push_back(reader(
      "native/groups", 300,
      [](size_t n) {
        return lines(
            n, [](size_t i) { return fmt::format("define g{} = {}\npermit ip from g{} to any\n", i, address(i), i); });
      },
      native));
  all.push_back(reader(
      "native/wrong", 1000, [](size_t n) { return lines(n, [](size_t) { return "permti tcp from any to any\n"; }); },
      native, false));
  all.push_back(reader(
      "native/too_many", 20,
      [](size_t n) {
        std::string text = "define a = " + joined(250, ",", address) + "\n";
        return text + lines(n, [](size_t) { return "permit tcp from a to a\n"; });
      },
      [](const std::string& text) {
        return parse_native_rules(
            text, "growth.acl", [](const std::string&) -> Result<std::string> { return Error("no"); }, 1000);
      },
      false));
  all.push_back(reader(
      "native/one_line", 2000,
      [](size_t n) { return "permit tcp from any to any" + lines(n, [](size_t) { return " log"; }); }, native));
  const auto classbench = [](const std::string& text) { return parse_classbench(text, "growth"); };
  all.push_back(reader(
      "classbench/rules", 400,
      [](size_t n) {
        return lines(n, [](size_t i) {
          return fmt::format("@{}/32\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\t0x0000/0x0000\n", address(i));
        });
      },
      classbench));
  const auto trace = [](const std::string& text) { return parse_trace(text, "growth"); };
  all.push_back(reader(
      "classbench/trace", 500,
      [](size_t n) {
        return lines(n, [](size_t i) { return fmt::format("{}\t{}\t{}\t80\t6\t0\t1\n", 167772160 + i, i, i % 65536); });
      },
      trace, false));
  const auto nft_rules = [](const std::string& text) { return parse_nft_rules(text, "growth.json"); };
  all.push_back(reader(
      "nft/set", 500, [](size_t n) { return nft(nft_match("==", nft_set(n)) + R"(,{"accept":null})"); }, nft_rules));
  all.push_back(reader(
      "nft/not_in_set", 500, [](size_t n) { return nft(nft_match("!=", nft_set(n)) + R"(,{"accept":null})"); },
      nft_rules));
  all.push_back(reader(
      "nft/sets", 500,
      [](size_t n) {
        return nft(nft_match("==", nft_set(n)) + "," + nft_match("==", nft_set(n)) + R"(,{"accept":null})");
      },
      nft_rules));
  all.push_back(reader(
      "nft/return_from_set", 500,
      [](size_t n) {
        return nft(R"({"jump":{"target":"c"}})", R"({"rule":{"family":"inet","table":"t","chain":"c","expr":[)" +
                                                     nft_match("==", nft_set(n)) + R"(,{"return":null}]}},)");
      },
      nft_rules));
  all.push_back(reader(
      "nft/named_set", 500,
      [](size_t n) {
        return nft(nft_match("==", "\"@s\"") + R"(,{"accept":null})",
                   R"({"set":{"family":"inet","table":"t","name":"s","type":"ipv4_addr","elem":[)" +
                       joined(n, ",", [](size_t i) { return "\"" + address(2 * i) + "\""; }) + "]}},");
      },
      nft_rules));
  all.push_back(reader(
      "nft/verdict_map", 300,
      [](size_t n) {
        return nft(R"({"vmap":{"key":{"payload":{"protocol":"ip","field":"saddr"}},"data":{"set":[)" +
                   joined(n, ",", [](size_t i) { return "[\"" + address(i) + R"(",{"accept":null}])"; }) + "]}}}");
      },
      nft_rules));
  all.push_back(reader(
      "nft/rules", 200,
      [](size_t n) {
        return nft(R"({"accept":null})", lines(n, [](size_t i) {
                     return R"({"rule":{"family":"inet","table":"t","chain":"f","expr":[)" +
                            nft_match("==", "\"" + address(i) + "\"") + R"(,{"accept":null}]}},)" + "\n";
                   }));
      },
      nft_rules));
  all.push_back(reader(
      "nft/chains", 200,
      [](size_t n) {
        return nft(
            R"({"accept":null})", lines(n, [](size_t i) {
              return fmt::format(R"({{"chain":{{"family":"inet","table":"t","name":"c{}"}}}},)", i) +
                     fmt::format(
                         R"({{"rule":{{"family":"inet","table":"t","chain":"f","expr":[{},{{"jump":{{"target":"c{}"}}}}]}}}},)",
                         nft_match("==", "\"" + address(i) + "\""), i) +
                     fmt::format(
                         R"({{"rule":{{"family":"inet","table":"t","chain":"c{}","expr":[{{"accept":null}}]}}}},)", i);
            }));
      },
      nft_rules));
  const auto iptables = [](const std::string& text) { return parse_iptables_rules(text, "growth"); };
  all.push_back(reader(
      "iptables/rules", 300,
      [](size_t n) {
        return "*filter\n:FORWARD DROP [0:0]\n" +
               lines(n,
                     [](size_t i) {
                       return fmt::format("-A FORWARD -s {}/32 -p tcp -m tcp --dport {} -j ACCEPT\n", address(i),
                                          i % 65536);
                     }) +
               "COMMIT\n";
      },
      iptables));
  all.push_back(reader(
      "iptables/chains", 200,
      [](size_t n) {
        return "*filter\n:FORWARD DROP [0:0]\n" + lines(n, [](size_t i) { return fmt::format(":c{} - [0:0]\n", i); }) +
               lines(n,
                     [](size_t i) {
                       return fmt::format("-A FORWARD -s {}/32 -j c{}\n-A c{} -j ACCEPT\n", address(i), i, i);
                     }) +
               "COMMIT\n";
      },
      iptables));
  all.push_back(reader(
      "vpp/rules", 300,
      [](size_t n) {
        return "set acl-plugin acl " +
               joined(n, ", ", [](size_t i) { return fmt::format("permit src {}/32 proto 6 dport 80", address(i)); }) +
               "\n";
      },
      [](const std::string& text) { return parse_vpp_rules(text, "growth"); }));
  all.push_back(reader(
      "ip_filter/or", 200,
      [](size_t n) { return joined(n, " or ", [](size_t i) { return "src host " + address(2 * i); }); }, read_pattern));
  all.push_back(reader(
      "ip_filter/not_or", 200,
      [](size_t n) { return "not (" + joined(n, " or ", [](size_t i) { return "src host " + address(2 * i); }) + ")"; },
      read_pattern));

  // Routes and what next hops lead to.
  const auto routes = [](const std::string& text) {
    Rib rib;
    auto done = parse_routes(text, "growth", rib);
    rib.settle();
    return done;
  };
  all.push_back(reader(
      "routes/text", 500,
      [](size_t n) {
        return lines(n, [](size_t i) { return fmt::format("{}/32 via 192.0.2.{}\n", address(i), i % 100); });
      },
      routes));
  all.push_back(reader(
      "routes/next_hops", 500,
      [](size_t n) {
        return lines(n, [](size_t i) { return fmt::format("{}/32 via {}\n", address(i), address(i + 7)); });
      },
      routes));
  all.push_back(reader(
      "routes/ip_route", 500,
      [](size_t n) {
        return lines(n, [](size_t i) {
          return fmt::format("{} via 192.0.2.1 dev eth0 proto bgp metric {}\n", address(i), i % 9);
        });
      },
      routes));
  all.push_back(reader(
      "routes/metrics_of_one_prefix", 500,
      [](size_t n) {
        return lines(n, [](size_t i) { return fmt::format("10.0.0.0/8 via 192.0.2.1 metric {}\n", i); });
      },
      routes));
  all.push_back(reader("routes/mrt", 400, mrt, [](const std::string& text) {
    Rib rib;
    auto done = parse_mrt(std::as_bytes(std::span(text)), "growth", rib);
    rib.settle();
    return done;
  }));
  const auto addresses = [](const std::string& text) { return parse_addresses(text, "growth"); };
  all.push_back(reader(
      "addresses/plain", 2000, [](size_t n) { return lines(n, [](size_t i) { return address(i) + "\n"; }); },
      addresses));
  all.push_back(reader(
      "addresses/wrong", 2000, [](size_t n) { return lines(n, [](size_t i) { return fmt::format("host{}\n", i); }); },
      addresses, false));
  const auto hops = [](const std::string& text) { return parse_next_hops(text, "growth"); };
  all.push_back(reader(
      "adjacencies/next_hops", 400,
      [](size_t n) {
        return lines(n, [](size_t i) { return fmt::format("{} 02:00:00:00:00:01 02:00:00:00:00:02 3\n", address(i)); });
      },
      hops));
  all.push_back(reader(
      "adjacencies/one_next_hop", 400,
      [](size_t n) {
        return lines(n, [](size_t i) {
          return fmt::format("a 02:00:00:00:{:02x}:{:02x} 02:00:00:00:00:02 3\n", i >> 8 & 255, i & 255);
        });
      },
      hops, false));
  all.push_back(reader(
      "qos/words", 1000,
      [](size_t n) { return "class a limit 5\nclass b" + lines(n, [](size_t) { return " limit 9"; }) + "\n"; },
      [](const std::string& text) { return parse_qos(text, "growth"); }, false));
  all.push_back(reader(
      "qos/marks", 300,
      [](size_t n) {
        return "class a mark " + joined(n, ",", [](size_t i) { return std::to_string(2 * i + 1); }) + "\nclass b\n";
      },
      [](const std::string& text) { return parse_qos(text, "growth"); }, false));

  // Graphs.
  all.push_back(reader(
      "click/chain", 100,
      [](size_t n) {
        return "InfiniteSource(LIMIT 0)" + lines(n, [](size_t i) { return fmt::format(" -> c{} :: Counter", i); }) +
               " -> Discard;\n";
      },
      read_click));
  all.push_back(reader(
      "click/declarations", 150,
      [](size_t n) {
        return lines(n, [](size_t i) {
          return fmt::format("s{0} :: InfiniteSource(LIMIT 0); d{0} :: Discard; s{0} -> d{0};\n", i);
        });
      },
      read_click));
  all.push_back(reader(
      "click/classes", 60,
      [](size_t n) {
        return lines(n, [](size_t i) {
          return fmt::format(
              "elementclass E{0} {{ input -> Counter -> output }}\nInfiniteSource(LIMIT 0) -> E{0} -> Discard;\n", i);
        });
      },
      read_click));
  all.push_back(reader(
      "click/comment", 2000,
      [](size_t n) { return lines(n, [](size_t) { return "/* a */ // b\n"; }) + "Idle -> Discard;"; }, read_click));
  all.push_back(reader(
      "click/arguments", 500,
      [](size_t n) {
        return "InfiniteSource(LIMIT 0) -> Print(\"" + lines(n, [](size_t) { return "a, b "; }) + "\") -> Discard;";
      },
      read_click));

  // Captures.
  all.push_back(reader("capture/pcap", 300, pcap, read_capture));
  all.push_back(reader("capture/pcapng", 200, pcapng, read_capture));
  return all;
}

// ---- changes --------------------------------------------------------------------------------------------------------

RuleSet some_rules(size_t n) {
  RuleSet set;
  set.files.push_back("growth");
  for (size_t i = 0; i < n; ++i) {
    AclRule rule;
    rule.family = 4;
    rule.src = {{0, 0x0a000000u + i, 4}, 32};
    set.rules.push_back(rule);
  }
  return set;
}

// A change of n steps to a list of n rules.
Case change(std::string name, size_t size, std::function<std::string(size_t i, size_t n)> step, bool good = true) {
  return {std::move(name), size, [step, good](size_t n) -> Prepared {
            auto list = std::make_shared<RuleList>(some_rules(n));
            auto text = std::make_shared<std::string>(lines(n, [&](size_t i) { return step(i, n) + "\n"; }));
            return [list, text, good] {
              auto steps = parse_acl_change(*text, "growth");
              if (!steps) return expect_good(steps);
              list->begin();
              const auto taken = take_acl_steps(*list, *steps, *text, "growth");
              if (good) expect_good(taken);
              list->undo();
            };
          }};
}

std::vector<Case> changes() {
  std::vector<Case> all;
  all.push_back(
      change("change/at_the_end", 1000, [](size_t i, size_t) { return "add deny tcp from any to " + address(i); }));
  all.push_back(change("change/at_the_start", 1000,
                       [](size_t i, size_t) { return "add at 1 deny tcp from any to " + address(i); }));
  all.push_back(change("change/here_and_there", 1000, [](size_t i, size_t n) {
    return fmt::format("add at {} deny tcp from any to {}", i % 2 == 0 ? 1 : n, address(i));
  }));
  all.push_back(change("change/between_the_last_two", 1000, [](size_t i, size_t n) {
    return fmt::format("add at {} deny tcp from any to {}", n / 2 + i / 2, address(i));
  }));
  all.push_back(change("change/no_room_and_by_rule", 1000, [](size_t i, size_t n) {
    return i % 16 == 15 ? fmt::format("delete permit from {} to any", address(i / 16))
                        : fmt::format("add at {} deny tcp from any to {}", n / 2 + (i - i / 8) / 2, address(i));
  }));
  all.push_back(change("change/delete_by_position", 1000, [](size_t, size_t) { return std::string("delete 1"); }));
  all.push_back(change("change/delete_by_rule", 1000,
                       [](size_t i, size_t n) { return "delete permit from " + address(n - 1 - i) + " to any"; }));
  all.push_back(change("change/replace", 1000,
                       [](size_t i, size_t) { return fmt::format("replace {} deny tcp from any to any", i + 1); }));
  all.push_back(change(
      "change/no_such_position", 1000, [](size_t, size_t) { return std::string("delete 999999999"); }, false));
  all.push_back(reader(
      "change/wrong", 1000, [](size_t n) { return lines(n, [](size_t) { return "add nothing at all\n"; }); },
      [](const std::string& text) { return parse_acl_change(text, "growth"); }, false));
  all.push_back(reader(
      "change/too_many", 20,
      [](size_t n) {
        return "define a = " + joined(250, ",", address) + "\n" +
               lines(n, [](size_t) { return "add permit tcp from a to a\n"; });
      },
      [](const std::string& text) { return parse_acl_change(text, "growth", 1000); }, false));
  return all;
}

// ---- builders -------------------------------------------------------------------------------------------------------

struct Kind {
  const char* name;
  std::function<RuleSet(size_t)> make;
};
std::vector<Kind> rule_kinds() {
  const auto each = [](auto&& fill) {
    return [fill](size_t n) {
      RuleSet set = some_rules(n);
      for (size_t i = 0; i < n; ++i) fill(set.rules[i], i, n);
      return set;
    };
  };
  return {
      {"hosts", [](size_t n) { return some_rules(n); }},
      {"pairs", each([](AclRule& r, size_t i, size_t) {
         r.dst = {{0, (0xc0000000u + i * 977) & ~255u, 4}, 24};
         r.protocol = 6;
         r.protocol_mask = 0xff;
         r.dst_port_low = r.dst_port_high = static_cast<uint16_t>(i % 9 * 80);
         r.needs_ports = true;
       })},
      {"overlapping_ranges", each([](AclRule& r, size_t i, size_t n) {
         r.src = {};
         r.src.address.family = 0;
         r.dst_port_low = static_cast<uint16_t>(i * 30000 / n);
         r.dst_port_high = static_cast<uint16_t>(65535 - i * 30000 / n);
         r.src_port_low = static_cast<uint16_t>(i % 7);
         r.needs_ports = true;
       })},
      {"wildcards_by_flags", each([](AclRule& r, size_t i, size_t) {
         r.src = {};
         r.src.address.family = 0;
         r.flags_mask = 0xffff;
         r.flags = static_cast<uint16_t>(i);
       })},
      {"nested", each([](AclRule& r, size_t i, size_t) {
         const auto length = static_cast<uint8_t>(i % 33);
         r.src = {{0, 0x0a0b0c0du & ~(length == 0 ? ~0u : length == 32 ? 0u : ~0u >> length), 4}, length};
         r.dst = {{0, 0xc0000000u + i, 4}, 32};
       })},
  };
}

std::vector<Case> builders() {
  std::vector<Case> all;
  for (const Kind& kind : rule_kinds()) {
    for (const std::string& algorithm : acl_algorithm_names()) {
      all.push_back({"acl/" + algorithm + "/" + kind.name, 1600, [kind, algorithm](size_t n) -> Prepared {
                       auto set = std::make_shared<RuleSet>(kind.make(n));
                       return [set, algorithm] { expect_good(build_acl(*set, algorithm)); };
                     }});
    }
    all.push_back({std::string("acl/patched/") + kind.name, 2000, [kind](size_t n) -> Prepared {
                     auto rules = std::make_shared<std::vector<OrderedRule>>(RuleList(kind.make(n)).ordered());
                     return [rules] { expect_good(PatchedAcl::create(*rules)); };
                   }});
  }
  const auto rib_of = [](const char* name, size_t n) {
    auto rib = std::make_shared<Rib>();
    const uint32_t a = rib->intern("a"), b = rib->intern("b");
    const bool nested = std::string_view(name) == "nested";
    for (size_t i = 0; i < n; ++i) {
      const auto length = static_cast<uint8_t>(nested ? 8 + i % 25 : 24);
      const auto top = static_cast<uint32_t>(nested ? (i / 25) << 24 >> 8 << 8 | 0x010101u * (i % 25 % 2) : i << 8);
      rib->add({{0, (0x01000000u + top) & ~(length == 32 ? 0u : ~0u >> length), 4}, length}, i % 2 == 0 ? a : b);
      const auto six = static_cast<uint8_t>(nested ? 16 + i % 49 : 48);
      const uint64_t hi = 0x2001000000000000u + (uint64_t{i} << 16);
      rib->add({{hi & ~(~uint64_t{0} >> six), 0, 6}, six}, i % 2 == 0 ? a : b);
    }
    rib->settle();
    return rib;
  };
  for (const char* kind : {"flat", "nested"}) {
    for (const std::string& algorithm : lpm_algorithm_names4()) {
      // IPv6 goes by one of its own, the other builders by an empty table.
      all.push_back({"lpm4/" + algorithm + "/" + kind, 4000, [=](size_t n) -> Prepared {
                       auto rib = rib_of(kind, n);
                       return [rib, algorithm] {
                         expect_good(build_routes(*rib, algorithm, lpm_algorithm_names6().front()));
                       };
                     }});
    }
    for (const std::string& algorithm : lpm_algorithm_names6()) {
      all.push_back({"lpm6/" + algorithm + "/" + kind, 4000, [=](size_t n) -> Prepared {
                       auto rib = rib_of(kind, n);
                       return [rib, algorithm] {
                         expect_good(build_routes(*rib, lpm_algorithm_names4().front(), algorithm));
                       };
                     }});
    }
  }
  // Candidates of one prefix, as the paths of a dump are: the best first, last, and all of them gone again.
  for (const bool best_first : {true, false}) {
    all.push_back({best_first ? "rib_sources/best_first" : "rib_sources/best_last", 1000, [=](size_t n) -> Prepared {
                     return [=] {
                       SourcedRib rib;
                       const auto hop = static_cast<uint16_t>(rib.next_hops().intern("a"));
                       const uint8_t source = rib.source("bgp");
                       const IpPrefix prefix{{0, 0x0a000000u, 4}, 8};
                       for (size_t i = 0; i < n; ++i)
                         rib.add(prefix, {static_cast<uint32_t>(best_first ? i : n - i), hop, source, 20});
                       for (const SourcedRib::Owned& o : rib.owned(source)) rib.remove(o.prefix, source, o.metric);
                       EXPECT_EQ(rib.candidate_count(), 0u);
                     };
                   }});
  }
  return all;
}

class Growth : public ::testing::TestWithParam<Case> {};

TEST_P(Growth, IsLinear) {
  EXPECT_LE(growth(GetParam()), 2.5) << "twice the input takes more than 2.5 times the work";
}

const auto name_of = [](const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
};
INSTANTIATE_TEST_SUITE_P(Readers, Growth, ::testing::ValuesIn(readers()), name_of);
INSTANTIATE_TEST_SUITE_P(Changes, Growth, ::testing::ValuesIn(changes()), name_of);
INSTANTIATE_TEST_SUITE_P(Builders, Growth, ::testing::ValuesIn(builders()), name_of);

// The measure itself: loops whose work grows with the square are seen, in our code and in a library's.
TEST(GrowthMeasure, SeesWhatIsQuadratic) {
  // How requests were read: every field of an object is compared with all before it.
  const Case fields = reader(
      "measure/ordered_json", 1000,
      [](size_t n) { return R"({"v":1)" + lines(n, [](size_t i) { return fmt::format(",\"k{}\":1", i); }) + "}"; },
      [](const std::string& text) -> Result<bool> { return !Json::parse(text, nullptr, false).is_discarded(); });
  EXPECT_GT(growth(fields), 2.5);
  // How the packets that a set leaves were found: each address is taken out of what all before it left.
  const Case regions{"measure/regions", 100, [](size_t n) -> Prepared {
                       return [n] {
                         std::vector<AclRegion> left(1);
                         for (size_t i = 0; i < n; ++i) {
                           AclRegion one;
                           one.only_src({0, 0x0a000000u + 2 * i, 4}, {0, 0x0a000000u + 2 * i, 4});
                           EXPECT_TRUE(take_away(left, {&one, 1}, 100000));
                         }
                       };
                     }};
  EXPECT_GT(growth(regions), 2.5);
  const Case erased{"measure/erase", 5000, [](size_t n) -> Prepared {
                      return [n] {
                        std::string text(n, 'x');
                        while (!text.empty()) text.erase(0, 8);
                      };
                    }};
  EXPECT_GT(growth(erased), 2.5);
  const Case linear{"measure/linear", 20000, [](size_t n) -> Prepared {
                      return [n] {
                        std::string text;
                        for (size_t i = 0; i < n; ++i) text += static_cast<char>(i);
                        EXPECT_EQ(text.size(), n);
                      };
                    }};
  EXPECT_LE(growth(linear), 2.5);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (RUNNING_ON_VALGRIND != 0) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
  }
  // exec keeps the process, and so its number.
  std::vector<std::string> words = {"valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no",
                                    "--callgrind-out-file=" + sluice::profile_path()};
  words.insert(words.end(), argv, argv + argc);
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  ::execvp(list[0], list.data());
  std::perror("valgrind, which counts instructions, cannot be run");
  return 1;
}
