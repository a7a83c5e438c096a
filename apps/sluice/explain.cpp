// sluice explain: what happens to one packet, and why.
// host only
#include <algorithm>
#include <utility>

#include "app.h"
#include "control/command_text.h"
#include "control/json.h"
#include "control/key_text.h"
#include "control/near_miss.h"
#include "control/why.h"
#include "elements/adjacency/stage.h"
#include "elements/dec_ttl/stage.h"
#include "elements/ip_input/stage.h"
#include "explain_graph.h"
#include "formats/adjacency_text.h"
#include "inputs.h"
#include "net/ipv4_fragment.h"
#include "net/packet_builder.h"
#include "net/text.h"
#include "pipeline.h"
#include "ports/pcap/capture_reader.h"
#include "rule_text.h"
#include "tables/adjacency/adjacency_model.h"

namespace sluice::app {
namespace {

struct ExplainFlags {
  std::vector<std::string> words;  // FILE.click and NAME=VALUE
  std::string packet, hex, capture, acl, format = "auto", routes, adjacencies, policy = "deny", algorithm;
  uint64_t number = 1;
  unsigned near = 3;
};

// As the standard graph has it that filters only.
IpInputStage filter_input() {
  return {.check_martians = 0,
          .drop_source_routes = 0,
          .verify_checksum = 0,
          .drop_multicast = 0,
          .drop_link_broadcast = 0,
          .trim_padding = 0};
}

void check_explain_flags(const ExplainFlags& o) {
  const int given = (o.packet.empty() ? 0 : 1) + (o.hex.empty() ? 0 : 1) + (o.capture.empty() ? 0 : 1);
  if (given == 0) fail(Exit::kUsage, "--packet, --hex or --in is missing");
  if (given > 1) fail(Exit::kUsage, "--packet, --hex and --in cannot be given together");
  if (!o.adjacencies.empty() && o.routes.empty()) fail(Exit::kUsage, "--adjacencies needs --routes");
  if (!o.words.empty() && !(o.acl.empty() && o.routes.empty())) {
    fail(Exit::kUsage,
         fmt::format("'{}' is a whole configuration; --acl and --routes are for the standard graph", o.words[0]),
         "write them in the file, or leave the file out");
  }
}

// The packet that the options give. `wire`: its length on the wire.
std::vector<uint8_t> frame_to_explain(const ExplainFlags& o, InputSet& inputs, uint32_t& wire) {
  std::vector<uint8_t> frame;
  wire = 0;
  if (!o.packet.empty()) {
    frame = need(parse_packet_text(o.packet, "--packet"), Exit::kBadInput);
  } else if (!o.hex.empty()) {
    frame = need(parse_hex_bytes(o.hex, "--hex"), Exit::kBadInput);
  } else {
    CaptureReader reader = need(CaptureReader::open(need(inputs.take(o.capture), Exit::kIo)));
    CapturedFrame captured;
    for (uint64_t i = 0; i < o.number; ++i) {
      if (!need(reader.next(captured)))
        fail(Exit::kBadInput, fmt::format("{}: there is no packet {}: the capture has {}", o.capture, o.number, i));
    }
    frame.assign(captured.data, captured.data + captured.captured);
    wire = captured.wire_bytes;
  }
  wire = std::max(wire, static_cast<uint32_t>(frame.size()));
  return frame;
}

// The rule that each algorithm finds. `not_built`: why the others were not asked.
Json ask_algorithms(const LoadedAcl& acl, const FlowKey& key, Json& not_built) {
  Json asked = Json::object();
  if (acl.set.rules.empty()) {
    asked[acl.algorithm] = acl.view.lookup(key);
    return asked;
  }
  for (const std::string& name : acl_algorithm_names()) {
    std::string why = slow_acl_build(acl.set, name);
    Result<Image> image = why.empty() ? build_acl(acl.set, name) : Error();
    if (why.empty() && !image.ok() && !image.error().system) why = image.error().message;
    if (!why.empty()) {
      not_built[name] = why;
      continue;
    }
    const Image built = need(std::move(image));
    asked[name] = need(AclView::open(built)).lookup(key);
  }
  return asked;
}

// One packet on its way through the standard graph, and what there is to say about each step.
class Explanation {
 public:
  Explanation(const ExplainFlags& o, InputSet& inputs, const std::vector<uint8_t>& frame, uint32_t wire)
      : o_(o), inputs_(inputs), memory_(kHeadroom + frame.size() + 64), json_{{"bytes", frame.size()}} {
    std::copy(frame.begin(), frame.end(), memory_.begin() + kHeadroom);
    p_.frame = memory_.data() + kHeadroom;
    p_.end = static_cast<uint32_t>(frame.size());
    p_.wire_end = wire;
  }

  void packet() {
    Headers headers;
    const std::string bytes = counted(p_.end, "byte");
    const ParseStatus status = parse_ethernet(p_.frame, p_.end, p_.wire_end, headers);
    if (status == ParseStatus::kOk) {
      json_["packet"] = key_text(headers.key);
      text_ += fmt::format("packet     {}, ttl {}, {}\n", key_text(headers.key), headers.ttl, bytes);
    } else {
      json_["packet"] = nullptr;
      text_ += fmt::format("packet     {}, {}\n", bytes, to_string(status));
    }
  }

  void checks() {
    // Without routes the access list alone judges.
    if (!o_.acl.empty() && o_.routes.empty()) {
      (void)filter_input()(p_);
      p_.reason = DropReason::kNone;
      text_ += "checks     none: without --routes only the access list applies\n";
      return;
    }
    if (IpInputStage{}(p_) != 0) drop(p_.reason);
    text_ += fmt::format("checks     {}\n",
                         alive_ ? "passed" : fmt::format("failed: {}, {}", to_string(p_.reason), describe(p_.reason)));
  }

  void acl() {
    const LoadedAcl acl = load_acl(inputs_, o_.acl, o_.format, o_.algorithm);
    if (!alive_) return;
    // By the definition itself, then by every algorithm.
    uint32_t rule = 0;
    const bool ip = p_.key.family != 0;  // no rule is about anything else
    for (uint32_t r = 1; ip && r <= acl.rules.size() && rule == 0; ++r) {
      if (matches(acl.rules.rule(r), p_.key)) rule = r;
    }
    Json not_built = Json::object();
    const Json asked = ip ? ask_algorithms(acl, p_.key, not_built) : Json::object();
    std::vector<std::string> said;
    for (const auto& [name, found] : asked.items()) {
      said.push_back(fmt::format("{} {}", name, found.get<uint32_t>()));
      disagree_ |= found.get<uint32_t>() != rule;
    }
    for (const auto& [name, why] : not_built.items())
      said.push_back(fmt::format("{} not built ({})", name, why.get<std::string>()));
    const Json match = rule != 0 ? rule_json(acl, rule) : Json(nullptr);
    const Json near = !ip ? Json::array() : near_misses(acl, rule);
    json_["acl"] = {{"match", match}, {"algorithms", asked}, {"near_misses", near}};
    if (!not_built.empty()) json_["acl"]["not_built"] = not_built;
    text_ += rule != 0 ? fmt::format("acl        {} -> {}\n", rule_line(match), match["action"].get<std::string>())
                       : fmt::format("acl        no rule matches: {} by default\n", o_.policy);
    if (ip)
      text_ += fmt::format("           algorithms: {}{}\n", fmt::join(said, ", "), disagree_ ? "  THEY DISAGREE" : "");
    for (const Json& one : near)
      text_ += fmt::format("near miss  {}\n           because {}\n", rule_line(one), one["fails"].get<std::string>());
    const AclVerb verb = acl.actions.action(rule).verb;
    if (rule == 0 && o_.policy == "deny") drop(DropReason::kAclNoMatch);
    if (verb == AclVerb::kDeny) drop(DropReason::kAclDeny);
    if (verb == AclVerb::kMark) text_ += fmt::format("mark       {}\n", acl.actions.action(rule).mark);
  }

  void route() {
    const std::vector<std::string> files = split_route_files(o_.routes);
    const LoadedRoutes routes = load_routes(inputs_, files, "");
    if (!alive_) return;
    const IpAddress dst{p_.key.dst_hi, p_.key.dst_lo, p_.key.family};
    const uint32_t hop = routes.lookup(dst);
    Json route{{"destination", to_string(dst)},
               {"next_hop", hop != 0 ? Json(std::string(routes.names.name(hop))) : Json(nullptr)}};
    const std::vector<std::string> said = routes.from_image ? std::vector<std::string>() : ask_all(routes, dst, route);
    const Json prefix = route.value("prefix", Json());
    json_["route"] = route;
    text_ += hop == 0 ? std::string("route      none\n")
                      : fmt::format("route      {}next hop {}\n",
                                    prefix.is_null() ? "" : prefix.get<std::string>() + " -> ", routes.names.name(hop));
    if (!said.empty()) text_ += fmt::format("           algorithms: {}\n", fmt::join(said, ", "));
    p_.next_hop = hop;
    if (hop == 0) drop(DropReason::kNoRoute);
    if (alive_) edits(routes);
  }

  Exit print() {
    if (fragments_ != 0) {
      verdict_ = fmt::format("forwarded as {}", counted(fragments_, "fragment"));
      json_["verdict"] = {{"forwarded", true}, {"fragments", fragments_}};
    } else if (alive_) {
      verdict_ = o_.routes.empty() ? "passed" : fmt::format("forwarded to port {}", p_.port);
      json_["verdict"] = {{"forwarded", true}, {"port", p_.port}};
    }
    json_["agree"] = !disagree_;
    text_ += fmt::format("verdict    {}\n", verdict_);
    print_result(json_, text_);
    if (disagree_)
      fail(Exit::kCheckFailed, "the algorithms disagree on this packet",
           "this is a defect of sluice; please report it with the tables");
    return Exit::kOk;
  }

 private:
  void drop(DropReason reason) {
    alive_ = false;
    verdict_ = fmt::format("dropped: {}", to_string(reason));
    json_["verdict"] = {{"forwarded", false}, {"reason", to_string(reason)}};
  }

  // Of the rules before `rule`; 0: of all.
  Json near_misses(const LoadedAcl& acl, uint32_t rule) const {
    Json near = Json::array();
    each_near_miss(
        p_.key, rule, rule == 0 ? acl.rules.size() : rule - 1, 1, o_.near,
        [&](uint32_t r) { return acl.rules.rule(r); },
        [&](uint32_t r) { return std::pair<std::string, uint32_t>(acl.source.file(r), acl.source.line(r)); },
        [&](uint32_t r, const std::string& fails) {
          Json one = rule_json(acl, r);
          one["fails"] = fails;
          near.push_back(std::move(one));
        });
    return near;
  }

  // The longest prefix by the definition itself, then what every algorithm finds, as the text has it.
  std::vector<std::string> ask_all(const LoadedRoutes& routes, const IpAddress& dst, Json& route) {
    uint32_t by_prefix = 0;
    route["prefix"] = nullptr;
    for (int length = dst.family == 4 ? 32 : 128; length >= 0 && by_prefix == 0; --length) {
      const IpPrefix candidate = prefix_around(dst, static_cast<unsigned>(length));
      by_prefix = routes.rib.find(candidate);
      if (by_prefix != 0) route["prefix"] = to_string(candidate);
    }
    const uint32_t hop = routes.lookup(dst);
    disagree_ |= by_prefix != hop;
    std::vector<std::string> said;
    for (const std::string& name : dst.family == 4 ? lpm_algorithm_names4() : lpm_algorithm_names6()) {
      LoadedRoutes other =
          build_loaded_routes(routes.rib, {}, dst.family == 4 ? name : lpm_algorithm_names4().front() + "," + name);
      const uint32_t found = other.lookup(dst);
      disagree_ |= found != hop;
      route["algorithms"][name] = std::string(other.names.name(found));
      said.push_back(fmt::format("{} {}", name, other.names.name(found)));
    }
    return said;
  }

  AdjacencyModel adjacencies(const LoadedRoutes& routes) {
    if (o_.adjacencies.empty()) {
      Rib ids;
      for (uint32_t id = 1; id <= routes.names.count(); ++id) ids.intern(routes.names.name(id));
      return default_adjacencies(ids);
    }
    InputFile file = need(inputs_.take(o_.adjacencies), Exit::kIo);
    const std::string text = need(file.table());
    AdjacencyModel model = need(routes.from_image ? parse_adjacencies(text, file.name(), routes.names)
                                                  : parse_adjacencies(text, file.name(), routes.rib));
    print_warnings(model.warnings);
    return model;
  }

  // The TTL, then the Ethernet header.
  void edits(const LoadedRoutes& routes) {
    const Image image = need(build_adjacencies(adjacencies(routes)));
    const uint8_t ttl = p_.ttl;
    if (DecTtlStage{}(p_) != 0) {
      drop(p_.reason);
      text_ += fmt::format("ttl        {}: expired\n", ttl);
      return;
    }
    text_ += fmt::format("edit       {} {} -> {}\n", p_.key.family == 4 ? "ttl" : "hop limit", ttl, p_.ttl);
    json_["edits"] = {{"ttl", {{"from", ttl}, {"to", p_.ttl}}}};
    const AdjacencyStage rewrite{need(open_adjacencies(image))};
    if (rewrite(p_) != 0 && p_.reason == DropReason::kNeedsFragmentation) {
      fragments();
    } else if (p_.reason != DropReason::kNone) {
      drop(p_.reason);
      text_ += fmt::format("adjacency  {}\n", describe(p_.reason));
    } else {
      const bool made_up = o_.adjacencies.empty();
      MacAddress to{}, from{};
      std::copy(p_.bytes(), p_.bytes() + 6, to.bytes);
      std::copy(p_.bytes() + 6, p_.bytes() + 12, from.bytes);
      json_["adjacency"] = {
          {"destination", to_string(to)}, {"source", to_string(from)}, {"port", p_.port}, {"made_up", made_up}};
      text_ += fmt::format("adjacency  {} <- {}, port {}{}\n", to_string(to), to_string(from), p_.port,
                           made_up ? " (synthetic: no --adjacencies)" : "");
    }
  }

  // The standard graph has an IPFragmenter there.
  void fragments() {
    Ipv4Fragments pieces;
    if (pieces.start(p_.frame + p_.l3, p_.end - p_.l3, p_.icmp_detail, true) == FragmentVerdict::kCut) {
      for (Ipv4Fragments::Piece piece; pieces.next(piece);) ++fragments_;
      text_ += fmt::format("adjacency  MTU {}, DF is not set: {}\n", p_.icmp_detail, counted(fragments_, "fragment"));
    } else {
      drop(p_.reason);
      text_ += fmt::format("adjacency  MTU {}, and it cannot be fragmented\n", p_.icmp_detail);
    }
  }

  const ExplainFlags& o_;
  InputSet& inputs_;
  std::vector<uint8_t> memory_;
  Packet p_;
  Json json_;
  std::string text_, verdict_;
  bool alive_ = true, disagree_ = false;
  uint32_t fragments_ = 0;
};

Exit explain(const ExplainFlags& o) {
  check_explain_flags(o);
  NamedInputs named = {{"--in", o.capture}, {"--acl", o.acl}, {"--adjacencies", o.adjacencies}};
  add_route_inputs(named, "--routes", split_route_files(o.routes));
  InputSet inputs = open_inputs(named);
  uint32_t wire = 0;
  const std::vector<uint8_t> frame = frame_to_explain(o, inputs, wire);
  if (!o.words.empty()) return explain_graph(o.words, frame, wire);
  Explanation explanation(o, inputs, frame, wire);
  explanation.packet();
  explanation.checks();
  if (!o.acl.empty()) explanation.acl();
  if (!o.routes.empty()) explanation.route();
  return explanation.print();
}

}  // namespace

void add_explain(Command root) {
  auto o = std::make_shared<ExplainFlags>();
  Command sub = add_subcommand(
      root, "explain", "Tables and packets",
      "Explains the verdict on one packet, from files: the matching rule and the near misses above it, the "
      "route, the "
      "adjacency,\nthe rewrites, the verdict. Every lookup algorithm that is built in seconds is run, and all must "
      "agree. With a Click file: "
      "what each element of\nthe graph does with the packet, from the graph's first source on.",
      "sluice explain --packet 'tcp 10.0.0.1:1234 > 8.8.8.8:80 flags S' --acl edge.acl --routes rib.txt\n"
      "sluice explain --in a.pcap --number 17 --acl edge.acl\n"
      "sluice explain --hex '0200 0000 0001 ...' --routes rib.txt -o json\n"
      "sluice explain edge.click --in a.pcap --number 17",
      [o] { return explain(*o); });
  sub->add_option("configuration", "FILE [NAME=VALUE...]", o->words,
                  "A Click file ('-': stdin) and NAME=VALUE for its variables");
  sub->add_option("--packet", "TEXT", o->packet,
                  "PROTOCOL SRC[:PORT] > DST[:PORT], with tcp, udp, sctp, icmp or ip as the protocol, then [flags SYN] "
                  "[ttl N] [dscp N] [len N] [df] [frag N] [vlan N]");
  sub->add_option("--hex", "HEX", o->hex, "The frame from its Ethernet header on, in hexadecimal");
  sub->add_option("--in", "PCAP", o->capture, "Take the packet from this capture");
  sub->add_number("--number", "N", o->number, "Which packet of --in, from 1", Range(uint64_t{1}, ~uint64_t{0}));
  sub->add_option("--acl", "FILE", o->acl, "Access list: rules or an image");
  add_acl_options(*sub, o->format, o->algorithm);
  sub->add_option("--routes", "FILE[,FILE]", o->routes, "Route files or an image");
  sub->add_option("--adjacencies", "FILE", o->adjacencies, "Adjacency file (default: synthetic ones)");
  sub->add_word("--default", "ACTION", o->policy, "Action for packets that no rule matches: deny or permit",
                {"deny", "permit"});
  sub->add_option("--near", "N", o->near, "Near misses to show")->capture_default_str();
}

}  // namespace sluice::app
