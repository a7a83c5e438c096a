// Fields that a packet does not have: every field of a native rule, on packets that end at each byte of their layer-4
// header, as fragments and whole, against what formats.md says.
#include <fmt/format.h>

#include <functional>
#include <sstream>

#include "net/packet_builder.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

enum class Fragment { kNone, kFirst, kOffset8, kOffset16 };

struct Spec {
  bool six;
  unsigned protocol;
  unsigned l4_bytes;  // of the header that are in the packet, or of the data of a later fragment
  Fragment fragment;

  bool later() const { return fragment == Fragment::kOffset8 || fragment == Fragment::kOffset16; }
  bool tcp() const { return protocol == 6; }
  bool icmp() const { return protocol == (six ? 58u : 1u); }
  bool ports() const { return !later() && !icmp() && l4_bytes >= 4; }
  bool flags() const { return !later() && tcp() && l4_bytes >= 14; }
  bool type() const { return !later() && icmp() && l4_bytes >= 1; }
  bool code() const { return !later() && icmp() && l4_bytes >= 2; }
  bool tiny() const {
    if (fragment == Fragment::kOffset8) return tcp();
    if (fragment != Fragment::kFirst) return false;
    return tcp() ? l4_bytes < 20 : icmp() ? !code() : !ports();
  }
  std::vector<uint8_t> frame() const {
    PacketBuilder b = six ? ip6("2001:db8::1", "2001:db8:1::2", static_cast<uint8_t>(protocol))
                          : ip4("10.0.0.1", "192.0.2.7", static_cast<uint8_t>(protocol));
    b.ports(4660, 22).tcp_flags(0x02).icmp(8, 3).payload(32);
    unsigned extra = 0;
    if (fragment != Fragment::kNone) {
      b.fragment(fragment == Fragment::kOffset8    ? 8
                 : fragment == Fragment::kOffset16 ? 16
                                                   : 0,
                 fragment == Fragment::kFirst);
      extra = six ? 8 : 0;
    }
    if (six) b.payload_length(static_cast<uint16_t>(extra + l4_bytes));
    if (!six) b.total_length(static_cast<uint16_t>(20 + l4_bytes));
    return b.build();
  }
  std::string text() const {
    return fmt::format("IPv{} protocol {} with {} bytes, fragment {}", six ? 6 : 4, protocol, l4_bytes,
                       static_cast<int>(fragment));
  }
};

// A rule without its action, and the packets that it matches.
struct RuleCase {
  const char* text;
  std::function<bool(const Spec&)> matches;
};

const std::vector<RuleCase>& rules() {
  static const auto protocol = [](unsigned p) { return [p](const Spec& s) { return s.protocol == p && s.ports(); }; };
  static const auto never = [](const Spec&) { return false; };
  static const std::vector<RuleCase> all = {
      {"tcp from any to any port 22", protocol(6)},
      {"udp from any to any port 22", protocol(17)},
      {"sctp from any to any port 22", protocol(132)},
      {"dccp from any to any port 22", protocol(33)},
      {"udplite from any to any port 22", protocol(136)},
      {"from any port 4660 to any", [](const Spec& s) { return s.ports(); }},
      {"from any port 4000-5000 to any port lt 23", [](const Spec& s) { return s.ports(); }},
      {"from any to any port 0-21", never},
      {"from any port 0 to any", never},
      {"tcp from any to any flags SYN/SYN,ACK", [](const Spec& s) { return s.flags(); }},
      {"tcp from any to any flags 0x0000/0x1000", [](const Spec& s) { return s.flags(); }},
      {"tcp from any to any port 22 tcp-flags 0/16", [](const Spec& s) { return s.flags(); }},
      {"tcp from any to any flags ACK", never},
      {"tcp from any to any flags 0x0000/0x0200", never},
      {"icmp from any to any icmp-type 8", [](const Spec& s) { return !s.six && s.type(); }},
      {"icmp6 from any to any icmp-type 8", [](const Spec& s) { return s.six && s.type(); }},
      {"icmp from any to any icmp-type 8 icmp-code 3", [](const Spec& s) { return !s.six && s.code(); }},
      {"icmp6 from any to any icmp-code 3", [](const Spec& s) { return s.six && s.code(); }},
      {"icmp from any to any icmp-match 0x0000/0xf700", [](const Spec& s) { return !s.six && s.type(); }},
      {"icmp from any to any icmp-type 0", never},
      {"icmp6 from any to any icmp-type 0", never},
      {"icmp from any to any icmp-code 0", never},
      {"tcp from any to any", [](const Spec& s) { return s.tcp(); }},
      {"from any to any first-frag", [](const Spec& s) { return s.fragment == Fragment::kFirst; }},
      {"from any to any later-frag", [](const Spec& s) { return s.later(); }},
      {"from any to any no-frag", [](const Spec& s) { return s.fragment == Fragment::kNone; }},
      {"from 10.0.0.1 to any dscp 0", [](const Spec& s) { return !s.six; }},
  };
  return all;
}

class CliAbsentFieldsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    auto writer = CaptureWriter::create(path("in.pcap"));
    ASSERT_TRUE(writer.ok());
    uint64_t stamp = 1'700'000'000'000'000'000;
    for (const bool six : {false, true}) {
      for (const unsigned protocol : {6u, 17u, 132u, 33u, 136u, six ? 58u : 1u}) {
        for (const Fragment f : {Fragment::kNone, Fragment::kFirst, Fragment::kOffset8, Fragment::kOffset16}) {
          for (unsigned bytes = 0; bytes <= 24; ++bytes) {
            specs_.push_back({six, protocol, bytes, f});
            const auto frame = specs_.back().frame();
            const auto size = static_cast<uint32_t>(frame.size());
            ASSERT_TRUE(writer->append(FrameHeader{size, size, ++stamp}, frame.data()));
          }
        }
      }
    }
    ASSERT_TRUE(writer->commit().ok());
  }

  // The second and third column of --verdicts, per packet.
  std::vector<std::string> verdicts(const std::string& options) {
    const Said said = sluice("run -q --in in.pcap --out out.pcap --verdicts v.txt " + options);
    EXPECT_EQ(said.code, 0) << said.err;
    std::vector<std::string> found;
    std::istringstream in(read("v.txt"));
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string number, verdict, reason;
      fields >> number >> verdict >> reason;
      found.push_back(reason == "-" ? verdict : verdict + " " + reason);
    }
    EXPECT_EQ(found.size(), specs_.size());
    found.resize(specs_.size());
    return found;
  }

  std::vector<Spec> specs_;
};

TEST_F(CliAbsentFieldsTest, NoRuleMatchesWhatIsNotThereAndNoTinyFragmentPasses) {
  for (const RuleCase& rule : rules()) {
    for (const bool deny : {true, false}) {
      write("x.acl", fmt::format("{} {}\n", deny ? "deny" : "permit", rule.text));
      const auto found = verdicts(fmt::format("--acl x.acl --default {}", deny ? "permit" : "deny"));
      for (size_t i = 0; i < specs_.size(); ++i) {
        const bool matches = rule.matches(specs_[i]);
        const char* const want = specs_[i].tiny()  ? "deny tiny-fragment"
                                 : matches != deny ? "permit"
                                 : matches         ? "deny acl-deny"
                                                   : "deny acl-no-match";
        EXPECT_EQ(found[i], want) << (deny ? "deny " : "permit ") << rule.text << ": " << specs_[i].text();
      }
    }
  }
}

TEST_F(CliAbsentFieldsTest, ARouterAndADeviceDropTheSame) {
  write("x.acl", "deny tcp from any to any port 22\npermit from any to any\n");
  write("rib", "0.0.0.0/0 core\n::/0 core\n");
  for (const char* options : {"", " --workers 2 --batch 7", " --device emu --watchdog 20000",
                              " --device emu --records frame --watchdog 20000"}) {
    SCOPED_TRACE(options);
    const auto found = verdicts(std::string("--acl x.acl --routes rib") + options);
    for (size_t i = 0; i < specs_.size(); ++i) {
      const Spec& s = specs_[i];
      EXPECT_EQ(found[i], s.tiny()               ? "deny tiny-fragment"
                          : s.tcp() && s.ports() ? "deny acl-deny"
                                                 : "forward")
          << s.text();
    }
  }
}

TEST_F(CliAbsentFieldsTest, TinyFragmentsPassWhereTheyAreAskedFor) {
  write("x.acl", "deny tcp from any to any port 22\n");
  const auto found = verdicts("--acl x.acl --default permit --tiny-fragments");
  for (size_t i = 0; i < specs_.size(); ++i)
    EXPECT_EQ(found[i], specs_[i].tcp() && specs_[i].ports() ? "deny acl-deny" : "permit") << specs_[i].text();
}

// RFC 7112, and headers past the parser's limits: a host may take what was not read here.
TEST_F(CliAbsentFieldsTest, PacketsWhoseHeadersAreNotReadGetNoDefault) {
  PacketBuilder many = tcp6("2001:db8::1", "2001:db8:1::2").ports(1, 22), tagged = tcp4("10.0.0.1", "192.0.2.7");
  for (int i = 0; i < 9; ++i) many.destination_options();
  for (int i = 0; i < 5; ++i) tagged.vlan(7);
  const std::vector<std::vector<uint8_t>> frames = {
      many.build(), tagged.build(),
      tcp6("2001:db8::1", "2001:db8:1::2").fragment(0, true).destination_options(3).payload_length(16).build()};
  auto writer = CaptureWriter::create(path("in.pcap"));
  ASSERT_TRUE(writer.ok());
  for (const auto& frame : frames) {
    const auto size = static_cast<uint32_t>(frame.size());
    ASSERT_TRUE(writer->append(FrameHeader{size, size, 1}, frame.data()));
  }
  ASSERT_TRUE(writer->commit().ok());
  specs_.resize(frames.size());
  write("x.acl", "deny tcp from any to any port 22\n");
  EXPECT_EQ(
      verdicts("--acl x.acl --default permit"),
      (std::vector<std::string>{"drop ipv6-too-many-extension-headers", "drop too-many-vlans", "deny tiny-fragment"}));
}

TEST_F(CliAbsentFieldsTest, AhIsARuleForBothFamilies) {
  const std::vector<std::vector<uint8_t>> frames = {
      tcp6("2001:db8::1", "2001:db8:1::2").ports(1, 22).authentication().build(),
      tcp6("2001:db8::1", "2001:db8:1::2").ports(1, 22).build(), ip4("10.0.0.1", "192.0.2.7", 51).payload(24).build(),
      tcp4("10.0.0.1", "192.0.2.7").build()};
  auto writer = CaptureWriter::create(path("in.pcap"));
  ASSERT_TRUE(writer.ok());
  for (const auto& frame : frames) {
    const auto size = static_cast<uint32_t>(frame.size());
    ASSERT_TRUE(writer->append(FrameHeader{size, size, 1}, frame.data()));
  }
  ASSERT_TRUE(writer->commit().ok());
  specs_.resize(frames.size());
  const std::string yes = "permit", no = "deny acl-no-match";
  for (const char* rule : {"permit ah from any to any", "permit 51 from any to any", "proto 51 action pass"}) {
    write("x.acl", std::string(rule) + "\n");
    EXPECT_EQ(verdicts("--acl x.acl"), (std::vector<std::string>{yes, no, yes, no})) << rule;
  }
  write("x.acl", "permit ah from 10.0.0.0/8 to any\n");
  EXPECT_EQ(verdicts("--acl x.acl"), (std::vector<std::string>{no, no, yes, no}));
  write("x.acl", "permit ah from 2001:db8::/32 to any\n");
  EXPECT_EQ(verdicts("--acl x.acl"), (std::vector<std::string>{yes, no, no, no}));
}

}  // namespace
}  // namespace sluice
