// host only
#include "ports/methods.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/prefetch.h"
#include "net/link.h"
#include "ports/af_xdp/program.h"
#include "ports/af_xdp/socket.h"
#include "ports/offload.h"
#include "ports/queue_parts.h"

namespace sluice {
namespace {

constexpr uint32_t kRxRing = 4096, kTxRing = 2048;

// What is asked of a device by ioctl. False: it has no such thing.
template <typename Question>
bool ask_device(const std::string& name, uint32_t command, Question& question) {
  const FileDescriptor control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, name.c_str(), std::min(name.size() + 1, sizeof request.ifr_name));
  question.cmd = command;
  request.ifr_data = reinterpret_cast<char*>(&question);
  return ioctl(control.get(), SIOCETHTOOL, &request) == 0;
}

// Whether what this device receives may come from a sender on this machine, or on its host, who leaves checksums to
// devices: one without hardware.
bool leaves_checksums(const std::string& name) {
  ethtool_drvinfo info{};
  if (!ask_device(name, ETHTOOL_GDRVINFO, info)) return true;
  const std::string bus(info.bus_info, strnlen(info.bus_info, sizeof info.bus_info));
  return bus.find(':') == std::string::npos || std::strcmp(info.driver, "virtio_net") == 0;
}

uint64_t coarse_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1'000'000;
}

// What a port and its queues share. Queues of the kernel's are opened with the port, so that its errors come then.
struct Device {
  Interface interface;
  std::string name;
  PortOptions options;
  std::shared_ptr<XskMemory> memory;
  FileDescriptor promiscuous{};  // as long as this is open
  std::optional<XdpProgram> program;
  std::vector<std::unique_ptr<XskSocket>> sockets;
  bool completes_checksums = false;
  std::vector<uint8_t> rx_open, tx_open;
};

class XdpRx final : public RxQueue {
 public:
  XdpRx(Device& device, unsigned queue)
      : device_(device),
        queue_(queue),
        socket_(*device.sockets[queue]),
        memory_(socket_.memory()),
        room_(memory_.shape().room()),
        level_(std::min(socket_.fill.entries(), std::max(64u, memory_.shape().chunks / (4 * device.options.queues)))),
        completes_checksums_(device.completes_checksums && !socket_.zero_copy()) {
    done_with_.reserve(socket_.rx.entries());
  }
  ~XdpRx() override {
    device_.program->clear_socket(queue_);
    device_.rx_open[queue_] = 0;
    memory_.pool().give(aside_);
    if (head_ != nullptr) memory_.pool().give(std::array{head_});
  }
  // Frames come from here on.
  Result<void> start() {
    refill();
    return device_.program->set_socket(queue_, socket_.descriptor());
  }

  uint32_t poll(const Batch::Rows& rows, uint32_t most, uint64_t now_ns) override {
    const uint32_t came = std::min(socket_.rx.available(most), most);
    if (came == 0) {
      refill();
      if (socket_.fill.needs_wakeup()) recvfrom(socket_.descriptor(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
      return 0;
    }
    uint32_t n = 0;
    uint64_t bytes = 0;
    socket_.rx.expect(came);
    socket_.fill.expect(came);  // refill writes as many
    for (uint32_t i = 0; i < came; ++i) {
      const xdp_desc& entry = socket_.rx[i];
      const uint64_t chunk = entry.addr & XSK_UNALIGNED_BUF_ADDR_MASK;
      uint8_t* const frame = memory_.base() + chunk + (entry.addr >> XSK_UNALIGNED_BUF_OFFSET_SHIFT);
      socket_.receiving.remove(memory_.chunk_of(chunk));
      const bool continues = (entry.options & kXdpContinues) != 0;
      if (head_ == nullptr && !continues && entry.len <= room_) [[likely]] {
        if (completes_checksums_) prefetch_write(frame);
        set_row(rows, n++, frame, entry.len, now_ns);
        bytes += entry.len;
        continue;
      }
      if (!join(frame, entry.len, continues)) continue;
      set_row(rows, n++, std::exchange(head_, nullptr), head_bytes_, now_ns);
      bytes += head_bytes_;
    }
    socket_.rx.release(came);
    if (completes_checksums_) {
      for (uint32_t i = 0; i < n; ++i) complete_checksum_if_partial(rows.frame[i], rows.extent[i].end);
    }
    if (!done_with_.empty()) {
      memory_.pool().give(done_with_);
      done_with_.clear();
    }
    counts_.packets.add(n);
    counts_.bytes.add(bytes);
    refill();
    return n;
  }

  RxState state() override {
    if (socket_.rx.available(1) != 0) return RxState::kFrames;
    if (state_ == RxState::kGone) return state_;
    // Poll and RX ring say nothing of a link: it is asked for once a millisecond at most.
    const uint64_t now = coarse_ms();
    if (now == looked_ms_) return state_;
    looked_ms_ = now;
    state_ = device_.interface.link();
    return state_;
  }

  FramePool& pool() override { return memory_.pool(); }
  int wait_fd() const override { return socket_.descriptor(); }
  bool arm() override {
    refill();
    return socket_.rx.available(1) == 0;
  }

  RxCounters counters() const override {
    const xdp_statistics kernel = socket_.statistics();
    RxCounters all = counts_.get();
    // Where the kernel copies, it counts a frame that found no chunk in both of these; the others were too large. A
    // frame in several pieces that found not enough of them is in the first alone.
    const uint64_t no_chunk = socket_.zero_copy() || memory_.in_pieces()
                                  ? kernel.rx_dropped
                                  : std::min(kernel.rx_dropped, kernel.rx_fill_ring_empty_descs);
    all.missed += kernel.rx_ring_full + no_chunk;
    all.too_long += kernel.rx_dropped - no_chunk;
    all.invalid += kernel.rx_invalid_descs;
    return all;
  }

 private:
  // A piece of a frame in several, or a frame that does not fit. True: `head_` is a whole frame of `head_bytes_`.
  bool join(uint8_t* piece, uint32_t bytes, bool continues) {
    if (head_ == nullptr) {
      head_ = piece;
      head_bytes_ = bytes;
    } else {
      if (head_bytes_ + bytes <= room_) std::memcpy(head_ + head_bytes_, piece, bytes);
      head_bytes_ += bytes;
      done_with_.push_back(piece);
    }
    if (continues) return false;
    if (head_bytes_ <= room_) return true;
    counts_.too_long.add(1);
    done_with_.push_back(std::exchange(head_, nullptr));
    return false;
  }

  // Gives the kernel chunks up to the level, in bulk.
  void refill() {
    std::array<uint8_t*, 256> chunks;
    const uint32_t spared = socket_.fill.entries() - level_, bulk = std::min(64u, level_ / 2);
    uint32_t room = socket_.fill.free(spared + bulk);
    if (room < spared + bulk) return;
    room -= spared;
    while (room != 0) {
      const uint32_t n = memory_.pool().take({chunks.data(), std::min<size_t>(room, chunks.size())});
      if (n == 0) return;
      uint32_t filled = 0;
      for (uint32_t i = 0; i < n; ++i) {
        const uint64_t offset = memory_.offset_of(chunks[i]);
        if (socket_.zero_copy() && memory_.crosses_pages(offset, memory_.shape().stride)) {
          aside_.push_back(chunks[i]);
          continue;
        }
        socket_.fill[filled++] = offset;
        socket_.receiving.add(memory_.chunk_of(offset));
      }
      socket_.fill.submit(filled);
      room -= filled;
    }
  }

  Device& device_;
  const unsigned queue_;
  XskSocket& socket_;
  XskMemory& memory_;
  const uint32_t room_;
  const uint32_t level_;  // chunks to fill: a ring may be larger than what a pool can spare
  const bool completes_checksums_;
  RxCounts counts_;
  uint8_t* head_ = nullptr;  // of a frame whose last piece has not come
  uint32_t head_bytes_ = 0;
  std::vector<uint8_t*> done_with_;
  std::vector<uint8_t*> aside_;  // chunks that a device cannot write to
  RxState state_ = RxState::kIdle;
  uint64_t looked_ms_ = 0;
};

class XdpTx final : public TxQueue {
 public:
  XdpTx(Device& device, unsigned queue)
      : device_(device), queue_(queue), socket_(*device.sockets[queue]), memory_(socket_.memory()) {
    untagged_ = frame_bytes(mtu(), 0);
    refused_.reserve(socket_.tx.entries());
    spare_.reserve(socket_.tx.entries());
  }
  ~XdpTx() override { device_.tx_open[queue_] = 0; }

  uint32_t send(std::span<const TxFrame> frames) override {
    socket_.complete();
    const auto wanted = static_cast<uint32_t>(std::min<size_t>(frames.size(), socket_.tx.entries()));
    const uint32_t most = memory_.piece_bytes();
    uint32_t room = gone_ ? wanted : socket_.tx.free(wanted);
    uint32_t taken = 0, sent = 0;  // frames, pieces
    uint64_t packets = 0, bytes = 0;
    for (; taken < wanted && sent < room; ++taken) {
      const TxFrame& frame = frames[taken];
      const bool ours = frame.pool == &memory_.pool();
      uint64_t offset = ours ? memory_.offset_of(frame.data) : 0;
      if (!can_be_sent(frame, offset)) {
        if (ours) refused_.push_back(frame.data);
        counts_.failed.add(1);
        continue;
      }
      if (frame.bytes > most) {
        const uint32_t pieces = (frame.bytes + most - 1) / most;
        if (room - sent < pieces) room = socket_.tx.free(sent + pieces);
        if (room - sent < pieces) break;
      }
      if (!ours) {
        uint8_t* const chunk = spare_chunk(std::min(wanted - taken, room - sent));
        if (chunk == nullptr) break;
        offset = memory_.offset_of(chunk) + before_copies();
        std::memcpy(memory_.base() + offset, frame.data, frame.bytes);
      }
      const uint32_t chunk = memory_.chunk_of(offset);
      const uint64_t base = uint64_t{chunk} * memory_.shape().stride;
      socket_.sending.add(chunk);
      uint32_t left = frame.bytes;
      for (; left > most; left -= most, offset += most) {
        SLUICE_ASSERT(offset >= base + XskSocket::kNotLast);
        socket_.tx[sent++] = {XskSocket::address(base + XskSocket::kNotLast, offset), most, kXdpContinues};
      }
      socket_.tx[sent++] = {XskSocket::address(base, offset), left, 0};
      ++packets;
      bytes += frame.bytes;
    }
    if (sent != 0) socket_.tx.submit(sent);
    socket_.sent += sent;
    counts_.packets.add(packets);
    counts_.bytes.add(bytes);
    counts_.full.add(frames.size() - taken);
    give_back(refused_);
    give_back(spare_);
    return taken;
  }

  void flush() override {
    if (!gone_ && !socket_.kick()) leave();
  }

  FramePool* pool() override { return &memory_.pool(); }

  uint64_t in_flight() override {
    const uint64_t out = socket_.complete();
    if (out == 0) return 0;
    flush();  // what the device had no room for before
    return socket_.complete();
  }

  TxCounters counters() const override {
    TxCounters all = counts_.get();
    const uint64_t refused = socket_.statistics().tx_invalid_descs;
    all.packets -= refused;
    all.failed += refused;
    return all;
  }

 private:
  // The first of several pieces does not begin where its chunk does (`XskSocket::address`); nor has a frame there so
  // much room.
  uint32_t before_copies() const { return memory_.in_pieces() ? 64 : 0; }
  bool can_be_sent(const TxFrame& frame, uint64_t offset) {
    if (frame.bytes > untagged_ && passes_mtu(frame)) return false;
    // The first of several pieces is told by how far it begins behind its chunk.
    if (frame.bytes > memory_.piece_bytes() && frame.pool == &memory_.pool() &&
        offset < uint64_t{memory_.chunk_of(offset)} * memory_.shape().stride + XskSocket::kNotLast)
      return false;
    return !gone_ && frame.bytes >= 14 && frame.bytes <= memory_.shape().stride - before_copies() &&
           !(socket_.zero_copy() && memory_.crosses_pages(offset, frame.bytes));
  }

  uint32_t mtu() const {
    PortFacts facts;
    device_.interface.describe(facts);
    return facts.mtu;
  }
  // The kernel does not look, and virtual interfaces drop such frames behind it, where nobody counts them. The MTU may
  // have grown.
  bool passes_mtu(const TxFrame& frame) {
    Link link;
    if (read_link(frame.data, frame.bytes, link) == LinkStatus::kTooManyVlans) return true;
    const uint32_t now = mtu();
    untagged_ = std::max(untagged_, frame_bytes(now, 0));
    return frame.bytes > frame_bytes(now, std::min<uint32_t>(link.vlan_count, 2));
  }

  uint8_t* spare_chunk(uint32_t wanted) {
    if (spare_.empty()) {
      spare_.resize(wanted);
      spare_.resize(memory_.pool().take(spare_));
      if (spare_.empty()) return nullptr;
    }
    uint8_t* const chunk = spare_.back();
    spare_.pop_back();
    return chunk;
  }

  void give_back(std::vector<uint8_t*>& chunks) {
    if (chunks.empty()) return;
    memory_.pool().give(chunks);
    chunks.clear();
  }

  // The interface is gone: the kernel lets go of what it was given, and of what comes from here on nothing is sent.
  void leave() {
    gone_ = true;
    const XskSocket::Abandoned lost = socket_.abandon();
    counts_.packets.add(-lost.chunks);
    counts_.bytes.add(-lost.bytes);
    counts_.failed.add(lost.chunks);
  }

  Device& device_;
  const unsigned queue_;
  XskSocket& socket_;
  XskMemory& memory_;
  TxCounts counts_;
  std::vector<uint8_t*> refused_, spare_;
  uint32_t untagged_;  // the longest frame without a tag that the MTU is known to allow
  bool gone_ = false;
};

// The addresses of the interface, as of now.
Result<void> tell_own_addresses(Device& device) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return system_error("the addresses of " + device.name, errno);
  std::vector<XdpProgram::Address4> v4;
  std::vector<XdpProgram::Address6> v6;
  PortFacts facts;
  device.interface.describe(facts);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    // An IPv4 address goes by its label, which may be "eth0:1".
    const std::string label = one->ifa_name;
    if (one->ifa_addr == nullptr || label.substr(0, label.find(':')) != facts.name) continue;
    if (one->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address;
      std::memcpy(&address, one->ifa_addr, sizeof address);
      v4.push_back(std::bit_cast<XdpProgram::Address4>(address.sin_addr));
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 address;
      std::memcpy(&address, one->ifa_addr, sizeof address);
      v6.push_back(std::bit_cast<XdpProgram::Address6>(address.sin6_addr));
    }
  }
  freeifaddrs(all);
  return device.program->set_own_addresses(v4, v6);
}

class XdpPort final : public Port {
 public:
  explicit XdpPort(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  Result<std::unique_ptr<RxQueue>> open_rx(unsigned queue) override {
    if (auto mine = check(queue, device_->rx_open, device_->options.receives, "RX"); !mine)
      return std::move(mine).error();
    device_->rx_open[queue] = 1;
    auto made = std::make_unique<XdpRx>(*device_, queue);
    if (auto started = made->start(); !started) return std::move(started).error();
    return std::unique_ptr<RxQueue>(std::move(made));
  }

  Result<std::unique_ptr<TxQueue>> open_tx(unsigned queue) override {
    if (auto mine = check(queue, device_->tx_open, device_->options.sends, "TX"); !mine) return std::move(mine).error();
    device_->tx_open[queue] = 1;
    return std::unique_ptr<TxQueue>(std::make_unique<XdpTx>(*device_, queue));
  }

  PortFacts facts() const override {
    PortFacts facts;
    facts.name = device_->name;
    facts.method = "af_xdp";
    device_->interface.describe(facts);
    facts.mode = device_->sockets[0]->zero_copy() ? "zero copy" : "copy";
    if (device_->program) facts.mode = (device_->program->native() ? "native, " : "generic, ") + facts.mode;
    facts.rx_queues = facts.tx_queues = device_->options.queues;
    ethtool_channels channels{};
    if (ask_device(facts.name, ETHTOOL_GCHANNELS, channels)) {
      facts.rx_queues = std::max(facts.rx_queues, channels.rx_count + channels.combined_count);
      facts.tx_queues = std::max(facts.tx_queues, channels.tx_count + channels.combined_count);
    }
    return facts;
  }

  Result<void> addresses_changed() override {
    if (!device_->program) return {};
    return tell_own_addresses(*device_);
  }
  void interface_gone() override {
    if (device_->program) device_->program->detach();
  }

 private:
  Result<void> check(unsigned queue, const std::vector<uint8_t>& open, bool asked_for, const char* what) const {
    if (!asked_for) return Error(fmt::format("{}: opened without {}", device_->name, what));
    if (queue >= open.size())
      return Error(fmt::format("{}: no {} queue {} of {}", device_->name, what, queue, open.size()));
    if (open[queue] != 0) return Error(fmt::format("{}: {} queue {} is open already", device_->name, what, queue));
    return {};
  }

  const std::unique_ptr<Device> device_;
};

Result<uint32_t> ring_entries(const char* what, uint32_t asked, uint32_t by_default) {
  if (asked == 0) return by_default;
  if (std::has_single_bit(asked) && asked >= 64 && asked <= 1u << 20) return asked;
  return Error(fmt::format("{} ring of {}: AF_XDP takes powers of two from 64 to {}", what, asked, 1u << 20),
               fmt::format("{}", std::clamp(std::bit_ceil(std::min(asked, 1u << 20)), 64u, 1u << 20)));
}

// A membership that goes with its descriptor.
Result<FileDescriptor> promiscuous_mode(const Device& device) {
  FileDescriptor member(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  packet_mreq request{};
  request.mr_ifindex = device.interface.index();
  request.mr_type = PACKET_MR_PROMISC;
  if (member && setsockopt(member.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request) == 0)
    return member;
  return capability_error(device.name + ": promiscuous mode", errno, "CAP_NET_ADMIN,CAP_NET_RAW");
}

}  // namespace

Result<std::unique_ptr<Port>> open_af_xdp(const PortOptions& options, const std::shared_ptr<FramePool>& pool) {
  const auto rx_ring = ring_entries("RX", options.rx_ring, kRxRing),
             tx_ring = ring_entries("TX", options.tx_ring, kTxRing);
  if (!rx_ring) return Error(rx_ring.error());
  if (!tx_ring) return Error(tx_ring.error());
  auto interface = Interface::find(options.name);
  if (!interface) return std::move(interface).error();
  auto memory = XskMemory::of(pool);
  if (!memory) return std::move(memory).error();
  PortFacts facts;
  interface->describe(facts);
  if (auto fit = check_frames_fit(options.name, facts.mtu, pool->shape()); !fit) return std::move(fit).error();
  if (auto can = XskSocket::supported(); !can) return std::move(can).error();

  auto device = std::make_unique<Device>(
      Device{.interface = std::move(*interface), .name = options.name, .options = options, .memory = *memory});
  device->options.queues = std::max(options.queues, 1u);
  device->completes_checksums = leaves_checksums(options.name);
  device->rx_open.resize(device->options.queues);
  device->tx_open.resize(device->options.queues);

  // To send, only zero copy needs a program; without one the port does with what it gets.
  auto program = XdpProgram::load(device->options.queues, options.kernel_gets_own, device->memory->in_pieces());
  if (!program) return std::move(program).error();
  auto attached = program->attach(options.name, device->interface.index(), options.xdp_mode,
                                  [](int ifindex) { return XskSocket::queue_is_free(ifindex, 0); });
  if (!attached && options.receives) return std::move(attached).error();
  if (attached) device->program.emplace(std::move(*program));
  if (device->program) {
    if (auto told = tell_own_addresses(*device); !told) return std::move(told).error();
  }
  for (unsigned queue = 0; queue < device->options.queues; ++queue) {
    auto socket = XskSocket::open(
        *memory, {.name = options.name,
                  .ifindex = device->interface.index(),
                  .queue = queue,
                  .rx_entries = options.receives ? *rx_ring : 0,
                  .tx_entries = options.sends ? *tx_ring : 0,
                  // Drivers may stop in the middle of a frame where a ring is full.
                  .zero_copy = device->program && device->program->native() && !device->memory->in_pieces()});
    if (!socket) return std::move(socket).error();
    device->sockets.push_back(std::move(*socket));
  }
  if (!options.receives && !device->sockets[0]->zero_copy()) device->program.reset();
  if (options.promiscuous) {
    auto member = promiscuous_mode(*device);
    if (!member) return std::move(member).error();
    device->promiscuous = std::move(*member);
  }
  return std::unique_ptr<Port>(std::make_unique<XdpPort>(std::move(device)));
}

}  // namespace sluice
