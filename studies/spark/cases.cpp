// What `sluice-bench study spark` and the suite frame-latency measure. host only
#include <filesystem>

#include "studies/study.h"

namespace sluice::app {

void add_bench_latency(Command bench);

namespace {

// The study's rows in VPP, by the program that stands in the plug-in's build folder.
void add_vpp(CaseList& list) {
  const std::string program = list.vpp() + "/vpp_bench";
  std::error_code none;
  const std::string lacking =
      list.vpp().empty() ? "not measured here: --vpp or SLUICE_VPP_PLUGIN names no build folder of the VPP plug-in"
      : std::filesystem::exists(program, none)
          ? ""
          : fmt::format("not measured here: {} is no build folder of the VPP plug-in: it has no vpp_bench", list.vpp());
  const Words common = {"--columns",         "acl-plugin,cpu", "--windows",
                        list.pick("9", "5"), "--packets",      list.pick("10240", "2560")};
  const std::pair<const char*, Words> parts[] = {
      {"vpp-rules", {"--masks=", "--rules", list.pick("1,2,4,8,16,32,64,128,256,512,1024", "1,1024")}},
      {"vpp-masks",
       {"--rules=", "--masks", list.pick("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21", "1,21")}}};
  for (const auto& [name, words] : parts) {
    SuiteCase& c = list.add("frame-latency", name, lacking.empty() ? words_with(common, words) : Words{}, "vpp/");
    c.program = program;
    c.measured = list.vpp() + "/vpp_plugins/sluice_plugin.so";
    c.reason = lacking;
  }
}

void add_spark_cases(CaseList& list) {
  const Words all = {"--rules", list.pick("1,2,4,8,16,32,64,128,256,512,1024", "1,16,128,1024"), "--masks",
                     list.pick("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21", "1,8,21")};
  const auto command = [&](const char* device, const char* mode, const char* few) {
    Words words = words_with({"latency", "--device", device}, all);
    if (*mode != 0) words.insert(words.end(), {"--mode", mode});
    if (list.quick()) words.insert(words.end(), {"--frame-repetitions", few});
    return words;
  };
  list.add("frame-latency", "cpu", command("cpu", "", "500"), "cpu/");
  list.add("frame-latency", "emu",
           {"latency", "--device", "emu", "--rules", "1,128", "--masks", "21", "--frame-repetitions",
            list.pick("200", "20")},
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
                         list.pick("32,64,128,256,512,1024,2048,4096,8192,16384", "32,256,2048"),
                         "--frame-repetitions",
                         list.pick("5000", "500")};
  list.add("frame-latency", "buffers", words_with({"latency", "--device", "cpu"}, buffers), "buffers/");
  for (const char* mode : {"launch", "persistent"})
    list.add("frame-latency", std::string("cuda-buffers-") + mode,
             words_with({"latency", "--device", "cuda", "--mode", mode}, buffers),
             fmt::format("cuda/buffers/{}/", mode));
  list.add_benchmark(
      "frame-latency", "rte_acl", "formats_benches",
      list.quick() ? "^acl/frame/(tuple_space|tuple_merge|rte_acl)/(1|16|128|1024)_rules/last$" : "^acl/frame/",
      {"rte_acl"}, "the program was built without DPDK's libraries (-DSLUICE_BENCH_PEERS=ON)");
  add_vpp(list);
  for (const char* mode : {"launch", "persistent", "adaptive"})
    list.add("frame-latency", std::string("cuda-") + mode, command("cuda", mode, "2000"),
             std::string("cuda/") + mode + "/");
}

}  // namespace

const Study& spark_study() {
  static const Study study{
      "spark",
      {"frame-latency", "Time per frame of 256 packets (DGX Spark)",
       "256 packets of which none, the first or the last of some rules with one mask matches, and all of 1,024 rules "
       "with several masks. cpu/: on one core. buffers/: by packets per batch. acl/frame/: the same frames by DPDK's "
       "rte_acl and the project's own in "
       "one "
       "program. vpp/: in VPP, the time of the node that looks a frame up, its acl-plugin's and the plug-in's, on one "
       "core; packets of several masks are drawn from the rules. cuda/: the round trip to a device."},
      add_spark_cases,
      {add_bench_latency}};
  return study;
}

}  // namespace sluice::app
