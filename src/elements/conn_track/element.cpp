// host only
// ConnTrack: sorts packets by the state of their connection (flows/flow_table.h), and translates their addresses.
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "elements/conn_track/translator.h"
#include "elements/shaping.h"
#include "elements/table_use.h"
#include "flows/flow_table.h"
#include "graph/click/config_text.h"
#include "graph/router.h"
#include "net/text.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/sections.h"

namespace sluice {
namespace {

constexpr unsigned kFullOutput = 4;

// Of a batch, before its turn: whose connection each packet is of.
struct PreparedPackets final : Element::Ordered::Prepared {
  struct One {
    TrackedPacket packet;
    uint64_t hash = 0;
    uint32_t row = 0;
  };
  std::vector<One> all = std::vector<One>(Batch::kMaxPackets);
  uint32_t count = 0;
};

struct Configuration {
  FlowTable::Options table;
  std::string list;                 // of new connections; empty: each may begin
  bool permits_by_default = false;  // what no rule of the list is for
  Translator::Options nat;
};

class Tracker final : public Element::Ordered {
 public:
  explicit Tracker(const Configuration& configuration)
      : configuration_(configuration), table_(configuration.table), translator_(configuration.nat) {
    table_.on_end([this](const FlowEntry& entry) { translator_.ended(entry); });
  }

  std::unique_ptr<Prepared> make_prepared() const override { return std::make_unique<PreparedPackets>(); }
  void prepare(Batch& batch, Lengths*, const Selection& packets, Prepared& prepared) const override {
    auto& its = static_cast<PreparedPackets&>(prepared);
    its.count = 0;
    packets.for_each([&](uint32_t i) {
      PreparedPackets::One& one = its.all[its.count++];
      const Extent& e = batch.extent(i);
      one.packet = tracked_packet(batch.key(i), batch.frame(i), e.l3, e.l4, e.end);
      one.hash = table_.hash(one.packet.ends);
      one.row = i;
    });
  }

  FlowTable* connections() override { return &table_; }

  void use(const TableSet& tables, uint64_t generation) override {
    if (generation == generation_) return;
    generation_ = generation;
    // What check_tables refuses is in no generation.
    if (translator_.translates()) (void)translator_.use(tables);
    open_ = false;
    if (configuration_.list.empty()) return;
    const auto image = tables.acls.find(configuration_.list);
    if (image == tables.acls.end()) return;
    auto view = AclView::open(*image->second);
    auto actions = AclActionsView::open(*image->second);
    if (!view.ok() || !actions.ok()) return;  // nothing begins a connection then
    view_ = *view;
    actions_ = *actions;
    open_ = true;
  }

  void process(Batch& batch, Lengths*, const Selection&, Prepared* prepared, std::span<Selection> out) override {
    // The lines of a bucket and of its first entry come from memory while packets before are judged.
    constexpr uint32_t kAhead = 8;
    const auto& its = *static_cast<PreparedPackets*>(prepared);
    for (uint32_t n = 0; n < std::min(2 * kAhead, its.count); ++n) table_.prefetch(its.all[n].hash);
    for (uint32_t n = 0; n < its.count; ++n) {
      if (n + 2 * kAhead < its.count) table_.prefetch(its.all[n + 2 * kAhead].hash);
      if (n + kAhead < its.count) table_.prefetch_entry(its.all[n + kAhead].hash);
      const PreparedPackets::One& one = its.all[n];
      const Extent& e = batch.extent(one.row);
      const uint32_t bytes = e.wire_end - static_cast<uint32_t>(e.data);
      const uint64_t now_ns = clock_.at(batch.timestamp_ns(one.row));
      const unsigned output = translator_.translates()
                                  ? track_and_translate(batch, one, bytes, now_ns)
                                  : output_of(batch, one.row, table_.take(one.packet, one.hash, bytes, now_ns, [&] {
                                      return accepts(batch.key(one.row));
                                    }));
      if (output < out.size()) out[output].add(one.row);
    }
  }

 private:
  static constexpr unsigned kDropped = ~0u;

  // Whether the list lets a new connection begin that is to be remembered. What it says of the packet itself the list
  // says again, to which the packet goes on: by the same tables.
  bool accepts(const FlowKey& key) const {
    if (configuration_.list.empty()) return true;
    if (!open_) return false;
    const uint32_t rule = view_.lookup(key);
    if (rule == 0) return translator_.translates() && configuration_.permits_by_default;
    const AclAction action = actions_.action(rule);
    // Whatever may have to be translated is remembered.
    return action.verb != AclVerb::kDeny && (action.keep != 0 || translator_.translates());
  }

  static unsigned output_of(Batch& batch, uint32_t row, const FlowTable::Answer& answer) {
    using Refused = FlowTable::Refused;
    if (answer.refused == Refused::kFull || answer.refused == Refused::kNoPort) {
      batch.annotation(row).reason =
          answer.refused == Refused::kFull ? DropReason::kFlowTableFull : DropReason::kNatPortsExhausted;
      return kFullOutput;
    }
    return static_cast<unsigned>(answer.state);
  }

  unsigned track_and_translate(Batch& batch, const PreparedPackets::One& one, uint32_t bytes, uint64_t now_ns) {
    FlowTable::Opening opening;
    const auto answer = table_.take(one.packet, one.hash, bytes, now_ns, [&] {
      const NatTuple with_destination = translator_.translate_destination(batch, one.row, one.packet);
      if (accepts(batch.key(one.row))) {
        opening = translator_.open(batch, one.row, one.packet, with_destination, table_);
      } else {
        opening.refused = FlowTable::Refused::kDenied;
      }
      return opening;
    });
    if (answer.refused == FlowTable::Refused::kFull) translator_.abandon(opening);
    if (answer.translated.any) translator_.translate(batch, one.row, one.packet, answer.translated);
    if (answer.state == FlowState::kInvalid && translator_.must_not_leave(batch, one.row)) {
      batch.annotation(one.row).reason = DropReason::kNatUntracked;
      return kDropped;
    }
    return output_of(batch, one.row, answer);
  }

  Configuration configuration_;
  FlowTable table_;
  Translator translator_;
  PacketClock clock_;
  AclView view_;
  AclActionsView actions_;
  bool open_ = false;
  uint64_t generation_ = ~uint64_t{0};
};

// "1=eth1@192.0.2.1": an output's port, its interface's name and address, both of which may be missing.
std::optional<NatOutput> output_of(std::string_view word) {
  NatOutput o;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), o.port);
  if (error != std::errc()) return std::nullopt;
  word.remove_prefix(static_cast<size_t>(end - word.data()));
  const size_t at = std::min(word.find('@'), word.size());
  if (word.starts_with('=')) o.name = word.substr(1, at - 1);
  if (at != 0 && !word.starts_with('=')) return std::nullopt;
  if (at == word.size()) return o;
  const auto address = parse_ipv4(word.substr(at + 1));
  if (!address) return std::nullopt;
  o.address = *address;
  return o;
}

class ConnTrack final : public OrderedElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    it_.list = arguments.get_string("NEW");
    it_.permits_by_default = arguments.get_string("DEFAULT") == "permit";
    it_.table.capacity = static_cast<uint32_t>(arguments.get_uint("CAPACITY"));
    it_.table.pick_up = arguments.get_bool("PICK_UP");
    it_.table.timeouts.tcp_established = arguments.get_time_ns("TCP_TIMEOUT");
    it_.table.timeouts.udp = arguments.get_time_ns("UDP_TIMEOUT");
    it_.nat.table = arguments.get_string("NAT");
    it_.nat.routes = arguments.get_string("ROUTES");
    it_.nat.adjacencies = arguments.get_string("ADJACENCIES");
    if (it_.nat.routes.empty() != it_.nat.adjacencies.empty())
      diagnostics.add(arguments.error_at(it_.nat.routes.empty() ? "ADJACENCIES" : "ROUTES",
                                         "ROUTES and ADJACENCIES are given together"));
    for (const ArgumentValue& value : arguments.all("OUTPUTS")) {
      for (const ConfigSlice& slice : split_words(value.text)) {
        const std::string_view word = std::string_view(value.text).substr(slice.offset, slice.length);
        if (auto output = output_of(word)) {
          it_.nat.outputs.push_back(std::move(*output));
        } else {
          diagnostics.add(arguments.error_in(value, fmt::format("'{}' is no output: PORT=NAME@ADDRESS", word),
                                             slice.offset, slice.length));
        }
      }
    }
  }
  bool output_optional(unsigned output) const override { return output != 0; }
  StageTraits stage_traits() const override {
    StageTraits traits{kFieldKey | kFieldL3 | kFieldFrame, kFieldReason};
    if (!it_.nat.table.empty()) traits.writes |= kFieldKey | kFieldDestination | kFieldFrame;
    return traits;
  }
  Result<void> check_tables(const TableSet& tables) const override {
    if (!it_.nat.table.empty()) {
      if (auto ok = Translator(it_.nat).use(tables); !ok) return ok;
    }
    if (it_.list.empty()) return {};
    if (auto image = find_table(tables.acls, "ACL table", it_.list); !image.ok()) return std::move(image).error();
    return {};
  }
  std::unique_ptr<Ordered> make_ordered() const override { return std::make_unique<Tracker>(it_); }

  Result<void> start(FlowContext&) override {
    return Error(fmt::format("{} takes whole batches, and this graph is run packet by packet", name),
                 "leave out queues and shapers, and what makes packets in front of it");
  }
  Time time() const override { return Time::kLooks; }
  void push(FlowContext& context, unsigned, PacketBox packet) override { context.push(3, std::move(packet)); }

 private:
  Configuration it_;
};

}  // namespace

void register_conn_track(Registry& registry) {
  ElementClass c;
  c.name = "ConnTrack";
  c.group = "Flows";
  c.summary = "sorts packets by the state of their connection";
  c.description =
      "Keeps an entry for each connection, found from both ends, and ends it by the time stamps of packets. A "
      "connection begins with a packet that list NEW permits by a rule with `keep-state` (rules of nft and iptables "
      "all have it); a packet that is denied leaves nothing. With NAT it writes the destinations of packets; their "
      "sources are written by NatSource, behind the lists. Each output leads to the list for packets of that state: "
      "`AclTable(new, FILE f, FORMAT auto@new)`. The answers are the same for any number of workers and any size of "
      "batches.";
  c.arguments = {
      {.name = "NEW",
       .kind = ArgumentKind::kString,
       .positional = true,
       .help = "the access list of new connections; without one each may begin"},
      {.name = "DEFAULT",
       .kind = ArgumentKind::kChoice,
       .default_text = "deny",
       .help = "with NAT: what no rule of list NEW is for, as the ACL behind has it",
       .choices = {"deny", "permit"}},
      {.name = "NAT",
       .kind = ArgumentKind::kString,
       .help = "a NatTable: addresses are translated by it, and every permitted connection is kept"},
      {.name = "ROUTES", .kind = ArgumentKind::kString, .help = "the RouteTable behind, for NAT rules with `via`"},
      {.name = "ADJACENCIES", .kind = ArgumentKind::kString, .help = "the AdjacencyTable behind, for the same"},
      {.name = "OUTPUTS",
       .kind = ArgumentKind::kRaw,
       .help = "what `via` and `masquerade` know: PORT=NAME@ADDRESS, separated by spaces; name and address may be "
               "missing"},
      {.name = "CAPACITY",
       .kind = ArgumentKind::kUint,
       .default_text = "1048576",
       .help = "connections at most; each takes some 140 bytes",
       .min = 1,
       .max = 1 << 28},
      {.name = "PICK_UP",
       .kind = ArgumentKind::kBool,
       .default_text = "true",
       .help = "a TCP connection may begin with an ACK in its middle"},
      {.name = "TCP_TIMEOUT",
       .kind = ArgumentKind::kTime,
       .default_text = "7440s",
       .help = "of established TCP connections (RFC 5382 asks for 2 hours 4 minutes)"},
      {.name = "UDP_TIMEOUT", .kind = ArgumentKind::kTime, .default_text = "120s", .help = "of UDP that was answered"},
  };
  c.outputs = {1, 5};
  c.output_docs = {"new: no packet has come back yet", "established: packets went both ways",
                   "related: ICMP errors about a connection, fragments behind their first",
                   "invalid: of no connection, or not allowed in its state",
                   "packets that would begin a connection where the table is full, or no translated port is free"};
  c.processing = "h/h";
  c.drops = {DropReason::kFlowTableFull, DropReason::kNatPortsExhausted, DropReason::kNatUntracked,
             DropReason::kUnconnectedOutput};
  c.example = "in -> IPInput -> ct :: ConnTrack(new); ct[0] -> ACL(new) -> out; ct[1] -> ACL(established) -> out;";
  c.make = make_flow<ConnTrack>();
  registry.add(std::move(c));
}

}  // namespace sluice
