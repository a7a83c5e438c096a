// host only
#include <fmt/format.h>

#include "elements/ip_input/stage.h"
#include "elements/stage_element.h"
#include "graph/click/config_text.h"
#include "graph/router.h"
#include "net/text.h"

namespace sluice {
namespace {

class IpInput final : public StageElement<IpInputStage> {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    stage_.check_martians = arguments.get_bool("MARTIANS") ? 1 : 0;
    stage_.drop_source_routes = arguments.get_bool("SOURCE_ROUTES") ? 0 : 1;
    stage_.verify_checksum = arguments.get_bool("CHECKSUM") ? 1 : 0;
    stage_.drop_multicast = arguments.get_bool("MULTICAST") ? 0 : 1;
    stage_.drop_link_broadcast = arguments.get_bool("LINK_BROADCAST") ? 0 : 1;
    stage_.trim_padding = arguments.get_bool("PADDING") ? 0 : 1;
    stage_.drop_tiny_fragments = arguments.get_bool("TINY_FRAGMENTS") ? 0 : 1;
  }
};

ListedAddress listed(const IpAddress& a) {
  return {a.hi, a.lo};
}

// CheckIPHeader, CheckIPHeader2 and CheckIP6Header.
class CheckHeader final : public StageElement<HeaderCheckStage> {
 public:
  explicit CheckHeader(uint8_t family) { stage_.family = family; }

  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    stage_.offset = static_cast<uint16_t>(arguments.get_uint("OFFSET"));
    stage_.verify_checksum = stage_.family == 6 || arguments.get_bool("CHECKSUM") ? 1 : 0;
    std::vector<ListedAddress> bad;
    std::vector<ListedAddress> good;
    words(arguments, "BADSRC", diagnostics, [&](std::string_view word) { return add_address(word, bad); });
    words(arguments, "GOODDST", diagnostics, [&](std::string_view word) { return add_address(word, good); });
    if (stage_.family == 4) {  // CheckIP6Header has no such argument
      words(arguments, "INTERFACES", diagnostics,
            [&](std::string_view word) { return add_interface(word, bad, good); });
      if (arguments.has("INTERFACES")) {
        bad.push_back({0, 0});
        bad.push_back({0, 0xffffffffu});
      }
    }
    if (bad.size() > 65535 || good.size() > 65535) {
      diagnostics.add(arguments.error_at("BADSRC", "more than 65535 addresses"));
      return;
    }
    stage_.bad_sources = static_cast<uint16_t>(bad.size());
    stage_.good_destinations = static_cast<uint16_t>(good.size());
    addresses_ = std::move(bad);
    addresses_.insert(addresses_.end(), good.begin(), good.end());
    stage_.addresses = addresses_.data();
  }

 private:
  template <typename F>
  void words(const Arguments& arguments, const char* argument, Diagnostics& diagnostics, F&& take) {
    if (!arguments.has(argument)) return;
    for (const ArgumentValue& value : arguments.all(argument)) {
      for (const ConfigSlice& slice : split_words(value.text)) {
        const std::string_view word = std::string_view(value.text).substr(slice.offset, slice.length);
        std::string problem = take(word);
        if (!problem.empty())
          diagnostics.add(arguments.error_in(value, std::move(problem), slice.offset, slice.length));
      }
    }
  }

  std::string add_address(std::string_view word, std::vector<ListedAddress>& to) const {
    const auto address = parse_ip(word);
    if (!address || address->family != stage_.family)
      return fmt::format("'{}' is not an IPv{} address", word, stage_.family);
    to.push_back(listed(*address));
    return {};
  }

  // ADDR/LENGTH of one of the router's own interfaces: its broadcast address is no source, its address a good
  // destination.
  std::string add_interface(std::string_view word, std::vector<ListedAddress>& bad,
                            std::vector<ListedAddress>& good) const {
    const auto prefix = parse_prefix(word);
    const auto address = parse_ip(word.substr(0, word.find('/')));
    if (!prefix || !address || address->family != stage_.family) {
      return fmt::format("'{}' is not an IPv{} address with a prefix length", word, stage_.family);
    }
    good.push_back(listed(*address));
    if (stage_.family == 4 && prefix->length < 31)
      bad.push_back({0, prefix->address.lo | (0xffffffffu & ~high_mask32(prefix->length))});
    return {};
  }

  std::vector<ListedAddress> addresses_;
};

class MarkHeader final : public StageElement<HeaderCheckStage> {
 public:
  explicit MarkHeader(uint8_t family) {
    stage_.family = family;
    stage_.lenient = 1;
    stage_.verify_checksum = 0;
  }
  void configure(const Arguments& arguments, Diagnostics&) override {
    stage_.offset = static_cast<uint16_t>(arguments.get_uint("OFFSET"));
  }
};

const std::vector<DropReason> kIpv4Drops = {DropReason::kCapturedTooShort,   DropReason::kIpv4TooShort,
                                            DropReason::kIpv4BadVersion,     DropReason::kIpv4BadHeaderLength,
                                            DropReason::kIpv4BadTotalLength, DropReason::kIpv4TruncatedFrame,
                                            DropReason::kIpv4BadChecksum};
const std::vector<DropReason> kIpv6Drops = {
    DropReason::kCapturedTooShort,     DropReason::kIpv6TooShort,           DropReason::kIpv6BadVersion,
    DropReason::kIpv6BadPayloadLength, DropReason::kIpv6BadExtensionHeader, DropReason::kIpv6TooManyExtensionHeaders,
    DropReason::kIpv6RoutingType0};

void append(std::vector<DropReason>& to, const std::vector<DropReason>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

const ArgumentSpec kOffset{.name = "OFFSET",
                           .kind = ArgumentKind::kUint,
                           .positional = true,
                           .default_text = "0",
                           .unit = "bytes",
                           .help = "where the header starts, from the packet's start",
                           .min = 0,
                           .max = 32768};

void register_input(Registry& registry) {
  ElementClass input{
      .name = "IPInput", .group = "IP", .summary = "from an Ethernet frame to a checked IPv4 or IPv6 packet"};
  input.description =
      "Finds the network header behind Ethernet and up to 4 VLAN tags, checks it (RFC 1812 sections 5.2.2 and 5.3.7, "
      "RFC 8200), trims "
      "Ethernet padding, and sets the packet's key and destination. The data still starts with the Ethernet header. "
      "Multicast, packets "
      "that came as link-layer broadcast, martians and source routes are bad here, unless an argument lets them pass. "
      "Tiny fragments (RFC 1858, RFC 3128) are dropped, whatever output 1 is connected to: first fragments of TCP "
      "without the whole TCP header, those of other protocols without their ports or ICMP type and code, and "
      "fragments of TCP with the offset 8, and first fragments of IPv6 that do not hold all extension headers (RFC "
      "7112). "
      "So are packets with more tags or extension headers than are read.";
  input.arguments = {
      bool_argument("MARTIANS", "true", "drop addresses that must not be forwarded"),
      bool_argument("SOURCE_ROUTES", "false", "let packets with source-route options pass"),
      bool_argument("CHECKSUM", "true", "verify the IPv4 header checksum"),
      bool_argument("MULTICAST", "false", "let multicast and limited broadcast destinations pass"),
      bool_argument("LINK_BROADCAST", "false", "let packets pass that came as link-layer broadcast or multicast"),
      bool_argument("PADDING", "false", "keep what follows the IP packet in its frame"),
      bool_argument("TINY_FRAGMENTS", "false",
                    "let fragments pass that do not hold the L4 header which access lists judge"),
  };
  input.outputs = {1, 2};
  input.output_docs = {"good packets", "bad packets"};
  input.drops = {DropReason::kNotIp, DropReason::kTruncatedL2, DropReason::kTooManyVlans};
  append(input.drops, kIpv4Drops);
  append(input.drops, {kIpv6Drops.begin() + 1, kIpv6Drops.end()});
  append(input.drops, {DropReason::kSourceRoute, DropReason::kMulticastDestination, DropReason::kLinkBroadcast,
                       DropReason::kMartianSource, DropReason::kMartianDestination, DropReason::kNoHeadroom,
                       DropReason::kTinyFragment});
  input.example =
      "FromDump(in.pcap) -> IPInput -> ACL(TABLE edge) -> IPRoute(TABLE fib) -> DecIPTTL -> AdjacencyRewrite(TABLE "
      "adj) -> ToDump(out.pcap);";
  input.make = make_element<IpInput>();
  registry.add(std::move(input));
}

void register_checks(Registry& registry) {
  const ArgumentSpec verbose =
      bool_argument("VERBOSE", "false", "accepted for compatibility with Click: bad packets are counted by reason");
  const ArgumentSpec details = bool_argument(
      "DETAILS", "false", "accepted for compatibility with Click: bad packets are always counted by reason");
  const ArgumentSpec bad_source{
      .name = "BADSRC", .kind = ArgumentKind::kRaw, .help = "source addresses, separated by spaces, that are bad"};
  const ArgumentSpec good_destination{
      .name = "GOODDST",
      .kind = ArgumentKind::kRaw,
      .help = "destination addresses, separated by spaces, for which BADSRC does not apply"};
  ElementClass check{
      .name = "CheckIPHeader", .group = "IP", .summary = "checks the IPv4 header that the packet starts with"};
  check.description =
      "Version, header length, total length and checksum (RFC 1812 section 5.2.2). Trims what follows the packet, such "
      "as Ethernet padding, "
      "and sets the packet's key and destination.";
  check.arguments = {
      kOffset,
      bool_argument("CHECKSUM", "true", "verify the header checksum"),
      {.name = "INTERFACES",
       .kind = ArgumentKind::kRaw,
       .help = "the router's own ADDR/LENGTH, separated by spaces: their broadcast addresses, 0.0.0.0 and "
               "255.255.255.255 are bad sources"},
      bad_source,
      good_destination,
      verbose,
      details,
  };
  check.outputs = {1, 2};
  check.output_docs = {"good packets", "bad packets"};
  check.drops = kIpv4Drops;
  append(check.drops, {DropReason::kMartianSource, DropReason::kNoHeadroom});
  check.example = "in -> Strip(14) -> CheckIPHeader -> out;";
  check.make = [](std::string_view) { return std::make_unique<CheckHeader>(uint8_t{4}); };

  ElementClass check2 = check;
  check2.name = "CheckIPHeader2";
  check2.summary = "checks the IPv4 header, except for its checksum";
  check2.description += " The checksum is not verified unless CHECKSUM is true.";
  check2.arguments[1].default_text = "false";
  check2.example = "in -> Strip(14) -> CheckIPHeader2 -> out;";

  ElementClass check6 = check;
  check6.name = "CheckIP6Header";
  check6.summary = "checks the IPv6 header that the packet starts with";
  check6.description =
      "Version, payload length and extension headers (RFC 8200, RFC 5095). Trims what follows the packet and sets its "
      "key and destination.";
  check6.arguments = {kOffset, bad_source, good_destination, verbose};
  check6.drops = kIpv6Drops;
  append(check6.drops, {DropReason::kMartianSource, DropReason::kNoHeadroom});
  check6.example = "in -> Strip(14) -> CheckIP6Header -> out;";
  check6.make = [](std::string_view) { return std::make_unique<CheckHeader>(uint8_t{6}); };
  registry.add(std::move(check));
  registry.add(std::move(check2));
  registry.add(std::move(check6));
}

void register_marks(Registry& registry) {
  ElementClass mark{
      .name = "MarkIPHeader", .group = "IP", .summary = "notes where the IPv4 header is, without checking it"};
  mark.description =
      "Sets the packet's key and destination if there is a readable header, else an empty key. Nothing is trimmed or "
      "dropped.";
  mark.arguments = {kOffset};
  mark.example = "in -> MarkIPHeader(14) -> IPPrint -> out;";
  mark.make = [](std::string_view) { return std::make_unique<MarkHeader>(uint8_t{4}); };
  ElementClass mark6 = mark;
  mark6.name = "MarkIP6Header";
  mark6.summary = "notes where the IPv6 header is, without checking it";
  mark6.example = "in -> MarkIP6Header(14) -> IPPrint -> out;";
  mark6.make = [](std::string_view) { return std::make_unique<MarkHeader>(uint8_t{6}); };
  registry.add(std::move(mark));
  registry.add(std::move(mark6));
}

}  // namespace

void register_ip_input(Registry& registry) {
  register_input(registry);
  register_checks(registry);
  register_marks(registry);
}

}  // namespace sluice
