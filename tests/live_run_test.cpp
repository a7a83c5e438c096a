// `sluice run` between two networks: what leaves an interface is what the same graph writes offline, flow by flow, and
// every packet is accounted for.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "net/packet_builder.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/router_test.h"

namespace sluice {
namespace {

using testing::Said;
using testing::Wire;
using Bytes = Wire::Bytes;

class LiveRunTest : public testing::RouterTest {
 protected:
  void SetUp() override {
    RouterTest::SetUp();
    write("edge.acl", "deny udp from any to any port 53\npermit ip from any to any\n");
    write("rib", "8.0.0.0/8 10.2.0.1\n9.0.0.0/8 10.2.0.1\n2001:db8:2::/48 10.2.0.1\n");
    write("adj", "10.2.0.1 02:00:00:00:00:04 02:00:00:00:00:03 0\n");
  }

  // IPv4 and IPv6 of several flows, some that are denied, expire or have no route, and all lengths.
  static std::vector<Bytes> frames(uint32_t n) {
    std::vector<Bytes> all;
    for (uint32_t i = 0; i < n; ++i) {
      const auto flow = static_cast<uint16_t>(1024 + i % 16);
      const char* to = i % 13 == 5 ? "7.1.1.1" : i % 2 == 0 ? "8.1.2.3" : "9.1.2.3";
      auto builder = i % 7 == 3   ? udp6("2001:db8:1::1", "2001:db8:2::2")
                     : i % 5 == 0 ? tcp4("10.1.0.1", to)
                                  : udp4("10.1.0.1", to);
      std::vector<uint8_t> payload(4 + i * 37 % 1400);
      for (size_t b = 0; b < payload.size(); ++b) payload[b] = static_cast<uint8_t>(i + b);
      all.push_back(builder.ports(flow, i % 11 == 7 ? 53 : 80).payload(payload).ttl(i % 17 == 2 ? 1 : 64).build());
      const uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
      std::copy(std::begin(head), std::end(head), all.back().begin());
    }
    return all;
  }
  // By protocol, addresses and ports, in their order.
  using Flows = std::map<std::string, std::vector<Bytes>>;
  static void add(Flows& flows, Bytes frame) {
    const bool six = frame.size() > 13 && frame[12] == 0x86;
    // The protocol is before the addresses.
    const size_t at = six ? 22 : 26, bytes = six ? 36 : 12;
    std::string key(1, static_cast<char>(frame[six ? 20 : 23]));
    key.append(frame.begin() + static_cast<long>(std::min(at, frame.size())),
               frame.begin() + static_cast<long>(std::min(at + bytes, frame.size())));
    flows[key].push_back(std::move(frame));
  }
  // What the same graph makes of them offline, and its report.
  Flows offline(const std::vector<Bytes>& sent, const std::string& graph, nlohmann::json& report) {
    Flows flows;
    auto writer = CaptureWriter::create(path("in.pcap"));
    EXPECT_TRUE(writer.ok());
    for (const Bytes& frame : sent) {
      const auto bytes = static_cast<uint32_t>(frame.size());
      EXPECT_TRUE(writer->append(FrameHeader{bytes, bytes, 1}, frame.data()));
    }
    EXPECT_TRUE(writer->commit().ok());
    const Said said = sluice("run " + graph + " --in in.pcap --out out.pcap -o json");
    EXPECT_EQ(said.code, 0) << said.err;
    report = said.json();
    auto reader = CaptureReader::open(path("out.pcap"));
    EXPECT_TRUE(reader.ok());
    for (CapturedFrame frame; reader.ok();) {
      const auto more = reader->next(frame);
      if (!more.ok() || !*more) break;
      add(flows, Bytes(frame.data, frame.data + frame.captured));
    }
    return flows;
  }

  void forward(const std::string& options, uint32_t packets) {
    const std::string graph = "--acl edge.acl --routes rib --adjacencies adj";
    const std::vector<Bytes> sent = frames(packets);
    nlohmann::json expected;
    const Flows wanted = offline(sent, graph, expected);
    start(graph + " --in d0 --out d1 " + options);
    auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
    ASSERT_TRUE(near.ok() && far.ok());
    Flows seen;
    const auto leave = expected["packets_out"].get<uint32_t>();
    uint32_t received = 0;
    const auto take = [&](std::chrono::milliseconds patience) {
      auto frame = far->receive(patience);
      if (!frame) return false;
      ++received;
      add(seen, std::move(*frame));
      return true;
    };
    for (size_t i = 0; i < sent.size(); ++i) {
      ASSERT_TRUE(near->send(sent[i]));
      // No faster than rings hold.
      while (i % 64 == 63 && take(std::chrono::milliseconds(0))) {
      }
    }
    while (received < leave && take(std::chrono::seconds(10))) {
    }
    EXPECT_EQ(received, leave);
    const nlohmann::json report = stop();
    ASSERT_TRUE(report.is_object()) << read("log") << read("report.json");
    EXPECT_EQ(seen, wanted);
    for (const char* key : {"packets_in", "packets_out", "dropped", "generated"})
      EXPECT_EQ(report[key], expected[key]) << key << " " << report.dump();
    EXPECT_EQ(report["drops"], expected["drops"]);
    EXPECT_TRUE(report["conserved"].get<bool>());
    EXPECT_FALSE(report["partial"].get<bool>());
    ASSERT_EQ(report["ports"].size(), 2u);
    EXPECT_EQ(report["ports"][0]["rx"][0]["missed"], 0) << report["ports"].dump();
  }
};

TEST_F(LiveRunTest, AfPacket) {
  forward("--method af_packet", 2000);
}
TEST_F(LiveRunTest, AfPacketWithTwoWorkersAndAnEmulatedDevice) {
  forward("--method af_packet --workers 2", 2000);
  forward("--method af_packet --device emu", 1000);
}
TEST_F(LiveRunTest, AfXdp) {
  forward("--method af_xdp", 2000);
}
TEST_F(LiveRunTest, Pcap) {
  forward("--method pcap", 1000);
}
TEST_F(LiveRunTest, ByPriorities) {
  forward("--method af_packet --priorities --chunk 16", 1000);
}

TEST_F(LiveRunTest, FramesLongerThanTheMtuAreTooBigAndTheOthersLeaveInOrder) {
  ASSERT_TRUE(router_->run("ip link set d1 mtu 600").ok());
  constexpr size_t kLongest = 600 + 14;
  for (const char* method : {"af_packet", "af_xdp"}) {
    SCOPED_TRACE(method);
    start("--acl edge.acl --in d0 --out d1 --method " + std::string(method));
    auto near = Wire::open(*gen_, "g0"), far = Wire::open(*sink_, "s0");
    ASSERT_TRUE(near.ok() && far.ok());
    std::vector<Bytes> leave;
    uint32_t sent = 0;
    for (uint16_t i = 0; i < 600; ++i) {
      std::vector<uint8_t> payload(18 + i * 37 % 1400, static_cast<uint8_t>(i));
      Bytes frame = udp4("10.1.0.1", "8.1.2.3").ports(i, 80).payload(payload).build();
      const uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
      std::copy(std::begin(head), std::end(head), frame.begin());
      // Of up to two VLAN tags more the kernel says whether they leave.
      if (frame.size() > kLongest && frame.size() <= kLongest + 8) continue;
      ASSERT_TRUE(near->send(frame));
      ++sent;
      if (frame.size() <= kLongest) leave.push_back(std::move(frame));
    }
    for (const Bytes& wanted : leave) {
      auto frame = far->receive();
      ASSERT_TRUE(frame);
      ASSERT_EQ(*frame, wanted);
    }
    const nlohmann::json report = stop();
    ASSERT_TRUE(report.is_object()) << read("log") << read("report.json");
    EXPECT_TRUE(report["conserved"].get<bool>());
    EXPECT_EQ(report["packets_in"], sent);
    EXPECT_EQ(report["packets_out"], leave.size());
    EXPECT_EQ(report["drops"]["too-big"], sent - leave.size());
  }
}

TEST_F(LiveRunTest, DropsAsTxFullWhereTheRingIsFullAndFreesTheChunks) {
  // Nobody reads the ring; net_null gives frames as long as the pool has chunks, and these are fewer than are asked
  // for.
  write("full.click", "FromDPDKDevice(\"net_null0,size=60\") -> ToDPDKDevice(net_ring0);\n");
  const Said said = sluice("run full.click --limit 200000 -o json");
  if (said.code != 0 && said.err.find("libsluice_dpdk") != std::string::npos) GTEST_SKIP() << said.err;
  ASSERT_EQ(said.code, 0) << said.err;
  const auto report = said.json();
  EXPECT_TRUE(report["conserved"].get<bool>());
  EXPECT_EQ(report["packets_in"], 200'000);
  EXPECT_EQ(report["packets_out"], 1023);
  EXPECT_EQ(report["drops"]["tx-full"], 200'000 - 1023);
  EXPECT_EQ(report["ports"][1]["tx"][0]["packets"], 1023);
}

TEST_F(LiveRunTest, NamesMissingInterfaces) {
  const auto inside = router_->enter();
  const Said none = sluice("run --acl edge.acl --in d7 --out d1");
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("--in d7: no file and no interface has this name"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("did you mean 'd"), std::string::npos) << none.err;
  write("in.pcap", "");
  const Said file = sluice("run --acl edge.acl --in in.pcap --out d7");
  EXPECT_NE(file.err.find("--out d7: no interface has this name, so that it becomes a capture file; did you mean 'd"),
            std::string::npos)
      << file.err;
  const Said other = sluice("run --acl edge.acl --in nothing --out d1");
  EXPECT_EQ(other.code, 3);
  EXPECT_NE(other.err.find("--in nothing: error: cannot open"), std::string::npos) << other.err;
  const Said method = sluice("run --acl edge.acl --in d0 --out d1 --port lan=eth0");
  EXPECT_EQ(method.code, 2);
  EXPECT_NE(method.err.find("NAME=METHOD:DEVICE"), std::string::npos) << method.err;
  const Said core = sluice("run --acl edge.acl --in d0 --out d1 --cores 5000");
  EXPECT_EQ(core.code, 2);
}

TEST_F(LiveRunTest, ABareNameThatIsNoInterfaceBecomesNoCaptureBesideAnInterface) {
  const auto inside = router_->enter();
  write("run.toml", "acl = \"edge.acl\"\nin = \"d0\"\nout = \"rbb\"\n");
  for (const std::string command :
       {"run --acl edge.acl --in d0 --out rbb", "run --routes rib --in d0 --out 0=d1 --out 1=rbb",
        "run --acl edge.acl --in d0 --out d7", "run --config run.toml", "check run.toml"}) {
    SCOPED_TRACE(command);
    const Said said = sluice(command);
    EXPECT_EQ(said.code, 3);
    EXPECT_NE(said.err.find("no interface has this name"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("a capture file has a '/', an extension or 'file:'"), std::string::npos) << said.err;
  }
  EXPECT_FALSE(exists("rbb"));
  EXPECT_FALSE(exists("d7"));
}

TEST_F(LiveRunTest, FilesBesideInterfacesHaveASlashAnExtensionOrAPrefix) {
  const std::string names[] = {"seen.pcap", "./seen", "file:bare", "file:d1"};
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    start("--acl edge.acl --in d0 --out " + name);
    ASSERT_TRUE(stop().is_object()) << read("log");
  }
  for (const char* name : {"seen.pcap", "seen", "bare", "d1"}) EXPECT_TRUE(exists(name)) << name;
}

TEST_F(LiveRunTest, TheLoopbackInterfaceSaysWhyItIsNoPort) {
  const auto inside = router_->enter();
  for (const char* method : {"", " --method af_packet", " --method af_xdp"}) {
    const Said said = sluice("run --acl edge.acl --in lo --out d1" + std::string(method));
    EXPECT_EQ(said.code, 3);
    EXPECT_NE(said.err.find("--in lo: error: its MTU is 65536, and a port takes 9728 at most"), std::string::npos)
        << said.err;
    EXPECT_NE(said.err.find("use a veth pair"), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("chunks"), std::string::npos) << said.err;
  }
}

TEST_F(LiveRunTest, CapabilitiesAreAskedForBeforeAnythingIsRead) {
  const auto inside = router_->enter();
  const auto without = [this](const std::string& arguments) {
    return shell("setpriv --bounding-set -net_raw --inh-caps -net_raw \"$SLUICE\" run " + arguments);
  };
  const Said said = without("--acl none --in d0 --out d1");
  EXPECT_EQ(said.code, 3);
  EXPECT_NE(said.err.find("d0: interfaces need CAP_NET_RAW"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("setcap cap_net_raw"), std::string::npos) << said.err;
  EXPECT_EQ(said.err.find("--acl none"), std::string::npos) << said.err;
  // However the port is written: a comment or a name with these words in it is not the method.
  write("named.click", "FromDevice(DEVNAME \"d0\", METHOD AF_PACKET) -> Discard;\n");
  write("comment.click", "FromDevice(d0 /* not METHOD tap, */, QUEUES 1) -> Discard;\n");
  write("last.click", "FromDevice(QUEUES 1, DEVNAME d0) -> Discard;\n");
  for (const char* file : {"named.click", "comment.click", "last.click"}) {
    const Said graph = without(file);
    EXPECT_EQ(graph.code, 3) << file << graph.err;
    EXPECT_NE(graph.err.find("error: d0: interfaces need CAP_NET_RAW"), std::string::npos) << file << graph.err;
  }
  // Those that need none, and arguments that are wrong: what is told is what comes after.
  write("tap.click", "define($HOW \"tap\");\nFromDevice(t9, METHOD $HOW) -> Discard;\nFromDump(no.pcap) -> Discard;\n");
  write("wrong.click", "FromDevice(d0, METHOD afpacket) -> Discard;\n");
  for (const auto& [file, about] : {std::pair{"tap.click", "no.pcap"}, {"wrong.click", "wrong.click:1:"}}) {
    const Said graph = without(file);
    EXPECT_NE(graph.code, 0) << file;
    EXPECT_NE(graph.err.find(about), std::string::npos) << file << graph.err;
    EXPECT_EQ(graph.err.find("interfaces need"), std::string::npos) << file << graph.err;
  }
}

}  // namespace
}  // namespace sluice
