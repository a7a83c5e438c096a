#include "base/input_file.h"

#include <bzlib.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/cancel.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string packed_gzip(const std::string& in) {
  std::string out(compressBound(in.size()) + 64, '\0');
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}
std::string packed_bzip2(const std::string& in) {
  auto n = static_cast<unsigned>(in.size() + in.size() / 100 + 600);
  std::string out(n, '\0');
  EXPECT_EQ(
      BZ2_bzBuffToBuffCompress(out.data(), &n, const_cast<char*>(in.data()), static_cast<unsigned>(in.size()), 9, 0, 0),
      BZ_OK);
  out.resize(n);
  return out;
}
std::string packed_xz(const std::string& in) {
  std::string out(lzma_stream_buffer_bound(in.size()), '\0');
  size_t n = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(in.data()),
                                    in.size(), reinterpret_cast<uint8_t*>(out.data()), &n, out.size()),
            LZMA_OK);
  out.resize(n);
  return out;
}
std::string packed_zstd(const std::string& in) {
  // With a checksum, as the program writes it.
  std::string out(ZSTD_compressBound(in.size()) + 64, '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  const size_t n = ZSTD_compress2(context, out.data(), out.size(), in.data(), in.size());
  ZSTD_freeCCtx(context);
  EXPECT_EQ(ZSTD_isError(n), 0u);
  out.resize(n);
  return out;
}
struct Packer {
  const char* name;
  std::string (*pack)(const std::string&);
};
constexpr Packer kPackers[] = {
    {"gzip", packed_gzip}, {"bzip2", packed_bzip2}, {"xz", packed_xz}, {"zstd", packed_zstd}};

std::string numbered_lines(size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i)
    text += "10." + std::to_string(i * 7919 % 251) + ".0.0/16 hop" + std::to_string(i) + "\n";
  return text;
}

struct InputFileTest : testing::Test {
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice_input_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string path(const std::string& name) const { return folder / name; }
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return path(name);
  }
  std::string fifo(const std::string& name) const {
    EXPECT_EQ(::mkfifo(path(name).c_str(), 0600), 0);
    return path(name);
  }
  fs::path folder;
};

// Writes as a shell's redirection does: it waits for a reader.
std::jthread writer_of(const std::string& path, std::string bytes, size_t step = ~size_t{0}) {
  return std::jthread([path, bytes = std::move(bytes), step] {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::write(fd, bytes.data() + at, std::min(step, bytes.size() - at));
      if (n < 0) break;
      at += static_cast<size_t>(n);
    }
    ::close(fd);
  });
}

std::string whole_of(const std::string& path) {
  auto file = InputFile::open(path);
  if (!file.ok()) return "ERROR " + file.error().message;
  auto all = file->whole(kMaxTextBytes);
  return all.ok() ? *all : "ERROR " + all.error().message;
}

TEST_F(InputFileTest, AnyFormGivesTheSameBytes) {
  const std::string text = numbered_lines(20'000);
  EXPECT_EQ(whole_of(put("plain", text)), text);
  for (const Packer& packer : kPackers) {
    const std::string packed = packer.pack(text),
                      half = packer.pack(text.substr(0, 1000)) + packer.pack("") + packer.pack(text.substr(1000));
    EXPECT_TRUE(whole_of(put("packed", packed)) == text) << packer.name;
    EXPECT_TRUE(whole_of(put("members", half)) == text) << packer.name;
    const std::string pipe = fifo(packer.name);
    // A writer that gives a byte at a time at first, as a slow program does.
    const auto writer = writer_of(pipe, packer.pack(text.substr(0, 3000)), 1);
    auto file = InputFile::open(pipe);
    ASSERT_TRUE(file.ok());
    EXPECT_FALSE(file->regular());
    const auto got = file->whole(kMaxTextBytes);
    ASSERT_TRUE(got.ok()) << to_string(got.error());
    EXPECT_EQ(*got, text.substr(0, 3000)) << packer.name;
    EXPECT_STREQ(file->compression(), packer.name);
    EXPECT_EQ(whole_of(put("empty", packer.pack(""))), "") << packer.name;
  }
}

TEST_F(InputFileTest, PeekingTakesNothing) {
  const std::string text = numbered_lines(3000);
  for (const std::string& bytes : {text, packed_gzip(text), packed_zstd(text)}) {
    const std::string pipe = fifo("p" + std::to_string(bytes.size()));
    const auto writer = writer_of(pipe, bytes);
    auto file = InputFile::open(pipe);
    ASSERT_TRUE(file.ok());
    for (const size_t n : {size_t{8}, size_t{1}, size_t{600}, InputFile::kMostPeek, size_t{1} << 20}) {
      const auto start = file->peek(n);
      ASSERT_TRUE(start.ok());
      ASSERT_EQ(start->size(), std::min(n, InputFile::kMostPeek));
      EXPECT_EQ(std::memcmp(start->data(), text.data(), start->size()), 0);
    }
    std::byte some[100];
    ASSERT_EQ(*file->read(some), 100u);
    const auto next = file->peek(4000);
    ASSERT_EQ(next->size(), 4000u);
    EXPECT_EQ(std::memcmp(next->data(), text.data() + 100, 4000), 0);
    EXPECT_TRUE(*file->whole(kMaxTextBytes) == text.substr(100));
    EXPECT_EQ(file->peek()->size(), 0u);
  }
}

TEST_F(InputFileTest, ARegularFileIsReadAgainFromWhereItWasOpened) {
  const std::string name = put("file", "0123456789");
  auto file = InputFile::open(name);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->regular());
  EXPECT_EQ(*file->whole(100), "0123456789");
  fs::remove(name);
  InputFile again = file->again(), third = again.again();
  EXPECT_EQ(*again.whole(100), "0123456789");
  EXPECT_EQ(*third.whole(100), "0123456789");
  EXPECT_EQ(again.id(), file->id());
}

TEST_F(InputFileTest, StandardInputIsReadFromItsPlace) {
  const int saved = ::dup(STDIN_FILENO);
  const int file = ::open(put("file", "line\nthe rest\n").c_str(), O_RDONLY);
  ::dup2(file, STDIN_FILENO);
  ::lseek(STDIN_FILENO, 5, SEEK_SET);
  auto input = InputFile::open("-");
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(input->name(), "standard input");
  EXPECT_EQ(*input->whole(100), "the rest\n");
  EXPECT_EQ(whole_of("-"), "the rest\n") << "it does not move for others";
  const int flags = ::fcntl(STDIN_FILENO, F_GETFL);
  EXPECT_EQ(flags & O_NONBLOCK, 0);
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::close(file);
}

// Whoever waits at a FIFO for its reader is not turned away: it is opened once.
TEST_F(InputFileTest, AWriterThatIsThereFirstIsHeard) {
  const std::string pipe = fifo("pipe"), text = numbered_lines(10'000);
  const auto writer = writer_of(pipe, text);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(whole_of(pipe) == text);
}
TEST_F(InputFileTest, AWriterThatComesLaterIsWaitedFor) {
  const std::string pipe = fifo("pipe");
  auto file = InputFile::open(pipe);
  ASSERT_TRUE(file.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto writer = writer_of(pipe, "late");
  EXPECT_EQ(*file->whole(100), "late");
}
// Two FIFOs that are written to one after the other, each more than a pipe holds: neither's opening waits.
TEST_F(InputFileTest, AllAreOpenedBeforeAnyIsRead) {
  const std::string one = fifo("one"), two = fifo("two"), text = numbered_lines(20'000);
  const std::jthread shell([&] {
    writer_of(one, text).join();
    writer_of(two, text).join();
  });
  InputSet inputs;
  ASSERT_TRUE(inputs.open(one).ok());
  ASSERT_TRUE(inputs.open(two).ok());
  EXPECT_EQ(inputs.ids().size(), 2u);
  for (const std::string& name : {one, two}) EXPECT_TRUE(*inputs.take(name)->whole(kMaxTextBytes) == text);
}

TEST_F(InputFileTest, AWaitEndsByTheFlag) {
  static std::atomic<bool> stop{false};
  InputFile::stop_when(&stop);
  auto file = InputFile::open(fifo("pipe"));
  ASSERT_TRUE(file.ok());
  std::jthread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = true;
  });
  const auto said = file->peek();
  InputFile::stop_when(nullptr);
  ASSERT_FALSE(said.ok());
  EXPECT_NE(said.error().message.find("interrupted"), std::string::npos);
}

// Cut at any place, or changed at any: an error that names the file and stays, never a short text.
// In all: also a writer that says a little now and then, and one that a thread of its own reads ahead of.
TEST_F(InputFileTest, PatienceIsForAllThatAThreadReads) {
  const auto seconds = [](int n) { return uint64_t{1'000'000'000} * static_cast<uint64_t>(n); };
  const std::string pipe = fifo("pipe");
  {
    const InputPatience little(seconds(1) / 5);
    auto file = InputFile::open(pipe);
    ASSERT_TRUE(file.ok());
    auto said = file->text(1 << 20);
    ASSERT_FALSE(said.ok());
    EXPECT_EQ(said.error().message, pipe + ": nothing more came within 0 s, and others wait meanwhile");
    // Nothing is left of it, and files need none.
    std::ofstream(pipe + ".file") << "text";
    EXPECT_EQ(*read_text_file(pipe + ".file"), "text");
    EXPECT_FALSE(read_text_file(pipe).ok());
  }
  const std::string text = numbered_lines(100'000), packed = packed_zstd(text);
  for (const bool ahead : {false, true}) {
    std::atomic<bool> over{false};
    const int writer = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(writer, 0);
    const std::string& bytes = ahead ? packed : text;
    std::thread slow([&] {
      for (size_t at = 0; at < bytes.size() / 2 && !over;) {
        const size_t n = std::min<size_t>(ahead ? 50'000 : 1, bytes.size() / 2 - at);
        at += static_cast<size_t>(std::max<ssize_t>(::write(writer, bytes.data() + at, n), 0));
        if (!ahead) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    {
      const InputPatience enough(seconds(1)), inner(seconds(1) / 2);
      auto file = InputFile::open(pipe);
      file->decompress_ahead();
      auto said = file->whole(kMaxTextBytes);
      ASSERT_FALSE(said.ok());
      EXPECT_NE(said.error().message.find("nothing more came within 0 s"), std::string::npos) << said.error().message;
    }
    over = true;
    slow.join();
    ::close(writer);
  }
  const auto writer = writer_of(pipe, "late");
  EXPECT_EQ(*read_text_file(pipe), "late");
}

// Who reads for somebody that has gone stops.
TEST_F(InputFileTest, AWaitEndsWithWhoWaitsForIt) {
  const std::string pipe = fifo("pipe");
  std::atomic<bool> gone{false};
  std::thread goes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gone = true;
  });
  const CancelScope waits(gone);
  auto said = read_text_file(pipe);
  goes.join();
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.error().message, pipe + ": interrupted");
}

TEST_F(InputFileTest, TruncatedAndDamagedDataIsAnError) {
  const std::string text = numbered_lines(300);
  for (const Packer& packer : kPackers) {
    const std::string packed = packer.pack(text);
    for (size_t n = 4; n < packed.size(); n += 1 + n % 13) {
      InputFile file = InputFile::over(packed.substr(0, n), "cut");
      const auto all = file.whole(kMaxTextBytes);
      ASSERT_FALSE(all.ok()) << packer.name << " " << n;
      EXPECT_EQ(all.error().message, fmt::format("cut: {} data is truncated", packer.name)) << n;
      EXPECT_EQ(file.whole(kMaxTextBytes).error().message, all.error().message);
    }
    for (size_t i = 12; i < packed.size(); i += 11) {
      std::string damaged = packed;
      damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
      InputFile file = InputFile::over(damaged, "damaged");
      const auto all = file.whole(kMaxTextBytes);
      if (all.ok()) {
        EXPECT_EQ(*all, text) << packer.name << " " << i;  // a byte that says nothing of the data
      } else {
        EXPECT_EQ(all.error().message.rfind("damaged: ", 0), 0u) << all.error().message;
      }
    }
    InputFile file = InputFile::over(packed + "what is this?", "tail");
    EXPECT_FALSE(file.whole(kMaxTextBytes).ok()) << packer.name;
  }
}

// libzstd decodes at once what it has room for, by other rules: a frame of 88 bytes, it says, with a block that is
// none; one of 19,680 whose only block is empty; that behind a frame without a byte; and one with a window of 640 MiB.
TEST_F(InputFileTest, DamageIsTheSameErrorHoweverMuchIsAskedFor) {
  const std::vector<uint8_t> no_block{0x28, 0xb5, 0x2f, 0xfd, 0x30, 0x58, 0xeb, 0x13, 0x00, 0x30, 0x2f, 0x1b, 0x39};
  const std::vector<uint8_t> empty{0x28, 0xb5, 0x2f, 0xfd, 0x50, 0x00, 0xe0, 0x4b, 0x05, 0x00, 0x00};
  std::vector<uint8_t> second{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00};
  const std::string none(second.begin(), second.end());
  EXPECT_EQ(InputFile::over(none, "none").whole(kMaxTextBytes).value(), "");
  second.insert(second.end(), empty.begin(), empty.end());
  std::vector<uint8_t> window = empty;
  window[5] = 0x9a;
  for (const std::vector<uint8_t>& frame : {no_block, empty, second, window}) {
    for (const size_t size : {size_t{1}, size_t{64}, size_t{88}, size_t{1000}, size_t{1} << 20}) {
      InputFile input = InputFile::over(std::as_bytes(std::span(frame)), "frame");
      std::vector<std::byte> to(size);
      const auto got = input.read(to);
      ASSERT_FALSE(got.ok()) << frame.size() << " " << size;
      EXPECT_EQ(got.error().message, frame == window ? "frame: zstd data with a window of more than 128 MiB"
                                                     : "frame: zstd data is damaged (wrong checksum or format)");
    }
  }
}

TEST_F(InputFileTest, NamesUnsupportedFormats) {
  for (const auto& [bytes, said] : {std::pair<std::string, std::string>{"PK\x03\x04 and more", "zip archives"},
                                    {"\x04\x22\x4d\x18 and more", "lz4"}}) {
    const std::string name = put("file", bytes);
    EXPECT_EQ(whole_of(name).find("ERROR " + name + ": " + said), 0u) << whole_of(name);
  }
}

// Times of 1986, 2005 and 1991 at the start of a routing dump are the first bytes of a compressed file.
TEST_F(InputFileTest, TakesAFileThatOnlyBeginsLikeAMagicForPlain) {
  for (const std::string& start : {std::string("\x1f\x8b\x00\x01", 4), std::string("BZh\x00\x00\x0d", 6),
                                   std::string("BZh5 text"), std::string("BZ"), std::string("\x1f\x8b")}) {
    const std::string bytes = start + std::string(start.size() < 4 ? 0 : 40, 'x');
    EXPECT_EQ(whole_of(put("file", bytes)), bytes);
  }
}

// A small file that becomes a large one, a device that never ends: an error within the limit, and within memory.
TEST_F(InputFileTest, TheLimitHolds) {
  const std::string zeros(8 << 20, 'x');
  for (const Packer& packer : kPackers) {
    const std::string bomb = packer.pack(zeros);
    ASSERT_LT(bomb.size(), zeros.size() / 50);
    for (const uint64_t limit : {uint64_t{zeros.size()}, uint64_t{zeros.size() - 1}, uint64_t{1000}}) {
      InputFile file = InputFile::over(bomb, "bomb");
      const auto all = file.whole(limit);
      EXPECT_EQ(all.ok(), limit == zeros.size()) << packer.name;
      if (all.ok()) {
        EXPECT_LE(all->capacity(), 2 * limit);
      } else {
        EXPECT_TRUE(file.too_much());
        EXPECT_EQ(all.error().message, fmt::format("bomb: more than {} bytes", limit));
      }
    }
    InputFile file = InputFile::over(bomb, "bomb");
    file.set_limit(1 << 20);
    std::vector<std::byte> out(zeros.size());
    EXPECT_FALSE(file.read(out).ok());
  }
}

TEST_F(InputFileTest, DevicesAreNoTexts) {
  for (const char* device : {"/dev/zero", "/dev/full", "/dev/urandom"}) {
    const auto text = read_text_file(device);
    ASSERT_FALSE(text.ok()) << device;
    EXPECT_EQ(text.error().message.find(std::string(device) + ": this is not text"), 0u) << text.error().message;
    auto file = InputFile::open(device);
    ASSERT_TRUE(file.ok());
    EXPECT_FALSE(file->whole(1 << 22).ok());
    EXPECT_TRUE(file->too_much());
  }
  EXPECT_EQ(*read_text_file("/dev/null"), "");
  const std::string empty = put("empty", "");
  EXPECT_EQ(*read_text_file(empty), "");
  EXPECT_EQ(InputFile::open(empty)->table().error().message, empty + ": it is empty");
}

TEST_F(InputFileTest, NamesAFileThatCannotBeOpened) {
  EXPECT_EQ(whole_of(path("none")), "ERROR " + path("none") + ": cannot open: No such file or directory");
  EXPECT_EQ(whole_of(folder), "ERROR " + folder.string() + ": cannot read: it is a directory");
  const std::string secret = put("secret", "x");
  ::chmod(secret.c_str(), 0);
  if (::geteuid() != 0) {
    EXPECT_EQ(whole_of(secret), "ERROR " + secret + ": cannot open: Permission denied");
  }
}

TEST_F(InputFileTest, ASetGivesEachOnceAndThenOpensAnew) {
  const std::string name = put("file", "one");
  InputSet inputs;
  ASSERT_TRUE(inputs.open(name).ok());
  ASSERT_TRUE(inputs.open(name).ok());
  EXPECT_FALSE(inputs.open(path("none")).ok());
  EXPECT_EQ(inputs.find(path("other")), nullptr);
  fs::remove(name);
  EXPECT_EQ(*inputs.take(name)->whole(10), "one");
  ASSERT_NE(inputs.find(name), nullptr);
  EXPECT_EQ(*inputs.take(name)->whole(10), "one");
  EXPECT_FALSE(inputs.take(name).ok());
  EXPECT_EQ(inputs.ids().size(), 2u);
}

TEST_F(InputFileTest, PipesHaveAnIdentityWithoutBeingOpened) {
  const std::string one = fifo("one"), two = fifo("two");
  fs::create_symlink(one, path("link"));
  ASSERT_TRUE(read_once_id(one));
  EXPECT_EQ(read_once_id(one), read_once_id(path("link")));
  EXPECT_NE(read_once_id(one), read_once_id(two));
  EXPECT_TRUE(read_once_id("-"));
  for (const std::string& other : {put("file", ""), path("none"), std::string("/dev/null"), folder.string()})
    EXPECT_FALSE(read_once_id(other)) << other;
  EXPECT_EQ(InputFile::open(one)->id(), *read_once_id(one));
}

// Whatever the sizes of reads and peeks, the bytes are those of the file.
RC_GTEST_PROP(InputFileProperty, ReadsOfAnySizeJoin, (const std::string& bytes, const std::vector<uint8_t>& sizes)) {
  const auto kind = *rc::gen::inRange(0, 5);
  const std::string held = kind == 0 ? "plain " + bytes : kPackers[kind - 1].pack("plain " + bytes);
  InputFile file = InputFile::over(held, "any");
  std::string got;
  for (const uint8_t n : sizes) {
    if (n % 3 == 0) RC_ASSERT(file.peek(n).ok());
    std::string some(n, '\0');
    const auto read = file.read(std::as_writable_bytes(std::span(some)));
    RC_ASSERT(read.ok());
    got.append(some, 0, *read);
  }
  const auto rest = file.whole(kMaxTextBytes);
  RC_ASSERT(rest.ok());
  RC_ASSERT(got + *rest == "plain " + bytes);
}

// --- on a thread of its own ---

// Reads of many sizes, from a few bytes to more than is decompressed ahead; then what was said at the end.
std::pair<std::string, std::string> drained(InputFile& file, uint64_t seed = 1) {
  std::string got;
  for (;;) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    std::string some((seed >> 40) % (seed >> 63 != 0 ? 1'000'000 : 5000) + 1, '\0');
    const auto n = file.read_some(std::as_writable_bytes(std::span(some)));
    if (!n.ok() || *n == 0) {
      const auto again = file.read_some(std::as_writable_bytes(std::span(some)));
      EXPECT_EQ(again.ok(), n.ok());
      if (!n.ok()) {
        EXPECT_EQ(again.error().message, n.error().message);
        return {got, n.error().message};
      }
      EXPECT_EQ(*again, 0u);
      return {got, ""};
    }
    got.append(some, 0, *n);
  }
}

TEST_F(InputFileTest, DecompressedAheadTheBytesAreTheSame) {
  const std::string text = numbered_lines(200'000);
  ASSERT_GT(text.size(), size_t{4} << 20);
  for (const Packer& packer : kPackers) {
    const size_t half = text.size() / 2;
    const std::string packed = packer.pack(text.substr(0, half)) + packer.pack("") + packer.pack(text.substr(half));
    const std::string name = put("packed", packed), pipe = fifo(packer.name);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      auto file = InputFile::open(name);
      ASSERT_TRUE(file.ok());
      file->decompress_ahead();
      EXPECT_EQ(file->peek(100)->size(), 100u);
      EXPECT_TRUE(drained(*file, seed) == std::pair(text, std::string())) << packer.name;
    }
    auto memory = InputFile::over(packed, "memory");
    memory.decompress_ahead();
    EXPECT_TRUE(drained(memory) == std::pair(text, std::string())) << packer.name;
    const auto writer = writer_of(pipe, packed, 3000);
    auto piped = InputFile::open(pipe);
    ASSERT_TRUE(piped.ok());
    piped->decompress_ahead();
    EXPECT_TRUE(drained(*piped) == std::pair(text, std::string())) << packer.name;
  }
  auto plain = InputFile::open(put("plain", text));
  ASSERT_TRUE(plain.ok());
  plain->decompress_ahead();
  EXPECT_TRUE(drained(*plain) == std::pair(text, std::string()));
}

TEST_F(InputFileTest, DecompressedAheadErrorsAreTheSame) {
  const std::string text = numbered_lines(100'000);
  ASSERT_GT(text.size(), size_t{2} << 20);
  for (const Packer& packer : kPackers) {
    const std::string packed = packer.pack(text);
    std::vector<std::string> bad = {packed + "and what is this?"};
    for (const size_t at : {packed.size() / 20, packed.size() / 2, packed.size() - 9}) {
      bad.push_back(packed.substr(0, at));
      bad.push_back(packed);
      bad.back()[at] = static_cast<char>(packed[at] ^ 0x55);
    }
    for (const std::string& bytes : bad) {
      auto alone = InputFile::over(bytes, "bad"), ahead = InputFile::over(bytes, "bad");
      ahead.decompress_ahead();
      const auto wanted = drained(alone), got = drained(ahead);
      // zstd keeps to itself what it made in the call that fails: how much that is depends on the room it was given.
      const size_t common = std::min(got.first.size(), wanted.first.size());
      EXPECT_TRUE(got.first.compare(0, common, wanted.first, 0, common) == 0) << packer.name;
      EXPECT_LE(std::max(got.first.size(), wanted.first.size()) - common,
                packer.pack == packed_zstd ? size_t{1} << 20 : size_t{0})
          << packer.name;
      EXPECT_EQ(got.second, wanted.second) << packer.name;
    }
    auto limited = InputFile::over(packed, "limited");
    limited.decompress_ahead();
    limited.set_limit(text.size() - 1);
    EXPECT_EQ(drained(limited).second, fmt::format("limited: more than {} bytes", text.size() - 1));
    EXPECT_TRUE(limited.too_much());
  }
}

// Of a pipe, whatever has come can be had, and whoever reads no further does not wait for the writer.
TEST_F(InputFileTest, DecompressedAheadNothingIsHeldBack) {
  const std::string text = numbered_lines(100'000), pipe = fifo("pipe");
  auto file = InputFile::open(pipe);
  ASSERT_TRUE(file.ok());
  file->decompress_ahead();
  const int writer = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  // More than a pipe holds.
  const auto feed = [&](const std::string& part) {
    return std::jthread([writer, packed = packed_gzip(part)] {
      for (size_t at = 0; at < packed.size();) {
        const ssize_t n = ::write(writer, packed.data() + at, packed.size() - at);
        if (n <= 0) break;
        at += static_cast<size_t>(n);
      }
    });
  };
  std::string got;
  const auto take_all = [&](size_t bytes) {
    std::string some(100'000, '\0');
    while (got.size() < bytes) {
      file->wait(1'000'000);
      if (!file->ready()) continue;
      const auto n = file->read_some(std::as_writable_bytes(std::span(some)));
      ASSERT_TRUE(n.ok());
      ASSERT_NE(*n, 0u);
      got.append(some, 0, *n);
    }
  };
  {
    const auto feeding = feed(text);
    take_all(text.size());
  }
  EXPECT_TRUE(got == text);
  EXPECT_FALSE(file->ready());
  feed("and more").join();
  take_all(text.size() + 8);
  EXPECT_TRUE(got == text + "and more");
  EXPECT_FALSE(file->ready());
  file->wait(1000);
  InputFile moved = std::move(*file);
  EXPECT_FALSE(moved.ready());
  static std::atomic<bool> stop{false};
  stop = true;
  InputFile::stop_when(&stop);
  std::byte one[1];
  const auto said = moved.read_some(one);
  InputFile::stop_when(nullptr);
  ASSERT_FALSE(said.ok());
  EXPECT_EQ(said.error().message, pipe + ": interrupted");
  ::close(writer);
}

TEST_F(InputFileTest, DecompressedAheadAReaderMayGoAtAnyTime) {
  const std::string text = numbered_lines(100'000), packed = packed_zstd(text);
  for (const size_t most : {size_t{1}, size_t{600'000}, size_t{1'200'000}, text.size()}) {
    auto file = InputFile::over(packed, "memory");
    file.decompress_ahead();
    std::vector<std::byte> some(most);
    EXPECT_EQ(*file.read(some), most);
  }
  // The writer is there, and says nothing.
  const std::string pipe = fifo("pipe");
  auto file = InputFile::open(pipe);
  ASSERT_TRUE(file.ok());
  file->decompress_ahead();
  const int idle = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(idle, 0);
  const auto writer = writer_of(pipe, packed);
  std::vector<std::byte> some(text.size());
  EXPECT_EQ(*file->read(some), text.size());
  file = InputFile::over(std::string(), "nothing");
  ::close(idle);
}

}  // namespace
}  // namespace sluice
