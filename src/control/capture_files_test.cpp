// The files of a capture are read back, also those of a ring.
#include "control/capture_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/base64.h"
#include "control/json.h"
#include "ports/pcap/capture_reader.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

class CaptureFolder {
 public:
  CaptureFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sluice-capture-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~CaptureFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::string path_;
};

Json made_packet(const char* input, size_t bytes) {
  return {{"input", input},
          {"timestamp_ns", 1'700'000'000'123'456'789},
          {"bytes", 2000},
          {"comment", "dropped: acl-deny at acl; rule 1 at edge.acl:1"},
          {"frame", to_base64(std::string(bytes, 'x'))}};
}
size_t packets_in(const std::string& path) {
  auto reader = CaptureReader::open(path);
  if (!reader.ok()) {
    ADD_FAILURE() << reader.error().message;
    return 0;
  }
  size_t all = 0;
  std::array<CapturedFrame, 8> frames;
  while (true) {
    const auto n = reader->next(frames);
    EXPECT_TRUE(n.ok());
    if (!n.ok() || *n == 0) return all;
    for (const CapturedFrame& frame : std::span(frames).first(*n)) {
      EXPECT_EQ(frame.timestamp_ns, 1'700'000'000'123'456'789u);
      EXPECT_EQ(frame.wire_bytes, 2000u);
    }
    all += *n;
  }
}

TEST(CaptureFilesTest, OneFileIsReadBack) {
  const CaptureFolder folder;
  auto files = CaptureFiles::create(folder / "a.pcapng", {});
  ASSERT_TRUE(files.ok());
  files->describe({"north", "west"}, 100);
  for (const char* input : {"west", "east", "west"}) ASSERT_TRUE(files->add(made_packet(input, 60), 0).ok());
  ASSERT_TRUE(files->finish().ok());
  EXPECT_EQ(packets_in(folder / "a.pcapng"), 3u);
}

TEST(CaptureFilesTest, ARingGoesOnWithANewFileAndKeepsTheNewest) {
  const CaptureFolder folder;
  auto files = CaptureFiles::create(folder / "a.b.pcapng", {.bytes = 250, .time_ns = 0, .files = 2});
  ASSERT_TRUE(files.ok());
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(files->add(made_packet("west", 60), 0).ok());  // two have 250 bytes
  ASSERT_TRUE(files->finish().ok());
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a.b_00003.pcapng", "a.b_00004.pcapng"}));
  EXPECT_EQ(packets_in(folder / "a.b_00003.pcapng"), 2u);
  EXPECT_EQ(packets_in(folder / "a.b_00004.pcapng"), 1u);

  const CaptureFolder timed;
  files = CaptureFiles::create(timed / "t", {.bytes = 0, .time_ns = 100, .files = 0});
  ASSERT_TRUE(files.ok());
  ASSERT_TRUE(files->add(made_packet("west", 60), 1000).ok());
  ASSERT_TRUE(files->flush(1099).ok());
  EXPECT_TRUE(files->places().empty());
  ASSERT_TRUE(files->flush(1100).ok());
  ASSERT_TRUE(files->flush(2000).ok());
  ASSERT_TRUE(files->add(made_packet("west", 60), 2000).ok());
  ASSERT_TRUE(files->finish().ok());
  EXPECT_EQ(timed.names(), (std::vector<std::string>{"t_00001", "t_00002"}));
}

TEST(CaptureFilesTest, AFullDiskIsAnErrorAndARingNeedsAFile) {
  auto full = CaptureFiles::create("/dev/full", {});
  ASSERT_TRUE(full.ok());
  ASSERT_TRUE(full->add(made_packet("west", 60), 0).ok());
  EXPECT_FALSE(full->flush(0).ok());
  EXPECT_FALSE(full->finish().ok());
  EXPECT_FALSE(CaptureFiles::create("/dev/null", {.bytes = 1, .time_ns = 0, .files = 0}).ok());
  const CaptureFolder folder;
  EXPECT_FALSE(CaptureFiles::create(folder / "none/a.pcapng", {}).ok());
}

}  // namespace
}  // namespace sluice
