// sluice bench live: throughput (RFC 2544 section 26.1) and latency of this program between live ports, beside the
// kernel's forwarding and a plain cable: two network namespaces and veth pairs of its own, `sluice bench wire` as the
// tester.
// host only
#include <fcntl.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/sha256.h"
#include "bench.h"
#include "child.h"
#include "generate/traffic.h"

namespace sluice::app {
namespace {

struct LiveOptions : BenchOptions {
  std::vector<std::string> ways = {"cable", "kernel", "af_packet", "af_xdp"};
  std::vector<std::string> frame_sizes = {"64"};
  double loss = 0, duration = 1, resolution = 2;
  bool latency = false;
  std::string imix;           // a genome
  unsigned back_to_back = 0;  // tests of bursts; 0: none
  unsigned rule_count = 0;    // of an access list in front of the routes; 0: none
  bool loss_rate = false;
};

constexpr unsigned kLatencyTrials = 3;                      // of each rate that is found
constexpr const char* kDeviceMac = "02:00:00:00:00:02";     // d0
constexpr const char* kDeviceOutMac = "02:00:00:00:00:03";  // d1
constexpr const char* kSinkMac = "02:00:00:00:00:04";       // s0
constexpr const char* kCableMac = "02:00:00:00:00:05";      // c1

// A network namespace without a name: gone with the last of its descriptors and processes.
class Network {
 public:
  Network() {
    int why = 0;
    // Of a thread of its own, so that this process stays where it is.
    std::jthread made([&] {
      if (::unshare(CLONE_NEWNET) != 0) {
        why = errno;
        return;
      }
      descriptor_ = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
      if (descriptor_ < 0) why = errno;
    });
    made.join();
    if (descriptor_ < 0)
      fail(Exit::kUnavailable, system_error("cannot make a network namespace", why).message,
           "it takes root (CAP_SYS_ADMIN, CAP_NET_ADMIN), in a container --privileged");
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }
  // As ip(8) takes it.
  std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor_); }

 private:
  int descriptor_ = -1;
};

// The tester's g0 and s0, the device's d0 and d1 between them; c0 and c1 are a cable of the tester's alone.
class Bed {
 public:
  Bed() {
    const std::string ip = find_program("ip");
    if (ip.empty()) fail(Exit::kUnavailable, "ip is not in PATH", "apt install iproute2");
    for (const Network* where : {&tester_, &device_}) {
      shell(*where,
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > "
            "/proc/sys/net/ipv6/conf/default/disable_ipv6; true");
    }
    const auto pair = [&](const char* near, const char* far, const char* far_mac, const Network& where) {
      shell(tester_,
            fmt::format("ip link add {} type veth peer name {} address {} netns {}", near, far, far_mac, where.path()));
    };
    pair("g0", "d0", kDeviceMac, device_);
    pair("s0", "d1", kDeviceOutMac, device_);
    pair("c0", "c1", kCableMac, tester_);
    shell(tester_, fmt::format("ip link set s0 address {}", kSinkMac));
    shell(tester_, "for i in g0 s0 c0 c1; do ip link set $i up; done");
    // The kernel's way: on in its rows alone.
    shell(device_, fmt::format("for i in d0 d1; do ip link set $i up; done; ip addr add 198.51.100.2/24 dev d1; "
                               "ip neigh add 198.51.100.1 lladdr {} dev d1 nud permanent; "
                               "ip route add 198.19.0.0/16 via 198.51.100.1; "
                               "echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo 0 > "
                               "/proc/sys/net/ipv4/conf/d0/rp_filter",
                               kSinkMac));
  }

  void forwarding(bool on) { shell(device_, fmt::format("echo {} > /proc/sys/net/ipv4/ip_forward", on ? 1 : 0)); }
  int tester() const { return tester_.descriptor(); }
  int device() const { return device_.descriptor(); }

 private:
  static void shell(const Network& where, const std::string& text) {
    Child child("/bin/sh", {"-ec", text}, where.descriptor());
    const Ended ended = child.wait(std::chrono::seconds(30));
    if (ended.code != 0)
      fail(Exit::kUnavailable,
           fmt::format("cannot lay out the network: {}: {}", text, ended.err.substr(0, ended.err.find('\n'))));
  }

  Network tester_, device_;
};

// Every frame of d0 leaves by d1, by a program of XDP that reads none of it, while this lasts.
class Redirect {
 public:
  explicit Redirect(const Bed& bed) {
    std::string lack;
    // Of a thread of its own, as the network of a thread cannot be left again without rights in the first one.
    std::jthread made([&] {
      lack = attach(bed.device(), "d0", "d1");
      // A veth takes redirected frames where its other end has a program too.
      if (lack.empty()) lack = attach(bed.tester(), "s0", nullptr);
    });
    made.join();
    if (!lack.empty()) fail(Exit::kUnavailable, "no XDP program can be attached here: " + lack);
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;
  ~Redirect() {
    for (const int descriptor : descriptors_) ::close(descriptor);
  }

 private:
  // At the interface `at`: to the interface `to`, or on to the kernel.
  std::string attach(int network, const char* at, const char* to) {
    if (::setns(network, CLONE_NEWNET) != 0) return system_error("setns", errno).message;
    std::vector<bpf_insn> code;
    if (to == nullptr) {
      code.push_back({.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS});
    } else {
      const auto index = static_cast<int>(::if_nametoindex(to));
      code.push_back({.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1, .src_reg = 0, .off = 0, .imm = index});
      code.push_back({.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .src_reg = 0, .off = 0, .imm = 0});
      code.push_back({.code = BPF_JMP | BPF_CALL, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = BPF_FUNC_redirect});
    }
    code.push_back({.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0});
    bpf_attr load{};
    load.prog_type = BPF_PROG_TYPE_XDP;
    load.insns = reinterpret_cast<uintptr_t>(code.data());
    load.insn_cnt = static_cast<uint32_t>(code.size());
    load.license = reinterpret_cast<uintptr_t>("Apache-2.0");
    const int program = call(BPF_PROG_LOAD, load);
    if (program < 0) return system_error("loading it", errno).message;
    bpf_attr link{};
    link.link_create.prog_fd = static_cast<uint32_t>(program);
    link.link_create.target_ifindex = ::if_nametoindex(at);
    link.link_create.attach_type = BPF_XDP;
    if (call(BPF_LINK_CREATE, link) < 0) return system_error(fmt::format("at {}", at), errno).message;
    return "";
  }
  int call(int command, bpf_attr& what) {
    const auto descriptor = static_cast<int>(::syscall(SYS_bpf, command, &what, sizeof what));
    if (descriptor >= 0) descriptors_.push_back(descriptor);
    return descriptor;
  }

  std::vector<int> descriptors_;  // of programs, and of their links, which end with them
};

// `sluice run` from d0 to d1 while this lasts.
class Run {
 public:
  // acl: a file, or none.
  Run(const Bed& bed, const std::string& method, const TemporaryFolder& folder, const std::string& acl)
      : method_(method) {
    const std::string program = find_program("sluice"), ready = folder / "ready";
    if (program.empty()) fail(Exit::kUnavailable, "sluice is neither beside this program nor in PATH");
    std::filesystem::remove(ready);
    std::vector<std::string> words = {"run",
                                      "-q",
                                      "-o",
                                      "json",
                                      "--routes",
                                      folder / "routes",
                                      "--adjacencies",
                                      folder / "adjacencies",
                                      "--in",
                                      method + ":d0",
                                      "--out",
                                      method + ":d1",
                                      "--ready-file",
                                      ready};
    if (!acl.empty()) words.insert(words.end(), {"--acl", acl});
    child_.emplace(program, words, bed.device());
    const auto begin = std::chrono::steady_clock::now();
    while (!std::filesystem::exists(ready) && child_->running() &&
           std::chrono::steady_clock::now() - begin < std::chrono::seconds(30)) {
      stop_if_interrupted();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (!std::filesystem::exists(ready)) {
      const Ended ended = child_->stop(SIGKILL);
      fail(Exit::kUnavailable, fmt::format("sluice run did not begin: {}", message_of(ended)));
    }
  }

  // Ends it. Ends the program where it was not opened by the method, or packets are missing.
  void finish() {
    const Ended ended = child_->stop(SIGINT);
    const Json report = Json::parse(ended.out, nullptr, false);
    if (ended.code != 0 || !report.is_object())
      fail(Exit::kCheckFailed, fmt::format("sluice run ended with exit code {}: {}", ended.code, message_of(ended)));
    for (const Json& port : report.at("ports"))
      if (port.at("method") != method_)
        fail(Exit::kCheckFailed, fmt::format("{} was opened by {} and not by {}", port.at("name").get<std::string>(),
                                             port.at("method").get<std::string>(), method_));
    if (report.at("conserved") != true) fail(Exit::kCheckFailed, "sluice run: packet counts do not add up");
  }

  static std::string message_of(const Ended& ended) {
    const Json json = Json::parse(ended.err, nullptr, false);
    if (json.is_object() && json.contains("error")) return json["error"].value("message", "");
    return ended.err.substr(0, ended.err.find('\n'));
  }

 private:
  std::string method_;
  std::optional<Child> child_;
};

// One measurement of the tester; its only result.
Json wire(const Bed& bed, const LiveOptions& o, const std::string& way, const std::string& size,
          const std::vector<std::string>& more) {
  const bool cable = way == "cable";
  std::vector<std::string> words = {"wire",       "-q",
                                    "-o",         "json",
                                    "--tx",       cable ? "c0" : "g0",
                                    "--rx",       cable ? "c1" : "s0",
                                    "--dst-mac",  cable ? kCableMac : kDeviceMac,
                                    "--method",   "af_packet",
                                    "--size",     size,
                                    "--seed",     std::to_string(o.seed),
                                    "--duration", fmt::format("{}", o.duration)};
  if (size == "imix" && !o.imix.empty()) words.insert(words.end(), {"--imix", o.imix});
  words.insert(words.end(), more.begin(), more.end());
  Child child("", words, bed.tester());
  const Ended ended = child.wait();
  Json json = Json::parse(ended.out, nullptr, false);
  // 3: the generator was slower than what was asked for, which its report says.
  if (!json.is_object() || !json.contains("results") || json["results"].empty() ||
      json["results"][0]["trials"].empty() || (ended.code != 0 && ended.code != static_cast<int>(Exit::kIo)))
    fail(Exit::kCheckFailed, fmt::format("{} of {} bytes: the tester ended with exit code {}: {}", way, size,
                                         ended.code, Run::message_of(ended)));
  return json["results"][0];
}

// Every packet that came back is one that was sent, once and right.
void check_trials(const LiveOptions& o, const Json& result, const std::string& name, Verified& verified) {
  uint64_t received = 0;
  for (const Json& trial : result["trials"]) {
    received += trial["received"].get<uint64_t>();
    verified.mismatches += trial["bad_checksum"].get<uint64_t>() + trial["duplicated"].get<uint64_t>();
  }
  if (o.spoil) verified.mismatches += 1;
  verified.sample += received;
  if (received == 0) fail(Exit::kCheckFailed, fmt::format("{}: no packet came back", name));
  require(verified, name);
}

void check_live_options(const LiveOptions& o) {
  for (const std::string& size : o.frame_sizes) {
    unsigned bytes = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), bytes);
    const bool number = error == std::errc() && end == size.data() + size.size() && bytes >= 64 && bytes <= 1518;
    if (!number && size != "imix")
      fail(Exit::kUsage, fmt::format("--sizes: '{}' is neither a size from 64 to 1518 nor imix", size));
  }
  if (!o.imix.empty()) {
    const std::vector<uint32_t> sizes = need(sizes_of_genome(o.imix), Exit::kUsage);
    if (*std::max_element(sizes.begin(), sizes.end()) > 1518)
      fail(Exit::kUsage, "--imix: the ports take frames of up to 1518 bytes", "letters a to g");
    if (std::find(o.frame_sizes.begin(), o.frame_sizes.end(), "imix") == o.frame_sizes.end())
      fail(Exit::kUsage, "--imix says what imix is, and --sizes has none", "--sizes 64,imix");
  }
  for (const std::string& way : o.ways)
    if (o.rule_count != 0 && (way == "cable" || way == "kernel" || way == "xdp"))
      fail(Exit::kUsage, fmt::format("--rules: the way {} has no access list", way), "--ways af_packet,af_xdp");
  if (::geteuid() != 0)
    fail(Exit::kUnavailable, "live ports between network namespaces take root", "sudo sluice-bench live");
}

// What is measured of one way and size. `losses`: by tenths of the tester's rate.
struct LiveRow {
  LiveRow(const LiveOptions& o, const std::string& way, const std::string& frame_size)
      : size(frame_size), name(way + "/" + size + (size == "imix" ? "" : "B")) {
    rate = {name, "Mpackets/s", {}};
    time = {name + "/latency", "us", {}};
    burst = {name + "/back-to-back", "frames", {}};
    for (unsigned tenths = 10; o.loss_rate && tenths != 0; --tenths)
      losses.push_back({fmt::format("{}/loss_at_{}%", name, 10 * tenths), "%", {}});
  }

  // The rate and the bursts. Returns what was found.
  Json search(const Bed& bed, const LiveOptions& o, const std::string& way, Verified& verified) {
    std::vector<std::string> words = {"--search", "--loss", fmt::format("{}", o.loss), "--resolution",
                                      fmt::format("{}", o.resolution)};
    if (o.back_to_back != 0) words.insert(words.end(), {"--back-to-back", std::to_string(o.back_to_back)});
    Json found = wire(bed, o, way, size, words);
    check_trials(o, found, name, verified);
    // 0 is a result: at every rate more than --loss are lost.
    rate.values.push_back(static_cast<double>(found["throughput_pps"].get<uint64_t>()) * 1e-6);
    rate.more["trials"] = found["trials"].size();  // of the last round
    if (found["limited_by_generator"] == true)
      rate.more["limited_by_generator"] = 1 + rate.more.value("limited_by_generator", 0);
    // One that forwards nothing has no bursts.
    if (o.back_to_back == 0 || !found["back_to_back"].is_object()) return found;
    const Json& back = found["back_to_back"];
    burst.values.push_back(back["mean"]);
    burst.more["burst_pps"] = back["burst_pps"];
    burst.more["corrected_buffer_time_s"] = back["corrected_buffer_time_s"];
    if (back["limited_by_generator"] != 0)
      burst.more["limited"] = burst.more.value("limited", 0) + back["limited_by_generator"].get<int>();
    return found;
  }

  // `most`: what is offered first, as much as the tester and the interface do.
  void measure_loss(const Bed& bed, const LiveOptions& o, const std::string& way, double most, Verified& verified) {
    for (size_t step = 0; step < losses.size(); ++step) {
      const uint64_t asked =
          std::max<uint64_t>(1, static_cast<uint64_t>(most * (10.0 - static_cast<double>(step)) / 10));
      const Json trial = wire(bed, o, way, size, {"--rate", fmt::format("{}pps", asked)});
      check_trials(o, trial, name, verified);
      losses[step].values.push_back(trial["trials"][0]["loss_percent"]);
      losses[step].more["offered_mpps"] = static_cast<double>(asked) * 1e-6;
    }
  }

  // RFC 2544 section 26.2 is at the throughput; a little below it queues are not full.
  void measure_latency(const Bed& bed, const LiveOptions& o, const std::string& way, uint64_t pps, Verified& verified) {
    // Some trials: how full the queues are in one is chance, more so in a short one.
    std::vector<Json> trials;
    for (unsigned trial = 0; trial < kLatencyTrials; ++trial) {
      const Json timed =
          wire(bed, o, way, size, {"--latency", "--rate", fmt::format("{}pps", std::max<uint64_t>(1, pps * 98 / 100))});
      check_trials(o, timed, name, verified);
      trials.push_back(timed["trials"][0]["latency_ns"]);
      time.values.push_back(trials.back()["p50"].get<double>() / 1e3);
    }
    std::sort(trials.begin(), trials.end(),
              [](const Json& a, const Json& b) { return a["p50"].get<double>() < b["p50"].get<double>(); });
    const Json& middle = trials[trials.size() / 2];
    for (const auto& [key, from] : {std::pair{"p50_us", "p50"}, {"p99_us", "p99"}, {"p999_us", "p99_9"}})
      time.more[key] = middle[from].get<double>() / 1e3;
  }

  std::string size, name;
  Case rate, time, burst;
  std::vector<Case> losses;
};

// The rates, then the rest, with what is to be said of them.
std::vector<Case> live_cases(const LiveOptions& o, std::vector<LiveRow>& rows) {
  std::vector<Case> cases;
  for (LiveRow& row : rows) {
    // Then the rate is the tester's, and the device may be faster.
    if (const int n = row.rate.more.value("limited_by_generator", 0); n != 0)
      row.rate.more["note"] = fmt::format("in {} of {} rounds as much as was offered", n, o.repetitions);
    if (const int n = row.burst.more.value("limited", 0); n != 0)
      row.burst.more["note"] = fmt::format("in {} of {} tests all that was sent within the duration", n,
                                           static_cast<size_t>(o.back_to_back) * row.burst.values.size());
    cases.push_back(std::move(row.rate));
  }
  for (Case LiveRow::*const more : {&LiveRow::burst, &LiveRow::time})
    for (LiveRow& row : rows)
      if (!(row.*more).values.empty()) cases.push_back(std::move(row.*more));
  for (LiveRow& row : rows)
    for (Case& c : row.losses) cases.push_back(std::move(c));
  return cases;
}

Exit bench_live(const LiveOptions& o) {
  check_live_options(o);
  BenchFolder folder;
  write_file(folder / "routes", "198.19.0.0/16 1\n");
  write_file(folder / "adjacencies", fmt::format("1 {} {} 0\n", kSinkMac, kDeviceOutMac));
  std::string acl;
  if (o.rule_count != 0) {
    std::string text;
    for (unsigned i = 0; i < o.rule_count; ++i)
      text += fmt::format("deny udp from 198.51.{}.0/24 to any port {}\n", i % 256, 1000 + i / 256);
    acl = folder / "acl";
    write_file(acl, text + "permit ip from any to any\n");
  }
  Bed bed;
  Progress progress("");
  Verified verified{0, 0, "the packets that were sent"};
  std::vector<LiveRow> rows;
  for (const std::string& way : o.ways)
    for (const std::string& size : o.frame_sizes) rows.emplace_back(o, way, size);
  // In turns, so that what the machine does besides falls on all of them.
  for (unsigned round = 0; round < o.repetitions; ++round) {
    auto row = rows.begin();
    for (const std::string& way : o.ways) {
      std::optional<Run> run;
      if (way == "kernel") bed.forwarding(true);
      std::optional<Redirect> redirect;
      if (way == "xdp") redirect.emplace(bed);
      if (way != "kernel" && way != "cable" && way != "xdp") run.emplace(bed, way, folder, acl);
      for (size_t sizes = o.frame_sizes.size(); sizes != 0; --sizes, ++row) {
        progress.step(fmt::format("{} repetition {}", row->name, round + 1));
        const Json found = row->search(bed, o, way, verified);
        if (o.loss_rate) row->measure_loss(bed, o, way, found["trials"][0]["offered_pps"], verified);
        const uint64_t pps = found["throughput_pps"];
        if (o.latency && pps != 0) row->measure_latency(bed, o, way, pps, verified);
        stop_if_interrupted();
      }
      if (way == "kernel") bed.forwarding(false);
      if (run) run->finish();
    }
  }
  progress.clear();
  return bench_report(o, "live", sha256("generated"), verified, live_cases(o, rows),
                      {{"device", "cpu"},
                       {"gpu", ""},
                       {"loss_percent", o.loss},
                       {"duration_s", o.duration},
                       {"rules", o.rule_count},
                       {"imix", o.imix.empty() ? Json(nullptr) : Json(o.imix)}});
}

}  // namespace

void add_bench_live(Command bench) {
  auto o = std::make_shared<LiveOptions>();
  o->repetitions = 5;
  Command sub = add_subcommand(
      bench, "live", "Subcommands",
      "Finds the highest rate without loss (RFC 2544) of live ports: sluice run between veth pairs of two network "
      "namespaces of its own, beside the kernel's forwarding and a cable without a device. Needs root.",
      "sudo sluice-bench live\nsudo sluice-bench live --ways af_xdp --sizes 64,imix --loss 0.5 --latency",
      [o] { return bench_live(*o); });
  sub->add_words(
      "--ways", "NAME,...", o->ways,
      "cable: no device; kernel: its forwarding; xdp: an XDP program that redirects frames unread; af_packet, "
      "af_xdp: sluice run by it",
      {"cable", "kernel", "xdp", "af_packet", "af_xdp"});
  sub->add_option("--sizes", o->frame_sizes, "Frame sizes with FCS, up to 1518, or imix (7:4:1 of 64, 570 and 1518)")
      ->delimiter(',')
      ->type_name("BYTES,...")
      ->capture_default_str();
  sub->add_option(
      "--imix", "GENOME", o->imix,
      "What imix is instead: a letter for each frame, again and again (RFC 6985: a 64, b 128, c 256, d 512, "
      "e 1024, f 1280, g 1518 bytes)");
  sub->add_number("--loss", "PERCENT", o->loss, "Percentage of packets that may be lost", Range(0.0, 100.0));
  sub->add_number("--duration", "S", o->duration, "Seconds of each trial", Range(0.01, 86400.0));
  sub->add_number("--resolution", "PERCENT", o->resolution,
                  "End of the search, as a percentage of the first trial's rate", Range(0.001, 50.0));
  sub->add_flag("--latency", o->latency, "Also the latency at 98 % of that rate, in three trials");
  sub->add_flag("--loss-rate", o->loss_rate,
                "Also the percentage of frames lost at 100, 90, ... 10 % of the rate that is offered first (RFC 2544 "
                "section 26.3)");
  sub->add_option("--rules", "N", o->rule_count,
                  "Rules of an access list in front of the routes, which permits all packets")
      ->check(Range(1u, 1'000'000u));
  sub->add_option("--back-to-back", "TESTS", o->back_to_back,
                  "Also the longest burst without loss, as the mean of that many tests in each round (RFC 9004)")
      ->check(Range(1u, 10'000u));
  sub->add_number("--repetitions", "N", o->repetitions, "Rounds", Range(1u, 1000u));
  sub->add_option("--seed", "N", o->seed, "Seed of the five-tuples")->capture_default_str();
  sub->add_option("--name", "NAME", o->name, "Name of the measurement in the JSON (default bench_live)");
  sub->add_flag("--spoil-check", o->spoil, "")->group("");
}

}  // namespace sluice::app
