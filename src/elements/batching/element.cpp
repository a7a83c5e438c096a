// host only
// MinBatch, ConstantBatch, Pipeliner and CPUPaint. Source: FastClick's descriptions of them; their meaning here is in
// docs/design/click.md.
#include <deque>

#include "elements/counter/stage.h"
#include "elements/packet_store.h"
#include "elements/stage_element.h"

namespace sluice {
namespace {

constexpr double kLargestBatch = Batch::kMaxPackets;

// In the engine packets pass, and the sources' batches are as the rule says. In the packet scheduler, where
// packets come one by one, they wait until they are enough, or the first of them has waited for TIMER.
class BatchGate final : public StageElement<PassStage>, public Flow {
 public:
  explicit BatchGate(bool exact) : exact_(exact) {}

  void configure(const Arguments& arguments, Diagnostics&) override {
    burst_ = static_cast<uint32_t>(arguments.get_uint("BURST"));
    timeout_ns_ = arguments.get_uint("TIMER") * 1000;
  }
  BatchRule batch_rule() const override { return {burst_, exact_}; }
  Flow* flow() override { return this; }

  Time time() const override { return Time::kLooks; }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    packets_.push_back(std::move(packet));
    if (packets_.size() >= burst_) {
      release(context);
    } else if (packets_.size() == 1) {
      context.set_timer(context.now_ns() + timeout_ns_);
    }
  }
  void timer(FlowContext& context) override {
    if (packets_.empty()) return;
    ++timeouts_;
    release(context);
  }
  void take(FlowContext& context, Flow& from) override {
    auto& other = static_cast<BatchGate&>(from);
    packets_ = std::move(other.packets_);
    other.packets_.clear();
    batches_ = other.batches_;
    timeouts_ = other.timeouts_;
    if (!packets_.empty()) context.set_timer(context.now_ns());
  }
  uint64_t held() const override { return packets_.size(); }
  std::vector<Handler> handlers() override {
    return {read_handler("batches", &batches_), read_handler("timeouts", &timeouts_)};
  }

 private:
  void release(FlowContext& context) {
    context.cancel_timer();
    ++batches_;
    // What comes back to this element while they go belongs to the next batch.
    std::deque<PacketBox> now;
    now.swap(packets_);
    for (PacketBox& packet : now) context.push(0, std::move(packet));
  }

  bool exact_;
  uint32_t burst_ = 32;
  uint64_t timeout_ns_ = 0;
  std::deque<PacketBox> packets_;
  uint64_t batches_ = 0, timeouts_ = 0;
};

// In the engine packets pass: workers take whole batches through all elements. In the packet scheduler a queue
// with a task of its own.
class Pipeliner final : public StageElement<PassStage>, public Flow {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    kept_.capacity() = arguments.get_uint("CAPACITY");
    blocking_ = arguments.get_bool("BLOCKING");
  }
  Flow* flow() override { return this; }

  void push(FlowContext& context, unsigned, PacketBox packet) override {
    if (kept_.full()) {
      ++kept_.drops();
      context.drop(std::move(packet), DropReason::kQueueFull);
      return;
    }
    kept_.put(std::move(packet));
    context.wake();
  }
  bool task(FlowContext& context) override {
    constexpr unsigned kTurn = 32;
    for (unsigned n = 0; n < kTurn; ++n) {
      PacketBox packet = kept_.get(context);
      if (packet == nullptr) return n != 0;
      context.push(0, std::move(packet));
    }
    return true;
  }
  void take(FlowContext& context, Flow& from) override { kept_.take(context, static_cast<Pipeliner&>(from).kept_); }
  uint64_t held() const override { return kept_.size(); }
  bool full() const override { return kept_.full(); }
  bool holds_back() const override { return blocking_; }
  std::vector<Handler> handlers() override { return {kept_.length_handler(), read_handler("dropped", &kept_.drops())}; }

 private:
  PacketStore kept_{1024};
  bool blocking_ = true;
};

class CpuPaint final : public Element {
 public:
  ElementKind kind() const override { return ElementKind::kHost; }
  StageTraits stage_traits() const override { return {0, kFieldPaint}; }
  void process(HostContext& context, Batch& batch, const Selection& packets, unsigned) const override {
    const auto paint = static_cast<uint8_t>(context.worker());
    const BatchView view = batch.view();
    packets.for_each([&](uint32_t i) { view.annotation[i].paint = paint; });
    context.forward(0, packets);
  }
};

ArgumentSpec burst_argument(const char* help) {
  return {.name = "BURST",
          .kind = ArgumentKind::kUint,
          .positional = true,
          .default_text = "32",
          .unit = "packets",
          .help = help,
          .min = 1,
          .max = kLargestBatch};
}

}  // namespace

void register_batching(Registry& registry) {
  ElementClass c{.name = "MinBatch", .group = "Batches", .summary = "makes batches of at least BURST packets"};
  c.description =
      "Sources make batches with room for BURST packets (never fewer than --batch says), and --latency-target makes "
      "none smaller. Among queues and scripts packets wait here until there are BURST of them or the first has waited "
      "for TIMER. Without TIMER FastClick waits without limit; here the default is 1000 microseconds. Handlers there: "
      "`batches`, `timeouts` (batches that TIMER made).";
  c.arguments = {burst_argument("smallest batch"),
                 {.name = "TIMER",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .default_text = "1000",
                  .unit = "microseconds",
                  .help = "how long the first packet waits for others",
                  .max = 60e6}};
  c.drops = {DropReason::kGraphChanged};
  c.example = "in -> MinBatch(256, TIMER 500) -> CheckIPHeader -> out;";
  c.make = [](std::string_view) { return std::make_unique<BatchGate>(false); };
  registry.add(c);

  c.name = "ConstantBatch";
  c.summary = "makes batches of BURST packets";
  c.description =
      "Sources make batches of BURST packets, whatever --batch is, except for the last. Among queues and scripts it is "
      "a MinBatch: packets wait for BURST of them or for TIMER. Two of different sizes in one graph are an error.";
  c.arguments[0].help = "packets per batch";
  c.example = "in -> ConstantBatch(1024) -> CheckIPHeader -> out;";
  c.make = [](std::string_view) { return std::make_unique<BatchGate>(true); };
  registry.add(c);

  c.name = "Pipeliner";
  c.summary = "separates the elements after it into a task of their own";
  c.description =
      "FastClick hands packets to another thread here. In the engine --workers share whole batches and packets "
      "pass unchanged. Among queues and scripts it holds up to CAPACITY packets, which its own task pushes on; while "
      "it is full, sources without a rate wait, or with BLOCKING false continue and lose packets, which are counted as "
      "queue-full. Handlers there: `length`, `dropped`.";
  c.arguments = {
      {.name = "CAPACITY",
       .kind = ArgumentKind::kUint,
       .positional = true,
       .default_text = "1024",
       .unit = "packets",
       .help = "how many it holds",
       .min = 1,
       .max = 16777216},
      {.name = "BURST",
       .kind = ArgumentKind::kUint,
       .positional = true,
       .help = "accepted: the runtime chooses the burst"},
      {.name = "BLOCKING",
       .kind = ArgumentKind::kBool,
       .positional = true,
       .default_text = "true",
       .help = "false: sources do not wait for room"},
      {.name = "ALWAYS_UP", .kind = ArgumentKind::kBool, .help = "accepted: it runs when it has packets"},
      {.name = "PREFETCH", .kind = ArgumentKind::kBool, .help = "accepted: the runtime prefetches"},
      {.name = "THREAD", .kind = ArgumentKind::kUint, .help = "accepted: workers share packets, not elements"},
      {.name = "VERBOSE", .kind = ArgumentKind::kRaw, .help = "accepted"}};
  c.processing = "h/h";
  c.drops = {DropReason::kQueueFull, DropReason::kGraphChanged};
  c.example = "FromDump(in.pcap) -> Pipeliner(CAPACITY 256) -> CheckIPHeader -> out;";
  c.make = make_element<Pipeliner>();
  registry.add(c);

  c.name = "CPUPaint";
  c.summary = "sets the paint to the number of the worker";
  c.description =
      "Worker N of --workers paints N; in the packet scheduler it is 0. The result depends on how packets are shared "
      "among workers.";
  c.arguments = {};
  c.processing = {};
  c.drops = {};
  c.example = "in -> CPUPaint -> ps :: PaintSwitch; ps[0] -> a; ps[1] -> b;";
  c.make = make_element<CpuPaint>();
  registry.add(std::move(c));
}

}  // namespace sluice
