// host only
#include "flows/nat.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <new>

namespace sluice {

size_t Nat::KeyHash::operator()(const Key& key) const {
  return static_cast<size_t>(mix64(key.end ^ mix64(key.pool)));
}

bool Nat::has_mapped_port(uint8_t protocol) {
  return protocol == kProtocolTcp || protocol == kProtocolUdp || protocol == kProtocolIcmp;
}

uint32_t Nat::paired(const NatRule& rule, uint32_t source) {
  return static_cast<uint32_t>(mix64(source) % (uint64_t{rule.to_high} - rule.to_low + 1));
}

Nat::Key Nat::end_of(uint32_t address, uint16_t port, uint8_t protocol, uint32_t pool) {
  return {uint64_t{address} << 32 | uint64_t{port} << 8 | protocol, pool};
}

Result<void> Nat::use(std::span<const NatRule> rules, std::span<const NatOutput> outputs) {
  std::vector<Rule> destinations, sources;
  for (const NatRule& rule : rules) {
    Rule r{rule};
    if (rule.via[0] != 0) {
      const std::string_view name = rule.via;
      uint16_t number = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
      const bool numbered = error == std::errc() && end == name.data() + name.size();
      const auto at = std::ranges::find_if(
          outputs, [&](const NatOutput& o) { return numbered ? o.port == number : o.name == name; });
      if (at == outputs.end() && !(numbered && rule.verb != NatRule::Verb::kMasquerade))
        return Error(fmt::format("'{}': there is no output '{}'", to_string(rule), name),
                     "the number of a port, or an interface that packets leave by");
      r.via_port = at == outputs.end() ? number : at->port;
      if (rule.verb == NatRule::Verb::kMasquerade) {
        if (at->address == 0)
          return Error(fmt::format("'{}': the address of output '{}' is not known", to_string(rule), name),
                       fmt::format("snat via {} to ADDRESS, one that is no interface's: packets to those go to the "
                                   "kernel",
                                   name));
        r.to_low = r.to_high = at->address;
      }
    }
    if (rule.verb == NatRule::Verb::kDestination || rule.verb == NatRule::Verb::kBoth) destinations.push_back(r);
    if (rule.verb != NatRule::Verb::kDestination) sources.push_back(r);
  }
  destinations_ = std::move(destinations);
  sources_ = std::move(sources);
  return {};
}

bool Nat::may_be_for(const NatTuple& t, bool has_ports) const {
  const auto matches = [&](const Rule& rule) { return has_ports ? rule.matches(t) : rule.matches_addresses(t); };
  for (const Rule& rule : destinations_) {
    if (rule.verb == NatRule::Verb::kBoth) {
      if (t.destination >= rule.to_low && t.destination <= rule.to_high) return true;
    } else if (matches(rule)) {
      if (!rule.itself) return true;
      if (has_ports) break;
    }
  }
  for (const Rule& rule : sources_) {
    if (!matches(rule)) continue;
    if (!rule.itself) return true;
    if (has_ports && rule.via[0] == 0) break;
  }
  return false;
}

NatTuple Nat::destination(const NatTuple& t) const {
  NatTuple to = t;
  for (const Rule& rule : destinations_) {
    if (rule.verb == NatRule::Verb::kBoth) {
      if (t.destination < rule.to_low || t.destination > rule.to_high) continue;
      to.destination = rule.source.address | (t.destination & ~rule.source.mask);
      return to;
    }
    if (!rule.matches(t)) continue;
    if (rule.itself) return to;
    to.destination = rule.to_low + paired(rule, t.source);
    if (rule.to_ports.any()) return to;
    const uint32_t ports = uint32_t{rule.to_ports.high} - rule.to_ports.low + 1;
    to.destination_port = static_cast<uint16_t>(rule.to_ports.low + mix64(t.source ^ t.source_port) % ports);
    return to;
  }
  const auto at = by_outside_.find(end_of(t.destination, t.destination_port, t.protocol, 0));
  if (at == by_outside_.end() || !mappings_[at->second].filter_any) return to;
  to.destination = mappings_[at->second].inside;
  to.destination_port = mappings_[at->second].inside_port;
  // Of a query both are the identifier.
  if (t.protocol == kProtocolIcmp) to.source_port = to.destination_port;
  return to;
}

int32_t Nat::free_port(const Used& used, const NatRule::Ports& asked, const NatTuple& t) {
  const auto is_free = [&](uint32_t port) { return (used.bits[port / 64] >> (port % 64) & 1) == 0; };
  if (asked.has(t.source_port) && is_free(t.source_port)) return t.source_port;
  const NatRule::Ports ports = asked.any() ? kOther : asked;
  const uint32_t count = uint32_t{ports.high} - ports.low + 1;
  const auto first = static_cast<uint32_t>(
      ports.low + mix64(uint64_t{t.source} << 32 | uint64_t{t.source_port} << 8 | t.protocol) % count);
  // From there to the end, then from the beginning; 64 ports at a time.
  const auto search = [&](uint32_t from, uint32_t to) -> int32_t {
    for (uint32_t port = from; port <= to; port = (port / 64 + 1) * 64) {
      const uint64_t open = ~used.bits[port / 64] & ~uint64_t{0} << (port % 64);
      if (open == 0) continue;
      const uint32_t found = port / 64 * 64 + static_cast<uint32_t>(std::countr_zero(open));
      return found <= to ? static_cast<int32_t>(found) : -1;
    }
    return -1;
  };
  const int32_t behind = search(first, ports.high);
  return behind >= 0 || first == ports.low ? behind : search(ports.low, first - 1);
}

uint32_t Nat::map(const NatRule& rule, const NatTuple& t, NatTuple& translated) {
  const uint32_t outside = rule.to_low + paired(rule, t.source);
  const Key inside = end_of(t.source, t.source_port, t.protocol, rule.to_low);
  const auto give = [&](uint32_t i) {
    Mapping& m = mappings_[i];
    ++m.uses;
    translated.source = m.outside;
    translated.source_port = m.outside_port;
    if (t.protocol == kProtocolIcmp) translated.destination_port = m.outside_port;
    return i;
  };
  if (const auto at = by_inside_.find(inside); at != by_inside_.end()) return give(at->second);
  if (rule.per_host != 0) {
    const auto its = per_host_.find(t.source);
    if (its != per_host_.end() && its->second >= rule.per_host) return kNone;
  }
  uint16_t given = 0;
  try {
    auto& used = used_[end_of(outside, 0, t.protocol, 0)];
    if (used == nullptr) used = std::make_unique<Used>();
    const int32_t port = free_port(*used, t.protocol == kProtocolIcmp ? NatRule::Ports() : rule.to_ports, t);
    if (port < 0) return kNone;
    given = static_cast<uint16_t>(port);
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(mappings_.size()));
      mappings_.emplace_back();
    }
    const uint32_t i = free_.back();
    by_inside_.emplace(inside, i);
    by_outside_.emplace(end_of(outside, given, t.protocol, 0), i);
    ++per_host_[t.source];
    free_.pop_back();
    used->bits[given / 64] |= uint64_t{1} << (given % 64);
    mappings_[i] = {.inside = t.source,
                    .outside = outside,
                    .pool = rule.to_low,
                    .inside_port = t.source_port,
                    .outside_port = given,
                    .protocol = t.protocol,
                    .filter_any = rule.filter_any != 0};
    return give(i);
  } catch (const std::bad_alloc&) {
    by_inside_.erase(inside);
    if (given != 0) by_outside_.erase(end_of(outside, given, t.protocol, 0));
    return kNone;
  }
}

void Nat::release(uint32_t mapping) {
  if (mapping == kNone) return;
  Mapping& m = mappings_[mapping];
  if (--m.uses != 0) return;
  by_inside_.erase(end_of(m.inside, m.inside_port, m.protocol, m.pool));
  by_outside_.erase(end_of(m.outside, m.outside_port, m.protocol, 0));
  if (const auto host = per_host_.find(m.inside); host != per_host_.end() && --host->second == 0) per_host_.erase(host);
  const auto used = used_.find(end_of(m.outside, 0, m.protocol, 0));
  used->second->bits[m.outside_port / 64] &= ~(uint64_t{1} << (m.outside_port % 64));
  free_.push_back(mapping);
}

}  // namespace sluice
