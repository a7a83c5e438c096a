// What `sluice bench suite` measures, and the published figures beside it. Only what a source names is here.
// host only
#include <algorithm>

#include "suite.h"

namespace sluice::app {

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {
      {"classbench", "Access lists in the manner of ClassBench",
       "Lookups in generated lists of the shapes acl, fw and ipc, on one core, by packets drawn from the rules."},
      {"full-tables", "Route tables",
       "Longest-prefix matches in generated tables, on one core, by three kinds of "
       "addresses: uniform, drawn from the prefixes, and these skewed (Zipf)."},
      {"ipv4-forwarding", "IPv4 forwarding of a batch (Ferraris)",
       "cpu/: TTL, checksum and next hop of every header of a batch, from one array to another, by routes, lookup, "
       "workers (x1: one) and packets. layouts/: whole headers, or an array of each field. cuda/: next hops alone, "
       "with the addresses in the device's memory and fed from the host, each an NVTX range for Nsight Systems."},
      {"acl-application", "Access list alone and in an application (CodiLime)",
       "module/: the list alone. application/: frames in, access list, routes, neighbours, frames out, by packets per "
       "batch and workers. cuda/: both with lookups, or whole frames, on a device."},
      {"data-plane", "A data plane with classes (Stockholm)",
       "The pipeline with classes of packets: rate by mix, workers and chunk; latency by chunk; shapers; without "
       "classes. cuda/: the pipeline with lookups on a device, and the path to an output port."},
      {"traffic-kinds", "Kinds of packets",
       "The pipeline with access list, routes, neighbours and options on each kind, in turns; of_ipv4: the ratio to "
       "the "
       "rate of plain IPv4 of the same rounds."},
      {"network-functions", "Single network functions (Louvain)",
       "Mirror, lookup and CRC-32 over frame sizes, packets in and out. cuda/: by each way to a device: lists of "
       "addresses, "
       "copies, mapped memory, resident kernels, one thread that submits for all."},
      {"frame-latency", "Time per frame of 256 packets (DGX Spark)",
       "256 packets of which none, the first or the last of some rules with one mask matches, and all of 1,024 rules "
       "with several masks. cpu/: on one core. cuda/: the round trip to a device."},
      {"peers", "Other implementations of the same run",
       "DPDK's lookups, and zlib's and ISA-L's CRC-32, beside the project's own on the same keys; live/: the highest "
       "rate without loss of a cable, of the kernel's forwarding and of sluice run between veth pairs."},
      {"rfc2544", "Throughput by RFC 2544 (NDR, PDR), frame sizes, IMIX (RFC 6985), bursts (RFC 9004)",
       "sluice run between veth pairs. ndr/: the highest rate that loses nothing, and the latency at 98 % of it. pdr/: "
       "that loses 0.5 % at most. back-to-back/: the longest burst that loses nothing."},
      {kMachineSuite, "The machine itself",
       "Fixed loops, the same in each build, before and after each case: a multiplication, a load from a cache and "
       "from "
       "memory that waits for the one before, reading memory, a system call; on all cores at once (beside cases of "
       "several threads); a thread woken, a packet by the loopback (beside live ports). compare judges rows against "
       "them."},
  };
  return all;
}

const std::vector<Published>& published_figures() {
  static const std::string kStockholm = "Stockholm study: 28 M packets/s, the whole pipeline, 4,000 routes",
                           kSpark = "DGX Spark study: 3.8 us per frame of 256 packets, 1-1,024 rules with one mask",
                           kSpark21 = "DGX Spark study: 22 us per frame of 256 packets at 21 masks",
                           kOneUnit = "a GPU of one multiprocessor there, the CPU here";
  static const std::vector<Published> all = {
      {"acl-application", "module/", "", "Mpackets/s", 70,
       "CodiLime: 61-70 M packets/s, the search alone, 256-1,024 packets per batch", "Quadro RTX 4000",
       "a GPU there, one core here; the highest of the range is given"},
      {"acl-application", "cuda/module/", "", "Mpackets/s", 70,
       "CodiLime: 61-70 M packets/s, the search alone, 256-1,024 packets per batch", "Quadro RTX 4000",
       "the GPU; the highest of the range is given"},
      {"acl-application", "cuda/application/acl+", "", "Mpackets/s", 25,
       "CodiLime: 25 M packets/s in the whole application", "Quadro RTX 4000", "the GPU, and packets in memory here"},
      {"data-plane", "cuda/pipeline/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", "the GPU"},
      {"acl-application", "application/acl+", "", "Mpackets/s", 25, "CodiLime: 25 M packets/s in the whole application",
       "Quadro RTX 4000", "a GPU there, the CPU and packets in memory here"},
      {"data-plane", "pipeline/routes/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", kOneUnit},
      {"data-plane", "priorities/mix/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", kOneUnit},
      {"data-plane", "priorities/chunks/", "", "us", 27, "Stockholm study: 27 us, the best latency", "Tegra K1",
       "the best there, median and 99th percentile here; " + kOneUnit},
      {"frame-latency", "cpu/", ", 1 mask,", "us", 3.8, kSpark, "DGX Spark", "a GPU there, one core here"},
      {"frame-latency", "cpu/", ", 21 masks,", "us", 22, kSpark21, "DGX Spark", "a GPU there, one core here"},
      {"frame-latency", "cuda/", ", 1 mask,", "us", 3.8, kSpark, "DGX Spark", "the GPU"},
      {"frame-latency", "cuda/", ", 21 masks,", "us", 22, kSpark21, "DGX Spark", "the GPU"},
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
  CaseList(bool quick, unsigned cores) : quick_(quick), cores_(cores) {}

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
  Words small_tables() const { return if_quick({"--ipv4", "10000", "--ipv6", "2000", "--packets", "50000"}); }
  // Of what feeds a device.
  std::string device_workers() const { return std::to_string(std::clamp(cores_, 1u, 8u)); }
  std::string both_workers() const { return cores_ > 1 ? fmt::format("1,{}", std::min(cores_, 256u)) : "1"; }

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
  }

  void add_full_tables() {
    for (const auto& [name, pair] : {std::pair{"dir24-poptrie", "dir24,poptrie"},
                                     {"poptrie-range24", "poptrie,range24"},
                                     {"sail-planb", "sail,planb"},
                                     {"trie-trie", "trie,trie"}}) {
      add("full-tables", name,
          joined({"route", "--algorithm", pair},
                 if_quick({"--ipv4", "20000", "--ipv6", "5000", "--packets", "65536"})));
    }
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
        {"forward", "--algorithm", "linear,dir24", "--packets", "1000000", "--layout", "headers,fields"}, "layouts/");
    for (const auto& [name, routes] : {std::pair{"cuda-101-routes", "101"}, {"cuda-full-table", "900000"}}) {
      for (const char* algorithm : {"linear", "bloom", "dir24", "sail"}) {
        if (std::string(algorithm) == "linear" && std::string(routes) != "101") continue;
        add("ipv4-forwarding", fmt::format("{}-{}", name, algorithm),
            {"route", "--device", "cuda", "--device-only", "--lookups-only", "--ipv4", routes, "--ipv6", "0",
             "--algorithm", algorithm, "--packets", pick("10000000", "1000000")},
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
        joined({"pipeline", "--device", "cuda", "--mode", "launch", "--records", "frame", "--transport", "zerocopy",
                "--count", pick("10000", "1000"), "--batch", pick("256,512,1024,2048,4096,8192", "256,2048"),
                "--workers", device_workers()},
               small_tables()),
        "cuda/application/")
        .probes = ProbeSet::kCores;
    std::vector<unsigned> workers = {1};
    if (cores_ > 1) workers.push_back(std::min(cores_, 256u));
    for (const unsigned n : workers) {
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
    // The path to an output port: frames in the device's memory, fed from the host, and by resident kernels.
    add("data-plane", "cuda-port",
        joined({"port", "--device", "cuda", "--device-only", "--batch", pick("256,1024", "1024"), "--workers",
                device_workers()},
               if_quick({"--packets", "200000"})),
        "cuda/")
        .probes = ProbeSet::kCores;
    add("data-plane", "priorities",
        joined({"priorities", "--repetitions", pick("5", "3")},
               if_quick({"--packets", "200000", "--seconds", "0.2", "--chunks", "16,256"})),
        "priorities/")
        .probes = ProbeSet::kCores;
    add("data-plane", "shaper",
        joined({"shaper"}, if_quick({"--seconds", "2", "--real-seconds", "0.2", "--packets", "200000"})), "shaper/")
        .checked_prefix = "simulated/";
  }

  void add_traffic_kinds() {
    add("traffic-kinds", "memory",
        joined({"kinds"}, if_quick({"--ipv4", "10000", "--ipv6", "2000", "--packets", "200000"})));
  }

  void add_network_functions() {
    for (const std::string function : {"mirror", "lookup", "crc"}) {
      add("network-functions", function,
          joined({"functions", "--function", function},
                 if_quick({"--sizes", "64,256,1024", "--packets", "50000", "--sample", "2000"})));
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
                      "launch/commlist/full,launch/commpool/full,launch/staged/full,launch/zerocopy/full,"
                      "persistent/staged/full,launch/staged/master"};
      if (function == "crc") device.emplace_back("--resident");
      add("network-functions", "cuda-" + function, device, "cuda/").probes = ProbeSet::kCores;
    }
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
    for (const char* mode : {"launch", "persistent", "adaptive"})
      add("frame-latency", std::string("cuda-") + mode, command("cuda", mode, "2000"),
          std::string("cuda/") + mode + "/");
  }

  SuiteCase& add_benchmark(std::string name, const char* program, const std::string& filter, Words peers,
                           std::string without) {
    SuiteCase& c = add("peers", std::move(name),
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
    add_benchmark("lpm4", "tables_benches", "^lookup4/(dir24|sail|poptrie|rte_.*)/weighted/4096",
                  {"rte_fib_", "rte_lpm"}, dpdk);
    add_benchmark("lpm6", "tables_benches", "^lookup6/(planb|poptrie|range24|rte_.*)/weighted/4096", {"rte_fib6"},
                  dpdk);
    for (const std::string shape : {"acl", "fw", "ipc"}) {
      if (quick_ && shape != "acl") continue;
      add_benchmark("acl-" + shape, "formats_benches",
                    fmt::format("^acl/lookup/(rte_acl|tuple_space/burst|tuple_merge/burst)/{}1_{}k$", shape,
                                pick("(1|10|100)", "1")),
                    {"rte_acl"}, dpdk);
    }
    add_benchmark("crc", "net_benches",
                  quick_ ? "^crc32/.*/fcs/(64|1518)$" : "^crc32/.*/(64|128|256|512|1024|1518|9000)$", {"zlib", "isal"},
                  "the program was built without that library");
    // A build may lack AF_XDP: a case of its own. One search in each pass.
    for (const auto& [name, ways] : {std::pair{"live", "cable,kernel,af_packet"}, {"live-af_xdp", "af_xdp"}})
      add("peers", name, joined({"live", "--ways", ways, "--repetitions", "1"}, searches()), "live/").probes =
          ProbeSet::kLive;
    SuiteCase& redirect = add("peers", "xdp-redirect", {});
    redirect.reason =
        "not measured here: the suite has no XDP program that redirects frames by itself; scripts/bench_live.py "
        "--redirect measures one beside sluice run";
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
  std::vector<SuiteCase> all_;
};

}  // namespace

std::vector<SuiteCase> suite_cases(bool quick, unsigned cores) {
  CaseList list(quick, cores);
  list.add_all();
  return list.take();
}

}  // namespace sluice::app
