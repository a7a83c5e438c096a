// host only
#include "ports/af_xdp/socket.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "ports/af_xdp/patience.h"

namespace sluice {
namespace {

constexpr uint32_t kKernelHeadroom = 256;  // what XDP leaves before every frame
constexpr uint16_t kInPieces = 1 << 4;     // XDP_USE_SG, Linux 6.6
constexpr int kMaxTxBudget = 9;            // XDP_MAX_TX_SKB_BUDGET, Linux 6.17

// Locked memory counts against a limit that is a few MiB by default; root may raise it, others up to their hard limit.
void raise_memlock() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
  if (limit.rlim_cur == RLIM_INFINITY || setrlimit(RLIMIT_MEMLOCK, &none) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_MEMLOCK, &limit);
}

}  // namespace

XskMemory::XskMemory(std::shared_ptr<FramePool> pool)
    : pool_(std::move(pool)),
      shape_(pool_->shape()),
      base_(reinterpret_cast<uint8_t*>(pool_->memory().data())),
      reciprocal_(~uint64_t{0} / shape_.stride + 1) {}

Result<std::shared_ptr<XskMemory>> XskMemory::of(const std::shared_ptr<FramePool>& pool) {
  const FrameShape& shape = pool->shape();
  if (shape.stride < 2048) return Error(fmt::format("chunks of {} bytes; AF_XDP takes 2048 at least", shape.stride));
  if (shape.headroom < kKernelHeadroom) {
    return Error(fmt::format("{} bytes of head room; AF_XDP leaves {}", shape.headroom, kKernelHeadroom));
  }
  static std::mutex mutex;
  static std::map<const FramePool*, std::weak_ptr<XskMemory>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<XskMemory>& there = all[pool.get()];
  std::shared_ptr<XskMemory> memory = there.lock();
  if (!memory) {
    memory.reset(new XskMemory(pool));
    there = memory;
  }
  return memory;
}

Result<void> XskMemory::register_at(int socket) {
  const std::span<std::byte> bytes = pool_->memory();
  xdp_umem_reg region{};
  region.addr = reinterpret_cast<uintptr_t>(bytes.data());
  region.len = bytes.size();
  region.chunk_size = piece_bytes();
  region.headroom = shape().headroom - kKernelHeadroom;
  region.flags = XDP_UMEM_UNALIGNED_CHUNK_FLAG;
  if (setsockopt(socket, SOL_XDP, XDP_UMEM_REG, &region, sizeof region) == 0) return {};
  const int code = errno;
  if (code == ENOBUFS) {
    return Error(fmt::format("AF_XDP locks the pool's {} MiB of memory, more than this user may (ulimit -l)",
                             bytes.size() >> 20),
                 "ulimit -l unlimited, or LimitMEMLOCK=infinity in its systemd unit");
  }
  return system_error(fmt::format("giving {} MiB of frames to AF_XDP", bytes.size() >> 20), code);
}

uint64_t ChunkSet::give_all(XskMemory& memory) {
  std::vector<uint8_t*> chunks;
  for (size_t i = 0; i < words_.size(); ++i) {
    for (uint64_t word = std::exchange(words_[i], 0); word != 0; word &= word - 1) {
      const uint64_t chunk = i * 64 + static_cast<unsigned>(std::countr_zero(word));
      chunks.push_back(memory.base() + chunk * memory.shape().stride);
    }
  }
  memory.pool().give(chunks);
  return chunks.size();
}

XskSocket::XskSocket(std::shared_ptr<XskMemory> memory, const Options& options)
    : receiving(memory->shape().chunks),
      sending(memory->shape().chunks),
      memory_(std::move(memory)),
      options_(options) {}

Result<FileDescriptor> XskSocket::make() {
  raise_memlock();
  FileDescriptor made(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (made) return made;
  if (errno == EAFNOSUPPORT) {
    return Error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS, Linux 5.4)",
                 "AF_PACKET works with every kernel");
  }
  return capability_error("an AF_XDP socket", errno, "CAP_NET_ADMIN,CAP_NET_RAW,CAP_BPF");
}

Result<void> XskSocket::supported() {
  auto one = make();
  if (!one) return std::move(one).error();
  return {};
}

Result<void> XskSocket::create() {
  for (const Mapping& mapping : mappings_) munmap(mapping.at, mapping.bytes);
  mappings_.clear();
  auto made = make();
  if (!made) return std::move(made).error();
  socket_ = std::move(*made);
  return map_rings();
}

Result<void> XskSocket::map_rings() {
  // The kernel wants a fill ring also of a socket that only sends.
  const uint32_t fill_entries = std::max(options_.rx_entries, 64u),
                 completion_entries = std::max(options_.tx_entries, 64u);
  for (const auto& [option, entries] : {std::pair(XDP_UMEM_FILL_RING, fill_entries),
                                        {XDP_UMEM_COMPLETION_RING, completion_entries},
                                        {XDP_RX_RING, options_.rx_entries},
                                        {XDP_TX_RING, options_.tx_entries}}) {
    if (entries != 0 && setsockopt(socket_.get(), SOL_XDP, option, &entries, sizeof entries) != 0) {
      return system_error(fmt::format("{}: a ring of {}", options_.name, entries), errno);
    }
  }
  xdp_mmap_offsets offsets{};
  socklen_t bytes = sizeof offsets;
  if (getsockopt(socket_.get(), SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &bytes) != 0 || bytes != sizeof offsets) {
    return Error("this kernel's AF_XDP has no need-wakeup flags", "it needs Linux 5.4 or later");
  }
  const auto map = [&](auto& ring, const xdp_ring_offset& at, uint32_t entries, uint64_t page_offset) {
    using Ring = std::remove_reference_t<decltype(ring)>;
    ring = Ring();
    if (entries == 0) return true;
    const size_t size = at.desc + entries * sizeof ring[0];
    void* const there = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket_.get(),
                             static_cast<off_t>(page_offset));
    if (there == MAP_FAILED) return false;
    mappings_.push_back({there, size});
    ring = Ring(static_cast<std::byte*>(there), at, entries);
    return true;
  };
  if (!map(fill, offsets.fr, fill_entries, XDP_UMEM_PGOFF_FILL_RING) ||
      !map(completion, offsets.cr, completion_entries, XDP_UMEM_PGOFF_COMPLETION_RING) ||
      !map(rx, offsets.rx, options_.rx_entries, XDP_PGOFF_RX_RING) ||
      !map(tx, offsets.tx, options_.tx_entries, XDP_PGOFF_TX_RING)) {
    return system_error(fmt::format("{}: mapping the rings", options_.name), errno);
  }
  if (options_.tx_entries >= 32) {
    // How many frames one system call sends where the kernel copies: 32 by default.
    const uint32_t budget = std::min(1024u, options_.tx_entries);
    setsockopt(socket_.get(), SOL_XDP, kMaxTxBudget, &budget, sizeof budget);
  }
  return {};
}

int XskSocket::bind_to(int shared_with, uint16_t flags) {
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_flags = flags;
  address.sxdp_ifindex = static_cast<uint32_t>(options_.ifindex);
  address.sxdp_queue_id = options_.queue;
  if (shared_with >= 0) address.sxdp_shared_umem_fd = static_cast<uint32_t>(shared_with);
  return bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

Error XskSocket::bind_error(int code) const {
  const std::string where = fmt::format("{}: queue {}", options_.name, options_.queue);
  if (code == EBUSY) return Error(where + " is in use by another AF_XDP socket", "end the run that has it");
  if (code == EINVAL && memory_->in_pieces()) {
    return Error(where + " is not there, or this kernel takes no jumbo frames by AF_XDP",
                 "they need Linux 6.6 or later; an MTU of up to 3626 does not");
  }
  if (code == EINVAL) {
    return Error(
        where + " is not there, or AF_XDP does not take it",
        fmt::format("its queues: ethtool -l {}; more of them: ethtool -L {} combined N", options_.name, options_.name));
  }
  return capability_error(where, code, "CAP_NET_ADMIN,CAP_NET_RAW,CAP_BPF");
}

// Members of a UMEM copy or do not copy alike, and a bound one is what others join: any of them, as the first may be
// closed, or its interface gone, while others go on.
Result<bool> XskSocket::bind_anew() {
  if (auto made = create(); !made) return std::move(made).error();
  const auto join = [&](bool zero_copy) {
    int code = ENOENT;
    for (const XskMemory::Member& member : memory_->members_) {
      if (member.zero_copy != zero_copy) continue;
      code = bind_to(member.socket, XDP_SHARED_UMEM);
      if (code == 0 || code == EBUSY) break;
    }
    zero_copy_ = zero_copy;
    return code;
  };
  const auto found = [&](uint16_t how) {
    zero_copy_ = how == XDP_ZEROCOPY;
    return bind_to(-1, static_cast<uint16_t>(how | XDP_USE_NEED_WAKEUP | (memory_->in_pieces() ? kInPieces : 0)));
  };
  if (options_.zero_copy && !memory_->copying_.contains(options_.ifindex)) {
    int code = join(true);
    if (code != 0 && code != EBUSY && memory_->register_at(socket_.get()).ok()) {
      code = found(XDP_ZEROCOPY);
      if (code != 0 && code != EBUSY) memory_->copying_.insert(options_.ifindex);
    }
    if (code == 0) return true;
    if (code == EBUSY) return false;
    if (auto made = create(); !made) return std::move(made).error();
  }
  int code = join(false);
  if (code != 0 && code != EBUSY) {
    if (auto registered = memory_->register_at(socket_.get()); !registered) return std::move(registered).error();
    code = found(XDP_COPY);
  }
  if (code == 0) return true;
  if (code == EBUSY) return false;
  return bind_error(code);
}

Result<std::unique_ptr<XskSocket>> XskSocket::open(const std::shared_ptr<XskMemory>& memory, const Options& options) {
  std::unique_ptr<XskSocket> made(new XskSocket(memory, options));
  const std::lock_guard lock(memory->mutex_);
  Result<bool> bound = false;
  // A socket that was closed keeps its queue for some milliseconds.
  patiently([&] {
    bound = made->bind_anew();
    return !bound.ok() || *bound;
  });
  if (!bound) return std::move(bound).error();
  if (!*bound) return made->bind_error(EBUSY);
  memory->members_.push_back({made->descriptor(), made->zero_copy_});
  return made;
}

Result<std::unique_ptr<XskSocket>> XskSocket::unbound(const std::shared_ptr<XskMemory>& memory,
                                                      const Options& options) {
  std::unique_ptr<XskSocket> made(new XskSocket(memory, options));
  if (auto created = made->create(); !created) return std::move(created).error();
  if (auto registered = memory->register_at(made->descriptor()); !registered) return std::move(registered).error();
  return made;
}

bool XskSocket::queue_is_free(int ifindex, unsigned queue) {
  auto pool = MappedFramePool::create({.chunks = 2});
  if (!pool) return false;
  auto probe =
      unbound(std::shared_ptr<XskMemory>(new XskMemory(*pool)), {.ifindex = ifindex, .queue = queue, .tx_entries = 64});
  return probe.ok() && (*probe)->bind_to(-1, XDP_COPY | XDP_USE_NEED_WAKEUP) != EBUSY;
}

XskSocket::~XskSocket() {
  {
    const std::lock_guard lock(memory_->mutex_);
    std::erase_if(memory_->members_, [&](const XskMemory::Member& one) { return one.socket == descriptor(); });
  }
  // A device may still read what it was given; what it does not take in this time (the link is down) it does not get.
  for (int i = 0; i < 100 && complete() != 0 && kick(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const Mapping& mapping : mappings_) munmap(mapping.at, mapping.bytes);
  socket_.reset();
  // So long a device may write to them.
  if (zero_copy_) patiently([&] { return queue_is_free(options_.ifindex, options_.queue); });
  receiving.give_all(*memory_);
  sending.give_all(*memory_);
}

xdp_statistics XskSocket::statistics() const {
  xdp_statistics counted{};
  socklen_t bytes = sizeof counted;
  getsockopt(socket_.get(), SOL_XDP, XDP_STATISTICS, &counted, &bytes);
  return counted;
}

uint64_t XskSocket::complete() {
  if (abandoned_) return 0;
  std::array<uint8_t*, 256> chunks;
  for (uint32_t left = completion.available(1); left != 0;) {
    const uint32_t n = std::min<uint32_t>(left, chunks.size());
    uint32_t whole = 0;
    for (uint32_t i = 0; i < n; ++i) {
      const uint64_t offset = completion[i] & XSK_UNALIGNED_BUF_ADDR_MASK;
      const uint32_t chunk = memory_->chunk_of(offset);
      if (memory_->in_pieces() && offset != uint64_t{chunk} * memory_->shape().stride) continue;
      sending.remove(chunk);
      chunks[whole++] = memory_->base() + offset;
    }
    completion.release(n);
    completed_ += n;
    memory_->pool().give({chunks.data(), whole});
    left -= n;
  }
  return sent - completed_;
}

XskSocket::Abandoned XskSocket::abandon() {
  complete();
  abandoned_ = true;
  Abandoned lost;
  for (uint32_t i = 0, n = tx.held(); i < n; ++i) lost.bytes += tx[i - n].len;
  lost.chunks = sending.give_all(*memory_);
  return lost;
}

bool XskSocket::kick() {
  for (;;) {
    const uint32_t before = tx.held();
    if (before == 0 || !tx.needs_wakeup()) return true;
    if (sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0) return true;
    if (errno == ENXIO) return false;
    // Again: it has sent its budget, and there are more.
    if (errno != EAGAIN || tx.held() == before) return true;
  }
}

}  // namespace sluice
