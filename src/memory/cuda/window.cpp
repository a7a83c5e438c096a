#include "memory/cuda/window.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/cuda/memory.h"

#if __has_include(<vulkan/vulkan_core.h>)
#define SLUICE_HAS_VULKAN 1
#define VK_NO_PROTOTYPES 1
#include <vulkan/vulkan_core.h>
#endif

namespace sluice {

#if defined(SLUICE_HAS_VULKAN)

namespace {

Error vulkan_error(const char* call, VkResult result) {
  return Error(fmt::format("Vulkan: {} failed ({})", call, static_cast<int>(result)));
}

// The driver's entry point: the loader's, which finds the driver by its manifest, or the driver's own.
PFN_vkGetInstanceProcAddr find_driver() {
  if (void* loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL); loader != nullptr) {
    if (auto entry = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(loader, "vkGetInstanceProcAddr"))) return entry;
  }
  for (const char* name : {"libGLX_nvidia.so.0", "libEGL_nvidia.so.0"}) {
    void* driver = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) continue;
    // A driver that is used without a loader must be told so first.
    using Negotiate = VkResult (*)(uint32_t*);
    if (auto negotiate = reinterpret_cast<Negotiate>(dlsym(driver, "vk_icdNegotiateLoaderICDInterfaceVersion"))) {
      uint32_t version = 5;
      if (negotiate(&version) != VK_SUCCESS) continue;
    }
    if (auto entry = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(driver, "vk_icdGetInstanceProcAddr"))) {
      return entry;
    }
  }
  return nullptr;
}

}  // namespace

struct DeviceWindow::Vulkan {
  PFN_vkGetInstanceProcAddr get = nullptr;
  PFN_vkGetDeviceProcAddr get_device = nullptr;
  VkInstance instance = VK_NULL_HANDLE;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;

  template <typename F>
  F of_instance(const char* name) const {
    return reinterpret_cast<F>(get(instance, name));
  }
  template <typename F>
  F of_device(const char* name) const {
    return reinterpret_cast<F>(get_device(device, name));
  }

  ~Vulkan() {
    if (device != VK_NULL_HANDLE) {
      if (memory != VK_NULL_HANDLE) of_device<PFN_vkFreeMemory>("vkFreeMemory")(device, memory, nullptr);
      of_device<PFN_vkDestroyDevice>("vkDestroyDevice")(device, nullptr);
    }
    if (instance != VK_NULL_HANDLE) of_instance<PFN_vkDestroyInstance>("vkDestroyInstance")(instance, nullptr);
  }

  // The Vulkan device that is the CUDA device of this UUID, ready for use.
  Result<void> start(const cudaUUID_t& uuid) {
    get = find_driver();
    if (get == nullptr) return Error("no Vulkan driver", "install libvulkan1 and the graphics libraries of the driver");
    VkApplicationInfo application{};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo create{};
    create.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    create.pApplicationInfo = &application;
    if (const VkResult r = of_instance<PFN_vkCreateInstance>("vkCreateInstance")(&create, nullptr, &instance);
        r != VK_SUCCESS) {
      instance = VK_NULL_HANDLE;
      return vulkan_error("vkCreateInstance", r);
    }
    const auto enumerate = of_instance<PFN_vkEnumeratePhysicalDevices>("vkEnumeratePhysicalDevices");
    uint32_t count = 0;
    if (const VkResult r = enumerate(instance, &count, nullptr); r != VK_SUCCESS) {
      return vulkan_error("vkEnumeratePhysicalDevices", r);
    }
    std::vector<VkPhysicalDevice> all(count);
    if (const VkResult r = enumerate(instance, &count, all.data()); r != VK_SUCCESS && r != VK_INCOMPLETE) {
      return vulkan_error("vkEnumeratePhysicalDevices", r);
    }
    all.resize(count);
    const auto properties_of = of_instance<PFN_vkGetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2");
    for (VkPhysicalDevice candidate : all) {
      VkPhysicalDeviceIDProperties id{};
      id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
      VkPhysicalDeviceProperties2 properties{};
      properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
      properties.pNext = &id;
      properties_of(candidate, &properties);
      if (memcmp(id.deviceUUID, uuid.bytes, sizeof uuid.bytes) == 0) physical = candidate;
    }
    if (physical == VK_NULL_HANDLE) return Error("the CUDA device is not a Vulkan device");
    const float priority = 1;
    VkDeviceQueueCreateInfo queue{};
    queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queue.queueCount = 1;
    queue.pQueuePriorities = &priority;
    const char* extension = VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME;
    VkDeviceCreateInfo with{};
    with.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    with.queueCreateInfoCount = 1;
    with.pQueueCreateInfos = &queue;
    with.enabledExtensionCount = 1;
    with.ppEnabledExtensionNames = &extension;
    if (const VkResult r = of_instance<PFN_vkCreateDevice>("vkCreateDevice")(physical, &with, nullptr, &device);
        r != VK_SUCCESS) {
      device = VK_NULL_HANDLE;
      return vulkan_error("vkCreateDevice", r);
    }
    get_device = of_instance<PFN_vkGetDeviceProcAddr>("vkGetDeviceProcAddr");
    return {};
  }

  // Memory that is local to the device and mapped, and a descriptor to import it by. No buffer is made of it: drivers
  // bind exported buffers to other types, while CUDA imports this one.
  Result<int> allocate(size_t bytes, void*& mapped) {
    VkPhysicalDeviceMemoryProperties types{};
    of_instance<PFN_vkGetPhysicalDeviceMemoryProperties>("vkGetPhysicalDeviceMemoryProperties")(physical, &types);
    constexpr VkMemoryPropertyFlags kWanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                              VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                              VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    uint32_t type = 0;
    while (type < types.memoryTypeCount && (types.memoryTypes[type].propertyFlags & kWanted) != kWanted) ++type;
    if (type == types.memoryTypeCount) return Error("the device has no memory that the host can write");
    VkExportMemoryAllocateInfo exported{};
    exported.sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO;
    exported.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    VkMemoryAllocateInfo allocate{};
    allocate.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    allocate.pNext = &exported;
    allocate.allocationSize = bytes;
    allocate.memoryTypeIndex = type;
    if (const VkResult r = of_device<PFN_vkAllocateMemory>("vkAllocateMemory")(device, &allocate, nullptr, &memory);
        r != VK_SUCCESS) {
      memory = VK_NULL_HANDLE;
      return vulkan_error("vkAllocateMemory", r);
    }
    if (const VkResult r = of_device<PFN_vkMapMemory>("vkMapMemory")(device, memory, 0, bytes, 0, &mapped);
        r != VK_SUCCESS) {
      return vulkan_error("vkMapMemory", r);
    }
    VkMemoryGetFdInfoKHR get_fd{};
    get_fd.sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR;
    get_fd.memory = memory;
    get_fd.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    int fd = -1;
    if (const VkResult r = of_device<PFN_vkGetMemoryFdKHR>("vkGetMemoryFdKHR")(device, &get_fd, &fd); r != VK_SUCCESS) {
      return vulkan_error("vkGetMemoryFdKHR", r);
    }
    return fd;
  }
};

DeviceWindow::DeviceWindow() : vulkan_(std::make_unique<Vulkan>()) {}

DeviceWindow::~DeviceWindow() {
  if (device_ != nullptr) (void)cudaFree(device_);
  if (imported_ != nullptr) (void)cudaDestroyExternalMemory(imported_);
  (void)cudaGetLastError();
}

Result<std::unique_ptr<DeviceWindow>> DeviceWindow::open(int ordinal, size_t bytes) {
  cudaDeviceProp properties{};
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, ordinal); e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, fmt::format("read the properties of device {}", ordinal));
  }
  std::unique_ptr<DeviceWindow> window(new DeviceWindow());
  if (auto started = window->vulkan_->start(properties.uuid); !started) return std::move(started).error();
  void* mapped = nullptr;
  auto fd = window->vulkan_->allocate(bytes, mapped);
  if (!fd) return std::move(fd).error();
  cudaExternalMemoryHandleDesc handle{};
  handle.type = cudaExternalMemoryHandleTypeOpaqueFd;
  handle.handle.fd = *fd;
  handle.size = bytes;
  if (const cudaError_t e = cudaImportExternalMemory(&window->imported_, &handle); e != cudaSuccess) {
    (void)cudaGetLastError();
    (void)close(*fd);  // the import would have taken it over
    return cuda_error(e, "import Vulkan memory");
  }
  cudaExternalMemoryBufferDesc range{};
  range.size = bytes;
  void* device = nullptr;
  if (const cudaError_t e = cudaExternalMemoryGetMappedBuffer(&device, window->imported_, &range); e != cudaSuccess) {
    (void)cudaGetLastError();
    return cuda_error(e, "map Vulkan memory");
  }
  window->host_ = static_cast<std::byte*>(mapped);
  window->device_ = static_cast<std::byte*>(device);
  window->size_ = bytes;
  window->ordinal_ = ordinal;
  return window;
}

struct DeviceWindow::Spare {
  std::mutex mutex;
  std::vector<DeviceWindow*> windows;
  static Spare& all() {
    static auto* spare = new Spare;  // never unmade
    return *spare;
  }
};

Result<DeviceWindow*> DeviceWindow::take(int ordinal, size_t bytes) {
  Spare& spare = Spare::all();
  const std::lock_guard lock(spare.mutex);
  for (DeviceWindow*& window : spare.windows) {
    if (window->ordinal_ != ordinal || window->size_ < bytes) continue;
    std::swap(window, spare.windows.back());
    DeviceWindow* taken = spare.windows.back();
    spare.windows.pop_back();
    return taken;
  }
  auto made = open(ordinal, bytes);
  if (!made) return std::move(made).error();
  return made->release();
}

void DeviceWindow::give_back(DeviceWindow* window) {
  Spare& spare = Spare::all();
  const std::lock_guard lock(spare.mutex);
  spare.windows.push_back(window);
}

#else

struct DeviceWindow::Vulkan {};
DeviceWindow::DeviceWindow() = default;
DeviceWindow::~DeviceWindow() = default;
Result<DeviceWindow*> DeviceWindow::take(int, size_t) {
  return Error("this program was built without the Vulkan headers");
}
void DeviceWindow::give_back(DeviceWindow*) {}

#endif

}  // namespace sluice
