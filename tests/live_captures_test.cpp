// Real captures through live ports of every method: what the other side sees is what the same graph writes offline,
// byte for byte of each flow, and nothing is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "net/bytes.h"
#include "net/packet_builder.h"
#include "net/parse.h"
#include "ports/offload.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/router_test.h"

namespace sluice::live_captures_test {
namespace {

using testing::Said;
using testing::Wire;
using Bytes = Wire::Bytes;
using Json = nlohmann::json;

constexpr size_t kBurst = 200;    // frames between two looks at what has come, fewer than any ring holds (veth: 256)
constexpr uint16_t kMarkers = 4;  // frames after a burst, each of a flow of its own, that say that it is through

// Packets whose order is kept, as far as everybody agrees on it: those of a TCP or UDP flow. Of fragments, tunnels and
// others each is alone, as senders with several queues spread them by headers of their own choice.
std::string flow_of(const Bytes& frame) {
  Headers h;
  const auto bytes = static_cast<uint32_t>(frame.size());
  const bool flow = parse_ethernet(frame.data(), bytes, bytes, h) == ParseStatus::kOk &&
                    (h.key.protocol == kProtocolTcp || h.key.protocol == kProtocolUdp) &&
                    h.l4_offset != Headers::kNoOffset && (h.key.bits & FlowKey::kFragment) == 0 &&
                    (h.flags & (Headers::kL4Truncated | Headers::kIpv4Options | Headers::kExtensionHeaders)) == 0;
  if (!flow) return std::string(frame.begin(), frame.end());
  const uint32_t addresses = h.l3_offset + (h.key.family == 4 ? 12u : 8u), ends = h.key.family == 4 ? 8 : 32;
  std::string key(1, static_cast<char>(h.key.protocol));
  key.append(frame.begin() + addresses, frame.begin() + addresses + ends);
  key.append(frame.begin() + h.l4_offset, frame.begin() + h.l4_offset + 4);
  return key;
}
using Flows = std::map<std::string, std::vector<Bytes>>;

// For gen g0 - d0 router d1 - s0 sink, and for ports without interfaces.
class LiveCapturesTest : public testing::RouterTest {
 protected:
  static void SetUpTestSuite() {
    for (const char* name :
         {"snabb/sanitized4k.pcap", "snabb/vlan-ipv6-frags.pcap", "snabb/lwaftr-stick-imix.pcap",
          "cases/4in4tunnel.pcap", "cases/QinQpacket.pcap", "cases/badpackets.pcap", "cases/dns_fragmented.pcap",
          "cases/fuzz-2006-06-26-2594.pcap", "cases/geneve.pcap", "cases/http_ipv6.pcap", "cases/icmpv6.pcap",
          "cases/iphone.pcap", "cases/ipv6-bad-version.pcap", "cases/ipv6-routing-header.pcap", "cases/mptcp-v0.pcap",
          "cases/skype.pcap", "cases/vxlan.pcap"}) {
      if (const auto file = test_data(("pcap/" + std::string(name)).c_str())) add_frames(*file);
    }
  }
  static void TearDownTestSuite() { frames().clear(); }
  static std::vector<Bytes>& frames() {
    static std::vector<Bytes> all;
    return all;
  }
  static void add_frames(const std::string& file) {
    auto reader = CaptureReader::open(file);
    if (!reader.ok()) return;  // of a link type that is no Ethernet
    for (CapturedFrame frame;;) {
      const auto more = reader->next(frame);
      if (!more.ok() || !*more) return;
      if (frame.captured < 14 || frame.captured > 1514) continue;
      Bytes bytes(frame.data, frame.data + frame.captured);
      if (is_the_kernels(bytes)) continue;
      // A sender that was captured had left checksums to its NIC, and some methods complete them.
      complete_checksum_if_partial(bytes.data(), static_cast<uint32_t>(bytes.size()));
      if ((bytes[0] & 1) == 0) std::copy_n(kToRouter, 6, bytes.begin());
      frames().push_back(std::move(bytes));
    }
  }
  // ARP, LLDP and ND do not come to a run by AF_XDP; and a tag that less than an EtherType and two bytes follow does
  // not come to a packet socket: Linux takes tags off before (skb_vlan_untag).
  static bool is_the_kernels(const Bytes& frame) {
    size_t at = 12;
    while (at + 6 <= frame.size() && (load_be16(&frame[at]) == 0x8100 || load_be16(&frame[at]) == 0x88a8)) at += 4;
    const uint16_t type = load_be16(&frame[at]);
    if (type == 0x8100 || type == 0x88a8 || (at != 12 && frame.size() < at + 4)) return true;
    return type == 0x0806 || type == 0x88cc ||
           (type == 0x86dd && frame.size() > at + 42 && frame[at + 8] == 58 && frame[at + 42] >= 133 &&
            frame[at + 42] <= 137);
  }
  static Bytes marker(uint16_t flow, uint32_t burst) {
    Bytes payload(4);
    store_be32(payload.data(), burst);
    Bytes frame =
        udp4("198.18.0.1", "198.19.0.1").ports(static_cast<uint16_t>(7000 + flow), 7).payload(payload).build();
    std::copy_n(kToRouter, 6, frame.begin());
    return frame;
  }
  static bool is_marker(const Bytes& frame) {
    return frame.size() >= 46 && load_be16(&frame[12]) == 0x0800 && load_be32(&frame[26]) == 0xc6120001;
  }

  void SetUp() override {
    RouterTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    write("edge.acl", "deny udp from any to any port 53\npermit ip from any to any\n");
    write("rib", "0.0.0.0/0 10.2.0.1\n::/0 10.2.0.1\n");
    write("adj", "10.2.0.1 02:00:00:00:00:04 02:00:00:00:00:03 0\n");
    if (frames().empty()) {
      const Said made =
          sluice("gen traffic -q --packets 3000 --flows 300 --ipv6 0.3 --vlan 0.2 --malformed 0.05 --out gen.pcap");
      ASSERT_EQ(made.code, 0) << made.err;
      add_frames(path("gen.pcap"));
    }
  }

  void write_capture(const std::string& name, const std::vector<Bytes>& all) {
    auto writer = CaptureWriter::create(path(name));
    ASSERT_TRUE(writer.ok());
    for (const Bytes& frame : all) {
      const auto bytes = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{bytes, bytes, 1}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  void add_capture(const std::string& name, Flows& flows) {
    auto reader = CaptureReader::open(path(name));
    ASSERT_TRUE(reader.ok());
    for (CapturedFrame frame;;) {
      const auto more = reader->next(frame);
      ASSERT_TRUE(more.ok());
      if (!*more) return;
      add(flows, Bytes(frame.data, frame.data + frame.captured));
    }
  }
  void add(Flows& flows, Bytes frame) {
    std::string flow = flow_of(frame);
    if (tagged_.contains(flow)) flow = std::string(frame.begin(), frame.end());
    flows[flow].push_back(std::move(frame));
  }

  // The graph of the run, with live ports in the place of captures, and what it makes of these frames offline.
  // `several_senders`: a packet socket has several queues, and Linux spreads tagged frames over them by bytes that
  // change within a flow.
  void offline(const std::vector<Bytes>& sent, bool several_senders = false) {
    write_capture("in.pcap", sent);
    if (HasFatalFailure()) return;
    const std::string run = "run --acl edge.acl --routes rib --adjacencies adj --in in.pcap --out out.pcap ";
    const Said said = sluice(run + "-o json");
    ASSERT_EQ(said.code, 0) << said.err;
    expected_ = said.json();
    wanted_.clear();
    tagged_.clear();
    for (const Bytes& frame : sent) {
      const uint16_t type = load_be16(&frame[12]);
      if (several_senders && (type == 0x8100 || type == 0x88a8)) tagged_.insert(flow_of(frame));
    }
    add_capture("out.pcap", wanted_);
    graph_ = sluice(run + "--print-graph").out;
  }
  void live_graph(const std::string& in, const std::string& out) {
    std::string text = graph_;
    for (const auto& [from, to] :
         {std::pair(std::string("in :: FromDump(in.pcap);"), in), std::pair(std::string("ToDump(out.pcap)"), out)}) {
      const size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << text;
      text.replace(at, from.size(), to);
    }
    write("live.click", text);
  }
  void expect_equal(const Flows& seen, const Json& report, size_t in_more = 0, size_t out_more = 0) {
    ASSERT_TRUE(report.is_object()) << read("log") << read("report.json");
    for (const auto& [flow, frames] : wanted_) {
      const auto at = seen.find(flow);
      ASSERT_TRUE(at != seen.end() && at->second == frames)
          << "of a flow " << (at == seen.end() ? 0 : at->second.size()) << " frames left, offline " << frames.size()
          << ": " << report.dump();
    }
    EXPECT_EQ(seen.size(), wanted_.size());
    EXPECT_EQ(report["packets_in"], expected_["packets_in"].get<size_t>() + in_more);
    EXPECT_EQ(report["packets_out"], expected_["packets_out"].get<size_t>() + out_more);
    EXPECT_EQ(report["drops"], expected_["drops"]);
    EXPECT_TRUE(report["conserved"].get<bool>());
    for (const Json& one : report.at("ports")) {
      for (const Json& rx : one["rx"])
        EXPECT_EQ(rx["missed"].get<size_t>() + rx["too_long"].get<size_t>() + rx["invalid"].get<size_t>(), 0u)
            << one.dump();
    }
  }

  // Frames of a Wire at `from` come out at `to`.
  void forward(const testing::NetNamespace& from_place, const std::string& from, const testing::NetNamespace& to_place,
               const std::string& to, const std::string& method, unsigned queues) {
    std::vector<Bytes> sent;
    for (size_t i = 0; i < frames().size(); ++i) {
      sent.push_back(frames()[i]);
      if (i % kBurst != kBurst - 1 && i + 1 != frames().size()) continue;
      for (uint16_t flow = 0; flow < kMarkers; ++flow) sent.push_back(marker(flow, static_cast<uint32_t>(i)));
    }
    offline(sent, queues > 1);
    if (HasFatalFailure()) return;
    const std::string how = ", METHOD " + method + ", QUEUES " + std::to_string(queues);
    const bool tap = method == "TAP";
    live_graph("in :: FromDevice(" + std::string(tap ? "t0" : "d0") + how + ");",
               "ToDevice(" + std::string(tap ? "t1" : "d1") + (tap ? how : how.substr(0, how.find(", XDP"))) + ")");
    if (HasFatalFailure()) return;
    start("live.click --workers " + std::to_string(queues));
    if (HasFatalFailure()) return;
    auto near = Wire::open(from_place, from), far = Wire::open(to_place, to);
    ASSERT_TRUE(near.ok() && far.ok());
    Flows seen;
    for (size_t i = 0, markers = 0; i < sent.size(); ++i) {
      ASSERT_TRUE(near->send(sent[i]));
      if (!is_marker(sent[i]) || ++markers % kMarkers != 0) continue;
      for (unsigned left = kMarkers; left != 0;) {
        auto frame = far->receive();
        ASSERT_TRUE(frame) << "of " << sent.size() << " frames " << i + 1 << " were sent: " << read("log");
        if (is_marker(*frame)) --left;
        add(seen, std::move(*frame));
      }
    }
    // With several queues a marker may have overtaken frames of another.
    const auto wanted = expected_["packets_out"].get<size_t>();
    const auto count = [&] {
      size_t n = 0;
      for (const auto& [key, all] : seen) n += all.size();
      return n;
    };
    for (size_t n = count(); n < wanted; ++n) {
      auto frame = far->receive();
      if (!frame) break;
      add(seen, std::move(*frame));
    }
    const Json report = stop();
    expect_equal(seen, report);
    ASSERT_EQ(report["ports"].size(), 2u);
    ASSERT_EQ(report["ports"][0]["rx"].size(), queues);
    // Generic XDP sees all that comes from a veth pair by its first queue.
    const bool spread = method.find("generic") == std::string::npos;
    for (const Json& rx : report.at("ports")[0].at("rx"))
      EXPECT_GE(rx["packets"], spread ? 1 : 0) << report["ports"].dump();
  }
  void forward_by_veth(const std::string& method) {
    for (const unsigned queues : {1u, 2u}) {
      SCOPED_TRACE(queues);
      if (queues != 1) lay(queues);
      if (HasFatalFailure()) return;
      forward(*gen_, "g0", *sink_, "s0", method, queues);
      if (HasFatalFailure()) return;
    }
  }
  static bool has_dpdk(const Said& said) { return said.err.find("libsluice_dpdk") == std::string::npos; }

  static constexpr uint8_t kToRouter[] = {2, 0, 0, 0, 0, 2};
  Json expected_;
  Flows wanted_;
  std::set<std::string> tagged_;  // flows whose order is not looked at
  std::string graph_;
};

TEST_F(LiveCapturesTest, AfPacket) {
  forward_by_veth("AF_PACKET");
}
TEST_F(LiveCapturesTest, AfXdpNative) {
  forward_by_veth("AF_XDP, XDP native");
}
TEST_F(LiveCapturesTest, AfXdpGeneric) {
  forward_by_veth("AF_XDP, XDP generic");
}
TEST_F(LiveCapturesTest, Tap) {
  for (const unsigned queues : {1u, 2u}) {
    SCOPED_TRACE(queues);
    const std::string many = queues == 1 ? "" : " multi_queue";
    for (const char* name : {"t0", "t1"}) {
      const auto made =
          router_->run("ip tuntap add mode tap name " + std::string(name) + many + " && ip link set " + name + " up");
      ASSERT_TRUE(made.ok()) << to_string(made.error());
    }
    forward(*router_, "t0", *router_, "t1", "TAP", queues);
    if (HasFatalFailure()) return;
    ASSERT_TRUE(router_->run("ip link del t0 && ip link del t1").ok());
  }
}

TEST_F(LiveCapturesTest, DpdkCaptures) {
  offline(frames());
  if (HasFatalFailure()) return;
  const size_t packets = frames().size();
  for (const unsigned queues : {1u, 2u}) {
    SCOPED_TRACE(queues);
    // A flow has one queue: with several, each has a capture of its own.
    std::vector<std::vector<Bytes>> parts(queues);
    for (const Bytes& frame : frames()) parts[std::hash<std::string>()(flow_of(frame)) % queues].push_back(frame);
    std::string in = "net_pcap0", out = "net_pcap1";
    for (unsigned q = 0; q < queues; ++q) {
      const std::string name = std::to_string(q) + ".pcap";
      write_capture("in" + name, parts[q]);
      in += ",rx_pcap=" + path("in" + name);
      out += ",tx_pcap=" + path("out" + name);
    }
    const std::string how = ", N_QUEUES " + std::to_string(queues);
    live_graph("in :: FromDPDKDevice(\"" + in + "\"" + how + ");", "ToDPDKDevice(\"" + out + "\"" + how + ")");
    if (HasFatalFailure()) return;
    const Said said = sluice("run live.click --workers " + std::to_string(queues) + " --limit " +
                             std::to_string(packets) + " -o json");
    if (!has_dpdk(said)) GTEST_SKIP() << said.err;
    ASSERT_EQ(said.code, 0) << said.err;
    Flows seen;
    for (unsigned q = 0; q < queues; ++q) add_capture("out" + std::to_string(q) + ".pcap", seen);
    expect_equal(seen, said.json());
  }
}

// A ring that is its own other end, which holds 1,023 frames.
TEST_F(LiveCapturesTest, DpdkRing) {
  constexpr size_t kRing = 1000;
  const size_t some = std::min(kRing, frames().size());
  for (const unsigned workers : {1u, 2u}) {
    SCOPED_TRACE(workers);
    for (size_t from = 0; from < std::min<size_t>(frames().size(), (workers == 1 ? 3 : 1) * kRing); from += kRing) {
      const std::vector<Bytes> part(frames().begin() + static_cast<long>(from),
                                    frames().begin() + static_cast<long>(std::min(frames().size(), from + some)));
      offline(part);
      if (HasFatalFailure()) return;
      live_graph("FromDump(in.pcap) -> ToDPDKDevice(net_ring0);\nin :: FromDPDKDevice(net_ring0);",
                 "ToDump(live.pcap)");
      if (HasFatalFailure()) return;
      const Said said = sluice("run live.click --workers " + std::to_string(workers) + " --limit " +
                               std::to_string(2 * part.size()) + " -o json");
      if (!has_dpdk(said)) GTEST_SKIP() << said.err;
      ASSERT_EQ(said.code, 0) << said.err;
      Flows seen;
      add_capture("live.pcap", seen);
      expect_equal(seen, said.json(), part.size(), part.size());
    }
  }
}

}  // namespace
}  // namespace sluice::live_captures_test
