// What `sluice-bench study ferraris` and the suite ipv4-forwarding measure. host only
#include "studies/study.h"

namespace sluice::app {

void add_bench_forward(Command bench);

namespace {

void add_ferraris_cases(CaseList& list) {
  const std::string packets = list.pick("10000,100000,1000000,10000000", "10000,100000,1000000");
  list.add(
          "ipv4-forwarding", "101-routes",
          {"forward", "--algorithm", "linear,bloom,dir24,sail", "--packets", packets, "--workers", list.both_workers()},
          "cpu/")
      .probes = ProbeSet::kCores;
  // A scan of that many routes takes hours.
  list.add("ipv4-forwarding", "full-table",
           {"forward", "--ipv4", "900000", "--algorithm", "bloom,dir24,sail", "--packets", packets, "--workers",
            list.both_workers()},
           "cpu/")
      .probes = ProbeSet::kCores;
  list.add("ipv4-forwarding", "layouts",
           {"forward", "--algorithm", list.pick("linear,bloom,dir24,sail", "linear,dir24"), "--packets", "1000000",
            "--layout", "headers,fields"},
           "layouts/");
  list.add("ipv4-forwarding", "in-a-row",
           {"forward", "--algorithm", list.pick("linear,dir24", "dir24"), "--packets",
            list.pick("10000,100000,1000000", "1000000"), "--layout", list.pick("headers,fields", "headers"),
            "--memory", "reused,fresh", "--workers", list.quick() ? "1" : list.both_workers()},
           "in-a-row/")
      .probes = list.quick() ? ProbeSet::kOneCore : ProbeSet::kCores;
  list.add("ipv4-forwarding", "payload",
           {"forward", "--algorithm", "dir24", "--packets", "100000", "--payload",
            list.pick("0,64,128,256,512,1024,1480", "0,512")},
           "payload/");
  list.add("ipv4-forwarding", "ttl",
           {"forward", "--algorithm", "dir24", "--packets", list.pick("1000000", "100000"), "--ttl",
            list.pick("uniform,fixed,expiring", "fixed,expiring")},
           "ttl/");
  // The same workers with the same packets, on one device and on all.
  for (const auto& [name, device] : {std::pair{"one", "cuda:0"}, {"all", "cuda:all"}}) {
    SuiteCase& c = list.add("ipv4-forwarding", std::string("cuda-devices-") + name,
                            {"functions", "--device", device, "--function", "lookup", "--ipv4", "101", "--sizes", "64",
                             "--batch", "1024", "--workers", list.device_workers(), "--packets",
                             list.pick("2000000", "200000"), "--ways", "launch/staged/full,launch/commlist/full"},
                            fmt::format("cuda/devices_{}/", name));
    c.probes = ProbeSet::kCores;
    c.devices = 2;
  }
  for (const auto& [name, routes] : {std::pair{"cuda-101-routes", "101"}, {"cuda-full-table", "900000"}}) {
    for (const char* algorithm : {"linear", "bloom", "dir24", "sail"}) {
      if (std::string(algorithm) == "linear" && std::string(routes) != "101") continue;
      list.add("ipv4-forwarding", fmt::format("{}-{}", name, algorithm),
               {"route", "--device", "cuda", "--device-only", "--lookups-only", "--ipv4", routes, "--ipv6", "0",
                "--algorithm", algorithm, "--packets", list.pick("10000000", "1000000"), "--in-a-row", "10"},
               fmt::format("cuda/{}_routes/", routes));
    }
  }
}

}  // namespace

const Study& ferraris_study() {
  static const Study study{
      "ferraris",
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
      add_ferraris_cases,
      {add_bench_forward}};
  return study;
}

}  // namespace sluice::app
