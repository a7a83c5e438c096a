// Any bytes as a question of HTTP: parsed or refused, never more than it is.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "control/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t head = sluice::http_head(text);
  if (head > text.size()) std::abort();
  const sluice::HttpRequest request = sluice::parse_http(text.substr(0, head == 0 ? text.size() : head));
  if (request.status == 200 && (request.path.empty() || request.path.size() > text.size())) std::abort();
  (void)sluice::token_of(request.authorization);
  (void)sluice::names_this_machine(request.host);
  return 0;
}
