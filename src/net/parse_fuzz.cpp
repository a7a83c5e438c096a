// Any bytes: the parser equals its oracle, never reads past the captured length, and what it accepts can be edited,
// cut into fragments, and answered with an ICMP error that parses in turn.
//
// Input: one byte (bits 0-5: bytes of the wire length past the capture; bit 6: mend the IPv4 checksum), then the frame.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "net/edit.h"
#include "net/icmp_error.h"
#include "net/ipv4_fragment.h"
#include "net/ipv4_options.h"
#include "net/parse.h"
#include "net/parse_oracle.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_answers(uint8_t* frame, uint32_t captured, const sluice::Headers& headers) {
  using namespace sluice;
  const uint32_t maximum = headers.key.family == 4 ? kIcmpv4ErrorMaxBytes : kIcmpv6ErrorMaxBytes;
  const std::unique_ptr<uint8_t[]> out(new uint8_t[maximum]);
  for (unsigned kind = 0; kind < kIcmpErrorCount; ++kind) {
    const auto error = static_cast<IcmpError>(kind);
    const uint32_t bytes = build_icmp_error(frame, captured, headers, error, 1400, IpAddress{1, 2, headers.key.family},
                                            out.get(), maximum);
    require((bytes != 0) == (icmp_error_suppressed(headers, error) == IcmpSuppressed::kNo));
    if (bytes == 0) continue;
    Headers answer;
    require(parse_ip(out.get(), bytes, bytes, 0, answer) == ParseStatus::kOk);
    require(answer.ip_bytes == bytes);
    require(icmp_error_suppressed(answer, error) == IcmpSuppressed::kAboutIcmpError);
  }
  uint8_t* ip = frame + headers.l3_offset;
  const uint8_t left = headers.key.family == 4 ? decrement_ttl_ipv4(ip) : decrement_hop_limit_ipv6(ip);
  require(left == (headers.ttl == 0 ? 0 : headers.ttl - 1));
  set_dscp(ip, headers.key.family, 46);
}

// Options and fragments of an IPv4 packet whose header is at `ip`.
void check_slow_path(const uint8_t* ip, uint32_t readable) {
  using namespace sluice;
  const uint32_t header = (ip[0] & 15u) * 4;
  const std::unique_ptr<uint8_t[]> own(new uint8_t[header]);
  std::memcpy(own.get(), ip, header);
  Ipv4OptionRules rules;
  rules.address = 0xc0000201;
  uint32_t pointer = 0;
  const OptionVerdict verdict = process_ipv4_options(own.get(), header, rules, 12345, pointer);
  require(ipv4_checksum_ok(own.get(), header));
  require((verdict == OptionVerdict::kBad) == (pointer != 0) && pointer < header);
  require(verdict == OptionVerdict::kForward || std::memcmp(own.get(), ip, header) == 0);
  for (const uint32_t mtu : {68u, 77u, 576u}) {
    Ipv4Fragments fragments;
    if (fragments.start(ip, readable, mtu, false) != FragmentVerdict::kCut) continue;
    uint32_t payload = 0;
    bool last = false;
    for (Ipv4Fragments::Piece piece; fragments.next(piece);) {
      require(!last && piece.from == payload && piece.bytes != 0 && piece.header_bytes + piece.bytes <= mtu);
      const std::unique_ptr<uint8_t[]> to(new uint8_t[piece.header_bytes]);
      fragments.write_header(piece, to.get());
      Headers h;
      require(parse_ip(to.get(), piece.header_bytes, piece.header_bytes + piece.bytes, 0, h) !=
              ParseStatus::kIpv4BadChecksum);
      payload += piece.bytes;
      last = piece.last;
    }
    require(last && payload == fragments.total_bytes() - fragments.first_header_bytes());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  if (size == 0 || size > 70000) return 0;
  const uint8_t control = data[0];
  const auto captured = static_cast<uint32_t>(size - 1);
  const uint32_t wire = captured + (control & 63);
  const std::unique_ptr<uint8_t[]> frame(new uint8_t[captured]);
  if (captured > 0) std::memcpy(frame.get(), data + 1, captured);
  if ((control & 64) != 0 && captured >= 34 && frame[12] == 8 && frame[13] == 0) {
    uint32_t header = (frame[14] & 15u) * 4;
    if (header < 20) header = 20;
    if (captured >= 14 + header) store_be16(frame.get() + 24, ipv4_header_checksum(frame.get() + 14, header));
  }
  Headers fast;
  Headers slow;
  for (const bool verify : {false, true}) {
    for (const uint32_t l3 : {0u, 14u, captured}) {
      require(parse_ip(frame.get(), captured, wire, l3, fast, verify) ==
              oracle::parse_ip(frame.get(), captured, wire, l3, slow, verify));
      require(oracle::same(fast, slow));
    }
    require(parse_ethernet(frame.get(), captured, wire, fast, verify) ==
            oracle::parse_ethernet(frame.get(), captured, wire, slow, verify));
    require(oracle::same(fast, slow));
  }
  if (parse_ethernet(frame.get(), captured, wire, fast) != ParseStatus::kOk) return 0;
  if (fast.key.family == 4) check_slow_path(frame.get() + fast.l3_offset, captured - fast.l3_offset);
  check_answers(frame.get(), captured, fast);
  // Edited in place, the packet is still right, and the edits are what changed.
  Headers edited;
  require(parse_ethernet(frame.get(), captured, wire, edited) == ParseStatus::kOk);
  require(edited.key.dscp == 46 && edited.ttl == (fast.ttl == 0 ? 0 : fast.ttl - 1));
  edited.key.dscp = fast.key.dscp;
  edited.ttl = fast.ttl;
  require(oracle::same(edited, fast));
  return 0;
}
