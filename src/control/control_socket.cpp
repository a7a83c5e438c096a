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
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <mutex>
#include <new>
#include <ranges>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/unfinished.h"
#include "control/descriptor.h"

namespace sluice {
namespace {

Error failed(const std::string& path, const char* what) {
  return system_error(fmt::format("{}: {}", path, what), errno);
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error(
        fmt::format("{}: a socket path has 1 to {} bytes, not {}", path, sizeof address.sun_path - 1, path.size()),
        "choose a shorter one");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// A connection, or errno: EAGAIN where somebody listens and takes no connections.
Descriptor connect_to(const sockaddr_un& address) {
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return fd;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return Descriptor();
  return fd;
}

// Whether a process listens there.
bool served(const sockaddr_un& address) {
  return connect_to(address).get() >= 0 || errno == EAGAIN;
}

constexpr uint64_t kConnectNs = 10'000'000'000;
constexpr uint64_t kNever = ~uint64_t{0};

int poll_timeout(uint64_t ns) {
  return ns == kNever ? -1 : static_cast<int>(std::min<uint64_t>((ns + 999'999) / 1'000'000, 3'600'000));
}

// Adds a time to one that may be without end.
uint64_t later(uint64_t time, uint64_t ns) {
  return ns >= kNever - time ? kNever : time + ns;
}

}  // namespace

class ControlSocket::Server {
 public:
  Descriptor listener, wake;
  Descriptor made;        // an answer that took long is there
  Unfinished unfinished;  // the socket's name
  dev_t device = 0;
  ino_t inode = 0;
  std::atomic<bool> stop{false};
  std::jthread thread;

  // Makes the answers that take long.
  void make(const std::stop_token& ended) {
    const CancelScope cancel(stop);
    for (;;) {
      std::list<Job> taken;  // moved from list to list: what is made needs no memory to be handed over
      {
        std::unique_lock lock(jobs_mutex_);
        if (!jobs_changed_.wait(lock, ended, [this] { return !jobs_.empty(); })) return;
        if (ended.stop_requested() || stop.load(std::memory_order_relaxed)) return;
        taken.splice(taken.begin(), jobs_, jobs_.begin());
      }
      Job& job = taken.front();
      try {
        const CancelScope unwanted(job.peer->gone, job.peer->fd.get());
        if (!changes_are_unwanted()) job.answer = job.make() + "\n";
      } catch (const std::bad_alloc&) {
        // Its client is left without an answer, as where there is no memory for one that is made at once.
      }
      job.make = nullptr;
      const std::lock_guard lock(jobs_mutex_);
      made_.splice(made_.end(), taken);
      const uint64_t one = 1;
      // Once it is full (EAGAIN) the other thread is awake already.
      while (::write(made.get(), &one, sizeof one) < 0 && errno != EAGAIN) {
      }
    }
  }

  void run(const Answer& answer, const Refusal& refusal, const ControlLimits& limits, std::jthread maker) {
    const CancelScope cancel(stop);
    answer_ = &answer;
    refusal_ = &refusal;
    limits_ = limits;
    renew_spare();
    std::vector<pollfd> polled;
    constexpr size_t kOthers = 3;
    polled.reserve(kOthers + limits_.clients);
    while (!stop.load(std::memory_order_relaxed)) {
      const uint64_t now = time();
      uint64_t next = kNever;
      bool ready = false;
      polled.clear();
      polled.push_back({wake.get(), POLLIN, 0});
      polled.push_back({now >= accept_at_ ? listener.get() : -1, POLLIN, 0});
      polled.push_back({made.get(), POLLIN, 0});
      if (now < accept_at_) next = accept_at_;
      for (Client& c : clients_) {
        short events = 0;
        if (c.number != 0) {
          c.since = now;  // its answer is being made
        } else if (!c.out.empty()) {
          events = POLLOUT;
        } else if (c.complete()) {
          ready = true;
        } else if (may_read(c)) {
          events = POLLIN;
        } else {
          c.since = now;  // it waits for another, which is not its fault
        }
        // Without events a client that goes away is still told of.
        polled.push_back({c.peer->fd.get(), events, 0});
        next = std::min(next, due(c));
      }
      const uint64_t wait = ready ? 0 : next == kNever ? kNever : next > now ? next - now : 0;
      if (::poll(polled.data(), polled.size(), poll_timeout(wait)) < 0) {
        // Without memory for the call it is tried again: whoever stops serving for good is told by nobody.
        if (errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      if (polled[0].revents != 0) break;
      size_t i = kOthers;
      for (auto c = clients_.begin(); c != clients_.end() && !stop.load(std::memory_order_relaxed); ++i) {
        if (long_ == &*c && c->in.size() - c->begin <= limits_.short_line) long_ = nullptr;
        bool stays = false;
        try {
          stays = step(*c, polled[i].revents) && in_time(*c);
        } catch (const std::bad_alloc&) {
          // What the client holds is more than there is.
        }
        if (!stays && long_ == &*c) long_ = nullptr;
        if (!stays) c->peer->gone.store(true, std::memory_order_relaxed);
        c = stays ? std::next(c) : clients_.erase(c);
      }
      if (polled[2].revents != 0) take_made();
      if (polled[1].revents != 0) {
        try {
          accept_one();
        } catch (const std::bad_alloc&) {
          // It is closed, as one that came too late.
        }
      }
    }
    // Whose answer is being made gets it.
    maker.request_stop();
    maker.join();
    take_made();
  }

 private:
  // Outlives its client while an answer is made for it.
  struct Peer {
    Descriptor fd;
    std::atomic<bool> gone{false};
  };
  struct Job {
    uint64_t client;
    std::shared_ptr<Peer> peer;
    std::function<std::string()> make;
    std::string answer;  // empty: there was no memory for it
  };
  struct Client {
    std::shared_ptr<Peer> peer;
    bool owner = false;
    std::string in, out;
    size_t begin = 0;     // of `in`: where the next request starts
    size_t searched = 0;  // of `in`: no newline stands before it since `begin`, or it is at one
    size_t sent = 0;      // of `out`
    uint64_t since = 0;   // when the request or the answer began, or the last answer was taken
    uint64_t number = 0;  // while its answer is made on the other thread; else 0
    bool ending = false;  // after what is in `out`
    bool complete() const { return searched < in.size(); }
    bool half() const { return !complete() && begin < in.size(); }
  };

  // A clock that stands while an answer is made: nobody is late because another's request took long.
  uint64_t time() const { return now_ns() - answering_ns_; }

  uint64_t due(const Client& c) const {
    return later(c.since, !c.out.empty() || c.half() ? limits_.slow_ns : limits_.idle_ns);
  }

  // A client may hold a short line; one, which is the owner's, a long one.
  bool may_read(const Client& c) {
    return c.in.size() - c.begin <= limits_.short_line || !c.owner || (long_ == nullptr && long_job_ == 0) ||
           long_ == &c;
  }

  bool in_time(Client& c) {
    if (time() < due(c)) return true;
    if (!c.out.empty()) return false;
    // Who is idle is left without a word: it would be taken for the answer to what is asked next.
    if (!c.half()) return false;
    refuse(c, Error(fmt::format("the request was not complete within {} s", limits_.slow_ns / 1'000'000'000)));
    return send_some(c);
  }

  void refuse(Client& c, const Error& error) {
    c.out = (*refusal_)(error) + "\n";
    c.sent = 0;
    c.ending = true;
    c.since = time();
  }

  // False: the client is gone.
  bool step(Client& c, short events) {
    try {
      return take_and_answer(c, events);
    } catch (const std::bad_alloc&) {
      return false;  // the run goes on
    }
  }
  bool take_and_answer(Client& c, short events) {
    if (c.number != 0) return (events & (POLLHUP | POLLERR)) == 0;
    if (!c.out.empty()) return events == 0 || send_some(c);
    if (!c.complete()) {
      if (events == 0) return true;
      // It waits for its turn with a long line: only its end is of interest.
      if (!may_read(c)) return (events & (POLLHUP | POLLERR)) == 0;
      if (!receive(c)) return false;
    }
    if (!c.complete()) {
      const size_t size = c.in.size() - c.begin, most = c.owner ? limits_.long_line : limits_.short_line;
      if (size > limits_.short_line && c.owner && long_ == nullptr && long_job_ == 0) long_ = &c;
      if (size <= most) return true;
      refuse(c,
             Error(fmt::format("the request is longer than {} bytes", most),
                   c.owner ? "split it into several requests" : "only the process's own user may send a longer one"));
      return send_some(c);
    }
    const uint64_t began = now_ns();
    const CancelScope unwanted(c.peer->gone, c.peer->fd.get());
    Reply reply = (*answer_)(std::string_view(c.in).substr(c.begin, c.searched - c.begin));
    if (!reply.later) c.out = std::move(reply.text) + "\n";
    answering_ns_ += now_ns() - began;
    c.sent = 0;
    c.since = time();
    c.begin = c.searched + 1;
    if (c.begin == c.in.size()) {
      c.in = {};
      c.begin = 0;
    } else if (c.begin > c.in.size() / 2) {
      c.in.erase(0, c.begin);
      c.in.shrink_to_fit();
      c.begin = 0;
    }
    c.searched = c.begin;
    search(c);
    if (!reply.later) return send_some(c);
    {
      const std::lock_guard lock(jobs_mutex_);
      jobs_.push_back({last_number_ + 1, c.peer, std::move(reply.later), {}});
    }
    c.number = ++last_number_;
    // What was read of a long line stays with the job: the next one waits for that.
    if (long_ == &c) long_job_ = c.number;
    jobs_changed_.notify_one();
    return true;
  }

  // Gives the answers that were made on the other thread to whoever still waits for them.
  void take_made() {
    uint64_t count = 0;
    (void)!::read(made.get(), &count, sizeof count);
    std::list<Job> all;
    {
      const std::lock_guard lock(jobs_mutex_);
      all.swap(made_);
    }
    for (Job& one : all) {
      if (long_job_ == one.client) long_job_ = 0;
      const auto c = std::ranges::find(clients_, one.client, &Client::number);
      if (c == clients_.end()) continue;
      c->number = 0;
      c->since = time();
      c->out = std::move(one.answer);
      c->sent = 0;
      if (!c->out.empty() && send_some(*c)) continue;
      if (long_ == &*c) long_ = nullptr;
      clients_.erase(c);
    }
  }

  static void search(Client& c) { c.searched = std::min(c.in.find('\n', c.searched), c.in.size()); }

  bool receive(Client& c) {
    char bytes[65536];
    const ssize_t n = ::recv(c.peer->fd.get(), bytes, sizeof bytes, 0);
    if (n < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    // A line that was cut off is nobody's request.
    if (n == 0) return false;
    if (c.begin == c.in.size()) c.since = time();
    c.in.append(bytes, static_cast<size_t>(n));
    search(c);
    return true;
  }

  bool send_some(Client& c) {
    const ssize_t n = ::send(c.peer->fd.get(), c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    c.sent += static_cast<size_t>(n);
    if (c.sent < c.out.size()) return true;
    c.out = {};
    c.since = time();
    return !c.ending;
  }

  void renew_spare() {
    if (spare_.get() < 0) spare_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  void accept_one() {
    // While all are being served the next one waits in the queue.
    if (clients_.size() >= limits_.clients && idle_place(true) == clients_.end()) {
      accept_at_ = later(time(), kRetryNs / 10);
      return;
    }
    Descriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    bool room = true;
    if (fd.get() < 0 && (errno == EMFILE || errno == ENFILE)) {
      // The process has no descriptor left but the spare one: who comes is told so rather than left to wait.
      spare_ = Descriptor();
      fd = Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      room = false;
    }
    if (fd.get() < 0) {
      // Whoever is in the queue stays there, and so would poll() say again at once.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) accept_at_ = later(time(), kRetryNs);
      renew_spare();
      return;
    }
    Client c;
    c.peer = std::make_shared<Peer>();
    c.peer->fd = std::move(fd);
    c.since = time();
    ucred peer{};
    socklen_t size = sizeof peer;
    c.owner = ::getsockopt(c.peer->fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
              (peer.uid == 0 || peer.uid == ::geteuid());
    if (!room || !make_room(c.owner)) {
      refuse(c, room ? Error("too many clients at once", "try again")
                     : Error("the process has no file descriptor left", "raise its limit of open files (ulimit -n)"));
      (void)send_some(c);
      c = {};
      renew_spare();
      return;
    }
    clients_.push_back(std::move(c));
  }

  using Place = std::list<Client>::iterator;

  // Whose place one more client may have: who says nothing for longest, others before the owner; end(): nobody's.
  Place idle_place(bool owner) {
    Place worst = clients_.end();
    for (Place c = clients_.begin(); c != clients_.end(); ++c) {
      if ((!owner && c->owner) || !c->out.empty() || c->complete() || c->number != 0) continue;
      // The owner need not wait until others have had their time.
      const bool at_once = owner && !c->owner;
      char byte = 0;
      if (!at_once && (time() - c->since < limits_.grace_ns || ::recv(c->peer->fd.get(), &byte, 1, MSG_PEEK) > 0))
        continue;
      const auto rank = [](const Client& client) { return std::pair(client.owner, client.since); };
      if (worst == clients_.end() || rank(*c) < rank(*worst)) worst = c;
    }
    return worst;
  }

  // Whether there is a place for one more client.
  bool make_room(bool owner) {
    const auto others = static_cast<size_t>(std::ranges::count(clients_, false, &Client::owner));
    if (clients_.size() < limits_.clients && (owner || others < limits_.clients / 2)) return true;
    const Place place = idle_place(owner);
    if (place == clients_.end()) return false;
    if (long_ == &*place) long_ = nullptr;
    clients_.erase(place);
    return true;
  }

  static constexpr uint64_t kRetryNs = 100'000'000;

  const Answer* answer_ = nullptr;
  const Refusal* refusal_ = nullptr;
  ControlLimits limits_;
  std::list<Client> clients_;
  const Client* long_ = nullptr;  // who sends a long line
  uint64_t long_job_ = 0;         // whose long line the other thread has; 0: nobody's
  Descriptor spare_;
  uint64_t answering_ns_ = 0;  // in all
  uint64_t accept_at_ = 0;
  uint64_t last_number_ = 0;

  std::mutex jobs_mutex_;
  std::condition_variable_any jobs_changed_;
  std::list<Job> jobs_, made_;
};

Result<std::unique_ptr<ControlSocket>> ControlSocket::create(const std::string& path) {
  auto address = address_of(path);
  if (!address) return std::move(address).error();
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode))
      return Error(fmt::format("{}: this is a file, not a socket", path), "choose another name");
    if (served(*address)) {
      return Error(fmt::format("{}: another process is listening there", path),
                   "choose another name, or end that process");
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
  server->made = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (server->listener.get() < 0 || server->wake.get() < 0 || server->made.get() < 0)
    return failed(path, "no socket could be created");
  server->unfinished = Unfinished(path);
  // The file takes its mode from the descriptor: there is no moment at which others may open it.
  if (::fchmod(server->listener.get(), 0600) != 0 ||
      ::bind(server->listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return failed(path, "cannot be created");
  }
  if (::chmod(path.c_str(), 0600) != 0 || ::lstat(path.c_str(), &there) != 0 ||
      ::listen(server->listener.get(), 64) != 0) {
    const Error error = failed(path, "cannot listen");
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
  server_->stop.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  if (server_->thread.joinable()) {
    // Once it is full (EAGAIN) the thread is awake already.
    while (::write(server_->wake.get(), &one, sizeof one) < 0 && errno != EAGAIN) {
    }
    server_->thread.join();
  }
  // Somebody may have put another in its place.
  struct stat there {};
  const bool other =
      ::lstat(path_.c_str(), &there) == 0 && (there.st_dev != server_->device || there.st_ino != server_->inode);
  if (!other) ::unlink(path_.c_str());
}

Result<void> ControlSocket::serve(Answer answer, Refusal refusal, const ControlLimits& limits) {
  auto maker = start_thread([server = server_.get()](const std::stop_token& ended) { server->make(ended); });
  if (!maker) return std::move(maker).error();
  auto thread =
      start_thread([server = server_.get(), answer = std::move(answer), refusal = std::move(refusal), limits,
                    maker = std::move(*maker)]() mutable { server->run(answer, refusal, limits, std::move(maker)); });
  if (!thread) return std::move(thread).error();
  server_->thread = std::move(*thread);
  return {};
}

Result<std::string> ask(const std::string& path, std::string_view line, uint64_t limit_ns, size_t most) {
  auto address = address_of(path);
  if (!address) return std::move(address).error();
  const uint64_t end = later(now_ns(), limit_ns);
  // A queue that is full is tried again: a connection without a time limit would wait for ever.
  Descriptor fd = connect_to(*address);
  for (const uint64_t tries_end = std::min(end, later(now_ns(), kConnectNs)); fd.get() < 0 && errno == EAGAIN;
       fd = connect_to(*address)) {
    if (now_ns() >= tries_end)
      return Error(fmt::format("{}: the process does not accept connections", path),
                   "it is stopped, or has too many clients");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (fd.get() < 0) {
    const bool gone = errno == ECONNREFUSED || errno == ENOENT;
    Error error = failed(path, "cannot be reached");
    error.hint = gone ? "no process is listening there: start one with 'sluice run ... --control PATH'" : "";
    return error;
  }
  std::string answer;
  size_t sent = 0;  // of the line and its newline
  const auto send_rest = [&] {
    static constexpr char kNewline = '\n';
    const bool text = sent < line.size();
    return ::send(fd.get(), text ? line.data() + sent : &kNewline, text ? line.size() - sent : 1, MSG_NOSIGNAL);
  };
  while (true) {
    pollfd polled{fd.get(), static_cast<short>(sent <= line.size() ? POLLIN | POLLOUT : POLLIN), 0};
    const uint64_t now = now_ns();
    const int ready = now >= end ? 0 : ::poll(&polled, 1, poll_timeout(end - now));
    if (ready < 0 && errno == EINTR) return Error("interrupted");
    if (ready < 0) return failed(path, "cannot wait for the answer");
    if (ready == 0 && now_ns() < end) continue;
    if (ready == 0) return Error(fmt::format("{}: no answer within {} s", path, limit_ns / 1'000'000'000));
    if ((polled.revents & POLLOUT) != 0 && sent <= line.size()) {
      const ssize_t n = send_rest();
      if (n >= 0) sent += static_cast<size_t>(n);
      // What the other side has said before it left is still to be read.
      if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
        sent = line.size() + 1;
      } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        return failed(path, "cannot send the request");
      }
    }
    if ((polled.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    char bytes[65536];
    const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return Error(fmt::format("{}: the process closed the connection before it answered", path));
    const std::string_view got(bytes, static_cast<size_t>(n));
    const size_t newline = std::min(got.find('\n'), got.size());
    if (answer.size() + newline > most)
      return Error(fmt::format("{}: the answer is longer than {} bytes", path, most),
                   "the process that answers is not sluice");
    answer.append(got.substr(0, newline));
    if (newline < got.size()) return answer;
  }
}

std::string control_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return runtime == nullptr || *runtime == '\0' ? std::string(kSystemFolder) : std::string(runtime) + "/sluice";
}

Result<std::string> find_control_socket(const std::string& system_folder) {
  if (const char* named = std::getenv("SLUICE_SOCKET"); named != nullptr && *named != '\0') return std::string(named);
  std::vector<std::string> folders = {control_folder()};
  if (folders[0] == kSystemFolder) folders.clear();
  folders.push_back(system_folder);
  std::vector<std::string> found, closed;
  std::error_code ignored;
  for (const std::string& folder : folders) {
    if (!found.empty()) break;  // the user's own before those of the system
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (!entry.is_socket(ignored)) continue;
      const auto address = address_of(entry.path().string());
      if (!address.ok()) continue;
      if (served(*address)) {
        found.push_back(entry.path().string());
      } else if (errno == EACCES) {
        closed.push_back(entry.path().string());
      }
    }
  }
  std::sort(found.begin(), found.end());
  if (found.size() == 1) return found.front();
  if (found.empty() && !closed.empty())
    return Error(fmt::format("{}: this user may not use it", closed.front()), "as root: sudo sluice ...");
  if (found.empty())
    return Error(fmt::format("no process is listening in {}", fmt::join(folders, " or ")),
                 "start one with --control auto (live ports: it is the default), or give --socket PATH");
  return Error(fmt::format("several processes are listening: {}", fmt::join(found, ", ")),
               "choose one with --socket PATH");
}

}  // namespace sluice
