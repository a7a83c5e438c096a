// host only
// Flow elements: what a class implements that keeps packets, pulls them, or acts by time, and what it may do. The
// packet scheduler (exec/scheduler) runs them one packet at a time, on one thread.
//
// Source: push, pull and agnostic ports, tasks and handlers are those of Kohler et al., "The Click Modular Router"
// (ToCS 2000); nothing of its notifier lists is here, see docs/design/scheduling.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/result.h"
#include "batch/packet.h"

namespace sluice {

class FlowPool;
struct ReturnToPool;

// One packet with its bytes: kHeadroom before registers.frame, at least kTailroom after registers.end.
struct FlowPacket {
  Packet registers;
  uint64_t timestamp_ns = 0;
  uint8_t generation = 0;  // 0: it came in; else that of the packet that it was made of, and 1
  static constexpr uint16_t kNoInput = 0xffff;
  uint16_t input = kNoInput;  // that it came in by, a number of the packet scheduler; kNoInput: an element made it

 private:
  friend class FlowPool;
  friend struct ReturnToPool;
  std::unique_ptr<uint8_t[]> storage_;
  size_t bytes_ = 0;  // of storage_
  FlowPool* pool_ = nullptr;
};

struct ReturnToPool {
  void operator()(FlowPacket* packet) const;
};
using PacketBox = std::unique_ptr<FlowPacket, ReturnToPool>;

// Packets are reused. The pool lasts until its owner has let it go and every box is gone.
class FlowPool {
 public:
  struct LetGo {
    void operator()(FlowPool* pool) const;
  };
  using Owner = std::unique_ptr<FlowPool, LetGo>;
  static Owner create() { return Owner(new FlowPool); }

  // A packet of `bytes` bytes without contents; its head room is zeros. nullptr: no memory.
  PacketBox make(size_t bytes);
  // The same bytes (with what stands in front of them), registers and time stamp.
  PacketBox clone(const FlowPacket& from);
  // Packets that are in somebody's hands.
  uint64_t live() const { return live_; }

 private:
  friend struct ReturnToPool;
  static constexpr size_t kKept = 4096;
  FlowPool() = default;
  std::vector<std::unique_ptr<FlowPacket>> free_;
  uint64_t live_ = 0;
  bool let_go_ = false;
};

// What a flow element may do. One of each element, for as long as the scheduler lives.
class FlowContext {
 public:
  virtual ~FlowContext() = default;
  // Hands a packet on; by an output without a successor it is dropped with its reason, or as unconnected.
  virtual void push(unsigned output, PacketBox packet) = 0;
  // Whether `output` hands packets on; else, or where nothing is connected, it is asked for them.
  virtual bool pushes(unsigned output) const = 0;
  // Asks what is above a pull input; nothing: empty.
  virtual PacketBox pull(unsigned input) = 0;
  virtual void drop(PacketBox packet, DropReason reason) = 0;
  // A new packet with a copy of `frame`, counted as come in at this element; its time stamp is now. nullptr: no memory.
  virtual PacketBox bring(std::span<const uint8_t> frame) = 0;
  // The packet has left the graph here.
  virtual void sent(PacketBox packet) = 0;

  // Nanoseconds of the run's clock.
  virtual uint64_t now_ns() const = 0;
  // Whether that clock is the packets' own: it shows the latest time stamp of those that have come in, and what is due
  // before a packet comes happens before.
  virtual bool packet_clock() const = 0;
  // Whether, besides, nothing but a shaper keeps packets: each comes to every element at its own time stamp.
  virtual bool packet_time() const = 0;
  // An element that brings packets in: the next has this time stamp. False: it is not its time yet; the element's task
  // is woken when it is.
  virtual bool comes(uint64_t timestamp_ns) = 0;
  // Puts the element's task into the ring, if it is not there.
  virtual void wake() = 0;
  // The element's one timer; a later call replaces an earlier one. The past means soon.
  virtual void set_timer(uint64_t at_ns) = 0;
  virtual void cancel_timer() = 0;
  // Within `pull`: this element refused and will not before `at_ns`. Whoever asked is woken then.
  virtual void retry_at(uint64_t at_ns) = 0;
  // Whether every queue that packets pushed by `output` reach first is full.
  virtual bool full_below(unsigned output) const = 0;
  // The element's queue got its first packet: wakes the tasks that pull from it. It got room: those that push into it.
  virtual void has_packets() = 0;
  virtual void has_room() = 0;
  // Asks the run to stop. A driver script, if there is one, decides.
  virtual void stop() = 0;
  // Ends the run, whatever scripts say.
  virtual void end() = 0;

  // Handlers by name, as from this element: `name` is "element.handler" (looked for in the compounds around this one
  // first) or a handler of the router.
  virtual Result<std::string> read(std::string_view name, std::string_view argument) = 0;
  virtual Result<void> write(std::string_view name, std::string_view value) = 0;
  virtual bool has_handler(std::string_view name, bool writes) const = 0;
  // "outer/element.handler" for what `name` means here, for messages.
  virtual std::string handler_name(std::string_view name) const = 0;

  // What reached this element and what it dropped.
  virtual uint64_t packets() const = 0;
  virtual uint64_t bytes() const = 0;
  virtual uint64_t dropped() const = 0;
  // A stage changed: it is bound anew.
  virtual Result<void> rebind() = 0;

  // Output for people.
  virtual void print_out(std::string_view text) = 0;
  virtual void print_error(std::string_view text) = 0;
};

// A named function of an element that others may call.
struct Handler {
  std::string name;
  std::function<Result<std::string>(FlowContext&, std::string_view argument)> read;  // empty: cannot be read
  std::function<Result<void>(FlowContext&, std::string_view value)> write;           // empty: cannot be written
};

class Flow {
 public:
  virtual ~Flow() = default;
  // Once, when every element is there, in graph order. An element with a task calls context.wake() when it has to run.
  virtual Result<void> start(FlowContext&) { return {}; }
  // Once, after `start` and before anything else, when the graph follows another one: `from` is the element of the same
  // name and class there, which had another configuration or other ports (one that had the same goes on as it is). It
  // takes what that one counted and kept, as far as its own configuration allows.
  virtual void take(FlowContext&, Flow& from) { (void)from; }
  // A packet came in by a push input.
  virtual void push(FlowContext& context, unsigned input, PacketBox packet) {
    (void)input;
    context.drop(std::move(packet), DropReason::kDiscard);
  }
  // Somebody asks for a packet of a pull output.
  virtual PacketBox pull(FlowContext&, unsigned output) {
    (void)output;
    return nullptr;
  }
  // A turn. True: it did something and wants another one.
  virtual bool task(FlowContext&) { return false; }
  virtual void timer(FlowContext&) {}
  // What the element has to do with the run's clock.
  enum class Time : uint8_t {
    kNone,   // nothing: it hands packets on at once, or keeps them until somebody asks
    kWaits,  // it waits for a time, and does nothing else to packets
    kLooks,  // what it does to packets depends on the time
    kMakes,  // it makes packets that have no time of their own
  };
  virtual Time time() const { return Time::kNone; }
  // The clock is that of the packets, and the first of them comes now: no time has passed before.
  virtual void clock_begins(FlowContext&) {}
  // A stage: adds what passed it to its counts, in place of `push`. A sum of runs; one may be taken back, as what is
  // below zero modulo 2^64. False: it does more than count, so that every packet has to come by `push`.
  virtual bool counted(uint64_t packets, uint64_t bytes) {
    (void)packets;
    (void)bytes;
    return false;
  }
  // Packets it holds.
  virtual uint64_t held() const { return 0; }
  // A queue: whether a push would be refused.
  virtual bool full() const { return false; }
  // Whether pushers are held back while it is full.
  virtual bool holds_back() const { return false; }
  // Driver scripts are told of requests to stop and decide.
  virtual bool manages_stop() const { return false; }
  virtual void stop_requested(FlowContext&) {}
  // A signal that this element waits for; true: it was taken.
  virtual bool wants_signal(int signal) const {
    (void)signal;
    return false;
  }
  virtual void signal(FlowContext&, int signal) { (void)signal; }
  // What is written at the end of a run is on the disk.
  virtual Result<void> finish(FlowContext&) { return {}; }
  // After it, the file that is to appear; nullptr: none.
  virtual AtomicFile* file() { return nullptr; }
};

}  // namespace sluice
