#include "formats/trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/scanner.h"

namespace sluice {

Result<std::vector<FlowKey>> parse_trace(std::string_view text, std::string file_name) {
  static constexpr struct {
    const char* name;
    uint64_t limit;
  } kColumns[7] = {{"a source address", 0xffffffff},
                   {"a destination address", 0xffffffff},
                   {"a source port", 65535},
                   {"a destination port", 65535},
                   {"a protocol", 255},
                   {"a flags word or rule", 0xffffffff},
                   {"a rule", 0xffffffff}};
  Diagnostics found(std::move(file_name), text);
  std::vector<FlowKey> keys;
  keys.reserve(std::min<size_t>(text.size() / 40, 1 << 20));
  Scanner scan(text);
  for (; !scan.end_of_text(); scan.skip_line()) {
    scan.skip_blanks();
    if (scan.end_of_line() || scan.peek() == '#') continue;
    if (found.error_count() > Diagnostics::kLimit) break;
    uint64_t column[8];
    size_t n = 0;
    bool good = true;
    while (good && n < 7 && !scan.end_of_line()) {
      const size_t start = scan.at();
      // The generators write the sixth column signed here and there: -1 is all ones.
      const bool minus = n == 5 && scan.take('-');
      good = scan.decimal(kColumns[n].limit, column[n]) &&
             (scan.end_of_line() || scan.peek() == ' ' || scan.peek() == '\t');
      if (!good) {
        scan.seek(start);
        const auto word = scan.word();
        found.error_at(start, word.size(), fmt::format("'{}' is not {}", word.substr(0, 40), kColumns[n].name))
            .expected = fmt::format("a decimal number, 0..{}", kColumns[n].limit);
        break;
      }
      if (minus) column[n] = 0u - static_cast<uint32_t>(column[n]);
      column[n] &= 0xffffffff;
      ++n;
      scan.skip_blanks();
    }
    if (!good) continue;
    if (n < 5 || !scan.end_of_line()) {
      found
          .error_at(
              scan.at(), scan.word().size(),
              n < 5 ? fmt::format("a packet needs 5 columns, this line has {}", n) : std::string("more than 7 columns"))
          .expected = "SRC DST SPORT DPORT PROTO [FLAGS] [RULE]";
      continue;
    }
    FlowKey key;
    key.family = 4;
    key.bits = FlowKey::kHasPorts;
    key.src_lo = column[0];
    key.dst_lo = column[1];
    key.src_port = static_cast<uint16_t>(column[2]);
    key.dst_port = static_cast<uint16_t>(column[3]);
    key.protocol = static_cast<uint8_t>(column[4]);
    if (n == 7) key.flags = static_cast<uint16_t>(column[5] >> 16);
    keys.push_back(key);
  }
  if (!found.ok()) return found.to_error();
  return keys;
}

Result<std::string> to_trace(const std::vector<FlowKey>& keys) {
  std::string out;
  for (size_t i = 0; i < keys.size(); ++i) {
    const FlowKey& k = keys[i];
    if (k.family != 4)
      return Error(fmt::format("packet {} is not IPv4, which a ClassBench trace cannot express", i + 1));
    fmt::format_to(std::back_inserter(out), "{}\t{}\t{}\t{}\t{}\t{}\t0\n", static_cast<uint32_t>(k.src_lo),
                   static_cast<uint32_t>(k.dst_lo), k.src_port, k.dst_port, k.protocol, uint32_t{k.flags} << 16);
  }
  return out;
}

}  // namespace sluice
