// host only
// Files of requests: the client reads what its user named and sends it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/input_file.h"
#include "base/result.h"

namespace sluice {

// A file of a request: an object {"name": as the user named it, "folder": what relative names begin in, and one of
// "text", "base64": what it holds, "path": where this process finds it}; or the path alone.
struct SentFile {
  std::string name;
  std::string folder;
  InputFile input;
};
// Errors: another value; what cannot be opened; a path that leads to something else than a file, which could keep this
// process waiting, and all who ask it things.
Result<SentFile> read_sent_file(const nlohmann::ordered_json& value);

// The object for a file. `room`: bytes that the request has left, which become fewer. What has no room goes by its path
// where it is a file. `suffix`: what stands behind the name. Errors: those of the input; no room, and no file.
Result<nlohmann::ordered_json> send_file(const std::string& path, uint64_t& room, const std::string& suffix = {});

}  // namespace sluice
