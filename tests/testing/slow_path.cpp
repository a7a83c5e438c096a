#include "tests/testing/slow_path.h"

#include <fmt/format.h>

#include <cstdlib>

#include "control/standard_graph.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"

namespace sluice::testing {

void write_slow_path_capture(const std::string& path, uint32_t packets, uint64_t seed) {
  auto writer = CaptureWriter::create(path);
  if (!writer) std::abort();
  uint64_t state = seed;
  auto random = [&](uint32_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>((state >> 33) % bound);
  };
  const std::vector<std::vector<uint8_t>> options = {
      {7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0},
      {68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0},
      {68, 8, 9, 0x10, 1, 2, 3, 4},
      {148, 4, 0, 0},
      {130, 3, 9, 148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0},
      {7, 1, 4},
      {7, 7, 3, 0, 0, 0, 0},
      {131, 7, 4, 1, 2, 3, 4},
  };
  for (uint32_t i = 0; i < packets; ++i) {
    const std::string s4 = fmt::format("10.{}.{}.{}", random(4), random(256), 1 + random(254));
    const std::string s6 = fmt::format("2001:db8::{:x}", 1 + random(9999));
    // 0, 1: any size; 2, 3: small links; 4: no neighbour; 5: no route.
    const uint32_t where = random(8) % 6;
    const bool six = random(4) == 0;
    PacketBuilder b = six ? udp6(s6, fmt::format("2001:db8:{:x}::{:x}", 16 + where, 1 + random(99)))
                          : udp4(s4, fmt::format("198.51.{}.{}", where, 1 + random(254)));
    b.ports(static_cast<uint16_t>(1024 + random(64)), 53).id(static_cast<uint16_t>(random(65536)));
    const uint32_t kind = random(16);
    uint32_t payload = random(200);
    if (kind >= 8 && kind < 12) payload = 400 + random(2600);
    if (random(4) == 0) b.dont_fragment();
    if (!six && (kind == 11 || kind == 12 || kind == 13))
      b.ipv4_options(options[random(static_cast<uint32_t>(options.size()))]);
    if (kind == 14) b.ttl(static_cast<uint8_t>(random(2)));
    if (kind == 9 && random(2) == 0) b.fragment(8 * random(300), true);
    if (random(10) == 0) b.vlan(static_cast<uint16_t>(1 + random(100)));
    const std::vector<uint8_t> frame = b.payload(payload).build();
    const auto bytes = static_cast<uint32_t>(frame.size());
    if (!writer->append(FrameHeader{bytes, bytes, 1'700'000'000'000'000'000ull + i * 123'456ull}, frame.data()))
      std::abort();
  }
  if (!writer->commit().ok()) std::abort();
}

std::string slow_path_graph_text(const TempDir& dir, bool by_port) {
  write_file(dir / "slow.acl", "deny udp from 10.3.0.0/24 to any\npermit ip from any to any\n");
  write_file(
      dir / "slow.rib",
      "10.0.0.0/8 back\n198.51.0.0/24 a\n198.51.1.0/24 b\n198.51.2.0/24 c\n198.51.3.0/24 d\n198.51.4.0/24 nobody\n"
      "2001:db8::/48 back\n2001:db8:10::/48 a\n2001:db8:11::/48 b\n2001:db8:12::/48 c\n2001:db8:13::/48 d\n"
      "2001:db8:14::/48 nobody\n");
  // Two neighbours with different MTUs: a fragment of a flow may meet the smaller one.
  write_file(dir / "slow.adj",
             "back 02:00:00:00:00:0a 02:00:00:00:00:01 0\na 02:00:00:00:01:01 02:00:00:00:00:01 0\n"
             "b 02:00:00:00:02:01 02:00:00:00:00:02 1 vlan 33\nc 02:00:00:00:03:01 02:00:00:00:00:03 1 mtu 300\n"
             "d 02:00:00:00:04:01 02:00:00:00:00:04 2 mtu 1400\nd 02:00:00:00:04:02 02:00:00:00:00:04 1 mtu 700\n");
  StandardGraph g;
  g.acl = dir / "slow.acl";
  g.acl_algorithm = "tuple_space";
  g.routes = {dir / "slow.rib"};
  g.route_algorithm = g.route_algorithm6 = "poptrie";
  g.adjacencies = {dir / "slow.adj"};
  g.in = dir / "in.pcap";
  g.out = dir / "OUT";
  if (by_port) g.port_out = {{uint16_t{1}, dir / "OUT2"}};
  g.icmp_errors = g.icmp_for_denied = true;
  g.icmp_sources = {"192.0.2.1", "2001:db8::ff"};
  auto text = standard_graph_text(g);
  if (!text) std::abort();
  return *text;
}

}  // namespace sluice::testing
