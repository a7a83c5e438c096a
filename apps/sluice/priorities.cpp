// host only
#include "priorities.h"

#include <algorithm>

#include "control/command_text.h"
#include "control/json.h"

namespace sluice::app {

void add_priority_options(Command sub, PriorityFlags& flags) {
  auto on =
      sub.add_flag("--priorities", flags.on,
                   "Process packets in classes by DSCP (RFC 4594: telephony and control, assured, the rest), each with "
                   "its share of the workers; packets of one class leave in order, classes overtake each other");
  sub.add_option("--shares", flags.shares,
                 "With --priorities: shares of the workers, highest class first (default: half, then two thirds of the "
                 "rest)")
      ->delimiter(',')
      ->type_name("N,...")
      ->needs(on);
  sub.add_number("--chunk", "N", flags.chunk, "With --priorities: packets of one class that a worker takes at a time",
                 Range(1u, Batch::kMaxPackets))
      ->needs(on);
  sub.add_option("--chunk-timeout", "TIME", flags.timeout,
                 "With --priorities: longest time to fill a chunk (ns, us, ms, s)")
      ->capture_default_str()
      ->needs(on);
  sub.add_flag("--drop-when-full", flags.drop_when_full,
               "With --priorities: drop packets of a class that has no room (queue-full) instead of waiting")
      ->needs(on);
}

PriorityOptions priority_options(const PriorityFlags& flags, size_t classes) {
  PriorityOptions options;
  auto timeout = parse_duration(flags.timeout);
  if (!timeout.ok())
    fail(Exit::kUsage, fmt::format("--chunk-timeout: {}", timeout.error().message), timeout.error().hint);
  options.timeout_ns = *timeout;
  options.shares = flags.shares;
  options.chunk = flags.chunk;
  options.drop_when_full = flags.drop_when_full;
  if (!flags.shares.empty() && flags.shares.size() != classes) {
    fail(Exit::kUsage, fmt::format("--shares: {} shares do not fit {} classes", flags.shares.size(), classes),
         "give one for each class");
  }
  if (std::find(flags.shares.begin(), flags.shares.end(), 0u) != flags.shares.end())
    fail(Exit::kUsage, "--shares: a class without a share would starve", "give each at least 1");
  return options;
}

std::string class_lines(const RunReport& report) {
  uint32_t turns = 0;
  for (const auto& k : report.priorities) turns += k.turns;
  std::string text;
  for (size_t c = 0; c < report.priorities.size(); ++c) {
    const PriorityReport& k = report.priorities[c];
    text += fmt::format(
        "class  {}: {} packets, {} chunks ({} stolen, {} early), {}/{} of the workers, p50 {:.1f} us, "
        "p99 {:.1f} us",
        c, with_commas(k.packets), with_commas(k.chunks), with_commas(k.stolen), with_commas(k.early), k.turns, turns,
        static_cast<double>(k.latency.percentile(50)) * 1e-3, static_cast<double>(k.latency.percentile(99)) * 1e-3);
    if (k.refused != 0) text += fmt::format(", {} found no room", with_commas(k.refused));
    text += '\n';
  }
  return text;
}

Json classes_json(const RunReport& report) {
  Json all = Json::array();
  for (size_t c = 0; c < report.priorities.size(); ++c) {
    const PriorityReport& k = report.priorities[c];
    all.push_back({{"class", c},
                   {"packets", k.packets},
                   {"bytes", k.bytes},
                   {"refused", k.refused},
                   {"chunks", k.chunks},
                   {"stolen_chunks", k.stolen},
                   {"early_chunks", k.early},
                   {"turns", k.turns},
                   {"latency_ns",
                    {{"p50", k.latency.percentile(50)},
                     {"p99", k.latency.percentile(99)},
                     {"p999", k.latency.percentile(99.9)},
                     {"max", k.latency.max()}}}});
  }
  return all;
}

}  // namespace sluice::app
