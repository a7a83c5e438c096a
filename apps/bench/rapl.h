// Energy of this machine's processors by RAPL, as Linux's powercap gives it. host only
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace sluice::app {

// Counters of all packages, each read at one moment; they begin again from 0 after their range.
class Rapl {
 public:
  // folder: /sys/class/powercap, or what a test puts in its place.
  explicit Rapl(std::string folder) : folder_(std::move(folder)) {}

  // Microjoules by package; nothing where the machine has no RAPL, or this user may not read it (root may).
  std::optional<std::map<std::string, uint64_t>> read() const;
  // Joules from one reading to a later one of at most one turn of the counters.
  double joules(const std::map<std::string, uint64_t>& from, const std::map<std::string, uint64_t>& to) const;

 private:
  std::optional<uint64_t> number(const std::string& package, const char* file) const;

  std::string folder_;
};

}  // namespace sluice::app
