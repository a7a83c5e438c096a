// host only
// Live ports: interfaces of a machine as queues of frames. One folder for each method (AF_XDP, AF_PACKET, TAP, DPDK,
// libpcap).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "batch/batch.h"
#include "memory/frame_pool.h"

namespace sluice {

enum class PortMethod : uint8_t {
  kAuto,
#define SLUICE_PORT_METHOD(method, name, open, examine, automatic) method,
#include "ports/methods.inc"
#undef SLUICE_PORT_METHOD
};

// What is asked of a port. Zero or empty: the method's default.
struct PortOptions {
  std::string name;  // interface, or a DPDK port: a number, a PCI address, a virtual device with its arguments
  PortMethod method = PortMethod::kAuto;
  unsigned queues = 1;  // for RX and for TX
  uint32_t rx_ring = 0, tx_ring = 0;
  bool receives = true, sends = true;
  bool promiscuous = false;
  bool hardware_timestamps = false;  // of every packet, by the NIC's clock
  enum class XdpMode : uint8_t { kAuto, kNative, kGeneric } xdp_mode = XdpMode::kAuto;
  // ARP, ND, LLDP and packets to the device's own addresses go to the kernel.
  bool kernel_gets_own = true;
};

// What a port is, for reports and `sluice doctor`.
struct PortFacts {
  std::string name;
  const char* method = "";  // "af_xdp"
  std::string mode;         // "native, copy", "generic", "TPACKET_V3": what the kernel granted
  int ifindex = 0;          // 0: no interface of the kernel
  std::array<uint8_t, 6> mac{};
  uint32_t mtu = 0;  // bytes of an IP packet
  unsigned rx_queues = 0, tx_queues = 0;
  bool up = false;
  bool hardware_timestamps = false;
};

// Counters of one queue. Written by the thread that has the queue, read by any.
struct RxCounters {
  uint64_t packets = 0, bytes = 0;
  uint64_t missed = 0;    // the kernel or the NIC had no room: the run was too slow
  uint64_t too_long = 0;  // larger than a chunk: merged on their way (TSO, GRO), or the MTU has grown
  uint64_t invalid = 0;   // no whole frame, or refused by the kernel
};
struct TxCounters {
  uint64_t packets = 0, bytes = 0;
  uint64_t full = 0;    // not taken: the ring was full
  uint64_t failed = 0;  // taken, then refused by the kernel or the NIC
};

enum class RxState : uint8_t {
  kFrames,
  kIdle,  // nothing now
  kDown,  // nothing, and the link is down: it may come back
  kGone,  // the interface was removed
};

// Frames that come in by one queue of a port, in their order. One thread at a time.
class RxQueue {
 public:
  virtual ~RxQueue() = default;
  // Fills rows [0, n) with up to `most` frames and returns n; never waits. The frames are the caller's from here on: he
  // gives each back to `pool`, or to a TxQueue that takes frames of that pool. A frame has kHeadroom bytes before it
  // and kTailroom behind it. Time stamps are `now_ns`, or the hardware's where PortFacts says so. VLAN tags are in the
  // frame; checksums that the sender left to hardware are complete.
  virtual uint32_t poll(const Batch::Rows& rows, uint32_t most, uint64_t now_ns) = 0;
  // After a poll that gave nothing.
  virtual RxState state() = 0;
  // Whose the frames are.
  virtual FramePool& pool() = 0;
  // A descriptor that becomes readable when frames come; -1: there is none, and the queue has to be polled.
  virtual int wait_fd() const = 0;
  // Before the caller sleeps on wait_fd. False: frames have come meanwhile.
  virtual bool arm() = 0;
  virtual RxCounters counters() const = 0;
};

// A frame to send. `pool`: whose chunk it lies in; nullptr: memory of the caller's, which is copied.
struct TxFrame {
  uint8_t* data;
  uint32_t bytes;
  FramePool* pool;
};

// Frames that leave by one queue of a port. One thread at a time.
class TxQueue {
 public:
  virtual ~TxQueue() = default;
  // Takes the first n frames, in their order, and returns n: fewer than all where the ring is full, and nobody waits.
  // Those that lie in a chunk of `pool` are the queue's from here on, and it gives them back; the others were copied.
  virtual uint32_t send(std::span<const TxFrame> frames) = 0;
  // Makes the port send what it was given. After each run of `send`.
  virtual void flush() = 0;
  // The pool whose frames are sent where they lie; nullptr: every frame is copied.
  virtual FramePool* pool() = 0;
  // Frames that were taken and have not left yet. Gives back those that have.
  virtual uint64_t in_flight() = 0;
  virtual TxCounters counters() const = 0;
};

// One device, open. Queues live no longer than their port; open_rx and open_tx of the same number may share a socket.
class Port {
 public:
  virtual ~Port() = default;
  virtual Result<std::unique_ptr<RxQueue>> open_rx(unsigned queue) = 0;
  virtual Result<std::unique_ptr<TxQueue>> open_tx(unsigned queue) = 0;
  // As of now.
  virtual PortFacts facts() const = 0;
  // Addresses were added to the device or taken from it: the kernel gets packets to those it has now.
  virtual Result<void> addresses_changed() { return {}; }
  // The interface was removed, or is in another network namespace: what this port left at it is taken away, so that
  // another port may be opened where it comes back. Queues stay as they are. From one thread at a time, any.
  virtual void interface_gone() {}
};

// "af_xdp", as on the command line.
const char* to_string(PortMethod method);
// Those of all methods, without "auto".
std::vector<std::string> port_method_names();
// Errors: no such method, with their names.
Result<PortMethod> parse_port_method(std::string_view text);

// Queues that a port has at most.
inline constexpr unsigned kMaxPortQueues = 64;

// Opens a port; frames come in chunks of `pool` where the method receives into memory that it is given. Without a
// method the fastest that works here: AF_XDP, AF_PACKET, libpcap. Errors: no such interface; what is missing (a
// capability, the kernel's support, a driver), with the command that gives it; rings or frames of a size that the
// method does not take.
Result<std::unique_ptr<Port>> open_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool);

}  // namespace sluice
