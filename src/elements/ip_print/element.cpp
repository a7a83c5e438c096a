// host only
#include <fmt/format.h>

#include "elements/stage_element.h"
#include "elements/text_output.h"
#include "graph/router.h"
#include "net/bytes.h"
#include "net/l4.h"
#include "net/text.h"

namespace sluice {
namespace {

class IpPrint final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    options_ = PrintOptions::read(arguments);
    id_ = arguments.get_bool("ID");
    paint_ = arguments.get_bool("PAINT");
    tos_ = arguments.get_bool("TOS");
    ttl_ = arguments.get_bool("TTL");
    length_ = arguments.get_bool("LENGTH");
  }
  ElementKind kind() const override { return ElementKind::kHost; }
  StageTraits stage_traits() const override { return {kFieldKey | kFieldL3, 0}; }

  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    if (options_.active) {
      std::string line;
      packets.for_each([&](uint32_t i) {
        line.assign(options_.prefix);
        describe(batch, i, line);
        context.print(batch, i, line);
      });
    }
    context.forward(0, packets);
  }

 private:
  // Reads only bytes that are there: a header check has seen the network header, nobody the rest.
  void describe(const Batch& batch, uint32_t i, std::string& line) const {
    auto out = std::back_inserter(line);
    const FlowKey& key = batch.key(i);
    const Extent& e = batch.extent(i);
    const uint32_t header_bytes = key.family == 6 ? 40u : 20u;
    if (options_.timestamp) fmt::format_to(out, "{}: ", timestamp_text(batch.timestamp_ns(i)));
    if (key.family == 0 || e.end < e.l3 + header_bytes) {
      line += "(Not an IP packet)";
      return;
    }
    const uint8_t* ip = batch.frame(i) + e.l3;
    const bool v4 = key.family == 4;
    const uint32_t ip_bytes = v4 ? load_be16(ip + 2) : load_be16(ip + 4) + 40u;
    const uint32_t payload = v4 ? ip_bytes - (ip[0] & 15u) * 4 : ip_bytes - 40;
    if (id_ && v4) fmt::format_to(out, "id {} ", load_be16(ip + 4));
    if (paint_) fmt::format_to(out, "paint {} ", batch.annotation(i).paint);
    if (ttl_) fmt::format_to(out, "ttl {} ", v4 ? ip[8] : ip[7]);
    if (tos_) fmt::format_to(out, "tos {} ", v4 ? ip[1] : (load_be16(ip) >> 4 & 255));
    if (length_) fmt::format_to(out, "length {} ", ip_bytes);
    const std::string source = to_string(IpAddress{key.src_hi, key.src_lo, key.family});
    const std::string destination = to_string(IpAddress{key.dst_hi, key.dst_lo, key.family});
    const bool icmp = key.protocol == (v4 ? kProtocolIcmp : kProtocolIcmpv6);
    const bool later = (key.bits & FlowKey::kLaterFragment) != 0;
    const uint8_t* l4 = batch.frame(i) + e.l4;
    if (!later && key.protocol == kProtocolTcp && (key.bits & FlowKey::kHasPorts) != 0) {
      const uint8_t flags = l4[13];
      uint32_t bytes = payload - (l4[12] >> 4) * 4u - (v4 ? 0 : static_cast<uint32_t>(e.l4 - e.l3 - 40));
      fmt::format_to(out, "{}.{} > {}.{}: ", source, key.src_port, destination, key.dst_port);
      if ((flags & kTcpSyn) != 0) line += 'S', ++bytes;
      if ((flags & kTcpFin) != 0) line += 'F', ++bytes;
      if ((flags & kTcpRst) != 0) line += 'R';
      if ((flags & kTcpPsh) != 0) line += 'P';
      if ((flags & (kTcpSyn | kTcpFin | kTcpRst | kTcpPsh)) == 0) line += '.';
      const uint32_t sequence = load_be32(l4 + 4);
      fmt::format_to(out, " {}:{}({},{},{})", sequence, sequence + bytes, bytes, batch.data_length(i), ip_bytes);
      if ((flags & kTcpAck) != 0) fmt::format_to(out, " ack {}", load_be32(l4 + 8));
      fmt::format_to(out, " win {}", load_be16(l4 + 14));
    } else if (!later && key.protocol == kProtocolUdp && (key.bits & FlowKey::kHasPorts) != 0) {
      fmt::format_to(out, "{}.{} > {}.{}: udp {}", source, key.src_port, destination, key.dst_port, load_be16(l4 + 4));
    } else {
      fmt::format_to(out, "{} > {}: ", source, destination);
      if (icmp) {
        line += v4 ? "icmp" : "icmp6";
        const uint32_t type = key.icmp >> 8;
        const bool reply = type == (v4 ? 0u : 129u);
        const bool request = type == (v4 ? 8u : 128u);
        if (!later && e.l4 != 0xffff && (reply || request) && e.end >= e.l4 + 8u) {
          fmt::format_to(out, ": echo {} ({}, {})", reply ? "reply" : "request", load_be16(l4 + 4), load_be16(l4 + 6));
        } else if (!later) {
          fmt::format_to(out, ": type {}", type);
        }
      } else if (later && (key.protocol == kProtocolTcp || key.protocol == kProtocolUdp)) {
        line += key.protocol == kProtocolTcp ? "tcp" : "udp";
      } else {
        fmt::format_to(out, "ip-proto-{}", key.protocol);
      }
    }
    if ((key.bits & FlowKey::kFragment) != 0 && v4) {
      const uint32_t field = load_be16(ip + 6);
      fmt::format_to(out, " (frag {}:{}@{}{})", load_be16(ip + 4), payload, (field & 0x1fff) * 8,
                     (field & 0x2000) != 0 ? "+" : "");
    }
    if (options_.contents == "no") return;
    line += "\n  ";
    const uint32_t length = batch.data_length(i);
    const uint32_t shown = options_.shown(length);
    const uint8_t* data = batch.frame(i) + e.data;
    if (options_.contents == "hex") {
      append_hex(line, data, shown, 4, 24);
    } else {
      append_ascii(line, data, shown, 8, 48);
    }
  }

  PrintOptions options_;
  bool id_ = false;
  bool paint_ = false;
  bool tos_ = false;
  bool ttl_ = false;
  bool length_ = false;
};

}  // namespace

void register_ip_print(Registry& registry) {
  auto flag = [](const char* name, const char* help, const char* value = "false") {
    return ArgumentSpec{.name = name, .kind = ArgumentKind::kBool, .default_text = value, .help = help};
  };
  ElementClass c;
  c.name = "IPPrint";
  c.aliases = {"IP6Print"};
  c.group = "Debugging";
  c.summary = "prints IP packets to stderr, in the style of tcpdump";
  c.description = "One line per packet, such as `10.0.0.1.1000 > 192.0.2.7.53: udp 26`. Lines come in packet order.";
  c.arguments = {
      {.name = "LABEL", .kind = ArgumentKind::kString, .positional = true, .help = "printed before each line"},
      {.name = "CONTENTS",
       .kind = ArgumentKind::kChoice,
       .default_text = "no",
       .help = "also print the packet's bytes",
       .choices = {"no", "hex", "ascii"}},
      {.name = "MAXLENGTH",
       .kind = ArgumentKind::kInt,
       .default_text = "1500",
       .unit = "bytes",
       .help = "how many of them; -1: all",
       .min = -1,
       .max = 262144},
      {.name = "NBYTES",
       .kind = ArgumentKind::kInt,
       .unit = "bytes",
       .help = "another name of MAXLENGTH",
       .min = -1,
       .max = 262144},
      flag("TIMESTAMP", "print the packet's timestamp", "true"),
      flag("ID", "print the IPv4 identification"),
      flag("PAINT", "print the paint"),
      flag("TOS", "print the type of service or traffic class"),
      flag("TTL", "print the TTL or hop limit"),
      flag("LENGTH", "print the IP packet's length"),
      flag("ACTIVE", "false: print nothing", "true"),
  };
  c.example = "in -> Strip(14) -> CheckIPHeader -> IPPrint(seen) -> out;";
  c.make = make_element<IpPrint>();
  registry.add(std::move(c));
}

}  // namespace sluice
