// Any text as --packet, --hex and PORT=FILE: a value that holds what its contract says, or an error with a message.
#include <cstdlib>
#include <cstring>

#include "control/command_text.h"
#include "net/parse.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (auto frame = parse_packet_text(text, "--packet"); frame.ok()) {
    require(frame->size() >= 14 && frame->size() <= 9100);
    // An exact copy, so that a read past its end is seen.
    std::vector<uint8_t> copy(*frame);
    copy.shrink_to_fit();
    Headers headers;
    const auto bytes = static_cast<uint32_t>(copy.size());
    (void)parse_ethernet(copy.data(), bytes, bytes, headers);
  } else {
    require(!to_string(frame.error()).empty());
  }
  if (auto bytes = parse_hex_bytes(text, "--hex"); bytes.ok()) {
    require(bytes->size() * 2 <= text.size());
  } else {
    require(!to_string(bytes.error()).empty());
  }
  if (auto out = parse_port_file(text); out.ok()) {
    require(text.size() >= out->file.size());
    require(text.compare(text.size() - out->file.size(), out->file.size(), out->file) == 0);
    require(out->port.has_value() == (text.size() != out->file.size()));
  } else {
    require(!to_string(out.error()).empty());
  }
  return 0;
}
