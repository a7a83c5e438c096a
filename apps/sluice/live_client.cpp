// host only
#include "live_client.h"

#include "control/control_socket.h"
#include "control/request.h"

namespace sluice::app {
namespace {

constexpr uint64_t kAnswerLimitNs = 600'000'000'000;  // a large table takes its time

}  // namespace

void add_socket_option(Command sub, ClientFlags& flags) {
  sub.add_option("--socket,--control", "PATH", flags.socket,
                 "Socket of the run's --control (default: $SLUICE_SOCKET, or the only one in $XDG_RUNTIME_DIR/sluice "
                 "or /run/sluice)");
}

std::string socket_of(const ClientFlags& flags) {
  return flags.socket.empty() ? need(find_control_socket(), Exit::kIo) : flags.socket;
}

std::string request_line(Json body) {
  Json whole{{"v", kControlVersion}};
  whole.update(body);
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json request(const ClientFlags& flags, Json body) {
  const std::string path = socket_of(flags);
  const std::string line = request_line(std::move(body));
  if (line.size() >= ControlSocket::kMaxLine)
    fail(Exit::kBadInput, fmt::format("a change of {} is too long", human_bytes(static_cast<double>(line.size()))),
         "split it, or replace the table");
  auto said = ask(path, line, kAnswerLimitNs);
  stop_if_interrupted();
  const std::string text = need(std::move(said), Exit::kIo);
  bool theirs = false;
  auto answer = read_answer(text, &theirs);
  if (!answer && theirs) fail(Exit::kBadInput, answer.error());
  if (!answer) fail(Exit::kIo, fmt::format("{}: the process that answers is not sluice", path), answer.error().message);
  return std::move(*answer);
}

}  // namespace sluice::app
