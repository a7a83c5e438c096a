// Slabs of records, reused for ever: launched over a few streams, or, of frames, given to servers that stay.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <shared_mutex>
#include <thread>

#include "exec/cuda/chains.h"
#include "exec/cuda/drivers.h"
#include "exec/cuda/frame_servers.h"

namespace sluice {
namespace {

// A graph of one staged slab for up to `records` records: copy in, kernel, copy out.
struct SlabGraph {
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t kernel = nullptr;
  uint64_t program = 0;  // which program its kernel node holds
};

class CudaSlabs final : public SlabDriver {
 public:
  // In front of a slab's records: a word whose first four bytes are the count, for graphs, whose kernel nodes stay.
  static constexpr size_t kFront = 1;
  static constexpr uint32_t kSmallestGraph = 64;
  // No packet has the drop reason 255, and no 32 of them so many bytes.
  static constexpr uint32_t kNoResult = ~uint32_t{0};
  static constexpr uint32_t kLooksPerQuery = 4096;

  CudaSlabs(std::shared_ptr<CudaShared> shared, const ChannelShape& shape, Transport transport, DeviceMode mode)
      : shared_(std::move(shared)),
        shape_(shape),
        transport_(transport),
        launches_(mode != DeviceMode::kPersistent),
        servers_(mode != DeviceMode::kLaunch ? std::make_unique<FrameServers>(shared_) : nullptr) {}
  ~CudaSlabs() override {
    // A kernel that does not end still reads and writes this memory, and destroying its stream would wait for it.
    if (!join(kStopLimitNs)) return;
    for (Slab& s : slabs_) {
      for (SlabGraph& graph : s.graphs) {
        if (graph.exec != nullptr) (void)cudaGraphExecDestroy(graph.exec);
      }
      for (cudaEvent_t event : {s.event, s.before, s.after}) {
        if (event != nullptr) (void)cudaEventDestroy(event);
      }
      shared_->memory->free_pinned(s.host_in);
      shared_->memory->free_pinned(s.host_out);
      shared_->memory->free_device(s.device_in);
      shared_->memory->free_device(s.device_out);
      shared_->memory->free_device(s.ended);
    }
    (void)cudaGetLastError();
  }
  CudaSlabs(const CudaSlabs&) = delete;
  CudaSlabs& operator=(const CudaSlabs&) = delete;

  Result<void> create(uint32_t slabs) {
    shared_->memory->use();
    if (frames() && transport_ == Transport::kStaged) {
      if (auto r = shared_->prepare_runs(); !r) return r;
    }
    if (servers_ != nullptr) {
      if (auto r = servers_->create(); !r) return r;
    }
    slabs_.resize(slabs);
    CudaMemory& memory = *shared_->memory;
    for (Slab& s : slabs_) {
      if (auto r = take(memory.allocate_pinned(in_bytes(shape_.capacity)), s.host_in); !r) return r;
      // Behind the results: where a kernel says that it has ended.
      const size_t results = (out_bytes(shape_.capacity) + sizeof(Word) - 1) / sizeof(Word);
      if (auto r = take(memory.allocate_pinned((results + 1) * sizeof(Word)), s.host_out); !r) return r;
      if (staged()) {
        if (auto r = take(memory.allocate_device(in_bytes(shape_.capacity)), s.device_in); !r) return r;
        if (auto r = take(memory.allocate_device(out_bytes(shape_.capacity)), s.device_out); !r) return r;
      }
      if (servers_ != nullptr || says_itself()) {
        if (auto r = take(memory.allocate_device(sizeof(Word)), s.ended); !r) return r;  // zeros
        s.said = reinterpret_cast<uint32_t*>(s.host_out + results);
        __atomic_store_n(s.said, 0, __ATOMIC_RELEASE);
      }
      if (!launches_) continue;
      auto stream = shared_->slab_stream();
      if (!stream) return std::move(stream).error();
      s.stream = *stream;
      if (!says_itself()) {
        if (const cudaError_t e = cudaEventCreateWithFlags(&s.event, cudaEventDisableTiming); e != cudaSuccess) {
          return cuda_error(e, "create an event for a slab");
        }
      }
      // Graphs have their kernel inside.
      if (shared_->options.stamps && !graphs()) {
        for (cudaEvent_t* event : {&s.before, &s.after}) {
          if (const cudaError_t e = cudaEventCreate(event); e != cudaSuccess) {
            return cuda_error(e, "create an event for a slab");
          }
        }
      }
      if (graphs()) {
        size_t sizes = 1;
        for (uint32_t n = kSmallestGraph; n < shape_.capacity; n *= 2) ++sizes;
        s.graphs.resize(sizes);
      }
    }
    return {};
  }

  Word* in(uint32_t slab) override { return slabs_[slab].host_in + kFront; }
  const void* out(uint32_t slab) override { return slabs_[slab].host_out; }

  Result<void> start(uint32_t slab, uint32_t count, const DeviceProgram& program, const Range& pool) override {
    if (count == 0 || count > shape_.capacity) {
      return Error(fmt::format("{} records in a slab of {}", count, shape_.capacity));
    }
    Slab& s = slabs_[slab];
    shared_->memory->use();
    if (auto taken = take_program(program); !taken) return taken;
    if (graphs()) return start_graph(s, count);
    s.served = false;
    s.looks = 0;
    // Held until the kernel is launched.
    std::shared_lock<std::shared_mutex> launching;
    if (servers_ != nullptr) {
      if (!serve_) launching = std::shared_lock(shared_->launching);
      // Beside servers nothing is launched.
      if (serve_ || shared_->serving.load() != 0) {
        if (launching.owns_lock()) launching.unlock();
        if (auto ok = check_ring_program(program_); !ok) return ok;
        auto ready = servers_->ready(program_);
        if (!ready) return std::move(ready).error();
        if (!*ready && (!launches_ || shared_->serving.load() != 0))
          return Error("the device has no room for more resident kernels", "use fewer workers, or launch mode");
        s.served = *ready;
        if (!s.served) launching = std::shared_lock(shared_->launching);
      }
    }
    if (s.served) return post(s, count, pool);

    if (transport_ == Transport::kCommPool && pool.device != nullptr && pool.bytes != 0) {
      if (auto r = copy(pool.device, pool.host, pool.bytes, cudaMemcpyHostToDevice, s.stream); !r) return r;
    }
    auto run = take_run(s, pool, s.stream);
    if (!run) return std::move(run).error();
    if (staged()) {
      if (auto r = copy(s.device_in + kFront, s.host_in + kFront, in_bytes(count) - kFront * sizeof(Word),
                        cudaMemcpyHostToDevice, s.stream);
          !r) {
        return r;
      }
    }
    LaunchArguments a = arguments_of(s, count, pool, *run);
    const size_t shared = shared_bytes(pool.slots);
    void* arguments[] = {&program_, &a};
    if (says_itself()) {
      says_serial(s, a);
    } else if (frames()) {
      // Results come last, and none of them is this: done() looks here before it asks the driver, whose locks all
      // workers share.
      s.last = last_of(s, count);
      __atomic_store_n(s.last, kNoResult, __ATOMIC_RELEASE);
    }
    if (s.before != nullptr) (void)cudaEventRecord(s.before, s.stream);
    if (const cudaError_t e =
            cudaLaunchKernel(kernel_, blocks(count, turns(count, pool)), dim3(threads()), arguments, shared, s.stream);
        e != cudaSuccess) {
      finished(s);
      (void)cudaGetLastError();
      if (says_itself()) --s.serial;  // nobody will say it
      return cuda_error(e, "launch a kernel");
    }
    if (says_itself()) return {};
    if (s.after != nullptr) (void)cudaEventRecord(s.after, s.stream);
    if (staged()) {
      if (auto r = copy(s.host_out, s.device_out, out_bytes(count), cudaMemcpyDeviceToHost, s.stream); !r) return r;
    }
    return record(s);
  }

  bool is_served(uint32_t slab) const override { return slabs_[slab].served; }
  void serve(bool on) override { serve_ = on && servers_ != nullptr; }
  Result<void> dismiss(uint64_t limit_ns) override {
    return servers_ != nullptr ? servers_->dismiss(limit_ns) : Result<void>();
  }

  Result<void> join(uint64_t limit_ns) override {
    shared_->memory->use();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit_ns);
    for (const Slab& s : slabs_) {
      // Any other error: the device has failed and runs nothing.
      while (!is_home(s) && query(s) == cudaErrorNotReady) {
        (void)cudaGetLastError();
        if (std::chrono::steady_clock::now() > limit) {
          shared_->memory->abandon();
          return Error("a kernel does not end", "the device is stuck: restart the program");
        }
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
    (void)cudaGetLastError();
    return dismiss(limit_ns);
  }

  Result<bool> done(uint32_t slab) override {
    Slab& s = slabs_[slab];
    if (frames()) {
      const bool says = s.served || says_itself();
      if (says && is_home(s)) return finished(s);
      const bool silent = says || __atomic_load_n(s.last, __ATOMIC_ACQUIRE) == kNoResult;
      // Now and then all the same: a device that has failed never answers.
      if (silent && ++s.looks % kLooksPerQuery != 0) return false;
    }
    shared_->memory->use();
    const cudaError_t e = query(s);
    // A stream that is empty has run the kernel, whose word may have come since it was looked for.
    if (e == cudaSuccess && (s.served || says_itself())) {
      if (is_home(s)) return finished(s);
      if (s.served) return Error("the servers of frames have exited unexpectedly");
      return false;
    }
    if (e == cudaSuccess) return finished(s);
    if (e == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    return cuda_error(e, "finish a slab");
  }
  uint64_t kernel_ns(uint32_t slab) override {
    const Slab& s = slabs_[slab];
    float ms = 0;
    if (s.served) return shared_->options.stamps ? __atomic_load_n(took_of(s), __ATOMIC_ACQUIRE) : 0;
    if (s.after == nullptr || cudaEventElapsedTime(&ms, s.before, s.after) != cudaSuccess) return 0;
    return static_cast<uint64_t>(ms * 1e6f);
  }

 private:
  struct Slab {
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    cudaEvent_t before = nullptr, after = nullptr;  // around the kernel, where it is measured
    Word* host_in = nullptr;                        // kFront words, then the records
    Word* host_out = nullptr;
    Word* device_in = nullptr;  // the same; staged only
    Word* device_out = nullptr;
    uint32_t* last = nullptr;          // frames: what the last result brings
    Word* ended = nullptr;             // LaunchArguments::ended, of what says itself that it has
    uint32_t* said = nullptr;          // the same: the serial of what ended last, stored by it
    uint32_t serial = 0;               // the same: of what was started last
    bool served = false;               // it was given to servers
    uint32_t looks = 0;                // at `last` or `said`, since the start
    uint32_t run = CopiedRuns::kNone;  // where its frames lie, in CudaShared::runs
    std::vector<SlabGraph> graphs;     // for kSmallestGraph << i records
  };

  static Result<void> take(Result<void*> from, Word*& to) {
    if (!from) return std::move(from).error();
    to = static_cast<Word*>(*from);
    return {};
  }
  // Frames cross beside their records.
  bool frames() const { return shape_.record.kind == RecordKind::kFrame; }
  uint32_t* last_of(const Slab& s, uint32_t count) const {
    FrameBlock* const blocks = FrameResults::at(s.host_out, count).blocks;
    return &blocks[(count - 1) / FrameBlock::kRecords].bytes[(count - 1) / 32 % 2];
  }
  // Records and results are copied.
  bool staged() const { return transport_ == Transport::kStaged && !frames(); }
  // What the host takes is stored by the kernel alone, which then says so: no event, and nobody asks the driver.
  bool says_itself() const { return frames() && !shared_->options.stamps; }
  static bool is_home(const Slab& s) {
    return s.said != nullptr && __atomic_load_n(s.said, __ATOMIC_ACQUIRE) == s.serial;
  }
  static uint64_t* took_of(const Slab& s) { return reinterpret_cast<uint64_t*>(s.said) + 1; }
  cudaError_t query(const Slab& s) const {
    if (s.served) return servers_->query();
    if (says_itself() && s.stream != nullptr) return cudaStreamQuery(s.stream);
    return s.event != nullptr ? cudaEventQuery(s.event) : cudaSuccess;
  }
  // A slab that was started is seen to be done, once.
  bool finished(Slab& s) {
    if (frames()) --shared_->frame_kernels;
    if (s.run != CopiedRuns::kNone) shared_->runs.leave(std::exchange(s.run, CopiedRuns::kNone));
    return true;
  }
  static void says_serial(Slab& s, LaunchArguments& a) {
    a.ended = reinterpret_cast<uint32_t*>(s.ended);
    a.said = s.said;
    a.serial = ++s.serial;
  }
  // Kernels read frames over the bus, but for runs that are copied.
  Result<CudaShared::RunPlace> take_run(Slab& s, const Range& pool, cudaStream_t stream) {
    if (!frames() || transport_ != Transport::kStaged || pool.run.bytes == 0) return CudaShared::RunPlace();
    auto place = shared_->take_run(pool.run, stream);
    if (place) s.run = place->number;
    return place;
  }
  LaunchArguments arguments_of(const Slab& s, uint32_t count, const Range& pool,
                               const CudaShared::RunPlace& run) const {
    LaunchArguments a{};
    a.in = (staged() ? s.device_in : s.host_in) + kFront;
    if (pool.records != nullptr) a.in = reinterpret_cast<const Word*>(pool.records);
    a.out = staged() ? s.device_out : s.host_out;
    a.count = count;
    if (!frames()) return a;
    auto* const from = run.device != nullptr ? reinterpret_cast<uint8_t*>(run.device + (pool.host - pool.run.host))
                                             : static_cast<uint8_t*>(pool.host_there);
    a.frames = from - pool.first;
    a.to = static_cast<uint8_t*>(pool.to_there) - (pool.slots.apart != 0 ? 0 : pool.first);
    a.heads = static_cast<uint8_t*>(pool.heads_there);
    a.slots = pool.slots;
    const FrameResults results = FrameResults::at(a.out, count);
    a.blocks = results.blocks;
    a.details = shape_.record.key_out != 0 ? results.details : nullptr;
    a.tails = shape_.record.tails != 0 ? tails_of(shape_.record, results, count) : nullptr;
    a.marks = shape_.record.mark_out != 0 ? marks_of(shape_.record, results, count) : nullptr;
    a.nets = shape_.record.net_out != 0 ? nets_of(shape_.record, results, count) : nullptr;
    a.paints = shape_.record.paint_out != 0 ? paints_of(shape_.record, results, count) : nullptr;
    return a;
  }
  // Of a slab that is started now.
  uint32_t turns(uint32_t count, const Range& pool) const {
    if (!frames()) return 1;
    const uint32_t under_way = 1 + shared_->frame_kernels.fetch_add(1);
    // Few frames on their way are what the bus wants; the device's own memory wants many.
    if (pool.frames_there) return 1;
    return frame_turns(count, std::min(under_way, CudaShared::kMostSlabStreams), finds_rules_);
  }
  Result<void> post(Slab& s, uint32_t count, const Range& pool) {
    auto run = take_run(s, pool, nullptr);
    if (!run) return std::move(run).error();
    LaunchArguments a = arguments_of(s, count, pool, *run);
    says_serial(s, a);
    if (shared_->options.stamps) a.took = took_of(s);
    const uint32_t units = blocks(count, turns(count, pool)).x;
    auto ok = servers_->post(program_, a, *run, units);
    if (ok.ok()) return ok;
    finished(s);
    --s.serial;
    return ok;
  }
  bool graphs() const { return staged() && shared_->options.graphs; }
  size_t in_bytes(uint32_t count) const { return kFront * sizeof(Word) + count * shape_.record_bytes(); }
  size_t out_bytes(uint32_t count) const { return shape_.results_bytes(count); }
  uint32_t threads() const { return launch_threads(shape_.record.kind); }
  dim3 blocks(uint32_t count, uint32_t turns = 1) const {
    const uint32_t all = (count + threads() * turns - 1) / (threads() * turns);
    // Each block copies the tables: so many as a device runs at a time.
    return dim3(program_.memory == TableMemory::kShared ? std::min(all, shared_->processors) : all);
  }
  // Of a block.
  size_t shared_bytes(const FrameSlots& slots = {}) const {
    const size_t tables = program_.memory == TableMemory::kShared ? (size_t{program_.table_bytes} + 15) / 16 * 16 : 0;
    if (frames())
      return tables != 0 ? frame_tables_at(slots, threads()) + tables : frame_shared_bytes(slots, threads());
    return tables;
  }

  static Result<void> copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    const cudaError_t e = cudaMemcpyAsync(to, from, bytes, kind, stream);
    if (e != cudaSuccess) {
      (void)cudaGetLastError();
      return cuda_error(e, fmt::format("copy {} bytes of a slab", bytes));
    }
    return {};
  }
  static Result<void> record(Slab& s) {
    if (const cudaError_t e = cudaEventRecord(s.event, s.stream); e != cudaSuccess) {
      (void)cudaGetLastError();
      return cuda_error(e, "record the end of a slab");
    }
    return {};
  }

  // Programs change rarely: what follows from one is found once.
  Result<void> take_program(const DeviceProgram& program) {
    if (program_number_ != 0 && memcmp(&program, &program_, sizeof program) == 0) return {};
    if (auto ok = check_program(shape_.record.kind, program); !ok) return ok;
    const void* const kernel = launch_kernel(shape_.record.kind, program.chain, program.memory);
    memcpy(&program_, &program, sizeof program);
    ++program_number_;
    kernel_ = kernel;
    finds_rules_ = finds_rules(program);
    return {};
  }

  Result<void> start_graph(Slab& s, uint32_t count) {
    uint32_t records = kSmallestGraph;
    size_t which = 0;
    for (; records < count; records *= 2) ++which;
    if (records > shape_.capacity) records = shape_.capacity;
    SlabGraph& graph = s.graphs[which];
    memcpy(s.host_in, &count, sizeof count);
    if (graph.exec != nullptr && graph.program != program_number_) {
      cudaKernelNodeParams node = node_params(s, records);
      void* arguments[] = {&program_, &arguments_};
      node.kernelParams = arguments;
      if (cudaGraphExecKernelNodeSetParams(graph.exec, graph.kernel, &node) == cudaSuccess) {
        graph.program = program_number_;
      } else {  // another kernel may not fit the node: build it anew
        (void)cudaGetLastError();
        (void)cudaGraphExecDestroy(graph.exec);
        graph.exec = nullptr;
      }
    }
    if (graph.exec == nullptr) {
      if (auto built = build(s, records, graph); !built) return built;
    }
    if (const cudaError_t e = cudaGraphLaunch(graph.exec, s.stream); e != cudaSuccess) {
      (void)cudaGetLastError();
      return cuda_error(e, "launch a graph");
    }
    return record(s);
  }

  cudaKernelNodeParams node_params(Slab& s, uint32_t records) {
    arguments_ = LaunchArguments{};
    arguments_.in = s.device_in + kFront;
    arguments_.out = s.device_out;
    arguments_.count_at = reinterpret_cast<const uint32_t*>(s.device_in);
    cudaKernelNodeParams node{};
    node.func = const_cast<void*>(kernel_);
    node.gridDim = blocks(records);
    node.blockDim = dim3(threads());
    node.sharedMemBytes = static_cast<unsigned>(shared_bytes());
    return node;
  }

  Result<void> build(Slab& s, uint32_t records, SlabGraph& out) {
    cudaGraph_t graph = nullptr;
    cudaError_t e = cudaGraphCreate(&graph, 0);
    cudaGraphNode_t in = nullptr, back = nullptr;
    if (e == cudaSuccess) {
      e = cudaGraphAddMemcpyNode1D(&in, graph, nullptr, 0, s.device_in, s.host_in, in_bytes(records),
                                   cudaMemcpyHostToDevice);
    }
    if (e == cudaSuccess) {
      cudaKernelNodeParams node = node_params(s, records);
      void* arguments[] = {&program_, &arguments_};
      node.kernelParams = arguments;
      e = cudaGraphAddKernelNode(&out.kernel, graph, &in, 1, &node);
    }
    if (e == cudaSuccess) {
      e = cudaGraphAddMemcpyNode1D(&back, graph, &out.kernel, 1, s.host_out, s.device_out, out_bytes(records),
                                   cudaMemcpyDeviceToHost);
    }
    if (e == cudaSuccess) e = cudaGraphInstantiate(&out.exec, graph, 0);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    if (e != cudaSuccess) {
      (void)cudaGetLastError();
      out.exec = nullptr;
      return cuda_error(e, "build a graph for a slab");
    }
    out.program = program_number_;
    return {};
  }

  std::shared_ptr<CudaShared> shared_;
  ChannelShape shape_;
  Transport transport_;
  bool launches_;
  std::unique_ptr<FrameServers> servers_;  // nullptr: none
  bool serve_ = false;
  std::vector<Slab> slabs_;
  DeviceProgram program_{};
  uint64_t program_number_ = 0;  // 0: none yet
  const void* kernel_ = nullptr;
  bool finds_rules_ = false;
  LaunchArguments arguments_{};
};

}  // namespace

Result<std::unique_ptr<SlabDriver>> make_cuda_slabs(std::shared_ptr<CudaShared> shared, const ChannelShape& shape,
                                                    uint32_t slabs, Transport transport, DeviceMode mode) {
  if (auto fits = check_slabs(shape, transport, mode); !fits) return std::move(fits).error();
  auto driver = std::make_unique<CudaSlabs>(std::move(shared), shape, transport, mode);
  if (auto made = driver->create(slabs); !made) return std::move(made).error();
  return std::unique_ptr<SlabDriver>(std::move(driver));
}

}  // namespace sluice
