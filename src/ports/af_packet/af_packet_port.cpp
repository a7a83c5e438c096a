// host only
// AF_PACKET: frames by packet sockets. Works with every driver; the kernel allocates and copies for each packet.
//
// RX is a TPACKET_V3 ring: the kernel fills blocks with frames and hands over a block when it is full or has been open
// for a millisecond (packet_mmap.rst). Each frame is copied into a chunk of the pool: frames in a block have one owner,
// the block, and holding it for the slowest of thousands would stop the ring. A virtio_net_hdr before each frame says
// what its sender left to the hardware (PACKET_VNET_HDR): checksums are completed, and a frame that stands for many
// (TSO, USO, GRO) is cut into those. TX is sendmmsg from where frames lie, past the queueing disciplines where the
// driver allows (PACKET_QDISC_BYPASS).
#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/prefetch.h"
#include "net/bytes.h"
#include "ports/af_packet/adapter_stamps.h"
#include "ports/af_packet/kernel_share.h"
#include "ports/interface.h"
#include "ports/methods.h"
#include "ports/offload.h"
#include "ports/queue_parts.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#ifndef PACKET_FANOUT_FLAG_UNIQUEID
#define PACKET_FANOUT_FLAG_UNIQUEID 0x2000
#endif

namespace sluice {
namespace {

constexpr uint32_t kBlockBytes = 256 << 10;
constexpr uint32_t kFrameBytes = 2048;  // of the ring for each frame that is asked for
constexpr uint32_t kMostFrames = 1 << 20;
constexpr uint32_t kDefaultFrames = 4096;
constexpr uint32_t kSendAtOnce = 64;
constexpr uint64_t kLookNs = 10'000'000;  // how often addresses of this machine are looked at

template <typename T>
bool set(int fd, int level, int option, const T& value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// The blocks that the kernel and one queue share.
struct RxRing {
  FileDescriptor fd;
  uint8_t* blocks = nullptr;
  uint32_t count = 0;
  uint32_t at = 0;  // the block that is the kernel's next, or the queue's now

  RxRing() = default;
  RxRing(RxRing&& other) noexcept
      : fd(std::move(other.fd)), blocks(std::exchange(other.blocks, nullptr)), count(other.count), at(other.at) {}
  RxRing& operator=(RxRing&&) = delete;
  ~RxRing() {
    if (blocks != nullptr) munmap(blocks, size_t{count} * kBlockBytes);
  }
  tpacket_block_desc* block(uint32_t i) const {
    return reinterpret_cast<tpacket_block_desc*>(blocks + size_t{i} * kBlockBytes);
  }
};

Error refused(const std::string& name, const char* what, int code) {
  return capability_error(fmt::format("{}: {}", name, what), code, "CAP_NET_RAW");
}

sockaddr_ll address_of(int ifindex, uint16_t protocol) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(protocol);
  address.sll_ifindex = ifindex;
  return address;
}

// A socket with its ring that drops everything until `start`.
Result<RxRing> open_ring(const PortOptions& options, int ifindex) {
  RxRing ring;
  ring.fd = FileDescriptor(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  const int fd = ring.fd.get();
  if (fd < 0) return refused(options.name, "a packet socket", errno);
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog all{1, &drop};
  const int version = TPACKET_V3, one = 1;
  const uint32_t frames = options.rx_ring == 0 ? kDefaultFrames : options.rx_ring;
  ring.count =
      std::max<uint32_t>(4, static_cast<uint32_t>((uint64_t{frames} * kFrameBytes + kBlockBytes - 1) / kBlockBytes));
  tpacket_req3 request{};
  request.tp_block_size = kBlockBytes;
  request.tp_block_nr = ring.count;
  request.tp_frame_size = kFrameBytes;
  request.tp_frame_nr = ring.count * (kBlockBytes / kFrameBytes);
  request.tp_retire_blk_tov = 1;
  if (!set(fd, SOL_SOCKET, SO_ATTACH_FILTER, all)) return refused(options.name, "a packet filter", errno);
  if (!set(fd, SOL_PACKET, PACKET_VERSION, version)) return refused(options.name, "TPACKET_V3", errno);
  if (!set(fd, SOL_PACKET, PACKET_VNET_HDR, one)) return refused(options.name, "PACKET_VNET_HDR", errno);
  // Linux 4.20; before it a port would receive what it sends.
  if (!set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, one)) return refused(options.name, "PACKET_IGNORE_OUTGOING", errno);
  const size_t bytes = size_t{ring.count} * kBlockBytes;
  if (!set(fd, SOL_PACKET, PACKET_RX_RING, request)) {
    return refused(options.name, fmt::format("a ring for {} frames ({} MiB)", frames, bytes >> 20).c_str(), errno);
  }
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return refused(options.name, "mapping the ring", errno);
  ring.blocks = static_cast<uint8_t*>(mapped);
  const int raw = SOF_TIMESTAMPING_RAW_HARDWARE;
  if (options.hardware_timestamps && !set(fd, SOL_PACKET, PACKET_TIMESTAMP, raw))
    return refused(options.name, "PACKET_TIMESTAMP", errno);
  const sockaddr_ll address = address_of(ifindex, ETH_P_ALL);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return refused(options.name, "binding the packet socket", errno);
  }
  if (options.promiscuous) {
    packet_mreq membership{};
    membership.mr_ifindex = ifindex;
    membership.mr_type = PACKET_MR_PROMISC;
    if (!set(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership))
      return refused(options.name, "promiscuous mode", errno);
  }
  return ring;
}

class AfPacketRx final : public CopyingRx {
 public:
  // `share`: what this queue keeps up to date, or nullptr.
  AfPacketRx(RxRing& ring, const Interface& interface, std::unique_ptr<KernelShare> share,
             std::shared_ptr<FramePool> pool)
      : CopyingRx(interface, std::move(pool)), ring_(ring), share_(std::move(share)) {}
  ~AfPacketRx() override {
    // Whoever opens the queue again goes on behind this block.
    if (left_ != 0) give_block_back();
  }

  uint32_t poll(const Batch::Rows& rows, uint32_t most, uint64_t now_ns) override {
    if (share_ != nullptr && now_ns - looked_ns_ > kLookNs) {
      looked_ns_ = now_ns;
      share_->follow_addresses();
    }
    uint32_t n = 0;
    uint64_t bytes = 0;
    while (n < most) {
      if (left_ == 0 && !next_block()) break;
      uint8_t* frame = chunks_.frame();
      if (frame == nullptr) break;  // frames stay in the ring, and what no longer fits there is `missed`
      const auto* header = reinterpret_cast<const tpacket3_hdr*>(next_);
      uint32_t length = 0;
      if (!segments_.empty()) {
        length = segments_.next(frame);
      } else {
        switch (take(*header, frame, length)) {
          case Taken::kFrame:
            break;
          case Taken::kMany:
            length = segments_.next(frame);
            break;
          case Taken::kTooLong:
            counts_.too_long.add(1);
            break;
          case Taken::kInvalid:
            counts_.invalid.add(1);
            break;
        }
      }
      if (length != 0) {
        chunks_.use();
        set_row(rows, n++, frame, length, stamp_of(header->tp_status, header->tp_sec, header->tp_nsec, now_ns));
        bytes += length;
        if (!segments_.empty()) continue;  // the frame stays until it is cut
      }
      next_ += header->tp_next_offset;
      if (left_ > 1) prefetch_read(next_);
      if (--left_ == 0) give_block_back();
    }
    counts_.received(n, bytes);
    return n;
  }

  int wait_fd() const override { return ring_.fd.get(); }
  bool arm() override {
    if (left_ != 0 || filled()) return false;
    // A link that goes down leaves an error, which would wake every sleeper until somebody takes it.
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(ring_.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return !filled();
  }
  RxCounters counters() const override {
    tpacket_stats_v3 since{};
    socklen_t size = sizeof since;
    // Reading them sets them to zero; the kernel does both at once.
    if (getsockopt(ring_.fd.get(), SOL_PACKET, PACKET_STATISTICS, &since, &size) == 0) {
      missed_.fetch_add(since.tp_drops, std::memory_order_relaxed);
    }
    RxCounters counters = counts_.get();
    counters.missed = missed_.load(std::memory_order_relaxed);
    return counters;
  }

 private:
  bool filled() const {
    return (__atomic_load_n(&ring_.block(ring_.at)->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) != 0;
  }
  bool next_block() {
    while (filled()) {
      const tpacket_hdr_v1& block = ring_.block(ring_.at)->hdr.bh1;
      left_ = block.num_pkts;
      next_ = reinterpret_cast<const uint8_t*>(ring_.block(ring_.at)) + block.offset_to_first_pkt;
      if (left_ != 0) return true;
      give_block_back();
    }
    return false;
  }
  void give_block_back() {
    __atomic_store_n(&ring_.block(ring_.at)->hdr.bh1.block_status, uint32_t{TP_STATUS_KERNEL}, __ATOMIC_RELEASE);
    ring_.at = ring_.at + 1 == ring_.count ? 0 : ring_.at + 1;
  }

  enum class Taken : uint8_t {
    kFrame,    // it is written, as it was on the wire, and has `length` bytes
    kMany,     // it stands for many, which `segments_` has
    kTooLong,  // no chunk takes it
    kInvalid,  // it is no whole frame
  };
  Taken take(const tpacket3_hdr& header, uint8_t* frame, uint32_t& length) {
    const auto* from = reinterpret_cast<const uint8_t*>(&header) + header.tp_mac;
    const bool tagged = (header.tp_status & TP_STATUS_VLAN_VALID) != 0;
    const uint32_t tag = tagged ? 4 : 0, bytes = header.tp_snaplen;
    if (header.tp_len != bytes || bytes < 14) return Taken::kInvalid;
    VnetHeader left;
    std::memcpy(&left, from - sizeof left, sizeof left);
    const bool many = left.segmentation != VnetHeader::kNotSegmented;
    if (!many && bytes + tag > room_) return Taken::kTooLong;
    uint8_t* to = frame;
    if (many && tagged) {
      merged_.resize(bytes + tag);
      to = merged_.data();
    }
    if (tagged) {
      std::memcpy(to, from, 12);
      store_be16(to + 12, (header.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0 ? header.hv1.tp_vlan_tpid : 0x8100);
      store_be16(to + 14, static_cast<uint16_t>(header.hv1.tp_vlan_tci));
      std::memcpy(to + 16, from + 12, bytes - 12);
    } else if (!many) {
      std::memcpy(to, from, bytes);
    }
    left.checksum_start = static_cast<uint16_t>(left.checksum_start + tag);
    // Block and `merged_` stay until the last segment is taken.
    if (many) return segments_.begin(tagged ? to : from, bytes + tag, left, room_) ? Taken::kMany : Taken::kTooLong;
    if ((left.flags & VnetHeader::kNeedsChecksum) != 0 &&
        !complete_checksum(to, bytes + tag, left.checksum_start, left.checksum_offset)) {
      return Taken::kInvalid;
    }
    length = bytes + tag;
    return Taken::kFrame;
  }

  RxRing& ring_;
  const std::unique_ptr<KernelShare> share_;
  uint64_t looked_ns_ = 0;
  uint32_t left_ = 0;              // frames in its block
  const uint8_t* next_ = nullptr;  // of them
  Segments segments_;              // of the frame at `next_`
  std::vector<uint8_t> merged_;    // that frame, where a tag had to be put back
  mutable std::atomic<uint64_t> missed_{0};
};

Result<FileDescriptor> open_sender(const PortOptions& options, int ifindex) {
  FileDescriptor fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!fd) return refused(options.name, "a packet socket", errno);
  const int one = 1;
  // What a packet of the ring's takes of the socket's memory, its skb included.
  const int room = static_cast<int>((options.tx_ring == 0 ? kDefaultFrames : options.tx_ring) * (kFrameBytes / 2));
  if (!set(fd.get(), SOL_SOCKET, SO_SNDBUFFORCE, room)) set(fd.get(), SOL_SOCKET, SO_SNDBUF, room);
  set(fd.get(), SOL_PACKET, PACKET_QDISC_BYPASS, one);
  const sockaddr_ll address = address_of(ifindex, 0);  // protocol 0: it receives nothing
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return refused(options.name, "binding the packet socket", errno);
  }
  return fd;
}

class AfPacketTx final : public CopyingTx {
 public:
  explicit AfPacketTx(int fd) : fd_(fd) {
    for (uint32_t i = 0; i < kSendAtOnce; ++i) {
      messages_[i].msg_hdr.msg_iov = &parts_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  uint32_t send(std::span<const TxFrame> frames) override {
    const auto all = static_cast<uint32_t>(frames.size());
    uint32_t taken = 0;
    while (taken < all) {
      const uint32_t n = std::min(kSendAtOnce, all - taken);
      for (uint32_t i = 0; i < n; ++i) parts_[i] = {frames[taken + i].data, frames[taken + i].bytes};
      const int sent = sendmmsg(fd_, messages_.data(), n, MSG_DONTWAIT);
      if (sent > 0) {
        uint64_t bytes = 0;
        for (int i = 0; i < sent; ++i) bytes += parts_[static_cast<size_t>(i)].iov_len;
        counts_.sent(static_cast<uint64_t>(sent), bytes);
        taken += static_cast<uint32_t>(sent);
        continue;  // where fewer were sent the next call says why
      }
      // The socket's memory or the NIC's ring is full, or there is no carrier: the kernel took nothing.
      if (no_room(errno)) {
        counts_.full.add(all - taken);
        return taken;
      }
      switch (errno) {
        case EINTR:
          break;
        case ENETDOWN:
        case ENXIO:
        case ENODEV:
          counts_.failed.add(all - taken);
          return all;
        default:  // this frame: larger than the MTU, or no frame
          counts_.failed.add(1);
          ++taken;
      }
    }
    return taken;
  }

 private:
  const int fd_;
  std::array<iovec, kSendAtOnce> parts_{};
  std::array<mmsghdr, kSendAtOnce> messages_{};
};

class AfPacketPort final : public Port {
 public:
  AfPacketPort(PortOptions options, Interface interface, std::shared_ptr<FramePool> pool)
      : options_(std::move(options)), interface_(std::move(interface)), pool_(std::move(pool)) {
    facts_.method = "af_packet";
    facts_.mode = "TPACKET_V3";
    facts_.rx_queues = options_.receives ? options_.queues : 0;
    facts_.tx_queues = options_.sends ? options_.queues : 0;
    facts_.hardware_timestamps = options_.hardware_timestamps;
  }

  // All sockets are opened here: in the caller's network namespace, and before one of them receives, so that each flow
  // has one queue from its first packet on.
  Result<void> open() {
    for (unsigned i = 0; i < facts_.tx_queues; ++i) {
      auto sender = open_sender(options_, interface_.index());
      if (!sender) return std::move(sender).error();
      senders_.push_back(std::move(*sender));
    }
    if (!options_.receives) return {};
    if (options_.hardware_timestamps) {
      auto stamps = AdapterStamps::take(options_.name);
      if (!stamps) return std::move(stamps).error();
      stamps_ = std::move(*stamps);
      facts_.mode += ", timestamps of the adapter";
    }
    rings_.reserve(options_.queues);
    for (unsigned i = 0; i < options_.queues; ++i) {
      auto ring = open_ring(options_, interface_.index());
      if (!ring) return std::move(ring).error();
      rings_.push_back(std::move(*ring));
    }
    if (options_.queues > 1) {
      if (auto joined = join_fanout(); !joined) return joined;
    }
    // Without it the port works, but the kernel may forward the same packets.
    if (auto share = KernelShare::take(interface_, options_.kernel_gets_own); share) {
      share_ = std::move(*share);
    } else {
      facts_.mode += fmt::format(", kernel also receives ({})", share.error().message);
    }
    for (const RxRing& ring : rings_) {
      const int none = 0;
      set(ring.fd.get(), SOL_SOCKET, SO_DETACH_FILTER, none);
    }
    return {};
  }

  Result<std::unique_ptr<RxQueue>> open_rx(unsigned queue) override {
    if (queue >= rings_.size()) return no_queue(queue, "RX", facts_.rx_queues);
    // With its queue the kernel's packets went back to it.
    if (queue == 0 && share_ == nullptr && began_) {
      if (auto share = KernelShare::take(interface_, options_.kernel_gets_own); share) share_ = std::move(*share);
    }
    began_ |= queue == 0;
    return std::unique_ptr<RxQueue>(
        std::make_unique<AfPacketRx>(rings_[queue], interface_, queue == 0 ? std::move(share_) : nullptr, pool_));
  }

  Result<std::unique_ptr<TxQueue>> open_tx(unsigned queue) override {
    if (queue >= facts_.tx_queues) return no_queue(queue, "TX", facts_.tx_queues);
    return std::unique_ptr<TxQueue>(std::make_unique<AfPacketTx>(senders_[queue].get()));
  }

  PortFacts facts() const override {
    PortFacts facts = facts_;
    facts.name = options_.name;
    interface_.describe(facts);
    return facts;
  }

 private:
  Error no_queue(unsigned queue, const char* kind, unsigned there_are) const {
    return Error(fmt::format("{}: {} queue {}; there are {}", options_.name, kind, queue, there_are));
  }

  // Packets of a flow to one socket, by the kernel's hash of both directions alike.
  Result<void> join_fanout() {
    uint32_t group = 0;
    for (size_t i = 0; i < rings_.size(); ++i) {
      const int fd = rings_[i].fd.get();
      const uint32_t how = i == 0 ? PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_UNIQUEID : PACKET_FANOUT_HASH;
      const uint32_t argument = group | how << 16;
      if (!set(fd, SOL_PACKET, PACKET_FANOUT, argument)) return refused(options_.name, "PACKET_FANOUT", errno);
      if (i != 0) continue;
      uint32_t given = 0;
      socklen_t size = sizeof given;
      if (getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &given, &size) != 0) {
        return refused(options_.name, "PACKET_FANOUT", errno);
      }
      group = given & 0xffff;
    }
    return {};
  }

  PortOptions options_;
  Interface interface_;
  std::shared_ptr<FramePool> pool_;
  std::unique_ptr<KernelShare> share_;  // until its first queue has it
  bool began_ = false;                  // that was opened
  std::unique_ptr<AdapterStamps> stamps_;
  std::vector<RxRing> rings_;
  std::vector<FileDescriptor> senders_;
  PortFacts facts_;
};

}  // namespace

Result<std::unique_ptr<Port>> open_af_packet_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool) {
  if (options.rx_ring > kMostFrames || options.tx_ring > kMostFrames) {
    return Error(fmt::format("{}: rings of {} and {} frames; af_packet takes up to {}", options.name, options.rx_ring,
                             options.tx_ring, kMostFrames));
  }
  auto interface = Interface::find(options.name);
  if (!interface) return std::move(interface).error();
  PortFacts facts;
  interface->describe(facts);
  if (auto fits = check_frames_fit(options.name, facts.mtu, pool->shape()); !fits) return std::move(fits).error();
  auto port = std::make_unique<AfPacketPort>(options, std::move(*interface), pool);
  if (auto opened = port->open(); !opened) return std::move(opened).error();
  return std::unique_ptr<Port>(std::move(port));
}

void examine_af_packet(MethodHere& here) {
  need_capabilities(here, {capability::kRaw});
  if (const int code = try_socket(AF_PACKET, SOCK_RAW); code != 0) {
    lack(here, fmt::format("packet sockets: {}", std::strerror(code)),
         code == EAFNOSUPPORT ? "sudo modprobe af_packet" : "run it as root");
  }
  // It works without, but then the kernel forwards the same packets.
  if (here.lacks.empty()) {
    MethodHere more = here;
    need_capabilities(more, {capability::kRaw, capability::kAdmin, capability::kBpf});
    here.mend = more.mend;
  }
}

}  // namespace sluice
