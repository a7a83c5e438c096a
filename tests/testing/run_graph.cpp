#include "tests/testing/run_graph.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "elements/register_all.h"
#include "elements/tables.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"

namespace sluice::testing {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  // Byte by byte, by iterators, it took most of some tests' time under the sanitizers.
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

namespace {

// The same tables, from their files, as a new generation. False: they cannot be loaded.
bool publish_anew(const Router& router, const Plan& plan, Engine& engine) {
  auto tables = load_tables(router);
  if (!tables) return false;
  auto snapshot = bind_plan(plan, router, std::move(*tables));
  if (!snapshot) return false;
  engine.publisher().publish(std::move(*snapshot));
  return true;
}

// Runs, with `swap` once before and up to `swaps` times in all until the run is over.
Result<void> swap_while(const std::function<bool()>& swap, unsigned swaps, const std::function<Result<void>()>& run) {
  if (swaps == 0) return run();
  if (!swap()) return Error("the tables cannot be loaded again");
  std::atomic<bool> over{false}, failed{false};
  std::jthread swapper([&] {
    for (unsigned n = 1; n < swaps && !over && !failed; ++n) failed = !swap();
  });
  Result<void> result = run();
  over = true;
  swapper.join();
  if (failed) return Error("the tables cannot be loaded again");
  return result;
}

}  // namespace

uint64_t generation_met(Engine& engine) {
  RunReport now;
  return engine.look(now).ok() ? now.generation : 0;
}

std::string counters_of(const Router& router, const RunReport& report) {
  std::string text;
  for (size_t e = 0; e < router.elements.size(); ++e) {
    const ElementCounters& c = report.totals.elements[e];
    text += fmt::format("{} {} {}", router.elements[e]->name, c.packets, c.bytes);
    for (size_t r = 0; r < kDropReasons; ++r) {
      if (c.drops[r] != 0) text += fmt::format(" {}={}", to_string(static_cast<DropReason>(r)), c.drops[r]);
    }
    text += '\n';
  }
  for (const RunReport::Sink& sink : report.sinks)
    text += fmt::format("sink {} {} {}\n", sink.element, sink.packets, sink.bytes);
  for (const auto& [port, c] : report.ports) text += fmt::format("port {} {} {}\n", port, c.packets, c.bytes);
  for (size_t d = 0; d < report.totals.dscp.size(); ++d)
    if (report.totals.dscp[d] != 0) text += fmt::format("dscp {} {}\n", d, report.totals.dscp[d]);
  return text;
}

GraphOutcome run_graph(const GraphRun& run) {
  GraphOutcome outcome;
  auto failed = [&](const Error& error) {
    outcome.error = to_string(error);
    return outcome;
  };
  Registry registry;
  register_elements(registry);
  auto graph = parse_click(run.text, "test.click");
  if (!graph) return failed(graph.error());
  auto router = build_router(*graph, registry, run.text);
  if (!router) return failed(router.error());
  auto tables = load_tables(*router);
  if (!tables) return failed(tables.error());
  const FieldMask at_sinks = run.qos != nullptr && !run.qos->marks.empty() ? kFieldMark : FieldMask{0};
  auto plan = run.by_packets ? Result<Plan>(plan_by_packets(*router, at_sinks)) : make_plan(*router, at_sinks);
  if (!plan) return failed(plan.error());
  RunOptions options;
  options.workers = run.workers;
  options.batch = run.batch;
  options.latency_target_ns = run.latency_target_ns;
  options.fast_path = run.fast_path;
  options.count_hits = run.count_hits;
  options.count_dscp = true;
  options.rule_log = run.rule_log;
  options.priorities = run.priorities;
  options.qos = run.qos;
  options.device = run.device;
  options.progress = run.progress;
  options.print = [&](std::string_view text) { outcome.printed.append(text).push_back('\n'); };
  options.one_by_one = run.one_by_one;
  if (run.follow) {
    options.ended = [&](const PacketEnd& end) {
      const PacketFate& fate = end.fate;
      outcome.fates +=
          fmt::format("{} rule {} next hop {} {} {}\n", end.number, fate.rule, fate.next_hop, to_string(fate.reason),
                      fate.reason == DropReason::kNone ? "" : router->elements[fate.element]->name);
    };
  }
  auto engine = Engine::create(*router, *plan, *tables, options);
  if (!engine) return failed(engine.error());
  auto result = swap_while([&] { return publish_anew(*router, *plan, **engine); }, run.swaps,
                           [&] { return (*engine)->run(outcome.report); });
  const RunReport& report = outcome.report;
  outcome.counters = counters_of(*router, report);
  for (const QosPortReport& port : report.qos) {
    for (const QosClassReport& c : port.classes) {
      const QosCounters& n = c.counters;
      outcome.counters +=
          fmt::format("qos {} {} {} in {} {} out {} {} drops {} {} {} {} highest {} p50 {} p99 {}\n", port.element,
                      port.port, c.name, n.in_pkts, n.in_bytes, n.out_pkts, n.out_bytes, n.policed, n.shaper_full,
                      n.tail_drops, n.early_drops, n.highest_pkts, c.p50_ns, c.p99_ns);
    }
  }
  for (const auto& [name, image] : tables->acls) {
    if (!run.count_hits) break;
    const HitLedger::Counts& counts = outcome.hits[name] = (*engine)->hits().read(name);
    for (size_t r = 0; r < counts.rules.size(); ++r) {
      const HitCount& c = counts.rules[r];
      if (c.packets != 0) outcome.counters += fmt::format("rule {} {} {} {}\n", name, r, c.packets, c.bytes);
    }
  }
  if (!result) return failed(result.error());
  // What --priorities refuses has come in, and is counted by class alone.
  const auto& dscp = report.totals.dscp;
  const uint64_t of_any_dscp = std::accumulate(dscp.begin(), dscp.end(), uint64_t{0});
  if (!run.priorities && of_any_dscp != report.bytes_in)
    return failed(Error(fmt::format("{} bytes came in, {} of any DSCP", report.bytes_in, of_any_dscp)));
  outcome.ok = true;
  return outcome;
}

std::string with_outputs(const TempDir& dir, std::string text) {
  // The longer names first: $OUT is the beginning of all of them.
  for (const std::string name : {"OUT3", "OUT2", "OUT"}) {
    for (size_t at; (at = text.find("$" + name)) != std::string::npos;) text.replace(at, name.size() + 1, dir / name);
  }
  return text;
}

std::string write_mixed_capture(const std::string& path, uint32_t packets, uint64_t seed) {
  auto writer = CaptureWriter::create(path);
  if (!writer) std::abort();
  uint64_t state = seed;
  auto random = [&](uint32_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>((state >> 33) % bound);
  };
  for (uint32_t i = 0; i < packets; ++i) {
    const std::string s4 = fmt::format("10.{}.{}.{}", random(4), random(256), 1 + random(254));
    const std::string d4 = fmt::format("192.0.{}.{}", random(6), 1 + random(254));
    const std::string s6 = fmt::format("2001:db8:{:x}::{:x}", random(16), 1 + random(9999));
    const std::string d6 = fmt::format("2001:db8:f{:x}::{:x}", random(6), 1 + random(9999));
    const auto sport = static_cast<uint16_t>(1024 + random(64));
    const auto dport = static_cast<uint16_t>(random(3) == 0 ? 80 : random(1024));
    const uint32_t kind = random(40);
    PacketBuilder b = kind % 4 == 0   ? udp6(s6, d6).ports(sport, dport)
                      : kind % 4 == 1 ? tcp4(s4, d4).ports(sport, dport).tcp_flags(static_cast<uint8_t>(random(64)))
                      : kind % 4 == 2 ? udp4(s4, d4).ports(sport, dport)
                                      : tcp6(s6, d6).ports(sport, dport).tcp_flags(0x10);
    b.macs(MacAddress{{2, 0, 0, 0, 0, 9}}, MacAddress{{2, 0, 0, 0, 0, 8}});
    if (random(6) == 0) b.vlan(static_cast<uint16_t>(1 + random(100)));
    if (random(20) == 0) b.vlan(7);
    if (random(12) == 0) b.ttl(static_cast<uint8_t>(random(3)));
    if (random(8) == 0) b.dscp(static_cast<uint8_t>(random(64)));
    const bool v4 = kind % 4 == 1 || kind % 4 == 2;
    switch (kind) {
      case 5:
        b.fragment(8 * random(4), true);
        break;
      case 6: {
        const uint8_t options[] = {7, 4, 5, 0};
        b.ipv4_options(options);
        break;
      }
      case 8:
        b.hop_by_hop().destination_options(2);
        break;
      case 9:
        b.bad_ip_checksum();
        break;
      case 10:
        b.ip_version(5);
        break;
      case 12:
        b.fragment(0, true);
        break;
      case 13:
        b = v4 ? icmp4(s4, d4).icmp(8, 0) : icmp6(s6, d6).icmp(128, 0);
        break;
      case 14:
        b = udp4("127.0.0.1", d4).ports(1, 2);
        break;
      case 16:
        b = udp6("fe80::1", d6).ports(1, 2);
        break;
      case 17:
        b = PacketBuilder::ether(0x0806).payload(28);
        break;
      case 18:
        b = udp4(s4, "203.0.113.9").ports(1, 2);  // no route
        break;
      case 20:
        b = udp6(s6, "2001:db9::1").ports(1, 2);  // no route
        break;
      case 21:
        b.truncate(14 + random(30));
        break;
      case 22:
        b.size(60 + random(200)).payload(random(10));
        break;
      default:
        b.payload(random(600));
        break;
    }
    const std::vector<uint8_t> frame = b.build();
    const auto bytes = static_cast<uint32_t>(frame.size());
    // A microsecond and a bit apart, so that rate limits have something to count.
    if (!writer->append(FrameHeader{bytes, bytes, 1'700'000'000'000'000'000ull + i * 1'234ull}, frame.data()))
      std::abort();
  }
  if (!writer->commit().ok()) std::abort();
  return path;
}

std::string standard_graph_text(const TempDir& dir, const std::string& source, const std::string& sink,
                                const std::string& acl_algorithm, const std::string& algorithm4,
                                const std::string& algorithm6) {
  write_file(dir / "edge.acl",
             "deny tcp from 10.0.0.0/16 to any port 80\n"
             "mark(7) udp from any to 192.0.3.0/24\n"
             "deny udp from 10.1.0.0/16 port 1024-1031 to 192.0.0.0/16\n"
             "deny ip from 2001:db8:3::/48 to any\n"
             "permit tcp from any to any port 0-1023\n"
             "permit ip from any to any dscp 46\n"
             "deny udp from any to 192.0.4.128/25 port 0-511\n"
             "permit ip from 10.0.0.0/8 to any\n"
             "permit ip from 2001:db8::/32 to any\n");
  std::string routes =
      "192.0.0.0/16 a\n192.0.1.0/24 b\n192.0.1.128/25 c\n192.0.1.200/32 d\n192.0.2.0/23 e\n192.0.5.0/24 drop-here\n"
      "2001:db8:f000::/36 a\n2001:db8:f1::/48 b\n2001:db8:f2::/48 c\n2001:db8:f2::7/128 d\n2001:db8:f3::/48 e\n"
      "2001:db8:f0::/48 a\n2001:db8:f4::/48 drop-here\n";
  write_file(dir / "rib.txt", routes);
  write_file(dir / "adj.txt",
             "a 02:00:00:00:01:01 02:00:00:00:00:01 0\n"
             "a 02:00:00:00:01:02 02:00:00:00:00:01 1\n"
             "b 02:00:00:00:02:01 02:00:00:00:00:02 2 vlan 33\n"
             "c 02:00:00:00:03:01 02:00:00:00:00:03 3 mtu 300\n"
             "d 02:00:00:00:04:01 02:00:00:00:00:04 4\n"
             "e 02:00:00:00:05:01 02:00:00:00:00:05 5 weight 3\n"
             "e 02:00:00:00:05:02 02:00:00:00:00:05 6\n"
             "drop-here drop\n");
  return fmt::format(
      "AclTable(edge, FILE {0}, ALGORITHM {1});\n"
      "RouteTable(main, FILE {2}, ALGORITHM {3}, ALGORITHM6 {4});\n"
      "AdjacencyTable(adj, FILE {5}, ROUTES main);\n"
      "in :: {6} -> parse :: IPInput -> acl :: ACL(TABLE edge) -> fib :: IPRoute(TABLE main)\n"
      "  -> ttl :: DecIPTTL -> out :: AdjacencyRewrite(TABLE adj) -> tx :: {7};\n",
      dir / "edge.acl", acl_algorithm, dir / "rib.txt", algorithm4, algorithm6, dir / "adj.txt", source, sink);
}

std::string real_graph_text(const TempDir& dir, const std::string& source, const std::string& sink,
                            const std::string& acl_algorithm, const std::string& algorithm4,
                            const std::string& algorithm6) {
  std::string text = standard_graph_text(dir, source, sink, acl_algorithm, algorithm4, algorithm6);
  write_file(dir / "rib.txt",
             "0.0.0.0/0 a\n128.0.0.0/1 b\n::/0 c\n2a00::/12 d\n10.0.0.0/8 e\n192.0.5.0/24 drop-here\n");
  return text.replace(text.find("TABLE edge"), 10, "TABLE edge, DEFAULT permit");
}

std::string codepoint_graph_text(const std::string& source) {
  // What is not UDP is shorter than it was on the wire from its first Truncate on, so that it cannot be summed.
  return "in :: " + source +
         " -> IPInput -> c :: IPClassifier(udp, -);\n"
         "c[0] -> SetIPDSCP(46) -> acl :: ACL(TABLE edge);\n"
         "c[1] -> Truncate(60) -> acl -> IPRoute(TABLE main) -> SetIPDSCP(10) -> DecIPTTL -> AdjacencyRewrite(TABLE "
         "adj)\n"
         "  -> copy :: Tee(2);\n"
         "copy[0] -> Truncate(62) -> out :: ToDump($OUT);\n"
         "copy[1] -> SetIPDSCP(63) -> Truncate(64, EXTRA_LENGTH false) -> SetCRC32 -> second :: ToDump($OUT2);\n";
}

}  // namespace sluice::testing
