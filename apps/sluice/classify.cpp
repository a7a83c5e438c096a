// sluice classify: the first matching rule of each packet.
// host only
#include <charconv>

#include "app.h"
#include "control/key_text.h"
#include "devices.h"
#include "inputs.h"
#include "lookup_results.h"

namespace sluice::app {
namespace {

struct ClassifyFlags {
  std::string rules, format = "auto", trace, capture, algorithm, out;
  DeviceFlags device;
  unsigned workers = 1;
  bool explain = false;
};

// What the rule says, and where it stands.
std::pair<std::string, std::string> rule_words(const LoadedAcl& acl, uint32_t rule) {
  if (rule == 0) return {"-", "no rule"};
  const AclAction action = acl.actions.action(rule);
  std::string place = fmt::format("rule {}", rule);
  if (acl.source.line(rule) != 0)
    place = fmt::format("{}:{} ({})", acl.source.file(rule), acl.source.line(rule), place);
  return {action.verb == AclVerb::kDeny   ? "deny"
          : action.verb == AclVerb::kMark ? fmt::format("mark {}", action.mark)
                                          : "permit",
          place};
}

void classify_on_host(const LoadedAcl& acl, unsigned workers, const std::vector<FlowKey>& keys,
                      std::vector<uint32_t>& found) {
  in_parallel(workers, keys.size(), [&](size_t begin, size_t end) {
    const FlowKey* burst[kAclBurst];
    uint32_t rules[kAclBurst];
    uint32_t where[kAclBurst];
    size_t n = 0;
    auto flush = [&] {
      acl.view.lookup_burst(burst, rules, n);
      for (size_t i = 0; i < n; ++i) found[where[i]] = rules[i];
      n = 0;
    };
    for (size_t i = begin; i < end; ++i) {
      if (keys[i].family == 0) continue;  // not IP: no rule
      burst[n] = &keys[i];
      where[n++] = static_cast<uint32_t>(i);
      if (n == kAclBurst) flush();
    }
    if (n != 0) flush();
  });
}

void add_rule(LookupResults& results, uint32_t rule) {
  if (results.inside) {
    results.list.push_back(rule);
    return;
  }
  char digits[12];
  char* end = std::to_chars(digits, digits + sizeof digits, rule).ptr;
  *end++ = '\n';
  results.lines.append(digits, end);
}

// With --explain-all. `number`: of the packet, from 1.
void add_explained(LookupResults& results, const LoadedAcl& acl, uint64_t number, const FlowKey& key, uint32_t rule) {
  const auto [action, place] = rule_words(acl, rule);
  if (!results.inside) {
    results.lines += fmt::format("{}\t{}\t{}\t{}\n", number, five_tuple(key), action, place);
    return;
  }
  results.list.push_back({{"number", number}, {"packet", five_tuple(key)}, {"action", action}, {"rule", rule}});
  if (rule != 0 && acl.source.line(rule) != 0) {
    results.list.back()["file"] = acl.source.file(rule);
    results.list.back()["line"] = acl.source.line(rule);
  }
}

Exit classify(const ClassifyFlags& o) {
  exactly_one(!o.trace.empty(), !o.capture.empty(), "--trace or --in");
  LookupResults results(o.out);
  RunFiles files = command_files();
  files.input("--rules", o.rules);
  files.input("--trace", o.trace);
  files.input("--in", o.capture);
  results.declare(files);
  check_files(files);
  check_acl_algorithm(o.algorithm);
  const OpenDevices devices = open_devices(o.device);
  InputSet inputs = open_inputs({{"--rules", o.rules}, {"--trace", o.trace}, {"--in", o.capture}});
  const LoadedAcl acl = load_acl(inputs, o.rules, o.format, o.algorithm, table_target(devices));
  auto source = o.trace.empty() ? open_capture_keys(inputs, o.capture) : open_trace(inputs, o.trace);

  std::unique_ptr<DeviceLookup> on_device;
  std::vector<KeyResult> results_of;
  if (!devices.options.devices.empty()) {
    TableSet tables;
    tables.acls["rules"] = acl.image;
    on_device = std::make_unique<DeviceLookup>(devices, "ACL(TABLE rules)", std::move(tables));
  }

  for (const std::string& included : acl.set.files) files.input("--rules", included);
  check_files(files);
  results.begin(devices.label);
  uint64_t packets = 0, matched = 0;
  double seconds = 0;
  std::vector<FlowKey> keys;
  std::vector<uint32_t> found;
  Progress progress("classifying");
  // A signal is looked for between blocks, so that slow lookups get small ones.
  size_t block = std::min<size_t>(kKeyBlock, 1024);
  while (true) {
    source->next(keys, block);
    if (keys.empty()) break;
    found.assign(keys.size(), 0);
    const Stopwatch lookup;
    if (on_device != nullptr && on_device->run(keys, results_of)) {
      // What is not IP has no rule.
      for (size_t i = 0; i < keys.size(); ++i) found[i] = keys[i].family == 0 ? 0 : results_of[i].rule;
    } else {
      classify_on_host(acl, o.workers, keys, found);
    }
    const double took = lookup.seconds();
    block = std::clamp<size_t>(took > 0.1 ? block / 4 : took < 0.02 ? block * 4 : block, 16, kKeyBlock);
    seconds += took;
    for (size_t i = 0; i < found.size(); ++i) {
      matched += found[i] != 0 ? 1 : 0;
      if (o.explain) {
        add_explained(results, acl, packets + i + 1, keys[i], found[i]);
      } else {
        add_rule(results, found[i]);
      }
    }
    packets += keys.size();
    if (!results.write()) break;
    progress.update(packets);
    if (interrupted().load(std::memory_order_relaxed)) break;
  }
  progress.clear();
  const bool partial = source->damage || (interrupted().load() && !source->ended);
  const double rate = seconds > 0 ? static_cast<double>(packets) / seconds : 0;
  return results.end(partial, source->damage,
                     {{"packets", packets},
                      {"matched", matched},
                      {"seconds", seconds},
                      {"packets_per_second", rate},
                      {"algorithm", acl.algorithm},
                      {"device", devices.label},
                      {"workers", o.workers},
                      {"rules", acl.count},
                      {"format", acl.format},
                      {"parse_seconds", acl.parse_seconds},
                      {"build_seconds", acl.build_seconds},
                      {"partial", partial}},
                     fmt::format("{}, {} matched, {} ({}), {}, {} on {}", counted(packets, "packet"),
                                 with_commas(matched), human_seconds(seconds), human_rate(rate, "packets"),
                                 counted(acl.count, "rule"), acl.algorithm, devices.label));
}

}  // namespace

void add_classify(Command root) {
  auto o = std::make_shared<ClassifyFlags>();
  Command sub =
      add_subcommand(root, "classify", "Tables and packets",
                     "Prints the first matching rule of each packet: one line per packet, in order, with the rule's "
                     "position\n(from 1; comments and blank lines do not count) or 0. A frame that is not IP, or "
                     "damaged, gets 0.\nA native line with lists or groups counts as several rules.",
                     "sluice classify --rules fw.rules --trace fw.trace --out verdicts.txt\n"
                     "sluice classify --rules edge.acl --in traffic.pcap --algorithm linear\n"
                     "sluice classify --rules edge.acl --in traffic.pcap --explain-all\n"
                     "sluice classify --rules edge.img --trace - -o json < trace.txt",
                     [o] { return classify(*o); });
  sub->add_option("--rules", "FILE", o->rules,
                  "Rule file of any format, plain or compressed, or an image from `sluice compile`")
      ->required();
  add_acl_options(*sub, o->format, o->algorithm);
  sub->add_option(
      "--trace", "FILE", o->trace,
      "ClassBench trace: sip dip sport dport proto [[word] rule], in decimal; the flags are the upper half of word");
  sub->add_option("--in", "PCAP", o->capture, "Capture: pcap or pcapng, plain or compressed");
  sub->add_option("--out", "FILE", o->out, "Output file (default: stdout), created when complete");
  sub->add_flag("--explain-all", o->explain,
                "Longer lines, tab-separated: packet number, five-tuple, action, rule with file and line; '-' if a "
                "frame is not IP or no rule matches");
  add_device_options(*sub, o->device, false);
  add_workers_option(*sub, o->workers);
}

}  // namespace sluice::app
