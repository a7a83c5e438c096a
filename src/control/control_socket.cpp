// host only
#include "control/control_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace sluice {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Error failed(const std::string& path, const char* what) {
  return Error(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error(
        fmt::format("{}: a socket's name has 1 to {} bytes, not {}", path, sizeof address.sun_path - 1, path.size()),
        "choose a shorter one");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// A connection, or errno.
Descriptor connect_to(const sockaddr_un& address) {
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return fd;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return Descriptor();
  return fd;
}

}  // namespace

class ControlSocket::Server {
 public:
  Descriptor listener, wake;
  dev_t device = 0;
  ino_t inode = 0;
  std::jthread thread;

  void run(const Answer& answer, const std::string& too_long) {
    std::vector<pollfd> polled;
    while (true) {
      polled.clear();
      polled.push_back({wake.get(), POLLIN, 0});
      const bool room = clients_.size() < kMaxClients;
      polled.push_back({room ? listener.get() : -1, POLLIN, 0});
      for (const Client& c : clients_)
        polled.push_back({c.fd.get(), static_cast<short>(c.out.empty() ? POLLIN : POLLOUT), 0});
      if (::poll(polled.data(), polled.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (polled[0].revents != 0) return;
      size_t i = 2;
      for (auto c = clients_.begin(); c != clients_.end(); ++i) {
        const bool stays = polled[i].revents == 0 || step(*c, answer, too_long);
        c = stays ? std::next(c) : clients_.erase(c);
      }
      if (polled[1].revents != 0) {
        const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) clients_.emplace_back().fd = Descriptor(fd);
      }
    }
  }

 private:
  struct Client {
    Descriptor fd;
    std::string in, out;
    size_t searched = 0;  // bytes of `in` that hold no newline
    bool ending = false;  // after what is in `out`
  };
  std::list<Client> clients_;

  // False: the client is gone.
  static bool step(Client& c, const Answer& answer, const std::string& too_long) {
    if (c.out.empty()) {
      char bytes[65536];
      const ssize_t n = ::recv(c.fd.get(), bytes, sizeof bytes, 0);
      if (n < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
      // A line that was cut off is nobody's request.
      if (n == 0) return false;
      c.in.append(bytes, static_cast<size_t>(n));
    }
    while (true) {
      if (!c.out.empty()) {
        const ssize_t n = ::send(c.fd.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
        if (n < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
        c.out.erase(0, static_cast<size_t>(n));
        if (!c.out.empty()) return true;
        if (c.ending) return false;
      }
      const size_t end = c.in.find('\n', c.searched);
      if (end == std::string::npos) {
        c.searched = c.in.size();
        if (c.in.size() <= kMaxLine) return true;
        c.out = too_long + "\n";
        c.ending = true;
        continue;
      }
      c.out = answer(std::string_view(c.in).substr(0, end)) + "\n";
      c.in.erase(0, end + 1);
      c.searched = 0;
    }
  }
};

Result<std::unique_ptr<ControlSocket>> ControlSocket::create(const std::string& path) {
  auto address = address_of(path);
  if (!address) return std::move(address).error();
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode))
      return Error(fmt::format("{}: this is a file, not a socket", path), "choose another name");
    if (connect_to(*address).get() >= 0) {
      return Error(fmt::format("{}: another process answers there", path), "choose another name, or end that process");
    }
    if (errno != ECONNREFUSED) return failed(path, "cannot be opened");
    // Its process is gone.
    ::unlink(path.c_str());
  }
  std::unique_ptr<ControlSocket> made(new ControlSocket());
  made->path_ = path;
  auto server = std::make_unique<Server>();
  server->listener = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  server->wake = Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (server->listener.get() < 0 || server->wake.get() < 0) return failed(path, "no socket could be made");
  // The file takes its mode from the descriptor: there is no moment at which others may open it.
  if (::fchmod(server->listener.get(), 0600) != 0 ||
      ::bind(server->listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return failed(path, "cannot be made");
  }
  if (::chmod(path.c_str(), 0600) != 0 || ::lstat(path.c_str(), &there) != 0 ||
      ::listen(server->listener.get(), 64) != 0) {
    const Error error = failed(path, "cannot be served");
    ::unlink(path.c_str());
    return error;
  }
  server->device = there.st_dev;
  server->inode = there.st_ino;
  made->server_ = std::move(server);
  return made;
}

ControlSocket::~ControlSocket() {
  if (server_ == nullptr) return;
  const uint64_t one = 1;
  (void)!::write(server_->wake.get(), &one, sizeof one);
  if (server_->thread.joinable()) server_->thread.join();
  // Somebody may have put another in its place.
  struct stat there {};
  if (::lstat(path_.c_str(), &there) == 0 && there.st_dev == server_->device && there.st_ino == server_->inode)
    ::unlink(path_.c_str());
}

void ControlSocket::serve(Answer answer, std::string too_long) {
  server_->thread = std::jthread([server = server_.get(), answer = std::move(answer), too_long = std::move(too_long)] {
    server->run(answer, too_long);
  });
}

Result<std::string> ask(const std::string& path, std::string_view line, uint64_t limit_ns) {
  auto address = address_of(path);
  if (!address) return std::move(address).error();
  const Descriptor fd = connect_to(*address);
  if (fd.get() < 0) {
    const bool gone = errno == ECONNREFUSED || errno == ENOENT;
    Error error = failed(path, "cannot be reached");
    error.hint = gone ? "no process answers there: start one with 'sluice run ... --control PATH'" : "";
    return error;
  }
  const uint64_t end = now_ns() + limit_ns;
  std::string request(line);
  request += '\n';
  std::string answer;
  size_t sent = 0;
  while (true) {
    pollfd polled{fd.get(), static_cast<short>(sent < request.size() ? POLLIN | POLLOUT : POLLIN), 0};
    const uint64_t now = now_ns();
    const int ready =
        now >= end ? 0
                   : ::poll(&polled, 1, static_cast<int>(std::min<uint64_t>((end - now) / 1'000'000 + 1, 3'600'000)));
    if (ready < 0 && errno == EINTR) return Error("interrupted");
    if (ready < 0) return failed(path, "cannot be waited for");
    if (ready == 0) return Error(fmt::format("{}: no answer within {} s", path, limit_ns / 1'000'000'000));
    if ((polled.revents & POLLOUT) != 0) {
      const ssize_t n = ::send(fd.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) sent += static_cast<size_t>(n);
      // What the other side has said before it left is still to be read.
      if (n < 0 && errno != EAGAIN && errno != EINTR) sent = request.size();
    }
    if ((polled.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    char bytes[65536];
    const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return Error(fmt::format("{}: the process went away before it answered", path));
    answer.append(bytes, static_cast<size_t>(n));
    if (const size_t newline = answer.find('\n'); newline != std::string::npos) {
      answer.resize(newline);
      return answer;
    }
  }
}

std::string control_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return runtime == nullptr || *runtime == '\0' ? std::string() : std::string(runtime) + "/sluice";
}

Result<std::string> find_control_socket() {
  if (const char* named = std::getenv("SLUICE_SOCKET"); named != nullptr && *named != '\0') return std::string(named);
  const std::string folder = control_folder();
  std::vector<std::string> found;
  std::error_code ignored;
  if (!folder.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (!entry.is_socket(ignored)) continue;
      const auto address = address_of(entry.path().string());
      if (address.ok() && connect_to(*address).get() >= 0) found.push_back(entry.path().string());
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Error(folder.empty() ? std::string("no control socket is named, and XDG_RUNTIME_DIR is not set")
                                : fmt::format("no control socket is named, and no process answers in {}", folder),
                 "give --socket PATH or SLUICE_SOCKET, and start the run with --control PATH");
  }
  return Error(fmt::format("several processes answer: {}", fmt::join(found, ", ")), "say which with --socket PATH");
}

}  // namespace sluice
