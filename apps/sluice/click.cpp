// The program under the name of click: a configuration, its handlers, the options that scripts for Click use.
// host only
#include <signal.h>

#include <array>
#include <cstdlib>

#include "control/machine.h"
#include "exec/engine/generation.h"
#include "graph/click/print.h"
#include "inputs.h"
#include "scheduled.h"

namespace sluice::app {
namespace {

struct ClickFlags {
  std::string file, expression, graph_to;
  bool has_expression = false, quit = false, simulated = false, time = false;
  std::vector<std::string> handlers;
  Defines defines;
};

constexpr std::string_view kHelp =
    "Usage: click [OPTION]... [FILE] [NAME=VALUE]...\nRuns a Click configuration with sluice's elements, one packet at "
    "a time.\n  -f, --file FILE        the configuration ('-', or none: standard input)\n  -e, --expression TEXT  the "
    "configuration itself\n  -h, --handler E.H      print handler H of element E after the run\n  -o, --output FILE    "
    "  write the graph, compounds expanded ('-': standard output)\n  -q, --quit             do not run\n  -t, --time   "
    "          print how long it ran\n  -j, --threads N        accepted: queues and scripts run on one thread\n      "
    "--simtime          simulated time\n      --help, --version\n";

[[noreturn]] void wrong_line(std::string message) {
  fail(Exit::kUsage, std::move(message), "see 'click --help'");
}

// Options as getopt reads them: short ones may stand together, the last with its value.
class ClickLine {
 public:
  ClickLine(int argc, char** argv) : words_(argv + 1, argv + argc) {}

  ClickFlags read() {
    bool options = true;
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      if (!options || word.size() < 2 || word[0] != '-') {
        operand(word);
      } else if (word == "--") {
        options = false;
      } else if (word[1] == '-') {
        const size_t equals = word.find('=');
        value_ = equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1));
        take(word.substr(2, equals == std::string::npos ? equals : equals - 2));
        if (value_) wrong_line(fmt::format("'{}' takes no value", word.substr(0, equals)));
      } else {
        for (size_t i = 1; i < word.size(); ++i) {
          value_ = i + 1 < word.size() ? std::optional(word.substr(i + 1)) : std::nullopt;
          const bool whole = takes_value(word[i]);
          if (!whole) value_.reset();
          take(long_name(word[i]));
          if (whole) break;
        }
      }
    }
    return std::move(flags_);
  }

 private:
  static bool takes_value(char c) { return std::string_view("fehoj").find(c) != std::string_view::npos; }
  static std::string long_name(char c) {
    switch (c) {
      case 'f':
        return "file";
      case 'e':
        return "expression";
      case 'h':
        return "handler";
      case 'o':
        return "output";
      case 'q':
        return "quit";
      case 't':
        return "time";
      case 'j':
        return "threads";
      case 'v':
        return "version";
      default:
        return std::string(1, c);
    }
  }
  std::string value(const std::string& name) {
    if (value_) {
      std::string v = std::move(*value_);
      value_.reset();
      return v;
    }
    if (at_ == words_.size()) wrong_line(fmt::format("'{}' needs a value", name));
    return words_[at_++];
  }
  void take(const std::string& name) {
    if (name == "file") {
      set_file(value(name));
    } else if (name == "expression") {
      flags_.expression = value(name);
      flags_.has_expression = true;
    } else if (name == "handler") {
      flags_.handlers.push_back(value(name));
    } else if (name == "output") {
      flags_.graph_to = value(name);
    } else if (name == "quit") {
      flags_.quit = true;
    } else if (name == "time") {
      flags_.time = true;
    } else if (name == "simtime" || name == "simulation-time") {
      flags_.simulated = true;
    } else if (name == "threads") {
      const std::string text = value(name);
      if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
        wrong_line(fmt::format("'{}' is not a number of threads", text));
    } else if (name == "help") {
      print_out(kHelp);
      throw Failure{Exit::kOk, Error()};
    } else if (name == "version") {
      print_out(fmt::format("click (sluice {} {})\n", sluice_version(), sluice_revision()));
      throw Failure{Exit::kOk, Error()};
    } else {
      wrong_line(fmt::format("'{}{}' is not an option of click", name.size() == 1 ? "-" : "--", name));
    }
  }
  void operand(const std::string& word) {
    const size_t equals = word.find('=');
    const bool define =
        equals != std::string::npos && equals != 0 &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == equals;
    if (define) {
      flags_.defines.values.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    } else {
      set_file(word);
    }
  }
  void set_file(const std::string& file) {
    if (!flags_.file.empty() || flags_.has_expression) wrong_line("only one configuration can be run");
    flags_.file = file;
  }

  std::vector<std::string> words_;
  size_t at_ = 0;
  std::optional<std::string> value_;
  ClickFlags flags_;
};

constexpr int kSignals = 32;
std::array<volatile sig_atomic_t, kSignals> g_signals{};

void on_script_signal(int signal) {
  g_signals[static_cast<size_t>(signal)] = 1;
}

int next_signal() {
  for (int s = 1; s < kSignals; ++s) {
    if (g_signals[static_cast<size_t>(s)] == 0) continue;
    g_signals[static_cast<size_t>(s)] = 0;
    return s;
  }
  return 0;
}

// Signals that a script waits for come to it while it does, and are what they were else.
class ScriptSignals {
 public:
  explicit ScriptSignals(const Engine& engine) {
    for (int s = 1; s < kSignals; ++s) {
      if (!engine.wants_signal(s)) continue;
      struct sigaction action {};
      action.sa_handler = on_script_signal;
      sigaction(s, &action, nullptr);
      taken_.push_back(s);
    }
  }
  bool any() const { return !taken_.empty(); }
  // After a signal was handled: those that nobody waits for any more.
  int next(const Engine& engine) {
    std::erase_if(taken_, [&](int s) {
      if (g_signals[static_cast<size_t>(s)] != 0 || engine.wants_signal(s)) return false;
      signal(s, SIG_DFL);
      return true;
    });
    return next_signal();
  }

 private:
  std::vector<int> taken_;
};

Exit read_handlers(const ClickFlags& flags, Engine& engine) {
  Exit code = Exit::kOk;
  for (const std::string& handler : flags.handlers) {
    const size_t blank = handler.find(' ');
    auto value =
        engine.read(handler.substr(0, blank), blank == std::string::npos ? std::string() : handler.substr(blank + 1));
    if (!value.ok()) {
      const Error& why = value.error();
      warn(why.hint.empty() ? why.message : fmt::format("{} ({})", why.message, why.hint));
      code = Exit::kBadInput;
      continue;
    }
    if (!value->empty() && value->back() != '\n') *value += '\n';
    if (flags.handlers.size() > 1) print_out(handler + ":\n");
    print_out(*value);
    if (flags.handlers.size() > 1) print_out("\n");
  }
  return code;
}

}  // namespace

int click_main(int argc, char** argv) {
  ClickFlags flags = ClickLine(argc, argv).read();
  const std::string file = flags.file.empty() ? "-" : flags.file;
  Defines& defines = flags.defines;
  defines.any_name = true;  // as Click has it
  RunFiles& files = defines.files;
  if (!flags.has_expression) files.input("the configuration", file);
  files.output("--output", flags.graph_to);
  check_files(files);
  std::string text = flags.has_expression ? flags.expression : read_configuration(file, defines);
  const std::string name = flags.has_expression ? "config" : file == "-" ? "standard input" : file;
  const auto pipeline =
      load_pipeline(parse_text(std::move(text), name, defines), defines, {}, false, false, Scheduled::kAlways);
  if (!flags.graph_to.empty()) write_file(flags.graph_to, print_click(pipeline->graph));
  if (flags.quit && flags.handlers.empty()) return 0;

  RunOptions options;
  print_lines(options);
  options.simulated = flags.simulated;
  options.inputs = &pipeline->inputs;
  std::optional<ScriptSignals> signals;
  Engine* running = nullptr;
  options.next_signal = [&] { return signals && signals->any() ? signals->next(*running) : 0; };
  options.files = files;
  options.load = [&](std::string_view next) {
    LoadOptions loading;
    loading.parse = parse_options(flags.defines);
    loading.by_packets = true;
    return load_generation(next, "hotconfig", registry(), loading);
  };
  if (flags.quit) return static_cast<int>(read_handlers(flags, *make_engine(*pipeline, options)));
  RunHooks hooks;
  hooks.started = [&](Engine& engine) {
    running = &engine;
    signals.emplace(engine);
  };
  std::optional<Error> damage;
  const PipelineRun done = run_pipeline(*pipeline, options, hooks, &damage);
  check_printed();
  if (flags.time) note(fmt::format("{:.6f} seconds", done.report.seconds));
  const Exit read = read_handlers(flags, *done.engine);
  return static_cast<int>(done.report.partial ? end_partial(outputs_of(done.report, &done.router()), damage) : read);
}

}  // namespace sluice::app
