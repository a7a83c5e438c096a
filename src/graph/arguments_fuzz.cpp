// Any configuration string gives values within their bounds or findings with a place; quoting reads back.
#include "graph/arguments.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  using Kind = ArgumentKind;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const std::vector<ArgumentSpec> kAll = [] {
    std::vector<ArgumentSpec> specs;
    specs.push_back({.name = "FIRST", .kind = Kind::kString, .positional = true, .mandatory = true});
    specs.push_back({.name = "SECOND", .kind = Kind::kUint, .positional = true, .min = 3, .max = 1000});
    for (int k = 0; k <= static_cast<int>(Kind::kRaw); ++k) {
      ArgumentSpec s{.name = "K" + std::to_string(k), .kind = static_cast<Kind>(k), .repeated = k % 2 == 1};
      if (s.kind == Kind::kChoice) s.choices = {"af_packet", "af_xdp"};
      specs.push_back(s);
    }
    return specs;
  }();
  static const std::vector<ArgumentSpec> kRoutes = {
      {.name = "ROUTE", .kind = Kind::kRaw, .positional = true, .mandatory = true, .repeated = true},
      {.name = "FLAG", .kind = Kind::kBool, .default_text = "true"}};
  for (const auto* specs : {&kAll, &kRoutes}) {
    std::vector<Diagnostic> findings;
    const Arguments a = Arguments::parse(*specs, text, ConfigurationOrigin::of_text("fuzz", text), &findings);
    for (const Diagnostic& d : findings)
      require(d.line > 0 && d.column > 0 && !d.message.empty() && !to_string(d).empty());
    for (const ArgumentSpec& spec : *specs) {
      require(!spec.mandatory || a.has(spec.name) || !findings.empty());
      for (const ArgumentValue& v : a.all(spec.name)) {
        require(v.slice.offset + v.slice.length <= size);
        require(a.error_in(v, "x").line > 0);
        if (spec.name == "SECOND") require(v.number >= 3 && v.number <= 1000);
      }
    }
  }
  require(unquote(quote(text)) == std::string(text));
  for (const ConfigSlice& w : split_words(text)) require(w.length > 0 && w.offset + w.length <= size);
  return 0;
}
