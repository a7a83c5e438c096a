// The test that holds the project together: one graph gives byte-identical results on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "base/test_data.h"
#include "tables/acl/algorithms.h"
#include "tables/lpm/algorithms.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::GraphOutcome;
using testing::GraphRun;
using testing::TempDir;

struct Backend {
  std::string acl = "linear";
  std::string lpm4 = "trie";
  std::string lpm6 = "trie";
  unsigned workers = 1;
  uint32_t batch = 256;
  uint64_t target_ns = 0;  // of latency
  bool fast_path = true;
  friend std::ostream& operator<<(std::ostream& out, const Backend& b) {
    return out << b.acl << ' ' << b.lpm4 << ' ' << b.lpm6 << ' ' << b.workers << " workers, batches of " << b.batch
               << ", target " << b.target_ns << " ns" << (b.fast_path ? "" : ", no fast path");
  }
};

// Every access list algorithm, every pair of route algorithms (each pair is a stage of its own), then every worker
// count and batch size on the defaults.
std::vector<Backend> backends() {
  std::vector<Backend> all;
  for (const std::string& acl : acl_algorithm_names()) {
    all.push_back({acl, testing::kDirect4, "poptrie", 1});
    all.push_back({acl, testing::kDirect4, "poptrie", 3});
    all.push_back({acl, testing::kDirect4, "poptrie", 1, 256, 0, false});
  }
  unsigned turn = 0;
  for (const std::string& lpm4 : lpm_algorithm_names4()) {
    for (const std::string& lpm6 : lpm_algorithm_names6()) {
      all.push_back({"tuple_space", lpm4, lpm6, 1});
      all.push_back({"linear", lpm4, lpm6, 1 + 2 * (turn % 2), 256, 0, turn % 3 != 0});
      ++turn;
    }
  }
  for (unsigned workers : {1u, 2u, 5u}) {
    for (uint32_t batch : {1u, 31u, 33u, 1000u, 4096u, 8192u})
      all.push_back({"tuple_space", testing::kDirect4, "poptrie", workers, batch});
    // The first is never met, the second sometimes.
    for (uint64_t target_ns : {1u, 20'000u})
      all.push_back({"tuple_space", testing::kDirect4, "poptrie", workers, 300, target_ns});
  }
#if defined(SLUICE_SANITIZED)
  // Where every access is watched, a third of them: all share their code but for the lookups, which have tests of their
  // own.
  for (size_t i = 0; 3 * i < all.size(); ++i) all[i] = all[3 * i];
  all.resize((all.size() + 2) / 3);
#endif
#if defined(SLUICE_SANITIZED_THREADS)
  std::erase_if(all, [](const Backend& b) { return b.workers == 1; });  // one thread cannot race
#endif
  return all;
}

// What the others are held to: nothing but the plainest algorithms and the ordinary path.
Backend oracle_backend() {
  Backend b;
  b.fast_path = false;
  return b;
}

struct Result {
  std::string bytes;
  std::string second;
  std::string printed;
  GraphOutcome outcome;
};

// `tail` is the graph after its tables; $OUT and $OUT2 are output captures.
Result run(const TempDir& dir, const Backend& backend, std::string text) {
  GraphRun graph;
  graph.text = testing::with_outputs(dir, std::move(text));
  graph.workers = backend.workers;
  graph.batch = backend.batch;
  graph.latency_target_ns = backend.target_ns;
  graph.fast_path = backend.fast_path;
  Result result;
  result.outcome = testing::run_graph(graph);
  result.bytes = testing::read_file(dir / "OUT");
  result.second = testing::read_file(dir / "OUT2");
  result.printed = result.outcome.printed;
  return result;
}

void expect_equal(const Result& want, const Result& got, const Backend& backend) {
  ASSERT_TRUE(got.outcome.ok) << backend << "\n" << got.outcome.error;
  EXPECT_TRUE(got.outcome.report.conserved()) << backend;
  EXPECT_EQ(got.outcome.counters, want.outcome.counters) << backend;
  EXPECT_TRUE(got.bytes == want.bytes) << backend << ": the output capture differs";
  EXPECT_TRUE(got.second == want.second) << backend << ": the second capture differs";
  EXPECT_EQ(got.printed, want.printed) << backend;
}

#if defined(SLUICE_SANITIZED)
constexpr uint32_t kPackets = 3600;
#else
constexpr uint32_t kPackets = 6000;
#endif

TEST(BackendEquality, StandardGraphOverEveryKindOfPacket) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", kPackets);
  auto text = [&](const Backend& b) {
    return testing::standard_graph_text(dir, "FromDump(" + capture + ")", "ToDump($OUT)", b.acl, b.lpm4, b.lpm6);
  };
  const Backend oracle = oracle_backend();
  const Result want = run(dir, oracle, text(oracle));
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_TRUE(want.outcome.report.conserved());
  EXPECT_EQ(want.outcome.report.packets_in, kPackets);
  EXPECT_GT(want.outcome.report.packets_out, kPackets / 6);
  // The capture must reach every corner that it was made for, or equality says nothing.
  for (DropReason reason : {DropReason::kNotIp, DropReason::kIpv4BadChecksum, DropReason::kIpv4BadVersion,
                            DropReason::kMartianSource, DropReason::kAclDeny, DropReason::kNoRoute,
                            DropReason::kRouteDrop, DropReason::kTtlExpired, DropReason::kHopLimitExpired}) {
    EXPECT_GT(want.outcome.report.drops[static_cast<size_t>(reason)], 0u) << to_string(reason);
  }
  for (const Backend& backend : backends()) {
    const Result got = run(dir, backend, text(backend));
    expect_equal(want, got, backend);
    // Equality of the fast path says nothing where nobody took it.
    EXPECT_EQ(got.outcome.report.totals.fast > kPackets / 10, backend.fast_path) << backend;
    // A target that no batch meets: 300 packets, a quarter less each time, down to 32.
    if (backend.target_ns == 1) {
      // With threads many batches are read before the first is done.
      EXPECT_LT(got.outcome.report.batch.limit, 300u) << backend;
      if (backend.workers == 1) {
        EXPECT_EQ(got.outcome.report.batch.limit, 32u) << backend;
        EXPECT_EQ(got.outcome.report.batch.lowered, 8u) << backend;
      }
      EXPECT_EQ(got.outcome.report.batch.raised, 0u) << backend;
    }
    if (backend.target_ns == 0) {
      EXPECT_EQ(got.outcome.report.batch.limit, backend.batch) << backend;
    }
  }
}

// A sink that reads no frames counts what one that writes them counts: sums, ports, limited errors.
TEST(BackendEquality, PacketsAreCountedAlikeWhetherTheyAreWrittenOrNot) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 6000, 5);
  auto text = [&](const Backend& b, const std::string& sink) {
    return testing::standard_graph_text(dir, "FromMemory(" + capture + ")", sink, b.acl, b.lpm4, b.lpm6) +
           "errors :: ICMPError(192.0.0.1, RATE 10000, BURST 5);\n"
           "acl[1] -> errors; ttl[1] -> errors; errors -> tx;\n";
  };
  const Backend oracle = oracle_backend();
  const Result want = run(dir, oracle, text(oracle, "ToDump($OUT)"));
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  EXPECT_GT(want.outcome.report.generated, 100u);
  EXPECT_GT(want.outcome.report.drops[static_cast<size_t>(DropReason::kIcmpRateLimited)], 0u);
  EXPECT_GT(want.outcome.report.ports.size(), 1u);
  for (const unsigned workers : {1u, 3u}) {
    for (const uint32_t batch : {64u, 300u}) {
      for (const bool fast : {true, false}) {
        const Backend backend{"tuple_space", testing::kDirect4, "poptrie", workers, batch, 0, fast};
        const Result got = run(dir, backend, text(backend, "ToMemory"));
        ASSERT_TRUE(got.outcome.ok) << backend << got.outcome.error;
        EXPECT_EQ(got.outcome.counters, want.outcome.counters) << backend;
        EXPECT_EQ(got.outcome.report.packets_out, want.outcome.report.packets_out) << backend;
        EXPECT_EQ(got.outcome.report.bytes_out, want.outcome.report.bytes_out) << backend;
      }
    }
  }
}

// Sources take turns by batches, so a target must not change their size there.
TEST(BackendEquality, ALatencyTargetLeavesTheTurnsOfSourcesAlone) {
  const TempDir dir;
  const std::string one = testing::write_mixed_capture(dir / "one.pcap", 1500, 3);
  const std::string two = testing::write_mixed_capture(dir / "two.pcap", 900, 4);
  const std::string text = "a :: FromDump(" + one + ") -> out :: ToDump($OUT); b :: FromDump(" + two + ") -> out;\n";
  Backend backend;
  const Result want = run(dir, backend, text);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  backend.target_ns = 1;
  const Result got = run(dir, backend, text);
  expect_equal(want, got, backend);
  EXPECT_EQ(got.outcome.report.batch.target_ns, 0u);
  EXPECT_EQ(got.outcome.report.batch.limit, 256u);
}

TEST(BackendEquality, ErrorsCopiesAndPrintsKeepTheirOrder) {
  const TempDir dir;
  const uint32_t packets = testing::kWatched ? 1500 : 3000;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets, 2);
  auto text = [&](const Backend& b) {
    std::string t =
        testing::standard_graph_text(dir, "FromDump(" + capture + ")", "ToDump($OUT)", b.acl, b.lpm4, b.lpm6);
    // The same tables, with ICMP errors that are routed themselves, copies, marks and lines.
    t.erase(t.find("in ::"));
    t += "in :: FromDump(" + capture +
         ") -> parse :: IPInput -> copy :: Tee(2);\n"
         "copy[0] -> second :: ToDump($OUT2);\n"
         "copy[1] -> acl :: ACL(TABLE edge) -> fib :: IPRoute(TABLE main) -> ttl :: DecIPTTL -> adj :: "
         "AdjacencyRewrite(TABLE adj)\n"
         "  -> shown :: Print(tx, 8) -> out :: ToDump($OUT);\n"
         "errors :: ICMPError(192.0.0.1, RATE 100000, BURST 5);\n"
         "acl[1] -> errors; fib[1] -> errors; ttl[1] -> errors; adj[1] -> errors;\n"
         "errors -> back :: IPRoute(TABLE main) -> ttl;\n";
    return t;
  };
  const Backend oracle = oracle_backend();
  const Result want = run(dir, oracle, text(oracle));
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_TRUE(want.outcome.report.conserved());
  EXPECT_GT(want.outcome.report.generated, packets * 2 / 3);
  EXPECT_GT(want.printed.size(), packets / 3);
  for (const Backend& backend : backends()) expect_equal(want, run(dir, backend, text(backend)), backend);
}

TEST(BackendEquality, ElementsAboutBatchesAndNamesChangeNoPacket) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", 1500, 5);
  const std::string plain =
      "FromDump(" + capture +
      ") -> IPInput -> IPFilter(deny src net 10.0.0.0/9, deny tcp and syn, allow all) -> ToDump($OUT);\n";
  const std::string batched = "AddressInfo(half 10.0.0.1/9);\nFromDump(" + capture +
                              ") -> MinBatch(64) -> IPInput -> Pipeliner -> CPUPaint -> IPFilter(deny src net "
                              "half:ipnet, deny tcp opt syn, allow "
                              "all) -> ConstantBatch(100) -> ToDump($OUT);\n";
  const Result want = run(dir, oracle_backend(), plain);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  EXPECT_GT(want.outcome.report.packets_out, 0u);
  EXPECT_GT(want.outcome.report.dropped, 0u);
  for (const unsigned workers : {1u, 3u}) {
    for (const bool fast : {true, false}) {
      Backend backend;
      backend.workers = workers;
      backend.fast_path = fast;
      const Result got = run(dir, backend, batched);
      ASSERT_TRUE(got.outcome.ok) << got.outcome.error;
      EXPECT_TRUE(got.outcome.report.conserved());
      EXPECT_TRUE(got.bytes == want.bytes) << backend;
      EXPECT_EQ(got.outcome.report.drops, want.outcome.report.drops) << backend;
    }
  }
}

// Stages that cut packets off and mark them, before, between and behind lookups.
TEST(BackendEquality, CodepointsAndLengths) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", testing::kWatched ? 1000 : 2000, 8);
  auto text = [&](const Backend& b) {
    std::string t =
        testing::standard_graph_text(dir, "FromDump(" + capture + ")", "ToDump($OUT)", b.acl, b.lpm4, b.lpm6);
    t.erase(t.find("in ::"));
    return t + testing::codepoint_graph_text("FromDump(" + capture + ")");
  };
  const Backend oracle = oracle_backend();
  const Result want = run(dir, oracle, text(oracle));
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  EXPECT_GT(want.outcome.report.packets_out, 300u);
  EXPECT_GT(want.outcome.report.drops[static_cast<size_t>(DropReason::kCapturedTooShort)], 0u);
  for (const unsigned workers : {1u, 3u}) {
    for (const uint32_t batch : {33u, 256u}) {
      for (const bool fast : {true, false}) {
        const Backend backend{"tuple_space", "poptrie", "poptrie", workers, batch, 0, fast};
        expect_equal(want, run(dir, backend, text(backend)), backend);
      }
    }
  }
}

TEST(BackendEquality, RealCaptures) {
  const auto folder = test_data("pcap");
  if (!folder) GTEST_SKIP() << "no test data here (SLUICE_DATA)";
  const std::vector<std::string> acls = acl_algorithm_names(), lpms = lpm_algorithm_names4();
  size_t turn = 0;
  for (const char* name :
       {"snabb/sanitized4k.pcap", "snabb/vlan-ipv6-frags.pcap", "snabb/lwaftr-stick-imix.pcap", "cases/4in4tunnel.pcap",
        "cases/QinQpacket.pcap", "cases/badpackets.pcap", "cases/dns_fragmented.pcap",
        "cases/fuzz-2006-06-26-2594.pcap", "cases/geneve.pcap", "cases/http_ipv6.pcap", "cases/icmpv6.pcap",
        "cases/iphone.pcap", "cases/ipv6-bad-version.pcap", "cases/ipv6-routing-header.pcap", "cases/mptcp-v0.pcap",
        "cases/skype.pcap", "cases/vxlan.pcap"}) {
    const TempDir dir;
    auto text = [&](const Backend& b) {
      return testing::real_graph_text(dir, "FromDump(" + *folder + "/" + name + ")", "ToDump($OUT)", b.acl, b.lpm4,
                                      b.lpm6);
    };
    const Backend oracle = oracle_backend();
    const Result want = run(dir, oracle, text(oracle));
    if (!want.outcome.ok) {
      // A link type that is refused, or a capture that is cut: then every backend says the same.
      for (unsigned workers : {1u, 3u}) {
        Backend b{"tuple_space", testing::kDirect4, "poptrie", workers};
        EXPECT_EQ(run(dir, b, text(b)).outcome.error, want.outcome.error) << name;
      }
      continue;
    }
    ASSERT_TRUE(want.outcome.report.conserved()) << name;
    // Every algorithm meets every capture, and every pair of them several captures.
    ++turn;
    for (size_t i = 0; i < std::max(acls.size(), lpms.size()); ++i) {
      if (testing::kWatched && i % 2 != turn % 2) continue;
      const std::string &acl = acls[(i + turn) % acls.size()], &lpm4 = lpms[i % lpms.size()];
      for (unsigned workers : {1u, 4u}) {
        SCOPED_TRACE(name);
        const Backend b{acl, lpm4, lpm4 == "trie" ? "trie" : "poptrie", workers};
        expect_equal(want, run(dir, b, text(b)), b);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
