// host only
#include "control/machine.h"

#include <dirent.h>
#include <pcap/pcap.h>
#include <sched.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <sstream>

#include "control/json.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0.1.0"
#endif
#ifndef SLUICE_BUILD_TYPE
#define SLUICE_BUILD_TYPE "unknown"
#endif

namespace sluice {

extern const char kRevision[];  // cmake/Revision.cmake writes it

namespace {

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\"\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\"\n") + 1 - begin);
}

// The value of the first line that starts with `key`, after `separator`.
std::string first_value(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t at = line.find(separator);
    if (at != std::string::npos) return trim(line.substr(at + 1));
  }
  return {};
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trim(line);
}

uint64_t leading_number(const std::string& text) {
  uint64_t value = 0;
  std::istringstream(text) >> value;
  return value;
}

std::vector<std::string> vector_sets() {
  std::vector<std::string> sets;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) sets.push_back("sse4.2");
  if (__builtin_cpu_supports("avx2")) sets.push_back("avx2");
  if (__builtin_cpu_supports("avx512f")) sets.push_back("avx512f");
  if (__builtin_cpu_supports("avx512bw")) sets.push_back("avx512bw");
  if (__builtin_cpu_supports("avx512vl")) sets.push_back("avx512vl");
  if (__builtin_cpu_supports("avx512vbmi")) sets.push_back("avx512vbmi");
#elif defined(__aarch64__)
  const unsigned long has = getauxval(AT_HWCAP), also = getauxval(AT_HWCAP2);
  if ((has & HWCAP_ASIMD) != 0) sets.push_back("neon");
  if ((has & HWCAP_CRC32) != 0) sets.push_back("crc32");
  if ((has & HWCAP_SVE) != 0) sets.push_back("sve");
  if ((also & HWCAP2_SVE2) != 0) sets.push_back("sve2");
#endif
  return sets;
}

// Arm's processors have no name there, but numbers: "implementer 0x41, part 0xd4f".
std::string cpu_numbers() {
  const std::string by = first_value("/proc/cpuinfo", "CPU implementer", ':');
  const std::string part = first_value("/proc/cpuinfo", "CPU part", ':');
  return by.empty() || part.empty() ? std::string() : ", implementer " + by + ", part " + part;
}

}  // namespace

std::string sluice_version() {
  return SLUICE_VERSION;
}
std::string sluice_revision() {
  return kRevision;
}

Machine describe_machine() {
  Machine m;
  m.cpu = first_value("/proc/cpuinfo", "model name", ':');
  utsname name{};
  if (uname(&name) == 0) {
    m.kernel = name.release;
    if (m.cpu.empty()) m.cpu = name.machine + cpu_numbers();
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) m.cores = static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  m.memory_gib = std::round(static_cast<double>(leading_number(first_value("/proc/meminfo", "MemTotal", ':'))) / 1024 /
                            1024 * 10) /
                 10;
  m.hugepages_total = leading_number(first_value("/proc/meminfo", "HugePages_Total", ':'));
  m.hugepages_free = leading_number(first_value("/proc/meminfo", "HugePages_Free", ':'));
  m.os = first_value("/etc/os-release", "PRETTY_NAME", '=');
  if (m.os.empty()) m.os = name.sysname;
#if defined(__clang__)
  m.compiler = "clang++ " __clang_version__;
#elif defined(__GNUC__)
  m.compiler = "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
               std::to_string(__GNUC_PATCHLEVEL__);
#endif
  m.build_type = SLUICE_BUILD_TYPE;
  m.simd = vector_sets();
  const std::string thp = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = thp.find('['), close = thp.find(']');
  if (open != std::string::npos && close != std::string::npos && close > open)
    m.thp = thp.substr(open + 1, close - open - 1);
  m.libpcap = pcap_lib_version();
  m.hypervisor = (" " + first_value("/proc/cpuinfo", "flags", ':') + " ").find(" hypervisor ") != std::string::npos;
  if (DIR* dev = opendir("/dev"); dev != nullptr) {
    while (const dirent* entry = readdir(dev)) {
      const std::string file = entry->d_name;
      if (file.size() > 6 && file.compare(0, 6, "nvidia") == 0 &&
          std::all_of(file.begin() + 6, file.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) {
        m.gpus.push_back("/dev/" + file);
      }
    }
    closedir(dev);
    std::sort(m.gpus.begin(), m.gpus.end());
  }
  m.gpu_driver = first_value("/proc/driver/nvidia/version", "NVRM version", ':');
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) m.open_files = limit.rlim_cur;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    m.locked_memory = limit.rlim_cur == RLIM_INFINITY ? ~uint64_t{0} : limit.rlim_cur;
  return m;
}

nlohmann::ordered_json to_json(const Machine& m) {
  using Json = nlohmann::ordered_json;
  Json json{{"cpu", m.cpu},
            {"cores", m.cores},
            {"memory_gib", m.memory_gib},
            {"gpu", m.gpus.empty() ? Json(nullptr) : Json(m.gpus.front())},
            {"driver", m.gpu_driver.empty() ? Json(nullptr) : Json(m.gpu_driver)},
            {"os", m.os},
            {"kernel", m.kernel},
            {"compiler", m.compiler},
            {"build", m.build_type},
            {"simd", m.simd},
            {"thp", m.thp},
            {"hugepages_total", m.hugepages_total},
            {"hugepages_free", m.hugepages_free},
            {"virtual", m.hypervisor}};
  return json;
}

}  // namespace sluice
