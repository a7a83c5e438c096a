// Damaged ACL images: refused, or every lookup stays within bounds. The input is a list of patches to a valid image
// (the first byte picks it), or the whole image when it starts with the image magic.
#include "tables/acl/acl_test_support.h"
#include "tables/acl/damage.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static acl_test::Random random(21);
  static const RuleSet set = acl_test::random_set(random, 60);
  static const std::vector<FlowKey> keys = acl_test::keys_for(set, 48, random);
  static const std::vector<std::vector<std::byte>> images = [] {
    std::vector<std::vector<std::byte>> out;
    for (const std::string& name : acl_algorithm_names()) {
      auto image = build_acl(set, name);
      if (!image) std::abort();
      out.emplace_back(image->bytes().begin(), image->bytes().end());
    }
    return out;
  }();
  if (size == 0) return 0;
  if (size >= 8 && std::memcmp(data, Image::kMagic, 8) == 0) {
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    acl_test::answers_within_bounds({bytes, bytes + size}, keys);
    return 0;
  }
  std::vector<std::byte> bytes = images[data[0] % images.size()];
  for (size_t i = 1; i + 4 <= size; i += 4) {  // three bytes of place, one of value
    const size_t at = (size_t{data[i]} << 16 | size_t{data[i + 1]} << 8 | data[i + 2]) % bytes.size();
    bytes[at] = static_cast<std::byte>(data[i + 3]);
  }
  acl_test::answers_within_bounds(std::move(bytes), keys);
  return 0;
}
