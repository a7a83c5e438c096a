// From one port of DPDK's to another and back, frames where they lie: what a receive and a send cost. net_null makes
// frames of nothing and takes them away, so this is the port's and the mbuf pool's share of a packet.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "batch/batch.h"
#include "memory/frame_pool.h"
#include "ports/dpdk/dpdk_port.h"

namespace {

using sluice::Batch;
using sluice::TxFrame;

struct End {
  std::unique_ptr<sluice::Port> port;
  std::unique_ptr<sluice::RxQueue> rx;
  std::unique_ptr<sluice::TxQueue> tx;
};

bool open_end(End& end, const char* name, const std::shared_ptr<sluice::FramePool>& pool) {
  sluice::PortOptions options;
  options.name = name;
  auto port = sluice::open_dpdk_port(options, pool);
  if (!port) return false;
  end.port = std::move(*port);
  auto rx = end.port->open_rx(0);
  auto tx = end.port->open_tx(0);
  if (!rx || !tx) return false;
  end.rx = std::move(*rx);
  end.tx = std::move(*tx);
  return true;
}

uint32_t forward(sluice::RxQueue& rx, sluice::TxQueue& tx, Batch& batch, uint32_t most) {
  const Batch::Rows rows = batch.rows();
  const uint32_t n = rx.poll(rows, most, 1);
  TxFrame frames[Batch::kMaxPackets];
  sluice::FramePool* pool = &rx.pool();
  for (uint32_t i = 0; i < n; ++i) frames[i] = {rows.frame[i], rows.extent[i].end, pool};
  const uint32_t sent = tx.send({frames, n});
  tx.flush();
  for (uint32_t i = sent; i < n; ++i) pool->give({&frames[i].data, 1});
  return n;
}

// Both directions; items are packets.
void bm_forward(benchmark::State& state) {
  sluice::FrameShape shape;
  shape.chunks = 8192;
  const std::shared_ptr<sluice::FramePool> pool = *sluice::MappedFramePool::create(shape);
  End a, b;
  if (!open_end(a, "net_null0,size=64", pool) || !open_end(b, "net_null1,size=64", pool)) {
    return state.SkipWithError("no DPDK here");
  }
  const auto most = static_cast<uint32_t>(state.range(0));
  Batch batch = *Batch::create(most, 0);
  int64_t packets = 0;
  for (auto _ : state) {
    for (int i = 0; i < 64; ++i) {
      packets += forward(*a.rx, *b.tx, batch, most);
      packets += forward(*b.rx, *a.tx, batch, most);
    }
  }
  state.SetItemsProcessed(packets);
}
BENCHMARK(bm_forward)->Arg(32)->Arg(64)->Arg(256);

}  // namespace
