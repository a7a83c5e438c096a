// host only
#include "ports/methods_here.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "ports/interface.h"
#include "ports/methods.h"

namespace sluice {

// A header before Linux 5.8 has no name for it.
const Capability capability::kRaw{CAP_NET_RAW, "CAP_NET_RAW", "packet sockets"};
const Capability capability::kAdmin{CAP_NET_ADMIN, "CAP_NET_ADMIN", "interfaces"};
const Capability capability::kBpf{39, "CAP_BPF", "BPF programs"};

bool has_capability(unsigned number) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[number / 32].effective >> (number % 32) & 1) != 0;
}

int try_socket(int family, int type) {
  const FileDescriptor fd(socket(family, type | SOCK_CLOEXEC, 0));
  return fd ? 0 : errno;
}

void need_capabilities(MethodHere& method, std::initializer_list<Capability> wanted) {
  std::string all, names;
  bool missing = false;
  for (const Capability& w : wanted) {
    all += fmt::format("{}{}", all.empty() ? "" : ",", w.name);
    if (has_capability(w.number)) continue;
    missing = true;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", w.name, w.why);
  }
  if (!missing || !method.lacks.empty()) return;
  for (char& c : all) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  method.lacks = names;
  method.mend = fmt::format("sudo setcap {}+ep $(command -v sluice)", all);
}

void lack(MethodHere& method, std::string what, std::string mend) {
  if (!method.lacks.empty()) return;
  method.lacks = std::move(what);
  method.mend = std::move(mend);
}

std::vector<MethodHere> port_methods_here() {
  std::vector<MethodHere> methods;
  for (const PortMethodEntry& entry : port_method_entries()) {
    MethodHere& here = methods.emplace_back();
    here.method = entry.method;
    entry.examine(here);
    here.works = here.lacks.empty();
  }
  return methods;
}

}  // namespace sluice
