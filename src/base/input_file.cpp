// host only
#include "base/input_file.h"

#include <bzlib.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <lzma.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/thread.h"

namespace sluice {
namespace {

using Bytes = std::span<const std::byte>;
using Room = std::span<std::byte>;

constexpr size_t kChunk = size_t{64} << 10;
constexpr size_t kDirect = size_t{4} << 10;  // what is read of a file at a time, at least
constexpr size_t kMagicBytes = 10;
constexpr uint64_t kXzMemory = uint64_t{256} << 20;
constexpr int kZstdWindowLog = 27;
constexpr int kLookMs = 100;                          // so often a wait looks at the flag that ends it
constexpr uint64_t kInlineBytes = uint64_t{1} << 19;  // what is smaller is decompressed before a thread is there
constexpr const char* kFetchAgain = "fetch the file again";
constexpr const char* kWrongBytes = "wrong checksum or format";

std::atomic<const std::atomic<bool>*> g_stop{nullptr};

template <typename Span>
void drop_front(Span& span, size_t n) {
  span = span.subspan(n);
}

// One decompressor. It takes input from the front of `in` and puts output at the front of `out`.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual const char* name() const = 0;
  // `last`: nothing comes behind `in`. Errors: what is wrong with the data; no name of the file.
  virtual Result<void> step(Bytes& in, Room& out, bool last) = 0;
  // The data may end here.
  virtual bool complete() const = 0;
};

Error out_of_memory(const char* what) {
  return system_error(fmt::format("{} data", what), ENOMEM);
}
Error damaged(const char* what, std::string_view why) {
  return Error(fmt::format("{} data is damaged ({})", what, why), kFetchAgain);
}

class GzipDecoder final : public Decoder {
 public:
  GzipDecoder() { open_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }
  ~GzipDecoder() override {
    if (open_) inflateEnd(&stream_);
  }
  const char* name() const override { return "gzip"; }
  bool complete() const override { return between_; }
  Result<void> step(Bytes& in, Room& out, bool) override {
    if (!open_) return out_of_memory("gzip");
    if (in.empty() && between_) return {};
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    const auto given = static_cast<uInt>(std::min<size_t>(in.size(), size_t{1} << 30));
    const auto room = static_cast<uInt>(std::min<size_t>(out.size(), size_t{1} << 30));
    stream_.avail_in = given;
    stream_.avail_out = room;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    drop_front(in, given - stream_.avail_in);
    drop_front(out, room - stream_.avail_out);
    between_ = code == Z_STREAM_END;
    if (between_) return inflateReset(&stream_) == Z_OK ? Result<void>() : damaged("gzip", "unknown");
    if (code == Z_OK || code == Z_BUF_ERROR) return {};
    return code == Z_MEM_ERROR ? out_of_memory("gzip")
                               : damaged("gzip", stream_.msg != nullptr ? stream_.msg : "unknown");
  }

 private:
  z_stream stream_{};
  bool open_ = false, between_ = false;
};

class Bzip2Decoder final : public Decoder {
 public:
  ~Bzip2Decoder() override {
    if (open_) BZ2_bzDecompressEnd(&stream_);
  }
  const char* name() const override { return "bzip2"; }
  bool complete() const override { return !open_; }
  Result<void> step(Bytes& in, Room& out, bool) override {
    if (!open_) {
      if (in.empty()) return {};
      stream_ = {};
      if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) return out_of_memory("bzip2");
      open_ = true;
    }
    stream_.next_in = const_cast<char*>(reinterpret_cast<const char*>(in.data()));
    stream_.next_out = reinterpret_cast<char*>(out.data());
    const auto given = static_cast<unsigned>(std::min<size_t>(in.size(), size_t{1} << 30));
    const auto room = static_cast<unsigned>(std::min<size_t>(out.size(), size_t{1} << 30));
    stream_.avail_in = given;
    stream_.avail_out = room;
    const int code = BZ2_bzDecompress(&stream_);
    drop_front(in, given - stream_.avail_in);
    drop_front(out, room - stream_.avail_out);
    if (code == BZ_STREAM_END) {
      BZ2_bzDecompressEnd(&stream_);
      open_ = false;
    } else if (code != BZ_OK) {
      return code == BZ_MEM_ERROR ? out_of_memory("bzip2") : damaged("bzip2", kWrongBytes);
    }
    return {};
  }

 private:
  bz_stream stream_{};
  bool open_ = false;
};

class XzDecoder final : public Decoder {
 public:
  XzDecoder() { open_ = lzma_stream_decoder(&stream_, kXzMemory, LZMA_CONCATENATED) == LZMA_OK; }
  ~XzDecoder() override { lzma_end(&stream_); }
  const char* name() const override { return "xz"; }
  bool complete() const override { return ended_; }
  Result<void> step(Bytes& in, Room& out, bool last) override {
    if (!open_) return out_of_memory("xz");
    if (ended_) return {};
    stream_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    stream_.next_out = reinterpret_cast<uint8_t*>(out.data());
    stream_.avail_in = in.size();
    stream_.avail_out = out.size();
    const lzma_ret code = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
    drop_front(in, in.size() - stream_.avail_in);
    drop_front(out, out.size() - stream_.avail_out);
    switch (code) {
      case LZMA_STREAM_END:
        ended_ = true;
        return {};
      case LZMA_OK:
      case LZMA_BUF_ERROR:  // no progress: whoever calls sees it too
        return {};
      case LZMA_MEMLIMIT_ERROR:
        return Error(fmt::format("xz data that needs more than {} MiB of memory", kXzMemory >> 20),
                     "decompress it first: xz -dk FILE");
      case LZMA_MEM_ERROR:
        return out_of_memory("xz");
      case LZMA_OPTIONS_ERROR:
      case LZMA_UNSUPPORTED_CHECK:
        return Error("xz data with a filter that is not supported", "decompress it first: xz -dk FILE");
      default:
        return damaged("xz", code == LZMA_FORMAT_ERROR ? "wrong header" : kWrongBytes);
    }
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool open_ = false, ended_ = false;
};

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder() : context_(ZSTD_createDCtx()) {
    if (context_ != nullptr) ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kZstdWindowLog);
  }
  ~ZstdDecoder() override { ZSTD_freeDCtx(context_); }
  const char* name() const override { return "zstd"; }
  bool complete() const override { return between_; }
  Result<void> step(Bytes& in, Room& out, bool) override {
    if (context_ == nullptr) return out_of_memory("zstd");
    if (in.empty() && between_) return {};
    if (between_) head_bytes_ = made_ = 0;
    // Byte by byte as far as a header may go. A frame that begins in a piece which has all of it, and for which there
    // is room, is decoded at once otherwise: by other rules for its window, and with other errors.
    ZSTD_inBuffer from{in.data(), head_bytes_ < head_.size() ? std::min<size_t>(in.size(), 1) : in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t code = ZSTD_decompressStream(context_, &to, &from);
    if (ZSTD_isError(code) != 0) {
      // The number of this error (ZSTD_error_frameParameter_windowTooLarge) is not in the stable header.
      const std::string_view why = ZSTD_getErrorName(code);
      if (why.find("too much memory") != std::string_view::npos) {
        return Error(fmt::format("zstd data with a window of more than {} MiB", (size_t{1} << kZstdWindowLog) >> 20),
                     "decompress it first: zstd -d --long=31 FILE");
      }
      if (why.find("not enough memory") != std::string_view::npos) return out_of_memory("zstd");
      return damaged("zstd", kWrongBytes);
    }
    const size_t of_head = std::min(from.pos, head_.size() - head_bytes_);
    if (of_head != 0) std::memcpy(head_.data() + head_bytes_, in.data(), of_head);
    head_bytes_ += of_head;
    made_ += to.pos;
    drop_front(in, from.pos);
    drop_front(out, to.pos);
    between_ = code == 0;
    // libzstd does not compare them where the last block is empty.
    if (between_) {
      const unsigned long long said = ZSTD_getFrameContentSize(head_.data(), head_bytes_);
      if (said != ZSTD_CONTENTSIZE_UNKNOWN && said != made_) return damaged("zstd", kWrongBytes);
    }
    return {};
  }

 private:
  ZSTD_DCtx* context_;
  bool between_ = false;
  // Of the frame: its first bytes, as many as a header has at most (RFC 8878, section 3.1.1.1), and those it became.
  std::array<std::byte, 18> head_{};
  size_t head_bytes_ = 0;
  uint64_t made_ = 0;
};

// Whether the input begins like this, as far as it goes: where it ends within a magic, it is a truncated one.
bool begins(Bytes bytes, std::string_view magic) {
  const size_t n = std::min(bytes.size(), magic.size());
  return n >= 3 && std::memcmp(bytes.data(), magic.data(), n) == 0;
}

Result<std::unique_ptr<Decoder>> decoder_of(Bytes start) {
  using namespace std::string_view_literals;
  const auto at = [&](size_t i) { return i < start.size() ? static_cast<unsigned char>(start[i]) : 0; };
  if (begins(start, "\x1f\x8b\x08"sv)) return std::unique_ptr<Decoder>(std::make_unique<GzipDecoder>());
  // "BZh" is a time of April 2005 in an MRT record: the digit and the block (or the end of an empty file) count too.
  if (begins(start, "BZh"sv) && (start.size() < 4 || (at(3) >= '1' && at(3) <= '9')) &&
      (start.size() < 7 || begins(start.subspan(4), "\x31\x41\x59\x26\x53\x59"sv) ||
       begins(start.subspan(4), "\x17\x72\x45\x38\x50\x90"sv))) {
    return std::unique_ptr<Decoder>(std::make_unique<Bzip2Decoder>());
  }
  if (begins(start, "\xfd\x37zXZ\0"sv)) return std::unique_ptr<Decoder>(std::make_unique<XzDecoder>());
  // RFC 8878: a frame, or a skippable one in front.
  if (begins(start, "\x28\xb5\x2f\xfd"sv) ||
      (start.size() >= 4 && (at(0) & 0xf0) == 0x50 && begins(start.subspan(1), "\x2a\x4d\x18"sv))) {
    return std::unique_ptr<Decoder>(std::make_unique<ZstdDecoder>());
  }
  if (begins(start, "PK\x03\x04"sv)) return Error("zip archives are not supported", "unpack it first: unzip FILE");
  if (begins(start, "\x04\x22\x4d\x18"sv))
    return Error("lz4 compression is not supported", "decompress it first: lz4 -d FILE");
  return std::unique_ptr<Decoder>();
}

FileId id_of(const struct stat& info) {
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino)};
}

int64_t in_ns(const timespec& t) {
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
FileStamp stamp_of(const std::string& path, const struct stat& info) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return {.path = path,
          .regular = S_ISREG(info.st_mode),
          .id = id_of(info),
          .bytes = static_cast<uint64_t>(std::max<off_t>(info.st_size, 0)),
          .modified_ns = in_ns(info.st_mtim),
          .changed_ns = in_ns(info.st_ctim),
          .looked_ns = in_ns(now)};
}

thread_local InputPatience* patience = nullptr;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

// Takes of the patience of the thread.
struct Waited {
  // What it was, where nothing is left of it.
  static std::optional<uint64_t> longer_than_allowed(uint64_t ns) {
    if (patience == nullptr) return std::nullopt;
    patience->left_ns_ -= std::min(patience->left_ns_, ns);
    if (patience->left_ns_ != 0) return std::nullopt;
    return patience->whole_ns_;
  }
};

InputPatience::InputPatience(uint64_t ns) : whole_ns_(ns), left_ns_(ns), around_(patience) {
  patience = this;
}
InputPatience::~InputPatience() {
  patience = around_;
}

namespace {

// The bytes of one input, decompressed. One thread at a time: who reads the file, or from some place on a thread of its
// own (Ahead).
struct Stream {
  std::string name;
  std::shared_ptr<const Descriptor> file;  // none: memory
  FileId id;
  FileStamp stamp;
  bool regular = false;
  uint64_t begin = 0, offset = 0;  // of a regular file: where it was opened, and where it is read next
  uint64_t size_hint = 0;          // of a regular file, from its beginning

  std::string owned;
  Bytes memory;  // what is left of it

  std::unique_ptr<std::byte[]> chunk;  // raw input, of kChunk bytes
  Bytes raw;                           // what is unread of it
  bool raw_end = false;                // nothing comes behind `raw`
  bool started = false;
  bool ended = false;
  std::unique_ptr<Decoder> decoder;  // none: plain
  std::optional<Error> failed;
  std::atomic<bool> abandoned{false};  // nobody reads any more: waits end

  // What a decoder says, of this file.
  Error fail(Error why) const {
    why.message.insert(0, name + ": ");
    return why;
  }
  Error fail(std::string_view what, std::string hint = {}) const {
    return Error(fmt::format("{}: {}", name, what), std::move(hint));
  }

  // By the system, for the reason in errno.
  Error refused(const char* doing) const { return system_error(fmt::format("{}: cannot {}", name, doing), errno); }

  // The thread has waited since then. Errors: nobody waits for it any more, or it has no patience left.
  Result<void> waited(uint64_t since) const {
    if (cancelled()) return fail("interrupted");
    const auto over = Waited::longer_than_allowed(now_ns() - since);
    if (!over) return {};
    return fail(fmt::format("nothing more came within {} s, and others wait meanwhile", *over / 1'000'000'000),
                "start what writes it first, or write it to a file");
  }

  // Until there is something to read, or the writer is gone. A FIFO that nobody has written to is waited for too, which
  // read() would not do.
  Result<void> wait() const {
    for (;;) {
      if (InputFile::was_stopped() || abandoned.load(std::memory_order_relaxed)) return fail("interrupted");
      pollfd polled{file->get(), POLLIN, 0};
      const uint64_t since = now_ns();
      const int n = ::poll(&polled, 1, kLookMs);
      if (auto ok = waited(since); !ok || n > 0) return ok;
      if (n < 0 && errno != EINTR) return refused("wait for it");
    }
  }

  Result<size_t> read_raw(Room out) {
    if (file == nullptr) {
      const size_t n = std::min(out.size(), memory.size());
      if (n != 0) std::memcpy(out.data(), memory.data(), n);
      drop_front(memory, n);
      return n;
    }
    for (;;) {
      if (!regular) {
        if (auto ok = wait(); !ok) return std::move(ok).error();
      }
      const ssize_t n = regular ? ::pread(file->get(), out.data(), out.size(), static_cast<off_t>(offset))
                                : ::read(file->get(), out.data(), out.size());
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n < 0) return refused("read");
      offset += static_cast<uint64_t>(n);
      return static_cast<size_t>(n);
    }
  }

  void need_chunk() {
    if (chunk == nullptr) chunk = std::make_unique_for_overwrite<std::byte[]>(kChunk);
  }

  // Makes `raw` non-empty unless the input is over.
  Result<void> refill() {
    if (!raw.empty() || raw_end) return {};
    need_chunk();
    auto n = read_raw({chunk.get(), kChunk});
    if (!n) return std::move(n).error();
    raw = {chunk.get(), *n};
    raw_end = *n == 0;
    return {};
  }

  // A pipe may give its first bytes one by one.
  Result<void> start() {
    started = true;
    need_chunk();
    size_t have = 0;
    while (have < kMagicBytes && !raw_end) {
      auto n = read_raw({chunk.get() + have, kChunk - have});
      if (!n) return std::move(n).error();
      have += *n;
      raw_end = *n == 0;
    }
    raw = {chunk.get(), have};
    auto made = decoder_of(raw);
    if (!made) return fail(std::move(made).error());
    decoder = std::move(*made);
    return {};
  }

  Result<size_t> plain(Room out) {
    // What is large goes where it is wanted at once: of a pipe, all that it holds.
    if (raw.empty() && !raw_end && out.size() >= (regular ? kDirect : kChunk)) {
      auto n = read_raw(out);
      if (n) raw_end = *n == 0;
      return n;
    }
    if (auto ok = refill(); !ok) return std::move(ok).error();
    const size_t n = std::min(raw.size(), out.size());
    if (n != 0) std::memcpy(out.data(), raw.data(), n);
    drop_front(raw, n);
    return n;
  }

  Result<size_t> decoded(Room out) {
    const size_t asked = out.size();
    while (!ended && out.size() == asked) {
      if (auto ok = refill(); !ok) return std::move(ok).error();
      const size_t had = raw.size();
      if (auto ok = decoder->step(raw, out, raw_end); !ok) {
        const Error error = fail(std::move(ok).error());
        if (out.size() == asked) return error;
        failed = error;  // what came before the damage goes first
        break;
      }
      if (out.size() != asked || raw.size() != had) continue;
      if (decoder->complete() && raw.empty() && raw_end) {
        ended = true;
      } else if (raw_end) {
        return fail(fmt::format("{} data is truncated", decoder->name()), kFetchAgain);
      } else if (!raw.empty()) {
        return fail(fmt::format("{} data is damaged (followed by data of another kind)", decoder->name()), kFetchAgain);
      }
    }
    return asked - out.size();
  }

  // Waits for at least one byte and takes what is there; 0 at the end. An error stays.
  Result<size_t> take(Room out) {
    if (failed) return *failed;
    Result<size_t> n = size_t{0};
    if (!started) {
      if (auto ok = start(); !ok) n = std::move(ok).error();
    }
    if (n.ok()) n = decoder != nullptr ? decoded(out) : plain(out);
    // Whoever reads on after an error gets it again: decompressors are not to be called any more.
    if (!n.ok()) failed = n.error();
    return n;
  }

  // Whether `take` returns without waiting for whoever writes.
  bool ready() const {
    if (file == nullptr || regular || failed || ended || raw_end || !raw.empty()) return true;
    pollfd polled{file->get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) != 0;
  }
};

// A stream that a thread of its own reads, which is at most a ring of bytes ahead of who takes them. While it lives the
// stream is the thread's.
class Ahead {
 public:
  // Errors: the system starts no thread; the stream is as it was then.
  static Result<std::unique_ptr<Ahead>> start(Stream& stream) {
    std::unique_ptr<Ahead> made(new Ahead(stream));
    auto thread = start_thread([ahead = made.get()] { ahead->work(); });
    if (!thread) return std::move(thread).error();
    made->thread_ = std::move(*thread);
    return made;
  }
  ~Ahead() {
    stream_.abandoned.store(true, std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
  }

  // As those of Stream.
  Result<size_t> take(Room out) {
    std::unique_lock lock(mutex_);
    for (;;) {
      const uint64_t since = now_ns();
      const bool there =
          changed_.wait_for(lock, std::chrono::milliseconds(kLookMs), [this] { return filled_ != taken_ || over_; });
      if (auto ok = stream_.waited(since); !ok) return std::move(ok).error();
      if (there) break;
    }
    if (filled_ == taken_) {
      if (no_memory_) return system_error(stream_.name, ENOMEM);
      if (stream_.failed) return *stream_.failed;
      return size_t{0};
    }
    const uint64_t at = taken_ % kRing;
    const auto n = static_cast<size_t>(std::min({filled_ - taken_, kRing - at, uint64_t{out.size()}}));
    lock.unlock();
    std::memcpy(out.data(), ring_.data() + at, n);
    lock.lock();
    taken_ += n;
    lock.unlock();
    changed_.notify_all();
    return n;
  }
  bool ready() const {
    const std::lock_guard lock(mutex_);
    return filled_ != taken_ || over_;
  }
  void wait(uint64_t limit_ns) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(limit_ns), [this] { return filled_ != taken_ || over_; });
  }

 private:
  static constexpr uint64_t kRing = uint64_t{1} << 19;
  static constexpr uint64_t kStep =
      kRing / 4;  // at least so much room is waited for, and at most so much is made at a time

  explicit Ahead(Stream& stream) : stream_(stream), ring_(kRing) {}

  void work() {
    try {
      for (;;) {
        uint64_t at = 0, room = 0;
        {
          std::unique_lock lock(mutex_);
          changed_.wait(lock, [this] { return kRing - (filled_ - taken_) >= kStep || stop_; });
          if (stop_) return;
          at = filled_ % kRing;
          room = std::min({kRing - (filled_ - taken_), kRing - at, kStep});
        }
        // Returns with the first bytes that there are, so that none is held back for what a pipe has not given yet.
        const auto n = stream_.take(Room(ring_).subspan(at, room));
        const std::lock_guard lock(mutex_);
        if (n.ok()) filled_ += *n;
        over_ = !n.ok() || *n == 0;
        if (over_) break;
        changed_.notify_all();
      }
    } catch (const std::bad_alloc&) {
      const std::lock_guard lock(mutex_);
      no_memory_ = over_ = true;
    }
    changed_.notify_all();
  }

  Stream& stream_;
  std::vector<std::byte> ring_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  uint64_t filled_ = 0, taken_ = 0;  // bytes
  bool over_ = false;                // nothing is filled any more: `stream_` has the error
  bool no_memory_ = false;
  bool stop_ = false;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace

struct InputFile::State : Stream {
  uint64_t left = kNoLimit;  // of the limit
  uint64_t limit = kNoLimit;
  bool too_much = false;

  std::vector<std::byte> peeked;  // decoded, not read yet
  size_t peeked_at = 0;

  bool wants_ahead = false;
  uint64_t inline_bytes = 0;
  std::optional<Error> refused_more;  // past the limit
  std::unique_ptr<Ahead> ahead;       // last: it reads the stream

  Error fail_limit(uint64_t most) {
    too_much = true;
    return fail(fmt::format("more than {} bytes", most), "split the file");
  }

  // The bytes behind those that were peeked at.
  Result<size_t> next(Room out) {
    if (refused_more) return *refused_more;
    if (out.empty()) return size_t{0};
    if (wants_ahead && inline_bytes >= kInlineBytes) go_ahead();
    auto n = ahead != nullptr ? ahead->take(out) : take(out);
    if (!n.ok()) return n;
    inline_bytes += *n;
    if (*n > left) {
      refused_more = fail_limit(limit);
      return *refused_more;
    }
    if (left != kNoLimit) left -= *n;
    return n;
  }
  // Where there is something to decompress, and a thread to do it; else all goes on as before.
  void go_ahead() {
    wants_ahead = false;
    if (decoder == nullptr || ended || failed) return;
    if (auto started_ahead = Ahead::start(*this); started_ahead.ok()) ahead = std::move(*started_ahead);
  }
  bool ready_now() const {
    return peeked_at < peeked.size() || refused_more || (ahead != nullptr ? ahead->ready() : ready());
  }
};

InputFile::InputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
InputFile::~InputFile() = default;
InputFile::InputFile(InputFile&&) noexcept = default;
InputFile& InputFile::operator=(InputFile&&) noexcept = default;

Result<InputFile> InputFile::open(const std::string& path) {
  auto state = std::make_unique<State>();
  const bool standard = path == "-";
  state->name = standard ? "standard input" : path;
  // Without O_NONBLOCK a FIFO without a writer would wait here, where no signal ends it. On standard input it would be
  // set for all who share it.
  const int fd = standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                          : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return state->refused("open");
  state->file = std::make_shared<const Descriptor>(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return state->refused("open");
  if (S_ISDIR(info.st_mode)) return state->fail("cannot read: it is a directory");
  state->id = id_of(info);
  // Whoever opens standard input again finds it read.
  if (!standard) state->stamp = stamp_of(path, info);
  const off_t at = S_ISREG(info.st_mode) ? ::lseek(fd, 0, SEEK_CUR) : -1;
  state->regular = at >= 0;
  if (state->regular) {
    state->begin = state->offset = static_cast<uint64_t>(at);
    state->size_hint = static_cast<uint64_t>(std::max<off_t>(info.st_size, 0));
  }
  return InputFile(std::move(state));
}

InputFile InputFile::over(std::string bytes, std::string name) {
  auto state = std::make_unique<State>();
  state->name = std::move(name);
  state->owned = std::move(bytes);
  state->memory = std::as_bytes(std::span<const char>(state->owned));
  return InputFile(std::move(state));
}

InputFile InputFile::over(std::span<const std::byte> bytes, std::string name) {
  auto state = std::make_unique<State>();
  state->name = std::move(name);
  state->memory = bytes;
  return InputFile(std::move(state));
}

InputFile InputFile::again() const {
  auto state = std::make_unique<State>();
  state->name = state_->name;
  state->file = state_->file;
  state->id = state_->id;
  state->stamp = state_->stamp;
  state->regular = state_->regular;
  state->begin = state->offset = state_->begin;
  state->size_hint = state_->size_hint;
  return InputFile(std::move(state));
}

Result<std::span<const std::byte>> InputFile::peek(size_t bytes) {
  State& s = *state_;
  bytes = std::min(bytes, kMostPeek);
  if (s.peeked_at != 0) {
    s.peeked.erase(s.peeked.begin(), s.peeked.begin() + static_cast<ptrdiff_t>(s.peeked_at));
    s.peeked_at = 0;
  }
  while (s.peeked.size() < bytes) {
    const size_t have = s.peeked.size();
    s.peeked.resize(bytes);
    const auto n = s.next(Room(s.peeked).subspan(have));
    s.peeked.resize(have + (n.ok() ? *n : 0));
    if (!n) return n.error();
    if (*n == 0) break;
  }
  return Bytes(s.peeked).first(std::min(bytes, s.peeked.size()));
}

Result<size_t> InputFile::read_some(std::span<std::byte> out) {
  State& s = *state_;
  if (s.peeked_at == s.peeked.size()) return s.next(out);
  const size_t n = std::min(out.size(), s.peeked.size() - s.peeked_at);
  std::memcpy(out.data(), s.peeked.data() + s.peeked_at, n);
  s.peeked_at += n;
  return n;
}

bool InputFile::ready() const {
  return state_->ready_now();
}

void InputFile::wait(uint64_t limit_ns) const {
  if (ready()) return;
  if (state_->ahead != nullptr) return state_->ahead->wait(limit_ns);
  pollfd polled{state_->file->get(), POLLIN, 0};
  const timespec limit{static_cast<time_t>(limit_ns / 1'000'000'000), static_cast<long>(limit_ns % 1'000'000'000)};
  (void)::ppoll(&polled, 1, &limit, nullptr);
}

void InputFile::decompress_ahead() {
  state_->wants_ahead = true;
}

Result<size_t> InputFile::read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    auto n = read_some(out.subspan(done));
    if (!n) return n;
    if (*n == 0) break;
    done += *n;
  }
  return done;
}

Result<std::string> InputFile::whole(uint64_t limit) {
  std::string bytes;
  size_t size = 0;
  // A plain file is read into its place; a byte past the limit is enough to see that it is past.
  size_t room = state_->size_hint > state_->begin ? state_->size_hint - state_->begin + 1 : size_t{1} << 16;
  for (;;) {
    if (size == bytes.size()) {
      const auto wanted = static_cast<size_t>(std::min<uint64_t>(room, limit) + 1);
      try {
        bytes.resize(wanted);
      } catch (const std::bad_alloc&) {
        Error error = state_->fail(fmt::format("no memory for {} bytes of it", wanted));
        error.system = true;
        return error;
      }
    }
    auto n = read_some({reinterpret_cast<std::byte*>(bytes.data()) + size, bytes.size() - size});
    if (!n) return std::move(n).error();
    if (*n == 0) break;
    size += *n;
    if (size > limit) return state_->fail_limit(limit);
    room = size * 2;
  }
  bytes.resize(size);
  return bytes;
}

Result<std::string> InputFile::text(uint64_t limit) {
  auto start = peek();
  if (!start) return std::move(start).error();
  if (const auto nul = std::find(start->begin(), start->end(), std::byte{0}); nul != start->end())
    return state_->fail(fmt::format("this is not text: byte {} is NUL", nul - start->begin() + 1));
  return whole(limit);
}

Result<std::string> InputFile::table(uint64_t limit) {
  auto read = text(limit);
  if (read.ok() && read->empty()) return empty_table(name());
  return read;
}

Error empty_table(const std::string& name) {
  return Error(fmt::format("{}: it is empty", name),
               "write a comment line for an empty list: an empty file is taken for one that was cut off");
}

void InputFile::set_limit(uint64_t bytes) {
  state_->limit = state_->left = bytes;
}
void InputFile::set_name(std::string name) {
  state_->name = std::move(name);
}
bool InputFile::too_much() const {
  return state_->too_much;
}
const std::string& InputFile::name() const {
  return state_->name;
}
bool InputFile::regular() const {
  return state_->regular;
}
FileId InputFile::id() const {
  return state_->id;
}
const FileStamp& InputFile::stamp() const {
  return state_->stamp;
}

FileStamp FileStamp::of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? stamp_of(path, info) : FileStamp{.path = path};
}

bool FileStamp::unchanged() const {
  if (std::max(modified_ns, changed_ns) > looked_ns - kGrain) return false;
  const FileStamp now = of(path);
  return same_content(now) && changed_ns == now.changed_ns;
}
const char* InputFile::compression() const {
  return state_->decoder != nullptr ? state_->decoder->name() : "plain";
}

void InputFile::stop_when(const std::atomic<bool>* flag) {
  g_stop.store(flag);
}
bool InputFile::was_stopped() {
  const std::atomic<bool>* const flag = g_stop.load(std::memory_order_relaxed);
  return flag != nullptr && flag->load(std::memory_order_relaxed);
}

Result<std::string> read_text_file(const std::string& path, uint64_t limit) {
  auto file = InputFile::open(path);
  if (!file) return std::move(file).error();
  return file->text(limit);
}

std::optional<FileId> read_once_id(const std::string& path) {
  struct stat info {};
  const bool standard = path == "-";
  if ((standard ? ::fstat(STDIN_FILENO, &info) : ::stat(path.c_str(), &info)) != 0) return std::nullopt;
  if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)) return id_of(info);
  if (standard) return FileId{~uint64_t{0}, 0};
  return std::nullopt;
}

Result<void> InputSet::open(const std::string& path) {
  auto file = InputFile::open(path);
  if (!file) return std::move(file).error();
  put(path, std::move(*file));
  return {};
}

void InputSet::put(const std::string& path, InputFile file) {
  ids_.push_back(file.id());
  held_.emplace(path, std::move(file));
}

Result<InputFile> InputSet::take(const std::string& path) {
  const auto it = held_.find(path);
  if (it != held_.end()) {
    InputFile file = std::move(it->second);
    held_.erase(it);
    return file;
  }
  auto file = InputFile::open(path);
  if (file.ok()) ids_.push_back(file->id());
  return file;
}

InputFile* InputSet::find(const std::string& path) {
  const auto it = held_.find(path);
  return it == held_.end() ? nullptr : &it->second;
}

Result<InputFile> take_input(InputSet* inputs, const std::string& path) {
  return inputs != nullptr ? inputs->take(path) : InputFile::open(path);
}

}  // namespace sluice
