// host only
#include "live.h"

#include "app_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/input_file.h"
#include "base/thread.h"
#include "control/answer_text.h"
#include "control/live_reload.h"
#include "control/request.h"
#include "control/windows.h"
#include "exec/engine/generation.h"

namespace sluice::app {
namespace {

// So long a change waits for pipes that it reads: other changes wait for it.
constexpr uint64_t kPatienceNs = 10'000'000'000;

// Where clients look for it: the first process is 'control' there, others have their number.
Result<std::unique_ptr<ControlSocket>> default_socket() {
  const std::string folder = control_folder();
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    Error error = system_error(folder, errno);
    error.hint = "give the path of the socket: --control PATH";
    return error;
  }
  auto made = ControlSocket::create(folder + "/control");
  return made.ok() ? std::move(made) : ControlSocket::create(fmt::format("{}/{}.sock", folder, ::getpid()));
}

// Prometheus itself has 9090.
constexpr uint16_t kHttpPort = 8477;
std::string with_port(const std::string& address) {
  if (address.empty() || HttpSocket::check(address).empty()) return address;
  std::string whole = fmt::format("{}:{}", address, kHttpPort);
  return HttpSocket::check(whole).empty() ? whole : address;
}

// What a file of a token holds, without the end of its line.
std::string token_in(const std::string& file) {
  if (file.empty()) return {};
  constexpr size_t kMost = 4096;
  InputFile input = need(InputFile::open(file), Exit::kIo);
  std::string token(need(input.text(kMost), Exit::kIo));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty()) fail(Exit::kUsage, fmt::format("--http-token {}: the file is empty", file));
  return token;
}

// What became of each table of a reload, in a line.
std::string reloads_text(const Json& tables) {
  std::vector<std::string> all;
  for (const Json& one : tables)
    all.push_back(
        fmt::format("{} '{}' {}", one["kind"].get<std::string>(), one["table"].get<std::string>(), reload_text(one)));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

void add_live_options(Command sub, LiveFlags& flags) {
  sub.add_option(
      "--control", "PATH|auto|none", flags.control,
      "Serve 'sluice show', 'sluice acl' and the like at this Unix socket; auto (default with live ports): in "
      "$XDG_RUNTIME_DIR/sluice or /run/sluice; none");
  sub.add_option(
         "--http", flags.http,
         "Serve a live page, /metrics (Prometheus), /healthz and /api/v1 (JSON) at this address during the run; "
         "nothing is changed by it (port: 8477)")
      ->check(
          [](const std::string& where) { return where.empty() ? std::string() : HttpSocket::check(with_port(where)); })
      ->type_name("ADDRESS[:PORT]");
  sub.add_option(
      "--http-token", "FILE", flags.http_token,
      "With --http: require the content of this file as bearer token or as password; needed if other machines "
      "reach the address");
  sub.add_flag("--wait", flags.wait,
               "After the last packet, when all outputs are written, keep running until SIGINT, SIGTERM or SIGHUP");
  sub.add_flag("--repeat", flags.repeat,
               "Replay the capture of --in from memory in a loop, until --limit, SIGINT, SIGTERM or SIGHUP");
  sub.add_option(
         "--max-memory", flags.max_memory,
         "With --control: refuse a change if all tables, old and new, would take more than this (such as 512MiB)")
      ->as_size()
      ->type_name("SIZE");
  sub.add_option("--hits", "FILE", flags.hits, "Write packets and bytes by access list rule at the end ('-': stdout)");
  sub.add_number("--log-rate", "N", flags.log_rate,
                 "Packets per second, and burst, that each rule with 'log' logs; further packets are counted",
                 Range(uint64_t{1}, RuleLog::kMostRate));
  sub.add_flag("--dscp", flags.dscp,
               "Count the bytes that come in by DSCP, for the report and 'sluice show runtime --dscp'");
  sub.add_option("--top-rules", "N", flags.top, "Also show the N rules with the most packets");
}

LiveRun::LiveRun(const LiveFlags& flags, bool live_ports) : flags_(flags), notice_(ServiceNotice::from_environment()) {
  if (!flags.http_token.empty() && flags.http.empty()) fail(Exit::kUsage, "--http-token needs --http");
  if (!flags.http.empty()) {
    auto made = HttpSocket::create(with_port(flags.http), token_in(flags.http_token));
    if (!made) {
      Error error = std::move(made).error();
      error.message.insert(0, "--http ");
      fail(error.system ? Exit::kIo : Exit::kUsage, std::move(error));
    }
    http_ = std::move(*made);
  }
  if (flags.has_socket()) {
    socket_ = need(flags.control == "auto" ? default_socket() : ControlSocket::create(flags.control), Exit::kIo);
  } else if (flags.control.empty() && live_ports) {
    auto made = default_socket();
    if (made.ok()) {
      socket_ = std::move(*made);
    } else {
      note(fmt::format("no control socket: {}", made.error().message));
    }
  }
  if (serves()) process_ = std::make_shared<ProcessUse>();
  if (flags.max_memory != 0 && socket_ == nullptr)
    fail(Exit::kUsage, "--max-memory needs --control", "it limits the memory of changes");
}

void LiveRun::prepare(RunOptions& options, const TableSet& tables, bool by_packets) {
  options.live = serves() || notice_ != nullptr;
  if (notice_ != nullptr) {
    options.ready = [this, before = std::move(options.ready)] {
      if (before) before();
      notice_->ready();
    };
  }
  if (serves()) options.taps = taps_ = std::make_shared<PacketTaps>();
  options.count_hits = counts();
  options.count_dscp = flags_.dscp;
  // Lists change by requests; graphs of the packet scheduler, by their scripts, too.
  if (serves() || by_packets || has_logging_rules(tables)) {
    options.rule_log = rule_log_ = std::make_shared<RuleLog>(flags_.log_rate);
    log_control_ = need(RuleLogControl::create(rule_log_, [](const std::string& line) { note(line); }), Exit::kIo);
  }
  if (flags_.wait) {
    options.hold = [] {
      while (!interrupted().load(std::memory_order_relaxed)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
  }
}

RunHooks LiveRun::hooks(Pipeline& pipeline, const std::string& device, decltype(Control::GraphHooks::load) load) {
  if (!counts() && follower_ == nullptr && notice_ == nullptr && log_control_ == nullptr) return {};
  RunHooks hooks;
  hooks.started = [this, &pipeline, device, load](Engine& runtime) { started(runtime, pipeline, device, load); };
  hooks.ended = [this](Engine& runtime) { ended(runtime); };
  hooks.closed = [this] {
    hangups_ = {};
    if (notice_ != nullptr) notice_->stopping();
    if (follower_ != nullptr) follower_->stop();
    http_.reset();
    socket_.reset();
    if (log_control_ != nullptr) log_control_->finish();
  };
  return hooks;
}

void LiveRun::started(Engine& runtime, Pipeline& pipeline, const std::string& device,
                      const decltype(Control::GraphHooks::load)& load) {
  if (notice_ != nullptr) notify(runtime);
  if (!counts() && follower_ == nullptr) return;
  configuration_ = pipeline.name;
  tables_ = std::make_unique<LiveTables>(pipeline.router, pipeline.plan, runtime.publisher(), pipeline.tables,
                                         std::move(pipeline.models), pipeline.table_report.loads, flags_.max_memory);
  tables_->set_lock(seen_);
  if (counts()) {
    control_ = std::make_unique<Control>(
        runtime, *tables_,
        Control::Facts{pipeline.name, device,
                       socket_ == nullptr ? std::string() : std::filesystem::absolute(socket_->path()).string(),
                       process_});
    control_->classes = std::move(classes_);
  }
  if (serves()) serve(runtime, load);
  if (follower_ != nullptr) follow_kernel(runtime);
}

// A sign of life is what /healthz says: every worker gives its counters.
void LiveRun::notify(Engine& runtime) {
  notice_->start([this, &runtime]() -> Result<std::optional<RunReport>> {
    const std::unique_lock lock(seen_, std::chrono::milliseconds(100));
    if (!lock.owns_lock()) return std::optional<RunReport>();
    RunReport report;
    if (auto ok = runtime.look(report); !ok) return std::move(ok).error();
    return std::optional<RunReport>(std::move(report));
  });
}

void LiveRun::serve(Engine& runtime, const decltype(Control::GraphHooks::load)& load) {
  control_->graph.load = [this, load](const std::string& text, const std::string& name, const std::string& folder) {
    const LetGo aside(&seen_);
    return load(text, name, folder);
  };
  control_->graph.fits = [this](const GraphGeneration& next) { return fits(next); };
  control_->graph.swapped = [this, &runtime](const std::string& configuration) {
    configuration_ = configuration;
    follow(runtime);
  };
  trace_ = std::make_unique<TraceControl>(runtime, taps_);
  control_->trace = trace_.get();
  capture_ = std::make_unique<CaptureControl>(runtime, taps_);
  control_->capture = capture_.get();
  control_->log = log_control_.get();
  control_->reload = [this, &runtime](bool all) { return reload(runtime, all); };
  if (socket_ != nullptr) {
    note(fmt::format("control socket {}", socket_->path()));
    const auto from_socket = [this, &runtime](std::string_view line) -> ControlSocket::Reply {
      auto request = read_request(line);
      if (!request) return refusal(request.error());
      if (!Control::may_change(*request)) {
        const std::lock_guard lock(seen_);
        return answer(runtime, *request);
      }
      // A rule or some routes, where no other change is made, are done before another thread would have woken up.
      if (const std::unique_lock changing(changing_, std::try_to_lock); changing.owns_lock()) {
        const std::lock_guard lock(seen_);
        if (control_->is_short(*request)) return answer(runtime, *request);
      }
      return std::function<std::string()>([this, &runtime, request = std::make_shared<Json>(std::move(*request))] {
        const std::lock_guard changing(changing_);
        const std::lock_guard lock(seen_);
        const InputPatience others_wait(kPatienceNs);
        return answer(runtime, *request);
      });
    };
    need(socket_->serve(from_socket, &sluice::refusal), Exit::kIo);
  }
  if (socket_ != nullptr && reload_) {
    take_hangups();
    hangups_ = need(start_thread([this, &runtime](const std::stop_token& stop) {
                      while (!stop.stop_requested()) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(50));
                        if (!hangup_came()) continue;
                        const std::lock_guard changing(changing_);
                        const std::lock_guard lock(seen_);
                        const InputPatience others_wait(kPatienceNs);
                        const auto done = [&]() -> Result<Json> {
                          try {
                            return reload(runtime, false);
                          } catch (const std::bad_alloc&) {
                            return Error("no memory to read the configuration again");
                          }
                        }();
                        if (done.ok()) {
                          note(fmt::format("SIGHUP: {}, {}", generation_text(*done), reloads_text((*done)["tables"])));
                        } else {
                          warn(fmt::format("SIGHUP: nothing was changed\n{}", to_string(done.error())));
                        }
                      }
                    }),
                    Exit::kIo);
  }
  if (http_ == nullptr) return;
  note(fmt::format("live page {}", http_->url()));
  // Where a change holds what it takes all the same, who looks is told what was last rather than left to wait.
  const auto ask = [this, &runtime](std::string_view line) -> std::optional<std::string> {
    auto request = read_request(line);
    if (!request) return refusal(request.error());
    const std::unique_lock lock(seen_, std::chrono::seconds(1));
    if (!lock.owns_lock()) return std::nullopt;
    return answer(runtime, *request);
  };
  need(http_->serve([windows = std::make_shared<Windows>(ask)](const HttpRequest& r) { return windows->answer(r); },
                    [](const std::string& text) { warn(text); }),
       Exit::kIo);
}

std::string LiveRun::answer(Engine& runtime, Json& request) {
  // Scripts replace their graph themselves. Its tables change with it alone, so no change is at work on those that go.
  if (runtime.by_packets()) (void)runtime.ask([this, &runtime] { follow(runtime); });
  return control_->answer(request);
}

// The tables and classes of --config as they are now, in one generation or not at all. Within changing_ and seen_.
Result<Json> LiveRun::reload(Engine& runtime, bool all) {
  if (!reload_)
    return Error("this process was started without --config: there is nothing to read again",
                 "change its tables: sluice acl replace, sluice routes replace");
  if (runtime.by_packets()) return Error("the tables of this graph change with the graph", "sluice graph swap FILE");
  if (runtime.swaps() != 0)
    return Error("another graph has taken the place of the configured one", "replace it: sluice graph swap FILE");
  std::optional<ServiceNotice::Reloading> telling;
  if (notice_ != nullptr) telling.emplace(*notice_);
  digest_followed();
  const uint64_t generation_before = runtime.publisher().generation();
  LiveTables::Reload tables(*tables_, all);
  auto next = [&] {
    const LetGo aside(&seen_);
    return reload_(tables);
  }();
  if (!next) return std::move(next).error();
  // Classes that are as they were go on with what they have.
  const bool classes_differ =
      next->qos != nullptr && (control_->classes_changed || control_->classes.text != next->qos_file.text);
  QosModel before;
  const auto load = [&](const QosModel& model) {
    return runtime.change_qos([&](EgressQos& qos) -> Result<void> {
      before = qos.model();
      qos.load(model);
      return {};
    });
  };
  if (classes_differ) {
    if (auto ok = EgressQos::check(*next->qos, runtime.at_sinks()); !ok) return std::move(ok).error();
    if (changes_are_unwanted()) return cancelled_error();
    if (auto ok = load(*next->qos); !ok) return std::move(ok).error();
  }
  auto generation = tables.commit(std::move(*next->graph));
  if (!generation) {
    if (classes_differ) (void)load(QosModel(before));
    return std::move(generation).error();
  }
  if (next->qos != nullptr) {
    control_->classes = std::move(next->qos_file);
    control_->classes_changed = false;
  }
  if (follower_ != nullptr) follower_->publish();
  Json json{{"generation", *generation},
            {"differs", *generation != generation_before || classes_differ},
            {"tables", Json::array()}};
  for (const TableReload& one : tables.tables()) {
    Json said{{"table", one.table}, {"kind", one.kind}, {"entries", one.entries}};
    const bool same = one.rules.added + one.rules.deleted == 0;
    said["change"] = one.how == TableReload::How::kReplaced            ? "replaced"
                     : one.how == TableReload::How::kUnchanged || same ? "unchanged"
                                                                       : "rules";
    if (said["change"] == "rules") said["rules"] = {{"added", one.rules.added}, {"deleted", one.rules.deleted}};
    json["tables"].push_back(std::move(said));
  }
  json["qos"] = classes_differ;
  return json;
}

// Neighbours that change reach the tables; what happens to interfaces is said and counted.
void LiveRun::follow_kernel(Engine& runtime) {
  LivePorts& ports = *runtime.live_ports();
  NeighbourFollower::Hooks hooks;
  hooks.publish = [this, &runtime] { return publish_neighbours(runtime); };
  hooks.link = [this, &ports, &runtime](const KernelLink* before, const KernelLink* after) {
    const std::string name = ports.name_of(after != nullptr ? after->index : before->index);
    if (before == nullptr || after == nullptr || before->addresses != after->addresses) {
      // What is for an address of this machine goes to the kernel.
      if (auto told = ports.addresses_changed(); !told) warn(told.error().message);
    }
    const auto state_of = [](const KernelLink* link) {
      return link == nullptr  ? LinkState::kGone
             : !link->up      ? LinkState::kDown
             : !link->carrier ? LinkState::kNoCarrier
                              : LinkState::kUp;
    };
    if (!name.empty() && before != nullptr) {
      if (state_of(before) != state_of(after)) note(fmt::format("port {}: {}", name, to_string(state_of(after))));
      ports.link_changed(before->index, state_of(after));
      if (after != nullptr && before->name != after->name)
        note(fmt::format("port {}: the interface is called {} now", name, after->name));
      if (after != nullptr && before->addresses != after->addresses)
        note(fmt::format("port {}: its addresses have changed", name));
    }
    if (after != nullptr) open_again(runtime, after->name);
  };
  need(follower_->start(std::move(hooks)), Exit::kUnavailable);
}

// An interface was made, or is another: it may be the one of a port whose own is gone.
void LiveRun::open_again(Engine& runtime, const std::string& name) {
  auto opened = runtime.open_again(name);
  if (opened.ok()) {
    if (*opened) note(fmt::format("port {}: back", name));
    return;
  }
  // It may be when more has happened to it.
  const std::string why = fmt::format("port {}: {}", name, opened.error().message);
  if (why != not_again_ && !interrupted().load(std::memory_order_relaxed)) warn(why);
  not_again_ = why;
}

// A request that changes tables may take seconds: meanwhile packets are given new neighbours on their way out.
bool LiveRun::publish_neighbours(Engine& runtime) {
  const std::unique_lock changing(changing_, std::try_to_lock);
  if (!changing.owns_lock()) return false;
  const std::lock_guard lock(seen_);
  digest_followed();
  // The packet scheduler has taken up what was published before: images are written in turns.
  const auto take_up = [&]() -> Result<void> {
    if (!runtime.by_packets() || taken_up_) return {};
    Result<void> taken;
    auto asked = runtime.ask([&] {
      follow(runtime);
      taken = runtime.use_tables(tables_->tables());
    });
    if (!asked.ok()) return asked;
    taken_up_ = true;
    return taken;
  };
  auto done = take_up();
  if (done.ok()) done = tables_->neighbours_changed();
  if (done.ok()) {
    taken_up_ = false;
    done = take_up();
  }
  // The end of the run is no news.
  if (!done && !neighbours_failed_ && !interrupted().load(std::memory_order_relaxed))
    warn(fmt::format("neighbours: {}", done.error().message));
  neighbours_failed_ = !done.ok();
  return done.ok();
}

// The tables of the graph that runs now, where another one has taken its place.
void LiveRun::follow(Engine& runtime) {
  if (runtime.swaps() == swaps_) return;
  swaps_ = runtime.swaps();
  GraphGeneration& graph = *runtime.generation();
  tables_ = std::make_unique<LiveTables>(graph.router, graph.plan, runtime.publisher(), graph.tables,
                                         std::move(graph.models), graph.loads, flags_.max_memory);
  tables_->set_lock(seen_);
  if (control_ != nullptr) control_->use(*tables_, configuration_);
  // Some may have changed while the graph was read.
  if (follower_ != nullptr) follower_->publish();
}

Result<void> LiveRun::fits(const GraphGeneration& next) const {
  if (flags_.max_memory == 0) return {};
  size_t bytes = tables_->bytes();
  for (const TableLoad& load : next.loads) bytes += load.bytes;
  if (bytes <= flags_.max_memory) return {};
  return Error(fmt::format("the tables of both graphs would take {}, more than the limit of {}",
                           human_bytes(static_cast<double>(bytes)),
                           human_bytes(static_cast<double>(flags_.max_memory))));
}

// Before tables change: no old one is kept for packets that are through.
void LiveRun::digest_followed() {
  if (trace_ != nullptr) trace_->digest(*tables_);
  if (capture_ != nullptr) capture_->digest();
}

// Who writes a capture gets its last packets. A reader that is stopped or stuck keeps nobody for long.
void LiveRun::end_capture() {
  if (capture_ == nullptr || socket_ == nullptr) return;
  const auto waits = [this] {
    const std::lock_guard lock(seen_);
    return capture_->waits_for_reader(now_ns());
  };
  {
    const std::lock_guard lock(seen_);
    capture_->run_ended();
  }
  while (waits()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// What the next process will not know. Without --config it is for whoever gave the command line.
void LiveRun::warn_of_unsaved() const {
  if (!reload_ || control_ == nullptr) return;
  std::vector<std::string> names;
  for (const TableLoad& load : tables_->loads()) {
    if (tables_->unsaved(load.kind, load.name)) names.push_back(fmt::format("{} '{}'", load.kind, load.name));
  }
  if (control_->classes_changed) names.emplace_back("classes of service");
  if (!names.empty())
    warn(fmt::format("changed while it ran, not saved, and lost with this process: {}", fmt::join(names, ", ")));
}

// Nobody asks any more; what is shown at the end is taken from the counters.
void LiveRun::ended(Engine& runtime) {
  if (log_control_ != nullptr) log_control_->finish();
  if (follower_ != nullptr) follower_->stop();
  hangups_ = {};
  if (notice_ != nullptr) notice_->stopping();
  end_capture();
  http_.reset();
  socket_.reset();
  if (tables_ == nullptr) return;
  follow(runtime);
  warn_of_unsaved();
  hits_ = Json::array();
  for (const auto& [table, image] : tables_->tables().acls) {
    const size_t all = RuleSet::kMaxRules;
    if (!flags_.hits.empty()) hits_.push_back(need(list_rules(*control_, table, true, 1, all, false, false)));
    if (flags_.top == 0) continue;
    const Json most = need(list_rules(*control_, table, true, 1, flags_.top, true, false));
    for (const Json& rule : most["rules"]) {
      top_.push_back({{"table", table},
                      {"rule", rule["rule"]},
                      {"at", place_of(rule, fmt::format("rule {}", count_of(rule, "rule")))},
                      {"action", rule["action"]},
                      {"packets", rule["packets"]},
                      {"bytes", rule["bytes"]}});
    }
  }
  std::stable_sort(top_.begin(), top_.end(), [](const Json& a, const Json& b) {
    return a["packets"].get<uint64_t>() > b["packets"].get<uint64_t>();
  });
  if (top_.size() > flags_.top) top_.erase(top_.begin() + flags_.top, top_.end());
  control_.reset();
  capture_.reset();
  trace_.reset();
  tables_.reset();
}

void LiveRun::write_hits(std::vector<AtomicFile>& files) const {
  if (flags_.hits.empty()) return;
  std::string text;
  if (json_output()) {
    text = Json{{"hits", hits_}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  } else {
    text = "# packets bytes table:rule place rule\n";
    for (const Json& table : hits_) {
      const std::string name = table["table"].get<std::string>();
      const auto line = [&](const Json& count, const std::string& rule, const std::string& place,
                            const std::string& what) {
        text += fmt::format("{} {} {}:{} {} {}\n", count["packets"].get<uint64_t>(), count["bytes"].get<uint64_t>(),
                            name, rule, place, what);
      };
      for (const Json& rule : table["rules"]) {
        line(rule, std::to_string(count_of(rule, "rule")), place_of(rule), rule["text"].get<std::string>());
      }
      line(table["no_match"], "0", "-", "(no rule matched)");
      line(table["removed"], "-", "-", "(rules that are gone)");
    }
  }
  auto file = need(AtomicFile::create(flags_.hits), Exit::kIo);
  file.write(text);
  files.push_back(std::move(file));
}

}  // namespace sluice::app
