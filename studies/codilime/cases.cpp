// What `sluice-bench study codilime` and the suite acl-application measure. host only
#include "studies/study.h"

namespace sluice::app {

namespace {

void add_codilime_cases(CaseList& list) {
  for (const std::string count : {"10", "1000", "10000", "100000"}) {
    if (list.quick() && count.size() > 4) continue;
    list.add(
        "acl-application", "module-" + count,
        {"classify", "--count", count, "--algorithm",
         count.size() > 4 ? "tuple_space,tuple_merge" : "linear,tuple_space,tuple_merge", "--packets", list.lookups()},
        "module/");
  }
  // One core and all: of one they are the rows above.
  for (const unsigned n : list.worker_counts()) {
    if (n == 1) continue;
    list.add("acl-application", fmt::format("module-cores-{}", n),
             {"classify", "--count", "1000", "--algorithm", "tuple_space,tuple_merge", "--workers", std::to_string(n),
              "--packets", list.lookups()},
             "module/")
        .probes = ProbeSet::kCores;
  }
  // On live ports, with the access list: a rate without loss, and the latency at 98 % of it.
  for (const std::string way : {"af_packet", "af_xdp"})
    list.add("acl-application", "live-" + way,
             words_with({"live", "--ways", way, "--rules", "1000", "--sizes", list.pick("64,imix", "64"),
                         "--repetitions", "1", "--latency"},
                        list.searches()),
             "live/rules_1000/")
        .probes = ProbeSet::kLive;
  const auto add_device_module = [&](const char* name, const std::string& counts, const char* algorithms) {
    list.add("acl-application", name,
             {"classify", "--device", "cuda", "--device-only", "--count", counts, "--algorithm", algorithms, "--mode",
              "persistent", "--workers", list.device_workers(), "--frames",
              list.pick("32,64,128,256,512,1024,2048,4096,8192,16384", "32,256,2048"), "--packets", list.lookups(),
              "--frame-repetitions", list.pick("1000", "200")},
             "cuda/module/")
        .probes = ProbeSet::kCores;
  };
  add_device_module("cuda-module-linear", "10,1000", "linear");
  add_device_module("cuda-module", list.pick("10,1000,10000,100000", "10,1000"), "tuple_space,tuple_merge");
  list.add("acl-application", "cuda-application",
           words_with({"pipeline", "--device", "cuda", "--mode", "launch", "--records", "frame", "--count",
                       list.pick("10000", "1000"), "--batch", list.pick("256,512,1024,2048,4096,8192", "256,2048"),
                       "--workers", list.device_workers()},
                      list.small_tables()),
           "cuda/application/")
      .probes = ProbeSet::kCores;
  for (const std::string count : {"10", "1000", "100000"}) {
    if (list.quick()) break;
    list.add("acl-application", "application-rules-" + count,
             {"pipeline", "--count", count, "--batch", "32,256,2048", "--workers", "1"},
             fmt::format("application/rules_{}/", count));
  }
  for (const unsigned n : list.worker_counts()) {
    list.add("acl-application", fmt::format("application-{}", n),
             words_with(
                 {"pipeline", "--count", list.pick("10000", "1000"), "--batch",
                  list.pick("32,64,128,256,512,1024,2048,4096,8192", "32,256,2048"), "--workers", std::to_string(n)},
                 list.small_tables()),
             "application/")
        .probes = n > 1 ? ProbeSet::kCores : ProbeSet::kOneCore;
  }
}

}  // namespace

const Study& codilime_study() {
  static const Study study{
      "codilime",
      {"acl-application", "Access list alone and in an application (CodiLime)",
       "module/: the list alone, on one core and on N (xN). live/: sluice run between veth pairs with a list of 1,000 "
       "rules. application/: frames in, access list, routes, neighbours, frames out, by packets per "
       "batch and workers (mean, p50, p99: the time of a batch). cuda/: both with lookups, or whole frames, on a "
       "device."},
      add_codilime_cases,
      {}};
  return study;
}

}  // namespace sluice::app
