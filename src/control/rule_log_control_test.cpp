#include "control/rule_log_control.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "control/command.h"
#include "tables/acl/algorithms.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

std::shared_ptr<const Image> list() {
  RuleSet set;
  set.files = {"edge.acl"};
  AclRule rule;
  rule.family = 4;
  rule.protocol = 17;
  rule.protocol_mask = 255;
  rule.dst_port_low = rule.dst_port_high = 53;
  rule.needs_ports = true;
  rule.verb = AclVerb::kDeny;
  rule.log = true;
  rule.line = 3;
  set.rules = {AclRule{}, rule};
  set.rules[0].protocol = 6;
  set.rules[0].protocol_mask = 255;
  set.rules[0].line = 1;
  return std::make_shared<const Image>(*build_acl(set, "linear"));
}

// A log whose lines are collected, and whose writer waits while it is told to.
struct Written {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;
  bool held = false;

  void operator()(const std::string& line) {
    std::unique_lock lock(mutex);
    lines.push_back(line);
    changed.notify_all();
    changed.wait(lock, [&] { return !held; });
  }
  void hold(bool now) {
    const std::lock_guard lock(mutex);
    held = now;
    changed.notify_all();
  }
  void wait_for(size_t n) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return lines.size() >= n; });
  }
};

class RuleLogEvents : public ::testing::Test {
 protected:
  void start(uint64_t rate) {
    log = std::make_shared<RuleLog>(rate);
    log->open(1);
    image = list();
    rules = log->of("edge", image, "acl", std::make_shared<const std::vector<std::string>>(1, "eth0"));
    auto made = RuleLogControl::create(log, [this](const std::string& line) { written(line); });
    ASSERT_TRUE(made.ok());
    control = std::move(*made);
  }
  void packet(uint16_t source_port) {
    rules->record(0, 2, [&](LoggedPacket& p) {
      p.timestamp_ns = 1'764'071'412'079'362'000;
      p.key.family = 4;
      p.key.protocol = 17;
      p.key.src_lo = 0xc0000211;
      p.key.dst_lo = 0x0a74a57b;
      p.key.src_port = source_port;
      p.key.dst_port = 53;
      p.key.bits = FlowKey::kHasPorts;
      p.bytes = 60;
      p.ip_bytes = 46;
      p.source = 0;
    });
  }
  Json ask(const Json& fields = Json::object()) {
    return control->show(fields.value("after", uint64_t{0}), !fields.contains("after"),
                         fields.value("count", uint64_t{100}));
  }

  Written written;
  std::shared_ptr<RuleLog> log;
  std::shared_ptr<const Image> image;
  std::shared_ptr<const LoggedRules> rules;
  std::unique_ptr<RuleLogControl> control;
};

TEST_F(RuleLogEvents, SayAllThatIsKnownOfAPacket) {
  start(100);
  packet(23646);
  written.wait_for(1);
  control->finish();
  EXPECT_EQ(written.lines, (std::vector<std::string>{
                               "log: 2025-11-25 11:50:12.079362000Z deny udp 192.0.2.17:23646 > 10.116.165.123:53, 60 "
                               "bytes, edge edge.acl:3 (rule 2), from eth0"}));
  const Json said = ask();
  EXPECT_EQ(said["logged"], 1);
  EXPECT_EQ(said["not_logged"], 0);
  ASSERT_EQ(said["events"].size(), 1u);
  const Json want{{"number", 1},
                  {"timestamp_ns", 1'764'071'412'079'362'000},
                  {"table", "edge"},
                  {"rule", 2},
                  {"file", "edge.acl"},
                  {"line", 3},
                  {"text", "deny udp from 0.0.0.0/0 to 0.0.0.0/0 port 53 log"},
                  {"verdict", "deny"},
                  {"flow", "udp 192.0.2.17:23646 > 10.116.165.123:53"},
                  {"family", 4},
                  {"src_ip", "192.0.2.17"},
                  {"dest_ip", "10.116.165.123"},
                  {"src_port", 23646},
                  {"dest_port", 53},
                  {"proto", 17},
                  {"bytes", 60},
                  {"ip_bytes", 46},
                  {"input", "eth0"},
                  {"element", "acl"},
                  {"worker", 0}};
  EXPECT_EQ(said["events"][0].dump(), want.dump());
}

TEST_F(RuleLogEvents, SayHowManyWereNotLogged) {
  start(2);
  for (uint16_t i = 0; i < 1500; ++i) packet(i);
  control->finish();
  uint64_t logged = 0;
  std::string last;
  for (const std::string& line : written.lines) {
    line.find("not logged") == std::string::npos ? void(++logged) : void(last = line);
  }
  const Json said = ask();
  EXPECT_EQ(said["logged"], logged);
  EXPECT_EQ(said["not_logged"], 1500 - logged);
  EXPECT_NE(last.find("more packets not logged, edge edge.acl:3 (rule 2)"), std::string::npos) << last;
}

// What one look ends with the next begins with; of a reader that is slow the rest is said to be missed.
TEST_F(RuleLogEvents, AreReadOneAfterTheOther) {
  start(RuleLog::kMostRate);
  for (uint16_t i = 0; i < 300; ++i) packet(i);
  written.wait_for(300);
  control->finish();
  EXPECT_EQ(ask({{"count", 1u}})["events"][0]["src_port"], 299) << "the newest";
  uint64_t after = 0;
  std::vector<uint64_t> ports;
  for (int looks = 0; looks < 4; ++looks) {
    const Json said = ask({{"after", after}, {"count", 100u}});
    EXPECT_EQ(said["missed"], 0);
    for (const Json& event : said["events"]) ports.push_back(event["src_port"].get<uint64_t>());
    after = said["next"].get<uint64_t>();
  }
  ASSERT_EQ(ports.size(), 300u);
  for (uint64_t i = 0; i < ports.size(); ++i) EXPECT_EQ(ports[i], i);
  EXPECT_EQ(ask({{"after", ~uint64_t{0}}})["next"], 300) << "a number that is not yet there";
}

TEST_F(RuleLogEvents, ThatAreNoLongerKeptAreMissed) {
  start(RuleLog::kMostRate);
  constexpr uint16_t kMany = RuleLogControl::kKept + 10;
  for (uint16_t i = 0; i < kMany; ++i) packet(i);
  written.wait_for(kMany);
  control->finish();
  const Json said = ask({{"after", 0u}, {"count", 1u}});
  EXPECT_EQ(said["missed"], 10);
  EXPECT_EQ(said["events"][0]["number"], 11);
}

// A log that nobody reads any more holds up neither packets nor whoever asks.
TEST_F(RuleLogEvents, GoOnWhileTheLogIsNotWritten) {
  start(RuleLog::kMostRate);
  written.hold(true);
  packet(1);
  written.wait_for(1);
  constexpr uint64_t kMany = 2 * RuleLog::kRoom;
  for (uint64_t i = 0; i < kMany; ++i) packet(2);
  EXPECT_GE(ask()["not_logged"].get<uint64_t>(), kMany - RuleLog::kRoom);
  written.hold(false);
  control->finish();
  const Json said = ask();
  EXPECT_EQ(said["logged"].get<uint64_t>() + said["not_logged"].get<uint64_t>(), kMany + 1);
}

TEST_F(RuleLogEvents, RefuseWhatIsNoField) {
  start(1);
  for (const Json& wrong : {Json{{"count", 0u}}, Json{{"count", 1001u}}, Json{{"after", -1}}, Json{{"afer", 1u}}}) {
    Json request = wrong;
    EXPECT_FALSE(read_fields(*find_command("show log"), request).ok()) << wrong.dump();
  }
}

}  // namespace
}  // namespace sluice
