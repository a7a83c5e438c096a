#include "exec/walk/descent.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>
#include <numeric>

namespace sluice {
namespace {

struct Made {
  size_t parent;  // index; none: the packet that came in
  uint64_t visit;
  unsigned output;
};
constexpr size_t kRoot = ~size_t{0};

// By the definition: a packet, then what it caused, the latest visit first and there in the order of making; each with
// its own behind it.
std::vector<size_t> in_order(const std::vector<Made>& all, size_t of) {
  std::map<uint64_t, std::map<unsigned, std::vector<size_t>>, std::greater<>> by_visit;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].parent == of) by_visit[all[i].visit][all[i].output].push_back(i);
  }
  std::vector<size_t> order;
  for (const auto& [visit, by_output] : by_visit) {
    for (const auto& [output, made] : by_output) {
      for (const size_t i : made) {
        order.push_back(i);
        for (const size_t below : in_order(all, i)) order.push_back(below);
      }
    }
  }
  return order;
}

RC_GTEST_PROP(Descent, PlacesPacketsBehindTheirParentsInAnyBatches, ()) {
  const auto n = *rc::gen::inRange<size_t>(1, 120);
  std::vector<Made> all;
  for (size_t i = 0; i < n; ++i) {
    const auto pick = *rc::gen::inRange<size_t>(0, i + 1);
    all.push_back({pick == i ? kRoot : pick, *rc::gen::inRange<uint64_t>(0, 5), *rc::gen::inRange<unsigned>(0, 3)});
  }
  // Parents are named before their children: batches of a few, in order.
  Batch root = *Batch::create(1, 1024);
  uint8_t* frame = root.reserve(10);
  root.push(frame, 10, 10, 0, 0);
  Descent descent;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Batch>> batches;
    std::vector<std::pair<size_t, uint32_t>> at;  // batch and row of each
    for (size_t i = 0; i < n; ++i) {
      const bool fresh = batches.empty() || batches.back()->full() || *rc::gen::inRange(0, 4) == 0 ||
                         (all[i].parent != kRoot && at[all[i].parent].first + 1 == batches.size());
      if (fresh) {
        if (!batches.empty()) batches.back()->set_first_name(descent.add(*batches.back()));
        batches.push_back(std::make_unique<Batch>(*Batch::create(8, 0)));
        batches.back()->keep_descent();
      }
      batches.back()->set_maker(Descent::maker(all[i].visit, all[i].output));
      const bool of_root = all[i].parent == kRoot;
      const Batch& from = of_root ? root : *batches[at[all[i].parent].first];
      const uint32_t row = batches.back()->push_made(from, of_root ? 0 : at[all[i].parent].second, frame, 10, 10);
      at.push_back({batches.size() - 1, row});
    }
    batches.back()->set_first_name(descent.add(*batches.back()));
    const Descent::Places places = descent.places();
    const std::vector<size_t> want = in_order(all, kRoot);
    RC_ASSERT(want.size() == n);
    for (size_t k = 0; k < n; ++k) {
      const auto [batch, row] = at[want[k]];
      RC_ASSERT(places[batches[batch]->name(row)] == k + 1);
    }
    descent.clear();
  }
}

}  // namespace
}  // namespace sluice
