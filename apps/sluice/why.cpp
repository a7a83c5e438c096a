// sluice why: what a running process would do with a packet, and why. host only
#include "control/why.h"

#include "base/printable.h"
#include "control/command_text.h"
#include "live.h"
#include "live_client.h"

namespace sluice::app {
namespace {

struct WhyFlags : ClientFlags {
  std::vector<std::string> packet;
  std::string in;
  unsigned near = 3;
};

Exit ask_why(const WhyFlags& flags) {
  const std::vector<uint8_t> frame =
      need(parse_packet_text(fmt::format("{}", fmt::join(flags.packet, " ")), "PACKET"), Exit::kBadInput);
  std::string hex;
  for (const uint8_t byte : frame) hex += fmt::format("{:02x}", byte);
  const Json r = request(flags, {{"command", "why"}, {"frame", hex}, {"in", flags.in}, {"near", flags.near}});
  return print(r, json_output() ? std::string() : why_text(r));
}

}  // namespace

void add_why(Command root) {
  auto o = std::make_shared<WhyFlags>();
  Command sub = add_subcommand(
      root, "why", "Start here",
      "Asks a running process what it would do with a packet, and why: the verdict, the rule that decides with its "
      "file and line, the rules that almost match, the route with its source, the neighbour, the output. Nothing is "
      "sent, and nothing counted. 'sluice explain' asks files.",
      "sluice why 'udp 10.0.0.1 > 10.0.0.2:53'\n"
      "sluice why 'tcp 10.0.0.1:1234 > 192.0.2.7:443 flags S' --in eth0\n"
      "sluice why 'icmp 2001:db8::1 > 2001:db8::2' -o json",
      [o] { return answered([&] { return ask_why(*o); }); });
  sub->add_option("packet", o->packet,
                  "PROTOCOL SRC[:PORT] > DST[:PORT], with tcp, udp, sctp, icmp or ip as the protocol, then [flags SYN] "
                  "[ttl N] [dscp N] [len N] [df] [frag N] [vlan N]")
      ->required()
      ->type_name("PACKET");
  sub->add_option("--in", o->in, "The input by which it comes in: an interface, or an element (default: the first)")
      ->type_name("IF");
  sub->add_option("--near", o->near, "Near misses to show")
      ->check(Range(0u, 100u))
      .type_name("N")
      ->capture_default_str();
  add_socket_option(sub, *o);
}

}  // namespace sluice::app
