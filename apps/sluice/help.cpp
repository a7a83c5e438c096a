// host only
#include "help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "app.h"
#include "app_state.h"

namespace sluice::app {

// App::help would hand over to the subcommand that was parsed, which is this one.
std::string help_of(const CLI::App& app, const std::string& name) {
  std::string t = app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal);
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
  CLI::App* sub =
      root.add_subcommand("help", "Explains a command: the same as 'sluice COMMAND --help'.")->group("Tools");
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
