// host only
#include "control/sent_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/base64.h"
#include "control/json.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr uint64_t kNameRoom = 4096;  // of an object, without what it holds

Result<InputFile> open_path(const std::string& path, const std::string& name) {
  using Type = fs::file_type;
  std::error_code ignored;
  const Type type = fs::status(path, ignored).type();
  if (type != Type::regular && type != Type::not_found && type != Type::none)
    return Error(fmt::format("{} is not a file", name), "write its contents to a file first");
  auto file = InputFile::open(path);
  if (file.ok()) file->set_name(name);
  return file;
}

// How many bytes a JSON string has for it.
uint64_t escaped_bytes(std::string_view text) {
  uint64_t bytes = text.size();
  for (const char c : text)
    bytes += c == '\n' || c == '"' || c == '\\' ? 1 : static_cast<unsigned char>(c) < 32 ? 5 : 0;
  return bytes;
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path found = fs::absolute(path, error);
  return error ? path : found.string();
}

}  // namespace

Result<SentFile> read_sent_file(const Json& value) {
  const Error wrong("a file of a request is a path, or an object with a name and one of text, base64 and path");
  if (value.is_string()) {
    const std::string path = value.get<std::string>();
    auto input = open_path(path, path);
    if (!input) return std::move(input).error();
    return SentFile{path, {}, std::move(*input)};
  }
  if (!value.is_object()) return wrong;
  std::string name, folder;
  const Json* held = nullptr;
  std::string kind;
  for (const auto& [field, what] : value.items()) {
    if (!what.is_string()) return wrong;
    if (field == "name") {
      name = what.get<std::string>();
    } else if (field == "folder") {
      folder = what.get<std::string>();
    } else if ((field == "text" || field == "base64" || field == "path") && held == nullptr) {
      held = &what;
      kind = field;
    } else {
      return wrong;
    }
  }
  if (held == nullptr || name.empty()) return wrong;
  const std::string& bytes = held->get_ref<const std::string&>();
  if (kind == "text") return SentFile{name, folder, InputFile::over(bytes, name)};
  if (kind == "path") {
    auto input = open_path(bytes, name);
    if (!input) return std::move(input).error();
    return SentFile{name, folder, std::move(*input)};
  }
  auto decoded = from_base64(bytes);
  if (!decoded) return Error(fmt::format("{}: the data sent is not base64", name));
  return SentFile{name, folder, InputFile::over(std::move(*decoded), name)};
}

Result<Json> send_file(const std::string& path, uint64_t& room, const std::string& suffix) {
  auto file = InputFile::open(path);
  if (!file) return std::move(file).error();
  Json sent{{"name", file->name() + suffix}, {"folder", absolute(".")}};
  const uint64_t most = room > kNameRoom ? room - kNameRoom : 0;
  auto bytes = file->whole(most);
  if (bytes.ok()) {
    const bool ascii =
        std::all_of(bytes->begin(), bytes->end(), [](char c) { return static_cast<unsigned char>(c - 1) < 127; });
    const uint64_t needs = ascii ? escaped_bytes(*bytes) : (bytes->size() + 2) / 3 * 4;
    if (needs <= most) {
      room = most - needs;
      if (ascii) {
        sent["text"] = std::move(*bytes);
      } else {
        sent["base64"] = to_base64(*bytes);
      }
      return sent;
    }
  } else if (!file->too_much()) {
    return std::move(bytes).error();
  }
  if (!file->regular() || path == "-") {
    return Error(fmt::format("{}: more than the {} bytes that fit in a request", file->name(), most),
                 "write it to a file: the running process reads that itself");
  }
  room = most;
  sent["path"] = absolute(path);
  return sent;
}

}  // namespace sluice
