// host only
#include "graph/click/library_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/input_file.h"

namespace sluice {
namespace {

bool is_regular(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

Result<ClickLibrary> read_library(const std::string& folder, const std::string& name, const std::string& from) {
  const std::filesystem::path beside = std::filesystem::path(from).parent_path() / name;
  for (const std::filesystem::path& path : {beside, std::filesystem::path(beside).concat(".click")}) {
    const std::string file = path.lexically_normal().string();
    const std::string where = (std::filesystem::path(folder) / file).string();
    if (!is_regular(where)) continue;
    auto text = read_text_file(where, ParseOptions().max_source_bytes);
    if (!text.ok()) return std::move(text).error();
    return ClickLibrary{file, std::move(*text)};
  }
  return Error(fmt::format("there is no file '{}' and no '{}.click'", beside.string(), beside.string()));
}

}  // namespace sluice
