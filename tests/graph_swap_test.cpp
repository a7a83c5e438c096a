// Another graph in the place of one that runs, under traffic: each packet meets one of the two, none is lost, and all
// leave in order.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "elements/register_all.h"
#include "exec/engine/engine.h"
#include "exec/engine/generation.h"
#include "formats/qos_text.h"
#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "qos/frame_class.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::TempDir;

const Registry& registry() {
  static const Registry made = [] {
    Registry r;
    register_elements(r);
    return r;
  }();
  return made;
}

std::unique_ptr<GraphGeneration> load(const std::string& text, bool by_packets = false) {
  LoadOptions options;
  options.by_packets = by_packets;
  auto graph = load_generation(text, "test.click", registry(), options);
  EXPECT_TRUE(graph.ok()) << to_string(graph.error());
  return graph.ok() ? std::move(*graph) : nullptr;
}

// Writes a capture without end into a pipe: packet n has n in its last four bytes, and a codepoint of three classes.
class Traffic {
 public:
  explicit Traffic(std::string path) : path_(std::move(path)) {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    thread_ = std::thread([this] { write_all(); });
  }
  ~Traffic() {
    if (thread_.joinable()) (void)end(0);
  }
  uint64_t written() const { return written_.load(); }
  // So many more, and the end. Returns how many there were.
  uint64_t end(uint64_t more) {
    last_.store(written_.load() + more);
    thread_.join();
    return written_.load();
  }

 private:
  void write_all() {
    const int pipe = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (pipe < 0) return;
    const uint32_t header[] = {0xa1b23c4d, 0x00040002, 0, 0, 65535, 1};
    std::vector<uint8_t> bytes(reinterpret_cast<const uint8_t*>(header),
                               reinterpret_cast<const uint8_t*>(header) + sizeof header);
    const uint8_t dscps[] = {46, 10, 0};
    std::vector<std::vector<uint8_t>> frames;
    for (const uint8_t dscp : dscps)
      frames.push_back(udp4("10.0.0.1", "192.0.2.1").ports(1, 2).payload(22).dscp(dscp).build());
    for (uint64_t n = 0; n < last_.load(); n += 64) {
      for (uint64_t i = n; i < n + 64; ++i) {
        std::vector<uint8_t>& frame = frames[i % frames.size()];
        const auto number = static_cast<uint32_t>(i);
        std::memcpy(frame.data() + frame.size() - 4, &number, 4);
        const auto size = static_cast<uint32_t>(frame.size());
        const uint64_t at = 1'700'000'000'000'000'000 + i * 1000;
        const uint32_t record[] = {static_cast<uint32_t>(at / 1'000'000'000), static_cast<uint32_t>(at % 1'000'000'000),
                                   size, size};
        bytes.insert(bytes.end(), reinterpret_cast<const uint8_t*>(record),
                     reinterpret_cast<const uint8_t*>(record) + sizeof record);
        bytes.insert(bytes.end(), frame.begin(), frame.end());
      }
      for (size_t done = 0; done < bytes.size();) {
        const ssize_t wrote = ::write(pipe, bytes.data() + done, bytes.size() - done);
        if (wrote <= 0) return;
        done += static_cast<size_t>(wrote);
      }
      bytes.clear();
      written_ += 64;
    }
    ::close(pipe);
  }

  std::string path_;
  std::atomic<uint64_t> written_{0}, last_{~uint64_t{0}};
  std::thread thread_;
};

struct Sent {
  uint32_t number;
  uint8_t dscp, before;
};
std::vector<Sent> sent_to(const std::string& path) {
  std::vector<Sent> all;
  auto reader = CaptureReader::open(path);
  EXPECT_TRUE(reader.ok());
  if (!reader.ok()) return all;
  const uint8_t dscps[] = {46, 10, 0};
  CapturedFrame frame;
  while (reader->next(frame).ok() && frame.captured != 0) {
    Sent s{};
    std::memcpy(&s.number, frame.data + frame.captured - 4, 4);
    s.dscp = static_cast<uint8_t>(dscp_of_frame(frame.data, frame.captured));
    s.before = dscps[s.number % 3];
    all.push_back(s);
    frame = {};
  }
  return all;
}

struct Swapped {
  std::unique_ptr<GraphGeneration> first;
  std::unique_ptr<Engine> engine;
  RunReport report;
  std::string error;
  uint64_t written = 0;
};

// Runs `first`, which reads the pipe IN, and calls `meanwhile` while packets come.
void run_beside(Swapped& s, const TempDir& dir, const std::string& first, RunOptions options,
                const std::function<void(Engine&)>& meanwhile, bool by_packets = false) {
  s.first = load(first, by_packets);
  ASSERT_NE(s.first, nullptr);
  Traffic traffic(dir / "IN");
  std::atomic<uint64_t> through{0};
  options.progress = [&](uint64_t packets) { through = packets; };
  auto engine = Engine::create(s.first->router, s.first->plan, s.first->tables, options);
  ASSERT_TRUE(engine.ok()) << to_string(engine.error());
  s.engine = std::move(*engine);
  std::thread run([&] {
    if (auto done = s.engine->run(s.report); !done.ok()) s.error = to_string(done.error());
  });
  while (through.load() < 1000) std::this_thread::yield();
  meanwhile(*s.engine);
  s.written = traffic.end(5000);
  run.join();
  EXPECT_EQ(s.error, "");
  EXPECT_TRUE(s.report.conserved());
  EXPECT_EQ(s.report.packets_in, s.written);
}

std::string marking(const TempDir& dir, unsigned dscp, const std::string& between = "") {
  return fmt::format("in :: FromDump({0}) -> check :: IPInput -> {2} SetIPDSCP({1}) -> out :: ToDump({0}OUT);",
                     dir / "IN", dscp, between);
}

class GraphSwap : public ::testing::TestWithParam<unsigned> {};

TEST_P(GraphSwap, EachPacketMeetsOneGraphInOrder) {
  for (const bool by_packets : {false, true}) {
    SCOPED_TRACE(by_packets);
    const TempDir dir;
    RunOptions options;
    options.workers = GetParam();
    options.batch = 32;
    Swapped s;
    constexpr unsigned kSwaps = 20;
    run_beside(
        s, dir, marking(dir, 1), options,
        [&](Engine& engine) {
          for (unsigned n = 0; n < kSwaps; ++n) {
            auto next = load(marking(dir, n % 2 == 0 ? 2 : 1, n % 3 == 0 ? "Null -> " : ""), by_packets);
            const auto done = engine.swap(std::move(next));
            EXPECT_TRUE(done.ok()) << to_string(done.error());
          }
        },
        by_packets);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(s.engine->swaps(), kSwaps);
    const std::vector<Sent> sent = sent_to(dir / "INOUT");
    ASSERT_EQ(sent.size(), s.written);
    unsigned changes = 0;
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(sent[i].number, i);
      ASSERT_TRUE(sent[i].dscp == 1 || sent[i].dscp == 2);
      changes += i != 0 && sent[i].dscp != sent[i - 1].dscp ? 1 : 0;
    }
    EXPECT_EQ(sent.front().dscp, 1);
    EXPECT_EQ(sent.back().dscp, kSwaps % 2 == 0 ? 1 : 2);
    EXPECT_LE(changes, kSwaps);
    // Counters follow names, whatever the graph.
    const Router& router = s.engine->router();
    for (size_t e = 0; e < router.elements.size(); ++e) {
      if (router.elements[e]->name == "check") {
        EXPECT_EQ(s.report.totals.elements[e].packets, s.written);
      }
    }
  }
}

// What a worker has read ahead of a capture goes to the graph that follows, in its order.
TEST_P(GraphSwap, SeveralCapturesKeepTheirTurns) {
  const TempDir dir;
  constexpr uint32_t kPackets = 20'000;
  for (uint32_t c = 0; c < 3; ++c) {
    auto writer = CaptureWriter::create(dir / fmt::format("c{}", c));
    ASSERT_TRUE(writer.ok());
    for (uint32_t i = 0; i < kPackets; ++i) {
      std::vector<uint8_t> frame = udp4("10.0.0.1", "192.0.2.1").ports(1, 2).payload(22).build();
      const uint32_t number = c * kPackets + i;
      std::memcpy(frame.data() + frame.size() - 4, &number, 4);
      ASSERT_TRUE(writer->append(FrameHeader{64, 64, i}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  const auto graph = [&](unsigned dscp) {
    std::string text = fmt::format("set :: SetIPDSCP({}) -> out :: ToDump({});\n", dscp, dir / "OUT");
    for (int c = 0; c < 3; ++c)
      text += fmt::format("in{} :: FromDump({}) -> IPInput -> set;\n", c, dir / fmt::format("c{}", c));
    return text;
  };
  auto first = load(graph(1));
  ASSERT_NE(first, nullptr);
  RunOptions options;
  options.workers = GetParam() + 1;
  options.batch = 64;
  std::atomic<uint64_t> through{0};
  options.progress = [&](uint64_t packets) { through = packets; };
  auto engine = Engine::create(first->router, first->plan, first->tables, options);
  ASSERT_TRUE(engine.ok()) << to_string(engine.error());
  RunReport report;
  std::string error;
  std::atomic<bool> over{false};
  std::thread run([&] {
    if (auto done = (*engine)->run(report); !done.ok()) error = to_string(done.error());
    over = true;
  });
  while (through.load() == 0 && !over) std::this_thread::yield();
  unsigned dscp = 1;
  // A run that is over takes no graph.
  for (int n = 0; n < 10 && !over; ++n) {
    if ((*engine)->swap(load(graph(dscp % 2 + 1))).ok()) ++dscp;
  }
  run.join();
  EXPECT_EQ(error, "");
  EXPECT_TRUE(report.conserved());
  EXPECT_EQ(report.packets_in, 3u * kPackets);
  const std::vector<Sent> sent = sent_to(dir / "OUT");
  ASSERT_EQ(sent.size(), 3u * kPackets);
  // 256 packets of each in turn.
  for (uint32_t i = 0; i < sent.size(); ++i) {
    const uint32_t turn = i / 256 / 3;
    const uint32_t each = std::min(256u, kPackets - turn * 256);
    const uint32_t in_turn = i - turn * 256 * 3;
    ASSERT_EQ(sent[i].number, in_turn / each * kPackets + turn * 256 + in_turn % each) << i;
  }
}

TEST_P(GraphSwap, ClassesKeepTheirOrder) {
  const TempDir dir;
  RunOptions options;
  options.workers = GetParam();
  options.priorities = PriorityOptions{};
  options.priorities->chunk = 16;
  Swapped s;
  run_beside(s, dir, marking(dir, 1), options, [&](Engine& engine) {
    for (unsigned n = 0; n < 10; ++n) {
      const auto done = engine.swap(load(marking(dir, n % 2 == 0 ? 2 : 1)));
      EXPECT_TRUE(done.ok()) << to_string(done.error());
    }
  });
  if (HasFatalFailure()) return;
  std::vector<Sent> sent = sent_to(dir / "INOUT");
  ASSERT_EQ(sent.size(), s.written);
  uint64_t by_class = 0;
  for (const PriorityReport& c : s.report.priorities) by_class += c.packets;
  EXPECT_EQ(by_class, s.written);
  std::stable_sort(sent.begin(), sent.end(), [](const Sent& a, const Sent& b) { return a.before < b.before; });
  for (size_t i = 1; i < sent.size(); ++i) {
    if (sent[i].before == sent[i - 1].before) {
      ASSERT_LT(sent[i - 1].number, sent[i].number);
    }
  }
}

TEST_P(GraphSwap, KeepsPacketsThatWaitForTheirClass) {
  const TempDir dir;
  RunOptions options;
  options.workers = GetParam();
  auto model = parse_qos("class voice dscp 1 rate 20Mbps burst 3000 limit 1000\nclass rest dscp others\n", "qos");
  ASSERT_TRUE(model.ok());
  options.qos = std::make_shared<QosModel>(*model);
  Swapped s;
  run_beside(s, dir, marking(dir, 1), options, [&](Engine& engine) {
    for (unsigned n = 0; n < 10; ++n) {
      const auto done = engine.swap(load(marking(dir, n % 2 == 0 ? 2 : 1)));
      EXPECT_TRUE(done.ok()) << to_string(done.error());
    }
  });
  if (HasFatalFailure()) return;
  EXPECT_EQ(sent_to(dir / "INOUT").size(), s.report.packets_out);
  ASSERT_EQ(s.report.qos.size(), 1u);
  uint64_t in = 0;
  for (const QosClassReport& c : s.report.qos[0].classes) in += c.counters.in_pkts;
  EXPECT_EQ(in, s.written);
}

TEST_P(GraphSwap, OutputsThatEndAppearWithTheOthers) {
  const TempDir dir;
  RunOptions options;
  options.workers = GetParam();
  Swapped s;
  run_beside(s, dir, marking(dir, 1), options, [&](Engine& engine) {
    const auto done = engine.swap(
        load(fmt::format("in :: FromDump({0}) -> check :: IPInput -> second :: ToDump({0}SECOND);", dir / "IN")));
    EXPECT_TRUE(done.ok()) << to_string(done.error());
    EXPECT_FALSE(std::filesystem::exists(dir / "INOUT"));
  });
  if (HasFatalFailure()) return;
  const std::vector<Sent> first = sent_to(dir / "INOUT"), second = sent_to(dir / "INSECOND");
  EXPECT_EQ(first.size() + second.size(), s.written);
  EXPECT_GE(second.size(), 5000u);
  ASSERT_FALSE(first.empty());
  ASSERT_FALSE(second.empty());
  EXPECT_EQ(first.back().number + 1, second.front().number);
  EXPECT_EQ(s.report.sinks.size(), 2u);
}

TEST_P(GraphSwap, APolicerThatIsTheSameKeepsItsTokens) {
  const TempDir dir;
  RunOptions options;
  options.workers = GetParam();
  Swapped s;
  const auto text = [&](const char* name) {
    return fmt::format("in :: FromDump({0}) -> IPInput -> {1} :: Police(8kbps, 6400) -> out :: ToDump({0}OUT);",
                       dir / "IN", name);
  };
  run_beside(s, dir, text("p"), options, [&](Engine& engine) {
    for (unsigned n = 0; n < 10; ++n) {
      const auto done = engine.swap(load(text("p") + (n % 2 == 0 ? "Idle -> Discard;" : "")));
      EXPECT_TRUE(done.ok()) << to_string(done.error());
    }
  });
  if (HasFatalFailure()) return;
  // One burst in all, and a packet or two for the time that passed.
  EXPECT_GE(s.report.packets_out, 100u);
  EXPECT_LT(s.report.packets_out, 200u);
}

TEST_P(GraphSwap, AGraphWithErrorsChangesNothing) {
  const TempDir dir;
  RunOptions options;
  options.workers = GetParam();
  Swapped s;
  const std::string in = fmt::format("in :: FromDump({0}) -> IPInput -> ", dir / "IN");
  run_beside(s, dir, marking(dir, 1), options, [&](Engine& engine) {
    const auto refused = [&](const std::string& text, const char* why) {
      auto next = load(text);
      ASSERT_NE(next, nullptr);
      const auto done = engine.swap(std::move(next));
      ASSERT_FALSE(done.ok()) << text;
      EXPECT_NE(to_string(done.error()).find(why), std::string::npos) << to_string(done.error());
    };
    refused(in + fmt::format("ToDump({});", dir / "no/such/folder"), "cannot be opened");
    refused(fmt::format("InfiniteSource(LIMIT 1) -> ToDump({});", dir / "IN"), "is the same file");
    refused(in + "Queue -> Unqueue -> Discard;", "only the packet scheduler can run this graph");
    refused(in + fmt::format("ToDump({}, SNAPLEN 40);", dir / "INOUT"), "in another way");
  });
  if (HasFatalFailure()) return;
  EXPECT_EQ(s.engine->swaps(), 0u);
  EXPECT_EQ(sent_to(dir / "INOUT").size(), s.written);
  auto late = s.engine->swap(load(marking(dir, 2)));
  ASSERT_FALSE(late.ok());
}

INSTANTIATE_TEST_SUITE_P(Workers, GraphSwap, ::testing::Values(1u, 3u));

}  // namespace
}  // namespace sluice
