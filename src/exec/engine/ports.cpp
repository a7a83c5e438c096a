// host only
#include "exec/engine/ports.h"

#include "base/assert.h"
#include "base/input_file.h"
#include "base/prefetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "exec/device/record.h"
#include "exec/engine/capture_port.h"
#include "net/link.h"
#include "ports/frame.h"
#include "ports/memory/frame_store.h"

namespace sluice {
namespace {

#if defined(__x86_64__)
struct WideLine {
  __attribute__((target("avx512f"))) static void copy(uint8_t* to, const uint8_t* from) {
    _mm512_store_si512(to, _mm512_loadu_si512(from));
  }
};
#endif
struct PlainLine {
  static void copy(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 64); }
};

constexpr uint64_t kAhead = 2048;  // bytes: about a memory latency at the rates that one core reaches

// Copies are whole lines.
constexpr uint64_t line_bytes(uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}
static_assert(line_bytes(kMaxCapturedBytes) / kLentUnit <= UINT16_MAX);

// Copies frames of which each gets `lines` (kLines, where that is not 0), while there is room. As `place`. `packed`:
// the bytes from frame i to the next one.
template <typename Line, size_t kLines, typename Packed>
uint32_t place_even(const uint8_t*& from, size_t lines, Packed&& packed, uint32_t n, uint8_t** frames,
                    Batch::Room& room) {
  const size_t bytes = (kLines != 0 ? kLines : lines) * 64, step = Batch::arena_need(bytes);
  uint32_t taken = 0;
  uint8_t* first = room.take_many(bytes, n, taken);
  const uint8_t* frame = from;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < taken; ++i) {
    uint8_t* const to = first + i * step;
    frames[i] = to;
    for (size_t at = 0; at < bytes; at += 64) {
      prefetch_read(frame + at + kAhead);
      prefetch_write(to + 8 * step + at);
      Line::copy(to + at, frame + at);
    }
    frame += packed(i);
  }
  from = frame;
  return taken;
}

// Copies frames, in whole lines, while there is room. `units`: of kLentUnit bytes, of each frame; `alike`: of every
// frame, 0 where they differ; `longest`: bytes of a frame. Returns how many; `from` moves behind them.
template <typename Line>
uint32_t place(const uint8_t*& from, const uint16_t* units, size_t alike, size_t longest, uint32_t n, uint8_t** frames,
               Batch::Room& room) {
  const auto each = [&](uint32_t i) { return size_t{units[i]} * kLentUnit; };
  const auto all = [&](uint32_t) { return alike * kLentUnit; };
  if (longest <= 64 && alike != 0) return place_even<Line, 1>(from, 1, all, n, frames, room);
  // Both lines of all, as a branch for the second would be mispredicted often, and they take as much room as one.
  static_assert(kAhead >= 128 && Batch::arena_need(64) == Batch::arena_need(128));
  if (longest <= 128) return place_even<Line, 2>(from, 2, each, n, frames, room);
  if (alike != 0) return place_even<Line, 0>(from, line_bytes(longest) / 64, all, n, frames, room);
  Batch::Room left = room;
  const uint8_t* at = from;
  uint32_t i = 0;
  for (; i < n; ++i) {
    const size_t packed = each(i), bytes = line_bytes(packed);
    uint8_t* to = left.take(bytes);
    if (to == nullptr) break;
    frames[i] = to;
    for (size_t of = 0; of < bytes; of += 64) {
      prefetch_read(at + of + kAhead);
      Line::copy(to + of, at + of);
    }
    at += packed;
  }
  from = at;
  room = left;
  return i;
}
using Place = uint32_t (*)(const uint8_t*&, const uint16_t*, size_t, size_t, uint32_t, uint8_t**, Batch::Room&);
#if defined(__x86_64__)
__attribute__((flatten, target("avx512f"))) uint32_t place_wide(const uint8_t*& from, const uint16_t* units,
                                                                size_t alike, size_t longest, uint32_t n,
                                                                uint8_t** frames, Batch::Room& room) {
  return place<WideLine>(from, units, alike, longest, n, frames, room);
}
#endif
Place choose_place() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &place_wide;
#endif
  return &place<PlainLine>;
}
const Place kPlace = choose_place();

}  // namespace

// Frames as a memory source plays them: packed and padded to kLentUnit, or to lines where some are long, since without
// a store's headroom a pass over small frames reads consecutive lines, and no more of them than it has to; and the
// columns of a batch, which are copied in runs.
struct PackedFrames {
  Buffer bytes;                 // kAhead more than the frames
  std::vector<uint16_t> units;  // of kLentUnit bytes, of each frame
  uint16_t alike = 0;           // of every frame; 0: they differ
  uint32_t longest = 0;         // frame, in bytes
  uint32_t deepest = 0;         // network header, in bytes in front of it
  std::vector<Extent> extents;
  std::vector<uint64_t> timestamps;
  std::vector<uint64_t> bytes_before;  // of the frames before each, and of all
  std::vector<FrameRecord> records;    // of each frame; empty: one does not fit
  uint64_t turn_ns = 0;                // what one turn takes: from the first to the last time stamp, and a mean gap

  static Result<std::shared_ptr<const PackedFrames>> of(const FrameStore& store) {
    auto packed = std::make_shared<PackedFrames>();
    for (uint64_t i = 0; i < store.size(); ++i) packed->longest = std::max(packed->longest, store.header(i).captured);
    // Of long frames a device reads the first line alone, over the bus: one that lies in two takes it twice.
    const uint64_t unit = packed->longest <= kFrameRegion ? kLentUnit : 64;
    const auto packed_bytes = [unit](uint64_t bytes) { return (bytes + unit - 1) / unit * unit; };
    uint64_t total = 0;
    bool recorded = true;
    for (uint64_t i = 0; i < store.size(); ++i) {
      const FrameHeader header = store.header(i);
      recorded &=
          total <= UINT32_MAX && header.captured <= UINT16_MAX && header.wire_bytes - header.captured <= UINT16_MAX;
      total += packed_bytes(header.captured);
    }
    static_assert(kAhead >= kLentAhead);
    auto bytes = Buffer::allocate(total + kAhead);
    if (!bytes) return std::move(bytes).error();
    packed->bytes = std::move(*bytes);
    if (recorded) packed->records.reserve(store.size());
    packed->bytes_before.reserve(store.size() + 1);
    packed->bytes_before.push_back(0);
    packed->units.reserve(store.size());
    packed->extents.reserve(store.size());
    packed->timestamps.reserve(store.size());
    auto* const begin = reinterpret_cast<uint8_t*>(packed->bytes.data());
    uint8_t* to = begin;
    for (uint64_t i = 0; i < store.size(); ++i) {
      const FrameHeader header = store.header(i);
      const uint64_t units = packed_bytes(header.captured) / kLentUnit;
      std::memcpy(to, store.frame(i), header.captured);
      Link link;
      (void)read_link(to, header.captured, link);
      packed->deepest = std::max(packed->deepest, link.l3);
      packed->units.push_back(static_cast<uint16_t>(units));
      packed->alike = i == 0 || units == packed->alike ? static_cast<uint16_t>(units) : uint16_t{0};
      packed->extents.push_back(Extent{0, header.captured, header.wire_bytes, 0, 0xffff});
      packed->timestamps.push_back(header.timestamp_ns);
      packed->bytes_before.push_back(packed->bytes_before.back() + header.captured);
      if (recorded) {
        packed->records.push_back({static_cast<uint32_t>(to - begin), static_cast<uint16_t>(header.captured),
                                   static_cast<uint16_t>(header.wire_bytes - header.captured)});
      }
      to += units * kLentUnit;
    }
    if (const std::vector<uint64_t>& t = packed->timestamps; t.size() > 1) {
      const auto [first, last] = std::minmax_element(t.begin(), t.end());
      packed->turn_ns = *last - *first + (*last - *first) / (t.size() - 1);
    }
    return std::shared_ptr<const PackedFrames>(std::move(packed));
  }
};

Result<std::shared_ptr<const PackedFrames>> FrameCache::get(const PortSpec& spec, InputSet* inputs) {
  const std::lock_guard lock(mutex_);
  auto& held = frames_[{spec.path, spec.fills_lengths}];
  if (held == nullptr) {
    auto file = take_input(inputs, spec.path);
    if (!file) return std::move(file).error();
    auto store = FrameStore::load(std::move(*file), {.fills_lengths = spec.fills_lengths});
    if (!store) return std::move(store).error();
    auto packed = PackedFrames::of(*store);
    if (!packed) return std::move(packed).error();
    held = std::move(*packed);
  }
  return held;
}

namespace {

// Plays frames again and again, each turn later by what one takes. The bytes are copied, as a network card would write
// them, because programs edit frames in place.
class MemorySource final : public BatchSource {
 public:
  MemorySource(std::shared_ptr<const PackedFrames> frames, uint64_t limit)
      : frames_(std::move(frames)), left_(limit == ~uint64_t{0} ? frames_->units.size() : limit) {}

  Result<void> read(Batch& batch) override {
    batch.clear();
    const uint64_t begin = at_.offset;
    const PackedFrames& frames = *frames_;
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(batch.limit(), left_));
    if (frames.units.empty() || most == 0) return {};
    uint32_t made = place(batch, at_, most);
    if (made == 0) {
      // It grows for a frame larger than all of it.
      const uint32_t bytes = frames.extents[at_.next].end;
      uint8_t* to = batch.reserve(bytes);
      if (to == nullptr) return system_error(fmt::format("a frame of {} bytes", bytes), ENOMEM);
      std::memcpy(to, reinterpret_cast<const uint8_t*>(frames.bytes.data()) + at_.offset, bytes);
      const Batch::Rows rows = batch.rows();
      rows.frame[0] = to;
      fill(rows, 0, at_, 1);
      go_on(at_, 1, at_.offset + uint64_t{frames.units[at_.next]} * kLentUnit);
      made = 1;
    }
    batch.append(made);
    left_ -= made;
    last_ = static_cast<uint64_t>(at_.offset > begin ? at_.offset - begin : 0);
    return {};
  }

  bool take(Batch& batch, Taken& taken) override {
    const PackedFrames& frames = *frames_;
    const uint64_t most = frames.units.empty() ? 0 : std::min<uint64_t>(batch.limit(), left_);
    // Each gets a line, however short it is.
    const bool fit =
        Batch::arena_need(std::max<uint64_t>(line_bytes(frames.longest), 64)) * most <= batch.arena().size();
    if (most != 0 && (frames.records.empty() || !fit)) return false;
    batch.clear();
    batch.append(static_cast<uint32_t>(most));
    taken = {at_.next, at_.offset, at_.later_ns, static_cast<uint32_t>(most)};
    const uint64_t all = frames.units.size();
    for (uint64_t n = most; n != 0;) {
      const uint64_t run = std::min(n, all - at_.next), behind = at_.next + run;
      go_on(at_, run, behind == all ? 0 : frames.records[behind].at);
      n -= run;
    }
    left_ -= most;
    last_ = 0;
    return true;
  }
  void copy(Batch& batch, const Taken& taken) const override {
    batch.clear();
    Cursor from{taken.next, taken.offset, taken.later_ns, 0};
    const uint32_t made = place(batch, from, taken.packets);
    SLUICE_CHECK(made == taken.packets);
    batch.append(made);
  }

  Result<void> lend(Batch& batch) override {
    const PackedFrames& frames = *frames_;
    if (frames.records.empty()) return read(batch);
    batch.clear();
    const uint64_t most = std::min<uint64_t>({batch.limit(), left_, frames.units.size() - at_.next});
    if (most == 0) return {};
    // Room for all but the first, which may be larger than the arena.
    const std::span<const FrameRecord> others = std::span(frames.records).subspan(at_.next + 1, most - 1);
    const auto behind_room = std::partition_point(others.begin(), others.end(), [&](const FrameRecord& record) {
      return record.at - at_.offset + lent_bytes(record.bytes) <= batch.arena().size();
    });
    const auto run = static_cast<uint32_t>(behind_room - others.begin() + 1);
    // Nobody writes there.
    auto* const base = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(frames.bytes.data()));
    batch.lend(
        {frames.records.data() + at_.next, frames.bytes_before.data() + at_.next, frames.timestamps.data() + at_.next,
         at_.later_ns, base, frames.longest, frames.deepest, number_, at_.turn, at_.next, frames.units.size()},
        run);
    const uint64_t begin = at_.offset, behind = at_.next + run;
    go_on(at_, run, behind == frames.units.size() ? 0 : frames.records[behind].at);
    left_ -= run;
    last_ = at_.offset > begin ? at_.offset - begin : 0;
    return {};
  }
  LentMemory lent() const override {
    if (frames_->records.empty()) return {};
    return {{frames_->bytes.data(), frames_->bytes.size()}, frames_->records, frames_->longest, frames_};
  }

  std::span<const std::byte> next() const override {
    return {frames_->bytes.data() + at_.offset, std::min<uint64_t>(last_, frames_->bytes.size() - at_.offset)};
  }

 private:
  // How far it has come.
  struct Cursor {
    uint64_t next = 0;
    uint64_t offset = 0;
    uint64_t later_ns = 0;  // than in the first turn
    uint64_t turn = 0;      // LentRows::turn
  };

  // Copies frames to the first rows of an empty batch, while there is room: one by one, and their columns in runs of
  // the store's own. Returns how many; `from` moves behind them.
  uint32_t place(Batch& batch, Cursor& from, uint32_t most) const {
    const PackedFrames& frames = *frames_;
    const auto* base = reinterpret_cast<const uint8_t*>(frames.bytes.data());
    const Batch::Rows rows = batch.rows();
    Batch::Room room = batch.room();
    uint32_t made = 0;
    while (made < most) {
      const auto run = static_cast<uint32_t>(std::min<uint64_t>(most - made, frames.units.size() - from.next));
      const uint8_t* at = base + from.offset;
      const uint32_t placed =
          kPlace(at, frames.units.data() + from.next, frames.alike, frames.longest, run, rows.frame + made, room);
      fill(rows, made, from, placed);
      go_on(from, placed, static_cast<uint64_t>(at - base));
      made += placed;
      if (placed != run) break;
    }
    batch.keep(room);
    return made;
  }
  // Fills the other columns of rows [at, at + n).
  void fill(const Batch::Rows& rows, uint32_t at, const Cursor& from, uint32_t n) const {
    std::memcpy(rows.extent + at, frames_->extents.data() + from.next, n * sizeof(Extent));
    const uint64_t* const times = frames_->timestamps.data() + from.next;
    for (uint32_t i = 0; i < n; ++i) rows.timestamp_ns[at + i] = times[i] + from.later_ns;
  }
  // Behind n frames more.
  void go_on(Cursor& at, uint64_t n, uint64_t offset) const {
    at.next += n;
    at.offset = offset;
    if (at.next != frames_->units.size()) return;
    at.next = at.offset = 0;
    ++at.turn;
    at.later_ns += frames_->turn_ns;
  }

  static uint64_t next_number() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

  std::shared_ptr<const PackedFrames> frames_;
  const uint64_t number_ = next_number();  // LentRows::source
  Cursor at_;
  uint64_t last_ = 0;  // bytes of the frames of the last read
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
        if (batch.size() == 0) return system_error(fmt::format("a frame of {} bytes", bytes), ENOMEM);
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

class MemorySink final : public PacketSink {
 public:
  bool reads_frames() const override { return false; }
  Result<void> write(std::span<const TxRecord> records, size_t& written) override {
    written = records.size();
    return {};
  }
  std::string path_of(Ending) const override { return {}; }
};

}  // namespace

std::string place_of(const PacketSink* sink, const std::string& path, Ending ending) {
  if (sink == nullptr || ending != Ending::kPartial || path == "-") return path;
  return sink->path_of(ending);
}

Result<std::unique_ptr<BatchSource>> open_source(const PortSpec& spec, FrameCache& cache, InputSet* inputs) {
  switch (spec.type) {
    case PortSpec::Type::kCapture:
      return open_capture_source(spec, inputs);
    case PortSpec::Type::kMemory: {
      auto frames = cache.get(spec, inputs);
      if (!frames) return std::move(frames).error();
      return std::unique_ptr<BatchSource>(std::make_unique<MemorySource>(std::move(*frames), spec.limit));
    }
    case PortSpec::Type::kPattern:
      return std::unique_ptr<BatchSource>(std::make_unique<PatternSource>(spec));
    case PortSpec::Type::kDevice:
    case PortSpec::Type::kNull:
      break;
  }
  return Error("this port cannot receive");
}

LinkType sink_link(const Router& router, unsigned sink, std::span<const LinkType> links) {
  if (links.empty() || links.front() == LinkType::kEthernet) return LinkType::kEthernet;
  if (std::any_of(links.begin(), links.end(), [&](LinkType link) { return link != links.front(); }))
    return LinkType::kEthernet;
  // Back from the sink.
  std::vector<bool> seen(router.elements.size());
  std::vector<unsigned> next = {sink};
  while (!next.empty()) {
    const unsigned e = next.back();
    next.pop_back();
    if (seen[e]) continue;
    seen[e] = true;
    if (router.elements[e]->writes_link_header()) return LinkType::kEthernet;
    for (const RouterConnection& c : router.connections) {
      if (c.to == e) next.push_back(c.from);
    }
  }
  return links.front();
}

Result<std::unique_ptr<PacketSink>> open_sink(const PortSpec& spec, LinkType link) {
  switch (spec.type) {
    case PortSpec::Type::kCapture:
      return open_capture_sink(spec, link);
    case PortSpec::Type::kMemory:
      return std::unique_ptr<PacketSink>(std::make_unique<MemorySink>());
    case PortSpec::Type::kDevice:  // a live port, opened by others
    case PortSpec::Type::kPattern:
    case PortSpec::Type::kNull:
      break;
  }
  return std::unique_ptr<PacketSink>();
}

}  // namespace sluice
