// sluice capture: has a process that runs hand packets over, and writes them. host only
#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.h"
#include "control/answer_text.h"
#include "control/capture_control.h"
#include "control/capture_files.h"
#include "control/control_socket.h"
#include "control/request.h"
#include "inputs.h"
#include "live_commands.h"

namespace sluice::app {

namespace {

struct CaptureOut {
  std::string out;
  uint64_t ring_bytes = 0, ring_seconds = 0, ring_files = 0;
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

Exit capture(const AskedFor& asked, const CaptureOut& flags) {
  RunFiles files = command_files();
  files.output("--out", flags.out);
  check_files(files);
  if (flags.ring_files != 0 && flags.ring_bytes == 0 && flags.ring_seconds == 0)
    fail(Exit::kUsage, "--ring-files needs --ring-size or --ring-time");
  // Before anything is asked for: a name that cannot be written costs the run nothing.
  auto written =
      need(CaptureFiles::create(flags.out, {flags.ring_bytes, flags.ring_seconds * 1'000'000'000, flags.ring_files}),
           Exit::kIo);
  ClientFlags to = asked;
  to.socket = socket_of(asked);
  const EndsInOrder in_order;
  const Json started = request(to, request_of(asked));
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

std::function<Exit()> add_capture_options(Command sub, const AskedFor& asked) {
  auto out = std::make_shared<CaptureOut>();
  sub.add_option("--out", "PCAPNG", out->out, "The file ('-': stdout)")->required();
  sub.add_option("--ring-size", out->ring_bytes,
                 "Go on with a new file, NAME_00001.pcapng and so on, when one has this size")
      ->as_size()
      ->check(Range(uint64_t{1}, UINT64_MAX))
      ->type_name("BYTES");
  sub.add_option("--ring-time", out->ring_seconds, "Go on with a new file when one is this old")
      ->check(Range(uint64_t{1}, uint64_t{1'000'000'000}))
      ->as_duration()
      ->type_name("SECONDS");
  sub.add_option("--ring-files", "N", out->ring_files, "Keep the newest N files (default: all)")
      ->check(Range(uint64_t{1}, uint64_t{1'000'000}));
  return [out, &asked] { return capture(asked, *out); };
}

}  // namespace sluice::app
