// sluice bench forward: IPv4 forwarding of one batch of packets in memory, as GPU routers are measured: for every
// packet TTL, header checksum and next hop, from one array to another, by packets, routes, lookup and workers. host
// only
#include <algorithm>
#include <barrier>
#include <cstring>

#include "apps/sluice/inputs.h"
#include "base/clock.h"
#include "base/thread.h"
#include "bench.h"
#include "generate/random.h"
#include "net/checksum.h"
#include "tables/lpm/algorithms.h"

namespace sluice::app {
namespace {

constexpr uint32_t kExpired = UINT32_MAX;  // in place of a next hop: the TTL ends here
constexpr size_t kAtOnce = 256;            // addresses of a lookup

struct ForwardOptions : BenchOptions {
  std::vector<uint32_t> packet_counts = {10'000, 100'000, 1'000'000, 10'000'000};
  std::vector<unsigned> worker_counts = {1};
  std::vector<std::string> layouts = {"headers"};
};

// An IPv4 header without options, in wire order.
struct Header {
  uint8_t bytes[20];
};

// The batch, in both layouts: headers one after the other, and the fields that forwarding reads, each in its own array.
struct Batch4 {
  std::vector<Header> headers;
  std::vector<uint32_t> destinations;
  std::vector<uint8_t> ttls;
  std::vector<uint16_t> checksums;
};
struct Forwarded {
  std::vector<Header> headers;
  std::vector<uint8_t> ttls;
  std::vector<uint16_t> checksums;
  std::vector<uint32_t> next_hops;
};

// TTLs are 1 to 255, drawn evenly: of one packet in 255 it ends here.
Batch4 make_batch(const std::vector<uint32_t>& destinations, uint64_t seed) {
  Random random(seed, 7);
  Batch4 batch;
  for (const uint32_t to : destinations) {
    Header header{{0x45, 0, 0, 46}};
    uint8_t* b = header.bytes;
    b[8] = static_cast<uint8_t>(1 + random.below(255));
    b[9] = 17;
    store_be32(b + 12, 10u << 24 | (static_cast<uint32_t>(random.next()) & 0xffffff));
    store_be32(b + 16, to);
    const uint16_t checksum = ipv4_header_checksum(b, 20);
    store_be16(b + 10, checksum);
    batch.headers.push_back(header);
    batch.destinations.push_back(to);
    batch.ttls.push_back(b[8]);
    batch.checksums.push_back(checksum);
  }
  return batch;
}

uint16_t checksum_of_next(uint16_t checksum, uint8_t ttl) {
  return checksum_update(checksum, static_cast<uint16_t>(ttl << 8 | 17), static_cast<uint16_t>((ttl - 1) << 8 | 17));
}

void forward_headers(const LoadedRoutes& routes, const Batch4& in, Forwarded& out, size_t begin, size_t end) {
  uint32_t to[kAtOnce];
  for (size_t at = begin; at < end; at += kAtOnce) {
    const size_t n = std::min(kAtOnce, end - at);
    for (size_t i = 0; i < n; ++i) to[i] = load_be32(in.headers[at + i].bytes + 16);
    routes.lookup4(to, out.next_hops.data() + at, n);
    for (size_t i = 0; i < n; ++i) {
      Header header = in.headers[at + i];
      uint8_t* b = header.bytes;
      const uint8_t ttl = b[8];
      store_be16(b + 10, checksum_of_next(load_be16(b + 10), ttl));
      b[8] = static_cast<uint8_t>(ttl - 1);
      if (ttl <= 1) out.next_hops[at + i] = kExpired;
      out.headers[at + i] = header;
    }
  }
}

void forward_fields(const LoadedRoutes& routes, const Batch4& in, Forwarded& out, size_t begin, size_t end) {
  for (size_t at = begin; at < end; at += kAtOnce) {
    const size_t n = std::min(kAtOnce, end - at);
    routes.lookup4(in.destinations.data() + at, out.next_hops.data() + at, n);
    for (size_t i = at; i < at + n; ++i) {
      const uint8_t ttl = in.ttls[i];
      out.checksums[i] = checksum_of_next(in.checksums[i], ttl);
      out.ttls[i] = static_cast<uint8_t>(ttl - 1);
      if (ttl <= 1) out.next_hops[i] = kExpired;
    }
  }
}

// The sum of all header words anew and the trie's next hop: what every packet of the sample must have come to.
uint64_t wrong_of(const LoadedRoutes& oracle, const Batch4& in, const Forwarded& out, bool headers, size_t packets,
                  size_t sample) {
  uint64_t wrong = 0;
  for (size_t k = 0; k < sample; ++k) {
    const size_t i = k * packets / sample;
    Header want = in.headers[i];
    uint32_t hop = 0;
    oracle.lookup4(&in.destinations[i], &hop, 1);
    if (want.bytes[8] <= 1) hop = kExpired;
    want.bytes[8] = static_cast<uint8_t>(want.bytes[8] - 1);
    store_be16(want.bytes + 10, ipv4_header_checksum(want.bytes, 20));
    const bool same = headers ? std::memcmp(&out.headers[i], &want, sizeof want) == 0
                              : out.ttls[i] == want.bytes[8] && out.checksums[i] == load_be16(want.bytes + 10);
    wrong += !same || out.next_hops[i] != hop ? 1 : 0;
  }
  return wrong;
}

// `values` rates of `job(begin, end)` over `packets` packets by `workers` threads, each with an even part, in millions
// a second. A rate is that of as many batches as take a tenth of a second; every batch begins and ends for all workers
// together.
std::vector<double> rates_of(size_t packets, unsigned workers, unsigned values,
                             const std::function<void(size_t begin, size_t end)>& job) {
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
    do {
      gate.arrive_and_wait();
      part(0);
      gate.arrive_and_wait();
      done += packets;
      took = now_ns() - begin;
    } while (took < 100'000'000);
    rates.push_back(static_cast<double>(done) / static_cast<double>(took) * 1e3);
  }
  end_all();
  stop_if_interrupted();
  return rates;
}

Exit bench_forward(const ForwardOptions& o) {
  std::vector<std::string> algorithms = split_commas(o.algorithm);
  if (algorithms.empty()) algorithms = {check_lpm_algorithms({}).algorithm4};
  for (const std::string& name : algorithms) check_lpm_algorithms(name);
  Progress progress("");
  progress.step("generating routes and packets");
  std::string hash;
  const Rib rib = rib_of(o, hash);
  if (rib.routes4().empty()) fail(Exit::kBadInput, "there are no IPv4 routes", "give --ipv4 1 or more, or --routes");
  const size_t entries = rib.routes4().size();
  const size_t most = *std::max_element(o.packet_counts.begin(), o.packet_counts.end());
  Batch4 batch;
  {
    Rib only4(rib.next_hops());
    for (const Route4& r : rib.routes4()) only4.add4(r.address, r.length, r.next_hop);
    only4.settle();
    batch = make_batch(draw_addresses(only4, "prefix", most, o.seed).v4, o.seed);
  }
  Forwarded out;
  out.headers.resize(most);
  out.ttls.resize(most);
  out.checksums.resize(most);
  out.next_hops.resize(most);
  const LoadedRoutes oracle = build_loaded_routes(rib, {}, Trie::kName);
  stop_if_interrupted();
  std::vector<Case> cases;
  Verified verified{0, 0, "trie, and checksums summed anew"};
  for (const std::string& algorithm : algorithms) {
    if (algorithm == Linear::kName && entries > kMostLinear) {
      note(fmt::format("{} is skipped: it takes {} routes at most", algorithm, with_commas(kMostLinear)));
      continue;
    }
    const LoadedRoutes routes = build_loaded_routes(rib, {}, algorithm);
    for (const std::string& layout : o.layouts) {
      const auto forward = layout == "headers" ? forward_headers : forward_fields;
      for (const uint32_t packets : o.packet_counts) {
        for (const unsigned workers : o.worker_counts) {
          const std::string name = fmt::format("{}_routes/{}/{}/x{}/{}", entries, algorithm, layout, workers, packets);
          progress.step(name);
          const auto job = [&](size_t begin, size_t end) { forward(routes, batch, out, begin, end); };
          // What the first batch of all leaves, by these workers.
          std::fill(out.next_hops.begin(), out.next_hops.end(), 0);
          std::vector<double> rates = rates_of(packets, workers, o.repetitions, job);
          if (o.spoil) out.next_hops[0] ^= 1;
          const uint64_t sample = std::min<uint64_t>(o.sample, packets);
          verified.sample += sample;
          verified.mismatches += wrong_of(oracle, batch, out, layout == "headers", packets, sample);
          require(verified, name);
          cases.push_back({name,
                           "Mpackets/s",
                           std::move(rates),
                           {{"workers", workers}, {"routes", entries}, {"build_seconds", routes.build_seconds}}});
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
  Command sub = add_subcommand(
      bench, "forward", "Subcommands",
      "IPv4 forwarding of a batch of headers from one array to another: TTL, checksum, next hop; by packets, routes, "
      "lookup and workers",
      "sluice bench forward --algorithm linear,bloom,dir24,sail\nsluice bench forward --routes rib4.txt --packets "
      "1000000 --workers 1,2 --layout headers,fields -o json",
      [o] {
        o->standing.routes = o->algorithm.empty();
        return bench_forward(*o);
      });
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
      ->type_name("NAME,...");
  sub->add_option("--layout", o->layouts, "headers: whole headers; fields: an array of each field")
      ->delimiter(',')
      ->check(OneOf{{"headers", "fields"}})
      ->type_name("NAME,...")
      ->capture_default_str();
  sub->add_option("--workers", o->worker_counts, "Threads, each with an even part of the batch")
      ->delimiter(',')
      ->check(Range(1u, 256u))
      ->type_name("N,...")
      ->capture_default_str();
  sub->add_option("--repetitions", o->repetitions, "Repetitions of each case, at least 5")
      ->check(Range(5u, 1000u))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--sample", o->sample, "Packets compared with the reference")
      ->check(Range(uint64_t{1}, uint64_t{100'000'000}))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--seed", o->seed, "Seed of routes and packets")->type_name("N")->capture_default_str();
  sub->add_option("--name", o->name, "Name of the measurement in the JSON (default bench_forward)")->type_name("NAME");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
