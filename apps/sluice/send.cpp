// host only
// sluice send: the packets of a capture out of an interface.
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "app.h"
#include "base/input_file.h"
#include "control/json.h"
#include "inputs.h"
#include "port_flags.h"
#include "ports/interface.h"
#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_reader.h"
#include "ports/sender.h"

namespace sluice::app {
namespace {

struct SendFlags {
  std::string file, out, method, rate;
  bool as_timed = false, loop = false;
  uint64_t limit = 0;
};

// All packets of the capture; `cut`: those of which it has only a part. Ends with kIo or kBadInput.
FrameStore read_frames(const std::string& file, uint64_t& cut) {
  InputSet inputs = open_inputs({{"FILE", file}});
  auto reader = CaptureReader::open(need(take_input(&inputs, file), Exit::kIo));
  if (!reader) fail(Exit::kBadInput, std::move(reader).error());
  const auto ethernet = [&](LinkType link) {
    if (link == LinkType::kEthernet) return;
    fail(Exit::kBadInput, fmt::format("{}: its packets have no Ethernet headers: {}", file, to_string(link)),
         "let 'sluice run' write ones: a configuration with EtherEncap, to a capture that is sent then");
  };
  ethernet(reader->link());
  FrameStore frames;
  for (CapturedFrame frame;;) {
    stop_if_interrupted();
    if (!need(reader->next(frame))) break;
    ethernet(reader->frame_link());
    if (!frames.add(frame, frame.data)) fail(Exit::kIo, frames.error());
    cut += frame.captured < frame.wire_bytes ? 1 : 0;
  }
  if (frames.empty()) fail(Exit::kBadInput, fmt::format("{}: there are no packets in it", file));
  return frames;
}

Exit send(const SendFlags& flags) {
  SendOptions options;
  if (!flags.rate.empty()) read_rate(flags.rate, options);
  options.as_timed = flags.as_timed;
  options.loop = flags.loop;
  if (flags.limit != 0) options.limit = flags.limit;
  options.stop = &interrupted();
  uint64_t cut = 0;
  FrameStore frames = read_frames(flags.file, cut);
  if (cut != 0) {
    warn(fmt::format("{}: {} cut when captured; what there is of them is sent", flags.file,
                     cut == 1 ? "1 packet was" : with_commas(cut) + " packets were"));
  }
  const EndsInOrder in_order;
  PortOptions how = port_options(flags.out, flags.method);
  FrameShape shape = shape_for_mtu(mtu_of_interface(how.name));
  shape.chunks = 4096;
  auto pool = need(MappedFramePool::create(shape), Exit::kIo);
  how.receives = false;
  auto port = need(open_port(how, pool), Exit::kUnavailable);
  auto queue = need(port->open_tx(0), Exit::kUnavailable);
  Progress progress("sending");
  options.progress = [&](uint64_t packets) { progress.update(packets); };
  const SendReport report = send_frames(frames, *queue, options);
  progress.clear();
  const TxCounters counters = queue->counters();
  const PortFacts facts = port->facts();
  // What left: the port also takes packets that the kernel or the NIC then refuses.
  const uint64_t packets = counters.packets - std::min(counters.packets, report.in_flight);
  const double seconds = static_cast<double>(report.elapsed_ns) / 1e9;
  const double pps = seconds > 0 ? static_cast<double>(packets) / seconds : 0;
  const double bps = seconds > 0 ? static_cast<double>(counters.bytes) * 8 / seconds : 0;
  const uint64_t lost = counters.failed + report.in_flight;
  if (json_output()) {
    print_json({{"packets", packets},
                {"bytes", counters.bytes},
                {"seconds", seconds},
                {"packets_per_second", pps},
                {"bits_per_second", bps},
                {"failed", counters.failed},
                {"not_left", report.in_flight},
                {"full", report.full},
                {"late_ns", report.late_ns},
                {"interrupted", report.stopped},
                {"port",
                 {{"name", facts.name},
                  {"method", facts.method},
                  {"mode", facts.mode},
                  {"mtu", facts.mtu},
                  {"up", facts.up}}}});
  } else {
    std::string text = fmt::format("sent   {}, {} in {}: {}, {:.3g} Mbit/s\nport   {} ({}{}{}){}\n",
                                   counted(packets, "packet"), human_bytes(static_cast<double>(counters.bytes)),
                                   human_seconds(seconds), human_rate(pps, "packets"), bps / 1e6, facts.name,
                                   facts.method, facts.mode.empty() ? "" : ", ", facts.mode, facts.up ? "" : ", down");
    if (lost != 0) text += fmt::format("lost   {}: refused, or not gone a second later\n", counted(lost, "packet"));
    if (report.full != 0)
      text += fmt::format("full   {}: the port took fewer packets than it was given, and got them again\n",
                          counted(report.full, "time"));
    if (flags.as_timed || !flags.rate.empty())
      text += fmt::format("late   {} at most\n", human_seconds(static_cast<double>(report.late_ns) / 1e9));
    print_out(text);
  }
  if (lost != 0) {
    fail(Exit::kIo, fmt::format("{} did not leave {}", counted(lost, "packet"), facts.name),
         facts.up ? fmt::format("frames longer than its MTU of {} are refused: see 'ip link show'", facts.mtu)
                  : "the link is down");
  }
  // A loop has no other end.
  return report.stopped && !flags.loop ? Exit::kInterrupted : Exit::kOk;
}

}  // namespace

void add_send(Command root) {
  auto flags = std::make_shared<SendFlags>();
  Command sub = add_subcommand(
      root, "send", "Tools",
      "Replays a capture by an interface: at line rate, at a fixed rate or with its original timing.",
      "sluice send t.pcap --out eth0\nsluice send t.pcap.gz --out af_packet:eth0 --rate 100kpps --loop\nsluice send "
      "seen.pcap "
      "--out eth0 --as-timed",
      [flags] { return send(*flags); });
  sub.add_option("FILE", flags->file, "Capture to send, pcap or pcapng, plain or compressed ('-': stdin)")
      ->required()
      .type_name("FILE");
  sub.add_option("--out", flags->out, "Interface, or METHOD:DEVICE, to send by")->required().type_name("IF");
  add_method_option(sub, flags->method, "How the interface is opened");
  Option rate = add_rate_option(sub, flags->rate, "Packets or bits per second");
  sub.add_flag("--as-timed", flags->as_timed, "Keep the gaps between the capture's time stamps")->excludes(rate);
  sub.add_flag("--loop", flags->loop, "Begin again after the last packet, until --limit, SIGINT or SIGTERM");
  sub.add_option("--limit", "N", flags->limit, "Stop after this many packets")->check(Range(uint64_t{1}, ~uint64_t{0}));
}

}  // namespace sluice::app
