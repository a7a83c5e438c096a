// host only
#include "control/route_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/cancel.h"
#include "control/change_text.h"
#include "formats/route_text.h"
#include "net/text.h"

namespace sluice {
namespace {

// The words of a change that say more than a route file does, and what is left of its line once they are blank.
struct RouteWords {
  std::string route;
  std::string source;
  std::optional<uint8_t> preference;
  std::optional<uint32_t> metric;
};

class RouteChange {
 public:
  RouteChange(SourcedRib& rib, std::string_view text, const std::string& name)
      : rib_(rib), text_(text), name_(name), findings_(name, text) {}

  Result<std::vector<RouteStep>> make() {
    each_line(text_, [&](uint32_t line, size_t begin, size_t end) {
      if (findings_.error_count() > Diagnostics::kLimit || cancelled()) return;
      line_ = line;
      begin_ = begin;
      end_ = end;
      Words words(text_, begin, end);
      if (words.done()) return;
      const std::string_view verb = words.peek();
      if (verb != "add" && verb != "append" && verb != "delete") {
        wrong_verb(findings_, words, verb, {"add", "append", "delete"});
        return;
      }
      words.take();
      if (words.done()) {
        findings_.error_at(words.at(), 1, "the prefix is missing").expected =
            verb == "delete" ? "PREFIX" : "PREFIX NEXTHOP";
      } else if (verb == "delete") {
        erase(words);
      } else {
        add(words.at(), verb == "append");
      }
    });
    if (!findings_.ok()) return findings_.to_error();
    if (cancelled()) return cancelled_error();
    return std::move(steps_);
  }

 private:
  void step(const IpPrefix& prefix) { steps_.push_back({prefix, rib_.best(prefix)}); }

  // Reads `source`, `preference` and `metric` from `words` on. False: an error was reported.
  bool options(Words words, RouteWords& out) {
    while (!words.done()) {
      const size_t key_at = words.at();
      const std::string_view key = words.take();
      if (key == "via" || key == "dev") {
        words.take();
        continue;
      }
      if (key != "source" && key != "preference" && key != "metric") continue;
      const size_t at = words.done() ? key_at : words.at();
      const std::string_view value = words.take();
      if (key == "source") {
        if (value.empty() || value.size() > 64)
          return findings_.error_at(at, std::max<size_t>(1, value.size()), "a source has a name of 1 to 64 bytes"),
                 false;
        out.source = value;
      } else {
        uint32_t n = 0;
        const auto [stop, code] = std::from_chars(value.data(), value.data() + value.size(), n);
        const bool preference = key == "preference";
        if (code != std::errc() || stop != value.data() + value.size() || (preference && n > 255)) {
          findings_.error_at(at, std::max<size_t>(1, value.size()), fmt::format("'{}' is not a valid {}", value, key))
              .expected = preference ? "0 (best) to 255" : "0 to 4294967295";
          return false;
        }
        if (preference)
          out.preference = static_cast<uint8_t>(n);
        else
          out.metric = n;
      }
      // A metric is the route reader's to understand.
      if (key != "metric") {
        const size_t base = begin_;
        std::fill(out.route.begin() + static_cast<ptrdiff_t>(key_at - base),
                  out.route.begin() + static_cast<ptrdiff_t>(at + value.size() - base), ' ');
      }
    }
    return true;
  }

  uint8_t source_of(const RouteWords& said) {
    const std::string& name = said.source.empty() ? kControlSource : said.source;
    const uint8_t source = rib_.source(name);
    if (source == 0)
      findings_.error_at(begin_, end_ - begin_, fmt::format("more than {} sources", SourcedRib::kMaxSources));
    return source;
  }

  void add(size_t at, bool append) {
    RouteWords said;
    said.route.assign(text_.substr(begin_, end_ - begin_));
    std::fill(said.route.begin(), said.route.begin() + static_cast<ptrdiff_t>(at - begin_), ' ');
    if (!options(Words(text_, at, end_), said)) return;
    Rib one;
    std::vector<RankedRoute> ranked;
    auto parsed = parse_route_lines(said.route, name_, one, &ranked);
    if (!parsed) {
      if (parsed.error().diagnostics.empty()) findings_.error_at(at, end_ - at, parsed.error().message);
      for (Diagnostic d : parsed.error().diagnostics) {
        d.line = line_;
        d.source_line = line_of(text_, begin_, end_);
        findings_.add(std::move(d));
      }
      return;
    }
    one.settle();
    if (one.routes4().size() == 1)
      ranked.push_back({{{0, one.routes4()[0].address, 4}, one.routes4()[0].length}, one.routes4()[0].next_hop, 0});
    if (one.routes6().size() == 1) {
      const Route6& r = one.routes6()[0];
      ranked.push_back({{{r.hi, r.lo, 6}, r.length}, r.next_hop, 0});
    }
    if (ranked.size() != 1) {
      const auto& why = parsed->warnings;
      findings_.error_at(at, end_ - at, why.empty() ? "this route cannot be used" : why[0].message).expected =
          "PREFIX NEXTHOP";
      return;
    }
    const uint8_t source = source_of(said);
    if (source == 0) return;
    const RankedRoute& route = ranked[0];
    std::string hop = one.next_hop_name(route.next_hop);
    RouteCandidate candidate{route.metric, 0, source,
                             said.preference.value_or(default_preference(rib_.source_name(source)))};
    if (append) {
      for (const RouteCandidate& c : rib_.candidates(route.prefix)) {
        if (c.source != source || c.metric != route.metric) continue;
        hop = fmt::format("{}+{}", rib_.next_hops().name(c.next_hop), hop);
        if (!said.preference) candidate.preference = c.preference;
      }
      if (hop.size() > 255) {
        findings_.error_at(at, end_ - at, "a group of next hops with a name of more than 255 bytes").suggestion =
            "name a group in the adjacency file";
        return;
      }
    }
    // A prefix's routes are a list that is walked: one of any length would make the time of a change its square.
    const std::vector<RouteCandidate> there = rib_.candidates(route.prefix);
    if (there.size() >= kMostRoutesOfAPrefix && std::ranges::none_of(there, [&](const RouteCandidate& c) {
          return c.source == source && c.metric == route.metric;
        })) {
      findings_.error_at(at, end_ - at,
                         fmt::format("more than {} routes for {}", kMostRoutesOfAPrefix, to_string(route.prefix)));
      return;
    }
    candidate.next_hop = static_cast<uint16_t>(rib_.next_hops().intern(hop));
    if (candidate.next_hop == 0) {
      findings_.error_at(at, end_ - at, fmt::format("more than {} different next hops", NextHopIds::kMost));
      return;
    }
    rib_.add(route.prefix, candidate);
    step(route.prefix);
  }

  void erase(Words words) {
    const size_t at = words.at();
    const std::string_view word = words.take();
    RouteWords said;
    said.route.assign(text_.substr(begin_, end_ - begin_));
    if (!options(words, said)) return;
    const size_t rest = words.at();
    Words left(said.route, rest - begin_, said.route.size());
    if (said.metric && left.peek() == "metric") left.take(), left.take();
    const uint8_t source = said.source.empty() ? uint8_t{0} : rib_.find_source(said.source);
    if (!said.source.empty() && source == 0) {
      findings_.error_at(at, end_ - at, fmt::format("there is no source '{}' of routes", said.source)).expected =
          fmt::format("{}", fmt::join(source_names(), ", "));
      return;
    }
    if (word == "all" && source != 0 && !said.metric && left.done()) {
      for (const SourcedRib::Owned& owned : rib_.owned(source)) {
        rib_.remove(owned.prefix, source, owned.metric);
        step(owned.prefix);
      }
      return;
    }
    bool host_bits = false;
    const auto prefix = parse_prefix(word, &host_bits);
    if (!prefix || host_bits) {
      Diagnostic& d = findings_.error_at(
          at, word.size(),
          prefix ? fmt::format("'{}' has bits set past its length", word) : fmt::format("'{}' is not a prefix", word));
      d.expected = "such as 10.0.0.0/8 or 2001:db8::/32";
      if (prefix) d.suggestion = fmt::format("did you mean '{}'?", to_string(*prefix));
      if (word == "default") d.suggestion = "write 0.0.0.0/0 or ::/0";
      return;
    }
    if (!left.done() || said.preference) {
      findings_.error_at(rest, std::max<size_t>(1, end_ - rest), "more than a prefix").expected =
          "delete PREFIX [metric N] [source NAME]";
      return;
    }
    for (const RouteCandidate& c : rib_.candidates(*prefix)) {
      if ((source != 0 && c.source != source) || (said.metric && c.metric != *said.metric)) continue;
      rib_.remove(*prefix, c.source, c.metric);
      step(*prefix);
      return;
    }
    findings_.error_at(at, word.size(),
                       fmt::format("there is no route for {}{}", to_string(*prefix),
                                   source == 0 && !said.metric ? "" : " of that source and metric"));
  }

  std::vector<std::string> source_names() const {
    std::vector<std::string> names;
    for (unsigned i = 1; i <= rib_.source_count(); ++i) names.push_back(rib_.source_name(static_cast<uint8_t>(i)));
    return names;
  }

  static inline const std::string kControlSource = "control";
  static constexpr size_t kMostRoutesOfAPrefix = 1024;
  SourcedRib& rib_;
  std::string_view text_;
  const std::string& name_;
  Diagnostics findings_;
  std::vector<RouteStep> steps_;
  uint32_t line_ = 0;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace

Result<std::vector<RouteStep>> take_route_change(SourcedRib& rib, std::string_view text, const std::string& name) {
  return RouteChange(rib, text, name).make();
}

}  // namespace sluice
