// Any line as the answer of another process: a client reads it or says that it is none, and nothing of it reaches the
// terminal that a terminal acts on.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "control/report.h"
#include "control/request.h"
#include "control/route_report.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  bool theirs = false;
  auto answer = read_answer(std::string_view(reinterpret_cast<const char*>(data), size), &theirs);
  std::string shown;
  if (answer) {
    try {
      shown = route_explanation_text(*answer);
    } catch (const nlohmann::json::exception&) {
      // The command ends with an error: the field is not there, or is something else.
    }
  } else {
    if (answer.error().message.empty()) std::abort();
    shown = to_string(answer.error());
  }
  if (printable(shown) != shown) std::abort();
  return 0;
}
