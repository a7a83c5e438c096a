// What `sluice bench suite` measures, and the published figures beside it. Only what a source names is here.
// host only
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "suite.h"

namespace sluice::app {

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {
      {"classbench", "Access lists in the manner of ClassBench",
       "Lookups in generated lists of the shapes acl, fw and ipc, on one core, by packets drawn from the rules. set/: "
       "in the lists of the folder acl of SLUICE_DATA. acl/patched/: a list that changes while it is searched: lookups "
       "alone and beside a million changes a second, and changes as fast as they go, alone and beside lookups."},
      {"full-tables", "Route tables",
       "Longest-prefix matches in generated tables, on one core, by three kinds of "
       "addresses: uniform, drawn from the prefixes, and these skewed (Zipf). internet/: in the full tables of the "
       "folder rib of SLUICE_DATA. build4/, build6/: the time to build the lookup of a full table. patched4/: a full "
       "table that changes while it is searched; set_and_publish/N: N changes and one publication. Both of the tables "
       "of SLUICE_DATA, or of random ones of that size."},
      {"ipv4-forwarding", "IPv4 forwarding of a batch (Ferraris)",
       "cpu/: TTL, checksum and next hop of every header of a batch, from one array to another, by routes, lookup, "
       "workers (x1: one) and packets. layouts/: whole headers, or an array of each field. in-a-row/: ten batches, "
       "each copied in first, in the arrays of the first one (reused) or each in its own (fresh); other rows have the "
       "batch in memory. payload/: headers with what is behind them. ttl/: 64, or half of the packets at their last "
       "hop; else 1 to 255. cuda/: next hops alone, with the addresses in the device's memory and fed from the host, "
       "each an NVTX range for Nsight Systems; 10_reused and 10_fresh: ten batches fed one after another, in memory of "
       "the first one or each in its own, on both sides; devices_one/ and devices_all/: the same workers and packets "
       "on one and on all "
       "devices."},
      {"acl-application", "Access list alone and in an application (CodiLime)",
       "module/: the list alone, on one core and on N (xN). live/: sluice run between veth pairs with a list of 1,000 "
       "rules. application/: frames in, access list, routes, neighbours, frames out, by packets per "
       "batch and workers (mean, p50, p99: the time of a batch). cuda/: both with lookups, or whole frames, on a "
       "device."},
      {"data-plane", "A data plane with classes (Stockholm)",
       "The pipeline with classes of packets: rate by mix (by class, or by DSCP of flows), workers and chunk; latency "
       "by chunk and by the longest time to fill one; shapers; without classes. entries/: the trie and other lookups "
       "by "
       "the routes of a table. cuda/table/: where a table lies. cuda/records/: by what of a packet crosses to a "
       "device. cuda/: the pipeline with lookups on a device, and the "
       "path to an output "
       "port."},
      {"traffic-kinds", "Kinds of packets",
       "The pipeline with access list, routes, neighbours and options on each kind, in turns; of_ipv4: the ratio to "
       "the "
       "rate of plain IPv4 of the same rounds."},
      {"network-functions", "Single network functions (Louvain)",
       "Mirror, lookup and CRC-32 over frame sizes, packets in and out. table/: lookup by routes of its table, frames "
       "in. batch/: by packets per batch. no-loss/: the highest rate of which no packet is dropped, by search, and the "
       "latency at it (p50, p99 and mean; of other rows at the full rate). overload/: twice what a worker processes, "
       "by "
       "batches that it has room for; without room packets are dropped, or the input waits (blocking; the latency "
       "counts from when a packet should have come). cuda/: by each way to a device: lists of addresses, copies, "
       "mapped memory, resident kernels, one thread that submits for all; flights_N: N batches in flight; cpu: the "
       "host beside them."},
      {"frame-latency", "Time per frame of 256 packets (DGX Spark)",
       "256 packets of which none, the first or the last of some rules with one mask matches, and all of 1,024 rules "
       "with several masks. cpu/: on one core. buffers/: by packets per batch. acl/frame/: the same frames by DPDK's "
       "rte_acl and the project's own in "
       "one "
       "program. vpp/: in VPP, the time of the node that looks a frame up, its acl-plugin's and the plug-in's, on one "
       "core; packets of several masks are drawn from the rules. cuda/: the round trip to a device."},
      {"peers", "Other implementations of the same run",
       "DPDK's lookups, and zlib's and ISA-L's CRC-32, beside the project's own on the same keys; live/: the highest "
       "rate without loss of a cable, of the kernel's forwarding, of an XDP program that redirects frames unread, and "
       "of "
       "sluice run between veth pairs."},
      {"rfc2544", "Throughput by RFC 2544 (NDR, PDR), frame sizes, IMIX (RFC 6985), bursts (RFC 9004)",
       "sluice run between veth pairs. ndr/: the highest rate that loses nothing, and the latency at 98 % of it. pdr/: "
       "that loses 0.5 % at most. back-to-back/: the longest burst that loses nothing. loss/: the frames lost at "
       "tenths "
       "of what the tester offers. genome_abcdefg/: IMIX of seven sizes, each once."},
      {kMachineSuite, "The machine itself",
       "Fixed loops, the same in each build, before and after each case: a multiplication, a load from a cache and "
       "from "
       "memory that waits for the one before, reading memory, a system call; on all cores at once (beside cases of "
       "several threads); a thread woken, a packet by the loopback (beside live ports). compare judges rows against "
       "them. idle: the watts of the processors before the first case, where there is RAPL."},
  };
  return all;
}

const std::vector<Published>& published_figures() {
  static const std::string kTrie = "Stockholm study: 280 M lookups/s, the trie alone, 4,000 routes",
                           kStockholm = "Stockholm study: 28 M packets/s, the whole pipeline, 4,000 routes",
                           kSpark = "DGX Spark study: 3.8 us per frame of 256 packets, 1-1,024 rules with one mask",
                           kSpark21 = "DGX Spark study: 22 us per frame of 256 packets at 21 masks",
                           kInVpp = "a GPU there, one core here, and the whole node of VPP: keys, lookup, next nodes",
                           kOneUnit = "a GPU of one multiprocessor there, the CPU here",
                           kLouvain =
                               "routes of RIS and a linear search on a GPU there; generated routes, frames of 64 bytes "
                               "in memory here, and the lookup and device that the row names";
  static const std::vector<Published> all = {
      {"acl-application", "module/", "", "Mpackets/s", 70,
       "CodiLime: 61-70 M packets/s, the search alone, 256-1,024 packets per batch", "Quadro RTX 4000",
       "a GPU there, one core here, or as many as xN names; the highest of the range is given"},
      {"acl-application", "cuda/module/", "", "Mpackets/s", 70,
       "CodiLime: 61-70 M packets/s, the search alone, 256-1,024 packets per batch", "Quadro RTX 4000",
       "the GPU; the highest of the range is given"},
      {"acl-application", "cuda/application/acl+", "", "Mpackets/s", 25,
       "CodiLime: 25 M packets/s in the whole application", "Quadro RTX 4000", "the GPU, and packets in memory here"},
      {"data-plane", "cuda/pipeline/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", "the GPU"},
      {"data-plane", "entries/ipv4_4000/trie", "", "Mlookups/s", 280, kTrie, "Tegra K1",
       "a GPU of one multiprocessor there, one core here"},
      {"data-plane", "cuda/entries/ipv4_4000/trie", "", "Mlookups/s", 280, kTrie, "Tegra K1", "the GPU"},
      {"data-plane", "cuda/table/global/ipv4_4000/trie", "", "Mlookups/s", 280, kTrie, "Tegra K1", "the GPU"},
      {"data-plane", "cuda/table/shared/ipv4_4000/trie", "", "Mlookups/s", 280, kTrie, "Tegra K1", "the GPU"},
      {"acl-application", "application/", "acl+", "Mpackets/s", 25, "CodiLime: 25 M packets/s in the whole application",
       "Quadro RTX 4000", "a GPU there, the CPU and packets in memory here"},
      {"data-plane", "pipeline/routes/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", kOneUnit},
      {"data-plane", "priorities/mix/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", kOneUnit},
      {"data-plane", "priorities/chunks/", "", "us", 27, "Stockholm study: 27 us, the best latency", "Tegra K1",
       "the best there, median and 99th percentile here; " + kOneUnit},
      {"frame-latency", "cpu/", ", 1 mask,", "us", 3.8, kSpark, "DGX Spark", "a GPU there, one core here"},
      {"frame-latency", "cpu/", ", 21 masks,", "us", 22, kSpark21, "DGX Spark", "a GPU there, one core here"},
      {"frame-latency", "vpp/", ", 1 mask,", "us", 3.8, kSpark, "DGX Spark", kInVpp},
      {"frame-latency", "vpp/", ", 21 masks,", "us", 22, kSpark21, "DGX Spark", kInVpp},
      {"frame-latency", "acl/frame/", "", "us", 3.8, kSpark, "DGX Spark", "a GPU there, one core here"},
      {"frame-latency", "cuda/", ", 1 mask,", "us", 3.8, kSpark, "DGX Spark", "the GPU"},
      {"frame-latency", "cuda/", ", 21 masks,", "us", 22, kSpark21, "DGX Spark", "the GPU"},
      {"network-functions", "", "/routes_1000/", "Gbit/s", 20, "Louvain: 20 Gbit/s, IP lookup, 1,000 routes, linear",
       "RTX A2000", kLouvain},
      {"network-functions", "", "/routes_10000/", "Gbit/s", 2, "Louvain: 2 Gbit/s, IP lookup, 10,000 routes, linear",
       "RTX A2000", kLouvain},
      {"network-functions", "", "/routes_1000000/", "Gbit/s", 0.004,
       "Louvain: 4 Mbit/s, IP lookup, 1,000,000 routes, linear", "RTX A2000", kLouvain},
      {"ipv4-forwarding", "cpu/101_routes/linear/", "", "Mpackets/s", 72,
       "Ferraris: 10 M packets in 137 ms with the host's work, 101 routes, linear", "V100",
       "a GPU and the host's work there, cores and headers in memory here"},
  };
  return all;
}

bool is_time(const std::string& unit) {
  return unit == "us" || unit == "ns" || unit == "ms" || unit == "s";
}

namespace {

using Words = std::vector<std::string>;

// Of one size of the suite on one machine.
class CaseList {
 public:
  CaseList(bool quick, unsigned cores, std::string vpp) : quick_(quick), cores_(cores), vpp_(std::move(vpp)) {}

  void add_all() {
    add_classbench();
    add_full_tables();
    add_ipv4_forwarding();
    add_acl_application();
    add_data_plane();
    add_traffic_kinds();
    add_network_functions();
    add_frame_latency();
    add_peers();
    add_rfc2544();
  }
  std::vector<SuiteCase> take() { return std::move(all_); }

 private:
  SuiteCase& add(std::string suite, std::string name, Words command, std::string prefix = "") {
    SuiteCase& c = all_.emplace_back();
    c.suite = std::move(suite);
    c.name = std::move(name);
    c.command = std::move(command);
    c.prefix = std::move(prefix);
    return c;
  }
  // `full`, or with --quick `small`.
  std::string pick(const char* full, const char* small) const { return quick_ ? small : full; }
  static Words joined(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words if_quick(Words more) const { return quick_ ? more : Words{}; }
  std::string lookups() const { return pick("200000", "20000"); }
  Words small_tables() const { return if_quick({"--ipv4", "10000", "--ipv6", "2000", "--packets", "300000"}); }
  // Of what feeds a device.
  std::string device_workers() const { return std::to_string(std::clamp(cores_, 1u, 8u)); }
  // One and all; without --quick also the powers of two between them.
  std::vector<unsigned> worker_counts() const { return worker_counts(cores_); }
  std::vector<unsigned> worker_counts(unsigned cores) const {
    const unsigned most = std::min(cores, 256u);
    std::vector<unsigned> counts = {1};
    for (unsigned n = 2; n < most && !quick_; n *= 2) counts.push_back(n);
    if (most > 1) counts.push_back(most);
    return counts;
  }
  std::string both_workers() const { return fmt::format("{}", fmt::join(worker_counts(), ",")); }

  void add_classbench() {
    for (const std::string shape : {"acl", "fw", "ipc"}) {
      // A linear search of long lists takes minutes and says what the short ones say.
      add("classbench", shape,
          {"classify", "--shape", shape, "--count", "1000", "--algorithm", "linear,tuple_space,tuple_merge,bitvec,auto",
           "--packets", lookups()});
      if (!quick_) {
        add("classbench", shape + "-large",
            {"classify", "--shape", shape, "--count", "10000,100000", "--algorithm",
             "tuple_space,tuple_merge,bitvec,auto", "--packets", lookups()});
      }
    }
    const std::vector<std::string> sets = data_files("acl");
    for (const std::string& file : sets) {
      const std::string name = stem_of(file);
      // One is enough for few minutes.
      if (name.ends_with("_trace") || (quick_ && name != "acl1_10k")) continue;
      add("classbench", "set-" + name,
          {"classify", "--rules", file, "--algorithm", "tuple_space,tuple_merge,bitvec,auto", "--packets", lookups()},
          "set/");
    }
    if (sets.empty()) add_without_data("classbench", "sets", "acl");
    const std::string lists = quick_ ? "made_10000" : "(made_10000|(acl|fw|ipc)1_(1|10|100)k)";
    add_benchmark("classbench", "beside-updates", "formats_benches",
                  fmt::format("^acl/patched/lookup(_at_1M_updates)?/{}$", lists), {}, "");
    add_benchmark("classbench", "updates", "formats_benches",
                  fmt::format("^acl/patched/update(_and_lookup)?/{}$", lists), {}, "");
    finish_updates("updates");
  }

  void add_full_tables() {
    const std::vector<std::string> tables = data_files("rib");
    for (const auto& [name, pair] : {std::pair{"dir24-poptrie", "dir24,poptrie"},
                                     {"poptrie-range24", "poptrie,range24"},
                                     {"sail-planb", "sail,planb"},
                                     {"trie-trie", "trie,trie"}}) {
      add("full-tables", name,
          joined({"route", "--algorithm", pair},
                 if_quick({"--ipv4", "20000", "--ipv6", "5000", "--packets", "65536"})));
      if (tables.empty() || (quick_ && std::string(name) != "dir24-poptrie")) continue;
      add("full-tables", std::string("internet-") + name,
          joined({"route", "--routes", fmt::format("{}", fmt::join(tables, ",")), "--algorithm", pair},
                 if_quick({"--packets", "65536"})),
          "internet/");
    }
    if (tables.empty()) add_without_data("full-tables", "internet", "rib");
    add_benchmark("full-tables", "build", "tables_benches", "^build[46]/", {}, "").checks = false;
    add_benchmark(
        "full-tables", "beside-updates", "tables_benches",
        quick_ ? "^patched4/dir24/lookup(_at_1M_changes)?/weighted$" : "^patched4/.*/lookup(_at_1M_changes)?/", {}, "");
    add_benchmark("full-tables", "updates", "tables_benches",
                  quick_ ? "^patched4/dir24/set_and_publish/10000" : "^patched4/.*/set_and_publish/", {}, "");
    finish_updates("changes");
  }

  // Of lookups beside changes, and of changes, the last two cases.
  void finish_updates(const char* items) {
    for (size_t i = all_.size() - 2; i < all_.size(); ++i) {
      all_[i].checks = false;
      all_[i].probes = ProbeSet::kCores;
    }
    all_.back().items = items;
  }

  // The compressed files of a folder of SLUICE_DATA, by name; none: it is not set, or there are none.
  static std::vector<std::string> data_files(const std::string& folder) {
    const char* data = std::getenv("SLUICE_DATA");
    std::vector<std::string> files;
    std::error_code none;
    if (data == nullptr || *data == 0) return files;
    for (const auto& entry : std::filesystem::directory_iterator(std::string(data) + "/" + folder, none))
      if (entry.is_regular_file(none) && entry.path().extension() == ".xz") files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
  }
  static std::string stem_of(const std::string& file) { return std::filesystem::path(file).stem().string(); }

  void add_without_data(const char* suite, const char* name, const char* folder) {
    add(suite, name, {}).reason = fmt::format(
        "not measured here: SLUICE_DATA names no folder with {}/*.xz; the generated ones of the same kinds stand above",
        folder);
  }

  void add_ipv4_forwarding() {
    const std::string packets = pick("10000,100000,1000000,10000000", "10000,100000,1000000");
    add("ipv4-forwarding", "101-routes",
        {"forward", "--algorithm", "linear,bloom,dir24,sail", "--packets", packets, "--workers", both_workers()},
        "cpu/")
        .probes = ProbeSet::kCores;
    // A scan of that many routes takes hours.
    add("ipv4-forwarding", "full-table",
        {"forward", "--ipv4", "900000", "--algorithm", "bloom,dir24,sail", "--packets", packets, "--workers",
         both_workers()},
        "cpu/")
        .probes = ProbeSet::kCores;
    add("ipv4-forwarding", "layouts",
        {"forward", "--algorithm", pick("linear,bloom,dir24,sail", "linear,dir24"), "--packets", "1000000", "--layout",
         "headers,fields"},
        "layouts/");
    add("ipv4-forwarding", "in-a-row",
        {"forward", "--algorithm", pick("linear,dir24", "dir24"), "--packets", pick("10000,100000,1000000", "1000000"),
         "--layout", pick("headers,fields", "headers"), "--memory", "reused,fresh", "--workers",
         quick_ ? "1" : both_workers()},
        "in-a-row/")
        .probes = quick_ ? ProbeSet::kOneCore : ProbeSet::kCores;
    add("ipv4-forwarding", "payload",
        {"forward", "--algorithm", "dir24", "--packets", "100000", "--payload",
         pick("0,64,128,256,512,1024,1480", "0,512")},
        "payload/");
    add("ipv4-forwarding", "ttl",
        {"forward", "--algorithm", "dir24", "--packets", pick("1000000", "100000"), "--ttl",
         pick("uniform,fixed,expiring", "fixed,expiring")},
        "ttl/");
    // The same workers with the same packets, on one device and on all.
    for (const auto& [name, device] : {std::pair{"one", "cuda:0"}, {"all", "cuda:all"}}) {
      SuiteCase& c = add("ipv4-forwarding", std::string("cuda-devices-") + name,
                         {"functions", "--device", device, "--function", "lookup", "--ipv4", "101", "--sizes", "64",
                          "--batch", "1024", "--workers", device_workers(), "--packets", pick("2000000", "200000"),
                          "--ways", "launch/staged/full,launch/commlist/full"},
                         fmt::format("cuda/devices_{}/", name));
      c.probes = ProbeSet::kCores;
      c.devices = 2;
    }
    for (const auto& [name, routes] : {std::pair{"cuda-101-routes", "101"}, {"cuda-full-table", "900000"}}) {
      for (const char* algorithm : {"linear", "bloom", "dir24", "sail"}) {
        if (std::string(algorithm) == "linear" && std::string(routes) != "101") continue;
        add("ipv4-forwarding", fmt::format("{}-{}", name, algorithm),
            {"route", "--device", "cuda", "--device-only", "--lookups-only", "--ipv4", routes, "--ipv6", "0",
             "--algorithm", algorithm, "--packets", pick("10000000", "1000000"), "--in-a-row", "10"},
            fmt::format("cuda/{}_routes/", routes));
      }
    }
  }

  void add_acl_application() {
    for (const std::string count : {"10", "1000", "10000", "100000"}) {
      if (quick_ && count.size() > 4) continue;
      add("acl-application", "module-" + count,
          {"classify", "--count", count, "--algorithm",
           count.size() > 4 ? "tuple_space,tuple_merge" : "linear,tuple_space,tuple_merge", "--packets", lookups()},
          "module/");
    }
    // One core and all: of one they are the rows above.
    for (const unsigned n : worker_counts()) {
      if (n == 1) continue;
      add("acl-application", fmt::format("module-cores-{}", n),
          {"classify", "--count", "1000", "--algorithm", "tuple_space,tuple_merge", "--workers", std::to_string(n),
           "--packets", lookups()},
          "module/")
          .probes = ProbeSet::kCores;
    }
    // On live ports, with the access list: a rate without loss, and the latency at 98 % of it.
    for (const std::string way : {"af_packet", "af_xdp"})
      add("acl-application", "live-" + way,
          joined({"live", "--ways", way, "--rules", "1000", "--sizes", pick("64,imix", "64"), "--repetitions", "1",
                  "--latency"},
                 searches()),
          "live/rules_1000/")
          .probes = ProbeSet::kLive;
    const auto add_device_module = [&](const char* name, const std::string& counts, const char* algorithms) {
      add("acl-application", name,
          {"classify", "--device", "cuda", "--device-only", "--count", counts, "--algorithm", algorithms, "--mode",
           "persistent", "--workers", device_workers(), "--frames",
           pick("32,64,128,256,512,1024,2048,4096,8192,16384", "32,256,2048"), "--packets", lookups(),
           "--frame-repetitions", pick("1000", "200")},
          "cuda/module/")
          .probes = ProbeSet::kCores;
    };
    add_device_module("cuda-module-linear", "10,1000", "linear");
    add_device_module("cuda-module", pick("10,1000,10000,100000", "10,1000"), "tuple_space,tuple_merge");
    add("acl-application", "cuda-application",
        joined(
            {"pipeline", "--device", "cuda", "--mode", "launch", "--records", "frame", "--count", pick("10000", "1000"),
             "--batch", pick("256,512,1024,2048,4096,8192", "256,2048"), "--workers", device_workers()},
            small_tables()),
        "cuda/application/")
        .probes = ProbeSet::kCores;
    for (const std::string count : {"10", "1000", "100000"}) {
      if (quick_) break;
      add("acl-application", "application-rules-" + count,
          {"pipeline", "--count", count, "--batch", "32,256,2048", "--workers", "1"},
          fmt::format("application/rules_{}/", count));
    }
    for (const unsigned n : worker_counts()) {
      add("acl-application", fmt::format("application-{}", n),
          joined({"pipeline", "--count", pick("10000", "1000"), "--batch",
                  pick("32,64,128,256,512,1024,2048,4096,8192", "32,256,2048"), "--workers", std::to_string(n)},
                 small_tables()),
          "application/")
          .probes = n > 1 ? ProbeSet::kCores : ProbeSet::kOneCore;
    }
  }

  void add_data_plane() {
    add("data-plane", "pipeline",
        joined({"pipeline", "--count", "1000", "--sizes", pick("64,512,1518", "64,512")}, small_tables()), "pipeline/");
    for (const char* mode : {"launch", "persistent", "adaptive"}) {
      add("data-plane", std::string("cuda-pipeline-") + mode,
          joined(
              {"pipeline", "--device", "cuda", "--mode", mode, "--count", "1000", "--sizes",
               pick("64,512,1518", "64,512"), "--batch", pick("256,1024,4096", "1024"), "--workers", device_workers()},
              small_tables()),
          std::string("cuda/pipeline/") + mode + "/")
          .probes = ProbeSet::kCores;
    }
    // What of a packet crosses, and how: its frame by one copy or scattered from where it lies, its header, its key.
    for (const char* records : {"frame", "address", "header", "key"}) {
      add("data-plane", std::string("cuda-records-") + records,
          joined({"pipeline", "--device", "cuda", "--mode", "launch", "--records", records, "--count", "1000",
                  "--sizes", "64", "--batch", "1024", "--workers", device_workers()},
                 small_tables()),
          fmt::format("cuda/records/{}/", records))
          .probes = ProbeSet::kCores;
    }
    // The path to an output port: frames in the device's memory, fed from the host, and by resident kernels.
    add("data-plane", "cuda-port",
        joined({"port", "--device", "cuda", "--device-only", "--batch", pick("256,1024", "1024"), "--workers",
                device_workers()},
               if_quick({"--packets", "200000"})),
        "cuda/")
        .probes = ProbeSet::kCores;
    // One more thread reads: with as many workers as cores the scheduler decides what a row shows.
    const std::vector<unsigned> beside_reader = worker_counts(cores_ > 1 ? cores_ - 1 : 1);
    const std::string most_workers = std::to_string(std::min(beside_reader.back(), 2u));
    add("data-plane", "priorities",
        joined({"priorities", "--repetitions", pick("5", "3"), "--part", "mix,chunks,timeouts,overload", "--workers",
                most_workers},
               if_quick({"--packets", "500000", "--seconds", "0.2", "--chunks", "16,64,256,1024"})),
        "priorities/")
        .probes = ProbeSet::kCores;
    add("data-plane", "priorities-workers",
        joined({"priorities", "--repetitions", pick("5", "3"), "--part", "workers", "--workers",
                fmt::format("{}", fmt::join(beside_reader, ","))},
               if_quick({"--packets", "500000"})),
        "priorities/")
        .probes = ProbeSet::kCores;
    // Flows keep their DSCP: all of one class, of three, and of eight in three.
    add("data-plane", "dscp",
        joined({"priorities", "--part", "mix", "--dscp", "ef=100", "--dscp", "ef=5,af41=15,default=80", "--dscp",
                "ef=10,cs5=10,af41=10,af31=10,af21=10,af11=10,cs1=10,default=30", "--workers", most_workers,
                "--repetitions", pick("5", "3")},
               if_quick({"--packets", "500000"})),
        "priorities/")
        .probes = ProbeSet::kCores;
    // From a few entries to more than a full table has; a scan takes minutes at such.
    const std::string entries = pick("10,100,1000,4000,10000,100000,1000000", "10,4000,100000");
    const Words generated = {"--ipv4", pick("900000", "100000"), "--ipv6", "0"};
    add("data-plane", "trie-entries",
        joined(joined({"route", "--count", entries, "--algorithm", "trie,poptrie,dir24,bloom,sail"}, generated),
               if_quick({"--packets", "65536", "--sample", "5000"})),
        "entries/");
    add("data-plane", "cuda-trie-entries",
        joined(joined({"route", "--device", "cuda", "--device-only", "--lookups-only", "--count", entries,
                       "--algorithm", "trie,poptrie,dir24,sail"},
                      generated),
               if_quick({"--packets", "1000000", "--sample", "5000"})),
        "cuda/entries/");
    // One small table by where it lies: a route takes up to 28 bytes, constant memory has 64 KiB, a block 227.
    for (const std::string memory : {"global", "constant", "shared"})
      add("data-plane", "cuda-table-memory-" + memory,
          {"route", "--device", "cuda", "--device-only", "--lookups-only", "--table-memory", memory, "--count",
           memory == "constant" ? pick("100,1000,2000", "100,2000") : pick("100,1000,2000,4000,8000", "100,2000,4000"),
           "--ipv4", "10000", "--ipv6", "0", "--algorithm", "trie", "--packets", pick("10000000", "1000000")},
          fmt::format("cuda/table/{}/", memory));
    add("data-plane", "shaper",
        joined({"shaper"}, if_quick({"--seconds", "2", "--real-seconds", "0.2", "--packets", "200000"})), "shaper/")
        .checked_prefix = "simulated/";
  }

  void add_traffic_kinds() {
    add("traffic-kinds", "memory",
        joined({"kinds"}, if_quick({"--ipv4", "10000", "--ipv6", "2000", "--packets", "200000"})));
  }

  void add_network_functions() {
    // By each way to a device, the host beside them.
    const std::string ways =
        "cpu,launch/commlist/full,launch/commpool/full,launch/staged/full,launch/zerocopy/full,"
        "persistent/staged/full,launch/staged/master";
    for (const std::string function : {"mirror", "lookup", "crc"}) {
      add("network-functions", function,
          joined({"functions", "--function", function},
                 if_quick({"--sizes", "64,256,1024", "--packets", "300000", "--sample", "2000"})));
      Words device = {"functions",
                      "--device",
                      "cuda",
                      "--function",
                      function,
                      "--sizes",
                      pick("64,128,256,512,1024", "64,1024"),
                      "--batch",
                      pick("128,1024,4096", "1024"),
                      "--workers",
                      device_workers(),
                      "--packets",
                      pick("200000", "50000"),
                      "--ways",
                      ways};
      if (function == "crc") device.emplace_back("--resident");
      add("network-functions", "cuda-" + function, device, "cuda/").probes = ProbeSet::kCores;
    }
    const Words cuda = {"--device", "cuda", "--workers", device_workers(), "--batch", "1024"};
    const auto add_both = [&](const std::string& name, const Words& command, const Words& host_more,
                              const Words& device_more, const std::string& prefix, const std::string& device_ways) {
      add("network-functions", name, joined(command, host_more), prefix);
      add("network-functions", "cuda-" + name,
          joined(joined(joined(command, device_more), cuda), {"--ways", device_ways}), "cuda/" + prefix)
          .probes = ProbeSet::kCores;
    };
    add_both("lookup-routes",
             joined({"functions", "--function", "lookup", "--sizes", "64", "--ipv4",
                     pick("10,100,1000,10000,100000,1000000", "10,1000,100000"), "--route-algorithm", "linear,dir24"},
                    if_quick({"--packets", "50000", "--sample", "2000"})),
             {}, {}, "table/", pick("cpu,launch/staged/full,persistent/staged/full", "cpu,launch/staged/full"));
    add("network-functions", "batches",
        joined({"functions", "--function", "crc", "--sizes", "64", "--batch",
                pick("32,64,128,256,512,1024,2048,4096,8192", "32,256,2048")},
               if_quick({"--packets", "50000", "--sample", "2000"})),
        "batch/");
    add_both(
        "no-loss",
        joined({"functions", "--part", "no-loss", "--sizes", pick("64,1024", "64"), "--seconds", pick("0.2", "0.05")},
               if_quick({"--sample", "2000"})),
        {"--function", pick("mirror,lookup,crc", "crc"), "--buffers", "64"}, {"--function", "crc", "--buffers", "16"},
        "no-loss/", pick(ways.c_str(), "cpu,launch/commlist/full"));
    add_both("full-buffers",
             joined({"functions", "--function", "crc", "--sizes", "64", "--part", "overload", "--buffers",
                     pick("4,16,64", "4,64"), "--seconds", pick("0.2", "0.05")},
                    if_quick({"--sample", "2000"})),
             {}, {}, "overload/", pick(ways.c_str(), "cpu,launch/commlist/full"));
    // Lists of a worker that are on their way at once.
    std::string lists = "cpu";
    for (const char* flights : {"1", "2", "4", "8", "16"}) {
      if (quick_ && *flights != '1') continue;
      for (const char* way : {"launch/commlist/full/", "launch/commpool/full/", "launch/staged/full/"})
        lists += std::string(",") + way + flights;
    }
    add("network-functions", "cuda-lists",
        joined(joined({"functions", "--function", "crc", "--sizes", "64", "--packets", pick("200000", "50000")}, cuda),
               {"--ways", lists}),
        "cuda/lists/")
        .probes = ProbeSet::kCores;
  }

  void add_frame_latency() {
    const Words all = {"--rules", pick("1,2,4,8,16,32,64,128,256,512,1024", "1,16,128,1024"), "--masks",
                       pick("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21", "1,8,21")};
    const auto command = [&](const char* device, const char* mode, const char* few) {
      Words words = joined({"latency", "--device", device}, all);
      if (*mode != 0) words.insert(words.end(), {"--mode", mode});
      if (quick_) words.insert(words.end(), {"--frame-repetitions", few});
      return words;
    };
    add("frame-latency", "cpu", command("cpu", "", "500"), "cpu/");
    add("frame-latency", "emu",
        {"latency", "--device", "emu", "--rules", "1,128", "--masks", "21", "--frame-repetitions", pick("200", "20")},
        "emu/")
        .reason = "only checked here: emu is host threads in a GPU's place, and its times are no device's";
    // By packets per batch: on a core, and on a device with what a launch costs.
    const Words buffers = {"--rules",
                           "1",
                           "--masks",
                           "8",
                           "--algorithm",
                           "tuple_space",
                           "--frames",
                           pick("32,64,128,256,512,1024,2048,4096,8192,16384", "32,256,2048"),
                           "--frame-repetitions",
                           pick("5000", "500")};
    add("frame-latency", "buffers", joined({"latency", "--device", "cpu"}, buffers), "buffers/");
    for (const char* mode : {"launch", "persistent"})
      add("frame-latency", std::string("cuda-buffers-") + mode,
          joined({"latency", "--device", "cuda", "--mode", mode}, buffers), fmt::format("cuda/buffers/{}/", mode));
    add_benchmark("frame-latency", "rte_acl", "formats_benches",
                  quick_ ? "^acl/frame/(tuple_space|tuple_merge|rte_acl)/(1|16|128|1024)_rules/last$" : "^acl/frame/",
                  {"rte_acl"}, "the program was built without DPDK's libraries (-DSLUICE_BENCH_PEERS=ON)");
    add_vpp();
    for (const char* mode : {"launch", "persistent", "adaptive"})
      add("frame-latency", std::string("cuda-") + mode, command("cuda", mode, "2000"),
          std::string("cuda/") + mode + "/");
  }

  // The study's rows in VPP, by the program that stands in the plug-in's build folder.
  void add_vpp() {
    const std::string program = vpp_ + "/vpp_bench";
    std::error_code none;
    const std::string lacking =
        vpp_.empty() ? "not measured here: --vpp or SLUICE_VPP_PLUGIN names no build folder of the VPP plug-in"
        : std::filesystem::exists(program, none)
            ? ""
            : fmt::format("not measured here: {} is no build folder of the VPP plug-in: it has no vpp_bench", vpp_);
    const Words common = {"--columns",    "acl-plugin,cpu", "--windows",
                          pick("9", "5"), "--packets",      pick("10240", "2560")};
    const std::pair<const char*, Words> parts[] = {
        {"vpp-rules", {"--masks=", "--rules", pick("1,2,4,8,16,32,64,128,256,512,1024", "1,1024")}},
        {"vpp-masks", {"--rules=", "--masks", pick("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21", "1,21")}}};
    for (const auto& [name, words] : parts) {
      SuiteCase& c = add("frame-latency", name, lacking.empty() ? joined(common, words) : Words{}, "vpp/");
      c.program = program;
      c.measured = vpp_ + "/vpp_plugins/sluice_plugin.so";
      c.reason = lacking;
    }
  }

  SuiteCase& add_benchmark(std::string suite, std::string name, const char* program, const std::string& filter,
                           Words peers, std::string without) {
    SuiteCase& c = add(std::move(suite), std::move(name),
                       {"--benchmark_filter=" + filter, "--benchmark_repetitions=" + pick("5", "3"),
                        "--benchmark_min_time=" + pick("0.3", "0.05"), "--benchmark_format=json"});
    c.program = program;
    c.output = SuiteOutput::kBenchmark;
    c.peers = std::move(peers);
    c.without_peers = std::move(without);
    return c;
  }

  void add_peers() {
    const std::string dpdk = "the program was built without DPDK's libraries (-DSLUICE_BENCH_PEERS=ON)";
    add_benchmark("peers", "lpm4", "tables_benches", "^lookup4/(dir24|sail|poptrie|rte_.*)/weighted/4096",
                  {"rte_fib_", "rte_lpm"}, dpdk);
    add_benchmark("peers", "lpm6", "tables_benches", "^lookup6/(planb|poptrie|range24|rte_.*)/weighted/4096",
                  {"rte_fib6"}, dpdk);
    for (const std::string shape : {"acl", "fw", "ipc"}) {
      if (quick_ && shape != "acl") continue;
      add_benchmark("peers", "acl-" + shape, "formats_benches",
                    fmt::format("^acl/lookup/(rte_acl|tuple_space/burst|tuple_merge/burst)/{}1_{}k$", shape,
                                pick("(1|10|100)", "1")),
                    {"rte_acl"}, dpdk);
    }
    add_benchmark("peers", "crc", "net_benches",
                  quick_ ? "^crc32/.*/fcs/(64|1518)$" : "^crc32/.*/(64|128|256|512|1024|1518|9000)$", {"zlib", "isal"},
                  "the program was built without that library");
    // A build may lack AF_XDP, and a kernel XDP: cases of their own. One search in each pass.
    for (const auto& [name, ways] :
         {std::pair{"live", "cable,kernel,af_packet"}, {"live-xdp", "xdp"}, {"live-af_xdp", "af_xdp"}})
      add("peers", name, joined({"live", "--ways", ways, "--repetitions", "1"}, searches()), "live/").probes =
          ProbeSet::kLive;
  }

  Words searches() const {
    return quick_ ? Words{"--duration", "0.1", "--resolution", "5"} : Words{"--duration", "2", "--resolution", "1"};
  }

  void add_rfc2544() {
    const std::string sizes = pick("64,128,256,512,1024,1280,1518,imix", "64,imix");
    // NDR: no packet may be lost. PDR: half a percent.
    for (const std::string way : {"af_packet", "af_xdp"}) {
      const Words common = joined({"live", "--ways", way, "--sizes", sizes, "--repetitions", "1"}, searches());
      add("rfc2544", "ndr-" + way, joined(common, {"--latency"}), "ndr/").probes = ProbeSet::kLive;
      add("rfc2544", "pdr-" + way, joined(common, {"--loss", "0.5"}), "pdr/").probes = ProbeSet::kLive;
      if (!quick_) {
        add("rfc2544", "loss-" + way,
            joined({"live", "--ways", way, "--sizes", sizes, "--repetitions", "1", "--loss-rate"}, searches()), "loss/")
            .probes = ProbeSet::kLive;
        // Each size of RFC 6985 that these ports take once, beside 7:4:1 above.
        add("rfc2544", "genome-" + way,
            joined({"live", "--ways", way, "--sizes", "imix", "--imix", "abcdefg", "--repetitions", "1", "--latency"},
                   searches()),
            "genome_abcdefg/")
            .probes = ProbeSet::kLive;
      }
      // Of small frames alone: the larger ones pass at every rate.
      add("rfc2544", "back-to-back-" + way,
          joined({"live", "--ways", way, "--sizes", pick("64,128", "64"), "--repetitions", "1", "--back-to-back",
                  pick("10", "1")},
                 searches()),
          "back-to-back/")
          .probes = ProbeSet::kLive;
    }
  }

  const bool quick_;
  const unsigned cores_;
  const std::string vpp_;  // the build folder of the plug-in for VPP, or ""
  std::vector<SuiteCase> all_;
};

}  // namespace

std::vector<SuiteCase> suite_cases(bool quick, unsigned cores, const std::string& vpp) {
  CaseList list(quick, cores, vpp);
  list.add_all();
  return list.take();
}

}  // namespace sluice::app
