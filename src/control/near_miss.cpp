// host only
#include "control/near_miss.h"

#include <fmt/format.h>

#include "control/key_text.h"
#include "net/text.h"

namespace sluice {
namespace {

std::string range_text(const char* what, uint16_t port, uint16_t low, uint16_t high) {
  return low == high ? fmt::format("{} {} is not {}", what, port, low)
                     : fmt::format("{} {} is not in {}-{}", what, port, low, high);
}

}  // namespace

std::vector<std::string> misfits(const AclMatchRule& r, const FlowKey& k) {
  std::vector<std::string> no;
  auto length = [&](uint8_t n) { return k.family == 4 && n >= 96 ? n - 96 : n; };
  if (r.family != 0 && r.family != k.family)
    no.push_back(fmt::format("family: the rule is for IPv{}", r.family));
  else {
    if (!prefix_agrees(r.src_hi ^ k.src_hi, r.src_lo ^ k.src_lo, r.src_length))
      no.push_back(fmt::format("source {} is not in {}/{}", to_string(IpAddress{k.src_hi, k.src_lo, k.family}),
                               to_string(IpAddress{r.src_hi, r.src_lo, k.family}), length(r.src_length)));
    if (!prefix_agrees(r.dst_hi ^ k.dst_hi, r.dst_lo ^ k.dst_lo, r.dst_length))
      no.push_back(fmt::format("destination {} is not in {}/{}", to_string(IpAddress{k.dst_hi, k.dst_lo, k.family}),
                               to_string(IpAddress{r.dst_hi, r.dst_lo, k.family}), length(r.dst_length)));
  }
  if (((k.protocol ^ r.protocol) & r.protocol_mask) != 0)
    no.push_back(fmt::format("{} is not {}", protocol_text(k.protocol), protocol_text(r.protocol)));
  if (k.src_port < r.src_port_low || k.src_port > r.src_port_high)
    no.push_back(range_text("source port", k.src_port, r.src_port_low, r.src_port_high));
  if (k.dst_port < r.dst_port_low || k.dst_port > r.dst_port_high)
    no.push_back(range_text("destination port", k.dst_port, r.dst_port_low, r.dst_port_high));
  if (((k.flags ^ r.flags) & r.flags_mask & 0xff) != 0)  // in ClassBench rules alone; no packet has them
    no.push_back(fmt::format("no packet can have the flags 0x{:04x}/0x{:04x}", r.flags, r.flags_mask));
  else if (((k.flags ^ r.flags) & r.flags_mask) != 0)
    no.push_back(fmt::format("of the flags {} it needs {}, and the packet has {}", flags_text(r.flags_mask >> 8),
                             flags_text((r.flags & r.flags_mask) >> 8), flags_text((k.flags & r.flags_mask) >> 8)));
  if (((k.dscp ^ r.dscp) & r.dscp_mask) != 0) no.push_back(fmt::format("DSCP {} is not {}", k.dscp, r.dscp));
  const unsigned bits = (k.bits ^ r.bits) & r.bits_mask;
  const unsigned absent = bits & k.bits & absence_bits(r.flags_mask, r.icmp_mask);
  if (absent != 0)
    no.push_back(r.icmp_mask != 0 ? "the packet ends before the ICMP type or code"
                                  : "the packet ends before the TCP flags, or is a later fragment");
  if ((bits & ~absent) != 0) no.push_back("fragment or port presence differs");
  if (((k.icmp ^ r.icmp) & r.icmp_mask) != 0)
    no.push_back(fmt::format("ICMP {} {} is not {} {}", k.icmp >> 8, k.icmp & 255, r.icmp >> 8, r.icmp & 255));
  return no;
}

}  // namespace sluice
