// sluice show runtime|rules|drops|tables|routes|adjacencies|qos, sluice acl, sluice routes, sluice qos: asks and
// changes a process that runs. host only
#include <cctype>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "base/atomic_file.h"
#include "base/printable.h"
#include "capture.h"
#include "control/report.h"
#include "control/request.h"
#include "control/route_report.h"
#include "control/sent_file.h"
#include "control/trace_control.h"
#include "inputs.h"
#include "live.h"
#include "live_client.h"
#include "run_standard.h"
#include "watch.h"

namespace sluice::app {
namespace {

// --- show ---

// A run's elements, with what they drop.
std::string elements_text(const Json& r, Rates* rates) {
  std::vector<std::string> heads = {"element", "class", "packets", "bytes", "dropped"};
  if (rates != nullptr) heads.insert(heads.end(), {"pps", "dropped/s"});
  TextTable table(heads);
  for (const Json& e : r.at("elements")) {
    uint64_t dropped = 0;
    if (e.contains("drops")) {
      for (const auto& [reason, n] : e.at("drops").items()) dropped += n.get<uint64_t>();
    } else {
      dropped = count_of(e, "dropped");
    }
    std::vector<std::string> row = {word_of(e, "name"), word_of(e, "class"), with_commas(count_of(e, "packets")),
                                    with_commas(count_of(e, "bytes")), dropped == 0 ? "-" : with_commas(dropped)};
    if (rates != nullptr) {
      row.push_back(rates->cell("element " + row[0], count_of(e, "packets")));
      row.push_back(rates->cell("element drops " + row[0], dropped));
    }
    table.add(row);
  }
  return table.str();
}
// "now 1,000 pps in, 900 out, 100 dropped\n"
std::string now_text(const Json& r, Rates* rates) {
  if (rates == nullptr) return {};
  const auto cell = [&](const char* field) { return rates->cell(field, count_of(r, field)); };
  return fmt::format("now {} pps in, {} out, {} dropped\n", cell("packets_in"), cell("packets_out"), cell("dropped"));
}

// ", cleared 12.3 s ago", where a window counts from there.
std::string cleared_text(const Json& r) {
  if (!r.contains("cleared_seconds_ago")) return {};
  return fmt::format(", cleared {} ago", human_seconds(r.at("cleared_seconds_ago").get<double>()));
}

// What a run of the packet scheduler says of itself.
std::string scheduled_text(const Json& r, Rates* rates) {
  std::string t = fmt::format("{} by the packet scheduler, graph {} of this run{}\n", word_of(r, "configuration"),
                              count_of(r, "swaps") + 1, cleared_text(r));
  t += fmt::format("in {}, out {}, dropped {}, queued {}\n", counted(count_of(r, "packets_in"), "packet"),
                   with_commas(count_of(r, "packets_out")), with_commas(count_of(r, "dropped")),
                   with_commas(count_of(r, "queued")));
  return t + now_text(r, rates) + "\n" + elements_text(r, rates);
}

std::string runtime_text(const Json& r, Rates* rates) {
  if (r.contains("swaps")) return scheduled_text(r, rates);
  std::string t = fmt::format("{} on {} x{}, generation {}, {} of packets{}\n", word_of(r, "configuration"),
                              word_of(r, "device"), count_of(r, "workers"), count_of(r, "generation"),
                              human_seconds(r.at("seconds").get<double>()), cleared_text(r));
  t += fmt::format("in {}, out {}, dropped {}; {}; p50 {:.1f} us, p99 {:.1f} us; tables {}\n",
                   counted(count_of(r, "packets_in"), "packet"), with_commas(count_of(r, "packets_out")),
                   with_commas(count_of(r, "dropped")), human_rate(r.at("packets_per_second").get<double>(), "packets"),
                   static_cast<double>(count_of(r.at("latency_ns"), "p50")) * 1e-3,
                   static_cast<double>(count_of(r.at("latency_ns"), "p99")) * 1e-3,
                   human_bytes(static_cast<double>(count_of(r, "tables_bytes"))));
  return t + now_text(r, rates) + "\n" + elements_text(r, rates);
}

std::string dscp_text(const Json& r, Rates* rates) {
  if (!r.contains("dscp_bytes")) fail(Exit::kUsage, "bytes are not counted by DSCP", "start the run with --dscp");
  std::vector<std::string> heads = {"dscp", "bytes"};
  if (rates != nullptr) heads.push_back("bytes/s");
  TextTable table(heads);
  for (const auto& [dscp, bytes] : r.at("dscp_bytes").items()) {
    std::vector<std::string> row = {dscp, with_commas(bytes.get<uint64_t>())};
    if (rates != nullptr) row.push_back(rates->cell("dscp " + dscp, bytes.get<uint64_t>()));
    table.add(row);
  }
  return fmt::format("{} in{}\n{}", counted(count_of(r, "packets_in"), "packet"), cleared_text(r),
                     table.empty() ? "" : table.str());
}

std::string drops_text(const Json& r, Rates* rates) {
  std::vector<std::string> heads = {"packets", "reason", "element"};
  if (rates != nullptr) heads.insert(heads.begin() + 1, "pps");
  TextTable table(heads);
  for (const Json& d : r.at("drops")) {
    std::vector<std::string> row = {with_commas(count_of(d, "packets")), word_of(d, "reason"), word_of(d, "element")};
    if (rates != nullptr) row.insert(row.begin() + 1, rates->cell(row[1] + " at " + row[2], count_of(d, "packets")));
    table.add(row);
  }
  return fmt::format("{} of {} dropped{}\n{}", with_commas(count_of(r, "dropped")),
                     counted(count_of(r, "packets_in"), "packet"), cleared_text(r), table.empty() ? "" : table.str());
}

std::string ports_text(const Json& r, Rates* rates) {
  std::vector<std::string> heads = {"port",     "method",     "link",     "rx packets",
                                    "rx bytes", "tx packets", "tx bytes", "lost"};
  if (rates != nullptr) heads.insert(heads.end(), {"rx pps", "tx pps", "lost/s"});
  TextTable ports(heads);
  for (const Json& p : r.at("interfaces")) {
    const auto sum = [&](const char* side, std::initializer_list<const char*> fields) {
      uint64_t all = 0;
      for (const Json& queue : p.at(side)) {
        for (const char* field : fields) all += count_of(queue, field);
      }
      return all;
    };
    const std::string name = word_of(p, "name");
    const uint64_t rx = sum("rx", {"packets"}), tx = sum("tx", {"packets"}),
                   lost = sum("rx", {"missed", "too_long", "invalid"}) + sum("tx", {"full", "failed"});
    std::vector<std::string> row = {name,
                                    word_of(p, "method"),
                                    p.at("closed").get<bool>() ? "closed" : word_of(p, "link"),
                                    with_commas(rx),
                                    with_commas(sum("rx", {"bytes"})),
                                    with_commas(tx),
                                    with_commas(sum("tx", {"bytes"})),
                                    lost == 0 ? "-" : with_commas(lost)};
    if (rates != nullptr) {
      row.insert(row.end(),
                 {rates->cell("rx " + name, rx), rates->cell("tx " + name, tx), rates->cell("lost " + name, lost)});
    }
    ports.add(row);
  }
  heads = {"output", "packets", "bytes"};
  if (rates != nullptr) heads.push_back("pps");
  heads.push_back("to");
  TextTable outputs(heads);
  for (const Json& o : r.at("outputs")) {
    const std::string element = word_of(o, "element"), path = word_of(o, "path");
    std::vector<std::string> row = {element, with_commas(count_of(o, "packets")), with_commas(count_of(o, "bytes"))};
    if (rates != nullptr) row.push_back(rates->cell("output " + element + " " + path, count_of(o, "packets")));
    row.push_back(path.empty() ? "-" : path);
    outputs.add(row);
  }
  std::string t;
  if (!ports.empty()) t += ports.str() + (outputs.empty() ? "" : "\n");
  if (!outputs.empty()) t += outputs.str();
  if (t.empty()) t = "no port is open\n";
  const std::string cleared = cleared_text(r);
  return cleared.empty() ? t : t + cleared.substr(2) + "\n";
}

std::string tables_text(const Json& r, Rates*) {
  TextTable table({"table", "kind", "algorithm", "entries", "memory", "built in", "changed in"});
  for (const Json& one : r.at("tables")) {
    const uint64_t changed = count_of(one, "changed_in_generation");
    table.add({word_of(one, "name"), word_of(one, "kind"), one.at("algorithm") == "" ? "-" : word_of(one, "algorithm"),
               with_commas(count_of(one, "entries")), human_bytes(one.at("bytes").get<double>()),
               human_seconds(one.at("build_seconds").get<double>()),
               changed == 0 ? "-" : fmt::format("generation {}", changed)});
  }
  return fmt::format(
      "generation {}, {}{}\n{}", count_of(r, "generation"), human_bytes(r.at("bytes").get<double>()),
      r.contains("max_memory") ? fmt::format(" of {}", human_bytes(r.at("max_memory").get<double>())) : "",
      table.str());
}

std::string rate_text(uint64_t bps) {
  return bps == 0 ? "-" : human_rate(static_cast<double>(bps), "bit");
}

// A command that asks for a window, once or again and again.
struct WindowFlags : ClientFlags, WatchFlags {};
struct RulesFlags : WindowFlags {
  std::string table;
  bool hits = false, by_hits = false, native = false;
  uint64_t from = 1, count = 50;
};
struct RuntimeFlags : WindowFlags {
  bool dscp = false;
};
struct LookupFlags : WindowFlags {
  std::string table, what, prefix, next_hop;
  uint64_t from = 1, count = 1000;
};

Exit show(const WindowFlags& flags, const Json& body, const std::function<std::string(const Json&, Rates*)>& text) {
  // The same process each time.
  ClientFlags client = flags;
  client.socket = socket_of(flags);
  return watch(
      flags, [&] { return request(client, body); }, text);
}

Exit show_runtime(const RuntimeFlags& flags) {
  return show(flags, {{"command", "show runtime"}}, flags.dscp ? &dscp_text : &runtime_text);
}
Exit show_drops(const WindowFlags& flags) {
  return show(flags, {{"command", "show drops"}}, &drops_text);
}
Exit show_ports(const WindowFlags& flags) {
  return show(flags, {{"command", "show ports"}}, [](const Json& r, Rates* rates) { return ports_text(r, rates); });
}
Exit show_tables(const WindowFlags& flags) {
  return show(flags, {{"command", "show tables"}}, &tables_text);
}
Exit show_qos(const WindowFlags& flags) {
  return show(flags, {{"command", "show qos"}}, [](const Json& r, Rates*) {
    return r.at("ports").empty() ? std::string("no class has received a packet\n") : qos_text(r.at("ports"));
  });
}

std::string rules_text(const Json& r, Rates* rates, const RulesFlags& flags) {
  const bool hits = flags.hits || flags.by_hits, rate = hits && rates != nullptr;
  std::vector<std::string> heads = {"rule"};
  if (hits) heads.insert(heads.end(), {"packets", "bytes"});
  if (rate) heads.push_back("pps");
  heads.insert(heads.end(), {"place", "text"});
  TextTable table(heads);
  std::map<std::string, size_t> same;
  for (const Json& rule : r.at("rules")) {
    const std::string place =
        rule.contains("file") ? fmt::format("{}:{}", word_of(rule, "file"), count_of(rule, "line")) : "-";
    std::vector<std::string> row = {with_commas(count_of(rule, "rule"))};
    if (hits) row.insert(row.end(), {with_commas(count_of(rule, "packets")), with_commas(count_of(rule, "bytes"))});
    if (rate) {
      // A rule's number is another's where the list changes: its words stay. Of rules with the same the order does.
      const std::string words = place + " " + word_of(rule, "text");
      row.push_back(rates->cell(fmt::format("{} {}", words, ++same[words]), count_of(rule, "packets")));
    }
    row.insert(row.end(), {place, word_of(rule, "text")});
    table.add(row);
  }
  std::string t = table.str();
  const uint64_t total = count_of(r, "total"), last = flags.from + r.at("rules").size() - 1;
  if (hits) {
    t += fmt::format("no rule matched {}", counted(count_of(r.at("no_match"), "packets"), "packet"));
    if (const uint64_t gone = count_of(r.at("removed"), "packets"); gone != 0)
      t += fmt::format("; removed rules had {}", with_commas(gone));
    t += cleared_text(r) + "\n";
  }
  if (last < total)
    t += fmt::format("{} to {} of {}; continue with --from {}\n", with_commas(flags.from), with_commas(last),
                     with_commas(total), last + 1);
  return t;
}

Exit show_rules(const RulesFlags& flags) {
  if (flags.native) {
    const Json r = request(flags, {{"command", "show text"}, {"kind", "acl"}, {"table", flags.table}});
    return print(r, json_output() ? std::string() : printable(r.at("text").get_ref<const std::string&>()));
  }
  const Json body{{"command", "show rules"}, {"table", flags.table}, {"hits", flags.hits || flags.by_hits},
                  {"from", flags.from},      {"count", flags.count}, {"order", flags.by_hits ? "hits" : "list"}};
  return show(flags, body, [&](const Json& r, Rates* rates) { return rules_text(r, rates, flags); });
}

Exit show_routes(const LookupFlags& flags) {
  Json body{{"command", "show routes"}, {"table", flags.table}, {"from", flags.from}, {"count", flags.count}};
  if (!flags.what.empty()) {
    if (!flags.prefix.empty() || !flags.next_hop.empty())
      fail(Exit::kUsage, "--prefix and --next-hop list routes, and an address is looked up alone");
    body["for"] = flags.what;
    return show(flags, body, [](const Json& r, Rates*) { return route_explanation_text(r); });
  }
  body["prefix"] = flags.prefix;
  body["next_hop"] = flags.next_hop;
  return show(flags, body, [](const Json& r, Rates*) { return route_list_text(r); });
}

std::string neighbours_text(const Json& r, Rates*) {
  TextTable table({"address", "MAC", "interface", "state"});
  for (const Json& n : r.at("neighbours"))
    table.add({word_of(n, "address"), n.at("mac").is_null() ? "-" : word_of(n, "mac"), word_of(n, "interface"),
               word_of(n, "state")});
  if (table.empty()) return "the kernel knows no neighbour at an interface of this process\n";
  const uint64_t from = count_of(r, "from"), last = from + r.at("neighbours").size() - 1, total = count_of(r, "total");
  std::string t = table.str();
  if (last < total)
    t += fmt::format("{} to {} of {}; continue with --from {}\n", with_commas(from), with_commas(last),
                     with_commas(total), last + 1);
  return t;
}

Exit show_neighbours(const LookupFlags& flags) {
  return show(flags, {{"command", "show neighbours"}, {"from", flags.from}, {"count", flags.count}}, &neighbours_text);
}

Exit show_trace(const WindowFlags& flags) {
  return show(flags, {{"command", "show trace"}}, [](const Json& r, Rates*) { return printable(trace_text(r)); });
}

Exit show_capture(const WindowFlags& flags) {
  return show(flags, {{"command", "show capture"}}, [](const Json& r, Rates*) { return capture_text(r); });
}

Exit show_adjacencies(const LookupFlags& flags) {
  const Json body{
      {"command", "show adjacencies"}, {"table", flags.table}, {"from", flags.from}, {"count", flags.count}};
  return show(flags, body, [](const Json& r, Rates*) { return next_hops_text(r); });
}

// --- changes ---

struct ChangeFlags : ClientFlags {
  std::string table, file, format = "auto", changes;
  std::vector<std::string> words;
  uint32_t at = 0;
};

Exit change(const ChangeFlags& flags, Json body) {
  body["table"] = flags.table;
  body["dry_run"] = flags.dry_run;
  const Json r = request(flags, std::move(body));
  const Json &entries = r.at("entries"), &bytes = r.at("bytes");
  const std::string what = fmt::format("{} '{}': {} -> {} {}, {}",
                                       r.at("kind") == "acl"      ? "access list"
                                       : r.at("kind") == "routes" ? "route table"
                                                                  : "adjacency table",
                                       word_of(r, "table"), with_commas(count_of(entries, "before")),
                                       with_commas(count_of(entries, "after")),
                                       r.at("kind") == "acl"      ? "rules"
                                       : r.at("kind") == "routes" ? "routes"
                                                                  : "next hops",
                                       human_bytes(bytes.at("after").get<double>()));
  if (!r.at("differs").get<bool>()) {
    return print(r, r.at("committed").get<bool>()
                        ? fmt::format("no change: generation {} stays\n{}\n", count_of(r, "generation"), what)
                        : fmt::format("no change\n{}\n", what));
  }
  if (!r.at("committed").get<bool>()) {
    return print(
        r,
        fmt::format("nothing was changed; the result would be\n{} ({} with the current tables), built in {}\n", what,
                    human_bytes(bytes.at("peak").get<double>()), human_seconds(r.at("build_seconds").get<double>())));
  }
  std::string rules;
  if (r.contains("rules")) rules = fmt::format(", {}", difference_text(r.at("rules")));
  if (r.contains("refusing_devices"))
    warn("a device did not take the generation: its packets are processed on the host");
  return print(r, fmt::format("generation {} live on {} after {}\n{}{}\n", count_of(r, "generation"),
                              word_of(r, "device"), human_seconds(r.at("seconds").get<double>()), what, rules));
}

Exit change_text(const ChangeFlags& flags, const std::string& kind, const std::string& verb) {
  const std::string text = fmt::format("{} {}", verb, fmt::join(flags.words, " "));
  if (text.find('\n') != std::string::npos) fail(Exit::kUsage, "a change on the command line is one line");
  return change(flags, {{"command", kind + " change"}, {"changes", text}, {"name", "command line"}});
}
Exit change_file(const ChangeFlags& flags, const std::string& kind) {
  InputFile file = need(InputFile::open(flags.changes), Exit::kIo);
  return change(
      flags,
      {{"command", kind + " change"}, {"changes", need(file.text(ControlSocket::kMaxLine))}, {"name", file.name()}});
}

// What the other fields of a request take.
constexpr uint64_t kFieldRoom = 65536;

// Files as requests have them: read here, where the user named them, and sent.
Json sent(const std::vector<std::string>& files) {
  NamedInputs named;
  add_route_inputs(named, "FILE", files);
  check_read_once(named);
  Json all = Json::array();
  uint64_t room = ControlSocket::kMaxLine - kFieldRoom;
  for (const std::string& file : files) {
    const std::string path = path_of_route_file(file);
    all.push_back(need(send_file(path, room, file.substr(path.size())), Exit::kIo));
  }
  return all;
}
Json sent(const std::string& file) {
  uint64_t room = ControlSocket::kMaxLine - kFieldRoom;
  return need(send_file(file, room), Exit::kIo);
}

std::shared_ptr<ChangeFlags> add_change(Command group, const std::string& name, const std::string& summary,
                                        const std::string& examples, const std::function<Exit(const ChangeFlags&)>& run,
                                        Command* made = nullptr) {
  auto o = std::make_shared<ChangeFlags>();
  Command sub = add_subcommand(group, name, "Subcommands", summary, examples,
                               [o, run] { return answered([&] { return run(*o); }); });
  sub->add_option("table", o->table, "The table's name (see 'sluice show tables')")->required()->type_name("TABLE");
  add_socket_option(*sub, *o);
  sub->add_flag("--dry-run", o->dry_run, "Build it and report its size, but change nothing");
  if (made != nullptr) *made = sub;
  return o;
}

struct QosFlags : ClientFlags {
  std::string qos_class, what, rate, file;
  int64_t port = -1;
};

Exit set_qos(const QosFlags& flags) {
  if (flags.what != "rate") fail(Exit::kUsage, fmt::format("'{}' cannot be set", flags.what), "rate");
  Json body{{"command", "qos set"}, {"class", flags.qos_class}, {"rate", flags.rate}};
  if (flags.port >= 0) body["port"] = static_cast<uint64_t>(flags.port);
  const Json r = request(flags, std::move(body));
  const uint64_t bps = count_of(r, "rate_bps");
  const bool itself = flags.qos_class == "port";
  const std::string rate = bps == 0 ? "unlimited" : rate_text(bps);
  if (itself) {
    return print(r, r.contains("port") ? fmt::format("port {}: {}\n", count_of(r, "port"), rate)
                                       : fmt::format("each port: {}\n", rate));
  }
  return print(r, fmt::format("class {}: {}{}\n", word_of(r, "class"), rate,
                              r.contains("port") ? fmt::format(" at port {}", count_of(r, "port")) : ""));
}
Exit load_qos(const QosFlags& flags) {
  const Json r = request(flags, {{"command", "qos load"}, {"file", sent(flags.file)}});
  return print(r, fmt::format("{} of {}\n", counted(count_of(r, "classes"), "class"), word_of(r, "file")));
}

}  // namespace

std::string qos_text(const Json& ports) {
  TextTable table({"port", "class", "rate", "in", "out", "bytes out", "dropped", "held", "highest", "p50 us", "p99 us",
                   "why dropped"});
  for (const Json& port : ports) {
    const std::string name = fmt::format("{}:{}", word_of(port, "element"), count_of(port, "port"));
    if (const uint64_t bps = count_of(port, "rate_bps"); bps != 0) {
      std::vector<std::string> row = {name, "(all)", rate_text(bps)};
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
      table.add({name, word_of(c, "class"), rate_text(count_of(c, "rate_bps")),
                 with_commas(count_of(c.at("in"), "packets")), with_commas(count_of(c.at("out"), "packets")),
                 with_commas(count_of(c.at("out"), "bytes")), dropped == 0 ? "-" : with_commas(dropped),
                 with_commas(count_of(c, "waiting") + count_of(c, "queued")), with_commas(count_of(c, "queue_highest")),
                 us("p50"), us("p99"), why.empty() ? "-" : why});
    }
  }
  return table.str();
}

void add_live_shows(Command show) {
  const auto add = [&](const std::string& name, const std::string& summary, const std::string& examples, auto flags,
                       auto run) {
    Command sub = add_subcommand(show, name, "Subcommands", summary, examples,
                                 [flags, run] { return answered([&] { return run(*flags); }); });
    add_socket_option(*sub, *flags);
    add_watch_options(*sub, *flags);
    return sub;
  };
  auto runtime = std::make_shared<RuntimeFlags>();
  add("runtime", "Packets, rates, latencies and counters of every element of a running process.",
      "sluice show runtime\nsluice show runtime --interval 1\nsluice show runtime --socket /tmp/sluice.sock -o json",
      runtime, &show_runtime)
      ->add_flag("--dscp", runtime->dscp, "The bytes that came in, by DSCP, of a run with --dscp");
  add("drops", "What a running process dropped, why and where.",
      "sluice show drops\nsluice show drops --interval 1 --times 10 -o json", std::make_shared<WindowFlags>(),
      &show_drops);
  add("ports",
      "What came in and left by each interface and output of a running process. lost: missed, too long and invalid "
      "when\nreceived, full and failed when sent; -o json has each, by queue.",
      "sluice show ports\nsluice show ports --interval 1", std::make_shared<WindowFlags>(), &show_ports);
  add("tables", "The tables of a running process: algorithm, size, memory, last change.", "sluice show tables",
      std::make_shared<WindowFlags>(), &show_tables);
  add("qos", "The classes of service of a running process, by port: packets, drops, queues, latencies.",
      "sluice show qos\nsluice show qos --socket /tmp/sluice.sock -o json", std::make_shared<WindowFlags>(), &show_qos);
  add("trace",
      "The packets that 'sluice trace add' asked for: when and where each came in, its elements and their edits, the "
      "rule,\nroute and adjacency that decided, what became of it, the generation of tables it met, and the worker or "
      "device.",
      "sluice show trace\nsluice show trace -o json --control /run/sluice/control", std::make_shared<WindowFlags>(),
      &show_trace);
  add("capture", "The capture of a running process: packets captured, to be written, missed; how it ended.",
      "sluice show capture\nsluice show capture --interval 1 --control /run/sluice/control",
      std::make_shared<WindowFlags>(), &show_capture);
  auto rules = std::make_shared<RulesFlags>();
  Command sub = add("rules", "The rules of an access list of a running process; --hits adds counters.",
                    "sluice show rules --hits\nsluice show rules --by-hits --count 10\n"
                    "sluice show rules --native > edge.acl\n"
                    "sluice show rules --table edge --from 1001 --count 1000 -o json",
                    rules, &show_rules);
  sub->add_option("--table", rules->table, "Which access list (default: the only one)")->type_name("NAME");
  sub->add_flag("--hits", rules->hits, "With packets and bytes per rule");
  sub->add_flag("--by-hits", rules->by_hits, "The same, most packets first, without rules that matched none");
  sub->add_option("--from", rules->from, "First line to show, from 1")
      ->check(Range(uint64_t{1}, uint64_t{RuleSet::kMaxRules}))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--count", rules->count, "Lines to show, 1 to 100000")
      ->check(Range(1, 100'000))
      ->type_name("N")
      ->capture_default_str();
  sub->add_flag("--native", rules->native, "All rules as a file of native rules, which --acl and 'acl replace' read")
      ->excludes("--hits", "--by-hits", "--from", "--count", "--interval");
  // What lists have in common.
  const auto add_pages = [](Command to, LookupFlags& flags, const std::string& what) {
    to->add_option("--from", flags.from, "First " + what + " to show, from 1")
        ->check(Range(uint64_t{1}, uint64_t{1} << 28))
        ->type_name("N")
        ->capture_default_str();
    to->add_option("--count", flags.count, "How many to show, 1 to 1000")
        ->check(Range(1, 1000))
        ->type_name("N")
        ->capture_default_str();
  };
  auto routes = std::make_shared<LookupFlags>();
  routes->count = 50;
  sub = add("routes",
            "The routes of a running process. With an address or a prefix: those that cover it, longest prefix first, "
            "the route of every source, which one is used and why, and its neighbours.",
            "sluice show routes\nsluice show routes 8.8.8.8\nsluice show routes --prefix 10.0.0.0/8 --from 51\n"
            "sluice show routes --next-hop 10.0.0.1",
            routes, &show_routes);
  sub->add_option("for", routes->what, "An address or a prefix to look up (default: list the routes)")
      ->type_name("ADDRESS|PREFIX");
  sub->add_option("--prefix", routes->prefix, "List routes within this prefix")->type_name("PREFIX");
  sub->add_option("--next-hop", routes->next_hop, "List routes to this next hop, as it is written")
      ->type_name("NEXTHOP");
  sub->add_option("--table", routes->table, "Which route table (default: the only one)")->type_name("NAME");
  add_pages(sub, *routes, "route");
  auto neighbours = std::make_shared<LookupFlags>();
  neighbours->count = 50;
  sub = add("neighbours",
            "The kernel's neighbours (ARP, ND) at the interfaces of a running process: addresses, MACs, states.",
            "sluice show neighbours\nsluice show neighbours -o json", neighbours, &show_neighbours);
  add_pages(sub, *neighbours, "neighbour");
  auto hops = std::make_shared<LookupFlags>();
  sub = add("adjacencies",
            "What the next hops of a running process lead to, and where their link-layer addresses come from: the\n"
            "adjacency file (static) or the kernel's neighbour table.",
            "sluice show adjacencies\nsluice show adjacencies --table adj -o json", hops, &show_adjacencies);
  sub->add_option("--table", hops->table, "Which adjacency table (default: the only one)")->type_name("NAME");
  sub->add_option("--from", hops->from, "First next hop to show, from 1")
      ->check(Range(1u, NextHopIds::kMost))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--count", hops->count, "Next hops to show, 1 to 1000")
      ->check(Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
}

void add_reload(Command root) {
  struct ReloadFlags : ClientFlags {
    bool all = false;
  };
  auto o = std::make_shared<ReloadFlags>();
  Command sub = add_subcommand(
      root, "reload", "Running process",
      "Reads the configuration of a running process again: its file (run --config), tables and classes of "
      "service. All take effect with one generation, or nothing does: then every error is shown. Tables whose "
      "files have not\nchanged are not read; changes that were made while it ran and stand in no file are undone. What "
      "cannot change without a\nrestart is named. SIGHUP does the same.",
      "sluice reload\nsluice reload --control /run/sluice/control\nsluice reload --all", [o] {
        return answered([&] {
          Json body{{"command", "reload"}};
          if (o->all) body["all"] = true;
          const Json r = request(*o, std::move(body));
          TextTable table({"table", "kind", "entries", "change"});
          for (const Json& one : r.at("tables")) {
            table.add(
                {word_of(one, "table"), word_of(one, "kind"), with_commas(count_of(one, "entries")), reload_text(one)});
          }
          return print(r, fmt::format("{}\n{}", generation_text(r), table.str()));
        });
      });
  sub->add_flag("--all", o->all, "Read all files, also those that have not changed since they were read");
  add_socket_option(sub, *o);
}

namespace {

const char* kind_words(const std::string& kind) {
  return kind == "acl" ? "access list" : kind == "routes" ? "route table" : "adjacency table";
}

// The tables that were changed, as files of a folder: for those that cannot go back to where they came from.
Exit save_to(const ClientFlags& asked, const std::string& folder) {
  ClientFlags flags = asked;
  flags.socket = socket_of(asked);
  const bool standard = request(flags, {{"command", "show runtime"}}).at("configuration") == kStandardGraph;
  struct Text {
    std::string kind, table, path;
  };
  std::vector<Text> texts;
  std::vector<AtomicFile> files;  // of those
  std::set<std::string> paths;
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(folder, error).lexically_normal().string();
  const Json tables = request(flags, {{"command", "show tables"}});
  std::vector<std::pair<std::string, std::string>> unsaved;  // kind and name
  for (const Json& table : tables.at("tables")) {
    if (table.at("unsaved").get<bool>()) unsaved.emplace_back(table.at("kind"), table.at("name"));
  }
  if (tables.contains("qos") && tables.at("qos").at("unsaved").get<bool>()) unsaved.emplace_back("qos", "");
  for (const auto& [kind, name] : unsaved) {
    const Json r = request(flags, {{"command", "show text"}, {"kind", kind}, {"table", name}});
    // Names come from another process, and stay in the folder.
    std::string word;
    for (const char c : kind == "qos" ? "classes" : name)
      word += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
    const std::string path = (std::filesystem::path(absolute) / (word + (kind == "acl"      ? ".acl"
                                                                         : kind == "routes" ? ".routes"
                                                                         : kind == "qos"    ? ".qos"
                                                                                            : ".adjacencies")))
                                 .string();
    if (!paths.insert(path).second) fail(Exit::kIo, fmt::format("two tables would be written to {}", path));
    AtomicFile file = need(AtomicFile::create(path), Exit::kIo);
    file.write(r.at("text").get_ref<const std::string&>());
    need(file.settle(), Exit::kIo);
    texts.push_back({kind, name, path});
    files.push_back(std::move(file));
  }
  need(AtomicFile::commit(files), Exit::kIo);
  Json saved = Json::array();
  std::string t;
  for (const Text& one : texts) {
    const char* const option = one.kind == "acl" || one.kind == "qos" ? one.kind.c_str()
                               : one.kind == "routes"                 ? "routes"
                                                                      : "adjacencies";
    const char* const element = one.kind == "acl" ? "AclTable" : one.kind == "routes" ? "RouteTable" : "AdjacencyTable";
    const std::string line = !standard && one.kind != "qos"
                                 ? fmt::format("{}({}, FILE {})", element, one.table, one.path)
                             : one.kind == "routes" ? fmt::format("{} = [\"{}\"]", option, one.path)
                                                    : fmt::format("{} = \"{}\"", option, one.path);
    saved.push_back({{"table", one.table}, {"kind", one.kind}, {"file", one.path}, {"configuration", line}});
    t += fmt::format("{}: {}; in the configuration: {}\n", printable(one.path),
                     one.kind == "qos" ? std::string("classes of service")
                                       : fmt::format("{} '{}'", kind_words(one.kind), printable(one.table)),
                     printable(line));
  }
  if (texts.empty()) t = "nothing was changed since its files were read\n";
  return print(Json{{"saved", saved}}, t);
}

Exit save(const ClientFlags& flags) {
  const Json r = request(flags, {{"command", "save"}});
  std::string t;
  for (const Json& one : r.at("saved")) {
    const char* const end = one.contains("in_place") ? " (written in place)\n" : "\n";
    if (one.at("kind") == "qos") {
      t += fmt::format("{}: classes of service{}", word_of(one, "file"), end);
      continue;
    }
    t += fmt::format("{}: {} '{}', {}{}", word_of(one, "file"), kind_words(one.at("kind")), word_of(one, "table"),
                     counted(count_of(one, "entries"), one.at("kind") == "acl"      ? "rule"
                                                       : one.at("kind") == "routes" ? "route"
                                                                                    : "next hop"),
                     end);
  }
  return print(r, t.empty() ? "nothing was changed since its files were read\n" : t);
}

}  // namespace

void add_save(Command root) {
  struct SaveFlags : ClientFlags {
    std::string to;
  };
  auto o = std::make_shared<SaveFlags>();
  Command sub = add_subcommand(
      root, "save", "Running process",
      "Saves what was changed in a running process: the tables that 'sluice acl', 'routes' and 'adjacencies' have "
      "changed, and the classes of service that 'sluice qos' has, into the files that they were read from, so that a "
      "reload or a restart keeps them. Lines that are still true stay as they are, with their "
      "comments. All files are written, or none: a\ntable that comes from several files, from a compressed or compiled "
      "one, or from one of another format is refused, and\nso are a rate of one port alone and a file that was written "
      "since it was read. --to writes what has changed into a\ndirectory instead, and says what to change in the "
      "configuration.",
      "sluice save\nsluice save --control /run/sluice/control\nsluice save --to /etc/sluice/saved",
      [o] { return answered([&] { return o->to.empty() ? save(*o) : save_to(*o, o->to); }); });
  sub->add_option("--to", o->to, "Write each changed table into a file of its own in this directory")
      ->type_name("DIRECTORY");
  add_socket_option(sub, *o);
}

void add_clear(Command root) {
  Command group =
      add_subcommand(root, "clear", "Running process", "Resets the counters that 'show' displays of a running process.",
                     "sluice clear counters\nsluice clear counters rules", nullptr);
  group->require_subcommand(1);
  struct ClearFlags : ClientFlags {
    std::string what;
  };
  auto o = std::make_shared<ClearFlags>();
  Command sub = add_subcommand(
      *group, "counters", "Subcommands",
      "Has 'sluice show' count from now on, for everybody who looks: packets, rates and drops of 'show runtime' "
      "(runtime),\n'show drops' (drops), 'show rules --hits' (rules), 'show ports' (ports), and the times of 'show "
      "runtime' (latency).\nThe report at the end, --hits, --top-rules and /metrics count the whole run all the same.",
      "sluice clear counters\nsluice clear counters rules --control /run/sluice/control", [o] {
        return answered([&] {
          const Json r = request(*o, {{"command", "clear counters"}, {"what", o->what}});
          std::vector<std::string> names;
          for (const Json& name : r.at("cleared")) names.push_back(printable(name.get_ref<const std::string&>()));
          return print(r, fmt::format("cleared: {}\n", fmt::join(names, ", ")));
        });
      });
  sub->add_option("what", o->what, "runtime, drops, rules, ports or latency (default: all)")
      ->check(OneOf{{"runtime", "drops", "rules", "ports", "latency"}})
      ->type_name("WHAT");
  add_socket_option(*sub, *o);
}

void add_trace(Command root) {
  Command group = add_subcommand(
      root, "trace", "Running process",
      "Follows packets through a running process: 'trace add' asks for the next N that are "
      "received,\n'show trace' says what became of each and why, 'trace clear' ends it. While nothing is asked for, "
      "packets cost the same as\nwithout; at most 1,000 packets of 16 KiB are kept.",
      "sluice trace add 20 udp from any to any port 53\nsluice show trace\nsluice trace clear", nullptr);
  group->require_subcommand(1);
  struct TraceFlags : ClientFlags {
    uint64_t packets = 0;
    std::vector<std::string> filter;
  };
  auto flags = std::make_shared<TraceFlags>();
  Command sub = add_subcommand(
      *group, "add", "Subcommands",
      "Follows the next packets that are received and match. What was traced before is forgotten.",
      "sluice trace add 10\nsluice trace add 100 tcp from 10.0.0.0/8 to any port 443 --control /run/sluice/control",
      [flags] {
        return answered([&] {
          const Json r = request(*flags, {{"command", "trace add"},
                                          {"packets", flags->packets},
                                          {"filter", fmt::format("{}", fmt::join(flags->filter, " "))}});
          return print(r, fmt::format("the next {} will be traced; see them with: sluice show trace\n",
                                      counted(count_of(r, "asked"), "packet")));
        });
      });
  sub->add_option("packets", flags->packets, "How many packets, 1 to 1000")
      ->required()
      ->check(Range(uint64_t{1}, TraceControl::kMostPackets))
      ->type_name("N");
  sub->add_option("filter", flags->filter,
                  "Which packets: a native rule without its verb, such as 'udp from any to any port 53' (default: all)")
      ->type_name("FILTER...");
  add_socket_option(*sub, *flags);
  auto clear = std::make_shared<ClientFlags>();
  sub = add_subcommand(*group, "clear", "Subcommands", "Ends tracing and forgets the traced packets.",
                       "sluice trace clear", [clear] {
                         return answered([&] {
                           const Json r = request(*clear, {{"command", "trace clear"}});
                           return print(r, fmt::format("{} forgotten\n", counted(count_of(r, "cleared"), "packet")));
                         });
                       });
  add_socket_option(*sub, *clear);
}

void add_acl(Command root) {
  Command acl = add_subcommand(
      root, "acl", "Running process",
      "Changes an access list of a running process. A change takes effect as a whole or "
      "not at\nall; every packet meets the list before it or the list after it; no packet waits.",
      "sluice acl add acl deny udp from 192.0.2.0/24 to any --at 1\nsluice acl replace acl edge.acl", nullptr);
  acl->require_subcommand(1);
  Command sub;
  auto add = add_change(
      *acl, "add", "Adds a native rule, at the end or at a position.",
      "sluice acl add acl deny tcp from any to 192.0.2.7 port 22 --at 1",
      [](const ChangeFlags& o) { return change_text(o, "acl", o.at != 0 ? fmt::format("add at {}", o.at) : "add"); },
      &sub);
  sub->add_option("rule", add->words, "The rule")->required()->type_name("RULE...");
  sub->add_option("--at", add->at, "Position of the new rule, from 1 (default: the last)")
      ->check(Range(1u, static_cast<uint32_t>(RuleSet::kMaxRules)))
      ->type_name("N");
  auto erase = add_change(
      *acl, "delete", "Deletes a rule by position, or the first rule equal to the one given.",
      "sluice acl delete acl 17\nsluice acl delete acl deny udp from 192.0.2.0/24 to any",
      [](const ChangeFlags& o) { return change_text(o, "acl", "delete"); }, &sub);
  sub->add_option("rule", erase->words, "The rule or its position")->required()->type_name("N|RULE...");
  auto replace = add_change(
      *acl, "replace", "Replaces the whole list by the rules of a file.",
      "sluice acl replace acl edge.acl\nsluice acl replace acl edge.acl --dry-run",
      [](const ChangeFlags& o) {
        return change(o, {{"command", "acl replace"}, {"file", sent(o.file)}, {"format", o.format}});
      },
      &sub);
  sub->add_option("file", replace->file, "Rules of any format, or an image ('-': stdin)")
      ->required()
      ->type_name("FILE");
  add_format_option(*sub, replace->format)->capture_default_str();
  auto apply = add_change(
      *acl, "apply",
      "Applies the changes of a file, all or none: lines 'add [at N] RULE', 'delete N|RULE', 'replace N RULE'.",
      "sluice acl apply acl --changes today.txt", [](const ChangeFlags& o) { return change_file(o, "acl"); }, &sub);
  sub->add_option("changes,--changes", apply->changes, "The changes, one per line ('-': stdin)")
      ->required()
      ->type_name("FILE");
}

void add_graph(Command root) {
  Command graph =
      add_subcommand(root, "graph", "Running process",
                     "Shows and replaces the graph of a running process, and calls its handlers. Handlers are\nthose "
                     "of graphs with queues, timers or scripts, and of any with --packet-scheduler.",
                     "sluice graph swap edge2.click\nsluice graph read q.length", nullptr);
  graph->require_subcommand(1);
  struct GraphFlags : ClientFlags {
    std::string file, handler, value;
  };
  auto add = [&](const char* name, const char* what, const char* example, auto run) {
    auto o = std::make_shared<GraphFlags>();
    Command sub = add_subcommand(*graph, name, "Subcommands", what, example,
                                 [o, run] { return answered([&] { return run(*o); }); });
    add_socket_option(*sub, *o);
    return std::pair(o, sub);
  };
  auto [swap_flags, swap] = add(
      "swap",
      "Replaces the graph. Elements with the same name, class, configuration and ports are kept; for others of the "
      "same name\nand class, counters and other state that fits are taken over. Each packet meets one of the two "
      "graphs, "
      "and none is lost;\nwhat a queue held that is gone is dropped as graph-changed. A graph with errors changes "
      "nothing.",
      "sluice graph swap edge2.click\nsluice graph swap edge2.click --dry-run", [](const GraphFlags& o) {
        const Json r = request(o, {{"command", "graph swap"}, {"file", sent(o.file)}, {"dry_run", o.dry_run}});
        return print(
            r, r.at("committed").get<bool>()
                   ? fmt::format("{}: {} live after {}\n", word_of(r, "configuration"),
                                 counted(count_of(r, "elements"), "element"),
                                 human_seconds(r.at("load_seconds").get<double>() + r.at("swap_seconds").get<double>()))
                   : fmt::format("{}: {}, no errors\n", word_of(r, "configuration"),
                                 counted(count_of(r, "elements"), "element")));
      });
  swap->add_option("file", swap_flags->file, "A Click file ('-': stdin)")->required()->type_name("FILE");
  swap->add_flag("--dry-run", swap_flags->dry_run, "Only check it for errors");
  add("show", "Prints the running graph.", "sluice graph show", [](const GraphFlags& o) {
    const Json r = request(o, {{"command", "graph show"}});
    return print(r, word_of(r, "graph"));
  });
  auto [read_flags, read] =
      add("read", "Prints the value of a read handler.", "sluice graph read q.length\nsluice graph read list",
          [](const GraphFlags& o) {
            const Json r = request(o, {{"command", "graph read"}, {"handler", o.handler}, {"argument", o.value}});
            const std::string text = word_of(r, "value");
            return print(r, text.ends_with('\n') ? text : text + "\n");
          });
  read->add_option("handler", read_flags->handler, "ELEMENT.HANDLER")->required()->type_name("HANDLER");
  read->add_option("argument", read_flags->value, "Argument of the handler")->type_name("TEXT");
  auto [write_flags, write] =
      add("write", "Writes a value to a write handler.", "sluice graph write s.rate 1000", [](const GraphFlags& o) {
        return print(request(o, {{"command", "graph write"}, {"handler", o.handler}, {"value", o.value}}), {});
      });
  write->add_option("handler", write_flags->handler, "ELEMENT.HANDLER")->required()->type_name("HANDLER");
  write->add_option("value", write_flags->value, "Value to write")->type_name("TEXT");
}

void add_routes(Command root) {
  Command routes = add_subcommand(
      root, "routes", "Running process",
      "Changes a route table of a running process. A change takes effect as a whole or not "
      "at\nall; every packet meets the table before it or the table after it; no packet waits.",
      "sluice routes add fib 192.0.2.0/24 via 10.0.0.1\nsluice routes replace fib rib4.txt,rib6.txt", nullptr);
  routes->require_subcommand(1);
  Command sub;
  auto add = add_change(
      *routes, "add", "Adds a route, or changes the next hop of the route with the same prefix, source and metric.",
      "sluice routes add fib 192.0.2.0/24 via 10.0.0.1\n"
      "sluice routes add fib 192.0.2.0/24 via 10.0.0.9 source ospf metric 20",
      [](const ChangeFlags& o) { return change_text(o, "routes", "add"); }, &sub);
  const char* const words =
      "PREFIX [via] NEXTHOP [metric N] [source NAME] [preference N]: as in a route file; the default source is "
      "'control', which is preferred to all others";
  sub->add_option("route", add->words, words)->required()->type_name("ROUTE...");
  auto append = add_change(
      *routes, "append", "Adds a next hop to the route with the same prefix, source and metric.",
      "sluice routes append fib 192.0.2.0/24 via 10.0.0.2",
      [](const ChangeFlags& o) { return change_text(o, "routes", "append"); }, &sub);
  sub->add_option("route", append->words, words)->required()->type_name("ROUTE...");
  auto erase = add_change(
      *routes, "delete", "Deletes the route in use for a prefix, one source's route, or all routes of a source.",
      "sluice routes delete fib 192.0.2.0/24\nsluice routes delete fib 192.0.2.0/24 source ospf\n"
      "sluice routes delete fib all source bgp",
      [](const ChangeFlags& o) { return change_text(o, "routes", "delete"); }, &sub);
  sub->add_option("prefix", erase->words, "PREFIX [metric N] [source NAME], or 'all source NAME'")
      ->required()
      ->type_name("PREFIX...");
  auto replace = add_change(
      *routes, "replace", "Replaces the whole table by the routes of files.",
      "sluice routes replace fib rib4.txt,rib6.txt",
      [](const ChangeFlags& o) {
        return change(o, {{"command", "routes replace"}, {"files", sent(split_route_files(o.file))}});
      },
      &sub);
  sub->add_option("files", replace->file,
                  "Route files (text, MRT, or as ip, FRR, BIRD or route print them), comma-separated, each optionally "
                  "followed by "
                  ",source=NAME, ,preference=N or (MRT) ,peer=PEER")
      ->required()
      ->type_name("FILE[,FILE]");
  auto apply = add_change(
      *routes, "apply",
      "Applies the changes of a file, all or none: lines 'add ROUTE', 'append ROUTE' and 'delete PREFIX', with "
      "the\narguments of the commands of the same names.",
      "sluice routes apply fib --changes today.txt", [](const ChangeFlags& o) { return change_file(o, "routes"); },
      &sub);
  sub->add_option("changes,--changes", apply->changes, "The changes, one per line ('-': stdin)")
      ->required()
      ->type_name("FILE");
}

void add_adjacencies(Command root) {
  Command group =
      add_subcommand(root, "adjacencies", "Running process", "Changes the adjacencies of a running process.",
                     "sluice adjacencies set adj 10.0.0.1 02:00:00:00:00:01 02:00:00:00:00:02 3", nullptr);
  group->require_subcommand(1);
  Command sub;
  auto set = add_change(
      *group, "set", "Sets the adjacencies of a next hop, replacing all earlier ones.",
      "sluice adjacencies set adj 10.0.0.1 02:00:00:00:00:01 02:00:00:00:00:02 3 mtu 9000\n"
      "sluice adjacencies set adj core group 10.0.0.1 10.0.0.2*3 resilient 128",
      [](const ChangeFlags& o) { return change_text(o, "adjacencies", "set"); }, &sub);
  sub->add_option("line", set->words, "A line of an adjacency file")->required()->type_name("LINE...");
  auto erase = add_change(
      *group, "delete", "Deletes the adjacencies of a next hop.", "sluice adjacencies delete adj 10.0.0.1",
      [](const ChangeFlags& o) { return change_text(o, "adjacencies", "delete"); }, &sub);
  sub->add_option("next-hop", erase->words, "The next hop")->required()->type_name("NEXTHOP")->expected(1);
  auto apply = add_change(
      *group, "apply", "Applies the changes of a file, all or none: lines 'set LINE' and 'delete NEXTHOP'.",
      "sluice adjacencies apply adj --changes today.txt",
      [](const ChangeFlags& o) { return change_file(o, "adjacencies"); }, &sub);
  sub->add_option("changes,--changes", apply->changes, "The changes, one per line ('-': stdin)")
      ->required()
      ->type_name("FILE");
}

void add_qos(Command root) {
  Command group = add_subcommand(root, "qos", "Running process",
                                 "Changes the classes of service of a running process, between two batches.",
                                 "sluice qos set voice rate 20Mbps\nsluice qos load edge.qos", nullptr);
  group->require_subcommand(1);
  auto set = std::make_shared<QosFlags>();
  Command sub = add_subcommand(
      *group, "set", "Subcommands",
      "Changes the rate of a class, or of the ports themselves. Waiting packets keep their departure time, and no "
      "packet of\ntheir class overtakes them.",
      "sluice qos set voice rate 20Mbps\nsluice qos set voice rate unlimited --port 2\nsluice qos set port rate 50Mbps",
      [set] { return answered([&] { return set_qos(*set); }); });
  sub->add_option("class", set->qos_class, "Name of the class; or port: the rate of all classes of a port together")
      ->required()
      ->type_name("CLASS");
  sub->add_option("what", set->what, "What is set: rate")->required()->type_name("rate");
  sub->add_option("rate", set->rate, "Such as 20Mbps; or unlimited")->required()->type_name("RATE");
  sub->add_option("--port", set->port, "Only at this output port, even if no packet has reached it yet")
      ->check(Range(0, 65535))
      ->type_name("N");
  add_socket_option(*sub, *set);
  auto load = std::make_shared<QosFlags>();
  sub = add_subcommand(*group, "load", "Subcommands",
                       "Replaces the classes by those of a file. Classes of the same name keep their waiting packets "
                       "and their counters;\npackets that wait in other classes are dropped as graph-changed.",
                       "sluice qos load edge.qos", [load] { return answered([&] { return load_qos(*load); }); });
  sub->add_option("file", load->file, "The classes ('-': stdin)")->required()->type_name("FILE");
  add_socket_option(*sub, *load);
}

}  // namespace sluice::app
