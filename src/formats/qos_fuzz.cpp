// Any text: no crash, and a model that is accepted is written and read back as the same.
#include <cstdlib>

#include "formats/qos_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto model = parse_qos({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!model) {
    if (model.error().diagnostics.empty()) std::abort();
    (void)to_string(model.error());
    return 0;
  }
  if (model->classes.empty() || model->classes.size() > kMaxQosClasses) std::abort();
  for (unsigned dscp = 0; dscp < 64; ++dscp) {
    if (model->map.class_of(dscp) >= model->classes.size()) std::abort();
  }
  const std::string text = format_qos(*model);
  const auto again = parse_qos(text, "again");
  if (!again || format_qos(*again) != text) std::abort();
  return 0;
}
