#include "formats/match_builder.h"

namespace sluice {
namespace {

struct Wide {
  uint64_t hi, lo;
  friend bool operator<=(const Wide& a, const Wide& b) { return a.hi < b.hi || (a.hi == b.hi && a.lo <= b.lo); }
};

// The last address of the block of 2^bits addresses that begins at `a`.
Wide last_of(Wide a, unsigned bits) {
  a.lo |= bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  if (bits > 64) a.hi |= bits >= 128 ? ~uint64_t{0} : (uint64_t{1} << (bits - 64)) - 1;
  return a;
}
bool begins_block(const Wide& a, unsigned bits) {
  const Wide last = last_of({0, 0}, bits);
  return (a.lo & last.lo) == 0 && (a.hi & last.hi) == 0;
}

}  // namespace

std::vector<IpPrefix> prefixes_of_range(const IpAddress& low, const IpAddress& high) {
  std::vector<IpPrefix> out;
  const Wide end{high.hi, high.lo};
  Wide at{low.hi, low.lo};
  if (low.family != high.family || !(at <= end)) return out;
  const unsigned width = low.family == 4 ? 32 : 128;
  while (true) {
    unsigned bits = 0;
    while (bits < width && begins_block(at, bits + 1) && last_of(at, bits + 1) <= end) ++bits;
    out.push_back({{at.hi, at.lo, low.family}, static_cast<uint8_t>(width - bits)});
    at = last_of(at, bits);
    if (end <= at) return out;
    if (++at.lo == 0) ++at.hi;
  }
}

}  // namespace sluice
