// host only
#include "exec/device/resident.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "base/assert.h"
#include "elements/stages.h"
#include "exec/device/trace.h"
#include "tables/replica.h"

namespace sluice {
namespace {

template <typename Stage>
void visit_stage(StageSlot& slot, PointerVisitor& visitor) {
  if constexpr (requires(Stage & stage) { stage.each_pointer([](auto&, uint32_t = 0) {}); }) {
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

// The device's copy of a replica: one that has this version, one that nobody uses any more and that gets what changed
// since, or a new one.
Result<std::shared_ptr<DeviceBlob>> bring_patched(Device& device, const Image& image, size_t& uploaded) {
  auto& all = device.images().patched;
  const auto bytes = image.bytes();
  auto upload = [&](DeviceBlob& blob, const Patch& part) -> Result<void> {
    const size_t n = std::min<size_t>(part.bytes, bytes.size() - part.offset);
    uploaded += n;
    return device.upload(blob, part.offset, bytes.data() + part.offset, n);
  };
  DeviceImages::Patched* spare = nullptr;
  for (auto& each : all) {
    if (each.log.lock() != image.patches()) continue;
    if (each.version == image.version()) return each.blob;
    // Of those that no generation holds, the one that misses least.
    if (each.blob.use_count() == 1 && (spare == nullptr || spare->version < each.version)) spare = &each;
  }
  if (spare == nullptr) {
    auto made = device.allocate(MemorySpace::kDevice, bytes.size());
    if (!made) return std::move(made).error();
    all.push_back({image.patches(), 0, std::move(*made)});
    spare = &all.back();
  }
  const auto changed = spare->version == 0 ? std::nullopt : image.patches()->between(spare->version, image.version());
  std::vector<Patch> parts{{0, bytes.size()}};
  if (changed) parts = join_patches(*changed, kPatchGap);
  spare->version = 0;  // until it is whole
  for (const Patch& part : parts) {
    if (auto ok = upload(*spare->blob, part); !ok) return std::move(ok).error();
  }
  spare->version = image.version();
  return spare->blob;
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

}  // namespace

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
  std::erase_if(device.images().patched, [](const auto& each) { return each.log.expired(); });
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
    for (const auto* tables : {&snapshot.tables.acls, &snapshot.tables.routes, &snapshot.tables.adjacencies}) {
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
    for (uint32_t s = offload.begin; s < offload.end; ++s) visit_pointers(program.program.stages[s], mover);
    if (!mover.result.ok()) return std::move(mover.result).error();
    // Stages that stay on the host must not lead anywhere from here.
    for (uint32_t s = 0; s < program.program.stage_count; ++s) {
      if (s < offload.begin || s >= offload.end) std::memset(program.program.stages[s].storage, 0, StageSlot::kStorage);
    }
    device.specialise(program);
  }
  return resident;
}

}  // namespace sluice
