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
  nb::object error = nb::module_::import_("sluice._errors").attr("error_of")(whole, findings, failure.device);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
}

std::string shape_of(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i != 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

Failure::Failure(const Error& error) : Failure(listed(error)) {}
Failure::Failure(sluice_errors* given, bool of_device) : errors(given, sluice_errors_free), device(of_device) {}

// Structured arrays have strides that are no multiples of their items, which DLPack has no words for.
bool Column::by_buffer(nb::handle object) {
  auto* const view = new Py_buffer{};
  if (PyObject_GetBuffer(object.ptr(), view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    delete view;
    return false;
  }
  buffer_.reset(view, [](Py_buffer* v) {
    PyBuffer_Release(v);
    delete v;
  });
  const char* format = view->format != nullptr ? view->format : "B";
  bool swapped = false;
  if (std::strchr("<>=@^!", *format) != nullptr) {
    swapped = (*format == '>' || *format == '!') && view->itemsize > 1;
    ++format;
  }
  const char code = format[0] != '\0' && format[1] == '\0' ? format[0] : '\0';
  const std::string bits = std::to_string(view->itemsize * 8);
  if (code == '?') {
    dtype_ = "bool";
  } else if (code != '\0' && std::strchr("BHILQN", code) != nullptr) {
    dtype_ = "uint" + bits;
  } else if (code != '\0' && std::strchr("bhilqn", code) != nullptr) {
    dtype_ = "int" + bits;
  } else if (code != '\0' && std::strchr("efd", code) != nullptr) {
    dtype_ = "float" + bits;
  } else {
    dtype_ = "another kind";
  }
  if (swapped) dtype_ += " in the other byte order";
  shape_.assign(view->shape, view->shape + view->ndim);
  strides_.assign(view->strides, view->strides + view->ndim);
  data_ = static_cast<const uint8_t*>(view->buf);
  return true;
}

bool Column::by_dlpack(nb::handle object) {
  if (!nb::try_cast(object, array_)) return false;
  // What is pinned for a GPU is the host's all the same.
  const int32_t type_there =
      array_.device_type() == nb::device::cuda_host::value ? nb::device::cpu::value : array_.device_type();
  if (type_there != memory_.type || (memory_.type != nb::device::cpu::value && array_.device_id() != memory_.number)) {
    wrong_type(std::string(name_) + " is not in the memory that it says; copy it to the host first");
  }
  const nb::dlpack::dtype type = array_.dtype();
  dtype_ = type.lanes != 1                                                    ? "vectors"
           : type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt)  ? "uint"
           : type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int)   ? "int"
           : type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) ? "float"
                                                                              : "another kind of ";
  dtype_ += std::to_string(type.bits);
  for (size_t i = 0; i < array_.ndim(); ++i) {
    shape_.push_back(static_cast<int64_t>(array_.shape(i)));
    strides_.push_back(array_.stride(i) * (type.bits / 8));
  }
  data_ = static_cast<const uint8_t*>(array_.data());
  return true;
}

Column::Column(const char* name, nb::handle object, unsigned bits, size_t width, unsigned other_bits, Memory memory)
    : memory_(memory), name_(name), width_(width) {
  if (object.is_none()) return;
  given_ = true;
  const std::string one = "uint" + std::to_string(bits);
  const std::string other = other_bits != 0 ? "uint" + std::to_string(other_bits) : one;
  const std::string wanted = other == one ? one : one + " or " + other;
  const bool on_host = memory.type == nb::device::cpu::value;
  if (!(on_host && by_buffer(object)) && !by_dlpack(object)) {
    const nb::object type = nb::borrow(object.type()).attr("__name__");
    wrong_type(std::string(name) + " is " + nb::cast<std::string>(type) + ", not an array of " + wanted);
  }
  if (dtype_ != one && dtype_ != other) {
    wrong_type(std::string(name) + " is an array of " + dtype_ + ", not of " + wanted);
  }
  bits_ = dtype_ == one ? bits : other_bits;
  if (shape_.size() != (width == 0 ? 1 : 2) || (width != 0 && shape_[1] != static_cast<int64_t>(width))) {
    wrong_value(std::string(name) + " has the shape " + shape_of(shape_) + ", not (n," +
                (width == 0 ? ")" : " " + std::to_string(width) + ")"));
  }
  size_ = static_cast<size_t>(shape_[0]);
  if (width != 0 && size_ != 0 && strides_[1] != 1) {
    wrong_value(std::string(name) + " has rows that are not contiguous");
  }
  // Of one row it is any number.
  stride_ = size_ > 1 ? strides_[0] : static_cast<int64_t>(bits_ / 8 * (width_ == 0 ? 1 : width_));
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
  bind_tensors(m);
  bind_graphs(m);
}

}  // namespace sluice::python
