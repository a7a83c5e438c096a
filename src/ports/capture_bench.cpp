// How fast captures are written, read and loaded, on a temporary file of 64-byte frames.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"

namespace {

constexpr uint64_t kPackets = 1'000'000;

std::string path() {
  return (std::filesystem::temp_directory_path() / "sluice_capture_bench.pcap").string();
}

bool write_capture() {
  auto writer = sluice::CaptureWriter::create(path());
  if (!writer.ok()) return false;
  const uint8_t frame[60] = {};
  for (uint64_t i = 0; i < kPackets; ++i) writer->append({60, 60, i}, frame);
  return writer->commit().ok();
}

void bm_write(benchmark::State& state) {
  for (auto _ : state) {
    if (!write_capture()) state.SkipWithError("cannot write");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kPackets));
  std::filesystem::remove(path());
}
BENCHMARK(bm_write)->Unit(benchmark::kMillisecond);

void bm_read(benchmark::State& state) {
  if (!write_capture()) state.SkipWithError("cannot write");
  for (auto _ : state) {
    auto reader = sluice::CaptureReader::open(path());
    if (!reader.ok()) return state.SkipWithError("cannot read");
    sluice::CapturedFrame frame;
    while (true) {
      auto got = reader->next(frame);
      if (!got.ok() || !*got) break;
    }
    if (reader->packets() != kPackets) state.SkipWithError("packets are missing");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kPackets));
  std::filesystem::remove(path());
}
BENCHMARK(bm_read)->Unit(benchmark::kMillisecond);

void bm_load(benchmark::State& state) {
  if (!write_capture()) state.SkipWithError("cannot write");
  for (auto _ : state) {
    auto store = sluice::FrameStore::load(path());
    if (!store.ok() || store->size() != kPackets) state.SkipWithError("packets are missing");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kPackets));
  std::filesystem::remove(path());
}
BENCHMARK(bm_load)->Unit(benchmark::kMillisecond);

}  // namespace
