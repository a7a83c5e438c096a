// An element's options as a schema: one list of ArgumentSpec feeds parsing, manual pages, completion and `elements -o
// json`.
//
// Source: the argument conventions of click(5): mandatory positional, optional positional, then `KEYWORD value`; a
// positional argument may be given by its name too. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/address_names.h"
#include "graph/click/config_text.h"
#include "graph/click/source.h"
#include "net/types.h"

namespace sluice {

enum class ArgumentKind : uint8_t {
  kBool,       // true yes 1, false no 0                                       get_bool
  kInt,        // decimal or 0x, signed 64 bits                                get_int
  kUint,       // decimal or 0x, unsigned 64 bits                              get_uint
  kDouble,     // decimal, exponent allowed, finite                            get_double
  kTime,       // 10ms; seconds without a unit                                 get_time_ns
  kBandwidth,  // 10Mbps; BYTES per second without a unit                      get_bandwidth_bps (bits per second)
  kBytes,      // any bytes: "text", \<48 45>, or both side by side            get_string
  kIpv4,       //                                                              get_ipv4, get_ip
  kIpv6,       //                                                              get_ip
  kIp,         // either family                                                get_ip
  kPrefix,     // ADDR/LENGTH of either family, host bits must be zero         get_prefix
  kMac,        //                                                              get_mac
  kString,     // one word or quoted                                           get_string
  kFilename,   // like kString, not empty                                      get_string
  kWord,       // one word of letters, digits and _ . : @ / + -                get_string
  kChoice,     // one of `choices`, case ignored                               get_string (as written in `choices`)
  kElement,    // an element name                                              get_string
  kPort,       // a device or port name: eth0, 0000:01:00.0                    get_string
  kRaw,        // text of its own language, quotes kept, comments removed      get_string, rest
};

// The name of the kind in documents and in JSON: "bool", "uint", "time" ...
std::string_view kind_name(ArgumentKind kind);

struct ArgumentSpec {
  std::string name;  // also the keyword; capitals by custom
  ArgumentKind kind = ArgumentKind::kString;
  bool positional = false;
  bool mandatory = false;
  bool repeated = false;  // positional: takes all positional arguments that are left; keyword: may stand more than once
  std::string default_text;  // as a user would write it; empty: none (getters give zero or an empty text)
  std::string unit;          // for documents: "packets", "bytes"
  std::string help;          // one sentence
  // Inclusive bounds of numbers; of kTime in seconds, of kBandwidth in bytes per second; of kBytes and kString the
  // length.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;  // kChoice
};
// Of true or false, by keyword.
inline ArgumentSpec bool_argument(std::string name, std::string default_text, std::string help) {
  return {.name = std::move(name),
          .kind = ArgumentKind::kBool,
          .default_text = std::move(default_text),
          .help = std::move(help)};
}

// What the value must look like, for messages and manuals: "a number from 1 to 255".
std::string describe(const ArgumentSpec& spec);
// The synopsis: "CAPACITY uint, [KEYWORD ...]" in the order in which arguments stand.
std::string synopsis(const std::vector<ArgumentSpec>& specs);

// One parsed value. Fields that its kind does not use are zero.
struct ArgumentValue {
  bool boolean = false;
  int64_t signed_number = 0;
  uint64_t number = 0;  // also nanoseconds, and bits per second
  double real = 0;
  IpAddress ip;
  IpPrefix prefix;
  MacAddress mac{};
  std::string text;   // unquoted; kRaw: as written without comments
  ConfigSlice slice;  // of the value, within the configuration; {0, 0} for a default
};

class Arguments {
 public:
  // Parses the raw configuration of one element. Every finding is appended to `findings` with its place in the source;
  // on findings the values they concern hold their defaults. `specs` is copied. Wrong specs (a default that does not
  // parse, two of one name) are programmer's errors: see check_specs().
  // Where an address is asked for, a name of `names` may stand, which outlives the Arguments.
  static Arguments parse(const std::vector<ArgumentSpec>& specs, std::string_view configuration,
                         const ConfigurationOrigin& origin, std::vector<Diagnostic>* findings,
                         const AddressScope& names = {});
  // The same for a single caller: all findings in one Error.
  static Result<Arguments> parse(const std::vector<ArgumentSpec>& specs, std::string_view configuration,
                                 const ConfigurationOrigin& origin = {});

  // The class takes it and the user gave it (a default does not count).
  bool has(std::string_view name) const;
  size_t count(std::string_view name) const;

  // The value, else the default, else zero. `name` must be in the schema with a kind that fits.
  bool get_bool(std::string_view name) const;
  int64_t get_int(std::string_view name) const;
  uint64_t get_uint(std::string_view name) const;
  double get_double(std::string_view name) const;
  uint64_t get_time_ns(std::string_view name) const;
  uint64_t get_bandwidth_bps(std::string_view name) const;  // bits per second
  uint32_t get_ipv4(std::string_view name) const;           // host order
  IpAddress get_ip(std::string_view name) const;            // family 0: none
  IpPrefix get_prefix(std::string_view name) const;
  MacAddress get_mac(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;
  // All values of a repeated argument, in order.
  const std::vector<ArgumentValue>& all(std::string_view name) const;
  // All values of the repeated positional argument: classifier patterns, routes. Empty if the schema has none.
  const std::vector<ArgumentValue>& rest() const;

  // The names that addresses within kRaw arguments may have.
  const AddressScope& names() const { return names_; }

  // A finding of the element's own about `length` bytes at `offset` of an argument's text as it stands in the
  // configuration; length 0: the whole argument.
  Diagnostic error_in(const ArgumentValue& value, std::string message, size_t offset = 0, size_t length = 0) const;
  // The same about an argument by name; about the whole configuration when it was not given.
  Diagnostic error_at(std::string_view name, std::string message) const;

 private:
  friend class ArgumentsParser;
  const ArgumentSpec* find(std::string_view name, size_t* index) const;
  const ArgumentValue& value(std::string_view name) const;

  std::vector<ArgumentSpec> specs_;
  std::vector<std::vector<ArgumentValue>> given_;  // by spec
  std::vector<ArgumentValue> defaults_;            // by spec
  std::string configuration_;
  ConfigurationOrigin origin_;
  AddressScope names_;
};

// One value by itself, e.g. for handlers and the command line: nullopt and `problem` (a short sentence) if it is wrong.
// `text` is raw: quotes and escapes apply.
bool parse_value(const ArgumentSpec& spec, std::string_view text, ArgumentValue* value, std::string* problem,
                 const AddressScope& names = {});

// "10ms" -> nanoseconds; "10Mbps" -> bits per second (without a unit: bytes per second). False: not such a text, or too
// large.
bool parse_time_ns(std::string_view text, uint64_t* ns);
bool parse_bandwidth_bps(std::string_view text, uint64_t* bps);

// What is wrong with a schema (for a test over all elements); empty: nothing.
std::string check_specs(const std::vector<ArgumentSpec>& specs);

}  // namespace sluice
