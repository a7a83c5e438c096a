#include "formats/route_files.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "formats/compressed_file.h"
#include "tables/image.h"

namespace sluice {
namespace {

Result<RouteReport> read_one(const std::string& path, Rib& rib, const MrtOptions& mrt) {
  auto stream = ByteStream::open(path);
  if (!stream) return std::move(stream).error();
  auto start = stream->peek();
  if (!start) return std::move(start).error();
  if (start->size() >= 8 && std::memcmp(start->data(), Image::kMagic, 8) == 0) {
    return Error(fmt::format("{} is a compiled image, not a route file", path),
                 "give it alone, or give the route files it was compiled from");
  }
  if (looks_like_mrt(*start)) return parse_mrt(*stream, rib, mrt);
  auto text = read_all(*stream, kMaxTextBytes);
  if (!text) return std::move(text).error();
  return parse_routes(*text, path, rib);
}

}  // namespace

Result<Rib> read_routes_files(const std::vector<std::string>& paths, RouteReport* report, const MrtOptions& mrt) {
  Rib rib;
  RouteReport sum;
  Error all;
  size_t failed = 0;
  for (const std::string& path : paths) {
    auto one = read_one(path, rib, mrt);
    if (!one) {
      Error error = std::move(one).error();
      if (++failed == 1) {
        all = std::move(error);
        continue;
      }
      // A file's own sentence stays as a finding where it has no located ones.
      if (error.diagnostics.empty()) {
        Diagnostic d;
        d.file = path;
        d.message = std::move(error.message);
        error.diagnostics.push_back(std::move(d));
      }
      for (Diagnostic& d : error.diagnostics) all.diagnostics.push_back(std::move(d));
      continue;
    }
    sum.routes4 += one->routes4;
    sum.routes6 += one->routes6;
    sum.skipped += one->skipped;
    for (Diagnostic& d : one->warnings) {
      if (sum.warnings.size() < Diagnostics::kLimit) sum.warnings.push_back(std::move(d));
    }
  }
  if (failed > 1)
    all.message = fmt::format("{} of {} route files have errors; the first: {}", failed, paths.size(), all.message);
  if (failed > 0) return all;
  if (report != nullptr) *report = std::move(sum);
  rib.settle();
  return rib;
}

}  // namespace sluice
