// sluice-bench: what `sluice bench` is. `sluice-bench ARGUMENTS` does what `sluice bench ARGUMENTS` does, under that
// name in reports and errors. It knows every command's options, so that `reference` and `help` describe them all. host
// only
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "apps/sluice/program.h"
#include "bench.h"
#include "control/machine.h"

int main(int argc, char** argv) {
  using namespace sluice;
  using namespace sluice::app;
  prepare_process();
  return guarded([&] {
    std::string sluice = "sluice", bench = "bench", help = "help";
    std::vector<char*> words{sluice.data()};
    const std::string_view first = argc > 1 ? argv[1] : "";
    if (first == "-V" || first == "--version") {
      print_out(fmt::format("sluice-bench {} ({})\n", sluice_version(), sluice_revision()));
      return Exit::kOk;
    }
    int next = 1;
    if (first == "help") {
      words.push_back(help.data());
      ++next;
    }
    if (first != "reference") words.push_back(bench.data());
    for (; next < argc; ++next) words.push_back(argv[next]);
    const int count = static_cast<int>(words.size());
    words.push_back(nullptr);
    constexpr Named kOwn[] = {{"bench", add_bench}, {"reference", add_reference}};
    return static_cast<Exit>(run_program(count, words.data(), kOwn));
  });
}
