// host only
// What a running process shows by HTTP: metrics, whether it is well, requests that change nothing as JSON, a page.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "control/http_request.h"
#include "control/json.h"

namespace sluice {

// One thread asks. docs/observe.md lists the paths.
class Windows {
 public:
  // The answer to a request of the control protocol, as a line; nothing: what it would be made of is in other hands for
  // longer than who asks by HTTP waits.
  using Ask = std::function<std::optional<std::string>(std::string_view line)>;
  explicit Windows(Ask ask) : ask_(std::move(ask)) {}

  HttpAnswer answer(const HttpRequest& request);

 private:
  struct Said {
    uint64_t at_ns = 0;
    bool ok = false;
    nlohmann::ordered_json what;  // the result or the error
    uint64_t age_seconds() const;
  };
  // The last answer, where it is of this moment, or where there is none now; nullptr: there is none at all.
  const Said* ask(const nlohmann::ordered_json& request);
  HttpAnswer health();
  HttpAnswer metrics();
  HttpAnswer api(const std::string& name, const HttpRequest& request);

  Ask ask_;
  std::map<std::string, Said, std::less<>> said_;  // by request
};

// A report of a running process (`show report`, with buckets) in the text format of Prometheus.
std::string prometheus_text(const nlohmann::ordered_json& report);

// The live page, whole.
extern const std::string_view kLivePage;

}  // namespace sluice
