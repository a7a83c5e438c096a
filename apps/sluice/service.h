// host only
// What a run tells the service manager that started it: that it is ready, its rates, that its workers work, that it
// reads its configuration again, that it ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "app.h"
#include "control/notify_socket.h"
#include "exec/engine/run.h"

namespace sluice::app {

class ServiceNotice {
 public:
  // The counters of the run; nothing: they cannot be had now, as tables are being changed. Errors: a worker gives none.
  using Look = std::function<Result<std::optional<RunReport>>()>;

  // Of $NOTIFY_SOCKET and $WATCHDOG_USEC; nullptr: it is not set, or names no socket, which is said.
  static std::unique_ptr<ServiceNotice> from_environment();
  ~ServiceNotice() { stopping(); }
  ServiceNotice(const ServiceNotice&) = delete;
  ServiceNotice& operator=(const ServiceNotice&) = delete;

  // Starts the thread, which calls this. Ends with kIo.
  void start(Look look);
  // From any thread -------------------------------------------------------------------------------------------------
  void ready();
  // As long as it lives the configuration is read again.
  class Reloading {
   public:
    explicit Reloading(ServiceNotice& notice) : notice_(notice) { notice_.say_reloading(); }
    ~Reloading() { notice_.ready(); }
    Reloading(const Reloading&) = delete;
    Reloading& operator=(const Reloading&) = delete;

   private:
    ServiceNotice& notice_;
  };
  // The run ends. Nothing is told any more, and the thread has ended, when this returns. Not from that thread.
  void stopping();

 private:
  explicit ServiceNotice(std::unique_ptr<NotifySocket> socket) : socket_(std::move(socket)) {}
  void say_reloading();
  void say_stopping();
  void watch(const std::stop_token& stop, const Look& look);
  void look_once(const Look& look);
  void warn_once(const Result<void>& told);

  std::unique_ptr<NotifySocket> socket_;
  uint64_t watchdog_ns_ = 0;  // within which a sign of life is expected; 0: none is
  std::mutex mutex_;          // of what follows, and of the order of what is told
  std::condition_variable_any ended_;
  bool stopping_ = false, warned_ = false;
  // Of the thread.
  uint64_t told_ns_ = 0;  // when a status was told
  std::optional<RunReport> told_then_;
  std::jthread thread_;
};

}  // namespace sluice::app
