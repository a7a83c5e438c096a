// sluice doctor: what this machine has, and the command that fixes each problem.
// host only
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "app.h"
#include "confine.h"
#include "control/json.h"
#include "control/machine.h"
#include "exec/device/device.h"
#include "inputs.h"
#include "ports/methods_here.h"

namespace sluice::app {
namespace {

// Methods of live ports that this user cannot use, and the one command that gives the program what they need.
struct Unprivileged {
  std::vector<std::string> methods;
  std::string mend;
};
Unprivileged unprivileged(const std::vector<MethodHere>& methods) {
  constexpr std::string_view kSetcap = "sudo setcap ";
  Unprivileged all;
  std::vector<std::string> capabilities;
  for (const MethodHere& method : methods) {
    if (method.works || !method.mend.starts_with(kSetcap)) continue;
    all.methods.emplace_back(to_string(method.method));
    const size_t end = method.mend.find('+');
    for (const std::string& one : split_commas(method.mend.substr(kSetcap.size(), end - kSetcap.size()))) {
      if (std::find(capabilities.begin(), capabilities.end(), one) == capabilities.end()) capabilities.push_back(one);
    }
  }
  if (all.methods.empty()) return all;
  std::error_code unknown;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
  all.mend = fmt::format("sudo setcap {}+ep {}; or run it as the service, which has them: sudo systemctl start sluice",
                         fmt::join(capabilities, ","), unknown ? "$(command -v sluice)" : self);
  return all;
}

struct Finding {
  std::string what;
  std::string state;  // "ok", "gap", "info"
  std::string value;
  std::string why;  // of a gap
  std::string mend;
};

struct Findings {
  std::vector<Finding> all;

  void ok(std::string what, std::string value) { all.push_back({std::move(what), "ok", std::move(value), "", ""}); }
  void info(std::string what, std::string value) { all.push_back({std::move(what), "info", std::move(value), "", ""}); }
  void gap(std::string what, std::string value, std::string why, std::string mend) {
    all.push_back({std::move(what), "gap", std::move(value), std::move(why), std::move(mend)});
  }

  void machine(const Machine& m) {
    ok("cpu", fmt::format("{}, {} cores{}", m.cpu, m.cores, m.hypervisor ? ", virtual machine" : ""));
    const bool avx512 = std::find(m.simd.begin(), m.simd.end(), "avx512bw") != m.simd.end();
    const bool avx2 = std::find(m.simd.begin(), m.simd.end(), "avx2") != m.simd.end();
    const bool neon = std::find(m.simd.begin(), m.simd.end(), "neon") != m.simd.end();
    if (neon) {
      info("simd", fmt::format("{}; as compilers make use of it", fmt::join(m.simd, " ")));
    } else if (avx512) {
      ok("simd", fmt::format("{}", fmt::join(m.simd, " ")));
    } else {
      info("simd", fmt::format("{}; {} paths are used", fmt::join(m.simd, " "), avx2 ? "AVX2 or scalar" : "scalar"));
    }
    if (m.memory_gib < 2) {
      gap("memory", fmt::format("{} GiB", m.memory_gib), "full tables with room for a change need 2 GiB",
          "use a machine with more memory, or smaller tables");
    } else {
      ok("memory", fmt::format("{} GiB", m.memory_gib));
    }
    if (m.thp == "never") {
      gap("huge pages", "transparent huge pages are off",
          "large tables on 4 KiB pages look up at about two thirds of the rate",
          "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    } else if (m.thp.empty()) {
      info("huge pages", "unknown; tables fall back to 4 KiB pages");
    } else {
      ok("huge pages", fmt::format("transparent: {}; reserved: {} ({} free, not needed)", m.thp, m.hugepages_total,
                                   m.hugepages_free));
    }
    ok("libpcap", m.libpcap);
    ok("kernel", fmt::format("{}, {}", m.kernel, m.os));
    if (m.build_type == "Debug" || m.build_type == "unknown") {
      gap("build", fmt::format("{}, {}", m.compiler, m.build_type), "rates of an unoptimised build mean nothing",
          "cmake --preset cpu && ninja -C build/cpu sluice");
    } else {
      ok("build", fmt::format("sluice {} ({}), {}, {}", sluice_version(), sluice_revision(), m.compiler, m.build_type));
    }
    if (m.open_files < 1024) {
      gap("open files", fmt::format("limit {}", m.open_files), "one output file per port needs more", "ulimit -n 4096");
    } else {
      ok("open files", fmt::format("limit {}", m.open_files));
    }
    info("confinement", confinement());
  }

  void live_ports() {
    // A run on captures needs none of them.
    const std::vector<MethodHere> methods = port_methods_here();
    if (const Unprivileged lacks = unprivileged(methods); !lacks.methods.empty())
      gap("live ports", fmt::format("this user cannot use {}", fmt::join(lacks.methods, ", ")),
          "the program has no capability for them; runs on captures need none", lacks.mend);
    for (const MethodHere& method : methods) {
      const std::string what = fmt::format("port {}", to_string(method.method));
      if (!method.works) {
        info(what, fmt::format("not usable: {}; {}", method.lacks, method.mend));
      } else if (!method.mend.empty()) {
        info(what, fmt::format("usable, but the kernel receives its packets as well; {}", method.mend));
      } else {
        ok(what, "usable");
      }
    }
  }

  void gpus(const Machine& m) {
    if (m.gpus.empty()) {
      info("gpu", "none here (no /dev/nvidia*); everything runs on the CPU");
    } else if (m.gpu_driver.empty()) {
      gap("gpu", fmt::format("{} without a driver", fmt::join(m.gpus, " ")), "the NVIDIA driver is not loaded",
          "sudo modprobe nvidia");
    } else {
      ok("gpu", fmt::format("{}, driver {}", fmt::join(m.gpus, " "), m.gpu_driver));
    }
    const DeviceCount cuda = count_cuda_devices();
    if (cuda.count == 0) {
      info("cuda", fmt::format("not usable: {}; --device cpu and --device emu are", cuda.why_none));
    } else {
      std::string names;
      for (unsigned i = 0; i < cuda.count; ++i) {
        auto device = open_device(fmt::format("cuda:{}", i));
        if (!device.ok()) {
          gap("cuda", fmt::format("cuda:{}", i), device.error().message,
              device.error().hint.empty() ? "nvidia-smi" : device.error().hint);
          continue;
        }
        const DeviceInfo& d = (*device)->info();
        names +=
            fmt::format("{}cuda:{} {} ({} GiB, {} multiprocessors{})", names.empty() ? "" : "; ", i, d.name,
                        d.memory_bytes >> 30, d.multiprocessors, d.coherent ? ", coherent: no memory is pinned" : "");
      }
      if (!names.empty()) ok("cuda", names);
    }
  }
};

Exit doctor() {
  const Machine machine = describe_machine();
  Findings found;
  found.machine(machine);
  found.live_ports();
  found.gpus(machine);
  const std::vector<Finding>& findings = found.all;
  size_t gaps = 0;
  for (const Finding& f : findings) gaps += f.state == "gap" ? 1 : 0;
  if (json_output()) {
    Json json{{"version", sluice_version()},
              {"revision", sluice_revision()},
              {"machine", to_json(machine)},
              {"gaps", gaps},
              {"findings", Json::array()}};
    for (const Finding& f : findings) {
      Json one{{"what", f.what}, {"state", f.state}, {"value", f.value}};
      if (f.state == "gap") {
        one["why"] = f.why;
        one["mend"] = f.mend;
      }
      json["findings"].push_back(one);
    }
    print_json(json);
    return Exit::kOk;
  }
  std::string text;
  for (const Finding& f : findings) {
    text += fmt::format("{:<5} {:<11} {}\n", f.state, f.what, f.value);
    if (f.state == "gap") text += fmt::format("{:<17} why:  {}\n{:<17} fix:  {}\n", "", f.why, "", f.mend);
  }
  text += gaps == 0 ? "no problems\n" : counted(gaps, "problem") + "\n";
  print_out(text);
  return Exit::kOk;
}

}  // namespace

void add_doctor(Command root) {
  add_subcommand(root, "doctor", "Tools", "Shows what this machine has, and the command that fixes each problem.",
                 "sluice doctor\nsluice doctor -o json", [] { return doctor(); });
}

}  // namespace sluice::app
