#include "ports/pcap/capture_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pcap/pcap.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr size_t kStreamBuffer = 1 << 20;

// The record header of a classic pcap file, in the byte order of the machine that writes (its magic tells readers).
struct RecordHeader {
  uint32_t seconds;
  uint32_t fraction;  // nanoseconds or microseconds
  uint32_t captured;
  uint32_t wire_bytes;
};
static_assert(sizeof(RecordHeader) == 16);

}  // namespace

struct CaptureWriter::State {
  std::string path;       // as given
  std::string target;     // where the finished file goes; empty when written directly
  std::string temporary;  // exists until renamed or removed
  std::vector<char> buffer;
  gzFile gzip = nullptr;
  FILE* stream = nullptr;
  pcap_t* pcap = nullptr;
  bool nanosecond = true;
  uint32_t snaplen = 0;
  uint64_t packets = 0;
  bool failed = false;
  bool closed = false;
  Error failure;

  ~State() {
    close_stream();
    if (pcap != nullptr) pcap_close(pcap);
    if (!temporary.empty()) unlink(temporary.c_str());
  }

  static ssize_t write_gzip(void* cookie, const char* data, size_t bytes) {
    auto* self = static_cast<State*>(cookie);
    const int written = gzwrite(self->gzip, data, static_cast<unsigned>(std::min<size_t>(bytes, 1u << 30)));
    if (written <= 0) {
      int code = 0;
      gzerror(self->gzip, &code);
      if (code != Z_ERRNO) errno = EIO;
      return 0;  // what stdio takes for an error of a cookie
    }
    return written;
  }
  static int close_gzip(void* cookie) {
    auto* self = static_cast<State*>(cookie);
    const int code = gzclose_w(std::exchange(self->gzip, nullptr));
    if (code == Z_OK) return 0;
    if (code != Z_ERRNO) errno = EIO;
    return -1;
  }

  bool close_stream() {
    if (stream == nullptr) return true;
    return std::fclose(std::exchange(stream, nullptr)) == 0;
  }

  bool fail(std::string what, std::string hint = {}) {
    if (!failed) failure = Error(std::move(what), std::move(hint));
    failed = true;
    return false;
  }
  bool fail_write(int code) {
    return fail(fmt::format("cannot write {}: {}", path, std::strerror(code)),
                code == ENOSPC ? "free space on that disk, or write elsewhere; nothing was left behind" : "");
  }

  bool put(const void* data, size_t bytes) {
    if (fwrite_unlocked(data, 1, bytes, stream) == bytes) return true;
    return fail_write(errno);
  }
};

CaptureWriter::CaptureWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CaptureWriter::CaptureWriter(CaptureWriter&&) noexcept = default;
CaptureWriter& CaptureWriter::operator=(CaptureWriter&&) noexcept = default;
CaptureWriter::~CaptureWriter() = default;

bool CaptureWriter::ok() const {
  return !state_->failed;
}
const Error& CaptureWriter::error() const {
  return state_->failure;
}
uint64_t CaptureWriter::packets() const {
  return state_->packets;
}
const std::string& CaptureWriter::path() const {
  return state_->path;
}

Result<CaptureWriter> CaptureWriter::create(const std::string& path, const CaptureWriterOptions& options) {
  if (options.snaplen > kMaxCapturedBytes) {
    return Error(fmt::format("snaplen {} exceeds the limit of {}", options.snaplen, kMaxCapturedBytes),
                 "0 keeps whole frames");
  }
  auto state = std::make_unique<State>();
  State& s = *state;
  s.path = path;
  s.nanosecond = options.nanosecond;
  s.snaplen = options.snaplen == 0 ? kMaxCapturedBytes : options.snaplen;

  int descriptor = -1;
  struct stat info {};
  if (path == "-") {
    s.path = "standard output";
    descriptor = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  } else if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode))
      return Error(fmt::format("cannot write {}: it is a directory", path), "name a file in it");
    descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    s.target = path;
    char resolved[PATH_MAX];
    if (realpath(path.c_str(), resolved) != nullptr)
      s.target = resolved;  // replace what a link points at, not the link
    for (int attempt = 0; attempt < 100 && descriptor < 0; ++attempt) {
      std::string name = fmt::format("{}.tmp.{}", s.target, getpid());
      if (attempt > 0) name += fmt::format(".{}", attempt);
      descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor >= 0) s.temporary = std::move(name);
      if (descriptor < 0 && errno != EEXIST) break;
    }
  }
  if (descriptor < 0) return Error(fmt::format("cannot write {}: {}", s.path, std::strerror(errno)));

  if (path.ends_with(".gz")) {
    s.gzip = gzdopen(descriptor, "wb6");
    if (s.gzip == nullptr) {
      close(descriptor);
      return Error(fmt::format("cannot write {}: out of memory", s.path));
    }
    gzbuffer(s.gzip, 256 * 1024);
    const cookie_io_functions_t functions{nullptr, &State::write_gzip, nullptr, &State::close_gzip};
    s.stream = fopencookie(&s, "wb", functions);
    if (s.stream == nullptr) gzclose_w(std::exchange(s.gzip, nullptr));
  } else {
    s.stream = fdopen(descriptor, "wb");
    if (s.stream == nullptr) close(descriptor);
  }
  if (s.stream == nullptr) return Error(fmt::format("cannot write {}: {}", s.path, std::strerror(errno)));
  s.buffer.resize(kStreamBuffer);
  setvbuf(s.stream, s.buffer.data(), _IOFBF, s.buffer.size());

  // libpcap writes the file header; the records, whose form that header fixes, go straight to its stream.
  s.pcap = pcap_open_dead_with_tstamp_precision(
      DLT_EN10MB, static_cast<int>(s.snaplen), s.nanosecond ? PCAP_TSTAMP_PRECISION_NANO : PCAP_TSTAMP_PRECISION_MICRO);
  if (s.pcap == nullptr) return Error(fmt::format("cannot write {}: out of memory", s.path));
  pcap_dumper_t* dumper = pcap_dump_fopen(s.pcap, s.stream);
  if (dumper == nullptr) return Error(fmt::format("cannot write {}: {}", s.path, pcap_geterr(s.pcap)));
  s.stream = pcap_dump_file(dumper);  // the dumper is the stream; fclose of it is pcap_dump_close
  return CaptureWriter(std::move(state));
}

bool CaptureWriter::append(const FrameHeader& header, const uint8_t* data) {
  return append(header, data, header.captured, nullptr);
}

bool CaptureWriter::append(const FrameHeader& header, const uint8_t* head, uint32_t head_bytes, const uint8_t* rest) {
  State& s = *state_;
  if (s.failed) return false;
  if (s.closed) return s.fail(fmt::format("{} is already complete", s.path));
  if (header.captured > kMaxCapturedBytes) {
    return s.fail(fmt::format("{}: packet {}: {} bytes exceed the limit of {}", s.path, s.packets + 1, header.captured,
                              kMaxCapturedBytes));
  }
  const uint64_t seconds = header.timestamp_ns / 1'000'000'000u;
  if (seconds > UINT32_MAX) {
    return s.fail(fmt::format("{}: packet {}: stamp {} ns is past what pcap can hold (2106)", s.path, s.packets + 1,
                              header.timestamp_ns));
  }
  const auto nanoseconds = static_cast<uint32_t>(header.timestamp_ns % 1'000'000'000u);
  const uint32_t kept = std::min(header.captured, s.snaplen);
  const RecordHeader record{static_cast<uint32_t>(seconds), s.nanosecond ? nanoseconds : nanoseconds / 1000, kept,
                            std::max(header.wire_bytes, header.captured)};
  const uint32_t from_head = std::min({kept, head_bytes, header.captured});
  if (!s.put(&record, sizeof(record))) return false;
  if (from_head != 0 && !s.put(head, from_head)) return false;
  if (kept > from_head && !s.put(rest, kept - from_head)) return false;
  ++s.packets;
  return true;
}

Result<void> CaptureWriter::commit() {
  State& s = *state_;
  if (s.failed) return Error(s.failure);
  if (s.closed) return {};
  s.closed = true;
  if (std::fflush(s.stream) != 0) s.fail_write(errno);
  if (!s.close_stream()) s.fail_write(errno);
  if (!s.failed && !s.temporary.empty()) {
    if (rename(s.temporary.c_str(), s.target.c_str()) == 0) {
      s.temporary.clear();
    } else {
      s.fail(fmt::format("cannot rename {} to {}: {}", s.temporary, s.target, std::strerror(errno)));
    }
  }
  if (s.failed) return Error(s.failure);
  return {};
}

}  // namespace sluice
