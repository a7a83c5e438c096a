// host only
#include "exec/engine/capture_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/copy_bytes.h"
#include "base/input_file.h"
#include "base/prefetch.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

// Frames that are lent by the reader, and those that are given to the writer, at a time.
constexpr size_t kRun = 64;

// Programs edit frames in place and need room around them. Where the record in front is room enough, frames are read to
// where they stay; else each is copied once, out of the reader's buffer.
class CaptureSource final : public BatchSource {
 public:
  CaptureSource(CaptureReader reader, uint64_t start, uint64_t limit)
      : reader_(std::move(reader)), skip_(start), left_(limit) {}

  Result<void> read(Batch& batch) override {
    batch.clear();
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(batch.limit(), left_));
    if (most == 0) return {};
    if (close_ && lent_.empty() && skip_ == 0) {
      if (const uint32_t made = bring(batch, most); made != 0) {
        batch.append(made);
        left_ -= made;
        return {};
      }
      batch.clear();
    }
    const Batch::Rows rows = batch.rows();
    Batch::Room room = batch.room();
    uint32_t made = 0;
    while (made < most) {
      if (lent_.empty()) {
        // What has come is not held back for what has not.
        if (made != 0 && !reader_.ready()) break;
        auto more = reader_.next(frames_);
        if (!more) {
          // The reader repeats the error at the next call: the packets before the damage go first.
          if (made != 0) break;
          return std::move(more).error();
        }
        if (*more == 0) break;
        lent_ = std::span(frames_).first(*more);
        const size_t skipped = std::min<uint64_t>(skip_, lent_.size());
        skip_ -= skipped;
        lent_ = lent_.subspan(skipped);
      }
      const uint32_t placed = place(lent_.first(std::min<size_t>(lent_.size(), most - made)), rows, made, room);
      lent_ = lent_.subspan(placed);
      made += placed;
      if (!lent_.empty()) break;
    }
    batch.keep(room);
    if (made == 0 && !lent_.empty()) {
      // It grows for a frame larger than all of it.
      const CapturedFrame& frame = lent_.front();
      uint8_t* to = batch.reserve(frame.captured);
      if (to == nullptr) return system_error(fmt::format("a frame of {} bytes", frame.captured), ENOMEM);
      fill(frame, rows, 0, to);
      lent_ = lent_.subspan(1);
      made = 1;
    }
    batch.append(made);
    left_ -= made;
    return {};
  }

  bool ready() override { return !lent_.empty() || left_ == 0 || reader_.ready(); }
  void wait(uint64_t limit_ns) override { reader_.wait(limit_ns); }
  LinkType link() const override { return reader_.link(); }
  void lie_close(bool may) override { close_ = may; }

 private:
  // As many as the reader brings at a time. 0: it has none to bring.
  uint32_t bring(Batch& batch, uint32_t most) {
    if (brought_.size() < most) brought_.resize(batch.capacity());
    const size_t n = reader_.bring(batch.take_whole_room(), std::span(brought_).first(most));
    const Batch::Rows rows = batch.rows();
    // They lie in the batch's room.
    for (uint32_t i = 0; i < n; ++i) put(brought_[i], rows, i, const_cast<uint8_t*>(brought_[i].data));
    return static_cast<uint32_t>(n);
  }
  static void fill(const CapturedFrame& frame, const Batch::Rows& rows, uint32_t row, uint8_t* to) {
    copy_bytes(to, frame.data, frame.captured);
    put(frame, rows, row, to);
  }
  static void put(const CapturedFrame& frame, const Batch::Rows& rows, uint32_t row, uint8_t* at) {
    rows.frame[row] = at;
    rows.extent[row] = Extent{0, frame.captured, frame.wire_bytes, 0, 0xffff};
    rows.timestamp_ns[row] = frame.timestamp_ns;
  }
  // Into rows from `row` on, while there is room. Returns how many.
  static uint32_t place(std::span<const CapturedFrame> frames, const Batch::Rows& rows, uint32_t row,
                        Batch::Room& room) {
    Batch::Room left = room;
    uint32_t placed = 0;
    for (const CapturedFrame& frame : frames) {
      uint8_t* to = left.take(frame.captured);
      if (to == nullptr) break;
      fill(frame, rows, row + placed, to);
      ++placed;
    }
    room = left;
    return placed;
  }

  CaptureReader reader_;
  std::array<CapturedFrame, kRun> frames_;
  std::span<const CapturedFrame> lent_;  // of them: those that no batch has yet
  std::vector<CapturedFrame> brought_;
  uint64_t skip_;
  uint64_t left_;
  bool close_ = false;
};

class CaptureSink final : public PacketSink {
 public:
  CaptureSink(CaptureWriter writer, LinkType link) : writer_(std::move(writer)), link_(link) {}
  Result<void> write(std::span<const TxRecord> records, size_t& written) override {
    written = 0;
    std::array<CapturedFrame, kRun> frames;
    while (written < records.size()) {
      if (link_ != LinkType::kEthernet) {
        if (!append(records[written])) return writer_.error();
        ++written;
        continue;
      }
      const auto some = records.subspan(written, std::min(kRun, records.size() - written));
      for (size_t i = 0; i < some.size(); ++i)
        frames[i] = {{some[i].captured, some[i].wire, some[i].timestamp_ns}, some[i].data};
      const size_t done = writer_.append(std::span(frames).first(some.size()));
      written += done;
      if (done != some.size()) return writer_.error();
    }
    return {};
  }
  Rows write_rows(const Batch& batch, const Selection& rows, FramePool* /*lender*/) override {
    if (link_ != LinkType::kEthernet) return {};
    std::array<CapturedFrame, kRun> frames;
    uint32_t n = 0, written = 0;
    const auto put = [&] {
      const auto done = static_cast<uint32_t>(writer_.append(std::span(frames).first(n)));
      written += done;
      const bool all = done == n;
      n = 0;
      return all;
    };
    const bool whole = rows.each_while([&](uint32_t i) {
      const Extent& extent = batch.extent(i);
      frames[n++] = {
          {batch.data_length(i), extent.wire_end - static_cast<uint32_t>(extent.data), batch.timestamp_ns(i)},
          batch.frame(i) + extent.data};
      return n < kRun || put();
    });
    if (whole) put();
    return {written, 0};
  }
  Result<void> flush() override { return writer_.flush(); }
  Result<void> settle() override { return writer_.settle(); }
  AtomicFile* file() override { return &writer_.file(); }
  std::string path_of(Ending ending) const override { return writer_.path_of(ending); }

 private:
  // With its own link-layer header again.
  bool append(const TxRecord& r) {
    // Where that was cut there is nothing else of the packet.
    if (r.captured < LinkHeader::kBytes) return writer_.append(FrameHeader{r.captured, r.wire, r.timestamp_ns}, r.data);
    uint8_t own[LinkHeader::kMostBytes];
    const uint32_t bytes = LinkHeader::from_ethernet(link_, r.data, own);
    const FrameHeader header{r.captured - LinkHeader::kBytes + bytes, r.wire - LinkHeader::kBytes + bytes,
                             r.timestamp_ns};
    return writer_.append(header, own, bytes, r.data + LinkHeader::kBytes);
  }

  CaptureWriter writer_;
  LinkType link_;
};

}  // namespace

Result<std::unique_ptr<BatchSource>> open_capture_source(const PortSpec& spec, InputSet* inputs) {
  auto file = take_input(inputs, spec.path);
  if (!file) return std::move(file).error();
  auto reader = CaptureReader::open(std::move(*file));
  if (!reader) return std::move(reader).error();
  reader->fill_lengths(spec.fills_lengths);
  return std::unique_ptr<BatchSource>(std::make_unique<CaptureSource>(std::move(*reader), spec.start, spec.limit));
}

Result<std::unique_ptr<PacketSink>> open_capture_sink(const PortSpec& spec, LinkType link) {
  auto writer = CaptureWriter::create(spec.path, {spec.nanosecond, spec.snaplen, link});
  if (!writer) return std::move(writer).error();
  return std::unique_ptr<PacketSink>(std::make_unique<CaptureSink>(std::move(*writer), link));
}

}  // namespace sluice
