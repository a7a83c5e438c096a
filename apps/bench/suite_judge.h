// Whether a program became slower, of two reports' rows and of what the machine did meanwhile: the statistics of
// `sluice bench compare`. host only
#pragma once

#include <string>
#include <vector>

namespace sluice::app {

// A row of both reports. Speeds are logarithms, more is better, one for each pass, which are taken as independent.
struct PairedRow {
  std::vector<double> a, b;         // at least 2 of each
  std::string kind;                 // rows of one kind spread alike: one suite's figures in one unit
  double slowest = 0, fastest = 0;  // logarithms of what the machine's probes changed by; <= 0 and >= 0
};

enum class Verdict : uint8_t {
  kSame,             // the interval lies within the margin
  kUnclear,          // none of the others: not told apart from chance, or from what the machine did
  kSlowerAsMachine,  // slower by more than the margin, but not by more than the margin beyond the slowest probe
  kFasterAsMachine,
  kSlower,
  kFaster,
};

struct Judged {
  double change = 0, low = 0, high = 0;  // logarithms: the mean, its 95 % interval (of this row alone)
  Verdict verdict = Verdict::kSame;
};

// One for each row. `margin`: logarithm, >= 0. Of all rows together, the chance that one is called slower (or faster)
// although it is not, is at most 5 %.
std::vector<Judged> judge(const std::vector<PairedRow>& rows, double margin);

}  // namespace sluice::app
