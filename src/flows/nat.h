// host only
// Gives translated addresses and ports to connections that begin, by rules. One thread at a time; what it gives depends
// on the connections before and on the rules alone.
//
// A source address and port keep one translated port towards everybody (endpoint-independent mapping, RFC 4787 section
// 4.1) as long as one of their connections lives; all of an address get one address of the pool (section 4.1, paired).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "flows/nat_rules.h"
#include "net/flow_key.h"
#include "net/l4.h"

namespace sluice {

// By which packets leave: what `via` names, and masquerade translates to.
struct NatOutput {
  uint16_t port = 0;     // of adjacencies
  std::string name;      // of its interface; empty: none
  uint32_t address = 0;  // of its interface; 0: none
};

class Nat {
 public:
  static constexpr uint32_t kNone = ~0u;
  // What is given where a source's own port is taken, unless a rule asks for others.
  static constexpr NatRule::Ports kOther{1024, 0xffff};

  // From here on connections begin by these rules; those that are there stay as they are. Errors: a rule names an
  // output that is not there, or has no address.
  Result<void> use(std::span<const NatRule> rules, std::span<const NatOutput> outputs);

  // Whether a rule may be for a packet of no connection, whatever its output: it is not to leave as it is. `has_ports`:
  // the packet has ports, or needs none.
  bool may_be_for(const NatTuple& t, bool has_ports) const;
  // The packet with its destination translated.
  NatTuple destination(const NatTuple& t) const;
  struct Given {
    bool refused = false;  // a rule is for it, and nothing is free
    NatTuple tuple;        // the packet with its source translated
    uint32_t mapping = kNone;
  };
  // The packet, of which the destination is translated, with its source translated. `port`: a function that gives the
  // adjacency port by which it leaves, -1 for none. `taken`: a function that says whether connections of another source
  // have this packet's addresses and ports. What is given is kept until `release`.
  template <typename Port, typename Taken>
  Given source(const NatTuple& t, Port&& port, Taken&& taken) {
    Given given{.tuple = t};
    const Rule* const rule = source_rule(t, port);
    if (rule == nullptr || rule->itself) return given;
    if (rule->verb == NatRule::Verb::kBoth) {
      given.tuple.source = rule->to_low | (t.source & ~rule->source.mask);
      given.refused = taken(given.tuple);
    } else if (has_mapped_port(t.protocol)) {
      given.mapping = map(*rule, t, given.tuple);
      given.refused = given.mapping == kNone || (taken(given.tuple) && !step_aside(given.tuple, rule->to_ports, taken));
    } else {
      // Without a port to translate the address has to tell connections apart.
      const uint32_t count = rule->to_high - rule->to_low + 1, first = paired(*rule, t.source);
      given.refused = true;
      for (uint32_t n = 0; n < count && given.refused; ++n) {
        given.tuple.source = rule->to_low + (first + n) % count;
        given.refused = taken(given.tuple);
      }
    }
    if (given.refused) release(given.mapping);
    if (given.refused) given.mapping = kNone;
    return given;
  }
  // Whether ports, or identifiers, of this protocol are translated.
  static bool has_mapped_port(uint8_t protocol);
  // Gives the packet another source port of these (any: 1024-65535), or identifier, by which its answers are no other
  // connection's. False: none of those that were tried.
  template <typename Taken>
  static bool step_aside(NatTuple& t, const NatRule::Ports& asked, Taken&& taken) {
    if (!has_mapped_port(t.protocol)) return false;
    constexpr uint32_t kTries = 128;
    const NatRule::Ports ports = asked.any() ? kOther : asked;
    const uint32_t count = uint32_t{ports.high} - ports.low + 1;
    const uint64_t start = mix64(uint64_t{t.source} << 32 | t.destination) + t.source_port;
    for (uint32_t n = 0; n < std::min(kTries, count); ++n) {
      t.source_port = static_cast<uint16_t>(ports.low + (start + n) % count);
      if (t.protocol == kProtocolIcmp) t.destination_port = t.source_port;
      if (!taken(t)) return true;
    }
    return false;
  }
  // A connection with this mapping, which may be kNone, is gone.
  void release(uint32_t mapping);
  size_t mappings() const { return by_outside_.size(); }

 private:
  // A rule with its output by number.
  struct Rule : NatRule {
    int32_t via_port = -1;
  };
  struct Mapping {
    uint32_t inside = 0, outside = 0, pool = 0;
    uint16_t inside_port = 0, outside_port = 0;
    uint8_t protocol = 0;
    bool filter_any = false;
    uint32_t uses = 0;
  };
  struct Key {
    uint64_t end = 0;  // address, port, protocol
    uint32_t pool = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  // The ports of one address and protocol: a bit for each that is given out.
  struct Used {
    std::array<uint64_t, 1024> bits{};
  };

  static uint32_t paired(const NatRule& rule, uint32_t source);
  static Key end_of(uint32_t address, uint16_t port, uint8_t protocol, uint32_t pool);
  template <typename Port>
  const Rule* source_rule(const NatTuple& t, Port&& port) const {
    int32_t leaves = -2;
    for (const Rule& rule : sources_) {
      if (!rule.matches(t)) continue;
      if (rule.via[0] == 0) return &rule;
      if (leaves == -2) leaves = port();
      if (leaves == rule.via_port) return &rule;
    }
    return nullptr;
  }
  // kNone: nothing is free, or no memory is left.
  uint32_t map(const NatRule& rule, const NatTuple& t, NatTuple& translated);
  // The port that is given to it; -1: none is free.
  static int32_t free_port(const Used& used, const NatRule::Ports& asked, const NatTuple& t);

  std::vector<Rule> destinations_, sources_;
  std::vector<Mapping> mappings_;
  std::vector<uint32_t> free_;
  std::unordered_map<Key, uint32_t, KeyHash> by_inside_, by_outside_;
  std::unordered_map<uint32_t, uint32_t> per_host_;  // mappings by source address
  std::unordered_map<Key, std::unique_ptr<Used>, KeyHash> used_;
};

}  // namespace sluice
