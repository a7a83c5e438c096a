// Processes that a benchmark starts: this program with other arguments, the device that it measures, ip(8).
// host only
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace sluice::app {

struct Ended {
  int code = -1;      // 128 + signal
  bool late = false;  // ended because its time was over
  double cpu_s = 0;   // of its threads, in user mode and in the kernel
  std::string out, err;
};

// A process that does not outlive this object nor this program, its stdout and stderr kept in memory, its stdin empty.
class Child {
 public:
  // `program`: a path, or "" for this program. `network`: descriptor of the network namespace that it runs in; -1: this
  // one's. Ends the program with kIo where no process can be started.
  Child(const std::string& program, const std::vector<std::string>& arguments, int network = -1);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  bool running();
  // Waits for its end; after `limit` it is ended. A signal to this program ends both, this one with kInterrupted.
  Ended wait(std::chrono::duration<double> limit = std::chrono::hours(24 * 365));
  // Asks it to end and waits: SIGKILL follows after 10 seconds.
  Ended stop(int signal);

 private:
  class Printed;
  Ended ended() const;
  std::unique_ptr<Printed> out_, err_;
  pid_t pid_ = -1;
  int status_ = 0;
  double cpu_s_ = 0;
  bool gone_ = false;
  EndsInOrder in_order_;
};

// A program beside this one, else in PATH; "": there is none.
std::string find_program(const std::string& name);

}  // namespace sluice::app
