// host only
// Shape. Source: Saeed et al. 2017 (earliest departure times; qos/departure.h).
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <deque>
#include <memory>
#include <vector>

#include "elements/flow_element.h"
#include "elements/shaping.h"
#include "graph/router.h"
#include "qos/departure.h"
#include "qos/departure_run.h"
#include "qos/timing_wheel.h"

namespace sluice {
namespace {

// Stamps departures; the packets wait where they leave the graph.
class OrderedShape final : public Element::Ordered {
 public:
  OrderedShape(uint64_t rate_bps, uint32_t burst_bytes, uint64_t horizon_ns, uint32_t capacity)
      : rate_bps_(rate_bps), burst_bytes_(burst_bytes), horizon_ns_(horizon_ns), waiting_(capacity) {}

  std::unique_ptr<Prepared> make_prepared() const override {
    return rate_bps_ != 0 ? std::make_unique<Blocks>() : nullptr;
  }
  void prepare(Batch& batch, Lengths* lengths, const Selection& packets, Prepared& prepared) const override {
    auto& blocks = static_cast<Blocks&>(prepared);
    // Before, nobody knows from when the schedule counts.
    blocks.rate = rate_.load(std::memory_order_acquire);
    OrderedWord word;
    for (uint32_t w = 0; w * 64 < batch.size(); ++w) {
      const uint64_t rows = packets.word(w);
      if (rows == 0) continue;
      blocks.of[w].known = false;
      if (blocks.rate == nullptr) continue;
      word.read_frames(batch, lengths, w, rows);
      if (!word.times_go_back()) blocks.of[w] = DepartureBlock::of(*blocks.rate, word.times, word.bytes, word.count);
    }
  }
  void process(Batch& batch, Lengths* lengths, const Selection& packets, Prepared* prepared,
               std::span<Selection> out) override {
    if (rate_bps_ == 0) {
      out[0] = packets;  // nobody waits
      return;
    }
    const Blocks* const blocks = static_cast<const Blocks*>(prepared);
    OrderedWord word;
    for (uint32_t w = 0; w * 64 < batch.size(); ++w) {
      uint64_t left = packets.word(w);
      if (left == 0) continue;
      // Those that need not wait need no departure nor a place among those that do.
      const DepartureBlock* const block = blocks != nullptr ? &blocks->of[w] : nullptr;
      const DepartureRate* rate = rate_.load(std::memory_order_relaxed);
      if (block != nullptr && block->known && blocks->rate == rate && rate->lasts(block->last_ns) &&
          clock_.passes(block->first_ns) && waiting_[next_] <= block->first_ns && nobody_waits(*rate, word_, *block)) {
        (void)clock_.at(block->last_ns);
        out[0].or_word(w, left);
        continue;
      }
      word.read_frames(batch, lengths, w, left);
      for (uint32_t n = 0; left != 0; left &= left - 1, ++n) {
        const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(left));
        const uint64_t now = clock_.at(word.times[n]);
        if (rate == nullptr || !rate->lasts(now)) {
          // Its time begins with the first packet: a schedule lasts for years, but not from 1970 on.
          rates_.push_back(rate == nullptr ? DepartureRate::of(rate_bps_, burst_bytes_, now, horizon_ns_) : *rate);
          keep_epoch(rates_.back(), word_, now);
          rate = &rates_.back();
          rate_.store(rate, std::memory_order_release);
        }
        // Departures do not go down, so those that wait are the last ones: there is room unless the one `capacity`
        // before this one is still there.
        uint64_t& oldest = waiting_[next_];
        const uint64_t at = oldest > now ? DepartureRate::kNever : stamp(*rate, word_, now, word.bytes[n]);
        if (at == DepartureRate::kNever) {
          batch.annotation(i).reason = DropReason::kShaperFull;
          continue;
        }
        oldest = at;
        if (++next_ == waiting_.size()) next_ = 0;
        batch.set_departure_ns(i, at);
        out[0].add(i);
      }
    }
  }

 private:
  struct Blocks final : Prepared {
    const DepartureRate* rate = nullptr;               // that they go by
    std::array<DepartureBlock, Selection::kWords> of;  // by word of rows
  };

  uint64_t rate_bps_;
  uint32_t burst_bytes_;
  uint64_t horizon_ns_;
  std::deque<DepartureRate> rates_;                  // one for each year, where packets have come
  std::atomic<const DepartureRate*> rate_{nullptr};  // the last, which changes no more; nullptr: no packet has come
  uint64_t word_ = 0;
  std::vector<uint64_t> waiting_;  // a ring of the last departures
  size_t next_ = 0;
  PacketClock clock_;
};

class Shape final : public OrderedElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    rate_bps_ = arguments.get_bandwidth_bps("RATE");
    if (rate_bps_ != 0 && rate_bps_ < DepartureRate::kLeastBps) {
      Diagnostic d = arguments.error_at("RATE", "the rate is too low");
      d.expected = "1kbps to 400Gbps, or 0: unlimited";
      diagnostics.add(std::move(d));
    }
    burst_ = static_cast<uint32_t>(arguments.get_uint("BURST"));
    horizon_ns_ = arguments.get_time_ns("HORIZON");
    capacity_ = static_cast<uint32_t>(arguments.get_uint("CAPACITY"));
  }
  std::unique_ptr<Ordered> make_ordered() const override {
    return std::make_unique<OrderedShape>(rate_bps_, burst_, horizon_ns_, capacity_);
  }
  bool by_lengths() const override { return true; }
  uint32_t delays() const override { return rate_bps_ == 0 ? 0 : capacity_; }

  Time time() const override { return Time::kLooks; }
  void clock_begins(FlowContext& context) override {
    if (!context.packet_time()) rate_ = DepartureRate::of(rate_bps_, burst_, context.now_ns(), horizon_ns_);
  }
  Result<void> start(FlowContext& context) override {
    wheel_ = std::make_unique<TimingWheel<PacketBox>>(capacity_);
    started_ = !context.packet_time();
    clock_ = {};
    rate_ = DepartureRate::of(rate_bps_, burst_, context.now_ns(), horizon_ns_);
    return {};
  }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    // What is due leaves before the next one comes. What does not fit is not charged.
    release(context);
    const bool packet_time = context.packet_time();
    const uint64_t now = packet_time ? clock_.at(packet->timestamp_ns) : context.now_ns();
    if (!started_) {
      // As OrderedShape.
      started_ = true;
      rate_ = DepartureRate::of(rate_bps_, burst_, now, horizon_ns_);
    }
    keep_epoch(rate_, word_, now);
    const uint64_t at =
        wheel_->full() ? DepartureRate::kNever : stamp(rate_, word_, now, packet->registers.wire_length());
    if (at == DepartureRate::kNever) {
      context.drop(std::move(packet), DropReason::kShaperFull);
      return;
    }
    if (context.packet_clock()) packet->timestamp_ns = std::max(packet->timestamp_ns, at);
    // Also what may go at once, so that nothing overtakes what is due and not yet out.
    wheel_->insert(at, std::move(packet));
    release(context);
  }
  void timer(FlowContext& context) override { release(context); }
  uint64_t held() const override { return wheel_->size(); }
  void take(FlowContext& context, Flow& from) override {
    auto& other = static_cast<Shape&>(from);
    const uint64_t now = context.now_ns();
    word_ = rate_.carried(other.rate_, other.word_, now);
    PacketBox packet;
    uint64_t at = 0;
    // With the departures that they have. Asking for the end of time makes that wheel of no more use.
    while (other.wheel_->release(DepartureRate::kNever, packet, &at)) {
      if (!wheel_->insert(at, std::move(packet))) context.drop(std::move(packet), DropReason::kShaperFull);
    }
    if (wheel_->size() != 0) context.set_timer(std::max(now, wheel_->next_ns()));
  }
  std::vector<Handler> handlers() override {
    Handler rate{
        "rate", [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(rate_bps_ / 8); },
        [this](FlowContext& context, std::string_view text) -> Result<void> {
          auto value = handler_value(kRate, text);
          if (!value.ok()) return std::move(value).error();
          if (value->number != 0 && value->number < DepartureRate::kLeastBps)
            return Error("the rate is too low", "1kbps to 400Gbps, or 0: unlimited");
          rate_bps_ = value->number;
          const auto next = DepartureRate::of(rate_bps_, burst_, rate_.epoch_ns, horizon_ns_);
          word_ = next.carried(rate_, word_, context.now_ns());
          rate_ = next;
          return {};
        }};
    return {std::move(rate),
            {"length",
             [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(wheel_->size()); },
             {}}};
  }

  static inline const ArgumentSpec kRate{.name = "RATE",
                                         .kind = ArgumentKind::kBandwidth,
                                         .positional = true,
                                         .mandatory = true,
                                         .help = "bytes on the wire; from 1kbps; 0: unlimited",
                                         .max = 5e10};

 private:
  void release(FlowContext& context) {
    PacketBox packet;
    while (wheel_->release(context.now_ns(), packet)) context.push(0, std::move(packet));
    if (wheel_->size() != 0) context.set_timer(wheel_->next_ns());
  }

  uint64_t rate_bps_ = 0;
  uint64_t horizon_ns_ = 0;
  uint64_t word_ = 0;
  uint32_t burst_ = 0;
  uint32_t capacity_ = 0;
  DepartureRate rate_;
  bool started_ = false;
  PacketClock clock_;
  std::unique_ptr<TimingWheel<PacketBox>> wheel_;
};

}  // namespace

void register_shape(Registry& registry) {
  ElementClass c{.name = "Shape", .group = "Quality of service", .summary = "delays packets to a rate"};
  c.description =
      "A token bucket as earliest departure time: a packet gets its departure time on arrival and waits in a timing "
      "wheel. It leaves while the bucket is not in debt, and may bring it into debt; with BURST 0 packets leave at an "
      "even pace. Rates do not drift.\n\nTime is that of the packets' timestamps: a packet's timestamp "
      "becomes its departure time, and the result does not depend on workers, devices or the pace of the input. "
      "Packets wait where they leave the graph; in the packet scheduler, which runs graphs with queues, and with "
      "elements that delay or make packets, or form a loop, before this element, or that make packets after it, they "
      "wait in the element. In a graph with live ports or generators (RatedSource, or InfiniteSource beside queues) it "
      "uses the run's clock. Handlers there: `rate` (bytes per second; written as RATE "
      "is; waiting packets keep their departure time), `length`.";
  c.arguments = {Shape::kRate,
                 burst_bytes_argument("BURST", false, "0", "what the bucket holds"),
                 {.name = "CAPACITY",
                  .kind = ArgumentKind::kUint,
                  .default_text = "1000",
                  .unit = "packets",
                  .help = "packets that wait at most",
                  .min = 1,
                  .max = 16777216},
                 {.name = "HORIZON",
                  .kind = ArgumentKind::kTime,
                  .default_text = "0",
                  .help = "packets that would have to wait longer are dropped; 0: no limit",
                  .max = 1e6}};
  c.processing = "h/h";
  c.drops = {DropReason::kShaperFull, DropReason::kGraphChanged};
  c.example = "in -> Shape(10Mbps, BURST 15000) -> out;";
  c.make = make_flow<Shape>();
  registry.add(std::move(c));
}

}  // namespace sluice
