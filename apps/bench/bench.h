// host only
// What the parts of `sluice bench` share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/sluice/app.h"
#include "apps/sluice/devices.h"
#include "apps/sluice/inputs.h"
#include "control/json.h"
#include "control/standard_graph.h"
#include "qos/qos_model.h"

namespace sluice::app {

// What a measurement leaves to the program beside the options' defaults: which algorithms look up its lists and routes.
struct StandingDefaults {
  bool lists = false, routes = false;
};

struct BenchOptions {
  StandingDefaults standing;
  std::string latency_target;
  std::string rules, format = "auto", algorithm, shape = "acl", routes, like, route_algorithm, adjacencies, name;
  DeviceFlags device;
  std::vector<std::string> shapes = {"acl"};  // classify: every shape with every count
  std::vector<uint32_t> counts = {10'000};    // classify, and route with --like
  uint64_t seed = 1;
  uint32_t count = 10'000, ipv4 = 900'000, ipv6 = 160'000;
  unsigned repetitions = 5, workers = 1;
  uint64_t packets = 0, sample = 20'000;
  std::vector<uint32_t> batches = {256};  // of pipeline: measured one after the other
  std::vector<uint32_t> sizes = {64};
  std::vector<uint32_t> frames;         // records a flight, for what goes to a device
  uint64_t frame_repetitions = 0;       // flights a case; 0: by kind
  std::shared_ptr<const QosModel> qos;  // of pipeline: every case also with these classes
  bool device_only = false;             // leave the CPU's own case out
  bool lookups_only = false;            // of a device: only what is all in its memory
  unsigned in_a_row = 0;                // so many batches one after another, in memory that is reused or not
  bool spoil = false;                   // hidden: makes the check find something, so that a test can see the refusal
};

// A folder that goes away with the run.
class BenchFolder : public TemporaryFolder {
 public:
  BenchFolder() : TemporaryFolder("sluice-bench", "set TMPDIR to a writable directory") {}
};

std::string now_utc();  // "2026-01-31T12:00:00Z"

struct Case {
  std::string name;
  std::string unit;
  std::vector<double> values;
  Json more = Json::object();
  std::string reason;  // why nothing was measured: the row has no figures then
};
// A row that was asked for and measured nothing.
inline Case unmeasured(std::string name, std::string reason) {
  return {std::move(name), "", {}, Json::object(), std::move(reason)};
}
// What a row with data in a CUDA device's memory lacks; empty: there is such a device.
std::string no_cuda_device(const OpenDevices& devices);

// The middle value, or the mean of the two in the middle. At least one value.
double median(std::vector<double> values);

struct Verified {
  uint64_t sample = 0, mismatches = 0;
  std::string oracle;
};

// Nothing is timed, and nothing reported, after a result that is not the oracle's: ends with kCheckFailed then.
void require(const Verified& v, const std::string& what);

// The first o.sample packets of a capture through the graph and through the same one with the oracles (`linear`,
// `trie`): captures and drop reasons must be equal.
void check_graph(const BenchOptions& o, const StandardGraph& graph, const std::string& capture,
                 const TemporaryFolder& folder, const std::string& what, Verified& verified);

// Routes up to which a lookup by scan is worth waiting for.
inline constexpr uint32_t kMostLinear = 10'000;

// The routes of --routes or --like, or generated ones; the SHA-256 of their text.
Rib rib_of(const BenchOptions& o, std::string& hash);

struct Addresses {
  std::vector<uint32_t> v4;
  std::vector<uint64_t> hi, lo;
};
// uniform: any address (IPv6: in 2000::/3). prefix: a random host of a random prefix. zipf: prefix's addresses, skewed.
Addresses draw_addresses(const Rib& rib, const std::string& pattern, size_t n, uint64_t seed);

// Prints the measurement; `input_hash` is the SHA-256 of what was measured. Ends with kCheckFailed where a row measured
// nothing, or there is none.
Exit bench_report(const BenchOptions& o, const std::string& kind, const std::string& input_hash,
                  const Verified& verified, std::vector<Case> cases, const Json& more);

// One lookup on a device, the records that go there, and the digest that the oracle gives for each.
struct DeviceWork {
  std::shared_ptr<DeviceLookup> lookup;
  std::vector<Word> records;
  std::vector<uint32_t> expected;

  // Of keys (IPv4 ones alone) with what the oracle says of them: digest(i) of keys[i].
  template <typename Digest>
  void add(const std::vector<FlowKey>& keys, Digest&& digest) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!fits_key4(keys[i])) continue;
      records.push_back(pack_key4(keys[i], 0));
      expected.push_back(digest(i));
    }
  }
};
// Drives it `repetitions` times: rates, or the median round trips in us. A result that is not the expected one ends the
// program.
Case drive_case(const std::string& name, DeviceWork& work, const DriveOptions& options, unsigned repetitions,
                bool rate_is_the_value);

// The cases of one lookup element on a device: host-fed by every frame size, and device-resident where the device can.
// expected[i]: result_digest of keys[i]'s rule and next hop. `next_hops`: of IPv4 keys of a route lookup, for records
// of three destinations; empty: no such cases.
void add_device_cases(const BenchOptions& o, const OpenDevices& devices, const std::string& name,
                      const std::string& element, const TableSet& tables, const std::vector<FlowKey>& keys,
                      const std::vector<uint32_t>& expected, std::span<const uint32_t> next_hops,
                      std::vector<Case>& cases);

// Lookups alone with addresses, table and next hops in the memory of a CUDA device: every table of the image, with and
// without a cache window, and fed from the host; with `plain`, or tables in other than global memory, the first of
// these alone. `expected` are next hops. `v6`: {upper half, lower half} pairs. On other devices no case, or with
// `plain` or o.lookups_only one that says so.
void add_resident_lookups(const BenchOptions& o, const OpenDevices& devices, const std::string& name,
                          const Image& image, const std::vector<uint32_t>& v4, const std::vector<uint64_t>& v6,
                          const std::vector<uint32_t>& expected, bool plain, std::vector<Case>& cases);

// The whole standard graph over frames that lie in the memory of a CUDA device, every one of them checked against the
// host. No case on other devices, or where the graph is not the one that has a kernel of its own.
void add_resident_frames(const BenchOptions& o, const OpenDevices& devices, const Pipeline& pipeline,
                         const std::string& capture, const std::string& name, std::vector<Case>& cases);

// The rate of a pipeline on packets in memory, `o.repetitions` times, with `o.qos` where it is given; each of o.workers
// is a runtime of its own, and all play `frames`. With devices a row is theirs alone: where a packet of any segment was
// the host's, it has the reason and no figures.
Case measure_pipeline(const BenchOptions& o, const OpenDevices& devices, const Pipeline& pipeline, uint32_t batch,
                      const std::string& name, const std::shared_ptr<FrameCache>& frames, Progress& progress);

// The `defaults` object of a stored result: what the command line of this process left standing.
Json defaults_left(const StandingDefaults& standing, bool on_device);
// Today's defaults of every `bench` command.
Json all_defaults(Command root);

// The command `bench` with all of its own.
void add_bench(Command root);
// All commands as a page of Markdown, a man page, or a shell's completion, from the same declarations that --help
// prints.
void add_reference(Command root);

void add_bench_kinds(Command bench);
void add_bench_live(Command bench);
void add_bench_soak(Command bench);
void add_bench_priorities(Command bench);
void add_bench_wire(Command bench);
void add_bench_study(Command bench);
void add_bench_suite(Command bench);
void add_bench_compare(Command bench);

}  // namespace sluice::app
