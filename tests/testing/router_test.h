// host only
// Runs with live ports between namespaces: gen g0 - d0 router d1 - s0 sink.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ports/testing/net_namespace.h"
#include "tests/testing/run_sluice.h"

namespace sluice::testing {

// Two hosts with the router between them; a run in the router's namespace.
class RouterTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (!NetNamespace::why_none().empty()) GTEST_SKIP() << "no network namespaces here: " << NetNamespace::why_none();
    lay(1);
  }
  void TearDown() override {
    stop();
    CliTest::TearDown();
  }

  void lay(unsigned queues) {
    for (auto* place : {&gen_, &router_, &sink_}) {
      auto made = NetNamespace::create();
      ASSERT_TRUE(made.ok()) << to_string(made.error());
      *place = std::make_unique<NetNamespace>(std::move(*made));
    }
    ASSERT_TRUE(NetNamespace::veth(*gen_, "g0", *router_, "d0", queues).ok());
    ASSERT_TRUE(NetNamespace::veth(*router_, "d1", *sink_, "s0", queues).ok());
    for (const char* command : {"ip link set d0 address 02:00:00:00:00:02", "ip link set d1 address 02:00:00:00:00:03"})
      ASSERT_TRUE(router_->run(command).ok());
    // Rings that pass frames on to a socket of XDP need both ends of a pair to take frames as XDP has them.
    ASSERT_TRUE(sink_->run("ip link set s0 address 02:00:00:00:00:04").ok());
  }

  // Starts a run in the router's namespace, and returns when packets flow.
  void start(const std::string& arguments) {
    const auto inside = router_->enter();
    const Said said = shell("rm -f ready; \"$SLUICE\" run " + arguments +
                            " --ready-file ready -o json > report.json 2> log & echo $! > pid; n=0; while [ ! -e ready "
                            "] && kill -0 $(cat pid) 2>/dev/null && [ $n -lt 1000 ]; do sleep 0.02; n=$((n+1)); done; "
                            "[ -e ready ]");
    started_ = true;
    ASSERT_EQ(said.code, 0) << read("log") << read("report.json");
  }
  // Ends it as a user does; its report.
  nlohmann::json stop() {
    if (!started_) return {};
    started_ = false;
    // One that has ended may stay for a second, as what nobody has waited for yet (Z).
    shell(
        "p=$(cat pid); kill -INT $p 2>/dev/null; n=0; while [ $n -lt 1000 ] && grep -q '^State:[^Z]*$' /proc/$p/status "
        "2>/dev/null; do sleep 0.02; n=$((n+1)); done; kill -9 $p 2>/dev/null; true");
    return parse_json(read("report.json"));
  }

  std::unique_ptr<NetNamespace> gen_, router_, sink_;

 private:
  bool started_ = false;
};

}  // namespace sluice::testing
