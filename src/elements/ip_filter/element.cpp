// host only
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <functional>

#include "base/input_file.h"
#include "elements/acl/place.h"
#include "elements/acl/stage.h"
#include "elements/ip_filter/pattern.h"
#include "elements/ip_filter/stage.h"
#include "elements/stage_element.h"
#include "elements/table_use.h"
#include "formats/native_rules.h"
#include "graph/click/config_text.h"
#include "graph/router.h"

namespace sluice {
namespace {

// From this many steps on an access list is made where one can say the same: it looks a packet up at a cost that hardly
// grows with the patterns.
constexpr size_t kTableFrom = 32;
constexpr size_t kMaxTableRules = 65536;
constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

class IpFilter final : public Element {
 public:
  explicit IpFilter(bool actions) : actions_(actions) {}

  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    PatternList patterns;
    for (const ArgumentValue& argument : arguments.rest()) {
      const Place place = [&](size_t offset, size_t length, std::string message) {
        return arguments.error_in(argument, std::move(message), offset, length);
      };
      if (actions_ && is_file(argument.text)) {
        add_file(argument, place, arguments.names(), patterns, diagnostics);
      } else if (!actions_ && outputs_ >= kMaxOutputs) {
        diagnostics.add(arguments.error_in(argument, fmt::format("there are {} outputs at most", kMaxOutputs)));
        return;
      } else {
        add(argument.text, place, arguments.names(), patterns, diagnostics);
      }
    }
    // An IPFilter that denies everything still has its first output.
    outputs_ = std::max(outputs_, 1u);
    if (!diagnostics.ok()) return;
    uint32_t first = 0;
    steps_ = patterns.program(&first);
    stage_ = {steps_.data(), static_cast<uint32_t>(steps_.size()), first};
    traits_ = {kFieldKey, kFieldReason, FrameUse::kNone};
    if (patterns.uses_ttl()) traits_.reads |= kFieldL3;
    if (patterns.uses_frame()) {
      traits_.reads |= kFieldFrame | kFieldExtent | kFieldL3;
      traits_.frame = FrameUse::kAnywhere;
    }
    if (steps_.size() < kTableFrom) return;
    if (const auto rules = patterns.rules(kMaxTableRules)) {
      rules_ = to_native(*rules);
      traits_.on_keys = kRunsOnKeys<AclStage<LinearAcl::View>>;  // as those of any algorithm
    }
  }
  std::optional<unsigned> output_count() const override { return outputs_; }
  bool output_optional(unsigned) const override { return false; }
  ElementKind kind() const override { return ElementKind::kStage; }
  std::vector<FileUse> files() const override { return files_; }
  StageTraits stage_traits() const override { return traits_; }

  std::vector<TableDeclaration> tables() const override {
    if (rules_.empty()) return {};
    TableDeclaration own{.type = TableDeclaration::Type::kAcl};
    own.name = name;
    own.text = rules_;
    return {own};
  }
  Result<void> bind(const TableSet& tables, StageSlot& slot) const override {
    if (rules_.empty()) {
      place(slot, stage_);
      return {};
    }
    auto image = find_table(tables.acls, "ACL table", name);
    if (!image) return std::move(image).error();
    return place_acl(**image, {.output_is_mark = true}, slot);
  }

 private:
  // Makes a finding about bytes of the text that is read; no bytes: the whole.
  using Place = std::function<Diagnostic(size_t offset, size_t length, std::string message)>;

  // A pattern, with an action before it where there are actions.
  void add(std::string_view text, const Place& place, const AddressScope& names, PatternList& patterns,
           Diagnostics& diagnostics) {
    auto output = static_cast<uint8_t>(outputs_);
    size_t skipped = 0;
    if (actions_) {
      if (!action(text, place, output, skipped, diagnostics)) return;
      text.remove_prefix(skipped);
    }
    if (output != kDropOutput) outputs_ = std::max(outputs_, output + 1u);
    if (const auto fault = patterns.add(text, output, names)) {
      Diagnostic d = place(skipped + fault->offset, fault->length, fault->message);
      d.expected = fault->expected;
      d.suggestion = fault->suggestion;
      diagnostics.add(std::move(d));
    }
  }

  static bool is_file(std::string_view text) {
    const std::vector<ConfigSlice> words = split_words(text);
    return !words.empty() && text.substr(words[0].offset, words[0].length) == "file";
  }
  // "file NAME": an action and a pattern a line. Empty lines and those that begin with '#' say nothing.
  void add_file(const ArgumentValue& argument, const Place& place, const AddressScope& names, PatternList& patterns,
                Diagnostics& diagnostics) {
    const std::string_view text = argument.text;
    const std::vector<ConfigSlice> words = split_words(text);
    if (words.size() != 2) {
      Diagnostic d = place(0, 0, "'file' without one name");
      d.expected = "file NAME";
      diagnostics.add(std::move(d));
      return;
    }
    const std::string file = unquote(text.substr(words[1].offset, words[1].length)).value_or(std::string());
    files_.push_back({file, false});
    std::error_code ignored;
    auto contents = std::filesystem::is_regular_file(file, ignored)
                        ? read_text_file(file, kMaxFileBytes)
                        : Result<std::string>(Error(fmt::format("'{}' is not a file that can be read", file)));
    if (!contents.ok()) {
      diagnostics.add(place(words[1].offset, words[1].length, contents.error().message));
      return;
    }
    const SourceText source(file, *contents);
    const std::string_view all = source.text();
    for (size_t at = 0; at < all.size();) {
      const size_t end = std::min(all.find('\n', at), all.size());
      const std::string_view line = all.substr(at, end - at);
      const size_t first = line.find_first_not_of(" \t\r");
      if (first != std::string_view::npos && line[first] != '#') {
        const Place in_file = [&source, at, line](size_t offset, size_t length, std::string message) {
          return source.diagnostic(at + offset, length == 0 ? line.size() : length, std::move(message));
        };
        add(line, in_file, names, patterns, diagnostics);
      }
      at = end + 1;
    }
  }

  // "allow", "deny" or an output before the pattern; `skipped` is its length.
  bool action(std::string_view text, const Place& place, uint8_t& output, size_t& skipped, Diagnostics& diagnostics) {
    const std::vector<ConfigSlice> words = split_words(text);
    const std::string_view word = words.empty() ? std::string_view() : text.substr(words[0].offset, words[0].length);
    skipped = words.empty() ? 0 : words[0].offset + words[0].length;
    unsigned n = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (word == "allow" || word == "accept") {
      output = 0;
    } else if (word == "deny" || word == "drop") {
      output = kDropOutput;
    } else if (code == std::errc() && end == word.data() + word.size() && !word.empty() && n < kMaxOutputs) {
      output = static_cast<uint8_t>(n);
    } else {
      Diagnostic d = place(words.empty() ? 0 : words[0].offset, word.size(),
                           word.empty() ? std::string("the pattern is empty")
                                        : fmt::format("'{}' is not an action", word.substr(0, 60)));
      d.expected = fmt::format("allow, deny, or an output from 0 to {}, and then a pattern", kMaxOutputs - 1);
      const std::string near = closest_match(word, {"allow", "deny", "drop", "accept"});
      if (!near.empty()) d.suggestion = fmt::format("did you mean '{}'?", near);
      diagnostics.add(std::move(d));
      return false;
    }
    return true;
  }

  bool actions_;
  std::vector<FileUse> files_;
  unsigned outputs_ = 0;
  std::vector<PatternStep> steps_;
  PatternStage stage_;
  StageTraits traits_{kFieldKey, kFieldReason, FrameUse::kNone};
  std::string rules_;  // the table form, as native rules; empty: the program runs
};

constexpr const char* kLanguage =
    "A pattern is made of primitives with `and`, `or`, `not` (`&&`, `||`, `!`), parentheses and `C ? A : B`: "
    "`[src|dst|src or dst|src and dst] [tcp|udp] host A`, `net P`, `port N`, `ether host M`; `ip proto P`; `ip vers`, "
    "`hl`, `id`, `len`, `tos`, `dscp`, `ttl` N; `ip frag`, `unfrag`, `ect`, `ce`; `tcp opt syn`, `tcp win N`; `icmp "
    "type T`; bytes as in `ip[8:1]` and `tcp[13]`; names of protocols, ports (`www`), flags (`syn`) and ICMP types "
    "(`icmp echo`) alone; `true`, `false`, `-`. A value can be preceded by `& MASK` and `==`, `!=`, `<`, `>`, `<=` or "
    "`>=`; a mask without a value matches if any of its bits is set. Qualifiers carry over: `src port 80 or 81`. Ports "
    "are those of first fragments; `src port != 5` holds for packets with ports only, `!(src port == 5)` for all "
    "others too. An Ethernet address is that of the header at the start of the data, or else of the frame. IPv6 "
    "addresses can be used wherever IPv4 ones can. Long lists of patterns that rules can express are looked up as an "
    "access list.";

}  // namespace

void register_ip_filter(Registry& registry) {
  for (const bool actions : {false, true}) {
    ElementClass c;
    c.name = actions ? "IPFilter" : "IPClassifier";
    c.group = "Classification";
    c.summary = actions ? "passes or drops a packet by the first pattern that it matches"
                        : "sends an IP packet to the output of the first pattern that it matches";
    c.description =
        std::string(actions ? "Each argument is `allow` (output 0), `deny`, or an output's number, and a pattern; or "
                              "`file NAME`, a file with one of them per line. Packets that match none are dropped. "
                            : "One pattern per output. Packets that match none are dropped. ") +
        kLanguage;
    c.arguments = {{.name = "PATTERN",
                    .kind = ArgumentKind::kRaw,
                    .positional = true,
                    .mandatory = true,
                    .repeated = true,
                    .help = actions ? "an action and a pattern" : "one pattern per output"}};
    c.outputs = {1, kMaxOutputs};
    c.output_docs = actions
                        ? std::vector<std::string>{"packets that are allowed", "packets whose pattern says 1", "..."}
                        : std::vector<std::string>{"packets that match the first pattern",
                                                   "packets that match the second and not the first", "..."};
    c.drops = {DropReason::kClassifierNoMatch};
    if (actions) c.drops.insert(c.drops.begin(), DropReason::kAclDeny);
    c.example = actions ? "in -> IPInput -> IPFilter(allow tcp dst port 80 or 443, deny all) -> out;"
                        : "c :: IPClassifier(icmp type echo, tcp or udp, -); in -> IPInput -> c; c[0] -> a; c[1] -> b; "
                          "c[2] -> Discard;";
    c.make = [actions](std::string_view) { return std::make_unique<IpFilter>(actions); };
    registry.add(std::move(c));
  }
}

}  // namespace sluice
