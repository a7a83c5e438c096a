// host only
#include "graph/element.h"

namespace sluice {

Diagnostic Element::diagnostic(std::string message) const {
  if (position.source) {
    // An anonymous element, "Class@N", stands in the text as its class.
    const std::string_view own = std::string_view(name).substr(name.rfind('/') + 1);
    const bool anonymous =
        own.size() > class_name.size() && own.starts_with(class_name) && own[class_name.size()] == '@';
    return position.source->diagnostic(position.offset, std::max<size_t>(1, (anonymous ? class_name : name).size()),
                                       std::move(message));
  }
  Diagnostic d;
  d.file = "configuration";
  d.message = name.empty() ? std::move(message) : name + ": " + message;
  return d;
}

}  // namespace sluice
