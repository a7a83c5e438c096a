// host only
// RoundRobinSched, PrioSched and DRRSched. Source: their Click manual pages; Shreedhar and Varghese, "Efficient Fair
// Queuing Using Deficit Round-Robin" (SIGCOMM 1995).
#include "elements/flow_element.h"

namespace sluice {
namespace {

class RoundRobinSched final : public FlowElement {
 public:
  PacketBox pull(FlowContext& context, unsigned) override {
    for (unsigned n = 0; n < inputs; ++n) {
      const unsigned input = next_;
      next_ = input + 1 == inputs ? 0 : input + 1;
      if (PacketBox packet = context.pull(input)) return packet;
    }
    return nullptr;
  }

 private:
  unsigned next_ = 0;
};

class PrioSched final : public FlowElement {
 public:
  PacketBox pull(FlowContext& context, unsigned) override {
    for (unsigned input = 0; input < inputs; ++input) {
      if (PacketBox packet = context.pull(input)) return packet;
    }
    return nullptr;
  }
};

// It has to know how long an input's next packet is, so it holds that one.
class DrrSched final : public FlowElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override { quantum_ = arguments.get_uint("QUANTUM"); }
  Result<void> start(FlowContext&) override {
    lines_.resize(inputs);
    return {};
  }
  PacketBox pull(FlowContext& context, unsigned) override {
    // Every round adds a quantum to each input with a packet, so that it ends.
    for (unsigned empty = 0; empty < inputs;) {
      Line& line = lines_[at_];
      if (line.head == nullptr) line.head = context.pull(at_);
      if (line.head == nullptr) {
        line.deficit = 0;
        ++empty;
      } else {
        empty = 0;
        if (!served_) line.deficit += quantum_;
        served_ = true;
        if (line.head->registers.length() <= line.deficit) {
          line.deficit -= line.head->registers.length();
          return std::move(line.head);
        }
      }
      at_ = at_ + 1 == inputs ? 0 : at_ + 1;
      served_ = false;
    }
    return nullptr;
  }
  // The packets that stood first, of inputs that are still there.
  void take(FlowContext&, Flow& from) override {
    auto& other = static_cast<DrrSched&>(from);
    for (size_t i = 0; i < std::min(lines_.size(), other.lines_.size()); ++i) lines_[i] = std::move(other.lines_[i]);
  }
  uint64_t held() const override {
    return static_cast<uint64_t>(
        std::count_if(lines_.begin(), lines_.end(), [](const Line& line) { return line.head != nullptr; }));
  }

 private:
  struct Line {
    PacketBox head;
    uint64_t deficit = 0;
  };
  std::vector<Line> lines_;
  uint64_t quantum_ = 500;
  unsigned at_ = 0;
  bool served_ = false;  // the input at at_ has its quantum of this round
};

}  // namespace

void register_sched(Registry& registry) {
  ElementClass c{
      .name = "RoundRobinSched", .group = "Queues and rates", .summary = "pulls from its inputs round robin"};
  c.description = "Each packet comes from the next input that has one.";
  c.inputs = {1, kAnyPorts};
  c.processing = "l/l";
  c.example = "rr :: RoundRobinSched; q1 -> rr; q2 -> [1] rr; rr -> Unqueue -> out;";
  c.make = make_flow<RoundRobinSched>();
  registry.add(c);

  c.name = "PrioSched";
  c.summary = "pulls from the first input that has a packet";
  c.description = "Input 0 comes first, always.";
  c.example = "p :: PrioSched; voice -> p; data -> [1] p; p -> Unqueue -> out;";
  c.make = make_flow<PrioSched>();
  registry.add(c);

  c.name = "DRRSched";
  c.summary = "shares bytes evenly among its inputs";
  c.description =
      "Deficit round robin (Shreedhar and Varghese 1995): each round gives an input QUANTUM bytes, which it keeps "
      "while it has packets. It holds the next packet of each input.";
  c.arguments = {{.name = "QUANTUM",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .default_text = "500",
                  .unit = "bytes",
                  .help = "bytes per round",
                  .min = 64,
                  .max = 1e9}};
  c.example = "d :: DRRSched; q1 -> d; q2 -> [1] d; d -> Unqueue -> out;";
  c.drops = {DropReason::kGraphChanged};
  c.make = make_flow<DrrSched>();
  registry.add(std::move(c));
}

}  // namespace sluice
