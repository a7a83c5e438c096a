// host only
// What the kernel says about an interface, for methods whose ports are interfaces of the kernel.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ports/port.h"

namespace sluice {

// A descriptor that is closed with its owner.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_;
};

// The interface of that number, in the network namespace in which it was found, whatever its name is by now.
class Interface {
 public:
  // Errors: no such interface, with the names there are or the one that was meant.
  static Result<Interface> find(const std::string& name);

  int index() const { return index_; }
  // kIdle: up, with a carrier; kDown; kGone. Two calls of the kernel; any thread.
  RxState link() const;
  // Name, MAC, MTU, up, as of now; those of the last time where it is gone.
  void describe(PortFacts& facts) const;
  // Errors: the system's.
  Result<void> set_up() const;

 private:
  Interface(FileDescriptor control, int index) : control_(std::move(control)), index_(index) {}
  FileDescriptor control_;  // a socket: what ioctl asks
  int index_;
};

// Those of this network namespace.
std::vector<std::string> interface_names();

// RX queues that the driver of an interface has; 1 where it does not say, or where there is no such interface.
unsigned queues_of_interface(const std::string& name);

// Bytes of an IP packet that an interface takes; 0: there is no such interface.
uint32_t mtu_of_interface(const std::string& name);

// The largest frame of an interface with this MTU: with an Ethernet header and VLAN tags.
inline constexpr uint32_t frame_bytes(uint32_t mtu, uint32_t vlan_tags = 2) {
  return mtu + 14 + 4 * vlan_tags;
}

// Chunks for frames of interfaces with this MTU; of the default size where it is smaller, or larger than jumbo frames
// have (that of `lo`), which `check_frames_fit` refuses.
inline constexpr uint32_t kMostMtu = 9728;
FrameShape shape_for_mtu(uint32_t mtu);

// Errors: frames of the interface do not fit the pool's chunks, with the sizes.
Result<void> check_frames_fit(const std::string& name, uint32_t mtu, const FrameShape& shape);

// `what` was refused with `code` for want of `capability` ("CAP_NET_RAW"): the error, with the command that gives it
// to this program where that is the reason.
Error capability_error(const std::string& what, int code, const std::string& capability);

}  // namespace sluice
