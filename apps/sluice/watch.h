// A window that is shown again and again: `show WHAT --interval`, `top`. host only
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "app.h"
#include "control/answer_text.h"

namespace sluice::app {

struct WatchFlags {
  double interval = 0;  // seconds; 0: once
  uint64_t times = 0;   // 0: until it is ended
};
// --interval and --times. `always`: it is shown again without --interval, too, as often as `flags` says.
void add_watch_options(Command sub, WatchFlags& flags, bool always = false);

// What fits into `rows` lines of `columns` characters: longer lines are cut, and the last line says how many are left
// out.
std::string fit(std::string_view text, unsigned rows, unsigned columns);

// What puts whole lines in place of what a terminal shows.
std::string in_place(std::string_view text);

// Waits, and ends early where a signal came or the reader of standard output has gone: false.
bool wait_for(double seconds);

// Rows and columns of the terminal that stdout is; where it does not say them, 24 and 80.
std::pair<unsigned, unsigned> terminal_size();

// Shows what `ask` gives: once, or as the flags say. On a terminal each look takes the place of the one before; else
// they follow each other, with a blank line between; with -o json each is one line, and has `unix_seconds`. `text` is
// given no Rates where it is shown once. An interrupted one ends with kInterrupted.
Exit watch(const WatchFlags& flags, const std::function<Json()>& ask,
           const std::function<std::string(const Json&, Rates*)>& text);

}  // namespace sluice::app
