#include "ports/pcap/capture_reader.h"

#include <fmt/format.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/prefetch.h"
#include "ports/offload.h"
#include "ports/pcap/pcapng_blocks.h"

namespace sluice {
namespace {

constexpr uint64_t kMostSeconds = 18'446'744'072;  // whose nanoseconds fit 64 bits

uint32_t load32(const std::byte* at, bool swapped) {
  uint32_t value;
  std::memcpy(&value, at, 4);
  return swapped ? __builtin_bswap32(value) : value;
}
uint16_t load16(const std::byte* at, bool swapped) {
  uint16_t value;
  std::memcpy(&value, at, 2);
  return swapped ? __builtin_bswap16(value) : value;
}

// A classic pcap file (draft-ietf-opsawg-pcap), and the older forms that libpcap reads: versions 2.0 to 2.3, which had
// the two lengths the other way round, that of AIX and that of patched systems, whose records have more fields.
struct Classic {
  static constexpr size_t kFileHeader = 24, kRecordHeader = 16, kPatchedRecordHeader = 24;
  enum class Lengths : uint8_t { kCapturedFirst, kWireFirst, kShorterFirst };
  bool swapped = false, nanosecond = false;
  size_t record_header = kRecordHeader;
  Lengths lengths = Lengths::kCapturedFirst;
  uint32_t link = 0;

  static constexpr uint32_t kMicro = 0xa1b2c3d4, kNano = 0xa1b23c4d, kPatched = 0xa1b2cd34;

  // Whether a file that begins so is one.
  static bool begins(std::span<const std::byte> start) {
    if (start.size() < sizeof kMicro) return false;
    const uint32_t magic = load32(start.data(), false), turned = __builtin_bswap32(magic);
    return is(magic) || is(turned);
  }
  // The text says what is wrong; empty: nothing.
  std::string read(std::span<const std::byte> start) {
    if (start.size() < kFileHeader)
      return fmt::format("truncated; its header has {} bytes, and {} are there", kFileHeader, start.size());
    swapped = !is(load32(start.data(), false));
    const uint32_t magic = load32(start.data(), swapped);
    nanosecond = magic == kNano;
    if (magic == kPatched) record_header = kPatchedRecordHeader;
    const unsigned major = load16(start.data() + 4, swapped), minor = load16(start.data() + 6, swapped);
    const bool aix = major == 543 && minor == 0;
    if (!aix && (major != 2 || minor > 4)) return fmt::format("version {}.{} of pcap is not known", major, minor);
    if (aix || minor < 3) lengths = Lengths::kWireFirst;
    if (!aix && minor == 3) lengths = Lengths::kShorterFirst;
    // The upper bits say how many bytes of FCS there are; the type itself has 16 bits.
    link = load32(start.data() + 20, swapped) & 0x03ffffffu;
    return {};
  }
  bool plain() const { return record_header == kRecordHeader && lengths == Lengths::kCapturedFirst; }
  struct RecordLengths {
    uint32_t captured, wire;
  };
  RecordLengths lengths_of(const std::byte* record) const {
    const uint32_t first = load32(record + 8, swapped), second = load32(record + 12, swapped);
    const bool wire_first = lengths == Lengths::kWireFirst || (lengths == Lengths::kShorterFirst && first > second);
    return wire_first ? RecordLengths{second, first} : RecordLengths{first, second};
  }

 private:
  static bool is(uint32_t magic) { return magic == kMicro || magic == kNano || magic == kPatched; }
};

// What libpcap calls it, for who has to look it up. Four types have another number there than in files.
std::string link_text(uint32_t link) {
  const uint32_t dlt = link == 100 ? 11 : link == 102 ? 15 : link == 103 ? 16 : link == 106 ? 19 : link;
  const char* name = pcap_datalink_val_to_name(static_cast<int>(dlt));
  const char* description = pcap_datalink_val_to_description(static_cast<int>(dlt));
  return fmt::format("link type {} ({}{}) is not accepted", link, name != nullptr ? name : "unknown",
                     description != nullptr ? fmt::format(": {}", description) : std::string());
}
constexpr const char* kAcceptedLinks = "Ethernet, Linux cooked (v1, v2), raw IP, BSD null and loop, and PPP are";

}  // namespace

// Files are decoded from the buffer that the input fills: one path serves files, pipes and every compression, nothing
// needs to seek, and what is in the buffer tells whether a packet can be had without waiting.
struct CaptureReader::State {
  // A record and its header fit twice; frames are lent out of it.
  static constexpr size_t kBufferBytes = 2 * (size_t{kMaxCapturedBytes} + 64);
  static constexpr size_t kReadBytes = size_t{1} << 16;

  explicit State(InputFile input) : file(std::move(input)), name(file.name()) {}

  InputFile file;
  std::string name;
  // Not filled before it is read into: of a small capture a few pages are touched. It grows for a longer block.
  size_t room = kBufferBytes;
  std::unique_ptr<std::byte[]> buffer = std::make_unique_for_overwrite<std::byte[]>(room);
  size_t begin = 0, end = 0;  // of what was read and not used yet
  bool input_ended = false;
  bool used = false;               // anything was read
  std::optional<Classic> classic;  // else it is pcapng
  PcapngBlocks blocks;
  LinkType link = LinkType::kEthernet;        // of the capture
  LinkType frame_link = LinkType::kEthernet;  // of the last frame
  bool brings = false;                        // see bring()
  bool fills_lengths = false;
  size_t record_bytes = 128;    // of those that were brought last, on average
  std::vector<uint8_t> framed;  // a frame of another link type as Ethernet
  std::string stream_error;
  bool refused = false;  // by the system: nothing is wrong with the capture
  uint64_t packets = 0;
  bool ended = false;
  bool failed = false;
  std::string reason;
  Error failure;

  template <bool kSwapped>
  size_t take(std::span<const std::byte>& from, std::span<CapturedFrame> frames);
  size_t take_whole(std::span<const std::byte>& from, std::span<CapturedFrame> frames) {
    return classic->swapped ? take<true>(from, frames) : take<false>(from, frames);
  }

  // Frames lie in memory of this reader's, or of who has them brought.
  static void fill_length_of(const CapturedFrame& frame) {
    fill_length(const_cast<uint8_t*>(frame.data), frame.captured, frame.wire_bytes);
  }
  std::span<const std::byte> held() const { return {buffer.get() + begin, end - begin}; }

  // Reads once more behind what is held, waiting for it. False: the end, or an error, which is kept.
  bool more() {
    if (input_ended) return false;
    // A little at a time, to the front, so that it is read and used in a near cache.
    if (begin != 0 && (end - begin <= kReadBytes / 8 || room - end < kMaxCapturedBytes)) {
      std::memmove(buffer.get(), buffer.get() + begin, end - begin);
      end -= std::exchange(begin, 0);
    }
    const size_t got = read_to({buffer.get() + end, std::min(kReadBytes, room - end)});
    end += got;
    return got != 0;
  }
  // 0: the end, or an error, which is kept.
  size_t read_to(std::span<std::byte> to) {
    const auto got = file.read_some(to);
    if (!got) {
      stream_error = got.error().message;
      refused = got.error().system;
      // The name stands in front of what is said here.
      if (stream_error.starts_with(name + ": ")) stream_error.erase(0, name.size() + 2);
    }
    input_ended = !got || *got == 0;
    used |= !input_ended;
    return input_ended ? 0 : *got;
  }
  // Whether `bytes` are held; waits for them.
  bool fill(size_t bytes) {
    if (bytes > room && !grow(bytes)) return false;
    while (end - begin < bytes) {
      if (!more()) return false;
    }
    return true;
  }

  bool grow(size_t bytes) {
    std::unique_ptr<std::byte[]> larger(new (std::nothrow) std::byte[bytes]);
    if (larger == nullptr) {
      refused = true;
      stream_error = "no memory";
      return false;
    }
    std::memcpy(larger.get(), buffer.get() + begin, end - begin);
    end -= std::exchange(begin, 0);
    buffer = std::move(larger);
    room = bytes;
    return true;
  }

  // The next block of a pcapng file, read over; `packet` and `data` are written where it is a packet's. nullopt: the
  // end, or an error that was kept.
  std::optional<PcapngBlocks::Kind> next_block(PcapngBlocks::Packet& packet, const std::byte*& data);
  bool skip(size_t bytes);
  std::optional<uint32_t> find_link();

  // `said`: unless the layer below knows better.
  void fail(std::string said, std::string hint = {}) {
    failed = true;
    reason = stream_error.empty() ? std::move(said) : stream_error;
    failure = Error(fmt::format("{}: packet {}: {}", name, packets + 1, reason), std::move(hint));
    failure.system = refused;
    if (failure.hint.empty() && packets > 0)
      failure.hint = fmt::format("the {} packet{} before it can be read", packets, packets == 1 ? "" : "s");
  }
};

CaptureReader::CaptureReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
CaptureReader::CaptureReader(CaptureReader&&) noexcept = default;
CaptureReader& CaptureReader::operator=(CaptureReader&&) noexcept = default;
CaptureReader::~CaptureReader() = default;

uint64_t CaptureReader::packets() const {
  return state_->packets;
}
const std::string& CaptureReader::name() const {
  return state_->name;
}

Result<CaptureReader> CaptureReader::open(const std::string& path) {
  auto file = InputFile::open(path);
  if (!file) return std::move(file).error();
  return open(std::move(*file));
}

Result<CaptureReader> CaptureReader::open(InputFile file) {
  auto state = std::make_unique<State>(std::move(file));
  State& s = *state;
  s.file.decompress_ahead();
  (void)s.fill(Classic::kFileHeader);
  if (!s.used && s.stream_error.empty()) {
    return Error(fmt::format("{} is empty", s.name),
                 "a capture has at least a file header; write one with: sluice gen traffic --out FILE");
  }
  std::string wrong = s.stream_error;
  std::optional<uint32_t> other_link;
  if (!wrong.empty()) {
  } else if (Classic::begins(s.held())) {
    wrong = s.classic.emplace().read(s.held());
    if (wrong.empty()) {
      s.begin += Classic::kFileHeader;
      const auto known = link_type_of(s.classic->link);
      if (known) s.link = s.frame_link = *known;
      if (!known) other_link = s.classic->link;
    }
  } else if (PcapngBlocks::begins(s.held())) {
    other_link = s.find_link();
    if (s.failed) wrong = s.reason;
  } else {
    wrong = "unknown file format";
  }
  if (!wrong.empty()) {
    Error error(fmt::format("{}: {}", s.name, wrong));
    if (!s.refused) {
      error = Error(fmt::format("{} is not a capture that can be read: {}", s.name, wrong),
                    "pcap and pcapng are accepted, plain or compressed with gzip, bzip2, xz or zstd");
    }
    error.system = s.refused;
    return error;
  }
  if (other_link) return Error(fmt::format("{}: {}", s.name, link_text(*other_link)), kAcceptedLinks);
  s.brings = s.classic && s.classic->plain() && s.link == LinkType::kEthernet && s.file.regular() &&
             std::string_view(s.file.compression()) == "plain";
  return CaptureReader(std::move(state));
}

std::optional<PcapngBlocks::Kind> CaptureReader::State::next_block(PcapngBlocks::Packet& packet,
                                                                   const std::byte*& data) {
  if (!fill(PcapngBlocks::kHead)) {
    if (stream_error.empty() && begin == end) {
      ended = true;
    } else {
      fail(fmt::format("truncated; {} bytes are too few for a block", end - begin));
    }
    return std::nullopt;
  }
  const PcapngBlocks::Head head = blocks.head(held());
  constexpr size_t kEnd = 4;  // bytes
  if (head.bytes == 0) {
    fail("a block with a length that cannot be right");
  } else if (head.kind == PcapngBlocks::Kind::kOther) {
    if (!skip(head.bytes - kEnd) || !fill(kEnd)) {
      fail(fmt::format("truncated; it ends in a block of {} bytes", head.bytes));
    } else if (!head.ends(held().data())) {
      fail("a block with another length at its end than at its beginning");
    }
    begin += failed ? 0 : kEnd;
  } else if (head.bytes > PcapngBlocks::kMostBytes) {
    fail(fmt::format("a block of {} bytes exceeds the limit of {}", head.bytes, PcapngBlocks::kMostBytes));
  } else if (!fill(head.bytes)) {
    fail(fmt::format("truncated; a block of {} bytes, and {} are there", head.bytes, end - begin));
  } else if (const auto block = held().first(head.bytes); !head.ends(block.last(kEnd).data())) {
    fail("a block with another length at its end than at its beginning");
  } else if (std::string wrong = blocks.read(head, block, packet); !wrong.empty()) {
    fail(std::move(wrong));
  } else {
    data = block.data() + packet.data;
    begin += head.bytes;
  }
  if (failed) return std::nullopt;
  return head.kind;
}

bool CaptureReader::State::skip(size_t bytes) {
  while (bytes != 0) {
    if (begin == end && !more()) return false;
    const size_t some = std::min(bytes, end - begin);
    begin += some;
    bytes -= some;
  }
  return true;
}

// What the packets of a pcapng file have, which the outputs are opened with: what its first interface says, if that is
// Ethernet. Else a file is looked through, as an interface may be described anywhere; of a pipe the interfaces before
// its first packet count. Returns the type if there is but one, and it is not accepted.
std::optional<uint32_t> CaptureReader::State::find_link() {
  PcapngBlocks::Packet packet;
  const std::byte* data = nullptr;
  while (blocks.interfaces() == 0) {
    if (!next_block(packet, data)) return std::nullopt;
  }
  std::set<LinkType> known;
  std::optional<uint32_t> other;
  const auto add = [&](uint32_t number) {
    if (const auto type = link_type_of(number)) {
      known.insert(*type);
    } else {
      other = number;
    }
  };
  if (blocks.link(0) == static_cast<uint32_t>(LinkType::kEthernet)) return std::nullopt;
  if (file.regular()) {
    State all(file.again());
    all.file.decompress_ahead();
    while (known.size() < 2 && !InputFile::was_stopped()) {
      const auto kind = all.next_block(packet, data);
      if (!kind) break;
      if (*kind == PcapngBlocks::Kind::kPacket) add(packet.link);
    }
  } else {
    add(blocks.link(0));
    while (fill(PcapngBlocks::kHead) && blocks.head(held()).kind != PcapngBlocks::Kind::kPacket) {
      const auto kind = next_block(packet, data);
      if (!kind) break;
      if (*kind == PcapngBlocks::Kind::kInterface) add(blocks.link(blocks.interfaces() - 1));
    }
  }
  if (known.empty() && !other) link = link_type_of(blocks.link(0)).value_or(LinkType::kEthernet);  // there is no packet
  if (known.size() == 1) link = *known.begin();
  return known.empty() ? other : std::nullopt;
}

LinkType CaptureReader::link() const {
  return state_->link;
}
void CaptureReader::fill_lengths(bool fill) {
  state_->fills_lengths = fill;
}
LinkType CaptureReader::frame_link() const {
  return state_->frame_link;
}

bool CaptureReader::ready() {
  State& s = *state_;
  if (s.failed || s.ended || s.brings) return true;
  for (;;) {
    const std::span<const std::byte> held = s.held();
    if (s.classic) {
      const size_t header = s.classic->record_header;
      if (held.size() >= header) {
        const size_t captured = s.classic->lengths_of(held.data()).captured;
        if (captured > kMaxCapturedBytes || held.size() >= header + captured) return true;
      }
    } else if (s.blocks.has_packet(held)) {
      return true;
    }
    if (s.input_ended) return true;
    // Blocks without a packet that fill all there is: only reading on makes room.
    if (s.end - s.begin == s.room) return true;
    if (!s.file.ready()) return false;
    (void)s.more();
  }
}

void CaptureReader::wait(uint64_t limit_ns) const {
  state_->file.wait(limit_ns);
}

// The next record of a classic file. False: the end.
Result<bool> CaptureReader::next_classic(CapturedFrame& frame) {
  State& s = *state_;
  const Classic& c = *s.classic;
  if (!s.fill(c.record_header)) {
    if (s.stream_error.empty() && s.begin == s.end) {
      s.ended = true;
      return false;
    }
    s.fail(fmt::format("truncated; the header of a packet has {} bytes, and {} are there", c.record_header,
                       s.end - s.begin));
    return Error(s.failure);
  }
  const std::byte* at = s.buffer.get() + s.begin;
  const uint32_t seconds = load32(at, c.swapped), fraction = load32(at + 4, c.swapped);
  const auto [captured, wire] = c.lengths_of(at);
  if (captured > kMaxCapturedBytes) {
    s.fail(fmt::format("captured length {} exceeds the limit of {}", captured, kMaxCapturedBytes));
    return Error(s.failure);
  }
  if (!s.fill(c.record_header + captured)) {
    s.fail(fmt::format("truncated; {} bytes were captured, and {} are there", captured,
                       s.end - s.begin - c.record_header));
    return Error(s.failure);
  }
  frame.data = reinterpret_cast<const uint8_t*>(s.buffer.get() + s.begin + c.record_header);
  s.begin += c.record_header + captured;
  frame.captured = captured;
  frame.wire_bytes = wire_length(wire, captured);
  frame.timestamp_ns = uint64_t{seconds} * 1'000'000'000u + uint64_t{fraction} * (c.nanosecond ? 1 : 1000);
  return true;
}

// The next packet of a pcapng file. False: the end.
Result<bool> CaptureReader::next_pcapng(CapturedFrame& frame) {
  State& s = *state_;
  PcapngBlocks::Packet packet;
  const std::byte* data = nullptr;
  std::optional<PcapngBlocks::Kind> kind;
  do {
    kind = s.next_block(packet, data);
    if (!kind && s.failed) return Error(s.failure);
    if (!kind) return false;
  } while (*kind != PcapngBlocks::Kind::kPacket);
  const auto known = link_type_of(packet.link);
  if (!known) {
    s.fail(link_text(packet.link),
           fmt::format("{}; take the others: tshark -Y 'frame.interface_id == 0' -w one.pcapng", kAcceptedLinks));
  } else if (*known != s.link && s.link != LinkType::kEthernet) {
    s.fail(fmt::format("link type {}, and the interfaces that a pipe had before its first packet have {}",
                       to_string(*known), to_string(s.link)),
           "write it to a file, which is looked through before outputs are opened");
  } else if (packet.captured > kMaxCapturedBytes) {
    s.fail(fmt::format("captured length {} exceeds the limit of {}", packet.captured, kMaxCapturedBytes));
  } else if (packet.seconds < 0 || packet.seconds > kMostSeconds) {
    s.fail(fmt::format("a timestamp of {} seconds is not of the years 1970 to 2554", packet.seconds));
  }
  if (s.failed) return Error(s.failure);
  s.frame_link = *known;
  frame.captured = packet.captured;
  frame.wire_bytes = wire_length(packet.wire, packet.captured);
  frame.timestamp_ns = static_cast<uint64_t>(packet.seconds) * 1'000'000'000u + packet.nanoseconds;
  frame.data = reinterpret_cast<const uint8_t*>(data);
  return true;
}

Result<bool> CaptureReader::next(CapturedFrame& frame) {
  State& s = *state_;
  if (s.failed) return Error(s.failure);
  if (s.ended) return false;
  auto got = s.classic ? next_classic(frame) : next_pcapng(frame);
  if (!got || !*got) return got;
  if (s.frame_link != LinkType::kEthernet) {
    if (s.framed.empty()) s.framed.resize(kMaxCapturedBytes + LinkHeader::kBytes);
    const auto own = LinkHeader::length(s.frame_link, frame.data, frame.captured);
    // Too few bytes for its own header are too few for Ethernet's: the parser drops what is short.
    const uint32_t skip = own.value_or(frame.captured);
    const uint32_t head = own ? LinkHeader::kBytes : 0;
    if (own) LinkHeader::to_ethernet(s.frame_link, frame.data, frame.captured, s.framed.data());
    std::memcpy(s.framed.data() + head, frame.data + skip, frame.captured - skip);
    frame.data = s.framed.data();
    frame.wire_bytes = frame.wire_bytes - skip + head;
    frame.captured = frame.captured - skip + head;
    frame.captured = std::min(frame.captured, kMaxCapturedBytes);
  }
  if (s.fills_lengths) s.fill_length_of(frame);
  ++s.packets;
  return true;
}

constexpr size_t kAhead = 1024;  // bytes

// The whole records in front of `from`, as frames of Ethernet; they stay where they are.
template <bool kSwapped>
size_t CaptureReader::State::take(std::span<const std::byte>& from, std::span<CapturedFrame> frames) {
  const uint64_t unit_ns = classic->nanosecond ? 1 : 1000;
  const std::byte* at = from.data();
  size_t left = from.size(), n = 0;
  for (; n < frames.size() && left >= Classic::kRecordHeader; ++n) {
    // Where a record lies is read in the one before: each would wait for its line.
    prefetch_read(at + kAhead);
    const uint32_t captured = load32(at + 8, kSwapped);
    // Damage is told by who reads one.
    if (captured > kMaxCapturedBytes || left - Classic::kRecordHeader < captured) break;
    CapturedFrame& frame = frames[n];
    frame.captured = captured;
    frame.wire_bytes = wire_length(load32(at + 12, kSwapped), frame.captured);
    frame.timestamp_ns = uint64_t{load32(at, kSwapped)} * 1'000'000'000u + load32(at + 4, kSwapped) * unit_ns;
    frame.data = reinterpret_cast<const uint8_t*>(at + Classic::kRecordHeader);
    if (fills_lengths) fill_length_of(frame);
    at += Classic::kRecordHeader + captured;
    left -= Classic::kRecordHeader + captured;
  }
  from = {at, left};
  packets += n;
  return n;
}

size_t CaptureReader::bring(std::span<std::byte> room, std::span<CapturedFrame> frames) {
  State& s = *state_;
  if (!s.brings || s.failed || s.ended || frames.empty()) return 0;
  const std::span<const std::byte> held = s.held();
  // What is left goes back to the buffer.
  room = room.first(std::min(room.size(), State::kBufferBytes));
  if (room.empty() || held.size() > room.size()) return 0;
  std::memcpy(room.data(), held.data(), held.size());
  size_t have = held.size();
  const size_t want = std::min(room.size(), frames.size() * s.record_bytes);
  if (want > have && !s.input_ended) have += s.read_to(room.subspan(have, want - have));
  std::span<const std::byte> left = room.first(have);
  const size_t n = s.take_whole(left, frames);
  if (n != 0) s.record_bytes = (have - left.size()) / n;
  std::memcpy(s.buffer.get(), left.data(), left.size());
  s.begin = 0;
  s.end = left.size();
  return n;
}

Result<size_t> CaptureReader::next(std::span<CapturedFrame> frames) {
  State& s = *state_;
  if (frames.empty()) return size_t{0};
  // Frames of other link types are lent from one place, one at a time.
  const bool many = s.classic && s.classic->plain() && s.link == LinkType::kEthernet && !s.failed;
  const auto take = [&](std::span<CapturedFrame> some) {
    std::span<const std::byte> held = s.held();
    const size_t n = s.take_whole(held, some);
    s.begin = s.end - held.size();
    return n;
  };
  if (const size_t n = many ? take(frames) : 0; n != 0) return n;
  auto one = next(frames[0]);
  if (!one) return std::move(one).error();
  if (!*one) return size_t{0};
  return 1 + (many ? take(frames.subspan(1)) : 0);
}

}  // namespace sluice
