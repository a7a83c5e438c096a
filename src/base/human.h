// host only
// Tables of text, and amounts with their units, for people.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

// Columns of text; numbers are right-aligned.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heads) : heads_(std::move(heads)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  std::string str() const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

std::string human_bytes(double bytes);
std::string human_rate(double per_second, std::string_view what);
std::string human_seconds(double seconds);

}  // namespace sluice
