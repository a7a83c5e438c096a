// host only
#include "tensors.h"

namespace sluice::python {
namespace {

// DLPack's kDLExtDev: the emulated device, whose memory is the host's, but which nobody takes for it.
constexpr int32_t kEmulated = 12;

[[noreturn]] void lost(const Error& error) {
  Failure failure(error);
  failure.device = true;
  throw failure;
}

// Where the result of n keys goes. A capsule can be taken once. Errors: TypeError and ValueError, as of output().
nb::ndarray<> result_of(nb::handle out, Memory memory, nb::dlpack::dtype dtype, size_t n) {
  nb::ndarray<> array;
  if (!nb::try_cast(out, array)) {
    nb::ndarray<nb::ro> any;
    if (nb::try_cast(out, any)) wrong_value("out is read-only");
    wrong_type("out is no DLPack tensor");
  }
  if (array.device_type() != memory.type || array.device_id() != memory.number)
    wrong_type("out is not in the memory of the table's device");
  if (array.dtype() != dtype) wrong_type("out has another dtype than the result");
  if (array.ndim() != 1 || array.shape(0) != n) wrong_value("out has not the shape (" + std::to_string(n) + ",)");
  if (n > 1 && array.stride(0) != 1) wrong_value("out is not contiguous");
  return array;
}

nb::dlpack::dtype dtype_of(uint32_t answer) {
  return answer == SLUICE_ANSWER_ACTION  ? nb::dtype<uint8_t>()
         : answer == SLUICE_ANSWER_INDEX ? nb::dtype<int32_t>()
                                         : nb::dtype<uint32_t>();
}

}  // namespace

DeviceMemory::DeviceMemory(std::shared_ptr<Device> device, Memory where, size_t bytes) : where_(where) {
  const auto kept = keep_current_device();
  auto made = device->allocate(MemorySpace::kDevice, bytes == 0 ? 1 : bytes);
  if (!made) lost(made.error());
  // Who was given the memory may let it go while its own kernels still read it: its next owner would write there.
  struct Waits {
    std::shared_ptr<Device> device;
    std::shared_ptr<DeviceBlob> blob;
    ~Waits() {
      const auto kept = keep_current_device();
      device->wait_for_all();
      blob.reset();
    }
  };
  const std::shared_ptr<Waits> waits(new Waits{std::move(device), std::move(*made)});
  blob_ = std::shared_ptr<DeviceBlob>(waits, waits->blob.get());
}

DeviceMemory::~DeviceMemory() {
  const nb::gil_scoped_release release;
  blob_.reset();
}

nb::object DeviceMemory::capsule(const std::string& dtype, size_t n) const {
  const nb::capsule owner(new std::shared_ptr<DeviceBlob>(blob_), [](void* p) noexcept {
    const std::unique_ptr<std::shared_ptr<DeviceBlob>> held(static_cast<std::shared_ptr<DeviceBlob>*>(p));
    const nb::gil_scoped_release release;  // waiting is nobody's business but the device's
    held->reset();
  });
  const nb::dlpack::dtype type = dtype == "uint8"   ? nb::dtype<uint8_t>()
                                 : dtype == "int32" ? nb::dtype<int32_t>()
                                                    : nb::dtype<uint32_t>();
  const nb::ndarray<> array(blob_->device(), {n}, owner, {}, type, where_.type, where_.number);
  return nb::cast(array);
}

There::There(sluice_device* device) : handle_(device) {
  if (device == nullptr) return;
  device_ = device->device;
  const DeviceInfo& info = device_->info();
  memory_ = {info.kind == "cuda" ? nb::device::cuda::value : kEmulated, static_cast<int32_t>(info.ordinal)};
}

uint64_t There::stream() const {
  const auto kept = keep_current_device();
  auto stream = device_->lookup_stream();
  if (!stream) lost(stream.error());
  return reinterpret_cast<uintptr_t>(*stream);
}

std::unique_ptr<DeviceMemory> There::allocate(size_t bytes) const {
  const nb::gil_scoped_release release;
  return std::make_unique<DeviceMemory>(device_, memory_, bytes);
}

uint64_t There::look_up(const nb::dict& columns, uint32_t answer, nb::handle out,
                        const std::function<sluice_resident*(sluice_device*, sluice_errors**)>& open) {
  if (on_host()) wrong_value("the table is looked up on the host");
  sluice_resident_keys keys = SLUICE_RESIDENT_KEYS_INIT;
  std::vector<Column> held;
  auto take = [&](const char* name, sluice_column* to, unsigned bits, size_t width = 0, unsigned other = 0,
                  const char* shown = nullptr) -> unsigned {
    if (!columns.contains(name)) return 0;
    held.emplace_back(shown != nullptr ? shown : name, columns[name], bits, width, other, memory_);
    const Column& column = held.back();
    if (column.size() != held.front().size()) {
      wrong_value(std::string(name) + " has " + std::to_string(column.size()) + " entries, and " + held.front().name() +
                  " has " + std::to_string(held.front().size()));
    }
    const auto at = reinterpret_cast<uintptr_t>(column.row(0));
    const size_t aligned = width == 0 ? column.bits() / 8 : width == sizeof(sluice_key) ? alignof(sluice_key) : 1;
    if (at % aligned != 0 || static_cast<uint64_t>(column.stride()) % aligned != 0) {
      wrong_value(std::string(held.back().name()) +
                  " is not aligned: its address and its stride are to be multiples of " + std::to_string(aligned) +
                  " bytes");
    }
    if (to != nullptr) *to = {column.row(0), column.stride()};
    return column.bits();
  };
  take("keys", &keys.keys, 8, sizeof(sluice_key));
  take("src", &keys.src4, 32);
  take("dst", &keys.dst4, 32);
  take("addresses", &keys.dst4, 32);
  take("addresses6", &keys.dst6, 8, 16, 0, "addresses");
  take("src6", &keys.src6, 8, 16);
  take("dst6", &keys.dst6, 8, 16);
  take("family", &keys.families, 8);
  const bool ports = take("sport", &keys.src_port, 16) + take("dport", &keys.dst_port, 16) != 0;
  take("proto", &keys.protocol, 8);
  sluice_column flags{};
  if (const unsigned bits = take("flags", &flags, 16, 0, 8); bits != 0)
    (bits == 16 ? keys.flags : keys.tcp_flags) = flags;
  take("icmp", &keys.icmp, 16);
  take("dscp", &keys.dscp, 8);
  take("bits", &keys.bits, 8);
  take("bytes", nullptr, 32);  // for counters, which there are none of
  if (held.empty()) wrong_value("there are no columns");
  const size_t n = held.front().size();
  const bool routes = answer == SLUICE_ANSWER_INDEX;
  const bool four = routes ? columns.contains("addresses") : columns.contains("src") && columns.contains("dst");
  const bool six = routes ? columns.contains("addresses6") : columns.contains("src6") && columns.contains("dst6");
  if (!columns.contains("keys")) {
    if (!four && !six) wrong_value("src and dst are missing: addresses as uint32, or as an array of (n, 16) uint8");
    if (four && six && !columns.contains("family"))
      wrong_value("family is missing: it says which of src and src6 a row has");
  }
  keys.family = four ? 4 : 6;
  keys.all_bits = ports ? SLUICE_KEY_PORTS : 0;
  const nb::ndarray<> result = result_of(out, memory_, dtype_of(answer), n);
  const nb::gil_scoped_release release;
  Errors errors;
  {
    const std::lock_guard lock(mutex_);
    if (resident_ == nullptr) resident_.reset(open(handle_, &errors));
    if (resident_ == nullptr) errors.fail();
  }
  // Columns without entries may be nowhere.
  if (n == 0) keys.keys = {&keys, sizeof(sluice_key)};
  const uint64_t generation =
      sluice_resident_lookup(resident_.get(), &keys, n, answer, result.data(), nullptr, &errors);
  if (generation == 0) errors.fail(true);
  return generation;
}

void bind_tensors(nb::module_& m) {
  nb::class_<DeviceMemory>(m, "DeviceMemory").def("capsule", &DeviceMemory::capsule);
  nb::class_<There>(m, "There")
      .def("on_host", &There::on_host)
      .def("type", &There::type)
      .def("number", &There::number)
      .def("stream", &There::stream)
      .def("allocate", &There::allocate);
  // Why there is no CUDA device; "" where there is one.
  m.def("no_cuda", [] { return count_cuda_devices().why_none; });
}

}  // namespace sluice::python
