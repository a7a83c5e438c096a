// Any line as a request to a running process: one answer of one line, of its form, and what was no request changed
// nothing.
#include <cstdlib>
#include <cstring>

#include "control/live_fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  FuzzedRuntime live;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const std::string before = live.list();
  const std::string said = live.control->answer(line);
  if (said.find('\n') != std::string::npos) std::abort();
  const auto answer = nlohmann::ordered_json::parse(said, nullptr, false);
  if (!answer.is_object() || answer["v"] != 1 || !answer["ok"].is_boolean()) std::abort();
  const bool ok = answer["ok"].get<bool>();
  if (ok ? !answer["result"].is_object() : answer["error"]["message"].get<std::string>().empty()) std::abort();
  const bool changed = live.runtime->publisher().generation() != 1;
  if (changed && !ok) std::abort();
  if (!changed && live.list() != before) std::abort();
  return 0;
}
