// The state of a packet's connection, as rules look at it. A rule file is read once for each state, with the state as a
// known constant: the list that comes out has no notion of it. Host only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/names.h"

namespace sluice {

enum class ConnState : uint8_t { kNew, kEstablished, kRelated, kInvalid };

// By their numbers.
inline constexpr names::Named kConnStates[] = {{"new", 0}, {"established", 1}, {"related", 2}, {"invalid", 3}};

constexpr std::string_view to_string(ConnState state) {
  return kConnStates[static_cast<uint8_t>(state)].name;
}
// One bit for each state.
constexpr unsigned bit_of(ConnState state) {
  return 1u << static_cast<uint8_t>(state);
}

// For which packets rules are read. Without a state, a rule that looks at one is an error.
struct StateReading {
  std::optional<ConnState> state;
  // Set to true when a rule looks at the state, whatever state is asked for, or keeps it; also before an error.
  bool* stateful = nullptr;
  // The native `keep-state` is read without a state, too: for rules of a list that has been read for one.
  bool keeps = false;

  // Whether the reader warns: of a file that is read for each state it does so once.
  bool warns() const { return !state || (*state == ConnState::kNew && stateful == nullptr); }
  void found() const {
    if (stateful != nullptr) *stateful = true;
  }
};

// What the error says.
inline constexpr const char* kNeedsState = "the rule looks at the state of its connection";
inline constexpr const char* kKeepsState = "the rule keeps the state of its connection";
inline constexpr const char* kStateWanted = "a state: FORMAT auto@new, or ConnTrack in front";

}  // namespace sluice
