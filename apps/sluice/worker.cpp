// sluice worker: runs that another program asks for, each in a process that is forked from this one, so that none pays
// the start of a program and each ends, is confined and fails by itself. host only
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app_state.h"
#include "pipeline.h"
#include "program.h"

namespace sluice::app {
namespace {

constexpr size_t kRequestBytes = size_t{128} << 10;
constexpr int kPatienceMs = 10'000;  // between the request to end and SIGKILL

// A run that is asked for: its arguments, and what its standard input, output and error are.
struct Request {
  std::vector<std::string> arguments;
  std::array<OwnedDescriptor, 3> standard;
};

void answer(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  // Who does not take it has gone, which the next request shows.
  (void)::send(STDIN_FILENO, text.data(), text.size(), MSG_NOSIGNAL);
}

// The arguments that the text has: {"arguments": ["run", ...]}.
std::optional<std::vector<std::string>> arguments_of(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("arguments") || !json["arguments"].is_array()) return std::nullopt;
  std::vector<std::string> out;
  for (const Json& word : json["arguments"]) {
    if (!word.is_string()) return std::nullopt;
    out.push_back(word.get<std::string>());
    if (out.back().find('\0') != std::string::npos) return std::nullopt;
  }
  if (out.empty() || out.front() != "run") return std::nullopt;
  return out;
}

enum class Received : uint8_t { kRequest, kMalformed, kEnd };

// Waits for the next request. kEnd: whoever asks has gone, or a signal came.
Received receive(Request& request) {
  std::vector<char> text(kRequestBytes);
  iovec part{text.data(), text.size()};
  constexpr size_t kMost = 16;  // descriptors that are taken to be closed again
  alignas(cmsghdr) char control[CMSG_SPACE(kMost * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = -1;
  do {
    n = ::recvmsg(STDIN_FILENO, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR && !interrupted().load());
  if (n < 0 && errno != EINTR && errno != ECONNRESET)
    fail(Exit::kUsage, system_error("worker: standard input", errno).message,
         "it is a socket of type SOCK_SEQPACKET, by which the Python package asks for runs");
  if (n <= 0) return Received::kEnd;
  std::vector<OwnedDescriptor> descriptors;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(c) + at, sizeof descriptor);
      descriptors.emplace_back(descriptor);
    }
  }
  auto arguments = arguments_of({text.data(), static_cast<size_t>(n)});
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || !arguments || descriptors.size() != 3)
    return Received::kMalformed;
  request.arguments = std::move(*arguments);
  std::move(descriptors.begin(), descriptors.end(), request.standard.begin());
  return Received::kRequest;
}

void block_interrupts(bool on) {
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  (void)::sigprocmask(on ? SIG_BLOCK : SIG_UNBLOCK, &interrupts, nullptr);
}

// The process of a run: as if the program had been started with these arguments.
[[noreturn]] void run_here(const Request& request, pid_t parent) {
  block_interrupts(false);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // the run then ends in order
  if (::getppid() != parent) ::_exit(static_cast<int>(Exit::kInterrupted));
  for (int to = 0; to < 3; ++to) {
    if (::dup2(request.standard[static_cast<size_t>(to)].get(), to) < 0) ::_exit(static_cast<int>(Exit::kIo));
  }
  app_state() = AppState();
  std::string name = "sluice";
  std::vector<std::string> words = request.arguments;
  std::vector<char*> argv{name.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int code = run_program(static_cast<int>(words.size() + 1), argv.data(), {});
  std::fflush(nullptr);
  ::_exit(code);  // what the program built before the fork is not taken apart once a run
}

int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Runs it and answers. Whether whoever asks is still there, and no signal came.
bool serve(Request request) {
  // Held open by the run alone: its end closes it.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    answer({{"error", system_error("cannot start a run", errno).message}});
    return true;
  }
  const OwnedDescriptor alive(ends[0]);
  OwnedDescriptor held(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) run_here(request, parent);
  if (child < 0) {
    answer({{"error", system_error("cannot start a run", errno).message}});
    return true;
  }
  (void)held.close();
  const EndsInOrder in_order;
  request = Request();  // a pipe that it reads or writes ends with it
  pollfd watched[] = {{alive.get(), POLLIN, 0}, {STDIN_FILENO, 0, 0}};
  while (::poll(watched, 2, -1) < 0 && errno == EINTR && !interrupted().load()) {
  }
  if (watched[0].revents == 0) {  // nobody waits for it any more
    ::kill(child, SIGINT);
    if (::poll(watched, 1, kPatienceMs) <= 0) ::kill(child, SIGKILL);
    status_of(child);
    return false;
  }
  const int status = status_of(child);
  answer(WIFSIGNALED(status) ? Json{{"signal", WTERMSIG(status)}} : Json{{"status", WEXITSTATUS(status)}});
  return true;
}

Exit work() {
  // It is meant for the run, which takes it as soon as it is there.
  block_interrupts(true);
  registry();  // built once
  while (!interrupted().load()) {
    Request request;
    switch (receive(request)) {
      case Received::kEnd:
        if (!interrupted().load()) return Exit::kOk;
        break;
      case Received::kMalformed:
        answer({{"error", "a request is {\"arguments\": [\"run\", ...]} of at most 128 KiB with three descriptors"}});
        break;
      case Received::kRequest:
        if (!serve(std::move(request))) return Exit::kInterrupted;
    }
  }
  return Exit::kInterrupted;
}

}  // namespace

void add_worker(Command root) {
  add_filing_subcommand(
      root, "worker", "Tools",
      "Runs commands that another program requests over a socket. The socket (SOCK_SEQPACKET) is standard input; one "
      "run at a "
      "time, each in "
      "a process\nof its own. A request is {\"arguments\": [\"run\", ...]} with three descriptors: the run's standard "
      "input, output and error;\nthe answer is {\"status\": N}, {\"signal\": N} or {\"error\": TEXT}. It ends when the "
      "socket is closed, and interrupts\nthe run that is under way. The Python package starts it for runs over many "
      "captures.",
      "sluice worker", [] { return work(); });
}

}  // namespace sluice::app
