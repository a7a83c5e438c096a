#include "tables/acl/tuple_rules.h"

#include <cstring>

namespace sluice::tuple_detail {

std::vector<const AclMatchRule*> distinct_rules(const std::vector<AclMatchRule>& flat, uint8_t family) {
  struct Hash {
    size_t operator()(const AclMatchRule* r) const {
      uint64_t words[8];
      std::memcpy(words, r, sizeof words);
      words[7] &= 0xffffffffu;  // without the position
      uint64_t h = 0;
      for (uint64_t w : words) h = (h ^ w) * 0x9fb21c651e98df25ull, h ^= h >> 32;
      return h;
    }
  };
  std::vector<const AclMatchRule*> out;
  out.reserve(flat.size());
  std::vector<uint32_t> seen(std::bit_ceil(2 * flat.size() + 2), 0);  // open addressing, 1 + index into out
  for (const AclMatchRule& r : flat) {
    if (r.family != 0 && r.family != family) continue;
    size_t at = Hash()(&r) & (seen.size() - 1);
    while (seen[at] != 0 && !same_match(*out[seen[at] - 1], r)) at = (at + 1) & (seen.size() - 1);
    if (seen[at] != 0) continue;
    out.push_back(&r);
    seen[at] = static_cast<uint32_t>(out.size());
  }
  return out;
}

}  // namespace sluice::tuple_detail
