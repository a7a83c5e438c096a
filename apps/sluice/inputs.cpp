// host only
#include "inputs.h"

#include <sys/stat.h>

#include <charconv>

#include "base/thread.h"
#include "formats/classbench.h"
#include "formats/names.h"
#include "formats/route_files.h"
#include "formats/rule_files.h"
#include "formats/trace.h"
#include "net/parse.h"
#include "net/text.h"
#include "ports/pcap/capture_reader.h"

namespace sluice::app {

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::vector<std::pair<uint8_t, double>> dscp_parts(const std::string& option, const std::string& text) {
  std::vector<std::pair<uint8_t, double>> parts;
  double sum = 0;
  const auto refuse = [&](const std::string& why, const char* help) {
    fail(Exit::kUsage, fmt::format("{}: {}", option, why), help);
  };
  constexpr const char* kPartsHelp =
      "classes (ef, va, le, af11 to af43, cs0 to cs7, default, 0 to 63) and their parts of the flows, such as "
      "ef=10,default=90";
  for (const std::string& one : split_commas(text)) {
    const size_t at = one.find('=');
    if (at == std::string::npos) refuse(fmt::format("'{}' is not CLASS=PART", one), kPartsHelp);
    const std::string name = one.substr(0, at), number = one.substr(at + 1);
    const auto dscp = names::dscp_value(name);
    if (!dscp) refuse(fmt::format("'{}' names no DSCP class: '{}'", one, name), kPartsHelp);
    double part = -1;
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, part);
    // Smaller parts would be none beside the others.
    if (read.ec != std::errc() || read.ptr != end || !(part == 0 || (part >= 1e-6 && part <= 1e6)))
      refuse(fmt::format("'{}' has no number as its part: '{}'", one, number), "0, or 0.000001 to 1000000");
    for (const auto& [other, unused] : parts)
      if (other == *dscp)
        refuse(fmt::format("'{}' gives DSCP {} a second time", one, *dscp), "give each class once, by name or number");
    parts.emplace_back(static_cast<uint8_t>(*dscp), part);
    sum += part;
  }
  if (parts.empty()) refuse(fmt::format("'{}' names no class", text), kPartsHelp);
  if (sum == 0) refuse(fmt::format("the parts of '{}' are all 0", text), "give at least one class a part of the flows");
  return parts;
}

void check_read_once(const NamedInputs& inputs) {
  std::map<FileId, const std::pair<std::string, std::string>*> seen;
  for (const auto& input : inputs) {
    const auto& [option, path] = input;
    const auto id = path.empty() ? std::nullopt : read_once_id(path);
    if (!id) continue;
    const auto [other, first] = seen.emplace(*id, &input);
    if (first) continue;
    const std::string what = path == "-" ? "standard input" : path;
    fail(Exit::kUsage,
         other->second->first == option
             ? fmt::format("{} names {} twice, which can be read only once", option, what)
             : fmt::format("{} and {} both name {}, which can be read only once", other->second->first, option, what),
         "write its contents to a file first");
  }
}

InputSet open_inputs(const NamedInputs& inputs) {
  check_read_once(inputs);
  InputSet set;
  for (const auto& [option, path] : inputs) {
    if (!path.empty()) need(set.open(path), Exit::kIo);
  }
  return set;
}

void add_route_inputs(NamedInputs& to, const std::string& option, const std::vector<std::string>& files) {
  for (const std::string& file : files) to.emplace_back(option, path_of_route_file(file));
}

void check_regular(const std::string& option, const std::string& path) {
  struct stat info {};
  if (path == "-" || (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)))
    fail(Exit::kUsage, fmt::format("{}: {} is not a file, and it is read several times", option, path),
         "write its contents to a file first");
}

Option add_format_option(Command sub, std::string& format, std::string_view of) {
  return sub.add_option("--format", format, fmt::format("Format of {}: {}", of, kRuleFormatHelp))
      ->check(&rule_format_problem)
      ->type_name("FORMAT");
}

void add_acl_options(Command sub, std::string& format, std::string& algorithm) {
  add_format_option(sub, format)->capture_default_str();
  sub.add_option(
      "--algorithm", "NAME", algorithm,
      fmt::format("One of: {} (default {})", fmt::join(acl_algorithm_choices(), ", "), kDefaultAclAlgorithm));
}

std::string check_acl_algorithm(const std::string& name) {
  if (name.empty()) return kDefaultAclAlgorithm;
  const auto names = acl_algorithm_choices();
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  const std::string near = closest_match(name, names);
  fail(Exit::kUsage, fmt::format("--algorithm: there is no ACL algorithm '{}'", name),
       near.empty() ? fmt::format("algorithms: {}", fmt::join(names, ", ")) : fmt::format("did you mean '{}'?", near));
}

RuleSet read_rules(InputSet& inputs, const std::string& path, const std::string& format, std::string* found_format,
                   std::string* text) {
  const RuleFormatChoice choice = need(parse_rule_format(format), Exit::kUsage);
  InputFile file = need(inputs.take(path), Exit::kIo);
  RuleFormat kind = RuleFormat::kAuto;
  RuleSet set = need(read_rules_file(file, choice, &kind, text));
  if (found_format != nullptr) *found_format = to_string(kind);
  return set;
}

namespace {

void open_acl(LoadedAcl& acl) {
  acl.view = need(AclView::open(*acl.image));
  acl.actions = need(AclActionsView::open(*acl.image));
  acl.source = need(AclSourceView::open(*acl.image));
  acl.rules = need(AclRulesView::open(*acl.image));
  acl.algorithm = acl_image_algorithm(*acl.image);
  acl.count = acl.rules.size();
}

}  // namespace

LoadedAcl build_loaded_acl(RuleSet set, std::string file, std::string format, const std::string& algorithm,
                           TableTarget target) {
  LoadedAcl acl;
  acl.file = std::move(file);
  acl.format = std::move(format);
  acl.set = std::move(set);
  Progress progress(fmt::format("building {} over {}", algorithm, counted(acl.set.rules.size(), "rule")));
  progress.step(fmt::format("building {} over {}", algorithm, counted(acl.set.rules.size(), "rule")));
  const Stopwatch build;
  acl.image = std::make_shared<const Image>(need(build_acl(acl.set, algorithm, target)));
  acl.build_seconds = build.seconds();
  open_acl(acl);
  stop_if_interrupted();
  return acl;
}

LoadedAcl load_acl(InputSet& inputs, const std::string& path, const std::string& format, const std::string& algorithm,
                   TableTarget target) {
  const std::string name = check_acl_algorithm(algorithm);
  InputFile file = need(inputs.take(path), Exit::kIo);
  if (need(Image::is_next(file))) {
    LoadedAcl acl;
    acl.file = path;
    acl.format = "image";
    const Stopwatch load;
    acl.image = std::make_shared<const Image>(need(Image::read(file, ImageKind::kAcl)));
    open_acl(acl);
    acl.build_seconds = load.seconds();
    if (!algorithm.empty() && algorithm != kAclAuto && algorithm != acl.algorithm) {
      fail(Exit::kBadInput,
           fmt::format("{}: this image was compiled with the algorithm '{}', not '{}'", file.name(), acl.algorithm,
                       algorithm),
           "leave --algorithm out, or give the rule file instead of the image");
    }
    return acl;
  }
  const Stopwatch parse;
  inputs.put(path, std::move(file));
  std::string found, text;
  RuleSet set = read_rules(inputs, path, format, &found, &text);
  const double seconds = parse.seconds();
  LoadedAcl acl = build_loaded_acl(std::move(set), path, found, name, target);
  acl.text = std::move(text);
  acl.parse_seconds = seconds;
  return acl;
}

// -- routes ----------------------------------------------------------------------------------------------------------

LpmNames check_lpm_algorithms(const std::string& text, std::string_view option) {
  const auto all4 = lpm_algorithm_choices4(), all6 = lpm_algorithm_choices6();
  LpmNames names{kLpmAuto, kLpmAuto};
  const std::vector<std::string> given = split_commas(text);
  auto has = [](const std::vector<std::string>& in, const std::string& name) {
    return std::find(in.begin(), in.end(), name) != in.end();
  };
  auto unknown = [&](const std::string& name, const std::vector<std::string>& in, const char* family) {
    const std::string near = closest_match(name, in);
    fail(Exit::kUsage, fmt::format("{}: there is no {} route algorithm '{}'", option, family, name),
         near.empty() ? fmt::format("algorithms: {}", fmt::join(in, ", ")) : fmt::format("did you mean '{}'?", near));
  };
  if (given.size() > 2)
    fail(Exit::kUsage, fmt::format("{}: '{}' names more than two algorithms", option, text), "give A, or A4,A6");
  if (!given.empty()) {
    if (!has(all4, given[0])) unknown(given[0], all4, "IPv4");
    names.algorithm4 = given[0];
    // One name serves both families where it can.
    if (given.size() == 1 && has(all6, given[0])) names.algorithm6 = given[0];
  }
  if (given.size() == 2) {
    if (!has(all6, given[1])) unknown(given[1], all6, "IPv6");
    names.algorithm6 = given[1];
  }
  return names;
}

Rib read_routes(InputSet& inputs, const std::vector<std::string>& files, RouteReport* report) {
  RouteReport own;
  Rib rib = need(read_routes_files(files, &own, &inputs));
  print_warnings(own.warnings);
  if (report != nullptr) *report = std::move(own);
  return rib;
}

void open_routes(LoadedRoutes& routes) {
  const Image& image = *routes.image;
  routes.names = need(NextHopNames::open(image.section(SectionTag::kNextHopNames)));
  if (const ImageSection* s = image.find(SectionTag::kFib4)) routes.algorithm4 = section_algorithm(*s);
  if (const ImageSection* s = image.find(SectionTag::kFib6)) routes.algorithm6 = section_algorithm(*s);
  need(with_fib4(image, [&](const auto& view) {
    routes.lookup4 = [view](const uint32_t* a, uint32_t* out, size_t n) { view.lookup_bulk(a, out, n); };
  }));
  need(with_fib6(image, [&](const auto& view) {
    routes.lookup6 = [view](const uint64_t* hi, const uint64_t* lo, uint32_t* out, size_t n) {
      view.lookup_bulk(hi, lo, out, n);
    };
  }));
}

LoadedRoutes build_loaded_routes(Rib rib, std::vector<std::string> files, const std::string& algorithms) {
  const LpmNames names = check_lpm_algorithms(algorithms);
  LoadedRoutes routes;
  routes.files = std::move(files);
  routes.rib = std::move(rib);
  Progress progress("");
  progress.step(fmt::format("building {} and {} over {}", names.algorithm4, names.algorithm6,
                            counted(routes.rib.size(), "route")));
  const Stopwatch build;
  routes.image = std::make_shared<const Image>(need(build_routes(routes.rib, names.algorithm4, names.algorithm6)));
  routes.build_seconds = build.seconds();
  open_routes(routes);
  stop_if_interrupted();
  return routes;
}

LoadedRoutes load_routes(InputSet& inputs, const std::vector<std::string>& files, const std::string& algorithms) {
  const LpmNames names = check_lpm_algorithms(algorithms);
  if (files.empty()) fail(Exit::kUsage, "--routes: no file is given");
  for (const std::string& named : files) {
    const std::string path = path_of_route_file(named);
    InputFile input = need(inputs.take(path), Exit::kIo);
    const std::string file = input.name();
    if (!need(Image::is_next(input))) {
      inputs.put(path, std::move(input));
      continue;
    }
    if (files.size() > 1) {
      fail(Exit::kBadInput, fmt::format("{}: a compiled image cannot be joined with other route files", file),
           "compile all of them into one image");
    }
    LoadedRoutes routes;
    routes.files = files;
    routes.from_image = true;
    const Stopwatch load;
    routes.image = std::make_shared<const Image>(need(Image::read(input, ImageKind::kRoutes)));
    open_routes(routes);
    routes.build_seconds = load.seconds();
    auto other = [](const std::string& asked, const std::string& has) {
      return asked != kLpmAuto && asked != kLpmAutoGpu && asked != has;
    };
    if (!algorithms.empty() &&
        (other(names.algorithm4, routes.algorithm4) || other(names.algorithm6, routes.algorithm6))) {
      fail(Exit::kBadInput,
           fmt::format("{}: this image was compiled with the algorithms '{},{}', not '{},{}'", file, routes.algorithm4,
                       routes.algorithm6, names.algorithm4, names.algorithm6),
           "leave --algorithm out, or give the route files instead of the image");
    }
    return routes;
  }
  Progress progress("");
  progress.step("reading routes");
  const Stopwatch parse;
  RouteReport report;
  Rib rib = read_routes(inputs, files, &report);
  const double seconds = parse.seconds();
  progress.clear();
  LoadedRoutes routes = build_loaded_routes(std::move(rib), files, algorithms);
  routes.parse_seconds = seconds;
  routes.report = std::move(report);
  return routes;
}

uint32_t LoadedRoutes::lookup(const IpAddress& address) const {
  uint32_t next_hop = 0;
  if (address.family == 4) {
    const auto a = static_cast<uint32_t>(address.lo);
    lookup4(&a, &next_hop, 1);
  } else if (address.family == 6) {
    lookup6(&address.hi, &address.lo, &next_hop, 1);
  }
  return next_hop;
}

// --- packets ---

namespace {

class TraceKeys final : public KeySource {
 public:
  explicit TraceKeys(std::vector<FlowKey> keys) : keys_(std::move(keys)) {}
  void next(std::vector<FlowKey>& keys, size_t limit) override {
    const size_t n = std::min(limit, keys_.size() - at_);
    keys.assign(keys_.begin() + static_cast<ptrdiff_t>(at_), keys_.begin() + static_cast<ptrdiff_t>(at_ + n));
    at_ += n;
    ended = at_ == keys_.size();
  }

 private:
  std::vector<FlowKey> keys_;
  size_t at_ = 0;
};

class CaptureKeys final : public KeySource {
 public:
  explicit CaptureKeys(CaptureReader reader) : reader_(std::move(reader)) {}
  void next(std::vector<FlowKey>& keys, size_t limit) override {
    keys.clear();
    CapturedFrame frame;
    Headers headers;
    while (keys.size() < limit && !ended && !damage && !interrupted().load(std::memory_order_relaxed)) {
      auto more = reader_.next(frame);
      if (!more.ok()) {
        // What a signal does to a read is no damage.
        if (!interrupted().load(std::memory_order_relaxed)) damage = std::move(more).error();
        break;
      }
      ended = !*more;
      if (ended) break;
      const ParseStatus status = parse_ethernet(frame.data, frame.captured, frame.wire_bytes, headers);
      keys.push_back(status == ParseStatus::kOk ? headers.key : FlowKey{});
    }
  }

 private:
  CaptureReader reader_;
};

}  // namespace

std::unique_ptr<KeySource> open_trace(InputSet& inputs, const std::string& path) {
  InputFile file = need(inputs.take(path), Exit::kIo);
  const std::string text = need(file.text(kMaxTraceBytes));
  return std::make_unique<TraceKeys>(need(parse_trace(text, file.name())));
}
std::unique_ptr<KeySource> open_capture_keys(InputSet& inputs, const std::string& path) {
  return std::make_unique<CaptureKeys>(need(CaptureReader::open(need(inputs.take(path), Exit::kIo))));
}

void in_parallel(unsigned workers, size_t n, const std::function<void(size_t, size_t)>& f) {
  if (workers <= 1 || n < 4096) {
    f(0, n);
    return;
  }
  std::vector<std::jthread> threads;
  threads.reserve(workers);
  for (unsigned w = 0; w < workers; ++w) {
    // Shares begin at multiples of 32, the burst.
    const size_t begin = n * w / workers & ~size_t{31},
                 end = w + 1 == workers ? n : n * (w + 1) / workers & ~size_t{31};
    threads.push_back(need(start_thread([&f, begin, end] { f(begin, end); }), Exit::kIo));
  }
}

void add_list_options(Command sub, ListFiles& files) {
  for (const TableKind* kind : table_kinds()) {
    if (!kind->is_list()) continue;
    sub->add_option("--" + kind->option, "FILE", files[kind], fmt::format("Lines of a {}, or an image", kind->words));
  }
}

}  // namespace sluice::app
