// Every method of live ports says and does the same: frames arrive whole, in order and accounted, whatever becomes of
// the link. A method joins by a line in `kWays`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "memory/frame_pool.h"
#include "net/bytes.h"
#include "net/checksum.h"
#include "net/packet_builder.h"
#include "net/parse.h"
#include "ports/dpdk/dpdk_port.h"
#include "ports/interface.h"
#include "ports/port.h"
#include "ports/testing/net_namespace.h"

#ifdef SLUICE_SANITIZED_THREADS
// DPDK's TAP driver closes the descriptor of its link messages while its interrupt thread may be reading it: theirs.
extern "C" const char* __tsan_default_suppressions() {
  return "race:librte_net_tap\n";
}
#endif

namespace sluice {
namespace {

using testing::kPatience;
using testing::NetNamespace;
using testing::Wire;
using Bytes = Wire::Bytes;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// In messages instead of its bytes.
struct Way;
void PrintTo(const Way& way, std::ostream* out);

// How a method is tested: the interface `port` is opened in the namespace `here`, and its frames are seen at `other`.
struct Way {
  const char* name;
  PortMethod method;
  const char* port = "near";
  // An end of a veth pair in the namespace `there`; for a port that makes its own interface, that interface.
  const char* other = "far";
  // What opens the port, where that is not the interface's name.
  const char* device = nullptr;
  bool makes_interface = false;
  unsigned most_queues = 4;
  bool rings = true;  // whose sizes can be asked for
  bool cuts = true;   // what a sender on this machine leaves to be cut comes in pieces
  PortOptions::XdpMode xdp_mode = PortOptions::XdpMode::kAuto;
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

// A method that makes the interface `name`.
constexpr Way makes(const char* method, PortMethod by, const char* name) {
  return {.name = method, .method = by, .port = name, .other = name, .makes_interface = true, .rings = false};
}

constexpr Way kWays[] = {
    {.name = "af_packet", .method = PortMethod::kAfPacket},
#if SLUICE_WITH_AF_XDP
    {.name = "af_xdp_native", .method = PortMethod::kAfXdp, .xdp_mode = PortOptions::XdpMode::kNative},
    {.name = "af_xdp_generic", .method = PortMethod::kAfXdp, .cuts = false, .xdp_mode = PortOptions::XdpMode::kGeneric},
#endif
    {.name = "dpdk",
     .method = PortMethod::kDpdk,
     .other = "near",
     .device = "net_tap0,iface=near",
     .makes_interface = true},
    makes("tap", PortMethod::kTap, "tap7"),
    {.name = "pcap", .method = PortMethod::kPcap, .most_queues = 1, .cuts = false},
};

// A frame of `bytes` with a number that no other frame has: Ethernet with a type for experiments.
Bytes numbered(uint32_t number, size_t bytes) {
  Bytes frame(std::max<size_t>(bytes, 18));
  for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<uint8_t>(number * 31 + i * 7);
  const uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
  std::copy(std::begin(head), std::end(head), frame.begin());
  store_be32(frame.data() + 14, number);
  return frame;
}

// A UDP frame of `flow`, with `number` in its payload.
Bytes udp_frame(uint16_t flow, uint32_t number) {
  Bytes payload(20);
  store_be32(payload.data(), number);
  return udp4("192.0.2.1", "192.0.2.2").ports(static_cast<uint16_t>(1024 + flow), 9).payload(payload).build();
}

class LivePort : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!NetNamespace::why_none().empty()) GTEST_SKIP() << "no network namespaces here: " << NetNamespace::why_none();
    if (GetParam().method == PortMethod::kDpdk && !has_dpdk_module()) {
      GTEST_SKIP() << "the module for DPDK ports is not built here: apt-get install libdpdk-dev";
    }
    make_pool({.chunks = 4096});
  }
  void TearDown() override {
    close_port();
    if (pool_ != nullptr) {
      EXPECT_EQ(pool_->out(), 0u) << "frames that nobody gave back";
    }
  }

  void make_pool(const FrameShape& shape) {
    auto pool = MappedFramePool::create(shape);
    ASSERT_TRUE(pool.ok());
    pool_ = *pool;
  }

  // The namespaces with their cable.
  void lay_cable(unsigned queues = 1) {
    for (auto* place : {&here_, &there_}) {
      auto made = NetNamespace::create();
      ASSERT_TRUE(made.ok()) << to_string(made.error());
      *place = std::make_unique<NetNamespace>(std::move(*made));
    }
    if (GetParam().makes_interface) return;
    auto cable = NetNamespace::veth(*here_, GetParam().port, *there_, GetParam().other, queues);
    ASSERT_TRUE(cable.ok()) << to_string(cable.error());
  }
  const NetNamespace& other_place() const { return GetParam().makes_interface ? *here_ : *there_; }

  PortOptions options() const {
    PortOptions options;
    options.name = GetParam().device == nullptr ? GetParam().port : GetParam().device;
    options.method = GetParam().method;
    options.xdp_mode = GetParam().xdp_mode;
    return options;
  }
  Result<std::unique_ptr<Port>> try_open(const PortOptions& wanted) const {
    const auto inside = here_->enter();
    return open_port(wanted, pool_);
  }
  // The port, its queues and the wire to it.
  void open(PortOptions wanted) {
    if (here_ == nullptr) lay_cable(wanted.queues);
    if (HasFatalFailure()) return;
    auto port = try_open(wanted);
    ASSERT_TRUE(port.ok()) << to_string(port.error());
    port_ = std::move(*port);
    for (unsigned i = 0; i < wanted.queues; ++i) {
      if (wanted.receives) {
        auto rx = port_->open_rx(i);
        ASSERT_TRUE(rx.ok()) << to_string(rx.error());
        rx_.push_back(std::move(*rx));
      }
      if (wanted.sends) {
        auto tx = port_->open_tx(i);
        ASSERT_TRUE(tx.ok()) << to_string(tx.error());
        tx_.push_back(std::move(*tx));
      }
    }
    auto wire = Wire::open(other_place(), GetParam().other);
    ASSERT_TRUE(wire.ok()) << to_string(wire.error());
    wire_ = std::make_unique<Wire>(std::move(*wire));
  }
  void open() { open(options()); }
  void close_port() {
    rx_.clear();
    tx_.clear();
    port_.reset();
  }

  // What one poll gives, frames given back.
  std::vector<Bytes> poll_once(RxQueue& queue, uint32_t most = 32) {
    std::vector<uint8_t*> frames(most);
    std::vector<Extent> extents(most);
    std::vector<uint64_t> times(most);
    const uint32_t n = queue.poll({frames.data(), extents.data(), times.data()}, most, 12'345);
    EXPECT_LE(n, most);
    const bool hardware_timestamps = n != 0 && port_->facts().hardware_timestamps;
    std::vector<Bytes> got;
    for (uint32_t i = 0; i < n; ++i) {
      EXPECT_EQ(extents[i].data, 0);
      EXPECT_EQ(extents[i].end, extents[i].wire_end);
      if (!hardware_timestamps) {
        EXPECT_EQ(times[i], 12'345u);
      }
      got.emplace_back(frames[i], frames[i] + extents[i].end);
      // Both rooms are the caller's.
      std::memset(frames[i] - kHeadroom, 0xee, kHeadroom);
      std::memset(frames[i] + extents[i].end, 0xee, kTailroom);
    }
    queue.pool().give({frames.data(), n});
    return got;
  }
  std::vector<Bytes> receive(RxQueue& queue, size_t count) {
    std::vector<Bytes> got;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (got.size() < count && std::chrono::steady_clock::now() < end) {
      const auto more = poll_once(queue, static_cast<uint32_t>(std::min<size_t>(32, count - got.size())));
      if (more.empty()) std::this_thread::yield();
      got.insert(got.end(), more.begin(), more.end());
    }
    return got;
  }
  std::vector<Bytes> from_wire(size_t count) {
    std::vector<Bytes> got;
    while (got.size() < count) {
      auto frame = wire_->receive(kPatience);
      if (!frame) break;
      got.push_back(std::move(*frame));
    }
    return got;
  }

  // Sends frames in chunks of the pool, with patience where the ring is full.
  void send_from_pool(TxQueue& queue, const std::vector<Bytes>& frames) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    std::vector<uint8_t*> chunks;
    size_t at = 0;
    while (at < frames.size()) {
      const size_t n = std::min<size_t>(32, frames.size() - at);
      chunks.resize(n);
      while (pool_->take(chunks) != n) {
        FAIL() << "the pool is empty";
      }
      std::vector<TxFrame> out;
      for (size_t i = 0; i < n; ++i) {
        uint8_t* data = chunks[i] + pool_->shape().headroom;
        std::copy(frames[at + i].begin(), frames[at + i].end(), data);
        out.push_back({data, static_cast<uint32_t>(frames[at + i].size()), pool_.get()});
      }
      std::span<const TxFrame> left = out;
      while (!left.empty()) {
        const uint32_t taken = queue.send(left);
        queue.flush();
        if (queue.pool() != pool_.get()) {
          for (const TxFrame& f : left.first(taken)) pool_->give(std::array{f.data});
        }
        left = left.subspan(taken);
        if (taken == 0) queue.in_flight();
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "the ring stays full";
      }
      at += n;
    }
  }
  void settle(TxQueue& queue) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (queue.in_flight() != 0 && std::chrono::steady_clock::now() < end) {
      queue.flush();
      std::this_thread::yield();
    }
    EXPECT_EQ(queue.in_flight(), 0u);
  }
  // Until `state` says so after a poll that gave nothing.
  RxState wait_for(RxQueue& queue, RxState wanted) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    RxState state = RxState::kFrames;
    while (std::chrono::steady_clock::now() < end) {
      if (!poll_once(queue).empty()) continue;
      state = queue.state();
      if (state == wanted) break;
      std::this_thread::yield();
    }
    return state;
  }
  void in(const NetNamespace& place, const std::string& command) {
    auto done = place.run(command);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }

  // Frames that the kernel itself could not bring to the port: the receiving interface's, and a TAP's queue's.
  uint64_t interface_counter(const char* what) const {
    uint64_t sum = 0;
    auto text = here_->run(std::string("ip -j -s link show dev ") + GetParam().port);
    if (!text) return 0;
    const auto stats = nlohmann::json::parse(*text)[0]["stats64"];
    for (const char* side : {"rx", "tx"}) sum += stats[side][what].get<uint64_t>();
    return sum;
  }

  std::shared_ptr<MappedFramePool> pool_;
  std::unique_ptr<NetNamespace> here_, there_;
  std::unique_ptr<Port> port_;
  std::vector<std::unique_ptr<RxQueue>> rx_;
  std::vector<std::unique_ptr<TxQueue>> tx_;
  std::unique_ptr<Wire> wire_;
};

TEST_P(LivePort, FramesOfEverySizeArriveInOrderAndUnchanged) {
  open();
  std::vector<Bytes> sent;
  for (uint32_t bytes = 60; bytes <= 1514; ++bytes) sent.push_back(numbered(bytes, bytes));
  for (size_t at = 0; at < sent.size();) {
    const size_t n = std::min<size_t>(100, sent.size() - at);
    for (size_t i = 0; i < n; ++i) ASSERT_TRUE(wire_->send(sent[at + i]));
    const auto got = receive(*rx_[0], n);
    ASSERT_EQ(got.size(), n);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], sent[at + i]) << sent[at + i].size() << " bytes";
    at += n;
  }
  const RxCounters counters = rx_[0]->counters();
  EXPECT_EQ(counters.packets, sent.size());
  EXPECT_EQ(counters.bytes, (60u + 1514) * sent.size() / 2);
  EXPECT_EQ(counters.missed, 0u);
  EXPECT_EQ(counters.invalid, 0u);
}

TEST_P(LivePort, FramesOfThePoolOfEverySizeLeaveInOrderAndUnchanged) {
  open();
  std::vector<Bytes> sent;
  uint64_t bytes_sent = 0;
  for (uint32_t bytes = 60; bytes <= 1514; ++bytes) {
    sent.push_back(numbered(bytes, bytes));
    bytes_sent += bytes;
  }
  send_from_pool(*tx_[0], sent);
  const auto got = from_wire(sent.size());
  settle(*tx_[0]);
  ASSERT_EQ(got.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) ASSERT_EQ(got[i], sent[i]) << sent[i].size() << " bytes";
  const TxCounters counters = tx_[0]->counters();
  EXPECT_EQ(counters.packets, sent.size());
  EXPECT_EQ(counters.bytes, bytes_sent);
  EXPECT_EQ(counters.failed, 0u);
}

TEST_P(LivePort, JumboFramesArriveAndLeaveWhole) {
  constexpr uint32_t kMtu = 9000;
  make_pool(shape_for_mtu(kMtu));
  lay_cable();
  const std::string grown = " mtu " + std::to_string(kMtu);
  if (!GetParam().makes_interface) {
    in(*here_, "ip link set " + std::string(GetParam().port) + grown);
    in(*there_, "ip link set " + std::string(GetParam().other) + grown);
  }
  open();
  if (HasFatalFailure()) return;
  if (GetParam().method == PortMethod::kDpdk) GTEST_SKIP() << "net_tap's frames have 1,522 bytes at most";
  if (GetParam().makes_interface) in(*here_, "ip link set " + std::string(GetParam().other) + grown);
  if (HasFatalFailure()) return;
  std::vector<Bytes> frames;
  for (const uint32_t bytes : {60u, 3800u, 3839u, 3840u, 3841u, 4095u, 4096u, 4097u, 7679u, 7680u, 7681u, 8191u, 8192u,
                               8193u, 9013u, 9014u, 1514u})
    frames.push_back(numbered(bytes, bytes));
  for (int round = 0; round < 20; ++round) {
    for (const Bytes& frame : frames) ASSERT_TRUE(wire_->send(frame));
    // Pieces of one frame may come by two polls.
    std::vector<Bytes> got;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (got.size() < frames.size() && std::chrono::steady_clock::now() < end) {
      for (Bytes& frame : poll_once(*rx_[0], 1 + static_cast<uint32_t>(round) % 3)) got.push_back(std::move(frame));
    }
    ASSERT_EQ(got.size(), frames.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(got[i] == frames[i]) << frames[i].size() << " bytes";
    send_from_pool(*tx_[0], frames);
    got = from_wire(frames.size());
    settle(*tx_[0]);
    ASSERT_EQ(got.size(), frames.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(got[i] == frames[i]) << frames[i].size() << " bytes";
  }
  EXPECT_EQ(rx_[0]->counters().packets, 20 * frames.size());
  EXPECT_EQ(tx_[0]->counters().packets, 20 * frames.size());
  // Memory of the caller's as well.
  std::vector<TxFrame> out;
  for (Bytes& frame : frames) out.push_back({frame.data(), static_cast<uint32_t>(frame.size()), nullptr});
  ASSERT_EQ(tx_[0]->send(out), out.size());
  tx_[0]->flush();
  const auto got = from_wire(frames.size());
  settle(*tx_[0]);
  ASSERT_EQ(got.size(), frames.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(got[i] == frames[i]) << frames[i].size() << " bytes";
}

TEST_P(LivePort, FramesInMemoryOfTheCallerAreCopied) {
  open();
  std::vector<Bytes> frames;
  for (uint32_t i = 0; i < 40; ++i) frames.push_back(numbered(i, 60 + 30 * i));
  const std::vector<Bytes> before = frames;
  std::vector<TxFrame> out;
  for (Bytes& f : frames) out.push_back({f.data(), static_cast<uint32_t>(f.size()), nullptr});
  ASSERT_EQ(tx_[0]->send(out), 40u);
  // The caller's memory is his again.
  for (Bytes& f : frames) std::fill(f.begin(), f.end(), 0);
  tx_[0]->flush();
  EXPECT_EQ(from_wire(40), before);
  settle(*tx_[0]);
}

TEST_P(LivePort, FramesOfAnotherPoolAreCopied) {
  open();
  auto other = MappedFramePool::create({.stride = 4096, .chunks = 8});
  ASSERT_TRUE(other.ok());
  std::array<uint8_t*, 4> chunks;
  ASSERT_EQ((*other)->take(chunks), 4u);
  std::vector<TxFrame> out;
  std::vector<Bytes> sent;
  for (uint32_t i = 0; i < 4; ++i) {
    sent.push_back(numbered(i, 200));
    std::copy(sent[i].begin(), sent[i].end(), chunks[i] + 256);
    out.push_back({chunks[i] + 256, 200, other->get()});
  }
  ASSERT_EQ(tx_[0]->send(out), 4u);
  (*other)->give(chunks);
  tx_[0]->flush();
  EXPECT_EQ(from_wire(4), sent);
  settle(*tx_[0]);
}

TEST_P(LivePort, VlanAndQinQTagsAreInTheFrame) {
  open();
  std::vector<Bytes> tagged;
  tagged.push_back(udp4("192.0.2.1", "192.0.2.2").vlan(5, 3).size(100).build());
  tagged.push_back(udp4("192.0.2.1", "192.0.2.2").vlan(7, 1, 0x88a8).vlan(9).size(200).build());
  tagged.push_back(udp4("192.0.2.1", "192.0.2.2").vlan(7).vlan(9).size(1514).build());
  tagged.push_back(udp4("192.0.2.1", "192.0.2.2").vlan(0, 7).size(64).build());
  for (const Bytes& frame : tagged) ASSERT_TRUE(wire_->send(frame));
  EXPECT_EQ(receive(*rx_[0], tagged.size()), tagged);
  send_from_pool(*tx_[0], tagged);
  EXPECT_EQ(from_wire(tagged.size()), tagged);
  settle(*tx_[0]);
}

// What the kernel of the other end sends: UDP and TCP whose checksums it leaves to the hardware.
TEST_P(LivePort, ChecksumsThatTheSenderLeftToHardwareAreComplete) {
  open();
  const NetNamespace& sender = other_place();
  const std::string other = GetParam().other;
  in(sender, "sysctl -qw net.ipv6.conf." + other + ".disable_ipv6=0 && ip addr add 192.0.2.1/24 dev " + other +
                 " && ip -6 addr add 2001:db8::1/64 dev " + other +
                 " nodad && ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev " + other +
                 " && ip -6 neigh add 2001:db8::2 lladdr 02:00:00:00:00:02 dev " + other);
  if (HasFatalFailure()) return;
  {
    const auto inside = sender.enter();
    for (const int family : {AF_INET, AF_INET6}) {
      sockaddr_in to4{};
      sockaddr_in6 to6{};
      to4.sin_family = AF_INET;
      to4.sin_port = to6.sin6_port = htons(4000);
      inet_pton(AF_INET, "192.0.2.2", &to4.sin_addr);
      to6.sin6_family = AF_INET6;
      inet_pton(AF_INET6, "2001:db8::2", &to6.sin6_addr);
      const auto* to = family == AF_INET ? reinterpret_cast<sockaddr*>(&to4) : reinterpret_cast<sockaddr*>(&to6);
      const socklen_t size = family == AF_INET ? sizeof to4 : sizeof to6;
      for (const size_t bytes : {1, 2, 101, 1400}) {
        const testing::TestFd udp(socket(family, SOCK_DGRAM, 0));
        const std::string text(bytes, 'x');
        ASSERT_EQ(sendto(udp.get(), text.data(), text.size(), 0, to, size), static_cast<ssize_t>(bytes));
      }
      const testing::TestFd tcp(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
      connect(tcp.get(), to, size);  // its SYN
    }
  }
  // Multicast of the kernel's own comes between them.
  unsigned udp = 0, tcp = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while ((udp < 8 || tcp < 2) && std::chrono::steady_clock::now() < end) {
    for (const Bytes& frame : poll_once(*rx_[0])) {
      Headers h;
      const auto bytes = static_cast<uint32_t>(frame.size());
      if (parse_ethernet(frame.data(), bytes, bytes, h) != ParseStatus::kOk || h.key.dst_port != 4000) continue;
      const uint32_t l4_bytes = h.l3_offset + h.ip_bytes - h.l4_offset;
      const uint32_t pseudo =
          h.key.family == 4
              ? pseudo_sum_v4(static_cast<uint32_t>(h.key.src_lo), static_cast<uint32_t>(h.key.dst_lo), h.key.protocol,
                              l4_bytes)
              : pseudo_sum_v6(h.key.src_hi, h.key.src_lo, h.key.dst_hi, h.key.dst_lo, h.key.protocol, l4_bytes);
      EXPECT_EQ(l4_checksum(pseudo, frame.data() + h.l4_offset, l4_bytes), 0) << "a frame of " << bytes << " bytes";
      ++(h.key.protocol == kProtocolTcp ? tcp : udp);
    }
  }
  EXPECT_GE(udp, 8u);
  EXPECT_GE(tcp, 2u);
}

// Eleven datagrams that the kernel of the other end sends as one frame (UDP_SEGMENT), as it does with TCP.
TEST_P(LivePort, AFrameOfManySegmentsComesInPiecesOrIsCountedAsTooLong) {
  open();
  const NetNamespace& sender = other_place();
  const std::string other = GetParam().other;
  in(sender,
     "ip addr add 192.0.2.1/24 dev " + other + " && ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev " + other);
  if (HasFatalFailure()) return;
  constexpr int kSegment = 1001, kBytes = 10 * kSegment + 500;
  {
    const auto inside = sender.enter();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(4000);
    inet_pton(AF_INET, "192.0.2.2", &to.sin_addr);
    const testing::TestFd udp(socket(AF_INET, SOCK_DGRAM, 0));
    constexpr int kUdpSegment = 103;  // UDP_SEGMENT
    if (setsockopt(udp.get(), IPPROTO_UDP, kUdpSegment, &kSegment, sizeof kSegment) != 0)
      GTEST_SKIP() << "this kernel has no UDP_SEGMENT (Linux 4.18)";
    std::string text(kBytes, 'x');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i / kSegment);
    ASSERT_EQ(sendto(udp.get(), text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
              kBytes);
  }
  std::vector<uint32_t> lengths;
  int payload = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (payload < kBytes && rx_[0]->counters().too_long == 0 && std::chrono::steady_clock::now() < end) {
    for (const Bytes& frame : poll_once(*rx_[0], 3)) {
      Headers h;
      const auto bytes = static_cast<uint32_t>(frame.size());
      if (parse_ethernet(frame.data(), bytes, bytes, h) != ParseStatus::kOk || h.key.dst_port != 4000) continue;
      const uint32_t l4_bytes = h.l3_offset + h.ip_bytes - h.l4_offset;
      EXPECT_EQ(l4_checksum(pseudo_sum_v4(static_cast<uint32_t>(h.key.src_lo), static_cast<uint32_t>(h.key.dst_lo),
                                          h.key.protocol, l4_bytes),
                            frame.data() + h.l4_offset, l4_bytes),
                0);
      EXPECT_EQ(frame[h.l4_offset + 8], lengths.size());
      lengths.push_back(l4_bytes - 8);
      payload += static_cast<int>(l4_bytes - 8);
    }
  }
  if (!GetParam().cuts) {
    EXPECT_EQ(rx_[0]->counters().too_long, 1u);
    EXPECT_TRUE(lengths.empty());
    return;
  }
  std::vector<uint32_t> wanted(10, kSegment);
  wanted.push_back(500);
  EXPECT_EQ(lengths, wanted);
}

TEST_P(LivePort, DoesNotReceivePacketsThatItSends) {
  open();
  send_from_pool(*tx_[0], std::vector<Bytes>(10, numbered(1, 100)));
  ASSERT_EQ(from_wire(10).size(), 10u);
  ASSERT_TRUE(wire_->send(numbered(2, 100)));
  const auto got = receive(*rx_[0], 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0], numbered(2, 100));
  EXPECT_TRUE(poll_once(*rx_[0]).empty());
  settle(*tx_[0]);
}

// More than any ring holds, while nobody polls: what arrives later is whole and in order, and the rest is `missed`.
TEST_P(LivePort, FramesThatDoNotFitTheRingAreCounted) {
  PortOptions small = options();
  if (GetParam().rings) small.rx_ring = 64;
  open(small);
  if (HasFatalFailure()) return;
  constexpr uint32_t kSent = 30'000;
  const uint64_t refused_before = interface_counter("dropped");
  for (uint32_t i = 0; i < kSent; ++i) ASSERT_TRUE(wire_->send(numbered(i, 1000)));
  std::vector<Bytes> got;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  // Until all of them are accounted: received, missed by the port, or dropped in front of it by the kernel.
  uint64_t accounted = 0;
  while (accounted < kSent && std::chrono::steady_clock::now() < end) {
    const auto more = poll_once(*rx_[0]);
    got.insert(got.end(), more.begin(), more.end());
    if (more.empty()) {
      accounted = got.size() + rx_[0]->counters().missed;
      if (accounted < kSent) accounted += interface_counter("dropped") - refused_before;
    }
  }
  EXPECT_GE(accounted, kSent);
  EXPECT_LT(got.size(), kSent);
  EXPECT_EQ(rx_[0]->counters().packets, got.size());
  uint32_t last = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const uint32_t number = load_be32(got[i].data() + 14);
    ASSERT_EQ(got[i], numbered(number, 1000));
    ASSERT_TRUE(i == 0 || number > last) << number << " after " << last;
    last = number;
  }
  // And it goes on.
  ASSERT_TRUE(wire_->send(numbered(kSent, 80)));
  EXPECT_EQ(receive(*rx_[0], 1), std::vector<Bytes>{numbered(kSent, 80)});
}

TEST_P(LivePort, APoolWithoutChunksLosesNothingUncounted) {
  open();
  std::vector<uint8_t*> all(pool_->shape().chunks);
  const uint32_t n = pool_->take(all);
  for (uint32_t i = 0; i < 50; ++i) ASSERT_TRUE(wire_->send(numbered(i, 100)));
  std::vector<Bytes> got = poll_once(*rx_[0], 8);
  pool_->give({all.data(), n});
  const auto more = receive(*rx_[0], 50 - got.size());
  got.insert(got.end(), more.begin(), more.end());
  ASSERT_EQ(got.size(), 50u);
  for (uint32_t i = 0; i < 50; ++i) EXPECT_EQ(got[i], numbered(i, 100));
  EXPECT_EQ(rx_[0]->counters().missed, 0u);
}

// What `send` does not take stays with its owner, what it takes leaves or is `failed`.
TEST_P(LivePort, EveryFrameThatIsSentIsAccounted) {
  PortOptions small = options();
  if (GetParam().rings) small.tx_ring = 64;
  open(small);
  if (HasFatalFailure()) return;
  constexpr uint32_t kOffered = 20'000;
  std::vector<uint8_t*> chunks(256);
  uint64_t taken = 0, full = 0;
  uint32_t number = 0;
  std::vector<Bytes> got;
  for (uint32_t offered = 0; offered < kOffered; offered += 256) {
    while (pool_->take({chunks.data(), 256}) != 256) ASSERT_TRUE(false) << "the pool is empty";
    std::vector<TxFrame> out;
    for (uint8_t* chunk : chunks) {
      const Bytes frame = numbered(number++, 60);
      std::copy(frame.begin(), frame.end(), chunk + 256);
      out.push_back({chunk + 256, 60, pool_.get()});
    }
    const uint32_t n = tx_[0]->send(out);
    ASSERT_LE(n, 256u);
    taken += n;
    full += 256 - n;
    tx_[0]->flush();
    const bool owned = tx_[0]->pool() == pool_.get();
    std::vector<uint8_t*> back(chunks.begin() + (owned ? n : 0), chunks.end());
    pool_->give(back);
    number -= 256 - n;  // what was not taken is sent again
    tx_[0]->in_flight();
  }
  settle(*tx_[0]);
  const TxCounters counters = tx_[0]->counters();
  EXPECT_EQ(counters.packets + counters.failed, taken);
  EXPECT_EQ(counters.full, full);
  EXPECT_EQ(counters.failed, 0u);
  const auto arrived = from_wire(taken);
  ASSERT_EQ(arrived.size(), taken);
  for (uint32_t i = 0; i < taken; ++i) ASSERT_EQ(arrived[i], numbered(i, 60));
}

TEST_P(LivePort, TheDescriptorIsReadableWhenFramesCome) {
  open();
  const int fd = rx_[0]->wait_fd();
  if (fd < 0) GTEST_SKIP() << "a method that has to be polled";
  for (uint32_t round = 0; round < 20; ++round) {
    while (!poll_once(*rx_[0]).empty()) {
    }
    ASSERT_TRUE(rx_[0]->arm());
    std::thread sender([&] { wire_->send(numbered(round, 100)); });
    pollfd wait{fd, POLLIN, 0};
    const int woken = ::poll(&wait, 1, 20'000);
    sender.join();
    ASSERT_EQ(woken, 1);
    EXPECT_EQ(receive(*rx_[0], 1), std::vector<Bytes>{numbered(round, 100)});
  }
  // Frames that are there already forbid sleep.
  ASSERT_TRUE(wire_->send(numbered(1, 100)));
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (rx_[0]->arm() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_FALSE(rx_[0]->arm());
  EXPECT_EQ(receive(*rx_[0], 1).size(), 1u);
}

TEST_P(LivePort, SeveralQueuesShareTheFlowsAndKeepTheirOrder) {
  PortOptions many = options();
  many.queues = std::min(4u, GetParam().most_queues);
  open(many);
  if (HasFatalFailure()) return;
  EXPECT_EQ(port_->facts().rx_queues, many.queues);
  constexpr uint32_t kPackets = 2000;
  constexpr uint16_t kFlows = 64;
  std::map<uint16_t, std::pair<size_t, uint32_t>> flows;  // queue, last number
  uint32_t got = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  uint32_t sent = 0;
  while (got < kPackets && std::chrono::steady_clock::now() < end) {
    for (uint32_t i = 0; i < 50 && sent < kPackets; ++i, ++sent) {
      ASSERT_TRUE(wire_->send(udp_frame(static_cast<uint16_t>(sent % kFlows), sent)));
    }
    for (size_t q = 0; q < rx_.size(); ++q) {
      for (const Bytes& frame : poll_once(*rx_[q])) {
        const uint16_t flow = load_be16(frame.data() + 34);
        const uint32_t number = load_be32(frame.data() + 42);
        const auto [at, first] = flows.try_emplace(flow, q, number);
        EXPECT_EQ(at->second.first, q) << "a flow in two queues";
        EXPECT_TRUE(first || at->second.second < number);
        at->second.second = number;
        ++got;
      }
    }
  }
  EXPECT_EQ(got, kPackets);
  EXPECT_EQ(flows.size(), kFlows);
  uint64_t counted = 0;
  for (const auto& queue : rx_) counted += queue->counters().packets;
  EXPECT_EQ(counted, kPackets);
  for (size_t q = 0; q < tx_.size(); ++q) send_from_pool(*tx_[q], {numbered(static_cast<uint32_t>(q), 100)});
  EXPECT_EQ(from_wire(tx_.size()).size(), tx_.size());
  for (auto& queue : tx_) settle(*queue);
}

TEST_P(LivePort, SaysWhenTheLinkIsDownAndGoesOnWhenItIsBack) {
  open();
  EXPECT_EQ(wait_for(*rx_[0], RxState::kIdle), RxState::kIdle);
  EXPECT_TRUE(port_->facts().up);
  const std::string name = GetParam().port;
  in(*here_, "ip link set " + name + " down");
  EXPECT_EQ(wait_for(*rx_[0], RxState::kDown), RxState::kDown);
  EXPECT_FALSE(port_->facts().up);
  // What is sent meanwhile is not taken, or `failed`.
  Bytes frame = numbered(1, 100);
  const TxFrame out{frame.data(), 100, nullptr};
  const uint32_t taken = tx_[0]->send({&out, 1});
  tx_[0]->flush();
  in(*here_, "ip link set " + name + " up");
  EXPECT_EQ(wait_for(*rx_[0], RxState::kIdle), RxState::kIdle);
  ASSERT_TRUE(wire_->send(numbered(2, 100)));
  EXPECT_EQ(receive(*rx_[0], 1), std::vector<Bytes>{numbered(2, 100)});
  send_from_pool(*tx_[0], {numbered(3, 100)});
  auto got = from_wire(1);
  ASSERT_EQ(got.size(), 1u);
  if (got[0] == frame) got = from_wire(1);  // a method that kept it for later
  EXPECT_EQ(got, std::vector<Bytes>{numbered(3, 100)});
  settle(*tx_[0]);
  const TxCounters counters = tx_[0]->counters();
  EXPECT_EQ(counters.packets + counters.failed, 1u + taken);
  EXPECT_EQ(counters.full, 1u - taken);
}

TEST_P(LivePort, SaysWhenTheOtherEndIsDown) {
  if (GetParam().makes_interface) GTEST_SKIP() << "the interface has no other end";
  open();
  in(*there_, std::string("ip link set ") + GetParam().other + " down");
  EXPECT_EQ(wait_for(*rx_[0], RxState::kDown), RxState::kDown);
  in(*there_, std::string("ip link set ") + GetParam().other + " up");
  EXPECT_EQ(wait_for(*rx_[0], RxState::kIdle), RxState::kIdle);
}

TEST_P(LivePort, SaysWhenTheInterfaceIsGone) {
  open();
  in(*here_, std::string("ip link del ") + GetParam().port);
  EXPECT_EQ(wait_for(*rx_[0], RxState::kGone), RxState::kGone);
  EXPECT_EQ(rx_[0]->state(), RxState::kGone);
  EXPECT_FALSE(port_->facts().up);
  Bytes frame = numbered(1, 100);
  const TxFrame out{frame.data(), 100, nullptr};
  const uint32_t taken = tx_[0]->send({&out, 1});
  tx_[0]->flush();
  const TxCounters counters = tx_[0]->counters();
  EXPECT_EQ(counters.packets, 0u);
  EXPECT_EQ(counters.failed, taken);
  EXPECT_EQ(counters.full, 1 - taken);
}

TEST_P(LivePort, GoesOnWhenTheInterfaceIsRenamed) {
  open();
  in(*here_, std::string("ip link set ") + GetParam().port + " name other");
  ASSERT_TRUE(wire_->send(numbered(2, 100)));
  EXPECT_EQ(receive(*rx_[0], 1), std::vector<Bytes>{numbered(2, 100)});
  EXPECT_EQ(rx_[0]->state(), RxState::kIdle);
  EXPECT_EQ(port_->facts().name, "other");
}

// What may become of an interface: afterwards the port goes on, or is gone and another one is opened in its place while
// its queues are still there.
TEST_P(LivePort, GoesOnOrIsOpenedAgainWhateverBecomesOfTheInterface) {
  if (GetParam().makes_interface) GTEST_SKIP() << "the interface goes with its port";
  const std::string name = GetParam().port, other = GetParam().other;
  auto elsewhere = NetNamespace::create();
  ASSERT_TRUE(elsewhere.ok());
  const auto in_here = [&](const std::string& command) { return [=, this] { in(*here_, command); }; };
  const auto away_and_back = [&] {
    in(*here_, "ip link set " + name + " netns " + elsewhere->path());
    EXPECT_EQ(wait_for(*rx_[0], RxState::kGone), RxState::kGone);
    in(*elsewhere, "ip link set " + name + " netns " + here_->path());
  };
  struct Event {
    const char* name;
    std::function<void()> happens;
    bool gone;
  };
  const Event events[] = {
      {"down and up", in_here("ip link set " + name + " down && ip link set " + name + " up"), false},
      {"renamed and back", in_here("ip link set " + name + " name other && ip link set other name " + name), false},
      {"another MTU", in_here("ip link set " + name + " mtu 1300"), false},
      {"the MTU before", in_here("ip link set " + name + " mtu 1500"), false},
      {"moved away and back", away_and_back, true},
      {"made anew",
       [&] {
         wire_.reset();
         in(*here_, "ip link del " + name);
         EXPECT_EQ(wait_for(*rx_[0], RxState::kGone), RxState::kGone);
         auto cable = NetNamespace::veth(*here_, name, *there_, other, 1);
         ASSERT_TRUE(cable.ok()) << to_string(cable.error());
       },
       true},
      {"moved away and back again", away_and_back, true},
  };
  open();
  for (const Event& event : events) {
    if (HasFatalFailure()) return;
    event.happens();
    if (HasFatalFailure()) return;
    if (event.gone) {
      in(*here_, "ip link set " + name + " up");
      const auto port = std::move(port_);
      const auto rx = std::exchange(rx_, {});
      const auto tx = std::exchange(tx_, {});
      wire_.reset();
      port->interface_gone();
      open();
      ASSERT_FALSE(HasFatalFailure()) << event.name;
    }
    EXPECT_EQ(wait_for(*rx_[0], RxState::kIdle), RxState::kIdle) << event.name;
    ASSERT_TRUE(wire_->send(numbered(2, 100))) << event.name;
    EXPECT_EQ(receive(*rx_[0], 1), std::vector<Bytes>{numbered(2, 100)}) << event.name;
    send_from_pool(*tx_[0], {numbered(3, 100)});
    EXPECT_EQ(from_wire(1), std::vector<Bytes>{numbered(3, 100)}) << event.name;
    settle(*tx_[0]);
  }
}

TEST_P(LivePort, FactsAreTheInterfaces) {
  open();
  in(*here_, std::string("ip link set ") + GetParam().port + " mtu 1400");
  if (!GetParam().makes_interface)
    in(*here_, std::string("ip link set ") + GetParam().port + " address 02:00:00:00:00:77");
  const PortFacts facts = port_->facts();
  EXPECT_EQ(facts.name, GetParam().port);
  EXPECT_STREQ(facts.method, to_string(GetParam().method));
  EXPECT_NE(facts.mode, "");
  EXPECT_GT(facts.ifindex, 0);
  EXPECT_EQ(facts.mtu, 1400u);
  if (!GetParam().makes_interface) {
    EXPECT_EQ(facts.mac, (std::array<uint8_t, 6>{2, 0, 0, 0, 0, 0x77}));
  }
  EXPECT_EQ(facts.rx_queues, 1u);
  EXPECT_EQ(facts.tx_queues, 1u);
}

// Frames that no chunk takes: refused at once where the MTU says so, else counted.
TEST_P(LivePort, FramesLargerThanAChunkAreRefusedOrCounted) {
  lay_cable();
  const std::string name = GetParam().port;
  if (!GetParam().makes_interface) {
    in(*here_, "ip link set " + name + " mtu 3400");
    in(*there_, std::string("ip link set ") + GetParam().other + " mtu 3400");
    auto port = try_open(options());
    if (!port) {
      EXPECT_THAT(to_string(port.error()), HasSubstr("MTU"));
      EXPECT_THAT(to_string(port.error()), HasSubstr("3400"));
    } else {
      port->reset();
    }
    in(*here_, "ip link set " + name + " mtu 1500");
  }
  open();
  if (HasFatalFailure()) return;
  in(*here_, "ip link set " + name + " mtu 3400 || true");
  const uint32_t room = pool_->shape().room();
  const bool one_that_fits = wire_->send(numbered(1, room));
  std::vector<Bytes> sent;
  uint64_t too_large = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    const uint32_t bytes = i % 2 == 0 ? 100 : 3000 + i;
    if (!wire_->send(numbered(i, bytes))) continue;  // the kernel does not let such a frame through
    if (bytes > room) {
      ++too_large;
    } else {
      sent.push_back(numbered(i, bytes));
    }
  }
  if (one_that_fits) sent.insert(sent.begin(), numbered(1, room));
  ASSERT_EQ(receive(*rx_[0], sent.size()), sent);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  RxCounters counters = rx_[0]->counters();
  while (counters.too_long + counters.invalid + counters.missed < too_large && std::chrono::steady_clock::now() < end) {
    EXPECT_TRUE(poll_once(*rx_[0]).empty());
    counters = rx_[0]->counters();
  }
  EXPECT_EQ(counters.too_long + counters.invalid + counters.missed, too_large);
}

TEST_P(LivePort, AnUnknownInterfaceIsAnErrorWithTheOneThatWasMeant) {
  if (GetParam().makes_interface) GTEST_SKIP() << "a method that makes the interface";
  lay_cable();
  PortOptions wrong = options();
  wrong.name = "naer";
  auto port = try_open(wrong);
  ASSERT_FALSE(port.ok());
  EXPECT_THAT(to_string(port.error()), HasSubstr("no interface 'naer'"));
  EXPECT_THAT(to_string(port.error()), HasSubstr("near"));
  wrong.name = "a-name-that-no-interface-can-have";
  EXPECT_FALSE(try_open(wrong).ok());
  wrong.name = "";
  EXPECT_FALSE(try_open(wrong).ok());
}

TEST_P(LivePort, QueuesThatAreNotThereAreErrors) {
  open();
  EXPECT_FALSE(port_->open_rx(1).ok());
  EXPECT_FALSE(port_->open_tx(1).ok());
  PortOptions none = options();
  none.queues = 0;
  EXPECT_FALSE(try_open(none).ok());
  none.queues = 100'000;
  EXPECT_FALSE(try_open(none).ok());
  none = options();
  none.receives = none.sends = false;
  EXPECT_FALSE(try_open(none).ok());
  none = options();
  none.rx_ring = ~0u;
  EXPECT_FALSE(try_open(none).ok());
}

// In a process of its own without the capabilities.
TEST_P(LivePort, WithoutCapabilitiesTheErrorSaysWhatIsMissing) {
  lay_cable();
  if (HasFatalFailure()) return;
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto inside = here_->enter();
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    std::string said = "capabilities are kept";
    if (syscall(SYS_capset, &header, none) == 0) {
      auto port = open_port(options(), pool_);
      said = port ? "opened" : to_string(port.error());
    }
    const ssize_t written = write(pipe_fds[1], said.data(), said.size());
    _exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  close(pipe_fds[1]);
  std::string said(4096, '\0');
  const ssize_t n = read(pipe_fds[0], said.data(), said.size());
  close(pipe_fds[0]);
  said.resize(n > 0 ? static_cast<size_t>(n) : 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(said, HasSubstr("CAP_NET_"));
  EXPECT_THAT(said, HasSubstr("setcap"));
}

TEST_P(LivePort, OpensAgainAndAgain) {
  lay_cable();
  for (uint32_t round = 0; round < 10 && !HasFailure(); ++round) {
    open();
    ASSERT_TRUE(wire_->send(numbered(round, 100)));
    EXPECT_EQ(receive(*rx_[0], 1), std::vector<Bytes>{numbered(round, 100)});
    send_from_pool(*tx_[0], {numbered(round, 90)});
    EXPECT_EQ(from_wire(1), std::vector<Bytes>{numbered(round, 90)});
    settle(*tx_[0]);
    wire_.reset();
    close_port();
    EXPECT_EQ(pool_->out(), 0u);
  }
}

// Frames go from one port to another through the same pool.
TEST_P(LivePort, ForwardsAFrameToAnotherPortWithoutLoss) {
  open();
  if (HasFatalFailure()) return;
  std::vector<uint8_t*> frames(64);
  std::vector<Extent> extents(64);
  std::vector<uint64_t> times(64);
  constexpr uint32_t kPackets = 5000;
  uint32_t sent = 0, forwarded = 0;
  std::vector<Bytes> got;
  FramePool* pool = &rx_[0]->pool();
  // Ends when nothing has moved for long: how fast frames move is the machine's.
  auto end = std::chrono::steady_clock::now() + kPatience;
  const auto moved = [&] { end = std::chrono::steady_clock::now() + kPatience; };
  while (got.size() < kPackets && std::chrono::steady_clock::now() < end) {
    // The kernel has room for a part of them alone, on the way and at the other end.
    for (uint32_t i = 0; i < 32 && sent < kPackets && sent < got.size() + 200; ++i, ++sent) {
      ASSERT_TRUE(wire_->send(numbered(sent, 60 + sent % 1400)));
    }
    const uint32_t n = rx_[0]->poll({frames.data(), extents.data(), times.data()}, 64, now_ns());
    if (n != 0) moved();
    std::vector<TxFrame> out;
    for (uint32_t i = 0; i < n; ++i) out.push_back({frames[i], extents[i].end, pool});
    std::span<const TxFrame> left = out;
    while (!left.empty() && std::chrono::steady_clock::now() < end) {
      const uint32_t taken = tx_[0]->send(left);
      tx_[0]->flush();
      if (tx_[0]->pool() != pool) {
        for (const TxFrame& f : left.first(taken)) pool->give(std::array{f.data});
      }
      left = left.subspan(taken);
      if (taken == 0) {
        tx_[0]->in_flight();
      } else {
        moved();
      }
    }
    ASSERT_TRUE(left.empty());
    forwarded += n;
    while (auto frame = wire_->receive(std::chrono::milliseconds(0))) {
      got.push_back(std::move(*frame));
      moved();
    }
  }
  settle(*tx_[0]);
  ASSERT_EQ(forwarded, kPackets);
  ASSERT_EQ(got.size(), kPackets);
  for (uint32_t i = 0; i < kPackets; ++i) ASSERT_EQ(got[i], numbered(i, 60 + i % 1400));
}

INSTANTIATE_TEST_SUITE_P(Methods, LivePort, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

TEST(PortMethods, HaveNames) {
  for (const PortMethod method : {PortMethod::kAuto, PortMethod::kAfXdp, PortMethod::kAfPacket, PortMethod::kTap,
                                  PortMethod::kDpdk, PortMethod::kPcap}) {
    auto parsed = parse_port_method(to_string(method));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, method);
  }
  auto wrong = parse_port_method("afpacket");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(to_string(wrong.error()), HasSubstr("af_packet"));
}

}  // namespace
}  // namespace sluice
