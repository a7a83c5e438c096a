#include "formats/mrt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "net/flow_key.h"
#include "net/text.h"

namespace sluice {
namespace {

constexpr size_t kHeaderBytes = kMrtStart;
constexpr uint32_t kMaxRecord = uint32_t{64} << 20;

// RFC 6396 section 4 and the IANA registry "MRT Types".
constexpr uint16_t kTableDump = 12;
constexpr uint16_t kTableDumpV2 = 13;
constexpr uint16_t kKnownTypes[] = {11, 12, 13, 16, 17, 32, 33, 48, 49};

// TABLE_DUMP_V2 subtypes.
constexpr uint16_t kPeerIndexTable = 1;
constexpr uint16_t kRibIpv4Unicast = 2;
constexpr uint16_t kRibIpv6Unicast = 4;
constexpr uint16_t kRibIpv4UnicastAddPath = 8;
constexpr uint16_t kRibIpv6UnicastAddPath = 10;

// BGP path attributes.
constexpr uint8_t kExtendedLength = 0x10;
constexpr uint8_t kOriginCode = 1;
constexpr uint8_t kAsPathCode = 2;
constexpr uint8_t kNextHopCode = 3;
constexpr uint8_t kMultiExitDiscCode = 4;
constexpr uint8_t kLocalPrefCode = 5;
constexpr uint8_t kMpReachNlriCode = 14;

// Segments of an AS_PATH (RFC 4271 4.3, RFC 5065 3).
constexpr uint8_t kAsSet = 1;
constexpr uint8_t kAsSequence = 2;
constexpr uint8_t kConfederationSet = 4;

// A checked walk over big-endian bytes: past the end everything reads as 0 and ok() turns false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size(); }
  std::span<const std::byte> take(size_t n) {
    if (n > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const auto out = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return out;
  }
  uint64_t number(size_t n) {
    uint64_t value = 0;
    for (std::byte b : take(n)) value = value << 8 | static_cast<uint64_t>(b);
    return value;
  }
  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

IpAddress address_of(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  if (bytes.size() == 4) return {0, reader.u32(), 4};
  const uint64_t hi = reader.number(8);
  return {hi, reader.number(8), 6};
}

struct Peer {
  uint32_t id = 0;  // BGP identifier; 0 where the dump does not say it
  uint32_t as = 0;
  IpAddress address;
};

// What decides between the paths of a prefix.
struct BgpPath {
  IpAddress next_hop;  // family 0: none
  uint32_t local_pref = 100;
  uint32_t length = 0;
  uint32_t med = 0;
  uint32_t neighbour_as = 0;
  uint32_t order = 0;
  uint32_t peer_number = 0;  // for what is said about it
  uint8_t origin = 2;
  Peer peer;
};

// Steps of RFC 4271 9.1.2.2, in order. Each is an order by itself but for the MED, which only counts within one
// neighbouring AS.
enum class Step : uint8_t { kNone, kLocalPref, kLength, kOrigin, kMed, kIdentifier, kAddress, kOrder };
const char* lost_by(Step step) {
  switch (step) {
    case Step::kLocalPref:
      return "lower local preference";
    case Step::kLength:
      return "longer AS path";
    case Step::kOrigin:
      return "higher origin";
    case Step::kMed:
      return "higher MED through the same AS";
    case Step::kIdentifier:
      return "higher BGP identifier of the peer";
    case Step::kAddress:
      return "higher address of the peer";
    case Step::kOrder:
      return "later in the record";
    case Step::kNone:
      break;
  }
  return "";
}

auto first_steps(const BgpPath& p) {
  return std::tuple(~p.local_pref, p.length, p.origin);
}
auto last_steps(const BgpPath& p) {
  return std::tuple(p.peer.id, p.peer.address.family, p.peer.address.hi, p.peer.address.lo, p.order);
}

// Where `other` falls behind `before`, which was chosen while both were there.
Step decided_by(const BgpPath& before, const BgpPath& other) {
  if (before.local_pref != other.local_pref) return Step::kLocalPref;
  if (before.length != other.length) return Step::kLength;
  if (before.origin != other.origin) return Step::kOrigin;
  if (before.neighbour_as == other.neighbour_as && before.med != other.med) return Step::kMed;
  if (before.peer.id != other.peer.id) return Step::kIdentifier;
  return before.peer.address == other.peer.address ? Step::kOrder : Step::kAddress;
}

// Brings the best of some paths to their front. A path whose MED another one of its neighbouring AS beats does not
// count in the steps behind, so there is no order to sort all of them by; within one AS there is.
void best_to_front(std::span<BgpPath> paths) {
  const auto least = first_steps(*std::min_element(
      paths.begin(), paths.end(), [](const BgpPath& a, const BgpPath& b) { return first_steps(a) < first_steps(b); }));
  const auto end =
      std::partition(paths.begin(), paths.end(), [&](const BgpPath& p) { return first_steps(p) == least; });
  std::sort(paths.begin(), end, [](const BgpPath& a, const BgpPath& b) {
    return std::tuple(a.neighbour_as, a.med, last_steps(a)) < std::tuple(b.neighbour_as, b.med, last_steps(b));
  });
  auto best = paths.begin();
  for (auto it = best + 1; it < end; ++it) {
    const bool first_of_its_as = (it - 1)->neighbour_as != it->neighbour_as;
    if (first_of_its_as && last_steps(*it) < last_steps(*best)) best = it;
  }
  std::iter_swap(paths.begin(), best);
}

struct AddressHash {
  size_t operator()(const IpAddress& a) const { return mix64(a.lo ^ mix64(a.hi ^ a.family)); }
};

class MrtParser {
 public:
  MrtParser(InputFile& file, Rib& rib, const MrtOptions& options, MrtPaths* out)
      : file_(file), rib_(rib), options_(options), out_(out), findings_(file.name(), {}) {}

  Result<RouteReport> parse() {
    const Rib::Mark mark = rib_.mark();
    const size_t routes_before = out_ != nullptr ? out_->routes.size() : 0;
    const size_t notes_before = out_ != nullptr ? out_->notes.size() : 0;
    const auto roll_back = [&] {
      rib_.rollback(mark);
      if (out_ == nullptr) return;
      out_->routes.resize(routes_before);
      out_->notes.resize(notes_before);
    };
    Result<void> read = read_records();
    if (!read) {
      roll_back();
      // A read error ends it; what was found before goes along.
      Error error = std::move(read).error();
      error.diagnostics = findings_.all();
      return error;
    }
    if (findings_.ok() && tables_ == 0) {
      finding(0, fmt::format("no routing table among {} records", record_)).expected =
          "TABLE_DUMP_V2 or TABLE_DUMP records (a RIB dump, not an update file)";
    }
    if (findings_.ok() && old_dump_ && options_.peer && !peer_found_) {
      record_ = 0;
      finding(0, fmt::format("no entry is of peer {}", to_string(*options_.peer)));
    }
    if (!findings_.ok()) {
      roll_back();
      return findings_.to_error();
    }
    if (other_records_ > 0) warn(fmt::format("{} records of other types were skipped", other_records_));
    if (without_next_hop_ > 0) warn(fmt::format("{} prefixes without a next hop were skipped", without_next_hop_));
    if (without_peer_ > 0) {
      warn(fmt::format("{} prefixes have no route of peer {}", without_peer_, to_string(*options_.peer)));
    }
    report_.skipped = other_records_ + without_next_hop_ + without_peer_;
    report_.warnings = findings_.all();
    return std::move(report_);
  }

 private:
  Diagnostic& finding(uint64_t at, std::string message) {
    return findings_.error_at(
        0, 1, record_ == 0 ? std::move(message) : fmt::format("record {} at byte {}: {}", record_, at, message));
  }
  void warn(std::string message) {
    Diagnostic d;
    d.severity = Diagnostic::Severity::kWarning;
    d.message = std::move(message);
    findings_.add(std::move(d));
  }

  Result<void> read_records() {
    std::vector<std::byte> record;
    uint64_t at = 0;
    while (!full_) {
      std::byte head[kHeaderBytes];
      auto n = file_.read(head);
      if (!n) return std::move(n).error();
      if (*n == 0) break;
      ++record_;
      if (*n < kHeaderBytes) {
        finding(at, fmt::format("truncated header: {} of {} bytes", *n, kHeaderBytes));
        return {};
      }
      Reader header(head);
      header.u32();  // time
      const uint16_t type = header.u16();
      const uint16_t subtype = header.u16();
      const uint32_t length = header.u32();
      if (std::find(std::begin(kKnownTypes), std::end(kKnownTypes), type) == std::end(kKnownTypes)) {
        // The length of something that is no MRT cannot be trusted, so there is no next record.
        finding(at, fmt::format("{} is not an MRT type", type)).expected = "an MRT file (RFC 6396)";
        return {};
      }
      if (length > kMaxRecord) {
        finding(at, fmt::format("length of {} bytes", length)).expected = fmt::format("at most {}", kMaxRecord);
        return {};
      }
      // Read in steps, so that a lying length costs no more memory than there are bytes.
      record.clear();
      while (record.size() < length) {
        const size_t have = record.size();
        record.resize(std::min<size_t>(length, have + (size_t{1} << 20)));
        auto got = file_.read(std::span(record).subspan(have));
        if (!got) return std::move(got).error();
        if (have + *got < record.size()) {
          finding(at, fmt::format("truncated: {} of {} bytes", have + *got, length));
          return {};
        }
      }
      one_record(at, type, subtype, record);
      at += kHeaderBytes + length;
    }
    end_of_table_dump(at);
    return {};
  }

  void one_record(uint64_t at, uint16_t type, uint16_t subtype, std::span<const std::byte> record) {
    if (type == kTableDumpV2) {
      switch (subtype) {
        case kPeerIndexTable:
          return peer_index_table(at, record);
        case kRibIpv4Unicast:
          return rib_entries(at, record, 4, false);
        case kRibIpv6Unicast:
          return rib_entries(at, record, 6, false);
        case kRibIpv4UnicastAddPath:
          return rib_entries(at, record, 4, true);
        case kRibIpv6UnicastAddPath:
          return rib_entries(at, record, 6, true);
        default:
          break;
      }
    } else if (type == kTableDump && (subtype == 1 || subtype == 2)) {
      return table_dump(at, record, subtype == 1 ? 4 : 6);
    }
    ++other_records_;
  }

  void peer_index_table(uint64_t at, std::span<const std::byte> record) {
    ++tables_;
    Reader reader(record);
    reader.u32();  // collector
    reader.take(reader.u16());
    const unsigned count = reader.u16();
    peers_.clear();
    note_of_.clear();
    for (unsigned i = 0; i < count && reader.ok(); ++i) {
      const uint8_t kind = reader.u8();
      Peer peer;
      peer.id = reader.u32();
      peer.address = address_of(reader.take(kind & 1 ? 16 : 4));
      peer.as = static_cast<uint32_t>(reader.number(kind & 2 ? 4 : 2));
      peers_.push_back(peer);
    }
    if (!reader.ok()) {
      finding(at, fmt::format("the peer index table ends before its {} peers", count));
      return;
    }
    bool any = !options_.peer;
    for (uint32_t i = 0; i < count && !any; ++i) any = wanted(peers_[i], i);
    if (!any) {
      finding(at, fmt::format("there is no peer {}", to_string(*options_.peer))).expected = peers_known();
      full_ = true;
    }
  }

  bool wanted(const Peer& peer, std::optional<uint32_t> position) const {
    if (!options_.peer) return true;
    if (options_.peer->position) return position == *options_.peer->position;
    return options_.peer->as ? peer.as == *options_.peer->as : peer.address == options_.peer->address;
  }
  // What the peer option could have named.
  std::string peers_known() const {
    if (peers_.empty()) return "a file with peers";
    if (options_.peer->position) return fmt::format("0 to {}", peers_.size() - 1);
    constexpr size_t kShown = 8;
    std::vector<std::string> names;
    for (const Peer& peer : peers_) {
      std::string name = options_.peer->as ? fmt::format("AS{}", peer.as) : to_string(peer.address);
      if (names.size() <= kShown && std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(std::move(name));
    }
    if (names.size() > kShown) names.back() = "...";
    return fmt::format("{}", fmt::join(names, ", "));
  }

  // Reads a prefix of `length` bits in as few bytes as hold it. Nothing when it is wrong, with a finding.
  std::optional<IpPrefix> prefix(uint64_t at, Reader& reader, uint8_t family, unsigned length, size_t bytes) {
    const auto raw = reader.take(bytes);
    if (!reader.ok()) {
      finding(at, "the record ends inside its prefix");
      return std::nullopt;
    }
    std::byte whole[16] = {};
    std::copy(raw.begin(), raw.end(), whole);
    // RFC 6396 4.3.2: the trailing bits mean nothing.
    return prefix_around(address_of({whole, family == 4 ? size_t{4} : size_t{16}}), length);
  }

  void rib_entries(uint64_t at, std::span<const std::byte> record, uint8_t family, bool add_path) {
    if (tables_ == 0) {
      finding(at, "a RIB record before the peer index table");
      full_ = true;
      return;
    }
    end_of_table_dump(at);
    Reader reader(record);
    reader.u32();  // sequence number
    const unsigned length = reader.u8();
    if (length > (family == 4 ? 32u : 128u)) {
      finding(at, fmt::format("prefix length {} of IPv{}", length, family));
      return;
    }
    const auto where = prefix(at, reader, family, length, (length + 7) / 8);
    if (!where) return;
    const unsigned count = reader.u16();
    paths_.clear();
    bool peer_seen = false;
    for (unsigned i = 0; i < count; ++i) {
      const unsigned peer = reader.u16();
      reader.u32();  // originated at
      if (add_path) reader.u32();
      const auto attributes = reader.take(reader.u16());
      if (!reader.ok()) {
        finding(at, fmt::format("the record ends inside entry {} of {}", i + 1, count));
        return;
      }
      if (peer >= peers_.size()) {
        finding(at, fmt::format("entry {} is from peer {} of {}", i + 1, peer, peers_.size()));
        return;
      }
      if (!wanted(peers_[peer], peer)) continue;
      peer_seen = true;
      BgpPath path;
      path.order = i;
      path.peer_number = peer;
      path.peer = peers_[peer];
      if (!read_attributes(attributes, family, 4, path)) {
        finding(at, fmt::format("entry {} has damaged path attributes", i + 1));
        return;
      }
      if (path.next_hop.family != 0) paths_.push_back(path);
    }
    choose(at, *where, peer_seen);
  }

  // One record an entry here; neighbouring records of one prefix are its paths.
  void table_dump(uint64_t at, std::span<const std::byte> record, uint8_t family) {
    ++tables_;
    old_dump_ = true;
    if (options_.peer && options_.peer->position) {
      finding(at, "TABLE_DUMP records have no peer positions").expected =
          "a TABLE_DUMP_V2 file, or the peer's address or AS";
      full_ = true;
      return;
    }
    Reader reader(record);
    reader.u32();  // view, sequence number
    // The whole address comes before the length here.
    const size_t width = family == 4 ? 4 : 16;
    const auto raw = reader.take(width);
    const unsigned length = reader.u8();
    reader.u8();   // status
    reader.u32();  // originated at
    const auto peer_address = reader.take(width);
    const uint32_t peer_as = reader.u16();
    const auto attributes = reader.take(reader.u16());
    if (!reader.ok()) {
      finding(at, "the record ends inside its entry");
      return;
    }
    if (length > width * 8) {
      finding(at, fmt::format("prefix length {} of IPv{}", length, family));
      return;
    }
    Reader again(raw);
    const auto where = prefix(at, again, family, length, width);
    if (!last_ || *last_ != *where) {
      end_of_table_dump(at);
      last_ = where;
    }
    if (entries_ == kMostEntries) {
      finding(at, fmt::format("more than {} entries of one prefix", kMostEntries));
      full_ = true;
      return;
    }
    BgpPath path;
    path.order = entries_++;
    path.peer = {0, peer_as, address_of(peer_address)};
    if (!wanted(path.peer, std::nullopt)) return;
    peer_found_ = peer_of_entry_ = true;
    path.peer_number = number_of(path.peer);
    if (!read_attributes(attributes, family, 2, path)) {
      finding(at, "damaged path attributes");
      return;
    }
    if (path.next_hop.family != 0) paths_.push_back(path);
  }

  // The prefix that TABLE_DUMP records were about is over.
  void end_of_table_dump(uint64_t at) {
    if (!last_) return;
    choose(at, *last_, peer_of_entry_);
    last_.reset();
    paths_.clear();
    entries_ = 0;
    peer_of_entry_ = false;
  }

  // Peers of TABLE_DUMP entries are numbered as they come, behind all positions.
  uint32_t number_of(const Peer& peer) {
    const auto known = old_peers_.find(std::tuple(peer.address.hi, peer.address.lo, peer.as));
    if (known != old_peers_.end()) return known->second;
    if (old_peers_.size() == kMostPeers) return kNoNumber;
    const auto number = static_cast<uint32_t>(kMostPeers + old_peers_.size());
    old_peers_[std::tuple(peer.address.hi, peer.address.lo, peer.as)] = number;
    return number;
  }

  // False: the attributes are malformed. The next hop stays of no family when there is none among them.
  static bool read_attributes(std::span<const std::byte> attributes, uint8_t family, size_t as_bytes, BgpPath& path) {
    Reader reader(attributes);
    IpAddress plain, multi;
    bool as_path = false;
    while (reader.left() > 0) {
      const uint8_t flags = reader.u8();
      const uint8_t type = reader.u8();
      const size_t length = flags & kExtendedLength ? reader.u16() : reader.u8();
      const auto value = reader.take(length);
      if (!reader.ok()) return false;
      if (type == kOriginCode) {
        if (value.size() != 1 || value[0] > std::byte{2}) return false;
        path.origin = static_cast<uint8_t>(value[0]);
      } else if (type == kAsPathCode) {
        if (as_path || !read_as_path(value, as_bytes, path)) return false;
        as_path = true;
      } else if (type == kMultiExitDiscCode || type == kLocalPrefCode) {
        if (value.size() != 4) return false;
        (type == kMultiExitDiscCode ? path.med : path.local_pref) = Reader(value).u32();
      } else if (type == kNextHopCode) {
        if (value.size() != 4) return false;
        plain = address_of(value);
      } else if (type == kMpReachNlriCode) {
        if (value.empty()) return false;
        // The abbreviated form begins with the length of the next hop, the full one with the AFI, whose high byte is 0.
        Reader inner(value);
        if (value[0] == std::byte{0}) inner.take(3);
        const auto hop = inner.take(inner.u8());
        if (!inner.ok()) return false;
        if (hop.size() == 4 || hop.size() == 16) multi = address_of(hop);
        if (hop.size() == 32) {
          multi = address_of(hop.first(16));
          if (multi.hi == 0 && multi.lo == 0) multi = address_of(hop.subspan(16));
        }
      }
    }
    const IpAddress &first = family == 4 ? plain : multi, &second = family == 4 ? multi : plain;
    path.next_hop = first.family != 0 ? first : second;
    return true;
  }

  // The path's length and its first AS, or (an empty path, or one that begins with a set) the peer's.
  static bool read_as_path(std::span<const std::byte> value, size_t as_bytes, BgpPath& path) {
    Reader reader(value);
    bool first = true;
    path.neighbour_as = path.peer.as;
    while (reader.left() > 0) {
      const uint8_t type = reader.u8();
      const unsigned count = reader.u8();
      if (type < kAsSet || type > kConfederationSet) return false;
      Reader ases(reader.take(count * as_bytes));
      if (!reader.ok()) return false;
      if (type > kAsSequence || count == 0) continue;
      if (first && type == kAsSequence) path.neighbour_as = static_cast<uint32_t>(ases.number(as_bytes));
      first = false;
      path.length += type == kAsSet ? 1 : count;
    }
    return true;
  }

  // What is taken of the paths of one prefix.
  void choose(uint64_t at, const IpPrefix& where, bool peer_seen) {
    if (paths_.empty()) {
      ++(options_.peer && !peer_seen ? without_peer_ : without_next_hop_);
      return;
    }
    ++(where.address.family == 4 ? report_.routes4 : report_.routes6);
    best_to_front(paths_);
    const bool all = out_ != nullptr && (!options_.about || covers(where, *options_.about));
    if (!all) {
      if (const uint32_t id = intern(at, paths_[0].next_hop); id != 0) rib_.add(where, id);
      return;
    }
    const size_t most = std::min<size_t>({options_.paths, MrtOptions::kMostPaths, paths_.size()});
    for (uint32_t rank = 0; rank < most; ++rank) {
      if (rank > 0) best_to_front(std::span(paths_).subspan(rank));
      const uint32_t id = intern(at, paths_[rank].next_hop);
      if (id == 0) return;
      const Step step = rank == 0 ? Step::kNone : decided_by(paths_[rank - 1], paths_[rank]);
      out_->routes.push_back({where, id, rank, note(paths_[rank], step)});
    }
  }

  static bool covers(const IpPrefix& where, const IpPrefix& about) {
    return where.address.family == about.address.family && where.length <= about.length &&
           prefix_around(about.address, where.length) == where;
  }

  uint32_t note(const BgpPath& path, Step step) {
    if (path.peer_number == kNoNumber) return 0;
    const NoteKey key{path.peer_number, path.local_pref, path.length, path.med,
                      static_cast<uint32_t>(path.origin) << 8 | static_cast<uint32_t>(step)};
    if (const auto it = note_of_.find(key); it != note_of_.end()) return it->second;
    if (out_->notes.size() >= MrtPaths::kMostNotes) return 0;
    static constexpr const char* kOrigins[] = {"IGP", "EGP", "incomplete"};
    out_->notes.push_back(
        {fmt::format("AS{} at {}, local preference {}, {} AS{}, {}, MED {}", path.peer.as, to_string(path.peer.address),
                     path.local_pref, path.length, path.length == 1 ? "" : "es", kOrigins[path.origin], path.med),
         lost_by(step)});
    return note_of_[key] = static_cast<uint32_t>(out_->notes.size());
  }

  // 0: the ids are used up, which is a finding.
  uint32_t intern(uint64_t at, const IpAddress& next_hop) {
    auto [it, fresh] = ids_.try_emplace(next_hop, 0);
    if (fresh) it->second = rib_.intern(to_string(next_hop));
    if (it->second == 0 && !full_) {
      finding(at, fmt::format("more than {} different next hops", Rib::kMaxNextHops));
      full_ = true;
    }
    return it->second;
  }

  static constexpr uint32_t kMostEntries = 65'535;
  static constexpr uint32_t kMostPeers = 65'536, kNoNumber = ~0u;
  using NoteKey = std::array<uint32_t, 5>;
  struct NoteHash {
    size_t operator()(const NoteKey& key) const {
      uint64_t h = 0;
      for (const uint32_t n : key) h = mix64(h ^ n);
      return h;
    }
  };

  InputFile& file_;
  Rib& rib_;
  const MrtOptions options_;
  MrtPaths* const out_;
  Diagnostics findings_;
  RouteReport report_;
  std::unordered_map<IpAddress, uint32_t, AddressHash> ids_;
  std::vector<Peer> peers_;  // of the last PEER_INDEX_TABLE
  std::map<std::tuple<uint64_t, uint64_t, uint32_t>, uint32_t> old_peers_;
  std::vector<BgpPath> paths_;    // of one prefix
  std::optional<IpPrefix> last_;  // of TABLE_DUMP records
  uint32_t entries_ = 0;          // of that prefix
  bool peer_of_entry_ = false;    // one of them is of the peer that is asked for
  bool old_dump_ = false, peer_found_ = false;
  std::unordered_map<NoteKey, uint32_t, NoteHash> note_of_;
  uint64_t record_ = 0;  // from 1
  uint64_t tables_ = 0;
  uint64_t other_records_ = 0;
  uint64_t without_next_hop_ = 0;
  uint64_t without_peer_ = 0;
  bool full_ = false;  // further findings would all say the same
};

}  // namespace

Result<MrtPeer> parse_mrt_peer(std::string_view text) {
  MrtPeer peer;
  const bool as = text.size() > 2 && (text[0] | 32) == 'a' && (text[1] | 32) == 's';
  if (const auto address = parse_ip(text); address && !as) {
    peer.address = *address;
    return peer;
  }
  const std::string_view digits = as ? text.substr(2) : text;
  uint32_t n = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (code != std::errc() || end != digits.data() + digits.size() || (!as && n > 65535))
    return Error(fmt::format("'{}' is not a peer of a dump", text),
                 "peer=ADDRESS, peer=ASnumber or peer=N, 0 to 65535");
  if (as) {
    peer.as = n;
  } else {
    peer.position = static_cast<uint16_t>(n);
  }
  return peer;
}

std::string to_string(const MrtPeer& peer) {
  if (peer.position) return std::to_string(*peer.position);
  return peer.as ? fmt::format("AS{}", *peer.as) : to_string(peer.address);
}

Result<RouteReport> parse_mrt(InputFile& file, Rib& rib, const MrtOptions& options, MrtPaths* paths) {
  return MrtParser(file, rib, options, paths).parse();
}

Result<RouteReport> parse_mrt(std::span<const std::byte> bytes, const std::string& file, Rib& rib,
                              const MrtOptions& options, MrtPaths* paths) {
  InputFile input = InputFile::over(bytes, file);
  return parse_mrt(input, rib, options, paths);
}

bool looks_like_mrt(std::span<const std::byte> start) {
  if (start.size() < kHeaderBytes) return false;
  Reader reader(start);
  reader.u32();
  const uint16_t type = reader.u16();
  const uint16_t subtype = reader.u16();
  // Text has no zero bytes, and each type and subtype has at least one.
  return std::find(std::begin(kKnownTypes), std::end(kKnownTypes), type) != std::end(kKnownTypes) && subtype < 64;
}

}  // namespace sluice
