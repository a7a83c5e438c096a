// host only
#include "module.h"

#include "api/border.h"

namespace sluice::python {
namespace {

sluice_errors* listed(const Error& error) {
  sluice_errors* list = nullptr;
  api::give_error(&list, error);
  return list;
}

// As sluice.Error, which the package defines.
void raise(const Failure& failure) {
  const sluice_errors* const errors = failure.errors.get();
  nb::list findings;
  for (size_t i = 0; i < sluice_errors_count(errors); ++i) {
    const sluice_error& e = *sluice_errors_at(errors, i);
    auto text = [](const char* s) { return nb::steal(PyUnicode_DecodeUTF8(s, std::strlen(s), "replace")); };
    nb::dict one;
    one["message"] = text(e.message);
    one["file"] = text(e.file);
    one["source"] = text(e.source);
    one["expected"] = text(e.expected);
    one["help"] = text(e.help);
    one["line"] = e.line;
    one["column"] = e.column;
    one["length"] = e.length;
    findings.append(one);
  }
  const char* const all = sluice_errors_text(errors);
  nb::object whole = nb::steal(PyUnicode_DecodeUTF8(all, std::strlen(all), "replace"));
  nb::object error = nb::module_::import_("sluice._errors").attr("error_of")(whole, findings);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
}

std::string shape_of(const nb::ndarray<nb::ro>& array) {
  std::string text = "(";
  for (size_t i = 0; i < array.ndim(); ++i) text += (i != 0 ? ", " : "") + std::to_string(array.shape(i));
  return text + (array.ndim() == 1 ? ",)" : ")");
}

std::string dtype_of(const nb::ndarray<nb::ro>& array) {
  const nb::dlpack::dtype type = array.dtype();
  const char* kind = "data of another kind";
  switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
    case nb::dlpack::dtype_code::Int:
      kind = "int";
      break;
    case nb::dlpack::dtype_code::UInt:
      kind = "uint";
      break;
    case nb::dlpack::dtype_code::Float:
      kind = "float";
      break;
    case nb::dlpack::dtype_code::Bool:
      return "bool";
    default:
      return kind;
  }
  return kind + std::to_string(type.bits);
}

}  // namespace

Failure::Failure(const Error& error) : Failure(listed(error)) {}
Failure::Failure(sluice_errors* given) : errors(given, sluice_errors_free) {}

Column::Column(const char* name, nb::handle object, unsigned bits, size_t width, unsigned other_bits)
    : name_(name), width_(width) {
  if (object.is_none()) return;
  given_ = true;
  kept_ = nb::borrow(object);
  std::string wanted = "uint" + std::to_string(bits);
  if (other_bits != 0) wanted += " or uint" + std::to_string(other_bits);
  if (!nb::try_cast(object, array_)) {
    wrong_type(std::string(name) + " is " + nb::type_name(object.type()).c_str() + ", not an array of " + wanted);
  }
  if (array_.device_type() != nb::device::cpu::value) {
    wrong_type(std::string(name) + " is in the memory of a device; copy it to the host first");
  }
  const nb::dlpack::dtype type = array_.dtype();
  if (type.code != static_cast<uint8_t>(nb::dlpack::dtype_code::UInt) || type.lanes != 1 ||
      (type.bits != bits && (other_bits == 0 || type.bits != other_bits))) {
    wrong_type(std::string(name) + " is an array of " + dtype_of(array_) + ", not of " + wanted);
  }
  bits_ = type.bits;
  const bool fits = width == 0 ? array_.ndim() == 1 : array_.ndim() == 2 && array_.shape(1) == width;
  if (!fits) {
    wrong_value(std::string(name) + " has the shape " + shape_of(array_) + ", not (n," +
                (width == 0 ? ")" : " " + std::to_string(width) + ")"));
  }
  size_ = array_.shape(0);
  if (width != 0 && size_ != 0 && array_.stride(1) != 1) {
    wrong_value(std::string(name) + " has rows that are not contiguous");
  }
  data_ = static_cast<const uint8_t*>(array_.data());
  stride_ = array_.stride(0) * static_cast<int64_t>(bits_ / 8);
}

NB_MODULE(_sluice, m) {
  m.doc() = "The engine behind the package sluice.";
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      raise(failure);
    }
  });
  m.def("version", &sluice_version);
  bind_tables(m);
  bind_captures(m);
  bind_graphs(m);
}

}  // namespace sluice::python
