// host only
// Unqueue, RatedUnqueue and BandwidthRatedUnqueue. Source: their Click manual pages.
#include "elements/flow_element.h"
#include "graph/flow_runs.h"

namespace sluice {
namespace {

class Unqueue final : public FlowElement, public PassingPuller {
 public:
  void configure(const Arguments& arguments, Diagnostics&) override {
    active_ = arguments.get_bool("ACTIVE");
    limit_ = arguments.get_int("LIMIT");
    burst_ = arguments.get_int("BURST");
  }
  Result<void> start(FlowContext& context) override {
    context.wake();
    return {};
  }
  bool task(FlowContext& context) override {
    int64_t moved = 0;
    while (active_ && (burst_ < 0 || moved < burst_) && (limit_ <= 0 || count_ < static_cast<uint64_t>(limit_))) {
      PacketBox packet = context.pull(0);
      if (packet == nullptr) break;
      ++moved;
      ++count_;
      context.push(0, std::move(packet));
      // Without a burst it would keep everybody else waiting for ever where what it pushes comes back to it.
      if (burst_ < 0 && moved == 1024) break;
    }
    return moved != 0;
  }
  uint64_t moves() const override {
    if (!active_ || burst_ == 0) return 0;
    return limit_ <= 0 ? ~uint64_t{0} : static_cast<uint64_t>(limit_) - std::min(count_, static_cast<uint64_t>(limit_));
  }
  void moved(uint64_t packets) override { count_ += packets; }
  void take(FlowContext&, Flow& from) override { count_ = static_cast<const Unqueue&>(from).count_; }
  std::vector<Handler> handlers() override {
    const auto woken = [](FlowContext& context) { context.wake(); };
    return {read_handler("count", &count_), write_handler("reset", [this](FlowContext&) { count_ = 0; }),
            value_handler("active", &active_, kFlagSpec, woken), value_handler("limit", &limit_, kLimitSpec, woken),
            value_handler("burst", &burst_, kLimitSpec, woken)};
  }

 private:
  bool active_ = true;
  int64_t limit_ = -1;
  int64_t burst_ = 1;
  uint64_t count_ = 0;
};

// Packets or bytes by a token bucket. Packets: one goes when there is a whole token. Bytes: one goes when there is
// anything, and is paid for with what comes later.
class RatedUnqueue final : public FlowElement {
 public:
  explicit RatedUnqueue(bool bytes) : bytes_(bytes) {}

  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    rate_ = bytes_ ? arguments.get_bandwidth_bps("RATE") / 8 : arguments.get_uint("RATE");
    const char* size = bytes_ ? "BURST_BYTES" : "BURST_SIZE";
    if (arguments.has("BURST_DURATION") && arguments.has(size)) {
      diagnostics.add(arguments.error_at(size, std::string("both BURST_DURATION and ") + size + " are given"));
    }
    if (arguments.has("BURST_DURATION")) duration_ns_ = arguments.get_time_ns("BURST_DURATION");
    if (arguments.has(size)) size_ = arguments.get_uint(size);
    if (bytes_ && arguments.get_bool("LINK_RATE")) overhead_ = 24;
  }
  Result<void> start(FlowContext& context) override {
    bucket_.set(rate_, capacity(), context.now_ns());
    context.wake();
    return {};
  }
  bool task(FlowContext& context) override {
    bucket_.refill(context.now_ns());
    // Whole tokens for packets; for bytes the least that is more than nothing.
    const __int128 needed = bytes_ ? 1 : kSecondNs;
    constexpr unsigned kTurn = 32;
    unsigned moved = 0;
    for (; moved < kTurn && bucket_.has(needed); ++moved) {
      PacketBox packet = context.pull(0);
      if (packet == nullptr) return moved != 0;
      bucket_.take(bytes_ ? packet->registers.length() + overhead_ : 1);
      context.push(0, std::move(packet));
    }
    if (moved == kTurn) return true;
    if (const uint64_t at = bucket_.time_of(needed); at != kNever) context.set_timer(at);
    return false;
  }
  Time time() const override { return Time::kLooks; }
  void timer(FlowContext& context) override { context.wake(); }
  void take(FlowContext& context, Flow& from) override {
    bucket_ = static_cast<const RatedUnqueue&>(from).bucket_;
    bucket_.set_rate(rate_, capacity(), context.now_ns());
  }
  std::vector<Handler> handlers() override {
    return {rate_handler(bytes_, &rate_, [this](FlowContext& context) {
      bucket_.set_rate(rate_, capacity(), context.now_ns());
      context.wake();
    })};
  }

 private:
  __int128 capacity() const {
    const __int128 units =
        size_ != 0 ? static_cast<__int128>(size_) * kSecondNs : static_cast<__int128>(rate_) * duration_ns_;
    // Less than a packet or a byte would never let anything go.
    return std::max<__int128>(units, kSecondNs);
  }

  bool bytes_;
  uint64_t rate_ = 0;
  uint64_t duration_ns_ = 20'000'000;
  uint64_t size_ = 0;
  uint64_t overhead_ = 0;
  TokenBucket bucket_;
};

}  // namespace

void register_unqueue(Registry& registry) {
  ElementClass c{.name = "Unqueue", .group = "Queues and rates", .summary = "pulls packets and pushes them on"};
  c.description =
      "Takes packets whenever there are any. Handlers: `count`, `reset`, `active`, `limit`, `burst`. With LIMIT it "
      "stops "
      "after so many, until `reset` is written.";
  c.arguments = {{.name = "BURST",
                  .kind = ArgumentKind::kInt,
                  .positional = true,
                  .default_text = "1",
                  .unit = "packets",
                  .help = "packets per run of its task; below 0: all there are"},
                 {.name = "LIMIT",
                  .kind = ArgumentKind::kInt,
                  .default_text = "-1",
                  .unit = "packets",
                  .help = "packets in all; 0 or less: no limit"},
                 bool_argument("ACTIVE", "true", "false: take nothing")};
  c.processing = "l/h";
  c.example = "queue -> Unqueue(BURST 8) -> out;";
  c.make = make_flow<Unqueue>();
  registry.add(c);

  const ArgumentSpec duration{.name = "BURST_DURATION",
                              .kind = ArgumentKind::kTime,
                              .default_text = "20ms",
                              .help = "the bucket holds the tokens of this time",
                              .max = 1e6};
  c.name = "RatedUnqueue";
  c.summary = "pulls packets at a rate and pushes them on";
  c.description =
      "A token bucket of packets, full at the start, exact to the nanosecond. It holds 20 ms of RATE, or what "
      "BURST_DURATION or BURST_SIZE say, and at least one packet. Handler: `rate`.";
  c.arguments = {{.name = "RATE",
                  .kind = ArgumentKind::kUint,
                  .positional = true,
                  .mandatory = true,
                  .unit = "packets per second",
                  .help = "tokens per second",
                  .max = 1e12},
                 duration,
                 {.name = "BURST_SIZE",
                  .kind = ArgumentKind::kUint,
                  .unit = "packets",
                  .help = "what the bucket holds",
                  .min = 1,
                  .max = 1e12}};
  c.example = "queue -> RatedUnqueue(1000, BURST_SIZE 16) -> out;";
  c.make = [](std::string_view) { return std::make_unique<RatedUnqueue>(false); };
  registry.add(c);

  c.name = "BandwidthRatedUnqueue";
  c.summary = "pulls packets at a bandwidth and pushes them on";
  c.description =
      "A token bucket of bytes, full at the start, exact to the nanosecond. A packet leaves when the bucket is not "
      "empty; what it costs beyond that is paid by later tokens. The bucket holds 20 ms of RATE, or what "
      "BURST_DURATION or BURST_BYTES say. Handler: `rate` (bytes per second; written as RATE is).";
  c.arguments = {
      {.name = "RATE",
       .kind = ArgumentKind::kBandwidth,
       .positional = true,
       .mandatory = true,
       .help = "tokens per second",
       .max = 1e12},
      duration,
      {.name = "BURST_BYTES",
       .kind = ArgumentKind::kUint,
       .unit = "bytes",
       .help = "what the bucket holds",
       .min = 1,
       .max = 1e12},
      bool_argument("LINK_RATE", "false",
                    "RATE is that of an Ethernet link: every packet costs 24 bytes more (FCS, preamble, gap)")};
  c.example = "queue -> BandwidthRatedUnqueue(10Mbps) -> out;";
  c.make = [](std::string_view) { return std::make_unique<RatedUnqueue>(true); };
  registry.add(std::move(c));
}

}  // namespace sluice
