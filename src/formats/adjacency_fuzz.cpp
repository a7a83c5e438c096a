// Any text: no crash, and a model that is accepted builds an image whose view stays in bounds.
#include <cstdlib>

#include "formats/adjacency_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const Rib rib = [] {
    Rib names;
    for (const char* name : {"1", "2", "a", "10.0.0.1", "2001:db8::1"}) names.intern(name);
    return names;
  }();
  const auto model = parse_adjacencies({reinterpret_cast<const char*>(data), size}, "fuzz", rib);
  if (!model) {
    if (model.error().diagnostics.empty()) std::abort();
    (void)to_string(model.error());
    return 0;
  }
  const auto image = build_adjacencies(*model);
  if (!image) std::abort();
  const auto view = open_adjacencies(*image);
  if (!view) std::abort();
  for (uint32_t id = 0; id < 8; ++id) {
    for (uint32_t hash : {0u, 0x55555555u, 0xffffffffu}) {
      const Adjacency* a = view->select(id, hash);
      if (a == nullptr) continue;
      if (a->mtu < 68 || view->flags(id) != 0) std::abort();
    }
  }
  return 0;
}
