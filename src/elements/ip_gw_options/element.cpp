// host only
#include <fmt/format.h>

#include <bit>
#include <utility>
#include <vector>

#include "elements/stage_element.h"
#include "elements/verdicts.h"
#include "graph/click/config_text.h"
#include "graph/router.h"
#include "net/edit.h"
#include "net/ipv4_options.h"
#include "net/parse.h"
#include "net/text.h"

namespace sluice {
namespace {

constexpr uint64_t kDayMs = 86'400'000;

OptionPolicy policy(const Arguments& arguments, const char* name) {
  const std::string& text = arguments.get_string(name);
  return text == "process" ? OptionPolicy::kProcess : text == "drop" ? OptionPolicy::kDrop : OptionPolicy::kIgnore;
}

class IpGwOptions final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    rules_.address = arguments.get_ipv4("MYADDR");
    for (const ArgumentValue& value : arguments.all("OTHERADDRS")) {
      for (const ConfigSlice& slice : split_words(value.text)) {
        const std::string_view word = std::string_view(value.text).substr(slice.offset, slice.length);
        const auto address = parse_ip(word);
        if (address && address->family == 4) {
          others_.push_back(static_cast<uint32_t>(address->lo));
        } else {
          diagnostics.add(
              arguments.error_in(value, fmt::format("'{}' is not an IPv4 address", word), slice.offset, slice.length));
        }
      }
    }
    rules_.other_addresses = others_.data();
    rules_.other_count = static_cast<uint32_t>(others_.size());
    rules_.record_route = policy(arguments, "RECORD_ROUTE");
    rules_.timestamp = policy(arguments, "TIMESTAMP");
    rules_.source_route = policy(arguments, "SOURCE_ROUTE");
    rules_.router_alert = policy(arguments, "ROUTER_ALERT");
    rules_.other = policy(arguments, "OTHER");
  }
  ElementKind kind() const override { return ElementKind::kHost; }
  StageTraits stage_traits() const override {
    return {kFieldKey | kFieldL3 | kFieldFrame, kFieldFrame, FrameUse::kHeaders, 0};
  }

  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    forward_by_verdict(context, batch, packets, outputs, [&](uint32_t i) { return judge(batch, i); });
  }

  bool takes_bursts() const override { return true; }
  uint32_t burst(const Batch& batch, FastBurst& burst, uint32_t mask) const override {
    if (burst.family != 4) return mask;
    uint32_t passed = mask & ~burst.odd_lanes();
    for (uint32_t m = mask & ~passed; m != 0; m &= m - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(m));
      uint8_t* ip = burst.ip[lane];
      const uint32_t hop = burst.hop[lane];  // the checksum is its upper half
      const uint16_t flags = burst.flags[lane];
      uint16_t checksum = swap16(static_cast<uint16_t>(hop >> 16)), detail = 0;
      const DropReason why =
          judge(ip, burst.ip_bytes[lane], flags, batch.timestamp_ns(burst.row[lane]), checksum, detail);
      burst.hop[lane] = (hop & 0xffff) | uint32_t{swap16(checksum)} << 16;
      burst.hopped |= m & (0u - m);
      if (why == DropReason::kNone) {
        passed |= m & (0u - m);
        continue;
      }
      if (why == DropReason::kBadOptions) {
        burst.detail[lane] = detail;
        burst.detailed |= m & (0u - m);
      }
      burst.reason[lane] = why;
      burst.output[lane] = outputs > 1 ? uint8_t{1} : kDropOutput;
    }
    return passed;
  }

 private:
  // `bytes`: of the packet, from `ip` on. `detail`: what an ICMP error says of it, with kBadOptions.
  DropReason judge(uint8_t* ip, uint32_t bytes, uint16_t flags, uint64_t timestamp_ns, uint16_t& checksum,
                   uint16_t& detail) const {
    if ((flags & Headers::kIpv4Options) == 0) return DropReason::kNone;
    const uint32_t header_bytes = (ip[0] & 0xfu) * 4;
    if (header_bytes < kIpv4HeaderBytes) return DropReason::kIpv4BadHeaderLength;
    if (header_bytes > bytes) return DropReason::kCapturedTooShort;
    // The packet's own time: the result is the same whenever and by whatever it is computed.
    const auto now_ms = static_cast<uint32_t>(timestamp_ns / 1'000'000 % kDayMs);
    uint32_t pointer = 0;
    switch (process_option_list(ip + kIpv4HeaderBytes, header_bytes - kIpv4HeaderBytes, rules_, now_ms, pointer,
                                checksum)) {
      case OptionVerdict::kForward:
        return DropReason::kNone;
      case OptionVerdict::kRefused:
        return rules_.source_route == OptionPolicy::kDrop && (flags & Headers::kSourceRoute) != 0
                   ? DropReason::kSourceRoute
                   : DropReason::kOptionRefused;
      case OptionVerdict::kBad:
        break;
    }
    detail = static_cast<uint16_t>(pointer);
    return DropReason::kBadOptions;
  }
  DropReason judge(Batch& batch, uint32_t i) const {
    const uint16_t flags = std::as_const(batch).annotation(i).ip_flags;
    const Extent& e = batch.extent(i);
    if (batch.key(i).family != 4 || (flags & Headers::kIpv4Options) == 0) return DropReason::kNone;
    if (e.data > int32_t{e.l3} || e.l3 + kIpv4HeaderBytes > e.end) return DropReason::kCapturedTooShort;
    uint8_t* ip = batch.frame(i) + e.l3;
    uint16_t checksum = load_be16(ip + 10);
    const DropReason why =
        judge(ip, e.end - e.l3, flags, batch.timestamp_ns(i), checksum, batch.annotation(i).icmp_detail);
    if (why == DropReason::kNone) store_be16(ip + 10, checksum);
    return why;
  }

  Ipv4OptionRules rules_;
  std::vector<uint32_t> others_;
};

}  // namespace

void register_ip_gw_options(Registry& registry) {
  const auto choice = [](const char* name, bool process, const char* preset, const char* help) {
    ArgumentSpec spec{.name = name, .kind = ArgumentKind::kChoice, .default_text = preset, .help = help};
    if (process) spec.choices.emplace_back("process");
    spec.choices.emplace_back("ignore");
    spec.choices.emplace_back("drop");
    return spec;
  };
  ElementClass c{.name = "IPGWOptions", .group = "IP", .summary = "processes IPv4 options as a router"};
  c.description =
      "Record Route gets MYADDR, Timestamp the packet's own time and, where requested, MYADDR (RFC 791 section 3.1, "
      "RFC 1812 section 5.3.13); the checksum is updated. Malformed lists leave by output 1, for an ICMP parameter "
      "problem at the wrong byte. Each kind of option can be ignored, or packets with it dropped (RFC 7126). "
      "Packets without options, and IPv6, pass unchanged.";
  c.arguments = {
      {.name = "MYADDR",
       .kind = ArgumentKind::kIpv4,
       .positional = true,
       .mandatory = true,
       .help = "the router's address, which is recorded"},
      {.name = "OTHERADDRS",
       .kind = ArgumentKind::kRaw,
       .positional = true,
       .help = "its other addresses, separated by spaces, that a Timestamp option may name"},
      choice("RECORD_ROUTE", true, "process", "option 7"),
      choice("TIMESTAMP", true, "process", "option 68"),
      choice("SOURCE_ROUTE", false, "drop",
             "options 131 and 137; IPInput drops them before, unless SOURCE_ROUTES is true"),
      choice("ROUTER_ALERT", false, "ignore", "option 148"),
      choice("OTHER", false, "ignore", "all other options"),
  };
  c.outputs = {1, 2};
  c.output_docs = {"packets to be forwarded", "malformed options, and options that are refused"};
  c.drops = {DropReason::kBadOptions, DropReason::kOptionRefused, DropReason::kSourceRoute,
             DropReason::kCapturedTooShort, DropReason::kIpv4BadHeaderLength};
  c.example = "rewrite[2] -> opt :: IPGWOptions(192.0.2.1) -> again :: AdjacencyRewrite(adj) -> out; opt[1] -> icmp;";
  c.make = make_element<IpGwOptions>();
  registry.add(std::move(c));
}

}  // namespace sluice
