// host only
#include "control/packet_way.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "control/acl_images.h"
#include "control/json.h"
#include "control/key_text.h"
#include "exec/cpu/tile.h"
#include "formats/native_rules.h"
#include "net/text.h"
#include "tables/acl/sections.h"
#include "tables/adjacency/neighbours.h"
#include "tables/lpm/next_hop_names.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// A packet may pass so many elements, and cause so many others, before no more is told.
constexpr unsigned kMostSteps = 200, kMostPackets = 32;

// Where a packet is about to go.
struct Place {
  Batch* batch;
  uint32_t row;
  unsigned element, input;
  std::string from;  // "packet", or who made it
};

std::string flow_text(const FlowKey& k) {
  return k.family == 0 ? "not IP" : five_tuple(k);
}

class Walk final : public HostContext {
 public:
  Walk(const Router& router, const TableSet& tables) : router_(router), tables_(tables) {}

  void follow(Place start) {
    waiting_.push_back(std::move(start));
    for (unsigned packets = 0; !waiting_.empty(); ++packets) {
      const Place place = waiting_.front();
      waiting_.pop_front();
      if (place.batch->size() == 0) continue;  // it was not made after all
      if (packets == kMostPackets) {
        json_["more"] = waiting_.size() + 1;
        return;
      }
      Json way = Json::array();
      std::swap(way, steps_);
      met_ = Json::object();
      end_ = nullptr;
      walk(place);
      std::swap(way, steps_);
      Json one{{"from", place.from}, {"way", std::move(way)}, {"verdict", verdict_}, {"end", std::move(end_)}};
      one.update(met_);
      json_["packets"].push_back(std::move(one));
    }
  }
  Json& json() { return json_; }

  // HostContext -------------------------------------------------------------------------------------------------------
  void forward(unsigned output, const Selection& packets) override {
    if (packets.has(row_)) output_ = static_cast<int>(output);
  }
  void drop(Batch& batch, uint32_t i, DropReason reason) override {
    if (&batch == batch_ && i == row_) dropped_ = reason;
  }
  void lose(uint32_t count, DropReason reason) override {
    notes_.push_back(fmt::format("{} packets could not be made: {}", count, to_string(reason)));
  }
  Batch* spawn(unsigned output, size_t bytes) override {
    const Router::Target to = router_.target(element_, output);
    if (to.element == ~0u || made_.size() == 4 * kMostPackets) return nullptr;
    auto batch = Batch::create(1, Batch::arena_need(bytes));
    if (!batch) return nullptr;
    made_.push_back(std::make_unique<Batch>(std::move(*batch)));
    made_.back()->keep_descent();
    waiting_.push_back({made_.back().get(), 0, to.element, to.port,
                        fmt::format("made by {} for its output {}", router_.elements[element_]->name, output)});
    notes_.push_back(fmt::format("makes a packet for output {}", output));
    return made_.back().get();
  }
  void print(const Batch&, uint32_t, std::string_view line) override {
    notes_.push_back(fmt::format("prints {}", line));
  }
  uint8_t limiter() const override { return 0; }
  unsigned worker() const override { return 0; }

 private:
  void walk(const Place& place) {
    batch_ = place.batch;
    row_ = place.row;
    element_ = place.element;
    unsigned input = place.input;
    for (unsigned step = 0; true; ++step) {
      if (step == kMostSteps) {
        verdict_ = fmt::format("still in the graph after {} elements", kMostSteps);
        return;
      }
      const Element& element = *router_.elements[element_];
      if (element.kind() == ElementKind::kSink) {
        const bool ends = element.port().type == PortSpec::Type::kNull;
        const DropReason reason = batch_->annotation(row_).reason;
        say(element, {});
        if (ends) return dropped(reason == DropReason::kNone ? DropReason::kDiscard : reason, element);
        verdict_ = fmt::format("leaves by {}", element.name);
        end_ = {{"element", element.name}, {"reason", nullptr}, {"port", batch_->port(row_)}};
        return;
      }
      if (!handle(element, input)) return;
      const Router::Target next = router_.target(element_, static_cast<unsigned>(output_));
      if (next.element == ~0u) {
        const DropReason reason = batch_->annotation(row_).reason;
        return dropped(reason == DropReason::kNone ? DropReason::kUnconnectedOutput : reason, element);
      }
      element_ = next.element;
      input = next.port;
    }
  }

  // False: the packet ends here; else output_ is where it goes on.
  bool handle(const Element& element, unsigned input) {
    Packet before;
    const BatchView view = batch_->view();
    view.load(row_, kFieldKey, before);
    const std::vector<uint8_t> bytes(before.bytes(), before.bytes() + before.length());
    output_ = -1;
    dropped_ = DropReason::kNone;
    notes_.clear();
    Selection one;
    one.add(row_);
    switch (element.kind()) {
      case ElementKind::kStage: {
        StageSlot slot{};
        slot.outputs = static_cast<uint8_t>(std::min(element.outputs, 255u));
        if (auto bound = element.bind(tables_, slot); !bound) {
          verdict_ = fmt::format("cannot be explained at {}: {}", element.name, bound.error().message);
          return false;
        }
        auto tile = std::make_unique<Tile>();
        tile->packet[0] = before;
        tile->index[0] = row_;
        tile->count = 1;
        tile->valid = 1;
        tile->dead = 0;
        cpu_stage_kernel(slot.kind)(slot, *tile, 1, false);
        const Packet& after = tile->packet[0];
        view.store(row_, kFieldKey, after);
        if (tile->output[0] == kDropOutput)
          dropped_ = after.reason == DropReason::kNone ? DropReason::kUnconnectedOutput : after.reason;
        else
          output_ = tile->output[0];
        break;
      }
      case ElementKind::kHost:
        element.process(*this, *batch_, one, input);
        break;
      case ElementKind::kOrdered: {
        std::vector<Selection> out(element.outputs);
        element.make_ordered()->process(*batch_, one, out);
        for (size_t n = 0; n < out.size(); ++n) {
          if (out[n].has(row_)) output_ = static_cast<int>(n);
        }
        if (output_ < 0) dropped_ = batch_->annotation(row_).reason;
        break;
      }
      default:
        say(element, {});
        verdict_ = fmt::format("held by {}: what happens next depends on time and on other packets", element.name);
        return false;
    }
    Packet after;
    view.load(row_, kFieldKey, after);
    compare(element, before, bytes, after);
    if (element.outputs > 1 && output_ >= 0) notes_.push_back(fmt::format("output {}", output_));
    if (dropped_ == DropReason::kNone && output_ < 0) dropped_ = DropReason::kDiscard;
    if (output_ < 0)
      notes_.push_back(fmt::format("drops: {}", to_string(dropped_)));
    else if (after.reason != DropReason::kNone && after.reason != before.reason)
      notes_.push_back(to_string(after.reason));
    say(element, notes_);
    if (output_ < 0) dropped(dropped_, element);
    return output_ >= 0;
  }

  // What the element changed, as notes.
  void compare(const Element& element, const Packet& before, const std::vector<uint8_t>& bytes, const Packet& after) {
    std::vector<std::string> said;
    if (!(before.key == after.key)) said.push_back(flow_text(after.key));
    if (after.rule != before.rule || (element.class_name == "ACL" && after.key.family != 0))
      said.push_back(rule_note(element, after.rule));
    if (after.next_hop != before.next_hop) said.push_back(hop_note(element, after));
    if (after.mark != before.mark) said.push_back(fmt::format("mark {}", after.mark));
    if (after.paint != before.paint) said.push_back(fmt::format("paint {}", after.paint));
    if (after.port != before.port) said.push_back(fmt::format("port {}", after.port));
    if (before.l3 == after.l3 && before.key == after.key && after.ttl != before.ttl)
      said.push_back(fmt::format("TTL {} -> {}", before.ttl, after.ttl));
    if (after.data != before.data) {
      const int32_t bytes_moved = after.data - before.data;
      said.push_back(bytes_moved > 0 ? fmt::format("removes {} bytes at the front", bytes_moved)
                                     : fmt::format("adds {} bytes at the front", -bytes_moved));
    }
    if (after.end != before.end) said.push_back(fmt::format("length {} -> {}", before.length(), after.length()));
    if (after.data == before.data) {
      const size_t common = std::min<size_t>(bytes.size(), after.length());
      size_t first = 0, last = common;
      while (first < common && bytes[first] == after.bytes()[first]) ++first;
      while (last > first && bytes[last - 1] == after.bytes()[last - 1]) --last;
      const bool macs = first < 12 && after.l3 >= 14 && common >= 14;
      if (macs && element.class_name == "AdjacencyRewrite") {
        MacAddress to{}, from{};
        std::copy(after.bytes(), after.bytes() + 6, to.bytes);
        std::copy(after.bytes() + 6, after.bytes() + 12, from.bytes);
        // In the place of MACs that the kernel has to be asked for stands who that is.
        const bool known = !Neighbours::marked(after.bytes(), after.length());
        met_["adjacency"] = {{"destination", known ? Json(to_string(to)) : Json(nullptr)},
                             {"source", known ? Json(to_string(from)) : Json(nullptr)},
                             {"port", after.port}};
        said.push_back(known ? fmt::format("{} <- {}", to_string(to), to_string(from))
                             : std::string("neighbour not resolved yet"));
      } else if (first != last) {
        said.push_back(fmt::format("changes bytes {} to {}", first, last - 1));
      }
    }
    notes_.insert(notes_.begin(), said.begin(), said.end());
  }

  // The table that an element goes by: the one that its configuration names first, or the only one.
  template <typename Tables>
  static typename Tables::const_iterator table_of(const Tables& tables, const Element& element) {
    for (const TableDeclaration& own : element.tables()) {
      if (const auto it = tables.find(own.name); it != tables.end()) return it;
    }
    const std::string& text = element.configuration;
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    const auto named = tables.find(text.substr(begin, text.find_first_of(", ", begin) - begin));
    return named != tables.end() || tables.size() != 1 ? named : tables.begin();
  }
  std::string rule_note(const Element& element, uint32_t rule) {
    const auto table = table_of(tables_.acls, element);
    if (rule == 0) {
      met_["rule"] = nullptr;
      return "no rule matches";
    }
    if (table == tables_.acls.end()) return fmt::format("rule {}", rule);
    Json json = image_rule_json(table->first, *table->second, rule);
    std::string note = fmt::format("rule {}", json["rule"].get<uint32_t>());
    if (json.contains("file"))
      note += fmt::format(" at {}:{}", json["file"].get<std::string>(), json["line"].get<uint32_t>());
    if (json.contains("text")) note += fmt::format(" '{}'", json["text"].get<std::string>());
    met_["rule"] = std::move(json);
    return note;
  }
  std::string hop_note(const Element& element, const Packet& after) {
    const auto table = table_of(tables_.routes, element);
    std::string name = fmt::format("#{}", after.next_hop);
    if (table != tables_.routes.end()) {
      auto names = NextHopNames::open(table->second->section(SectionTag::kNextHopNames));
      if (names.ok()) name = names->name(after.next_hop);
      met_["route"] = {{"table", table->first},
                       {"destination", to_string(IpAddress{after.key.dst_hi, after.key.dst_lo, after.key.family})},
                       {"next_hop", name}};
    }
    return fmt::format("next hop {}", name);
  }
  void dropped(DropReason reason, const Element& element) {
    verdict_ = fmt::format("dropped: {} at {}", to_string(reason), element.name);
    end_ = {{"element", element.name}, {"reason", to_string(reason)}, {"port", nullptr}};
  }
  void say(const Element& element, const std::vector<std::string>& notes) {
    steps_.push_back({{"element", element.name}, {"class", element.class_name}, {"notes", notes}});
  }

  const Router& router_;
  const TableSet& tables_;
  std::vector<std::unique_ptr<Batch>> made_;
  std::deque<Place> waiting_;
  Json json_{{"packets", Json::array()}}, steps_ = Json::array();
  Json met_ = Json::object(), end_;  // of the packet at hand
  std::string verdict_;
  // The packet that is on its way, and what the element at hand says of it.
  Batch* batch_ = nullptr;
  uint32_t row_ = 0;
  unsigned element_ = 0;
  int output_ = -1;
  DropReason dropped_ = DropReason::kNone;
  std::vector<std::string> notes_;
};

}  // namespace

Json image_rule_json(const std::string& table, const Image& image, uint32_t rule) {
  Json json{{"table", table}, {"rule", rule}};
  const auto rules = AclRulesView::open(image);
  const auto actions = AclActionsView::open(image);
  if (!rules || !actions || rule == 0 || rule > rules->size()) return json;
  // An image that is patched has places between its rules where none is: there the range of ports is empty.
  uint32_t position = 0;
  for (uint32_t r = 1; r <= rule; ++r) {
    if (rules->rule(r).src_port_low <= rules->rule(r).src_port_high) ++position;
  }
  json["rule"] = position;
  const AclAction action = actions->action(rule);
  json["action"] = action.verb == AclVerb::kDeny ? "deny" : action.verb == AclVerb::kMark ? "mark" : "permit";
  json["text"] = to_native(configured_rule(rules->rule(rule), action));
  if (const auto source = AclSourceView::open(image); source.ok() && source->line(rule) != 0) {
    json["file"] = source->file(rule);
    json["line"] = source->line(rule);
  }
  return json;
}

Json packet_way(const Router& router, const TableSet& tables, unsigned source, std::span<const uint8_t> frame,
                uint32_t wire_bytes, uint64_t timestamp_ns) {
  Walk walk(router, tables);
  const Router::Target first = router.target(source, 0);
  auto batch = Batch::create(1, Batch::arena_need(frame.size()));
  uint8_t* const to = batch ? batch->reserve_clean(frame.size()) : nullptr;
  if (first.element == ~0u || to == nullptr) return std::move(walk.json());
  std::copy(frame.begin(), frame.end(), to);
  batch->push(to, static_cast<uint32_t>(frame.size()), wire_bytes, timestamp_ns, 0);
  walk.follow({&*batch, 0, first.element, first.port, "packet"});
  return std::move(walk.json());
}

std::string packet_way_text(const Json& way) {
  std::string text;
  const auto word = [](const Json& json) -> const std::string& { return json.get_ref<const std::string&>(); };
  bool first = true;
  for (const Json& packet : way.at("packets")) {
    if (!first) text += word(packet.at("from")) + "\n";
    first = false;
    for (const Json& step : packet.at("way")) {
      const std::string who = fmt::format("{} :: {}", word(step.at("element")), word(step.at("class")));
      std::vector<std::string> notes;
      for (const Json& note : step.at("notes")) notes.push_back(word(note));
      text += notes.empty() ? fmt::format("  {}\n", who) : fmt::format("  {:<24} {}\n", who, fmt::join(notes, ", "));
    }
    text += fmt::format("  verdict  {}\n", word(packet.at("verdict")));
  }
  if (way.contains("more")) text += fmt::format("and {} more packets\n", way.at("more").get<uint64_t>());
  return text;
}

}  // namespace sluice
