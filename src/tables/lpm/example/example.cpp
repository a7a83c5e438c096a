#include "tables/lpm/example/example.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tables/image.h"
#include "tables/lpm/intervals.h"

namespace sluice {
namespace {

// A plan knows its exact size; the bytes are written later, into the image.
template <typename Key>
FibPlan plan_example(std::shared_ptr<const std::vector<Key>> begins,
                     std::shared_ptr<const std::vector<uint16_t>> hops) {
  FibPlan plan;
  plan.bytes = sizeof(ExampleLpmHeader) + begins->size() * (sizeof(Key) + sizeof(uint16_t));
  plan.write = [begins, hops](std::span<std::byte> out) {
    ExampleLpmHeader header{};
    header.count = static_cast<uint32_t>(begins->size());
    std::memcpy(out.data(), &header, sizeof header);
    std::memcpy(out.data() + sizeof header, begins->data(), begins->size() * sizeof(Key));
    std::memcpy(out.data() + sizeof header + begins->size() * sizeof(Key), hops->data(),
                hops->size() * sizeof(uint16_t));
  };
  return plan;
}

}  // namespace

template <typename Key>
Result<ExampleLpmSearch<Key>> ExampleLpmSearch<Key>::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  const auto* header = section_array<ExampleLpmHeader>(section, 0, 1);
  if (header == nullptr) return Error(fmt::format("example: {} bytes are too few", section.size()));
  ExampleLpmSearch view;
  view.count_ = header->count;
  view.begins_ = section_array<Key>(section, sizeof(ExampleLpmHeader), view.count_);
  view.next_hops_ =
      section_array<uint16_t>(section, sizeof(ExampleLpmHeader) + uint64_t{view.count_} * sizeof(Key), view.count_);
  if (view.count_ == 0 || view.begins_ == nullptr || view.next_hops_ == nullptr) {
    return Error(fmt::format("example: {} intervals do not fit into {} bytes", view.count_, section.size()));
  }
  for (uint32_t i = 0; i < view.count_; ++i) {
    const bool in_order = i == 0 ? !(Key{} < view.begins_[0]) : view.begins_[i - 1] < view.begins_[i];
    if (!in_order) return Error(fmt::format("example: interval {} is out of order", i));
    if (view.next_hops_[i] > next_hop_count) {
      return Error(fmt::format("example: interval {} has next hop {} of {}", i, view.next_hops_[i], next_hop_count));
    }
  }
  return view;
}
template class ExampleLpmSearch<uint32_t>;
template class ExampleLpmSearch<ExampleLpmKey6>;

Result<Example4View> Example4View::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  auto search = ExampleLpmSearch::open(section, next_hop_count);
  if (!search) return std::move(search).error();
  Example4View view;
  static_cast<ExampleLpmSearch&>(view) = *search;
  return view;
}

Result<Example6View> Example6View::open(std::span<const std::byte> section, uint32_t next_hop_count) {
  auto search = ExampleLpmSearch::open(section, next_hop_count);
  if (!search) return std::move(search).error();
  Example6View view;
  static_cast<ExampleLpmSearch&>(view) = *search;
  return view;
}

Result<FibPlan> plan_example4(const Rib& rib) {
  auto begins = std::make_shared<std::vector<uint32_t>>();
  auto hops = std::make_shared<std::vector<uint16_t>>();
  for (const Interval4& i : intervals_of<uint32_t>(rib.routes4())) {
    begins->push_back(i.begin);
    hops->push_back(i.next_hop);
  }
  return plan_example<uint32_t>(begins, hops);
}

Result<FibPlan> plan_example6(const Rib& rib) {
  auto begins = std::make_shared<std::vector<ExampleLpmKey6>>();
  auto hops = std::make_shared<std::vector<uint16_t>>();
  for (const Interval6& i : intervals_of<Uint128>(rib.routes6())) {
    begins->push_back({static_cast<uint64_t>(i.begin >> 64), static_cast<uint64_t>(i.begin)});
    hops->push_back(i.next_hop);
  }
  return plan_example<ExampleLpmKey6>(begins, hops);
}

}  // namespace sluice
