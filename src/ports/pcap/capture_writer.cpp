#include "ports/pcap/capture_writer.h"

#include <fmt/format.h>
#include <pcap/pcap.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "base/copy_bytes.h"
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

constexpr uint64_t kSecond = 1'000'000'000;

// Frames up to here are gathered in the file's buffer.
constexpr uint32_t kMostWithOthers = AtomicFile::kMostRoom - sizeof(RecordHeader);

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
  RecordHeader record_of(const FrameHeader& header) const {
    const uint64_t seconds = header.timestamp_ns / kSecond;
    const auto nanoseconds = static_cast<uint32_t>(header.timestamp_ns - seconds * kSecond);
    return {static_cast<uint32_t>(seconds), nanosecond ? nanoseconds : nanoseconds / 1000,
            std::min(header.captured, snaplen), std::max(header.wire_bytes, header.captured)};
  }
  size_t put_many(std::span<const CapturedFrame> frames);
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
AtomicFile& CaptureWriter::file() {
  return state_->file;
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
  if (header.timestamp_ns / kSecond > UINT32_MAX) {
    return s.fail(Error(fmt::format("{}: packet {}: timestamp {} ns is past what pcap can hold (2106)", path(),
                                    s.packets + 1, header.timestamp_ns)));
  }
  const RecordHeader record = s.record_of(header);
  const uint32_t kept = record.captured;
  const uint32_t from_head = std::min({kept, head_bytes, header.captured});
  s.put(&record, sizeof record);
  if (from_head != 0) s.put(head, from_head);
  if (kept > from_head) s.put(rest, kept - from_head);
  if (!s.file.ok()) return s.fail(s.file.error());
  ++s.packets;
  return true;
}

// Those in front that are plain records which fit the room that the file has, written where it wants them.
size_t CaptureWriter::State::put_many(std::span<const CapturedFrame> frames) {
  if (failed || closed || gzip != nullptr) return 0;
  const std::span<char> room =
      file.room(sizeof(RecordHeader) + std::min({frames[0].captured, snaplen, kMostWithOthers}));
  char* at = room.data();
  const char* const end = at + room.size();
  size_t n = 0;
  for (; n < frames.size(); ++n) {
    const CapturedFrame& frame = frames[n];
    if (frame.captured > kMostWithOthers || frame.timestamp_ns >= (uint64_t{UINT32_MAX} + 1) * kSecond) break;
    const RecordHeader record = record_of(frame);
    if (static_cast<size_t>(end - at) < sizeof record + record.captured) break;
    std::memcpy(at, &record, sizeof record);
    copy_bytes(at + sizeof record, frame.data, record.captured);
    at += sizeof record + record.captured;
  }
  file.put(static_cast<size_t>(at - room.data()));
  packets += n;
  return n;
}

size_t CaptureWriter::append(std::span<const CapturedFrame> frames) {
  size_t done = 0;
  while (done < frames.size()) {
    size_t n = state_->put_many(frames.subspan(done));
    // What is no such record, and every error.
    if (n == 0) n = append(frames[done], frames[done].data) ? 1 : 0;
    if (n == 0) break;
    done += n;
  }
  return done;
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
