// host only
#include <fmt/format.h>

#include "elements/made_packets.h"
#include "elements/stage_element.h"
#include "graph/router.h"

namespace sluice {
namespace {

class PortElement : public Element {
 public:
  PortSpec port() const override { return spec_; }

 protected:
  PortSpec spec_;
};

class FromDump final : public PortElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    spec_.type = PortSpec::Type::kCapture;
    spec_.path = arguments.get_string("FILE");
    spec_.start = arguments.get_uint("SKIP");
    spec_.fills_lengths = arguments.get_bool("TSO");
    if (arguments.has("LIMIT")) spec_.limit = arguments.get_uint("LIMIT");
    spec_.stop_when_done = arguments.has("STOP") && arguments.get_bool("STOP");
    if (arguments.get_bool("TIMING")) {
      Diagnostic d =
          arguments.error_at("TIMING", "packets are read as fast as they are processed; TIMING has no effect");
      d.severity = Diagnostic::Severity::kWarning;
      diagnostics.add(std::move(d));
    }
    if (arguments.get_bool("FORCE_IP")) {
      Diagnostic d =
          arguments.error_at("FORCE_IP", "packets start with their link header here; FORCE_IP is not supported");
      d.suggestion = "put IPInput after FromDump, or Strip(14) and CheckIPHeader";
      diagnostics.add(std::move(d));
    }
    for (const char* option : {"START", "START_AFTER", "END", "END_AFTER", "INTERVAL"}) {
      if (!arguments.has(option)) continue;
      Diagnostic d =
          arguments.error_at(option, fmt::format("{} chooses packets by time, which is not supported", option));
      d.suggestion = "SKIP and LIMIT choose packets by number";
      diagnostics.add(std::move(d));
    }
  }
  ElementKind kind() const override { return ElementKind::kSource; }
  bool output_optional(unsigned) const override { return false; }
};

class FromMemory final : public PortElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    spec_.type = PortSpec::Type::kMemory;
    spec_.path = arguments.get_string("FILE");
    spec_.fills_lengths = arguments.get_bool("TSO");
    if (arguments.has("LIMIT")) spec_.limit = arguments.get_uint("LIMIT");
  }
  ElementKind kind() const override { return ElementKind::kSource; }
  bool output_optional(unsigned) const override { return false; }
};

// A batch source; packet by packet in the scheduler.
class InfiniteSource final : public PortElement, public Flow {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    made_.configure(arguments);
    spec_.type = PortSpec::Type::kPattern;
    spec_.pattern = made_.data;
    if (made_.limit >= 0) spec_.limit = static_cast<uint64_t>(made_.limit);
    if (!made_.active) spec_.limit = 0;
    if (arguments.has("BURST")) spec_.burst = burst_ = static_cast<uint32_t>(arguments.get_uint("BURST"));
  }
  ElementKind kind() const override { return ElementKind::kSource; }
  bool output_optional(unsigned) const override { return false; }

  Flow* flow() override { return this; }
  Time time() const override { return Time::kMakes; }
  Result<void> start(FlowContext& context) override {
    if (context.pushes(0)) context.wake();
    return {};
  }
  bool task(FlowContext& context) override {
    uint32_t made = 0;
    for (; made < burst_ && context.pushes(0) && !context.full_below(0); ++made) {
      PacketBox packet = made_.next(context);
      if (packet == nullptr) break;
      if (context.packet_time()) {
        // As in batches.
        packet->timestamp_ns = stamped_++ * 1000;
        (void)context.comes(packet->timestamp_ns);
      }
      context.push(0, std::move(packet));
    }
    return made != 0;
  }
  void take(FlowContext&, Flow& from) override { made_.count = static_cast<const InfiniteSource&>(from).made_.count; }
  PacketBox pull(FlowContext& context, unsigned) override { return made_.next(context); }
  std::vector<Handler> handlers() override {
    const auto woken = [](FlowContext& context) { context.wake(); };
    std::vector<Handler> all = made_.handlers(woken);
    all.push_back(value_handler("burst", &burst_, kBurst, woken));
    return all;
  }

  static inline const ArgumentSpec kBurst{.name = "BURST",
                                          .kind = ArgumentKind::kUint,
                                          .positional = true,
                                          .unit = "packets",
                                          .help = "packets per batch; default: the batch size, and 1 among queues",
                                          .min = 1,
                                          .max = Batch::kMaxPackets};

 private:
  MadePackets made_;
  uint32_t burst_ = 1;
  uint64_t stamped_ = 0;  // packets
};

class ToDump final : public PortElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    spec_.type = PortSpec::Type::kCapture;
    spec_.path = arguments.get_string("FILE");
    spec_.snaplen = static_cast<uint32_t>(arguments.get_uint("SNAPLEN"));
    spec_.nanosecond = arguments.get_bool("NANO");
  }
  ElementKind kind() const override { return ElementKind::kSink; }
};

class ToMemory final : public PortElement {
 public:
  ToMemory() { spec_.type = PortSpec::Type::kMemory; }
  ElementKind kind() const override { return ElementKind::kSink; }
};

class Discard final : public PortElement {
 public:
  ElementKind kind() const override { return ElementKind::kSink; }
};

const ArgumentSpec kCaptureFile{
    .name = "FILE", .kind = ArgumentKind::kFilename, .positional = true, .mandatory = true, .help = "the capture"};

void register_sources(Registry& registry) {
  const ArgumentSpec limit{
      .name = "LIMIT", .kind = ArgumentKind::kUint, .unit = "packets", .help = "stop after this many"};
  const ArgumentSpec stop = bool_argument(
      "STOP", "true",
      "if given, and among queues: the end of this source ends the run; else a run ends when every source is done");
  const ArgumentSpec tso = bool_argument(
      "TSO", "false",
      "true: an IPv4 total length or IPv6 payload length of 0, which captures have of packets that a NIC was to "
      "cut (TSO), becomes that of the frame, and the IPv4 checksum right");
  ElementClass from_dump{.name = "FromDump", .group = "Ports", .summary = "reads packets from a capture file"};
  from_dump.description =
      "pcap or pcapng, plain or compressed, microseconds or nanoseconds; Ethernet, Linux cooked (v1, v2), raw IP, BSD "
      "null and loop, PPP, also several in one pcapng file.";
  from_dump.arguments = {
      kCaptureFile,
      limit,
      {.name = "SKIP",
       .kind = ArgumentKind::kUint,
       .default_text = "0",
       .unit = "packets",
       .help = "packets to leave out at the start"},
      stop,
      tso,
      bool_argument("TIMING", "false", "true has no effect, with a warning"),
      bool_argument("FORCE_IP", "false", "refused when true"),
      {.name = "START", .kind = ArgumentKind::kRaw, .help = "refused"},
      {.name = "START_AFTER", .kind = ArgumentKind::kRaw, .help = "refused"},
      {.name = "END", .kind = ArgumentKind::kRaw, .help = "refused"},
      {.name = "END_AFTER", .kind = ArgumentKind::kRaw, .help = "refused"},
      {.name = "INTERVAL", .kind = ArgumentKind::kRaw, .help = "refused"},
  };
  from_dump.inputs = {0, 0};
  from_dump.example = "FromDump(in.pcap) -> IPInput -> ToDump(out.pcap);";
  from_dump.make = make_element<FromDump>();
  registry.add(std::move(from_dump));

  ElementClass from_memory{.name = "FromMemory", .group = "Ports", .summary = "replays a capture from memory"};
  from_memory.description =
      "The whole capture is read before the run and replayed up to LIMIT packets; default: once.\nEach repetition's "
      "timestamps are shifted by the capture's duration: first timestamp to last, plus a mean gap.";
  from_memory.arguments = {kCaptureFile, limit, tso};
  from_memory.inputs = {0, 0};
  from_memory.example = "FromMemory(in.pcap, LIMIT 1000000) -> IPInput -> ToMemory;";
  from_memory.make = make_element<FromMemory>();
  registry.add(std::move(from_memory));

  ElementClass infinite{.name = "InfiniteSource", .group = "Ports", .summary = "generates copies of one packet"};
  infinite.description =
      "Timestamps are one microsecond apart and start at 0. Without LIMIT it never ends. Among queues packets are made "
      "one at a time, at the run's time, while a queue downstream has room. Handlers: `count`, `reset` (makes LIMIT "
      "packets more), `limit`, `burst`, `active`, `data`, `length`.";
  infinite.arguments = {made_data_argument(),   made_limit_argument(),  InfiniteSource::kBurst,
                        made_active_argument(), made_length_argument(), stop};
  infinite.inputs = {0, 0};
  infinite.example = "InfiniteSource(DATA \\<00 00 c0 ae 67 ef 00 00 00 00 00 00 08 00>, LIMIT 5) -> Print -> Discard;";
  infinite.make = make_element<InfiniteSource>();
  registry.add(std::move(infinite));
}

void register_sinks(Registry& registry) {
  ElementClass to_dump{.name = "ToDump", .group = "Ports", .summary = "writes packets to a capture file"};
  to_dump.description = "pcap. The file is created under its name only if the run succeeds.";
  to_dump.arguments = {
      kCaptureFile,
      {.name = "SNAPLEN",
       .kind = ArgumentKind::kUint,
       .default_text = "0",
       .unit = "bytes",
       .help = "how much of each packet; 0: all",
       .min = 0,
       .max = 262144},
      bool_argument("NANO", "true", "timestamps in nanoseconds"),
      {.name = "ENCAP",
       .kind = ArgumentKind::kChoice,
       .default_text = "ETHER",
       .help = "the link type",
       .choices = {"ETHER"}},
  };
  to_dump.outputs = {0, 0};
  to_dump.drops = {DropReason::kOutputFailed};
  to_dump.example = "in -> ToDump(out.pcap, SNAPLEN 128);";
  to_dump.make = make_element<ToDump>();
  registry.add(std::move(to_dump));

  ElementClass to_memory{.name = "ToMemory", .group = "Ports", .summary = "counts packets as sent and frees them"};
  to_memory.description = "For benchmarks: the end of a graph that FromMemory starts.";
  to_memory.outputs = {0, 0};
  to_memory.example = "FromMemory(in.pcap) -> IPInput -> ToMemory;";
  to_memory.make = make_element<ToMemory>();
  registry.add(std::move(to_memory));

  ElementClass discard{.name = "Discard", .group = "Basics", .summary = "drops packets"};
  discard.description = "A packet from an error output keeps its reason.";
  discard.outputs = {0, 0};
  discard.drops = {DropReason::kDiscard};
  discard.example = "c[2] -> Discard;";
  discard.make = make_element<Discard>();
  registry.add(std::move(discard));
}

}  // namespace

void register_ports(Registry& registry) {
  register_sources(registry);
  register_sinks(registry);
}

}  // namespace sluice
