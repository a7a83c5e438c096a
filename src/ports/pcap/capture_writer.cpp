#include "ports/pcap/capture_writer.h"

#include <fmt/format.h>
#include <pcap/pcap.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "base/unfinished.h"

namespace sluice {
namespace {

// Headers of a classic pcap file, in the byte order of the machine that writes (the magic tells readers).
// Source: draft-ietf-opsawg-pcap.
struct FileHeader {
  uint32_t magic;
  uint16_t major = 2, minor = 4;
  uint32_t reserved[2] = {};
  uint32_t snaplen;
  uint32_t link_type = DLT_EN10MB;
};
static_assert(sizeof(FileHeader) == 24);
constexpr uint32_t kMicrosecondMagic = 0xa1b2c3d4, kNanosecondMagic = 0xa1b23c4d;

struct RecordHeader {
  uint32_t seconds;
  uint32_t fraction;  // nanoseconds or microseconds
  uint32_t captured;
  uint32_t wire_bytes;
};
static_assert(sizeof(RecordHeader) == 16);

// A gzip stream into a file.
class Gzip {
 public:
  Gzip() { ok_ = deflateInit2(&stream_, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK; }
  ~Gzip() {
    if (ok_) deflateEnd(&stream_);
  }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  bool ok() const { return ok_; }  // false: no memory

  void write(AtomicFile& to, const void* data, size_t bytes, int flush = Z_NO_FLUSH) {
    stream_.next_in = static_cast<Bytef*>(const_cast<void*>(data));
    stream_.avail_in = static_cast<uInt>(bytes);
    int code = Z_OK;
    do {
      stream_.next_out = out_.data();
      stream_.avail_out = static_cast<uInt>(out_.size());
      code = deflate(&stream_, flush);
      to.write({reinterpret_cast<const char*>(out_.data()), out_.size() - stream_.avail_out});
    } while (stream_.avail_out == 0 || (flush == Z_FINISH && code == Z_OK));
  }
  void finish(AtomicFile& to) { write(to, nullptr, 0, Z_FINISH); }

 private:
  z_stream stream_{};
  std::vector<Bytef> out_ = std::vector<Bytef>(64 * 1024);
  bool ok_ = false;
};

}  // namespace

struct CaptureWriter::State {
  AtomicFile file;
  std::unique_ptr<Gzip> gzip;
  bool nanosecond = true;
  uint32_t snaplen = 0;
  uint64_t packets = 0;
  bool failed = false;
  bool closed = false;  // settled: nothing more is appended
  bool committed = false;
  Error failure;

  bool fail(Error why) {
    if (!failed) failure = std::move(why);
    failed = true;
    return false;
  }
  void put(const void* data, size_t bytes) {
    if (gzip != nullptr) {
      gzip->write(file, data, bytes);
    } else {
      file.write({static_cast<const char*>(data), bytes});
    }
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
  return state_->file.path();
}
std::string CaptureWriter::path_of(Ending ending) const {
  return state_->file.path_of(ending);
}

Result<CaptureWriter> CaptureWriter::create(const std::string& path, const CaptureWriterOptions& options) {
  if (options.snaplen > kMaxCapturedBytes) {
    return Error(fmt::format("snaplen {} exceeds the limit of {}", options.snaplen, kMaxCapturedBytes),
                 "0 keeps whole frames");
  }
  auto file = AtomicFile::create(path);
  if (!file.ok()) return std::move(file).error();
  auto state = std::make_unique<State>();
  State& s = *state;
  s.file = std::move(*file);
  s.nanosecond = options.nanosecond;
  s.snaplen = options.snaplen == 0 ? kMaxCapturedBytes : options.snaplen;
  if (path.ends_with(".gz")) {
    s.gzip = std::make_unique<Gzip>();
    if (!s.gzip->ok()) return Error(fmt::format("{}: cannot write: out of memory", s.file.path()));
  }
  const FileHeader header{.magic = s.nanosecond ? kNanosecondMagic : kMicrosecondMagic,
                          .snaplen = s.snaplen,
                          .link_type = static_cast<uint32_t>(options.link)};
  s.put(&header, sizeof header);
  return CaptureWriter(std::move(state));
}

bool CaptureWriter::append(const FrameHeader& header, const uint8_t* data) {
  return append(header, data, header.captured, nullptr);
}

bool CaptureWriter::append(const FrameHeader& header, const uint8_t* head, uint32_t head_bytes, const uint8_t* rest) {
  State& s = *state_;
  if (s.failed) return false;
  if (s.closed) return s.fail(Error(fmt::format("{} is already complete", path())));
  if (header.captured > kMaxCapturedBytes) {
    return s.fail(Error(fmt::format("{}: packet {}: {} bytes exceed the limit of {}", path(), s.packets + 1,
                                    header.captured, kMaxCapturedBytes)));
  }
  const uint64_t seconds = header.timestamp_ns / 1'000'000'000u;
  if (seconds > UINT32_MAX) {
    return s.fail(Error(fmt::format("{}: packet {}: timestamp {} ns is past what pcap can hold (2106)", path(),
                                    s.packets + 1, header.timestamp_ns)));
  }
  const auto nanoseconds = static_cast<uint32_t>(header.timestamp_ns % 1'000'000'000u);
  const uint32_t kept = std::min(header.captured, s.snaplen);
  const RecordHeader record{static_cast<uint32_t>(seconds), s.nanosecond ? nanoseconds : nanoseconds / 1000, kept,
                            std::max(header.wire_bytes, header.captured)};
  const uint32_t from_head = std::min({kept, head_bytes, header.captured});
  s.put(&record, sizeof record);
  if (from_head != 0) s.put(head, from_head);
  if (kept > from_head) s.put(rest, kept - from_head);
  if (!s.file.ok()) return s.fail(s.file.error());
  ++s.packets;
  return true;
}

Result<void> CaptureWriter::flush() {
  State& s = *state_;
  if (!s.failed && !s.closed && s.file.direct()) {
    if (s.gzip != nullptr) s.gzip->write(s.file, nullptr, 0, Z_SYNC_FLUSH);
    s.file.flush();
    if (!s.file.ok()) s.fail(s.file.error());
  }
  if (s.failed) return s.failure;
  return {};
}

Result<void> CaptureWriter::settle() {
  State& s = *state_;
  if (!s.failed && !s.closed) {
    s.closed = true;
    if (s.gzip != nullptr) s.gzip->finish(s.file);
    if (auto ok = s.file.settle(); !ok.ok()) s.fail(std::move(ok).error());
  }
  if (s.failed) return s.failure;
  return {};
}

Result<void> CaptureWriter::commit(Ending ending) {
  State& s = *state_;
  if (s.committed) return {};
  if (auto ok = settle(); !ok.ok()) return ok;
  if (auto ok = s.file.commit(ending); !ok.ok()) s.fail(std::move(ok).error());
  if (s.failed) return s.failure;
  s.committed = true;
  return {};
}

}  // namespace sluice
