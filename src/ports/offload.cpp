// host only
#include "ports/offload.h"

#include "net/bytes.h"
#include "net/checksum.h"
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

}  // namespace sluice
