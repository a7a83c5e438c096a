// sluice explain: what happens to one packet, and why.
// host only
#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
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

Exit explain(const ExplainFlags& o) {
  const int given = (o.packet.empty() ? 0 : 1) + (o.hex.empty() ? 0 : 1) + (o.capture.empty() ? 0 : 1);
  if (given == 0) fail(Exit::kUsage, "--packet, --hex or --in is missing");
  if (given > 1) fail(Exit::kUsage, "--packet, --hex and --in cannot be given together");
  if (!o.adjacencies.empty() && o.routes.empty()) fail(Exit::kUsage, "--adjacencies needs --routes");
  if (!o.words.empty() && !(o.acl.empty() && o.routes.empty())) {
    fail(Exit::kUsage,
         fmt::format("'{}' is a whole configuration; --acl and --routes are for the standard graph", o.words[0]),
         "write them in the file, or leave the file out");
  }
  const std::vector<std::string> route_files = split_route_files(o.routes);
  NamedInputs named = {{"--in", o.capture}, {"--acl", o.acl}, {"--adjacencies", o.adjacencies}};
  add_route_inputs(named, "--routes", route_files);
  InputSet inputs = open_inputs(named);
  std::vector<uint8_t> frame;
  uint32_t wire = 0;
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
  if (!o.words.empty()) return explain_graph(o.words, frame, wire);
  std::vector<uint8_t> memory(kHeadroom + frame.size() + 64);
  std::copy(frame.begin(), frame.end(), memory.begin() + kHeadroom);
  Packet p;
  p.frame = memory.data() + kHeadroom;
  p.end = static_cast<uint32_t>(frame.size());
  p.wire_end = wire;

  Json json{{"bytes", frame.size()}};
  std::string t;
  std::string verdict;
  bool alive = true;
  uint32_t fragments = 0;
  auto drop = [&](DropReason reason) {
    alive = false;
    verdict = fmt::format("dropped: {}", to_string(reason));
    json["verdict"] = {{"forwarded", false}, {"reason", to_string(reason)}};
  };
  Headers headers;
  const ParseStatus status = parse_ethernet(frame.data(), static_cast<uint32_t>(frame.size()), wire, headers);
  if (status == ParseStatus::kOk) {
    json["packet"] = key_text(headers.key);
    t += fmt::format("packet     {}, ttl {}, {}\n", key_text(headers.key), headers.ttl, counted(frame.size(), "byte"));
  } else {
    json["packet"] = nullptr;
    t += fmt::format("packet     {}, {}\n", counted(frame.size(), "byte"), to_string(status));
  }
  // Without routes the access list alone judges.
  const bool filter = !o.acl.empty() && o.routes.empty();
  if (filter) {
    (void)filter_input()(p);
    p.reason = DropReason::kNone;
    t += "checks     none: without --routes only the access list applies\n";
  } else {
    if (IpInputStage{}(p) != 0) drop(p.reason);
    t += fmt::format("checks     {}\n",
                     alive ? "passed" : fmt::format("failed: {}, {}", to_string(p.reason), describe(p.reason)));
  }
  bool disagree = false;

  if (!o.acl.empty()) {
    const LoadedAcl acl = load_acl(inputs, o.acl, o.format, o.algorithm);
    if (alive) {
      // By the definition itself, then by every algorithm.
      uint32_t rule = 0;
      const bool ip = p.key.family != 0;  // no rule is about anything else
      for (uint32_t r = 1; ip && r <= acl.rules.size() && rule == 0; ++r) {
        if (matches(acl.rules.rule(r), p.key)) rule = r;
      }
      Json asked = Json::object(), not_built = Json::object();
      std::vector<std::string> said;
      if (!ip) {
        // There is nothing to ask.
      } else if (acl.set.rules.empty()) {
        asked[acl.algorithm] = acl.view.lookup(p.key);
      } else {
        for (const std::string& name : acl_algorithm_names()) {
          std::string why = slow_acl_build(acl.set, name);
          Result<Image> image = why.empty() ? build_acl(acl.set, name) : Error();
          if (why.empty() && !image.ok() && !image.error().system) why = image.error().message;
          if (!why.empty()) {
            not_built[name] = why;
            continue;
          }
          const Image built = need(std::move(image));
          asked[name] = need(AclView::open(built)).lookup(p.key);
        }
      }
      for (const auto& [name, found] : asked.items()) {
        said.push_back(fmt::format("{} {}", name, found.get<uint32_t>()));
        disagree |= found.get<uint32_t>() != rule;
      }
      for (const auto& [name, why] : not_built.items())
        said.push_back(fmt::format("{} not built ({})", name, why.get<std::string>()));
      Json near = Json::array();
      each_near_miss(
          p.key, rule,
          !ip         ? 0
          : rule == 0 ? acl.rules.size()
                      : rule - 1,
          1, o.near, [&](uint32_t r) { return acl.rules.rule(r); },
          [&](uint32_t r) { return std::pair<std::string, uint32_t>(acl.source.file(r), acl.source.line(r)); },
          [&](uint32_t r, const std::string& fails) {
            Json one = rule_json(acl, r);
            one["fails"] = fails;
            near.push_back(std::move(one));
          });
      json["acl"] = {
          {"match", rule != 0 ? rule_json(acl, rule) : Json(nullptr)}, {"algorithms", asked}, {"near_misses", near}};
      if (!not_built.empty()) json["acl"]["not_built"] = not_built;
      if (rule != 0) {
        t += fmt::format("acl        {} -> {}\n", rule_line(json["acl"]["match"]),
                         json["acl"]["match"]["action"].get<std::string>());
      } else {
        t += fmt::format("acl        no rule matches: {} by default\n", o.policy);
      }
      if (ip)
        t += fmt::format("           algorithms: {}{}\n", fmt::join(said, ", "), disagree ? "  THEY DISAGREE" : "");
      for (const Json& one : near)
        t += fmt::format("near miss  {}\n           because {}\n", rule_line(one), one["fails"].get<std::string>());
      const AclVerb verb = acl.actions.action(rule).verb;
      if (rule == 0 && o.policy == "deny") drop(DropReason::kAclNoMatch);
      if (verb == AclVerb::kDeny) drop(DropReason::kAclDeny);
      if (verb == AclVerb::kMark) t += fmt::format("mark       {}\n", acl.actions.action(rule).mark);
    }
  }
  if (!o.routes.empty()) {
    const LoadedRoutes routes = load_routes(inputs, route_files, "");
    if (alive) {
      const IpAddress dst{p.key.dst_hi, p.key.dst_lo, p.key.family};
      const uint32_t hop = routes.lookup(dst);
      Json route{{"destination", to_string(dst)},
                 {"next_hop", hop != 0 ? Json(std::string(routes.names.name(hop))) : Json(nullptr)}};
      std::string prefix;
      uint32_t by_prefix = 0;
      std::vector<std::string> said;
      if (!routes.from_image) {
        for (int length = dst.family == 4 ? 32 : 128; length >= 0 && by_prefix == 0; --length) {
          const IpPrefix candidate = prefix_around(dst, static_cast<unsigned>(length));
          by_prefix = routes.rib.find(candidate);
          if (by_prefix != 0) prefix = to_string(candidate);
        }
        route["prefix"] = prefix.empty() ? Json(nullptr) : Json(prefix);
        disagree |= by_prefix != hop;
        const auto names = dst.family == 4 ? lpm_algorithm_names4() : lpm_algorithm_names6();
        for (const std::string& name : names) {
          LoadedRoutes other =
              build_loaded_routes(routes.rib, {}, dst.family == 4 ? name : lpm_algorithm_names4().front() + "," + name);
          const uint32_t found = other.lookup(dst);
          disagree |= found != hop;
          route["algorithms"][name] = std::string(other.names.name(found));
          said.push_back(fmt::format("{} {}", name, other.names.name(found)));
        }
      }
      json["route"] = route;
      t += hop == 0 ? std::string("route      none\n")
                    : fmt::format("route      {}next hop {}\n", prefix.empty() ? "" : prefix + " -> ",
                                  routes.names.name(hop));
      if (!said.empty()) t += fmt::format("           algorithms: {}\n", fmt::join(said, ", "));
      p.next_hop = hop;
      if (hop == 0) drop(DropReason::kNoRoute);
      if (alive) {
        AdjacencyModel model;
        if (o.adjacencies.empty()) {
          Rib ids;
          for (uint32_t id = 1; id <= routes.names.count(); ++id) ids.intern(routes.names.name(id));
          model = default_adjacencies(ids);
        } else {
          InputFile file = need(inputs.take(o.adjacencies), Exit::kIo);
          const std::string text = need(file.table());
          model = need(routes.from_image ? parse_adjacencies(text, file.name(), routes.names)
                                         : parse_adjacencies(text, file.name(), routes.rib));
          print_warnings(model.warnings);
        }
        const Image image = need(build_adjacencies(model));
        const uint8_t ttl = p.ttl;
        if (DecTtlStage{}(p) != 0) {
          drop(p.reason);
          t += fmt::format("ttl        {}: expired\n", ttl);
        } else {
          t += fmt::format("edit       {} {} -> {}\n", p.key.family == 4 ? "ttl" : "hop limit", ttl, p.ttl);
          json["edits"] = {{"ttl", {{"from", ttl}, {"to", p.ttl}}}};
          const AdjacencyStage rewrite{need(open_adjacencies(image))};
          if (rewrite(p) != 0 && p.reason == DropReason::kNeedsFragmentation) {
            // The standard graph has an IPFragmenter there.
            Ipv4Fragments pieces;
            if (pieces.start(p.frame + p.l3, p.end - p.l3, p.icmp_detail, true) == FragmentVerdict::kCut) {
              for (Ipv4Fragments::Piece piece; pieces.next(piece);) ++fragments;
              t += fmt::format("adjacency  MTU {}, DF is not set: {}\n", p.icmp_detail, counted(fragments, "fragment"));
            } else {
              drop(p.reason);
              t += fmt::format("adjacency  MTU {}, and it cannot be fragmented\n", p.icmp_detail);
            }
          } else if (p.reason != DropReason::kNone) {
            drop(p.reason);
            t += fmt::format("adjacency  {}\n", describe(p.reason));
          } else {
            MacAddress to{}, from{};
            std::copy(p.bytes(), p.bytes() + 6, to.bytes);
            std::copy(p.bytes() + 6, p.bytes() + 12, from.bytes);
            json["adjacency"] = {{"destination", to_string(to)},
                                 {"source", to_string(from)},
                                 {"port", p.port},
                                 {"made_up", o.adjacencies.empty()}};
            t += fmt::format("adjacency  {} <- {}, port {}{}\n", to_string(to), to_string(from), p.port,
                             o.adjacencies.empty() ? " (synthetic: no --adjacencies)" : "");
          }
        }
      }
    }
  }
  if (fragments != 0) {
    verdict = fmt::format("forwarded as {}", counted(fragments, "fragment"));
    json["verdict"] = {{"forwarded", true}, {"fragments", fragments}};
  } else if (alive) {
    verdict = o.routes.empty() ? "passed" : fmt::format("forwarded to port {}", p.port);
    json["verdict"] = {{"forwarded", true}, {"port", p.port}};
  }
  json["agree"] = !disagree;
  t += fmt::format("verdict    {}\n", verdict);
  if (json_output()) {
    print_json(json);
  } else {
    print_out(t);
  }
  if (disagree)
    fail(Exit::kCheckFailed, "the algorithms disagree on this packet",
         "this is a defect of sluice; please report it with the tables");
  return Exit::kOk;
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
  sub->add_option("configuration", o->words, "A Click file ('-': stdin) and NAME=VALUE for its variables")
      ->type_name("FILE [NAME=VALUE...]");
  sub->add_option("--packet", o->packet,
                  "PROTOCOL SRC[:PORT] > DST[:PORT], with tcp, udp, sctp, icmp or ip as the protocol, then [flags SYN] "
                  "[ttl N] [dscp N] [len N] [df] [frag N] [vlan N]")
      ->type_name("TEXT");
  sub->add_option("--hex", o->hex, "The frame from its Ethernet header on, in hexadecimal")->type_name("HEX");
  sub->add_option("--in", o->capture, "Take the packet from this capture")->type_name("PCAP");
  sub->add_option("--number", o->number, "Which packet of --in, from 1")
      ->check(Range(uint64_t{1}, ~uint64_t{0}))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--acl", o->acl, "Access list: rules or an image")->type_name("FILE");
  add_acl_options(*sub, o->format, o->algorithm);
  sub->add_option("--routes", o->routes, "Route files or an image")->type_name("FILE[,FILE]");
  sub->add_option("--adjacencies", o->adjacencies, "Adjacency file (default: synthetic ones)")->type_name("FILE");
  sub->add_option("--default", o->policy, "Action for packets that no rule matches: deny or permit")
      ->check(OneOf{{"deny", "permit"}})
      ->type_name("ACTION")
      ->capture_default_str();
  sub->add_option("--near", o->near, "Near misses to show")->type_name("N")->capture_default_str();
}

}  // namespace sluice::app
