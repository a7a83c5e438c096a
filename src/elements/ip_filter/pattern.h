// The pattern language of IPFilter and IPClassifier: text to a program of comparisons, and to rules of an access list
// where rules can say the same. Host only.
//
// Source: the manual pages of IPFilter and IPClassifier (click). A pattern is made of primitives with and, or, not (&&,
// ||, !), juxtaposition (and), parentheses and `C ? A : B`:
//
//   [src|dst|src or dst|src and dst] [tcp|udp|...] [host ADDR | net PREFIX | port PORT]
//   [src|dst|src or dst|src and dst] [ether] [host] ETHER_ADDR
//   ip proto P | ip vers|hl|id|len|tos|dscp|ttl N | ip frag|unfrag|ect|ce | tcp opt FLAG | tcp win N | icmp type T
//   ip[P:L] | tcp[P:L] | udp[P:L] | icmp[P:L] | transp[P:L]  N             any of them with [& MASK] [== != < > <= >=]
//   tcp | udp | icmp | ... | true | false | all | -      and of `tcp opt`, `port` and `icmp type` the name alone: syn,
//   www
//
// Qualifiers that are left out are those of the primitive before (`src port 80 or 81`). A comparison holds only for
// packets that have the field: ports and flags are in first fragments of protocols that have them, so `src port != 5`
// is about TCP and UDP, and `!(src port == 5)` is not; a host or net is about the packets of its family. A mask without
// a value asks for some of its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "elements/ip_filter/stage.h"
#include "graph/address_names.h"
#include "net/types.h"
#include "tables/acl/region.h"
#include "tables/acl/rule_set.h"

namespace sluice {

// What is wrong with a pattern, at a place of its text.
struct PatternFault {
  size_t offset = 0, length = 0;
  std::string message, expected, suggestion;
};

struct PatternNode {
  enum class Kind : uint8_t { kConst, kTest, kPrefix, kNot, kAnd, kOr, kIf };
  Kind kind = Kind::kConst;
  bool value = false;            // kConst
  bool source = false;           // kPrefix: of the source address
  uint32_t a = 0, b = 0, c = 0;  // nodes; kIf: a ? b : c
  PatternStep test{};            // kTest; without its targets
  IpPrefix prefix;               // kPrefix
};

// Patterns in order: a packet goes where the first one that it matches says.
class PatternList {
 public:
  static constexpr size_t kMaxParts = 30000;  // below PatternStep::kDone
  static constexpr unsigned kMaxDepth = 100;

  // Adds a pattern whose packets leave by `output`; kDropOutput: they are dropped. Faults: what is wrong in the text;
  // more than kMaxParts parts in all (an address counts as five), or kMaxDepth levels.
  // `names`: what addresses may be called.
  std::optional<PatternFault> add(std::string_view text, uint8_t output, const AddressScope& names = {});

  // The steps of all patterns, and where to begin.
  std::vector<PatternStep> program(uint32_t* first) const;
  // Rules that decide the same: mark(OUTPUT), or deny for kDropOutput. None when a pattern looks at what rules cannot,
  // or when they would be more than `limit`.
  std::optional<RuleSet> rules(size_t limit) const;

  // What the program looks at.
  bool uses_frame() const { return uses_frame_; }
  bool uses_ttl() const { return uses_ttl_; }

 private:
  friend class PatternParser;
  bool regions(uint32_t node, std::vector<AclRegion>& out, size_t limit) const;

  std::vector<PatternNode> nodes_;
  struct Pattern {
    uint32_t root;
    uint8_t output;
  };
  std::vector<Pattern> patterns_;
  size_t steps_ = 0;
  bool uses_frame_ = false;
  bool uses_ttl_ = false;
};

}  // namespace sluice
