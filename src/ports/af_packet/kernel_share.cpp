// host only
#include "ports/af_packet/kernel_share.h"

#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <tuple>

#include "net/bytes.h"
#include "net/ether.h"

namespace sluice {
namespace {

constexpr uint32_t kMostOwn = 65'536;
// Names of <linux/bpf.h> that Debian 12's does not have yet.
constexpr uint32_t kTcxIngress = BPF_LSM_CGROUP + 3;  // BPF_TCX_INGRESS
// One of ours on each interface; a second run replaces that of one that was killed.
constexpr uint32_t kPriority = 0xc000, kHandle = 0x51;
constexpr const char* kName = "sluice";

int bpf(int command, bpf_attr& attributes) {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

// An address as the program looks it up: IPv4 as an IPv4-mapped IPv6 address.
std::array<uint8_t, 16> key_of(const IpAddress& address) {
  std::array<uint8_t, 16> key{};
  store_be64(key.data(), address.hi);
  store_be64(key.data() + 8, address.family == 4 ? uint64_t{0xffff} << 32 | address.lo : address.lo);
  return key;
}

Error missing(const char* what, int code) {
  return capability_error(what, code, "CAP_NET_ADMIN,CAP_BPF");
}

// --- the program ---

constexpr bpf_insn move(uint8_t to, uint8_t from) {
  return {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = to, .src_reg = from};
}
constexpr bpf_insn set(uint8_t to, int32_t value) {
  return {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = to, .imm = value};
}
constexpr bpf_insn add(uint8_t to, int32_t value) {
  return {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = to, .imm = value};
}
constexpr bpf_insn load32(uint8_t to, uint8_t from, int16_t offset) {
  return {.code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = to, .src_reg = from, .off = offset};
}
constexpr bpf_insn store32(int16_t offset, int32_t value) {
  return {.code = BPF_ST | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .off = offset, .imm = value};
}
constexpr bpf_insn jump_if(uint8_t comparison, uint8_t reg, int32_t value, int16_t by) {
  return {.code = static_cast<uint8_t>(BPF_JMP | comparison | BPF_K), .dst_reg = reg, .off = by, .imm = value};
}
constexpr bpf_insn jump(int16_t by) {
  return {.code = BPF_JMP | BPF_JA, .off = by};
}
constexpr bpf_insn call(int32_t helper) {
  return {.code = BPF_JMP | BPF_CALL, .imm = helper};
}
constexpr bpf_insn leave() {
  return {.code = BPF_JMP | BPF_EXIT};
}

constexpr int32_t wire16(uint16_t value) {
  return static_cast<uint16_t>(value << 8 | value >> 8);
}

// What the kernel is to have goes on to whoever else has a say here.
constexpr int32_t kPass = -1, kDrop = 2;  // TC_ACT_UNSPEC, TC_ACT_SHOT

// The packet's VLAN tag is off already, and `protocol` is what is behind it. Lines are numbered for the jumps.
std::vector<bpf_insn> own_only(int map) {
  constexpr uint8_t r0 = BPF_REG_0, r1 = BPF_REG_1, r2 = BPF_REG_2, r3 = BPF_REG_3, r4 = BPF_REG_4, r5 = BPF_REG_5,
                    r6 = BPF_REG_6, frame = BPF_REG_10;
  constexpr int16_t kV6 = 14, kLoad = 18, kPassAt = 30;
  constexpr auto to = [](int16_t line, int16_t from) { return static_cast<int16_t>(line - from - 1); };
  return {
      /* 0*/ move(r6, r1),
      /* 1*/ load32(r0, r6, offsetof(__sk_buff, pkt_type)),
      /* 2*/ jump_if(BPF_JNE, r0, 0, to(kPassAt, 2)),  // not PACKET_HOST: broadcast, multicast, another's
      /* 3*/ load32(r0, r6, offsetof(__sk_buff, protocol)),
      /* 4*/ jump_if(BPF_JEQ, r0, wire16(kEtherTypeIpv6), to(kV6, 4)),
      /* 5*/ jump_if(BPF_JNE, r0, wire16(kEtherTypeIpv4), to(kPassAt, 5)),
      /* 6*/ store32(-16, 0),
      /* 7*/ store32(-12, 0),
      /* 8*/ store32(-8, static_cast<int32_t>(0xffff0000)),  // ::ffff:0.0.0.0
      /* 9*/ set(r2, 16),
      /*10*/ move(r3, frame),
      /*11*/ add(r3, -4),
      /*12*/ set(r4, 4),
      /*13*/ jump(to(kLoad, 13)),
      /*14*/ set(r2, 24),
      /*15*/ move(r3, frame),
      /*16*/ add(r3, -16),
      /*17*/ set(r4, 16),
      /*18*/ move(r1, r6),
      /*19*/ set(r5, BPF_HDR_START_NET),
      /*20*/ call(BPF_FUNC_skb_load_bytes_relative),
      /*21*/ jump_if(BPF_JNE, r0, 0, to(kPassAt, 21)),  // shorter than its header: nobody forwards it
      /*22*/ {.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = r1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map},
      /*23*/ {},
      /*24*/ move(r2, frame),
      /*25*/ add(r2, -16),
      /*26*/ call(BPF_FUNC_map_lookup_elem),
      /*27*/ jump_if(BPF_JNE, r0, 0, to(kPassAt, 27)),
      /*28*/ set(r0, kDrop),
      /*29*/ leave(),
      /*30*/ set(r0, kPass),
      /*31*/ leave(),
  };
}

nlmsghdr* traffic_control(char* space, uint16_t type, uint16_t flags, int ifindex, uint32_t handle, uint32_t parent,
                          uint32_t info) {
  nlmsghdr* message = mnl_nlmsg_put_header(space);
  message->nlmsg_type = type;
  message->nlmsg_flags = flags;
  auto* body = static_cast<tcmsg*>(mnl_nlmsg_put_extra_header(message, sizeof(tcmsg)));
  body->tcm_family = AF_UNSPEC;
  body->tcm_ifindex = ifindex;
  body->tcm_handle = handle;
  body->tcm_parent = parent;
  body->tcm_info = info;
  return message;
}

constexpr uint32_t kIngress = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS);
constexpr uint32_t kInfo = TC_H_MAKE(kPriority << 16, wire16(0x0003));  // every protocol

}  // namespace

Result<std::unique_ptr<KernelShare>> KernelShare::take(const Interface& interface, bool own) {
  auto taken = take(interface, own, Hook::kLink);
  if (taken) return taken;
  return take(interface, own, Hook::kFilter);
}

Result<std::unique_ptr<KernelShare>> KernelShare::take(const Interface& interface, bool own, Hook hook) {
  std::unique_ptr<KernelShare> share(new KernelShare());
  share->hook_ = hook;
  if (own) {
    auto watch = LinkWatch::create();
    if (!watch) return std::move(watch).error();
    share->watch_ = std::move(*watch);
  }
  if (auto loaded = share->load(own); !loaded) return std::move(loaded).error();
  if (own) {
    if (auto known = share->set_addresses(); !known) return std::move(known).error();
  }
  auto attached = hook == Hook::kLink ? share->attach_link(interface.index()) : share->attach_filter(interface.index());
  if (!attached) return std::move(attached).error();
  return share;
}

KernelShare::~KernelShare() {
  if (ifindex_ == 0) return;
  std::array<char, 256> space{};
  nlmsghdr* message = traffic_control(space.data(), RTM_DELTFILTER, 0, ifindex_, kHandle, kIngress, kInfo);
  mnl_attr_put_strz(message, TCA_KIND, "bpf");
  // Where the interface is gone, so is the filter.
  (void)requests_->request(message).ok();
}

Result<void> KernelShare::load(bool own) {
  if (own) {
    bpf_attr map{};
    map.map_type = BPF_MAP_TYPE_HASH;
    map.key_size = 16;
    map.value_size = 4;
    map.max_entries = kMostOwn;
    map.map_flags = BPF_F_NO_PREALLOC;
    map_ = FileDescriptor(bpf(BPF_MAP_CREATE, map));
    if (!map_) return missing("a BPF map", errno);
  }
  const std::vector<bpf_insn> code = own ? own_only(map_.get()) : std::vector<bpf_insn>{set(BPF_REG_0, kDrop), leave()};
  bpf_attr program{};
  program.prog_type = BPF_PROG_TYPE_SCHED_CLS;
  program.insns = reinterpret_cast<uint64_t>(code.data());
  program.insn_cnt = static_cast<uint32_t>(code.size());
  program.license = reinterpret_cast<uint64_t>("Apache-2.0");
  std::memcpy(program.prog_name, kName, std::strlen(kName));
  program_ = FileDescriptor(bpf(BPF_PROG_LOAD, program));
  if (!program_) return missing("a BPF program", errno);
  return {};
}

Result<void> KernelShare::attach_link(int ifindex) {
  bpf_attr link{};
  link.link_create.prog_fd = static_cast<uint32_t>(program_.get());
  link.link_create.target_ifindex = static_cast<uint32_t>(ifindex);
  link.link_create.attach_type = kTcxIngress;
  link_ = FileDescriptor(bpf(BPF_LINK_CREATE, link));
  if (!link_) return missing("a BPF link at ingress", errno);
  return {};
}

Result<void> KernelShare::attach_filter(int ifindex) {
  auto requests = NetlinkSocket::open(0);
  if (!requests) return std::move(requests).error();
  requests_ = std::make_unique<NetlinkSocket>(std::move(*requests));
  std::array<char, 512> space{};
  nlmsghdr* discipline = traffic_control(space.data(), RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, ifindex,
                                         TC_H_MAKE(TC_H_CLSACT, 0), TC_H_CLSACT, 0);
  mnl_attr_put_strz(discipline, TCA_KIND, "clsact");
  auto made = requests_->request(discipline);
  if (!made) return std::move(made).error();
  if (*made != 0 && *made != EEXIST) return missing("the clsact discipline", *made);
  space = {};
  nlmsghdr* filter = traffic_control(space.data(), RTM_NEWTFILTER, NLM_F_CREATE, ifindex, kHandle, kIngress, kInfo);
  mnl_attr_put_strz(filter, TCA_KIND, "bpf");
  nlattr* nest = mnl_attr_nest_start(filter, TCA_OPTIONS);
  mnl_attr_put_u32(filter, TCA_BPF_FD, static_cast<uint32_t>(program_.get()));
  mnl_attr_put_strz(filter, TCA_BPF_NAME, kName);
  mnl_attr_put_u32(filter, TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
  mnl_attr_nest_end(filter, nest);
  auto added = requests_->request(filter);
  if (!added) return std::move(added).error();
  if (*added != 0) return missing("a BPF filter of clsact", *added);
  ifindex_ = ifindex;
  return {};
}

Result<void> KernelShare::set_addresses() {
  std::vector<IpAddress> now;
  for (const auto& [index, link] : watch_->links()) {
    for (const LinkAddress& a : link.addresses) now.push_back(a.address);
  }
  const auto less = [](const IpAddress& a, const IpAddress& b) {
    return std::tuple(a.family, a.hi, a.lo) < std::tuple(b.family, b.hi, b.lo);
  };
  std::sort(now.begin(), now.end(), less);
  now.erase(std::unique(now.begin(), now.end()), now.end());
  int error = 0;
  const auto change = [&](int command, const IpAddress& address) {
    const std::array<uint8_t, 16> key = key_of(address);
    const uint32_t value = 1;
    bpf_attr element{};
    element.map_fd = static_cast<uint32_t>(map_.get());
    element.key = reinterpret_cast<uint64_t>(key.data());
    if (command == BPF_MAP_UPDATE_ELEM) element.value = reinterpret_cast<uint64_t>(&value);
    if (bpf(command, element) != 0 && errno != ENOENT) error = errno;
  };
  for (const IpAddress& a : now) {
    if (!std::binary_search(addresses_.begin(), addresses_.end(), a, less)) change(BPF_MAP_UPDATE_ELEM, a);
  }
  for (const IpAddress& a : addresses_) {
    if (!std::binary_search(now.begin(), now.end(), a, less)) change(BPF_MAP_DELETE_ELEM, a);
  }
  addresses_ = std::move(now);
  if (error != 0) return missing("the addresses of this machine in a BPF map", error);
  return {};
}

void KernelShare::follow_addresses() {
  if (watch_ == nullptr) return;
  bool changed = false;
  // An error is met again by the next call.
  (void)watch_->read([&](const KernelLink*, const KernelLink*) { changed = true; }).ok();
  if (changed) (void)set_addresses().ok();
}

}  // namespace sluice
