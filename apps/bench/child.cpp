#include "child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "apps/sluice/app.h"

namespace sluice::app {

// A file in memory: it holds any amount, and nothing of it is left behind.
class Child::Printed {
 public:
  explicit Printed(const char* name) : descriptor_(::memfd_create(name, MFD_CLOEXEC)) {
    if (descriptor_ < 0) fail(Exit::kIo, system_error("a file in memory for the output of a process", errno));
  }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  ~Printed() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }
  std::string text() const {
    std::string all;
    char some[65536];
    for (off_t at = 0;;) {
      const ssize_t n = ::pread(descriptor_, some, sizeof some, at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return all;
      all.append(some, static_cast<size_t>(n));
      at += n;
    }
  }

 private:
  int descriptor_;
};

Child::Child(const std::string& program, const std::vector<std::string>& arguments, int network)
    : out_(std::make_unique<Printed>("stdout")), err_(std::make_unique<Printed>("stderr")) {
  const std::string path = program.empty() ? "/proc/self/exe" : program;
  std::string name = program.empty() ? "sluice-bench" : program;
  std::vector<char*> words{name.data()};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail(Exit::kIo, system_error("cannot start a process", errno));
  if (pid_ != 0) return;
  // It does not outlive this program, however that ends.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (::dup2(nothing, STDIN_FILENO) < 0 || ::dup2(out_->descriptor(), STDOUT_FILENO) < 0 ||
      ::dup2(err_->descriptor(), STDERR_FILENO) < 0)
    ::_exit(127);
  if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(127);
  ::execv(path.c_str(), words.data());
  ::_exit(127);
}

Child::~Child() {
  if (gone_) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
}

bool Child::running() {
  if (gone_) return false;
  struct rusage used {};
  const pid_t done = ::wait4(pid_, &status_, WNOHANG, &used);
  if (done < 0 && errno != EINTR) fail(Exit::kIo, system_error("cannot wait for a process", errno));
  gone_ = done == pid_;
  if (gone_) {
    for (const timeval& time : {used.ru_utime, used.ru_stime})
      cpu_s_ += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  }
  return !gone_;
}

Ended Child::ended() const {
  return {WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_), false, cpu_s_, out_->text(),
          err_->text()};
}

Ended Child::wait(std::chrono::duration<double> limit) {
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point asked_at;
  bool asked = false, late = false;
  while (running()) {
    const auto now = std::chrono::steady_clock::now();
    late = late || (!asked && now - begin > limit);
    if (!asked && (late || interrupted().load(std::memory_order_relaxed))) {
      asked = true;
      asked_at = now;
      ::kill(pid_, SIGTERM);
    }
    if (asked && now - asked_at > std::chrono::seconds(2)) ::kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  stop_if_interrupted();
  Ended how = ended();
  how.late = late;
  return how;
}

Ended Child::stop(int signal) {
  const auto begin = std::chrono::steady_clock::now();
  if (running()) ::kill(pid_, signal);
  while (running()) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) ::kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ended();
}

std::string find_program(const std::string& name) {
  const auto runs = [](const std::string& path) {
    std::error_code unknown;
    return std::filesystem::is_regular_file(path, unknown) && ::access(path.c_str(), X_OK) == 0;
  };
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown)
    if (const std::string beside = (self.parent_path() / name).string(); runs(beside)) return beside;
  const char* path = std::getenv("PATH");
  std::string rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string folder = rest.substr(0, end);
    if (!folder.empty() && runs(folder + "/" + name)) return folder + "/" + name;
    rest.erase(0, end + 1);
  }
  return "";
}

}  // namespace sluice::app
