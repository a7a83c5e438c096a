// What a drop reason says of the packet and of this router: whether somebody has to look.
#pragma once

#include "batch/drop_reason.h"

namespace sluice {

enum class DropKind : uint8_t {
  kPolicy,     // rules, routes and rates ask for the drop
  kMalformed,  // the packet breaks its protocol
  kLost,       // the packet was to be forwarded: no room, no neighbour, no device
};

DropKind kind_of(DropReason reason);
// "policy", "malformed" or "lost".
const char* to_string(DropKind kind);

}  // namespace sluice
