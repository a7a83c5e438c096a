// LPM build times and lookup rates on real full tables ($SLUICE_DATA/rib/*.txt.xz; a random table where they are
// absent), by one core, and with -DSLUICE_BENCH_PEERS=ON those of DPDK's rte_fib, rte_fib6 and rte_lpm beside them:
//
//   tables_benches --benchmark_filter=lookup --benchmark_repetitions=25
//
// Everyone who is compared runs in every round, one after the other (Contest below); a repetition is a round. Every
// answer is compared with the trie's first. Times are the thread's CPU time. `against_peers` is the ratio to the
// fastest peer of the same round. All tables and addresses lie on huge pages: the peers' large allocations are answered
// with 2 MiB-aligned memory and MADV_HUGEPAGE, as ours are.
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/test_data.h"
#include "net/text.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"
#include "tables/lpm/patch.h"

#if defined(SLUICE_PEERS)
#include <dlfcn.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_malloc.h>
#include <rte_vect.h>
#include <sys/mman.h>
#endif

namespace sluice {
namespace {

using namespace lpm_test;

constexpr size_t kAddresses = size_t{1} << 20;

constexpr int kPatterns = 3;

// On huge pages, as the tables are.
template <typename T>
struct Array {
  Buffer buffer;
  explicit Array(const std::vector<T>& from = {}) {
    if (from.empty()) return;
    buffer = std::move(*Buffer::allocate(from.size() * sizeof(T)));
    std::memcpy(buffer.data(), from.data(), from.size() * sizeof(T));
  }
  const T* data() const { return reinterpret_cast<const T*>(buffer.data()); }
};

struct Tables {
  Rib rib;
  bool real = true;
  Array<uint32_t> a4[kPatterns];
  Array<uint64_t> hi[kPatterns], lo[kPatterns];
  Array<Be64> wire6[kPatterns];  // high half, low half
  std::vector<uint32_t> expected4[kPatterns], expected6[kPatterns];
};

// Of `n` draws from `n` ranks, rank k with a weight of 1 / (k + 1).
std::vector<size_t> zipf_ranks(size_t n, uint64_t seed) {
  std::vector<double> sums(n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sums[i] = sum += 1.0 / static_cast<double>(i + 1);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, sum);
  std::vector<size_t> out(n);
  for (size_t& rank : out) {
    rank = static_cast<size_t>(std::lower_bound(sums.begin(), sums.end(), uniform(random)) - sums.begin());
    rank = std::min(rank, n - 1);
  }
  return out;
}

void load(Rib& rib, const std::string& path) {
  FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return;
  char line[256];
  while (fgets(line, sizeof line, pipe) != nullptr) {
    const std::string_view text(line);
    const size_t space = text.find(' ');
    const auto prefix = parse_prefix(text.substr(0, space));
    if (prefix) rib.add(*prefix, rib.intern(text.substr(space + 1, text.find('\n') - space - 1)));
  }
  pclose(pipe);
}

const Tables& tables() {
  static const Tables all = [] {
    Tables t;
    const auto v4 = test_data("rib/ipv4-tier1-2024-01.nh256.txt.xz");
    const auto v6 = test_data("rib/ipv6-tier1-2024-01.nh256.txt.xz");
    if (v4 && v6) {
      load(t.rib, *v4);
      load(t.rib, *v6);
      t.rib.settle();
    }
    if (t.rib.size() == 0) {
      t.real = false;
      t.rib = random_rib(1, 200000, 256);
    }
    std::vector<uint32_t> a4[kPatterns] = {uniform4(kAddresses, 11), prefix_weighted4(t.rib.routes4(), kAddresses, 12)};
    Addresses6 a6[kPatterns] = {uniform6(kAddresses, 13), prefix_weighted6(t.rib.routes6(), kAddresses, 14)};
    for (size_t rank : zipf_ranks(kAddresses, 15)) {
      a4[2].push_back(a4[1][rank]);
      a6[2].hi.push_back(a6[1].hi[rank]);
      a6[2].lo.push_back(a6[1].lo[rank]);
    }
    const auto image = build_routes(t.rib, "trie", "trie");
    for (int p = 0; p < kPatterns; ++p) {
      t.expected4[p].resize(kAddresses);
      t.expected6[p].resize(kAddresses);
      (void)with_fib4(*image, [&](const auto& v) { v.lookup_bulk(a4[p].data(), t.expected4[p].data(), kAddresses); });
      (void)with_fib6(*image, [&](const auto& v) {
        v.lookup_bulk(a6[p].hi.data(), a6[p].lo.data(), t.expected6[p].data(), kAddresses);
      });
      std::vector<Be64> wire(kAddresses * 2);
      for (size_t i = 0; i < kAddresses; ++i) {
        wire[2 * i].set(a6[p].hi[i]);
        wire[2 * i + 1].set(a6[p].lo[i]);
      }
      t.a4[p] = Array<uint32_t>(a4[p]);
      t.hi[p] = Array<uint64_t>(a6[p].hi);
      t.lo[p] = Array<uint64_t>(a6[p].lo);
      t.wire6[p] = Array<Be64>(wire);
    }
    return t;
  }();
  return all;
}

const char* pattern_name(int p) {
  return p == 0 ? "uniform" : p == 1 ? "weighted" : "zipf";
}

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// One who looks up: f(first address, count) writes to `out`, as the type that the library writes.
struct Competitor {
  std::string name;
  bool peer = false;
  std::function<bool(size_t at, size_t n)> check;  // answers equal the trie's
  std::function<void(size_t at, size_t n)> run;
};

// Everyone who takes part in one comparison (family, pattern, burst), measured in rounds: in a random order each runs
// once over all addresses untimed, which brings its table into the caches, and once timed. So a round's rates have the
// same neighbours and the same memory, and their ratios mean something on a busy machine, where the rates of two
// separate runs do not.
class Contest {
 public:
  explicit Contest(size_t burst) : burst_(burst) {}

  template <typename Out, typename F>
  void add(std::string name, bool peer, const std::vector<uint32_t>& expected, F f) {
    auto out = std::make_shared<std::vector<Out>>(burst_);
    Competitor c;
    c.name = std::move(name);
    c.peer = peer;
    c.run = [f, out](size_t at, size_t n) {
      f(at, n, out->data());
      benchmark::DoNotOptimize(out->data());
      benchmark::ClobberMemory();
    };
    c.check = [f, out, &expected](size_t at, size_t n) {
      f(at, n, out->data());
      for (size_t k = 0; k < n; ++k) {
        if (static_cast<uint32_t>((*out)[k] & 0xffffff) != expected[at + k]) return false;
      }
      return true;
    };
    competitors_.push_back(std::move(c));
  }
  const std::vector<Competitor>& competitors() const { return competitors_; }

  // Seconds for all addresses, by competitor; all answers were checked first.
  Result<const std::vector<double>*> round(size_t index) {
    if (rounds_.empty()) {
      for (const Competitor& c : competitors_) {
        for (size_t at = 0; at < kAddresses; at += burst_) {
          if (!c.check(at, burst_)) return Error(c.name + " differs from the trie");
        }
      }
    }
    while (rounds_.size() <= index) {
      std::vector<size_t> order(competitors_.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random_);
      std::vector<double> seconds(order.size());
      for (size_t c : order) {
        for (int pass = 0; pass < 2; ++pass) {
          const double start = cpu_seconds();
          for (size_t at = 0; at < kAddresses; at += burst_) competitors_[c].run(at, burst_);
          seconds[c] = cpu_seconds() - start;
        }
      }
      rounds_.push_back(std::move(seconds));
    }
    return &rounds_[index];
  }

 private:
  size_t burst_;
  std::vector<Competitor> competitors_;
  std::vector<std::vector<double>> rounds_;
  std::mt19937 random_{7};
};

void build_benchmark(benchmark::State& state, Result<FibPlan> (*plan)(const Rib&)) {
  const Rib& rib = tables().rib;
  size_t bytes = 0;
  for (auto _ : state) {
    const double start = cpu_seconds();
    auto fib = plan(rib);
    if (!fib) return state.SkipWithError("cannot build");
    auto buffer = Buffer::allocate(fib->bytes);
    if (!buffer) return state.SkipWithError("no memory");
    fib->write({buffer->data(), buffer->size()});
    state.SetIterationTime(cpu_seconds() - start);
    bytes = fib->bytes;
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}

#if defined(SLUICE_PEERS)
bool eal_started() {
  static const bool started = [] {
    std::vector<std::string> args = {"bench",
                                     "--no-huge",
                                     "-m",
                                     "2048",
                                     "--no-pci",
                                     "--no-telemetry",
                                     "--no-shconf",
                                     "--log-level=error",
                                     "-l",
                                     "0",
                                     "--force-max-simd-bitwidth=512"};
    std::vector<char*> argv;
    for (auto& a : args) argv.push_back(a.data());
    return rte_eal_init(static_cast<int>(argv.size()), argv.data()) >= 0;
  }();
  return started;
}

rte_fib* peer_fib(rte_fib_dir24_8_nh_sz size, double* build_ms = nullptr) {
  if (!eal_started()) return nullptr;
  rte_fib_conf conf{};
  conf.type = RTE_FIB_DIR24_8;
  conf.default_nh = 0;
  conf.max_routes = 1 << 20;
  conf.dir24_8.nh_sz = size;
  conf.dir24_8.num_tbl8 = 8192;
  rte_fib* fib = rte_fib_create(size == RTE_FIB_DIR24_8_2B ? "fib2" : "fib4", 0, &conf);
  if (fib == nullptr) return nullptr;
  const auto start = std::chrono::steady_clock::now();
  for (const Route4& r : tables().rib.routes4()) {
    if (rte_fib_add(fib, r.address, r.length, r.next_hop) != 0) return nullptr;
  }
  if (build_ms != nullptr) {
    *build_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  return fib;
}

rte_fib* shared_fib(bool two_bytes) {
  auto make = [](rte_fib_dir24_8_nh_sz size) {
    double ms = 0;
    rte_fib* fib = peer_fib(size, &ms);
    std::fprintf(stderr, "rte_fib %s: %s, %.0f ms to insert\n", size == RTE_FIB_DIR24_8_2B ? "2-byte" : "4-byte",
                 fib != nullptr ? "built" : "failed", ms);
    return fib;
  };
  static rte_fib* const two = make(RTE_FIB_DIR24_8_2B);
  static rte_fib* const four = make(RTE_FIB_DIR24_8_4B);
  return two_bytes ? two : four;
}

rte_fib6* shared_fib6() {
  static rte_fib6* const fib = []() -> rte_fib6* {
    if (!eal_started()) return nullptr;
    rte_fib6_conf conf{};
    conf.type = RTE_FIB6_TRIE;
    conf.max_routes = 1 << 18;
    conf.trie.nh_sz = RTE_FIB6_TRIE_4B;
    conf.trie.num_tbl8 = 1 << 18;
    rte_fib6* made = rte_fib6_create("fib6", 0, &conf);
    if (made == nullptr) return nullptr;
    for (const Route6& r : tables().rib.routes6()) {
      Be64 words[2];
      words[0].set(r.hi);
      words[1].set(r.lo);
      if (rte_fib6_add(made, reinterpret_cast<const uint8_t*>(words), r.length, r.next_hop) != 0) return nullptr;
    }
    return made;
  }();
  return fib;
}

// rte_lpm takes one to two minutes to insert a full table, so its two tables (public in rte_lpm.h) are written as its
// insertion leaves them; the lookups are its own.
rte_lpm* shared_lpm() {
  static rte_lpm* const lpm = []() -> rte_lpm* {
    if (!eal_started()) return nullptr;
    rte_lpm_config config{};
    config.max_rules = 1024;
    config.number_tbl8s = 8192;
    rte_lpm* made = rte_lpm_create("lpm", 0, &config);
    if (made == nullptr) return nullptr;
    const auto image = build_routes(tables().rib, "dir24", "trie");
    const auto view = Dir24View::open(image->section(SectionTag::kFib4), tables().rib.next_hop_count());
    auto entry = [](uint32_t next_hop) {
      rte_lpm_tbl_entry e{};
      e.next_hop = next_hop & 0xffffff;
      e.valid = next_hop != 0;
      return e;
    };
    std::set<uint32_t> divided;  // /24s with longer prefixes
    for (const Route4& r : tables().rib.routes4()) {
      if (r.length > 24) divided.insert(r.address >> 8);
    }
    uint32_t blocks = 0;
    for (uint32_t slot = 0; slot < (1u << 24); ++slot) {
      if (!divided.contains(slot)) {
        made->tbl24[slot] = entry(view->lookup(slot << 8));
        continue;
      }
      if (blocks == config.number_tbl8s) return nullptr;
      for (uint32_t i = 0; i < 256; ++i) {
        rte_lpm_tbl_entry e = entry(view->lookup(slot << 8 | i));
        e.valid_group = 1;
        made->tbl8[blocks * 256 + i] = e;
      }
      made->tbl24[slot] = entry(blocks++);
      made->tbl24[slot].valid = 1;
      made->tbl24[slot].valid_group = 1;
    }
    return made;
  }();
  return lpm;
}
#endif

// The tables of each algorithm, built once.
template <typename A>
const typename A::View4& shared_view4() {
  static const Image image = std::move(*build_routes(tables().rib, A::kName, "trie"));
  static const auto view = A::View4::open(image.section(SectionTag::kFib4), tables().rib.next_hop_count());
  return *view;
}
template <typename A>
const typename A::View6& shared_view6() {
  static const Image image = std::move(*build_routes(tables().rib, "trie", A::kName));
  static const auto view = A::View6::open(image.section(SectionTag::kFib6), tables().rib.next_hop_count());
  return *view;
}

// Searches that are slower by orders of magnitude would take the time of everyone else.
bool takes_part(std::string_view name) {
  return name != "trie" && name != "linear" && name != "bloom";
}

// Those whose prefetch is worth a call in bursts.
bool asks_ahead(std::string_view name, size_t burst) {
  return burst == 32 && (name == "dir24" || name == "sail");
}

Contest& contest4(int p, size_t burst) {
  static std::map<std::pair<int, size_t>, Contest> all;
  auto [it, fresh] = all.try_emplace({p, burst}, burst);
  Contest& contest = it->second;
  if (!fresh) return contest;
  const uint32_t* addresses = tables().a4[p].data();
  const auto& expected = tables().expected4[p];
  for_each_lpm<LpmAlgorithms4>([&]<typename A>(A) {
    if (!takes_part(A::kName)) return;
    const auto* view = &shared_view4<A>();
    contest.add<uint32_t>(A::kName, false, expected,
                          [=](size_t at, size_t n, uint32_t* out) { view->lookup_bulk(addresses + at, out, n); });
    if (!asks_ahead(A::kName, burst)) return;
    // For a caller that knows the next burst before it looks up this one, as the data path does. The peers have no such
    // call.
    if constexpr (std::is_same_v<A, Sail>) {
      auto places = std::make_shared<std::vector<uint32_t>>(2 * burst);  // of this burst and of the next
      contest.add<uint32_t>("sail_ahead", false, expected, [=](size_t at, size_t n, uint32_t* out) {
        uint32_t* const now = places->data() + at / n % 2 * n;
        uint32_t* const then = places->data() + (at / n + 1) % 2 * n;
        if (at == 0) view->ask(addresses, now, n);
        if (at + 2 * n <= kAddresses) view->ask(addresses + at + n, then, n);
        view->answer(addresses + at, now, out, n);
      });
    } else {
      contest.add<uint32_t>(std::string(A::kName) + "_ahead", false, expected, [=](size_t at, size_t n, uint32_t* out) {
        const size_t next = at + 2 * n <= kAddresses ? at + n : 0;
        for (size_t i = 0; i < n; ++i) view->prefetch(addresses[next + i]);
        view->lookup_bulk(addresses + at, out, n);
      });
    }
  });
#if defined(SLUICE_PEERS)
  for (bool two : {true, false}) {
    for (bool vector : {false, true}) {
      rte_fib* fib = shared_fib(two);
      const auto kind = vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO;
      if (fib == nullptr || rte_fib_select_lookup(fib, kind) != 0) continue;
      contest.add<uint64_t>(std::string("rte_fib_") + (two ? "2B" : "4B") + (vector ? "_avx512" : "_scalar"), true,
                            expected, [=](size_t at, size_t n, uint64_t* out) {
                              if (at == 0) rte_fib_select_lookup(fib, kind);
                              rte_fib_lookup_bulk(fib, const_cast<uint32_t*>(addresses) + at, out, static_cast<int>(n));
                            });
    }
  }
  if (rte_lpm* lpm = shared_lpm()) {
    // The valid bit is past the 24 bits that are compared; a miss is all zeros.
    contest.add<uint32_t>("rte_lpm_bulk", true, expected, [=](size_t at, size_t n, uint32_t* out) {
      rte_lpm_lookup_bulk(lpm, addresses + at, out, static_cast<unsigned>(n));
    });
    contest.add<uint32_t>("rte_lpm_x4", true, expected, [=](size_t at, size_t n, uint32_t* out) {
      for (size_t i = 0; i < n; i += 4) {
        rte_lpm_lookupx4(lpm, _mm_loadu_si128(reinterpret_cast<const __m128i*>(addresses + at + i)), out + i, 0);
      }
    });
  }
#endif
  return contest;
}

Contest& contest6(int p, size_t burst) {
  static std::map<std::pair<int, size_t>, Contest> all;
  auto [it, fresh] = all.try_emplace({p, burst}, burst);
  Contest& contest = it->second;
  if (!fresh) return contest;
  const uint64_t* hi = tables().hi[p].data();
  const uint64_t* lo = tables().lo[p].data();
  const auto& expected = tables().expected6[p];
  for_each_lpm<LpmAlgorithms6>([&]<typename A>(A) {
    if (!takes_part(A::kName)) return;
    const auto* view = &shared_view6<A>();
    for (LpmIsa isa : available_lpm_isas()) {
      const bool best = isa == available_lpm_isas().back();
      if (!best && std::string_view(A::kName) != "planb") continue;
      contest.add<uint32_t>(
          std::string(A::kName) + (best ? "" : std::string("_") + to_string(isa)), false, expected,
          [=](size_t at, size_t n, uint32_t* out) { view->lookup_bulk(isa, hi + at, lo + at, out, n); });
    }
  });
#if defined(SLUICE_PEERS)
  for (bool vector : {false, true}) {
    rte_fib6* fib = shared_fib6();
    const auto kind = vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 : RTE_FIB6_LOOKUP_TRIE_SCALAR;
    if (fib == nullptr || rte_fib6_select_lookup(fib, kind) != 0) continue;
    auto* wire = reinterpret_cast<uint8_t(*)[RTE_FIB6_IPV6_ADDR_SIZE]>(const_cast<Be64*>(tables().wire6[p].data()));
    contest.add<uint64_t>(std::string("rte_fib6_4B") + (vector ? "_avx512" : "_scalar"), true, expected,
                          [=](size_t at, size_t n, uint64_t* out) {
                            if (at == 0) rte_fib6_select_lookup(fib, kind);
                            rte_fib6_lookup_bulk(fib, wire + at, out, static_cast<int>(n));
                          });
  }
#endif
  return contest;
}

// A repetition of a benchmark reports its competitor's time in the round of that number.
void register_contest(int family, int p, size_t burst) {
  auto contest = [family, p, burst]() -> Contest& { return family == 4 ? contest4(p, burst) : contest6(p, burst); };
  std::vector<std::string> names, own;
  auto add_own = [&](std::string_view name) {
    if (takes_part(name)) own.emplace_back(name);
  };
  if (family == 4) {
    for (const std::string& name : lpm_algorithm_names4()) {
      add_own(name);
      if (asks_ahead(name, burst)) own.push_back(name + "_ahead");
    }
  } else {
    for (const std::string& name : lpm_algorithm_names6()) add_own(name);
  }
  names = own;
  if (family == 6) {
    for (LpmIsa isa : available_lpm_isas()) {
      if (isa != available_lpm_isas().back()) names.push_back(std::string("planb_") + to_string(isa));
    }
  }
#if defined(SLUICE_PEERS)
  const std::vector<std::string> peers =
      family == 4 ? std::vector<std::string>{"rte_fib_2B_scalar", "rte_fib_2B_avx512", "rte_fib_4B_scalar",
                                             "rte_fib_4B_avx512", "rte_lpm_bulk",      "rte_lpm_x4"}
                  : std::vector<std::string>{"rte_fib6_4B_scalar", "rte_fib6_4B_avx512"};
  names.insert(names.end(), peers.begin(), peers.end());
#endif
  auto tail = std::string("/") + pattern_name(p) + "/" + std::to_string(burst);
  auto timed = [&](const std::string& what, auto report) {
    auto count = std::make_shared<size_t>(0);
    benchmark::RegisterBenchmark(what.c_str(),
                                 [=](benchmark::State& state) {
                                   auto round = contest().round((*count)++);
                                   if (!round) return state.SkipWithError(round.error().message.c_str());
                                   report(state, contest().competitors(), **round);
                                   state.SetLabel(tables().real ? "full table" : "random table");
                                 })
        ->UseManualTime()
        ->Iterations(1);
  };
  for (const std::string& name : names) {
    timed("lookup" + std::to_string(family) + "/" + name + tail,
          [name](benchmark::State& state, const std::vector<Competitor>& all, const std::vector<double>& seconds) {
            for (size_t c = 0; c < all.size(); ++c) {
              if (all[c].name != name) continue;
              for (auto _ : state) state.SetIterationTime(seconds[c]);
              state.SetItemsProcessed(static_cast<int64_t>(kAddresses));
              return;
            }
            state.SkipWithError("not available here");
          });
  }
#if defined(SLUICE_PEERS)
  // How many times the rate of the fastest peer of the same round.
  for (const std::string& name : own) {
    timed("against_peers" + std::to_string(family) + "/" + name + tail,
          [name](benchmark::State& state, const std::vector<Competitor>& all, const std::vector<double>& seconds) {
            double mine = 0, best = 0;
            for (size_t c = 0; c < all.size(); ++c) {
              if (all[c].name == name) mine = seconds[c];
              if (all[c].peer && (best == 0 || seconds[c] < best)) best = seconds[c];
            }
            for (auto _ : state) state.SetIterationTime(mine);
            state.counters["ratio"] = mine == 0 ? 0 : best / mine;
          });
  }
#endif
}

// What changes a full table, in one of the ways there are; publish() gives the view of what was set.
struct PatchedTable4 {
  std::unique_ptr<PatchedRoutes> table;
  std::deque<std::shared_ptr<const Image>> held;  // versions that may be read

  explicit PatchedTable4(const char* algorithm)
      : table(std::move(*PatchedRoutes::create(tables().rib, {.algorithm4 = algorithm}))) {}
  void set(const Route4& r, uint32_t hop) { table->set(prefix4(r.address, r.length), hop); }
  template <typename View>
  std::optional<View> publish() {
    auto image = table->publish();
    if (!image) return std::nullopt;
    held.push_back(*image);
    return *View::open((*image)->section(SectionTag::kFib4), 256, true);
  }
  // Nobody reads what came before the last version.
  void release() {
    while (held.size() > 1) held.pop_front();
  }
};
struct PatchedDir24 : PatchedTable4 {
  using View = Dir24View;
  PatchedDir24() : PatchedTable4("dir24") {}
};
struct PatchedSail : PatchedTable4 {
  using View = SailView;
  PatchedSail() : PatchedTable4("sail") {}
};
uint32_t drawn_hop(std::mt19937_64& random) {
  return random() % 3 == 0 ? 0 : 1 + static_cast<uint32_t>(random() % 256);
}

// Makes what is made once, replicas above all: each is a change, or there is nothing to publish.
template <typename Table>
void warm_up(Table& table) {
  const Route4 route = tables().rib.routes4().front();
  for (uint32_t i = 0; i < 4; ++i) {
    table.set(route, 1 + i % 2);
    (void)table.template publish<typename Table::View>();
    table.release();
  }
}

// `changes` of a full table (a third withdrawals, the rest moves and returns), then a publication, as one iteration.
template <typename Table>
void set_and_publish(benchmark::State& state, size_t changes) {
  static Table table;
  const auto routes = tables().rib.routes4();
  std::mt19937_64 random(3);
  warm_up(table);
  for (auto _ : state) {
    for (size_t i = 0; i < changes; ++i) table.set(routes[random() % routes.size()], drawn_hop(random));
    if (!table.template publish<typename Table::View>()) return state.SkipWithError("no memory");
    table.release();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * changes));
}

// Lookups in runs of 256, beside a thread that makes a million changes a second and publishes a hundred times: of the
// table that is read, or of another one like it, which is the control. What that one costs is the machine's.
enum class Beside { kNobody, kWriter, kAnotherTablesWriter };

template <typename Table>
void lookup_beside(benchmark::State& state, int pattern, Beside beside) {
  static Table table, another;
  Table& changing = beside == Beside::kAnotherTablesWriter ? another : table;
  constexpr double kRate = 1e6;
  struct Version {
    typename Table::View view;
    uint64_t number;
  };
  std::deque<Version> versions;
  std::atomic<const Version*> current;
  std::atomic<uint64_t> seen{0};
  std::vector<double> effects;
  auto publish = [&](Table& of) {
    const auto view = of.template publish<typename Table::View>();
    if (!view) return false;
    if (&of != &table) return true;
    versions.push_back({*view, versions.size() + 1});
    current.store(&versions.back(), std::memory_order_release);
    return true;
  };
  warm_up(table);
  warm_up(another);
  if (!publish(table)) return state.SkipWithError("no memory");
  table.release();
  std::atomic<bool> stop{false};
  double changes = 0, seconds = 0;
  std::thread writer;
  if (beside != Beside::kNobody) {
    writer = std::thread([&] {
      const auto routes = tables().rib.routes4();
      std::mt19937_64 random(3);
      const auto begin = std::chrono::steady_clock::now();
      auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
      double turn = 0;
      while (!stop.load(std::memory_order_relaxed)) {
        const double first = now();
        // One that falls behind does not make up for it.
        const double due = std::min(kRate * first, changes + kRate / 100);
        for (; changes < due; ++changes) changing.set(routes[random() % routes.size()], drawn_hop(random));
        publish(changing);
        const uint64_t number = versions.size();
        while (seen.load(std::memory_order_acquire) < number && !stop.load(std::memory_order_relaxed))
          std::this_thread::yield();
        changing.release();
        effects.push_back(now() - first);
        while (now() < turn + 0.01 && !stop.load(std::memory_order_relaxed))
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        turn = std::max(turn + 0.01, now() - 0.01);  // a hundred a second, whatever a sleep is late
      }
      seconds = now();
    });
  }
  const uint32_t* addresses = tables().a4[pattern].data();
  uint32_t next_hops[256];
  size_t at = 0;
  for (auto _ : state) {
    const Version* version = current.load(std::memory_order_acquire);
    version->view.lookup_bulk(addresses + at, next_hops, 256);
    benchmark::DoNotOptimize(next_hops);
    seen.store(version->number, std::memory_order_release);
    at = (at + 256) % kAddresses;
  }
  stop = true;
  if (writer.joinable()) writer.join();
  table.release();
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * 256);
  if (effects.empty()) return;
  std::sort(effects.begin(), effects.end());
  state.counters["changes"] = changes / seconds;
  state.counters["publications"] = static_cast<double>(effects.size()) / seconds;
  state.counters["effect_p99_ms"] = effects[effects.size() * 99 / 100] * 1e3;
}

template <typename Table>
void register_changes(const std::string& name) {
  for (size_t changes : {size_t{200}, size_t{10'000}}) {
    benchmark::RegisterBenchmark((name + "/set_and_publish/" + std::to_string(changes)).c_str(),
                                 [changes](benchmark::State& state) { set_and_publish<Table>(state, changes); })
        ->Unit(benchmark::kMillisecond);
  }
  for (int pattern = 0; pattern < kPatterns; ++pattern) {
    for (const Beside beside : {Beside::kNobody, Beside::kWriter, Beside::kAnotherTablesWriter}) {
      const char* what = beside == Beside::kNobody   ? "/lookup/"
                         : beside == Beside::kWriter ? "/lookup_at_1M_changes/"
                                                     : "/lookup_at_1M_changes_elsewhere/";
      benchmark::RegisterBenchmark((name + what + pattern_name(pattern)).c_str(), [=](benchmark::State& state) {
        lookup_beside<Table>(state, pattern, beside);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

void register_all() {
  for (int family : {4, 6}) {
    for (int p = 0; p < kPatterns; ++p) {
      for (size_t burst : {size_t{32}, size_t{4096}}) register_contest(family, p, burst);
    }
  }
  auto build = [](const char* what, Result<FibPlan> (*plan)(const Rib&)) {
    benchmark::RegisterBenchmark(what, [plan](benchmark::State& state) { build_benchmark(state, plan); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  // 10,000 changes at once; 200, a busy second of BGP divided by a hundred publications; and what IPv6 takes for the
  // same: a new table.
  register_changes<PatchedDir24>("patched4/dir24");
  register_changes<PatchedSail>("patched4/sail");
  build("build4/dir24", Dir24::plan4);
  build("build4/poptrie", Poptrie::plan4);
  build("build4/sail", Sail::plan4);
  build("build4/trie", Trie::plan4);
  build("build6/poptrie", Poptrie::plan6);
  build("build6/planb", PlanB::plan6);
  build("build6/range24", Range24::plan6);
  build("build6/trie", Trie::plan6);
}

const bool registered = (register_all(), true);

}  // namespace
}  // namespace sluice

#if defined(SLUICE_PEERS)
// DPDK's tables get the same pages as ours: with --no-huge its allocator has 4 KiB pages only, so its large allocations
// are answered here, before librte_eal's own function (the executable's symbols come first).
extern "C" void* rte_zmalloc_socket(const char* type, size_t size, unsigned align, int socket) {
  constexpr size_t kHuge = size_t{2} << 20;
  if (size >= kHuge) {
    const size_t rounded = (size + kHuge - 1) / kHuge * kHuge;
    void* mapping = mmap(nullptr, rounded + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    const auto start = (reinterpret_cast<uintptr_t>(mapping) + kHuge - 1) / kHuge * kHuge;
    madvise(reinterpret_cast<void*>(start), rounded, MADV_HUGEPAGE);
    return reinterpret_cast<void*>(start);  // never freed: the tables live until the process ends
  }
  using Function = void* (*)(const char*, size_t, unsigned, int);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "rte_zmalloc_socket"));
  return next(type, size, align, socket);
}
#endif
