// What every kind of port keeps, whatever it is. A new one joins by a struct like those below and its name in
// AllPorts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "exec/engine/ports.h"
#include "ports/pcap/capture_reader.h"
#include "ports/pcap/capture_writer.h"

namespace sluice {
namespace {

struct PortFrame {
  std::vector<uint8_t> bytes;
  uint32_t wire;
  uint64_t timestamp_ns;
  friend bool operator==(const PortFrame&, const PortFrame&) = default;
};

// Frames of many lengths, some of them cut off, in the order of their times.
std::vector<PortFrame> sample_frames() {
  std::vector<PortFrame> frames;
  for (uint32_t i = 0; i < 300; ++i) {
    std::vector<uint8_t> bytes(1 + (i * 97) % 1514);
    for (uint32_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<uint8_t>(i * 31 + k);
    const auto captured = static_cast<uint32_t>(bytes.size());
    frames.push_back({std::move(bytes), captured + (i % 5 == 0 ? i : 0), 1'700'000'000'000'000'001ull + i * 1000});
  }
  return frames;
}

void write_capture(const std::string& path, const std::vector<PortFrame>& frames) {
  auto writer = CaptureWriter::create(path);
  ASSERT_TRUE(writer.ok());
  for (const PortFrame& f : frames) {
    const FrameHeader header{static_cast<uint32_t>(f.bytes.size()), f.wire, f.timestamp_ns};
    ASSERT_TRUE(writer->append(header, f.bytes.data()));
  }
  ASSERT_TRUE(writer->commit(Ending::kWhole).ok());
}

std::vector<PortFrame> read_capture(const std::string& path) {
  std::vector<PortFrame> frames;
  auto reader = CaptureReader::open(path);
  EXPECT_TRUE(reader.ok());
  CapturedFrame frame;
  while (reader.ok()) {
    auto more = reader->next(frame);
    EXPECT_TRUE(more.ok());
    if (!more.ok() || !*more) break;
    frames.push_back({{frame.data, frame.data + frame.captured}, frame.wire_bytes, frame.timestamp_ns});
  }
  return frames;
}

// A kind of port says what it can do; what it cannot has no function.
//   source(path, frames)  makes the port deliver `frames` (or some of its own, which it leaves there)
//   kPlaysFiles           what it delivers is a file's, so that a damaged one is an error
//   sink(path)            the port as an output
//   sent(path)            what has left by it, where that can be seen
struct CapturePort {
  static constexpr bool kPlaysFiles = true;
  static PortSpec at(const std::string& path) {
    PortSpec spec;
    spec.type = PortSpec::Type::kCapture;
    spec.path = path;
    return spec;
  }
  static PortSpec source(const std::string& path, std::vector<PortFrame>& frames) {
    write_capture(path, frames);
    return at(path);
  }
  static PortSpec sink(const std::string& path) { return at(path); }
  static std::vector<PortFrame> sent(const std::string& path) { return read_capture(path); }
};
struct MemoryPort {
  static constexpr bool kPlaysFiles = true;
  static PortSpec at(const std::string& path) {
    PortSpec spec;
    spec.type = PortSpec::Type::kMemory;
    spec.path = path;
    return spec;
  }
  static PortSpec source(const std::string& path, std::vector<PortFrame>& frames) {
    write_capture(path, frames);
    return at(path);
  }
  static PortSpec sink(const std::string&) { return at({}); }
};
struct PatternPort {
  static PortSpec source(const std::string&, std::vector<PortFrame>& frames) {
    PortSpec spec;
    spec.type = PortSpec::Type::kPattern;
    spec.pattern = frames[0].bytes;
    spec.limit = frames.size();
    for (size_t i = 0; i < frames.size(); ++i)
      frames[i] = {spec.pattern, static_cast<uint32_t>(spec.pattern.size()), i * 1000};
    return spec;
  }
};
struct NullPort {
  static PortSpec sink(const std::string&) { return PortSpec(); }
};
using AllPorts = std::tuple<CapturePort, MemoryPort, PatternPort, NullPort>;

// The ports of the list that can do something, as a list for typed tests.
template <typename Port>
concept Reads = requires(std::vector<PortFrame>& frames) {
  Port::source("", frames);
};
template <typename Port>
concept PlaysFiles = requires {
  Port::kPlaysFiles;
};
template <typename Port>
concept Writes = requires {
  Port::sink("");
};
template <typename Port>
concept Shows = requires {
  Port::sent("");
};
template <typename>
struct TypesOf;
template <typename... Port>
struct TypesOf<std::tuple<Port...>> {
  template <bool kKeep, typename P>
  using Kept = std::conditional_t<kKeep, std::tuple<P>, std::tuple<>>;
  using Sources = TypesOf<decltype(std::tuple_cat(Kept<Reads<Port>, Port>{}...))>;
  using Files = TypesOf<decltype(std::tuple_cat(Kept<PlaysFiles<Port>, Port>{}...))>;
  using Sinks = TypesOf<decltype(std::tuple_cat(Kept<Writes<Port>, Port>{}...))>;
  using Shown = TypesOf<decltype(std::tuple_cat(Kept<Shows<Port>, Port>{}...))>;
  using Loops = TypesOf<decltype(std::tuple_cat(Kept < Reads<Port> && Shows<Port>, Port > {}...))>;
  using All = ::testing::Types<Port...>;
};

template <typename Port>
class PortConformance : public ::testing::Test {
 protected:
  static constexpr bool kReads = requires(std::vector<PortFrame> & f) { Port::source("", f); };
  static constexpr bool kWrites = requires { Port::sink(""); };

  void SetUp() override {
    folder_ = ::testing::TempDir() + "port_conformance_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<BatchSource> open(const PortSpec& spec) {
    auto source = open_source(spec, cache_);
    EXPECT_TRUE(source.ok()) << (source.ok() ? "" : to_string(source.error()));
    return source.ok() ? std::move(*source) : nullptr;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    return names;
  }
  // The whole of a source, by batches of at most `limit`; their rows are in order and none is too many.
  static std::vector<PortFrame> drain(BatchSource& source, uint32_t limit) {
    Batch batch = Batch::create(256, size_t{1} << 20).value();
    batch.set_limit(limit);
    std::vector<PortFrame> got;
    while (true) {
      const auto ok = source.read(batch);
      EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : to_string(ok.error()));
      if (!ok.ok() || batch.size() == 0) return got;
      EXPECT_LE(batch.size(), limit);
      const uint8_t* end = nullptr;
      for (uint32_t i = 0; i < batch.size(); ++i) {
        const Extent& e = batch.extent(i);
        EXPECT_EQ(batch.order(i), i);
        EXPECT_EQ(e.data, 0);
        EXPECT_LE(e.end, e.wire_end);
        EXPECT_EQ(batch.annotation(i).rule, 0u);
        EXPECT_TRUE(end == nullptr || batch.frame(i) - kHeadroom >= end) << "frames share memory";
        end = batch.frame(i) + e.end + kTailroom;
        got.push_back({{batch.frame(i), batch.frame(i) + e.end}, e.wire_end, batch.timestamp_ns(i)});
        // Programs write there; the port has to bear it.
        std::memset(batch.frame(i) - kHeadroom, 0xee, kHeadroom + e.end + kTailroom);
        batch.annotation(i).rule = 7;
      }
    }
  }
  static std::vector<TxRecord> records_of(const std::vector<PortFrame>& frames) {
    std::vector<TxRecord> records;
    for (const PortFrame& f : frames) {
      const auto n = static_cast<uint32_t>(records.size());
      records.push_back({f.bytes.data(), f.timestamp_ns, static_cast<uint32_t>(f.bytes.size()), f.wire, n, 0, 0, 0});
    }
    return records;
  }

  std::string folder_;
  FrameCache cache_;
};
template <typename Port>
class PortSource : public PortConformance<Port> {};
template <typename Port>
class PortFile : public PortConformance<Port> {};
template <typename Port>
class PortSink : public PortConformance<Port> {};
template <typename Port>
class PortShown : public PortConformance<Port> {};
template <typename Port>
class PortLoop : public PortConformance<Port> {};
TYPED_TEST_SUITE(PortConformance, TypesOf<AllPorts>::All);
TYPED_TEST_SUITE(PortSource, TypesOf<AllPorts>::Sources::All);
TYPED_TEST_SUITE(PortFile, TypesOf<AllPorts>::Files::All);
TYPED_TEST_SUITE(PortSink, TypesOf<AllPorts>::Sinks::All);
TYPED_TEST_SUITE(PortShown, TypesOf<AllPorts>::Shown::All);
TYPED_TEST_SUITE(PortLoop, TypesOf<AllPorts>::Loops::All);

// A port that cannot be read is refused as a source, one that cannot be written is no sink.
TYPED_TEST(PortConformance, SaysWhatItCanDo) {
  std::vector<PortFrame> frames = sample_frames();
  PortSpec spec;
  if constexpr (Reads<TypeParam>) {
    spec = TypeParam::source(this->folder_ + "/in", frames);
  } else {
    spec = TypeParam::sink(this->folder_ + "/in");
  }
  const auto source = open_source(spec, this->cache_);
  EXPECT_EQ(source.ok(), Reads<TypeParam>);
  if (!source.ok()) {
    EXPECT_EQ(source.error().message, "this port cannot receive");
  }
  if constexpr (Writes<TypeParam>) spec = TypeParam::sink(this->folder_ + "/out");
  const auto sink = open_sink(spec);
  ASSERT_TRUE(sink.ok());
  if (!Writes<TypeParam>) {
    EXPECT_EQ(*sink, nullptr);
  }
}

TYPED_TEST(PortSource, ASourceDeliversEveryFrameInOrderOnce) {
  for (const uint32_t limit : {1u, 7u, 256u}) {
    SCOPED_TRACE(limit);
    auto frames = sample_frames();
    const PortSpec spec = TypeParam::source(this->folder_ + "/in", frames);
    const auto source = this->open(spec);
    ASSERT_NE(source, nullptr);
    EXPECT_TRUE(this->drain(*source, limit) == frames);
    // The end stays the end.
    Batch batch = Batch::create(16, size_t{1} << 16).value();
    for (int again = 0; again < 3; ++again) {
      ASSERT_TRUE(source->read(batch).ok());
      EXPECT_EQ(batch.size(), 0u);
    }
  }
}

TYPED_TEST(PortSource, ASourceEndsAtItsLimit) {
  auto frames = sample_frames();
  PortSpec spec = TypeParam::source(this->folder_ + "/in", frames);
  for (const uint64_t limit : {0, 1, 299, 300}) {
    spec.limit = limit;
    const auto source = this->open(spec);
    ASSERT_NE(source, nullptr);
    EXPECT_TRUE(this->drain(*source, 64) ==
                std::vector<PortFrame>(frames.begin(), frames.begin() + static_cast<ptrdiff_t>(limit)));
  }
}

TYPED_TEST(PortSource, AFrameLargerThanTheBatchsMemoryIsDelivered) {
  std::vector<PortFrame> frames = {{std::vector<uint8_t>(200'000, 5), 200'000, 1000}, {{1, 2, 3}, 3, 2000}};
  const PortSpec spec = TypeParam::source(this->folder_ + "/in", frames);
  const auto source = this->open(spec);
  ASSERT_NE(source, nullptr);
  EXPECT_TRUE(this->drain(*source, 1) == frames);
}

TYPED_TEST(PortFile, WhatCannotBeReadIsAnErrorThatNamesIt) {
  auto frames = sample_frames();
  PortSpec spec = TypeParam::source(this->folder_ + "/in", frames);
  spec.path = this->folder_ + "/absent";
  auto absent = open_source(spec, this->cache_);
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(to_string(absent.error()).find(spec.path), std::string::npos) << to_string(absent.error());
  // A file that ends inside a frame: what stands before comes, then the error, here or at opening.
  spec.path = this->folder_ + "/in";
  std::filesystem::resize_file(spec.path, std::filesystem::file_size(spec.path) - 5);
  auto cut = open_source(spec, this->cache_);
  size_t delivered = 0;
  Batch batch = Batch::create(64, size_t{1} << 20).value();
  while (cut.ok()) {
    auto ok = (*cut)->read(batch);
    if (!ok.ok()) {
      EXPECT_EQ(delivered, frames.size() - 1);
      cut = std::move(ok).error();
      break;
    }
    ASSERT_GT(batch.size(), 0u) << "the damage was taken for the end";
    delivered += batch.size();
  }
  EXPECT_NE(to_string(cut.error()).find(spec.path), std::string::npos) << to_string(cut.error());
}

TYPED_TEST(PortSink, ASinkTakesEveryRecordAndCountsIt) {
  const std::string path = this->folder_ + "/out";
  const auto frames = sample_frames();
  const auto records = this->records_of(frames);
  auto sink = open_sink(TypeParam::sink(path));
  ASSERT_TRUE(sink.ok());
  if (*sink == nullptr) return;  // drops: the executor counts
  for (size_t at = 0; at < records.size(); at += 37) {
    size_t written = 0;
    const auto some = std::span(records).subspan(at, std::min<size_t>(37, records.size() - at));
    ASSERT_TRUE((*sink)->write(some, written).ok());
    EXPECT_EQ(written, some.size());
  }
  ASSERT_TRUE((*sink)->settle().ok());
  if (AtomicFile* const file = (*sink)->file()) {
    ASSERT_TRUE(file->commit().ok());
  }
  if constexpr (requires { TypeParam::sent(path); }) {
    EXPECT_TRUE((*sink)->reads_frames());
    EXPECT_TRUE(TypeParam::sent(path) == frames);
  }
}

// What left by a port comes back by the same kind of port.
TYPED_TEST(PortLoop, ALoopGivesWhatWentIn) {
  auto frames = sample_frames();
  const auto source = this->open(TypeParam::source(this->folder_ + "/in", frames));
  ASSERT_NE(source, nullptr);
  auto sink = open_sink(TypeParam::sink(this->folder_ + "/out"));
  ASSERT_TRUE(sink.ok());
  Batch batch = Batch::create(50, size_t{1} << 20).value();
  while (true) {
    ASSERT_TRUE(source->read(batch).ok());
    if (batch.size() == 0) break;
    std::vector<TxRecord> records;
    for (uint32_t i = 0; i < batch.size(); ++i) records.push_back(tx_record(batch, i, 0));
    size_t written = 0;
    ASSERT_TRUE((*sink)->write(records, written).ok());
    ASSERT_EQ(written, records.size());
  }
  ASSERT_TRUE((*sink)->settle().ok());
  if (AtomicFile* const file = (*sink)->file()) {
    ASSERT_TRUE(file->commit().ok());
  }
  EXPECT_TRUE(TypeParam::sent(this->folder_ + "/in") == TypeParam::sent(this->folder_ + "/out"));
}

TYPED_TEST(PortSink, WithoutACommitNothingIsLeft) {
  const auto frames = sample_frames();
  const auto records = this->records_of(frames);
  {
    auto sink = open_sink(TypeParam::sink(this->folder_ + "/out"));
    ASSERT_TRUE(sink.ok());
    if (*sink != nullptr) {
      size_t written = 0;
      ASSERT_TRUE((*sink)->write(records, written).ok());
    }
  }
  EXPECT_EQ(this->files(), std::vector<std::string>());
}

TYPED_TEST(PortShown, WhatCannotBeWrittenIsAnErrorThatNamesIt) {
  const std::string path = this->folder_ + "/absent/out";
  auto sink = open_sink(TypeParam::sink(path));
  ASSERT_FALSE(sink.ok());
  EXPECT_NE(to_string(sink.error()).find(path), std::string::npos) << to_string(sink.error());
}

}  // namespace
}  // namespace sluice
