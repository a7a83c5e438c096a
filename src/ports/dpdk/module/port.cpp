// host only
// DPDK's Ethernet devices as ports. Each has its queues from its start; frames are mbufs of one MbufPool, received and
// sent where they lie.
#include <fmt/format.h>
#include <linux/capability.h>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_pci.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "ports/dpdk/module.h"
#include "ports/dpdk/module/eal.h"
#include "ports/dpdk/module/mbuf_pool.h"
#include "ports/interface.h"
#include "ports/queue_parts.h"

namespace sluice::dpdk {

namespace {

constexpr uint32_t kBurst = 64;
constexpr uint32_t kRing = 1024;            // where the driver has no wish of its own
constexpr uint32_t kAroundPacket = 14 + 8;  // Ethernet and two VLAN tags
constexpr uint32_t kJumbo = 9000;
constexpr uint64_t kLinkEvery_ns = 10'000'000;  // some drivers read a register of the NIC or call the kernel

// What DPDK calls the devices that are open.
std::set<std::string>& open_names() {
  static auto* names = new std::set<std::string>;
  return *names;
}

// A started Ethernet device; closes it, and takes it from DPDK, at its end.
class Device {
 public:
  Device(std::string name, uint16_t id, rte_device* device, std::shared_ptr<MbufPool> pool)
      : name_(std::move(name)), id_(id), device_(device), owned_pool_(std::move(pool)), pool_(*owned_pool_) {
    open_names().insert(name_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    close();
    open_names().erase(name_);
  }

  Result<void> start(const PortOptions& options, bool is_virtual, bool huge_pages);
  PortFacts facts() const;

  uint16_t id() const { return id_; }
  MbufPool& pool() const { return pool_; }
  uint16_t tx_ring() const { return tx_ring_; }
  // Frames of up to so many bytes leave. TAP's driver would refuse others for ever.
  uint32_t largest() const { return largest_; }
  // Whether its TX errors are frames that tx_burst did not take: `full`, not `failed`.
  bool counts_refusals() const { return counts_refusals_; }
  RxState link() const {
    if (gone_.load(std::memory_order_relaxed)) return RxState::kGone;
    // Drivers of kernel interfaces do not say that theirs was removed.
    if (interface_) return interface_->link();
    return up() ? RxState::kIdle : RxState::kDown;
  }
  bool up() const {
    rte_eth_link link{};
    return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
  }
  // What the device counted since its start.
  rte_eth_stats stats() const {
    rte_eth_stats now{};
    if (rte_eth_stats_get(id_, &now) != 0) return {};
    now.imissed -= first_.imissed;
    now.ierrors -= first_.ierrors;
    now.oerrors -= first_.oerrors;
    now.rx_nombuf -= first_.rx_nombuf;
    return now;
  }
  // Queues that somebody has.
  using Open = std::array<bool, RTE_MAX_QUEUES_PER_PORT>;
  Open rx_open{}, tx_open{};
  Result<void> open(unsigned queue, Open& which, const char* what) const;

 private:
  Result<void> size_rings(const PortOptions& options, uint16_t queues);
  void close();
  Error refused(const char* what, int code) const {
    return Error(fmt::format("{}: {}: {}", name_, what, rte_strerror(-code)));
  }

  const std::string name_;
  const uint16_t id_;
  rte_device* const device_;
  const std::shared_ptr<MbufPool> owned_pool_;
  MbufPool& pool_;
  std::string mode_;
  unsigned queues_ = 0;
  uint16_t rx_ring_ = 0, tx_ring_ = 0;
  bool started_ = false;
  uint32_t largest_ = 0;
  bool counts_refusals_ = false;
  rte_eth_dev_info info_{};
  rte_eth_stats first_{};
  std::optional<Interface> interface_;  // of the kernel's, where the device is one
  std::atomic<bool> gone_{false};
};

Result<void> Device::open(unsigned queue, Open& which, const char* what) const {
  if (queue >= queues_)
    return Error(fmt::format("{}: no {} queue {}: it was opened with {}", name_, what, queue, queues_));
  if (which[queue]) return Error(fmt::format("{}: {} queue {} is open already", name_, what, queue));
  which[queue] = true;
  return {};
}

int when_removed(uint16_t, rte_eth_event_type, void* gone, void*) {
  static_cast<std::atomic<bool>*>(gone)->store(true, std::memory_order_relaxed);
  return 0;
}

// A ring's size: what was asked, or what the driver likes up to `fair`.
Result<uint16_t> ring_size(const std::string& name, const char* what, uint32_t asked, uint32_t likes, uint32_t fair,
                           const rte_eth_desc_lim& limit) {
  const uint32_t align = std::max<uint32_t>(limit.nb_align, 1);
  const uint32_t most = limit.nb_max == 0 ? UINT16_MAX : limit.nb_max;
  if (asked == 0) {
    const uint32_t size = std::clamp<uint32_t>(std::min(likes == 0 ? kRing : likes, fair), limit.nb_min, most);
    return static_cast<uint16_t>(std::min(most / align * align, (size + align - 1) / align * align));
  }
  if (asked < limit.nb_min || asked > most || asked % align != 0) {
    return Error(fmt::format("{}: a ring of {} {} descriptors is not what its driver takes", name, asked, what),
                 fmt::format("{} to {}, in steps of {}", std::max<uint32_t>(limit.nb_min, 1), most, align));
  }
  return static_cast<uint16_t>(asked);
}

Result<void> Device::size_rings(const PortOptions& options, uint16_t queues) {
  // Most drivers keep their RX rings full of frames.
  const uint32_t chunks = pool_.shape().chunks;
  auto rx = ring_size(name_, "RX", options.rx_ring, info_.default_rxportconf.ring_size, chunks / 4 / queues,
                      info_.rx_desc_lim);
  if (!rx) return std::move(rx).error();
  auto tx = ring_size(name_, "TX", options.tx_ring, info_.default_txportconf.ring_size, chunks / 4 / queues,
                      info_.tx_desc_lim);
  if (!tx) return std::move(tx).error();
  if (uint32_t{*rx} * queues * 2 > chunks) {
    return Error(
        fmt::format("{}: {} RX queues of {} descriptors take {} of the pool's {} frames, and leave too few for "
                    "what is received",
                    name_, queues, *rx, uint32_t{*rx} * queues, chunks),
        "smaller rings, or a larger pool");
  }
  rx_ring_ = *rx;
  tx_ring_ = *tx;
  return {};
}

Result<void> Device::start(const PortOptions& options, bool is_virtual, bool huge_pages) {
  if (const int code = rte_eth_dev_info_get(id_, &info_); code != 0) return refused("no facts of the device", code);
  mode_ = fmt::format("{}, {}", info_.driver_name, huge_pages ? "huge pages" : "no huge pages");
  if (options.queues == 0 || options.queues > std::min(info_.max_rx_queues, info_.max_tx_queues)) {
    return Error(fmt::format("{}: {} queues, but driver {} has {} for RX and {} for TX", name_, options.queues,
                             info_.driver_name, info_.max_rx_queues, info_.max_tx_queues));
  }
  const auto queues = static_cast<uint16_t>(options.queues);
  if (auto ok = size_rings(options, queues); !ok) return ok;

  // Frames as they are on the wire: no offload that changes them, none that splits one.
  rte_eth_conf conf{};
  const uint32_t room = pool_.shape().room();
  // Some drivers (net_tap) say only how long a frame may be: the packet, Ethernet and the FCS.
  const bool says_mtu = info_.max_mtu != UINT16_MAX && info_.max_rx_pktlen > info_.max_mtu;
  const uint32_t most =
      says_mtu ? info_.max_mtu : info_.max_rx_pktlen - std::min<uint32_t>(info_.max_rx_pktlen, RTE_ETHER_HDR_LEN + 4);
  const bool jumbo = room >= kJumbo + kAroundPacket && most > RTE_ETHER_MTU;
  const uint32_t mtu = jumbo ? std::min<uint32_t>({kJumbo, most, info_.max_mtu}) : RTE_ETHER_MTU;
  if (jumbo) conf.rxmode.mtu = mtu;
  std::vector<uint8_t> key;
  if (queues > 1 && info_.flow_type_rss_offloads != 0) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf =
        info_.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP);
    // A key of period 16: both directions of a flow have one hash (Woo and Park, "Scalable TCP session monitoring with
    // symmetric receive-side scaling", 2012).
    for (unsigned i = 0; i < info_.hash_key_size; ++i) key.push_back(i % 2 == 0 ? 0x6d : 0x5a);
    if (!key.empty()) {
      conf.rx_adv_conf.rss_conf.rss_key = key.data();
      conf.rx_adv_conf.rss_conf.rss_key_len = info_.hash_key_size;
    }
  }
  // All frames of a queue are of one pool, and nobody else refers to them.
  conf.txmode.offloads = info_.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
  conf.intr_conf.lsc = (*info_.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0 ? 1 : 0;
  conf.intr_conf.rmv = (*info_.dev_flags & RTE_ETH_DEV_INTR_RMV) != 0 ? 1 : 0;
  int code = rte_eth_dev_configure(id_, queues, queues, &conf);
  if (code != 0) return refused("the driver refuses its configuration", code);
  const int socket = rte_eth_dev_socket_id(id_);
  rte_eth_rxconf rx_conf = info_.default_rxconf;
  rx_conf.offloads = 0;
  rte_eth_txconf tx_conf = info_.default_txconf;
  tx_conf.offloads = conf.txmode.offloads;
  for (uint16_t i = 0; i < queues; ++i) {
    code = rte_eth_rx_queue_setup(id_, i, rx_ring_, static_cast<unsigned>(socket), &rx_conf, pool_.mempool());
    if (code != 0) return refused("the driver refuses an RX queue", code);
    code = rte_eth_tx_queue_setup(id_, i, tx_ring_, static_cast<unsigned>(socket), &tx_conf);
    if (code != 0) return refused("the driver refuses a TX queue", code);
  }
  queues_ = queues;
  if (jumbo) {
    code = rte_eth_dev_set_mtu(id_, static_cast<uint16_t>(mtu));
    if (code != 0 && code != -ENOTSUP) return refused("the driver refuses its MTU", code);
  }
  largest_ = std::min(room, mtu + kAroundPacket);
  for (const char* driver : {"net_tap", "net_tun", "net_af_xdp"}) {
    counts_refusals_ = counts_refusals_ || std::strcmp(info_.driver_name, driver) == 0;
  }
  rte_eth_dev_callback_register(id_, RTE_ETH_EVENT_INTR_RMV, when_removed, &gone_);
  code = rte_eth_dev_start(id_);
  if (code != 0) return refused("the device does not start", code);
  started_ = true;
  if (options.promiscuous) {
    code = rte_eth_promiscuous_enable(id_);
    // Most virtual devices filter nothing, and have nothing to enable.
    if (code != 0 && !(is_virtual && code == -ENOTSUP)) return refused("no promiscuous mode", code);
  }
  char kernel_name[IF_NAMESIZE];
  if (info_.if_index != 0 && if_indextoname(info_.if_index, kernel_name) != nullptr) {
    if (auto found = Interface::find(kernel_name)) interface_ = std::move(*found);
  }
  // Neighbour discovery and routing protocols. What cannot filter has no such mode.
  static_cast<void>(rte_eth_allmulticast_enable(id_));
  static_cast<void>(rte_eth_stats_get(id_, &first_));
  return {};
}

PortFacts Device::facts() const {
  PortFacts facts;
  facts.name = name_;
  facts.method = "dpdk";
  facts.mode = mode_;
  facts.ifindex = static_cast<int>(info_.if_index);
  rte_ether_addr mac{};
  if (rte_eth_macaddr_get(id_, &mac) == 0) std::copy_n(mac.addr_bytes, facts.mac.size(), facts.mac.begin());
  uint16_t mtu = 0;
  if (rte_eth_dev_get_mtu(id_, &mtu) == 0) facts.mtu = mtu;
  facts.rx_queues = facts.tx_queues = queues_;
  facts.up = up();
  if (interface_) interface_->describe(facts);
  return facts;
}

void Device::close() {
  std::string ignored;
  static_cast<void>(run_aside(
      [&]() -> Result<void> {
        rte_eth_dev_callback_unregister(id_, RTE_ETH_EVENT_INTR_RMV, when_removed, &gone_);
        // A ring is freed with what lies in it. Other drivers give back what they have, and some would never end.
        if (started_ && std::strcmp(info_.driver_name, "net_ring") == 0) {
          rte_mbuf* mbufs[kBurst];
          for (unsigned i = 0; i < queues_; ++i) {
            while (const uint16_t n = rte_eth_rx_burst(id_, static_cast<uint16_t>(i), mbufs, kBurst)) {
              rte_pktmbuf_free_bulk(mbufs, n);
            }
          }
        }
        if (started_) rte_eth_dev_stop(id_);
        rte_eth_dev_close(id_);
        rte_dev_remove(device_);
        return {};
      },
      ignored));
}

class DpdkRxQueue final : public RxQueue {
 public:
  DpdkRxQueue(Device& device, uint16_t queue) : device_(device), queue_(queue) {}
  ~DpdkRxQueue() override { device_.rx_open[queue_] = false; }

  uint32_t poll(const Batch::Rows& columns, uint32_t most, uint64_t now_ns) override {
    enter_thread();
    const Batch::Rows rows = columns;  // in registers: no store below changes it
    const uint32_t room = device_.pool().shape().room();
    rte_mbuf* mbufs[kBurst];
    uint32_t n = 0;
    uint64_t bytes = 0, too_long = 0, invalid = 0;
    while (n < most) {
      const uint32_t asked = std::min(kBurst, most - n);
      const uint32_t got = rte_eth_rx_burst(device_.id(), queue_, mbufs, static_cast<uint16_t>(asked));
      for (uint32_t i = 0; i < got; ++i) {
        rte_mbuf* mbuf = mbufs[i];
        const uint32_t length = mbuf->data_len;
        // Larger than a chunk: the rest is in another mbuf.
        if (mbuf->nb_segs != 1 || length > room || length == 0) [[unlikely]] {
          rte_pktmbuf_free(mbuf);
          ++(length == 0 ? invalid : too_long);
          continue;
        }
        uint8_t* frame = MbufPool::chunk_of(mbuf) + mbuf->data_off;
        if (mbuf->data_off != RTE_PKTMBUF_HEADROOM) [[unlikely]]
          frame = with_head_room(mbuf, room);
        set_row(rows, n, frame, length, now_ns);
        bytes += length;
        ++n;
      }
      // Some drivers give 32 at most a call.
      if (got < std::min<uint32_t>(asked, 32)) break;
    }
    counts_.packets.add(n);
    counts_.bytes.add(bytes);
    if (invalid + too_long != 0) {
      counts_.invalid.add(invalid);
      counts_.too_long.add(too_long);
    }
    return n;
  }

  // A ring gives what was sent by it, wherever in its chunk.
  static uint8_t* with_head_room(rte_mbuf* mbuf, uint32_t room) {
    uint8_t* chunk = MbufPool::chunk_of(mbuf);
    const uint32_t at = mbuf->data_off, length = mbuf->data_len;
    if (at >= RTE_PKTMBUF_HEADROOM && at + length <= RTE_PKTMBUF_HEADROOM + room) return chunk + at;
    return static_cast<uint8_t*>(std::memmove(chunk + RTE_PKTMBUF_HEADROOM, chunk + at, length));
  }

  RxState state() override {
    // By the clock, as a caller's time may be that of packets.
    const uint64_t now = now_ns();
    if (!looked_ || now - looked_at_ns_ >= kLinkEvery_ns) {
      looked_ = true;
      looked_at_ns_ = now;
      link_ = device_.link();
    }
    return link_;
  }
  FramePool& pool() override { return device_.pool(); }
  int wait_fd() const override { return -1; }
  bool arm() override { return true; }
  // The device counts for all queues: queue 0 reports it.
  RxCounters counters() const override {
    RxCounters now = counts_.get();
    if (queue_ == 0) {
      const rte_eth_stats stats = device_.stats();
      now.missed = stats.imissed + stats.rx_nombuf;
      now.invalid += stats.ierrors;
    }
    return now;
  }

 private:
  Device& device_;
  const uint16_t queue_;
  uint64_t looked_at_ns_ = 0;
  bool looked_ = false;
  RxState link_ = RxState::kIdle;
  RxCounts counts_;
};

class DpdkTxQueue final : public TxQueue {
 public:
  DpdkTxQueue(Device& device, uint16_t queue) : device_(device), queue_(queue) {}
  ~DpdkTxQueue() override { device_.tx_open[queue_] = false; }

  uint32_t send(std::span<const TxFrame> frames) override {
    enter_thread();
    const auto total = static_cast<uint32_t>(frames.size());
    const FramePool* pool = &device_.pool();
    const MbufPool::Chunks chunks = device_.pool().chunks();
    const uint32_t largest = device_.largest();
    rte_mbuf* mbufs[kBurst];
    uint32_t taken = 0;
    uint64_t packets = 0, bytes = 0;
    while (taken < total) {
      const uint32_t most = std::min(kBurst, total - taken);
      const TxFrame* const next = frames.data() + taken;
      uint32_t n = in_place(next, most, {pool, chunks, largest}, mbufs, bytes);
      for (; n < most; ++n) {
        const TxFrame frame = next[n];
        if (!fits(frame, largest)) [[unlikely]]
          break;
        mbufs[n] = frame.pool == pool ? in_place(frame, chunks) : copied(frame);
        if (mbufs[n] == nullptr) [[unlikely]]
          break;
        bytes += frame.bytes;
      }
      const uint32_t sent = n == 0 ? 0 : rte_eth_tx_burst(device_.id(), queue_, mbufs, static_cast<uint16_t>(n));
      packets += sent;
      for (uint32_t i = sent; i < n; ++i) {
        bytes -= next[i].bytes;
        if (next[i].pool != pool) rte_pktmbuf_free(mbufs[i]);
      }
      taken += sent;
      if (sent < n) break;
      if (n < most) {
        // The next one has no mbuf: none is left, or it is none that leaves here.
        if (fits(frames[taken], largest)) break;
        if (frames[taken].pool == pool) device_.pool().give({&frames[taken].data, 1});
        counts_.failed.add(1);
        ++taken;
      }
    }
    counts_.packets.add(packets);
    counts_.bytes.add(bytes);
    if (taken < total) counts_.full.add(total - taken);
    return taken;
  }

  // tx_burst has told the device.
  void flush() override {}
  FramePool* pool() override { return &device_.pool(); }

  uint64_t in_flight() override {
    enter_thread();
    // Where a driver knows nothing of these, it sends before tx_burst returns.
    rte_eth_tx_done_cleanup(device_.id(), queue_, 0);
    // From the next place to write on, all descriptors are done, then come those that are not: the oldest first.
    const auto busy = [&](uint32_t offset) {
      return rte_eth_tx_descriptor_status(device_.id(), queue_, static_cast<uint16_t>(offset)) == RTE_ETH_TX_DESC_FULL;
    };
    uint32_t done = 0, end = device_.tx_ring();
    while (done < end) {
      const uint32_t middle = (done + end) / 2;
      if (busy(middle)) {
        end = middle;
      } else {
        done = middle + 1;
      }
    }
    return device_.tx_ring() - done;
  }

  TxCounters counters() const override {
    TxCounters now = counts_.get();
    if (queue_ == 0 && !device_.counts_refusals()) {
      const uint64_t failed = device_.stats().oerrors;
      now.failed += failed;
      now.packets -= std::min(now.packets, failed);
    }
    return now;
  }

 private:
  static bool fits(const TxFrame& frame, uint32_t largest) { return frame.bytes - 1 < largest; }

  // Mbufs of frames up to the first that does not fit or lies elsewhere, and how many; adds their bytes. Most often
  // all: a function of its own keeps what does not change in registers.
  struct Place {
    const FramePool* pool;
    MbufPool::Chunks chunks;
    uint32_t largest;
  };
  [[gnu::noinline]] static uint32_t in_place(const TxFrame* frames, uint32_t most, const Place& place, rte_mbuf** mbufs,
                                             uint64_t& bytes) {
    const Place in = place;
    uint64_t sum = 0;
    uint32_t n = 0;
    for (; n < most && frames[n].pool == in.pool && fits(frames[n], in.largest); ++n) {
      mbufs[n] = in_place(frames[n], in.chunks);
      sum += frames[n].bytes;
    }
    bytes += sum;
    return n;
  }
  // The mbuf that a frame of the pool lies in, ready to send.
  static rte_mbuf* in_place(const TxFrame& frame, const MbufPool::Chunks& chunks) {
    uint8_t* chunk = chunks.of(frame.data);
    rte_mbuf* mbuf = MbufPool::mbuf_of(chunk);
    mbuf->data_off = static_cast<uint16_t>(frame.data - chunk);
    set_length(mbuf, frame.bytes);
    // What the receiving driver noted.
    mbuf->ol_flags = 0;
    return mbuf;
  }
  // An mbuf with a copy of the frame; nullptr: none is left.
  rte_mbuf* copied(const TxFrame& frame) {
    rte_mbuf* mbuf = rte_pktmbuf_alloc(device_.pool().mempool());
    if (mbuf == nullptr) return nullptr;
    std::memcpy(rte_pktmbuf_mtod(mbuf, uint8_t*), frame.data, frame.bytes);
    set_length(mbuf, frame.bytes);
    return mbuf;
  }
  static void set_length(rte_mbuf* mbuf, uint32_t bytes) {
    mbuf->data_len = static_cast<uint16_t>(bytes);
    mbuf->pkt_len = bytes;
  }

  Device& device_;
  const uint16_t queue_;
  TxCounts counts_;
};

class DpdkPort final : public Port {
 public:
  explicit DpdkPort(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  Result<std::unique_ptr<RxQueue>> open_rx(unsigned queue) override {
    if (auto opened = device_->open(queue, device_->rx_open, "RX"); !opened) return std::move(opened).error();
    return std::unique_ptr<RxQueue>(new DpdkRxQueue(*device_, static_cast<uint16_t>(queue)));
  }
  Result<std::unique_ptr<TxQueue>> open_tx(unsigned queue) override {
    if (auto opened = device_->open(queue, device_->tx_open, "TX"); !opened) return std::move(opened).error();
    return std::unique_ptr<TxQueue>(new DpdkTxQueue(*device_, static_cast<uint16_t>(queue)));
  }
  PortFacts facts() const override { return device_->facts(); }

 private:
  std::unique_ptr<Device> device_;
};

// --- names ---

constexpr char kNames[] =
    "a port is a number, a PCI address (0000:03:00.0) or a virtual device (net_af_packet0,iface=eth0; "
    "net_tap0,iface=x)";

// The driver of the kernel's that has a PCI device; empty: none.
std::string kernel_driver(const std::string& address) {
  std::error_code none;
  return std::filesystem::read_symlink("/sys/bus/pci/devices/" + address + "/driver", none).filename().string();
}
bool leaves_to_programs(const std::string& driver) {
  return driver == "vfio-pci" || driver == "uio_pci_generic" || driver == "igb_uio";
}
// Drivers of DPDK's that work beside the kernel's.
bool shares(const std::string& driver) {
  return driver == "mlx4_core" || driver == "mlx5_core" || driver == "mana";
}

// The Ethernet controllers that the kernel leaves to programs, in the order of their addresses.
std::vector<std::string> pci_ports() {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", none)) {
    std::string kind;
    if (FILE* file = std::fopen((entry.path() / "class").c_str(), "re"); file != nullptr) {
      char text[16] = {};
      if (std::fgets(text, sizeof text, file) != nullptr) kind = text;
      static_cast<void>(std::fclose(file));
    }
    const std::string address = entry.path().filename().string();
    if (kind.starts_with("0x02") && leaves_to_programs(kernel_driver(address))) found.push_back(address);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// What DPDK calls a device.
struct DeviceName {
  std::string name;
  std::string arguments;  // as rte_dev_probe takes it; empty: it is there since EAL's start
  bool is_virtual = false;
};

Result<DeviceName> look_up(const std::string& name, const Eal& eal) {
  if (!name.empty() && name.size() < 6 && name.find_first_not_of("0123456789") == std::string::npos) {
    const size_t number = std::stoul(name);
    if (number < eal.probed.size()) {
      const std::string& known = eal.probed[number];
      uint16_t port = 0;
      if (rte_eth_dev_get_port_by_name(known.c_str(), &port) != 0) {
        return Error(fmt::format("DPDK port {} ({}) was closed before", name, known), "start the program anew");
      }
      return DeviceName{known, "", known.starts_with("net_")};
    }
    const std::vector<std::string> found = pci_ports();
    if (number - eal.probed.size() >= found.size()) {
      return Error(
          fmt::format("no DPDK port {}: there are {}", name, eal.probed.size() + found.size()),
          "leave a NIC to DPDK (modprobe vfio-pci; dpdk-devbind.py -b vfio-pci 0000:03:00.0), or name a virtual "
          "device: net_af_packet0,iface=eth0");
    }
    return look_up(found[number - eal.probed.size()], eal);
  }
  const std::string first = name.substr(0, name.find(','));
  rte_pci_addr parsed{};
  if (rte_pci_addr_parse(first.c_str(), &parsed) == 0) {
    char address[PCI_PRI_STR_SIZE];
    rte_pci_device_name(&parsed, address, sizeof address);
    std::error_code none;
    if (!std::filesystem::exists(std::string("/sys/bus/pci/devices/") + address, none)) {
      return Error(fmt::format("no PCI device {} here", address), "lspci -D lists them");
    }
    const std::string driver = kernel_driver(address);
    if (!leaves_to_programs(driver) && !shares(driver)) {
      return Error(
          fmt::format("PCI device {} is {}", address, driver.empty() ? "nobody's" : "the kernel's: driver " + driver),
          fmt::format("leave it to DPDK: modprobe vfio-pci; dpdk-devbind.py -b vfio-pci {}", address));
    }
    if (!eal.huge_pages) {
      return Error(fmt::format("PCI device {}: DPDK was started without huge pages, which its driver needs", address),
                   "reserve some and start the program anew: sysctl vm.nr_hugepages=1024");
    }
    return DeviceName{address, std::string(address) + name.substr(first.size()), false};
  }
  if (!first.starts_with("net_")) {
    return Error(fmt::format("'{}' names no DPDK port", name), kNames);
  }
  return DeviceName{first, name, true};
}

// Drivers of kernel interfaces need capabilities, and say no more than that they failed without.
Result<void> check_capabilities(const std::string& name) {
  struct Need {
    const char* what;
    uint32_t capabilities;
    const char* names;
  };
  constexpr uint32_t kAdmin = 1U << CAP_NET_ADMIN, kRaw = 1U << CAP_NET_RAW;
  constexpr Need kNeeds[] = {{"net_tap", kAdmin, "CAP_NET_ADMIN"},
                             {"net_af_packet", kRaw, "CAP_NET_RAW"},
                             {"net_af_xdp", kAdmin | kRaw, "CAP_NET_ADMIN,CAP_NET_RAW"}};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2]{};
  if (syscall(SYS_capget, &header, sets) != 0) return {};
  for (const Need& need : kNeeds) {
    if (name.starts_with(need.what) && (sets[0].effective & need.capabilities) != need.capabilities) {
      return capability_error(name, EPERM, need.names);
    }
  }
  return {};
}

// --- pools ---

// One MbufPool for all ports of a run, known by the pool that they were opened with; it stays as long as that one, as
// frames may come back to it after their port was closed.
struct Shared {
  std::weak_ptr<FramePool> asked;
  std::shared_ptr<MbufPool> pool;
};
std::vector<Shared>& shared_pools() {
  static auto* pools = new std::vector<Shared>;
  return *pools;
}

Result<std::shared_ptr<MbufPool>> pool_for(const std::shared_ptr<FramePool>& asked, bool huge_pages) {
  std::vector<Shared>& pools = shared_pools();
  std::erase_if(pools, [](const Shared& one) { return one.asked.expired() && one.pool.use_count() == 1; });
  for (const Shared& one : pools) {
    if (one.asked.lock() == asked) return one.pool;
  }
  auto made = MbufPool::create(asked->shape(), huge_pages);
  if (made) pools.push_back({asked, *made});
  return made;
}

Result<std::unique_ptr<Port>> open(const DpdkHost& host, const PortOptions& options,
                                   const std::shared_ptr<FramePool>& asked) {
  if (auto may = check_capabilities(options.name); !may) return std::move(may).error();
  const FrameShape& shape = asked->shape();
  auto eal = start_eal(host, uint64_t{shape.chunks} * (shape.stride + 256));
  if (!eal) return std::move(eal).error();
  auto name = look_up(options.name, *eal);
  if (!name) return std::move(name).error();
  if (open_names().contains(name->name)) return Error(fmt::format("DPDK port {} is open already", name->name));
  std::unique_ptr<Device> device;
  std::string said;
  auto done = run_aside(
      [&]() -> Result<void> {
        auto pool = pool_for(asked, eal->huge_pages);
        if (!pool) return std::move(pool).error();
        if (!name->arguments.empty()) {
          if (const int code = rte_dev_probe(name->arguments.c_str()); code != 0) {
            return Error(fmt::format("DPDK opens no port '{}': {}", options.name, rte_strerror(-code)),
                         "its drivers are packages of their own: apt-get install librte-meta-net");
          }
        }
        uint16_t port = 0;
        if (rte_eth_dev_get_port_by_name(name->name.c_str(), &port) != 0) {
          return Error(fmt::format("DPDK device '{}' is no Ethernet port", options.name));
        }
        rte_eth_dev_info info{};
        if (const int failed = rte_eth_dev_info_get(port, &info); failed != 0) {
          return Error(fmt::format("{}: no facts of the device: {}", options.name, rte_strerror(-failed)));
        }
        device = std::make_unique<Device>(name->name, port, info.device, *pool);
        return device->start(options, name->is_virtual, eal->huge_pages);
      },
      said);
  if (!done) {
    Error error = std::move(done).error();
    if (!said.empty()) error.message += fmt::format(" (DPDK says: {})", said);
    return error;
  }
  return std::unique_ptr<Port>(new DpdkPort(std::move(device)));
}

}  // namespace

}  // namespace sluice::dpdk

extern "C" {
extern __attribute__((visibility("default"))) const sluice::DpdkModule sluice_dpdk_module;
const sluice::DpdkModule sluice_dpdk_module = {SLUICE_DPDK_SEAM, &sluice::dpdk::open};
}
