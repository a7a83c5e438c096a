// sluice flows: the connections of a capture.
// host only
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app.h"
#include "confine.h"
#include "control/flow_text.h"
#include "control/json.h"
#include "flows/flow_table.h"
#include "inputs.h"
#include "net/parse.h"
#include "ports/pcap/capture_reader.h"

namespace sluice::app {
namespace {

struct FlowsFlags {
  std::string in, out;
  uint64_t most = 1u << 24;
  double timeout_s = 0;
};

// By the ending of the output's name.
enum class Form : uint8_t { kTabs, kCommas, kJson };

Form form_of(const std::string& out) {
  if (out.ends_with(".parquet"))
    fail(Exit::kUsage, fmt::format("--out {}: Parquet is not written here", out),
         "in Python: pyarrow.parquet.write_table(sluice.flows(\"a.pcap\"), \"flows.parquet\")");
  return out.ends_with(".csv") ? Form::kCommas : out.ends_with(".json") ? Form::kJson : Form::kTabs;
}

std::string heading(Form form) {
  return form == Form::kCommas
             ? "protocol,src,sport,dst,dport,packets,reply_packets,bytes,reply_bytes,start,end,state\n"
             : "#protocol\tsrc\tsport\tdst\tdport\tpackets\treply packets\tbytes\treply bytes\tstart\tend\tstate\n";
}

std::string line_of(const FlowEntry& e, Form form) {
  const Json j = flow_json(e);
  const auto number = [&](const char* what, size_t i) { return fmt::to_string(j[what][i].get<uint64_t>()); };
  const auto word = [&](const char* what) { return j[what].get<std::string>(); };
  const auto port = [&](const char* what) { return fmt::to_string(j[what].get<unsigned>()); };
  const auto time = [&](const char* what) { return fmt::format("{:.9f}", j[what].get<double>()); };
  const std::string words[] = {word("protocol"),   word("src"),          port("sport"),        word("dst"),
                               port("dport"),      number("packets", 0), number("packets", 1), number("bytes", 0),
                               number("bytes", 1), time("start"),        time("end"),          word("state")};
  return fmt::format("{}\n", fmt::join(words, form == Form::kCommas ? "," : "\t"));
}

FlowTable::Options table_of(const FlowsFlags& o) {
  FlowTable::Options options;
  options.capacity = static_cast<uint32_t>(o.most);
  options.counts_all = true;
  if (o.timeout_s == 0) return options;
  FlowTimeouts& t = options.timeouts;
  const auto all = static_cast<uint64_t>(o.timeout_s * 1e9);
  for (uint64_t* const one : {&t.tcp_opening, &t.tcp_received, &t.tcp_established, &t.tcp_closing, &t.tcp_last_ack,
                              &t.tcp_closed, &t.udp_single, &t.udp, &t.icmp, &t.other}) {
    *one = all;
  }
  return options;
}

Json document(const std::vector<FlowEntry>& flows, Json summary) {
  Json list = Json::array();
  for (const FlowEntry& e : flows) list.push_back(flow_json(e));
  summary["flows"] = std::move(list);
  return summary;
}

void write(AtomicFile& file, Form form, const std::vector<FlowEntry>& flows, const Json& summary) {
  if (form == Form::kJson) {
    file.write(document(flows, summary).dump(1) + "\n");
    return;
  }
  file.write(heading(form));
  for (const FlowEntry& e : flows) file.write(line_of(e, form));
}

Exit flows(const FlowsFlags& o) {
  const bool inside = json_output() && o.out.empty();
  const Form form = form_of(o.out);
  RunFiles files = command_files();
  files.input("--in", o.in);
  if (!inside) output_file(files, o.out);
  check_files(files);
  InputSet inputs = open_inputs({{"--in", o.in}});
  CaptureReader reader = need(CaptureReader::open(need(inputs.take(o.in), Exit::kIo)));
  const EndsInOrder in_order;
  AtomicFile file;
  if (!inside) file = need(AtomicFile::create(o.out.empty() ? "-" : o.out), Exit::kIo);
  refuse_calls();
  refuse_files({}, {o.out});

  std::vector<FlowEntry> found;
  FlowTable table(table_of(o));
  table.on_end([&](const FlowEntry& e) { found.push_back(e); });
  uint64_t packets = 0, others = 0, now_ns = 0;
  std::optional<Error> damage;
  Progress progress("reading");
  CapturedFrame frame;
  Headers headers;
  while (!interrupted().load(std::memory_order_relaxed)) {
    auto more = reader.next(frame);
    if (!more.ok() && !interrupted().load(std::memory_order_relaxed)) damage = std::move(more).error();
    if (!more.ok() || !*more) break;
    ++packets;
    now_ns = std::max(now_ns, frame.timestamp_ns);
    TrackedPacket p;
    if (parse_ethernet(frame.data, frame.captured, frame.wire_bytes, headers) == ParseStatus::kOk)
      p = tracked_packet(headers.key, frame.data, headers.l3_offset, headers.l4_offset, frame.captured);
    const auto answer = table.take(p, table.hash(p.ends), frame.wire_bytes, now_ns, [] { return true; });
    if (answer.refused == FlowTable::Refused::kFull)
      fail(Exit::kBadInput, fmt::format("more than {} connections at a time", with_commas(o.most)),
           "give a larger --most");
    // Errors and later fragments belong to a connection without being counted as its packets.
    if (p.kind == TrackedPacket::Kind::kInvalid || p.kind == TrackedPacket::Kind::kError ||
        p.kind == TrackedPacket::Kind::kLaterFragment) {
      ++others;
    }
    if (packets % 4096 == 0) progress.update(packets);
  }
  progress.clear();
  table.clear();
  std::ranges::sort(found, {}, &FlowEntry::number);
  const bool partial = damage.has_value() || interrupted().load();
  const Ending ending = partial ? Ending::kPartial : Ending::kWhole;
  const std::string place = inside ? std::string() : file.path_of(ending);
  Json json{{"packets", packets}, {"flows_found", found.size()}, {"other_packets", others}, {"partial", partial}};
  if (!inside) {
    write(file, form, found, json);
    need(file.commit(ending), Exit::kIo);
  } else {
    json = document(found, std::move(json));
  }
  if (json_output()) {
    print_json(json);
  } else {
    note(fmt::format("{}, {}; {} of none", counted(packets, "packet"), counted(found.size(), "connection"),
                     counted(others, "packet")));
  }
  return partial ? end_partial({place}, damage) : Exit::kOk;
}

}  // namespace

void add_flows(Command root) {
  auto o = std::make_shared<FlowsFlags>();
  Command sub = add_subcommand(
      root, "flows", "Tables and packets",
      "Lists the connections of a capture, in the order of their first packets: one line each, tab-separated (a file "
      "whose name ends in .csv: by commas; in .json: as -o json does), with packets and bytes of both directions.\nThe "
      "source is the end that sent the first packet. Times are in seconds. A "
      "connection ends by RFC 5382's and RFC 4787's timeouts (2 hours 4 minutes for established TCP, 2 minutes for "
      "UDP), "
      "or by --timeout.\nBytes are those of whole frames. ICMP errors and later fragments are counted apart.",
      "sluice flows --in a.pcap\n"
      "sluice flows --in a.pcap -o json | jq '.flows[0]'\n"
      "sluice flows --in a.pcap.zst --out flows.csv --timeout 60",
      [o] { return flows(*o); });
  sub->add_option("--in", o->in, "Capture: pcap or pcapng, plain or compressed")->required()->type_name("PCAP");
  sub->add_option("--out", o->out, "Output file (default: stdout), created when complete")->type_name("FILE");
  sub->add_option("--timeout", o->timeout_s, "Seconds without a packet that end a connection of any kind")
      ->check(Range(1e-3, 1e9))
      ->type_name("S");
  sub->add_option("--most", o->most, "Connections at a time, at most")->check(Range(1, 1 << 28))->type_name("N");
}

}  // namespace sluice::app
