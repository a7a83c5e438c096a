#include "formats/qos_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "formats/names.h"
#include "qos/departure.h"

namespace sluice {
namespace {

const std::vector<std::string> kClassKeys = {"dscp",  "mark",  "strict", "weight", "rate",
                                             "burst", "limit", "red",    "police", "remark"};
const std::vector<std::string> kColorWords = {"green", "yellow", "red"};
constexpr const char* kRateForm = "a rate such as 10Mbps (bps, kbps, Mbps, Gbps), from 1kbps to 400Gbps";
constexpr const char* kDscpForm =
    "codepoints separated by commas: 0 to 63, ef, af11 to af43, cs0 to cs7, va, le, default, LOW-HIGH, or others";
constexpr const char* kMarkForm = "marks separated by commas: 1 to 4294967295, or LOW-HIGH";

std::string printed_word(std::string_view word) {
  std::string out(word.substr(0, 64));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

bool is_byte_rate(std::string_view word) {
  return word.ends_with("Bps");
}

class QosTextParser {
 public:
  QosTextParser(std::string_view text, const std::string& file) : text_(text), findings_(file, text) {
    owner_.fill(kNobody);
  }

  Result<QosModel> parse() {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";  // some editors begin a file of UTF-8 with it
    for (size_t at = text_.starts_with(kMark) ? kMark.size() : 0; at < text_.size();) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      line(text_.substr(at, end - at));
      at = end + 1;
    }
    if (model_.classes.empty() && findings_.ok()) {
      findings_.error_at(0, 1, "there is no class").expected = "class NAME [dscp LIST] [strict | weight N] ...";
    }
    if (!findings_.ok()) return findings_.to_error();
    for (unsigned dscp = 0; dscp < 64; ++dscp) {
      const size_t fallback = others_ != kNobody ? others_ : model_.classes.size() - 1;
      model_.map.set(dscp, static_cast<unsigned>(owner_[dscp] != kNobody ? owner_[dscp] : fallback));
    }
    return std::move(model_);
  }

 private:
  static constexpr size_t kNobody = ~size_t{0};

  size_t offset(std::string_view word) const { return static_cast<size_t>(word.data() - text_.data()); }
  Diagnostic& error(std::string_view word, std::string message) {
    return findings_.error_at(offset(word), std::max<size_t>(word.size(), 1), std::move(message));
  }
  bool wrong(std::string_view word, std::string message, std::string expected, std::string suggestion = {}) {
    Diagnostic& d = error(word, std::move(message));
    d.expected = std::move(expected);
    d.suggestion = std::move(suggestion);
    return false;
  }
  static std::string did_you_mean(std::string_view word, const std::vector<std::string>& words) {
    const std::string near = closest_match(word, words);
    return near.empty() ? std::string() : fmt::format("did you mean {}?", near);
  }

  void line(std::string_view rest) {
    rest_ = rest;
    const std::string_view word = next();
    if (word.empty()) return;
    if (word == "class") {
      class_line();
    } else if (word == "port") {
      port_line();
    } else {
      wrong(word, fmt::format("unknown word '{}'", printed_word(word)), "class NAME ..., or port rate RATE",
            did_you_mean(word, {"class", "port"}));
    }
  }
  // The next word; empty, at the end of the line, where there is none.
  std::string_view next() {
    size_t i = 0;
    while (i < rest_.size() && (rest_[i] == ' ' || rest_[i] == '\t' || rest_[i] == '\r')) ++i;
    rest_.remove_prefix(i);
    if (!rest_.empty() && rest_[0] == '#') rest_ = rest_.substr(0, 0);
    i = 0;
    while (i < rest_.size() && rest_[i] != ' ' && rest_[i] != '\t' && rest_[i] != '\r' && rest_[i] != '#') ++i;
    const std::string_view word = rest_.substr(0, i);
    rest_.remove_prefix(i);
    return word;
  }

  // Words joined by commas, behind which there may be blanks.
  std::string_view next_list() {
    std::string_view list = next();
    while (!list.empty() && list.back() == ',') {
      const std::string_view more = next();
      if (more.empty()) break;
      list = {list.data(), static_cast<size_t>(more.data() + more.size() - list.data())};
    }
    return list;
  }
  // The item of a list from `at` on, which goes behind it.
  static std::string_view item_of(std::string_view list, size_t& at) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string_view item = list.substr(at, end - at);
    item.remove_prefix(std::min(item.find_first_not_of(" \t\r"), item.size()));
    at = end + 1;
    return item;
  }

  bool number(std::string_view what, uint64_t low, uint64_t high, uint64_t* out) {
    const std::string_view word = next();
    const auto value = names::number(word, high);
    if (!value || *value < low) {
      return wrong(word,
                   word.empty() ? fmt::format("{} without a number", what)
                                : fmt::format("'{}' is not a valid {}", printed_word(word), what),
                   fmt::format("{} to {}", low, high));
    }
    *out = *value;
    return true;
  }
  bool bytes(std::string_view what, uint64_t low, uint32_t* out) {
    uint64_t value = 0;
    if (!number(what, low, PolicerConfig::kMaxBurstBytes, &value)) return false;
    *out = static_cast<uint32_t>(value);
    return true;
  }
  bool rate(std::string_view what, uint64_t* out) {
    const std::string_view word = next();
    if (word.empty()) return wrong(word, fmt::format("{} without a rate", what), kRateForm);
    if (!parse_rate_bps(word, out) || *out < DepartureRate::kLeastBps) {
      const bool bare = word.find_first_not_of("0123456789.") == std::string_view::npos;
      return wrong(word, fmt::format("'{}' is not a valid {}", printed_word(word), what), kRateForm,
                   bare                 ? fmt::format("write {0}kbps or {0}Mbps", printed_word(word))
                   : is_byte_rate(word) ? "rates are in bits here: write eight times as many Mbps"
                                        : std::string());
    }
    return true;
  }

  void port_line() {
    if (port_seen_) {
      wrong(rest_, "the port is given twice", "one port line");
      return;
    }
    port_seen_ = true;
    std::string_view word = next();
    if (word != "rate") {
      wrong(word, fmt::format("unexpected '{}' after port", printed_word(word)), "rate RATE [burst BYTES]");
      return;
    }
    if (!rate("rate", &model_.port_rate_bps)) return;
    word = next();
    if (word == "burst") {
      if (!bytes("burst", 0, &model_.port_burst_bytes)) return;
      word = next();
    }
    if (!word.empty())
      wrong(word, fmt::format("unexpected '{}'", printed_word(word)), "burst BYTES, or the end of the line");
  }

  void class_line() {
    QosClass c;
    const std::string_view name = next();
    if (name.empty()) {
      wrong(name, "a class without a name", "class NAME [dscp LIST] [strict | weight N] ...");
      return;
    }
    if (std::any_of(name.begin(), name.end(), [](char sign) { return sign < '!' || sign > '~'; })) {
      wrong(name, fmt::format("'{}' is not a name", printed_word(name)), "ASCII letters, digits and signs");
      return;
    }
    if (name == "port") {
      wrong(name, "a class cannot be called port", "another name: 'sluice qos set port' sets the port itself");
      return;
    }
    c.name = std::string(name.substr(0, 64));
    const size_t index = model_.classes.size();
    if (index == kMaxQosClasses) {
      wrong(name, fmt::format("class {} is one too many", printed_word(name)),
            fmt::format("at most {} classes", kMaxQosClasses));
      return;
    }
    for (const QosClass& other : model_.classes) {
      if (other.name == c.name) {
        wrong(name, fmt::format("there is a class {} already", printed_word(name)), "another name");
        return;
      }
    }
    // It is kept even where its line is wrong, so that the numbers of the others stay.
    read_keys(c, index);
    model_.classes.push_back(std::move(c));
  }

  void read_keys(QosClass& c, size_t index) {
    std::array<bool, 16> seen{};
    std::string_view burst_word, red_word, color_word;
    for (std::string_view key = next(); !key.empty(); key = next()) {
      const auto at = std::find(kClassKeys.begin(), kClassKeys.end(), key);
      if (at == kClassKeys.end()) {
        wrong(key, fmt::format("unknown word '{}'", printed_word(key)),
              fmt::format("one of {}", fmt::join(kClassKeys, ", ")), did_you_mean(key, kClassKeys));
        return;
      }
      const auto which = static_cast<size_t>(at - kClassKeys.begin());
      if (seen[which] && key != "remark" && key != "dscp" && key != "mark") {
        wrong(key, fmt::format("{} is given twice", key), "it once");
        return;
      }
      seen[which] = true;
      if ((key == "weight" && c.strict) || (key == "strict" && seen[3])) {
        wrong(key, "a class is either strict or weighted", "strict, or weight N");
        return;
      }
      if (key == "burst") burst_word = key;
      if (key == "red") red_word = key;
      uint64_t n = 0;
      bool good = true;
      if (key == "dscp") {
        good = dscps(index);
      } else if (key == "mark") {
        good = marks(index);
      } else if (key == "strict") {
        c.strict = true;
      } else if (key == "weight") {
        if ((good = number("weight", 1, QosModel::kMaxWeight, &n))) c.weight = static_cast<uint32_t>(n);
      } else if (key == "rate") {
        good = rate("rate", &c.rate_bps);
      } else if (key == "burst") {
        good = bytes("burst", 0, &c.burst_bytes);
      } else if (key == "limit") {
        if ((good = number("limit", 1, QosModel::kMaxLimitPkts, &n))) c.limit_pkts = static_cast<uint32_t>(n);
      } else if (key == "red") {
        good = red(c.red);
      } else if (key == "police") {
        good = police(c);
      } else {
        good = remark(c, color_word);
      }
      if (!good) return;
    }
    if (!burst_word.empty() && c.rate_bps == 0) wrong(burst_word, "burst without rate", "rate RATE burst BYTES");
    if (!red_word.empty() && c.red.max_pkts > c.limit_pkts) {
      wrong(red_word, fmt::format("red ends at {} packets, and the queue at {}", c.red.max_pkts, c.limit_pkts),
            "a higher limit, or lower thresholds");
    }
    if (!color_word.empty() && !c.policed)
      wrong(color_word, fmt::format("no packet is {} without police", color_word), "police ..., or remark green");
  }

  bool dscps(size_t index) {
    const std::string_view list = next_list();
    if (list.empty()) return wrong(list, "dscp without codepoints", kDscpForm);
    for (size_t at = 0; at <= list.size();) {
      const std::string_view item = item_of(list, at);
      if (item == "others") {
        if (others_ != kNobody && others_ != index)
          return wrong(item, fmt::format("others is of class {} already", printed_word(model_.classes[others_].name)),
                       "it once");
        others_ = index;
        continue;
      }
      const size_t dash = item.find('-');
      const auto low = names::dscp_value(item.substr(0, dash));
      const auto high = dash == std::string_view::npos ? low : names::dscp_value(item.substr(dash + 1));
      if (!low || !high) return wrong(item, fmt::format("'{}' is not a codepoint", printed_word(item)), kDscpForm);
      if (*low > *high) {
        return wrong(item, fmt::format("the range {} is empty", printed_word(item)), "LOW-HIGH with LOW <= HIGH",
                     fmt::format("write it {}-{}", *high, *low));
      }
      for (uint32_t dscp = *low; dscp <= *high; ++dscp) {
        if (owner_[dscp] != kNobody && owner_[dscp] != index) {
          return wrong(
              item,
              fmt::format("codepoint {} is of class {} already", dscp, printed_word(model_.classes[owner_[dscp]].name)),
              "each codepoint in one class");
        }
        owner_[dscp] = index;
      }
    }
    return true;
  }

  bool marks(size_t index) {
    const std::string_view list = next_list();
    if (list.empty()) return wrong(list, "mark without marks", kMarkForm);
    for (size_t at = 0; at <= list.size();) {
      const std::string_view item = item_of(list, at);
      const size_t dash = item.find('-');
      const auto low = names::number(item.substr(0, dash), ~uint32_t{0});
      const auto high = dash == std::string_view::npos ? low : names::number(item.substr(dash + 1), ~uint32_t{0});
      if (!low || !high || *low == 0 || *high == 0)
        return wrong(item, fmt::format("'{}' is not a mark", printed_word(item)), kMarkForm);
      if (*low > *high) {
        return wrong(item, fmt::format("the range {} is empty", printed_word(item)), "LOW-HIGH with LOW <= HIGH",
                     fmt::format("write it {}-{}", *high, *low));
      }
      QosMarks range;
      range.low = static_cast<uint32_t>(*low);
      range.high = static_cast<uint32_t>(*high);
      range.qos_class = static_cast<uint8_t>(index);
      // Those of a class that was read before have its name.
      std::vector<QosMarks>& all = model_.marks;
      const auto behind = std::upper_bound(all.begin(), all.end(), range.low,
                                           [](uint32_t value, const QosMarks& r) { return value < r.low; });
      const QosMarks* other = behind != all.begin() && (behind - 1)->high >= range.low ? &*(behind - 1)
                              : behind != all.end() && behind->low <= range.high       ? &*behind
                                                                                       : nullptr;
      if (other != nullptr) {
        return wrong(item,
                     fmt::format("mark {} is of class {} already", std::max(other->low, range.low),
                                 other->qos_class == index ? std::string("this")
                                                           : printed_word(model_.classes[other->qos_class].name)),
                     "each mark in one class, once");
      }
      all.insert(behind, range);
    }
    return true;
  }

  bool red(RedConfig& out) {
    uint64_t low = 0;
    uint64_t high = 0;
    if (!number("threshold", 0, QosModel::kMaxLimitPkts - 1, &low)) return false;
    if (!number("threshold", low + 1, QosModel::kMaxLimitPkts, &high)) return false;
    const std::string_view word = next();
    const bool percent = !word.empty() && word.back() == '%';
    const auto value = names::number(word.substr(0, word.size() - (percent ? 1 : 0)), 100);
    if (!percent || !value || *value == 0) {
      return wrong(
          word,
          word.empty() ? "red without a probability" : fmt::format("'{}' is not a probability", printed_word(word)),
          "1% to 100%");
    }
    out.min_pkts = static_cast<uint32_t>(low);
    out.max_pkts = static_cast<uint32_t>(high);
    out.max_probability_ppm = *value * 10'000;
    return true;
  }

  bool police(QosClass& c) {
    const std::string_view kind = next();
    if (kind != "srtcm" && kind != "trtcm") {
      return wrong(kind,
                   kind.empty() ? "police without a kind" : fmt::format("unknown policer '{}'", printed_word(kind)),
                   "srtcm CIR CBS EBS, or trtcm CIR CBS PIR PBS", did_you_mean(kind, {"srtcm", "trtcm"}));
    }
    PolicerConfig& p = c.police;
    p.two_rates = kind == "trtcm" ? 1 : 0;
    if (!rate("committed rate", &p.committed_bps)) return false;
    if (!bytes("committed burst", 0, &p.committed_burst_bytes)) return false;
    const std::string_view before = rest_;
    if (p.two_rates != 0) {
      if (!rate("peak rate", &p.peak_bps)) return false;
      if (p.peak_bps < p.committed_bps) {
        return wrong(before.substr(0, before.size() - rest_.size()), "the peak rate is below the committed rate",
                     "PIR >= CIR (RFC 2698 section 2)");
      }
    }
    if (!bytes(p.two_rates != 0 ? "peak burst" : "excess burst", 0, &p.excess_burst_bytes)) return false;
    if (p.committed_burst_bytes == 0 && p.excess_burst_bytes == 0) {
      return wrong(kind, "both bursts are 0, so that every packet is red", "a burst of at least one packet");
    }
    c.policed = true;
    return true;
  }

  // `meant`: a color that only a policer gives, if there is one.
  bool remark(QosClass& c, std::string_view& meant) {
    const std::string_view color = next();
    const auto at = std::find(kColorWords.begin(), kColorWords.end(), color);
    if (at == kColorWords.end()) {
      return wrong(color,
                   color.empty() ? "remark without a color" : fmt::format("'{}' is not a color", printed_word(color)),
                   "green, yellow or red", did_you_mean(color, kColorWords));
    }
    uint8_t& slot = c.remark[at - kColorWords.begin()];
    if (slot != RemarkMap::kKeep) return wrong(color, fmt::format("{} is given twice", color), "it once");
    const std::string_view word = next();
    const auto dscp = names::dscp_value(word);
    if (!dscp) {
      return wrong(
          word,
          word.empty() ? "remark without a codepoint" : fmt::format("'{}' is not a codepoint", printed_word(word)),
          "one codepoint: 0 to 63, or a name such as af12");
    }
    slot = static_cast<uint8_t>(*dscp);
    if (color != "green") meant = color;
    return true;
  }

  std::string_view text_;
  std::string_view rest_;
  Diagnostics findings_;
  QosModel model_;
  std::array<size_t, 64> owner_{};
  size_t others_ = kNobody;
  bool port_seen_ = false;
};

}  // namespace

Result<QosModel> parse_qos(std::string_view text, const std::string& file) {
  return QosTextParser(text, file).parse();
}

bool parse_rate_bps(std::string_view text, uint64_t* bps) {
  struct Unit {
    std::string_view name;
    uint64_t scale;
  };
  constexpr Unit kUnits[] = {{"kbps", 1'000}, {"Mbps", 1'000'000}, {"Gbps", 1'000'000'000}, {"bps", 1}};
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit = text.substr(digits);
  if (is_byte_rate(unit)) return false;  // case is ignored but for that: bytes a second are something else
  for (const Unit& u : kUnits) {
    if (!names::same_word(u.name, unit)) continue;
    const size_t point = std::min(number.find('.'), number.size());
    if (point == 0) return false;
    uint64_t whole = 0;
    for (const char c : number.substr(0, point)) {
      whole = whole * 10 + static_cast<uint64_t>(c - '0');
      if (whole > DepartureRate::kMostBps / u.scale) return false;
    }
    uint64_t value = whole * u.scale;
    uint64_t scale = u.scale;
    if (point < number.size()) {
      if (point + 1 == number.size()) return false;
      for (const char c : number.substr(point + 1)) {
        if (c < '0' || c > '9' || (scale % 10 != 0 && c != '0')) return false;
        scale /= 10;
        value += static_cast<uint64_t>(c - '0') * scale;
      }
    }
    if (value > DepartureRate::kMostBps) return false;
    *bps = value;
    return true;
  }
  return false;
}

std::string format_qos(const QosModel& model) {
  std::string out;
  for (size_t i = 0; i < model.classes.size(); ++i) {
    const QosClass& c = model.classes[i];
    out += fmt::format("class {}", c.name);
    std::string list;
    for (unsigned dscp = 0; dscp < 64; ++dscp) {
      if (model.map.class_of(dscp) == i) list += fmt::format("{}{}", list.empty() ? "" : ",", dscp);
    }
    if (!list.empty()) out += fmt::format(" dscp {}", list);
    list.clear();
    for (const QosMarks& m : model.marks) {
      if (m.qos_class != i) continue;
      list += fmt::format("{}{}", list.empty() ? "" : ",", m.low);
      if (m.high != m.low) list += fmt::format("-{}", m.high);
    }
    if (!list.empty()) out += fmt::format(" mark {}", list);
    out += c.strict ? std::string(" strict") : fmt::format(" weight {}", c.weight);
    if (c.rate_bps != 0) out += fmt::format(" rate {}bps burst {}", c.rate_bps, c.burst_bytes);
    out += fmt::format(" limit {}", c.limit_pkts);
    if (c.red.enabled())
      out += fmt::format(" red {} {} {}%", c.red.min_pkts, c.red.max_pkts, c.red.max_probability_ppm / 10'000);
    if (c.policed && c.police.two_rates != 0) {
      out += fmt::format(" police trtcm {}bps {} {}bps {}", c.police.committed_bps, c.police.committed_burst_bytes,
                         c.police.peak_bps, c.police.excess_burst_bytes);
    } else if (c.policed) {
      out += fmt::format(" police srtcm {}bps {} {}", c.police.committed_bps, c.police.committed_burst_bytes,
                         c.police.excess_burst_bytes);
    }
    for (unsigned color = 0; color < kColors; ++color) {
      if (c.remark[color] != RemarkMap::kKeep) out += fmt::format(" remark {} {}", kColorWords[color], c.remark[color]);
    }
    out += '\n';
  }
  if (model.port_rate_bps != 0) {
    out += fmt::format("port rate {}bps burst {}\n", model.port_rate_bps, model.port_burst_bytes);
  }
  return out;
}

}  // namespace sluice
