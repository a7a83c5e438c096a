#include "rule_text.h"

#include <sys/stat.h>

#include "base/input_file.h"
#include "control/json.h"
#include "formats/native_rules.h"

namespace sluice::app {
namespace {

constexpr size_t kMaxShown = 200;

// What an image names may be anything by now.
Result<std::string> read_again(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return Error(fmt::format("{} is not a file", file));
  return read_text_file(file);
}

// The lines of the file that was asked for last; the list's own text is known, a pipe's could not be read again.
const std::string& line_text(const LoadedAcl& acl, const std::string& file, uint32_t line) {
  static std::string cached, none;
  static std::vector<std::string> lines;
  if (cached != file) {
    lines.clear();
    const bool own = !acl.text.empty() && file == (acl.file == "-" ? "standard input" : acl.file);
    const auto other = own ? Result<std::string>(std::string()) : read_again(file);
    const std::string_view text = own ? std::string_view(acl.text) : other.ok() ? std::string_view(*other) : "";
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.emplace_back(text.substr(at, std::min(end - at, kMaxShown + 1)));
      at = end + 1;
    }
    cached = file;
  }
  return line <= lines.size() ? lines[line - 1] : none;
}

std::string rule_text(const LoadedAcl& acl, uint32_t rule) {
  const uint32_t line = acl.source.line(rule);
  if (line == 0) return {};
  std::string found = line_text(acl, std::string(acl.source.file(rule)), line);
  for (char& c : found) c = c == '\t' || c == '\r' ? ' ' : c;
  while (!found.empty() && found.back() == ' ') found.pop_back();
  if (found.size() <= kMaxShown) return found;
  return rule <= acl.set.rules.size() ? to_native(acl.set.rules[rule - 1]) : found.substr(0, kMaxShown) + " ...";
}

}  // namespace

Json rule_json(const LoadedAcl& acl, uint32_t rule) {
  const AclVerb verb = acl.actions.action(rule).verb;
  Json json{{"rule", rule}, {"action", verb == AclVerb::kDeny ? "deny" : verb == AclVerb::kMark ? "mark" : "permit"}};
  if (acl.source.line(rule) != 0) {
    json["file"] = acl.source.file(rule);
    json["line"] = acl.source.line(rule);
  }
  if (const std::string text = rule_text(acl, rule); !text.empty()) json["text"] = text;
  return json;
}

}  // namespace sluice::app
