// host only
#include "exec/engine/live_ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "exec/engine/egress.h"
#include "exec/walk/plan.h"
#include "ports/interface.h"

namespace sluice {
namespace {

// Bytes of a frame that an interface sends, besides the IP packet: Ethernet and up to two VLAN tags.
constexpr uint32_t kLinkBytes = 14 + 2 * 4;
// How long the end of a run waits for frames that were given to a port and have not left yet.
constexpr uint64_t kLiveDrainNs = 200'000'000;

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
  o.kernel_gets_own = spec.device.kernel;
  o.hardware_timestamps = spec.device.adapter_timestamps;
  if (spec.device.xdp_mode == "native") o.xdp_mode = PortOptions::XdpMode::kNative;
  if (spec.device.xdp_mode == "generic") o.xdp_mode = PortOptions::XdpMode::kGeneric;
  return o;
}

void add(RxCounters& sum, const RxCounters& more, bool less = false) {
  for (const auto of :
       {&RxCounters::packets, &RxCounters::bytes, &RxCounters::missed, &RxCounters::too_long, &RxCounters::invalid})
    sum.*of += less ? ~(more.*of) + 1 : more.*of;
}
void add(TxCounters& sum, const TxCounters& more, bool less = false) {
  for (const auto of : {&TxCounters::packets, &TxCounters::bytes, &TxCounters::full, &TxCounters::failed})
    sum.*of += less ? ~(more.*of) + 1 : more.*of;
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

// One device, open for RX, TX or both.
struct LivePorts::Open {
  PortOptions options;
  std::shared_ptr<FramePool> pool;
  std::unique_ptr<Port> port;  // nullptr: closed
  int ifindex = 0;             // 0: no interface of the kernel
  std::atomic<LinkState> link{LinkState::kUp};
  std::atomic<uint64_t> link_changes{0};
  uint32_t most_bytes = 0;  // of a frame that it sends
  // By number. nullptr: nobody has it.
  std::vector<std::shared_ptr<RxQueue>> rx;
  std::vector<std::shared_ptr<TxQueue>> tx;
  bool used = false;        // a graph that ran has named it
  bool all_queues = false;  // it was not said how many it is to have
  std::vector<bool> left;   // RX queues that nobody has any more
  // What it did before it was closed, or opened again.
  PortFacts last;
  std::vector<RxCounters> rx_before;
  std::vector<TxCounters> tx_before;

  void opened(std::unique_ptr<Port> made) {
    port = std::move(made);
    const PortFacts facts = port->facts();
    ifindex = facts.ifindex;
    most_bytes = facts.mtu + kLinkBytes;
    const LinkState now = facts.up ? LinkState::kUp : LinkState::kDown;
    if (link.exchange(now) != now && !last.name.empty()) link_changes.fetch_add(1, std::memory_order_relaxed);
    last = facts;
    rx.resize(std::max<size_t>(rx.size(), options.queues));
    tx.resize(std::max<size_t>(tx.size(), options.queues));
  }
  std::vector<RxCounters> rx_counters() const {
    std::vector<RxCounters> all;
    for (size_t q = 0; q < std::max(rx.size(), rx_before.size()); ++q) {
      const bool open = q < rx.size() && rx[q] != nullptr;
      if (!open && q >= rx_before.size()) break;
      RxCounters& sum = all.emplace_back(open ? rx[q]->counters() : RxCounters());
      if (q < rx_before.size()) add(sum, rx_before[q]);
    }
    return all;
  }
  std::vector<TxCounters> tx_counters() const {
    std::vector<TxCounters> all;
    for (size_t q = 0; q < std::max(tx.size(), tx_before.size()); ++q) {
      const bool open = q < tx.size() && tx[q] != nullptr;
      if (!open && q >= tx_before.size()) break;
      TxCounters& sum = all.emplace_back(open ? tx[q]->counters() : TxCounters());
      if (q < tx_before.size()) add(sum, tx_before[q]);
    }
    return all;
  }
};

namespace {

// What queues were given leaves, as far as it does so soon. `link`: of their interface.
void drain_queues(const std::vector<std::shared_ptr<TxQueue>>& tx, const std::atomic<LinkState>& link) {
  const uint64_t end = now_ns() + kLiveDrainNs;
  for (const auto& queue : tx) {
    if (queue == nullptr) continue;
    queue->flush();
    while (link != LinkState::kGone && queue->in_flight() != 0 && now_ns() < end) {
      queue->flush();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace

// What was in the place of a port that is closed already: reports go by what it had counted by then.
struct LivePorts::Closing::One {
  Open* open = nullptr;
  std::shared_ptr<FramePool> pool;
  std::unique_ptr<Port> port;  // nullptr: it goes on, and only these queues end
  std::vector<std::shared_ptr<RxQueue>> rx;
  std::vector<std::shared_ptr<TxQueue>> tx;
};
LivePorts::Closing::Closing() = default;
LivePorts::Closing::Closing(Closing&& other) noexcept
    : ports_(std::exchange(other.ports_, nullptr)),
      unused_(std::move(other.unused_)),
      closing_(std::move(other.closing_)) {}
LivePorts::Closing::~Closing() {
  for (One& one : closing_) {
    std::vector<TxCounters> before;
    for (const auto& queue : one.tx) before.push_back(queue != nullptr ? queue->counters() : TxCounters());
    drain_queues(one.tx, one.open->link);
    const std::lock_guard lock(ports_->mutex_);
    for (size_t q = 0; q < one.tx.size(); ++q) {
      if (one.tx[q] == nullptr) continue;
      add(one.open->tx_before[q], one.tx[q]->counters());
      add(one.open->tx_before[q], before[q], true);
    }
  }
  for (One& one : closing_) {
    one.rx.clear();
    one.tx.clear();
    one.port.reset();
    one.pool.reset();
  }
  if (ports_ != nullptr) ports_->drop_pools();
}

// A port of a graph that is not open.
struct LivePorts::Wanted {
  PortOptions options;
  bool all_queues;
  unsigned element;  // the first that names it
};

struct LivePorts::Again::One {
  Open* open;
  Port* before;  // in its place, if nobody changed it meanwhile
  std::unique_ptr<Port> port;
  std::vector<std::shared_ptr<RxQueue>> rx;
  std::vector<std::shared_ptr<TxQueue>> tx;

  // Opens the queues that somebody has of the other.
  Result<void> open_queues(const std::vector<bool>& receives, const std::vector<bool>& sends) {
    rx.resize(receives.size());
    tx.resize(sends.size());
    for (unsigned q = 0; q < rx.size(); ++q) {
      if (!receives[q]) continue;
      auto made = port->open_rx(q);
      if (!made) return std::move(made).error();
      rx[q] = std::move(*made);
    }
    for (unsigned q = 0; q < tx.size(); ++q) {
      if (!sends[q]) continue;
      auto made = port->open_tx(q);
      if (!made) return std::move(made).error();
      tx[q] = std::move(*made);
    }
    return {};
  }
};

namespace {

template <typename Queue>
std::vector<bool> which_are_open(const std::vector<std::shared_ptr<Queue>>& queues) {
  std::vector<bool> open;
  for (const auto& queue : queues) open.push_back(queue != nullptr);
  return open;
}

}  // namespace

LivePorts::Again::Again() = default;
LivePorts::Again::~Again() = default;

LivePorts::LivePorts() = default;
LivePorts::~LivePorts() = default;

class LivePorts::Source final : public BatchSource {
 public:
  Source(Open& open, std::vector<unsigned> queues) : open_(open), queues_(std::move(queues)) {}

  Result<void> read(Batch& batch) override {
    batch.clear();
    for (size_t tried = 0; tried < queues_.size(); ++tried) {
      RxQueue& queue = *open_.rx[queues_[next_]];
      next_ = next_ + 1 == queues_.size() ? 0 : next_ + 1;
      const uint32_t n = queue.poll(batch.rows(), batch.limit(), wall_ns());
      batch.append(n);
      if (n != 0) break;
    }
    return {};
  }
  bool live() const override { return true; }
  FramePool* lends() override { return &open_.rx[queues_[0]]->pool(); }
  bool wait_on(std::vector<pollfd>& fds) override {
    // The descriptors of an interface that is gone would wake for ever.
    if (open_.link == LinkState::kGone) return true;
    bool all = true;
    for (const unsigned queue : queues_) {
      const int fd = open_.rx[queue]->wait_fd();
      all &= fd >= 0;
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
    return all;
  }
  bool arm() override {
    for (const unsigned queue : queues_) {
      if (!open_.rx[queue]->arm()) return false;
    }
    return true;
  }

 private:
  Open& open_;
  const std::vector<unsigned> queues_;
  size_t next_ = 0;
};

class LivePorts::Sink final : public PacketSink {
 public:
  explicit Sink(Open& open) : open_(open) {
    while (queues_ < open.tx.size() && open.tx[queues_] != nullptr) ++queues_;
  }

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
    if (largest > open_.most_bytes) [[unlikely]]
      return {};
    const uint32_t sent = send({frames, n});
    return {sent, n - sent};
  }
  DropReason refusal() const override { return DropReason::kTxFull; }
  uint32_t most_bytes() const override { return open_.most_bytes; }
  const FramePool* takes() const override { return open_.tx[0]->pool(); }
  void use_queue(unsigned queue) override {
    if (queue % queues_ == queue_) return;
    kick();
    queue_ = queue % queues_;
  }
  void kick() override {
    if (!unsent_) return;
    open_.tx[queue_]->flush();
    unsent_ = false;
  }
  Result<void> settle() override {
    kick();
    drain_queues(open_.tx, open_.link);
    return {};
  }
  std::string path_of(Ending) const override { return {}; }

 private:
  uint32_t send(std::span<const TxFrame> frames) {
    TxQueue& queue = *open_.tx[queue_];
    unsent_ = true;
    const uint32_t sent = queue.send(frames);
    if (sent == frames.size()) return sent;
    // The ring is full: what has left makes room once.
    queue.flush();
    (void)queue.in_flight();
    return sent + queue.send(frames.subspan(sent));
  }

  Open& open_;
  size_t queues_ = 0;
  size_t queue_ = 0;
  bool unsent_ = false;
  std::vector<TxFrame> frames_;
};

LivePorts::Open* LivePorts::find(const std::string& name, bool receives) const {
  for (const auto& open : ports_) {
    if (open->port != nullptr && open->options.name == name &&
        (receives ? open->options.receives : open->options.sends))
      return open.get();
  }
  return nullptr;
}

LivePorts::Open& LivePorts::of(const PortSpec& spec, bool receives) const {
  Open* const found = find(spec.device.name, receives);
  SLUICE_CHECK(found != nullptr);
  return *found;
}

// What the graph's ports are to be, as far as they are not open.
std::vector<LivePorts::Wanted> LivePorts::wanted(const Router& router, const Plan& plan, Error& errors) const {
  struct Use {
    unsigned element;
    bool receives;
  };
  std::vector<Use> uses;
  for (const PlanSource& source : plan.sources) uses.push_back({source.element, true});
  for (const unsigned sink : plan.sinks) uses.push_back({sink, false});
  std::vector<Wanted> all;
  std::vector<std::string> received;
  for (const Use& use : uses) {
    const PortSpec spec = router.elements[use.element]->port();
    if (spec.type != PortSpec::Type::kDevice) continue;
    const auto wrong = [&](const std::string& why) { add_port_error(router, use.element, Error(why), errors); };
    auto options = options_of(spec, workers_);
    if (!options) {
      add_port_error(router, use.element, options.error(), errors);
      continue;
    }
    const std::string& name = options->name;
    if (use.receives) {
      if (std::find(received.begin(), received.end(), name) != received.end()) {
        wrong(fmt::format("'{}' is received by two elements", name));
      }
      received.push_back(name);
    }
    if (const Open* open = find(name, use.receives); open != nullptr) {
      const PortOptions& has = open->options;
      if (!spec.device.method.empty() && options->method != has.method &&
          spec.device.method != open->port->facts().method)
        wrong(fmt::format("'{}' is open by the method {}", name, open->port->facts().method));
      if (spec.device.queues > has.queues) wrong(fmt::format("'{}' is open with {} queues", name, has.queues));
      if (use.receives && options->promiscuous && !has.promiscuous)
        wrong(fmt::format("'{}' is open without promiscuous mode", name));
      if (use.receives && options->kernel_gets_own != has.kernel_gets_own)
        wrong(fmt::format("'{}' is open {} packets for the kernel", name, has.kernel_gets_own ? "with" : "without"));
      if (use.receives && options->hardware_timestamps != has.hardware_timestamps)
        wrong(fmt::format("'{}' is open with other timestamps", name));
      continue;
    }
    auto same = std::find_if(all.begin(), all.end(), [&](const Wanted& w) { return w.options.name == name; });
    if (same == all.end()) {
      all.push_back({*options, spec.device.queues == 0, use.element});
      same = all.end() - 1;
    } else if (!spec.device.method.empty() && same->options.method != options->method) {
      wrong(fmt::format("'{}' is opened by two methods", name));
    }
    PortOptions& both = same->options;
    both.receives |= use.receives;
    both.sends |= !use.receives;
    both.promiscuous |= options->promiscuous;
    both.kernel_gets_own &= options->kernel_gets_own;
    both.hardware_timestamps |= options->hardware_timestamps;
    both.queues = std::max(both.queues, options->queues);
    same->all_queues &= spec.device.queues == 0;
  }
  return all;
}

void LivePorts::open_more(const Router& router, const Plan& plan, Error& errors) {
  std::vector<Wanted> all;
  {
    const std::lock_guard lock(mutex_);
    all = wanted(router, plan, errors);
  }
  if (all.empty() || !errors.diagnostics.empty()) return;
  // What rings of all queues hold, and as much again on its way and in caches. The ports that are opened together share
  // a pool: frames go from one to the other without a copy.
  uint32_t queues = 0, mtu = 0;
  for (const Wanted& port : all) {
    queues += port.options.queues;
    if (const uint32_t its = mtu_of_interface(port.options.name); its <= kMostMtu) mtu = std::max(mtu, its);
  }
  FrameShape shape = shape_for_mtu(mtu);
  shape.chunks = std::max(shape.chunks, queues * 8192u);
  auto pool = MappedFramePool::create(shape);
  if (!pool) return add_port_error(router, all[0].element, pool.error(), errors);
  const std::shared_ptr<FramePool> shared = std::move(*pool);
  // Nobody who looks waits for interfaces that take their time.
  std::vector<std::unique_ptr<Port>> made;
  for (const Wanted& wants : all) {
    auto port = open_port(wants.options, shared);
    if (!port) add_port_error(router, wants.element, port.error(), errors);
    made.push_back(port ? std::move(*port) : nullptr);
  }
  if (!errors.diagnostics.empty()) return;
  const std::lock_guard lock(mutex_);
  pools_.push_back(shared);
  for (size_t w = 0; w < all.size(); ++w) {
    const Wanted& wants = all[w];
    // One that was closed goes on counting.
    auto place = std::find_if(ports_.begin(), ports_.end(), [&](const auto& open) {
      return open->port == nullptr && open->options.name == wants.options.name;
    });
    if (place == ports_.end()) place = ports_.insert(place, std::make_unique<Open>());
    (*place)->options = wants.options;
    (*place)->all_queues = wants.all_queues;
    (*place)->pool = shared;
    (*place)->left.clear();
    (*place)->opened(std::move(made[w]));
  }
}

LivePorts::Closing LivePorts::close_all_but(const Router& router, const Plan& plan) {
  const std::lock_guard lock(mutex_);
  const auto names = [&](const Open& open, unsigned element, bool receives) {
    const PortSpec spec = router.elements[element]->port();
    return spec.type == PortSpec::Type::kDevice && find(spec.device.name, receives) == &open;
  };
  Closing closing;
  closing.ports_ = this;
  for (auto it = ports_.begin(); it != ports_.end();) {
    Open& open = **it;
    const bool received = std::any_of(plan.sources.begin(), plan.sources.end(),
                                      [&](const auto& s) { return names(open, s.element, true); });
    const bool named = received || std::any_of(plan.sinks.begin(), plan.sinks.end(),
                                               [&](unsigned s) { return names(open, s, false); });
    open.used |= named;
    const auto is_open = [](const auto& queue) { return queue != nullptr; };
    if (open.port == nullptr || (named && (received || std::none_of(open.rx.begin(), open.rx.end(), is_open)))) {
      ++it;
      continue;
    }
    Closing::One& one = closing.closing_.emplace_back();
    one.open = &open;
    open.rx_before = open.rx_counters();
    std::swap(one.rx, open.rx);
    if (named) {
      open.rx.resize(one.rx.size());
      open.left.resize(one.rx.size());
      for (size_t q = 0; q < one.rx.size(); ++q) open.left[q] = open.left[q] || one.rx[q] != nullptr;
      ++it;
      continue;
    }
    open.tx_before = open.tx_counters();
    open.tx_before.resize(std::max(open.tx_before.size(), open.tx.size()));
    std::swap(one.tx, open.tx);
    open.last = open.port->facts();
    one.port = std::move(open.port);
    one.pool = std::move(open.pool);
    if (open.used) {
      ++it;
    } else {
      // Of a graph that could not follow: nothing of it is reported.
      closing.unused_.push_back(std::move(*it));
      it = ports_.erase(it);
    }
  }
  return closing;
}

// Those that nobody uses any more.
void LivePorts::drop_pools() {
  const std::lock_guard lock(mutex_);
  // The first one may be pinned by a device.
  for (size_t p = pools_.size(); p-- > 1;) {
    if (pools_[p].use_count() == 1 && pools_[p]->out() == 0) pools_.erase(pools_.begin() + static_cast<ptrdiff_t>(p));
  }
}

std::unique_ptr<LivePorts> LivePorts::open(const Router& router, const Plan& plan, unsigned workers, Error& errors) {
  if (!any(router)) return nullptr;
  auto live = std::make_unique<LivePorts>();
  live->workers_ = workers;
  live->open_more(router, plan, errors);
  if (live->ports_.empty() && errors.diagnostics.empty()) return nullptr;
  for (const auto& open : live->ports_) open->used = true;
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

unsigned LivePorts::most_rx_queues() const {
  unsigned most = 1;
  for (const auto& open : ports_) most = std::max(most, queues_of(*open, open->port->facts().rx_queues));
  return most;
}
unsigned LivePorts::rx_queues(const Open& open) {
  return queues_of(open, open.port->facts().rx_queues);
}
unsigned LivePorts::rx_queues(const PortSpec& spec) const {
  const std::lock_guard lock(mutex_);
  return rx_queues(of(spec, true));
}

namespace {

// Frames that a ring holds, as many as it may hold.
void discard(RxQueue& queue) {
  constexpr uint32_t kAtOnce = 256, kMost = 65'536;
  std::vector<uint8_t*> frame(kAtOnce);
  std::vector<Extent> extent(kAtOnce);
  std::vector<uint64_t> timestamp_ns(kAtOnce);
  for (uint32_t all = 0; all < kMost;) {
    const uint32_t n = queue.poll({frame.data(), extent.data(), timestamp_ns.data()}, kAtOnce, wall_ns());
    if (n == 0) return;
    queue.pool().give({frame.data(), n});
    all += n;
  }
}

}  // namespace

Result<std::unique_ptr<BatchSource>> LivePorts::open_source(Open& open, std::vector<unsigned> queues) {
  for (const unsigned queue : queues) {
    if (open.rx[queue] != nullptr) continue;
    auto rx = open.port->open_rx(queue);
    if (!rx) return std::move(rx).error();
    if (queue < open.left.size() && open.left[queue]) {
      open.left[queue] = false;
      // What came while nobody received is nobody's, and not counted.
      discard(**rx);
      open.rx_before.resize(std::max<size_t>(open.rx_before.size(), queue + 1));
      add(open.rx_before[queue], (*rx)->counters(), true);
    }
    open.rx[queue] = std::move(*rx);
  }
  return std::unique_ptr<BatchSource>(std::make_unique<Source>(open, std::move(queues)));
}
Result<std::unique_ptr<BatchSource>> LivePorts::open_source(const PortSpec& spec, unsigned queue) {
  const std::lock_guard lock(mutex_);
  return open_source(of(spec, true), {queue});
}
Result<std::unique_ptr<BatchSource>> LivePorts::open_source(const PortSpec& spec) {
  const std::lock_guard lock(mutex_);
  Open& open = of(spec, true);
  std::vector<unsigned> queues(rx_queues(open));
  std::iota(queues.begin(), queues.end(), 0u);
  return open_source(open, std::move(queues));
}

Result<std::unique_ptr<PacketSink>> LivePorts::open_sink(const PortSpec& spec) {
  const std::lock_guard lock(mutex_);
  Open& open = of(spec, false);
  // Several sinks of one port share its queues: egress has one thread at a time.
  if (open.tx[0] == nullptr) {
    const unsigned queues = std::max(1u, queues_of(open, open.port->facts().tx_queues));
    for (unsigned q = 0; q < queues; ++q) {
      auto tx = open.port->open_tx(q);
      if (!tx) return std::move(tx).error();
      open.tx[q] = std::move(*tx);
    }
  }
  return std::unique_ptr<PacketSink>(std::make_unique<Sink>(open));
}

std::string LivePorts::name_of(int ifindex) const {
  const std::lock_guard lock(mutex_);
  for (const auto& open : ports_) {
    if (ifindex != 0 && open->port != nullptr && open->ifindex == ifindex) return open->options.name;
  }
  return {};
}
void LivePorts::link_changed(int ifindex, LinkState state) {
  const std::lock_guard lock(mutex_);
  for (const auto& open : ports_) {
    if (ifindex == 0 || open->port == nullptr || open->ifindex != ifindex || open->link == state) continue;
    open->link = state;
    if (state == LinkState::kGone) open->port->interface_gone();
    open->link_changes.fetch_add(1, std::memory_order_relaxed);
  }
}
Result<void> LivePorts::addresses_changed() {
  const std::lock_guard lock(mutex_);
  Result<void> result;
  for (const auto& open : ports_) {
    if (open->port == nullptr || open->link == LinkState::kGone) continue;
    if (auto done = open->port->addresses_changed(); !done && result.ok()) result = std::move(done);
  }
  return result;
}

Result<std::unique_ptr<LivePorts::Again>> LivePorts::open_again(const std::string& name) {
  struct Gone {
    Open* open;
    Port* port;
    PortOptions options;
    bool all_queues;
    std::shared_ptr<FramePool> pool;
    std::vector<bool> receives, sends;
  };
  std::vector<Gone> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& open : ports_) {
      if (open->port == nullptr || open->link != LinkState::kGone) continue;
      // An interface has other names beside the kernel's.
      if (open->options.name != name && open->last.name != name) continue;
      PortOptions options = open->options;
      options.name = name;
      gone.push_back({open.get(), open->port.get(), options, open->all_queues, open->pool, which_are_open(open->rx),
                      which_are_open(open->tx)});
    }
  }
  if (gone.empty()) return std::unique_ptr<Again>();
  auto again = std::make_unique<Again>();
  for (const Gone& one : gone) {
    const unsigned queues = queues_of_interface(name);
    const bool by_xdp = one.options.method == PortMethod::kAuto || one.options.method == PortMethod::kAfXdp;
    if (one.all_queues && by_xdp && queues > one.options.queues) {
      return Error(fmt::format("it has {} queues now, and the run receives by {}", queues, one.options.queues),
                   "start the run again");
    }
    auto port = open_port(one.options, one.pool);
    if (!port) return std::move(port).error();
    again->ports_.push_back({one.open, one.port, std::move(*port), {}, {}});
    Again::One& made = again->ports_.back();
    if (auto opened = made.open_queues(one.receives, one.sends); !opened) return std::move(opened).error();
    // What nobody receives is the kernel's, which gets it back with the queue.
    if (one.options.receives && std::find(one.receives.begin(), one.receives.end(), true) == one.receives.end())
      (void)made.port->open_rx(0);
  }
  return again;
}

bool LivePorts::exchange(Again& again) {
  const std::lock_guard lock(mutex_);
  // Another graph may have closed it meanwhile, or use other queues of it.
  const bool same = std::all_of(again.ports_.begin(), again.ports_.end(), [&](const Again::One& one) {
    const auto is_there = [&](const auto& open) { return open.get() == one.open; };
    return std::any_of(ports_.begin(), ports_.end(), is_there) && one.open->port.get() == one.before &&
           one.open->link == LinkState::kGone && which_are_open(one.open->rx) == which_are_open(one.rx) &&
           which_are_open(one.open->tx) == which_are_open(one.tx);
  });
  if (!same) return false;
  for (Again::One& one : again.ports_) {
    Open& open = *one.open;
    // What has not left with it never will: that is counted now.
    for (const auto& queue : open.tx) {
      if (queue != nullptr) queue->flush();
    }
    open.rx_before = open.rx_counters();
    open.tx_before = open.tx_counters();
    open.rx.swap(one.rx);
    open.tx.swap(one.tx);
    std::unique_ptr<Port> before = std::move(open.port);
    open.opened(std::move(one.port));
    one.port = std::move(before);
  }
  return true;
}

std::vector<LivePortReport> LivePorts::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<LivePortReport> reports;
  for (const auto& open : ports_) {
    LivePortReport& report = reports.emplace_back();
    report.closed = open->port == nullptr;
    report.facts = report.closed ? open->last : open->port->facts();
    report.link = open->link;
    report.link_changes = open->link_changes;
    report.rx = open->rx_counters();
    report.tx = open->tx_counters();
  }
  return reports;
}

}  // namespace sluice
