// host only
#include "api/border.h"

#include "base/log.h"
#include "control/machine.h"
#include "elements/register_all.h"

namespace sluice::api {
namespace {

// Made when the library is loaded, and never freed: what is left where there is no memory for another.
sluice_errors& no_memory() {
  static sluice_errors& list = *[] {
    auto* const made = new sluice_errors;
    made->findings.resize(1);
    made->findings[0].message = "out of memory";
    made->shown.push_back({made->findings[0].message.c_str(), "", "", "", "", 0, 0, 0, 0});
    made->text = "error: out of memory\n";
    return made;
  }();
  return list;
}
[[maybe_unused]] const sluice_errors& made_in_time = no_memory();

}  // namespace

void give_no_memory(sluice_errors** errors) noexcept {
  if (errors != nullptr) *errors = &no_memory();
}

void give_error(sluice_errors** errors, const Error& error) noexcept {
  if (errors == nullptr) return;
  try {
    auto made = std::make_unique<sluice_errors>();
    for (const Diagnostic& d : error.diagnostics) {
      if (d.severity == Diagnostic::Severity::kError) made->findings.push_back(d);
    }
    if (made->findings.empty()) {
      Diagnostic& only = made->findings.emplace_back();
      only.message = error.message;
      only.suggestion = error.hint;
    }
    for (const Diagnostic& d : made->findings) {
      made->shown.push_back({d.message.c_str(), d.file.c_str(), d.source_line.c_str(), d.expected.c_str(),
                             d.suggestion.c_str(), d.line, d.column, d.line == 0 ? 0 : d.length, 0});
    }
    made->text = to_string(error);
    *errors = made.release();
  } catch (...) {
    give_no_memory(errors);
  }
}

const Registry& element_classes() {
  static const Registry all = [] {
    Registry r;
    register_elements(r);
    return r;
  }();
  return all;
}

void enter() noexcept {
  static const bool once = [] {
    set_log_level(LogLevel::kOff);
    return true;
  }();
  (void)once;
}

}  // namespace sluice::api

using namespace sluice;

extern "C" {

const char* sluice_version(void) {
  return SLUICE_VERSION;
}

const char* sluice_build_revision(void) {
  static const std::string revision = sluice_revision();
  return revision.c_str();
}

size_t sluice_errors_count(const sluice_errors* errors) {
  return errors == nullptr ? 0 : errors->shown.size();
}

const sluice_error* sluice_errors_at(const sluice_errors* errors, size_t i) {
  return errors == nullptr || i >= errors->shown.size() ? nullptr : &errors->shown[i];
}

const char* sluice_errors_text(const sluice_errors* errors) {
  return errors == nullptr ? "" : errors->text.c_str();
}

void sluice_errors_free(sluice_errors* errors) {
  if (errors != &api::no_memory()) delete errors;
}

}  // extern "C"
