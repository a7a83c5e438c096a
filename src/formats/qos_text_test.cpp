#include "formats/qos_text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace sluice {
namespace {

std::string qos_errors(const std::string& text) {
  auto model = parse_qos(text, "qos");
  return model.ok() ? "" : to_string(model.error());
}

TEST(QosText, ReadsEveryKey) {
  auto model = parse_qos(
      "# three classes\n"
      "class voice dscp ef,va,cs5-cs6 strict rate 10Mbps burst 3000 limit 64 # first\n"
      "\tclass web dscp af11,af12,18-22 weight 3 red 20 60 2% police trtcm 2Mbps 10000 4.5Mbps 20000\r\n"
      "class rest dscp others weight 1 police srtcm 64kbps 1500 3000 remark yellow af13 remark red le\n"
      "class scavenger dscp 1\n"
      "port rate 400Gbps burst 9000",
      "qos");
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  ASSERT_EQ(model->classes.size(), 4u);
  const auto& [voice, web, rest] = std::tie(model->classes[0], model->classes[1], model->classes[2]);
  EXPECT_EQ(voice.name, "voice");
  EXPECT_TRUE(voice.strict);
  EXPECT_EQ(voice.rate_bps, 10'000'000u);
  EXPECT_EQ(voice.burst_bytes, 3000u);
  EXPECT_EQ(voice.limit_pkts, 64u);
  EXPECT_FALSE(voice.red.enabled());
  EXPECT_EQ(web.weight, 3u);
  EXPECT_EQ(web.red.min_pkts, 20u);
  EXPECT_EQ(web.red.max_pkts, 60u);
  EXPECT_EQ(web.red.max_probability_ppm, 20'000u);
  EXPECT_EQ(web.police.two_rates, 1);
  EXPECT_EQ(web.police.peak_bps, 4'500'000u);
  EXPECT_EQ(web.police.excess_burst_bytes, 20'000u);
  EXPECT_TRUE(web.drops_red());
  EXPECT_TRUE(rest.policed);
  EXPECT_FALSE(rest.drops_red());
  EXPECT_EQ(model->remarks().dscp[2][1], 14);
  EXPECT_EQ(model->remarks().dscp[2][0], RemarkMap::kKeep);
  EXPECT_EQ(model->port_rate_bps, 400'000'000'000u);
  const std::set<unsigned> voices = {40, 41, 42, 43, 44, 45, 46, 47, 48};
  for (unsigned dscp = 0; dscp < 64; ++dscp) {
    const unsigned wanted = voices.count(dscp) != 0                                  ? 0
                            : dscp == 10 || dscp == 12 || (dscp >= 18 && dscp <= 22) ? 1
                            : dscp == 1                                              ? 3
                                                                                     : 2;
    EXPECT_EQ(model->map.class_of(dscp), wanted) << dscp;
  }
}

TEST(QosText, FindsAllErrorsAtOnceEachAtItsPlace) {
  auto model = parse_qos(
      "class a dscp ef weigth 3\n"
      "class b dscp 40-30\n"
      "class c dscp ef\n"
      "class d rate 10\n"
      "class e rate 401Gbps\n"
      "class f police srtm 1Mbps 1 1\n"
      "class g police trtcm 2Mbps 1 1Mbps 1\n"
      "class h strict weight 2\n"
      "class i\n"
      "port speed 1Mbps\n"
      "clas j\n",
      "qos");
  ASSERT_FALSE(model.ok());
  const auto& all = model.error().diagnostics;
  ASSERT_EQ(all.size(), 11u) << to_string(model.error());
  for (uint32_t i = 0; i < 11; ++i) EXPECT_EQ(all[i].line, i + 1);
  EXPECT_EQ(all[0].column, 17u);
  EXPECT_EQ(all[0].suggestion, "did you mean weight?");
  EXPECT_EQ(all[1].suggestion, "write it 30-40");
  EXPECT_EQ(all[2].message, "codepoint 46 is of class a already");
  EXPECT_EQ(all[3].suggestion, "write 10kbps or 10Mbps");
  EXPECT_EQ(all[5].suggestion, "did you mean srtcm?");
  EXPECT_EQ(all[10].suggestion, "did you mean class?");
}

TEST(QosText, RefusesEachWrongLine) {
  for (const char* wrong : {"",
                            "# nothing\n",
                            "port rate 1Mbps\n",
                            "class\n",
                            "class a\nclass a\n",
                            "class a\nclass port\n",
                            "class a dscp\n",
                            "class a dscp 64\n",
                            "class a dscp ef,\n",
                            "class a dscp others\nclass b dscp others\n",
                            "class a mark\n",
                            "class a mark 0\n",
                            "class a mark 0-3\n",
                            "class a mark 3-1\n",
                            "class a mark 4294967296\n",
                            "class a mark 1,\n",
                            "class a mark 1-5,5\n",
                            "class a mark 7\nclass b mark 6-8\n",
                            "class a weight 0\n",
                            "class a weight 1001\n",
                            "class a strict strict\n",
                            "class a weight 2 strict\n",
                            "class a rate\n",
                            "class a rate 999bps\n",
                            "class a rate 1.Mbps\n",
                            "class a rate .5Mbps\n",
                            "class a rate 1.0005kbps\n",
                            "class a burst 100\n",
                            "class a limit 0\n",
                            "class a red 5 5 1%\n",
                            "class a red 5 6 0%\n",
                            "class a red 5 6 101%\n",
                            "class a red 5 6 1\n",
                            "class a police\n",
                            "class a police srtcm 1Mbps 0 0\n",
                            "class a police srtcm 1Mbps 1073741825 0\n",
                            "class a remark blue ef\n",
                            "class a remark red 64\n",
                            "class a remark red 1 remark red 2\n",
                            "class a remark yellow af12\n",
                            "class a remark red af12 remark green ef\n",
                            "class a limit 10 red 5 11 1%\n",
                            "class a red 5 1001 1%\n",
                            "class b\x07\n",
                            "class caf\xc3\xa9\n",
                            "class a dscp ef, af11,\n",
                            "class a dscp ef,, af11\n",
                            "class a rate 8MBps\n",
                            "class a\nport\n",
                            "class a\nport rate\n",
                            "class a\nport rate 1Mbps burst\n",
                            "class a\nport rate 1Mbps 7\n",
                            "class a\nport rate 1Mbps\nport rate 1Mbps\n"}) {
    const std::string said = qos_errors(wrong);
    EXPECT_NE(said.find("expected:"), std::string::npos) << wrong << said;
  }
}

TEST(QosText, FormsThatPeopleWriteAreTaken) {
  const auto plain =
      parse_qos("class a dscp ef,af11,18-22 mark 3,5-9 remark green cs1\nclass b limit 11 red 5 11 1%\n", "q");
  const auto other = parse_qos(
      "\xEF\xBB\xBF"
      "class a dscp ef, af11,\t18-22 mark 3,  5-9 remark green cs1\nclass b limit 11 red 5 11 1%\n",
      "q");
  ASSERT_TRUE(plain.ok() && other.ok()) << to_string(other.error());
  EXPECT_EQ(format_qos(*other), format_qos(*plain));
  // Errors point at the item, and not at the list.
  EXPECT_EQ(qos_errors("class a dscp ef, af99\n").find("qos:1:18: error: 'af99' is not a codepoint"), 0u);
  EXPECT_NE(qos_errors("class a rate 8MBps\n").find("in bits"), std::string::npos);
}

TEST(QosText, MarksComeBeforeCodepoints) {
  auto model = parse_qos(
      "class a dscp ef mark 7,100-199\n"
      "class b mark 200,1-6,4294967295\n"
      "class c dscp others mark 8\n",
      "qos");
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  const auto wanted = [](uint32_t mark, unsigned dscp) -> unsigned {
    if (mark == 7 || (mark >= 100 && mark <= 199)) return 0;
    if (mark == 200 || (mark >= 1 && mark <= 6) || mark == ~uint32_t{0}) return 1;
    if (mark == 8) return 2;
    return dscp == 46 ? 0 : 2;
  };
  for (uint32_t mark = 0; mark < 260; ++mark) {
    for (const unsigned dscp : {0u, 46u}) EXPECT_EQ(model->class_of(mark, dscp), wanted(mark, dscp)) << mark;
  }
  for (const uint32_t mark : {~uint32_t{0}, ~uint32_t{0} - 1}) EXPECT_EQ(model->class_of(mark, 46), wanted(mark, 46));
  EXPECT_EQ(qos_errors("class a mark 5\nclass b mark 3-9\n").find("qos:2:14: error: mark 5 is of class a already"), 0u)
      << qos_errors("class a mark 5\nclass b mark 3-9\n");
}

TEST(QosText, RatesAreWholeBits) {
  uint64_t bps = 0;
  EXPECT_TRUE(parse_rate_bps("2.5Gbps", &bps));
  EXPECT_EQ(bps, 2'500'000'000u);
  EXPECT_TRUE(parse_rate_bps("0.001kbps", &bps));
  EXPECT_EQ(bps, 1u);
  EXPECT_TRUE(parse_rate_bps("400000000000bps", &bps));
  EXPECT_EQ(bps, 400'000'000'000u);
  EXPECT_TRUE(parse_rate_bps("1.0000000000000000000000000Mbps", &bps));
  EXPECT_EQ(bps, 1'000'000u);
  for (const char* wrong : {"", "bps", "1", "1M", "-1bps", "1..5Mbps", "1.5bps", "400.000000001Gbps",
                            "99999999999999999999bps", "1Mbpsx", "1MBps"})
    EXPECT_FALSE(parse_rate_bps(wrong, &bps)) << wrong;
}

RC_GTEST_PROP(QosText, WhatIsWrittenIsReadBack, ()) {
  QosModel model;
  const auto count = *rc::gen::inRange(1u, kMaxQosClasses + 1);
  for (unsigned i = 0; i < count; ++i) {
    QosClass c;
    c.name = "c" + std::to_string(i);
    c.strict = *rc::gen::arbitrary<bool>();
    if (!c.strict) c.weight = *rc::gen::inRange<uint32_t>(1, QosModel::kMaxWeight + 1);
    if (*rc::gen::arbitrary<bool>()) {
      c.rate_bps = *rc::gen::inRange<uint64_t>(1000, 400'000'000'001);
      c.burst_bytes = *rc::gen::inRange<uint32_t>(0, 1u << 30);
    }
    c.limit_pkts = *rc::gen::inRange<uint32_t>(1, 5000);
    if (*rc::gen::arbitrary<bool>()) {
      c.red.min_pkts = *rc::gen::inRange<uint32_t>(0, c.limit_pkts);
      c.red.max_pkts = *rc::gen::inRange<uint32_t>(c.red.min_pkts + 1, c.limit_pkts + 1);
      c.red.max_probability_ppm = *rc::gen::inRange<uint32_t>(1, 101) * 10'000;
    }
    if ((c.policed = *rc::gen::arbitrary<bool>())) {
      c.police.two_rates = *rc::gen::inRange<uint8_t>(0, 2);
      c.police.committed_bps = *rc::gen::inRange<uint64_t>(1000, 1'000'000'000);
      if (c.police.two_rates != 0) c.police.peak_bps = c.police.committed_bps + *rc::gen::inRange<uint64_t>(0, 1000);
      c.police.committed_burst_bytes = *rc::gen::inRange<uint32_t>(1, 1u << 30);
      c.police.excess_burst_bytes = *rc::gen::inRange<uint32_t>(0, 1u << 30);
    }
    // Without a policer there is green alone.
    for (size_t color = 0; color < (c.policed ? kColors : 1); ++color)
      c.remark[color] = *rc::gen::oneOf(rc::gen::just(uint8_t{RemarkMap::kKeep}), rc::gen::inRange<uint8_t>(0, 64));
    model.classes.push_back(c);
  }
  for (unsigned dscp = 0; dscp < 64; ++dscp) model.map.set(dscp, *rc::gen::inRange(0u, count));
  model.port_rate_bps = *rc::gen::oneOf(rc::gen::just<uint64_t>(0), rc::gen::inRange<uint64_t>(1000, 1'000'000'000'00));
  const std::string text = format_qos(model);
  const auto read = parse_qos(text, "qos");
  RC_ASSERT(read.ok());
  RC_ASSERT(read->map == model.map);
  RC_ASSERT(format_qos(*read) == text);
  RC_ASSERT(read->remarks() == model.remarks());
  RC_ASSERT(read->egress() == model.egress());
}

TEST(QosText, TheDefaultIsThreePriorities) {
  const auto model = parse_qos(format_qos(QosModel::three_priorities()), "qos");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->map, ClassMap::three_priorities());
  // Half for the first, two thirds of the rest for the second.
  EXPECT_EQ(model->classes[0].weight, model->classes[1].weight + model->classes[2].weight);
  EXPECT_EQ(model->classes[1].weight, 2 * model->classes[2].weight);
}

}  // namespace
}  // namespace sluice
