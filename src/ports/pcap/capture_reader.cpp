#include "ports/pcap/capture_reader.h"

#include <fmt/format.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/prefetch.h"

namespace sluice {
namespace {

constexpr int64_t kMostSeconds = 18'446'744'072;  // whose nanoseconds fit 64 bits

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

// The common form of a classic pcap file (draft-ietf-opsawg-pcap), version 2.4. Others are libpcap's.
struct Classic {
  static constexpr size_t kFileHeader = 24, kRecordHeader = 16;
  bool swapped = false, nanosecond = false;
  uint32_t snaplen = 0, link = 0;

  static std::optional<Classic> of(std::span<const std::byte> start) {
    if (start.size() < kFileHeader) return std::nullopt;
    constexpr uint32_t kMicro = 0xa1b2c3d4, kNano = 0xa1b23c4d;
    const uint32_t magic = load32(start.data(), false), turned = __builtin_bswap32(magic);
    Classic c;
    c.swapped = turned == kMicro || turned == kNano;
    c.nanosecond = magic == kNano || turned == kNano;
    if (!c.swapped && magic != kMicro && magic != kNano) return std::nullopt;
    if (load16(start.data() + 4, c.swapped) != 2 || load16(start.data() + 6, c.swapped) != 4) return std::nullopt;
    c.snaplen = load32(start.data() + 16, c.swapped);
    if (c.snaplen == 0 || c.snaplen > INT32_MAX) c.snaplen = INT32_MAX;  // as libpcap takes it
    // The upper bits say how many bytes of FCS there are; the type itself has 16 bits.
    c.link = load32(start.data() + 20, c.swapped);
    if ((c.link & 0x03ff0000u) != 0) return std::nullopt;
    c.link &= 0xffffu;
    return c;
  }
};

// The blocks of a pcapng file (draft-ietf-opsawg-pcapng section 3), as far as it takes to see whether a packet is
// there.
struct Blocks {
  static constexpr uint32_t kSection = 0x0a0d0d0a, kOldPacket = 2, kSimple = 3, kEnhanced = 6;
  static constexpr uint32_t kOrder = 0x1a2b3c4d, kMostBytes = 1u << 24;

  // Whether the file at `start` has the other byte order; nothing: it is not pcapng.
  static std::optional<bool> swapped(std::span<const std::byte> start) {
    if (start.size() < 12 || load32(start.data(), false) != kSection) return std::nullopt;
    return load32(start.data() + 8, false) != kOrder;
  }
  // True: a whole packet block is in `bytes`, which begin with a block; false: more has to come. What is damaged counts
  // as there: the reader says so.
  static bool packet(std::span<const std::byte> bytes, bool swapped) {
    while (bytes.size() >= 12) {
      const uint32_t type = load32(bytes.data(), swapped);
      if (type == kSection) swapped = load32(bytes.data() + 8, false) != kOrder;
      const uint32_t length = load32(bytes.data() + 4, swapped);
      if (length < 12 || length % 4 != 0 || length > kMostBytes) return true;
      if (length > bytes.size()) return false;
      if (type == kEnhanced || type == kSimple || type == kOldPacket) return true;
      bytes = bytes.subspan(length);
    }
    return false;
  }
};

}  // namespace

// Classic files are read here, from the buffer that the input fills; libpcap reads the others, from a FILE without a
// buffer of its own that takes from the same place. So one path serves files, pipes and every compression, nothing
// needs to seek, and what is in the buffer tells whether a packet can be had without waiting. The state never moves:
// libpcap and the FILE hold its address.
struct CaptureReader::State {
  // A record and its header fit twice; frames are lent out of it.
  static constexpr size_t kBufferBytes = 2 * (size_t{kMaxCapturedBytes} + 64);
  static constexpr size_t kReadBytes = size_t{1} << 16;

  explicit State(InputFile input) : file(std::move(input)), name(file.name()) {}

  InputFile file;
  std::string name;
  // Not filled before it is read into: of a small capture a few pages are touched.
  std::unique_ptr<std::byte[]> buffer = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
  size_t begin = 0, end = 0;  // of what was read and not used yet
  bool input_ended = false;
  bool used = false;  // anything was read
  std::optional<Classic> classic;
  std::optional<bool> swapped;  // pcapng: its byte order is the other one
  LinkType link = LinkType::kEthernet;
  bool brings = false;          // see bring()
  size_t record_bytes = 128;    // of those that were brought last, on average
  std::vector<uint8_t> framed;  // a frame of another link type as Ethernet
  pcap_t* pcap = nullptr;       // owns the FILE
  std::string stream_error;
  bool refused = false;  // by the system: nothing is wrong with the capture
  uint64_t packets = 0;
  bool ended = false;
  bool failed = false;
  Error failure;

  ~State() {
    if (pcap != nullptr) pcap_close(pcap);
  }

  template <bool kSwapped>
  size_t take(std::span<const std::byte>& from, std::span<CapturedFrame> frames);
  size_t take_whole(std::span<const std::byte>& from, std::span<CapturedFrame> frames) {
    return classic->swapped ? take<true>(from, frames) : take<false>(from, frames);
  }

  std::span<const std::byte> held() const { return {buffer.get() + begin, end - begin}; }

  // Reads once more behind what is held, waiting for it. False: the end, or an error, which is kept.
  bool more() {
    if (input_ended) return false;
    // A little at a time, to the front, so that it is read and used in a near cache.
    if (begin != 0 && (end - begin <= kReadBytes / 8 || kBufferBytes - end < kMaxCapturedBytes)) {
      std::memmove(buffer.get(), buffer.get() + begin, end - begin);
      end -= std::exchange(begin, 0);
    }
    const size_t got = read_to({buffer.get() + end, std::min(kReadBytes, kBufferBytes - end)});
    end += got;
    return got != 0;
  }
  // 0: the end, or an error, which is kept.
  size_t read_to(std::span<std::byte> room) {
    const auto got = file.read_some(room);
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
    while (end - begin < bytes) {
      if (!more()) return false;
    }
    return true;
  }

  static ssize_t read(void* cookie, char* out, size_t bytes) {
    auto* self = static_cast<State*>(cookie);
    // Nothing may be thrown through the C library and libpcap, which call this.
    bool any = false;
    try {
      any = self->fill(1);
    } catch (const std::bad_alloc&) {
      self->refused = true;
      self->stream_error = "no memory";  // in the string itself
    }
    if (!any) {
      if (self->stream_error.empty()) return 0;
      errno = EIO;
      return -1;
    }
    const size_t n = std::min(bytes, self->end - self->begin);
    std::memcpy(out, self->buffer.get() + self->begin, n);
    self->begin += n;
    return static_cast<ssize_t>(n);
  }
  // What libpcap said, unless the layer below knows better.
  std::string reason(const char* pcap_text) const {
    return stream_error.empty() ? std::string(pcap_text) : stream_error;
  }

  Error& fail(const char* pcap_text) {
    failed = true;
    const std::string why = reason(pcap_text);
    failure = Error(fmt::format("{}: packet {}: {}", name, packets + 1, why));
    failure.system = refused;
    if (why.find("snapshot length") != std::string::npos || why.find("different from the type") != std::string::npos) {
      failure.hint =
          "interfaces of one capture must agree; split it by interface (tshark -Y 'frame.interface_id == 0' -w "
          "one.pcap)";
    } else if (packets > 0) {
      failure.hint = fmt::format("the {} packet{} before it can be read", packets, packets == 1 ? "" : "s");
    }
    return failure;
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
  s.classic = Classic::of(s.held());
  s.swapped = Blocks::swapped(s.held());
  uint32_t link = 0;
  if (s.classic) {
    s.begin += Classic::kFileHeader;
    link = s.classic->link;
  } else {
    const cookie_io_functions_t functions{&State::read, nullptr, nullptr, nullptr};
    FILE* stream = fopencookie(state.get(), "rb", functions);
    if (stream == nullptr) return system_error(fmt::format("cannot read {}", s.name), errno);
    setvbuf(stream, nullptr, _IONBF, 0);
    char text[PCAP_ERRBUF_SIZE] = {};
    errno = 0;
    s.pcap = pcap_fopen_offline_with_tstamp_precision(stream, PCAP_TSTAMP_PRECISION_NANO, text);
    if (s.pcap == nullptr) {
      const bool no_memory = errno == ENOMEM;
      std::fclose(stream);
      if (s.refused || no_memory) {
        Error error(fmt::format("{}: {}", s.name, s.reason("no memory")));
        error.system = true;
        return error;
      }
      if (!s.used && s.stream_error.empty()) {
        return Error(fmt::format("{} is empty", s.name),
                     "a capture has at least a file header; write one with: sluice gen traffic --out FILE");
      }
      return Error(fmt::format("{} is not a capture that can be read: {}", s.name, s.reason(text)),
                   "pcap and pcapng are accepted, plain or compressed with gzip, bzip2, xz or zstd");
    }
    // libpcap has numbers of its own for two types.
    const int dlt = pcap_datalink(s.pcap);
    link = dlt == DLT_RAW ? static_cast<uint32_t>(LinkType::kRaw) : static_cast<uint32_t>(dlt);
  }
  const auto known = link_type_of(link);
  if (!known) {
    const char* link_name = pcap_datalink_val_to_name(static_cast<int>(link));
    const char* description = pcap_datalink_val_to_description(static_cast<int>(link));
    return Error(fmt::format("{}: link type {} ({}{}) is not accepted", s.name, link,
                             link_name != nullptr ? link_name : "unknown",
                             description != nullptr ? fmt::format(": {}", description) : std::string()),
                 "Ethernet, Linux cooked (v1, v2), raw IP, BSD null and loop, and PPP are");
  }
  s.link = *known;
  if (s.link != LinkType::kEthernet) s.framed.resize(kMaxCapturedBytes + LinkHeader::kBytes);
  s.brings = s.classic && s.link == LinkType::kEthernet && s.file.regular() &&
             std::string_view(s.file.compression()) == "plain";
  return CaptureReader(std::move(state));
}

LinkType CaptureReader::link() const {
  return state_->link;
}

bool CaptureReader::ready() {
  State& s = *state_;
  if (s.failed || s.ended || s.brings) return true;
  for (;;) {
    const std::span<const std::byte> held = s.held();
    if (s.classic) {
      if (held.size() >= Classic::kRecordHeader) {
        const size_t captured = load32(held.data() + 8, s.classic->swapped);
        if (captured > kMaxCapturedBytes || held.size() >= Classic::kRecordHeader + captured) return true;
      }
    } else if (!s.swapped || Blocks::packet(held, *s.swapped)) {
      return true;
    }
    if (s.input_ended) return true;
    // Blocks without a packet that fill all there is: only reading on makes room.
    if (s.end - s.begin == State::kBufferBytes) return true;
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
  if (!s.fill(Classic::kRecordHeader)) {
    if (!s.stream_error.empty()) return Error(s.fail(""));
    if (s.begin == s.end) {
      s.ended = true;
      return false;
    }
    return Error(s.fail(fmt::format("truncated dump file; tried to read {} header bytes, only got {}",
                                    Classic::kRecordHeader, s.end - s.begin)
                            .c_str()));
  }
  const std::byte* at = s.buffer.get() + s.begin;
  const uint32_t seconds = load32(at, c.swapped), fraction = load32(at + 4, c.swapped);
  const uint32_t captured = load32(at + 8, c.swapped), wire = load32(at + 12, c.swapped);
  if (captured > kMaxCapturedBytes) {
    return Error(
        s.fail(fmt::format("captured length {} exceeds the limit of {}", captured, kMaxCapturedBytes).c_str()));
  }
  if (!s.fill(Classic::kRecordHeader + captured)) {
    return Error(s.fail(fmt::format("truncated dump file; tried to read {} captured bytes, only got {}", captured,
                                    s.end - s.begin - Classic::kRecordHeader)
                            .c_str()));
  }
  frame.data = reinterpret_cast<const uint8_t*>(s.buffer.get() + s.begin + Classic::kRecordHeader);
  s.begin += Classic::kRecordHeader + captured;
  // A file whose frames are longer than it says: as libpcap, the rest of them is not looked at.
  frame.captured = std::min(captured, c.snaplen);
  frame.wire_bytes = wire_length(wire, frame.captured);
  frame.timestamp_ns = uint64_t{seconds} * 1'000'000'000u + uint64_t{fraction} * (c.nanosecond ? 1 : 1000);
  return true;
}

// The next packet that libpcap gives. False: the end.
Result<bool> CaptureReader::next_other(CapturedFrame& frame) {
  State& s = *state_;
  pcap_pkthdr* header = nullptr;
  const u_char* data = nullptr;
  const int status = pcap_next_ex(s.pcap, &header, &data);
  if (status == PCAP_ERROR_BREAK) {
    // A compressed stream that ends early exactly between two packets looks like the end to libpcap.
    if (!s.stream_error.empty()) return Error(s.fail(""));
    s.ended = true;
    return false;
  }
  if (status != 1) return Error(s.fail(pcap_geterr(s.pcap)));
  if (header->caplen > kMaxCapturedBytes) {
    return Error(
        s.fail(fmt::format("captured length {} exceeds the limit of {}", header->caplen, kMaxCapturedBytes).c_str()));
  }
  frame.captured = header->caplen;
  frame.wire_bytes = wire_length(header->len, header->caplen);
  // Seconds of a pcap file are 32 bits without a sign (draft-ietf-opsawg-pcap section 5); libpcap takes them for
  // signed, so that what is later than 2038 comes as negative. In a pcapng file, whose major version is 1, they are
  // what they say, and may be anything.
  int64_t seconds = header->ts.tv_sec;
  if (pcap_major_version(s.pcap) != 1) seconds = static_cast<uint32_t>(seconds);
  if (seconds < 0 || seconds > kMostSeconds) {
    return Error(s.fail(fmt::format("a timestamp of {} seconds is not of the years 1970 to 2554", seconds).c_str()));
  }
  frame.timestamp_ns = static_cast<uint64_t>(seconds) * 1'000'000'000u + static_cast<uint64_t>(header->ts.tv_usec);
  frame.data = data;
  return true;
}

Result<bool> CaptureReader::next(CapturedFrame& frame) {
  State& s = *state_;
  if (s.failed) return Error(s.failure);
  if (s.ended) return false;
  auto got = s.classic ? next_classic(frame) : next_other(frame);
  if (!got || !*got) return got;
  if (s.link != LinkType::kEthernet) {
    const auto own = LinkHeader::length(s.link, frame.data, frame.captured);
    // Too few bytes for its own header are too few for Ethernet's: the parser drops what is short.
    const uint32_t skip = own.value_or(frame.captured);
    const uint32_t head = own ? LinkHeader::kBytes : 0;
    if (own) LinkHeader::to_ethernet(s.link, frame.data, frame.captured, s.framed.data());
    std::memcpy(s.framed.data() + head, frame.data + skip, frame.captured - skip);
    frame.data = s.framed.data();
    frame.wire_bytes = frame.wire_bytes - skip + head;
    frame.captured = frame.captured - skip + head;
    frame.captured = std::min(frame.captured, kMaxCapturedBytes);
  }
  ++s.packets;
  return true;
}

constexpr size_t kAhead = 1024;  // bytes

// The whole records in front of `from`, as frames of Ethernet; they stay where they are.
template <bool kSwapped>
size_t CaptureReader::State::take(std::span<const std::byte>& from, std::span<CapturedFrame> frames) {
  const uint32_t snaplen = classic->snaplen;
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
    frame.captured = std::min(captured, snaplen);  // see next_classic
    frame.wire_bytes = wire_length(load32(at + 12, kSwapped), frame.captured);
    frame.timestamp_ns = uint64_t{load32(at, kSwapped)} * 1'000'000'000u + load32(at + 4, kSwapped) * unit_ns;
    frame.data = reinterpret_cast<const uint8_t*>(at + Classic::kRecordHeader);
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
  // Frames of other link types, and those of libpcap, are lent from one place, one at a time.
  const bool many = s.classic && s.link == LinkType::kEthernet && !s.failed;
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
