// host only
// Queue and SimpleQueue. Source: their Click manual pages (Queue, SimpleQueue).
#include "elements/packet_store.h"
#include "graph/flow_runs.h"

namespace sluice {
namespace {

class Queue final : public FlowElement, public PassingQueue {
 public:
  explicit Queue(bool holds_back) : holds_back_(holds_back) {}

  void configure(const Arguments& arguments, Diagnostics&) override {
    kept_.capacity() = arguments.get_uint("CAPACITY");
  }
  bool output_optional(unsigned output) const override { return output > 0; }

  void push(FlowContext& context, unsigned, PacketBox packet) override {
    if (kept_.full()) {
      ++kept_.drops();
      packet->registers.reason = DropReason::kQueueFull;
      context.push(1, std::move(packet));
      return;
    }
    kept_.put(std::move(packet));
    highest_ = std::max(highest_, kept_.size());
    if (kept_.size() == 1) context.has_packets();
  }
  PacketBox pull(FlowContext& context, unsigned) override { return kept_.get(context); }
  void take(FlowContext& context, Flow& from) override {
    auto& other = static_cast<Queue&>(from);
    highest_ = other.highest_;
    kept_.take(context, other.kept_);
  }
  // With room for two nobody learns that it was full.
  bool passes() const override { return kept_.size() == 0 && kept_.capacity() >= 2; }
  void passed(uint64_t packets) override {
    if (packets != 0) highest_ = std::max<uint64_t>(highest_, 1);
  }
  uint64_t held() const override { return kept_.size(); }
  bool full() const override { return kept_.full(); }
  bool holds_back() const override { return holds_back_; }

  std::vector<Handler> handlers() override {
    Handler config{"config",
                   [this](FlowContext&, std::string_view) -> Result<std::string> {
                     return resized_ ? "CAPACITY " + std::to_string(kept_.capacity()) : configuration;
                   },
                   {}};
    return {kept_.length_handler(),
            read_handler("highwater_length", &highest_),
            value_handler("capacity", &kept_.capacity(), kCapacity,
                          [this](FlowContext& context) {
                            resized_ = true;
                            // What no longer fits is what came last.
                            kept_.shrink(context, kept_.capacity());
                          }),
            read_handler("drops", &kept_.drops()),
            write_handler("reset_counts", [this](FlowContext&) { kept_.drops() = highest_ = 0; }),
            write_handler("reset", [this](FlowContext& context) { kept_.shrink(context, 0); }),
            std::move(config)};
  }

  static inline const ArgumentSpec kCapacity{.name = "CAPACITY",
                                             .kind = ArgumentKind::kUint,
                                             .positional = true,
                                             .default_text = "1000",
                                             .unit = "packets",
                                             .help = "how many it holds",
                                             .min = 0,
                                             .max = 16777216};

 private:
  PacketStore kept_{0};
  uint64_t highest_ = 0;
  bool resized_ = false;
  bool holds_back_;
};

}  // namespace

void register_queue(Registry& registry) {
  ElementClass c;
  c.name = "Queue";
  c.aliases = {"FullNoteQueue"};
  c.group = "Queues and rates";
  c.summary = "holds packets until they are pulled";
  c.description =
      "First in, first out. A packet that comes when CAPACITY packets are there leaves by output 1 or is dropped. "
      "Sources without a rate (InfiniteSource, FromDump) wait while a Queue downstream is full. Handlers: `length`, "
      "`highwater_length`, `capacity` (write: what no longer fits is dropped, the last first), `drops`, "
      "`reset_counts`, `reset` (drops all).";
  c.arguments = {Queue::kCapacity};
  c.outputs = {1, 2};
  c.output_docs = {"packets, when pulled", "packets that found no room"};
  c.processing = "h/lh";
  c.drops = {DropReason::kQueueFull, DropReason::kGraphChanged};
  c.example = "FromDump(in.pcap) -> Queue(64) -> BandwidthShaper(1Mbps) -> ToDump(out.pcap);";
  c.make = [](std::string_view) { return std::make_unique<Queue>(true); };
  registry.add(c);
  c.name = "SimpleQueue";
  c.aliases = {};
  c.summary = "holds packets until they are pulled; sources do not wait for room in it";
  c.description = "A Queue whose sources do not wait while it is full.";
  c.example = "InfiniteSource(LIMIT 5) -> SimpleQueue(2) -> Unqueue -> Discard;";
  c.make = [](std::string_view) { return std::make_unique<Queue>(false); };
  registry.add(std::move(c));
}

}  // namespace sluice
