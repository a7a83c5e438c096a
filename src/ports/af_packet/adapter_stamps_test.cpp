// Timestamps of the adapter: which stamp a packet has, and what interfaces without them say. No interface that a test
// can make has hardware.
#include "ports/af_packet/adapter_stamps.h"

#include <gtest/gtest.h>
#include <linux/if_packet.h>

#include "memory/frame_pool.h"
#include "ports/port.h"
#include "ports/testing/net_namespace.h"

namespace sluice {
namespace {

TEST(AdapterStamps, OnlyTheHardwaresStampIsTaken) {
  EXPECT_EQ(stamp_of(TP_STATUS_USER | TP_STATUS_TS_RAW_HARDWARE, 1'700'000'000, 999'999'999, 5),
            1'700'000'000'999'999'999u);
  EXPECT_EQ(stamp_of(TP_STATUS_TS_RAW_HARDWARE, 0xffff'ffff, 1, 5), 4'294'967'295'000'000'001u);
  EXPECT_EQ(stamp_of(TP_STATUS_USER | TP_STATUS_TS_SOFTWARE, 1'700'000'000, 1, 5), 5u);
  EXPECT_EQ(stamp_of(TP_STATUS_USER, 0, 0, 5), 5u);
}

TEST(AdapterStamps, AnInterfaceWithoutThemSaysSo) {
  if (!testing::NetNamespace::why_none().empty())
    GTEST_SKIP() << "no network namespaces here: " << testing::NetNamespace::why_none();
  auto near = testing::NetNamespace::create(), far = testing::NetNamespace::create();
  ASSERT_TRUE(near.ok() && far.ok());
  ASSERT_TRUE(testing::NetNamespace::veth(*near, "v0", *far, "v1").ok());
  const auto inside = near->enter();
  const auto none = AdapterStamps::take("v0");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("does not stamp every packet"), std::string::npos) << none.error().message;
  auto pool = MappedFramePool::create({});
  ASSERT_TRUE(pool.ok());
  for (const auto& [method, why] : {std::pair(PortMethod::kAuto, "does not stamp every packet"),
                                    std::pair(PortMethod::kAfPacket, "does not stamp every packet"),
                                    std::pair(PortMethod::kAfXdp, "no timestamps of the adapter by af_xdp"),
                                    std::pair(PortMethod::kPcap, "no timestamps of the adapter by pcap")}) {
    PortOptions options;
    options.name = "v0";
    options.method = method;
    options.hardware_timestamps = true;
    const auto port = open_port(options, *pool);
    ASSERT_FALSE(port.ok()) << why;
    EXPECT_NE(port.error().message.find(why), std::string::npos) << port.error().message;
  }
}

}  // namespace
}  // namespace sluice
