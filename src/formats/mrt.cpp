#include "formats/mrt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "net/flow_key.h"
#include "net/text.h"

namespace sluice {
namespace {

constexpr size_t kHeaderBytes = 12;
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
constexpr uint8_t kNextHop = 3;
constexpr uint8_t kMpReachNlri = 14;

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

struct AddressHash {
  size_t operator()(const IpAddress& a) const { return mix64(a.lo ^ mix64(a.hi ^ a.family)); }
};

class MrtParser {
 public:
  MrtParser(ByteStream& stream, Rib& rib, const MrtOptions& options)
      : stream_(stream), rib_(rib), options_(options), findings_(stream.name(), {}) {}

  Result<RouteReport> parse() {
    const Rib::Mark mark = rib_.mark();
    Result<void> read = read_records();
    if (!read) {
      rib_.rollback(mark);
      // A read error ends it; what was found before goes along.
      Error error = std::move(read).error();
      error.diagnostics = findings_.all();
      return error;
    }
    if (findings_.ok() && tables_ == 0) {
      finding(0, fmt::format("no routing table among {} records", record_)).expected =
          "TABLE_DUMP_V2 or TABLE_DUMP records (a RIB dump, not an update file)";
    }
    if (!findings_.ok()) {
      rib_.rollback(mark);
      return findings_.to_error();
    }
    if (other_records_ > 0) warn(fmt::format("{} records of other types were skipped", other_records_));
    if (without_next_hop_ > 0) warn(fmt::format("{} prefixes without a next hop were skipped", without_next_hop_));
    if (without_peer_ > 0) {
      warn(fmt::format("{} prefixes have no route of peer {}", without_peer_, options_.peer.value_or(0)));
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
      auto n = stream_.read(head);
      if (!n) return std::move(n).error();
      if (*n == 0) return {};
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
        auto got = stream_.read(std::span(record).subspan(have));
        if (!got) return std::move(got).error();
        if (have + *got < record.size()) {
          finding(at, fmt::format("truncated: {} of {} bytes", have + *got, length));
          return {};
        }
      }
      one_record(at, type, subtype, record);
      at += kHeaderBytes + length;
    }
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
    for (unsigned i = 0; i < count && reader.ok(); ++i) {
      const uint8_t kind = reader.u8();
      reader.u32();  // BGP id
      reader.take(kind & 1 ? 16 : 4);
      reader.take(kind & 2 ? 4 : 2);
    }
    if (!reader.ok()) {
      finding(at, fmt::format("the peer index table ends before its {} peers", count));
      return;
    }
    peers_ = count;
    if (options_.peer && *options_.peer >= count) {
      finding(at, fmt::format("there is no peer {}", *options_.peer)).expected =
          count == 0 ? "a file with peers" : fmt::format("0 to {}", count - 1);
      full_ = true;
    }
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
    IpPrefix out;
    out.address = address_of({whole, family == 4 ? size_t{4} : size_t{16}});
    out.length = static_cast<uint8_t>(length);
    // RFC 6396 4.3.2: the trailing bits mean nothing.
    if (family == 4) {
      out.address.lo &= high_mask32(length);
    } else {
      out.address.hi &= high_mask64(std::min(length, 64u));
      out.address.lo &= high_mask64(length > 64 ? length - 64 : 0);
    }
    return out;
  }

  void rib_entries(uint64_t at, std::span<const std::byte> record, uint8_t family, bool add_path) {
    if (tables_ == 0) {
      finding(at, "a RIB record before the peer index table");
      full_ = true;
      return;
    }
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
    std::optional<IpAddress> best;
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
      if (peer >= peers_) {
        finding(at, fmt::format("entry {} is from peer {} of {}", i + 1, peer, peers_));
        return;
      }
      if (best || (options_.peer && peer != *options_.peer)) continue;
      peer_seen = true;
      if (!next_hop_of(attributes, family, best)) {
        finding(at, fmt::format("entry {} has damaged path attributes", i + 1));
        return;
      }
    }
    if (!best) {
      ++(options_.peer && !peer_seen ? without_peer_ : without_next_hop_);
      return;
    }
    add(at, *where, *best);
  }

  void table_dump(uint64_t at, std::span<const std::byte> record, uint8_t family) {
    ++tables_;
    if (options_.peer) {
      finding(at, "TABLE_DUMP records have no peer positions").expected = "a TABLE_DUMP_V2 file, or no peer option";
      full_ = true;
      return;
    }
    Reader reader(record);
    reader.u32();  // view, sequence number
    // The whole address comes before the length here.
    const size_t width = family == 4 ? 4 : 16;
    const auto raw = reader.take(width);
    const unsigned length = reader.u8();
    reader.u8();             // status
    reader.u32();            // originated at
    reader.take(width + 2);  // peer address, peer AS
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
    std::optional<IpAddress> best;
    if (!next_hop_of(attributes, family, best)) {
      finding(at, "damaged path attributes");
      return;
    }
    if (!best) {
      ++without_next_hop_;
      return;
    }
    // One record an entry: the first of neighbouring records of one prefix is taken.
    if (last_ && *last_ == *where) return;
    last_ = *where;
    add(at, *where, *best);
  }

  // False: the attributes are malformed. `best` stays empty when there is no next hop among them.
  static bool next_hop_of(std::span<const std::byte> attributes, uint8_t family, std::optional<IpAddress>& best) {
    Reader reader(attributes);
    std::optional<IpAddress> plain, multi;
    while (reader.left() > 0) {
      const uint8_t flags = reader.u8();
      const uint8_t type = reader.u8();
      const size_t length = flags & kExtendedLength ? reader.u16() : reader.u8();
      const auto value = reader.take(length);
      if (!reader.ok()) return false;
      if (type == kNextHop) {
        if (value.size() != 4) return false;
        plain = address_of(value);
      } else if (type == kMpReachNlri) {
        if (value.empty()) return false;
        // The abbreviated form begins with the length of the next hop, the full one with the AFI, whose high byte is 0.
        Reader inner(value);
        if (value[0] == std::byte{0}) inner.take(3);
        const auto hop = inner.take(inner.u8());
        if (!inner.ok()) return false;
        if (hop.size() == 4 || hop.size() == 16) multi = address_of(hop);
        if (hop.size() == 32) {
          multi = address_of(hop.first(16));
          if (multi->hi == 0 && multi->lo == 0) multi = address_of(hop.subspan(16));
        }
      }
    }
    best = family == 4 ? (plain ? plain : multi) : (multi ? multi : plain);
    return true;
  }

  void add(uint64_t at, const IpPrefix& where, const IpAddress& next_hop) {
    auto [it, fresh] = ids_.try_emplace(next_hop, 0);
    if (fresh) it->second = rib_.intern(to_string(next_hop));
    if (it->second == 0) {
      finding(at, fmt::format("more than {} different next hops", Rib::kMaxNextHops));
      full_ = true;
      return;
    }
    rib_.add(where, it->second);
    ++(where.address.family == 4 ? report_.routes4 : report_.routes6);
  }

  ByteStream& stream_;
  Rib& rib_;
  const MrtOptions options_;
  Diagnostics findings_;
  RouteReport report_;
  std::unordered_map<IpAddress, uint32_t, AddressHash> ids_;
  std::optional<IpPrefix> last_;
  uint64_t record_ = 0;  // from 1
  uint64_t tables_ = 0;
  uint64_t other_records_ = 0;
  uint64_t without_next_hop_ = 0;
  uint64_t without_peer_ = 0;
  unsigned peers_ = 0;
  bool full_ = false;  // further findings would all say the same
};

}  // namespace

Result<RouteReport> parse_mrt(ByteStream& stream, Rib& rib, const MrtOptions& options) {
  return MrtParser(stream, rib, options).parse();
}

Result<RouteReport> parse_mrt(std::span<const std::byte> bytes, const std::string& file, Rib& rib,
                              const MrtOptions& options) {
  auto stream = ByteStream::over(bytes, file);
  if (!stream) return std::move(stream).error();
  return parse_mrt(*stream, rib, options);
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
