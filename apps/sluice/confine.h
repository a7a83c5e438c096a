// What the program gives up before it reads what strangers wrote: another user's rights, calls it never makes, files
// it has no business with.
// host only
#pragma once

#include <string>
#include <vector>

namespace sluice::app {

// --user: this process becomes `user`, with its primary group and no other, and keeps no capability; verified. Ends
// with kUsage (nobody has that name, or it is root), kUnavailable (only root can do so) or kIo (the system refuses).
void drop_privileges(const std::string& user);

// From here on the system refuses what no command does: to start a program, to open a socket that is not a Unix one, to
// look into other processes, to change mounts, modules, users or the clock. For all threads. Without a word where the
// kernel has no seccomp, and in builds with sanitizers.
void refuse_calls();

// From here on this thread, and those that it starts, open files below the folders of `outputs` for writing, and the
// files `inputs` for reading; "-" and "" are neither. Without a word where the kernel has no Landlock, and in builds
// with sanitizers.
void refuse_files(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);

// With --user: whether that user may make files where `outputs` go, before anything is read. Ends with kIo.
void check_outputs(const std::vector<std::string>& outputs);

// What the kernel has of both, for doctor; "none" where it has nothing.
std::string confinement();

}  // namespace sluice::app
