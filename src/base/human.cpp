// host only
#include "base/human.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice {

std::string TextTable::str() const {
  std::vector<size_t> width(heads_.size());
  std::vector<bool> number(heads_.size(), true);
  for (size_t c = 0; c < heads_.size(); ++c) {
    width[c] = heads_[c].size();
    for (const auto& row : rows_) {
      width[c] = std::max(width[c], row[c].size());
      // A number, with its unit at most.
      const bool digit = !row[c].empty() && std::strchr("0123456789", row[c][0]) != nullptr;
      if (row[c] != "-" && !row[c].empty() && (!digit || row[c].size() > 14)) number[c] = false;
    }
  }
  std::string text;
  auto line = [&](const std::vector<std::string>& row) {
    std::string one;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c != 0) one += "  ";
      const std::string pad(width[c] - row[c].size(), ' ');
      one += number[c] ? pad + row[c] : row[c] + pad;
    }
    while (!one.empty() && one.back() == ' ') one.pop_back();
    text += one + "\n";
  };
  line(heads_);
  for (const auto& row : rows_) line(row);
  return text;
}

std::string human_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  if (bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", bytes / 1024);
  if (bytes < 1024.0 * 1024 * 1024) return fmt::format("{:.1f} MiB", bytes / 1024 / 1024);
  return fmt::format("{:.2f} GiB", bytes / 1024 / 1024 / 1024);
}
std::string human_rate(double per_second, std::string_view what) {
  if (what == "packets" || what == "bit") {
    const char* const unit = what == "packets" ? "pps" : "bit/s";
    if (per_second >= 1e9 && what == "bit") return fmt::format("{:.2f} G{}", per_second / 1e9, unit);
    if (per_second >= 1e6) return fmt::format("{:.2f} M{}", per_second / 1e6, unit);
    if (per_second >= 1e3) return fmt::format("{:.1f} k{}", per_second / 1e3, unit);
    return fmt::format("{:.0f} {}", per_second, unit);
  }
  if (per_second >= 1e6) return fmt::format("{:.2f} M {}/s", per_second / 1e6, what);
  if (per_second >= 1e3) return fmt::format("{:.1f} k {}/s", per_second / 1e3, what);
  return fmt::format("{:.0f} {}/s", per_second, what);
}
std::string human_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

}  // namespace sluice
