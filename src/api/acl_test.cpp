// Access lists through the C functions: answers are the definition's, whatever the algorithm and the form of the keys.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/api_test_support.h"
#include "control/machine.h"
#include "formats/native_rules.h"
#include "net/packet_builder.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"

namespace sluice::api_test {
namespace {

using acl_test::Random;

// By the definition of a match.
sluice_match oracle(const std::vector<AclMatchRule>& flat, const RuleSet& set, const FlowKey& key) {
  if (key.family == 4 || key.family == 6) {
    for (const AclMatchRule& rule : flat) {
      if (!matches(rule, key)) continue;
      const AclRule& r = set.rules[rule.rule - 1];
      return {rule.rule, static_cast<uint32_t>(r.verb), r.verb == AclVerb::kMark ? r.mark : 0};
    }
  }
  return {0, 0, 0};
}
std::vector<AclMatchRule> flat_of(const RuleSet& set) {
  std::vector<AclMatchRule> flat;
  for (size_t i = 0; i < set.rules.size(); ++i) flat.push_back(flatten(set.rules[i], static_cast<uint32_t>(i + 1)));
  return flat;
}

void expect_oracle(const sluice_acl* acl, const RuleSet& set, const std::vector<FlowKey>& keys) {
  const auto got = classify(acl, keys_of(keys));
  const auto flat = flat_of(set);
  for (size_t i = 0; i < keys.size(); ++i) {
    const sluice_match want = oracle(flat, set, keys[i]);
    ASSERT_EQ(got[i].rule, want.rule) << "key " << i << " of family " << int{keys[i].family};
    ASSERT_EQ(got[i].action, want.action);
    ASSERT_EQ(got[i].mark, want.mark);
  }
}

// A list as an image carries any rule, also what no text says.
Handle<sluice_acl> acl_of(const RuleSet& set, const std::string& algorithm) {
  auto image = build_acl(set, algorithm);
  EXPECT_TRUE(image.ok()) << to_string(image.error());
  Errors errors;
  Handle<sluice_acl> acl(sluice_acl_read(image->bytes().data(), image->bytes().size(), "image", nullptr, &errors));
  EXPECT_NE(acl, nullptr) << errors.text();
  return acl;
}
using api_test::acl_of;

TEST(ApiAcl, ClassifiesAsTheDefinitionSays) {
  for (const std::string& algorithm : acl_algorithm_names()) {
    EXPECT_TRUE(rc::check(algorithm, [&](uint32_t seed) {
      Random random(seed);
      const RuleSet set = acl_test::random_set(random, 1 + acl_test::below(random, 200));
      const auto acl = acl_of(set, algorithm);
      RC_ASSERT(sluice_acl_algorithm(acl.get()) == algorithm);
      RC_ASSERT(sluice_acl_size(acl.get()) == set.rules.size());
      expect_oracle(acl.get(), set, acl_test::keys_for(set, acl_test::below(random, 200), random));
      RC_ASSERT(!testing::Test::HasFailure());
    }));
  }
}

// Longer than what holds a change up, and no multiple of a burst.
TEST(ApiAcl, ClassifiesInBulk) {
  Random random(7);
  const RuleSet set = acl_test::random_set(random, 100);
  expect_oracle(acl_of(set, "auto").get(), set, acl_test::keys_for(set, 10'007, random));
}

TEST(ApiAcl, ColumnsAreTheKeysByColumn) {
  EXPECT_TRUE(rc::check([](uint32_t seed) {
    Random random(seed);
    const uint8_t family = random() % 2 == 0 ? 4 : 6;
    const RuleSet set = acl_test::random_set(random, 100, family);
    static constexpr const char* kAlgorithms[] = {"tuple_merge", "bitvec", "tuple_space", "linear"};
    const auto acl = acl_of(set, kAlgorithms[random() % 4]);
    std::vector<FlowKey> keys;
    for (FlowKey& key : acl_test::keys_for(set, 100, random)) {
      if (key.family == family) keys.push_back(key);
    }
    // Bursts with a key that no packet has, such as one with ports and an ICMP type, and bursts without.
    if (random() % 2 == 0) {
      for (FlowKey& key : keys) {
        if (random() % 64 != 0) continue;
        key.src_port = static_cast<uint16_t>(random());
        key.flags = static_cast<uint16_t>(random());
        key.icmp = static_cast<uint16_t>(random());
        key.dscp = static_cast<uint8_t>(random());
        key.bits = static_cast<uint8_t>(random());
      }
    }
    const size_t n = keys.size();
    std::vector<uint32_t> src4(n), dst4(n);
    std::vector<uint64_t> src_hi(n), src_lo(n), dst_hi(n), dst_lo(n);
    std::vector<uint16_t> src_port(n), dst_port(n), flags(n), icmp(n);
    std::vector<uint8_t> protocol(n), dscp(n), bits(n);
    for (size_t i = 0; i < n; ++i) {
      const FlowKey& k = keys[i];
      src4[i] = static_cast<uint32_t>(k.src_lo);
      dst4[i] = static_cast<uint32_t>(k.dst_lo);
      src_hi[i] = k.src_hi, src_lo[i] = k.src_lo, dst_hi[i] = k.dst_hi, dst_lo[i] = k.dst_lo;
      src_port[i] = k.src_port, dst_port[i] = k.dst_port, flags[i] = k.flags, icmp[i] = k.icmp;
      protocol[i] = k.protocol, dscp[i] = k.dscp, bits[i] = k.bits;
    }
    sluice_key_columns c{};
    c.size = sizeof c;
    c.family = family;
    if (family == 4) {
      c.src4 = src4.data(), c.dst4 = dst4.data();
    } else {
      c.src_hi = src_hi.data(), c.src_lo = src_lo.data(), c.dst_hi = dst_hi.data(), c.dst_lo = dst_lo.data();
    }
    c.src_port = src_port.data(), c.dst_port = dst_port.data(), c.flags = flags.data(), c.icmp = icmp.data();
    c.protocol = protocol.data(), c.dscp = dscp.data(), c.bits = bits.data();
    const auto want = classify(acl.get(), keys_of(keys));
    std::vector<sluice_match> got(n);
    RC_ASSERT(sluice_acl_classify_columns(acl.get(), &c, n, got.data()) == 1u);
    for (size_t i = 0; i < n; ++i) RC_ASSERT(got[i].rule == want[i].rule && got[i].action == want[i].action);
    // Bits that are left out are what the protocol has.
    c.bits = nullptr;
    for (FlowKey& k : keys) {
      const bool ports =
          k.protocol == 6 || k.protocol == 17 || k.protocol == 33 || k.protocol == 132 || k.protocol == 136;
      k.bits = ports ? FlowKey::kHasPorts : 0;
    }
    const auto without = classify(acl.get(), keys_of(keys));
    RC_ASSERT(sluice_acl_classify_columns(acl.get(), &c, n, got.data()) == 1u);
    for (size_t i = 0; i < n; ++i) RC_ASSERT(got[i].rule == without[i].rule);
  }));
}

// What no packet has is answered all the same, and nothing is read that is not there (the sanitizers look).
TEST(ApiAcl, AnyBytesAreAKey) {
  Random random(3);
  const RuleSet set = acl_test::random_set(random, 300);
  std::vector<sluice_key> keys(500);
  for (sluice_key& key : keys) {
    for (size_t i = 0; i < sizeof key; ++i)
      reinterpret_cast<unsigned char*>(&key)[i] = static_cast<unsigned char>(random());
    if (random() % 2 == 0) key.family = random() % 2 == 0 ? 4 : 6;
  }
  for (const std::string& algorithm : acl_algorithm_names()) {
    const auto got = classify(acl_of(set, algorithm).get(), keys);
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_LE(got[i].rule, set.rules.size());
      if (keys[i].family != 4 && keys[i].family != 6) {
        EXPECT_EQ(got[i].rule, 0u);
      }
    }
  }
}

// Positions, rules and counters follow a list through any changes; short lists are built anew, long ones are patched.
TEST(ApiAcl, ChangesAreThoseOfTheList) {
  for (const size_t rules : {20u, 700u}) {
    Random random(rules);
    const auto simple = [&] {
      AclRule rule;
      rule.family = random() % 2 == 0 ? 4 : 6;
      rule.src = acl_test::random_prefix(random, rule.family);
      rule.dst = acl_test::random_prefix(random, rule.family);
      rule.verb = random() % 2 == 0 ? AclVerb::kPermit : AclVerb::kDeny;
      return rule;
    };
    RuleSet set;
    set.files = {"test.acl"};
    for (size_t i = 0; i < rules; ++i) set.rules.push_back(simple());
    const auto acl = acl_of(to_native(set));
    uint64_t generation = sluice_acl_generation(acl.get());
    EXPECT_EQ(generation, 1u);
    for (int round = 0; round < 30; ++round) {
      std::string text;
      for (int step = 0; step < 3; ++step) {
        const size_t at = acl_test::below(random, set.rules.size());
        const auto place = set.rules.begin() + static_cast<ptrdiff_t>(at);
        switch (acl_test::below(random, 3)) {
          case 0:
            text += "delete " + std::to_string(at + 1) + "\n";
            set.rules.erase(place);
            break;
          case 1: {
            const AclRule rule = simple();
            text += "replace " + std::to_string(at + 1) + " " + to_native(rule) + "\n";
            *place = rule;
            break;
          }
          default: {
            const AclRule rule = simple();
            text += "add at " + std::to_string(at + 1) + " " + to_native(rule) + "\n";
            set.rules.insert(place, rule);
          }
        }
      }
      Errors errors;
      ASSERT_EQ(sluice_acl_change(acl.get(), text.c_str(), "round", &errors), 0) << errors.text() << text;
      ASSERT_EQ(sluice_acl_generation(acl.get()), ++generation);
      ASSERT_EQ(sluice_acl_size(acl.get()), set.rules.size());
      expect_oracle(acl.get(), set, acl_test::keys_for(set, 60, random));
      for (int look = 0; look < 5; ++look) {
        const auto position = static_cast<uint32_t>(1 + acl_test::below(random, set.rules.size()));
        const Handle<sluice_rule> rule(sluice_acl_rule(acl.get(), position, nullptr));
        ASSERT_NE(rule, nullptr);
        EXPECT_EQ(rule->text, to_native(set.rules[position - 1]));
        EXPECT_EQ(rule->generation, generation);
      }
    }
    EXPECT_STREQ(sluice_acl_algorithm(acl.get()),
                 rules > kAclRebuilt ? "tuple_merge" : sluice_acl_algorithm(acl.get()));
    // As an image it is the same list, with room for nothing more.
    const auto path =
        (std::filesystem::temp_directory_path() / ("sluice_api_acl_" + std::to_string(::getpid()))).string();
    Errors errors;
    ASSERT_EQ(sluice_acl_save(acl.get(), path.c_str(), &errors), 0) << errors.text();
    const Handle<sluice_acl> again(sluice_acl_open(path.c_str(), nullptr, &errors));
    std::filesystem::remove(path);
    ASSERT_NE(again, nullptr) << errors.text();
    expect_oracle(again.get(), set, acl_test::keys_for(set, 200, random));
  }
}

TEST(ApiAcl, RulesSayWhereTheyStand) {
  const auto acl = acl_of("permit tcp from any to any port 80\n\ndeny from 10.0.0.0/8 to any\n");
  const Handle<sluice_rule> rule(sluice_acl_rule(acl.get(), 2, nullptr));
  ASSERT_NE(rule, nullptr);
  EXPECT_STREQ(rule->text, "deny from 10.0.0.0/8 to 0.0.0.0/0");
  EXPECT_STREQ(rule->file, "test.acl");
  EXPECT_EQ(rule->line, 3u);
  EXPECT_EQ(rule->action, uint32_t{SLUICE_DENY});
  Errors errors;
  EXPECT_EQ(sluice_acl_rule(acl.get(), 3, &errors), nullptr);
  EXPECT_EQ(errors.text(), "error: there is no rule 3: the list has 2\n");
  EXPECT_EQ(sluice_acl_rule(acl.get(), 0, &errors), nullptr);
}

TEST(ApiAcl, BadInputGivesFileLineAndColumn) {
  const char text[] = "permit tcp from any to any port 90-80\ndeny from any to any\npermit udp frm any to any\n";
  Errors errors;
  EXPECT_EQ(sluice_acl_read(text, sizeof text - 1, "edge.acl", nullptr, &errors), nullptr);
  ASSERT_EQ(errors.count(), 2u);
  EXPECT_STREQ(errors.at(0).file, "edge.acl");
  EXPECT_EQ(errors.at(0).line, 1u);
  EXPECT_EQ(errors.at(0).column, 33u);
  EXPECT_EQ(errors.at(0).length, 5u);
  EXPECT_STREQ(errors.at(0).source, "permit tcp from any to any port 90-80");
  EXPECT_NE(std::string(errors.at(0).message), "");
  EXPECT_NE(std::string(errors.at(0).expected) + errors.at(0).help, "");
  EXPECT_EQ(errors.at(1).line, 3u);
  EXPECT_NE(errors.text().find("edge.acl:1:33: error: "), std::string::npos) << errors.text();
  // A change with an error changes nothing.
  const auto acl = acl_of("deny from any to any\n");
  EXPECT_EQ(sluice_acl_change(acl.get(), "add permit from any to any\ndelete 7\n", "step", &errors), -1);
  ASSERT_EQ(errors.count(), 1u);
  EXPECT_STREQ(errors.at(0).file, "step");
  EXPECT_EQ(errors.at(0).line, 2u);
  EXPECT_EQ(sluice_acl_generation(acl.get()), 1u);
  EXPECT_EQ(sluice_acl_size(acl.get()), 1u);
  // Also in the place of the list; and what is not there at all.
  EXPECT_EQ(sluice_acl_replace(acl.get(), text, sizeof text - 1, "edge.acl", &errors), -1);
  EXPECT_EQ(errors.count(), 2u);
  EXPECT_EQ(sluice_acl_open("/nonexistent/edge.acl", nullptr, &errors), nullptr);
  EXPECT_NE(errors.text().find("/nonexistent/edge.acl"), std::string::npos);
  sluice_acl_options options = SLUICE_ACL_OPTIONS_INIT;
  options.algorithm = "tuple_spice";
  EXPECT_EQ(sluice_acl_read("deny from any to any\n", 21, "x", &options, &errors), nullptr);
  EXPECT_NE(errors.text().find("tuple_space"), std::string::npos) << errors.text();
  options = SLUICE_ACL_OPTIONS_INIT;
  options.size = 3;
  EXPECT_EQ(sluice_acl_read("deny from any to any\n", 21, "x", &options, &errors), nullptr);
}

TEST(ApiAcl, NothingInIsNothingOut) {
  const auto acl = acl_of("deny from any to any\n");
  sluice_key key{};
  sluice_match match{9, 9, 9};
  EXPECT_EQ(sluice_acl_classify(nullptr, &key, 1, &match), 0u);
  EXPECT_EQ(sluice_acl_classify(acl.get(), nullptr, 1, &match), 0u);
  EXPECT_EQ(sluice_acl_classify(acl.get(), &key, 1, nullptr), 0u);
  EXPECT_EQ(match.rule, 9u);
  EXPECT_EQ(sluice_acl_classify(acl.get(), nullptr, 0, nullptr), 1u);
  sluice_key_columns c{};
  EXPECT_EQ(sluice_acl_classify_columns(acl.get(), &c, 1, &match), 0u);
  c.size = sizeof c;
  c.family = 4;
  EXPECT_EQ(sluice_acl_classify_columns(acl.get(), &c, 1, &match), 0u);
  EXPECT_EQ(sluice_acl_classify_columns(acl.get(), nullptr, 0, &match), 0u);
  EXPECT_EQ(sluice_acl_size(nullptr), 0u);
  EXPECT_EQ(sluice_acl_generation(nullptr), 0u);
  EXPECT_STREQ(sluice_acl_algorithm(nullptr), "");
  Errors errors;
  EXPECT_EQ(sluice_acl_read(nullptr, 0, nullptr, nullptr, &errors), nullptr) << "no byte is no list";
  EXPECT_NE(errors.count(), 0u);
  EXPECT_EQ(sluice_acl_open(nullptr, nullptr, &errors), nullptr);
  EXPECT_EQ(sluice_acl_change(nullptr, "", "", &errors), -1);
  EXPECT_EQ(sluice_acl_change(acl.get(), nullptr, "", &errors), -1);
  EXPECT_EQ(sluice_acl_save(acl.get(), nullptr, nullptr), -1);
  EXPECT_EQ(sluice_acl_counters(acl.get(), nullptr, 0, nullptr, &errors), 0u);
  EXPECT_NE(errors.text().find("does not count"), std::string::npos);
  EXPECT_EQ(sluice_errors_count(nullptr), 0u);
  EXPECT_EQ(sluice_errors_at(nullptr, 0), nullptr);
  EXPECT_STREQ(sluice_errors_text(nullptr), "");
  sluice_errors_free(nullptr);
  sluice_acl_free(nullptr);
  sluice_rule_free(nullptr);
}

TEST(ApiAcl, NoRuleMatchesAKeyOfNoIpPacketWhereverItStands) {
  for (const char* algorithm : {"linear", "tuple_space", "tuple_merge", "bitvec"}) {
    const auto acl = acl_of("permit ip from any to any\n", algorithm);
    ASSERT_NE(acl, nullptr);
    for (const uint8_t other : {0, 1, 5, 7, 255}) {
      for (size_t at = 0; at < 33; ++at) {
        std::vector<sluice_key> keys(33, tcp4(1, 2, 80));
        keys[(at + 5) % 33].family = 6;
        keys[at].family = other;
        const auto got = classify(acl.get(), keys);
        for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(got[i].rule, i == at ? 0u : 1u) << algorithm << at << i;
      }
    }
    EXPECT_EQ(classify(acl.get(), std::vector<sluice_key>(32, tcp4(1, 2, 80)))[31].rule, 1u);
  }
}

TEST(ApiLibrary, NamesItsVersionAndRevision) {
  EXPECT_EQ(::sluice_version(), sluice::sluice_version());
  EXPECT_EQ(sluice_build_revision(), sluice_revision());
}

TEST(ApiAcl, CountersFollowTheirRules) {
  for (const size_t more : {0u, 600u}) {
    std::string text = "permit tcp from any to any port 80\npermit tcp from any to any port 443\n";
    for (size_t i = 0; i < more; ++i)
      text += "deny from 172.16." + std::to_string(i / 250) + "." + std::to_string(i % 250) + " to any\n";
    const auto acl = acl_of(text, nullptr, true);
    const std::vector<sluice_key> keys = {tcp4(1, 2, 80), tcp4(1, 2, 443), tcp4(1, 2, 443), tcp4(1, 2, 22)};
    classify(acl.get(), keys);
    std::vector<sluice_counter> counters(more + 4);
    const auto read = [&] {
      sluice_counter removed{};
      Errors errors;
      EXPECT_EQ(sluice_acl_counters(acl.get(), counters.data(), counters.size(), &removed, &errors),
                sluice_acl_size(acl.get()) + 1)
          << errors.text();
      return removed;
    };
    read();
    EXPECT_EQ(counters[0].packets, 1u);
    EXPECT_EQ(counters[1].packets, 1u);
    EXPECT_EQ(counters[2].packets, 2u);
    EXPECT_EQ(counters[2].bytes, 200u);
    ASSERT_EQ(sluice_acl_change(acl.get(), "add at 1 permit udp from any to any\n", "c", nullptr), 0);
    classify(acl.get(), keys);
    read();
    EXPECT_EQ(counters[1].packets, 0u);
    EXPECT_EQ(counters[2].packets, 2u);
    EXPECT_EQ(counters[3].packets, 4u);
    ASSERT_EQ(sluice_acl_change(acl.get(), "delete 3\n", "c", nullptr), 0);
    EXPECT_EQ(read().packets, 4u);
    EXPECT_EQ(counters[2].packets, 2u);
    // From 0 on, also of what is gone, and they follow their rules as before.
    ASSERT_EQ(sluice_acl_clear_counters(acl.get(), nullptr), 0);
    EXPECT_EQ(read().packets, 0u);
    for (size_t i = 0; i <= sluice_acl_size(acl.get()); ++i)
      EXPECT_EQ(counters[i].packets + counters[i].bytes, 0u) << i;
    classify(acl.get(), keys);
    ASSERT_EQ(sluice_acl_change(acl.get(), "delete 1\n", "c", nullptr), 0);
    EXPECT_EQ(read().packets, 0u);
    EXPECT_EQ(counters[1].packets, 1u);
    EXPECT_EQ(counters[0].packets, 3u);
  }
  const auto silent = acl_of("permit tcp from any to any\n", nullptr, false);
  Errors errors;
  EXPECT_EQ(sluice_acl_clear_counters(silent.get(), &errors), -1);
  EXPECT_NE(errors.text().find("does not count"), std::string::npos);
  EXPECT_EQ(sluice_acl_clear_counters(nullptr, nullptr), -1);
}

TEST(ApiAcl, ManyThreadsCountEveryPacket) {
  const auto acl = acl_of("permit tcp from any to any port 80\n", nullptr, true);
  constexpr unsigned kThreads = 40, kRounds = 50;
  const std::vector<sluice_key> keys(33, tcp4(1, 2, 80));
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<sluice_match> out(keys.size());
      for (unsigned i = 0; i < kRounds; ++i) sluice_acl_classify(acl.get(), keys.data(), keys.size(), out.data());
    });
  }
  for (auto& thread : threads) thread.join();
  sluice_counter counters[2];
  EXPECT_EQ(sluice_acl_counters(acl.get(), counters, 2, nullptr, nullptr), 2u);
  EXPECT_EQ(counters[1].packets, uint64_t{kThreads} * kRounds * keys.size());
}

// Two rules take turns at the same packets: both stand in every generation, in one order or the other, and a call that
// saw both orders, or a rule of no generation, would show it.
TEST(ApiAcl, AnswersAreOfOneGenerationWhileTheListChanges) {
  for (const size_t more : {0u, 600u}) {
    std::string text = "deny tcp from any to any port 80\n";
    for (size_t i = 0; i < more; ++i)
      text += "deny from 172.16." + std::to_string(i / 250) + "." + std::to_string(i % 250) + " to any\n";
    const auto acl = acl_of(text, nullptr, true);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> wrong{0}, calls{0};
    std::vector<std::thread> readers;
    for (const size_t n : {size_t{1}, size_t{64}, size_t{5000}}) {
      readers.emplace_back([&, n] {
        const std::vector<sluice_key> keys(n, tcp4(1, 2, 80));
        std::vector<sluice_match> out(n);
        uint64_t before = 0;
        while (!stop.load()) {
          const uint64_t generation = sluice_acl_classify(acl.get(), keys.data(), n, out.data());
          if (generation < before) ++wrong;
          before = generation;
          // Odd generations deny, even ones permit.
          const uint32_t want = generation % 2 == 1 ? SLUICE_DENY : SLUICE_PERMIT;
          for (const sluice_match& m : out) wrong += m.rule != 1 || m.action != want;
          ++calls;
        }
      });
    }
    while (calls.load() < 3) std::this_thread::yield();
    for (int i = 0; i < 40; ++i) {
      Errors errors;
      const char* change = i % 2 == 0 ? "replace 1 permit tcp from any to any port 80\n"
                                      : "replace 1 deny tcp from any to any port 80\n";
      ASSERT_EQ(sluice_acl_change(acl.get(), change, "turn", &errors), 0) << errors.text();
      ASSERT_EQ(sluice_acl_generation(acl.get()), static_cast<uint64_t>(i) + 2);
    }
    stop = true;
    for (auto& reader : readers) reader.join();
    EXPECT_EQ(wrong.load(), 0u);
  }
}

// Changes of several threads take turns, also with lookups of the same threads.
TEST(ApiAcl, AnyThreadMayChangeTheList) {
  const auto acl = acl_of("deny from any to any\n");
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const std::string text = "add permit from 10." + std::to_string(t) + "." + std::to_string(i) + ".0/24 to any\n";
        failed += sluice_acl_change(acl.get(), text.c_str(), "thread", nullptr) != 0;
        const sluice_key key = tcp4(1, 2, 80);
        sluice_match match{};
        failed += sluice_acl_classify(acl.get(), &key, 1, &match) == 0 || match.rule != 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(sluice_acl_size(acl.get()), 41u);
  EXPECT_EQ(sluice_acl_generation(acl.get()), 41u);
}

TEST(ApiAcl, KeysComeFromFrames) {
  const auto frame = udp4("10.0.0.1", "192.0.2.7").ports(1000, 53).payload(10).build();
  sluice_key key;
  ASSERT_EQ(sluice_key_of_frame(frame.data(), frame.size(), 0, &key), 0);
  EXPECT_EQ(key.family, 4);
  EXPECT_EQ(key.src_lo, 0x0a000001u);
  EXPECT_EQ(key.dst_lo, 0xc0000207u);
  EXPECT_EQ(key.dst_port, 53);
  EXPECT_EQ(key.bits, SLUICE_KEY_PORTS);
  EXPECT_EQ(key.bytes, frame.size());
  for (size_t cut = 0; cut < 34; ++cut) {
    // A frame of its own, so that a byte read behind it is found.
    const std::vector<uint8_t> part(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(cut));
    EXPECT_EQ(sluice_key_of_frame(part.data(), cut, frame.size(), &key), -1);
    EXPECT_EQ(key.family, 0);
  }
  EXPECT_EQ(sluice_key_of_frame(nullptr, 0, 0, &key), -1);
  EXPECT_EQ(sluice_key_of_frame(frame.data(), frame.size(), 0, nullptr), -1);
}

TEST(ApiAcl, KeysComeFromPacketsWithoutALink) {
  for (const bool six : {false, true}) {
    const auto frame =
        six ? sluice::tcp6("2001:db8::1", "2001:db8::2").ports(1000, 53).tcp_flags(0x12).payload(10).build()
            : sluice::tcp4("10.0.0.1", "192.0.2.7").ports(1000, 53).tcp_flags(0x12).payload(10).build();
    sluice_key of_frame, of_packet;
    ASSERT_EQ(sluice_key_of_frame(frame.data(), frame.size(), 0, &of_frame), 0);
    for (size_t cut = 0; cut < frame.size() - 14; ++cut) {
      const std::vector<uint8_t> part(frame.begin() + 14, frame.begin() + 14 + static_cast<ptrdiff_t>(cut));
      // The last ten bytes are no header.
      EXPECT_EQ(sluice_key_of_packet(part.data(), cut, frame.size() - 14, &of_packet), cut < frame.size() - 24 ? -1 : 0)
          << cut;
    }
    of_frame.bytes -= 14;
    EXPECT_EQ(std::memcmp(&of_frame, &of_packet, sizeof of_frame), 0);
    EXPECT_EQ(of_packet.flags, 0x1200);
    if (six) continue;
    auto unsummed = std::vector<uint8_t>(frame.begin() + 14, frame.end());
    unsummed[10] ^= 1;
    EXPECT_EQ(sluice_key_of_packet(unsummed.data(), unsummed.size(), 0, &of_packet), 0);
  }
  sluice_key key;
  EXPECT_EQ(sluice_key_of_packet(nullptr, 0, 0, &key), -1);
  EXPECT_EQ(sluice_key_of_packet(&key, 4, 0, nullptr), -1);
}

TEST(ApiAcl, AFileMayHaveAFormatOfItsOwn) {
  const auto acl = acl_of("deny from any to any\n", nullptr, true);
  ASSERT_EQ(classify(acl.get(), {tcp4(1, 2, 80)})[0].rule, 1u);
  const auto path =
      (std::filesystem::temp_directory_path() / ("sluice_api_format_" + std::to_string(::getpid()))).string();
  std::ofstream(path) << "deny from any to any\n";
  Errors errors;
  EXPECT_EQ(sluice_acl_replace_file_as(acl.get(), path.c_str(), "classbench", &errors), -1);
  EXPECT_EQ(errors.at(0).line, 1u);
  EXPECT_EQ(sluice_acl_replace_file_as(acl.get(), path.c_str(), "no-such", &errors), -1);
  EXPECT_EQ(sluice_acl_generation(acl.get()), 1u);
  EXPECT_EQ(sluice_acl_replace_file_as(acl.get(), path.c_str(), "native", &errors), 0) << errors.text();
  EXPECT_EQ(sluice_acl_replace_file_as(acl.get(), path.c_str(), nullptr, &errors), 0) << errors.text();
  std::filesystem::remove(path);
  sluice_counter counters[2];
  ASSERT_EQ(sluice_acl_counters(acl.get(), counters, 2, nullptr, nullptr), 2u);
  EXPECT_EQ(counters[1].packets, 1u) << "its counter goes on";
}

TEST(ApiAcl, ItsShapeIsThatOfItsTables) {
  sluice_acl_shape shape{};
  const auto linear = acl_of("deny from any to any\n", "linear");
  EXPECT_EQ(sluice_acl_measure(linear.get(), &shape), -1);
  EXPECT_EQ(sluice_acl_measure(nullptr, &shape), -1);
  EXPECT_EQ(sluice_acl_measure(linear.get(), nullptr), -1);
  shape.size = sizeof shape;
  ASSERT_EQ(sluice_acl_measure(linear.get(), &shape), 0);
  EXPECT_EQ(shape.tables, 0u);
  EXPECT_GT(shape.bytes, 0u);
  for (const char* algorithm : {"tuple_merge", "tuple_space"}) {
    // Short lists have no tables: they go by bitmaps.
    std::string rules;
    for (int i = 0; i < 1000; ++i) {
      const std::string low = std::to_string(i % 200), high = std::to_string(i / 200), last = std::to_string(i % 250);
      rules += "deny tcp from 10." + low + "." + high + ".0/24 to 192.0.2." + last + " port " + std::to_string(i + 1) +
               "\npermit udp from 11." + low + ".0.0/16 to 192.0." + high + ".0/24\n";
    }
    const auto acl = acl_of(rules, algorithm);
    ASSERT_EQ(sluice_acl_measure(acl.get(), &shape), 0);
    EXPECT_GE(shape.tables, 1u) << algorithm;
    EXPECT_LT(shape.tables, 10u) << algorithm;
    EXPECT_GE(shape.slots, shape.tables) << algorithm;
  }
}

TEST(ApiAcl, AnotherListTakesItsPlace) {
  const auto acl = acl_of("deny from any to any\n");
  Errors errors;
  const std::string other = "permit tcp from any to any port 80\ndeny from any to any\n";
  ASSERT_EQ(sluice_acl_replace(acl.get(), other.data(), other.size(), "other", &errors), 0) << errors.text();
  EXPECT_EQ(classify(acl.get(), {tcp4(1, 2, 80)})[0].action, uint32_t{SLUICE_PERMIT});
  const auto path =
      (std::filesystem::temp_directory_path() / ("sluice_api_list_" + std::to_string(::getpid()))).string();
  std::ofstream(path) << "deny tcp from any to any port 80\n";
  ASSERT_EQ(sluice_acl_replace_file(acl.get(), path.c_str(), &errors), 0) << errors.text();
  std::filesystem::remove(path);
  EXPECT_EQ(classify(acl.get(), {tcp4(1, 2, 80)})[0].action, uint32_t{SLUICE_DENY});
  EXPECT_EQ(sluice_acl_generation(acl.get()), 3u);
}

}  // namespace
}  // namespace sluice::api_test
