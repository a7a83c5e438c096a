#include "ports/pcap/capture_reader.h"

#include <fmt/format.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr size_t kStreamBuffer = 128 * 1024;
constexpr int64_t kMostSeconds = 18'446'744'072;  // whose nanoseconds fit 64 bits

}  // namespace

// libpcap reads a FILE; the FILE reads the input. So one path serves files, pipes and every compression, and nothing
// needs to seek. The state never moves: libpcap and the FILE hold its address.
struct CaptureReader::State {
  explicit State(InputFile input) : file(std::move(input)), name(file.name()) {}

  InputFile file;
  std::string name;
  std::vector<char> buffer;  // of the FILE
  pcap_t* pcap = nullptr;    // owns the FILE
  std::string stream_error;
  bool refused = false;  // by the system: nothing is wrong with the capture
  uint64_t bytes_read = 0;
  uint64_t packets = 0;
  CapturedFrame pending;
  bool has_pending = false;  // read_burst met a frame that it could not place
  bool ended = false;
  bool failed = false;
  Error failure;

  ~State() {
    if (pcap != nullptr) pcap_close(pcap);
  }

  static ssize_t read(void* cookie, char* out, size_t bytes) {
    auto* self = static_cast<State*>(cookie);
    // Nothing may be thrown through the C library and libpcap, which call this.
    Result<size_t> got = size_t{0};
    try {
      got = self->file.read_some({reinterpret_cast<std::byte*>(out), bytes});
    } catch (const std::bad_alloc&) {
      self->refused = true;
      self->stream_error = "no memory";  // in the string itself
      errno = EIO;
      return -1;
    }
    if (!got) {
      self->refused = got.error().system;
      self->stream_error = got.error().message;
      // The name stands in front of what is said here.
      if (self->stream_error.starts_with(self->name + ": ")) self->stream_error.erase(0, self->name.size() + 2);
      errno = EIO;
      return -1;
    }
    self->bytes_read += *got;
    return static_cast<ssize_t>(*got);
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
  const std::string& name = state->name;
  const cookie_io_functions_t functions{&State::read, nullptr, nullptr, nullptr};
  // glibc takes the size of a buffer that it is given only.
  state->buffer.resize(kStreamBuffer);
  FILE* stream = fopencookie(state.get(), "rb", functions);
  if (stream == nullptr) return system_error(fmt::format("cannot read {}", name), errno);
  setvbuf(stream, state->buffer.data(), _IOFBF, state->buffer.size());

  char text[PCAP_ERRBUF_SIZE] = {};
  errno = 0;
  state->pcap = pcap_fopen_offline_with_tstamp_precision(stream, PCAP_TSTAMP_PRECISION_NANO, text);
  if (state->pcap == nullptr) {
    const bool no_memory = errno == ENOMEM;
    std::fclose(stream);
    if (state->refused || no_memory) {
      Error error(fmt::format("{}: {}", name, state->reason("no memory")));
      error.system = true;
      return error;
    }
    if (state->bytes_read == 0 && state->stream_error.empty()) {
      return Error(fmt::format("{} is empty", name),
                   "a capture has at least a file header; write one with: sluice gen traffic --out FILE");
    }
    return Error(fmt::format("{} is not a capture that can be read: {}", name, state->reason(text)),
                 "pcap and pcapng are accepted, plain or compressed with gzip, bzip2, xz or zstd");
  }
  const int link = pcap_datalink(state->pcap);
  if (link != DLT_EN10MB) {
    const char* link_name = pcap_datalink_val_to_name(link);
    const char* description = pcap_datalink_val_to_description(link);
    return Error(
        fmt::format("{}: link type {} ({}{}) is not accepted", name, link, link_name != nullptr ? link_name : "unknown",
                    description != nullptr ? fmt::format(": {}", description) : std::string()),
        "only Ethernet (EN10MB, link type 1) is; capture on an Ethernet interface, or convert with tcprewrite "
        "--dlt=enet");
  }
  return CaptureReader(std::move(state));
}

Result<bool> CaptureReader::next(CapturedFrame& frame) {
  State& s = *state_;
  if (s.has_pending) {
    s.has_pending = false;
    frame = s.pending;
    ++s.packets;
    return true;
  }
  if (s.failed) return Error(s.failure);
  if (s.ended) return false;
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
  frame.wire_bytes = std::max(header->len, header->caplen);  // a wire length below the captured one is a lie
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
  ++s.packets;
  return true;
}

Result<size_t> CaptureReader::read_burst(std::span<FrameSlot> slots) {
  State& s = *state_;
  size_t filled = 0;
  for (FrameSlot& slot : slots) {
    CapturedFrame frame;
    Result<bool> got = next(frame);
    if (!got.ok()) {
      if (filled > 0) break;  // next() repeats the error
      return std::move(got).error();
    }
    if (!*got) break;
    if (frame.captured > slot.capacity) {
      --s.packets;
      s.pending = frame;
      s.has_pending = true;
      if (filled > 0) break;
      return Error(fmt::format("{}: packet {}: {} bytes do not fit a slot of {}", s.name, s.packets + 1, frame.captured,
                               slot.capacity),
                   "raise the frame size of the port");
    }
    slot.header = frame;
    std::memcpy(slot.data, frame.data, frame.captured);
    ++filled;
  }
  return filled;
}

}  // namespace sluice
