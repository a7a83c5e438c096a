// host only
// Scheduler::Node: one element of the graph that runs, and what it may do.
#pragma once

#include "exec/scheduler/impl.h"

namespace sluice {

class Scheduler::Node final : public FlowContext {
 public:
  Node(Impl& impl, unsigned index, Element& element)
      : impl_(impl), index_(index), element_(element), kind_(element.kind()) {
    flow_ = element_.flow();
    handlers_ = element_.handlers();
    for (const char* name : {"class", "name", "config", "ports", "handlers", "count", "drops"}) add_default(name);
    // What takes any name comes last.
    std::stable_partition(handlers_.begin(), handlers_.end(), [](const Handler& h) { return h.name != "*"; });
  }
  ~Node() override { give_back(); }

  // What an element may do.

  void push(unsigned output, PacketBox packet) override;
  bool pushes(unsigned output) const override { return output < push_to_.size() && push_to_[output].node != nullptr; }

  PacketBox pull(unsigned input) override;
  void drop(PacketBox packet, DropReason reason) override {
    (void)packet;
    impl_.account.drop(index_, reason);
  }
  PacketBox bring(std::span<const uint8_t> frame) override;
  void sent(PacketBox packet) override {
    ++sent_.packets;
    sent_.bytes += packet->registers.length();
  }

  uint64_t now_ns() const override { return impl_.now(); }
  bool packet_clock() const override { return impl_.packet_clock(); }
  bool packet_time() const override { return impl_.packet_time(); }
  bool comes(uint64_t timestamp_ns) override {
    if (!impl_.packet_clock() || impl_.packet_comes(timestamp_ns)) return true;
    retry_at(timestamp_ns);
    return false;
  }
  void wake() override {
    impl_.idle_reported = false;
    if (in_ring_) return;
    in_ring_ = true;
    impl_.ring.push_back(index_);
  }
  void set_timer(uint64_t at_ns) override {
    impl_.timers.push({at_ns, impl_.timer_order++, index_, ++timer_version_, false});
  }
  void cancel_timer() override { ++timer_version_; }
  void retry_at(uint64_t at_ns) override { impl_.retry = std::min(impl_.retry, at_ns); }
  bool full_below(unsigned output) const override {
    if (output >= below_.size() || below_[output].open || below_[output].queues.empty()) return false;
    return std::all_of(below_[output].queues.begin(), below_[output].queues.end(),
                       [](const Flow* queue) { return queue->full(); });
  }
  void has_packets() override { wake_all(pullers_); }
  void has_room() override { wake_all(pushers_); }
  void stop() override { ++impl_.stops; }
  void end() override { impl_.ended = true; }

  Result<std::string> read(std::string_view name, std::string_view argument) override {
    return impl_.read(this, name, argument);
  }
  Result<void> write(std::string_view name, std::string_view value) override { return impl_.write(this, name, value); }
  bool has_handler(std::string_view name, bool writes) const override { return impl_.find(this, name, writes).ok(); }
  std::string handler_name(std::string_view name) const override {
    for (const bool writes : {false, true}) {
      auto found = impl_.find(this, name, writes);
      if (found.ok()) return found->name;
    }
    return std::string(name);
  }

  uint64_t packets() const override { return impl_.account.stats.elements[index_].packets; }
  uint64_t bytes() const override { return impl_.account.stats.elements[index_].bytes; }
  uint64_t dropped() const override {
    uint64_t sum = 0;
    for (const uint64_t n : impl_.account.stats.elements[index_].drops) sum += n;
    return sum;
  }
  Result<void> rebind() override {
    impl_.settle();
    return impl_.bind_one(index_);
  }
  void print_out(std::string_view text) override {
    impl_.hand_over();
    if (impl_.options.print_out) impl_.options.print_out(text);
  }
  void print_error(std::string_view text) override {
    impl_.hand_over();
    if (impl_.options.print_error) impl_.options.print_error(text);
  }

 private:
  friend struct Impl;
  friend class Scheduler;
  friend class HostBridge;

  struct Link {
    unsigned node;
    unsigned port;
    bool pull;
  };
  using Place = Impl::Place;
  struct Below {
    std::vector<const Flow*> queues;
    bool open = false;
  };

  ElementCounters& counters() const { return impl_.account.stats.elements[index_]; }
  void count(const FlowPacket& packet) { impl_.account.arrive(index_, 1, packet.registers.length()); }
  void came_in(std::span<const uint8_t> frame) {
    impl_.account.come_in(frame);
    impl_.account.arrive(index_, 1, frame.size());
  }
  void wake_all(const std::vector<unsigned>& tasks) {
    for (unsigned task : tasks) impl_.nodes[task]->wake();
  }
  bool pulls_input() const { return !inputs_.empty() && !inputs_[0].empty() && inputs_[0][0].pull; }

  void add_default(const char* name);
  std::string ports_text() const;

  // A packet comes in by a push input.
  void receive(unsigned input, PacketBox packet);
  // Somebody asks for a packet of pull output `output`.
  PacketBox give(unsigned output);
  // Which output the packet leaves by.
  unsigned stage(FlowPacket& packet);
  // The packet back where it leaves by output `wanted`; everything else is handed on.
  PacketBox host(PacketBox packet, unsigned input, unsigned wanted);
  // The source's next packet; none at the end.
  PacketBox next();
  bool task();

  // A source whose packets pass queues, each pulled in the turn after its own, while nobody else has one (passage.cpp):
  // takes many such pairs of turns at once. False: it cannot now.
  bool run_through();

  // A source. Whether there is another packet in batch_; reads where that is done.
  bool more();
  // The frames of batch_ go back to the live port's pool, but for those that sinks took.
  void give_back();
  // Packets of a live port that were read and did not come in: no task gets them after that.
  struct Left {
    uint64_t packets = 0, bytes = 0;
  };
  Left take_left(Account& account);
  // Takes stages over the next packets of batch_, before it is their turn (stage_runs.cpp). False: there is none.
  bool run_ahead();
  // The next of those goes on to where stages sent it.
  void hand_on_ahead();
  // Undoes it for those whose turn has not come.
  void take_back();
  // Copies a packet of batch_ to `frame`, with its registers.
  void load(uint32_t row, uint8_t* frame, Packet& packet);

  Impl& impl_;
  unsigned index_;
  Element& element_;
  ElementKind kind_;
  unsigned same_ = kNobody;   // in the graph before: the very element
  unsigned kin_ = kNobody;    // there: one of its name and class
  size_t sink_ = ~size_t{0};  // of the plan
  Flow* flow_ = nullptr;
  std::vector<Handler> handlers_;
  std::vector<std::vector<Link>> inputs_, outputs_;
  std::vector<Place> push_to_, pull_from_;  // the same, by port
  std::vector<unsigned> pullers_, pushers_;
  std::vector<Below> below_;
  StageSlot slot_{};
  StageKernel kernel_ = nullptr;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<Batch> batch_;
  uint32_t row_ = 0;   // the next
  Selection taken_;    // rows of a live port that sinks took
  uint64_t kept_ = 0;  // packets of a live port that had come when the run ended, and not gone further
  // Packets of batch_ from row_ on that stages have seen already.
  struct Ahead {
    PacketBox packet;
    Place to;       // nobody: dropped on the way
    unsigned hops;  // nodes on the way
  };
  std::vector<Ahead> ahead_;
  uint32_t ahead_at_ = 0, ahead_end_ = 0;
  uint32_t window_ = Tile::kLanes;  // how many at a time: fewer where others look often
  bool runs_ahead_ = false;
  unsigned passage_ = kNobody;      // of the plan of passages: which source it is
  std::vector<unsigned> passages_;  // of its queues: where its packets may come to
  // Nothing that packets pushed to this node do is seen by others until they look: they may come later, in order.
  bool later_ = false;
  uint8_t run_stage_ = Impl::kNoStage;
  bool source_done_ = false;
  PortCounters sent_;                      // by a flow
  uint16_t input_ = FlowPacket::kNoInput;  // of Impl::inputs, of a source
  bool in_ring_ = false;
  uint64_t timer_version_ = 0, retry_version_ = 0;
};

// Lanes of Account. `of(i)`: the packet of a lane, whose registers are packets[i].
template <typename Of>
struct FlowLanes {
  const Packet* packets;
  Of of;
  static constexpr bool kRecords = true;
  uint32_t rule(uint32_t i) const { return packets[i].rule; }
  uint32_t length(uint32_t i) const { return packets[i].length(); }
  static uint32_t near(LoggedRules::Range) { return ~uint32_t{0}; }
  void log(uint32_t i, LoggedPacket& packet) const {
    const Packet& p = packets[i];
    packet.timestamp_ns = of(i).timestamp_ns;
    packet.key = p.key;
    packet.bytes = p.length();
    packet.ip_bytes = p.end - std::min<uint32_t>(p.end, p.l3);
    packet.source = of(i).input;
  }
  DropReason reason(uint32_t i) const { return packets[i].reason; }
  uint32_t row(uint32_t i) const { return i; }
  uint32_t next_hop(uint32_t i) const { return packets[i].next_hop; }
};

inline void Scheduler::Impl::hand(const Place& to, PacketBox packet) {
  if (to.node->later_ && !handing_over) {
    if (depth + nodes.size() < kMaxDepth) {
      waiting[n_waiting] = std::move(packet);
      waiting_for[n_waiting] = to;
      if (++n_waiting == Tile::kLanes) hand_over();
      return;
    }
    hand_over();
  }
  ++depth;
  to.node->receive(to.port, std::move(packet));
  --depth;
}

}  // namespace sluice
