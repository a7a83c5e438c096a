// A run that can be looked at and changed, and counts by rules: the options of `run` for it, and what they do.
// host only
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "app.h"
#include "base/turn_lock.h"
#include "control/control.h"
#include "control/control_socket.h"
#include "control/http_socket.h"
#include "control/json.h"
#include "control/live_tables.h"
#include "control/process_use.h"
#include "control/rule_log_control.h"
#include "exec/engine/neighbour_follower.h"
#include "pipeline.h"
#include "service.h"

namespace sluice::app {

struct LiveFlags {
  std::string control;           // path, "auto" or "none"
  std::string http, http_token;  // ADDRESS:PORT, and the file that has the token
  bool wait = false;
  bool repeat = false;
  uint64_t max_memory = 0;
  std::string hits;  // file or "-"
  unsigned top = 0;
  bool dscp = false;
  uint64_t log_rate = RuleLog::kDefaultRate;

  // Somebody may ask while it runs.
  bool has_socket() const { return !control.empty() && control != "none"; }
  bool serves() const { return has_socket() || !http.empty(); }
  bool counts() const { return serves() || !hits.empty() || top != 0; }
};
void add_live_options(Command sub, LiveFlags& flags);

class LiveRun {
 public:
  // Makes the sockets, so that a name that is taken is found before the tables are built. `live_ports`: there is a
  // control socket also where nothing is said of it, if one can be made. Ends with kUsage or kIo.
  LiveRun(const LiveFlags& flags, bool live_ports);
  // Of the control socket; "": there is none.
  std::string socket_path() const { return socket_ == nullptr ? std::string() : socket_->path(); }

  // A run with live ports: who follows the kernel for it, and outlives this. Before `hooks`.
  void use(NeighbourFollower& follower) { follower_ = &follower; }
  // With --config: reads what is to follow, tables (but those in use that are unchanged) and classes (nullptr: none).
  // Thread as of Control. Before `hooks`.
  struct Reload {
    std::unique_ptr<GraphGeneration> graph;  // whose tables those of the run become
    std::shared_ptr<const QosModel> qos;
    Control::ClassesFile qos_file;  // that they were read from
  };
  // The file of the classes that the run begins with. Before `hooks`.
  void use(Control::ClassesFile classes) { classes_ = std::move(classes); }
  void use(std::function<Result<Reload>(TablesInUse&)> reload) { reload_ = std::move(reload); }
  // What the run has to do for it; `options.ready` is called by what it becomes.
  // `tables` are those that it begins with.
  void prepare(RunOptions& options, const TableSet& tables, bool by_packets);
  // Results of devices bring rules back (RunOptions::needs_rules).
  bool needs_rules() const { return counts() || rule_log_ != nullptr; }
  // `load`: reads graphs that are to follow.
  RunHooks hooks(Pipeline& pipeline, const std::string& device, decltype(Control::GraphHooks::load) load);

  // After the run -----------------------------------------------------------------------------------------------------
  // The rules that decided most, as --top-rules shows them: {"table", "rule", "at", "action", "packets", "bytes"}.
  const Json& top() const { return top_; }
  // Adds the file of --hits, which is to appear: all rules of all lists. Ends with kIo.
  void write_hits(std::vector<AtomicFile>& files) const;

 private:
  bool serves() const { return flags_.serves() || socket_ != nullptr; }
  bool counts() const { return flags_.counts() || socket_ != nullptr; }
  void started(Engine& runtime, Pipeline& pipeline, const std::string& device,
               const decltype(Control::GraphHooks::load)& load);
  void notify(Engine& runtime);
  void serve(Engine& runtime, const decltype(Control::GraphHooks::load)& load);
  // Within seen_, and of changes within changing_.
  std::string answer(Engine& runtime, Json& request);
  Result<Json> reload(Engine& runtime, bool all);
  void follow_kernel(Engine& runtime);
  void open_again(Engine& runtime, const std::string& name);
  bool publish_neighbours(Engine& runtime);
  void digest_followed();
  void end_capture();
  void warn_of_unsaved() const;
  void ended(Engine& runtime);
  void follow(Engine& runtime);
  Result<void> fits(const GraphGeneration& next) const;

  const LiveFlags& flags_;
  NeighbourFollower* follower_ = nullptr;  // none: no live ports
  // Of everything that requests are answered from. Who holds changing_, too, changes tables, one at a time, and lets
  // seen_ go while it reads and builds them; so who only looks waits for neither.
  TurnLock seen_;
  std::mutex changing_;  // requests, SIGHUP, and neighbours of the kernel; taken before seen_
  bool neighbours_failed_ = false;
  bool taken_up_ = true;   // by the packet scheduler: what was published last
  std::string not_again_;  // why a port was not opened again, as it was said
  std::unique_ptr<LiveTables> tables_;
  std::unique_ptr<Control> control_;
  Control::ClassesFile classes_;
  std::shared_ptr<PacketTaps> taps_;  // nullptr: nobody may ask
  std::unique_ptr<TraceControl> trace_;
  std::unique_ptr<CaptureControl> capture_;
  std::shared_ptr<RuleLog> rule_log_;  // nullptr: no list has or gets a rule with `log`
  std::unique_ptr<RuleLogControl> log_control_;
  std::string configuration_;
  uint64_t swaps_ = 0;  // that tables_ is of
  std::unique_ptr<ControlSocket> socket_;
  std::unique_ptr<HttpSocket> http_;
  std::shared_ptr<const ProcessUse> process_;           // nullptr: nobody may ask
  std::function<Result<Reload>(TablesInUse&)> reload_;  // none: there is no --config
  std::unique_ptr<ServiceNotice> notice_;               // none: no service manager asked
  std::jthread hangups_;                                // waits for SIGHUP
  Json top_ = Json::array();
  Json hits_;
};

void add_top(Command root);

}  // namespace sluice::app
