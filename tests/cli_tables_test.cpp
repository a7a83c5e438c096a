// classify, route, compile, tables, gen, check and explain against oracles that the test computes itself.
#include <fmt/format.h>

#include <random>

#include "base/test_data.h"
#include "net/flow_key.h"
#include "net/packet_builder.h"
#include "net/text.h"
#include "ports/pcap/capture_writer.h"
#include "tests/testing/run_sluice.h"

namespace sluice {
namespace {

using testing::CliTest;
using testing::Said;

struct Rule {
  uint32_t src, src_length, dst, dst_length, sport_low, sport_high, dport_low, dport_high, protocol, mask;
};
struct Key {
  uint32_t src, dst, sport, dport, protocol;
};

std::string dotted(uint32_t a) {
  return to_string(IpAddress{0, a, 4});
}

class CliTablesTest : public CliTest {
 protected:
  // Rules over a small space, so that most keys meet several; comments and blank lines between do not count.
  void make_rules(unsigned n) {
    std::string text = "# a comment\n\n";
    for (unsigned i = 0; i < n; ++i) {
      Rule r{};
      r.src_length = random_() % 3 == 0 ? 0 : 24 + random_() % 9;
      r.dst_length = random_() % 3 == 0 ? 0 : 24 + random_() % 9;
      r.src = 0x0a000000u | (random_() & 0x3ff);
      r.dst = 0xc0a80000u | (random_() & 0x3ff);
      r.sport_high = 65535;
      r.dport_low = random_() % 100;
      r.dport_high = r.dport_low + random_() % 100;
      r.protocol = random_() % 2 == 0 ? 6 : 17;
      r.mask = random_() % 4 == 0 ? 0 : 255;
      rules_.push_back(r);
      char line[200];
      std::snprintf(line, sizeof line, "@%s/%u\t%s/%u\t%u : %u\t%u : %u\t0x%02x/0x%02x\n", dotted(r.src).c_str(),
                    r.src_length, dotted(r.dst).c_str(), r.dst_length, r.sport_low, r.sport_high, r.dport_low,
                    r.dport_high, r.protocol, r.mask);
      text += line;
      if (i % 10 == 9) text += "\n# between\n";
    }
    write("rules", text);
  }
  void make_keys(unsigned n) {
    std::string text;
    for (unsigned i = 0; i < n; ++i) {
      Key k{0x0a000000u | static_cast<uint32_t>(random_() & 0x3ff),
            0xc0a80000u | static_cast<uint32_t>(random_() & 0x3ff), static_cast<uint32_t>(random_() % 65536),
            static_cast<uint32_t>(random_() % 220), random_() % 2 == 0 ? 6u : 17u};
      keys_.push_back(k);
      text += std::to_string(k.src) + "\t" + std::to_string(k.dst) + "\t" + std::to_string(k.sport) + "\t" +
              std::to_string(k.dport) + "\t" + std::to_string(k.protocol) + "\n";
    }
    write("trace", text);
  }
  static bool covers(uint32_t prefix, uint32_t length, uint32_t a) {
    return length == 0 || (prefix >> (32 - length)) == (a >> (32 - length));
  }
  unsigned first_match(const Key& k) const {
    for (size_t i = 0; i < rules_.size(); ++i) {
      const Rule& r = rules_[i];
      if (covers(r.src, r.src_length, k.src) && covers(r.dst, r.dst_length, k.dst) && k.sport >= r.sport_low &&
          k.sport <= r.sport_high && k.dport >= r.dport_low && k.dport <= r.dport_high &&
          (k.protocol & r.mask) == (r.protocol & r.mask)) {
        return static_cast<unsigned>(i + 1);
      }
    }
    return 0;
  }
  std::string expected() const {
    std::string text;
    for (const Key& k : keys_) text += std::to_string(first_match(k)) + "\n";
    return text;
  }

  std::mt19937 random_{20240131};
  std::vector<Rule> rules_;
  std::vector<Key> keys_;
};

TEST_F(CliTablesTest, ClassifyGivesTheFirstMatchForEveryAlgorithmWorkerAndImage) {
  make_rules(200);
  make_keys(9000);
  const std::string want = expected();
  ASSERT_NE(want.find("0\n"), std::string::npos);
  for (const char* options : {"", "--algorithm linear", "--algorithm tuple_space", "--algorithm bitvec", "--workers 3",
                              "--device auto", "--format classbench"}) {
    const Said said = sluice(std::string("classify --rules rules --trace trace ") + options);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(said.out == want) << options;
  }
  EXPECT_EQ(sluice("classify --rules rules --trace trace --out verdicts").code, 0);
  EXPECT_EQ(read("verdicts"), want);
  EXPECT_EQ(sluice("compile --acl rules --out rules.img").code, 0);
  EXPECT_EQ(sluice("classify --rules rules.img --trace trace").out, want);
  EXPECT_EQ(shell("\"$SLUICE\" classify --rules rules --trace - < trace").out, want);
}

TEST_F(CliTablesTest, ClassifyJsonCountsWhatItFound) {
  make_rules(50);
  make_keys(500);
  const Said said = sluice("classify --rules rules --trace trace -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto json = said.json();
  uint64_t matched = 0;
  for (const Key& k : keys_) matched += first_match(k) != 0 ? 1 : 0;
  EXPECT_EQ(json["packets"], 500);
  EXPECT_EQ(json["matched"], matched);
  EXPECT_EQ(json["rules"], 50);
  EXPECT_EQ(json["algorithm"], sluice("tables rules -o json").json()["tables"][0]["auto"]["cpu"]["algorithm"]);
  ASSERT_EQ(json["results"].size(), 500u);
  for (size_t i = 0; i < 500; ++i) EXPECT_EQ(json["results"][i], first_match(keys_[i]));
  EXPECT_TRUE(said.err.empty()) << said.err;
}

// A negated rule and a chain are several rules of the list, and one of the file.
TEST_F(CliTablesTest, CheckFindsWrittenRulesOfFiltersThatCanGo) {
  write("fw.save",
        "# Generated by ip6tables-save v1.8.9\n*filter\n:FORWARD ACCEPT [0:0]\n:own - [0:0]\n"
        "-A FORWARD -p udp -j own\n-A FORWARD ! -s 2001:db8::1/128 -j DROP\n"
        "-A FORWARD -s 2001:db8::2/128 -j ACCEPT\n-A FORWARD -p tcp -m tcp --dport 22 -j DROP\n"
        "-A own -s 2001:db8::3/128 -j RETURN\n-A own -d 2001:db8::4/128 -j ACCEPT\n"
        "-A own -s 2001:db8::5/128 -d 2001:db8::4/128 -j DROP\nCOMMIT\n");
  const Said said = sluice("check --rules fw.save --shadowed -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto report = said.json()["shadowed"];
  ASSERT_EQ(report["findings"].size(), 2u) << said.out;
  std::map<int, std::string> found;
  for (const auto& one : report["findings"]) found[one["line"].get<int>()] = one["finding"].get<std::string>();
  EXPECT_EQ(found, (std::map<int, std::string>{{7, "shadowed"}, {11, "shadowed"}})) << said.out;
  // An image of the list has the same findings.
  ASSERT_EQ(sluice("compile --acl fw.save --out fw.img -q").code, 0);
  EXPECT_EQ(sluice("check --rules fw.img --shadowed -o json").json()["shadowed"]["findings"], report["findings"]);
  // Whose packets they are is said by the lines that decide them.
  const auto line = [&](const std::string& packet) {
    const Said why = sluice("explain --packet 'ip6 " + packet + "' --acl fw.save -o json");
    return why.json()["acl"]["match"]["line"].get<int>();
  };
  EXPECT_EQ(line("2001:db8::9 > 2001:db8::4 udp 1 > 2"), 10);
  EXPECT_EQ(line("2001:db8::3 > 2001:db8::4 udp 1 > 2"), 6);
  EXPECT_EQ(line("2001:db8::1 > 2001:db8::9 tcp 1 > 22"), 8);
  EXPECT_EQ(line("2001:db8::1 > 2001:db8::9 tcp 1 > 23"), 3);
}

TEST_F(CliTablesTest, CheckFindsRulesThatCanGo) {
  write("list.acl",
        "permit tcp from 10.0.0.0/8 to any\n# between\ndeny tcp from 10.1.0.0/16 to any port 22\n"
        "permit udp from 10.1.0.0/16 to any\npermit udp from 10.0.0.0/8 to any\n");
  const Said said = sluice("check --rules list.acl --shadowed -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto report = said.json()["shadowed"];
  EXPECT_EQ(report["shadowed"], 1);
  EXPECT_EQ(report["redundant"], 1);
  EXPECT_EQ(report["not_decided"], 0);
  ASSERT_EQ(report["findings"].size(), 2u);
  const auto &shadowed = report["findings"][0], &redundant = report["findings"][1];
  EXPECT_EQ(shadowed["finding"], "shadowed");
  EXPECT_EQ(shadowed["file"], "list.acl");
  EXPECT_EQ(shadowed["line"], 3);
  EXPECT_EQ(shadowed["conflict"], true);
  EXPECT_EQ(shadowed["by"][0]["line"], 1);
  EXPECT_EQ(shadowed["by"][0]["text"], "permit tcp from 10.0.0.0/8 to any");
  EXPECT_EQ(redundant["line"], 4);
  EXPECT_EQ(redundant["by"][0]["line"], 5);
  const Said text = sluice("check --rules list.acl --shadowed");
  EXPECT_NE(text.out.find("shadowed    list.acl:3: deny tcp"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("list.acl:1: permit tcp"), std::string::npos) << text.out;
  // A last rule that denies is nothing new where what matches no rule is denied.
  write("last.acl", "permit tcp from any to any\ndeny from any to any\n");
  EXPECT_EQ(sluice("check --rules last.acl --shadowed -o json").json()["shadowed"]["redundant"], 0);
  EXPECT_EQ(sluice("check --rules last.acl --shadowed --default deny -o json").json()["shadowed"]["redundant"], 1);
  EXPECT_EQ(sluice("check --shadowed --routes last.acl").code, 2);
  // From an image too, by what it keeps of the file.
  ASSERT_EQ(sluice("compile --acl list.acl --out list.img").code, 0);
  EXPECT_EQ(sluice("check --rules list.img --shadowed -o json").json()["shadowed"]["findings"], report["findings"]);
}

TEST_F(CliTablesTest, ReadsFiltersOfOtherPrograms) {
  write("trace", "167772161\t3221225985\t40000\t22\t6\n16843009\t3221225985\t40000\t22\t6\n");
  write("fw",
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n-A INPUT -j DROP\n"
        "-A FORWARD ! -s 10.0.0.0/8 -p tcp -m tcp --dport 22 -j DROP\nCOMMIT\n");
  const Said chosen = sluice("classify --rules fw --trace trace");
  EXPECT_EQ(chosen.code, 0);
  EXPECT_NE(chosen.err.find("warning: fw: read: FORWARD; not read: INPUT"), std::string::npos) << chosen.err;
  EXPECT_EQ(chosen.out, sluice("classify --rules fw --format iptables:FORWARD --trace trace").out);
  const Said forward = sluice("classify --rules fw --format iptables:FORWARD --trace trace -o json");
  ASSERT_EQ(forward.code, 0) << forward.err;
  EXPECT_EQ(forward.json()["format"], "iptables");
  for (const auto& [source, verdict] :
       {std::pair{"10.0.0.1", "verdict    passed"}, std::pair{"1.1.1.1", "dropped: acl-deny"}}) {
    const Said why = sluice(std::string("explain --acl fw --format iptables:FORWARD --packet 'tcp ") + source +
                            ":40000 > 192.0.2.1:22'");
    EXPECT_NE(why.out.find(verdict), std::string::npos) << why.out << why.err;
  }
  const Said wrong = sluice("classify --rules fw --format iptable --trace trace");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("did you mean 'iptables'?"), std::string::npos) << wrong.err;
  write("vpp", "set acl-plugin acl deny src 10.0.0.0/8 proto 6 dport 22, permit\n");
  EXPECT_EQ(sluice("classify --rules vpp --trace trace").out, "1\n2\n");
  write("nft",
        R"({"nftables": [{"chain": {"family": "ip", "table": "t", "name": "c", "type": "filter", "hook": "forward"}},
{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip",
 "field": "saddr"}}, "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}}, {"drop": null}]}}]})");
  EXPECT_EQ(sluice("classify --rules nft --trace trace").out, "1\n2\n");
  EXPECT_EQ(sluice("classify --rules nft --format nft:t/c --trace trace").out, "1\n2\n");
}

TEST_F(CliTablesTest, EveryFrameOfACaptureGetsALine) {
  write("rules", "permit udp from 10.0.0.0/8 to any port 53\ndeny ip from any to any\n");
  auto writer = CaptureWriter::create(path("in.pcap"));
  ASSERT_TRUE(writer.ok());
  auto add = [&](const std::vector<uint8_t>& f) {
    ASSERT_TRUE(
        writer->append(FrameHeader{static_cast<uint32_t>(f.size()), static_cast<uint32_t>(f.size()), 1}, f.data()));
  };
  add(udp4("10.0.0.1", "8.8.8.8").ports(999, 53).build());
  add(udp4("11.0.0.1", "8.8.8.8").ports(999, 53).build());
  add(PacketBuilder::ether(0x0806).payload(46).build());
  add(udp4("10.0.0.1", "8.8.8.8").ports(999, 53).bad_ip_checksum().build());
  add(udp6("2001:db8::1", "2001:db8::2").build());
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(sluice("classify --rules rules --in in.pcap").out, "1\n2\n0\n0\n2\n");
  write("routes", "8.0.0.0/8 east\n8.8.8.0/24 west\n2001:db8::/32 six\n");
  EXPECT_EQ(sluice("route --routes routes --in in.pcap").out, "west\nwest\n-\n-\nsix\n");
}

TEST_F(CliTablesTest, RouteGivesTheLongestPrefixAsWritten) {
  struct Route {
    uint32_t address, length;
    std::string hop;
  };
  std::vector<Route> routes;
  std::string text;
  for (unsigned i = 0; i < 400; ++i) {
    Route r{static_cast<uint32_t>(random_()) & 0x0fffffff, 4 + static_cast<uint32_t>(random_() % 29),
            "hop-" + std::to_string(random_() % 20)};
    r.address &= ~uint32_t{0} << (32 - r.length);
    bool twice = false;
    for (const Route& other : routes) twice |= other.address == r.address && other.length == r.length;
    if (twice) continue;
    routes.push_back(r);
    text += dotted(r.address) + "/" + std::to_string(r.length) + " " + r.hop + "\n";
  }
  write("rib4", text);
  write("rib6", "2001:db8::/32 via-six\n2001:db8:1::/48 2001:db8::9\n");
  std::string addresses = "# addresses\n\n", want;
  for (unsigned i = 0; i < 5000; ++i) {
    const auto a = static_cast<uint32_t>(random_()) & 0x1fffffff;
    const Route* best = nullptr;
    for (const Route& r : routes) {
      if (covers(r.address, r.length, a) && (best == nullptr || r.length > best->length)) best = &r;
    }
    addresses += dotted(a) + "\n";
    want += (best != nullptr ? best->hop : "-") + "\n";
    if (i % 1000 == 0) {
      addresses += "2001:db8:1::5\n2001:db8:2::5\n2002::\n";
      want += "2001:db8::9\nvia-six\n-\n";
    }
  }
  write("addresses", addresses);
  for (const char* options :
       {"", "--algorithm dir24", "--algorithm poptrie", "--algorithm trie", "--algorithm dir24,trie", "--workers 2"}) {
    const Said said = sluice(std::string("route --routes rib4,rib6 --addresses addresses ") + options);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(said.out == want) << options;
  }
  EXPECT_EQ(sluice("compile --routes rib4,rib6 --out rib.img").code, 0);
  EXPECT_EQ(sluice("route --routes rib.img --addresses addresses --out hops").code, 0);
  EXPECT_EQ(read("hops"), want);
  const auto json = sluice("route --routes rib4,rib6 --addresses addresses -o json").json();
  EXPECT_EQ(json["addresses"], 5015);
  EXPECT_EQ(json["results"][0].is_null(), want[0] == '-');
}

TEST_F(CliTablesTest, TablesDescribesAndFlagsDamage) {
  make_rules(30);
  write("rib", "10.0.0.0/8 a\n2001:db8::/32 b\n");
  ASSERT_EQ(sluice("compile --acl rules --out rules.img").code, 0);
  ASSERT_EQ(sluice("compile --routes rib --out rib.img").code, 0);
  write("adj", "a 02:00:00:00:00:01 02:00:00:00:00:02 1\nb 02:00:00:00:00:03 02:00:00:00:00:02 2\n");
  ASSERT_EQ(sluice("compile --adjacencies adj --routes rib --out adj.img").code, 0);
  const auto json = sluice("tables rules rules.img rib rib.img adj.img -o json").json();
  ASSERT_EQ(json["tables"].size(), 5u);
  EXPECT_EQ(json["tables"][0]["rules"], 30);
  EXPECT_EQ(json["tables"][1]["rules"], 30);
  EXPECT_EQ(json["tables"][1]["format"], "image");
  EXPECT_EQ(json["tables"][2]["routes4"], 1);
  EXPECT_EQ(json["tables"][2]["routes6"], 1);
  EXPECT_EQ(json["tables"][3]["next_hops"], 2);
  EXPECT_EQ(json["tables"][4]["adjacencies"], 2);
  write("empty.trace", "");
  const Said mixed = sluice("classify --rules rib.img --trace empty.trace");
  EXPECT_EQ(mixed.code, 1);
  EXPECT_NE(mixed.err.find("an image of routes, expected one of an access list"), std::string::npos) << mixed.err;
  std::string damaged = read("rules.img");
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  write("damaged.img", damaged);
  const Said said = sluice("tables rules.img damaged.img -o json");
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.json()["tables"][0]["valid"], true);
  EXPECT_EQ(said.json()["tables"][1]["valid"], false);
  const auto algorithms = sluice("tables --algorithms -o json").json();
  EXPECT_GE(algorithms["acl"].size(), 2u);
  EXPECT_GE(algorithms["routes"].size(), 3u);
}

TEST_F(CliTablesTest, GenIsTheSameForASeedAndReadsBack) {
  EXPECT_EQ(sluice("gen rules --shape fw --count 300 --seed 5 --out a").code, 0);
  EXPECT_EQ(shell("\"$SLUICE\" gen rules --shape fw --count 300 --seed 5 > b").code, 0);
  EXPECT_EQ(read("a"), read("b"));
  EXPECT_EQ(sluice("gen rules --shape fw --count 300 --seed 6 --out c").code, 0);
  EXPECT_NE(read("a"), read("c"));
  EXPECT_EQ(sluice("check --rules a -o json").json()["rules"], 300);
  EXPECT_EQ(sluice("gen rules --count 200 --ipv6 0.5 --out mixed").code, 0);
  EXPECT_EQ(sluice("check --rules mixed -o json").json()["rules"], 200);
  EXPECT_EQ(sluice("gen trace --rules a --packets 1000 --out t").code, 0);
  const auto verdicts = sluice("classify --rules a --trace t -o json").json();
  EXPECT_EQ(verdicts["packets"], 1000);
  EXPECT_EQ(verdicts["matched"], 1000);
  // Both languages say the same rules, TCP flags included.
  EXPECT_EQ(sluice("gen rules --count 300 --language classbench --out cb").code, 0);
  EXPECT_EQ(sluice("gen rules --count 300 --language native --out nat").code, 0);
  EXPECT_NE(read("nat").find(" flags 0x"), std::string::npos);
  EXPECT_EQ(sluice("gen trace --rules cb --packets 2000 --out u").code, 0);
  EXPECT_EQ(sluice("classify --rules cb --trace u").out, sluice("classify --rules nat --trace u").out);
  EXPECT_EQ(sluice("gen routes --ipv4 500 --ipv6 300 --out r").code, 0);
  const auto routes = sluice("check --routes r -o json").json();
  EXPECT_EQ(routes["routes4"], 500);
  EXPECT_EQ(routes["routes6"], 300);
  const auto traffic =
      sluice("gen traffic --rules a --packets 2000 --flows 50 --malformed 0.1 --out t.pcap -o json").json();
  EXPECT_EQ(traffic["packets"], 2000);
  EXPECT_GT(traffic["malformed"], 100);
  EXPECT_EQ(sluice("classify --rules a --in t.pcap").lines().size(), 2000u);
}

TEST_F(CliTablesTest, GenRulesLikeAFileKeepsItsShares) {
  std::string edge = "# what is ours\n";
  for (int i = 0; i < 40; ++i)
    edge += i % 4 == 0 ? fmt::format("deny udp from 10.{}.0.0/16 to 0.0.0.0/0 port 53\n", i)
                       : fmt::format("permit tcp from 10.{}.7.0/24 to 192.0.2.0/24 port {}\n", i, 80 + i % 3);
  write("edge.acl", edge);
  const auto lines_of = [&](const std::string& name) {
    std::vector<std::string> lines;
    std::istringstream in(read(name));
    for (std::string line; std::getline(in, line);) {
      if (!line.empty() && line[0] != '#') lines.push_back(line);
    }
    return lines;
  };
  EXPECT_EQ(sluice("gen rules --like edge.acl --count 400 --seed 3 --out big").code, 0);
  EXPECT_EQ(shell("\"$SLUICE\" gen rules --like edge.acl --count 400 --seed 3 > again").code, 0);
  EXPECT_EQ(read("big"), read("again"));
  EXPECT_EQ(sluice("gen rules --like edge.acl --count 400 --seed 4 --out other").code, 0);
  EXPECT_NE(read("big"), read("other"));
  const auto all = lines_of("big");
  EXPECT_EQ(sluice("check --rules big -o json").json()["rules"], 400);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 400u) << "no rule twice";
  const auto count = [&](const std::string& begin, const std::string& in, const std::string& end) {
    return std::count_if(all.begin(), all.end(), [&](const std::string& l) {
      return l.starts_with(begin) && l.find(in) != std::string::npos && l.ends_with(end);
    });
  };
  EXPECT_EQ(count("deny udp from ", "/16 to 0.0.0.0/0", " port 53"), 100);
  EXPECT_EQ(count("permit tcp from ", "/24 to ", ""), 300);
  EXPECT_EQ(count("permit tcp ", "", " port 80") + count("permit tcp ", "", " port 81") +
                count("permit tcp ", "", " port 82"),
            300);
  for (const std::string& line : lines_of("edge.acl"))
    EXPECT_EQ(std::count(all.begin(), all.end(), line), 1) << "a larger list has the rules of the file: " << line;
  // A smaller one is a sample, in order.
  EXPECT_EQ(sluice("gen rules --like edge.acl --count 10 --out few").code, 0);
  const auto few = lines_of("few"), whole = lines_of("edge.acl");
  EXPECT_EQ(few.size(), 10u);
  auto at = whole.begin();
  for (const std::string& line : few) {
    at = std::find(at, whole.end(), line);
    ASSERT_NE(at, whole.end()) << line;
  }
  // In the language of the file, unless another is asked for.
  EXPECT_EQ(sluice("gen rules --count 50 --out cb").code, 0);
  EXPECT_EQ(sluice("gen rules --like cb --count 100 --out cb2").code, 0);
  EXPECT_EQ(read("cb2")[0], '@');
  EXPECT_EQ(sluice("gen rules --like cb --count 100 --language native --out native").code, 0);
  EXPECT_NE(read("native")[0], '@');
  EXPECT_EQ(sluice("check --rules native -o json").json()["rules"], 100);
  write("none.acl", "# nothing\n");
  const Said none = sluice("gen rules --like none.acl --count 10");
  EXPECT_NE(none.code, 0);
  EXPECT_FALSE(none.err.empty());
}

TEST_F(CliTablesTest, CompressedRulesAreRules) {
  write("edge.acl", "define web = 80, 443\npermit tcp from any to any port web\ndeny from any to any\n");
  write("rib", "10.0.0.0/8 a\n");
  EXPECT_EQ(sluice("gen traffic --rules edge.acl --packets 500 --out t.pcap").code, 0);
  EXPECT_EQ(shell("gzip -n < edge.acl > packed && gzip -n < rib > packed-rib").code, 0);
  const Said plain = sluice("classify --rules edge.acl --in t.pcap");
  EXPECT_EQ(plain.lines().size(), 500u);
  EXPECT_EQ(sluice("classify --rules packed --in t.pcap").out, plain.out);
  EXPECT_EQ(sluice("classify --rules - --in t.pcap < packed").out, plain.out);
  const auto described = sluice("tables packed packed-rib -o json");
  EXPECT_EQ(described.code, 0) << described.err;
  EXPECT_EQ(sluice("compile --acl packed --out packed.img").code, 0);
  EXPECT_EQ(sluice("classify --rules packed.img --in t.pcap").out, plain.out);
  const auto run = sluice("run --acl packed --in t.pcap --out o.pcap -o json").json();
  EXPECT_EQ(run["packets_in"], 500) << run;
  const Said why = sluice("explain --packet 'ip 10.0.0.1 > 8.8.8.8 tcp 1 > 443' --acl packed");
  EXPECT_NE(why.out.find("permit tcp from any to any port web"), std::string::npos) << why.out << why.err;
}

TEST_F(CliTablesTest, ExplainNamesTheRuleTheNearMissAndTheRoute) {
  write("edge.acl",
        "# edge\npermit tcp from 10.0.0.0/8 to any port 443\ndeny udp from any to any\npermit tcp from 10.0.0.0/8 to "
        "any port 80\n");
  write("rib", "8.0.0.0/8 isp1\n8.8.8.0/24 isp2\n");
  write("adj", "isp2 02:00:00:00:00:22 02:00:00:00:00:01 7\nisp1 drop\n");
  const Said said = sluice(
      "explain --packet 'ip 10.0.0.1 > 8.8.8.8 tcp 1234 > 80 flags S' --acl edge.acl --routes rib --adjacencies adj -o "
      "json");
  ASSERT_EQ(said.code, 0) << said.err;
  const auto json = said.json();
  EXPECT_EQ(json["acl"]["match"]["rule"], 3);
  EXPECT_EQ(json["acl"]["match"]["line"], 4);
  EXPECT_EQ(json["acl"]["match"]["text"], "permit tcp from 10.0.0.0/8 to any port 80");
  EXPECT_EQ(json["acl"]["algorithms"]["linear"], 3);
  EXPECT_EQ(json["acl"]["algorithms"]["tuple_space"], 3);
  EXPECT_EQ(json["acl"]["near_misses"][0]["fails"], "tcp is not udp");
  EXPECT_EQ(json["acl"]["near_misses"][1]["fails"], "destination port 80 is not 443");
  EXPECT_EQ(json["route"]["prefix"], "8.8.8.0/24");
  EXPECT_EQ(json["route"]["next_hop"], "isp2");
  EXPECT_EQ(json["adjacency"]["destination"], "02:00:00:00:00:22");
  EXPECT_EQ(json["verdict"]["forwarded"], true);
  EXPECT_EQ(json["verdict"]["port"], 7);
  EXPECT_EQ(json["edits"]["ttl"]["to"], 63);
  auto verdict = [&](const std::string& packet) {
    return sluice("explain --packet '" + packet + "' --acl edge.acl --routes rib --adjacencies adj -o json")
        .json()["verdict"];
  };
  EXPECT_EQ(verdict("ip 10.0.0.1 > 8.8.8.8 udp 1 > 80")["reason"], "acl-deny");
  EXPECT_EQ(verdict("ip 11.0.0.1 > 8.8.8.8 tcp 1 > 80")["reason"], "acl-no-match");
  EXPECT_EQ(verdict("ip 10.0.0.1 > 9.8.8.8 tcp 1 > 80")["reason"], "no-route");
  EXPECT_EQ(verdict("ip 10.0.0.1 > 8.8.8.8 tcp 1 > 80 ttl 1")["reason"], "ttl-expired");
  EXPECT_EQ(verdict("ip 10.0.0.1 > 8.9.8.8 tcp 1 > 80")["reason"], "route-drop");
  EXPECT_EQ(verdict("ip 127.0.0.1 > 8.8.8.8 tcp 1 > 80")["reason"], "martian-source");
  // What the standard graph fragments.
  write("adj", "isp2 02:00:00:00:00:22 02:00:00:00:00:01 7 mtu 1500\n");
  EXPECT_EQ(verdict("ip 10.0.0.1 > 8.8.8.8 tcp 1 > 80 len 3000")["fragments"], 3);
  EXPECT_EQ(verdict("ip 10.0.0.1 > 8.8.8.8 tcp 1 > 80 len 3000 df")["reason"], "too-big");
}

// In the words of rules and captures, and a line that makes several rules is one near miss.
TEST_F(CliTablesTest, ExplainWritesAsRulesAreWritten) {
  write("edge.acl",
        "permit tcp from any to any port 22\npermit tcp from any to any port 80,443,8080-8090\n"
        "permit tcp from any port 7 to any flags SYN/SYN,ACK\npermit udp from any to any\n");
  const auto ask = [&](const std::string& packet) {
    return sluice("explain --near 10 --packet '" + packet + "' --acl edge.acl").out;
  };
  const std::string tcp = ask("ip 10.0.0.1 > 8.8.8.8 tcp 1234 > 25 flags SA");
  EXPECT_NE(tcp.find("packet     ip 10.0.0.1 > 8.8.8.8 tcp 1234 > 25 flags SA, ttl 64, "), std::string::npos) << tcp;
  EXPECT_NE(tcp.find("because destination port 25 is not 22\n"), std::string::npos) << tcp;
  EXPECT_NE(tcp.find("because tcp is not udp\n"), std::string::npos) << tcp;
  size_t misses = 0;
  for (size_t at = tcp.find("near miss"); at != std::string::npos; at = tcp.find("near miss", at + 1)) ++misses;
  EXPECT_EQ(misses, 3u) << tcp;
  const std::string range = ask("ip 10.0.0.1 > 8.8.8.8 tcp 1234 > 25 flags S");
  EXPECT_NE(range.find("because source port 1234 is not 7\n"), std::string::npos) << range;
  EXPECT_NE(range.find("because destination port 25 is not in 8080-8090\n"), std::string::npos) << range;
  const std::string flags = ask("ip 10.0.0.1 > 8.8.8.8 tcp 7 > 25 flags SA");
  EXPECT_NE(flags.find("because of the flags SA it needs S, and the packet has SA\n"), std::string::npos) << flags;
  EXPECT_NE(ask("ip 10.0.0.1 > 8.8.8.8 icmp 8 0").find("packet     ip 10.0.0.1 > 8.8.8.8 icmp 8 0, "),
            std::string::npos);
  EXPECT_NE(ask("ip 10.0.0.1 > 8.8.8.8 proto 47").find("> 8.8.8.8 proto 47, "), std::string::npos);
}

// A gateway of one link is told from that of another, from the text of the routes to the frame.
TEST_F(CliTablesTest, LinkLocalNextHopsGoByTheirInterface) {
  write("rib", "10.1.0.0/16 via inet6 fe80::1 dev eth0\n10.2.0.0/16 via inet6 fe80::1 dev eth1\n");
  write("adj",
        "fe80::1%eth0 02:00:00:00:00:0a 02:00:00:00:00:01 1\nfe80::1%eth1 02:00:00:00:00:0b 02:00:00:00:00:02 2\n");
  write("addresses", "10.1.0.1\n10.2.0.1\n");
  const std::string names = "fe80::1%eth0\nfe80::1%eth1\n";
  EXPECT_EQ(sluice("route -q --routes rib --addresses addresses").out, names);
  EXPECT_EQ(sluice("compile -q --routes rib --out rib.img").code, 0);
  EXPECT_EQ(sluice("route -q --routes rib.img --addresses addresses").out, names);
  for (const char* routes : {"rib", "rib.img"}) {
    for (const int link : {1, 2}) {
      const auto json = sluice("explain --packet 'ip 10.0.0.1 > 10." + std::to_string(link) +
                               ".0.1 udp 1 > 2' --adjacencies adj -o json --routes " + routes)
                            .json();
      EXPECT_EQ(json["verdict"]["port"], link) << routes;
    }
  }
  EXPECT_NE(sluice("route --routes rib --adjacencies adj --explain 10.2.0.1").out.find("fe80::1%eth1: as configured"),
            std::string::npos);
  EXPECT_NE(sluice("route --routes rib --explain 10.2.0.1").out.find("fe80::1%eth1: synthetic"), std::string::npos);
  // Who wrote the address alone is told what the routes say.
  write("plain", "fe80::1 02:00:00:00:00:0a 02:00:00:00:00:01 1\n");
  const Said said = sluice("compile --routes rib --adjacencies plain --out adj.img");
  EXPECT_NE(said.err.find("routes use fe80::1%eth0: a link-local address needs its interface"), std::string::npos)
      << said.err;
}

TEST_F(CliTablesTest, BothSetsOfRealFormatsAgreeAcrossAlgorithms) {
  const auto rules = test_data("acl/acl1_1k.xz"), trace = test_data("acl/acl1_100k_trace.xz");
  if (!rules || !trace) GTEST_SKIP() << "the large test data is not here (SLUICE_DATA)";
  ASSERT_EQ(shell("xz -dc '" + *rules + "' > rules && xz -dc '" + *trace + "' | head -20000 > trace").code, 0);
  const Said a = sluice("classify --rules rules --trace trace --algorithm linear"),
             b = sluice("classify --rules rules --trace trace");
  EXPECT_EQ(a.code, 0) << a.err;
  EXPECT_EQ(a.lines().size(), 20000u);
  EXPECT_TRUE(a.out == b.out);
}

TEST_F(CliTablesTest, GeneratedTrafficHasTheDscpsThatAreAskedFor) {
  ASSERT_EQ(sluice("gen traffic --packets 3000 --zipf 0 --ipv6 0.5 --dscp ef=1,af41=2,9=1,cs7=0 --out t.pcap").code, 0);
  write("all.qos", "class a dscp ef\nclass b dscp af41\nclass c dscp 9\nclass rest dscp others\n");
  write("r", "0.0.0.0/0 a\n::/0 b\n");
  const Said said = sluice("run --routes r --in t.pcap --out o.pcap --qos all.qos -o json");
  ASSERT_EQ(said.code, 0) << said.err;
  std::map<std::string, uint64_t> in;
  const nlohmann::json report = said.json();
  for (const auto& row : report["qos"][0]["classes"]) in[row["class"].get<std::string>()] = row["in"]["packets"];
  EXPECT_GT(in["a"], 500u);
  EXPECT_GT(in["b"], in["a"]);
  EXPECT_GT(in["c"], 500u);
  EXPECT_EQ(in["rest"], 0u);
  const struct {
    const char *mix, *says;
  } wrong[] = {{"ef", "'ef' is not CLASS=PART"},
               {"''", "'' names no class"},
               {",", "',' names no class"},
               {"ef=", "'ef=' has no number as its part"},
               {"=1", "'=1' names no DSCP class"},
               {"ef=1,xx=1", "'xx=1' names no DSCP class: 'xx'"},
               {"64=1", "'64=1' names no DSCP class: '64'"},
               {"ef=-1", "'ef=-1' has no number as its part: '-1'"},
               {"ef=x", "has no number as its part: 'x'"},
               {"ef=1x", "has no number as its part: '1x'"},
               {"ef=nan", "has no number as its part: 'nan'"},
               {"ef=inf", "has no number as its part: 'inf'"},
               {"ef=1e-300", "has no number as its part: '1e-300'"},
               {"ef=1,default=1,46=2", "'46=2' gives DSCP 46 a second time"},
               {"default=1,cs0=1", "'cs0=1' gives DSCP 0 a second time"},
               {"ef=0,default=0", "the parts of 'ef=0,default=0' are all 0"}};
  for (const auto& [mix, says] : wrong) {
    const Said refused = sluice(std::string("gen traffic --packets 10 --out w.pcap --dscp ") + mix);
    EXPECT_EQ(refused.code, 2) << mix;
    EXPECT_NE(refused.err.find(std::string("--dscp: ")), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find(says), std::string::npos) << refused.err;
  }
  EXPECT_FALSE(exists("w.pcap"));
}

}  // namespace
}  // namespace sluice
