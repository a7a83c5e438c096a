// sluice check --shadowed: rules that can go.
// host only
#pragma once

#include <string>

#include "inputs.h"

namespace sluice::app {

// `unmatched` is "deny", "permit" or empty (unknown): what is done with a packet that no rule matches. Puts the report
// into json["shadowed"] and returns it as text.
std::string report_shadowed(const LoadedAcl& acl, const std::string& unmatched, Json& json);

}  // namespace sluice::app
