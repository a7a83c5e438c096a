// A finished run as JSON: what `sluice run -o json` prints.
// host only
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "elements/tables.h"
#include "exec/engine/run.h"
#include "graph/router.h"

namespace sluice {

// One object: packets_in, bytes_in, packets_out, bytes_out, generated, dropped, conserved, out {port: {packets,
// bytes}}, sinks, drops {reason: n} without zeros, elements, tables, latency_ns, seconds, generation, workers, device,
// batch {limit, latency_target_ns, raised, lowered}: how large batches were at the end, and how often that changed.
// packets_in + generated = packets_out + the sum of drops. With RunOptions::count_dscp, dscp_bytes as dscp_json.
nlohmann::ordered_json to_json(const RunReport& report, const Router& router, const TableReport& tables,
                               const std::string& device);

// {"0".."63" or "none": bytes} without zeros: what came in, without what --priorities refused.
nlohmann::ordered_json dscp_json(const WorkerStats& totals);
nlohmann::ordered_json to_json(const TableLoad& load);
// {"count", "sum", "buckets": [[n, samples of at most n], ...]} in ns: four buckets an octave from 1 us to 4 s, from
// which others compute any quantile.
nlohmann::ordered_json buckets_json(const Histogram& times);
// [{"element", "port", "rate_bps", "classes": [{"class", "rate_bps", "in", "out", "drops", "waiting", "queued",
// "queue_highest", "latency_ns"}]}]; a rate of 0 is none.
nlohmann::ordered_json to_json(const std::vector<QosPortReport>& ports);

// {"name", "method", "mode", "mtu", "up", "rx": [by queue], "tx", "closed", "link", "link_changes"}.
nlohmann::ordered_json to_json(const LivePortReport& port);

// An error as every JSON output has it: message, hint, diagnostics [{severity, file, line, column, length, source,
// message, expected, suggestion}].
nlohmann::ordered_json to_json(const Diagnostic& diagnostic);
nlohmann::ordered_json to_json(const Error& error);
// The way back; what is missing stays empty.
Error error_of(const nlohmann::ordered_json& error);

}  // namespace sluice
