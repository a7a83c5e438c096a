// Tables behind the C handles: one table, its generations, and who reads them.
// host only
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/positions.h"
#include "api/readers.h"
#include "base/input_file.h"
#include "base/result.h"
#include "base/scope_exit.h"
#include "control/live_tables.h"
#include "elements/tables.h"
#include "exec/hits.h"
#include "exec/plan.h"
#include "exec/publisher.h"
#include "graph/router.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/sections.h"
#include "tables/lpm/algorithms.h"

namespace sluice::api {

// What lookups in one generation of an access list go by.
struct OpenedAcl {
  // `before`: the positions of an older generation, or nullptr.
  static Result<std::shared_ptr<OpenedAcl>> open(std::shared_ptr<const Image> image, const RulePositions* before);

  std::shared_ptr<const Image> image;
  AclView view;
  AclActionsView actions;
  AclRulesView rules;
  AclSourceView source;
  std::shared_ptr<RuleHits> hits;                  // nullptr: packets are not counted
  std::shared_ptr<const RulePositions> positions;  // nullptr: what lookups return are positions

  uint32_t size() const { return positions != nullptr ? positions->size() : rules.size(); }
  uint32_t position(uint32_t number) const { return positions != nullptr ? positions->position(number) : number; }
  // Precondition: 1 <= position <= size().
  uint32_t number(uint32_t position) const { return positions != nullptr ? positions->number(position) : position; }
};

// So many threads count at a time, each in counters of its own; more take turns.
inline constexpr unsigned kCountingSeats = 32;
struct alignas(64) CountingSeat {
  std::atomic<bool> taken{false};
};

struct OpenedFib {
  static Result<std::shared_ptr<OpenedFib>> open(std::shared_ptr<const Image> image);

  std::shared_ptr<const Image> image;
  NextHopNames names;
  std::function<void(const uint32_t* addresses, uint32_t* next_hops, size_t n)> lookup4;
  std::function<void(const uint64_t* hi, const uint64_t* lo, uint32_t* next_hops, size_t n)> lookup6;
};

// Where a table is read from: a file, or bytes with a name.
struct TableText {
  std::string name;
  std::optional<std::span<const std::byte>> bytes;
};

// One table and its generations. Lookups from any thread; what changes it takes turns.
template <typename Opened>
class Table {
 public:
  // `declaration` says all but the name. Errors: those of the file; of the builder; unknown algorithms.
  static Result<std::shared_ptr<Table>> load(TableDeclaration declaration, const TableText& from, bool count);
  ~Table() { delete current_.load(); }

  // Calls f(opened) over the current generation, which lasts as long, and returns its number. `long_work`: a change of
  // the table need not wait for it. f is called at one place, so that it becomes part of its caller.
  template <typename F>
  [[gnu::always_inline]] uint64_t read(bool long_work, F&& f) const {
    Reading reading;
    const Generation& now = *current_.load(std::memory_order_acquire);
    const Held held(long_work ? &now : nullptr);
    if (long_work) [[unlikely]]
      reading.leave();
    f(*now.opened);
    return now.number;
  }
  // The current generation, as long as it is wanted.
  std::pair<std::shared_ptr<const Opened>, uint64_t> hold() const {
    const Reading reading;
    const Generation& now = *current_.load(std::memory_order_acquire);
    return {now.opened, now.number};
  }

  // Runs f(LiveTables&), one at a time. What it has published is current when this returns, also by an exception.
  template <typename F>
  auto change(F&& f) {
    const std::lock_guard lock(writers_);
    wait_for_long_work();
    next_.reset();
    const ScopeExit done([&] { take_over(); });
    try {
      return f(live());
    } catch (...) {
      // Without memory in the middle of a change, what it was made in is of no use any more.
      live_.reset();
      throw;
    }
  }
  static constexpr const char* name() { return std::is_same_v<Opened, OpenedAcl> ? "acl" : "fib"; }
  HitLedger* ledger() const { return ledger_.get(); }

 private:
  struct Generation {
    std::shared_ptr<const Opened> opened;
    uint64_t number = 0;
    mutable std::atomic<uint64_t> in_flight{0};  // long work
  };
  // Long work in a generation, or nullptr: its making is within a reading of it.
  struct Held {
    explicit Held(const Generation* of) : now(of) {
      if (now != nullptr) now->in_flight.fetch_add(1, std::memory_order_relaxed);
    }
    ~Held() {
      if (now != nullptr) now->in_flight.fetch_sub(1, std::memory_order_release);
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    const Generation* now;
  };

  Table() = default;
  void prepare(Snapshot& snapshot);
  // Made anew from the tables that are published where a change has left it half done: rules are in the image; routes
  // are not, and have to be replaced.
  LiveTables& live();
  void take_over() noexcept;
  void wait_for_long_work();
  void reap();

  // A graph without elements: a generation is its tables.
  const Router router_{};
  const Plan plan_{};
  std::unique_ptr<HitLedger> ledger_;
  std::atomic<const Generation*> current_{nullptr};
  std::mutex writers_;  // all below
  Publisher publisher_;
  std::unique_ptr<LiveTables> live_;  // or nullptr
  std::vector<TableLoad> loads_;
  std::shared_ptr<const RulePositions> positions_;  // of the newest generation
  std::unique_ptr<Generation> next_;                // is published and not current yet
  std::vector<std::unique_ptr<const Generation>> retired_;
};

// From so many keys on a lookup is work that a change does not wait for.
inline constexpr size_t kLongAclLookup = 4096;
inline constexpr size_t kLongFibLookup = 16'384;

using AclTable = Table<OpenedAcl>;
using FibTable = Table<OpenedFib>;

}  // namespace sluice::api

struct sluice_acl {
  std::shared_ptr<sluice::api::AclTable> table;
  std::string format;
  std::shared_ptr<sluice::api::CountingSeat[]> seats;  // where packets are counted
};

struct sluice_fib {
  std::shared_ptr<sluice::api::FibTable> table;
};
