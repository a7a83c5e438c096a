// host only
#include <algorithm>
#include <cstring>

#include "elements/ip_input/stage.h"
#include "elements/stage_element.h"
#include "elements/verdicts.h"
#include "graph/router.h"
#include "net/ipv4_fragment.h"

namespace sluice {
namespace {

class IpFragmenter final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    if (arguments.has("MTU")) mtu_ = static_cast<uint32_t>(arguments.get_uint("MTU"));
    honour_df_ = arguments.get_bool("HONOR_DF");
  }
  ElementKind kind() const override { return ElementKind::kHost; }
  bool makes_packets() const override { return true; }
  StageTraits stage_traits() const override { return {kFieldKey | kFieldL3, 0}; }

  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    forward_by_verdict(context, batch, packets, outputs, [&](uint32_t i) { return cut(context, batch, i); });
  }

 private:
  // Makes the packet the first of its fragments, and the others in new batches, if it has to be cut. Otherwise nothing
  // changes but what an error says.
  DropReason cut(HostContext& context, Batch& batch, uint32_t i) const {
    Annotation& a = batch.annotation(i);
    const Extent e = batch.extent(i);
    const bool refused = a.reason == DropReason::kNeedsFragmentation || a.reason == DropReason::kTooBig;
    if (!refused && a.reason != DropReason::kNone) return a.reason;
    const uint32_t mtu = mtu_ != 0 ? mtu_ : refused ? a.icmp_detail : 0;
    if (mtu == 0) return DropReason::kNone;
    const FlowKey& key = batch.key(i);
    if (key.family != 4 && key.family != 6) return DropReason::kNotIp;
    // An element between here and the header check may have cut the header off.
    if (e.data > int32_t{e.l3} || e.l3 > e.end) return DropReason::kCapturedTooShort;
    if (key.family == 6) {
      if (e.wire_end - e.l3 <= mtu) return DropReason::kNone;
      a.icmp_detail = static_cast<uint16_t>(mtu);
      return DropReason::kTooBig;  // RFC 8200 section 5: routers do not fragment
    }
    Ipv4Fragments pieces;
    switch (pieces.start(batch.frame(i) + e.l3, e.end - e.l3, mtu, honour_df_)) {
      case FragmentVerdict::kFits:
        return DropReason::kNone;
      case FragmentVerdict::kCut:
        break;
      case FragmentVerdict::kDontFragment:
      case FragmentVerdict::kNoRoom:
        a.icmp_detail = static_cast<uint16_t>(mtu);
        return DropReason::kTooBig;
      case FragmentVerdict::kBadHeader:
        return DropReason::kIpv4BadHeaderLength;
      case FragmentVerdict::kBadOptions:
        a.icmp_detail = static_cast<uint16_t>(pieces.option_at());
        return DropReason::kBadOptions;
      case FragmentVerdict::kPastEnd:
        return DropReason::kBadFragment;
    }
    if (pieces.total_bytes() > e.wire_end - e.l3) return DropReason::kIpv4TruncatedFrame;

    Ipv4Fragments::Piece first;
    pieces.next(first);
    a.reason = DropReason::kNone;  // the other fragments copy it
    for (Ipv4Fragments::Piece piece; pieces.next(piece);) make(context, batch, i, pieces, piece);
    // Nothing is read of the packet any more.
    pieces.write_header(first, batch.frame(i) + e.l3);
    Extent& mine = batch.extent(i);
    mine.wire_end = e.l3 + first.header_bytes + first.bytes;
    mine.end = std::min(e.end, mine.wire_end);
    check_again(batch, i);
    return DropReason::kNone;
  }

  // One later fragment, with what stands before the network header, and the packet's annotations.
  static void make(HostContext& context, const Batch& batch, uint32_t i, const Ipv4Fragments& pieces,
                   const Ipv4Fragments::Piece& piece) {
    const Extent& e = batch.extent(i);
    const auto link = static_cast<uint32_t>(int32_t{e.l3} - e.data);
    // Of a packet that was captured in part there may be less payload than its header says.
    const uint32_t from = e.l3 + pieces.first_header_bytes() + piece.from;
    const uint32_t there = e.end > from ? std::min(e.end - from, piece.bytes) : 0;
    const uint32_t headers = link + piece.header_bytes;
    Batch* made = context.spawn(0, headers + there);
    uint8_t* to = made == nullptr ? nullptr : made->reserve_clean(headers + there);
    if (to == nullptr) {
      context.lose(1, DropReason::kNoBuffer);
      return;
    }
    const uint8_t* frame = batch.frame(i);
    std::memcpy(to, frame + e.data, link);
    pieces.write_header(piece, to + link);
    std::memcpy(to + headers, frame + from, there);
    const uint32_t k = made->push_made(batch, i, to, headers + there, headers + piece.bytes);
    made->extent(k).l3 = static_cast<uint16_t>(link);
    made->annotation(k) = batch.annotation(i);
    made->port(k) = batch.port(i);
    made->key(k) = batch.key(i);
    check_again(*made, k);
  }

  // The registers are then those that CheckIPHeader leaves of the fragment.
  static void check_again(Batch& batch, uint32_t i) {
    const BatchView view = batch.view();
    Packet p;
    view.load(i, kFieldKey, p);
    HeaderCheckStage check;
    check.offset = static_cast<uint16_t>(int32_t{p.l3} - p.data);
    check(p);
    p.reason = DropReason::kNone;
    view.store(i, kFieldKey, p);
  }

  uint32_t mtu_ = 0;  // 0: that of the output that refused the packet
  bool honour_df_ = true;
};

}  // namespace

void register_ip_fragmenter(Registry& registry) {
  ElementClass c{
      .name = "IPFragmenter", .group = "IP", .summary = "cuts IPv4 packets that are too large into fragments"};
  c.description =
      "Larger than MTU and without DF: the packet leaves by output 0 as fragments, in order (RFC 791 section 3.2, RFC "
      "1812 section 5.2.6). The packet itself becomes the first; the others count as generated. Options with the copy "
      "flag go to later fragments too, IDs stay, and a fragment may be cut again. With DF, and IPv6 always, it leaves "
      "unchanged by output 1, for ICMPError. Without an MTU it takes the packets that AdjacencyRewrite refused and the "
      "MTU that they exceed; packets refused for another reason leave by output 1 with that reason. What precedes the "
      "network header is copied to every fragment.";
  c.arguments = {
      {.name = "MTU",
       .kind = ArgumentKind::kUint,
       .positional = true,
       .unit = "bytes",
       .help = "the largest IP packet; default: the MTU that AdjacencyRewrite found",
       .min = kIpv4MinimumMtu,
       .max = 65535},
      bool_argument("HONOR_DF", "true", "false: cut packets with DF, too, and leave DF set"),
      bool_argument("VERBOSE", "false",
                    "accepted for compatibility with Click: packets with DF are always counted by reason"),
  };
  c.outputs = {1, 2};
  c.output_docs = {"packets that fit, and fragments", "packets that must not be cut"};
  c.processing = "h/h";
  c.drops = {DropReason::kTooBig,   DropReason::kBadOptions,          DropReason::kBadFragment,
             DropReason::kNotIp,    DropReason::kIpv4BadHeaderLength, DropReason::kIpv4TruncatedFrame,
             DropReason::kNoBuffer, DropReason::kCapturedTooShort};
  c.example = "rewrite[1] -> f :: IPFragmenter -> again :: AdjacencyRewrite(adj) -> out; f[1] -> ICMPError(192.0.2.1);";
  c.make = make_element<IpFragmenter>();
  registry.add(std::move(c));
}

}  // namespace sluice
