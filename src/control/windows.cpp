// host only
#include "control/windows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "control/command.h"
#include "control/request.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// Many who look at once are told the same: each look asks every worker for its counters.
constexpr uint64_t kFreshNs = 200'000'000;
constexpr size_t kMostSaid = 64;
constexpr size_t kTopRules = 20;  // of each access list, in /metrics

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
  using Labels = std::vector<std::pair<const char*, std::string>>;

  void begin(std::string name, const char* type, const char* help) {
    name_ = std::move(name);
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
  }
  void add(const Json& value, const Labels& labels = {}, const char* suffix = "") {
    std::vector<std::string> parts;
    for (const auto& [key, text] : labels) parts.push_back(fmt::format("{}=\"{}\"", key, label(text)));
    text_ += name_ + suffix;
    if (!parts.empty()) text_ += fmt::format("{{{}}}", fmt::join(parts, ","));
    text_ += " " + (value.is_boolean() ? std::string(value.get<bool>() ? "1" : "0") : value.dump()) + "\n";
  }
  void one(std::string name, const char* type, const char* help, const Json& value, const Labels& labels = {}) {
    begin(std::move(name), type, help);
    add(value, labels);
  }
  // By what buckets_json gives, in seconds.
  void histogram(std::string name, const char* help, const Json& times) {
    begin(std::move(name), "histogram", help);
    for (const Json& bucket : times.at("buckets"))
      add(bucket.at(1), {{"le", Json(seconds(bucket.at(0))).dump()}}, "_bucket");
    add(times.at("count"), {{"le", "+Inf"}}, "_bucket");
    add(seconds(times.at("sum")), {}, "_sum");
    add(times.at("count"), {}, "_count");
  }
  std::string take() { return std::move(text_); }

 private:
  static double seconds(const Json& ns) { return ns.get<double>() / 1e9; }
  std::string text_, name_;
};

std::string word(const Json& json, const char* field) {
  return json.at(field).get<std::string>();
}

void add_process(Metrics& m, const Json& p) {
  m.one("process_start_time_seconds", "gauge", "Start of the process, in Unix time.", p.at("start_unix_seconds"));
  m.one("process_cpu_seconds_total", "counter", "User and system CPU time of the process.", p.at("cpu_seconds"));
  for (const auto& [name, field, help] :
       {std::tuple{"process_resident_memory_bytes", "resident_bytes", "Resident memory of the process."},
        {"process_virtual_memory_bytes", "virtual_bytes", "Virtual memory of the process."},
        {"process_open_fds", "open_files", "Open file descriptors of the process."},
        {"process_max_fds", "open_files_limit", "Limit of open file descriptors."}}) {
    if (p.at(field) != 0) m.one(name, "gauge", help, p.at(field));
  }
}

// A line of a list that stands for several rules is one time series.
void add_rules(Metrics& m, const Json& rules) {
  using Key = std::array<std::string, 4>;
  std::map<Key, std::pair<uint64_t, uint64_t>> sums;
  for (const Json& r : rules) {
    const std::string place = r.contains("file") ? fmt::format("{}:{}", word(r, "file"), r.at("line").get<uint64_t>())
                                                 : std::to_string(r.at("rule").get<uint64_t>());
    auto& [packets, bytes] = sums[{word(r, "table"), place, word(r, "action"), word(r, "text")}];
    packets += r.at("packets").get<uint64_t>();
    bytes += r.at("bytes").get<uint64_t>();
  }
  const auto labels = [](const Key& key) {
    return Metrics::Labels{{"table", key[0]}, {"place", key[1]}, {"action", key[2]}, {"rule", key[3]}};
  };
  m.begin("sluice_rule_packets_total", "counter", "Packets by access-list rule, of the rules with most packets.");
  for (const auto& [key, sum] : sums) m.add(sum.first, labels(key));
  m.begin("sluice_rule_bytes_total", "counter", "Bytes by access-list rule, of the rules with most packets.");
  for (const auto& [key, sum] : sums) m.add(sum.second, labels(key));
}

void add_ports(Metrics& m, const Json& ports) {
  m.begin("sluice_port_up", "gauge", "1: the interface is up and has a carrier.");
  for (const Json& p : ports)
    m.add(word(p, "link") == "up", {{"port", word(p, "name")}, {"method", word(p, "method")}});
  for (const auto& [side, field, help] : {std::tuple{"rx", "packets", "Packets received, by port and queue."},
                                          {"rx", "bytes", "Bytes received, by port and queue."},
                                          {"rx", "missed", "Packets lost as RX rings were full."},
                                          {"rx", "too_long", "Packets lost as they were longer than a frame buffer."},
                                          {"rx", "invalid", "Packets lost as the driver refused them."},
                                          {"tx", "packets", "Packets sent, by port and queue."},
                                          {"tx", "bytes", "Bytes sent, by port and queue."},
                                          {"tx", "full", "Packets lost as TX rings were full."},
                                          {"tx", "failed", "Packets lost as the driver refused to send them."}}) {
    m.begin(fmt::format("sluice_port_{}_{}_total", side, field), "counter", help);
    for (const Json& p : ports) {
      size_t queue = 0;
      for (const Json& q : p.at(side))
        m.add(q.at(field), {{"port", word(p, "name")}, {"queue", std::to_string(queue++)}});
    }
  }
}

}  // namespace

std::string prometheus_text(const Json& r) {
  Metrics m;
  m.one("sluice_build_info", "gauge", "Version and source revision of the program, in labels.", 1,
        {{"version", word(r, "version")}, {"revision", word(r, "revision")}});
  m.one("sluice_info", "gauge", "Configuration and device of the run, in labels.", 1,
        {{"configuration", word(r, "configuration")}, {"device", word(r, "device")}});
  if (r.contains("process")) add_process(m, r.at("process"));
  m.one("sluice_workers", "gauge", "Threads that process packets.", r.at("workers"));
  m.one("sluice_generation", "gauge", "Generation of the tables.", r.at("generation"));
  for (const auto& [name, field, help] :
       {std::tuple{"sluice_packets_in_total", "packets_in", "Packets that came in."},
        {"sluice_bytes_in_total", "bytes_in", "Bytes that came in."},
        {"sluice_packets_out_total", "packets_out", "Packets that left."},
        {"sluice_bytes_out_total", "bytes_out", "Bytes that left."},
        {"sluice_packets_generated_total", "generated", "Packets that this process generated, such as ICMP errors."},
        {"sluice_packets_dropped_total", "dropped", "Packets that were dropped."}}) {
    m.one(name, "counter", help, r.at(field));
  }
  if (r.contains("queued")) m.one("sluice_packets_queued", "gauge", "Packets that queues hold.", r.at("queued"));
  const Json& elements = r.at("elements");
  for (const auto& [name, field, help] :
       {std::tuple{"sluice_element_packets_total", "packets", "Packets that reached an element."},
        {"sluice_element_bytes_total", "bytes", "Bytes that reached an element."}}) {
    m.begin(name, "counter", help);
    for (const Json& e : elements) m.add(e.at(field), {{"element", word(e, "name")}, {"class", word(e, "class")}});
  }
  m.begin("sluice_drops_total", "counter",
          "Dropped packets by element, reason and kind: policy, malformed (the packet) or lost.");
  const Json& kinds = r.at("drop_kinds");
  for (const Json& e : elements) {
    for (const auto& [reason, n] : e.at("drops").items())
      m.add(n, {{"element", word(e, "name")}, {"reason", reason}, {"kind", kinds.value(reason, "policy")}});
  }
  m.histogram("sluice_latency_seconds", "Time from reading a packet to the end of its processing.", r.at("latency_ns"));
  m.histogram("sluice_wait_seconds", "Time that a batch waits for a worker, of one batch in eight.", r.at("wait_ns"));
  m.histogram("sluice_through_seconds", "Time from reading a packet to writing it.", r.at("through_ns"));
  for (const auto& [name, field, help] :
       {std::tuple{"sluice_table_entries", "entries", "Rules, routes or next hops of a table."},
        {"sluice_table_bytes", "bytes", "Memory of a table."},
        {"sluice_table_generation", "changed_in_generation",
         "Generation in which a table changed last; 0: as it was loaded."}}) {
    m.begin(name, "gauge", help);
    for (const Json& t : r.at("tables")) m.add(t.at(field), {{"table", word(t, "name")}, {"kind", word(t, "kind")}});
  }
  if (r.contains("rules") && !r.at("rules").empty()) add_rules(m, r.at("rules"));
  if (!r.at("interfaces").empty()) add_ports(m, r.at("interfaces"));
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
  const Said* said = ask({{"v", kControlVersion}, {"command", "show report"}, {"rules", kTopRules}, {"buckets", true}});
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

namespace {

// The request of a query for this row; else the answer that says what is wrong.
std::optional<HttpAnswer> read_query(const CommandRow& row, const HttpRequest& request, Json& body) {
  using Type = CommandField::Type;
  body = {{"v", kControlVersion}, {"command", row.name}};
  for (const auto& [key, value] : request.query) {
    const auto field =
        std::ranges::find_if(row.fields, [&](const CommandField& f) { return f.name == key && !f.is_local; });
    const Type type = field == row.fields.end() ? Type::kPreset : field->type;
    if (type == Type::kText) {
      body[key] = value;
    } else if (type == Type::kFlag && (value == "true" || value == "false")) {
      body[key] = value == "true";
    } else if (type == Type::kNumber) {
      uint64_t number = 0;
      const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
      if (read.ec != std::errc() || read.ptr != value.data() + value.size())
        return error_answer(400, fmt::format("{}={} is not a number", key, value));
      body[key] = number;
    } else {
      return error_answer(400, fmt::format("{}={} is not for /api/v1/{}", key, value, row.path));
    }
  }
  return std::nullopt;
}

}  // namespace

HttpAnswer Windows::api(const std::string& name, const HttpRequest& request) {
  std::vector<std::string> names;
  for (const CommandRow& row : command_rows()) {
    if (row.path.empty()) continue;
    names.push_back(row.path);
    if (row.path != name) continue;
    Json body;
    if (auto wrong = read_query(row, request, body)) return std::move(*wrong);
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
