// Tables and packets that subcommands read from files.
// host only
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app.h"
#include "base/input_file.h"
#include "formats/route_files.h"
#include "formats/route_text.h"
#include "graph/table_kind.h"
#include "net/flow_key.h"
#include "tables/acl/algorithms.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/rib.h"

namespace sluice::app {

std::vector<std::string> split_commas(const std::string& text);
// DSCPs and their parts of the flows, of "ef=10,default=90", the value of `option`. Ends with kUsage where a class is
// unknown or there twice, where a part is no number, and where all are 0.
std::vector<std::pair<uint8_t, double>> dscp_parts(const std::string& option, const std::string& text);

// -- files -----------------------------------------------------------------------------------------------------------

// What options name as input: the option and the path; those with an empty path are not given.
using NamedInputs = std::vector<std::pair<std::string, std::string>>;
// Ends with kUsage where two of them are one pipe or terminal, or both are standard input.
void check_read_once(const NamedInputs& inputs);
// Also opens all of them, before any is read. Ends with kIo where one cannot be opened.
InputSet open_inputs(const NamedInputs& inputs);
// The files of an option that takes several, as split_route_files names them.
void add_route_inputs(NamedInputs& to, const std::string& option, const std::vector<std::string>& files);
// Ends with kUsage where a file is no regular one: benches and what else reads a file several times.
void check_regular(const std::string& option, const std::string& path);

// -- access lists ----------------------------------------------------------------------------------------------------

struct LoadedAcl {
  std::string file;
  std::string format;  // of RuleFormat, or "image"
  RuleSet set;         // empty for an image
  std::string text;    // of the file; empty for an image
  std::shared_ptr<const Image> image;
  AclView view;
  AclActionsView actions;
  AclSourceView source;
  AclRulesView rules;  // what every image carries
  std::string algorithm;
  size_t count = 0;
  double parse_seconds = 0;
  double build_seconds = 0;
};

// The rule format of `of`, checked.
Option add_format_option(Command sub, std::string& format, std::string_view of = "the rule file");
void add_acl_options(Command sub, std::string& format, std::string& algorithm);
// A rule file in any format. Ends the program with the file's errors. `text`, when given, receives what was read.
RuleSet read_rules(InputSet& inputs, const std::string& path, const std::string& format, std::string* found_format,
                   std::string* text = nullptr);
// A rule file in any format, or a compiled image. `target`: what the algorithm `auto` chooses for.
LoadedAcl load_acl(InputSet& inputs, const std::string& path, const std::string& format, const std::string& algorithm,
                   TableTarget target = TableTarget::kCpu);
LoadedAcl build_loaded_acl(RuleSet set, std::string file, std::string format, const std::string& algorithm,
                           TableTarget target = TableTarget::kCpu);
// Ends with kUsage when no ACL algorithm has this name. Empty is the default.
std::string check_acl_algorithm(const std::string& name);

// -- routes ----------------------------------------------------------------------------------------------------------

struct LoadedRoutes {
  std::vector<std::string> files;
  bool from_image = false;
  Rib rib;  // empty for an image
  RouteReport report;
  std::shared_ptr<const Image> image;
  NextHopNames names;
  std::string algorithm4, algorithm6;
  double parse_seconds = 0;
  double build_seconds = 0;
  // Any n; results are ids of `names`.
  std::function<void(const uint32_t* addresses, uint32_t* next_hops, size_t n)> lookup4;
  std::function<void(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n)> lookup6;

  uint32_t lookup(const IpAddress& address) const;
};

// "A", "A4,A6" or empty, as `option` gives them. Ends with kUsage when there is no such algorithm for its family.
struct LpmNames {
  std::string algorithm4, algorithm6;

  std::string text() const { return algorithm4 + "," + algorithm6; }
};
LpmNames check_lpm_algorithms(const std::string& names, std::string_view option = "--algorithm");
Rib read_routes(InputSet& inputs, const std::vector<std::string>& files, RouteReport* report);
LoadedRoutes load_routes(InputSet& inputs, const std::vector<std::string>& files, const std::string& algorithms);
LoadedRoutes build_loaded_routes(Rib rib, std::vector<std::string> files, const std::string& algorithms);
// Opens the views of `routes.image`.
void open_routes(LoadedRoutes& routes);

// --- packets ---

// Keys are read and looked up so many at a time.
inline constexpr size_t kKeyBlock = size_t{1} << 18;

// Keys in blocks: a trace, or the frames of a capture. A frame that is not IP, or damaged, has family 0.
class KeySource {
 public:
  virtual ~KeySource() = default;
  // Replaces `keys` by up to `limit` more; empty at the end.
  virtual void next(std::vector<FlowKey>& keys, size_t limit) = 0;
  // Whether all keys were given; after an empty block: else `damage`, or a signal, came first.
  bool ended = false;
  std::optional<Error> damage;
};
std::unique_ptr<KeySource> open_trace(InputSet& inputs, const std::string& path);
std::unique_ptr<KeySource> open_capture_keys(InputSet& inputs, const std::string& path);
// A trace or a list of addresses is held in memory.
inline constexpr uint64_t kMaxTraceBytes = uint64_t{4} << 30;

// Runs f(begin, end) over [0, n) on `workers` threads in contiguous shares.
void in_parallel(unsigned workers, size_t n, const std::function<void(size_t begin, size_t end)>& f);

// The file of each kind of tables that are lists of lines, and an option for each.
using ListFiles = std::map<const TableKind*, std::string>;
void add_list_options(Command sub, ListFiles& files);

}  // namespace sluice::app
