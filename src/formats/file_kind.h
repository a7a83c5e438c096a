// What a file looks like that could not be read as what it was given for. host only
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

enum class FileKind : uint8_t {
  kUnknown,
  kRules,  // native rules
  kClassBench,
  kVpp,
  kIptables,
  kNft,      // JSON
  kNftText,  // which is not read
  kRoutes,
  kAdjacencies,
  kClick,
  kToml,
  kCapture,
};
// By its first bytes or its first lines that are no comments. In time linear in a few KiB.
FileKind kind_of(std::string_view text);

enum class KindWanted : uint8_t { kRules, kRoutes, kConfiguration };
// The error of a text that cannot be read as what it was given for, where it looks like something else: what it looks
// like, and how such a file is given. Nothing: it looks like what it was given for, or like nothing known.
std::optional<Error> other_kind(std::string_view text, const std::string& file, KindWanted given_for);

}  // namespace sluice
