// host only
#include "ports/dpdk/dpdk_port.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "ports/dpdk/module.h"
#include "ports/methods.h"

namespace sluice {

namespace {

constexpr char kModuleFile[] = "libsluice_dpdk.so";
constexpr char kBuild[] =
    "apt-get install libdpdk-dev; cmake --preset cpu -DSLUICE_DPDK=on; cmake --build build/cpu; cmake --install "
    "build/cpu";

void log_for_module(LogLevel level, std::string_view line) {
  if (log_enabled(level)) log_line(level, line);
}

// Never unloaded: DPDK's threads and tables last as long as the process.
Result<const DpdkModule*> load(const std::vector<std::string>& modules) {
  std::error_code ignored;
  const std::string* module = nullptr;
  std::string looked;
  for (const std::string& path : modules) {
    if (std::filesystem::exists(path, ignored)) {
      module = &path;
      break;
    }
    looked += (looked.empty() ? "" : ", ") + path;
  }
  if (module == nullptr) {
    return Error(fmt::format("no DPDK ports: the module {} is not there (looked for {})", kModuleFile, looked),
                 fmt::format("build and install it: {}", kBuild));
  }
  void* handle = dlopen(module->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Error(fmt::format("no DPDK ports: {}", why == nullptr ? *module : why),
                 "install DPDK's libraries and drivers: apt-get install dpdk librte-meta-net librte-meta-mempool");
  }
  const auto* found = static_cast<const DpdkModule*>(dlsym(handle, kDpdkModuleSymbol));
  if (found == nullptr || std::strcmp(found->seam, SLUICE_DPDK_SEAM) != 0) {
    dlclose(handle);
    return Error(fmt::format("no DPDK ports: {} belongs to another build of this program", *module),
                 fmt::format("build and install both together: {}", kBuild));
  }
  return found;
}

}  // namespace

std::vector<std::string> dpdk_modules() {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return {};
  const std::filesystem::path folder = program.parent_path();
  return {(folder / kModuleFile).string(), (folder.parent_path() / "lib/sluice" / kModuleFile).string()};
}

bool has_dpdk_module() {
  const std::vector<std::string> modules = dpdk_modules();
  std::error_code ignored;
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& path) { return std::filesystem::exists(path, ignored); });
}

Result<std::unique_ptr<Port>> open_dpdk_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool,
                                             const std::vector<std::string>& modules) {
  auto module = load(modules);
  if (!module) return std::move(module).error();
  return (*module)->open(DpdkHost{log_for_module}, options, pool);
}

Result<std::unique_ptr<Port>> open_dpdk_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool) {
  return open_dpdk_port(options, pool, dpdk_modules());
}

void examine_dpdk(MethodHere& here) {
  if (!has_dpdk_module())
    lack(here, "the module libsluice_dpdk.so", "sudo apt-get install libdpdk-dev; cmake -DSLUICE_DPDK=on");
}

}  // namespace sluice
