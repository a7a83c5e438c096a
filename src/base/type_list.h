// A list of types, to write a test or a bench once and run it over every algorithm.
#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>

namespace sluice {

// Carries a type as a value.
template <typename T>
struct TypeTag {
  using type = T;
};

template <typename... Types>
struct TypeList {
  static constexpr size_t kSize = sizeof...(Types);

  // Calls f(TypeTag<T>{}) for each type, in order: `Algorithms::for_each([](auto tag) { using T = typename
  // decltype(tag)::type; })`.
  template <typename F>
  static constexpr void for_each(F&& f) {
    (f(TypeTag<Types>{}), ...);
  }

  // One entry a type, in order: what f(TypeTag<T>{}) returns.
  template <typename Entry, typename F>
  static constexpr std::array<Entry, kSize> table(F&& f) {
    return {f(TypeTag<Types>{})...};
  }

  template <typename T>
  static constexpr bool contains() {
    return (std::is_same_v<T, Types> || ...);
  }

  // The position of the first T. A T that is not in the list does not compile.
  template <typename T>
  static constexpr size_t index_of() {
    static_assert((std::is_same_v<T, Types> || ...), "the type is not in the list");
    size_t index = 0;
    bool found = false;
    ((found = found || std::is_same_v<T, Types>, index += found ? 0 : 1), ...);
    return index;
  }

  // The type at position I.
  template <size_t I>
  using At = std::tuple_element_t<I, std::tuple<Types...>>;

  // The list wrapped in another template, for example TypeList<A, B>::apply<testing::Types>.
  template <template <typename...> typename Template>
  using apply = Template<Types...>;
};

}  // namespace sluice
