// host only
// QoS. Sources: RFC 2474 and RFC 4594 (classes), RFC 2697 and RFC 2698 (policers), Saeed et al. 2017 (departure times);
// see qos/.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "elements/flow_element.h"
#include "elements/stage_element.h"
#include "formats/compressed_file.h"
#include "formats/qos_text.h"
#include "graph/router.h"
#include "net/edit.h"
#include "qos/departure.h"
#include "qos/timing_wheel.h"

namespace sluice {
namespace {

// Whether there is a header to read and to remark: an earlier element may have cut it off.
bool has_ip(unsigned family, uint32_t l3, uint32_t end) {
  return family != 0 && l3 + kRemarkBytes <= end;
}
unsigned class_of(const ClassMap& map, const uint8_t* frame, unsigned family, uint32_t l3, uint32_t end) {
  return map.class_of(has_ip(family, l3, end) ? dscp_of(frame + l3, family) : 0);
}

// Classify, police, remark; wait for the class's rate in the wheel, then in the class's queue, then for the port's.
class Qos final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    if (!arguments.has("TABLE")) return;
    const std::string& path = arguments.get_string("TABLE");
    auto text = read_text_file(path);
    auto model = text.ok() ? parse_qos(*text, path) : Result<QosModel>(std::move(text).error());
    if (model.ok()) {
      model_ = std::move(*model);
      return;
    }
    if (model.error().diagnostics.empty()) diagnostics.add(arguments.error_at("TABLE", model.error().message));
    for (const Diagnostic& d : model.error().diagnostics) diagnostics.add(d);
  }
  StageTraits stage_traits() const override { return {kFieldFrame | kFieldL3, kFieldFrame | kFieldPaint}; }
  Result<void> start(FlowContext& context) override {
    const uint64_t now = context.now_ns();
    remarks_ = model_.remarks();
    queues_ = std::make_unique<EgressQueues<PacketBox>>(model_.egress());
    port_ = DepartureRate::of(model_.port_rate_bps, model_.port_burst_bytes, now);
    uint64_t most = 0;
    for (const QosClass& c : model_.classes) {
      rates_.push_back(DepartureRate::of(c.rate_bps, c.burst_bytes, now));
      policers_.push_back(PolicerState::full(c.police, now));
      if (c.rate_bps != 0) most += c.limit_pkts;
    }
    words_.assign(rates_.size(), 0);
    waiting_.assign(rates_.size(), 0);
    policed_.assign(rates_.size(), 0);
    wheel_ = std::make_unique<TimingWheel<PacketBox>>(static_cast<uint32_t>(most));
    return {};
  }

  void push(FlowContext& context, unsigned, PacketBox packet) override {
    Packet& p = packet->registers;
    const uint64_t now = context.now_ns();
    const unsigned c = class_of(model_.map, p.frame, p.key.family, p.l3, p.end);
    const QosClass& config = model_.classes[c];
    Color color = Color::kGreen;
    if (config.policed) {
      color = police(config.police, policers_[c], now, policed_bytes(p.key.family != 0, p.data, p.l3, p.wire_end));
      if (color == Color::kRed && config.drops_red()) {
        ++policed_[c];
        context.drop(std::move(packet), DropReason::kPoliced);
        return;
      }
    }
    if (has_ip(p.key.family, p.l3, p.end)) remark(remarks_, c, color, p.frame + p.l3, p.key.family);
    p.paint = static_cast<uint8_t>(c);
    if (rates_[c].unlimited()) {
      queue(context, c, std::move(packet));
      return;
    }
    // A class waits in its own share of the wheel; what does not fit is not charged.
    if (waiting_[c] >= config.limit_pkts) {
      context.drop(std::move(packet), DropReason::kShaperFull);
      return;
    }
    const uint64_t at = stamp(rates_[c], words_[c], now, p.wire_length());
    ++waiting_[c];
    wheel_->insert(at, std::move(packet));
    release(context);
  }
  void timer(FlowContext& context) override { release(context); }
  PacketBox pull(FlowContext& context, unsigned) override {
    release(context);
    if (queues_->empty()) return nullptr;
    const uint64_t now = context.now_ns();
    // The port is charged when a packet leaves, so that a class goes first which came later.
    const uint64_t at = port_.unlimited() ? now : port_.departure(port_word_, now);
    if (at > now) {
      context.retry_at(at);
      return nullptr;
    }
    PacketBox packet;
    queues_->take(now, packet);
    if (!port_.unlimited()) port_word_ = port_.charged(port_word_, now, packet->registers.wire_length());
    return packet;
  }
  uint64_t held() const override { return wheel_->size() + queues_->size(); }
  // Another table is another set of classes: what waits is dropped, by the reason that says so.
  void take(FlowContext& context, Flow& from) override {
    auto& other = static_cast<Qos&>(from);
    PacketBox packet;
    while (other.queues_->take(context.now_ns(), packet)) context.drop(std::move(packet), DropReason::kGraphChanged);
    while (other.wheel_->release(DepartureRate::kNever, packet))
      context.drop(std::move(packet), DropReason::kGraphChanged);
  }

  std::vector<Handler> handlers() override {
    return {{"classes", [this](FlowContext&, std::string_view) -> Result<std::string> { return table(); }, {}},
            {"config_text",
             [this](FlowContext&, std::string_view) -> Result<std::string> { return format_qos(model_); },
             {}},
            {"length",
             [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(held()); },
             {}}};
  }

 private:
  void queue(FlowContext& context, unsigned c, PacketBox packet) {
    const bool was_empty = queues_->empty();
    const uint32_t bytes = packet->registers.wire_length();
    const DropReason why = queues_->put(c, context.now_ns(), bytes, std::move(packet));
    if (why != DropReason::kNone) {
      context.drop(std::move(packet), why);
    } else if (was_empty) {
      context.has_packets();
    }
  }
  void release(FlowContext& context) {
    PacketBox packet;
    while (wheel_->release(context.now_ns(), packet)) {
      const unsigned c = packet->registers.paint;
      --waiting_[c];
      queue(context, c, std::move(packet));
    }
    if (wheel_->size() != 0) context.set_timer(wheel_->next_ns());
  }
  // One line a class; latencies are those of the queue.
  std::string table() const {
    std::string out = "class in out tail-drops early-drops policed waiting queued p50-ns p99-ns\n";
    for (unsigned c = 0; c < queues_->classes(); ++c) {
      const EgressCounters& n = queues_->counters(c);
      out += fmt::format("{} {} {} {} {} {} {} {} {} {}\n", model_.classes[c].name, n.in_pkts, n.out_pkts, n.tail_drops,
                         n.early_drops, policed_[c], waiting_[c], queues_->length(c),
                         queues_->latency_ns(c).percentile(50), queues_->latency_ns(c).percentile(99));
    }
    return out;
  }

  QosModel model_ = QosModel::three_priorities();
  RemarkMap remarks_;
  std::vector<DepartureRate> rates_;  // by class, as all that follow
  std::vector<uint64_t> words_;
  std::vector<uint32_t> waiting_;  // in the wheel
  std::vector<uint64_t> policed_;
  std::vector<PolicerState> policers_;
  DepartureRate port_;
  uint64_t port_word_ = 0;
  std::unique_ptr<TimingWheel<PacketBox>> wheel_;
  std::unique_ptr<EgressQueues<PacketBox>> queues_;
};

}  // namespace

void register_qos(Registry& registry) {
  ElementClass qos;
  qos.name = "QoS";
  qos.group = "Quality of service";
  qos.summary = "classes of service at an output: police, remark, shape, queue, schedule";
  qos.description =
      "The classes are those of TABLE (see the formats' page), or three priorities by DSCP that share 3:2:1. A packet "
      "is "
      "classified by its codepoint, policed, remarked, waits for its class's rate, then in its class's queue. Strict "
      "classes are asked first, the others share by deficit round robin; the port's rate holds for all together. The "
      "paint "
      "becomes the class. Handlers: `classes` (a table), `config_text`, `length`.";
  qos.arguments = {{.name = "TABLE", .kind = ArgumentKind::kFilename, .positional = true, .help = "the classes' file"}};
  qos.processing = "h/l";
  qos.drops = {DropReason::kPoliced, DropReason::kShaperFull, DropReason::kQueueFull, DropReason::kEarlyDrop,
               DropReason::kGraphChanged};
  qos.example = "in -> IPInput -> QoS -> Unqueue -> out;";
  qos.make = make_flow<Qos>();
  registry.add(std::move(qos));
}

}  // namespace sluice
