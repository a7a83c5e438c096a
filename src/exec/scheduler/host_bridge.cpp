// host only
// Elements that work on batches, with one packet at a time.
#include "exec/scheduler/node.h"

namespace sluice {
namespace {

constexpr unsigned kMaxOpenBatches = 64;

}  // namespace

// What a host element sees of one packet. What it hands on waits until it has returned: it may be asked again then.
class Scheduler::HostBridge final : public HostContext {
 public:
  HostBridge(Node& node, uint8_t generation) : node_(node), generation_(generation) {}

  void forward(unsigned output, const Selection& packets) override {
    if (packets.has(0)) forwarded_ = output;
  }
  void drop(Batch&, uint32_t, DropReason reason) override { dropped_ = reason; }
  Batch* spawn(unsigned output, size_t bytes) override {
    if (output >= node_.outputs_.size() || node_.outputs_[output].empty()) return nullptr;
    if (generation_ >= kMaxGenerations) return nullptr;
    if (!made_.empty() && made_.back().first == output && made_.back().second->has_room(bytes))
      return made_.back().second.get();
    if (made_.size() == kMaxOpenBatches) return nullptr;
    std::unique_ptr<Batch> batch;
    auto& spare = node_.impl_.spare;
    if (!spare.empty()) {
      batch = std::move(spare.back());
      spare.pop_back();
      batch->clear();
    } else {
      auto made = Batch::create(64, size_t{1} << 18);
      if (!made.ok()) return nullptr;
      batch = std::make_unique<Batch>(std::move(*made));
    }
    return made_.emplace_back(output, std::move(batch)).second.get();
  }
  void lose(uint32_t count, DropReason reason) override {
    node_.impl_.account.stats.generated += count;
    node_.impl_.account.drop(node_.index_, reason, count);
  }
  void print(const Batch&, uint32_t, std::string_view text) override {
    if (node_.impl_.options.print) node_.impl_.options.print(text);
  }
  uint8_t limiter() const override { return node_.impl_.egress->limiter_of(node_.index_); }
  unsigned worker() const override { return 0; }

  std::optional<unsigned> forwarded_;
  std::optional<DropReason> dropped_;
  std::vector<std::pair<unsigned, std::unique_ptr<Batch>>> made_;

 private:
  Node& node_;
  uint8_t generation_;
};

PacketBox Scheduler::Node::host(PacketBox packet, unsigned input, unsigned wanted) {
  HostBridge bridge(*this, packet->generation);
  Batch& batch = *impl_.scratch;
  batch.clear();
  const Packet& p = packet->registers;
  batch.push(p.frame, p.end, p.wire_end, packet->timestamp_ns, 0);
  batch.view().store(0, ~FieldMask{0}, packet->registers);
  Selection one;
  one.add(0);
  element_.process(bridge, batch, one, input);
  uint8_t* frame = packet->registers.frame;
  batch.view().load(0, ~FieldMask{0}, packet->registers);
  packet->registers.frame = frame;
  std::vector<std::pair<unsigned, PacketBox>> made;
  for (auto& [output, children] : bridge.made_) {
    for (uint32_t i = 0; i < children->size(); ++i) {
      PacketBox child = impl_.pool.make(children->extent(i).end);
      if (child == nullptr) {
        bridge.lose(1, DropReason::kNoBuffer);
        continue;
      }
      uint8_t* to = child->registers.frame;
      children->view().load(i, ~FieldMask{0}, child->registers);
      std::memcpy(to - kHeadroom, child->registers.frame - kHeadroom, kHeadroom + child->registers.end);
      child->registers.frame = to;
      child->timestamp_ns = children->timestamp_ns(i);
      child->generation = static_cast<uint8_t>(packet->generation + 1);
      ++impl_.account.stats.generated;
      made.emplace_back(output, std::move(child));
    }
    impl_.spare.push_back(std::move(children));
  }
  // The packet goes first, then what was made of it, as in the engine (exec/walk/descent.h). What makes packets is
  // not asked for them.
  PacketBox answer;
  if (bridge.forwarded_ == wanted) {
    answer = std::move(packet);
  } else if (bridge.forwarded_) {
    push(*bridge.forwarded_, std::move(packet));
  } else {
    drop(std::move(packet), bridge.dropped_.value_or(DropReason::kDiscard));
  }
  for (auto& [output, child] : made) push(output, std::move(child));
  return answer;
}

}  // namespace sluice
