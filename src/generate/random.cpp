#include "generate/random.h"

#include <bit>
#include <cmath>

namespace sluice {

AliasTable::AliasTable(std::span<const uint64_t> weights) {
  using Wide = unsigned __int128;
  const size_t count = weights.size();
  Wide total = 0;
  for (const uint64_t w : weights) total += w;
  threshold_.assign(count, UINT64_MAX);
  alias_.resize(count);
  // share[i] = weight * count: an average slot holds exactly `total`.
  std::vector<Wide> share(count);
  std::vector<uint32_t> small, large;
  for (size_t i = 0; i < count; ++i) {
    alias_[i] = static_cast<uint32_t>(i);
    share[i] = Wide{weights[i]} * count;
    (share[i] < total ? small : large).push_back(static_cast<uint32_t>(i));
  }
  while (!small.empty() && !large.empty()) {
    const uint32_t s = small.back();
    const uint32_t l = large.back();
    small.pop_back();
    // share < total < 2^64, so the quotient share * 2^64 / total fits 64 bits.
    threshold_[s] = static_cast<uint64_t>((share[s] << 64) / total);
    alias_[s] = l;
    share[l] -= total - share[s];
    if (share[l] < total) {
      large.pop_back();
      small.push_back(l);
    }
  }
  // Integers leave nothing over: what remains holds exactly one full slot each, and keeps its own index.
}

uint64_t fixed_log2(uint64_t x) {
  const int whole = 63 - std::countl_zero(x);
  uint64_t mantissa = x << (63 - whole);  // [1, 2) in units of 2^-63
  uint64_t fraction = 0;
  // Squaring doubles the logarithm: each time the square reaches 2, the next binary digit is 1.
  for (int i = 0; i < 32; ++i) {
    const auto square = static_cast<unsigned __int128>(mantissa) * mantissa;  // [1, 4) in units of 2^-126
    const bool carry = static_cast<uint64_t>(square >> 127) != 0;
    mantissa = static_cast<uint64_t>(square >> (carry ? 64 : 63));
    fraction = fraction << 1 | (carry ? 1 : 0);
  }
  return static_cast<uint64_t>(whole) << 32 | fraction;
}

uint64_t fixed_exp2_negative(uint64_t y) {
  // 2^-(2^-i) in units of 2^-64, i = 1..32.
  static constexpr uint64_t kRoot[32] = {
      0xb504f333f9de6484ull, 0xd744fccad69d6af4ull, 0xeac0c6e7dd24392full, 0xf5257d152486cc2cull, 0xfa83b2db722a033aull,
      0xfd3e0c0cf486c175ull, 0xfe9e115c7b8f884cull, 0xff4ecb59511ec8a5ull, 0xffa756521c8daed2ull, 0xffd3a751c0f7e10cull,
      0xffe9d2b2f7db2756ull, 0xfff4e91bff1b8c3eull, 0xfffa747ea0040664ull, 0xfffd3a3b7814eb54ull, 0xfffe9d1cc60ddab1ull,
      0xffff4e8e25879bfaull, 0xffffa7470363f451ull, 0xffffd3a37dda0313ull, 0xffffe9d1bdf703afull, 0xfffff4e8debe025eull,
      0xfffffa746f4fa150ull, 0xfffffd3a37a3f8b0ull, 0xfffffe9d1bd1065aull, 0xffffff4e8de845aeull, 0xffffffa746f41377ull,
      0xffffffd3a37a05e4ull, 0xffffffe9d1bd01fcull, 0xfffffff4e8de80c0ull, 0xfffffffa746f4051ull, 0xfffffffd3a37a025ull,
      0xfffffffe9d1bd011ull, 0xffffffff4e8de808ull};
  const uint64_t whole = y >> 32;
  if (whole >= 64) return 0;
  uint64_t value = uint64_t{1} << 63;
  for (int i = 0; i < 32; ++i) {
    if ((y >> (31 - i) & 1) != 0) value = static_cast<uint64_t>(static_cast<unsigned __int128>(value) * kRoot[i] >> 64);
  }
  return value >> whole;
}

std::vector<uint64_t> zipf_weights(uint64_t count, double exponent) {
  const double clamped = exponent < 0 ? 0 : exponent > 8 ? 8 : exponent;
  const auto scaled = static_cast<uint64_t>(std::llround(clamped * 65536.0));
  std::vector<uint64_t> weights(count);
  for (uint64_t k = 1; k <= count; ++k) {
    const auto y = static_cast<uint64_t>(static_cast<unsigned __int128>(fixed_log2(k)) * scaled >> 16);
    // 2^24 weights of at most 2^38 stay below 2^62.
    const uint64_t weight = fixed_exp2_negative(y) >> 25;
    weights[k - 1] = weight == 0 ? 1 : weight;
  }
  return weights;
}

}  // namespace sluice
