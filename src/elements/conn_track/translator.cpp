// host only
#include "elements/conn_track/translator.h"

#include "elements/list_table.h"
#include "elements/nat/table.h"
#include "net/translate.h"
#include "tables/adjacency/adjacency_model.h"
#include "tables/lpm/algorithms.h"

namespace sluice {
namespace {

// Addresses and ports of a packet from the end that is said.
NatTuple tuple_of(const FlowEnds& ends, bool from_high) {
  NatTuple t{static_cast<uint32_t>(ends.low_lo), static_cast<uint32_t>(ends.high_lo), ends.low_port, ends.high_port,
             ends.protocol};
  if (from_high) {
    std::swap(t.source, t.destination);
    std::swap(t.source_port, t.destination_port);
  }
  return t;
}

// The other way round: of a query, `query` is the type of its request, and `asks` whether the packet is one.
FlowEnds ends_of(const NatTuple& t, uint8_t query, bool asks, bool& from_high) {
  FlowEnds e;
  from_high = std::pair(t.source, t.source_port) > std::pair(t.destination, t.destination_port);
  e.low_lo = from_high ? t.destination : t.source;
  e.high_lo = from_high ? t.source : t.destination;
  e.low_port = from_high ? t.destination_port : t.source_port;
  e.high_port = from_high ? t.source_port : t.destination_port;
  e.protocol = t.protocol;
  e.family = 4;
  e.query = query;
  e.high_asks = query != 0 && from_high == asks ? 1 : 0;
  return e;
}

NatTuple reversed(const NatTuple& t) {
  return {t.destination, t.source, t.destination_port, t.source_port, t.protocol};
}

// `port`: whether that is written, too.
void write_destination(Batch& batch, uint32_t row, uint32_t address, uint16_t port, bool with_port) {
  const Extent& e = batch.extent(row);
  uint8_t* const frame = batch.frame(row);
  FlowKey& key = batch.key(row);
  Translation& t = batch.translation(row);
  t.destination = static_cast<uint32_t>(key.dst_lo);
  t.has_destination = 1;
  if (with_port) {
    t.destination_port = key.protocol == kProtocolIcmp ? load_be16(frame + e.l4 + 4) : key.dst_port;
    t.has_destination_port = 1;
  }
  translate(frame + e.l3, frame + e.end, Side::kDestination, {address, port, with_port});
  key.dst_lo = address;
  if (with_port && key.protocol != kProtocolIcmp) key.dst_port = port;
}

}  // namespace

Result<void> Translator::use(const TableSet& tables) {
  auto lookup = list_lookup(tables, nat_table_kind(), options_.table);
  if (!lookup) return std::move(lookup).error();
  std::function<uint32_t(uint32_t)> next_hop;
  AdjacencyView adjacencies;
  if (!options_.routes.empty()) {
    auto routes = find_table(tables.routes, "route table", options_.routes);
    if (!routes) return std::move(routes).error();
    auto ok = with_fib4(
        **routes, [&](const auto& view) { next_hop = [view](uint32_t address) { return view.lookup(address); }; });
    if (!ok) return ok;
    auto image = find_table(tables.adjacencies, "adjacency table", options_.adjacencies);
    if (!image) return std::move(image).error();
    auto view = open_adjacencies(**image);
    if (!view) return std::move(view).error();
    adjacencies = *view;
  }
  const std::span rules(reinterpret_cast<const NatRule*>(lookup->data()), lookup->size() / sizeof(NatRule));
  if (auto ok = nat_.use(rules, options_.outputs); !ok) return ok;
  next_hop_ = std::move(next_hop);
  adjacencies_ = adjacencies;
  return {};
}

int32_t Translator::port_of(const FlowKey& key) const {
  if (!next_hop_) return -1;
  const Adjacency* const a =
      adjacencies_.select_by(next_hop_(static_cast<uint32_t>(key.dst_lo)), [&] { return flow_hash(key); });
  return a == nullptr ? -1 : a->port;
}

NatTuple Translator::translate_destination(Batch& batch, uint32_t row, const TrackedPacket& packet) const {
  if (packet.ends.family != 4) return {};
  const NatTuple before = tuple_of(packet.ends, packet.from_high), after = nat_.destination(before);
  if (!(after == before)) {
    write_destination(batch, row, after.destination, after.destination_port,
                      after.destination_port != before.destination_port);
  }
  return after;
}

FlowTable::Opening Translator::open(const Batch& batch, uint32_t row, const TrackedPacket& packet,
                                    const NatTuple& with_destination, const FlowTable& table) {
  FlowTable::Opening opening;
  if (packet.ends.family != 4) return opening;
  const NatTuple before = tuple_of(packet.ends, packet.from_high);
  const auto replies_to = [&](const NatTuple& t, bool& from_high) {
    return ends_of(reversed(t), packet.ends.query, false, from_high);
  };
  const auto taken = [&](const NatTuple& t) {
    bool from_high = false;
    const FlowEnds replies = replies_to(t, from_high);
    return table.has(replies, from_high);
  };
  auto given = nat_.source(
      nat_.destination(before), [&] { return port_of(batch.key(row)); }, taken);
  // Without a rule for its source, replies may be those of another connection, one of which is translated.
  if (given.refused || (taken(given.tuple) && !Nat::step_aside(given.tuple, {}, taken))) {
    nat_.release(given.mapping);
    opening.refused = FlowTable::Refused::kNoPort;
    return opening;
  }
  opening.translated = !(given.tuple == before);
  opening.replies = replies_to(given.tuple, opening.from_high);
  opening.mapping = given.mapping;
  return opening;
}

void Translator::translate(Batch& batch, uint32_t row, const TrackedPacket& packet,
                           const FlowTable::Translated& to) const {
  using Kind = TrackedPacket::Kind;
  const NatTuple before = tuple_of(packet.ends, packet.from_high), after = tuple_of(to.ends, to.from_high);
  const FlowKey& key = batch.key(row);
  const Extent& e = batch.extent(row);
  const bool error = packet.kind == Kind::kError, later = packet.kind == Kind::kLaterFragment;
  const bool ports = !later && Nat::has_mapped_port(packet.ends.protocol);
  if (error) {
    // The quoted packet went the other way, translated; who sent it knows it as it was.
    uint8_t *const icmp = batch.frame(row) + e.l4, *const end = batch.frame(row) + e.end;
    translate_quoted(icmp, end, Side::kSource, {after.destination, after.destination_port, ports});
    translate_quoted(icmp, end, Side::kDestination, {after.source, after.source_port, ports});
  }
  // Of a query the identifier is written once, on the side of the end that asked.
  const bool query = packet.ends.query != 0;
  const bool destination_port = ports && !error && (query ? packet.kind == Kind::kReply : true) &&
                                after.destination_port != before.destination_port;
  const bool source_port =
      ports && !error && (query ? packet.kind == Kind::kRequest : true) && after.source_port != before.source_port;
  const bool destination_is_there = static_cast<uint32_t>(key.dst_lo) == after.destination &&
                                    (!destination_port || query || key.dst_port == after.destination_port);
  if (!destination_is_there || (query && destination_port))
    write_destination(batch, row, after.destination, after.destination_port, destination_port);
  if (after.source == before.source && !source_port) return;
  Translation& t = batch.translation(row);
  t.source = after.source;
  t.source_port = after.source_port;
  t.has_source = 1;
  t.has_source_port = source_port ? 1 : 0;
}

bool Translator::must_not_leave(const Batch& batch, uint32_t row) const {
  const FlowKey& key = batch.key(row);
  if (key.family != 4) return false;
  const NatTuple t{static_cast<uint32_t>(key.src_lo), static_cast<uint32_t>(key.dst_lo), key.src_port, key.dst_port,
                   key.protocol};
  return nat_.may_be_for(t, (key.bits & FlowKey::kHasPorts) != 0 || !Nat::has_mapped_port(key.protocol));
}

}  // namespace sluice
