// host only
// The classes of FastClick-GPU that say in their name where and how they run: what they take, and what they ask for.
// Here placement is the run's: they are the plain elements under other names, and `sluice run` follows the first of
// them where the command line says nothing of a device, and in sizes where it says nothing of these.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "batch/batch.h"
#include "graph/element.h"

namespace sluice {

// The arguments of such a class. Lists ("CommList") and regions ("Coalescent") take different ones by position;
// `by_position` false: all by keyword, for classes whose positions are routes.
inline std::vector<ArgumentSpec> gpu_arguments(bool lists, bool by_position = true) {
  const auto number = [&](const char* name, const char* help, bool positional = true) {
    return ArgumentSpec{
        .name = name, .kind = ArgumentKind::kUint, .positional = positional && by_position, .help = help};
  };
  const auto flag = [&](const char* name, const char* text, const char* help, bool positional = true) {
    return ArgumentSpec{.name = name,
                        .kind = ArgumentKind::kBool,
                        .positional = positional && by_position,
                        .default_text = text,
                        .help = help};
  };
  const char* const under_way = "`--flights` of the run if that is not given: batches in flight per worker";
  std::vector<ArgumentSpec> all;
  if (!lists) all = {number("FROM", "accepted: the element knows which bytes it reads"), number("TO", "as FROM")};
  all.push_back(number("CAPACITY", "accepted: there is room for all batches in flight, `--flights` times `--batch`"));
  all.push_back(number("MAX_BATCH", "`--batch` of the run if that is not given: packets per batch, at most 8192"));
  if (lists)
    all.push_back(number("THREAD_BLOCKS_PER_QUEUE", "accepted: the program decides how many warps serve a ring"));
  all.push_back(flag("BLOCKING", "false",
                     "accepted: readers wait while all batches are in flight; a late device causes no drops"));
  if (lists) {
    all.push_back(flag("PERSISTENT_KERNEL", "true", "true: `--mode persistent`; false: `--transport commlist`"));
    all.push_back(number("LISTS_PER_CORE", under_way, false));
  } else {
    all.push_back(flag("ZEROCOPY", "true", "true: `--transport zerocopy`; false: `staged`"));
    all.push_back(flag("COPYBACK", "false", "accepted: changed bytes are always copied back"));
  }
  all.push_back(
      number("QUEUES_PER_CORE", lists ? "accepted: a worker has one ring per kind of record" : under_way, !lists));
  all.push_back(flag("VERBOSE", "false", "accepted", false));
  return all;
}

// A class like `plain` under a name of FastClick-GPU's.
inline ElementClass gpu_class(const ElementClass& plain, const char* name, bool lists, bool by_position = true) {
  ElementClass c = plain;
  c.name = name;
  c.aliases.clear();
  c.summary = plain.summary + ", asking for a GPU";
  c.description =
      plain.name +
      " under its FastClick-GPU name, with the same output. Without `--device`, `sluice run` uses a GPU, or ends "
      "with exit code 4 where there is none (`--device cpu` or `emu` gives the same output), with " +
      (lists ? "resident kernels (`PERSISTENT_KERNEL false`: launched ones over lists of frames)"
             : "launched kernels that read mapped memory (`ZEROCOPY false`: copies of it)") +
      " and, without `--records`, frames where the whole segment can run so, else keys (`--records frame`).";
  for (ArgumentSpec& a : gpu_arguments(lists, by_position)) c.arguments.push_back(std::move(a));
  c.example = "in -> " + c.name + "(CAPACITY 4096, MAX_BATCH 1024) -> out;";
  return c;
}

// Whether a class of that name works on lists of packets: its lookup's name does not say so.
inline bool gpu_lists(std::string_view class_name) {
  return class_name.ends_with("CommList") || class_name == "GPUIPLookup";
}

// What such an element asks for: mode and transport as the command line names them. Empty for any other element.
struct GpuPlacement {
  const char* mode = "";
  const char* transport = "";
  // 0: it does not say. Within the limits of the options.
  uint32_t batch = 0;
  uint32_t flights = 0;
};
inline constexpr uint32_t kMostFlights = 16;
inline GpuPlacement gpu_placement(std::string_view class_name, const Arguments& arguments) {
  if (!class_name.starts_with("GPU")) return {};
  const bool lists = gpu_lists(class_name);
  const auto size = [&](const char* name, uint32_t most) {
    return arguments.has(name) ? static_cast<uint32_t>(std::min<uint64_t>(arguments.get_uint(name), most)) : 0;
  };
  GpuPlacement asked;
  if (lists) {
    asked.mode = arguments.get_bool("PERSISTENT_KERNEL") ? "persistent" : "launch";
    asked.transport = arguments.get_bool("PERSISTENT_KERNEL") ? "staged" : "commlist";
  } else {
    asked.mode = "launch";
    asked.transport = arguments.get_bool("ZEROCOPY") ? "zerocopy" : "staged";
  }
  asked.batch = size("MAX_BATCH", Batch::kMaxPackets);
  asked.flights = size(lists ? "LISTS_PER_CORE" : "QUEUES_PER_CORE", kMostFlights);
  return asked;
}

}  // namespace sluice
