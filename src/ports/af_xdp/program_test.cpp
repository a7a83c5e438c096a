// The XDP program by itself: the kernel runs it on bytes and says what it decided, without a device.
#include "ports/af_xdp/program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "net/bytes.h"
#include "ports/af_xdp/socket.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr XdpProgram::Address4 kOwn4{192, 0, 2, 1};
constexpr XdpProgram::Address6 kOwn6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

Bytes ethernet(uint16_t type, const Bytes& payload, unsigned tags = 0) {
  Bytes frame(12, 2);
  for (unsigned i = 0; i < tags; ++i) frame.insert(frame.end(), {0x81, 0, 0, 7});
  frame.push_back(static_cast<uint8_t>(type >> 8));
  frame.push_back(static_cast<uint8_t>(type));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}
Bytes ipv4(const XdpProgram::Address4& to) {
  Bytes packet(28);
  packet[0] = 0x45;
  packet[9] = 17;
  std::copy(to.begin(), to.end(), packet.begin() + 16);
  return packet;
}
Bytes ipv6(const XdpProgram::Address6& to, uint8_t next, uint8_t type = 0) {
  Bytes packet(48);
  packet[0] = 0x60;
  packet[6] = next;
  std::copy(to.begin(), to.end(), packet.begin() + 24);
  packet[40] = type;
  return packet;
}

class XdpProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pool = MappedFramePool::create({.chunks = 64});
    ASSERT_TRUE(pool.ok());
    auto memory = XskMemory::of(*pool);
    ASSERT_TRUE(memory.ok());
    auto loaded = XdpProgram::load(4, true);
    if (!loaded) GTEST_SKIP() << loaded.error().message;
    program_.emplace(std::move(*loaded));
    // A socket in the map is what tells "to the socket" from "to the kernel". It is bound to no device.
    auto socket = XskSocket::unbound(*memory, {.rx_entries = 64});
    ASSERT_TRUE(socket.ok()) << socket.error().message;
    socket_ = std::move(*socket);
    ASSERT_TRUE(program_->set_socket(0, socket_->descriptor()).ok());
    const std::vector<XdpProgram::Address4> v4{{10, 0, 0, 1}, kOwn4};
    const std::vector<XdpProgram::Address6> v6{kOwn6};
    ASSERT_TRUE(program_->set_own_addresses(v4, v6).ok());
  }

  static uint32_t verdict(const XdpProgram& program, Bytes frame) {
    // The kernel runs programs on whole Ethernet headers only.
    Bytes out(4096);
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_out = out.data(),
                .data_size_in = static_cast<uint32_t>(frame.size()), .data_size_out = static_cast<uint32_t>(out.size()),
                .repeat = 1);
    EXPECT_EQ(bpf_prog_test_run_opts(program.descriptor(), &options), 0);
    return options.retval;
  }
  void expect(const Bytes& frame, bool kernel) {
    EXPECT_EQ(verdict(*program_, frame), uint32_t{kernel ? XDP_PASS : XDP_REDIRECT});
  }

  std::optional<XdpProgram> program_;
  std::unique_ptr<XskSocket> socket_;
};

TEST_F(XdpProgramTest, GivesTheKernelItsOwnAlsoBehindOneTag) {
  XdpProgram::Address6 solicited{0xff, 2};
  for (const unsigned tags : {0u, 1u}) {
    expect(ethernet(0x0806, Bytes(28), tags), true);
    expect(ethernet(0x88cc, Bytes(28), tags), true);
    expect(ethernet(0x0800, ipv4(kOwn4), tags), true);
    expect(ethernet(0x0800, ipv4({10, 0, 0, 1}), tags), true);
    expect(ethernet(0x86dd, ipv6(kOwn6, 17), tags), true);
    for (unsigned type = 0; type < 256; ++type) {
      expect(ethernet(0x86dd, ipv6(solicited, 58, static_cast<uint8_t>(type)), tags), type >= 133 && type <= 137);
    }
  }
}

TEST_F(XdpProgramTest, GivesTheSocketAllElse) {
  for (const unsigned tags : {0u, 1u}) {
    expect(ethernet(0x0800, ipv4({192, 0, 2, 2}), tags), false);
    expect(ethernet(0x86dd, ipv6({0x20, 1, 0xd, 0xb8}, 17, 135), tags), false);
    expect(ethernet(0x8847, Bytes(46), tags), false);
    expect(ethernet(0x002e, Bytes(46), tags), false);
  }
  expect(ethernet(0x0806, Bytes(28), 2), false);
  expect(ethernet(0x0800, ipv4(kOwn4), 2), false);
}

TEST_F(XdpProgramTest, GivesTheSocketWhatEndsBeforeItsHeaders) {
  const auto cut = [](Bytes frame, size_t bytes) { return frame.resize(bytes), frame; };
  for (size_t bytes = 14; bytes < 34; ++bytes) expect(cut(ethernet(0x0800, ipv4(kOwn4)), bytes), false);
  expect(cut(ethernet(0x0800, ipv4(kOwn4)), 34), true);
  for (size_t bytes = 14; bytes < 54; ++bytes) expect(cut(ethernet(0x86dd, ipv6(kOwn6, 58, 135)), bytes), false);
  // The address is there, the ICMPv6 type is not: no neighbour discovery.
  expect(cut(ethernet(0x86dd, ipv6(kOwn6, 58, 135)), 54), false);
  expect(cut(ethernet(0x86dd, ipv6(kOwn6, 17)), 54), true);
  for (size_t bytes = 14; bytes < 18; ++bytes) expect(cut(ethernet(0x0806, Bytes(28), 1), bytes), false);
  expect(cut(ethernet(0x0806, Bytes(28), 1), 18), true);
}

TEST_F(XdpProgramTest, GivesTheKernelQueuesWithoutSocket) {
  program_->clear_socket(0);
  expect(ethernet(0x0800, ipv4({192, 0, 2, 2})), true);
}

TEST_F(XdpProgramTest, TakesAddressesInPlaceOfThoseBefore) {
  const std::vector<XdpProgram::Address4> v4{{10, 0, 0, 2}, kOwn4};
  ASSERT_TRUE(program_->set_own_addresses(v4, {}).ok());
  expect(ethernet(0x0800, ipv4({10, 0, 0, 1})), false);
  expect(ethernet(0x0800, ipv4({10, 0, 0, 2})), true);
  expect(ethernet(0x0800, ipv4(kOwn4)), true);
  expect(ethernet(0x86dd, ipv6(kOwn6, 17)), false);
  EXPECT_FALSE(program_->set_own_addresses(std::vector<XdpProgram::Address4>(XdpProgram::kMostAddresses + 1), {}).ok());
}

TEST_F(XdpProgramTest, KeepsNothingForTheKernelWhereItIsAskedFor) {
  auto all = XdpProgram::load(1, false);
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_TRUE(all->set_socket(0, socket_->descriptor()).ok());
  EXPECT_EQ(verdict(*all, ethernet(0x0806, Bytes(28))), uint32_t{XDP_REDIRECT});
  EXPECT_EQ(verdict(*all, ethernet(0x0800, ipv4(kOwn4))), uint32_t{XDP_REDIRECT});
}

}  // namespace
}  // namespace sluice
