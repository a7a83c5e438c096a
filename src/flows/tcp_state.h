// host only
// What the segments of a TCP connection say of its state, as seen by somebody between its ends. Sources: RFC 9293
// section 3.3.2 (states), and what Linux's connection tracking is documented to accept: no sequence numbers are looked
// at.
#pragma once

#include <cstdint>

#include "net/l4.h"

namespace sluice {

enum class TcpState : uint8_t {
  kSynSent,      // the first SYN
  kBothSynSent,  // and one from the other end: a simultaneous open
  kSynReceived,  // SYN and ACK from the other end
  kEstablished,
  kFinWait,    // the first FIN
  kCloseWait,  // which was acknowledged
  kLastAck,    // the other FIN
  kTimeWait,   // which was acknowledged
  kClosed,     // RST
};

constexpr const char* to_string(TcpState state) {
  constexpr const char* kNames[] = {"syn-sent",   "syn-sent-both", "syn-received", "established", "fin-wait",
                                    "close-wait", "last-ack",      "time-wait",    "closed"};
  return kNames[static_cast<unsigned>(state)];
}

// By the flags that count; PSH, ECE and CWR do not.
enum class TcpSegment : uint8_t {
  kSyn,
  kSynAck,
  kFin,
  kAck,
  kRst,
  kBad,  // flags that no segment has
};

// `flags`: the byte of the header.
constexpr TcpSegment tcp_segment(uint8_t flags) {
  const unsigned all = flags & (kTcpFin | kTcpSyn | kTcpRst | kTcpAck | kTcpUrg);
  const unsigned base = all & ~unsigned{kTcpUrg};
  const bool urgent = all != base;
  switch (base) {
    case kTcpSyn:
      return TcpSegment::kSyn;
    case kTcpSyn | kTcpAck:
      return urgent ? TcpSegment::kBad : TcpSegment::kSynAck;
    case kTcpRst:
    case kTcpRst | kTcpAck:
      return urgent ? TcpSegment::kBad : TcpSegment::kRst;
    case kTcpFin | kTcpAck:
      return TcpSegment::kFin;
    case kTcpAck:
      return TcpSegment::kAck;
    default:
      return TcpSegment::kBad;
  }
}

struct TcpStep {
  enum class Kind : uint8_t {
    kMoves,    // to `next`, which may be the state that was
    kKeeps,    // the segment changes nothing, and may be an old one
    kReopens,  // the connection has ended, and a new one begins with this segment
    kInvalid,
  };
  Kind kind = Kind::kInvalid;
  TcpState next = TcpState::kSynSent;
};

// `reply`: from the end that did not begin the connection.
constexpr TcpStep tcp_step(TcpState state, TcpSegment segment, bool reply) {
  using K = TcpStep::Kind;
  using S = TcpState;
  const auto moves = [](S next) { return TcpStep{K::kMoves, next}; };
  const TcpStep keeps{K::kKeeps, state}, reopens{K::kReopens, S::kSynSent}, invalid{K::kInvalid, state};
  const bool opening = state == S::kSynSent || state == S::kBothSynSent;
  switch (segment) {
    case TcpSegment::kSyn:
      if (state == S::kTimeWait) return reopens;
      if (!reply) {
        if (opening) return moves(state);
        return state == S::kClosed ? reopens : keeps;
      }
      return opening ? moves(S::kBothSynSent) : invalid;
    case TcpSegment::kSynAck:
      if (!reply) {
        // Of a simultaneous open alone: whoever began sends no ACK with its first SYN.
        return state == S::kBothSynSent || state == S::kSynReceived ? moves(S::kSynReceived) : invalid;
      }
      return opening ? moves(S::kSynReceived) : keeps;
    case TcpSegment::kFin:
      switch (state) {
        case S::kSynReceived:
        case S::kEstablished:
          return moves(S::kFinWait);
        case S::kFinWait:
          // As the end that sent the first one says it again, or the other one as well: who it is decides nothing.
          return moves(S::kLastAck);
        case S::kCloseWait:
        case S::kLastAck:
          return moves(S::kLastAck);
        case S::kTimeWait:
          return moves(S::kTimeWait);
        case S::kClosed:
          return moves(S::kClosed);
        default:
          return invalid;
      }
    case TcpSegment::kAck:
      switch (state) {
        case S::kSynSent:
        case S::kBothSynSent:
          return reply ? keeps : invalid;
        case S::kSynReceived:
          return moves(reply ? S::kSynReceived : S::kEstablished);
        case S::kEstablished:
          return moves(S::kEstablished);
        case S::kFinWait:
        case S::kCloseWait:
          return moves(S::kCloseWait);
        case S::kLastAck:
        case S::kTimeWait:
          return moves(S::kTimeWait);
        case S::kClosed:
          return moves(S::kClosed);
      }
      return invalid;
    case TcpSegment::kRst:
      return moves(S::kClosed);
    case TcpSegment::kBad:
      return invalid;
  }
  return invalid;
}

}  // namespace sluice
