// host only
// TAP: an interface of the kernel whose other end is this process. A system call a packet (tuntap.rst).
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "ports/interface.h"
#include "ports/methods.h"
#include "ports/netlink/link_drops.h"
#include "ports/queue_parts.h"

namespace sluice {
namespace {

constexpr const char* kTapDevice = "/dev/net/tun";

// Opens one queue. `many`: as one of several.
Result<FileDescriptor> open_tap_queue(const std::string& name, bool many) {
  FileDescriptor fd(open(kTapDevice, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd) {
    Error error = capability_error(kTapDevice, errno, "CAP_NET_ADMIN");
    if (errno == ENOENT || errno == ENODEV) {
      error.hint = "sudo modprobe tun; in a container: --device /dev/net/tun";
    }
    return error;
  }
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), std::min(name.size(), sizeof request.ifr_name - 1));
  // Without a vnet header the kernel completes checksums and cuts large TCP packets itself.
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | (many ? IFF_MULTI_QUEUE : 0));
  if (ioctl(fd.get(), TUNSETIFF, &request) != 0) {
    const int code = errno;
    Error error = capability_error(fmt::format("TAP interface '{}'", name), code, "CAP_NET_ADMIN");
    if (code == EBUSY) error.hint = "another process has it";
    if (code == EINVAL)
      error.hint = fmt::format("an interface '{}' of another kind is there: ip -d link show {}", name, name);
    return error;
  }
  return fd;
}

class TapRx final : public CopyingRx {
 public:
  TapRx(int fd, const Interface& interface, LinkDrops* drops, std::shared_ptr<FramePool> pool)
      : CopyingRx(interface, std::move(pool)), fd_(fd), drops_(drops) {}

  uint32_t poll(const Batch::Rows& rows, uint32_t most, uint64_t now_ns) override {
    uint32_t n = 0;
    uint64_t bytes = 0;
    while (n < most) {
      uint8_t* frame = chunks_.frame();
      if (frame == nullptr) break;
      // One byte more than fits tells a frame that was cut; it goes into the tail room.
      const ssize_t length = read(fd_, frame, room_ + 1);
      if (length < 0) {
        if (errno == EINTR) continue;
        break;
      }
      if (length < 14 || length > static_cast<ssize_t>(room_)) {
        (length < 14 ? counts_.invalid : counts_.too_long).add(1);
        continue;
      }
      chunks_.use();
      set_row(rows, n++, frame, static_cast<uint32_t>(length), now_ns);
      bytes += static_cast<uint64_t>(length);
    }
    counts_.received(n, bytes);
    return n;
  }
  int wait_fd() const override { return fd_; }
  bool arm() override { return silent(fd_); }
  RxCounters counters() const override {
    RxCounters counters = counts_.get();
    if (drops_ != nullptr) counters.missed = drops_->tx_dropped();
    return counters;
  }

 private:
  const int fd_;
  LinkDrops* const drops_;
};

class TapTx final : public CopyingTx {
 public:
  explicit TapTx(int fd) : fd_(fd) {}

  uint32_t send(std::span<const TxFrame> frames) override {
    return send_each(frames, [this](const TxFrame& frame) {
      if (write(fd_, frame.data, frame.bytes) >= 0) return Sent::kYes;
      if (errno == EINTR) return Sent::kAgain;
      if (no_room(errno)) return Sent::kFull;
      // Down, or gone.
      return errno == EIO || errno == EBADFD || errno == ENETDOWN ? Sent::kDown : Sent::kFailed;
    });
  }

 private:
  const int fd_;
};

class TapPort final : public Port {
 public:
  TapPort(PortOptions options, std::vector<FileDescriptor> queues, Interface interface, LinkDrops drops, bool was_there,
          std::shared_ptr<FramePool> pool)
      : options_(std::move(options)),
        queues_(std::move(queues)),
        interface_(std::move(interface)),
        drops_(std::move(drops)),
        was_there_(was_there),
        pool_(std::move(pool)) {}

  Result<std::unique_ptr<RxQueue>> open_rx(unsigned queue) override {
    if (!options_.receives || queue >= queues_.size()) return no_queue(queue, "RX");
    return std::unique_ptr<RxQueue>(
        std::make_unique<TapRx>(queues_[queue].get(), interface_, queue == 0 ? &drops_ : nullptr, pool_));
  }
  Result<std::unique_ptr<TxQueue>> open_tx(unsigned queue) override {
    if (!options_.sends || queue >= queues_.size()) return no_queue(queue, "TX");
    return std::unique_ptr<TxQueue>(std::make_unique<TapTx>(queues_[queue].get()));
  }
  PortFacts facts() const override {
    PortFacts facts;
    facts.name = options_.name;
    facts.method = "tap";
    facts.mode = was_there_ ? "attached" : "created";
    facts.rx_queues = options_.receives ? options_.queues : 0;
    facts.tx_queues = options_.sends ? options_.queues : 0;
    interface_.describe(facts);
    return facts;
  }

 private:
  Error no_queue(unsigned queue, const char* kind) const {
    return Error(fmt::format("{}: {} queue {}; there are {}", options_.name, kind, queue, queues_.size()));
  }

  PortOptions options_;
  std::vector<FileDescriptor> queues_;
  Interface interface_;
  LinkDrops drops_;
  bool was_there_;
  std::shared_ptr<FramePool> pool_;
};

}  // namespace

Result<std::unique_ptr<Port>> open_tap_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool) {
  if (options.name.empty() || options.name.size() >= IFNAMSIZ) {
    return Error(fmt::format("'{}' is no name of an interface: those have 1 to 15 characters", options.name));
  }
  if (options.rx_ring != 0 || options.tx_ring != 0) {
    return Error(fmt::format("{}: a TAP interface has no rings; its queue is: ip link set {} txqueuelen N",
                             options.name, options.name));
  }
  const bool was_there = if_nametoindex(options.name.c_str()) != 0;
  std::vector<FileDescriptor> queues;
  for (unsigned i = 0; i < options.queues; ++i) {
    auto queue = open_tap_queue(options.name, options.queues > 1);
    // An interface that was made for several queues takes no other kind, not even one queue.
    if (!queue && was_there && options.queues == 1) {
      if (auto again = open_tap_queue(options.name, true); again) queue = std::move(again);
    }
    if (!queue) return std::move(queue).error();
    queues.push_back(std::move(*queue));
  }
  auto interface = Interface::find(options.name);
  if (!interface) return std::move(interface).error();
  // One that was there before is its owner's to set up or down.
  if (!was_there) {
    if (auto up = interface->set_up(); !up) return std::move(up).error();
  }
  PortFacts facts;
  interface->describe(facts);
  if (auto fits = check_frames_fit(options.name, facts.mtu, pool->shape()); !fits) return std::move(fits).error();
  auto drops = LinkDrops::open(interface->index());
  if (!drops) return std::move(drops).error();
  return std::unique_ptr<Port>(
      std::make_unique<TapPort>(options, std::move(queues), std::move(*interface), std::move(*drops), was_there, pool));
}

void examine_tap(MethodHere& here) {
  if (access("/dev/net/tun", F_OK) != 0)
    lack(here, "/dev/net/tun", "sudo modprobe tun; in a container: --device /dev/net/tun");
  if (access("/dev/net/tun", R_OK | W_OK) != 0) {
    lack(here, fmt::format("/dev/net/tun: {}", std::strerror(errno)), "sudo chmod 0666 /dev/net/tun");
  }
  need_capabilities(here, {capability::kAdmin});
}

}  // namespace sluice
