// host only
#include "config_file.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <utility>

#include "app.h"
#include "base/input_file.h"

namespace sluice::app {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{16} << 20;

// A section of the file for each section of the help.
constexpr std::pair<const char*, const char*> kSections[] = {
    {"ports", "Input and output"},  {"tables", "Tables"},   {"workers", "Workers and batches"},
    {"device", "Devices"},          {"live", "Live ports"}, {"qos", "Classes of service"},
    {"process", "Running process"}, {"report", "Report"}};
// Options that a file cannot have, and why.
constexpr std::pair<std::string_view, const char*> kRefused[] = {
    {"help", "it belongs on the command line"},
    {"help-all", "it belongs on the command line"},
    {"config", "a file names no other"},
    {"user", "the user is switched to before the file is read: give --user on the command line"},
    {"print-graph", "it belongs on the command line"},
    {"print-plan", "it belongs on the command line"}};

class ConfigFile {
 public:
  ConfigFile(std::string name, std::string text, CLI::App& command, std::vector<std::string>& words)
      : name_(std::move(name)), text_(std::move(text)), command_(command), words_(words) {}

  ConfiguredOptions apply() {
    const toml::parse_result parsed = toml::parse(text_, name_);
    if (!parsed) {
      wrong(parsed.error().source(), std::string(parsed.error().description()));
    } else {
      // In the order of the file: so are errors found by who mends them.
      words_given_ = !words_.empty();
      for (const auto& [key, value] : in_order(parsed.table())) top_level(*key, *value);
      check_together();
    }
    if (!words_given_ && !words_.empty()) given_["graph"] = words_;
    if (errors_.empty()) return std::move(given_);
    Error error(fmt::format("{} in {}", counted(errors_.size(), "error"), name_));
    std::ranges::stable_sort(errors_, {}, [](const Diagnostic& d) { return std::pair(d.line, d.column); });
    error.diagnostics = std::move(errors_);
    fail(Exit::kBadInput, std::move(error));
  }

 private:
  using Member = std::pair<const toml::key*, const toml::node*>;
  static std::vector<Member> in_order(const toml::table& table) {
    std::vector<Member> all;
    for (const auto& [key, value] : table) all.emplace_back(&key, &value);
    std::ranges::sort(all, {}, [](const Member& m) {
      return std::pair(m.first->source().begin.line, m.first->source().begin.column);
    });
    return all;
  }

  void wrong(const toml::source_region& where, std::string message, std::string suggestion = {}) {
    Diagnostic d;
    d.file = name_;
    d.line = where.begin.line;
    d.column = where.begin.column;
    d.length = where.end.line == where.begin.line && where.end.column > where.begin.column
                   ? where.end.column - where.begin.column
                   : 1;
    size_t begin = 0;
    for (uint32_t line = 1; line < d.line && begin != std::string::npos; ++line) {
      begin = text_.find('\n', begin);
      if (begin != std::string::npos) ++begin;
    }
    if (begin != std::string::npos && d.line != 0) d.source_line = text_.substr(begin, text_.find('\n', begin) - begin);
    d.message = std::move(message);
    d.suggestion = std::move(suggestion);
    errors_.push_back(std::move(d));
  }

  void top_level(const toml::key& key, const toml::node& value) {
    const std::string name(key.str());
    if (name == "graph") return graph(value);
    const auto* const section =
        std::ranges::find(kSections, name, [](const auto& s) { return std::string_view(s.first); });
    const toml::table* const table = value.as_table();
    if (table != nullptr && name == "variables") return variables(*table);
    if (table != nullptr && section != std::end(kSections)) {
      for (const auto& [inner, what] : in_order(*table)) option(*inner, *what, section);
      return;
    }
    if (table == nullptr) return option(key, value, nullptr);
    std::vector<std::string> names = {"variables"};
    for (const auto& s : kSections) names.emplace_back(s.first);
    const std::string near = closest_match(name, names);
    wrong(key.source(), fmt::format("[{}] is not a section", name),
          near.empty() ? fmt::format("one of {}", fmt::join(names, ", ")) : fmt::format("did you mean [{}]?", near));
  }

  void graph(const toml::node& value) {
    const auto text = value.value_exact<std::string>();
    if (!text || text->empty()) return wrong(value.source(), "graph is not the name of a Click file");
    if (!words_given_) words_.insert(words_.begin(), *text);
  }

  void variables(const toml::table& table) {
    for (const auto& [key, value] : in_order(table)) {
      const auto text = text_of(*value);
      if (!text) {
        wrong(value->source(), fmt::format("the variable {} is neither text nor a number", key->str()));
      } else if (!words_given_) {
        words_.push_back(fmt::format("{}={}", key->str(), *text));
      }
    }
  }

  static std::optional<std::string> text_of(const toml::node& value) {
    if (const auto text = value.value_exact<std::string>()) return *text;
    if (const auto number = value.value_exact<int64_t>()) return fmt::format("{}", *number);
    if (const auto number = value.value_exact<double>()) return fmt::format("{}", *number);
    return std::nullopt;
  }

  static std::string group_of(const CLI::Option& option) { return option.get_group(); }

  void option(const toml::key& key, const toml::node& value, const std::pair<const char*, const char*>* section) {
    const std::string name(key.str());
    for (const auto& [refused, why] : kRefused) {
      if (name == refused) return wrong(key.source(), fmt::format("'{}' cannot stand in a file", name), why);
    }
    CLI::Option* const found = command_.get_option_no_throw("--" + name);
    if (found == nullptr) {
      std::vector<std::string> names = {"graph"};
      for (const CLI::Option* one : command_.get_options()) {
        for (const std::string& word : one->get_lnames()) {
          if (std::ranges::none_of(kRefused, [&](const auto& r) { return r.first == word; })) names.push_back(word);
        }
      }
      const std::string near = closest_match(name, names);
      return wrong(key.source(), fmt::format("'{}' is not an option of 'sluice run'", name),
                   near.empty() ? "see 'sluice run --help'" : fmt::format("did you mean '{}'?", near));
    }
    if (section != nullptr && group_of(*found) != section->second) {
      const auto* const right =
          std::ranges::find(kSections, group_of(*found), [](const auto& s) { return std::string(s.second); });
      return wrong(key.source(), fmt::format("'{}' is not of section [{}]", name, section->first),
                   right == std::end(kSections) ? "write it before all sections"
                                                : fmt::format("write it in [{}]", right->first));
    }
    set(*found, name, value);
  }

  void set(CLI::Option& option, const std::string& name, const toml::node& value) {
    std::vector<std::string> texts;
    if (option.get_items_expected_max() == 0) {
      const auto on = value.value_exact<bool>();
      if (!on) return wrong(value.source(), fmt::format("'{}' is true or false", name));
      if (*on) texts.emplace_back("true");
    } else if (const toml::array* const list = value.as_array()) {
      for (const toml::node& one : *list) {
        const auto text = text_of(one);
        if (!text) return wrong(one.source(), fmt::format("'{}' takes text or numbers", name));
        texts.push_back(*text);
      }
      if (texts.empty()) return wrong(value.source(), fmt::format("'{}' is an empty list", name));
      // One value with commas in it.
      if (option.get_items_expected_max() < 2 && option.get_type_name().find(',') != std::string::npos)
        texts = {fmt::format("{}", fmt::join(texts, ","))};
      if (texts.size() > 1 && option.get_items_expected_max() < 2)
        return wrong(value.source(), fmt::format("'{}' takes one value", name));
    } else if (const auto text = text_of(value)) {
      texts.push_back(*text);
    } else {
      return wrong(value.source(), fmt::format("'{}' takes text or a number", name));
    }
    // The command line wins.
    if (option.count() != 0 || texts.empty()) return;
    try {
      for (const std::string& text : texts) option.add_result(text);
      option.run_callback();
    } catch (const CLI::Error& error) {
      std::string what = error.what();
      if (const std::string prefix = option.get_name() + ": "; what.starts_with(prefix)) what.erase(0, prefix.size());
      option.clear();
      return wrong(value.source(), fmt::format("'{}': {}", name, what));
    }
    set_.emplace_back(&option, value.source());
    given_[name] = std::move(texts);
  }

  // What options say of each other is looked at when a command line is read, which this is not.
  void check_together() {
    for (const auto& [option, where] : set_) {
      for (const CLI::Option* other : option->get_needs()) {
        if (other->count() == 0) wrong(where, fmt::format("{} needs {}", option->get_name(), other->get_name()));
      }
      for (const CLI::Option* other : option->get_excludes()) {
        if (other->count() != 0)
          wrong(where, fmt::format("{} and {} cannot be given together", option->get_name(), other->get_name()));
      }
    }
  }

  const std::string name_, text_;
  CLI::App& command_;
  std::vector<std::string>& words_;
  bool words_given_ = false;
  std::vector<std::pair<const CLI::Option*, toml::source_region>> set_;
  ConfiguredOptions given_;
  std::vector<Diagnostic> errors_;
};

}  // namespace

ConfiguredOptions apply_config(const std::string& file, Command sub, std::vector<std::string>& words) {
  InputFile input = need(InputFile::open(file), Exit::kIo);
  std::string text(need(input.text(kMaxBytes), Exit::kIo));
  return ConfigFile(file, std::move(text), sub.app(), words).apply();
}

}  // namespace sluice::app
