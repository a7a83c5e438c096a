// host only
// All element classes of the product.
#pragma once

#include "graph/router.h"

namespace sluice {

void register_elements(Registry& registry);

}  // namespace sluice
