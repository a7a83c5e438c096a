#include "exec/cuda/frame_servers.h"

#include <algorithm>
#include <cstring>

#include "base/scope_exit.h"

namespace sluice {

FrameServers::FrameServers(std::shared_ptr<CudaShared> shared) : shared_(std::move(shared)) {
  shared_->served_drivers.fetch_add(1);
}

FrameServers::~FrameServers() {
  shared_->served_drivers.fetch_sub(1);
  // Servers that do not leave still use this memory, and destroying their stream would wait for them.
  if (running_ && !dismiss(kStopLimitNs)) return;
  CudaMemory& memory = *shared_->memory;
  memory.use();
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  memory.free_pinned(board_);
  memory.free_device(places_);
  memory.free_device(programs_);
}

Result<void> FrameServers::create() {
  CudaMemory& memory = *shared_->memory;
  auto board = memory.allocate_pinned(sizeof(WorkBoard<FrameWork>));
  if (!board) return std::move(board).error();
  board_ = static_cast<WorkBoard<FrameWork>*>(*board);
  auto places = memory.allocate_device(sizeof(FrameWorkPlaces));
  if (!places) return std::move(places).error();
  places_ = static_cast<FrameWorkPlaces*>(*places);
  auto programs = memory.allocate_device(kPrograms * size_t{kProgramSlotBytes});
  if (!programs) return std::move(programs).error();
  programs_ = static_cast<std::byte*>(*programs);
  return {};
}

Result<bool> FrameServers::ready(const DeviceProgram& program) {
  if (const void* const kernel = serve_frames_kernel(program.chain); kernel != kernel_) {
    // They leave when all that came before has been taken, and end what they took.
    if (auto ok = dismiss(kStopLimitNs); !ok) return std::move(ok).error();
    kernel_ = kernel;
  }
  if (running_) return true;
  const std::lock_guard alone(shared_->launching);
  if (shared_->serving.load() == 0) {
    if (auto ok = shared_->wait_for_launched(); !ok) return std::move(ok).error();
  }
  auto started = start();
  if (started && *started) shared_->serving.fetch_add(1);
  return started;
}

Result<void> FrameServers::post(const DeviceProgram& program, const LaunchArguments& a, const CudaShared::RunPlace& run,
                                uint32_t units) {
  if (program_number_ == 0 || memcmp(&program, &program_, sizeof program) != 0) {
    if (auto ok = take_program(program); !ok) return ok;
  }
  FrameWork work{};
  work.a = a;
  work.a.came = &places_->came[work_place(next_)];
  work.program =
      reinterpret_cast<const DeviceProgram*>(programs_ + program_number_ % kPrograms * size_t{kProgramSlotBytes});
  work.copied = run.copied;
  work.copied_serial = run.serial;
  work.program_number = program_number_;
  work.units = units;
  board_->post(next_++, work);
  return {};
}

// A slot is written again when kPrograms - 1 others were since, each for a flight of its own: those that named it are
// over.
Result<void> FrameServers::take_program(const DeviceProgram& program) {
  alignas(16) std::byte slot[kProgramSlotBytes] = {};
  memcpy(slot, &program, sizeof program);
  const uint32_t number = program_number_ + 1 != 0 ? program_number_ + 1 : kPrograms;
  auto ok = shared_->memory->upload(programs_ + number % kPrograms * size_t{kProgramSlotBytes}, slot, sizeof slot);
  if (!ok) return ok;
  memcpy(&program_, &program, sizeof program);
  program_number_ = number;
  return {};
}

Result<bool> FrameServers::start() {
  CudaMemory& memory = *shared_->memory;
  memory.use();
  if (shared_->resident_rings.fetch_add(1) >= shared_->most_rings()) {
    shared_->resident_rings.fetch_sub(1);
    return false;
  }
  bool started = false;
  const ScopeExit uncount([&] {
    if (!started) shared_->resident_rings.fetch_sub(1);
  });
  constexpr uint32_t shared_bytes = serve_shared_bytes();
  int fit = 0;  // blocks of a multiprocessor
  cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel_, kFrameBlockThreads, shared_bytes);
  if (e == cudaSuccess && stream_ == nullptr) e = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, "prepare the servers of frames");
  }
  // All drivers get the same, of three quarters: rings may come, too.
  const uint32_t limit = most_resident_blocks(*shared_);
  uint32_t share = std::max(1u, limit * 3 / 4 / std::max(1u, shared_->served_drivers.load()));
  for (uint32_t before = shared_->resident_blocks.load();; before = shared_->resident_blocks.load()) {
    if (before >= limit) return false;
    share = std::min(share, limit - before);
    if (shared_->resident_blocks.compare_exchange_weak(before, before + share)) break;
  }
  // One more forwards.
  const uint32_t blocks = 1 + std::max(1u, share * static_cast<uint32_t>(std::max(fit, 1)) / 2);
  ServeArguments a{board_, places_, next_, ++number_};
  void* arguments[] = {&a};
  memory.resident_started();
  e = cudaLaunchKernel(kernel_, dim3(blocks), dim3(kFrameBlockThreads), arguments, shared_bytes, stream_);
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    memory.resident_left();
    shared_->resident_blocks.fetch_sub(share);
    return cuda_error(e, "start the servers of frames");
  }
  resident_ = share;
  running_ = started = true;
  return true;
}

Result<void> FrameServers::dismiss(uint64_t limit_ns) {
  if (!running_) return {};
  HostWords::store32(&board_->stop, number_);
  shared_->memory->use();
  const cudaError_t e = wait_for_stream(stream_, limit_ns);
  if (e == cudaErrorNotReady) {
    shared_->memory->abandon();
    return Error("the servers of frames do not stop", "the device is stuck: restart the program");
  }
  // A failed device runs nothing any more.
  left();
  if (e != cudaSuccess) return cuda_error(e, "stop the servers of frames");
  return {};
}

void FrameServers::left() {
  running_ = false;
  shared_->serving.fetch_sub(1);
  shared_->resident_rings.fetch_sub(1);
  shared_->resident_blocks.fetch_sub(resident_);
  shared_->memory->resident_left();
}

}  // namespace sluice
