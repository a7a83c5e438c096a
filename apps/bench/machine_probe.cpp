// The loops of machine_probe.h. host only
#include "machine_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>
#include <optional>
#include <span>
#include <thread>

#include "base/thread.h"
#include "bench.h"
#include "control/descriptor.h"
#include "generate/random.h"

namespace sluice::app {

// The work of one probe is divided by this: a build with sanitizers measures these and not the machine, its loops take
// thirty times as long, and the test suites start hundreds of them.
#if defined(SLUICE_SANITIZED)
constexpr size_t kDivisor = 32;
#else
constexpr size_t kDivisor = 1;
#endif

// A random cycle through all lines: each load waits for the one before, and no prefetcher knows the next.
struct MachineProbes::Lines {
  struct alignas(64) Line {
    uint64_t next = 0, filler[7] = {};
  };

  explicit Lines(size_t n) : lines(n) {
    // Sattolo's shuffle: one cycle of all lines (Information Processing Letters 22:6, 1986).
    for (size_t i = 0; i < n; ++i) lines[i].next = i;
    Random random(1);
    for (size_t i = n - 1; i > 0; --i) std::swap(lines[i].next, lines[random.below(i)].next);
  }

  void follow(size_t steps) {
    uint64_t at = position;
    for (size_t i = 0; i < steps; ++i) at = lines[at].next;
    asm volatile("" : "+r"(at));
    position = at;
  }

  std::vector<Line> lines;
  uint64_t position = 0;
};

namespace {

constexpr size_t kSlices = 9;
constexpr size_t kCacheLines = 4096, kMemoryLines = (size_t{2} << 20) / kDivisor;
constexpr size_t kStepsPerSlice = (size_t{1} << 20) / kDivisor;

// Seconds of the median slice.
template <typename Slice>
double median_slice(Slice slice) {
  std::vector<double> seconds;
  for (size_t i = 0; i < kSlices; ++i) {
    const Stopwatch watch;
    slice();
    seconds.push_back(watch.seconds());
  }
  return median(seconds);
}

// A chain of multiplications, each of which waits for the one before.
void multiply(size_t steps) {
  uint64_t x = 1;
  for (size_t i = 0; i < steps; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    asm volatile("" : "+r"(x));
  }
}

double read_rate(std::span<const uint64_t> words) {
  constexpr size_t kWords = (size_t{16} << 20) / sizeof(uint64_t) / kDivisor;
  size_t at = 0;
  const double seconds = median_slice([&] {
    uint64_t sum[4] = {};
    for (const size_t end = at + kWords; at < end; at += 4)
      for (size_t k = 0; k < 4; ++k) sum[k] += words[at + k];
    uint64_t all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    asm volatile("" : "+r"(all));
    if (at + kWords > words.size()) at = 0;
  });
  return static_cast<double>(kWords * sizeof(uint64_t)) / seconds * 1e-9;
}

// The same work on every core at once, until the last has finished: nothing where a thread cannot be started.
std::optional<double> all_cores(unsigned cores) {
  constexpr size_t kRounds = 5;
  std::vector<std::vector<double>> seconds(cores, std::vector<double>(kRounds));
  // Threads wait for it until all of them are there: 1, or some cannot start: -1.
  std::atomic<int> go = 0;
  std::barrier<> together(static_cast<std::ptrdiff_t>(cores));
  std::vector<std::jthread> threads;  // joined first
  for (unsigned i = 0; i < cores; ++i) {
    Result<std::jthread> one = start_thread([&, i] {
      go.wait(0);
      if (go.load() < 0) return;
      for (size_t round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        const Stopwatch watch;
        multiply(2 * kStepsPerSlice);
        seconds[i][round] = watch.seconds();
      }
    });
    if (!one.ok()) {
      go = -1;
      go.notify_all();
      return std::nullopt;
    }
    threads.push_back(std::move(one).value());
  }
  go = 1;
  go.notify_all();
  threads.clear();
  std::vector<double> slowest;
  for (size_t round = 0; round < kRounds; ++round) {
    double most = 0;
    for (const auto& one : seconds) most = std::max(most, one[round]);
    slowest.push_back(most);
  }
  return median(slowest) / (2 * kStepsPerSlice) * 1e9;
}

// A byte to a thread that sleeps, and one back: half of the time is one wake-up.
std::optional<double> wake_up() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return std::nullopt;
  const Descriptor here(pair[0]);
  constexpr size_t kTrips = 128 / kDivisor;
  const Descriptor there(pair[1]);
  const Result<std::jthread> other = start_thread([fd = there.get()] {
    char byte = 0;
    while (::read(fd, &byte, 1) == 1 && ::write(fd, &byte, 1) == 1) {
    }
  });
  if (!other.ok()) return std::nullopt;
  bool good = true;
  const double seconds = median_slice([&] {
    char byte = 1;
    for (size_t i = 0; i < kTrips && good; ++i)
      good = ::write(here.get(), &byte, 1) == 1 && ::read(here.get(), &byte, 1) == 1;
  });
  ::shutdown(here.get(), SHUT_RDWR);
  return good ? std::optional(seconds / (2 * kTrips) * 1e9) : std::nullopt;
}

// 64 bytes by UDP to this thread's other socket.
std::optional<double> loopback_packet() {
  const Descriptor to(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      from(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  // A datagram that never comes ends the probe, not the suite.
  const timeval limit{0, 100'000};
  if (to.get() < 0 || from.get() < 0 || ::bind(to.get(), any, size) != 0 || ::getsockname(to.get(), any, &size) != 0 ||
      ::connect(from.get(), any, size) != 0 ||
      ::setsockopt(to.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0)
    return std::nullopt;
  constexpr size_t kPackets = 512 / kDivisor;
  bool good = true;
  const double seconds = median_slice([&] {
    char bytes[64] = {};
    for (size_t i = 0; i < kPackets && good; ++i)
      good = ::send(from.get(), bytes, sizeof(bytes), 0) == sizeof(bytes) &&
             ::recv(to.get(), bytes, sizeof(bytes), 0) == sizeof(bytes);
  });
  return good ? std::optional(seconds / kPackets * 1e9) : std::nullopt;
}

}  // namespace

const std::vector<ProbeKind>& probe_kinds() {
  static const std::vector<ProbeKind> all = {{"arithmetic", "ns"},    {"cache", "ns"},       {"memory", "ns"},
                                             {"bandwidth", "GB/s"},   {"system-call", "ns"}, {"all-cores", "ns", true},
                                             {"wake-up", "ns", true}, {"packet", "ns", true}};
  return all;
}

MachineProbes::MachineProbes(unsigned cores)
    : cache_(std::make_unique<Lines>(kCacheLines)),
      memory_(std::make_unique<Lines>(kMemoryLines)),
      cores_(std::clamp(cores, 1u, 256u)) {}

MachineProbes::~MachineProbes() = default;

std::map<std::string, double> MachineProbes::take(ProbeSet set) {
  constexpr size_t kCacheSteps = (1 << 18) / kDivisor, kMemorySteps = (1 << 14) / kDivisor,
                   kCalls = (1 << 13) / kDivisor;
  std::map<std::string, double> all;
  const auto per_step = [&](const char* name, size_t steps, auto&& slice) {
    all[name] = median_slice(slice) / static_cast<double>(steps) * 1e9;
  };
  per_step("arithmetic", kStepsPerSlice, [] { multiply(kStepsPerSlice); });
  cache_->follow(kCacheLines);
  per_step("cache", kCacheSteps, [&] { cache_->follow(kCacheSteps); });
  per_step("memory", kMemorySteps, [&] { memory_->follow(kMemorySteps); });
  all["bandwidth"] = read_rate({reinterpret_cast<const uint64_t*>(memory_->lines.data()),
                                memory_->lines.size() * sizeof(Lines::Line) / sizeof(uint64_t)});
  per_step("system-call", kCalls, [] {
    for (size_t i = 0; i < kCalls; ++i) ::syscall(SYS_getppid);
  });
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value && *value > 0) all[name] = *value;
  };
  if (set >= ProbeSet::kCores) add("all-cores", all_cores(cores_));
  if (set >= ProbeSet::kLive) {
    add("wake-up", wake_up());
    add("packet", loopback_packet());
  }
  return all;
}

}  // namespace sluice::app
