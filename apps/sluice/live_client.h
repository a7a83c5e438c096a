// What the commands that ask a running process have in common. host only
#pragma once

#include <string>

#include "app.h"
#include "control/json.h"

namespace sluice::app {

struct ClientFlags {
  std::string socket;
};
void add_socket_option(Command sub, ClientFlags& flags);

// The socket that the command is for. Ends with kIo where none is found.
std::string socket_of(const ClientFlags& flags);
// A request as it is sent.
std::string request_line(Json body);
// The result of a request. Ends with kIo where nobody answers, with kBadInput where the answer is an error.
Json request(const ClientFlags& flags, Json body);

// Answers come from another process: a field that is not there, or is something else, ends the command with an error.
template <typename Run>
Exit answered(Run&& run) {
  try {
    return run();
  } catch (const Json::exception& wrong) {
    fail(Exit::kIo, fmt::format("cannot parse the answer: {}", wrong.what()),
         "use the sluice program that the process was started with");
  }
}

}  // namespace sluice::app
