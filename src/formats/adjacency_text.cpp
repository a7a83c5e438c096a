#include "formats/adjacency_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "net/text.h"

namespace sluice {
namespace {

const std::vector<std::string> kFlagWords = {"drop",  "blackhole", "unreachable", "prohibit",
                                             "throw", "local",     "punt",        "group"};
constexpr const char* kThings =
    "neighbours, a group, or one of drop, blackhole, unreachable, prohibit, throw, local, punt";
const std::vector<std::string> kOptionWords = {"vlan", "mtu", "weight"};
constexpr const char* kLineForm =
    "NEXTHOP DSTMAC SRCMAC PORT [vlan N] [mtu N] [weight N], NEXTHOP group MEMBER..., or NEXTHOP drop|blackhole|"
    "unreachable|prohibit|throw|local|punt";

bool is_separator(char c) {
  return c == ' ' || c == '\t' || c == ',' || c == '\r';
}

std::optional<uint32_t> parse_number(std::string_view word) {
  if (word.empty() || word.size() > 6) return std::nullopt;
  uint32_t value = 0;
  for (char c : word) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  return value;
}

std::string printable(std::string_view word) {
  std::string out(word.substr(0, 64));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

class AdjacencyTextParser {
 public:
  AdjacencyTextParser(std::string_view text, const std::string& file) : text_(text), findings_(file, text) {}

  Result<NextHopDefinitions> parse() {
    size_t at = 0;
    while (at < text_.size()) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      line(text_.substr(at, end - at));
      at = end + 1;
    }
    if (!findings_.ok()) return findings_.to_error();
    return std::move(definitions_);
  }

  // Warnings for definitions that `used` denies; `ids` are the next hops of the routes.
  template <typename Used>
  std::vector<Diagnostic> unused(Used&& used, const NextHopIds& ids) {
    size_t unknown = 0;
    for (const std::string_view name : order_) {
      if (used(name) || ++unknown > kUnknownShown) continue;
      Diagnostic& d = findings_.warning_at(offset(name), name.size(),
                                           fmt::format("no route uses the next hop {}", printable(name)));
      if (const std::string on_link = on_some_link(name, ids); !on_link.empty())
        d.suggestion = fmt::format("routes use {}: a link-local address needs its interface", printable(on_link));
    }
    if (unknown > kUnknownShown) {
      Diagnostic d;
      d.severity = Diagnostic::Severity::kWarning;
      d.message = fmt::format("{} more next hops are used by no route", unknown - kUnknownShown);
      findings_.add(std::move(d));
    }
    return findings_.all();
  }

 private:
  // A next hop of the routes that is this one with an interface.
  static std::string on_some_link(std::string_view name, const NextHopIds& ids) {
    for (uint32_t id = 1; id <= ids.count(); ++id) {
      const std::string_view other = ids.name(id);
      if (other.size() > name.size() && other.starts_with(name) && other[name.size()] == '%') return std::string(other);
    }
    return {};
  }

  static constexpr size_t kUnknownShown = 20;
  static constexpr size_t kMostWords = AdjacencyModel::kMaxBuckets + 5;

  size_t offset(std::string_view word) const { return static_cast<size_t>(word.data() - text_.data()); }
  Diagnostic& error(std::string_view word, std::string message) {
    return findings_.error_at(offset(word), word.size(), std::move(message));
  }

  void line(std::string_view rest) {
    words_.clear();
    size_t i = 0;
    while (i < rest.size() && words_.size() < kMostWords) {
      while (i < rest.size() && is_separator(rest[i])) ++i;
      if (i == rest.size() || rest[i] == '#') break;
      const size_t begin = i;
      while (i < rest.size() && !is_separator(rest[i])) ++i;
      words_.push_back(rest.substr(begin, i - begin));
    }
    if (words_.empty()) return;
    if (words_[0] == "resolve-via" && words_.size() == 2 && words_[1] == "default") {
      definitions_.via_default = true;
      return;
    }
    NextHopDefinition said;
    if (words_.size() >= 2 && (said.flags = next_hop_flags(words_[1])) != 0) {
      if (words_.size() > 2) {
        error(words_[2], fmt::format("unexpected '{}' after {}", printable(words_[2]), words_[1])).expected =
            "the end of the line";
        return;
      }
    } else if (words_.size() >= 2 && words_[1] == "group") {
      if (!parse_group(said)) return;
    } else {
      const auto neighbour = parse_neighbour();
      if (!neighbour) return;
      said.neighbours.push_back(*neighbour);
    }
    const auto at = definitions_.names.find(words_[0]);
    if (at == definitions_.names.end()) {
      order_.push_back(words_[0]);
      definitions_.names.emplace(words_[0], std::move(said));
      return;
    }
    NextHopDefinition& known = at->second;
    if (known == said && said.neighbours.empty()) return;
    if (known.neighbours.empty() || said.neighbours.empty()) {
      error(words_[0], fmt::format("the next hop {} has conflicting definitions", printable(words_[0]))).expected =
          fmt::format("either {}", kThings);
      return;
    }
    // The bucket limit bounds a group as well: every neighbour takes a bucket at least.
    const bool room = known.neighbours.size() < AdjacencyModel::kMaxBuckets;
    if (room) known.neighbours.push_back(said.neighbours[0]);
    AdjacencyModel::Group group;
    for (const auto& n : known.neighbours) group.members.push_back({0, n.weight});
    if (!room || adjacency_buckets(group) == 0) {
      error(words_[0], fmt::format("the weights of {} need more than {} buckets", printable(words_[0]),
                                   AdjacencyModel::kMaxBuckets))
          .expected = "smaller weights, or fewer neighbours";
    }
  }

  bool parse_group(NextHopDefinition& said) {
    for (size_t i = 2; i < words_.size(); ++i) {
      if (words_[i] == "resilient") {
        const auto buckets = i + 1 < words_.size() ? parse_number(words_[i + 1]) : std::nullopt;
        if (!buckets || *buckets < 2 || *buckets > AdjacencyModel::kMaxResilient || i + 2 < words_.size()) {
          const std::string_view word = words_[std::min(i + (buckets && *buckets >= 2 ? 2 : 1), words_.size() - 1)];
          error(word, fmt::format("'{}' is not a number of buckets at the end of the line", printable(word))).expected =
              fmt::format("resilient 2 to {}", AdjacencyModel::kMaxResilient);
          return false;
        }
        said.buckets = static_cast<uint16_t>(*buckets);
        break;
      }
      auto members = split_next_hops(words_[i]);
      if (members.empty()) members.push_back({std::string(words_[i]), 1});
      said.members.insert(said.members.end(), members.begin(), members.end());
    }
    if (said.members.empty() || said.members.size() > AdjacencyModel::kMaxBuckets) {
      error(words_[1], fmt::format("a group of {} next hops", said.members.size())).expected =
          fmt::format("NEXTHOP group MEMBER[*WEIGHT]... with 1 to {} members", AdjacencyModel::kMaxBuckets);
      return false;
    }
    return true;
  }

  std::optional<AdjacencyModel::Neighbour> parse_neighbour() {
    AdjacencyModel::Neighbour n;
    if (words_.size() < 4) {
      const std::string_view last = words_.back();
      Diagnostic& d = findings_.error_at(offset(last) + last.size(), 1, "the line ends too early");
      d.expected = kLineForm;
      if (words_.size() == 2) {
        const std::string near = closest_match(words_[1], kFlagWords);
        if (!near.empty()) d.suggestion = fmt::format("did you mean {}?", near);
      }
      return std::nullopt;
    }
    for (size_t i = 1; i <= 2; ++i) {
      const auto mac = parse_mac(words_[i]);
      if (!mac) {
        error(words_[i], fmt::format("'{}' is not a MAC address", printable(words_[i]))).expected =
            "six bytes, for example 02:00:00:00:00:01";
        return std::nullopt;
      }
      // A source with the group bit set would be dropped by every bridge (IEEE 802.3 clause 3.2.3).
      if (i == 2 && (mac->bytes[0] & 1) != 0) {
        error(words_[i], fmt::format("source MAC {} is a group address", words_[i])).expected = "a unicast address";
        return std::nullopt;
      }
      (i == 1 ? n.destination : n.source) = *mac;
    }
    const auto port = parse_number(words_[3]);
    if (!port || *port > 65535) {
      error(words_[3], fmt::format("'{}' is not a port number", printable(words_[3]))).expected = "0 to 65535";
      return std::nullopt;
    }
    n.port = static_cast<uint16_t>(*port);
    unsigned seen = 0;
    for (size_t i = 4; i < words_.size(); i += 2) {
      const std::string_view key = words_[i];
      const auto which = std::find(kOptionWords.begin(), kOptionWords.end(), key);
      if (which == kOptionWords.end()) {
        Diagnostic& d = error(key, fmt::format("unknown option '{}'", printable(key)));
        d.expected = "vlan N, mtu N or weight N";
        const std::string near = closest_match(key, kOptionWords);
        if (!near.empty()) d.suggestion = fmt::format("did you mean {}?", near);
        return std::nullopt;
      }
      const auto index = static_cast<unsigned>(which - kOptionWords.begin());
      if ((seen >> index & 1) != 0) {
        error(key, fmt::format("{} is given twice", key));
        return std::nullopt;
      }
      seen |= 1u << index;
      constexpr uint32_t kLow[] = {1, 68, 1};  // 68: RFC 791's least MTU
      constexpr uint32_t kHigh[] = {4094, 65535, AdjacencyModel::kMaxBuckets};
      const auto value = i + 1 < words_.size() ? parse_number(words_[i + 1]) : std::nullopt;
      if (!value || *value < kLow[index] || *value > kHigh[index]) {
        const std::string_view word = i + 1 < words_.size() ? words_[i + 1] : key;
        error(word, i + 1 < words_.size() ? fmt::format("'{}' is not a valid {}", printable(word), key)
                                          : fmt::format("{} without a number", key))
            .expected = fmt::format("{} to {}", kLow[index], kHigh[index]);
        return std::nullopt;
      }
      (index == 0 ? n.vlan : index == 1 ? n.mtu : n.weight) = static_cast<uint16_t>(*value);
    }
    return n;
  }

  std::string_view text_;
  Diagnostics findings_;
  NextHopDefinitions definitions_;
  std::vector<std::string_view> order_;  // of the names, each where it was first
  std::vector<std::string_view> words_;
};

}  // namespace

Result<NextHopDefinitions> parse_next_hops(std::string_view text, const std::string& file) {
  return AdjacencyTextParser(text, file).parse();
}

Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const NextHopIds& ids,
                                         const RouteMatch& match, const NeighbourReach& reach) {
  AdjacencyTextParser parser(text, file);
  auto definitions = parser.parse();
  if (!definitions) return std::move(definitions).error();
  definitions->reach = reach;
  NextHops all(std::move(*definitions));
  all.extend(ids);
  all.settle(match);
  AdjacencyModel model = all.model();
  model.warnings = parser.unused([&](std::string_view name) { return all.find(name) != nullptr; }, ids);
  return model;
}

Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const Rib& rib) {
  return parse_adjacencies(text, file, rib.next_hops(), [&](const IpAddress& a) { return rib.match(a); });
}

Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const NextHopNames& names) {
  NextHopIds ids;
  for (uint32_t i = 1; i <= names.count(); ++i) ids.intern(names.name(i));
  return parse_adjacencies(text, file, ids);
}

}  // namespace sluice
