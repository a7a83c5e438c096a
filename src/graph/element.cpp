// host only
#include "graph/element.h"

namespace sluice {

Diagnostic Element::diagnostic(std::string message) const {
  if (position.source)
    return position.source->diagnostic(position.offset, std::max<size_t>(1, name.size()), std::move(message));
  Diagnostic d;
  d.file = "configuration";
  d.message = name.empty() ? std::move(message) : name + ": " + message;
  return d;
}

}  // namespace sluice
