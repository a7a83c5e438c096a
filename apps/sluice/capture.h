// Packets of a running process, written with their fates. host only
#pragma once

#include <string>

#include "app.h"

namespace sluice::app {

// "show capture" for people.
std::string capture_text(const Json& capture);

}  // namespace sluice::app
