// What a capture keeps, when it ends, and what it costs those who forget it. That it has the fate of every packet of a
// run is tested where packets are traced at the same time.
#include "control/capture_control.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "control/json.h"
#include "control/live_fuzz_input.h"
#include "control/request.h"
#include "net/packet_builder.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json answer(FuzzedRuntime& runtime, Json request) {
  request["v"] = kControlVersion;
  return Json::parse(runtime.control->answer(request.dump()));
}
uint64_t start(FuzzedRuntime& runtime, Json fields = Json::object()) {
  fields["command"] = "capture start";
  const Json said = answer(runtime, fields);
  EXPECT_TRUE(said["ok"].get<bool>()) << said.dump();
  return said["ok"].get<bool>() ? said["result"]["capture"].get<uint64_t>() : 0;
}
Json read(FuzzedRuntime& runtime, uint64_t id) {
  return answer(runtime, {{"command", "capture read"}, {"capture", id}})["result"];
}

// `n` packets are received, and dropped by `element`; empty: they leave by "out".
void pass(FuzzedRuntime& runtime, uint32_t n, const std::string& element) {
  auto batch = Batch::create(64, size_t{1} << 20);
  ASSERT_TRUE(batch.ok());
  const std::vector<uint8_t> frame = udp4("10.0.0.1", "10.0.0.2").ports(1, 2).size(100).build();
  for (uint32_t i = 0; i < n; ++i) {
    uint8_t* to = batch->reserve_clean(frame.size());
    std::copy(frame.begin(), frame.end(), to);
    const auto bytes = static_cast<uint32_t>(frame.size());
    batch->push(to, bytes, bytes, 0, i);
  }
  std::vector<FollowedRow> rows;
  runtime.taps->receive(*batch, Snapshot(), "in", rows);
  for (FollowedRow& row : rows) {
    if (element.empty()) {
      row.packet->ends.push_back({"out", 3, DropReason::kNone});
    } else {
      row.packet->fate.reason = DropReason::kNoRoute;
      row.packet->element = element;
    }
    PacketTaps::finish(std::move(row.packet));
  }
}

TEST(Capture, EndsAfterItsCountAndSaysSoOnceAllIsRead) {
  FuzzedRuntime runtime;
  const uint64_t id = start(runtime, {{"packets", 3}});
  pass(runtime, 2, "");
  Json said = read(runtime, id);
  EXPECT_EQ(said["packets"].size(), 2u);
  EXPECT_TRUE(said["ended"].is_null());
  EXPECT_EQ(said["packets"][0]["comment"], "left by out (port 3)");
  pass(runtime, 10, "");
  said = read(runtime, id);
  EXPECT_EQ(said["packets"].size(), 1u);
  EXPECT_EQ(said["ended"], "it has as many packets as were asked for");
  EXPECT_FALSE(runtime.taps->armed());
}

TEST(Capture, KeepsOnlyWhatWasDroppedWhereItWasAsked) {
  FuzzedRuntime runtime;
  const std::string element = runtime.router.elements[1]->name;
  const std::string other = runtime.router.elements[2]->name;
  for (const Json& fields : {Json{{"dropped", true}}, Json{{"dropped_at", element}}}) {
    const uint64_t id = start(runtime, fields);
    pass(runtime, 5, "");
    pass(runtime, 3, element);
    pass(runtime, 2, other);
    const Json said = read(runtime, id);
    EXPECT_EQ(said["packets"].size(), fields.contains("dropped") ? 5u : 3u);
    EXPECT_EQ(said["packets"][0]["comment"], "dropped: no-route at " + element);
    answer(runtime, {{"command", "capture stop"}});
    EXPECT_EQ(read(runtime, id)["ended"], "it was stopped");
    (void)read(runtime, id);
  }
  EXPECT_FALSE(answer(runtime, {{"command", "capture start"}, {"dropped_at", "nowhere"}})["ok"].get<bool>());
  EXPECT_FALSE(answer(runtime, {{"command", "capture start"}, {"at", "nowhere"}})["ok"].get<bool>());
}

// Packets that are not kept give their room back; those that are read, too.
TEST(Capture, CountsWhatFindsNoRoomAndFindsItAgain) {
  FuzzedRuntime runtime;
  const uint64_t id = start(runtime, {{"dropped", true}});
  constexpr uint32_t kFit = CaptureControl::kRoomBytes / (CaptureControl::kEachBytes + 100);
  for (uint32_t n = 0; n < 2 * kFit; n += 50) pass(runtime, 50, "");
  EXPECT_EQ(read(runtime, id)["missed"], 0u);
  for (uint32_t n = 0; n < kFit; n += 50) pass(runtime, 50, "x");
  pass(runtime, 50, "x");
  size_t got = 0;
  Json said;
  do {
    said = read(runtime, id);
    got += said["packets"].size();
  } while (said["more"].get<bool>());
  EXPECT_EQ(got, kFit);
  EXPECT_EQ(got + said["missed"].get<uint64_t>(), (kFit / 50 + 2) * 50);
  pass(runtime, 50, "x");
  EXPECT_EQ(read(runtime, id)["packets"].size(), 50u);
}

TEST(Capture, IsOneAtATimeUntilItsReaderHasTheEnd) {
  FuzzedRuntime runtime;
  const uint64_t id = start(runtime);
  EXPECT_FALSE(answer(runtime, {{"command", "capture start"}})["ok"].get<bool>());
  pass(runtime, 2, "");
  runtime.capture->run_ended();
  EXPECT_TRUE(runtime.capture->waits_for_reader(now_ns()));
  const Json said = read(runtime, id);
  EXPECT_EQ(said["packets"].size(), 2u);
  EXPECT_EQ(said["ended"], "the run ended");
  EXPECT_TRUE(runtime.capture->waits_for_reader(now_ns()));  // the answer may be on its way
  (void)read(runtime, id);
  EXPECT_FALSE(runtime.capture->waits_for_reader(now_ns()));
}

// A reader that gets little time keeps its packets as long as it asks, and not for ever.
TEST(Capture, IsKeptAfterTheRunForAReaderThatAsks) {
  FuzzedRuntime runtime;
  const uint64_t id = start(runtime);
  pass(runtime, 2, "");
  runtime.capture->run_ended();
  const uint64_t ended = now_ns();  // or some time before
  EXPECT_TRUE(runtime.capture->waits_for_reader(ended));
  EXPECT_FALSE(runtime.capture->waits_for_reader(ended + CaptureControl::kPatienceNs));
  uint64_t asks = now_ns();
  while (asks == ended) asks = now_ns();
  EXPECT_EQ(read(runtime, id)["packets"].size(), 2u);
  EXPECT_TRUE(runtime.capture->waits_for_reader(asks + CaptureControl::kPatienceNs - 1));
  EXPECT_FALSE(runtime.capture->waits_for_reader(now_ns() + CaptureControl::kPatienceNs));
  EXPECT_FALSE(runtime.capture->waits_for_reader(ended + CaptureControl::kMostPatienceNs));
  (void)read(runtime, id);
  EXPECT_FALSE(runtime.capture->waits_for_reader(asks));
}

// A packet that is through between the taking and the answer is not left out of the file.
TEST(Capture, EndsOnlyOnceEveryPacketIsTaken) {
  FuzzedRuntime runtime;
  const uint64_t id = start(runtime);
  auto batch = Batch::create(8, size_t{1} << 16);
  ASSERT_TRUE(batch.ok());
  const std::vector<uint8_t> frame = udp4("10.0.0.1", "10.0.0.2").ports(1, 2).size(60).build();
  uint8_t* const to = batch->reserve_clean(frame.size());
  std::copy(frame.begin(), frame.end(), to);
  batch->push(to, 60, 60, 0, 0);
  std::vector<FollowedRow> rows;
  runtime.taps->receive(*batch, Snapshot(), "in", rows);
  ASSERT_EQ(rows.size(), 1u);
  answer(runtime, {{"command", "capture stop"}});
  runtime.capture->digest();
  PacketTaps::finish(std::move(rows[0].packet));
  const Json first = *runtime.capture->read(id);
  EXPECT_TRUE(first["packets"].empty());
  EXPECT_TRUE(first["ended"].is_null());
  const Json second = read(runtime, id);
  EXPECT_EQ(second["packets"].size(), 1u);
  EXPECT_EQ(second["ended"], "it was stopped");
}

TEST(Capture, IsForgottenWhenItIsStoppedTwice) {
  FuzzedRuntime runtime;
  const uint64_t id = start(runtime);
  pass(runtime, 2, "");
  EXPECT_TRUE(answer(runtime, {{"command", "capture stop"}})["ok"].get<bool>());
  EXPECT_TRUE(
      answer(runtime, {{"command", "capture stop"}, {"capture", id}})["ok"].get<bool>());  // its reader reads on
  EXPECT_EQ(answer(runtime, {{"command", "show capture"}})["result"]["waiting"], 2u);
  EXPECT_FALSE(answer(runtime, {{"command", "capture start"}})["ok"].get<bool>());
  EXPECT_TRUE(answer(runtime, {{"command", "capture stop"}})["ok"].get<bool>());
  EXPECT_FALSE(answer(runtime, {{"command", "capture stop"}})["ok"].get<bool>());
  EXPECT_GT(start(runtime), id);
}

// A client that was killed leaves nothing armed.
TEST(Capture, EndsWhereNobodyReads) {
  PacketTaps taps;
  const auto order = taps.start(Tap::kCapture, {}, 10, 1000, TapWish{false, "", 0, now_ns()});
  auto batch = Batch::create(8, size_t{1} << 16);
  ASSERT_TRUE(batch.ok());
  std::vector<FollowedRow> rows;
  EXPECT_TRUE(taps.armed());
  taps.receive(*batch, Snapshot(), "in", rows);
  EXPECT_FALSE(taps.armed());
  EXPECT_EQ(order->followed(), 0u);
}

}  // namespace
}  // namespace sluice
