// host only
// Routes as the readers of route files find them, each of its format -> Rib. The rules that all formats share are here:
// what a next hop is called, the family of `default`, which of several routes for a prefix wins, what is left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "formats/route_text.h"
#include "tables/lpm/rib.h"

namespace sluice {

// Why a route is left out. All but the first are told, once for a file.
enum class RouteSkip : uint8_t { kNo, kUnused, kTunnel, kSource, kTos, kTable };

struct RouteHop {
  std::string_view via;  // an address; empty: the device is the next hop
  std::string_view dev;
  std::string_view weight;  // empty: 1
  bool inet6 = false;       // written `via inet6`: of another family than its route, which is an IPv4 route
};

// One route. Views are of the text or live until it is taken.
struct RouteRecord {
  std::string_view where;   // its prefix in the text: findings point here
  std::string_view prefix;  // what it says: ADDRESS/LENGTH, ADDRESS or `default`
  std::string_view name;    // the next hop by its name; else it is made of `hops`
  std::vector<RouteHop> hops;
  std::optional<uint32_t> metric;
  uint8_t family = 0;     // of `default`, where something but the next hops says it
  bool first = false;     // of routes without a metric the first wins, as in a kernel; else the last
  bool assigned = false;  // `name` is not from the text
  RouteSkip skip = RouteSkip::kNo;

  // As after construction; keeps memory.
  void clear() {
    auto kept = std::move(hops);
    kept.clear();
    *this = {};
    hops = std::move(kept);
  }
};

class RouteSink {
 public:
  RouteSink(std::string_view text, const std::string& file, Rib& rib, std::vector<RankedRoute>* ranked,
            std::vector<RouteLine>* lines = nullptr);

  std::string_view text() const { return text_; }
  Rib& rib() { return rib_; }
  // No more routes are wanted: every further one would give the same error.
  bool full() const { return full_; }
  // An error at a part of the text.
  Diagnostic& error(std::string_view word, std::string message, std::string expected = {});
  void add(Diagnostic finding) { findings_.add(std::move(finding)); }
  // A warning that is told once for a file, however many routes it is about.
  void warning(std::string_view word, std::string message, std::string suggestion);

  // Routes of the plain form, which are right and have no metric.
  void add4(uint32_t address, uint8_t length, uint32_t next_hop) {
    rib_.add4(address, length, next_hop);
    ++report_.routes4;
  }
  void add6(uint64_t hi, uint64_t lo, uint8_t length, uint32_t next_hop) {
    rib_.add6(hi, lo, length, next_hop);
    ++report_.routes6;
  }
  void take(const RouteRecord& route);
  // `lines`, when given, holds from now on that these bytes of the text are about the prefix.
  void note_line(const IpPrefix& prefix, size_t begin, size_t end) {
    if (lines_ != nullptr) lines_->push_back({prefix, begin, end});
  }
  // The prefix of the route that was taken last; family 0: none.
  const IpPrefix& taken() const { return taken_; }
  void skip(RouteSkip why, std::string_view where);
  // The text has a route for what this says: where lines are not records, their reader tells the families.
  void saw(std::string_view prefix);

  // Errors: those that were found; the Rib is as it was.
  Result<RouteReport> finish();

 private:
  using PrefixKey = std::tuple<uint8_t, uint64_t, uint64_t, uint8_t>;
  static PrefixKey key_of(const IpPrefix& p) { return {p.address.family, p.address.hi, p.address.lo, p.length}; }
  bool inside(std::string_view word) const {
    return word.data() >= text_.data() && word.data() + word.size() <= text_.data() + text_.size();
  }
  size_t offset(std::string_view word) const { return static_cast<size_t>(word.data() - text_.data()); }
  uint8_t family_of_default(const RouteRecord& route);
  void look_for_families();
  void bad_prefix(const RouteRecord& route);
  bool rank(const IpPrefix& prefix, std::string_view next_hop, uint32_t metric, bool gateway);
  void fold_ranked();

  std::string_view text_;
  std::string file_;
  Rib& rib_;
  Rib::Mark mark_;
  Diagnostics findings_;
  RouteReport report_;
  IpPrefix taken_;
  std::string together_;  // the name of a group, or of an address and its interface
  std::vector<RankedRoute> ranked_, best_;
  std::vector<bool> gateways_;                               // of ranked_
  std::map<std::pair<PrefixKey, uint32_t>, size_t> places_;  // in ranked_; with metric 0: there is one
  std::vector<RankedRoute>* out_;
  std::vector<RouteLine>* lines_;
  struct Skipped {
    size_t count = 0;
    std::string_view first;
  };
  std::array<Skipped, 6> skipped_;  // by RouteSkip
  std::vector<Diagnostic> notes_;   // before all other warnings
  bool looked_ = false, has4_ = false, has6_ = false;
  bool full_ = false;
};

// The readers of the formats other than lines of text (route_text.h): each gives the sink all routes of its text.
void read_ip_json(RouteSink& sink);      // ip -j route
void read_frr_json(RouteSink& sink);     // FRR: show ip route json
void read_frr_routes(RouteSink& sink);   // FRR: show ip route
void read_bird_routes(RouteSink& sink);  // BIRD 2: show route
void read_net_tools(RouteSink& sink);    // route -n

// Whether a line is one of FRR's `show ip route`: of a route, or the head of a VRF.
bool looks_like_frr_route(std::string_view line);
bool is_vrf_line(std::string_view line);

// The name that `ip route` has for a route's type, which is the word itself or its number (1 to 10); empty: it is none.
std::string_view route_type(std::string_view word);
bool is_dropping_type(std::string_view type);  // the next hop has this name
bool is_own_type(std::string_view type);       // of the host itself: the next hop is called local
bool is_other_type(std::string_view type);     // no packet goes by it here
bool is_used_route_table(std::string_view table);
// Whether `from WORD` holds for every source.
bool is_any_source(std::string_view word);
// `word`, at most 64 bytes of it, fit to be shown.
std::string shown_word(std::string_view word);

}  // namespace sluice
