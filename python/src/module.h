// What the parts of the module share: errors that become exceptions, and columns of arrays.
// host only
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <sluice/sluice.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::python {

namespace nb = nanobind;

// The findings of an error on its way to sluice.Error.
struct Failure {
  explicit Failure(const Error& error);
  explicit Failure(sluice_errors* errors, bool of_device = false);  // which it frees
  std::shared_ptr<sluice_errors> errors;
  bool device = false;  // it is sluice.DeviceError
};

// What a C function of the library wants for its errors; throws them.
class Errors {
 public:
  ~Errors() { sluice_errors_free(errors_); }
  sluice_errors** operator&() { return &errors_; }
  [[noreturn]] void fail(bool device = false) {
    sluice_errors* const given = errors_;
    errors_ = nullptr;
    throw Failure(given, device);
  }

 private:
  sluice_errors* errors_ = nullptr;
};

[[noreturn]] inline void wrong_type(const std::string& what) {
  throw nb::type_error(what.c_str());
}
[[noreturn]] inline void wrong_value(const std::string& what) {
  throw nb::value_error(what.c_str());
}

// Whose memory an array is in, as DLPack numbers it.
struct Memory {
  int32_t type = nb::device::cpu::value;
  int32_t number = 0;
};

// A column of an array: any stride, and null where the argument is None.
class Column {
 public:
  // Errors: TypeError and ValueError, which name the argument. `width`: bytes in a row, 0 where there is one number.
  // `other_bits`: another width of unsigned integers that is taken. `memory`: where it has to be; of a device's, the
  // object is what `__dlpack__` has returned, and rows are for the device alone.
  Column() = default;
  Column(const char* name, nb::handle object, unsigned bits, size_t width, unsigned other_bits = 0, Memory memory = {});

  explicit operator bool() const { return given_; }
  const char* name() const { return name_; }
  size_t size() const { return size_; }
  unsigned bits() const { return bits_; }
  int64_t stride() const { return stride_; }  // bytes from row to row
  bool contiguous() const { return stride_ == static_cast<int64_t>(bits_ / 8 * (width_ == 0 ? 1 : width_)); }
  const uint8_t* row(size_t i) const { return data_ + static_cast<int64_t>(i) * stride_; }
  template <typename T>
  T at(size_t i) const {
    T value;
    std::memcpy(&value, row(i), sizeof value);
    return value;
  }

 private:
  // What an exporter says of its memory. False: it is none.
  bool by_buffer(nb::handle object);
  bool by_dlpack(nb::handle object);

  // Whose memory it is.
  std::shared_ptr<Py_buffer> buffer_;
  nb::ndarray<nb::ro> array_;
  Memory memory_;
  std::string dtype_;                     // as NumPy writes it
  std::vector<int64_t> shape_, strides_;  // bytes
  const char* name_ = "";
  const uint8_t* data_ = nullptr;
  int64_t stride_ = 0;
  size_t size_ = 0, width_ = 0;
  unsigned bits_ = 0;
  bool given_ = false;
};

// The memory of a writable, contiguous array of `rows` numbers of type T. Errors: as of Column.
template <typename T>
T* output(const char* name, nb::handle object, size_t rows) {
  nb::ndarray<nb::ro> any;
  if (!nb::try_cast(object, any)) wrong_type(std::string(name) + " is no array in host memory");
  if (any.device_type() != nb::device::cpu::value) wrong_type(std::string(name) + " is not in host memory");
  if (any.dtype() != nb::dtype<T>()) wrong_type(std::string(name) + " has another dtype than the result");
  if (any.ndim() != 1 || any.shape(0) != rows)
    wrong_value(std::string(name) + " has not the shape (" + std::to_string(rows) + ",)");
  if (rows > 1 && any.stride(0) != 1) wrong_value(std::string(name) + " is not contiguous");
  nb::ndarray<T> writable;
  if (!nb::try_cast(object, writable)) wrong_value(std::string(name) + " is read-only");
  return writable.data();
}

void bind_tables(nb::module_& m);
void bind_captures(nb::module_& m);
void bind_tensors(nb::module_& m);
void bind_graphs(nb::module_& m);

}  // namespace sluice::python
