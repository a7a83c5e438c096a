// Lookups in a device's memory: the answers are those of the host, whatever lies where, while tables change.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "api/api_test_support.h"
#include "api/device.h"
#include "exec/emu/emu_device.h"
#include "net/bytes.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/algorithms.h"
#include "tables/lpm/algorithms.h"

namespace sluice::api_test {
namespace {

using acl_test::Random;

sluice_column column(const void* at, int64_t stride) {
  return {at, stride};
}
template <typename T>
sluice_column column(const std::vector<T>& values) {
  return {values.data(), sizeof(T)};
}

// Keys by column, as they lie in the memory of the emulated device.
struct Columns {
  explicit Columns(const std::vector<sluice_key>& keys) {
    for (const sluice_key& k : keys) {
      families.push_back(k.family);
      src4.push_back(static_cast<uint32_t>(k.src_lo));
      dst4.push_back(static_cast<uint32_t>(k.dst_lo));
      // One byte off, so that nothing relies on an alignment.
      for (const auto& [to, hi, lo] : {std::tuple{&src6, k.src_hi, k.src_lo}, std::tuple{&dst6, k.dst_hi, k.dst_lo}}) {
        if (to->empty()) to->push_back(0);
        to->resize(to->size() + 16);
        store_be64(to->data() + to->size() - 16, hi);
        store_be64(to->data() + to->size() - 8, lo);
      }
      protocol.push_back(k.protocol);
      dscp.push_back(k.dscp);
      bits.push_back(k.bits);
      sport.push_back(k.src_port);
      dport.push_back(k.dst_port);
      flags.push_back(k.flags);
      icmp.push_back(k.icmp);
    }
  }
  sluice_resident_keys all() const {
    sluice_resident_keys keys = SLUICE_RESIDENT_KEYS_INIT;
    keys.families = column(families);
    keys.src4 = column(src4);
    keys.dst4 = column(dst4);
    keys.src6 = column(src6.data() + 1, 16);
    keys.dst6 = column(dst6.data() + 1, 16);
    keys.protocol = column(protocol);
    keys.src_port = column(sport);
    keys.dst_port = column(dport);
    keys.flags = column(flags);
    keys.icmp = column(icmp);
    keys.dscp = column(dscp);
    keys.bits = column(bits);
    return keys;
  }
  std::vector<uint8_t> families, src6, dst6, protocol, dscp, bits;
  std::vector<uint32_t> src4, dst4;
  std::vector<uint16_t> sport, dport, flags, icmp;
};

sluice_resident_keys packed(const std::vector<sluice_key>& keys) {
  sluice_resident_keys all = SLUICE_RESIDENT_KEYS_INIT;
  all.keys = column(keys);
  return all;
}

class ApiResident : public testing::Test {
 protected:
  void SetUp() override {
    device_.reset(sluice_device_open("emu", nullptr));
    ASSERT_NE(device_, nullptr);
  }
  Handle<sluice_resident> open(const sluice_acl* acl) {
    Errors errors;
    Handle<sluice_resident> made(sluice_resident_open_acl(device_.get(), acl, &errors));
    EXPECT_NE(made, nullptr) << errors.text();
    return made;
  }
  Handle<sluice_resident> open(const sluice_fib* fib) {
    Errors errors;
    Handle<sluice_resident> made(sluice_resident_open_fib(device_.get(), fib, &errors));
    EXPECT_NE(made, nullptr) << errors.text();
    return made;
  }
  template <typename T>
  std::vector<T> ask(sluice_resident* resident, const sluice_resident_keys& keys, size_t n, uint32_t answer,
                     uint64_t* generation = nullptr) {
    std::vector<T> out(n + 1, T{77});
    Errors errors;
    const uint64_t made = sluice_resident_lookup(resident, &keys, n, answer, out.data(), nullptr, &errors);
    EXPECT_NE(made, 0u) << errors.text();
    EXPECT_EQ(out[n], T{77}) << "it wrote past the end";
    out.resize(n);
    if (generation != nullptr) *generation = made;
    return out;
  }
  void expect_as_host(const sluice_acl* acl, sluice_resident* resident, const std::vector<sluice_key>& keys) {
    const auto want = classify(acl, keys);
    const Columns columns(keys);
    for (const sluice_resident_keys& form : {columns.all(), packed(keys)}) {
      const auto positions = ask<uint32_t>(resident, form, keys.size(), SLUICE_ANSWER_POSITION);
      const auto actions = ask<uint8_t>(resident, form, keys.size(), SLUICE_ANSWER_ACTION);
      const auto marks = ask<uint32_t>(resident, form, keys.size(), SLUICE_ANSWER_MARK);
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(positions[i], want[i].rule) << i;
        ASSERT_EQ(actions[i], want[i].action) << i;
        ASSERT_EQ(marks[i], want[i].mark) << i;
      }
    }
  }

  Handle<sluice_device> device_;
};

TEST_F(ApiResident, AnswersAsTheListDoesByEveryAlgorithm) {
  for (const std::string& algorithm : acl_algorithm_names()) {
    SCOPED_TRACE(algorithm);
    Random random(7);
    const RuleSet set = acl_test::random_set(random, 150);
    auto image = build_acl(set, algorithm);
    ASSERT_TRUE(image.ok());
    const Handle<sluice_acl> acl(
        sluice_acl_read(image->bytes().data(), image->bytes().size(), "image", nullptr, nullptr));
    ASSERT_NE(acl, nullptr);
    auto keys = keys_of(acl_test::keys_for(set, 2000, random));
    size_t of[3] = {};
    for (const sluice_key& k : keys) ++of[k.family == 4 ? 0 : k.family == 6 ? 1 : 2];
    EXPECT_GT(of[0], 0u);
    EXPECT_GT(of[1], 0u);
    keys[3].family = 5;  // not IP
    keys[4].family = 0;
    expect_as_host(acl.get(), open(acl.get()).get(), keys);
  }
}

TEST_F(ApiResident, MarksAreThoseOfTheRules) {
  const auto acl = acl_of("mark(42) tcp from any to any port 80\ndeny tcp from any to any port 81\n");
  std::vector<sluice_key> keys;
  for (uint16_t port : {79, 80, 81}) keys.push_back(tcp4(1, 2, port));
  const auto resident = open(acl.get());
  expect_as_host(acl.get(), resident.get(), keys);
  EXPECT_EQ(ask<uint32_t>(resident.get(), packed(keys), 3, SLUICE_ANSWER_MARK), (std::vector<uint32_t>{0, 42, 0}));
  EXPECT_EQ(ask<uint8_t>(resident.get(), packed(keys), 3, SLUICE_ANSWER_ACTION),
            (std::vector<uint8_t>{SLUICE_NO_MATCH, SLUICE_MARK, SLUICE_DENY}));
}

TEST_F(ApiResident, ColumnsOfOneFamilyWithStrides) {
  const auto acl = acl_of("deny tcp from any to 10.0.0.0/8 port 80 flags SYN\npermit ip from any to 2001:db8::/32\n");
  const auto resident = open(acl.get());
  struct Row {
    uint32_t src, dst;
    uint16_t dport, other;
    uint8_t protocol, flags, pad[2];
  };
  const std::vector<Row> rows = {{1, 0x0a000001, 80, 0, 6, 2, {}},
                                 {1, 0x0a000001, 80, 0, 6, 0x10, {}},
                                 {1, 0x0b000001, 80, 0, 6, 2, {}},
                                 {1, 0x0a000001, 81, 0, 6, 2, {}},
                                 {1, 0x0a000001, 80, 0, 17, 2, {}}};
  sluice_resident_keys keys = SLUICE_RESIDENT_KEYS_INIT;
  keys.all_bits = SLUICE_KEY_PORTS;
  // Backwards, too.
  for (const bool back : {false, true}) {
    const Row* const first = back ? &rows.back() : rows.data();
    const int64_t stride = back ? -static_cast<int64_t>(sizeof(Row)) : static_cast<int64_t>(sizeof(Row));
    keys.src4 = column(&first->src, stride);
    keys.dst4 = column(&first->dst, stride);
    keys.dst_port = column(&first->dport, stride);
    keys.protocol = column(&first->protocol, stride);
    keys.tcp_flags = column(&first->flags, stride);
    auto want = std::vector<uint32_t>{1, 0, 0, 0, 0};
    if (back) want = {0, 0, 0, 0, 1};
    EXPECT_EQ(ask<uint32_t>(resident.get(), keys, rows.size(), SLUICE_ANSWER_POSITION), want);
  }
  // The same key for all, by a stride of 0.
  std::vector<uint8_t> six(16);
  store_be64(six.data(), 0x20010db800000000);
  sluice_resident_keys all = SLUICE_RESIDENT_KEYS_INIT;
  all.family = 6;
  all.src6 = all.dst6 = column(six.data(), 0);
  EXPECT_EQ(ask<uint32_t>(resident.get(), all, 3, SLUICE_ANSWER_POSITION), (std::vector<uint32_t>{2, 2, 2}));
  EXPECT_TRUE(ask<uint32_t>(resident.get(), all, 0, SLUICE_ANSWER_POSITION).empty());
}

// The list is patched: what is looked up are numbers with gaps.
TEST_F(ApiResident, FollowsTheListThroughChanges) {
  std::string text;
  for (unsigned i = 0; i < 600; ++i)
    text += "deny tcp from 172.16." + std::to_string(i / 250) + "." + std::to_string(i % 250) + " to any\n";
  text += "permit tcp from any to any\n";
  const auto acl = acl_of(text);
  const auto resident = open(acl.get());
  std::vector<sluice_key> keys;
  for (uint32_t i = 0; i < 700; ++i) keys.push_back(tcp4(0xac100000 + i, 2, 80));
  expect_as_host(acl.get(), resident.get(), keys);
  // More changes than a host's table has room for generations: none of them is kept.
  for (uint64_t round = 0; round < 12; ++round) {
    Errors errors;
    const std::string step = round % 3 == 2 ? "delete 3\n" : "add at 1 deny udp from any to any\n";
    ASSERT_EQ(sluice_acl_change(acl.get(), step.c_str(), "c", &errors), 0) << errors.text();
    uint64_t generation = 0;
    ask<uint32_t>(resident.get(), packed(keys), keys.size(), SLUICE_ANSWER_POSITION, &generation);
    EXPECT_EQ(generation, round + 2);
    expect_as_host(acl.get(), resident.get(), keys);
  }
}

TEST_F(ApiResident, RoutesByEveryAlgorithm) {
  const std::string text = "10.0.0.0/8 a\n10.1.0.0/16 b\n10.1.2.0/25 c\n2001:db8::/32 d\n2001:db8:1::/48 a\n";
  std::vector<sluice_key> keys;
  Random random(3);
  for (uint32_t i = 0; i < 500; ++i) {
    sluice_key key{};
    key.family = static_cast<uint8_t>(i % 5 == 0 ? 0 : i % 2 == 0 ? 4 : 6);
    key.dst_hi = key.family == 6 ? 0x20010db800000000 + (uint64_t{i % 3} << 16) : 0;
    key.dst_lo = key.family == 4 ? 0x0a000000 + (i % 3 << 16) + (i % 4 << 8) + i % 256 : i;
    keys.push_back(key);
  }
  auto check = [&](const char* four, const char* six) {
    SCOPED_TRACE(std::string(four) + " " + six);
    const auto fib = fib_of(text, four, six);
    const auto resident = open(fib.get());
    for (int round = 0; round < 3; ++round) {
      std::vector<uint32_t> want(keys.size());
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto address = static_cast<uint32_t>(keys[i].dst_lo);
        if (keys[i].family == 4) sluice_fib_lookup4(fib.get(), &address, 1, &want[i]);
        if (keys[i].family == 6) sluice_fib_lookup6(fib.get(), &keys[i].dst_hi, &keys[i].dst_lo, 1, &want[i]);
      }
      const Columns columns(keys);
      sluice_resident_keys by_column = SLUICE_RESIDENT_KEYS_INIT;
      by_column.families = column(columns.families);
      by_column.dst4 = column(columns.dst4);
      by_column.dst6 = column(columns.dst6.data() + 1, 16);
      for (const auto& form : {by_column, packed(keys)}) {
        EXPECT_EQ(ask<uint32_t>(resident.get(), form, keys.size(), SLUICE_ANSWER_NEXT_HOP), want);
        const auto indexes = ask<int32_t>(resident.get(), form, keys.size(), SLUICE_ANSWER_INDEX);
        for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(indexes[i], static_cast<int32_t>(want[i]) - 1);
      }
      ASSERT_EQ(sluice_fib_change(fib.get(), round == 0 ? "add 10.2.0.0/16 e\n" : "delete 10.1.0.0/16\n", "c", nullptr),
                round == 2 ? -1 : 0);
    }
  };
  for (const std::string& four : lpm_algorithm_names4()) check(four.c_str(), "poptrie");
  for (const std::string& six : lpm_algorithm_names6()) check("dir24", six.c_str());
}

TEST_F(ApiResident, OutlivesTheHandlesThatItWasOpenedWith) {
  auto acl = acl_of("permit tcp from any to any port 80\n");
  const auto resident = open(acl.get());
  device_.reset();
  acl.reset();
  EXPECT_EQ(ask<uint32_t>(resident.get(), packed({tcp4(1, 2, 80)}), 1, SLUICE_ANSWER_POSITION)[0], 1u);
}

TEST_F(ApiResident, AllAnswersAreOfOneGenerationWhileThreadsChangeTheList) {
  // Patched, and built anew.
  for (const unsigned rules : {1u, 600u}) {
    std::string text = "deny tcp from any to any port 80\n";
    for (unsigned i = 1; i < rules; ++i) text += "deny udp from 10.0.0." + std::to_string(i % 250) + " to any\n";
    const auto acl = acl_of(text);
    const auto resident = open(acl.get());
    std::atomic<int> failed{0};
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    const std::vector<sluice_key> keys(3000, tcp4(1, 2, 80));
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        std::vector<uint8_t> out(keys.size());
        const auto all = packed(keys);
        uint64_t last = 0;
        while (!done.load()) {
          const uint64_t generation = sluice_resident_lookup(resident.get(), &all, keys.size(), SLUICE_ANSWER_ACTION,
                                                             out.data(), nullptr, nullptr);
          failed += generation < last || generation == 0;
          last = generation;
          for (const uint8_t action : out) failed += action != (generation % 2 == 1 ? SLUICE_DENY : SLUICE_PERMIT);
        }
      });
    }
    for (int i = 0; i < 60; ++i) {
      const char* const step = i % 2 == 0 ? "replace 1 permit tcp from any to any port 80\n"
                                          : "replace 1 deny tcp from any to any port 80\n";
      failed += sluice_acl_change(acl.get(), step, "turn", nullptr) != 0;
    }
    done = true;
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(failed.load(), 0) << rules;
  }
}

TEST_F(ApiResident, ADeviceWithoutRoomOrThatFailsIsAnErrorOfTheCall) {
  auto& faults = dynamic_cast<EmuDevice&>(*device_->device).faults();
  const auto acl = acl_of("deny tcp from any to any port 80\n");
  const auto resident = open(acl.get());
  const std::vector<sluice_key> keys(10, tcp4(1, 2, 80));
  const auto given = packed(keys);
  std::vector<uint32_t> out(keys.size(), 9);
  Errors errors;
  auto look = [&] {
    return sluice_resident_lookup(resident.get(), &given, keys.size(), SLUICE_ANSWER_POSITION, out.data(), nullptr,
                                  &errors);
  };
  faults.memory_limit = 100;
  EXPECT_EQ(look(), 0u);
  EXPECT_NE(errors.text().find("bytes"), std::string::npos) << errors.text();
  EXPECT_EQ(out[0], 9u);
  faults.memory_limit = ~0ull;
  EXPECT_EQ(look(), 1u);
  EXPECT_EQ(out, (std::vector<uint32_t>(keys.size(), 1)));
  // A generation that finds no room: never answers of the one before.
  ASSERT_EQ(sluice_acl_change(acl.get(), "add at 1 deny udp from any to any\n", "c", nullptr), 0);
  faults.memory_limit = 100;
  EXPECT_EQ(look(), 0u);
  EXPECT_EQ(out[0], 1u);
  faults.memory_limit = ~0ull;
  EXPECT_EQ(look(), 2u);
  EXPECT_EQ(out[0], 2u);
  faults.killed_after = 0;
  EXPECT_EQ(look(), 0u);
  EXPECT_NE(errors.text().find("killed"), std::string::npos) << errors.text();
}

TEST_F(ApiResident, SaysWhatIsWrong) {
  Errors errors;
  const Handle<sluice_device> cpu(sluice_device_open("cpu", nullptr));
  const auto acl = acl_of("deny from any to any\n");
  const auto fib = fib_of("10.0.0.0/8 a\n");
  EXPECT_EQ(sluice_resident_open_acl(cpu.get(), acl.get(), &errors), nullptr);
  EXPECT_NE(errors.text().find("no memory of its own"), std::string::npos);
  EXPECT_EQ(sluice_resident_open_fib(cpu.get(), fib.get(), &errors), nullptr);
  EXPECT_EQ(sluice_resident_open_acl(device_.get(), nullptr, &errors), nullptr);
  EXPECT_EQ(sluice_resident_open_acl(nullptr, acl.get(), &errors), nullptr);
  const auto counting = acl_of("deny from any to any\n", nullptr, true);
  EXPECT_EQ(sluice_resident_open_acl(device_.get(), counting.get(), &errors), nullptr);
  EXPECT_NE(errors.text().find("count"), std::string::npos);

  const auto resident = open(acl.get());
  std::vector<sluice_key> keys(4, tcp4(1, 2, 3));
  std::vector<uint32_t> out(5, 9);
  auto refused = [&](const sluice_resident_keys* given, uint32_t answer, void* to, const char* word) {
    EXPECT_EQ(sluice_resident_lookup(resident.get(), given, 4, answer, to, nullptr, &errors), 0u);
    EXPECT_NE(errors.text().find(word), std::string::npos) << errors.text();
    EXPECT_EQ(out, (std::vector<uint32_t>(5, 9))) << "nothing is written";
  };
  auto given = packed(keys);
  refused(nullptr, 0, out.data(), "NULL");
  refused(&given, 0, nullptr, "NULL");
  refused(&given, SLUICE_ANSWER_NEXT_HOP, out.data(), "access list");
  refused(&given, 17, out.data(), "17");
  refused(&given, 0, reinterpret_cast<uint8_t*>(out.data()) + 1, "aligned");
  given.keys.data = reinterpret_cast<const uint8_t*>(keys.data()) + 4;
  refused(&given, 0, out.data(), "`keys` is not aligned");
  given = packed(keys);
  given.keys.stride = 44;
  refused(&given, 0, out.data(), "`keys` is not aligned");
  given.size = 8;
  refused(&given, 0, out.data(), "size");
  given = SLUICE_RESIDENT_KEYS_INIT;
  refused(&given, 0, out.data(), "addresses");
  given.src4 = column(out);
  refused(&given, 0, out.data(), "addresses");
  given.dst4 = column(out);
  given.family = 5;
  refused(&given, 0, out.data(), "5");
  given.family = 6;
  refused(&given, 0, out.data(), "addresses");
  const auto routes = open(fib.get());
  EXPECT_EQ(sluice_resident_lookup(routes.get(), &given, 4, 0, out.data(), nullptr, &errors), 0u);
  EXPECT_EQ(sluice_resident_lookup(nullptr, &given, 4, 0, out.data(), nullptr, &errors), 0u);
  EXPECT_NE(sluice_resident_stream(resident.get(), &errors), nullptr);
  EXPECT_EQ(sluice_resident_stream(nullptr, &errors), nullptr);
  sluice_resident_free(nullptr);
}

}  // namespace
}  // namespace sluice::api_test
