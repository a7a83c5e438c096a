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
      {"acl-application", "Access list alone and in an application (CodiLime)",
       "module/: the list alone. application/: frames in, access list, routes, neighbours, frames out, by packets per "
       "batch and workers."},
      {"data-plane", "A data plane with classes (Stockholm)",
       "The pipeline with classes of packets: rate by mix, workers and chunk; latency by chunk; shapers; without "
       "classes."},
      {"network-functions", "Single network functions (Louvain)",
       "Mirror, lookup and CRC-32 over frame sizes, packets in and out."},
      {"frame-latency", "Time per frame of 256 packets (DGX Spark)",
       "CPU rows: 256 packets by the rate of one core over many. cuda/: the round trip of a batch to a device."},
      {"rfc2544", "Throughput by RFC 2544", "A device under test between two interfaces."},
  };
  return all;
}

const std::vector<Published>& published_figures() {
  static const std::string kStockholm = "Stockholm study: 28 M packets/s, the whole pipeline, 4,000 routes",
                           kOneUnit = "a GPU of one multiprocessor there, the CPU here";
  static const std::vector<Published> all = {
      {"acl-application", "module/", "", "Mpackets/s", 70,
       "CodiLime: 61-70 M packets/s, the search alone, 256-1,024 packets per batch", "Quadro RTX 4000",
       "a GPU there, one core here; the highest of the range is given"},
      {"acl-application", "application/acl+", "", "Mpackets/s", 25, "CodiLime: 25 M packets/s in the whole application",
       "Quadro RTX 4000", "a GPU there, the CPU and packets in memory here"},
      {"data-plane", "pipeline/routes/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", kOneUnit},
      {"data-plane", "priorities/mix/", "", "Mpackets/s", 28, kStockholm, "Tegra K1", kOneUnit},
      {"data-plane", "priorities/chunks/", "", "us", 27, "Stockholm study: 27 us, the best latency", "Tegra K1",
       "the best there, median and 99th percentile here; " + kOneUnit},
      {"frame-latency", "cpu/", "", "us", 3.8,
       "DGX Spark study: 3.8 us per frame of 256 packets, 1-1,024 rules with one mask", "DGX Spark",
       "a GPU there; here 256 packets at the rate of one core over many, rules with many masks"},
      {"frame-latency", "cuda/", ", 1 mask,", "us", 3.8,
       "DGX Spark study: 3.8 us per frame of 256 packets, 1-1,024 rules with one mask", "DGX Spark", "the GPU"},
      {"frame-latency", "cuda/", ", 21 masks,", "us", 22, "DGX Spark study: 22 us per frame of 256 packets at 21 masks",
       "DGX Spark", "the GPU"},
  };
  return all;
}

bool is_time(const std::string& unit) {
  return unit == "us" || unit == "ns" || unit == "ms" || unit == "s";
}

std::vector<SuiteCase> suite_cases(bool quick, unsigned cores) {
  std::vector<SuiteCase> all;
  const auto add = [&](std::string suite, std::string name, std::vector<std::string> command, std::string prefix = "") {
    all.push_back({std::move(suite), std::move(name), std::move(command), std::move(prefix), "", "", false});
    return &all.back();
  };
  const std::string lookups = quick ? "20000" : "200000";
  for (const char* shape : {"acl", "fw", "ipc"}) {
    // A linear search of long lists takes minutes and says what the short ones say.
    add("classbench", shape,
        {"classify", "--shape", shape, "--count", "1000", "--algorithm", "linear,tuple_space,tuple_merge,bitvec,auto",
         "--packets", lookups});
    if (!quick) {
      add("classbench", shape + std::string("-large"),
          {"classify", "--shape", shape, "--count", "10000,100000", "--algorithm",
           "tuple_space,tuple_merge,bitvec,auto", "--packets", lookups});
    }
  }
  for (const auto& [name, pair] : {std::pair{"dir24-poptrie", "dir24,poptrie"},
                                   {"poptrie-range24", "poptrie,range24"},
                                   {"sail-planb", "sail,planb"},
                                   {"trie-trie", "trie,trie"}}) {
    std::vector<std::string> command = {"route", "--algorithm", pair};
    if (quick) command.insert(command.end(), {"--ipv4", "20000", "--ipv6", "5000", "--packets", "65536"});
    add("full-tables", name, std::move(command));
  }
  for (const char* count : {"10", "1000", "10000", "100000"}) {
    if (quick && std::string(count).size() > 4) continue;
    add("acl-application", std::string("module-") + count,
        {"classify", "--count", count, "--algorithm", "tuple_space,tuple_merge", "--packets", lookups}, "module/");
  }
  std::vector<unsigned> workers = {1};
  if (cores > 1) workers.push_back(std::min(cores, 256u));
  const std::vector<std::string> small_tables =
      quick ? std::vector<std::string>{"--ipv4", "10000", "--ipv6", "2000", "--packets", "50000"}
            : std::vector<std::string>{};
  for (const unsigned n : workers) {
    std::vector<std::string> command = {"pipeline",
                                        "--count",
                                        quick ? "1000" : "10000",
                                        "--batch",
                                        quick ? "32,256,2048" : "32,64,128,256,512,1024,2048,4096,8192",
                                        "--workers",
                                        std::to_string(n)};
    command.insert(command.end(), small_tables.begin(), small_tables.end());
    add("acl-application", "application-" + std::to_string(n), std::move(command), "application/");
  }
  {
    std::vector<std::string> command = {"pipeline", "--count", "1000", "--sizes", quick ? "64,512" : "64,512,1518"};
    command.insert(command.end(), small_tables.begin(), small_tables.end());
    add("data-plane", "pipeline", std::move(command), "pipeline/");
  }
  {
    std::vector<std::string> command = {"priorities", "--repetitions", "5"};
    if (quick) command.insert(command.end(), {"--packets", "200000", "--seconds", "0.2", "--chunks", "16,256"});
    add("data-plane", "priorities", std::move(command), "priorities/");
    command = {"shaper"};
    if (quick) command.insert(command.end(), {"--seconds", "2", "--real-seconds", "0.2", "--packets", "200000"});
    add("data-plane", "shaper", std::move(command), "shaper/")->checked_prefix = "simulated/";
  }
  for (const char* function : {"mirror", "lookup", "crc"}) {
    std::vector<std::string> command = {"functions", "--function", function};
    if (quick) command.insert(command.end(), {"--sizes", "64,256,1024", "--packets", "50000", "--sample", "2000"});
    add("network-functions", function, std::move(command));
  }
  add("frame-latency", "cpu",
      {"classify", "--count", quick ? "16,128,1024" : "16,32,64,128,256,512,1024", "--algorithm",
       "linear,tuple_space,tuple_merge", "--packets", lookups},
      "cpu/")
      ->per_frame = true;
  add("frame-latency", "emu", {"latency", "--device", "emu", "--frame-repetitions", quick ? "20" : "200"}, "emu/")
      ->reason = "only checked here: emu is host threads in a GPU's place, and its times are no device's";
  for (const char* mode : {"launch", "persistent", "adaptive"}) {
    std::vector<std::string> command = {"latency", "--device", "cuda", "--mode", mode};
    if (quick) command.insert(command.end(), {"--frame-repetitions", "2000"});
    add("frame-latency", std::string("cuda-") + mode, std::move(command), std::string("cuda/") + mode + "/");
  }
  add("rfc2544", "throughput", {})->reason =
      "not measured here: it needs a device under test between two interfaces; sluice-bench wire --tx IF --rx IF "
      "--search measures it";
  return all;
}

}  // namespace sluice::app
