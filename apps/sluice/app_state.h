// What main.cpp and app.cpp share.
// host only
#pragma once

#include <functional>
#include <string>

#include "app.h"

namespace sluice::app {

struct AppState {
  std::string format = "table";
  bool quiet = false;
  std::string user;  // --user
  std::function<Exit()> selected;
  const CLI::App* selected_app = nullptr;  // its subcommand
  std::string command;
};
AppState& app_state();
void install_signal_handlers();
// From here on SIGHUP ends nothing: it is asked for.
void take_hangups();
bool hangup_came();  // since the last call

}  // namespace sluice::app
