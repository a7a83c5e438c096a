// Captures that are written come back as they were; captures that are damaged say where, and lose nothing before it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/test_data.h"
#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

struct Packet {
  uint64_t timestamp_ns = 0;
  uint32_t wire_bytes = 0;
  std::string bytes;
  friend bool operator==(const Packet&, const Packet&) = default;
};

class Captures : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice_capture_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    return names;
  }
  std::string write_bytes(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  fs::path folder_;
};

std::string slurp(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

std::vector<Packet> sample(size_t count) {
  std::vector<Packet> packets;
  for (size_t i = 0; i < count; ++i) {
    Packet p;
    p.timestamp_ns = 1'700'000'000'000'000'000u + i * 1'234'567'891u;
    p.bytes.resize(14 + (i * 97) % 1500);
    for (size_t j = 0; j < p.bytes.size(); ++j) p.bytes[j] = static_cast<char>(i * 31 + j);
    p.wire_bytes = static_cast<uint32_t>(p.bytes.size());
    packets.push_back(p);
  }
  return packets;
}

Result<void> write_all(const std::string& path, const std::vector<Packet>& packets,
                       const CaptureWriterOptions& options = {}) {
  Result<CaptureWriter> writer = CaptureWriter::create(path, options);
  if (!writer.ok()) return std::move(writer).error();
  for (const Packet& p : packets) {
    writer->append({static_cast<uint32_t>(p.bytes.size()), p.wire_bytes, p.timestamp_ns},
                   reinterpret_cast<const uint8_t*>(p.bytes.data()));
  }
  return writer->commit();
}

// Everything up to the end or the damage; `error` receives the latter.
std::vector<Packet> drain(CaptureReader& reader, std::string* error = nullptr) {
  std::vector<Packet> packets;
  CapturedFrame frame;
  while (true) {
    Result<bool> got = reader.next(frame);
    if (!got.ok()) {
      EXPECT_NE(error, nullptr) << to_string(got.error());
      if (error != nullptr) *error = to_string(got.error());
      return packets;
    }
    if (!*got) return packets;
    packets.push_back(
        {frame.timestamp_ns, frame.wire_bytes, {reinterpret_cast<const char*>(frame.data), frame.captured}});
  }
}

// The same by next() of many at a time.
std::vector<Packet> drain_many(CaptureReader& reader, size_t most, std::string* error = nullptr) {
  std::vector<Packet> packets;
  std::vector<CapturedFrame> frames(most);
  while (true) {
    const auto count = reader.next(std::span(frames));
    if (!count.ok()) {
      EXPECT_NE(error, nullptr) << to_string(count.error());
      if (error != nullptr) *error = to_string(count.error());
      return packets;
    }
    if (*count == 0) return packets;
    EXPECT_LE(*count, most);
    for (const CapturedFrame& frame : std::span(frames).first(*count)) {
      packets.push_back(
          {frame.timestamp_ns, frame.wire_bytes, {reinterpret_cast<const char*>(frame.data), frame.captured}});
    }
    EXPECT_EQ(reader.packets(), packets.size());
  }
}

// Read one by one; a file is also read many at a time, which gives the same packets and ends the same way.
std::vector<Packet> read_all(const std::string& path, std::string* error = nullptr) {
  Result<CaptureReader> reader = CaptureReader::open(path);
  if (!reader.ok()) {
    EXPECT_NE(error, nullptr) << to_string(reader.error());
    if (error != nullptr) *error = to_string(reader.error());
    return {};
  }
  const auto packets = drain(*reader, error);
  for (const size_t most : {1, 3, 64}) {
    if (!fs::is_regular_file(path)) break;
    auto again = CaptureReader::open(path);
    if (!again.ok()) {
      ADD_FAILURE() << to_string(again.error());
      break;
    }
    std::string said;
    EXPECT_TRUE(drain_many(*again, most, &said) == packets) << most;
    EXPECT_EQ(said, error != nullptr ? *error : "") << most;
  }
  return packets;
}

// Reads on by bring() where it has frames, else by next(), in turns of `turn`.
std::vector<Packet> drain_brought(CaptureReader& reader, std::vector<std::byte>& room, size_t most, size_t turn,
                                  size_t* brought, std::string* error) {
  std::vector<Packet> packets;
  std::vector<CapturedFrame> frames(most);
  const auto take = [&](const CapturedFrame& frame) {
    packets.push_back(
        {frame.timestamp_ns, frame.wire_bytes, {reinterpret_cast<const char*>(frame.data), frame.captured}});
  };
  for (size_t round = 1;; ++round) {
    std::fill(room.begin(), room.end(), std::byte{0xaa});
    const size_t n = round % turn != 0 ? reader.bring(room, frames) : 0;
    const uint8_t* before = nullptr;
    for (const CapturedFrame& frame : std::span(frames).first(n)) {
      const auto* at = reinterpret_cast<const std::byte*>(frame.data);
      EXPECT_TRUE(at >= room.data() + 16 && at + frame.captured <= room.data() + room.size());
      if (before != nullptr) {
        EXPECT_GE(frame.data - before, 16);
      }
      before = frame.data + frame.captured;
      take(frame);
    }
    *brought += n;
    if (n != 0) continue;
    auto got = reader.next(std::span(frames).first(1));
    if (!got) {
      *error = to_string(got.error());
      return packets;
    }
    if (*got == 0) return packets;
    take(frames[0]);
  }
}

// The two formats by hand, so that what the reader accepts does not depend on what the writer produces.
void put16(std::string& out, uint32_t v) {
  out += static_cast<char>(v);
  out += static_cast<char>(v >> 8);
}
void put32(std::string& out, uint32_t v) {
  put16(out, v & 0xffff);
  put16(out, v >> 16);
}
std::string pcap_header(uint32_t magic, uint32_t snaplen, uint32_t link_type) {
  std::string out;
  put32(out, magic);
  put16(out, 2);
  put16(out, 4);
  put32(out, 0);
  put32(out, 0);
  put32(out, snaplen);
  put32(out, link_type);
  return out;
}
std::string pcap_record(uint32_t seconds, uint32_t fraction, uint32_t wire, const std::string& bytes) {
  std::string out;
  put32(out, seconds);
  put32(out, fraction);
  put32(out, static_cast<uint32_t>(bytes.size()));
  put32(out, wire);
  return out + bytes;
}
std::string block(uint32_t type, std::string body) {
  while (body.size() % 4 != 0) body += '\0';
  const auto total = static_cast<uint32_t>(body.size() + 12);
  std::string out;
  put32(out, type);
  put32(out, total);
  out += body;
  put32(out, total);
  return out;
}
std::string section_header() {
  std::string body;
  put32(body, 0x1a2b3c4d);
  put16(body, 1);
  put16(body, 0);
  put32(body, 0xffffffff);
  put32(body, 0xffffffff);
  return block(0x0a0d0d0a, body);
}
std::string interface_block(uint32_t link_type, uint32_t snaplen, int resolution) {
  std::string body;
  put16(body, link_type);
  put16(body, 0);
  put32(body, snaplen);
  if (resolution >= 0) {
    put16(body, 9);  // if_tsresol
    put16(body, 1);
    put32(body, static_cast<uint32_t>(resolution));
    put32(body, 0);  // end of options
  }
  return block(1, body);
}
std::string packet_block(uint32_t interface, uint64_t stamp, uint32_t wire, const std::string& bytes) {
  std::string body;
  put32(body, interface);
  put32(body, static_cast<uint32_t>(stamp >> 32));
  put32(body, static_cast<uint32_t>(stamp));
  put32(body, static_cast<uint32_t>(bytes.size()));
  put32(body, wire);
  return block(6, body + bytes);
}

std::string old_packet_block(uint32_t interface, uint64_t stamp, uint32_t wire, const std::string& bytes) {
  std::string body;
  put16(body, interface);
  put16(body, 0xffff);  // packets that were dropped: not known
  put32(body, static_cast<uint32_t>(stamp >> 32));
  put32(body, static_cast<uint32_t>(stamp));
  put32(body, static_cast<uint32_t>(bytes.size()));
  put32(body, wire);
  return block(2, body + bytes);
}
std::string simple_packet_block(uint32_t wire, const std::string& bytes) {
  std::string body;
  put32(body, wire);
  return block(3, body + bytes);
}

constexpr uint32_t kMicroMagic = 0xa1b2c3d4;
constexpr uint32_t kNanoMagic = 0xa1b23c4d;

TEST_F(Captures, NanosecondRoundTrip) {
  const auto packets = sample(300);
  ASSERT_TRUE(write_all(path("a.pcap"), packets).ok());
  EXPECT_EQ(read_all(path("a.pcap")), packets);
  EXPECT_THAT(files(), UnorderedElementsAre("a.pcap"));
}

TEST_F(Captures, MicrosecondRoundTripKeepsMicroseconds) {
  auto packets = sample(300);
  ASSERT_TRUE(write_all(path("a.pcap"), packets, {.nanosecond = false}).ok());
  for (Packet& p : packets) p.timestamp_ns = p.timestamp_ns / 1000 * 1000;
  EXPECT_EQ(read_all(path("a.pcap")), packets);
}

TEST_F(Captures, GzipRoundTripIsGzip) {
  const auto packets = sample(2000);
  ASSERT_TRUE(write_all(path("a.pcap.gz"), packets).ok());
  EXPECT_EQ(slurp(path("a.pcap.gz")).substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(read_all(path("a.pcap.gz")), packets);
  fs::rename(path("a.pcap.gz"), path("b.pcap"));  // told by content, not by name
  EXPECT_EQ(read_all(path("b.pcap")), packets);
}

// What other programs have compressed.
TEST_F(Captures, EveryCompressionIsRead) {
  const auto packets = sample(2000);
  ASSERT_TRUE(write_all(path("a.pcap"), packets).ok());
  for (const char* program : {"gzip", "bzip2", "xz", "zstd -q"}) {
    const std::string packed = path("packed");
    ASSERT_EQ(std::system((std::string(program) + " -c '" + path("a.pcap") + "' > '" + packed + "'").c_str()), 0);
    EXPECT_EQ(read_all(packed), packets) << program;
    const std::string bytes = slurp(packed);
    std::string error;
    const auto got = read_all(write_bytes("cut", bytes.substr(0, bytes.size() - 3)), &error);
    EXPECT_LE(got.size(), packets.size());
    EXPECT_THAT(error, HasSubstr("data is truncated")) << program;
    auto store = FrameStore::load(packed);
    ASSERT_TRUE(store.ok());
    EXPECT_EQ(store->size(), packets.size());
  }
}

// An input that is open already is read from its beginning, and a regular file may be asked about before.
TEST_F(Captures, AnOpenInputIsRead) {
  const auto packets = sample(50);
  ASSERT_TRUE(write_all(path("a.pcap"), packets).ok());
  auto file = InputFile::open(path("a.pcap"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(CaptureReader::open(file->again()).ok());
  auto reader = CaptureReader::open(std::move(*file));
  ASSERT_TRUE(reader.ok());
  std::string error;
  EXPECT_EQ(drain(*reader, &error), packets);
  EXPECT_FALSE(CaptureReader::open("/dev/zero").ok());
}

TEST_F(Captures, WriterWritesTheFormatByteForByte) {
  ASSERT_TRUE(write_all(path("n.pcap"), {{1'000'000'007, 60, "hello"}}).ok());
  EXPECT_EQ(slurp(path("n.pcap")), pcap_header(kNanoMagic, kMaxCapturedBytes, 1) + pcap_record(1, 7, 60, "hello"));
  ASSERT_TRUE(write_all(path("u.pcap"), {{1'000'007'999, 5, "hello"}}, {.nanosecond = false, .snaplen = 3}).ok());
  EXPECT_EQ(slurp(path("u.pcap")), pcap_header(kMicroMagic, 3, 1) + pcap_record(1, 7, 5, "hel"));
}

TEST_F(Captures, SecondsPast2038ComeBack) {
  std::vector<Packet> packets;
  for (const uint64_t seconds : {0x7fffffffull, 0x80000000ull, 0xfffffff0ull, 0xffffffffull})
    packets.push_back({seconds * 1'000'000'000u + 123'456'000u, 60, "late"});
  for (const bool nanosecond : {true, false}) {
    ASSERT_TRUE(write_all(path("a.pcap"), packets, {.nanosecond = nanosecond}).ok());
    EXPECT_EQ(read_all(path("a.pcap")), packets);
  }
  // Written by a machine of the other byte order.
  std::string other = slurp(path("a.pcap"));
  for (size_t at = 0, record = 24; at < other.size(); at = record, record += 16 + 4) {
    const size_t end = at == 0 ? 24 : at + 16;
    for (size_t field = at; field < end; field += 4) {
      const size_t bytes = at == 0 && field == 4 ? 2 : 4;  // the version is two numbers
      for (size_t part = field; part < field + 4; part += bytes)
        std::reverse(other.begin() + static_cast<ptrdiff_t>(part),
                     other.begin() + static_cast<ptrdiff_t>(part + bytes));
    }
  }
  std::ofstream(path("b.pcap"), std::ios::binary) << other;
  EXPECT_EQ(read_all(path("b.pcap")), packets);
}

TEST_F(Captures, AnyPacketsComeBack) {
  int n = 0;
  EXPECT_TRUE(rc::check("round trip", [&](const std::vector<std::pair<uint32_t, std::string>>& drawn, bool gzip) {
    RC_PRE(drawn.size() < 200);
    std::vector<Packet> packets;
    for (const auto& [stamp, bytes] : drawn) {
      packets.push_back({stamp * 4'000'000'001u % 4'000'000'000'000'000'000u,
                         static_cast<uint32_t>(bytes.size()) + stamp % 3, bytes});
    }
    const std::string name = path("r" + std::to_string(n++ % 4) + (gzip ? ".gz" : ".pcap"));
    RC_ASSERT(write_all(name, packets).ok());
    RC_ASSERT(read_all(name) == packets);
  }));
}

TEST_F(Captures, TwoPartFramesAreJoined) {
  const std::string head = "edited head";
  const std::string rest = " and the rest";
  for (const uint32_t snaplen : {0u, 5u, 11u, 15u, 100u}) {
    auto writer = CaptureWriter::create(path("a.pcap"), {.snaplen = snaplen});
    ASSERT_TRUE(writer.ok());
    const FrameHeader header{static_cast<uint32_t>(head.size() + rest.size()), 1500, 42};
    EXPECT_TRUE(writer->append(header, reinterpret_cast<const uint8_t*>(head.data()),
                               static_cast<uint32_t>(head.size()), reinterpret_cast<const uint8_t*>(rest.data())));
    ASSERT_TRUE(writer->commit().ok());
    const std::string whole = head + rest;
    EXPECT_EQ(read_all(path("a.pcap")),
              (std::vector<Packet>{{42, 1500, snaplen == 0 ? whole : whole.substr(0, snaplen)}}));
  }
}

TEST_F(Captures, SnaplenKeepsTheWireLength) {
  ASSERT_TRUE(write_all(path("a.pcap"), sample(50), {.snaplen = 96}).ok());
  const auto original = sample(50);
  const auto got = read_all(path("a.pcap"));
  ASSERT_EQ(got.size(), original.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].wire_bytes, original[i].bytes.size());
    EXPECT_EQ(got[i].bytes, original[i].bytes.substr(0, 96));
  }
}

// Frames of any length, so that records lie across the ends of what the reader holds at a time in every way.
TEST_F(Captures, FramesOfAnyLengthAreRead) {
  std::vector<Packet> packets;
  uint64_t state = 1, bytes = 0;
  while (bytes < (uint64_t{6} << 20)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto draw = static_cast<uint32_t>(state >> 32);
    constexpr uint32_t kMost[] = {64, 100, 1514, 9000, kMaxCapturedBytes};
    const uint32_t length = draw % 97 == 0 ? kMaxCapturedBytes - draw % 3 : draw / 97 % (kMost[draw % 5] + 1);
    Packet p{1'700'000'000'000'000'000u + draw, length + draw % 3, std::string(length, '\0')};
    for (size_t i = 0; i < length; ++i) p.bytes[i] = static_cast<char>(draw + i * 7);
    bytes += length;
    packets.push_back(std::move(p));
  }
  ASSERT_TRUE(write_all(path("a.pcap"), packets).ok());
  EXPECT_TRUE(read_all(path("a.pcap")) == packets);
  // Those that are given many at a time are written as those that are given one by one.
  auto writer = CaptureWriter::create(path("b.pcap"));
  ASSERT_TRUE(writer.ok());
  std::vector<CapturedFrame> frames;
  for (const Packet& p : packets) {
    frames.push_back({{static_cast<uint32_t>(p.bytes.size()), p.wire_bytes, p.timestamp_ns},
                      reinterpret_cast<const uint8_t*>(p.bytes.data())});
  }
  for (size_t at = 0, some = 1; at < frames.size(); at += some, some = some % 90 + 7) {
    some = std::min(some, frames.size() - at);
    ASSERT_EQ(writer->append(std::span(frames).subspan(at, some)), some);
  }
  EXPECT_EQ(writer->packets(), packets.size());
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_TRUE(slurp(path("a.pcap")) == slurp(path("b.pcap")));
}

TEST_F(Captures, ManyAreWrittenAsOneByOne) {
  const auto packets = sample(500);
  for (const CaptureWriterOptions& options :
       {CaptureWriterOptions{}, CaptureWriterOptions{.nanosecond = false}, CaptureWriterOptions{.snaplen = 60}}) {
    for (const char* end : {".pcap", ".gz"}) {
      ASSERT_TRUE(write_all(path("one") + end, packets, options).ok());
      auto writer = CaptureWriter::create(path("many") + end, options);
      ASSERT_TRUE(writer.ok());
      std::vector<CapturedFrame> frames;
      for (const Packet& p : packets) {
        frames.push_back({{static_cast<uint32_t>(p.bytes.size()), p.wire_bytes, p.timestamp_ns},
                          reinterpret_cast<const uint8_t*>(p.bytes.data())});
      }
      EXPECT_EQ(writer->append(frames), frames.size());
      EXPECT_EQ(writer->append(std::span<const CapturedFrame>()), 0u);
      ASSERT_TRUE(writer->commit().ok());
      EXPECT_TRUE(slurp(path("one") + end) == slurp(path("many") + end));
      EXPECT_EQ(writer->append(frames), 0u);
      EXPECT_THAT(to_string(writer->error()), HasSubstr("already complete"));
    }
  }
}

// What stands before a frame that cannot be written is written, and counted.
TEST_F(Captures, ManyEndAtTheFrameThatIsRefused) {
  const uint8_t byte[1] = {7};
  std::vector<CapturedFrame> frames(9, {{1, 1, 5}, byte});
  frames[4].timestamp_ns = 5'000'000'000'000'000'000u;
  auto writer = CaptureWriter::create(path("a.pcap"));
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->append(frames), 4u);
  EXPECT_EQ(writer->packets(), 4u);
  EXPECT_THAT(to_string(writer->error()), HasSubstr("packet 5: timestamp"));
  EXPECT_FALSE(writer->commit().ok());
  frames[4] = {{kMaxCapturedBytes + 1, kMaxCapturedBytes + 1, 5}, byte};
  writer = CaptureWriter::create(path("a.pcap"));
  EXPECT_EQ(writer->append(frames), 4u);
  EXPECT_THAT(to_string(writer->error()), HasSubstr("packet 5: 262145 bytes exceed"));
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "/dev/full is absent";
  frames.assign(20'000, {{1, 1, 5}, byte});
  writer = CaptureWriter::create("/dev/full");
  EXPECT_LT(writer->append(frames), frames.size());
  EXPECT_THAT(to_string(writer->error()), HasSubstr("No space left on device"));
}

// A snaplen in a file's header is what its writer meant to keep. Some libraries write 1500 there and frames of 1514
// bytes behind it: the record says how many bytes are there.
TEST_F(Captures, FramesAreAsLongAsTheirRecordsSay) {
  const std::string full(1514, 'f');
  const std::vector<Packet> packets = {
      {1'000'002'000, 1514, full}, {1'000'003'000, 1600, full}, {1'000'004'000, 2, "xy"}};
  for (const uint32_t snaplen : {0u, 1u, 4u, 96u, 1500u, 1513u, 1514u, 262144u, 0x80000000u, 0xffffffffu}) {
    SCOPED_TRACE(snaplen);
    const std::string file =
        write_bytes("s.pcap", pcap_header(kMicroMagic, snaplen, 1) + pcap_record(1, 2, 1514, full) +
                                  pcap_record(1, 3, 1600, full) + pcap_record(1, 4, 2, "xy"));
    EXPECT_EQ(read_all(file), packets);
    std::vector<std::byte> room(size_t{1} << 16);
    auto reader = CaptureReader::open(file);
    ASSERT_TRUE(reader.ok());
    size_t brought = 0;
    std::string wrong;
    EXPECT_EQ(drain_brought(*reader, room, 8, 1'000'000, &brought, &wrong), packets);
    // Enhanced, obsolete and simple packet blocks.
    EXPECT_EQ(read_all(write_bytes("s.pcapng", section_header() + interface_block(1, snaplen, 9) +
                                                   packet_block(0, 1'000'002'000, 1514, full) +
                                                   old_packet_block(0, 1'000'003'000, 1600, full))),
              (std::vector<Packet>(packets.begin(), packets.begin() + 2)));
    // A simple packet block has no captured length. Where both lengths fill it, the snaplen counts.
    EXPECT_EQ(read_all(write_bytes(
                  "s.pcapng", section_header() + interface_block(1, snaplen, 9) + simple_packet_block(1514, full))),
              (std::vector<Packet>{{0, 1514, snaplen == 1513 ? full.substr(1) : full}}));
  }
  // A packet that the snaplen cuts has padding behind it.
  for (const uint32_t snaplen : {93u, 94u, 95u, 96u}) {
    EXPECT_EQ(read_all(write_bytes("s.pcapng", section_header() + interface_block(1, snaplen, 9) +
                                                   simple_packet_block(1514, full.substr(0, snaplen)))),
              (std::vector<Packet>{{0, 1514, full.substr(0, snaplen)}}));
  }
}

// A wire length below the captured one is a lie.
TEST_F(Captures, TheWireLengthIsAtLeastTheCapturedOne) {
  EXPECT_EQ(read_all(write_bytes("w.pcap", pcap_header(kNanoMagic, 0, 1) + pcap_record(1, 2, 3, "abcdefghi"))),
            (std::vector<Packet>{{1'000'000'002, 9, "abcdefghi"}}));
}

// Nor is one of 4 GiB, to which a header of Ethernet is added that another link had shorter (101: raw IP).
TEST_F(Captures, AWireLengthPastEveryLinkDoesNotWrap) {
  const std::string ip = "\x45" + std::string(19, '\0');
  for (const uint32_t wire : {UINT32_MAX, UINT32_MAX - 13, uint32_t{INT32_MAX}}) {
    for (const uint32_t link : {1u, 101u}) {
      const auto got =
          read_all(write_bytes("l.pcap", pcap_header(kNanoMagic, 65535, link) + pcap_record(1, 2, wire, ip)));
      ASSERT_EQ(got.size(), 1u);
      EXPECT_GE(got[0].wire_bytes, uint32_t{INT32_MAX});
      EXPECT_LE(got[0].wire_bytes, uint32_t{INT32_MAX} + 14);
    }
  }
}

// Of a pipe, many are those that are there: the last of them is not waited for.
TEST_F(Captures, ManyWaitForTheFirstAlone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto put = [&](const std::string& bytes) {
    ASSERT_EQ(::write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  };
  const std::string third = pcap_record(3, 0, 3, "ccc");
  put(pcap_header(kNanoMagic, 0, 1) + pcap_record(1, 0, 3, "aaa") + pcap_record(2, 0, 3, "bbb") + third.substr(0, 17));
  auto reader = CaptureReader::open("/dev/fd/" + std::to_string(ends[0]));
  ASSERT_TRUE(reader.ok());
  std::array<CapturedFrame, 8> frames;
  EXPECT_TRUE(reader->ready());
  auto count = reader->next(std::span(frames));
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 2u);
  EXPECT_FALSE(reader->ready());
  put(third.substr(17) + pcap_record(4, 0, 3, "ddd"));
  EXPECT_TRUE(reader->ready());
  count = reader->next(std::span(frames));
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 2u);
  EXPECT_EQ(std::memcmp(frames[0].data, "ccc", 3), 0);
  EXPECT_EQ(std::memcmp(frames[1].data, "ddd", 3), 0);
  ::close(ends[1]);
  EXPECT_EQ(*reader->next(std::span(frames)), 0u);
  EXPECT_EQ(*reader->next(std::span(frames)), 0u);
  ::close(ends[0]);
}

TEST_F(Captures, FramesThatAreBroughtAreThoseThatNextGives) {
  EXPECT_TRUE(rc::check([&] {
    const auto count = *rc::gen::inRange<size_t>(0, 300);
    std::vector<Packet> packets;
    for (size_t i = 0; i < count; ++i) {
      Packet p;
      p.timestamp_ns = *rc::gen::inRange<uint64_t>(0, 2'000'000'000'000'000'000u);
      // Runs of short frames, and now and then one that is longer than all that was read for many.
      const bool longer = *rc::gen::inRange(0, 40) == 0;
      p.bytes.resize(*rc::gen::inRange<size_t>(0, longer ? 20'000 : 130));
      for (size_t j = 0; j < p.bytes.size(); ++j) p.bytes[j] = static_cast<char>(i * 31 + j);
      p.wire_bytes = static_cast<uint32_t>(p.bytes.size() + *rc::gen::inRange<size_t>(0, 3));
      packets.push_back(p);
    }
    const std::string file = path("brought.pcap");
    RC_ASSERT(write_all(file, packets).ok());
    // Cut off somewhere, or whole.
    const auto bytes = fs::file_size(file);
    if (*rc::gen::inRange(0, 3) == 0) fs::resize_file(file, *rc::gen::inRange<uint64_t>(24, bytes + 1));
    auto plain = CaptureReader::open(file), other = CaptureReader::open(file);
    RC_ASSERT(plain.ok() && other.ok());
    std::string wrong, wrong_brought;
    const std::vector<Packet> expected = drain(*plain, &wrong);
    std::vector<std::byte> room(*rc::gen::inRange<size_t>(0, 30'000));
    size_t brought = 0;
    const std::vector<Packet> got = drain_brought(*other, room, *rc::gen::inRange<size_t>(1, 100),
                                                  *rc::gen::inRange<size_t>(2, 50), &brought, &wrong_brought);
    RC_ASSERT(got == expected);
    RC_ASSERT(wrong_brought == wrong);
    RC_ASSERT(other->packets() == plain->packets());
  }));
}

TEST_F(Captures, MostFramesOfAPlainFileAreBrought) {
  std::vector<Packet> packets(10'000);
  for (Packet& p : packets) p.bytes.resize(p.wire_bytes = 64);
  ASSERT_TRUE(write_all(path("many.pcap"), packets).ok());
  std::vector<std::byte> room(size_t{1} << 16);
  auto reader = CaptureReader::open(path("many.pcap"));
  ASSERT_TRUE(reader.ok());
  size_t brought = 0;
  std::string wrong;
  EXPECT_EQ(drain_brought(*reader, room, 256, 1'000'000, &brought, &wrong).size(), packets.size());
  EXPECT_EQ(brought, packets.size());
  EXPECT_EQ(wrong, "");
}

// Of a pipe, of what is compressed and of other formats none are: reading on waits, or the bytes lie elsewhere first.
TEST_F(Captures, OnlyPlainFilesBringFrames) {
  const std::vector<Packet> packets = sample(100);
  ASSERT_TRUE(write_all(path("a.pcap.gz"), packets).ok());
  std::vector<std::byte> room(size_t{1} << 16);
  std::vector<CapturedFrame> frames(64);
  auto zipped = CaptureReader::open(path("a.pcap.gz"));
  ASSERT_TRUE(zipped.ok());
  EXPECT_EQ(zipped->bring(room, frames), 0u);
  ASSERT_TRUE(write_all(path("a.pcap"), packets).ok());
  auto memory = CaptureReader::open(InputFile::over(slurp(path("a.pcap")), "memory"));
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->bring(room, frames), 0u);
  EXPECT_EQ(drain(*zipped), packets);
  EXPECT_EQ(drain(*memory), packets);
}

// Large enough for a thread that decompresses: what stands before the damage comes, then the same error again and
// again.
TEST_F(Captures, DamageInALargeCompressedFileIsAnErrorThatRepeats) {
  const auto packets = sample(6000);
  ASSERT_TRUE(write_all(path("a.pcap"), packets).ok());
  ASSERT_GT(fs::file_size(path("a.pcap")), uint64_t{4} << 20);
  for (const char* program : {"gzip", "bzip2", "xz", "zstd -q"}) {
    const std::string packed = path("packed");
    ASSERT_EQ(std::system((std::string(program) + " -c '" + path("a.pcap") + "' > '" + packed + "'").c_str()), 0);
    EXPECT_TRUE(read_all(packed) == packets) << program;
    const std::string bytes = slurp(packed);
    for (const size_t at : {bytes.size() / 2, bytes.size() - 30}) {
      std::string other = bytes;
      for (size_t i = 0; i < 8; ++i) other[at + i] = static_cast<char>(other[at + i] ^ 0x5a);
      for (const bool cut : {false, true}) {
        std::string error;
        const auto got = read_all(write_bytes("bad", cut ? bytes.substr(0, at) : other), &error);
        EXPECT_LE(got.size(), packets.size());
        if (cut) {
          EXPECT_THAT(error, HasSubstr("data is truncated")) << program << at;
          EXPECT_TRUE(std::equal(got.begin(), got.end(), packets.begin())) << program << at;
        } else {
          EXPECT_NE(error, "") << program << at;  // which, depends on what the bytes came to mean
        }
      }
    }
  }
}

// Whoever reads no further leaves nothing behind, whatever the thread that decompresses is at.
TEST_F(Captures, ALargeCompressedFileNeedNotBeReadToItsEnd) {
  ASSERT_TRUE(write_all(path("a.pcap.gz"), sample(6000)).ok());
  for (const size_t most : {1, 700, 1500, 3000, 5999}) {
    auto reader = CaptureReader::open(path("a.pcap.gz"));
    ASSERT_TRUE(reader.ok());
    CapturedFrame frame;
    for (size_t i = 0; i < most; ++i) ASSERT_TRUE(reader->next(frame).ok());
    CaptureReader moved = std::move(*reader);
    EXPECT_TRUE(*moved.next(frame));
    EXPECT_EQ(moved.packets(), most + 1);
  }
}

TEST_F(Captures, BigEndianFilesAreRead) {
  std::string bytes("\xa1\xb2\x3c\x4d\0\2\0\4\0\0\0\0\0\0\0\0\0\0\xff\xff\0\0\0\1", 24);
  bytes += std::string("\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4", 16) + "abc";
  EXPECT_EQ(read_all(write_bytes("b.pcap", bytes)), (std::vector<Packet>{{1'000'000'002, 4, "abc"}}));
}

TEST_F(Captures, PcapngIsReadWithItsResolution) {
  const std::string micro =
      section_header() + interface_block(1, 65535, -1) + packet_block(0, 1'700'000'000'123'456, 100, "abcde");
  EXPECT_EQ(read_all(write_bytes("m.pcapng", micro)), (std::vector<Packet>{{1'700'000'000'123'456'000, 100, "abcde"}}));
  const std::string nano = section_header() + interface_block(1, 65535, 9) + interface_block(1, 65535, 6) +
                           packet_block(0, 1'700'000'000'123'456'789, 5, "abcde") +
                           block(0x0bad, "unknown block is skipped") + packet_block(1, 1'700'000'000'000'001, 3, "xyz");
  EXPECT_EQ(read_all(write_bytes("n.pcapng", nano)),
            (std::vector<Packet>{{1'700'000'000'123'456'789, 5, "abcde"}, {1'700'000'000'000'001'000, 3, "xyz"}}));
}

// In seconds, as pcapng may count them: before 1970, and past what 64 bits of nanoseconds hold.
TEST_F(Captures, PcapngStampsOutOfRangeAreRefusedAfterTheFrameBefore) {
  for (const uint64_t seconds : {~uint64_t{0} - 99, uint64_t{18'446'744'073}, uint64_t{1} << 63}) {
    std::string error;
    const auto got = read_all(
        write_bytes("o.pcapng", section_header() + interface_block(1, 65535, 0) +
                                    packet_block(0, 4'000'000'000, 3, "abc") + packet_block(0, seconds, 3, "def")),
        &error);
    EXPECT_EQ(got, (std::vector<Packet>{{4'000'000'000'000'000'000, 3, "abc"}})) << seconds;
    EXPECT_THAT(error, HasSubstr("packet 2"));
    EXPECT_THAT(error, HasSubstr("1970"));
  }
}

// Of a frame that came with another link type: what stands behind its Ethernet header.
std::string behind_header(const Packet& packet) {
  return packet.bytes.substr(std::min<size_t>(14, packet.bytes.size()));
}

// As dumpcap and mergecap write them: an interface may be described late, and a section begins anew, in its own byte
// order.
TEST_F(Captures, InterfacesOfACaptureMayDiffer) {
  const std::string ip = "\x45" + std::string(19, 'i');
  const std::string bytes = section_header() + interface_block(1, 96, -1) + packet_block(0, 7, 3, "abc") +
                            interface_block(101, 262144, 9) + packet_block(1, 8, 20, ip) +
                            packet_block(0, 9, 3, "def") + section_header() + interface_block(228, 0, 3) +
                            packet_block(0, 10, 20, ip);
  auto reader = CaptureReader::open(write_bytes("x.pcapng", bytes));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->link(), LinkType::kEthernet);
  const auto got = drain(*reader);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(reader->frame_link(), LinkType::kIpv4);
  EXPECT_EQ(got[0], (Packet{7'000, 3, "abc"}));
  EXPECT_EQ(got[1].timestamp_ns, 8u);
  EXPECT_EQ(got[1].wire_bytes, 34u);
  EXPECT_EQ(behind_header(got[1]), ip);
  EXPECT_EQ(got[2], (Packet{9'000, 3, "def"}));
  EXPECT_EQ(got[3].timestamp_ns, 10'000'000u);
  EXPECT_EQ(behind_header(got[3]), ip);
}

// Outputs are opened with what all packets have; an interface without packets does not count.
TEST_F(Captures, TheLinkTypeOfACaptureIsThatOfItsPackets) {
  const std::string ip = "\x45" + std::string(19, 'i');
  const auto link_of = [&](const std::string& blocks) {
    auto reader = CaptureReader::open(write_bytes("x.pcapng", section_header() + blocks));
    EXPECT_TRUE(reader.ok());
    return reader.ok() ? reader->link() : LinkType::kNull;
  };
  const std::string raw = interface_block(101, 0, 9), ethernet = interface_block(1, 0, 9),
                    usb = interface_block(220, 0, 9);
  const auto packet = [&](uint32_t interface) { return packet_block(interface, 1, 20, ip); };
  EXPECT_EQ(link_of(""), LinkType::kEthernet);
  EXPECT_EQ(link_of(raw), LinkType::kRaw);
  EXPECT_EQ(link_of(raw + packet(0)), LinkType::kRaw);
  EXPECT_EQ(link_of(raw + ethernet + packet(0)), LinkType::kRaw);
  EXPECT_EQ(link_of(raw + ethernet + packet(1)), LinkType::kEthernet);
  EXPECT_EQ(link_of(raw + packet(0) + ethernet + packet(1)), LinkType::kEthernet);
  EXPECT_EQ(link_of(raw + packet(0) + section_header() + ethernet + packet(0)), LinkType::kEthernet);
  EXPECT_EQ(link_of(usb + raw + packet(1)), LinkType::kRaw);
  EXPECT_EQ(link_of(usb + ethernet + packet(1)), LinkType::kEthernet);
  EXPECT_EQ(link_of(raw + interface_block(228, 0, 9) + packet(0) + packet(1)), LinkType::kEthernet);

  std::string error;
  EXPECT_THAT(read_all(write_bytes("u.pcapng", section_header() + usb + packet(0)), &error), IsEmpty());
  EXPECT_THAT(error, HasSubstr("link type 220 (USB_LINUX_MMAPPED"));
  const auto before =
      read_all(write_bytes("u.pcapng", section_header() + ethernet + usb + packet(0) + packet(1) + packet(0)), &error);
  EXPECT_EQ(before.size(), 1u);
  EXPECT_THAT(error, HasSubstr("packet 2: link type 220 (USB_LINUX_MMAPPED"));
}

// A pipe cannot be looked through: the interfaces before its first packet count, and another type behind it is no
// silent change of what leaves.
TEST_F(Captures, OfAPipeTheInterfacesBeforeTheFirstPacketCount) {
  const std::string ip = "\x45" + std::string(19, 'i');
  const std::string raw = interface_block(101, 0, 9), ethernet = interface_block(1, 0, 9);
  const auto open = [&](const std::string& blocks) {
    return CaptureReader::open(InputFile::over(section_header() + blocks, "pipe"));
  };
  auto both = open(raw + ethernet + packet_block(0, 1, 20, ip) + packet_block(1, 2, 3, "abc"));
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->link(), LinkType::kEthernet);
  EXPECT_EQ(drain(*both).size(), 2u);
  auto late = open(raw + packet_block(0, 1, 20, ip) + ethernet + packet_block(1, 2, 3, "abc"));
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(late->link(), LinkType::kRaw);
  std::string error;
  EXPECT_EQ(drain(*late, &error).size(), 1u);
  EXPECT_THAT(error, HasSubstr("packet 2: link type EN10MB (1)"));
  EXPECT_THAT(error, HasSubstr("RAW (101)"));
  auto first = open(ethernet + packet_block(0, 1, 3, "abc") + raw + packet_block(1, 2, 20, ip));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(drain(*first).size(), 2u);
}

TEST_F(Captures, DamagedBlocksAreErrorsThatNameThePacket) {
  const std::string good = section_header() + interface_block(1, 0, 9) + packet_block(0, 7, 3, "abc");
  const auto says = [&](const std::string& more, const char* text) {
    std::string error;
    EXPECT_EQ(read_all(write_bytes("d.pcapng", good + more), &error).size(), 1u) << text;
    EXPECT_THAT(error, HasSubstr("packet 2: ")) << text;
    EXPECT_THAT(error, HasSubstr(text));
  };
  says(packet_block(1, 7, 3, "abc"), "interface 1 is not described");
  says(section_header() + packet_block(0, 7, 3, "abc"), "interface 0 is not described");
  std::string other_end = packet_block(0, 7, 3, "abc");
  other_end[other_end.size() - 4] = 12;
  says(other_end, "another length at its end");
  std::string unknown_end = block(0xbad, "abcd");
  unknown_end[unknown_end.size() - 4] = 12;
  says(unknown_end, "another length at its end");
  std::string odd = block(0xbad, "abcd");
  odd[4] = 15;
  says(odd, "a length that cannot be right");
  std::string longer = packet_block(0, 7, 3, "abc");
  longer[20] = 5;  // captured; there is room for 4
  says(longer, "captured length 5 in a block that has room for 4 bytes");
  says(packet_block(0, 7, 3, std::string(kMaxCapturedBytes + 1, 'x')),
       "captured length 262145 exceeds the limit of 262144");
  says(block(6, "abcd"), "a packet block of 16 bytes");
  std::string version = section_header();
  version[12] = 2;
  says(version, "version 2.0 of pcapng is not known");
  says(section_header().substr(0, 20), "truncated");
  says(block(0xbad, std::string(1 << 20, 'x')).substr(0, 1 << 20), "truncated");
  std::string option;
  put32(option, 1);
  put32(option, 0);
  put16(option, 9);
  put16(option, 40);
  says(block(1, option), "an option past its end");
}

// What is no packet may have any length, and a packet any options.
TEST_F(Captures, LongBlocksAreReadOver) {
  const std::string start = section_header() + interface_block(1, 0, 9);
  std::string packet = packet_block(0, 7, 3, "abc");
  std::string options;
  for (int i = 0; i < 20; ++i) {
    put16(options, 1);
    put16(options, 65532);
    options += std::string(65532, 'c');
  }
  const std::string body = packet.substr(8, packet.size() - 12);
  const std::string bytes = start + block(0xbad, std::string(3 << 20, 'x')) + block(6, body + options) + packet;
  EXPECT_EQ(read_all(write_bytes("l.pcapng", bytes)), (std::vector<Packet>{{7, 3, "abc"}, {7, 3, "abc"}}));
  std::string error;
  EXPECT_THAT(read_all(write_bytes("m.pcapng", start + block(6, body + std::string(17 << 20, '\0'))), &error),
              IsEmpty());
  EXPECT_THAT(error, HasSubstr("exceeds the limit of 16777216"));
}

// Cut anywhere, every whole packet before the cut is delivered.
TEST_F(Captures, TruncatedPcapngDeliversWhatIsWhole) {
  const std::string start = section_header() + interface_block(1, 0, 9);
  const std::string packet = packet_block(0, 7, 5, "abcde");
  std::string bytes = start;
  std::vector<size_t> ends;
  for (int i = 0; i < 4; ++i) {
    bytes += packet;
    ends.push_back(bytes.size());
    bytes += block(0xbad, "abcdefgh");
  }
  for (size_t cut = start.size(); cut < bytes.size(); ++cut) {
    const auto whole = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), cut) - ends.begin());
    std::string error;
    EXPECT_EQ(read_all(write_bytes("cut.pcapng", bytes.substr(0, cut)), &error).size(), whole) << cut;
    const bool between = (cut - start.size()) % (packet.size() + 20) == 0 ||
                         (cut - start.size()) % (packet.size() + 20) == packet.size();
    EXPECT_EQ(error.empty(), between) << cut << error;
    if (!between) {
      EXPECT_THAT(error, HasSubstr("packet " + std::to_string(whole + 1) + ": truncated")) << cut;
    }
  }
}

// pcapng files as the format allows them, drawn at random, beside what was drawn; and beside tshark, which shares no
// code with the reader.
class RandomPcapng {
 public:
  // `customs`: with custom blocks, which tshark lists among the packets.
  RandomPcapng(uint64_t seed, bool customs) : state_(seed * 2 + 1), customs_(customs) {}

  std::string bytes;
  std::vector<Packet> packets;     // as the reader gives them
  std::vector<std::string> lines;  // as tshark does: length, captured length, time

  void make(unsigned sections) {
    for (unsigned s = 0; s < sections; ++s) {
      big_ = draw(2) != 0;
      interfaces_.clear();
      std::string body;
      u32(body, 0x1a2b3c4d);
      u16(body, 1);
      u16(body, draw(2) * 2);
      u32(body, ~0u);
      u32(body, ~0u);
      if (draw(3) == 0) body += options({});
      add(0x0a0d0d0a, body);
      add_interface();
      for (uint32_t n = 5 + draw(20); n != 0; --n) {
        const uint32_t what = draw(12);
        if (what == 0) add_interface();
        if (what == 1) add_other();
        if (what > 1) add_packet();
      }
    }
  }

 private:
  struct Interface {
    uint32_t link, snaplen;
    uint8_t resolution = 6;
    int64_t offset = 0;
    unsigned __int128 rate() const {
      unsigned __int128 rate = 1;
      for (unsigned i = 0; i < (resolution & 0x7fu); ++i) rate *= (resolution & 0x80) != 0 ? 2 : 10;
      return rate;
    }
  };

  uint32_t draw(uint32_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state_ >> 33) % below);
  }
  void u16(std::string& out, uint32_t v) const {
    for (int i = 0; i < 2; ++i) out += static_cast<char>(v >> (big_ ? 8 - 8 * i : 8 * i));
  }
  void u32(std::string& out, uint32_t v) const {
    for (int i = 0; i < 4; ++i) out += static_cast<char>(v >> (big_ ? 24 - 8 * i : 8 * i));
  }
  std::string text(uint32_t most) {
    std::string made(draw(most + 1), '\0');
    for (char& c : made) c = static_cast<char>('a' + draw(26));
    return made;
  }
  void add(uint32_t type, std::string body) {
    body.resize((body.size() + 3) / 4 * 4);
    u32(bytes, type);
    u32(bytes, static_cast<uint32_t>(body.size() + 12));
    bytes += body;
    u32(bytes, static_cast<uint32_t>(body.size() + 12));
  }
  void option(std::string& out, uint32_t code, std::string value) const {
    u16(out, code);
    u16(out, static_cast<uint32_t>(value.size()));
    value.resize((value.size() + 3) / 4 * 4);
    out += value;
  }
  // Those in their order, with comments and unknown ones between; the last may go without an end.
  std::string options(const std::vector<std::pair<uint32_t, std::string>>& some) {
    std::string out;
    for (const auto& [code, value] : some) {
      if (draw(2) == 0) option(out, 1, text(30));
      option(out, code, value);
    }
    if (draw(2) == 0) option(out, 0x7fff, text(9));
    if (!out.empty() && draw(4) != 0) option(out, 0, "");
    return out;
  }
  void add_interface() {
    static constexpr uint32_t kLinks[] = {1, 1, 1, 101, 12, 14, 228, 113, 276, 0, 108};
    static constexpr uint32_t kSnaplens[] = {0, 64, 96, 97, 1500, 65535, 262144, 0xffffffff};
    static constexpr uint8_t kResolutions[] = {0,    3,    6,         7,         9,         10,
                                               0x80, 0x81, 0x80 + 10, 0x80 + 20, 0x80 + 30, 0x80 + 33};
    Interface made{kLinks[draw(std::size(kLinks))], kSnaplens[draw(std::size(kSnaplens))]};
    std::vector<std::pair<uint32_t, std::string>> some;
    if (draw(3) != 0) some.emplace_back(2, text(12));  // its name
    if (draw(3) != 0) {
      made.resolution = kResolutions[draw(std::size(kResolutions))];
      some.emplace_back(9, std::string(1, static_cast<char>(made.resolution)));
    }
    if (draw(3) == 0) {
      made.offset = int64_t{draw(2'000'000)} - 1'000'000;
      std::string value;
      const auto high = static_cast<uint32_t>(static_cast<uint64_t>(made.offset) >> 32);
      u32(value, big_ ? high : static_cast<uint32_t>(made.offset));
      u32(value, big_ ? static_cast<uint32_t>(made.offset) : high);
      some.emplace_back(14, value);
    }
    std::string body;
    u16(body, made.link);
    u16(body, 0);
    u32(body, made.snaplen);
    add(1, body + options(some));
    interfaces_.push_back(made);
  }
  // Names, statistics, custom blocks that may be copied or not, and what nobody knows.
  void add_other() {
    static constexpr uint32_t kTypes[] = {0x7f001234, 0x0bad, 0x40000bad};
    std::string body;
    u32(body, draw(1000));
    add(kTypes[customs_ ? draw(std::size(kTypes)) : 0], body + text(200));
  }
  // Whatever its link type says, so that it has one's own header, and IPv4 behind it where that is looked at.
  std::string packet_of(uint32_t link, uint32_t length) {
    std::string packet(length, '\0');
    for (char& c : packet) c = static_cast<char>(draw(256));
    if (link == 101 || link == 12 || link == 14 || link == 228) packet[0] = 0x45;
    return packet;
  }
  void add_packet() {
    const uint32_t form = draw(8);  // 0: simple, 1: obsolete, else enhanced
    const uint32_t number = form == 0 ? 0 : draw(static_cast<uint32_t>(interfaces_.size()));
    const Interface& i = interfaces_[number];
    const uint32_t wire = 20 + draw(1600);
    // Of a record that says how long it is, also more than the snaplen.
    uint32_t captured = form == 0 ? wire : wire - draw(2) * draw(wire - 19);
    if (form == 0 && i.snaplen != 0) captured = std::min(captured, i.snaplen);
    const std::string data = packet_of(i.link, captured);
    const unsigned __int128 rate = i.rate();
    const uint64_t seconds = 1'100'000'000 + draw(700'000'000);
    const auto units = static_cast<uint64_t>(seconds * rate + (rate > 1 ? draw(0x7fffffff) % rate : 0));
    std::string body;
    if (form == 0) {
      u32(body, wire);
      add(3, body + data);
    } else {
      if (form == 1) {
        u16(body, number);
        u16(body, draw(65536));
      } else {
        u32(body, number);
      }
      u32(body, static_cast<uint32_t>(units >> 32));
      u32(body, static_cast<uint32_t>(units));
      u32(body, captured);
      u32(body, wire);
      body += data;
      body.resize((body.size() + 3) / 4 * 4);
      if (draw(3) == 0) body += options({{2, std::string("\1\0\0\0", 4)}});  // flags
      add(form == 1 ? 2 : 6, body);
    }
    Packet packet{0, wire, data};
    if (form != 0) {
      packet.timestamp_ns = static_cast<uint64_t>(units * static_cast<unsigned __int128>(1'000'000'000) / rate) +
                            static_cast<uint64_t>(i.offset) * 1'000'000'000u;
    }
    std::string line = std::to_string(wire) + "\t" + std::to_string(captured) + "\t";
    if (form != 0) {
      const std::string fraction = std::to_string(packet.timestamp_ns % 1'000'000'000 + 1'000'000'000).substr(1);
      line += std::to_string(packet.timestamp_ns / 1'000'000'000) + "." + fraction;
    }
    lines.push_back(line);
    const auto type = *link_type_of(i.link);
    if (type != LinkType::kEthernet) {
      const auto* at = reinterpret_cast<const uint8_t*>(data.data());
      const auto own = LinkHeader::length(type, at, captured);
      uint8_t ethernet[LinkHeader::kBytes];
      if (own) LinkHeader::to_ethernet(type, at, captured, ethernet);
      const uint32_t skip = own.value_or(captured), head = own ? LinkHeader::kBytes : 0;
      packet.bytes = std::string(reinterpret_cast<const char*>(ethernet), head) + data.substr(skip);
      packet.wire_bytes = wire - skip + head;
    }
    packets.push_back(packet);
  }

  uint64_t state_;
  bool customs_, big_ = false;
  std::vector<Interface> interfaces_;
};

TEST_F(Captures, AnyPcapngFileIsReadAsTsharkReadsIt) {
  const bool tshark = std::system("tshark --version > /dev/null 2>&1") == 0;
  constexpr uint64_t kByTshark = 12;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomPcapng file(seed, seed >= kByTshark);
    file.make(1 + seed % 4);
    const std::string name = write_bytes("r.pcapng", file.bytes);
    const auto got = read_all(name);
    ASSERT_EQ(got.size(), file.packets.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].timestamp_ns, file.packets[i].timestamp_ns) << i;
      ASSERT_EQ(got[i].wire_bytes, file.packets[i].wire_bytes) << i;
      ASSERT_TRUE(got[i].bytes == file.packets[i].bytes) << i;
    }
    if (!tshark || seed >= kByTshark) continue;
    const std::string command = "tshark -r '" + name +
                                "' -T fields -e frame.len -e frame.cap_len -e frame.time_epoch > '" + path("lines") +
                                "' 2> '" + path("said") + "'";
    ASSERT_EQ(std::system(command.c_str()), 0) << slurp(path("said"));
    std::istringstream read(slurp(path("lines")));
    std::vector<std::string> lines;
    for (std::string line; std::getline(read, line);) lines.push_back(line);
    ASSERT_EQ(lines, file.lines);
  }
  if (!tshark) GTEST_SKIP() << "read as they were drawn; tshark is not here";
}

// What libpcap reads besides: versions before 2.4, which had the lengths the other way round, AIX's, and records with
// more fields of patched systems.
TEST_F(Captures, OlderFormsOfPcapAreRead) {
  const auto file = [](uint32_t magic, uint32_t major, uint32_t minor, const std::string& records) {
    std::string out = pcap_header(magic, 65535, 1);
    out[4] = static_cast<char>(major);
    out[5] = static_cast<char>(major >> 8);
    out[6] = static_cast<char>(minor);
    return out + records;
  };
  const auto record = [](uint32_t first, uint32_t second, const std::string& rest) {
    std::string out;
    for (const uint32_t field : {1u, 2u, first, second}) put32(out, field);
    return out + rest;
  };
  const std::vector<Packet> one = {{1'000'002'000, 9, "abc"}};
  EXPECT_EQ(read_all(write_bytes("o.pcap", file(kMicroMagic, 2, 2, record(9, 3, "abc")))), one);
  EXPECT_EQ(read_all(write_bytes("o.pcap", file(kMicroMagic, 543, 0, record(9, 3, "abc")))), one);
  EXPECT_EQ(read_all(write_bytes("o.pcap", file(kMicroMagic, 2, 3, record(9, 3, "abc") + record(3, 9, "abc")))),
            (std::vector<Packet>{one[0], one[0]}));
  EXPECT_EQ(read_all(write_bytes("o.pcap", file(0xa1b2cd34, 2, 4, record(3, 9, "ifacepro") + "abc"))), one);
}

// 12 and 14 are what systems call raw IP among themselves, and what some programs write into files.
TEST_F(Captures, RawIpHasSeveralNumbers) {
  const std::string ip = "\x45" + std::string(19, 'i');
  for (const uint32_t type : {12u, 14u, 101u, 228u}) {
    for (const bool ng : {false, true}) {
      const std::string bytes =
          ng ? section_header() + interface_block(type, 0, 9) + packet_block(0, 1'000'000'002, 20, ip)
             : pcap_header(kNanoMagic, 65535, type) + pcap_record(1, 2, 20, ip);
      auto reader = CaptureReader::open(write_bytes("r.pcap", bytes));
      ASSERT_TRUE(reader.ok()) << type;
      EXPECT_EQ(to_string(reader->link()), type == 228 ? "IPV4 (228)" : "RAW (101)");
      const auto got = drain(*reader);
      ASSERT_EQ(got.size(), 1u) << type;
      EXPECT_EQ(got[0].bytes.substr(12), "\x08" + std::string(1, '\0') + ip) << type;
    }
  }
}

TEST_F(Captures, LinkTypesThatAreNotAcceptedAreNamed) {
  for (const auto& [type, dlt] :
       {std::pair{105u, "IEEE802_11"}, {127u, "IEEE802_11_RADIO"}, {189u, "USB_LINUX"}, {100u, "ATM_RFC1483"}}) {
    std::string error;
    EXPECT_THAT(read_all(write_bytes("l.pcap", pcap_header(kMicroMagic, 65535, type)), &error), IsEmpty());
    EXPECT_THAT(error, HasSubstr(dlt));
    EXPECT_THAT(error, HasSubstr(std::to_string(type)));
    EXPECT_THAT(error, HasSubstr("Linux cooked"));
  }
}

TEST_F(Captures, OpenErrorsSayWhatIsWrong) {
  std::string error;
  read_all(path("absent.pcap"), &error);
  EXPECT_THAT(error, HasSubstr("cannot open"));
  read_all(write_bytes("empty.pcap", ""), &error);
  EXPECT_THAT(error, HasSubstr("is empty"));
  read_all(write_bytes("short.pcap", pcap_header(kNanoMagic, 65535, 1).substr(0, 11)), &error);
  EXPECT_THAT(error, HasSubstr("truncated"));
  read_all(write_bytes("text.pcap", "permit ip from any to any, and more of this text\n"), &error);
  EXPECT_THAT(error, HasSubstr("pcap and pcapng are accepted"));
  read_all(folder_.string(), &error);
  EXPECT_THAT(error, HasSubstr("it is a directory"));
  std::string version = pcap_header(kNanoMagic, 65535, 1);
  version[4] = 9;
  read_all(write_bytes("version.pcap", version), &error);
  EXPECT_THAT(error, HasSubstr("version"));
}

TEST_F(Captures, ACaptureWithoutPacketsIsFine) {
  EXPECT_THAT(read_all(write_bytes("none.pcap", pcap_header(kNanoMagic, 65535, 1))), IsEmpty());
}

// Cut anywhere, every whole packet before the cut is delivered, and the error carries the number of the one that is
// not.
TEST_F(Captures, TruncationDeliversWhatIsWholeAndNamesTheNext) {
  const auto packets = sample(8);
  ASSERT_TRUE(write_all(path("a.pcap"), packets).ok());
  const std::string bytes = slurp(path("a.pcap"));
  std::vector<size_t> ends{24};
  for (const Packet& p : packets) ends.push_back(ends.back() + 16 + p.bytes.size());
  ASSERT_EQ(ends.back(), bytes.size());
  for (size_t cut = 24; cut < bytes.size(); cut += 1 + cut % 7) {
    const size_t whole = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), cut) - ends.begin()) - 1;
    std::string error;
    const auto got = read_all(write_bytes("cut.pcap", bytes.substr(0, cut)), &error);
    ASSERT_EQ(got, std::vector<Packet>(packets.begin(), packets.begin() + static_cast<ptrdiff_t>(whole))) << cut;
    if (cut == ends[whole]) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_THAT(error, HasSubstr("packet " + std::to_string(whole + 1) + ": truncated")) << cut;
    }
  }
}

TEST_F(Captures, TruncatedGzipIsAnError) {
  const auto packets = sample(500);
  ASSERT_TRUE(write_all(path("a.pcap.gz"), packets).ok());
  const std::string bytes = slurp(path("a.pcap.gz"));
  std::string error;
  auto got = read_all(write_bytes("cut.gz", bytes.substr(0, bytes.size() * 2 / 3)), &error);
  EXPECT_GT(got.size(), 50u);
  ASSERT_LT(got.size(), packets.size());
  EXPECT_EQ(got, std::vector<Packet>(packets.begin(), packets.begin() + static_cast<ptrdiff_t>(got.size())));
  EXPECT_THAT(error, HasSubstr("gzip data is truncated"));
  error.clear();
  got = read_all(write_bytes("trailer.gz", bytes.substr(0, bytes.size() - 4)),
                 &error);  // every packet is there, the trailer is not
  EXPECT_EQ(got, packets);
  EXPECT_THAT(error, HasSubstr("gzip data is truncated"));
  std::string flipped = bytes;
  flipped[bytes.size() - 6] ^= 1;  // the CRC
  error.clear();
  read_all(write_bytes("crc.gz", flipped), &error);
  EXPECT_THAT(error, HasSubstr("incorrect data check"));
}

TEST_F(Captures, CorruptLengthsAreErrorsThatRepeat) {
  const std::string good = pcap_header(kNanoMagic, 262144, 1) + pcap_record(1, 2, 3, "abc");
  std::string huge;
  put32(huge, 1);
  put32(huge, 2);
  put32(huge, kMaxCapturedBytes + 1);
  put32(huge, kMaxCapturedBytes + 1);
  auto reader = CaptureReader::open(write_bytes("h.pcap", good + huge + std::string(kMaxCapturedBytes + 1, 'x')));
  ASSERT_TRUE(reader.ok());
  std::string first;
  EXPECT_EQ(drain(*reader, &first).size(), 1u);
  EXPECT_THAT(first, HasSubstr("packet 2"));
  EXPECT_THAT(first, HasSubstr("262145"));
  EXPECT_THAT(first, HasSubstr("262144"));
  std::string second;
  EXPECT_THAT(drain(*reader, &second), IsEmpty());
  EXPECT_EQ(first, second);
}

TEST_F(Captures, TheLargestFrameIsAcceptedAndOneMoreByteIsNot) {
  const std::string largest(kMaxCapturedBytes, 'q');
  ASSERT_TRUE(write_all(path("l.pcap"), {{5, kMaxCapturedBytes, largest}}).ok());
  EXPECT_EQ(read_all(path("l.pcap")), (std::vector<Packet>{{5, kMaxCapturedBytes, largest}}));
  const auto refused = write_all(path("m.pcap"), {{5, kMaxCapturedBytes + 1, largest + "q"}});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(to_string(refused.error()), HasSubstr("packet 1: 262145 bytes exceed the limit of 262144"));
  EXPECT_FALSE(CaptureWriter::create(path("n.pcap"), {.snaplen = kMaxCapturedBytes + 1}).ok());
  EXPECT_THAT(files(), UnorderedElementsAre("l.pcap"));
}

TEST_F(Captures, AStampPast2106IsRefused) {
  const auto refused = write_all(path("m.pcap"), {{5'000'000'000'000'000'000u, 1, "q"}});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(to_string(refused.error()), HasSubstr("2106"));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Captures, NothingHalfWrittenIsLeft) {
  write_bytes("old.pcap", "the old content");
  {
    auto writer = CaptureWriter::create(path("old.pcap"));
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(writer->append({5, 5, 1}, reinterpret_cast<const uint8_t*>("hello")));
    EXPECT_EQ(files().size(), 2u);
    EXPECT_EQ(slurp(path("old.pcap")), "the old content");
  }
  EXPECT_THAT(files(), UnorderedElementsAre("old.pcap"));
  EXPECT_EQ(slurp(path("old.pcap")), "the old content");
  const auto nowhere = CaptureWriter::create(path("no/such/folder.pcap"));
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(to_string(nowhere.error()), HasSubstr("No such file"));
  EXPECT_FALSE(CaptureWriter::create(folder_.string()).ok());
}

TEST_F(Captures, TwoWritersOfOneNameDoNotMix) {
  auto a = CaptureWriter::create(path("x.pcap"));
  auto b = CaptureWriter::create(path("x.pcap"));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(a->append({1, 1, 1}, reinterpret_cast<const uint8_t*>("a")));
  EXPECT_TRUE(b->append({1, 1, 1}, reinterpret_cast<const uint8_t*>("b")));
  ASSERT_TRUE(b->commit().ok());
  ASSERT_TRUE(a->commit().ok());
  EXPECT_EQ(read_all(path("x.pcap")), (std::vector<Packet>{{1, 1, "a"}}));
  EXPECT_THAT(files(), UnorderedElementsAre("x.pcap"));
}

TEST_F(Captures, ASymbolicLinkIsFollowed) {
  write_bytes("real.pcap", "old");
  fs::create_symlink(path("real.pcap"), path("link.pcap"));
  ASSERT_TRUE(write_all(path("link.pcap"), sample(3)).ok());
  EXPECT_TRUE(fs::is_symlink(path("link.pcap")));
  EXPECT_EQ(read_all(path("real.pcap")), sample(3));
}

TEST_F(Captures, AppendAfterCommitFails) {
  auto writer = CaptureWriter::create(path("x.pcap"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_FALSE(writer->append({1, 1, 1}, reinterpret_cast<const uint8_t*>("a")));
  EXPECT_THAT(to_string(writer->error()), HasSubstr("already complete"));
  EXPECT_THAT(read_all(path("x.pcap")), IsEmpty());
}

TEST_F(Captures, AFullDiskIsReported) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "/dev/full is absent";
  const auto full = write_all("/dev/full", sample(3));
  ASSERT_FALSE(full.ok());
  EXPECT_THAT(to_string(full.error()), HasSubstr("No space left on device"));
  const auto many = write_all("/dev/full", sample(5000));  // fails in append, before commit
  ASSERT_FALSE(many.ok());
  fs::create_symlink("/dev/full", path("full.pcap.gz"));
  const auto gzip = write_all(path("full.pcap.gz"), sample(5000));
  ASSERT_FALSE(gzip.ok());
  EXPECT_THAT(to_string(gzip.error()), HasSubstr("No space left on device"));
}

TEST_F(Captures, AFileSizeLimitIsReportedAndNothingIsLeft) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{1 << 16, old.rlim_max};
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto result = write_all(path("big.pcap"), sample(3000));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, previous);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(to_string(result.error()), HasSubstr("File too large"));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Captures, PipesWorkBothWays) {
  const auto packets = sample(400);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::thread source([&] { EXPECT_TRUE(write_all(path("pipe"), packets).ok()); });
  EXPECT_EQ(read_all(path("pipe")), packets);
  source.join();
  EXPECT_THAT(files(), UnorderedElementsAre("pipe"));
}

TEST_F(Captures, StandardInputAndOutput) {
  const auto packets = sample(20);
  fflush(stdout);
  const int saved_out = dup(STDOUT_FILENO);
  const int file = ::open(path("out.pcap").c_str(), O_WRONLY | O_CREAT, 0600);
  dup2(file, STDOUT_FILENO);
  const auto written = write_all("-", packets);
  dup2(saved_out, STDOUT_FILENO);
  close(saved_out);
  close(file);
  ASSERT_TRUE(written.ok());
  const int saved_in = dup(STDIN_FILENO);
  const int input = ::open(path("out.pcap").c_str(), O_RDONLY);
  dup2(input, STDIN_FILENO);
  const auto got = read_all("-");
  dup2(saved_in, STDIN_FILENO);
  close(saved_in);
  close(input);
  EXPECT_EQ(got, packets);
}

TEST_F(Captures, AStoreHoldsTheSameFrames) {
  const auto packets = sample(700);
  ASSERT_TRUE(write_all(path("a.pcap.gz"), packets, {.snaplen = 800}).ok());
  auto store = FrameStore::load(path("a.pcap.gz"));
  ASSERT_TRUE(store.ok());
  ASSERT_EQ(store->size(), packets.size());
  uint64_t wire = 0;
  for (uint64_t i = 0; i < store->size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(store->frame(i)) % FrameStore::kAlignment, 0u);
    EXPECT_GE(store->offsets()[i],
              (i == 0 ? 0 : store->offsets()[i - 1] + store->captured()[i - 1]) + FrameStore::kHeadroom);
    EXPECT_LE(store->offsets()[i] + store->captured()[i] + FrameStore::kHeadroom, store->buffer().size());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(store->frame(i)), store->captured()[i]),
              packets[i].bytes.substr(0, 800));
    EXPECT_EQ(store->header(i).wire_bytes, packets[i].wire_bytes);
    EXPECT_EQ(store->header(i).timestamp_ns, packets[i].timestamp_ns);
    wire += packets[i].wire_bytes;
  }
  EXPECT_EQ(store->total_wire_bytes(), wire);
  auto few = FrameStore::load(path("a.pcap.gz"), {.max_packets = 10});
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->size(), 10u);
}

TEST_F(Captures, AStoreRefusesToPassItsMemoryLimit) {
  ASSERT_TRUE(write_all(path("a.pcap"), sample(700)).ok());
  const auto store = FrameStore::load(path("a.pcap"), {.max_bytes = 100'000});
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(to_string(store.error()), HasSubstr("does not fit"));
  EXPECT_THAT(to_string(store.error()), HasSubstr("a.pcap"));
  FrameStore capped({.max_bytes = 100'000});
  EXPECT_FALSE(capped.reserve(1000, 64'000).ok());
  EXPECT_FALSE(capped.reserve(UINT64_MAX, UINT64_MAX).ok());
  EXPECT_TRUE(capped.reserve(100, 6'400).ok());
  const std::byte* before = capped.buffer().data();
  for (int i = 0; i < 100; ++i) ASSERT_NE(capped.add({64, 64, 0}), nullptr);
  EXPECT_EQ(capped.buffer().data(), before);
  EXPECT_EQ(capped.add({kMaxCapturedBytes + 1, 0, 0}), nullptr);
  EXPECT_THAT(capped.error().message, HasSubstr("262145"));
}

TEST(CaptureData, RealCapturesAreReadToTheirEnd) {
  const auto folder = test_data("pcap");
  if (!folder) GTEST_SKIP() << "no test captures (set SLUICE_DATA)";
  size_t files = 0;
  size_t packets = 0;
  for (const auto& entry : fs::recursive_directory_iterator(*folder)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    auto reader = CaptureReader::open(entry.path().string());
    if (!reader.ok()) {  // a few are not Ethernet; the refusal has to say so
      EXPECT_THAT(to_string(reader.error()), HasSubstr("only Ethernet")) << entry.path();
      continue;
    }
    std::string error;
    packets += drain(*reader, &error).size();
    if (!error.empty()) {
      EXPECT_THAT(error, HasSubstr("packet ")) << entry.path();
    }
  }
  EXPECT_GE(files, 15u);
  EXPECT_GT(packets, 7000u);
  const auto sanitized = test_data("pcap/snabb/sanitized4k.pcap");
  ASSERT_TRUE(sanitized.has_value());
  EXPECT_EQ(read_all(*sanitized).size(), 4096u);
}

}  // namespace
}  // namespace sluice
