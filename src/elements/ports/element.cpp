// host only
#include <fmt/format.h>

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
    if (arguments.has("LIMIT")) spec_.limit = arguments.get_uint("LIMIT");
    spec_.stop_when_done = arguments.get_bool("STOP");
    if (arguments.get_bool("TIMING")) {
      Diagnostic d = arguments.error_at("TIMING", "packets are read as fast as they are taken; TIMING has no effect");
      d.severity = Diagnostic::Severity::kWarning;
      diagnostics.add(std::move(d));
    }
    if (arguments.get_bool("FORCE_IP")) {
      Diagnostic d =
          arguments.error_at("FORCE_IP", "packets start with their link header here; FORCE_IP cannot be had");
      d.suggestion = "put IPInput behind FromDump, or Strip(14) and CheckIPHeader";
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
    if (arguments.has("LIMIT")) spec_.limit = arguments.get_uint("LIMIT");
  }
  ElementKind kind() const override { return ElementKind::kSource; }
  bool output_optional(unsigned) const override { return false; }
};

class InfiniteSource final : public PortElement {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    spec_.type = PortSpec::Type::kPattern;
    const std::string& data = arguments.get_string("DATA");
    spec_.pattern.assign(data.begin(), data.end());
    if (spec_.pattern.empty()) {
      spec_.pattern.resize(64);
      for (size_t i = 0; i < 64; ++i) spec_.pattern[i] = static_cast<uint8_t>(i);
    }
    if (arguments.has("LENGTH")) spec_.pattern.resize(arguments.get_uint("LENGTH"));
    const int64_t limit = arguments.get_int("LIMIT");
    if (limit >= 0) spec_.limit = static_cast<uint64_t>(limit);
    if (!arguments.get_bool("ACTIVE")) spec_.limit = 0;
    if (arguments.has("BURST")) spec_.burst = static_cast<uint32_t>(arguments.get_uint("BURST"));
    spec_.stop_when_done = arguments.get_bool("STOP");
  }
  ElementKind kind() const override { return ElementKind::kSource; }
  bool output_optional(unsigned) const override { return false; }
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

}  // namespace

void register_ports(Registry& registry) {
  const ArgumentSpec limit{
      .name = "LIMIT", .kind = ArgumentKind::kUint, .unit = "packets", .help = "stop after this many"};
  const ArgumentSpec stop{.name = "STOP",
                          .kind = ArgumentKind::kBool,
                          .default_text = "true",
                          .help = "accepted for Click's sake: a run ends when every source is done"};
  ElementClass from_dump;
  from_dump.name = "FromDump";
  from_dump.group = "Ports";
  from_dump.summary = "reads packets from a capture file";
  from_dump.description = "pcap or pcapng, plain or gzip, microseconds or nanoseconds; Ethernet.";
  from_dump.arguments = {
      {.name = "FILE", .kind = ArgumentKind::kFilename, .positional = true, .mandatory = true, .help = "the capture"},
      limit,
      {.name = "SKIP",
       .kind = ArgumentKind::kUint,
       .default_text = "0",
       .unit = "packets",
       .help = "packets to leave out at the start"},
      stop,
      {.name = "TIMING",
       .kind = ArgumentKind::kBool,
       .default_text = "false",
       .help = "true has no effect and is warned about"},
      {.name = "FORCE_IP", .kind = ArgumentKind::kBool, .default_text = "false", .help = "refused when true"},
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

  ElementClass from_memory;
  from_memory.name = "FromMemory";
  from_memory.group = "Ports";
  from_memory.summary = "replays a capture from memory";
  from_memory.description =
      "The whole capture is read before the run and played again and again up to LIMIT packets; default: once.";
  from_memory.arguments = {
      {.name = "FILE", .kind = ArgumentKind::kFilename, .positional = true, .mandatory = true, .help = "the capture"},
      limit};
  from_memory.inputs = {0, 0};
  from_memory.example = "FromMemory(in.pcap, LIMIT 1000000) -> IPInput -> ToMemory;";
  from_memory.make = make_element<FromMemory>();
  registry.add(std::move(from_memory));

  ElementClass infinite;
  infinite.name = "InfiniteSource";
  infinite.group = "Ports";
  infinite.summary = "makes one packet again and again";
  infinite.description = "Time stamps are one microsecond apart and start at 0. Without LIMIT it never ends.";
  infinite.arguments = {
      {.name = "DATA",
       .kind = ArgumentKind::kBytes,
       .positional = true,
       .unit = "bytes",
       .help = "the packet; default: bytes 0 to 63",
       .max = 65535},
      {.name = "LIMIT",
       .kind = ArgumentKind::kInt,
       .positional = true,
       .default_text = "-1",
       .unit = "packets",
       .help = "how many; -1: without end",
       .min = -1},
      {.name = "BURST",
       .kind = ArgumentKind::kUint,
       .positional = true,
       .unit = "packets",
       .help = "packets a batch; default: the batch size",
       .min = 1,
       .max = 4096},
      {.name = "ACTIVE",
       .kind = ArgumentKind::kBool,
       .positional = true,
       .default_text = "true",
       .help = "false: make nothing"},
      {.name = "LENGTH",
       .kind = ArgumentKind::kUint,
       .unit = "bytes",
       .help = "cut DATA to this length, or fill it up with zeros",
       .min = 1,
       .max = 65535},
      stop,
  };
  infinite.inputs = {0, 0};
  infinite.example = "InfiniteSource(DATA \\<00 00 c0 ae 67 ef 00 00 00 00 00 00 08 00>, LIMIT 5) -> Print -> Discard;";
  infinite.make = make_element<InfiniteSource>();
  registry.add(std::move(infinite));

  ElementClass to_dump;
  to_dump.name = "ToDump";
  to_dump.group = "Ports";
  to_dump.summary = "writes packets to a capture file";
  to_dump.description = "pcap. The file appears under its name when the run ends well, and not before.";
  to_dump.arguments = {
      {.name = "FILE", .kind = ArgumentKind::kFilename, .positional = true, .mandatory = true, .help = "the capture"},
      {.name = "SNAPLEN",
       .kind = ArgumentKind::kUint,
       .default_text = "0",
       .unit = "bytes",
       .help = "how much of each packet; 0: all",
       .min = 0,
       .max = 262144},
      {.name = "NANO", .kind = ArgumentKind::kBool, .default_text = "true", .help = "time stamps in nanoseconds"},
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

  ElementClass to_memory;
  to_memory.name = "ToMemory";
  to_memory.group = "Ports";
  to_memory.summary = "counts packets as sent, and forgets them";
  to_memory.description = "For benchmarks: the end of a graph that FromMemory starts.";
  to_memory.outputs = {0, 0};
  to_memory.example = "FromMemory(in.pcap) -> IPInput -> ToMemory;";
  to_memory.make = make_element<ToMemory>();
  registry.add(std::move(to_memory));

  ElementClass discard;
  discard.name = "Discard";
  discard.group = "Basics";
  discard.summary = "drops packets";
  discard.description = "A packet that came from an error output keeps its reason.";
  discard.outputs = {0, 0};
  discard.drops = {DropReason::kDiscard};
  discard.example = "c[2] -> Discard;";
  discard.make = make_element<Discard>();
  registry.add(std::move(discard));
}

}  // namespace sluice
