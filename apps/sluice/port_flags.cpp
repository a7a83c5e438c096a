// host only
#include "port_flags.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <tuple>

#include "control/json.h"
#include "elements/register_all.h"
#include "formats/qos_text.h"
#include "graph/click/config_text.h"
#include "graph/click/syntax.h"
#include "graph/router.h"
#include "inputs.h"
#include "pipeline.h"
#include "ports/interface.h"
#include "ports/methods.h"
#include "ports/port.h"

namespace sluice::app {
namespace {

DeviceArguments arguments_of(const std::string& method, const std::string& device, const PortFlags& flags) {
  std::string both = quote(device);
  if (!method.empty()) both += ", METHOD " + method;
  if (flags.queues != 0) both += fmt::format(", QUEUES {}", flags.queues);
  return {both + (flags.promiscuous ? ", PROMISC true" : ""), both};
}

// Cores of "2-5,8". Ends with kUsage.
std::vector<unsigned> parse_cores(const std::string& text) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  (void)::sched_getaffinity(0, sizeof mine, &mine);
  std::vector<unsigned> cores;
  const auto wrong = [&](const std::string& why) {
    fail(Exit::kUsage, fmt::format("--cores '{}': {}", text, why), "give cores and ranges, such as 2-5 or 1,3");
  };
  const auto number = [&](std::string_view word) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) wrong(fmt::format("'{}' is not a core", word));
    if (value >= CPU_SETSIZE || !CPU_ISSET(value, &mine)) wrong(fmt::format("core {} cannot be used here", value));
    return value;
  };
  for (const std::string& word : split_commas(text)) {
    const size_t dash = word.find('-');
    const unsigned first = number(std::string_view(word).substr(0, dash));
    const unsigned last = dash == std::string::npos ? first : number(std::string_view(word).substr(dash + 1));
    if (last < first) wrong(fmt::format("'{}' ends before it begins", word));
    for (unsigned core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

// The live port that an element names, as its class reads it. Nothing: it names none, or its arguments are wrong, which
// the graph's own check reports.
std::optional<PortSpec::Device> device_of(const ClickElement& e) {
  const ElementClass* const found = is_device_class(e.class_name) ? registry().find(e.class_name) : nullptr;
  if (found == nullptr) return std::nullopt;
  const std::unique_ptr<Element> element = found->make(e.class_name);
  if (!configure(*element, *found, e.configuration, e.configuration_origin).empty()) return std::nullopt;
  return element->port().device;
}

}  // namespace

std::optional<std::pair<std::string, std::string>> split_method(const std::string& value) {
  const size_t colon = value.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == value.size()) return std::nullopt;
  const std::string method = value.substr(0, colon);
  const auto known = parse_port_method(method);
  if (!known.ok() || *known == PortMethod::kAuto) return std::nullopt;
  return std::pair{method, value.substr(colon + 1)};
}

PortOptions port_options(const std::string& device, std::string method) {
  PortOptions port;
  port.name = device;
  if (const auto split = split_method(device)) std::tie(method, port.name) = *split;
  if (!method.empty()) port.method = need(parse_port_method(method), Exit::kUsage);
  return port;
}

Option add_rate_option(Command sub, std::string& rate, const std::string& what) {
  Option option =
      sub.add_option("--rate", rate,
                     what + ", such as 100kpps or 10Mbps; bits are those of the frames, without preamble, FCS and gap");
  option.type_name("RATE");
  return option;
}

void read_rate(const std::string& text, SendOptions& options) {
  std::string bits = text;
  const bool packets = bits.size() > 3 && (bits.ends_with("pps") || bits.ends_with("PPS"));
  if (packets) bits[bits.size() - 3] = 'b';
  uint64_t rate = 0;
  if (!parse_rate_bps(bits, &rate) || rate == 0) {
    fail(Exit::kUsage, fmt::format("--rate '{}' is not a rate", text),
         "write it as 100kpps or 2.5Mpps in packets, 10Mbps or 1Gbps in bits per second");
  }
  (packets ? options.packets_per_second : options.bits_per_second) = rate;
}

void add_method_option(Command sub, std::string& method, const std::string& what) {
  const std::vector<std::string> names = port_method_names();
  sub.add_option("--method", "METHOD", method,
                 fmt::format("{}: {} (default: the fastest that works here)", what, fmt::join(names, ", ")))
      ->check(OneOf{names});
}

void add_port_options(Command sub, PortFlags& flags) {
  sub.add_option("--port", "NAME=METHOD:DEVICE", flags.ports,
                 "Names a live port for --in and --out: NAME=METHOD:DEVICE, such as lan=af_xdp:eth0 or wan=dpdk:0; may "
                 "be repeated")
      ->take_all();
  add_method_option(sub, flags.method, "How interfaces of --in and --out are opened");
  sub.add_option("--queues", "N", flags.queues,
                 "RX and TX queues per live port (default: one per worker, as far as the device has them)")
      ->check(Range(1u, kMaxPortQueues));
  sub.add_flag("--promiscuous", flags.promiscuous, "Receive frames to other link-layer addresses too");
  sub.add_word("--poll", "MODE", flags.poll,
               "How workers wait for packets of live ports: spin (never sleep), adaptive (sleep after 20 us without "
               "packets) or interrupt (sleep at once)",
               {"spin", "adaptive", "interrupt"});
  sub.add_option("--cores", "LIST", flags.cores, "Cores that workers run on, one each in turn, such as 2-5 or 1,3");
  sub.add_option("--ready-file", "FILE", flags.ready_file, "Create this file when all ports are open and packets flow");
}

std::optional<DeviceArguments> device_arguments(const std::string& value, const PortFlags& flags) {
  for (const std::string& port : flags.ports) {
    const size_t equals = port.find('=');
    const auto spec = equals == std::string::npos || equals == 0 ? std::nullopt : split_method(port.substr(equals + 1));
    if (!spec) {
      fail(Exit::kUsage, fmt::format("--port '{}' is not NAME=METHOD:DEVICE", port),
           "write it as lan=af_xdp:eth0; methods are af_xdp, af_packet, tap, dpdk and pcap");
    }
    if (port.substr(0, equals) == value) return arguments_of(spec->first, spec->second, flags);
  }
  struct stat file;
  if (value.empty() || value == "-" || ::stat(value.c_str(), &file) == 0) return std::nullopt;
  if (const auto spec = split_method(value)) return arguments_of(spec->first, spec->second, flags);
  // These methods have devices that are no interfaces of the kernel (yet).
  const bool made = flags.method == "tap" || flags.method == "dpdk";
  if (!made && ::if_nametoindex(value.c_str()) == 0) return std::nullopt;
  return arguments_of(flags.method, value, flags);
}

std::optional<DeviceArguments> bridge_arguments(const std::string& value, PortFlags flags) {
  flags.promiscuous = true;
  if (flags.method.empty()) flags.method = "af_packet";
  auto arguments = device_arguments(value, flags);
  if (arguments) arguments->receive += ", KERNEL false";
  return arguments;
}

std::string interface_like(const std::string& value) {
  struct stat file;
  if (value.empty() || value == "-" || ::stat(value.c_str(), &file) == 0) return {};
  const std::vector<std::string> names = interface_names();
  return std::ranges::find(names, value) != names.end() ? "" : closest_match(value, names);
}

bool has_live_ports(const ClickGraph& graph) {
  return std::ranges::any_of(graph.elements, [](const ClickElement& e) { return is_device_class(e.class_name); });
}

bool names_dpdk(const ClickGraph& graph) {
  return std::ranges::any_of(graph.elements, [](const ClickElement& e) {
    const auto device = device_of(e);
    return device && device->method == "dpdk";
  });
}

void check_port_capabilities(const ClickGraph& graph) {
  if (has_capability(capability::kRaw.number)) return;
  for (const ClickElement& e : graph.elements) {
    const auto device = device_of(e);
    // Devices of these methods may be this user's own.
    if (!device || device->method == "tap" || device->method == "dpdk") continue;
    fail(Exit::kIo, fmt::format("{}: interfaces need {}", device->name, capability::kRaw.name),
         "run it as root, or once: sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep $(command -v sluice); 'sluice "
         "doctor' says what each method needs");
  }
}

void prepare_ports(const PortFlags& flags, RunOptions& options) {
  options.poll = flags.poll == "spin"        ? PollMode::kSpin
                 : flags.poll == "interrupt" ? PollMode::kInterrupt
                                             : PollMode::kAdaptive;
  if (!flags.cores.empty()) options.cores = parse_cores(flags.cores);
  if (flags.ready_file.empty()) return;
  // That of a run before says nothing of this one. A device or a pipe is nobody's to remove.
  struct stat before;
  if (::lstat(flags.ready_file.c_str(), &before) == 0 && S_ISREG(before.st_mode))
    (void)::unlink(flags.ready_file.c_str());
  options.ready = [path = flags.ready_file] {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
      warn(fmt::format("--ready-file {}: {}", path, std::strerror(errno)));
      return;
    }
    ::close(fd);
  };
}

std::string port_lines(const RunReport& report) {
  std::string text;
  for (const LivePortReport& port : report.live_ports) {
    RxCounters rx;
    for (const RxCounters& q : port.rx) {
      rx.packets += q.packets;
      rx.missed += q.missed;
      rx.too_long += q.too_long;
      rx.invalid += q.invalid;
    }
    TxCounters tx;
    for (const TxCounters& q : port.tx) {
      tx.packets += q.packets;
      tx.failed += q.failed;
    }
    text += fmt::format("port   {} ({}{}{}): ", port.facts.name, port.facts.method, port.facts.mode.empty() ? "" : ", ",
                        port.facts.mode);
    if (!port.rx.empty()) {
      text += fmt::format("RX {}", with_commas(rx.packets));
      if (rx.missed != 0) text += fmt::format(", missed {}", with_commas(rx.missed));
      if (rx.too_long != 0) text += fmt::format(", too long {}", with_commas(rx.too_long));
      if (rx.invalid != 0) text += fmt::format(", invalid {}", with_commas(rx.invalid));
    }
    if (!port.tx.empty()) {
      text += fmt::format("{}TX {}", port.rx.empty() ? "" : "; ", with_commas(tx.packets));
      if (tx.failed != 0) text += fmt::format(", failed {}", with_commas(tx.failed));
    }
    if (port.closed) text += ", closed";
    if (port.link != LinkState::kUp) text += fmt::format(", {}", to_string(port.link));
    if (port.link_changes != 0) text += fmt::format("; link changes {}", with_commas(port.link_changes));
    text += '\n';
    if (rx.too_long != 0) {
      text += fmt::format(
          "       too long: merged on their way, or the MTU has grown; ethtool -K {} gro off lro off, and at a sender "
          "on "
          "this machine or its host: ethtool -K ITS_INTERFACE tso off gso off\n",
          port.facts.name);
    }
  }
  return text;
}

}  // namespace sluice::app
