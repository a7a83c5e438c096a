// host only
#include "watch.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "base/clock.h"

namespace sluice::app {

void add_watch_options(Command sub, WatchFlags& flags, bool always) {
  Option interval = sub.add_option(
      "--interval", flags.interval,
      always ? "Refresh interval in seconds"
             : "Show it again every so many seconds, with rates since the last time: in place on a terminal; with -o "
               "json one line each");
  interval
      ->check([](const std::string& text) {
        double seconds = 0;
        const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
        const bool number = read.ec == std::errc() && read.ptr == text.data() + text.size();
        return number && seconds >= 0.1 && seconds <= 86'400
                   ? std::string()
                   : fmt::format("'{}' is not a number of seconds from 0.1 to 86400", text);
      })
      .as_duration()
      .type_name("SECONDS");
  if (always) interval->capture_default_str();
  Option times = sub.add_option("--times", flags.times,
                                always ? "How often it is shown (default: until it is ended; in a pipe: once)"
                                       : "With --interval: how often (default: until Ctrl-C)");
  times->check(Range(uint64_t{1}, uint64_t{1'000'000'000})).type_name("N");
  if (!always) times->needs(interval);
}

std::string fit(std::string_view text, unsigned rows, unsigned columns) {
  std::string out;
  const auto count = static_cast<unsigned>(std::ranges::count(text, '\n'));
  unsigned row = 0;
  while (!text.empty() && row < rows) {
    if (++row == rows && count > rows) {
      out += fmt::format("({} more lines)", count - rows + 1).substr(0, columns) + "\n";
      break;
    }
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    // A character begins where its first byte is.
    unsigned column = 0;
    size_t end = 0;
    while (end < line.size() && (column += (static_cast<unsigned char>(line[end]) & 0xc0) != 0x80) <= columns) ++end;
    out += line.substr(0, end);
    out += '\n';
  }
  return out;
}

std::string in_place(std::string_view text) {
  // Line by line over what was there, so that nothing flickers.
  std::string out = "\x1b[H";
  for (const char c : text) {
    if (c == '\n') out += "\x1b[K";
    out += c;
  }
  return out + "\x1b[J";
}

std::pair<unsigned, unsigned> terminal_size() {
  winsize size{};
  (void)::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  return {size.ws_row != 0 ? size.ws_row : 24u, size.ws_col != 0 ? size.ws_col : 80u};
}

bool wait_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (interrupted().load(std::memory_order_relaxed)) return false;
    const double left = std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0) return true;
    // A signal that comes just before the wait is seen at its end.
    pollfd out{STDOUT_FILENO, 0, 0};
    if (::poll(&out, 1, static_cast<int>(std::ceil(std::min(left, 0.1) * 1e3))) == 1 && (out.revents & POLLERR) != 0)
      return false;
  }
}

Exit watch(const WatchFlags& flags, const std::function<Json()>& ask,
           const std::function<std::string(const Json&, Rates*)>& text) {
  if (flags.interval == 0) {
    const Json said = ask();
    if (json_output()) {
      print_json(said);
    } else {
      print_out(text(said, nullptr));
    }
    return Exit::kOk;
  }
  const bool terminal = !json_output() && ::isatty(STDOUT_FILENO) == 1;
  Rates rates;
  for (uint64_t n = 1;; ++n) {
    const Json said = ask();
    rates.look(now_ns());
    if (json_output()) {
      const auto time = std::chrono::system_clock::now().time_since_epoch();
      Json line{{"unix_seconds", std::chrono::duration<double>(time).count()}};
      line.update(said);
      print_out(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (terminal) {
      const auto [rows, columns] = terminal_size();
      const std::string shown = fit(text(said, &rates), rows > 1 ? rows - 1 : 23u, columns);
      print_out(in_place(shown));
    } else {
      print_out((n == 1 ? "" : "\n") + text(said, &rates));
    }
    if (n == flags.times) return Exit::kOk;
    if (!wait_for(flags.interval)) {
      // A reader that has gone is what the next write says.
      if (interrupted().load(std::memory_order_relaxed)) return Exit::kInterrupted;
    }
  }
}

}  // namespace sluice::app
