// host only
#include "confine.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <span>

#include "app.h"
#include "app_state.h"

namespace sluice::app {
namespace {

#if defined(SLUICE_SANITIZED)
constexpr bool kConfines = false;  // the sanitizers' own threads and files are not ours to refuse
#else
constexpr bool kConfines = true;
#endif

// Later than the headers of Debian 12.
constexpr uint64_t kTruncate = uint64_t{1} << 14;  // LANDLOCK_ACCESS_FS_TRUNCATE

long landlock_version() {
  return ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool has_seccomp() {
  const uint32_t action = SECCOMP_RET_ERRNO;
  return ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

// The folder that a new file of this name goes to, links resolved; empty: that cannot be found out.
std::string folder_of(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::weakly_canonical(path, error);
  if (error) return {};
  const std::string folder = whole.parent_path().string();
  return folder.empty() ? "." : folder;
}

bool is_file_name(const std::string& path) {
  return !path.empty() && path != "-";
}

#if defined(__x86_64__)
constexpr uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kMachine = AUDIT_ARCH_AARCH64;
#else
#error "confine.cpp: which calls has this machine?"
#endif

// Calls that no command makes. What is missing in older headers is left out: the kernel beneath may not have it either.
constexpr uint32_t kRefused[] = {
    SYS_execve,
    SYS_execveat,
#if defined(SYS_fork)  // calls that only older machines have
    SYS_fork,
    SYS_vfork,
    SYS_mknod,
#endif
#if defined(SYS_iopl)
    SYS_iopl,
    SYS_ioperm,
#endif
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_fsopen,
    SYS_fsmount,
    SYS_fsconfig,
    SYS_fspick,
    SYS_move_mount,
    SYS_open_tree,
    SYS_mount_setattr,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_open_by_handle_at,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_acct,
    SYS_quotactl,
    SYS_personality,
    SYS_mknodat,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_capset,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_vhangup,
    SYS_fanotify_init,
};

// Of sockets that live ports have, besides those of AF_INET that send datagrams: these ask interfaces by ioctl.
constexpr uint32_t kLiveFamilies[] = {AF_UNIX, AF_NETLINK, AF_PACKET, AF_XDP};

std::vector<sock_filter> refusing_filter(bool live_ports) {
  constexpr uint32_t kDeny = SECCOMP_RET_ERRNO | EPERM;
  std::vector<sock_filter> f;
  const auto load = [&](size_t offset) {
    f.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  };
  const auto give = [&](uint32_t what) { f.push_back(BPF_STMT(BPF_RET | BPF_K, what)); };
  // Skips the next `n` where the loaded word is not `value`.
  const auto unless = [&](uint32_t value, uint8_t n) { f.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n)); };
  load(offsetof(seccomp_data, arch));
  f.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMachine, 1, 0));
  give(SECCOMP_RET_KILL_PROCESS);
  load(offsetof(seccomp_data, nr));
  // The calls of x32; other machines have none so high.
  f.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1));
  give(kDeny);
  for (const uint32_t call : kRefused) {
    if (live_ports && call == SYS_bpf) continue;
    unless(call, 1);
    give(kDeny);
  }
  // Its flags lie in memory, where no filter looks: without it the C library starts threads by clone.
  unless(SYS_clone3, 1);
  give(SECCOMP_RET_ERRNO | ENOSYS);
  // Threads are started, processes are not.
  unless(SYS_clone, 4);
  load(offsetof(seccomp_data, args[0]));
  f.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1));
  give(SECCOMP_RET_ALLOW);
  give(kDeny);
  const std::span<const uint32_t> families(kLiveFamilies, live_ports ? std::size(kLiveFamilies) : 1);
  unless(SYS_socket, static_cast<uint8_t>(2 + 2 * families.size() + (live_ports ? 5 : 0)));
  load(offsetof(seccomp_data, args[0]));
  for (const uint32_t family : families) {
    unless(family, 1);
    give(SECCOMP_RET_ALLOW);
  }
  if (live_ports) {
    unless(AF_INET, 4);
    load(offsetof(seccomp_data, args[1]));
    f.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf));
    unless(SOCK_DGRAM, 1);
    give(SECCOMP_RET_ALLOW);
  }
  give(kDeny);
  give(SECCOMP_RET_ALLOW);
  return f;
}

// False: it is there and cannot be allowed.
bool allow(int rules, const std::string& path, uint64_t access) {
  const int fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == EACCES;  // whoever opens it says so
  struct stat there {};
  const bool known = ::fstat(fd, &there) == 0;
  // Of a file only what files have may be allowed.
  if (known && !S_ISDIR(there.st_mode))
    access &= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
  const landlock_path_beneath_attr beneath{access, fd};
  // A pipe that is named by its descriptor has no place in the file system, and needs none.
  const bool done = ::syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0 ||
                    errno == EBADFD || errno == EBADF;
  ::close(fd);
  return known && done;
}

}  // namespace

namespace {

// Those that opening an interface takes by one method or another; the last is for the memory of AF_XDP.
constexpr unsigned kLiveCapabilities[] = {CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF, CAP_IPC_LOCK};

using Capabilities = std::array<__user_cap_data_struct, 2>;

bool get_capabilities(Capabilities& mine) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  return ::syscall(SYS_capget, &header, mine.data()) == 0;
}
// That this thread has these, and no other.
bool keep_capabilities(const Capabilities& kept) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  Capabilities now{};
  if (::syscall(SYS_capset, &header, kept.data()) != 0 || !get_capabilities(now)) return false;
  for (size_t w = 0; w < kept.size(); ++w) {
    if (now[w].effective != kept[w].effective || now[w].permitted != kept[w].permitted) return false;
  }
  return true;
}

}  // namespace

void drop_privileges(const std::string& user, bool live_ports) {
  std::vector<char> text(size_t{1} << 16);
  passwd entry{};
  passwd* found = nullptr;
  ::getpwnam_r(user.c_str(), &entry, text.data(), text.size(), &found);
  if (found == nullptr) fail(Exit::kUsage, fmt::format("--user: there is no user '{}'", user), "see: getent passwd");
  if (found->pw_uid == 0) fail(Exit::kUsage, fmt::format("--user: '{}' is root: no privileges would be dropped", user));
  if (::geteuid() != 0)
    fail(Exit::kUnavailable, "--user: only root can switch to another user", "leave it out, or start as root");
  const uid_t uid = found->pw_uid;
  const gid_t gid = found->pw_gid;
  const auto refused = [&](const char* call) {
    const int code = errno;
    fail(Exit::kIo, system_error(fmt::format("--user {}: {}", user, call), code));
  };
  Capabilities kept{}, mine{};
  if (live_ports && get_capabilities(mine)) {
    for (const unsigned one : kLiveCapabilities) kept[one / 32].permitted |= mine[one / 32].permitted & 1u << one % 32;
    for (auto& word : kept) word.effective = word.permitted;
    if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) refused("keepcaps");
  }
  if (::setgroups(0, nullptr) != 0) refused("setgroups");
  if (::setresgid(gid, gid, gid) != 0) refused("setresgid");
  if (::setresuid(uid, uid, uid) != 0) refused("setresuid");
  // Securebits may have kept what a change of user takes.
  if (!keep_capabilities(kept)) refused("capset");
  if (::prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0) refused("keepcaps");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) refused("no_new_privs");
  uid_t u[3];
  gid_t g[3];
  const bool gone = ::getresuid(&u[0], &u[1], &u[2]) == 0 && ::getresgid(&g[0], &g[1], &g[2]) == 0 &&
                    std::all_of(u, u + 3, [&](uid_t one) { return one == uid; }) &&
                    std::all_of(g, g + 3, [&](gid_t one) { return one == gid; }) && ::getgroups(0, nullptr) == 0 &&
                    ::setuid(0) != 0 && ::seteuid(0) != 0 && (gid == 0 || ::setgid(0) != 0);
  if (!gone) fail(Exit::kIo, fmt::format("--user {}: root privileges remain", user));
}

void keep_no_capability() {
  if (app_state().user.empty() || keep_capabilities({})) return;
  fail(Exit::kIo, fmt::format("--user {}: capabilities remain", app_state().user));
}

void refuse_calls(bool live_ports) {
  if (!kConfines || !has_seccomp() || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
  std::vector<sock_filter> filter = refusing_filter(live_ports);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  // Kernels before 5.16 take filters for a wish to have speculation slowed, which lookups would pay for.
  (void)::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                  &program);
}

void refuse_files(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs, bool live_ports) {
  const long version = landlock_version();
  if (!kConfines || version < 1 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
  landlock_ruleset_attr handled{};
  handled.handled_access_fs = (uint64_t{1} << 13) - 1;  // all of the first version
  const uint64_t later = (version >= 2 ? uint64_t{LANDLOCK_ACCESS_FS_REFER} : 0) | (version >= 3 ? kTruncate : 0);
  handled.handled_access_fs |= later;
  const int rules =
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &handled, sizeof handled.handled_access_fs, 0));
  if (rules < 0) return;
  const uint64_t read = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
  const uint64_t make =
      read | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE | later;
  // Where one of them cannot be allowed (no descriptor is left), nothing is refused: a run is not to fail by this.
  bool all = true;
  for (const std::string& path : inputs) {
    if (is_file_name(path)) all &= allow(rules, path, LANDLOCK_ACCESS_FS_READ_FILE);
  }
  for (const std::string& path : outputs) {
    if (!is_file_name(path)) continue;
    const std::string folder = folder_of(path);
    all &= !folder.empty() && allow(rules, folder, make);
    // A pipe or a device is written where it is.
    all &= allow(rules, path, (LANDLOCK_ACCESS_FS_WRITE_FILE | later) & ~uint64_t{LANDLOCK_ACCESS_FS_REFER});
  }
  // The C library's: how many processors there are, and what it loads when a thread ends.
  for (const char* path : {"/sys/devices/system/cpu", "/proc/self", "/usr/lib", "/lib", "/lib64"})
    all &= allow(rules, path, read);
  if (live_ports) {
    for (const char* path : {"/sys/class/net", "/sys/devices", "/proc/sys/net"}) all &= allow(rules, path, read);
    all &= allow(rules, "/dev/net/tun", LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
  }
  if (all) (void)::syscall(SYS_landlock_restrict_self, rules, 0);
  ::close(rules);
}

void check_outputs(const std::vector<std::string>& outputs) {
  if (app_state().user.empty()) return;
  for (const std::string& path : outputs) {
    if (!is_file_name(path)) continue;
    std::error_code ignored;
    const bool direct = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
    const std::string where = direct ? path : folder_of(path);
    if (::access(where.c_str(), direct ? W_OK : W_OK | X_OK) == 0 || errno == ENOENT) continue;
    const int why = errno;
    // Written in place (AtomicFile).
    if (!direct && ::access(path.c_str(), R_OK | W_OK) == 0) continue;
    Error error = system_error(fmt::format("{}: user '{}' cannot write to '{}'", path, app_state().user, where), why);
    error.hint = "outputs are created as the user of --user: use a directory that it can write to";
    fail(Exit::kIo, std::move(error));
  }
}

std::string confinement() {
  if (!kConfines) return "none: this build has sanitizers";
  const long version = landlock_version();
  const std::string files = version < 1 ? "" : fmt::format("Landlock {}", version);
  const std::string calls = has_seccomp() ? "seccomp" : "";
  if (files.empty() && calls.empty()) return "none: the kernel has neither Landlock nor seccomp";
  return files + (files.empty() || calls.empty() ? "" : ", ") + calls;
}

}  // namespace sluice::app
