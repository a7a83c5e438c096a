// host only
#include "exec/live_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "exec/egress.h"
#include "exec/plan.h"
#include "ports/interface.h"

namespace sluice {
namespace {

// Bytes of a frame that an interface sends, besides the IP packet: Ethernet and up to two VLAN tags.
constexpr uint32_t kLinkBytes = 14 + 2 * 4;
// How long the end of a run waits for frames that were given to a port and have not left yet.
constexpr uint64_t kDrainNs = 200'000'000;

Result<PortOptions> options_of(const PortSpec& spec, unsigned workers) {
  PortOptions o;
  o.name = spec.device.name;
  if (!spec.device.method.empty()) {
    auto method = parse_port_method(spec.device.method);
    if (!method) return std::move(method).error();
    o.method = *method;
  }
  o.queues = spec.device.queues != 0 ? spec.device.queues : workers;
  // AF_XDP needs a socket for each queue of the driver, or the kernel gets what comes by the others; the other methods
  // have as many as they are asked for.
  if (spec.device.queues == 0 && (o.method == PortMethod::kAuto || o.method == PortMethod::kAfXdp))
    o.queues = std::min(queues_of_interface(o.name), kMaxPortQueues);
  o.receives = o.sends = false;
  o.promiscuous = spec.device.promiscuous;
  if (spec.device.xdp_mode == "native") o.xdp_mode = PortOptions::XdpMode::kNative;
  if (spec.device.xdp_mode == "generic") o.xdp_mode = PortOptions::XdpMode::kGeneric;
  return o;
}

}  // namespace

const char* to_string(LinkState state) {
  switch (state) {
    case LinkState::kUp:
      return "up";
    case LinkState::kNoCarrier:
      return "no carrier";
    case LinkState::kDown:
      return "down";
    case LinkState::kGone:
      return "gone";
  }
  return "";
}

class LivePorts::Source final : public BatchSource {
 public:
  explicit Source(std::shared_ptr<RxQueue> queue) : queue_(std::move(queue)) {}

  Result<void> read(Batch& batch) override {
    batch.clear();
    batch.append(queue_->poll(batch.rows(), batch.limit(), wall_ns()));
    return {};
  }
  bool live() const override { return true; }
  FramePool* lends() override { return &queue_->pool(); }
  int wait_fd() const override { return queue_->wait_fd(); }
  bool arm() override { return queue_->arm(); }

 private:
  std::shared_ptr<RxQueue> queue_;
};

class LivePorts::Sink final : public PacketSink {
 public:
  Sink(const Port& port, std::vector<std::shared_ptr<TxQueue>> queues)
      : port_(port), queues_(std::move(queues)), most_bytes_(port.facts().mtu + kLinkBytes) {}

  Result<void> write(std::span<const TxRecord> records, size_t& written) override {
    frames_.clear();
    for (const TxRecord& r : records) frames_.push_back({const_cast<uint8_t*>(r.data), r.captured, r.pool});
    written = send(frames_);
    return {};
  }
  Rows write_rows(const Batch& batch, const Selection& rows, FramePool* lender) override {
    if (frames_.size() < batch.size()) frames_.resize(batch.size());
    TxFrame* const frames = frames_.data();
    uint32_t n = 0, largest = 0;
    rows.for_each([&](uint32_t i) {
      const uint32_t bytes = batch.data_length(i);
      largest = std::max(largest, bytes);
      frames[n++] = {batch.frame(i) + batch.extent(i).data, bytes, lender};
    });
    if (largest > most_bytes_) [[unlikely]]
      return {};
    const uint32_t sent = send({frames, n});
    return {sent, n - sent};
  }
  DropReason refusal() const override { return DropReason::kTxFull; }
  uint32_t most_bytes() const override { return most_bytes_; }
  const FramePool* takes() const override { return queues_[0]->pool(); }
  void use_queue(unsigned queue) override {
    if (queue % queues_.size() == queue_) return;
    kick();
    queue_ = queue % queues_.size();
  }
  void kick() override {
    if (!unsent_) return;
    queues_[queue_]->flush();
    unsent_ = false;
  }
  Result<void> settle() override {
    kick();
    const uint64_t end = now_ns() + kDrainNs;
    for (const auto& queue : queues_) {
      while (queue->in_flight() != 0 && now_ns() < end) {
        queue->flush();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    return {};
  }
  Result<void> commit(Ending) override { return {}; }
  std::string path_of(Ending) const override { return {}; }

 private:
  uint32_t send(std::span<const TxFrame> frames) {
    TxQueue& queue = *queues_[queue_];
    unsent_ = true;
    const uint32_t sent = queue.send(frames);
    if (sent == frames.size()) return sent;
    // The ring is full: what has left makes room once.
    queue.flush();
    (void)queue.in_flight();
    return sent + queue.send(frames.subspan(sent));
  }

  const Port& port_;
  std::vector<std::shared_ptr<TxQueue>> queues_;
  size_t queue_ = 0;
  bool unsent_ = false;
  uint32_t most_bytes_;
  std::vector<TxFrame> frames_;
};

LivePorts::Open& LivePorts::of(const PortSpec& spec) const {
  const auto found =
      std::find_if(ports_.begin(), ports_.end(), [&](const auto& o) { return o->options.name == spec.device.name; });
  SLUICE_CHECK(found != ports_.end());
  return **found;
}

std::unique_ptr<LivePorts> LivePorts::open(const Router& router, const Plan& plan, unsigned workers, Error& errors) {
  struct Use {
    unsigned element;
    bool receives;
  };
  std::vector<Use> uses;
  for (const PlanSource& source : plan.sources) uses.push_back({source.element, true});
  for (const unsigned sink : plan.sinks) uses.push_back({sink, false});
  std::erase_if(uses,
                [&](const Use& use) { return router.elements[use.element]->port().type != PortSpec::Type::kDevice; });
  if (uses.empty()) return nullptr;
  auto live = std::make_unique<LivePorts>();
  std::vector<unsigned> first;  // element of each port
  for (const Use& use : uses) {
    const PortSpec spec = router.elements[use.element]->port();
    auto options = options_of(spec, workers);
    if (!options) {
      add_port_error(router, use.element, options.error(), errors);
      continue;
    }
    auto open = std::find_if(live->ports_.begin(), live->ports_.end(),
                             [&](const auto& o) { return o->options.name == options->name; });
    if (open == live->ports_.end()) {
      live->ports_.push_back(std::make_unique<Open>());
      live->ports_.back()->options = *options;
      first.push_back(use.element);
      open = live->ports_.end() - 1;
    } else if (use.receives && (*open)->options.receives) {
      add_port_error(router, use.element, Error(fmt::format("'{}' is received by two elements", options->name)),
                     errors);
    } else if (!spec.device.method.empty() && (*open)->options.method != options->method) {
      add_port_error(router, use.element, Error(fmt::format("'{}' is opened by two methods", options->name)), errors);
    }
    PortOptions& all = (*open)->options;
    all.receives |= use.receives;
    all.sends |= !use.receives;
    all.promiscuous |= options->promiscuous;
    all.queues = std::max(all.queues, options->queues);
  }
  if (!errors.diagnostics.empty()) return live;
  // What rings of all queues hold, and as much again on its way and in caches.
  FrameShape shape;
  uint32_t queues = 0;
  for (const auto& open : live->ports_) queues += open->options.queues;
  shape.chunks = std::max(shape.chunks, queues * 8192u);
  auto pool = MappedFramePool::create(shape);
  if (!pool) {
    add_port_error(router, first[0], pool.error(), errors);
    return live;
  }
  live->pool_ = std::move(*pool);
  for (size_t i = 0; i < live->ports_.size(); ++i) {
    auto port = open_port(live->ports_[i]->options, live->pool_);
    if (port) {
      Open& open = *live->ports_[i];
      open.port = std::move(*port);
      const PortFacts facts = open.port->facts();
      open.ifindex = facts.ifindex;
      open.link = facts.up ? LinkState::kUp : LinkState::kDown;
    } else {
      add_port_error(router, first[i], port.error(), errors);
    }
  }
  return live;
}

// Those that were asked for, as far as the port has them.
unsigned LivePorts::queues_of(const Open& open, unsigned most) {
  return std::min(open.options.queues, most);
}

bool LivePorts::any(const Router& router) {
  return std::any_of(router.elements.begin(), router.elements.end(),
                     [](const auto& e) { return e->port().type == PortSpec::Type::kDevice; });
}
bool LivePorts::has_all(const Router& router) const {
  return std::all_of(router.elements.begin(), router.elements.end(), [&](const auto& e) {
    const PortSpec spec = e->port();
    return spec.type != PortSpec::Type::kDevice || std::any_of(ports_.begin(), ports_.end(), [&](const auto& o) {
             return o->options.name == spec.device.name;
           });
  });
}

unsigned LivePorts::most_rx_queues() const {
  unsigned most = 1;
  for (const auto& open : ports_) most = std::max(most, queues_of(*open, open->port->facts().rx_queues));
  return most;
}
unsigned LivePorts::rx_queues(const PortSpec& spec) const {
  const Open& open = of(spec);
  return queues_of(open, open.port->facts().rx_queues);
}

Result<std::unique_ptr<BatchSource>> LivePorts::open_source(const PortSpec& spec, unsigned queue) {
  Open& open = of(spec);
  auto rx = open.port->open_rx(queue);
  if (!rx) return std::move(rx).error();
  open.rx.push_back(std::move(*rx));
  return std::unique_ptr<BatchSource>(std::make_unique<Source>(open.rx.back()));
}

Result<std::unique_ptr<PacketSink>> LivePorts::open_sink(const PortSpec& spec) {
  Open& open = of(spec);
  // Several sinks of one port share its queues: egress has one thread at a time.
  if (open.tx.empty()) {
    const unsigned queues = std::max(1u, queues_of(open, open.port->facts().tx_queues));
    for (unsigned q = 0; q < queues; ++q) {
      auto tx = open.port->open_tx(q);
      if (!tx) return std::move(tx).error();
      open.tx.push_back(std::move(*tx));
    }
  }
  return std::unique_ptr<PacketSink>(std::make_unique<Sink>(*open.port, open.tx));
}

std::string LivePorts::name_of(int ifindex) const {
  for (const auto& open : ports_) {
    if (ifindex != 0 && open->ifindex == ifindex) return open->options.name;
  }
  return {};
}
void LivePorts::link_changed(int ifindex, LinkState state) {
  for (const auto& open : ports_) {
    if (ifindex == 0 || open->ifindex != ifindex || open->link == state) continue;
    open->link = state;
    open->link_changes.fetch_add(1, std::memory_order_relaxed);
  }
}
Result<void> LivePorts::addresses_changed() {
  Result<void> result;
  for (const auto& open : ports_) {
    if (open->link == LinkState::kGone) continue;
    if (auto done = open->port->addresses_changed(); !done && result.ok()) result = std::move(done);
  }
  return result;
}

std::vector<LivePortReport> LivePorts::report() const {
  std::vector<LivePortReport> reports;
  for (const auto& open : ports_) {
    LivePortReport& report = reports.emplace_back();
    report.facts = open->port->facts();
    report.link = open->link;
    report.link_changes = open->link_changes;
    for (const auto& queue : open->rx) report.rx.push_back(queue->counters());
    for (const auto& queue : open->tx) report.tx.push_back(queue->counters());
  }
  return reports;
}

}  // namespace sluice
