// host only
#include <fmt/format.h>

#include <algorithm>

#include "elements/ip_input/stage.h"
#include "elements/stage_element.h"
#include "graph/click/config_text.h"
#include "graph/router.h"
#include "net/icmp_error.h"
#include "net/text.h"

namespace sluice {
namespace {

// The error that answers a packet that left an element for this reason; nothing for reasons that no ICMP error is for.
std::optional<IcmpError> error_for(DropReason reason) {
  switch (reason) {
    case DropReason::kTtlExpired:
    case DropReason::kHopLimitExpired:
      return IcmpError::kTimeExceeded;
    case DropReason::kNoRoute:
      return IcmpError::kNetUnreachable;
    case DropReason::kNoAdjacency:
    case DropReason::kRouteUnreachable:
      return IcmpError::kHostUnreachable;
    case DropReason::kAclDeny:
    case DropReason::kAclNoMatch:
    case DropReason::kRouteProhibited:
      return IcmpError::kAdminProhibited;
    case DropReason::kTooBig:
      return IcmpError::kPacketTooBig;
    case DropReason::kBadOptions:
      return IcmpError::kParameterProblem;
    case DropReason::kSourceRoute:
      return IcmpError::kSourceRouteFailed;
    default:
      return std::nullopt;
  }
}

struct NamedError {
  const char* type;
  const char* type_number;
  const char* code;
  const char* code_number;
  IcmpError error;
};
constexpr NamedError kNamed[] = {
    {"timeexceeded", "11", "transit", "0", IcmpError::kTimeExceeded},
    {"unreachable", "3", "net", "0", IcmpError::kNetUnreachable},
    {"unreachable", "3", "host", "1", IcmpError::kHostUnreachable},
    {"unreachable", "3", "protocol", "2", IcmpError::kProtocolUnreachable},
    {"unreachable", "3", "port", "3", IcmpError::kPortUnreachable},
    {"unreachable", "3", "needfrag", "4", IcmpError::kPacketTooBig},
    {"unreachable", "3", "srcfail", "5", IcmpError::kSourceRouteFailed},
    {"unreachable", "3", "filterprohibited", "13", IcmpError::kAdminProhibited},
    {"parameterproblem", "12", "erroratptr", "0", IcmpError::kParameterProblem},
};

class IcmpErrorElement final : public Element {
 public:
  bool writes_link_header() const override { return true; }
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    for (const ArgumentValue& value : arguments.all("SRC")) {
      for (const ConfigSlice& slice : split_words(value.text)) {
        const std::string_view word = std::string_view(value.text).substr(slice.offset, slice.length);
        const auto address = parse_ip(word);
        if (!address) {
          diagnostics.add(
              arguments.error_in(value, fmt::format("'{}' is not an IP address", word), slice.offset, slice.length));
          continue;
        }
        IpAddress& mine = address->family == 4 ? source4_ : source6_;
        if (mine.family != 0) {
          diagnostics.add(arguments.error_in(
              value, fmt::format("'{}' is a second IPv{} address", word, address->family), slice.offset, slice.length));
        }
        mine = *address;
      }
    }
    if (arguments.has("TYPE")) take_type(arguments, diagnostics);
    if (arguments.has("CODE") && !arguments.has("TYPE"))
      diagnostics.add(arguments.error_at("CODE", "CODE is given without TYPE"));
    rate_ = static_cast<uint32_t>(arguments.get_uint("RATE"));
    burst_ = static_cast<uint32_t>(arguments.get_uint("BURST"));
  }
  ElementKind kind() const override { return ElementKind::kHost; }
  bool makes_packets() const override { return true; }
  // The packets that leave are of its own making, checked and with their key.
  StageTraits stage_traits() const override { return {kFieldKey | kFieldL3, kFieldKey | kFieldL3 | kFieldDestination}; }
  EgressRate egress_rate() const override { return {rate_, burst_}; }

  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    packets.for_each([&](uint32_t i) {
      answer(context, batch, i);
      const DropReason reason = batch.annotation(i).reason;
      context.drop(batch, i, reason == DropReason::kNone ? DropReason::kDiscard : reason);
    });
  }

 private:
  void take_type(const Arguments& arguments, Diagnostics& diagnostics) {
    const std::string& type = arguments.get_string("TYPE");
    const std::string& code = arguments.get_string("CODE");
    std::vector<std::string> types;
    std::vector<std::string> codes;
    for (const NamedError& e : kNamed) {
      types.emplace_back(e.type);
      if (type != e.type && type != e.type_number) continue;
      codes.emplace_back(e.code);
      if (!code.empty() && code != e.code && code != e.code_number) continue;
      if (!fixed_) fixed_ = e.error;
    }
    if (fixed_) return;
    types.erase(std::unique(types.begin(), types.end()), types.end());
    const bool bad_type = codes.empty();
    Diagnostic d =
        arguments.error_at(bad_type ? "TYPE" : "CODE", fmt::format("'{}' is not an ICMP error {} that can be made here",
                                                                   bad_type ? type : code, bad_type ? "type" : "code"));
    d.expected = fmt::format("{}", fmt::join(bad_type ? types : codes, ", "));
    diagnostics.add(std::move(d));
  }

  void answer(HostContext& context, const Batch& batch, uint32_t i) const {
    const Annotation& a = batch.annotation(i);
    const Extent& e = batch.extent(i);
    const FlowKey& key = batch.key(i);
    const auto error = fixed_ ? fixed_ : error_for(a.reason);
    const IpAddress& source = key.family == 6 ? source6_ : source4_;
    if (!error || source.family == 0 || outputs == 0 || e.l3 > e.end || e.l3 > e.wire_end) return;
    Headers headers;
    headers.key = key;
    headers.ether_type = a.ether_type;
    headers.l3_offset = e.l3;
    headers.l4_offset = e.l4;
    headers.ip_bytes = e.wire_end - e.l3;
    headers.flags = a.ip_flags;
    headers.ttl = a.ttl;
    if (icmp_error_suppressed(headers, *error) != IcmpSuppressed::kNo) return;
    const uint32_t room = key.family == 6 ? kIcmpv6ErrorMaxBytes : kIcmpv4ErrorMaxBytes;
    Batch* made = context.spawn(0, room);
    uint8_t* to = made == nullptr ? nullptr : made->reserve_clean(room);
    if (to == nullptr) {
      context.lose(1, DropReason::kNoBuffer);
      return;
    }
    // What the packet was refused for may be another thing than what TYPE says.
    const bool pointer = *error == IcmpError::kParameterProblem && a.reason == DropReason::kBadOptions;
    const uint32_t parameter = *error == IcmpError::kPacketTooBig || pointer ? a.icmp_detail : 0;
    const uint32_t bytes = build_icmp_error(batch.frame(i), e.end, headers, *error, parameter, source, to, room);
    if (bytes == 0) return;
    const uint32_t k = made->push_made(batch, i, to, bytes, bytes);
    // Its sender knows the packet as it was before its destination was translated.
    if (made->translated()) {
      Translation& t = made->translation(k);
      t.has_source = 0;
      t.quoted = 1;
    }
    // The registers are those that CheckIPHeader would leave.
    const BatchView view = made->view();
    Packet p;
    view.load(k, 0, p);
    HeaderCheckStage check;
    check(p);
    view.store(k, kFieldKey, p);
    made->annotation(k).limiter = rate_ != 0 ? context.limiter() : 0;
  }

  IpAddress source4_;
  IpAddress source6_;
  std::optional<IcmpError> fixed_;
  uint32_t rate_ = 0;
  uint32_t burst_ = 1;
};

}  // namespace

void register_icmp_error(Registry& registry) {
  ElementClass c{
      .name = "ICMPError", .group = "IP", .summary = "answers packets that cannot be forwarded with ICMP errors"};
  c.description =
      "Takes packets from other elements' error outputs, drops each with its reason, and generates an ICMP or ICMPv6 "
      "error about it (RFC 792, RFC 1812 section 4.3, RFC 4443) unless the RFCs forbid one. The error is an IP packet "
      "without a link header that needs no CheckIPHeader: send it to IPRoute. Without TYPE the reason chooses: expired "
      "TTL or hop limit -> time exceeded, no route -> network unreachable, no adjacency -> host unreachable, access "
      "list -> administratively prohibited, too big -> fragmentation needed or packet too big with the MTU, malformed "
      "IPv4 options -> parameter problem at the wrong byte, source route -> source route failed. Errors over RATE are "
      "dropped at egress, counted as icmp-rate-limited, by packet timestamps.";
  c.arguments = {
      {.name = "SRC",
       .kind = ArgumentKind::kRaw,
       .positional = true,
       .mandatory = true,
       .help = "the router's own addresses, one per family, separated by a space"},
      {.name = "TYPE",
       .kind = ArgumentKind::kWord,
       .positional = true,
       .help = "timeexceeded, unreachable or parameterproblem, or its number"},
      {.name = "CODE",
       .kind = ArgumentKind::kWord,
       .positional = true,
       .help = "transit, net, host, protocol, port, needfrag, srcfail, filterprohibited or erroratptr, or its number"},
      {.name = "RATE",
       .kind = ArgumentKind::kUint,
       .default_text = "1000",
       .unit = "packets per second",
       .help = "0: no limit",
       .min = 0,
       .max = 1e9},
      {.name = "BURST",
       .kind = ArgumentKind::kUint,
       .default_text = "50",
       .unit = "packets",
       .help = "how many may leave at once",
       .min = 1,
       .max = 1e6},
  };
  c.processing = "h/h";
  c.drops = {DropReason::kIcmpRateLimited, DropReason::kNoBuffer};
  c.example = "ttl :: DecIPTTL; ttl[1] -> ICMPError(192.0.2.1 2001:db8::1) -> rt :: IPRoute(fib);";
  c.make = make_element<IcmpErrorElement>();
  registry.add(std::move(c));
}

}  // namespace sluice
