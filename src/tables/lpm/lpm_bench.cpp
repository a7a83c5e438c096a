// LPM build times and lookup rates on real full tables ($SLUICE_DATA/rib/*.txt.xz; a random table where they are
// absent), by one core, and with -DSLUICE_BENCH_PEERS=ON those of DPDK's rte_fib and rte_lpm in the same run:
//
//   tables_benches --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
//                  --benchmark_report_aggregates_only=true
//
// Every lookup benchmark first compares its answers with the trie's and refuses to run on a mismatch. Times are the
// thread's CPU time. SLUICE_PEER_LPM=1 adds rte_lpm, whose insertion of the table takes minutes. The peers' large
// allocations are served from 2 MiB-aligned memory with MADV_HUGEPAGE, as ours are.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "net/text.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"

#if defined(SLUICE_PEERS)
#include <dlfcn.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_malloc.h>
#include <sys/mman.h>
#endif

namespace sluice {
namespace {

using namespace lpm_test;

constexpr size_t kAddresses = size_t{1} << 20;

struct Tables {
  Rib rib;
  bool real = true;
  std::vector<uint32_t> a4[2];  // uniform, prefix-weighted
  Addresses6 a6[2];
  std::vector<uint32_t> expected4[2], expected6[2];
};

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
    t.a4[0] = uniform4(kAddresses, 11);
    t.a4[1] = prefix_weighted4(t.rib.routes4(), kAddresses, 12);
    t.a6[0] = uniform6(kAddresses, 13);
    t.a6[1] = prefix_weighted6(t.rib.routes6(), kAddresses, 14);
    const auto image = build_routes(t.rib, "trie", "trie");
    for (int p = 0; p < 2; ++p) {
      t.expected4[p].resize(kAddresses);
      t.expected6[p].resize(kAddresses);
      (void)with_fib4(*image, [&](const auto& v) { v.lookup_bulk(t.a4[p].data(), t.expected4[p].data(), kAddresses); });
      (void)with_fib6(*image, [&](const auto& v) {
        v.lookup_bulk(t.a6[p].hi.data(), t.a6[p].lo.data(), t.expected6[p].data(), kAddresses);
      });
    }
    return t;
  }();
  return all;
}

const char* pattern_name(int p) {
  return p == 0 ? "uniform" : "weighted";
}

// f(first address, count, out): out[i] as the type that the library writes. Checks all answers, then times bursts.
template <typename Out, typename F>
void run_lookups(benchmark::State& state, const std::vector<uint32_t>& expected, size_t burst, F&& f) {
  std::vector<Out> out(burst);
  for (size_t i = 0; i < kAddresses; i += burst) {
    f(i, burst, out.data());
    for (size_t k = 0; k < burst; ++k) {
      if (static_cast<uint32_t>(out[k] & 0xffffff) != expected[i + k])
        return state.SkipWithError("differs from the trie");
    }
  }
  size_t at = 0;
  for (auto _ : state) {
    f(at, burst, out.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
    at = (at + burst) & (kAddresses - 1);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(burst));
  state.SetLabel(tables().real ? "full table" : "random table");
}

void build_benchmark(benchmark::State& state, Result<FibPlan> (*plan)(const Rib&)) {
  const Rib& rib = tables().rib;
  size_t bytes = 0;
  for (auto _ : state) {
    auto fib = plan(rib);
    if (!fib) return state.SkipWithError("cannot build");
    auto buffer = Buffer::allocate(fib->bytes);
    if (!buffer) return state.SkipWithError("no memory");
    fib->write({buffer->data(), buffer->size()});
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
                                     "1024",
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
    conf.max_routes = 1 << 19;
    conf.trie.nh_sz = RTE_FIB6_TRIE_4B;
    conf.trie.num_tbl8 = 1 << 16;
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

rte_lpm* shared_lpm() {
  static rte_lpm* const lpm = []() -> rte_lpm* {
    if (!eal_started()) return nullptr;
    rte_lpm_config config{};
    config.max_rules = 1 << 20;
    config.number_tbl8s = 8192;
    rte_lpm* made = rte_lpm_create("lpm", 0, &config);
    if (made == nullptr) return nullptr;
    const auto start = std::chrono::steady_clock::now();
    for (const Route4& r : tables().rib.routes4()) {
      if (r.length != 0 && rte_lpm_add(made, r.address, r.length, r.next_hop) != 0) return nullptr;
    }
    std::fprintf(stderr, "rte_lpm: %.1f s to insert\n",
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return made;
  }();
  return lpm;
}
#endif

void register_all() {
  auto name = [](const std::string& what, int pattern, size_t burst) {
    return what + "/" + pattern_name(pattern) + "/" + std::to_string(burst);
  };
  for (int p = 0; p < 2; ++p) {
    for (size_t burst : {size_t{32}, size_t{4096}}) {
      for_each_lpm<LpmAlgorithms4>([&]<typename A>(A) {
        if (burst == 32 && std::string_view(A::kName) == "trie") return;
        auto go = [p, burst](benchmark::State& state, int isa) {
          static const auto image = build_routes(tables().rib, A::kName, "trie");
          auto view = A::View4::open(image->section(SectionTag::kFib4), tables().rib.next_hop_count());
          if (!view) return state.SkipWithError("cannot open");
          run_lookups<uint32_t>(state, tables().expected4[p], burst, [&](size_t at, size_t n, uint32_t* out) {
            if (isa < 0) {
              view->lookup_bulk(tables().a4[p].data() + at, out, n);
            } else {
              view->lookup_bulk(static_cast<LpmIsa>(isa), tables().a4[p].data() + at, out, n);
            }
          });
        };
        benchmark::RegisterBenchmark(name(std::string("lookup4/") + A::kName, p, burst).c_str(), go, -1);
        if (std::string_view(A::kName) == "trie") return;
        for (LpmIsa isa : available_lpm_isas()) {
          benchmark::RegisterBenchmark(
              name(std::string("lookup4/") + A::kName + "_" + to_string(isa), p, burst).c_str(), go,
              static_cast<int>(isa));
        }
      });
      for_each_lpm<LpmAlgorithms6>([&]<typename A>(A) {
        if (burst == 32 && std::string_view(A::kName) == "trie") return;
        auto go = [p, burst](benchmark::State& state) {
          static const auto image = build_routes(tables().rib, "trie", A::kName);
          auto view = A::View6::open(image->section(SectionTag::kFib6), tables().rib.next_hop_count());
          if (!view) return state.SkipWithError("cannot open");
          const Addresses6& a = tables().a6[p];
          run_lookups<uint32_t>(state, tables().expected6[p], burst, [&](size_t at, size_t n, uint32_t* out) {
            view->lookup_bulk(a.hi.data() + at, a.lo.data() + at, out, n);
          });
        };
        benchmark::RegisterBenchmark(name(std::string("lookup6/") + A::kName, p, burst).c_str(), go);
      });
#if defined(SLUICE_PEERS)
      for (bool two : {true, false}) {
        for (bool vector : {false, true}) {
          const std::string what =
              std::string("lookup4/rte_fib_") + (two ? "2B" : "4B") + (vector ? "_avx512" : "_scalar");
          benchmark::RegisterBenchmark(name(what, p, burst).c_str(), [=](benchmark::State& state) {
            rte_fib* fib = shared_fib(two);
            if (fib == nullptr) return state.SkipWithError("no rte_fib");
            const auto kind = vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO;
            if (rte_fib_select_lookup(fib, kind) != 0) return state.SkipWithError("lookup not available");
            std::vector<uint32_t> addresses = tables().a4[p];
            run_lookups<uint64_t>(state, tables().expected4[p], burst, [&](size_t at, size_t n, uint64_t* out) {
              rte_fib_lookup_bulk(fib, addresses.data() + at, out, static_cast<int>(n));
            });
          });
        }
      }
      for (bool vector : {false, true}) {
        benchmark::RegisterBenchmark(
            name(std::string("lookup6/rte_fib6") + (vector ? "_avx512" : "_scalar"), p, burst).c_str(),
            [=](benchmark::State& state) {
              rte_fib6* fib = shared_fib6();
              if (fib == nullptr) return state.SkipWithError("no rte_fib6");
              const auto kind = vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 : RTE_FIB6_LOOKUP_TRIE_SCALAR;
              if (rte_fib6_select_lookup(fib, kind) != 0) return state.SkipWithError("lookup not available");
              std::vector<Be64> words(kAddresses * 2);
              for (size_t i = 0; i < kAddresses; ++i) {
                words[2 * i].set(tables().a6[p].hi[i]);
                words[2 * i + 1].set(tables().a6[p].lo[i]);
              }
              auto* addresses = reinterpret_cast<uint8_t(*)[RTE_FIB6_IPV6_ADDR_SIZE]>(words.data());
              run_lookups<uint64_t>(state, tables().expected6[p], burst, [&](size_t at, size_t n, uint64_t* out) {
                rte_fib6_lookup_bulk(fib, addresses + at, out, static_cast<int>(n));
              });
            });
      }
      if (std::getenv("SLUICE_PEER_LPM") != nullptr) {
        benchmark::RegisterBenchmark(name("lookup4/rte_lpm", p, burst).c_str(), [=](benchmark::State& state) {
          rte_lpm* lpm = shared_lpm();
          if (lpm == nullptr) return state.SkipWithError("no rte_lpm");
          // The valid bit is past the 24 bits that are compared; a miss is all zeros.
          run_lookups<uint32_t>(state, tables().expected4[p], burst, [&](size_t at, size_t n, uint32_t* out) {
            rte_lpm_lookup_bulk(lpm, tables().a4[p].data() + at, out, static_cast<unsigned>(n));
          });
        });
      }
#endif
    }
  }
  auto build = [](const char* what, Result<FibPlan> (*plan)(const Rib&)) {
    benchmark::RegisterBenchmark(what, [plan](benchmark::State& state) {
      build_benchmark(state, plan);
    })->Unit(benchmark::kMillisecond);
  };
  build("build4/dir24", Dir24::plan4);
  build("build4/poptrie", Poptrie::plan4);
  build("build4/trie", Trie::plan4);
  build("build6/poptrie", Poptrie::plan6);
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
