// The test is Student's of the passes' logarithms, with variances moderated over the rows of a kind: few passes say
// little about the spread of a row, but tens of rows say how much spreads there are. Smyth, Linear Models and Empirical
// Bayes Methods for Assessing Differential Expression in Microarray Experiments, SAGMB 3:1, 2004, sections 3 and 6.2.
// Many rows: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scand. J. Statistics 6:2, 1979. host only
#include "suite_judge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>

namespace sluice::app {
namespace {

constexpr double kAlpha = 0.05;
// With that many degrees of freedom Student's distribution is the normal one.
constexpr double kMostFreedom = 1000;
// Fewer say too little about the spreads of their kind.
constexpr size_t kLeastOfKind = 8;

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

// Derivatives of lgamma: recurrence up to 6, then DLMF 5.11.2 and its derivative. x > 0.
double digamma(double x) {
  double sum = 0;
  for (; x < 6; ++x) sum -= 1 / x;
  const double q = 1 / (x * x);
  return sum + std::log(x) - 1 / (2 * x) - q * (1.0 / 12 - q * (1.0 / 120 - q / 252));
}
double trigamma(double x) {
  double sum = 0;
  for (; x < 6; ++x) sum += 1 / (x * x);
  const double q = 1 / (x * x);
  return sum + 1 / x + q / 2 + q / x * (1.0 / 6 - q * (1.0 / 30 - q / 42));
}

// The chance of a value of Student's distribution below t. With t = sqrt(freedom) tan(angle) its density is a power of
// the cosine, which Simpson's rule takes exactly enough: 500 steps, freedom >= 2.
double student(double t, double freedom) {
  if (t > 0) return 1 - student(-t, freedom);
  constexpr int kSteps = 500;
  const double to = std::atan(t / std::sqrt(freedom)), from = -std::numbers::pi / 2, step = (to - from) / kSteps;
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double weight = i == 0 || i == kSteps ? 1 : i % 2 != 0 ? 4 : 2;
    sum += weight * std::pow(std::max(0.0, std::cos(from + i * step)), freedom - 1);
  }
  const double scale =
      std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) / std::sqrt(std::numbers::pi);
  return scale * sum * step / 3;
}

// Where that chance is 97.5 %.
double student_95(double freedom) {
  double low = 0, high = 100;
  for (int i = 0; i < 60; ++i) (student((low + high) / 2, freedom) < 0.975 ? low : high) = (low + high) / 2;
  return high;
}

struct Spread {
  double variance = 0, freedom = 0;
};

Spread spread_of(const PairedRow& row) {
  Spread s;
  for (const auto* passes : {&row.a, &row.b}) {
    const double middle = mean(*passes);
    for (const double v : *passes) s.variance += (v - middle) * (v - middle);
    s.freedom += static_cast<double>(passes->size()) - 1;
  }
  s.variance /= s.freedom;
  return s;
}

// The distribution that the rows' variances come from: scaled inverse chi-squared of this variance and freedom.
Spread prior_of(std::vector<Spread> all) {
  if (all.size() < 2) return {};
  std::vector<double> sizes;
  for (const Spread& s : all) sizes.push_back(s.variance);
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2), sizes.end());
  const double typical = sizes[sizes.size() / 2];
  // Values that a clock rounds may be equal in all passes, and have no logarithm of their variance.
  const double least = std::max(typical * 1e-2, 1e-10);
  std::vector<double> logs;
  double own = 0;
  for (const Spread& s : all) {
    logs.push_back(std::log(std::max(s.variance, least)) - digamma(s.freedom / 2) + std::log(s.freedom / 2));
    own += trigamma(s.freedom / 2) / static_cast<double>(all.size());
  }
  const double middle = mean(logs);
  double between = 0;
  for (const double one : logs) between += (one - middle) * (one - middle) / (static_cast<double>(logs.size()) - 1);
  // trigamma(freedom / 2) = between - own, and it falls.
  double low = 1e-3, high = kMostFreedom;
  for (int i = 0; i < 60; ++i) {
    const double freedom = std::sqrt(low * high);
    (trigamma(freedom / 2) > between - own ? low : high) = freedom;
  }
  return {std::exp(middle + digamma(low / 2) - std::log(low / 2)), low};
}

// Which of these chances Holm's procedure rejects.
std::vector<bool> holm(const std::vector<double>& chances) {
  std::vector<size_t> order(chances.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t k) { return chances[i] < chances[k]; });
  std::vector<bool> rejected(chances.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (chances[order[i]] > kAlpha / static_cast<double>(order.size() - i)) break;
    rejected[order[i]] = true;
  }
  return rejected;
}

}  // namespace

std::vector<Judged> judge(const std::vector<PairedRow>& rows, double margin) {
  std::vector<Spread> spreads;
  for (const PairedRow& row : rows) spreads.push_back(spread_of(row));
  const Spread prior_of_all = prior_of(spreads);
  std::map<std::string, std::vector<Spread>> kinds;
  for (size_t i = 0; i < rows.size(); ++i) kinds[rows[i].kind].push_back(spreads[i]);
  std::map<std::string, Spread> priors;
  for (const auto& [kind, some] : kinds) priors[kind] = some.size() < kLeastOfKind ? prior_of_all : prior_of(some);
  std::vector<Judged> all(rows.size());
  // Chances of what was seen, if the program is not slower or faster: for all that is known, and beyond the machine.
  std::vector<double> slower, slower_beyond, faster, faster_beyond;
  std::map<double, double> quantiles;  // most rows have as many passes
  for (size_t i = 0; i < rows.size(); ++i) {
    const PairedRow& row = rows[i];
    const Spread& prior = priors[row.kind];
    const double freedom = std::min(spreads[i].freedom + prior.freedom, kMostFreedom);
    const double variance = (spreads[i].variance * spreads[i].freedom + prior.variance * prior.freedom) /
                            (spreads[i].freedom + prior.freedom);
    const double error = std::max(
        1e-9, std::sqrt(variance * (1 / static_cast<double>(row.a.size()) + 1 / static_cast<double>(row.b.size()))));
    Judged& j = all[i];
    j.change = mean(row.b) - mean(row.a);
    const auto [quantile, fresh] = quantiles.try_emplace(freedom);
    if (fresh) quantile->second = student_95(freedom);
    const double half = quantile->second * error;
    j.low = j.change - half;
    j.high = j.change + half;
    slower.push_back(student((j.change + margin) / error, freedom));
    slower_beyond.push_back(student((j.change + margin - row.slowest) / error, freedom));
    faster.push_back(student((margin - j.change) / error, freedom));
    faster_beyond.push_back(student((margin - j.change + row.fastest) / error, freedom));
  }
  const std::vector<bool> is_slower = holm(slower), is_slower_beyond = holm(slower_beyond), is_faster = holm(faster),
                          is_faster_beyond = holm(faster_beyond);
  for (size_t i = 0; i < rows.size(); ++i) {
    const PairedRow& row = rows[i];
    Judged& j = all[i];
    if (is_slower_beyond[i])
      j.verdict = Verdict::kSlower;
    else if (is_faster_beyond[i])
      j.verdict = Verdict::kFaster;
    else if (is_slower[i] && j.change + margin >= row.slowest)
      j.verdict = Verdict::kSlowerAsMachine;
    else if (is_faster[i] && j.change - margin <= row.fastest)
      j.verdict = Verdict::kFasterAsMachine;
    else
      j.verdict = j.low >= -margin && j.high <= margin ? Verdict::kSame : Verdict::kUnclear;
  }
  return all;
}

}  // namespace sluice::app
