// host only
// A Unix socket that answers lines: one line in, one line out. One thread serves all clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

class ControlSocket {
 public:
  static constexpr size_t kMaxLine = size_t{16} << 20;  // bytes of a request
  static constexpr size_t kMaxClients = 64;             // that are served at a time; others wait

  // Gives the answer to a line, neither with its newline. Called from the serving thread, one at a time.
  using Answer = std::function<std::string(std::string_view line)>;

  // Makes the socket, which only its owner may open. A socket whose process is gone is replaced. Errors: a process
  // answers there; something else has the name; the name is too long for a socket; the folder cannot be written.
  static Result<std::unique_ptr<ControlSocket>> create(const std::string& path);
  // Stops serving and removes the socket.
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // Starts the thread. A client that sends more than kMaxLine without a newline is told so (`too_long`, an answer) and
  // left; one that takes no answers is not read from until it does, so that it never holds more than one line and one
  // answer. Once.
  void serve(Answer answer, std::string too_long);
  const std::string& path() const { return path_; }

 private:
  class Server;
  ControlSocket() = default;
  std::string path_;
  std::unique_ptr<Server> server_;
};

// Sends a line and waits for the answer. Errors: nobody answers there, with what to do; the other side goes away; no
// answer within the limit.
Result<std::string> ask(const std::string& path, std::string_view line, uint64_t limit_ns);

// Where control sockets are when nothing else is said: $XDG_RUNTIME_DIR/sluice, or "" without one.
std::string control_folder();
// The socket that a client means that names none: $SLUICE_SOCKET, or the only one in control_folder() that a process
// answers at. Errors: there is none; there are several, with their names.
Result<std::string> find_control_socket();

}  // namespace sluice
