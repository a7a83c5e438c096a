// Makes one call of a program fail: the N-th file call, thread start or allocation since main() began. Loaded with
// LD_PRELOAD by cli_faults_test.cpp; FaultState (fault_points.h) says which call, and learns what happened. With
// SLUICE_FAULTS_SERVER the program starts once, and stands before main() for each run that is asked for.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/testing/fault_points.h"

using namespace sluice::testing;

namespace {

FaultState* state = nullptr;  // before main(), and without SLUICE_FAULTS: none

// The function that this one stands before.
template <typename F>
F* next(F*& cached, const char* name) {
  if (cached == nullptr) cached = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
  return cached;
}
#define NEXT(name)                          \
  static decltype(::name)* cached_##name{}; \
  const auto real = next(cached_##name, #name)

bool fires(uint32_t of, std::atomic<uint64_t>& calls, const char* name, int descriptor, bool can = true) {
  const uint64_t number = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (state->fault_class != of || number < state->number) return false;
  if (number != state->number && state->kind != kFaultOnwards) return false;
  if (!can) return false;
  if (state->fired.fetch_add(1, std::memory_order_relaxed) == 0) {
    strncpy(state->call, name, sizeof state->call - 1);
    state->descriptor = descriptor;
  }
  return true;
}

// Whether a file call fails, with which errno.
bool file_fails(const char* name, int descriptor, int code) {
  if (state == nullptr) return false;
  const bool fails = state->kind == kFaultOnce || state->kind == kFaultOnwards;
  if (!fires(kFaultFile, state->files, name, descriptor, fails)) return false;
  errno = code;
  return true;
}
// The same for calls that a signal may interrupt or that may do less than was asked. What `length` becomes: one byte.
bool io_fails(const char* name, int descriptor, int code, size_t* length) {
  if (state == nullptr) return false;
  const bool can = state->kind != kFaultShort || (length != nullptr && *length > 1);
  if (!fires(kFaultFile, state->files, name, descriptor, can)) return false;
  if (state->kind == kFaultShort) {
    *length = 1;
    return false;
  }
  errno = state->kind == kFaultSignal ? EINTR : code;
  return true;
}

bool memory_fails(const char* name) {
  if (state == nullptr || !fires(kFaultMemory, state->allocations, name, -1)) return false;
  errno = ENOMEM;
  return true;
}

// What a process that gave up what it does not need still may do.
void probe() {
  const char* path = getenv("SLUICE_PROBE");
  if (state == nullptr || path == nullptr || state->reads != -1) return;
  const auto code = [](int got) {
    if (got < 0) return errno;
    ::close(got);
    return 0;
  };
  state->reads = code(::open(path, O_RDONLY | O_CLOEXEC));
  state->writes = code(::open(path, O_WRONLY | O_CLOEXEC));
  state->connects = code(::socket(AF_INET, SOCK_STREAM, 0));
  // Ends here where it may.
  state->starts = 0;
  const char* const words[] = {"true", nullptr};
  ::execve("/bin/true", const_cast<char* const*>(words), environ);
  state->starts = errno;
}

int (*program)(int, char**, char**) = nullptr;

void map_state(const char* path) {
  const int fd = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  void* at = fd < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(FaultState), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) ::close(fd);
  if (at == MAP_FAILED) abort();
  state = static_cast<FaultState*>(at);
}

// A run of the program in a process of its own, from here on.
int run(const FaultRun& asked, char** environment) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(asked.out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int error = ::open(asked.error, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (in < 0 || out < 0 || error < 0) abort();
  ::dup2(in, 0);
  ::dup2(out, 1);
  ::dup2(error, 2);
  for (int fd : {in, out, error}) ::close(fd);
  static char words[sizeof asked.words];
  static char* argv[sizeof words / 2 + 1];
  memcpy(words, asked.words, sizeof words);
  int argc = 0;
  for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest)) != nullptr;) argv[argc++] = word;
  argv[argc] = nullptr;
  ::unsetenv("SLUICE_FAULTS_SERVER");
  ::alarm(60);  // one that hangs ends by SIGALRM
  map_state(getenv("SLUICE_FAULTS"));
  return program(argc, argv, environment);
}

// One run after another, each in a process of its own, until the other side goes.
int serve(int link, char** environment) {
  FaultRun asked;
  while (::recv(link, &asked, sizeof asked, MSG_WAITALL) == ssize_t{sizeof asked}) {
    int32_t answer = ::fork();
    if (answer == 0) {
      ::close(link);
      return run(asked, environment);
    }
    const pid_t child = answer;
    if (::send(link, &answer, sizeof answer, MSG_NOSIGNAL) != ssize_t{sizeof answer} || child < 0) break;
    int status = 0;
    while (::waitpid(child, &status, 0) != child) {
      if (errno != EINTR) abort();
    }
    answer = status;
    if (::send(link, &answer, sizeof answer, MSG_NOSIGNAL) != ssize_t{sizeof answer}) break;
  }
  ::_exit(0);
}

int begin(int argc, char** argv, char** environment) {
  if (const char* link = getenv("SLUICE_FAULTS_SERVER")) return serve(atoi(link), environment);
  if (const char* path = getenv("SLUICE_FAULTS")) map_state(path);
  return program(argc, argv, environment);
}

}  // namespace

extern "C" {

// glibc's own names for what stands before.
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  using Start = int(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
  program = main;
  const auto real = reinterpret_cast<Start*>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(&begin, argc, argv, init, fini, rtld_fini, stack_end);
}

// -- memory -----------------------------------------------------------------------------------------------------------

#if !defined(SLUICE_SANITIZED)
void* malloc(size_t bytes) {
  return memory_fails("malloc") ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return memory_fails("calloc") ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* at, size_t bytes) {
  return memory_fails("realloc") ? nullptr : __libc_realloc(at, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return memory_fails("aligned_alloc") ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** at, size_t alignment, size_t bytes) {
  void* made = memory_fails("posix_memalign") ? nullptr : __libc_memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *at = made;
  return 0;
}
#endif

// -- threads ----------------------------------------------------------------------------------------------------------

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*f)(void*), void* argument) {
  NEXT(pthread_create);
  if (state != nullptr && fires(kFaultThread, state->threads, "pthread_create", -1)) return EAGAIN;
  return real(thread, attributes, f, argument);
}

// -- files ------------------------------------------------------------------------------------------------------------

#define MODE                     \
  mode_t mode = 0;               \
  if ((flags & O_CREAT) != 0) {  \
    va_list list;                \
    va_start(list, flags);       \
    mode = va_arg(list, mode_t); \
    va_end(list);                \
  }

int open(const char* path, int flags, ...) {
  MODE NEXT(open);
  if (file_fails("open", -1, (flags & O_CREAT) != 0 ? ENOSPC : EMFILE)) return -1;
  return real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE NEXT(open64);
  if (file_fails("open", -1, (flags & O_CREAT) != 0 ? ENOSPC : EMFILE)) return -1;
  return real(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  MODE NEXT(openat);
  if (file_fails("openat", -1, (flags & O_CREAT) != 0 ? ENOSPC : EMFILE)) return -1;
  return real(folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return file_fails("fopen", -1, *mode == 'r' ? EMFILE : ENOSPC) ? nullptr : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return file_fails("fopen", -1, *mode == 'r' ? EMFILE : ENOSPC) ? nullptr : real(path, mode);
}
FILE* fdopen(int fd, const char* mode) {
  NEXT(fdopen);
  return file_fails("fdopen", fd, ENOMEM) ? nullptr : real(fd, mode);
}
int fflush(FILE* file) {
  NEXT(fflush);
  return file != nullptr && file_fails("fflush", fileno(file), ENOSPC) ? EOF : real(file);
}
// Closed all the same, as close() does.
int fclose(FILE* file) {
  NEXT(fclose);
  const bool fails = file_fails("fclose", -1, ENOSPC);
  const int code = real(file);
  if (!fails) return code;
  errno = ENOSPC;
  return EOF;
}
// A stream without a descriptor is memory, or calls read() itself.
size_t fread(void* to, size_t size, size_t count, FILE* file) {
  NEXT(fread);
  if (fileno(file) < 0 || !file_fails("fread", -1, EIO)) return real(to, size, count, file);
  // What a stream that failed says of itself.
  file->_flags |= 0x20;
  return 0;
}
size_t __fread_chk(void* to, size_t room, size_t size, size_t count, FILE* file) {
  using Read = size_t(void*, size_t, size_t, size_t, FILE*);
  static Read* cached = nullptr;
  if (fileno(file) < 0 || !file_fails("fread", -1, EIO))
    return next(cached, "__fread_chk")(to, room, size, count, file);
  file->_flags |= 0x20;
  return 0;
}
size_t fread_unlocked(void* to, size_t size, size_t count, FILE* file) {
  NEXT(fread_unlocked);
  if (fileno(file) < 0 || !file_fails("fread", -1, EIO)) return real(to, size, count, file);
  file->_flags |= 0x20;
  return 0;
}
size_t fwrite(const void* from, size_t size, size_t count, FILE* file) {
  NEXT(fwrite);
  if (fileno(file) < 0 || !file_fails("fwrite", fileno(file), ENOSPC)) return real(from, size, count, file);
  file->_flags |= 0x20;
  return 0;
}
size_t fwrite_unlocked(const void* from, size_t size, size_t count, FILE* file) {
  NEXT(fwrite_unlocked);
  if (fileno(file) < 0 || !file_fails("fwrite", fileno(file), ENOSPC)) return real(from, size, count, file);
  file->_flags |= 0x20;
  return 0;
}
ssize_t read(int fd, void* to, size_t bytes) {
  NEXT(read);
  return io_fails("read", fd, EIO, &bytes) ? -1 : real(fd, to, bytes);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  NEXT(pread);
  return io_fails("pread", fd, EIO, &bytes) ? -1 : real(fd, to, bytes, at);
}
ssize_t pread64(int fd, void* to, size_t bytes, off_t at) {
  NEXT(pread64);
  return io_fails("pread", fd, EIO, &bytes) ? -1 : real(fd, to, bytes, at);
}
ssize_t write(int fd, const void* from, size_t bytes) {
  NEXT(write);
  return io_fails("write", fd, ENOSPC, &bytes) ? -1 : real(fd, from, bytes);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  NEXT(writev);
  return io_fails("writev", fd, ENOSPC, nullptr) ? -1 : real(fd, parts, count);
}
// The descriptor is gone also where it fails.
int close(int fd) {
  NEXT(close);
  const bool fails = file_fails("close", fd, EIO);
  const int code = real(fd);
  if (!fails) return code;
  errno = EIO;
  return -1;
}
off_t lseek(int fd, off_t at, int from) {
  NEXT(lseek);
  return file_fails("lseek", fd, EIO) ? -1 : real(fd, at, from);
}
off_t lseek64(int fd, off_t at, int from) {
  NEXT(lseek64);
  return file_fails("lseek", fd, EIO) ? -1 : real(fd, at, from);
}
int fsync(int fd) {
  NEXT(fsync);
  return file_fails("fsync", fd, EIO) ? -1 : real(fd);
}
int fdatasync(int fd) {
  NEXT(fdatasync);
  return file_fails("fdatasync", fd, EIO) ? -1 : real(fd);
}
int ftruncate(int fd, off_t bytes) {
  NEXT(ftruncate);
  return file_fails("ftruncate", fd, ENOSPC) ? -1 : real(fd, bytes);
}
int ftruncate64(int fd, off_t bytes) {
  NEXT(ftruncate64);
  return file_fails("ftruncate", fd, ENOSPC) ? -1 : real(fd, bytes);
}
int rename(const char* from, const char* to) {
  NEXT(rename);
  probe();
  return file_fails("rename", -1, EIO) ? -1 : real(from, to);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  NEXT(renameat);
  probe();
  return file_fails("renameat", -1, EIO) ? -1 : real(from_folder, from, to_folder, to);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  NEXT(linkat);
  // As where the file system has no links: the old file is moved then.
  return file_fails("linkat", -1, EPERM) ? -1 : real(from_folder, from, to_folder, to, flags);
}
// Done all the same: what cannot be removed cannot be gone.
int unlink(const char* path) {
  NEXT(unlink);
  const bool fails = file_fails("unlink", -1, EIO);
  const int code = real(path);
  if (!fails) return code;
  errno = EIO;
  return -1;
}
int unlinkat(int folder, const char* path, int flags) {
  NEXT(unlinkat);
  const bool fails = file_fails("unlinkat", -1, EIO);
  const int code = real(folder, path, flags);
  if (!fails) return code;
  errno = EIO;
  return -1;
}
int memfd_create(const char* name, unsigned flags) {
  NEXT(memfd_create);
  return file_fails("memfd_create", -1, EMFILE) ? -1 : real(name, flags);
}
DIR* opendir(const char* path) {
  NEXT(opendir);
  return file_fails("opendir", -1, EMFILE) ? nullptr : real(path);
}
char* realpath(const char* path, char* to) {
  NEXT(realpath);
  return file_fails("realpath", -1, EIO) ? nullptr : real(path, to);
}
int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  return file_fails("mkdir", -1, ENOSPC) ? -1 : real(path, mode);
}
int fchmod(int fd, mode_t mode) {
  NEXT(fchmod);
  return file_fails("fchmod", fd, EPERM) ? -1 : real(fd, mode);
}
int chmod(const char* path, mode_t mode) {
  NEXT(chmod);
  return file_fails("chmod", -1, EPERM) ? -1 : real(path, mode);
}
int stat(const char* path, struct stat* to) {
  NEXT(stat);
  return file_fails("stat", -1, EIO) ? -1 : real(path, to);
}
int lstat(const char* path, struct stat* to) {
  NEXT(lstat);
  return file_fails("lstat", -1, EIO) ? -1 : real(path, to);
}
int fstatat(int folder, const char* path, struct stat* to, int flags) {
  NEXT(fstatat);
  return file_fails("fstatat", folder, EIO) ? -1 : real(folder, path, to, flags);
}
int statx(int folder, const char* path, int flags, unsigned wanted, struct statx* to) {
  NEXT(statx);
  return file_fails("statx", folder, EIO) ? -1 : real(folder, path, flags, wanted, to);
}
int fstat(int fd, struct stat* to) {
  NEXT(fstat);
  return file_fails("fstat", fd, EIO) ? -1 : real(fd, to);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  NEXT(mmap);
  return file_fails("mmap", fd, ENOMEM) ? MAP_FAILED : real(at, bytes, protection, flags, fd, offset);
}
int socket(int domain, int type, int protocol) {
  NEXT(socket);
  return file_fails("socket", -1, EMFILE) ? -1 : real(domain, type, protocol);
}
int eventfd(unsigned initial, int flags) {
  NEXT(eventfd);
  return file_fails("eventfd", -1, EMFILE) ? -1 : real(initial, flags);
}
int bind(int fd, const struct sockaddr* address, socklen_t bytes) {
  NEXT(bind);
  return file_fails("bind", fd, ENOSPC) ? -1 : real(fd, address, bytes);
}
int listen(int fd, int backlog) {
  NEXT(listen);
  return file_fails("listen", fd, ENOBUFS) ? -1 : real(fd, backlog);
}
int accept4(int fd, struct sockaddr* address, socklen_t* bytes, int flags) {
  NEXT(accept4);
  return io_fails("accept4", fd, EMFILE, nullptr) ? -1 : real(fd, address, bytes, flags);
}
int connect(int fd, const struct sockaddr* address, socklen_t bytes) {
  NEXT(connect);
  return file_fails("connect", fd, EAGAIN) ? -1 : real(fd, address, bytes);
}
ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  NEXT(recv);
  return io_fails("recv", fd, ECONNRESET, &bytes) ? -1 : real(fd, to, bytes, flags);
}
ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  NEXT(send);
  return io_fails("send", fd, ENOBUFS, &bytes) ? -1 : real(fd, from, bytes, flags);
}
int poll(struct pollfd* of, nfds_t count, int limit) {
  NEXT(poll);
  return io_fails("poll", -1, ENOMEM, nullptr) ? -1 : real(of, count, limit);
}

}  // extern "C"
