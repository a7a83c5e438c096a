// For tests of translation: packets as text.
#pragma once

#include "flows/nat_rules.h"
#include "net/text.h"

namespace sluice::testing {

inline NatTuple nat_tuple(const char* source, uint16_t sport, const char* destination, uint16_t dport,
                          uint8_t protocol) {
  return {*parse_ipv4(source), *parse_ipv4(destination), sport, dport, protocol};
}

}  // namespace sluice::testing
