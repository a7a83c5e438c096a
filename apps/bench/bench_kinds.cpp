// sluice bench kinds: the standard graph on each kind of packet that networks have, beside plain IPv4 of the same
// rounds, and a filter by the share of packets that it drops, beside the same filter when it drops none: so that no
// kind and no share is far slower than the others unseen. host only
#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/sluice/inputs.h"
#include "apps/sluice/pipeline.h"
#include "base/sha256.h"
#include "bench.h"
#include "generate/random.h"
#include "generate/routes.h"
#include "generate/rules.h"
#include "generate/traffic.h"
#include "net/checksum.h"
#include "net/parse.h"
#include "ports/pcap/capture_writer.h"

namespace sluice::app {
namespace {

constexpr uint32_t kCaptured = 65'536;  // packets of a capture
constexpr uint32_t kEthernetBytes = 14, kTagBytes = 4;
constexpr double kFewestForwarded = 0.9;

// What is done to a frame after it is made.
enum class Change : uint8_t { kNone, kServiceTag, kFragment, kOptions, kAny };

struct Kind {
  const char* name;
  uint32_t bytes;  // with FCS; 0: the 7:4:1 mix of 64, 570 and 1518
  double ipv6 = 0, vlan = 0;
  Change change = Change::kNone;
};
// The first is what the others are compared with. IPv6 frames are as long as their headers.
constexpr Kind kKinds[] = {
    {"ipv4", 64},
    {"ipv6", 82, 1},
    {"vlan", 64, 0, 1},
    {"qinq", 64, 0, 1, Change::kServiceTag},
    {"fragments", 64, 0, 0, Change::kFragment},
    {"options", 64, 0, 0, Change::kOptions},
    {"imix", 0},
    {"mixed", 0, 0.3, 0.3, Change::kAny},
};
constexpr uint32_t kMostAdded = 16;

// Of a list that denies by source port, and of which part of the packets; in runs: of so many packets in a row.
struct Share {
  const char* name;
  double dropped;
  uint32_t run = 1;
};
// The first is what the others are compared with.
constexpr Share kShares[] = {{"drop/0", 0},    {"drop/1", 0.01},          {"drop/10", 0.1},
                             {"drop/30", 0.3}, {"drop/50", 0.5},          {"drop/90", 0.9},
                             {"drop/100", 1},  {"drop/10/runs", 0.1, 64}, {"drop/50/runs", 0.5, 64}};
constexpr const char* kFilter =
    "deny tcp from any port 40000-65535 to any\ndeny udp from any port 40000-65535 to any\n"
    "permit ip from any to any\n";
constexpr uint16_t kDeniedPort = 50'000, kPermittedPort = 20'000;

void insert(uint8_t* frame, FrameHeader& header, uint32_t at, std::initializer_list<uint8_t> bytes) {
  std::memmove(frame + at + bytes.size(), frame + at, header.captured - at);
  std::copy(bytes.begin(), bytes.end(), frame + at);
  header.captured += static_cast<uint32_t>(bytes.size());
  header.wire_bytes += static_cast<uint32_t>(bytes.size());
}

// Where an IPv4 header without options begins; 0: there is none.
uint32_t ipv4_of(const uint8_t* frame) {
  const uint32_t at = load_be16(frame + 12) == 0x8100 ? kEthernetBytes + kTagBytes : kEthernetBytes;
  return load_be16(frame + at - 2) == 0x0800 && frame[at] == 0x45 ? at : 0;
}

void seal(uint8_t* ip) {
  store_be16(ip + 10, ipv4_header_checksum(ip, (ip[0] & 15u) * 4));
}

void change_frame(uint8_t* frame, FrameHeader& header, Change change, uint64_t number) {
  if (change == Change::kAny) {
    constexpr Change kEach[] = {Change::kNone, Change::kServiceTag, Change::kFragment, Change::kOptions};
    change = kEach[number % std::size(kEach)];
  }
  const uint32_t at = ipv4_of(frame);
  switch (change) {
    case Change::kServiceTag:
      if (load_be16(frame + 12) == 0x8100) insert(frame, header, 12, {0x88, 0xa8, 0, 7});
      break;
    case Change::kFragment: {
      if (at == 0) break;
      // The first, one of the middle and the last one, in turn: more fragments, and the offset in units of 8 bytes.
      constexpr uint16_t kFields[] = {0x2000, 0x2000 | 185, 370};
      store_be16(frame + at + 6, kFields[number / 4 % 3]);
      seal(frame + at);
      break;
    }
    case Change::kOptions:
      if (at == 0) break;
      // Record Route with room for one address (RFC 791), and the end of the list.
      insert(frame, header, at + 20, {7, 7, 4, 0, 0, 0, 0, 0});
      frame[at] = 0x47;
      store_be16(frame + at + 2, static_cast<uint16_t>(load_be16(frame + at + 2) + 8));
      seal(frame + at);
      break;
    default:
      break;
  }
}

// Whether the parser sees the kind in a frame that was made to be one.
bool is_of(const Kind& kind, const uint8_t* frame, const FrameHeader& header) {
  Headers h;
  if (parse_ethernet(frame, header.captured, header.wire_bytes, h) != ParseStatus::kOk) return false;
  const bool v4 = h.key.family == 4;
  if (kind.change == Change::kAny) return true;
  if (v4 != (kind.ipv6 == 0)) return false;
  const uint8_t tags = kind.change == Change::kServiceTag ? 2 : kind.vlan > 0 ? 1 : 0;
  // Fragments: MF or an offset (RFC 791).
  const bool fragment = v4 && (load_be16(frame + h.l3_offset + 6) & 0x3fff) != 0;
  const bool options = (h.flags & Headers::kIpv4Options) != 0;
  return h.vlan_count == tags && fragment == (kind.change == Change::kFragment) &&
         options == (kind.change == Change::kOptions);
}

// Gives a plain frame of TCP or UDP the port by which it is dropped or not; others have none, and pass.
void choose_fate(uint8_t* frame, const Share& share, uint64_t number, uint64_t seed) {
  if (const uint8_t protocol = frame[kEthernetBytes + 9]; protocol != kProtocolTcp && protocol != kProtocolUdp) return;
  const uint64_t random = mix64(seed + number);
  bool dropped = static_cast<double>(random >> 11) * 0x1p-53 < share.dropped;
  if (share.run > 1) {
    const auto before = static_cast<double>(number / share.run);
    dropped = std::floor((before + 1) * share.dropped) > std::floor(before * share.dropped);
  }
  const auto spread = static_cast<uint16_t>(random & 1023);
  store_be16(frame + kEthernetBytes + 20, static_cast<uint16_t>((dropped ? kDeniedPort : kPermittedPort) + spread));
}

// `share`: of plain packets, or nullptr.
void write_kind(const std::string& file, const Kind& kind, const Rib& rib, uint64_t seed,
                const Share* share = nullptr) {
  TrafficOptions t;
  t.packets = kCaptured;
  t.flows = kCaptured;
  t.zipf = 0;
  t.size_mix = kind.bytes == 0 ? SizeMix::kImix : SizeMix::kFixed;
  if (kind.bytes != 0) t.fixed_bytes = kind.bytes;
  t.ipv6_fraction = kind.ipv6;
  t.vlan_fraction = kind.vlan;
  t.seed = seed;
  if (kind.ipv6 < 1)
    for (const Route4& r : rib.routes4()) t.destinations.push_back({{0, r.address, 4}, r.length});
  if (kind.ipv6 > 0) {
    // As many of them as the kind's part of the packets.
    const size_t wanted =
        kind.ipv6 < 1 ? static_cast<size_t>(static_cast<double>(t.destinations.size()) * kind.ipv6 / (1 - kind.ipv6))
                      : rib.routes6().size();
    const auto routes6 = rib.routes6();
    for (size_t i = 0; i < wanted; ++i) {
      const Route6& r = routes6[i % routes6.size()];
      t.destinations.push_back({{r.hi, r.lo, 6}, r.length});
    }
  }
  auto writer = need(CaptureWriter::create(file), Exit::kIo);
  TrafficGenerator generator = need(TrafficGenerator::create(t));
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame + kMostAdded);
  for (uint64_t i = 0; i < kCaptured; ++i) {
    FrameHeader header = generator.next(frame.data());
    change_frame(frame.data(), header, kind.change, kind.change == Change::kAny ? i : 4 * i);
    if (share != nullptr) choose_fate(frame.data(), *share, i, seed);
    if (!is_of(kind, frame.data(), header))
      fail(Exit::kCheckFailed, fmt::format("packet {} made for '{}' is not of that kind", i + 1, kind.name));
    if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
  }
  need(writer.commit(), Exit::kIo);
}

// A router with the lists and routes of the options.
StandardGraph kinds_graph(const BenchOptions& o, const OpenDevices& devices, const BenchFolder& folder, Sha256& hash) {
  const std::string rules = need(generate_rules({.count = o.count, .seed = o.seed}), Exit::kUsage);
  const RoutesOptions r{.ipv4_count = o.ipv4, .ipv6_count = o.ipv6, .seed = o.seed};
  const std::string routes = need(generate_routes(r), Exit::kUsage);
  hash.update(rules);
  hash.update(routes);
  StandardGraph graph;
  graph.acl = folder / "rules";
  graph.acl_algorithm = acl_algorithm_on(devices, "");
  graph.routes = {folder / "routes"};
  graph.permit_by_default = true;
  // A router with addresses of its own processes options.
  graph.icmp_errors = true;
  graph.icmp_sources = {"192.0.2.1", "2001:db8::1"};
  const LpmNames names = route_algorithms_on(devices, "");
  graph.route_algorithm = names.algorithm4;
  graph.route_algorithm6 = names.algorithm6;
  write_file(graph.acl, rules);
  write_file(graph.routes[0], routes);
  return graph;
}

// What is measured: `base`, the number of the row that it is compared with.
struct MeasuredKind {
  Case row;
  size_t base;
  double fewest, most;  // part of the packets that is forwarded
  std::unique_ptr<Pipeline> pipeline;
  std::shared_ptr<FrameCache> frames;
};

// How much each row's rate is of its base's, the worst first.
std::vector<Case> ratios_of(const std::vector<MeasuredKind>& all) {
  std::vector<Case> ratios;
  for (size_t k = 0; k < all.size(); ++k) {
    const Case &row = all[k].row, &base = all[all[k].base].row;
    if (all[k].base == k || row.values.size() != base.values.size()) continue;
    Case ratio{fmt::format("{}/of_{}", row.name, base.name), "1", {}};
    for (size_t round = 0; round < row.values.size(); ++round)
      ratio.values.push_back(row.values[round] / base.values[round]);
    ratios.push_back(std::move(ratio));
  }
  std::stable_sort(ratios.begin(), ratios.end(),
                   [](const Case& a, const Case& b) { return median(a.values) < median(b.values); });
  return ratios;
}

Exit bench_kinds(const BenchOptions& o) {
  const OpenDevices devices = open_devices(o.device);
  const bool host = devices.options.devices.empty();
  BenchFolder folder;
  Progress progress("");
  progress.step("generating tables and traffic");
  Sha256 hash;
  const StandardGraph graph = kinds_graph(o, devices, folder, hash);
  InputSet inputs;
  const Rib rib = read_routes(inputs, graph.routes, nullptr);

  std::vector<MeasuredKind> all;
  Verified verified{0, 0, "linear, trie"};
  const auto add = [&](const char* name, const StandardGraph& of, size_t base, double fewest, double most,
                       auto&& write) {
    progress.step(fmt::format("checking {}", name));
    const std::string capture = folder / fmt::format("{}.pcap", all.size());
    write(capture);
    hash.update(need(sha256_of_file(capture), Exit::kIo));
    check_graph(o, of, capture, folder, name, verified);
    StandardGraph mine = of;
    mine.in = capture;
    mine.in_memory = true;
    mine.limit = o.packets != 0 ? o.packets : host ? 2'000'000 : 200'000'000;
    auto pipeline = parse_pipeline(need(standard_graph_text(mine)), "standard graph", {});
    // The graphs of a base differ in their captures alone.
    if (base == all.size())
      load_pipeline_tables(*pipeline, {});
    else
      pipeline->tables = all[base].pipeline->tables;
    all.push_back({{name, "Mpackets/s", {}}, base, fewest, most, std::move(pipeline), std::make_shared<FrameCache>()});
  };
  for (const Kind& kind : kKinds) {
    add(kind.name, graph, 0, kFewestForwarded, 1,
        [&](const std::string& file) { write_kind(file, kind, rib, o.seed); });
  }
  StandardGraph filter = graph;
  filter.icmp_errors = false;
  filter.acl = folder / "filter";
  write_file(filter.acl, kFilter);
  hash.update(std::string(kFilter));
  const size_t first_share = all.size();
  for (const Share& share : kShares) {
    // A twentieth of the packets is ICMP, which has no port.
    const double passes = 1 - share.dropped, off = 0.1;
    add(share.name, filter, first_share, passes - off, passes + off,
        [&](const std::string& file) { write_kind(file, kKinds[0], rib, o.seed, &share); });
  }

  // In turns, so that what the machine does besides falls on all kinds.
  BenchOptions once = o;
  once.repetitions = 1;
  for (unsigned round = 0; round < o.repetitions; ++round) {
    for (MeasuredKind& m : all) {
      if (!m.row.reason.empty()) continue;
      Case one = measure_pipeline(once, devices, *m.pipeline, host ? 256 : 4096, m.row.name, m.frames, progress);
      if (!one.reason.empty()) {
        m.row = std::move(one);
        continue;
      }
      if (const double part = one.more["forwarded_part"]; part < m.fewest || part > m.most)
        fail(Exit::kCheckFailed, fmt::format("{}: {:.0f} % of its packets are forwarded", m.row.name, 100 * part));
      m.row.values.push_back(one.values[0]);
      m.row.more = std::move(one.more);
    }
  }
  std::vector<Case> cases = ratios_of(all);
  for (MeasuredKind& m : all) cases.push_back(std::move(m.row));
  progress.clear();
  return bench_report(o, "kinds", hash.finish(), verified, std::move(cases),
                      {{"device", devices.label},
                       {"gpu", gpu_name(devices)},
                       {"workers", o.workers},
                       {"routes4", rib.routes4().size()},
                       {"routes6", rib.routes6().size()}});
}

}  // namespace

void add_bench_kinds(Command bench) {
  auto o = std::make_shared<BenchOptions>();
  o->count = 1000;
  o->ipv4 = 100'000;
  o->ipv6 = 20'000;
  Command sub = add_subcommand(
      bench, "kinds", "Subcommands",
      "Measures the standard graph by kind of packet: IPv4, IPv6, VLAN, QinQ, fragments, options, IMIX and a mix of "
      "all, and a filter by the share of packets that it drops, in turns, and the ratio of each rate to that of plain "
      "IPv4 and of no drops, the lowest first",
      "sluice bench kinds\nsluice bench kinds --ipv4 900000 --ipv6 160000 --workers 2 -o json", [o] {
        o->standing = {.lists = true, .routes = true};
        return bench_kinds(*o);
      });
  sub->add_number("--count", "N", o->count, "Generated rules", Range(10u, 1'000'000u));
  sub->add_number("--ipv4", "N", o->ipv4, "Generated IPv4 routes", Range(1u, 2'000'000u));
  sub->add_number("--ipv6", "N", o->ipv6, "Generated IPv6 routes", Range(1u, 2'000'000u));
  sub->add_option("--packets", "N", o->packets, "Packets per kind, worker and round (default 2,000,000)");
  add_workers_option(*sub, o->workers);
  add_device_options(*sub, o->device, true);
  sub->add_number("--repetitions", "N", o->repetitions, "Rounds, at least 5", Range(5u, 1000u));
  sub->add_number("--sample", "N", o->sample, "Packets of each kind first compared with the reference",
                  Range(uint64_t{1}, uint64_t{100'000'000}));
  sub->add_option("--seed", "N", o->seed, "Seed of tables and packets")->capture_default_str();
  sub->add_option("--name", "NAME", o->name, "Name of the measurement in the JSON (default bench_kinds)");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
