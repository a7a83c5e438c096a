// sluice top: what a running process does now, on a terminal. host only
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/printable.h"
#include "live.h"
#include "live_client.h"
#include "watch.h"

namespace sluice::app {
namespace {

constexpr size_t kMostRules = 100;
constexpr size_t kRowsOfOthers = 3;     // of the panes that are not the chosen one, where there is room for all
constexpr size_t kRowsWithoutEnd = 10;  // of each pane, where there is no terminal

struct Cell {
  std::string text;
  double number = 0;  // what a column of numbers is sorted by
};
struct Pane {
  const char* name;
  std::vector<std::string> heads;
  size_t first_number;  // columns before it are sorted as words
  size_t sort;
  std::vector<std::vector<Cell>> rows;
};

// The state of the view, which keys change.
struct View {
  size_t pane = 0;
  std::array<size_t, 4> sort = {2, 2, 2, 2};
  bool paused = false, help = false, quit = false;
};

Cell word(std::string text) {
  return {std::move(text), 0};
}
Cell count(uint64_t n) {
  return {with_commas(n), static_cast<double>(n)};
}
Cell rate(Rates& rates, const std::string& name, uint64_t n) {
  const auto per_second = rates.of(name, n);
  if (!per_second) return {"-", -1};
  return {with_commas(static_cast<uint64_t>(std::llround(*per_second))), *per_second};
}

struct Look {
  Json runtime, drops, ports;
  std::vector<Json> rules;  // by access list
};

Look look_at(const ClientFlags& flags) {
  Look look;
  look.runtime = request(flags, {{"command", "show runtime"}});
  look.drops = request(flags, {{"command", "show drops"}});
  look.ports = request(flags, {{"command", "show ports"}});
  const Json tables = request(flags, {{"command", "show tables"}});
  for (const Json& table : tables.at("tables")) {
    if (table.at("kind") != "acl") continue;
    look.rules.push_back(request(flags, {{"command", "show rules"},
                                         {"table", table.at("name")},
                                         {"hits", true},
                                         {"count", kMostRules},
                                         {"order", "hits"}}));
  }
  return look;
}

Pane elements_pane(const Look& look, Rates& rates) {
  Pane pane{"elements", {"element", "class", "pps", "dropped/s", "packets", "dropped"}, 2, 0, {}};
  for (const Json& e : look.runtime.at("elements")) {
    const std::string name = word_of(e, "name");
    uint64_t dropped = 0;
    if (e.contains("drops")) {
      for (const auto& [reason, n] : e.at("drops").items()) dropped += n.get<uint64_t>();
    } else {
      dropped = count_of(e, "dropped");
    }
    const uint64_t packets = count_of(e, "packets");
    pane.rows.push_back({word(name), word(word_of(e, "class")), rate(rates, "element " + name, packets),
                         rate(rates, "element drops " + name, dropped), count(packets), count(dropped)});
  }
  return pane;
}

Pane drops_pane(const Look& look, Rates& rates) {
  Pane pane{"drops", {"reason", "element", "pps", "packets"}, 2, 0, {}};
  for (const Json& d : look.drops.at("drops")) {
    const std::string reason = word_of(d, "reason"), element = word_of(d, "element");
    const uint64_t packets = count_of(d, "packets");
    pane.rows.push_back(
        {word(reason), word(element), rate(rates, "drop " + reason + " " + element, packets), count(packets)});
  }
  return pane;
}

Pane ports_pane(const Look& look, Rates& rates) {
  Pane pane{"ports", {"port", "link", "rx pps", "tx pps", "lost/s", "rx packets", "tx packets", "lost"}, 2, 0, {}};
  for (const Json& p : look.ports.at("interfaces")) {
    const std::string name = word_of(p, "name");
    uint64_t rx = 0, tx = 0, lost = 0;
    for (const Json& q : p.at("rx")) {
      rx += count_of(q, "packets");
      lost += count_of(q, "missed") + count_of(q, "too_long") + count_of(q, "invalid");
    }
    for (const Json& q : p.at("tx")) {
      tx += count_of(q, "packets");
      lost += count_of(q, "full") + count_of(q, "failed");
    }
    pane.rows.push_back({word(name), word(p.at("closed").get<bool>() ? "closed" : word_of(p, "link")),
                         rate(rates, "rx " + name, rx), rate(rates, "tx " + name, tx),
                         rate(rates, "lost " + name, lost), count(rx), count(tx), count(lost)});
  }
  for (const Json& o : look.ports.at("outputs")) {
    const std::string name = word_of(o, "element"), path = word_of(o, "path");
    const uint64_t tx = count_of(o, "packets");
    pane.rows.push_back({word(name), word(path.empty() ? "-" : path), word("-"),
                         rate(rates, "output " + name + " " + path, tx), word("-"), word("-"), count(tx), word("-")});
  }
  return pane;
}

Pane rules_pane(const Look& look, Rates& rates) {
  Pane pane{"rules", {"place", "text", "pps", "packets"}, 2, 0, {}};
  for (const Json& list : look.rules) {
    for (const Json& rule : list.at("rules")) {
      const std::string text = word_of(rule, "text");
      const std::string place = rule.contains("file")
                                    ? fmt::format("{}:{}", word_of(rule, "file"), count_of(rule, "line"))
                                    : fmt::format("{} {}", word_of(list, "table"), count_of(rule, "rule"));
      const uint64_t packets = count_of(rule, "packets");
      const std::string name = fmt::format("rule {} {} {}", word_of(list, "table"), place, text);
      pane.rows.push_back({word(place), word(text), rate(rates, name, packets), count(packets)});
    }
  }
  return pane;
}

std::vector<Pane> panes_of(const Look& look, Rates& rates, const View& view) {
  std::vector<Pane> panes = {elements_pane(look, rates), drops_pane(look, rates), ports_pane(look, rates),
                             rules_pane(look, rates)};
  for (size_t i = 0; i < panes.size(); ++i) {
    Pane& pane = panes[i];
    pane.sort = view.sort[i] % pane.heads.size();
    std::ranges::stable_sort(pane.rows, [&](const std::vector<Cell>& a, const std::vector<Cell>& b) {
      const Cell &x = a[pane.sort], &y = b[pane.sort];
      return pane.sort < pane.first_number ? x.text < y.text : x.number > y.number;
    });
  }
  return panes;
}

// Title, heads and rows: as many lines as there is room for.
std::vector<std::string> lines_of(const Pane& pane, size_t room) {
  std::vector<std::string> lines = {fmt::format(" {}: {}, by {}", pane.name, pane.rows.size(), pane.heads[pane.sort])};
  // Numbers stand before the last words of a row, which may be long.
  const bool words_last = std::string_view(pane.name) == "rules";
  std::vector<size_t> order;
  for (size_t c = 0; c < pane.heads.size(); ++c) {
    if (!words_last || c != 1) order.push_back(c);
  }
  if (words_last) order.push_back(1);
  const auto row_of = [&](auto&& cell) {
    std::vector<std::string> row;
    for (const size_t c : order) row.push_back(cell(c));
    return row;
  };
  TextTable table(row_of([&](size_t c) { return pane.heads[c]; }));
  for (size_t r = 0; r < pane.rows.size() && r + 2 < room; ++r)
    table.add(row_of([&](size_t c) { return pane.rows[r][c].text; }));
  std::string text = pane.rows.empty() ? std::string() : table.str();
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (lines.size() > room) lines.resize(room);
  return lines;
}

std::vector<std::string> header(const Look& look, Rates& rates, double interval, const View& view) {
  const Json& r = look.runtime;
  const auto now = [&](const char* field) {
    const auto per_second = rates.of(field, count_of(r, field));
    return per_second ? human_rate(*per_second, "packets") : std::string("-");
  };
  std::string first = fmt::format("sluice top: {}", word_of(r, "configuration"));
  if (r.contains("device")) {
    first += fmt::format(" on {} x{}, generation {}", word_of(r, "device"), count_of(r, "workers"),
                         count_of(r, "generation"));
  }
  first += fmt::format(", every {:g} s{}", interval, view.paused ? ", PAUSED" : "");
  std::string second = fmt::format("in {}, out {}, dropped {}", now("packets_in"), now("packets_out"), now("dropped"));
  if (r.contains("latency_ns")) {
    second +=
        fmt::format("; p50 {:.1f} us, p99 {:.1f} us", static_cast<double>(count_of(r.at("latency_ns"), "p50")) * 1e-3,
                    static_cast<double>(count_of(r.at("latency_ns"), "p99")) * 1e-3);
  }
  return {first, second};
}

constexpr const char* kKeys = "q quit  p pause  s sort  Tab pane  h help";
const std::vector<std::string>& help_lines() {
  static const std::vector<std::string> lines = {"",
                                                 "  q            quit",
                                                 "  p            pause, and go on",
                                                 "  s            sort the chosen pane by its next column",
                                                 "  Tab, arrows  choose a pane: elements, drops, ports, rules",
                                                 "  h            this help, and back",
                                                 "",
                                                 "  Rates are those since the look before. 'sluice clear counters' has",
                                                 "  the counters begin anew."};
  return lines;
}

// What a terminal of this size shows: at most so many lines, each at most so long.
std::string frame(const std::vector<std::string>& head, const std::vector<Pane>& panes, const View& view, unsigned rows,
                  unsigned columns) {
  std::vector<std::pair<std::string, bool>> lines;  // true: in reverse
  const auto add = [&](const std::vector<std::string>& more, bool title) {
    for (size_t i = 0; i < more.size(); ++i) lines.emplace_back(more[i], title && i == 0);
  };
  add(head, false);
  const size_t left = rows > head.size() + 1 ? rows - head.size() - 1 : 1;  // a line for the keys
  const size_t others = (panes.size() - 1) * (kRowsOfOthers + 2);
  const bool all = left >= others + kRowsOfOthers + 2;
  if (view.help) {
    add(help_lines(), false);
  } else {
    for (size_t i = 0; i < panes.size(); ++i) {
      if (i == view.pane) {
        add(lines_of(panes[i], all ? left - others : left), true);
      } else if (all) {
        add(lines_of(panes[i], kRowsOfOthers + 2), false);
      }
    }
  }
  lines.resize(std::min<size_t>(lines.size(), rows - 1));
  lines.resize(rows - 1);
  lines.emplace_back(kKeys, false);
  std::string out;
  for (const auto& [line, reverse] : lines) {
    std::string cut = fit(line + "\n", 1, columns);
    cut.pop_back();
    out += reverse ? "\x1b[7m" + cut + "\x1b[0m" : cut;
    out += "\x1b[K\r\n";
  }
  out.resize(out.size() - 2);  // no line behind the last one
  return "\x1b[H" + out + "\x1b[J";
}

// A terminal that gives keys as they are pressed and shows another screen, until the end, whatever ends it.
class RawTerminal {
 public:
  RawTerminal() {
    if (::tcgetattr(STDIN_FILENO, &before()) != 0)
      fail(Exit::kIo, system_error("standard input: cannot read the terminal's settings", errno));
    termios raw = before();
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    // A stopped program would leave the terminal as it is.
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    restore_when_killed(&restore);
    if (::tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) != 0) {
      restore_when_killed(nullptr);
      fail(Exit::kIo, system_error("standard input: cannot change the terminal's settings", errno));
    }
    (void)!::write(STDOUT_FILENO, kBegin.data(), kBegin.size());
  }
  ~RawTerminal() {
    restore();
    restore_when_killed(nullptr);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  static constexpr std::string_view kBegin = "\x1b[?1049h\x1b[?25l", kEnd = "\x1b[?25h\x1b[?1049l";
  static termios& before() {
    static termios settings{};
    return settings;
  }
  // Also from a signal handler.
  static void restore() {
    (void)!::write(STDOUT_FILENO, kEnd.data(), kEnd.size());
    (void)::tcsetattr(STDIN_FILENO, TCSADRAIN, &before());
  }
};

// What the keys that were pressed mean.
void take_keys(std::string_view keys, View& view) {
  constexpr size_t kPanes = std::tuple_size_v<decltype(View::sort)>;
  while (!keys.empty()) {
    size_t taken = 1;
    const bool arrow = keys.size() >= 3 && (keys.starts_with("\x1b[") || keys.starts_with("\x1bO"));
    const char key = arrow ? keys[2] : keys[0];
    if (arrow) {
      taken = 3;
      if (key == 'C' || key == 'B') view.pane = (view.pane + 1) % kPanes;
      if (key == 'D' || key == 'A' || key == 'Z') view.pane = (view.pane + kPanes - 1) % kPanes;
    } else if (key == 'q' || key == '\x04') {
      view.quit = true;
    } else if (key == 'p' || key == ' ') {
      view.paused = !view.paused;
    } else if (key == 's') {
      ++view.sort[view.pane];
    } else if (key == '\t') {
      view.pane = (view.pane + 1) % kPanes;
    } else if (key == 'h' || key == '?') {
      view.help = !view.help;
    }
    keys.remove_prefix(taken);
  }
}

// What a frame needs at least.
std::pair<unsigned, unsigned> frame_size() {
  const auto [rows, columns] = terminal_size();
  return {std::max(rows, 3u), std::max(columns, 10u)};
}

Exit on_terminal(const ClientFlags& flags, const WatchFlags& watched) {
  // A run that is not there is said where it can be read.
  Look look = look_at(flags);
  const RawTerminal terminal;
  View view;
  Rates rates;
  rates.look(now_ns());
  uint64_t next = now_ns(), shown = 0;
  auto size = frame_size();
  bool fresh = true, draw = true;
  std::vector<std::string> head;
  for (;;) {
    if (interrupted().load(std::memory_order_relaxed)) return Exit::kInterrupted;
    if (view.quit) return Exit::kOk;
    if (!view.paused && now_ns() >= next) {
      if (!fresh) {
        look = look_at(flags);
        rates.look(now_ns());
      }
      fresh = false;
      next = now_ns() + static_cast<uint64_t>(watched.interval * 1e9);
      draw = true;
      ++shown;
    }
    if (draw) {
      head = header(look, rates, watched.interval, view);
      print_out(frame(head, panes_of(look, rates, view), view, size.first, size.second));
      draw = false;
      if (shown == watched.times) return Exit::kOk;
    }
    pollfd keyboard{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&keyboard, 1, 100);
    if (const auto now = frame_size(); now != size) {
      size = now;
      draw = true;
    }
    if (ready != 1) continue;
    std::array<char, 256> keys{};
    const ssize_t n = ::read(STDIN_FILENO, keys.data(), keys.size());
    // A terminal that is gone.
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return Exit::kOk;
    if (n > 0) take_keys({keys.data(), static_cast<size_t>(n)}, view);
    draw = true;
  }
}

Exit in_pipe(const ClientFlags& flags, const WatchFlags& watched) {
  const uint64_t times = watched.times == 0 ? 1 : watched.times;
  if (watched.times == 0) note("standard output or input is not a terminal: one frame (--times N for more)");
  View view;
  Rates rates;
  Look look = look_at(flags);
  rates.look(now_ns());
  // Its counters are what the first frame's rates are taken from.
  (void)header(look, rates, watched.interval, view);
  (void)panes_of(look, rates, view);
  for (uint64_t n = 0; n < times; ++n) {
    if (!wait_for(watched.interval) && interrupted().load(std::memory_order_relaxed)) return Exit::kInterrupted;
    look = look_at(flags);
    rates.look(now_ns());
    std::string out = n == 0 ? "" : "\n";
    for (const std::string& line : header(look, rates, watched.interval, view)) out += line + "\n";
    for (const Pane& pane : panes_of(look, rates, view)) {
      for (const std::string& line : lines_of(pane, kRowsWithoutEnd + 2)) out += line + "\n";
    }
    print_out(out);
  }
  return Exit::kOk;
}

}  // namespace

void add_top(Command root) {
  struct TopFlags : ClientFlags, WatchFlags {};
  auto o = std::make_shared<TopFlags>();
  o->interval = 1;
  Command sub = add_filing_subcommand(
      root, "top", "Start here",
      "Shows the rates of a running process on a terminal: packets per second in and out, its "
      "elements,\ndrops by reason, ports, and the rules that match most. Keys: q quit, p pause, s sort by the next "
      "column, Tab and arrows\nchoose a pane, h help. Where standard output is not a terminal, one frame is printed.",
      "sluice top\nsluice top --control /run/sluice/control --interval 2\nsluice top --times 1 > now.txt", [o] {
        return answered([&] {
          ClientFlags flags = *o;
          flags.socket = socket_of(*o);
          const bool terminal = ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDIN_FILENO) == 1;
          return terminal ? on_terminal(flags, *o) : in_pipe(flags, *o);
        });
      });
  add_watch_options(sub, *o, true);
  add_socket_option(sub, *o);
}

}  // namespace sluice::app
