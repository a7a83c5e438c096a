// host only
#include "explain_graph.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "control/json.h"
#include "exec/cpu/tile.h"
#include "key_text.h"
#include "pipeline.h"
#include "tables/lpm/next_hop_names.h"

namespace sluice::app {
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
  explicit Walk(const Pipeline& pipeline) : p_(pipeline) {}

  void follow(Place start) {
    waiting_.push_back(std::move(start));
    for (unsigned packets = 0; !waiting_.empty(); ++packets) {
      const Place place = waiting_.front();
      waiting_.pop_front();
      if (place.batch->size() == 0) continue;  // it was not made after all
      if (packets == kMostPackets) {
        text_ += fmt::format("and {} more packets\n", waiting_.size() + 1);
        return;
      }
      Json way = Json::array();
      std::swap(way, steps_);
      if (packets != 0) text_ += fmt::format("{}\n", place.from);
      walk(place);
      std::swap(way, steps_);
      json_["packets"].push_back({{"from", place.from}, {"way", std::move(way)}, {"verdict", verdict_}});
      text_ += fmt::format("  verdict  {}\n", verdict_);
    }
  }
  Json& json() { return json_; }
  const std::string& text() const { return text_; }

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
    const Router::Target to = p_.router.target(element_, output);
    if (to.element == ~0u || made_.size() == 4 * kMostPackets) return nullptr;
    made_.push_back(std::make_unique<Batch>(need(Batch::create(1, Batch::arena_need(bytes)))));
    made_.back()->keep_descent();
    waiting_.push_back({made_.back().get(), 0, to.element, to.port,
                        fmt::format("made by {} for its output {}", p_.router.elements[element_]->name, output)});
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
      const Element& element = *p_.router.elements[element_];
      if (element.kind() == ElementKind::kSink) {
        const bool ends = element.port().type == PortSpec::Type::kNull;
        const DropReason reason = batch_->annotation(row_).reason;
        say(element, {});
        verdict_ = ends ? dropped_text(reason == DropReason::kNone ? DropReason::kDiscard : reason, element)
                        : fmt::format("leaves by {}", element.name);
        return;
      }
      if (!handle(element, input)) return;
      const Router::Target next = p_.router.target(element_, static_cast<unsigned>(output_));
      if (next.element == ~0u) {
        const DropReason reason = batch_->annotation(row_).reason;
        verdict_ = dropped_text(reason == DropReason::kNone ? DropReason::kUnconnectedOutput : reason, element);
        return;
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
        need(element.bind(p_.tables, slot));
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
    compare(before, bytes, after);
    if (element.outputs > 1 && output_ >= 0) notes_.push_back(fmt::format("output {}", output_));
    if (dropped_ == DropReason::kNone && output_ < 0) dropped_ = DropReason::kDiscard;
    if (output_ < 0)
      notes_.push_back(fmt::format("drops: {}", to_string(dropped_)));
    else if (after.reason != DropReason::kNone && after.reason != before.reason)
      notes_.push_back(to_string(after.reason));
    say(element, notes_);
    if (output_ < 0) verdict_ = dropped_text(dropped_, element);
    return output_ >= 0;
  }

  // What the element changed, as notes.
  void compare(const Packet& before, const std::vector<uint8_t>& bytes, const Packet& after) {
    std::vector<std::string> said;
    if (!(before.key == after.key)) said.push_back(flow_text(after.key));
    if (after.rule != before.rule) said.push_back(rule_note(after.rule));
    if (after.next_hop != before.next_hop) said.push_back(fmt::format("next hop {}", hop_name(after.next_hop)));
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
      if (first != last) said.push_back(fmt::format("changes bytes {} to {}", first, last - 1));
    }
    notes_.insert(notes_.begin(), said.begin(), said.end());
  }

  std::string rule_note(uint32_t rule) const {
    if (rule == 0) return "no rule matches";
    if (p_.tables.acls.size() != 1) return fmt::format("rule {}", rule);
    const std::string place = rule_place(*p_.tables.acls.begin()->second, rule);
    return place.starts_with("rule ") ? place : fmt::format("rule {} at {}", rule, place);
  }
  std::string hop_name(uint32_t hop) const {
    if (p_.tables.routes.size() == 1) {
      auto names = NextHopNames::open(p_.tables.routes.begin()->second->section(SectionTag::kNextHopNames));
      if (names.ok()) return std::string(names->name(hop));
    }
    return fmt::format("#{}", hop);
  }
  static std::string dropped_text(DropReason reason, const Element& element) {
    return fmt::format("dropped: {} at {}", to_string(reason), element.name);
  }
  void say(const Element& element, const std::vector<std::string>& notes) {
    steps_.push_back({{"element", element.name}, {"class", element.class_name}, {"notes", notes}});
    const std::string who = fmt::format("{} :: {}", element.name, element.class_name);
    text_ += notes.empty() ? fmt::format("  {}\n", who) : fmt::format("  {:<24} {}\n", who, fmt::join(notes, ", "));
  }

  const Pipeline& p_;
  std::vector<std::unique_ptr<Batch>> made_;
  std::deque<Place> waiting_;
  Json json_{{"packets", Json::array()}}, steps_ = Json::array();
  std::string text_, verdict_;
  // The packet that is on its way, and what the element at hand says of it.
  Batch* batch_ = nullptr;
  uint32_t row_ = 0;
  unsigned element_ = 0;
  int output_ = -1;
  DropReason dropped_ = DropReason::kNone;
  std::vector<std::string> notes_;
};

}  // namespace

Exit explain_graph(const std::vector<std::string>& words, const std::vector<uint8_t>& frame, uint32_t wire_bytes) {
  auto [file, defines] = read_words(words, {});
  if (file.empty()) fail(Exit::kUsage, "no configuration is given");
  std::string text = read_configuration(file, defines);
  const auto pipeline = load_pipeline(parse_text(std::move(text), title_of(file), defines), defines, {}, false, false,
                                      Scheduled::kAllowed);
  const Router& router = pipeline->router;
  unsigned source = ~0u, sources = 0;
  for (unsigned e = 0; e < router.elements.size(); ++e) {
    if (router.elements[e]->kind() != ElementKind::kSource) continue;
    if (sources++ == 0) source = e;
  }
  if (source == ~0u) fail(Exit::kBadInput, fmt::format("{}: no element is a packet source", file));
  if (sources > 1) {
    note(fmt::format("the packet enters at {}, the first of {} sources", router.elements[source]->name, sources));
  }
  Batch batch = need(Batch::create(1, Batch::arena_need(frame.size())));
  uint8_t* to = batch.reserve_clean(frame.size());
  std::copy(frame.begin(), frame.end(), to);
  batch.push(to, static_cast<uint32_t>(frame.size()), wire_bytes, 0, 0);
  const Router::Target first = router.target(source, 0);
  Walk walk(*pipeline);
  if (first.element != ~0u) walk.follow({&batch, 0, first.element, first.port, "packet"});
  if (json_output()) {
    walk.json()["source"] = router.elements[source]->name;
    walk.json()["bytes"] = frame.size();
    print_json(walk.json());
  } else {
    print_out(
        fmt::format("packet of {} bytes, enters at {}\n{}", frame.size(), router.elements[source]->name, walk.text()));
  }
  return Exit::kOk;
}

}  // namespace sluice::app
