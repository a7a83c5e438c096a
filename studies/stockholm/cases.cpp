// What `sluice-bench study stockholm` and the suite data-plane measure. host only
#include <algorithm>

#include "studies/study.h"

namespace sluice::app {

void add_bench_port(Command bench);
void add_bench_shaper(Command bench);

namespace {

void add_stockholm_cases(CaseList& list) {
  list.add(
      "data-plane", "pipeline",
      words_with({"pipeline", "--count", "1000", "--sizes", list.pick("64,512,1518", "64,512")}, list.small_tables()),
      "pipeline/");
  for (const char* mode : {"launch", "persistent", "adaptive"}) {
    list.add("data-plane", std::string("cuda-pipeline-") + mode,
             words_with({"pipeline", "--device", "cuda", "--mode", mode, "--count", "1000", "--sizes",
                         list.pick("64,512,1518", "64,512"), "--batch", list.pick("256,1024,4096", "1024"), "--workers",
                         list.device_workers()},
                        list.small_tables()),
             std::string("cuda/pipeline/") + mode + "/")
        .probes = ProbeSet::kCores;
  }
  // What of a packet crosses: its frame, or its key.
  for (const char* records : {"frame", "key"}) {
    list.add("data-plane", std::string("cuda-records-") + records,
             words_with({"pipeline", "--device", "cuda", "--mode", "launch", "--records", records, "--count", "1000",
                         "--sizes", "64", "--batch", "1024", "--workers", list.device_workers()},
                        list.small_tables()),
             fmt::format("cuda/records/{}/", records))
        .probes = ProbeSet::kCores;
  }
  // The path to an output port: frames in the device's memory, fed from the host, and by resident kernels.
  list.add("data-plane", "cuda-port",
           words_with({"port", "--device", "cuda", "--device-only", "--batch", list.pick("256,1024", "1024"),
                       "--workers", list.device_workers()},
                      list.if_quick({"--packets", "200000"})),
           "cuda/")
      .probes = ProbeSet::kCores;
  // By kernels that stay, with priorities and work that is stolen.
  list.add("data-plane", "cuda-port-persistent",
           {"port", "--device", "cuda", "--device-only", "--mode", "launch", "--persistent", "--sizes", "64",
            "--seconds", list.pick("0.3", "0.1")},
           "cuda/persistent/")
      .probes = ProbeSet::kCores;
  // One more thread reads: with as many workers as cores the scheduler decides what a row shows.
  const std::vector<unsigned> beside_reader = list.worker_counts(list.cores() > 1 ? list.cores() - 1 : 1);
  const std::string most_workers = std::to_string(std::min(beside_reader.back(), 2u));
  list.add("data-plane", "priorities",
           words_with({"priorities", "--repetitions", list.pick("5", "3"), "--part", "mix,chunks,timeouts,overload",
                       "--workers", most_workers},
                      list.if_quick({"--packets", "500000", "--seconds", "0.2", "--chunks", "16,64,256,1024"})),
           "priorities/")
      .probes = ProbeSet::kCores;
  list.add("data-plane", "priorities-workers",
           words_with({"priorities", "--repetitions", list.pick("5", "3"), "--part", "workers", "--workers",
                       fmt::format("{}", fmt::join(beside_reader, ","))},
                      list.if_quick({"--packets", "500000"})),
           "priorities/")
      .probes = ProbeSet::kCores;
  // Flows keep their DSCP: all of one class, of three, and of eight in three.
  list.add("data-plane", "dscp",
           words_with({"priorities", "--part", "mix", "--dscp", "ef=100", "--dscp", "ef=5,af41=15,default=80", "--dscp",
                       "ef=10,cs5=10,af41=10,af31=10,af21=10,af11=10,cs1=10,default=30", "--workers", most_workers,
                       "--repetitions", list.pick("5", "3")},
                      list.if_quick({"--packets", "500000"})),
           "priorities/")
      .probes = ProbeSet::kCores;
  // From a few entries to more than a full table has; a scan takes minutes at such.
  const std::string entries = list.pick("10,100,1000,4000,10000,100000,1000000", "10,4000,100000");
  const Words generated = {"--ipv4", list.pick("900000", "100000"), "--ipv6", "0"};
  list.add(
      "data-plane", "trie-entries",
      words_with(words_with({"route", "--count", entries, "--algorithm", "trie,poptrie,dir24,bloom,sail"}, generated),
                 list.if_quick({"--packets", "65536", "--sample", "5000"})),
      "entries/");
  list.add("data-plane", "cuda-trie-entries",
           words_with(words_with({"route", "--device", "cuda", "--device-only", "--lookups-only", "--count", entries,
                                  "--algorithm", "trie,poptrie,dir24,sail"},
                                 generated),
                      list.if_quick({"--packets", "1000000", "--sample", "5000"})),
           "cuda/entries/");
  // One small table by where it lies: a route takes up to 28 bytes, constant memory has 64 KiB, a block 227.
  for (const std::string memory : {"global", "constant", "shared"})
    list.add("data-plane", "cuda-table-memory-" + memory,
             {"route", "--device", "cuda", "--device-only", "--lookups-only", "--table-memory", memory, "--count",
              memory == "constant" ? list.pick("100,1000,2000", "100,2000")
                                   : list.pick("100,1000,2000,4000,8000", "100,2000,4000"),
              "--ipv4", "10000", "--ipv6", "0", "--algorithm", "trie", "--packets", list.pick("10000000", "1000000")},
             fmt::format("cuda/table/{}/", memory));
  list.add("data-plane", "shaper",
           words_with({"shaper"}, list.if_quick({"--seconds", "2", "--real-seconds", "0.2", "--packets", "200000"})),
           "shaper/")
      .checked_prefix = "simulated/";
}

}  // namespace

const Study& stockholm_study() {
  static const Study study{
      "stockholm",
      {"data-plane", "A data plane with classes (Stockholm)",
       "The pipeline with classes of packets: rate by mix (by class, or by DSCP of flows), workers and chunk; latency "
       "by chunk and by the longest time to fill one; shapers; without classes. entries/: the trie and other lookups "
       "by "
       "the routes of a table. cuda/table/: where a table lies. cuda/records/: by what of a packet crosses to a "
       "device. cuda/: the pipeline with lookups on a device, and the "
       "path to an output "
       "port."},
      add_stockholm_cases,
      {add_bench_port, add_bench_shaper}};
  return study;
}

}  // namespace sluice::app
