// Finds the larger test inputs that live beside a checkout; tests that need them skip with a reason where they are
// absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice {

// The path of `relative` under $SLUICE_DATA, else under ../shared/data beside the source tree; nothing when it is
// absent.
inline std::optional<std::string> test_data(const char* relative) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (const char* root = std::getenv("SLUICE_DATA"); root != nullptr && *root != '\0') {
    const fs::path path = fs::path(root) / relative;
    if (fs::exists(path, ignored)) return path.string();
  }
#ifdef SLUICE_SOURCE_DIR
  const fs::path path = fs::path(SLUICE_SOURCE_DIR) / ".." / "shared" / "data" / relative;
  if (fs::exists(path, ignored)) return path.string();
#endif
  return std::nullopt;
}

}  // namespace sluice
