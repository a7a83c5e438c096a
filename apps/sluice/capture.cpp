// sluice capture: has a process that runs hand packets over, and writes them. host only
#include "capture.h"

#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "control/capture_control.h"
#include "control/capture_files.h"
#include "control/control_socket.h"
#include "control/request.h"
#include "inputs.h"
#include "live.h"
#include "live_client.h"

namespace sluice::app {

std::string capture_text(const Json& r) {
  std::string t = count_of(r, "captured") == 0 && !r.at("running").get<bool>() && r.at("ended").is_null()
                      ? std::string("no packets are captured; sluice capture start --out FILE.pcapng\n")
                      : fmt::format("{} captured, {} to be written, {} on their way{}{}\n",
                                    counted(count_of(r, "captured"), "packet"), with_commas(count_of(r, "waiting")),
                                    with_commas(count_of(r, "on_their_way")),
                                    word_of(r, "filter").empty() ? "" : "; filter: " + word_of(r, "filter"),
                                    (!word_of(r, "at").empty() ? "; at " + word_of(r, "at") : "") +
                                        (!word_of(r, "dropped_at").empty() ? "; dropped at " + word_of(r, "dropped_at")
                                         : r.at("dropped").get<bool>()     ? "; dropped"
                                                                           : ""));
  if (const uint64_t missed = count_of(r, "missed"); missed != 0)
    t += fmt::format("{} more found no room\n", counted(missed, "packet"));
  if (!r.at("ended").is_null()) t += fmt::format("ended: {}\n", word_of(r, "ended"));
  return t;
}

namespace {

struct CaptureFlags : ClientFlags {
  std::string out, dropped_at, at;
  bool dropped = false;
  uint64_t packets = 0, snap_bytes = 0, ring_bytes = 0, ring_seconds = 0, ring_files = 0;
  std::vector<std::string> filter;
};

// While it lives, a signal that ends the command waits: packets of an answer that nobody takes would be lost.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t ends;
    sigemptyset(&ends);
    // SIGALRM follows one of them after half a second (app.cpp), perhaps into a later wait for an answer.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) sigaddset(&ends, signal);
    ::pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  ~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_{};
};

// One answer of a capture: an error is returned, so that the file of what came before is still ended.
Result<Json> ask_capture(const std::string& path, Json body) {
  const SignalsWait wait;
  auto said = ask(path, request_line(std::move(body)), CaptureControl::kLeaseNs);
  if (!said) return std::move(said).error();
  bool theirs = false;
  return read_answer(*said, &theirs);
}

Exit capture(const CaptureFlags& flags) {
  RunFiles files = command_files();
  files.output("--out", flags.out);
  check_files(files);
  if (flags.ring_files != 0 && flags.ring_bytes == 0 && flags.ring_seconds == 0)
    fail(Exit::kUsage, "--ring-files needs --ring-size or --ring-time");
  // Before anything is asked for: a name that cannot be written costs the run nothing.
  auto written =
      need(CaptureFiles::create(flags.out, {flags.ring_bytes, flags.ring_seconds * 1'000'000'000, flags.ring_files}),
           Exit::kIo);
  ClientFlags to = flags;
  to.socket = socket_of(flags);
  Json start{{"command", "capture start"},
             {"filter", fmt::format("{}", fmt::join(flags.filter, " "))},
             {"dropped", flags.dropped},
             {"dropped_at", flags.dropped_at},
             {"at", flags.at}};
  if (flags.packets != 0) start["packets"] = flags.packets;
  if (flags.snap_bytes != 0) start["snap_bytes"] = flags.snap_bytes;
  const EndsInOrder in_order;
  const Json started = request(to, start);
  const uint64_t id = count_of(started, "capture");
  std::vector<std::string> inputs;
  for (const Json& name : started.at("inputs")) inputs.push_back(name.get<std::string>());
  written.describe(inputs, static_cast<uint32_t>(count_of(started, "snap_bytes")));
  const auto or_stop = [&](const Result<void>& done) {
    if (done.ok()) return;
    // Nobody would read what it goes on to capture.
    for (int twice = 0; twice < 2; ++twice) (void)ask_capture(to.socket, {{"command", "capture stop"}});
    fail(Exit::kIo, done.error());
  };
  or_stop(written.flush(now_ns()));
  note(fmt::format("capturing to {}; Ctrl-C or 'sluice capture stop' ends it", flags.out));
  constexpr uint64_t kPatienceNs = 2'000'000'000;  // for packets that wait in the run once the capture is stopped
  uint64_t missed = 0, patient_until_ns = 0;
  std::string ended;
  std::optional<Error> lost;
  while (ended.empty()) {
    if (interrupted().load(std::memory_order_relaxed) && patient_until_ns == 0) {
      // It may have ended by itself in the meantime.
      (void)ask_capture(to.socket, {{"command", "capture stop"}, {"capture", id}});
      patient_until_ns = now_ns() + kPatienceNs;
    }
    const auto answer = ask_capture(to.socket, {{"command", "capture read"}, {"capture", id}});
    if (!answer) {
      lost = answer.error();
      break;
    }
    for (const Json& packet : answer->at("packets")) or_stop(written.add(packet, now_ns()));
    or_stop(written.flush(now_ns()));
    missed = count_of(*answer, "missed");
    if (!answer->at("ended").is_null()) {
      ended = word_of(*answer, "ended");
      (void)ask_capture(to.socket, {{"command", "capture read"}, {"capture", id}});  // it was taken
    } else if (!answer->at("more").get<bool>()) {
      if (patient_until_ns != 0 && now_ns() > patient_until_ns) {
        ended = "it was stopped";
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }
  need(written.finish(), Exit::kIo);
  if (json_output()) {
    print_json({{"files", written.places()},
                {"packets", written.packets()},
                {"missed", missed},
                {"ended", lost ? Json(nullptr) : Json(ended)}});
  } else {
    note(fmt::format("{}: {}{}{}", fmt::join(written.places(), ", "), counted(written.packets(), "packet"),
                     missed != 0 ? fmt::format(", {} more found no room", with_commas(missed)) : "",
                     lost ? "" : "; " + ended));
  }
  if (lost) {
    lost->message += "; the packets that came last may be missing from the file";
    fail(Exit::kIo, *lost);
  }
  return Exit::kOk;
}

}  // namespace

void add_capture(Command root) {
  Command group = add_subcommand(
      root, "capture", "Running process",
      "Captures packets of a running process. Each is kept as received, with its fate as comment.\n"
      "The process forwards on whatever becomes of the capture: packets that find no room are counted as missed.",
      "sluice capture start --dropped --out dropped.pcapng\nsluice show capture\nsluice capture stop", nullptr);
  group->require_subcommand(1);
  auto flags = std::make_shared<CaptureFlags>();
  Command sub = add_subcommand(
      *group, "start", "Subcommands",
      "Writes the packets that are received and match to a pcapng file, until SIGINT, SIGTERM, 'sluice capture stop', "
      "--count\nor the end of the process. The comment of a packet is what became of it and the rule that decided; its "
      "interface is the\ninput it came by. This command writes the file, with the rights of the user who calls it; the "
      "file appears when it is whole.\nPackets are written in the order in which they are through.",
      "sluice capture start --out all.pcapng\n"
      "sluice capture start --dropped --count 1000 --out dropped.pcapng udp from any to any port 53\n"
      "sluice capture start --at slow_path --out slow.pcapng\n"
      "sluice capture start --dropped --out drops.pcapng --ring-size 100MiB --ring-files 10\n"
      "sluice capture start --out - | tshark -r - -T fields -e frame.comment",
      [flags] { return answered([&] { return capture(*flags); }); });
  sub->add_option("filter", flags->filter,
                  "Which packets: a native rule without its verb, such as 'udp from any to any port 53' (default: all)")
      ->type_name("FILTER...");
  sub->add_option("--out", flags->out, "The file ('-': stdout)")->required()->type_name("PCAPNG");
  sub->add_flag("--dropped", flags->dropped, "Only packets that were dropped");
  sub->add_option("--dropped-at", flags->dropped_at, "Only packets that this element dropped")->type_name("ELEMENT");
  sub->add_option("--at", flags->at, "Only packets that came to this element")->type_name("ELEMENT");
  sub->add_option("--count", flags->packets, "End after so many packets")
      ->check(Range(uint64_t{1}, CaptureControl::kMostPackets))
      ->type_name("N");
  sub->add_option("--snaplen", flags->snap_bytes, "Bytes to keep of a packet, 1 to 16384 (default: 16384)")
      ->check(Range(uint64_t{1}, uint64_t{FollowedPacket::kMostBytes}))
      ->type_name("BYTES");
  sub->add_option("--ring-size", flags->ring_bytes,
                  "Go on with a new file, NAME_00001.pcapng and so on, when one has this size")
      ->as_size()
      ->check(Range(uint64_t{1}, UINT64_MAX))
      ->type_name("BYTES");
  sub->add_option("--ring-time", flags->ring_seconds, "Go on with a new file when one is this old")
      ->check(Range(uint64_t{1}, uint64_t{1'000'000'000}))
      ->as_duration()
      ->type_name("SECONDS");
  sub->add_option("--ring-files", flags->ring_files, "Keep the newest N files (default: all)")
      ->check(Range(uint64_t{1}, uint64_t{1'000'000}))
      ->type_name("N");
  add_socket_option(*sub, *flags);
  auto stop = std::make_shared<ClientFlags>();
  sub = add_subcommand(*group, "stop", "Subcommands", "Ends the capture; 'capture start' ends with a whole file.",
                       "sluice capture stop", [stop] {
                         return answered([&] {
                           const Json r = request(*stop, {{"command", "capture stop"}});
                           return print(r, json_output() ? std::string() : capture_text(r));
                         });
                       });
  add_socket_option(*sub, *stop);
}

}  // namespace sluice::app
