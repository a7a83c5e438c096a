// host only
#include "control/windows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "control/request.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// Many who look at once are told the same: each look asks every worker for its counters.
constexpr uint64_t kFreshNs = 200'000'000;
constexpr size_t kMostSaid = 64;

// What may be asked by /api/v1/NAME: the command, and the fields that it takes from the query.
struct Path {
  std::string_view name, command;
  std::vector<std::string_view> texts, numbers, flags;
};
const std::vector<Path>& paths() {
  static const std::vector<Path> all = {
      {"report", "show report", {}, {}, {}},
      {"runtime", "show runtime", {}, {}, {}},
      {"drops", "show drops", {}, {}, {}},
      {"ports", "show ports", {}, {}, {}},
      {"tables", "show tables", {}, {}, {}},
      {"qos", "show qos", {}, {}, {}},
      {"graph", "graph show", {}, {}, {}},
      {"trace", "show trace", {}, {"count"}, {}},
      {"log", "show log", {}, {"after", "count"}, {}},
      {"rules", "show rules", {"table", "order"}, {"from", "count"}, {"hits"}},
      {"routes", "show routes", {"for", "table"}, {"from", "count"}, {}},
      {"adjacencies", "show adjacencies", {"table"}, {"from", "count"}, {}},
  };
  return all;
}

HttpAnswer json_answer(int status, const Json& json) {
  HttpAnswer answer;
  answer.status = status;
  answer.type = "application/json";
  answer.body = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return answer;
}
HttpAnswer error_answer(int status, const std::string& message, const std::string& hint = {}) {
  Json error{{"message", message}};
  if (!hint.empty()) error["hint"] = hint;
  return json_answer(status, {{"error", error}});
}

std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// Lines of one metric stand together.
class Metrics {
 public:
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP sluice_{} {}\n# TYPE sluice_{} {}\n", name, help, name, type);
  }
  void add(const Json& value, const std::vector<std::pair<const char*, std::string>>& labels = {}) {
    std::vector<std::string> parts;
    for (const auto& [key, text] : labels) parts.push_back(fmt::format("{}=\"{}\"", key, label(text)));
    text_ += fmt::format("sluice_{}", name_);
    if (!parts.empty()) text_ += fmt::format("{{{}}}", fmt::join(parts, ","));
    text_ += " " + (value.is_boolean() ? std::string(value.get<bool>() ? "1" : "0") : value.dump()) + "\n";
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  const char* name_ = "";
};

}  // namespace

std::string prometheus_text(const Json& r) {
  Metrics m;
  const auto word = [](const Json& json, const char* field) { return json.at(field).get<std::string>(); };
  m.begin("info", "gauge", "What runs, in its labels.");
  m.add(1,
        {{"version", word(r, "version")}, {"configuration", word(r, "configuration")}, {"device", word(r, "device")}});
  m.begin("workers", "gauge", "Threads that process packets.");
  m.add(r.at("workers"));
  m.begin("generation", "gauge", "Generation of the tables.");
  m.add(r.at("generation"));
  for (const auto& [name, field, help] :
       {std::tuple{"packets_in_total", "packets_in", "Packets that came in."},
        {"bytes_in_total", "bytes_in", "Bytes that came in."},
        {"packets_out_total", "packets_out", "Packets that left."},
        {"bytes_out_total", "bytes_out", "Bytes that left."},
        {"packets_made_total", "generated", "Packets that were made here, such as ICMP errors."},
        {"packets_dropped_total", "dropped", "Packets that were dropped."}}) {
    m.begin(name, "counter", help);
    m.add(r.at(field));
  }
  if (r.contains("queued")) {
    m.begin("packets_queued", "gauge", "Packets that queues hold.");
    m.add(r.at("queued"));
  }
  const Json& elements = r.at("elements");
  m.begin("element_packets_total", "counter", "Packets by element.");
  for (const Json& e : elements) m.add(e.at("packets"), {{"element", word(e, "name")}, {"class", word(e, "class")}});
  m.begin("element_bytes_total", "counter", "Bytes by element.");
  for (const Json& e : elements) m.add(e.at("bytes"), {{"element", word(e, "name")}, {"class", word(e, "class")}});
  m.begin("drops_total", "counter", "Dropped packets by element and reason.");
  for (const Json& e : elements) {
    for (const auto& [reason, n] : e.at("drops").items()) m.add(n, {{"element", word(e, "name")}, {"reason", reason}});
  }
  for (const auto& [name, field, help] :
       {std::tuple{"latency_seconds", "latency_ns", "Latency by quantile, since the run began."},
        {"wait_seconds", "wait_ns", "Time of batches before a worker, by quantile."},
        {"through_seconds", "through_ns", "Time of packets from coming in to leaving, by quantile."}}) {
    if (!r.contains(field)) continue;
    m.begin(name, "summary", help);
    for (const auto& [key, quantile] : {std::pair{"p50", "0.5"}, {"p99", "0.99"}, {"p999", "0.999"}, {"max", "1"}}) {
      if (r.at(field).contains(key)) m.add(r.at(field).at(key).get<double>() / 1e9, {{"quantile", quantile}});
    }
  }
  m.begin("table_entries", "gauge", "Rules, routes or next hops of a table.");
  for (const Json& t : r.at("tables")) m.add(t.at("entries"), {{"table", word(t, "name")}, {"kind", word(t, "kind")}});
  m.begin("table_bytes", "gauge", "Memory of a table.");
  for (const Json& t : r.at("tables")) m.add(t.at("bytes"), {{"table", word(t, "name")}, {"kind", word(t, "kind")}});
  m.begin("table_generation", "gauge", "Generation in which a table changed last; 0: as it was loaded.");
  for (const Json& t : r.at("tables"))
    m.add(t.at("changed_in_generation"), {{"table", word(t, "name")}, {"kind", word(t, "kind")}});
  const Json& ports = r.at("interfaces");
  if (ports.empty()) return m.take();
  m.begin("port_up", "gauge", "1: the interface is up and has a carrier.");
  for (const Json& p : ports)
    m.add(word(p, "link") == "up", {{"port", word(p, "name")}, {"method", word(p, "method")}});
  for (const auto& [side, fields] :
       {std::pair{"rx", std::vector<const char*>{"packets", "bytes", "missed", "too_long", "invalid"}},
        {"tx", {"packets", "bytes", "full", "failed"}}}) {
    for (const char* field : fields) {
      const std::string name = fmt::format("port_{}_{}_total", side, field);
      m.begin(name.c_str(), "counter", "By port and queue.");
      for (const Json& p : ports) {
        size_t queue = 0;
        for (const Json& q : p.at(side))
          m.add(q.at(field), {{"port", word(p, "name")}, {"queue", std::to_string(queue++)}});
      }
    }
  }
  return m.take();
}

uint64_t Windows::Said::age_seconds() const {
  return (now_ns() - at_ns) / 1'000'000'000;
}

const Windows::Said* Windows::ask(const Json& request) {
  const std::string line = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  auto it = said_.find(line);
  if (it != said_.end() && now_ns() - it->second.at_ns < kFreshNs) return &it->second;
  const auto text = ask_(line);
  if (!text) return it == said_.end() ? nullptr : &it->second;
  Said said;
  Json answer = Json::parse(*text, nullptr, false);
  said.ok = answer.value("ok", false);
  said.what = std::move(answer[said.ok ? "result" : "error"]);
  said.at_ns = now_ns();
  // Strangers choose what is asked for.
  if (it == said_.end() && said_.size() >= kMostSaid) {
    said_.erase(std::ranges::min_element(said_, {}, [](const auto& one) { return one.second.at_ns; }));
  }
  return &(said_[line] = std::move(said));
}

HttpAnswer Windows::answer(const HttpRequest& request) {
  if (request.path == "/healthz") return health();
  if (request.path == "/metrics") return metrics();
  if (request.path == "/") {
    HttpAnswer page;
    page.type = "text/html; charset=utf-8";
    page.body = kLivePage;
    return page;
  }
  constexpr std::string_view kApi = "/api/v1";
  if (request.path == kApi || request.path.starts_with("/api/v1/"))
    return api(request.path.substr(std::min(kApi.size() + 1, request.path.size())), request);
  return error_answer(404, fmt::format("there is nothing at {}", request.path),
                      "/ /metrics /healthz /api/v1/report; /api/v1 lists the others");
}

HttpAnswer Windows::health() {
  const Said* said = ask({{"v", kControlVersion}, {"command", "show report"}});
  HttpAnswer answer;
  if (said == nullptr) {
    // Whoever holds the tables for so long: packets flow meanwhile.
    answer.body = "ok: a change is being made\n";
  } else if (said->ok) {
    answer.body = "ok\n";
  } else {
    answer.status = 503;
    answer.body = said->what.value("message", "") + "\n";
  }
  return answer;
}

HttpAnswer Windows::metrics() {
  const Said* said = ask({{"v", kControlVersion}, {"command", "show report"}});
  HttpAnswer answer;
  answer.type = "text/plain; version=0.0.4; charset=utf-8";
  if (said != nullptr && said->ok) {
    answer.body = prometheus_text(said->what);
    answer.age_seconds = said->age_seconds();
    return answer;
  }
  answer.status = 503;
  answer.body = said == nullptr ? "a change is being made\n" : said->what.value("message", "") + "\n";
  return answer;
}

HttpAnswer Windows::api(const std::string& name, const HttpRequest& request) {
  std::vector<std::string> names;
  for (const Path& path : paths()) {
    names.emplace_back(path.name);
    if (path.name != name) continue;
    Json body{{"v", kControlVersion}, {"command", path.command}};
    for (const auto& [key, value] : request.query) {
      const auto among = [&wanted = key](const std::vector<std::string_view>& fields) {
        return std::ranges::find(fields, wanted) != fields.end();
      };
      if (among(path.texts)) {
        body[key] = value;
      } else if (among(path.flags) && (value == "true" || value == "false")) {
        body[key] = value == "true";
      } else if (among(path.numbers)) {
        uint64_t number = 0;
        const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
        if (read.ec != std::errc() || read.ptr != value.data() + value.size())
          return error_answer(400, fmt::format("{}={} is not a number", key, value));
        body[key] = number;
      } else {
        return error_answer(400, fmt::format("{}={} is not for /api/v1/{}", key, value, name));
      }
    }
    const Said* said = ask(body);
    if (said == nullptr) return error_answer(503, "a change is being made", "try again");
    if (!said->ok) return json_answer(400, {{"error", said->what}});
    HttpAnswer answer = json_answer(200, said->what);
    answer.age_seconds = said->age_seconds();
    return answer;
  }
  if (name.empty()) return json_answer(200, {{"version", kControlVersion}, {"paths", names}});
  const std::string near = closest_match(name, names);
  return error_answer(
      404, fmt::format("/api/v1/{} is nothing", name),
      near.empty() ? fmt::format("one of {}", fmt::join(names, ", ")) : fmt::format("did you mean /api/v1/{}?", near));
}

}  // namespace sluice
