// host only
#include "rapl.h"

#include <filesystem>
#include <fstream>

namespace sluice::app {

std::optional<uint64_t> Rapl::number(const std::string& package, const char* file) const {
  std::ifstream in(folder_ + "/" + package + "/" + file);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

std::optional<std::map<std::string, uint64_t>> Rapl::read() const {
  std::map<std::string, uint64_t> all;
  std::error_code none;
  for (std::filesystem::directory_iterator at(folder_, none), end; !none && at != end; at.increment(none)) {
    const std::string name = at->path().filename();
    // intel-rapl:0 is a package (also of AMD); intel-rapl:0:1 a part of one, which counts in it.
    if (!name.starts_with("intel-rapl:") || name.find(':') != name.rfind(':')) continue;
    const auto energy = number(name, "energy_uj");
    // A sum without one of the packages would be no figure of the machine.
    if (!energy) return std::nullopt;
    all[name] = *energy;
  }
  if (all.empty()) return std::nullopt;
  return all;
}

double Rapl::joules(const std::map<std::string, uint64_t>& from, const std::map<std::string, uint64_t>& to) const {
  double sum = 0;
  for (const auto& [package, before] : from) {
    const auto after = to.find(package);
    if (after == to.end()) continue;
    uint64_t used = after->second - before;
    if (after->second < before) used = number(package, "max_energy_range_uj").value_or(0) - before + after->second;
    sum += static_cast<double>(used) * 1e-6;
  }
  return sum;
}

}  // namespace sluice::app
