// Cuts an IPv4 packet into fragments: RFC 791 section 3.2 (the algorithm, and which options are copied), RFC 1812
// section 5.2.6 (as few as possible, in order), RFC 6864 (the ID is kept, DF is never cleared). Host and device; no
// allocation.
#pragma once

#include <cstdint>

#include "base/hd.h"
#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ipv4.h"
#include "net/ipv4_options.h"

namespace sluice {

enum class FragmentVerdict : uint8_t {
  kFits,          // not larger than the MTU
  kCut,           // pieces follow
  kDontFragment,  // DF is set and honoured
  kNoRoom,        // the MTU holds less than the header and 8 bytes
  kBadHeader,     // the header contradicts itself or the bytes that are there: nothing that a parser let pass
  kBadOptions,    // the option list is malformed, so what must be copied is unknown; `option_at` says where
  kPastEnd,       // a piece would start past the 13 bits of the offset: the packet is itself a wrong fragment
};

// One packet on its way into pieces:
//
//   Ipv4Fragments cut;
//   if (cut.start(ip, readable, mtu, true) == FragmentVerdict::kCut)
//     for (Ipv4Fragments::Piece piece; cut.next(piece);) ...write_header(piece, to)...
//
// The header is copied by `start`, so that the packet itself may become the first piece.
class Ipv4Fragments {
 public:
  struct Piece {
    uint32_t from;          // of the packet's payload
    uint32_t bytes;         // of payload: a multiple of 8, but in the last piece
    uint32_t header_bytes;  // 20..60; less in later pieces where options are not copied
    bool last;
  };

  // `ip`: a header of which `readable` bytes are there. Fragments a fragment as well. `honour_df` false cuts where DF
  // is set, too, and leaves DF set: for the receiver it stays one datagram.
  SLUICE_HD FragmentVerdict start(const uint8_t* ip, uint32_t readable, uint32_t mtu, bool honour_df) {
    if (readable < kIpv4HeaderBytes || ip[0] >> 4 != 4) return FragmentVerdict::kBadHeader;
    first_bytes_ = (ip[0] & 0xfu) * 4;
    total_ = load_be16(ip + 2);
    if (first_bytes_ < kIpv4HeaderBytes || first_bytes_ > readable || total_ < first_bytes_) {
      return FragmentVerdict::kBadHeader;
    }
    if (total_ <= mtu) return FragmentVerdict::kFits;
    const uint16_t field = load_be16(ip + 6);
    if (honour_df && (field & kIpv4DontFragment) != 0) return FragmentVerdict::kDontFragment;
    if (mtu < first_bytes_ + 8) return FragmentVerdict::kNoRoom;
    mtu_ = mtu;
    flags_ = field & static_cast<uint16_t>(~(kIpv4OffsetMask | kIpv4MoreFragments));
    more_ = (field & kIpv4MoreFragments) != 0;
    offset_ = field & kIpv4OffsetMask;
    memcpy(first_, ip, first_bytes_);
    if (!make_later_header()) return FragmentVerdict::kBadOptions;
    from_ = 0;
    const uint32_t payload = total_ - first_bytes_;
    const uint32_t in_first = (mtu_ - first_bytes_) / 8 * 8;
    const uint32_t in_later = (mtu_ - later_bytes_) / 8 * 8;
    // Where the last piece starts, and whether a fragment that has others behind it ends at a multiple of 8.
    const uint32_t left = payload - in_first;
    const uint32_t last_from = in_first + (left - 1) / in_later * in_later;
    if (offset_ + last_from / 8 > kIpv4OffsetMask) return FragmentVerdict::kPastEnd;
    return FragmentVerdict::kCut;
  }

  // The next piece, in order. False: the last was the last.
  SLUICE_HD bool next(Piece& piece) {
    const uint32_t payload = total_ - first_bytes_;
    if (from_ >= payload) return false;
    piece.from = from_;
    piece.header_bytes = from_ == 0 ? first_bytes_ : later_bytes_;
    const uint32_t room = mtu_ - piece.header_bytes;
    piece.last = payload - from_ <= room;
    piece.bytes = piece.last ? payload - from_ : room / 8 * 8;
    from_ += piece.bytes;
    return true;
  }

  // Writes the header of a piece, piece.header_bytes long, with its checksum.
  SLUICE_HD void write_header(const Piece& piece, uint8_t* to) const {
    memcpy(to, piece.from == 0 ? first_ : later_, piece.header_bytes);
    store_be16(to + 2, static_cast<uint16_t>(piece.header_bytes + piece.bytes));
    const bool more = !piece.last || more_;
    store_be16(to + 6, static_cast<uint16_t>(flags_ | (more ? kIpv4MoreFragments : 0) | (offset_ + piece.from / 8)));
    store_be16(to + 10, ipv4_header_checksum(to, piece.header_bytes));
  }

  // Of the packet that `start` took.
  uint32_t total_bytes() const { return total_; }
  uint32_t first_header_bytes() const { return first_bytes_; }
  // After kBadOptions: the offset in the header of the option that is wrong.
  uint32_t option_at() const { return option_at_; }

 private:
  // Only the options that say so are copied, each as it is, padded with End of Option List.
  SLUICE_HD bool make_later_header() {
    memcpy(later_, first_, kIpv4HeaderBytes);
    later_bytes_ = kIpv4HeaderBytes;
    OptionWalk walk{first_ + kIpv4HeaderBytes, first_bytes_ - kIpv4HeaderBytes};
    OptionStep step = walk.step();
    for (; step == OptionStep::kNext; step = walk.step()) {
      if ((walk.type & kIpv4OptionCopied) == 0) continue;
      for (uint32_t i = 0; i < walk.length; ++i) later_[later_bytes_++] = walk.options[walk.at + i];
    }
    option_at_ = kIpv4HeaderBytes + walk.at;
    if (step == OptionStep::kBad) return false;
    while (later_bytes_ % 4 != 0) later_[later_bytes_++] = kIpv4OptionEnd;
    later_[0] = static_cast<uint8_t>(0x40 | later_bytes_ / 4);
    return true;
  }

  uint8_t first_[kIpv4MaxHeaderBytes];
  uint8_t later_[kIpv4MaxHeaderBytes];
  uint32_t first_bytes_ = 0;
  uint32_t later_bytes_ = 0;
  uint32_t total_ = 0;
  uint32_t mtu_ = 0;
  uint32_t from_ = 0;
  uint32_t option_at_ = 0;
  uint32_t offset_ = 0;  // of the packet itself, in units of 8 bytes
  uint16_t flags_ = 0;   // DF and the reserved bit
  bool more_ = false;    // the packet itself has fragments behind it
};

}  // namespace sluice
