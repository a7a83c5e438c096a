// What `sluice-bench study louvain` and the suite network-functions measure. host only
#include "studies/study.h"

namespace sluice::app {

void add_bench_functions(Command bench);

namespace {

void add_louvain_cases(CaseList& list) {
  // By each way to a device, the host beside them.
  const std::string ways =
      "cpu,launch/commlist/full,launch/commpool/full,launch/staged/full,launch/zerocopy/full,persistent/staged/full";
  for (const std::string function : {"mirror", "lookup", "crc"}) {
    list.add("network-functions", function,
             words_with({"functions", "--function", function},
                        list.if_quick({"--sizes", "64,256,1024", "--packets", "300000", "--sample", "2000"})));
    Words device = {"functions", "--device", "cuda", "--function", function, "--sizes",
                    list.pick("64,128,256,512,1024", "64,1024"), "--batch", list.pick("128,1024,4096", "1024"),
                    "--workers", list.device_workers(), "--packets", list.pick("200000", "50000"), "--ways",
                    // A master sends keys alone.
                    function == "lookup" ? ways + ",launch/staged/master" : ways};
    if (function == "crc") device.emplace_back("--resident");
    list.add("network-functions", "cuda-" + function, device, "cuda/").probes = ProbeSet::kCores;
  }
  const Words cuda = {"--device", "cuda", "--workers", list.device_workers(), "--batch", "1024"};
  const auto add_both = [&](const std::string& name, const Words& command, const Words& host_more,
                            const Words& device_more, const std::string& prefix, const std::string& device_ways) {
    list.add("network-functions", name, words_with(command, host_more), prefix);
    list.add("network-functions", "cuda-" + name,
             words_with(words_with(words_with(command, device_more), cuda), {"--ways", device_ways}), "cuda/" + prefix)
        .probes = ProbeSet::kCores;
  };
  add_both(
      "lookup-routes",
      words_with({"functions", "--function", "lookup", "--sizes", "64", "--ipv4",
                  list.pick("10,100,1000,10000,100000,1000000", "10,1000,100000"), "--route-algorithm", "linear,dir24"},
                 list.if_quick({"--packets", "50000", "--sample", "2000"})),
      {}, {}, "table/", list.pick("cpu,launch/staged/full,persistent/staged/full", "cpu,launch/staged/full"));
  list.add("network-functions", "batches",
           words_with({"functions", "--function", "crc", "--sizes", "64", "--batch",
                       list.pick("32,64,128,256,512,1024,2048,4096,8192", "32,256,2048")},
                      list.if_quick({"--packets", "50000", "--sample", "2000"})),
           "batch/");
  add_both("no-loss",
           words_with({"functions", "--part", "no-loss", "--sizes", list.pick("64,1024", "64"), "--seconds",
                       list.pick("0.2", "0.05")},
                      list.if_quick({"--sample", "2000"})),
           {"--function", list.pick("mirror,lookup,crc", "crc"), "--buffers", "64"},
           {"--function", "crc", "--buffers", "16"}, "no-loss/", list.pick(ways.c_str(), "cpu,launch/commlist/full"));
  add_both("full-buffers",
           words_with({"functions", "--function", "crc", "--sizes", "64", "--part", "overload", "--buffers",
                       list.pick("4,16,64", "4,64"), "--seconds", list.pick("0.2", "0.05")},
                      list.if_quick({"--sample", "2000"})),
           {}, {}, "overload/", list.pick(ways.c_str(), "cpu,launch/commlist/full"));
  // Lists of a worker that are on their way at once.
  std::string lists = "cpu";
  for (const char* flights : {"1", "2", "4", "8", "16"}) {
    if (list.quick() && *flights != '1') continue;
    for (const char* way : {"launch/commlist/full/", "launch/commpool/full/", "launch/staged/full/"})
      lists += std::string(",") + way + flights;
  }
  list.add("network-functions", "cuda-lists",
           words_with(words_with({"functions", "--function", "crc", "--sizes", "64", "--packets",
                                  list.pick("200000", "50000")},
                                 cuda),
                      {"--ways", lists}),
           "cuda/lists/")
      .probes = ProbeSet::kCores;
}

}  // namespace

const Study& louvain_study() {
  static const Study study{
      "louvain",
      {"network-functions", "Single network functions (Louvain)",
       "Mirror, lookup and CRC-32 over frame sizes, packets in and out. table/: lookup by routes of its table, frames "
       "in. batch/: by packets per batch. no-loss/: the highest rate of which no packet is dropped, by search, and the "
       "latency at it (p50, p99 and mean; of other rows at the full rate). overload/: twice what a worker processes, "
       "by "
       "batches that it has room for; without room packets are dropped, or the input waits (blocking; the latency "
       "counts from when a packet should have come). cuda/: by each way to a device: lists of addresses, copies, "
       "mapped memory, resident kernels, one thread that submits for all; flights_N: N batches in flight; cpu: the "
       "host beside them."},
      add_louvain_cases,
      {add_bench_functions}};
  return study;
}

}  // namespace sluice::app
