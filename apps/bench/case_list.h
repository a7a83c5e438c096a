// The cases of `sluice bench suite` as they are put together, for one size of it on one machine.
// host only
#pragma once

#include <span>
#include <string>
#include <vector>

#include "suite.h"

namespace sluice::app {

using Words = std::vector<std::string>;

Words words_with(Words words, const Words& more);

class CaseList {
 public:
  CaseList(bool quick, unsigned cores, std::string vpp) : quick_(quick), cores_(cores), vpp_(std::move(vpp)) {}

  bool quick() const { return quick_; }
  unsigned cores() const { return cores_; }
  const std::string& vpp() const { return vpp_; }  // the build folder of the plug-in for VPP, or ""
  std::span<SuiteCase> all() { return all_; }
  std::vector<SuiteCase> take() { return std::move(all_); }

  SuiteCase& add(std::string suite, std::string name, Words command, std::string prefix = "");
  // Of a program of google-benchmark. `peers` and `without`: SuiteCase's `peers` and `without_peers`.
  SuiteCase& add_benchmark(std::string suite, std::string name, const char* program, const std::string& filter,
                           Words peers, std::string without);

  // `full`, or with --quick `small`.
  std::string pick(const char* full, const char* small) const { return quick_ ? small : full; }
  Words if_quick(Words more) const { return quick_ ? more : Words{}; }
  std::string lookups() const { return pick("200000", "20000"); }
  Words small_tables() const { return if_quick({"--ipv4", "10000", "--ipv6", "2000", "--packets", "300000"}); }
  Words searches() const;
  // Of what feeds a device.
  std::string device_workers() const;
  // One and all; without --quick also the powers of two between them.
  std::vector<unsigned> worker_counts(unsigned cores) const;
  std::vector<unsigned> worker_counts() const { return worker_counts(cores_); }
  std::string both_workers() const;

 private:
  const bool quick_;
  const unsigned cores_;
  const std::string vpp_;
  std::vector<SuiteCase> all_;
};

}  // namespace sluice::app
