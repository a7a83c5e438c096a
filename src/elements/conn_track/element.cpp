// host only
// ConnTrack: sorts packets by the state of their connection (flows/flow_table.h).
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "elements/shaping.h"
#include "elements/table_use.h"
#include "flows/flow_table.h"
#include "graph/router.h"
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

class Tracker final : public Element::Ordered {
 public:
  Tracker(const FlowTable::Options& options, std::string list) : table_(options), list_(std::move(list)) {}

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
    if (list_.empty() || generation == generation_) return;
    generation_ = generation;
    open_ = false;
    const auto image = tables.acls.find(list_);
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
      const auto answer =
          table_.take(one.packet, one.hash, e.wire_end - static_cast<uint32_t>(e.data),
                      clock_.at(batch.timestamp_ns(one.row)), [&] { return accepts(batch.key(one.row)); });
      auto output = static_cast<unsigned>(answer.state);
      if (answer.refused == FlowTable::Refused::kFull) {
        batch.annotation(one.row).reason = DropReason::kFlowTableFull;
        output = kFullOutput;
      }
      if (output < out.size()) out[output].add(one.row);
    }
  }

 private:
  // Whether the list lets a new connection begin that is to be remembered. What it says of the packet itself the list
  // says again, to which the packet goes on: by the same tables.
  bool accepts(const FlowKey& key) const {
    if (list_.empty()) return true;
    if (!open_) return false;
    const uint32_t rule = view_.lookup(key);
    if (rule == 0) return false;
    const AclAction action = actions_.action(rule);
    return action.verb != AclVerb::kDeny && action.keep != 0;
  }

  FlowTable table_;
  PacketClock clock_;
  std::string list_;
  AclView view_;
  AclActionsView actions_;
  bool open_ = false;
  uint64_t generation_ = ~uint64_t{0};
};

class ConnTrack final : public OrderedElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    list_ = arguments.get_string("NEW");
    options_.capacity = static_cast<uint32_t>(arguments.get_uint("CAPACITY"));
    options_.pick_up = arguments.get_bool("PICK_UP");
    options_.timeouts.tcp_established = arguments.get_time_ns("TCP_TIMEOUT");
    options_.timeouts.udp = arguments.get_time_ns("UDP_TIMEOUT");
  }
  bool output_optional(unsigned output) const override { return output != 0; }
  StageTraits stage_traits() const override { return {kFieldKey | kFieldL3 | kFieldFrame, kFieldReason}; }
  Result<void> check_tables(const TableSet& tables) const override {
    if (list_.empty()) return {};
    if (auto image = find_table(tables.acls, "ACL table", list_); !image.ok()) return std::move(image).error();
    return {};
  }
  std::unique_ptr<Ordered> make_ordered() const override { return std::make_unique<Tracker>(options_, list_); }

  Result<void> start(FlowContext&) override {
    return Error(fmt::format("{} takes whole batches, and this graph is run packet by packet", name),
                 "leave out queues and shapers, and what makes packets in front of it");
  }
  Time time() const override { return Time::kLooks; }
  void push(FlowContext& context, unsigned, PacketBox packet) override { context.push(3, std::move(packet)); }

 private:
  std::string list_;
  FlowTable::Options options_;
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
      "all "
      "have it); a packet that is denied leaves nothing. Each output leads to the list for packets of that state: "
      "`AclTable(new, FILE f, FORMAT auto@new)`. The answers are the same for any number of workers and any size of "
      "batches.";
  c.arguments = {
      {.name = "NEW",
       .kind = ArgumentKind::kString,
       .positional = true,
       .help = "the access list of new connections; without one each may begin"},
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
                   "packets that would begin a connection where the table is full"};
  c.processing = "h/h";
  c.drops = {DropReason::kFlowTableFull, DropReason::kUnconnectedOutput};
  c.example = "in -> IPInput -> ct :: ConnTrack(new); ct[0] -> ACL(new) -> out; ct[1] -> ACL(established) -> out;";
  c.make = make_flow<ConnTrack>();
  registry.add(std::move(c));
}

}  // namespace sluice
