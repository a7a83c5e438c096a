#include "formats/adjacency_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "net/text.h"

namespace sluice {
namespace {

const std::vector<std::string> kFlagWords = {"drop", "blackhole", "local", "punt"};
const std::vector<std::string> kOptionWords = {"vlan", "mtu", "weight"};
constexpr const char* kLineForm =
    "NEXTHOP DSTMAC SRCMAC PORT [vlan N] [mtu N] [weight N], or NEXTHOP drop|blackhole|local|punt";

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

uint16_t flags_of(std::string_view word) {
  if (word == "drop") return AdjacencyGroup::kDrop;
  if (word == "blackhole") return AdjacencyGroup::kDrop | AdjacencyGroup::kBlackhole;
  if (word == "local") return AdjacencyGroup::kLocal;
  if (word == "punt") return AdjacencyGroup::kPunt;
  return 0;
}

class AdjacencyTextParser {
 public:
  AdjacencyTextParser(std::string_view text, const std::string& file, std::span<const std::string_view> names)
      : text_(text), findings_(file, text), model_(static_cast<uint32_t>(names.size())) {
    for (size_t i = 0; i < names.size(); ++i) ids_.emplace(names[i], static_cast<uint32_t>(i + 1));
  }

  Result<AdjacencyModel> parse() {
    size_t at = 0;
    while (at < text_.size()) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      line(text_.substr(at, end - at));
      at = end + 1;
    }
    if (!findings_.ok()) return findings_.to_error();
    if (unknown_ > kUnknownShown) {
      Diagnostic d;
      d.severity = Diagnostic::Severity::kWarning;
      d.message = fmt::format("{} more next hops are used by no route", unknown_ - kUnknownShown);
      findings_.add(std::move(d));
    }
    model_.warnings = findings_.all();
    return std::move(model_);
  }

 private:
  static constexpr size_t kUnknownShown = 20;

  size_t offset(std::string_view word) const { return static_cast<size_t>(word.data() - text_.data()); }
  Diagnostic& error(std::string_view word, std::string message) {
    return findings_.error_at(offset(word), word.size(), std::move(message));
  }

  void line(std::string_view rest) {
    words_.clear();
    size_t i = 0;
    while (i < rest.size() && words_.size() < 16) {
      while (i < rest.size() && is_separator(rest[i])) ++i;
      if (i == rest.size() || rest[i] == '#') break;
      const size_t begin = i;
      while (i < rest.size() && !is_separator(rest[i])) ++i;
      words_.push_back(rest.substr(begin, i - begin));
    }
    if (words_.empty()) return;
    uint16_t flags = 0;
    std::optional<AdjacencyModel::Neighbour> neighbour;
    if (words_.size() >= 2 && (flags = flags_of(words_[1])) != 0) {
      if (words_.size() > 2) {
        error(words_[2], fmt::format("unexpected '{}' after {}", printable(words_[2]), words_[1])).expected =
            "the end of the line";
        return;
      }
    } else {
      neighbour = parse_neighbour();
      if (!neighbour) return;
    }
    const auto known = ids_.find(words_[0]);
    if (known == ids_.end()) {
      if (++unknown_ <= kUnknownShown) {
        findings_.warning_at(offset(words_[0]), words_[0].size(),
                             fmt::format("no route uses the next hop {}", printable(words_[0])));
      }
      return;
    }
    AdjacencyModel::Group& group = model_.group(known->second);
    if (neighbour ? group.flags != 0 : !group.neighbours.empty() || (group.flags != 0 && group.flags != flags)) {
      error(words_[0], fmt::format("the next hop {} stands for different things", words_[0])).expected =
          "either neighbours, or one of drop, blackhole, local, punt";
      return;
    }
    if (!neighbour) {
      group.flags = flags;
      return;
    }
    // The bucket limit bounds a group as well: every neighbour takes a bucket at least.
    const bool room = group.neighbours.size() < AdjacencyModel::kMaxBuckets;
    if (room) group.neighbours.push_back(*neighbour);
    if (!room || adjacency_buckets(group) == 0) {
      error(words_[0],
            fmt::format("the weights of {} need more than {} buckets", words_[0], AdjacencyModel::kMaxBuckets))
          .expected = "smaller weights, or fewer neighbours";
    }
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
        error(word, i + 1 < words_.size() ? fmt::format("'{}' is no {}", printable(word), key)
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
  AdjacencyModel model_;
  std::unordered_map<std::string_view, uint32_t> ids_;
  std::vector<std::string_view> words_;
  size_t unknown_ = 0;
};

}  // namespace

Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const Rib& rib) {
  const std::vector<std::string_view> names(rib.next_hop_names().begin(), rib.next_hop_names().end());
  return AdjacencyTextParser(text, file, names).parse();
}

Result<AdjacencyModel> parse_adjacencies(std::string_view text, const std::string& file, const NextHopNames& names) {
  std::vector<std::string_view> list(names.count());
  for (uint32_t i = 0; i < names.count(); ++i) list[i] = names.name(i + 1);
  return AdjacencyTextParser(text, file, list).parse();
}

}  // namespace sluice
