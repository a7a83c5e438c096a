// The commands that ask and change a running process, by their rows. host only
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "control/command.h"
#include "live_client.h"
#include "watch.h"

namespace sluice::app {

// What the command line gave for a row.
struct AskedFor : ClientFlags, WatchFlags {
  struct Value {
    std::string text;
    std::vector<std::string> words;
    uint64_t number = 0;
    bool flag = false;
  };
  const CommandRow* row = nullptr;
  std::vector<Value> values;  // by field
};
// The request. Ends with kIo or kBadInput where a file or a packet cannot be read.
Json request_of(const AskedFor& asked);
// Asks, and shows the answer.
Exit show_answer(const AskedFor& asked);

// Adds a command of the root, with all that are below it.
void add_running(Command root, std::string_view name);
void add_live_shows(Command show);

// Options of `capture start` and of `show log`, beside those of their rows; the result is what the command does.
std::function<Exit()> add_capture_options(Command sub, const AskedFor& asked);
std::function<Exit()> add_follow_option(Command sub, const AskedFor& asked);

}  // namespace sluice::app
