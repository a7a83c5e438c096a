// From a configuration to a finished run: what run, bench, demo and check share.
// host only
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app.h"
#include "base/input_file.h"
#include "control/report.h"
#include "elements/tables.h"
#include "exec/engine/engine.h"
#include "exec/walk/plan.h"
#include "graph/click/syntax.h"
#include "graph/router.h"

namespace sluice::app {

const Registry& registry();

// A configuration, checked, with its tables loaded.
struct Pipeline {
  std::string name;  // of the configuration, for messages
  std::string text;
  ClickGraph graph;
  Router router;
  Plan plan;
  TableSet tables;
  TableReport table_report;
  TableModels models;  // with keep_models
  InputSet inputs;     // what is open and not read yet: the captures of sources
};

// What the command line says about a configuration's text: variables, and files in place of devices' ports.
struct Defines {
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<PortMap> ports;
  std::map<FileId, std::string> read_once;  // pipes and the like that are read already (read_once_id), by their names
  RunFiles files;                           // that the run reads and writes besides those of the graph
  bool any_name = false;                    // values of variables that the configuration does not have are ignored
};

// The configuration's file ("": none was named) and what is said about its text, of FILE and NAME=VALUE in `words` and
// of the ports in `maps`. Ends with kUsage.
std::pair<std::string, Defines> read_words(const std::vector<std::string>& words, const std::vector<std::string>& maps);
// The text of a configuration's file; `defines` learns where it can be read but once. Ends with kIo.
std::string read_configuration(const std::string& file, Defines& defines);
// What messages call it.
inline std::string title_of(const std::string& file) {
  return file == "-" ? "standard input" : file;
}

// How configurations are read here: the classes that exist, libraries beside them. `folder`: what relative names of
// libraries begin in; empty: this process's own.
ParseOptions parse_options(const Defines& defines, const std::string& folder = {});

// A configuration's text with its graph, or what is wrong with it.
struct ClickText {
  std::string text, name;
  Result<ClickGraph> graph = Error();
};
// Ends with kUsage where `defines` have a variable that it does not have.
ClickText parse_text(std::string text, std::string name, const Defines& defines);

// Whether a graph may be one that the packet scheduler has to run; kAlways: it runs any.
enum class Scheduled : uint8_t { kRefused, kAllowed, kAlways };

// Checks the graph and plans it; the tables are not read.
std::unique_ptr<Pipeline> parse_pipeline(ClickText text, Scheduled scheduled = Scheduled::kRefused);
inline std::unique_ptr<Pipeline> parse_pipeline(std::string text, std::string name, const Defines& defines) {
  return parse_pipeline(parse_text(std::move(text), std::move(name), defines));
}
// The same and the tables; `ports`: what the sources and sinks name is looked at as well. All files are opened before
// the first is read. Ends with everything that is wrong and does not follow from something else: a text that does not
// parse alone; else arguments and connections, outputs that are other files of the run, too; files that cannot be read,
// rules and routes, and ports together. kIo
// where it is only files that cannot be opened, else kBadInput.
std::unique_ptr<Pipeline> load_pipeline(ClickText text, const Defines& defines, const TableOverrides& overrides,
                                        bool ports, bool keep_models = false,
                                        Scheduled scheduled = Scheduled::kRefused);
// Ends with kBadInput where a table has errors.
void load_pipeline_tables(Pipeline& pipeline, const TableOverrides& overrides);

struct PipelineRun {
  RunReport report;
  bool interrupted = false;  // a signal came, also one that is a good end
  std::unique_ptr<Engine> engine;
  EndsInOrder in_order;                                      // until the report is out
  const Router& router() const { return engine->router(); }  // what the report is about: the graph may have changed
};
// Who has to do with a run besides its packets: called with the engine once its first generation is published, and
// after the run.
struct RunHooks {
  std::function<void(Engine&)> started, ended;
  std::function<void()> closed;  // before the engine goes, also where the run ends early
};
// An engine for it, with its first generation. Ends with kIo where a file cannot be opened, else with kBadInput.
std::unique_ptr<Engine> make_engine(Pipeline& pipeline, RunOptions options);
// Runs it once. Ends with kIo, kBadInput, or kCheckFailed when packets are not conserved. `damage` takes what is wrong
// with an input that could be read in part; nullptr: that is kBadInput, too. `files`: that of Engine::run.
PipelineRun run_pipeline(Pipeline& pipeline, RunOptions options, const RunHooks& hooks = {},
                         std::optional<Error>* damage = nullptr, std::vector<AtomicFile>* files = nullptr);

// Ends a run with an error: kIo where an output failed, else kBadInput; or gives damaged input to `damage`.
void fail_run(const RunReport& report, const Error& error, std::optional<Error>* damage);
// Where its outputs are: those of ports, and with `router` those that other elements write.
std::vector<std::string> outputs_of(const RunReport& report, const Router* router = nullptr);

// Ends with kCheckFailed unless every packet is accounted for.
void check_conserved(const RunReport& report);

// "in ... out ... drops ..." for people.
std::string summary(const RunReport& report, const std::string& device);
std::string drops_text(const std::array<uint64_t, kDropReasons>& drops);

// "edge.acl:17 permit tcp ..." of a rule.
std::string rule_place(const Image& acl, uint32_t rule);

}  // namespace sluice::app
