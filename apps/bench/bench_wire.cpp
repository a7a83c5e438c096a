// `sluice bench wire`: a generator and a meter for a device that is not this program: what it forwards, loses, repeats
// and reorders, how long it takes, and its throughput (RFC 2544 section 26.1). host only
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "apps/sluice/inputs.h"
#include "apps/sluice/port_flags.h"
#include "base/clock.h"
#include "bench.h"
#include "control/json.h"
#include "control/machine.h"
#include "generate/traffic.h"
#include "net/text.h"
#include "ports/wire/burst_search.h"
#include "ports/wire/throughput_search.h"
#include "ports/wire/trial.h"

namespace sluice::app {
namespace {

constexpr uint32_t kFcs = 4;
constexpr uint32_t kLineOverhead = 24;  // FCS, preamble and gap
constexpr uint32_t kEthernet = 14;
constexpr const char* kAllSizes = "64,128,256,512,1024,1280,1518";  // RFC 2544 section 9.1

struct WireFlags {
  std::string tx, rx, method, size, imix, rate, dst_mac, to = "198.19.0.0/16", routes;
  bool search = false, latency = false;
  double duration = 10, loss = 0, resolution = 1;
  unsigned flows = 1024, back_to_back = 0;  // tests of bursts; 0: none
  uint64_t seed = 1;
};

struct Trial {
  uint64_t asked_pps = 0;  // 0: as fast as it goes
  WireTrial did;
  Histogram latency;
  bool passed = false;

  bool is_short() const { return !did.send.stopped && ThroughputSearch::is_short(asked_pps, did.offered_pps()); }
};

// The longest bursts without loss (RFC 9004), of one frame size.
struct Bursts {
  std::vector<uint64_t> frames;  // of each test
  uint64_t limited = 0;  // tests whose burst was all that was sent within the duration: the longest may be longer
  uint64_t step = 0;     // that lengths were searched to, the largest of the tests
  double pps = 0;        // at which bursts left, mean of the tests
  uint64_t missed = 0, failed = 0, bad_checksum = 0;

  double mean() const {
    return std::accumulate(frames.begin(), frames.end(), 0.0) / static_cast<double>(frames.size());
  }
  double deviation() const {
    double sum = 0;
    for (const uint64_t n : frames) sum += (static_cast<double>(n) - mean()) * (static_cast<double>(n) - mean());
    return frames.size() < 2 ? 0 : std::sqrt(sum / static_cast<double>(frames.size() - 1));
  }
};

// Of one frame size.
struct Row {
  std::string size;
  double mean_bytes = 0;  // of a frame, without FCS
  std::vector<Trial> trials;
  uint64_t throughput_pps = 0;  // of a search
  bool limited_by_generator = false;
  bool complete = false;
  Bursts bursts;

  // How long the device's buffers take frames in that it does not forward (RFC 9004 section 6): the burst's time, and
  // that without what is forwarded meanwhile. Nothing where the bursts had no end.
  std::optional<double> buffer_s() const {
    if (bursts.frames.empty() || bursts.limited != 0 || bursts.pps <= 0) return std::nullopt;
    return bursts.mean() / bursts.pps;
  }
  std::optional<double> corrected_buffer_s() const {
    const auto time = buffer_s();
    if (!time) return std::nullopt;
    return *time * std::max(0.0, 1 - static_cast<double>(throughput_pps) / bursts.pps);
  }
  double bps(uint64_t pps) const { return static_cast<double>(pps) * 8 * mean_bytes; }
  double line_bps(uint64_t pps) const { return static_cast<double>(pps) * 8 * (mean_bytes + kLineOverhead); }
};

std::vector<std::string> sizes_of(const WireFlags& flags) {
  const std::vector<std::string> sizes = split_commas(!flags.size.empty()   ? flags.size
                                                      : !flags.imix.empty() ? "imix"
                                                      : flags.search        ? kAllSizes
                                                                            : "64");
  if (sizes.empty()) fail(Exit::kUsage, "--size names none");
  for (const std::string& size : sizes) {
    unsigned bytes = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), bytes);
    const bool number = error == std::errc() && end == size.data() + size.size() && bytes >= 64 && bytes <= 9618;
    if (!number && size != "imix") {
      fail(Exit::kUsage, fmt::format("--size '{}' is no frame size", size),
           "give sizes from 64 to 9618 with FCS, or imix, such as 64,512,1518");
    }
  }
  if (!flags.imix.empty() && std::ranges::find(sizes, "imix") == sizes.end())
    fail(Exit::kUsage, fmt::format("--imix says what imix is, and --size {} has none", flags.size),
         "--size 64,imix, or no --size");
  return sizes;
}

std::vector<IpPrefix> destinations_of(const WireFlags& flags) {
  std::vector<IpPrefix> all;
  if (!flags.routes.empty()) {
    const std::vector<std::string> files = split_route_files(flags.routes);
    NamedInputs named;
    add_route_inputs(named, "--routes", files);
    InputSet inputs = open_inputs(named);
    const Rib rib = read_routes(inputs, files, nullptr);
    for (const Route4& r : rib.routes4()) all.push_back({{0, r.address, 4}, r.length});
    if (all.empty()) fail(Exit::kBadInput, fmt::format("{}: there are no IPv4 routes in it", flags.routes));
    return all;
  }
  for (const std::string& text : split_commas(flags.to)) {
    const auto prefix = parse_prefix(text);
    if (!prefix || prefix->address.family != 4)
      fail(Exit::kUsage, fmt::format("--to '{}' is no IPv4 prefix", text), "such as 198.19.0.0/16");
    all.push_back(*prefix);
  }
  return all;
}

// From 198.18.0.0/16, one of the networks for such measurements (RFC 2544 appendix C.2.2).
FrameStore frames_of(const WireFlags& flags, const std::string& size, const std::vector<IpPrefix>& destinations,
                     const MacAddress& to, const MacAddress& from) {
  TrafficOptions t;
  t.flows = flags.flows;
  t.zipf = 0;
  t.seed = flags.seed;
  t.tcp = t.icmp = 0;
  t.udp = 1;
  t.dst_mac = to;
  t.src_mac = from;
  t.packets = std::max(flags.flows, 1024u);
  t.size_mix = size == "imix" ? SizeMix::kImix : SizeMix::kFixed;
  if (size != "imix") {
    t.fixed_bytes = static_cast<uint32_t>(std::stoul(size));
  } else if (!flags.imix.empty()) {
    t.size_sequence = need(sizes_of_genome(flags.imix), Exit::kUsage);
    // A whole number of rounds: the frames are sent again and again.
    const uint64_t round = t.size_sequence.size();
    t.packets = (t.packets + round - 1) / round * round;
  }
  FlowRegion region;
  region.src = *parse_prefix("198.18.0.0/16");
  region.src_port = region.dst_port = {1024, 65535};
  region.protocol = 17;
  region.protocol_mask = 0xff;
  t.regions = {region};
  t.destinations = destinations;
  t.stop = &interrupted();
  FrameStore frames;
  need(generate_traffic(t, frames), Exit::kUsage);
  need(prepare_wire_frames(frames));
  return frames;
}

Json latency_json(const Histogram& h) {
  return {{"min", h.min()},
          {"mean", h.mean()},
          {"p50", h.percentile(50)},
          {"p99", h.percentile(99)},
          {"p99_9", h.percentile(99.9)},
          {"max", h.max()}};
}

Json trial_json(const WireFlags& flags, const Row& row, const Trial& trial) {
  const WireTrial& t = trial.did;
  const uint64_t pps = t.offered_pps();
  Json json{{"asked_pps", trial.asked_pps == 0 ? Json(nullptr) : Json(trial.asked_pps)},
            {"offered_pps", pps},
            {"offered_bps", row.bps(pps)},
            {"offered_line_bps", row.line_bps(pps)},
            {"seconds", static_cast<double>(t.span_ns) / 1e9},
            {"sent", t.sent()},
            {"received", t.counts.received},
            {"lost", t.lost()},
            {"loss_percent", t.loss_percent()},
            {"duplicated", t.counts.duplicated},
            {"reordered", t.counts.reordered},
            {"too_old", t.counts.too_old},
            {"bad_checksum", t.counts.bad_checksum},
            {"earlier", t.counts.earlier},
            {"foreign", t.counts.foreign},
            {"missed", t.missed},
            {"failed", t.failed},
            {"late_ns", t.send.late_ns},
            {"generator_short", trial.is_short()}};
  if (flags.search) json["passed"] = trial.passed;
  if (flags.latency) json["latency_ns"] = latency_json(trial.latency);
  return json;
}

Json port_json(const PortFacts& facts) {
  return {{"name", facts.name}, {"method", facts.method}, {"mode", facts.mode}, {"mtu", facts.mtu}};
}

std::string trials_text(const WireFlags& flags, const std::vector<Row>& rows) {
  std::vector<std::string> heads = {"size", "offered/s", "Mbit/s", "sent", "received",
                                    "lost", "loss %",    "dup",    "reord"};
  if (flags.latency) {
    for (const char* head : {"min us", "mean us", "p50 us", "p99 us", "p99.9 us", "max us"}) heads.emplace_back(head);
  }
  if (flags.search) heads.emplace_back("");
  TextTable table(heads);
  const auto us = [](double ns) { return fmt::format("{:.1f}", ns / 1e3); };
  for (const Row& row : rows) {
    for (const Trial& trial : row.trials) {
      const WireTrial& t = trial.did;
      const uint64_t pps = t.offered_pps();
      std::vector<std::string> words = {row.size,
                                        with_commas(pps),
                                        fmt::format("{:.1f}", row.bps(pps) / 1e6),
                                        with_commas(t.sent()),
                                        with_commas(t.counts.received),
                                        with_commas(t.lost()),
                                        fmt::format("{:.4f}", t.loss_percent()),
                                        with_commas(t.counts.duplicated),
                                        with_commas(t.counts.reordered)};
      if (flags.latency) {
        const Histogram& h = trial.latency;
        words.push_back(us(static_cast<double>(h.min())));
        words.push_back(us(h.mean()));
        for (const double p : {50.0, 99.0, 99.9, 100.0}) words.push_back(us(static_cast<double>(h.percentile(p))));
      }
      // "missed": it did not pass for what this meter lost.
      if (flags.search) {
        words.emplace_back(t.send.stopped         ? "interrupted"
                           : trial.passed         ? "passed"
                           : t.missed >= t.lost() ? "missed"
                                                  : "failed");
      }
      table.add(std::move(words));
    }
  }
  return table.str();
}

std::string throughput_text(const std::vector<Row>& rows) {
  TextTable table({"size", "throughput/s", "Mbit/s", "line Mbit/s", "trials", ""});
  for (const Row& row : rows) {
    table.add({row.size, with_commas(row.throughput_pps), fmt::format("{:.1f}", row.bps(row.throughput_pps) / 1e6),
               fmt::format("{:.1f}", row.line_bps(row.throughput_pps) / 1e6), fmt::format("{}", row.trials.size()),
               !row.complete              ? "interrupted"
               : row.limited_by_generator ? "as much as was offered"
                                          : ""});
  }
  return table.str();
}

std::string bursts_text(const std::vector<Row>& rows) {
  TextTable table(
      {"size", "tests", "frames in a burst", "min", "max", "deviation", "burst/s", "buffer us", "corrected us", ""});
  const auto us = [](const std::optional<double>& s) { return s ? fmt::format("{:.1f}", *s * 1e6) : std::string("-"); };
  for (const Row& row : rows) {
    const Bursts& b = row.bursts;
    if (b.frames.empty()) continue;
    table.add({row.size, fmt::format("{}", b.frames.size()), fmt::format("{:.1f}", b.mean()),
               with_commas(std::ranges::min(b.frames)), with_commas(std::ranges::max(b.frames)),
               fmt::format("{:.1f}", b.deviation()), with_commas(static_cast<uint64_t>(b.pps)), us(row.buffer_s()),
               us(row.corrected_buffer_s()), b.limited != 0 ? "as much as was offered" : ""});
  }
  return table.str();
}

Json bursts_json(const Row& row) {
  const Bursts& b = row.bursts;
  if (b.frames.empty()) return nullptr;
  const auto or_null = [](const std::optional<double>& s) { return s ? Json(*s) : Json(nullptr); };
  return {{"tests", b.frames.size()},
          {"frames", b.frames},
          {"mean", b.mean()},
          {"min", std::ranges::min(b.frames)},
          {"max", std::ranges::max(b.frames)},
          {"deviation", b.deviation()},
          {"step", b.step},
          {"limited_by_generator", b.limited},
          {"burst_pps", b.pps},
          {"buffer_time_s", or_null(row.buffer_s())},
          {"corrected_buffer_time_s", or_null(row.corrected_buffer_s())}};
}

class WireBench {
 public:
  explicit WireBench(const WireFlags& flags) : flags_(flags), sizes_(sizes_of(flags)) {
    if (!flags.rate.empty()) read_rate(flags.rate, rate_);
    if (!flags.dst_mac.empty()) {
      const auto mac = parse_mac(flags.dst_mac);
      if (!mac)
        fail(Exit::kUsage, fmt::format("--dst-mac '{}' is no MAC address", flags.dst_mac), "such as 02:00:00:00:00:01");
      to_ = *mac;
    }
    destinations_ = destinations_of(flags);
    open();
    std::random_device random;
    key_ = uint64_t{random()} << 32 | random();
  }

  Exit run() {
    const EndsInOrder in_order;
    WireMeter meter(*rx_queue_, now_ns, flags_.latency);
    Progress progress("");
    for (const std::string& size : sizes_) {
      FrameStore frames = frames_of(flags_, size, destinations_, to_, from_);
      // Of the sizes before there is a report.
      if (interrupted().load()) break;
      Row& row = rows_.emplace_back();
      row.size = size;
      uint64_t bytes = 0;
      for (const uint32_t captured : frames.captured()) bytes += captured;
      row.mean_bytes = static_cast<double>(bytes) / static_cast<double>(frames.size());
      measure(row, frames, meter, progress);
    }
    progress.clear();
    report();
    return end();
  }

 private:
  uint32_t largest_of(const std::string& size) const {
    if (size != "imix") return static_cast<uint32_t>(std::stoul(size));
    return flags_.imix.empty() ? 1518 : std::ranges::max(need(sizes_of_genome(flags_.imix), Exit::kUsage));
  }

  void open() {
    FrameShape shape;
    uint32_t largest = 0;
    for (const std::string& size : sizes_) largest = std::max(largest, largest_of(size));
    largest_ = largest - kFcs;
    while (shape.room() < largest_) shape.stride += 128;
    auto pool = need(MappedFramePool::create(shape), Exit::kIo);
    PortOptions tx = port_options(flags_.tx, flags_.method), rx = port_options(flags_.rx, flags_.method);
    const bool same = tx.name == rx.name && tx.method == rx.method;
    tx.receives = same;
    rx.sends = false;
    ports_.push_back(need(open_port(tx, pool), Exit::kUnavailable));
    if (!same) ports_.push_back(need(open_port(rx, pool), Exit::kUnavailable));
    for (const auto& port : ports_) {
      PortFacts facts = port->facts();
      // Of a cable that was just plugged in the kernel tells within a second or two.
      for (int tries = 0; !facts.up && tries < 40 && !interrupted().load(); ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        facts = port->facts();
      }
      if (!facts.up) {
        fail(Exit::kUnavailable, fmt::format("{}: the link is down", facts.name),
             fmt::format("ip link set {} up; and the other end of its cable", facts.name));
      }
    }
    rx_queue_ = need(ports_.back()->open_rx(0), Exit::kUnavailable);
    tx_queue_ = need(ports_.front()->open_tx(0), Exit::kUnavailable);
    const PortFacts sender = ports_.front()->facts();
    if (sender.mtu != 0 && largest_ > sender.mtu + kEthernet) {
      fail(Exit::kUsage, fmt::format("--size {}: {} has an MTU of {}", largest, sender.name, sender.mtu),
           fmt::format("the largest frame is {} bytes with FCS", sender.mtu + kEthernet + kFcs));
    }
    std::ranges::copy(sender.mac, from_.bytes);
    if (flags_.dst_mac.empty()) std::ranges::copy(ports_.back()->facts().mac, to_.bytes);
  }

  Trial trial(const Row& row, FrameStore& frames, WireMeter& meter, const SendOptions& rate, Progress& progress) {
    WireTrialOptions options;
    options.send = rate;
    // A burst ends with its last frame.
    if (rate.limit == SendOptions{}.limit) options.send.duration_ns = static_cast<uint64_t>(flags_.duration * 1e9);
    options.send.stop = &interrupted();
    options.key = key_++;
    Trial done;
    done.asked_pps = rate.packets_per_second;
    if (rate.bits_per_second != 0)
      done.asked_pps = static_cast<uint64_t>(static_cast<double>(rate.bits_per_second) / (8 * row.mean_bytes));
    progress.step(fmt::format(
        "{} bytes, trial {}, {}", row.size, row.trials.size() + 1,
        done.asked_pps == 0 ? std::string("as fast as it goes") : with_commas(done.asked_pps) + " packets/s"));
    done.did = need(run_wire_trial(frames, *tx_queue_, meter, options), Exit::kIo);
    if (flags_.latency) done.latency = meter.latency();
    done.passed = !done.did.send.stopped && done.did.sent() != 0 && done.did.loss_percent() <= flags_.loss;
    return done;
  }

  void measure(Row& row, FrameStore& frames, WireMeter& meter, Progress& progress) {
    if (!flags_.search) {
      row.trials.push_back(trial(row, frames, meter, rate_, progress));
      row.complete = !row.trials.back().did.send.stopped;
      return;
    }
    uint64_t highest = rate_.packets_per_second;
    if (rate_.bits_per_second != 0)
      highest = static_cast<uint64_t>(static_cast<double>(rate_.bits_per_second) / (8 * row.mean_bytes));
    ThroughputSearch search(highest, flags_.resolution);
    while (const auto pps = search.next()) {
      SendOptions rate;
      rate.packets_per_second = *pps;
      row.trials.push_back(trial(row, frames, meter, rate, progress));
      const Trial& done = row.trials.back();
      // A trial that was cut short says nothing of the rate.
      if (done.did.send.stopped) return;
      search.add(done.did.offered_pps(), done.passed);
      row.throughput_pps = search.throughput_pps();
      row.limited_by_generator = search.limited_by_generator();
      // Slower would not bring back more.
      if (done.did.counts.received == 0) return;
    }
    row.complete = flags_.back_to_back == 0 || measure_bursts(row, frames, meter, progress);
  }

  // RFC 9004 section 5: each test searches the longest burst, as fast as the interface takes it, of which no frame is
  // lost; the first burst is as long as a trial. False: interrupted.
  bool measure_bursts(Row& row, FrameStore& frames, WireMeter& meter, Progress& progress) {
    Bursts& b = row.bursts;
    double pps = 0;
    for (unsigned test = 0; test < flags_.back_to_back; ++test) {
      std::optional<BurstSearch> search;
      for (;;) {
        SendOptions burst;
        if (search) {
          const auto length = search->next();
          if (!length) break;
          burst.limit = *length;
        }
        const Trial done = trial(row, frames, meter, burst, progress);
        if (done.did.send.stopped) return false;
        b.missed += done.did.missed;
        b.failed += done.did.failed;
        b.bad_checksum += done.did.counts.bad_checksum;
        const bool all = done.did.sent() != 0 && done.did.lost() == 0;
        if (search) {
          search->add(all && done.did.sent() == burst.limit);
        } else {
          pps += static_cast<double>(done.did.offered_pps());
          search.emplace(done.did.sent(), all, flags_.resolution);
        }
      }
      b.frames.push_back(search->longest());
      b.step = std::max(b.step, search->step());
      b.limited += search->limited_by_generator() ? 1 : 0;
      b.pps = pps / static_cast<double>(b.frames.size());
    }
    return true;
  }

  void report() const {
    const PortFacts tx = ports_.front()->facts(), rx = ports_.back()->facts();
    if (!json_output()) {
      std::string text = trials_text(flags_, rows_);
      if (flags_.search) text += "\n" + throughput_text(rows_);
      if (flags_.back_to_back != 0) text += "\n" + bursts_text(rows_);
      uint64_t foreign = 0;
      for (const Row& row : rows_)
        for (const Trial& t : row.trials) foreign += t.did.counts.foreign + t.did.counts.earlier;
      if (foreign != 0) text += fmt::format("other frames that came: {}\n", with_commas(foreign));
      if (interrupted().load()) text += "interrupted: what was measured until then\n";
      print_out(text + fmt::format("tx {} ({}{}{}), rx {} ({}{}{})\n", tx.name, tx.method, tx.mode.empty() ? "" : ", ",
                                   tx.mode, rx.name, rx.method, rx.mode.empty() ? "" : ", ", rx.mode));
      return;
    }
    Json results = Json::array();
    for (const Row& row : rows_) {
      Json json{{"size", row.size}, {"mean_frame_bytes", row.mean_bytes + kFcs}, {"complete", row.complete}};
      if (flags_.search) {
        json["throughput_pps"] = row.throughput_pps;
        json["throughput_bps"] = row.bps(row.throughput_pps);
        json["throughput_line_bps"] = row.line_bps(row.throughput_pps);
        json["limited_by_generator"] = row.limited_by_generator;
      }
      if (flags_.back_to_back != 0) json["back_to_back"] = bursts_json(row);
      json["trials"] = Json::array();
      for (const Trial& trial : row.trials) json["trials"].push_back(trial_json(flags_, row, trial));
      results.push_back(std::move(json));
    }
    print_json({{"when", now_utc()},
                {"command", command_line()},
                {"machine", to_json(describe_machine())},
                {"tx", port_json(tx)},
                {"rx", port_json(rx)},
                {"flows", flags_.flows},
                {"duration_s", flags_.duration},
                {"loss_percent", flags_.loss},
                {"imix", flags_.imix.empty() ? Json(nullptr) : Json(flags_.imix)},
                {"interrupted", interrupted().load()},
                {"results", std::move(results)}});
  }

  // What is wrong with the figures, after the report.
  Exit end() const {
    if (interrupted().load()) return Exit::kInterrupted;
    const std::string tx = ports_.front()->facts().name, rx = ports_.back()->facts().name;
    uint64_t missed = 0, failed = 0, bad_checksum = 0;
    for (const Row& row : rows_) {
      for (const Trial& trial : row.trials) {
        missed += trial.did.missed;
        failed += trial.did.failed;
        bad_checksum += trial.did.counts.bad_checksum;
      }
      missed += row.bursts.missed;
      failed += row.bursts.failed;
      bad_checksum += row.bursts.bad_checksum;
    }
    if (missed != 0) {
      warn(
          fmt::format("{} had no room for {}: this meter lost them and not the device", rx, counted(missed, "packet")));
    }
    if (bad_checksum != 0)
      warn(fmt::format("{} came back with wrong checksums of their IPv4 headers", counted(bad_checksum, "packet")));
    if (failed != 0) warn(fmt::format("{} refused {}: they count as not sent", tx, counted(failed, "packet")));
    for (const Row& row : rows_) {
      const Trial& first = row.trials.front();
      if (first.did.sent() == 0) fail(Exit::kIo, fmt::format("nothing left {}", tx));
      if (first.did.counts.received == 0) {
        const uint64_t foreign = first.did.counts.foreign;
        fail(Exit::kIo, fmt::format("size {}: nothing that {} sent came back by {}", row.size, tx, rx),
             foreign == 0 ? "is the cable there, is --dst-mac the device's, does it know the way to --to?"
                          : fmt::format("{} came there that are not of this measurement, or were changed on the way",
                                        counted(foreign, "frame")));
      }
    }
    if (flags_.search) return Exit::kOk;
    for (const Row& row : rows_) {
      if (const Trial& t = row.trials.front(); t.is_short()) {
        fail(Exit::kIo,
             fmt::format("size {}: {} was given {} packets/s of the {} that were asked for", row.size, tx,
                         with_commas(t.did.offered_pps()), with_commas(t.asked_pps)),
             "this machine or its interface goes no faster: the report is of what was sent");
      }
    }
    return Exit::kOk;
  }

  const WireFlags& flags_;
  const std::vector<std::string> sizes_;
  SendOptions rate_;
  std::vector<IpPrefix> destinations_;
  MacAddress to_{}, from_{};
  uint32_t largest_ = 0;
  uint64_t key_ = 0;
  std::vector<std::unique_ptr<Port>> ports_;  // that sends, that receives; one that does both
  std::unique_ptr<RxQueue> rx_queue_;
  std::unique_ptr<TxQueue> tx_queue_;
  std::vector<Row> rows_;
};

}  // namespace

void add_bench_wire(Command bench) {
  auto o = std::make_shared<WireFlags>();
  Command sub = add_subcommand(
      bench, "wire", "Subcommands",
      "Measures another device: sends numbered UDP frames by one interface, receives them by another (or the same) "
      "and\n"
      "counts what was lost, repeated and reordered on the way. With --search its throughput (RFC 2544 section 26.1).",
      "sluice bench wire --tx eth0 --rx eth1 --dst-mac 02:00:00:00:00:02 --rate 1Mpps --latency\nsluice bench wire "
      "--tx "
      "eth0 --rx eth1 --dst-mac 02:00:00:00:00:02 --search -o json\nsluice bench wire --tx eth0 --rx eth1 --size "
      "64,imix,1518 --search --rate 10Gbps --loss 0.001\nsluice bench wire --tx eth0 --rx eth1 --imix aaaaaaaddddg "
      "--search",
      [o] { return WireBench(*o).run(); });
  sub->add_option("--tx", o->tx, "Interface, or METHOD:DEVICE, to send by")->required().type_name("IF");
  sub->add_option("--rx", o->rx, "Interface, or METHOD:DEVICE, to receive by")->required().type_name("IF");
  add_method_option(sub, o->method, "How both are opened");
  sub->add_option(
      "--size", "BYTES,...", o->size,
      fmt::format("Frame sizes with FCS, or imix (7:4:1 of 64, 570 and 1518); default: 64, with --search {}",
                  kAllSizes));
  sub->add_option(
      "--imix", "GENOME", o->imix,
      "What imix is instead: a letter for each frame, again and again (RFC 6985: a 64, b 128, c 256, d 512, "
      "e 1024, f 1280, g 1518, h 2112, i 9000 bytes)");
  add_rate_option(sub, o->rate, "Packets or bits per second (default: as fast as the interface takes them)");
  Option search = sub->add_flag("--search", o->search,
                                "Find the highest rate that loses no more than --loss, from --rate downwards");
  sub->add_number("--duration", "S", o->duration,
                  "Seconds of each trial; frames still in flight are waited for, up to 2 s", Range(0.01, 86400.0));
  sub->add_option("--loss", o->loss, "With --search: percentage of packets that may be lost")
      ->check(Range(0.0, 100.0))
      ->needs(search)
      ->type_name("PERCENT")
      ->capture_default_str();
  sub->add_option("--resolution", o->resolution, "With --search: its end, as a percentage of the first trial's rate")
      ->check(Range(0.001, 50.0))
      ->needs(search)
      ->type_name("PERCENT")
      ->capture_default_str();
  sub->add_option(
         "--back-to-back", o->back_to_back,
         "With --search: also the longest burst without loss, as the mean of that many tests (RFC 9004; RFC 2544 "
         "section 26.4 has 50)")
      ->check(Range(1u, 10'000u))
      ->needs(search)
      ->type_name("TESTS");
  sub->add_number("--flows", "N", o->flows, "Five-tuples that packets are drawn from", Range(1u, 65'536u));
  sub->add_option("--dst-mac", "MAC", o->dst_mac, "Destination MAC address: the device's (default: that of --rx)");
  Option to =
      sub->add_option("--to", "PREFIX,...", o->to, "IPv4 prefixes of the destinations; sources are of 198.18.0.0/16")
          ->capture_default_str();
  sub->add_option("--routes", o->routes, "Draw destinations from the IPv4 routes of these files")
      ->excludes(to)
      ->type_name("FILE[,FILE]");
  sub->add_flag("--latency", o->latency, "Also how long packets were on their way, by the stamps that they carry");
  sub->add_option("--seed", "N", o->seed, "Seed of the five-tuples")->capture_default_str();
}

}  // namespace sluice::app
