// host only
#include "control/packet_way.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
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

void append_texts(std::string& to, const std::vector<std::string>& texts) {
  to += '[';
  for (const std::string& text : texts) {
    if (&text != texts.data()) to += ',';
    append_json(to, text);
  }
  to += ']';
}

// What is said of the rules of one list.
class ListRules {
 public:
  ListRules(std::string_view table, const Image& image) : table_(table) {
    auto rules = AclRulesView::open(image);
    auto actions = AclActionsView::open(image);
    auto source = AclSourceView::open(image);
    if (rules.ok() && actions.ok()) rules_ = *rules, actions_ = *actions;
    if (source.ok()) source_ = *source;
  }

  // Sets `json` to {"table", "rule", "action", "text", "file", "line"}. Returns the same as a note.
  std::string say(uint32_t rule, std::string& json) {
    const bool known = rule != 0 && rule <= rules_.size();
    const uint32_t position = known ? position_of(rule) : rule;
    json = R"({"table":)";
    append_json(json, table_);
    fmt::format_to(std::back_inserter(json), R"(,"rule":{})", position);
    std::string note, text;
    if (known) {
      const AclAction action = actions_.action(rule);
      json += action.verb == AclVerb::kDeny   ? R"(,"action":"deny","text":)"
              : action.verb == AclVerb::kMark ? R"(,"action":"mark","text":)"
                                              : R"(,"action":"permit","text":)";
      text = to_native(configured_rule(rules_.rule(rule), action));
      append_json(json, text);
      if (const uint32_t line = source_.line(rule); line != 0) {
        const std::string_view file = source_.file(rule);
        json += R"(,"file":)";
        append_json(json, file);
        fmt::format_to(std::back_inserter(json), R"(,"line":{})", line);
        note = fmt::format("{}:{} ", file, line);
      }
      note += fmt::format("'{}' ", text);
    }
    json += '}';
    return note + fmt::format("(rule {})", position);
  }

 private:
  static constexpr uint32_t kBlock = 256;

  // An image that is patched has places between its rules where none is: there the range of ports is empty.
  uint32_t position_of(uint32_t rule) {
    const auto count = [&](uint32_t first, uint32_t last, uint32_t position) {
      for (uint32_t r = first; r <= last; ++r)
        position += rules_.rule(r).src_port_low <= rules_.rule(r).src_port_high ? 1 : 0;
      return position;
    };
    const uint32_t block = (rule - 1) / kBlock;
    while (before_.size() <= block) {
      const auto next = static_cast<uint32_t>(before_.size());
      before_.push_back(count((next - 1) * kBlock + 1, next * kBlock, before_.back()));
    }
    return count(block * kBlock + 1, rule, before_[block]);
  }

  std::string_view table_;
  AclRulesView rules_;
  AclActionsView actions_;
  AclSourceView source_;
  std::vector<uint32_t> before_ = {0};  // rules before those of block b, as far as somebody has asked
};

// What is said of the next hops of one route table.
struct TableHops {
  std::string_view table;
  std::optional<NextHopNames> names;
};

}  // namespace

class PacketWays::Walk final : public HostContext {
 public:
  Walk(const Router& router, const TableSet& tables, PrefixOf prefix_of, const Neighbours* neighbours)
      : router_(router),
        tables_(tables),
        prefix_of_(std::move(prefix_of)),
        neighbours_(neighbours),
        slots_(router.elements.size()),
        lists_(router.elements.size()),
        hops_(router.elements.size()) {}

  WayEnd explain(unsigned source, std::span<const uint8_t> frame, uint32_t wire_bytes, uint64_t timestamp_ns,
                 std::string& json) {
    WayEnd first;
    json_ = &json;
    used_ = 0;
    waiting_.clear();
    json += R"({"packets":[)";
    const Router::Target to = router_.target(source, 0);
    Batch* const batch = to.element == ~0u ? nullptr : new_batch(Batch::arena_need(frame.size()));
    uint8_t* const bytes = batch == nullptr ? nullptr : batch->reserve_clean(frame.size());
    if (bytes != nullptr) {
      std::copy(frame.begin(), frame.end(), bytes);
      batch->push(bytes, static_cast<uint32_t>(frame.size()), wire_bytes, timestamp_ns, 0);
      waiting_.push_back({batch, 0, to.element, to.port, "packet"});
    }
    follow(first);
    json += ']';
    if (!waiting_.empty()) fmt::format_to(std::back_inserter(json), R"(,"more":{})", waiting_.size());
    json += '}';
    return first;
  }

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
    if (to.element == ~0u || used_ > 4 * kMostPackets) return nullptr;
    Batch* const batch = new_batch(Batch::arena_need(bytes));
    if (batch == nullptr) return nullptr;
    waiting_.push_back({batch, 0, to.element, to.port,
                        fmt::format("made by {} for its output {}", router_.elements[element_]->name, output)});
    notes_.push_back(fmt::format("makes a packet for output {}", output));
    return batch;
  }
  void print(const Batch&, uint32_t, std::string_view line) override {
    notes_.push_back(fmt::format("prints {}", line));
  }
  uint8_t limiter() const override { return 0; }
  unsigned worker() const override { return 0; }

 private:
  // An empty batch of one packet, as a new one is. Batches stay for the next packet: to unmap their memory interrupts
  // every core that the process runs on.
  Batch* new_batch(size_t bytes) {
    if (used_ == batches_.size()) {
      auto batch = Batch::create(1, bytes);
      if (!batch) return nullptr;
      batches_.push_back(std::make_unique<Batch>(std::move(*batch)));
      batches_.back()->keep_descent();
    }
    Batch& batch = *batches_[used_++];
    batch.clear();
    batch.key(0) = FlowKey{};
    batch.worker(0) = 0;
    batch.set_departure_ns(0, 0);
    return &batch;
  }

  // Those that wait; `first` is what became of the first of them.
  void follow(WayEnd& first) {
    for (unsigned packets = 0; !waiting_.empty(); ++packets) {
      if (waiting_.front().batch->size() == 0) {  // it was not made after all
        waiting_.pop_front();
        continue;
      }
      if (packets == kMostPackets) return;
      const Place place = std::move(waiting_.front());
      waiting_.pop_front();
      rule_.clear();
      route_.clear();
      adjacency_.clear();
      end_ = {};
      std::string& json = *json_;
      json += first.packets == 0 ? R"({"from":)" : R"(,{"from":)";
      append_json(json, place.from);
      json += R"(,"way":[)";
      steps_ = 0;
      elements_ = first.packets == 0 ? &first.elements : nullptr;
      walk(place);
      json += R"(],"verdict":)";
      append_json(json, verdict_);
      json += R"(,"end":)";
      if (end_.element == nullptr) {
        json += "null";
      } else {
        json += R"({"element":)";
        append_json(json, end_.element->name);
        json += R"(,"reason":)";
        if (end_.reason == DropReason::kNone)
          fmt::format_to(std::back_inserter(json), R"(null,"port":{}}})", end_.port);
        else
          fmt::format_to(std::back_inserter(json), R"("{}","port":null}})", to_string(end_.reason));
      }
      if (!rule_.empty()) json.append(R"(,"rule":)").append(rule_);
      if (!route_.empty()) json.append(R"(,"route":)").append(route_);
      if (!adjacency_.empty()) json.append(R"(,"adjacency":)").append(adjacency_);
      json += '}';
      if (first.packets++ == 0) first.element = end_.element, first.reason = end_.reason;
    }
  }

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
      if (elements_ != nullptr) elements_->push_back(element_);
      if (element.kind() == ElementKind::kSink) {
        const bool ends = element.port().type == PortSpec::Type::kNull;
        const DropReason reason = batch_->annotation(row_).reason;
        say(element, {});
        if (ends) return dropped(reason == DropReason::kNone ? DropReason::kDiscard : reason, element);
        verdict_ = fmt::format("leaves by {}", element.name);
        end_ = {&element, DropReason::kNone, batch_->port(row_)};
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
    bytes_.assign(before.bytes(), before.bytes() + before.length());
    output_ = -1;
    dropped_ = DropReason::kNone;
    notes_.clear();
    Selection one;
    one.add(row_);
    switch (element.kind()) {
      case ElementKind::kStage: {
        std::optional<StageSlot>& slot = slots_[element_];
        if (!slot) {
          StageSlot bound{};
          bound.outputs = static_cast<uint8_t>(std::min(element.outputs, 255u));
          if (auto ok = element.bind(tables_, bound); !ok) {
            verdict_ = fmt::format("cannot be explained at {}: {}", element.name, ok.error().message);
            return false;
          }
          slot = bound;
        }
        tile_->packet[0] = before;
        tile_->index[0] = row_;
        tile_->count = 1;
        tile_->valid = 1;
        tile_->dead = 0;
        cpu_stage_kernel(slot->kind)(*slot, *tile_, 1, false);
        const Packet& after = tile_->packet[0];
        view.store(row_, kFieldKey, after);
        if (tile_->output[0] == kDropOutput)
          dropped_ = after.reason == DropReason::kNone ? DropReason::kUnconnectedOutput : after.reason;
        else
          output_ = tile_->output[0];
        break;
      }
      case ElementKind::kHost:
        element.process(*this, *batch_, one, input);
        break;
      case ElementKind::kOrdered: {
        std::vector<Selection> out(element.outputs);
        const auto ordered = element.make_ordered();
        const auto prepared = ordered->make_prepared();
        ordered->use(tables_, 0);
        if (prepared != nullptr) ordered->prepare(*batch_, nullptr, one, *prepared);
        ordered->process(*batch_, nullptr, one, prepared.get(), out);
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
    compare(element, before, after);
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
  void compare(const Element& element, const Packet& before, const Packet& after) {
    const std::vector<uint8_t>& bytes = bytes_;
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
    const size_t common = std::min<size_t>(bytes.size(), after.length());
    // Most elements change no byte.
    if (after.data == before.data && std::memcmp(bytes.data(), after.bytes(), common) != 0) {
      size_t first = 0, last = common;
      while (first < common && bytes[first] == after.bytes()[first]) ++first;
      while (last > first && bytes[last - 1] == after.bytes()[last - 1]) --last;
      const bool macs = first < 12 && after.l3 >= 14 && common >= 14;
      if (macs && element.class_name == "AdjacencyRewrite") {
        said.push_back(adjacency_note(after));
      } else if (first != last) {
        said.push_back(fmt::format("changes bytes {} to {}", first, last - 1));
      }
    }
    notes_.insert(notes_.begin(), said.begin(), said.end());
  }

  // Sets `adjacency_`. In the place of MACs that the output fills in stands whose they are.
  std::string adjacency_note(const Packet& after) {
    uint8_t macs[12];
    std::memcpy(macs, after.bytes(), sizeof macs);
    std::string whose;
    bool known = true;
    if (Neighbours::marked(after.bytes(), after.length())) {
      const auto key = neighbours_ == nullptr ? std::nullopt : neighbours_->whom(after.bytes(), after.length());
      known = key && neighbours_->address(macs, *key);
      if (key) whose = to_string(key->address);
    }
    const auto mac = [&](size_t at) {
      MacAddress address{};
      std::copy_n(macs + at, 6, address.bytes);
      return to_string(address);
    };
    adjacency_ = known ? fmt::format(R"({{"destination":"{}","source":"{}","port":{})", mac(0), mac(6), after.port)
                       : fmt::format(R"({{"destination":null,"source":null,"port":{})", after.port);
    if (!whose.empty()) fmt::format_to(std::back_inserter(adjacency_), R"(,"neighbour":"{}")", whose);
    adjacency_ += '}';
    const std::string who = whose.empty() ? "" : fmt::format("neighbour {}: ", whose);
    if (known) return fmt::format("{}{} <- {}", who, mac(0), mac(6));
    return whose.empty() ? "the output finds the neighbour" : who + "link-layer address not known";
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
    if (rule == 0) {
      rule_ = "null";
      return "no rule matches";
    }
    std::optional<ListRules>& list = lists_[element_];
    if (!list) {
      const auto table = table_of(tables_.acls, element);
      if (table == tables_.acls.end()) return fmt::format("rule {}", rule);
      list.emplace(table->first, *table->second);
    }
    return list->say(rule, rule_);
  }
  std::string hop_note(const Element& element, const Packet& after) {
    std::optional<TableHops>& hops = hops_[element_];
    if (!hops) {
      const auto table = table_of(tables_.routes, element);
      if (table == tables_.routes.end()) return fmt::format("next hop #{}", after.next_hop);
      hops.emplace().table = table->first;
      auto names = NextHopNames::open(table->second->section(SectionTag::kNextHopNames));
      if (names.ok()) hops->names = *names;
    }
    const std::string name(hops->names ? std::string(hops->names->name(after.next_hop))
                                       : fmt::format("#{}", after.next_hop));
    const IpAddress to{after.key.dst_hi, after.key.dst_lo, after.key.family};
    route_ = R"({"table":)";
    append_json(route_, hops->table);
    fmt::format_to(std::back_inserter(route_), R"(,"destination":"{}","next_hop":)", to_string(to));
    append_json(route_, name);
    if (prefix_of_) {
      if (const auto prefix = prefix_of_(hops->table, to))
        fmt::format_to(std::back_inserter(route_), R"(,"prefix":"{}")", to_string(*prefix));
    }
    route_ += '}';
    return fmt::format("next hop {}", name);
  }
  void dropped(DropReason reason, const Element& element) {
    verdict_ = fmt::format("dropped: {} at {}", to_string(reason), element.name);
    end_ = {&element, reason, 0};
  }
  void say(const Element& element, const std::vector<std::string>& notes) {
    std::string& json = *json_;
    json += steps_++ == 0 ? R"({"element":)" : R"(,{"element":)";
    append_json(json, element.name);
    json += R"(,"class":)";
    append_json(json, element.class_name);
    json += R"(,"notes":)";
    append_texts(json, notes);
    json += '}';
  }

  const Router& router_;
  const TableSet& tables_;
  const PrefixOf prefix_of_;
  const Neighbours* const neighbours_;
  // By element, once a packet has come to it; they point into the tables.
  std::vector<std::optional<StageSlot>> slots_;
  std::vector<std::optional<ListRules>> lists_;
  std::vector<std::optional<TableHops>> hops_;
  std::vector<std::unique_ptr<Batch>> batches_;
  size_t used_ = 0;  // of them, by the packet that came in and those that were made of it
  std::deque<Place> waiting_;
  std::unique_ptr<Tile> tile_ = std::make_unique<Tile>();
  std::vector<uint8_t> bytes_;  // before the element at hand
  std::string* json_ = nullptr;
  // The packet that is on its way: what it met, as JSON, and where it ended.
  std::string rule_, route_, adjacency_, verdict_;
  struct End {
    const Element* element = nullptr;
    DropReason reason = DropReason::kNone;
    uint16_t port = 0;
  } end_;
  unsigned steps_ = 0;
  std::vector<unsigned>* elements_ = nullptr;
  // What the element at hand says of it.
  Batch* batch_ = nullptr;
  uint32_t row_ = 0;
  unsigned element_ = 0;
  int output_ = -1;
  DropReason dropped_ = DropReason::kNone;
  std::vector<std::string> notes_;
};

PacketWays::PacketWays(const Router& router, const TableSet& tables, PrefixOf prefix_of, const Neighbours* neighbours)
    : walk_(std::make_unique<Walk>(router, tables, std::move(prefix_of), neighbours)) {}
PacketWays::~PacketWays() = default;

WayEnd PacketWays::explain(unsigned source, std::span<const uint8_t> frame, uint32_t wire_bytes, uint64_t timestamp_ns,
                           std::string& json) {
  return walk_->explain(source, frame, wire_bytes, timestamp_ns, json);
}

Json packet_way(const Router& router, const TableSet& tables, unsigned source, std::span<const uint8_t> frame,
                uint32_t wire_bytes, uint64_t timestamp_ns) {
  std::string json;
  PacketWays(router, tables).explain(source, frame, wire_bytes, timestamp_ns, json);
  return Json::parse(json);
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
