// host only
// The XDP program of a port: what goes to its sockets and what to the kernel.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "ports/interface.h"
#include "ports/port.h"

namespace sluice {

// By which a program of ours is known. The kernel keeps 15 characters.
inline constexpr const char* kXdpProgramName = "sluice_xsk";

// A program with its maps, and its place at an interface. Where the kernel has links (Linux 5.9) the program leaves the
// interface with the last descriptor, however this process ends; before that it stays when a process is killed, and
// `attach` replaces it.
class XdpProgram {
 public:
  // For queues [0, queues). Errors: what the kernel refuses, with the capability that it needs.
  // `in_pieces`: also frames of more than a page (Linux 5.18).
  static Result<XdpProgram> load(unsigned queues, bool kernel_gets_own, bool in_pieces = false);
  ~XdpProgram();
  XdpProgram(XdpProgram&& other) noexcept = default;
  XdpProgram& operator=(XdpProgram&&) = delete;

  enum class By : uint8_t { kLink, kNetlink };
  // Native, then generic, or the one that `mode` says; `by`: what is tried first. Errors: another program is there,
  // with its name; another run has the interface; the driver takes no program. `queue_is_free`: nobody has a socket
  // there.
  Result<void> attach(const std::string& name, int ifindex, PortOptions::XdpMode mode,
                      bool (*queue_is_free)(int ifindex), By by = By::kLink);
  // Takes it away from the interface, also in another network namespace. Where the kernel has no links it is still
  // there when the interface comes back, where `attach` replaces it.
  void detach();
  bool native() const { return native_; }

  // From here on frames of that queue go to that AF_XDP socket; to the kernel again. A queue without a socket is the
  // kernel's.
  Result<void> set_socket(unsigned queue, int socket);
  void clear_socket(unsigned queue);

  // The addresses whose packets the kernel gets, instead of those before: 4 bytes, or 16. Errors: the system's; more
  // than kMostAddresses of a family.
  static constexpr uint32_t kMostAddresses = 4096;
  using Address4 = std::array<uint8_t, 4>;
  using Address6 = std::array<uint8_t, 16>;
  Result<void> set_own_addresses(std::span<const Address4> v4, std::span<const Address6> v6);

  int descriptor() const { return program_.get(); }

 private:
  XdpProgram() = default;

  FileDescriptor sockets_, own4_, own6_, program_, link_;
  int ifindex_ = 0;         // attached by netlink; with a link 0
  uint32_t mode_flag_ = 0;  // of that
  bool native_ = false;
};

}  // namespace sluice
