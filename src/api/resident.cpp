// host only
// Tables in a device's memory, for keys and answers that lie there, too.
#include <mutex>

#include "api/border.h"
#include "api/device.h"
#include "exec/device/columns.h"

namespace sluice::api {

// One generation there. Whoever looks up in it holds it until its answers are there.
struct Loaded {
  std::shared_ptr<Resident> resident;
  StageSlot lookup{};
  RuleRanks ranks;
  uint64_t generation = 0;
};

namespace {

// Of a patched list. Errors: no memory on the device.
Result<RuleRanks> bring_ranks(Device& device, const RulePositions& positions, Resident& resident) {
  RuleRanks ranks;
  auto bring = [&](auto numbers) -> Result<const void*> {
    auto blob = device.allocate(MemorySpace::kDevice, numbers.size_bytes());
    if (!blob) return std::move(blob).error();
    if (auto ok = device.upload(**blob, 0, numbers.data(), numbers.size_bytes()); !ok) return std::move(ok).error();
    resident.blobs.push_back(*blob);
    return static_cast<const void*>((*blob)->device());
  };
  auto used = bring(positions.used());
  if (!used) return std::move(used).error();
  auto before = bring(positions.before());
  if (!before) return std::move(before).error();
  ranks.used = static_cast<const uint64_t*>(*used);
  ranks.before = static_cast<const uint32_t*>(*before);
  return ranks;
}

// Errors: a column that is not aligned to its type, which a kernel cannot read.
Result<DeviceColumn> column_of(const char* name, const sluice_column& given, size_t alignment) {
  const auto at = reinterpret_cast<uintptr_t>(given.data);
  if (given.data != nullptr && (at % alignment != 0 || static_cast<uint64_t>(given.stride) % alignment != 0)) {
    return bad_argument(std::string("the column `") + name + "` is not aligned: its address and its stride are to be " +
                        "multiples of " + std::to_string(alignment));
  }
  return DeviceColumn{static_cast<const uint8_t*>(given.data), given.stride};
}

Result<DeviceKeys> keys_of(const sluice_resident_keys& given, bool routes) {
  DeviceKeys keys;
  Result<void> result;
  auto take = [&](const char* name, const sluice_column& from, size_t alignment, DeviceColumn& to) {
    if (!result.ok()) return;
    auto column = column_of(name, from, alignment);
    if (column) {
      to = *column;
    } else {
      result = std::move(column).error();
    }
  };
  take("keys", given.keys, alignof(FlowKey), keys.keys);
  if (!result.ok()) return std::move(result).error();
  if (keys.keys) return keys;
  take("families", given.families, 1, keys.family);
  take("src4", given.src4, 4, keys.src4);
  take("dst4", given.dst4, 4, keys.dst4);
  take("src6", given.src6, 1, keys.src6);
  take("dst6", given.dst6, 1, keys.dst6);
  take("protocol", given.protocol, 1, keys.protocol);
  take("src_port", given.src_port, 2, keys.sport);
  take("dst_port", given.dst_port, 2, keys.dport);
  take("flags", given.flags, 2, keys.flags16);
  take("tcp_flags", given.tcp_flags, 1, keys.flags8);
  take("icmp", given.icmp, 2, keys.icmp);
  take("dscp", given.dscp, 1, keys.dscp);
  take("bits", given.bits, 1, keys.bits);
  if (!result.ok()) return std::move(result).error();
  if (!keys.family && given.family != 4 && given.family != 6) {
    return bad_argument("the field `family` is " + std::to_string(given.family) + ", not 4 or 6");
  }
  keys.one_family = static_cast<uint8_t>(given.family);
  keys.one_bits = static_cast<uint8_t>(given.all_bits);
  const bool four = keys.dst4 && (routes || keys.src4);
  const bool six = keys.dst6 && (routes || keys.src6);
  if (keys.family ? !four && !six : given.family == 4 ? !four : !six)
    return bad_argument("the columns of addresses are missing");
  // A key whose family has half of its addresses has none.
  if (!four) keys.src4 = keys.dst4 = DeviceColumn{};
  if (!six) keys.src6 = keys.dst6 = DeviceColumn{};
  return keys;
}

// Errors: an answer that the table does not have.
Result<ColumnAnswer> answer_of(uint32_t answer, bool routes) {
  if (!routes && answer == SLUICE_ANSWER_POSITION) return ColumnAnswer::kPosition;
  if (!routes && answer == SLUICE_ANSWER_ACTION) return ColumnAnswer::kAction;
  if (!routes && answer == SLUICE_ANSWER_MARK) return ColumnAnswer::kMark;
  if (routes && answer == SLUICE_ANSWER_NEXT_HOP) return ColumnAnswer::kNextHop;
  if (routes && answer == SLUICE_ANSWER_INDEX) return ColumnAnswer::kIndex;
  return bad_argument("the answer " + std::to_string(answer) + " is none of " + (routes ? "routes" : "an access list"));
}

}  // namespace

class ResidentTable {
 public:
  virtual ~ResidentTable() = default;

  Result<uint64_t> look_up(const sluice_resident_keys& keys, size_t n, uint32_t answer, void* answers, void* stream) {
    ColumnLookup work;
    auto wanted = answer_of(answer, routes_);
    if (!wanted) return std::move(wanted).error();
    auto given = keys_of(keys, routes_);
    if (!given) return std::move(given).error();
    work.keys = *given;
    work.answer = *wanted;
    work.answers = answers;
    work.n = n;
    const auto kept = keep_current_device();
    if (reinterpret_cast<uintptr_t>(answers) % answer_bytes(work.answer) != 0)
      return bad_argument("the memory for answers is not aligned to them");
    auto loaded = newest();
    if (!loaded) return std::move(loaded).error();
    if (n == 0) return (*loaded)->generation;
    work.ranks = (*loaded)->ranks;
    if (auto ok = device_->look_up((*loaded)->lookup, work, stream); !ok) return std::move(ok).error();
    return (*loaded)->generation;
  }
  Result<void*> stream() {
    const auto kept = keep_current_device();
    return device_->lookup_stream();
  }

 protected:
  ResidentTable(std::shared_ptr<Device> device, std::unique_ptr<LookupGraph> graph, bool routes)
      : device_(std::move(device)), graph_(std::move(graph)), routes_(routes) {}

  // What is looked up in now, in the device's memory.
  virtual Result<std::shared_ptr<const Loaded>> load_newest(const std::shared_ptr<const Loaded>& now) = 0;
  Result<std::shared_ptr<const Loaded>> load(TableSet tables, const RulePositions* positions, uint64_t generation) {
    auto loaded = std::make_shared<Loaded>();
    // The host's image is let go: what changes a table needs its room.
    std::unique_ptr<Snapshot> snapshot;
    auto resident = graph_->bring(*device_, std::move(tables), snapshot);
    if (!resident) return std::move(resident).error();
    const DeviceProgram& program = (*resident)->programs[graph_->node];
    loaded->lookup = program.program.stages[program.begin];
    if (positions != nullptr) {
      auto ranks = bring_ranks(*device_, *positions, **resident);
      if (!ranks) return std::move(ranks).error();
      loaded->ranks = *ranks;
    }
    loaded->resident = std::move(*resident);
    loaded->generation = generation;
    return std::shared_ptr<const Loaded>(std::move(loaded));
  }

 private:
  Result<std::shared_ptr<const Loaded>> newest() {
    const std::lock_guard lock(mutex_);
    auto loaded = load_newest(now_);
    if (loaded) now_ = *loaded;
    return loaded;
  }

  const std::shared_ptr<Device> device_;
  const std::unique_ptr<LookupGraph> graph_;
  const bool routes_;
  std::mutex mutex_;  // of `now_`, while it is brought up to date, too
  std::shared_ptr<const Loaded> now_;
};

namespace {

template <typename Opened>
class ResidentOf final : public ResidentTable {
 public:
  static constexpr bool kAcl = std::is_same_v<Opened, OpenedAcl>;
  ResidentOf(std::shared_ptr<Device> device, std::unique_ptr<LookupGraph> graph, std::shared_ptr<Table<Opened>> table)
      : ResidentTable(std::move(device), std::move(graph), !kAcl), table_(std::move(table)) {}

  static Result<std::unique_ptr<ResidentTable>> open(const sluice_device& device,
                                                     const std::shared_ptr<Table<Opened>>& table) {
    if (device.device == nullptr) {
      return Error("the cpu has no memory of its own",
                   "open cuda, cuda:N or emu, or look up by sluice_acl_classify and sluice_fib_lookup4");
    }
    if (table->ledger() != nullptr) {
      return Error("the list counts its packets, which lookups in a device's memory do not",
                   "open it without the option `count`");
    }
    auto graph = LookupGraph::make(kAcl ? LookupGraph::kAcl : LookupGraph::kFib);
    if (!graph) return std::move(graph).error();
    return std::unique_ptr<ResidentTable>(std::make_unique<ResidentOf>(device.device, std::move(*graph), table));
  }

 private:
  Result<std::shared_ptr<const Loaded>> load_newest(const std::shared_ptr<const Loaded>& now) override {
    auto [opened, generation] = table_->hold();
    if (now != nullptr && now->generation == generation) return now;
    TableSet tables;
    if constexpr (kAcl) {
      tables.acls[AclTable::name()] = opened->image;
      return load(std::move(tables), opened->positions.get(), generation);
    } else {
      tables.routes[FibTable::name()] = opened->image;
      return load(std::move(tables), nullptr, generation);
    }
  }

  const std::shared_ptr<Table<Opened>> table_;
};

}  // namespace
}  // namespace sluice::api

struct sluice_resident {
  std::unique_ptr<sluice::api::ResidentTable> table;
};

using namespace sluice;
using namespace sluice::api;

namespace {

template <typename Opened, typename Handle>
sluice_resident* open_resident(sluice_device* device, const Handle* handle, sluice_errors** errors) {
  return guarded<sluice_resident*>(errors, nullptr, [&]() -> Result<sluice_resident*> {
    if (device == nullptr || handle == nullptr) return bad_argument("the device or the table is NULL");
    auto table = ResidentOf<Opened>::open(*device, handle->table);
    if (!table) return std::move(table).error();
    return new sluice_resident{std::move(*table)};
  });
}

}  // namespace

extern "C" {

sluice_resident* sluice_resident_open_acl(sluice_device* device, const sluice_acl* acl, sluice_errors** errors) {
  return open_resident<OpenedAcl>(device, acl, errors);
}

sluice_resident* sluice_resident_open_fib(sluice_device* device, const sluice_fib* fib, sluice_errors** errors) {
  return open_resident<OpenedFib>(device, fib, errors);
}

void sluice_resident_free(sluice_resident* resident) {
  quiet(0, [&] {
    const auto kept = keep_current_device();
    return delete resident, 0;
  });
}

void* sluice_resident_stream(sluice_resident* resident, sluice_errors** errors) {
  return guarded<void*>(errors, nullptr, [&]() -> Result<void*> {
    if (resident == nullptr) return bad_argument("the table is NULL");
    return resident->table->stream();
  });
}

uint64_t sluice_resident_lookup(sluice_resident* resident, const sluice_resident_keys* keys, size_t n, uint32_t answer,
                                void* answers, void* stream, sluice_errors** errors) {
  return guarded<uint64_t>(errors, 0, [&]() -> Result<uint64_t> {
    if (resident == nullptr || keys == nullptr || (answers == nullptr && n != 0))
      return bad_argument("the table, the keys or the memory for answers is NULL");
    auto given = options_or(keys, sluice_resident_keys{});
    if (!given) return std::move(given).error();
    return resident->table->look_up(*given, n, answer, answers, stream);
  });
}

}  // extern "C"
