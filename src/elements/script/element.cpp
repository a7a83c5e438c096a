// host only
// Script and DriverManager. Source: their Click manual pages. Not here: `save`, `append`, `sprintf`, `random`, `cat`.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "elements/flow_element.h"
#include "elements/script/functions.h"
#include "graph/click/config_text.h"

namespace sluice {
namespace {

// Jumps without a pause between them, and scripts that call each other, before a script is taken to be a loop.
constexpr unsigned kMaxJumps = 1000;
constexpr unsigned kMaxCalls = 32;
constexpr size_t kMaxText = size_t{1} << 20;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// The first word, which is taken off `text` with the blank behind it.
std::string_view take_word(std::string_view& text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  const std::vector<ConfigSlice> words = split_words(text);
  if (words.empty()) {
    text = {};
    return {};
  }
  const std::string_view word = text.substr(words[0].offset, words[0].length);
  text.remove_prefix(words[0].offset + words[0].length);
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return word;
}

// Where the parenthesis that opens before `at` closes; npos: nowhere.
size_t closing(std::string_view text, size_t at) {
  const ConfigEnd end = find_config_end(text, at);
  return end.fault == ConfigFault::kNone && end.offset < text.size() ? end.offset : std::string_view::npos;
}

struct SignalName {
  const char* name;
  int number;
};
constexpr SignalName kSignals[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},
                                   {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}};

int signal_number(std::string_view text) {
  for (const SignalName& s : kSignals) {
    if (text == s.name || text == fmt::format("SIG{}", s.name) || text == std::to_string(s.number)) return s.number;
  }
  return 0;
}

enum class Op : uint8_t {
  kSet,
  kInit,
  kExport,
  kPrint,
  kPrintBare,
  kRead,
  kWrite,
  kPause,
  kWait,
  kLabel,
  kGoto,
  kLoop,
  kEnd,
  kExit,
  kStop,
  kReturn,
  kError,
};
struct OpName {
  const char* name;
  Op op;
  bool quotes;  // a layer of quotes is removed after the substitution
};
constexpr OpName kOps[] = {
    {"set", Op::kSet, false},          {"setq", Op::kSet, true},        {"init", Op::kInit, false},
    {"initq", Op::kInit, true},        {"export", Op::kExport, false},  {"exportq", Op::kExport, true},
    {"print", Op::kPrint, false},      {"printq", Op::kPrint, true},    {"printn", Op::kPrintBare, false},
    {"printnq", Op::kPrintBare, true}, {"read", Op::kRead, false},      {"readq", Op::kRead, true},
    {"write", Op::kWrite, false},      {"writeq", Op::kWrite, true},    {"pause", Op::kPause, false},
    {"wait", Op::kWait, false},        {"wait_time", Op::kWait, false}, {"wait_stop", Op::kPause, false},
    {"wait_step", Op::kPause, false},  {"label", Op::kLabel, false},    {"goto", Op::kGoto, false},
    {"loop", Op::kLoop, false},        {"end", Op::kEnd, false},        {"exit", Op::kExit, false},
    {"stop", Op::kStop, false},        {"return", Op::kReturn, false},  {"returnq", Op::kReturn, true},
    {"error", Op::kError, false},      {"errorq", Op::kError, true}};

class Script final : public FlowElement {
 public:
  explicit Script(bool driver) : type_(driver ? Type::kDriver : Type::kActive) {}

  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    if (arguments.has("TYPE")) set_type(arguments, diagnostics);
    type_given_ = arguments.has("TYPE");
    for (const ArgumentValue& value : arguments.rest()) add(arguments, value, diagnostics);
    for (const Instruction& i : code_) {
      if (i.op != Op::kGoto) continue;
      std::string_view text = i.text;
      const std::string label(take_word(text));
      if (labels_.contains(label) || is_end(label)) continue;
      diagnostics.add(arguments.error_in(i.place, fmt::format("there is no label '{}'", label)));
    }
  }
  bool output_optional(unsigned output) const override { return output > 0; }

  Result<void> start(FlowContext& context) override {
    if (!type_given_ && (inputs != 0 || outputs != 0)) type_ = Type::kPacket;
    for (const Instruction& i : code_) {
      if (i.op != Op::kInit && i.op != Op::kExport) continue;
      std::string_view text = i.text;
      const std::string variable(take_word(text));
      auto value = expand(context, text, i.quotes);
      if (!value.ok()) return std::move(value).error();
      variables_[variable] = std::move(*value);
    }
    if (type_ == Type::kActive || type_ == Type::kDriver) context.wake();
    return {};
  }

  // -- active and driver scripts
  bool task(FlowContext& context) override {
    if (started_ || (type_ != Type::kActive && type_ != Type::kDriver)) return false;
    started_ = true;
    go_on(context);
    return false;
  }
  void timer(FlowContext& context) override {
    if (blocked_ != Blocked::kWait) return;
    blocked_ = Blocked::kNo;
    go_on(context);
  }
  bool manages_stop() const override { return type_ == Type::kDriver; }
  void stop_requested(FlowContext& context) override {
    if (ended_) {
      context.end();
    } else {
      step(context, 1);
    }
  }

  // -- packets
  void push(FlowContext& context, unsigned input, PacketBox packet) override {
    if (const auto output = judge(context, input)) {
      context.push(*output, std::move(packet));
    } else {
      context.drop(std::move(packet), DropReason::kDiscard);
    }
  }
  PacketBox pull(FlowContext& context, unsigned output) override {
    PacketBox packet = context.pull(0);
    if (packet == nullptr) return nullptr;
    const auto wanted = judge(context, 0);
    if (wanted == output) return packet;
    if (wanted) {
      context.push(*wanted, std::move(packet));
    } else {
      context.drop(std::move(packet), DropReason::kDiscard);
    }
    context.retry_at(context.now_ns());
    return nullptr;
  }

  Time time() const override {
    const bool waits = std::any_of(code_.begin(), code_.end(), [](const Instruction& i) { return i.op == Op::kWait; });
    return waits ? Time::kWaits : Time::kNone;
  }
  bool wants_signal(int signal) const override {
    return type_ == Type::kSignal && !signal_done_ &&
           std::find(signals_.begin(), signals_.end(), signal) != signals_.end();
  }
  void signal(FlowContext& context, int) override {
    const Outcome outcome = execute(context, 0);
    if (outcome.how == How::kExit) signal_done_ = true;
  }

  std::vector<Handler> handlers() override {
    std::vector<Handler> all;
    for (const std::string& variable : exported_) {
      all.push_back(
          {variable,
           [this, variable](FlowContext&, std::string_view) -> Result<std::string> { return variables_[variable]; },
           {}});
    }
    for (const std::string_view function : script_functions()) {
      all.push_back({std::string(function),
                     [function](FlowContext&, std::string_view text) { return call_script_function(function, text); },
                     {}});
    }
    all.push_back({"get", [this](FlowContext&, std::string_view text) { return get(text); }, {}});
    all.push_back({"set", {}, [this](FlowContext&, std::string_view text) -> Result<void> {
                     const std::string variable(take_word(text));
                     variables_[variable] = std::string(text);
                     return {};
                   }});
    all.push_back({"shift", [this](FlowContext&, std::string_view text) { return shift(text); }, {}});
    all.push_back({"now",
                   [](FlowContext& context, std::string_view) -> Result<std::string> {
                     return fmt::format("{}.{:09}", context.now_ns() / kSecondNs, context.now_ns() % kSecondNs);
                   },
                   {}});
    for (const bool writes : {false, true}) {
      all.push_back({writes ? "writable" : "readable",
                     [writes](FlowContext& context, std::string_view text) -> Result<std::string> {
                       bool all_there = true;
                       for (std::string_view word = take_word(text); !word.empty(); word = take_word(text))
                         all_there &= context.has_handler(word, writes);
                       return std::string(all_there ? "true" : "false");
                     },
                     {}});
    }
    all.push_back({"kill", [](FlowContext&, std::string_view text) { return send_signal(text); }, {}});
    all.push_back({"step", {}, [this](FlowContext& context, std::string_view text) -> Result<void> {
                     uint64_t count = 1;
                     if (!text.empty()) {
                       auto value = handler_value(kCountSpec, text);
                       if (!value.ok()) return std::move(value).error();
                       count = value->number;
                     }
                     step(context, count);
                     return {};
                   }});
    all.push_back({"goto", {}, [this](FlowContext& context, std::string_view text) -> Result<void> {
                     const auto label = labels_.find(take_word(text));
                     if (label == labels_.end()) return Error("there is no such label");
                     next_ = label->second;
                     ended_ = false;
                     started_ = true;
                     blocked_ = Blocked::kNo;
                     context.cancel_timer();
                     go_on(context);
                     return {};
                   }});
    Handler run{"run", [this](FlowContext& context, std::string_view text) { return call(context, text, {}, false); },
                [this](FlowContext& context, std::string_view text) -> Result<void> {
                  auto value = call(context, text, {}, true);
                  if (!value.ok()) return std::move(value).error();
                  return {};
                }};
    all.push_back(std::move(run));
    if (type_ == Type::kProxy) {
      // Any other name: the text begins with it.
      Handler any{"*",
                  [this](FlowContext& context, std::string_view text) {
                    const std::string handler(take_word(text));
                    return call(context, text, handler, false);
                  },
                  [this](FlowContext& context, std::string_view text) -> Result<void> {
                    const std::string handler(take_word(text));
                    auto value = call(context, text, handler, true);
                    if (!value.ok()) return std::move(value).error();
                    return {};
                  }};
      all.push_back(std::move(any));
    }
    return all;
  }

 private:
  enum class Type : uint8_t { kActive, kDriver, kPassive, kPacket, kProxy, kSignal };
  enum class Blocked : uint8_t { kNo, kPause, kWait };
  enum class How : uint8_t { kBlocked, kEnd, kExit, kReturn, kStop, kError };
  struct Instruction {
    Op op;
    bool quotes;
    std::string text;
    ArgumentValue place;
  };
  struct Outcome {
    How how = How::kEnd;
    std::string value;
  };

  static bool is_end(std::string_view label) {
    return label == "exit" || label == "end" || label == "loop" || label == "error" || label == "stop";
  }

  void set_type(const Arguments& arguments, Diagnostics& diagnostics) {
    const ArgumentValue& value = arguments.all("TYPE").front();
    std::string_view text = value.text;
    const std::string_view word = take_word(text);
    static constexpr std::pair<std::string_view, Type> kTypes[] = {
        {"ACTIVE", Type::kActive}, {"DRIVER", Type::kDriver}, {"PASSIVE", Type::kPassive},
        {"PACKET", Type::kPacket}, {"PROXY", Type::kProxy},   {"SIGNAL", Type::kSignal}};
    const auto found =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.first == word; });
    if (found == std::end(kTypes)) {
      Diagnostic d = arguments.error_in(value, fmt::format("'{}' is not a type of script", word));
      d.expected = "ACTIVE, PASSIVE, DRIVER, PACKET, PROXY or SIGNAL";
      diagnostics.add(std::move(d));
      return;
    }
    type_ = found->second;
    if (type_ != Type::kSignal) return;
    for (std::string_view signal_word = take_word(text); !signal_word.empty(); signal_word = take_word(text)) {
      const int number = signal_number(signal_word);
      if (number == 0) diagnostics.add(arguments.error_in(value, fmt::format("'{}' is not a signal", signal_word)));
      signals_.push_back(number);
    }
    if (signals_.empty()) diagnostics.add(arguments.error_in(value, "a SIGNAL script names a signal"));
  }

  void add(const Arguments& arguments, const ArgumentValue& value, Diagnostics& diagnostics) {
    std::string_view text = value.text;
    const std::string_view word = take_word(text);
    const auto found = std::find_if(std::begin(kOps), std::end(kOps), [&](const OpName& o) { return word == o.name; });
    if (found == std::end(kOps)) {
      std::vector<std::string> names;
      for (const OpName& o : kOps) names.emplace_back(o.name);
      Diagnostic d = arguments.error_in(value, fmt::format("'{}' is not an instruction", word), 0, word.size());
      const std::string near = closest_match(word, names);
      if (!near.empty()) d.suggestion = fmt::format("did you mean '{}'?", near);
      diagnostics.add(std::move(d));
      return;
    }
    const Op op = found->op;
    auto wrong = [&](std::string message) { diagnostics.add(arguments.error_in(value, std::move(message))); };
    std::string_view rest = text;
    const std::string first(take_word(rest));
    const bool names = op == Op::kSet || op == Op::kInit || op == Op::kExport || op == Op::kLabel || op == Op::kGoto ||
                       op == Op::kRead || op == Op::kWrite || op == Op::kWait;
    if (names && first.empty()) wrong(fmt::format("'{}' needs {}", word, op == Op::kWait ? "a time" : "a first"));
    const bool waits = op == Op::kWait || op == Op::kPause;
    if (waits && (type_ == Type::kPassive || type_ == Type::kPacket || type_ == Type::kProxy || type_ == Type::kSignal))
      wrong(fmt::format("'{}' cannot be used in a script of this type: its caller waits for the end", word));
    if (op == Op::kWait && !first.empty() && first.find('$') == std::string::npos) {
      uint64_t ns = 0;
      if (!parse_time_ns(text, &ns)) wrong(fmt::format("'{}' is not a time", text));
    }
    if (op == Op::kExport) exported_.push_back(first);
    if (op == Op::kLabel && !labels_.emplace(first, code_.size()).second)
      wrong(fmt::format("label '{}' is there twice", first));
    code_.push_back({op, found->quotes, std::string(text), value});
  }

  // --- running ---
  void step(FlowContext& context, uint64_t count) {
    if (blocked_ == Blocked::kNo) {
      // Not blocked yet: the next pause is over at once.
      steps_ += count;
      return;
    }
    if (blocked_ == Blocked::kPause && paused_ > count) {
      paused_ -= count;
      return;
    }
    if (blocked_ == Blocked::kPause)
      count -= paused_;
    else
      --count;
    steps_ += count;
    blocked_ = Blocked::kNo;
    context.cancel_timer();
    go_on(context);
  }

  void go_on(FlowContext& context) {
    if (running_) return;
    running_ = true;
    const Outcome outcome = execute(context, next_);
    running_ = false;
    if (outcome.how == How::kBlocked) return;
    ended_ = true;
    if (type_ == Type::kDriver) {
      context.end();
    } else if (outcome.how == How::kStop) {
      context.stop();
    }
  }

  Result<std::string> call(FlowContext& context, std::string_view arguments, const std::string& handler, bool writes) {
    if (calls_ == kMaxCalls) return Error("scripts call each other without end");
    ++calls_;
    // They are the arguments of this call alone.
    const std::map<std::string, std::string, std::less<>> saved = variables_;
    set_arguments(arguments);
    variables_["0"] = handler;
    variables_["write"] = writes ? "true" : "false";
    Outcome outcome = execute(context, 0);
    for (auto at = variables_.begin(); at != variables_.end();) {
      const bool own = at->first == "args" || at->first == "#" || at->first == "write" || is_digit(at->first[0]);
      if (own && !saved.contains(at->first)) {
        at = variables_.erase(at);
        continue;
      }
      if (own) at->second = saved.at(at->first);
      ++at;
    }
    --calls_;
    if (outcome.how == How::kError) return Error(outcome.value.empty() ? "the script failed" : outcome.value);
    if (outcome.how == How::kStop) context.stop();
    return std::move(outcome.value);
  }
  void set_arguments(std::string_view arguments) {
    variables_["args"] = std::string(arguments);
    unsigned n = 0;
    for (std::string_view word = take_word(arguments); !word.empty(); word = take_word(arguments))
      variables_[std::to_string(++n)] = std::string(word);
    variables_["#"] = std::to_string(n);
  }

  // The output of a packet; none: it is dropped.
  std::optional<unsigned> judge(FlowContext& context, unsigned input) {
    if (calls_ == kMaxCalls) return std::nullopt;
    variables_["input"] = std::to_string(input);
    ++calls_;
    const Outcome outcome = execute(context, 0);
    --calls_;
    if (outcome.how == How::kStop) context.stop();
    if (outcome.how == How::kExit || outcome.how == How::kError) return std::nullopt;
    if (outcome.how != How::kReturn || outcome.value.empty()) return 0;
    auto value = handler_value(kLimitSpec, outcome.value);
    if (!value.ok() || value->signed_number < 0 || value->signed_number >= static_cast<int64_t>(outputs))
      return std::nullopt;
    return static_cast<unsigned>(value->signed_number);
  }

  void complain(FlowContext& context, std::string_view what) {
    context.print_error(fmt::format("{} :: {}: {}\n", this->name, class_name, what));
  }
  void complain(FlowContext& context, const Error& error) {
    complain(context, error.hint.empty() ? error.message : fmt::format("{} ({})", error.message, error.hint));
  }

  // Whether it blocks here.
  bool pauses(FlowContext& context, std::string_view text) {
    uint64_t count = 1;
    if (!text.empty()) {
      auto value = expand(context, text, true);
      auto parsed = value.ok() ? handler_value(kCountSpec, *value) : Result<ArgumentValue>(value.error());
      if (parsed.ok())
        count = parsed->number;
      else
        complain(context, parsed.error());
    }
    if (steps_ >= count) {
      steps_ -= count;
      return false;
    }
    paused_ = count - steps_;
    steps_ = 0;
    blocked_ = Blocked::kPause;
    return true;
  }

  bool waits(FlowContext& context, const Instruction& i) {
    uint64_t ns = 0;
    auto value = expand(context, i.text, true);
    if (!value.ok() || !parse_time_ns(*value, &ns)) {
      complain(context, fmt::format("'{}' is not a time", value.ok() ? *value : i.text));
      return false;
    }
    blocked_ = Blocked::kWait;
    context.set_timer(context.now_ns() + std::min<uint64_t>(ns, kNever / 4));
    return true;
  }

  Outcome execute(FlowContext& context, size_t from) {
    unsigned jumps = 0;
    for (size_t at = from; at < code_.size();) {
      const Instruction& i = code_[at++];
      std::string_view text = i.text;
      switch (i.op) {
        case Op::kSet: {
          const std::string variable(take_word(text));
          auto value = expand(context, text, i.quotes);
          if (value.ok())
            variables_[variable] = std::move(*value);
          else
            complain(context, value.error());
          break;
        }
        case Op::kInit:
        case Op::kExport:
        case Op::kLabel:
          break;
        case Op::kPrint:
        case Op::kPrintBare:
          print(context, i);
          break;
        case Op::kRead:
        case Op::kWrite:
          use(context, i);
          break;
        case Op::kPause:
        case Op::kWait:
          if (i.op == Op::kPause ? !pauses(context, text) : !waits(context, i)) break;
          next_ = at;
          return {How::kBlocked, {}};
        case Op::kGoto:
        case Op::kLoop: {
          std::string label = i.op == Op::kLoop ? "loop" : std::string(take_word(text));
          if (i.op == Op::kGoto && !text.empty()) {
            auto value = expand(context, text, true);
            auto truth = value.ok() ? script_truth(*value) : Result<bool>(value.error());
            if (!truth.ok()) complain(context, truth.error());
            if (!truth.ok() || !*truth) break;
          }
          if (++jumps >= kMaxJumps) {
            complain(context, "too many jumps, giving up");
            return {How::kError, "too many jumps"};
          }
          if (const auto to = labels_.find(label); to != labels_.end()) {
            at = to->second;
          } else if (label == "loop") {
            at = 0;
          } else {
            return {label == "exit"    ? How::kExit
                    : label == "stop"  ? How::kStop
                    : label == "error" ? How::kError
                                       : How::kEnd,
                    {}};
          }
          break;
        }
        case Op::kEnd:
          return {How::kEnd, {}};
        case Op::kExit:
          return {How::kExit, {}};
        case Op::kStop:
          return {How::kStop, {}};
        case Op::kReturn:
        case Op::kError: {
          auto value = expand(context, text, i.quotes);
          if (!value.ok()) complain(context, value.error());
          Outcome outcome{i.op == Op::kReturn ? How::kReturn : How::kError, {}};
          if (value.ok()) outcome.value = std::move(*value);
          if (i.op == Op::kError && calls_ == 0 && !outcome.value.empty()) complain(context, outcome.value);
          return outcome;
        }
      }
    }
    return {How::kEnd, {}};
  }

  void print(FlowContext& context, const Instruction& i) {
    std::string_view text = i.text;
    std::string file;
    bool append = false;
    if (text.starts_with('>')) {
      append = text.starts_with(">>");
      text.remove_prefix(append ? 2 : 1);
      auto path = expand(context, take_word(text), true);
      if (!path.ok()) return complain(context, path.error());
      file = std::move(*path);
    }
    const bool handler = !text.empty() && (is_letter(text.front()) || text.front() == '@');
    std::string shown;
    if (handler) {
      auto value = ask(context, text, i.quotes);
      if (!value.ok()) return complain(context, value.error());
      shown = std::move(*value);
      if (i.op == Op::kPrint && !shown.ends_with('\n')) shown += '\n';
    } else {
      auto value = expand(context, text, true);
      if (!value.ok()) return complain(context, value.error());
      shown = std::move(*value);
      if (i.op == Op::kPrint) shown += '\n';
    }
    if (file.empty() || file == "-") return context.print_out(shown);
    std::ofstream out(file, append ? std::ios::binary | std::ios::app : std::ios::binary | std::ios::trunc);
    out.write(shown.data(), static_cast<std::streamsize>(shown.size()));
    out.flush();
    if (!out) complain(context, fmt::format("'{}' cannot be written", file));
  }

  void use(FlowContext& context, const Instruction& i) {
    std::string_view text = i.text;
    auto handler = expand(context, take_word(text), false);
    auto value = expand(context, text, i.quotes);
    if (!handler.ok() || !value.ok()) return complain(context, handler.ok() ? value.error() : handler.error());
    if (i.op == Op::kRead) {
      auto got = read(context, *handler, *value);
      if (!got.ok()) return complain(context, got.error());
      if (!got->ends_with('\n')) *got += '\n';
      context.print_error(fmt::format("{}:\n{}", full_name(context, *handler, false), *got));
      return;
    }
    const bool own = handler->find('.') == std::string::npos && context.has_handler(this->name + "." + *handler, true);
    const Result<void> done = context.write(own ? this->name + "." + *handler : *handler, *value);
    variables_["?"] = done.ok() ? "0" : "-1";
    if (!done.ok())
      context.print_error(
          fmt::format("While writing '{}' ({} :: {}):\n  {}\n", full_name(context, *handler, true), name, class_name,
                      done.error().diagnostics.empty() ? done.error().message : to_string(done.error())));
  }

  // A name without an element is this script's own, or the router's.
  Result<std::string> read(FlowContext& context, const std::string& handler, std::string_view argument) {
    if (handler.find('.') == std::string::npos && context.has_handler(name + "." + handler, false))
      return context.read(name + "." + handler, argument);
    return context.read(handler, argument);
  }
  std::string full_name(FlowContext& context, const std::string& handler, bool writes) const {
    if (handler.find('.') == std::string::npos && context.has_handler(name + "." + handler, writes))
      return name + "." + handler;
    return context.handler_name(handler);
  }
  // "HANDLER ARGUMENT", with substitutions.
  Result<std::string> ask(FlowContext& context, std::string_view text, bool quotes) {
    auto handler = expand(context, take_word(text), false);
    if (!handler.ok()) return handler;
    auto argument = expand(context, text, quotes);
    if (!argument.ok()) return argument;
    return read(context, *handler, *argument);
  }

  // --- variables ---
  Result<std::string> get(std::string_view text) {
    const auto at = variables_.find(take_word(text));
    if (at == variables_.end()) return Error("there is no such variable");
    return at->second;
  }
  Result<std::string> shift(std::string_view text) {
    std::string_view word = take_word(text);
    const auto at = variables_.find(word.empty() ? std::string_view("args") : word);
    if (at == variables_.end()) return Error("there is no such variable");
    std::string_view value = at->second;
    std::string first(take_word(value));
    at->second = std::string(value);
    return first;
  }
  static Result<std::string> send_signal(std::string_view text) {
    const int number = signal_number(take_word(text));
    if (number == 0) return Error("there is no such signal");
    for (std::string_view word = take_word(text); !word.empty(); word = take_word(text)) {
      if (word != std::to_string(::getpid())) return Error("signals go to this process alone");
      ::kill(::getpid(), number);
    }
    return std::string();
  }

  // $x, ${x}, ${x-default} and $(HANDLER ARGUMENT) replaced; nothing within '...'. `unquoted`: then without quotes.
  Result<std::string> expand(FlowContext& context, std::string_view text, bool unquoted, unsigned depth = 0) {
    if (depth > kMaxCalls) return Error("substitutions are nested too deep");
    std::string out;
    char quote_mark = 0;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at];
      if (out.size() > kMaxText) return Error(fmt::format("a text of more than {} bytes", kMaxText));
      if (quote_mark != '\'' && c == '\\' && at + 1 < text.size()) {
        out.append(text.substr(at, 2));
        at += 2;
        continue;
      }
      if ((c == '"' || c == '\'') && (quote_mark == 0 || quote_mark == c)) quote_mark = quote_mark == 0 ? c : 0;
      if (c != '$' || quote_mark == '\'' || at + 1 == text.size()) {
        out += c;
        ++at;
        continue;
      }
      std::string value;
      size_t end = at + 1;
      const char next = text[end];
      if (next == '(') {
        end = closing(text, at + 2);
        if (end == std::string_view::npos) return Error("'$(' is not closed");
        auto inner = expand(context, text.substr(at + 2, end - at - 2), false, depth + 1);
        if (!inner.ok()) return inner;
        std::string_view rest = *inner;
        const std::string handler(take_word(rest));
        auto got = read(context, handler, rest);
        if (!got.ok()) return got;
        value = std::move(*got);
        ++end;
      } else {
        std::string_view variable, fallback;
        bool has_fallback = false;
        if (next == '{') {
          const size_t close = text.find('}', end);
          if (close == std::string_view::npos) return Error("'${' is not closed");
          variable = text.substr(end + 1, close - end - 1);
          if (const size_t dash = variable.find('-'); dash != std::string_view::npos) {
            fallback = variable.substr(dash + 1);
            variable = variable.substr(0, dash);
            has_fallback = true;
          }
          end = close + 1;
        } else if (is_letter(next)) {
          while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) ++end;
          variable = text.substr(at + 1, end - at - 1);
        } else if (is_digit(next)) {
          while (end < text.size() && is_digit(text[end])) ++end;
          variable = text.substr(at + 1, end - at - 1);
        } else if (next == '?' || next == '#' || next == '$') {
          ++end;
          variable = text.substr(at + 1, 1);
        } else {
          out += c;
          ++at;
          continue;
        }
        if (variable == "$") {
          value = std::to_string(::getpid());
        } else if (const auto found = variables_.find(variable); found != variables_.end()) {
          value = found->second;
        } else if (has_fallback) {
          value = std::string(fallback);
        } else {
          value = std::string(text.substr(at, end - at));
        }
      }
      out += quote_mark == '"' ? escape_in_quotes(value) : value;
      at = end;
    }
    if (!unquoted) return out;
    UnquoteFault fault;
    auto bare = unquote(out, &fault);
    if (!bare) return Error(fault.message);
    return std::move(*bare);
  }

  Type type_;
  bool type_given_ = false;
  std::vector<Instruction> code_;
  std::map<std::string, size_t, std::less<>> labels_;
  std::vector<std::string> exported_;
  std::vector<int> signals_;
  std::map<std::string, std::string, std::less<>> variables_;
  size_t next_ = 0;
  Blocked blocked_ = Blocked::kNo;
  uint64_t paused_ = 0;  // steps until the pause is over
  uint64_t steps_ = 0;   // that came before the pause
  unsigned calls_ = 0;
  bool started_ = false;
  bool ended_ = false;
  bool running_ = false;
  bool signal_done_ = false;
};

}  // namespace

void register_script(Registry& registry) {
  ElementClass c{
      .name = "Script", .group = "Control", .summary = "runs instructions: waits, reads and writes handlers, prints"};
  c.description =
      "Instructions: `set VAR TEXT`, `init`, `export`, `print [>FILE] TEXT|HANDLER`, `printn`, `read HANDLER`, `write "
      "HANDLER VALUE`, `pause [N]`, `wait TIME`, `label L`, `goto L [CONDITION]`, `loop`, `return VALUE`, `end`, "
      "`exit`, `stop`, `error TEXT`; with a `q` appended (`setq`, `printq`, ...) a layer of quotes is removed. `$x` "
      "and `$(HANDLER ARGUMENT)` are replaced, but within '...'.\n\nTYPE: ACTIVE runs at the start, DRIVER too and "
      "decides about requests to stop, PASSIVE answers its handler `run`, PROXY any handler, PACKET (the default with "
      "ports) chooses the output of each packet, SIGNAL NAMES runs when a signal comes.\n\n`wait` goes by the packets' "
      "timestamps where all packets come from captures, from the first packet on; else by the run's "
      "clock.\n\nFunctions, also as "
      "handlers: `add sub mul div idiv mod rem neg abs min max avg count popcount gt_vec floor round ceil eq ne lt gt "
      "le ge not and or nand nor if in htonl htons ntohl ntohs length unquote get shift now readable writable kill`. "
      "Handlers to write: `set`, `step`, `goto`, `run`.";
  c.arguments = {
      {.name = "INSTRUCTION", .kind = ArgumentKind::kRaw, .positional = true, .repeated = true, .help = "in order"},
      {.name = "TYPE",
       .kind = ArgumentKind::kRaw,
       .help = "ACTIVE, PASSIVE, DRIVER, PACKET, PROXY or SIGNAL "
               "with names"}};
  c.inputs = {0, kAnyPorts};
  c.outputs = {0, kMaxOutputs};
  c.processing = "a/ah";
  c.drops = {DropReason::kDiscard};
  c.example = "Script(wait 1s, print counter.count, loop);";
  c.make = [](std::string_view) { return std::make_unique<Script>(false); };
  registry.add(c);

  c.name = "DriverManager";
  c.summary = "a Script that decides when the run ends";
  c.description =
      "A Script of TYPE DRIVER. A request to stop is a step: it ends a `pause` (or `wait_stop`) or a `wait`. The run "
      "ends "
      "when the script does.";
  c.inputs = {0, 0};
  c.outputs = {0, 0};
  c.processing = "";
  c.drops = {};
  c.example = "DriverManager(wait_stop, print counter.count);";
  c.make = [](std::string_view) { return std::make_unique<Script>(true); };
  registry.add(std::move(c));
}

}  // namespace sluice
