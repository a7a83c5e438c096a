// host only
#include "elements/register_all.h"

namespace sluice {

#define SLUICE_ELEMENT(folder) void register_##folder(Registry& registry);
#include "elements/elements.inc"
#undef SLUICE_ELEMENT

void register_elements(Registry& registry) {
#define SLUICE_ELEMENT(folder) register_##folder(registry);
#include "elements/elements.inc"
#undef SLUICE_ELEMENT
}

}  // namespace sluice
