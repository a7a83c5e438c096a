// Any bytes as an input: no crash, bounded memory, and the same bytes or the same error however they are asked for.
#include <cstdlib>
#include <string>

#include "base/input_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  constexpr uint64_t kLimit = uint64_t{1} << 20;
  if (size == 0) return 0;
  const size_t step = size_t{1} + data[0] * size_t{37};
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);

  InputFile at_once = InputFile::over(bytes, "fuzz");
  const auto whole = at_once.whole(kLimit);
  if (whole.ok() && whole->size() > kLimit) std::abort();

  InputFile in_steps = InputFile::over(bytes, "fuzz");
  std::string got, some(step, '\0');
  while (got.size() <= kLimit) {
    if (data[0] % 4 == 1) (void)in_steps.peek(data[0]);
    const auto n = in_steps.read(std::as_writable_bytes(std::span(some)));
    if (!n.ok()) {
      if (whole.ok() || (!at_once.too_much() && n.error().message != whole.error().message)) std::abort();
      const auto again = in_steps.read(std::as_writable_bytes(std::span(some)));
      if (again.ok() || again.error().message != n.error().message) std::abort();
      return 0;
    }
    got.append(some, 0, *n);
    if (*n < step) break;
  }
  if (whole.ok() ? got != *whole : got.size() <= kLimit) std::abort();
  return 0;
}
