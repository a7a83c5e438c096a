// host only
#include "control/capture_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>

#include "base/base64.h"
#include "control/json.h"

namespace sluice {

using Json = nlohmann::ordered_json;

namespace {

// NAME_00001.pcapng
std::string numbered(const std::string& path, uint64_t number) {
  const size_t slash = path.rfind('/'), dot = path.rfind('.');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  const size_t end = dot == std::string::npos || dot <= name ? path.size() : dot;
  return fmt::format("{}_{:05}{}", path.substr(0, end), number, path.substr(end));
}

}  // namespace

Result<CaptureFiles> CaptureFiles::create(const std::string& path, const CaptureRing& ring) {
  CaptureFiles files;
  files.path_ = path;
  files.ring_ = ring;
  if (!ring.several()) {
    if (auto ok = files.open(0); !ok) return std::move(ok).error();
    return files;
  }
  auto place = find_output(path);
  if (!place) return std::move(place).error();
  if (place->kind != OutputPlace::Kind::kFile)
    return Error(fmt::format("{}: a ring needs a regular file", path), "leave out --ring-size and --ring-time");
  return files;
}

void CaptureFiles::describe(const std::vector<std::string>& inputs, uint32_t snap_bytes) {
  inputs_ = inputs;
  snap_bytes_ = snap_bytes;
  if (writer_) {
    for (const std::string& input : inputs_) (void)interface(input);
  }
}

// The number of the interface that packets of this input have.
uint32_t CaptureFiles::interface(const std::string& input) {
  const auto [at, is_new] = interfaces_.try_emplace(input, 0);
  if (is_new) at->second = writer_->add_interface(input, snap_bytes_);
  return at->second;
}

Result<void> CaptureFiles::open(uint64_t now) {
  auto writer = PcapngWriter::create(ring_.several() ? numbered(path_, ++number_) : path_);
  if (!writer) return std::move(writer).error();
  writer_ = std::move(*writer);
  interfaces_.clear();
  for (const std::string& input : inputs_) (void)interface(input);
  opened_ns_ = now;
  bytes_ = 0;
  return {};
}

Result<void> CaptureFiles::close() {
  if (!writer_) return {};
  AtomicFile& file = writer_->file();
  const std::string place = file.path_of(Ending::kWhole);
  auto done = file.commit();
  writer_.reset();
  if (!done) return done;
  places_.push_back(place);
  if (ring_.files == 0 || places_.size() <= ring_.files) return {};
  const std::string oldest = places_.front();
  places_.pop_front();
  if (std::remove(oldest.c_str()) != 0 && errno != ENOENT) return system_error(oldest + ": cannot remove", errno);
  return {};
}

Result<void> CaptureFiles::add(const Json& packet, uint64_t now) {
  const auto frame = from_base64(packet.at("frame").get_ref<const std::string&>());
  const auto wire = packet.at("bytes").get<uint64_t>();
  if (!frame || frame->size() > kMaxCapturedBytes || wire > UINT32_MAX) return Error("the answer has no whole frame");
  if (!writer_) {
    if (auto ok = open(now); !ok) return ok;
  }
  const FrameHeader header{static_cast<uint32_t>(frame->size()), static_cast<uint32_t>(wire),
                           packet.at("timestamp_ns").get<uint64_t>()};
  const auto& comment = packet.at("comment").get_ref<const std::string&>();
  writer_->append(header, reinterpret_cast<const uint8_t*>(frame->data()), comment,
                  interface(packet.at("input").get_ref<const std::string&>()));
  ++packets_;
  if (!writer_->file().ok()) return Error(writer_->file().error());
  // Blocks are counted without their paddings: a file is a little larger.
  bytes_ += frame->size() + comment.size() + 40;
  if (ring_.bytes != 0 && bytes_ >= ring_.bytes) return close();
  return {};
}

Result<void> CaptureFiles::flush(uint64_t now) {
  if (!writer_) return {};
  if (ring_.time_ns != 0 && now - opened_ns_ >= ring_.time_ns) return close();
  writer_->file().flush();
  if (!writer_->file().ok()) return Error(writer_->file().error());
  return {};
}

Result<void> CaptureFiles::finish() {
  return close();
}

}  // namespace sluice
