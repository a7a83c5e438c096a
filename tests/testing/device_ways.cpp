#include "tests/testing/device_ways.h"

#include <gtest/gtest.h>

namespace sluice::testing {

std::ostream& operator<<(std::ostream& out, const Way& w) {
  return out << to_string(w.mode) << ' ' << to_string(w.transport) << " records " << static_cast<int>(w.records) << ", "
             << w.workers << " workers, batches of " << w.batch << ", " << w.devices << " devices, " << w.flights
             << " flights, target " << w.target_ns << " ns, threading " << to_string(w.threading)
             << (w.fast_path ? "" : ", no fast path") << (w.frames_there ? ", frames there" : "");
}

DeviceOutcome run_way(const TempDir& dir, const std::string& text, const Way* way, const Devices& devices,
                      const std::function<void(GraphRun&)>& adjust) {
  GraphRun graph;
  graph.text = with_outputs(dir, text);
  graph.fast_path = way != nullptr && way->fast_path;
  if (way != nullptr) {
    graph.workers = way->workers;
    graph.batch = way->batch;
    graph.device.devices = devices;
    graph.device.mode = way->mode;
    graph.device.transport = way->transport;
    graph.device.records = way->records;
    graph.device.frames_there = way->frames_there;
    graph.device.flights = way->flights;
    graph.latency_target_ns = way->target_ns;
    graph.device.threading = way->threading;
  }
  if (adjust) adjust(graph);
  DeviceOutcome result;
  result.outcome = run_graph(graph);
  result.bytes = read_file(dir / "OUT");
  result.second = read_file(dir / "OUT2");
  return result;
}

void expect_equal(const DeviceOutcome& want, const DeviceOutcome& got) {
  ASSERT_TRUE(got.outcome.ok) << got.outcome.error;
  EXPECT_TRUE(got.outcome.report.conserved());
  EXPECT_EQ(got.outcome.counters, want.outcome.counters);
  EXPECT_TRUE(got.bytes == want.bytes) << "the output capture differs";
  EXPECT_TRUE(got.second == want.second) << "the second capture differs";
  EXPECT_EQ(got.outcome.printed, want.outcome.printed);
}

}  // namespace sluice::testing
