// sluice bench forward: IPv4 forwarding of one batch of packets in memory, as GPU routers are measured: for every
// packet TTL, header checksum and next hop, from one array to another, by packets, routes, lookup, workers, layout,
// payload, TTLs and whether batches in a row use the same memory. host only
#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>

#include "apps/bench/bench.h"
#include "apps/sluice/inputs.h"
#include "base/clock.h"
#include "base/thread.h"
#include "generate/random.h"
#include "net/checksum.h"
#include "tables/lpm/algorithms.h"

namespace sluice::app {
namespace {

constexpr uint32_t kExpired = UINT32_MAX;           // in place of a next hop: the TTL ends here
constexpr size_t kAtOnce = 256;                     // addresses of a lookup
constexpr uint64_t kMostBytes = uint64_t{4} << 30;  // of a batch, of which there are three copies at most

struct ForwardOptions : BenchOptions {
  std::vector<uint32_t> packet_counts = {10'000, 100'000, 1'000'000, 10'000'000};
  std::vector<unsigned> worker_counts = {1};
  std::vector<std::string> layouts = {"headers"};
  std::vector<uint32_t> payloads = {0};  // bytes behind a header, with layout headers
  std::vector<std::string> ttls = {"uniform"};
  std::vector<std::string> memory;  // reused, fresh: of `in_a_row` batches; empty: of one batch again and again
  unsigned in_a_row = 10;
};

constexpr size_t kHeaderBytes = 20;  // no options

// The arrays of a batch, without contents at first: packets one after the other (layout headers), or each field that
// forwarding reads and writes in an array of its own (layout fields). `words`: of the input destinations, of the output
// next hops.
struct Arrays {
  std::unique_ptr<uint8_t[]> packets, ttls;
  std::unique_ptr<uint16_t[]> checksums;
  std::unique_ptr<uint32_t[]> words;

  void make_packets(size_t n, size_t stride) { packets.reset(new uint8_t[n * stride]); }
  void make_words(size_t n) { words.reset(new uint32_t[n]); }
  void make_fields(size_t n) {
    ttls.reset(new uint8_t[n]);
    checksums.reset(new uint16_t[n]);
  }
};

uint8_t drawn_ttl(const std::string& distribution, Random& random) {
  if (distribution == "fixed") return 64;
  if (distribution == "expiring" && random.below(2) == 0) return 1;
  return static_cast<uint8_t>(1 + random.below(255));
}

// The batch in both layouts.
Arrays make_batch(const std::vector<uint32_t>& destinations, uint32_t payload, const std::string& ttls, uint64_t seed) {
  Random random(seed, 7);
  const size_t n = destinations.size(), stride = kHeaderBytes + payload;
  Arrays batch;
  batch.make_packets(n, stride);
  batch.make_words(n);
  batch.make_fields(n);
  for (size_t i = 0; i < n; ++i) {
    uint8_t* b = batch.packets.get() + i * stride;
    const uint8_t begin[] = {0x45, 0, 0, 0, 0, 0, 0, 0};
    std::memcpy(b, begin, sizeof begin);
    // Without a payload here it is 26 bytes that stay elsewhere.
    store_be16(b + 2, static_cast<uint16_t>(kHeaderBytes + (payload != 0 ? payload : 26)));
    b[8] = drawn_ttl(ttls, random);
    b[9] = 17;
    store_be16(b + 10, 0);
    store_be32(b + 12, 10u << 24 | (static_cast<uint32_t>(random.next()) & 0xffffff));
    store_be32(b + 16, destinations[i]);
    const uint16_t checksum = ipv4_header_checksum(b, kHeaderBytes);
    store_be16(b + 10, checksum);
    for (uint32_t k = 0; k < payload; ++k) b[kHeaderBytes + k] = static_cast<uint8_t>(i + k);
    batch.words[i] = destinations[i];
    batch.ttls[i] = b[8];
    batch.checksums[i] = checksum;
  }
  return batch;
}

uint16_t checksum_of_next(uint16_t checksum, uint8_t ttl) {
  return checksum_update(checksum, static_cast<uint16_t>(ttl << 8 | 17), static_cast<uint16_t>((ttl - 1) << 8 | 17));
}

// kStride: 0 where it is not known beforehand.
template <size_t kStride>
void forward_packets(const LoadedRoutes& routes, const Arrays& in, const Arrays& out, size_t begin, size_t end,
                     size_t given_stride) {
  const size_t stride = kStride != 0 ? kStride : given_stride;
  uint32_t to[kAtOnce];
  for (size_t at = begin; at < end; at += kAtOnce) {
    const size_t n = std::min(kAtOnce, end - at);
    for (size_t i = 0; i < n; ++i) to[i] = load_be32(in.packets.get() + (at + i) * stride + 16);
    routes.lookup4(to, out.words.get() + at, n);
    for (size_t i = at; i < at + n; ++i) {
      const uint8_t* from = in.packets.get() + i * stride;
      uint8_t* b = out.packets.get() + i * stride;
      std::memcpy(b, from, stride);
      const uint8_t ttl = from[8];
      store_be16(b + 10, checksum_of_next(load_be16(from + 10), ttl));
      b[8] = static_cast<uint8_t>(ttl - 1);
      if (ttl <= 1) out.words[i] = kExpired;
    }
  }
}

void forward_fields(const LoadedRoutes& routes, const Arrays& in, const Arrays& out, size_t begin, size_t end) {
  for (size_t at = begin; at < end; at += kAtOnce) {
    const size_t n = std::min(kAtOnce, end - at);
    routes.lookup4(in.words.get() + at, out.words.get() + at, n);
    for (size_t i = at; i < at + n; ++i) {
      const uint8_t ttl = in.ttls[i];
      out.checksums[i] = checksum_of_next(in.checksums[i], ttl);
      out.ttls[i] = static_cast<uint8_t>(ttl - 1);
      if (ttl <= 1) out.words[i] = kExpired;
    }
  }
}

// What is forwarded and how.
struct Forwarding {
  const LoadedRoutes& routes;
  bool headers;
  size_t stride;  // with headers
  size_t packets;

  void make_input(Arrays& a) const {
    if (headers) return a.make_packets(packets, stride);
    a.make_words(packets);
    a.make_fields(packets);
  }
  void make_output(Arrays& a) const {
    a.make_words(packets);
    headers ? a.make_packets(packets, stride) : a.make_fields(packets);
  }
  // As a batch comes in.
  void copy(const Arrays& from, const Arrays& to, size_t begin, size_t end) const {
    const size_t n = end - begin;
    if (headers) {
      std::memcpy(to.packets.get() + begin * stride, from.packets.get() + begin * stride, n * stride);
      return;
    }
    std::memcpy(to.words.get() + begin, from.words.get() + begin, n * sizeof(uint32_t));
    std::memcpy(to.ttls.get() + begin, from.ttls.get() + begin, n);
    std::memcpy(to.checksums.get() + begin, from.checksums.get() + begin, n * sizeof(uint16_t));
  }
  void forward(const Arrays& in, const Arrays& out, size_t begin, size_t end) const {
    if (!headers) return forward_fields(routes, in, out, begin, end);
    if (stride == kHeaderBytes) return forward_packets<kHeaderBytes>(routes, in, out, begin, end, stride);
    forward_packets<0>(routes, in, out, begin, end, stride);
  }
  // The sum of all header words anew and the trie's next hop: what every packet of the sample must have come to, with
  // its payload.
  uint64_t wrong_of(const LoadedRoutes& oracle, const Arrays& in, const Arrays& out, size_t sample) const {
    uint64_t wrong = 0;
    std::vector<uint8_t> want(stride);
    for (size_t k = 0; k < sample; ++k) {
      const size_t i = k * packets / sample;
      std::memcpy(want.data(), in.packets.get() + i * stride, stride);
      uint32_t hop = 0;
      oracle.lookup4(&in.words[i], &hop, 1);
      if (want[8] <= 1) hop = kExpired;
      want[8] = static_cast<uint8_t>(want[8] - 1);
      store_be16(want.data() + 10, 0);
      store_be16(want.data() + 10, ipv4_header_checksum(want.data(), kHeaderBytes));
      const bool same = headers ? std::memcmp(out.packets.get() + i * stride, want.data(), stride) == 0
                                : out.ttls[i] == want[8] && out.checksums[i] == load_be16(want.data() + 10);
      wrong += !same || out.words[i] != hop ? 1 : 0;
    }
    return wrong;
  }
};

// `values` rates of `job(begin, end)` over `packets` packets by `workers` threads, each with an even part, in millions
// a second. Every batch begins and ends for all workers together. A rate is that of as many batches as take a tenth of
// a second, or with `before` of `in_a_row` batches, and of what that does before each of them (from 0) on one thread.
std::vector<double> rates_of(size_t packets, unsigned workers, unsigned values,
                             const std::function<void(size_t begin, size_t end)>& job, unsigned in_a_row = 0,
                             const std::function<void(unsigned batch)>& before = nullptr) {
  std::barrier<> gate(static_cast<ptrdiff_t>(workers));
  bool over = false;  // written between two gates, read after the second
  const auto part = [&](unsigned w) { job(packets * w / workers, packets * (w + 1) / workers); };
  std::vector<std::jthread> threads;
  const auto end_all = [&] {
    over = true;
    gate.arrive_and_wait();
    threads.clear();
  };
  for (unsigned w = 1; w < workers; ++w) {
    auto thread = start_thread([&, w] {
      for (;;) {
        gate.arrive_and_wait();
        if (over) return;
        part(w);
        gate.arrive_and_wait();
      }
    });
    if (!thread.ok()) {
      for (unsigned missing = w; missing < workers; ++missing) gate.arrive_and_drop();
      end_all();
      fail(Exit::kIo, std::move(thread).error());
    }
    threads.push_back(std::move(*thread));
  }
  std::vector<double> rates;
  while (rates.size() < values && !interrupted().load(std::memory_order_relaxed)) {
    const uint64_t begin = now_ns();
    uint64_t done = 0, took = 0;
    unsigned batch = 0;
    do {
      if (before) before(batch);
      gate.arrive_and_wait();
      part(0);
      gate.arrive_and_wait();
      done += packets;
      took = now_ns() - begin;
    } while (before ? ++batch < in_a_row : took < 100'000'000);
    rates.push_back(static_cast<double>(done) / static_cast<double>(took) * 1e3);
  }
  end_all();
  stop_if_interrupted();
  return rates;
}

Exit bench_forward(const ForwardOptions& o) {
  const std::vector<std::string> algorithms = split_commas(o.algorithm);
  for (const std::string& name : algorithms) check_lpm_algorithms(name);
  Progress progress("");
  progress.step("generating routes and packets");
  std::string hash;
  const Rib rib = rib_of(o, hash);
  if (rib.routes4().empty()) fail(Exit::kBadInput, "there are no IPv4 routes", "give --ipv4 1 or more, or --routes");
  const size_t entries = rib.routes4().size();
  const size_t most = *std::max_element(o.packet_counts.begin(), o.packet_counts.end());
  if (const uint64_t bytes = most * (kHeaderBytes + *std::max_element(o.payloads.begin(), o.payloads.end()));
      bytes > kMostBytes)
    fail(Exit::kUsage, fmt::format("--packets and --payload: a batch has {} bytes", with_commas(bytes)),
         fmt::format("{} at most", with_commas(kMostBytes)));
  std::vector<uint32_t> destinations;
  {
    Rib only4(rib.next_hops());
    for (const Route4& r : rib.routes4()) only4.add4(r.address, r.length, r.next_hop);
    only4.settle();
    destinations = draw_addresses(only4, "prefix", most, o.seed).v4;
  }
  const LoadedRoutes oracle = build_loaded_routes(rib, {}, Trie::kName);
  stop_if_interrupted();
  std::vector<Case> cases;
  Verified verified{0, 0, "trie, and checksums summed anew"};
  // The packets that every algorithm forwards.
  for (const uint32_t payload : o.payloads) {
    for (const std::string& ttls : o.ttls) {
      progress.step("generating packets");
      const Arrays batch = make_batch(destinations, payload, ttls, o.seed);
      for (const std::string& algorithm : algorithms) {
        if (algorithm == Linear::kName && entries > kMostLinear) {
          note(fmt::format("{} is skipped: it takes {} routes at most", algorithm, with_commas(kMostLinear)));
          continue;
        }
        const LoadedRoutes routes = build_loaded_routes(rib, {}, algorithm);
        for (const std::string& layout : o.layouts) {
          // A field's array has no payload: one row says all.
          if (layout == "fields" && payload != o.payloads.front()) continue;
          for (const uint32_t packets : o.packet_counts) {
            const Forwarding forwarding{routes, layout == "headers", kHeaderBytes + payload, packets};
            std::string what = layout;
            if (layout == "headers" && payload != 0) what += fmt::format("+{}B", payload);
            if (ttls != "uniform") what += "/ttl_" + ttls;
            for (const unsigned workers : o.worker_counts) {
              const std::string name =
                  fmt::format("{}_routes/{}/{}/x{}/{}", entries, algorithm, what, workers, packets);
              const auto add = [&](const std::string& row, std::vector<double> rates, const Arrays& out) {
                if (o.spoil) out.words[0] ^= 1;
                const uint64_t sample = std::min<uint64_t>(o.sample, packets);
                verified.sample += sample;
                verified.mismatches += forwarding.wrong_of(oracle, batch, out, sample);
                require(verified, row);
                cases.push_back({row,
                                 "Mpackets/s",
                                 std::move(rates),
                                 {{"workers", workers}, {"routes", entries}, {"build_seconds", routes.build_seconds}}});
              };
              progress.step(name);
              Arrays in, out;
              if (o.memory.empty()) {
                forwarding.make_output(out);
                // Its pages are there before the first batch.
                std::fill_n(out.words.get(), packets, 0);
                forwarding.copy(batch, out, 0, packets);
                add(name,
                    rates_of(packets, workers, o.repetitions,
                             [&](size_t begin, size_t end) { forwarding.forward(batch, out, begin, end); }),
                    out);
                continue;
              }
              for (const std::string& memory : o.memory) {
                const auto before = [&](unsigned number) {
                  if (number != 0 && memory == "reused") return;
                  in = Arrays();
                  out = Arrays();
                  forwarding.make_input(in);
                  forwarding.make_output(out);
                };
                const std::string row = fmt::format("{}/{}_{}", name, o.in_a_row, memory);
                progress.step(row);
                add(row,
                    rates_of(
                        packets, workers, o.repetitions,
                        [&](size_t begin, size_t end) {
                          forwarding.copy(batch, in, begin, end);
                          forwarding.forward(in, out, begin, end);
                        },
                        o.in_a_row, before),
                    out);
              }
            }
          }
        }
      }
    }
  }
  progress.clear();
  return bench_report(o, "forward", hash, verified, std::move(cases),
                      {{"device", "cpu"}, {"gpu", ""}, {"routes4", entries}, {"clock", "wall"}});
}

}  // namespace

void add_bench_forward(Command bench) {
  auto o = std::make_shared<ForwardOptions>();
  o->ipv4 = 101;
  o->ipv6 = 0;
  o->algorithm = Dir24::kName;
  Command sub = add_subcommand(
      bench, "forward", "Subcommands",
      "Measures IPv4 forwarding of a batch of headers from one array to another: TTL, checksum, next hop; by packets, "
      "routes, "
      "lookup, workers, layout, payload and memory",
      "sluice bench forward --algorithm linear,bloom,dir24,sail\nsluice bench forward --routes rib4.txt --packets "
      "1000000 --workers 1,2 --layout headers,fields -o json\nsluice bench forward --packets 100000 --payload "
      "0,512,1480 --ttl uniform,expiring\nsluice bench forward --packets 1000000 --in-a-row 10 --memory reused,fresh",
      [o] { return bench_forward(*o); });
  sub->add_option("--packets", o->packet_counts, "Packets of a batch")
      ->delimiter(',')
      ->check(Range(1u, 100'000'000u))
      ->type_name("N,...")
      ->capture_default_str();
  Option file = sub->add_option("--routes", o->routes, "Route files (default: generated)")->type_name("FILE[,FILE]");
  sub->add_option("--ipv4", o->ipv4, "Generated IPv4 routes")
      ->check(Range(1u, 2'000'000u))
      ->excludes(file)
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--algorithm", o->algorithm, "Route algorithms for IPv4, each on the same packets")
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option("--layout", o->layouts, "headers: whole headers; fields: an array of each field")
      ->delimiter(',')
      ->check(OneOf{{"headers", "fields"}})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option("--payload", o->payloads, "Layout headers: bytes behind each header, which are copied with it")
      ->delimiter(',')
      ->check(Range(0u, 9000u))
      ->type_name("BYTES,...")
      ->capture_default_str();
  sub->add_option("--ttl", o->ttls, "uniform: 1 to 255; fixed: 64; expiring: half of the packets have 1")
      ->delimiter(',')
      ->check(OneOf{{"uniform", "fixed", "expiring"}})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option("--memory", o->memory,
                  "Batches in a row, each copied in first: in arrays of the first one (reused), or each in its own, "
                  "allocated and released (fresh)")
      ->delimiter(',')
      ->check(OneOf{{"reused", "fresh"}})
      ->type_name("NAME,...");
  sub->add_number("--in-a-row", "N", o->in_a_row, "Batches in a row with --memory", Range(1u, 10'000u));
  sub->add_option("--workers", o->worker_counts, "Threads, each with an even part of the batch")
      ->delimiter(',')
      ->check(Range(1u, 256u))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_number("--repetitions", "N", o->repetitions, "Repetitions of each case, at least 5", Range(5u, 1000u));
  sub->add_number("--sample", "N", o->sample, "Packets compared with the reference",
                  Range(uint64_t{1}, uint64_t{100'000'000}));
  sub->add_option("--seed", o->seed, "Seed of routes and packets")->type_name("N")->capture_default_str();
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_forward)")->type_name("NAME");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
