// host only
#include "ports/dpdk/module/eal.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/scope_exit.h"
#include "base/thread.h"

namespace sluice::dpdk {

namespace {

// --- log ---

struct Log {
  std::mutex mutex;
  DpdkHost host{};
  std::string line;  // begun, not ended
  bool collecting = false;
  std::vector<std::pair<LogLevel, std::string>> collected;
};
// Never destroyed: DPDK's threads may log while the process ends.
Log& the_log() {
  static auto* log = new Log;
  return *log;
}

LogLevel level_of(int level) {
  if (level <= static_cast<int>(RTE_LOG_ERR)) return LogLevel::kError;
  if (level == static_cast<int>(RTE_LOG_WARNING)) return LogLevel::kWarning;
  // What DPDK finds notable is how it started.
  return level < static_cast<int>(RTE_LOG_DEBUG) ? LogLevel::kDebug : LogLevel::kTrace;
}

ssize_t take_log(void*, const char* text, size_t bytes) {
  Log& log = the_log();
  const LogLevel level = level_of(rte_log_cur_msg_loglevel());
  const std::lock_guard lock(log.mutex);
  for (const char c : std::string_view(text, bytes)) {
    if (c != '\n') {
      log.line += c;
      continue;
    }
    if (log.line.empty()) continue;
    if (log.collecting) {
      log.collected.emplace_back(level, std::move(log.line));
    } else {
      log.host.log(level, "DPDK: " + log.line);
    }
    log.line.clear();
  }
  return static_cast<ssize_t>(bytes);
}

// --- threads ---

struct ThreadEnds {
  std::mutex mutex;
  std::map<const void*, std::function<void(unsigned)>> flush;
};
ThreadEnds& thread_ends() {
  static auto* ends = new ThreadEnds;
  return *ends;
}

// A thread's lcore number, from its first use of DPDK to its end.
struct Entered {
  bool registered = false;
  Entered() { registered = rte_thread_register() == 0; }
  ~Entered() {
    if (!registered) return;
    {
      ThreadEnds& ends = thread_ends();
      const std::lock_guard lock(ends.mutex);
      for (auto& [owner, flush] : ends.flush) flush(rte_lcore_id());
    }
    rte_thread_unregister();
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
};

// --- start ---

// Whether a device would see physical addresses: one that is driven without an IOMMU.
bool devices_need_physical_addresses() {
  char unsafe = 'N';
  std::ifstream("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") >> unsafe;
  if (unsafe == 'Y') return true;
  std::error_code none;
  for (const char* driver : {"uio_pci_generic", "igb_uio"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::string("/sys/bus/pci/drivers/") + driver, none)) {
      // A device's address; the rest are the driver's files.
      if (entry.path().filename().string().find(':') != std::string::npos) return true;
    }
  }
  return false;
}

// Bytes of free huge pages of all sizes.
uint64_t free_huge_pages() {
  uint64_t bytes = 0;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", failed)) {
    unsigned long kilobytes = 0;
    uint64_t free = 0;
    if (std::sscanf(entry.path().filename().c_str(), "hugepages-%lukB", &kilobytes) != 1) continue;
    std::ifstream(entry.path() / "free_hugepages") >> free;
    bytes += free * kilobytes * 1024;
  }
  return bytes;
}

Result<Eal> start(uint64_t bytes) {
  std::vector<std::string> more;
  if (const char* text = std::getenv("SLUICE_DPDK_EAL"); text != nullptr) {
    std::istringstream words(text);
    for (std::string word; words >> word;) more.push_back(word);
  }
  const auto says = [&](std::string_view option) {
    for (const std::string& word : more) {
      if (word.starts_with(option)) return true;
    }
    return false;
  };

  // Rings, tables and the drivers' own.
  constexpr uint64_t kBesides = uint64_t{64} << 20;
  Eal eal;
  eal.huge_pages = free_huge_pages() >= bytes + kBesides && !says("--no-huge");
  // Of the caller's processors, as one lcore: its thread is not bound to one of them.
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string processors;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) processors += fmt::format("{}{}", processors.empty() ? "" : ",", i);
    }
  }
  std::vector<std::string> words = {"sluice", "--no-telemetry", fmt::format("--file-prefix=sluice-{}", getpid())};
  if (!processors.empty()) words.push_back(fmt::format("--lcores=0@({})", processors));
  // A device that is none: DPDK takes no PCI device at its start, but each when it is asked for.
  if (!says("-a") && !says("--allow") && !says("-b") && !says("--block")) {
    words.insert(words.end(), {"-a", "0000:00:00.0"});
  }
  if (eal.huge_pages) {
    words.emplace_back("--in-memory");
    if (!says("--iova-mode") && !devices_need_physical_addresses()) words.emplace_back("--iova-mode=va");
  } else {
    words.emplace_back("--no-shconf");
    if (!says("--no-huge")) words.emplace_back("--no-huge");
    if (!says("-m")) words.insert(words.end(), {"-m", "512"});
  }
  words.insert(words.end(), more.begin(), more.end());

  std::vector<char*> arguments;
  arguments.reserve(words.size());
  for (std::string& word : words) arguments.push_back(word.data());
  if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) {
    return Error(fmt::format("DPDK does not start: {}", rte_strerror(rte_errno)));
  }
  // Without shared configuration nothing is in it.
  std::error_code ignored;
  std::filesystem::remove(rte_eal_get_runtime_dir(), ignored);
  uint16_t port = 0;
  RTE_ETH_FOREACH_DEV(port) {
    char name[RTE_ETH_NAME_MAX_LEN];
    if (rte_eth_dev_get_name_by_port(port, name) == 0) eal.probed.emplace_back(name);
  }
  return eal;
}

}  // namespace

Result<Eal> start_eal(const DpdkHost& host, uint64_t bytes) {
  static auto* started = new std::optional<Result<Eal>>;
  static pid_t process = 0;
  if (*started) {
    // Its threads are the parent's, and so is its memory.
    if (process != getpid())
      return Error("DPDK was started before this process was forked, and works in its parent only");
    return **started;
  }
  process = getpid();
  the_log().host = host;
  cookie_io_functions_t functions{};
  functions.write = take_log;
  // Never closed: see the_log().
  FILE* stream = fopencookie(nullptr, "w", functions);
  if (stream == nullptr || rte_openlog_stream(stream) != 0) return Error("DPDK does not start: no stream for its log");
  std::string said;
  Eal eal;
  auto done = run_aside(
      [&]() -> Result<void> {
        auto got = start(bytes);
        if (!got) return std::move(got).error();
        eal = std::move(*got);
        return {};
      },
      said);
  if (done) {
    started->emplace(std::move(eal));
  } else {
    Error error = std::move(done).error();
    if (!said.empty()) error.message += ": " + said;
    started->emplace(std::move(error));
  }
  return **started;
}

Result<void> run_aside(const std::function<Result<void>()>& f, std::string& said) {
  Log& log = the_log();
  {
    const std::lock_guard lock(log.mutex);
    log.collecting = true;
    log.collected.clear();
  }
  Result<void> result;
  {
    // The new thread has this thread's mask.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const ScopeExit restore([&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); });
    auto thread = start_thread([&] { result = f(); });
    if (!thread) result = std::move(thread).error();
  }
  const std::lock_guard lock(log.mutex);
  log.collecting = false;
  for (const auto& [level, line] : log.collected) {
    // What went wrong on the way to success is DPDK's affair.
    if (result.ok()) {
      log.host.log(std::min(level, LogLevel::kDebug), "DPDK: " + line);
    } else if (level >= LogLevel::kWarning) {
      said += (said.empty() ? "" : "; ") + line;
    }
  }
  log.collected.clear();
  return result;
}

void enter_thread() {
  if (rte_lcore_id() != LCORE_ID_ANY) return;
  static thread_local Entered entered;
}

void at_thread_end(const void* owner, std::function<void(unsigned)> flush) {
  ThreadEnds& ends = thread_ends();
  const std::lock_guard lock(ends.mutex);
  ends.flush[owner] = std::move(flush);
}

void forget_thread_end(const void* owner) {
  ThreadEnds& ends = thread_ends();
  const std::lock_guard lock(ends.mutex);
  ends.flush.erase(owner);
}

}  // namespace sluice::dpdk
