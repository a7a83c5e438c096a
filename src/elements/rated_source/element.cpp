// host only
// RatedSource and TimedSink. Source: their Click manual pages.
#include <fmt/format.h>

#include "elements/flow_element.h"
#include "elements/made_packets.h"

namespace sluice {
namespace {

class RatedSource final : public FlowElement {
 public:
  bool writes_link_header() const override { return true; }
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    made_.configure(arguments);
    rate_ = arguments.get_uint("RATE");
    if (arguments.has("BANDWIDTH")) {
      if (arguments.has("RATE")) diagnostics.add(arguments.error_at("BANDWIDTH", "both RATE and BANDWIDTH are given"));
      rate_ = arguments.get_bandwidth_bps("BANDWIDTH") / 8 / std::max<size_t>(1, made_.data.size());
    }
    pace_.set(rate_);
  }
  Result<void> start(FlowContext& context) override {
    begin(context);
    return {};
  }
  Time time() const override { return Time::kMakes; }
  void timer(FlowContext& context) override {
    PacketBox packet = next(context);
    if (packet == nullptr) return;
    // A packet at a time; those that are late follow at once.
    begin_next(context);
    context.push(0, std::move(packet));
  }
  PacketBox pull(FlowContext& context, unsigned) override {
    const uint64_t next_ns = pace_.next_ns();
    if (context.now_ns() >= next_ns) return next(context);
    if (next_ns != kNever) context.retry_at(next_ns);
    return nullptr;
  }
  void take(FlowContext& context, Flow& from) override {
    const auto& other = static_cast<const RatedSource&>(from);
    made_.count = other.made_.count;
    pace_.take(other.pace_);
    context.cancel_timer();
    begin_next(context);
  }
  std::vector<Handler> handlers() override {
    const auto changed = [this](FlowContext& context) {
      pace_.set(rate_);
      begin(context);
    };
    std::vector<Handler> all = made_.handlers([this](FlowContext& context) { begin(context); });
    all.push_back(value_handler("rate", &rate_, kRate, changed));
    return all;
  }

  static inline const ArgumentSpec kRate{.name = "RATE",
                                         .kind = ArgumentKind::kUint,
                                         .positional = true,
                                         .default_text = "10",
                                         .unit = "packets per second",
                                         .help = "packets per second",
                                         .max = 1e9};

 private:
  void begin(FlowContext& context) {
    pace_.restart(context.now_ns());
    begin_next(context);
  }
  void begin_next(FlowContext& context) {
    if (context.pushes(0) && pace_.next_ns() != kNever && made_.more()) context.set_timer(pace_.next_ns());
  }
  PacketBox next(FlowContext& context) {
    PacketBox packet = made_.next(context);
    if (packet != nullptr) pace_.went(1, context.now_ns(), kSecondNs);
    return packet;
  }

  MadePackets made_;
  uint64_t rate_ = 10;
  Pace pace_;
};

class TimedSink final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    interval_ns_ = arguments.get_time_ns("INTERVAL");
  }
  Result<void> start(FlowContext& context) override {
    clock_begins(context);
    return {};
  }
  Time time() const override { return Time::kLooks; }
  void clock_begins(FlowContext& context) override { context.set_timer(next_ns_ = context.now_ns() + interval_ns_); }
  void timer(FlowContext& context) override {
    if (PacketBox packet = context.pull(0)) context.drop(std::move(packet), DropReason::kDiscard);
    next_ns_ = std::max(next_ns_, context.now_ns() - std::min(context.now_ns(), kSecondNs)) + interval_ns_;
    context.set_timer(next_ns_);
  }
  std::vector<Handler> handlers() override {
    return {{"interval",
             [this](FlowContext&, std::string_view) -> Result<std::string> {
               return fmt::format("{}.{:09}", interval_ns_ / kSecondNs, interval_ns_ % kSecondNs);
             },
             [this](FlowContext& context, std::string_view text) -> Result<void> {
               auto value = handler_value(kInterval, text);
               if (!value.ok()) return std::move(value).error();
               interval_ns_ = value->number;
               context.set_timer(next_ns_ = context.now_ns() + interval_ns_);
               return {};
             }}};
  }

  static inline const ArgumentSpec kInterval{.name = "INTERVAL",
                                             .kind = ArgumentKind::kTime,
                                             .positional = true,
                                             .default_text = "500ms",
                                             .help = "time between two packets",
                                             .min = 1e-9,
                                             .max = 1e6};

 private:
  uint64_t interval_ns_ = 0;
  uint64_t next_ns_ = 0;
};

}  // namespace

void register_rated_source(Registry& registry) {
  ElementClass c{
      .name = "RatedSource", .group = "Queues and rates", .summary = "generates copies of one packet, at a rate"};
  c.description =
      "One packet at a time, exactly RATE per second; missed packets are made up for, up to one second's worth. "
      "Handlers: `count`, `reset` (makes LIMIT packets more), `rate`, `limit`, `active`, `data`, `length`.";
  c.arguments = {made_data_argument(),
                 RatedSource::kRate,
                 made_limit_argument(),
                 made_active_argument(),
                 made_length_argument(),
                 {.name = "BANDWIDTH", .kind = ArgumentKind::kBandwidth, .help = "in place of RATE", .max = 1e12},
                 made_stop_argument()};
  c.inputs = {0, 0};
  c.processing = "/a";
  c.example = "RatedSource(DATA \\<0800>, RATE 1000, LIMIT 5000) -> Queue -> shaper;";
  c.make = make_flow<RatedSource>();
  registry.add(std::move(c));

  ElementClass sink{
      .name = "TimedSink", .group = "Queues and rates", .summary = "pulls a packet at intervals and drops it"};
  sink.description = "Handler: `interval`.";
  sink.arguments = {TimedSink::kInterval};
  sink.outputs = {0, 0};
  sink.processing = "l/";
  sink.drops = {DropReason::kDiscard};
  sink.example = "queue -> TimedSink(10ms);";
  sink.make = make_flow<TimedSink>();
  registry.add(std::move(sink));
}

}  // namespace sluice
