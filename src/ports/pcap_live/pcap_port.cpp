// host only
// libpcap, live: works wherever libpcap does, one queue. The kernel gets every packet as well.
#include <fmt/format.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ports/interface.h"
#include "ports/methods.h"
#include "ports/offload.h"
#include "ports/queue_parts.h"

namespace sluice {
namespace {

constexpr uint32_t kDefaultFrames = 4096;
constexpr uint32_t kMostFrames = 1 << 18;
constexpr uint32_t kFrameBytes = 2048;

struct ClosePcap {
  void operator()(pcap_t* pcap) const { pcap_close(pcap); }
};
using Pcap = std::unique_ptr<pcap_t, ClosePcap>;

class PcapRx final : public CopyingRx {
 public:
  PcapRx(pcap_t* pcap, const Interface& interface, std::shared_ptr<FramePool> pool)
      : CopyingRx(interface, std::move(pool)), pcap_(pcap) {}

  uint32_t poll(const Batch::Rows& rows, uint32_t most, uint64_t now_ns) override {
    uint32_t n = 0;
    uint64_t bytes = 0;
    while (n < most) {
      uint8_t* frame = chunks_.frame();
      if (frame == nullptr) break;
      pcap_pkthdr* header;
      const u_char* data;
      // 0: nothing now. Errors: the link went down, or the interface is gone; `state` says which.
      if (pcap_next_ex(pcap_, &header, &data) != 1) break;
      const uint32_t length = header->caplen;
      if (length != header->len || length > room_ || length < 14) {
        (header->len > room_ ? counts_.too_long : counts_.invalid).add(1);
        continue;
      }
      std::memcpy(frame, data, length);
      // libpcap keeps to itself what the kernel says of checksums.
      complete_checksum_if_partial(frame, length);
      chunks_.use();
      set_row(rows, n++, frame, length, now_ns);
      bytes += length;
    }
    counts_.received(n, bytes);
    return n;
  }
  int wait_fd() const override { return pcap_get_selectable_fd(pcap_); }
  bool arm() override { return silent(wait_fd()); }
  RxCounters counters() const override {
    RxCounters counters = counts_.get();
    pcap_stat stat{};
    if (pcap_stats(pcap_, &stat) == 0) counters.missed = stat.ps_drop;
    return counters;
  }

 private:
  pcap_t* const pcap_;
};

class PcapTx final : public CopyingTx {
 public:
  explicit PcapTx(pcap_t* pcap) : pcap_(pcap) {}

  uint32_t send(std::span<const TxFrame> frames) override {
    return send_each(frames, [this](const TxFrame& frame) {
      // A socket says once that its link was down, also when it is up again.
      if (inject(frame) || (errno == ENETDOWN && inject(frame))) return Sent::kYes;
      return no_room(errno) ? Sent::kFull : Sent::kFailed;
    });
  }

 private:
  bool inject(const TxFrame& frame) {
    errno = 0;
    return pcap_inject(pcap_, frame.data, frame.bytes) == static_cast<int>(frame.bytes);
  }

  pcap_t* const pcap_;
};

Result<Pcap> open_pcap(const PortOptions& options, uint32_t room, bool receives) {
  char text[PCAP_ERRBUF_SIZE] = {};
  Pcap pcap(pcap_create(options.name.c_str(), text));
  if (pcap == nullptr) return Error(fmt::format("{}: {}", options.name, text));
  const uint32_t frames = !receives ? 16 : options.rx_ring == 0 ? kDefaultFrames : options.rx_ring;
  // One byte more than fits tells a frame that was cut.
  pcap_set_snaplen(pcap.get(), static_cast<int>(room + 1));
  pcap_set_promisc(pcap.get(), options.promiscuous && receives ? 1 : 0);
  pcap_set_immediate_mode(pcap.get(), 1);
  pcap_set_buffer_size(pcap.get(), static_cast<int>(frames * kFrameBytes));
  const int status = pcap_activate(pcap.get());
  if (status < 0) {
    const int code = status == PCAP_ERROR_PERM_DENIED ? EPERM : 0;
    if (code != 0) return capability_error(fmt::format("{}: libpcap", options.name), code, "CAP_NET_RAW");
    return Error(fmt::format("{}: {} ({})", options.name, pcap_statustostr(status), pcap_geterr(pcap.get())));
  }
  if (pcap_datalink(pcap.get()) != DLT_EN10MB) {
    return Error(fmt::format("interface '{}' carries no Ethernet frames", options.name));
  }
  if (receives) {
    if (pcap_setdirection(pcap.get(), PCAP_D_IN) != 0) {
      return Error(fmt::format("{}: receiving only: {}", options.name, pcap_geterr(pcap.get())));
    }
  } else {
    bpf_insn none{BPF_RET | BPF_K, 0, 0, 0};
    bpf_program nothing{1, &none};
    pcap_setfilter(pcap.get(), &nothing);
  }
  if (pcap_setnonblock(pcap.get(), 1, text) != 0) return Error(fmt::format("{}: {}", options.name, text));
  return pcap;
}

// Handles of their own for RX and TX: libpcap's belong to one thread.
class PcapPort final : public Port {
 public:
  PcapPort(PortOptions options, Pcap receiver, Pcap sender, Interface interface, std::shared_ptr<FramePool> pool)
      : options_(std::move(options)),
        receiver_(std::move(receiver)),
        sender_(std::move(sender)),
        interface_(std::move(interface)),
        pool_(std::move(pool)) {}

  Result<std::unique_ptr<RxQueue>> open_rx(unsigned queue) override {
    if (receiver_ == nullptr || queue != 0) return no_queue(queue, "RX");
    return std::unique_ptr<RxQueue>(std::make_unique<PcapRx>(receiver_.get(), interface_, pool_));
  }
  Result<std::unique_ptr<TxQueue>> open_tx(unsigned queue) override {
    if (sender_ == nullptr || queue != 0) return no_queue(queue, "TX");
    return std::unique_ptr<TxQueue>(std::make_unique<PcapTx>(sender_.get()));
  }
  PortFacts facts() const override {
    PortFacts facts;
    facts.name = options_.name;
    facts.method = "pcap";
    facts.mode = "kernel also receives";
    facts.rx_queues = receiver_ == nullptr ? 0 : 1;
    facts.tx_queues = sender_ == nullptr ? 0 : 1;
    interface_.describe(facts);
    return facts;
  }

 private:
  Error no_queue(unsigned queue, const char* kind) const {
    return Error(fmt::format("{}: no {} queue {}", options_.name, kind, queue));
  }

  PortOptions options_;
  Pcap receiver_, sender_;
  Interface interface_;
  std::shared_ptr<FramePool> pool_;
};

}  // namespace

Result<std::unique_ptr<Port>> open_pcap_port(const PortOptions& options, const std::shared_ptr<FramePool>& pool) {
  if (options.queues != 1) {
    return Error(fmt::format("{}: {} queues; libpcap has one", options.name, options.queues));
  }
  if (options.rx_ring > kMostFrames) {
    return Error(
        fmt::format("{}: a ring of {} frames; libpcap takes up to {}", options.name, options.rx_ring, kMostFrames));
  }
  auto interface = Interface::find(options.name);
  if (!interface) return std::move(interface).error();
  PortFacts facts;
  interface->describe(facts);
  if (auto fits = check_frames_fit(options.name, facts.mtu, pool->shape()); !fits) return std::move(fits).error();
  Pcap receiver, sender;
  for (const bool receives : {true, false}) {
    if (receives ? !options.receives : !options.sends) continue;
    auto pcap = open_pcap(options, pool->shape().room(), receives);
    if (!pcap) return std::move(pcap).error();
    (receives ? receiver : sender) = std::move(*pcap);
  }
  return std::unique_ptr<Port>(
      std::make_unique<PcapPort>(options, std::move(receiver), std::move(sender), std::move(*interface), pool));
}

void examine_pcap(MethodHere& here) {
  need_capabilities(here, {capability::kRaw});
}

}  // namespace sluice
