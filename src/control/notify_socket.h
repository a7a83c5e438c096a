// host only
// Tells a service manager what a process does: sd_notify(3), one datagram a message.
#pragma once

#include <sys/un.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/descriptor.h"

namespace sluice {

// Thread-safe. Nothing here waits: the other side may not read, or be gone.
class NotifySocket {
 public:
  static constexpr size_t kMostWaiting = 64;  // messages

  // `name`, of $NOTIFY_SOCKET: an absolute path, or '@' and an abstract name. Errors: it is neither, or too long; the
  // system has no socket.
  static Result<std::unique_ptr<NotifySocket>> create(std::string_view name);

  // Sends "NAME=VALUE" lines after those that wait. What cannot be sent now waits for the next call of this or of
  // `flush`; past kMostWaiting the oldest goes. Errors: the system's, of the message that is first now; that the other
  // side has no room is none.
  Result<void> tell(std::string text);
  // The same for what is of no use later: it is lost if it cannot be sent now.
  Result<void> tell_now(std::string_view text);
  // Sends what waits. Errors as `tell`.
  Result<void> flush();

 private:
  NotifySocket() = default;
  // Within mutex_. True: sent.
  Result<bool> send(std::string_view text);
  Result<bool> send_waiting();

  Descriptor fd_;
  std::string name_;
  sockaddr_un address_{};
  socklen_t size_ = 0;
  std::mutex mutex_;
  std::deque<std::string> waiting_;
};

}  // namespace sluice
