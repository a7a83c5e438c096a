// A routes image with bytes patched and its checksum made good again: refused, or every lookup stays in bounds.
// Input: what to patch (1 byte), then patches of {offset u24, value u8 x 4}.
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tables/lpm/algorithms.h"
#include "tables/lpm/lpm_test_tables.h"
#include "tables/reseal.h"

namespace {

using namespace sluice;
using namespace sluice::lpm_test;

void require(bool condition) {
  if (!condition) std::abort();
}

const Rib& rib() {
  static const Rib table = random_rib(5, 100, 20);
  return table;
}

struct Patches {
  const uint8_t* data;
  size_t size;
  // Applies f(offset, four bytes) to each patch.
  template <typename F>
  void each(F&& f) const {
    for (size_t at = 0; at + 7 <= size; at += 7) {
      f(size_t{data[at]} | size_t{data[at + 1]} << 8 | size_t{data[at + 2]} << 16, data + at + 3);
    }
  }
};

template <typename View>
void look4(const View& view, uint32_t next_hops) {
  static const auto addresses = edge_addresses(rib().routes4());
  std::vector<uint32_t> out(addresses.size());
  view.lookup_bulk(addresses.data(), out.data(), out.size());
  for (size_t i = 0; i < out.size(); ++i) require(out[i] <= next_hops && view.lookup(addresses[i]) == out[i]);
}
template <typename View>
void look6(const View& view, uint32_t next_hops) {
  static const auto a = edge_addresses(rib().routes6());
  std::vector<uint32_t> out(a.hi.size());
  view.lookup_bulk(a.hi.data(), a.lo.data(), out.data(), out.size());
  for (size_t i = 0; i < out.size(); ++i) require(out[i] <= next_hops && view.lookup(a.hi[i], a.lo[i]) == out[i]);
}

// Patches a section in place, tries it, and puts it back: the big tables are not copied for each input.
template <typename Try>
void patched_section(Buffer& section, const Patches& patches, Try&& attempt) {
  std::vector<std::pair<size_t, std::array<std::byte, 4>>> undo;
  patches.each([&](size_t offset, const uint8_t* value) {
    const size_t at = offset * 4 % (section.size() - 4);
    auto& old = undo.emplace_back(at, std::array<std::byte, 4>{}).second;
    std::memcpy(old.data(), section.data() + at, 4);
    std::memcpy(section.data() + at, value, 4);
  });
  attempt(std::span<const std::byte>(section.data(), section.size()));
  for (auto it = undo.rbegin(); it != undo.rend(); ++it) std::memcpy(section.data() + it->first, it->second.data(), 4);
}

Buffer copy_of(std::span<const std::byte> section) {
  auto buffer = Buffer::allocate(section.size());
  require(buffer.ok());
  std::memcpy(buffer->data(), section.data(), section.size());
  return std::move(*buffer);
}

template <typename A>
void attack4(const Patches& patches) {
  static Buffer section = copy_of(build_routes(rib(), A::kName, "trie").value().section(SectionTag::kFib4));
  patched_section(section, patches, [](std::span<const std::byte> bytes) {
    if (auto view = A::View4::open(bytes, rib().next_hop_count())) look4(*view, rib().next_hop_count());
  });
}
template <typename A>
void attack6(const Patches& patches) {
  static Buffer section = copy_of(build_routes(rib(), "trie", A::kName).value().section(SectionTag::kFib6));
  patched_section(section, patches, [](std::span<const std::byte> bytes) {
    if (auto view = A::View6::open(bytes, rib().next_hop_count())) look6(*view, rib().next_hop_count());
  });
}

void attack_whole(const Patches& patches) {
  static const Image good = build_routes(rib(), "trie", "trie").value();
  std::vector<std::byte> bytes(good.bytes().begin(), good.bytes().end());
  patches.each(
      [&](size_t offset, const uint8_t* value) { std::memcpy(bytes.data() + offset % (bytes.size() - 4), value, 4); });
  reseal(bytes);
  auto image = Image::from_bytes(bytes, ImageKind::kRoutes);
  if (!image) return;
  auto names = NextHopNames::open(image->section(SectionTag::kNextHopNames));
  if (!names) return;
  size_t letters = 0;
  for (uint32_t id = 0; id <= names->count() + 1; ++id) letters += names->name(id).size();
  require(letters <= image->bytes().size() + 2);
  (void)with_fib4(*image, [&](const auto& view) { look4(view, names->count()); });
  (void)with_fib6(*image, [&](const auto& view) { look6(view, names->count()); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Patches patches{data + 1, std::min<size_t>(size - 1, 700)};
  // dir24 takes tens of milliseconds to check, so they come up rarely.
  const uint8_t what = data[0];
  if (what >= 250 && one_input_in(64, data, size)) {
    attack4<Dir24>(patches);
  } else if (what >= 240 && one_input_in(16, data, size)) {
    attack6<Poptrie>(patches);
  } else if (what >= 192) {
    attack4<Poptrie>(patches);
  } else if (what >= 160) {
    attack4<Trie>(patches);
  } else if (what >= 128) {
    attack6<Trie>(patches);
  } else {
    attack_whole(patches);
  }
  return 0;
}
