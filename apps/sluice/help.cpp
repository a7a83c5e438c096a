// host only
#include "help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "app.h"
#include "app_state.h"

namespace sluice::app {
namespace {

using Sections = std::vector<std::pair<std::string, std::vector<std::string>>>;

constexpr size_t kColumns = 110, kOptionColumn = 28, kCommandColumn = 15;

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// Lines of at most `columns`, broken at blanks; words that are longer stay whole.
std::string wrapped(const std::string& text, size_t columns) {
  std::string out;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const size_t word = end - at;
    if (line != 0 && line + 1 + word > columns) {
      out += '\n';
      line = 0;
    } else if (line != 0) {
      out += ' ';
      ++line;
    }
    out.append(text, at, word);
    line += word;
    at = end + 1;
  }
  return out;
}

// "UINT in [1 - 256]" as "1 to 256", "{a,b}" as "a, b"; empty: nothing that a person needs.
std::string values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t in = type.find(" in ["), open = type.find('{');
  if (in != std::string::npos) {
    std::string range = type.substr(in + 5, type.find(']', in) - in - 5);
    if (const size_t dash = range.find(" - "); dash != std::string::npos) range.replace(dash, 3, " to ");
    return range.ends_with(std::to_string(~uint64_t{0})) ? std::string() : range;
  }
  if (open == std::string::npos) return {};
  std::string words = type.substr(open + 1, type.find('}', open) - open - 1);
  for (size_t at = words.find(','); at != std::string::npos; at = words.find(',', at + 2)) words.insert(at + 1, " ");
  return words;
}
// Whether a text names each of these values.
bool names_all(const std::string& text, const std::string& values) {
  if (text.find(values) != std::string::npos) return true;
  for (size_t at = 0; at < values.size();) {
    const size_t end = std::min(values.find(", ", at), values.size());
    if (values.find(" to ") != std::string::npos || text.find(values.substr(at, end - at)) == std::string::npos)
      return false;
    at = end + 2;
  }
  return true;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter(Sections first, std::string rest) : first_(std::move(first)), rest_(std::move(rest)) {
    column_width(kOptionColumn);
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(one_line(app->get_description()), kColumns) + "\n";
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
           (mode == CLI::AppFormatMode::All || first_.empty() ? all_groups(app, mode) : first_groups(app)) +
           make_subcommands(app, CLI::AppFormatMode::Normal) + "\n" + make_footer(app);
  }
  std::string make_subcommand(const CLI::App* sub) const override {
    std::string name = sub->get_name();
    if (name.size() + 3 > kCommandColumn) name += "  ";
    return fmt::format("  {:<{}}{}\n", name, kCommandColumn - 2, first_sentence(sub->get_description()));
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string t;
    if (option->get_type_size() != 0) {
      if (const std::string value = value_text(*option); !value.empty()) t += " " + value;
      if (option->get_expected_max() == CLI::detail::expected_max_vector_size && t.find("...") == std::string::npos)
        t += " ...";
    }
    return t;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(description_text(*option), kColumns - kOptionColumn);
  }

 private:
  std::string all_groups(const CLI::App* app, CLI::AppFormatMode mode) const {
    std::string all = make_groups(app, mode);
    for (size_t at = all.find("\n\n\n"); at != std::string::npos; at = all.find("\n\n\n", at)) all.erase(at, 1);
    return all;
  }
  std::string first_groups(const CLI::App* app) const {
    std::string t;
    for (const auto& [section, names] : first_) {
      std::vector<const CLI::Option*> options;
      for (const std::string& name : names) {
        if (const CLI::Option* option = app->get_option_no_throw(name)) options.push_back(option);
      }
      if (!options.empty()) t += make_group(section, false, options);
    }
    return t + fmt::format("\n  {:<{}}{}\n", "--help-all", kOptionColumn - 2, rest_);
  }

  Sections first_;
  std::string rest_;
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter(Sections first, const std::string& rest) {
  return std::make_shared<HelpFormatter>(std::move(first), rest);
}

std::string value_text(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  // Behind the colon stands how the library checks it; METHOD:DEVICE has one of its own.
  size_t end = type.size();
  for (const char* check : {":INT in [", ":UINT in [", ":FLOAT in [", ":{", ":SIZE ["})
    end = std::min(end, type.find(check));
  return type.substr(0, end);
}

std::string description_text(const CLI::Option& option) {
  std::string text = one_line(option.get_description()), more;
  const auto add = [&more](const std::string& part) { more += (more.empty() ? "" : "; ") + part; };
  if (const std::string values = values_of(option); !values.empty() && !names_all(text, values)) add(values);
  std::string otherwise = option.get_default_str();
  if (otherwise.starts_with('[') && otherwise.ends_with(']')) otherwise = otherwise.substr(1, otherwise.size() - 2);
  if (!otherwise.empty() && otherwise != "\"\"" && text.find("(default") == std::string::npos)
    add("default " + otherwise);
  if (option.get_required() && !option.get_positional()) add("required");
  for (const CLI::Option* other : option.get_needs()) {
    if (text.find(other->get_name()) == std::string::npos) add("with " + other->get_name());
  }
  std::string excluded;
  for (const CLI::Option* other : option.get_excludes()) excluded += (excluded.empty() ? "" : ", ") + other->get_name();
  if (!excluded.empty()) add("not with " + excluded);
  return more.empty() ? text : fmt::format("{} ({})", text, more);
}

std::string first_sentence(const std::string& text) {
  const std::string line = one_line(text);
  for (size_t at = line.find_first_of(".:"); at != std::string::npos; at = line.find_first_of(".:", at + 1)) {
    if (at + 1 == line.size() || line[at + 1] == ' ') return line.substr(0, at);
  }
  return line;
}

// App::help would hand over to the subcommand that was parsed, which is this one.
std::string help_of(const CLI::App& app, const std::string& name, bool all) {
  std::string t =
      app.get_formatter()->make_help(&app, name, all ? CLI::AppFormatMode::All : CLI::AppFormatMode::Normal);
  while (t.ends_with("\n\n")) t.pop_back();
  return t;
}

std::vector<CLI::App*> commands_of(CLI::App& app) {
  std::vector<CLI::App*> all = app.get_subcommands({});
  std::erase_if(all, [](const CLI::App* sub) { return sub->get_group().empty(); });
  return all;
}
std::vector<std::string> command_words(CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : commands_of(app)) words.push_back(sub->get_name());
  return words;
}

void add_help(Command command) {
  CLI::App& root = command.app();
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* sub = root.add_subcommand("help", "Explains a command, as 'sluice COMMAND --help' does.")->group("Tools");
  sub->add_option("command", *words, "A command, and one of its own")->type_name("COMMAND...");
  sub->callback([&root, words] {
    app_state().selected = [&root, words] {
      CLI::App* app = &root;
      std::string name = "sluice";
      for (const std::string& word : *words) {
        const std::vector<CLI::App*> all = commands_of(*app);
        const auto found =
            std::find_if(all.begin(), all.end(), [&](const CLI::App* a) { return a->get_name() == word; });
        if (found == all.end()) {
          const std::string near = closest_match(word, command_words(*app));
          fail(Exit::kUsage, fmt::format("'{}' is not a command of '{}'", word, name),
               near.empty() ? fmt::format("see '{} --help'", name) : fmt::format("did you mean '{}'?", near));
        }
        app = *found;
        name += " " + word;
      }
      print_out(help_of(*app, name));
      return Exit::kOk;
    };
  });
}

}  // namespace sluice::app
