// Collects the findings of one configuration in any order and hands them back in file order. Internal.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/click/source.h"

namespace sluice::click {

class Findings {
 public:
  explicit Findings(std::shared_ptr<const SourceText> source) : source_(std::move(source)) {}

  // An error over `length` bytes at `offset`. The same message at the same place counts once (an element class that is
  // expanded a thousand times reports its mistake once). The reference is good until the next call.
  Diagnostic& error(size_t offset, size_t length, std::string message) {
    if (count_ >= kStored || !seen_.insert({offset, message}).second) {
      if (count_ >= kStored) ++count_;
      return ignored_ = {};
    }
    ++count_;
    found_.emplace_back(offset, source_->diagnostic(offset, length, std::move(message)));
    return found_.back().second;
  }

  bool ok() const { return count_ == 0; }
  const SourceText& source() const { return *source_; }
  const std::shared_ptr<const SourceText>& shared_source() const { return source_; }

  Error to_error() {
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Diagnostics all(source_->file(), source_->text());
    for (auto& [offset, diagnostic] : found_) all.add(std::move(diagnostic));
    return all.to_error();
  }

 private:
  static constexpr size_t kStored = 4 * Diagnostics::kLimit;
  std::shared_ptr<const SourceText> source_;
  std::vector<std::pair<size_t, Diagnostic>> found_;
  std::set<std::pair<size_t, std::string>> seen_;
  Diagnostic ignored_;
  size_t count_ = 0;
};

}  // namespace sluice::click
