// host only
#include "soak.h"

#include <algorithm>

#include "base/sha256.h"
#include "bench.h"
#include "control/standard_graph.h"
#include "elements/ip_input/stage.h"
#include "generate/routes.h"
#include "generate/rules.h"
#include "ports/pcap/capture_writer.h"

namespace sluice::app {
namespace {

constexpr unsigned kClassBits4 = 8, kClassBits6 = 10;
constexpr uint32_t kHops = 64;  // of each class

void set_class(IpAddress& a, uint32_t variant) {
  if (a.family == 4) {
    a.lo = (a.lo & ~(uint64_t{3} << (32 - kClassBits4))) | uint64_t{variant} << (32 - kClassBits4);
  } else {
    a.hi = (a.hi & ~(uint64_t{3} << (64 - kClassBits6))) | uint64_t{variant} << (64 - kClassBits6);
  }
}

uint32_t class_of(const IpAddress& a) {
  return static_cast<uint32_t>(a.family == 4 ? a.lo >> (32 - kClassBits4) : a.hi >> (64 - kClassBits6)) & 3;
}

// The blocks that a class is made of.
std::vector<IpPrefix> blocks(uint32_t variant) {
  std::vector<IpPrefix> all;
  for (uint64_t octet = variant; octet < 224; octet += kVariants) {
    if (octet == 0 || octet == 10 || octet == 127) continue;
    all.push_back({{0, octet << (32 - kClassBits4), 4}, kClassBits4});
  }
  for (uint64_t top = 128 + variant; top < 256; top += kVariants)
    all.push_back({{top << (64 - kClassBits6), 0, 6}, kClassBits6});
  return all;
}

// The tables of one variant as text, and where packets of its class go.
struct Variant {
  std::string rules, routes, adjacencies;
  std::vector<FlowRegion> regions;
  std::vector<IpPrefix> destinations;
};

// Rules that permit destinations of class `v` alone, its blocks last of all.
void make_rules(const SoakOptions& o, uint32_t v, Variant& made) {
  RulesOptions r;
  r.count = o.rules;
  r.seed = o.seed + v;
  r.ipv6_fraction = 0.2;
  made.regions = need(generate_rule_regions(r), Exit::kUsage);
  for (FlowRegion& region : made.regions) {
    IpPrefix& dst = region.dst;
    if (dst.address.family == 0) {
      dst.address.family = region.src.address.family == 6 ? 6 : 4;
      if (dst.address.family == 6) dst.address.hi = uint64_t{1} << 61;
    }
    const unsigned least = dst.address.family == 4 ? kClassBits4 : kClassBits6;
    if (dst.address.family == 4 && dst.length < least) dst.address.lo |= uint64_t{64} << (32 - kClassBits4);
    dst.length = static_cast<uint8_t>(std::max<unsigned>(dst.length, least));
    set_class(dst.address, v);
    // A region of one family on one side is of that family on both.
    if (region.src.address.family == 0) region.src.address.family = dst.address.family;
  }
  const std::string text = need(to_native(made.regions, o.seed));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1);
    const std::string line = text.substr(at, end + 1 - at);
    made.rules += line.rfind("deny ", 0) == 0 ? "permit " + line.substr(5) : line;
    at = end + 1;
  }
  for (const IpPrefix& block : blocks(v)) made.rules += fmt::format("permit ip from any to {}\n", to_string(block));
}

void make_routes(const SoakOptions& o, uint32_t v, const std::vector<GeneratedRoute>& routes, Variant& made) {
  // All next hops are named first and in the same order, so that an id means the same in every variant.
  for (uint32_t c = 0; c < kVariants; ++c) {
    for (uint32_t h = 0; h < kHops; ++h) {
      made.routes += fmt::format("10.0.{}.{}/32 c{}h{}\n", c, h, c, h);
      made.adjacencies += c == v ? fmt::format("c{0}h{1} 02:00:00:{0:02x}:{1:02x}:01 02:00:00:00:00:01 {0}\n", c, h)
                                 : fmt::format("c{}h{} drop\n", c, h);
    }
  }
  for (const IpPrefix& block : blocks(v)) made.routes += fmt::format("{} c{}h0\n", to_string(block), v);
  std::vector<const GeneratedRoute*> mine;
  for (const GeneratedRoute& route : routes) {
    const bool long_enough = route.prefix.length > (route.prefix.address.family == 4 ? kClassBits4 : kClassBits6);
    if (long_enough && class_of(route.prefix.address) == v) mine.push_back(&route);
  }
  // Classes have unequal shares of a table: as many of each, evenly drawn.
  const size_t wanted = std::min<size_t>(mine.size(), o.routes);
  for (size_t i = 0; i < wanted; ++i) {
    const GeneratedRoute& route = *mine[i * mine.size() / wanted];
    made.routes += fmt::format("{} c{}h{}\n", to_string(route.prefix), v, route.next_hop % kHops);
    made.destinations.push_back(route.prefix);
  }
}

std::vector<Variant> make_variants(const SoakOptions& o) {
  RoutesOptions ro;
  ro.ipv4_count = std::min(2'000'000u, 6 * (o.routes - o.routes / 8));
  ro.ipv6_count = std::min(2'000'000u, 6 * (o.routes / 8));
  ro.seed = o.seed;
  const std::vector<GeneratedRoute> routes = need(generate_route_list(ro), Exit::kUsage);
  std::vector<Variant> variants(kVariants);
  for (uint32_t v = 0; v < kVariants; ++v) {
    make_rules(o, v, variants[v]);
    make_routes(o, v, routes, variants[v]);
  }
  return variants;
}

// Packets of the four classes in turn, half of each by its rules and half by its routes.
void write_capture(const SoakOptions& o, const std::vector<Variant>& variants, const std::string& path) {
  std::vector<TrafficGenerator> by_rule, by_route;
  for (const Variant& v : variants) {
    TrafficOptions t;
    t.packets = kSoakPackets;
    t.flows = kSoakPackets;
    t.zipf = 0;
    t.size_mix = SizeMix::kFixed;
    t.fixed_bytes = o.size;
    t.seed = o.seed;
    t.regions = v.regions;
    by_rule.push_back(need(TrafficGenerator::create(t)));
    t.regions.clear();
    t.destinations = v.destinations;
    by_route.push_back(need(TrafficGenerator::create(t)));
  }
  auto writer = need(CaptureWriter::create(path), Exit::kIo);
  std::vector<uint8_t> frame(TrafficGenerator::kMaxFrame);
  for (uint32_t i = 0; i < kSoakPackets; ++i) {
    auto& generator = (i / kVariants % 2 == 0 ? by_rule : by_route)[i % kVariants];
    FrameHeader header;
    uint32_t tries = 0;
    // Only packets that pass the header checks, and lie in a block of their class.
    for (bool good = false; !good; ++tries) {
      if (tries == 10'000) fail(Exit::kCheckFailed, "no packet can be made for these rules and routes");
      header = generator.next(frame.data());
      Packet p;
      p.frame = frame.data();
      p.end = header.captured;
      p.wire_end = header.wire_bytes;
      if (IpInputStage{}(p) != 0) continue;
      if (p.key.family == 4) {
        const uint64_t octet = p.key.dst_lo >> (32 - kClassBits4);
        good = octet != 10 && octet < 224;
      } else {
        good = p.key.dst_hi >> 61 == 1;
      }
    }
    if (!writer.append(header, frame.data())) fail(Exit::kIo, writer.error());
  }
  need(writer.commit(), Exit::kIo);
}

}  // namespace

SoakInputs make_soak_inputs(const SoakOptions& o, const OpenDevices& devices, const TemporaryFolder& folder,
                            Progress& progress) {
  const std::string algorithm = acl_algorithm_on(devices, o.algorithm);
  const LpmNames names = route_algorithms_on(devices, o.route_algorithm, "--route-algorithm");
  progress.step("generating tables and traffic");
  const std::vector<Variant> variants = make_variants(o);
  Sha256 hash;
  for (const Variant& v : variants) {
    for (const std::string* text : {&v.rules, &v.routes, &v.adjacencies}) hash.update(*text);
  }
  StandardGraph g;
  g.acl = folder / "rules";
  g.acl_algorithm = algorithm;
  g.routes = {folder / "routes"};
  g.adjacencies = {folder / "adjacencies"};
  g.route_algorithm = names.algorithm4;
  g.route_algorithm6 = names.algorithm6;
  g.in = folder / "in.pcap";
  g.in_memory = true;
  g.limit = 1'000'000'000'000'000;
  write_capture(o, variants, g.in);
  hash.update(need(sha256_of_file(g.in), Exit::kIo));
  stop_if_interrupted();
  SoakInputs made;
  made.hash = "sha256:" + hash.finish();
  made.routes = variants[0].destinations.size();
  made.pipeline = parse_pipeline(need(standard_graph_text(g)), "standard graph", {});
  for (uint32_t v = 0; v < kVariants; ++v) {
    write_file(folder / "rules", variants[v].rules);
    write_file(folder / "routes", variants[v].routes);
    write_file(folder / "adjacencies", variants[v].adjacencies);
    load_pipeline_tables(*made.pipeline, {});
    made.tables[v] = std::move(made.pipeline->tables);
    made.pipeline->tables = {};
  }
  for (const auto* kind : {&made.tables[0].acls, &made.tables[0].routes, &made.tables[0].adjacencies}) {
    for (const auto& [name, image] : *kind) made.table_bytes += image->bytes().size();
  }
  return made;
}

}  // namespace sluice::app
