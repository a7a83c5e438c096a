// host only
// Message, AddressInfo, StaticThreadSched and DPDKInfo. Source: their Click and FastClick manual pages.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "elements/stage_element.h"
#include "graph/address_names.h"
#include "graph/click/config_text.h"
#include "graph/router.h"
#include "net/text.h"

namespace sluice {
namespace {

class InfoElement : public Element {
 public:
  ElementKind kind() const override { return ElementKind::kInfo; }
};

class Message final : public InfoElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    Diagnostic d = arguments.error_at("MESSAGE", arguments.get_string("MESSAGE"));
    if (arguments.get_string("TYPE") != "ERROR") d.severity = Diagnostic::Severity::kWarning;
    diagnostics.add(std::move(d));
  }
};

class AddressInfo final : public InfoElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    for (const ArgumentValue& argument : arguments.rest()) {
      const std::string_view text = argument.text;
      const std::vector<ConfigSlice> words = split_words(text);
      auto word = [&](size_t i) { return text.substr(words[i].offset, words[i].length); };
      auto wrong = [&](size_t i, std::string message, const char* expected) {
        Diagnostic d = arguments.error_in(argument, std::move(message), words[i].offset, words[i].length);
        d.expected = expected;
        diagnostics.add(std::move(d));
      };
      if (words.size() < 2) {
        Diagnostic d = arguments.error_in(argument, fmt::format("'{}' has no address", text));
        d.expected = "NAME ADDRESS [ADDRESS...]";
        diagnostics.add(std::move(d));
        continue;
      }
      if (!is_name(word(0))) {
        wrong(0, fmt::format("'{}' is not a name", word(0)), "letters, digits and '_ @ .', with a letter first");
        continue;
      }
      const auto [at, fresh] = seen_.emplace(word(0), entries_.size());
      if (!fresh) {
        wrong(0, fmt::format("'{}' has its addresses already", word(0)), "each name once");
        continue;
      }
      AddressNames::Entry entry;
      for (size_t i = 1; i < words.size(); ++i) {
        if (!take(word(i), entry))
          wrong(i, fmt::format("'{}' is not an address", word(i)), "IPv4, IPv6 or MAC addresses, or prefixes");
      }
      entries_.emplace_back(word(0), entry);
    }
  }
  void add_names(AddressNames& names) const override {
    for (const auto& [word, entry] : entries_) names.add(scope_of(name), word, entry);
  }

 private:
  static bool is_name(std::string_view name) {
    auto letter = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
    return (letter(name[0]) || name[0] == '_') && std::all_of(name.begin(), name.end(), [&](char c) {
             return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '@' || c == '.' || c == '-';
           });
  }
  // One address of the entry; false: it is none.
  static bool take(std::string_view word, AddressNames::Entry& entry) {
    const ArgumentSpec mac{.name = "ADDRESS", .kind = ArgumentKind::kMac};
    ArgumentValue value;
    std::string problem;
    if (const size_t slash = word.find('/'); slash != std::string_view::npos) {
      const auto address = parse_ip(word.substr(0, slash));
      const auto net = parse_prefix(word);
      if (!address || !net) return false;
      (net->address.family == 4 ? entry.ipv4 : entry.ipv6) = address;
      (net->address.family == 4 ? entry.net4 : entry.net6) = net;
    } else if (const auto address = parse_ip(word)) {
      (address->family == 4 ? entry.ipv4 : entry.ipv6) = address;
    } else if (parse_value(mac, word, &value, &problem)) {
      entry.mac = value.mac;
    } else {
      return false;
    }
    return true;
  }

  std::vector<std::pair<std::string, AddressNames::Entry>> entries_;
  std::map<std::string, size_t, std::less<>> seen_;
};

class StaticThreadSched final : public InfoElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    Diagnostic d = arguments.error_at("ASSIGNMENT", "elements have no threads of their own; this has no effect");
    d.severity = Diagnostic::Severity::kWarning;
    d.suggestion = "--workers says how many threads share the packets";
    diagnostics.add(std::move(d));
  }
};

class DpdkInfo final : public InfoElement {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    for (const char* argument : kNames) {
      if (!arguments.has(argument)) continue;
      Diagnostic d = arguments.error_at(argument, "there are no DPDK ports: DPDKInfo has no effect");
      d.severity = Diagnostic::Severity::kWarning;
      diagnostics.add(std::move(d));
      return;  // once is enough
    }
  }

  static constexpr const char* kNames[] = {
      "NB_MBUF",    "NB_SOCKET_MBUF", "MBUF_SIZE",  "MBUF_CACHE_SIZE", "RX_PTHRESH",           "RX_HTHRESH",
      "RX_WTHRESH", "TX_PTHRESH",     "TX_HTHRESH", "TX_WTHRESH",      "MEMPOOL_PREFIX",       "DEF_RING_NDESC",
      "RING_FLAGS", "DEF_BURST_SIZE", "RING_SIZE",  "MEMPOOL_GPU",     "RING_POOL_CACHE_SIZE", "RING_PRIV_DATA_SIZE"};
};

}  // namespace

void register_info(Registry& registry) {
  ElementClass message{
      .name = "Message", .group = "Control", .summary = "prints a message when the configuration is read"};
  message.description = "The text appears as a warning at this place, or as an error, which ends it.";
  message.arguments = {
      {.name = "MESSAGE", .kind = ArgumentKind::kString, .positional = true, .mandatory = true, .help = "the text"},
      {.name = "TYPE",
       .kind = ArgumentKind::kChoice,
       .positional = true,
       .default_text = "MESSAGE",
       .help = "what it is",
       .choices = {"MESSAGE", "WARNING", "ERROR"}}};
  message.inputs = message.outputs = {0, 0};
  message.example = "Message(\"this file is an example\");";
  message.make = make_element<Message>();
  registry.add(std::move(message));

  ElementClass addresses{.name = "AddressInfo", .group = "Control", .summary = "names addresses"};
  addresses.description =
      "Wherever an address or a prefix is expected, in routes and in patterns of IPFilter and IPClassifier, a name can "
      "be used: NAME, or one of its addresses: `NAME:ip`, `NAME:ipnet` (the prefix that was given), `NAME:bcast` (its "
      "last address), `NAME:ip6`, `NAME:ip6net`, `NAME:eth`. A name is valid in the whole compound, whatever the "
      "order, and in compounds inside it.";
  addresses.arguments = {{.name = "ENTRY",
                          .kind = ArgumentKind::kRaw,
                          .positional = true,
                          .repeated = true,
                          .help = "NAME ADDRESS [ADDRESS...]"}};
  addresses.inputs = addresses.outputs = {0, 0};
  addresses.names_addresses = true;
  addresses.example =
      "AddressInfo(lan 10.0.0.1/24 02:00:00:00:00:01); in -> IPInput -> IPFilter(deny src lan:ipnet, allow all) -> "
      "out;";
  addresses.make = make_element<AddressInfo>();
  registry.add(std::move(addresses));

  ElementClass threads{.name = "StaticThreadSched",
                       .group = "Control",
                       .summary = "accepted from Click's configurations, with a warning"};
  threads.description = "Workers share packets, not elements: which thread runs an element is not a setting.";
  threads.arguments = {{.name = "ASSIGNMENT",
                        .kind = ArgumentKind::kRaw,
                        .positional = true,
                        .repeated = true,
                        .help = "ELEMENT THREAD"}};
  threads.inputs = threads.outputs = {0, 0};
  threads.example = "StaticThreadSched(source 0, queue 1);";
  threads.make = make_element<StaticThreadSched>();
  registry.add(std::move(threads));

  ElementClass dpdk{
      .name = "DPDKInfo", .group = "Control", .summary = "accepted from FastClick's configurations, with a warning"};
  dpdk.description =
      "It sizes memory and rings of DPDK's ports in FastClick. Here captures are used for such ports (`--map`), and "
      "the runtime sizes its own memory. Arguments are checked and have no effect.";
  for (const char* name : DpdkInfo::kNames) {
    const std::string_view n = name;
    dpdk.arguments.push_back({.name = name,
                              .kind = n == "MEMPOOL_PREFIX" ? ArgumentKind::kString
                                      : n == "MEMPOOL_GPU"  ? ArgumentKind::kBool
                                                            : ArgumentKind::kUint,
                              .positional = n == "NB_MBUF",
                              .repeated = n == "NB_SOCKET_MBUF",
                              .help = "accepted: no effect"});
  }
  dpdk.inputs = dpdk.outputs = {0, 0};
  dpdk.example = "DPDKInfo(NB_MBUF 65535, MBUF_SIZE 4096);";
  dpdk.make = make_element<DpdkInfo>();
  registry.add(std::move(dpdk));
}

}  // namespace sluice
