// sluice: one binary, one file a subcommand. What measures is a program of its own, sluice-bench, that takes over where
// it is asked for. host only
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "app_state.h"
#include "program.h"
#include "scheduled.h"

namespace {

using namespace sluice;
using namespace sluice::app;

constexpr const char* kBench = "sluice-bench";

// Becomes sluice-bench with these arguments: the one beside this program, else the one that PATH finds.
[[noreturn]] void become_bench(const std::vector<std::string>& arguments) {
  std::vector<char*> words;
  std::string name = kBench;
  words.push_back(name.data());
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string beside = unknown ? "" : (self.parent_path() / kBench).string();
  if (!beside.empty()) ::execv(beside.c_str(), words.data());
  const int first = beside.empty() ? ENOENT : errno;
  if (first == ENOENT) ::execvp(kBench, words.data());
  const int why = first == ENOENT ? errno : first;
  if (why == ENOENT || why == EACCES)
    fail(Exit::kUnavailable,
         fmt::format("the benchmarks are a program of their own, {}, which is neither beside this one ({}) nor in PATH",
                     kBench, beside),
         "install the package sluice-bench; in a build folder: ninja sluice-bench");
  fail(Exit::kIo, system_error(beside.empty() ? kBench : beside, why));
}

// As the list of commands has it. It is never run: main() hands over first.
void add_bench_elsewhere(Command root) {
  add_subcommand(
      root, "bench", "Tools",
      "Measures rates. Each has its median, spread, machine and input, and a sample of results is first checked "
      "against a reference.",
      "sluice bench classify", [] { return Exit::kOk; });
}

// The arguments for sluice-bench, where the command line is one of its own.
bool is_bench(int argc, char** argv, std::vector<std::string>& arguments) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  const bool help = word == "help" && argc > 2 && std::string_view(argv[2]) == "bench";
  if (word != "bench" && word != "reference" && !help) return false;
  if (word == "reference") arguments.push_back("reference");
  if (help) arguments.push_back("help");
  for (int i = help ? 3 : 2; i < argc; ++i) arguments.push_back(argv[i]);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process();
  const std::string_view program = argc > 0 ? argv[0] : "";
  if (program.substr(program.rfind('/') + 1) == "click") {
    install_signal_handlers();
    return guarded([&] { return static_cast<Exit>(click_main(argc, argv)); });
  }
  return guarded([&] {
    if (std::vector<std::string> arguments; is_bench(argc, argv, arguments)) {
      output_format_of(argc, argv);  // an error here is printed as asked for, too
      become_bench(arguments);
    }
    constexpr Named kOwn[] = {{"bench", add_bench_elsewhere}};
    return static_cast<Exit>(run_program(argc, argv, kOwn));
  });
}
