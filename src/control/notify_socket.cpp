// host only
#include "control/notify_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace sluice {

Result<std::unique_ptr<NotifySocket>> NotifySocket::create(std::string_view name) {
  constexpr const char* kHint = "it is an absolute path, or '@' and an abstract name: see sd_notify(3)";
  std::unique_ptr<NotifySocket> made(new NotifySocket);
  sockaddr_un& to = made->address_;
  if (name.size() < 2 || (name.front() != '/' && name.front() != '@'))
    return Error(fmt::format("NOTIFY_SOCKET={} names no socket", name), kHint);
  // A path ends with a zero.
  const bool path = name.front() == '/';
  if (name.size() + (path ? 1 : 0) > sizeof to.sun_path)
    return Error(fmt::format("NOTIFY_SOCKET={} is too long for a socket", name), kHint);
  to.sun_family = AF_UNIX;
  std::ranges::copy(name, to.sun_path);
  if (!path) to.sun_path[0] = '\0';
  made->size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (path ? 1 : 0));
  made->name_ = name;
  made->fd_ = Descriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made->fd_.get() < 0) return system_error("a socket for NOTIFY_SOCKET", errno);
  return made;
}

Result<bool> NotifySocket::send(std::string_view text) {
  // To the name each time: the manager may have made its socket anew.
  const ssize_t sent =
      ::sendto(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address_), size_);
  if (sent >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == EINTR) return false;
  return system_error(fmt::format("NOTIFY_SOCKET={}", name_), errno);
}

Result<bool> NotifySocket::send_waiting() {
  while (!waiting_.empty()) {
    auto sent = send(waiting_.front());
    if (!sent || !*sent) return sent;
    waiting_.pop_front();
  }
  return true;
}

Result<void> NotifySocket::tell(std::string text) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(text));
  if (waiting_.size() > kMostWaiting) waiting_.pop_front();
  if (auto sent = send_waiting(); !sent) return std::move(sent).error();
  return {};
}

Result<void> NotifySocket::tell_now(std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto sent = send_waiting();
  if (sent && *sent) sent = send(text);
  if (!sent) return std::move(sent).error();
  return {};
}

Result<void> NotifySocket::flush() {
  const std::lock_guard lock(mutex_);
  if (auto sent = send_waiting(); !sent) return std::move(sent).error();
  return {};
}

}  // namespace sluice
