// host only
#include "ports/af_xdp/program.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/bpf.h>
#include <linux/if_link.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "ports/af_xdp/patience.h"

namespace sluice {
namespace {

constexpr const char* kCapabilities = "CAP_NET_ADMIN,CAP_NET_RAW,CAP_BPF";

// Instructions with named places to jump to.
class Assembler {
 public:
  void load(int size, int to, int from, int offset) { add(BPF_LDX | BPF_MEM | size, to, from, offset, 0); }
  void store(int size, int to, int offset, int from) { add(BPF_STX | BPF_MEM | size, to, from, offset, 0); }
  void move(int to, int from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); }
  void set(int to, int value) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
  void plus(int to, int value) { add(BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value); }
  void map(int to, const FileDescriptor& which) {
    add(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, which.get());
    add(0, 0, 0, 0, 0);
  }
  void call(int function) { add(BPF_JMP | BPF_CALL, 0, 0, 0, function); }
  void exit() { add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }
  void jump(const char* to) { jump_to(BPF_JMP | BPF_JA, 0, 0, 0, to); }
  void jump_if(int condition, int left, int value, const char* to) {
    jump_to(BPF_JMP | condition | BPF_K, left, 0, value, to);
  }
  void jump_if_register(int condition, int left, int right, const char* to) {
    jump_to(BPF_JMP | condition | BPF_X, left, right, 0, to);
  }
  void place(const char* name) { places_[name] = code_.size(); }

  std::vector<bpf_insn> finish() {
    for (const auto& [at, to] : jumps_) code_[at].off = static_cast<int16_t>(places_.at(to) - at - 1);
    return std::move(code_);
  }

 private:
  void add(int code, int to, int from, int offset, int value) {
    bpf_insn instruction{};
    instruction.code = static_cast<uint8_t>(code);
    instruction.dst_reg = static_cast<uint8_t>(to) & 15;
    instruction.src_reg = static_cast<uint8_t>(from) & 15;
    instruction.off = static_cast<int16_t>(offset);
    instruction.imm = value;
    code_.push_back(instruction);
  }
  void jump_to(int code, int left, int right, int value, const char* to) {
    jumps_.emplace_back(code_.size(), to);
    add(code, left, right, 0, value);
  }

  std::vector<bpf_insn> code_;
  std::vector<std::pair<size_t, std::string>> jumps_;
  std::map<std::string, size_t> places_;
};

// What frames are the kernel's is told by their first headers. A frame that ends before these do is no packet that the
// kernel would answer: it goes to the socket like all others.
std::vector<bpf_insn> write_program(const FileDescriptor& sockets, const FileDescriptor& own4,
                                    const FileDescriptor& own6, bool kernel_gets_own) {
  constexpr int kContext = BPF_REG_6, kHeader = BPF_REG_7, kEnd = BPF_REG_8, kType = BPF_REG_9, kStack = BPF_REG_10;
  Assembler a;
  a.move(kContext, BPF_REG_1);
  if (kernel_gets_own) {
    // `bytes` from the header on exist, or the frame is the socket's.
    const auto need = [&](int bytes) {
      a.move(BPF_REG_2, kHeader);
      a.plus(BPF_REG_2, bytes);
      a.jump_if_register(BPF_JGT, BPF_REG_2, kEnd, "socket");
    };
    a.load(BPF_W, kHeader, kContext, offsetof(xdp_md, data));
    a.load(BPF_W, kEnd, kContext, offsetof(xdp_md, data_end));
    need(14);
    a.load(BPF_H, kType, kHeader, 12);
    a.plus(kHeader, 14);
    a.jump_if(BPF_JEQ, kType, htons(0x8100), "tagged");
    a.jump_if(BPF_JNE, kType, htons(0x88a8), "typed");
    a.place("tagged");
    need(4);
    a.load(BPF_H, kType, kHeader, 2);
    a.plus(kHeader, 4);
    a.place("typed");
    a.jump_if(BPF_JEQ, kType, htons(0x0806), "kernel");  // ARP
    a.jump_if(BPF_JEQ, kType, htons(0x88cc), "kernel");  // LLDP
    a.jump_if(BPF_JEQ, kType, htons(0x86dd), "ipv6");
    a.jump_if(BPF_JNE, kType, htons(0x0800), "socket");

    need(20);
    a.load(BPF_W, BPF_REG_3, kHeader, 16);
    a.store(BPF_W, kStack, -4, BPF_REG_3);
    a.move(BPF_REG_2, kStack);
    a.plus(BPF_REG_2, -4);
    a.map(BPF_REG_1, own4);
    a.call(BPF_FUNC_map_lookup_elem);
    a.jump_if(BPF_JNE, BPF_REG_0, 0, "kernel");
    a.jump("socket");

    a.place("ipv6");
    need(40);
    a.load(BPF_B, BPF_REG_3, kHeader, 6);
    a.jump_if(BPF_JNE, BPF_REG_3, 58, "address");  // ICMPv6
    need(41);
    a.load(BPF_B, BPF_REG_3, kHeader, 40);
    a.jump_if(BPF_JLT, BPF_REG_3, 133, "address");
    a.jump_if(BPF_JLE, BPF_REG_3, 137, "kernel");  // router and neighbour discovery, redirects (RFC 4861)
    a.place("address");
    for (int i = 0; i < 16; i += 4) {
      a.load(BPF_W, BPF_REG_3, kHeader, 24 + i);
      a.store(BPF_W, kStack, i - 16, BPF_REG_3);
    }
    a.move(BPF_REG_2, kStack);
    a.plus(BPF_REG_2, -16);
    a.map(BPF_REG_1, own6);
    a.call(BPF_FUNC_map_lookup_elem);
    a.jump_if(BPF_JEQ, BPF_REG_0, 0, "socket");

    a.place("kernel");
    a.set(BPF_REG_0, XDP_PASS);
    a.exit();
    a.place("socket");
  }
  a.load(BPF_W, BPF_REG_2, kContext, offsetof(xdp_md, rx_queue_index));
  a.map(BPF_REG_1, sockets);
  a.set(BPF_REG_3, XDP_PASS);  // where there is no socket
  a.call(BPF_FUNC_redirect_map);
  a.exit();
  return a.finish();
}

// "'name' (id 17)"; without a name where this process may not ask.
std::string describe_program(uint32_t id, std::string& name) {
  name.clear();
  const FileDescriptor program(bpf_prog_get_fd_by_id(id));
  bpf_prog_info info{};
  uint32_t bytes = sizeof info;
  if (program && bpf_obj_get_info_by_fd(program.get(), &info, &bytes) == 0) name = info.name;
  return name.empty() ? fmt::format("number {}", id) : fmt::format("'{}' (number {})", name, id);
}

Error in_use(const std::string& interface) {
  return Error(fmt::format("{}: another run receives from it by AF_XDP", interface),
               "end that run; one run at a time has an interface");
}

struct Attached {
  uint32_t id = 0;
  uint32_t flag = 0;
};
Attached attached_to(int ifindex) {
  LIBBPF_OPTS(bpf_xdp_query_opts, there);
  if (bpf_xdp_query(ifindex, 0, &there) != 0) return {};
  if (there.drv_prog_id != 0) return {there.drv_prog_id, XDP_FLAGS_DRV_MODE};
  if (there.skb_prog_id != 0) return {there.skb_prog_id, XDP_FLAGS_SKB_MODE};
  if (there.hw_prog_id != 0) return {there.hw_prog_id, XDP_FLAGS_HW_MODE};
  return {};
}

template <size_t N>
Result<void> replace_keys(const FileDescriptor& map, std::span<const std::array<uint8_t, N>> keys) {
  if (keys.size() > XdpProgram::kMostAddresses) {
    return Error(fmt::format("{} own addresses; up to {} can be told apart", keys.size(), XdpProgram::kMostAddresses));
  }
  const std::set<std::array<uint8_t, N>> wanted(keys.begin(), keys.end());
  const uint8_t yes = 1;
  std::set<std::array<uint8_t, N>> there;
  std::array<uint8_t, N> key{}, next{};
  for (bool first = true; bpf_map_get_next_key(map.get(), first ? nullptr : key.data(), next.data()) == 0;
       first = false) {
    there.insert(next);
    key = next;
  }
  for (const auto& one : there) {
    if (!wanted.contains(one)) bpf_map_delete_elem(map.get(), one.data());
  }
  for (const auto& one : wanted) {
    if (bpf_map_update_elem(map.get(), one.data(), &yes, BPF_ANY) != 0) return system_error("own addresses", errno);
  }
  return {};
}

}  // namespace

Result<XdpProgram> XdpProgram::load(unsigned queues, bool kernel_gets_own, bool in_pieces) {
  // The library prints nothing; what went wrong is in the codes.
  libbpf_set_print(nullptr);
  XdpProgram made;
  const auto map = [](bpf_map_type type, const char* name, uint32_t key, uint32_t value, uint32_t entries,
                      uint32_t flags) {
    LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = flags);
    return FileDescriptor(bpf_map_create(type, name, key, value, entries, &options));
  };
  made.sockets_ = map(BPF_MAP_TYPE_XSKMAP, "sluice_sockets", 4, 4, queues, 0);
  if (!made.sockets_) return capability_error("a BPF map of AF_XDP sockets", errno, kCapabilities);
  if (kernel_gets_own) {
    made.own4_ = map(BPF_MAP_TYPE_HASH, "sluice_own4", 4, 1, kMostAddresses, BPF_F_NO_PREALLOC);
    if (!made.own4_) return capability_error("a BPF map of addresses", errno, kCapabilities);
    made.own6_ = map(BPF_MAP_TYPE_HASH, "sluice_own6", 16, 1, kMostAddresses, BPF_F_NO_PREALLOC);
    if (!made.own6_) return capability_error("a BPF map of addresses", errno, kCapabilities);
  }
  const std::vector<bpf_insn> code = write_program(made.sockets_, made.own4_, made.own6_, kernel_gets_own);
  LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_flags = in_pieces ? uint32_t{BPF_F_XDP_HAS_FRAGS} : 0);
  made.program_ = FileDescriptor(
      bpf_prog_load(BPF_PROG_TYPE_XDP, kXdpProgramName, "Apache-2.0", code.data(), code.size(), &options));
  if (!made.program_) return capability_error("loading the XDP program", errno, kCapabilities);
  return made;
}

XdpProgram::~XdpProgram() {
  detach();
}

void XdpProgram::detach() {
  link_.reset();
  if (ifindex_ == 0 || !program_) return;
  LIBBPF_OPTS(bpf_xdp_attach_opts, options, .old_prog_fd = program_.get());
  // Where another has taken its place meanwhile, that one stays.
  bpf_xdp_detach(ifindex_, mode_flag_ | XDP_FLAGS_REPLACE, &options);
  ifindex_ = 0;
}

Result<void> XdpProgram::attach(const std::string& name, int ifindex, PortOptions::XdpMode mode,
                                bool (*queue_is_free)(int ifindex), By by) {
  // What a run leaves that has just ended goes within milliseconds.
  Attached there;
  std::string called;
  const bool alone = patiently([&] {
    there = attached_to(ifindex);
    if (there.id == 0) return true;
    const std::string what = describe_program(there.id, called);
    if (called != kXdpProgramName) return true;
    if (!queue_is_free(ifindex)) return false;
    // Ours, and nobody receives by it: left by a run that was killed, where the kernel has no links. A link's program
    // cannot be taken away like this.
    const FileDescriptor left(bpf_prog_get_fd_by_id(there.id));
    LIBBPF_OPTS(bpf_xdp_attach_opts, options, .old_prog_fd = left.get());
    if (left && bpf_xdp_detach(ifindex, there.flag | XDP_FLAGS_REPLACE, &options) == 0) there.id = 0;
    return there.id == 0;
  });
  if (!alone) return in_use(name);
  if (there.id != 0) {
    return Error(fmt::format("{}: the XDP program {} is attached to it already, and is not this one's to replace", name,
                             describe_program(there.id, called)),
                 fmt::format("who attached it can end it; else: ip link set {} xdp off", name));
  }
  std::string reasons;
  int code = 0;
  for (const bool native : {true, false}) {
    if (mode == (native ? PortOptions::XdpMode::kGeneric : PortOptions::XdpMode::kNative)) continue;
    const uint32_t flag = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
    native_ = native;
    code = EINVAL;
    if (by == By::kLink) {
      LIBBPF_OPTS(bpf_link_create_opts, options, .flags = flag);
      link_ = FileDescriptor(bpf_link_create(program_.get(), ifindex, BPF_XDP, &options));
      if (link_) return {};
      code = errno;
    }
    if (code == EINVAL) {  // no links in this kernel
      code = -bpf_xdp_attach(ifindex, program_.get(), flag | XDP_FLAGS_UPDATE_IF_NOEXIST, nullptr);
      if (code == 0) {
        ifindex_ = ifindex;
        mode_flag_ = flag;
        return {};
      }
    }
    if (code == EPERM || code == EACCES) {
      return capability_error(fmt::format("attaching the XDP program to {}", name), code, kCapabilities);
    }
    if (code == EBUSY || code == EEXIST) return in_use(name);
    reasons +=
        fmt::format("{}{} mode: {}", reasons.empty() ? "" : "; ", native ? "native" : "generic", std::strerror(code));
  }
  return Error(fmt::format("{}: its driver takes no XDP program ({})", name, reasons),
               code == ERANGE || code == EINVAL ? "drivers limit the MTU with XDP, veth also that of the other end"
                                                : "generic mode works with every driver");
}

Result<void> XdpProgram::set_socket(unsigned queue, int socket) {
  if (bpf_map_update_elem(sockets_.get(), &queue, &socket, BPF_ANY) != 0) {
    return system_error(fmt::format("queue {}", queue), errno);
  }
  return {};
}

void XdpProgram::clear_socket(unsigned queue) {
  bpf_map_delete_elem(sockets_.get(), &queue);
}

Result<void> XdpProgram::set_own_addresses(std::span<const Address4> v4, std::span<const Address6> v6) {
  if (!own4_) return {};
  if (auto done = replace_keys(own4_, v4); !done) return done;
  return replace_keys(own6_, v6);
}

}  // namespace sluice
