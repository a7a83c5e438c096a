// host only
#include "exec/ports.h"

#include "base/prefetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

class CaptureSource final : public BatchSource {
 public:
  CaptureSource(CaptureReader reader, uint64_t start, uint64_t limit)
      : reader_(std::move(reader)), skip_(start), left_(limit) {}

  Result<void> read(Batch& batch) override {
    batch.clear();
    while (!batch.full() && left_ != 0) {
      if (!held_) {
        auto more = reader_.next(frame_);
        if (!more) {
          // The reader repeats the error at the next call: the packets before the damage go first.
          if (batch.size() != 0) return {};
          return std::move(more).error();
        }
        if (!*more) break;
        if (skip_ != 0) {
          --skip_;
          continue;
        }
      }
      uint8_t* to = batch.reserve(frame_.captured);
      held_ = to == nullptr;
      if (held_) {
        if (batch.size() == 0) return Error(fmt::format("no memory for a frame of {} bytes", frame_.captured));
        break;
      }
      std::memcpy(to, frame_.data, frame_.captured);
      batch.push(to, frame_.captured, std::max(frame_.wire_bytes, frame_.captured), frame_.timestamp_ns, batch.size());
      --left_;
    }
    return {};
  }

 private:
  CaptureReader reader_;
  CapturedFrame frame_{};
  bool held_ = false;  // frame_ was read and did not fit the last batch
  uint64_t skip_;
  uint64_t left_;
};

// Plays a store again and again. The bytes are copied, as a network card would write them, because programs edit frames
// in place.
class MemorySource final : public BatchSource {
 public:
  // Frames are packed, 64-byte aligned and padded: without the store's headroom a pass over small frames reads
  // consecutive lines.
  static Result<std::unique_ptr<BatchSource>> create(const FrameStore& store, uint64_t limit) {
    auto source = std::make_unique<MemorySource>();
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < store.size(); ++i) bytes += padded(store.header(i).captured);
    auto packed = Buffer::allocate(bytes + kAhead);
    if (!packed) return std::move(packed).error();
    source->packed_ = std::move(*packed);
    source->headers_.reserve(store.size());
    auto* to = reinterpret_cast<uint8_t*>(source->packed_.data());
    for (uint64_t i = 0; i < store.size(); ++i) {
      const FrameHeader header = store.header(i);
      std::memcpy(to, store.frame(i), header.captured);
      source->headers_.push_back(header);
      to += padded(header.captured);
    }
    source->left_ = limit == ~uint64_t{0} ? store.size() : limit;
    return std::unique_ptr<BatchSource>(std::move(source));
  }

  Result<void> read(Batch& batch) override {
    batch.clear();
    if (headers_.empty()) return {};
    const auto* base = reinterpret_cast<const uint8_t*>(packed_.data());
    const FrameHeader* headers = headers_.data();
    const uint64_t frames = headers_.size();
    uint64_t next = next_;
    uint64_t offset = offset_;
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(batch.limit(), left_));
    const Batch::Rows rows = batch.rows();
    uint32_t made = 0;
    for (; made < most; ++made) {
      const FrameHeader& header = headers[next];
      uint8_t* to = batch.reserve(header.captured);
      if (to == nullptr) {
        if (made == 0) return Error(fmt::format("no memory for a frame of {} bytes", header.captured));
        break;
      }
      const uint8_t* from = base + offset;
      prefetch_read(from + kAhead);
      prefetch_read(&header + kAhead / 64);
      copy_frame(to, from, header.captured);
      rows.frame[made] = to;
      rows.extent[made] = Extent{0, header.captured, header.wire_bytes, 0, 0xffff};
      rows.timestamp_ns[made] = header.timestamp_ns;
      offset += padded(header.captured);
      if (++next == frames) next = offset = 0;
    }
    batch.append(made);
    next_ = next;
    offset_ = offset;
    left_ -= made;
    return {};
  }

 private:
  static constexpr uint64_t kAhead = 2048;  // bytes: about a memory latency at the rates that one core reaches

  static uint64_t padded(uint32_t bytes) { return (uint64_t{bytes} + 63) / 64 * 64; }
  // In whole cache lines: both sides are aligned to 64 bytes and padded.
  static void copy_frame(uint8_t* to, const uint8_t* from, uint32_t bytes) {
    if (bytes > 256) {
      std::memcpy(to, from, bytes);
      return;
    }
    for (uint32_t i = 0; i < bytes; i += 64) std::memcpy(to + i, from + i, 64);
  }

  Buffer packed_;
  std::vector<FrameHeader> headers_;
  uint64_t next_ = 0;
  uint64_t offset_ = 0;
  uint64_t left_ = 0;
};

class PatternSource final : public BatchSource {
 public:
  explicit PatternSource(const PortSpec& spec) : pattern_(spec.pattern), burst_(spec.burst), left_(spec.limit) {}

  Result<void> read(Batch& batch) override {
    batch.clear();
    const uint32_t burst = burst_ == 0 ? batch.limit() : std::min(burst_, batch.limit());
    const auto bytes = static_cast<uint32_t>(pattern_.size());
    while (batch.size() < burst && left_ != 0) {
      uint8_t* to = batch.reserve(bytes);
      if (to == nullptr) {
        if (batch.size() == 0) return Error(fmt::format("no memory for a packet of {} bytes", bytes));
        break;
      }
      std::memcpy(to, pattern_.data(), bytes);
      // A generator has no clock of its own: packets are a microsecond apart, so that results do not depend on the
      // machine.
      batch.push(to, bytes, bytes, made_++ * 1000, batch.size());
      --left_;
    }
    return {};
  }

 private:
  std::vector<uint8_t> pattern_;
  uint32_t burst_;
  uint64_t left_;
  uint64_t made_ = 0;
};

class CaptureSink final : public PacketSink {
 public:
  explicit CaptureSink(CaptureWriter writer) : writer_(std::move(writer)) {}
  Result<void> write(std::span<const TxRecord> records, size_t& written) override {
    for (written = 0; written < records.size(); ++written) {
      const TxRecord& r = records[written];
      if (!writer_.append(FrameHeader{r.captured, r.wire, r.timestamp_ns}, r.data)) return writer_.error();
    }
    return {};
  }
  Result<void> commit() override { return writer_.commit(); }

 private:
  CaptureWriter writer_;
};

class MemorySink final : public PacketSink {
 public:
  Result<void> write(std::span<const TxRecord> records, size_t& written) override {
    written = records.size();
    return {};
  }
  Result<void> commit() override { return {}; }
};

}  // namespace

Result<std::unique_ptr<BatchSource>> open_source(const PortSpec& spec) {
  switch (spec.type) {
    case PortSpec::Type::kCapture: {
      auto reader = CaptureReader::open(spec.path);
      if (!reader) return std::move(reader).error();
      return std::unique_ptr<BatchSource>(std::make_unique<CaptureSource>(std::move(*reader), spec.start, spec.limit));
    }
    case PortSpec::Type::kMemory: {
      auto store = FrameStore::load(spec.path);
      if (!store) return std::move(store).error();
      return MemorySource::create(*store, spec.limit);
    }
    case PortSpec::Type::kPattern:
      return std::unique_ptr<BatchSource>(std::make_unique<PatternSource>(spec));
    case PortSpec::Type::kNull:
      break;
  }
  return Error("this port cannot receive");
}

Result<std::unique_ptr<PacketSink>> open_sink(const PortSpec& spec) {
  switch (spec.type) {
    case PortSpec::Type::kCapture: {
      auto writer = CaptureWriter::create(spec.path, {spec.nanosecond, spec.snaplen});
      if (!writer) return std::move(writer).error();
      return std::unique_ptr<PacketSink>(std::make_unique<CaptureSink>(std::move(*writer)));
    }
    case PortSpec::Type::kMemory:
      return std::unique_ptr<PacketSink>(std::make_unique<MemorySink>());
    case PortSpec::Type::kPattern:
    case PortSpec::Type::kNull:
      break;
  }
  return std::unique_ptr<PacketSink>();
}

}  // namespace sluice
