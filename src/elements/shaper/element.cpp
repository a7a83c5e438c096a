// host only
// Shaper and BandwidthShaper. Source: their Click manual pages.
#include "elements/flow_element.h"

namespace sluice {
namespace {

// Lets packets through at an even rate: not before their time, and at most one late one is made up for.
class Shaper final : public FlowElement {
 public:
  explicit Shaper(bool bytes) : bytes_(bytes) {}

  void configure(const Arguments& arguments, Diagnostics&) override {
    rate_ = bytes_ ? arguments.get_bandwidth_bps("RATE") / 8 : arguments.get_uint("RATE");
    pace_.set(rate_);
  }
  bool output_optional(unsigned output) const override { return output > 0; }
  Result<void> start(FlowContext& context) override {
    pace_.restart(context.now_ns());
    return {};
  }
  Time time() const override { return Time::kLooks; }
  void clock_begins(FlowContext& context) override { pace_.restart(context.now_ns()); }
  PacketBox pull(FlowContext& context, unsigned output) override {
    const uint64_t now = context.now_ns();
    const uint64_t next = pace_.next_ns();
    // Output 1 has the packets for which it is not time yet.
    if (output == 1) return now < next ? context.pull(0) : nullptr;
    if (now < next) {
      if (next != kNever) context.retry_at(next);
      return nullptr;
    }
    PacketBox packet = context.pull(0);
    if (packet != nullptr) {
      const uint64_t units = bytes_ ? packet->registers.length() : 1;
      pace_.went(units, now,
                 static_cast<uint64_t>(std::min<unsigned __int128>(
                     kSecondNs, static_cast<unsigned __int128>(units) * kSecondNs / pace_.rate())));
    }
    return packet;
  }
  void take(FlowContext&, Flow& from) override { pace_.take(static_cast<const Shaper&>(from).pace_); }
  std::vector<Handler> handlers() override {
    Handler rate = rate_handler(bytes_, &rate_, [this](FlowContext& context) {
      pace_.set(rate_);
      pace_.restart(context.now_ns());
    });
    return {std::move(rate), write_handler("reset", [this](FlowContext& context) { pace_.restart(context.now_ns()); })};
  }

 private:
  bool bytes_;
  uint64_t rate_ = 0;
  Pace pace_;
};

}  // namespace

void register_shaper(Registry& registry) {
  ElementClass c{.name = "Shaper", .group = "Queues and rates", .summary = "limits the packets pulled per second"};
  c.description =
      "Pulled packets come no closer together than RATE allows; no credit is saved up but one late packet. Output 1, "
      "if connected, gives the packets for which it is not time yet. Handlers: `rate`, `reset`.";
  c.arguments = {{.name = "RATE",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .mandatory = true,
                  .unit = "packets per second",
                  .help = "0: none",
                  .max = 1e9}};
  c.outputs = {1, 2};
  c.output_docs = {"packets whose time has come", "packets for which it is not time yet"};
  c.processing = "l/l";
  c.example = "queue -> Shaper(1000) -> Unqueue -> out;";
  c.make = [](std::string_view) { return std::make_unique<Shaper>(false); };
  registry.add(c);

  c.name = "BandwidthShaper";
  c.summary = "limits the bytes pulled per second";
  c.description =
      "Pulled packets come no closer together than their lengths at RATE allow; no credit is saved up but one late "
      "packet. Handlers: `rate` (bytes per second; written as RATE is), `reset`.";
  c.arguments = {{.name = "RATE",
                  .kind = ArgumentKind::kBandwidth,
                  .positional = true,
                  .mandatory = true,
                  .help = "0: nothing",
                  .max = 1e12}};
  c.outputs = {1, 1};
  c.output_docs = {};
  c.example = "queue -> BandwidthShaper(10Mbps) -> ToDump(out.pcap);";
  c.make = [](std::string_view) { return std::make_unique<Shaper>(true); };
  registry.add(std::move(c));
}

}  // namespace sluice
