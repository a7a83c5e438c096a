#include "formats/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "formats/iptables_rules.h"
#include "formats/route_text.h"
#include "formats/vpp_rules.h"
#include "net/text.h"

namespace sluice {
namespace {

constexpr size_t kLooked = 8192;  // bytes

using Words = std::array<std::string_view, 3>;

// The first three words of a line; empty where it has fewer.
Words words_of(std::string_view line) {
  Words words;
  size_t at = 0;
  for (std::string_view& word : words) {
    at = std::min(line.find_first_not_of(" \t\r,", at), line.size());
    const size_t end = std::min(line.find_first_of(" \t\r,", at), line.size());
    word = line.substr(at, end - at);
    at = end;
  }
  return words;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_nft_text(std::string_view line, const Words& w) {
  if (is_one_of(w[0], {"flush", "add", "create", "delete", "destroy"}) &&
      is_one_of(w[1], {"ruleset", "table", "chain", "rule"}))
    return true;
  return w[0] == "table" && line.find('{') != std::string_view::npos;
}

bool is_mac(std::string_view word) {
  return word.size() == 17 && std::count(word.begin(), word.end(), ':') == 5;
}

// A key of TOML with its value, or a section.
bool is_toml(std::string_view line, const Words& w) {
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  if (line.starts_with('[') && line.find(']') != std::string_view::npos)
    return line.substr(1, line.find(']') - 1).find_first_not_of(kName) == std::string_view::npos;
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || w[0].empty()) return false;
  const std::string_view key = w[0].substr(0, w[0].find('='));
  return !key.empty() && key.find_first_not_of(kName) == std::string_view::npos &&
         (w[1].starts_with('=') || w[0].size() > key.size());
}

FileKind kind_of_line(std::string_view line) {
  const Words w = words_of(line);
  if (line.starts_with('@')) return FileKind::kClassBench;
  if (is_iptables_start(line)) return FileKind::kIptables;
  if (is_vpp_command(line)) return FileKind::kVpp;
  if (is_nft_text(line, w)) return FileKind::kNftText;
  if (line.find("::") != std::string_view::npos && line.find(')') != std::string_view::npos) return FileKind::kClick;
  if (line.find("->") != std::string_view::npos && line.find('(') != std::string_view::npos) return FileKind::kClick;
  if (is_one_of(w[0], {"permit", "deny", "mark"}) && !w[1].empty()) return FileKind::kRules;
  if (w[0] == "src" && (parse_prefix(w[1]) || w[1] == "any")) return FileKind::kRules;
  if (is_mac(w[1]) && is_mac(w[2])) return FileKind::kAdjacencies;
  if ((parse_prefix(w[0]) || w[0] == "default") && !w[1].empty()) return FileKind::kRoutes;
  if (is_toml(line, w)) return FileKind::kToml;
  return FileKind::kUnknown;
}

bool is_rules(FileKind kind) {
  return kind >= FileKind::kRules && kind <= FileKind::kNft;
}

std::string words_for(FileKind kind) {
  switch (kind) {
    case FileKind::kRules:
      return "an access list";
    case FileKind::kClassBench:
      return "an access list in the ClassBench format";
    case FileKind::kVpp:
      return "an access list in VPP's commands";
    case FileKind::kIptables:
      return "the output of iptables-save";
    case FileKind::kNft:
      return "the output of nft -j list ruleset";
    case FileKind::kNftText:
      return "nftables text";
    case FileKind::kRoutes:
      return "a route file";
    case FileKind::kAdjacencies:
      return "an adjacency file";
    case FileKind::kClick:
      return "a Click configuration";
    case FileKind::kToml:
      return "a TOML configuration";
    case FileKind::kCapture:
      return "a packet capture";
    case FileKind::kUnknown:
      break;
  }
  return "nothing known";
}

std::string help_for(FileKind kind, const std::string& file) {
  if (is_rules(kind)) return fmt::format("give it as the access list: --acl {0} (check: --rules {0})", file);
  switch (kind) {
    case FileKind::kNftText:
      return fmt::format(
          "nft converts it, without loading it: unshare -rn sh -c 'nft -f {0} && nft -j list ruleset' > {0}.json; the "
          "rules in use: nft -j list ruleset > rules.json",
          file);
    case FileKind::kRoutes:
      return fmt::format("give it as the routes: --routes {}", file);
    case FileKind::kAdjacencies:
      return fmt::format("give it as the adjacencies: --adjacencies {}", file);
    case FileKind::kClick:
      return fmt::format("give it as the graph: sluice run {}", file);
    case FileKind::kToml:
      return fmt::format("give it as the options: sluice run --config {}", file);
    case FileKind::kCapture:
      return fmt::format("give it as the input: --in {}", file);
    default:
      return {};
  }
}

}  // namespace

FileKind kind_of(std::string_view text) {
  text = text.substr(0, kLooked);
  constexpr std::array<std::string_view, 5> kCaptures = {"\xd4\xc3\xb2\xa1", "\xa1\xb2\xc3\xd4", "\x4d\x3c\xb2\xa1",
                                                         "\xa1\xb2\x3c\x4d", "\x0a\x0d\x0d\x0a"};
  for (const std::string_view magic : kCaptures)
    if (text.starts_with(magic)) return FileKind::kCapture;
  if (text.starts_with("#!") && text.substr(0, text.find('\n')).find("nft") != std::string_view::npos)
    return FileKind::kNftText;
  const std::string_view start = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (start.starts_with('{'))
    return start.find("\"nftables\"") != std::string_view::npos ? FileKind::kNft : FileKind::kUnknown;
  // A line that tells nothing by itself (define, include, a comment of another language) leaves it to the next.
  unsigned lines = 0;
  for (size_t at = 0; at < text.size() && lines < 16;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    at = end + 1;
    if (line.empty() || line[0] == '#' || line.starts_with("//")) continue;
    ++lines;
    if (const FileKind kind = kind_of_line(line); kind != FileKind::kUnknown) return kind;
    if (detect_route_format(line) != RouteFormat::kLines) return FileKind::kRoutes;
  }
  return FileKind::kUnknown;
}

std::optional<Error> other_kind(std::string_view text, const std::string& file, KindWanted given_for) {
  const FileKind kind = kind_of(text);
  const bool as_given = given_for == KindWanted::kRules    ? is_rules(kind)
                        : given_for == KindWanted::kRoutes ? kind == FileKind::kRoutes
                                                           : kind == FileKind::kClick;
  if (kind == FileKind::kUnknown || as_given) return std::nullopt;
  const char* const wanted = given_for == KindWanted::kRules    ? "an access list"
                             : given_for == KindWanted::kRoutes ? "a route file"
                                                                : "a Click configuration";
  if (kind == FileKind::kNftText && given_for == KindWanted::kRules)
    return Error(fmt::format("{}: this is nftables text, and of nftables only the JSON form is read", file),
                 help_for(kind, file));
  return Error(fmt::format("{}: this is not {}: it looks like {}", file, wanted, words_for(kind)),
               help_for(kind, file));
}

}  // namespace sluice
