// Any small table: every algorithm agrees with the definition at the edges of all prefixes.
// Input: which algorithms (1 byte), then routes of {length u8, next hop u8, address 4 or 16 bytes}; length 128..: IPv6.
#include <cstdlib>
#include <cstring>

#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  using namespace sluice::lpm_test;
  if (size == 0) return 0;
  // The tables with large roots cost tens of milliseconds an input with sanitizers, so few inputs have them.
  const bool with_poptrie6 = data[0] >= 240 && one_input_in(32, data, size);
  const bool with_dir24 = data[0] >= 250 && one_input_in(64, data, size);
  ++data;
  --size;
  Rib rib;
  intern_ids(rib, 255);
  for (size_t routes = 0; routes < 64 && size >= 6; ++routes) {
    const bool v6 = data[0] >= 128;
    const size_t bytes = v6 ? 18 : 6;
    if (size < bytes) break;
    const uint32_t next_hop = 1 + data[1] % 255;
    if (v6) {
      Be64 words[2];
      std::memcpy(words, data + 2, 16);
      rib.add(prefix6(words[0].host(), words[1].host(), (data[0] - 128u) + (data[1] == 255 ? 1 : 0)), next_hop);
    } else {
      Be32 word;
      std::memcpy(&word, data + 2, 4);
      rib.add(prefix4(word.host(), data[0] % 33), next_hop);
    }
    data += bytes;
    size -= bytes;
  }
  rib.settle();
  const auto a4 = edge_addresses(rib.routes4());
  const auto a6 = edge_addresses(rib.routes6());
  for_each_lpm<AllLpm4>([&]<typename A>(A) {
    if ((std::string_view(A::kName) == "dir24" || std::string_view(A::kName) == "bloom") && !with_dir24) return;
    const auto image = build4<A>(rib);
    if (!image) std::abort();
    const auto ok = with_view4<A>(*image, rib, [&](const auto& view) {
      std::vector<uint32_t> out(a4.size());
      view.lookup_bulk(a4.data(), out.data(), out.size());
      for (size_t i = 0; i < a4.size(); ++i) {
        const uint32_t expected = linear_lookup4(rib.routes4(), a4[i]);
        if (out[i] != expected || view.lookup(a4[i]) != expected) std::abort();
      }
    });
    if (!ok) std::abort();
  });
  for_each_lpm<AllLpm6>([&]<typename A>(A) {
    if ((std::string_view(A::kName) == "poptrie" || std::string_view(A::kName) == "bloom") && !with_poptrie6) return;
    const auto image = build6<A>(rib);
    if (!image) std::abort();
    const auto ok = with_view6<A>(*image, rib, [&](const auto& view) {
      std::vector<uint32_t> out(a6.hi.size());
      view.lookup_bulk(a6.hi.data(), a6.lo.data(), out.data(), out.size());
      for (size_t i = 0; i < out.size(); ++i) {
        const uint32_t expected = linear_lookup6(rib.routes6(), a6.hi[i], a6.lo[i]);
        if (out[i] != expected || view.lookup(a6.hi[i], a6.lo[i]) != expected) std::abort();
      }
    });
    if (!ok) std::abort();
  });
  return 0;
}
