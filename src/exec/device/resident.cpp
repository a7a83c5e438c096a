// host only
#include "exec/device/resident.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/assert.h"
#include "elements/stages.h"
#include "exec/device/constant_bank.h"
#include "exec/device/kernels_there.h"
#include "exec/device/trace.h"
#include "tables/replica.h"

namespace sluice {
namespace {

template <typename Stage>
void visit_stage(StageSlot& slot, PointerVisitor& visitor) {
  if constexpr (kHasPointers<Stage>) {
    Stage stage;
    std::memcpy(&stage, slot.storage, sizeof stage);
    stage.each_pointer([&]<typename T>(const T*& pointer, uint32_t count = 0) {
      pointer = static_cast<const T*>(visitor.moved(pointer, size_t{count} * sizeof(T)));
    });
    std::memcpy(slot.storage, &stage, sizeof stage);
  }
}

// A copy costs about what so many bytes of one cost.
constexpr uint64_t kPatchGap = 32 * 1024;

// The copy for one more generation: until the last pointer to it is let go, on any thread.
std::shared_ptr<DeviceBlob> hold(const std::shared_ptr<DeviceImages::Patched>& copy) {
  copy->holders.fetch_add(1, std::memory_order_relaxed);
  return {copy->blob.get(), [copy](DeviceBlob*) { copy->holders.fetch_sub(1, std::memory_order_release); }};
}

// The device's copy of a replica: one that has this version, one that nobody uses any more and that gets what changed
// since, or a new one.
Result<std::shared_ptr<DeviceBlob>> bring_patched(Device& device, const Image& image, size_t& uploaded) {
  auto& all = device.images().patched;
  const auto bytes = image.bytes();
  std::shared_ptr<DeviceImages::Patched> spare;
  for (const auto& each : all) {
    if (each->log.lock() != image.patches()) continue;
    if (each->version == image.version()) return hold(each);
    // Of those that no generation holds, the one that misses least. What was read of it happened before.
    if (each->holders.load(std::memory_order_acquire) != 0) continue;
    if (spare == nullptr || spare->version < each->version) spare = each;
  }
  if (spare == nullptr) {
    auto made = device.allocate(MemorySpace::kDevice, bytes.size());
    if (!made) return std::move(made).error();
    spare = std::make_shared<DeviceImages::Patched>();
    spare->log = image.patches();
    spare->blob = std::move(*made);
    all.push_back(spare);
  }
  const auto changed = spare->version == 0 ? std::nullopt : image.patches()->between(spare->version, image.version());
  std::vector<Patch> parts{{0, bytes.size()}};
  if (changed) parts = join_patches(*changed, kPatchGap);
  spare->version = 0;  // until it is whole
  for (const Patch& part : parts) {
    const size_t n = std::min<size_t>(part.bytes, bytes.size() - part.offset);
    uploaded += n;
    if (auto ok = device.upload(*spare->blob, part.offset, bytes.data() + part.offset, n); !ok) {
      return std::move(ok).error();
    }
  }
  spare->version = image.version();
  return hold(spare);
}

// Translates host pointers into the copies' addresses, copying what is not there yet.
class Mover final : public PointerVisitor {
 public:
  Mover(Device& device, Resident& resident) : device_(device), resident_(resident) {}

  struct Region {
    const std::byte* from;
    size_t bytes;
    std::byte* to;
  };
  std::vector<Region> regions;
  Result<void> result;
  // Makes the image resident that `at` points into: adds its region, or leaves things as they are when there is none.
  std::function<Result<void>(const std::byte* at)> bring;

  const void* moved(const void* pointer, size_t bytes) override {
    if (pointer == nullptr || !result.ok()) return nullptr;
    const auto* at = static_cast<const std::byte*>(pointer);
    if (const void* to = find(at)) return to;
    if (result = bring(at); !result.ok()) return nullptr;
    if (const void* to = find(at)) return to;
    if (bytes == 0) {
      // A pointer into none of the generation's images.
      result = Error("a stage points outside of its tables");
      return nullptr;
    }
    auto blob = device_.allocate(MemorySpace::kDevice, bytes);
    if (!blob) {
      result = std::move(blob).error();
      return nullptr;
    }
    if (auto ok = device_.upload(**blob, 0, pointer, bytes); !ok) {
      result = std::move(ok);
      return nullptr;
    }
    regions.push_back({at, bytes, static_cast<std::byte*>((*blob)->device())});
    resident_.bytes += bytes;
    resident_.uploaded_bytes += bytes;
    resident_.blobs.push_back(std::move(*blob));
    return resident_.blobs.back()->device();
  }

 private:
  const void* find(const std::byte* at) const {
    // An empty array may begin where its image ends.
    for (const bool at_end : {false, true}) {
      for (const Region& r : regions) {
        if (at >= r.from && (at < r.from + r.bytes || (at_end && at == r.from + r.bytes))) return r.to + (at - r.from);
      }
    }
    return nullptr;
  }

  Device& device_;
  Resident& resident_;
};

// The tables of the kind-th kind; nullptr past the last.
const decltype(TableSet::acls)* tables_of(const TableSet& tables, size_t kind) {
  const decltype(TableSet::acls)* const all[] = {&tables.acls, &tables.routes, &tables.adjacencies};
  return kind < std::size(all) ? all[kind] : nullptr;
}

// What the stages of one program read of their tables: whole sections and arrays, one behind the other. Programs are
// visited twice: to find them (before `place`), and to point their stages there.
class PackedTables final : public PointerVisitor {
 public:
  explicit PackedTables(const TableSet& tables) : tables_(tables) {}

  const void* moved(const void* pointer, size_t bytes) override {
    if (pointer == nullptr || !result.ok()) return pointer;
    const auto* at = static_cast<const std::byte*>(pointer);
    // An empty array may begin where its section ends, which may be where another begins.
    const Part* part = nullptr;
    for (const bool at_end : {false, true}) {
      if (part == nullptr) part = find(at, at_end);
      if (part == nullptr) part = add(at, at_end);
    }
    if (part == nullptr && bytes != 0) part = append("an element's own", at, bytes);
    if (part == nullptr) {
      // A pointer into none of the generation's images.
      result = Error("a stage points outside of its tables");
      return pointer;
    }
    return to_ == nullptr ? pointer : to_ + part->place + (at - part->from);
  }

  size_t bytes() const { return parts_.empty() ? 0 : parts_.back().place + parts_.back().bytes; }
  // "fib (1200 bytes), edge (800 bytes)"
  std::string names() const {
    std::string text;
    for (size_t p = 0; p < parts_.size(); ++p) {
      size_t bytes = 0;
      bool before = false;
      for (size_t k = 0; k < parts_.size(); ++k) {
        if (parts_[k].name != parts_[p].name) continue;
        before |= k < p;
        bytes += parts_[k].bytes;
      }
      if (!before) text += fmt::format("{}{} ({} bytes)", text.empty() ? "" : ", ", parts_[p].name, bytes);
    }
    return text;
  }
  std::vector<std::byte> packed() const {
    std::vector<std::byte> all(bytes());
    for (const Part& part : parts_) std::memcpy(all.data() + part.place, part.from, part.bytes);
    return all;
  }
  void place(const std::byte* to) { to_ = to; }

  Result<void> result;

 private:
  struct Part {
    std::string name;
    const std::byte* from;
    size_t bytes;
    size_t place;
  };

  static bool within(const std::byte* at, std::span<const std::byte> bytes, bool at_end) {
    const std::byte* const end = bytes.data() + bytes.size();
    return at >= bytes.data() && (at < end || (at_end && at == end));
  }
  const Part* find(const std::byte* at, bool at_end) const {
    for (const Part& p : parts_) {
      if (within(at, {p.from, p.bytes}, at_end)) return &p;
    }
    return nullptr;
  }
  const Part* add(const std::byte* at, bool at_end) {
    for (size_t kind = 0; const auto* named = tables_of(tables_, kind); ++kind) {
      for (const auto& [name, image] : *named) {
        for (const ImageSection& s : image->sections()) {
          const auto section = image->section(static_cast<SectionTag>(s.tag));
          if (within(at, section, at_end)) return append(name, section.data(), section.size());
        }
      }
    }
    return nullptr;
  }
  const Part* append(std::string name, const std::byte* from, size_t bytes) {
    const size_t place = (this->bytes() + kTableAlign - 1) / kTableAlign * kTableAlign;
    parts_.push_back({std::move(name), from, bytes, place});
    return &parts_.back();
  }

  const TableSet& tables_;
  std::vector<Part> parts_;
  const std::byte* to_ = nullptr;
};

void visit_stages(DeviceProgram& program, PointerVisitor& visitor) {
  for (uint32_t s = program.begin; s < program.end; ++s) visit_pointers(program.program.stages[s], visitor);
}

// Stages that stay on the host must not lead anywhere from a device.
void clear_others(DeviceProgram& program) {
  for (uint32_t s = 0; s < program.program.stage_count; ++s) {
    if (s < program.begin || s >= program.end) std::memset(program.program.stages[s].storage, 0, StageSlot::kStorage);
  }
}

// The tables of a program, and whether there is room for them beside `used` bytes of other programs.
Result<PackedTables> pack_tables(const Device& device, const Snapshot& snapshot, const Offload& offload,
                                 DeviceProgram& program, size_t used) {
  const TableMemory memory = device.table_memory();
  PackedTables tables(snapshot.tables);
  visit_stages(program, tables);
  if (!tables.result.ok()) return std::move(tables.result).error();
  const RecordKind kind = offload.keys ? RecordKind::kKey4 : offload.shape.kind;
  const size_t room = offload.shape.sums != 0 ? 0 : table_room(memory, kind, device.info().shared_bytes);
  if (room == 0) {
    return Error(fmt::format("tables in {} memory: kernels that take {} records read global memory alone",
                             to_string(memory), to_string(kind)),
                 "use --records key or frame, or --table-memory global");
  }
  if (tables.bytes() > room - std::min(room, used)) {
    return Error(fmt::format("tables do not fit {} memory: {} are {} bytes packed{}, and there is room for {} bytes",
                             to_string(memory), tables.names(), tables.bytes(),
                             used != 0 ? fmt::format(", beside {} bytes of other segments", used) : "", room),
                 "use --table-memory global, or tables that take less (of routes, trie)");
  }
  return tables;
}

// One program's tables, where device.table_memory() says.
Result<void> bring_packed(Device& device, const Snapshot& snapshot, const Offload& offload, DeviceProgram& program,
                          Resident& resident) {
  const TableMemory memory = device.table_memory();
  auto tables = pack_tables(device, snapshot, offload, program, 0);
  if (!tables) return std::move(tables).error();
  program.memory = memory;
  if (tables->bytes() == 0) return {};
  const std::vector<std::byte> packed = tables->packed();
  auto blob = device.allocate(memory == TableMemory::kConstant ? MemorySpace::kConstant : MemorySpace::kDevice,
                              (packed.size() + 15) / 16 * 16);
  if (!blob) return std::move(blob).error();
  if (auto ok = device.upload(**blob, 0, packed.data(), packed.size()); !ok) return ok;
  const auto* const to = static_cast<const std::byte*>((*blob)->device());
  tables->place(to);
  visit_stages(program, *tables);
  program.tables = memory == TableMemory::kConstant ? device.constant_memory() : to;
  program.table_bytes = static_cast<uint32_t>(packed.size());
  resident.bytes += packed.size();
  resident.uploaded_bytes += packed.size();
  resident.blobs.push_back(std::move(*blob));
  return {};
}

}  // namespace

Result<void> check_tables(const Device& device, const Snapshot& snapshot, const Plan& plan,
                          const std::vector<Offload>& offloads) {
  size_t used = 0;
  for (size_t n = 0; n < plan.nodes.size(); ++n) {
    if (!offloads[n].on_device) continue;
    DeviceProgram program = device_program(plan.nodes[n], snapshot.programs[plan.nodes[n].program], offloads[n]);
    const RecordKind kind = offloads[n].keys ? RecordKind::kKey4 : offloads[n].shape.kind;
    if (auto ok = check_program(kind, program); !ok) return ok;
    if (device.table_memory() == TableMemory::kGlobal) continue;
    auto tables = pack_tables(device, snapshot, offloads[n], program, used);
    if (!tables) return std::move(tables).error();
    if (device.table_memory() == TableMemory::kConstant)
      used += (tables->bytes() + ConstantBank::kAlign - 1) / ConstantBank::kAlign * ConstantBank::kAlign;
  }
  return {};
}

void visit_pointers(StageSlot& slot, PointerVisitor& visitor) {
  using Visit = void (*)(StageSlot&, PointerVisitor&);
  static constexpr auto kVisits =
      AllStages::table<Visit>([]<typename Stage>(TypeTag<Stage>) { return &visit_stage<Stage>; });
  SLUICE_CHECK(slot.kind < kVisits.size());
  kVisits[slot.kind](slot, visitor);
}

DeviceProgram device_program(const PlanNode& node, const Program& program, const Offload& offload) {
  DeviceProgram made;
  made.program = program;
  made.begin = offload.begin;
  made.end = offload.end;
  made.wide = node.wide ? 1 : 0;
  made.shape = offload.shape;
  return made;
}

Result<std::shared_ptr<Resident>> make_resident(Device& device, const Snapshot& snapshot, const Plan& plan,
                                                const std::vector<Offload>& offloads) {
  const TraceRange trace("upload");
  const std::lock_guard lock(device.images().mutex);
  auto& images = device.images().images;
  std::erase_if(images, [](const auto& entry) { return entry.second.first.expired(); });
  std::erase_if(device.images().patched, [](const auto& each) { return each->log.expired(); });
  auto resident = std::make_shared<Resident>();
  Mover mover(device, *resident);
  auto bring_image = [&](const std::shared_ptr<const Image>& image) -> Result<void> {
    std::shared_ptr<DeviceBlob> blob;
    const auto bytes = image->bytes();
    if (image->patches() != nullptr) {
      auto brought = bring_patched(device, *image, resident->uploaded_bytes);
      if (!brought) return std::move(brought).error();
      blob = std::move(*brought);
    } else if (auto& [known, weak] = images[image.get()]; known.lock() == image) {
      blob = weak.lock();
    }
    if (blob == nullptr) {
      auto& [known, weak] = images[image.get()];
      auto made = device.allocate(MemorySpace::kDevice, bytes.size());
      if (!made) return std::move(made).error();
      blob = std::move(*made);
      if (auto ok = device.upload(*blob, 0, bytes.data(), bytes.size()); !ok) return ok;
      known = image;
      weak = blob;
      resident->uploaded_bytes += bytes.size();
    }
    mover.regions.push_back({bytes.data(), bytes.size(), static_cast<std::byte*>(blob->device())});
    resident->bytes += bytes.size();
    resident->blobs.push_back(std::move(blob));
    return {};
  };
  mover.bring = [&](const std::byte* at) -> Result<void> {
    for (size_t kind = 0; const auto* tables = tables_of(snapshot.tables, kind); ++kind) {
      for (const auto& [name, image] : *tables) {
        const auto bytes = image->bytes();
        if (at >= bytes.data() && at <= bytes.data() + bytes.size()) {
          if (auto ok = bring_image(image); !ok) return ok;
        }
      }
    }
    return {};
  };
  resident->programs.resize(plan.nodes.size());
  for (size_t n = 0; n < plan.nodes.size(); ++n) {
    const Offload& offload = offloads[n];
    if (!offload.on_device) continue;
    DeviceProgram& program = resident->programs[n];
    program = device_program(plan.nodes[n], snapshot.programs[plan.nodes[n].program], offload);
    if (device.table_memory() != TableMemory::kGlobal) {
      if (auto ok = bring_packed(device, snapshot, offload, program, *resident); !ok) return std::move(ok).error();
    } else {
      visit_stages(program, mover);
      if (!mover.result.ok()) return std::move(mover.result).error();
    }
    clear_others(program);
    device.specialise(program);
  }
  return resident;
}

}  // namespace sluice
