#include "app.h"
namespace sluice::app {
void add_explain(CLI::App&) {}
void add_bench(CLI::App&) {}
void add_demo(CLI::App&) {}
}
