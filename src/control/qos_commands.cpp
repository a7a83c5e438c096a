// host only
// Classes of service: `show qos`, `qos set`, `qos load`.
#include <fmt/format.h>

#include <utility>

#include "base/cancel.h"
#include "control/answer_text.h"
#include "control/command.h"
#include "control/control.h"
#include "control/report.h"
#include "control/sent_file.h"
#include "control/table_text.h"
#include "formats/qos_text.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// Unless its client has gone: before it waits for packets, and after.
Result<void> change_classes(Engine& runtime, const std::function<Result<void>(EgressQos&)>& change) {
  if (changes_are_unwanted()) return cancelled_error();
  return runtime.change_qos([&change](EgressQos& qos) -> Result<void> {
    if (changes_are_unwanted()) return cancelled_error();
    return change(qos);
  });
}

Result<Json> show_qos(Control& c, Asked&) {
  RunReport report;
  if (auto ok = c.engine.look(report); !ok) return std::move(ok).error();
  if (!report.has_classes) return Error("this run has no classes of service", "start it with --qos FILE");
  return Json{{"ports", sluice::to_json(report.qos)}};
}

Result<Json> set_qos(Control& c, Asked& asked) {
  const std::string &qos_class = asked.text("class"), &rate = asked.text("rate");
  const int64_t port = asked.has("port") ? static_cast<int64_t>(asked.number("port")) : -1;
  uint64_t bps = 0;
  if (rate != "unlimited" && (!parse_rate_bps(rate, &bps) || bps < DepartureRate::kLeastBps))
    return Error(fmt::format("'{}' is not a rate", rate), "such as 20Mbps, from 1kbps to 400Gbps; or unlimited");
  auto done = change_classes(c.engine, [qos_class, bps, port](EgressQos& qos) -> Result<void> {
    if (qos_class != "port") return qos.set_rate(qos_class, bps, port);
    qos.set_port_rate(bps, port);
    return {};
  });
  if (!done) return std::move(done).error();
  c.classes_changed = true;
  Json json{{"class", qos_class}, {"rate_bps", bps}};
  if (port >= 0) json["port"] = port;
  return json;
}

Result<Json> load_qos(Control& c, Asked& asked) {
  auto read = read_sent_file(asked.value("file"));
  if (!read) return std::move(read).error();
  SentFile& file = *read;
  auto text = file.input.table();
  if (!text) return std::move(text).error();
  auto model = parse_qos(*text, file.name);
  if (!model) return std::move(model).error();
  if (auto ok = EgressQos::check(*model, c.engine.at_sinks()); !ok) return std::move(ok).error();
  auto done = change_classes(c.engine, [model = *model](EgressQos& qos) -> Result<void> {
    qos.load(model);
    return {};
  });
  if (!done) return std::move(done).error();
  c.classes.text = std::move(*text);
  c.classes_changed = true;
  return Json{{"file", file.name}, {"classes", model->classes.size()}};
}

std::string bps_text(uint64_t bps) {
  return bps == 0 ? "-" : human_rate(static_cast<double>(bps), "bit");
}

std::string set_text(const Json& r, Rates*) {
  const uint64_t bps = count_of(r, "rate_bps");
  const std::string name = word_of(r, "class"), rate = bps == 0 ? "unlimited" : bps_text(bps);
  const std::string port = r.contains("port") ? fmt::format("port {}", count_of(r, "port")) : std::string();
  if (name == "port") return fmt::format("{}: {}\n", port.empty() ? "each port" : port, rate);
  return fmt::format("class {}: {}{}\n", name, rate, port.empty() ? "" : " at " + port);
}

}  // namespace

Result<std::string> classes_text(Control& c) {
  QosModel model;
  bool one_port = false;
  auto done = c.engine.change_qos([&](EgressQos& qos) -> Result<void> {
    model = qos.model();
    one_port = qos.has_rates_of_one_port();
    return {};
  });
  if (!done) return std::move(done).error();
  if (one_port)
    return Error("a rate was set for one port alone, which a file of classes cannot say",
                 "set the rate for all ports: sluice qos set CLASS rate RATE");
  return edit_qos(c.classes.text, c.classes.path, model);
}

std::string qos_text(const Json& ports) {
  TextTable table({"port", "class", "rate", "in", "out", "bytes out", "dropped", "held", "highest", "p50 us", "p99 us",
                   "why dropped"});
  for (const Json& port : ports) {
    const std::string name = fmt::format("{}:{}", word_of(port, "element"), count_of(port, "port"));
    if (const uint64_t bps = count_of(port, "rate_bps"); bps != 0) {
      std::vector<std::string> row = {name, "(all)", bps_text(bps)};
      row.resize(12, "-");
      table.add(row);
    }
    for (const Json& c : port.at("classes")) {
      uint64_t dropped = 0;
      std::string why;
      for (const auto& [reason, n] : c.at("drops").items()) {
        dropped += n.get<uint64_t>();
        why += fmt::format("{}{} {}", why.empty() ? "" : ", ", reason, with_commas(n.get<uint64_t>()));
      }
      const auto us = [&](const char* which) {
        return fmt::format("{:.1f}", static_cast<double>(count_of(c.at("latency_ns"), which)) * 1e-3);
      };
      table.add({name, word_of(c, "class"), bps_text(count_of(c, "rate_bps")),
                 with_commas(count_of(c.at("in"), "packets")), with_commas(count_of(c.at("out"), "packets")),
                 with_commas(count_of(c.at("out"), "bytes")), dropped == 0 ? "-" : with_commas(dropped),
                 with_commas(count_of(c, "waiting") + count_of(c, "queued")), with_commas(count_of(c, "queue_highest")),
                 us("p50"), us("p99"), why.empty() ? "-" : why});
    }
  }
  return table.str();
}

std::vector<CommandRow> qos_commands() {
  using namespace fields;
  return {
      {.name = "show qos",
       .help = "The classes of service of a running process, by port: packets, drops, queues, latencies.",
       .examples = "sluice show qos\nsluice show qos --socket /tmp/sluice.sock -o json",
       .run = show_qos,
       .text =
           [](const Json& r, Rates*) {
             return r.at("ports").empty() ? std::string("no class has received a packet\n") : qos_text(r.at("ports"));
           },
       .watched = true,
       .path = "qos"},
      {.name = "qos",
       .help = "Changes the classes of service of a running process, between two batches.",
       .examples = "sluice qos set voice rate 20Mbps\nsluice qos load edge.qos"},
      {.name = "qos set",
       .help =
           "Changes the rate of a class, or of the ports themselves. Waiting packets keep their departure time, and "
           "no packet of their class overtakes them.",
       .examples = "sluice qos set voice rate 20Mbps\nsluice qos set voice rate unlimited --port 2\n"
                   "sluice qos set port rate 50Mbps",
       .fields = {text("class").as("class", "CLASS",
                                   "Name of the class; or port: the rate of all classes of a port together"),
                  text("what").as("what", "rate", "What is set: rate").one_of({"rate"}).local(),
                  text("rate").as("rate", "RATE", "Such as 20Mbps; or unlimited"),
                  number("port", 0, 65535)
                      .as("--port", "N", "Only at this output port, even if no packet has reached it yet")},
       .run = set_qos,
       .text = set_text,
       .changes = true},
      {.name = "qos load",
       .help = "Replaces the classes by those of a file. Classes of the same name keep their waiting packets and their "
               "counters; packets that wait in other classes are dropped as graph-changed.",
       .examples = "sluice qos load edge.qos",
       .fields = {typed(CommandField::Type::kFile, "file").as("file", "FILE", "The classes ('-': stdin)")},
       .run = load_qos,
       .text =
           [](const Json& r, Rates*) {
             return fmt::format("{} of {}\n", counted(count_of(r, "classes"), "class"), word_of(r, "file"));
           },
       .changes = true},
  };
}

}  // namespace sluice
