// host only
// Police. Sources: RFC 2697, RFC 2698 (qos/policer.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string>
#include <unordered_map>

#include "elements/flow_element.h"
#include "elements/shaping.h"
#include "graph/router.h"
#include "qos/policer.h"
#include "qos/policer_run.h"

namespace sluice {
namespace {

enum class PoliceBy : uint8_t { kAll, kClass, kRule, kMark };

// Buckets of one element.
class PolicerBank {
 public:
  PolicerBank() = default;
  PolicerBank(const PolicerConfig& config, PoliceBy by) : config_(config), run_(config), by_(by) {}
  // A copy's buckets would lie elsewhere.
  PolicerBank(PolicerBank&&) = default;
  PolicerBank& operator=(PolicerBank&&) = default;

  // The color of a packet, which is paid for. Buckets of those who come for the first time are full.
  Color police(uint64_t now_ns, uint32_t bytes, uint8_t paint, uint32_t rule, uint32_t mark) {
    const Color before = paint == 0 ? Color::kGreen : paint == 1 ? Color::kYellow : Color::kRed;
    return sluice::police(config_, buckets_of(who(paint, rule, mark), now_ns), now_ns, bytes, before);
  }
  // How many buckets packets of a word are looked at by before their turn, at most; 0: none, as they go by colors that
  // they come with, or by rules, which are many.
  uint32_t groups() const {
    if (config_.color_aware != 0 || by_ == PoliceBy::kRule) return 0;
    return by_ == PoliceBy::kAll ? 1 : 4;
  }
  uint32_t who(uint8_t paint, uint32_t rule, uint32_t mark) const {
    return by_ == PoliceBy::kClass ? paint : by_ == PoliceBy::kRule ? rule : by_ == PoliceBy::kMark ? mark : 0;
  }
  PolicerRun::Block block(const OrderedWord& packets) const {
    return run_.block(packets.times, packets.bytes, packets.count);
  }
  bool all_green(uint32_t who, const PolicerRun::Block& block) {
    return run_.all_green(buckets_of(who, block.first_ns), block);
  }
  // Tokens of another bank, as far as these buckets go.
  void take(const PolicerBank& from, uint64_t now_ns) {
    if (by_ != from.by_) return;
    const PolicerState full = PolicerState::full(config_, now_ns);
    for (auto [who, was] : from.buckets_) {
      refill(from.config_, was, now_ns);
      buckets_[who] = {std::min(was.committed, full.committed), std::min(was.excess, full.excess), now_ns};
    }
  }

 private:
  PolicerState& buckets_of(uint32_t who, uint64_t now_ns) {
    PolicerState*& known = who < near_.size() ? near_[who] : last_;
    if (known == nullptr || (who >= near_.size() && who != last_who_)) {
      known = &buckets_.try_emplace(who, PolicerState::full(config_, now_ns)).first->second;
      if (who >= near_.size()) last_who_ = who;
    }
    return *known;
  }

  PolicerConfig config_;
  PolicerRun run_;
  PoliceBy by_ = PoliceBy::kAll;
  std::unordered_map<uint32_t, PolicerState> buckets_;  // its entries stay where they are
  std::array<PolicerState*, 256> near_{};               // of the least numbers, all classes among them
  PolicerState* last_ = nullptr;                        // of the others, that of last_who_
  uint32_t last_who_ = 0;
};

// Yellow packets without an output of their own go with the green ones.
unsigned output_of(Color color, unsigned outputs) {
  return color == Color::kYellow && outputs < 2 ? 0 : static_cast<unsigned>(color);
}

class OrderedPolice final : public Element::Ordered {
 public:
  OrderedPolice(const PolicerConfig& config, PoliceBy by) : bank_(config, by) {}
  std::unique_ptr<Prepared> make_prepared() const override {
    return bank_.groups() != 0 ? std::make_unique<Blocks>(bank_.groups()) : nullptr;
  }
  void prepare(Batch& batch, Lengths* lengths, const Selection& packets, Prepared& prepared) const override {
    auto& blocks = static_cast<Blocks&>(prepared);
    OrderedWord word;
    for (uint32_t w = 0; w * 64 < batch.size(); ++w) {
      const uint64_t rows = packets.word(w);
      if (rows == 0) continue;
      word.read_packets(batch, lengths, w, rows);
      blocks.count[w] = 0;
      if (word.times_go_back()) continue;
      if (blocks.most == 1) {
        blocks.count[w] = 1;
        blocks.of(w)[0] = {0, rows, bank_.block(word)};
      } else {
        group(batch, lengths, w, rows, word, blocks);
      }
    }
  }
  void process(Batch& batch, Lengths* lengths, const Selection& packets, Prepared* prepared,
               std::span<Selection> out) override {
    auto* const blocks = static_cast<Blocks*>(prepared);
    OrderedWord word;
    for (uint32_t w = 0; w * 64 < batch.size(); ++w) {
      const uint64_t rows = packets.word(w);
      if (rows == 0) continue;
      // Buckets do not know of each other, so that those of a word may take their packets one after the other.
      uint64_t green = 0, last_ns = 0;
      const std::span<const Group> groups =
          blocks != nullptr ? std::span(blocks->of(w), blocks->count[w]) : std::span<const Group>();
      for (const Group& group : groups) {
        if (!clock_.passes(group.block.first_ns)) break;
        if (!bank_.all_green(group.who, group.block)) continue;
        green |= group.rows;
        last_ns = std::max(last_ns, group.block.last_ns);
      }
      uint64_t by_color[kColors] = {green, 0, 0};
      if (green != rows) {
        word.read_packets(batch, lengths, w, rows);
        uint32_t n = 0;
        for (uint64_t left = rows; left != 0; left &= left - 1, ++n) {
          const uint64_t now = clock_.at(word.times[n]);
          if ((green & left & -left) != 0) continue;
          const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(left));
          const Color color = one(batch, lengths, i, now, word.bytes[n]);
          by_color[static_cast<unsigned>(color)] |= left & -left;
          if (color == Color::kRed) batch.annotation(i).reason = DropReason::kPoliced;
        }
      } else {
        (void)clock_.at(last_ns);
      }
      for (unsigned color = 0; color < kColors; ++color) {
        paint(batch, lengths, w, by_color[color], static_cast<Color>(color));
        const unsigned output = output_of(static_cast<Color>(color), static_cast<unsigned>(out.size()));
        if (output < out.size()) out[output].or_word(w, by_color[color]);
      }
    }
  }

 private:
  // Packets of a word that go by the same buckets.
  struct Group {
    uint32_t who = 0;
    uint64_t rows = 0;
    PolicerRun::Block block;
  };
  struct Blocks final : Prepared {
    explicit Blocks(uint32_t most_groups) : most(most_groups), groups(size_t{Selection::kWords} * most_groups) {}
    Group* of(uint32_t w) { return &groups[size_t{w} * most]; }

    uint32_t most;  // groups of a word
    std::vector<Group> groups;
    uint8_t count[Selection::kWords] = {};  // 0: packets have to be asked for one by one
  };

  // The groups of a word, where they are few.
  void group(const Batch& batch, const Lengths* lengths, uint32_t w, uint64_t rows, const OrderedWord& word,
             Blocks& blocks) const {
    uint32_t whose[64];
    uint64_t row_of[64];  // as a bit
    uint32_t n = 0;
    for (uint64_t left = rows; left != 0; left &= left - 1, ++n) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(left));
      row_of[n] = left & -left;
      whose[n] = lengths != nullptr
                     ? bank_.who(lengths->paint(i), lengths->rule(i), lengths->mark(i))
                     : bank_.who(batch.annotation(i).paint, batch.annotation(i).rule, batch.annotation(i).mark);
    }
    OrderedWord its;
    uint8_t found = 0;
    for (uint64_t left = rows; left != 0; ++found) {
      if (found == blocks.most) return;
      Group& group = blocks.of(w)[found];
      group.rows = its.count = 0;
      for (uint32_t k = 0; k < n; ++k) {
        if ((row_of[k] & left) == 0) continue;
        if (group.rows == 0) group.who = whose[k];
        if (whose[k] != group.who) continue;
        group.rows |= row_of[k];
        its.times[its.count] = word.times[k];
        its.bytes[its.count++] = word.bytes[k];
      }
      group.block = bank_.block(its);
      left &= ~group.rows;
    }
    blocks.count[w] = found;
  }
  static void paint(Batch& batch, Lengths* lengths, uint32_t w, uint64_t rows, Color color) {
    if (lengths != nullptr && !lengths->keeps_paint()) return;
    for (; rows != 0; rows &= rows - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(rows));
      (lengths != nullptr ? lengths->paint_at(i) : batch.annotation(i).paint) = static_cast<uint8_t>(color);
    }
  }
  Color one(const Batch& batch, const Lengths* lengths, uint32_t i, uint64_t now_ns, uint32_t bytes) {
    if (lengths != nullptr) return bank_.police(now_ns, bytes, lengths->paint(i), lengths->rule(i), lengths->mark(i));
    const Annotation& came = batch.annotation(i);
    return bank_.police(now_ns, bytes, came.paint, came.rule, came.mark);
  }

  PolicerBank bank_;
  PacketClock clock_;
};

class Police final : public OrderedElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    config_.committed_bps = arguments.get_bandwidth_bps("RATE");
    config_.committed_burst_bytes = static_cast<uint32_t>(arguments.get_uint("BURST"));
    config_.excess_burst_bytes = static_cast<uint32_t>(arguments.get_uint("EXCESS"));
    config_.color_aware = arguments.get_bool("AWARE") ? 1 : 0;
    const std::string& by = arguments.get_string("BY");
    by_ = by == "class"  ? PoliceBy::kClass
          : by == "rule" ? PoliceBy::kRule
          : by == "mark" ? PoliceBy::kMark
                         : PoliceBy::kAll;
    if (config_.committed_burst_bytes == 0 && config_.excess_burst_bytes == 0) {
      Diagnostic d = arguments.error_at("BURST", "both bursts are 0: every packet would be red");
      d.expected = "a burst of at least one packet";
      diagnostics.add(std::move(d));
    }
    // RFC 2697 names no least rate; without an excess burst what is not of the first burst would be red for ever.
    if (config_.committed_bps == 0 && config_.excess_burst_bytes == 0) {
      Diagnostic d = arguments.error_at("RATE", "the rate is 0: after the first burst every packet would be red");
      d.expected = "a rate such as 10Mbps";
      diagnostics.add(std::move(d));
    }
    if (!arguments.has("PEAK")) return;
    if (!arguments.has("EXCESS")) {
      Diagnostic d = arguments.error_at("PEAK", "a peak rate without a peak burst: every packet would be red");
      d.expected = "EXCESS, the peak burst in bytes (RFC 2698 section 2)";
      diagnostics.add(std::move(d));
    }
    config_.two_rates = 1;
    config_.peak_bps = arguments.get_bandwidth_bps("PEAK");
    if (config_.peak_bps < config_.committed_bps) {
      Diagnostic d = arguments.error_at("PEAK", "the peak rate is below the committed rate");
      d.expected = "PEAK >= RATE (RFC 2698 section 2)";
      diagnostics.add(std::move(d));
    }
  }
  bool output_optional(unsigned output) const override { return output > 0; }
  StageTraits stage_traits() const override {
    FieldMask reads = kFieldFrame | kFieldL3 | kFieldKey;
    if (by_ == PoliceBy::kRule) reads |= kFieldRule;
    if (by_ == PoliceBy::kMark) reads |= kFieldMark;
    if (by_ == PoliceBy::kClass || config_.color_aware != 0) reads |= kFieldPaint;
    return {reads, kFieldPaint | kFieldReason};
  }
  std::unique_ptr<Ordered> make_ordered() const override { return std::make_unique<OrderedPolice>(config_, by_); }
  bool by_lengths() const override { return true; }

  Time time() const override { return Time::kLooks; }
  Result<void> start(FlowContext&) override {
    bank_ = PolicerBank(config_, by_);
    clock_ = {};
    return {};
  }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    Packet& p = packet->registers;
    const uint64_t now = context.packet_time() ? clock_.at(packet->timestamp_ns) : context.now_ns();
    const Color color =
        bank_.police(now, policed_bytes(p.key.family != 0, p.data, p.l3, p.wire_end), p.paint, p.rule, p.mark);
    const auto number = static_cast<unsigned>(color);
    ++counts_[number];
    p.paint = static_cast<uint8_t>(number);
    if (color == Color::kRed) p.reason = DropReason::kPoliced;
    context.push(output_of(color, outputs), std::move(packet));
  }
  void take(FlowContext& context, Flow& from) override {
    const auto& other = static_cast<const Police&>(from);
    std::copy(std::begin(other.counts_), std::end(other.counts_), std::begin(counts_));
    bank_.take(other.bank_, context.now_ns());
  }
  std::vector<Handler> handlers() override {
    return {
        read_handler("green", &counts_[0]), read_handler("yellow", &counts_[1]), read_handler("red", &counts_[2]),
        write_handler("reset_counts", [this](FlowContext&) { std::fill(std::begin(counts_), std::end(counts_), 0); })};
  }

 private:
  PolicerConfig config_;
  PoliceBy by_ = PoliceBy::kAll;
  PolicerBank bank_;
  PacketClock clock_;
  uint64_t counts_[kColors] = {};
};

}  // namespace

void register_police(Registry& registry) {
  ElementClass c{.name = "Police",
                 .group = "Quality of service",
                 .summary = "colors packets by rate and burst, and drops red ones"};
  c.description =
      "One rate (RFC 2697), or two where PEAK is given (RFC 2698: then EXCESS is the peak burst). Output 0: green, 1: "
      "yellow (by output 0 where it is not connected), 2: red (dropped where it is not connected). Counts bytes of the "
      "IP packet; buckets are full at first; exact to the nanosecond. The paint becomes the color: 0, 1 or 2; AWARE: a "
      "packet never gets a better one than it came with.\n\nTime is that of the packets' timestamps, in the "
      "order of the input, so that the result does not depend on workers, devices or the pace of the input. A packet "
      "that an element makes has the timestamp of the packet that caused it. In a graph with live ports or generators "
      "(RatedSource, or InfiniteSource beside queues) the packet scheduler uses the run's clock. Handlers there: "
      "`green`, `yellow`, `red`, `reset_counts`.";
  c.arguments = {
      {.name = "RATE",
       .kind = ArgumentKind::kBandwidth,
       .positional = true,
       .mandatory = true,
       .help = "committed information rate",
       .max = 5e10},
      burst_bytes_argument("BURST", true, "", "committed burst"),
      burst_bytes_argument("EXCESS", false, "0", "excess burst, or peak burst with PEAK"),
      {.name = "PEAK", .kind = ArgumentKind::kBandwidth, .help = "peak information rate", .max = 5e10},
      bool_argument("AWARE", "false", "the paint is the color that a packet comes with"),
      {.name = "BY",
       .kind = ArgumentKind::kChoice,
       .default_text = "all",
       .help = "what has its own buckets: each class (the paint), each rule of the last access list, each mark",
       .choices = {"all", "class", "rule", "mark"}}};
  c.outputs = {1, 3};
  c.output_docs = {"green", "yellow", "red"};
  c.processing = "h/h";
  c.drops = {DropReason::kPoliced};
  c.example = "in -> IPInput -> Police(10Mbps, 15000, EXCESS 30000) -> out;";
  c.make = make_flow<Police>();
  registry.add(std::move(c));
}

}  // namespace sluice
