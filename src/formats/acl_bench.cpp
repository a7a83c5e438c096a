// Lookup and build rates of the ACL algorithms. Sets: the published ClassBench ones where they are at hand, and one
// made here. Packets are drawn uniformly from the rules' regions, the worst case for caches. Before anything is timed,
// a sample is checked against the oracle. With SLUICE_PEERS, DPDK's rte_acl runs on the same keys in the same program.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/prefetch.h"
#include "base/test_data.h"
#include "formats/classbench.h"
#include "memory/buffer.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/patch.h"
#include "tables/acl/shadow.h"
#include "tables/acl/tuple_merge_layout.h"
#include "tables/acl/tuple_space_layout.h"
#include "tables/acl/work.h"

#if defined(SLUICE_PEERS)
#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_vect.h>
#endif

namespace sluice {
namespace {

constexpr size_t kKeys = 1'000'000;

// On huge pages where the kernel grants them: the keys of every contender, so that the walk over them costs all alike.
template <typename T>
class Huge {
 public:
  void resize(size_t n) {
    auto buffer = Buffer::allocate(n * sizeof(T));
    if (!buffer) std::abort();
    buffer_ = std::move(*buffer);
    count_ = n;
  }
  T* begin() { return reinterpret_cast<T*>(buffer_.data()); }
  T* end() { return begin() + count_; }
  T& operator[](size_t i) { return begin()[i]; }

 private:
  Buffer buffer_;
  size_t count_ = 0;
};

struct Workload {
  std::string text;
  RuleSet set;
  Huge<FlowKey> keys;
  std::vector<const FlowKey*> pointers;
};

// The keys of the next burst, for every contender alike: where packets come from a port or a parser, their keys are in
// the cache, and a stream of a million of them would measure memory instead.
template <typename Key>
void prefetch_burst(const Key* const* keys) {
  constexpr size_t kBytes = std::is_same_v<Key, FlowKey> ? sizeof(FlowKey) : 20;
  for (size_t i = 0; i < 32; ++i) {
    prefetch_read(keys[i]);
    prefetch_read(reinterpret_cast<const std::byte*>(keys[i]) + kBytes - 1);
  }
}

// Where the burst after `at` begins; another one follows each.
size_t next_burst(size_t at) {
  return at + 96 <= kKeys ? at + 32 : 0;
}

std::string unpack(const std::string& path) {
  std::string out;
  FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[65536];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

// `count` rules of one mask each, for UDP and a destination port of its own, and packets of which all match the first
// rule, the last one, or none: what the DGX Spark study looks up, as `sluice bench latency` has it.
void make_frames(Workload& w, unsigned count, const std::string& match) {
  const auto address = [](uint32_t a) {
    return std::to_string(a >> 24) + "." + std::to_string(a >> 16 & 255) + "." + std::to_string(a >> 8 & 255) + "." +
           std::to_string(a & 255) + "/32";
  };
  const auto src = [](unsigned i) { return 10u << 24 | i << 12; };
  const auto dst = [](unsigned i) { return 20u << 24 | (i * 7 & 0xfff) << 12; };
  for (unsigned i = 0; i < count; ++i) {
    const std::string port = std::to_string(1000 + i);
    w.text += "@" + address(src(i)) + "\t" + address(dst(i)) + "\t0 : 65535\t" + port + " : " + port +
              "\t0x11/0xFF\t0x0000/0x0000\n";
  }
  if (auto set = parse_classbench(w.text, "frames")) w.set = std::move(*set);
  const unsigned rule = match == "last" ? count - 1 : 0;
  w.keys.resize(kKeys);
  for (size_t i = 0; i < kKeys; ++i) {
    FlowKey key;
    key.family = 4;
    key.src_lo = src(rule);
    key.dst_lo = dst(rule);
    key.src_port = static_cast<uint16_t>(i);
    key.dst_port = match == "none" ? 1 : static_cast<uint16_t>(1000 + rule);
    key.protocol = 17;
    key.bits = FlowKey::kHasPorts;
    w.keys[i] = key;
  }
}

// Null when the set is not at hand. "made_N": N rules of both families from a fixed seed. "frame_N_MATCH": make_frames.
Workload* workload(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Workload>> all;
  auto& w = all[name];
  if (w) return w.get();
  auto fresh = std::make_unique<Workload>();
  acl_test::Random random(5);
  if (name.starts_with("frame_")) {
    make_frames(*fresh, static_cast<unsigned>(std::stoul(name.substr(6))), name.substr(name.rfind('_') + 1));
    if (fresh->set.rules.empty()) return nullptr;
  } else if (name.starts_with("made_")) {
    fresh->set = acl_test::random_set(random, std::stoul(name.substr(5)));
  } else {
    const auto path = test_data(("acl/" + name + ".xz").c_str());
    if (!path) return nullptr;
    fresh->text = unpack(*path);
    auto set = parse_classbench(fresh->text, name);
    if (!set || set->rules.empty()) return nullptr;
    fresh->set = std::move(*set);
  }
  if (!name.starts_with("frame_")) fresh->keys.resize(kKeys);
  for (FlowKey& key : fresh->keys) {
    if (name.starts_with("frame_")) break;
    key = acl_test::key_in(fresh->set.rules[acl_test::below(random, fresh->set.rules.size())], random);
    key.bits |= FlowKey::kHasPorts;
  }
  for (const FlowKey& key : fresh->keys) fresh->pointers.push_back(&key);
  w = std::move(fresh);
  return w.get();
}

void parse(benchmark::State& state, const std::string& name) {
  const Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  for (auto _ : state) benchmark::DoNotOptimize(parse_classbench(w->text, name));
  state.counters["rules"] = static_cast<double>(w->set.rules.size());
}

template <typename Algorithm>
void build(benchmark::State& state, const std::string& name) {
  const Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  size_t bytes = 0;
  for (auto _ : state) {
    auto image = Algorithm::build(w->set);
    if (!image) return state.SkipWithError("the build failed");
    bytes = image->bytes().size();
  }
  state.counters["bytes_per_rule"] = static_cast<double>(bytes) / static_cast<double>(w->set.rules.size());
}

enum class How { kBurst, kBurstScalar, kBurstAvx2, kSingle };

template <typename Algorithm>
void lookup(benchmark::State& state, const std::string& name, How how) {
  Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  auto image = Algorithm::build(w->set);
  auto oracle_image = LinearAcl::build(w->set);
  if (!image || !oracle_image) return state.SkipWithError("the build failed");
  using View = typename Algorithm::View;
  const auto view = View::open(*image);
  const auto oracle = LinearView::open(*oracle_image);
  if (!view || !oracle) return state.SkipWithError("the image does not open");
  if (how == How::kBurstAvx2 && !View::isa_available(AclIsa::kAvx2)) return state.SkipWithError("no AVX2 here");
  uint32_t rules[32];
  for (size_t i = 0; i < kKeys; i += kKeys / 10) {
    view->lookup_burst(w->pointers.data() + i, rules, 32);
    for (size_t k = 0; k < 32; ++k) {
      if (rules[k] != oracle->lookup(w->keys[i + k])) return state.SkipWithError("a verdict differs from the oracle's");
    }
  }
  size_t at = 0;
  for (auto _ : state) {
    const FlowKey* const* keys = w->pointers.data() + at;
    prefetch_burst(keys + 32);
    switch (how) {
      case How::kBurst:
        view->lookup_burst(keys, rules, 32);
        break;
      case How::kBurstScalar:
        view->lookup_burst_on(AclIsa::kScalar, keys, rules, 32);
        break;
      case How::kBurstAvx2:
        view->lookup_burst_on(AclIsa::kAvx2, keys, rules, 32);
        break;
      case How::kSingle:
        for (size_t i = 0; i < 32; ++i) rules[i] = view->lookup(*keys[i]);
    }
    benchmark::DoNotOptimize(rules);
    at = next_burst(at);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * 32);
  state.counters["tables"] = view->shape().narrow_tables + view->shape().wide_tables;
}

// A patched list beside its readers: what a publisher and its workers do, with one worker. It reads the newest version
// for a batch of 256, and says then that it holds nothing older.
class PatchedTable {
 public:
  // From one publication to the next: the oldest change takes effect after this and what a publication takes.
  static constexpr double kInterval = 2e-3;  // seconds

  bool make(const Workload& w) {
    for (size_t i = 0; i < w.set.rules.size(); ++i) rules_.push_back({(i + 1) << 20, w.set.rules[i]});
    auto table = PatchedAcl::create(rules_);
    if (!table) return false;
    table_ = std::move(*table);
    acl_test::Random random(6);
    for (size_t n = w.set.rules.size() / 8 + 1; n > 0; --n) {
      std::swap(rules_[acl_test::below(random, rules_.size())], rules_.back());
      away_.push_back(rules_.back());
      rules_.pop_back();
      change_.remove(away_.back().priority);
    }
    return table_->apply(change_).ok() && publish();
  }
  const PatchedAcl& table() const { return *table_; }

  // Two single-rule changes, each by itself: takes a rule away, and puts back the one that has been away longest. So no
  // publication finds the list as the one before left it. Changes are drawn some time before they are made, as a
  // controller sends them: a stream that is read in pieces.
  bool toggle(acl_test::Random& random) {
    bool ok = true;
    for (const AclChange& change : stream_[toggles_ % stream_.size()]) {
      if (!change.operations().empty()) ok = table_->apply(change).ok() && ok;
    }
    OrderedRule& out = rules_[drawn_];
    OrderedRule& in = away_[toggles_ % away_.size()];
    auto& [remove, add] = stream_[toggles_ % stream_.size()];
    remove.clear();
    remove.remove(out.priority);
    add.clear();
    add.add(in.priority, in.rule);
    std::swap(in, out);
    table_->expect(remove);
    table_->expect(add);
    drawn_ = acl_test::below(random, rules_.size());
    for (const OrderedRule* next : {&rules_[drawn_], &away_[(toggles_ + 1) % away_.size()]}) {
      prefetch_read(next);
      prefetch_read(reinterpret_cast<const std::byte*>(next + 1) - 1);
    }
    if (++toggles_ % 16 == 0) poll();
    return ok;
  }
  // Publishes when it is time and the one before is in effect.
  void poll() {
    const double now = seconds();
    if (waiting_ && (!reading_ || seen_.load(std::memory_order_acquire) >= versions_.size())) {
      waiting_ = false;
      effects_.push_back(now - oldest_);
      if (versions_.size() > 1) versions_[versions_.size() - 2].image.reset();
    }
    if (!waiting_ && now - last_ >= kInterval) {
      // The oldest change in this version was made just after the last one.
      oldest_ = last_;
      last_ = now;
      publish();
      waiting_ = true;
    }
  }
  void reading() { reading_ = true; }

  // The reader's.
  struct Version {
    std::shared_ptr<const Image> image;
    TupleMergeView view;
    uint64_t number;
  };
  const Version* current() const { return current_.load(std::memory_order_acquire); }
  void done(const Version* version) { seen_.store(version->number, std::memory_order_release); }

  // The 99th percentile of the time from the first change of a version until no reader has an older one, in ms.
  double effect_ms() {
    if (effects_.empty()) return 0;
    std::sort(effects_.begin(), effects_.end());
    return effects_[effects_.size() * 99 / 100] * 1e3;
  }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  size_t versions() const { return versions_.size(); }
  size_t copied_bytes() const { return copied_; }

 private:
  bool publish() {
    auto image = table_->publish();
    if (!image) return false;
    const auto view = TupleMergeView::open(**image);
    if (!view) return false;
    copied_ += table_->replicas().copied_bytes();
    versions_.push_back({*image, *view, versions_.size() + 1});
    current_.store(&versions_.back(), std::memory_order_release);
    return true;
  }

  std::vector<OrderedRule> rules_, away_;  // in the list, and not
  std::unique_ptr<PatchedAcl> table_;
  AclChange change_;
  std::deque<Version> versions_;
  std::atomic<const Version*> current_{nullptr};
  alignas(64) std::atomic<uint64_t> seen_{0};
  alignas(64) bool reading_ = false, waiting_ = false;
  size_t drawn_ = 0;                                // of rules_: what goes next
  std::array<std::array<AclChange, 2>, 8> stream_;  // to come
  size_t toggles_ = 0, copied_ = 0;
  double last_ = 0, oldest_ = 0;
  std::vector<double> effects_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// What a worker remembers from batch to batch.
struct PatchedReader {
  uint32_t found[32];
  uint64_t version = 0;

  // What a new version costs, apart from whatever else the machine does: how long each of the batches after it took, in
  // the median, more than those that come late. In microseconds; 0: too few versions.
  static constexpr size_t kBatches = 160, kLate = 120;
  std::vector<float> laps[kBatches];  // by the batch's number since the version
  size_t batch = kBatches;
  double version_us() {
    double sum = 0, late = 0;
    for (size_t i = kBatches; i-- > 0;) {
      std::vector<float>& of = laps[i];
      if (of.size() < 8) return 0;
      std::nth_element(of.begin(), of.begin() + of.size() / 2, of.end());
      i >= kLate ? late += of[of.size() / 2] / (kBatches - kLate) : sum += of[of.size() / 2] - late;
    }
    return sum * 1e6;
  }
};

// One batch of 256 keys.
size_t patched_batch(PatchedTable& table, const Workload& w, size_t at, PatchedReader& reader) {
  const PatchedTable::Version* version = table.current();
  uint32_t* const found = reader.found;
  if (version->number != reader.version) {
    reader.version = version->number;
    reader.batch = 0;
  }
  const double begin = table.seconds();
  for (int burst = 0; burst < 8; ++burst) {
    prefetch_burst(w.pointers.data() + at + 32);
    version->view.lookup_burst(w.pointers.data() + at, found, 32);
    benchmark::DoNotOptimize(found);
    at = next_burst(at);
  }
  if (reader.batch < PatchedReader::kBatches)
    reader.laps[reader.batch++].push_back(static_cast<float>(table.seconds() - begin));
  table.done(version);
  return at;
}

// Lookups while `updates` single-rule changes a second are made: to the list that is searched, or, with `other`, to
// another one like it, which nobody searches. What falls then is what two busy cores of this machine cost each other;
// only what falls besides is what changes cost a reader. With `changed_before`, to a list that many changes were made
// to.
void patched_lookup(benchmark::State& state, const std::string& name, double updates, bool other,
                    bool changed_before = false) {
  Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  PatchedTable table, beside;
  if (!table.make(*w) || (other && !beside.make(*w))) return state.SkipWithError("the table was not made");
  PatchedTable& changed = other ? beside : table;
  // Where rules stand after many changes is not where the builder puts them.
  if (changed_before) {
    acl_test::Random random(11);
    for (size_t i = 0; i < std::max<size_t>(2 * w->set.rules.size(), 100'000); ++i) table.toggle(random);
  }
  std::atomic<bool> stop{false};
  uint64_t changes = 0;
  std::thread thread;
  if (!other) table.reading();
  const double begin = table.seconds();
  if (updates > 0) {
    thread = std::thread([&] {
      acl_test::Random random(7);
      while (!stop.load(std::memory_order_relaxed)) {
        const auto due = static_cast<uint64_t>((table.seconds() - begin) * updates);
        for (; changes < due && !stop.load(std::memory_order_relaxed); changes += 2) changed.toggle(random);
        changed.poll();
      }
    });
  }
  PatchedReader reader;
  size_t at = 0;
  for (auto _ : state) at = patched_batch(table, *w, at, reader);
  const double took = table.seconds() - begin;
  stop = true;
  if (thread.joinable()) thread.join();
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * 256);
  if (updates <= 0) {
    state.counters["bytes"] = static_cast<double>(table.table().replicas().size());
    return;
  }
  state.counters["updates"] = static_cast<double>(changes) / took;
  state.counters["publications"] = static_cast<double>(changed.versions()) / took;
  state.counters["effect_p99_ms"] = changed.effect_ms();
  state.counters["copied_bytes"] =
      static_cast<double>(changed.copied_bytes()) / static_cast<double>(changed.versions());
  if (!other) state.counters["version_us"] = reader.version_us();
  state.counters["rebuilds"] = static_cast<double>(changed.table().rebuilds());
  state.counters["misplaced"] = static_cast<double>(changed.table().misplaced());
}

// Single-rule changes as fast as they go, publications with them; with `reader`, while another thread searches.
void patched_update(benchmark::State& state, const std::string& name, bool reader) {
  Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  PatchedTable table;
  if (!table.make(*w)) return state.SkipWithError("the table was not made");
  std::atomic<bool> stop{false};
  std::thread thread;
  if (reader) {
    table.reading();
    thread = std::thread([&] {
      PatchedReader of;
      for (size_t at = 0; !stop.load(std::memory_order_relaxed);) at = patched_batch(table, *w, at, of);
    });
  }
  acl_test::Random random(7);
  const double begin = table.seconds();
  for (auto _ : state) {
    if (!table.toggle(random)) {
      state.SkipWithError("a change was refused");
      break;
    }
  }
  const double took = table.seconds() - begin;
  stop = true;
  if (thread.joinable()) thread.join();
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * 2);
  state.counters["publications"] = static_cast<double>(table.versions()) / took;
  state.counters["effect_p99_ms"] = table.effect_ms();
  state.counters["rebuilds"] = static_cast<double>(table.table().rebuilds());
}

// One frame of 256 packets after the other; the time is that of a frame.
constexpr size_t kFrame = 256;

template <typename Algorithm>
void frame(benchmark::State& state, const std::string& name) {
  Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the rules were not made");
  auto image = Algorithm::build(w->set);
  auto oracle_image = LinearAcl::build(w->set);
  if (!image || !oracle_image) return state.SkipWithError("the build failed");
  const auto view = Algorithm::View::open(*image);
  const auto oracle = LinearView::open(*oracle_image);
  if (!view || !oracle) return state.SkipWithError("the image does not open");
  uint32_t rules[kFrame];
  const auto look = [&](size_t at) {
    for (size_t i = 0; i < kFrame; i += 32) view->lookup_burst(w->pointers.data() + at + i, rules + i, 32);
  };
  for (size_t at = 0; at < 32 * kFrame; at += kFrame) {
    look(at);
    for (size_t i = 0; i < kFrame; ++i)
      if (rules[i] != oracle->lookup(w->keys[at + i])) return state.SkipWithError("it finds another rule than linear");
  }
  size_t at = 0;
  for (auto _ : state) {
    look(at);
    benchmark::DoNotOptimize(rules);
    at = (at + kFrame) % (32 * kFrame);
  }
}

#if defined(SLUICE_PEERS)
// Fields in network order, as rte_acl wants them; the flags take the last 4-byte group.
struct PeerKey {
  uint8_t protocol;
  uint8_t pad[3];
  uint32_t src, dst;
  uint16_t src_port, dst_port;
  uint32_t flags;
};
static_assert(sizeof(PeerKey) == 20);

RTE_ACL_RULE_DEF(PeerRule, 6);

// Built once a set: it takes seconds.
rte_acl_ctx* peer_context(const Workload& w, const std::string& name) {
  static std::map<std::string, rte_acl_ctx*> all;
  if (const auto it = all.find(name); it != all.end()) return it->second;
  static const rte_acl_field_def kFields[6] = {
      {RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, 0}, {RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, 4},
      {RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, 8},    {RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, 12},
      {RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, 14},  {RTE_ACL_FIELD_TYPE_BITMASK, 4, 5, 4, 16}};
  rte_acl_param parameters{};
  parameters.name = name.c_str();
  parameters.socket_id = rte_malloc_heap_get_socket("huge");
  parameters.rule_size = RTE_ACL_RULE_SZ(6);
  parameters.max_rule_num = static_cast<uint32_t>(w.set.rules.size());
  rte_acl_ctx* context = rte_acl_create(&parameters);
  if (context == nullptr) return nullptr;
  for (size_t i = 0; i < w.set.rules.size(); ++i) {
    const AclRule& r = w.set.rules[i];
    PeerRule rule{};
    rule.data.category_mask = 1;
    rule.data.priority = static_cast<int32_t>(w.set.rules.size() - i);
    rule.data.userdata = static_cast<uint32_t>(i + 1);
    rule.field[0].value.u8 = r.protocol;
    rule.field[0].mask_range.u8 = r.protocol_mask;
    rule.field[1].value.u32 = static_cast<uint32_t>(r.src.address.lo);
    rule.field[1].mask_range.u32 = r.src.length;
    rule.field[2].value.u32 = static_cast<uint32_t>(r.dst.address.lo);
    rule.field[2].mask_range.u32 = r.dst.length;
    rule.field[3].value.u16 = r.src_port_low;
    rule.field[3].mask_range.u16 = r.src_port_high;
    rule.field[4].value.u16 = r.dst_port_low;
    rule.field[4].mask_range.u16 = r.dst_port_high;
    rule.field[5].value.u32 = r.flags;
    rule.field[5].mask_range.u32 = r.flags_mask;
    if (rte_acl_add_rules(context, reinterpret_cast<rte_acl_rule*>(&rule), 1) != 0) return nullptr;
  }
  rte_acl_config config{};
  config.num_categories = 1;
  config.num_fields = 6;
  std::copy(std::begin(kFields), std::end(kFields), config.defs);
  if (rte_acl_build(context, &config) != 0) return nullptr;
  return all[name] = context;
}

bool start_peer() {
  static const bool started = [] {
    const char* arguments[] = {
        "acl_bench", "--no-huge", "-m",           "2048", "--no-pci", "--no-telemetry", "--force-max-simd-bitwidth=512",
        "-l",        "0",         "--log-level=3"};
    if (rte_eal_init(static_cast<int>(std::size(arguments)), const_cast<char**>(arguments)) < 0) return false;
    // rte_acl's tables on huge pages, as ours: a heap of its own over memory that asks for them.
    constexpr size_t kHeap = size_t{4} << 30, kPage = size_t{2} << 20;
    static auto heap = Buffer::allocate(kHeap);
    return heap.ok() && rte_malloc_heap_create("huge") == 0 &&
           rte_malloc_heap_memory_add("huge", heap->data(), kHeap, nullptr, 0, kPage) == 0;
  }();
  return started;
}

// The keys of a workload as rte_acl takes them.
struct PeerKeys {
  Huge<PeerKey> keys;
  std::vector<const uint8_t*> pointers;
  explicit PeerKeys(Workload& w) {
    keys.resize(kKeys);
    for (size_t i = 0; i < kKeys; ++i) {
      const FlowKey& k = w.keys[i];
      keys[i] = {k.protocol,
                 {},
                 __builtin_bswap32(static_cast<uint32_t>(k.src_lo)),
                 __builtin_bswap32(static_cast<uint32_t>(k.dst_lo)),
                 __builtin_bswap16(k.src_port),
                 __builtin_bswap16(k.dst_port),
                 __builtin_bswap32(k.flags)};
    }
    for (const PeerKey& k : keys) pointers.push_back(reinterpret_cast<const uint8_t*>(&k));
  }
};

// The same frames by rte_acl.
void frame_peer(benchmark::State& state, const std::string& name) {
  Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the rules were not made");
  if (!start_peer()) return state.SkipWithError("DPDK's environment did not start");
  rte_acl_ctx* const context = peer_context(*w, name);
  if (context == nullptr) return state.SkipWithError("rte_acl could not be built");
  const PeerKeys peers(*w);
  auto image = LinearAcl::build(w->set);
  const auto oracle = LinearView::open(*image);
  uint32_t rules[kFrame];
  for (size_t at = 0; at < 32 * kFrame; at += kFrame) {
    rte_acl_classify(context, const_cast<const uint8_t**>(peers.pointers.data()) + at, rules, kFrame, 1);
    for (size_t i = 0; i < kFrame; ++i)
      if (rules[i] != oracle->lookup(w->keys[at + i])) return state.SkipWithError("it finds another rule than linear");
  }
  size_t at = 0;
  for (auto _ : state) {
    rte_acl_classify(context, const_cast<const uint8_t**>(peers.pointers.data()) + at, rules, kFrame, 1);
    benchmark::DoNotOptimize(rules);
    at = (at + kFrame) % (32 * kFrame);
  }
}

void peer(benchmark::State& state, const std::string& name) {
  Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  if (!start_peer()) return state.SkipWithError("DPDK's environment did not start");
  rte_acl_ctx* const context = peer_context(*w, name);
  if (context == nullptr) return state.SkipWithError("rte_acl could not be built");
  PeerKeys peers(*w);
  std::vector<const uint8_t*>& pointers = peers.pointers;
  auto image = TupleMergeAcl::build(w->set);
  const auto view = TupleMergeView::open(*image);
  uint32_t rules[32];
  for (size_t i = 0; i < 3200; i += 32) {
    rte_acl_classify(context, pointers.data() + i, rules, 32, 1);
    for (size_t k = 0; k < 32; ++k) {
      if (rules[k] != view->lookup(w->keys[i + k])) return state.SkipWithError("rte_acl and tuple_merge disagree");
    }
  }
  size_t at = 0;
  for (auto _ : state) {
    prefetch_burst(pointers.data() + at + 32);
    rte_acl_classify(context, pointers.data() + at, rules, 32, 1);
    benchmark::DoNotOptimize(rules);
    at = next_burst(at);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * 32);
}
#endif

// An exact-flow cache in front of tuple_merge, which was tried and is no part of the library: direct-mapped, a key and
// its rule in a line, filled by what misses; the misses of a burst are searched together. Flows are `kFlows` keys of
// the list, drawn evenly or by Zipf's law.
class FlowCache {
 public:
  explicit FlowCache(size_t entries) : entries_(entries) {}
  // Returns how many of the keys were there.
  size_t lookup(const TupleMergeView& view, const FlowKey* const* keys, uint32_t* rules, size_t n) {
    uint64_t hash[kAclBurst];
    for (size_t i = 0; i < n; ++i) {
      hash[i] = hash_of(*keys[i]);
      prefetch(&entries_[hash[i] % entries_.size()]);
    }
    const FlowKey* missing[kAclBurst];
    uint32_t found[kAclBurst];
    size_t which[kAclBurst], misses = 0;
    for (size_t i = 0; i < n; ++i) {
      const Entry& e = entries_[hash[i] % entries_.size()];
      if (std::memcmp(&e.key, keys[i], sizeof(FlowKey)) == 0) {
        rules[i] = e.rule;
      } else {
        missing[misses] = keys[i];
        which[misses++] = i;
      }
    }
    view.lookup_burst(missing, found, misses);
    for (size_t m = 0; m < misses; ++m) {
      rules[which[m]] = found[m];
      entries_[hash[which[m]] % entries_.size()] = {*missing[m], found[m]};
    }
    return n - misses;
  }

 private:
  struct alignas(64) Entry {
    FlowKey key{};
    uint32_t rule = 0;
  };
  static void prefetch(const void* p) { __builtin_prefetch(p); }
  static uint64_t hash_of(const FlowKey& k) {
    uint64_t h = k.src_lo * 0x9e3779b97f4a7c15ull ^ k.dst_lo * 0xc2b2ae3d27d4eb4full ^
                 (uint64_t{k.src_port} << 32 | uint64_t{k.dst_port} << 8 | k.protocol) * 0x165667b19e3779f9ull;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull >> 20;
  }
  std::vector<Entry> entries_;
};

// `skew`: the exponent of Zipf's law, 0: every flow alike. `entries`: of the cache, 0: none.
void cached(benchmark::State& state, const std::string& name, size_t flows, double skew, size_t entries) {
  Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  auto image = TupleMergeAcl::build(w->set);
  if (!image) return state.SkipWithError("the build failed");
  const auto view = TupleMergeView::open(*image);
  if (!view) return state.SkipWithError("the image does not open");
  std::vector<double> sums;
  double sum = 0;
  for (size_t f = 1; f <= flows; ++f) sums.push_back(sum += skew == 0 ? 1 : std::pow(static_cast<double>(f), -skew));
  acl_test::Random random(9);
  std::uniform_real_distribution<double> draw(0, sum);
  std::vector<const FlowKey*> packets;
  for (size_t i = 0; i < kKeys; ++i) {
    const auto flow = std::upper_bound(sums.begin(), sums.end() - 1, draw(random)) - sums.begin();
    packets.push_back(w->pointers[static_cast<size_t>(flow)]);
  }
  FlowCache cache(std::max<size_t>(entries, 1));
  uint32_t rules[kAclBurst], want[kAclBurst];
  size_t at = 0, hits = 0, all = 0;
  for (; at < kKeys / 2; at = next_burst(at)) {
    if (entries == 0) break;
    (void)cache.lookup(*view, packets.data() + at, rules, 32);
    view->lookup_burst(packets.data() + at, want, 32);
    if (std::memcmp(rules, want, sizeof rules) != 0) return state.SkipWithError("the cache gives another rule");
  }
  for (auto _ : state) {
    prefetch_burst(packets.data() + at + 32);
    if (entries == 0) {
      view->lookup_burst(packets.data() + at, rules, 32);
    } else {
      hits += cache.lookup(*view, packets.data() + at, rules, 32);
    }
    benchmark::DoNotOptimize(rules);
    all += 32;
    at = next_burst(at);
  }
  state.SetItemsProcessed(static_cast<int64_t>(all));
  state.counters["hits"] = static_cast<double>(hits) / static_cast<double>(all);
}

// Which rules can go (`sluice check --shadowed`).
void shadow(benchmark::State& state, const std::string& name) {
  const Workload* w = workload(name);
  if (w == nullptr) return state.SkipWithError("the data set is not here: set SLUICE_DATA");
  auto image = LinearAcl::build(w->set);
  if (!image) return state.SkipWithError("the build failed");
  const auto rules = AclRulesView::open(*image);
  const auto actions = AclActionsView::open(*image);
  if (!rules || !actions) return state.SkipWithError("the image does not open");
  size_t found = 0;
  for (auto _ : state) found = find_shadowed(*rules, *actions).size();
  state.counters["findings"] = static_cast<double>(found);
}

// Lists made to hurt: steps of a packet, counted; the time is the build's.
template <typename Algorithm, typename Header = void>
void adverse(benchmark::State& state, const RuleSet& set) {
  Result<Image> image = Error();
  for (auto _ : state) image = Algorithm::build(set);
  if (!image) return state.SkipWithError("the build failed");
  const auto work = acl_work(*image);
  if (!work) return state.SkipWithError("its steps are not counted");
  state.counters["rules"] = static_cast<double>(set.rules.size());
  state.counters["tables"] = work->tables;
  state.counters["reads"] = work->reads;
  if constexpr (!std::is_same_v<Header, void>) {
    const auto* header = section_array<Header>(image->section(SectionTag::kAclLookup), 0, 1);
    state.counters["hashed_per_rule"] =
        static_cast<double>(header->build_steps) / static_cast<double>(set.rules.size());
  }
  state.counters["bytes_per_rule"] =
      static_cast<double>(image->find(SectionTag::kAclLookup)->bytes) / static_cast<double>(set.rules.size());
}

const bool kListsRegistered = [] {
  auto add = [](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(("acl/" + name).c_str(), run)->Unit(benchmark::kMicrosecond);
  };
  acl_test::Random random(31);
  RuleSet same;
  same.rules.resize(10000);
  const std::pair<const char*, RuleSet> sets[] = {{"every_pair_of_lengths", acl_test::every_pair_of_lengths(random)},
                                                  {"nested_prefixes", acl_test::nested_prefixes()},
                                                  {"overlapping_ranges", acl_test::overlapping_ranges(10000)},
                                                  {"wildcards_by_flags", acl_test::wildcards_by_flags(10000)},
                                                  {"equal_wildcards", same}};
  for (const auto& [name, set] : sets) {
    const RuleSet& rules = set;
    add(std::string("adverse/tuple_space/") + name,
        [rules](benchmark::State& s) { adverse<TupleSpaceAcl, tuple_space_detail::Header>(s, rules); });
    add(std::string("adverse/tuple_merge/") + name,
        [rules](benchmark::State& s) { adverse<TupleMergeAcl, tuple_merge_detail::Header>(s, rules); });
    add(std::string("adverse/bitvec/") + name, [rules](benchmark::State& s) { adverse<BitvecAcl>(s, rules); });
  }
  for (const std::string name : {"acl1_10k", "fw1_100k"}) {
    for (const size_t flows : {100'000, 1'000'000}) {
      for (const double skew : {0.0, 1.0, 1.2}) {
        for (const size_t entries : {0, 4096, 65'536}) {
          add("cache/" + name + "/flows_" + std::to_string(flows) + "/zipf_" +
                  (skew == 0   ? "0"
                   : skew == 1 ? "1"
                               : "1.2") +
                  "/entries_" + std::to_string(entries),
              [name, flows, skew, entries](benchmark::State& s) { cached(s, name, flows, skew, entries); });
        }
      }
    }
  }
  for (const std::string name : {"acl1_10k", "fw1_10k", "ipc1_10k", "acl1_100k", "fw1_100k", "ipc1_100k"})
    add("shadow/" + name, [name](benchmark::State& s) { shadow(s, name); });
  return true;
}();

const bool kFramesRegistered = [] {
  for (const unsigned rules : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
    for (const char* match : {"none", "first", "last"}) {
      const std::string name = "frame_" + std::to_string(rules) + "_" + match;
      const auto add = [&](const char* what, auto run) {
        benchmark::RegisterBenchmark(
            ("acl/frame/" + std::string(what) + "/" + std::to_string(rules) + "_rules/" + match).c_str(),
            [name, run](benchmark::State& s) { run(s, name); })
            ->Unit(benchmark::kMicrosecond);
      };
      add("linear", frame<LinearAcl>);
      add("tuple_space", frame<TupleSpaceAcl>);
      add("tuple_merge", frame<TupleMergeAcl>);
#if defined(SLUICE_PEERS)
      add("rte_acl", frame_peer);
#endif
    }
  }
  return true;
}();

const bool kRegistered = [] {
  for (const char* set : {"acl1_1k", "fw1_1k", "ipc1_1k", "acl1_10k", "fw1_10k", "ipc1_10k", "acl1_100k", "fw1_100k",
                          "ipc1_100k", "made_10000"}) {
    const std::string name = set;
    auto add = [&](const char* what, auto run) {
      benchmark::RegisterBenchmark((std::string("acl/") + what + "/" + name).c_str(), run)
          ->Unit(benchmark::kMicrosecond);
    };
    if (!name.starts_with("made_")) add("parse", [name](benchmark::State& s) { parse(s, name); });
    add("build/linear", [name](benchmark::State& s) { build<LinearAcl>(s, name); });
    auto add_algorithm = [&]<typename A>(std::type_identity<A>) {
      const std::string algorithm = A::kName;
      add(("build/" + algorithm).c_str(), [name](benchmark::State& s) { build<A>(s, name); });
      const std::pair<const char*, How> ways[] = {{"/burst", How::kBurst},
                                                  {"/burst_scalar", How::kBurstScalar},
                                                  {"/burst_avx2", How::kBurstAvx2},
                                                  {"/single", How::kSingle}};
      for (const auto& [way, how] : ways) {
        add(("lookup/" + algorithm + way).c_str(), [name, how](benchmark::State& s) { lookup<A>(s, name, how); });
      }
    };
    add_algorithm(std::type_identity<TupleSpaceAcl>{});
    add_algorithm(std::type_identity<TupleMergeAcl>{});
    add("patched/lookup", [name](benchmark::State& s) { patched_lookup(s, name, 0, false); });
    add("patched/lookup_after_changes", [name](benchmark::State& s) { patched_lookup(s, name, 0, false, true); });
    add("patched/lookup_at_1M_updates", [name](benchmark::State& s) { patched_lookup(s, name, 1e6, false); });
    add("patched/lookup_at_1M_updates_elsewhere", [name](benchmark::State& s) { patched_lookup(s, name, 1e6, true); });
    add("patched/update", [name](benchmark::State& s) { patched_update(s, name, false); });
    add("patched/update_and_lookup", [name](benchmark::State& s) { patched_update(s, name, true); });
#if defined(SLUICE_PEERS)
    if (!name.starts_with("made_")) add("lookup/rte_acl", [name](benchmark::State& s) { peer(s, name); });
#endif
  }
  return true;
}();

}  // namespace
}  // namespace sluice
