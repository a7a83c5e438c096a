// Graphs in process: frames in, frames and fates out, and every packet in the sum.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "api/api_test_support.h"
#include "net/packet_builder.h"

namespace sluice::api_test {
namespace {

Handle<sluice_graph> graph_of(const std::string& text, uint32_t workers = 1, uint32_t capacity = 0) {
  sluice_graph_options options = SLUICE_GRAPH_OPTIONS_INIT;
  options.workers = workers;
  options.capacity = capacity;
  Errors errors;
  Handle<sluice_graph> graph(sluice_graph_read(text.c_str(), "test.click", &options, &errors));
  EXPECT_NE(graph, nullptr) << errors.text();
  return graph;
}

sluice_frame frame_of(const std::vector<uint8_t>& bytes, uint64_t timestamp_ns = 0) {
  return {bytes.data(), static_cast<uint32_t>(bytes.size()), 0, timestamp_ns};
}

// A file that lives as long as this.
struct ListFile {
  explicit ListFile(const char* text)
      : path((std::filesystem::temp_directory_path() / ("sluice_api_graph_" + std::to_string(::getpid()))).string()) {
    std::ofstream(path) << text;
  }
  ~ListFile() { std::filesystem::remove(path); }
  const std::string path;
};

TEST(ApiGraph, EveryPacketLeavesOrHasAReason) {
  const ListFile list("deny udp from any to any port 53\npermit from any to any\n");
  const std::string text = "AclTable(edge, FILE " + list.path +
                           ");\nin :: FromDump(in.pcap) -> IPInput -> acl :: ACL(TABLE edge) -> DecIPTTL -> "
                           "out :: ToDump(out.pcap);\n";
  for (const uint32_t workers : {1u, 3u}) {
    const auto graph = graph_of(text, workers);
    ASSERT_NE(graph, nullptr);
    const int in = sluice_graph_input(graph.get(), "in"), out = sluice_graph_output(graph.get(), "out");
    ASSERT_EQ(in, 0);
    ASSERT_EQ(out, 0);
    const auto good = udp4("10.0.0.1", "192.0.2.7").ports(1000, 80).payload(10).build();
    const auto denied = udp4("10.0.0.1", "192.0.2.7").ports(1000, 53).payload(10).build();
    const auto expired = udp4("10.0.0.1", "192.0.2.7").ports(1000, 80).ttl(1).build();
    const std::vector<uint8_t> junk(14, 0xff);
    std::vector<sluice_frame> frames;
    for (uint64_t i = 0; i < 100; ++i)
      for (const auto* bytes : {&good, &denied, &expired, &junk}) frames.push_back(frame_of(*bytes, i));
    size_t taken = 0, fates_seen = 0;
    std::map<std::string, uint64_t> reasons;
    std::vector<sluice_packet> packets(64);
    std::vector<sluice_fate> fates(64);
    uint64_t left = 0;
    const auto fetch = [&] {
      while (const size_t n = sluice_graph_take(graph.get(), packets.data(), packets.size())) {
        for (size_t i = 0; i < n; ++i) {
          EXPECT_EQ(packets[i].output, out);
          EXPECT_EQ(packets[i].timestamp_ns, left++);
          ASSERT_EQ(packets[i].captured, good.size());
          EXPECT_EQ(packets[i].data[22], good[22] - 1) << "the TTL";
        }
      }
      while (const size_t n = sluice_graph_fates(graph.get(), fates.data(), fates.size())) {
        for (size_t i = 0; i < n; ++i) {
          EXPECT_EQ(fates[i].number, ++fates_seen);
          ++reasons[sluice_drop_reason(fates[i].reason)];
          if (fates[i].number % 4 == 2) {
            EXPECT_EQ(fates[i].rule, 1u);
            EXPECT_STREQ(sluice_graph_element(graph.get(), fates[i].element), "acl");
          }
        }
      }
    };
    while (taken < frames.size()) {
      taken += sluice_graph_push(graph.get(), in, frames.data() + taken, frames.size() - taken);
      fetch();
    }
    EXPECT_EQ(sluice_graph_wait(graph.get(), 60'000'000'000), 0);
    fetch();
    EXPECT_EQ(left, 100u);
    EXPECT_EQ(fates_seen, 400u);
    EXPECT_EQ(reasons[""], 100u);
    EXPECT_EQ(reasons["acl-deny"], 100u);
    EXPECT_EQ(reasons["ttl-expired"], 100u);
    EXPECT_EQ(reasons.size(), 4u);
    sluice_graph_counts counts{};
    counts.size = sizeof counts;
    Errors errors;
    ASSERT_EQ(sluice_graph_finish(graph.get(), &counts, &errors), 0) << errors.text();
    EXPECT_EQ(counts.pushed, 400u);
    EXPECT_EQ(counts.out, 100u);
    EXPECT_EQ(counts.dropped, 300u);
    EXPECT_EQ(counts.made, 0u);
    EXPECT_EQ(sluice_graph_push(graph.get(), in, frames.data(), 1), 0u);
    EXPECT_EQ(sluice_graph_finish(graph.get(), &counts, &errors), -1);
  }
}

TEST(ApiGraph, InputsAndOutputsGoByTheirNames) {
  const auto graph = graph_of(
      "a :: FromDump(a) -> Paint(1) -> x :: ToDump(x.pcap); b :: FromMemory(b) -> y :: ToMemory; c :: FromDump(c) -> "
      "Discard;");
  const auto frame = udp4("10.0.0.1", "192.0.2.7").build();
  const sluice_frame one = frame_of(frame);
  EXPECT_EQ(sluice_graph_input(graph.get(), "z"), -1);
  EXPECT_EQ(sluice_graph_input(graph.get(), nullptr), -1);
  EXPECT_EQ(sluice_graph_output(graph.get(), "Discard@7"), -1);
  // Whichever comes first, and however long another says nothing.
  for (const char* name : {"b", "a", "b", "b", "c"}) {
    ASSERT_EQ(sluice_graph_push(graph.get(), sluice_graph_input(graph.get(), name), &one, 1), 1u);
    ASSERT_EQ(sluice_graph_wait(graph.get(), 60'000'000'000), 0);
  }
  std::vector<sluice_packet> packets(8);
  ASSERT_EQ(sluice_graph_take(graph.get(), packets.data(), 8), 4u);
  const int x = sluice_graph_output(graph.get(), "x"), y = sluice_graph_output(graph.get(), "y");
  EXPECT_EQ(packets[0].output, y);
  EXPECT_EQ(packets[1].output, x);
  EXPECT_EQ(packets[2].output, y);
  std::vector<sluice_fate> fates(8);
  ASSERT_EQ(sluice_graph_fates(graph.get(), fates.data(), 8), 5u);
  EXPECT_EQ(fates[4].number, 5u);
  EXPECT_STRNE(sluice_drop_reason(fates[4].reason), "");
}

TEST(ApiGraph, HoldsNoMoreThanItsCapacity) {
  const auto graph = graph_of("in :: FromDump(a) -> out :: ToDump(b);", 1, 10);
  const auto frame = udp4("10.0.0.1", "192.0.2.7").build();
  const std::vector<sluice_frame> frames(30, frame_of(frame));
  EXPECT_LE(sluice_graph_push(graph.get(), 0, frames.data(), frames.size()), 10u);
  ASSERT_EQ(sluice_graph_wait(graph.get(), 60'000'000'000), 0);
  while (sluice_graph_push(graph.get(), 0, frames.data(), 1) != 0)
    ASSERT_EQ(sluice_graph_wait(graph.get(), 60'000'000'000), 0);
  std::vector<sluice_packet> packets(30);
  std::vector<sluice_fate> fates(30);
  EXPECT_LE(sluice_graph_take(graph.get(), packets.data(), 30), 10u);
  EXPECT_GT(sluice_graph_fates(graph.get(), fates.data(), 30), 0u);
  EXPECT_EQ(sluice_graph_push(graph.get(), 0, frames.data(), 1), 1u);
  // What is too long, or not there, is not taken.
  sluice_frame wrong = frames[0];
  wrong.captured = 262'145;
  EXPECT_EQ(sluice_graph_push(graph.get(), 0, &wrong, 1), 0u);
  wrong = {nullptr, 10, 0, 0};
  EXPECT_EQ(sluice_graph_push(graph.get(), 0, &wrong, 1), 0u);
  EXPECT_EQ(sluice_graph_push(graph.get(), 1, frames.data(), 1), 0u);
  EXPECT_EQ(sluice_graph_push(graph.get(), -1, frames.data(), 1), 0u);
}

TEST(ApiGraph, ManyThreadsPush) {
  const auto graph = graph_of("in :: FromDump(a) -> IPInput -> out :: ToDump(b);", 2);
  const auto frame = udp4("10.0.0.1", "192.0.2.7").build();
  constexpr size_t kThreads = 3, kEach = 2000;
  std::vector<std::thread> threads;
  std::atomic<size_t> running{kThreads};
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const std::vector<sluice_frame> frames(16, frame_of(frame));
      for (size_t sent = 0; sent < kEach;) {
        const size_t n = sluice_graph_push(graph.get(), 0, frames.data(), std::min<size_t>(16, kEach - sent));
        if (n == 0) std::this_thread::yield();
        sent += n;
      }
      --running;
    });
  }
  std::vector<sluice_packet> packets(256);
  std::vector<sluice_fate> fates(256);
  uint64_t left = 0, ended = 0;
  while (ended < kThreads * kEach) {
    left += sluice_graph_take(graph.get(), packets.data(), packets.size());
    const size_t n = sluice_graph_fates(graph.get(), fates.data(), fates.size());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(fates[i].number, ++ended);
    if (n == 0) std::this_thread::yield();
  }
  for (auto& thread : threads) thread.join();
  while (const size_t n = sluice_graph_take(graph.get(), packets.data(), packets.size())) left += n;
  EXPECT_EQ(left, kThreads * kEach);
  sluice_graph_counts counts{};
  counts.size = sizeof counts;
  ASSERT_EQ(sluice_graph_finish(graph.get(), &counts, nullptr), 0);
  EXPECT_EQ(counts.pushed, kThreads * kEach);
  EXPECT_EQ(counts.out, kThreads * kEach);
}

// What is inside is lost, and nobody waits.
TEST(ApiGraph, IsFreedAtAnyTime) {
  const auto frame = udp4("10.0.0.1", "192.0.2.7").build();
  for (int i = 0; i < 20; ++i) {
    const auto graph = graph_of("in :: FromDump(a) -> IPInput -> out :: ToDump(b);");
    const std::vector<sluice_frame> frames(static_cast<size_t>(i) * 50, frame_of(frame));
    if (!frames.empty()) sluice_graph_push(graph.get(), 0, frames.data(), frames.size());
  }
  sluice_graph_free(nullptr);
}

TEST(ApiGraph, SaysWhatIsWrong) {
  Errors errors;
  const auto refused = [&](const char* text) {
    EXPECT_EQ(sluice_graph_read(text, "wrong.click", nullptr, &errors), nullptr) << text;
    return errors.count() == 0 ? sluice_error{} : errors.at(0);
  };
  const sluice_error unknown = refused("FromDump(in.pcap) -> IPInputt -> ToDump(out.pcap);");
  EXPECT_EQ(errors.count(), 1u);
  EXPECT_STREQ(unknown.file, "wrong.click");
  EXPECT_EQ(unknown.line, 1u);
  EXPECT_EQ(unknown.column, 22u);
  EXPECT_STREQ(unknown.help, "did you mean 'IPInput'?");
  refused("FromDump(a) -> Queue -> RatedUnqueue(10) -> ToDump(b);");
  EXPECT_NE(errors.text().find("packet scheduler"), std::string::npos) << errors.text();
  refused("FromDevice(eth0) -> ToDevice(eth1);");
  EXPECT_NE(errors.text().find("live ports"), std::string::npos) << errors.text();
  refused("InfiniteSource -> Discard;");
  EXPECT_EQ(sluice_graph_open("/nonexistent.click", nullptr, &errors), nullptr);
  EXPECT_EQ(sluice_graph_read(nullptr, nullptr, nullptr, &errors), nullptr);
  sluice_graph_options options = SLUICE_GRAPH_OPTIONS_INIT;
  options.workers = 300;
  EXPECT_EQ(sluice_graph_read("FromDump(a) -> Discard;", "x", &options, &errors), nullptr);
  EXPECT_EQ(sluice_graph_wait(nullptr, 0), -1);
  EXPECT_EQ(sluice_graph_take(nullptr, nullptr, 1), 0u);
  EXPECT_EQ(sluice_graph_fates(nullptr, nullptr, 1), 0u);
  EXPECT_STREQ(sluice_graph_element(nullptr, 0), "");
  EXPECT_STREQ(sluice_drop_reason(0), "");
  EXPECT_STREQ(sluice_drop_reason(100'000), "");
  EXPECT_EQ(sluice_graph_finish(nullptr, nullptr, &errors), -1);
}

}  // namespace
}  // namespace sluice::api_test
