// host only
// The fields of IP summary dumps: a line a packet, a word a field. Source: the Click manual pages of ToIPSummaryDump
// and FromIPSummaryDump. IPv4 only; the fields here are those of headers, no payloads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/flow.h"

namespace sluice {

enum class SummaryField : uint8_t {
  kTimestamp,
  kSeconds,
  kSource,
  kDestination,
  kSourcePort,
  kDestinationPort,
  kProtocol,
  kLength,
  kHeaderLength,
  kId,
  kTtl,
  kTos,
  kTcpHeaderLength,
  kTcpFlags,
  kTcpSequence,
  kTcpAcknowledgement,
  kTcpWindow,
  kTcpUrgent,
  kTcpOptions,
  kLink,  // the paint
  kCount,
};

// By any of its names; none: there is no such field here.
std::optional<SummaryField> summary_field(std::string_view name);
// The name that is written.
std::string_view summary_name(SummaryField field);
std::vector<std::string> summary_names();

// What a line says of one packet; values that it leaves out are defaults.
struct SummaryPacket {
  uint64_t timestamp_ns = 0;
  uint32_t source = 0, destination = 0;
  uint16_t source_port = 0, destination_port = 0;
  uint8_t protocol = 6;
  uint32_t length = 0;  // of the packet on the wire; 0: what its headers need
  uint8_t header_length = 20;
  uint16_t id = 0;
  uint8_t ttl = 100, tos = 0;
  uint8_t tcp_header_length = 20;
  uint8_t tcp_flags = 0x10;
  uint32_t tcp_sequence = 0, tcp_acknowledgement = 0;
  uint16_t tcp_window = 0, tcp_urgent = 0;
  std::vector<uint8_t> tcp_options;
  uint8_t link = 0;

  // Reads one word; '-' leaves the default. What is wrong with it; empty: nothing.
  std::string set(SummaryField field, std::string_view word);
  // The headers as bytes, with a right header checksum.
  std::vector<uint8_t> headers() const;
  uint32_t wire_length(size_t headers) const;
};

// One field of a packet that starts with its IPv4 header; nothing when the packet does not reach so far.
std::optional<std::string> summary_of(const FlowPacket& packet, SummaryField field);

}  // namespace sluice
