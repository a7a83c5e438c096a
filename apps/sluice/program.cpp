// host only
#include "program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <sstream>

#include "app.h"
#include "app_state.h"
#include "base/log.h"
#include "base/unfinished.h"
#include "confine.h"
#include "control/machine.h"
#include "graph/table_kind.h"
#include "help.h"
#include "live.h"
#include "live_commands.h"
#include "pipeline.h"

namespace {

using namespace sluice;
using namespace sluice::app;

// What a finding says but for what it quotes and its numbers.
std::string kind_of(const Diagnostic& d) {
  std::string kind = d.file + '\n';
  bool quoted = false;
  for (const char c : d.message) {
    if (c == '\'') quoted = !quoted;
    if (!quoted && std::isdigit(static_cast<unsigned char>(c)) == 0) kind += c;
  }
  return kind;
}

// With five findings of a kind at most, so that those of other kinds are seen.
Error shortened(const Error& error) {
  constexpr size_t kMost = 5;
  Error out = error;
  std::map<std::string, size_t> seen;
  const size_t left = std::erase_if(out.diagnostics, [&](const Diagnostic& d) { return ++seen[kind_of(d)] > kMost; });
  if (left != 0) out.message += fmt::format("; {} more like these (-o json shows them)", with_commas(left));
  return out;
}

void print_failure(const Failure& failure) {
  std::string text;
  if (json_output()) {
    text = to_json(failure.error, failure.code).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  } else {
    text = to_string(shortened(failure.error));
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}
std::vector<std::string> subcommand_names(CLI::App& app) {
  std::vector<std::string> names;
  for (CLI::App* sub : app.get_subcommands({})) {
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  }
  return names;
}

// The deepest subcommand that was named.
CLI::App* deepest(CLI::App* app) {
  while (true) {
    const auto used = app->get_subcommands();
    if (used.empty()) return app;
    app = used.front();
  }
}

std::string full_name(const CLI::App* app) {
  std::string name = app->get_name();
  for (app = app->get_parent(); app != nullptr; app = app->get_parent()) name.insert(0, " ").insert(0, app->get_name());
  return name;
}

// What stands before or behind a word of a message.
std::string before(const std::string& text, std::string_view word) {
  return text.substr(0, text.find(word));
}
std::string behind(const std::string& text, std::string_view word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? std::string() : text.substr(at + word.size());
}

// What the reader of command lines says, as a sentence about the option as the help writes it.
std::string sentence_of(CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  const auto has = [&text](std::string_view words) { return text.find(words) != std::string::npos; };
  const auto named = [&app](const std::string& name) {
    const CLI::Option* option = app.get_option_no_throw(name);
    // Behind the colon stands the range.
    return option == nullptr || !option->get_positional() ? name : before(before(option->get_type_name(), "..."), ":");
  };
  if (text.ends_with(" is required")) return named(before(text, " is required")) + " is missing";
  if (has(" requires ")) return fmt::format("{} needs {}", before(text, " requires "), behind(text, " requires "));
  if (has(" excludes "))
    return fmt::format("{} and {} cannot be given together", before(text, " excludes "), behind(text, " excludes "));
  // Of what is no flag all values have their own checks.
  if (has("Could not convert: ")) return before(behind(text, "Could not convert: "), " = ") + " takes no value";
  const std::string name = named(before(text, ": ")), said = behind(text, ": ");
  if (has(": At Most ")) {
    const bool once = has(": At Most 1 required");
    return once ? fmt::format("{} is given {} times, and can be given once", name, behind(said, "received "))
                : fmt::format("{} takes {} values at most, and {} are given", name,
                              before(behind(said, "At Most "), " "), behind(said, "received "));
  }
  if (has(" required ") && text.ends_with(" missing"))
    return fmt::format("{} needs a value: {}", name, before(before(behind(said, " required "), " missing"), ":"));
  if (said.ends_with("}") && has(" not in {")) {
    std::string words = before(behind(said, " not in {"), "}");
    for (size_t at = words.find(','); at != std::string::npos; at = words.find(',', at + 2)) words.insert(at + 1, " ");
    return fmt::format("{}: '{}' is not one of {}", name, before(said, " not in {"), words);
  }
  return said.empty() ? text : fmt::format("{}: {}", name, said);
}

// A wrong command line: what is wrong, the nearest right word, and where to read more.
Failure usage_failure(CLI::App& root, const CLI::ParseError& error) {
  CLI::App* app = deepest(&root);
  std::string message = error.what();
  std::string hint;
  const std::vector<std::string> extras = root.remaining(true);
  if (!extras.empty()) {
    const std::string& word = extras.front();
    const bool option = word.size() > 1 && word[0] == '-';
    const std::string bare = option ? word.substr(0, word.find('=')) : word;
    const bool wants_subcommand = !option && !app->get_subcommands({}).empty();
    if (option) {
      message = fmt::format("'{}' is not an option of '{}'", bare, full_name(app));
    } else if (wants_subcommand) {
      message = fmt::format("'{}' is not a command of '{}'", bare, full_name(app));
    } else {
      message = fmt::format("'{}' takes no argument '{}'", full_name(app), bare);
    }
    std::string near = closest_match(bare, wants_subcommand ? subcommand_names(*app) : option_names(*app));
    if (near.empty() && option) {
      // --acl of one command is --rules of another: a longer name that begins alike is a good guess, too.
      for (const std::string& name : option_names(*app)) {
        if (bare.size() > 3 && name.compare(0, bare.size(), bare) == 0) near = name;
      }
    }
    if (!near.empty()) hint = fmt::format("did you mean '{}'? ", near);
  } else if (const auto* required = dynamic_cast<const CLI::RequiredError*>(&error);
             required != nullptr && app->get_require_subcommand_min() > 0) {
    message = fmt::format("'{}' needs a command", full_name(app));
  } else {
    message = sentence_of(*app, error);
  }
  hint += fmt::format("see '{} --help'", full_name(app));
  return Failure{Exit::kUsage, Error(message, hint)};
}

// Takes no memory itself.
int out_of_memory() {
  const char* text = json_output() ? R"({"error":{"message":"out of memory","exit_code":3}})"
                                     "\n"
                                   : "error: out of memory\n  help: raise the memory limit, or use smaller input\n";
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
  return static_cast<int>(Exit::kIo);
}

// The end of what cannot unwind: a thread, or a destructor, without memory. Nothing half-written is left.
[[noreturn]] void end_of_program() {
  remove_unfinished();
  try {
    if (const std::exception_ptr why = std::current_exception()) std::rethrow_exception(why);
  } catch (const std::bad_alloc&) {
    ::_exit(out_of_memory());
  } catch (...) {
  }
  std::abort();
}

}  // namespace

namespace sluice::app {

int guarded(const std::function<Exit()>& work) {
  try {
    try {
      return static_cast<int>(work());
    } catch (const Failure& failure) {
      // Whatever ended by the signal, such as a wait for a pipe, says so; what failed besides is told.
      if (interrupted().load() && failure.code != Exit::kInterrupted && failure.code != Exit::kCheckFailed &&
          !failure.error.system) {
        print_failure(Failure{Exit::kInterrupted, Error("interrupted")});
        return static_cast<int>(Exit::kInterrupted);
      }
      if (!reader_is_gone(failure.error)) print_failure(failure);
      return static_cast<int>(failure.code);
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

namespace {

// In the order of the help. Those without a function ask a running process (live_commands.h), or are the program's own.
constexpr Named kCommands[] = {
    {"run", add_run},           {"check", add_check}, {"why", nullptr},           {"show", add_show},
    {"top", add_top},           {"acl", nullptr},     {"routes", nullptr},        {"qos", nullptr},
    {"adjacencies", nullptr},   {"trace", nullptr},   {"capture", nullptr},       {"clear", nullptr},
    {"reload", nullptr},        {"save", nullptr},    {"graph", nullptr},         {"explain", add_explain},
    {"classify", add_classify}, {"route", add_route}, {"flows", add_flows},       {"compile", add_compile},
    {"tables", add_tables},     {"demo", add_demo},   {"doctor", add_doctor},     {"gen", add_gen},
    {"send", add_send},         {"bench", nullptr},   {"elements", add_elements}, {"worker", add_worker},
    {"help", add_help},
};

// To describe every command takes longer than most commands take: the one that is named, or all where a word names none
// and where `help` and `reference` look at them.
void add_commands(const Command& root, std::string_view word, std::span<const Named> own) {
  std::vector<Named> all(std::begin(kCommands), std::end(kCommands));
  (void)registry();  // which adds kinds of tables
  const auto before = std::ranges::find(all, "trace", &Named::name) - all.begin();
  for (const TableKind* kind : table_kinds()) {
    if (kind->is_list()) all.insert(all.begin() + before, {kind->option, nullptr});
  }
  for (const Named& command : own) {
    const auto place = std::find_if(all.begin(), all.end(), [&](const Named& c) { return c.name == command.name; });
    if (place == all.end()) {
      all.push_back(command);
    } else {
      place->add = command.add;
    }
  }
  const auto named = std::find_if(all.begin(), all.end(), [&](const Named& c) { return c.name == word; });
  const auto add = [&](const Named& command) {
    command.add == nullptr ? add_running(root, command.name) : command.add(root);
  };
  if (named != all.end() && named->name != "help" && named->name != "reference") return add(*named);
  std::ranges::for_each(all, add);
}

}  // namespace

void output_format_of(int argc, char** argv) {
  // The output format decides how a wrong command line is reported, so it is looked for before the rest is understood.
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-ojson" || word == "--output=json" ||
        ((word == "-o" || word == "--output") && i + 1 < argc && std::string(argv[i + 1]) == "json")) {
      app_state().format = "json";
    }
  }
}

int run_program(int argc, char** argv, std::span<const Named> own) {
  AppState& state = app_state();
  for (int i = 0; i < argc; ++i) state.command += (i == 0 ? "sluice" : std::string(" ") + argv[i]);
  CLI::App root("Filters, routes and measures packets, from captures or interfaces, on the CPU or a GPU.", "sluice");
  root.set_version_flag("-V,--version", fmt::format("sluice {} ({})", sluice_version(), sluice_revision()));
  root.require_subcommand(1);
  root.formatter(help_formatter());
  root.footer(fmt::format(
      "Each command explains itself: sluice COMMAND --help. Results go to stdout, everything else to stderr;\n"
      "-o json prints one JSON object, and an error as one JSON object on stderr.\n\n{}",
      exit_code_help()));
  const Command command(root);
  add_commands(command, argc > 1 ? argv[1] : "", own);
  output_format_of(argc, argv);
  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& done) {
    // Help, or the version.
    std::ostringstream text;
    root.exit(done, text, text);
    print_out(text.str());
    return 0;
  } catch (const CLI::ParseError& error) {
    print_failure(usage_failure(root, error));
    return static_cast<int>(Exit::kUsage);
  }
  install_signal_handlers();
  set_log_sink([](LogLevel level, std::string_view line) { level >= LogLevel::kWarning ? warn(line) : note(line); });
  return guarded([&] {
    const std::string name = state.selected_app != nullptr ? state.selected_app->get_name() : "";
    if (!state.user.empty()) drop_privileges(state.user, name == "run" || name == "send");
    return state.selected ? state.selected() : Exit::kOk;
  });
}

namespace {

// A standard descriptor that is closed would go to the first file that is opened, and what is printed into it.
void keep_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    // Reading from it or writing to it is an error, as it was.
    if (::fcntl(descriptor, F_GETFD) < 0) (void)::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);
  }
}

// Stacks are as large as on the machines where this program is tested, whatever the limit is that it was started with
// (ulimit -s): that of this thread as far as it may raise its limit, and those that other threads get.
void keep_stacks() {
  constexpr rlim_t kStack = rlim_t{8} << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kStack && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::min(kStack, limit.rlim_max);
    (void)::setrlimit(RLIMIT_STACK, &limit);
  }
  pthread_attr_t threads;
  if (::pthread_attr_init(&threads) != 0) return;
  size_t bytes = 0;
  if (::pthread_attr_getstacksize(&threads, &bytes) == 0 && bytes < kStack &&
      ::pthread_attr_setstacksize(&threads, kStack) == 0)
    (void)::pthread_setattr_default_np(&threads);
  ::pthread_attr_destroy(&threads);
}

}  // namespace

void prepare_process() {
  keep_standard_descriptors();
  keep_stacks();
  // A closed pipe is an error of write(), as any other is, and so is a file that would be larger than its limit.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(&end_of_program);
}

}  // namespace sluice::app
