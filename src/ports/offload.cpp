// host only
#include "ports/offload.h"

#include <algorithm>
#include <cstring>

#include "net/bytes.h"
#include "net/checksum.h"
#include "net/ipv4.h"
#include "net/ipv6.h"
#include "net/link.h"
#include "net/parse.h"

namespace sluice {
namespace {

// Whether the fixed headers of an untagged packet show that nothing is left to do, which is so of nearly all packets:
// it costs 20 cycles where a parse takes 100. What looks incomplete here, the parser decides.
bool surely_complete(const uint8_t* frame, uint32_t bytes) {
  if (bytes < 60) return false;
  const uint16_t type = load_be16(frame + 12);
  if (type == 0x0800 && frame[14] == 0x45) {
    const uint8_t protocol = frame[23];
    if (protocol != kProtocolUdp && protocol != kProtocolTcp) return true;
    const uint32_t l4_bytes = load_be16(frame + 16) - 20u;
    return load_be16(frame + (protocol == kProtocolUdp ? 40 : 50)) !=
           checksum_fold(pseudo_sum_v4(load_be32(frame + 26), load_be32(frame + 30), protocol, l4_bytes));
  }
  if (type == 0x86dd && bytes >= 72) {
    const uint8_t protocol = frame[20];
    if (protocol != kProtocolUdp && protocol != kProtocolTcp) return false;
    return load_be16(frame + (protocol == kProtocolUdp ? 60 : 70)) !=
           checksum_fold(pseudo_sum_v6(load_be64(frame + 22), load_be64(frame + 30), load_be64(frame + 38),
                                       load_be64(frame + 46), protocol, load_be16(frame + 18)));
  }
  return false;
}

}  // namespace

bool complete_checksum(uint8_t* frame, uint32_t bytes, uint32_t start, uint32_t offset) {
  if (start > bytes || offset > bytes - start || bytes - start - offset < 2) return false;
  // A computed 0 is written as 0xffff, which is right for UDP and the same number for all others.
  uint16_t checksum = checksum_finish(checksum_add(frame + start, bytes - start));
  if (checksum == 0) checksum = 0xffff;
  store_be16(frame + start + offset, checksum);
  return true;
}

void complete_checksum_if_partial(uint8_t* frame, uint32_t bytes) {
  if (surely_complete(frame, bytes)) return;
  Headers headers;
  if (parse_ethernet(frame, bytes, bytes, headers, false) != ParseStatus::kOk) return;
  const FlowKey& key = headers.key;
  // TCP's field and UDP's; neither in a fragment, whose sender had to complete it.
  const uint32_t offset = key.protocol == kProtocolTcp ? 16 : key.protocol == kProtocolUdp ? 6 : 0;
  if (offset == 0 || headers.l4_offset == Headers::kNoOffset || (key.bits & FlowKey::kFragment) != 0) return;
  const uint32_t start = headers.l4_offset, end = headers.l3_offset + headers.ip_bytes;
  if (start + offset + 2 > end) return;
  const uint32_t pseudo =
      key.family == 4 ? pseudo_sum_v4(static_cast<uint32_t>(key.src_lo), static_cast<uint32_t>(key.dst_lo),
                                      key.protocol, end - start)
                      : pseudo_sum_v6(key.src_hi, key.src_lo, key.dst_hi, key.dst_lo, key.protocol, end - start);
  if (load_be16(frame + start + offset) == checksum_fold(pseudo)) complete_checksum(frame, end, start, offset);
}

void fill_length(uint8_t* frame, uint32_t captured, uint32_t wire) {
  Link link;
  if (read_link(frame, captured, link) != LinkStatus::kOk) return;
  uint8_t* const ip = frame + link.l3;
  const uint32_t here = captured - link.l3, bytes = wire - link.l3;
  if (link.ether_type == kEtherTypeIpv4) {
    if (here < kIpv4HeaderBytes || ip[0] >> 4 != 4 || load_be16(ip + 2) != 0 || bytes > 0xffff) return;
    const uint32_t header = (ip[0] & 0xfu) * 4;
    if (header < kIpv4HeaderBytes || header > here) return;
    store_be16(ip + 2, static_cast<uint16_t>(bytes));
    store_be16(ip + 10, ipv4_header_checksum(ip, header));
  } else if (link.ether_type == kEtherTypeIpv6) {
    // Behind hop-by-hop options the length may be theirs (RFC 2675), and nothing is behind "no next header".
    if (here < kIpv6HeaderBytes || ip[0] >> 4 != 6 || load_be16(ip + 4) != 0 || bytes - kIpv6HeaderBytes > 0xffff ||
        ip[6] == kIpv6HopByHop || ip[6] == kIpv6NoNextHeader)
      return;
    store_be16(ip + 4, static_cast<uint16_t>(bytes - kIpv6HeaderBytes));
  }
}

bool Segments::begin(const uint8_t* frame, uint32_t bytes, const VnetHeader& left, uint32_t room) {
  left_bytes_ = 0;
  const uint8_t kind = left.segmentation & static_cast<uint8_t>(~VnetHeader::kCongestion);
  if (kind != VnetHeader::kTcp4 && kind != VnetHeader::kTcp6 && kind != VnetHeader::kUdp) return false;
  Headers headers;
  // Its checksum is made anew, whatever it is.
  if (parse_ethernet(frame, bytes, bytes, headers, false) != ParseStatus::kOk) return false;
  const FlowKey& key = headers.key;
  tcp_ = kind != VnetHeader::kUdp;
  v4_ = key.family == 4;
  l3_ = headers.l3_offset;
  l4_ = headers.l4_offset;
  // Where the inner packet of a tunnel is meant, the checksum is another one than that of these headers.
  if (l4_ == Headers::kNoOffset || (key.bits & FlowKey::kFragment) != 0 || left.segment_bytes == 0 ||
      key.protocol != (tcp_ ? kProtocolTcp : kProtocolUdp) || (tcp_ && v4_ != (kind == VnetHeader::kTcp4)) ||
      ((left.flags & VnetHeader::kNeedsChecksum) != 0 && left.checksum_start != l4_)) {
    return false;
  }
  const uint32_t end = l3_ + headers.ip_bytes;
  if (l4_ + (tcp_ ? 20 : 8) > end) return false;
  header_bytes_ = l4_ + (tcp_ ? uint32_t{frame[l4_ + 12]} / 16 * 4 : 8);
  if (header_bytes_ < l4_ + (tcp_ ? 20 : 8) || header_bytes_ >= end || header_bytes_ > kMostHeaderBytes ||
      header_bytes_ + left.segment_bytes > room) {
    return false;
  }
  std::memcpy(headers_.data(), frame, header_bytes_);
  payload_ = frame + header_bytes_;
  left_bytes_ = end - header_bytes_;
  segment_bytes_ = left.segment_bytes;
  if ((left.flags & VnetHeader::kNeedsChecksum) != 0) {
    // The field has the sum of the sender's pseudo-header, which may be of another destination than that of the header
    // (RFC 8200 section 8.1: routing headers), with the length of all: it is taken off.
    const uint32_t field = l4_ + (tcp_ ? 16 : 6);
    pseudo_ = checksum_fold(uint64_t{load_be16(frame + field)} + (0xffffu - checksum_fold(end - l4_)));
  } else {
    pseudo_ = v4_ ? pseudo_sum_v4(static_cast<uint32_t>(key.src_lo), static_cast<uint32_t>(key.dst_lo), key.protocol, 0)
                  : pseudo_sum_v6(key.src_hi, key.src_lo, key.dst_hi, key.dst_lo, key.protocol, 0);
  }
  number_ = 0;
  return true;
}

uint32_t Segments::next(uint8_t* to) {
  constexpr uint8_t kFin = 0x01, kPush = 0x08, kCwr = 0x80;
  const uint32_t payload = std::min(left_bytes_, segment_bytes_), end = header_bytes_ + payload;
  std::memcpy(to, headers_.data(), header_bytes_);
  std::memcpy(to + header_bytes_, payload_, payload);
  if (v4_) {
    store_be16(to + l3_ + 2, static_cast<uint16_t>(end - l3_));
    store_be16(to + l3_ + 4, static_cast<uint16_t>(load_be16(to + l3_ + 4) + number_));
    store_be16(to + l3_ + 10, ipv4_header_checksum(to + l3_, (to[l3_] & 15u) * 4));
  } else {
    store_be16(to + l3_ + 4, static_cast<uint16_t>(end - l3_ - 40));
  }
  const uint32_t field = l4_ + (tcp_ ? 16 : 6);
  if (tcp_) {
    store_be32(to + l4_ + 4, load_be32(to + l4_ + 4) + number_ * segment_bytes_);
    // The end of the data is in the last segment, an answer to congestion in the first (RFC 3168 section 6.1.2).
    if (payload != left_bytes_) to[l4_ + 13] &= static_cast<uint8_t>(~(kFin | kPush));
    if (number_ != 0) to[l4_ + 13] &= static_cast<uint8_t>(~kCwr);
  } else {
    store_be16(to + l4_ + 4, static_cast<uint16_t>(end - l4_));
  }
  store_be16(to + field, checksum_fold(uint64_t{pseudo_} + (end - l4_)));
  complete_checksum(to, end, l4_, field - l4_);
  payload_ += payload;
  left_bytes_ -= payload;
  ++number_;
  return end;
}

}  // namespace sluice
