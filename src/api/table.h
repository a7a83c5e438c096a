// Tables behind the C handles: one table, its generations, and who reads them.
// host only
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/positions.h"
#include "api/readers.h"
#include "base/input_file.h"
#include "base/result.h"
#include "base/scope_exit.h"
#include "control/live_tables.h"
#include "elements/tables.h"
#include "exec/account/hits.h"
#include "exec/engine/publisher.h"
#include "exec/walk/plan.h"
#include "graph/router.h"
#include "tables/acl/algorithms.h"
#include "tables/acl/sections.h"
#include "tables/lpm/algorithms.h"

namespace sluice::api {

// What lookups in one generation of an access list go by.
struct OpenedAcl {
  // `before`: the positions of an older generation, or nullptr.
  static Result<OpenedAcl> open(std::shared_ptr<const Image> image, const RulePositions* before);

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

// The bulk lookup of some algorithm's view, which it has in itself: a call finds it where its caller is.
template <typename... Arguments>
class BulkLookup {
 public:
  BulkLookup() = default;
  template <typename View>
  explicit BulkLookup(const View& view)
      : call_([](const std::byte* at, Arguments... arguments) {
          reinterpret_cast<const View*>(at)->lookup_bulk(arguments...);
        }) {
    static_assert(sizeof(View) <= sizeof view_ && alignof(View) <= 16 && std::is_trivially_copyable_v<View>);
    new (view_) View(view);
  }
  void operator()(Arguments... arguments) const { call_(view_, arguments...); }

 private:
  void (*call_)(const std::byte* view, Arguments...) = nullptr;
  alignas(16) std::byte view_[128];
};

struct OpenedFib {
  static Result<OpenedFib> open(std::shared_ptr<const Image> image);

  std::shared_ptr<const Image> image;
  NextHopNames names;
  BulkLookup<const uint32_t*, uint32_t*, size_t> lookup4;                   // addresses, next hops, how many
  BulkLookup<const uint64_t*, const uint64_t*, uint32_t*, size_t> lookup6;  // upper and lower halves
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

  // Calls f(opened) over the current generation, which lasts as long, and returns its number. `long_work`: a change of
  // the table need not wait for it. f is called at one place, so that it becomes part of its caller.
  template <typename F>
  [[gnu::always_inline]] uint64_t read(bool long_work, F&& f) const {
    Reading reading;
    const Generation& now = *current_.load(std::memory_order_acquire);
    const Held held(long_work ? &now : nullptr);
    if (long_work) [[unlikely]]
      reading.leave();
    f(now.opened);
    return now.number;
  }
  // The current generation, as long as it is wanted.
  std::pair<std::shared_ptr<const Opened>, uint64_t> hold() const {
    const Reading reading;
    const Generation& now = *current_.load(std::memory_order_acquire);
    return {{now.shared_from_this(), &now.opened}, now.number};
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
  struct Generation : std::enable_shared_from_this<Generation> {
    Opened opened;
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
  std::shared_ptr<Generation> next_;                // is published and not current yet
  std::shared_ptr<const Generation> newest_;        // what current_ points to
  std::vector<std::shared_ptr<const Generation>> retired_;
  std::vector<std::shared_ptr<const Generation>> unsure_;  // somebody may read them still, and nobody can say
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
