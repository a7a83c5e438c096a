// host only
#include "control/key_text.h"

#include <fmt/format.h>

#include <ctime>
#include <string_view>

#include "net/text.h"

namespace sluice {

std::string flags_text(uint16_t flags) {
  constexpr std::string_view kLetters = "FSRPAUEC";
  std::string text;
  for (size_t bit = 0; bit < kLetters.size(); ++bit) {
    if ((flags >> bit & 1) != 0) text += kLetters[bit];
  }
  return text.empty() ? "none" : text;
}
std::string protocol_text(uint8_t protocol) {
  switch (protocol) {
    case 1:
      return "icmp";
    case 6:
      return "tcp";
    case 17:
      return "udp";
    case 58:
      return "icmp6";
    default:
      return fmt::format("proto {}", protocol);
  }
}
std::string five_tuple(const FlowKey& k) {
  if (k.family == 0) return "-";
  const bool ports = (k.bits & FlowKey::kHasPorts) != 0;
  const auto end = [&](uint64_t hi, uint64_t lo, uint16_t port) {
    const std::string address = to_string(IpAddress{hi, lo, k.family});
    if (!ports) return address;
    return k.family == 6 ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
  };
  return fmt::format("{} {} > {}", protocol_text(k.protocol), end(k.src_hi, k.src_lo, k.src_port),
                     end(k.dst_hi, k.dst_lo, k.dst_port));
}
std::string key_text(const FlowKey& k) {
  const IpAddress src{k.src_hi, k.src_lo, k.family}, dst{k.dst_hi, k.dst_lo, k.family};
  std::string t = fmt::format("{} {} > {} {}", k.family == 6 ? "ip6" : "ip", to_string(src), to_string(dst),
                              protocol_text(k.protocol));
  if ((k.bits & FlowKey::kHasPorts) != 0) t += fmt::format(" {} > {}", k.src_port, k.dst_port);
  if (k.protocol == 6 && (k.bits & (FlowKey::kHasPorts | FlowKey::kNoFlags)) == FlowKey::kHasPorts)
    t += " flags " + flags_text(k.flags >> 8);
  if (k.icmp != 0) t += fmt::format(" {}", k.icmp >> 8);
  if (k.icmp != 0 && (k.bits & FlowKey::kNoFlags) == 0) t += fmt::format(" {}", k.icmp & 255);
  if (k.dscp != 0) t += fmt::format(" dscp {}", k.dscp);
  if ((k.bits & FlowKey::kFragment) != 0)
    t += (k.bits & FlowKey::kLaterFragment) != 0 ? " later fragment" : " first fragment";
  if ((k.bits & FlowKey::kAfterAh) != 0) t += " behind ah";
  if ((k.bits & FlowKey::kShortL4) != 0) t += " header cut short";
  return t;
}
std::string time_text(uint64_t ns) {
  const auto seconds = static_cast<time_t>(ns / 1'000'000'000);
  tm parts{};
  char text[32] = "";
  if (::gmtime_r(&seconds, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) == 0)
    return fmt::format("{} ns", ns);
  return fmt::format("{}.{:09}Z", text, ns % 1'000'000'000);
}

}  // namespace sluice
