// Nanoseconds a packet to parse packets that stand in the first-level cache, as a batch of 256.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "net/packet_builder.h"
#include "net/parse.h"

namespace sluice {
namespace {

constexpr size_t kBatch = 256;
constexpr size_t kStride = 128;

// The same kind of packet with other addresses and ports in each slot.
template <typename Make>
void run(benchmark::State& state, Make make) {
  std::vector<uint8_t> frames(kBatch * kStride);
  std::vector<uint32_t> lengths(kBatch);
  for (size_t i = 0; i < kBatch; ++i) {
    const auto frame = make(static_cast<uint16_t>(i)).build();
    std::memcpy(frames.data() + i * kStride, frame.data(), frame.size());
    lengths[i] = static_cast<uint32_t>(frame.size());
  }
  std::vector<Headers> out(kBatch);
  uint64_t ok = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < kBatch; ++i) {
      ok += parse_ethernet(frames.data() + i * kStride, lengths[i], lengths[i], out[i]) == ParseStatus::kOk;
    }
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  if (ok != state.iterations() * kBatch) state.SkipWithError("a packet did not parse");
  state.SetItemsProcessed(static_cast<int64_t>(ok));
  state.counters["per_packet"] =
      benchmark::Counter(static_cast<double>(ok), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void udp_ipv4_64(benchmark::State& state) {
  run(state, [](uint16_t i) { return udp4("10.0.0.1", "192.0.2.7").ports(i, 53).id(i).size(60); });
}
void tcp_ipv4_64(benchmark::State& state) {
  run(state, [](uint16_t i) { return tcp4("10.0.0.1", "192.0.2.7").ports(i, 443).id(i).size(60); });
}
void tcp_udp_ipv4_mixed(benchmark::State& state) {
  // A fixed pseudo-random mix, so that a branch on the protocol would be mispredicted.
  run(state, [](uint16_t i) {
    const bool tcp = (mix64(i) & 1) != 0;
    return (tcp ? tcp4("10.0.0.1", "192.0.2.7") : udp4("10.0.0.1", "192.0.2.7")).ports(i, 443).id(i).size(60);
  });
}
void udp_ipv4_vlan(benchmark::State& state) {
  run(state, [](uint16_t i) { return udp4("10.0.0.1", "192.0.2.7").ports(i, 53).vlan(7).size(64); });
}
void tcp_ipv6(benchmark::State& state) {
  run(state, [](uint16_t i) { return tcp6("2001:db8::1", "2001:db8:1::2").ports(i, 443); });
}
void udp_ipv6_extension(benchmark::State& state) {
  run(state, [](uint16_t i) { return udp6("2001:db8::1", "2001:db8:1::2").ports(i, 443).destination_options(); });
}
void udp_ipv4_options(benchmark::State& state) {
  const std::vector<uint8_t> router_alert = {148, 4, 0, 0};
  run(state,
      [&](uint16_t i) { return udp4("10.0.0.1", "192.0.2.7").ports(i, 53).ipv4_options(router_alert).size(64); });
}

BENCHMARK(udp_ipv4_64);
BENCHMARK(tcp_ipv4_64);
BENCHMARK(tcp_udp_ipv4_mixed);
BENCHMARK(udp_ipv4_vlan);
BENCHMARK(tcp_ipv6);
BENCHMARK(udp_ipv6_extension);
BENCHMARK(udp_ipv4_options);

}  // namespace
}  // namespace sluice
