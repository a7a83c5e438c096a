// host only
#include "case_list.h"

#include <algorithm>

namespace sluice::app {

Words words_with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

SuiteCase& CaseList::add(std::string suite, std::string name, Words command, std::string prefix) {
  SuiteCase& c = all_.emplace_back();
  c.suite = std::move(suite);
  c.name = std::move(name);
  c.command = std::move(command);
  c.prefix = std::move(prefix);
  return c;
}

SuiteCase& CaseList::add_benchmark(std::string suite, std::string name, const char* program, const std::string& filter,
                                   Words peers, std::string without) {
  SuiteCase& c = add(std::move(suite), std::move(name),
                     {"--benchmark_filter=" + filter, "--benchmark_repetitions=" + pick("5", "3"),
                      "--benchmark_min_time=" + pick("0.3", "0.05"), "--benchmark_format=json"});
  c.program = program;
  c.output = SuiteOutput::kBenchmark;
  c.peers = std::move(peers);
  c.without_peers = std::move(without);
  return c;
}

Words CaseList::searches() const {
  return quick_ ? Words{"--duration", "0.1", "--resolution", "5"} : Words{"--duration", "2", "--resolution", "1"};
}

std::string CaseList::device_workers() const {
  return std::to_string(std::clamp(cores_, 1u, 8u));
}

std::vector<unsigned> CaseList::worker_counts(unsigned cores) const {
  const unsigned most = std::min(cores, 256u);
  std::vector<unsigned> counts = {1};
  for (unsigned n = 2; n < most && !quick_; n *= 2) counts.push_back(n);
  if (most > 1) counts.push_back(most);
  return counts;
}

std::string CaseList::both_workers() const {
  return fmt::format("{}", fmt::join(worker_counts(), ","));
}

}  // namespace sluice::app
