// host only
// ClassifyDSCP, Police, Shape and QoS. Sources: RFC 2474 and RFC 4594 (classes), RFC 2697 and RFC 2698 (policers),
// Saeed et al. 2017 (departure times); see qos/.
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

// Bytes of the IP packet, which is what policers count; of the frame where there is none.
uint32_t ip_bytes(const Packet& p) {
  return p.key.family != 0 && p.wire_end > p.l3 ? p.wire_end - p.l3 : p.wire_length();
}
// Whether there is a header to read and to remark: an earlier element may have cut it off.
bool has_ip(unsigned family, uint32_t l3, uint32_t end) {
  return family != 0 && l3 + kRemarkBytes <= end;
}
unsigned class_of(const ClassMap& map, const uint8_t* frame, unsigned family, uint32_t l3, uint32_t end) {
  return map.class_of(has_ip(family, l3, end) ? dscp_of(frame + l3, family) : 0);
}

class ClassifyDscp final : public Element {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    const auto& given = arguments.rest();
    if (given.empty()) return;
    // The lists become lines of the one language in which classes are written.
    if (given.size() > kMaxQosClasses) {
      diagnostics.add(
          arguments.error_in(given[kMaxQosClasses], fmt::format("there are at most {} classes", kMaxQosClasses)));
      return;
    }
    classes_ = static_cast<unsigned>(given.size());
    std::string text;
    for (size_t i = 0; i < given.size(); ++i) {
      std::string list = given[i].text;
      for (char& c : list) {
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') c = ',';
      }
      text += fmt::format("class c{} dscp {}\n", i, list);
    }
    auto model = parse_qos(text, "");
    if (model.ok()) {
      map_ = model->map;
      return;
    }
    for (const Diagnostic& d : model.error().diagnostics) {
      const size_t at = std::clamp<size_t>(d.line, 1, given.size()) - 1;
      Diagnostic here = arguments.error_in(given[at], d.message);
      here.expected = d.expected;
      here.suggestion = d.suggestion;
      diagnostics.add(std::move(here));
    }
  }
  std::optional<unsigned> output_count() const override { return classes_; }
  bool output_optional(unsigned) const override { return false; }
  ElementKind kind() const override { return ElementKind::kHost; }
  StageTraits stage_traits() const override { return {kFieldFrame | kFieldL3, kFieldPaint}; }
  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    Selection chosen[kMaxQosClasses];
    packets.for_each([&](uint32_t i) {
      const Extent& extent = batch.extent(i);
      const unsigned c = class_of(map_, batch.frame(i), batch.key(i).family, extent.l3, extent.end);
      batch.annotation(i).paint = static_cast<uint8_t>(c);
      chosen[c].add(i);
    });
    for (unsigned c = 0; c < classes_; ++c) context.forward(c, chosen[c]);
  }

 private:
  ClassMap map_ = ClassMap::three_priorities();
  unsigned classes_ = kDefaultQosClasses;
};

class Police final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    config_.committed_bps = arguments.get_bandwidth_bps("RATE");
    config_.committed_burst_bytes = static_cast<uint32_t>(arguments.get_uint("BURST"));
    config_.excess_burst_bytes = static_cast<uint32_t>(arguments.get_uint("EXCESS"));
    config_.color_aware = arguments.get_bool("AWARE") ? 1 : 0;
    if (!arguments.has("PEAK")) return;
    config_.two_rates = 1;
    config_.peak_bps = arguments.get_bandwidth_bps("PEAK");
    if (config_.peak_bps < config_.committed_bps) {
      Diagnostic d = arguments.error_at("PEAK", "the peak rate is below the committed rate");
      d.expected = "PEAK >= RATE (RFC 2698 section 2)";
      diagnostics.add(std::move(d));
    }
  }
  bool output_optional(unsigned output) const override { return output > 0; }
  StageTraits stage_traits() const override { return {kFieldFrame | kFieldL3, kFieldPaint | kFieldReason}; }
  Result<void> start(FlowContext& context) override {
    state_ = PolicerState::full(config_, context.now_ns());
    return {};
  }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    Packet& p = packet->registers;
    const Color before = p.paint == 0 ? Color::kGreen : p.paint == 1 ? Color::kYellow : Color::kRed;
    const Color color = police(config_, state_, context.now_ns(), ip_bytes(p), before);
    const auto number = static_cast<unsigned>(color);
    ++counts_[number];
    p.paint = static_cast<uint8_t>(number);
    if (color == Color::kRed) p.reason = DropReason::kPoliced;
    // Yellow packets without an output of their own go with the green ones.
    context.push(color == Color::kYellow && outputs < 2 ? 0 : number, std::move(packet));
  }
  void take(FlowContext& context, Flow& from) override {
    const auto& other = static_cast<const Police&>(from);
    std::copy(std::begin(other.counts_), std::end(other.counts_), std::begin(counts_));
    // Tokens as far as the buckets go.
    PolicerState was = other.state_;
    refill(other.config_, was, context.now_ns());
    state_ = {std::min(was.committed, state_.committed), std::min(was.excess, state_.excess), context.now_ns()};
  }
  std::vector<Handler> handlers() override {
    return {
        read_handler("green", &counts_[0]), read_handler("yellow", &counts_[1]), read_handler("red", &counts_[2]),
        write_handler("reset_counts", [this](FlowContext&) { std::fill(std::begin(counts_), std::end(counts_), 0); })};
  }

 private:
  PolicerConfig config_;
  PolicerState state_;
  uint64_t counts_[kColors] = {};
};

class Shape final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    rate_bps_ = arguments.get_bandwidth_bps("RATE");
    burst_ = static_cast<uint32_t>(arguments.get_uint("BURST"));
    horizon_ns_ = arguments.get_time_ns("HORIZON");
    wheel_ = std::make_unique<TimingWheel<PacketBox>>(static_cast<uint32_t>(arguments.get_uint("CAPACITY")));
  }
  Result<void> start(FlowContext& context) override {
    rate_ = DepartureRate::of(rate_bps_, burst_, context.now_ns(), horizon_ns_);
    return {};
  }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    // What does not fit is not charged.
    const uint64_t now = context.now_ns();
    const uint64_t at =
        wheel_->full() ? DepartureRate::kNever : stamp(rate_, word_, now, packet->registers.wire_length());
    if (at == DepartureRate::kNever) {
      context.drop(std::move(packet), DropReason::kShaperFull);
      return;
    }
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
                                         .help = "bytes on the wire; from 1kbps",
                                         .min = 125,
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
  DepartureRate rate_;
  std::unique_ptr<TimingWheel<PacketBox>> wheel_;
};

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
      color = police(config.police, policers_[c], now, ip_bytes(p));
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

ArgumentSpec burst_bytes_argument(const char* name, bool mandatory, const char* standard, const char* help) {
  return {.name = name,
          .kind = ArgumentKind::kUint,
          .positional = mandatory,
          .mandatory = mandatory,
          .default_text = standard,
          .unit = "bytes",
          .help = help,
          .max = PolicerConfig::kMaxBurstBytes};
}

}  // namespace

void register_qos(Registry& registry) {
  ElementClass classify;
  classify.name = "ClassifyDSCP";
  classify.group = "Quality of service";
  classify.summary = "sends packets by their differentiated services codepoint";
  classify.description =
      "Each argument is a list of codepoints, by number or name (`ef`, `af41`, `cs6`, `LOW-HIGH`, `others`), whose "
      "packets leave by its output; what nobody names leaves by the last. Without arguments there are three priorities "
      "by "
      "RFC 4594: telephony and control, assured, default. The paint becomes the output's number. Packets that are not "
      "IP "
      "have codepoint 0.";
  classify.arguments = {{.name = "DSCP",
                         .kind = ArgumentKind::kString,
                         .positional = true,
                         .repeated = true,
                         .help = "codepoints of an output, with blanks or commas between them"}};
  classify.outputs = {1, kMaxQosClasses};
  classify.example = "in -> IPInput -> c :: ClassifyDSCP; c[0] -> voice; c[1] -> video; c[2] -> data;";
  classify.make = make_element<ClassifyDscp>();
  registry.add(std::move(classify));

  ElementClass policer;
  policer.name = "Police";
  policer.group = "Quality of service";
  policer.summary = "colors packets by rate and burst, and drops red ones";
  policer.description =
      "One rate (RFC 2697), or two where PEAK is given (RFC 2698: then EXCESS is the peak burst). Output 0: green, 1: "
      "yellow (by output 0 where it is not connected), 2: red (dropped where it is not connected). Counts bytes of the "
      "IP "
      "packet; buckets are full at first; exact to the nanosecond. The paint becomes the color: 0, 1 or 2; AWARE: a "
      "packet "
      "never gets a better one than it came with. Handlers: `green`, `yellow`, `red`, `reset_counts`.";
  policer.arguments = {{.name = "RATE",
                        .kind = ArgumentKind::kBandwidth,
                        .positional = true,
                        .mandatory = true,
                        .help = "committed information rate",
                        .max = 5e10},
                       burst_bytes_argument("BURST", true, "", "committed burst"),
                       burst_bytes_argument("EXCESS", false, "0", "excess burst, or peak burst with PEAK"),
                       {.name = "PEAK", .kind = ArgumentKind::kBandwidth, .help = "peak information rate", .max = 5e10},
                       {.name = "AWARE",
                        .kind = ArgumentKind::kBool,
                        .default_text = "false",
                        .help = "the paint is the color that a packet comes with"}};
  policer.outputs = {1, 3};
  policer.output_docs = {"green", "yellow", "red"};
  policer.processing = "h/h";
  policer.drops = {DropReason::kPoliced};
  policer.example = "in -> IPInput -> Police(10Mbps, 15000, EXCESS 30000) -> out;";
  policer.make = make_flow<Police>();
  registry.add(std::move(policer));

  ElementClass shape;
  shape.name = "Shape";
  shape.group = "Quality of service";
  shape.summary = "lets packets wait until their rate allows them to go";
  shape.description =
      "A token bucket as earliest departure time: a packet is stamped when it comes and waits in a timing wheel. It "
      "goes "
      "while the bucket is not in debt, and pays with what comes later; with BURST 0 packets leave at an even pace. "
      "Rates "
      "do not drift. Handlers: `rate` (bytes per second; written as RATE is; what was stamped keeps its time), "
      "`length`.";
  shape.arguments = {Shape::kRate,
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
                      .help = "packets that would have to wait longer are dropped; 0: none",
                      .max = 1e6}};
  shape.processing = "h/h";
  shape.drops = {DropReason::kShaperFull, DropReason::kGraphChanged};
  shape.example = "in -> Shape(10Mbps, BURST 15000) -> out;";
  shape.make = make_flow<Shape>();
  registry.add(std::move(shape));

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
