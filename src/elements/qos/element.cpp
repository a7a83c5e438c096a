// host only
// QoS. Sources: RFC 2474 and RFC 4594 (classes), RFC 2697 and RFC 2698 (policers), Saeed et al. 2017 (departure times);
// see qos/.
#include <fmt/format.h>

#include <memory>

#include "base/input_file.h"
#include "elements/flow_element.h"
#include "elements/stage_element.h"
#include "formats/qos_text.h"
#include "graph/router.h"
#include "qos/port_qos.h"

namespace sluice {
namespace {

// What classes look at; an earlier element may have cut the header off.
QosPacket view_of(const Packet& p) {
  QosPacket view;
  view.family = p.key.family;
  if (view.family != 0 && p.l3 + kRemarkBytes <= p.end) view.ip = p.frame + p.l3;
  view.mark = p.mark;
  view.bytes = p.wire_length();
  view.ip_bytes = policed_bytes(view.family != 0, p.data, p.l3, p.wire_end);
  return view;
}

auto dropping(FlowContext& context) {
  return [&context](PacketBox&& packet, DropReason why) { context.drop(std::move(packet), why); };
}

// Classify, police, remark; wait for the class's rate in the wheel, then in the class's queue, then for the port's.
class Qos final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    if (!arguments.has("TABLE")) return;
    const std::string& path = arguments.get_string("TABLE");
    files_.push_back({path, false});
    auto file = InputFile::open(path);
    auto text = file.ok() ? file->table() : Result<std::string>(file.error());
    auto model = text.ok() ? parse_qos(*text, path) : Result<QosModel>(std::move(text).error());
    if (model.ok()) {
      model_ = std::move(*model);
      return;
    }
    if (model.error().diagnostics.empty()) diagnostics.add(arguments.error_at("TABLE", model.error().message));
    for (const Diagnostic& d : model.error().diagnostics) diagnostics.add(d);
  }
  std::vector<FileUse> files() const override { return files_; }
  StageTraits stage_traits() const override { return {kFieldFrame | kFieldL3 | kFieldMark, kFieldFrame | kFieldPaint}; }
  Result<void> start(FlowContext& context) override {
    port_ = std::make_unique<PortQos<PacketBox>>(model_, context.now_ns());
    return {};
  }
  Time time() const override { return Time::kLooks; }
  void clock_begins(FlowContext& context) override {
    auto next = std::make_unique<PortQos<PacketBox>>(model_, context.now_ns());
    next->take_over(*port_, context.now_ns(), dropping(context));
    port_ = std::move(next);
    changed(context, true);
  }

  void push(FlowContext& context, unsigned, PacketBox packet) override {
    const QosPacket view = view_of(packet->registers);
    packet->registers.paint = static_cast<uint8_t>(port_->class_of(view));
    const bool was_empty = port_->queued() == 0;
    const DropReason why = port_->arrive(context.now_ns(), view, std::move(packet), dropping(context));
    if (why != DropReason::kNone) context.drop(std::move(packet), why);
    changed(context, was_empty);
  }
  void timer(FlowContext& context) override {
    const bool was_empty = port_->queued() == 0;
    port_->advance(context.now_ns(), dropping(context));
    changed(context, was_empty);
  }
  PacketBox pull(FlowContext& context, unsigned) override {
    PacketBox packet;
    const uint64_t now = context.now_ns();
    const bool was_empty = port_->queued() == 0;
    const bool taken = port_->take(now, packet, dropping(context));
    changed(context, was_empty);
    if (taken) return packet;
    if (port_->queued() != 0) context.retry_at(port_->ready_ns());
    return nullptr;
  }
  uint64_t held() const override { return port_->held(); }
  // Classes of the same name keep what waits.
  void take(FlowContext& context, Flow& from) override {
    port_->take_over(*static_cast<Qos&>(from).port_, context.now_ns(), dropping(context));
    changed(context, true);
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
  void changed(FlowContext& context, bool was_empty) {
    if (was_empty && port_->queued() != 0) context.has_packets();
    if (port_->waiting() != 0) context.set_timer(port_->next_release_ns());
  }
  // One line a class; latencies are from the arrival on.
  std::string table() const {
    std::string out = "class in out tail-drops early-drops policed waiting queued p50-ns p99-ns\n";
    for (unsigned c = 0; c < port_->classes(); ++c) {
      const QosCounters n = port_->counters(c);
      out += fmt::format("{} {} {} {} {} {} {} {} {} {}\n", port_->model().classes[c].name,
                         n.in_pkts - n.policed - n.shaper_full - n.waiting, n.out_pkts, n.tail_drops, n.early_drops,
                         n.policed, n.waiting, n.queued, port_->latency_ns(c).percentile(50),
                         port_->latency_ns(c).percentile(99));
    }
    return out;
  }

  std::vector<FileUse> files_;
  QosModel model_ = QosModel::three_priorities();
  std::unique_ptr<PortQos<PacketBox>> port_;
};

}  // namespace

void register_qos(Registry& registry) {
  ElementClass qos{.name = "QoS",
                   .group = "Quality of service",
                   .summary = "classes of service at an output: police, remark, shape, queue, schedule"};
  qos.description =
      "The classes are those of TABLE (see docs/reference/formats.md), or three priorities by DSCP that share 3:2:1. A "
      "packet is classified by its DSCP (or by the mark of an access list, where a class has it), policed, remarked, "
      "waits for its class's rate, then in its class's queue. Strict classes go first, the others share by deficit "
      "round robin; the port's rate applies to all together. The paint becomes the class. Time is as of Police. "
      "Handlers: "
      "`classes` (a table), `config_text`, `length`.";
  qos.arguments = {{.name = "TABLE", .kind = ArgumentKind::kFilename, .positional = true, .help = "the classes' file"}};
  qos.processing = "h/l";
  qos.drops = {DropReason::kPoliced, DropReason::kShaperFull, DropReason::kQueueFull, DropReason::kEarlyDrop,
               DropReason::kGraphChanged};
  qos.example = "in -> IPInput -> QoS -> Unqueue -> out;";
  qos.make = make_flow<Qos>();
  registry.add(std::move(qos));
}

}  // namespace sluice
