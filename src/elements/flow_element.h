// host only
// What flow elements share: the element that is its own Flow, handlers over members, and exact rates.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "graph/element.h"
#include "graph/router.h"

namespace sluice {

class FlowElement : public Element, public Flow {
 public:
  ElementKind kind() const override { return ElementKind::kFlow; }
  Flow* flow() override { return this; }
  bool output_optional(unsigned) const override { return false; }
};

template <typename T>
std::function<std::unique_ptr<Element>(std::string_view)> make_flow() {
  return [](std::string_view) { return std::make_unique<T>(); };
}

// A value of a handler, parsed as the argument `spec` is.
inline Result<ArgumentValue> handler_value(const ArgumentSpec& spec, std::string_view text) {
  ArgumentValue value;
  std::string problem;
  if (!parse_value(spec, text, &value, &problem)) return Error(problem, "expected: " + describe(spec));
  return value;
}

inline const ArgumentSpec kCountSpec{.name = "COUNT", .kind = ArgumentKind::kUint};
inline const ArgumentSpec kLimitSpec{.name = "LIMIT", .kind = ArgumentKind::kInt};
inline const ArgumentSpec kFlagSpec{.name = "ACTIVE", .kind = ArgumentKind::kBool};

template <typename T>
Handler read_handler(std::string name, const T* value) {
  return {std::move(name),
          [value](FlowContext&, std::string_view) -> Result<std::string> {
            if constexpr (std::is_same_v<T, bool>)
              return std::string(*value ? "true" : "false");
            else
              return std::to_string(*value);
          },
          {}};
}
// Read and write: `changed` is called with the context after a write.
template <typename T, typename Changed>
Handler value_handler(std::string name, T* value, ArgumentSpec spec, Changed changed) {
  Handler handler = read_handler(std::move(name), value);
  handler.write = [value, spec, changed](FlowContext& context, std::string_view text) -> Result<void> {
    auto parsed = handler_value(spec, text);
    if (!parsed.ok()) return std::move(parsed).error();
    if constexpr (std::is_same_v<T, bool>)
      *value = parsed->boolean;
    else
      *value = static_cast<T>(spec.kind == ArgumentKind::kInt ? static_cast<uint64_t>(parsed->signed_number)
                                                              : parsed->number);
    changed(context);
    return {};
  };
  return handler;
}
template <typename F>
Handler write_handler(std::string name, F run) {
  return {std::move(name), {}, [run](FlowContext& context, std::string_view) -> Result<void> {
            run(context);
            return {};
          }};
}

inline constexpr uint64_t kSecondNs = 1'000'000'000;
inline constexpr uint64_t kNever = ~uint64_t{0};

// A token bucket without rounding: tokens in units of 1e-9 token, so that `rate` tokens a second are `rate` units a
// nanosecond. It may be in debt, by what `take` took over what was there.
class TokenBucket {
 public:
  // Full at `now_ns`. A capacity below one token is one token where `whole` asks for whole tokens.
  void set(uint64_t rate, __int128 capacity_units, uint64_t now_ns) {
    rate_ = rate;
    capacity_ = capacity_units;
    level_ = capacity_;
    last_ns_ = now_ns;
  }
  void set_rate(uint64_t rate, __int128 capacity_units, uint64_t now_ns) {
    refill(now_ns);
    rate_ = rate;
    capacity_ = capacity_units;
    level_ = std::min(level_, capacity_);
  }
  void refill(uint64_t now_ns) {
    if (now_ns <= last_ns_) return;
    level_ = std::min(capacity_, level_ + static_cast<__int128>(now_ns - last_ns_) * rate_);
    last_ns_ = now_ns;
  }
  // Whether at least `units` are there.
  bool has(__int128 units) const { return level_ >= units; }
  void take(uint64_t tokens) { level_ -= static_cast<__int128>(tokens) * kSecondNs; }
  // When it will have `units`, as of the last refill; kNever without a rate.
  uint64_t time_of(__int128 units) const {
    if (level_ >= units) return last_ns_;
    if (rate_ == 0) return kNever;
    const __int128 wait = (units - level_ + rate_ - 1) / rate_;
    return wait > static_cast<__int128>(kNever - last_ns_) ? kNever : last_ns_ + static_cast<uint64_t>(wait);
  }

 private:
  uint64_t rate_ = 0;
  __int128 capacity_ = 0;
  __int128 level_ = 0;
  uint64_t last_ns_ = 0;
};

// Handler `rate`, in packets or bytes a second, written as the argument RATE is. `changed` is called after a write.
template <typename Changed>
Handler rate_handler(bool bytes, uint64_t* rate, Changed changed) {
  const ArgumentSpec spec{.name = "RATE", .kind = bytes ? ArgumentKind::kBandwidth : ArgumentKind::kUint};
  Handler handler = read_handler("rate", rate);
  handler.write = [=](FlowContext& context, std::string_view text) -> Result<void> {
    auto value = handler_value(spec, text);
    if (!value.ok()) return std::move(value).error();
    *rate = bytes ? value->number / 8 : value->number;
    changed(context);
    return {};
  };
  return handler;
}

// The time of the next packet at an even rate, without rounding: what does not divide is kept for the next one.
class Pace {
 public:
  // Units a second; 0: never.
  void set(uint64_t rate) {
    rate_ = rate;
    left_ = 0;
  }
  uint64_t rate() const { return rate_; }
  // Goes on where another one was, at its own rate.
  void take(const Pace& from) { next_ns_ = from.next_ns_; }
  uint64_t next_ns() const { return rate_ == 0 ? kNever : next_ns_; }
  void restart(uint64_t now_ns) {
    next_ns_ = now_ns;
    left_ = 0;
  }
  // `units` went at `now_ns`. What was missed more than `most_ns` ago is not made up for.
  void went(uint64_t units, uint64_t now_ns, uint64_t most_ns) {
    if (rate_ == 0) return;
    if (now_ns > most_ns && next_ns_ < now_ns - most_ns) restart(now_ns - most_ns);
    const unsigned __int128 gap = static_cast<unsigned __int128>(units) * kSecondNs + left_;
    next_ns_ += static_cast<uint64_t>(gap / rate_);
    left_ = static_cast<uint64_t>(gap % rate_);
  }

 private:
  uint64_t rate_ = 0;
  uint64_t next_ns_ = 0;
  uint64_t left_ = 0;
};

}  // namespace sluice
