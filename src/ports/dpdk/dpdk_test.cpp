#include "ports/dpdk/dpdk_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "batch/batch.h"
#include "batch/packet.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

Bytes frame_of(uint32_t bytes, uint32_t seed) {
  Bytes frame(bytes);
  for (uint32_t i = 0; i < bytes; ++i) frame[i] = static_cast<uint8_t>((seed * 2654435761U + i * 40503U) >> 7);
  return frame;
}

std::shared_ptr<FramePool> some_pool(uint32_t chunks = 4096, uint32_t stride = 2112) {
  FrameShape shape;
  shape.chunks = chunks;
  shape.stride = stride;
  auto pool = MappedFramePool::create(shape);
  EXPECT_TRUE(pool.ok());
  return *pool;
}

PortOptions named(std::string name) {
  PortOptions options;
  options.name = std::move(name);
  options.method = PortMethod::kDpdk;
  return options;
}

// A folder that goes away.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("sluice_dpdk_test_" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

// What `poll` gives, up to `most` frames.
struct Received {
  Batch batch = *Batch::create(1024, 0);
  uint32_t count = 0;

  Received(RxQueue& rx, uint32_t most, uint64_t now_ns = 1) { count = rx.poll(batch.rows(), most, now_ns); }
  uint8_t* frame(uint32_t i) { return batch.rows().frame[i]; }
  uint32_t bytes(uint32_t i) { return batch.rows().extent[i].end; }
  Bytes copy(uint32_t i) { return {frame(i), frame(i) + bytes(i)}; }
  void give(FramePool& pool) {
    pool.give({batch.rows().frame, count});
    count = 0;
  }
};

class Dpdk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_dpdk_module()) {
      GTEST_SKIP() << "the module for DPDK ports is not built here: apt-get install libdpdk-dev";
    }
  }

  std::unique_ptr<Port> open(const PortOptions& options, const std::shared_ptr<FramePool>& pool) {
    auto port = open_dpdk_port(options, pool);
    EXPECT_TRUE(port.ok()) << to_string(port.error());
    return port ? std::move(*port) : nullptr;
  }
  std::unique_ptr<Port> open(const std::string& name, const std::shared_ptr<FramePool>& pool) {
    return open(named(name), pool);
  }
  std::string error_of(const PortOptions& options) {
    auto port = open_dpdk_port(options, some_pool());
    return port ? "no error" : to_string(port.error());
  }
  std::string error_of(const std::string& name) { return error_of(named(name)); }
};

TEST(DpdkModule, WithoutItAnErrorSaysHowToBuildIt) {
  const auto port = open_dpdk_port(named("net_null0"), some_pool(), {"/nonexistent/libsluice_dpdk.so"});
  ASSERT_FALSE(port.ok());
  const std::string said = to_string(port.error());
  EXPECT_THAT(said, HasSubstr("/nonexistent/libsluice_dpdk.so"));
  EXPECT_THAT(said, HasSubstr("apt-get install libdpdk-dev; cmake --preset cpu -DSLUICE_DPDK=on"));
}

TEST(DpdkModule, OneThatTheLinkerRefusesIsAnErrorWithItsReason) {
  const Folder folder;
  std::ofstream(folder / "libsluice_dpdk.so") << "no library\n";
  const auto port = open_dpdk_port(named("net_null0"), some_pool(), {folder / "libsluice_dpdk.so"});
  ASSERT_FALSE(port.ok());
  EXPECT_THAT(to_string(port.error()), HasSubstr("libsluice_dpdk.so"));
  EXPECT_THAT(to_string(port.error()), HasSubstr("apt-get install"));
}

TEST(DpdkModule, AnotherLibraryIsRefused) {
  const auto port = open_dpdk_port(named("net_null0"), some_pool(), {"/lib/x86_64-linux-gnu/libc.so.6"});
  ASSERT_FALSE(port.ok());
  EXPECT_THAT(to_string(port.error()), HasSubstr("another build"));
}

TEST_F(Dpdk, ProcessorsAndSignalsStayTheCallers) {
  cpu_set_t before, after;
  CPU_ZERO(&before);
  CPU_ZERO(&after);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto port = open("net_null0", some_pool());
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
  // DPDK's own threads.
  unsigned found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line, name;
    while (std::getline(status, line)) {
      if (line.starts_with("Name:")) name = line.substr(6);
      if (!line.starts_with("SigBlk:") || name.find("eal-") == std::string::npos) continue;
      ++found;
      const uint64_t blocked = std::stoull(line.substr(8), nullptr, 16);
      EXPECT_NE(blocked & uint64_t{1} << (SIGTERM - 1), 0U) << name;
      EXPECT_NE(blocked & uint64_t{1} << (SIGINT - 1), 0U) << name;
    }
  }
  EXPECT_GT(found, 0U);
}

TEST_F(Dpdk, FramesOfAnySizeLieInChunksWithHeadRoom) {
  const auto asked = some_pool();
  FramePool* pool = nullptr;
  for (const uint32_t size : {60U, 61U, 64U, 127U, 128U, 129U, 512U, 1023U, 1500U, 1514U}) {
    const auto port = open("net_null0,size=" + std::to_string(size), asked);
    ASSERT_NE(port, nullptr);
    auto rx = port->open_rx(0);
    ASSERT_TRUE(rx.ok());
    pool = &(*rx)->pool();
    Received got(**rx, 200, 12345);
    ASSERT_EQ(got.count, 200U);
    const auto memory = pool->memory();
    for (uint32_t i = 0; i < got.count; ++i) {
      EXPECT_EQ(got.bytes(i), size);
      EXPECT_EQ(got.batch.rows().extent[i].data, 0);
      EXPECT_EQ(got.batch.rows().extent[i].wire_end, size);
      EXPECT_EQ(got.batch.rows().timestamp_ns[i], 12345U);
      const auto* frame = reinterpret_cast<std::byte*>(got.frame(i));
      EXPECT_GE(frame - kHeadroom, memory.data());
      EXPECT_LE(frame + size + kTailroom, memory.data() + memory.size());
      // A chunk's head and tail room are its own.
      std::memset(got.frame(i) - kHeadroom, 0xee, kHeadroom + size + kTailroom);
    }
    EXPECT_EQ(pool->out(), 200U);
    EXPECT_EQ((*rx)->counters().packets, 200U);
    EXPECT_EQ((*rx)->counters().bytes, 200U * size);
    got.give(*pool);
    EXPECT_EQ(pool->out(), 0U);
  }
  // Still there: frames may come back after their port was closed.
  EXPECT_EQ(pool->out(), 0U);
}

TEST_F(Dpdk, FactsSayWhatThePortIs) {
  PortOptions options = named("net_null3");
  options.queues = 3;
  options.promiscuous = true;
  const auto port = open(options, some_pool());
  ASSERT_NE(port, nullptr);
  const PortFacts facts = port->facts();
  EXPECT_EQ(facts.name, "net_null3");
  EXPECT_STREQ(facts.method, "dpdk");
  EXPECT_THAT(facts.mode, HasSubstr("net_null"));
  EXPECT_THAT(facts.mode, HasSubstr("huge pages"));
  EXPECT_EQ(facts.mtu, 1500U);
  EXPECT_EQ(facts.rx_queues, 3U);
  EXPECT_EQ(facts.tx_queues, 3U);
  EXPECT_EQ(facts.ifindex, 0);
  EXPECT_TRUE(facts.up);
}

TEST_F(Dpdk, PoolFindsChunksByAnyByteOfThem) {
  const auto asked = some_pool(1000);
  const auto port = open("net_null0", asked);
  ASSERT_NE(port, nullptr);
  auto rx = port->open_rx(0);
  ASSERT_TRUE(rx.ok());
  FramePool& pool = (*rx)->pool();
  const FrameShape shape = pool.shape();
  EXPECT_EQ(shape.chunks, 1000U);
  EXPECT_GE(shape.room(), asked->shape().room());
  EXPECT_EQ(shape.stride / 64 % 2, 1U);
  std::vector<uint8_t*> chunks(2000);
  for (uint32_t inside : {0U, 1U, shape.headroom, shape.headroom + shape.room() - 1, shape.stride - 1}) {
    ASSERT_EQ(pool.take(chunks), 1000U) << "with " << inside;
    EXPECT_EQ(pool.take(chunks), 0U);
    EXPECT_EQ(pool.out(), 1000U);
    std::vector<uint8_t*> sorted(chunks.begin(), chunks.begin() + 1000);
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 1; i < sorted.size(); ++i) ASSERT_GE(sorted[i] - sorted[i - 1], shape.stride);
    for (uint8_t*& chunk : sorted) chunk += inside;
    pool.give(sorted);
    EXPECT_EQ(pool.out(), 0U);
  }
}

TEST_F(Dpdk, RingBringsBackWhatWasSentCopiedOrInPlace) {
  const auto asked = some_pool();
  const auto port = open("net_ring0", asked);
  ASSERT_NE(port, nullptr);
  auto rx = port->open_rx(0);
  auto tx = port->open_tx(0);
  ASSERT_TRUE(rx.ok() && tx.ok());
  FramePool& pool = (*rx)->pool();
  EXPECT_EQ((*tx)->pool(), &pool);
  EXPECT_EQ((*rx)->wait_fd(), -1);
  uint64_t packets = 0;
  for (uint32_t size = 60; size <= 1514; size += 97) {
    std::vector<Bytes> sent;
    std::vector<TxFrame> frames;
    for (uint32_t i = 0; i < 100; ++i) sent.push_back(frame_of(size + i % 3, size + i));
    for (Bytes& frame : sent) frames.push_back({frame.data(), static_cast<uint32_t>(frame.size()), nullptr});
    ASSERT_EQ((*tx)->send(frames), 100U);
    (*tx)->flush();
    Received got(**rx, 1000);
    ASSERT_EQ(got.count, 100U);
    for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(got.copy(i), sent[i]);

    // The same frames where they lie: one loses its head, one is given more of it.
    frames.clear();
    for (uint32_t i = 0; i < 100; ++i) {
      uint8_t* begin = got.frame(i);
      uint32_t length = got.bytes(i);
      if (i % 3 == 1) begin += 4, length -= 4;
      if (i % 3 == 2) {
        begin -= 100, length += 100;
        std::memset(begin, static_cast<int>(i), 100);
      }
      frames.push_back({begin, length, &pool});
      sent[i].assign(begin, begin + length);
    }
    ASSERT_EQ((*tx)->send(frames), 100U);
    Received again(**rx, 1000);
    ASSERT_EQ(again.count, 100U);
    for (uint32_t i = 0; i < 100; ++i) {
      EXPECT_EQ(again.copy(i), sent[i]);
      // One without head room has it again: the ring gives what it was given.
      EXPECT_EQ(again.frame(i), i % 3 == 2 ? frames[i].data + 100 : frames[i].data) << "it was copied";
    }
    packets += 200;
    again.give(pool);
    EXPECT_EQ(pool.out(), 0U);
  }
  EXPECT_EQ((*rx)->counters().packets, packets);
  EXPECT_EQ((*tx)->counters().packets, packets);
  EXPECT_EQ((*tx)->counters().bytes, (*rx)->counters().bytes);
  EXPECT_EQ((*tx)->in_flight(), 0U);
  EXPECT_EQ(Received(**rx, 10).count, 0U);
  EXPECT_EQ((*rx)->state(), RxState::kIdle);
}

TEST_F(Dpdk, FullRingTakesTheFirstAndLeavesTheRest) {
  const auto asked = some_pool();
  auto port = open("net_ring0", asked);
  ASSERT_NE(port, nullptr);
  auto rx = port->open_rx(0);
  auto tx = port->open_tx(0);
  ASSERT_TRUE(rx.ok() && tx.ok());
  FramePool& pool = (*rx)->pool();
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place);
    std::vector<uint8_t*> chunks(2000);
    if (in_place) {
      ASSERT_EQ(pool.take(chunks), 2000U);
    }
    std::vector<Bytes> sent;
    std::vector<TxFrame> frames;
    for (uint32_t i = 0; i < 2000; ++i) {
      sent.push_back(frame_of(60 + i % 200, i));
      uint8_t* at = sent.back().data();
      if (in_place) at = static_cast<uint8_t*>(std::memcpy(chunks[i] + kHeadroom, at, sent.back().size()));
      frames.push_back({at, static_cast<uint32_t>(sent.back().size()), in_place ? &pool : nullptr});
    }
    const uint64_t full_before = (*tx)->counters().full;
    const uint32_t taken = (*tx)->send(frames);
    EXPECT_GT(taken, 500U);
    EXPECT_LT(taken, 2000U);
    EXPECT_EQ((*tx)->counters().full - full_before, 2000U - taken);
    // The ring's, and those that were not taken.
    EXPECT_EQ(pool.out(), in_place ? 2000U : taken);
    EXPECT_EQ((*tx)->send(std::span(frames).subspan(taken)), 0U);
    uint32_t seen = 0;
    while (seen < taken) {
      Received got(**rx, 333);
      ASSERT_GT(got.count, 0U);
      for (uint32_t i = 0; i < got.count; ++i) ASSERT_EQ(got.copy(i), sent[seen + i]);
      seen += got.count;
      got.give(pool);
    }
    EXPECT_EQ(seen, taken);
    if (in_place) pool.give(std::span(chunks).subspan(taken));
    EXPECT_EQ(pool.out(), 0U);
  }
  // What lies in the ring when the port is closed comes back too.
  Bytes frame = frame_of(60, 1);
  const std::vector<TxFrame> some(300, TxFrame{frame.data(), 60, nullptr});
  ASSERT_EQ((*tx)->send(some), 300U);
  EXPECT_EQ(pool.out(), 300U);
  rx->reset();
  tx->reset();
  port.reset();
  EXPECT_EQ(pool.out(), 0U);
}

TEST_F(Dpdk, FrameThatIsLargerThanTheMtuIsCountedAndTheOthersLeave) {
  const auto asked = some_pool();
  const auto port = open("net_ring0", asked);
  ASSERT_NE(port, nullptr);
  auto rx = port->open_rx(0);
  auto tx = port->open_tx(0);
  ASSERT_TRUE(rx.ok() && tx.ok());
  const uint32_t room = port->facts().mtu + 14 + 8;
  Bytes small = frame_of(60, 1), large = frame_of(room + 1, 2), fits = frame_of(room, 3);
  const std::vector<TxFrame> frames = {{small.data(), 60, nullptr},
                                       {large.data(), static_cast<uint32_t>(large.size()), nullptr},
                                       {small.data(), 0, nullptr},
                                       {fits.data(), static_cast<uint32_t>(fits.size()), nullptr}};
  EXPECT_EQ((*tx)->send(frames), 4U);
  EXPECT_EQ((*tx)->counters().failed, 2U);
  EXPECT_EQ((*tx)->counters().packets, 2U);
  Received got(**rx, 10);
  ASSERT_EQ(got.count, 2U);
  EXPECT_EQ(got.copy(0), small);
  EXPECT_EQ(got.copy(1), fits);
  got.give((*rx)->pool());
}

TEST_F(Dpdk, EmptyPoolReceivesNothingAndLosesNothing) {
  const auto asked = some_pool(512);
  const auto null_port = open("net_null0", asked);
  const auto ring_port = open("net_ring0", asked);
  ASSERT_TRUE(null_port && ring_port);
  auto rx = null_port->open_rx(0);
  auto tx = ring_port->open_tx(0);
  ASSERT_TRUE(rx.ok() && tx.ok());
  FramePool& pool = (*rx)->pool();
  EXPECT_EQ((*tx)->pool(), &pool) << "ports of one run share a pool";
  std::vector<uint8_t*> chunks(512);
  ASSERT_EQ(pool.take(chunks), 512U);
  EXPECT_EQ(Received(**rx, 64).count, 0U);
  EXPECT_EQ((*rx)->state(), RxState::kIdle);
  Bytes frame = frame_of(60, 1);
  EXPECT_EQ((*tx)->send({{TxFrame{frame.data(), 60, nullptr}}}), 0U);
  pool.give(chunks);
  EXPECT_EQ((*tx)->send({{TxFrame{frame.data(), 60, nullptr}}}), 1U);
}

TEST_F(Dpdk, CapturesComeAndGoByteForByte) {
  const Folder folder;
  std::vector<Bytes> written;
  {
    auto writer = CaptureWriter::create(folder / "in.pcap");
    ASSERT_TRUE(writer.ok());
    for (uint32_t size = 60; size <= 1514; ++size) {
      written.push_back(frame_of(size, size));
      writer->append({size, size, size * 1000ULL}, written.back().data());
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  const auto asked = some_pool();
  FramePool* pool = nullptr;
  for (int round = 0; round < 2; ++round) {
    auto port = open("net_pcap0,rx_pcap=" + (folder / "in.pcap") + ",tx_pcap=" + (folder / "out.pcap"), asked);
    ASSERT_NE(port, nullptr);
    auto rx = port->open_rx(0);
    auto tx = port->open_tx(0);
    ASSERT_TRUE(rx.ok() && tx.ok());
    pool = &(*rx)->pool();
    size_t seen = 0;
    while (true) {
      Received got(**rx, 256);
      if (got.count == 0) break;
      std::vector<TxFrame> frames;
      for (uint32_t i = 0; i < got.count; ++i, ++seen) {
        ASSERT_LT(seen, written.size());
        ASSERT_EQ(got.copy(i), written[seen]);
        frames.push_back({got.frame(i), got.bytes(i), pool});
      }
      ASSERT_EQ((*tx)->send(frames), got.count);
      (*tx)->flush();
    }
    EXPECT_EQ(seen, written.size());
    EXPECT_EQ((*tx)->counters().failed, 0U);
    rx->reset();
    tx->reset();
    port.reset();
    EXPECT_EQ(pool->out(), 0U);

    auto reader = CaptureReader::open(folder / "out.pcap");
    ASSERT_TRUE(reader.ok()) << to_string(reader.error());
    CapturedFrame frame;
    for (const Bytes& expected : written) {
      auto got = reader->next(frame);
      ASSERT_TRUE(got.ok() && *got);
      ASSERT_EQ(Bytes(frame.data, frame.data + frame.captured), expected);
    }
    EXPECT_FALSE(*reader->next(frame));
  }
}

TEST_F(Dpdk, LargeFramesNeedLargeChunks) {
  const Folder folder;
  const Bytes small = frame_of(100, 1), large = frame_of(9000, 2);
  {
    auto writer = CaptureWriter::create(folder / "in.pcap");
    ASSERT_TRUE(writer.ok());
    writer->append({9000, 9000, 0}, large.data());
    writer->append({100, 100, 0}, small.data());
    ASSERT_TRUE(writer->commit().ok());
  }
  for (const uint32_t stride : {2112U, 9536U}) {
    SCOPED_TRACE(stride);
    const auto port = open("net_pcap0,rx_pcap=" + (folder / "in.pcap"), some_pool(512, stride));
    ASSERT_NE(port, nullptr);
    auto rx = port->open_rx(0);
    ASSERT_TRUE(rx.ok());
    // One that came in several mbufs is counted and dropped.
    const bool fits = stride > 9000;
    Received got(**rx, 10);
    ASSERT_EQ(got.count, fits ? 2U : 1U);
    EXPECT_EQ(got.copy(got.count - 1), small);
    EXPECT_EQ(got.copy(0), fits ? large : small);
    EXPECT_EQ((*rx)->counters().too_long, fits ? 0U : 1U);
    EXPECT_EQ(port->facts().mtu, fits ? 9000U : 1500U);
    got.give((*rx)->pool());
    EXPECT_EQ((*rx)->pool().out(), 0U);
  }
}

TEST_F(Dpdk, QueuesAreTheirOwn) {
  const Folder folder;
  for (const char* name : {"a.pcap", "b.pcap"}) {
    auto writer = CaptureWriter::create(folder / name);
    ASSERT_TRUE(writer.ok());
    for (uint32_t i = 0; i < 10; ++i)
      writer->append({64, 64, 0}, frame_of(64, i + static_cast<uint32_t>(name[0])).data());
    ASSERT_TRUE(writer->commit().ok());
  }
  PortOptions options = named("net_pcap0,rx_pcap=" + (folder / "a.pcap") + ",rx_pcap=" + (folder / "b.pcap") +
                              ",tx_pcap=" + (folder / "c.pcap") + ",tx_pcap=" + (folder / "d.pcap"));
  options.queues = 2;
  const auto port = open(options, some_pool());
  ASSERT_NE(port, nullptr);
  auto first = port->open_rx(0);
  auto second = port->open_rx(1);
  ASSERT_TRUE(first.ok() && second.ok());
  const auto twice = port->open_rx(1);
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(to_string(twice.error()), HasSubstr("RX queue 1 is open already"));
  const auto beyond = port->open_tx(2);
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(to_string(beyond.error()), HasSubstr("no TX queue 2"));
  for (auto* rx : {&first, &second}) {
    Received got(***rx, 64);
    ASSERT_EQ(got.count, 10U);
    EXPECT_EQ(got.copy(9), frame_of(64, 9 + static_cast<uint32_t>(rx == &first ? 'a' : 'b')));
    EXPECT_EQ((**rx)->counters().packets, 10U);
    got.give((**rx)->pool());
  }
  second->reset();
  EXPECT_TRUE(port->open_rx(1).ok()) << "a queue that was given back is there again";
}

TEST_F(Dpdk, ThreadsThatEndLeaveNoChunkBehind) {
  const auto asked = some_pool(2048);
  const auto port = open("net_null0", asked);
  ASSERT_NE(port, nullptr);
  auto rx = port->open_rx(0);
  ASSERT_TRUE(rx.ok());
  FramePool& pool = (*rx)->pool();
  for (int round = 0; round < 20; ++round) {
    // Frames that one thread receives come back by another.
    Received got(**rx, 500);
    ASSERT_EQ(got.count, 500U);
    std::thread([&] { got.give(pool); }).join();
  }
  EXPECT_EQ(pool.out(), 0U);
  std::vector<uint8_t*> chunks(2048);
  EXPECT_EQ(pool.take(chunks), 2048U);
  pool.give(chunks);
}

TEST_F(Dpdk, FramesMayComeBackAfterTheirPortWasClosed) {
  const auto asked = some_pool();
  auto port = open("net_null0", asked);
  ASSERT_NE(port, nullptr);
  auto rx = port->open_rx(0);
  ASSERT_TRUE(rx.ok());
  FramePool& pool = (*rx)->pool();
  Received got(**rx, 100);
  rx->reset();
  port.reset();
  EXPECT_EQ(pool.out(), 100U);
  got.give(pool);
  EXPECT_EQ(pool.out(), 0U);
}

TEST_F(Dpdk, ForkedProcessIsToldThatDpdkIsItsParents) {
  const auto port = open("net_null0", some_pool());
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = error_of("net_ring0").find("forked") != std::string::npos;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Dpdk, SaysWhyADeviceCannotBeOpened) {
  EXPECT_THAT(error_of(""), HasSubstr("names no DPDK port"));
  EXPECT_THAT(error_of("eth0"), HasSubstr("'eth0' names no DPDK port"));
  EXPECT_THAT(error_of("eth0"), HasSubstr("net_af_packet0,iface=eth0"));
  EXPECT_THAT(error_of("net_foo0"), HasSubstr("DPDK opens no port 'net_foo0'"));
  EXPECT_THAT(error_of("net_foo0"), HasSubstr("apt-get install librte-meta-net"));
  EXPECT_THAT(error_of("4711"), HasSubstr("no DPDK port 4711"));
  EXPECT_THAT(error_of("0000:ff:1f.7"), HasSubstr("no PCI device 0000:ff:1f.7 here"));
  EXPECT_THAT(error_of("net_pcap0,rx_pcap=/nonexistent/in.pcap"), HasSubstr("/nonexistent/in.pcap"));
  EXPECT_THAT(error_of("net_null0,sizes=64"), HasSubstr("net_null0"));
  PortOptions options = named("net_ring0");
  options.queues = 5000;
  EXPECT_THAT(error_of(options), HasSubstr("5000 queues, but driver net_ring has"));
  options.queues = 0;
  EXPECT_THAT(error_of(options), HasSubstr("0 queues"));
  options.queues = 1;
  options.rx_ring = 100'000;
  EXPECT_THAT(error_of(options), HasSubstr("a ring of 100000 RX descriptors"));
  options.rx_ring = 4096;
  EXPECT_THAT(error_of(options), HasSubstr("1 RX queues of 4096 descriptors take 4096 of the pool's 4096 frames"));
  const auto large = open_dpdk_port(named("net_null0"), some_pool(16, 70'080));
  ASSERT_FALSE(large.ok());
  EXPECT_THAT(to_string(large.error()), HasSubstr("DPDK takes no pool of 16 frames"));

  // And none of it is left.
  const auto port = open("net_null0", some_pool());
  ASSERT_NE(port, nullptr);
  EXPECT_THAT(error_of("net_null0,size=128"), HasSubstr("net_null0 is open already"));
  EXPECT_NE(open("net_ring0", some_pool()), nullptr);
}

}  // namespace
}  // namespace sluice
