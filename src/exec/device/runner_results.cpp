// host only
// What comes back of packets that crossed as frames (runner_frames.cpp): which went the usual way,
// what they lost, and what of it the batch's columns have to know.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "exec/device/body.h"
#include "exec/device/runner.h"
#include "exec/device/trace.h"

namespace sluice {
namespace {

// What RecordShape::net_out brought of a packet.
void restore_net(Batch& batch, uint32_t row, uint8_t net) {
  Extent& extent = batch.extent(row);
  extent.l3 = static_cast<uint16_t>(extent.data + static_cast<int32_t>(net_behind(net)));
  batch.key(row).family = net_family(net);
}

// The word of a packet that is not usual, of a summed one what is meant of it.
uint64_t word_of_other(const FrameResults& results, uint32_t i) {
  const FrameBlock& block = results.blocks[i / FrameBlock::kRecords];
  return block.is_summed(i) ? block.summed_word(i) : results.words[i];
}

// Results of a batch of which no row is missing, by blocks of 64. Nobody writes a half of the last block that has no
// records: it is as some flight before has left it. So are the words of usual packets in halves that have all lost the
// same.
class ResultBlocks {
 public:
  ResultBlocks(const FrameResults& results, uint32_t count) : results_(results), count_(count) {
    static_assert(FrameBlock::kRecords == 64);
  }
  uint32_t blocks() const { return (count_ + 63) / 64; }
  // Packets that met all stages and left by the usual way, and the others.
  uint64_t usual(uint32_t w) const {
    const FrameBlock& block = results_.blocks[w];
    return rows(w) & (uint64_t{block.usual[0]} | uint64_t{block.usual[1]} << 32);
  }
  uint64_t others(uint32_t w) const { return rows(w) & ~usual(w); }
  // Of the others those that a kernel has summed by kind; and f(FrameDrops) for each kind, which holds no others.
  uint64_t summed(uint32_t w) const {
    const FrameBlock& block = results_.blocks[w];
    return others(w) & (uint64_t{block.dropped[0]} | uint64_t{block.dropped[1]} << 32);
  }
  template <typename F>
  void each_kind(uint32_t w, F&& f) const {
    for (uint32_t half = 0; half < 2; ++half) {
      if (has(w, half)) results_.blocks[w].each_kind(half, f);
    }
  }
  // A device has just stored them: memory gets the time to bring them.
  void ask(uint32_t w) const {
    if (w >= blocks()) return;
    const auto* const at = reinterpret_cast<const std::byte*>(results_.blocks + w);
    for (size_t line = 0; line < sizeof(FrameBlock); line += 64) prefetch_read(at + line);
  }
  // Captured, of all.
  uint64_t bytes(uint32_t w) const { return uint64_t{bytes(w, 0)} + bytes(w, 1); }
  const uint16_t* ports(uint32_t w) const { return results_.blocks[w].ports; }
  // Whether usual packets lost bytes.
  bool trims(uint32_t w) const { return trims(w, 0) || trims(w, 1); }
  bool trims(uint32_t w, uint32_t half) const {
    const FrameBlock& block = results_.blocks[w];
    return has(w, half) && block.usual[half] != 0 && (words_stored(w, half) || block.trim[half].word != 0);
  }
  // Whether they did not all lose the same, so that each one's word says what.
  bool words_stored(uint32_t w, uint32_t half) const {
    return (results_.blocks[w].bytes[half] & FrameBlock::kTrimmed) != 0;
  }
  FrameTrim trim(uint32_t w, uint32_t half) const { return results_.blocks[w].trim[half]; }
  uint64_t stored_word(uint32_t i) const { return results_.words[i]; }

 private:
  bool has(uint32_t w, uint32_t half) const { return w * 64 + half * 32 < count_; }
  uint64_t rows(uint32_t w) const { return ~uint64_t{0} >> (64 - std::min(count_ - w * 64, 64u)); }
  uint32_t bytes(uint32_t w, uint32_t half) const {
    return has(w, half) ? results_.blocks[w].bytes[half] & ~FrameBlock::kTrimmed : 0;
  }

  const FrameResults& results_;
  uint32_t count_;
};

// What packets of an unfilled batch lost, from the first block on where some did.
class TakenTrims {
 public:
  TakenTrims(Batch& batch, const ResultBlocks& results) : batch_(batch), results_(results) {}

  // What the usual packets of a block lost together: all of it, and at their ends.
  struct Lost {
    uint32_t bytes = 0, end = 0;
  };
  // Those of a block, whose usual packets are `usual`. All blocks in their order.
  Lost take(uint32_t w, uint64_t usual) {
    if (to_.rows == nullptr && !results_.trims(w)) return {};
    if (to_.rows == nullptr) {
      to_ = batch_.trim_unfilled();
      std::fill_n(to_.rows, w * 64, FrameTrim{});
      std::fill_n(to_.sums, w, 0u);
    }
    uint32_t sum = 0, cut = 0;
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t first = w * 64 + half * 32;
      const auto its = static_cast<uint32_t>(usual >> half * 32);
      FrameTrim* const to = to_.rows + first;
      const bool lost = results_.trims(w, half);
      if (!lost || !results_.words_stored(w, half)) {
        // What others lost is in no sum.
        const FrameTrim all = lost ? results_.trim(w, half) : FrameTrim{};
        for (uint32_t i = 0; i < 32; ++i)
          to[i].word = static_cast<uint16_t>(all.word & (0u - uint32_t{(its & FastBurst::kLane[i]) != 0}));
        const auto packets = static_cast<uint32_t>(std::popcount(its));
        sum += packets * all.bytes();
        cut += packets * all.end();
        continue;
      }
      for (uint32_t i = 0; i < 32; ++i) {
        to[i] = (its >> i & 1) != 0 ? trim_of(results_.stored_word(first + i)) : FrameTrim{};
        sum += to[i].bytes();
        cut += to[i].end();
      }
    }
    to_.sums[w] = sum;
    return {sum, cut};
  }
  // Of a packet that was taken, at its end.
  uint32_t end(uint32_t row) const { return to_.rows != nullptr ? to_.rows[row].end() : 0; }

 private:
  Batch& batch_;
  const ResultBlocks& results_;
  Batch::Trims to_{};
};

// Packets that are dropped are few kinds, each at one stage for one reason. `settle` takes a kind when there are others
// in its place, and at the end.
struct DroppedKind {
  uint64_t steps = 0;  // of the result's word
  uint64_t packets = 0, came = 0, cut = 0;
};
template <typename Settle>
class DroppedKinds {
 public:
  explicit DroppedKinds(Settle settle) : settle_(std::move(settle)) {}
  void add(uint64_t steps, uint32_t packets, uint32_t came, uint32_t cut) {
    DroppedKind& kind = of(steps);
    kind.packets += packets;
    kind.came += came;
    kind.cut += cut;
  }
  void settle() {
    for (DroppedKind& kind : kinds_) settle(kind);
  }

 private:
  void settle(DroppedKind& kind) {
    if (kind.packets != 0) settle_(kind);
    kind = {};
  }
  DroppedKind& of(uint64_t steps) {
    for (DroppedKind& kind : kinds_) {
      if (kind.packets == 0) kind.steps = steps;
      if (kind.steps == steps) return kind;
    }
    settle(kinds_.back());
    kinds_.back().steps = steps;
    return kinds_.back();
  }

  Settle settle_;
  std::array<DroppedKind, 8> kinds_;
};

const StageSlot& last_stage(const Program& program, const Steps& steps) {
  return program.stages[std::bit_width(uint32_t{steps.visited}) - 1u];
}

}  // namespace

// A word has no five-tuple, so that a record cannot be made of it.
struct DeviceRunner::MetFrame {
  uint32_t its_row, its_rule, bytes;
  static constexpr bool kRecords = false;
  uint32_t rule(uint32_t) const { return its_rule; }
  uint32_t length(uint32_t) const { return bytes; }
  static uint32_t near(LoggedRules::Range) { return 1; }
  static DropReason reason(uint32_t) { return DropReason::kNone; }
  uint32_t row(uint32_t) const { return its_row; }
  static uint32_t next_hop(uint32_t) { return 0; }
};

// Takes the results, which come all at once. False: they have not.
bool DeviceRunner::collect_frames(size_t n) {
  const PlanNode& node = plan_.nodes[n];
  InFlight& a = walk_->in_flight[0];
  a.channel->poll(a.flight);
  if (!a.flight.failed && a.flight.ready < a.flight.count) return false;
  Selection again;
  if (a.flight.failed) {
    give_up((*device_.offloads)[n], a);
    again = a.all_rows();
    counters_of(node).rescued += a.flight.count;
  } else {
    const TraceRange trace("apply");
    if (!take_unfilled(n, a)) again = take_frames(n, a);
    const uint32_t redone = again.count();
    counters_of(node).redone += redone;
    counters_of(node).offloaded += a.flight.count - redone;
  }
  a.channel->close(a.flight);
  a.channel = nullptr;
  run_on_host(node, walk_->inputs(n), again, a.listed && a.flight.failed);
  return true;
}

// Whether a packet that met these stages is one whose record would be taken.
bool DeviceRunner::gives_record(const Program& program, uint32_t visited, uint32_t rule) const {
  for (uint32_t bits = visited; bits != 0; bits &= bits - 1) {
    const LoggedRules* const logs = account_.logs_of(program.stages[std::countr_zero(bits)].element);
    if (logs != nullptr && logs->has(rule) && logs->grants(rule)) return true;
  }
  return false;
}

// Counts packets at the stages that they all met: `came` bytes, of which `cut` went at the first.
void DeviceRunner::count_alike(const Program& program, uint64_t visited, uint64_t packets, uint64_t came,
                               uint64_t cut) {
  for (uint64_t bits = packets != 0 ? visited : 0; bits != 0; bits &= bits - 1) {
    const int s = std::countr_zero(bits);
    account_.arrive(program.stages[s].element, packets, s == 0 ? came : came - cut);
  }
}

// Whether results of a batch whose columns nobody has filled can be taken without: false where some packet was neither
// sent the usual way nor dropped, or is to be logged.
bool DeviceRunner::takes_unfilled(const Program& program, const FrameResults& results, uint32_t count, bool detail,
                                  uint32_t stages) const {
  for (uint32_t s = 0; detail && s < stages; ++s) {
    const LoggedRules* const logs = account_.logs_of(program.stages[s].element);
    for (uint32_t i = 0; logs != nullptr && i < count; ++i) {
      if (logs->has(results.details[i].rule)) return false;
    }
  }
  const ResultBlocks blocks(results, count);
  constexpr uint32_t kAhead = 8;
  for (uint32_t w = 0; w < kAhead; ++w) blocks.ask(w);
  for (uint32_t w = 0; w < blocks.blocks(); ++w) {
    blocks.ask(w + kAhead);
    for (uint64_t left = blocks.others(w) & ~blocks.summed(w); left != 0; left &= left - 1) {
      const Steps steps = unpack_frame_result(results.words[w * 64 + std::countr_zero(left)]).steps;
      if (steps.redo || steps.visited == 0) return false;
      if (last_stage(program, steps).next[steps.output & 15] != kPathDropped) return false;
    }
  }
  return true;
}

// Takes the results of a batch whose columns nobody has filled, and leaves them so. False: they are needed, and nothing
// has been done.
bool DeviceRunner::take_unfilled(size_t n, InFlight& a) {
  Batch& batch = *walk_->batch;
  if (!a.dense || batch.unfilled() == nullptr || walk_->share->fates != nullptr) return false;
  const PlanNode& node = plan_.nodes[n];
  const Offload& offload = (*device_.offloads)[n];
  const Program& program = walk_->program(node);
  const uint8_t usual_path = program.stages[offload.end - 1].next[0];
  const bool ordered = only_ordered(offload, usual_path);
  if (!ordered && !only_sent(node, usual_path)) return false;
  const uint32_t count = a.flight.count;
  const FrameResults results = FrameResults::at(const_cast<std::byte*>(a.flight.out), count);
  const bool detail = offload.shape.key_out != 0;
  if (!takes_unfilled(program, results, count, detail, offload.end)) return false;
  // The list whose rules come back, of which there is one at most.
  RuleHits::Adder hits;
  uint32_t list = 0;
  for (uint32_t s = 0; detail && s < offload.end; ++s) {
    if (const RuleHits::Adder of_stage = account_.hits_of(program.stages[s].element)) {
      hits = of_stage;
      list = s;
    }
  }
  DroppedKinds dropped([&](const DroppedKind& kind) {
    const Steps steps = unpack_frame_result(kind.steps).steps;
    count_alike(program, steps.visited, kind.packets, kind.came, kind.cut);
    account_.drop(last_stage(program, steps).element, reason_to_leave(steps.reason), kind.packets);
  });
  const ResultBlocks blocks(results, count);
  TakenTrims trims(batch, blocks);
  uint64_t passed = 0, came = 0, cut = 0;
  Selection& sent = walk_->to(node.exits[usual_path - kPathExit]);
  const uint64_t tail = offload.shape.tails != 0 ? kLentTail : 0;
  walk_->share->sums.resize(blocks.blocks());
  for (uint32_t w = 0; w < blocks.blocks(); ++w) {
    const uint64_t usual = blocks.usual(w);
    std::memcpy(batch.ports() + w * 64, blocks.ports(w), sizeof(FrameBlock::ports));
    sent.or_word(w, usual);
    const auto packets = static_cast<uint64_t>(std::popcount(usual));
    uint64_t bytes = blocks.bytes(w);  // of those that pass, when the others have been taken off
    const TakenTrims::Lost lost = trims.take(w, usual);
    for (uint64_t left = hits ? usual : 0; left != 0; left &= left - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(left));
      hits.add(results.details[i].rule, a.records[i].bytes - (list != 0 ? trims.end(i) : 0));
    }
    // Where rules are counted, each packet's own is looked at.
    const uint64_t summed = hits ? 0 : blocks.summed(w);
    if (summed != 0) {
      blocks.each_kind(w, [&](const FrameDrops& kind) {
        const auto its = static_cast<uint32_t>(std::popcount(kind.packets));
        dropped.add(kind.word & kFrameStepBits, its, kind.bytes, its * cut_of(kind.word));
        bytes -= kind.bytes;
      });
    }
    for (uint64_t left = blocks.others(w) & ~summed; left != 0; left &= left - 1) {
      const uint32_t i = w * 64 + static_cast<uint32_t>(std::countr_zero(left));
      const uint32_t its = a.records[i].bytes;
      const uint64_t word = word_of_other(results, i);
      const FrameResult r = unpack_frame_result(word);
      dropped.add(word & kFrameStepBits, 1, its, r.cut);
      bytes -= its;
      if (hits && (r.steps.visited >> list & 1) != 0) hits.add(results.details[i].rule, list == 0 ? its : its - r.cut);
    }
    walk_->share->sums[w] = {usual, bytes - lost.bytes + packets * tail};
    passed += packets;
    came += bytes;
    cut += lost.end;
  }
  dropped.settle();
  count_alike(program, usual_stages(offload.end), passed, came, cut);
  // Results are the flight's, which others get.
  uint8_t* tails = nullptr;
  if (offload.shape.tails != 0 && !a.stays) {
    tails = reinterpret_cast<uint8_t*>(batch.arena().data()) + a.back_bytes + size_t{count} * kLentTailRoom;
    std::memcpy(tails, tails_of(offload.shape, results, count), size_t{count} * kLentTail);
  }
  a.stays ? batch.edit_elsewhere() : batch.edit_unfilled(a.heads, a.slots.head, a.to - a.first);
  if (offload.shape.tails != 0) batch.append_unfilled(tails);
  if (ordered) bring_registers(offload.shape, results, count, node.live_out[usual_path - kPathExit]);
  return true;
}

// Keeps the registers that elements look at which take the batch in order; `live`: of all their kinds.
void DeviceRunner::bring_registers(const RecordShape& shape, const FrameResults& results, uint32_t count,
                                   FieldMask live) {
  BroughtRegisters& to = walk_->share->brought;
  const size_t rows = walk_->batch->capacity();
  if (shape.net_out != 0) {
    uint8_t* const behind = BroughtRegisters::room(to.behind, rows);
    const uint8_t* const nets = nets_of(shape, results, count);
    const auto bring = [&](uint32_t i) {
      behind[i] = net_family(nets[i]) != 0 ? static_cast<uint8_t>(net_behind(nets[i])) : uint8_t{0};
    };
    uint32_t at = 0;
    // Loops of as many turns as are known are vector code.
    for (; at + 64 <= count; at += 64) {
      for (uint32_t i = 0; i < 64; ++i) bring(at + i);
    }
    for (; at < count; ++at) bring(at);
    to.has |= kFieldL3;
  }
  if (shape.key_out != 0 && (live & kFieldRule) != 0) {
    uint32_t* const rules = BroughtRegisters::room(to.rules, rows);
    for (uint32_t i = 0; i < count; ++i) rules[i] = results.details[i].rule;
    to.has |= kFieldRule;
  }
  if (shape.mark_out != 0) {
    std::memcpy(BroughtRegisters::room(to.marks, rows), marks_of(shape, results, count), count * sizeof(uint32_t));
    to.has |= kFieldMark;
  }
  if (shape.paint_out != 0) {
    std::memcpy(BroughtRegisters::room(to.paints, rows), paints_of(shape, results, count), count);
    to.has |= kFieldPaint;
  }
}

// Brings what became of frames to the batch's arena, where it had stayed on the device. False: the device failed.
bool DeviceRunner::brings_back(const InFlight& a) const {
  return !a.stays || device_.device->download(walk_->batch->arena().data(), *a.pool->stays, 0, a.back_bytes).ok();
}

namespace {

// Where the frames of a flight go that came back. `tails`: what its last stage appends; nullptr: nothing.
struct FramePlaces {
  const InFlight& a;
  const BatchView& view;
  const Offload& offload;
  const uint32_t* tails;

  // What came back of a frame takes its place, or is put there.
  void put(uint32_t i, uint32_t row, const FrameRecord& record, uint64_t word) const {
    const FrameResult r = unpack_frame_result(word);
    const int32_t moved = r.moved;
    // Its head came back, from the first byte on that it came with.
    const bool head = a.slots.head != 0 && static_cast<uint32_t>(moved) <= FrameTrim::kMostFront;
    const uint32_t end = record.bytes - r.cut;
    const uint32_t wire_end = r.cut != 0 ? end : uint32_t{record.bytes} + record.longer;
    Extent& extent = view.extent[row];
    // The last stage appends to what leaves it. What took another way around it has no tail.
    const uint32_t tail = tails != nullptr && r.steps.left_by_first(offload.end - 1u) ? kLentTail : 0;
    uint8_t* const from = a.to + a.slots.back_at(i, record.at - a.first) + (tail != 0 ? size_t{i} * kLentTailRoom : 0);
    if (a.lent) {
      if (head) join_head(from, a.heads + size_t{i} * a.slots.head, a.slots.head, view.frame[row], record.bytes);
      view.frame[row] = from;
      if ((moved | static_cast<int32_t>(r.cut | tail)) != 0) {
        // What came back as a whole begins where its packet does.
        const int32_t in_front = head ? 0 : moved;
        extent.data = moved - in_front;
        extent.end = static_cast<uint32_t>(static_cast<int32_t>(end + tail) - in_front);
        extent.wire_end = static_cast<uint32_t>(static_cast<int32_t>(wire_end + tail) - in_front);
      }
    } else {
      const auto bytes = head ? static_cast<int32_t>(std::min<uint32_t>(a.slots.head, record.bytes))
                              : static_cast<int32_t>(a.slots.crossing(record.bytes)) - moved;
      if (offload.writes_frame && bytes > 0) {
        const uint8_t* const made = head ? a.heads + size_t{i} * a.slots.head : from;
        std::memcpy(view.frame[row] + (head ? 0 : moved), made, static_cast<size_t>(bytes));
      }
      extent.data = moved;
      extent.end = end + tail;
      extent.wire_end = wire_end + tail;
    }
    if (tail != 0) std::memcpy(view.frame[row] + end, &tails[i], kLentTail);
    view.port[row] = static_cast<uint16_t>(r.port);
  }
};

}  // namespace

// Returns the packets that are to be done again.
Selection DeviceRunner::take_frames(size_t n, InFlight& a) {
  // Of a class the host has them in its memory, as they came.
  if (a.sparse || !brings_back(a)) return a.all_rows();
  const PlanNode& node = plan_.nodes[n];
  const Offload& offload = (*device_.offloads)[n];
  const Program& program = walk_->program(node);
  const BatchView view = walk_->batch->view();
  const Flight& flight = a.flight;
  const FrameResults results = FrameResults::at(const_cast<std::byte*>(flight.out), flight.count);
  const bool detail = offload.shape.key_out != 0;
  static_assert(kTailBytes == kLentTail);
  const uint32_t* const tails = offload.shape.tails != 0 ? tails_of(offload.shape, results, flight.count) : nullptr;
  const uint8_t* const nets = offload.shape.net_out != 0 ? nets_of(offload.shape, results, flight.count) : nullptr;
  const uint32_t* const marks = offload.shape.mark_out != 0 ? marks_of(offload.shape, results, flight.count) : nullptr;
  const uint8_t* const paints =
      offload.shape.paint_out != 0 ? paints_of(offload.shape, results, flight.count) : nullptr;
  const uint64_t usual = usual_stages(offload.end);
  const auto word_of = [&](uint32_t i) {
    const FrameBlock& block = results.blocks[i / FrameBlock::kRecords];
    if (!block.is_usual(i)) return word_of_other(results, i);
    if (block.has_word(i)) return results.words[i];
    return usual | trim_bits(block.trim[i / 32 % 2]) | uint64_t{block.ports[i % FrameBlock::kRecords]} << 48;
  };
  const uint8_t usual_path = program.stages[offload.end - 1].next[0];
  const FramePlaces places{a, view, offload, tails};
  Selection again;
  uint64_t passed = 0, came = 0, cut = 0;
  Selection* const sent =
      !detail && only_sent(node, usual_path) ? &walk_->to(node.exits[usual_path - kPathExit]) : nullptr;
  for (uint32_t i = 0; i < flight.count; ++i) {
    const uint64_t word = word_of(i);
    const FrameRecord& record = a.records[i];
    const uint32_t row = a.row_of(i);
    if (sent != nullptr && (word & kFrameStepBits) == usual) {
      note_device(row);
      places.put(i, row, record, word);
      sent->add(row);
      ++passed;
      came += record.bytes;
      cut += word >> 37 & kFrameMostCut;
      continue;
    }
    const FrameResult r = unpack_frame_result(word);
    if (r.steps.redo || r.steps.visited == 0) {
      again.add(row);
      continue;
    }
    const StageSlot& last = last_stage(program, r.steps);
    const uint8_t path = last.next[r.steps.output & 15];
    const bool dropped = path == kPathDropped;
    const bool ordered = !dropped && only_ordered(offload, path);
    if (!dropped && !ordered && !only_sent(node, path)) {
      again.add(row);
      continue;
    }
    const FrameDetail more = detail ? results.details[i] : FrameDetail{0, 0};
    // A word has no five-tuple: the host, which does it again, records it.
    if (gives_record(program, r.steps.visited, more.rule)) {
      again.add(row);
      continue;
    }
    note_device(row);
    // The first stage cuts padding off; behind one that moves the frame's beginning there is none.
    const uint32_t lengths[kMaxStages] = {record.bytes - r.cut};
    count_visits(program, 0, r.steps.visited, lengths, MetFrame{row, more.rule, record.bytes});
    if (dropped) {
      account_.drop(last.element, reason_to_leave(r.steps.reason), row, more.rule, more.next_hop);
      continue;
    }
    places.put(i, row, record, word);
    if (ordered && nets != nullptr) restore_net(*walk_->batch, row, nets[i]);
    if (marks != nullptr) view.annotation[row].mark = marks[i];
    if (paints != nullptr) view.annotation[row].paint = paints[i];
    // It lives, and where it goes somebody may ask for the reason that it has.
    const bool has_reason = r.steps.reason != DropReason::kNone;
    if (has_reason) view.annotation[row].reason = r.steps.reason;
    if (detail) {
      view.annotation[row].rule = more.rule;
      view.annotation[row].next_hop = more.next_hop;
    }
    if ((has_reason || detail || marks != nullptr || paints != nullptr) && walk_->at_root())
      walk_->share->annotated.add(row);
    walk_->to(node.exits[path - kPathExit]).add(row);
  }
  count_alike(program, usual, passed, came, cut);
  return again;
}

}  // namespace sluice
