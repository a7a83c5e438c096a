// Records: what one packet is on its way to a device and back, as tagged words. Host and device.
//
//   kind       in                                              out
//   kKey4      1 word: five-tuple, flags, DSCP, fragment       8 bytes: rule, next hop, steps
//   kKey6      3 words: the whole FlowKey                      the same
//   kRoute4    1 word: three IPv4 destinations                 8 bytes: their three next hops
//   kFrame     8 bytes: where the frame lies and its lengths   8 bytes: steps, port, extent; 16 with rule and next hop
//
// `steps` says which stages the packet met and how it left the last: the host counts by it exactly as if it had run
// them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE4_1__)
#include <smmintrin.h>
#endif

#include "batch/batch.h"
#include "batch/packet.h"
#include "exec/device/word.h"
#include "net/key4.h"
#include "net/link.h"

namespace sluice {

enum class RecordKind : uint8_t { kKey4, kKey6, kRoute4, kFrame };
SLUICE_HD constexpr bool is_key(RecordKind kind) {
  return kind == RecordKind::kKey4 || kind == RecordKind::kKey6 || kind == RecordKind::kRoute4;
}

// The first bytes of a long frame, which hold all headers that a parser reads (headers_fit_region).
inline constexpr uint32_t kRecordRegion = 128;

// What became of one packet on the device. The last stage that it met and the output by which it left that say where it
// is: dropped, or alive at the exit where that output leads. `reason` says nothing of it: a packet keeps the reason
// with which it left a stage by an output for errors, and goes on with it where that output is connected.
struct Steps {
  uint16_t visited = 0;  // bit i: stage begin + i took the packet
  uint8_t output = 0;    // of the last stage
  DropReason reason = DropReason::kNone;
  bool redo = false;  // the device could not; the host runs the same stages from the same registers

  // Whether the packet met stage `stage`, counted from `begin`, and left it as its last by output 0.
  bool left_by_first(uint32_t stage) const { return visited >> stage == 1 && output == 0; }
};

// -- keys -------------------------------------------------------------------------------------------------------------

// Packets whose key is IPv4 fit one word (net/key4.h), the tag in the bits that the key leaves free.
SLUICE_HD Word pack_key4(const FlowKey& k, uint32_t tag) {
  const Key4 key = pack_key4(k);
  return Word{{key.source, key.destination, key.ports, key.rest | tag << 25}};
}
SLUICE_HD FlowKey unpack_key4(const Word& in) {
  return unpack_key4(Key4{in.w[0], in.w[1], in.w[2], in.w[3]});
}

SLUICE_HD constexpr uint32_t words_for(uint32_t bytes) {
  return (bytes + kWordPayload - 1) / kWordPayload;
}

class PayloadReader {
 public:
  SLUICE_HD explicit PayloadReader(const Word* words) : words_(words) {}
  SLUICE_HD void get(void* to, uint32_t bytes) {
    auto* at = static_cast<uint8_t*>(to);
    while (bytes != 0) {
      const uint32_t room = kWordPayload - used_;
      const uint32_t n = bytes < room ? bytes : room;
      memcpy(at, reinterpret_cast<const uint8_t*>(words_) + used_, n);
      at += n;
      bytes -= n;
      used_ += n;
      if (used_ == kWordPayload) {
        ++words_;
        used_ = 0;
      }
    }
  }

 private:
  const Word* words_;
  uint32_t used_ = 0;
};

// Writes a payload, which lies in payload_room bytes, into consecutive words. Host.
inline void store_payload(Word* to, const void* payload, uint32_t bytes, uint32_t tag) {
  const auto* from = static_cast<const uint8_t*>(payload);
  for (; bytes > kWordPayload; bytes -= kWordPayload, from += kWordPayload)
    HostWords::store_payload(to++, from, kWordPayload, tag);
  HostWords::store_payload(to, from, bytes, tag);
}
SLUICE_HD constexpr uint32_t payload_room(uint32_t bytes) {  // all of it is read
  return words_for(bytes) * kWordPayload + 1;
}

// All of a FlowKey but its unused last word.
inline constexpr uint32_t kKeyBytes = sizeof(FlowKey) - sizeof(uint32_t);
inline constexpr uint32_t kKey6Words = words_for(kKeyBytes);
static_assert(kKey6Words == 3);

// The result of a key record is one 64-bit word, half of the bus that a register each would take:
//
//   bits 0..20   rule      21..38   next hop      39       marked         40..43   stages met
//   bits 44..47  output of the last               48..55   reason         56       redo       57..63   tag
//
// A mark is that of the rule, which the host looks up. What does not fit (a rule past two million, a next hop past a
// quarter of a million, an output past 15) is redone on the host. A drop reason always fits: it has as many bits as its
// type.
struct KeyResult {
  uint32_t rule;
  uint32_t next_hop;
  bool marked;
  Steps steps;
};
inline constexpr uint32_t kMaxKeyStages = 4;
inline constexpr uint32_t kMaxKeyRule = (1u << 21) - 1;
inline constexpr uint32_t kMaxKeyNextHop = (1u << 18) - 1;
static_assert(sizeof(DropReason) == 1);

inline constexpr uint64_t kMarkedResult = uint64_t{1} << 39;

SLUICE_HD uint64_t pack_result(uint32_t rule, uint32_t mark, uint32_t next_hop, uint32_t visited, uint32_t output,
                               DropReason reason, uint32_t tag) {
  const bool fits = rule <= kMaxKeyRule && next_hop <= kMaxKeyNextHop && (output < 16 || output == kDropOutput);
  return uint64_t{rule & kMaxKeyRule} | uint64_t{next_hop & kMaxKeyNextHop} << 21 |
         (mark != 0 ? kMarkedResult : uint64_t{0}) | uint64_t{visited & 15u} << 40 | uint64_t{output & 15u} << 44 |
         uint64_t{static_cast<uint8_t>(reason)} << 48 | (fits ? uint64_t{0} : uint64_t{1} << 56) | uint64_t{tag} << 57;
}
// Whether the packet met exactly the stages of the mask, left the last by output 0 and has no drop reason.
SLUICE_HD bool passed_all(uint64_t word, uint32_t visited) {
  return (word >> 40 & 0x1ffff) == visited;
}
SLUICE_HD uint32_t result_rule(uint64_t word) {
  return static_cast<uint32_t>(word) & kMaxKeyRule;
}
SLUICE_HD uint32_t result_next_hop(uint64_t word) {
  return static_cast<uint32_t>(word >> 21) & kMaxKeyNextHop;
}
SLUICE_HD uint32_t result_tag(uint64_t word) {
  return static_cast<uint32_t>(word >> 57);
}
// Host: how many of the `n` results from `out` have the tag, before the first that has not. A cache line in one step,
// so that the loads of many lines, which the device has just written, are on their way together.
inline uint32_t leading_results(const uint64_t* out, uint32_t n, uint32_t tag) {
  const uint64_t want = uint64_t{tag} << 57;
  uint32_t i = 0;
#if defined(__SSE4_1__) && !defined(SLUICE_SANITIZED_THREADS) && !defined(SLUICE_PORTABLE_WORDS) && !defined(__CUDACC__)
  while (i < n && (reinterpret_cast<uintptr_t>(out + i) & 63) != 0) {
    if (((HostWords::load64(out + i) ^ want) >> 57) != 0) return i;
    ++i;
  }
  const __m128i wanted = _mm_set1_epi64x(static_cast<long long>(want));
  const __m128i bits = _mm_set1_epi64x(static_cast<long long>(uint64_t{127} << 57));
  for (; i + 8 <= n; i += 8) {
    const auto* line = reinterpret_cast<const volatile __m128i*>(out + i);
    const __m128i a = line[0], b = line[1], c = line[2], d = line[3];
    const __m128i differ = _mm_or_si128(_mm_or_si128(_mm_xor_si128(a, wanted), _mm_xor_si128(b, wanted)),
                                        _mm_or_si128(_mm_xor_si128(c, wanted), _mm_xor_si128(d, wanted)));
    if (_mm_testz_si128(differ, bits) == 0) break;
  }
  HostWords::after_load();  // callers read the results as plain memory
#endif
  for (; i < n; ++i) {
    if (((HostWords::load64(out + i) ^ want) >> 57) != 0) return i;
  }
  return n;
}
SLUICE_HD KeyResult unpack_result(uint64_t word) {
  KeyResult r;
  r.rule = result_rule(word);
  r.next_hop = result_next_hop(word);
  r.marked = (word & kMarkedResult) != 0;
  r.steps.visited = static_cast<uint16_t>(word >> 40 & 15);
  r.steps.output = static_cast<uint8_t>(word >> 44 & 15);
  r.steps.reason = static_cast<DropReason>(word >> 48 & 0xff);
  r.steps.redo = (word >> 56 & 1) != 0;
  return r;
}

// -- routes -----------------------------------------------------------------------------------------------------------

// A route lookup alone needs four bytes of a packet and gives back two, so a word holds three of them. Its program is
// one stage, a route lookup; a destination without a route has the next hop 0, as in every table.
inline constexpr uint32_t kRoutesPerRecord = 3;
// Lookups of one record.
SLUICE_HD constexpr uint32_t lookups_of(RecordKind kind) {
  return kind == RecordKind::kRoute4 ? kRoutesPerRecord : 1;
}

SLUICE_HD Word pack_route4(const uint32_t* destinations, uint32_t tag) {
  return Word{{destinations[0], destinations[1], destinations[2], tag << 25}};
}
// The result: 19 bits a next hop (they are 1 to 65,535), the first lowest; the tag above them.
inline constexpr uint32_t kRouteBits = 19;
SLUICE_HD uint64_t route_part(uint32_t next_hop, uint32_t i) {
  return uint64_t{next_hop & ((1u << kRouteBits) - 1)} << kRouteBits * i;
}
SLUICE_HD uint32_t routed(uint64_t word, uint32_t i) {
  return static_cast<uint32_t>(word >> kRouteBits * i) & ((1u << kRouteBits) - 1);
}
static_assert(kRouteBits * kRoutesPerRecord == 57, "the tag is above");

// -- frames -----------------------------------------------------------------------------------------------------------

// A frame of a flight that crosses whole, or by its first bytes, is a FrameRecord. No tag: such flights go by slabs
// alone.

// Where the frames of a flight lie: each begins a slot of its memory, which is as long as what crosses of it, and so
// much more, in whole units. A program works on a copy with room in front; what it leaves begins the slot.
struct FrameSlots {
  uint16_t region = 0;  // at most so many bytes of a frame cross
  uint16_t unit = 16;
  uint16_t extra = 0;
  uint16_t stride = 0;  // of copies in shared memory: kFrameFront, the longest slot, and what keeps lanes off one bank
  // Of a frame that keeps its place, but for bytes that it loses in front, only the first so many bytes as it came come
  // back, a multiple of 16, those of all records one behind the other; the rest of it stays where it is, so that one
  // longer than the region may not move otherwise. 0: what crossed comes back.
  uint16_t head = 0;
  // Not 0: what comes back of record i lies i times so far behind the first, wherever its frame lies.
  uint16_t apart = 0;

  SLUICE_HD uint64_t back_at(uint32_t i, uint32_t at) const { return apart != 0 ? uint64_t{i} * apart : at; }
  SLUICE_HD uint32_t crossing(uint32_t bytes) const { return bytes < region ? bytes : region; }
  SLUICE_HD bool splits(uint32_t bytes) const { return head != 0 && bytes > region; }
  SLUICE_HD uint32_t room(uint32_t bytes) const { return (crossing(bytes) + extra + unit - 1) / unit * unit; }
};
static_assert(kMostPushed <= 20);
inline constexpr uint32_t kFrameFront = 20;
// What stages edit of a frame that they do not move (FrameUse::kHeaders), at most.
inline constexpr uint32_t kFrameEdited = 48;
static_assert(kEtherHeaderBytes + kMaxVlanTags * kVlanTagBytes + kHeaderEdited <= kFrameEdited);
// The same, a multiple of 16, where no network header has more than `deepest` bytes in front.
inline constexpr uint32_t frame_head(uint32_t deepest) {
  const uint32_t head = (deepest + kHeaderEdited + 15) / 16 * 16;
  return head < kFrameEdited ? head : kFrameEdited;
}
// Of `count` heads; a multiple of 64.
inline constexpr uint32_t heads_bytes(uint32_t count, uint32_t head) {
  return (count * head + 63) / 64 * 64;
}
// The longest part of a frame that crosses, and the longest slot.
inline constexpr uint32_t kFrameRegion = 192;
inline constexpr uint32_t kFrameMostRoom = kFrameRegion + 16;
inline constexpr uint32_t frame_stride(uint32_t room) {
  return (kFrameFront + room) / 8 * 8 + 4;
}

// What became of it. Its bytes lie where they lay, edited, but for heads (FrameSlots::head).
//
//   bits 0..15   stages met     16..19   output of the last     20..27   drop reason      28       redo
//   bits 29..36  where the frame begins now, from the record's `at`: signed
//   bits 37..47  bytes that it is shorter at its end            48..63   output port
//
// Redo: what does not fit, or a packet that goes on elsewhere than to a sink; the host takes it from its first stage,
// from the frame as it came.
inline constexpr int32_t kFrameMostMoved = 127;
inline constexpr uint32_t kFrameMostCut = FrameTrim::kMostEnd;
inline constexpr uint64_t kFrameRedo = uint64_t{1} << 28;
// Of a packet that met the stages of the mask, left the last by output 0 and has no drop reason.
inline constexpr uint64_t kFrameStepBits = (uint64_t{1} << 29) - 1;
// Moved or shortened.
inline constexpr uint64_t kFrameExtentBits = ((uint64_t{1} << 19) - 1) << 29;
SLUICE_HD uint64_t pack_frame_result(uint32_t visited, uint32_t output, DropReason reason, int32_t moved, uint32_t cut,
                                     uint32_t port, bool redo) {
  const bool fits = moved >= -kFrameMostMoved && moved <= kFrameMostMoved && cut <= kFrameMostCut && port <= 0xffff &&
                    visited <= 0xffff && (output < 15 || output == kDropOutput);
  return uint64_t{visited & 0xffffu} | uint64_t{output & 15u} << 16 | uint64_t{static_cast<uint8_t>(reason)} << 20 |
         (fits && !redo ? uint64_t{0} : kFrameRedo) | uint64_t{static_cast<uint8_t>(moved)} << 29 |
         uint64_t{cut & kFrameMostCut} << 37 | uint64_t{port} << 48;
}
SLUICE_HD constexpr uint32_t cut_of(uint64_t word) {
  return static_cast<uint32_t>(word >> 37) & kFrameMostCut;
}
struct FrameResult {
  Steps steps;
  int32_t moved;
  uint32_t cut;
  uint32_t port;
};
SLUICE_HD FrameResult unpack_frame_result(uint64_t word) {
  FrameResult r;
  r.steps.visited = static_cast<uint16_t>(word & 0xffff);
  r.steps.output = static_cast<uint8_t>(word >> 16 & 15);
  r.steps.reason = static_cast<DropReason>(word >> 20 & 0xff);
  r.steps.redo = (word & kFrameRedo) != 0;
  r.moved = static_cast<int8_t>(word >> 29 & 0xff);
  r.cut = cut_of(word);
  r.port = static_cast<uint32_t>(word >> 48);
  return r;
}

// Most packets of a flight are usual: they met all stages, left the last one by output 0, and may have lost some bytes
// in front or at their end. A block for every 64 records follows the words of `count` records. Words of usual packets
// are not stored where those of a half have all lost the same, so that the block says all. Dropped packets of a half
// are summed by kind, as far as there is room for kinds: the host counts them without looking at each, and their words
// are not stored either. With RecordShape::key_out a FrameDetail of each record follows the blocks.
//
// Packets of a half that were dropped alike: they met the same stages, left the last by the same output for the same
// reason, and lost as much at their ends.
struct FrameDrops {
  uint64_t word;     // of each, by kMeant
  uint32_t packets;  // as usual[]
  uint32_t bytes;    // captured
  static constexpr uint64_t kMeant = kFrameStepBits | uint64_t{kFrameMostCut} << 37;
};
struct FrameBlock {
  static constexpr uint32_t kRecords = 64;
  static constexpr uint32_t kDropKinds = 4;  // of a half
  static constexpr uint32_t kTrimmed = uint32_t{1} << 31;

  uint32_t usual[2];    // bit i % 32 of [i / 32]
  uint32_t bytes[2];    // captured, of the same halves, and kTrimmed: the words of usual packets are stored
  uint32_t dropped[2];  // those that are in `drops`, whose kinds are stored up to the one that completes them
  FrameTrim trim[2];    // what each usual packet of the half lost, without kTrimmed
  uint16_t ports[kRecords];
  FrameDrops drops[2][kDropKinds];

  SLUICE_HD bool is_usual(uint32_t i) const { return (usual[i / 32 % 2] >> i % 32 & 1) != 0; }
  SLUICE_HD bool is_summed(uint32_t i) const { return (dropped[i / 32 % 2] >> i % 32 & 1) != 0; }
  // Whether the word of record i is stored.
  SLUICE_HD bool has_word(uint32_t i) const {
    return is_usual(i) ? (bytes[i / 32 % 2] & kTrimmed) != 0 : !is_summed(i);
  }
  // What is meant of the word of a packet that is summed.
  SLUICE_HD uint64_t summed_word(uint32_t i) const {
    uint64_t word = 0;
    each_kind(i / 32 % 2, [&](const FrameDrops& kind) {
      if ((kind.packets >> i % 32 & 1) != 0) word = kind.word;
    });
    return word;
  }
  // f(FrameDrops) for each kind of a half.
  template <typename F>
  SLUICE_HD void each_kind(uint32_t half, F&& f) const {
    uint32_t left = dropped[half];
    for (uint32_t k = 0; left != 0 && k < kDropKinds; ++k) {
      f(drops[half][k]);
      left &= ~drops[half][k].packets;
    }
  }
};
static_assert(sizeof(FrameBlock) == 288 && alignof(FrameBlock) == 8);
struct FrameDetail {
  uint32_t rule, next_hop;
};
// With RecordShape::tails a word of each record follows the rest: what stands behind a packet that left the last stage
// by output 0 (Steps::left_by_first), whatever its reason is. Others have none.
inline constexpr uint32_t kTailBytes = 4;
static_assert(sizeof(FrameDetail) == 8);
// Then, with RecordShape::mark_out, its mark; with RecordShape::net_out a byte: how far behind the packet's first byte
// its network header begins, and of which family its key is (0, 4 or 6); with RecordShape::paint_out its paint.
inline constexpr uint32_t kNetMost = 63;
static_assert(kEtherHeaderBytes + kMaxVlanTags * kVlanTagBytes + kMostPushed <= kNetMost);
SLUICE_HD constexpr uint8_t net_byte(uint32_t behind, uint32_t family) {
  return static_cast<uint8_t>((behind & kNetMost) | family / 2 << 6);
}
SLUICE_HD constexpr uint32_t net_behind(uint8_t net) {
  return net & kNetMost;
}
SLUICE_HD constexpr uint8_t net_family(uint8_t net) {
  return static_cast<uint8_t>(net >> 6 << 1);
}
// Where the results of `count` frames lie, from `out` on.
struct FrameResults {
  uint64_t* words;
  FrameBlock* blocks;
  FrameDetail* details;  // key_out alone

  SLUICE_HD static FrameResults at(void* out, uint32_t count) {
    auto* words = static_cast<uint64_t*>(out);
    auto* blocks = reinterpret_cast<FrameBlock*>(words + count);
    return {words, blocks,
            reinterpret_cast<FrameDetail*>(blocks + (count + FrameBlock::kRecords - 1) / FrameBlock::kRecords)};
  }
};
SLUICE_HD constexpr uint64_t usual_stages(uint32_t end) {
  return (uint64_t{1} << end) - 1;
}
SLUICE_HD constexpr bool is_usual_frame(uint64_t word, uint64_t stages) {
  return (word & kFrameStepBits) == stages && (word >> 29 & 0xff) <= FrameTrim::kMostFront;
}
// What a usual packet lost, as its word says it, and the part of a word that says so.
SLUICE_HD constexpr FrameTrim trim_of(uint64_t word) {
  return {static_cast<uint16_t>((word >> 29 & FrameTrim::kMostFront) | (word >> 37 & FrameTrim::kMostEnd) << 5)};
}
SLUICE_HD constexpr uint64_t trim_bits(FrameTrim trim) {
  return (uint64_t{trim.word} & FrameTrim::kMostFront) << 29 | uint64_t{trim.word} >> 5 << 37;
}

// -- shapes -----------------------------------------------------------------------------------------------------------

// What frame records bring back beside their words; keys need none of it.
struct RecordShape {
  RecordKind kind = RecordKind::kKey4;
  uint8_t key_out = 0;    // rule and next hop come back (FrameDetail)
  uint8_t sums = 0;       // the last stage reads whole frames, from their first byte on
  uint8_t tails = 0;      // it appends 4 bytes, which come back apart from the frame
  uint8_t net_out = 0;    // where network headers begin and their family comes back (net_byte)
  uint8_t mark_out = 0;   // its mark does, 4 bytes
  uint8_t paint_out = 0;  // its paint does, a byte
};

// Where the tails of `count` frames lie.
SLUICE_HD uint32_t* tails_of(const RecordShape& shape, const FrameResults& results, uint32_t count) {
  return reinterpret_cast<uint32_t*>(results.details + (shape.key_out != 0 ? count : 0));
}
// Where their marks do.
SLUICE_HD uint32_t* marks_of(const RecordShape& shape, const FrameResults& results, uint32_t count) {
  return tails_of(shape, results, count) + (shape.tails != 0 ? count : 0);
}
// Where their bytes of RecordShape::net_out do.
SLUICE_HD uint8_t* nets_of(const RecordShape& shape, const FrameResults& results, uint32_t count) {
  return reinterpret_cast<uint8_t*>(marks_of(shape, results, count) + (shape.mark_out != 0 ? count : 0));
}
// Where their paints do.
SLUICE_HD uint8_t* paints_of(const RecordShape& shape, const FrameResults& results, uint32_t count) {
  return nets_of(shape, results, count) + (shape.net_out != 0 ? count : 0);
}
// Bytes of what comes back of each frame because somebody asks.
SLUICE_HD constexpr uint32_t frame_asked_bytes(const RecordShape& s) {
  return (s.key_out != 0 ? static_cast<uint32_t>(sizeof(FrameDetail)) : 0u) + (s.tails != 0 ? kTailBytes : 0u) +
         (s.mark_out != 0 ? 4u : 0u) + s.net_out + s.paint_out;
}

// Words of one key record; two frame records are one.
SLUICE_HD constexpr uint32_t words_in(RecordKind kind) {
  return kind == RecordKind::kKey6 ? kKey6Words : 1;
}
// Bytes of one record, and of one result.
SLUICE_HD constexpr uint32_t bytes_in(RecordKind kind) {
  return kind == RecordKind::kFrame ? 8 : words_in(kind) * static_cast<uint32_t>(sizeof(Word));
}
inline constexpr uint32_t kResultBytes = 8;
// Bytes of the results of `count` records.
SLUICE_HD constexpr size_t results_bytes(const RecordShape& s, uint32_t count) {
  if (s.kind != RecordKind::kFrame) return size_t{count} * kResultBytes;
  const size_t blocks = (size_t{count} + FrameBlock::kRecords - 1) / FrameBlock::kRecords;
  return size_t{count} * (kResultBytes + frame_asked_bytes(s)) + blocks * sizeof(FrameBlock);
}

inline const char* to_string(RecordKind kind) {
  switch (kind) {
    case RecordKind::kKey4:
      return "key4";
    case RecordKind::kKey6:
      return "key6";
    case RecordKind::kRoute4:
      return "route4";
    case RecordKind::kFrame:
      return "frame";
  }
  return "?";
}

}  // namespace sluice
