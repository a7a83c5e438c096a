#include "net/ipv4_options.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "net/packet_builder.h"
#include "net/parse.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint32_t kOwn = 0xc0000201;  // 192.0.2.1
constexpr uint32_t kNow = 0x01020304;

struct Outcome {
  OptionVerdict verdict;
  uint32_t pointer;
  Bytes options;
  bool checksum_ok;
};

Outcome run(const Bytes& options, Ipv4OptionRules rules = {}) {
  rules.address = kOwn;
  Bytes p = udp4("10.0.0.1", "192.0.2.7").ipv4_options(options).payload(8).no_link().build();
  const Bytes before = p;
  const uint32_t header = (p[0] & 15u) * 4;
  Outcome o{};
  o.verdict = process_ipv4_options(p.data(), header, rules, kNow, o.pointer);
  o.options.assign(p.begin() + 20, p.begin() + header);
  o.checksum_ok = ipv4_checksum_ok(p.data(), header);
  if (o.verdict != OptionVerdict::kForward) {
    EXPECT_EQ(p, before);
  }
  // Nothing else of the packet changes.
  for (size_t i = 0; i < p.size(); ++i) {
    if (i == 10 || i == 11 || (i >= 20 && i < header)) continue;
    EXPECT_EQ(p[i], before[i]) << i;
  }
  return o;
}

void forwards(const Bytes& options, const Bytes& as, const Ipv4OptionRules& rules = {}) {
  const Outcome o = run(options, rules);
  EXPECT_EQ(o.verdict, OptionVerdict::kForward);
  EXPECT_EQ(o.options, as);
  EXPECT_TRUE(o.checksum_ok);
}
void is_bad_at(const Bytes& options, uint32_t pointer) {
  const Outcome o = run(options);
  EXPECT_EQ(o.verdict, OptionVerdict::kBad);
  EXPECT_EQ(o.pointer, pointer);
}

TEST(Ipv4Options, RecordRouteGetsTheAddress) {
  forwards({7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0}, {7, 11, 8, 192, 0, 2, 1, 0, 0, 0, 0, 0});
  forwards({7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0}, {7, 11, 12, 9, 9, 9, 9, 192, 0, 2, 1, 0});
  forwards({7, 7, 8, 9, 9, 9, 9}, {7, 7, 8, 9, 9, 9, 9, 0});  // full
  forwards({1, 1, 7, 7, 4, 0, 0, 0, 0}, {1, 1, 7, 7, 8, 192, 0, 2, 1, 0, 0, 0});
  forwards({7, 3, 4}, {7, 3, 4, 0});  // no room from the start
}

TEST(Ipv4Options, TimestampGetsTheTimeAndWhereAskedTheAddress) {
  forwards({68, 8, 5, 0, 0, 0, 0, 0}, {68, 8, 9, 0, 1, 2, 3, 4});
  forwards({68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0}, {68, 12, 13, 1, 192, 0, 2, 1, 1, 2, 3, 4});
  // Prespecified: this router's turn, and another's.
  forwards({68, 12, 5, 3, 192, 0, 2, 1, 0, 0, 0, 0}, {68, 12, 13, 3, 192, 0, 2, 1, 1, 2, 3, 4});
  forwards({68, 12, 5, 3, 192, 0, 2, 9, 0, 0, 0, 0}, {68, 12, 5, 3, 192, 0, 2, 9, 0, 0, 0, 0});
  const uint32_t others[] = {0xc0000209};
  Ipv4OptionRules rules;
  rules.other_addresses = others;
  rules.other_count = 1;
  forwards({68, 12, 5, 3, 192, 0, 2, 9, 0, 0, 0, 0}, {68, 12, 13, 3, 192, 0, 2, 9, 1, 2, 3, 4}, rules);
  // Full: counted, but not of those whom the source chose.
  forwards({68, 8, 9, 0x20, 9, 9, 9, 9}, {68, 8, 9, 0x30, 9, 9, 9, 9});
  forwards({68, 8, 9, 0x23, 9, 9, 9, 9}, {68, 8, 9, 0x23, 9, 9, 9, 9});
}

TEST(Ipv4Options, Rfc792PointsAtTheWrongByte) {
  is_bad_at({7, 1, 4, 0}, 21);           // a length below 2
  is_bad_at({1, 7, 40, 4}, 22);          // past the end
  is_bad_at({1, 1, 1, 7}, 23);           // no length at all
  is_bad_at({7, 2, 1, 1}, 21);           // no pointer
  is_bad_at({7, 7, 3, 0, 0, 0, 0}, 22);  // a pointer into the option's own header
}

TEST(Ipv4Options, SomeRoomButNotEnoughIsAnError) {
  is_bad_at({7, 9, 8, 9, 9, 9, 9, 0, 0}, 22);
  is_bad_at({68, 10, 9, 0, 9, 9, 9, 9, 0, 0}, 22);
  is_bad_at({68, 8, 5, 1, 0, 0, 0, 0}, 22);
  is_bad_at({68, 8, 4, 0, 0, 0, 0, 0}, 22);
  is_bad_at({68, 8, 5, 2, 0, 0, 0, 0}, 23);     // no such flag
  is_bad_at({68, 8, 9, 0xf0, 0, 0, 0, 0}, 23);  // the count of those without room would wrap
  is_bad_at({68, 3, 5, 0}, 21);
  is_bad_at({7, 7, 4, 0, 0, 0, 0, 7, 7, 4, 0, 0, 0, 0}, 27);  // RFC 791: at most once
}

TEST(Ipv4Options, AMalformedListChangesNothingBeforeIt) {
  is_bad_at({7, 7, 4, 0, 0, 0, 0, 148, 9}, 28);  // run() compares all bytes
}

TEST(Ipv4Options, EachKindHasItsRule) {
  Ipv4OptionRules rules;
  EXPECT_EQ(run({131, 7, 4, 1, 2, 3, 4}).verdict, OptionVerdict::kRefused);
  EXPECT_EQ(run({137, 7, 4, 1, 2, 3, 4}).verdict, OptionVerdict::kRefused);
  forwards({148, 4, 0, 0}, {148, 4, 0, 0});
  forwards({130, 3, 9}, {130, 3, 9, 0});
  rules.source_route = OptionPolicy::kIgnore;
  forwards({131, 7, 4, 1, 2, 3, 4}, {131, 7, 4, 1, 2, 3, 4, 0}, rules);
  rules = {};
  rules.record_route = OptionPolicy::kIgnore;
  forwards({7, 7, 4, 0, 0, 0, 0}, {7, 7, 4, 0, 0, 0, 0, 0}, rules);
  rules.record_route = OptionPolicy::kDrop;
  EXPECT_EQ(run({7, 7, 4, 0, 0, 0, 0}, rules).verdict, OptionVerdict::kRefused);
  rules = {};
  rules.timestamp = OptionPolicy::kDrop;
  EXPECT_EQ(run({68, 8, 5, 0, 0, 0, 0, 0}, rules).verdict, OptionVerdict::kRefused);
  rules = {};
  rules.router_alert = OptionPolicy::kDrop;
  EXPECT_EQ(run({148, 4, 0, 0}, rules).verdict, OptionVerdict::kRefused);
  rules = {};
  rules.other = OptionPolicy::kDrop;
  EXPECT_EQ(run({130, 3, 9}, rules).verdict, OptionVerdict::kRefused);
  forwards({1, 1, 1, 0}, {1, 1, 1, 0}, rules);  // padding is no option
}

TEST(Ipv4Options, ASourceRouteIsFoundWhereverAWalkMeetsIt) {
  const auto byte = rc::gen::element<uint8_t>(0, 1, 2, 3, 4, 5, 7, 8, 68, 131, 137, 148, 255);
  EXPECT_TRUE(rc::check([&] {
    const auto words = *rc::gen::inRange<size_t>(1, 11);
    const auto list = *rc::gen::container<Bytes>(words * 4, byte);
    bool found = false;
    OptionWalk walk{list.data(), static_cast<uint32_t>(list.size())};
    OptionStep step = walk.step();
    for (; step == OptionStep::kNext; step = walk.step()) found |= walk.type == 131 || walk.type == 137;
    bool bad;
    RC_ASSERT(parse_detail::has_source_route(list.data(), static_cast<uint32_t>(list.size()), bad) == found);
    RC_ASSERT(bad == (step == OptionStep::kBad));
  }));
}

TEST(Ipv4Options, AnyBytesAreSafeAndKeepTheChecksumAsItWas) {
  EXPECT_TRUE(rc::check([](const std::vector<uint8_t>& bytes, bool right) {
    Bytes list(bytes.begin(), bytes.begin() + static_cast<long>(std::min<size_t>(bytes.size(), 40)));
    if (!list.empty() && *rc::gen::arbitrary<bool>()) list[0] = *rc::gen::element<uint8_t>(7, 68, 131, 148);
    PacketBuilder builder = ip4("10.0.0.1", "192.0.2.7", 99).ipv4_options(list).no_link();
    if (!right) builder.bad_ip_checksum();
    const Bytes built = builder.build();
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[built.size()]);  // so that a step outside is seen
    std::copy(built.begin(), built.end(), exact.get());
    Ipv4OptionRules rules;
    rules.address = kOwn;
    uint32_t pointer = 0;
    const auto header = static_cast<uint32_t>(built.size());
    const OptionVerdict verdict = process_ipv4_options(exact.get(), header, rules, kNow, pointer);
    RC_ASSERT(ipv4_checksum_ok(exact.get(), header) == right);
    RC_ASSERT((verdict == OptionVerdict::kBad) == (pointer != 0));
    RC_ASSERT(pointer < header);
    if (verdict != OptionVerdict::kForward) RC_ASSERT(std::equal(built.begin(), built.end(), exact.get()));
  }));
}

}  // namespace
}  // namespace sluice
