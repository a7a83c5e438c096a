// host only
// Devices and channels: keys of one table's lookups go to a device and come back as answers, in the order of the keys.
#include "api/device.h"

#include <algorithm>
#include <array>

#include "api/border.h"
#include "api/classify.h"
#include "exec/device/channel.h"
#include "graph/click/parser.h"

namespace sluice::api {

Result<std::unique_ptr<LookupGraph>> LookupGraph::make(const std::string& element) {
  const std::string text = "InfiniteSource -> IPInput -> lookup :: " + element + " -> Discard; lookup[1] -> Discard;";
  auto parsed = parse_click(text, "lookup", {});
  if (!parsed) return std::move(parsed).error();
  auto router = build_router(*parsed, element_classes(), text);
  if (!router) return std::move(router).error();
  auto made = std::make_unique<LookupGraph>();
  made->router = std::move(*router);
  auto plan = make_plan(made->router);
  if (!plan) return std::move(plan).error();
  made->plan = std::move(*plan);
  made->offloads = plan_offloads(made->plan, made->router, RecordChoice::kKey);
  while (made->node < made->offloads.size() && !made->offloads[made->node].on_device) ++made->node;
  if (made->node == made->offloads.size()) return Error("'" + element + "' is not a lookup by key");
  return made;
}

Result<std::shared_ptr<Resident>> LookupGraph::bring(Device& device, TableSet tables,
                                                     std::unique_ptr<Snapshot>& snapshot) const {
  auto bound = bind_plan(plan, router, std::move(tables));
  if (!bound) return std::move(bound).error();
  auto resident = make_resident(device, **bound, plan, offloads);
  if (!resident) return std::move(resident).error();
  snapshot = std::move(*bound);
  return resident;
}

namespace {

// What one record can say of a key: the rest goes whole, in three.
bool fits_one_record(const FlowKey& key) {
  if (!fits_key4(key)) return false;
  FlowKey back = unpack_key4(pack_key4(key));
  back.reserved = key.reserved;
  return back == key;
}

}  // namespace

// Of one thread.
class KeyChannel {
 public:
  struct Answer {
    uint32_t rule_or_hop;
    uint32_t action, mark;
    uint32_t number;  // of the rule, by which it counts
  };

  KeyChannel(std::shared_ptr<Device> device, const sluice_channel_options& o)
      : device_(std::move(device)), burst_(o.burst != 0 ? o.burst : 256), flights_(o.flights != 0 ? o.flights : 4) {
    channel_.mode = o.mode == SLUICE_PERSISTENT ? DeviceMode::kPersistent
                    : o.mode == SLUICE_ADAPTIVE ? DeviceMode::kAdaptive
                                                : DeviceMode::kLaunch;
    channel_.records = std::max<uint32_t>(burst_, 32);
    channel_.flights = flights_;
  }
  virtual ~KeyChannel() = default;

  // Errors: those of the device.
  Result<void> open(const std::string& element) {
    bursts_.resize(flights_);
    for (Burst& b : bursts_) {
      b.keys.resize(burst_);
      b.answers.resize(burst_);
      for (auto& at : b.at) at.reserve(burst_);
    }
    if (device_ != nullptr) {
      auto graph = LookupGraph::make(element);
      if (!graph) return std::move(graph).error();
      graph_ = std::move(*graph);
      for (const RecordKind kind : {RecordKind::kKey4, RecordKind::kKey6}) {
        RecordShape shape;
        shape.kind = kind;
        auto channel = Channel::create(*device_, shape, channel_);
        if (!channel) return std::move(channel).error();
        ways_[kind == RecordKind::kKey4 ? 0 : 1] = std::move(*channel);
      }
    }
    return update();
  }

  Result<void> update() {
    if (pending() != 0) return Error(std::to_string(pending()) + " keys are pending", "fetch their answers first");
    reap();
    if (landed_ != made_) return Error("the device is not done with what was settled without it", "try it again later");
    return take_newest();
  }

  size_t submit(const FlowKey* keys, size_t n) {
    if (n == 0 || n > burst_ || made_ - done_ == flights_) return 0;
    reap();
    if (made_ - landed_ == flights_) return 0;
    Burst& b = bursts_[made_ % flights_];
    b.count = static_cast<uint32_t>(n);
    b.fetched = 0;
    b.ready = b.settled = false;
    b.used = {false, false};
    std::copy_n(keys, n, b.keys.begin());
    if (device_ != nullptr && failure_.empty()) send(b);
    ++made_;
    pending_ += n;
    return n;
  }

  // The oldest answers, at most n of them, for f(i, answer).
  template <typename F>
  size_t poll(size_t n, F&& f) {
    size_t given = 0;
    while (given < n && done_ != made_) {
      Burst& b = bursts_[done_ % flights_];
      if (!b.ready && !fetch(done_)) break;
      const size_t some = std::min<size_t>(n - given, b.count - b.fetched);
      for (size_t i = 0; i < some; ++i) f(given + i, b.answers[b.fetched + i]);
      count(b.keys.data() + b.fetched, b.answers.data() + b.fetched, some);
      given += some;
      b.fetched += static_cast<uint32_t>(some);
      if (b.fetched == b.count) ++done_;
    }
    pending_ -= given;
    return given;
  }
  // Answers on the host what is not answered yet.
  void settle() {
    for (uint64_t at = done_; at != made_; ++at) {
      Burst& b = bursts_[at % flights_];
      if (b.ready || fetch(at)) continue;
      on_host(b.keys.data(), b.answers.data(), b.count);
      b.ready = b.settled = true;
    }
  }
  size_t pending() const { return pending_; }
  uint64_t switches() const {
    uint64_t sum = 0;
    for (const auto& way : ways_) sum += way != nullptr ? way->stats().switches : 0;
    return sum;
  }
  uint64_t generation() const { return generation_; }
  const std::string& failure() const { return failure_; }

  // Waits for the device, at most a second. False: it is not done, and may still read and write what this has.
  bool stop() {
    bool stopped = true;
    for (auto& way : ways_) {
      if (way != nullptr) stopped &= way->stop(stopped ? kStopLimitNs : 0).ok();
    }
    return stopped;
  }

 protected:
  // Looks up in the generation of the channel.
  virtual void on_host(const FlowKey* keys, Answer* answers, size_t n) const = 0;
  // Of a device's result.
  virtual Answer answer_of(const KeyResult& result) const = 0;
  // Answers that were fetched.
  virtual void count(const FlowKey* /*keys*/, const Answer* /*answers*/, size_t /*n*/) const {}
  // Takes the newest generation of the table, and load()s its image. No error: it is in use.
  virtual Result<void> take_newest() = 0;

  // Puts the tables into the device's memory.
  Result<void> load(TableSet tables, uint64_t generation) {
    if (device_ != nullptr && failure_.empty()) {
      std::unique_ptr<Snapshot> snapshot;
      auto resident = graph_->bring(*device_, std::move(tables), snapshot);
      if (!resident) return std::move(resident).error();
      const uint32_t parity = parity_ ^ 1;
      (*resident)->parity = parity;
      for (auto& way : ways_) {
        if (auto ok = way->install((*resident)->programs[graph_->node], parity); !ok) return ok;
      }
      // Nothing is under way: the generation before can go.
      parity_ = parity;
      resident_ = std::move(*resident);
      snapshot_ = std::move(snapshot);
    }
    generation_ = generation;
    return {};
  }

 private:
  struct Burst {
    std::vector<FlowKey> keys;
    std::vector<Answer> answers;
    uint32_t count = 0, fetched = 0;
    bool ready = false;
    bool settled = false;  // without the device, which may still be at it
    std::array<Flight, 2> flight;
    std::array<bool, 2> used{};
    std::array<std::vector<uint32_t>, 2> at;  // which keys
  };

  // What finds no room on its way, or is no IP packet, stays for the host.
  void send(Burst& b) {
    for (auto& at : b.at) at.clear();
    for (uint32_t i = 0; i < b.count; ++i) {
      const FlowKey& key = b.keys[i];
      if (key.family == 4 || key.family == 6) b.at[fits_one_record(key) ? 0 : 1].push_back(i);
    }
    for (unsigned w = 0; w < 2; ++w) {
      if (b.at[w].empty()) continue;
      b.used[w] = ways_[w]->open(b.flight[w], static_cast<uint32_t>(b.at[w].size()), parity_);
      if (!b.used[w]) {
        b.at[w].clear();
        continue;
      }
      for (const uint32_t i : b.at[w]) b.flight[w].put_key(b.keys[i]);
      ways_[w]->submit(b.flight[w], resident_->programs[graph_->node]);
    }
  }

  // Whether the device is done with the burst, or will be no more.
  bool landed(Burst& b) {
    for (unsigned w = 0; w < 2 && failure_.empty(); ++w) {
      if (!b.used[w]) {
        // It took nothing where it had failed before.
        if (ways_[w] != nullptr && ways_[w]->failed()) failure_ = ways_[w]->why();
        continue;
      }
      ways_[w]->poll(b.flight[w]);
      if (b.flight[w].failed || ways_[w]->failed()) {
        // What is still under way may be answered any time, where nobody looks.
        failure_ = ways_[w]->why();
      } else if (b.flight[w].ready < b.flight[w].count) {
        return false;
      }
    }
    return true;
  }

  // Flights are closed in their order: those that were settled, too.
  void reap() {
    for (; landed_ != made_; ++landed_) {
      Burst& b = bursts_[landed_ % flights_];
      if (!b.settled || !landed(b)) return;
      for (unsigned w = 0; w < 2 && failure_.empty(); ++w) {
        if (b.used[w]) ways_[w]->close(b.flight[w]);
      }
    }
  }

  // Whether all answers of a burst are there: those before it are fetched or settled.
  bool fetch(uint64_t at) {
    reap();
    Burst& b = bursts_[at % flights_];
    if (landed_ != at || !landed(b)) return false;
    // The host's answers first: those of the device, which are most, go over them.
    const bool whole = b.at[0].size() + b.at[1].size() == b.count && failure_.empty() && (b.used[0] || b.used[1]);
    if (!whole) on_host(b.keys.data(), b.answers.data(), b.count);
    for (unsigned w = 0; w < 2; ++w) {
      if (!b.used[w] || !failure_.empty()) continue;
      for (uint32_t i = 0; i < b.flight[w].count; ++i) {
        const KeyResult result = unpack_result(b.flight[w].key_result(i));
        const uint32_t k = b.at[w][i];
        // The host finds marks, too.
        if (result.steps.redo || result.marked) {
          on_host(&b.keys[k], &b.answers[k], 1);
        } else {
          b.answers[k] = answer_of(result);
        }
      }
      ways_[w]->close(b.flight[w]);
    }
    b.ready = true;
    ++landed_;
    return true;
  }

  std::shared_ptr<Device> device_;  // outlives the channels
  const uint32_t burst_, flights_;
  ChannelOptions channel_;
  std::unique_ptr<LookupGraph> graph_;
  std::unique_ptr<Snapshot> snapshot_;
  std::shared_ptr<Resident> resident_;
  std::array<std::unique_ptr<Channel>, 2> ways_;  // one record a key; three
  uint32_t parity_ = 0;
  std::vector<Burst> bursts_;
  uint64_t made_ = 0, done_ = 0;  // bursts that were taken, and whose answers were all fetched
  uint64_t landed_ = 0;           // that the device is done with
  uint64_t generation_ = 0;
  size_t pending_ = 0;
  std::string failure_;
};

namespace {

class AclChannel final : public KeyChannel {
 public:
  AclChannel(std::shared_ptr<Device> device, const sluice_acl& acl, const sluice_channel_options& options)
      : KeyChannel(std::move(device), options), table_(acl.table), seats_(acl.seats) {}

 private:
  Result<void> take_newest() override {
    auto [opened, generation] = table_->hold();
    TableSet tables;
    tables.acls[AclTable::name()] = opened->image;
    if (auto ok = load(std::move(tables), generation); !ok) return ok;
    opened_ = std::move(opened);
    return {};
  }
  Answer answer(uint32_t number) const {
    const AclAction action = opened_->actions.action(number);
    return {opened_->position(number), static_cast<uint32_t>(action.verb), action.mark, number};
  }
  void count(const FlowKey* keys, const Answer* answers, size_t n) const override {
    const Counting counting(seats_.get(), *opened_);
    if (!counting) return;
    for (size_t i = 0; i < n; ++i) counting.add(answers[i].number, keys[i].reserved);
  }
  Answer answer_of(const KeyResult& result) const override {
    return answer(result.rule <= opened_->rules.size() ? result.rule : 0);
  }
  void on_host(const FlowKey* keys, Answer* answers, size_t n) const override {
    std::array<const FlowKey*, kAclBurst> some;
    std::array<uint32_t, kAclBurst> rules;
    for (size_t at = 0; at < n; at += kAclBurst) {
      const size_t burst = std::min(n - at, kAclBurst);
      for (size_t i = 0; i < burst; ++i) some[i] = keys + at + i;
      opened_->view.lookup_burst(some.data(), rules.data(), burst);
      for (size_t i = 0; i < burst; ++i)
        answers[at + i] = answer(some[i]->family == 4 || some[i]->family == 6 ? rules[i] : 0);
    }
  }

  std::shared_ptr<AclTable> table_;
  std::shared_ptr<CountingSeat[]> seats_;
  std::shared_ptr<const OpenedAcl> opened_;
};

class FibChannel final : public KeyChannel {
 public:
  FibChannel(std::shared_ptr<Device> device, std::shared_ptr<FibTable> table, const sluice_channel_options& options)
      : KeyChannel(std::move(device), options), table_(std::move(table)) {}

 private:
  Result<void> take_newest() override {
    auto [opened, generation] = table_->hold();
    TableSet tables;
    tables.routes[FibTable::name()] = opened->image;
    if (auto ok = load(std::move(tables), generation); !ok) return ok;
    opened_ = std::move(opened);
    return {};
  }
  Answer answer_of(const KeyResult& result) const override { return {result.next_hop, 0, 0, 0}; }
  void on_host(const FlowKey* keys, Answer* answers, size_t n) const override {
    for (size_t i = 0; i < n; ++i) {
      answers[i] = {};
      if (keys[i].family == 4) {
        const auto address = static_cast<uint32_t>(keys[i].dst_lo);
        opened_->lookup4(&address, &answers[i].rule_or_hop, 1);
      } else if (keys[i].family == 6) {
        opened_->lookup6(&keys[i].dst_hi, &keys[i].dst_lo, &answers[i].rule_or_hop, 1);
      }
    }
  }

  std::shared_ptr<FibTable> table_;
  std::shared_ptr<const OpenedFib> opened_;
};

Result<sluice_channel_options> checked(const sluice_device* device, const void* table,
                                       const sluice_channel_options* options) {
  if (device == nullptr || table == nullptr) return bad_argument("the device or the table is NULL");
  auto o = options_or(options, sluice_channel_options SLUICE_CHANNEL_OPTIONS_INIT);
  if (!o) return o;
  if (o->mode > SLUICE_ADAPTIVE) return bad_argument("the option `mode` is no mode");
  if (o->burst > 8192) return bad_argument("the option `burst` is more than 8192");
  if (o->flights > 16) return bad_argument("the option `flights` is more than 16");
  return o;
}

}  // namespace
}  // namespace sluice::api

struct sluice_channel {
  std::unique_ptr<sluice::api::KeyChannel> keys;
  bool routes = false;
};

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_device* sluice_device_open(const char* name, sluice_errors** errors) {
  return guarded<sluice_device*>(errors, nullptr, [&]() -> Result<sluice_device*> {
    if (name == nullptr) return bad_argument("the device's name is NULL");
    auto device = std::make_unique<sluice_device>();
    device->name = "cpu";
    const auto kept = keep_current_device();
    if (std::string_view(name) != "cpu") {
      auto opened = open_device(name);
      if (!opened) return std::move(opened).error();
      device->device = std::move(*opened);
      device->name = device->device->info().name;
    }
    return device.release();
  });
}

void sluice_device_free(sluice_device* device) {
  quiet(0, [&] { return delete device, 0; });
}

const char* sluice_device_name(const sluice_device* device) {
  return device == nullptr ? "" : device->name.c_str();
}

sluice_channel* sluice_channel_open_acl(sluice_device* device, const sluice_acl* acl,
                                        const sluice_channel_options* options, sluice_errors** errors) {
  return guarded<sluice_channel*>(errors, nullptr, [&]() -> Result<sluice_channel*> {
    auto o = checked(device, acl, options);
    if (!o) return std::move(o).error();
    auto channel = std::make_unique<sluice_channel>();
    channel->keys = std::make_unique<AclChannel>(device->device, *acl, *o);
    if (auto ok = channel->keys->open(LookupGraph::kAcl); !ok) return std::move(ok).error();
    return channel.release();
  });
}

sluice_channel* sluice_channel_open_fib(sluice_device* device, const sluice_fib* fib,
                                        const sluice_channel_options* options, sluice_errors** errors) {
  return guarded<sluice_channel*>(errors, nullptr, [&]() -> Result<sluice_channel*> {
    auto o = checked(device, fib, options);
    if (!o) return std::move(o).error();
    auto channel = std::make_unique<sluice_channel>();
    channel->routes = true;
    channel->keys = std::make_unique<FibChannel>(device->device, fib->table, *o);
    if (auto ok = channel->keys->open(LookupGraph::kFib); !ok) return std::move(ok).error();
    return channel.release();
  });
}

void sluice_channel_free(sluice_channel* channel) {
  if (channel == nullptr) return;
  quiet(0, [&] {
    // A device that does not stop may still write there: the memory stays.
    if (!channel->keys->stop()) (void)channel->keys.release();
    delete channel;
    return 0;
  });
}

size_t sluice_channel_submit(sluice_channel* channel, const sluice_key* keys, size_t n) {
  if (channel == nullptr || keys == nullptr) return 0;
  return quiet(size_t{0}, [&] { return channel->keys->submit(reinterpret_cast<const FlowKey*>(keys), n); });
}

size_t sluice_channel_poll(sluice_channel* channel, sluice_match* matches, uint32_t* next_hops, size_t n) {
  if (channel == nullptr || (channel->routes ? next_hops == nullptr : matches == nullptr)) return 0;
  return quiet(size_t{0}, [&] {
    return channel->keys->poll(n, [&](size_t i, const KeyChannel::Answer& answer) {
      if (channel->routes) {
        next_hops[i] = answer.rule_or_hop;
      } else {
        matches[i] = {answer.rule_or_hop, answer.action, answer.mark};
      }
    });
  });
}

size_t sluice_channel_pending(const sluice_channel* channel) {
  return channel == nullptr ? 0 : channel->keys->pending();
}

void sluice_channel_settle(sluice_channel* channel) {
  if (channel == nullptr) return;
  quiet(0, [&] { return channel->keys->settle(), 0; });
}

uint64_t sluice_channel_switches(const sluice_channel* channel) {
  return channel == nullptr ? 0 : channel->keys->switches();
}

int sluice_channel_update(sluice_channel* channel, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (channel == nullptr) return bad_argument("the channel is NULL");
    if (auto ok = channel->keys->update(); !ok) return std::move(ok).error();
    return 0;
  });
}

uint64_t sluice_channel_generation(const sluice_channel* channel) {
  return channel == nullptr ? 0 : channel->keys->generation();
}

const char* sluice_channel_failure(const sluice_channel* channel) {
  return channel == nullptr ? "" : channel->keys->failure().c_str();
}

}  // extern "C"
