// Every algorithm gives the oracle's verdict on the published ClassBench sets.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/test_data.h"
#include "formats/classbench.h"
#include "formats/trace.h"
#include "tables/acl/acl_test_support.h"
#include "tables/acl/conformance.h"
#include "tables/acl/patch.h"

namespace sluice {
namespace {

std::string unpack(const std::string& path) {
  std::string out;
  FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[65536];
  while (size_t n = fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

size_t scale() {
  const char* text = std::getenv("SLUICE_TEST_SCALE");
  return text == nullptr ? 1 : static_cast<size_t>(std::max(1, std::atoi(text)));
}

class ClassBenchSets : public testing::TestWithParam<const char*> {};

TEST_P(ClassBenchSets, EveryAlgorithmAgreesWithTheOracle) {
  const std::string name = GetParam();
  const auto path = test_data(("acl/" + name + ".xz").c_str());
  if (!path) GTEST_SKIP() << "no data set acl/" << name << ".xz; point SLUICE_DATA at the data";
  auto set = parse_classbench(unpack(*path), name);
  ASSERT_TRUE(set.ok()) << to_string(set.error());
  ASSERT_GT(set->rules.size(), 500u) << "xz is needed to unpack the data";
  acl_test::Random random(7);
  const bool large = set->rules.size() > 50'000;
  auto keys = acl_test::keys_for(*set, (large ? 600 : 2000) * scale(), random);
  if (const auto trace_path = test_data(("acl/" + name + "_trace.xz").c_str())) {
    auto trace = parse_trace(unpack(*trace_path), name + "_trace");
    ASSERT_TRUE(trace.ok()) << to_string(trace.error());
    ASSERT_GT(trace->size(), 10'000u);
    // A stride over the whole trace; all of it at a scale of 100 and more.
    const size_t step = std::max<size_t>(1, trace->size() / (1000 * scale()));
    for (size_t i = 0; i < trace->size(); i += step) keys.push_back((*trace)[i]);
  }
  acl_test::check_all_algorithms(*set, keys);
}

std::vector<const char*> set_names() {
  std::vector<const char*> names = {"acl1_1k",  "acl2_1k",  "acl3_1k",  "acl4_1k",  "acl5_1k",  "fw1_1k",
                                    "fw2_1k",   "fw3_1k",   "fw4_1k",   "fw5_1k",   "ipc1_1k",  "ipc2_1k",
                                    "acl1_10k", "acl2_10k", "acl3_10k", "acl4_10k", "acl5_10k", "fw1_10k",
                                    "fw2_10k",  "fw3_10k",  "fw4_10k",  "fw5_10k",  "ipc1_10k", "ipc2_10k"};
#if defined(SLUICE_SANITIZED)
  names.push_back("acl1_100k");  // a minute for all three, and the same code
#else
  names.insert(names.end(), {"acl1_100k", "fw1_100k", "ipc1_100k"});
#endif
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ClassBenchSets, testing::ValuesIn(set_names()),
                         [](const auto& set) { return std::string(set.param); });

// The sets as lists that change: a patched image equals the oracle after every step of random changes, each published
// by itself. With SLUICE_TEST_SCALE=40: 100,000 steps a set of a thousand rules.
void change_set(const std::string& name, size_t steps) {
  SCOPED_TRACE(name);
  const auto path = test_data(("acl/" + name + ".xz").c_str());
  ASSERT_TRUE(path.has_value());
  const std::string text = unpack(*path);
  auto set = parse_classbench(text, name);
  ASSERT_TRUE(set.ok()) << to_string(set.error());
  acl_test::Random random(61);
  std::map<uint64_t, AclRule> rules;
  std::map<uint64_t, AclMatchRule> flat;
  std::vector<uint64_t> in;
  std::vector<OrderedRule> out;  // taken away, to come back
  std::vector<OrderedRule> initial;
  for (const AclRule& rule : set->rules) {
    const uint64_t priority = uint64_t{initial.size() + 1} << 20;
    initial.push_back({priority, rule});
    rules.emplace(priority, rule);
    flat.emplace(priority, flatten(rule, 1));
    in.push_back(priority);
  }
  auto table = PatchedAcl::create(initial);
  ASSERT_TRUE(table.ok()) << to_string(table.error());
  std::shared_ptr<const Image> image;
  for (size_t step = 0; step < steps; ++step) {
    AclChange change;
    auto remove = [&](size_t i) {
      const uint64_t priority = in[i];
      in[i] = in.back();
      in.pop_back();
      out.push_back({priority, rules.at(priority)});
      change.remove(priority);
      rules.erase(priority);
      flat.erase(priority);
    };
    auto add = [&](const OrderedRule& r) {
      change.add(r.priority, r.rule);
      rules.emplace(r.priority, r.rule);
      flat.emplace(r.priority, flatten(r.rule, 1));
      in.push_back(r.priority);
    };
    const uint64_t kind = acl_test::below(random, 10);
    const AclRule* touched = nullptr;
    AclRule copy;
    if (kind < 4 && in.size() > 10) {
      remove(acl_test::below(random, in.size()));
      copy = out.back().rule;
      touched = &copy;
    } else if (kind < 8 && !out.empty()) {
      std::swap(out[acl_test::below(random, out.size())], out.back());
      const OrderedRule back = out.back();
      out.pop_back();
      if (rules.contains(back.priority)) continue;  // one that moved has its place
      add(back);
      copy = back.rule;
      touched = &copy;
    } else {  // a rule moves beside another
      remove(acl_test::below(random, in.size()));
      OrderedRule moved = out.back();
      out.pop_back();
      moved.priority = in[acl_test::below(random, in.size())] + 1;
      copy = moved.rule;
      touched = &copy;
      if (!rules.contains(moved.priority)) add(moved);
    }
    const auto applied = (*table)->apply(change);
    ASSERT_TRUE(applied.ok()) << to_string(applied.error());
    const auto published = (*table)->publish();
    ASSERT_TRUE(published.ok()) << to_string(published.error());
    image = *published;
    const auto view = TupleMergeView::open(*image);
    ASSERT_TRUE(view.ok());
    FlowKey keys[3] = {acl_test::key_in(*touched, random), acl_test::key_in(*touched, random),
                       acl_test::key_in(rules.at(in[acl_test::below(random, in.size())]), random)};
    const FlowKey* pointers[3] = {&keys[0], &keys[1], &keys[2]};
    uint32_t found[3];
    view->lookup_burst(pointers, found, 3);
    for (size_t k = 0; k < 3; ++k) {
      std::optional<uint64_t> want;
      for (const auto& [priority, rule] : flat) {
        if (!matches(rule, keys[k])) continue;
        want = priority;
        break;
      }
      ASSERT_EQ(found[k] != 0 ? (*table)->priority_of(found[k]) : std::nullopt, want) << "after step " << step;
      ASSERT_EQ(view->lookup(keys[k]), found[k]);
    }
  }
  const auto sealed = (*table)->replicas().seal();
  ASSERT_TRUE(sealed.ok());
  const auto checked = Image::from_bytes(sealed->bytes(), ImageKind::kAcl);
  ASSERT_TRUE(checked.ok());
  EXPECT_TRUE(AclView::open(*checked).ok());
}

TEST(ClassBenchPatches, EqualTheOracleAfterEveryChange) {
  if (!test_data("acl/acl1_1k.xz")) GTEST_SKIP() << "no data sets; point SLUICE_DATA at the data";
  for (const char* name : {"acl1_1k", "fw1_1k", "ipc1_1k"}) change_set(name, 2500 * scale());
  for (const char* name : {"acl1_10k", "fw1_10k", "ipc1_10k"}) change_set(name, 100 * scale());
}

}  // namespace
}  // namespace sluice
