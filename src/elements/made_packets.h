// host only
// What generators of one packet share: what it holds, how many there are, and the handlers for both.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "elements/flow_element.h"

namespace sluice {

inline ArgumentSpec made_data_argument() {
  return {.name = "DATA",
          .kind = ArgumentKind::kBytes,
          .positional = true,
          .unit = "bytes",
          .help = "the packet; default: bytes 0 to 63",
          .max = 65535};
}
inline ArgumentSpec made_limit_argument() {
  return {.name = "LIMIT",
          .kind = ArgumentKind::kInt,
          .positional = true,
          .default_text = "-1",
          .unit = "packets",
          .help = "how many; -1: no limit",
          .min = -1};
}
inline ArgumentSpec made_active_argument() {
  return {.name = "ACTIVE",
          .kind = ArgumentKind::kBool,
          .positional = true,
          .default_text = "true",
          .help = "false: make nothing"};
}
inline ArgumentSpec made_length_argument() {
  return {.name = "LENGTH",
          .kind = ArgumentKind::kUint,
          .unit = "bytes",
          .help = "cut DATA to this length, or fill it up with zeros",
          .min = 1,
          .max = 65535};
}
inline ArgumentSpec made_stop_argument() {
  return {.name = "STOP",
          .kind = ArgumentKind::kBool,
          .default_text = "false",
          .help = "true: ask the run to stop when LIMIT packets are made"};
}

struct MadePackets {
  std::vector<uint8_t> data;
  int64_t limit = -1;
  uint64_t count = 0;
  bool active = true;
  bool stop = false;

  void configure(const Arguments& arguments) {
    const std::string& text = arguments.get_string("DATA");
    data.assign(text.begin(), text.end());
    if (!arguments.has("DATA")) {
      data.resize(64);
      for (size_t i = 0; i < 64; ++i) data[i] = static_cast<uint8_t>(i);
    }
    if (arguments.has("LENGTH")) data.resize(arguments.get_uint("LENGTH"));
    limit = arguments.get_int("LIMIT");
    active = arguments.get_bool("ACTIVE");
    stop = arguments.has("STOP") && arguments.get_bool("STOP");
  }
  bool more() const { return active && (limit < 0 || count < static_cast<uint64_t>(limit)); }
  PacketBox next(FlowContext& context) {
    if (!more()) return nullptr;
    PacketBox packet = context.bring(data);
    if (packet == nullptr) return nullptr;
    ++count;
    if (stop && !more()) context.stop();
    return packet;
  }

  template <typename Changed>
  std::vector<Handler> handlers(Changed changed) {
    Handler bytes{
        "data",
        [this](FlowContext&, std::string_view) -> Result<std::string> { return std::string(data.begin(), data.end()); },
        [this](FlowContext&, std::string_view text) -> Result<void> {
          auto value = handler_value(made_data_argument(), text);
          if (!value.ok()) return std::move(value).error();
          data.assign(value->text.begin(), value->text.end());
          return {};
        }};
    Handler length{
        "length", [this](FlowContext&, std::string_view) -> Result<std::string> { return std::to_string(data.size()); },
        [this](FlowContext&, std::string_view text) -> Result<void> {
          auto value = handler_value(made_length_argument(), text);
          if (!value.ok()) return std::move(value).error();
          data.resize(value->number);
          return {};
        }};
    return {read_handler("count", &count),
            write_handler("reset",
                          [this, changed](FlowContext& context) {
                            count = 0;
                            changed(context);
                          }),
            std::move(bytes),
            std::move(length),
            value_handler("limit", &limit, made_limit_argument(), changed),
            value_handler("active", &active, kFlagSpec, changed)};
  }
};

}  // namespace sluice
