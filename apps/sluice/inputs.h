// Tables and packets that subcommands read from files.
// host only
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app.h"
#include "formats/route_files.h"
#include "formats/route_text.h"
#include "net/flow_key.h"
#include "tables/acl/algorithms.h"
#include "tables/lpm/algorithms.h"
#include "tables/lpm/rib.h"

namespace sluice::app {

std::vector<std::string> split_commas(const std::string& text);

// -- access lists ----------------------------------------------------------------------------------------------------

struct LoadedAcl {
  std::string file;
  std::string format;  // of RuleFormat, or "image"
  RuleSet set;         // empty for an image
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
CLI::Option* add_format_option(CLI::App& sub, std::string& format, std::string_view of = "the rule file");
void add_acl_options(CLI::App& sub, std::string& format, std::string& algorithm);
// A rule file in any format, or a compiled image. Ends the program with the file's errors.
RuleSet read_rules(const std::string& path, const std::string& format, std::string* found_format);
// `target`: what the algorithm `auto` chooses for.
LoadedAcl load_acl(const std::string& path, const std::string& format, const std::string& algorithm,
                   AclTarget target = AclTarget::kCpu);
LoadedAcl build_loaded_acl(RuleSet set, std::string file, std::string format, const std::string& algorithm,
                           AclTarget target = AclTarget::kCpu);
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

// "A", "A4,A6" or empty. Ends with kUsage when there is no such algorithm for its family.
struct LpmNames {
  std::string algorithm4, algorithm6;
};
LpmNames check_lpm_algorithms(const std::string& names);
Rib read_routes(const std::vector<std::string>& files, RouteReport* report);
LoadedRoutes load_routes(const std::vector<std::string>& files, const std::string& algorithms);
LoadedRoutes build_loaded_routes(Rib rib, std::vector<std::string> files, const std::string& algorithms);
// Opens the views of `routes.image`.
void open_routes(LoadedRoutes& routes);

// -- packets
// -----------------------------------------------------------------------------------------------------------

// Keys are read and looked up so many at a time.
inline constexpr size_t kKeyBlock = size_t{1} << 18;

// Keys in blocks: a trace, or the frames of a capture. A frame that is not IP, or damaged, has family 0.
class KeySource {
 public:
  virtual ~KeySource() = default;
  // Replaces `keys` by up to `limit` more; empty at the end.
  virtual void next(std::vector<FlowKey>& keys, size_t limit) = 0;
};
std::unique_ptr<KeySource> open_trace(const std::string& path);
std::unique_ptr<KeySource> open_capture_keys(const std::string& path);

// Runs f(begin, end) over [0, n) on `workers` threads in contiguous shares.
void in_parallel(unsigned workers, size_t n, const std::function<void(size_t begin, size_t end)>& f);

}  // namespace sluice::app
