// host only
// The functions of routes.
#include <algorithm>
#include <array>

#include "api/border.h"
#include "api/table.h"
#include "formats/route_files.h"

namespace sluice::api {
namespace {

Result<sluice_fib*> load(std::vector<std::string> files, TableText from, const sluice_fib_options* options) {
  auto o = options_or(options, sluice_fib_options SLUICE_FIB_OPTIONS_INIT);
  if (!o) return std::move(o).error();
  TableDeclaration d{.type = TableDeclaration::Type::kRoutes};
  d.files = std::move(files);
  d.algorithm = text_or(o->algorithm4, "");
  d.algorithm6 = text_or(o->algorithm6, "");
  auto fib = std::make_unique<sluice_fib>();
  auto table = FibTable::load(d, from, false);
  if (!table) return std::move(table).error();
  fib->table = std::move(*table);
  return fib.release();
}

// The name of routes in memory is one that means nothing else.
Result<std::string> memory_name(const char* name) {
  std::string given(text_or(name, "memory"));
  if (given.empty() || given.find(',') != std::string::npos)
    return bad_argument("'" + given + "' is no name for routes: it is empty or has a comma");
  return given;
}

Result<int> replace(sluice_fib& fib, const std::vector<std::string>& files, InputSet inputs) {
  return fib.table->change([&](LiveTables& live) -> Result<int> {
    auto done = live.replace_routes(FibTable::name(), files, inputs, false);
    if (!done) return std::move(done).error();
    return 0;
  });
}

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_fib* sluice_fib_open(const char* paths, const sluice_fib_options* options, sluice_errors** errors) {
  return guarded<sluice_fib*>(errors, nullptr, [&]() -> Result<sluice_fib*> {
    if (paths == nullptr) return bad_argument("the paths are NULL");
    return load(split_route_files(paths), {}, options);
  });
}

sluice_fib* sluice_fib_read(const void* bytes, size_t n, const char* name, const sluice_fib_options* options,
                            sluice_errors** errors) {
  return guarded<sluice_fib*>(errors, nullptr, [&]() -> Result<sluice_fib*> {
    if (bytes == nullptr && n != 0) return bad_argument("the bytes are NULL");
    auto known = memory_name(name);
    if (!known) return std::move(known).error();
    return load({*known}, {*known, std::span(static_cast<const std::byte*>(bytes), n)}, options);
  });
}

void sluice_fib_free(sluice_fib* fib) {
  quiet(0, [&] { return delete fib, 0; });
}

uint64_t sluice_fib_lookup4(const sluice_fib* fib, const uint32_t* addresses, size_t n, uint32_t* next_hops) {
  if (fib == nullptr || (n != 0 && (addresses == nullptr || next_hops == nullptr))) return 0;
  return fib->table->read(n >= kLongFibLookup,
                          [&](const OpenedFib& opened) { opened.lookup4(addresses, next_hops, n); });
}

uint64_t sluice_fib_lookup6(const sluice_fib* fib, const uint64_t* hi, const uint64_t* lo, size_t n,
                            uint32_t* next_hops) {
  if (fib == nullptr || (n != 0 && (hi == nullptr || lo == nullptr || next_hops == nullptr))) return 0;
  return fib->table->read(n >= kLongFibLookup, [&](const OpenedFib& opened) { opened.lookup6(hi, lo, next_hops, n); });
}

int sluice_fib_change(sluice_fib* fib, const char* text, const char* name, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (fib == nullptr || text == nullptr) return bad_argument("the routes or the text are NULL");
    return fib->table->change([&](LiveTables& live) -> Result<int> {
      auto done = live.change_routes(FibTable::name(), text, std::string(text_or(name, "change")), false);
      if (!done) return std::move(done).error();
      return 0;
    });
  });
}

int sluice_fib_replace_file(sluice_fib* fib, const char* paths, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (fib == nullptr || paths == nullptr) return bad_argument("the routes or the paths are NULL");
    return replace(*fib, split_route_files(paths), {});
  });
}

int sluice_fib_replace(sluice_fib* fib, const void* bytes, size_t n, const char* name, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (fib == nullptr || (bytes == nullptr && n != 0)) return bad_argument("the routes or the bytes are NULL");
    auto known = memory_name(name);
    if (!known) return std::move(known).error();
    InputSet inputs;
    inputs.put(*known, InputFile::over(std::span(static_cast<const std::byte*>(bytes), n), *known));
    return replace(*fib, {*known}, std::move(inputs));
  });
}

int sluice_fib_save(sluice_fib* fib, const char* path, sluice_errors** errors) {
  return guarded(errors, -1, [&]() -> Result<int> {
    if (fib == nullptr || path == nullptr) return bad_argument("the routes or the path are NULL");
    return fib->table->change([&](LiveTables& live) -> Result<int> {
      const std::shared_ptr<const Image> now = live.tables().routes.find(FibTable::name())->second;
      Result<void> written;
      if (now->patches() != nullptr) {
        // A replica has no checksum, and room to grow.
        auto routes = live.routes(FibTable::name());
        if (!routes) return std::move(routes).error();
        // A change that found no memory has left the image alone.
        if (*routes == nullptr)
          return Error("the routes are not known after a change without memory", "replace them first");
        auto image = build_routes((*routes)->best_routes(), section_algorithm(*now->find(SectionTag::kFib4)),
                                  section_algorithm(*now->find(SectionTag::kFib6)));
        if (!image) return std::move(image).error();
        written = image->write(path);
      } else {
        written = now->write(path);
      }
      if (!written) return std::move(written).error();
      return 0;
    });
  });
}

uint64_t sluice_fib_generation(const sluice_fib* fib) {
  if (fib == nullptr) return 0;
  return fib->table->read(false, [](const auto&) {});
}

uint32_t sluice_fib_next_hops(const sluice_fib* fib) {
  if (fib == nullptr) return 0;
  uint32_t count = 0;
  fib->table->read(false, [&](const OpenedFib& opened) { count = opened.names.count(); });
  return count;
}

const char* sluice_fib_algorithm(const sluice_fib* fib, int family) {
  if (fib == nullptr || (family != 4 && family != 6)) return "";
  const char* found = "";
  fib->table->read(false, [&](const OpenedFib& opened) {
    const auto name = section_algorithm(*opened.image->find(family == 4 ? SectionTag::kFib4 : SectionTag::kFib6));
    for_each_lpm<AllLpm>([&]<typename A>(A) {
      if (name == A::kName) found = A::kName;
    });
  });
  return found;
}

size_t sluice_fib_next_hop(const sluice_fib* fib, uint32_t number, char* text, size_t size) {
  if (text == nullptr) size = 0;
  if (size != 0) text[0] = '\0';
  if (fib == nullptr) return 0;
  size_t length = 0;
  fib->table->read(false, [&](const OpenedFib& opened) {
    if (number == 0 || number > opened.names.count()) return;
    const std::string_view name = opened.names.name(number);
    if (size != 0) {
      const size_t some = std::min(name.size(), size - 1);
      std::memcpy(text, name.data(), some);
      text[some] = '\0';
    }
    length = name.size();
  });
  return length;
}

}  // extern "C"
