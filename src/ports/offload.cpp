// host only
#include "ports/offload.h"

#include "net/bytes.h"
#include "net/checksum.h"
#include "net/parse.h"

namespace sluice {

bool complete_checksum(uint8_t* frame, uint32_t bytes, uint32_t start, uint32_t offset) {
  if (start > bytes || offset > bytes - start || bytes - start - offset < 2) return false;
  // A computed 0 is written as 0xffff, which is right for UDP and the same number for all others.
  uint16_t checksum = checksum_finish(checksum_add(frame + start, bytes - start));
  if (checksum == 0) checksum = 0xffff;
  store_be16(frame + start + offset, checksum);
  return true;
}

void complete_checksum_if_partial(uint8_t* frame, uint32_t bytes) {
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
