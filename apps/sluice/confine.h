// What the program gives up before it reads what strangers wrote: another user's rights, calls it never makes, files
// it has no business with.
// host only
#pragma once

#include <string>
#include <vector>

namespace sluice::app {

// --user: this process becomes `user`, with its primary group and no other, and keeps no capability; verified. Ends
// with kUsage (nobody has that name, or it is root), kUnavailable (only root can do so) or kIo (the system refuses).
// `live_ports`: it keeps those capabilities that open interfaces, as far as it has them.
void drop_privileges(const std::string& user, bool live_ports);
// With --user: there are no live ports. This thread keeps no capability, nor do those that it starts.
void keep_no_capability();

// From here on the system refuses what no command does: to start a program, to open a socket that is not a Unix one, to
// look into other processes, to change mounts, modules, users or the clock. For all threads. Without a word where the
// kernel has no seccomp, and in builds with sanitizers. `live_ports`: but for what opens interfaces, during the whole
// run, as one may be made again, or come with another graph: sockets of packets, AF_XDP, netlink and the Internet, and
// bpf.
void refuse_calls(bool live_ports = false);

// From here on this thread, and those that it starts, open files below the folders of `outputs` for writing, and the
// files `inputs` for reading; "-" and "" are neither. `live_ports`: and what tells of interfaces, or makes one. Without
// a word where the kernel has no Landlock, and in builds with sanitizers.
void refuse_files(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                  bool live_ports = false);

// With --user: whether that user may make files where `outputs` go, before anything is read. Ends with kIo.
void check_outputs(const std::vector<std::string>& outputs);

// What the kernel has of both, for doctor; "none" where it has nothing.
std::string confinement();

}  // namespace sluice::app
