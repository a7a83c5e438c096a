#include "app.h"
namespace sluice::app {
void add_run(CLI::App&) {}
void add_check(CLI::App&) {}
void add_explain(CLI::App&) {}
void add_gen(CLI::App&) {}
void add_bench(CLI::App&) {}
void add_doctor(CLI::App&) {}
void add_elements(CLI::App&) {}
void add_demo(CLI::App&) {}
void add_reference(CLI::App&) {}
}
