// One graph gives the same bytes, counters and lines whether its segments run on the CPU or on a device, whatever
// crosses the bus and by which transport. The emulated device is always there; CUDA devices join where they exist.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "exec/device/copied_runs.h"
#include "net/packet_builder.h"
#include "ports/memory/frame_store.h"
#include "ports/pcap/capture_writer.h"
#include "tables/acl/algorithms.h"
#include "tables/lpm/algorithms.h"
#include "tests/testing/device_ways.h"
#include "tests/testing/devices.h"
#include "tests/testing/run_graph.h"

namespace sluice {
namespace {

using testing::DeviceOutcome;
using testing::expect_equal;
using testing::kWatched;
using testing::TempDir;
using testing::Way;

constexpr uint32_t packets(uint32_t n) {
  return kWatched ? n / 5 : n;
}

std::vector<Way> ways() {
  using enum RecordChoice;
  std::vector<Way> all;
  for (const auto& [mode, transport] :
       {std::pair{DeviceMode::kLaunch, Transport::kStaged}, std::pair{DeviceMode::kLaunch, Transport::kZeroCopy},
        std::pair{DeviceMode::kPersistent, Transport::kStaged}, std::pair{DeviceMode::kAdaptive, Transport::kStaged}}) {
    for (const RecordChoice records : {kAuto, kKey, kFrame}) {
      if (!kWatched || records == kFrame) all.push_back({mode, transport, records, 1, 256});
    }
    all.push_back({mode, transport, kAuto, 3, 100});
    all.push_back({mode, transport, kKey, 1, 64, 1, 4, 0, DeviceThreading::kFull, false});
    all.push_back({mode, transport, kFrame, 2, 33, 2});
  }
  all.push_back({DeviceMode::kLaunch, Transport::kStaged, kFrame, 3, 100, 2});
  all.push_back({DeviceMode::kLaunch, Transport::kZeroCopy, kFrame, 2, 300});
  for (const DeviceMode mode : {DeviceMode::kPersistent, DeviceMode::kAdaptive}) {
    all.push_back({mode, Transport::kZeroCopy, kFrame, 3, 100, 2, 2});
    all.push_back({mode, Transport::kCommList, kFrame, 2, 1000, 1, 8});
    all.push_back({mode, Transport::kCommPool, kFrame, 2, 33});
  }
  for (const Transport transport : {Transport::kCommList, Transport::kCommPool}) {
    all.push_back({DeviceMode::kLaunch, transport, kAuto, 1, 256});
    all.push_back({DeviceMode::kLaunch, transport, kKey, 1, 256});
    all.push_back({DeviceMode::kLaunch, transport, kFrame, 3, 100, 2});
  }
  if (kWatched) return all;
  all.push_back({DeviceMode::kLaunch, Transport::kCommPool, kFrame, 2, 8192, 2, 2});
  all.push_back({DeviceMode::kAdaptive, Transport::kCommPool, kAuto, 1, 256});
  all.push_back({DeviceMode::kPersistent, Transport::kStaged, kAuto, 1, 1, 1, 1});
  all.push_back({DeviceMode::kPersistent, Transport::kStaged, kKey, 2, 8192, 1, 2});
  all.push_back({DeviceMode::kLaunch, Transport::kStaged, kKey, 3, 64, 3, 8});
  all.push_back({DeviceMode::kLaunch, Transport::kStaged, kAuto, 2, 256, 1, 4, 100'000});
  all.push_back({DeviceMode::kAdaptive, Transport::kStaged, kKey, 1, 1024, 1, 4, 50'000});
  all.push_back({DeviceMode::kAdaptive, Transport::kStaged, kFrame, 1, 1024, 1, 4, 50'000});
  using enum DeviceThreading;
  for (const auto& [mode, transport] :
       {std::pair{DeviceMode::kLaunch, Transport::kStaged}, std::pair{DeviceMode::kPersistent, Transport::kStaged},
        std::pair{DeviceMode::kAdaptive, Transport::kStaged}}) {
    all.push_back({mode, transport, kKey, 1, 256, 1, 4, 0, kMaster});
    all.push_back({mode, transport, kKey, 3, 100, 1, 4, 0, kMaster});
    all.push_back({mode, transport, kAuto, 5, 33, 2, 2, 0, kMaster});
  }
  all.push_back({DeviceMode::kLaunch, Transport::kCommList, kAuto, 2, 256, 1, 4, 0, kMaster});
  all.push_back({DeviceMode::kLaunch, Transport::kCommPool, kAuto, 2, 256, 1, 4, 0, kMaster});
  return all;
}

DeviceOutcome run(const TempDir& dir, const std::string& text, const Way* way, const std::string& kind = "emu") {
  return testing::run_way(dir, text, way,
                          way == nullptr ? testing::Devices() : testing::devices_of(kind, way->devices));
}

std::string standard(const TempDir& dir, const std::string& capture, const std::string& acl = "tuple_space",
                     const std::string& lpm4 = testing::kDirect4, const std::string& lpm6 = "poptrie") {
  return testing::standard_graph_text(dir, "FromDump(" + capture + ")", "ToDump($OUT)", acl, lpm4, lpm6);
}

TEST(DeviceEquality, StandardGraphEveryWay) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(5000));
  const std::string text = standard(dir, capture);
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  for (const std::string& kind : testing::device_kinds()) {
    for (const Way& way : ways()) {
      SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
      const DeviceOutcome got = run(dir, text, &way, kind);
      expect_equal(want, got);
      // Equality says nothing if the packets never left the host.
      EXPECT_GT(got.outcome.report.offload.offloaded, packets(2000));
      EXPECT_EQ(got.outcome.report.offload.rescued, 0u);
      ASSERT_EQ(got.outcome.report.devices.size(), way.devices);
      // Which worker takes a batch, and so which device, is the machine's.
      ChannelStats sent;
      for (const auto& device : got.outcome.report.devices) {
        EXPECT_EQ(device.failure, "");
        sent.add(device.channels);
      }
      EXPECT_GT(sent.records, 0u);
      if (way.mode == DeviceMode::kPersistent) {
        EXPECT_EQ(sent.launches, 0u);
      } else if (way.mode == DeviceMode::kLaunch && way.threading == DeviceThreading::kFull) {
        EXPECT_EQ(sent.launches, sent.flights);
      }
    }
  }
}

TEST(DeviceEquality, StandardGraphWithTablesInEveryMemory) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", kWatched ? 800 : 3000);
  // What is small enough for constant memory.
  for (const char* acl : {"tuple_merge", "tuple_space", "linear"}) {
    const std::string text = standard(dir, capture, acl, "trie", "trie");
    const DeviceOutcome want = run(dir, text, nullptr);
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    for (const std::string& kind : testing::device_kinds()) {
      for (const TableMemory memory : {TableMemory::kGlobal, TableMemory::kConstant, TableMemory::kShared}) {
        for (const RecordChoice records : {RecordChoice::kKey, RecordChoice::kFrame}) {
          for (const Transport transport : {Transport::kStaged, Transport::kZeroCopy}) {
            for (const unsigned workers : {1u, 3u}) {
              const Way way{DeviceMode::kLaunch, transport, records, workers, workers == 1 ? 256u : 100u};
              SCOPED_TRACE(fmt::format("{} {} {}, {}", kind, acl, to_string(memory), ::testing::PrintToString(way)));
              const testing::Devices devices = testing::devices_of(kind, 1);
              devices[0]->use_table_memory(memory);
              const DeviceOutcome got = testing::run_way(dir, text, &way, devices);
              devices[0]->use_table_memory(TableMemory::kGlobal);
              expect_equal(want, got);
              // Equality says nothing if the packets never left the host.
              EXPECT_GT(got.outcome.report.offload.offloaded, 300u);
              ASSERT_EQ(got.outcome.report.devices.size(), 1u);
              EXPECT_EQ(got.outcome.report.devices[0].failure, "");
            }
          }
        }
      }
    }
  }
}

// A capture of the frames of another that have at most so many bytes, again and again until there are `count`; 0: once.
std::string short_frames(const TempDir& dir, const std::string& from, uint32_t most, uint32_t count = 0) {
  std::string path = dir / fmt::format("short{}.pcap", most);
  auto store = FrameStore::load(from);
  auto writer = CaptureWriter::create(path);
  EXPECT_TRUE(store.ok() && writer.ok());
  uint32_t written = 0;
  do {
    for (uint64_t i = 0; i < store->size() && (count == 0 || written < count); ++i) {
      const FrameHeader header = store->header(i);
      if (header.captured > most) continue;
      EXPECT_TRUE(writer->append(header, store->frame(i)));
      ++written;
    }
  } while (written != 0 && written < count);
  EXPECT_TRUE(writer->commit().ok());
  return path;
}

// Frames that cross from where they lie in their source, which nobody may write to, and come back elsewhere: also what
// is done again, what goes on to host elements, what is played more than once, long frames of which the headers alone
// cross, and sinks that only count, for which no column of the batch is filled.
TEST(DeviceEquality, FramesCrossFromTheMemoryOfTheirSource) {
  const TempDir dir;
  const std::string mixed = testing::write_mixed_capture(dir / "in.pcap", packets(5000), 9);
  const std::string brief = short_frames(dir, mixed, 192);
  const std::string errors =
      "errors :: ICMPError(192.0.0.1, RATE 100000, BURST 5);\nacl[1] -> errors; ttl[1] -> errors; errors -> tx;\n";
  using enum RecordChoice;
  const std::vector<Way> staged = {{DeviceMode::kLaunch, Transport::kStaged, kFrame, 1, 256},
                                   {DeviceMode::kLaunch, Transport::kStaged, kFrame, 3, 1000, 2, 2},
                                   {DeviceMode::kLaunch, Transport::kStaged, kFrame, 1, 1, 1, 1}};
  const auto there = [](Way way) {
    way.frames_there = true;
    return way;
  };
  const std::vector<Way> resident = {there(staged[0]), there(staged[1]),
                                     there({DeviceMode::kLaunch, Transport::kZeroCopy, kFrame, 2, 2000, 2}),
                                     there({DeviceMode::kLaunch, Transport::kCommPool, kFrame, 1, 900}),
                                     there({DeviceMode::kPersistent, Transport::kStaged, kFrame, 2, 900})};
  const std::vector<Way> zero_copy = {{DeviceMode::kLaunch, Transport::kZeroCopy, kFrame, 2, 2000},
                                      {DeviceMode::kLaunch, Transport::kZeroCopy, kFrame, 1, 8192},
                                      {DeviceMode::kLaunch, Transport::kZeroCopy, kFrame, 3, 100, 2, 2},
                                      {DeviceMode::kLaunch, Transport::kCommList, kAuto, 2, 1000},
                                      {DeviceMode::kLaunch, Transport::kCommPool, kAuto, 3, 900, 2},
                                      {DeviceMode::kPersistent, Transport::kStaged, kFrame, 2, 1000},
                                      {DeviceMode::kAdaptive, Transport::kStaged, kFrame, 1, 300}};
  const auto check = [&](const std::string& capture, uint32_t limit, const std::vector<Way>& all,
                         const std::vector<std::string>& rests) {
    for (const std::string sink : {"ToDump($OUT)", "ToMemory()"}) {
      for (const std::string& rest : rests) {
        for (const bool hits : {true, false}) {
          const std::string text =
              testing::standard_graph_text(dir, "FromMemory(" + capture + ", LIMIT " + std::to_string(limit) + ")",
                                           sink, "tuple_merge", testing::kDirect4, "poptrie") +
              rest;
          const auto run_it = [&](const Way* way, const std::string& kind) {
            return testing::run_way(dir, text, way,
                                    way == nullptr ? testing::Devices() : testing::devices_of(kind, way->devices),
                                    [&](testing::GraphRun& graph) { graph.count_hits = hits; });
          };
          const DeviceOutcome want = run_it(nullptr, "emu");
          ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
          ASSERT_EQ(want.outcome.report.packets_in, limit);
          for (const std::string& kind : testing::device_kinds()) {
            for (const Way& way : all) {
              SCOPED_TRACE(capture + " " + sink + " " + rest + (hits ? "hits " : "") + kind + " " +
                           ::testing::PrintToString(way));
              const DeviceOutcome got = run_it(&way, kind);
              expect_equal(want, got);
              EXPECT_GT(got.outcome.report.offload.offloaded, limit / 3);
              EXPECT_EQ(got.outcome.report.offload.on_host, 0u);
            }
          }
        }
      }
    }
  };
  // The last batch ends within the first half of a block of results.
  const uint32_t limit = packets(9000) - 22;
  check(brief, limit, staged, {"", errors});
  check(brief, limit, zero_copy, {"", errors});
  check(mixed, limit, {staged[1]}, {"", errors});
  check(brief, limit, resident, {"", errors});
  check(mixed, limit, resident, {"", errors});
  check(mixed, limit, zero_copy, {"", errors});
}

// Packets of classes stay where their source lent them, in a device's memory: chunks name them one by one, in whatever
// order they lie, also past the source's end; what the device cannot do is done from the host's copy, and other sinks
// than those that count get frames that were copied.
TEST(DeviceEquality, ClassesStayInADevicesMemory) {
  const TempDir dir;
  const std::string mixed = testing::write_mixed_capture(dir / "in.pcap", packets(5000), 31);
  const uint32_t limit = packets(12'000);
  // Classes overtake each other, so that no error may depend on the ones before.
  const std::string errors =
      "errors :: ICMPError(192.0.0.1, RATE 100000, BURST 100000);\nacl[1] -> errors; ttl[1] -> errors; errors -> tx;\n";
  for (const std::string sink : {"ToMemory()", "ToDump($OUT)"}) {
    for (const std::string& rest : {std::string(), errors}) {
      const std::string text =
          testing::standard_graph_text(dir, "FromMemory(" + mixed + ", LIMIT " + std::to_string(limit) + ")", sink,
                                       "tuple_merge", testing::kDirect4, "poptrie") +
          rest;
      for (const bool hits : {true, false}) {
        const auto run_it = [&](const Way* way, const std::string& kind, uint32_t chunk) {
          return testing::run_way(dir, text, way,
                                  way == nullptr ? testing::Devices() : testing::devices_of(kind, way->devices),
                                  [&](testing::GraphRun& graph) {
                                    graph.count_hits = hits;
                                    graph.priorities.emplace();
                                    graph.priorities->chunk = chunk;
                                  });
        };
        const DeviceOutcome want = run_it(nullptr, "emu", 64);
        ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
        ASSERT_EQ(want.outcome.report.packets_in, limit);
        for (const std::string& kind : testing::device_kinds()) {
          for (const auto& [mode, workers, chunk] :
               {std::tuple(DeviceMode::kLaunch, 1u, 64u), std::tuple(DeviceMode::kPersistent, 3u, 100u),
                std::tuple(DeviceMode::kAdaptive, 2u, 256u), std::tuple(DeviceMode::kLaunch, 2u, 4096u)}) {
            Way way{mode, Transport::kStaged, RecordChoice::kFrame, workers, chunk};
            way.frames_there = true;
            SCOPED_TRACE(sink + " " + rest + (hits ? "hits " : "") + kind + " " + ::testing::PrintToString(way));
            const DeviceOutcome got = run_it(&way, kind, chunk);
            ASSERT_TRUE(got.outcome.ok) << got.outcome.error;
            EXPECT_TRUE(got.outcome.report.conserved());
            EXPECT_EQ(got.outcome.counters, want.outcome.counters);
            EXPECT_EQ(got.bytes.size(), want.bytes.size());
            EXPECT_EQ(got.outcome.report.offload.on_host, 0u);
            EXPECT_EQ(got.outcome.report.offload.rescued, 0u);
            EXPECT_EQ(got.outcome.report.offload.offloaded + got.outcome.report.offload.redone, limit);
            // Records alone cross where frames stay: nothing makes packets of them. A chunk of which some packet goes
            // on elsewhere is done again.
            const ChannelStats& sent = got.outcome.report.devices.at(0).channels;
            if (sink == "ToMemory()" && rest.empty()) {
              EXPECT_EQ(sent.bytes_in, uint64_t{limit} * sizeof(FrameRecord));
            }
          }
        }
      }
    }
  }
}

// Frames of a capture, which no source lends: the device reads them where the batch has them, and tags are pushed and
// padding is cut off; or the host gathers them, and they are copied both ways. Segments that only edit go so as well.
TEST(DeviceEquality, ListsOfFramesAreFrameRecords) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(3000), 21);
  using enum RecordChoice;
  for (const std::string& text :
       {standard(dir, capture), "FromDump(" + capture + ") -> EtherMirror -> ToDump($OUT);"}) {
    const DeviceOutcome want = run(dir, text, nullptr);
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    ASSERT_GT(want.outcome.report.packets_out, packets(300));
    for (const std::string& kind : testing::device_kinds()) {
      for (const Transport transport : {Transport::kCommList, Transport::kCommPool}) {
        for (const Way& way :
             {Way{DeviceMode::kLaunch, transport, kAuto, 1, 256}, Way{DeviceMode::kLaunch, transport, kFrame, 2, 4096},
              Way{DeviceMode::kLaunch, transport, kAuto, 3, 33, 2, 2}}) {
          SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
          const DeviceOutcome got = run(dir, text, &way, kind);
          expect_equal(want, got);
          EXPECT_GT(got.outcome.report.offload.offloaded, packets(1000));
        }
      }
    }
  }
}

// Sums over whole frames, of any length: the device reads them to their end where they lie, and what is appended comes
// back apart, also where nobody fills a column; behind edits, behind padding that is cut off, and of sums that are
// wrong.
TEST(DeviceEquality, SumsAreFrameRecords) {
  const TempDir dir;
  const std::string mixed = testing::write_mixed_capture(dir / "in.pcap", packets(3000), 17);
  const std::string summed = dir / "summed.pcap";
  {
    const DeviceOutcome made = run(dir, "FromDump(" + mixed + ") -> SetCRC32(MODE fcs) -> ToDump($OUT);", nullptr);
    ASSERT_TRUE(made.outcome.ok) << made.outcome.error;
    std::ofstream(summed, std::ios::binary) << made.bytes;
  }
  using enum RecordChoice;
  const uint32_t limit = packets(8000);
  const auto there = [](Way way) {
    way.frames_there = true;
    return way;
  };
  const std::vector<Way> all = {{DeviceMode::kLaunch, Transport::kStaged, kFrame, 1, 256},
                                {DeviceMode::kLaunch, Transport::kStaged, kAuto, 2, 8192},
                                {DeviceMode::kLaunch, Transport::kZeroCopy, kFrame, 3, 1000, 2, 2},
                                {DeviceMode::kLaunch, Transport::kCommList, kAuto, 1, 900},
                                {DeviceMode::kPersistent, Transport::kStaged, kFrame, 2, 900},
                                there({DeviceMode::kLaunch, Transport::kStaged, kFrame, 2, 700})};
  for (const std::string sink : {"ToDump($OUT)", "ToMemory()"}) {
    for (const std::string chain : {"SetCRC32", "EtherMirror -> SetCRC32(MODE fcs)",
                                    "IPInput -> DecIPTTL -> SetCRC32(MODE fcs)", "CheckCRC32(MODE fcs)"}) {
      for (const bool lent : {true, false}) {
        for (const std::string& capture : {mixed, summed}) {
          const std::string from =
              lent ? "FromMemory(" + capture + ", LIMIT " + std::to_string(limit) + ")" : "FromDump(" + capture + ")";
          const std::string text = from + " -> " + chain + " -> " + sink + ";";
          const DeviceOutcome want = run(dir, text, nullptr);
          ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
          for (const std::string& kind : testing::device_kinds()) {
            for (const Way& way : all) {
              SCOPED_TRACE(text + " " + kind + " " + ::testing::PrintToString(way));
              const DeviceOutcome got = run(dir, text, &way, kind);
              expect_equal(want, got);
              EXPECT_EQ(got.outcome.report.devices.at(0).failure, "");
              EXPECT_EQ(got.outcome.report.offload.redone, 0u);
              EXPECT_GE(got.outcome.report.offload.offloaded + got.outcome.report.offload.on_host, packets(2500));
              EXPECT_GE(got.outcome.report.offload.offloaded, packets(1500));
            }
          }
        }
      }
    }
  }
}

// A packet keeps the reason with which it left by an output for errors, and lives on where that leads.
TEST(DeviceEquality, PacketsOfErrorOutputsAreSummedAsAllOthers) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(2000), 31);
  std::string tables = standard(dir, capture);
  tables.erase(tables.find("in ::"));
  const std::pair<const char*, const char*> chains[] = {
      {"input", "i[0] -> second; i[1] -> SetCRC32 -> out;"},
      {"both", "i[0] -> e :: SetCRC32 -> out; i[1] -> e; Idle -> second;"},
      {"hop limit", "i[1] -> second; i[0] -> d :: DecIPTTL; d[0] -> e :: SetCRC32 -> out; d[1] -> e;"},
      {"routes", "i[1] -> second; i[0] -> d :: IPRoute(TABLE main); d[0] -> e :: SetCRC32 -> out; d[1] -> e;"},
      {"list", "i[1] -> second; i[0] -> d :: ACL(TABLE edge); d[0] -> e :: SetCRC32 -> out; d[1] -> e;"},
      {"past the sum", "i[1] -> second; i[0] -> d :: DecIPTTL; d[0] -> SetCRC32 -> out; d[1] -> out;"},
  };
  for (const auto& [name, chain] : chains) {
    const std::string text = tables + "out :: ToDump($OUT); second :: ToDump($OUT2);\nFromDump(" + capture +
                             ") -> i :: IPInput; " + chain + "\n";
    const DeviceOutcome want = run(dir, text, nullptr);
    ASSERT_TRUE(want.outcome.ok) << name << want.outcome.error;
    for (const std::string& kind : testing::device_kinds()) {
      for (const Way& way : ways()) {
        if (way.records != RecordChoice::kFrame) continue;
        SCOPED_TRACE(std::string(name) + " " + kind + " " + ::testing::PrintToString(way));
        const DeviceOutcome got = run(dir, text, &way, kind);
        expect_equal(want, got);
        // A pool of launched kernels has the first bytes of frames alone, which cannot be summed.
        const bool pooled = way.mode == DeviceMode::kLaunch && way.transport == Transport::kCommPool;
        if (pooled) continue;
        EXPECT_GT(got.outcome.report.offload.offloaded, 0u);
      }
    }
  }
}

// More than one run of frames that are copied together (LentRun), of which batches of 8,191 packets may need two.
TEST(DeviceEquality, SumsOfRunsThatAreCopied) {
  const TempDir dir;
  const std::string mixed = testing::write_mixed_capture(dir / "in.pcap", packets(5000), 9);
  const uint32_t run_of = kRunBytes / 64;
  const std::string small = short_frames(dir, mixed, 64, run_of + 1000);
  using enum RecordChoice;
  for (const std::string sink : {"ToDump($OUT)", "ToMemory()"}) {
    const std::string text = "FromMemory(" + small + ", LIMIT " + std::to_string(2 * run_of + 5000) +
                             ") -> SetCRC32(MODE fcs) -> " + sink + ";";
    const DeviceOutcome want = run(dir, text, nullptr);
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    for (const std::string& kind : testing::device_kinds()) {
      for (const Way& way : {Way{DeviceMode::kLaunch, Transport::kStaged, kFrame, 2, 8192},
                             Way{DeviceMode::kLaunch, Transport::kStaged, kFrame, 1, 8191, 1, 8},
                             Way{DeviceMode::kPersistent, Transport::kStaged, kFrame, 1, 8191, 1, 8},
                             Way{DeviceMode::kLaunch, Transport::kStaged, kFrame, 2, 8192, 2}}) {
        SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
        const DeviceOutcome got = run(dir, text, &way, kind);
        expect_equal(want, got);
        EXPECT_EQ(got.outcome.report.offload.offloaded, want.outcome.report.packets_in);
      }
    }
  }
}

// Every way of every kind of device makes of the graph what the host did. Returns the packets that devices answered.
uint64_t equal_everywhere(const TempDir& dir, const std::string& text, const DeviceOutcome& want) {
  uint64_t offloaded = 0;
  for (const std::string& kind : testing::device_kinds()) {
    for (const Way& way : ways()) {
      SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
      const DeviceOutcome got = run(dir, text, &way, kind);
      expect_equal(want, got);
      offloaded += got.outcome.report.offload.offloaded;
    }
  }
  return offloaded;
}

// The destination becomes the gateway of the route that was found: the host finds it by the next hop that comes back,
// and what looks the destination up behind it looks up that.
TEST(DeviceEquality, GatewaysComeBack) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(2000), 11);
  const std::string text =
      "in :: FromDump(" + capture +
      ") -> IPInput -> a :: IPLookup(0/0 192.0.2.1 0, 10.0.0.0/9 198.51.100.7 1, 10.128.0.0/9 2);\n"
      "a[0] -> b :: IPLookup(192.0.2.1/32 0, 198.51.100.7/32 1, 0/0 2); a[1] -> b; a[2] -> b;\n"
      "b[0] -> out :: ToDump($OUT); b[1] -> second :: ToDump($OUT2); b[2] -> Paint(1) -> out;\n";
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_GT(want.outcome.report.packets_out, packets(300));
  EXPECT_GT(equal_everywhere(dir, text, want), packets(1000));
}

// A mark comes back with the rule that gives it; nothing is done again for it.
TEST(DeviceEquality, MarksComeBack) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(2000), 11);
  std::string text = standard(dir, capture);
  text.erase(text.find("in ::"));
  std::ofstream(dir / "marks.acl")
      << "mark(7) udp from any to any\nmark(9) tcp from any to any\npermit ip from any to any\n";
  text += "AclTable(marks, FILE " + (dir / "marks.acl") +
          ");\n"
          "in :: FromDump(" +
          capture +
          ") -> parse :: IPInput -> acl :: ACL(TABLE marks) -> fib :: IPRoute(TABLE main) -> ttl :: DecIPTTL\n"
          "  -> class :: ClassifyMark(7, 9, others);\n"
          "class[0] -> out :: ToDump($OUT); class[1] -> out; class[2] -> second :: ToDump($OUT2);\n";
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_NE(want.bytes, want.second);
  for (const std::string& kind : testing::device_kinds()) {
    for (const bool fast : {true, false}) {
      const Way way{
          DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kKey, 1, 256, 1, 4, 0, DeviceThreading::kFull, fast};
      SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
      const DeviceOutcome got = run(dir, text, &way, kind);
      expect_equal(want, got);
      EXPECT_GT(got.outcome.report.offload.offloaded, packets(1000));
      EXPECT_EQ(got.outcome.report.offload.redone, 0u);
    }
  }
}

// A lookup between Strip and Unstrip, as Click's graphs have it: what was taken off comes back as it was, also where a
// frame has been edited in between. The lookup goes by its key, and the host does the rest, whatever is uncovered.
TEST(DeviceEquality, BringsStrippedHeadersBack) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(2000), 13);
  const auto text = [&](const std::string& between, const std::string& behind) {
    return "in :: FromDump(" + capture + ") -> Strip(14) -> CheckIPHeader -> " + between +
           "rt :: LinearIPLookup(10.0.0.0/8 0, 192.0.2.0/24 1, 0.0.0.0/0 2);\n"
           "rt[0] -> back :: " +
           behind + " -> out :: ToDump($OUT); rt[1] -> back; rt[2] -> back; Idle -> ToDump($OUT2);\n";
  };
  for (const std::string between : {"", "DecIPTTL -> "}) {
    for (const bool more : {false, true}) {
      const std::string graph = text(between, more ? "Unstrip(20)" : "Unstrip(14)");
      const DeviceOutcome want = run(dir, graph, nullptr);
      ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
      ASSERT_GT(want.bytes.size(), 10'000u);
      for (const std::string& kind : testing::device_kinds()) {
        for (const Way& way : {Way{DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kKey, 1, 256},
                               Way{DeviceMode::kLaunch, Transport::kCommList, RecordChoice::kAuto, 2, 128},
                               Way{DeviceMode::kLaunch, Transport::kCommPool, RecordChoice::kAuto, 1, 500},
                               Way{DeviceMode::kPersistent, Transport::kStaged, RecordChoice::kAuto, 2, 128},
                               Way{DeviceMode::kAdaptive, Transport::kStaged, RecordChoice::kKey, 1, 64}}) {
          SCOPED_TRACE(between + (more ? "20 " : "14 ") + kind + " " + ::testing::PrintToString(way));
          const DeviceOutcome got = run(dir, graph, &way, kind);
          expect_equal(want, got);
          EXPECT_GT(got.outcome.report.offload.offloaded, packets(500));
        }
      }
    }
  }
}

TEST(DeviceEquality, EveryAlgorithm) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(1500), 3);
  const Way key{DeviceMode::kPersistent, Transport::kStaged, RecordChoice::kKey, 2, 128};
  const Way frame{DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kFrame, 1, 256};
  const DeviceOutcome want = run(dir, standard(dir, capture, "linear", "trie", "trie"), nullptr);
  const std::vector<std::string> names4 = lpm_algorithm_names4(), names6 = lpm_algorithm_names6();
  for (const std::string& acl : acl_algorithm_names()) {
    for (size_t i = 0; i < names4.size() * names6.size(); ++i) {
      const std::string& lpm4 = names4[i % names4.size()];
      const std::string& lpm6 = names6[i / names4.size()];
      // Every algorithm still, though not with every other: access lists and routes are looked up by stages of their
      // own.
      if ((kWatched || acl != acl_algorithm_names().front()) && i % names4.size() % names6.size() != i / names4.size())
        continue;
      for (const std::string& kind : testing::device_kinds()) {
        for (const Way* way : {&key, &frame}) {
          SCOPED_TRACE(kind + " " + acl + " " + lpm4 + " " + lpm6);
          expect_equal(want, run(dir, standard(dir, capture, acl, lpm4, lpm6), way, kind));
        }
      }
    }
  }
}

// Host elements between segments, copies, packets that elements make, lines, and a way back into the graph.
TEST(DeviceEquality, HostElementsAndMadePackets) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(1000), 2);
  std::string text = standard(dir, capture);
  text.erase(text.find("in ::"));
  text += "in :: FromDump(" + capture +
          ") -> parse :: IPInput -> copy :: Tee(2);\n"
          "copy[0] -> second :: ToDump($OUT2);\n"
          "copy[1] -> acl :: ACL(TABLE edge) -> fib :: IPRoute(TABLE main) -> ttl :: DecIPTTL -> adj :: "
          "AdjacencyRewrite(TABLE adj)\n"
          "  -> shown :: Print(tx, 8) -> out :: ToDump($OUT);\n"
          "errors :: ICMPError(192.0.0.1, RATE 100000, BURST 5);\n"
          "acl[1] -> errors; fib[1] -> errors; ttl[1] -> errors; adj[1] -> errors;\n"
          "errors -> back :: IPRoute(TABLE main) -> ttl;\n";
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_GT(want.outcome.report.generated, packets(500));
  for (const std::string& kind : testing::device_kinds()) {
    for (const Way& way : ways()) {
      SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
      expect_equal(want, run(dir, text, &way, kind));
    }
  }
}

// Programs without a lookup, that read and write whole frames behind patterns and in front of others: neither a key nor
// a frame's result can bring what they do, so that the host does it all.
TEST(DeviceEquality, FramesClassifiersAndSums) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(2000), 5);
  const std::string text =
      "in :: FromDump(" + capture +
      ") -> c :: Classifier(12/0800, 12/86dd, -);\n"
      "c[0] -> EtherMirror -> SetCRC32 -> p :: Paint(3) -> out :: ToDump($OUT);\n"
      "c[1] -> Strip(14) -> six :: CheckIP6Header -> EtherEncap(0x86dd, 02:00:00:00:00:01, 02:00:00:00:00:02)"
      " -> SetCRC32 -> check :: CheckCRC32 -> second :: ToDump($OUT2);\n"
      "c[2] -> Discard;\n";
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_GT(want.outcome.report.packets_out, packets(500));
  EXPECT_EQ(equal_everywhere(dir, text, want), 0u);
}

// A record has 16 bits for a frame's length. What is longer the host does: it is counted, and not dropped.
TEST(DeviceEquality, FramesTooLongForARecordStayOnTheHost) {
  const TempDir dir;
  const std::string path = dir / "in.pcap";
  {
    auto writer = CaptureWriter::create(path);
    ASSERT_TRUE(writer.ok());
    for (uint32_t i = 0; i < 60; ++i) {
      const uint32_t bytes[] = {64, 9018, 1518, 80'000};
      std::vector<uint8_t> frame(bytes[i % 4]);
      for (size_t k = 0; k < frame.size(); ++k) frame[k] = static_cast<uint8_t>(k * 7 + i);
      const auto n = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{n, n, i}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  // Headers alone, whose frames a pool has room for whatever their lengths are; and frames that are read to their end,
  // where they lie.
  for (const bool sums : {false, true}) {
    const std::string text = "FromDump(" + path + ") -> EtherMirror -> " + (sums ? "SetCRC32(MODE fcs) -> " : "") +
                             "ToDump($OUT); Idle -> ToDump($OUT2);\n";
    const DeviceOutcome want = run(dir, text, nullptr);
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    EXPECT_EQ(want.outcome.report.packets_out, 60u);
    for (const std::string& kind : testing::device_kinds()) {
      for (const Transport transport : {Transport::kStaged, Transport::kCommList, Transport::kCommPool}) {
        if (sums && transport == Transport::kCommPool) continue;
        for (const uint32_t batch : {1u, 16u}) {
          for (const unsigned workers : {1u, 2u}) {
            const Way way{DeviceMode::kLaunch, transport, RecordChoice::kFrame, workers, batch};
            SCOPED_TRACE(text + kind + " " + ::testing::PrintToString(way));
            const DeviceOutcome got = run(dir, text, &way, kind);
            expect_equal(want, got);
            EXPECT_EQ(got.outcome.report.offload.offloaded, 45u);
            EXPECT_EQ(got.outcome.report.offload.on_host, 15u);
          }
        }
      }
    }
  }
}

// Stages between a parser, which cuts padding off, and one that cuts frames off have them whole: so their bytes are
// counted.
TEST(DeviceEquality, StagesBeforeACutCountWholeFrames) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(1000), 23);
  const std::string text = "in :: FromDump(" + capture +
                           ") -> parse :: IPInput -> ttl :: DecIPTTL -> cut :: Truncate(70, EXTRA_LENGTH false) -> out "
                           ":: ToDump($OUT); Idle -> ToDump($OUT2);\n";
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_GT(want.outcome.report.packets_out, packets(300));
  equal_everywhere(dir, text, want);
}

// Packets that are cut off and marked before, between and behind lookups.
TEST(DeviceEquality, CodepointsAndLengths) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(1000), 8);
  std::string text = standard(dir, capture, "tuple_space", "poptrie");
  text.erase(text.find("in ::"));
  text += testing::codepoint_graph_text("FromDump(" + capture + ")");
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  ASSERT_GT(want.outcome.report.packets_out, packets(150));
  EXPECT_GT(equal_everywhere(dir, text, want), packets(1000));
}

// Patterns as a program that looks at whole frames, which the host runs, and as such that look at registers: these go
// with frames, also as an access list.
TEST(DeviceEquality, Patterns) {
  const TempDir dir;
  const std::string capture = testing::write_mixed_capture(dir / "in.pcap", packets(2000), 7);
  std::string many;
  for (int port = 1; port < 40; ++port) many += "src port " + std::to_string(1000 * port) + " or ";
  for (const bool whole : {true, false}) {
    const std::string text =
        "in :: FromDump(" + capture + ") -> IPInput -> f :: IPFilter(" +
        (whole ? "deny ip ttl < 3, 1 ether dst 02:00:00:00:00:77, allow tcp or ip[2:2] & 1 == 0, 1 udp, deny all"
               : "deny ip ttl < 3, 1 dst port 53, allow tcp or icmp or src port > 3000, 1 udp, deny all") +
        ")\n  -> c :: IPClassifier(" + many +
        "port 53, icmp, -);\n"
        "c[0] -> out :: ToDump($OUT); c[1] -> Discard; c[2] -> Paint(2) -> out;\n"
        "f[1] -> second :: ToDump($OUT2);\n";
    SCOPED_TRACE(text);
    const DeviceOutcome want = run(dir, text, nullptr);
    ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
    ASSERT_GT(want.outcome.report.packets_out, packets(300));
    const uint64_t offloaded = equal_everywhere(dir, text, want);
    if (whole) {
      EXPECT_EQ(offloaded, 0u);
    } else {
      EXPECT_GT(offloaded, packets(1000));
    }
  }
}

// A mixed capture, with a frame cut to each of the lengths 0 to 20 between every few of its frames.
std::string capture_with_short_frames(const TempDir& dir, uint32_t count) {
  std::string path = dir / "cut.pcap";
  auto store = FrameStore::load(testing::write_mixed_capture(dir / "uncut.pcap", count, 29));
  auto writer = CaptureWriter::create(path);
  EXPECT_TRUE(store.ok() && writer.ok());
  for (uint64_t i = 0; i < store->size(); ++i) {
    FrameHeader header = store->header(i);
    EXPECT_TRUE(writer->append(header, store->frame(i)));
    if (i % 5 != 0) continue;
    header.captured = std::min<uint32_t>(header.captured, i / 5 % 21);
    EXPECT_TRUE(writer->append(header, store->frame(i)));
  }
  EXPECT_TRUE(writer->commit().ok());
  return path;
}

// Edits of a few bytes: far apart, behind Strip, in front of what came, of packets that begin elsewhere than their
// frame, and of frames that end before or within them. By frames go those that edit headers from the frame's first
// byte.
TEST(DeviceEquality, EditsOfFramesThatAreCutShort) {
  const TempDir dir;
  const std::string capture = capture_with_short_frames(dir, packets(1500));
  const std::string encap = "EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:02)";
  const std::string rewrite = "EtherRewrite(02:00:00:00:00:03, 02:00:00:00:00:04)";
  struct Case {
    std::string chain;  // from the source to out, with its other ways to second
    bool by_frames = false;
  };
  const Case cases[] = {
      {"EtherMirror -> out", true},
      {"c :: Classifier(12/0800 71/00%01, 12/86dd 100/00%01, 12/8100 16/0800, -); c[0] -> m :: EtherMirror -> out;"
       " c[1] -> m; c[2] -> " +
       rewrite + " -> out; c[3] -> Paint(3) -> second"},
      {"c :: Classifier(14/45 110/00%03, !300/00%01, -); c[0] -> EtherMirror -> out; c[1] -> out; c[2] -> second"},
      {"Strip(14) -> a :: GetIPAddress(16) -> rt :: LinearIPLookup(10.0.0.0/8 0, 192.0.2.0/24 1, 0.0.0.0/0 2);"
       " rt[0] -> u :: Unstrip(14) -> EtherMirror -> out; rt[1] -> u; rt[2] -> second"},
      {"Strip(14) -> " + encap + " -> out"},
      {encap + " -> out"},
      {encap + " -> Print(pushed, 30) -> EtherMirror -> out"},
      {"Strip(20) -> Print(stripped, 8) -> c :: Classifier(2/00%01, 100/00, -); c[0] -> EtherMirror -> out;"
       " c[1] -> " +
       encap + " -> out; c[2] -> second"},
      {"Strip(14) -> Print(stripped, 8) -> CheckIPHeader -> " + rewrite + " -> out"},
      {"Strip(14) -> Print(stripped, 8) -> CheckIPHeader -> " + encap + " -> out"},
      {"IPInput -> " + rewrite + " -> out", true},
      {"IPInput -> " + rewrite + " -> " + encap + " -> out", true},
  };
  using enum RecordChoice;
  std::vector<Way> all;
  for (const DeviceMode mode : {DeviceMode::kLaunch, DeviceMode::kPersistent, DeviceMode::kAdaptive}) {
    all.push_back({mode, Transport::kStaged, kFrame, 1, 256});
    all.push_back({mode, Transport::kZeroCopy, kFrame, 3, 100, 2, 2});
    all.push_back({mode, Transport::kCommList, kAuto, 2, 128});
    all.push_back({mode, Transport::kCommPool, kAuto, 3, 100, 2, 2});
    all.push_back({mode, Transport::kCommList, kAuto, 2, 33, 1, 4, 0, DeviceThreading::kMaster});
  }
  for (const Case& c : cases) {
    const std::string text =
        "out :: ToDump($OUT); second :: ToDump($OUT2); Idle -> second; FromDump(" + capture + ") -> " + c.chain + ";";
    const DeviceOutcome want = run(dir, text, nullptr);
    ASSERT_TRUE(want.outcome.ok) << text << want.outcome.error;
    ASSERT_GT(want.outcome.report.packets_out, packets(300)) << text;
    for (const std::string& kind : testing::device_kinds()) {
      for (const Way& way : all) {
        SCOPED_TRACE(text + " " + kind + " " + ::testing::PrintToString(way));
        const DeviceOutcome got = run(dir, text, &way, kind);
        expect_equal(want, got);
        if (!c.by_frames || way.threading == DeviceThreading::kMaster) continue;
        const DeviceCounters& counted = got.outcome.report.offload;
        EXPECT_EQ(counted.offloaded + counted.on_host + counted.redone, want.outcome.report.packets_in);
        EXPECT_GT(counted.offloaded, packets(500));
      }
    }
  }
}

// Of a long frame no more crosses than its first bytes, in which its headers are, and of one whose addresses are
// swapped no more comes back than its head; of frames that the host gathers what went comes back.
TEST(DeviceEquality, LongFramesCrossByTheirFirstBytes) {
  const TempDir dir;
  const std::string path = dir / "in.pcap";
  {
    auto writer = CaptureWriter::create(path);
    ASSERT_TRUE(writer.ok());
    for (uint32_t i = 0; i < 1000; ++i) {
      const std::vector<uint8_t> frame = udp4("10.0.0.1", "10.0.0.2").ports(1, 2).payload(1000 + i % 400).build();
      const auto n = static_cast<uint32_t>(frame.size());
      ASSERT_TRUE(writer->append(FrameHeader{n, n, i}, frame.data()));
    }
    ASSERT_TRUE(writer->commit().ok());
  }
  const std::string text = "FromDump(" + path + ") -> EtherMirror -> ToDump($OUT); Idle -> ToDump($OUT2);";
  const DeviceOutcome want = run(dir, text, nullptr);
  ASSERT_TRUE(want.outcome.ok) << want.outcome.error;
  using enum RecordChoice;
  // A block of results for each 64 packets, and room for a word each.
  constexpr uint32_t kSaid = 8 + sizeof(FrameBlock) / 8;
  for (const std::string& kind : testing::device_kinds()) {
    for (const auto& [way, in, out] :
         {std::tuple{Way{DeviceMode::kLaunch, Transport::kStaged, kFrame, 1, 256}, 144u, 144u},
          std::tuple{Way{DeviceMode::kPersistent, Transport::kStaged, kFrame, 2, 64}, 144u, 144u},
          std::tuple{Way{DeviceMode::kLaunch, Transport::kCommList, kAuto, 1, 256}, kFrameRegion, kFrameEdited},
          std::tuple{Way{DeviceMode::kLaunch, Transport::kCommPool, kAuto, 1, 256}, 144u, kFrameEdited}}) {
      SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
      const DeviceOutcome got = run(dir, text, &way, kind);
      expect_equal(want, got);
      const auto& channels = got.outcome.report.devices.at(0).channels;
      EXPECT_EQ(channels.records, got.outcome.report.packets_in);
      EXPECT_EQ(got.outcome.report.offload.offloaded, channels.records);
      EXPECT_LE(channels.bytes_in, (sizeof(FrameRecord) + in) * channels.records);
      EXPECT_LE(channels.bytes_out, (kSaid + out) * channels.records);
      EXPECT_GT(channels.bytes_in, (in - 16) * channels.records);
      EXPECT_GT(channels.bytes_out, out * channels.records - 16 * channels.records);
    }
  }
}

TEST(DeviceEquality, RealCaptures) {
  const auto folder = test_data("pcap");
  if (!folder) GTEST_SKIP() << "no test data here (SLUICE_DATA)";
  size_t turn = 0;
  for (const char* name :
       {"snabb/vlan-ipv6-frags.pcap", "snabb/lwaftr-stick-imix.pcap", "cases/4in4tunnel.pcap", "cases/QinQpacket.pcap",
        "cases/dns_fragmented.pcap", "cases/fuzz-2006-06-26-2594.pcap", "cases/geneve.pcap", "cases/http_ipv6.pcap",
        "cases/icmpv6.pcap", "cases/ipv6-bad-version.pcap", "cases/ipv6-routing-header.pcap", "cases/vxlan.pcap",
        "cases/badpackets.pcap", "cases/ip6_frag_asan.pcap", "cases/iphone.pcap", "cases/mptcp-v0.pcap",
        "cases/skype.pcap", "snabb/sanitized4k.pcap"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string text = testing::real_graph_text(dir, "FromDump(" + *folder + "/" + name + ")", "ToDump($OUT)",
                                                      "tuple_space", testing::kDirect4, "poptrie");
    const DeviceOutcome want = run(dir, text, nullptr);
    if (!want.outcome.ok) continue;  // refused alike: backend_equality holds that
    const Way all[] = {{DeviceMode::kPersistent, Transport::kStaged, RecordChoice::kKey, 1, 256},
                       {DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kKey, 2, 64},
                       {DeviceMode::kLaunch, Transport::kCommList, RecordChoice::kAuto, 1, 256},
                       {DeviceMode::kLaunch, Transport::kCommPool, RecordChoice::kAuto, 1, 256},
                       {DeviceMode::kLaunch, Transport::kCommPool, RecordChoice::kAuto, 2, 256},
                       {DeviceMode::kLaunch, Transport::kStaged, RecordChoice::kFrame, 2, 128},
                       {DeviceMode::kAdaptive, Transport::kZeroCopy, RecordChoice::kAuto, 1, 256}};
    // Where every access is watched, each capture goes two of the ways, and every way meets six captures.
    ++turn;
    for (size_t i = 0; i < std::size(all); ++i) {
      if (testing::kWatched && i % 3 != turn % 3) continue;
      const Way& way = all[i];
      for (const std::string& kind : testing::device_kinds()) {
        SCOPED_TRACE(kind + " " + ::testing::PrintToString(way));
        expect_equal(want, run(dir, text, &way, kind));
      }
    }
  }
}

}  // namespace
}  // namespace sluice
