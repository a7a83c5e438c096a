// What is AF_XDP's own; what all methods have in common is in live_port_test.cpp.
#include "ports/methods.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/if_link.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "net/bytes.h"
#include "ports/af_xdp/program.h"
#include "ports/testing/net_namespace.h"
#include "ports/testing/two_hosts.h"

namespace sluice {
namespace {

using testing::kPatience;
using testing::NetNamespace;
using testing::Wire;
using Bytes = Wire::Bytes;
using ::testing::HasSubstr;

Bytes numbered(uint32_t number, size_t bytes = 100) {
  Bytes frame(bytes, static_cast<uint8_t>(number));
  const uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
  std::copy(std::begin(head), std::end(head), frame.begin());
  store_be32(frame.data() + 14, number);
  return frame;
}

// ARP's question for 192.0.2.2, or an ICMP echo to it; from 192.0.2.1.
Bytes arp_question() {
  Bytes f{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,   0, 0, 0, 1, 8, 6, 0, 1, 8, 0,   6, 4, 0,
          1,    2,    0,    0,    0,    0,    1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2};
  f.resize(60);
  return f;
}
Bytes echo() {
  Bytes f{2,  0, 0, 0, 0, 2,  2, 0, 0, 0,   0, 1, 8, 0,   0x45, 0, 0,
          28, 0, 1, 0, 0, 64, 1, 0, 0, 192, 0, 2, 1, 192, 0,    2, 2};
  f.insert(f.end(), {8, 0, 0xf7, 0xff, 0, 0, 0, 0});
  uint32_t sum = 0;
  for (size_t i = 14; i < 34; i += 2) sum += load_be16(f.data() + i);
  store_be16(f.data() + 24, static_cast<uint16_t>(~(sum + (sum >> 16))));
  f.resize(60);
  return f;
}

// Interfaces near0, near1 in `here_`, each with its end far0, far1 in `there_`.
class AfXdp : public testing::TwoHosts<::testing::TestWithParam<PortOptions::XdpMode>> {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (!ready()) return;
    cable("near0", "far0");
    cable("near1", "far1");
    auto pool = MappedFramePool::create({});
    ASSERT_TRUE(pool.ok());
    pool_ = *pool;
  }
  void TearDown() override {
    if (pool_) {
      EXPECT_EQ(pool_->out(), 0u) << "frames that nobody gave back";
    }
  }

  static PortOptions options(const std::string& name) {
    PortOptions options;
    options.name = name;
    options.xdp_mode = GetParam();
    return options;
  }
  Result<std::unique_ptr<Port>> try_open(const PortOptions& wanted) {
    const auto inside = here_->enter();
    return open_af_xdp(wanted, pool_);
  }
  std::unique_ptr<Port> open(const PortOptions& wanted) {
    auto port = try_open(wanted);
    if (!port) {
      ADD_FAILURE() << to_string(port.error());
      return nullptr;
    }
    return std::move(*port);
  }
  static std::unique_ptr<RxQueue> rx_of(Port& port, unsigned queue = 0) {
    auto rx = port.open_rx(queue);
    EXPECT_TRUE(rx.ok());
    return std::move(*rx);
  }
  static std::unique_ptr<TxQueue> tx_of(Port& port, unsigned queue = 0) {
    auto tx = port.open_tx(queue);
    EXPECT_TRUE(tx.ok());
    return std::move(*tx);
  }
  // Polls until `n` frames have come; they are the caller's.
  static std::vector<TxFrame> receive(RxQueue& rx, size_t n) {
    std::vector<TxFrame> got;
    uint8_t* frame[64];
    Extent extent[64];
    uint64_t time[64];
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (got.size() < n && std::chrono::steady_clock::now() < end) {
      const uint32_t came = rx.poll({frame, extent, time}, 64, now_ns());
      for (uint32_t i = 0; i < came; ++i) got.push_back({frame[i], extent[i].end, &rx.pool()});
      if (came == 0) std::this_thread::yield();
    }
    EXPECT_EQ(got.size(), n);
    return got;
  }
  static void give(RxQueue& rx, const std::vector<TxFrame>& frames) {
    for (const TxFrame& f : frames) rx.pool().give(std::array{f.data});
  }
  static void settle(TxQueue& tx) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (tx.in_flight() != 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_EQ(tx.in_flight(), 0u);
  }
  void expect_works(Port& port, const std::string& other) {
    auto rx = rx_of(port);
    auto tx = tx_of(port);
    Wire there = wire(other);
    ASSERT_TRUE(there.send(numbered(7)));
    const auto got = receive(*rx, 1);
    ASSERT_EQ(got.size(), 1u);
    ASSERT_EQ(tx->send(got), 1u);
    tx->flush();
    EXPECT_EQ(there.receive(), numbered(7));
    settle(*tx);
  }
  // Runs `what` in a process of its own, which is killed when it says that it is ready.
  void killed_while(const std::function<bool()>& what) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      const bool done = what();
      if (write(ready[1], done ? "+" : "-", 1) == 1) pause();
      _exit(1);
    }
    ASSERT_GT(child, 0);
    char said = 0;
    EXPECT_EQ(read(ready[0], &said, 1), 1);
    EXPECT_EQ(said, '+');
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    close(ready[0]);
    close(ready[1]);
  }
  uint32_t attached(const char* name) {
    const auto inside = here_->enter();
    uint32_t id = 0;
    EXPECT_EQ(bpf_xdp_query_id(static_cast<int>(if_nametoindex(name)), 0, &id), 0);
    return id;
  }

  std::shared_ptr<MappedFramePool> pool_;
};

TEST_P(AfXdp, SaysWhatItWasGranted) {
  auto port = open(options("near0"));
  ASSERT_NE(port, nullptr);
  EXPECT_EQ(port->facts().mode, GetParam() == PortOptions::XdpMode::kGeneric ? "generic, copy" : "native, copy");
  EXPECT_NE(attached("near0"), 0u);
  port.reset();
  EXPECT_EQ(attached("near0"), 0u);
}

TEST_P(AfXdp, ForwardsFramesWhereTheyLie) {
  auto port0 = open(options("near0")), port1 = open(options("near1"));
  ASSERT_TRUE(port0 && port1);
  Wire from = wire("far0"), to = wire("far1");
  auto rx = rx_of(*port0);
  auto tx = tx_of(*port1);
  ASSERT_EQ(tx->pool(), pool_.get());
  ASSERT_EQ(&rx->pool(), pool_.get());
  const auto memory = pool_->memory();
  for (uint32_t bytes = 60; bytes <= 1514; ++bytes) {
    ASSERT_TRUE(from.send(numbered(bytes, bytes)));
    auto got = receive(*rx, 1);
    ASSERT_EQ(got.size(), 1u);
    const auto offset = got[0].data - reinterpret_cast<uint8_t*>(memory.data());
    ASSERT_EQ(offset % pool_->shape().stride, pool_->shape().headroom);
    const uint64_t out = pool_->out();
    // A header goes in front of it: the frame begins elsewhere in its chunk. Not a chunk more is taken.
    got[0].data -= 4;
    std::memmove(got[0].data, got[0].data + 4, 12);
    std::memcpy(got[0].data + 12, "\x81\x00\x00\x07", 4);
    got[0].bytes += 4;
    ASSERT_EQ(tx->send(got), 1u);
    ASSERT_LE(pool_->out(), out);
    tx->flush();
    Bytes expected = numbered(bytes, bytes);
    expected.insert(expected.begin() + 12, {0x81, 0, 0, 7});
    ASSERT_EQ(to.receive(), expected);
  }
  settle(*tx);
}

TEST_P(AfXdp, FramesThatCannotBeSentAreFailed) {
  auto port = open(options("near0"));
  ASSERT_NE(port, nullptr);
  auto tx = tx_of(*port);
  Wire to = wire("far0");
  Bytes runt(13), large(3000), right = numbered(1);
  uint8_t* chunk = nullptr;
  ASSERT_EQ(pool_->take({&chunk, 1}), 1u);
  const std::vector<TxFrame> frames{{runt.data(), 13, nullptr},
                                    {large.data(), 3000, nullptr},
                                    {chunk + 256, 0, pool_.get()},
                                    {right.data(), 100, nullptr}};
  ASSERT_EQ(tx->send(frames), 4u);
  tx->flush();
  EXPECT_EQ(to.receive(), right);
  settle(*tx);
  EXPECT_EQ(tx->counters().failed, 3u);
  EXPECT_EQ(tx->counters().packets, 1u);
  EXPECT_EQ(pool_->out(), 0u);
}

TEST_P(AfXdp, TheKernelAnswersForItsAddresses) {
  run("ip link set near0 address 02:00:00:00:00:02 && ip addr add 192.0.2.2/24 dev near0 label near0:a"
      " && ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev near0");
  auto port = open(options("near0"));
  ASSERT_NE(port, nullptr);
  auto rx = rx_of(*port);
  Wire far = wire("far0");
  ASSERT_TRUE(far.send(arp_question()));
  auto answer = far.receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(load_be16(answer->data() + 20), 2) << "ARP's answer";
  ASSERT_TRUE(far.send(echo()));
  answer = far.receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ((*answer)[34], 0) << "the echo's answer";
  // Addresses come and go.
  run("ip addr del 192.0.2.2/24 dev near0");
  {
    const auto inside = here_->enter();
    ASSERT_TRUE(port->addresses_changed().ok());
  }
  ASSERT_TRUE(far.send(echo()));
  const auto got = receive(*rx, 1);
  EXPECT_EQ(Bytes(got[0].data, got[0].data + got[0].bytes), echo());
  give(*rx, got);
}

TEST_P(AfXdp, ANeighbourOfAKilledRunStartsAtOnce) {
  killed_while([&] {
    auto port = try_open(options("near0"));
    return port.ok() && port->release()->open_rx(0).value().release() != nullptr;
  });
  auto port = open(options("near0"));
  ASSERT_NE(port, nullptr);
  expect_works(*port, "far0");
}

TEST_P(AfXdp, ReplacesTheProgramOfAKilledRunWithoutBpfLinks) {
  killed_while([&] {
    const auto inside = here_->enter();
    auto program = XdpProgram::load(1, true);
    static std::optional<XdpProgram> kept;
    kept.emplace(std::move(*program));
    return kept
        ->attach(
            "near0", static_cast<int>(if_nametoindex("near0")), GetParam(), [](int) { return true; },
            XdpProgram::By::kNetlink)
        .ok();
  });
  const uint32_t left = attached("near0");
  ASSERT_NE(left, 0u);
  auto port = open(options("near0"));
  ASSERT_NE(port, nullptr);
  EXPECT_NE(attached("near0"), left);
  expect_works(*port, "far0");
  port.reset();
  EXPECT_EQ(attached("near0"), 0u);
}

TEST_P(AfXdp, AProgramAttachedByNetlinkGoesWithItsRunAndIsNotTakenFromIt) {
  const auto inside = here_->enter();
  const int ifindex = static_cast<int>(if_nametoindex("near0"));
  {
    auto program = XdpProgram::load(1, true);
    ASSERT_TRUE(program.ok());
    ASSERT_TRUE(program
                    ->attach(
                        "near0", ifindex, GetParam(), [](int) { return true; }, XdpProgram::By::kNetlink)
                    .ok());
    EXPECT_NE(attached("near0"), 0u);
    // While somebody has a socket there.
    auto second = XdpProgram::load(1, true);
    ASSERT_TRUE(second.ok());
    auto refused = second->attach("near0", ifindex, GetParam(), [](int) { return false; });
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(to_string(refused.error()), HasSubstr("another run"));
  }
  EXPECT_EQ(attached("near0"), 0u);
}

TEST_P(AfXdp, AnotherProgramIsNamedAndStays) {
  const bpf_insn pass[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = XDP_PASS},
                           {.code = BPF_JMP | BPF_EXIT}};
  const FileDescriptor program(bpf_prog_load(BPF_PROG_TYPE_XDP, "their_filter", "GPL", pass, 2, nullptr));
  ASSERT_TRUE(program);
  {
    const auto inside = here_->enter();
    ASSERT_EQ(bpf_xdp_attach(static_cast<int>(if_nametoindex("near0")), program.get(), XDP_FLAGS_SKB_MODE, nullptr), 0);
  }
  const uint32_t theirs = attached("near0");
  auto port = try_open(options("near0"));
  ASSERT_FALSE(port.ok());
  EXPECT_THAT(to_string(port.error()), HasSubstr("their_filter"));
  EXPECT_EQ(attached("near0"), theirs);
  // To send, none is needed.
  PortOptions sends = options("near0");
  sends.receives = false;
  auto sender = open(sends);
  ASSERT_NE(sender, nullptr);
  EXPECT_EQ(sender->facts().mode, "copy");
  auto tx = tx_of(*sender);
  Wire far = wire("far0");
  Bytes frame = numbered(3);
  const TxFrame out{frame.data(), 100, nullptr};
  ASSERT_EQ(tx->send({&out, 1}), 1u);
  tx->flush();
  EXPECT_EQ(far.receive(), frame);
  settle(*tx);
  EXPECT_EQ(attached("near0"), theirs);
}

TEST_P(AfXdp, ASecondRunOnTheSameInterfaceIsRefused) {
  auto port = open(options("near0"));
  ASSERT_NE(port, nullptr);
  auto second = try_open(options("near0"));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(to_string(second.error()), HasSubstr("near0: another run"));
  PortOptions sends = options("near0");
  sends.receives = false;
  second = try_open(sends);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(to_string(second.error()), HasSubstr("queue 0 is in use"));
  expect_works(*port, "far0");
}

// The others go on without the one whose socket was the first of the UMEM, and new ones join them.
TEST_P(AfXdp, PortsComeAndGoInAnyOrder) {
  auto first = open(options("near0")), second = open(options("near1"));
  ASSERT_TRUE(first && second);
  first.reset();
  expect_works(*second, "far1");
  first = open(options("near0"));
  ASSERT_NE(first, nullptr);
  expect_works(*first, "far0");
  run("ip link del near1");
  expect_works(*first, "far0");
  second.reset();
  cable("near1", "far1");
  second = open(options("near1"));
  ASSERT_NE(second, nullptr);
  expect_works(*second, "far1");
  expect_works(*first, "far0");
}

TEST_P(AfXdp, AnInterfaceThatGoesLeavesNoChunkBehind) {
  auto port = open(options("near0"));
  ASSERT_NE(port, nullptr);
  auto rx = rx_of(*port);
  auto tx = tx_of(*port);
  run("ip link set near0 down");
  std::vector<Bytes> frames(100, numbered(1));
  std::vector<TxFrame> out;
  for (Bytes& f : frames) out.push_back({f.data(), 100, nullptr});
  ASSERT_EQ(tx->send(out), 100u);
  tx->flush();
  EXPECT_EQ(tx->in_flight(), 100u) << "a link that is down keeps them for later";
  run("ip link del near0");
  EXPECT_EQ(tx->in_flight(), 0u);
  EXPECT_EQ(tx->counters().failed, 100u);
  EXPECT_EQ(tx->counters().packets, 0u);
  EXPECT_EQ(tx->counters().bytes, 0u);
  ASSERT_EQ(tx->send(out), 100u);
  tx->flush();
  EXPECT_EQ(tx->counters().failed, 200u);
}

TEST_P(AfXdp, AskedForMoreQueuesThanThereAreItSaysSo) {
  PortOptions many = options("near0");
  many.queues = 2;
  auto port = try_open(many);
  ASSERT_FALSE(port.ok());
  EXPECT_THAT(to_string(port.error()), HasSubstr("queue 1"));
  EXPECT_THAT(to_string(port.error()), HasSubstr("ethtool -L near0"));
  many.queues = 1;
  many.rx_ring = 1000;
  port = try_open(many);
  ASSERT_FALSE(port.ok());
  EXPECT_THAT(to_string(port.error()), HasSubstr("RX ring of 1000"));
}

// What opening says in a process of its own, with these capabilities and this much memory that may be locked.
class Confined {
 public:
  static std::string open(const NetNamespace& place, const PortOptions& options, const std::shared_ptr<FramePool>& pool,
                          const std::vector<unsigned>& capabilities, rlim_t locked_bytes) {
    int said[2];
    if (pipe(said) != 0) return "pipe";
    const pid_t child = fork();
    if (child == 0) {
      const auto inside = place.enter();
      const rlimit limit{locked_bytes, locked_bytes};
      __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct kept[2]{};
      for (const unsigned one : capabilities) kept[one / 32].effective |= 1u << one % 32;
      for (auto& half : kept) half.permitted = half.effective;
      std::string text = "capabilities and limits are kept";
      if (setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && syscall(SYS_capset, &header, kept) == 0) {
        auto port = open_af_xdp(options, pool);
        text = port ? "opened" : to_string(port.error());
      }
      _exit(write(said[1], text.data(), text.size()) < 0);
    }
    close(said[1]);
    std::string text(4096, '\0');
    const ssize_t n = read(said[0], text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    close(said[0]);
    waitpid(child, nullptr, 0);
    return text;
  }
};

constexpr rlim_t kEightMiB = 8 << 20;

TEST_P(AfXdp, TheCapabilitiesThatItNamesAreEnough) {
  auto small = MappedFramePool::create({.chunks = 512});
  ASSERT_TRUE(small.ok());
  const std::vector<unsigned> all{CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF};
  EXPECT_EQ(Confined::open(*here_, options("near0"), *small, all, kEightMiB), "opened");
  for (const unsigned without : all) {
    std::vector<unsigned> some = all;
    std::erase(some, without);
    EXPECT_THAT(Confined::open(*here_, options("near0"), *small, some, kEightMiB),
                HasSubstr("cap_net_admin,cap_net_raw,cap_bpf+ep"))
        << "without capability " << without;
  }
}

TEST_P(AfXdp, MemoryThatMayNotBeLockedIsAnErrorWithTheLimit) {
  EXPECT_THAT(Confined::open(*here_, options("near0"), pool_, {CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF}, kEightMiB),
              HasSubstr("ulimit -l unlimited"));
  EXPECT_EQ(attached("near0"), 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, AfXdp, ::testing::Values(PortOptions::XdpMode::kNative, PortOptions::XdpMode::kGeneric),
                         [](const auto& mode) {
                           return mode.param == PortOptions::XdpMode::kNative ? "native" : "generic";
                         });

}  // namespace
}  // namespace sluice
