// host only
#include <fmt/format.h>

#include "elements/counter/stage.h"
#include "elements/flow_element.h"
#include "elements/stage_element.h"
#include "graph/click/config_text.h"
#include "graph/router.h"

namespace sluice {
namespace {

// A stage; in the scheduler it has counts that can be read and reset, and calls others when they reach a number.
// Source: the Click manual page of Counter.
class Counter final : public StageElement<PassStage>, public Flow {
 public:
  void configure(const Arguments& arguments, Diagnostics& diagnostics) override {
    calls_.set(arguments, "COUNT_CALL", diagnostics);
    byte_calls_.set(arguments, "BYTE_COUNT_CALL", diagnostics);
  }
  ElementKind kind() const override {
    return calls_.handler.empty() && byte_calls_.handler.empty() ? ElementKind::kStage : ElementKind::kFlow;
  }
  Flow* flow() override { return this; }
  Result<void> start(FlowContext& context) override {
    since_ns_ = context.now_ns();
    for (const Call* call : {&calls_, &byte_calls_}) {
      if (!call->handler.empty() && !context.has_handler(call->handler, true))
        return Error(fmt::format("there is no handler '{}' that can be written", call->handler));
    }
    return {};
  }
  void clock_begins(FlowContext& context) override { since_ns_ = context.now_ns(); }
  void push(FlowContext& context, unsigned, PacketBox packet) override {
    count(context, *packet);
    context.push(0, std::move(packet));
  }
  bool counted(uint64_t packets, uint64_t bytes) override {
    count_ += packets;
    bytes_ += bytes;
    return calls_.handler.empty() && byte_calls_.handler.empty();
  }
  PacketBox pull(FlowContext& context, unsigned) override {
    PacketBox packet = context.pull(0);
    if (packet != nullptr) count(context, *packet);
    return packet;
  }
  void take(FlowContext&, Flow& from) override {
    const auto& other = static_cast<const Counter&>(from);
    count_ = other.count_;
    bytes_ = other.bytes_;
    since_ns_ = other.since_ns_;
  }
  std::vector<Handler> handlers() override {
    const auto reset = [this](FlowContext& context) {
      count_ = bytes_ = 0;
      since_ns_ = context.now_ns();
      calls_.done = byte_calls_.done = false;
    };
    return {read_handler("count", &count_),      read_handler("byte_count", &bytes_), rate("rate", &count_, 1),
            rate("byte_rate", &bytes_, 1),       rate("bit_rate", &bytes_, 8),        write_handler("reset", reset),
            write_handler("reset_counts", reset)};
  }

 private:
  // "N HANDLER [VALUE]": once the count is there.
  struct Call {
    uint64_t at = 0;
    std::string handler;
    std::string value;
    bool done = false;

    void set(const Arguments& arguments, const char* argument, Diagnostics& diagnostics) {
      if (!arguments.has(argument)) return;
      const ArgumentValue& given = arguments.all(argument).front();
      const std::string_view text = given.text;
      const std::vector<ConfigSlice> words = split_words(text);
      auto number = words.empty() ? Result<ArgumentValue>(Error("empty"))
                                  : handler_value(kCountSpec, text.substr(words[0].offset, words[0].length));
      if (!number.ok() || words.size() < 2) {
        Diagnostic d = arguments.error_in(given, fmt::format("'{}' is not a count and a handler", text));
        d.expected = "N HANDLER [VALUE]";
        diagnostics.add(std::move(d));
        return;
      }
      at = number->number;
      handler = std::string(text.substr(words[1].offset, words[1].length));
      if (words.size() > 2) value = std::string(text.substr(words[2].offset));
    }
    void reached(FlowContext& context, uint64_t count) {
      if (handler.empty() || done || count < at) return;
      done = true;
      if (auto ok = context.write(handler, value); !ok.ok())
        context.print_error(fmt::format("while writing '{}': {}\n", handler, ok.error().message));
    }
  };

  void count(FlowContext& context, const FlowPacket& packet) {
    ++count_;
    bytes_ += packet.registers.length();
    calls_.reached(context, count_);
    byte_calls_.reached(context, bytes_);
  }
  // The mean since the last reset.
  Handler rate(const char* handler, const uint64_t* what, uint64_t factor) {
    return {handler,
            [this, what, factor](FlowContext& context, std::string_view) -> Result<std::string> {
              const uint64_t ns = context.now_ns() - since_ns_;
              const auto units = static_cast<unsigned __int128>(*what) * factor * kSecondNs;
              return std::to_string(ns == 0 ? 0 : static_cast<uint64_t>(units / ns));
            },
            {}};
  }

  uint64_t count_ = 0, bytes_ = 0;
  uint64_t since_ns_ = 0;
  Call calls_, byte_calls_;
};

}  // namespace

void register_counter(Registry& registry) {
  ElementClass counter{.name = "Counter", .group = "Basics", .summary = "counts packets and bytes"};
  counter.description =
      "Packets pass unchanged. Every element counts what reaches it; a Counter only names a place to count at. Among "
      "queues and scripts it has handlers: `count`, `byte_count`, `rate`, `byte_rate`, `bit_rate` (means since the "
      "last reset), `reset`; COUNT_CALL and BYTE_COUNT_CALL write to another element's handler.";
  counter.arguments = {{.name = "COUNT_CALL",
                        .kind = ArgumentKind::kRaw,
                        .help = "N HANDLER [VALUE]: after N packets VALUE is written, before the packet passes"},
                       {.name = "BYTE_COUNT_CALL", .kind = ArgumentKind::kRaw, .help = "the same for bytes"}};
  counter.example = "in :: FromDump(a.pcap) -> seen :: Counter -> ToDump(b.pcap);";
  counter.make = make_element<Counter>();
  registry.add(counter);

  ElementClass null = std::move(counter);
  null.name = "Null";
  null.summary = "does nothing";
  null.arguments = {};
  null.make = make_element<StageElement<PassStage>>();
  null.description = "Packets pass unchanged.";
  null.example = "in -> Null -> out;";
  registry.add(std::move(null));
}

}  // namespace sluice
