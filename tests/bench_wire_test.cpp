// `sluice bench wire`: what a cable and what `sluice run` do to its frames, and errors that say what is wrong.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ports/testing/net_namespace.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::NetNamespace;
using testing::Said;

class BenchWireTest : public testing::CliTest {
 protected:
  static std::unique_ptr<NetNamespace> place() {
    auto made = NetNamespace::create();
    EXPECT_TRUE(made.ok());
    return std::make_unique<NetNamespace>(std::move(*made));
  }
  void SetUp() override {
    CliTest::SetUp();
    if (!NetNamespace::why_none().empty()) GTEST_SKIP() << "no network namespaces here: " << NetNamespace::why_none();
    bench_ = place();
  }
  // A cable with both ends at the bench.
  void cable() { ASSERT_TRUE(NetNamespace::veth(*bench_, "g0", *bench_, "s0", 1).ok()); }
  // The report of a measurement that came to its end. A machine with other work may give less than it was asked for,
  // and says so.
  static nlohmann::json measured(const Said& said) {
    auto report = said.json();
    bool is_short = false;
    if (report.is_object()) {
      for (const auto& row : report["results"])
        for (const auto& trial : row["trials"])
          is_short |= trial["generator_short"].get<bool>() && !trial.contains("passed");
    }
    EXPECT_EQ(said.code, is_short ? 3 : 0) << said.err << said.out;
    return report;
  }
  Said wire(const std::string& words) const {
    const auto inside = bench_->enter();
    return sluice("bench wire --tx g0 --rx s0 -o json " + words);
  }

  std::unique_ptr<NetNamespace> bench_;
};

TEST_F(BenchWireTest, ACableLosesRepeatsAndReordersNothing) {
  cable();
  for (const char* method : {"af_packet", "pcap"}) {
    SCOPED_TRACE(method);
    const Said said =
        wire("--rate 2kpps --duration 0.25 --size 64,imix,1518 --latency --method " + std::string(method));
    const auto report = measured(said);
    ASSERT_TRUE(report.is_object());
    EXPECT_EQ(report["tx"]["method"], method);
    EXPECT_EQ(report["interrupted"], false);
    ASSERT_EQ(report["results"].size(), 3u);
    for (const auto& row : report["results"]) {
      ASSERT_EQ(row["trials"].size(), 1u);
      const auto& trial = row["trials"][0];
      // At most all that were due.
      EXPECT_LE(trial["sent"], 500);
      EXPECT_GT(trial["sent"], 0);
      EXPECT_EQ(trial["received"], trial["sent"]);
      for (const char* none : {"lost", "duplicated", "reordered", "earlier", "missed", "failed", "too_old"})
        EXPECT_EQ(trial[none], 0) << none;
      EXPECT_EQ(trial["asked_pps"], 2000);
      EXPECT_LE(trial["offered_pps"], 2000);
      const auto& latency = trial["latency_ns"];
      EXPECT_GT(latency["min"], 0);
      EXPECT_LE(latency["min"], latency["p50"]);
      EXPECT_LE(latency["p50"], latency["p99"]);
      EXPECT_LE(latency["p99"], latency["max"]);
    }
    EXPECT_EQ(report["results"][0]["mean_frame_bytes"], 64);
    EXPECT_EQ(report["results"][2]["mean_frame_bytes"], 1518);
  }
}

TEST_F(BenchWireTest, OnePortSendsAndReceives) {
  auto mirror = place();
  ASSERT_TRUE(NetNamespace::veth(*bench_, "g0", *mirror, "m0", 1).ok());
  write("mirror.click", "FromDevice(m0, METHOD af_packet) -> EtherMirror -> ToDevice(m0, METHOD af_packet);\n");
  {
    const auto inside = mirror->enter();
    ASSERT_EQ(shell("\"$SLUICE\" run mirror.click --ready-file ready > log 2>&1 & echo $! > pid; n=0; while [ ! -e "
                    "ready ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); done; [ -e ready ]")
                  .code,
              0)
        << read("log");
  }
  Said said;
  // Where processors are busy the kernel loses frames: another round is measured then.
  for (int round = 0; round < 20; ++round) {
    const auto inside = bench_->enter();
    said = sluice("bench wire --tx g0 --rx g0 --rate 1kpps --duration 0.2 -o json --method af_packet");
    const auto report = said.json();
    if (!report.is_object() || report["results"][0]["trials"][0]["lost"] == 0) break;
  }
  shell(
      "kill -INT $(cat pid); n=0; while kill -0 $(cat pid) 2>/dev/null && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); "
      "done");
  const auto report = measured(said);
  ASSERT_TRUE(report.is_object()) << read("log");
  const auto trial = report["results"][0]["trials"][0];
  EXPECT_EQ(trial["lost"], 0);
  EXPECT_EQ(trial["received"], trial["sent"]);
  EXPECT_EQ(trial["foreign"], 0);
}

TEST_F(BenchWireTest, WaitsForALinkThatIsComingUp) {
  cable();
  ASSERT_TRUE(bench_->run("ip link set s0 down").ok());
  {
    const auto inside = bench_->enter();
    ASSERT_EQ(shell("(sleep 0.3; ip link set s0 up) >/dev/null 2>&1 &").code, 0);
  }
  const auto report = measured(wire("--rate 1kpps --duration 0.1 --size 64 --method af_packet"));
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["results"][0]["trials"][0]["lost"], 0);
}

TEST_F(BenchWireTest, ASearchFindsWhatPassesAndListsItsTrials) {
  cable();
  const Said said = wire("--rate 2kpps --duration 0.1 --search --size 64,128 --method af_packet");
  const auto report = measured(said);
  ASSERT_TRUE(report.is_object());
  for (const auto& row : report["results"]) {
    // Slow enough for any machine: the first trial passes, and is all that was asked for.
    ASSERT_EQ(row["complete"], true);
    EXPECT_EQ(row["limited_by_generator"], true);
    ASSERT_EQ(row["trials"].size(), 1u);
    EXPECT_EQ(row["trials"][0]["passed"], true);
    EXPECT_EQ(row["throughput_pps"], row["trials"][0]["offered_pps"]);
  }
}

TEST_F(BenchWireTest, AGenomeSaysWhatImixIs) {
  cable();
  const auto report = measured(wire("--rate 2kpps --duration 0.1 --imix aabg --method af_packet"));
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["imix"], "aabg");
  ASSERT_EQ(report["results"].size(), 1u);
  EXPECT_EQ(report["results"][0]["size"], "imix");
  EXPECT_EQ(report["results"][0]["mean_frame_bytes"], (64 + 64 + 128 + 1518) / 4.0);
  EXPECT_EQ(report["results"][0]["trials"][0]["lost"], 0);
}

TEST_F(BenchWireTest, BurstsAreAsLongAsTheDeviceHasRoomFor) {
  // The kernel's forwarding with a bottleneck behind it: 500 frames/s, and room for 100 KiB of them.
  auto router = place();
  ASSERT_TRUE(NetNamespace::veth(*bench_, "g0", *router, "d0", 1).ok());
  ASSERT_TRUE(NetNamespace::veth(*router, "d1", *bench_, "s0", 1).ok());
  for (const char* command :
       {"ip link set d0 address 02:00:00:00:00:02", "ip addr add 198.51.100.2/24 dev d1",
        "ip neigh add 198.51.100.1 lladdr 02:00:00:00:00:04 dev d1 nud permanent",
        "ip route add 198.19.0.0/16 via 198.51.100.1", "sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'",
        "sh -c 'echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/d0/rp_filter'",
        "tc qdisc add dev d1 root tbf rate 2mbit burst 3000 limit 102400"}) {
    const auto done = router->run(command);
    ASSERT_TRUE(done.ok()) << command << ": " << done.error().message;
  }
  ASSERT_TRUE(bench_->run("ip link set s0 address 02:00:00:00:00:04").ok());
  // A search over rates finds nothing or little; each burst that loses takes the two seconds of RFC 2544.
  const Said said = wire(
      "--search --resolution 50 --duration 0.02 --size 512 --dst-mac 02:00:00:00:00:02 --method af_packet "
      "--back-to-back 1");
  const auto report = measured(said);
  ASSERT_TRUE(report.is_object()) << said.err;
  const auto bursts = report["results"][0]["back_to_back"];
  ASSERT_TRUE(bursts.is_object()) << report;
  EXPECT_EQ(bursts["tests"], 1);
  ASSERT_EQ(bursts["frames"].size(), 1u);
  if (bursts["limited_by_generator"] != 0) GTEST_SKIP() << "the generator sends too little here to fill it: " << bursts;
  // 102,400 bytes are 201 frames of 508, and what was searched to comes off; those that leave meanwhile come on top.
  EXPECT_GE(bursts["mean"].get<double>() + bursts["step"].get<double>(), 200) << bursts;
  EXPECT_EQ(bursts["min"], bursts["max"]);
  EXPECT_LE(bursts["step"], bursts["mean"]) << bursts;
  EXPECT_GT(bursts["burst_pps"], 0);
  EXPECT_GT(bursts["corrected_buffer_time_s"], 0);
  EXPECT_LE(bursts["corrected_buffer_time_s"], bursts["buffer_time_s"]);
}

TEST_F(BenchWireTest, MeasuresARouter) {
  auto router = place();
  ASSERT_TRUE(NetNamespace::veth(*bench_, "g0", *router, "d0", 1).ok());
  ASSERT_TRUE(NetNamespace::veth(*router, "d1", *bench_, "s0", 1).ok());
  ASSERT_TRUE(router->run("ip link set d0 address 02:00:00:00:00:02").ok());
  ASSERT_TRUE(bench_->run("ip link set s0 address 02:00:00:00:00:04").ok());
  write("acl", "deny udp from any to 198.19.128.0/17\npermit ip from any to any\n");
  write("rib", "198.19.0.0/16 10.2.0.1\n");
  write("adj", "10.2.0.1 02:00:00:00:00:04 02:00:00:00:00:03 0\n");
  const std::string words = "--rate 2kpps --duration 0.25 --dst-mac 02:00:00:00:00:02 --method af_packet --latency ";
  const std::string search = words + "--to 198.19.0.0/17,198.19.128.0/17 --search --size 64 --resolution 50 --loss ";
  Said passed, half, denied, lossy, lossless;
  nlohmann::json report;
  uint64_t sent = 0, lost = 0;
  const auto first_trial = [](const Said& said) { return said.json()["results"][0]["trials"][0]; };
  // Kernels drop frames of processes that get no processor for a while: such a round says nothing of either program.
  for (int round = 0; round < 5; ++round) {
    shell("rm -f ready report");
    {
      const auto inside = router->enter();
      ASSERT_EQ(
          shell("\"$SLUICE\" run --acl acl --routes rib --adjacencies adj --in d0 --out d1 --method af_packet -o json "
                "--ready-file ready > report 2> log & echo $! > pid; n=0; while [ ! -e ready ] && [ $n -lt 500 ]; do "
                "sleep 0.02; n=$((n+1)); done; [ -e ready ]")
              .code,
          0)
          << read("log");
    }
    passed = wire(words + "--to 198.19.0.0/17"), half = wire(words + "--to 198.19.0.0/17,198.19.128.0/17"),
    denied = wire(words + "--to 198.19.128.0/17");
    lossy = wire(search + "99"), lossless = wire(search + "0");
    shell(
        "kill -INT $(cat pid); n=0; while kill -0 $(cat pid) 2>/dev/null && [ $n -lt 500 ]; do sleep 0.02; n=$((n+1)); "
        "done");
    report = testing::parse_json(read("report"));
    sent = lost = 0;
    for (const Said* said : {&passed, &half, &denied, &lossy, &lossless}) {
      const auto one = said->json();
      ASSERT_TRUE(one.is_object()) << said->err << read("log");
      for (const auto& trial : one["results"][0]["trials"]) {
        sent += trial["sent"].get<uint64_t>();
        lost += trial["lost"].get<uint64_t>();
      }
    }
    if (report["packets_in"] == sent && report["drops"]["acl-deny"] == lost) break;
  }
  // Both count the same.
  EXPECT_EQ(report["packets_in"], sent);
  EXPECT_EQ(report["drops"]["acl-deny"], lost);
  const auto all = first_trial(passed);
  EXPECT_EQ(all["lost"], 0);
  EXPECT_EQ(all["reordered"], 0);
  EXPECT_EQ(all["received"], all["sent"]);
  const auto some = first_trial(half);
  EXPECT_GT(some["lost"], 0);
  EXPECT_GT(some["received"], 0);
  EXPECT_EQ(some["received"].get<uint64_t>() + some["lost"].get<uint64_t>(), some["sent"]);
  EXPECT_EQ(denied.code, 3);
  EXPECT_NE(denied.err.find("nothing that g0 sent came back by s0"), std::string::npos) << denied.err;
  // Half is lost at any rate: a search finds that, or that none passes.
  const auto found = measured(lossy)["results"][0], nothing = measured(lossless)["results"][0];
  EXPECT_EQ(found["trials"].size(), 1u);
  EXPECT_EQ(found["throughput_pps"], found["trials"][0]["offered_pps"]);
  EXPECT_EQ(nothing["throughput_pps"], 0);
  EXPECT_EQ(nothing["complete"], true);
  ASSERT_EQ(nothing["trials"].size(), 2u);
  EXPECT_LT(nothing["trials"][1]["asked_pps"], nothing["trials"][0]["asked_pps"]);
}

TEST_F(BenchWireTest, ASignalEndsItWithTheReportOfWhatWasMeasured) {
  cable();
  Said said;
  {
    const auto inside = bench_->enter();
    said = shell(
        "\"$SLUICE\" bench wire --tx g0 --rx s0 --method af_packet --rate 1kpps --duration 600 --size 64,128 -o json > "
        "report & pid=$!; n=0; while [ $(awk '/ g0:/ {print $11}' /proc/net/dev) -lt 50 ] && [ $n -lt 1000 ]; do sleep "
        "0.01; n=$((n+1)); done; kill -INT $pid; wait $pid");
  }
  EXPECT_EQ(said.code, 130) << said.err;
  const auto report = testing::parse_json(read("report"));
  EXPECT_EQ(report["interrupted"], true);
  ASSERT_EQ(report["results"].size(), 1u);
  EXPECT_EQ(report["results"][0]["complete"], false);
  EXPECT_GE(report["results"][0]["trials"][0]["received"], 50);
  EXPECT_EQ(report["results"][0]["trials"][0]["lost"], 0);
}

TEST_F(BenchWireTest, SaysWhyItCannotMeasure) {
  cable();
  ASSERT_TRUE(NetNamespace::veth(*bench_, "x0", *bench_, "x1", 1).ok());
  ASSERT_TRUE(bench_->run("ip link set x1 down").ok());
  const auto inside = bench_->enter();
  const struct {
    const char* words;
    int code;
    const char* says;
  } kWrong[] = {
      {"--tx g0", 2, "--rx is missing"},
      {"--tx g0 --rx nowhere0 --method af_packet", 4, "nowhere0"},
      {"--tx x0 --rx g0 --method af_packet", 4, "x0: the link is down"},
      {"--tx g0 --rx s0 --rate fast", 2, "--rate 'fast' is not a rate"},
      {"--tx g0 --rx s0 --size 63", 2, "--size '63' is no frame size"},
      {"--tx g0 --rx s0 --size 64,x", 2, "--size 'x' is no frame size"},
      {"--tx g0 --rx s0 --size 1519 --method af_packet", 2, "g0 has an MTU of 1500"},
      {"--tx g0 --rx s0 --dst-mac 02:00", 2, "--dst-mac '02:00' is no MAC address"},
      {"--tx g0 --rx s0 --to 2001:db8::/32", 2, "--to '2001:db8::/32' is no IPv4 prefix"},
      {"--tx g0 --rx s0 --loss 1", 2, "--search"},
      {"--tx g0 --rx s0 --back-to-back 1", 2, "--search"},
      {"--tx g0 --rx s0 --search --back-to-back 0", 2, "--back-to-back"},
      {"--tx g0 --rx s0 --imix aaz", 2, "'z' is no letter of an IMIX genome"},
      {"--tx g0 --rx s0 --imix aag --size 64", 2, "--size 64 has none"},
      {"--tx g0 --rx s0 --imix ai --method af_packet", 2, "g0 has an MTU of 1500"},
      {"--tx g0 --rx s0 --method ether", 2, "ether"},
      // A cable that ends elsewhere.
      {"--tx g0 --rx g0 --method af_packet --rate 1kpps --duration 0.05", 3, "nothing that g0 sent came back by g0"},
      {"--tx g0 --rx s0 --method af_packet --rate 200Mpps --duration 0.05", 3,
       "of the 200,000,000 that were asked for"},
  };
  for (const auto& [words, code, says] : kWrong) {
    const Said said = sluice("bench wire " + std::string(words));
    EXPECT_EQ(said.code, code) << words << ": " << said.err;
    EXPECT_NE(said.err.find(says), std::string::npos) << words << ": " << said.err;
  }
}

}  // namespace
}  // namespace sluice
