#include "formats/native_rules.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/cancel.h"
#include "base/input_file.h"
#include "formats/names.h"
#include "net/text.h"

namespace sluice {
namespace {

using namespace names;

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxIncludes = 1024;
constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr size_t kMaxLineRules = 65536;
constexpr size_t kMaxGroup = 65536;
constexpr uint8_t kAuthentication = 51;          // the protocol AH
constexpr size_t kMaxMembers = size_t{1} << 20;  // of all groups together

// Keys, of which one begins a keyed rule; and options, which both forms have.
constexpr std::string_view kKeys[] = {"src", "dst", "proto", "sport", "dport", "tcp-flags", "action"};
constexpr std::string_view kOptions[] = {"flags",      "tcp-flags",   "dscp", "frag",      "no-frag",
                                         "first-frag", "later-frag",  "bits", "icmp-type", "icmp-code",
                                         "icmp-match", "loose-ports", "log",  "state",     "keep-state"};

struct PortRange {
  uint16_t low = 0, high = 65535;
};

struct Address {
  uint8_t family = 0;  // 0: any
  IpPrefix prefix;
};

struct Word {
  std::string_view text;
  size_t at = 0;
};

// What all files of one reading share.
struct Shared {
  const IncludeReader& reader;
  const StateReading& states;
  RuleSet set;
  std::map<std::string, std::vector<Address>, std::less<>> addresses;
  std::map<std::string, std::vector<PortRange>, std::less<>> ports;
  std::set<std::string, std::less<>> unsound;  // groups whose definition has a finding; their uses have none
  size_t includes = 0;
  size_t bytes = 0;
  size_t members = 0;                 // of all groups
  std::vector<std::string> chain;     // files being read, outermost first
  std::vector<uint32_t> chain_lines;  // the line of the include in each but the innermost
  bool full = false;                  // the limit of rules was reached; the rest is counted
  size_t max_rules = 0;
  size_t rules = 0;  // that the text stands for so far
  bool cancelled = false;
};

class File {
 public:
  File(Shared& shared, std::string_view text, const std::string& name)
      : shared_(shared), text_(text), name_(name), found_(name, text) {
    file_ = static_cast<uint32_t>(shared_.set.files.size());
    shared_.set.files.push_back(name);
  }

  // All findings of the file and its includes, in reading order.
  Diagnostics& run() {
    size_t at = 0;
    for (line_ = 1; at < text_.size() && !shared_.cancelled; ++line_) {
      if (found_.error_count() > Diagnostics::kLimit) break;
      shared_.cancelled = cancelled();
      size_t end = text_.find('\n', at);
      if (end == std::string_view::npos) end = text_.size();
      end_ = end;
      split(at, end);
      if (!words_.empty()) statement();
      at = end + 1;
    }
    if (full_at_) {
      fail(*full_at_, 1,
           fmt::format("too many rules from here on: {} in all, more than {}", shared_.rules, shared_.max_rules),
           "fewer rules");
    }
    return found_;
  }

 private:
  // ---- words -------------------------------------------------------------------------------------------------------
  static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  static bool ends_word(char c) { return blank(c) || c == '#' || c == '"'; }
  // Where the word ends that stands at `at` in a line that ends at `end`.
  size_t word_end(size_t at, size_t end) const {
    // Eight characters at a time: nearly all of a word's come after '#', the last of those that end one.
    constexpr uint64_t kEach = 0x0101010101010101, kHigh = 0x80 * kEach, kPast = ('#' + 1) * kEach;
    while (std::endian::native == std::endian::little && at + sizeof(uint64_t) <= end) {
      uint64_t eight;
      std::memcpy(&eight, text_.data() + at, sizeof eight);
      // The lowest bit that is set is right; those above it may follow from a borrow.
      const uint64_t early = (eight - kPast) & ~eight & kHigh;
      if (early == 0) {
        at += sizeof eight;
        continue;
      }
      at += static_cast<size_t>(std::countr_zero(early)) / 8;
      if (ends_word(text_[at])) return at;
      ++at;
    }
    while (at < end && !ends_word(text_[at])) ++at;
    return at;
  }
  void split(size_t at, size_t end) {
    words_.clear();
    next_ = 0;
    while (at < end) {
      const char c = text_[at];
      if (blank(c)) {
        ++at;
        continue;
      }
      if (c == '#') break;
      const size_t start = at;
      if (c == '"') {
        ++at;
        while (at < end && text_[at] != '"') ++at;
        if (at < end) ++at;
      } else {
        at = word_end(at, end);
      }
      words_.push_back({text_.substr(start, at - start), start});
    }
    if (!words_.empty()) end_ = words_.back().at + words_.back().text.size();  // where a missing word is reported
  }
  bool more() const { return next_ < words_.size(); }
  std::string_view peek() const { return more() ? words_[next_].text : std::string_view(); }
  Word take() { return more() ? words_[next_++] : Word{{}, end_}; }
  bool take_if(std::string_view word) {
    if (!more() || !same_word(peek(), word)) return false;
    ++next_;
    return true;
  }

  // ---- findings ----------------------------------------------------------------------------------------------------
  bool fail(size_t at, size_t length, std::string message, std::string expected, std::string suggestion = {}) {
    if (!shared_.chain_lines.empty()) {
      for (size_t i = shared_.chain_lines.size(); i-- > 0;) {
        message += fmt::format("{} {}:{}", i + 1 == shared_.chain_lines.size() ? " (included from" : ", from",
                               shared_.chain[i], shared_.chain_lines[i]);
      }
      message += ")";
    }
    Diagnostic& d = found_.error_at(at, length, std::move(message));
    d.expected = std::move(expected);
    d.suggestion = std::move(suggestion);
    return false;
  }
  bool fail(const Word& word, std::string_view what, std::string expected, std::string_view near = {}) {
    return fail(word.at, word.text.size(),
                word.text.empty() ? fmt::format("the line ends where {} should be", what)
                                  : fmt::format("'{}' is not {}", word.text.substr(0, 60), what),
                std::move(expected), near.empty() ? std::string() : fmt::format("did you mean '{}'?", near));
  }

  // Past this nothing more is shown, so that a line of any length costs a bounded number of findings.
  bool enough() const { return found_.error_count() > Diagnostics::kLimit; }

  // After a finding: moves to the next of these words, so that what follows it is still looked at. False (at the end of
  // the line) when there is none.
  template <typename Wanted>
  bool resume(Wanted wanted) {
    while (more() && !wanted(peek())) ++next_;
    return more() && !enough();
  }

  // ---- statements --------------------------------------------------------------------------------------------------
  void statement() {
    const std::string_view first = peek();
    if (same_word(first, "define")) {
      define();
    } else if (same_word(first, "include")) {
      include();
    } else {
      rule();
    }
  }

  void define() {
    take();
    const Word name = take();
    const auto good = [](std::string_view n) {
      return !n.empty() && n.size() <= 64 && ((n[0] | 0x20) >= 'a' && (n[0] | 0x20) <= 'z') &&
             std::all_of(n.begin(), n.end(), [](char c) {
               return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || c == '-';
             });
    };
    bool sound = false;
    if (!good(name.text)) {
      fail(name, "a name",
           "define NAME = ITEM, ITEM with a name of letters, digits, '-' and '_', not starting with a digit");
    } else if (same_word(name.text, "any") || find_named(kServices, name.text) || find_named(kProtocols, name.text)) {
      fail(name.at, name.text.size(), fmt::format("'{}' is a keyword of the language", name.text),
           "a name of your own");
    } else if (shared_.addresses.contains(name.text) || shared_.ports.contains(name.text) ||
               shared_.unsound.contains(name.text)) {
      fail(name.at, name.text.size(), fmt::format("'{}' is defined already", name.text), "each name once");
    } else {
      sound = true;
    }
    if (!take_if("=")) {
      if (sound) {
        fail(take(), "'='", "define NAME = ITEM, ITEM");
        shared_.unsound.emplace(name.text);
      }
      return;
    }
    members(name, sound);
  }

  // What a group holds. A group with a finding counts as defined, so that its uses are not findings as well.
  void members(const Word& name, bool sound) {
    const size_t errors = found_.error_count();
    std::vector<Address> addresses;
    std::vector<PortRange> ports;
    bool any_item = false;
    while (more() && !enough()) {
      const Word word = take();
      for (const Word& item : items(word)) {
        if (item.text.empty()) continue;  // the comma of "a, b"
        if (enough()) break;
        any_item = true;
        if (shared_.unsound.contains(item.text)) {
          shared_.unsound.emplace(name.text);
          continue;
        }
        // An address has '.' or ':'; a name is what it names; the rest are ports.
        const bool names_address = shared_.addresses.contains(item.text);
        const bool is_address = names_address || item.text.find_first_of(".:") != std::string_view::npos;
        if (is_address ? !ports.empty() : !addresses.empty()) {
          fail(item.at, item.text.size(), fmt::format("group '{}' mixes addresses and ports", name.text),
               "a group of one kind");
          shared_.unsound.emplace(name.text);
          return;
        }
        is_address ? address_item(item, addresses) : port_item(item, ports);
        if (addresses.size() + ports.size() > kMaxGroup) {
          fail(item.at, item.text.size(), fmt::format("group '{}' has more than {} members", name.text, kMaxGroup),
               "a smaller group");
          shared_.unsound.emplace(name.text);
          return;
        }
      }
    }
    shared_.members += addresses.size() + ports.size();
    if (shared_.members > kMaxMembers) {
      fail(name.at, name.text.size(), fmt::format("the groups have more than {} members in all", kMaxMembers),
           "smaller groups");
    } else if (!any_item) {
      fail(Word{{}, end_}, "a member of the group", "define NAME = ITEM, ITEM");
    }
    if (!sound || shared_.unsound.contains(name.text)) return;
    if (found_.error_count() != errors) {
      shared_.unsound.emplace(name.text);
    } else if (!addresses.empty()) {
      shared_.addresses.emplace(name.text, std::move(addresses));
    } else {
      shared_.ports.emplace(name.text, std::move(ports));
    }
  }

  void include() {
    const Word keyword = take();
    const Word quoted = take();
    if (quoted.text.size() < 3 || quoted.text.front() != '"' || quoted.text.back() != '"') {
      fail(quoted, "a quoted file name", "include \"FILE\"");
      return;
    }
    if (more()) {
      fail(take(), "the end of the line", "nothing after the file name");
      return;
    }
    const std::string relative(quoted.text.substr(1, quoted.text.size() - 2));
    const std::string path = (std::filesystem::path(name_).parent_path() / relative).lexically_normal().string();
    if (std::find(shared_.chain.begin(), shared_.chain.end(), path) != shared_.chain.end()) {
      fail(quoted.at, quoted.text.size(), fmt::format("'{}' includes itself", path),
           "files that do not include each other in a loop");
      return;
    }
    if (shared_.chain.size() >= kMaxDepth || ++shared_.includes > kMaxIncludes) {
      fail(keyword.at, keyword.text.size(),
           shared_.chain.size() >= kMaxDepth ? fmt::format("includes are nested deeper than {}", kMaxDepth)
                                             : fmt::format("more than {} includes", kMaxIncludes),
           "fewer includes");
      return;
    }
    auto text = shared_.reader(path);
    if (!text) {
      fail(quoted.at, quoted.text.size(), text.error().message, "a file that can be read");
      return;
    }
    shared_.bytes += text->size();
    if (shared_.bytes > kMaxBytes) {
      fail(quoted.at, quoted.text.size(), fmt::format("the included files are larger than {} bytes in all", kMaxBytes),
           "smaller files");
      return;
    }
    shared_.chain.push_back(path);
    shared_.chain_lines.push_back(line_);
    File inner(shared_, *text, path);
    for (const Diagnostic& d : inner.run().all()) found_.add(d);
    shared_.chain.pop_back();
    shared_.chain_lines.pop_back();
  }

  struct Draft {
    AclRule rule;
    std::vector<Address> src, dst;
    std::vector<PortRange> sport, dport;
    std::vector<Word> parts;    // of a keyed rule
    std::optional<Word> state;  // the options of these names
    std::optional<Word> keep;
    unsigned states = 0;  // bits of ConnState that `state` lists
    bool keyed = false;
    bool loose_ports = false;
    bool ah = false;  // the protocol 51, by its name or number
    bool has_action = false;
    bool protocol_unknown = false;  // a finding was made there
    bool addresses_unknown = false;
  };

  void rule() {
    Draft& draft = draft_;
    draft.rule = AclRule{};
    draft.src.clear();
    draft.dst.clear();
    draft.sport.clear();
    draft.dport.clear();
    draft.loose_ports = draft.ah = draft.has_action = draft.protocol_unknown = draft.addresses_unknown = false;
    draft.state = draft.keep = std::nullopt;
    draft.states = 0;
    const size_t start = words_[0].at;
    draft.parts.clear();
    draft.keyed = is_key(peek());
    const size_t errors = found_.error_count();
    draft.keyed ? keyed_rule(draft) : worded_rule(draft);
    states_fit(draft);
    if (found_.error_count() == errors) {
      emit(draft, start);
    } else if (!draft.addresses_unknown && !draft.src.empty() && !draft.dst.empty()) {
      families_meet(draft, start);
    }
  }

  // The words that an option or a key may begin with: where reading goes on after a finding.
  static bool is_option(std::string_view word) {
    return std::any_of(std::begin(kOptions), std::end(kOptions),
                       [&](std::string_view o) { return same_word(o, word); });
  }
  static bool is_key(std::string_view word) {
    return std::any_of(std::begin(kKeys), std::end(kKeys), [&](std::string_view k) { return same_word(k, word); });
  }

  static bool begins_part(std::string_view word) { return is_key(word) || is_option(word); }

  // Every finding of the line that does not follow from another one: each part is read for itself, and after a finding
  // reading goes on at the next word that can only be the beginning of a part.
  void worded_rule(Draft& draft) {
    auto is = [](const char* word) { return [word](std::string_view w) { return same_word(w, word); }; };
    auto to = is("to"), from = is("from");
    auto port_or_to = [](std::string_view w) { return same_word(w, "port") || same_word(w, "to"); };
    auto port_or_option = [](std::string_view w) { return same_word(w, "port") || is_option(w); };
    if (!action(take(), draft, false)) {
      // One word before "from" is the protocol; of several nobody knows which one is.
      const bool protocol = next_ + 1 < words_.size() && from(words_[next_ + 1].text);
      draft.protocol_unknown = !protocol;
      if (!protocol && !resume(from)) return;
    }
    if (!same_word(peek(), "from")) {
      draft.protocol_unknown = !parse_protocol(take(), draft.rule);
      if (draft.protocol_unknown && !resume(from)) return;
    }
    if (!take_if("from")) {
      fail(take(), "'from'", "ACTION [PROTO] from ADDR [port PORTS] to ADDR [port PORTS] [OPTION]...", "from");
      draft.addresses_unknown = true;
      if (!resume(to)) return;
    } else {
      if (!addresses(draft.src, "a source address")) {
        draft.addresses_unknown = true;
        if (!resume(port_or_to)) return;
      }
      if (take_if("port") && !ports(draft.sport) && !resume(to)) return;
    }
    if (!same_word(peek(), "to")) {
      fail(take(), "'to'", "to ADDR, or port PORTS before it", closest_match(previous(), {"port", "to"}));
      draft.addresses_unknown = true;
      const bool later = std::any_of(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end(),
                                     [&](const Word& w) { return to(w.text); });
      if (later ? !resume(to) : !resume(port_or_option)) return;
    }
    if (take_if("to") && !addresses(draft.dst, "a destination address")) {
      draft.addresses_unknown = true;
      if (!resume(port_or_option)) return;
    }
    if (take_if("port") && !ports(draft.dport) && !resume(is_option)) return;
    while (more() && !enough()) option(draft);
  }

  void keyed_rule(Draft& draft) {
    while (more() && !enough()) {
      const Word key = take();
      bool good = true;
      part(draft, key);
      if (same_word(key.text, "src")) {
        good = addresses(draft.src, "a source address");
        draft.addresses_unknown |= !good;
      } else if (same_word(key.text, "dst")) {
        good = addresses(draft.dst, "a destination address");
        draft.addresses_unknown |= !good;
      } else if (same_word(key.text, "proto")) {
        good = parse_protocol(take(), draft.rule);
        draft.protocol_unknown |= !good;
      } else if (same_word(key.text, "sport")) {
        good = ports(draft.sport);
      } else if (same_word(key.text, "dport")) {
        good = ports(draft.dport);
      } else if (same_word(key.text, "action")) {
        good = action(take(), draft, true);
      } else {
        --next_;
        good = option(draft);
      }
      if (!good && is_key(key.text) && !resume(begins_part)) break;
    }
    if (!draft.has_action && !enough()) fail(Word{{}, end_}, "an action", "action pass|drop|mark(N)");
    parts_fit(draft);
    if (draft.src.empty()) draft.src.push_back({});
    if (draft.dst.empty()) draft.dst.push_back({});
  }

  // What a part of a keyed rule is about: two that are about the same cannot both be meant.
  static std::string_view subject(std::string_view word) {
    if (same_word(word, "tcp-flags")) return "flags";
    if (same_word(word, "no-frag") || same_word(word, "first-frag") || same_word(word, "later-frag")) return "frag";
    return word;
  }

  // Keyed rules are typed at a prompt, and the part that would win or be left out there is a mistake.
  void part(Draft& draft, const Word& key) {
    if (!begins_part(key.text)) return;
    const auto before =
        std::ranges::find_if(draft.parts, [&](const Word& w) { return same_word(subject(w.text), subject(key.text)); });
    if (before == draft.parts.end()) {
      draft.parts.push_back(key);
    } else if (same_word(before->text, key.text)) {
      fail(key.at, key.text.size(), fmt::format("'{}' stands twice", key.text), "each part once");
    } else {
      fail(key.at, key.text.size(), fmt::format("'{}' stands beside '{}'", key.text, before->text), "one of the two");
    }
  }

  void parts_fit(const Draft& draft) {
    const AclRule& rule = draft.rule;
    if (draft.protocol_unknown || rule.protocol_mask != 0xff) return;
    const uint8_t p = rule.protocol;
    const bool has_ports = p == 6 || p == 17 || p == 33 || p == 132 || p == 136;
    for (const Word& w : draft.parts) {
      const bool ports = same_word(w.text, "sport") || same_word(w.text, "dport");
      if (ports && !has_ports && !draft.loose_ports) {
        fail(w.at, w.text.size(), fmt::format("'{}' stands beside a protocol that has no ports", w.text),
             "proto tcp, udp, udplite, sctp or dccp, or none");
      } else if (same_word(subject(w.text), "flags") && p != 6) {
        fail(w.at, w.text.size(), fmt::format("'{}' stands beside a protocol that has no TCP flags", w.text),
             "proto tcp, or none");
      }
    }
  }

  // What the rule says of connections. `state` has no bits after a finding in its list.
  void states_fit(Draft& draft) {
    if (!draft.state && !draft.keep) return;
    const StateReading& reading = shared_.states;
    reading.found();
    if (!reading.state && (draft.state || !reading.keeps)) {
      const Word& word = draft.state ? *draft.state : *draft.keep;
      fail(word.at, word.text.size(), draft.state ? kNeedsState : kKeepsState, kStateWanted);
    }
    if (!draft.keep) return;
    draft.rule.keep = true;
    if (draft.rule.verb == AclVerb::kDeny) {
      fail(draft.keep->at, draft.keep->text.size(), "'keep-state' stands in a rule that lets no packet through",
           "keep-state with permit or mark");
    } else if (draft.states != 0 && (draft.states & bit_of(ConnState::kNew)) == 0) {
      fail(draft.keep->at, draft.keep->text.size(), "'keep-state' stands in a rule for packets that open no connection",
           "new in the list of 'state'");
    }
  }

  std::string_view previous() const { return next_ > 0 ? words_[next_ - 1].text : std::string_view(); }

  bool action(const Word& word, Draft& draft, bool keyed) {
    draft.has_action = true;
    AclRule& rule = draft.rule;
    const std::string_view t = word.text;
    if (same_word(t, keyed ? "pass" : "permit")) {
      rule.verb = AclVerb::kPermit;
      return true;
    }
    if (same_word(t, keyed ? "drop" : "deny")) {
      rule.verb = AclVerb::kDeny;
      return true;
    }
    if (keyed && same_word(t, "mark")) {  // "mark" or "mark N"
      rule.verb = AclVerb::kMark;
      rule.mark = 1;
      if (const auto n = number(peek(), 0xffffffff)) {
        rule.mark = *n;
        take();
      }
      return true;
    }
    if (t.size() > 6 && same_word(t.substr(0, 5), "mark(") && t.back() == ')') {
      const auto n = number(t.substr(5, t.size() - 6), 0xffffffff);
      if (!n) return fail({t.substr(5, t.size() - 6), word.at + 5}, "a mark", "a number, 0..4294967295");
      rule.verb = AclVerb::kMark;
      rule.mark = *n;
      return true;
    }
    std::string near;
    for (auto [alias, meant] : {std::pair{"accept", "permit"},
                                {"allow", "permit"},
                                {"pass", "permit"},
                                {"drop", "deny"},
                                {"reject", "deny"},
                                {"block", "deny"}}) {
      if (!keyed && same_word(t, alias)) near = meant;
    }
    if (near.empty())
      near = keyed ? closest_match(t, {"pass", "drop", "mark"})
                   : closest_match(t, {"permit", "deny", "mark(N)", "define", "include"});
    if (keyed) return fail(word, "an action", "pass, drop or mark(N)", near);
    return fail(word, "an action", "permit, deny or mark(N); or define, include, src, dst, action", near);
  }

  enum class Pair : uint8_t { kNone, kGood, kWrong };  // no V/M at all; one; one that cannot be meant, as reported

  Pair value_mask(const Word& word, uint64_t limit, uint32_t& value, uint32_t& mask) {
    const size_t slash = word.text.find('/');
    if (slash == std::string_view::npos) return Pair::kNone;
    const auto v = number(word.text.substr(0, slash), limit), m = number(word.text.substr(slash + 1), limit);
    if (!v || !m) return Pair::kNone;
    value = *v;
    mask = *m;
    if ((value & ~mask) == 0) return Pair::kGood;
    const int digits = limit > 0xff ? 4 : 2;
    fail(word.at, word.text.size(),
         fmt::format("the value has bits that the mask leaves out: 0x{:0{}x}", value & ~mask, digits),
         "VALUE/MASK with every bit of VALUE in MASK",
         fmt::format("write 0x{0:0{3}x}/0x{1:0{3}x} to test them too, 0x{2:0{3}x}/0x{4:0{3}x} to leave them out", value,
                     value | mask, value & mask, digits, mask));
    return Pair::kWrong;
  }

  bool parse_protocol(const Word& word, AclRule& rule) {
    uint32_t value = 0, mask = 0xff;
    draft_.ah = false;
    if (const auto named = find_named(kProtocols, word.text)) {
      value = *named;
      if (value == 256) value = mask = 0;  // ip: any
      draft_.ah = value == kAuthentication;
    } else if (const auto n = number(word.text, 255)) {
      value = *n;
      draft_.ah = value == kAuthentication;
    } else if (const Pair pair = value_mask(word, 0xff, value, mask); pair != Pair::kGood) {
      if (pair == Pair::kWrong) return false;
      return fail(word, "a protocol", "ip, tcp, udp, icmp, icmp6, ..., a number 0..255, or 0xV/0xM",
                  nearest(kProtocols, word.text));
    }
    rule.protocol = static_cast<uint8_t>(value);
    rule.protocol_mask = static_cast<uint8_t>(mask);
    return true;
  }

  // ---- lists -------------------------------------------------------------------------------------------------------
  std::vector<Word> items(const Word& word) const {
    std::vector<Word> out;
    size_t begin = 0;
    while (begin <= word.text.size()) {
      const size_t end = std::min(word.text.find(',', begin), word.text.size());
      out.push_back({word.text.substr(begin, end - begin), word.at + begin});
      begin = end + 1;
    }
    return out;
  }

  bool address_item(const Word& item, std::vector<Address>& out) {
    if (same_word(item.text, "any")) {
      out.push_back({});
      return true;
    }
    if (const auto group = shared_.addresses.find(item.text); group != shared_.addresses.end()) {
      out.insert(out.end(), group->second.begin(), group->second.end());
      return true;
    }
    if (shared_.unsound.contains(item.text)) {
      out.push_back({});
      return true;
    }
    bool host_bits = false;
    if (const auto prefix = parse_prefix(item.text, &host_bits)) {
      if (draft_.keyed && host_bits) {
        return fail(item.at, item.text.size(), fmt::format("{} has host bits set", item.text),
                    fmt::format("the prefix {}, or an address without a length", to_string(*prefix)));
      }
      out.push_back({prefix->address.family, *prefix});
      return true;
    }
    std::vector<std::string> names{"any"};
    if (shared_.addresses.size() < 1000) {
      for (const auto& [name, ignored] : shared_.addresses) names.push_back(name);
    }
    return fail(item, "an address", "any, ADDRESS, PREFIX such as 10.0.0.0/8 or 2001:db8::/32, or a defined name",
                closest_match(item.text, names));
  }

  bool addresses(std::vector<Address>& out, std::string_view what) {
    const Word word = take();
    if (word.text.empty()) return fail(word, what, "any, ADDRESS, PREFIX, or a defined name");
    if (word.text.find(',') == std::string_view::npos) return address_item(word, out);
    bool good = true;
    for (const Word& item : items(word)) {
      good &= address_item(item, out);
      if (enough()) return false;
      if (out.size() > kMaxGroup)
        return fail(item, "within the limits", fmt::format("at most {} addresses", kMaxGroup));
    }
    return good;
  }

  std::optional<uint32_t> port(std::string_view text) const {
    if (const auto n = number(text, 65535)) return n;
    return find_named(kServices, text);
  }

  bool port_item(const Word& item, std::vector<PortRange>& out) {
    const std::string_view t = item.text;
    if (same_word(t, "any")) {
      out.push_back({});
      return true;
    }
    if (const auto one = port(t)) {
      out.push_back({static_cast<uint16_t>(*one), static_cast<uint16_t>(*one)});
      return true;
    }
    if (const auto group = shared_.ports.find(t); group != shared_.ports.end()) {
      out.insert(out.end(), group->second.begin(), group->second.end());
      return true;
    }
    if (shared_.unsound.contains(t)) {
      out.push_back({});
      return true;
    }
    const size_t dash = t.find('-');
    if (dash != std::string_view::npos) {
      const auto low = number(t.substr(0, dash), 65535), high = number(t.substr(dash + 1), 65535);
      if (low && high) return port_range(item.at, t.size(), *low, *high, out);
    }
    std::vector<std::string> names;
    for (const Named& n : kServices) names.emplace_back(n.name);
    if (shared_.ports.size() < 1000) {
      for (const auto& [name, ignored] : shared_.ports) names.push_back(name);
    }
    return fail(item, "a port",
                "0..65535, LOW-HIGH, eq N, range LOW HIGH, gt N, lt N, any, a service or a defined name",
                closest_match(t, names));
  }

  bool port_range(size_t at, size_t length, uint32_t low, uint32_t high, std::vector<PortRange>& out) {
    if (low > high) {
      return fail(at, length, fmt::format("port range {}-{} is empty", low, high), "LOW-HIGH with LOW <= HIGH",
                  fmt::format("write it {}-{}", high, low));
    }
    out.push_back({static_cast<uint16_t>(low), static_cast<uint16_t>(high)});
    return true;
  }

  bool ports(std::vector<PortRange>& out) {
    if (take_if("eq")) {
      const Word word = take();
      const auto n = port(word.text);
      if (!n) return fail(word, "a port", "eq N with N in 0..65535 or a service");
      return port_range(word.at, word.text.size(), *n, *n, out);
    }
    if (take_if("range")) {
      const Word a = take();
      const auto low = port(a.text);
      if (!low) fail(a, "a port", "range LOW HIGH");
      if (a.text.empty()) return false;
      const Word b = take();
      const auto high = port(b.text);
      if (!high) fail(b, "a port", "range LOW HIGH");
      if (!low || !high) return false;
      return port_range(a.at, b.at + b.text.size() - a.at, *low, *high, out);
    }
    if (same_word(peek(), "gt") || same_word(peek(), "lt")) {
      const bool greater = same_word(take().text, "gt");
      const Word word = take();
      const auto n = port(word.text);
      if (!n || *n == (greater ? 65535u : 0u))
        return fail(word, "a port that leaves any", greater ? "gt N with N in 0..65534" : "lt N with N in 1..65535");
      return greater ? port_range(word.at, 1, *n + 1, 65535, out) : port_range(word.at, 1, 0, *n - 1, out);
    }
    const Word word = take();
    if (word.text.empty())
      return fail(word, "a port", "80, 1000-2000, eq 80, range 1000 2000, a service or a defined name");
    if (word.text.find(',') == std::string_view::npos) return port_item(word, out);
    bool good = true;
    for (const Word& item : items(word)) {
      good &= port_item(item, out);
      if (enough()) return false;
      if (out.size() > kMaxGroup) return fail(item, "within the limits", fmt::format("at most {} ports", kMaxGroup));
    }
    return good;
  }

  // ---- options -----------------------------------------------------------------------------------------------------
  std::optional<uint32_t> flag_list(const Word& word, bool& good) {
    uint32_t bits = 0;
    bool all = true;
    for (const Word& item : items(word)) {
      if (enough()) break;
      const auto flag = find_named(kFlags, item.text);
      if (!flag) {
        good = all = fail(item, "a TCP flag", "FIN, SYN, RST, PSH, ACK, URG, ECE or CWR", nearest(kFlags, item.text));
        continue;
      }
      bits |= *flag;
    }
    if (!all) return std::nullopt;
    return bits;
  }

  bool pair(const Word& word, uint64_t limit, uint32_t& value, uint32_t& mask, std::string_view what,
            const char* expected) {
    const Pair found = value_mask(word, limit, value, mask);
    return found == Pair::kGood || (found == Pair::kNone && fail(word, what, expected));
  }

  // V/M of at most two digits each and a mask that is not 0: one byte is meant. Four digits are taken at their word.
  static bool one_byte_pair(std::string_view pair) {
    const size_t slash = pair.find('/');
    if (slash == std::string_view::npos) return false;
    auto one_byte = [](std::string_view n) {
      const bool hex = n.size() > 2 && (n[1] | 0x20) == 'x';
      return n.size() <= (hex ? 4 : 3) && number(n, 0xff).has_value();
    };
    const std::string_view mask = pair.substr(slash + 1);
    return one_byte(pair.substr(0, slash)) && one_byte(mask) && number(mask, 0xff) != 0u;
  }

  bool state_list(Draft& draft, const Word& list) {
    if (list.text.empty()) return fail(list, "a state", "state LIST, such as state new,established");
    bool good = true;
    unsigned states = 0;
    for (const Word& item : items(list)) {
      if (enough()) return false;
      const auto state = find_named(kConnStates, item.text);
      if (!state) {
        good = fail(item.at, std::max<size_t>(1, item.text.size()),
                    item.text.empty() ? std::string("a state is missing in the list")
                                      : fmt::format("'{}' is not a state", item.text.substr(0, 60)),
                    "new, established, related or invalid, separated by ','", near_state(item.text));
        continue;
      }
      const unsigned bit = bit_of(static_cast<ConnState>(*state));
      if ((states & bit) != 0)
        good = fail(item.at, item.text.size(), fmt::format("'{}' stands twice", item.text), "each state once");
      states |= bit;
    }
    if (good) draft.states = states;
    return good;
  }
  static std::string near_state(std::string_view word) {
    const std::string near = word.empty() ? std::string() : nearest(kConnStates, word);
    return near.empty() ? near : fmt::format("did you mean '{}'?", near);
  }
  // Of a keyed rule, part() says so.
  bool once(const Draft& draft, const std::optional<Word>& before, const Word& word) {
    return draft.keyed || !before ||
           fail(word.at, word.text.size(), fmt::format("'{}' stands twice", word.text), "each option once");
  }

  bool option(Draft& draft) {
    AclRule& rule = draft.rule;
    const Word word = take();
    uint32_t value = 0, mask = 0;
    auto is = [&](std::string_view name) { return same_word(word.text, name); };
    if (is("log")) {
      rule.log = true;
    } else if (is("state")) {
      const bool first = once(draft, draft.state, word);
      draft.state = word;
      return state_list(draft, take()) && first;
    } else if (is("keep-state")) {
      const bool first = once(draft, draft.keep, word);
      draft.keep = word;
      return first;
    } else if (is("frag")) {
      rule.bits_mask |= FlowKey::kFragment;
      rule.bits |= FlowKey::kFragment;
    } else if (is("no-frag")) {
      rule.bits_mask |= FlowKey::kFragment;
      rule.bits &= static_cast<uint8_t>(~FlowKey::kFragment);
    } else if (is("first-frag") || is("later-frag")) {
      rule.bits_mask |= FlowKey::kFragment | FlowKey::kLaterFragment;
      rule.bits |= is("later-frag") ? FlowKey::kFragment | FlowKey::kLaterFragment : FlowKey::kFragment;
    } else if (is("loose-ports")) {
      draft.loose_ports = true;
    } else if (is("bits")) {
      const Word v = take();
      if (!pair(v, 0xff, value, mask, "a value and mask", "bits 0xV/0xM, 8 bits")) return false;
      rule.bits = static_cast<uint8_t>(value);
      rule.bits_mask = static_cast<uint8_t>(mask);
    } else if (is("flags")) {
      const Word v = take();
      if (one_byte_pair(v.text)) {
        // The trap of this notation: the TCP flags byte, where its 16 bits are wanted.
        return fail(v.at, v.text.size(), "these bits are below the TCP flags byte, and no packet has them",
                    "16 bits with the TCP flags byte in the upper half, or names",
                    fmt::format("write tcp-flags {}, or four digits", v.text));
      }
      const Pair numbers = value_mask(v, 0xffff, value, mask);
      if (numbers == Pair::kWrong) return false;
      if (numbers == Pair::kNone) {
        bool good = true;
        const size_t slash = v.text.find('/');
        const auto set = v.text.empty() ? std::nullopt : flag_list({v.text.substr(0, slash), v.at}, good);
        if (v.text.empty()) return fail(v, "TCP flags", "flags SYN/SYN,ACK or flags 0xV/0xM");
        auto tested = set;
        if (slash != std::string_view::npos) tested = flag_list({v.text.substr(slash + 1), v.at + slash + 1}, good);
        if (!set || !tested) return good;
        if ((*set & ~*tested) != 0)
          return fail(v.at, v.text.size(), "a flag is required that is not in the mask",
                      "SET/TESTED with every flag of SET in TESTED");
        value = *set << 8;
        mask = *tested << 8;
      }
      rule.flags = static_cast<uint16_t>(value);
      rule.flags_mask = static_cast<uint16_t>(mask);
    } else if (is("tcp-flags")) {
      const Word v = take();
      if (!pair(v, 0xff, value, mask, "TCP flags", "tcp-flags V/M, each 0..0xff")) return false;
      rule.flags = static_cast<uint16_t>(value << 8);
      rule.flags_mask = static_cast<uint16_t>(mask << 8);
    } else if (is("dscp")) {
      const Word v = take();
      const auto n = dscp_value(v.text);
      if (!n) return fail(v, "a DSCP", "0..63, ef, af11..af43, cs0..cs7, va, le or default");
      rule.dscp = static_cast<uint8_t>(*n);
    } else if (is("icmp-type") || is("icmp-code")) {
      const Word v = take();
      const auto n = number(v.text, 255);
      if (!n) fail(v, is("icmp-type") ? "an ICMP type" : "an ICMP code", "0..255");
      if (!draft.protocol_unknown && (rule.protocol_mask != 0xff || (rule.protocol != 1 && rule.protocol != 58))) {
        return fail(word.at, word.text.size(), fmt::format("'{}' needs the protocol", word.text),
                    "icmp or icmp6 as the protocol");
      }
      if (!n) return false;
      const unsigned shift = is("icmp-type") ? 8 : 0;
      rule.icmp = static_cast<uint16_t>((rule.icmp & ~(0xffu << shift)) | *n << shift);
      rule.icmp_mask = static_cast<uint16_t>(rule.icmp_mask | 0xffu << shift);
    } else if (is("icmp-match")) {
      const Word v = take();
      if (!pair(v, 0xffff, value, mask, "a value and mask", "icmp-match 0xV/0xM, type << 8 | code")) return false;
      rule.icmp = static_cast<uint16_t>(value);
      rule.icmp_mask = static_cast<uint16_t>(mask);
    } else {
      resume(begins_part);  // nobody knows how many words it would have
      return fail(
          word, "an option",
          "flags, tcp-flags, dscp, frag, no-frag, first-frag, later-frag, icmp-type, icmp-code, loose-ports, state, "
          "keep-state or log",
          closest_match(word.text, {"flags", "tcp-flags", "dscp", "frag", "no-frag", "first-frag", "later-frag",
                                    "icmp-type", "icmp-code", "log", "port", "state", "keep-state"}));
    }
    return true;
  }

  // ---- output ------------------------------------------------------------------------------------------------------
  // One rule for each combination of the lists' members, in their order; pairs of different families are left out
  // where a list holds several, and an error where it is the only pair.
  void emit(Draft& draft, size_t start) {
    const bool named_ports = !draft.sport.empty() || !draft.dport.empty();
    if (draft.sport.empty()) draft.sport.push_back({});
    if (draft.dport.empty()) draft.dport.push_back({});
    AclRule rule = draft.rule;
    rule.needs_ports = named_ports && !draft.loose_ports;
    rule.file = file_;
    rule.line = line_;
    // Counted before they are made.
    const auto count = [](const std::vector<Address>& list, uint8_t family) {
      return static_cast<uint64_t>(std::ranges::count(list, family, &Address::family));
    };
    const uint64_t any_src = count(draft.src, 0), any_dst = count(draft.dst, 0);
    uint64_t pairs = any_src * draft.dst.size() + (draft.src.size() - any_src) * any_dst +
                     count(draft.src, 4) * count(draft.dst, 4) + count(draft.src, 6) * count(draft.dst, 6);
    // The parser goes on behind an Authentication Header of IPv6, so that a second rule is about these packets.
    if (draft.ah) {
      const uint64_t of_ipv4 =
          any_src * count(draft.dst, 4) + count(draft.src, 4) * any_dst + count(draft.src, 4) * count(draft.dst, 4);
      pairs += pairs - of_ipv4;
    }
    // Each list has at most kMaxGroup members more than one, so no product of two overflows.
    const uint64_t ports = draft.sport.size() * draft.dport.size();
    const uint64_t made = ports != 0 && pairs > ~uint64_t{0} / ports ? ~uint64_t{0} : pairs * ports;
    if (made == 0) return families_meet(draft, start);
    if (made > kMaxLineRules) {
      fail(start, 1, fmt::format("the groups of this line make {} rules, more than {}", made, kMaxLineRules),
           "smaller groups");
      return;
    }
    if (draft.state && shared_.states.state && (draft.states & bit_of(*shared_.states.state)) == 0) return;
    shared_.rules += made;
    if (shared_.rules > shared_.max_rules) {
      // What follows is counted too, so that it is known how many there would be; it makes nothing.
      if (!shared_.full) full_at_ = start;
      shared_.full = true;
      return;
    }
    // Of long lists only the partners of the same family are walked, so that the work is bounded by the rules made.
    std::vector<Address> partners[2];
    const bool many = draft.src.size() * draft.dst.size() > kMaxLineRules;
    for (const Address& a : many ? draft.dst : std::vector<Address>()) {
      if (a.family != 6) partners[0].push_back(a);
      if (a.family != 4) partners[1].push_back(a);
    }
    for (const Address& src : draft.src) {
      for (const Address& dst : many&& src.family != 0 ? partners[src.family == 6 ? 1 : 0] : draft.dst) {
        if (src.family != 0 && dst.family != 0 && src.family != dst.family) continue;
        rule.family = src.family != 0 ? src.family : dst.family;
        rule.src = src.prefix;
        rule.dst = dst.prefix;
        for (const PortRange& sport : draft.sport) {
          rule.src_port_low = sport.low;
          rule.src_port_high = sport.high;
          for (const PortRange& dport : draft.dport) {
            rule.dst_port_low = dport.low;
            rule.dst_port_high = dport.high;
            shared_.set.rules.push_back(rule);
            if (!draft.ah || rule.family == 4) continue;
            AclRule behind = rule;
            behind.protocol = behind.protocol_mask = 0;
            behind.family = 6;
            behind.bits_mask |= FlowKey::kAfterAh;
            behind.bits |= FlowKey::kAfterAh;
            shared_.set.rules.push_back(behind);
          }
        }
      }
    }
  }

  // Finds fault where every pair of addresses is of two families.
  void families_meet(const Draft& draft, size_t start) {
    auto families = [](const std::vector<Address>& list) {
      unsigned seen = 0;
      for (const Address& a : list) seen |= a.family == 0 ? 3u : a.family == 4 ? 1u : 2u;
      return seen;
    };
    if ((families(draft.src) & families(draft.dst)) != 0) return;
    fail(start, std::min<size_t>(end_ - start, 200), "the source and the destination are of different address families",
         "addresses of one family");
  }

  Shared& shared_;
  std::string_view text_;
  std::string name_;
  Diagnostics found_;
  uint32_t file_ = 0;
  uint32_t line_ = 0;
  size_t end_ = 0;  // where the line's text ends
  std::optional<size_t> full_at_;
  std::vector<Word> words_;
  size_t next_ = 0;
  Draft draft_;
};

std::string ports_text(uint16_t low, uint16_t high) {
  return low == high ? fmt::format("{}", low) : fmt::format("{}-{}", low, high);
}

}  // namespace

Result<RuleSet> parse_native_rules(std::string_view text, const std::string& file_name, const IncludeReader& reader,
                                   size_t max_rules, const StateReading& states) {
  Shared shared{.reader = reader, .states = states};
  shared.bytes = text.size();
  shared.max_rules = std::min(max_rules, kMaxNativeRules);
  const std::string name = file_name.empty() ? "<input>" : std::filesystem::path(file_name).lexically_normal().string();
  shared.chain.push_back(name);
  // About as many as there are lines: a text that stands for fewer is short.
  shared.set.rules.reserve(std::min({text.size() / 48, size_t{1} << 20, shared.max_rules}));
  File file(shared, text, name);
  Diagnostics& found = file.run();
  if (shared.cancelled) return cancelled_error();
  if (!found.ok()) return found.to_error();
  return std::move(shared.set);
}

Result<RuleSet> parse_native_rules(std::string_view text, const std::string& file_name, const std::string& folder,
                                   std::vector<FileStamp>* included, const StateReading& states) {
  const IncludeReader reader = [&](const std::string& path) -> Result<std::string> {
    const std::string where = (std::filesystem::path(folder) / path).string();
    // A rule file may be a stranger's: what it includes is neither a pipe nor a device.
    struct stat info {};
    if (::stat(where.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      return Error(fmt::format("{} is not a regular file", path));
    auto file = InputFile::open(where);
    if (!file) return std::move(file).error();
    if (included != nullptr) included->push_back(file->stamp());
    return file->table(kMaxBytes);
  };
  return parse_native_rules(text, file_name, reader, kMaxNativeRules, states);
}

std::string to_native(const AclRule& r) {
  std::string out = r.verb == AclVerb::kMark   ? fmt::format("mark({})", r.mark)
                    : r.verb == AclVerb::kDeny ? "deny"
                                               : "permit";
  if (r.protocol_mask == 0xff && (r.protocol != kAuthentication || r.family == 4)) {
    const auto* named = std::find_if(std::begin(kProtocols), std::end(kProtocols),
                                     [&](const Named& n) { return n.value == r.protocol; });
    out += named != std::end(kProtocols) ? fmt::format(" {}", named->name) : fmt::format(" {}", r.protocol);
  } else if (r.protocol_mask != 0) {
    out += fmt::format(" 0x{:02x}/0x{:02x}", r.protocol & r.protocol_mask, r.protocol_mask);
  }
  auto address = [&](IpPrefix p) -> std::string {
    if (r.family == 0) return "any";
    p.address.family = r.family;
    const bool host = p.length == (r.family == 4 ? 32 : 128);
    return host ? to_string(p.address) : to_string(p);
  };
  const bool sports = r.src_port_low != 0 || r.src_port_high != 65535;
  const bool dports = r.dst_port_low != 0 || r.dst_port_high != 65535;
  out += " from " + address(r.src);
  if (sports) out += " port " + ports_text(r.src_port_low, r.src_port_high);
  out += " to " + address(r.dst);
  if (dports || (r.needs_ports && !sports)) out += " port " + ports_text(r.dst_port_low, r.dst_port_high);
  if ((sports || dports) && !r.needs_ports) out += " loose-ports";
  if (r.flags_mask != 0) out += fmt::format(" flags 0x{:04x}/0x{:04x}", r.flags & r.flags_mask, r.flags_mask);
  if (r.dscp != AclRule::kAnyDscp) out += fmt::format(" dscp {}", r.dscp);
  if (r.bits_mask == FlowKey::kFragment) {
    out += (r.bits & FlowKey::kFragment) != 0 ? " frag" : " no-frag";
  } else if (r.bits_mask != 0) {
    out += fmt::format(" bits 0x{:02x}/0x{:02x}", r.bits & r.bits_mask, r.bits_mask);
  }
  const bool icmp = r.protocol_mask == 0xff && (r.protocol == 1 || r.protocol == 58);
  if (icmp && (r.icmp_mask & 0xff00) == 0xff00 && ((r.icmp_mask & 0xff) == 0 || (r.icmp_mask & 0xff) == 0xff)) {
    out += fmt::format(" icmp-type {}", r.icmp >> 8);
    if ((r.icmp_mask & 0xff) != 0) out += fmt::format(" icmp-code {}", r.icmp & 0xff);
  } else if (r.icmp_mask != 0) {
    out += fmt::format(" icmp-match 0x{:04x}/0x{:04x}", r.icmp & r.icmp_mask, r.icmp_mask);
  }
  if (r.keep) out += " keep-state";
  if (r.log) out += " log";
  return out;
}

std::string to_native(const RuleSet& set) {
  std::string out;
  for (const AclRule& rule : set.rules) {
    out += to_native(rule);
    out += '\n';
  }
  return out;
}

}  // namespace sluice
