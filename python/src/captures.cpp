// host only
// Captures as columns, and the boundaries of packets in them.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "module.h"
#include "net/bytes.h"
#include "net/parse.h"
#include "ports/pcap/capture_reader.h"

namespace sluice::python {
namespace {

// Where the values of a batch go: nullptr is not wanted.
struct Columns {
  uint64_t* number;
  int64_t* timestamp;
  uint32_t *length, *captured;
  uint8_t *family, *proto, *flags, *dscp, *ttl, *bits, *status;
  uint32_t *src, *dst;
  uint8_t *src6, *dst6;
  uint16_t *sport, *dport, *icmp, *vlan;
  // Of these rows the columns have a value: one bit a row, as Arrow has them.
  uint8_t *ip, *ip4, *ip6, *ports, *tagged;
  int32_t* offsets;  // of frames, rows + 1
};

class Capture {
 public:
  // A path, or bytes under a name.
  explicit Capture(CaptureReader reader) : reader_(std::move(reader)) {}
  static std::unique_ptr<Capture> open(const std::string& path) {
    const nb::gil_scoped_release release;
    auto reader = CaptureReader::open(path);
    if (!reader) throw Failure(reader.error());
    return std::make_unique<Capture>(std::move(*reader));
  }
  static std::unique_ptr<Capture> read(const nb::bytes& data, const std::string& name) {
    std::string copy(data.c_str(), data.size());
    const nb::gil_scoped_release release;
    auto reader = CaptureReader::open(InputFile::over(std::move(copy), name));
    if (!reader) throw Failure(reader.error());
    return std::make_unique<Capture>(std::move(*reader));
  }

  // Fills at most `rows` rows of the arrays; returns how many, and the frames' bytes where `offsets` is among them. A
  // batch of frames ends before `most` bytes.
  nb::tuple next(const nb::dict& arrays, size_t rows, size_t most) {
    Columns c{};
    auto want = [&]<typename T>(const char* name, T*& to, size_t size) {
      if (arrays.contains(name)) to = output<T>(name, arrays[name], size);
    };
    const size_t bitmap = (rows + 7) / 8;
    want("number", c.number, rows);
    want("timestamp", c.timestamp, rows);
    want("length", c.length, rows);
    want("captured", c.captured, rows);
    want("family", c.family, rows);
    want("src", c.src, rows);
    want("dst", c.dst, rows);
    want("src6", c.src6, rows * 16);
    want("dst6", c.dst6, rows * 16);
    want("sport", c.sport, rows);
    want("dport", c.dport, rows);
    want("proto", c.proto, rows);
    want("flags", c.flags, rows);
    want("icmp", c.icmp, rows);
    want("dscp", c.dscp, rows);
    want("ttl", c.ttl, rows);
    want("vlan", c.vlan, rows);
    want("bits", c.bits, rows);
    want("status", c.status, rows);
    want("valid_ip", c.ip, bitmap);
    want("valid_ip4", c.ip4, bitmap);
    want("valid_ip6", c.ip6, bitmap);
    want("valid_ports", c.ports, bitmap);
    want("valid_tagged", c.tagged, bitmap);
    want("offsets", c.offsets, rows + 1);
    std::vector<uint8_t> bytes;
    size_t n = 0;
    {
      const nb::gil_scoped_release release;
      n = fill(c, rows, most, bytes);
    }
    nb::object frames = nb::none();
    if (c.offsets != nullptr) {
      auto* const held = new std::vector<uint8_t>(std::move(bytes));
      const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
      frames = nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(held->data(), {held->size()}, owner));
    }
    return nb::make_tuple(n, frames);
  }
  std::string name() const { return reader_.name(); }
  std::string link() const { return to_string(reader_.link()); }

 private:
  size_t fill(const Columns& c, size_t rows, size_t most, std::vector<uint8_t>& bytes) {
    for (uint8_t* map : {c.ip, c.ip4, c.ip6, c.ports, c.tagged}) {
      if (map != nullptr) std::fill_n(map, (rows + 7) / 8, uint8_t{0});
    }
    if (c.offsets != nullptr) c.offsets[0] = 0;
    std::array<CapturedFrame, 64> some;
    size_t at = 0;
    while (at < rows && bytes.size() < most) {
      auto got = reader_.next(std::span(some).first(std::min(some.size(), rows - at)));
      // Frames before the damage are this batch, and the error comes with the next.
      if (!got && at != 0) break;
      if (!got) throw Failure(got.error());
      if (*got == 0) break;
      for (size_t k = 0; k < *got; ++k, ++at) put(c, at, some[k], bytes);
    }
    return at;
  }

  void put(const Columns& c, size_t i, const CapturedFrame& frame, std::vector<uint8_t>& bytes) {
    ++number_;
    Headers h;
    const ParseStatus status = parse_ethernet(frame.data, frame.captured, frame.wire_bytes, h);
    const bool ok = status == ParseStatus::kOk;
    const FlowKey key = ok ? h.key : FlowKey{};
    const auto bit = static_cast<uint8_t>(1u << (i % 8));
    auto set = [&](uint8_t* map, bool on) {
      if (map != nullptr && on) map[i / 8] |= bit;
    };
    auto store = [&]<typename T>(T* column, auto value) {
      if (column != nullptr) column[i] = static_cast<T>(value);
    };
    store(c.number, number_);
    store(c.timestamp, frame.timestamp_ns);
    store(c.length, frame.wire_bytes);
    store(c.captured, frame.captured);
    store(c.family, key.family);
    store(c.src, key.family == 4 ? key.src_lo : 0);
    store(c.dst, key.family == 4 ? key.dst_lo : 0);
    auto store6 = [&](uint8_t* column, uint64_t hi, uint64_t lo) {
      if (column == nullptr) return;
      const bool six = key.family == 6;
      sluice::store_be64(column + i * 16, six ? hi : 0);
      sluice::store_be64(column + i * 16 + 8, six ? lo : 0);
    };
    store6(c.src6, key.src_hi, key.src_lo);
    store6(c.dst6, key.dst_hi, key.dst_lo);
    store(c.sport, key.src_port);
    store(c.dport, key.dst_port);
    store(c.proto, key.protocol);
    store(c.flags, key.flags >> 8);
    store(c.icmp, key.icmp);
    store(c.dscp, key.dscp);
    store(c.ttl, ok ? h.ttl : 0);
    store(c.vlan, h.vlan_count != 0 ? h.vlan_tci & 0xfff : 0);
    store(c.bits, key.bits);
    store(c.status, status);
    set(c.ip, ok);
    set(c.ip4, key.family == 4);
    set(c.ip6, key.family == 6);
    set(c.ports, (key.bits & FlowKey::kHasPorts) != 0);
    set(c.tagged, h.vlan_count != 0);
    if (c.offsets != nullptr) {
      bytes.insert(bytes.end(), frame.data, frame.data + frame.captured);
      c.offsets[i + 1] = static_cast<int32_t>(bytes.size());
    }
  }
  CaptureReader reader_;
  uint64_t number_ = 0;
};

// A capture in memory from which bytes may be cut out after its header, `prefix` bytes: what a part of it begins with.
// Where the record or block after the one at `at` begins; nothing where there can be none at `at`.
class Records {
 public:
  static constexpr size_t kPcapHeader = 24;

  // Neither a classic pcap file nor a pcapng file whose first packet is here: prefix() is 0. `prefix`: what it is,
  // where that is known and other bytes of the file follow; 0: it is not.
  Records(const uint8_t* data, size_t size, size_t prefix) : data_(data), size_(size) {
    if (size < kPcapHeader) return;
    const uint32_t magic = load_le32(data);
    if (magic == kSection) {
      read_pcapng_header(prefix);
      return;
    }
    swapped_ = magic == 0xd4c3b2a1 || magic == 0x4d3cb2a1;
    if (!swapped_ && magic != 0xa1b2c3d4 && magic != 0xa1b23c4d) return;
    fraction_limit_ = magic == 0xa1b23c4d || magic == 0x4d3cb2a1 ? 1'000'000'000 : 1'000'000;
    prefix_ = kPcapHeader;
  }
  size_t prefix() const { return prefix_; }
  std::optional<size_t> after(size_t at) const { return interfaces_ != 0 ? after_block(at) : after_record(at); }

  // The first place at or after `at` from which `chain` of them follow each other, or all to the end of the file; those
  // of a classic file with stamps within a day of each other.
  std::optional<size_t> resynchronise(size_t at, unsigned chain) const {
    const size_t step = interfaces_ != 0 ? 4 : 1;  // blocks are aligned
    if (interfaces_ != 0) at = (at + 3) / 4 * 4;
    for (; at < size_; at += step) {
      size_t next = at;
      unsigned k = 0;
      while (k < chain && next != size_) {
        const auto then = after(next);
        if (!then || !near(at, next)) break;
        next = *then;
        ++k;
      }
      if (k == chain || (next == size_ && k != 0)) return at;
    }
    return {};
  }

 private:
  static constexpr uint32_t kRecord = 16, kSection = 0x0a0d0d0a, kInterface = 1, kObsoletePacket = 2, kSimplePacket = 3,
                            kPacket = 6, kPacketOverhead = 32;

  std::optional<size_t> after_record(size_t at) const {
    if (at > size_ || size_ - at < kRecord) return {};
    const uint32_t captured = word(at + 8);
    const uint32_t wire = word(at + 12);
    if (word(at + 4) >= fraction_limit_ || captured > kMaxCapturedBytes || captured > wire || wire > (1u << 24))
      return {};
    if (captured > size_ - at - kRecord) return {};
    return at + kRecord + captured;
  }
  // draft-ietf-opsawg-pcapng section 3.1: type, length, body, length. Where an interface or a section is described what
  // follows is not that of the header alone: no part reaches beyond.
  std::optional<size_t> after_block(size_t at) const {
    const auto length = block(at);
    if (!length) return {};
    const uint32_t type = word(at);
    if (type == kSection || type == kInterface) return {};
    if (type == kPacket) {
      if (*length < kPacketOverhead || word(at + 8) >= interfaces_) return {};
      const uint32_t captured = word(at + 20);
      if (captured > kMaxCapturedBytes || (captured + 3) / 4 * 4 > *length - kPacketOverhead) return {};
    }
    return at + *length;
  }
  std::optional<uint32_t> block(size_t at) const {
    constexpr uint32_t kMost = 16u << 20;
    if (at > size_ || size_ - at < 12) return {};
    const uint32_t length = word(at + 4);
    if (length < 12 || length % 4 != 0 || length > kMost || length > size_ - at || word(at + length - 4) != length)
      return {};
    return length;
  }
  // All blocks before the first packet, in which interfaces are described.
  void read_pcapng_header(size_t known) {
    swapped_ = load_le32(data_ + 8) == 0x4d3c2b1a;
    uint32_t found = 0;
    for (size_t at = 0; at < size_;) {
      const auto length = block(at);
      const uint32_t type = length ? word(at) : 0;
      if (known != 0 ? at >= known : type == kObsoletePacket || type == kSimplePacket || type == kPacket) {
        prefix_ = found != 0 ? at : 0;
        interfaces_ = found;
        return;
      }
      if (!length || (at != 0 && type == kSection)) return;
      if (type == kInterface) ++found;
      at += *length;
    }
  }
  bool near(size_t first, size_t at) const {
    if (interfaces_ != 0) return true;
    const int64_t apart = int64_t{word(at)} - int64_t{word(first)};
    return apart <= 86'400 && apart >= -86'400;
  }
  uint32_t word(size_t at) const {
    const uint32_t w = load_le32(data_ + at);
    return swapped_ ? __builtin_bswap32(w) : w;
  }
  const uint8_t* data_;
  size_t size_;
  size_t prefix_ = 0;
  uint32_t interfaces_ = 0;  // of a pcapng file
  uint32_t fraction_limit_ = 0;
  bool swapped_ = false;
};

std::pair<const uint8_t*, size_t> bytes_of(const Column& data) {
  if (data.size() != 0 && !data.contiguous()) wrong_value("data is not contiguous");
  return {data.row(0), data.size()};
}

// How many bytes a part begins with; 0: it cannot be cut.
size_t capture_prefix(nb::handle data) {
  const Column column("data", data, 8, 0);
  const auto [bytes, size] = bytes_of(column);
  return Records(bytes, size, 0).prefix();
}

// `data` begins with the `prefix` bytes of a capture that capture_prefix() says. Where a record or block begins, at or
// after `at`, as far as a chain of them shows; -1: nowhere.
int64_t capture_resynchronise(nb::handle data, size_t prefix, size_t at, unsigned chain) {
  const Column column("data", data, 8, 0);
  const auto [bytes, size] = bytes_of(column);
  const nb::gil_scoped_release release;
  const Records records(bytes, size, prefix);
  if (records.prefix() == 0) wrong_value("data is no pcap or pcapng file");
  const auto found = records.resynchronise(std::max(at, records.prefix()), chain);
  return found ? static_cast<int64_t>(*found) : -1;
}

// Follows the records or blocks from `at` to the first that begins at `end` or later; where that is, and how many were
// before. It stops, too, where none can be.
std::pair<size_t, uint64_t> capture_walk(nb::handle data, size_t prefix, size_t at, size_t end) {
  const Column column("data", data, 8, 0);
  const auto [bytes, size] = bytes_of(column);
  const nb::gil_scoped_release release;
  const Records records(bytes, size, prefix);
  if (records.prefix() == 0) wrong_value("data is no pcap or pcapng file");
  uint64_t found = 0;
  while (at < end) {
    const auto next = records.after(at);
    if (!next) break;
    at = *next;
    ++found;
  }
  return {at, found};
}

const char* status_name(unsigned status) {
  return to_string(static_cast<ParseStatus>(status));
}

}  // namespace

void bind_captures(nb::module_& m) {
  nb::class_<Capture>(m, "Capture")
      .def_static("open", &Capture::open)
      .def_static("read", &Capture::read)
      .def("next", &Capture::next)
      .def("name", &Capture::name)
      .def("link", &Capture::link);
  m.def("capture_prefix", &capture_prefix);
  m.def("capture_resynchronise", &capture_resynchronise);
  m.def("capture_walk", [](nb::handle data, size_t prefix, size_t at, size_t end) {
    const auto [where, found] = capture_walk(data, prefix, at, end);
    return nb::make_tuple(where, found);
  });
  m.def("status_name", &status_name);
  m.attr("statuses") = kParseStatusCount;
}

}  // namespace sluice::python
