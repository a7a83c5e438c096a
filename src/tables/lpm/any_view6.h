// The IPv6 table of any of several algorithms behind one type: one switch a lookup, where a code path for each pair of
// an IPv4 and an IPv6 algorithm would be too many. Host and device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/hd.h"
#include "base/type_list.h"

namespace sluice {

// Views: View6 types (tables/lpm/algorithms.h), trivially copyable. Made without one it must not be asked.
template <typename... Views>
class AnyView6Of {
 public:
  AnyView6Of() = default;
  template <typename View>
  requires(TypeList<Views...>::template contains<View>()) explicit AnyView6Of(const View& view)
      : index_(static_cast<uint32_t>(TypeList<Views...>::template index_of<View>())) {
    static_assert(std::is_trivially_copyable_v<View> && alignof(View) <= 8);
    std::memcpy(storage_, &view, sizeof view);
  }

  // The next-hop id, or 0. Both halves in host order.
  SLUICE_HD uint32_t lookup(uint64_t hi, uint64_t lo) const {
    uint32_t next_hop = 0;
    ((index_ == kIndex<Views> ? void(next_hop = get<Views>().lookup(hi, lo)) : void()), ...);
    return next_hop;
  }
  SLUICE_HD void prefetch(uint64_t hi, uint64_t lo) const {
    ((index_ == kIndex<Views> ? get<Views>().prefetch(hi, lo) : void()), ...);
  }
  // Host only: n of them at once.
  void lookup_burst(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n) const {
    ((index_ == kIndex<Views> ? get<Views>().lookup_burst(hi, lo, next_hops, n) : void()), ...);
  }
  // The same in two steps: `places` are what a view notes, if it has something to note. No prefetch is needed before.
  void ask(const uint64_t* hi, const uint64_t* lo, uint32_t* places, size_t n) const {
    const auto of = [&](const auto& view) {
      if constexpr (requires { view.ask(hi, places, n); }) {
        view.ask(hi, places, n);
      } else {
        for (size_t i = 0; i < n; ++i) view.prefetch(hi[i], lo[i]);
      }
    };
    ((index_ == kIndex<Views> ? of(get<Views>()) : void()), ...);
  }
  void answer(const uint64_t* hi, const uint64_t* lo, const uint32_t* places, uint32_t* next_hops, size_t n) const {
    const auto of = [&](const auto& view) {
      if constexpr (requires { view.answer(hi, lo, places, next_hops, n); }) {
        view.answer(hi, lo, places, next_hops, n);
      } else {
        view.lookup_burst(hi, lo, next_hops, n);
      }
    };
    ((index_ == kIndex<Views> ? of(get<Views>()) : void()), ...);
  }
  // Calls f(pointer) for each pointer into the image, as a reference.
  template <typename F>
  SLUICE_HD void each_pointer(F&& f) {
    ((index_ == kIndex<Views> ? reinterpret_cast<Views*>(storage_)->each_pointer(f) : void()), ...);
  }

 private:
  template <typename View>
  static constexpr uint32_t kIndex = static_cast<uint32_t>(TypeList<Views...>::template index_of<View>());
  template <typename View>
  SLUICE_HD const View& get() const {
    return *reinterpret_cast<const View*>(storage_);
  }

  alignas(8) std::byte storage_[std::max({sizeof(Views)...})] = {};
  uint32_t index_ = 0;
};

}  // namespace sluice
