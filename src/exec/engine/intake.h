// host only
// Intake: where packets of a run come in. Reads sources in turn into jobs, and sorts packets by class where there are
// classes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/count.h"
#include "batch/batch.h"
#include "exec/engine/live_sleep.h"
#include "exec/engine/ports.h"
#include "exec/engine/run.h"
#include "memory/buffer.h"
#include "qos/priority_buffers.h"

namespace sluice {

class Egress;
class Publisher;
struct Job;
struct JobRings;
struct Plan;

enum class Polled : uint8_t {
  kFrames,  // some were read
  kIdle,    // there is nothing now: wait
  kFull,    // there is no place for more: work
  kBusy,    // another thread reads
  kAhead,   // another thread reads ahead at the source whose turn it is: look again in a moment
  kEnd,     // nothing comes any more
};

// One thread at a time. Jobs go to the rings as they become ready; a job that cannot be had without waiting for whoever
// writes the input holds back nothing.
class Intake {
 public:
  // Which sources of a run are its own: of `lanes` intakes number `lane` has the queues of live ports that are
  // congruent to it; the first has all sources that are no live ports.
  struct Share {
    LivePorts* live_ports = nullptr;  // none: the run has none
    unsigned lane = 0, lanes = 1;
  };
  // Opens the sources, but for those with which the graph of `before` goes on: these come with `follow`. The arguments
  // outlive it. Each that cannot be opened is added to `errors`.
  Intake(const Router& router, const Plan& plan, const RunOptions& options, const Share& share, Error& errors,
         const Intake* before = nullptr);
  std::vector<LinkType> links() const;

  // Before the first poll: the sources' own memory, where packets may stay there until they are through; `lends` says
  // for each whether they do. `chunks`: those of classes may, too.
  std::vector<LentMemory> lendable(bool chunks) const;
  void lend(const std::vector<bool>& lends);

  // What the intakes of a run have together.
  struct Shared {
    std::atomic<uint64_t> packets{0};  // that were read
    std::atomic<uint64_t> tickets{0};  // of jobs that pass elements in order, as of the graph that runs
  };
  // Before the first poll. `pinned`: jobs hold their generation until they are committed; else whoever polls runs them,
  // and says so by QSBR.
  // `numbered`: jobs of classes say which packets of the input they have (Egress::in_order).
  void connect(JobRings& rings, Egress& egress, const Publisher& publisher, bool pinned, Shared& shared, bool numbered);

  // Reads what there is, at most a batch. Never waits for whoever writes the input.
  Polled poll();
  // For whoever finds that another thread reads (kBusy, kAhead): reads a batch of a source whose turn comes later,
  // which waits there for its turn, so that several captures are read side by side and leave in the order of one
  // reader. Any thread. False: there is nothing to read ahead.
  bool read_ahead();
  // Hands on what was read, and reads nothing more. kIdle: nothing is left; kFull: there is no place for it yet.
  Polled settle();
  // Takes over from the intake that it was opened after, which is done then: settled, with no job on its way.
  void follow(Intake& before);
  // After kIdle: waits until there may be more, or a chunk's time is over, or for a moment, `at_most_ns`.
  void wait(uint64_t at_most_ns = ~uint64_t{0});
  // Whether the last poll said only which packets a job has, and whoever runs it copies them.
  bool took() const { return took_; }
  // Whether some of its sources are live ports.
  bool live() const { return live_; }
  // It has no source: of the queues of live ports there are fewer than intakes.
  bool empty() const { return sources_.empty(); }

  // What ended it: an error of an input, or of the system.
  const Result<void>& result() const { return result_; }
  bool damaged() const { return damaged_; }
  bool interrupted() const { return interrupted_; }
  // The memory that the next read takes packets from, for a prefetch; where one thread does all.
  std::span<const std::byte> next() const { return sources_[next_source_].port->next(); }
  // What devices that were given up may still write to.
  std::vector<Buffer> take_set_aside() { return std::move(set_aside_); }
  size_t set_aside_bytes() const;
  void close() {
    for (Source& source : sources_) source.port.reset();
  }

  // Counters. From any thread; of classes, packets and bytes.
  struct Read {
    uint64_t packets = 0, bytes = 0, refused = 0;
  };
  Read read_of(uint32_t qos_class) const;
  // Packets that found no place, as the source elements count them.
  void report(RunReport& report) const;

 private:
  struct Class {
    Job* open = nullptr;
    const uint16_t* rows = nullptr;  // of what was read: the first `count`
    uint32_t count = 0;
    uint32_t next = 0;             // of them: the first that has no place yet
    std::vector<uint16_t> sorted;  // memory of `rows`, where they are not all
    uint64_t refused_before = 0;   // by graphs before
    // Written by whoever polls, read by any thread.
    Count packets, bytes;
  };
  struct Refused {
    Count packets, bytes;
  };

  struct Ahead;
  struct Source;
  // What came of a look at the source whose turn it is.
  enum class Got : uint8_t { kPackets, kNothing, kEnd, kBusy, kError };

  Polled end();
  Polled fail(Result<void> why);
  bool choose_source();
  bool nothing(size_t& idle);
  void lie_close(const Source& source) const;
  uint32_t turn_of(size_t source) const;
  void next_turn();
  Result<bool> read(unsigned source, Batch& batch, uint64_t most, Job* job = nullptr);
  Got read_next(Source& source, Batch& batch, uint32_t most);
  Got take_ahead(Source& source, Job& job);
  Polled read_failed(Result<void> why);
  void hand_out(Job& job);
  void counted(unsigned source, uint32_t packets);
  Polled poll_job();
  Polled poll_classes();
  template <typename Came>
  void sort_read(const Came& came);
  template <typename Came>
  Polled distribute(const Came& came);
  Polled distribute();
  template <typename Came>
  Polled place(unsigned qos_class, const Came& came);
  void refuse(unsigned qos_class, uint32_t row, uint8_t* frame, uint32_t bytes);
  Polled open_chunk(unsigned qos_class);
  void hand_on(unsigned qos_class);
  void publish(Job& job, uint32_t qos_class);
  void follow(Job& job);
  void follow_some(Job& job);
  void note_fates(Job& job);

  const Router& router_;
  const Plan& plan_;
  const RunOptions& options_;
  JobRings* rings_ = nullptr;
  Egress* egress_ = nullptr;
  const Publisher* publisher_ = nullptr;
  bool pinned_ = true;
  bool copies_later_ = false;  // packets that lie in memory are copied by whoever runs their job
  bool took_ = false;          // the last job is such a one
  Shared* shared_ = nullptr;

  struct Source {
    Source();
    Source(Source&&) noexcept;
    Source& operator=(Source&&) noexcept;
    ~Source();

    bool lends = false;                 // packets stay in the source's memory, those of classes too
    std::unique_ptr<BatchSource> port;  // nullptr until `follow` where it goes on
    std::unique_ptr<Ahead> ahead;       // nullptr: nobody reads it ahead
    unsigned entry = 0;                 // where its packets enter the plan: an index into Plan::sources
    unsigned queue = 0;                 // of a live port
    LinkType link = LinkType::kEthernet;
    size_t goes_on = ~size_t{0};  // as which source of the intake before; ~0: it is new
    bool live = false;            // a live port
    bool done = false;
  };
  std::vector<Source> sources_;
  bool live_ = false;  // some of them are live ports
  size_t next_source_ = 0;
  std::atomic<uint32_t> turn_{0};  // the same, for those who read ahead
  uint32_t turn_left_ = 0;         // packets that it may still give before the next one's turn, where there are several
  LiveSleep sleep_;
  bool interrupted_ = false, damaged_ = false, ended_ = false;
  Result<void> result_;
  std::vector<Buffer> set_aside_;  // arenas of jobs, one a job at most

  // With classes: what was read, and how many packets of it have no place yet.
  bool close_ = false;  // frames of chunks may lie close
  Batch read_;
  uint32_t read_left_ = 0;
  unsigned read_source_ = 0;
  uint64_t read_ns_ = 0;
  bool numbered_ = false;
  uint64_t read_number_ = 0, next_number_ = 0;  // of the first packet of read_, and of the next read
  std::vector<uint64_t> skipped_;               // numbers of packets that found no place
  OpenChunks open_{1, 0};
  std::vector<std::unique_ptr<Class>> classes_;
  std::vector<std::unique_ptr<Refused>> refused_;  // by class and source
  uint64_t begin_ns_ = 0;                          // of the first poll
  uint64_t late_ns_ = 0;
};

}  // namespace sluice
